"""Recurrent networks made twice, with TensorFlow and with headrace.v1, and what differs between them.

A case is a function of TensorFlow's module (or headrace's) and of its two parts that recurrent networks are in. It
makes a network and returns its outputs and states. Both get the same weights; then variables, results and gradients by
all weights and inputs are compared. Run it with an interpreter that has TensorFlow: it prints the cases that differ.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

BATCH, TIME, DEPTH = 3, 5, 2
LENGTHS = (5, 0, 3)
CLOSE = {"float32": 1e-6, "float64": 1e-12}
WIDE = {"float32": 5e-6, "float64": 1e-11}  # of gradients, which add up more


def inputs_of(tf: Any, dtype: str, shape: tuple[int, ...] = (BATCH, TIME, DEPTH), seed: int = 0) -> Any:
    return tf.constant(np.random.default_rng(seed).normal(size=shape).astype(dtype), name=f"x{seed}")


CASES: dict[str, Callable[[Any, Any, Any, str], Any]] = {}


def case(f: Callable[[Any, Any, Any, str], Any]) -> Callable[[Any, Any, Any, str], Any]:
    CASES[f.__name__] = f
    return f


def _plain(tf: Any, nn: Any, cell: Any, t: str) -> Any:
    x = inputs_of(tf, t)
    return x, nn.dynamic_rnn(cell(), x, dtype=t)


def _with_lengths(tf: Any, nn: Any, cell: Any, t: str) -> Any:
    x = inputs_of(tf, t)
    return x, nn.dynamic_rnn(cell(), x, list(LENGTHS), dtype=t)


def _time_major(tf: Any, nn: Any, cell: Any, t: str) -> Any:
    x = inputs_of(tf, t, (TIME, BATCH, DEPTH))
    made, lengths = cell(), tf.constant(LENGTHS, "int64")
    return x, nn.dynamic_rnn(made, x, lengths, made.zero_state(BATCH, t), time_major=True, scope="network")


def _static(tf: Any, nn: Any, cell: Any, t: str) -> Any:
    x = inputs_of(tf, t, (TIME, BATCH, DEPTH))
    return x, nn.static_rnn(cell(), tf.unstack(x), dtype=t, sequence_length=tf.constant(LENGTHS))


def _both_ways(tf: Any, nn: Any, cell: Any, t: str) -> Any:
    x = inputs_of(tf, t)
    return x, nn.bidirectional_dynamic_rnn(cell(), cell(), x, tf.constant(LENGTHS), dtype=t)


WAYS = {"p": _plain, "l": _with_lengths, "t": _time_major, "s": _static, "b": _both_ways}


def _of(name: str, ways: str, make: Callable[[Any, Any], Any]) -> None:
    """A case for each way to use a cell."""
    for letter in ways:
        way = WAYS[letter]

        def network(tf: Any, nn: Any, cells: Any, t: str, way: Any = way) -> Any:
            x, made = way(tf, nn, lambda: make(tf, cells), t)
            return [x], made

        CASES[name + way.__name__.replace("_", " ")] = network


_of("basic rnn", "pb", lambda tf, cells: cells.BasicRNNCell(4))
_of("relu rnn", "l", lambda tf, cells: cells.BasicRNNCell(4, activation=tf.nn.relu, name="mine"))
_of("gru", "lts", lambda tf, cells: cells.GRUCell(3))
_of("basic lstm", "pltsb", lambda tf, cells: cells.BasicLSTMCell(3))
_of("joined lstm", "l", lambda tf, cells: cells.BasicLSTMCell(3, state_is_tuple=False, forget_bias=0.5))
_of("lstm", "p", lambda tf, cells: cells.LSTMCell(3))
_of(
    "full lstm",
    "lb",
    lambda tf, cells: cells.LSTMCell(
        4, use_peepholes=True, cell_clip=0.3, num_proj=3, proj_clip=0.2, forget_bias=0.2, activation=tf.nn.softsign
    ),
)
_of("joined full lstm", "l", lambda tf, cells: cells.LSTMCell(4, True, num_proj=2, state_is_tuple=False))
_of("two layers", "lb", lambda tf, cells: cells.MultiRNNCell([cells.LSTMCell(3), cells.GRUCell(2)]))
_of(
    "joined layers",
    "l",
    lambda tf, cells: cells.MultiRNNCell([cells.GRUCell(3), cells.BasicRNNCell(2)], state_is_tuple=False),
)
_of("residual", "t", lambda tf, cells: cells.ResidualWrapper(cells.GRUCell(DEPTH)))
_of(
    "kept", "l", lambda tf, cells: cells.DeviceWrapper(cells.DropoutWrapper(cells.BasicLSTMCell(3), 1.0, 1.0), "/cpu:0")
)


@case
def starts_elsewhere(tf: Any, nn: Any, cells: Any, t: str) -> Any:
    x, c, h = inputs_of(tf, t), inputs_of(tf, t, (BATCH, 3), 1), inputs_of(tf, t, (BATCH, 3), 2)
    start = cells.LSTMStateTuple(c, h)
    return [x, c, h], nn.dynamic_rnn(cells.BasicLSTMCell(3), x, [1, 2, 9], initial_state=start)


@case
def nested(tf: Any, nn: Any, cells: Any, t: str) -> Any:
    """Inputs, states and outputs that are structures."""

    class Pair(cells.RNNCell):
        @property
        def state_size(self) -> Any:
            return (2, (3, tf.TensorShape([2, 2])))

        @property
        def output_size(self) -> Any:
            return (3, 2)

        def call(self, inputs: Any, state: Any) -> Any:
            x, y = inputs
            a, (b, c) = state
            w = tf.get_variable("w", [2, 3], dtype=t)
            new = tf.tanh(tf.matmul(x, w) + b)
            return (new, a + y[:, 0]), (tf.tanh(a + x), (new, c * 0.5 + y))

    x, y = inputs_of(tf, t), inputs_of(tf, t, (BATCH, TIME, 2, 2), 1)
    return [x, y], nn.dynamic_rnn(Pair(), (x, y), list(LENGTHS), dtype=t)


@case
def by_hand(tf: Any, nn: Any, cells: Any, t: str) -> Any:
    """A cell in TensorFlow 1's style, with its own `__call__` and scope."""

    class Old(cells.RNNCell):
        state_size = output_size = 3

        def __call__(self, inputs: Any, state: Any, scope: Any = None) -> Any:
            with tf.variable_scope(scope or "old"):
                w = tf.get_variable("w", [int(inputs.get_shape()[1]) + 3, 3], dtype=t)
                out = tf.tanh(tf.matmul(tf.concat([inputs, state], 1), w))
            return out, out

    x = inputs_of(tf, t)
    ys, state = nn.dynamic_rnn(Old(), x, list(LENGTHS), dtype=t)
    with tf.variable_scope("again"):
        steps, last = nn.static_rnn(cells.MultiRNNCell([Old(), Old()]), tf.unstack(x, axis=1), dtype=t)
    return [x], (ys, state, steps, last)


