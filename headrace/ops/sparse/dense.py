"""Ops on sparse and dense tensors: SparseToDense, SparseTensorDenseAdd, SparseDenseCwiseAdd, -Mul and -Div.

Source: TensorFlow's ops of the same names. In the Cwise ops the dense operand is broadcast to the sparse one, and only
the values at its elements are computed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import (
    INDEX,
    INTEGER,
    NUMERIC,
    VALUE,
    DType,
    float64,
    int64,
    string,
)
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, bool_attr, case, flops_per_element, op
from headrace.opkit.arrays import check_size, shape_from, zeros
from headrace.opkit.elementwise import conj, widened
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, integers
from headrace.opkit.row_sums import any_true, first_true, last_rows, row_sums
from headrace.opkit.shape_rules import unbroadcast
from headrace.ops.sparse.coordinates import (
    check_bounds,
    check_sorted,
    checked,
    drawn,
    outside,
    parts,
    places_in,
    selecting,
)
from headrace.shapes import Shape

# *** SparseToDense ***


def _to_dense_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype, validate = attrs["T"], attrs["validate_indices"]

    def kernel(indices: Any, shape: Any, values: Any, default: Any) -> Any:
        if indices.ndim > 2:
            raise InvalidArgumentError(
                f"sparse_indices should be a scalar, vector, or matrix, got shape {shapes.show(indices.shape)}"
            )
        n = indices.shape[0] if indices.ndim else 1
        rank = indices.shape[1] if indices.ndim == 2 else 1
        if shape.ndim != 1:
            raise InvalidArgumentError(f"output_shape must be rank 1, got shape {shapes.show(shape.shape)}")
        dims = integers(shape)
        if len(dims) != rank:
            raise InvalidArgumentError(f"output_shape has incorrect number of elements: {len(dims)} should be: {rank}")
        if values.shape not in ((), (n,)):
            raise InvalidArgumentError(
                f"sparse_values has incorrect shape {shapes.show(values.shape)}, should be [] or [{n}]"
            )
        if default.ndim:
            raise InvalidArgumentError("default_value should be a scalar.")
        check_size(dims, dtype)
        rows = xp.reshape(indices, (n, rank))
        if validate:
            check_sorted(rows, dims, xp)
        else:
            check_bounds(rows, dims, xp=xp)
        if xp is not np:
            given = xp.broadcast_to(values, (n,))
            places = places_in(xp, rows, dims)
            return xp.reshape(last_rows(xp, given, places, math.prod(dims), default), dims)
        out = zeros(np, dims, dtype)
        if out.dtype == object or default != 0:
            out[...] = default
        out[None][selecting(rows)] = values
        return out

    return kernel


def _to_dense_shape(c: Inference) -> Sequence[Shape]:
    return [shape_from(c, 1)]


def _to_dense_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    rank = b.ExpandDims(b.Size(n.output_shape), 0)
    there = b.GatherNd(dy, b.Reshape(n.sparse_indices, b.ConcatV2([[-1], rank], 0)))

    def elsewhere() -> Any:
        every = b.Range(0, b.Rank(dy), 1)
        return b.Sub(b.Sum(dy, every, keep_dims=False), b.Sum(there, [0], keep_dims=False))

    return [None, None, unbroadcast(b, n.sparse_values, there, lambda: there, None)[0], elsewhere]


def _densified(indices: np.ndarray, shape: np.ndarray, values: np.ndarray, default: Any, **attrs: Any) -> np.ndarray:
    out = np.empty(tuple(shape), values.dtype)
    out.fill(default[()])
    n = len(indices) if indices.ndim else 1
    for i, v in zip(indices.reshape(n, len(shape)).tolist(), np.broadcast_to(values, (n,)), strict=True):
        out[tuple(i)] = v
    return out


def _to_dense_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = []
    for s, n, index in (((2, 3), 4, np.int64), ((4,), 2, np.int32), ((2, 2), 0, np.int64)):
        indices, values, shape = drawn(rng, dtype, s, n)
        cases.append(case(indices.astype(index), shape.astype(index), values, drawn(rng, dtype, (1,), 1)[1][0, ...]))
    cases[1] = case(cases[1].inputs[0].reshape(-1), *cases[1].inputs[1:])
    cases.append(case(cases[0].inputs[0][::-1], *cases[0].inputs[1:], validate_indices=False))
    return cases if dtype in (float64, string) else cases[:1]


op(
    "SparseToDense",
    "sparse_indices: Tindices, output_shape: Tindices, sparse_values: T, default_value: T",
    "dense: T",
    {"T": VALUE, "Tindices": INDEX, "validate_indices": bool_attr(True)},
    shape=_to_dense_shape,
    kernel=_to_dense_kernel,
    xp=True,
    host=("output_shape",),
    grad=_to_dense_grad,
    jvp=linear("sparse_values", "default_value"),
    facts=Facts(cost=flops_per_element(1), dynamic_shape=True),
    oracle=_densified,
    sample=_to_dense_samples,
    doc="A dense tensor with the given values at the given coordinates and `default_value` everywhere else.",
)

# *** SparseTensorDenseAdd ***


def _dense_add_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(indices: Any, values: Any, shape: Any, dense: Any) -> Any:
        checked(indices, values, shape, "a")
        dims = integers(shape)
        if len(dims) != dense.ndim:
            raise InvalidArgumentError(f"Two operands have different ranks; received: {len(dims)} and {dense.ndim}")
        for k, (x, y) in enumerate(zip(dims, dense.shape, strict=True)):
            if x != y:
                raise InvalidArgumentError(
                    f"Dimension {k} does not equal (no broadcasting is supported): sparse side {x} vs dense side {y}"
                )
        first = first_true(xp, xp.reshape(outside(indices, dims, xp), (-1,))) if dims else None
        if first is not None:
            i, k = divmod(first, len(dims))
            raise InvalidArgumentError(
                f"Sparse tensor has an invalid index on dimension {k}: a_indices({i},{k}) = {int(indices[i, k])}, "
                f"dense tensor shape: {shapes.show(dense.shape)}"
            )
        if xp is not np:
            sums = row_sums(xp, values, places_in(xp, indices, dims), math.prod(dims))
            return dense + xp.reshape(sums, dims)
        out = dense.copy() if isinstance(dense, np.ndarray) else np.array(dense)
        np.add.at(out[None], selecting(indices), values)
        return out

    return kernel


def _dense_add_shape(c: Inference) -> Sequence[Shape]:
    _, rank = parts(c, 0, ranks="")
    return [c.shapes[3] if rank is None or c.shapes[3] is not None else (None,) * rank]


def _dense_sum(indices: np.ndarray, values: np.ndarray, shape: np.ndarray, dense: np.ndarray) -> np.ndarray:
    out = dense.copy()
    for i, v in zip(indices.tolist(), values, strict=True):
        out[tuple(i)] = out[tuple(i)] + v
    return out


def _with_dense(dtype: DType, rng: np.random.Generator, few: bool = False) -> list[Any]:
    """Test cases of sparse tensors with dense ones that broadcast to them.

    With `few` the dense tensors have the same shape.
    """
    same = (((2, 3), (2, 3), 4), ((4,), (4,), 2), ((2, 2, 1), (2, 2, 1), 0))
    stretched = (((2, 3), (2, 1), 4), ((2, 2, 2), (2, 1), 5), ((3,), (), 2), ((2, 3), (2, 3), 0))
    cases = []
    for s, d, n in same if few else stretched:
        indices, values, shape = drawn(rng, dtype, s, n, 1, 4)
        dense = drawn(rng, dtype, (int(np.prod(d)),), int(np.prod(d)), 1, 4)[1].reshape(d)
        cases.append(case(indices, values, shape, dense))
    return cases if dtype is float64 else cases[:1]


op(
    "SparseTensorDenseAdd",
    "a_indices: Tindices, a_values: T, a_shape: Tindices, b: T",
    "output: T",
    {"T": NUMERIC, "Tindices": INDEX},
    shape=_dense_add_shape,
    kernel=_dense_add_kernel,
    xp=True,
    host=("a_shape",),
    grad=lambda b, n, dy: [None, lambda: b.GatherNd(dy, n.a_indices), None, dy],
    jvp=linear("a_values", "b"),
    facts=Facts(cost=flops_per_element(1)),
    oracle=_dense_sum,
    sample=lambda rng, dtype: _with_dense(dtype, rng, few=True),
    doc="A dense tensor with the elements of a sparse one of its shape added.",
    differs="Tensors of any rank.",
)

# *** SparseDenseCwise... ***


def _divided(xp: Any, x: Any, y: Any) -> Any:
    """Division of integers, rounded towards zero."""
    if xp is np:
        return (x - np.fmod(x, y)) // y
    rest = xp.remainder(x, y)  # has the sign of `y`
    down = xp.floor_divide(x, y)
    is_between = (rest != 0) & ((x < 0) != (y < 0))
    return xp.where(is_between, down + xp.ones_like(down), down)


def _cwise_kernel(name: str) -> Any:
    is_division = name == "divide"

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        dtype = attrs["T"]
        compute: Callable[..., Any] = widened(getattr(xp, name), dtype, xp)
        if is_division and dtype in INTEGER:
            compute = functools.partial(_divided, xp)

        def kernel(indices: Any, values: Any, shape: Any, dense: Any) -> Any:
            dims = checked(indices, values, shape, "sp")
            missing = len(dims) - dense.ndim
            if missing < 0 or any(x not in (1, d) for x, d in zip(dense.shape, dims[missing:], strict=True)):
                raise InvalidArgumentError(
                    "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: "
                    f"{shapes.show(dims)} vs. {shapes.show(dense.shape)}"
                )
            if any_true(xp, outside(indices, dims, xp)):
                raise InvalidArgumentError(
                    f"Provided indices are out-of-bounds w.r.t. dense side with broadcasted shape {shapes.show(dims)}"
                )
            if is_division and any_true(xp, dense == 0):
                raise InvalidArgumentError(
                    "SparseDenseCwiseDiv cannot divide by zero, but input dense tensor contains zero"
                )
            last = constant(xp, [d - 1 for d in dense.shape], int64, indices)
            at = xp.minimum(indices[:, missing:], last)
            if xp is not np:
                flat = places_in(xp, at, dense.shape)
                return compute(values, xp.take(xp.reshape(dense, (-1,)), flat, axis=0))
            return compute(values, dense[None][selecting(at)])

        return kernel

    return factory


def _cwise_shape(c: Inference) -> Sequence[Shape]:
    return [(parts(c, 0, ranks="i")[0],)]


def _cwise_grad(derivative: Callable[..., tuple[Callable[[], Any], Callable[[], Any]]]) -> Any:
    """Gradient rule of an op on the elements of a sparse and a dense tensor.

    `derivative(b, n, dy, y)` returns functions that make the gradients by the values and by `y()`, the elements of the
    dense operand at the same coordinates.
    """

    def rule(b: Any, n: Any, dy: Any) -> list[Any]:
        @functools.cache
        def places() -> tuple[Any, Any, Any]:
            """Shape of the dense operand, shape with the rank of the sparse one, coordinates."""
            shape = b.Shape(n.dense, out_type=int64)
            missing = b.ExpandDims(b.Sub(b.Size(n.sp_shape), b.Rank(n.dense)), 0)
            whole = b.ConcatV2([b.Fill(missing, b.const(1, int64)), shape], 0)
            return shape, whole, b.Minimum(n.sp_indices, b.Sub(whole, b.const(1, int64)))

        @functools.cache
        def y() -> Any:
            _, whole, at = places()
            return b.GatherNd(b.Reshape(n.dense, whole), at)

        def by_dense() -> Any:
            shape, whole, at = places()
            return b.Reshape(b.ScatterNd(at, by_elements(), whole), shape)

        by_values, by_elements = derivative(b, n, dy, y)
        return [None, by_values, None, by_dense]

    return rule


def _cwise_model(f: Callable[[Any, Any], Any]) -> Any:
    def oracle(indices: np.ndarray, values: np.ndarray, shape: np.ndarray, dense: np.ndarray) -> np.ndarray:
        stretched = np.broadcast_to(dense, tuple(shape))
        out = [f(v, stretched[tuple(i)]) for i, v in zip(indices.tolist(), values, strict=True)]
        return np.array(out, values.dtype)

    return oracle


def _quotient_parts(b: Any, n: Any, dy: Any, y: Any) -> tuple[Any, Any]:
    share = functools.cache(lambda: b.RealDiv(dy, conj(b, y())))
    return share, lambda: b.Neg(b.Mul(share(), conj(b, b.RealDiv(n.sp_values, y()))))


for _type, _name, _derivative, _model, _doc in (
    ("Add", "add", lambda b, n, dy, y: (lambda: dy, lambda: dy), lambda x, y: x + y, "The sum"),
    (
        "Mul",
        "multiply",
        lambda b, n, dy, y: (lambda: b.Mul(dy, conj(b, y())), lambda: b.Mul(dy, conj(b, n.sp_values))),
        lambda x, y: x * y,
        "The product",
    ),
    (
        "Div",
        "divide",
        _quotient_parts,
        lambda x, y: int(x) // int(y) if isinstance(x, np.integer) else x / y,
        "The quotient",
    ),
):
    op(
        f"SparseDenseCwise{_type}",
        "sp_indices: int64, sp_values: T, sp_shape: int64, dense: T",
        "output: T",
        {"T": NUMERIC},
        shape=_cwise_shape,
        kernel=_cwise_kernel(_name),
        xp=True,
        host=("sp_shape",),
        grad=_cwise_grad(_derivative),
        facts=Facts(cost=flops_per_element(20)),
        oracle=_cwise_model(_model),
        sample=lambda rng, dtype: [
            c if dtype not in INTEGER else case(c.inputs[0], abs(c.inputs[1]), c.inputs[2], abs(c.inputs[3]))
            for c in _with_dense(dtype, rng)
        ],
        doc=f"{_doc} of a sparse tensor and a dense one broadcast to its shape, where the sparse one has elements.",
        differs="Tensors of any rank, and complex ones.",
    )
