"""Ops that read or replace parts of arrays by position: Slice, StridedSlice and related ops.

Source: TensorFlow's ops of the same names. A strided slice is Python's `x[begin:end:stride, ..., None, i]` with masks
of one bit for each entry of `begin`. The kernel decodes the masks and uses numpy's indexing, or `opkit.parts` on arrays
of other namespaces.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op, type_attr
from headrace.opkit import index_forms
from headrace.opkit.arrays import (
    boxed,
    copied,
    dims,
    entries,
    ranked,
    shape_from,
    values_only,
    vector_of_unknowns,
    zeros,
)
from headrace.opkit.batch_indexing import slices, strided_slice, strided_slice_grad, strided_slice_update
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import listed
from headrace.opkit.parts import Part, out_of_range, part_of, unassignable, written_to
from headrace.opkit.shape_rules import nothing, same_as
from headrace.opkit.testing.samples import draw
from headrace.resources.manager import resource_of
from headrace.resources.variable import Variable
from headrace.shapes import Dim, Shape

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_MASK_ATTRS: dict[str, Any] = dict.fromkeys(_MASKS, 0)

# *** Slice ***


def _bounds_of_slice(i: int, at: int, n: int, dim: int) -> slice:
    """The range of dimension `i` that Slice selects.

    Raises:
      ValueError: the range reaches outside of the dimension.
    """
    if not 0 <= at <= dim:
        raise ValueError(f"Expected begin[{i}] in [0, {dim}], but got {at}")
    n = dim - at if n == -1 else n
    if not 0 <= n <= dim - at:
        raise ValueError(f"Expected size[{i}] in [0, {dim - at}], but got {n}")
    return slice(at, at + n)


def _slice_shape(c: Inference) -> Sequence[Shape]:
    parts = shapes.merge(shapes.with_rank(c.shapes[1], 1), shapes.with_rank(c.shapes[2], 1))
    begin, size = entries(c, 1), entries(c, 2)
    x = ranked(c.shapes[0], parts[0] if parts is not None else None)
    if x is None:
        return [None]
    out: list[Dim] = []
    for i, dim in enumerate(x):
        at, n = begin[i] if begin else None, size[i] if size else None
        if min(at or 0, n or 0) < -1:
            raise ValueError(f"begin and size must not be negative, -1 aside: {at} and {n} for dimension {i}")
        if dim is not None and at is not None and n is not None:
            part = _bounds_of_slice(i, at, n, dim)
            out.append(part.stop - part.start)
        elif dim is not None and n is not None and n > dim:
            raise ValueError(f"Expected size[{i}] in [0, {dim}], but got {n}")
        else:
            out.append(None if n == -1 else n)
    return [tuple(out)]


def _slice_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    is_numpy = xp is np

    def kernel(x: Any, begin: Any, size: Any) -> Any:
        rank = x.ndim
        if begin.shape != (rank,) or size.shape != (rank,):
            raise InvalidArgumentError(
                f"Expected begin and size arguments to be 1-D tensors of size {rank}, but got shapes "
                f"{shapes.show(begin.shape)} and {shapes.show(size.shape)} instead."
            )
        if not rank:
            return x
        starts, sizes = (begin.tolist(), size.tolist()) if is_numpy else (listed(begin), listed(size))
        return x[tuple(map(_bounds_of_slice, itertools.count(), starts, sizes, x.shape))]

    return kernel


def _slice_value(c: Inference) -> Shape:
    x, begin, size = c.shape_value(0), entries(c, 1), entries(c, 2)
    if x is None or not begin or not size or begin[0] is None or size[0] is None:
        return vector_of_unknowns(c, c.op.outputs[0].shape)
    return x[_bounds_of_slice(0, begin[0], size[0], len(x))]


def _slice_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    index = n.attrs["Index"]
    after = b.Sub(b.Sub(b.Shape(n.input, out_type=index), b.Shape(dy, out_type=index)), n.begin)
    return [b.Pad(dy, b.Pack([n.begin, after], axis=1)), None, None]


@values_only
def _slices(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(draw(rng, dtype, (3, 4)), np.array([1, 0], np.int32), np.array([2, 3], np.int32)),
        case(draw(rng, dtype, (3, 4)), np.array([0, 2], np.int64), np.array([-1, 0], np.int64)),
        case(draw(rng, dtype, (5,)), np.array([5], np.int32), np.array([-1], np.int32)),
        case(draw(rng, dtype, ()), np.array([], np.int32), np.array([], np.int32)),
    ]


op(
    "Slice",
    "input: T, begin: Index, size: Index",
    "output: T",
    {"T": type_attr(), "Index": INDEX},
    shape=_slice_shape,
    kernel=boxed(_slice_kernel),
    xp=True,
    host=("begin", "size"),
    grad=_slice_grad,
    jvp=linear("input"),
    batch=slices,
    form=index_forms.slices,
    facts=Facts(total=("begin", "size"), dynamic_shape=True),
    shape_value=_slice_value,
    oracle=lambda x, begin, size: (
        x[np.ix_(*[range(b, n if s == -1 else b + s) for b, s, n in zip(begin, size, x.shape)])] if x.ndim else x
    ),
    sample=_slices,
    doc="`size[i]` elements from `begin[i]` on along each dimension; a size of -1 selects the rest.",
)

# *** StridedSlice: decoding ***

_RANGE, _AT, _NEW, _REST = "range", "at", "new axis", "ellipsis"


def _parts(attrs: Mapping[str, Any], n: int) -> list[tuple[str, bool, bool]]:
    """Kind, begin mask and end mask of each of `n` entries of a slice."""
    begin, end, ellipsis, new, shrink = (attrs[m] for m in _MASKS)
    if n >= 32:
        raise ValueError(f"the masks are of 32 bits, so a slice has fewer than 32 entries, got {n}")
    out = []
    for i in range(n):
        bit = 1 << i
        kind = _REST if ellipsis & bit else _NEW if new & bit else _AT if shrink & bit else _RANGE
        out.append((kind, bool(begin & bit), bool(end & bit)))
    if sum(kind == _REST for kind, _, _ in out) > 1:
        raise ValueError("Multiple ellipses in slice spec not allowed")
    return out


def _check_stride(i: int, kind: str, stride: int) -> None:
    if stride == 0:
        raise ValueError(f"strides[{i}] must be non-zero")
    if kind == _AT and stride < 0:
        raise ValueError("only stride 1 allowed on non-range indexing.")


def _indexer(attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], tuple[Any, ...]]:
    """The function from begin, end and strides to numpy's index; it caches the last one."""
    seen: tuple[Any, Any, Any, tuple[Any, ...]] = (None, None, None, ())
    decoded: dict[int, list[tuple[str, bool, bool]]] = {}
    ends_open = attrs["T"] in dtypes.OBJECT  # a single element stays an array

    def index(begin: Any, end: Any, strides: Any) -> tuple[Any, ...]:
        nonlocal seen
        known = seen  # read once: another thread may run the same node for another iteration
        if known[0] is not begin or known[1] is not end or known[2] is not strides:
            known = seen = (begin, end, strides, decode(begin, end, strides))
        return known[3]

    def decode(begin: Any, end: Any, strides: Any) -> tuple[Any, ...]:
        shape = begin.shape
        if len(shape) != 1 or end.shape != shape or strides.shape != shape:
            got = ", ".join(shapes.show(v.shape) for v in (begin, end, strides))
            raise InvalidArgumentError(
                f"Expected begin, end, and strides to be 1D equal size tensors, but got shapes {got} instead."
            )
        n = shape[0]
        if n not in decoded:
            decoded[n] = _parts(attrs, n)
        out: list[Any] = []
        starts, stops, steps = listed(begin), listed(end), listed(strides)
        for i, (kind, from_start, to_end) in enumerate(decoded[n]):
            if kind is _RANGE or kind is _AT:
                step = steps[i]
                if step <= 0:
                    _check_stride(i, kind, step)
                if kind is _AT:
                    out.append(starts[i])
                else:
                    out.append(slice(None if from_start else starts[i], None if to_end else stops[i], step))
            else:
                out.append(None if kind is _NEW else ...)
        if ends_open and ... not in out:
            out.append(...)
        return tuple(out)

    return index


