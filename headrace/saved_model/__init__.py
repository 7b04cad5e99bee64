"""`hr.saved_model`: TensorFlow's SavedModels as objects with functions and variables.

The package also has `hr.save` and `hr.load` (`models`), which write such objects for headrace.
"""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.saved_model.loading import load
from headrace.saved_model.saving import save

__all__ = ["load", "save"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
