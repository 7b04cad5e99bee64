"""Sizes and orientations of images: resizing, cropping, padding, flips and rotations.

The functions take images [batch, height, width, channels] or one image [height, width, channels]. If the rank matters
and is unknown, the tensor counts as one image.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api import arrays, gathering, math, random, scopes
from headrace.api.cond import cond, switch_case
from headrace.api.tensors import constant_value, is_tensor, narrow
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def image_of(b: Any, image: Any, what: str = "image") -> Any:
    """Converts `image` to a tensor, and checks its rank: 3, 4 or unknown.

    Raises:
      ShapeError (a ValueError): the rank is another.
    """
    x = b.tensor(image, None, what)
    if x.shape is not None and len(x.shape) not in (3, 4):
        raise ShapeError(f"'{what}' must have either 3 or 4 dimensions, got {x!r}, which has {len(x.shape)}")
    return x


def in_batch(x: Any, whole: Callable[[Any], Any]) -> Any:
    """Applies `whole`, a function of batches of images, to a batch or to one image."""
    if x.shape is not None and len(x.shape) == 4:
        return whole(x)
    batch = arrays.expand_dims(x, 0)
    narrow(batch, (1, None, None, None))
    return arrays.squeeze(whole(batch), [0])


def _sizes(x: Any) -> tuple[Any, Any]:
    """Returns the height and width of a batch: ints where they are known."""
    known = shapes.with_rank(x.shape, 4)[1:3]
    dims = arrays.shape(x) if None in known else None
    height, width = known if dims is None else (dims[1], dims[2])
    return height, width


# *** resizing ***


class ResizeMethod:
    """Methods of interpolation for `resize`.

    Source: TensorFlow's `tf.image.ResizeMethod`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> hr.image.resize(np.ones((1, 2, 2, 1)), [4, 4], hr.image.ResizeMethod.NEAREST_NEIGHBOR).shape
      (1, 4, 4, 1)
    """

    BILINEAR = "bilinear"
    NEAREST_NEIGHBOR = "nearest"
    BICUBIC = "bicubic"
    AREA = "area"
    LANCZOS3 = "lanczos3"
    LANCZOS5 = "lanczos5"
    GAUSSIAN = "gaussian"
    MITCHELLCUBIC = "mitchellcubic"


_OPS = {"bilinear": "ResizeBilinear", "nearest": "ResizeNearestNeighbor", "bicubic": "ResizeBicubic"}
_KERNELS = {"bilinear": "triangle", "bicubic": "keyscubic"}  # their kernels with antialias


def resize(
    images: Any,
    size: Any,
    method: str = ResizeMethod.BILINEAR,
    preserve_aspect_ratio: bool = False,
    antialias: bool = False,
    name: str | None = None,
) -> Tensor:
    """Resizes images.

    Args:
      images: [batch, height, width, channels] or [height, width, channels], numbers.
      size: the new height and width: ints, or an int32 vector.
      method: one of `ResizeMethod`.
      preserve_aspect_ratio: whether to keep the ratio of height and width; the result is the largest that fits into
        `size`.
      antialias: whether images are smoothed before they are downscaled.
      name: name of the scope; "resize" if None.

    Returns:
      Images of float32; with "nearest", of the dtype of `images`.

    Raises:
      ValueError: the method is unknown, or the shapes are not as described above.

    Source: TensorFlow's `tf.image.resize`.

    Example:
      >>> import headrace as hr
      >>> hr.image.resize([[[0.0], [1.0]]], (1, 4)).numpy().ravel().tolist()
      [0.0, 0.25, 0.75, 1.0]
    """
    if method not in vars(ResizeMethod).values():
        raise ValueError(f"resize method is not implemented: {method!r}")
    is_scaled = (antialias and method in _KERNELS) or method in ("lanczos3", "lanczos5", "gaussian", "mitchellcubic")

    def one(x: Any, size: Any) -> Any:
        b = scopes.builder(x, size)
        if is_scaled:
            sizes = math.cast(arrays.shape(x)[1:3], dtypes.float32)
            scale = math.truediv(math.cast(size, dtypes.float32), sizes)
            attrs = {"kernel_type": _KERNELS.get(method, method), "antialias": antialias}
            return b.make("ScaleAndTranslate", (x, size, scale, np.zeros(2, np.float32)), attrs)
        if method == "area":
            return b.make("ResizeArea", (x, size), {})
        return b.make(_OPS[method], (x, size), {"half_pixel_centers": True})

    return resized(images, size, one, preserve_aspect_ratio, name)


def resized(
    images: Any,
    size: Any,
    one: Callable[[Any, Any], Any],
    preserve_aspect_ratio: bool,
    name: str | None,
    keeps_same: bool = False,
) -> Any:
    """Prepares images and size for a resize op, and applies it.

    Args:
      images, size, preserve_aspect_ratio, name: as for `resize`.
      one: a function from a batch and a size to the resized batch.
      keeps_same: whether images that have the size already are returned unchanged.
    """
    with scopes.name_scope(name, "resize", [images, size]):
        b = scopes.builder(images, size)
        x = image_of(b, images, "images")
        if x.shape is None:
            raise ShapeError("'images' contains no shape: resize needs its rank; set its shape (set_shape)")
        is_batch = len(x.shape) == 4
        batch = x if is_batch else arrays.expand_dims(x, 0)
        size = b.tensor(size, dtypes.int32, "size")
        if not shapes.compatible(size.shape, (2,)):
            raise ShapeError(f"'size' must be a 1-D Tensor of 2 elements: new_height, new_width, got {size!r}")
        if preserve_aspect_ratio:
            size = _fitting(batch, size)
        wanted = constant_value(size) if keeps_same else None
        if wanted is not None and batch.shape[1:3] == tuple(wanted.tolist()):
            return x
        made = one(batch, size)
        return made if is_batch else arrays.squeeze(made, [0])


def _fitting(x: Any, size: Any) -> Any:
    """Returns the largest size within `size` that keeps the aspect ratio of `x`."""
    old = math.cast(arrays.shape(x)[1:3], dtypes.float32)
    scale = scopes.builder(x).Min(math.truediv(math.cast(size, dtypes.float32), old), 0)
    return math.cast(math.round(math.multiply(scale, old)), dtypes.int32)


def resize_with_pad(
    image: Any, target_height: Any, target_width: Any, method: str = ResizeMethod.BILINEAR, antialias: bool = False
) -> Tensor:
    """Resizes images, keeping their aspect ratio, and pads them with zeros.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      target_height, target_width: the new size.
      method, antialias: as for `resize`.

    Raises:
      ValueError: a size is not positive, or the rank is not 3 or 4.

    Source: TensorFlow's `tf.image.resize_with_pad`.

    Example:
      >>> import headrace as hr
      >>> hr.image.resize_with_pad([[[1.0], [1.0]]], 2, 2).numpy().ravel().tolist()
      [1.0, 1.0, 0.0, 0.0]
    """
    one = functools.partial(resize, method=method, antialias=antialias)
    return resized_with_pad(image, target_height, target_width, one)


def resized_with_pad(image: Any, target_height: Any, target_width: Any, one: Callable[[Any, Any], Any]) -> Any:
    """Computes `resize_with_pad` with `one(images, size)` as the resize function."""
    with scopes.name_scope(None, "resize_image_with_pad", [image]):
        b = scopes.builder(image)
        x = image_of(b, image)
        _check_sizes(target_height=target_height, target_width=target_width)

        def whole(x: Any) -> Any:
            target = math.cast(b.tensor([target_height, target_width], dtypes.int32), dtypes.float32)
            old = math.cast(arrays.shape(x)[1:3], dtypes.float32)
            new = math.truediv(old, b.Max(math.truediv(old, target), 0))
            before = math.floor(math.truediv(math.subtract(target, new), 2.0))
            top = math.maximum(math.cast(before, dtypes.int32), 0)
            small = one(x, math.cast(math.floor(new), dtypes.int32))
            return pad_to_bounding_box(small, top[0], top[1], target_height, target_width)

        return in_batch(x, whole)


# *** cropping and padding ***


def _number(x: Any) -> int | None:
    """Returns the static value of `x` as an int; None if it is unknown."""
    value = constant_value(x)
    return None if value is None else int(value)


def _check_sizes(**sizes: Any) -> None:
    for what, size in sizes.items():
        n = _number(size)
        if n is not None and n <= 0:
            raise ValueError(f"{what} must be > 0, got {n}")


def _check_box(image: Any, inner: tuple[Any, Any], offsets: tuple[Any, Any], outer: tuple[Any, Any], end: str) -> None:
    """Checks that a box is inside the outer box, as far as known statically."""
    sides = zip(("height", "width"), inner, offsets, outer, strict=True)
    for side, length, offset, whole in sides:
        n, at, all_ = (_number(v) for v in (length, offset, whole))
        if at is not None and at < 0:
            raise ValueError(f"offset_{side} must be >= 0, got {at}")
        if n is not None and at is not None and all_ is not None and at + n > all_:
            raise ValueError(f"{side} must be {end}, got the image {image!r}, a box of {side} {n} at {at} in {all_}")


def crop_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """Crops images to a box.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      offset_height, offset_width: the first row and column of the box.
      target_height, target_width: height and width of the box.

    Raises:
      ValueError: the box is not inside the image (InvalidArgumentError in a run, if the shape is unknown).

    Source: TensorFlow's `tf.image.crop_to_bounding_box`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(9), (3, 3, 1))
      >>> hr.image.crop_to_bounding_box(image, 1, 0, 2, 1).numpy().ravel().tolist()
      [3, 6]
    """
    with scopes.name_scope(None, "crop_to_bounding_box", [image]):
        x = image_of(scopes.builder(image), image)
        _check_sizes(target_height=target_height, target_width=target_width)

        def whole(x: Any) -> Any:
            offsets, target = (offset_height, offset_width), (target_height, target_width)
            _check_box(x, target, offsets, _sizes(x), ">= target + offset")
            return gathering.slice(x, [0, *offsets, 0], [-1, *target, -1])

        return in_batch(x, whole)


def pad_to_bounding_box(
    image: Any, offset_height: Any, offset_width: Any, target_height: Any, target_width: Any
) -> Tensor:
    """Pads images with zeros to a given size.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      offset_height, offset_width: numbers of rows and columns of zeros before the image.
      target_height, target_width: height and width of the result.

    Raises:
      ValueError: the image does not fit (InvalidArgumentError in a run, if the shape is unknown).

    Source: TensorFlow's `tf.image.pad_to_bounding_box`.

    Example:
      >>> import headrace as hr
      >>> hr.image.pad_to_bounding_box([[[7]]], 0, 1, 1, 3).numpy().ravel().tolist()
      [0, 7, 0]
    """
    with scopes.name_scope(None, "pad_to_bounding_box", [image]):
        x = image_of(scopes.builder(image), image)

        def whole(x: Any) -> Any:
            offsets, target, sizes = (offset_height, offset_width), (target_height, target_width), _sizes(x)
            _check_box(x, sizes, offsets, target, "<= target - offset")
            behind = [math.subtract(math.subtract(t, o), n) for t, o, n in zip(target, offsets, sizes, strict=True)]
            known = [_number(v) for v in (*offsets, *behind)]
            if None not in known:
                return arrays.pad(x, [[0, 0], [known[0], known[2]], [known[1], known[3]], [0, 0]])
            pads = [0, 0, offset_height, behind[0], offset_width, behind[1], 0, 0]
            y = arrays.pad(x, arrays.reshape(arrays.stack(pads), (4, 2)))
            narrow(y, (*shapes.with_rank(x.shape, 4)[:1], *map(_number, target), shapes.with_rank(x.shape, 4)[3]))
            return y

        return in_batch(x, whole)


def resize_with_crop_or_pad(image: Any, target_height: Any, target_width: Any) -> Tensor:
    """Changes the size of images by central cropping and padding with zeros.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      target_height, target_width: the new size.

    Raises:
      ValueError: a size is not positive, or the rank is not 3 or 4.

    Source: TensorFlow's `tf.image.resize_with_crop_or_pad`.

    Example:
      >>> import headrace as hr
      >>> hr.image.resize_with_crop_or_pad([[[1], [2], [3]]], 2, 1).numpy().ravel().tolist()
      [2, 0]
    """
    with scopes.name_scope(None, "resize_image_with_crop_or_pad", [image]):
        x = image_of(scopes.builder(image), image)
        _check_sizes(target_height=target_height, target_width=target_width)

        def whole(x: Any) -> Any:
            cuts, starts, kept = [], [], []
            for n, target in zip(_sizes(x), (target_height, target_width), strict=True):
                more = math.subtract(target, n)
                cuts.append(math.maximum(math.floordiv(math.negative(more), 2), 0))
                starts.append(math.maximum(math.floordiv(more, 2), 0))
                kept.append(math.minimum(target, n))
            middle = crop_to_bounding_box(x, cuts[0], cuts[1], kept[0], kept[1])
            narrow(middle, (None, None, None, shapes.with_rank(x.shape, 4)[3]))
            return pad_to_bounding_box(middle, starts[0], starts[1], target_height, target_width)

        return in_batch(x, whole)


def central_crop(image: Any, central_fraction: Any) -> Tensor:
    """Crops images to their central part.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      central_fraction: the fraction of the height and of the width to keep, in (0, 1].

    Raises:
      ValueError: the fraction is out of range, or the rank is unknown or not 3 or 4.

    Source: TensorFlow's `tf.image.central_crop`.

    Example:
      >>> import headrace as hr
      >>> hr.image.central_crop(hr.reshape(hr.range(16), (4, 4, 1)), 0.5).numpy().ravel().tolist()
      [5, 6, 9, 10]
    """
    with scopes.name_scope(None, "central_crop", [image]):
        b = scopes.builder(image, central_fraction)
        fraction = constant_value(central_fraction)
        if fraction is not None and not 0.0 < fraction <= 1.0:
            raise ValueError(f"central_fraction must be within (0, 1], got {central_fraction!r}")
        x = image_of(b, image)
        if x.shape is None:
            raise ShapeError("central_crop needs an image of known rank; set its shape (set_shape)")
        if not is_tensor(central_fraction) and central_fraction == 1.0:
            return x
        first = len(x.shape) - 3
        starts: list[Any] = []
        sizes: list[Any] = []
        for n in x.shape[first : first + 2]:
            if n is not None and fraction is not None:
                start: Any = int((n - n * float(fraction)) / 2)
                sizes.append(n - 2 * start)
            else:
                whole = arrays.shape(x)[first + len(starts)]
                exact = math.cast(whole, dtypes.float64)
                share = math.cast(
                    b.tensor(central_fraction, None if is_tensor(central_fraction) else dtypes.float32), dtypes.float64
                )
                start = math.cast(math.truediv(math.subtract(exact, math.multiply(exact, share)), 2.0), dtypes.int32)
                sizes.append(math.subtract(whole, math.multiply(start, 2)))
            starts.append(start)
        y = gathering.slice(x, [*[0] * first, *starts, 0], [*[-1] * first, *sizes, -1])
        narrow(y, (*x.shape[:first], None, None, x.shape[-1]))
        return y


def random_crop(value: Any, size: Any, seed: int | None = None, name: str | None = None) -> Tensor:
    """Crops a tensor at a random position.

    Args:
      value: a tensor.
      size: the shape of the part: an int vector.
      seed: see `headrace.api.random`.
      name: name of the operation; "random_crop" if None.

    Raises:
      ValueError: the tensor is smaller than `size` (InvalidArgumentError in a run, if the shape is unknown).

    Source: TensorFlow's `tf.image.random_crop`.

    Example:
      >>> import headrace as hr
      >>> hr.image.random_crop(hr.zeros((9, 9, 3)), (4, 4, 3)).shape
      (4, 4, 3)
    """
    with scopes.name_scope(name, "random_crop", [value, size]) as scope:
        b = scopes.builder(value, size)
        x = b.tensor(value, None, "value")
        size = b.tensor(size, dtypes.int32, "size")
        dims = arrays.shape(x)
        fits = math.greater_equal(dims, size)
        known = constant_value(fits)
        if known is not None and not known.all():
            raise ValueError(f"Need value.shape >= size, got {shapes.show(x.shape)} and {constant_value(size)!r}")
        limit = math.add(math.subtract(dims, size), 1)
        drawn = random.uniform(arrays.shape(dims), maxval=math.limits(dtypes.int32)[1], dtype=dtypes.int32, seed=seed)
        # if the part is too large the limit is not positive, and Slice fails
        return gathering.slice(x, math.mod(drawn, math.maximum(limit, 1)), size, name=scope)


# *** directions ***


def flip_left_right(image: Any) -> Tensor:
    """Reverses the columns of images.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].

    Source: TensorFlow's `tf.image.flip_left_right`.

    Example:
      >>> import headrace as hr
      >>> hr.image.flip_left_right([[[1], [2]]]).numpy().ravel().tolist()
      [2, 1]
    """
    return _flipped(image, -2, "flip_left_right")


def flip_up_down(image: Any) -> Tensor:
    """Reverses the rows of images.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].

    Source: TensorFlow's `tf.image.flip_up_down`.

    Example:
      >>> import headrace as hr
      >>> hr.image.flip_up_down([[[1]], [[2]]]).numpy().ravel().tolist()
      [2, 1]
    """
    return _flipped(image, -3, "flip_up_down")


def _flipped(image: Any, axis: int, scope: str) -> Any:
    with scopes.name_scope(None, scope, [image]):
        return arrays.reverse(image_of(scopes.builder(image), image), [axis])


def random_flip_left_right(image: Any, seed: int | None = None) -> Tensor:
    """Reverses the columns of each image with probability 1/2.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      seed: see `headrace.api.random`.

    Source: TensorFlow's `tf.image.random_flip_left_right`.

    Example:
      >>> import headrace as hr
      >>> x = hr.image.random_flip_left_right([[[1], [2]]], seed=1).numpy()
      >>> sorted(x.ravel().tolist())
      [1, 2]
    """
    return _randomly_flipped(image, -2, seed, "random_flip_left_right")


def random_flip_up_down(image: Any, seed: int | None = None) -> Tensor:
    """Reverses the rows of each image with probability 1/2.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      seed: see `hr.random`.

    Source: TensorFlow's `tf.image.random_flip_up_down`.

    Example:
      >>> import headrace as hr
      >>> x = hr.image.random_flip_up_down([[[1]], [[2]]], seed=1).numpy()
      >>> sorted(x.ravel().tolist())
      [1, 2]
    """
    return _randomly_flipped(image, -3, seed, "random_flip_up_down")


def _randomly_flipped(image: Any, axis: int, seed: int | None, scope: str) -> Any:
    with scopes.name_scope(None, scope, [image]):
        x = image_of(scopes.builder(image), image)
        if x.shape is not None and len(x.shape) == 4:
            drawn = random.uniform([arrays.shape(x)[0], 1, 1, 1], seed=seed)
            return gathering.where(math.greater(drawn, 0.5), arrays.reverse(x, [axis]), x)
        is_turned = math.less(random.uniform((), seed=seed), 0.5)
        return cond(is_turned, lambda: arrays.reverse(x, [axis]), lambda: x)


def transpose(image: Any, name: str | None = None) -> Tensor:
    """Exchanges the rows and columns of images.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      name: name of the scope; "transpose" if None.

    Source: TensorFlow's `tf.image.transpose`.

    Example:
      >>> import headrace as hr
      >>> hr.image.transpose(hr.zeros((2, 5, 3))).shape
      (5, 2, 3)
    """
    with scopes.name_scope(name, "transpose", [image]):
        return _transposed(image_of(scopes.builder(image), image))


def _transposed(x: Any) -> Any:
    if x.shape is None:
        rank = arrays.rank(x)
        first = scopes.builder(x).Range(0, math.subtract(rank, 3), 1)
        return arrays.transpose(x, arrays.concat([first, math.subtract(rank, [2, 3, 1])], 0))
    return arrays.transpose(x, (1, 0, 2) if len(x.shape) == 3 else (0, 2, 1, 3))


def rot90(image: Any, k: Any = 1, name: str | None = None) -> Tensor:
    """Rotates images by `k` times 90 degrees, counterclockwise.

    Args:
      image: [batch, height, width, channels] or [height, width, channels].
      k: an int, or an int32 scalar.
      name: name of the scope; "rot90" if None.

    Source: TensorFlow's `tf.image.rot90`.

    Example:
      >>> import headrace as hr
      >>> hr.image.rot90([[[1], [2]]]).numpy().tolist()
      [[[2]], [[1]]]
    """
    turns: list[Callable[[Any], Any]] = [
        lambda x: x,
        lambda x: _transposed(arrays.reverse(x, [-2])),
        lambda x: arrays.reverse(x, [-3, -2]),
        lambda x: arrays.reverse(_transposed(x), [-2]),
    ]
    with scopes.name_scope(name, "rot90", [image, k]):
        x = image_of(scopes.builder(image, k), image)
        known = _number(k)
        if known is not None:
            return turns[known % 4](x)
        return switch_case(math.mod(k, 4), [functools.partial(turn, x) for turn in turns])
