"""TensorFlow's `tf.experimental.extension_type`: classes of the user that are used as tensors are."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.extension_types.extension_type import as_dict as as_dict

__all__ = ["as_dict"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
