"""Propagator for graphs without control flow: one frame, one iteration, no dead tokens.

Its interface and its plan are those of `frames.Propagator`. A node fires when the count of its pending tokens is zero;
no other rule applies.

Most steps have no control flow, and neither have most parts of larger steps. So the cost of a run before its first node
fires matters: the frame instance of the root, which this propagator never changes, is created once and shared by all
runs of the plan.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.execute.frames import Propagator
from headrace.execute.records import Frame, Iteration

if TYPE_CHECKING:
    from headrace.execute.plan import FramePlan


class AcyclicPropagator(Propagator):
    """Token counts of a step without control flow, with the interface of `Propagator`."""

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
