"""Ops that read and write elements by index: Gather, GatherV2, GatherNd, ScatterNd, TensorScatter*.

Source: TensorFlow's ops of the same names. A negative index or an index out of range is an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, NUMERIC, REAL, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.indexed_slices import IndexedSlices, of_gather
from headrace.ir.infer import Inference, constant_value
from headrace.ir.opdef import Facts, Sample, case, flops_per_element, flops_per_input, op, type_attr
from headrace.opkit.arrays import (
    HANDLES,
    axis_in,
    boxed,
    check_size,
    dims,
    shape_from,
    values_only,
    vector_of_unknowns,
    zeros,
)
from headrace.opkit.batch_indexing import gather, gather_nd, gather_v2, scatter_nd, tensor_scatter
from headrace.opkit.index_forms import gather as gather_form
from headrace.opkit.index_forms import gather_nd as gather_nd_form
from headrace.opkit.index_forms import scatter_nd as scatter_nd_form
from headrace.opkit.index_forms import tensor_scatter as tensor_scatter_form
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, converter, listed
from headrace.opkit.scatter import (
    POLICY,
    add_at,
    all_in,
    check_static,
    extreme_at,
    first_in,
    flat_places,
    places,
    scatter,
    scattered,
    set_at,
    subtract_at,
)
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape

_SMALL_INDEX = INDEX | {dtypes.int16}

# *** Gather, GatherV2 ***


def check_indices(xp: Any, indices: Any, n: int) -> None:
    """Raises `InvalidArgumentError` for the first index that is not in [0, n)."""
    if xp is np and all_in(indices, n):
        return
    bad = (indices < 0) | (indices >= n)
    if xp.any(bad):
        first = first_in(xp, bad)
        where = shapes.show(first) if first else ""
        raise InvalidArgumentError(f"indices{where} = {listed(indices[first])} is not in [0, {n})")


def _take(xp: Any, params: Any, indices: Any, axis: int) -> Any:
    n = params.shape[axis]
    if indices.ndim:
        check_indices(xp, indices, n)
        return params.take(indices, axis) if xp is np else _taken(xp, params, indices, axis)
    i = int(indices)
    if not 0 <= i < n:
        raise InvalidArgumentError(f"indices = {i} is not in [0, {n})")
    return params[(slice(None),) * axis + (i, ...)] if axis or xp is not np or params.dtype == object else params[i]


def _taken(xp: Any, params: Any, indices: Any, axis: int) -> Any:
    """The slices of `params` along an axis; the standard takes them at vectors of indices."""
    rows = xp.reshape(converter(xp, dtypes.int64)(indices), (math.prod(indices.shape),))
    out = xp.take(params, rows, axis=axis)
    return xp.reshape(out, params.shape[:axis] + indices.shape + params.shape[axis + 1 :])


def _take_by_batch(xp: Any, params: Any, indices: Any, axis: int, batch_dims: int) -> Any:
    """Gathers with the first `batch_dims` dimensions of both inputs as batch."""
    batch, rest = indices.shape[:batch_dims], indices.ndim - batch_dims
    for i in range(batch_dims):
        if params.shape[i] != batch[i]:
            raise InvalidArgumentError(
                f"params.shape[{i}]: {params.shape[i]} should be equal to indices.shape[{i}]: {batch[i]}"
            )
    n = params.shape[axis]
    check_indices(xp, indices, n)
    params = xp.moveaxis(params, axis, batch_dims)
    if xp is np:
        grid = [g.reshape(g.shape + (1,) * rest) for g in np.ogrid[tuple(slice(n) for n in batch)]]
        picked = params[(*grid, indices)]
    else:
        # with the batches concatenated, index i of batch k is row k * n + i
        count = math.prod(batch)
        first = constant(xp, [k * n for k in range(count)], dtypes.int64, indices)
        rows = converter(xp, dtypes.int64)(indices) + xp.reshape(first, batch + (1,) * rest)
        picked = _taken(xp, xp.reshape(params, (count * n, *params.shape[batch_dims + 1 :])), rows, 0)
    # from (batch, rest of indices, outer, inner) to (batch, outer, rest of indices, inner)
    outer = axis - batch_dims
    order = [*range(batch_dims), *range(indices.ndim, indices.ndim + outer), *range(batch_dims, indices.ndim)]
    return xp.permute_dims(picked, (*order, *range(len(order), picked.ndim)))


def _batch_dims(batch_dims: int, axis: int, rank: int) -> int:
    if not -rank <= batch_dims <= rank:
        raise ValueError(f"Expected batch_dims in the range [{-rank}, {rank}], but got {batch_dims}")
    batch_dims += rank if batch_dims < 0 else 0
    if batch_dims > axis:
        raise ValueError(f"batch_dims ({batch_dims}) must be less than or equal to axis ({axis}).")
    return batch_dims


def _gather_v2_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    batched = attrs["batch_dims"]

    def kernel(params: Any, indices: Any, axis: Any) -> Any:
        if axis.ndim:
            raise InvalidArgumentError(f"axis must be scalar, got shape {shapes.show(axis.shape)}")
        if not params.ndim:
            raise InvalidArgumentError("params must be at least 1 dimensional")
        a = axis_in(int(axis), params.ndim)
        if not batched:
            return _take(xp, params, indices, a)
        return _take_by_batch(xp, params, indices, a, _batch_dims(batched, a, indices.ndim))

    return kernel


def _gather_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(params: Any, indices: Any) -> Any:
        if not params.ndim:
            raise InvalidArgumentError("params must be at least 1 dimensional")
        return _take(xp, params, indices, 0)

    return kernel


def _gather_v2_shape(c: Inference) -> Sequence[Shape]:
    params, indices = shapes.with_rank_at_least(c.shapes[0], 1), c.shapes[1]
    axis, batched = c.scalar(2), c.attrs["batch_dims"]
    if params is None or indices is None:
        return [None]
    if axis is None:
        known = batched if batched >= 0 else batched + len(indices)
        return [(None,) * (len(params) + len(indices) - 1 - known)]
    a = axis_in(axis, len(params))
    bd = _batch_dims(batched, a, len(indices))
    batch = tuple(shapes.merge_dim(p, i) for p, i in zip(params[:bd], indices[:bd]))
    return [batch + params[bd:a] + indices[bd:] + params[a + 1 :]]


def _gather_shape(c: Inference) -> Sequence[Shape]:
    params = shapes.with_rank_at_least(c.shapes[0], 1)
    return [None if params is None else shapes.concatenate(c.shapes[1], params[1:])]


def _gather_value(c: Inference) -> Shape:
    """Elements of a shape vector at known indices."""
    known, where = c.shape_value(0), c.value(1)
    if known is None or where is None or c.shapes[0] is None or len(c.shapes[0]) != 1 or where.ndim > 1:
        return vector_of_unknowns(c, c.op.outputs[0].shape)
    check_indices(np, where, len(known))
    return tuple(known[int(i)] for i in np.ravel(where))


def _span(b: Any, start: Any, stop: Any) -> Any:
    """Axes from `start` up to `stop`: a list if both are known, else a tensor."""
    if isinstance(start, int) and isinstance(stop, int):
        return list(range(start, stop))
    return b.Range(start, stop, 1)


def _joined(b: Any, *parts: Any) -> Any:
    if all(isinstance(p, list) for p in parts):
        return b.const(np.array([a for p in parts for a in p], np.int32))
    tensors = [b.const(np.array(p, np.int32)) if isinstance(p, list) else p for p in parts]
    return b.ConcatV2(tensors, 0) if len(tensors) > 1 else tensors[0]


def _rank(b: Any, t: Any) -> Any:
    return b.Rank(t) if t.shape is None else len(t.shape)


def _plus(b: Any, x: Any, y: Any) -> Any:
    return x + y if isinstance(x, int) and isinstance(y, int) else b.AddV2(x, y)


def _wide(b: Any, indices: Any) -> Any:
    return indices if indices.dtype.base in INDEX else b.Cast(indices, DstT=dtypes.int32)


def _gather_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient of Gather: the rows of `dy` added at the indices."""
    indices = _wide(b, n.indices)
    return [of_gather(b, dy, indices, b.Shape(n.params, out_type=indices.dtype.base)), None]


