"""`hr.saved_model`: TensorFlow's SavedModels as objects with functions and variables."""

from headrace.saved_model.loading import load
from headrace.saved_model.saving import save

__all__ = ["load", "save"]
