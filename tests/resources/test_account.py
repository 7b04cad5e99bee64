"""What queues, barriers and staging areas hold counts for the memory limit of their device, until it is taken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import ResourceExhaustedError

ROW = np.zeros(1000, np.float32)  # 4,000 bytes
LIMIT = 10_000
QUEUES: dict[str, Callable[[], Any]] = {
    "FIFOQueue": lambda: tf.FIFOQueue(100, [tf.float32], [(1000,)], shared_name="q"),
    "PaddingFIFOQueue": lambda: tf.PaddingFIFOQueue(100, [tf.float32], [(None,)], shared_name="q"),
    "RandomShuffleQueue": lambda: tf.RandomShuffleQueue(100, 0, [tf.float32], [(1000,)], shared_name="q"),
}


def held(session: hr.Session) -> int:
    (memory,) = session._memories.values()
    return memory.held


@pytest.mark.parametrize("kind", QUEUES)
def test_a_queue_counts_what_it_holds(kind: str) -> None:
    with tf.Graph().as_default() as g:
        queue = QUEUES[kind]()
        put, put_many = queue.enqueue([ROW]), queue.enqueue_many([np.stack([ROW] * 3)])
        take, take_two, size = queue.dequeue(), queue.dequeue_many(2), queue.size()
    with hr.Session(graph=g, memory_limit=LIMIT) as session:
        session.run([put])
        session.run([put])
        assert held(session) == 8000
        with pytest.raises(ResourceExhaustedError, match=rf"{kind} 'q' asks for 4,000 bytes.*8,000 for {kind} 'q'"):
            session.run(put)
        assert session.run(size) == 2
        session.run(take)
        assert held(session) == 4000
        with pytest.raises(ResourceExhaustedError, match="a smaller capacity"):
            session.run(put_many)
        assert session.run(size) == 2
        session.run(take_two)
        assert held(session) == 0
        session.run(put)
        assert held(session) == 4000
        session._resources.clear_container("")
        assert held(session) == 0


def test_a_priority_queue_counts_what_it_holds() -> None:
    with tf.Graph().as_default() as g:
        queue = tf.PriorityQueue(10, [tf.float32], [(1000,)], shared_name="q")
        put = queue.enqueue([np.int64(1), ROW])
        take = queue.dequeue()
    with hr.Session(graph=g, memory_limit=LIMIT) as session:
        session.run(put)
        session.run(put)
        assert held(session) == 2 * 4008
        with pytest.raises(ResourceExhaustedError, match="PriorityQueue 'q'"):
            session.run(put)
        session.run(take)
        session.run(take)
        assert held(session) == 0


def test_the_bytes_of_strings_count() -> None:
    with tf.Graph().as_default() as g:
        queue = tf.FIFOQueue(10, [tf.string], [()])
        put, take = queue.enqueue([b"x" * 6000]), queue.dequeue()
    with hr.Session(graph=g, memory_limit=LIMIT) as session:
        session.run(put)
        with pytest.raises(ResourceExhaustedError):
            session.run(put)
        session.run(take)
        assert held(session) == 0


def test_a_request_that_is_given_up_leaves_the_count_as_it_was() -> None:
    with tf.Graph().as_default() as g:
        queue = tf.FIFOQueue(10, [tf.float32], [(1000,)])
        put, take = queue.enqueue([ROW]), queue.dequeue_many(2)
    with hr.Session(graph=g, memory_limit=LIMIT) as session:
        session.run(put)
        with pytest.raises(hr.errors.DeadlineExceededError):
            session.run(take, timeout_ms=20)
        assert held(session) == 4000
        session.run(put)
        session.run(take)
        assert held(session) == 0


def test_a_barrier_counts_what_it_holds() -> None:
    raw = hr.raw_ops
    with tf.Graph().as_default() as g:
        barrier = raw.Barrier(component_types=[tf.float32, tf.float32], shapes=[(1000,), (1000,)], shared_name="b")
        keys = tf.placeholder(tf.string, [1])
        puts = [raw.BarrierInsertMany(handle=barrier, keys=keys, values=ROW[None], component_index=i) for i in range(2)]
        take = raw.BarrierTakeMany(handle=barrier, num_elements=1, component_types=[tf.float32, tf.float32])
        left = raw.BarrierIncompleteSize(handle=barrier)
    with hr.Session(graph=g, memory_limit=LIMIT) as session:
        session.run(puts[0], {keys: [b"a"]})
        session.run(puts[0], {keys: [b"b"]})
        assert held(session) == 8000
        with pytest.raises(ResourceExhaustedError, match="Barrier 'b' asks for 4,000 bytes"):
            session.run(puts[0], {keys: [b"c"]})
        assert session.run(left) == 2
        with pytest.raises(ResourceExhaustedError):
            session.run(puts[1], {keys: [b"a"]})
    with hr.Session(graph=g, memory_limit=2 * LIMIT) as session:
        for put in puts:
            session.run(put, {keys: [b"a"]})
        session.run(puts[0], {keys: [b"b"]})
        session.run(take)
        assert held(session) == 4000
        session._resources.clear_container("")
        assert held(session) == 0


def test_a_staging_area_counts_what_it_holds() -> None:
    raw = hr.raw_ops
    with tf.Graph().as_default() as g:
        put = raw.Stage(values=[ROW], shared_name="s")
        take = raw.Unstage(dtypes=[tf.float32], shared_name="s")
        clear = raw.StageClear(dtypes=[tf.float32], shared_name="s")
        key = tf.placeholder(tf.int64, ())
        put_at = raw.MapStage(key=key, indices=[0], values=[ROW], dtypes=[tf.float32], shared_name="m")
        take_at = raw.MapUnstage(key=key, indices=[0], dtypes=[tf.float32], shared_name="m")
    with hr.Session(graph=g, memory_limit=LIMIT) as session:
        session.run(put)
        session.run(put)
        with pytest.raises(ResourceExhaustedError, match="StagingArea 's' asks for 4,000 bytes"):
            session.run(put)
        session.run(take)
        assert held(session) == 4000
        session.run(clear)
        assert held(session) == 0
        session.run(put_at, {key: 1})
        session.run(put_at, {key: 2})
        with pytest.raises(ResourceExhaustedError, match="MapStagingArea 'm'"):
            session.run(put_at, {key: 3})
        session.run(take_at, {key: 2})
        assert held(session) == 4000
    assert held(session) == 0


def test_what_a_closed_queue_still_holds_counts_until_it_is_taken() -> None:
    with tf.Graph().as_default() as g:
        queue = tf.FIFOQueue(10, [tf.float32], [(1000,)])
        put, take, close = queue.enqueue([ROW]), queue.dequeue(), queue.close(cancel_pending_enqueues=True)
    with hr.Session(graph=g, memory_limit=LIMIT) as session:
        session.run(put)
        session.run(close)
        assert held(session) == 4000
        session.run(take)
        assert held(session) == 0
