"""Errors of kernels whose operations fail in native code.

Native code tests the inputs of an operation as its kernel does. If they do not fit, the kernel is called with inputs
that are alike in what is tested, so that its error has one text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.dtypes import INDEX
from headrace.errors import HeadraceInternalError
from headrace.ir.infer import constant_value
from headrace.ir.kernel import find_kernel, made_for
from headrace.ir.kernel_errors import Unread
from headrace.opkit.forms import Put, Take
from headrace.schedule.select import Move
from headrace.targets.native.grown import is_grown

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.schedule.program import Compute


def error_of_shapes(instr: Compute, numbers: Sequence[int]) -> Exception:
    """The exception of the kernel for inputs of which only the shapes matter.

    Args:
      instr: The instruction.
      numbers: The first dimensions of its grown inputs, and the elements of vectors that are no constants, in order.
    """
    left = iter(numbers)
    inputs = []
    for v in instr.inputs:
        if v.storage == "constant":
            inputs.append(v.constant)
        elif is_grown(v):
            shape = (next(left), *(d or 0 for d in (v.shape or ())[1:]))
            inputs.append(np.broadcast_to(np.zeros((), v.dtype.numpy), shape))
        elif v.dtype not in INDEX:
            inputs.append(np.zeros([d or 0 for d in v.shape or ()], v.dtype.numpy))
        else:
            inputs.append(np.array([next(left) for _ in range(shapes.size(v.shape) or 0)], v.dtype.numpy))
    return _raised(instr.op, inputs, numbers)


def error_of_position(instr: Compute, numbers: Sequence[int]) -> Exception:
    """The error of the kernel of an operation for a position out of range.

    Args:
      instr: The instruction.
      numbers: The number of the position, and its coordinates.
    """
    assert isinstance(instr.work, Move)
    form, op = instr.work.form, instr.op
    assert isinstance(form, Take | Put)
    at = form.at
    number, *coordinates = numbers[: 1 + len(at.axes)]
    inputs = [_stand_in(t) for t in op.inputs]
    indices = np.zeros(inputs[at.source].shape, inputs[at.source].dtype)
    for offset, coordinate in zip(at.offsets, coordinates, strict=True):
        indices.reshape(-1)[number * at.group + offset] = coordinate
    for offset, coordinate, total in zip(at.offsets, coordinates, at.totals):
        indices.reshape(-1)[number * at.group + offset + 1] = total - coordinate
    inputs[at.source] = indices[()] if not indices.ndim else indices
    return _raised(op, inputs, coordinates)


def inputs_of_position(instr: Compute, numbers: Sequence[int]) -> list[Any]:
    """The inputs of an operation that failed for a position out of range.

    Args:
      instr: The instruction.
      numbers: The numbers of `error_of_position`, and the elements of the positions if an error shows so few.
    """
    assert isinstance(instr.work, Move)
    form, op = instr.work.form, instr.op
    assert isinstance(form, Take | Put)
    elements = numbers[1 + len(form.at.axes) :]
    found: list[Any] = []
    for k, t in enumerate(op.inputs):
        value, dtype, shape = constant_value(t), t.dtype.base.numpy, t.static_shape
        if k == form.at.source and elements:
            value = np.array(elements, np.int64).astype(dtype).reshape([d or 0 for d in shape or ()])
        found.append(Unread(dtype, tuple([d or 0 for d in shape or ()])) if value is None else value)
    return found


def _stand_in(t: Tensor) -> Any:
    """The value of an input if it is static, else zeros of its shape."""
    value = constant_value(t)
    if value is None:
        shape = t.static_shape
        assert shape is not None
        value = np.broadcast_to(np.zeros((), t.dtype.base.numpy), [d or 0 for d in shape])
    return value if value.ndim else value[()]


def _raised(op: Operation, inputs: Sequence[Any], numbers: Sequence[int]) -> Exception:
    """The exception of the kernel for some inputs; `numbers` describes them."""
    kernel = find_kernel(op)
    assert kernel is not None
    try:
        made_for(op, kernel)(*inputs)
    except Exception as e:
        return e
    return HeadraceInternalError(f"native code rejects inputs of {op.type} that its kernel takes: {numbers}")
