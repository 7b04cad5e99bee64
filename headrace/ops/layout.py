"""Ops that rearrange elements or repeat them at the edges: Transpose, Tile, Pad, MirrorPad.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX, NUMERIC, VALUE, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.kernel import CPU, override
from headrace.ir.notes import ContiguousResult, Notes
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    flops_per_element,
    flops_per_input,
    op,
    string_attr,
    type_attr,
)
from headrace.opkit import forms, index_forms
from headrace.opkit.arrays import (
    add_dims,
    axis_in,
    boxed,
    check_size,
    copied,
    dims,
    entries,
    ranked,
    values_only,
    zeros,
)
from headrace.opkit.batch_rules import prefixing
from headrace.opkit.batch_shapes import transpose
from headrace.opkit.jvp_rules import linear
from headrace.opkit.kernel_library import contiguous
from headrace.opkit.namespaces import constant, listed
from headrace.opkit.order_forms import filled_pad
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape

_INDEX = type_attr(INDEX, dtypes.int32)

# *** Transpose ***


def _transpose_shape(c: Inference) -> Sequence[Shape]:
    (n,) = shapes.with_rank(c.shapes[1], 1)
    x = ranked(c.shapes[0], n)
    if x is None:
        return [None]
    perm = entries(c, 1) or [None] * len(x)
    return [tuple(None if p is None else x[axis_in(p, len(x), "perm")] for p in perm)]


def _transpose_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def numpys(x: Any, perm: Any) -> Any:
        if perm.shape != (x.ndim,):
            raise _wrong_perm(x, perm)
        return x.transpose(perm.tolist())

    def kernel(x: Any, perm: Any) -> Any:
        if perm.shape != (x.ndim,):
            raise _wrong_perm(x, perm)
        axes = tuple([axis_in(axis, x.ndim, "perm") for axis in listed(perm)])
        if len({*axes}) != len(axes):
            raise ValueError("repeated axis in transpose")
        return xp.permute_dims(x, axes)

    return numpys if xp is np else kernel


def _wrong_perm(x: Any, perm: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"transpose expects a vector of size {x.ndim}. But input(1) is of shape {shapes.show(perm.shape)}"
    )


@override("Transpose", CPU, notes=[ContiguousResult], xp=True)
def _contiguous_transpose(xp: Any, attrs: Mapping[str, Any], notes: Notes) -> Any:
    transpose = _transpose_kernel(xp, attrs)
    return lambda x, perm: contiguous(transpose(x, perm), xp)


def _conjugate_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    transpose = _transpose_kernel(xp, attrs)
    return (lambda x, perm: xp.conj(transpose(x, perm))) if attrs["T"] in dtypes.COMPLEX else transpose


@values_only
def _transposes(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases: tuple[tuple[tuple[int, ...], list[int]], ...] = (
        ((2, 3), [1, 0]),
        ((2, 3, 4), [2, 0, 1]),
        ((2, 0), [1, 0]),
        ((), []),
    )
    return [case(draw(rng, dtype, s), np.array(p, np.int32)) for s, p in cases]


def _transpose_model(x: np.ndarray, perm: np.ndarray) -> np.ndarray:
    out = np.empty([x.shape[p] for p in perm], x.dtype)
    for at in np.ndindex(x.shape):
        out[tuple(at[p] for p in perm)] = x[at]
    return out


op(
    "Transpose",
    "x: T, perm: Tperm",
    "y: T",
    {"T": type_attr(), "Tperm": _INDEX},
    shape=_transpose_shape,
    kernel=boxed(_transpose_kernel),
    xp=True,
    host=("perm",),
    grad=lambda b, n, dy: [b.Transpose(dy, b.InvertPermutation(n.perm)), None],
    jvp=linear("x"),
    batch=transpose,
    form=forms.transpose,
    facts=Facts(total=("perm",), dynamic_shape=True),
    oracle=_transpose_model,
    sample=_transposes,
    doc="The input with dimension `perm[i]` as dimension i.",
)
op(
    "ConjugateTranspose",
    "x: T, perm: Tperm",
    "y: T",
    {"T": type_attr(), "Tperm": _INDEX},
    shape=_transpose_shape,
    kernel=boxed(_conjugate_kernel),
    xp=True,
    host=("perm",),
    grad=lambda b, n, dy: [b.ConjugateTranspose(dy, b.InvertPermutation(n.perm)), None],
    jvp=linear("x"),
    batch=transpose,
    facts=Facts(dynamic_shape=True),
    oracle=lambda x, perm: _transpose_model(np.conj(x) if x.dtype.kind == "c" else x, perm),
    sample=_transposes,
    doc="The complex conjugate of the input with dimension `perm[i]` as dimension i.",
)


def _invert_permutation_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(x: Any) -> Any:
        if x.ndim != 1:
            raise InvalidArgumentError(f"invert_permutation expects a 1D vector, got shape {shapes.show(x.shape)}")
        n = x.shape[0]
        out = [-1] * n
        for i, p in enumerate(listed(x)):
            if not 0 <= p < n:
                raise InvalidArgumentError(f"{p} is not between 0 and {n}")
            if out[p] != -1:
                raise InvalidArgumentError(f"{p} is duplicated in the input.")
            out[p] = i
        return constant(xp, out, dtype, x)

    return kernel


op(
    "InvertPermutation",
    "x: T",
    "y: T",
    {"T": _INDEX},
    shape=lambda c: [shapes.with_rank(c.shapes[0], 1)],
    kernel=_invert_permutation_kernel,
    xp=True,
    host=("x",),
    grad=NOT_DIFFERENTIABLE,
    oracle=lambda x: np.argsort(x).astype(x.dtype),
    sample=lambda rng, dtype: [case(np.array(p, dtype.numpy)) for p in ([3, 4, 0, 2, 1], [0], [])],
    doc="The inverse of a permutation.",
)

# *** Tile, Pad ***


def _tile_shape(c: Inference) -> Sequence[Shape]:
    (n,) = shapes.with_rank(c.shapes[1], 1)
    x = ranked(c.shapes[0], n)
    if x is None:
        return [None]
    times = entries(c, 1) or [None] * len(x)
    if any(m is not None and m < 0 for m in times):
        raise ValueError(f"multiples must be >= 0, got {times}")
    return [tuple(0 if 0 in (d, m) else None if d is None or m is None else d * m for d, m in zip(x, times))]


def _tile_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(x: Any, multiples: Any) -> Any:
        times = dims(multiples)
        if len(times) != x.ndim:
            raise InvalidArgumentError(
                f"Expected multiples argument to be a vector of length {x.ndim} but got length {len(times)}"
            )
        for i, m in enumerate(times):
            if m < 0:
                raise InvalidArgumentError(f"Expected multiples[{i}] >= 0, but got {m}")
        shape = tuple(d * m for d, m in zip(x.shape, times))
        check_size(shape, dtype)
        if 0 in shape:  # numpy would allocate the array for the other multiples first
            return zeros(xp, shape, dtype, x)
        return x if all(m == 1 for m in times) else xp.tile(x, times)

    return kernel


def _tile_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient of Tile: splits each dimension into (multiple, size) and sums the first."""
    index = n.attrs["Tmultiples"]
    pairs = b.Reshape(b.Pack([n.multiples, b.Shape(n.input, out_type=index)], axis=1), [-1])
    if n.input.shape is None:
        axes = b.Range(0, b.Size(pairs), 2)
    else:
        axes = b.const(np.arange(0, 2 * len(n.input.shape), 2, dtype=np.int32))
    return [b.Reshape(b.Sum(b.Reshape(dy, pairs), axes, keep_dims=False), b.Shape(n.input)), None]


