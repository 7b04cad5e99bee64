"""Programs of complex numbers with loops, for tests and measurements of native code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr

#: Fetches and feeds, in the graph that is entered.
Program = tuple[list[Any], dict[Any, Any]]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Normal complex numbers."""
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(hr.as_dtype(dtype).numpy)[()]


def _fed(value: Any) -> tuple[Any, Any]:
    return hr.placeholder(hr.as_dtype(np.asarray(value).dtype), np.shape(value)), value


def _real(dtype: Any) -> Any:
    return hr.float32 if dtype == hr.complex64 else hr.float64


def _with_slopes(loss: Any, wanted: list[Any], feeds: list[tuple[Any, Any]], *fetches: Any) -> Program:
    return [*fetches, loss, *hr.gradients(loss, wanted)], dict(feeds)


def mandelbrot(rng: np.random.Generator, dtype: Any, size: int = 16, trips: int = 10) -> Program:
    """z² + c, repeated, for an array of c."""
    c, n = _fed(numbers(rng, (size,), dtype) * 0.06), _fed(np.int32(trips))
    z = hr.while_loop(lambda i, z: i < n[0], lambda i, z: (i + 1, z * z + c[0]), [0, hr.zeros([size], dtype)])[1]
    return _with_slopes(hr.reduce_sum(hr.real(z * hr.conj(z))), [c[0]], [c, n], z)


def escape(rng: np.random.Generator, dtype: Any, trips: int = 30) -> Program:
    """z² + c for one number until |z| is 2, and choices behind it."""
    c = _fed(hr.as_dtype(dtype).numpy.type(0.4 + 0.3j))
    i, z = hr.while_loop(
        lambda i, z: hr.logical_and(i < trips, hr.abs(z) < 2.0), lambda i, z: (i + 1, z * z + c[0]), [0, c[0]]
    )
    chosen = hr.cond(hr.real(z) > 0.0, lambda: z * 2.0, lambda: hr.conj(z) / c[0])
    return [i, z, chosen, hr.not_equal(z, chosen)], dict([c])


def oscillator(rng: np.random.Generator, dtype: Any, trips: int = 12) -> Program:
    """The amplitude of damped oscillators under a force, by exponentials."""
    rate, start = _fed(numbers(rng, (5,), dtype) * 0.2 - 0.3), _fed(numbers(rng, (5,), dtype))
    force = _fed(numbers(rng, (trips, 5), dtype))
    z = hr.while_loop(
        lambda i, z: i < trips, lambda i, z: (i + 1, z * hr.exp(rate[0]) + force[0][i] * 0.1), [0, start[0]]
    )[1]
    return _with_slopes(hr.reduce_mean(hr.square(hr.abs(z))), [rate[0], start[0]], [rate, start, force], z)


def fourier(rng: np.random.Generator, dtype: Any, n: int = 8) -> Program:
    """The discrete Fourier transform by its definition; the sums are elements of a list."""
    x = _fed(numbers(rng, (n,), dtype))
    at = hr.cast(hr.range(n), _real(dtype)) * (-2 * np.pi / n)

    def body(k: Any, sums: Any) -> Any:
        angles = at * hr.cast(k, _real(dtype))
        return k + 1, sums.write(k, hr.reduce_sum(x[0] * hr.exp(hr.complex(hr.zeros_like(angles), angles))))

    sums = hr.while_loop(lambda k, s: k < n, body, [0, hr.TensorArray(dtype, n, element_shape=[])])[1].stack()
    return _with_slopes(hr.reduce_sum(hr.square(hr.abs(sums))), [x[0]], [x], sums)


def recurrent(
    rng: np.random.Generator, dtype: Any, steps: int = 6, batch: int = 4, width: int = 8, units: int = 16
) -> Program:
    """A recurrent network whose activation bounds the absolute value."""
    xs, w, u = (_fed(numbers(rng, s, dtype) * 0.3) for s in ((steps, batch, width), (units, units), (width, units)))

    def body(t: Any, h: Any, ys: Any) -> Any:
        h = hr.matmul(h, w[0]) + hr.matmul(xs[0][t], u[0])
        h = h / hr.cast(hr.abs(h) + 1.0, dtype)
        return t + 1, h, ys.write(t, h)

    ys = hr.TensorArray(dtype, steps, element_shape=[batch, units])
    _, h, ys = hr.while_loop(lambda t, h, ys: t < steps, body, [0, hr.zeros([batch, units], dtype), ys])
    found = ys.stack()
    loss = hr.reduce_mean(hr.square(hr.real(found)) + hr.square(hr.imag(found)))
    return _with_slopes(loss, [xs[0], w[0], u[0]], [xs, w, u], h)


def moves(rng: np.random.Generator, dtype: Any) -> Program:
    """Views, copies, packs, gathers and scatters in a loop."""
    x = _fed(numbers(rng, (4, 3), dtype))

    def body(i: Any, z: Any) -> Any:
        row = z[i % 4]
        turned = hr.transpose(hr.reverse(z, [1]))
        packed = hr.stack([row, hr.conj(row)])
        joined = hr.concat([packed, z[:2]], 0)
        picked = hr.gather(joined, hr.stack([i % 4, (i + 1) % 4]))
        updated = hr.tensor_scatter_nd_add(z, [[1], [1]], picked)
        padded = hr.pad(turned[:2], [[0, 1], [0, 0]])
        chosen = hr.where(hr.real(updated) > 0.1, updated, hr.transpose(padded) * 0.5)
        return i + 1, chosen / hr.cast(hr.abs(chosen) + 1.0, dtype)

    z = hr.while_loop(lambda i, z: i < 5, body, [0, x[0]])[1]
    sums = [hr.reduce_sum(z, 0), hr.reduce_mean(z, 1, keepdims=True), hr.reduce_sum(z), hr.reduce_mean(z)]
    return _with_slopes(hr.reduce_sum(hr.abs(z)), [x[0]], [x], z, *sums)


PROGRAMS: dict[str, Callable[..., Program]] = {
    f.__name__: f for f in (mandelbrot, escape, oscillator, fourier, recurrent, moves)
}
