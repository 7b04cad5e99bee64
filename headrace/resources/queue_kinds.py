"""Further kinds of queues: padding, random shuffle, priority; they wait like every `queue.Queue`."""

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
    """First-in-first-out queue whose elements may differ in shape, and whose batches are padded with zeros.

    It is behind PaddingFIFOQueueV2.
    """

    partial_shapes: ClassVar[bool] = True

    def __init__(
        self,
        name: str,
        component_types: Sequence[DType],
        component_shapes: Sequence[Shape] = (),
        capacity: int | None = None,
    ) -> None:
        """Makes an empty queue.

        Raises:
          InvalidArgumentError: A component has no shape, or its rank is unknown.
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
    """Stacks values, padded with zeros to the largest size in the unknown dimensions of `shape`."""
    sizes = [shape_of(v) for v in column]
    full = tuple(max((s[i] for s in sizes), default=0) if d is None else d for i, d in enumerate(shape or ()))
    if shapes.is_full(shape):
        return values.stack(column, dtype, full)
    out = values.zeros(dtype, (len(column), *full))
    for i, v in enumerate(column):
        out[(i, *map(slice, shape_of(v)))] = v
    return out


class RandomShuffleQueue(Queue):
    """Queue that returns random elements, behind RandomShuffleQueueV2, with TensorFlow's choices.

    Attributes:
      min_after_dequeue: The number of elements that an open queue keeps back for shuffling.
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
        """Makes an empty queue.

        Raises:
          InvalidArgumentError: `min_after_dequeue` is negative, or not below the capacity.
        """
        super().__init__(name, component_types, component_shapes, capacity)
        if min_after_dequeue < 0:
            raise InvalidArgumentError(f"min_after_dequeue {min_after_dequeue} must be >= 0")
        if capacity is not None and min_after_dequeue >= capacity:
            raise InvalidArgumentError(f"min_after_dequeue {min_after_dequeue} must be < capacity {capacity}")
        self.min_after_dequeue = min_after_dequeue
        self._seeds = (seed, seed2)
        self._stream: Stream = Philox(seed, seed2).reserve(0)
        self._drawn = 0  # number of used words of the stream
        self._words: list[int] = []  # the words of the current block
        self._elements: list[Element] = []

    def size(self) -> int:
        """Number of elements."""
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
        seeds = {"random seeds": self._seeds} if any(self._seeds) else {}  # without seeds, any declared seeds match
        return {**super()._declaration(), "min_after_dequeue": self.min_after_dequeue, **seeds}

    def _draw(self) -> int:
        if self._drawn % 4 == 0:
            self._words = self._stream.skip(self._drawn // 4).words(4).tolist()
        word = self._words[self._drawn % 4]
        self._drawn += 1
        return word


class PriorityQueue(Queue):
    """Queue that returns the element of lowest priority, behind PriorityQueueV2.

    The priority is an int64 scalar, the first component. A request for several elements waits until it can take all at
    once, so that they are in order. The order of equal priorities is that of TensorFlow's binary heap, C++'s
    `std::priority_queue`, which is neither first-in-first-out nor last-in-first-out.
    """

    in_parts: ClassVar[bool] = False

    def __init__(
        self,
        name: str,
        component_types: Sequence[DType],
        component_shapes: Sequence[Shape] = (),
        capacity: int | None = None,
    ) -> None:
        """Makes an empty queue; `component_types` and `component_shapes` do not include the priority."""
        super().__init__(name, (dtypes.int64, *component_types), ((), *component_shapes), capacity)
        self._heap: list[tuple[int, Element]] = []

    def size(self) -> int:
        """Number of elements."""
        return len(self._heap)

    def _put(self, element: Element) -> None:
        self._heap.append((int(element[0]), element))
        self._rise(len(self._heap) - 1)

    def _take(self) -> Element:
        heap = self._heap
        top, last = heap[0], heap.pop()
        if heap:
            # the hole at the top sinks to the bottom along the lesser children; then the last element rises from there
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
