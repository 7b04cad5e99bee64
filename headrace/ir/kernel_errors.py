"""Errors of failing kernels as the user receives them, for graphs and eager ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import shapes
from headrace.diagnosis import OpRef
from headrace.errors import (
    HeadraceError,
    HeadraceInternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)
from headrace.ir.function import base_name
from headrace.ir.kernel import from_outside

if TYPE_CHECKING:
    from headrace.ir.graph import Operation, Tensor
    from headrace.ir.source import Source


def ref(op: Operation) -> OpRef:
    """Describes an operation by its name, type and source line."""
    return OpRef(op.name, op.type, "" if op.source is None else str(op.source))


def place(op: Operation) -> str:
    """Returns the operation as text: `'name' (Type), made at file:line`."""
    return str(ref(op))


def known_as(t: Tensor) -> str:
    """Returns the name of a tensor in the user's graph.

    For a parameter that stands for a fed tensor, this is the name of the fed tensor; for a fused region, that of its
    result.
    """
    attrs = t.op.attrs
    if "_of" in attrs:
        return str(attrs["_of"][t.index])
    if t.op.type != "_Arg":
        return t.name
    if attrs.get("of"):
        return str(attrs["of"])
    return f"loop variable {base_name(t)!r}" if is_loop_variable(t) else t.name


def is_loop_variable(t: Tensor) -> bool:
    """Whether `t` is the parameter for a loop variable in a loop's condition or body."""
    role = getattr(t.op.graph, "role", "")
    return t.op.type == "_Arg" and not t.op.attrs.get("of") and role.startswith(_OF_LOOPS)


def quoted(t: Tensor) -> str:
    """Returns the result of `known_as`, in quotes if it is a name."""
    return known_as(t) if is_loop_variable(t) else f"'{known_as(t)}'"


# beginnings of the titles of a loop's condition and body
_OF_LOOPS = ("the condition of loop", "the body of loop")


class Given(NamedTuple):
    """Note of an error about the inputs of an operation.

    Attributes:
      note: the text.
      type: the type of the operation.
      values: the inputs, abbreviated.
    """

    note: str
    type: str
    values: list[str]


def with_inputs_named(error: Exception, op: Operation, where: str, inputs: Sequence[Any]) -> Exception:
    """Returns an error of TensorFlow's class for `error`, with the place in its notes.

    Args:
      error: the exception raised while `op` fired.
      op: the operation.
      where: the loop and iteration, as text; "" outside of loops.
      inputs: the available input values of the operation.

    Returns:
      `error` itself or another error with `error` as its cause.
    """
    # a fetch that fails (a variable without a value) is reported as the fetched operation
    shown = op if op.type != "_Retval" else op.inputs[0].op
    out = translated(error, place(shown), shown.name, shown, inputs)
    out.add_note(f"operation {place(shown)}" + (f", in {where}" if where else ""))
    if inputs and shown is op and op.type != "Assert":  # the text of an Assign contains the values already
        given = [brief(v) for v in inputs]
        note = _inputs(op, given)
        out.add_note(note)
        out._given = Given(note, op.type, given)  # type: ignore[attr-defined]
    return out


def _inputs(op: Operation, given: Sequence[str]) -> str:
    return "inputs: " + ", ".join(f"{known_as(t)}: {v}" for t, v in zip(op.inputs, given, strict=False))


def as_op_error(error: BaseException, op: Operation) -> None:
    """Updates the note about the inputs of `error` to the names in the user's graph.

    Args:
      error: the error.
      op: the operation of the user's graph. The operation that failed is a copy of it, whose neighbours may be others.
    """
    given: Given | None = getattr(error, "_given", None)
    if given is not None and op.type == given.type and len(op.inputs) == len(given.values):
        notes: list[str] = error.__notes__
        notes[notes.index(given.note)] = note = _inputs(op, given.values)
        error._given = given._replace(note=note)  # type: ignore[attr-defined]


def endless(where: str, made: Source | None) -> str:
    """Returns the text about a loop that still ran when the time limit was reached.

    Args:
      where: the loop and iteration.
      made: the line that created the loop, if known.
    """
    at = f", made at {made}" if made is not None else ""
    return f"it was in {where}{at}. Does the condition of the loop become false?"


def translated(error: Exception, place: str, node: str, op: Any, values: Iterable[Any]) -> Exception:
    """Returns `error`, or an error of TensorFlow's class with `error` as its cause.

    Args:
      error: the exception that the kernel raised, one of headrace's or of numpy's.
      place: the operation, as text.
      node, op: the name and the operation that an `OpError` reports.
      values: the input values of the kernel.
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
        out = HeadraceInternalError(f"the kernel of {place} failed with {type(error).__name__}: {error}. {_whose(op)}")
    out.__cause__ = error
    return out


def _whose(op: Any) -> str:
    """Returns advice about a kernel that failed with an unexpected exception."""
    theirs = from_outside(op.type)
    return f"It was registered at {' or '.join(theirs)}." if theirs else "Please report this as a bug."


def brief(value: Any) -> str:
    """Returns a value as a short text: dtype, shape, and elements if there are few."""
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = "string" if value.dtype == object else value.dtype.name
        text = f"{dtype}{shapes.show(value.shape)}"
        if value.size <= 4:
            text += f" = {value.tolist()!r}"[:80]
        return text
    return (
        "TensorList" if isinstance(value, list) else type(value).__name__
    )  # compiled code represents tensor lists by Python lists
