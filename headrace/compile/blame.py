"""Locates an error of compiled code: the operation, its loops and iterations, its inputs.

Each line of the generated source has a mark with the operation and the loops of this line. A traceback has the current
line and the local variables of each function on the call stack, which include the numbers of the iterations.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.device_arrays import DeviceArray
from headrace.errors import DeadlineExceededError, InvalidArgumentError
from headrace.ir.kernel import device_memory
from headrace.ir.kernel_errors import Located, diagnosed, is_diagnosed, place
from headrace.ir.notes import OfCondition
from headrace.targets.native.failures import NativeFailure
from headrace.targets.python.source import loop_name

if TYPE_CHECKING:
    from types import FrameType

    from headrace.ir.graph import Operation
    from headrace.ir.op_roles import ListKind
    from headrace.schedule.program import Instr
    from headrace.targets.python.source import Mark, SourceLoop

_CALLS: Final = ("Call", "RemoteCall")
SHOWN: Final = 4  # loops and calls named at either end of a longer nesting


def raise_blamed(error: Exception, file: str, marks: Sequence[Mark]) -> None:
    """Raises an error of compiled code with its diagnosis.

    Returns if `error` did not come from `file` or has a diagnosis.

    Args:
      error: The exception, with its traceback.
      file: The file name that the code was compiled with.
      marks: The marks of the lines of the code.
    """
    found = None if is_diagnosed(error) else locate(error, file, marks)
    if found is not None:
        raise diagnosed(found)


def note_interrupt(error: KeyboardInterrupt, file: str, marks: Sequence[Mark]) -> None:
    """Adds a note to a KeyboardInterrupt that names the operation that was running.

    Args:
      error: The exception, with its traceback.
      file: The file name that the code was compiled with.
      marks: The marks of the lines of the code.
    """
    at = _lines(error, file, marks)
    op = at[-1][0].op if at else None
    if op is not None:
        where = _where(at)
        error.add_note(f"the step was interrupted in {place(op)}" + (f", in {where}" if where else ""))


def locate(error: Exception, file: str, marks: Sequence[Mark]) -> Located | None:
    """Finds the operation in the code compiled as `file` that raised `error`; None if outside."""
    at = _lines(error, file, marks)
    if not at or at[-1][0].op is None:
        return None
    mark, frame = at[-1]
    op = mark.op
    assert op is not None
    if isinstance(error, NativeFailure):
        place = error.place
        inside = [_native_part(*part) for part in (*place.iterations(error.counters), *error.around)]
        outside = _parts(at)
        where = _shortened([*inside, *outside], error.missing)
        if place.kind != "stopped":
            return Located(place.error(error.counters), place.instr.op, where, place.inputs(error.counters))
        deadline = error.__context__
        assert isinstance(deadline, DeadlineExceededError)
        if place.instr.op.opdef.structured in _CALLS:
            return Located(deadline, place.instr.op, where, [])
        around = _shortened([*inside[1:], *outside], error.missing)
        return Located(deadline, place.instr.op, around, [], where)
    inputs = _inputs(mark, frame)
    if isinstance(error, IndexError) and op.opdef.list_kind is not None and isinstance(inputs[0], (list, np.ndarray)):
        error = _of_list(op.opdef.list_kind, inputs, error)
    where, running = _where(at), ""
    if isinstance(error, DeadlineExceededError) and op.opdef.structured:
        loop = next((loop for m in marks for loop in m.loops if loop.op is op), None)
        if loop is not None:
            running = _iteration(loop, frame)
        elif op.opdef.structured in ("While", "For"):  # machine code, whose iteration is not known
            running = f"loop '{loop_name(op)}'"
        running = f"{running}, in {where}" if running and where else running
    return Located(error, op, where, [] if any(v is None for v in inputs) else inputs, running)


def came_through(error: Exception, function: Callable[..., Any]) -> bool:
    """Whether the traceback of `error` contains the module of the compiled `function`."""
    tb = error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_globals is function.__globals__:  # each compiled text has globals of its own
            return True
        tb = tb.tb_next
    return False


def _lines(error: BaseException, file: str, marks: Sequence[Mark]) -> list[tuple[Mark, FrameType]]:
    """Marks and Python frames of the code compiled as `file` in a traceback, outermost first."""
    at: list[tuple[Mark, FrameType]] = []
    tb = error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename == file:
            at.append((marks[tb.tb_lineno - 1], tb.tb_frame))
        tb = tb.tb_next
    return at


def _inputs(mark: Mark, frame: FrameType) -> list[Any]:
    """Values of the operation's inputs; None for each that is no longer available."""
    out = []
    memory = None if mark.op is None else device_memory(mark.op)  # a segment has arrays of this memory
    for text in mark.inputs:
        name = text.removesuffix(".T").removesuffix(".read()")
        found = frame.f_locals.get(name, frame.f_globals.get(name))
        out.append(found if memory is None or not memory.has(found) else DeviceArray(found, memory))
    return out


