"""Watched values from the events of the token machine, for steps without accumulators (`watching`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import step_events
from headrace.observe.watch import FramePath, WatchedValue

if TYPE_CHECKING:
    from headrace.observe.accumulators import WatchedTensor

_FRAME: Final = re.compile(r"(.+?)#(\d+)(?:/|\Z)")


class WatchListener:
    """Listener that keeps the values of watched tensors of one run.

    Args:
      tensors: the watched tensors.

    Attributes:
      wants_all: False: other nodes and devices need no events.
      values_of: the names of the nodes of the tensors.
    """

    wants_all = False

    def __init__(self, tensors: Sequence[WatchedTensor]) -> None:
        self._of: dict[str, list[int]] = {}
        for k, w in enumerate(tensors):
            self._of.setdefault(w.tensor.op.name, []).append(k)
        self.values_of = frozenset(self._of)
        self._tensors = tensors
        self._found: list[dict[FramePath, WatchedValue]] = [{} for _ in tensors]
        self._last: dict[str, int] = {}  # frame instance → its last iteration

    def __call__(self, event: step_events.Event) -> None:
        """Keeps the values that an event has."""
        if isinstance(event, step_events.IterationOpen):
            frame = event.tag.rpartition("#")[0]
            self._last[frame] = max(self._last.get(frame, 0), event.iteration)
        elif isinstance(event, step_events.NodeEnd) and event.values is not None and event.node in self._of:
            path = tuple((name, int(i)) for name, i in _FRAME.findall(event.tag))
            for k in self._of[event.node]:
                value = event.values[self._tensors[k].tensor.index]
                if value is None:  # a Switch sent it to another output
                    continue
                value = value.copy() if isinstance(value, np.ndarray) else value
                self._found[k][path] = WatchedValue(path, event.iteration, value)  # devices may have copies of a node

    def values(self) -> list[list[WatchedValue]]:
        """Returns the selected values of each tensor so far."""
        return [
            [
                r
                for r in sorted(found.values(), key=lambda r: tuple(i for _, i in r.path))
                if w.spec.takes(r.iteration, self._trips(r)) and (w.when is None or self._holds(w, r.value))
            ]
            for w, found in zip(self._tensors, self._found, strict=True)
        ]

    def _trips(self, r: WatchedValue) -> int:
        """Trip count of the loop around a value: the last iteration only computes the condition."""
        tag = "/".join(f"{name}#{i}" for name, i in r.path).rpartition("#")[0]
        return self._last.get(tag, 0) if r.path and "@" not in r.path[-1][0] else 1

    def _holds(self, w: WatchedTensor, value: Any) -> bool:
        assert w.spec.when is not None
        return bool(np.asarray(w.spec.when(value)))
