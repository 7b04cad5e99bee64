"""Time limits, cancellation, closing, interrupts: every end of a step that waits or never ends."""

from __future__ import annotations

import _thread
import signal
import threading
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import CancelledError, DeadlineExceededError, OutOfRangeError
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from tests.execute.clocks import ManualClock
from tests.execute.loops import Loop, counting
from tests.inside import use_clock
from tests.session.helpers import builder, call, session

LONG = 60.0
LIMIT = 60_000  # milliseconds; for steps that must end in another way


def queue(b: Builder, name: str = "") -> tuple[Any, Tensor]:
    """An empty queue, and the dequeue `get` from it."""
    q = b.FIFOQueueV2(component_types=["int32"], shared_name=name)
    got = b.make("QueueDequeueV2", (q,), {"component_types": ("int32",)}, "get")
    return q, got[0] if isinstance(got, tuple) else got


def endless(b: Builder, custom_body: Any = None) -> Tensor:
    """The result of `while True: i = body(i)`."""
    loop = Loop(b, "endless")
    i = loop.var(b.const(0))
    always = loop.constant(b.const(True))
    loop.goes_while(b.LogicalOr(always, b.Less(i, i)))
    step = b.AddV2(loop.body(i), loop.const(1))
    loop.next(i, custom_body(step) if custom_body else step)
    return loop.exit(i)


# *** time limits ***


def test_a_dequeue_from_an_empty_queue() -> None:
    b = builder()
    q, get = queue(b)
    put = b.QueueEnqueueV2(q, [b.const(5)])
    with session(b) as s:
        use_clock(s, ManualClock(expires=True))
        with pytest.raises(
            DeadlineExceededError, match=r"it waits for 'get' \(QueueDequeueV2\), made at .*test_waiting.py"
        ):
            s.run(get, timeout_ms=LIMIT)
        with pytest.raises(DeadlineExceededError):
            s.run(get, options=hr.RunOptions(timeout_in_ms=LIMIT))
        s.run(put)
        assert s.run(get, timeout_ms=LIMIT) == 5  # no element was lost to the receivers that gave up


def test_the_sessions_own_time_limit() -> None:
    b = builder()
    _, get = queue(b)
    with session(b, config={"operation_timeout_in_ms": LIMIT}) as s:
        use_clock(s, ManualClock(expires=True))
        with pytest.raises(DeadlineExceededError):
            s.run(get)
        with pytest.raises(DeadlineExceededError):
            s.make_callable(get)()


def test_a_busy_loop() -> None:
    b = builder()
    out = endless(b)
    with session(b) as s:
        with pytest.raises(DeadlineExceededError, match="ran past its time limit"):
            s.run(out, timeout_ms=30)
        assert s.run(b.const(1)) == 1


def test_a_busy_loop_that_is_listened_to() -> None:
    b = builder()
    out = endless(b)
    with session(b) as s, pytest.raises(DeadlineExceededError):
        s.run(out, options=hr.RunOptions(timeout_in_ms=30, listener=lambda e: None))


def test_a_wait_without_a_time_limit_ends_by_the_flag() -> None:
    b = builder()
    _, get = queue(b)
    limit = "has waited 600 s without any progress for 'get'.*HEADRACE_WAIT_LIMIT"
    with session(b) as s:
        use_clock(s, ManualClock(expires=True))
        with pytest.raises(DeadlineExceededError, match=limit):
            s.run(get)


