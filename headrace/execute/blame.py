"""What an error of a running step says: which operation, made where, in which loop and iteration, on which inputs.

A kernel's own `OpError` is kept and gains notes. What numpy raises is given TensorFlow's class (`ir.failure`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.errors import InvalidArgumentError
from headrace.ir.failure import blamed, known_as, place

if TYPE_CHECKING:
    from headrace.execute.plan import Node
    from headrace.execute.records import Iteration, Origin

SHOWN: Final = 4  # of deeply nested frames so many are named at either end


def where(it: Iteration) -> str:
    """`iteration 3 of loop 'a', in function 'f' (called by 'c' at file:line), in ...`; "" in the root frame.

    Where calls are nested deeply, the middle is left out.
    """
    frames = []
    while it.frame.parent is not None:
        frames.append(it)
        it = it.frame.parent
    parts = [_frame_of(i) for i in (frames if len(frames) <= 2 * SHOWN else frames[:SHOWN] + frames[-SHOWN:])]
    if len(parts) < len(frames):
        parts.insert(SHOWN, f"{len(frames) - len(parts)} more calls and loops")
    return ", in ".join(parts)


def _frame_of(it: Iteration) -> str:
    name, call = it.frame.plan.name, it.frame.call
    if call is None:
        return f"iteration {it.index} of loop '{name}'"
    made = f" at {call.op.source}" if call.op.source is not None else ""
    return f"function '{name}' (called by '{call.op.name}'{made})"


def blame(error: BaseException, node: Node, it: Iteration, x: Any) -> BaseException:
    """`error`, raised while `node` fired, as the error the user gets: TensorFlow's class, with the place in notes."""
    if not isinstance(error, Exception):
        return error  # KeyboardInterrupt and its like are nobody's fault
    found = None if node.culprit is None else node.culprit(error)
    if found is not None:  # an operation of a cluster
        return blamed(found.error, found.op, where(it), found.inputs)
    return blamed(error, node.op, where(it), _inputs(node, x))


def raise_blamed(error: BaseException, node: Node | None, it: Iteration, x: Any) -> None:
    """Raises `error` as the user is to see it."""
    if node is None or getattr(error, "_blamed", False):
        raise error
    out = blame(error, node.live, it, x)
    out._blamed = True  # type: ignore[attr-defined]
    raise out


def _inputs(node: Node, x: Any) -> list[Any]:
    if node.arity == 0:
        return []
    return [x] if node.arity == 1 else list(x)


def dead_fetch(name: str, position: int, origin: Origin | None) -> InvalidArgumentError:
    """The error of fetching a dead tensor: which Switch sent its value the other way."""
    text = f"Retval[{position}] does not have value: the fetched tensor '{name}' is dead"
    if origin is None:
        return InvalidArgumentError(text + "; no iteration computed it", name)
    switch, it, value = origin
    op = switch.op
    if op.opdef.primitive not in ("Switch", "SwitchN"):
        return InvalidArgumentError(
            text + f": {place(op)} never fired, for its loop ended without a token for it", name
        )
    selector = known_as(op.inputs[1])
    if op.opdef.primitive == "Switch":
        side = "true" if value else "false"
        what = f"the Switch {place(op)} sent its data to the {side} side: its predicate '{selector}' was {value}"
    else:
        n = len(op.outputs)
        taken = value if 0 <= value < n else n - 1
        what = f"{place(op)} sent its data to output {taken} of {n}: its output_index '{selector}' was {value}"
    loop = where(it)
    text += f", because {what}" + (f" in {loop}" if loop else "")
    return InvalidArgumentError(text + ". Fetch the result of the conditional (its Merge) instead.", name)
