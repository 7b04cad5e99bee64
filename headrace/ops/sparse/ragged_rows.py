"""Ops on ragged tensors: RaggedGather, RaggedTensorToSparse and RaggedTensorToTensor.

Source: TensorFlow's ops of the same names. `ragged` defines ragged tensors. A dimension may also be described by the
row of each element (`VALUE_ROWIDS`), preceded by the number of rows (`FIRST_DIM_SIZE`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import INDEX, VALUE, DType, float64, int32, int64, string
from headrace.errors import InvalidArgumentError
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, int_attr, list_attr, op, type_attr
from headrace.opkit.arrays import check_size, zeros
from headrace.opkit.shape_rules import unbroadcast
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape

_FACTS = Facts(dynamic_shape=True, cost=flops_per_input(20))


def _ranges(starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The numbers from each start to its end, one after the other."""
    sizes = ends - starts
    before = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)


def _several(dtype: DType, cases: list[Any]) -> list[Any]:
    return cases if dtype in (float64, string) else cases[:1]


# *** RaggedGather ***


def _gather_kernel(attrs: Mapping[str, Any]) -> Any:
    levels, dtype, splits_dtype = attrs["PARAMS_RAGGED_RANK"], attrs["Tvalues"], attrs["Tsplits"].numpy
    wanted = attrs["OUTPUT_RAGGED_RANK"]

    def kernel(*args: Any) -> Any:
        *nested, values, indices = args
        _check_params(nested, values)
        if indices.ndim + levels - 1 != wanted:
            raise InvalidArgumentError(
                f"OUTPUT_RAGGED_RANK must be indices.rank + PARAMS_RAGGED_RANK - 1: {wanted} is not "
                f"{indices.ndim} + {levels} - 1"
            )
        flat, rows = indices.reshape(-1), len(nested[0]) - 1
        wrong = (flat < 0) | (flat >= rows)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InvalidArgumentError(f"indices[{i}] = {flat[i]} is not in [0, {rows})")
        out = []
        for k in range(1, indices.ndim):
            count = math.prod(indices.shape[:k])
            out.append(np.arange(count + 1) * indices.shape[k])
        starts, ends = flat, flat + 1
        for k, splits in enumerate(nested):
            sizes = splits[ends] - splits[starts]
            check_size((int(sizes.sum(dtype=np.float64)), *values.shape[1:]), dtype)
            if k or indices.ndim:
                below = _ranges(starts, ends)
                out.append(np.concatenate([[0], np.cumsum(splits[below + 1] - splits[below])]))
            starts, ends = splits[starts], splits[ends]
        found = [s.astype(splits_dtype) for s in out]
        result = values[_ranges(starts, ends)]
        return (*found, result) if wanted else result

    return kernel


def _check_params(nested: Sequence[Any], values: Any) -> None:
    if not values.ndim:
        raise InvalidArgumentError("params.rank must be nonzero")
    below = [*(len(s) - 1 for s in nested[1:] if s.ndim), len(values)]
    for splits, n in zip(nested, below):
        if splits.ndim != 1 or not len(splits):
            raise InvalidArgumentError(
                f"Splits must be vectors with an element, got the shape {shapes.show(splits.shape)}"
            )
        if (splits[1:] < splits[:-1]).any() or splits[0] < 0:
            raise InvalidArgumentError(f"Ragged splits must be sorted, got {splits.tolist()}")
        if splits[-1] > n:
            raise InvalidArgumentError(f"Ragged splits must not point past values: {splits[-1]}, where {n} are")


def _gather_shape(c: Inference) -> Sequence[Shape]:
    levels, wanted = c.attrs["PARAMS_RAGGED_RANK"], c.attrs["OUTPUT_RAGGED_RANK"]
    *nested, values, indices = c.shapes
    for s in nested:
        shapes.with_rank(s, 1)
    if indices is not None and len(indices) + levels - 1 != wanted:
        raise ValueError(
            f"OUTPUT_RAGGED_RANK must be indices.rank + PARAMS_RAGGED_RANK - 1: {wanted} is not "
            f"{len(indices)} + {levels} - 1"
        )
    values = shapes.with_rank_at_least(values, 1)
    return [(None,)] * wanted + [None if values is None else (None, *values[1:])]


def _gather_grad(b: Any, n: Any, *dys: Any) -> list[Any]:
    nested, values = n.params_nested_splits, n.params_dense_values
    shape = b.Shape(values)
    rows = b.StridedSlice(shape, [0], [1], [1], shrink_axis_mask=1)
    out = b.RaggedGather(nested, b.Range(0, rows, 1), n.indices, OUTPUT_RAGGED_RANK=n.attrs["OUTPUT_RAGGED_RANK"])
    places = out[-1] if isinstance(out, tuple) else out
    return [None] * len(nested) + [IndexedSlices(dys[-1], places, shape), None]


