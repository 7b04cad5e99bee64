"""Pooling: maximum or mean of each window; morphological operations, which add weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, random, scopes
from headrace.api.nn import blocks
from headrace.api.nn.windows import for_each_axis, for_window, layout_of, rank_of, sliding, widened
from headrace.ir.tensor_type import Tensor


def max_pool(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None, name: str | None = None
) -> Tensor:
    """Computes the maximum of each window of sequences, images or volumes, for each channel.

    Args:
      input: a tensor of numbers of rank 3, 4 or 5, for `max_pool1d`, `max_pool2d` or `max_pool3d`.
      ksize, strides, padding, data_format: as for these functions.
      name: name of the operation.

    Raises:
      ValueError: as for these functions; or neither the rank nor `data_format` is known.

    Source: TensorFlow's `tf.nn.max_pool`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x = np.arange(16.0).reshape(1, 4, 4, 1)
      >>> hr.nn.max_pool(x, 2, 2, "VALID").numpy().ravel()
      array([ 5.,  7., 13., 15.])
    """
    return _by_rank("max_pool", _MAX, input, ksize, strides, padding, data_format, name)


def avg_pool(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str | None = None, name: str | None = None
) -> Tensor:
    """Computes the mean of each window of sequences, images or volumes, for each channel.

    Args:
      input: a tensor of floats of rank 3, 4 or 5, for `avg_pool1d`, `avg_pool2d` or `avg_pool3d`.
      ksize, strides, padding, data_format: as for these functions.
      name: name of the operation.

    Source: TensorFlow's `tf.nn.avg_pool`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x = np.arange(16.0).reshape(1, 4, 4, 1)
      >>> hr.nn.avg_pool(x, 2, 2, "VALID").numpy().ravel()
      array([ 2.5,  4.5, 10.5, 12.5])
    """
    return _by_rank("avg_pool", _MEAN, input, ksize, strides, padding, data_format, name)


def _by_rank(what: str, pools: dict[int, Any], input: Any, *args: Any) -> Any:
    x = scopes.builder(input).tensor(input, None, "input")
    return pools[rank_of(what, x, args[3])](x, *args)


def max_pool1d(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str | None = "NWC", name: str | None = None
) -> Tensor:
    """Computes the maximum of each window of sequences, for each channel.

    Args:
      input: sequences of numbers, [batch, width, channels], or the layout that `data_format` names.
      ksize: size of the windows: an int, or one for each axis of `input`.
      strides: distance between adjacent windows, as `ksize`.
      padding: "SAME" or "VALID".
      data_format: "NWC" (also None) or "NCW".
      name: name of the operation; "MaxPool1d" if None.

    Raises:
      ValueError: an argument is not as described above, or the shapes are incompatible.

    Source: TensorFlow's `tf.nn.max_pool1d`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.max_pool1d([[[1.0], [3.0], [2.0], [0.0]]], 2, 2, "VALID").numpy().ravel().tolist()
      [3.0, 2.0]
    """
    return _pool_of_sequences("MaxPool1d", "MaxPool", input, ksize, strides, padding, data_format, name)


def avg_pool1d(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str | None = "NWC", name: str | None = None
) -> Tensor:
    """Computes the mean of each window of sequences, without padding, for each channel.

    Args:
      Others: see `max_pool1d`.

    Source: TensorFlow's `tf.nn.avg_pool1d`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x = np.arange(4.0).reshape(1, 4, 1)
      >>> hr.nn.avg_pool1d(x, 2, 2, "VALID").numpy().ravel()
      array([0.5, 2.5])
    """
    return _pool_of_sequences("AvgPool1D", "AvgPool", input, ksize, strides, padding, data_format, name)


def _pool_of_sequences(
    default: str, type: str, input: Any, ksize: Any, strides: Any, padding: Any, data_format: Any, name: Any
) -> Any:
    with scopes.name_scope(name, default, [input]) as scope:
        layout = layout_of(data_format, 1)
        at, wide = widened(layout)
        size, step = (for_each_axis(*given, layout) for given in (("ksize", ksize), ("strides", strides)))
        x = arrays.expand_dims(input, at)
        size, step = ((*v[:at], 1, *v[at:]) for v in (size, step))
        return arrays.squeeze(_pool(type, x, size, step, padding, wide, scope), [at])


def max_pool2d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None, name: str | None = None
) -> Tensor:
    """Computes the maximum of each window of images, for each channel.

    Args:
      input: images of numbers, [batch, height, width, channels], or the layout that `data_format` names.
      ksize: size of the windows: an int, [height, width], or one int for each axis of `input`.
      strides: distance between adjacent windows, as `ksize`.
      padding: as for `conv2d`; padding is never the maximum.
      data_format: "NHWC" (also None) or "NCHW".
      name: name of the operation; "MaxPool2d" if None.

    Raises:
      ValueError: as for `conv2d`.

    Source: TensorFlow's `tf.nn.max_pool2d`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(16.0), (1, 4, 4, 1))
      >>> hr.nn.max_pool2d(image, 2, 2, "VALID").numpy().ravel().tolist()
      [5.0, 7.0, 13.0, 15.0]
    """
    return _pool("MaxPool", input, ksize, strides, padding, data_format, name or "MaxPool2d")


def avg_pool2d(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str | None = None, name: str | None = None
) -> Tensor:
    """Computes the mean of each window of images, without padding, for each channel.

    Args:
      input: images of floats, [batch, height, width, channels], or the layout that `data_format` names.
      ksize: size of the windows: an int, [height, width], or one int for each axis of `input`.
      strides: distance between adjacent windows, as `ksize`.
      padding: "SAME" or "VALID"; see `conv2d`.
      data_format: "NHWC" (also None) or "NCHW".
      name: name of the operation; "AvgPool2D" if None.

    Raises:
      ValueError: as for `conv2d`.

    Source: TensorFlow's `tf.nn.avg_pool2d`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(16.0), (1, 4, 4, 1))
      >>> hr.nn.avg_pool2d(image, 2, 2, "VALID").numpy().ravel().tolist()
      [2.5, 4.5, 10.5, 12.5]
    """
    return _pool("AvgPool", input, ksize, strides, padding, data_format, name or "AvgPool2D")


def max_pool3d(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str | None = "NDHWC", name: str | None = None
) -> Tensor:
    """Computes the maximum of each window of volumes, for each channel.

    Args:
      input: volumes of floats, [batch, depth, height, width, channels], or the layout that `data_format` names.
      ksize: size of the windows: an int, three ints, or one for each axis of `input`.
      strides: distance between adjacent windows, as `ksize`.
      padding: "SAME" or "VALID".
      data_format: "NDHWC" (also None) or "NCDHW".
      name: name of the operation; "MaxPool3D" if None.

    Raises:
      ValueError: an argument is not as described above, or the shapes are incompatible.

    Source: TensorFlow's `tf.nn.max_pool3d`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.max_pool3d(hr.reshape(hr.range(8.0), (1, 2, 2, 2, 1)), 2, 2, "VALID").numpy().item()
      7.0
    """
    return _pool("MaxPool3D", input, ksize, strides, padding, data_format, name, 3)


def avg_pool3d(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str | None = "NDHWC", name: str | None = None
) -> Tensor:
    """Computes the mean of each window of volumes, without padding, for each channel.

    Args:
      Others: see `max_pool3d`.

    Source: TensorFlow's `tf.nn.avg_pool3d`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x = np.arange(8.0).reshape(1, 2, 2, 2, 1)
      >>> hr.nn.avg_pool3d(x, 2, 2, "VALID").numpy().ravel()
      array([3.5])
    """
    return _pool("AvgPool3D", input, ksize, strides, padding, data_format, name, 3)


def _pool(
    type: str,
    input: Any,
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str | None,
    name: str | None,
    axes: int = 2,
) -> Any:
    attrs = sliding(strides, padding, data_format, None, axes)
    attrs["ksize"] = for_each_axis("ksize", ksize, attrs["data_format"])
    return scopes.builder(input).make(type, (input,), attrs, name)


_MAX: dict[int, Any] = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}
_MEAN: dict[int, Any] = {1: avg_pool1d, 2: avg_pool2d, 3: avg_pool3d}


def pool(
    input: Any,
    window_shape: Any,
    pooling_type: str,
    strides: Any = None,
    padding: str = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Computes the maximum or the mean of each window of sequences, images or volumes.

    Args:
      input: a tensor of numbers, [batch, 1 to 3 spatial axes, channels], or the layout that `data_format` names.
      window_shape: size of the windows: one int for each spatial axis.
      pooling_type: "MAX" or "AVG".
      strides: distance between adjacent windows: an int, or one for each spatial axis; None: 1.
      padding: "SAME" or "VALID".
      data_format: the letters of the axes, such as "NWC", "NCHW" or "NDHWC"; None: the channels are the last axis.
      dilations: distance between adjacent elements of a window, as `strides`; None: 1.
      name: name of the operation; "max_pool" or "avg_pool" if None.

    Raises:
      ValueError: an argument is not as described above, or dilations are combined with "SAME" or with strides.

    Source: TensorFlow's `tf.nn.pool`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.pool([[[1.0], [5.0], [2.0], [0.0]]], [2], "MAX", dilations=[2]).numpy().ravel().tolist()
      [2.0, 5.0]
    """
    if pooling_type not in ("MAX", "AVG"):
        raise ValueError(f"'pooling_type' must be 'MAX' or 'AVG', got {pooling_type!r}")
    with scopes.name_scope(name, f"{pooling_type.lower()}_pool", [input]) as scope:
        x = scopes.builder(input).tensor(input, None, "input")
        axes = len(np.ravel(window_shape)) if x.shape is None else rank_of("pool", x)
        layout = layout_of(data_format, axes)
        size = for_window("window_shape", window_shape, axes)
        steps = for_window("strides", 1 if strides is None else strides, axes)
        rates = for_window("dilations", 1 if dilations is None else dilations, axes)
        if max(rates) > 1 and padding == "SAME":
            raise ValueError(f"pooling with 'SAME' padding is not implemented for dilations > 1, got {dilations!r}")
        if max(rates) > 1 and max(steps) > 1:
            raise ValueError(
                f"'strides' > 1 are not supported together with 'dilations' > 1, got {strides!r} and {dilations!r}"
            )
        of_axes = (_MAX if pooling_type == "MAX" else _MEAN)[axes]

        def inner(x: Any, padding: Any) -> Any:
            return of_axes(x, size, steps, padding, layout, name=scope)

        return blocks.with_space_to_batch(x, rates, padding, layout, inner)


