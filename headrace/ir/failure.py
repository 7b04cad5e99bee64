"""What a failing kernel raised, as the error that users get; the same for graphs and for eager ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.errors import (
    HeadraceError,
    HeadraceInternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor


def place(op: Operation) -> str:
    """`'name' (Type), made at file:line`."""
    made = f", made at {op.source}" if op.source is not None else ""
    return f"'{op.name}' ({op.type}){made}"


def known_as(t: Tensor) -> str:
    """The name the user knows a tensor by: of a feed that of the tensor fed, of a cluster that of what it gives."""
    attrs = t.op.attrs
    if "_of" in attrs:
        return str(attrs["_of"][t.index])
    name: str = attrs.get("of") or t.name if t.op.type == "_Arg" else t.name
    return name


def blamed(error: Exception, op: Operation, where: str, inputs: Sequence[Any]) -> Exception:
    """`error`, raised while `op` fired, as the error the user gets: TensorFlow's class, with the place in notes.

    Args:
      error: what was raised.
      op: the operation.
      where: the loop and iteration, as text; "" outside loops.
      inputs: the values it was given, as far as they are there.
    """
    # a fetch that fails (a variable that has no value) is told as the operation fetched
    shown = op if op.type != "_Retval" else op.inputs[0].op
    out = translated(error, place(shown), shown.name, shown, inputs)
    out.add_note(f"operation {place(shown)}" + (f", in {where}" if where else ""))
    if inputs and shown is op:
        pairs = zip(op.inputs, inputs, strict=False)
        out.add_note(f"inputs: {', '.join(f'{known_as(t)}: {brief(v)}' for t, v in pairs)}")
    return out


def translated(error: Exception, place: str, node: str, op: Any, values: Iterable[Any]) -> Exception:
    """`error`, or one of TensorFlow's class with `error` as its cause.

    Args:
      error: what the kernel raised: an error of headrace's own, or of numpy's.
      place: the operation, as text.
      node, op: what an `OpError` says failed.
      values: what the kernel was given.
    """
    out: Exception
    if isinstance(error, OpError):
        if error.node is None:
            error.node = node
        if error.op is None:
            error.op = op
        return error
    if isinstance(error, HeadraceError):
        return error
    if isinstance(error, MemoryError):
        out = ResourceExhaustedError(f"out of memory in {place}: {error or 'allocation failed'}", node, op)
    elif isinstance(error, (ValueError, IndexError, OverflowError)):
        text = str(error)
        if "could not be broadcast" in text:
            given = (shapes.show(v.shape) for v in values if isinstance(v, (np.ndarray, np.generic)))
            text = "Incompatible shapes: " + " vs. ".join(given)
        out = InvalidArgumentError(f"{text} in {place}", node, op)
    else:
        out = HeadraceInternalError(
            f"the kernel of {place} failed with {type(error).__name__}: {error}. Please report this as a bug."
        )
    out.__cause__ = error
    return out


def brief(value: Any) -> str:
    """A value in a few characters: dtype, shape, and the elements if there are few."""
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = "string" if value.dtype == object else value.dtype.name
        text = f"{dtype}{shapes.show(value.shape)}"
        if value.size <= 4:
            text += f" = {value.tolist()!r}"[:80]
        return text
    return type(value).__name__
