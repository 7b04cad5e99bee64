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


# *** loops of scalars, with functions and conditionals in their bodies ***


def sine(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    return _times(tf, n, lambda i, x: tf.sin(x) * a + b, x)


def exponential(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    return _times(tf, n, lambda i, x: tf.exp(-x) * a + b, x)


def remainder(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    return _times(tf, n, lambda i, x: tf.mod(x * a + b, 2.0), x)


def where(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    return _times(tf, n, lambda i, x: tf.where(x > 1.0, x * a, x + b), x)


def cond_sine(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    return _times(tf, n, lambda i, x: tf.cond(x > 1.0, lambda: tf.sin(x) * a, lambda: x + b), x)


def nested_conds(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        def large() -> Any:
            return tf.cond(x > 1.5, lambda: x * a, lambda: tf.sin(x) * a)

        return tf.cond(x > 1.0, large, lambda: x + b)

    return _times(tf, n, body, x)


def case(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        pairs = [(tf.equal(tf.mod(i, 3), 0), lambda: x * a), (x > 1.0, lambda: tf.sin(x))]
        return tf.case(pairs, default=lambda: x + b)

    return _times(tf, n, body, x)


def three_deep(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    def middle(i: Any, x: Any) -> Any:
        return _times(tf, n, lambda j, x: _times(tf, n, lambda k, x: x * a + b, x), x)

    return _times(tf, n, middle, x)


def three_deep_conds(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    def inner(k: Any, x: Any) -> Any:
        return tf.cond(x > 1.0, lambda: tf.sin(x) * a, lambda: x + b)

    return _times(tf, n, lambda i, x: _times(tf, n, lambda j, x: _times(tf, n, inner, x), x), x)


def _times(tf: Any, n: int, body: Any, x: Any) -> Any:
    return tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, body(i, x)), (0, x))[1]


# *** the same cells in several spellings ***


def lstm_products(tf: Any, n: int, xs: Any, h: Any, c: Any, w: Any, b: Any) -> Any:
    inputs, width = tf.TensorArray("float32", n).unstack(xs), xs.shape[2]
    of_x, of_h = w[:width], w[width:]

    def step(t: Any, h: Any, c: Any) -> Any:
        z = tf.matmul(inputs.read(t), of_x) + tf.matmul(h, of_h) + b
        return t + 1, *_gated(tf, *tf.split(z, 4, 1), c)

    return _squares(tf, tf.while_loop(lambda t, h, c: t < n, step, (0, h, c))[1])


def lstm_slices(tf: Any, n: int, xs: Any, h: Any, c: Any, w: Any, b: Any) -> Any:
    inputs, width = tf.TensorArray("float32", n).unstack(xs), h.shape[1]

    def step(t: Any, h: Any, c: Any) -> Any:
        z = tf.matmul(tf.concat([inputs.read(t), h], 1), w) + b
        gates = z[:, :width], z[:, width : 2 * width], z[:, 2 * width : 3 * width], z[:, 3 * width :]
        return t + 1, *_gated(tf, *gates, c)

    return _squares(tf, tf.while_loop(lambda t, h, c: t < n, step, (0, h, c))[1])


def lstm_scan(tf: Any, n: int, xs: Any, h: Any, c: Any, w: Any, b: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        z = tf.matmul(tf.concat([x, state[0]], 1), w) + b
        return _gated(tf, *tf.split(z, 4, 1), state[1])

    return _squares(tf, tf.scan(step, xs, (h, c))[0][-1])


def lstm_cell(tf: Any, n: int, xs: Any, h: Any, c: Any) -> Any:
    cell = tf.nn.rnn_cell.BasicLSTMCell(int(h.shape[1]), forget_bias=0.0)
    state = tf.nn.rnn_cell.LSTMStateTuple(c, h)
    return _squares(tf, tf.nn.dynamic_rnn(cell, xs, initial_state=state, time_major=True)[1].h)


def _gated(tf: Any, i: Any, j: Any, f: Any, o: Any, c: Any) -> Any:
    c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(j)
    return tf.sigmoid(o) * tf.tanh(c), c


def fed_rnn(tf: Any, n: int, xs: Any, h: Any, w: Any, b: Any) -> Any:
    inputs = tf.TensorArray("float32", n).unstack(xs)

    def step(t: Any, h: Any) -> Any:
        return t + 1, tf.tanh(tf.matmul(tf.concat([inputs.read(t), h], 1), w) + b)

    return _squares(tf, tf.while_loop(lambda t, h: t < n, step, (0, h))[1])


def fed_rnn_products(tf: Any, n: int, xs: Any, h: Any, w: Any, b: Any) -> Any:
    inputs, width = tf.TensorArray("float32", n).unstack(xs), xs.shape[2]
    of_x, of_h = w[:width], w[width:]

    def step(t: Any, h: Any) -> Any:
        return t + 1, tf.tanh(tf.matmul(inputs.read(t), of_x) + tf.matmul(h, of_h) + b)

    return _squares(tf, tf.while_loop(lambda t, h: t < n, step, (0, h))[1])


def fed_rnn_rows(tf: Any, n: int, xs: Any, h: Any, w: Any, b: Any) -> Any:
    def step(t: Any, h: Any) -> Any:
        return t + 1, tf.tanh(tf.matmul(tf.concat([xs[t], h], 1), w) + b)

    return _squares(tf, tf.while_loop(lambda t, h: t < n, step, (0, h))[1])


def fed_rnn_scan(tf: Any, n: int, xs: Any, h: Any, w: Any, b: Any) -> Any:
    return _squares(tf, tf.scan(lambda h, x: tf.tanh(tf.matmul(tf.concat([x, h], 1), w) + b), xs, h)[-1])


def fed_rnn_cell(tf: Any, n: int, xs: Any, h: Any) -> Any:
    cell = tf.nn.rnn_cell.BasicRNNCell(int(h.shape[1]))
    return _squares(tf, tf.nn.dynamic_rnn(cell, xs, initial_state=h, time_major=True)[1])


def _squares(tf: Any, h: Any) -> Any:
    return tf.reduce_sum(h * h)


# *** programs without derivatives; the loops count in int32 ***


def add(tf: Any, x: Any) -> Any:
    return x + 1.0


def counting(tf: Any, n: Any) -> Any:
    return tf.while_loop(lambda i: i < n, lambda i: i + 1, (0,))


def nested_scalars(tf: Any, n: Any, m: Any, x: Any, a: Any, b: Any) -> Any:
    def inner(x: Any) -> Any:
        return tf.while_loop(lambda j, x: j < m, lambda j, x: (j + 1, x * a + b), (0, x))[1]

    return tf.while_loop(lambda i, x: i < n, lambda i, x: (i + 1, inner(x)), (0, x))[1]


def chain(tf: Any, n: int, x: Any, a: Any, b: Any) -> Any:
    for _ in range(n // 2):
        x = x * a
        x = x + b
    return x


def wide(tf: Any, n: int, x: Any) -> Any:
    ops = (lambda c: x * c, lambda c: x + c, lambda c: x - c, lambda c: c - x)
    terms = [ops[k % 4](k / n) for k in range(n)]
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [a + b for a, b in zip(terms[::2], terms[1::2])] + odd
    return terms[0]


def elementwise(tf: Any, n: int, x: Any, y: Any) -> Any:
    for _ in range(n // 6):
        y = tf.abs(y * x - 0.5)
        y = tf.minimum(y + x, 2.0) * 0.5
    return tf.reduce_sum(y)


# *** a network ***


def convnet(tf: Any, batch: int, layers: int, images: Any, labels: Any, w: Any, b: Any, **weights: Any) -> Any:
    x = images
    for k in range(layers):
        x = tf.nn.bias_add(tf.nn.conv2d(x, weights[f"filter{k}"], 1, "SAME"), weights[f"bias{k}"])
        x = tf.nn.max_pool2d(tf.nn.relu(x), 2, 2, "SAME")
    logits = tf.matmul(tf.reshape(x, (batch, -1)), w) + b
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


# *** networks in training: the losses; variables are made by cells and layers ***


def digits_lstm(tf: Any, units: int, columns: Any, lengths: Any, labels: Any) -> Any:
    cell = tf.nn.rnn_cell.BasicLSTMCell(units)
    _, state = tf.nn.dynamic_rnn(cell, columns, lengths, dtype=tf.float32)
    return _loss(tf, tf.layers.dense(state.h, 10), labels)


def digits_vgg(tf: Any, first: int, second: int, dense: int, images: Any, labels: Any) -> Any:
    x = images
    for filters in (first, second):
        for _ in range(2):
            x = tf.layers.conv2d(x, filters, 3, padding="same", activation=tf.nn.relu)
        x = tf.layers.max_pooling2d(x, 2, 2)
    x = tf.layers.dense(tf.layers.flatten(x), dense, activation=tf.nn.relu)
    return _loss(tf, tf.layers.dense(x, 10), labels)


def _loss(tf: Any, logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


# *** kernels: operations alone, whose whole results are compared ***


def conv2d(tf: Any, stride: int, x: Any, w: Any) -> Any:
    return tf.nn.conv2d(x, w, stride, "SAME")


def conv2d_by_input(tf: Any, batch: int, side: int, channels: int, w: Any, dy: Any) -> Any:
    return tf.nn.conv2d_backprop_input((batch, side, side, channels), w, dy, (1, 1, 1, 1), "SAME")


def conv2d_by_filter(tf: Any, window: int, channels: int, stride: int, x: Any, dy: Any) -> Any:
    shape = (window, window, channels, dy.shape[-1])
    return tf.nn.conv2d_backprop_filter(x, shape, dy, (1, stride, stride, 1), "SAME")


def max_pool(tf: Any, window: int, x: Any) -> Any:
    return tf.nn.max_pool2d(x, window, 2, "SAME")


def batch_norm(tf: Any, x: Any, scale: Any, offset: Any) -> Any:
    return tf.nn.fused_batch_norm(x, scale, offset, is_training=True)[0]


def batch_norm_cubed(tf: Any, x: Any, scale: Any, offset: Any) -> Any:
    y = batch_norm(tf, x, scale, offset)
    return tf.reduce_sum(y * y * y)  # of the sum, and that of squares, the derivatives are 0 but for rounding


def cross_entropy(tf: Any, labels: Any, logits: Any) -> Any:
    return tf.nn.softmax_cross_entropy_with_logits_v2(labels=labels, logits=logits)


def matmul(tf: Any, x: Any, y: Any) -> Any:
    return tf.matmul(x, y)


def reductions(tf: Any, x: Any) -> Any:
    return tf.reduce_sum(x, 1) + tf.reduce_max(x, 0) + tf.reduce_mean(x)


def gather(tf: Any, table: Any, rows: Any) -> Any:
    return tf.gather(table, rows)


def scatter(tf: Any, rows: int, ids: Any, values: Any) -> Any:
    return tf.math.unsorted_segment_sum(values, ids, rows)
