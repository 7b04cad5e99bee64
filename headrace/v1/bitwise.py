"""TensorFlow 1's `tf.bitwise`."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.math_ops import bitwise_and as bitwise_and
from headrace.v1.math_ops import bitwise_or as bitwise_or
from headrace.v1.math_ops import bitwise_xor as bitwise_xor
from headrace.v1.math_ops import invert as invert
from headrace.v1.math_ops import left_shift as left_shift
from headrace.v1.math_ops import right_shift as right_shift

# fmt: off
__all__ = [
    "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
