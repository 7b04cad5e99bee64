"""The programs in JAX. The trips are known when a function is compiled, so that its loops can be differentiated."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax, nn


def power(n: int, x: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, y: y * x, jnp.float32(1.0))


def rnn(n: int, h: Any, w: Any, b: Any) -> Any:
    h = lax.fori_loop(0, n, lambda i, h: jnp.tanh(h @ w + b), h)
    return jnp.sum(h * h)


def lstm(n: int, xs: Any, h: Any, c: Any, w: Any, b: Any) -> Any:
    def step(state: Any, x: Any) -> Any:
        h, c = state
        i, j, f, o = jnp.split(jnp.concatenate([x, h], 1) @ w + b, 4, 1)
        c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(j)
        return (nn.sigmoid(o) * jnp.tanh(c), c), None

    (h, _), _ = lax.scan(step, (h, c), xs, n)
    return jnp.sum(h * h)


def branches(n: int, x: Any, a: Any, b: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: lax.cond(x > 1.0, lambda: x * a, lambda: x + b), x)


def nested(n: int, m: int, h: Any, w: Any, b: Any) -> Any:
    def inner(h: Any) -> Any:
        return lax.fori_loop(0, m, lambda j, h: jnp.tanh(h @ w), h)

    h = lax.fori_loop(0, n, lambda i, h: inner(h) + b, h)
    return jnp.sum(h * h)
