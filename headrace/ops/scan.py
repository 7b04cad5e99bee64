"""Cumulative results along a dimension: Cumsum, Cumprod, CumulativeLogsumexp.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from headrace.dtypes import FLOATING, INDEX, INTEGER, NUMERIC, DType, int32
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.opkit.batch_rules import shifting_axes
from headrace.opkit.elementwise import computed_in
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, dtype_in, is_standard
from headrace.opkit.order_forms import accumulation
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape, show, with_rank


def _running(xp: Any, name: str, dtype: DType) -> Callable[[Any, int], Any]:
    """The scan along an axis with a ufunc, computed in `dtype`."""
    convert, to = converter(xp, dtype), dtype_in(xp, dtype)
    if not is_standard(xp):
        accumulate = getattr(xp, name).accumulate
        return lambda x, axis: accumulate(convert(x), axis=axis, dtype=to)
    if name == "logaddexp":
        return lambda x, axis: _running_logaddexp(xp, convert(x), axis)
    cumulative = xp.cumulative_sum if name == "add" else xp.cumulative_prod
    return lambda x, axis: cumulative(x, axis=axis, dtype=to)


def _running_logaddexp(xp: Any, x: Any, axis: int) -> Any:
    """The scan with `logaddexp`, which is no function of the standard.

    Each step doubles the length of the parts that are combined.
    """
    n = 1
    while n < x.shape[axis]:
        more = xp.logaddexp(x[_part(axis, n, None)], x[_part(axis, 0, -n)])
        x = xp.concat([x[_part(axis, 0, n)], more], axis=axis)
        n *= 2
    return x


def _part(axis: int, start: int, stop: int | None) -> tuple[Any, ...]:
    """The index of a part along an axis."""
    return (*[slice(None)] * axis, slice(start, stop), ...)


def _scan(name: str, first: float) -> Any:
    """The kernel factory of a scan with the ufunc `name`, whose neutral element is `first`."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t = attrs["T"]
        wide, narrow = computed_in(t), converter(xp, t)
        accumulate = _running(xp, name, wide)
        exclusive, reverse = attrs["exclusive"], attrs["reverse"]

        def kernel(x: Any, axis: Any) -> Any:
            if axis.ndim:
                raise InvalidArgumentError(f"ScanOp: axis must be a scalar, not {show(axis.shape)}")
            a = int(axis)
            if not -x.ndim <= a < x.ndim:
                raise InvalidArgumentError(
                    f"ScanOp: Expected scan axis in the range [{-x.ndim}, {x.ndim}), but got {a}"
                )
            if 0 in x.shape:
                return x
            a %= x.ndim
            if reverse:
                x = xp.flip(x, axis=a)
            out = accumulate(x, a)
            if exclusive:
                start = xp.full_like(out[_part(a, 0, 1)], first)
                out = xp.concat([start, out[_part(a, 0, -1)]], axis=a)
            if reverse:
                out = xp.flip(out, axis=a)
            return narrow(out)

        return kernel

    return factory


def _scan_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[1], 0)
    x, axis = c.shapes[0], c.scalar(1)
    if x is not None and axis is not None and not -len(x) <= axis < len(x):
        raise ValueError(f"ScanOp: Expected scan axis in the range [{-len(x)}, {len(x)}), but got {axis}")
    return [x]


def _again(b: Any, n: Any, type: str, x: Any, turned: bool = False) -> Any:
    """The scan of `n` on another tensor, in the reverse direction if `turned`."""
    reverse = n.attrs["reverse"] != turned
    return b.make(type, [x, n.axis], {"exclusive": n.attrs["exclusive"], "reverse": reverse})


def _cumsum_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [_again(b, n, "Cumsum", dy, turned=True), None]


def _cumprod_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    x, y = n.x, n.out
    if x.dtype.is_complex:
        x, y = b.Conj(x), b.Conj(y)
    return [b.DivNoNan(_again(b, n, "Cumsum", b.Mul(y, dy), turned=True), x), None]


