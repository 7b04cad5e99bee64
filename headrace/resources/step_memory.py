"""A device's memory as one step uses it: what its loops keep, and how they get it back.

The account itself, and what is copied when, is `resources.memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.resources.memory import SpilledTensor, prefetch

if TYPE_CHECKING:
    from headrace import trace
    from headrace.resources.memory import Memory
    from headrace.resources.values import Value


class StepMemory:
    """A memory as one step uses it.

    Args:
      memory: the device's.
      step: the step (`id`, `cancelled`, `time_left`), or None.
      listener: receives `trace.StreamSpan`s, or None.
    """

    __slots__ = ("listener", "memory", "step", "step_id")

    def __init__(self, memory: Memory, step: Any = None, listener: trace.Listener | None = None) -> None:
        self.memory = memory
        self.step = step
        self.step_id: int = 0 if step is None else step.id
        self.listener = listener

    def save(self, value: Value, what: str, may_swap: bool) -> Any:
        """What a list holds in the place of `value`, which a loop keeps for its gradient.

        Args:
          value: an array or numpy scalar; anything else is returned as it is.
          what: the tensor and loop, for messages.
          may_swap: whether it may be swapped.

        Raises:
          ResourceExhaustedError: there is no room.
          Whatever the step was cancelled with, while it waited for room.
        """
        return self.memory.save(self, value, what, may_swap) if isinstance(value, (np.ndarray, np.generic)) else value

    def pop(self, items: list[Any]) -> Any:
        """Takes the last element of `items`, elements of a list or lists of these; those before it are wanted soon."""
        item = items.pop()
        if type(item) is SpilledTensor:
            prefetch(items, len(items) - 1, -1)
            return item.value()
        if type(item) is list and items and type(items[-1]) is list:
            prefetch(items[-1], len(items[-1]) - 1, -1)
        return item

    def get(self, item: Any) -> Any:
        """What the element `item` of a list stands for."""
        return item.value() if type(item) is SpilledTensor else item

    def look(self) -> None:
        """Raises if the step was cancelled or is past its deadline."""
        if self.step is not None:
            self.step.look(" while it waited for a copy")
