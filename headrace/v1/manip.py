"""TensorFlow 1's `tf.manip`: older names of some functions that rearrange tensors."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.array_ops import batch_to_space_nd as batch_to_space_nd
from headrace.v1.array_ops import gather_nd as gather_nd
from headrace.v1.array_ops import reshape as reshape
from headrace.v1.array_ops import reverse as reverse
from headrace.v1.array_ops import roll as roll
from headrace.v1.array_ops import scatter_nd as scatter_nd
from headrace.v1.array_ops import space_to_batch_nd as space_to_batch_nd
from headrace.v1.array_ops import tile as tile

# fmt: off
__all__ = [
    "batch_to_space_nd", "gather_nd", "reshape", "reverse", "roll", "scatter_nd", "space_to_batch_nd", "tile",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
