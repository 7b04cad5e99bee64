"""Operators on sequences and optional values."""

from __future__ import annotations

from typing import Any

from headrace.api import arrays, tensors
from headrace.api.math import cast
from headrace.api.while_loop import while_loop
from headrace.dtypes import int32, int64
from headrace.ir.tensor_type import Tensor
from headrace.onnx.element_types import dtype_of
from headrace.onnx.operators import Call, operator
from headrace.onnx.values import Optional, Sequence, Value


@operator("SequenceEmpty", since=11)
def sequence_empty(call: Call) -> Sequence:
    """Returns a sequence without elements."""
    return Sequence.of((), dtype_of(call.get("dtype", 1), call.node))


@operator("SequenceConstruct", since=11)
def sequence_construct(call: Call, *elements: Tensor) -> Sequence:
    """Returns the sequence of its inputs."""
    return Sequence.of(elements, elements[0].dtype.base)


@operator("SequenceAt", since=11)
def sequence_at(call: Call, sequence: Sequence, position: Tensor) -> Tensor:
    """Returns an element."""
    return sequence.at(sequence.position(position, sequence.length()))


@operator("SequenceInsert", since=11)
def sequence_insert(call: Call, sequence: Sequence, x: Tensor, position: Tensor | None = None) -> Sequence:
    """Returns a sequence with one more element."""
    if position is None:
        return sequence.appended(x)
    return sequence.inserted(sequence.position(position, sequence.length()), x)


@operator("SequenceErase", since=11)
def sequence_erase(call: Call, sequence: Sequence, position: Tensor | None = None) -> Sequence:
    """Returns a sequence with one element less."""
    n = sequence.length()
    return sequence.erased(n - 1 if position is None else sequence.position(position, n))


@operator("SequenceLength", since=11)
def sequence_length(call: Call, sequence: Sequence) -> Tensor:
    """Returns the number of elements."""
    return cast(sequence.length(), int64)


@operator("SplitToSequence", since=11)
def split_to_sequence(call: Call, x: Tensor, sizes: Tensor | None = None) -> Sequence:
    """Returns the parts of a tensor along an axis as a sequence."""
    axis = call.axis(x)
    if sizes is None:
        total = int(call.static(arrays.shape(x)[axis], "shape"))
        parts = arrays.split(x, [1] * total, axis)
        if not call["keepdims"]:
            parts = [arrays.squeeze(p, [axis]) for p in parts]
        return Sequence.of(parts, x.dtype.base)
    given = call.static(sizes, "split")
    if given.ndim == 0:
        total, size = int(call.static(arrays.shape(x)[axis], "shape")), int(given)
        given = [min(size, total - at) for at in range(0, total, size)]  # type: ignore[assignment]
    return Sequence.of(arrays.split(x, [int(n) for n in given], axis), x.dtype.base)


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(call: Call, sequence: Sequence) -> Tensor:
    """Joins the elements of a sequence along an old or a new axis."""
    axis, new = int(call["axis"]), bool(call["new_axis"])

    def part(i: Any) -> Tensor:
        x = sequence.at(i)
        return arrays.expand_dims(x, axis) if new else x

    n = tensors.constant_value(sequence.length())
    if n is not None:
        return arrays.concat([part(i) for i in range(int(n))], axis)
    _, joined = while_loop(
        lambda i, _: i < sequence.length(),
        lambda i, s: (i + 1, arrays.concat([s, part(i)], axis)),
        (tensors.constant(1, int32), part(0)),
        shape_invariants=((), None),
    )
    return joined  # type: ignore[no-any-return]


@operator("Optional", since=15)
def optional(call: Call, value: Value = None) -> Optional:
    """Returns an optional value."""
    if isinstance(value, (Tensor, Sequence)):
        return Optional(tensors.constant(True), value)
    type_ = call["type"]
    of_sequence = type_.HasField("sequence_type")
    element = type_.sequence_type.elem_type if of_sequence else type_
    return Optional.empty(dtype_of(element.tensor_type.elem_type, call.node), of_sequence)


@operator("OptionalHasElement", since=15)
def optional_has_element(call: Call, value: Value = None) -> Tensor:
    """Whether an optional value is present."""
    if isinstance(value, Optional):
        return value.present  # type: ignore[no-any-return]
    return tensors.constant(value is not None)


@operator("OptionalGetElement", since=15)
def optional_get_element(call: Call, value: Value) -> Value:
    """Returns the value of an optional value."""
    return value.value if isinstance(value, Optional) else value