@case
def shared(tf: Any, nn: Any, cells: Any, t: str) -> Any:
    """A cell that is called twice, and one that finds the variables of another."""
    x = inputs_of(tf, t)
    cell = cells.GRUCell(2)
    with tf.variable_scope("first"):
        one, _ = nn.dynamic_rnn(cell, x, dtype=t)
    with tf.variable_scope("second"):
        two, _ = nn.dynamic_rnn(cell, tf.sin(x), dtype=t)
    with tf.variable_scope("third"):
        three, _ = nn.dynamic_rnn(cells.BasicRNNCell(2), x, dtype=t)
    with tf.variable_scope("third", reuse=True):
        four, _ = nn.dynamic_rnn(cells.BasicRNNCell(2), tf.sin(x), dtype=t)
    return [x], (one, two, three, four)


@case
def fed_with_its_outputs(tf: Any, nn: Any, cells: Any, t: str) -> Any:
    """`raw_rnn` with examples that finish at different times.

    The loop emits a value that is no output of the cell.
    """
    x = inputs_of(tf, t, (BATCH, 3))
    cell = cells.LSTMCell(3)

    def loop_fn(time: Any, output: Any, state: Any, own: Any) -> Any:
        if output is None:
            emit = (tf.zeros([2, 3], t), tf.zeros([], tf.int32))
            return tf.constant(LENGTHS) <= 0, x, cell.zero_state(BATCH, t), emit, tf.constant(0.5, t)
        emit = (tf.stack([output, -output], 1), tf.fill([BATCH], time))
        return time >= tf.constant(LENGTHS), output * 2.0, state, emit, own + 1.0

    (ys, times), state, own = nn.raw_rnn(cell, loop_fn)
    return [x], (ys.stack(), times.stack(), state, own)


@case
def static_both_ways(tf: Any, nn: Any, cells: Any, t: str) -> Any:
    x = inputs_of(tf, t, (TIME, BATCH, DEPTH))
    fw, bw = cells.GRUCell(3), cells.BasicRNNCell(2)
    made = nn.static_bidirectional_rnn(fw, bw, tf.unstack(x), dtype=t, sequence_length=tf.constant(LENGTHS, "int64"))
    return [x], made


