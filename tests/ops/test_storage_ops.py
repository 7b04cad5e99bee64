"""Storage that steps share: steps meet, wait, and give up.

It is barriers, staging areas, accumulators, tensor maps and tensors of the session.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    InternalError,
    InvalidArgumentError,
    OutOfRangeError,
    ResourceExhaustedError,
)
from headrace.resources.waiting import Waiting
from tests.inside import resources_of
from tests.ops.running import Program, check_gradient

f32, f64, i32, i64, string = dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.string


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def text(*words: str) -> np.ndarray:
    return np.array([w.encode() for w in words], object)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def aside(p: Program, fetch: Any) -> Callable[[], Any]:
    """Runs `fetch` in a thread of its own, and returns once it waits.

    The returned function gives the result of `fetch`.
    """
    out: list[Any] = []

    def run() -> None:
        try:
            out.append(p.run(fetch))
        except Exception as e:
            out.append(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def waiting() -> int:
        resources = resources_of(p.session)
        found = [r for r in resources if isinstance(r, Waiting)]
        return sum(len(r._requests) for r in found) + sum(
            len(r._ready._dequeues) for r in resources if hasattr(r, "_ready")
        )

    done = threading.Event()
    for _ in range(10000):
        if waiting():
            break
        done.wait(0.001)

    def end() -> Any:
        thread.join(30)
        assert not thread.is_alive()
        return out[0]

    return end


# *** barriers ***

FIRST = -(2**63)


def barrier(p: Program, types: Any = (f32, i32), shapes: Any = ((), ()), **attrs: Any) -> Any:
    return p.b.Barrier(component_types=types, shapes=shapes, **attrs)


def put(p: Program, b: Any, i: int, keys: Any, values: Any) -> None:
    p.run(p.b.BarrierInsertMany(b, p.feed(text(*keys), string), p.feed(values), component_index=i))


def take(p: Program, b: Any, n: int, **attrs: Any) -> list[Any]:
    return list(p.b.BarrierTakeMany(b, n, component_types=(f32, i32), **attrs))


def test_a_barrier_gives_what_is_complete(p: Program) -> None:
    b = barrier(p)
    put(p, b, 0, "ca", floats(1, 2))
    put(p, b, 1, "b", np.int32([2]))
    assert p.run([p.b.BarrierReadySize(b), p.b.BarrierIncompleteSize(b)]) == [0, 3]
    put(p, b, 1, "ac", np.int32([2, 3]))
    put(p, b, 0, "b", floats(7))
    indices, keys, x, y = p.run(take(p, b, 3))
    assert indices.tolist() == [FIRST, FIRST, FIRST + 1]
    assert (keys.tolist(), x.tolist(), y.tolist()) == ([b"a", b"c", b"b"], [2, 1, 7], [2, 3, 2])
    assert p.run(take(p, b, 0))[1].shape == (0,)


def test_what_a_barrier_refuses(p: Program) -> None:
    b = barrier(p, shared_name="b")
    put(p, b, 0, "a", floats(1))
    for i, keys, values, match in (
        (0, "na", floats(1, 1), "Key a already has a value for component 0 in barrier"),
        (2, "q", floats(1), "component ID is out of range"),
        (-1, "q", floats(1), "component ID is out of range"),
        (1, "q", floats(1), "Signature mismatch"),
        (0, "q", floats(1)[None], "Shape mismatch in tuple component 0"),
        (0, "qr", floats(1), "Shape mismatch"),
        (0, "q", np.zeros((1, 0), np.float32), "no elements are not supported"),
    ):
        with p.fails(InvalidArgumentError, match):
            put(p, b, i, keys, values)
    for wrong, match in (
        (take(p, b, -1), "requested -1 < 0"),
        (take(p, b, p.feed(np.int32([1]))), "must be a scalar"),
        (take(p, b, 1, timeout_ms=3), "Timeout not supported"),
        (p.b.BarrierTakeMany(b, 1, component_types=(f32,)), "Signature mismatch"),
        (barrier(p, capacity=2), "only accepts capacity=-1"),
        (barrier(p, shapes=((),)), "All of the component shapes must be specified"),
        (barrier(p, shapes=((), (None,))), "not fully defined"),
        (barrier(p, types=(f32, f32), shared_name="b"), "has component types .* but requested"),
        (barrier(p, shapes=((), (2,)), shared_name="b"), "has component shapes .* but requested"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(list(wrong) if isinstance(wrong, (list, tuple)) else wrong)


def test_a_closed_barrier_takes_what_was_begun(p: Program) -> None:
    b = barrier(p)
    put(p, b, 0, "ab", floats(1, 2))
    p.run(p.b.BarrierClose(b))
    with p.fails(CancelledError, "already closed"):
        p.run(p.b.BarrierClose(b))
    with p.fails(CancelledError, "brand new key: z"):
        put(p, b, 0, "z", floats(1))
    with p.fails(OutOfRangeError, r"insufficient elements \(requested 3, total size 2\)"):
        p.run(take(p, b, 3))
    waits = aside(p, take(p, b, 2))
    put(p, b, 1, "a", np.int32([1]))
    put(p, b, 1, "b", np.int32([2]))
    assert waits()[1].tolist() == [b"a", b"b"]
    with p.fails(OutOfRangeError, "is closed and has insufficient"):
        p.run(take(p, b, 2, allow_small_batch=True))
    with p.fails(CancelledError, "is closed"):
        put(p, b, 0, "z", floats(1))


def test_closing_a_barrier_for_good(p: Program) -> None:
    b = barrier(p)
    put(p, b, 0, "abc", floats(1, 2, 3))
    put(p, b, 1, "c", np.int32([1]))
    waits = aside(p, take(p, b, 2))
    p.run(p.b.BarrierClose(b, cancel_pending_enqueues=True))
    assert isinstance(waits(), OutOfRangeError)
    assert p.run(p.b.BarrierIncompleteSize(b)) == 0
    assert p.run(take(p, b, 5, allow_small_batch=True))[1].tolist() == [b"c"]


# *** staging areas ***


def test_entries_are_unstaged_in_turn(p: Program) -> None:
    b, area = p.b, {"dtypes": (f32, i32), "shared_name": "s"}
    for i in range(3):
        p.run(b.Stage([p.feed(floats(i)), p.feed(np.int32(i))], shared_name="s"))
    assert p.run(b.StageSize(**area)) == 3
    assert p.run(list(b.StagePeek(2, **area)))[1] == 2
    assert p.run(list(b.Unstage(**area)))[0].tolist() == [0]
    for wrong, match in (
        (b.Unstage(dtypes=(f32,), shared_name="s"), "Mismatch stage/unstage: 2 vs. 1"),
        (b.Unstage(dtypes=(f32, f32), shared_name="s")[0], "tensor 1 has dtype int32"),
        (b.StagePeek(p.feed(np.int32(-1)), **area)[0], "at least 0"),
        (b.StagePeek(p.feed(np.int32([0])), **area)[0], "must be scalar"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(wrong)
    p.run(b.StageClear(**area))
    waits = aside(p, list(b.Unstage(**area)))
    p.run(b.Stage([floats(9), np.int32(9)], shared_name="s"))
    assert waits()[1] == 9


def test_staging_waits_for_room(p: Program) -> None:
    b = p.b
    for limit in ({"capacity": 1}, {"memory_limit": 6}):
        area = {"shared_name": str(limit), **limit}
        put = b.Stage([np.float32(1)], **area)
        p.run(put)
        waits = aside(p, put)
        assert p.run(b.Unstage(dtypes=(f32,), **area)) == 1
        assert waits() is None
        with p.fails(DeadlineExceededError, "Timed out"):
            p.run(put, timeout_ms=30)
        assert p.run(b.StageSize(dtypes=(f32,), **area)) == 1
    with p.fails(ResourceExhaustedError, "combined size of '8' bytes.*memory limit of '6'"):
        p.run(b.Stage([floats(1, 2)], **area))


def staged(p: Program, ordered: bool) -> Callable[..., Any]:
    def of(what: str, *args: Any, dtypes: Any = (f32, i32), **attrs: Any) -> Any:
        op = getattr(p.b, f"{'Ordered' if ordered else ''}Map{what}")(*args, dtypes=dtypes, shared_name="m", **attrs)
        return list(op) if isinstance(op, tuple) else op

    return of


@pytest.mark.parametrize("ordered", [False, True])
def test_entries_by_key(p: Program, ordered: bool) -> None:
    of = staged(p, ordered)
    both, key = [0, 1], np.int64
    for k in (5, 3, 5):
        p.run(of("Stage", key(k), both, [np.float32(k), np.int32(k)]))
    p.run(of("Stage", key(9), [1], [np.int32(9)]))
    assert p.run([of("Size"), of("IncompleteSize")]) == [2, 1]
    with p.fails(InvalidArgumentError, "index '1' for key '9' was already initialized"):
        p.run(of("Stage", key(9), [1], [np.int32(9)]))
    p.run(of("Stage", key(9), [0], [np.float32(8)]))
    assert p.run(of("Peek", key(9), both)) == [8, 9]
    assert p.run(of("UnstageNoKey", both)) == ([3, 3, 3] if ordered else [9, 8, 9])
    assert p.run(of("Unstage", key(5), [1], dtypes=(i32,))) == 5
    with p.fails(InvalidArgumentError, "index '1' for key '5' has already been removed"):
        p.run(of("Unstage", key(5), [1], dtypes=(i32,)))
    assert p.run(of("Unstage", key(5), [0], dtypes=(f32,))) == 5
    assert p.run(of("Size")) == 1
    waits = aside(p, of("Unstage", key(7), both))
    p.run(of("Stage", key(7), both, [np.float32(1), np.int32(2)]))
    assert waits() == [1, 2]
    p.run(of("Clear"))
    assert p.run([of("Size"), of("IncompleteSize")]) == [0, 0]
    for wrong, match in (
        (of("Stage", key(1), [1, 0], [np.float32(1), np.int32(2)]), "not strictly ordered"),
        (of("Stage", key(1), [0, 2], [np.float32(1), np.int32(2)]), "Index '2' for key '1' was out of bounds '2'"),
        (of("Stage", key(1), [0], [np.float32(1), np.int32(2)]), "1 indices for 2 tensors"),
        (of("Stage", p.feed(np.int64([1])), both, [np.float32(1), np.int32(2)]), "key must be an int64 scalar"),
        (of("Unstage", key(1), [-1, 0]), "out of bounds"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(wrong)


def test_closing_the_session_cancels_those_who_wait(p: Program) -> None:
    waits = aside(p, p.b.Unstage(dtypes=(f32,)))
    p.session.close()
    assert isinstance(waits(), CancelledError)


# *** accumulators ***


@pytest.mark.parametrize("prefix", ["", "Resource"])
def test_means_of_gradients(p: Program, prefix: str) -> None:
    def of(what: str, *args: Any, **attrs: Any) -> Any:
        return getattr(p.b, f"{prefix}Accumulator{what}")(a, *args, **attrs)

    a = getattr(p.b, f"{prefix}ConditionalAccumulator")(dtype=f32, shape=(1,), shared_name="a")
    waits = aside(p, of("TakeGradient", 2, dtype=f32))
    for step, g in ((0, 10), (0, 21)):
        p.run(of("ApplyGradient", np.int64(step), floats(g)))
    assert waits().tolist() == [15.5]
    p.run(of("ApplyGradient", np.int64(0), floats(9)))  # of a step that is over
    assert p.run(of("NumAccumulated")) == 0
    p.run(of("SetGlobalStep", np.int64(5)))
    p.run(of("ApplyGradient", np.int64(4), floats(9)))
    p.run(of("ApplyGradient", np.int64(5), floats(9)))
    assert p.run(of("NumAccumulated")) == 1
    for wrong, match in (
        (of("ApplyGradient", np.int64(9), floats(1, 2)), r"Shape mismatch: expected \[1\], got \[2\]"),
        (of("ApplyGradient", np.int64(9), np.float64([1])), "Expected gradients of dtype float32"),
        (of("TakeGradient", 0, dtype=f32), "num_required must be positive, but was 0"),
        (of("TakeGradient", 1, dtype=f64), "Signature mismatch"),
        (of("SetGlobalStep", p.feed(np.int64([1]))), "must be scalar"),
        (getattr(p.b, f"{prefix}ConditionalAccumulator")(dtype=i32, shape=()).op, "No OpKernel was registered"),
        (getattr(p.b, f"{prefix}ConditionalAccumulator")(dtype=f64, shape=(1,), shared_name="a").op, "has dtype"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(wrong)


def test_sums_and_shapes_that_the_first_gradient_settles(p: Program) -> None:
    b = p.b
    a = b.ConditionalAccumulator(dtype=dtypes.float16, shape=None, reduction_type="SUM")
    for _ in range(2):
        p.run(b.AccumulatorApplyGradient(a, np.int64(0), np.float16([[1, 2]])))
    with p.fails(InvalidArgumentError, r"expected \[1,2\], got \[1\]"):
        p.run(b.AccumulatorApplyGradient(a, np.int64(0), np.float16([1])))
    assert p.run(b.AccumulatorTakeGradient(a, 1, dtype=dtypes.float16)).tolist() == [[2, 4]]
    p.run(b.AccumulatorApplyGradient(a, np.int64(1), np.float16([1])))
    assert p.run(b.AccumulatorTakeGradient(a, 1, dtype=dtypes.float16)).tolist() == [1]


def test_sparse_gradients(p: Program) -> None:
    b = p.b

    def add(a: Any, indices: Any, rows: Any, shape: Any = (), step: int = 0, known: bool = False) -> None:
        at = np.array(indices, np.int64)
        args = (np.int64(step), p.feed(at), p.feed(np.array(rows, np.float32)), p.feed(np.array(shape, np.int64)))
        p.run(b.SparseAccumulatorApplyGradient(a, *args, has_known_shape=known))

    def taken(a: Any, n: int) -> list[Any]:
        return [x.tolist() for x in p.run(list(b.SparseAccumulatorTakeGradient(a, n, dtype=f32)))]

    a = b.SparseConditionalAccumulator(dtype=f32, shape=(None, 2))
    add(a, [0, 2], [[1, 2], [3, 4]])
    add(a, [2, 3], [[5, 6], [7, 8]], [5, 2], known=True)
    assert taken(a, 2) == [[0, 2, 3], [[1, 2], [4, 5], [7, 8]], [-1, 2]]
    add(a, [1, 1], [[1, 2], [3, 4]], step=1)
    add(a, [1, 1, 0], [[1, 2], [3, 4], [9, 9]], step=1)
    assert taken(a, 1) == [[1, 1, 0], [[1, 2], [3, 4], [9, 9]], [-1, 2]]
    full = b.SparseConditionalAccumulator(dtype=f32, shape=(3, 2), reduction_type="SUM")
    add(full, [1], [[1, 2]])
    add(full, [1], [[1, 2]])
    for indices, rows, shape, match in (
        ([1], [[1, 2, 3]], (), "expected values dim 1 to be 2, got 3"),
        ([1], [1], (), "expected values rank at least 2, got 1"),
        ([7], [[1, 2]], (), "index of slice 0 exceeded limits of shape; index is 7 exceeded 3"),
        ([1], [[1, 2]], (4, 2), "expected shape dim 0 to be 3, got 4"),
        ([1], [[1, 2]], (4,), "expected shape rank at least 2, got 1"),
        ([[1]], [[1, 2]], (), "should be vector"),
        ([1, 2], [[1, 2]], (), "Expected 2 non-empty input values, got 1"),
        ([1], 1, (), "cannot be 0-dimensional"),
    ):
        with p.fails(InvalidArgumentError, match):
            add(full, indices, rows, shape, known=bool(shape))
    assert taken(full, 2) == [[1], [[2, 4]], [3, 2]]
    with p.fails(InvalidArgumentError, "is no DenseAccumulator"):
        p.run(b.AccumulatorTakeGradient(full, 1, dtype=f32))


# *** tensor maps, tensors of the session ***


def test_tensor_maps(p: Program) -> None:
    b = p.b
    one = b.TensorMapInsert(b.EmptyTensorMap(), 1.0, [2.0, 3.0])
    two = b.TensorMapInsert(one, 5.0, np.array(b"x", object))
    assert p.run(b.TensorMapLookup(two, 1.0, value_dtype=f32)).tolist() == [2, 3]
    assert p.run(b.TensorMapLookup(two, 5.0, value_dtype=string)) == b"x"
    assert p.run(b.TensorMapStackKeys(two, key_dtype=f32)).tolist() == [1, 5]
    erased = b.TensorMapErase(two, 1.0, value_dtype=f32)
    assert p.run([b.TensorMapSize(x) for x in (two, erased)]) == [2, 1]
    assert p.run([b.TensorMapHasKey(x, 1.0) for x in (two, erased)]) == [True, False]
    for wrong, error, match in (
        (b.TensorMapLookup(one, 2.0, value_dtype=f32), InvalidArgumentError, "lookup non-existent key"),
        (b.TensorMapLookup(one, 1, value_dtype=f32), InvalidArgumentError, "lookup non-existent key"),
        (b.TensorMapLookup(one, 1.0, value_dtype=i32), InternalError, "does not match declared output type"),
        (b.TensorMapSize(b.TensorMapErase(one, 2.0, value_dtype=f32)), InvalidArgumentError, "erase non-existent"),
        (b.TensorMapStackKeys(b.EmptyTensorMap(), key_dtype=f32), InvalidArgumentError, "on empty map"),
        (b.TensorMapStackKeys(one, key_dtype=i32), InvalidArgumentError, "does not match requested dtype"),
        (b.TensorMapStackKeys(b.TensorMapInsert(one, [1.0], 1), key_dtype=f32), InvalidArgumentError, "same shape"),
        (b.TensorMapSize(b.OptionalNone()), InvalidArgumentError, "is not a map"),
    ):
        with p.fails(error, match):
            p.run(wrong)


def test_gradients_of_tensor_maps(p: Program) -> None:
    b = p.b
    x = b.Placeholder(dtype=f64, shape=(2,))
    m = b.TensorMapInsert(b.EmptyTensorMap(), 1, b.Square(x))
    m = b.TensorMapInsert(m, 2, b.Exp(x))
    m = b.TensorMapInsert(m, 3, b.const(7))
    twice = b.TensorMapInsert(m, 1, b.TensorMapLookup(m, 1, value_dtype=f64))
    got = [b.TensorMapLookup(t, k, value_dtype=f64) for t, k in ((twice, 1), (m, 2), (m, 1))]
    left = b.TensorMapLookup(b.TensorMapErase(m, 1, value_dtype=f64), 2, value_dtype=f64)
    check_gradient(p, b.AddN([b.Mul(got[0], got[1]), got[2], left]), {x: np.array([0.5, -1.0])})


def test_tensors_stay_in_the_session(p: Program) -> None:
    b = p.b
    handle = p.run(b.GetSessionHandle(floats(1, 2)))
    kept = p.feed(handle, string)
    assert p.run(b.GetSessionTensor(kept, dtype=f32)).tolist() == [1, 2]
    with p.fails(InternalError, "does not match declared output type int32"):
        p.run(b.GetSessionTensor(kept, dtype=i32))
    p.run(b.GetSessionHandleV2(floats(1)).op)
    p.run(b.DeleteSessionTensor(kept))
    for use in (b.GetSessionTensor(kept, dtype=f32), b.DeleteSessionTensor(kept)):
        with p.fails(InvalidArgumentError, "is not in the session store"):
            p.run(use)
    with p.fails(InvalidArgumentError, "must be scalar"):
        p.run(b.GetSessionTensor(p.feed(text("x"), string), dtype=f32))


def test_the_time_and_the_name_of_a_queue(p: Program) -> None:
    b = p.b
    first, second = p.run(b.Timestamp()), p.run(b.Timestamp())
    assert 1.6e9 < first <= second
    q = b.FIFOQueueV2(component_types=(f32,), shared_name="q")
    assert p.run(b.FakeQueue(q)).tolist() == [b"localhost", b"q"]
    assert p.run(b.QueueSize(b.FakeQueue(q))) == 0
