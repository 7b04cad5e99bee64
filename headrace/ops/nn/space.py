"""Moves of spatial blocks to and from the batch or the channels; names of layouts.

Source: TensorFlow's ops SpaceToBatchND, BatchToSpaceND (and those for images alone), SpaceToDepth, DepthToSpace,
DataFormatDimMap and DataFormatVecPermute. Each move is a reshape, a transposition and a reshape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import INDEX, OBJECT, QUANTIZED, REAL, VALUE, DType, float32, float64, int32, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, int_attr, op, string_attr, type_attr
from headrace.opkit.arrays import check_size, permuter, reshaper, zeros
from headrace.opkit.batch_rules import at_the_end, folding, in_step
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, listed
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import draw
from headrace.shapes import Dim, Shape, merge_dim, show, with_rank, with_rank_at_least

Array = Any  # of any namespace; the oracles are of numpy
Pairs = list[list[int]]

# *** Space and batch ***


def _checked(x: Array, blocks: Any, margins: Any, name: str) -> tuple[list[int], Pairs]:
    """The block sizes and the margins as Python ints."""
    if blocks.ndim != 1:
        raise InvalidArgumentError(f"block_shape rank should be 1 instead of {blocks.ndim}")
    m = blocks.shape[0]
    if x.ndim < 1 + m:
        raise InvalidArgumentError(f"input rank should be >= {1 + m} instead of {x.ndim}")
    if margins.shape != (m, 2):
        raise InvalidArgumentError(f"{name.lower()} should have shape [{m}, 2] instead of {show(margins.shape)}")
    sizes, pairs = listed(blocks), listed(margins)
    for i, size in enumerate(sizes):
        if size < 1:
            raise InvalidArgumentError(f"All values in block_shape must be positive, got value, {size} at index {i}.")
    if math.prod(sizes) >= 2**63:
        raise InvalidArgumentError(f"Product of block sizes must be below 2**63, got {math.prod(sizes)}")
    least = min(map(min, pairs), default=0)
    if least < 0:
        raise InvalidArgumentError(f"{name} must be non-negative, got {least}")
    return sizes, pairs


def _space_to_batch(xp: Any, t: DType) -> Callable[..., Array]:
    reshape, permute = reshaper(xp), permuter(xp)

    def kernel(x: Array, blocks: Any, paddings: Any) -> Array:
        sizes, pairs = _checked(x, blocks, paddings, "Paddings")
        m = len(sizes)
        padded = [d + sum(p) for d, p in zip(x.shape[1:], pairs, strict=False)]
        for i, (d, size) in enumerate(zip(padded, sizes, strict=True)):
            if d % size:
                raise InvalidArgumentError(f"padded_shape[{i}]={d} is not divisible by block_shape[{i}]={size}")
        counts = [d // size for d, size in zip(padded, sizes, strict=True)]
        batch, rest = x.shape[0], x.shape[1 + m :]
        check_size((batch * math.prod(sizes), *counts, *rest), t)
        if any(map(any, pairs)):
            whole = zeros(xp, (batch, *padded, *rest), t, x)
            whole[:, *(slice(p[0], p[0] + d) for p, d in zip(pairs, x.shape[1:], strict=False)), ...] = x
            x = whole
        split = reshape(x, (batch, *_interleaved(counts, sizes), *rest))
        blocks_first = (*range(2, 2 * m + 2, 2), 0, *range(1, 2 * m + 1, 2), *range(2 * m + 1, split.ndim))
        return reshape(permute(split, blocks_first), (batch * math.prod(sizes), *counts, *rest))

    return kernel


def _batch_to_space(xp: Any, t: DType) -> Callable[..., Array]:
    reshape, permute = reshaper(xp), permuter(xp)

    def kernel(x: Array, blocks: Any, crops: Any) -> Array:
        sizes, pairs = _checked(x, blocks, crops, "Crops")
        m, product = len(sizes), math.prod(sizes)
        if x.shape[0] % product:
            raise InvalidArgumentError(
                f"Input batch dimension ({x.shape[0]}) is not divisible by product of block sizes ({product})"
            )
        batch, counts, rest = x.shape[0] // product, x.shape[1 : 1 + m], x.shape[1 + m :]
        whole = [n * size for n, size in zip(counts, sizes, strict=True)]
        for i, (d, p) in enumerate(zip(whole, pairs, strict=True)):
            if d < sum(p):
                raise InvalidArgumentError(f"cropped_shape[{i}]={d - sum(p)} must be non-negative")
        check_size((batch, *whole, *rest), t)
        split = reshape(x, (*sizes, batch, *counts, *rest))
        side_by_side = (m, *_interleaved(range(m + 1, 2 * m + 1), range(m)), *range(2 * m + 1, split.ndim))
        out = reshape(permute(split, side_by_side), (batch, *whole, *rest))
        return out[:, *(slice(p[0], d - p[1]) for p, d in zip(pairs, whole, strict=True)), ...]

    return kernel


def _interleaved(a: Sequence[int], b: Sequence[int]) -> list[int]:
    return [v for pair in zip(a, b, strict=True) for v in pair]


def _general(make: Callable[[Any, DType], Callable[..., Array]]) -> Any:
    return lambda xp, attrs: make(xp, attrs["T"])


def _of_images(make: Callable[[Any, DType], Callable[..., Array]]) -> Any:
    """The factory of the ops for images, with one block size for both axes."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        kernel, blocks = make(xp, attrs["T"]), np.full(2, attrs["block_size"])

        def images(x: Array, margins: Any) -> Array:
            if x.ndim != 4:
                raise InvalidArgumentError(f"Input rank should be: 4 instead of: {x.ndim}")
            return kernel(x, blocks, margins)

        return images

    return factory


