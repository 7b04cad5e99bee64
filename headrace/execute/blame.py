"""Error notes of a running step: operation, source line, loop, iteration and inputs.

A kernel's own `OpError` is kept and gains notes. An exception of numpy gets TensorFlow's class (`ir.kernel_errors`).

The last note lists the last events of the step. A step without a listener records no events while it runs, so they are
read from its state after the error. The inputs of the operation that failed were computed before it, the ready queue
has the operations that would have been next, and the open frames have the iteration that each loop had reached.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import DeadlineExceededError, InvalidArgumentError, OpError
from headrace.execute.records import DeadCause
from headrace.ir.kernel_errors import endless, known_as, place, ref, with_inputs_named

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


def blame(error: BaseException, node: PlanNode, it: Iteration, x: Any) -> BaseException:
    """Converts `error`, which `node` raised, to TensorFlow's class with its place in notes."""
    if not isinstance(error, Exception):
        return error  # KeyboardInterrupt and other exits are not errors of the operation
    found = None if node.culprit is None else node.culprit(error)
    if found is None:
        out, op, briefly = with_inputs_named(error, node.op, where(it), _inputs(node, x)), node.op, where(it, BRIEFLY)
    else:  # an operation of a fused region
        out, op = with_inputs_named(found.error, found.op, _joined(found.where, where(it)), found.inputs), found.op
        briefly = _joined(found.where, where(it, BRIEFLY))
        if found.iteration:
            out.add_note(endless(_joined(found.iteration, where(it)), op.source))
            out._is_told = True  # type: ignore[attr-defined]
    out._fired = [*_before(op), op], briefly  # type: ignore[attr-defined]
    return out


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
    """Adds the last events of a step to the notes of its error.

    Args:
      error: the error that ended the step; only an `OpError` gains a note.
      p: the state of the token machine.
      recent: the nodes that fired last, oldest first; empty if the step had no listener.
      waiting: the nodes that were started and have not completed.
    """
    if not isinstance(error, OpError):
        return
    if isinstance(error, DeadlineExceededError) and not getattr(error, "_is_told", False):
        loops = [f for f in p.open_frames() if f.parent is not None and f.call is None and not f.children]
        if loops:
            longest = max(loops, key=lambda f: f.newest.index)
            error.add_note(endless(where(longest.newest), _loop_source(longest)))
    ops, at = getattr(error, "_fired", ([], ""))
    if not (at or recent or waiting):
        return  # without a loop or a waiting node, the graph itself shows what led to the error
    fired = [_event("fired", n.live.op, where(it, BRIEFLY)) for n, it in recent if _is_told(n.live.op)]
    lines = fired[:-1] or [_event("fired", op, at) for op in ops[:-1]]
    lines += [_event("failed", op, at) for op in ops[-1:]]
    lines += [_event("waited for", n.op, where(it, BRIEFLY)) for n, it in list(waiting)[:EVENTS]]
    ready = p.ready if isinstance(p.ready, deque) else ()
    coming = [(n, it) for n, it, _ in list(ready)[: 8 * EVENTS] if n is n.live and _is_told(n.op)]
    lines += [_event("was ready", n.op, where(it, BRIEFLY)) for n, it in coming[:EVENTS]]
    if len(lines) > 1:  # a single line would only repeat the error
        error.add_note("\n".join(["the last events of the step:", *lines]))


def _event(what: str, op: Operation, at: str) -> str:
    return f"  {what}: {place(op)}" + (f", in {at}" if at else "")


def _loop_source(frame: Frame) -> Source | None:
    return next((n.op.source for n in frame.plan.nodes if n.op.type == "LoopCond"), None)


def raise_blamed(error: BaseException, node: PlanNode | None, it: Iteration, x: Any) -> None:
    """Raises `error` with the notes of `blame`, which are added once."""
    if node is None or getattr(error, "_blamed", False):
        raise error
    out = blame(error, node.live, it, x)
    out._blamed = True  # type: ignore[attr-defined]
    raise out


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
