"""Several steps at once, and several kernels at once.

Overlap is proved by threads that meet, never by the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import HeadraceInternalError, InvalidArgumentError
from tests.execute.loops import Loop, counting
from tests.session.helpers import builder, call, session

LONG = 60.0  # seconds until a meeting is given up


def in_threads(n: int, work: Callable[[int], Any]) -> list[Any]:
    """`[work(0), ..., work(n - 1)]`, each in a thread of its own; raises the first error."""
    results: list[Any] = [None] * n
    errors: list[BaseException] = []

    def go(i: int) -> None:
        try:
            results[i] = work(i)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=go, args=(i,), daemon=True) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(LONG)
    assert not any(t.is_alive() for t in threads), "threads hang"
    if errors:
        raise errors[0]
    return results


def test_eight_steps_are_under_way_at_the_same_time(custom: None) -> None:
    meeting = threading.Barrier(8)
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())

    def meet(ctx: Any, x: Any) -> Any:
        meeting.wait(LONG)
        return x

    y = b.AddV2(call(b, "Stateful", meet, [p], scalar=True), p)
    with session(b) as s:
        for _ in range(3):
            assert in_threads(8, lambda i: s.run(y, {p: i})) == [2 * i for i in range(8)]


def test_steps_meet_in_every_iteration_of_a_loop(custom: None) -> None:
    meeting = threading.Barrier(4)
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    loop = Loop(b, "a")
    i, x = loop.var(b.const(0)), loop.var(p)
    loop.goes_while(b.Less(i, loop.constant(b.const(20))))

    def meet(ctx: Any, x: Any) -> Any:
        meeting.wait(LONG)
        return x + 1

    loop.next(x, call(b, "Stateful", meet, [loop.body(x)], scalar=True))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    out = loop.exit(x)
    with session(b) as s:
        assert in_threads(4, lambda k: s.run(out, {p: 100 * k})) == [20, 120, 220, 320]


def test_different_runs_of_one_session_at_the_same_time() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    loop, i = counting(b, p)
    fetches = [loop.exit(i), b.Mul(p, p), b.AddV2(loop.exit(i), p), b.Identity(p)]
    with session(b) as s:
        for _ in range(5):
            got = in_threads(8, lambda k: s.run(fetches[k % 4], {p: k * 10}))
            assert got == [(k * 10, (k * 10) ** 2, k * 20, k * 10)[k % 4] for k in range(8)]


def test_a_step_that_fails_does_not_touch_the_others(custom: None) -> None:
    meeting = threading.Barrier(8)
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())

    def meet(ctx: Any, x: Any) -> Any:
        meeting.wait(LONG)
        return x

    y = b.FloorDiv(b.const(100), call(b, "Stateful", meet, [p], scalar=True))

    with session(b) as s:

        def work(i: int) -> Any:
            try:
                return s.run(y, {p: i % 2})
            except InvalidArgumentError as e:
                return type(e)

        assert in_threads(8, work) == [InvalidArgumentError, 100] * 4


def test_variables_are_shared() -> None:
    b = builder()
    v = b.VarHandleOp(dtype="int32", shape=())
    init = b.AssignVariableOp(v, b.const(0))
    add = b.AssignAddVariableOp(v, b.const(1))
    r = b.VariableV2(shape=(), dtype="int32")
    init_r, add_r = b.Assign(r, b.const(0)), b.AssignAdd(r, b.const(1), use_locking=True)
    with session(b) as s:
        s.run([init, init_r.op])

        def work(i: int) -> None:
            for _ in range(50):
                s.run([add, add_r.op])

        in_threads(8, work)
        assert s.run([b.ReadVariableOp(v, dtype="int32"), r]) == [400, 400]


def test_a_queue_between_threads() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    q = b.FIFOQueueV2(component_types=["int32"], capacity=2)
    put = b.QueueEnqueueV2(q, [p])
    got = b.QueueDequeueV2(q, component_types=["int32"])
    got = got[0] if isinstance(got, tuple) else got
    with session(b) as s:

        def work(i: int) -> list[int]:
            if i % 2:
                return [int(s.run(got)) for _ in range(25)]
            for k in range(25):
                s.run(put, {p: 1000 * i + k})
            return []

        results = in_threads(8, work)
        taken = [x for r in results for x in r]
        assert sorted(taken) == [1000 * i + k for i in (0, 2, 4, 6) for k in range(25)]
        for r in results:  # each consumer sees a producer's elements in order
            for i in (0, 2, 4, 6):
                own = [x for x in r if x // 1000 == i]
                assert own == sorted(own)


def test_a_waiting_node_does_not_hold_up_the_others(custom: None) -> None:
    finish: list[Callable[..., None]] = []
    order: list[str] = []
    b = builder()
    slow = call(b, "Async", lambda ctx, done: finish.append(done), scalar=True)
    x = b.const(1)
    for k in range(300):
        x = b.AddV2(x, b.const(0))
        if k == 200:
            x = call(
                b,
                "Stateful",
                lambda ctx, x: order.append("other work") or finish[0](np.int32(41)) or x,
                [x],
                scalar=True,
            )
    end = call(b, "Stateful", lambda ctx, x: order.append("waiting node") or x, [slow], scalar=True)
    with session(b) as s:
        assert s.run([b.AddV2(end, b.const(1)), x]) == [42, 1]
    assert order == ["other work", "waiting node"]


def test_asynchronous_kernels_complete_from_any_thread_in_any_order(custom: None) -> None:
    b = builder()
    pending: list[tuple[int, Any]] = []
    enough = threading.Event()

    def begin(ctx: Any, x: Any, done: Any) -> None:
        pending.append((int(x), done))
        if len(pending) == 10:
            enough.set()

    parts = [call(b, "Async", begin, [b.const(i)], scalar=True) for i in range(10)]
    total = b.AddN(parts)

    def finish() -> None:
        enough.wait(LONG)
        for x, done in reversed(pending):
            done(np.int32(x * x))

    helper = threading.Thread(target=finish)
    helper.start()
    with session(b) as s:
        assert s.run([total, *parts]) == [285, *(i * i for i in range(10))]
    helper.join(LONG)


def test_an_asynchronous_kernel_in_a_loop_overlaps_its_iterations(custom: None) -> None:
    """With a window of 4, four reads are under way at once.

    The fifth begins only when the first is done.
    """
    b = builder()
    begun: list[int] = []
    most: list[int] = [0]
    under_way: list[Any] = []
    lock = threading.Lock()
    four = threading.Event()

    def begin(ctx: Any, x: Any, done: Any) -> None:
        with lock:
            begun.append(int(x))
            under_way.append(done)
            most[0] = max(most[0], len(under_way))
            if len(under_way) == 4:
                four.set()

    loop = Loop(b, "a", parallel_iterations=4)
    i, total = loop.var(b.const(0)), loop.var(b.const(0))
    loop.goes_while(b.Less(i, loop.constant(b.const(12))))
    read = call(b, "Async", begin, [loop.body(i)], scalar=True)
    loop.next(total, b.AddV2(loop.body(total), read))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    out = loop.exit(total)

    def serve() -> None:
        assert four.wait(LONG)
        served = 0
        while served < 12:
            with lock:
                done = under_way.pop(0) if under_way else None
            if done is not None:
                done(np.int32(1))
                served += 1

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    with session(b) as s:
        assert s.run(out, timeout_ms=LONG * 1000) == 12
    server.join(LONG)
    assert begun == list(range(12))
    assert most[0] == 4


# *** the pool ***


def test_heavy_kernels_run_side_by_side(custom: None) -> None:
    meeting = threading.Barrier(2)
    where: list[int] = []

    def meet(x: Any) -> Any:
        where.append(threading.get_ident())
        meeting.wait(LONG)
        return x

    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    total = b.AddV2(*(call(b, "Heavy", meet, [p], scalar=True) for _ in range(2)))
    with session(b, inter_op_threads=2, engine="interpret") as s:
        assert s.run(total, {p: 4}) == 8
    assert len(set(where)) == 2


def test_light_work_goes_on_beside_a_heavy_kernel(custom: None) -> None:
    done = threading.Event()

    def wait(x: Any) -> Any:
        assert done.wait(LONG)
        return x

    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    heavy = call(b, "Heavy", wait, [p], scalar=True)
    light = p
    for _ in range(300):
        light = b.AddV2(light, b.const(1))
    light = call(b, "Stateful", lambda ctx, x: done.set() or x, [light], scalar=True)
    with session(b, engine="interpret") as s:
        assert s.run([heavy, light], {p: 1}) == [1, 301]


def test_a_heavy_kernel_that_is_alone_stays_in_the_callers_thread(custom: None) -> None:
    b = builder()
    where: list[int] = []
    p = b.Placeholder(dtype="int32", shape=())
    x = p
    for _ in range(5):
        x = call(b, "Heavy", lambda x: where.append(threading.get_ident()) or x, [x], scalar=True)
    with session(b) as s:
        s.run(x, {p: 1})
    assert set(where) == {threading.get_ident()}


def test_a_heavy_kernel_that_fails_says_where(custom: None) -> None:
    def fail(x: Any) -> Any:
        raise RuntimeError("too heavy")

    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    parts = [call(b, "Heavy", fail, [p], scalar=True, name="weight"), *(b.AddV2(p, p) for _ in range(5))]
    with session(b, inter_op_threads=2) as s:
        with pytest.raises(HeadraceInternalError, match=r"the kernel of 'weight' \(TestHeavy\)") as e:
            s.run(parts, {p: 1})
        assert isinstance(e.value.__cause__, RuntimeError)
        assert any("'weight' (TestHeavy), made at" in n for n in e.value.__notes__)
        assert s.run(parts[1], {p: 1}) == 2


def test_floating_point_warnings_stay_off_in_every_thread(custom: None) -> None:
    b = builder()
    p = b.Placeholder(dtype="float32", shape=(2,))
    parts = [
        call(b, "Heavy", lambda x: x / np.float32(0), [p], out=("float32",)),
        call(b, "Pure", lambda x: x / np.float32(0), [p], out=("float32",)),
        call(b, "Stateful", lambda ctx, x: x / np.float32(0), [p], out=("float32",)),
    ]
    with session(b) as s:
        for got in s.run(parts, {p: [1, 0]}):  # the tests turn warnings into errors
            assert got[0] == np.inf
            assert np.isnan(got[1])


def test_the_blas_library_gets_its_threads_back(custom: None) -> None:
    from threadpoolctl import ThreadpoolController

    def blas_threads() -> list[int]:
        return [lib.num_threads for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]

    b = builder()
    p = b.Placeholder(dtype="float32", shape=(4, 4))
    product = b.MatMul(p, p)
    seen: list[list[int]] = []
    inside = call(b.after(product), "Stateful", lambda ctx: seen.append(blas_threads()) or np.int32(0), scalar=True)
    with session(b) as s:
        s.run(product, {p: np.eye(4)})
        before = blas_threads()
        s.run([product, inside], {p: np.eye(4)})
        assert seen == [[1] * len(before)]
        assert blas_threads() == before
        with pytest.raises(hr.errors.OpError):
            s.run([product, b.FloorDiv(1, b.after(product).const(0))], {p: np.eye(4)})
        assert blas_threads() == before