def _gather_v2_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient of GatherV2.

    It moves the indexed dimension of `dy` to the front, sums the rows with equal indices and moves the dimension back.
    """
    params, indices = n.params, _wide(b, n.indices)
    index = indices.dtype.base
    axis = constant_value(n.axis)
    rank, index_rank = _rank(b, params), _rank(b, indices)
    batched = n.attrs["batch_dims"]
    batch = _plus(b, index_rank, batched) if batched < 0 else batched
    if axis is not None and batch == 0 and (axis == 0 or (isinstance(rank, int) and axis == -rank)):
        return [*_gather_grad(b, n, dy), None]
    if axis is None:
        a: Any = b.Cast(n.axis, DstT=dtypes.int32)
        a = b.FloorMod(a, rank)
    else:
        a = int(axis) if axis >= 0 else _plus(b, int(axis), rank)
    shape = b.Shape(params, out_type=index)
    before = _span(b, 0, batch)
    outer = _span(b, batch, a)
    inner = _span(b, _plus(b, a, 1), rank)
    # dy has the dimensions batch, outer, indexed, inner; make it batch, indexed, outer, inner
    end = _plus(b, a, _plus(b, index_rank, b.Neg(batch) if not isinstance(batch, int) else -batch))
    tail = _span(b, end, _rank(b, dy))
    moved = b.Transpose(dy, _joined(b, before, _span(b, a, end), outer, tail))
    # with the batches concatenated, index i of batch k is row k * n + i
    n_rows = b.GatherV2(shape, a, 0)
    batches = b.Prod(b.GatherV2(shape, _joined(b, before), 0), 0, keep_dims=False)
    index_shape = b.Shape(indices, out_type=index)
    starts = b.Reshape(b.Mul(b.Range(b.Cast(0, DstT=index), batches, b.Cast(1, DstT=index)), n_rows), [-1, 1])
    rows = b.AddV2(b.Reshape(indices, b.Pack([batches, b.Cast(-1, DstT=index)])), starts)
    row_shape = b.GatherV2(shape, _joined(b, outer, inner), 0)
    count = b.Prod(index_shape, 0, keep_dims=False)
    flat = b.Reshape(moved, b.ConcatV2([b.ExpandDims(count, 0), row_shape], 0))
    total = b.ExpandDims(b.Mul(batches, n_rows), 0)
    summed = b.ScatterNd(b.Reshape(rows, [-1, 1]), flat, b.ConcatV2([total, row_shape], 0))
    there = _joined(b, before, [a] if isinstance(a, int) else b.ExpandDims(a, 0), outer, inner)
    split = b.Reshape(summed, b.GatherV2(shape, there, 0))
    return [b.Transpose(split, b.InvertPermutation(there)), None, None]


@values_only
def _gathers(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def v2(shape: Sequence[int], indices: Any, axis: int, **attrs: int) -> Any:
        return case(draw(rng, dtype, shape), np.array(indices, np.int32), np.int32(axis), **attrs)

    return [
        v2((4,), 2, 0),
        v2((4, 2), [3, 0, 3], 0),
        v2((2, 3, 2), [[0, 2], [1, 1]], -2),
        v2((2, 3), 1, 1),
        v2((0, 2), np.zeros((0,)), 0),
        v2((2, 3), [[0, 2], [1, 1]], 1, batch_dims=1),
        v2((2, 3, 4, 2), [[0, 3, 1], [1, 1, 0]], 2, batch_dims=-1),
    ]


def _gather_model(params: Any, indices: Any, axis: Any, batch_dims: int = 0) -> np.ndarray:
    a, batch = int(axis) % params.ndim, batch_dims % indices.ndim if batch_dims else 0
    end = a + indices.ndim - batch
    out = np.empty(params.shape[:a] + indices.shape[batch:] + params.shape[a + 1 :], params.dtype)
    for at in np.ndindex(out.shape):
        out[at] = params[(*at[:a], indices[at[:batch] + at[a:end]], *at[end:])]
    return out


op(
    "Gather",
    "params: Tparams, indices: Tindices",
    "output: Tparams",
    {"validate_indices": True, "Tparams": type_attr(), "Tindices": INDEX},
    shape=_gather_shape,
    kernel=boxed(_gather_kernel),
    xp=True,
    grad=_gather_grad,
    jvp=linear("params"),
    batch=gather,
    form=gather_form,
    facts=Facts(cost=flops_per_element(1)),
    shape_value=_gather_value,
    oracle=lambda params, indices: _gather_model(params, indices, 0),
    sample=values_only(
        lambda rng, dtype: [case(draw(rng, dtype, (4, 2)), np.array(i, np.int64)) for i in (2, [3, 0, 3], [[1], [0]])]
    ),
    doc="The rows of `params` at `indices`.",
)
op(
    "GatherV2",
    "params: Tparams, indices: Tindices, axis: Taxis",
    "output: Tparams",
    {"batch_dims": 0, "Tparams": type_attr(), "Tindices": _SMALL_INDEX, "Taxis": INDEX},
    shape=_gather_v2_shape,
    kernel=boxed(_gather_v2_kernel),
    xp=True,
    host=("axis",),
    grad=_gather_v2_grad,
    jvp=linear("params"),
    batch=gather_v2,
    form=gather_form,
    facts=Facts(dynamic_shape=True, cost=flops_per_element(1)),
    shape_value=_gather_value,
    oracle=_gather_model,
    sample=_gathers,
    doc="The slices of `params` at `indices` along `axis`; the first `batch_dims` dimensions of both are the batch.",
)

# *** GatherNd ***


def _gather_nd_shape(c: Inference) -> Sequence[Shape]:
    params, indices = c.shapes[0], shapes.with_rank_at_least(c.shapes[1], 1)
    if params is None or indices is None or indices[-1] is None:
        return [None]
    if indices[-1] > len(params):
        raise ValueError(f"indices.shape[-1] must be <= params.rank, but saw {indices[-1]} and {shapes.show(params)}")
    return [indices[:-1] + params[indices[-1] :]]


def _gather_nd_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    ignore_bad, dtype = attrs["bad_indices_policy"] == "IGNORE", attrs["Tparams"]

    def kernel(params: Any, indices: Any) -> Any:
        if not params.ndim or not indices.ndim:
            raise InvalidArgumentError("params and indices must be at least vectors")
        if 0 in params.shape and 0 not in indices.shape:
            raise InvalidArgumentError("Requested more than 0 entries, but params is empty.")
        if xp is not np:
            return _gathered(xp, params, indices, ignore_bad)
        where, good = places(indices, params.shape, ignore_bad)
        if not where:
            return np.broadcast_to(params, indices.shape[:-1] + params.shape)
        if good is None:
            return params[(*where, ...)] if dtype in dtypes.OBJECT else params[where]
        out = zeros(np, indices.shape[:-1] + params.shape[indices.shape[-1] :], dtype)
        out[good] = params[tuple(w[good] for w in where)]
        return out

    return kernel


def _gathered(xp: Any, params: Any, indices: Any, ignore_bad: bool) -> Any:
    """The slices of `params` at rows of coordinates, zeros for those out of range."""
    rows, good = flat_places(xp, indices, params.shape, ignore_bad)
    depth = indices.shape[-1]
    rest = params.shape[depth:]
    out = xp.take(xp.reshape(params, (math.prod(params.shape[:depth]), *rest)), rows, axis=0)
    if good is not None:
        out = xp.where(xp.reshape(good, good.shape + (1,) * len(rest)), out, xp.zeros_like(out))
    return xp.reshape(out, indices.shape[:-1] + rest)


def _gather_nd_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    indices = _wide(b, n.indices)
    shape = b.Shape(n.params, out_type=indices.dtype.base)
    known = indices.shape
    if known is not None and len(known) == 2 and known[1] == 1 and n.attrs["bad_indices_policy"] != "IGNORE":
        return [IndexedSlices(dy, b.Squeeze(indices, squeeze_dims=(1,)), shape), None]  # these are rows
    if indices.shape is None or len(indices.shape) == 1:  # a single position; ScatterNd wants a list of them
        indices, dy = b.ExpandDims(indices, 0), b.ExpandDims(dy, 0)
    return [b.ScatterNd(indices, dy, shape, bad_indices_policy=n.attrs["bad_indices_policy"]), None]


_ND_PLACES: tuple[tuple[tuple[int, ...], Any], ...] = (
    ((4,), [[2], [0]]),
    ((3, 2), [[2, 1], [0, 0], [1, 1]]),
    ((3, 2), [[2], [0]]),
    ((2, 3, 2), [[[0, 2]], [[1, 1]]]),
)


@values_only
def _nd_gathers(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, s), np.array(i, np.int32)) for s, i in (*_ND_PLACES, ((3,), [1]))]


def _gather_nd_model(params: np.ndarray, indices: np.ndarray) -> np.ndarray:
    out = np.empty(indices.shape[:-1] + params.shape[indices.shape[-1] :], params.dtype)
    for i in np.ndindex(indices.shape[:-1]):
        out[i] = params[tuple(indices[i])]
    return out


op(
    "GatherNd",
    "params: Tparams, indices: Tindices",
    "output: Tparams",
    {"Tparams": type_attr(), "Tindices": _SMALL_INDEX, "bad_indices_policy": POLICY},
    shape=_gather_nd_shape,
    kernel=boxed(_gather_nd_kernel),
    xp=True,
    grad=_gather_nd_grad,
    jvp=linear("params"),
    batch=gather_nd,
    form=gather_nd_form,
    facts=Facts(cost=flops_per_element(2)),
    oracle=_gather_nd_model,
    sample=_nd_gathers,
    doc="The slices of `params` at positions whose leading coordinates are the rows of `indices`.",
)

# *** ScatterNd, TensorScatter* ***


def _scatter_nd_shape(c: Inference) -> Sequence[Shape]:
    shape = shape_from(c, 2)
    check_static(c.shapes[0], c.shapes[1], shape)
    return [shape]


def _scatter_nd_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    ignore_bad, dtype = attrs["bad_indices_policy"] == "IGNORE", attrs["T"]

    def kernel(indices: Any, updates: Any, shape: Any) -> Any:
        wanted = dims(shape)
        check_size(wanted, dtype)
        out = zeros(xp, wanted, dtype, updates)
        if xp is np:
            return scatter(out, indices, updates, add_at, ignore_bad)
        return scattered(xp, out, indices, updates, "add", ignore_bad)

    return kernel


def _scatter_sample(rng: np.random.Generator, dtype: DType) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    out = []
    for shape, at in _ND_PLACES:
        indices = np.array(at, np.int32)
        updates = draw(rng, dtype, indices.shape[:-1] + shape[indices.shape[-1] :])
        out.append((draw(rng, dtype, shape), indices, updates))
    return out


@values_only
def _nd_scatters(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = [case(i, u, np.array(x.shape, np.int32)) for x, i, u in _scatter_sample(rng, dtype)]
    twice = np.array([[1], [0], [1]], np.int64)
    more = [(3,), (3, 2)] if dtype is not dtypes.bool_ else []
    return cases + [case(twice, draw(rng, dtype, s), np.array((2, *s[1:]), np.int64)) for s in more]


def _scatter_model(combine: Any) -> Any:
    def model(x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
        out = np.array(x)
        for i in np.ndindex(indices.shape[:-1]):
            at = tuple(indices[i])
            out[at] = combine(out[at], updates[i])
        return out

    return model


def _zeros_for(updates: np.ndarray, shape: Any) -> np.ndarray:
    return np.full(shape, b"" if updates.dtype == object else 0, updates.dtype)


op(
    "ScatterNd",
    "indices: Tindices, updates: T, shape: Tindices",
    "output: T",
    {"T": type_attr(), "Tindices": _SMALL_INDEX, "bad_indices_policy": POLICY},
    shape=_scatter_nd_shape,
    kernel=_scatter_nd_kernel,
    xp=True,
    host=("shape",),
    grad=lambda b, n, dy: [None, b.GatherNd(dy, n.indices, bad_indices_policy=n.attrs["bad_indices_policy"]), None],
    jvp=linear("updates"),
    batch=scatter_nd,
    form=scatter_nd_form,
    facts=Facts(dynamic_shape=True, cost=lambda ins, outs: shapes.size(ins[1])),
    oracle=lambda i, u, shape: _scatter_model(lambda x, y: x + y)(_zeros_for(u, shape), i, u),
    sample=_nd_scatters,
    doc="Zeros of shape `shape` with `updates` added at `indices`.",
)


def _tensor_scatter_shape(c: Inference) -> Sequence[Shape]:
    check_static(c.shapes[1], c.shapes[2], c.shapes[0])
    return [c.shapes[0]]


def _tensor_scatter_kernel(put: Any, how: str) -> Any:
    """The factory of an op that scatters by `put`, in other namespaces by `how`."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        ignore_bad = attrs["bad_indices_policy"] == "IGNORE"

        def kernel(tensor: Any, indices: Any, updates: Any) -> Any:
            if xp is np:
                return scatter(np.array(tensor), indices, updates, put, ignore_bad)
            return scattered(xp, tensor, indices, updates, how, ignore_bad)

        return kernel

    return factory


