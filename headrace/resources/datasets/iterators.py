"""Iterators as resources of a session: they belong to steps and have a name."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import forking, thresholds
from headrace.errors import FailedPreconditionError, InvalidArgumentError, OutOfRangeError
from headrace.resources.datasets import state
from headrace.resources.datasets.base import Dataset, Element, Iterator, Pass

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dtypes import DType
    from headrace.shapes import Shape


class DatasetIterator:
    """Iterator that steps share. Thread-safe: one request is served at a time.

    Args:
      name: the name, for messages.
      types: the dtypes of the components.
      shapes: their static shapes.
    """

    def __init__(self, name: str, types: Sequence[DType], shapes: Sequence[Shape]) -> None:
        self.name = name
        self.types, self.shapes = tuple(types), tuple(shapes)
        self._dataset: Dataset | None = None
        self._iterator: Iterator | None = None
        self._forked()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    def begin(self, dataset: Dataset) -> None:
        """Starts a pass over `dataset`, in place of the present one."""
        iterator = dataset.iterator(Pass())
        self.release()
        self._dataset, self._iterator = dataset, iterator

    def release(self) -> None:
        """Ends the pass and its threads."""
        iterator, self._iterator = self._iterator, None
        if iterator is not None:
            iterator.run.end()

    def __del__(self) -> None:
        iterator = getattr(self, "_iterator", None)
        if iterator is not None:
            iterator.run.end()

    def next(self, look: Callable[[], None] | None = None, deadline: float | None = None) -> Element:
        """Returns the next element.

        Args:
          look: raises if the step of the request was cancelled.
          deadline: the time of `time.monotonic` at which the request fails; None: no deadline.

        Raises:
          OutOfRangeError: there is none.
          FailedPreconditionError: no pass has begun.
        """
        found = self.next_or_none(look, deadline)
        if found is None:
            raise OutOfRangeError("End of sequence")
        return found

    def next_or_none(self, look: Callable[[], None] | None = None, deadline: float | None = None) -> Element | None:
        """Returns the next element; None at the end. The arguments are those of `next`."""
        while not self._lock.acquire(timeout=thresholds.DATASET_POLL):
            if look is not None:
                look()
        try:
            iterator = self._iterator
            if iterator is None:
                raise FailedPreconditionError(
                    "GetNext() failed because the iterator has not been initialized. Ensure that you have run the "
                    "initializer operation for this iterator before getting the next element."
                )
            run = iterator.run
            run.ask(look, deadline)
            try:
                return iterator.next()
            finally:
                run.ask(None)
        finally:
            self._lock.release()

    def save(self) -> bytes:
        """Returns the position as bytes.

        Raises:
          FailedPreconditionError: no pass has begun.
          UnimplementedError: the position cannot be saved.
        """
        with self._lock:
            if self._iterator is None:
                raise FailedPreconditionError(f"the iterator {self.name!r} has no position: run its initializer")
            return state.encode(self._iterator.save())

    def restore(self, data: bytes) -> None:
        """Moves to the position that `save` returned.

        Raises:
          FailedPreconditionError: no pass has begun.
          DataLossError: the data are not a position in this dataset.
        """
        if self._dataset is None:
            raise FailedPreconditionError(
                f"the iterator {self.name!r} has no dataset: run its initializer before its position is restored"
            )
        iterator = self._dataset.iterator(Pass())
        iterator.restore(state.decode(data))
        with self._lock:
            self._iterator, old = iterator, self._iterator
        if old is not None:
            old.run.end()

    def check(self, types: Sequence[DType], what: str) -> None:
        """Raises unless the components have these dtypes."""
        if self.types and types and tuple(types) != self.types:
            have, wanted = (", ".join(d.name for d in t) for t in (types, self.types))
            raise InvalidArgumentError(
                f"{what}: the iterator {self.name!r} gives elements of ({wanted}), where ({have}) are expected"
            )
