"""What a failing kernel raised, as the error that users get; the same for graphs and for eager ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import shapes
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


def place(op: Operation) -> str:
    """`'name' (Type), made at file:line`."""
    made = f", made at {op.source}" if op.source is not None else ""
    return f"'{op.name}' ({op.type}){made}"


def known_as(t: Tensor) -> str:
    """The name of a tensor in the user's graph: for a feed, the tensor fed; for a fused region, its result."""
    attrs = t.op.attrs
    if "_of" in attrs:
        return str(attrs["_of"][t.index])
    if t.op.type != "_Arg":
        return t.name
    if attrs.get("of"):
        return str(attrs["of"])
    return f"loop variable {base_name(t)!r}" if is_loop_variable(t) else t.name


def is_loop_variable(t: Tensor) -> bool:
    """Whether `t` is what the condition or body of a loop is given for a variable."""
    role = getattr(t.op.graph, "role", "")
    return t.op.type == "_Arg" and not t.op.attrs.get("of") and role.startswith(_OF_LOOPS)


def quoted(t: Tensor) -> str:
    """The same in quotes, unless it is no name but words."""
    return known_as(t) if is_loop_variable(t) else f"'{known_as(t)}'"


# what the titles of the condition and the body of a loop begin with
_OF_LOOPS = ("the condition of loop", "the body of loop")


class Given(NamedTuple):
    """What a note of an error says that an operation was given.

    Attributes:
      note: the text.
      type: the operation's type.
      values: the inputs, in short.
    """

    note: str
    type: str
    values: list[str]


def with_inputs_named(error: Exception, op: Operation, where: str, inputs: Sequence[Any]) -> Exception:
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
    if inputs and shown is op and op.type != "Assert":  # which says itself what it was given
        given = [brief(v) for v in inputs]
        note = _inputs(op, given)
        out.add_note(note)
        out._given = Given(note, op.type, given)  # type: ignore[attr-defined]
    return out


def _inputs(op: Operation, given: Sequence[str]) -> str:
    return "inputs: " + ", ".join(f"{known_as(t)}: {v}" for t, v in zip(op.inputs, given, strict=False))


def as_op_error(error: BaseException, op: Operation) -> None:
    """Lets the note about the inputs call them as they are called in the user's graph, where the operation that
    failed, a copy that may have become another's neighbour, is `op`."""
    given: Given | None = getattr(error, "_given", None)
    if given is not None and op.type == given.type and len(op.inputs) == len(given.values):
        notes: list[str] = error.__notes__
        notes[notes.index(given.note)] = note = _inputs(op, given.values)
        error._given = given._replace(note=note)  # type: ignore[attr-defined]


def endless(where: str, made: Source | None) -> str:
    """What is said of a loop that was going round, at `where`, when the time was over; `made`: its line."""
    at = f", made at {made}" if made is not None else ""
    return f"it was in {where}{at}. Does the condition of the loop become false?"


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
        out = HeadraceInternalError(f"the kernel of {place} failed with {type(error).__name__}: {error}. {_whose(op)}")
    out.__cause__ = error
    return out


def _whose(op: Any) -> str:
    """What to do about a kernel that fails as none should."""
    theirs = from_outside(op.type)
    return f"It was registered at {' or '.join(theirs)}." if theirs else "Please report this as a bug."


def brief(value: Any) -> str:
    """A value in a few characters: dtype, shape, and the elements if there are few."""
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = "string" if value.dtype == object else value.dtype.name
        text = f"{dtype}{shapes.show(value.shape)}"
        if value.size <= 4:
            text += f" = {value.tolist()!r}"[:80]
        return text
    return "TensorList" if isinstance(value, list) else type(value).__name__  # compiled code has lists of Python
