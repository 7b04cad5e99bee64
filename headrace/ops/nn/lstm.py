"""LSTM cells and layers as single ops: LSTMBlockCell, BlockLSTM, BlockLSTMV2, and their gradients.

Source: TensorFlow's ops of the same names; Zaremba et al., "Recurrent Neural Network Regularization" (2014). A product
of the input and the previous output with the weights computes all four gates at once: the input gate `i`, the new
values `ci`, the forget gate `f` and the output gate `o`, in this order (in BlockLSTMV2 `f` before `ci`). With peepholes
the gates also depend on the cell's state. Gradients ignore the clipping of a state, as in TensorFlow. Half precision is
computed in float32.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from headrace.dtypes import DType, float16, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, bool_attr, case, missing, op
from headrace.opkit.arrays import check_size
from headrace.opkit.batch_rules import folding
from headrace.opkit.namespaces import converter, dtype_in, number
from headrace.resources.values import int_of, shape_of
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank

Array: TypeAlias = np.ndarray

_TYPES: Final = frozenset({float16, float32})
_IN: Final = "cs_prev: T, h_prev: T, w: T, wci: T, wcf: T, wco: T, b: T"
_OUT: Final = "i: T, cs: T, f: T, o: T, ci: T, co: T, h: T"
_PEEPHOLES: Final = ("wci", "wcf", "wco")
_ORDER: Final = (0, 1, 2, 3)  # where i, ci, f and o lie among the gates
_ORDER_V2: Final = (0, 2, 1, 3)


# *** One step ***


@functools.cache
def _sigmoid(xp: Any) -> Callable[[Array], Array]:
    widen, back = converter(xp, float64), converter(xp, float32)

    def sigmoid(x: Array) -> Array:
        # in double precision, so that 1 - y, which gradients use, is exact near y = 1
        out: Array = back(1 / (1 + xp.exp(-widen(x))))
        return out

    return sigmoid


class _Cell:
    """A cell with its weights, which are float32.

    Args:
      xp: the array namespace.
      w, b: of the product.
      peepholes: of `i`, `f` and `o`; None if there are none.
      order: where `i`, `ci`, `f` and `o` lie among the gates.
    """

    def __init__(self, xp: Any, w: Array, b: Array, peepholes: Sequence[Array] | None, order: Sequence[int]) -> None:
        self.w, self.b, self.peepholes = w, b, peepholes
        self._xp, self._order, self._sigmoid = xp, order, _sigmoid(xp)

    def parts(self, gates: Array) -> list[Array]:
        """The parts of `[batch, 4 * cells]` for `i`, `ci`, `f` and `o`; views."""
        n = gates.shape[-1] // 4
        return [gates[:, k * n : (k + 1) * n] for k in self._order]

    def step(self, x: Array, cs_prev: Array, h_prev: Array, forget_bias: float, clip: float) -> tuple[Array, ...]:
        """`i`, `cs`, `f`, `o`, `ci`, `co` and `h`."""
        xp = self._xp
        i, ci, f, o = self.parts(xp.concat([x, h_prev], axis=1) @ self.w + self.b)
        f = f + number(xp, forget_bias, float32)
        if self.peepholes is not None:
            wci, wcf, wco = self.peepholes
            i, f = i + cs_prev * wci, f + cs_prev * wcf
        i, f, ci = self._sigmoid(i), self._sigmoid(f), xp.tanh(ci)
        cs = ci * i + cs_prev * f
        if clip > 0:
            cs = xp.clip(cs, -clip, clip)
        if self.peepholes is not None:
            o = o + cs * wco
        o, co = self._sigmoid(o), xp.tanh(cs)
        return i, cs, f, o, ci, co, o * co

    def back(self, cs_prev: Array, made: Sequence[Array], dcs: Array, dh: Array) -> tuple[Array, Array, list[Array]]:
        """The gradients by the state before, by all gates, and by the peepholes.

        Args:
          cs_prev: the state before.
          made: `i`, `cs`, `f`, `o`, `ci` and `co` of the step.
          dcs, dh: the gradients by the state and the output after.
        """
        i, cs, f, o, ci, co = made
        do = o * (1 - o) * dh * co
        dcs = (1 - co * co) * dh * o + dcs
        if self.peepholes is not None:
            dcs = dcs + do * self.peepholes[2]
        dci = (1 - ci * ci) * dcs * i
        df, di = f * (1 - f) * dcs * cs_prev, i * (1 - i) * dcs * ci
        by_before = dcs * f
        xp = self._xp
        if self.peepholes is not None:
            by_before = by_before + di * self.peepholes[0] + df * self.peepholes[1]
            by_peepholes = [xp.sum(d * s, axis=0) for d, s in ((di, cs_prev), (df, cs_prev), (do, cs))]
        else:
            by_peepholes = [xp.zeros((cs.shape[1],), dtype=cs.dtype, device=cs.device)] * 3
        by_gate = dict(zip(self._order, (di, dci, df, do), strict=True))
        return by_before, xp.concat([by_gate[k] for k in range(4)], axis=1), by_peepholes


# *** Checks of shapes ***


def _expect(name: str, x: Any, want: tuple[int | None, ...]) -> None:
    """Raises unless an input has a shape; None stands for any dimension."""
    got = shape_of(x)
    if len(got) != len(want):
        raise InvalidArgumentError(f"{name} must be rank {len(want)} but is rank {len(got)}: {show(got)}")
    for k, (g, w) in enumerate(zip(got, want, strict=True)):
        if w is not None and g != w:
            raise InvalidArgumentError(f"{name}.dim_size({k}) != {w}: the shape is {show(got)}, expected {show(want)}")


def _check(rank: int, peephole: bool, args: Sequence[Any]) -> None:
    """Checks `x` of some rank, then `cs_prev`, `h_prev`, `w`, the peepholes and `b`."""
    x, cs_prev, h_prev, w, *peepholes, b = args
    _expect("x", x, (None,) * rank)
    _expect("cs_prev", cs_prev, (x.shape[-2], None))
    cells = cs_prev.shape[1]
    _expect("h_prev", h_prev, (x.shape[-2], cells))
    _expect("w", w, (x.shape[-1] + cells, 4 * cells))
    for name, p in zip(_PEEPHOLES, peepholes, strict=True):
        _expect(name, p, (cells if peephole or rank == 3 else None,))
    _expect("b", b, (4 * cells,))


def _wide(xp: Any, args: Sequence[Any], t: DType) -> list[Any]:
    return list(args) if t is float32 else list(map(converter(xp, float32), args))


def _cell_of(
    xp: Any, w: Array, peepholes: Sequence[Array], b: Array, attrs: Mapping[str, Any], order: Sequence[int]
) -> _Cell:
    return _Cell(xp, w, b, peepholes if attrs["use_peephole"] else None, order)


def _as(xp: Any, arrays: Sequence[Array], t: DType) -> tuple[Array, ...]:
    return tuple(arrays) if t is float32 else tuple(map(converter(xp, t), arrays))


def _steps(seq_len_max: Any, x: Any) -> int:
    """Number of steps to compute of `x`, which is at least a scalar."""
    if shape_of(seq_len_max):
        raise InvalidArgumentError(
            f"`seq_len_max_tensor` must be rank 0 but is rank {len(shape_of(seq_len_max))}: one number for the batch"
        )
    n, most = int_of(seq_len_max, "seq_len_max"), (*shape_of(x), 0)[0]
    if not 0 <= n <= most:
        raise InvalidArgumentError(f"seq_len_max must be in [0, {most}], the number of steps in x, got {n}")
    return n


# *** Kernels ***


def _cell(xp: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    t, bias, clip = attrs["T"], attrs["forget_bias"], attrs["cell_clip"]

    def kernel(*args: Any) -> Any:
        _check(2, attrs["use_peephole"], args)
        x, cs_prev, h_prev, w, *peepholes, b = _wide(xp, args, t)
        return _as(xp, _cell_of(xp, w, peepholes, b, attrs, _ORDER).step(x, cs_prev, h_prev, bias, clip), t)

    return kernel


def _cell_grad(xp: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    t = attrs["T"]

    def kernel(*args: Any) -> Any:
        _check(2, attrs["use_peephole"], args[:8])
        for name, a in zip(("i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad"), args[8:], strict=True):
            _expect(name, a, args[1].shape)
        _x, cs_prev, _h_prev, w, wci, wcf, wco, b, *made, dcs, dh = _wide(xp, args, t)
        cell = _cell_of(xp, w, (wci, wcf, wco), b, attrs, _ORDER)
        by_before, gates, by_peepholes = cell.back(cs_prev, made, dcs, dh)
        return _as(xp, (by_before, gates, *by_peepholes), t)

    return kernel


def _layer(order: Sequence[int]) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        t, bias, clip = attrs["T"], attrs.get("forget_bias", 0.0), attrs["cell_clip"]

        def kernel(seq_len_max: Any, *args: Any) -> Any:
            n = _steps(seq_len_max, args[0])
            _check(3, attrs["use_peephole"], args)
            x, cs, h, w, *peepholes, b = _wide(xp, args, t)
            cell = _cell_of(xp, w, peepholes, b, attrs, order)
            dims = (x.shape[0], *cs.shape)
            check_size((7, *dims), t)
            out = tuple(xp.zeros(dims, dtype=dtype_in(xp, t), device=x.device) for _ in range(7))
            for k in range(n):
                made = cell.step(x[k, ...], cs, h, bias, clip)
                cs, h = made[1], made[6]
                for to, part in zip(out, _as(xp, made, t), strict=True):
                    to[k, ...] = part
            return out

        return kernel

    return factory


def _layer_grad(order: Sequence[int]) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        t = attrs["T"]

        def kernel(seq_len_max: Any, *args: Any) -> Any:
            n = _steps(seq_len_max, args[0])
            _check(3, attrs["use_peephole"], args[:8])
            for name, a in zip(("i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"), args[8:], strict=True):
                _expect(name, a, (args[0].shape[0], *args[1].shape))
            x, cs_prev, h_prev, w, wci, wcf, wco, b, *made, h, dcs, dh = _wide(xp, args, t)
            cell = _cell_of(xp, w, (wci, wcf, wco), b, attrs, order)
            dx, dw, db = xp.zeros_like(x), xp.zeros_like(w), xp.zeros_like(b)
            dpeepholes = [xp.zeros_like(wci) for _ in range(3)]
            by_cs, by_h = xp.zeros_like(cs_prev), xp.zeros_like(h_prev)
            for k in reversed(range(n)):
                before, said = (made[1][k - 1, ...], h[k - 1, ...]) if k else (cs_prev, h_prev)
                here = [m[k, ...] for m in made]
                by_cs, gates, by_peepholes = cell.back(before, here, dcs[k, ...] + by_cs, dh[k, ...] + by_h)
                both = gates @ w.T
                dx[k, ...], by_h = both[:, : x.shape[2]], both[:, x.shape[2] :]
                dw += xp.concat([x[k, ...], said], axis=1).T @ gates
                db += xp.sum(gates, axis=0)
                for total, part in zip(dpeepholes, by_peepholes, strict=True):
                    total += part
            return _as(xp, (dx, by_cs, by_h, dw, *dpeepholes, db), t)

        return kernel

    return factory


# *** Shapes ***


def _cell_shape(c: Inference) -> Sequence[Shape]:
    batch, _ = with_rank(c.shapes[0], 2)
    rows, cells = with_rank(c.shapes[1], 2)
    return [(merge_dim(batch, rows), cells)] * 7


def _cell_grad_shape(c: Inference) -> Sequence[Shape]:
    batch, _ = with_rank(c.shapes[0], 2)
    rows, cells = with_rank(c.shapes[1], 2)
    batch = merge_dim(batch, rows)
    return [(batch, cells), (batch, None if cells is None else 4 * cells), (cells,), (cells,), (cells,)]


def _cells(b: Shape) -> Dim:
    (n,) = with_rank(b, 1)
    if n is not None and n % 4:
        raise ValueError(f"Dimension size must be evenly divisible by 4 but is {n}")
    return None if n is None else n // 4


def _layer_shape(c: Inference) -> Sequence[Shape]:
    steps, batch, _ = with_rank(c.shapes[1], 3)
    return [(steps, batch, _cells(c.shapes[8]))] * 7


# *** Gradients ***


def _cell_rule(b: Any, n: Any, *dys: Any) -> list[Any]:
    """The rule of a cell, in ops that have gradients themselves."""
    di, dcs, df, do, dci, dco, dh = dys
    t = n.attrs["T"]
    one = np.array(1, t.numpy)
    peephole = n.attrs["use_peephole"]

    def through(y: Any, *terms: Any) -> Any:
        """Gradient by the input of a sigmoid with the value `y`."""
        return b.Mul(b.AddN(list(terms)), b.Mul(y, b.Sub(one, y)))

    every_gate = n.wants("x", "h_prev", "w", "b")
    by_i = every_gate or (peephole and n.wants("cs_prev", "wci"))
    by_f = every_gate or (peephole and n.wants("cs_prev", "wcf"))
    by_state = by_i or by_f or n.wants("cs_prev")
    gate_o = gate_ci = gate_i = gate_f = None
    if every_gate or (peephole and (by_state or n.wants("wco"))):
        gate_o = through(n.o, do, b.Mul(dh, n.co))
    if by_state:
        squashed = b.Mul(b.AddV2(dco, b.Mul(dh, n.o)), b.Sub(one, b.Square(n.co)))
        dcs = b.AddV2(dcs, squashed)
        if peephole:
            dcs = b.AddV2(dcs, b.Mul(gate_o, n.wco))
    if every_gate:
        gate_ci = b.Mul(b.AddV2(dci, b.Mul(dcs, n.i)), b.Sub(one, b.Square(n.ci)))
    if by_i:
        gate_i = through(n.i, di, b.Mul(dcs, n.ci))
    if by_f:
        gate_f = through(n.f, df, b.Mul(dcs, n.cs_prev))
    before = []
    if n.wants("cs_prev"):
        before.append(b.Mul(dcs, n.f))
        if peephole:
            before += [b.Mul(gate_i, n.wci), b.Mul(gate_f, n.wcf)]

    def by_peephole(name: str, gate: Any, cs: str) -> Any:
        if not peephole:
            return b.ZerosLike(getattr(n, name))
        return b.Sum(b.Mul(gate, getattr(n, cs)), [0], keep_dims=False)

    by_peepholes = [
        by_peephole(name, gate, cs) if n.wants(name) else None
        for name, gate, cs in (("wci", gate_i, "cs_prev"), ("wcf", gate_f, "cs_prev"), ("wco", gate_o, "cs"))
    ]
    gates = b.ConcatV2([gate_i, gate_ci, gate_f, gate_o], 1) if every_gate else None
    both = at = None
    if n.wants("x", "h_prev"):
        both = b.MatMul(gates, n.w, transpose_b=True)
        at = b.StridedSlice(b.Shape(n.x), [1], [2], [1], shrink_axis_mask=1)
    dx = b.Slice(both, [0, 0], b.Pack([-1, at])) if n.wants("x") else None
    dh_prev = b.Slice(both, b.Pack([0, at]), [-1, -1]) if n.wants("h_prev") else None
    dw = b.MatMul(b.ConcatV2([n.x, n.h_prev], 1), gates, transpose_a=True) if n.wants("w") else None
    return [
        dx,
        lambda: b.AddN(before),
        dh_prev,
        dw,
        *by_peepholes,
        lambda: b.Sum(gates, [0], keep_dims=False),
    ]


def _layer_rule(grad: str) -> Any:
    """Gradient rule of a layer: the op `grad`, given the gradients of its outputs."""

    def rule(b: Any, n: Any, *dys: Any) -> list[Any]:
        for name in ("i", "f", "o", "ci", "co"):
            if n.reaches(name):
                raise LookupError(f"there is no gradient of the output {name!r} of {n.op.type}, only of cs and h")
        outputs = [n.i, n.cs, n.f, n.o, n.ci, n.co, n.h]
        made = b.make(grad, [*n.inputs, *outputs, dys[1], dys[6]], {"use_peephole": n.attrs["use_peephole"]})
        return [None, *made]

    return rule


# *** Tests ***


def _by_hand(
    x: Any, cs: Any, h: Any, w: Any, peepholes: Any, b: Any, order: Sequence[int], bias: float, clip: float
) -> list[np.ndarray]:
    """A step, cell by cell."""
    rows, cells = cs.shape
    out = [np.zeros((rows, cells)) for _ in range(7)]
    for r in range(rows):
        seen = [*x[r], *h[r]]
        for c in range(cells):
            i, ci, f, o = (
                b[k * cells + c] + math.fsum(v * w[j, k * cells + c] for j, v in enumerate(seen)) for k in order
            )
            i = 1 / (1 + math.exp(-(i + peepholes[0][c] * cs[r, c])))
            f = 1 / (1 + math.exp(-(f + bias + peepholes[1][c] * cs[r, c])))
            state = math.tanh(ci) * i + cs[r, c] * f
            state = min(max(state, -clip), clip) if clip > 0 else state
            o = 1 / (1 + math.exp(-(o + peepholes[2][c] * state)))
            for to, v in zip(out, (i, state, f, o, math.tanh(ci), math.tanh(state), o * math.tanh(state)), strict=True):
                to[r, c] = v
    return out


def _layer_by_hand(order: Sequence[int], seq_len_max: Any, x: Any, *args: Any, **attrs: Any) -> tuple[np.ndarray, ...]:
    cs, h, w, *peepholes, b = (a.astype(np.float64) for a in args)
    peepholes = peepholes if attrs.get("use_peephole") else [np.zeros(cs.shape[1])] * 3
    steps = [np.zeros((7, *cs.shape))] * len(x)
    for k in range(int(seq_len_max)):
        bias, clip = attrs.get("forget_bias", 1.0 if order == _ORDER else 0.0), attrs.get("cell_clip", 3.0)
        steps[k] = np.array(_by_hand(x[k].astype(np.float64), cs, h, w, peepholes, b, order, bias, clip))
        cs, h = steps[k][1], steps[k][6]
    made = np.array(steps).reshape(len(x), 7, *cs.shape)
    return tuple(made[:, j].astype(x.dtype) for j in range(7))


def _cell_oracle(x: np.ndarray, *args: np.ndarray, **attrs: Any) -> tuple[np.ndarray, ...]:
    return tuple(y[0] for y in _layer_by_hand(_ORDER, 1, x[None], *args, **attrs))


def _differences(order: Sequence[int], layer: bool) -> Any:
    """The oracle of a gradient: differences of the forward computation in double precision."""

    def oracle(*args: np.ndarray, **attrs: Any) -> tuple[np.ndarray, ...]:
        n, args = (int(args[0]), args[1:]) if layer else (1, args)
        *inputs, dcs, dh = [a.astype(np.float64) for a in (*args[:8], *args[-2:])]
        bias = 1.0 if order == _ORDER else 0.0
        if not layer:
            inputs[0], dcs, dh = inputs[0][None], dcs[None], dh[None]

        def total(k: int, at: tuple[int, ...], step: float) -> float:
            moved = [a.copy() for a in inputs]
            moved[k][at] += step
            made = _layer_by_hand(order, n, *moved, forget_bias=bias, cell_clip=-1.0, **attrs)
            return float(sum(np.sum(made[1][t] * dcs[t] + made[6][t] * dh[t]) for t in range(n)))

        def by(k: int) -> np.ndarray:
            out = np.zeros(inputs[k].shape, args[0].dtype)
            for at in np.ndindex(out.shape):
                out[at] = (total(k, at, 1e-5) - total(k, at, -1e-5)) / 2e-5
            return out

        if layer:
            return tuple(map(by, range(8)))
        # of a row of b alone: the gradient by its gates
        gates = []
        every, dcs_of_all, dh_of_all = inputs, dcs, dh
        for r in range(len(args[1])):
            inputs = [a if a.ndim < 2 or j == 3 else a[..., r : r + 1, :] for j, a in enumerate(every)]
            dcs, dh = dcs_of_all[:, r : r + 1], dh_of_all[:, r : r + 1]
            gates.append(by(7))
        inputs, dcs, dh = every, dcs_of_all, dh_of_all
        return (by(1), np.array(gates), by(4), by(5), by(6))

    return oracle


def _inputs(rng: np.random.Generator, t: DType, steps: int, batch: int = 2) -> list[np.ndarray]:
    dims = ((steps, batch, 2), (batch, 3), (batch, 3), (5, 12), (3,), (3,), (3,), (12,))
    return [rng.uniform(-1, 1, s).astype(t.numpy) for s in dims]


def _cell_cases(rng: np.random.Generator, t: DType) -> list[Any]:
    out = []
    for attrs in ({}, {"use_peephole": True, "cell_clip": 0.5, "forget_bias": 0.3}):
        x, *rest = _inputs(rng, t, 1)
        out.append(case(x[0], *rest, **attrs))
    return out


def _layer_cases(rng: np.random.Generator, t: DType) -> list[Any]:
    return [
        case(np.array(n, np.int64), *_inputs(rng, t, 3), **attrs)
        for n, attrs in ((3, {"cell_clip": 0.4}), (2, {"use_peephole": True, "cell_clip": -1.0}))
    ]


def _made(order: Sequence[int], n: int, inputs: Sequence[np.ndarray], peephole: bool) -> list[np.ndarray]:
    bias = 1.0 if order == _ORDER else 0.0
    found = _layer_by_hand(order, n, *inputs, forget_bias=bias, cell_clip=-1.0, use_peephole=peephole)
    return [y.astype(inputs[0].dtype) for y in found]


def _cell_grad_cases(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is float16:
        return []
    out = []
    for peephole in (False, True):
        inputs = _inputs(rng, t, 1)
        made = [y[0] for y in _made(_ORDER, 1, inputs, peephole)[:6]]
        dys = [rng.uniform(-1, 1, (2, 3)).astype(t.numpy) for _ in range(2)]
        out.append(case(inputs[0][0], *inputs[1:], *made, *dys, use_peephole=peephole))
    return out


def _layer_grad_cases(order: Sequence[int]) -> Any:
    def sample(rng: np.random.Generator, t: DType) -> list[Any]:
        if t is float16:
            return []
        inputs = _inputs(rng, t, 2)
        dys = [rng.uniform(-1, 1, (2, 2, 3)).astype(t.numpy) for _ in range(2)]
        made = _made(order, 2, inputs, True)
        return [case(np.array(2, np.int64), *inputs, *made, *dys, use_peephole=True)]

    return sample


def _cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
    """Two flops for each weight and row of the input."""
    w = next((s for s in ins if s is not None and len(s) == 2 and s[0] != s[1] and s[1] is not None), None)
    x = ins[0] if ins[0] != () else ins[1]
    if w is None or x is None or None in w or None in x[:-1]:
        return None
    return 2.0 * math.prod(d or 0 for d in w) * math.prod(d or 0 for d in x[:-1])


_FACTS = Facts(cost=_cost, blas=True)
_NO_SECOND = missing("the gradient of an LSTM has no gradient; build the cell from MatMul, Sigmoid and Tanh for that")
_MADE = "i: T, cs: T, f: T, o: T, ci: T, co: T"
_BY_WEIGHTS = "wci_grad: T, wcf_grad: T, wco_grad: T"
_PEEPHOLE = {"use_peephole": False, "T": _TYPES}
_GIVEN = {"use_peephole": bool_attr(), "T": _TYPES}

op(
    "LSTMBlockCell",
    f"x: T, {_IN}",
    _OUT,
    {"forget_bias": 1.0, "cell_clip": 3.0, **_PEEPHOLE},
    shape=_cell_shape,
    kernel=_cell,
    xp=True,
    grad=_cell_rule,
    batch=folding(0, 1, 2),
    facts=_FACTS,
    oracle=_cell_oracle,
    sample=_cell_cases,
    doc="A step of an LSTM: its gates, its state before and after tanh, and its output.",
)
op(
    "LSTMBlockCellGrad",
    f"x: T, {_IN}, {_MADE}, cs_grad: T, h_grad: T",
    f"cs_prev_grad: T, dicfo: T, {_BY_WEIGHTS}",
    _GIVEN,
    shape=_cell_grad_shape,
    kernel=_cell_grad,
    xp=True,
    grad=_NO_SECOND,
    facts=_FACTS,
    oracle=_differences(_ORDER, layer=False),
    sample=_cell_grad_cases,
    doc="The gradients of LSTMBlockCell by its state before, its gates before they are squashed, and its peepholes.",
)
for _suffix, _order, _attrs in (
    ("", _ORDER, {"forget_bias": 1.0, "cell_clip": 3.0}),
    ("V2", _ORDER_V2, {"cell_clip": 0.0}),
):
    op(
        f"BlockLSTM{_suffix}",
        f"seq_len_max: int64, x: T, {_IN}",
        _OUT,
        {**_attrs, **_PEEPHOLE},
        shape=_layer_shape,
        kernel=_layer(_order),
        xp=True,
        host=("seq_len_max",),
        grad=_layer_rule(f"BlockLSTMGrad{_suffix}"),
        facts=_FACTS,
        oracle=lambda *args, _order=_order, **attrs: _layer_by_hand(_order, *args, **attrs),
        sample=_layer_cases,
        differs="all outputs are 0 after seq_len_max; TensorFlow leaves some of them uninitialized",
        doc="An LSTM over the steps of `x`, up to `seq_len_max`: what LSTMBlockCell gives of each.",
    )
    op(
        f"BlockLSTMGrad{_suffix}",
        f"seq_len_max: int64, x: T, {_IN}, {_MADE}, h: T, cs_grad: T, h_grad: T",
        f"x_grad: T, cs_prev_grad: T, h_prev_grad: T, w_grad: T, {_BY_WEIGHTS}, b_grad: T",
        _GIVEN,
        shape=lambda c: [with_rank(c.shapes[1], 3), *c.shapes[2:9]],
        kernel=_layer_grad(_order),
        xp=True,
        host=("seq_len_max",),
        grad=_NO_SECOND,
        facts=_FACTS,
        oracle=_differences(_order, layer=True),
        sample=_layer_grad_cases(_order),
        doc=f"The gradients of BlockLSTM{_suffix} by its inputs.",
    )
