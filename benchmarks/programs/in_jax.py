"""The programs in JAX.

The trip counts are constants of a compiled function, so that its loops can be differentiated.
"""

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


# *** scalars; a limit may be an argument where nothing is differentiated ***


def counting(n: Any) -> Any:
    return lax.while_loop(lambda i: i < n, lambda i: i + 1, 0)


def nested_scalars(n: Any, m: Any, x: Any, a: Any, b: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: lax.fori_loop(0, m, lambda j, x: x * a + b, x), x)


def sine(n: int, x: Any, a: Any, b: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: jnp.sin(x) * a + b, x)


def exponential(n: int, x: Any, a: Any, b: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: jnp.exp(-x) * a + b, x)


def remainder(n: int, x: Any, a: Any, b: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: (x * a + b) % 2.0, x)


def where(n: int, x: Any, a: Any, b: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: jnp.where(x > 1.0, x * a, x + b), x)


def cond_sine(n: int, x: Any, a: Any, b: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, x: lax.cond(x > 1.0, lambda: jnp.sin(x) * a, lambda: x + b), x)


def nested_conds(n: int, x: Any, a: Any, b: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        def large() -> Any:
            return lax.cond(x > 1.5, lambda: x * a, lambda: jnp.sin(x) * a)

        return lax.cond(x > 1.0, large, lambda: x + b)

    return lax.fori_loop(0, n, body, x)


def case(n: int, x: Any, a: Any, b: Any) -> Any:
    def body(i: Any, x: Any) -> Any:
        which = jnp.where(i % 3 == 0, 0, jnp.where(x > 1.0, 1, 2))
        return lax.switch(which, [lambda: x * a, lambda: jnp.sin(x), lambda: x + b])

    return lax.fori_loop(0, n, body, x)


def three_deep(n: int, x: Any, a: Any, b: Any) -> Any:
    def loop(body: Any) -> Any:
        return lambda _, x: lax.fori_loop(0, n, body, x)

    return loop(loop(loop(lambda k, x: x * a + b)))(0, x)


def three_deep_conds(n: int, x: Any, a: Any, b: Any) -> Any:
    def loop(body: Any) -> Any:
        return lambda _, x: lax.fori_loop(0, n, body, x)

    inner = loop(lambda k, x: lax.cond(x > 1.0, lambda: jnp.sin(x) * a, lambda: x + b))
    return loop(loop(inner))(0, x)
