"""Memory of a device for one step: the values that its loops keep for gradients.

The account itself and the copies are in `resources.memory`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.resources.memory import SpilledTensor, prefetch

if TYPE_CHECKING:
    from headrace import step_events
    from headrace.resources.memory import Memory
    from headrace.resources.values import Value


class StepMemory:
    """View of a device's memory for one step.

    Args:
      memory: The memory of the device.
      step: The step (`id`, `look`), or None.
      listener: Receives a `step_events.StreamSpan` for each copy; None for no listener.
    """

    __slots__ = ("listener", "memory", "step", "step_id")

    def __init__(self, memory: Memory, step: Any = None, listener: step_events.Listener | None = None) -> None:
        self.memory = memory
        self.step = step
        self.step_id: int = 0 if step is None else step.id
        self.listener = listener

    def save(self, value: Value, what: str, may_swap: bool) -> Any:
        """Keeps a value of a loop; returns its representation in a list.

        Args:
          value: An array or numpy scalar; any other value is returned unchanged.
          what: The tensor and the loop, for messages.
          may_swap: Whether the value may be swapped.

        Returns:
          A `SpilledTensor`, or `value` itself.

        Raises:
          ResourceExhaustedError: Memory has no room.
          Exception: The error with which the step was cancelled during a wait for room.
        """
        return self.memory.save(self, value, what, may_swap) if isinstance(value, (np.ndarray, np.generic)) else value

    def pop(self, items: list[Any]) -> Any:
        """Pops the last element of `items` and prefetches the elements before it."""
        item = items.pop()
        if type(item) is SpilledTensor:
            prefetch(items, len(items) - 1, -1)
            return item.value()
        if type(item) is list and items and type(items[-1]) is list:
            prefetch(items[-1], len(items[-1]) - 1, -1)
        return item

    def get(self, item: Any) -> Any:
        """The value of the element `item` of a list."""
        return item.value() if type(item) is SpilledTensor else item

    def look(self) -> None:
        """Raises if the step was cancelled or is past its deadline."""
        if self.step is not None:
            self.step.look(" while it waited for a copy")
