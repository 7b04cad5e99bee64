"""Python as a source of data: iterators and data sets that fill a queue.

The queue is filled while steps run.

A *data set* has `__len__` and `__getitem__` (a list of examples, numpy arrays, most inputs of data loaders). It can be
shuffled, read several times, and read by several threads. Other iterables are read in their order.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from headrace import dtypes, shapes
from headrace.api import scopes
from headrace.api.storage.queues import FIFOQueue, PaddingFIFOQueue, QueueBase
from headrace.api.tensors import placeholder
from headrace.errors import CancelledError, FeedError, OutOfRangeError
from headrace.shapes import Shape
from headrace.train.coordinator import Coordinator
from headrace.train.input.batching import taken_from
from headrace.train.input.running import add_queue_runner
from headrace.train.queue_runner import QueueRunner


class DataSet(Protocol):
    """Source with random access to its examples."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


Source = Iterable[Any] | Callable[[], Iterable[Any]] | DataSet


def feed(
    source: Source,
    dtypes: Any,
    shapes: Any,
    shuffle: bool = False,
    seed: int | None = None,
    epochs: int | None = 1,
    threads: int = 1,
    capacity: int = 32,
    skip: int | Callable[[Any], int] = 0,
    name: str | None = None,
) -> Any:
    """Returns the next example of an iterator or a data set in each step.

    A queue holds the examples. Its threads are started by `start_queue_runners` or a `MonitoredSession`. When the data
    ends, the queue is closed, and a further step raises OutOfRangeError. The coordinator raises the errors of the
    source.

    Args:
      source: source of examples: an object with `__len__` and `__getitem__` (a data set), an iterable, or a function
        without arguments that returns one of these. An example is an array or a value that converts to a tensor; a list
        or tuple of them; or a dict of them.
      dtypes: dtypes of the parts of an example: one dtype, a list, or a dict.
      shapes: shapes of the parts, in the structure of `dtypes`. A dimension that varies is None.
      shuffle: whether a data set is read in a new random order in each epoch.
      seed: seed of the orders. None: they differ between runs.
      epochs: number of passes over the source. None: no limit.
      threads: number of threads that read. With more than one the order of examples is not deterministic.
      capacity: largest number of examples in the queue.
      skip: number of examples to skip at first, to resume a run. Or a function of the session that returns the number;
        it is called when the threads start.
      name: name of the scope. None: "feed".

    Returns:
      Tensors, in the structure of `dtypes`.

    Raises:
      ValueError: `shuffle` is given for a source without `__len__`; or `epochs` for an iterator, which can be read only
        once.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     word, size = hr.train.feed([("one", 3), ("three", 5)], (hr.string, hr.int32), ((), ()))
      >>> with hr.Session(graph=g) as sess:
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     sess.run([word, size])
      ...     coord.request_stop()
      ...     coord.join(threads)
      [b'one', np.int32(3)]
    """
    keys, types, known = _parts(dtypes, shapes)
    scopes.graph_builder("hr.train.feed")
    with scopes.name_scope(name, "feed"):
        queue = _queue(types, known, capacity)
        is_single = keys is None and not isinstance(dtypes, (list, tuple))
        feed_queue(source, queue, keys, known, shuffle, seed, epochs, threads, skip, is_single)
        taken = taken_from(queue, known)
    if keys is not None:
        return dict(zip(keys, taken, strict=True))
    return taken[0] if is_single else taken


