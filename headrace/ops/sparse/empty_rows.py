"""Default elements for empty rows of sparse and ragged tensors: SparseFillEmptyRows, RaggedFillEmptyRows.

Source: TensorFlow's ops of the same names, and their ...Grad.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op
from headrace.opkit.arrays import check_size, placed, zeros
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, integers
from headrace.opkit.row_sums import first_true, last_rows, row_sums
from headrace.opkit.testing.samples import draw
from headrace.ops.sparse.coordinates import drawn, parts
from headrace.shapes import Shape

_FACTS = Facts(dynamic_shape=True, cost=flops_per_input(20))


class _Filled:
    """The elements and the fillings in order of their rows.

    Attributes:
      is_empty: for each row whether nothing was in it.
      old: the places in the result of the elements that were there.
      rows: the row of each element of the result.
    """

    def __init__(self, xp: Any, of: Any, rows: int) -> None:
        if rows < 0:
            raise InvalidArgumentError(f"Expected shape dimensions to be non-negative, got {rows}")
        count = of.shape[0]
        if not rows and count:
            raise InvalidArgumentError(f"Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {count}")
        i = first_true(xp, (of < 0) | (of >= rows))
        if i is not None:
            raise InvalidArgumentError(f"indices({i}, 0) is invalid: {int(of[i])} >= {rows}")
        check_size((rows,), dtypes.int64)
        self.xp = xp
        if xp is np:
            counts, sums = np.bincount(of, minlength=rows), np.cumsum
        else:
            counts, sums = row_sums(xp, xp.ones_like(of), of, rows), xp.cumulative_sum
        self.is_empty = counts == 0
        fillings, here = converter(xp, dtypes.int64)(self.is_empty), placed(xp, of)
        order = xp.argsort(of, stable=True)
        at = xp.arange(count, dtype=xp.int64, **here) + sums(fillings)[of[order]]  # behind the fillings of earlier rows
        self.old = last_rows(xp, at, order, count, 0)
        self.rows = xp.repeat(xp.arange(rows, dtype=xp.int64, **here), counts + fillings)

    def values(self, values: Any, default: Any, dtype: DType) -> Any:
        if self.xp is not np:
            return last_rows(self.xp, values, self.old, self.rows.shape[0], default)
        out = zeros(np, self.rows.shape, dtype)
        out[...] = default
        out[self.old] = values
        return out


def _check(values: Any, rows: int, default: Any, of: str) -> None:
    if values.ndim != 1:
        raise InvalidArgumentError(f"values must be a vector, saw: {shapes.show(values.shape)}")
    if values.shape[0] != rows:
        raise InvalidArgumentError(
            f"The length of `values` ({values.shape[0]}) must match the first dimension of `{of}` ({rows})."
        )
    if default.ndim:
        raise InvalidArgumentError(f"default_value must be a scalar, saw: {shapes.show(default.shape)}")


def _sparse_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(indices: Any, values: Any, shape: Any, default: Any) -> Any:
        if shape.ndim != 1:
            raise InvalidArgumentError(f"dense_shape must be a vector, saw: {shapes.show(shape.shape)}")
        if indices.ndim != 2:
            raise InvalidArgumentError(f"indices must be a matrix, saw: {shapes.show(indices.shape)}")
        _check(values, indices.shape[0], default, "indices")
        dims = integers(shape)
        if len(dims) != indices.shape[1]:
            raise InvalidArgumentError(
                f"The length of `dense_shape` ({len(dims)}) must match the second dimension of `indices` "
                f"({indices.shape[1]})."
            )
        if not dims:
            raise InvalidArgumentError("Dense shape cannot be empty.")
        filled = _Filled(xp, indices[:, 0], dims[0])
        out = last_rows(xp, indices, filled.old, filled.rows.shape[0], 0)
        out[:, 0] = filled.rows
        return out, filled.values(values, default, dtype), filled.is_empty, filled.old

    return kernel


def _ragged_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(rowids: Any, values: Any, nrows: Any, default: Any) -> Any:
        if nrows.ndim:
            raise InvalidArgumentError(f"nrows must be a scalar, saw: {shapes.show(nrows.shape)}")
        if rowids.ndim != 1:
            raise InvalidArgumentError(f"value_rowids must be a vector, saw: {shapes.show(rowids.shape)}")
        _check(values, rowids.shape[0], default, "value_rowids")
        filled = _Filled(xp, rowids, int(nrows))
        return filled.rows, filled.values(values, default, dtype), filled.is_empty, filled.old

    return kernel


def _sparse_shape(c: Inference) -> Sequence[Shape]:
    n, rank = parts(c, 0)
    shapes.with_rank(c.shapes[3], 0)
    known = c.shape_value(2)
    return [(None, rank), (None,), (known[0] if known else None,), (n,)]


def _ragged_shape(c: Inference) -> Sequence[Shape]:
    n = shapes.merge_dim(shapes.with_rank(c.shapes[0], 1)[0], shapes.with_rank(c.shapes[1], 1)[0])
    rows = c.scalar(2)
    shapes.with_rank(c.shapes[3], 0)
    return [(None,), (None,), (rows if rows is not None and rows >= 0 else None,), (n,)]


def _grad(kind: str) -> Any:
    def rule(b: Any, n: Any, d_places: Any, d_values: Any, d_empty: Any, d_map: Any) -> list[Any]:
        dx, d_default = b.make(f"{kind}FillEmptyRowsGrad", [n.reverse_index_map, d_values], {})
        return [None, dx, None, d_default]

    return rule


def _jvp(b: Any, n: Any, *dxs: Any) -> list[Any]:
    """The elements that were there are moved, and the default goes where none was."""
    values, default = (b.ZerosLike(x) if d is None else d for x, d in ((n.values, dxs[1]), (n.default_value, dxs[3])))
    out = b.Fill(b.Shape(n.output_values), default)
    return [None, b.TensorScatterUpdate(out, b.ExpandDims(n.reverse_index_map, 1), values), None, None]


def _model(rows: Sequence[int], values: np.ndarray, n: int, default: Any) -> tuple[Any, ...]:
    """Model of the outputs: row and source of each element, and the other outputs.

    The source is an index into `values`, or -1 for the default.
    """
    old: list[tuple[int, int]] = []
    for r in range(n):
        mine = [i for i, x in enumerate(rows) if x == r]
        old += [(r, i) for i in mine or [-1]]
    out = np.empty(len(old), values.dtype)
    for k, (_, i) in enumerate(old):
        out[k] = default[()] if i < 0 else values[i]
    places = [next(k for k, (_, j) in enumerate(old) if j == i) for i in range(len(rows))]
    return old, out, np.array([r not in rows for r in range(n)], bool), np.array(places, np.int64)


def _sparse_model(indices: np.ndarray, values: np.ndarray, shape: np.ndarray, default: np.ndarray) -> Any:
    old, *rest = _model(indices[:, 0].tolist(), values, int(shape[0]), default)
    places = [[r] + [0] * (len(shape) - 1) if i < 0 else indices[i] for r, i in old]
    return np.array(places, np.int64).reshape(-1, len(shape)), *rest


def _ragged_model(rowids: np.ndarray, values: np.ndarray, nrows: np.ndarray, default: np.ndarray) -> Any:
    old, *rest = _model(rowids.tolist(), values, int(nrows), default)
    return np.array([r for r, _ in old], np.int64), *rest


def _sparse_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = []
    for s, n in (((4, 3), 3), ((2, 2), 4), ((3, 2), 0), ((0, 2), 0)):
        indices, values, shape = drawn(rng, dtype, s, n)
        order = rng.permutation(n)
        cases.append(case(indices[order], values, shape, draw(rng, dtype, (1,))[0, ...]))
    return cases if dtype in (dtypes.float64, dtypes.string) else cases[:1]


op(
    "SparseFillEmptyRows",
    "indices: int64, values: T, dense_shape: int64, default_value: T",
    "output_indices: int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
    {"T": dtypes.VALUE},
    shape=_sparse_shape,
    kernel=_sparse_kernel,
    xp=True,
    host=("dense_shape",),
    grad=_grad("Sparse"),
    jvp=_jvp,
    facts=_FACTS,
    oracle=_sparse_model,
    sample=_sparse_samples,
    doc="A sparse tensor with an element `default_value` at the beginning of each row that had none.",
)
op(
    "RaggedFillEmptyRows",
    "value_rowids: int64, values: T, nrows: int64, default_value: T",
    "output_value_rowids: int64, output_values: T, empty_row_indicator: bool, reverse_index_map: int64",
    {"T": dtypes.VALUE},
    shape=_ragged_shape,
    kernel=_ragged_kernel,
    xp=True,
    host=("nrows",),
    grad=_grad("Ragged"),
    jvp=_jvp,
    facts=_FACTS,
    oracle=_ragged_model,
    sample=lambda rng, dtype: [
        case(c.inputs[0][:, 0], c.inputs[1], c.inputs[2][0, ...], c.inputs[3])
        for c in _sparse_samples(rng, dtype)
        if c.inputs[2][0]
    ],
    doc="A ragged tensor with an element `default_value` in each row that had none.",
    differs="The row numbers are a vector even if it is empty.",
)

# *** Gradients ***


def _grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(places: Any, dy: Any) -> Any:
        for name, x in (("reverse_index_map", places), ("grad_values", dy)):
            if x.ndim != 1:
                raise InvalidArgumentError(f"{name} must be a vector, saw: {shapes.show(x.shape)}")
        n = dy.shape[0]
        i = first_true(xp, (places < 0) | (places >= n))
        if i is not None:
            raise InvalidArgumentError(f"Elements in reverse index must be in [0, {n}) but got {int(places[i])}")
        is_new = last_rows(xp, xp.zeros_like(places), places, n, 1) == 1
        return xp.take(dy, places, axis=0), xp.asarray(xp.sum(dy[is_new], dtype=dy.dtype))

    return kernel


def _grad_grad(b: Any, n: Any, d_values: Any, d_default: Any) -> list[Any]:
    out = b.Fill(b.Shape(n.grad_values), d_default)
    return [None, b.TensorScatterUpdate(out, b.ExpandDims(n.reverse_index_map, 1), d_values)]


def _grad_model(places: np.ndarray, dy: np.ndarray) -> Any:
    rest = [v for i, v in enumerate(dy) if i not in places]
    return np.array([dy[i] for i in places], dy.dtype), np.array(sum(rest, dy.dtype.type(0)), dy.dtype)


for _kind in ("Sparse", "Ragged"):
    op(
        f"{_kind}FillEmptyRowsGrad",
        "reverse_index_map: int64, grad_values: T",
        "d_values: T, d_default_value: T",
        {"T": dtypes.NUMERIC},
        shape=lambda c: [shapes.with_rank(c.shapes[0], 1), ()],
        kernel=_grad_kernel,
        xp=True,
        grad=_grad_grad,
        jvp=linear("grad_values"),
        facts=Facts(cost=flops_per_input(4)),
        oracle=_grad_model,
        sample=lambda rng, dtype: [
            case(np.array(p, np.int64), draw(rng, dtype, (n,)))
            for p, n in (([2, 0], 4), ([], 3), ([1, 0], 2))[: 3 if dtype is dtypes.float64 else 1]
        ],
        doc=f"The gradients of {_kind}FillEmptyRows by the values and by the default value.",
    )
