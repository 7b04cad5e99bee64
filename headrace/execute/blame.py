"""Diagnosis of the errors of a token machine: operation, loops and iterations, inputs, last events.

An `OpError` of a kernel is kept. An exception of numpy gets TensorFlow's class (`ir.kernel_errors`).

A step without a listener records no events while it runs, so they are derived from its state after the error. The
inputs of the operation that failed were computed before it, the ready queue has the operations that would have been
next, and the open frames have the iteration that each loop had reached.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headrace.diagnosis import FAILED, FIRED, READY, WAITED, Diagnosis, Event
from headrace.errors import DeadlineExceededError, InvalidArgumentError, OpError
from headrace.execute.records import DeadCause
from headrace.ir.kernel_errors import Located, diagnosed, is_diagnosed, known_as, made_at, place, ref

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.execute.frames import Propagator
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Frame, Iteration, Origin
    from headrace.ir.graph import Operation
    from headrace.ir.source import Source

SHOWN: Final = 4  # of deeply nested frames, the number named at either end
BRIEFLY: Final = 1  # the same number in the note of the last events
EVENTS: Final = 4  # the number of events of each kind in that note


def where(it: Iteration, shown: int = SHOWN) -> str:
    """Describes the frames of `it`, innermost first; "" in the root frame.

    The text has the form `iteration 3 of loop 'a', in function 'f' (called by 'c' at file:line), in ...`. It omits the
    middle of deeply nested frames.
    """
    frames = []
    while it.frame.parent is not None:
        frames.append(it)
        it = it.frame.parent
    parts = [_frame_of(i) for i in (frames if len(frames) <= 2 * shown else frames[:shown] + frames[-shown:])]
    if len(parts) < len(frames):
        parts.insert(shown, f"{len(frames) - len(parts)} more calls and loops")
    return ", in ".join(parts)


def _frame_of(it: Iteration) -> str:
    name, call = it.frame.plan.name, it.frame.call
    if call is None:
        return f"iteration {it.index} of loop '{name}'"
    made = f" at {call.op.source}" if call.op.source is not None else ""
    return f"function '{name}' (called by '{call.op.name}'{made})"


def raise_blamed(error: BaseException, node: PlanNode | None, it: Iteration, x: Any) -> None:
    """Raises `error`, which `node` raised for the inputs `x`, with its diagnosis.

    The error has TensorFlow's class. An error that has a diagnosis is raised unchanged, and so are KeyboardInterrupt
    and other exits, which are not errors of the operation.
    """
    if isinstance(error, KeyboardInterrupt) and node is not None:
        at = where(it)
        error.add_note(f"the step was interrupted in {place(node.live.op)}" + (f", in {at}" if at else ""))
    if node is None or not isinstance(error, Exception) or is_diagnosed(error):
        raise error
    found, briefly = _locate(error, node.live, it, x)
    events = [Event(FIRED, ref(op), briefly) for op in _before(found.op)]
    raise diagnosed(found, (*events, Event(FAILED, ref(found.op), briefly)))


def _locate(error: Exception, node: PlanNode, it: Iteration, x: Any) -> tuple[Located, str]:
    """Finds the operation of `node` that raised `error`; the second result is its `where`, abbreviated."""
    found = None if node.locate is None else node.locate(error)
    if found is None:
        return Located(error, node.op, where(it), _inputs(node, x)), where(it, BRIEFLY)
    outer = where(it)  # around the operation of a fused region
    running = found.running and _joined(found.running, outer)
    return found._replace(where=_joined(found.where, outer), running=running), _joined(found.where, where(it, BRIEFLY))


def _joined(inner: str, outer: str) -> str:
    return f"{inner}, in {outer}" if inner and outer else inner or outer


def _before(op: Operation) -> list[Operation]:
    """Operations upstream of `op` in its graph, at most `EVENTS`, the nearest last."""
    out: dict[Operation, None] = {}
    todo = [op]
    for o in todo:
        for t in o.inputs if len(out) < EVENTS else ():
            if _is_told(t.op) and t.op not in out:
                out[t.op] = None
                todo.append(t.op)
    return list(out)[:EVENTS][::-1]


def _is_told(op: Operation) -> bool:
    return not (op.opdef.primitive or op.type == "Const" or op.opdef.facts.placeholder or op.type[0] == "_")


def tell(
    error: BaseException,
    p: Propagator,
    recent: Collection[tuple[PlanNode, Iteration]],
    waiting: Collection[tuple[PlanNode, Iteration]],
) -> None:
    """Adds the last events of a step to the diagnosis of its error.

    Args:
      error: the error that ended the step; only an `OpError` gains events.
      p: the state of the token machine.
      recent: the nodes that fired last, oldest first; empty if the step had no listener.
      waiting: the nodes that were started and have not completed.
    """
    if not isinstance(error, OpError):
        return
    found = error.diagnosis or Diagnosis(None)
    if found.op is None and found.story:
        return  # the step was cancelled on several devices, and one of them has told it
    running, before = found.running, found.story
    if isinstance(error, DeadlineExceededError) and not running:
        loops = [f for f in p.open_frames() if f.parent is not None and f.call is None and not f.children]
        if loops:
            longest = max(loops, key=lambda f: f.newest.index)
            running = f"{where(longest.newest)}{made_at(_loop_source(longest))}"
    fired = [Event(FIRED, ref(n.live.op), where(it, BRIEFLY)) for n, it in recent if _is_told(n.live.op)]
    ready = p.ready if isinstance(p.ready, deque) else ()
    coming = [(n, it) for n, it, _ in list(ready)[: 8 * EVENTS] if n is n.live and _is_told(n.op)]
    story = [
        *(fired[:-1] or before[:-1]),
        *before[-1:],
        *(Event(WAITED, ref(n.op), where(it, BRIEFLY)) for n, it in list(waiting)[:EVENTS]),
        *(Event(READY, ref(n.op), where(it, BRIEFLY)) for n, it in coming[:EVENTS]),
    ]
    error.diagnose(dataclasses.replace(found, running=running, story=tuple(story)))


def _loop_source(frame: Frame) -> Source | None:
    return next((n.op.source for n in frame.plan.nodes if n.op.type == "LoopCond"), None)


def _inputs(node: PlanNode, x: Any) -> list[Any]:
    if node.arity == 0:
        return []
    return [x] if node.arity == 1 else list(x)


def dead_cause(origin: Origin) -> DeadCause:
    """Returns the cause of deadness as data, which is valid outside the executor."""
    if isinstance(origin, DeadCause):
        return origin
    node, it, value = origin
    op = node.op
    selector = known_as(op.inputs[1]) if op.opdef.primitive in ("Switch", "SwitchN") else ""
    return DeadCause(ref(op), where(it), selector, int(value), len(op.outputs))


def dead_fetch(name: str, position: int, origin: Origin | None) -> InvalidArgumentError:
    """Returns the error of fetching a dead tensor, which names the Switch at fault."""
    text = f"Retval[{position}] does not have value: the fetched tensor '{name}' is dead"
    if origin is None:
        return InvalidArgumentError(text + "; no iteration computed it", name)
    cause = dead_cause(origin)
    op, value, n = cause.op, cause.value, cause.outputs
    if not cause.selector:
        return InvalidArgumentError(text + f": {op} never fired: its loop ended before a token arrived", name)
    if op.type.endswith("SwitchN"):
        taken = value if 0 <= value < n else n - 1
        what = f"{op} sent its data to output {taken} of {n}: its output_index '{cause.selector}' was {value}"
    else:
        side = "true" if value else "false"
        what = f"the Switch {op} sent its data to the {side} side: its predicate '{cause.selector}' was {bool(value)}"
    text += f", because {what}" + (f" in {cause.where}" if cause.where else "")
    return InvalidArgumentError(text + ". Fetch the result of the conditional (its Merge) instead.", name)
