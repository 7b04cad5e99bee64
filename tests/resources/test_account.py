"""Contents of resources count for the memory limit of their device.

The resources are queues, barriers, staging areas, tables and accumulators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import ResourceExhaustedError
from headrace.ir.builder import Builder
from tests.inside import memories_of

ROW = np.zeros(1000, np.float32)  # 4,000 bytes
LIMIT = 10_000
QUEUES: dict[str, Callable[[], Any]] = {
    "FIFOQueue": lambda: tf.FIFOQueue(100, [tf.float32], [(1000,)], shared_name="q"),
    "PaddingFIFOQueue": lambda: tf.PaddingFIFOQueue(100, [tf.float32], [(None,)], shared_name="q"),
    "RandomShuffleQueue": lambda: tf.RandomShuffleQueue(100, 0, [tf.float32], [(1000,)], shared_name="q"),
}


def held(session: hr.Session) -> int:
    (memory,) = memories_of(session)
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
        session.clear_container()
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
        session.clear_container()
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


def changing(values: Any, ends: Any = None) -> tuple[Any, Any, Any, Any]:
    """Operations of a table of strings that insert, remove and count, and the keys' placeholder."""
    b = Builder(tf.get_default_graph())
    types = {"key_dtype": tf.string, "value_dtype": tf.float32, "shared_name": "t", **(ends or {})}
    table = getattr(b, values)(**types) if ends is None else getattr(b, values)(b"", b"-", **types)
    keys = tf.placeholder(tf.string, [None])
    new = hr.ones([hr.size(keys)])
    return b.LookupTableInsertV2(table, keys, new), b.LookupTableRemoveV2(table, keys), b.LookupTableSizeV2(table), keys


def test_a_table_counts_its_keys_and_values() -> None:
    """A key of 1,000 letters counts 1,008 bytes, and a float 4."""
    with tf.Graph().as_default() as g:
        insert, remove, size, keys = changing("MutableHashTableV2")
    names = [bytes([65 + i]) * 1000 for i in range(10)]
    with hr.Session(graph=g, memory_limit=5000) as session:
        session.run(insert, {keys: names[:2]})
        session.run(insert, {keys: names[:3]})  # one of them is new
        assert held(session) == 3 * 1012
        with pytest.raises(ResourceExhaustedError, match=r"MutableHashTableV2 't' asks for 2,024 bytes"):
            session.run(insert, {keys: names[3:5]})
        assert (session.run(size), held(session)) == (3, 3 * 1012)
        session.run(remove, {keys: [names[0], names[0], names[9]]})
        assert held(session) == 2 * 1012
        session.run(insert, {keys: names[3:5]})
        assert held(session) == 4 * 1012
        session.clear_container()
        assert held(session) == 0


def test_a_table_that_is_filled_once_counts_what_it_is_filled_with() -> None:
    with tf.Graph().as_default() as g:
        b = Builder(g)
        table = b.HashTableV2(key_dtype=tf.int64, value_dtype=tf.int64, shared_name="t")
        keys = tf.placeholder(tf.int64, [None])
        fill = b.LookupTableImportV2(table, keys, keys)
        other = b.LookupTableImportV2(table, keys, 0 * hr.cast(hr.range(hr.size(keys)), tf.int64))
    with hr.Session(graph=g, memory_limit=1000) as session:
        with pytest.raises(ResourceExhaustedError, match=r"HashTableV2 't' asks for 1,600 bytes"):
            session.run(fill, {keys: range(100)})
        assert held(session) == 0
        session.run(fill, {keys: range(50)})
        session.run(other, {keys: range(50)})
        assert held(session) == 800


def test_a_dense_table_counts_its_buckets() -> None:
    """A bucket of a string and a float counts 12 bytes plus the string's length."""
    with tf.Graph().as_default() as g:
        insert, remove, size, keys = changing("MutableDenseHashTableV2", {"initial_num_buckets": 4})
    with hr.Session(graph=g, memory_limit=150) as session:
        session.run(insert, {keys: [b"abc", b"de", b"abc"]})
        assert held(session) == 4 * 12 + 5
        session.run(remove, {keys: [b"abc"]})
        assert held(session) == 4 * 12 + 2
        with pytest.raises(ResourceExhaustedError, match=r"MutableDenseHashTableV2 't' asks for "):
            session.run(insert, {keys: [bytes([65 + i]) for i in range(20)]})
        assert (session.run(size), held(session)) == (1, 4 * 12 + 2)
    with tf.Graph().as_default() as g:
        _, _, size, _ = changing("MutableDenseHashTableV2", {"initial_num_buckets": 2**40})
    with hr.Session(graph=g, memory_limit=150) as session, pytest.raises(ResourceExhaustedError):
        session.run(size)


def test_an_accumulator_counts_its_sum() -> None:
    with tf.Graph().as_default() as g:
        rows = [tf.ConditionalAccumulator(tf.float32, shared_name=name) for name in ("a", "b", "c")]
        adds = [a.apply_grad(ROW) for a in rows]
        take = rows[0].take_grad(1)
    with hr.Session(graph=g, memory_limit=LIMIT) as session:
        for _ in range(2):
            session.run(adds[:2])
        assert held(session) == 8000
        with pytest.raises(ResourceExhaustedError, match=r"'c'.* asks for 4,000 bytes"):
            session.run(adds[2])
        assert session.run(rows[2].num_accumulated()) == 0
        session.run(take)
        assert held(session) == 4000
        session.run(adds[2])
        assert held(session) == 8000
        session.clear_container()
        assert held(session) == 0


def test_an_accumulator_of_rows_counts_them() -> None:
    """A row of 100 floats counts 400 bytes.

    Its index counts 8 bytes, and the number of gradients that have it counts 8 bytes.
    """
    with tf.Graph().as_default() as g:
        rows = tf.SparseConditionalAccumulator(tf.float32, shared_name="s")
        at = tf.placeholder(tf.int64, [None])
        add = rows.apply_grad(at, hr.ones([hr.size(at), 100]))
        take, count = rows.take_grad(1), rows.num_accumulated()
    with hr.Session(graph=g, memory_limit=2000) as session:
        session.run(add, {at: [1, 2]})
        session.run(add, {at: [2, 3]})
        assert held(session) == 3 * 416
        with pytest.raises(ResourceExhaustedError):
            session.run(add, {at: [4, 5, 6]})
        assert (session.run(count), held(session)) == (2, 3 * 416)
        session.run([t for t in take if t is not None])
        assert held(session) == 0