def feed_queue(
    source: Source,
    queue: QueueBase,
    keys: Sequence[Any] | None = None,
    shapes: Sequence[Any] | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    epochs: int | None = 1,
    threads: int = 1,
    skip: int | Callable[[Any], int] = 0,
    is_single: bool = False,
) -> FeedingRunner:
    """Adds a runner that fills a queue from an iterator or a data set.

    Args:
      source, shuffle, seed, epochs, threads, skip: see `feed`.
      queue: the queue.
      keys: keys of examples that are dicts, in the order of the queue's components.
      shapes: shapes of the components. None: those of the queue.
      is_single: whether an example is its only component, and not a list with one element.

    Returns:
      The runner, which `start_queue_runners` starts with the others of the graph.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     queue = hr.FIFOQueue(4, hr.int32, [()])
      ...     runner = hr.train.feed_queue(range(3), queue, is_single=True)
      ...     number = queue.dequeue()
      >>> with hr.train.MonitoredSession(graph=g) as session:
      ...     [int(session.run(number)) for _ in range(3)]
      [0, 1, 2]
    """
    examples = Examples(source, shuffle, seed, epochs)
    known = queue.shapes if shapes is None else shapes
    with scopes.name_scope(None, "feeding"):
        given = [placeholder(d, s) for d, s in zip(queue.dtypes, known, strict=True)]
        names = queue.names
        op = queue.enqueue(given if names is None else dict(zip(names, given, strict=True)))
        runner = FeedingRunner(queue, op, threads, examples, given, keys if names is None else names, skip, is_single)
    add_queue_runner(runner)
    return runner


class Examples:
    """Examples of a source, from the first epoch to the last.

    Args:
      source, shuffle, seed, epochs: see `feed`.

    Example:
      >>> [take() for take in Examples([10, 20, 30], True, 1, 2).taken()]
      [10, 20, 30, 30, 10, 20]
    """

    def __init__(self, source: Source, shuffle: bool = False, seed: int | None = None, epochs: int | None = 1) -> None:
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs must be positive or None, got {epochs}")
        self._source = source
        self._shuffles = shuffle
        self._seed = seed
        self._epochs = epochs
        if callable(source) and not hasattr(source, "__len__"):
            return
        if shuffle and not _has_numbers(source):
            raise ValueError(
                f"{type(source).__name__} cannot be shuffled: that takes __len__ and __getitem__. "
                "tf.train.shuffle_batch and hr.train.shuffle_batch mix what comes one by one"
            )
        if epochs != 1 and not _has_numbers(source) and iter(source) is source:  # type: ignore[arg-type]
            raise ValueError(
                f"a {type(source).__name__} can be gone through only once; for epochs={epochs} give a function that "
                "makes a new one"
            )

    def taken(self, skip: int = 0) -> Iterator[Callable[[], Any]]:
        """Yields a function for each example, which reads it in any thread.

        Args:
          skip: number of examples to skip.
        """
        seed = self._seed if self._seed is not None else int(np.random.SeedSequence().entropy) & 0xFFFFFFFF  # type: ignore[arg-type]
        for epoch in itertools.count() if self._epochs is None else range(self._epochs):
            source = self._source
            made: Any = source() if callable(source) and not hasattr(source, "__len__") else source
            n = 0
            if _has_numbers(made):
                n = len(made)
                if skip < n:
                    order = np.random.default_rng([seed, epoch]).permutation(n) if self._shuffles else range(n)
                    for i in order[skip:]:
                        yield _by_number(made, int(i))
            else:
                for n, example in enumerate(made, 1):
                    if n > skip:
                        yield _itself(example)
            if not n:
                raise ValueError(f"there is no example in the {type(made).__name__} that feeds a queue")
            skip = max(0, skip - n)


