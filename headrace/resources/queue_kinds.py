"""The other kinds of queues: padding, shuffling, by priority. They wait as every `queue.Queue` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from headrace import dtypes, shapes
from headrace.errors import InvalidArgumentError
from headrace.resources import values
from headrace.resources.philox import Philox, Stream
from headrace.resources.queue import Element, FIFOQueue, Queue
from headrace.resources.values import shape_of

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.resources.values import Value
    from headrace.shapes import Shape


class PaddingFIFOQueue(FIFOQueue):
    """First in, first out; elements may differ in shape, and a batch of them is padded with zeros.

    Serves PaddingFIFOQueueV2.
    """

    partial_shapes: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        component_types: Sequence[DType],
        component_shapes: Sequence[Shape] = (),
        capacity: int | None = None,
    ) -> None:
        """An empty queue.

        Raises:
          InvalidArgumentError: not every component has a shape, or one of unknown rank.
        """
        if len(component_shapes) != len(component_types) or None in component_shapes:
            raise InvalidArgumentError(
                f"Shapes must be provided for all components, but received {len(component_types)} dtypes and "
                f"{len(component_shapes)} shapes. (Their ranks must be known.)"
            )
        super().__init__(name, component_types, component_shapes, capacity)

    def _batch(self, elements: list[Element]) -> Element:
        columns: Sequence[Sequence[Value]] = list(zip(*elements, strict=True)) or [()] * len(self.shapes)
        return tuple(map(_padded, columns, self.component_types, self.shapes))


def _padded(column: Sequence[Value], dtype: DType, shape: Shape) -> Value:
    """The values stacked, each padded with zeros to the largest size in the dimensions that `shape` leaves open."""
    sizes = [shape_of(v) for v in column]
    full = tuple(max((s[i] for s in sizes), default=0) if d is None else d for i, d in enumerate(shape or ()))
    if shapes.is_full(shape):
        return values.stack(column, dtype, full)
    out = values.zeros(dtype, (len(column), *full))
    for i, v in enumerate(column):
        out[(i, *map(slice, shape_of(v)))] = v
    return out


class RandomShuffleQueue(Queue):
    """Gives a random one of its elements. Serves RandomShuffleQueueV2, number for number.

    Attributes:
      min_after_dequeue: as long as it is open, it keeps so many elements back, so that there is something to mix.
    """

    def __init__(
        self,
        name: str,
        component_types: Sequence[DType],
        component_shapes: Sequence[Shape] = (),
        capacity: int | None = None,
        min_after_dequeue: int = 0,
        seed: int = 0,
        seed2: int = 0,
    ) -> None:
        """An empty queue.

        Raises:
          InvalidArgumentError: `min_after_dequeue` is negative, or leaves nothing of the capacity.
        """
        super().__init__(name, component_types, component_shapes, capacity)
        if min_after_dequeue < 0:
            raise InvalidArgumentError(f"min_after_dequeue {min_after_dequeue} must be >= 0")
        if capacity is not None and min_after_dequeue >= capacity:
            raise InvalidArgumentError(f"min_after_dequeue {min_after_dequeue} must be < capacity {capacity}")
        self.min_after_dequeue = min_after_dequeue
        self._seeds = (seed, seed2)
        self._stream: Stream = Philox(seed, seed2).reserve(0)
        self._drawn = 0  # words of the stream that have been used
        self._words: list[int] = []  # of the current block
        self._elements: list[Element] = []

    def size(self) -> int:
        """How many elements are in it."""
        return len(self._elements)

    def _put(self, element: Element) -> None:
        self._elements.append(element)

    def _take(self) -> Element:
        i = self._draw() % len(self._elements)
        element, self._elements[i] = self._elements[i], self._elements[-1]
        self._elements.pop()
        return element

    def _put_back(self, elements: Sequence[Element]) -> None:
        self._elements.extend(reversed(elements))

    def _available(self) -> int:
        return max(0, self.size() - (0 if self._closed else self.min_after_dequeue))

    def _declaration(self) -> dict[str, object]:
        seeds = {"random seeds": self._seeds} if any(self._seeds) else {}  # no seeds: whatever the others say
        return {**super()._declaration(), "min_after_dequeue": self.min_after_dequeue, **seeds}

    def _draw(self) -> int:
        if self._drawn % 4 == 0:
            self._words = self._stream.skip(self._drawn // 4).words(4).tolist()
        word = self._words[self._drawn % 4]
        self._drawn += 1
        return word


class PriorityQueue(Queue):
    """Gives the element with the least priority, an int64 scalar that is its first component. Serves PriorityQueueV2.

    A request for many waits until it can take all at once, so that what it gets is in order. Equal priorities come in
    the order that TensorFlow's binary heap gives, that of C++'s `std::priority_queue`: neither first nor last first.
    """

    in_parts: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        component_types: Sequence[DType],
        component_shapes: Sequence[Shape] = (),
        capacity: int | None = None,
    ) -> None:
        """An empty queue; the priority is not among `component_types` and `component_shapes`."""
        super().__init__(name, (dtypes.int64, *component_types), ((), *component_shapes), capacity)
        self._heap: list[tuple[int, Element]] = []

    def size(self) -> int:
        """How many elements are in it."""
        return len(self._heap)

    def _put(self, element: Element) -> None:
        self._heap.append((int(element[0]), element))
        self._rise(len(self._heap) - 1)

    def _take(self) -> Element:
        heap = self._heap
        top, last = heap[0], heap.pop()
        if heap:
            # the hole that the top leaves sinks to the bottom, always to the lesser child; there the last one rises
            hole = 0
            while (child := 2 * hole + 2) < len(heap):
                if heap[child][0] > heap[child - 1][0]:
                    child -= 1
                heap[hole] = heap[child]
                hole = child
            if child == len(heap):
                heap[hole] = heap[child - 1]
                hole = child - 1
            heap[hole] = last
            self._rise(hole)
        return top[1]

    def _rise(self, hole: int) -> None:
        heap = self._heap
        item = heap[hole]
        while hole and heap[(hole - 1) // 2][0] > item[0]:
            heap[hole] = heap[(hole - 1) // 2]
            hole = (hole - 1) // 2
        heap[hole] = item

    def _put_back(self, elements: Sequence[Element]) -> None:
        for element in elements:
            self._put(element)
