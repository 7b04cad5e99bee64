"""Colours of images: dtypes, colour spaces, brightness, contrast, and their random changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, random, reductions, scopes
from headrace.api.linalg import matrices
from headrace.api.tensors import identity, is_tensor
from headrace.ir.tensor_type import Tensor

_ADJUSTED = (dtypes.float16, dtypes.float32)  # adjusted directly; other dtypes are converted to float32


def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> Tensor:
    """Converts images to another dtype, scaling them to its range.

    Floats have the range from 0 to 1, integers from 0 to the greatest of their dtype.

    Args:
      image: numbers.
      dtype: a floating or integer dtype.
      saturate: whether values beyond the range of the dtype are clipped.
      name: name of the operation; "convert_image" if None.

    Raises:
      TypeError: the dtype is neither floating nor integer.

    Source: TensorFlow's `tf.image.convert_image_dtype`.

    Example:
      >>> import headrace as hr
      >>> hr.image.convert_image_dtype([0.0, 0.5, 1.0], hr.uint8).numpy().tolist()
      [0, 127, 255]
    """
    b = scopes.builder(image)
    x = b.tensor(image, None, "image")
    t, old = dtypes.as_dtype(dtype), x.dtype.base
    if not (t.is_floating or t.is_integer):
        raise TypeError(f"'dtype' must be either floating point or integer, got {t.name}")
    if t is old:
        return identity(x, name)
    with scopes.name_scope(name, "convert_image", [x]) as scope:
        cast = math.saturate_cast if saturate else math.cast
        if t.is_floating and old.is_floating:
            return math.cast(x, t, scope)
        if t.is_floating:
            return math.multiply(math.cast(x, t), 1.0 / math.limits(old)[1], name=scope)
        if old.is_floating:
            return cast(math.multiply(x, math.limits(t)[1] + 0.5), t, scope)
        high, new = math.limits(old)[1], math.limits(t)[1]
        if high > new:
            return cast(math.floordiv(x, (high + 1) // (new + 1)), t, scope)
        return math.multiply(cast(x, t), (new + 1) // (high + 1), name=scope)


def _as_floats(x: Any, kept: tuple[dtypes.DType, ...] = _ADJUSTED) -> Any:
    return x if x.dtype.base in kept else convert_image_dtype(x, dtypes.float32)


# *** spaces of colour ***


def rgb_to_grayscale(images: Any, name: str | None = None) -> Tensor:
    """Computes the luminance of images, 0.2989 red + 0.587 green + 0.114 blue.

    The result has one channel.

    Args:
      images: numbers, [..., 3].
      name: name of the operation; "rgb_to_grayscale" if None.

    Source: TensorFlow's `tf.image.rgb_to_grayscale`.

    Example:
      >>> import headrace as hr
      >>> hr.image.rgb_to_grayscale([[[1.0, 1.0, 1.0]]]).shape
      (1, 1, 1)
    """
    with scopes.name_scope(name, "rgb_to_grayscale", [images]) as scope:
        b = scopes.builder(images)
        x = b.tensor(images, None, "images")
        gray = matrices.tensordot(convert_image_dtype(x, dtypes.float32), [0.2989, 0.587, 0.114], [[-1], [-1]])
        return convert_image_dtype(arrays.expand_dims(gray, -1), x.dtype.base, name=scope)


def grayscale_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """Repeats the channel of grey images three times.

    Args:
      images: a tensor [..., 1].
      name: name of the operation; "grayscale_to_rgb" if None.

    Raises:
      ValueError: there is no axis, or more than one channel.

    Source: TensorFlow's `tf.image.grayscale_to_rgb`.

    Example:
      >>> import headrace as hr
      >>> hr.image.grayscale_to_rgb([[[5]]]).numpy().tolist()
      [[[5, 5, 5]]]
    """
    with scopes.name_scope(name, "grayscale_to_rgb", [images]) as scope:
        x = scopes.builder(images).tensor(images, None, "images")
        if x.shape is not None and (not x.shape or x.shape[-1] not in (1, None)):
            raise ValueError(f"a grayscale image must have 1 channel, the last axis, got {x!r}")
        ones = arrays.ones([math.subtract(arrays.rank(x), 1)], dtypes.int32)
        return arrays.tile(x, arrays.concat([ones, [3]], 0), name=scope)


def rgb_to_hsv(images: Any, name: str | None = None) -> Tensor:
    """Converts colours to hue, saturation and value.

    Args:
      images: floats from 0 to 1, [..., 3].
      name: name of the operation; "RGBToHSV" if None.

    Source: TensorFlow's `tf.image.rgb_to_hsv`.

    Example:
      >>> import headrace as hr
      >>> hr.image.rgb_to_hsv([[0.0, 0.5, 0.5]]).numpy().tolist()
      [[0.5, 1.0, 0.5]]
    """
    return scopes.builder(images).make("RGBToHSV", (images,), {}, name)


def hsv_to_rgb(images: Any, name: str | None = None) -> Tensor:
    """Converts hue, saturation and value to RGB: the inverse of `rgb_to_hsv`.

    Args:
      images: floats from 0 to 1, [..., 3].
      name: name of the operation; "HSVToRGB" if None.

    Source: TensorFlow's `tf.image.hsv_to_rgb`.

    Example:
      >>> import headrace as hr
      >>> hr.image.hsv_to_rgb([[0.5, 1.0, 0.5]]).numpy().tolist()
      [[0.0, 0.5, 0.5]]
    """
    return scopes.builder(images).make("HSVToRGB", (images,), {}, name)


# Row i has the contributions of channel i of the source. Source: the standards NTSC and PAL.
_RGB_TO_YIQ = [[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]]
_YIQ_TO_RGB = [[1.0, 1.0, 1.0], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]]
_RGB_TO_YUV = [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]]
_YUV_TO_RGB = [[1.0, 1.0, 1.0], [0.0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0.0]]


def _mixed(images: Any, matrix: list[list[float]]) -> Any:
    b = scopes.builder(images)
    x = b.tensor(images, None, "images")
    return matrices.tensordot(x, b.const(np.array(matrix), x.dtype.base, "kernel"), [[-1], [0]])


def rgb_to_yiq(images: Any) -> Tensor:
    """Converts images from RGB to YIQ, the colour space of NTSC.

    Args:
      images: floats, [..., 3].

    Source: TensorFlow's `tf.image.rgb_to_yiq`.

    Example:
      >>> import headrace as hr
      >>> hr.image.rgb_to_yiq([[[1.0, 1.0, 1.0]]]).numpy().shape
      (1, 1, 3)
    """
    return _mixed(images, _RGB_TO_YIQ)


def yiq_to_rgb(images: Any) -> Tensor:
    """Converts images from YIQ to RGB: the inverse of `rgb_to_yiq`.

    Args:
      images: floats, [..., 3].

    Source: TensorFlow's `tf.image.yiq_to_rgb`.

    Example:
      >>> import headrace as hr
      >>> hr.image.yiq_to_rgb([[[0.5, 0.0, 0.0]]]).numpy().round(3).tolist()
      [[[0.5, 0.5, 0.5]]]
    """
    return _mixed(images, _YIQ_TO_RGB)


def rgb_to_yuv(images: Any) -> Tensor:
    """Converts images from RGB to YUV, the colour space of PAL.

    Args:
      images: floats, [..., 3].

    Source: TensorFlow's `tf.image.rgb_to_yuv`.

    Example:
      >>> import headrace as hr
      >>> hr.image.rgb_to_yuv([[[1.0, 1.0, 1.0]]]).numpy().shape
      (1, 1, 3)
    """
    return _mixed(images, _RGB_TO_YUV)


def yuv_to_rgb(images: Any) -> Tensor:
    """Converts images from YUV to RGB: the inverse of `rgb_to_yuv`.

    Args:
      images: floats, [..., 3].

    Source: TensorFlow's `tf.image.yuv_to_rgb`.

    Example:
      >>> import headrace as hr
      >>> hr.image.yuv_to_rgb([[[0.5, 0.0, 0.0]]]).numpy().round(3).tolist()
      [[[0.5, 0.5, 0.5]]]
    """
    return _mixed(images, _YUV_TO_RGB)


# *** adjusted ***


def adjust_brightness(image: Any, delta: Any) -> Tensor:
    """Adds `delta` to images, where 1 is the range of values.

    Args:
      image: numbers; integers are scaled as in `convert_image_dtype`, and the result is clipped.
      delta: a scalar.

    Source: TensorFlow's `tf.image.adjust_brightness`.

    Example:
      >>> import headrace as hr
      >>> hr.image.adjust_brightness(hr.constant([0, 250], hr.uint8), 0.1).numpy().tolist()
      [25, 255]
    """
    with scopes.name_scope(None, "adjust_brightness", [image, delta]) as scope:
        b = scopes.builder(image, delta)
        x = b.tensor(image, None, "image")
        floats = _as_floats(x)
        t = floats.dtype.base
        delta = math.cast(delta, t) if is_tensor(delta) else b.const(delta, t, "Cast/x")
        return convert_image_dtype(b.make("AddV2", (floats, delta), {}, scope), x.dtype.base, saturate=True)


def adjust_contrast(images: Any, contrast_factor: Any) -> Tensor:
    """Multiplies the distance of elements from the mean of their channel by a factor.

    Args:
      images: numbers, [..., height, width, channels]; integers are scaled as in `convert_image_dtype`.
      contrast_factor: a scalar.

    Source: TensorFlow's `tf.image.adjust_contrast`.

    Example:
      >>> import headrace as hr
      >>> hr.image.adjust_contrast([[[1.0], [3.0]]], 2.0).numpy().ravel().tolist()
      [0.0, 4.0]
    """
    with scopes.name_scope(None, "adjust_contrast", [images, contrast_factor]) as scope:
        b = scopes.builder(images, contrast_factor)
        x = b.tensor(images, None, "images")
        made = b.make("AdjustContrastv2", (_as_floats(x), contrast_factor), {}, scope)
        return convert_image_dtype(made, x.dtype.base, saturate=True)


def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Tensor:
    """Rotates the hues of images by `delta`, where 1 is a full turn.

    Args:
      image: numbers, [..., 3]; integers are scaled as in `convert_image_dtype`.
      delta: a scalar from -1 to 1.
      name: name of the scope; "adjust_hue" if None.

    Raises:
      ValueError: `delta` is a number out of range.

    Source: TensorFlow's `tf.image.adjust_hue`.

    Example:
      >>> import headrace as hr
      >>> x = hr.constant([[[0.5, 0.25, 0.75]]])
      >>> hr.image.adjust_hue(x, 0.5).numpy().round(3).tolist()
      [[[0.5, 0.75, 0.25]]]
    """
    if not is_tensor(delta) and not -1 <= delta <= 1:
        raise ValueError(f"'delta' must be in the interval [-1, 1], got {delta!r}")
    with scopes.name_scope(name, "adjust_hue", [image]):
        b = scopes.builder(image, delta)
        x = b.tensor(image, None, "image")
        return convert_image_dtype(b.make("AdjustHue", (_as_floats(x), delta), {}), x.dtype.base)


def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Tensor:
    """Multiplies the saturation of the colours of images by a factor.

    Args:
      image: numbers, [..., 3]; integers are scaled as in `convert_image_dtype`.
      saturation_factor: a scalar.
      name: name of the scope; "adjust_saturation" if None.

    Source: TensorFlow's `tf.image.adjust_saturation`.

    Example:
      >>> import headrace as hr
      >>> x = hr.constant([[[0.5, 0.25, 0.75]]])
      >>> hr.image.adjust_saturation(x, 0.0).numpy().round(3).tolist()
      [[[0.75, 0.75, 0.75]]]
    """
    with scopes.name_scope(name, "adjust_saturation", [image]):
        b = scopes.builder(image, saturation_factor)
        x = b.tensor(image, None, "image")
        return convert_image_dtype(b.make("AdjustSaturation", (_as_floats(x), saturation_factor), {}), x.dtype.base)


def adjust_gamma(image: Any, gamma: Any = 1, gain: Any = 1) -> Tensor:
    """Computes gain * image ** gamma, element by element.

    Args:
      image: numbers; integers are scaled as in `convert_image_dtype`.
      gamma: a scalar, at least 0; above 1 images become darker.
      gain: a scalar.

    Raises:
      ValueError: `gamma` is a negative number.

    Source: TensorFlow's `tf.image.adjust_gamma`.

    Example:
      >>> import headrace as hr
      >>> hr.image.adjust_gamma([0.5, 1.0], 2.0).numpy().tolist()
      [0.25, 1.0]
    """
    if not is_tensor(gamma) and gamma < 0:
        raise ValueError(f"'gamma' must be a non-negative real number, got {gamma!r}")
    with scopes.name_scope(None, "adjust_gamma", [image, gamma, gain]):
        b = scopes.builder(image, gamma, gain)
        x = b.tensor(image, None, "image")
        bent = b.make("Pow", (_as_floats(x), gamma), {}, "pow")
        return convert_image_dtype(b.make("Mul", (gain, bent), {}, "mul"), x.dtype.base, saturate=True)


def per_image_standardization(image: Any) -> Tensor:
    """Scales images to mean 0 and variance 1.

    The divisor is the standard deviation, or 1 / sqrt(number of elements) if that is greater.

    Args:
      image: numbers, [..., height, width, channels].

    Source: TensorFlow's `tf.image.per_image_standardization`.

    Example:
      >>> import headrace as hr
      >>> hr.image.per_image_standardization([[[1.0], [3.0]]]).numpy().ravel().tolist()
      [-1.0, 1.0]
    """
    with scopes.name_scope(None, "per_image_standardization", [image]) as scope:
        x = scopes.builder(image).tensor(image, None, "image")
        if x.dtype.base not in _ADJUSTED:
            x = math.cast(x, dtypes.float32)
        pixels = math.cast(reductions.reduce_prod(arrays.shape(x)[-3:]), x.dtype.base)
        axes = [-1, -2, -3]
        mean = reductions.reduce_mean(x, axes, True)
        spread = math.maximum(reductions.reduce_std(x, axes, True), math.rsqrt(pixels))
        return math.truediv(math.subtract(x, mean), spread, name=scope)


# *** at random ***


def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """Adjusts the brightness by a random delta in [-max_delta, max_delta).

    Args:
      image: as for `adjust_brightness`.
      max_delta: a number, at least 0.
      seed: see `headrace.api.random`.

    Raises:
      ValueError: `max_delta` is negative.

    Source: TensorFlow's `tf.image.random_brightness`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> hr.image.random_brightness(np.zeros((2, 2, 1), np.float32), 0.5, seed=1).shape
      (2, 2, 1)
    """
    if max_delta < 0:
        raise ValueError(f"max_delta must be non-negative, got {max_delta!r}")
    return adjust_brightness(image, random.uniform((), -max_delta, max_delta, seed=seed))


def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """Adjusts the contrast by a random factor in [lower, upper).

    Args:
      image: as `images` for `adjust_contrast`.
      lower, upper: the bounds of the factor, at least 0.
      seed: see `hr.random`.

    Raises:
      ValueError: `lower` is negative, or `upper` is not above it.

    Source: TensorFlow's `tf.image.random_contrast`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> hr.image.random_contrast(np.zeros((2, 2, 1), np.float32), 0.5, 1.5, seed=1).shape
      (2, 2, 1)
    """
    return adjust_contrast(image, _factor(lower, upper, seed))


def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Tensor:
    """Adjusts the saturation by a random factor in [lower, upper).

    Args:
      image: as for `adjust_saturation`.
      lower, upper: the bounds of the factor, at least 0.
      seed: see `hr.random`.

    Raises:
      ValueError: `lower` is negative, or `upper` is not above it.

    Source: TensorFlow's `tf.image.random_saturation`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> hr.image.random_saturation(np.zeros((2, 2, 3), np.float32), 0.5, 1.5, seed=1).shape
      (2, 2, 3)
    """
    return adjust_saturation(image, _factor(lower, upper, seed))


def _factor(lower: float, upper: float, seed: int | None) -> Any:
    if upper <= lower:
        raise ValueError(f"upper must be > lower, got {lower!r} and {upper!r}")
    if lower < 0:
        raise ValueError(f"lower must be non-negative, got {lower!r}")
    return random.uniform((), lower, upper, seed=seed)


def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Tensor:
    """Adjusts the hue by a random delta in [-max_delta, max_delta).

    Args:
      image: as for `adjust_hue`.
      max_delta: a number from 0 to 0.5.
      seed: see `hr.random`.

    Raises:
      ValueError: `max_delta` is not from 0 to 0.5.

    Source: TensorFlow's `tf.image.random_hue`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> hr.image.random_hue(np.zeros((2, 2, 3), np.float32), 0.1, seed=1).shape
      (2, 2, 3)
    """
    if not 0 <= max_delta <= 0.5:
        fault = "must be non-negative" if max_delta < 0 else "must be <= 0.5"
        raise ValueError(f"max_delta {fault}, got {max_delta!r}")
    return adjust_hue(image, random.uniform((), -max_delta, max_delta, seed=seed))