def _view(x: Any, index: tuple[Any, ...]) -> Any:
    try:
        return x[index]
    except IndexError:
        raise out_of_range(x, index) from None


# *** StridedSlice: static shapes ***


def _sliced_dim(dim: Dim, start: int | None, stop: int | None, step: int | None, known: bool) -> Dim:
    """The size of one sliced dimension, or None if it is unknown.

    If `known`, a start or stop of None means masked; otherwise start and stop are unknown.
    """
    if dim == 0:
        return 0
    if dim is None or step is None or not known:
        return None
    return len(range(*slice(start, stop, step).indices(dim)))


def _strided_shape(c: Inference, x: Shape, at: int) -> Shape:
    """The shape of a strided slice of shape `x`.

    Begin, end and strides are the inputs `at`, `at + 1` and `at + 2`.
    """
    lengths = shapes.with_rank(c.shapes[at], 1)
    for other in c.shapes[at + 1 : at + 3]:
        lengths = shapes.with_rank(shapes.merge(lengths, shapes.with_rank(other, 1)), 1)
    n = lengths[0]
    if n is None:
        return None
    starts, stops, steps = (entries(c, i) or [None] * n for i in range(at, at + 3))
    parts = _parts(c.attrs, n)
    for i, (kind, _, _) in enumerate(parts):
        step = steps[i]
        if step is not None and kind in (_RANGE, _AT):
            _check_stride(i, kind, step)
    if x is None:
        return None
    used = sum(kind in (_RANGE, _AT) for kind, _, _ in parts)
    if used > len(x):
        if None in steps:
            return None  # TensorFlow reports this at run time
        if not x:
            raise ValueError("Attempting to slice scalar input.")
        raise ValueError(f"Index out of range using input dim {len(x)}; input has only {len(x)} dims")
    left = list(x)
    out: list[Dim] = []
    for i, (kind, from_start, to_end) in enumerate(parts):
        start, stop = starts[i], stops[i]
        if kind == _NEW:
            out.append(1)
        elif kind == _REST:
            covered = len(x) - used
            out += left[:covered]
            left = left[covered:]
        elif kind == _AT:
            dim = left.pop(0)
            # TensorFlow checks only if the end is known too, although it is unused
            if dim is not None and start is not None and stop is not None and not -dim <= start < dim:
                raise ValueError(f"slice index {start} of dimension {len(x) - len(left) - 1} out of bounds.")
        else:
            known = (from_start or start is not None) and (to_end or stop is not None)
            start, stop = None if from_start else start, None if to_end else stop
            out.append(_sliced_dim(left.pop(0), start, stop, steps[i], known))
    return (*out, *left)


