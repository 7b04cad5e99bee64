"""Text about waits, for errors, Ctrl-C and the log.

A wait that lasts for `flags.SILENT_WAIT` seconds makes one record in the log of the session, once in each step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import flags, notices
from headrace.execute.blame import where
from headrace.execute.plan import RECV
from headrace.ir.kernel_errors import place

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Iteration
    from headrace.execute.step import Step

SHOWN: Final = 5  # operations that a text names


def waits_of(started: Collection[tuple[PlanNode, Iteration]], step: Step) -> str:
    """Names the operations that were started and have not completed; "" without any.

    Receivers of tokens of other devices are left out if there are other operations.

    Args:
      started: the nodes with their iterations.
      step: the step, whose `advise` describes queues and other resources.
    """
    others = [(n, it) for n, it in started if n.kind != RECV] or list(started)
    shown = []
    for node, it in others[:SHOWN]:
        at = where(it)
        more = "" if step.advise is None else step.advise(node.op)
        shown.append(place(node.op) + (f" in {at}" if at else "") + (f", {more}" if more else ""))
    left = len(others) - len(shown)
    return "; ".join(shown) + (f"; and {left} more" if left > 0 else "")


def note_interrupt(error: BaseException, waits: str) -> None:
    """Adds a note about `waits` to a KeyboardInterrupt; another error stays unchanged."""
    if isinstance(error, KeyboardInterrupt) and waits:
        error.add_note(f"the step was interrupted while it waited for {waits}")


def next_look(step: Step, patience: float, waited: float = 0.0) -> float:
    """Returns the seconds until the next look at a wait.

    Args:
      step: the step.
      patience: seconds until a look in any case. A record in the log may be due before.
      waited: seconds that the wait has lasted.
    """
    limit: float = flags.SILENT_WAIT.value
    if not limit or step.whole.is_long_wait_told or waited >= limit:
        return patience
    return min(patience, limit - waited)


def tell_long_wait(step: Step, waited: float, waits: str) -> None:
    """Makes the record of a step's first long wait."""
    limit: float = flags.SILENT_WAIT.value
    whole = step.whole
    if limit and waited >= limit and not whole.is_long_wait_told:
        whole.is_long_wait_told = True
        line = f"step {step.id} has waited {waited:.3g} s for {waits}"
        notices.inform("session", [f"{line}. HEADRACE_SILENT_WAIT sets the time after which this is said"], asked=True)
