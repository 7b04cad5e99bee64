"""The programs in numpy, written by hand: the reference of compiled steps.

The functions are called as those of `in_graphs` are, with arrays for tensors. `name` gives the result alone,
`name_gradient` a list of it and its derivatives, by the arguments that `Program.by` names, in that order.

They use all knowledge of the whole program, and compute the same program:

* Work that does not depend on the state is moved out of a loop. An LSTM's inputs are multiplied by their half of the
  matrix before the loop, in one product; the derivative of a matrix is one product of stacked arrays after the loop;
  and the factors of the gates' derivatives are computed for all steps at once.
* Arrays are written in place, tapes are Python lists or arrays of the final size.
* Counters are Python integers, as is usual. Other numbers of rank 0 are `np.float32`: Python's
  own floats have 64 bits and would give other results.
* Operations that are scalar in the program stay scalar: a thousand additions are not made one of a vector.
"""

from __future__ import annotations

import functools
import itertools

import numpy as np

Array = np.ndarray


# *** scalars ***


def add(x: np.float32) -> np.float32:
    return x + np.float32(1.0)


def counting(n: int) -> int:
    n = int(n)
    i = 0
    while i < n:
        i += 1
    return i


def nested_scalars(n: int, m: int, x: np.float32, a: np.float32, b: np.float32) -> np.float32:
    n, m = int(n), int(m)
    i = 0
    while i < n:
        j = 0
        while j < m:
            x = x * a + b
            j += 1
        i += 1
    return x


def branches_gradient(n: int, x: np.float32, a: np.float32, b: np.float32) -> list[np.float32]:
    limit = np.float32(1.0)
    tape = []
    for _ in range(n):
        taken = x > limit
        tape.append((taken, x))
        x = x * a if taken else x + b
    dx, da, db = np.float32(1.0), np.float32(0.0), np.float32(0.0)
    for taken, before in reversed(tape):
        if taken:
            da += dx * before
            dx = dx * a
        else:
            db += dx
    return [x, dx, da, db]