@values_only
def _tiles(rng: np.random.Generator, dtype: DType) -> list[Any]:
    cases: tuple[tuple[tuple[int, ...], list[int]], ...] = (
        ((2,), [3]),
        ((2, 3), [1, 2]),
        ((2, 1), [2, 0]),
        ((2, 2), [1, 1]),
        ((), []),
    )
    return [case(draw(rng, dtype, s), np.array(m, np.int32)) for s, m in cases]


def _tile_model(x: np.ndarray, multiples: np.ndarray) -> np.ndarray:
    for axis, m in enumerate(multiples):
        x = np.concatenate([x] * m, axis) if m else x.take([], axis)
    return x


op(
    "Tile",
    "input: T, multiples: Tmultiples",
    "output: T",
    {"T": type_attr(), "Tmultiples": _INDEX},
    shape=_tile_shape,
    kernel=boxed(_tile_kernel),
    xp=True,
    host=("multiples",),
    grad=_tile_grad,
    jvp=linear("input"),
    batch=prefixing(1, 1),
    form=forms.tile,
    facts=Facts(total=("multiples",), dynamic_shape=True, cost=flops_per_element(1)),
    oracle=_tile_model,
    sample=_tiles,
    doc="The input repeated `multiples[i]` times along dimension i.",
)