class FeedingRunner(QueueRunner):
    """Queue runner whose threads read examples in Python and feed them to an enqueue operation.

    Args:
      queue: the queue.
      enqueue_op: operation that enqueues an example.
      threads: number of threads.
      examples: source of the examples.
      placeholders: placeholders that are fed, one for each component.
      keys: keys of examples that are dicts, in the order of the placeholders.
      skip: see `feed`.
      is_single: whether an example is its only component, and not a list with one element.

    Attributes:
      placeholders: the placeholders.
    """

    def __init__(
        self,
        queue: Any,
        enqueue_op: Any,
        threads: int,
        examples: Examples,
        placeholders: Sequence[Any],
        keys: Sequence[Any] | None = None,
        skip: int | Callable[[Any], int] = 0,
        is_single: bool = False,
    ) -> None:
        super().__init__(queue, [enqueue_op] * threads)
        self._examples = examples
        self.placeholders = list(placeholders)
        self._keys = keys
        self._skip = skip
        self._is_single = is_single
        self._feedings: weakref.WeakKeyDictionary[Any, _Feeding] = weakref.WeakKeyDictionary()

    def create_threads(
        self, sess: Any, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """See `QueueRunner.create_threads`. Each session reads the source from its start."""
        feeding = self._feedings.get(sess)
        if feeding is None:
            skip = self._skip(sess) if callable(self._skip) else self._skip
            feeding = self._feedings[sess] = _Feeding(self, sess, self._examples.taken(int(skip)))
        return super().create_threads(feeding, coord, daemon, start)

    def values(self, example: Any) -> list[Any]:
        """Returns the values to feed for an example, in the order of the placeholders.

        Args:
          example: the example.

        Raises:
          FeedError: the example does not have the components of the queue.
        """
        if self._keys is not None:
            if not isinstance(example, Mapping):
                raise FeedError(f"an example must be a dict with {list(self._keys)}, got {type(example).__name__}")
            missing = [k for k in self._keys if k not in example]
            if missing:
                raise FeedError(f"an example has no {missing}; it has {list(example)}")
            parts = [example[k] for k in self._keys]
        elif self._is_single:
            parts = [example]
        elif isinstance(example, (list, tuple)):
            parts = list(example)
        else:
            raise FeedError(
                f"an example must be a list or tuple of {len(self.placeholders)} parts, got {type(example).__name__}"
            )
        if len(parts) != len(self.placeholders):
            raise FeedError(f"an example must have {len(self.placeholders)} parts, got {len(parts)}: {example!r:.200}")
        return parts


class _Feeding:
    """Session of a `FeedingRunner`'s threads.

    Each call of the function that `make_callable` returns feeds the next example.
    """

    def __init__(self, runner: FeedingRunner, session: Any, examples: Iterator[Callable[[], Any]]) -> None:
        self._runner = runner
        self._session = weakref.ref(session)
        self._examples = examples
        self._lock = threading.Lock()

    def run(self, op: Any) -> None:
        """Runs an operation without feeds."""
        self._live().run(op)

    def make_callable(self, op: Any) -> Callable[[], None]:
        """Returns a function that enqueues the next example."""
        enqueue = self._live().make_callable(op, self._runner.placeholders)
        return lambda: enqueue(*self._next())

    def _live(self) -> Any:
        session = self._session()
        if session is None:
            raise CancelledError("the session that was to be fed is gone")
        return session

    def _next(self) -> list[Any]:
        with self._lock:
            take = next(self._examples, None)
        if take is None:
            raise OutOfRangeError("the data has ended")
        return self._runner.values(take())


def _parts(types: Any, given_shapes: Any) -> tuple[list[Any] | None, list[dtypes.DType], list[Shape]]:
    """Returns the keys (or None), dtypes and shapes of the parts of an example."""
    if isinstance(types, Mapping):
        if not isinstance(given_shapes, Mapping) or set(given_shapes) != set(types):
            raise ValueError(f"shapes must be a dict with the keys {list(types)}, got {given_shapes!r}")
        keys = list(types)
        return keys, [dtypes.as_dtype(types[k]) for k in keys], [shapes.as_shape(given_shapes[k]) for k in keys]
    if not isinstance(types, (list, tuple)):
        return None, [dtypes.as_dtype(types)], [shapes.as_shape(given_shapes)]
    if not isinstance(given_shapes, (list, tuple)) or len(given_shapes) != len(types):
        raise ValueError(f"shapes must be a list of {len(types)} shapes, as there are dtypes, got {given_shapes!r}")
    return None, [dtypes.as_dtype(t) for t in types], [shapes.as_shape(s) for s in given_shapes]


def _queue(types: Sequence[Any], known: Sequence[Shape], capacity: int) -> QueueBase:
    if all(shapes.is_full(s) for s in known):
        return FIFOQueue(capacity, list(types), list(known))
    if all(s is not None for s in known):
        return PaddingFIFOQueue(capacity, list(types), list(known))
    return FIFOQueue(capacity, list(types))


def _has_numbers(source: Any) -> bool:
    return hasattr(source, "__len__") and hasattr(source, "__getitem__") and not isinstance(source, Mapping)


def _by_number(source: Any, i: int) -> Callable[[], Any]:
    return lambda: source[i]


def _itself(example: Any) -> Callable[[], Any]:
    return lambda: example
