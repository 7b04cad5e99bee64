"""Parts of images: CropAndResize with its gradients, and ExtractGlimpse.

Source: TensorFlow's ops of the same names. A crop is resampled along both axes (`taps`); pixels at positions outside of
the image have no taps.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import thresholds
from headrace.dtypes import DType, bool_, float16, float32, float64, int8, int16, int32, int64, uint8, uint16
from headrace.errors import InvalidArgumentError, OutOfRangeError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Case,
    Facts,
    case,
    flops_per_element,
    flops_per_input,
    missing,
    op,
    string_attr,
)
from headrace.opkit.arrays import check_size, shape_from
from headrace.opkit.batch_rules import folding
from headrace.opkit.elementwise import HALF
from headrace.opkit.kernel_library import Table, kernel_library
from headrace.opkit.namespaces import constant, converter, integers
from headrace.opkit.row_sums import row_sums
from headrace.opkit.testing.samples import draw
from headrace.ops.image.taps import Tap, Taps, back, merged, resampled, rounded
from headrace.shapes import Shape, merge_dim, show, with_rank

Array = np.ndarray
F32 = np.float32

# *** Where the pixels of a crop lie ***


def _in_memory(x: Any, dtype: type) -> Array:
    """A small vector or matrix as an array of numpy."""
    if isinstance(x, np.ndarray):
        return x.astype(dtype, copy=False)
    number: Any = float if dtype is F32 else int
    if x.ndim == 1:
        return np.array([number(x[i]) for i in range(x.shape[0])], dtype)
    return np.array([number(x[i, k]) for i in range(x.shape[0]) for k in range(x.shape[1])], dtype).reshape(x.shape)


def _places(low: Array, high: Array, length: int, count: int) -> tuple[Array, Array]:
    """Positions of the pixels of crops along one axis, and whether each is inside.

    Both are arrays [boxes, count]. Positions outside of the image are 0.
    """
    if count > 1:
        step = (high - low) * F32(length - 1) / F32(count - 1)
        at = (low * F32(length - 1))[:, None] + np.arange(count, dtype=F32) * step[:, None]
    else:
        at = (0.5 * (low + high).astype(np.float64) * (length - 1)).astype(F32)[:, None]
    inside = (at >= 0) & (at <= length - 1)
    return np.where(inside, at, F32(0)), inside


def _axis(low: Array, high: Array, length: int, count: int, method: str) -> Table:
    """The taps of crops along one axis.

    Bilinear ones are two, which may be the same element.
    """
    at, inside = _places(low, high, length, count)
    if method == "nearest":
        source, weight = rounded(at)[..., None], np.ones((*at.shape, 1), F32)
    else:
        below = np.floor(at)
        source = np.stack([below, np.ceil(at)], -1).astype(np.int64)
        weight = np.stack([1 - (at - below), at - below], -1)
    source[~inside], weight[~inside] = -1, 0
    return Table(source, weight)


def _tables(boxes: Array, lengths: Sequence[int], counts: Sequence[int], method: str) -> list[Table]:
    """The taps of all rows and of all columns."""
    return [_axis(boxes[:, k], boxes[:, k + 2], lengths[k], counts[k], method) for k in (0, 1)]


def _taps(table: Table, box: int, length: int) -> Taps:
    """The taps of one box."""
    taps = []
    for source, weight in zip(table.source[box].T, table.weight[box].T, strict=True):
        into = np.flatnonzero(source >= 0)
        taps.append(Tap(into, source[into], weight[into] if table.source.shape[2] > 1 else None))
    return Taps(tuple(taps), length, table.source.shape[1])


def _require_boxes(boxes: Any, which: Any, batch: int) -> tuple[Array, Array]:
    """The boxes and the numbers of their images in memory, where they determine the taps."""
    if boxes.ndim != 2:
        raise InvalidArgumentError(f"boxes must be 2-D, got {show(boxes.shape)}")
    if boxes.shape[1] != 4:
        raise InvalidArgumentError(f"boxes must have 4 columns, got {show(boxes.shape)}")
    if which.ndim != 1:
        raise InvalidArgumentError(f"box_indices must be rank 1 but is shape {show(which.shape)}")
    if which.shape[0] != boxes.shape[0]:
        raise InvalidArgumentError(f"box_index has incompatible shape: {which.shape[0]} for {boxes.shape[0]} boxes")
    boxes, which = _in_memory(boxes, F32), _in_memory(which, np.int64)
    if not np.isfinite(boxes).all():
        raise InvalidArgumentError("Boxes contains at least one element that is not finite")
    if which.size and not (which.min() >= 0 and which.max() < batch):
        bad = which[(which < 0) | (which >= batch)][0]
        raise OutOfRangeError(f"box_index has values outside [0, batch_size): {bad}, and there are {batch} images")
    return boxes, which


def _require_images(x: Array, what: str) -> None:
    if x.ndim != 4:
        raise InvalidArgumentError(f"{what} must be 4-D, got {show(x.shape)}")
    if not x.shape[1] or not x.shape[2]:
        raise InvalidArgumentError(f"{what.split()[-1]} dimensions must be positive, got {show(x.shape)}")


# *** Kernels ***


def _crop_and_resize(xp: Any, attrs: Mapping[str, Any]) -> Any:
    method, outside = attrs["method"], attrs["extrapolation_value"]

    def kernel(images: Array, boxes: Array, which: Array, size: Array) -> Array:
        _require_images(images, "input image")
        if size.shape != (2,):
            raise InvalidArgumentError(f"crop_size must have two elements, got {show(size.shape)}")
        height, width = integers(size)
        if height <= 0 or width <= 0:
            raise InvalidArgumentError(f"crop dimensions must be positive, got {[height, width]}")
        shape = (*boxes.shape[:1], height, width, images.shape[3])
        check_size(shape, float32)
        boxes, which = _require_boxes(boxes, which, images.shape[0])
        lengths = images.shape[1:3]
        rows, columns = map(merged, _tables(boxes, lengths, (height, width), method))
        is_row, is_column = (np.any(table.source >= 0, -1) for table in (rows, columns))
        is_inside = is_row[:, :, None] & is_column[:, None, :]
        if xp is not np:
            return _resampled(xp, images, which, rows, columns, is_inside, outside)
        found: Array | None = None
        if math.prod(shape) >= thresholds.NATIVE_RESAMPLED:
            found = kernel_library(xp).resampled(images, which, rows, columns, np.float32)
        if found is None:
            found = np.empty(shape, np.float32)
            wide = images.astype(np.float32, copy=False)
            for i, image in enumerate(which.tolist()):
                vertical, horizontal = _taps(rows, i, lengths[0]), _taps(columns, i, lengths[1])
                found[i] = resampled(wide[image : image + 1], vertical, horizontal, float32)[0]
        found[~is_inside] = outside
        return found

    return kernel


def _corners(
    xp: Any, like: Any, which: Array, rows: Table, columns: Table, lengths: Sequence[int]
) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Yields the taps of pixels, for each tap of rows and each of columns.

    Yields:
      The numbers of the pixels of all images, [boxes, rows, columns], 0 where there is none; a function that weighs
      pixels [boxes, rows, columns, channels], which are 0 then where there is none.
    """
    height, width = lengths
    for k in range(rows.source.shape[2]):
        for m in range(columns.source.shape[2]):
            y, x = rows.source[:, :, None, k], columns.source[:, None, :, m]
            has = (y >= 0) & (x >= 0)
            at = np.where(has, (which[:, None, None] * height + y) * width + x, 0)
            down, along = rows.weight[:, :, None, None, k], columns.weight[:, None, :, None, m]
            parts = ((down, float32), (along, float32), (has[..., None], bool_))
            weigh = functools.partial(_weighed, xp, *[constant(xp, a.tolist(), t, like) for a, t in parts])
            yield constant(xp, at.tolist(), int64, like), weigh