def _strided_slice_value(c: Inference) -> Shape:
    """The slice of a shape vector."""
    known = c.shape_value(0)
    args = [c.value(i) for i in (1, 2, 3)]
    if known is not None and c.shapes[0] is not None and len(c.shapes[0]) == 1 and all(v is not None for v in args):
        index = _indexer(c.attrs)(*args)
        if None not in index:
            places = np.arange(len(known))[index]
            return tuple(known[int(i)] for i in np.ravel(places))
    return vector_of_unknowns(c, c.op.outputs[0].shape)


# *** StridedSlice: kernels ***


def _strided_slice_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    index = _indexer(attrs)
    if xp is np:
        return lambda x, begin, end, strides: _view(x, index(begin, end, strides))
    return lambda x, begin, end, strides: part_of(x, index(begin, end, strides)).read(xp, x)


def _written(x: Any, where: tuple[Any, ...], value: Any) -> Any:
    """Writes `value` into the part `where` of `x` and returns `x`."""
    part = _view(x, (*where, ...) if ... not in where else where)
    if part.size:
        try:
            part[...] = value
        except ValueError:
            raise unassignable(value, part.shape) from None
    return x


def _strided_slice_grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    index, dtype = _indexer(attrs), attrs["T"]

    def kernel(shape: Any, begin: Any, end: Any, strides: Any, dy: Any) -> Any:
        where = index(begin, end, strides)
        out = zeros(xp, dims(shape), dtype, dy)
        part = _view(out, (*where, ...) if ... not in where else where) if xp is np else part_of(out, where)
        if part.shape != dy.shape:
            raise InvalidArgumentError(f"shape of dy was {shapes.show(dy.shape)} instead of {shapes.show(part.shape)}")
        if isinstance(part, Part):
            return part.write(xp, out, dy)
        part[...] = dy
        return out

    return kernel


def _update_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    index = _indexer(attrs)
    if xp is np:
        return lambda x, begin, end, strides, value: _written(np.array(x), index(begin, end, strides), value)
    return lambda x, begin, end, strides, value: written_to(xp, copied(xp, x), index(begin, end, strides), value)