def _of_list(kind: ListKind, inputs: Sequence[Any], cause: IndexError) -> Exception:
    """Error of a list without the element that an operation accesses."""
    if kind == "pop":
        out = InvalidArgumentError("Trying to pop from an empty list.")
    else:
        verb = "access" if kind == "get" else "modify"
        out = InvalidArgumentError(f"Trying to {verb} element {inputs[1]} in a list with {len(inputs[0])} elements.")
    out.__cause__ = cause
    return out


def _where(at: Sequence[tuple[Mark, FrameType]]) -> str:
    """Description of the loops and calls around the operation, innermost first.

    For example `iteration 3 of loop 'a', in function 'f' (called by 'c' at file:line)`; "" outside loops and calls.
    """
    return _shortened(_parts(at))


def _parts(at: Sequence[tuple[Mark, FrameType]]) -> list[str]:
    """Descriptions of the loops and calls around the operation, innermost first."""
    parts: list[str] = []
    for i in range(len(at) - 1, -1, -1):
        mark, frame = at[i]
        parts += _loops(mark, frame)
        call = at[i - 1][0].op if i else None
        if call is not None and call.opdef.structured in _CALLS:
            parts.append(_call(call))
    return parts


def _loops(mark: Mark, frame: FrameType) -> list[str]:
    """Descriptions of the loops around a line in its function, innermost first."""
    note = None if mark.op is None else mark.op.notes.get(OfCondition)
    if note is not None and not note.ahead:
        return [f"iteration 0 of loop '{note.loop}'", *(_iteration(loop, frame) for loop in mark.loops)]
    return [_iteration(loop, frame, 1 if note is not None and not i else 0) for i, loop in enumerate(mark.loops)]


def _shortened(parts: list[str], missing: int = 0) -> str:
    """Parts as one text, with a number in place of those in the middle.

    Args:
      parts: The parts; changed.
      missing: The number of parts that are missing in the middle.
    """
    total = len(parts) + missing
    if total > 2 * SHOWN:
        parts[SHOWN:-SHOWN] = [f"{total - 2 * SHOWN} more calls and loops"]
    return ", in ".join(parts)


def _native_part(instr: Instr, iteration: int) -> str:
    """Description of a loop or a call of native code."""
    if instr.op.opdef.structured in _CALLS:
        return _call(instr.op)
    return f"iteration {iteration} of loop '{loop_name(instr.op)}'"


def _call(op: Operation) -> str:
    made = f" at {op.source}" if op.source is not None else ""
    return f"function '{op.attrs['f'].name}' (called by '{op.name}'{made})"


def _iteration(loop: SourceLoop, frame: FrameType, ahead: int = 0) -> str:
    return f"iteration {_index(loop, frame) + ahead} of loop '{loop.name}'"


def _index(loop: SourceLoop, frame: FrameType) -> int:
    first = int(loop.first) if loop.first.isdecimal() else frame.f_locals.get(loop.first, 0)
    return int(frame.f_locals.get(loop.number, first)) - int(first)


def tag(file: str, marks: Sequence[Mark]) -> str:
    """The current position in the code compiled as `file`, as a tag of the executor.

    Returns:
      "" outside loops, else a tag such as "outer#3/inner#0".
    """
    frame: FrameType | None = sys._getframe(1)
    parts: list[str] = []
    while frame is not None:
        if frame.f_code.co_filename == file:
            mark = marks[frame.f_lineno - 1]
            parts += [f"{loop.name}#{_index(loop, frame)}" for loop in mark.loops]
            if frame.f_code.co_name == "step":
                break
            parts.append(f"{frame.f_code.co_name}#{id(frame)}")  # nothing else distinguishes two calls
        frame = frame.f_back
    return "/".join(reversed(parts))