def _gather_jvp(b: Any, n: Any, *dxs: Any) -> list[Any]:
    levels = len(n.params_nested_splits)
    out = b.RaggedGather(
        n.params_nested_splits, dxs[levels], n.indices, OUTPUT_RAGGED_RANK=n.attrs["OUTPUT_RAGGED_RANK"]
    )
    return [None] * n.attrs["OUTPUT_RAGGED_RANK"] + [out[-1] if isinstance(out, tuple) else out]


def _listed(nested: Sequence[np.ndarray], values: Any) -> list[Any]:
    """Ragged tensor as nested lists of the indices of its values."""
    out: list[Any] = list(range(len(values)))
    for splits in reversed(nested):
        out = [out[s:e] for s, e in itertools.pairwise(splits.tolist())]
    return out


def _ragged(rows: list[Any], levels: int, values: np.ndarray, splits_dtype: np.dtype) -> tuple[np.ndarray, ...]:
    """The splits and the values of such lists."""
    out = []
    for _ in range(levels):
        out.append(np.cumsum([0, *map(len, rows)]).astype(splits_dtype))
        rows = [x for row in rows for x in row]
    return *out, values[np.array(rows, np.int64)]


def _gather_model(nested: Sequence[np.ndarray], values: np.ndarray, indices: np.ndarray, **attrs: Any) -> Any:
    rows = _listed(nested, values)

    def at(i: Any) -> Any:
        return [at(j) for j in i] if isinstance(i, list) else rows[i]

    levels = indices.ndim + len(nested) - 1
    found = at(indices.tolist())
    return _ragged(found, levels, values, nested[0].dtype)


_NESTED = (([0, 2, 2, 5],), ([0, 2, 3], [0, 1, 4, 5]))


def _gather_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return _several(
        dtype,
        [
            case(
                [np.array(s, t) for s in nested],
                draw(rng, dtype, shape),
                np.array(indices, np.int64),
                OUTPUT_RAGGED_RANK=np.ndim(indices) + len(nested) - 1,
            )
            for nested, shape, indices, t in (
                (_NESTED[0], (5,), [2, 0, 0], np.int64),
                (_NESTED[1], (5, 2), [[1], [0]], np.int32),
                (_NESTED[1], (5,), 1, np.int64),
                (_NESTED[0], (5,), [], np.int64),
            )
        ],
    )


op(
    "RaggedGather",
    "params_nested_splits: PARAMS_RAGGED_RANK * Tsplits, params_dense_values: Tvalues, indices: Tindices",
    "output_nested_splits: OUTPUT_RAGGED_RANK * Tsplits, output_dense_values: Tvalues",
    {
        "Tvalues": VALUE,
        "Tindices": INDEX,
        "Tsplits": type_attr(INDEX, int64),
        "PARAMS_RAGGED_RANK": int_attr(minimum=1),
        "OUTPUT_RAGGED_RANK": int_attr(minimum=0),
    },
    shape=_gather_shape,
    kernel=_gather_kernel,
    xp=False,
    grad=_gather_grad,
    jvp=_gather_jvp,
    facts=_FACTS,
    oracle=_gather_model,
    sample=_gather_samples,
    doc="The rows of a ragged tensor with these numbers.",
)

# *** RaggedTensorToSparse ***


def _to_sparse_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(*args: Any) -> Any:
        *nested, values = args
        _check_splits(nested, values)
        places = [np.arange(len(nested[0]) - 1)]  # the coordinates of the rows of the level so far
        dims = [len(nested[0]) - 1]
        for splits in nested:
            sizes = np.diff(splits)
            places = [np.repeat(p, sizes) for p in places]
            places.append(_ranges(np.zeros_like(sizes), sizes))
            dims.append(int(sizes.max(initial=0)))
        row = values.shape[1:]
        inner = np.indices(row).reshape(len(row), math.prod(row))
        n = inner.shape[1]
        columns = [np.repeat(p, n) for p in places] + [np.tile(x, len(values)) for x in inner]
        indices = np.stack(columns, axis=1).astype(np.int64)
        return indices, values.reshape(-1), np.array([*dims, *row], np.int64)

    return kernel