def _weighed(xp: Any, down: Any, along: Any, has: Any, pixels: Any) -> Any:
    weighed = pixels * down * along
    return xp.where(has, weighed, xp.zeros_like(weighed))


def _pixels_of(xp: Any, images: Any, at: Any) -> Any:
    """The pixels with these numbers in all images."""
    flat = xp.reshape(images, (math.prod(images.shape[:3]), images.shape[3]))
    return xp.reshape(xp.take(flat, xp.reshape(at, (-1,)), axis=0), (*at.shape, images.shape[3]))


def _resampled(
    xp: Any, images: Any, which: Array, rows: Table, columns: Table, is_inside: Array, outside: float
) -> Any:
    """The crops of images of a namespace; other pixels are `outside`."""
    wide = converter(xp, float32)(images)
    out = xp.zeros((*is_inside.shape, images.shape[3]), dtype=wide.dtype, device=wide.device)
    if not math.prod(out.shape):
        return out
    for at, weigh in _corners(xp, wide, which, rows, columns, images.shape[1:3]):
        out = out + weigh(_pixels_of(xp, wide, at))
    inside = constant(xp, is_inside.tolist(), bool_, wide)
    return xp.where(inside[..., None], out, xp.full_like(out, outside))


def _spread(xp: Any, grads: Any, which: Array, rows: Table, columns: Table, shape: tuple[int, ...], t: DType) -> Any:
    """The transpose of `_resampled`: images of the shape `shape`, summed in the dtype `t`."""
    parts, places = [], []
    for at, weigh in _corners(xp, grads, which, rows, columns, shape[1:3]):
        part = converter(xp, t)(weigh(grads))
        parts.append(xp.reshape(part, (math.prod(at.shape), shape[3])))
        places.append(xp.reshape(at, (-1,)))
    sums = row_sums(xp, xp.concat(parts), xp.concat(places), math.prod(shape[:3]))
    return xp.reshape(sums, shape)


