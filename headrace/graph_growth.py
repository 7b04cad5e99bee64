"""Warning about graphs that grow between runs.

A loop that adds operations and runs them becomes slower in each iteration: each run compiles a new step, and the graph
gets larger. The same graph is often built in pieces, with runs in between, which is correct. So the warning appears
only if the graph grows repeatedly before runs of the same fetches, or by operations of the same line.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from headrace import notices, thresholds
from headrace.memo import Memo

if TYPE_CHECKING:
    from headrace.ir.graph import Graph

FETCHES_LIMIT: Final = 2  # growths before runs of the same fetches
LINE_LIMIT: Final = 10  # growths by operations of one line; a function may be called a few times on purpose


class GraphGrowth:
    """Counts of the growths of a session's graph, with one warning.

    The caller holds a lock.

    Attributes:
      counts: number of growths, by fetches and by line.
    """

    def __init__(self) -> None:
        self.counts: Memo[Hashable, int] = Memo("session growth", thresholds.SESSION_CALLS)
        self._is_warned = False

    def add(self, graph: Graph, fetches: Any, key: Hashable | None) -> None:
        """Counts a growth of `graph` that precedes a run.

        Args:
          graph: the graph.
          fetches: the fetches of the run.
          key: the key of fetches and feeds, if they ran before the growth, or None.
        """
        newest = graph.operations[-1]
        for what, limit in ((key, FETCHES_LIMIT), (newest.source, LINE_LIMIT)):
            if what is None:
                continue
            n = (self.counts.get(what) or 0) + 1
            self.counts.put(what, n)
            if n == limit and not self._is_warned:
                self._is_warned = True
                notices.warn(
                    f"the graph grows between runs of {fetches!r}, so each of them is compiled anew and the graph gets "
                    f"larger and larger; newest operation: '{newest.name}' ({newest.type}), made at {newest.source}. "
                    "Build the graph first, then run it."
                )
