"""Measures of images: differences between images, and between neighbouring elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api import arrays, math, reductions, scopes
from headrace.api.image.colors import convert_image_dtype
from headrace.api.nn.activations import relu, softmax
from headrace.api.nn.convolution import depthwise_conv2d
from headrace.api.nn.pooling import avg_pool2d
from headrace.errors import ShapeError
from headrace.ir.tensor_type import Tensor


def image_gradients(image: Any) -> tuple[Tensor, Tensor]:
    """Computes the differences of elements to the next row and to the next column.

    The difference is 0 for the last row and the last column.

    Args:
      image: numbers, [batch, height, width, channels].

    Raises:
      ValueError: the rank is not 4.

    Source: TensorFlow's `tf.image.image_gradients`.

    Example:
      >>> import headrace as hr
      >>> dy, dx = hr.image.image_gradients([[[[1], [4]]]])
      >>> dy.numpy().ravel().tolist(), dx.numpy().ravel().tolist()
      ([0, 0], [3, 0])
    """
    x = scopes.builder(image).tensor(image, None, "image")
    if x.shape is not None and len(x.shape) != 4:
        raise ShapeError(f"image_gradients expects a 4D tensor [batch_size, h, w, d], got {x!r}")
    down = math.subtract(x[:, 1:], x[:, :-1])
    right = math.subtract(x[:, :, 1:], x[:, :, :-1])
    return arrays.pad(down, [[0, 0], [0, 1], [0, 0], [0, 0]]), arrays.pad(right, [[0, 0], [0, 0], [0, 1], [0, 0]])


_SOBEL = np.array([[[-1, -1], [-2, 0], [-1, 1]], [[0, -2], [0, 0], [0, 2]], [[1, -1], [2, 0], [1, 1]]])


def sobel_edges(image: Any) -> Tensor:
    """Computes the vertical and horizontal gradients of images by Sobel filters.

    Args:
      image: floats, [batch, height, width, channels], with a known number of channels.

    Returns:
      A tensor [batch, height, width, channels, 2]: the vertical and the horizontal gradient.

    Raises:
      ValueError: the number of channels is unknown.

    Source: TensorFlow's `tf.image.sobel_edges`.

    Example:
      >>> import headrace as hr
      >>> hr.image.sobel_edges([[[[0.0], [0.0], [1.0]], [[0.0], [0.0], [1.0]]]]).numpy()[0, 0, 1].tolist()
      [[0.0, 4.0]]
    """
    b = scopes.builder(image)
    x = b.tensor(image, None, "image")
    channels = shapes.with_rank(x.shape, 4)[3]
    if channels is None:
        raise ShapeError(f"sobel_edges needs to know the number of channels, got {x!r}")
    filters = np.tile(_SOBEL[:, :, None, :], (1, 1, channels, 1)).astype(x.dtype.numpy)
    padded = arrays.pad(x, [[0, 0], [1, 1], [1, 1], [0, 0]], "REFLECT")
    edges = depthwise_conv2d(padded, filters, [1, 1, 1, 1], "VALID")
    dims = arrays.concat([arrays.shape(x), [2]], 0)
    return arrays.reshape(edges, dims)


def total_variation(images: Any, name: str | None = None) -> Tensor:
    """Computes the sum of the absolute differences of neighbouring elements, a measure of noise.

    Args:
      images: numbers, [batch, height, width, channels] or [height, width, channels].
      name: name of the scope; "total_variation" if None.

    Returns:
      A scalar for each image.

    Raises:
      ValueError: the rank is not 3 or 4.

    Source: TensorFlow's `tf.image.total_variation`.

    Example:
      >>> import headrace as hr
      >>> hr.image.total_variation([[[1.0], [4.0]], [[1.0], [2.0]]]).numpy().item()
      6.0
    """
    with scopes.name_scope(name, "total_variation"):
        b = scopes.builder(images)
        x = b.tensor(images, None, "images")
        rank = None if x.shape is None else len(x.shape)
        if rank not in (3, 4):
            raise ShapeError(f"'images' must be either 3 or 4-dimensional, got {x!r}")
        x4 = x if rank == 4 else arrays.expand_dims(x, 0)
        down = math.subtract(x4[:, 1:], x4[:, :-1])
        right = math.subtract(x4[:, :, 1:], x4[:, :, :-1])
        sums = [reductions.reduce_sum(math.abs(d), [1, 2, 3] if rank == 4 else None) for d in (down, right)]
        return b.make("AddV2", tuple(sums), {}, "add")


def _compared(a: Any, b: Any, max_val: Any) -> tuple[Any, Any, Any]:
    """Converts two images and the greatest value to float32.

    Raises:
      ValueError: the ranks are below 3, or the sizes differ.
    """
    make = scopes.builder(a, b, max_val)
    a = make.tensor(a, None, "a")
    b = make.tensor(b, a.dtype.base, "b")
    if any(x.shape is not None and len(x.shape) < 3 for x in (a, b)):
        raise ShapeError(f"images must have at least 3 axes [height, width, channels], got {a!r} and {b!r}")
    if None not in (a.shape, b.shape) and not shapes.compatible(a.shape[-3:], b.shape[-3:]):
        raise ShapeError(f"the images must be of the same height, width and channels, got {a!r} and {b!r}")
    top = make.tensor(max_val, None if hasattr(max_val, "dtype") else a.dtype.base, "max_val")
    top = convert_image_dtype(math.cast(top, a.dtype.base), dtypes.float32)
    return convert_image_dtype(a, dtypes.float32), convert_image_dtype(b, dtypes.float32), top


def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Tensor:
    """Computes the peak signal-to-noise ratio of pairs of images, in decibels.

    Args:
      a, b: numbers, [..., height, width, channels].
      max_val: the difference between the greatest and the least possible value of an element.
      name: name of the scope; "PSNR" if None.

    Returns:
      A float32 number for each pair, greater for more similar images.

    Raises:
      ValueError: the sizes differ (InvalidArgumentError in a run, if the shapes are unknown).

    Source: TensorFlow's `tf.image.psnr`.

    Example:
      >>> import headrace as hr
      >>> hr.image.psnr([[[0.0]]], [[[0.1]]], 1.0).numpy().round(3).item()
      20.0
    """
    with scopes.name_scope(name, "PSNR", [a, b]):
        x, y, top = _compared(a, b, max_val)
        error = reductions.reduce_mean(math.squared_difference(x, y), [-3, -2, -1])
        bel = float(10 / np.log(10))
        return math.subtract(math.multiply(2 * bel, math.log(top)), math.multiply(bel, math.log(error)), name="psnr")


def ssim(
    img1: Any,
    img2: Any,
    max_val: Any,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    return_index_map: bool = False,
) -> Tensor:
    """Computes the structural similarity of pairs of images: 1 for equal images.

    Args:
      img1, img2: numbers, [..., height, width, channels]; height and width are at least `filter_size`.
      max_val: the difference between the greatest and the least possible value of an element.
      filter_size, filter_sigma: size and standard deviation of the Gaussian window in which elements are compared.
      k1, k2: constants that stabilize the divisions.
      return_index_map: whether to return the similarity at each place, in place of its mean.

    Returns:
      A float32 number for each pair; with `return_index_map`, [..., rows, columns].

    Raises:
      ValueError: the images are smaller than the filter, or the sizes differ.

    Source: TensorFlow's `tf.image.ssim`, and "Image quality assessment" (Wang, Bovik, Sheikh and Simoncelli, 2004).

    Example:
      >>> import headrace as hr
      >>> hr.image.ssim(hr.ones((11, 11, 1)), hr.ones((11, 11, 1)), 1.0).numpy().round(3).item()
      1.0
    """
    with scopes.name_scope(None, "SSIM", [img1, img2]):
        x, y, top = _compared(img1, img2, max_val)
        for image in (x, y):
            if image.shape is not None and any(n is not None and n < filter_size for n in image.shape[-3:-1]):
                raise ShapeError(f"the images must be at least as large as the filter, {filter_size}, got {image!r}")
        luminance, contrast = _similarity(x, y, top, int(filter_size), float(filter_sigma), k1, k2)
        whole = math.multiply(luminance, contrast)
        return reductions.reduce_mean(whole, -1 if return_index_map else [-3, -2, -1])


_MSSSIM_POWERS = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333)


def ssim_multiscale(
    img1: Any,
    img2: Any,
    max_val: Any,
    power_factors: Sequence[float] = _MSSSIM_POWERS,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
) -> Tensor:
    """Computes the structural similarity of pairs of images at several scales.

    Args:
      img1, img2: numbers, [..., height, width, channels]; height and width are at least `filter_size` at each scale.
      max_val: the difference between the greatest and the least possible value of an element.
      power_factors: exponents of the scales; each scale after the first has half the height and width.
      filter_size, filter_sigma, k1, k2: as for `ssim`.

    Returns:
      A float32 number for each pair.

    Raises:
      ValueError: the sizes of the images differ.

    Source: TensorFlow's `tf.image.ssim_multiscale`, and "Multiscale structural similarity for image quality assessment"
    (Wang, Simoncelli and Bovik, 2003).

    Example:
      >>> import headrace as hr
      >>> image = hr.ones((22, 22, 1))
      >>> hr.image.ssim_multiscale(image, image, 1.0, power_factors=(0.5, 0.5)).numpy().round(3).item()
      1.0
    """
    with scopes.name_scope(None, "MS-SSIM", [img1, img2]):
        x, y, top = _compared(img1, img2, max_val)
        found = []
        for scale in range(len(power_factors)):
            with scopes.name_scope(None, f"Scale{scale}"):
                if scale:
                    x, y = _halved(x), _halved(y)
                luminance, contrast = _similarity(x, y, top, int(filter_size), float(filter_sigma), k1, k2)
                of_channels = contrast if scale < len(power_factors) - 1 else math.multiply(luminance, contrast)
                found.append(relu(reductions.reduce_mean(of_channels, [-3, -2])))
        powers = np.array(power_factors, np.float32)
        product = reductions.reduce_prod(math.pow(arrays.stack(found, axis=-1), powers), [-1])
        return reductions.reduce_mean(product, [-1])


def _halved(images: Any) -> Any:
    """Halves images by means of 2 x 2 elements."""
    dims = arrays.shape(images)
    flat = arrays.reshape(images, arrays.concat([[-1], dims[-3:]], 0))
    odd = math.floormod(dims[-3:-1], 2)
    behind = arrays.pad(arrays.expand_dims(odd, -1), [[1, 1], [1, 0]])
    pooled = avg_pool2d(arrays.pad(flat, behind, "SYMMETRIC"), [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    return arrays.reshape(pooled, arrays.concat([dims[:-3], arrays.shape(pooled)[1:]], 0))


def _similarity(x: Any, y: Any, top: Any, size: int, sigma: float, k1: float, k2: float) -> tuple[Any, Any]:
    """Computes the similarities in luminance and in contrast and structure, at each place."""
    at = np.arange(size, dtype=np.float32) - (size - 1) / 2
    square = at**2 * np.float32(-0.5 / sigma**2)
    window = arrays.reshape(softmax((square[:, None] + square[None]).reshape(1, -1)), (size, size, 1, 1))
    filters = arrays.tile(window, [1, 1, arrays.shape(x)[-1], 1])

    def mean(z: Any) -> Any:
        dims = arrays.shape(z)
        flat = arrays.reshape(z, arrays.concat([[-1], dims[-3:]], 0))
        y = depthwise_conv2d(flat, filters, 1, "VALID")
        return arrays.reshape(y, arrays.concat([dims[:-3], arrays.shape(y)[1:]], 0))

    c1, c2 = (math.square(math.multiply(float(k), top)) for k in (k1, k2))
    mean_x, mean_y = mean(x), mean(y)
    both = math.multiply(math.multiply(mean_x, mean_y), 2.0)
    squares = math.add(math.square(mean_x), math.square(mean_y))
    luminance = math.truediv(math.add(both, c1), math.add(squares, c1))
    product = math.multiply(mean(math.multiply(x, y)), 2.0)
    of_squares = mean(math.add(math.square(x), math.square(y)))
    contrast = math.truediv(
        math.add(math.subtract(product, both), c2), math.add(math.subtract(of_squares, squares), c2)
    )
    return luminance, contrast
