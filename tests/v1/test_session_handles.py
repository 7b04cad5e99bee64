"""Tensors that stay in a session. The values and the form of handles are TensorFlow's."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf


def test_a_handle_is_fetched_read_fed_and_deleted() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        a, b = tf.constant([1.0, 2.0]), tf.placeholder(tf.float32, [2])
        handle, plain = session.run([tf.get_session_handle(a * 2.0), a])
        name, _, device = handle.handle.split(";")
        assert (name, device) == ("GetSessionHandle", "/job:localhost/replica:0/task:0/device:CPU:0")
        assert (str(handle), plain.tolist(), handle.eval().tolist()) == (handle.handle, [1.0, 2.0], [2.0, 4.0])
        holder, kept = tf.get_session_tensor(handle.handle, tf.float32)
        assert (holder.dtype, kept.shape.ndims) == (tf.string, None)
        np.testing.assert_array_equal(session.run(kept + 1.0, {holder: handle.handle}), [3.0, 5.0])
        np.testing.assert_array_equal(session.run(b + 1.0, {b: handle}), [3.0, 5.0])
        doomed, delete = tf.delete_session_tensor(handle.handle)
        raw = handle.get_raw_handle()
        with pytest.raises(TypeError, match="may have already been deleted"):
            handle.eval()
        session.run(delete, {doomed: raw})
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not in the session store"):
            session.run(kept, {holder: raw})


def test_tensors_of_dropped_handles_are_deleted() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        keep = tf.get_session_handle(tf.constant("text"), name="keep")
        first = session.run({"h": keep})["h"]
        assert first.eval() == b"text"
        text = first.handle
        del first
        for _ in range(13):
            session.run(keep)
        holder, kept = tf.get_session_tensor("", tf.string)
        with pytest.raises(tf.errors.InvalidArgumentError, match="is not in the session store"):
            session.run(kept, {holder: text})


def test_a_handle_is_fetched_with_watched_values() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        last = tf.while_loop(lambda i: i < 3, lambda i: tf.add(i, 1, name="next"), [tf.constant(0)])
        handle, watched = session.run(tf.get_session_handle(last), watch=hr.watch("while/next"))
        assert [int(r.value) for r in watched["while/next"]] == [1, 2, 3]
        assert handle.eval() == 3
