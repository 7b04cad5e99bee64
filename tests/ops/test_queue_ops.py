"""Queues in sessions: steps that meet, wait, and give up."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from tests.inside import resources_of
from tests.ops.running import Program

f32, i32 = dtypes.float32, dtypes.int32


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def queue(p: Program, types: Any = (f32,), shapes: Any = ((),), name: str = "q", **attrs: Any) -> Any:
    return p.b.FIFOQueueV2(component_types=types, shapes=shapes, shared_name=name, **attrs)


def take(p: Program, q: Any, *types: dtypes.DType) -> Any:
    return p.b.QueueDequeueV2(q, component_types=types or (f32,))


class Aside(threading.Thread):
    """A run in a thread of its own: `result` or `error` when it has ended."""

    def __init__(self, p: Program, fetch: Any) -> None:
        super().__init__(daemon=True)
        self.p, self.fetch = p, fetch
        self.result: Any = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self.p.run(self.fetch)
        except BaseException as e:
            self.error = e

    def end(self) -> Aside:
        self.join(30)
        assert not self.is_alive()
        return self


def wait_until_it_waits(p: Program, n: int = 1) -> None:
    """Until `n` requests wait at the session's queues."""
    queues = [r for r in resources_of(p.session) if hasattr(r, "_dequeues")]
    done = threading.Event()
    for _ in range(10000):
        if sum(len(q._dequeues) + len(q._enqueues) for q in queues) >= n:
            return
        done.wait(0.001)
    raise AssertionError("nothing waits")


def test_elements_go_from_step_to_step(p: Program) -> None:
    q = queue(p, (f32, i32), ((2,), ()))
    p.run(p.b.QueueEnqueueV2(q, [[1.0, 2.0], 3]))
    p.run(p.b.QueueEnqueueManyV2(q, [[[4.0, 5.0], [6.0, 7.0]], [8, 9]]))
    assert p.run(p.b.QueueSizeV2(q)) == 3
    x, y = p.run(list(take(p, q, f32, i32)))
    assert (x.tolist(), y) == ([1, 2], 3)
    x, y = p.run(list(p.b.QueueDequeueManyV2(q, 2, component_types=(f32, i32))))
    assert (x.tolist(), y.tolist()) == ([[4, 5], [6, 7]], [8, 9])


def test_closing(p: Program) -> None:
    q = queue(p)
    p.run(p.b.QueueEnqueueManyV2(q, [[1.0, 2.0]]))
    assert p.run(p.b.QueueIsClosedV2(q)) == np.False_
    p.run(p.b.QueueCloseV2(q))
    assert p.run(p.b.QueueIsClosedV2(q)) == np.True_
    with p.fails(CancelledError, "FIFOQueue 'q' is closed"):
        p.run(p.b.QueueEnqueueV2(q, [1.0]))
    with p.fails(OutOfRangeError, r"insufficient elements \(requested 3, current size 2\)"):
        p.run(p.b.QueueDequeueManyV2(q, 3, component_types=(f32,)))
    assert p.run(p.b.QueueDequeueUpToV2(q, 3, component_types=(f32,))).tolist() == [1, 2]
    with p.fails(OutOfRangeError, "is closed and has insufficient"):
        p.run(take(p, q))
    with p.fails(CancelledError, "already closed"):
        p.run(p.b.QueueCloseV2(q))


def test_the_ops_before_v2_go_by_name(p: Program) -> None:
    b = p.b
    q = b.FIFOQueue(component_types=(f32,), shapes=((),))
    p.run(b.QueueEnqueueMany(q, [[1.0, 2.0, 3.0, 4.0]]))
    p.run(b.QueueEnqueue(q, [5.0]))
    assert p.run(b.QueueSize(q)) == 5
    assert p.run(b.QueueDequeue(q, component_types=(f32,))) == 1
    assert p.run(b.QueueDequeueMany(q, 2, component_types=(f32,))).tolist() == [2, 3]
    p.run(b.QueueClose(q))
    assert p.run(b.QueueIsClosed(q)) == np.True_
    assert p.run(b.QueueDequeueUpTo(q, 9, component_types=(f32,))).tolist() == [4, 5]
    v = b.Assign(b.VariableV2(shape=(2,), dtype=dtypes.string), np.array([b"c", b"x"], object))
    with p.fails(NotFoundError, "c/x/Queue does not exist"):
        p.run(b.QueueSize(v))


