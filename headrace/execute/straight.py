"""The propagator for graphs without control flow: no frames, no iterations but one, nothing ever dead.

The same interface as `frames.Propagator`, and the same plan; what is left of the rules is a count for each join. Most
steps, and most partitions of larger ones, are of this kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.execute.frames import Propagator

if TYPE_CHECKING:
    from headrace.execute.records import Frame


class StraightPropagator(Propagator):
    """See the module's text."""

    __slots__ = ()

    def _settle(self, frame: Frame) -> None:
        self.finished = True
        if self.watch is not None:
            self.watch("free", frame, self.root)
