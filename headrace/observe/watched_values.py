"""Values of watched tensors, read from their accumulators (`accumulators` describes the log)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceInternalError
from headrace.observe.accumulators import CLOSE, OFFERED, TAKEN
from headrace.observe.watch import FramePath, WatchedValue
from headrace.records import record
from headrace.resources.tensor_list import TensorList

if TYPE_CHECKING:
    from headrace.observe.accumulators import Site, WatchedTensor


@record(slots=True)
class _Frame:
    """A frame that was opened and is not closed.

    Attributes:
      site: the operation; None for the root.
      outside: the iteration of the loop around it.
      first: the number of values before it.
    """

    site: Site | None
    outside: int
    first: int


def watched_values(w: WatchedTensor, sites: Sequence[Site], values: Any, log: Any) -> list[WatchedValue]:
    """Returns the watched values of a tensor, in the order of iterations.

    Args:
      w: the tensor.
      sites: the operations that the log names.
      values: the fetched list of values, or the array of them.
      log: the fetched log.
    """
    return _Reader(w, sites, values).read(log)


class _Reader:
    def __init__(self, w: WatchedTensor, sites: Sequence[Site], values: Any) -> None:
        self._w = w
        self._sites = sites
        self._values = values.stored() if isinstance(values, TensorList) else values
        self._next = 0
        self._frames = [_Frame(None, 0, 0)]
        self._out: list[tuple[WatchedValue, int]] = []  # each with the number of the frame that counts its iterations
        self._offered = False

    def read(self, log: Any) -> list[WatchedValue]:
        pairs = log.tolist()
        for first, second in zip(pairs[::2], pairs[1::2], strict=True):
            if first == CLOSE:
                self._close(second)
            elif first in (TAKEN, OFFERED):
                self._offered = self._offered or first == OFFERED
                self._take(second)
            else:
                self._frames.append(_Frame(self._sites[first], second, len(self._out)))
        if self._next != len(self._values) or len(self._frames) != 1:
            raise HeadraceInternalError(f"the log of '{self._w.name}' does not fit its {len(self._values)} values")
        self._select(0, 1)
        return [r for r, _ in self._out]

    def _take(self, iteration: int) -> None:
        value, self._next = self._values[self._next], self._next + 1
        counted = max(k for k, f in enumerate(self._frames) if f.site is None or f.site.counts)
        self._out.append((WatchedValue(self._path(iteration), iteration, value), counted))

    def _path(self, iteration: int) -> FramePath:
        inside = [*(f.outside for f in self._frames[1:]), iteration][1:]  # the iteration in each frame but the root
        frames = [f.site for f in self._frames if f.site is not None]
        return tuple((site.name, 0 if site.is_call else i) for site, i in zip(frames, inside, strict=True))

    def _close(self, trips: int) -> None:
        k, frame = len(self._frames) - 1, self._frames[-1]
        assert frame.site is not None
        if self._w in frame.site.dense:
            head, name = self._path(0)[:-1], frame.site.name
            start, self._next = self._next, self._next + trips
            values = enumerate(self._values[start : self._next])
            self._out += [(WatchedValue((*head, (name, i)), i, value), k) for i, value in values]
        elif frame.site.counts:
            self._select(k, trips + (self._w in frame.site.tested))
        self._frames.pop()

    def _select(self, k: int, trips: int) -> None:
        """Sorts the values of frame `k`, and drops those that its trip count excludes."""
        spec, first = self._w.spec, self._frames[k].first
        if self._offered:
            rest = self._out[first:]
            self._out[first:] = [(r, at) for r, at in rest if at != k or spec.takes(r.iteration, trips)]
        if k and spec.reaches_back:  # the last values come after all others, and may be selected twice
            place = len([f for f in self._frames[: k + 1] if f.site is not None]) - 1
            rest = sorted(self._out[first:], key=lambda each: each[0].path[place][1])
            seen: set[FramePath] = set()
            self._out[first:] = []
            for r, at in rest:
                if at == k and len(r.path) == place + 1:
                    if r.path in seen:
                        continue
                    seen.add(r.path)
                self._out.append((r, at))
