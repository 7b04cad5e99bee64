"""Ops on two sparse tensors of one shape: SparseAdd, SparseSparseMaximum, SparseSparseMinimum.

Source: TensorFlow's ops of the same names, and SparseAddGrad. The result has an element at each coordinate of either
tensor. The occurrences of a coordinate that is repeated in both are merged in pairs, and the remaining ones are kept
single, as in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import NUMERIC, REAL, DType, complex64, complex128, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.opkit.jvp_rules import linear
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
    """

    def __init__(self, a: Any, b: Any) -> None:
        rows = np.concatenate([a, b])
        numbers = numbered(rows)
        split = len(a)
        turns = np.concatenate([_turns(numbers[:split]), _turns(numbers[split:])])
        places = numbered(np.stack([numbers, turns], axis=1))
        _, first, count = np.unique(places, return_index=True, return_counts=True)
        self.a, self.b = places[:split], places[split:]
        self.indices = rows[first]
        self.both = count == 2


def _turns(numbers: np.ndarray) -> np.ndarray:
    """Number of equal elements before each element."""
    order = np.argsort(numbers, kind="stable")
    starts = runs(numbers[order])
    sizes = np.diff(np.append(starts, len(numbers)))
    turns = np.empty(len(numbers), np.int64)
    turns[order] = np.arange(len(numbers)) - np.repeat(starts, sizes)
    return turns


def _check_shapes(a: Any, b: Any) -> None:
    if len(a) != len(b):
        raise InvalidArgumentError(f"Operands do not have the same ranks; got shapes: {a.tolist()} and {b.tolist()}")
    if (a != b).any():
        k = int(np.argmax(a != b))
        raise InvalidArgumentError(f"Operands' shapes do not match: got {a[k]} and {b[k]} for dimension {k}")


def _real(t: DType) -> DType:
    return {complex64: float32, complex128: float64}.get(t, t)


# *** SparseAdd ***


def _add_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(a: Any, a_values: Any, a_shape: Any, b: Any, b_values: Any, b_shape: Any, thresh: Any) -> Any:
        check_parts(a, a_values, a_shape, "a")
        check_parts(b, b_values, b_shape, "b")
        if thresh.ndim:
            raise InvalidArgumentError(
                f"The magnitude threshold must be a scalar: got shape {shapes.show(thresh.shape)}"
            )
        _check_shapes(a_shape, b_shape)
        merge = _Merge(a, b)
        out = np.zeros(len(merge.indices), a_values.dtype)
        out[merge.a] = a_values
        out[merge.b] += b_values
        size = np.abs(out.astype(np.float64) if out.dtype.kind in "iu" else out)
        kept = ~merge.both | (size >= thresh)
        return merge.indices[kept], out[kept], a_shape

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
        if len(dy) != len(total):
            raise InvalidArgumentError(
                "# elements of backprop_val_grad and # rows of sum_indices should match (#nnz of sum): "
                f"got {len(dy)} and {len(total)}"
            )
        if not a.shape[1] == b.shape[1] == total.shape[1]:
            raise InvalidArgumentError(
                "The densified operands should have the same ndims; for A, B, sum got: "
                f"{a.shape[1]}, {b.shape[1]}, {total.shape[1]}"
            )
        return _taken(dy, a, total), _taken(dy, b, total)

    return kernel


def _taken(dy: Any, rows: Any, total: Any) -> Any:
    """Elements of `dy` at the coordinates `rows`; 0 for coordinates not in `total`.

    `total` has the coordinates of `dy`.
    """
    merge = _Merge(rows, total)
    spread = np.zeros(len(merge.indices), dy.dtype)
    spread[merge.b] = dy
    return spread[merge.a]


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


def _extreme(name: str) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        f = getattr(np, name)

        def kernel(a: Any, a_values: Any, a_shape: Any, b: Any, b_values: Any, b_shape: Any) -> Any:
            check_parts(a, a_values, a_shape, "a")
            check_parts(b, b_values, b_shape, "b")
            _check_shapes(a_shape, b_shape)
            dims = dense_shape(a_shape)
            check_bounds(a, dims)
            check_bounds(b, dims)
            merge = _Merge(a, b)
            x, y = np.zeros((2, len(merge.indices)), a_values.dtype)
            x[merge.a] = a_values
            y[merge.b] = b_values
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
        grad=_extreme_grad,
        facts=Facts(dynamic_shape=True, cost=flops_per_input(40)),
        oracle=_extreme_model(_model),
        sample=lambda rng, dtype: [case(*args) for args in _pairs(rng, dtype)],
        doc=f"The {_name} of two sparse tensors, wherever one of them has an element; the other is 0 there.",
        differs="The result is sorted though the inputs may not be.",
    )
