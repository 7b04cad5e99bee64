"""Ops that distribute rows to several outputs and collect them: DynamicPartition, DynamicStitch.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_element, flops_per_input, int_attr, op, type_attr
from headrace.opkit.arrays import bounds, boxed, on_host, single, values_only, zeros
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, integers, listed
from headrace.opkit.scatter import first_in
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape

# *** DynamicPartition ***


def _split_prefix(whole: Shape, prefix: Shape) -> Shape:
    """Dimensions of `whole` after those of `prefix`.

    Raises:
      ValueError: `whole` does not begin with `prefix`.
    """
    if whole is None or prefix is None:
        return None
    if len(whole) < len(prefix):
        raise ValueError(f"{shapes.show(whole)} must start with {shapes.show(prefix)}")
    shapes.merge(whole[: len(prefix)], prefix)
    return whole[len(prefix) :]


def _partition_shape(c: Inference) -> Sequence[Shape]:
    rest = _split_prefix(c.shapes[0], c.shapes[1])
    return [None if rest is None else (None, *rest)] * c.attrs["num_partitions"]


def _partition_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    n = attrs["num_partitions"]

    def kernel(data: Any, partitions: Any) -> Any:
        if data.shape[: partitions.ndim] != partitions.shape:
            raise InvalidArgumentError(
                "data.shape must start with partitions.shape, "
                f"got data.shape = {shapes.show(data.shape)}, partitions.shape = {shapes.show(partitions.shape)}"
            )
        least, greatest = (0, 0) if 0 in partitions.shape else bounds(xp, partitions)
        if least < 0 or greatest >= n:
            at = first_in(xp, (partitions < 0) | (partitions >= n))
            where = shapes.show(at) if at else ""
            raise InvalidArgumentError(f"partitions{where} = {listed(partitions[(*at, ...)])} is not in [0, {n})")
        if xp is np:
            return tuple(data[np.asarray(partitions == i)] for i in range(n))
        count = math.prod(partitions.shape)
        rows, of = xp.reshape(data, (count, *data.shape[partitions.ndim :])), xp.reshape(partitions, (count,))
        return tuple([rows[of == i] for i in range(n)])

    return single(kernel, n)


def _partition_grad(b: Any, n: Any, *dys: Any) -> list[Any]:
    """The gradient of DynamicPartition: stitches the rows of `dys` to their original positions.

    Partitioning the row numbers in the same way gives these positions.
    """
    numbers = b.Reshape(b.Range(0, b.Size(n.partitions), 1), b.Shape(n.partitions))
    where = b.DynamicPartition(numbers, n.partitions, num_partitions=len(dys))
    rows = b.DynamicStitch(list(where) if len(dys) > 1 else [where], list(dys))
    return [b.Reshape(rows, b.Shape(n.data)), None]


@values_only
def _partitions(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def some(shape: Sequence[int], partitions: Any, n: int) -> Any:
        return case(draw(rng, dtype, shape), np.array(partitions, np.int32), num_partitions=n)

    return [
        some((5,), [0, 2, 0, 1, 2], 3),
        some((3, 2), [1, 1, 0], 2),
        some((2, 2, 2), [[0, 1], [1, 0]], 3),
        some((3,), 1, 2),
        some((2,), [0, 0], 1),
        some((0, 2), [], 2),
    ]


def _partition_model(data: np.ndarray, partitions: np.ndarray, num_partitions: int) -> tuple[np.ndarray, ...]:
    rest = data.shape[partitions.ndim :]
    rows: list[list[Any]] = [[] for _ in range(num_partitions)]
    for at in np.ndindex(partitions.shape):
        rows[partitions[at]].append(data[at])
    return tuple(np.array(r, data.dtype).reshape(len(r), *rest) for r in rows)


op(
    "DynamicPartition",
    "data: T, partitions: int32",
    "outputs: num_partitions * T",
    {"num_partitions": int_attr(minimum=1), "T": type_attr()},
    shape=_partition_shape,
    kernel=boxed(_partition_kernel),
    xp=True,
    grad=_partition_grad,
    jvp=linear("data"),
    facts=Facts(dynamic_shape=True, cost=flops_per_input(2)),
    oracle=_partition_model,
    sample=_partitions,
    doc="Sends row i of `data` to output `partitions[i]`.",
)

# *** DynamicStitch ***


def _stitch_shape(c: Inference) -> Sequence[Shape]:
    n = c.attrs["N"]
    row: Shape = None
    longest: Dim = 0
    for i in range(n):
        row = shapes.merge(row, _split_prefix(c.shapes[n + i], c.shapes[i]))
        indices = c.value(i)
        if indices is None or longest is None:
            longest = None
        elif indices.size:
            longest = max(longest, int(indices.max()) + 1)
    return [None if row is None else (longest, *row)]


def _stitch_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    n, dtype = attrs["N"], attrs["T"]

    def kernel(*args: Any) -> Any:
        indices, data = args[:n] if xp is np else tuple(map(on_host, args[:n])), args[n:]
        row = data[0].shape[indices[0].ndim :]
        longest = 0
        for i, (where, x) in enumerate(zip(indices, data)):
            if x.shape != where.shape + row:
                raise InvalidArgumentError(
                    f"data[{i}].shape = {shapes.show(x.shape)} must start with indices[{i}].shape = "
                    f"{shapes.show(where.shape)} and go on as {shapes.show(row)}, as all the others do"
                )
            if 0 not in where.shape:
                least, greatest = bounds(np, where)
                if least < 0:
                    raise InvalidArgumentError(f"indices[{i}] is out of range: {least} is negative")
                longest = max(longest, int(greatest) + 1)
        out = zeros(xp, (longest, *row), dtype, data[0])
        if xp is not np:
            return _stitched(xp, out, indices, data)
        for where, x in zip(indices, data):
            out[where] = x
        return out

    return kernel


def _stitched(xp: Any, out: Any, indices: Sequence[np.ndarray], data: Sequence[Any]) -> Any:
    """The rows of `data` at `indices` (the last of each), and those of `out` elsewhere."""
    n, row, total = out.shape[0], out.shape[1:], 0
    source: dict[int, int] = {}  # index → number of the row, if all data are one array
    rows = []
    for where, x in zip(indices, data, strict=True):
        count = where.size
        rows.append(xp.reshape(x, (count, *row)))
        source.update(zip(integers(where), range(total, total + count), strict=True))
        total += count
    order = constant(xp, [source.get(i, total + i) for i in range(n)], dtypes.int64, out)
    return xp.take(xp.concat([*rows, out]), order, axis=0)


def _stitch_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    count = n.attrs["N"]
    return [None] * count + [functools.partial(_rows, b, n, dy, i) for i in range(count)]


def _rows(b: Any, n: Any, dy: Any, i: int) -> Any:
    return b.GatherV2(dy, n.inputs[i], 0)


@values_only
def _stitches(rng: np.random.Generator, dtype: DType) -> list[Any]:
    def some(row: Sequence[int], *indices: Any) -> Any:
        where = [np.array(i, np.int32) for i in indices]
        return case(where, [draw(rng, dtype, (*i.shape, *row)) for i in where])

    return [some((), [0, 4], [2, 1, 3]), some((2,), 1, [[0, 3], [2, 4]]), some((3,), [0]), some((2,), [], [1, 0])]


def _stitch_model(indices: Sequence[np.ndarray], data: Sequence[np.ndarray]) -> np.ndarray:
    rows = {int(i[at]): x[at] for i, x in zip(indices, data) for at in np.ndindex(i.shape)}
    out = np.empty((len(rows), *data[0].shape[indices[0].ndim :]), data[0].dtype)
    for k, row in rows.items():
        out[k] = row
    return out


for _name in ("DynamicStitch", "ParallelDynamicStitch"):
    op(
        _name,
        "indices: N * int32, data: N * T",
        "merged: T",
        {"N": int_attr(minimum=1), "T": type_attr()},
        shape=_stitch_shape,
        kernel=boxed(_stitch_kernel),
        xp=True,
        host=("indices",),
        grad=_stitch_grad,
        jvp=linear("data"),
        facts=Facts(dynamic_shape=True, cost=flops_per_element(2)),
        oracle=_stitch_model,
        sample=_stitches,
        doc="Writes row k of each `data[i]` to row `indices[i][k]`; the last write wins, and other rows are zero.",
    )