def _slopes(xp: Any, grads: Any, images: Any, which: Array, rows: Table, columns: Table) -> tuple[Any, Any]:
    """The gradients by the positions of rows and of columns, [boxes, rows] and [boxes, columns]."""
    wide = converter(xp, float32)(images)
    every: Table = Table(rows.source, np.ones_like(rows.weight))
    each: Table = Table(columns.source, np.ones_like(columns.weight))
    a, b, c, d = [
        weigh(_pixels_of(xp, wide, at)) for at, weigh in _corners(xp, wide, which, every, each, images.shape[1:3])
    ]
    down = constant(xp, rows.weight[:, :, None, None, 1].tolist(), float32, wide)
    along = constant(xp, columns.weight[:, None, :, None, 1].tolist(), float32, wide)
    vertical = xp.sum(grads * ((1 - along) * (c - a) + along * (d - b)), axis=(2, 3))
    return vertical, xp.sum(grads * ((1 - down) * (b - a) + down * (d - c)), axis=(1, 3))


def _by_image(xp: Any, attrs: Mapping[str, Any]) -> Any:
    method, t = attrs["method"], attrs["T"]

    def kernel(grads: Array, boxes: Array, which: Array, size: Array) -> Array:
        _require_images(grads, "grads image")
        if size.shape != (4,):
            raise InvalidArgumentError(f"image_size must have 4 elements, got {show(size.shape)}")
        shape = integers(size)
        if min(shape[1:3]) <= 0:
            raise InvalidArgumentError(f"image dimensions must be positive, got {list(shape)}")
        if shape[3] != grads.shape[3]:
            raise InvalidArgumentError(f"image_size and grads are incompatible: {list(shape)} and {show(grads.shape)}")
        check_size(shape, t)
        boxes, which = _require_boxes(boxes, which, shape[0])
        _require_grads(grads, boxes)
        wide = float32 if t in HALF else t
        lengths = shape[1:3]
        rows, columns = map(merged, _tables(boxes, lengths, grads.shape[1:3], method))
        if xp is not np:
            return converter(xp, t)(_spread(xp, grads, which, rows, columns, shape, wide))
        out = np.zeros(shape, wide.numpy)
        if grads.size < thresholds.NATIVE_RESAMPLED or not kernel_library(xp).spread(grads, which, rows, columns, out):
            for i, image in enumerate(which.tolist()):
                vertical, horizontal = _taps(rows, i, lengths[0]), _taps(columns, i, lengths[1])
                out[image] += back(grads[i : i + 1], vertical, horizontal, wide)[0]
        return out.astype(t.numpy, copy=False)

    return kernel


def _require_grads(grads: Array, boxes: Array) -> None:
    if grads.shape[0] != boxes.shape[0]:
        raise InvalidArgumentError(f"boxes and grads have incompatible shape: {show(boxes.shape)}, {show(grads.shape)}")


