"""Datasets that keep elements: prefetch, and caches in memory and in files.

A prefetching iterator has a thread that computes elements ahead. The thread that asks for an element computes it itself
if none is ready and the other thread is not at work. So a pipeline that is slower than its consumer costs no change of
threads for each element.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
import weakref
from collections import deque
from collections.abc import Sequence

from headrace import thresholds
from headrace.errors import NotFoundError
from headrace.files import records, system
from headrace.resources.datasets import state
from headrace.resources.datasets.base import Dataset, Element, Iterator, Pass, Through, no_state
from headrace.resources.datasets.element_file import ElementFile
from headrace.resources.datasets.elements import Elements
from headrace.resources.datasets.state import Saved, State
from headrace.resources.workers import Workers


class Prefetch(Dataset):
    """Dataset of the elements of another one, which a thread computes ahead.

    Args:
      input: the other dataset.
      buffer_size: the largest number of elements ahead; 0: none; -1: `thresholds.PREFETCHED`.
    """

    def __init__(self, input: Dataset, buffer_size: int) -> None:
        self.inputs = (input,)
        self._size = buffer_size if buffer_size >= 0 else thresholds.PREFETCHED

    def iterator(self, run: Pass) -> Iterator:
        input = self.inputs[0].iterator(run)
        return _PrefetchIterator(run, input, self._size) if self._size else input

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _Ahead:
    """Elements ahead, and the thread that computes them.

    The thread fills the buffer and ends. A request that leaves it half empty starts it again.

    Args:
      run: the pass.
      input: the iterator of the elements.
      size: the largest number of elements.

    Attributes:
      ready: the elements, and errors in their places.
      changed: protects the other fields.
      computing: held by the thread that computes an element.
      is_over: whether the elements have ended.
    """

    def __init__(self, run: Pass, input: Iterator, size: int) -> None:
        self._run, self._input, self._size = run, input, size
        self.ready: deque[Element | BaseException] = deque()
        self.changed = run.condition()
        self.computing = threading.Lock()
        self.is_over = False
        self._is_dropped = self._is_filling = False
        self._workers = Workers("headrace-prefetch")

    def drop(self) -> None:
        """Ends the thread, because the iterator has no more references."""
        self._is_dropped = True
        self._workers.release()

    def taken(self) -> Element:
        """Removes and returns the first element; the caller holds `changed`."""
        found = self.ready.popleft()
        if isinstance(found, BaseException):
            raise found
        if len(self.ready) <= self._size // 2 and not self._is_filling and not self.is_over:
            self._is_filling = True
            self._workers.submit(self._fill)
        return found

    def _fill(self) -> None:
        while True:
            with self.computing:
                if self._is_dropped or self.is_over or self._run.is_over or len(self.ready) >= self._size:
                    break
                if not self.compute():
                    break
        self._is_filling = False

    def compute(self) -> bool:
        """Computes an element; returns whether there may be more. The caller holds `computing`."""
        found: Element | BaseException | None
        try:
            found = self._input.next()
        except BaseException as e:  # raised again by the request that reaches it
            found = e
        with self.changed:
            if found is None:
                self.is_over = True
            else:
                self.ready.append(found)
            if found is None or len(self.ready) == 1:
                self.changed.notify_all()
        return found is not None and not isinstance(found, BaseException)


class _PrefetchIterator(Through):
    __slots__ = ("_ahead", "_size")

    def __init__(self, run: Pass, input: Iterator, size: int) -> None:
        super().__init__(run, input)
        self._size = size
        self._ahead = _Ahead(run, input, size)
        weakref.finalize(self, self._ahead.drop).atexit = False

    def next(self) -> Element | None:
        ahead = self._ahead
        while True:
            with ahead.changed:
                if ahead.ready:
                    return ahead.taken()
                if ahead.is_over:
                    return None
                self.run.check()
            if ahead.computing.acquire(blocking=False):
                try:
                    if not ahead.ready and not ahead.is_over:
                        ahead.compute()
                finally:
                    ahead.computing.release()
            else:
                with ahead.changed:
                    if not ahead.ready and not ahead.is_over:
                        ahead.changed.wait(thresholds.DATASET_POLL)

    def save(self) -> State:
        ahead = self._ahead
        while not ahead.computing.acquire(timeout=thresholds.DATASET_POLL):
            self.run.check()
        try:
            ready = [list(e) for e in ahead.ready if not isinstance(e, BaseException)]
            return {"ready": ready, "is_over": int(ahead.is_over), **super().save()}
        finally:
            ahead.computing.release()

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._ahead.ready = deque(saved.elements("ready", self._size))
        self._ahead.is_over = bool(saved.number("is_over", 0, 1))


class Memory:
    """Elements of a cache in memory, once a pass has completed.

    Attributes:
      elements: the elements, or None before.
    """

    def __init__(self) -> None:
        self.elements: Sequence[Element] | None = None


class Cache(Dataset):
    """Dataset of the elements of another one, of which only the first pass is computed.

    Args:
      input: the other dataset.
      memory: the place of the elements.
    """

    def __init__(self, input: Dataset, memory: Memory) -> None:
        self.inputs = (input,)
        self._memory = memory

    def iterator(self, run: Pass) -> Iterator:
        return _CacheIterator(run, self.inputs[0], self._memory)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _CacheIterator(Iterator):
    __slots__ = ("_input", "_is_recorded", "_memory", "_seen")

    def __init__(self, run: Pass, dataset: Dataset, memory: Memory) -> None:
        super().__init__(run)
        self._memory = memory
        self._seen: list[Element] = []
        self._is_recorded = memory.elements is not None
        self._input = Elements(memory.elements).iterator(run) if memory.elements is not None else dataset.iterator(run)

    def next(self) -> Element | None:
        found = self._input.next()
        if not self._is_recorded:
            if found is None:
                self._is_recorded = True
                self._memory.elements = self._seen
            else:
                self._seen.append(found)
        return found

    def save(self) -> State:
        kept = self._memory.elements
        return {
            "kept": None if kept is None else [list(e) for e in kept],
            "seen": [] if kept is not None else [list(e) for e in self._seen],
            "is_recorded": int(self._is_recorded),
            "input": self._input.save(),
        }

    def restore(self, saved: Saved) -> None:
        kept = saved.optional("kept")
        if kept is not None:
            self._memory.elements = saved.elements("kept")
            if self._memory.elements and saved.number("is_recorded", 0, 1):
                self._input = Elements(self._memory.elements).iterator(self.run)
        self._is_recorded = bool(saved.number("is_recorded", 0, 1))
        self._seen = saved.elements("seen")
        self._input.restore(saved.inner("input"))


class FileCache(Dataset):
    """Dataset of the elements of another one, which the first pass writes to a file.

    The file is a record file of encoded elements (`state`), which appears when the pass is complete.

    Args:
      input: the other dataset.
      path: the file.
    """

    def __init__(self, input: Dataset, path: str) -> None:
        self.inputs = (input,)
        self._path = path

    def iterator(self, run: Pass) -> Iterator:
        if system.exists(self._path):
            return ElementFile(run, self._path)
        return _WritingIterator(run, self.inputs[0].iterator(run), self._path)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _WritingIterator(Through):
    __slots__ = ("_discard", "_path", "_temporary", "_writer")

    def __init__(self, run: Pass, input: Iterator, path: str) -> None:
        super().__init__(run, input)
        self._path = path
        self._temporary = f"{path}.{secrets.token_hex(8)}.tmp"
        self._writer: records.Writer | None = records.Writer(self._temporary)
        self._discard = weakref.finalize(self, _discard, self._writer, self._temporary)

    def next(self) -> Element | None:
        found = self._input.next()
        if self._writer is not None:
            if found is not None:
                self._writer.write(state.encode(list(found)))
            else:
                self._writer.close()
                self._writer = None
                system.replace(self._temporary, self._path)
                self._discard.detach()
        return found

    def save(self) -> State:
        raise no_state("a cache that is being written to a file")

    def restore(self, saved: Saved) -> None:
        self.save()


def _discard(writer: records.Writer, path: str) -> None:
    """Removes the file of a pass that was not completed."""
    writer.close()
    with contextlib.suppress(FileNotFoundError, NotFoundError):
        system.unlink(path)
