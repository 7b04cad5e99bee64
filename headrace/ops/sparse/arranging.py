"""Ops that rearrange the elements of sparse tensors: SparseReorder, SparseReshape, SparseConcat, SparseSplit,
SparseSlice.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import NUMERIC, VALUE, DType, float32, int64, string
from headrace.errors import InternalError, InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_input, int_attr, op
from headrace.opkit.arrays import zeros
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, integers
from headrace.opkit.row_sums import first_true, last_rows
from headrace.ops.sparse.coordinates import (
    check_parts,
    checked,
    checked_dims,
    collected,
    drawn,
    either,
    filled,
    numbered,
    ordering,
    outside,
    parts,
    places_in,
    sparse_out,
)
from headrace.shapes import Dim, Shape

_DYNAMIC = Facts(dynamic_shape=True, cost=flops_per_input(10))


def _some(dtype: DType, cases: list[Any]) -> list[Any]:
    """All cases for dtypes with behaviour of their own; one case for the others."""
    return cases if dtype in (float32, string) else cases[:1]


# *** SparseReorder ***


def _reorder_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(indices: Any, values: Any, shape: Any) -> Any:
        check_parts(indices, values, shape)
        order = ordering(indices, xp)
        return xp.take(indices, order, axis=0), xp.take(values, order, axis=0)

    return kernel


def _reorder_shape(c: Inference) -> Sequence[Shape]:
    return sparse_out(*parts(c, 0))[:2]


def _reorder_grad(b: Any, n: Any, d_indices: Any, d_values: Any) -> list[Any]:
    places = b.Range(0, b.Size(n.input_values), 1)
    _, order = b.SparseReorder(n.input_indices, places, n.input_shape)
    return [None, b.GatherV2(d_values, b.InvertPermutation(order), 0), None]


def _reordered(indices: np.ndarray, values: np.ndarray, shape: np.ndarray) -> Any:
    order = sorted(range(len(values)), key=lambda i: tuple(indices[i]))
    return indices[order], values[order]


def _shuffled(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = []
    for shape, n in (((3, 4), 6), ((2, 2, 2), 3), ((5,), 0), ((3,), 2)):
        indices, values, dims = drawn(rng, dtype, shape, n)
        order = rng.permutation(n)
        cases.append(case(indices[order], values[order], dims))
    return _some(dtype, cases)


op(
    "SparseReorder",
    "input_indices: int64, input_values: T, input_shape: int64",
    "output_indices: int64, output_values: T",
    {"T": VALUE},
    shape=_reorder_shape,
    kernel=_reorder_kernel,
    xp=True,
    grad=_reorder_grad,
    jvp=lambda b, n, *dxs: [None, b.SparseReorder(n.input_indices, dxs[1], n.input_shape)[1]],
    facts=Facts(cost=flops_per_input(20)),
    oracle=_reordered,
    sample=_shuffled,
    doc="The elements of a sparse tensor in the order of their coordinates.",
)

# *** SparseReshape ***


def _inferred(old: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """`wanted`, with its -1 replaced by what makes it as large as `old`."""
    for i, d in enumerate(wanted):
        if d < -1:
            raise InvalidArgumentError(f"size {i} must be non-negative, not {d}")
    unknown = [i for i, d in enumerate(wanted) if d == -1]
    if len(unknown) > 1:
        raise InvalidArgumentError(f"only one output dimension may be -1, not both {unknown[0]} and {unknown[1]}")
    size, known = math.prod(old), math.prod(d for d in wanted if d != -1)
    sizes = f"input_shape={shapes.show(old)} output_shape={shapes.show(wanted)}"
    if unknown:
        if not known:
            raise InvalidArgumentError(
                "reshape cannot infer the missing input size for an empty tensor unless all specified input sizes are "
                f"non-zero: {sizes}"
            )
        if size % known:
            raise InvalidArgumentError(
                f"Input to reshape is a SparseTensor with {size} dense values, but the requested shape requires a "
                f"multiple of {known}. {sizes}"
            )
        return tuple(size // known if d == -1 else d for d in wanted)
    if known != size:
        raise InvalidArgumentError(
            f"Input to reshape is a tensor with {size} dense values, but the requested shape has {known}. {sizes}"
        )
    return wanted


def _reshape_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(indices: Any, shape: Any, new_shape: Any) -> Any:
        old = checked(indices, None, shape)
        if new_shape.ndim != 1:
            raise InvalidArgumentError(
                f"Target shape should be a vector but received shape {shapes.show(new_shape.shape)}"
            )
        new = _inferred(old, integers(new_shape))
        new_dims = constant(xp, new, int64, indices)
        if old == new:
            return indices, new_dims
        place = places_in(xp, indices, old)  # there are fewer than 2**63
        columns: list[Any] = []
        for d in reversed(new):
            columns.append(place % d if d else place)
            place = place // d if d else place
        i = first_true(xp, place != 0)
        if i is not None:
            at = list(integers(indices[i, ...]))
            raise InvalidArgumentError(f"indices[{i}] = {at} is out of bounds of {shapes.show(old)}")
        out = xp.stack(columns[::-1], axis=1) if new else zeros(xp, (indices.shape[0], 0), int64, indices)
        return out, new_dims

    return kernel


def _reshape_shape(c: Inference) -> Sequence[Shape]:
    n, _ = parts(c, 0, values=False)
    (rank,) = shapes.with_rank(c.shapes[2], 1)
    return [(n, rank), (rank,)]


def _reshaped(indices: np.ndarray, shape: np.ndarray, new: np.ndarray) -> Any:
    places = np.arange(math.prod(shape.tolist())).reshape(shape)
    there = places.reshape(new)
    found = [np.argwhere(there == places[tuple(i)])[0] for i in indices]
    return np.array(found, np.int64).reshape(-1, len(new)), np.array(there.shape, np.int64)


op(
    "SparseReshape",
    "input_indices: int64, input_shape: int64, new_shape: int64",
    "output_indices: int64, output_shape: int64",
    shape=_reshape_shape,
    kernel=_reshape_kernel,
    xp=True,
    host=("input_shape", "new_shape"),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(10)),
    oracle=_reshaped,
    sample=lambda rng, dtype: [
        case(i, s, np.array(new, np.int64))
        for (i, _, s), new in (
            (drawn(rng, dtype, (2, 6), 4), (3, -1)),
            (drawn(rng, dtype, (2, 3, 2), 5), (12,)),
            (drawn(rng, dtype, (4,), 2), (2, 1, 2)),
            (drawn(rng, dtype, (0, 3), 0), (3, 0)),
        )
    ],
    doc="The coordinates and the shape of a sparse tensor's elements, once it is reshaped.",
    differs="Coordinates that would be out of bounds in the result are refused.",
)

# *** SparseConcat ***


def _concat_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    count, axis = attrs["N"], attrs["concat_dim"]

    def kernel(*args: Any) -> Any:
        pieces = [args[:count], args[count : 2 * count], args[2 * count :]]
        dims: list[list[int]] = []
        for indices, values, shape in zip(*pieces, strict=True):
            check_parts(indices, values, shape)
            dims.append(list(integers(shape)))
            if min(dims[-1], default=0) < 0 or math.prod(dims[-1]) >= 2**63:
                raise InternalError(f"Encountered overflow from large input shape: {dims[-1]}")
        rank = len(dims[0])
        if not -rank <= axis < rank:
            raise InvalidArgumentError(f"Concat dimension must be in range [{-rank}, {rank}), got {axis}")
        at = axis % rank
        for i, d in enumerate(dims):
            if len(d) != rank:
                raise InvalidArgumentError(
                    f"Ranks of all input tensors must match: expected {rank} but got {len(d)} at position {i}"
                )
            for k in range(rank):
                if k != at and d[k] != dims[0][k]:
                    raise InvalidArgumentError(
                        f"Input shapes must match: expected {dims[0][k]} for dimension {k} but got {d[k]} "
                        f"at position {i}"
                    )
        sizes = [d[at] for d in dims]
        if sum(sizes) >= 2**63:
            raise InternalError(f"Encountered overflow from large input shape: dimension {at} is of sizes {sizes}")
        moved = [xp.asarray(i, copy=True) for i in pieces[0]]
        for i, before in zip(moved, itertools.accumulate([0, *sizes[:-1]]), strict=True):
            i[:, at] += before
        indices, values = xp.concat(moved), xp.concat(pieces[1])
        order = ordering(indices, xp)
        out = [*dims[0][:at], sum(sizes), *dims[0][at + 1 :]]
        return xp.take(indices, order, axis=0), xp.take(values, order, axis=0), constant(xp, out, int64, indices)

    return kernel


def _concat_shape(c: Inference) -> Sequence[Shape]:
    count = c.attrs["N"]
    n: Dim = 0
    rank: Dim = None
    for i in range(count):
        mine, r = shapes.with_rank(c.shapes[i], 2)
        mine = either(mine, shapes.with_rank(c.shapes[count + i], 1)[0])
        n = None if n is None or mine is None else n + mine
        rank = either(rank, either(r, shapes.with_rank(c.shapes[2 * count + i], 1)[0]))
    return sparse_out(n, rank)


def _concatenated(indices: Any, values: Any, dims: Any, concat_dim: int) -> Any:
    rank, before = len(dims[0]), 0
    found: dict[tuple[int, ...], Any] = {}
    for i, v, d in zip(indices, values, dims, strict=True):
        for place, x in filled(i, v, d).items():
            moved = list(place)
            moved[concat_dim] += before
            found[tuple(moved)] = x
        before += int(d[concat_dim])
    shape = np.array(dims[0])
    shape[concat_dim] = before
    return *collected(found, values[0].dtype, rank), shape


def _concat_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = []
    for sizes, axis in (
        (((2, 3), (2, 2)), 1),
        (((2, 3), (1, 3), (3, 3)), -2),
        (((2, 0), (2, 2)), -1),
    ):
        drawn_ = [drawn(rng, dtype, s, math.prod(s) // 2) for s in sizes]
        cases.append(case(*map(list, zip(*drawn_, strict=True)), concat_dim=axis))
    return _some(dtype, cases)


op(
    "SparseConcat",
    "indices: N * int64, values: N * T, shapes: N * int64",
    "output_indices: int64, output_values: T, output_shape: int64",
    {"concat_dim": int_attr(), "N": int_attr(minimum=2), "T": VALUE},
    shape=_concat_shape,
    kernel=_concat_kernel,
    xp=True,
    host=("shapes",),
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(cost=flops_per_input(40)),
    oracle=_concatenated,
    sample=_concat_samples,
    doc="Sparse tensors put together along one dimension.",
)

# *** SparseSplit ***


def _split_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    count = attrs["num_split"]

    def kernel(split_dim: Any, indices: Any, values: Any, shape: Any) -> Any:
        if split_dim.ndim:
            raise InvalidArgumentError(
                f"Input axis should be a scalar but received shape {shapes.show(split_dim.shape)}"
            )
        dims = checked(indices, values, shape)
        axis = int(split_dim)
        if not -len(dims) <= axis < len(dims):
            raise InvalidArgumentError(f"Input axis should be in range [{-len(dims)}, {len(dims)}), got {axis}")
        axis %= len(dims)
        if not 1 <= count <= dims[axis]:
            raise InvalidArgumentError(
                f"Input num_split should be between 1 and the splitting dimension size ({dims[axis]}), got {count}"
            )
        i = first_true(xp, xp.any(outside(indices, dims, xp), axis=1))
        if i is not None:
            at = list(integers(indices[i, ...]))
            raise InvalidArgumentError(f"Sparse index tuple indices[{i}, :] = {at} is out of bounds")
        least, more = divmod(dims[axis], count)  # the first `more` pieces are one larger
        out: list[tuple[Any, Any, Any]] = []
        start = 0
        for k in range(count):
            end = start + least + (k < more)
            mine = (indices[:, axis] >= start) & (indices[:, axis] < end)
            piece = indices[mine]
            piece[:, axis] -= start
            size = [*dims[:axis], end - start, *dims[axis + 1 :]]
            out.append((piece, values[mine], constant(xp, size, int64, indices)))
            start = end
        return tuple(x for kind in zip(*out, strict=True) for x in kind)

    return kernel


def _split_shape(c: Inference) -> Sequence[Shape]:
    _, rank = parts(c, 1, ranks="")
    return [s for s in sparse_out(None, rank) for _ in range(c.attrs["num_split"])]


def _pieces(split_dim: Any, indices: np.ndarray, values: np.ndarray, shape: np.ndarray, num_split: int) -> Any:
    dim = int(split_dim)
    owners = [k for k, part in enumerate(np.array_split(np.arange(shape[dim]), num_split)) for _ in part]
    out = []
    for k in range(num_split):
        begin = owners.index(k)
        found = {p: v for p, v in filled(indices, values, shape).items() if owners[p[dim]] == k}
        moved = {tuple(x - begin * (d == dim % len(shape)) for d, x in enumerate(p)): v for p, v in found.items()}
        size = shape.copy()
        size[dim] = owners.count(k)
        out.append((*collected(moved, values.dtype, len(shape)), size))
    return tuple(x for kind in zip(*out, strict=True) for x in kind)


op(
    "SparseSplit",
    "split_dim: int64, indices: int64, values: T, shape: int64",
    "output_indices: num_split * int64, output_values: num_split * T, output_shape: num_split * int64",
    {"num_split": int_attr(minimum=1), "T": VALUE},
    shape=_split_shape,
    kernel=_split_kernel,
    xp=True,
    host=("split_dim", "shape"),
    grad=NOT_DIFFERENTIABLE,
    facts=_DYNAMIC,
    oracle=_pieces,
    sample=lambda rng, dtype: _some(
        dtype,
        [
            case(np.array(d, np.int64), *drawn(rng, dtype, s, n), num_split=k)
            for d, s, n, k in ((1, (2, 5), 6, 2), (0, (3, 2), 3, 3), (-1, (2, 4), 0, 1))
        ],
    ),
    doc="The pieces into which a sparse tensor is cut along one dimension; the first may be one longer.",
)

# *** SparseSlice ***


def _slice_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(indices: Any, values: Any, shape: Any, start: Any, size: Any) -> Any:
        dims = checked(indices, values, shape)
        for name, x in (("start", start), ("size", size)):
            if x.shape != (len(dims),):
                raise InvalidArgumentError(
                    f"Expected {name} to be a vector of length {len(dims)} but got shape {shapes.show(x.shape)}"
                )
        begins, sizes = integers(start), integers(size)
        if min(sizes, default=0) < 0:
            raise InvalidArgumentError(f"Expected a non-negative size, got {min(sizes)}")
        ends = [min(s + n, d) for s, n, d in zip(begins, sizes, dims, strict=True)]
        first = start if xp is np else constant(xp, begins, int64, indices)
        inside = xp.all((indices >= first) & (indices < constant(xp, ends, int64, indices)), axis=1)
        out = checked_dims(tuple([max(e - s, 0) for s, e in zip(begins, ends, strict=True)]))
        return indices[inside] - first, values[inside], constant(xp, out, int64, indices)

    return kernel


def _slice_shape(c: Inference) -> Sequence[Shape]:
    return sparse_out(None, parts(c, 0, ranks="")[1])


def _slice_grad(b: Any, n: Any, d_indices: Any, d_values: Any, d_shape: Any) -> list[Any]:
    return [None, b.SparseSliceGrad(d_values, n.indices, n.start, n.output_indices), None, None, None]


def _sliced(indices: np.ndarray, values: np.ndarray, shape: np.ndarray, start: np.ndarray, size: np.ndarray) -> Any:
    box = [range(s, min(s + n, d)) for s, n, d in zip(start, size, shape, strict=True)]
    found = {
        tuple(int(x - s) for x, s in zip(p, start, strict=True)): v
        for p, v in filled(indices, values, shape).items()
        if all(x in r for x, r in zip(p, box, strict=True))
    }
    return *collected(found, values.dtype, len(shape)), np.array([len(r) for r in box], np.int64)


_SLICES = (((3, 4), 8, (0, 1), (2, 2)), ((2, 2, 3), 7, (1, 0, 1), (9, 1, 2)), ((4,), 3, (5,), (1,)))

op(
    "SparseSlice",
    "indices: int64, values: T, shape: int64, start: int64, size: int64",
    "output_indices: int64, output_values: T, output_shape: int64",
    {"T": VALUE},
    shape=_slice_shape,
    kernel=_slice_kernel,
    xp=True,
    host=("shape", "start", "size"),
    grad=_slice_grad,
    jvp=lambda b, n, *dxs: [None, b.SparseSlice(n.indices, dxs[1], n.shape, n.start, n.size)[1], None],
    facts=_DYNAMIC,
    oracle=_sliced,
    sample=lambda rng, dtype: _some(
        dtype,
        [
            case(*drawn(rng, dtype, s, n), np.array(start, np.int64), np.array(size, np.int64))
            for s, n, start, size in _SLICES
        ],
    ),
    doc="The elements of a sparse tensor within a box, which is cut off at its ends.",
)


def _slice_grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(dy: Any, indices: Any, start: Any, out: Any) -> Any:
        if indices.ndim != 2 or out.ndim != 2 or dy.ndim != 1 or start.ndim != 1:
            raise InvalidArgumentError(
                f"Expected a vector backprop_val_grad, matrices input_indices and output_indices and a vector "
                f"input_start, got shapes {', '.join(shapes.show(x.shape) for x in (dy, indices, out, start))}"
            )
        if start.shape[0] != indices.shape[1] or out.shape[1] != indices.shape[1]:
            raise InvalidArgumentError(
                f"Expected input_start to be a vector of length {indices.shape[1]} but got length {start.shape[0]}; "
                f"the coordinates of the slice have length {out.shape[1]}"
            )
        if dy.shape[0] != out.shape[0]:
            raise InvalidArgumentError(
                "# elements of backprop_val_grad and # rows of output_indices should match (#nnz of sum): "
                f"got {dy.shape[0]} and {out.shape[0]}"
            )
        n = indices.shape[0]
        numbers = numbered(xp.concat([indices, out + start]), xp)
        count = int(xp.max(numbers)) + 1 if numbers.shape[0] else 0
        every = xp.arange(n, dtype=xp.int64, device=indices.device)
        to = xp.take(last_rows(xp, every, numbers[:n], count, -1), numbers[n:], axis=0)
        if xp.any(to < 0):
            used = int(xp.sum(to >= 0, dtype=xp.int64))
            raise InternalError(
                f"Elements of backprop_val_grad aren't all propagated. Num elements:{dy.shape[0]}, used: {used}"
            )
        return last_rows(xp, dy, to, n, 0)

    return kernel


def _slice_grad_shape(c: Inference) -> Sequence[Shape]:
    return [shapes.with_rank(c.shapes[1], 2)[:1]]


def _slice_grad_model(dy: np.ndarray, indices: np.ndarray, start: np.ndarray, out: np.ndarray) -> np.ndarray:
    found = filled(out + start, dy, None)
    return np.array([found.get(tuple(i), 0) for i in indices.tolist()], dy.dtype)


def _slice_grad_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases = []
    for s, n, start, size in _SLICES:
        indices, values, shape = drawn(rng, dtype, s, n)
        begin = np.array(start, np.int64)
        out, dy, _ = _sliced(indices, values, shape, begin, np.array(size, np.int64))
        cases.append(case(dy, indices, begin, out))
    return _some(dtype, cases)


op(
    "SparseSliceGrad",
    "backprop_val_grad: T, input_indices: int64, input_start: int64, output_indices: int64",
    "val_grad: T",
    {"T": NUMERIC},
    shape=_slice_grad_shape,
    kernel=_slice_grad_kernel,
    xp=True,
    grad=lambda b, n, dy: [
        b.SparseAddGrad(dy, b.AddV2(n.output_indices, n.input_start), n.input_indices, n.input_indices)[0],
        None,
        None,
        None,
    ],
    jvp=linear("backprop_val_grad"),
    facts=Facts(cost=flops_per_input(20)),
    oracle=_slice_grad_model,
    sample=_slice_grad_samples,
    doc="The gradient of SparseSlice by the values: zero for those outside the box.",
)
