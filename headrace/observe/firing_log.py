"""Log of the firings of one device's part of a step.

A `FiringLog` is an `execute.observer.Observer`: the executor calls it with its own records, and it appends them to flat
lists. It computes no text and no statistics, so that a step with it takes less than three times as long as without.
`observe.assembly` does the rest after the step.

Values are kept by reference, since values between kernels are never changed. `ValueBudget` limits their bytes; values
of later firings are replaced by their summaries when they are computed.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.execute.observer import RECENT
from headrace.observe.summaries import Summary, summary

if TYPE_CHECKING:
    from headrace.execute.observer import Machine
    from headrace.execute.plan import PlanNode
    from headrace.execute.records import Frame, Iteration, Origin

FIRING: Final = 5  # entries of `FiringLog.firings` for one firing
_SHARES: Final = 16  # parts of the budget that logs take one after the other
_SMALL: Final = 64  # bytes of a value that is kept in any case
_RECENT_SUMMARIES: Final = 256

_now = time.perf_counter_ns
_array = np.ndarray


class ValueBudget:
    """Budget of values and firings that the logs of one step keep. Thread-safe.

    Args:
      bytes: bytes of values that are kept by reference.
      firings: number of firings.
    """

    __slots__ = ("_bytes", "_firings", "_lock", "_share")

    def __init__(self, bytes: int, firings: int) -> None:
        self._bytes = bytes
        self._firings = firings
        self._share = max(1, bytes // _SHARES)
        self._lock = threading.Lock()

    def take(self, used: int) -> int:
        """Returns the bytes that a log may keep after `used` more; 0 or less: none."""
        with self._lock:
            self._bytes -= used
            return min(self._bytes, self._share)

    def take_firings(self, n: int) -> bool:
        """Whether `n` more firings fit into the budget."""
        with self._lock:
            self._firings -= n
            return self._firings >= 0


class FiringLog:
    """Firings, iterations and crossings of one device's part of a step.

    Args:
      device: the device of the part; "" if the step has one device only.
      budget: the budget of the step.

    Attributes:
      device: the device of the part.
      firings: for each firing the node, the iteration, its begin and end (ns) and the tuple of its values, in one list.
        The values are those of `execute.observer.Observer.end`.
      iterations: for each opening or freeing of an iteration whether it is an opening, the iteration and the time.
      crossings: for each token of a Send or Recv whether it is sent, the node, the iteration, the time and the origin
        of its deadness, or None.
      dropped: number of firings that were not kept.
      summarized: number of firings whose values were summarized at once.
    """

    __slots__ = (
        *("_add", "_began", "_budget", "_counted", "_is_full", "_iteration", "_known", "_left", "_node", "_pending"),
        *("_started", "_summaries", "crossings", "device", "dropped", "firings", "iterations", "summarized"),
    )

    def __init__(self, device: str, budget: ValueBudget) -> None:
        self.device = device
        self.firings: list[Any] = []
        self.iterations: list[Any] = []
        self.crossings: list[Any] = []
        self.dropped = self.summarized = 0
        self._budget = budget
        self._add = self.firings.extend  # looked up once, since it is called for each firing
        self._started: dict[tuple[PlanNode, Iteration], int] = {}  # begins of firings that end later
        self._began = 0
        self._node: PlanNode | None = None  # the firing that began last
        self._iteration: Iteration | None = None
        self._left = budget.take(0)  # bytes of arrays until the budget is looked at
        self._is_full = self._left <= 0
        self._known: dict[int, Any] = {}  # arrays that are counted, by identity
        self._summaries: dict[int, tuple[weakref.ref[Any], Summary]] = {}  # an array passes through several nodes
        self._pending = 0  # firings that were counted in the budget
        self._counted = 0  # entries of `firings` whose arrays were counted

    @property
    def recent(self) -> list[tuple[PlanNode, Iteration]]:
        """Nodes that fired last with their iterations, oldest first."""
        last = self.firings[-FIRING * RECENT :]
        out = list(zip(last[0::FIRING], last[1::FIRING], strict=True))
        if self._node is not None and self._iteration is not None and out[-1:] != [(self._node, self._iteration)]:
            out.append((self._node, self._iteration))
        return out

    def begins(self, machine: Machine) -> None:
        """Has no effect."""

    def iteration(self, event: str, frame: Frame, it: Iteration) -> None:
        """Adds the opening or freeing of an iteration, which may end a call."""
        self.iterations += (event == "open", it, _now())
        n = len(self.firings) // FIRING
        if n > self._pending:  # once for each iteration, since only loops and calls make many firings
            if self._budget.take_firings(n - self._pending):
                self._pending = n
            else:
                self._drop(n - self._pending)
        if event == "free" and frame.call is not None and frame.parent is not None:
            self.end(frame.call, frame.parent, None, None, waited=True)

    def fed(self, node: PlanNode, it: Iteration, value: Any) -> None:
        """Adds a feed as a firing without duration."""
        self._began = _now()
        self.end(node, it, None, (value,))

    def start(self, node: PlanNode, it: Iteration, x: Any) -> None:
        """Notes the begin of a firing."""
        self._node = node
        self._iteration = it
        self._began = _now()

    def wait(self, node: PlanNode, it: Iteration) -> None:
        """Notes that the firing that began last ends later."""
        self._started[node.live, it] = self._began

    def end(self, node: PlanNode, it: Iteration, x: Any, values: tuple[Any, ...] | None, waited: bool = False) -> None:
        """Adds a firing."""
        now = _now()
        began = self._started.pop((node.live, it), now) if waited else self._began  # a call ends within a firing
        if self._is_full:
            values = self._brief(values)
        self._add((node, it, began, now, values))
        if values:
            for v in values:
                if v.__class__ is _array:
                    self._left -= v.nbytes
                    if self._left < 0:
                        self._count()

    def computed(self, node: PlanNode, began: int) -> None:
        """Has no effect: the firing of a heavy kernel has its time."""

    def sent(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Adds the sending of a token."""
        self.crossings += (True, node, it, _now(), origin)

    def received(self, node: PlanNode, it: Iteration, value: Any, origin: Origin | None) -> None:
        """Adds the arrival of a token."""
        self.crossings += (False, node, it, _now(), origin)

    def _count(self) -> None:
        """Counts each array that is new since the last call once."""
        used, known = 0, self._known
        for values in self.firings[self._counted + FIRING - 1 :: FIRING]:
            for v in values or ():
                if v.__class__ is _array and id(v) not in known:
                    known[id(v)] = v
                    used += v.nbytes
        self._counted = len(self.firings)
        self._left = self._budget.take(used)
        self._is_full = self._left <= 0

    def _brief(self, values: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
        """Replaces large arrays by their summaries."""
        self._left = 0
        if not values:
            return values
        self.summarized += 1
        return tuple(self._one(v) for v in values)

    def _one(self, v: Any) -> Any:
        if v.__class__ is tuple and len(v) == 2:  # the data and the predicate of a Switch; an origin has 3 items
            return self._one(v[0]), v[1]
        if v.__class__ is not _array or v.nbytes <= _SMALL or id(v) in self._known:
            return v
        found = self._summaries.get(id(v))
        if found is not None and found[0]() is v:
            return found[1]
        if len(self._summaries) >= _RECENT_SUMMARIES:
            self._summaries.clear()
        out = summary(v)
        self._summaries[id(v)] = (weakref.ref(v), out)
        return out

    def _drop(self, n: int) -> None:
        """Drops the newest `n` firings, which are beyond the budget."""
        self.dropped += n
        del self.firings[FIRING * self._pending :]
        self._counted = min(self._counted, len(self.firings))
