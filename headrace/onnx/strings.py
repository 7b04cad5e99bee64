"""Operators on strings."""

from __future__ import annotations

from headrace.api import arrays, strings
from headrace.ir.tensor_type import Tensor
from headrace.onnx.operators import Call, operator


@operator("StringConcat", since=20)
def string_concat(call: Call, x: Tensor, y: Tensor) -> Tensor:
    """Joins the strings at the same place."""
    shape = arrays.broadcast_dynamic_shape(arrays.shape(x), arrays.shape(y))
    return strings.join([arrays.broadcast_to(x, shape), arrays.broadcast_to(y, shape)])


@operator("RegexFullMatch", since=20)
def regex_full_match(call: Call, x: Tensor) -> Tensor:
    """Whether strings match a regular expression as a whole."""
    return strings.regex_full_match(x, call["pattern"])