def test_what_was_started_is_cancelled_when_the_step_ends(custom: None) -> None:
    b = builder()
    cancelled: list[str] = []
    late: list[Any] = []

    def begin(ctx: Any, done: Any) -> Any:
        late.append(done)
        return lambda: cancelled.append(ctx.node)

    waits = [call(b, "Async", begin, name=f"wait{i}", scalar=True) for i in range(3)]
    fail = b.after(call(b, "Stateful", lambda ctx: np.int32(0), scalar=True)).FloorDiv(b.const(1), b.const(0))
    with session(b) as s:
        use_clock(s, ManualClock(expires=True))
        with pytest.raises(DeadlineExceededError):
            s.run(waits, timeout_ms=LIMIT)
        assert sorted(cancelled) == ["wait0", "wait1", "wait2"]
        for done in late:
            done(np.int32(1))  # too late, and of no consequence
        cancelled.clear()
        with pytest.raises(hr.errors.InvalidArgumentError, match="division by zero"):
            s.run([*waits, fail], timeout_ms=LIMIT)
        assert set(cancelled) <= {"wait0", "wait1", "wait2"}
        assert s.run(b.const(3)) == 3


def test_a_kernel_that_calls_done_twice(custom: None) -> None:
    b = builder()

    def begin(ctx: Any, done: Any) -> None:
        done(np.int32(1))
        done(np.int32(2))
        done(ValueError("and again"))

    with session(b) as s:
        x = call(b, "Async", begin, scalar=True)
        assert s.run([x, b.AddV2(x, x)]) == [1, 2]


def test_an_asynchronous_error(custom: None) -> None:
    b = builder()
    x = call(b, "Async", lambda ctx, done: done(OutOfRangeError("nothing left")), name="reader", scalar=True)
    y = call(b, "Async", lambda ctx, done: 1 / 0, name="broken", scalar=True)
    with session(b) as s:
        with pytest.raises(OutOfRangeError, match="nothing left") as e:
            s.run(x)
        assert e.value.node == "reader"
        assert e.value.op is x.op
        with pytest.raises(hr.errors.HeadraceInternalError, match="'broken'"):
            s.run(y)


def test_what_would_wait_in_a_branch_that_is_not_taken_does_not() -> None:
    b = builder()
    p = b.Placeholder(dtype="bool", shape=())
    no, yes = b.Switch(b.const(1), p)
    q = b.FIFOQueueV2(component_types=["int32"])
    got = b.after(b.Identity(no)).QueueDequeueV2(q, component_types=["int32"])
    got = got[0] if isinstance(got, tuple) else got
    merged = b.Merge([got, yes])[0]
    with session(b) as s:
        assert s.run(merged, {p: True}, timeout_ms=LIMIT) == 1
        use_clock(s, ManualClock(expires=True))
        with pytest.raises(DeadlineExceededError, match="QueueDequeueV2"):
            s.run(merged, {p: False}, timeout_ms=LIMIT)


# *** closing ***


def run_in_thread(work: Any) -> tuple[threading.Thread, list[Any]]:
    """A started thread, and a list that gets what `work()` gives or raises."""
    out: list[Any] = []

    def go() -> None:
        try:
            out.append(work())
        except BaseException as e:
            out.append(e)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    return thread, out


@pytest.mark.parametrize("what", ["waiting", "busy", "asynchronous"])
def test_close_cancels_what_runs(custom: None, what: str) -> None:
    b = builder()
    begun = threading.Event()
    cancelled: list[int] = []

    def wait_for_ever(ctx: Any, done: Any) -> Any:
        begun.set()
        return lambda: cancelled.append(1)

    def tell(ctx: Any, x: Any) -> Any:
        begun.set()
        return x

    if what == "busy":
        fetch = endless(b, lambda x: call(b, "Stateful", tell, [x], scalar=True))
    elif what == "asynchronous":
        fetch = call(b, "Async", wait_for_ever, scalar=True)
    else:
        start = call(b, "Stateful", lambda ctx: begun.set() or np.int32(0), scalar=True)
        _, fetch = queue(b.after(start))
    s = session(b)
    thread, out = run_in_thread(lambda: s.run(fetch, timeout_ms=LIMIT))
    assert begun.wait(LONG)
    s.close()
    thread.join(LONG)
    assert not thread.is_alive()
    (error,) = out
    assert type(error) is CancelledError
    assert "closed" in str(error)
    assert cancelled == ([1] if what == "asynchronous" else [])
    with pytest.raises(RuntimeError, match="closed Session"):
        s.run(fetch)