def test_calls_that_do_not_fit(p: Program) -> None:
    q = queue(p)
    for use, match in (
        (p.b.QueueEnqueueV2(q, [1]), "Signature mismatch, have: int32 expected: float32"),
        (p.b.QueueEnqueueV2(q, [[1.0]]), r"Shape mismatch in tuple component 0. Expected \[\], got \[1\]"),
        (p.b.QueueEnqueueV2(q, [1.0], timeout_ms=5), "Timeout not supported yet"),
        (take(p, q, f32, i32), "Signature mismatch"),
        (p.b.QueueDequeueManyV2(q, p.feed(np.int32(-1)), component_types=(f32,)), "requested -1 < 0 elements"),
        (p.b.QueueDequeueManyV2(q, p.feed(np.int32([1])), component_types=(f32,)), "n must be a scalar"),
        (p.b.QueueSizeV2(queue(p, (i32,))), "Shared queue 'q' has component types"),
        (p.b.QueueSizeV2(queue(p, capacity=3)), "has capacity None but requested capacity was 3"),
        (p.b.QueueSizeV2(queue(p, shapes=((None,),), name="partial")), "is not fully defined"),
        (p.b.QueueSizeV2(queue(p, shapes=((), ()), name="two")), "Different number of component types"),
        (p.b.QueueSizeV2(p.b.VarHandleOp(dtype=f32, shape=())), "as a Queue, but it is a Variable"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(use[0] if isinstance(use, tuple) else use)


def test_static_shapes(p: Program) -> None:
    q = queue(p, shapes=((2,),))
    assert take(p, q).shape == (2,)
    assert p.b.QueueDequeueManyV2(q, 4, component_types=(f32,)).shape == (4, 2)
    assert p.b.QueueDequeueUpToV2(q, 4, component_types=(f32,)).shape == (None, 2)
    assert take(p, queue(p, (f32, i32), ((), ()), "two"), f32, i32)[0].shape is None


# *** waiting ***


def test_a_dequeue_waits_for_another_step(p: Program) -> None:
    q = queue(p)
    p.run(p.b.QueueSizeV2(q))
    waiting = Aside(p, p.b.Neg(take(p, q)))
    wait_until_it_waits(p)
    p.run(p.b.QueueEnqueueV2(q, [5.0]))
    assert waiting.end().result == -5


def test_an_enqueue_waits_for_room(p: Program) -> None:
    q = queue(p, capacity=1)
    p.run(p.b.QueueEnqueueV2(q, [1.0]))
    waiting = Aside(p, p.b.QueueEnqueueManyV2(q, [[2.0, 3.0]]))
    wait_until_it_waits(p)
    assert [p.run(take(p, q)) for _ in range(3)] == [1, 2, 3]
    assert waiting.end().error is None


def test_one_step_may_be_both_sides(p: Program) -> None:
    q = queue(p, capacity=1)
    puts = [p.b.QueueEnqueueV2(q, [float(i)]) for i in range(5)]
    takes = [take(p, q) for _ in range(5)]
    assert sorted(p.run([takes, puts])[0]) == [0, 1, 2, 3, 4]


def test_a_time_limit_ends_a_wait_and_loses_nothing(p: Program) -> None:
    q = queue(p)
    p.run(p.b.QueueEnqueueManyV2(q, [[1.0, 2.0]]))
    with p.fails(DeadlineExceededError, "Timed out"):
        p.run(p.b.QueueDequeueManyV2(q, 3, component_types=(f32,)), timeout_ms=30)
    assert p.run(p.b.QueueSizeV2(q)) == 2


def test_closing_wakes_those_who_wait(p: Program) -> None:
    q = queue(p)
    p.run(p.b.QueueSizeV2(q))
    waiting = Aside(p, take(p, q))
    wait_until_it_waits(p)
    p.run(p.b.QueueCloseV2(q))
    assert isinstance(waiting.end().error, OutOfRangeError)


def test_closing_can_cancel_those_who_wait(p: Program) -> None:
    q = queue(p, capacity=1)
    p.run(p.b.QueueEnqueueV2(q, [1.0]))
    waiting = Aside(p, p.b.QueueEnqueueV2(q, [2.0]))
    wait_until_it_waits(p)
    p.run(p.b.QueueCloseV2(q, cancel_pending_enqueues=True))
    assert isinstance(waiting.end().error, CancelledError)


def test_closing_the_session_cancels_those_who_wait(p: Program) -> None:
    q = queue(p)
    p.run(p.b.QueueSizeV2(q))
    waiting = Aside(p, take(p, q))
    wait_until_it_waits(p)
    p.session.close()
    assert isinstance(waiting.end().error, CancelledError)


# *** the other kinds ***


def test_padding_shuffling_and_priorities(p: Program) -> None:
    b = p.b
    q = b.PaddingFIFOQueueV2(component_types=(f32,), shapes=((None,),))
    p.run(b.QueueEnqueueV2(q, [[1.0]]))
    p.run(b.QueueEnqueueV2(q, [[2.0, 3.0]]))
    padded = b.QueueDequeueManyV2(q, 2, component_types=(f32,))
    assert padded.shape == (2, None)
    assert p.run(padded).tolist() == [[1, 0], [2, 3]]

    q = b.RandomShuffleQueueV2(component_types=(i32,), shapes=((),), seed=87654321, seed2=7)
    p.run(b.QueueEnqueueManyV2(q, [np.arange(10, dtype=np.int32)]))
    got = p.run(b.QueueDequeueManyV2(q, 10, component_types=(i32,))).tolist()
    assert got == [7, 1, 5, 6, 4, 3, 2, 0, 9, 8]  # TensorFlow 2.21 with these seeds

    for q in (b.PriorityQueueV2(component_types=(), shapes=()), b.PriorityQueue(component_types=(), shapes=())):
        suffix = "V2" if q.dtype is dtypes.resource else ""
        for priority in (3, 1, 2):
            p.run(b.make(f"QueueEnqueue{suffix}", [q, [b.const(priority, dtypes.int64)]], {}))
        take = b.make(f"QueueDequeue{suffix}", [q], {"component_types": (dtypes.int64,)})
        assert [p.run(take) for _ in range(3)] == [1, 2, 3]
