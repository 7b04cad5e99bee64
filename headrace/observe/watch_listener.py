"""Watched values from the events of the token machine, for steps without accumulators (`watching`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import step_events
from headrace.observe.watch import WatchedValue

if TYPE_CHECKING:
    from headrace.observe.accumulators import WatchedTensor

_SWITCHES: Final = frozenset(("Switch", "RefSwitch", "_SwitchN"))  # an event has the data and the selector
_FRAME: Final = re.compile(r"(.+?)#(\d+)(?:/|\Z)")


class WatchListener:
    """Listener that keeps the values of watched tensors of one run.

    Args:
      tensors: the watched tensors.

    Attributes:
      wants_values: True, so that events have the values of outputs.
    """

    wants_values = True

    def __init__(self, tensors: Sequence[WatchedTensor]) -> None:
        self._of: dict[str, list[int]] = {}
        for k, w in enumerate(tensors):
            self._of.setdefault(w.tensor.op.name, []).append(k)
        self._tensors = tensors
        self._found: list[list[WatchedValue]] = [[] for _ in tensors]
        self._last: dict[str, int] = {}  # frame instance → its last iteration

    def __call__(self, event: step_events.Event) -> None:
        """Keeps the values that an event has."""
        if isinstance(event, step_events.IterationOpen):
            self._last[event.tag.rpartition("#")[0]] = event.iteration
        elif isinstance(event, step_events.NodeEnd) and event.values is not None and event.node in self._of:
            path = tuple((name, int(i)) for name, i in _FRAME.findall(event.tag))
            for k in self._of[event.node]:
                index = self._tensors[k].tensor.index
                if event.type in _SWITCHES:
                    value, taken = event.values[0]
                    if int(taken) != index:
                        continue
                else:
                    value = event.values[index]
                value = value.copy() if isinstance(value, np.ndarray) else value
                self._found[k].append(WatchedValue(path, event.iteration, value))

    def values(self) -> list[list[WatchedValue]]:
        """Returns the selected values of each tensor so far."""
        return [
            [
                r
                for r in sorted(found, key=lambda r: tuple(i for _, i in r.path))
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