def _picked(b: Any, n: Any, x: Any) -> Any:
    return b.GatherNd(x, n.indices, bad_indices_policy=n.attrs["bad_indices_policy"])


def _update_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    def by_tensor() -> Any:
        policy = n.attrs["bad_indices_policy"]
        return b.TensorScatterUpdate(dy, n.indices, b.ZerosLike(n.updates), bad_indices_policy=policy)

    return [by_tensor, None, lambda: _picked(b, n, dy)]


def _add_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [dy, None, lambda: _picked(b, n, dy)]


def _sub_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [dy, None, lambda: b.Neg(_picked(b, n, dy))]


def _extreme_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """Divides each gradient evenly among the inputs that equal the result."""
    dtype, y = n.attrs["T"], n.output
    index = n.indices.dtype.base
    kept = b.Cast(b.Equal(n.tensor, y), DstT=dtype)
    put = b.Cast(b.Equal(n.updates, _picked(b, n, y)), DstT=dtype)
    policy = n.attrs["bad_indices_policy"]
    count = b.ScatterNd(n.indices, put, b.Shape(n.tensor, out_type=index), bad_indices_policy=policy)
    share = b.Div(dy, b.AddV2(kept, count))
    return [lambda: b.Mul(share, kept), None, lambda: b.Mul(_picked(b, n, share), put)]