def _by_boxes(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(grads: Array, images: Array, boxes: Array, which: Array) -> Array:
        _require_images(grads, "grads image")
        _require_images(images, "input image")
        if images.shape[3] != grads.shape[3]:
            raise InvalidArgumentError(f"image, grads depth differ: {show(images.shape)} and {show(grads.shape)}")
        boxes, which = _require_boxes(boxes, which, images.shape[0])
        _require_grads(grads, boxes)
        lengths, counts = images.shape[1:3], grads.shape[1:3]
        rows, columns = _tables(boxes, lengths, counts, "bilinear")
        moved: Sequence[Array] | None = None
        if xp is not np:
            moved = _slopes(xp, grads, images, which, rows, columns)
        elif grads.size >= thresholds.NATIVE_RESAMPLED:
            moved = kernel_library(xp).slopes(grads, images, which, rows, columns)
        if moved is None:
            moved = [np.zeros((len(boxes), count), np.float32) for count in counts]
            for i, image in enumerate(which.tolist()):
                _moved(images[image], grads[i], [Table(t.source[i], t.weight[i]) for t in (rows, columns)], moved, i)
        low, high = [], []
        for slope, length, count in zip(moved, lengths, counts, strict=True):
            shares = [i / (count - 1) for i in range(count)] if count > 1 else [0.5] * count
            exact, share = converter(xp, float64)(slope), constant(xp, shares, float64, slope)
            low.append(xp.sum(exact * (1 - share), axis=1) * (length - 1))
            high.append(xp.sum(exact * share, axis=1) * (length - 1))
        return converter(xp, float32)(xp.stack([*low, *high], axis=1))

    return kernel


def _moved(image: Array, grads: Array, axes: Sequence[Table], into: Sequence[Array], box: int) -> None:
    """Writes the gradients by the position of each row and of each column."""
    rows, columns = (np.flatnonzero(table.source[:, 0] >= 0) for table in axes)
    (top, bottom), (left, right) = (t.source[found].T for t, found in zip(axes, (rows, columns), strict=True))
    down, along = axes[0].weight[rows, 1][:, None, None], axes[1].weight[columns, 1][None, :, None]
    (a, b), (c, d) = ([image[np.ix_(v, h)].astype(F32) for h in (left, right)] for v in (top, bottom))
    g = grads[np.ix_(rows, columns)]
    into[0][box, rows] = np.sum(g * ((1 - along) * (c - a) + along * (d - b)), (1, 2))
    into[1][box, columns] = np.sum(g * ((1 - down) * (b - a) + down * (d - c)), (0, 2))


# *** Shapes and gradients ***


def _boxes_of(c: Inference, boxes: int, which: int) -> Any:
    found = with_rank(c.shapes[boxes], 2)
    merge_dim(found[1], 4)
    return merge_dim(found[0], with_rank(c.shapes[which], 1)[0])


def _crops_shape(c: Inference) -> Sequence[Shape]:
    images = with_rank(c.shapes[0], 4)
    height, width = with_rank(shape_from(c, 3), 2)
    return [(_boxes_of(c, 1, 2), height, width, images[3])]


def _image_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 4)
    _boxes_of(c, 1, 2)
    return [with_rank(shape_from(c, 3), 4)]


def _boxes_shape(c: Inference) -> Sequence[Shape]:
    for i in (0, 1):
        with_rank(c.shapes[i], 4)
    return [(_boxes_of(c, 2, 3), 4)]


def _crop_rule(b: Any, n: Any, dy: Any) -> list[Any]:
    """Gradient rule; as in TensorFlow, the boxes have the bilinear gradient for every method."""
    t, attrs = n.attrs["T"], {"method": n.attrs["method"]}

    def by_image() -> Any:
        return b.CropAndResizeGradImage(dy, n.boxes, n.box_ind, b.Shape(n.image), T=t, **attrs)

    return [
        by_image if t in _FLOATS else None,
        lambda: b.CropAndResizeGradBoxes(dy, n.image, n.boxes, n.box_ind),
        None,
        None,
    ]


