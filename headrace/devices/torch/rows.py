"""Ops that read, write or add rows by their number: Gather, Scatter, segments, StridedSliceGrad, OneHot.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from headrace import dtypes
from headrace.devices.torch.registering import (
    FLOATS,
    INTEGERS,
    NUMBERS,
    REAL,
    VALUES,
    Factory,
    Kernel,
    Tensor,
    Unsuited,
    axis_of,
    for_torch,
    has_nan,
    type_of,
    whole,
)
from headrace.dtypes import DType
from headrace.opkit.arrays import check_size, dims
from headrace.opkit.elementwise import HALF

# *** Numbers of rows ***


def _within(indices: Tensor, n: int) -> tuple[Tensor, Tensor | None]:
    """Indices into `n` rows that are in range, and a mask of those that were.

    On a CPU all of them are. The mask is None then.

    Raises:
      Unsuited: an index is out of range, on a CPU.
    """
    if indices.is_cpu:
        if indices.numel():
            low, high = torch.aminmax(indices)
            if int(low) < 0 or int(high) >= n:
                raise Unsuited
        return indices, None
    good = (indices >= 0) & (indices < n)
    return indices.clamp(0, max(n - 1, 0)), good


def _flat(indices: Tensor, shape: Sequence[int], ignore_bad: bool) -> tuple[Tensor, Tensor | None]:
    """The number of the row of each place, and a mask as that of `_within`.

    The last axis of `indices` has the coordinates of a place.
    """
    depth = indices.shape[-1]
    if depth > len(shape) or not depth:
        raise Unsuited
    columns = indices.long().unbind(-1)
    good: Tensor | None = None
    if indices.numel():
        for column, n in zip(columns, shape, strict=False):
            there: Tensor | None
            if ignore_bad:
                there = (column >= 0) & (column < n)
            else:
                _, there = _within(column, n)
            if there is not None:
                good = there if good is None else good & there
    step, number = math.prod(shape[1:depth]), columns[0]
    number = number * step if step != 1 else number
    for i, column in enumerate(columns[1:], 1):
        number = number + column * math.prod(shape[i + 1 : depth])
    return (number if good is None else torch.where(good, number, 0)), good


def _masked(rows: Tensor, good: Tensor | None) -> Tensor:
    """`rows`, with zeros where `good` is false; `good` has the first axes of `rows`."""
    if good is None:
        return rows
    return rows.masked_fill(good.logical_not().reshape((*good.shape, *[1] * (rows.ndim - good.ndim))), 0)


# *** Gather ***


def _take(params: Tensor, indices: Tensor, axis: int) -> Tensor:
    flat = indices.reshape(-1)
    if flat.dtype not in (torch.int32, torch.int64):
        flat = flat.long()
    if params.is_cpu:  # PyTorch checks the indices
        out = params.index_select(axis, flat)
    else:
        flat, good = _within(flat, params.shape[axis])
        if not params.shape[axis]:
            return params.new_zeros((*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :]))
        out = params.index_select(axis, flat)
        assert good is not None
        out = out.masked_fill_(good.logical_not_().reshape(-1, *[1] * (params.ndim - axis - 1)), 0)
    return out.reshape((*params.shape[:axis], *indices.shape, *params.shape[axis + 1 :]))


def _take_by_batch(params: Tensor, indices: Tensor, axis: int, batch: int) -> Tensor:
    """Gathers with the first `batch` dimensions of both tensors as batch."""
    lead = tuple(indices.shape[:batch])
    if tuple(params.shape[:batch]) != lead:
        raise Unsuited
    n, rest = params.shape[axis], tuple(indices.shape[batch:])
    places, good = _within(indices.long(), n)
    moved = params.movedim(axis, batch)  # [batch, rows, outer, inner]
    other = tuple(moved.shape[batch + 1 :])
    batches = math.prod(lead)
    if not batches * n:
        return params.new_zeros((*params.shape[:axis], *rest, *params.shape[axis + 1 :]))
    starts = torch.arange(0, batches * n, n, device=params.device).reshape(*lead, *[1] * len(rest))
    flat = (places + starts).reshape(-1)
    picked = moved.reshape(batches * n, *other).index_select(0, flat).reshape(*lead, *rest, *other)
    picked = _masked(picked, good)
    # from (batch, rest of indices, outer, inner) to (batch, outer, rest of indices, inner)
    outer = axis - batch
    order = [*range(batch), *range(indices.ndim, indices.ndim + outer), *range(batch, indices.ndim)]
    return picked.permute([*order, *range(len(order), picked.ndim)])


@for_torch("Gather", {"Tparams": VALUES})
def _gather(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    def kernel(params: Tensor, indices: Tensor) -> Tensor:
        if not params.ndim:
            raise Unsuited
        return _take(params, indices, 0)

    return kernel


@for_torch("GatherV2", {"Tparams": VALUES})
def _gather_v2(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    batched = attrs["batch_dims"]

    def kernel(params: Tensor, indices: Tensor, axis: Any) -> Tensor:
        if not params.ndim:
            raise Unsuited
        a = axis_of(axis, params.ndim)
        if not batched:
            return _take(params, indices, a)
        if not -indices.ndim <= batched <= indices.ndim:
            raise Unsuited
        batch = batched + (indices.ndim if batched < 0 else 0)
        if batch > a:
            raise Unsuited
        return _take_by_batch(params, indices, a, batch)

    return kernel


@for_torch("GatherNd", {"Tparams": VALUES})
def _gather_nd(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    ignore_bad = attrs["bad_indices_policy"] == "IGNORE"

    def kernel(params: Tensor, indices: Tensor) -> Tensor:
        if not params.ndim or not indices.ndim or not params.numel():
            raise Unsuited
        shape, depth = tuple(params.shape), indices.shape[-1]
        where, good = _flat(indices, shape, ignore_bad)
        picked = params.reshape((-1, *shape[depth:])).index_select(0, where.reshape(-1))
        return _masked(picked.reshape((*indices.shape[:-1], *shape[depth:])), good)

    return kernel


# *** Scatter ***

Put = Callable[[Tensor, Tensor, Tensor], Any]


def _add(out: Tensor, at: Tensor, rows: Tensor) -> None:
    """Adds rows to those of `out` numbered `at`, both matrices."""
    if out.shape[1] == 1:
        out.view(-1).index_add_(0, at, rows.view(-1))
    else:
        out.scatter_add_(0, at[:, None].expand(rows.shape), rows)


def _subtract(out: Tensor, at: Tensor, rows: Tensor) -> None:
    _add(out, at, -rows)


def _set(out: Tensor, at: Tensor, rows: Tensor) -> None:
    out.index_copy_(0, at, rows)


def _extreme(how: str, least: float) -> Put:
    """Puts the extremes of rows; NaN changes nothing, as in TensorFlow."""

    def put(out: Tensor, at: Tensor, rows: Tensor) -> None:
        if rows.is_floating_point():
            rows = torch.where(rows.isnan(), least, rows)
        out.scatter_reduce_(0, at[:, None].expand(rows.shape), rows, how)

    return put


def _scatter(out: Tensor, indices: Tensor, updates: Tensor, put: Put, ignore_bad: bool) -> Tensor:
    """Scatters `updates` to `indices` of `out`, a new tensor, in place."""
    if not indices.ndim or not updates.ndim:
        raise Unsuited
    shape, depth = tuple(out.shape), indices.shape[-1]
    if tuple(updates.shape) != (*indices.shape[:-1], *shape[depth:]):
        raise Unsuited
    where, good = _flat(indices, shape, ignore_bad)
    n, inner = math.prod(shape[:depth]), math.prod(shape[depth:])
    where = where.reshape(-1)
    if not inner or not len(where):
        return out
    rows = updates.reshape(-1, inner)
    if good is None:
        put(out.view(n, inner), where, rows)
        return out
    # Updates out of range go to a row of their own, behind the others.
    wide = torch.cat([out.view(n, inner), out.new_zeros((1, inner))])
    put(wide, torch.where(good.reshape(-1), where, n), rows)
    return wide[:n].reshape(shape)


@for_torch("ScatterNd", {"T": VALUES})
def _scatter_nd(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    ignore_bad, t = attrs["bad_indices_policy"] == "IGNORE", attrs["T"]

    def kernel(indices: Tensor, updates: Tensor, shape: Any) -> Tensor:
        wanted = dims(shape)
        check_size(wanted, t)
        return _scatter(updates.new_zeros(wanted), indices, updates, _add, ignore_bad)

    return kernel


def _tensor_scatter(put: Put) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        ignore_bad = attrs["bad_indices_policy"] == "IGNORE"

        def kernel(tensor: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
            copied = tensor.clone(memory_format=torch.contiguous_format)
            return _scatter(copied, indices, updates, put, ignore_bad)

        return kernel

    return factory


for _type, _allowed, _put in (
    ("TensorScatterUpdate", VALUES, _set),
    ("TensorScatterAdd", NUMBERS, _add),
    ("TensorScatterSub", NUMBERS, _subtract),
    ("TensorScatterMin", REAL, _extreme("amin", math.inf)),
    ("TensorScatterMax", REAL, _extreme("amax", -math.inf)),
    ("ScatterNdNonAliasingAdd", VALUES, _add),
):
    for_torch(_type, {"T": _allowed})(_tensor_scatter(_put))


# *** Segments ***

_HOW = {"Sum": "sum", "Mean": "sum", "Prod": "prod", "Max": "amax", "Min": "amin"}


def _wide(t: DType) -> torch.dtype:
    return torch.float32 if t in HALF else type_of(t)


def _reduced(how: str, rows: Tensor, ids: Tensor, out: Tensor) -> Tensor:
    """Reduces the rows of each id into `out[id]`, whose elements are those of empty segments."""
    if not rows.numel():
        return out
    matrix, flat = out.view(len(out), -1), rows.reshape(len(ids), -1)
    if how == "sum":
        _add(matrix, ids, flat)
        return out
    matrix.scatter_reduce_(0, ids[:, None].expand(flat.shape), flat, how, include_self=False)
    if how != "prod" and has_nan(out):
        raise Unsuited
    return out


def _counts(ids: Tensor, n: int, rank: int) -> Tensor:
    """Number of rows of each of `n` segments, at least 1.

    The shape broadcasts along rows of `rank` - 1 dimensions.
    """
    counts = ids.new_zeros(n).index_add_(0, ids, torch.ones_like(ids))  # `bincount` would wait for a GPU
    return counts.clamp_(min=1).reshape(-1, *[1] * (rank - 1))


def _over(sums: Tensor, ids: Tensor) -> Tensor:
    """The sums of segments, over their numbers of rows."""
    counts = _counts(ids, len(sums), sums.ndim)
    if sums.is_floating_point() or sums.is_complex():
        return sums / counts
    return sums.div(counts, rounding_mode="trunc").to(sums.dtype)


def _check_sorted(ids: Tensor) -> int:
    """The number of segments, after a check that the ids ascend from 0 or more."""
    if not len(ids):
        return 0
    descents = (ids[1:] < ids[:-1]).sum()
    first, last, wrong = torch.stack([ids[0].long(), ids[-1].long(), descents]).tolist()
    if wrong or first < 0:
        raise Unsuited
    return int(last) + 1


def _sorted(name: str) -> Factory:
    how, fill = _HOW[name], 1 if name == "Prod" else 0

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        t, wide = attrs["T"], _wide(attrs["T"])

        def kernel(data: Tensor, ids: Tensor) -> Tensor:
            if not data.ndim or ids.ndim != 1 or len(ids) != len(data):
                raise Unsuited
            shape = (_check_sorted(ids), *data.shape[1:])
            check_size(shape, t)
            out = torch.full(shape, fill, dtype=wide, device=data.device)
            ids = ids.long()
            out = _reduced(how, data.to(wide), ids, out)
            if name == "Mean" and out.numel():
                out = _over(out, ids)
            return out.to(type_of(t))

        return kernel

    return factory


def _least(t: DType) -> Any:
    return torch.iinfo(type_of(t)).min if t in dtypes.INTEGER else torch.finfo(type_of(t)).min


def _greatest(t: DType) -> Any:
    return torch.iinfo(type_of(t)).max if t in dtypes.INTEGER else torch.finfo(type_of(t)).max


_FILLS: Mapping[str, Callable[[DType], Any]] = {
    "Sum": lambda t: 0,
    "Prod": lambda t: 1,
    "Max": _least,
    "Min": _greatest,
}


def _unsorted(name: str, ascends: bool) -> Factory:
    how = _HOW[name]

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        t, wide = attrs["T"], _wide(attrs["T"])
        fill = _FILLS[name](t)

        def kernel(data: Tensor, ids: Tensor, num_segments: Any) -> Tensor:
            n = whole(num_segments)
            if n < 0 or data.shape[: ids.ndim] != ids.shape or (ascends and ids.ndim != 1):
                raise Unsuited
            rest = data.shape[ids.ndim :]
            flat = ids.reshape(-1).long()
            check_size((n, *rest), t)
            some_dropped = True
            if ids.is_cpu:
                low, high = map(int, torch.aminmax(flat)) if len(flat) else (0, -1)
                some_dropped = low < 0
                if high >= n or (ascends and bool((flat[1:] < flat[:-1]).any())):
                    raise Unsuited
            if some_dropped:  # the rows that are dropped go to a segment of their own, behind the others
                flat = torch.where((flat >= 0) & (flat < n), flat, n)
            out = torch.full((n + some_dropped, *rest), fill, dtype=wide, device=data.device)
            out = _reduced(how, data.reshape(len(flat), *rest).to(wide), flat, out)
            return out[:n].to(type_of(t))

        return kernel

    return factory


for _name in ("Sum", "Mean", "Prod", "Max", "Min"):
    # PyTorch has no products of complex numbers by the number of a row.
    _types = {"T": NUMBERS if _name in ("Sum", "Mean") else REAL}
    for_torch(f"Segment{_name}", _types)(_sorted(_name))
    if _name != "Mean":
        for_torch(f"UnsortedSegment{_name}", _types)(_unsorted(_name, ascends=False))
        for_torch(f"Segment{_name}V2", _types)(_unsorted(_name, ascends=True))


# *** Segments of selected rows ***


def _divided(sums: Tensor, name: str, ids: Tensor) -> Tensor:
    """Sums of segments, over the divisor of the op `name`."""
    if name == "Sum" or not sums.numel():
        return sums
    counts = _counts(ids, len(sums), sums.ndim)
    return sums / (counts if name == "Mean" else counts.to(sums.dtype).sqrt())


def _check_vectors(indices: Tensor, ids: Tensor) -> None:
    if indices.ndim != 1 or ids.ndim != 1 or len(indices) != len(ids):
        raise Unsuited


def _selected(name: str) -> Factory:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        t, wide = attrs["T"], _wide(attrs["T"])

        def kernel(data: Tensor, indices: Tensor, ids: Tensor, num_segments: Any = None) -> Tensor:
            _check_vectors(indices, ids)
            if not data.ndim:
                raise Unsuited
            rows = n = _check_sorted(ids) if num_segments is None or ids.is_cpu else 0
            if num_segments is not None:
                n = whole(num_segments)
                if n < rows:
                    raise Unsuited
                rows = n if ids.is_cpu else n + 1  # the last one is for rows of other segments, see `_unsorted`
            shape = (rows, *data.shape[1:])
            check_size(shape, t)
            out = torch.zeros(shape, dtype=wide, device=data.device)
            ids = ids.long()
            if rows > n:
                ids = torch.where((ids >= 0) & (ids < n), ids, n)
            out = _reduced("sum", _take(data, indices, 0).to(wide), ids, out)
            return _divided(out, name, ids)[:n].to(type_of(t))

        return kernel

    return factory


def _selected_grad(name: str, is_sparse: bool) -> Factory:
    """The factory of a gradient with all rows of data.

    If `is_sparse`, it has the selected rows, and their numbers.
    """

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
        t, wide = attrs["T"], _wide(attrs["T"])

        def kernel(dy: Tensor, indices: Tensor, ids: Tensor, rows: Any) -> Any:
            _check_vectors(indices, ids)
            n = whole(rows)
            if not dy.ndim or n < 0:
                raise Unsuited
            ids, good = _within(ids.long(), len(dy))
            at, there = _within(indices.long(), n)
            picked = _masked(_divided(dy.to(wide), name, ids).index_select(0, ids), good)
            picked = _masked(picked, there)
            unique = None
            if is_sparse:
                unique, at = torch.unique(at, return_inverse=True)
                n = len(unique)
            shape = (n, *dy.shape[1:])
            check_size(shape, t)
            out = torch.zeros(shape, dtype=wide, device=dy.device)
            out = _reduced("sum", picked, at, out).to(type_of(t))
            return out if unique is None else (out, unique.to(indices.dtype))

        return kernel

    return factory


for _name in ("Sum", "Mean", "SqrtN"):
    _types = {"T": FLOATS | INTEGERS if _name == "Sum" else FLOATS}
    for_torch(f"SparseSegment{_name}", _types)(_selected(_name))
    for_torch(f"SparseSegment{_name}WithNumSegments", _types)(_selected(_name))
    for_torch(f"SparseSegment{_name}Grad", {"T": FLOATS})(_selected_grad(_name, is_sparse=False))
    for_torch(f"SparseSegment{_name}GradV2", {"T": FLOATS})(_selected_grad(_name, is_sparse=True))


# *** StridedSliceGrad ***


def _ranges(attrs: Mapping[str, Any], shape: Sequence[int], begin: Any, end: Any, strides: Any) -> list[Any]:
    """The places that a strided slice selects.

    There is an integer or a range for each axis of the input, and None for a new axis.

    Raises:
      Unsuited: the slice is wrong.
    """
    starts, stops, steps = dims(begin), dims(end), dims(strides)
    n = len(starts)
    if len(stops) != n or len(steps) != n or n >= 32:
        raise Unsuited

    def has(mask: str, i: int) -> bool:
        return bool(attrs[f"{mask}_mask"] >> i & 1)

    dots = [i for i in range(n) if has("ellipsis", i)]
    used = sum(not has("ellipsis", i) and not has("new_axis", i) for i in range(n))
    if len(dots) > 1 or used > len(shape):
        raise Unsuited
    out: list[Any] = []
    axis = 0
    for i in range(n):
        if has("ellipsis", i):
            out.extend(map(range, shape[axis : axis + len(shape) - used]))
            axis += len(shape) - used
        elif has("new_axis", i):
            out.append(None)
        else:
            size, step = shape[axis], steps[i]
            axis += 1
            if has("shrink_axis", i):
                if step <= 0 or not -size <= starts[i] < size:
                    raise Unsuited
                out.append(starts[i] % size)
            elif not step:
                raise Unsuited
            else:
                start = None if has("begin", i) else starts[i]
                stop = None if has("end", i) else stops[i]
                out.append(range(*slice(start, stop, step).indices(size)))
    return out + [range(size) for size in shape[axis:]]


@for_torch("StridedSliceGrad", {"T": VALUES})
def _strided_slice_grad(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    t = attrs["T"]

    def kernel(shape: Any, begin: Any, end: Any, strides: Any, dy: Tensor) -> Tensor:
        wanted = dims(shape)
        check_size(wanted, t)
        places = _ranges(attrs, wanted, begin, end, strides)
        sizes = tuple(1 if p is None else len(p) for p in places if not isinstance(p, int))
        if tuple(dy.shape) != sizes:
            raise Unsuited
        out = dy.new_zeros(wanted)
        if not dy.numel():
            return out
        index: list[Any] = []
        turned: list[int] = []
        for p in places:
            if not isinstance(p, range):
                index.append(p)
                continue
            if p.step < 0:  # PyTorch has no slices of negative step
                turned.append(sum(not isinstance(i, int) for i in index))
                p = p[::-1]
            index.append(slice(p.start, p.stop, p.step))
        out[tuple(index)] = dy.flip(turned) if turned else dy
        return out

    return kernel


# *** OneHot ***


@for_torch("OneHot", {"T": VALUES})
def _one_hot(xp: Any, attrs: Mapping[str, Any]) -> Kernel:
    axis, t = attrs["axis"], attrs["T"]

    def kernel(indices: Tensor, depth: Any, on: Tensor, off: Tensor) -> Tensor:
        n, rank = whole(depth), indices.ndim + 1
        if n < 0 or on.ndim or off.ndim or not -rank <= axis < rank:
            raise Unsuited
        at = axis % rank
        shape = (*indices.shape[:at], n, *indices.shape[at:])
        check_size(shape, t)
        out = off.expand(shape).clone(memory_format=torch.contiguous_format)
        if not out.numel():
            return out
        places = indices.long().unsqueeze(at)
        values = torch.where((places >= 0) & (places < n), on, off)
        return out.scatter_(at, places.clamp(0, n - 1), values)

    return kernel