def _tensor_scatters(allowed: frozenset[DType]) -> Sample:
    return lambda rng, d: [case(*arrays) for arrays in _scatter_sample(rng, d)] if d in allowed else []


_DROP = "of several updates of a place the last one holds"
_LINEAR = linear("tensor", "updates")
_TENSOR_SCATTERS: tuple[tuple[str, Any, str, Any, Any, frozenset[DType], str], ...] = (
    ("Update", set_at, "", _update_grad, _LINEAR, dtypes.ALL - HANDLES, f"replaced by `updates`; {_DROP}"),
    ("Add", add_at, "add", _add_grad, _LINEAR, NUMERIC, "increased by `updates`"),
    ("Sub", subtract_at, "subtract", _sub_grad, _LINEAR, NUMERIC, "decreased by `updates`"),
    ("Min", extreme_at(np.minimum), "minimum", _extreme_grad, None, REAL, "lowered to `updates` where less"),
    ("Max", extreme_at(np.maximum), "maximum", _extreme_grad, None, REAL, "raised to `updates` where larger"),
)
_FORMS = {
    "Update": tensor_scatter_form(None),
    "Add": tensor_scatter_form(np.add),
    "Sub": tensor_scatter_form(np.subtract),
}
for _name, _put, _how, _grad, _jvp, _dtypes, _doc in _TENSOR_SCATTERS:
    op(
        f"TensorScatter{_name}",
        "tensor: T, indices: Tindices, updates: T",
        "output: T",
        {
            "T": type_attr(),
            "Tindices": _SMALL_INDEX | {dtypes.uint16} if _name == "Update" else INDEX,
            "bad_indices_policy": POLICY,
        },
        shape=_tensor_scatter_shape,
        kernel=_tensor_scatter_kernel(_put, _how),
        xp=True,
        grad=_grad,
        jvp=_jvp,
        batch=tensor_scatter,
        form=_FORMS.get(_name),
        facts=Facts(cost=flops_per_input(1)),
        oracle=_scatter_model(getattr(np, _how) if _how else lambda x, y: y),
        sample=_tensor_scatters(_dtypes),
        doc=f"The input with the elements at `indices` {_doc}.",
    )

op(
    "ScatterNdNonAliasingAdd",
    "input: T, indices: Tindices, updates: T",
    "output: T",
    {"T": NUMERIC | {dtypes.bool_}, "Tindices": INDEX, "bad_indices_policy": POLICY},
    shape=_tensor_scatter_shape,
    kernel=_tensor_scatter_kernel(add_at, "add"),
    xp=True,
    grad=_add_grad,
    jvp=linear("input", "updates"),
    batch=tensor_scatter,
    form=tensor_scatter_form(np.add),
    facts=Facts(cost=flops_per_input(1)),
    oracle=_scatter_model(np.add),
    sample=_tensor_scatters(NUMERIC | {dtypes.bool_}),
    differs="TensorFlow reads a vector of indices as that many positions, and skips some of them.",
    doc="The input with the elements at `indices` increased by `updates`.",
)
