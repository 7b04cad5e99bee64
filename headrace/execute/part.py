"""Part of a running step on one device: its executor, reports and orders.

The part does not decide anything about the step as a whole. It reports to `step_state.StepState`, directly or by
messages, and carries out the orders that it gets. Reports and orders have numbers, so that a duplicate or an overtaken
one has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.execute.step_state import Finished, Idle, Release, Start

if TYPE_CHECKING:
    from headrace.execute.executor import Executor
    from headrace.execute.rendezvous import LocalRendezvous


class Part:
    """One device's part of a running step.

    Args:
      name: the name of the device.
      executor: the executor of the part.
      rendezvous: the rendezvous of the parts.
      edges: the edges on which the part receives tokens.

    Attributes:
      name: the name of the device.
      executor: the executor of the part.
    """

    __slots__ = ("_edges", "_epoch", "_order", "_rendezvous", "_wave", "executor", "name")

    def __init__(self, name: str, executor: Executor, rendezvous: LocalRendezvous, edges: frozenset[str]) -> None:
        self.name = name
        self.executor = executor
        self._rendezvous = rendezvous
        self._edges = edges
        self._epoch = self._order = self._wave = 0

    def report(self) -> Idle | Finished:
        """Returns the report of a part that no thread drives."""
        e = self.executor
        self._epoch += 1
        arrived = e.received + self._rendezvous.arrived(self._edges)
        if e.finished:
            return Finished(self.name, self._epoch, self._wave, e.sent, arrived)
        frame = e.propagator.releasable()
        level = 0 if frame is None else frame.level
        waits = () if level else (*e.half_fed(), *(f"  {line}" for line in self._rendezvous.table(self._edges)))
        return Idle(self.name, self._epoch, self._order, self._wave, e.sent, arrived, level, not e.only_receives, waits)

    def probe(self, wave: int) -> None:
        """Notes the wave of a `Probe`; later reports have its number."""
        self._wave = max(self._wave, wave)

    def obey(self, order: Start | Release, is_fed: bool) -> bool:
        """Carries out an order; returns whether it is new, so that the part can run."""
        if order.order <= self._order:
            return False
        self._order = order.order
        if isinstance(order, Release):
            self.executor.end_half_fed()
        else:
            self.executor.begin(is_fed)
        return True