def _untiled(shape: Sequence[int], times: Sequence[int]) -> list[int]:
    """The shape before tiling to `shape`, each dimension preceded by its multiple."""
    if len(times) != len(shape) or any(m < 1 or d % m for d, m in zip(shape, times)):
        raise ValueError(
            f"multiples {list(times)} must divide the dimensions of the input, {shapes.show(tuple(shape))}"
        )
    return [part for d, m in zip(shape, times) for part in (m, d // m)]


def _tile_grad_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 1)
    x, times = c.shapes[0], c.axes(1)
    if x is None or times is None or None in x:
        return [None if x is None else (None,) * len(x)]
    return [tuple(_untiled([d for d in x if d is not None], times)[1::2])]


def _tile_grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any, multiples: Any) -> Any:
        pairs = _untiled(x.shape, dims(multiples))
        axes = tuple(range(0, len(pairs), 2))
        if xp is np:
            return x.reshape(pairs).sum(axis=axes, dtype=x.dtype)
        return xp.sum(xp.reshape(x, tuple(pairs)), axis=axes, dtype=x.dtype)

    return kernel


def _tile_grad_model(x: np.ndarray, multiples: np.ndarray) -> np.ndarray:
    out = np.zeros([d // m for d, m in zip(x.shape, multiples)], x.dtype)
    for at in np.ndindex(x.shape):
        out[tuple(i % d for i, d in zip(at, out.shape))] += x[at]
    return out


op(
    "TileGrad",
    "input: T, multiples: int32",
    "output: T",
    {"T": NUMERIC},
    shape=_tile_grad_shape,
    kernel=_tile_grad_kernel,
    xp=True,
    host=("multiples",),
    grad=lambda b, n, dy: [b.Tile(dy, n.multiples), None],
    jvp=linear("input"),
    batch=prefixing(1, 1),
    facts=Facts(dynamic_shape=True, cost=flops_per_input(1)),
    oracle=_tile_grad_model,
    sample=lambda rng, dtype: [
        case(draw(rng, dtype, s), np.array(m, np.int32)) for s, m in (((4,), [2]), ((2, 6), [2, 3]), ((), []))
    ],
    differs="TensorFlow rejects it in graphs of version 3 and later.",
    doc="The sum of the tiles that Tile would have made of its input.",
)


def _pad_shape(c: Inference) -> Sequence[Shape]:
    n, two = shapes.with_rank(c.shapes[1], 2)
    shapes.merge_dim(two, 2)
    x = ranked(c.shapes[0], n)
    if x is None:
        return [None]
    paddings = c.value(1)
    if paddings is None:
        return [tuple(add_dims([d, *row]) for d, row in zip(x, _known_paddings(c, len(x)), strict=True))]
    if paddings.size and paddings.min() < 0:
        raise ValueError(f"Paddings must be non-negative: {paddings.tolist()}")
    return [tuple(None if d is None else d + before + after for d, (before, after) in zip(x, paddings.tolist()))]


def _known_paddings(c: Inference, rank: int) -> list[Sequence[Dim]]:
    """Known entries of paddings that are stacked rows."""
    rows = c.op.inputs[1].op
    if rows.type != "Pack" or rows.attrs["axis"] or len(rows.inputs) != rank:
        return [(None,)] * rank
    packed = Inference(rows)
    return [packed.shape_value(i) or (None,) for i in range(rank)]


def _padding(x: Any, paddings: Any) -> list[list[int]]:
    if paddings.shape != (x.ndim, 2):
        raise InvalidArgumentError(
            f"paddings must be a matrix with 2 columns and a row for each of the {x.ndim} dimensions of the input, "
            f"got shape {shapes.show(paddings.shape)}"
        )
    rows: list[list[int]] = listed(paddings)
    for before, after in rows:
        if before < 0 or after < 0:
            raise InvalidArgumentError(f"Paddings must be non-negative: {before} {after}")
    return rows


def _pad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    dtype = attrs["T"]

    def kernel(x: Any, paddings: Any, value: Any = None) -> Any:
        rows = _padding(x, paddings)
        if value is not None and value.ndim:
            raise InvalidArgumentError(f"constant_values must be a scalar, got shape {shapes.show(value.shape)}")
        shape = tuple(d + before + after for d, (before, after) in zip(x.shape, rows))
        out = zeros(xp, shape, dtype, x)
        if value is not None:
            out[...] = value
        out[tuple(slice(before, before + d) for d, (before, _) in zip(x.shape, rows))] = x
        return out

    return kernel


def _unpadded(b: Any, n: Any, dy: Any) -> Any:
    return b.Slice(dy, b.GatherV2(n.paddings, 0, 1), b.Shape(n.input, out_type=n.attrs["Tpaddings"]))


def _pad_v2_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient of PadV2; `constant_values` receives the sum of `dy` over the padding."""
    dx = _unpadded(b, n, dy)
    return [dx, None, lambda: b.Sub(_total(b, dy), _total(b, dx))]


def _total(b: Any, x: Any) -> Any:
    axes = b.Range(0, b.Rank(x), 1) if x.shape is None else b.const(np.arange(len(x.shape), dtype=np.int32))
    return b.Sum(x, axes, keep_dims=False)


_PADS: tuple[tuple[tuple[int, ...], list[list[int]]], ...] = (
    ((3,), [[1, 2]]),
    ((2, 3), [[0, 1], [1, 0]]),
    ((2, 2), [[0, 0], [0, 0]]),
    ((0, 2), [[1, 0], [0, 0]]),
)


@values_only
def _pads(rng: np.random.Generator, dtype: DType) -> list[Any]:
    scalar = case(draw(rng, dtype, ()), np.zeros((0, 2), np.int64))
    return [scalar, *(case(draw(rng, dtype, s), np.array(p, np.int32)) for s, p in _PADS)]


def _pad_model(x: np.ndarray, paddings: np.ndarray, value: Any = None) -> np.ndarray:
    if value is None:
        value = b"" if x.dtype == object else 0
    for axis, (before, after) in enumerate(paddings):
        edges = [np.full((*x.shape[:axis], n, *x.shape[axis + 1 :]), value, x.dtype) for n in (before, after)]
        x = np.concatenate([edges[0], x, edges[1]], axis)
    return x


op(
    "Pad",
    "input: T, paddings: Tpaddings",
    "output: T",
    {"T": type_attr(VALUE), "Tpaddings": _INDEX},
    shape=_pad_shape,
    kernel=_pad_kernel,
    xp=True,
    host=("paddings",),
    grad=lambda b, n, dy: [_unpadded(b, n, dy), None],
    jvp=linear("input"),
    batch=prefixing(1, [0, 0]),
    form=index_forms.pad,
    facts=Facts(total=("paddings",), dynamic_shape=True, cost=flops_per_element(1)),
    oracle=_pad_model,
    sample=_pads,
    doc="The input with `paddings[i]` zeros before and after it along dimension i.",
)
op(
    "PadV2",
    "input: T, paddings: Tpaddings, constant_values: T",
    "output: T",
    {"T": type_attr(VALUE), "Tpaddings": _INDEX},
    shape=_pad_shape,
    kernel=_pad_kernel,
    xp=True,
    host=("paddings",),
    grad=_pad_v2_grad,
    jvp=linear("input", "constant_values"),
    batch=prefixing(1, [0, 0]),
    form=filled_pad,
    facts=Facts(dynamic_shape=True, cost=flops_per_element(1)),
    oracle=_pad_model,
    sample=values_only(lambda rng, dtype: [case(*k.inputs, draw(rng, dtype, ())) for k in _pads(rng, dtype)]),
    doc="The input with `paddings[i]` times a value before and after it along dimension i.",
)

# *** MirrorPad ***

_MODE = {"T": type_attr(VALUE), "Tpaddings": _INDEX, "mode": string_attr(allowed={"REFLECT", "SYMMETRIC"})}


def _check_mirror(n: int, before: int, after: int, edge: int) -> None:
    """Checks that a dimension of size `n` is large enough for its mirrored padding.

    `edge` is 1 in mode REFLECT, which does not repeat the element at the edge, and 0 in mode SYMMETRIC.

    Raises:
      InvalidArgumentError: a padding is too large.
    """
    if max(before, after) > n - edge and (before or after):
        least = "less than" if edge else "no greater than"
        raise InvalidArgumentError(f"paddings must be {least} the dimension size: {before}, {after} for {n}")


def _mirror_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    edge, dtype = int(attrs["mode"] == "REFLECT"), attrs["T"]

    def kernel(x: Any, paddings: Any) -> Any:
        rows = _padding(x, paddings)
        for d, (before, after) in zip(x.shape, rows):
            _check_mirror(d, before, after, edge)
        check_size([d + before + after for d, (before, after) in zip(x.shape, rows)], dtype)
        for axis, (before, after) in enumerate(rows):
            if before or after:
                n = x.shape[axis]
                places = np.arange(-before, n + after)
                places = np.where(places < 0, edge - 1 - places, places)
                places = np.where(places >= n, 2 * n - edge - 1 - places, places)
                x = xp.take(x, places if xp is np else constant(xp, places.tolist(), dtypes.int64, x), axis=axis)
        return x

    return kernel


def _mirror_grad_shape(c: Inference) -> Sequence[Shape]:
    n, two = shapes.with_rank(c.shapes[1], 2)
    shapes.merge_dim(two, 2)
    x = ranked(c.shapes[0], n)
    paddings = c.value(1)
    if x is None or paddings is None:
        return [None if x is None else (None,) * len(x)]
    out: list[Dim] = []
    for d, (before, after) in zip(x, paddings.tolist()):
        out.append(None if d is None else d - before - after)
    if (paddings.size and paddings.min() < 0) or any(d is not None and d < 0 for d in out):
        raise ValueError(f"Paddings must be non-negative and fit the input {shapes.show(x)}: {paddings.tolist()}")
    return [tuple(out)]


def _reversed(xp: Any, rows: Any) -> Any:
    return rows[::-1] if xp is np else xp.flip(rows, axis=0)  # the standard has no steps backwards


def _mirror_grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    edge = int(attrs["mode"] == "REFLECT")

    def kernel(x: Any, paddings: Any) -> Any:
        rows = _padding(x, paddings)
        for axis, (before, after) in enumerate(rows):
            if before or after:
                n = x.shape[axis] - before - after
                _check_mirror(max(n, 0), before, after, edge)
                x = xp.moveaxis(x, axis, 0)
                core = copied(xp, x[before : before + n, ...])
                core[edge : edge + before, ...] += _reversed(xp, x[:before, ...])
                core[n - edge - after : n - edge, ...] += _reversed(xp, x[before + n :, ...])
                x = xp.moveaxis(core, 0, axis)
        return x

    return kernel


_MIRRORED: tuple[tuple[tuple[int, ...], list[list[int]], str], ...] = (
    ((3,), [[2, 1]], "REFLECT"),
    ((3,), [[2, 3]], "SYMMETRIC"),
    ((2, 3), [[1, 1], [0, 2]], "REFLECT"),
    ((2, 3), [[0, 2], [1, 0]], "SYMMETRIC"),
)


def _mirror_model(x: np.ndarray, paddings: np.ndarray, mode: str) -> np.ndarray:
    places = np.pad(np.arange(x.size).reshape(x.shape), paddings, mode=mode.lower())  # type: ignore[call-overload]
    return np.array(x.reshape(-1)[places])


def _mirror_grad_model(x: np.ndarray, paddings: np.ndarray, mode: str) -> np.ndarray:
    shape = [n - before - after for n, (before, after) in zip(x.shape, paddings)]
    places = _mirror_model(np.arange(int(np.prod(shape))).reshape(shape), paddings, mode)
    out = np.zeros(int(np.prod(shape)), x.dtype)
    for place, v in zip(places.ravel(), x.ravel()):
        out[place] += v
    return out.reshape(shape)


@values_only
def _mirrors(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtype, s), np.array(p, np.int32), mode=mode) for s, p, mode in _MIRRORED]


def _mirror_grads(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype not in NUMERIC:
        return []
    out = []
    for s, p, mode in _MIRRORED:
        shape = [n + before + after for n, (before, after) in zip(s, p)]
        out.append(case(draw(rng, dtype, shape), np.array(p, np.int32), mode=mode))
    return out


op(
    "MirrorPad",
    "input: T, paddings: Tpaddings",
    "output: T",
    _MODE,
    shape=_pad_shape,
    kernel=_mirror_kernel,
    xp=True,
    host=("paddings",),
    grad=lambda b, n, dy: [b.MirrorPadGrad(dy, n.paddings, mode=n.attrs["mode"]), None],
    jvp=linear("input"),
    batch=prefixing(1, [0, 0]),
    facts=Facts(dynamic_shape=True, cost=flops_per_element(1)),
    oracle=_mirror_model,
    sample=_mirrors,
    doc="The input extended on both sides by its mirror image, with the edge repeated (SYMMETRIC) or not (REFLECT).",
)
op(
    "MirrorPadGrad",
    "input: T, paddings: Tpaddings",
    "output: T",
    _MODE,
    shape=_mirror_grad_shape,
    kernel=_mirror_grad_kernel,
    xp=True,
    host=("paddings",),
    grad=lambda b, n, dy: [b.MirrorPad(dy, n.paddings, mode=n.attrs["mode"]), None],
    jvp=linear("input"),
    batch=prefixing(1, [0, 0]),
    facts=Facts(dynamic_shape=True, cost=flops_per_element(2)),
    oracle=_mirror_grad_model,
    sample=_mirror_grads,
    doc="The input without its mirrored edges, which are added to the elements that they mirror.",
)
