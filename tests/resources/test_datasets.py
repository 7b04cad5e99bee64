"""Datasets and iterators, without graphs."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import CancelledError, DataLossError, InvalidArgumentError, OutOfRangeError, UnimplementedError
from headrace.resources.datasets import state
from headrace.resources.datasets.base import INFINITE, UNKNOWN, Dataset, Pass
from headrace.resources.datasets.batching import Batch, PaddedBatch, Rebatch, Unbatch
from headrace.resources.datasets.combining import Concatenate, Directed, Repeat, Zip
from headrace.resources.datasets.elements import Elements, Range, Slices
from headrace.resources.datasets.grouping import GroupByReducer
from headrace.resources.datasets.iterators import DatasetIterator
from headrace.resources.datasets.keeping import Cache, Memory, Prefetch
from headrace.resources.datasets.mapping import FlatMap, Generated, Map, Scan
from headrace.resources.datasets.selecting import AssertCardinality, Filter, IgnoreErrors, Shard, Skip, Take, Unique
from headrace.resources.datasets.shuffling import RandomNumbers, Seeds, Shuffle, Words
from headrace.resources.datasets.windows import GroupByWindow, Window
from headrace.resources.philox import Stream

pytestmark = pytest.mark.one_engine

INT = [dtypes.int64]


def _call(f: Callable[..., Any]) -> Any:
    """A function of elements, of a Python function of their components."""
    return lambda element, run: f(*element)


def _twice(x: Any) -> Any:
    return (x * 2,)


def _upto(x: Any) -> Any:
    return (Range(0, int(x), 1),)


CASES: dict[str, Callable[[], Dataset]] = {
    "range": lambda: Range(0, 9, 2),
    "slices": lambda: Slices(
        [np.arange(6).reshape(3, 2), np.array([b"a", b"b", b"c"], object)], [dtypes.int64, dtypes.string]
    ),
    "take": lambda: Take(Range(0, 9, 1), 4),
    "skip": lambda: Skip(Range(0, 9, 1), 4),
    "shard": lambda: Shard(Range(0, 9, 1), 2, 1),
    "filter": lambda: Filter(Range(0, 9, 1), _call(lambda x: (x % 2 == 0,))),
    "take_while": lambda: Filter(Range(0, 9, 1), _call(lambda x: (x < 5,)), is_prefix=True),
    "unique": lambda: Unique(Map(Range(0, 9, 1), _call(lambda x: (x // 2,)))),
    "ignore_errors": lambda: IgnoreErrors(Range(0, 5, 1)),
    "repeat": lambda: Repeat(Range(0, 3, 1), 3),
    "concatenate": lambda: Concatenate(Range(0, 3, 1), Range(7, 9, 1)),
    "zip": lambda: Zip([Range(0, 5, 1), Range(5, 0, -1)]),
    "directed": lambda: Directed(Map(Range(0, 8, 1), _call(lambda x: (x % 2,))), [Range(0, 3, 1), Range(10, 15, 1)]),
    "batch": lambda: Batch(Range(0, 9, 1), 2, False, INT),
    "unbatch": lambda: Unbatch(Batch(Range(0, 9, 1), 4, False, INT), INT),
    "map": lambda: Map(Range(0, 9, 1), _call(_twice)),
    "parallel_map": lambda: Map(Range(0, 9, 1), _call(_twice), parallel=3),
    "scan": lambda: Scan(Range(0, 9, 1), (np.int64(0),), _call(lambda s, x: (s + x, s))),
    "flat_map": lambda: FlatMap(Range(0, 5, 1), _call(_upto)),
    "interleave": lambda: FlatMap(Range(0, 6, 1), _call(_upto), 3, 2),
    "window": lambda: FlatMap(Window(Range(0, 9, 1), 3, 2, 1, False), _call(lambda w: (Batch(w, 3, False, INT),))),
    "window_of_datasets": lambda: Shuffle(Window(Range(0, 9, 1), 3, 2, 1, False), 2, Seeds(1, 2, True)),
    "group": lambda: GroupByWindow(
        Range(0, 12, 1),
        _call(lambda x: (x % 3,)),
        _call(lambda key, d: (Batch(d, 3, False, INT),)),
        _call(lambda key: (np.int64(2),)),
    ),
    "shuffle": lambda: Repeat(Shuffle(Range(0, 9, 1), 4, Seeds(1, 2, True)), 2),
    "random": lambda: Take(RandomNumbers(Seeds(1, 2, False)), 9),
    "prefetch": lambda: Prefetch(Range(0, 9, 1), 3),
    "cache": lambda: Repeat(Cache(Range(0, 5, 1), Memory()), 2),
    "rebatch": lambda: Rebatch(Batch(Range(0, 13, 1), 4, False, INT), [2, 3], False, INT),
    "assert_cardinality": lambda: AssertCardinality(Range(0, 5, 1), 5),
    "reducer": lambda: GroupByReducer(
        Range(0, 12, 1),
        _call(lambda x: (x % 4,)),
        _call(lambda key: (key,)),
        _call(lambda total, x: (total + x,)),
        _call(lambda total: (total,)),
    ),
}


def _plain(x: Any) -> Any:
    if isinstance(x, Dataset):
        return _all(x)
    return [_plain(v) for v in x] if isinstance(x, (tuple, list)) else np.asarray(x).tolist()


def _rest(iterator: Any) -> list[Any]:
    return [_plain(e) for e in iter(iterator.next, None)]


def _all(dataset: Dataset) -> list[Any]:
    return _rest(dataset.iterator(Pass()))


@pytest.mark.parametrize("name", CASES)
def test_a_restored_iterator_continues_with_the_same_elements(name: str) -> None:
    n = len(_all(CASES[name]()))
    assert n > 2
    for taken in (0, 1, n // 2, n):
        iterator = CASES[name]().iterator(Pass())
        for _ in range(taken):
            iterator.next()
        saved = state.decode(state.encode(iterator.save()))
        other = CASES[name]().iterator(Pass())
        other.restore(saved)
        rest = _rest(other)
        assert len(rest) == n - taken
        assert rest == _rest(iterator)
        assert other.next() is None


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_state_is_a_data_loss(name: str) -> None:
    for data in (b"", b"{}", b'{"dict": {}}', b"[1]", b'{"dict": {"at": -1}}', b'{"array": "AA", "shape": [9]}'):
        with pytest.raises(DataLossError):
            CASES[name]().iterator(Pass()).restore(state.decode(data))


@pytest.mark.parametrize("name", [n for n in CASES if n not in ("filter", "take_while", "unique", "ignore_errors")])
def test_a_known_cardinality_is_the_number_of_elements(name: str) -> None:
    dataset = CASES[name]()
    assert dataset.cardinality() in (UNKNOWN, len(_all(dataset)))


@pytest.mark.parametrize("n", [0, 1, 5, 12])
@pytest.mark.parametrize(
    "make",
    [
        lambda d: Take(d, 3),
        lambda d: Skip(d, 3),
        lambda d: Shard(d, 4, 1),
        lambda d: Repeat(d, 3),
        lambda d: Batch(d, 5, False, INT),
        lambda d: Batch(d, 5, True, INT),
        lambda d: Window(d, 3, 2, 1, False),
        lambda d: Window(d, 3, 2, 2, True),
        lambda d: Zip([d, Range(0, 4, 1)]),
        lambda d: Concatenate(d, d),
        lambda d: Shuffle(d, 3, Seeds(1, 1, True)),
    ],
)
def test_cardinalities_of_transformations(make: Callable[[Dataset], Dataset], n: int) -> None:
    dataset = make(Range(0, n, 1))
    assert dataset.cardinality() == len(_all(dataset))


def test_cardinalities_without_an_end() -> None:
    endless = Repeat(Range(0, 3, 1), -1)
    assert endless.cardinality() == INFINITE
    assert Take(endless, 7).cardinality() == 7
    assert Repeat(Range(0, 0, 1), -1).cardinality() == 0
    assert Filter(endless, _call(lambda x: (True,))).cardinality() == UNKNOWN


def test_words_are_those_of_the_stream_from_any_position() -> None:
    words = Stream(3, 5 << 64).words(300).tolist()
    for drawn in (0, 1, 2, 3, 4, 63, 64, 65, 200):
        source = Words(3, 5, drawn)
        assert [source.next() for _ in range(90)] == words[drawn : drawn + 90]
        assert source.drawn == drawn + 90


def test_a_smaller_buffer_delays_no_element_by_more_than_its_size() -> None:
    order = [e[0] for e in _all(Shuffle(Range(0, 40, 1), 5, Seeds(7, 7, False)))]
    assert sorted(order) == list(range(40))
    assert all(x < at + 5 for at, x in enumerate(order))


def test_elements_of_different_shapes_cannot_be_batched() -> None:
    rows = Map(Range(1, 4, 1), _call(lambda n: (np.zeros(n),)))
    with pytest.raises(
        InvalidArgumentError, match=r"different shapes in component 0.*\[1\].*element 1 had shape \[2\]"
    ):
        _all(Batch(rows, 2, False, [dtypes.float64]))
    with pytest.raises(DataLossError, match="smaller size than the input"):
        _all(PaddedBatch(rows, 3, [(2,)], [np.float64(0)], False, [dtypes.float64]))
    with pytest.raises(InvalidArgumentError, match="same rank"):
        _all(PaddedBatch(rows, 3, [(2, 2)], [np.float64(0)], False, [dtypes.float64]))


def test_the_request_after_an_error_takes_the_next_element() -> None:
    def fails(x: Any) -> Any:
        if x == 1:
            raise InvalidArgumentError("one")
        return (x,)

    for dataset in (
        Map(Range(0, 3, 1), _call(fails)),
        Map(Range(0, 3, 1), _call(fails), parallel=2),
        Prefetch(Map(Range(0, 3, 1), _call(fails)), 2),
    ):
        iterator = dataset.iterator(Pass())
        assert _plain(iterator.next()) == [0]
        with pytest.raises(InvalidArgumentError, match="one"):
            iterator.next()
        assert _rest(iterator) == [[2]]
    assert _all(IgnoreErrors(Map(Range(0, 3, 1), _call(fails)))) == [[0], [2]]


def test_out_of_range_of_a_function_ends_the_dataset_or_is_an_error() -> None:
    def stops(x: Any) -> Any:
        if x == 2:
            raise OutOfRangeError("over")
        return (x,)

    for parallel in (1, 2):
        assert _all(Map(Range(0, 5, 1), _call(stops), parallel, keeps_cardinality=False)) == [[0], [1]]
        with pytest.raises(InvalidArgumentError, match="OutOfRangeError"):
            _all(Map(Range(0, 5, 1), _call(stops), parallel))


def test_a_generator_is_finished_once_and_has_no_position() -> None:
    calls: list[str] = []

    def step(n: Any) -> Any:
        calls.append("step")
        if len(calls) == 3:
            raise OutOfRangeError("over")
        return (n,)

    begin, end = (lambda element, run: (np.int64(7),)), (lambda element, run: calls.append("end") or ())
    iterator = Generated(begin, _call(step), end).iterator(Pass())
    assert _rest(iterator) == [[7], [7]]
    assert iterator.next() is None
    assert calls == ["step"] * 3 + ["end"]
    with pytest.raises(UnimplementedError, match="generator"):
        iterator.save()


# *** threads ***


def _threads(prefix: str) -> list[str]:
    return [t.name for t in threading.enumerate() if t.name.startswith(prefix)]


def _wait_until(is_done: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 10
    while not is_done():
        assert time.monotonic() < until, what
        time.sleep(0.005)


@pytest.mark.system
def test_prefetch_computes_ahead_and_its_thread_ends_with_the_iterator() -> None:
    made: list[int] = []

    def note(x: Any) -> Any:
        made.append(int(x))
        return (x,)

    iterator = Prefetch(Map(Range(0, 1000, 1), _call(note)), 6).iterator(Pass())
    assert _plain(iterator.next()) == [0]
    _wait_until(lambda: len(made) == 7, "the thread computes 6 elements ahead")
    assert _rest(Take(Elements([iterator.next() or ()]), 1).iterator(Pass())) == [[1]]
    del iterator
    gc.collect()
    count = len(made)
    _wait_until(lambda: not _threads("headrace-prefetch"), "the thread ends after its iterator")
    assert len(made) <= count + 6


@pytest.mark.system
def test_a_request_that_waits_fails_when_the_iterator_is_released() -> None:
    is_called, may_end = threading.Event(), threading.Event()

    def hangs(x: Any) -> Any:
        if x:
            is_called.set()
            may_end.wait(10)
        return (x,)

    iterator = DatasetIterator("i", INT, [()])
    iterator.begin(Prefetch(Map(Range(0, 9, 1), _call(hangs)), 2))
    assert _plain(iterator.next()) == [0]
    assert is_called.wait(10)  # by the thread of the prefetch
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            iterator.next()
        except CancelledError as e:
            errors.append(e)

    asks = threading.Thread(target=ask)
    asks.start()
    time.sleep(0.02)
    iterator.release()
    asks.join(10)
    assert not asks.is_alive()
    assert "dropped" in str(errors[0])
    may_end.set()
    _wait_until(lambda: not _threads("headrace-prefetch"), "the thread ends")


@pytest.mark.system
def test_a_long_function_of_a_parallel_map_runs_several_times_at_once_in_order() -> None:
    at_once, most = [0], [0]
    lock = threading.Lock()

    def slow(x: Any) -> Any:
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.01)
        with lock:
            at_once[0] -= 1
        return (x,)

    assert [e[0] for e in _all(Map(Range(0, 20, 1), _call(slow), parallel=4))] == list(range(20))
    assert 2 <= most[0] <= 5


def test_a_short_function_of_a_parallel_map_needs_no_thread() -> None:
    before = _threads("headrace-map")
    assert len(_all(Map(Range(0, 50, 1), _call(_twice), parallel=4))) == 50
    assert _threads("headrace-map") == before
