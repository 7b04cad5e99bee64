"""The programs as graphs. `tf` is `headrace` or `tensorflow.compat.v1`: the text is the same."""

from __future__ import annotations

from typing import Any


def power(tf: Any, n: int, x: Any) -> Any:
    return tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y * x), (0, 1.0))[1]


def rnn(tf: Any, n: int, h: Any, w: Any, b: Any) -> Any:
    _, h = tf.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, tf.tanh(tf.matmul(h, w) + b)), (0, h))
    return tf.reduce_sum(h * h)


def lstm(tf: Any, n: int, xs: Any, h: Any, c: Any, w: Any, b: Any) -> Any:
    inputs = tf.TensorArray("float32", n).unstack(xs)

    def step(t: Any, h: Any, c: Any) -> Any:
        z = tf.matmul(tf.concat([inputs.read(t), h], 1), w) + b
        i, j, f, o = tf.split(z, 4, 1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
        return t + 1, tf.sigmoid(o) * tf.tanh(c), c

    _, h, c = tf.while_loop(lambda t, h, c: t < n, step, (0, h, c))
    return tf.reduce_sum(h * h)


def branches(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    def step(i: Any, x: Any) -> Any:
        return i + 1, tf.cond(x > 1.0, lambda: x * a, lambda: x + b)

    return tf.while_loop(lambda i, x: i < n, step, (0, x))[1]


def nested(tf: Any, n: int, m: int, h: Any, w: Any, b: Any) -> Any:
    def inner(h: Any) -> Any:
        return tf.while_loop(lambda j, h: j < m, lambda j, h: (j + 1, tf.tanh(tf.matmul(h, w))), (0, h))[1]

    _, h = tf.while_loop(lambda i, h: i < n, lambda i, h: (i + 1, inner(h) + b), (0, h))
    return tf.reduce_sum(h * h)
