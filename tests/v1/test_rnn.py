"""TensorFlow 1's recurrent networks: variable names, scopes, reuse, custom cells, the default graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from headrace.v1 import rnn, rnn_cell

ROWS = np.random.default_rng(0).normal(size=(3, 4, 2)).astype(np.float32)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


def names() -> list[str]:
    return [v.name for v in tf.trainable_variables()]


def run(fetches: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return session.run(fetches, feeds)


def test_variables_and_results_are_named_as_in_tensorflow() -> None:
    """In the default graph, without entering any."""
    x = tf.placeholder(tf.float32, [None, 4, 2])
    y, state = rnn.dynamic_rnn(rnn_cell.BasicLSTMCell(5), x, dtype=tf.float32)
    assert names() == ["rnn/basic_lstm_cell/kernel:0", "rnn/basic_lstm_cell/bias:0"]
    assert y.name == "rnn/transpose_1:0"
    assert isinstance(state, rnn_cell.LSTMStateTuple)
    with tf.variable_scope("deep"):
        layers = [rnn_cell.GRUCell(3), rnn_cell.DropoutWrapper(rnn_cell.GRUCell(3), 0.5)]
        rnn.bidirectional_dynamic_rnn(rnn_cell.MultiRNNCell(layers), rnn_cell.BasicRNNCell(2), x, dtype=tf.float32)
    below = "deep/bidirectional_rnn/fw/multi_rnn_cell"
    assert names()[2:] == [
        *(
            f"{below}/cell_{k}/gru_cell/{p}/{v}:0"
            for k in (0, 1)
            for p in ("gates", "candidate")
            for v in ("kernel", "bias")
        ),
        "deep/bidirectional_rnn/bw/basic_rnn_cell/kernel:0",
        "deep/bidirectional_rnn/bw/basic_rnn_cell/bias:0",
    ]
    assert run(y, {x: ROWS}).shape == (3, 4, 5)


def test_variables_are_found_again() -> None:
    """A reusing scope, a cell with `reuse`, and the same cell find them.

    Otherwise, making them twice is refused.
    """
    x = tf.constant(ROWS)
    cell = rnn_cell.GRUCell(3)
    one, _ = rnn.dynamic_rnn(cell, x, dtype=tf.float32)
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        two, _ = rnn.dynamic_rnn(rnn_cell.GRUCell(3), x, dtype=tf.float32)
    three, _ = rnn.dynamic_rnn(rnn_cell.GRUCell(3, reuse=tf.AUTO_REUSE), x, dtype=tf.float32)
    again, _ = rnn.dynamic_rnn(cell, x, dtype=tf.float32, scope="other")
    assert len(names()) == 4
    first, *others = run([one, again, two, three])
    assert all((first == y).all() for y in others)
    rnn.dynamic_rnn(rnn_cell.BasicRNNCell(3), x, dtype=tf.float32)
    with pytest.raises(ValueError, match="already exists"):
        rnn.dynamic_rnn(rnn_cell.BasicRNNCell(3), x, dtype=tf.float32)


def test_settings_of_a_scope_reach_the_cell() -> None:
    """Initializers, regularizers and custom getters."""
    seen = []

    def getter(get: Any, name: str, **given: Any) -> Any:
        seen.append(name)
        return get(name, **given)

    with tf.variable_scope("s", initializer=tf.constant_initializer(0.25), custom_getter=getter):
        rnn.dynamic_rnn(rnn_cell.LSTMCell(3, use_peepholes=True), tf.constant(ROWS), dtype=tf.float32)
    assert seen == [n.removesuffix(":0") for n in names()]
    kernel, bias, *peepholes = run(tf.trainable_variables())
    assert (kernel == 0.25).all()
    assert not bias.any()
    assert all((p == 0.25).all() for p in peepholes)


class Mine(rnn_cell.RNNCell):
    """A cell that makes its variables when it is called."""

    @property
    def state_size(self) -> int:
        return 3

    @property
    def output_size(self) -> int:
        return 3

    def call(self, inputs: Any, state: Any) -> Any:
        w = tf.get_variable("w", [2 + 3, 3])
        scale = tf.get_variable("scale", [], trainable=False, initializer=tf.ones_initializer())
        out = tf.tanh(tf.matmul(tf.concat([inputs, state], 1), w)) * scale
        return out, out


@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_cells_of_ones_own(how: str) -> None:
    """Variables of a custom cell are made once, in a scope of the class's name.

    They are variables of the cell.
    """
    cell = Mine()
    x = tf.constant(ROWS)
    if how == "dynamic":
        y, _ = rnn.dynamic_rnn(cell, x, dtype=tf.float32)
    else:
        ys, _ = rnn.static_rnn(cell, tf.unstack(x, axis=1), dtype=tf.float32)
        y = tf.stack(ys, axis=1)
    assert names() == ["rnn/mine/w:0"]
    assert [v.name for v in cell.variables] == ["rnn/mine/w:0", "rnn/mine/scale:0"]
    assert [v.name for v in cell.trainable_variables] == ["rnn/mine/w:0"]
    y, w = run([y, tf.trainable_variables()[0]])
    state = np.zeros((3, 3))
    for t in range(4):
        state = np.tanh(np.concatenate([ROWS[:, t], state], 1) @ w)
        np.testing.assert_allclose(y[:, t], state, atol=1e-6)


class Built(rnn_cell.RNNCell):
    """A cell that makes its variables in `build`, from a `TensorShape`."""

    state_size = output_size = 3

    def build(self, inputs_shape: Any) -> None:
        self._kernel = self.add_variable("kernel", shape=[inputs_shape[1].value + 3, 3])
        self.built = True

    def call(self, inputs: Any, state: Any) -> Any:
        out = tf.tanh(tf.matmul(tf.concat([inputs, state], 1), self._kernel))
        return out, out


def test_a_cell_that_builds_itself() -> None:
    y, state = rnn.dynamic_rnn(Built(), tf.constant(ROWS), dtype=tf.float32)
    assert names() == ["rnn/built/kernel:0"]
    out, last = run([y, state])
    np.testing.assert_array_equal(out[:, -1], last)


def test_the_loop_reads_variables_once() -> None:
    """However many steps it makes, and whether or not the compiler can move a read."""
    rnn.dynamic_rnn(rnn_cell.BasicLSTMCell(3), tf.constant(ROWS), dtype=tf.float32)
    graph = tf.get_default_graph()
    (loop,) = [op for op in graph.get_operations() if op.type.endswith("While")]
    assert not [op for op in loop.attrs["body"].get_operations() if op.type == "ReadVariableOp"]


def test_signatures_and_mistakes() -> None:
    """TensorFlow 1's order of arguments."""
    cell = rnn_cell.LSTMCell(4, True, 0.5, None, 3, 0.25, None, None, 0.0, False)
    assert cell.state_size == 7
    assert isinstance(cell, rnn_cell.RNNCell)
    x, state = tf.constant(ROWS[:, 0]), cell.zero_state(3, tf.float32)
    cell(x, state, "here")
    assert names()[0] == "here/kernel:0"
    with pytest.raises(ValueError, match="give dtype="):
        rnn.dynamic_rnn(rnn_cell.GRUCell(2), tf.constant(ROWS))
    with pytest.raises(TypeError, match="not an RNNCell"):
        rnn.static_rnn(3, [x], dtype=tf.float32)
