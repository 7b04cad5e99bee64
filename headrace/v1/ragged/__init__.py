"""TensorFlow 1's `tf.ragged`: tensors with rows of different lengths."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.ragged import dispatch as dispatch
from headrace.v1.ragged.crossing import cross as cross
from headrace.v1.ragged.crossing import cross_hashed as cross_hashed
from headrace.v1.ragged.making import boolean_mask as boolean_mask
from headrace.v1.ragged.making import constant as constant
from headrace.v1.ragged.making import constant_value as constant_value
from headrace.v1.ragged.making import placeholder as placeholder
from headrace.v1.ragged.making import ragged_range as range
from headrace.v1.ragged.making import stack as stack
from headrace.v1.ragged.making import stack_dynamic_partitions as stack_dynamic_partitions
from headrace.v1.ragged.ragged_tensor import RaggedTensorValue as RaggedTensorValue
from headrace.v1.ragged.ragged_tensor import map_flat_values as map_flat_values
from headrace.v1.ragged.ragged_tensor import row_splits_to_segment_ids as row_splits_to_segment_ids
from headrace.v1.ragged.ragged_tensor import segment_ids_to_row_splits as segment_ids_to_row_splits

# fmt: off
__all__ = [
    "RaggedTensorValue", "boolean_mask", "constant", "constant_value", "cross", "cross_hashed", "map_flat_values",
    "placeholder", "range", "row_splits_to_segment_ids", "segment_ids_to_row_splits", "stack",
    "stack_dynamic_partitions",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