def _check_splits(nested: Sequence[Any], values: Any) -> None:
    for splits in nested:
        if splits.ndim != 1 or not len(splits):
            raise InvalidArgumentError(
                f"ragged splits may not be empty, and must be vectors: got shape {shapes.show(splits.shape)}"
            )
        if splits[0]:
            raise InvalidArgumentError(f"First value of ragged splits must be 0, got {splits[0]}.")
        falls = splits[1:] < splits[:-1]
        if falls.any():
            i = int(np.argmax(falls))
            raise InvalidArgumentError(
                f"Ragged splits should be non decreasing, but we got {splits[i]} followed by {splits[i + 1]}"
            )
    below = [*(len(s) - 1 for s in nested[1:]), len(values) if values.ndim else None]
    for splits, n in zip(nested, below):
        if splits[-1] != n:
            raise InvalidArgumentError(
                f"Final value of ragged splits must match the length the corresponding ragged values: {splits[-1]} "
                f"against {n}."
            )


def _to_sparse_shape(c: Inference) -> Sequence[Shape]:
    *nested, values = c.shapes
    for s in nested:
        shapes.with_rank(s, 1)
    values = shapes.with_rank_at_least(values, 1)
    rank: Dim = None if values is None else len(values) + len(nested)
    n = shapes.size(values)
    return [(n, rank), (n,), (rank,)]


def _to_sparse_model(nested: Sequence[np.ndarray], values: np.ndarray) -> Any:
    found: dict[tuple[int, ...], Any] = {}

    def walk(x: Any, place: tuple[int, ...]) -> None:
        if isinstance(x, list):
            for i, y in enumerate(x):
                walk(y, (*place, i))
        else:
            found.update({(*place, *i): values[(x, *i)] for i in np.ndindex(values.shape[1:])})

    walk(_listed(nested, values), ())
    dims = [len(nested[0]) - 1, *(int(np.diff(s).max(initial=0)) for s in nested), *values.shape[1:]]
    out = np.empty(len(found), values.dtype)
    for i, v in enumerate(found.values()):
        out[i] = v
    return np.array(list(found), np.int64).reshape(-1, len(dims)), out, np.array(dims, np.int64)


op(
    "RaggedTensorToSparse",
    "rt_nested_splits: RAGGED_RANK * Tsplits, rt_dense_values: T",
    "sparse_indices: int64, sparse_values: T, sparse_dense_shape: int64",
    {"T": VALUE, "RAGGED_RANK": int_attr(minimum=1), "Tsplits": type_attr(INDEX, int64)},
    shape=_to_sparse_shape,
    kernel=_to_sparse_kernel,
    xp=False,
    grad=lambda b, n, d_indices, d_values, d_shape: [
        *[None] * len(n.rt_nested_splits),
        b.Reshape(d_values, b.Shape(n.rt_dense_values)),
    ],
    jvp=lambda b, n, *dxs: [None, b.Reshape(dxs[-1], [-1]), None],
    facts=_FACTS,
    oracle=_to_sparse_model,
    sample=lambda rng, dtype: _several(
        dtype,
        [
            case([np.array(s, t) for s in nested], draw(rng, dtype, shape))
            for nested, shape, t in (
                (_NESTED[0], (5,), np.int64),
                (_NESTED[1], (5, 2), np.int32),
                (([0, 0],), (0, 2), np.int64),
            )
        ],
    ),
    doc="The sparse tensor with the elements of a ragged one.",
)

# *** RaggedTensorToTensor ***

_KINDS = ("ROW_SPLITS", "VALUE_ROWIDS", "FIRST_DIM_SIZE")


def _partitions(tensors: Sequence[Any], kinds: Sequence[str]) -> tuple[int, list[np.ndarray]]:
    """Number of rows, and for each inner dimension the row of each element."""
    if not kinds:
        raise InvalidArgumentError("No row_partition_types given.")
    if len(kinds) != len(tensors):
        raise InvalidArgumentError(f"There are {len(kinds)} row_partition_types and {len(tensors)} tensors")
    for kind in kinds:
        if kind not in _KINDS:
            raise InvalidArgumentError(f"Unknown string for partition info type: {kind}")
    if kinds[0] == "VALUE_ROWIDS":
        raise InvalidArgumentError("Cannot handle VALUE_ROWIDS in first dimension.")
    if "FIRST_DIM_SIZE" in kinds[1:]:
        raise InvalidArgumentError("Cannot handle FIRST_DIM_SIZE but in the first dimension.")
    first = tensors[0]
    if not first.size:
        raise InvalidArgumentError("Invalid first partition input. Tensor requires at least one element.")
    if kinds[0] == "FIRST_DIM_SIZE":
        rows = int(first.reshape(-1)[0])
        if rows < 0:
            raise InvalidArgumentError(f"Dimension {rows} must be >= 0")
        tensors, kinds = tensors[1:], kinds[1:]
    else:
        rows = len(first) - 1 if first.ndim == 1 else -1
    out: list[np.ndarray] = []
    above = rows
    for x, kind in zip(tensors, kinds, strict=True):
        if x.ndim != 1:
            raise InvalidArgumentError(f"A row partition must be a vector, got shape {shapes.show(x.shape)}")
        if kind == "ROW_SPLITS":
            if len(x) != above + 1 or x[0] or (x[1:] < x[:-1]).any():
                raise InvalidArgumentError(
                    f"Invalid row split size: splits must be {above + 1} numbers that begin with 0 and never fall, got "
                    f"{x.tolist()[:10]}"
                )
            check_size((int(x[-1]),), int64)
            x = np.repeat(np.arange(above), np.diff(x))
        else:
            wrong = (x < 0) | (x >= above)
            if wrong.any():
                raise InvalidArgumentError(f"Got next_value_rowid={x[np.argmax(wrong)]} which is not less than {above}")
            if (x[1:] < x[:-1]).any():
                raise InvalidArgumentError(f"value_rowids must never fall, got {x.tolist()[:10]}")
        out.append(x)
        above = len(x)
    return rows, out