def _assign_kernel(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    index = _indexer(attrs)

    def assign(ref: Any, begin: Any, end: Any, strides: Any, value: Any) -> Any:
        where = index(begin, end, strides)
        ref.variable.update(lambda x: _written(np.array(x), where, value))
        return ref

    return assign


def _resource_assign_kernel(ctx: Any, attrs: Mapping[str, Any]) -> Any:
    index = _indexer(attrs)

    def assign(handle: Any, begin: Any, end: Any, strides: Any, value: Any) -> None:
        where = index(begin, end, strides)
        resource_of(ctx.step, handle, Variable).update(lambda x: _written(np.array(x), where, value))

    return assign


# *** StridedSlice: gradients ***


def _slice_args(b: Any, n: Any) -> list[Any]:
    """Begin, end and strides in a dtype that all ops of the family support."""
    args = [n.begin, n.end, n.strides]
    if n.attrs["Index"] in INDEX:
        return args
    return [b.Cast(t, DstT=dtypes.int32) for t in args]


def _masks(n: Any) -> dict[str, int]:
    return {m: n.attrs[m] for m in _MASKS}


def _strided_slice_gradient(b: Any, n: Any, dy: Any) -> list[Any]:
    args = _slice_args(b, n)
    shape = b.Shape(n.input, out_type=args[0].dtype.base)
    return [b.StridedSliceGrad(shape, *args, dy, **_masks(n)), None, None, None]


def _update_gradient(b: Any, n: Any, dy: Any) -> list[Any]:
    args = _slice_args(b, n)
    value = b.StridedSlice(dy, *args, **_masks(n))

    def by_value() -> Any:
        if n.value.shape is None or n.value.shape != value.shape or not shapes.is_full(value.shape):
            axes, _ = b.BroadcastGradientArgs(b.Shape(n.value), b.Shape(value))
            return b.Reshape(b.Sum(value, axes, keep_dims=False), b.Shape(n.value))
        return value

    def by_input() -> Any:
        return b.TensorStridedSliceUpdate(dy, *args, b.ZerosLike(value), **_masks(n))

    return [by_input, None, None, None, by_value]


# *** StridedSlice: oracle, samples, records ***


def _slice_model(x: np.ndarray, begin: Any, end: Any, strides: Any, **attrs: int) -> np.ndarray:
    """A strided slice by lists of positions, as TensorFlow documents the masks."""
    masks = {**_MASK_ATTRS, **attrs}
    entry = [{m: bool(masks[m] >> i & 1) for m in _MASKS} for i in range(len(begin))]
    used = sum(not (e["ellipsis_mask"] or e["new_axis_mask"]) for e in entry)
    if not any(e["ellipsis_mask"] for e in entry):
        entry.append({**dict.fromkeys(_MASKS, False), "ellipsis_mask": True})
    places: list[list[int]] = []
    shape: list[int] = []
    for i, e in enumerate(entry):
        if e["ellipsis_mask"]:
            for _ in range(x.ndim - used):
                places.append(list(range(x.shape[len(places)])))
                shape.append(len(places[-1]))
        elif e["new_axis_mask"]:
            shape.append(1)
        else:
            n, step = x.shape[len(places)], int(strides[i])
            start, stop = (int(v) + (n if v < 0 else 0) for v in (begin[i], end[i]))
            if e["shrink_axis_mask"]:
                places.append([start])
                continue
            least, most = (0, n) if step > 0 else (-1, n - 1)
            start = (0 if step > 0 else n - 1) if e["begin_mask"] else min(max(start, least), most)
            stop = (n if step > 0 else -1) if e["end_mask"] else min(max(stop, least), most)
            places.append(list(range(start, stop, step)))
            shape.append(len(places[-1]))
    picked = x[np.ix_(*places)] if places else x
    return picked.reshape(shape)


_SPECS: tuple[tuple[tuple[int, ...], list[int], list[int], list[int], dict[str, int]], ...] = (
    ((5,), [1], [4], [2], {}),
    ((5,), [-1], [-4], [-2], {}),
    ((5,), [3], [0], [1], {"shrink_axis_mask": 1}),
    ((5,), [3], [3], [1], {}),
    ((3, 4), [0, 1], [0, -1], [1, 1], {"begin_mask": 1, "end_mask": 1}),
    ((3, 4), [0, -1], [0, 0], [-1, 1], {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 2}),
    ((2, 3, 2), [0, 0, 1], [0, 0, 2], [1, 1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2}),
    ((2, 3, 2), [1, 0, 9], [9, 0, -9], [1, 1, -1], {"ellipsis_mask": 2}),
    ((), [0, 0], [0, 0], [1, 1], {"ellipsis_mask": 1, "new_axis_mask": 2}),
    ((2, 2), [], [], [], {}),
)


@values_only
def _strided_slices(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, s), *_vectors(b, e, t), **masks) for s, b, e, t, masks in _SPECS]


def _vectors(*lists: list[int]) -> list[np.ndarray]:
    return [np.array(v, np.int32) for v in lists]


