"""Static shapes that TensorFlow 1 infers, and programs that rely on them.

The table holds the shapes that TensorFlow 2.21's `compat.v1` infers for each expression.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

# expression: the static shape of each tensor in it; "?" is an unknown dimension
TABLE: dict[str, tuple[str, ...]] = {
    "tf.nn.dropout(x, kp)": ("?,3",),
    "tf.nn.dropout(x, rate=kp)": ("?,3",),
    "tf.nn.dropout(x, kp, noise_shape=[tf.shape(x)[0], 1])": ("?,3",),
    "tf.nn.dropout(x, kp, noise_shape=ns)": ("?,3",),
    "tf.nn.dropout(unk, kp)": ("unknown",),
    "tf.layers.dropout(x, kp, training=b)": ("?,3",),
    "tf.layers.dropout(x, 0.5, noise_shape=[None, 1], training=b)": ("?,3",),
    "tf.nn.rnn_cell.DropoutWrapper(tf.nn.rnn_cell.BasicRNNCell(3), kp, kp, kp)(x, x * 2)": ("?,3", "?,3"),
    "tf.layers.batch_normalization(x4, training=b)": ("?,8,8,4",),
    "tf.nn.moments(x4, [0, 1, 2])": ("4", "4"),
    "tf.nn.l2_normalize(x, i)": ("?,3",),
    "tf.where(x > 0, x, unk)": ("?,3",),
    "tf.cond(b, lambda: x, lambda: tf.ones([2, 3]))": ("?,3",),
    "tf.cond(b, lambda: tf.ones([2, 3]), lambda: tf.ones([3]))": ("unknown",),
    "tf.while_loop(lambda k, a: k < 3, lambda k, a: (k + 1, a * 2), [0, x])": ("", "?,3"),
    "tf.random_uniform([tf.shape(x)[0], 3])": ("?,3",),
    "tf.random_normal(tf.stack([i, 3]))": ("?,3",),
    "tf.zeros(tf.concat([[i], [3]], 0))": ("?,3",),
    "tf.fill(tf.shape(x4)[-2:], 1.)": ("8,4",),
    "tf.fill(sh, 1.)": ("unknown",),
    "tf.fill(ns, 1.)": ("?,?",),
    "tf.fill(tf.unstack(tf.shape(x)), 1.)": ("?,3",),
    "tf.fill(tf.split(tf.shape(x4), 2)[1], 1.)": ("?,?",),
    "tf.fill(tf.split(tf.shape(x4), [1, 3])[1], 1.)": ("?,?,?",),
    "tf.fill(tf.gather(tf.shape(x4), [1, 3]), 1.)": ("?,?",),
    "tf.fill([tf.shape(x)[1] * 2], 1.)": ("6",),
    "tf.fill(tf.shape(x)[1:] + 1, 1.)": ("?",),
    "tf.reshape(x4, [tf.shape(x4)[0], 8 * 8 * 4])": ("?,256",),
    "tf.reshape(x4, tf.concat([tf.shape(x4)[:2], [-1]], 0))": ("?,8,?",),
    "tf.reshape(x4, [-1, tf.shape(x4)[-1]])": ("?,4",),
    "tf.reshape(x, tf.shape(x23))": ("2,3",),
    "tf.reshape(x23, [3, -1])": ("3,2",),
    "tf.broadcast_to(tf.ones([3]), [i, 3])": ("?,3",),
    "tf.tile(x23, [1, i])": ("2,?",),
    "tf.tile(tf.expand_dims(x23, 1), [1, tf.shape(x)[0], 1])": ("2,?,3",),
    "tf.pad(x, [[0, i], [1, 2]])": ("?,6",),
    "tf.pad(x, [[0, 0], [1, i]])": ("?,?",),
    "tf.pad(x23, [[i, 1], [1, tf.shape(x)[1]]])": ("?,?",),
    "tf.concat([x, unk], 1)": ("?,?",),
    "tf.split(x, [1, -1], 1)": ("?,1", "?,2"),
    "tf.slice(x, [0, i], [-1, 2])": ("?,2",),
    "tf.repeat(x, 2, axis=1)": ("?,6",),
    "tf.repeat(x, [1, 2, 3], axis=1)": ("?,6",),
    "tf.sort(x)": ("?,3",),
    "tf.argsort(x)": ("?,3",),
    "tf.sort(x3, axis=1)": ("?,5,6",),
    "tf.nn.top_k(x, tf.shape(x)[1])": ("?,3", "?,3"),
    "tf.one_hot(idx, tf.shape(x)[1])": ("?,3",),
    "tf.range(tf.shape(x)[1])": ("3",),
    "tf.sequence_mask(lens, tf.shape(x)[1])": ("?,3",),
    "tf.matrix_diag(x)": ("?,3,3",),
    "tf.nn.conv2d_transpose(x4, tf.ones([3, 3, 6, 4]), [tf.shape(x4)[0], 16, 16, 6], [1, 2, 2, 1])": ("?,16,16,6",),
    "tf.nn.sparse_softmax_cross_entropy_with_logits(labels=idx, logits=unk)": ("?",),
    "tf.TensorArray(tf.float32, 3).unstack(x).stack()": ("3,3",),
    "tf.map_fn(lambda v: v * 2, x)": ("?,3",),
    "tf.scan(lambda a, v: a + v, x)": ("?,3",),
    "tf.gradients(tf.nn.dropout(x, kp), x)": ("?,3",),
    "tf.gradients(tf.cond(b, lambda: x, lambda: x * 2), x)": ("?,3",),
    "tf.gradients(tf.slice(x, [0, i], [-1, 1]), x)": ("?,3",),
    "tf.gradients(tf.while_loop(lambda k, a: k < 3, lambda k, a: (k + 1, a * 2), [0, x])[1], x)": ("?,3",),
    "tf.layers.flatten(x4)": ("?,256",),
    "tf.image.resize_images(x4, [i, 16])": ("?,?,16,4",),
    "x[:, -1:]": ("?,1",),
    "unk[..., 0]": ("unknown",),
}


def named_inputs() -> dict[str, Any]:
    feed = tf.placeholder
    return {
        "tf": tf, "x": feed(tf.float32, [None, 3]), "y": feed(tf.float32, [None, 3]),
        "x23": feed(tf.float32, [2, 3]), "x4": feed(tf.float32, [None, 8, 8, 4]),
        "x3": feed(tf.float32, [None, 5, 6]), "unk": feed(tf.float32), "kp": feed(tf.float32),
        "b": feed(tf.bool, []), "i": feed(tf.int32, []), "ns": feed(tf.int32, [2]), "sh": feed(tf.int32, [None]),
        "idx": feed(tf.int32, [None]), "lens": feed(tf.int32, [None]), "w": feed(tf.float32, [3, 3]),
    }  # fmt: skip


def flat(values: Any) -> list[Any]:
    return [v for part in values for v in flat(part)] if isinstance(values, (list, tuple)) else [values]


def shown(t: Any) -> str:
    shape = t.get_shape()
    return "unknown" if shape.ndims is None else ",".join("?" if d is None else str(d) for d in shape.as_list())


def knows(got: str, want: str) -> bool:
    """Whether a shape is `want`, or says more than it."""
    if want == "unknown":
        return True
    ours, theirs = got.split(","), want.split(",")
    return len(ours) == len(theirs) and all(b in ("?", a) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("part", range(6))
def test_static_shapes_are_no_less_known_than_in_tensorflow(part: int) -> None:
    wrong = []
    for expression, want in list(TABLE.items())[part::6]:
        with tf.Graph().as_default():
            got = [shown(t) for t in flat(eval(expression, named_inputs()))]
        if len(got) != len(want) or not all(map(knows, got, want)):
            wrong.append(f"{expression}: {got}, not {want}")
    assert not wrong, "\n".join(wrong)


def test_the_convnet_of_the_tutorials_trains_behind_a_fed_keep_prob() -> None:
    tf.reset_default_graph()
    tf.set_random_seed(1)

    def weights(shape: list[int]) -> Any:
        return tf.Variable(tf.truncated_normal(shape, stddev=0.1))

    def biases(shape: list[int]) -> Any:
        return tf.Variable(tf.constant(0.1, shape=shape))

    x = tf.placeholder(tf.float32, [None, 64])
    wanted = tf.placeholder(tf.float32, [None, 10])
    keep_prob = tf.placeholder(tf.float32)
    image = tf.reshape(x, [-1, 8, 8, 1])
    conv = tf.nn.relu(tf.nn.conv2d(image, weights([3, 3, 1, 4]), strides=[1, 1, 1, 1], padding="SAME") + biases([4]))
    pool = tf.nn.max_pool(conv, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
    rows = tf.reshape(pool, [-1, 4 * 4 * 4])
    hidden = tf.nn.relu(tf.matmul(rows, weights([64, 16])) + biases([16]))
    dropped = tf.nn.dropout(hidden, keep_prob)
    assert dropped.get_shape().as_list() == [None, 16]
    logits = tf.layers.dense(dropped, 10)
    chances = tf.nn.softmax(tf.matmul(dropped, weights([16, 10])) + biases([10]) + logits)
    loss = tf.reduce_mean(-tf.reduce_sum(wanted * tf.log(chances), reduction_indices=[1]))
    train = tf.train.AdamOptimizer(3e-2).minimize(loss)
    right = tf.equal(tf.argmax(chances, 1), tf.argmax(wanted, 1))
    accuracy = tf.reduce_mean(tf.cast(right, tf.float32))
    rng = np.random.default_rng(0)
    images, classes = rng.uniform(size=(10, 64)).astype(np.float32), np.eye(10, dtype=np.float32)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        before = sess.run(loss, {x: images, wanted: classes, keep_prob: 1.0})
        for _ in range(15):
            sess.run(train, {x: images, wanted: classes, keep_prob: 0.8})
        after, share = sess.run([loss, accuracy], {x: images, wanted: classes, keep_prob: 1.0})
    assert after < 0.75 * before
    assert share > 0.5


@pytest.mark.parametrize("noise", ["[None, 1]", "(tf.shape(x)[0], 1)", "ns"])
def test_dropout_with_a_fed_rate_and_noise_shape_drops_whole_rows(noise: str) -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        given = named_inputs()
        x, rate, ns = given["x"], given["kp"], given["ns"]
        out = tf.layers.dropout(x, rate, noise_shape=eval(noise, given), training=True, seed=3)
        got = sess.run(out, {x: np.ones((50, 3)), rate: 0.5, ns: [50, 1]})
    assert {tuple(row) for row in got.tolist()} == {(0.0, 0.0, 0.0), (2.0, 2.0, 2.0)}


def test_dropout_refuses_a_rate_of_more_than_one_number() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="must be a scalar tensor"):
        tf.nn.dropout(tf.ones([2, 3]), tf.placeholder(tf.float32, [3]))


def test_dropout_refuses_none_in_a_noise_shape_of_an_unknown_dimension() -> None:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="noise_shape"):
        tf.nn.dropout(tf.placeholder(tf.float32, [None, 3]), 0.5, noise_shape=[None, 1])