def max_pool_with_argmax(
    input: Any,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    output_dtype: Any = dtypes.int64,
    include_batch_in_index: bool = False,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Computes the maximum of each window of images, and its index.

    Args:
      input: images of numbers, [batch, height, width, channels].
      ksize: size of the windows: an int, two ints, or one for each axis.
      strides: distance between adjacent windows, as `ksize`.
      padding: "SAME" or "VALID".
      data_format: "NHWC".
      output_dtype: dtype of the indices: int64 or int32.
      include_batch_in_index: whether an index counts from the start of the batch; otherwise, of its image.
      name: name of the operation; "MaxPoolWithArgmax" if None.

    Returns:
      Two tensors: the maxima, and their indices in row-major order.

    Raises:
      ValueError: an argument is not as described above.

    Source: TensorFlow's `tf.nn.max_pool_with_argmax`.

    Example:
      >>> import headrace as hr
      >>> y, at = hr.nn.max_pool_with_argmax([[[[1.0], [5.0]], [[2.0], [0.0]]]], 2, 2, "VALID")
      >>> y.numpy().item(), at.numpy().item()
      (5.0, 1)
    """
    if data_format != "NHWC":
        raise ValueError(f"'data_format' must be 'NHWC', got {data_format!r}")
    attrs = {
        "ksize": for_each_axis("ksize", ksize, "NHWC"),
        "strides": for_each_axis("strides", strides, "NHWC"),
        "padding": padding,
        "Targmax": dtypes.as_dtype(output_dtype),
        "include_batch_in_index": bool(include_batch_in_index),
    }
    y, at = scopes.builder(input).make("MaxPoolWithArgmax", (input,), attrs, name)
    return y, at


# *** with windows of different sizes ***


def fractional_max_pool(
    value: Any,
    pooling_ratio: Any,
    pseudo_random: bool = False,
    overlapping: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the maximum of windows of varying size, so that images shrink by a fraction.

    Args:
      value: images of numbers, [batch, height, width, channels].
      pooling_ratio: size of the input divided by that of the output: a number, [height, width], or one for each axis;
        at least 1.
      pseudo_random: whether the window sizes follow a pseudorandom sequence; otherwise they are random.
      overlapping: whether the last row and column of a window are the first of the next one.
      seed: seed of the window sizes; 0: other sizes in every run.
      name: name of the operation; "FractionalMaxPool" if None.

    Returns:
      Three tensors: the images, and the starts of the windows along the rows and the columns (int64).

    Source: TensorFlow's `tf.nn.fractional_max_pool`, and "Fractional max-pooling" (Graham, 2015).

    Example:
      >>> import headrace as hr
      >>> y, rows, _ = hr.nn.fractional_max_pool(hr.ones((1, 6, 6, 1)), 1.5, seed=1)
      >>> y.shape, len(rows.numpy())
      ((1, 4, 4, 1), 5)
    """
    return _fractional("FractionalMaxPool", value, pooling_ratio, pseudo_random, overlapping, seed, name)


def fractional_avg_pool(
    value: Any,
    pooling_ratio: Any,
    pseudo_random: bool = False,
    overlapping: bool = False,
    seed: int = 0,
    name: str | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the mean of windows of varying size; see `fractional_max_pool`.

    Args:
      Others: see `fractional_max_pool`.

    Source: TensorFlow's `tf.nn.fractional_avg_pool`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x = np.ones((1, 4, 4, 1), np.float32)
      >>> hr.nn.fractional_avg_pool(x, [1.0, 2.0, 2.0, 1.0], seed=1)[0].shape
      (1, 2, 2, 1)
    """
    return _fractional("FractionalAvgPool", value, pooling_ratio, pseudo_random, overlapping, seed, name)


def _fractional(
    type: str, value: Any, pooling_ratio: Any, pseudo_random: bool, overlapping: bool, seed: int, name: str | None
) -> tuple[Any, Any, Any]:
    ratio = [float(v) for v in np.ravel(pooling_ratio)]
    if len(ratio) in (1, 2):
        ratio = [1.0, ratio[0], ratio[-1], 1.0]
    attrs = {"pooling_ratio": tuple(ratio), "pseudo_random": pseudo_random, "overlapping": overlapping}
    if seed:
        attrs |= {"deterministic": True, **random.seeds(seed)}
    y, rows, columns = scopes.builder(value).make(type, (value,), attrs, name)
    return y, rows, columns


# *** morphology ***


def dilation2d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    dilations: Any = 1,
    name: str | None = None,
) -> Tensor:
    """Computes the grey-scale dilation of images: the maximum of element + filter in each window.

    Args:
      input: images of numbers, [batch, height, width, channels].
      filters: [height, width, channels].
      strides: distance between adjacent windows: an int, two ints, or one for each axis.
      padding: "SAME" or "VALID".
      data_format: "NHWC".
      dilations: distance between adjacent elements of a window, as `strides`.
      name: name of the operation; "Dilation2D" if None.

    Raises:
      ValueError: an argument is not as described above.

    Source: TensorFlow's `tf.nn.dilation2d`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.dilation2d([[[[1.0], [5.0]]]], [[[0.0], [1.0]]], 1, "SAME").numpy().ravel().tolist()
      [6.0, 5.0]
    """
    if data_format != "NHWC":
        raise ValueError(f"'data_format' must be 'NHWC', got {data_format!r}")
    attrs = {
        "strides": for_each_axis("strides", strides, "NHWC"),
        "rates": for_each_axis("dilations", dilations, "NHWC"),
        "padding": padding,
    }
    return scopes.builder(input, filters).make("Dilation2D", (input, filters), attrs, name)


def erosion2d(
    value: Any,
    filters: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    dilations: Any = 1,
    name: str | None = None,
) -> Tensor:
    """Computes the grey-scale erosion of images: the minimum of element - filter in each window.

    The filter is mirrored along both axes.

    Args:
      value: images of numbers, [batch, height, width, channels].
      filters, strides, padding, data_format, dilations: as for `dilation2d`.
      name: name of the operation; "erosion2d" if None.

    Source: TensorFlow's `tf.nn.erosion2d`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.erosion2d([[[[1.0], [5.0]]]], [[[0.0], [1.0]]], 1, "SAME").numpy().ravel().tolist()
      [-0.0, 4.0]
    """
    with scopes.name_scope(name, "erosion2d", [value, filters]) as scope:
        negative = math.negative(value)
        dark = dilation2d(negative, arrays.reverse(filters, [0, 1]), strides, padding, data_format, dilations, scope)
        return math.negative(dark)