def _by_image_rule(b: Any, n: Any, g: Any) -> list[Any]:
    """Gradient rule of the gradient by the image, which is linear in `grads`.

    That op is the transpose of cropping, so the gradient by `grads` is the crops of `g`.
    """

    def by_grads() -> Any:
        size = b.StridedSlice(b.Shape(n.grads), [1], [3], [1])
        return b.CropAndResize(g, n.boxes, n.box_ind, size, method=n.attrs["method"])

    return [by_grads, lambda: b.CropAndResizeGradBoxes(n.grads, g, n.boxes, n.box_ind), None, None]


# *** ExtractGlimpse ***


def _glimpse(version: int) -> Any:
    def factory(attrs: Mapping[str, Any]) -> Any:
        centred, normalized, noise = attrs["centered"], attrs["normalized"], attrs["noise"]
        if not noise:
            noise = "uniform" if attrs["uniform_noise"] else "gaussian"
        halved = version == 1 or (centred and normalized)

        def start(offset: Array, length: int, size: int) -> Array:
            at = offset * F32(length) if normalized else offset
            if centred:
                at = (at / 2 if halved else at) + F32(length) / 2
            if halved:  # from the middle of the window to its start
                at = at - F32(size) / 2
            return np.trunc(np.nan_to_num(np.clip(at, -(2.0**40), 2.0**40), nan=-(2.0**40))).astype(np.int64)

        def kernel(images: Array, size: Array, offsets: Array) -> Array:
            if attrs["uniform_noise"] and noise != "uniform":
                raise InvalidArgumentError("The uniform_noise and noise could not be specified at the same time")
            if noise not in ("uniform", "gaussian", "zero"):
                raise InvalidArgumentError(f"The noise could only be uniform, gaussian, or zero, got {noise}")
            if images.ndim != 4:
                raise InvalidArgumentError(
                    f"input must be 4-dimensional (batch_size, height, width, depth), got {show(images.shape)}"
                )
            if size.shape != (2,):
                raise InvalidArgumentError(f"size must be a vector of size 2 (height, width), got {show(size.shape)}")
            if offsets.shape != (len(images), 2):
                raise InvalidArgumentError(
                    f"offsets must be a matrix of a pair (y, x) for each image, got {show(offsets.shape)}"
                )
            sizes = size.tolist()
            shape = (len(images), *sizes, images.shape[3])
            check_size(shape, float32)
            out = np.zeros(shape, np.float32)
            starts = [start(offsets[:, k], images.shape[k + 1], sizes[k]) for k in (0, 1)]
            for image, into, *firsts in zip(images, out, *starts, strict=True):
                there = [
                    (max(0, -first), min(n, length - first))
                    for first, n, length in zip(firsts, sizes, image.shape, strict=False)
                ]
                is_whole = all(span == (0, n) for span, n in zip(there, sizes, strict=True))
                if noise != "zero" and not is_whole and image.size:
                    into[:] = _noise(image, into.shape, noise)
                if all(low < high for low, high in there):
                    (top, bottom), (left, right) = there
                    y, x = firsts
                    into[top:bottom, left:right] = image[top + y : bottom + y, left + x : right + x]
            return out

        return kernel

    return factory


def _noise(image: Array, shape: tuple[int, ...], kind: str) -> Array:
    """Draws noise with the statistics of the image.

    It is uniform between the extremes of the image, or normal with the mean and deviation of each channel.
    """
    rng = np.random.default_rng()
    if kind == "uniform":
        low, high = image.min(), image.max()
        return low + rng.random(shape, np.float32) * (high - low)
    drawn = rng.standard_normal(shape, np.float32) * image.std((0, 1)) + image.mean((0, 1))
    return np.clip(drawn, image.min((0, 1)), image.max((0, 1)))


def _glimpse_shape(c: Inference) -> Sequence[Shape]:
    images = with_rank(c.shapes[0], 4)
    offsets = with_rank(c.shapes[2], 2)
    merge_dim(offsets[1], 2)
    height, width = with_rank(shape_from(c, 1), 2)
    return [(merge_dim(images[0], offsets[0]), height, width, images[3])]


# *** Oracles and samples ***


def _place_of(low: float, high: float, length: int, count: int, i: int) -> float:
    if count == 1:
        return (low + high) / 2 * (length - 1)
    return (low + (high - low) * i / (count - 1)) * (length - 1)


def _around(at: float, method: str) -> list[tuple[int, float]]:
    if method == "nearest":
        return [(int(at + 0.5), 1.0)]
    return [(int(at), 1 - at % 1), (int(np.ceil(at)), at % 1)]