@case
def saved(tf: Any, nn: Any, cells: Any, t: str) -> Any:
    class Saver:
        def __init__(self) -> None:
            self.kept = {
                n: tf.get_variable(n, initializer=np.full((BATCH, 3), v, t), trainable=False)
                for n, v in (("c", 0.5), ("h", -0.25))
            }

        def state(self, name: str) -> Any:
            return self.kept[name] + 0.0

        def save_state(self, name: str, value: Any) -> Any:
            return self.kept[name].assign(value).op

    x = inputs_of(tf, t, (TIME, BATCH, DEPTH))
    outputs, state = nn.static_state_saving_rnn(cells.BasicLSTMCell(3), tf.unstack(x), Saver(), ("c", "h"))
    return [x], (outputs[-1], state)


def _of_dropout(name: str, **given: Any) -> None:
    def network(tf: Any, nn: Any, cells: Any, t: str) -> Any:
        x = inputs_of(tf, t)
        cell = cells.DropoutWrapper(
            cells.MultiRNNCell([cells.BasicLSTMCell(8), cells.GRUCell(6)]), seed=11, dtype=t, **given
        )
        return [x], nn.dynamic_rnn(cell, x, list(LENGTHS), dtype=t)

    CASES[name] = network


_of_dropout("variational", input_keep_prob=0.5, output_keep_prob=0.6, state_keep_prob=0.7,
            variational_recurrent=True, input_size=DEPTH)  # fmt: skip


def flat(tree: Any) -> list[Any]:
    if isinstance(tree, (list, tuple)):
        return [leaf for part in tree for leaf in flat(part)]
    return [tree]


def run(tf: Any, nn: Any, cells: Any, make: Callable[..., Any], dtype: str) -> tuple[dict[str, Any], list[Any]]:
    """The shapes of the variables by name; and outputs, states and gradients."""
    with tf.Graph().as_default():
        inputs, made = make(tf, nn, cells, dtype)
        results = flat(made)
        variables = sorted(tf.trainable_variables(), key=lambda v: v.name)
        everything = sorted(tf.global_variables(), key=lambda v: v.name)
        loss = tf.add_n([
            tf.reduce_sum(y * tf.cast(tf.reshape(tf.range(tf.size(y)), tf.shape(y)) % 7 - 2, dtype))
            for y in results if y.dtype.name.startswith("float")
        ])  # fmt: skip
        gradients = tf.gradients(loss, [*variables, *inputs])
        assert all(g is not None for g in gradients), [v.name for v, g in zip(variables, gradients) if g is None]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            rng = np.random.default_rng(7)
            for v in variables:
                v.load(rng.normal(size=v.get_shape().as_list()).astype(dtype) * 0.5, session)
            found = session.run([results, gradients])
        return {v.name: [int(d) for d in v.get_shape().as_list()] for v in everything}, found


def differences() -> list[str]:
    """The results that are not the same."""
    import tensorflow

    theirs = tensorflow.compat.v1
    theirs.disable_v2_behavior()
    import headrace.v1 as ours

    out = []
    for number, (name, make) in enumerate(CASES.items()):
        # double precision shows more differences; a few cases cover the behaviour of float32
        for dtype in ("float64", "float32")[: 1 + (number % 4 == 0)]:
            wanted = run(theirs, theirs.nn, theirs.nn.rnn_cell, make, dtype)
            got = run(ours, ours.nn, ours.nn.rnn_cell, make, dtype)
            if wanted[0] != got[0]:
                out.append(f"{name}: variables {got[0]}, expected {wanted[0]}")
                continue
            for what, bound, xs, ys in zip(("results", "gradients"), (CLOSE, WIDE), wanted[1], got[1], strict=True):
                for k, (x, y) in enumerate(zip(xs, ys, strict=True)):
                    x, y = np.asarray(x), np.asarray(y)
                    if x.shape != y.shape or x.dtype != y.dtype:
                        out.append(f"{name}: {what}[{k}] is {y.dtype}{y.shape}, expected {x.dtype}{x.shape}")
                    elif not np.allclose(y, x, rtol=bound[dtype], atol=bound[dtype]):
                        out.append(f"{name} {dtype}: {what}[{k}] differ by {np.abs(x - y).max()}")
    return out


def main() -> None:
    """Prints the number of cases and what differs."""
    json.dump([len(CASES), differences()], sys.stdout)