def _spread(d: Dim, block: int, margin: Sequence[int]) -> Dim:
    """An axis in blocks, after padding."""
    if d is None:
        return None
    padded = d + sum(margin)
    if padded % block:
        raise ValueError(f"Dimension size must be evenly divisible by {block} but is {padded}")
    return padded // block


def _gathered(d: Dim, block: int, margin: Sequence[int]) -> Dim:
    """An axis put together of blocks, after cropping."""
    if d is None:
        return None
    whole = d * block - sum(margin)
    if whole < 0:
        raise ValueError(f"Negative dimension size caused by subtracting {sum(margin)} from {d * block}")
    return whole


def _moved_shape(into_batch: bool, images: bool) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        margins = with_rank(c.shapes[-1], 2)
        merge_dim(margins[1], 2)
        m = merge_dim(margins[0], 2 if images else with_rank(c.shapes[1], 1)[0])
        x: Shape = with_rank(c.shapes[0], 4) if images else c.shapes[0]
        if x is None or m is None:
            return [None if x is None else (None,) * len(x)]
        with_rank_at_least(x, 1 + m)
        blocks = np.full(2, c.attrs["block_size"]) if images else c.value(1)
        pairs = c.value(len(c.shapes) - 1)
        if blocks is None:
            return [(None,) * (1 + m) + x[1 + m :]]
        if blocks.size and blocks.min() < 1:
            raise ValueError(f"block_shape must be positive, got {blocks.tolist()}")
        if pairs is not None and pairs.size and pairs.min() < 0:
            raise ValueError(f"paddings and crops cannot be negative, got {pairs.tolist()}")
        sizes, product = blocks.tolist(), math.prod(blocks.tolist())
        move = _spread if into_batch else _gathered
        space = [None] * m if pairs is None else list(map(move, x[1 : 1 + m], sizes, pairs.tolist()))
        batch = x[0]
        if batch is not None:
            batch = batch * product if into_batch else _spread(batch, product, ())
        return [(batch, *space, *x[1 + m :])]

    return rule


# *** Space and depth ***