def _pixels(boxes: Array, which: Array, shape: Sequence[int], counts: Sequence[int], method: str) -> Iterator[Any]:
    """Yields each pixel of each crop, with the pixels of the image that it interpolates.

    The second element of a pair is None for a pixel outside the image.
    """
    for i, j, k in np.ndindex(len(boxes), *counts):
        y1, x1, y2, x2 = map(float, boxes[i])
        y, x = _place_of(y1, y2, shape[1], counts[0], j), _place_of(x1, x2, shape[2], counts[1], k)
        if not (0 <= y <= shape[1] - 1 and 0 <= x <= shape[2] - 1):
            yield (i, j, k), None
            continue
        yield (i, j, k), [((which[i], a, b), u * v) for a, u in _around(y, method) for b, v in _around(x, method)]


def _crop_oracle(
    image: Array, boxes: Array, which: Array, size: Array, method: str = "bilinear", extrapolation_value: float = 0.0
) -> Array:
    out = np.full((len(boxes), *size, image.shape[3]), extrapolation_value, np.float32)
    for at, found in _pixels(boxes, which, image.shape, tuple(size), method):
        if found is not None:
            out[at] = sum(w * image[i].astype(float) for i, w in found)
    return out


def _by_image_oracle(
    grads: Array, boxes: Array, which: Array, size: Array, T: DType, method: str = "bilinear"
) -> Array:
    out = np.zeros(tuple(size))
    for at, found in _pixels(boxes, which, size.tolist(), grads.shape[1:3], method):
        for i, w in found or ():
            out[i] += w * grads[at].astype(float)
    return out.astype(T.numpy)


def _by_boxes_oracle(grads: Array, image: Array, boxes: Array, which: Array) -> Array:
    """Gradient by the boxes, from finite differences.

    Crops are linear in the boxes as long as no sampling position crosses a pixel.
    """
    step, out = 1e-4, np.zeros(boxes.shape)
    size = np.array(grads.shape[1:3])
    for i in np.ndindex(boxes.shape):
        for sign in (-1, 1):
            moved = boxes.astype(float)
            moved[i] += sign * step
            crops = np.zeros(grads.shape)
            for at, found in _pixels(moved, which, image.shape, tuple(size), "bilinear"):
                crops[at] = sum(w * image[p].astype(float) for p, w in found or ())
            out[i] += sign * np.sum(crops * grads) / (2 * step)
    return out.astype(np.float32)


# The places of their pixels are at fractions of pixels that float32 has exactly, none of them a pixel itself.
_BOXES = np.array(
    [[0.0625, 0.125, 0.5625, 0.625], [0.9375, 0.0625, 0.1875, 0.5625], [0.3125, -0.4375, 0.5625, 1.3125]], np.float32
)
_WHICH = np.array([1, 0, 1], np.int32)
_SHAPE = (2, 5, 5, 2)


def _crop_samples(rng: np.random.Generator, dtype: DType) -> list[Case]:
    images = draw(rng, dtype, _SHAPE)
    cases = [
        case(images, _BOXES, _WHICH, np.array([3, 2], np.int32)),
        case(images, _BOXES, _WHICH, np.array([2, 1], np.int32), extrapolation_value=0.5),
        case(images, _BOXES, _WHICH, np.array([2, 2], np.int32), method="nearest"),
    ]
    return cases if dtype is float32 else cases[:1]


def _by_image_samples(rng: np.random.Generator, dtype: DType) -> list[Case]:
    if dtype is float64:  # whose weights are those of float32, too coarse for what doubles are held to
        return []
    size = np.array(_SHAPE, np.int32)
    return [
        case(draw(rng, float32, (3, 3, 2, 2)), _BOXES, _WHICH, size, T=dtype, method=method)
        for method in ("bilinear", "nearest")
    ]


def _by_boxes_samples(rng: np.random.Generator, dtype: DType) -> list[Case]:
    sizes = ((2, 2), (2, 1)) if dtype is float32 else ((2, 2),)
    return [case(draw(rng, float32, (3, *s, 2)), draw(rng, dtype, _SHAPE), _BOXES, _WHICH) for s in sizes]