def test_close_cancels_eight_steps(custom: None) -> None:
    b = builder()
    all_begun = threading.Barrier(9)
    start = call(b, "Stateful", lambda ctx: np.int32(all_begun.wait(LONG)), scalar=True)
    _, get = queue(b.after(start))
    s = session(b)
    threads = [run_in_thread(lambda: s.run(get, timeout_ms=LIMIT)) for _ in range(8)]
    all_begun.wait(LONG)
    s.close()
    for thread, out in threads:
        thread.join(LONG)
        assert [type(e) for e in out] == [CancelledError]


def test_a_closed_queue_ends_the_wait(custom: None) -> None:
    b = builder()
    begun = threading.Event()
    start = call(b, "Stateful", lambda ctx: begun.set() or np.int32(0), scalar=True)
    q, _ = queue(b, "shared")
    waiting = b.after(start).QueueDequeueV2(q, component_types=["int32"])
    waiting = waiting[0] if isinstance(waiting, tuple) else waiting
    with session(b) as s:
        thread, out = run_in_thread(lambda: s.run(waiting, timeout_ms=LIMIT))
        assert begun.wait(LONG)
        s.run(b.QueueCloseV2(q))
        thread.join(LONG)
        assert [type(e) for e in out] == [OutOfRangeError]
        assert out[0].node == waiting.op.name


# *** interrupts ***


def test_an_interrupt_in_a_kernel(custom: None) -> None:
    b = builder()

    def interrupt(ctx: Any, x: Any) -> Any:
        if x == 1000:
            raise KeyboardInterrupt
        return x

    out = endless(b, lambda x: call(b, "Stateful", interrupt, [x], scalar=True))
    loop, i = counting(b, 5)
    with session(b) as s:
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                s.run(out, timeout_ms=LIMIT)
            assert s.run(loop.exit(i)) == 5


@pytest.mark.system
@pytest.mark.skipif(threading.current_thread() is not threading.main_thread(), reason="signals go to the main thread")
@pytest.mark.parametrize("traced", [False, True])
def test_ctrl_c_in_a_busy_loop(custom: None, traced: bool) -> None:
    b = builder()

    def press(ctx: Any, x: Any) -> Any:
        if x == 1000:
            signal.raise_signal(signal.SIGINT)
        return x

    out = endless(b, lambda x: call(b, "Stateful", press, [x], scalar=True))
    loop, i = counting(b, 5)
    options = hr.RunOptions(timeout_in_ms=LIMIT, listener=(lambda e: None) if traced else None)
    with session(b) as s:
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                s.run(out, options=options)
            assert s.run(loop.exit(i)) == 5
            assert not s.statistics().active


def test_ctrl_c_from_another_thread_in_a_busy_loop(custom: None) -> None:
    b = builder()
    begun = threading.Event()

    def tell(ctx: Any, x: Any) -> Any:
        if x == 1000:
            begun.set()
        return x

    out = endless(b, lambda x: call(b, "Stateful", tell, [x], scalar=True))
    with session(b) as s:
        thread, _ = run_in_thread(lambda: begun.wait(LONG) and _thread.interrupt_main())
        with pytest.raises(KeyboardInterrupt):
            s.run(out, timeout_ms=LIMIT)
        thread.join(LONG)
        assert s.run(b.const(1)) == 1


def test_ctrl_c_while_waiting(custom: None) -> None:
    b = builder()
    begun = threading.Event()
    cancelled: list[int] = []

    def wait_for_ever(ctx: Any, done: Any) -> Any:
        begun.set()
        return lambda: cancelled.append(1)

    x = call(b, "Async", wait_for_ever, scalar=True)
    main = threading.main_thread().ident
    assert main is not None
    with session(b) as s:
        thread, _ = run_in_thread(lambda: begun.wait(LONG) and signal.pthread_kill(main, signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            s.run(x, timeout_ms=LIMIT)
        thread.join(LONG)
        assert cancelled == [1]
        assert not s.statistics().active
        assert s.run(b.const(1)) == 1