def _wanted_dims(shape: Any, rank: int) -> list[int]:
    if shape.ndim > 1:
        raise InvalidArgumentError(f"shape must be a scalar or vector, got shape {shapes.show(shape.shape)}")
    if not shape.ndim:
        if shape != -1:
            raise InvalidArgumentError("The only valid scalar shape tensor is the fully unknown shape specified as -1.")
        return [-1] * rank
    dims: list[int] = shape.tolist()
    if min(dims, default=0) < -1:
        raise InvalidArgumentError(f"Dimension {min(dims)} must be >= -1")
    if len(dims) != rank:
        raise InvalidArgumentError(
            f"rt_input.shape and shape={shapes.show(tuple(dims))} are incompatible: rt_input.rank = {rank} but "
            f"shape.rank = {len(dims)}"
        )
    return dims


def _to_tensor_kernel(attrs: Mapping[str, Any]) -> Any:
    kinds, dtype = attrs["row_partition_types"], attrs["T"]

    def kernel(shape: Any, values: Any, default: Any, *tensors: Any) -> Any:
        rows, levels = _partitions(tensors, kinds)
        row = values.shape[1:]
        wanted = _wanted_dims(shape, len(levels) + values.ndim)
        if default.ndim >= max(values.ndim, 1) or any(
            x not in (1, y) for x, y in zip(default.shape, row[len(row) - default.ndim :], strict=True)
        ):
            raise InvalidArgumentError(
                f"default_value.shape={shapes.show(default.shape)} and rt_input.flat_values.shape="
                f"{shapes.show(values.shape)} are incompatible"
            )
        inner = wanted[len(levels) + 1 :]
        for k, (x, y) in enumerate(zip(inner, row, strict=True), len(levels) + 1):
            if x not in (-1, y):
                raise InvalidArgumentError(
                    f"rt_input.shape and shape={shapes.show(tuple(wanted))} are incompatible: rt_input.shape[{k}] = "
                    f"{y} but shape[{k}] = {x}"
                )
        dims = [rows if wanted[0] < 0 else wanted[0]]
        counts = [np.bincount(x, minlength=1) if len(x) else np.zeros(1, np.int64) for x in levels]
        dims += [int(n.max()) if w < 0 else w for n, w in zip(counts, wanted[1:])]
        check_size((*dims, *row), dtype)
        check_size((rows,), int64)
        n = len(levels[-1]) if levels else rows
        if n > len(values):
            raise InvalidArgumentError(f"The row partitions are of {n} values, but there are {len(values)}")
        out = zeros(np, (*dims, *row), dtype)
        out[...] = default
        at = np.arange(rows)
        at[dims[0] :] = -1  # where an element goes; nowhere
        for level, count, d in zip(levels, counts, dims[1:], strict=True):
            above = at[level]
            place = np.arange(len(level)) - (np.cumsum(count) - count)[level]
            at = np.where((above >= 0) & (place < d), above * d + place, -1)
        there = at >= 0
        flat = out.reshape(-1, *row) if out.size else out.reshape(math.prod(dims), *row)
        flat[at[there]] = values[:n][there]
        return out

    return kernel


def _to_tensor_shape(c: Inference) -> Sequence[Shape]:
    kinds = c.attrs["row_partition_types"]
    levels = len(kinds) - (kinds[:1] == ("FIRST_DIM_SIZE",))
    values, known = c.shapes[1], c.shape_value(0)
    if c.shapes[0] == () or known is None:
        known = None if values is None else (None,) * (levels + len(values))
    if values is not None and known is not None and len(known) == levels + len(values):
        known = (*known[: levels + 1], *values[1:])
    return [known]