def _glimpse_oracle(version: int) -> Any:
    def oracle(
        images: Array, size: Array, offsets: Array, uniform_noise: bool, noise: str, centered: bool, normalized: bool
    ) -> Array:
        out = np.zeros((len(images), *size, images.shape[3]), np.float32)
        for n, y, x in np.ndindex(out.shape[:3]):
            at = []
            for k, i in enumerate((y, x)):
                length, v = images.shape[k + 1], float(offsets[n, k])
                v = {
                    (True, True): v * length / 2 + length / 2 - size[k] / 2,
                    (True, False): v / 2 + length / 2 - size[k] / 2 if version == 1 else v + length / 2,
                    (False, True): v * length - (size[k] / 2 if version == 1 else 0),
                    (False, False): v - (size[k] / 2 if version == 1 else 0),
                }[centered, normalized]
                at.append(int(v) + i)
            if all(0 <= a < length for a, length in zip(at, images.shape[1:], strict=False)):
                out[n, y, x] = images[n, *at]
        return out

    return oracle


def _glimpse_samples(rng: np.random.Generator, dtype: DType) -> list[Case]:
    offsets = np.array([[0.5, -0.25], [-1.25, 2.0]], np.float32)
    return [
        case(
            draw(rng, float32, (2, 5, 6, 2)),
            np.array([3, 4], np.int32),
            offsets,
            uniform_noise=False,
            noise="zero",
            centered=c,
            normalized=n,
        )
        for c in (True, False)
        for n in (True, False)
    ]


# *** Records ***

_FLOATS = frozenset({float16, float32, float64})
_TYPES = frozenset({uint8, uint16, int8, int16, int32, int64}) | _FLOATS
_METHODS = {"method": string_attr("bilinear", ("bilinear", "nearest"))}

op(
    "CropAndResize",
    "image: T, boxes: float32, box_ind: int32, crop_size: int32",
    "crops: float32",
    {"T": _TYPES, "extrapolation_value": 0.0} | _METHODS,
    shape=_crops_shape,
    kernel=_crop_and_resize,
    xp=True,
    host=("boxes", "box_ind", "crop_size"),
    grad=_crop_rule,
    facts=Facts(cost=flops_per_element(12)),
    oracle=_crop_oracle,
    sample=_crop_samples,
    doc="Boxes of images, all resized to the same size; `extrapolation_value` where they reach beyond the image.",
)
op(
    "CropAndResizeGradImage",
    "grads: float32, boxes: float32, box_ind: int32, image_size: int32",
    "output: T",
    {"T": _FLOATS} | _METHODS,
    shape=_image_shape,
    kernel=_by_image,
    xp=True,
    host=("boxes", "box_ind", "image_size"),
    grad=_by_image_rule,
    facts=Facts(cost=flops_per_input(16)),
    oracle=_by_image_oracle,
    sample=_by_image_samples,
    doc="The gradient of CropAndResize by the images, which are of `image_size`.",
)
op(
    "CropAndResizeGradBoxes",
    "grads: float32, image: T, boxes: float32, box_ind: int32",
    "output: float32",
    {"T": _TYPES, "method": string_attr("bilinear", ("bilinear",))},
    shape=_boxes_shape,
    kernel=_by_boxes,
    xp=True,
    host=("boxes", "box_ind"),
    grad=missing("no op computes the second derivative of the crops by the boxes"),
    facts=Facts(cost=flops_per_input(24)),
    oracle=_by_boxes_oracle,
    sample=_by_boxes_samples,
    doc="The gradient of CropAndResize by the boxes.",
)
for _version, _suffix in ((1, ""), (2, "V2")):
    op(
        f"ExtractGlimpse{_suffix}",
        "input: float32, size: int32, offsets: float32",
        "glimpse: float32",
        {"centered": True, "normalized": True, "uniform_noise": True, "noise": "uniform"},
        shape=_glimpse_shape,
        kernel=_glimpse(_version),
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        batch=folding(0, 2),
        facts=Facts(no_fold=True, cost=flops_per_element(2)),
        oracle=_glimpse_oracle(_version),
        sample=_glimpse_samples,
        doc="A window of each image, with noise (or zeros) where it reaches beyond the image.",
        differs="The noise comes from another generator, as unpredictable as TensorFlow's.",
    )
