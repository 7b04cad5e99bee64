"""Memory of a device for one step: the values that its loops keep for gradients.

The account itself and the copies are in `resources.memory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.device_arrays import DeviceArray
from headrace.resources.memory import SpilledTensor, prefetch

if TYPE_CHECKING:
    from headrace import step_events
    from headrace.device_arrays import ArrayMemory
    from headrace.resources.memory import Memory
    from headrace.resources.values import Value


_NONE: Final[Mapping[ArrayMemory, Memory]] = {}


class StepMemory:
    """View of a device's memory for one step.

    A step on the host and a device keeps values of both. Each counts in the account of the memory that holds it.

    Args:
      memory: The memory of the device.
      step: The step (`id`, `look`), or None.
      listener: Receives a `step_events.StreamSpan` for each copy; None for no listener.
      others: The memories of the session's devices that have arrays of their own.
    """

    __slots__ = ("_others", "listener", "memory", "step", "step_id")

    def __init__(
        self,
        memory: Memory,
        step: Any = None,
        listener: step_events.Listener | None = None,
        others: Mapping[ArrayMemory, Memory] = _NONE,
    ) -> None:
        self.memory = memory
        self.step = step
        self.step_id: int = 0 if step is None else step.id
        self.listener = listener
        self._others = others

    def of(self, place: ArrayMemory) -> StepMemory | None:
        """The view of the account of `place`; None if its device has no limit."""
        if self.memory.place is place:
            return self
        found = self._others.get(place)
        return None if found is None else StepMemory(found, self.step, self.listener, self._others)

    def save(self, value: Value, what: str, may_swap: bool) -> Any:
        """Keeps a value of a loop; returns its representation in a list.

        Args:
          value: An array, of numpy or of a device, or numpy scalar; any other value is returned unchanged.
          what: The tensor and the loop, for messages.
          may_swap: Whether the value may be swapped.

        Returns:
          A `SpilledTensor`, or `value` itself.

        Raises:
          ResourceExhaustedError: Memory has no room.
          Exception: The error with which the step was cancelled during a wait for room.
        """
        if isinstance(value, (np.ndarray, np.generic)):
            return self.memory.save(self, value, what, may_swap)
        use = self.of(value.memory) if type(value) is DeviceArray else None
        return value if use is None else use.memory.save(use, value, what, may_swap)

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