def _to_tensor_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """Gradient rule of RaggedTensorToTensor.

    The op, applied to the indices of the values, gives the source of each element. Elements without a source are
    defaults.
    """
    kinds = n.attrs["row_partition_types"]
    levels = len(kinds) - (kinds[:1] == ("FIRST_DIM_SIZE",))
    shape = b.Shape(n.values)
    count = b.StridedSlice(shape, [0], [1], [1], shrink_axis_mask=1)
    row = b.StridedSlice(shape, [1], [0], [1], end_mask=1)
    outer = b.StridedSlice(b.Shape(dy), [0], [levels + 1], [1])
    sources = b.RaggedTensorToTensor(
        outer, b.Range(0, count, 1), b.const(-1, int32), n.row_partition_tensors, row_partition_types=kinds
    )
    sources = b.Reshape(sources, [-1])
    rows = b.Reshape(dy, b.ConcatV2([b.ExpandDims(b.Size(sources), 0), row], 0))

    def by_default() -> Any:
        missing = b.Sub(b.Cast(b.Less(sources, 0), DstT=int32), 1)  # 0 for the default, -1 (dropped) for values
        rest = b.Reshape(b.UnsortedSegmentSum(rows, missing, 1), row)
        return unbroadcast(b, n.default_value, rest, rest, None)[0]

    return [
        None,
        lambda: b.UnsortedSegmentSum(rows, sources, count),
        by_default,
        *[None] * len(n.row_partition_tensors),
    ]


def _to_tensor_model(shape: Any, values: Any, default: Any, tensors: Any, row_partition_types: Any) -> np.ndarray:
    nested, above = [], None
    for x, kind in zip(tensors, row_partition_types, strict=True):
        if kind == "FIRST_DIM_SIZE":
            above = int(x)
        elif kind == "ROW_SPLITS":
            nested.append(x)
            above = int(x[-1])
        else:
            nested.append(np.cumsum([0, *(sum(x == r) for r in range(above or 0))]))
            above = len(x)
    found = _listed(nested, values)
    rank = len(nested) + values.ndim
    sizes = [len(nested[0]) - 1, *(int(np.diff(s).max(initial=0)) for s in nested), *values.shape[1:]]
    wanted = shape.tolist() if shape.ndim else [-1] * rank
    dims = [y if x < 0 else x for x, y in zip(wanted, sizes, strict=True)]
    out = np.empty(dims, values.dtype)
    stretched = np.broadcast_to(default, values.shape[1:])
    for i in np.ndindex(out.shape):
        at: Any = found
        for k in i[: len(nested) + 1]:
            at = at[k] if isinstance(at, list) and k < len(at) else None
        rest = i[len(nested) + 1 :]
        out[i] = stretched[rest] if at is None else values[(at, *rest)]
    return out


def _to_tensor_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    splits, ids, first = _KINDS
    return _several(
        dtype,
        [
            case(
                np.array(shape, np.int64),
                draw(rng, dtype, (5, *row)),
                draw(rng, dtype, default or (1,)) if default else draw(rng, dtype, (1,))[0, ...],
                [np.array(x, np.int64) for x in partitions],
                row_partition_types=kinds,
            )
            for shape, row, default, partitions, kinds in (
                ([-1, -1], (), (), _NESTED[0], (splits,)),
                ([2, -1, 2], (), (), _NESTED[1], (splits, splits)),
                ([4, 2, -1], (2,), (2,), (4, [0, 0, 2, 2, 2]), (first, ids)),
                (-1, (2,), (1,), (3, [0, 2], [0, 0, 0, 1, 1]), (first, ids, ids)),
            )
        ],
    )


op(
    "RaggedTensorToTensor",
    "shape: Tshape, values: T, default_value: T, row_partition_tensors: num_row_partition_tensors * Tindex",
    "result: T",
    {
        "T": VALUE,
        "Tindex": INDEX,
        "Tshape": INDEX,
        "num_row_partition_tensors": int_attr(minimum=1),
        "row_partition_types": list_attr("string"),
    },
    shape=_to_tensor_shape,
    kernel=_to_tensor_kernel,
    xp=False,
    grad=_to_tensor_grad,
    facts=_FACTS,
    oracle=_to_tensor_model,
    sample=_to_tensor_samples,
    doc="A ragged tensor as a dense one, in which short rows end with `default_value`s and long ones are cut off.",
    differs="Row numbers that decrease, and partitions of more values than given, are refused.",
)
