"""Errors of failing kernels as the user receives them, for graphs and eager ops."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from headrace import shapes
from headrace.device_arrays import DeviceArray
from headrace.diagnosis import Diagnosis, Event, Input, OpRef
from headrace.errors import (
    HeadraceError,
    HeadraceInternalError,
    InvalidArgumentError,
    OpError,
    ResourceExhaustedError,
)
from headrace.ir.function import base_name
from headrace.ir.kernel import from_outside
from headrace.ir.notes import StandsFor

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
    attrs, note = t.op.attrs, t.op.notes.get(StandsFor)
    if note is not None:
        return note.names[t.index]
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


#: Elements of the largest array whose elements an error shows.
SHOWN: Final = 4

# beginnings of the titles of a loop's condition and body
_OF_LOOPS = ("the condition of loop", "the body of loop")


class Located(NamedTuple):
    """Failure of an operation, as found in a token machine or in compiled code.

    Attributes:
      error: the exception as the kernel of the operation raises it.
      op: the operation.
      where: the loops and calls around the operation with their iterations; "" outside of all.
      inputs: the values of its inputs; empty if one of them is no longer available.
      running: the loop, its iteration if known and `where`, if `op` is a loop that ran at the deadline; else "".
    """

    error: Exception
    op: Operation
    where: str
    inputs: Sequence[Any]
    running: str = ""


def is_diagnosed(error: BaseException) -> bool:
    """Whether an error names the operation of a graph that failed."""
    found: Diagnosis | None = getattr(error, "diagnosis", None)
    return found is not None and found.op is not None and found.op.name != ""


def diagnosed(at: Located, story: tuple[Event, ...] = ()) -> HeadraceError:
    """Returns an error of TensorFlow's class for `at.error`, with its diagnosis.

    Args:
      at: the failure.
      story: the events around it.

    Returns:
      `at.error` itself or another error with `at.error` as its cause.
    """
    # a fetch that fails (a variable without a value) is reported as the fetched operation
    op = at.op if at.op.type != "_Retval" else at.op.inputs[0].op
    inputs: tuple[Input, ...] = ()
    if op is at.op and op.type != "Assert":  # the text of an Assert contains the values already
        inputs = _inputs(op, [brief(v) for v in at.inputs])
    running = at.running and f"{at.running}{made_at(op.source)}"
    out = translated(at.error, place(op), op.name, op, at.inputs)
    out.diagnose(Diagnosis(ref(op), at.where, inputs, running, story))
    return out


def _inputs(op: Operation, values: Iterable[str]) -> tuple[Input, ...]:
    return tuple(Input(known_as(t), v) for t, v in zip(op.inputs, values, strict=False))


def name_inputs(error: HeadraceError, op: Operation) -> None:
    """Updates the inputs in the diagnosis of `error` to the names in the user's graph.

    Args:
      error: the error.
      op: the operation of the user's graph. The operation that failed is a copy of it, whose neighbours may be others.
    """
    found = error.diagnosis
    if found is None or found.op is None or found.op.type != op.type or len(found.inputs) != len(op.inputs):
        return
    error.diagnose(dataclasses.replace(found, inputs=_inputs(op, [x.value for x in found.inputs])))


def made_at(source: Source | None) -> str:
    """Returns the addition to the text about an operation that was created at `source`."""
    return f", made at {source}" if source is not None else ""


def translated(error: Exception, place: str, node: str, op: Any, values: Iterable[Any]) -> HeadraceError:
    """Returns `error`, or an error of TensorFlow's class with `error` as its cause.

    Args:
      error: the exception that the kernel raised, one of headrace's or of numpy's.
      place: the operation, as text.
      node, op: the name and the operation that an `OpError` reports.
      values: the input values of the kernel.
    """
    out: HeadraceError
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


class Unread(NamedTuple):
    """An array whose elements are not available."""

    dtype: np.dtype
    shape: tuple[int, ...]


def brief(value: Any) -> str:
    """Returns a value as a short text: dtype, shape, and few elements on the host."""
    if isinstance(value, Unread | DeviceArray):
        return f"{value.dtype.name}{shapes.show(value.shape)}"
    if isinstance(value, (np.ndarray, np.generic)):
        dtype = "string" if value.dtype == object else value.dtype.name
        text = f"{dtype}{shapes.show(value.shape)}"
        if value.size <= SHOWN:
            text += f" = {value.tolist()!r}"[:80]
        return text
    return (
        "TensorList" if isinstance(value, list) else type(value).__name__
    )  # compiled code represents tensor lists by Python lists