def _depth_kernel(type: str, make: Callable[[Any], Callable[[Array, int], Array]]) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        move, size, layout = make(xp), attrs["block_size"], attrs["data_format"]

        def kernel(x: Array) -> Array:
            if layout != "NHWC":
                raise InvalidArgumentError(
                    f"No OpKernel was registered to support Op '{type}' with data_format {layout} on the CPU, which "
                    "has NHWC alone"
                )
            if x.ndim != 4:
                raise InvalidArgumentError(f"Input rank should be 4 instead of {x.ndim}")
            return move(x, size)

        return kernel

    return factory


def _space_to_depth(xp: Any) -> Callable[[Array, int], Array]:
    reshape, permute = reshaper(xp), permuter(xp)

    def move(x: Array, size: int) -> Array:
        n, h, w, c = x.shape
        if h % size or w % size:
            raise InvalidArgumentError(f"Image width {w} and height {h} should be divisible by block_size: {size}")
        split = reshape(x, (n, h // size, size, w // size, size, c))
        return reshape(permute(split, (0, 1, 3, 2, 4, 5)), (n, h // size, w // size, size * size * c))

    return move


def _depth_to_space(xp: Any) -> Callable[[Array, int], Array]:
    reshape, permute = reshaper(xp), permuter(xp)

    def move(x: Array, size: int) -> Array:
        n, h, w, c = x.shape
        if c % (size * size):
            raise InvalidArgumentError(f"Input depth dimension {c} should be divisible by: {size * size}")
        split = reshape(x, (n, h, w, size, size, c // (size * size)))
        return reshape(permute(split, (0, 1, 3, 2, 4, 5)), (n, h * size, w * size, c // (size * size)))

    return move


def _depth_shape(into_depth: bool) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        layout, size = c.attrs["data_format"], c.attrs["block_size"]
        x = list(with_rank(c.shapes[0], 5 if layout == "NCHW_VECT_C" else 4))
        rows = 1 if layout == "NHWC" else 2
        depth = 3 if layout == "NHWC" else 1
        out = list(x)
        deep, wide = (_gathered, _spread) if into_depth else (_spread, _gathered)
        out[depth] = deep(x[depth], size * size, ())
        for i in (rows, rows + 1):
            out[i] = wide(x[i], size, ())
        if layout == "NCHW_VECT_C":
            merge_dim(x[4], 4)
            out[4] = 4
        return [tuple(out)]

    return rule


def _depth_grad(back: str) -> Any:
    def rule(b: Any, n: Any, dy: Any) -> list[Any]:
        if n.attrs["data_format"] == "NCHW_VECT_C":
            raise ValueError(f"Cannot compute the gradient of {n.op.type} with NCHW_VECT_C, which is of integers")
        return [b.make(back, [dy], {k: n.attrs[k] for k in ("block_size", "data_format")})]

    return rule


# *** Layouts ***


def _places(attrs: Mapping[str, Any]) -> tuple[str, str]:
    """The two layouts; `InvalidArgumentError` unless one is a permutation of the other."""
    src, dst = attrs["src_format"], attrs["dst_format"]
    for what, short, layout in (("Source", "src", src), ("Destination", "dst", dst)):
        if len(layout) not in (4, 5):
            raise InvalidArgumentError(f"{what} format must be of length 4 or 5, received {short}_format = {layout}")
    if sorted(src) != sorted(dst) or len(set(src)) != len(src):
        raise InvalidArgumentError(f"Destination and source format must determine a permutation, got {src} and {dst}")
    return src, dst


def _dim_map(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any) -> Any:
        src, dst = _places(attrs)
        table = constant(xp, [dst.index(axis) for axis in src], attrs["T"], x)
        at = x % len(src)
        if xp is np:
            return table[at]
        return xp.reshape(xp.take(table, xp.reshape(at, (-1,))), x.shape)

    return kernel


def _vec_permute(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Any) -> Any:
        src, dst = _places(attrs)
        if x.ndim not in (1, 2):
            raise InvalidArgumentError(f"input must be a vector or 2D tensor, but got shape {show(x.shape)}")
        rank, space = len(src), len(src) - 2
        which = "1D input" if x.ndim == 1 else "First dimension of 2D input"
        if x.shape[0] not in (rank, space):
            raise InvalidArgumentError(f"{which} must be of size {space} or {rank}, but got shape {show(x.shape)}")
        if x.ndim == 2 and x.shape[1] != 2:
            raise InvalidArgumentError(f"Second dimension of 2D input must be of size 2, but got shape {show(x.shape)}")
        if x.shape[0] == space:
            axes = "HW" if space == 2 else "DHW"
            if any(a not in src for a in axes):
                raise InvalidArgumentError(f"Format specifier must contain {' and '.join(axes)} for {space}D case")
            src, dst = ("".join(a for a in layout if a in axes) for layout in (src, dst))
        order = [src.index(axis) for axis in dst]
        return x[order] if xp is np else xp.take(x, constant(xp, order, int64, x), axis=0)

    return kernel


def _permuted_shape(c: Inference) -> Sequence[Shape]:
    x = c.shapes[0]
    if x is not None:
        if not 1 <= len(x) <= 2:
            raise ValueError(f"Shape must be rank 1 or 2 but is rank {len(x)}: {show(x)}")
        if len(x) == 2:
            merge_dim(x[1], 2)
    return [x]


# *** Oracles and samples ***


def _batched_oracle(x: Array, blocks: Any, paddings: Any) -> Array:
    m = len(blocks)
    shape = [(d + sum(p)) // k for d, k, p in zip(x.shape[1:], blocks, paddings, strict=False)]
    out = np.zeros((x.shape[0] * int(np.prod(blocks)), *shape, *x.shape[1 + m :]), x.dtype)
    for place, offset in enumerate(np.ndindex(*blocks)):
        for i in np.ndindex(x.shape[0], *shape):
            at = [j * k + o - p[0] for j, k, o, p in zip(i[1:], blocks, offset, paddings, strict=True)]
            if all(0 <= a < d for a, d in zip(at, x.shape[1:], strict=False)):
                out[place * x.shape[0] + i[0], *i[1:]] = x[i[0], *at]
    return out


def _unbatched_oracle(x: Array, blocks: Any, crops: Any) -> Array:
    m, batch = len(blocks), x.shape[0] // int(np.prod(blocks))
    shape = [d * k - sum(p) for d, k, p in zip(x.shape[1:], blocks, crops, strict=False)]
    out = np.zeros((batch, *shape, *x.shape[1 + m :]), x.dtype)
    for i in np.ndindex(batch, *shape):
        at = [j + p[0] for j, p in zip(i[1:], crops, strict=True)]
        place = 0
        for a, k in zip(at, blocks, strict=True):
            place = place * k + a % k
        out[i] = x[place * batch + i[0], *(a // k for a, k in zip(at, blocks, strict=True))]
    return out


def _deep_oracle(x: Array, block_size: int) -> Array:
    n, h, w, c = x.shape
    k = block_size
    out = np.empty((n, h // k, w // k, k * k * c), x.dtype)
    for i, y, z, j in np.ndindex(x.shape):
        out[i, y // k, z // k, ((y % k) * k + z % k) * c + j] = x[i, y, z, j]
    return out


def _wide_oracle(x: Array, block_size: int) -> Array:
    n, h, w, c = x.shape
    k, less = block_size, c // block_size**2
    out = np.empty((n, h * k, w * k, less), x.dtype)
    for i, y, z, j in np.ndindex(x.shape):
        out[i, y * k + j // less // k, z * k + j // less % k, j % less] = x[i, y, z, j]
    return out


def _moves(cases: Sequence[Any]) -> Any:
    """All cases (shape, blocks, margins) for two dtypes, the first for the other numbers."""

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        if dtype.base in OBJECT or dtype not in REAL:
            return []
        chosen = cases if dtype in (float64, int32) else cases[:1]
        return [
            case(draw(rng, dtype, shape), np.array(blocks, np.int32), np.array(margins, i).reshape(-1, 2))
            for (shape, blocks, margins), i in zip(chosen, (np.int32, np.int64) * 3, strict=False)
        ]

    return sample


def _image_moves(cases: Sequence[Any]) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        if dtype.base in OBJECT or dtype not in REAL:
            return []
        chosen = cases if dtype in (float64, int32) else cases[:1]
        return [case(draw(rng, dtype, shape), np.array(margins), block_size=size) for shape, size, margins in chosen]

    return sample


def _depth_moves(*shapes: tuple[tuple[int, ...], int]) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        if dtype.base in OBJECT:
            return []
        chosen = shapes if dtype in (float64, float32) else shapes[:1]
        return [case(draw(rng, dtype, shape), block_size=size) for shape, size in chosen]

    return sample


def _both_axes(oracle: Callable[..., Array]) -> Any:
    return lambda x, margins, block_size: oracle(x, [block_size, block_size], margins)


# *** Records ***

_TO_BATCH: tuple[Any, ...] = (
    ((1, 2, 4, 3), [2, 2], [[0, 0], [1, 1]]),
    ((2, 3, 2), [3], [[1, 2]]),
    ((2, 1, 2, 1), [1, 2, 1], [[0, 0], [0, 0], [2, 0]]),
    ((2, 3), [], []),
    ((0, 2, 2), [2], [[0, 0]]),
)
_FROM_BATCH: tuple[Any, ...] = (
    ((4, 1, 3, 2), [2, 2], [[0, 0], [1, 1]]),
    ((6, 2, 2), [3], [[1, 2]]),
    ((2, 1, 2, 2), [1, 2, 1], [[0, 0], [0, 0], [1, 0]]),
    ((2, 3), [], []),
    ((0, 2, 2), [2], [[0, 0]]),
)
_IMAGES = (((1, 2, 4, 3), 2, [[0, 0], [1, 1]]), ((2, 3, 2, 1), 3, [[0, 0], [1, 0]]))
_PATCHES = (((4, 1, 3, 3), 2, [[0, 0], [1, 1]]), ((9, 1, 1, 1), 3, [[0, 0], [1, 0]]))
_COST = Facts(cost=flops_per_element(1))
_INDEX = type_attr(INDEX, int32)

# fmt: off
for _type, _margins, _other, _make, _into, _oracle, _cases, _images, _doc in (
    ("SpaceToBatch", "paddings", "BatchToSpace", _space_to_batch, True, _batched_oracle, _TO_BATCH, _IMAGES,
     "The blocks of the space, after padding with zeros: their elements of the same place become images of their own."),
    ("BatchToSpace", "crops", "SpaceToBatch", _batch_to_space, False, _unbatched_oracle, _FROM_BATCH, _PATCHES,
     "The images of a batch put together in blocks, and the edges cropped: the inverse of SpaceToBatch."),
):
    op(
        f"{_type}ND",
        f"input: T, block_shape: Tblock_shape, {_margins}: T{_margins}",
        "output: T",
        {"T": type_attr(VALUE | QUANTIZED), "Tblock_shape": _INDEX, f"T{_margins}": _INDEX},
        shape=_moved_shape(_into, images=False),
        kernel=_general(_make),
        xp=True,
        host=("block_shape", _margins),
        grad=lambda b, n, dy, other=_other: [
            b.make(f"{other}ND", [dy, n.block_shape, n.inputs[2]], {}), None, None
        ],
        jvp=linear("input"), batch=at_the_end,
        facts=_COST,
        oracle=_oracle,
        sample=_moves(_cases),
        doc=_doc,
    )
    _index = "Tidx" if _type == "BatchToSpace" else "Tpaddings"
    op(
        _type,
        f"input: T, {_margins}: {_index}",
        "output: T",
        {"T": type_attr(VALUE | QUANTIZED), _index: _INDEX, "block_size": int_attr(minimum=2)},
        shape=_moved_shape(_into, images=True),
        kernel=_of_images(_make),
        xp=True,
        host=(_margins,),
        grad=lambda b, n, dy, other=_other: [
            b.make(other, [dy, n.inputs[1]], {"block_size": n.attrs["block_size"]}), None
        ],
        jvp=linear("input"),
        facts=_COST,
        oracle=_both_axes(_oracle),
        sample=_image_moves(_images),
        doc=f"{_type}ND on images, with blocks as high as they are wide.",
    )

for _type, _other, _move, _deeper, _meaning, _samples, _doc in (
    ("SpaceToDepth", "DepthToSpace", _space_to_depth, True, _deep_oracle,
     _depth_moves(((1, 2, 4, 3), 2), ((2, 3, 6, 1), 3), ((0, 2, 2, 1), 2)),
     "Blocks of the space as channels."),
    ("DepthToSpace", "SpaceToDepth", _depth_to_space, False, _wide_oracle,
     _depth_moves(((1, 1, 2, 8), 2), ((2, 1, 2, 9), 3), ((0, 2, 2, 4), 2)),
     "Channels as blocks of the space."),
):
    op(
        _type,
        "input: T",
        "output: T",
        {
            "T": type_attr(VALUE | QUANTIZED),
            "block_size": int_attr(minimum=2),
            "data_format": string_attr("NHWC", ("NHWC", "NCHW", "NCHW_VECT_C")),
        },
        shape=_depth_shape(_deeper),
        kernel=_depth_kernel(_type, _move),
        xp=True,
        grad=_depth_grad(_other),
        jvp=linear("input"), batch=folding(0),
        facts=_COST,
        oracle=_meaning,
        sample=_samples,
        doc=_doc,
    )
# fmt: on

_FORMATS = {"T": _INDEX, "src_format": "NHWC", "dst_format": "NCHW"}
op(
    "DataFormatDimMap",
    "x: T",
    "y: T",
    _FORMATS,
    shape=same_as(0),
    kernel=_dim_map,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=in_step,
    oracle=lambda x, src_format="NHWC", dst_format="NCHW": np.array(
        [dst_format.index(src_format[i % len(src_format)]) for i in x.ravel()], x.dtype
    ).reshape(x.shape),
    sample=lambda rng, dtype: [
        case(np.array([-9, -4, -1, 0, 1, 2, 3, 5], dtype.numpy)),
        case(np.array([[1, -2], [4, 0]], dtype.numpy), src_format="NDHWC", dst_format="NCDHW"),
        case(np.array(2, dtype.numpy), src_format="abcd", dst_format="dcba"),
    ],
    doc="Where the axes of one layout are in another.",
)
op(
    "DataFormatVecPermute",
    "x: T",
    "y: T",
    _FORMATS,
    shape=_permuted_shape,
    kernel=_vec_permute,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    oracle=lambda x, src_format="NHWC", dst_format="NCHW": np.array(
        [x[src_format.index(a)] for a in dst_format] if len(x) == len(src_format) else x[::-1], x.dtype
    ),
    sample=lambda rng, dtype: [
        case(np.array([4, 7, 8, 9], dtype.numpy)),
        case(np.array([[4, 7], [8, 9], [1, 2], [3, 5]], dtype.numpy), src_format="NHWC", dst_format="HWNC"),
        case(np.array([4, 7, 8, 9, 1], dtype.numpy), src_format="NCDHW", dst_format="NDHWC"),
        case(np.array([4, 7], dtype.numpy), src_format="NHWC", dst_format="NCWH"),
    ],
    doc="A vector with an entry for each axis of one layout (or for the spatial ones), in the order of another.",
)
