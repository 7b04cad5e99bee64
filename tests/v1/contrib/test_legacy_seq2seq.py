"""`tf.contrib.legacy_seq2seq`: names of variables, attention by its formula, feeding of outputs, losses, buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.contrib.running import drawn, names, run, sigmoid, softmax

pytestmark = pytest.mark.system  # networks, which take their time to compile

legacy = tf.contrib.legacy_seq2seq
ROWS = np.random.default_rng(0).normal(size=(3, 2, 4)).astype(np.float32)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def steps(n: int = 3) -> list[Any]:
    return [tf.constant(x) for x in ROWS[:n]]


def ids(n: int = 3) -> list[Any]:
    return [tf.constant(x, tf.int32) for x in np.arange(2 * n).reshape(n, 2) % 5]


def test_basic_and_tied_networks() -> None:
    legacy.basic_rnn_seq2seq(steps(), steps(2), tf.nn.rnn_cell.GRUCell(4))
    assert list(names())[::4] == [
        "basic_rnn_seq2seq/rnn/gru_cell/gates/kernel", "basic_rnn_seq2seq/rnn_decoder/gru_cell/gates/kernel",
    ]  # fmt: skip
    tf.reset_default_graph()
    outputs, _ = legacy.tied_rnn_seq2seq(steps(), steps(2), tf.nn.rnn_cell.BasicRNNCell(4), lambda y, _: y)
    home = "combined_tied_rnn_seq2seq/tied_rnn_seq2seq/basic_rnn_cell"
    assert list(names()) == [f"{home}/kernel", f"{home}/bias"]
    v = drawn()
    h = np.zeros((2, 4))
    inputs = [*ROWS, ROWS[0]]
    for x in inputs:
        h = np.tanh(np.concatenate([x, h], 1) @ v[f"{home}/kernel"] + v[f"{home}/bias"])
    first, second = run(outputs, values=v)
    np.testing.assert_allclose(first, h, rtol=1e-3, atol=1e-5)
    h = np.tanh(np.concatenate([h, h], 1) @ v[f"{home}/kernel"] + v[f"{home}/bias"])
    np.testing.assert_allclose(second, h, rtol=1e-3, atol=1e-5)


def test_attention_follows_its_formula() -> None:
    memory = np.random.default_rng(1).normal(size=(2, 5, 3)).astype(np.float32)
    start = tf.constant(ROWS[2])
    outputs, _ = legacy.attention_decoder(
        steps(2), start, tf.constant(memory), tf.nn.rnn_cell.GRUCell(4), output_size=2, initial_state_attention=True
    )
    home = "attention_decoder"
    assert names() == {
        f"{home}/AttnW_0": [1, 1, 3, 3], f"{home}/AttnV_0": [3], f"{home}/Attention_0/kernel": [4, 3],
        f"{home}/Attention_0/bias": [3], f"{home}/kernel": [7, 4], f"{home}/bias": [4],
        f"{home}/gru_cell/gates/kernel": [8, 8], f"{home}/gru_cell/gates/bias": [8],
        f"{home}/gru_cell/candidate/kernel": [8, 4], f"{home}/gru_cell/candidate/bias": [4],
        f"{home}/AttnOutputProjection/kernel": [7, 2], f"{home}/AttnOutputProjection/bias": [2],
    }  # fmt: skip
    values = drawn()
    v = {k.removeprefix(f"{home}/"): a for k, a in values.items()}

    def attention(h: np.ndarray) -> np.ndarray:
        query = h @ v["Attention_0/kernel"] + v["Attention_0/bias"]
        weights = softmax((v["AttnV_0"] * np.tanh(memory @ v["AttnW_0"][0, 0] + query[:, None])).sum(-1))
        found: np.ndarray = np.einsum("bt,btd->bd", weights, memory)
        return found

    h, got = ROWS[2], run(outputs, values=values)
    attended = attention(h)
    for t in range(2):
        x = np.concatenate([ROWS[t], attended], 1) @ v["kernel"] + v["bias"]
        both = np.concatenate([x, h], 1)
        r, u = np.split(sigmoid(both @ v["gru_cell/gates/kernel"] + v["gru_cell/gates/bias"]), 2, 1)
        new = np.concatenate([x, r * h], 1) @ v["gru_cell/candidate/kernel"] + v["gru_cell/candidate/bias"]
        h = u * h + (1 - u) * np.tanh(new)
        attended = attention(h)
        out = np.concatenate([h, attended], 1) @ v["AttnOutputProjection/kernel"] + v["AttnOutputProjection/bias"]
        np.testing.assert_allclose(got[t], out, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ["embedding_rnn_seq2seq", "embedding_attention_seq2seq", "embedding_tied_rnn_seq2seq"])
def test_embedded_networks_feed_their_outputs_back(name: str) -> None:
    """A flag that is a tensor chooses between both forms."""
    sizes = (5, 4) if "tied" in name else (5, 5, 4)

    def model(flag: Any) -> list[Any]:
        made: list[Any] = getattr(legacy, name)(ids(), ids(2), tf.nn.rnn_cell.GRUCell(3), *sizes, feed_previous=flag)[0]
        return made

    flag = tf.placeholder(tf.bool, [])
    either = model(flag)
    known = dict(names())
    with tf.variable_scope("", reuse=True):
        own, given = model(True), model(False)
    assert names() == known
    assert any(n.endswith("output_projection_wrapper/kernel") for n in known)
    v = drawn()
    first, second = run(either, {flag: True}, v), run(either, {flag: False}, v)
    np.testing.assert_allclose(first, run(own, values=v), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, run(given, values=v), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(first[0], second[0], rtol=1e-5, atol=1e-6)
    assert not np.allclose(first[1], second[1])


def test_losses() -> None:
    rng = np.random.default_rng(3)
    logits, targets = rng.normal(size=(3, 2, 5)), rng.integers(0, 5, (3, 2))
    weights = np.array([[1.0, 1.0], [1.0, 0.5], [0.0, 1.0]])
    losses = -np.log(np.take_along_axis(softmax(logits), targets[..., None], 2))[..., 0] * weights
    given = [[tf.constant(a) for a in x] for x in (logits, targets, weights)]
    got = run(
        [
            legacy.sequence_loss_by_example(*given),
            legacy.sequence_loss(*given),
            legacy.sequence_loss(*given, average_across_timesteps=False, average_across_batch=False),
        ]
    )
    np.testing.assert_allclose(got[0], losses.sum(0) / weights.sum(0), rtol=1e-6)
    np.testing.assert_allclose(got[1], (losses.sum(0) / weights.sum(0)).mean(), rtol=1e-6)
    np.testing.assert_allclose(got[2], losses.sum(), rtol=1e-6)
    with pytest.raises(ValueError, match="must be the same 3, 3, 2"):
        legacy.sequence_loss(given[0], given[1][:2], given[2])


def test_buckets_share_their_variables() -> None:
    def model(inputs: Any, targets: Any) -> Any:
        return legacy.embedding_rnn_seq2seq(inputs, targets, tf.nn.rnn_cell.GRUCell(3), 5, 5, 4)

    weights = [tf.ones([2])] * 3
    outputs, losses = legacy.model_with_buckets(ids(), ids(), ids(), weights, [(2, 1), (3, 3)], model)
    assert [len(o) for o in outputs] == [1, 3]
    assert len(names()) == len(set(names())) == 12
    assert np.isfinite(run(losses)).all()
    with pytest.raises(ValueError, match="must be at least that of last bucket"):
        legacy.model_with_buckets(ids(2), ids(), ids(), weights, [(3, 3)], model)
