"""GRU cells as one op: GRUBlockCell and its gradient.

Source: TensorFlow's ops of the same names; Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder"
(2014). One product computes the reset gate `r` and the update gate `u`, and another the new values `c`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace.dtypes import DType, float32
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, missing, op
from headrace.opkit.batch_rules import folding
from headrace.resources.values import shape_of
from headrace.shapes import Shape, merge_dim, show, with_rank

_IN = "x: T, h_prev: T, w_ru: T, w_c: T, b_ru: T, b_c: T"
_TYPES = {"T": frozenset({float32})}


def _check(args: Sequence[Any], more: Sequence[tuple[str, Any]] = ()) -> None:
    """Checks that the shapes of the inputs, and those of gates, go together."""
    x, h, *_ = args
    for name, a in (("x", x), ("h_prev", h)):
        if len(shape_of(a)) != 2:
            raise InvalidArgumentError(f"Rank of {name} must be 2, got {len(shape_of(a))}")
    batch, inputs = x.shape
    cells = h.shape[1]
    wanted = ((batch, cells), (inputs + cells, 2 * cells), (inputs + cells, cells), (2 * cells,), (cells,))
    pairs = zip(("h_prev", "w_ru", "w_c", "b_ru", "b_c"), args[1:], wanted, strict=True)
    for name, a, want in (*pairs, *((name, a, (batch, cells)) for name, a in more)):
        if len(shape_of(a)) != len(want):
            raise InvalidArgumentError(f"Rank of {name} must be {len(want)}, got {len(shape_of(a))}")
        if shape_of(a) != want:
            raise InvalidArgumentError(f"{name} must have the shape {show(want)}, got {show(shape_of(a))}")


def _cell(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(*args: Any) -> Any:
        _check(args)
        x, h, w_ru, w_c, b_ru, b_c = args
        gates = 1 / (1 + xp.exp(-(xp.concat([x, h], axis=1) @ w_ru + b_ru)))
        r, u = gates[:, : h.shape[1]], gates[:, h.shape[1] :]
        c = xp.tanh(xp.concat([x, h * r], axis=1) @ w_c + b_c)
        return r, u, c, u * h + (1 - u) * c

    return kernel


def _cell_grad(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(*args: Any) -> Any:
        _check(args[:6], [*list(zip("ruc", args[6:9], strict=True)), ("d_h", args[9])])
        x, h, w_ru, w_c, _, _, r, u, c, dh = args
        by_c, n = dh * (1 - u) * (1 - c * c), x.shape[1]
        both = by_c @ w_c.T
        dx_c, by_reset = both[:, :n], both[:, n:]
        gates = xp.concat([by_reset * h * r * (1 - r), dh * (h - c) * u * (1 - u)], axis=1)
        both = gates @ w_ru.T
        dx, dh_prev = both[:, :n], both[:, n:]
        return dx + dx_c, dh_prev + by_reset * r + dh * u, by_c, gates

    return kernel


def _cell_shape(c: Inference) -> Sequence[Shape]:
    batch, _ = with_rank(c.shapes[0], 2)
    rows, cells = with_rank(c.shapes[1], 2)
    return [(merge_dim(batch, rows), cells)] * 4


def _cell_grad_shape(c: Inference) -> Sequence[Shape]:
    batch, inputs = with_rank(c.shapes[0], 2)
    rows, cells = with_rank(c.shapes[1], 2)
    batch = merge_dim(batch, rows)
    return [(batch, inputs), (batch, cells), (batch, cells), (batch, None if cells is None else 2 * cells)]


Halves: TypeAlias = tuple[Callable[[], Any], Callable[[], Any]]


def _cell_rule(b: Any, n: Any, dr: Any, du: Any, dc: Any, dh: Any) -> list[Any]:
    one = np.float32(1)

    def through(y: Any, dy: Any) -> Any:
        """Gradient by the input of a sigmoid with the value `y`."""
        return b.Mul(dy, b.Mul(y, b.Sub(one, y)))

    def split(both: Any) -> Halves:
        """Functions that make the parts of `both` for the input and the previous output."""
        at = b.StridedSlice(b.Shape(n.x), [1], [2], [1], shrink_axis_mask=1)
        return (
            functools.cache(lambda: b.Slice(both, [0, 0], b.Pack([-1, at]))),
            functools.cache(lambda: b.Slice(both, b.Pack([0, at]), [-1, -1])),
        )

    by_c = b.Mul(b.AddV2(dc, b.Mul(dh, b.Sub(one, n.u))), b.Sub(one, b.Square(n.c)))

    @functools.cache
    def candidate() -> Halves:
        return split(b.MatMul(by_c, n.w_c, transpose_b=True))

    @functools.cache
    def gates() -> Any:
        by_r = through(n.r, b.AddV2(dr, b.Mul(candidate()[1](), n.h_prev)))
        by_u = through(n.u, b.AddV2(du, b.Mul(dh, b.Sub(n.h_prev, n.c))))
        return b.ConcatV2([by_r, by_u], 1)

    @functools.cache
    def both() -> Halves:
        return split(b.MatMul(gates(), n.w_ru, transpose_b=True))

    return [
        lambda: b.AddV2(both()[0](), candidate()[0]()),
        lambda: b.AddN([both()[1](), b.Mul(candidate()[1](), n.r), b.Mul(dh, n.u)]),
        lambda: b.MatMul(b.ConcatV2([n.x, n.h_prev], 1), gates(), transpose_a=True),
        lambda: b.MatMul(b.ConcatV2([n.x, b.Mul(n.h_prev, n.r)], 1), by_c, transpose_a=True),
        lambda: b.Sum(gates(), [0], keep_dims=False),
        lambda: b.Sum(by_c, [0], keep_dims=False),
    ]


def _by_hand(*args: Any) -> list[np.ndarray]:
    x, h, w_ru, w_c, b_ru, b_c = (np.asarray(a, np.float64) for a in args)
    rows, cells = h.shape
    out = [np.zeros((rows, cells)) for _ in range(4)]
    for k in range(rows):
        seen = [*x[k], *h[k]]
        gates = [
            1 / (1 + math.exp(-(b_ru[g] + math.fsum(v * w_ru[j, g] for j, v in enumerate(seen)))))
            for g in range(2 * cells)
        ]
        seen = [*x[k], *(v * r for v, r in zip(h[k], gates, strict=False))]
        for g in range(cells):
            c = math.tanh(b_c[g] + math.fsum(v * w_c[j, g] for j, v in enumerate(seen)))
            u = gates[cells + g]
            for to, v in zip(out, (gates[g], u, c, u * h[k, g] + (1 - u) * c), strict=True):
                to[k, g] = v
    return out


def _grad_oracle(*args: Any) -> tuple[np.ndarray, ...]:
    """Differences of the cell; by biases of each row alone where the op says gates."""
    inputs, dh = [a.astype(np.float64) for a in args[:6]], args[9].astype(np.float64)

    def by(k: int, rows: slice) -> np.ndarray:
        out = np.zeros(inputs[k].shape)
        for at in np.ndindex(out.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = [a.copy() for a in inputs]
                moved[k][at] += step
                ends.append(float(np.sum(_by_hand(*moved)[3][rows] * dh[rows])))
            out[at] = (ends[0] - ends[1]) / 2e-5
        return out

    every = slice(None)
    each = [slice(r, r + 1) for r in range(len(dh))]
    found = (by(0, every), by(1, every), np.array([by(5, r) for r in each]), np.array([by(4, r) for r in each]))
    return tuple(f.astype(np.float32) for f in found)


def _inputs(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.uniform(-1, 1, s).astype(np.float32) for s in ((2, 3), (2, 2), (5, 4), (5, 2), (4,), (2,))]


def _cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(*_inputs(rng))]


def _grad_cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    inputs = _inputs(rng)
    made = [y.astype(np.float32) for y in _by_hand(*inputs)[:3]]
    return [case(*inputs, *made, rng.uniform(-1, 1, (2, 2)).astype(np.float32))]


_FACTS = Facts(cost=flops_per_input(500), blas=True)

op(
    "GRUBlockCell",
    _IN,
    "r: T, u: T, c: T, h: T",
    _TYPES,
    shape=_cell_shape,
    kernel=_cell,
    xp=True,
    grad=_cell_rule,
    batch=folding(0, 1),
    facts=_FACTS,
    oracle=lambda *args: tuple(y.astype(np.float32) for y in _by_hand(*args)),
    sample=_cases,
    doc="A step of a GRU: its gates, the new values and its output.",
)
op(
    "GRUBlockCellGrad",
    f"{_IN}, r: T, u: T, c: T, d_h: T",
    "d_x: T, d_h_prev: T, d_c_bar: T, d_r_bar_u_bar: T",
    _TYPES,
    shape=_cell_grad_shape,
    kernel=_cell_grad,
    xp=True,
    grad=missing("the gradient of a GRU has no gradient; build the cell from MatMul, Sigmoid and Tanh for that"),
    facts=_FACTS,
    oracle=_grad_oracle,
    sample=_grad_cases,
    doc="The gradients of GRUBlockCell by its inputs, and by the new values and the gates before they are squashed.",
)
