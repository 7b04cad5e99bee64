"""Datasets that apply a function: map, scan, reduce, flat map and interleave."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence

from headrace import thresholds
from headrace.errors import InvalidArgumentError, OutOfRangeError
from headrace.resources.datasets.base import UNKNOWN, Call, Dataset, Element, Iterator, Pass, Through, no_state
from headrace.resources.datasets.state import Saved, State
from headrace.resources.workers import Workers


class Map(Dataset):
    """Dataset of the results of a function of the elements of another one.

    Args:
      input: the other dataset.
      call: the function.
      parallel: the largest number of calls at the same time; 0: as many as there are cores.
      keeps_cardinality: whether a call that fails with OutOfRangeError is an error; else it ends the dataset.
      keeps_order: whether the results have the order of the elements; None: as the pass says.
    """

    def __init__(
        self,
        input: Dataset,
        call: Call,
        parallel: int = 1,
        keeps_cardinality: bool = True,
        keeps_order: bool | None = None,
    ) -> None:
        self.inputs = (input,)
        self._call, self._parallel, self._is_strict = call, parallel, keeps_cardinality
        self._keeps_order = keeps_order

    def iterator(self, run: Pass) -> Iterator:
        input = self.inputs[0].iterator(run)
        if self._parallel == 1:
            return _MapIterator(run, input, self._call, self._is_strict)
        has_order = run.keeps_order if self._keeps_order is None else self._keeps_order
        return _ParallelMapIterator(run, input, self._call, self._is_strict, self._parallel, has_order)

    def cardinality(self) -> int:
        n = self.inputs[0].cardinality()
        return n if self._is_strict else UNKNOWN


class _MapIterator(Through):
    __slots__ = ("_call", "_is_strict")

    def __init__(self, run: Pass, input: Iterator, call: Call, is_strict: bool) -> None:
        super().__init__(run, input)
        self._call, self._is_strict = call, is_strict

    def next(self) -> Element | None:
        found = self._input.next()
        if found is None:
            return None
        try:
            return tuple(self._call(found, self.run))
        except OutOfRangeError as e:
            _check_end(e, self._is_strict)
            return None


def _check_end(error: OutOfRangeError, is_strict: bool) -> None:
    """Raises if an OutOfRangeError of the function does not end the dataset."""
    if is_strict:
        raise InvalidArgumentError(f"Function invocation produced OutOfRangeError: {error}") from error


class _Task:
    """Call of the function for one element, by the first thread that claims it."""

    __slots__ = ("_call", "_claim", "element", "error", "is_done", "result")

    def __init__(self, element: Element, call: Call) -> None:
        self.element = element
        self._call = call
        self._claim = threading.Lock()
        self.is_done = False
        self.result: Element | None = None
        self.error: BaseException | None = None

    def run(self, run: Pass) -> bool:
        """Calls the function unless another thread has; returns whether this thread has."""
        if not self._claim.acquire(blocking=False):
            return False
        if not run.is_over:
            try:
                self.result = tuple(self._call(self.element, run))
            except BaseException as e:  # raised again by the thread that takes the result
                self.error = e
        self.is_done = True
        return True


class _ParallelMapIterator(Through):
    """Calls a function for several elements at the same time.

    Elements are taken, and results returned, in order. The thread that takes a result calls the function itself if no
    other thread has begun to. Short functions (`thresholds.PARALLEL_CALL`) are called by this thread alone, because a
    change of threads takes longer.
    """

    __slots__ = ("_call", "_changed", "_has_order", "_is_over", "_is_strict", "_most", "_seconds", "_tasks", "_workers")

    def __init__(
        self, run: Pass, input: Iterator, call: Call, is_strict: bool, parallel: int, keeps_order: bool
    ) -> None:
        super().__init__(run, input)
        self._call, self._is_strict = call, is_strict
        self._most = parallel if parallel > 0 else thresholds.PARALLEL_CALLS
        self._has_order = keeps_order
        self._tasks: deque[_Task] = deque()
        self._workers: Workers | None = None
        self._changed = run.condition()
        self._seconds = 0.0  # of the last call by this thread
        self._is_over = False

    def next(self) -> Element | None:
        if not self._tasks and self._seconds < thresholds.PARALLEL_CALL:
            found = None if self._is_over else self._input.next()
            if found is None:
                self._is_over = True
                return None
            return self._called(_Task(found, self._call))
        while not self._is_over and len(self._tasks) < self._most:
            self._begin()
        if not self._tasks:
            return None
        return self._called(self._popped())

    def _begin(self) -> None:
        """Takes an element, and gives it to a thread."""
        found = self._input.next()
        if found is None:
            self._is_over = True
            return
        task = _Task(found, self._call)
        self._tasks.append(task)
        if self._workers is None:
            self._workers = Workers("headrace-map", self._most)
        run, changed = self.run, self._changed

        def work() -> None:
            if task.run(run):
                with changed:
                    changed.notify_all()

        self._workers.submit(work)

    def _popped(self) -> _Task:
        """Removes and returns the task of the next result."""
        if not self._has_order:
            done = next((t for t in self._tasks if t.is_done), None)
            if done is not None:
                self._tasks.remove(done)
                return done
        return self._tasks.popleft()

    def _called(self, task: _Task) -> Element | None:
        """Returns the result of a task, which this thread runs if no other has."""
        began = time.perf_counter()
        if task.run(self.run):
            self._seconds = time.perf_counter() - began
        elif not task.is_done:
            with self._changed:
                self.run.wait(self._changed, lambda: task.is_done)
        if task.error is None:
            return task.result
        if isinstance(task.error, OutOfRangeError):
            _check_end(task.error, self._is_strict)
            self._is_over = True
            self._tasks.clear()
            return None
        try:
            raise task.error
        finally:
            task.error = None

    def save(self) -> State:
        waiting = [list(t.element) for t in self._tasks]
        return {"waiting": waiting, "is_over": int(self._is_over), **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        self._is_over = bool(saved.number("is_over", 0, 1))
        self._tasks = deque(_Task(e, self._call) for e in saved.elements("waiting", self._most))


class Scan(Dataset):
    """Dataset of the outputs of a function of a state and an element.

    Args:
      input: the other dataset.
      initial: the components of the first state.
      call: the function of the components of the state and of an element; it returns those of the next state and of
        the output.
    """

    def __init__(self, input: Dataset, initial: Element, call: Call) -> None:
        self.inputs = (input,)
        self._initial, self._call = tuple(initial), call

    def iterator(self, run: Pass) -> Iterator:
        return _ScanIterator(run, self.inputs[0].iterator(run), self._initial, self._call)

    def cardinality(self) -> int:
        return self.inputs[0].cardinality()


class _ScanIterator(Through):
    __slots__ = ("_call", "_state")

    def __init__(self, run: Pass, input: Iterator, initial: Element, call: Call) -> None:
        super().__init__(run, input)
        self._state, self._call = initial, call

    def next(self) -> Element | None:
        found = self._input.next()
        if found is None:
            return None
        out = tuple(self._call((*self._state, *found), self.run))
        n = len(self._state)
        self._state = out[:n]
        return out[n:]

    def save(self) -> State:
        return {"state": list(self._state), **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        state = saved.inner("state").element()
        if len(state) == len(self._state):
            self._state = state


def reduced(dataset: Dataset, initial: Element, call: Call, run: Pass) -> Element:
    """Returns the last state of `state = call(state, element)` over a dataset."""
    state = tuple(initial)
    take = dataset.iterator(run).next
    while (element := take()) is not None:
        run.check()
        state = tuple(call((*state, *element), run))
    return state


class FlatMap(Dataset):
    """Dataset of the elements of the datasets that a function makes.

    Up to `cycle` of these datasets are open. Each gives `block` elements in turn. One that has ended is replaced by the
    next. With a cycle of 1 they come one after the other.

    Args:
      input: the other dataset.
      call: the function, which returns one dataset.
      cycle: the number of open datasets.
      block: the number of consecutive elements of each.
    """

    def __init__(self, input: Dataset, call: Call, cycle: int = 1, block: int = 1) -> None:
        self.inputs = (input,)
        self._call, self._cycle, self._block = call, cycle, block

    def iterator(self, run: Pass) -> Iterator:
        input = self.inputs[0].iterator(run)
        if self._cycle == 1:
            return _FlatMapIterator(run, input, self._call)
        return _InterleaveIterator(run, input, self._call, self._cycle, self._block)

    def cardinality(self) -> int:
        n = self.inputs[0].cardinality()
        return n if n == 0 else UNKNOWN


def made_dataset(results: Sequence[object]) -> Dataset:
    """Returns the dataset that is the only result of a function.

    Raises:
      InvalidArgumentError: the result is something else.
    """
    if len(results) != 1 or not isinstance(results[0], Dataset):
        kinds = ", ".join(type(r).__name__ for r in results)
        raise InvalidArgumentError(f"the function must return one dataset, got {kinds}")
    return results[0]


class _Opened:
    """Iterator of a dataset that the function made, and its element."""

    __slots__ = ("element", "iterator")

    def __init__(self, element: Element, call: Call, run: Pass) -> None:
        self.element = element
        self.iterator = made_dataset(call(element, run)).iterator(run)

    def save(self) -> State:
        return {"element": list(self.element), "iterator": self.iterator.save()}

    @classmethod
    def restored(cls, saved: Saved, call: Call, run: Pass) -> _Opened:
        """Returns the iterator at a saved position."""
        out = cls(saved.inner("element").element(), call, run)
        out.iterator.restore(saved.inner("iterator"))
        return out


class _FlatMapIterator(Through):
    __slots__ = ("_call", "_opened")

    def __init__(self, run: Pass, input: Iterator, call: Call) -> None:
        super().__init__(run, input)
        self._call = call
        self._opened: _Opened | None = None

    def next(self) -> Element | None:
        while True:
            if self._opened is not None:
                found = self._opened.iterator.next()
                if found is not None:
                    return found
                self._opened = None
            element = self._input.next()
            if element is None:
                return None
            self._opened = _Opened(element, self._call, self.run)

    def save(self) -> State:
        return {"opened": None if self._opened is None else self._opened.save(), **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        opened = saved.optional("opened")
        self._opened = None if opened is None else _Opened.restored(opened, self._call, self.run)


class _InterleaveIterator(Through):
    __slots__ = ("_at", "_block", "_call", "_cycle", "_given", "_is_over")

    def __init__(self, run: Pass, input: Iterator, call: Call, cycle: int, block: int) -> None:
        super().__init__(run, input)
        self._call, self._block = call, block
        self._cycle: list[_Opened | None] = [None] * cycle
        self._at = 0  # the dataset whose turn it is
        self._given = 0  # elements of its block so far
        self._is_over = False

    def next(self) -> Element | None:
        idle = 0
        while not self._is_over or idle <= len(self._cycle):
            opened = self._cycle[self._at]
            if opened is None:
                if self._is_over:
                    idle += 1
                    self._move_on()
                    continue
                element = self._input.next()
                if element is None:
                    self._is_over = True
                    continue
                opened = self._cycle[self._at] = _Opened(element, self._call, self.run)
            found = opened.iterator.next()
            if found is not None:
                self._given += 1
                if self._given == self._block:
                    self._move_on()
                return found
            self._cycle[self._at] = None
            self._move_on()
        return None

    def _move_on(self) -> None:
        self._at = (self._at + 1) % len(self._cycle)
        self._given = 0

    def save(self) -> State:
        cycle = [None if o is None else o.save() for o in self._cycle]
        position = {"at": self._at, "given": self._given, "is_over": int(self._is_over)}
        return {"cycle": cycle, **position, **super().save()}

    def restore(self, saved: Saved) -> None:
        super().restore(saved)
        n = len(self._cycle)
        self._at, self._given = saved.number("at", 0, n - 1), saved.number("given", 0, self._block)
        self._is_over = bool(saved.number("is_over", 0, 1))
        for i, o in enumerate(saved.parts("cycle", n)):
            self._cycle[i] = None if o.value is None else _Opened.restored(o, self._call, self.run)


class Generated(Dataset):
    """Dataset of the results of a function until it fails with OutOfRangeError.

    Args:
      begin: the function whose results begin a pass.
      step: the function of these results; it returns the next element.
      end: the function of these results that ends the pass.
    """

    def __init__(self, begin: Call, step: Call, end: Call) -> None:
        self._begin, self._step, self._end = begin, step, end

    def iterator(self, run: Pass) -> Iterator:
        return _GeneratedIterator(run, self._begin, self._step, self._end)


class _GeneratedIterator(Iterator):
    __slots__ = ("_begin", "_end", "_is_over", "_state", "_step")

    def __init__(self, run: Pass, begin: Call, step: Call, end: Call) -> None:
        super().__init__(run)
        self._begin, self._step, self._end = begin, step, end
        self._state: Sequence[object] | None = None
        self._is_over = False

    def next(self) -> Element | None:
        if self._is_over:
            return None
        if self._state is None:
            self._state = tuple(self._begin((), self.run))
        try:
            return tuple(self._step(self._state, self.run))
        except OutOfRangeError:
            self._is_over = True
            self._end(self._state, self.run)
            return None

    def save(self) -> State:
        raise no_state("a Python generator")

    def restore(self, saved: Saved) -> None:
        self.save()
