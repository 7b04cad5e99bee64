"""Ops on two sparse tensors of one shape: SparseAdd, SparseSparseMaximum, SparseSparseMinimum.

Source: TensorFlow's ops of the same names, and SparseAddGrad. The result has an element at each coordinate of either
tensor. The occurrences of a coordinate that is repeated in both are merged in pairs, and the remaining ones are kept
single, as in TensorFlow.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import INTEGER, NUMERIC, REAL, DType, complex64, complex128, float32, float64, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, converter, integers
from headrace.opkit.row_sums import firsts, last_rows, row_sums
from headrace.ops.sparse.coordinates import (
    check_bounds,
    check_parts,
    collected,
    dense_shape,
    drawn,
    either,
    filled,
    numbered,
    parts,
    runs,
    sparse_out,
)
from headrace.shapes import Shape

_TWO = "a_indices: int64, a_values: T, a_shape: int64, b_indices: int64, b_values: T, b_shape: int64"


class _Merge:
    """Union of the coordinates of two sparse tensors.

    Attributes:
      a, b: for each element of the one and the other its place in the result.
      indices: the coordinates of the result, sorted.
      both: which elements of the result are merged from two.
      size: the number of elements of the result.
    """

    def __init__(self, xp: Any, a: Any, b: Any) -> None:
        rows = xp.concat([a, b])
        numbers = numbered(rows, xp)
        split = a.shape[0]
        turns = xp.concat([_turns(xp, numbers[:split]), _turns(xp, numbers[split:])])
        places = numbered(xp.stack([numbers, turns], axis=1), xp)
        self.size = int(xp.max(places)) + 1 if places.shape[0] else 0
        self.a, self.b = places[:split], places[split:]
        self.indices = xp.take(rows, firsts(xp, places, self.size), axis=0)
        self.both = row_sums(xp, xp.ones_like(places), places, self.size) == 2


def _turns(xp: Any, numbers: Any) -> Any:
    """Number of equal elements before each element."""
    if xp is not np:
        order = xp.argsort(numbers, stable=True)
        found = xp.take(numbers, order, axis=0)
        every = xp.arange(numbers.shape[0], dtype=xp.int64, device=numbers.device)
        turns = every - xp.searchsorted(found, found, side="left")
        return xp.take(turns, xp.argsort(order, stable=True), axis=0)
    order = np.argsort(numbers, kind="stable")
    starts = runs(numbers[order])
    sizes = np.diff(np.append(starts, len(numbers)))
    turns = np.empty(len(numbers), np.int64)
    turns[order] = np.arange(len(numbers)) - np.repeat(starts, sizes)
    return turns


def _check_shapes(a: Any, b: Any) -> None:
    x, y = list(integers(a)), list(integers(b))
    if len(x) != len(y):
        raise InvalidArgumentError(f"Operands do not have the same ranks; got shapes: {x} and {y}")
    for k, (m, n) in enumerate(zip(x, y, strict=True)):
        if m != n:
            raise InvalidArgumentError(f"Operands' shapes do not match: got {m} and {n} for dimension {k}")


def _real(t: DType) -> DType:
    return {complex64: float32, complex128: float64}.get(t, t)


# *** SparseAdd ***


def _add_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    exact = converter(xp, float64) if attrs["T"] in INTEGER else None

    def kernel(a: Any, a_values: Any, a_shape: Any, b: Any, b_values: Any, b_shape: Any, thresh: Any) -> Any:
        check_parts(a, a_values, a_shape, "a")
        check_parts(b, b_values, b_shape, "b")
        if thresh.ndim:
            raise InvalidArgumentError(
                f"The magnitude threshold must be a scalar: got shape {shapes.show(thresh.shape)}"
            )
        _check_shapes(a_shape, b_shape)
        merge = _Merge(xp, a, b)
        out = last_rows(xp, a_values, merge.a, merge.size, 0) + last_rows(xp, b_values, merge.b, merge.size, 0)
        is_large = xp.abs(out) >= thresh if exact is None else xp.abs(exact(out)) >= exact(thresh)
        kept = ~merge.both | is_large
        shape = a_shape if xp is np else constant(xp, integers(a_shape), int64, a)
        return merge.indices[kept], out[kept], shape

    return kernel


def _add_shape(c: Inference) -> Sequence[Shape]:
    return sparse_out(None, either(parts(c, 0, ranks="s")[1], parts(c, 3, ranks="")[1]))


def _add_grad(b: Any, n: Any, d_indices: Any, d_values: Any, d_shape: Any) -> list[Any]:
    if not n.wants("a_values", "b_values"):
        return [None] * 7
    da, db = b.SparseAddGrad(d_values, n.a_indices, n.b_indices, n.sum_indices)
    return [None, da, None, None, db, None, None]


def _added(a: Any, a_values: Any, a_shape: Any, b: Any, b_values: Any, b_shape: Any, thresh: Any) -> Any:
    x, y = filled(a, a_values, a_shape), filled(b, b_values, b_shape)
    out = {p: v for p, v in (x | y).items() if p not in x or p not in y}
    out |= {p: x[p] + y[p] for p in x.keys() & y.keys() if abs(complex(x[p] + y[p])) >= float(thresh)}
    return *collected(out, a_values.dtype, a.shape[1]), a_shape


_PAIRS = (((2, 3), 4, 3), ((2, 2, 2), 3, 5), ((4,), 0, 2))


def _pairs(rng: np.random.Generator, dtype: DType) -> Sequence[tuple[np.ndarray, ...]]:
    """Two sparse tensors of one shape each."""
    found = [(*drawn(rng, dtype, s, m, 0.5), *drawn(rng, dtype, s, n, 0.5)) for s, m, n in _PAIRS]
    return found if dtype is float64 else found[:1]


def _add_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(*args, np.array(t, _real(dtype).numpy)) for args, t in zip(_pairs(rng, dtype), (3, 0, 1))]


op(
    "SparseAdd",
    f"{_TWO}, thresh: Treal",
    "sum_indices: int64, sum_values: T, sum_shape: int64",
    {"T": NUMERIC, "Treal": REAL},
    shape=_add_shape,
    kernel=_add_kernel,
    xp=True,
    host=("a_shape", "b_shape"),
    grad=_add_grad,
    facts=Facts(dynamic_shape=True, cost=flops_per_input(40)),
    oracle=_added,
    sample=_add_samples,
    doc="The sum of two sparse tensors, without the sums of two elements that are nearer to 0 than `thresh`.",
    differs="The result is sorted though the inputs may not be.",
)


def _add_grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(dy: Any, a: Any, b: Any, total: Any) -> Any:
        if dy.ndim != 1 or any(i.ndim != 2 for i in (a, b, total)):
            raise InvalidArgumentError(
                "Input backprop_val_grad should be a vector, and a_indices, b_indices and sum_indices matrices: got "
                f"shapes {', '.join(shapes.show(x.shape) for x in (dy, a, b, total))}"
            )
        if dy.shape[0] != total.shape[0]:
            raise InvalidArgumentError(
                "# elements of backprop_val_grad and # rows of sum_indices should match (#nnz of sum): "
                f"got {dy.shape[0]} and {total.shape[0]}"
            )
        if not a.shape[1] == b.shape[1] == total.shape[1]:
            raise InvalidArgumentError(
                "The densified operands should have the same ndims; for A, B, sum got: "
                f"{a.shape[1]}, {b.shape[1]}, {total.shape[1]}"
            )
        return _taken(xp, dy, a, total), _taken(xp, dy, b, total)

    return kernel


def _taken(xp: Any, dy: Any, rows: Any, total: Any) -> Any:
    """Elements of `dy` at the coordinates `rows`; 0 for coordinates not in `total`.

    `total` has the coordinates of `dy`.
    """
    merge = _Merge(xp, rows, total)
    return xp.take(last_rows(xp, dy, merge.b, merge.size, 0), merge.a, axis=0)


def _add_grad_shape(c: Inference) -> Sequence[Shape]:
    return [shapes.with_rank(c.shapes[i], 2)[:1] for i in (1, 2)]


def _add_grad_model(dy: np.ndarray, a: np.ndarray, b: np.ndarray, total: np.ndarray) -> Any:
    found = filled(total, dy, None)
    return tuple(np.array([found.get(tuple(i), 0) for i in x.tolist()], dy.dtype) for x in (a, b))


def _add_grad_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = []
    for a, a_values, shape, b, b_values, _ in _pairs(rng, dtype):
        total, dy, _ = _added(a, a_values, shape, b, b_values, shape, 3)
        cases.append(case(dy, a, b, total))
    return cases


op(
    "SparseAddGrad",
    "backprop_val_grad: T, a_indices: int64, b_indices: int64, sum_indices: int64",
    "a_val_grad: T, b_val_grad: T",
    {"T": NUMERIC},
    shape=_add_grad_shape,
    kernel=_add_grad_kernel,
    xp=True,
    grad=lambda b, n, da, db: [
        b.AddV2(
            b.SparseAddGrad(da, n.sum_indices, n.sum_indices, n.a_indices)[0],
            b.SparseAddGrad(db, n.sum_indices, n.sum_indices, n.b_indices)[0],
        ),
        None,
        None,
        None,
    ],
    jvp=linear("backprop_val_grad"),
    facts=Facts(cost=flops_per_input(60)),
    oracle=_add_grad_model,
    sample=_add_grad_samples,
    doc="The gradients of SparseAdd by the values of the two: that of the sum, and zero for what was left out.",
)

# *** Extremes ***


def _complex_minimum(xp: Any, x: Any, y: Any) -> Any:
    """The lesser number by real part, then by imaginary part; NaN of either."""
    (a, b), (c, d) = ((xp.real(z), xp.imag(z)) for z in (x, y))
    is_less = (a < c) | ((a == c) & (b <= d))
    return xp.where(xp.isnan(x) | (is_less & ~xp.isnan(y)), x, y)


def _extreme(name: str) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        f = getattr(xp, name)
        if attrs["T"].is_complex and xp is not np:
            f = functools.partial(_complex_minimum, xp)

        def kernel(a: Any, a_values: Any, a_shape: Any, b: Any, b_values: Any, b_shape: Any) -> Any:
            check_parts(a, a_values, a_shape, "a")
            check_parts(b, b_values, b_shape, "b")
            _check_shapes(a_shape, b_shape)
            dims = dense_shape(a_shape)
            check_bounds(a, dims, xp=xp)
            check_bounds(b, dims, xp=xp)
            merge = _Merge(xp, a, b)
            x, y = (last_rows(xp, v, at, merge.size, 0) for v, at in ((a_values, merge.a), (b_values, merge.b)))
            return merge.indices, f(x, y)

        return kernel

    return factory


def _extreme_shape(c: Inference) -> Sequence[Shape]:
    return sparse_out(None, either(parts(c, 0)[1], parts(c, 3)[1]))[:2]


def _extreme_grad(b: Any, n: Any, d_indices: Any, dy: Any) -> list[Any]:
    """Gradient rule: to the selected element, or half to each of two equal ones."""
    t = n.attrs["T"]
    merged = (n.a_indices, n.b_indices, n.output_indices)
    wins = [
        b.Cast(b.Equal(x, y), DstT=t)
        for x, y in zip((n.a_values, n.b_values), b.SparseAddGrad(n.output_values, *merged), strict=True)
    ]
    _, count, _ = b.SparseAdd(n.a_indices, wins[0], n.a_shape, n.b_indices, wins[1], n.b_shape, b.const(0, _real(t)))
    da, db = b.SparseAddGrad(b.DivNoNan(dy, count), *merged)
    return [None, lambda: b.Mul(wins[0], da), None, None, lambda: b.Mul(wins[1], db), None]


def _extreme_model(f: Any) -> Any:
    def oracle(a: Any, a_values: Any, a_shape: Any, b: Any, b_values: Any, b_shape: Any) -> Any:
        x, y = filled(a, a_values, a_shape), filled(b, b_values, b_shape)
        zero = a_values.dtype.type(0)
        return collected(
            {p: f(x.get(p, zero), y.get(p, zero)) for p in x.keys() | y.keys()}, a_values.dtype, a.shape[1]
        )

    return oracle


for _type, _name, _types, _model in (
    ("SparseSparseMaximum", "maximum", REAL, max),
    (
        "SparseSparseMinimum",
        "minimum",
        NUMERIC,
        lambda x, y: min(x, y, key=lambda z: (complex(z).real, complex(z).imag)),
    ),
):
    op(
        _type,
        _TWO,
        "output_indices: int64, output_values: T",
        {"T": type_attr(_types)},
        shape=_extreme_shape,
        kernel=_extreme(_name),
        xp=True,
        host=("a_shape", "b_shape"),
        grad=_extreme_grad,
        facts=Facts(dynamic_shape=True, cost=flops_per_input(40)),
        oracle=_extreme_model(_model),
        sample=lambda rng, dtype: [case(*args) for args in _pairs(rng, dtype)],
        doc=f"The {_name} of two sparse tensors, wherever one of them has an element; the other is 0 there.",
        differs="The result is sorted though the inputs may not be.",
    )