def _cumulative_logsumexp_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient exp(x_j) · Σ dy_i exp(-y_i).

    The sum is computed in logarithms, separately for positive and negative `dy`.
    """
    x, y = n.x, n.out

    def back(log: Any) -> Any:
        return b.AddV2(_again(b, n, "CumulativeLogsumexp", b.Sub(log, y), turned=True), x)

    return [_by_sign(b, dy, back), None]


def _cumulative_logsumexp_jvp(b: Any, n: Any, dx: Any, _: Any) -> list[Any]:
    """The tangent Σ dx_j exp(x_j - y_i), with the sum in logarithms too."""
    y = b.Maximum(n.out, b.const(ml_dtypes.finfo(dx.dtype.numpy).min, dx.dtype.base))  # log of an empty sum: -inf
    return [_by_sign(b, dx, lambda log: b.Sub(_again(b, n, "CumulativeLogsumexp", b.AddV2(log, n.x)), y))]


def _by_sign(b: Any, d: Any, log_of: Any) -> Any:
    """A linear function of `d`, computed in logarithms.

    `log_of` maps the logarithm of a positive argument to that of the result; the negative part of `d` is subtracted.
    """
    zero, one = b.ZerosLike(d), b.OnesLike(d)
    nothing = b.const(ml_dtypes.finfo(d.dtype.numpy).min, d.dtype.base)  # in place of log(0): -inf less -inf is NaN

    def part(there: Any, size: Any) -> Any:
        return b.Exp(log_of(b.SelectV2(there, b.Log(b.SelectV2(there, size, one)), nothing)))

    return b.Sub(part(b.Greater(d, zero), d), part(b.Less(d, zero), b.Neg(d)))


def _scanning(step: Callable[[Any, Any], Any], first: Any) -> Any:
    """The oracle: a loop over each row."""

    def oracle(x: np.ndarray, axis: np.ndarray, exclusive: bool = False, reverse: bool = False) -> np.ndarray:
        rows = np.moveaxis(x, int(axis), -1)
        out = np.empty(rows.shape, np.int64 if x.dtype.kind in "iu" else np.complex128)
        for i in np.ndindex(rows.shape[:-1]):
            total: Any = first
            for j in range(rows.shape[-1]):
                at = (*i, -1 - j if reverse else j)
                before, total = total, step(total, complex(rows[at]) if out.dtype.kind == "c" else int(rows[at]))
                out[at] = before if exclusive else total
        out = np.moveaxis(out, -1, int(axis))
        return (out if x.dtype.kind in "iuc" else out.real).astype(x.dtype)

    return oracle


def _log_add(a: Any, b: Any) -> Any:
    return b.real if a == -math.inf else a + math.log1p(math.exp(b.real - a))


def _samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    low = 1 if dtype in INTEGER else -2
    return [
        case(draw(rng, dtype, s, low, 3), np.array(a, i), exclusive=e, reverse=r)
        for s, a, i, e, r in (
            ((4,), 0, np.int32, False, False),
            ((4,), 0, np.int64, True, False),
            ((2, 3), 1, np.int32, False, True),
            ((2, 3), -2, np.int32, True, True),
            ((2, 0), 1, np.int32, True, False),
        )
    ]


# fmt: off
for _type, _types, _ufunc, _first, _grad, _jvp, _step, _doc in (
    ("Cumsum", NUMERIC, "add", 0, _cumsum_grad, linear("x"), lambda a, b: a + b, "Running sums along a dimension."),
    ("Cumprod", NUMERIC, "multiply", 1, _cumprod_grad, None, lambda a, b: a * b,
     "Running products along a dimension."),
    ("CumulativeLogsumexp", FLOATING, "logaddexp", -math.inf, _cumulative_logsumexp_grad,
     _cumulative_logsumexp_jvp, _log_add,
     "The logarithms of running sums of exp(x) along a dimension."),
):
    op(
        _type,
        "x: T, axis: Tidx",
        "out: T",
        {"exclusive": False, "reverse": False, "T": type_attr(_types), "Tidx": type_attr(INDEX, int32)},
        shape=_scan_shape,
        kernel=_scan(_ufunc, _first),
        xp=True,
        host=("axis",),
        grad=_grad,
        jvp=_jvp, batch=shifting_axes(1, 0),
        form=accumulation(getattr(np, _ufunc), _first),
        facts=Facts(cost=flops_per_input(2), rounds_once=True),
        oracle=_scanning(_step, _first),
        sample=_samples,
        doc=_doc,
    )
# fmt: on
