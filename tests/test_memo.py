"""Bounded memos: the entries that they drop, their statistics, threads and forks."""

from __future__ import annotations

import collections
import gc
import multiprocessing
import os
import random
import threading
from typing import Any

import pytest

from headrace import memo
from headrace.memo import Memo, MemoStatistics, cached


def of_name(name: str) -> MemoStatistics | None:
    found = [m for m in memo.statistics() if m.name == name]
    assert len(found) <= 1
    return found[0] if found else None


@pytest.mark.parametrize("seed", range(20))
def test_it_drops_what_was_used_least_recently(seed: int) -> None:
    rng = random.Random(seed)
    limit = rng.randint(1, 8)
    tested: Memo[int, int] = Memo("test", limit)
    model: collections.OrderedDict[int, int] = collections.OrderedDict()
    hits = misses = 0
    for step in range(300):
        key = rng.randrange(12)
        match rng.choice(["get", "get", "put", "put", "pop", "in", "clear" if step % 50 == 49 else "get"]):
            case "put":
                tested.put(key, step)
                model[key] = step
                model.move_to_end(key)
                if len(model) > limit:
                    model.popitem(last=False)
            case "get":
                assert tested.get(key) == model.get(key)
                hits, misses = hits + (key in model), misses + (key not in model)
                if key in model:
                    model.move_to_end(key)
            case "pop":
                hits, misses = hits + (key in model), misses + (key not in model)
                assert tested.pop(key) == model.pop(key, None)
            case "in":
                assert (key in tested) == (key in model)
            case "clear":
                tested.clear()
                model.clear()
        assert dict(tested.items()) == model
        assert (tested.hits, tested.misses) == (hits, misses)


def test_a_large_memo_keeps_its_bound_and_drops_the_oldest() -> None:
    tested: Memo[int, int] = Memo("test", 1000)
    for i in range(5000):
        tested.put(i, -i)
        tested.get(7)  # used all the time
        assert len(tested) <= 1000
    kept = [k for k, _ in tested.items()]
    assert kept == [7, *range(kept[1], 5000)]
    assert len(kept) > 980
    assert tested.values() == [-k for k in kept]


@pytest.mark.parametrize("seed", range(10))
def test_values_with_sizes_stay_within_the_limit(seed: int) -> None:
    rng = random.Random(seed)
    tested: Memo[int, int] = Memo("test", 100, lambda value: value)
    for i in range(300):
        size = rng.randint(1, 30)
        tested.put(rng.randrange(40), size)
        assert tested.size == sum(tested.values()) <= 100
        assert tested.values()[-1] == size
        if i % 60 == 59:
            tested.pop(next(k for k, _ in tested.items()))
            assert tested.size == sum(tested.values())
    tested.put(1, 1000)  # larger than the limit: it replaces all others
    assert tested.items() == [(1, 1000)]
    tested.put(2, 5)
    assert tested.items() == [(2, 5)]
    tested.clear()
    assert tested.size == 0


def test_a_lower_limit_holds_from_the_next_addition() -> None:
    tested: Memo[int, int] = Memo("test", 100)
    for i in range(100):
        tested.put(i, i)
    tested.limit = 3
    tested.put(100, 100)
    assert [k for k, _ in tested.items()] == [98, 99, 100]


def test_a_limit_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 entry, got the limit 0"):
        Memo("test", 0)


def test_a_key_without_a_hash_is_refused_and_changes_nothing() -> None:
    tested: Memo[Any, int] = Memo("test", 2)
    tested.put(1, 1)
    for call in (lambda: tested.get([]), lambda: tested.put([], 1), lambda: tested.pop([])):
        with pytest.raises(TypeError, match="unhashable"):
            call()
    assert tested.items() == [(1, 1)]
    assert (tested.hits, tested.misses) == (0, 0)


def test_statistics_add_up_memos_of_one_name() -> None:
    name = "memos of this test"
    first: Memo[int, int] = Memo(name, 4)
    second: Memo[int, int] = Memo(name, 8)
    first.put(1, 1)
    second.put(1, 1)
    second.put(2, 2)
    first.get(1)
    second.get(3)
    assert of_name(name) == MemoStatistics(name, memos=2, entries=3, size=3, limit=8, hits=1, misses=1)
    del second
    gc.collect()
    assert of_name(name) == MemoStatistics(name, memos=1, entries=1, size=1, limit=4, hits=1, misses=0)
    del first
    gc.collect()
    assert of_name(name) is None


def test_a_cached_function_runs_once_for_each_argument() -> None:
    calls = []

    @cached(2, "a cached function of this test")
    def square(x: int) -> int:
        """Returns the square."""
        calls.append(x)
        return x * x

    assert [square(x) for x in (1, 1, 2, 1, 3, 1, 2)] == [1, 1, 4, 1, 9, 1, 4]
    assert calls == [1, 2, 3, 2]
    assert square.__doc__ == "Returns the square."
    name = "a cached function of this test"
    assert of_name(name) == MemoStatistics(name, memos=1, entries=2, size=2, limit=2, hits=3, misses=4)


def test_a_value_may_use_the_memo_while_it_is_freed() -> None:
    tested: Memo[int, Any] = Memo("test", 1)

    class Value:
        def __del__(self) -> None:
            tested.clear()

    for i in range(3):
        tested.put(i, Value())
    tested.clear()
    assert len(tested) == 0


@pytest.mark.system
def test_threads_share_a_memo() -> None:
    tested: Memo[int, int] = Memo("test", 16)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(5000):
                key = rng.randrange(40)
                got = tested.get(key)
                if got is None:
                    tested.put(key, key * key)
                elif got != key * key:
                    wrong.append((key, got))
                if len(tested) > 17:  # one more while an addition is under way
                    wrong.append(len(tested))
                if key == 3:
                    tested.pop(rng.randrange(40))
        except Exception as e:
            wrong.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(30)
    assert not wrong
    assert len(tested) <= 16


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_forked_process_adds_although_a_lock_was_held() -> None:
    tested: Memo[int, int] = Memo("test", 4)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with tested._lock, memo._registering:
            held.set()
            done.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(30)

        def child() -> None:
            tested.put(1, 2)
            Memo("another", 1)
            os._exit(tested.get(1) or 0)

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(30)
        if process.is_alive():
            process.kill()
        assert process.exitcode == 2
    finally:
        done.set()
        holder.join(30)
