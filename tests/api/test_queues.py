"""Queues as users make them.

The behaviour of the queues themselves is tested with the resources and the ops.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api.storage.queues import FIFOQueue, PaddingFIFOQueue, PriorityQueue, QueueBase, RandomShuffleQueue
from headrace.api.tensors import constant, placeholder
from headrace.api.while_loop import while_loop
from headrace.errors import CancelledError, OutOfRangeError, ShapeError, SignatureError


@pytest.fixture
def g() -> Iterator[hr.Graph]:
    with hr.Graph() as graph:
        yield graph


def test_names_are_tensorflows(g: hr.Graph) -> None:
    q = FIFOQueue(3, [hr.float32, hr.int32], shapes=[(), ()], names=["a", "b"], name="q")
    assert (q.name, q.dtypes, q.shapes, q.names) == ("q", [hr.float32, hr.int32], [(), ()], ["a", "b"])
    made = [q.enqueue({"a": 1.0, "b": 2}), q.enqueue_many({"b": [2], "a": [1.0]}), q.dequeue()["a"].op,
            q.dequeue_many(2)["b"].op, q.dequeue_up_to(2)["a"].op, q.size().op, q.close(),
            q.is_closed().op]  # fmt: skip
    assert [op.name for op in made] == [
        "q_enqueue", "q_EnqueueMany", "q_Dequeue", "q_DequeueMany", "q_DequeueUpTo", "q_Size", "q_Close", "q_Is_Closed",
    ]  # fmt: skip
    assert [t.name for t in made[0].inputs] == ["q:0", "q_enqueue/component_0:0", "q_enqueue/component_1:0"]
    assert FIFOQueue(1, hr.int32).name == "fifo_queue"
    assert PriorityQueue(1, hr.int32, [()]).queue_ref.op.name == "priority_queue"


def test_static_shapes(g: hr.Graph) -> None:
    q = FIFOQueue(3, [hr.float32, hr.int32], shapes=[(2,), ()])
    assert [t.shape for t in q.dequeue()] == [(2,), ()]
    assert [t.shape for t in q.dequeue_many(4)] == [(4, 2), (4,)]
    assert [t.shape for t in q.dequeue_up_to(4)] == [(None, 2), (None,)]
    assert [t.shape for t in q.dequeue_many(placeholder(hr.int32, ()))] == [(None, 2), (None,)]
    assert FIFOQueue(3, hr.int32).dequeue().shape is None
    assert PaddingFIFOQueue(3, hr.int32, [[None]]).dequeue_many(2).shape == (2, None)
    for shapes, want in (([], ()), ([2], (2,)), ([[2]], (2,)), ((2, 3), (2, 3))):
        assert FIFOQueue(3, hr.int32, shapes).shapes == [want]


def test_what_goes_in_comes_out(g: hr.Graph) -> None:
    q = FIFOQueue(10, [hr.int32, hr.string], shapes=[[2], []], names=["point", "label"])
    one = q.enqueue({"point": [1, 2], "label": "a"})
    many = q.enqueue_many({"point": [[3, 4], [5, 6]], "label": ["b", "c"]})
    take, close, rest, closed = q.dequeue(), q.close(), q.dequeue_up_to(5), q.is_closed()
    with hr.Session(graph=g) as sess:
        sess.run(one)
        sess.run(many)
        got = sess.run(take)
        assert (got["point"].tolist(), got["label"]) == ([1, 2], b"a")
        sess.run(close)
        assert sess.run(rest)["label"].tolist() == [b"b", b"c"]
        assert sess.run(closed)
        with pytest.raises(OutOfRangeError):
            sess.run(take)
        with pytest.raises(CancelledError):
            sess.run(one)


def test_the_kinds(g: hr.Graph) -> None:
    padded = PaddingFIFOQueue(5, [hr.int32], shapes=[[None]])
    rows = [padded.enqueue([row]) for row in ([1], [2, 2], [3, 3, 3])]
    heap = PriorityQueue(5, [hr.string], shapes=[[]])
    assert heap.dtypes == [hr.int64, hr.string]
    mixed = RandomShuffleQueue(10, 0, hr.int32, shapes=[[]], seed=1)
    ops = (
        *rows,
        heap.enqueue_many([np.array([3, 1, 2]), ["third", "first", "second"]]),
        mixed.enqueue_many([[*range(6)]]),
    )
    takes = [padded.dequeue_many(3), heap.dequeue_many(3)[1], mixed.dequeue_many(6)]
    with hr.Session(graph=g) as sess:
        for op in ops:
            sess.run(op)
        a, b, c = sess.run(takes)
    assert a.tolist() == [[1, 0, 0], [2, 2, 0], [3, 3, 3]]
    assert b.tolist() == [b"first", b"second", b"third"]
    assert sorted(c.tolist()) == [0, 1, 2, 3, 4, 5]
    assert c.tolist() == [3, 4, 1, 5, 2, 0]


def test_one_shared_name_is_one_queue(g: hr.Graph) -> None:
    one = FIFOQueue(3, hr.int32, shared_name="shared", name="one")
    two = FIFOQueue(3, hr.int32, shared_name="shared", name="two")
    put, take = one.enqueue(42), two.dequeue()
    with hr.Session(graph=g) as sess:
        sess.run(put)
        assert sess.run(take) == 42


def test_steps_wait_for_one_another(g: hr.Graph) -> None:
    q = FIFOQueue(2, hr.int32, shapes=[])
    x = placeholder(hr.int32, ())
    put, take = q.enqueue(x), q.dequeue()
    with hr.Session(graph=g) as sess:
        thread = threading.Thread(target=lambda: [sess.run(put, {x: i}) for i in range(20)])
        thread.start()
        assert [int(sess.run(take)) for _ in range(20)] == [*range(20)]
        thread.join()


def test_in_a_loop(g: hr.Graph) -> None:
    q = FIFOQueue(10, hr.int32, shapes=[])
    fill = q.enqueue_many([[1, 2, 3, 4]])
    total = while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s + q.dequeue()), [0, 0])[1]
    with hr.Session(graph=g) as sess:
        assert sess.run([fill, total])[1] == 10


def test_a_queue_of_a_list(g: hr.Graph) -> None:
    queues = [FIFOQueue(3, hr.int32, shapes=[shape]) for shape in ([2], [3])]
    index = placeholder(hr.int32, ())
    chosen = QueueBase.from_list(index, queues)
    fill = [q.enqueue(np.full(i + 2, i, np.int32)) for i, q in enumerate(queues)]
    take = chosen.dequeue()
    assert take.shape == (None,)
    with hr.Session(graph=g) as sess:
        sess.run(fill)
        assert sess.run(take, {index: 1}).tolist() == [1, 1, 1]
    with pytest.raises(TypeError, match="matching component dtypes"):
        QueueBase.from_list(0, [queues[0], FIFOQueue(3, hr.float32)])
    with pytest.raises(TypeError, match="list of queues"):
        QueueBase.from_list(0, [1])  # type: ignore[list-item]


def test_enqueuing_what_does_not_fit_is_refused(g: hr.Graph) -> None:
    pair = FIFOQueue(3, [hr.float32, hr.int32], shapes=[(), (2,)], names=["a", "b"])
    single = FIFOQueue(3, hr.float32)
    wrong: list[tuple[type[Exception], str, Any]] = [
        (ValueError, "must enqueue a dictionary", lambda: pair.enqueue([1.0, [1, 2]])),
        (ValueError, "Keys in dictionary", lambda: pair.enqueue({"a": 1.0})),
        (ValueError, "must have names", lambda: single.enqueue({"a": 1.0})),
        (SignatureError, "1 components, got 2", lambda: single.enqueue([1.0, 2.0])),
        (TypeError, "expected float32", lambda: single.enqueue("text")),
        (TypeError, "float32", lambda: single.enqueue(constant(1))),
        (
            ShapeError,
            r"component 1 .* must have the shape \[2\], got \[3\]",
            lambda: pair.enqueue({"a": 1.0, "b": [1, 2, 3]}),
        ),
        (ShapeError, r"shape \[1,2\], got \[2\]", lambda: pair.enqueue_many({"a": [1.0], "b": [1, 2]})),
        (ValueError, "same length as dtypes", lambda: FIFOQueue(3, [hr.float32, hr.int32], shapes=[()])),
        (ValueError, "names must have the same length", lambda: FIFOQueue(3, hr.float32, names=["a", "b"])),
        (ValueError, "list of shapes must be provided", lambda: PaddingFIFOQueue(3, hr.float32, None)),
        (ValueError, "no names", lambda: PriorityQueue(3, hr.float32, [()], names=["a"])),
    ]
    for error, match, call in wrong:
        with pytest.raises(error, match=match):
            call()