@values_only
def _slice_grads(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = []
    for s, b, e, t, masks in _SPECS:
        part = _slice_model(np.zeros(s), b, e, t, **masks).shape
        out.append(case(*_vectors(list(s), b, e, t), draw(rng, dtype, part), **masks))
    return out


@values_only
def _slice_updates(rng: np.random.Generator, dtype: DType) -> list[Any]:
    out = []
    for s, b, e, t, masks in _SPECS:
        part = _slice_model(np.zeros(s), b, e, t, **masks).shape
        out.append(case(draw(rng, dtype, s), *_vectors(b, e, t), draw(rng, dtype, part), **masks))
    return out


def _replaced(x: np.ndarray, begin: Any, end: Any, strides: Any, value: Any, **masks: int) -> np.ndarray:
    out = np.array(x)
    places = _slice_model(np.arange(x.size).reshape(x.shape), begin, end, strides, **masks)
    out.reshape(-1)[places.ravel()] = value.ravel()
    return out


def _zeros_with(shape: Any, begin: Any, end: Any, strides: Any, dy: Any, **masks: int) -> np.ndarray:
    empty = np.full(shape, b"" if dy.dtype == object else 0, dy.dtype)
    return _replaced(empty, begin, end, strides, dy, **masks)


def _copy_cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
    return shapes.size(ins[0])


_SLICE = "begin: Index, end: Index, strides: Index"

op(
    "StridedSlice",
    f"input: T, {_SLICE}",
    "output: T",
    {"T": type_attr(), "Index": INDEX | {dtypes.int16}, **_MASK_ATTRS},
    shape=lambda c: [_strided_shape(c, c.shapes[0], 1)],
    kernel=boxed(_strided_slice_kernel),
    xp=True,
    host=("begin", "end", "strides"),
    grad=_strided_slice_gradient,
    jvp=linear("input"),
    batch=strided_slice,
    form=index_forms.strided_slice,
    facts=Facts(total=("begin", "end", "strides"), dynamic_shape=True),
    shape_value=_strided_slice_value,
    oracle=_slice_model,
    sample=_strided_slices,
    doc="Python's `x[begin:end:stride, ...]`, with masks for omitted bounds, new axes and single positions.",
)
op(
    "StridedSliceGrad",
    f"shape: Index, {_SLICE}, dy: T",
    "output: T",
    {"T": type_attr(), "Index": INDEX, **_MASK_ATTRS},
    shape=lambda c: [shape_from(c, 0)],
    kernel=_strided_slice_grad_kernel,
    xp=True,
    host=("shape", "begin", "end", "strides"),
    grad=lambda b, n, dy: [None] * 4 + [b.StridedSlice(dy, *_slice_args(b, n), **_masks(n))],
    jvp=linear("dy"),
    batch=strided_slice_grad,
    form=index_forms.strided_slice_grad,
    facts=Facts(dynamic_shape=True, cost=flops_per_element(1)),
    oracle=_zeros_with,
    sample=_slice_grads,
    doc="Zeros of shape `shape` with `dy` in the part that StridedSlice selects.",
)
op(
    "TensorStridedSliceUpdate",
    f"input: T, {_SLICE}, value: T",
    "output: T",
    {"T": type_attr(), "Index": INDEX, **_MASK_ATTRS},
    shape=same_as(0),
    kernel=boxed(_update_kernel),
    xp=True,
    host=("begin", "end", "strides"),
    grad=_update_gradient,
    jvp=linear("input", "value"),
    batch=strided_slice_update,
    facts=Facts(cost=_copy_cost),
    oracle=_replaced,
    sample=_slice_updates,
    doc="The input with the broadcast `value` in the part that StridedSlice selects.",
)
op(
    "StridedSliceAssign",
    f"ref: Ref(T), {_SLICE}, value: T",
    "output_ref: Ref(T)",
    {"T": type_attr(), "Index": INDEX, **_MASK_ATTRS},
    shape=same_as(0),
    stateful=_assign_kernel,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="resource", writes=True, cost=_copy_cost),
    doc="Assigns `value` to the part of a variable that StridedSlice selects.",
)
op(
    "ResourceStridedSliceAssign",
    f"ref: resource, {_SLICE}, value: T",
    attrs={"T": type_attr(), "Index": INDEX, **_MASK_ATTRS},
    shape=nothing,
    stateful=_resource_assign_kernel,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="resource", writes=True, cost=_copy_cost),
    doc="Assigns `value` to the part of a variable that StridedSlice selects.",
)