def chain(n: int, x: np.float32, a: np.float32, b: np.float32) -> np.float32:
    for _ in range(n // 2):
        x = x * a
        x = x + b
    return x


def wide(n: int, x: np.float32) -> np.float32:
    terms = []
    for c0, c1, c2, c3 in _constants(n):
        terms += x * c0, x + c1, x - c2, c3 - x
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [a + b for a, b in zip(terms[::2], terms[1::2])] + odd
    return terms[0]


@functools.cache
def _constants(n: int) -> list[tuple[np.float32, ...]]:
    """The constants of `wide`, in fours: there are four kinds of terms."""
    c = [np.float32(k / n) for k in range(n)]
    return list(zip(*(c[k::4] for k in range(4)), strict=True))


# *** arrays ***


def elementwise(n: int, x: Array, y: Array) -> np.float32:
    half, limit = np.float32(0.5), np.float32(2.0)
    y = y.copy()
    for _ in range(n // 6):
        y *= x
        y -= half
        np.abs(y, out=y)
        y += x
        np.minimum(y, limit, out=y)
        y *= half
    return np.sum(y)


def rnn(n: int, h: Array, w: Array, b: Array) -> np.float32:
    for _ in range(n):
        h = np.dot(h, w)
        np.add(h, b, out=h)
        np.tanh(h, out=h)
    return np.sum(h * h)


def rnn_gradient(n: int, h: Array, w: Array, b: Array) -> list[Array]:
    batch, hidden = h.shape
    hs = np.empty((n + 1, batch, hidden), np.float32)
    hs[0] = h
    for before, now in itertools.pairwise(hs):
        np.dot(before, w, out=now)
        np.add(now, b, out=now)
        np.tanh(now, out=now)
    last = hs[n]
    dz = 1 - hs[1:] * hs[1:]  # becomes the derivative by what goes into tanh, a step at a time
    dh = 2 * last
    back = np.ascontiguousarray(w.T)
    for d in dz[::-1]:
        np.multiply(d, dh, out=d)
        dh = np.dot(d, back)
    rows = dz.reshape(-1, hidden)
    return [np.sum(last * last), dh, hs[:-1].reshape(-1, hidden).T @ rows, rows.sum(0)]


def lstm_gradient(n: int, xs: Array, h: Array, c: Array, w: Array, b: Array) -> list[Array]:
    _, batch, inputs = xs.shape
    hidden = h.shape[1]
    # sigmoid(z) = tanh(z / 2) / 2 + 1 / 2: with halves where a gate is a sigmoid, one tanh does all four
    scale = np.full(4 * hidden, 0.5, np.float32)
    scale[hidden : 2 * hidden] = 1.0
    shift = 1 - scale
    from_x, from_h = w[:inputs] * scale, w[inputs:] * scale
    gates = (xs.reshape(n * batch, inputs) @ from_x).reshape(n, batch, 4 * hidden)
    gates += b * scale
    i, j, f, o = (gates[:, :, k * hidden : (k + 1) * hidden] for k in range(4))
    hs = np.empty((n + 1, batch, hidden), np.float32)
    cs = np.empty_like(hs)
    squashed = np.empty_like(hs[1:])  # tanh(c)
    hs[0], cs[0] = h, c
    for z, i_t, j_t, f_t, o_t, c, after, squashed_t, h, out in zip(gates, i, j, f, o, cs, cs[1:], squashed, hs, hs[1:]):
        z += np.dot(h, from_h)
        np.tanh(z, out=z)
        z *= scale
        z += shift
        np.multiply(f_t, c, out=after)
        after += i_t * j_t
        np.tanh(after, out=squashed_t)
        np.multiply(o_t, squashed_t, out=out)

    # derivatives by c of i, j and f, and by h of o and c, of all steps
    by_c = np.stack([j * i * (1 - i), i * (1 - j * j), cs[:-1] * f * (1 - f)], axis=2)
    by_h = squashed * o * (1 - o)
    through = o * (1 - squashed * squashed)
    dz = np.empty((n, batch, 4, hidden), np.float32)
    rows = dz.reshape(n, batch, 4 * hidden)
    last = hs[n]
    dh, dc = 2 * last, np.zeros_like(last)
    back = w[inputs:].T
    steps = zip(dz[:, :, :3], dz[:, :, 3], rows, by_c, by_h, through, f, strict=True)
    for d_ijf, d_o, row, by_c_t, by_h_t, through_t, f_t in reversed(list(steps)):
        dc += dh * through_t
        np.multiply(by_c_t, dc[:, None], out=d_ijf)
        np.multiply(by_h_t, dh, out=d_o)
        dc *= f_t
        dh = np.dot(row, back)
    rows = rows.reshape(n * batch, 4 * hidden)
    dw = np.empty_like(w)
    np.matmul(xs.reshape(n * batch, inputs).T, rows, out=dw[:inputs])
    np.matmul(hs[:-1].reshape(n * batch, hidden).T, rows, out=dw[inputs:])
    return [np.sum(last * last), dw, rows.sum(0)]


# *** a network ***


def convnet_gradient(
    batch: int, layers: int, images: Array, labels: Array, w: Array, b: Array, **weights: Array
) -> list[Array]:
    x, tape = images, []
    for k in range(layers):
        filters = weights[f"filter{k}"]
        columns = _columns(x)
        z = np.dot(columns, filters.reshape(-1, filters.shape[-1]))
        z += weights[f"bias{k}"]
        np.maximum(z, 0, out=z)
        z = z.reshape(*x.shape[:3], -1)
        rows = np.maximum(z[:, 0::2], z[:, 1::2])
        x = np.maximum(rows[:, :, 0::2], rows[:, :, 1::2])
        tape.append((columns, filters, z, x))
    flat = x.reshape(batch, -1)
    logits = np.dot(flat, w) + b
    logits -= logits.max(1, keepdims=True)
    powers = np.exp(logits)
    sums = powers.sum(1)
    own = np.arange(batch)
    loss = np.mean(np.log(sums) - logits[own, labels])

    d = powers / sums[:, None]
    d[own, labels] -= 1
    d /= batch
    grads = [d.sum(0), np.dot(flat.T, d)]  # from the last to the first
    dx = np.dot(d, w.T).reshape(x.shape)
    for columns, filters, z, pooled in reversed(tape):
        n, height, width, channels = z.shape
        parts = z.reshape(n, height // 2, 2, width // 2, 2, channels)
        taken = parts == pooled[:, :, None, :, None]
        taken &= parts > 0  # where all are 0 there is more than one maximum, and no derivative
        dz = (dx[:, :, None, :, None] * taken).reshape(z.shape)
        rows = dz.reshape(-1, channels)
        grads += rows.sum(0), np.dot(columns.T, rows).reshape(filters.shape)
        if len(grads) < 2 * layers + 2:
            turned = filters[::-1, ::-1].swapaxes(2, 3).reshape(-1, filters.shape[2])
            dx = np.dot(_columns(dz), turned).reshape(*z.shape[:3], -1)
    return [loss, *reversed(grads)]


def _columns(x: Array) -> Array:
    """The windows 3x3 around each pixel, as rows of a matrix."""
    n, height, width, channels = x.shape
    framed = np.zeros((n, height + 2, width + 2, channels), x.dtype)
    framed[:, 1:-1, 1:-1] = x
    windows = np.lib.stride_tricks.sliding_window_view(framed, (3, 3), (1, 2))
    return windows.transpose(0, 1, 2, 4, 5, 3).reshape(-1, 9 * channels)
