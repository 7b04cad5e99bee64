"""A session's memory does not grow with the number of runs.

No object is kept longer than it is needed.
"""

from __future__ import annotations

import contextlib
import gc
import resource
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import DeadlineExceededError, InternalError, InvalidArgumentError
from tests.execute.loops import Loop, counting, dead
from tests.session.helpers import builder, call, session

pytestmark = pytest.mark.system

MB = 1 << 20


@contextlib.contextmanager
def traced() -> Iterator[None]:
    gc.collect()
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def growth(work: Callable[[], Any], runs: int) -> int:
    """Bytes that are held after `runs` further calls of `work`: the least of three measurements.

    A leak shows in each of them, but caches (numpy's, Python's) fill up now and then.
    """
    for _ in range(100):
        work()
    with traced():
        for _ in range(200):
            work()
        held = []
        for _ in range(3):
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            for _ in range(runs):
                work()
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0] - before)
        return min(held)


def working(custom: None) -> dict[str, tuple[hr.Session, Callable[[], Any]]]:
    """Ways of using a session: (session, one use of it)."""
    b = builder()
    p = b.Placeholder(dtype="float32", shape=(100,))
    n = b.Placeholder(dtype="int32", shape=())
    loop, i = counting(b, n)
    sums = b.Sum(b.Mul(p, p), 0, keep_dims=False)
    gone = b.Identity(dead(b))
    quotient = b.FloorDiv(b.const(7), n)
    v = b.VarHandleOp(dtype="float32", shape=(100,))
    assign = b.AssignVariableOp(v, p)
    stack = b.StackV2(b.const(10), elem_type="float32")
    pushed = b.StackPushV2(stack, p)
    popped = b.after(pushed).StackPopV2(stack, elem_type="float32")
    q = b.FIFOQueueV2(component_types=["float32"], capacity=10)
    put = b.QueueEnqueueV2(q, [p])
    got = b.QueueDequeueV2(q, component_types=["float32"])
    got = got[0] if isinstance(got, tuple) else got
    empty = b.FIFOQueueV2(component_types=["float32"], shared_name="empty")
    waits = b.QueueDequeueV2(empty, component_types=["float32"])
    waits = waits[0] if isinstance(waits, tuple) else waits
    heavy = [call(b, "Heavy", lambda x: x + 1, [p], out=("float32",)) for _ in range(2)]
    x = np.ones(100, np.float32)
    s = session(b)

    def fails(kind: type[Exception], *args: Any, **kwargs: Any) -> None:
        with pytest.raises(kind):
            s.run(*args, **kwargs)

    def partial() -> None:
        h = s.partial_run_setup([sums, loop.exit(i)], [p, n])
        s.partial_run(h, sums, {p: x})
        s.partial_run(h, loop.exit(i), {n: 3})

    f = s.make_callable([sums, loop.exit(i)], [p, n])
    uses: dict[str, Callable[[], Any]] = {
        "straight": lambda: s.run(sums, {p: x}),
        "loop": lambda: s.run(loop.exit(i), {n: 5}),
        "callable": lambda: f(x, 3),
        "traced": lambda: s.run(loop.exit(i), {n: 3}, hr.RunOptions(listener=lambda e: None)),
        "stateful": lambda: s.run([assign, popped], {p: x}),
        "queue": lambda: s.run(put, {p: x}) or s.run(got),
        "pool": lambda: s.run(heavy, {p: x}),
        "dead fetch": lambda: fails(InvalidArgumentError, gone),
        "failing kernel": lambda: fails(InvalidArgumentError, [quotient, loop.exit(i)], {n: 0}),
        "body fetch": lambda: fails(InternalError, loop.body(i), {n: 3}),
        "bad feed": lambda: fails(hr.errors.FeedError, sums, {p: "text"}),
        "partial": partial,
        "timeout": lambda: fails(DeadlineExceededError, waits, timeout_ms=0.01),
    }
    return {name: (s, use) for name, use in uses.items()}


USES = (
    "straight", "loop", "callable", "traced", "stateful", "queue", "pool", "dead fetch", "failing kernel", "body fetch",
    "bad feed", "partial", "timeout",
)  # fmt: skip


@pytest.mark.parametrize("use", USES)
def test_memory_is_flat_over_many_runs(custom: None, use: str) -> None:
    s, work = working(custom)[use]
    with s:
        held = growth(work, 250)
        assert held < 20_000, f"{held} bytes more after 250 runs"
        assert not s.statistics().active
        assert not s.statistics().partial_runs


def test_all_uses_are_tested(custom: None) -> None:
    uses = working(custom)
    assert tuple(uses) == USES
    uses["straight"][0].close()


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("use", ["straight", "loop", "callable", "stateful", "failing kernel"])
def test_resident_memory_is_flat_over_a_hundred_thousand_runs(custom: None, use: str) -> None:
    s, work = working(custom)[use]
    with s:
        for _ in range(10_000):
            work()
        gc.collect()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(100_000):
            work()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8192  # kilobytes


