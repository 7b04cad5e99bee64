"""Propagator for graphs without control flow: one frame, one iteration, no dead tokens.

The interface and the plan are those of `frames.Propagator`; of the rules a count for each join is left. Most
steps, and most partitions of larger ones, are of this kind, so what a run costs before its first node fires matters:
the root's frame instance, which nothing changes here, is made once and shared by all runs of the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.execute.frames import Propagator
from headrace.execute.records import Frame, Iteration

if TYPE_CHECKING:
    from headrace.execute.plan import FramePlan


class AcyclicPropagator(Propagator):
    """See the module's text."""

    __slots__ = ()

    def _open_root(self, plan: FramePlan) -> Iteration:
        frame = plan.shared
        if frame is None:
            frame = plan.shared = Frame(plan, None)
            frame.open = 1
        it = Iteration(frame, 0, plan.values[:], plan.first[:], plan.count)
        if self.watch is not None:
            self.watch("open", frame, it)
        return it

    def _settle(self, frame: Frame) -> None:
        self.finished = True
        if self.watch is not None:
            self.watch("free", frame, self.root)
