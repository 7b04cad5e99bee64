"""Gradients of each example by `hr.vmap`, compared with steps batched by hand.

Each program is written for one example, in several spellings of its products, and mapped: `hr.vmap(hr.grad(loss))`. By
hand it is written twice for a batch: with weights repeated for each example, whose gradient is that of the sum of the
losses; and with the backward pass as formulas. All are graphs, run through callables, in turns; the gradients are
compared first.

    python -m benchmarks --only per_example
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import headrace as hr
from benchmarks.measure import Result, in_turns

Weights = list[Any]
Call = Callable[[], list[np.ndarray]]


def per_example(repeats: int = 9) -> list[Result]:
    """Milliseconds of a step of each spelling, with the times by hand."""
    return [
        *_measured("MLP 64x128x128x10, batch 64", *_mlp(64, (64, 128, 128, 10)), repeats),
        *_measured("RNN 20 steps of 32, batch 32", *_rnn(32, 20, 32), repeats),
    ]


def _measured(
    title: str, given: Sequence[np.ndarray], mapped: Mapping[str, Any], by_hand: Mapping[str, Any], repeats: int
) -> list[Result]:
    calls = {name: _call(f, given) for name, f in {**mapped, **by_hand}.items()}
    first = next(iter(calls.values()))()
    for name, call in calls.items():
        for x, y in zip(call(), first, strict=True):
            np.testing.assert_allclose(x, y, rtol=2e-3, atol=2e-4, err_msg=f"{title}: {name}")
    seconds = dict(zip(calls, in_turns(list(calls.values()), repeats), strict=True))
    ms = {name: [1e3 * s for s in times] for name, times in seconds.items()}
    others = {name: ms[name] for name in by_hand}
    return [Result(f"{title}: vmap, {name}", "ms", ms[name], others=others) for name in mapped]


def _call(f: Callable[..., Sequence[Any]], given: Sequence[np.ndarray]) -> Call:
    """A callable of the step that computes `f` of the arrays."""
    with hr.Graph() as graph:
        fed = [hr.placeholder(hr.as_dtype(x.dtype), x.shape) for x in given]
        out = hr.tree.leaves(f(*fed))
        step = hr.Session(graph=graph).make_callable(out, fed)
    return lambda: step(*given)


def _normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)


# *** a network of dense layers ***

PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "x[None] @ w": lambda x, w: hr.reshape(hr.matmul(hr.expand_dims(x, 0), w), [-1]),
    "matvec": lambda x, w: hr.matvec(w, x, transpose_a=True),
    "tensordot": lambda x, w: hr.tensordot(x, w, 1),
    "einsum": lambda x, w: hr.einsum("i,io->o", x, w),
}


def _mlp(batch: int, sizes: Sequence[int]) -> tuple[list[np.ndarray], dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(0)
    weights = [_normal(rng, i, o) for i, o in itertools.pairwise(sizes)]
    x, y = _normal(rng, batch, sizes[0]), _normal(rng, batch, sizes[-1])

    def of_product(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        def loss(weights: Weights, x: Any, y: Any) -> Any:
            for w in weights[:-1]:
                x = hr.tanh(product(x, w))
            return hr.reduce_sum(hr.square(product(x, weights[-1]) - y))

        mapped = hr.vmap(hr.grad(loss), in_axes=(None, 0, 0))
        return lambda x, y, *weights: mapped(list(weights), x, y)

    def repeated(x: Any, y: Any, *weights: Any) -> Any:
        wide = [hr.tile(hr.expand_dims(w, 0), [batch, 1, 1]) for w in weights]
        h = hr.expand_dims(x, 1)
        for w in wide[:-1]:
            h = hr.tanh(hr.matmul(h, w))
        return hr.gradients(hr.reduce_sum(hr.square(hr.matmul(h, wide[-1])[:, 0] - y)), wide)

    def formulas(x: Any, y: Any, *weights: Any) -> Any:
        hs = [x]
        for w in weights[:-1]:
            hs.append(hr.tanh(hr.matmul(hs[-1], w)))
        d = 2.0 * (hr.matmul(hs[-1], weights[-1]) - y)
        grads = []
        for k in reversed(range(len(weights))):
            grads.append(hr.expand_dims(hs[k], 2) * hr.expand_dims(d, 1))
            if k:
                d = hr.matmul(d, weights[k], transpose_b=True) * (1.0 - hs[k] * hs[k])
        return grads[::-1]

    mapped = {name: of_product(f) for name, f in PRODUCTS.items()}
    return [x, y, *weights], mapped, {"weights repeated": repeated, "formulas": formulas}


# *** a recurrent network ***


def _rnn(batch: int, steps: int, size: int) -> tuple[list[np.ndarray], dict[str, Any], dict[str, Any]]:
    rng = np.random.default_rng(1)
    xs = _normal(rng, batch, steps, size)
    w, u = _normal(rng, size, size), _normal(rng, size, size)

    def of_product(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
        def loss(weights: Weights, xs: Any) -> Any:
            w, u = weights

            def step(i: Any, h: Any) -> Any:
                return i + 1, hr.tanh(product(h, u) + product(xs[i], w))

            return hr.reduce_sum(hr.while_loop(lambda i, h: i < steps, step, (0, hr.zeros([size])))[1])

        mapped = hr.vmap(hr.grad(loss), in_axes=(None, 0))
        return lambda xs, *weights: mapped(list(weights), xs)

    def scanned(xs: Any, *weights: Any) -> Any:
        def loss(weights: Weights, xs: Any) -> Any:
            w, u = weights
            cell = lambda h, x: hr.tanh(hr.tensordot(h, u, 1) + hr.tensordot(x, w, 1))
            return hr.reduce_sum(hr.scan(cell, xs, hr.zeros([size]))[-1])

        return hr.vmap(hr.grad(loss), in_axes=(None, 0))(list(weights), xs)

    def repeated(xs: Any, w: Any, u: Any) -> Any:
        wide = [hr.tile(hr.expand_dims(m, 0), [batch, 1, 1]) for m in (w, u)]
        rows = hr.transpose(xs, [1, 0, 2])

        def step(i: Any, h: Any) -> Any:
            return i + 1, hr.tanh(hr.matmul(h, wide[1]) + hr.matmul(hr.expand_dims(rows[i], 1), wide[0]))

        h = hr.while_loop(lambda i, h: i < steps, step, (0, hr.zeros([batch, 1, size])))[1]
        return hr.gradients(hr.reduce_sum(h), wide)

    def formulas(xs: Any, w: Any, u: Any) -> Any:
        """The backward pass as a loop, and products over all steps."""
        rows = hr.transpose(xs, [1, 0, 2])
        first = hr.zeros([batch, size])
        hs = hr.scan(lambda h, x: hr.tanh(hr.matmul(h, u) + hr.matmul(x, w)), rows, first)
        before = hr.concat([hr.expand_dims(first, 0), hs[:-1]], 0)

        def back(state: Any, h: Any) -> Any:
            _, dh = state
            d = dh * (1.0 - h * h)
            return d, hr.matmul(d, u, transpose_b=True)

        ds, _ = hr.scan(back, hs, (first, hr.ones([batch, size])), reverse=True)
        return [hr.einsum("tbi,tbo->bio", rows, ds), hr.einsum("tbi,tbo->bio", before, ds)]

    mapped: dict[str, Any] = {name: of_product(f) for name, f in PRODUCTS.items()}
    mapped["scan"] = scanned
    return [xs, w, u], mapped, {"weights repeated": repeated, "formulas": formulas}
