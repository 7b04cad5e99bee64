"""`tf.contrib.rnn` and `tf.contrib.cudnn_rnn`: cells by the formulas of their papers, with TensorFlow 1.15's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.contrib.running import drawn, names, run, sigmoid, softmax

pytestmark = pytest.mark.system  # networks, which take their time to compile

rnn = tf.contrib.rnn
ROWS = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
Values = dict[str, np.ndarray]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def _norm(v: Values, gate: str, x: np.ndarray) -> np.ndarray:
    normal = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
    found: np.ndarray = normal * v[f"{gate}/gamma"] + v[f"{gate}/beta"]
    return found


def _layer_norm_lstm(v: Values, x: np.ndarray, c: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ v["kernel"], 4, 1)
    i, j, f, o = (_norm(v, n, a) for n, a in zip(("input", "transform", "forget", "output"), (i, j, f, o), strict=True))
    c = _norm(v, "state", c * sigmoid(f + 1) + sigmoid(i) * np.tanh(j))
    return np.tanh(c) * sigmoid(o), c, np.tanh(c) * sigmoid(o)


def _coupled(v: Values, x: np.ndarray, c: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    j, f, o = np.split(np.concatenate([x, h], 1) @ v["W_0"] + v["B"], 3, 1)
    forget = sigmoid(f + 1 + v["W_F_diag"] * c)
    c = forget * c + (1 - forget) * np.tanh(j)
    h = sigmoid(o + v["W_O_diag"] * c) * np.tanh(c) @ v["W_P_0"]
    return h, c, h


def _ugrnn(v: Values, x: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    g, c = np.split(np.concatenate([x, h], 1) @ v["kernel"] + v["bias"], 2, 1)
    new = sigmoid(g + 1) * h + (1 - sigmoid(g + 1)) * np.tanh(c)
    return new, new


def _intersection(v: Values, x: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    x = x @ v["in_projection/kernel"] + v["in_projection/bias"]
    gh, hh, gy, y = np.split(np.concatenate([x, h], 1) @ v["kernel"] + v["bias"], 4, 1)
    gh, gy = sigmoid(gh + 1), sigmoid(gy + 1)
    return gy * x + (1 - gy) * np.maximum(y, 0), gh * h + (1 - gh) * np.tanh(hh)


def _nas(v: Values, x: np.ndarray, c: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    m, i = (np.split(a, 8, 1) for a in (h @ v["recurrent_kernel"] + v["bias"], x @ v["kernel"]))
    s, t, r = sigmoid, np.tanh, lambda a: np.maximum(a, 0)
    first = [s(i[0] + m[0]), r(i[1] + m[1]), s(i[2] + m[2]), r(i[3] * m[3])]
    first += [t(i[4] + m[4]), s(i[5] + m[5]), t(i[6] + m[6]), s(i[7] + m[7])]
    a, b = t(t(first[0] * first[1]) + c), t(first[2] + first[3])
    p, q = t(first[4] * first[5]), s(first[6] + first[7])
    c = a * b
    h = t(c * t(p + q)) @ v["projection_weights"]
    return h, c, h


def _gru_reset_after(v: Values, x: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    r, u = np.split(sigmoid(np.concatenate([x, h], 1) @ v["gates/kernel"] + v["gates/bias"]), 2, 1)
    inputs = x @ v["candidate/input_projection/kernel"] + v["candidate/input_projection/bias"]
    hidden = h @ v["candidate/hidden_projection/kernel"] + v["candidate/hidden_projection/bias"]
    new = (1 - u) * np.tanh(inputs + r * hidden) + u * h
    return new, new


CELLS: dict[str, tuple[Callable[[], Any], Any, list[int], dict[str, list[int]]]] = {
    "layer_norm_basic_lstm_cell": (
        lambda: rnn.LayerNormBasicLSTMCell(3),
        _layer_norm_lstm,
        [3, 3],
        {"kernel": [7, 12]}
        | {f"{g}/{p}": [3] for g in ("input", "transform", "forget", "output", "state") for p in ("gamma", "beta")},
    ),
    "coupled_input_forget_gate_lstm_cell": (
        lambda: rnn.CoupledInputForgetGateLSTMCell(3, use_peepholes=True, num_proj=2),
        _coupled,
        [3, 2],
        {"W_0": [6, 9], "B": [9], "W_F_diag": [3], "W_O_diag": [3], "W_P_0": [3, 2]},
    ),
    "ugrnn_cell": (lambda: rnn.UGRNNCell(3), _ugrnn, [3], {"kernel": [7, 6], "bias": [6]}),
    "intersection_rnn_cell": (
        lambda: rnn.IntersectionRNNCell(3, num_in_proj=3),
        _intersection,
        [3],
        {"in_projection/kernel": [4, 3], "in_projection/bias": [3], "kernel": [6, 12], "bias": [12]},
    ),
    "nas_cell": (
        lambda: rnn.NASCell(3, num_proj=2, use_bias=True),
        _nas,
        [3, 2],
        {"recurrent_kernel": [2, 24], "kernel": [4, 24], "bias": [24], "projection_weights": [3, 2]},
    ),
    "cudnn_compatible_gru_cell": (
        lambda: tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell(3),
        _gru_reset_after,
        [3],
        {"gates/kernel": [7, 6], "gates/bias": [6]}
        | {"candidate/input_projection/kernel": [4, 3], "candidate/input_projection/bias": [3]}
        | {"candidate/hidden_projection/kernel": [3, 3], "candidate/hidden_projection/bias": [3]},
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_cells_follow_their_papers(name: str) -> None:
    make, formula, sizes, shapes = CELLS[name]
    y, _ = tf.nn.dynamic_rnn(make(), tf.constant(ROWS), dtype=tf.float32)
    assert names() == {f"rnn/{name}/{k}": n for k, n in shapes.items()}
    values = drawn()
    own = {k.removeprefix(f"rnn/{name}/"): v.astype(np.float64) for k, v in values.items()}
    state: tuple[np.ndarray, ...] = tuple(np.zeros((2, n)) for n in sizes)
    wanted = []
    for t in range(3):
        out, *state_list = formula(own, ROWS[:, t].astype(np.float64), *state)
        state = tuple(state_list)
        wanted.append(out)
    np.testing.assert_allclose(run(y, values=values), np.stack(wanted, 1), rtol=1e-3, atol=1e-5)


def test_a_cell_attends_to_its_last_outputs() -> None:
    cell = rnn.AttentionCellWrapper(rnn.GRUCell(3), 2, attn_vec_size=5)
    y, state = tf.nn.dynamic_rnn(cell, tf.constant(ROWS), dtype=tf.float32)
    home = "rnn/attention_cell_wrapper"
    assert names() == {
        f"{home}/kernel": [7, 4], f"{home}/bias": [4], f"{home}/attention/attn_w": [1, 1, 3, 5],
        f"{home}/attention/attn_v": [5], f"{home}/attention/kernel": [3, 5], f"{home}/attention/bias": [5],
        f"{home}/attn_output_projection/kernel": [6, 3], f"{home}/attn_output_projection/bias": [3],
        f"{home}/gru_cell/gates/kernel": [7, 6], f"{home}/gru_cell/gates/bias": [6],
        f"{home}/gru_cell/candidate/kernel": [7, 3], f"{home}/gru_cell/candidate/bias": [3],
    }  # fmt: skip
    values = drawn()
    got, last = run([y, state], values=values)
    v = {k.removeprefix(f"{home}/"): a.astype(np.float64) for k, a in values.items()}
    h, attention, history = np.zeros((2, 3)), np.zeros((2, 3)), np.zeros((2, 2, 3))
    for t in range(3):
        x = np.concatenate([ROWS[:, t], attention], 1) @ v["kernel"] + v["bias"]
        both = np.concatenate([x, h], 1)
        r, u = np.split(sigmoid(both @ v["gru_cell/gates/kernel"] + v["gru_cell/gates/bias"]), 2, 1)
        new = np.tanh(np.concatenate([x, r * h], 1) @ v["gru_cell/candidate/kernel"] + v["gru_cell/candidate/bias"])
        h = u * h + (1 - u) * new
        query = h @ v["attention/kernel"] + v["attention/bias"]
        hidden = history @ v["attention/attn_w"][0, 0]
        weights = softmax((v["attention/attn_v"] * np.tanh(hidden + query[:, None])).sum(-1))
        attention = (weights[..., None] * history).sum(1)
        both = np.concatenate([h, attention], 1)
        out = both @ v["attn_output_projection/kernel"] + v["attn_output_projection/bias"]
        history = np.concatenate([history[:, 1:], out[:, None]], 1)
        np.testing.assert_allclose(got[:, t], out, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(last[1], attention, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("block", "plain", "renamed"),
    [
        (rnn.LSTMBlockCell, rnn.LSTMCell, {}),
        (rnn.GRUBlockCellV2, rnn.GRUCell, {}),
        (
            rnn.GRUBlockCell,
            rnn.GRUCell,
            {"w_ru": "gates/kernel", "b_ru": "gates/bias", "w_c": "candidate/kernel", "b_c": "candidate/bias"},
        ),
    ],
)
def test_block_cells_equal_plain_ones(block: Any, plain: Any, renamed: dict[str, str]) -> None:
    x = tf.constant(ROWS)
    with tf.variable_scope("a"):
        one, _ = tf.nn.dynamic_rnn(block(3), x, dtype=tf.float32)
    with tf.variable_scope("b"):
        two, _ = tf.nn.dynamic_rnn(plain(3), x, dtype=tf.float32)
    values = drawn()
    for name in list(values):
        if name.startswith("a/"):
            last = name.rpartition("/")[2]
            values["b" + name[1:].replace(last, renamed.get(last, last))] = values[name]
    grads = [tf.gradients(y, tf.trainable_variables(s)) for y, s in ((one, "a/"), (two, "b/"))]
    got = run([one, two, grads], values=values)
    np.testing.assert_allclose(got[0], got[1], rtol=1e-4, atol=1e-5)
    shapes = [sorted(g.shape for g in side) for side in got[2]]
    assert shapes[0] == shapes[1]
    assert np.isclose(sum(g.sum() for g in got[2][0]), sum(g.sum() for g in got[2][1]), rtol=1e-3)


def test_a_fused_network_equals_a_loop() -> None:
    x = tf.constant(ROWS.transpose(1, 0, 2))
    cell = rnn.LSTMBlockFusedCell(3)
    one, last = cell(x, dtype=tf.float32, sequence_length=[3, 2])
    with tf.variable_scope("loop"):
        two, end = rnn.FusedRNNCellAdaptor(rnn.LSTMCell(3), use_dynamic_rnn=True)(
            x, dtype=tf.float32, sequence_length=[3, 2]
        )
    back, _ = rnn.TimeReversedFusedRNN(cell)(tf.reverse(x, [0]), dtype=tf.float32)
    whole, _ = cell(x, dtype=tf.float32)
    assert list(names())[:2] == ["lstm_fused_cell/kernel", "lstm_fused_cell/bias"]
    values = drawn()
    for p in ("kernel", "bias"):
        values[f"loop/rnn/lstm_cell/{p}"] = values[f"lstm_fused_cell/{p}"]
    got = run([one, two, last.c, end.c, tf.reverse(back, [0]), whole], values=values)
    for a, b in (got[:2], got[2:4], got[4:]):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


class Plain(rnn.RNNCell):  # type: ignore[name-defined,misc]
    """A cell that makes its variables in `call`."""

    state_size = output_size = 3

    def call(self, inputs: Any, state: Any) -> Any:
        w = tf.get_variable("w", [inputs.shape[1].value + 3, 3])
        out = tf.tanh(tf.matmul(tf.concat([inputs, state], 1), w))
        return out, out


def test_projections_and_embeddings_around_cells() -> None:
    x = tf.constant(ROWS)
    y, _ = tf.nn.dynamic_rnn(
        rnn.OutputProjectionWrapper(rnn.InputProjectionWrapper(Plain(), 6), 2), x, dtype=tf.float32
    )
    home = "rnn/output_projection_wrapper"
    inner = f"{home}/input_projection_wrapper"
    assert names() == {
        f"{home}/kernel": [3, 2], f"{home}/bias": [2], f"{inner}/kernel": [4, 6], f"{inner}/bias": [6],
        f"{inner}/plain/w": [9, 3],
    }  # fmt: skip
    ids = tf.constant([[1], [0]])
    z, _ = rnn.EmbeddingWrapper(rnn.BasicRNNCell(3), 5, 4)(ids, tf.zeros([2, 3]))
    values = drawn()
    got, found = run([y, z], values=values)
    state = np.zeros((2, 3))
    for t in range(3):
        projected = ROWS[:, t] @ values[f"{inner}/kernel"] + values[f"{inner}/bias"]
        state = np.tanh(np.concatenate([projected, state], 1) @ values[f"{inner}/plain/w"])
        wanted = state @ values[f"{home}/kernel"] + values[f"{home}/bias"]
        np.testing.assert_allclose(got[:, t], wanted, rtol=1e-3, atol=1e-5)
    table = values["embedding_wrapper/embedding"]
    kernel, bias = (values[f"embedding_wrapper/basic_rnn_cell/{p}"] for p in ("kernel", "bias"))
    np.testing.assert_allclose(found, np.tanh(table[[1, 0]] @ kernel[:4] + bias), rtol=1e-3, atol=1e-5)


def test_a_convolutional_cell_equals_an_lstm_on_one_pixel() -> None:
    cell = rnn.Conv2DLSTMCell(input_shape=[1, 1, 4], output_channels=3, kernel_shape=[1, 1])
    y, _ = tf.nn.dynamic_rnn(cell, tf.constant(ROWS[:, :, None, None]), dtype=tf.float32)
    z, _ = tf.nn.dynamic_rnn(rnn.BasicLSTMCell(3), tf.constant(ROWS), dtype=tf.float32)
    values = drawn()
    values["rnn/basic_lstm_cell/kernel"] = values["rnn/conv_2d_lstm_cell/kernel"][0, 0]
    values["rnn/basic_lstm_cell/bias"] = values["rnn/conv_2d_lstm_cell/biases"]
    got = run([y, z], values=values)
    np.testing.assert_allclose(got[0][:, :, 0, 0], got[1], rtol=1e-4, atol=1e-5)


def test_stacked_bidirectional_networks_with_and_without_loops() -> None:
    x = tf.constant(ROWS)
    cells = [[rnn.GRUCell(3), rnn.GRUCell(2)] for _ in range(4)]
    with tf.variable_scope("a"):
        y, fw, _ = rnn.stack_bidirectional_dynamic_rnn(*cells[:2], x, dtype=tf.float32, sequence_length=[3, 2])
    with tf.variable_scope("b"):
        zs, gw, _ = rnn.stack_bidirectional_rnn(
            *cells[2:], tf.unstack(x, axis=1), dtype=tf.float32, sequence_length=[3, 2]
        )
    assert "a/stack_bidirectional_rnn/cell_1/bidirectional_rnn/fw/gru_cell/gates/kernel" in names()
    values = drawn()
    values |= {"b" + k[1:]: v for k, v in values.items() if k.startswith("a/")}
    got = run([y, tf.stack(zs, 1), fw[1], gw[1]], values=values)
    np.testing.assert_allclose(got[0], got[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[2], got[3], rtol=1e-4, atol=1e-5)


# *** cudnn_rnn ***


def test_cudnn_layers_equal_stacked_cells() -> None:
    x = tf.constant(ROWS.transpose(1, 0, 2))
    lstm = tf.contrib.cudnn_rnn.CudnnLSTM(2, 3)
    y, (h, c) = lstm(x)
    again, _ = lstm(x, initial_state=(h, c))
    home = "cudnn_lstm/rnn/multi_rnn_cell"
    assert names() == {
        f"{home}/cell_{k}/cudnn_compatible_lstm_cell/{p}": n
        for k, rows in ((0, 7), (1, 6)) for p, n in (("kernel", [rows, 12]), ("bias", [12]))
    }  # fmt: skip
    z, last = tf.nn.dynamic_rnn(
        rnn.MultiRNNCell([rnn.LSTMCell(3, forget_bias=0.0) for _ in range(2)]), x, dtype=tf.float32, time_major=True
    )
    w, _ = tf.nn.dynamic_rnn(rnn.MultiRNNCell([rnn.BasicLSTMCell(3, 0.0) for _ in range(2)]), x, initial_state=last,
                             time_major=True)  # fmt: skip
    values = drawn()
    for k in (0, 1):
        for p in ("kernel", "bias"):
            own = values[f"{home}/cell_{k}/cudnn_compatible_lstm_cell/{p}"]
            values[f"rnn/multi_rnn_cell/cell_{k}/lstm_cell/{p}"] = own
            values[f"rnn/multi_rnn_cell/cell_{k}/basic_lstm_cell/{p}"] = own
    got = run([y, z, h[1], last[1].h, c[0], last[0].c, again, w], values=values)
    for a, b in zip(got[::2], got[1::2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_cudnn_layers_in_both_directions() -> None:
    gru = tf.contrib.cudnn_rnn.CudnnGRU(2, 3, direction="bidirectional", dropout=0.5)
    y, (h,) = gru(tf.constant(ROWS), time_major=False, training=False)
    assert y.shape.as_list() == [2, 3, 6]
    assert h.shape.as_list() == [4, 2, 3]
    first = "cudnn_gru/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/cudnn_compatible_gru_cell/gates/kernel"
    assert next(iter(names())) == first
    got, last = run([y, h], values=drawn())
    np.testing.assert_allclose(got[:, -1, :3], last[2], rtol=1e-5)
    np.testing.assert_allclose(got[:, 0, 3:], last[3], rtol=1e-5)
    with pytest.raises(ValueError, match="direction should be"):
        tf.contrib.cudnn_rnn.CudnnRNNTanh(1, 2, direction="up")


@pytest.mark.parametrize(
    "make",
    [
        lambda: rnn.LayerNormBasicLSTMCell(3),
        lambda: rnn.NASCell(2),
        lambda: rnn.AttentionCellWrapper(rnn.GRUCell(2), 2),
    ],
)
def test_gradients_are_those_of_differences(make: Callable[[], Any]) -> None:
    x = tf.placeholder(tf.float64, [2, 2, 3])
    y, _ = tf.nn.dynamic_rnn(make(), x, dtype=tf.float64)
    loss = tf.reduce_sum(tf.sin(y))
    (grad,) = tf.gradients(loss, [x])
    at, values = ROWS[:, :2, :3].astype(np.float64), drawn()
    step = 1e-6 * np.random.default_rng(1).normal(size=at.shape)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for v in tf.global_variables():
            v.load(values[v.op.name], sess)
        high, low = (sess.run(loss, {x: at + s}) for s in (step, -step))
        np.testing.assert_allclose((high - low) / 2, (sess.run(grad, {x: at}) * step).sum(), rtol=1e-5)
