"""Attention against numpy: dot products, several heads, a memory, and cells with attention."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api.rnn import attention, cells, dynamic, memory
from headrace.errors import ShapeError


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def by_hand(q: Any, k: Any, v: Any, allowed: Any = None, scale: float | None = None) -> np.ndarray:
    """Query by query, with only the keys that it may look at."""
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2])
    q, k, v = (np.broadcast_to(x, lead + x.shape[-2:]) for x in (q, k, v))
    shape = (*lead, q.shape[-2], k.shape[-2])
    allowed = np.broadcast_to(True if allowed is None else allowed, shape)
    out = np.zeros((*lead, q.shape[-2], v.shape[-1]))
    for at in np.ndindex(*lead, q.shape[-2]):
        seen = allowed[at]
        if seen.any():
            scores = k[at[:-1]][seen] @ q[at] * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
            out[at] = softmax(scores) @ v[at[:-1]][seen]
    return out


Q, K, V = floats(2, 3, 4, 5), floats(2, 3, 6, 5, seed=1), floats(2, 3, 6, 7, seed=2)


@pytest.mark.parametrize("scale", [None, 0.3])
def test_dot_products(scale: float | None) -> None:
    """With masks of all kinds; in a graph whose sizes are not known, too."""
    rng = np.random.default_rng(3)
    masks = [None, rng.random((4, 6)) < 0.5, rng.random((2, 1, 4, 6)) < 0.3, np.zeros((4, 6), bool)]
    for mask in masks:
        for causal in (False, True):
            allowed = np.ones((4, 6), bool) if mask is None else mask
            if causal:
                allowed = allowed & (np.arange(6) <= np.arange(4)[:, None])
            wanted = by_hand(Q, K, V, allowed, scale)
            got = attention.scaled_dot_product_attention(Q, K, V, mask, causal=causal, scale=scale)
            np.testing.assert_allclose(got.numpy(), wanted, atol=1e-12)
            with hr.Graph() as g:
                shapes = [(None, None, None, x.shape[-1]) for x in (Q, K, V)]
                fed = [hr.placeholder(hr.float64, s) for s in shapes]
                y = attention.scaled_dot_product_attention(*fed, mask, causal=causal, scale=scale)
            found = hr.Session(graph=g).run(y, dict(zip(fed, (Q, K, V), strict=True)))
            np.testing.assert_allclose(found, wanted, atol=1e-12)
    added = rng.normal(size=(4, 6))
    scores = np.einsum("abqd,abkd->abqk", Q, K) * (1 / np.sqrt(5) if scale is None else scale) + added
    got = attention.scaled_dot_product_attention(Q, K, V, added, scale=scale)
    np.testing.assert_allclose(got.numpy(), softmax(scores) @ V, atol=1e-12)


def test_attention_gradients_match_differences() -> None:
    """Finite where a query sees nothing, and right elsewhere."""
    mask = np.array([[True, False, True], [False, False, False]])

    def f(q: Any, k: Any, v: Any) -> Any:
        return hr.reduce_sum(hr.sin(attention.scaled_dot_product_attention(q, k, v, mask)))

    hr.check_gradients(f, [floats(2, 4), floats(3, 4, seed=1), floats(3, 2, seed=2)])


def test_dropout_and_mistakes() -> None:
    """Weights are dropped, not values; a depth must be known."""
    ones = np.ones((1, 400), np.float32)
    y = attention.scaled_dot_product_attention(ones[:, :2], np.ones((400, 2), np.float32), ones.T, dropout=0.5, seed=4)
    total = round(float(y.numpy()[0, 0]) * 200)  # each weight left is 2 / 400
    assert abs(total - 200) < 50
    assert total != 200
    with hr.Graph():
        x = hr.placeholder(hr.float32, (None, None))
    with pytest.raises(ShapeError, match="depth of queries"):
        attention.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("use_bias", [False, True])
def test_several_heads(use_bias: bool) -> None:
    """Each head is attention of its own projections.

    The last projection adds up the results.
    """
    layer = attention.MultiHeadAttention(3, 4, value_dim=2, output_size=6, use_bias=use_bias)
    x, y, z = floats(2, 5, 8), floats(2, 7, 3, seed=1), floats(2, 7, 9, seed=2)
    mask = np.random.default_rng(5).random((2, 5, 7)) < 0.6
    layer(x, y, z)
    names = [v.name.removeprefix("multi_head_attention/").removesuffix(":0") for v in layer.variables]
    for k, v in enumerate(layer.variables):
        v.assign(floats(*v.shape, seed=k + 10))
    w = dict(zip(names, [v.numpy() for v in layer.variables], strict=True))
    assert w["value/kernel"].shape == (3, 3, 2)
    out: Any = w.get("attention_output/bias", 0.0)
    weights = []
    for h in range(3):
        q, k, v = (
            given @ w[f"{what}/kernel"][:, h] + (w[f"{what}/bias"][h] if use_bias else 0)
            for what, given in (("query", x), ("key", z), ("value", y))
        )
        out = out + by_hand(q, k, v, mask) @ w["attention_output/kernel"][h]
        weights.append(by_hand(q, k, np.broadcast_to(np.eye(7), (2, 7, 7)), mask))
    got, seen = layer(x, y, z, mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(got.numpy(), out, atol=1e-10)
    np.testing.assert_allclose(seen.numpy(), np.stack(weights, 1), atol=1e-12)
    alone = layer(x[0], y[0], z[0], mask=mask[0])  # without a batch
    np.testing.assert_allclose(alone.numpy(), out[0], atol=1e-10)
    with pytest.raises(TypeError, match="queries and values"):
        layer(x)


MEMORY = floats(2, 5, 3)
LENGTHS = [5, 2]


@pytest.mark.parametrize("kind", ["additive", "normalized", "multiplicative", "scaled"])
def test_a_memory(kind: str) -> None:
    """Scores equal their definitions, and values beyond the lengths have no effect."""
    spoilt = MEMORY.copy()
    spoilt[1, 2:] = np.nan
    if kind in ("additive", "normalized"):
        layer: Any = memory.BahdanauAttention(4, spoilt, LENGTHS, normalize=kind == "normalized")
    else:
        layer = memory.LuongAttention(4, spoilt, LENGTHS, scale=kind == "scaled")
    query = floats(2, 4 if kind in ("multiplicative", "scaled") else 6, seed=1)
    layer(query)
    w = {v.name.partition("/")[2].removesuffix(":0"): v for v in layer.variables}
    for k, v in enumerate(w.values()):
        v.assign(floats(*v.shape, seed=k + 2))
    n = {name: v.numpy() for name, v in w.items()}
    context, weights = layer(query)
    for b, length in enumerate(LENGTHS):
        keys = MEMORY[b, :length] @ n["memory_layer/kernel"]
        if kind in ("additive", "normalized"):
            both = keys + query[b] @ n["query_layer/kernel"]
            v = n["attention_v"]
            if kind == "normalized":
                both, v = both + n["attention_b"], n["attention_g"] * v / np.linalg.norm(v)
            scores = np.tanh(both) @ v
        else:
            scores = keys @ query[b] * n.get("attention_g", 1.0)
        wanted = softmax(scores)
        np.testing.assert_allclose(weights.numpy()[b], [*wanted, *[0] * (5 - length)], atol=1e-12)
        np.testing.assert_allclose(context.numpy()[b], wanted @ MEMORY[b, :length], atol=1e-12)
    values = [v.numpy() for v in layer.variables]
    hr.check_gradients(lambda *v: hr.reduce_sum(hr.sin(layer.with_values(v)(query)[0])), values, order=1)


def test_a_cell_that_looks_at_a_memory() -> None:
    """Each step equals the definition, within `dynamic_rnn`, with lengths.

    The weights of all steps are compared too.
    """
    x = floats(2, 4, 3, seed=7)
    with hr.Graph(ordered=False) as g:
        hr.random.set_seed(1)
        inner = cells.GRUCell(4, dtype=hr.float64)
        mechanism = memory.BahdanauAttention(5, MEMORY, LENGTHS)
        cell = memory.AttentionWrapper(inner, mechanism, attention_layer_size=6, alignment_history=True)
        y, state = dynamic.dynamic_rnn(cell, x, [4, 2], dtype=hr.float64)
        history = state.alignment_history.stack()
        found = [y, state.cell_state, state.attention, state.time, state.alignments, history]
        gradients = hr.gradients(hr.reduce_sum(y), g.variables)
        assert all(d is not None for d in gradients)
        now, attention_, ys = cell.zero_state(2, hr.float64).cell_state, hr.zeros((2, 6), hr.float64), []
        kernel = next(v for v in g.variables if "attention_layer" in v.name)
        for t in range(4):
            output, now = inner(hr.concat([x[:, t], attention_], 1), now)
            context, weights = mechanism(output)
            attention_ = hr.matmul(hr.concat([output, context], 1), kernel)
            ys.append((attention_, now, weights))
    with hr.Session(graph=g) as session:
        session.run([v.initializer for v in g.variables])
        (y, last, attended, time, alignments, history), ys, gradients = session.run([found, ys, gradients])
    assert time == 4
    for t, (a, s, w) in enumerate(ys):
        np.testing.assert_allclose(y[0, t], a[0], atol=1e-12)
        np.testing.assert_allclose(history[t, 0], w[0], atol=1e-12)
        np.testing.assert_allclose(y[1, t], a[1] if t < 2 else 0 * a[1], atol=1e-12)
        if t == 1:
            np.testing.assert_allclose([*last[1], *attended[1], *alignments[1]], [*s[1], *a[1], *w[1]], atol=1e-12)
    names = sorted(v.name for v in g.variables)
    assert names[0] == "rnn/attention_wrapper/attention_layer/kernel:0"
    assert "rnn/attention_wrapper/gru_cell/gates/kernel:0" in names
    assert "rnn/attention_wrapper/bahdanau_attention/memory_layer/kernel:0" in names
    assert all(np.isfinite(d).all() for d in gradients)
    with pytest.raises(TypeError, match="attention_mechanism"):
        memory.AttentionWrapper(cells.GRUCell(4), cells.GRUCell(4))
    with pytest.raises(ShapeError, match="set num_units"):
        memory.LuongAttention(4, MEMORY)(floats(2, 3))