def test_large_intermediate_values_are_freed_early() -> None:
    b = builder()
    p = b.Placeholder(dtype="float32", shape=(2 * MB,))
    x = p
    for _ in range(20):
        x = b.AddV2(x, b.const(1.0))
    y = b.Sum(x, 0, keep_dims=False)
    value = np.zeros(2 * MB, np.float32)
    with session(b) as s:
        s.run(y, {p: value})
        with traced():
            assert s.run(y, {p: value}) == 20 * 2 * MB
            peak = tracemalloc.get_traced_memory()[1]
    assert peak < 4 * 8 * MB, f"{peak / MB:.0f} MB for arrays of 8"


@pytest.mark.parametrize("window", [1, 10])
def test_large_values_of_past_iterations_are_freed(window: int) -> None:
    b = builder()
    p = b.Placeholder(dtype="float32", shape=(MB // 4,))
    loop = Loop(b, "a", window)
    i, x = loop.var(b.const(0)), loop.var(p)
    loop.goes_while(b.Less(i, loop.constant(b.const(60))))
    no, yes = b.Switch(loop.body(x), b.Less(loop.body(i), loop.constant(b.const(30))))
    doubled = b.AddV2(yes, yes)
    halved = b.Mul(no, b.after(b.Identity(no)).const(0.5))
    loop.next(x, b.Merge([halved, doubled])[0])
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    y = b.Sum(loop.exit(x), 0, keep_dims=False)
    value = np.ones(MB // 4, np.float32)
    with session(b) as s:
        s.run(y, {p: value})
        with traced():
            assert s.run(y, {p: value}) == MB // 4
            peak = tracemalloc.get_traced_memory()[1]
    assert peak < (window + 4) * MB, f"{peak / MB:.0f} MB for arrays of 1 in a window of {window}"


def test_nothing_of_a_step_outlives_it(custom: None) -> None:
    """Without waiting for the garbage collector: arrays are gone when the run returns."""
    b = builder()
    seen: list[weakref.ref] = []

    def make(ctx: Any, *args: Any) -> Any:
        array = np.zeros(1000, np.float32)
        seen.append(weakref.ref(array))
        return array

    start = call(b, "Stateful", make, out=("float32",))
    no, yes = b.Switch(start, b.Identity(b.const(True)))
    loop = Loop(b, "a")
    i, x = loop.var(b.const(0)), loop.var(b.Identity(yes))
    loop.goes_while(b.Less(i, loop.constant(b.const(5))))
    loop.next(x, call(b, "Stateful", make, [loop.body(x), loop.constant(start)], out=("float32",)))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    merged = b.Merge([b.Identity(no), loop.exit(x), start])[0]
    y = b.Sum(b.AddV2(merged, start), 0, keep_dims=False)
    with session(b) as s:
        gc.collect()
        gc.disable()
        try:
            s.run(y)
            assert len(seen) == 6
            assert [r() is None for r in seen] == [True] * 6
        finally:
            gc.enable()


def test_a_failed_step_lets_go_once_its_error_is_gone(custom: None) -> None:
    b = builder()
    seen: list[weakref.ref] = []

    def make(ctx: Any) -> Any:
        array = np.zeros(1000, np.float32)
        seen.append(weakref.ref(array))
        return array

    big = call(b, "Stateful", make, out=("float32",))
    p = b.Placeholder(dtype="float32", shape=None)
    y = b.AddV2(b.AddV2(big, p), big)
    with session(b) as s:
        for _ in range(3):
            with pytest.raises(InvalidArgumentError):
                s.run(y, {p: np.zeros(3)})
        gc.collect()
        assert [r() is None for r in seen] == [True] * 3


def test_feeds_are_let_go(custom: None) -> None:
    b = builder()
    seen: list[weakref.ref] = []
    p = b.Placeholder(dtype="float32", shape=(10,))
    x = call(b, "Stateful", lambda ctx, a: seen.append(weakref.ref(a)) or np.float32(0), [p], out=("float32",))
    with session(b) as s:
        s.run(x, {p: np.ones(10)})
        gc.collect()
        assert [r() for r in seen] == [None]


def test_a_graph_is_not_copied_for_each_way_of_fetching(custom: None) -> None:
    """A compiled step is kept for each (fetches, feeds).

    It is small compared with the graph's constants.
    """
    b = builder()
    big = b.const(np.zeros(MB // 4, np.float32))
    with session(b) as s:
        tensors = [b.AddV2(big, b.const(float(k))) for k in range(20)]
        s.run(tensors[0])
        with traced():
            for t in tensors:
                s.run(t.op)
            assert tracemalloc.get_traced_memory()[0] < 3 * MB
