"""Convolutions of sequences, images and volumes, and transposed convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, scopes
from headrace.api.nn import blocks
from headrace.api.nn.windows import (
    for_each_axis,
    for_window,
    layout_of,
    padding_pairs,
    rank_of,
    sliding,
    widened,
    without_batch_axes,
)  # fmt: skip
from headrace.api.tensors import constant_value
from headrace.ir.tensor_type import Tensor


def conv1d(
    input: Any,
    filters: Any,
    stride: Any,
    padding: Any,
    data_format: str | None = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Convolves sequences with filters; see `conv2d`.

    Args:
      input: sequences of floats, [batch, width, channels], or the layout that `data_format` names; there may be several
        batch axes.
      filters: of the same dtype, [width, channels, outputs].
      stride: distance between adjacent windows, an int.
      padding: "SAME", "VALID", or a pair for each axis: the padding before and after it.
      data_format: "NWC" (also None) or "NCW".
      dilations: distance between adjacent elements of a window; None: 1.
      name: name of the operation; "conv1d" if None.

    Raises:
      ValueError: the shapes do not fit, or an argument is not as described above.

    Source: TensorFlow's `tf.nn.conv1d`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.conv1d([[[1.0], [2.0], [3.0]]], [[[1.0]], [[1.0]]], 1, "VALID").numpy().ravel().tolist()
      [3.0, 5.0]
    """
    with scopes.name_scope(name, "conv1d", [input, filters]) as scope:
        attrs = _widened(sliding(stride, padding, data_format, dilations, 1))
        at = -3 if attrs["data_format"] == "NHWC" else -2
        b = scopes.builder(input, filters)
        x = arrays.expand_dims(b.tensor(input, None, "input"), at)
        w = arrays.expand_dims(b.tensor(filters, x.dtype.base, "filters"), 0)
        y = without_batch_axes(x, 2, lambda x: b.make("Conv2D", (x, w), attrs, scope))
        return arrays.squeeze(y, [at])


def _widened(attrs: dict[str, Any]) -> dict[str, Any]:
    """Converts the attributes of a convolution of sequences to those of images with one row."""
    at, layout = widened(attrs["data_format"])
    out = dict(attrs, data_format=layout)
    for which in ("strides", "dilations"):
        if which in attrs:
            out[which] = (*attrs[which][:at], 1, *attrs[which][at:])
    if "explicit_paddings" in attrs:
        pads = attrs["explicit_paddings"]
        out["explicit_paddings"] = (*pads[: 2 * at], 0, 0, *pads[2 * at :])
    return out


def conv2d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Convolves images with filters: each output is a sum over a window of all channels.

    Args:
      input: images of floats or int32, [batch, height, width, channels], or the layout that `data_format` names; there
        may be several batch axes.
      filters: of the same dtype, [height, width, channels, outputs]. If they have fewer channels than `input`, the
        channels of `input` are divided into groups (grouped convolution).
      strides: distance between adjacent windows: an int, [height, width], or one int for each axis of `input`.
      padding: "SAME" (zero padding; ceil(size / stride) windows along an axis), "VALID" (no padding), or a pair for
        each axis, as in [[0, 0], [1, 1], [2, 0], [0, 0]]: the padding before and after it.
      data_format: "NHWC" (also None) or "NCHW".
      dilations: distance between adjacent elements of a window, as `strides`; None: 1.
      name: name of the operation; "Conv2D" if None.

    Returns:
      Images of the same dtype and layout, with `outputs` channels.

    Raises:
      ValueError: the shapes do not fit, or an argument is not as described above.

    Source: TensorFlow's `tf.nn.conv2d`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(9.0), (1, 3, 3, 1))
      >>> hr.nn.conv2d(image, hr.ones((2, 2, 1, 1)), 1, "VALID").numpy().ravel().tolist()
      [8.0, 12.0, 20.0, 24.0]
    """
    return _conv("Conv2D", 2, input, filters, sliding(strides, padding, data_format, dilations), name)


def conv3d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: str,
    data_format: str | None = "NDHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Convolves volumes with filters; see `conv2d`.

    Args:
      input: volumes of floats, [batch, depth, height, width, channels], or the layout that `data_format` names; there
        may be several batch axes.
      filters: of the same dtype, [depth, height, width, channels, outputs].
      strides: distance between adjacent windows: an int, three, or one for each axis of `input`.
      padding: "SAME" or "VALID".
      data_format: "NDHWC" (also None) or "NCDHW".
      dilations: distance between adjacent elements of a window, as `strides`; None: 1.
      name: name of the operation; "Conv3D" if None.

    Raises:
      ValueError: the shapes do not fit, or an argument is not as described above.

    Source: TensorFlow's `tf.nn.conv3d`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.conv3d(hr.ones((1, 2, 2, 2, 1)), hr.ones((2, 2, 2, 1, 1)), 1, "VALID").numpy().item()
      8.0
    """
    return _conv("Conv3D", 3, input, filters, sliding(strides, _named(padding), data_format, dilations, 3), name)


def _named(padding: Any) -> str:
    """Returns `padding`, which must be "SAME" or "VALID"."""
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"'padding' must be 'SAME' or 'VALID', got {padding!r}")
    return str(padding)


def _conv(type: str, axes: int, input: Any, filters: Any, attrs: dict[str, Any], name: str | None) -> Any:
    b = scopes.builder(input, filters)
    shape = getattr(input, "shape", None)
    if shape is None or len(shape) <= axes + 2:
        return b.make(type, (input, filters), attrs, name)
    return without_batch_axes(b.tensor(input), axes, lambda x: b.make(type, (x, filters), attrs, name))


_BY_AXES: dict[int, Any] = {1: conv1d, 2: conv2d, 3: conv3d}


def convolution(
    input: Any,
    filters: Any,
    strides: Any = None,
    padding: Any = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Convolves sequences, images or volumes with filters.

    Args:
      input: a tensor of floats, [batch, 1 to 3 spatial axes, channels], or the layout that `data_format` names.
      filters: of the same dtype, [one size for each spatial axis, channels, outputs].
      strides: distance between adjacent windows: an int, or one for each spatial axis; None: 1.
      padding: "SAME" or "VALID", or for sequences and images a pair for each axis.
      data_format: the letters of the axes, such as "NWC", "NCHW" or "NDHWC"; None: the channels are the last axis.
      dilations: distance between adjacent elements of a window, as `strides`; None: 1.
      name: name of the operation; "convolution" if None.

    Raises:
      ValueError: the shapes do not fit; or both a stride and a dilation are greater than 1.

    Source: TensorFlow's `tf.nn.convolution`.

    Example:
      >>> import headrace as hr
      >>> x = hr.reshape(hr.range(5.0), (1, 5, 1))
      >>> hr.nn.convolution(x, hr.ones((2, 1, 1)), dilations=2).numpy().ravel().tolist()
      [2.0, 4.0, 6.0]
    """
    with scopes.name_scope(name, "convolution", [input, filters]) as scope:
        b = scopes.builder(input, filters)
        x = b.tensor(input, None, "input")
        w = b.tensor(filters, x.dtype.base, "filters")
        axes = rank_of("convolution", w if x.shape is None else x, data_format)
        layout = layout_of(data_format, axes)
        steps, rates = _steps_and_rates(strides, dilations, axes)

        def inner(x: Any, padding: Any) -> Any:
            return _BY_AXES[axes](x, w, steps, padding, layout, name=scope)

        return blocks.with_space_to_batch(x, rates, padding, layout, inner, _window(w, axes))


def _steps_and_rates(strides: Any, dilations: Any, axes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the strides and dilations for each axis of a window."""
    steps = for_window("strides", 1 if strides is None else strides, axes)
    rates = for_window("dilations", 1 if dilations is None else dilations, axes)
    if min((*steps, *rates)) < 1:
        raise ValueError(f"'strides' and 'dilations' must be positive, got {strides!r} and {dilations!r}")
    if max(steps) > 1 and max(rates) > 1:
        raise ValueError(
            f"'strides' > 1 are not supported together with 'dilations' > 1, got {strides!r} and {dilations!r}"
        )
    return steps, rates


def _window(w: Any, axes: int) -> Any:
    """Returns the window size of filters: an array if known statically, else a tensor."""
    known = None if w.shape is None else w.shape[:axes]
    return arrays.shape(w)[:axes] if known is None or None in known else np.array(known, np.int32)


def atrous_conv2d(value: Any, filters: Any, rate: int, padding: Any, name: str | None = None) -> Tensor:
    """Convolves images with dilated filters.

    Args:
      value: images of floats, [batch, height, width, channels].
      filters: [height, width, channels, outputs].
      rate: distance between adjacent elements of a window, for both axes.
      padding: "SAME" or "VALID".
      name: name of the operation; "convolution" if None.

    Source: TensorFlow's `tf.nn.atrous_conv2d`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x = np.arange(9.0).reshape(1, 3, 3, 1)
      >>> hr.nn.atrous_conv2d(x, np.ones((2, 2, 1, 1)), 2, "VALID").numpy().ravel()
      array([16.])
    """
    return convolution(value, filters, None, padding, None, rate, name)


# *** transposed ***


def conv1d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = "NWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Computes the transpose of `conv1d`: its gradient with respect to the input.

    Args:
      input: sequences, [batch, width, outputs], or the layout that `data_format` names.
      filters: [width, channels, outputs], the filters of the convolution.
      output_shape: an int32 vector: the shape of the result.
      strides, padding, data_format, dilations: as `stride` and the others of `conv1d`.
      name: name of the operation; "conv1d_transpose" if None.

    Source: TensorFlow's `tf.nn.conv1d_transpose`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.conv1d_transpose([[[1.0]]], [[[2.0]], [[3.0]]], (1, 2, 1), 2).numpy().ravel().tolist()
      [2.0, 3.0]
    """
    with scopes.name_scope(name, "conv1d_transpose", [input, filters, output_shape]) as scope:
        attrs = _widened(sliding(strides, padding, data_format, dilations, 1))
        at = attrs["data_format"].index("H")
        b = scopes.builder(input, filters, output_shape)
        x = arrays.expand_dims(b.tensor(input, None, "input"), at)
        w = arrays.expand_dims(b.tensor(filters, x.dtype.base, "filters"), 0)
        if isinstance(output_shape, (list, tuple, np.ndarray)):
            output_shape = list(output_shape)
        sizes = arrays.concat([output_shape[:at], [1], output_shape[at:]], 0)
        return arrays.squeeze(b.make("Conv2DBackpropInput", (sizes, w, x), attrs, scope), [at])


def conv2d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Computes the transpose of `conv2d`: its gradient with respect to the input.

    Each element of `input` is spread over a window of the result.

    Args:
      input: images, [batch, height, width, outputs], or the layout that `data_format` names.
      filters: [height, width, channels, outputs], the filters of the convolution.
      output_shape: an int32 vector: the shape of the result, to which `conv2d` would give the shape of `input`.
      strides, padding, data_format, dilations: those of the convolution; see `conv2d`.
      name: name of the operation; "conv2d_transpose" if None.

    Raises:
      ValueError: as for `conv2d`.

    Source: TensorFlow's `tf.nn.conv2d_transpose`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.conv2d_transpose(hr.ones((1, 1, 1, 1)), hr.ones((2, 2, 1, 1)), (1, 2, 2, 1), 2).numpy().ravel().tolist()
      [1.0, 1.0, 1.0, 1.0]
    """
    attrs = sliding(strides, padding, data_format, dilations)
    return _transposed("conv2d_transpose", "Conv2DBackpropInput", input, filters, output_shape, attrs, name)


def conv3d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: str = "SAME",
    data_format: str | None = "NDHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Computes the transpose of `conv3d`: its gradient with respect to the input; see `conv2d_transpose`.

    Args:
      input: volumes, [batch, depth, height, width, outputs], or the layout that `data_format` names.
      filters: [depth, height, width, channels, outputs], the filters of the convolution.
      output_shape: an int32 vector: the shape of the result.
      strides, padding, data_format, dilations: those of the convolution; see `conv3d`.
      name: name of the operation; "conv3d_transpose" if None.

    Source: TensorFlow's `tf.nn.conv3d_transpose`.

    Example:
      >>> import headrace as hr
      >>> dy = hr.ones((1, 1, 1, 1, 1))
      >>> hr.nn.conv3d_transpose(dy, hr.ones((1, 1, 2, 1, 1)), (1, 1, 1, 2, 1), 2).numpy().ravel().tolist()
      [1.0, 1.0]
    """
    attrs = sliding(strides, _named(padding), data_format, dilations, 3)
    return _transposed("conv3d_transpose", "Conv3DBackpropInputV2", input, filters, output_shape, attrs, name)


def _transposed(
    default: str, type: str, input: Any, filters: Any, output_shape: Any, attrs: dict[str, Any], name: str | None
) -> Any:
    with scopes.name_scope(name, default, [input, filters, output_shape]) as scope:
        b = scopes.builder(input, filters, output_shape)
        sizes = b.tensor(output_shape, None, "input_sizes")
        return b.make(type, (sizes, filters, input), attrs, scope)


_TRANSPOSES: dict[int, Any] = {1: conv1d_transpose, 2: conv2d_transpose, 3: conv3d_transpose}


def conv_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Calls `conv1d_transpose`, `conv2d_transpose` or `conv3d_transpose`, by the rank of `input`.

    Args:
      input, filters, output_shape, strides, padding, data_format, dilations: as for `conv2d_transpose`.
      name: name of the operation; "conv_transpose" if None.

    Source: TensorFlow's `tf.nn.conv_transpose`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x, w = np.ones((1, 2, 1)), np.ones((2, 1, 1))
      >>> hr.nn.conv_transpose(x, w, [1, 4, 1], 2, "VALID").numpy().ravel()
      array([1., 1., 1., 1.])
    """
    with scopes.name_scope(name, "conv_transpose", [input, filters, output_shape]) as scope:
        x = scopes.builder(input, filters).tensor(input, None, "input")
        transpose = _TRANSPOSES[rank_of("conv_transpose", x, data_format)]
        return transpose(x, filters, output_shape, strides, padding, data_format, dilations, scope)


def atrous_conv2d_transpose(
    value: Any, filters: Any, output_shape: Any, rate: int, padding: str, name: str | None = None
) -> Tensor:
    """Computes the transpose of `atrous_conv2d`: its gradient with respect to the input.

    Args:
      value: images, [batch, height, width, outputs].
      filters: [height, width, channels, outputs], the filters of the convolution.
      output_shape: an int32 vector: the shape of the result, to which `atrous_conv2d` would give the shape of `value`.
      rate: distance between adjacent elements of a window, at least 1.
      padding: "SAME" or "VALID".
      name: name of the scope; "atrous_conv2d_transpose" if None.

    Raises:
      ValueError: the rate is less than 1, or the padding is unknown.

    Source: TensorFlow's `tf.nn.atrous_conv2d_transpose`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x, w = np.ones((1, 1, 1, 1)), np.ones((2, 2, 1, 1))
      >>> hr.nn.atrous_conv2d_transpose(x, w, [1, 3, 3, 1], 2, "VALID").numpy()[0, :, :, 0].tolist()
      [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    """
    if rate < 1:
        raise ValueError(f"'rate' must be at least 1, got {rate}")
    with scopes.name_scope(name, "atrous_conv2d_transpose", [value, filters, output_shape]):
        b = scopes.builder(value, filters, output_shape)
        x = b.tensor(value, None, "value")
        w = b.tensor(filters, x.dtype.base, "filters")
        if rate == 1:
            return conv2d_transpose(x, w, output_shape, 1, _named(padding))
        window = _window(w, 2)
        whole = b.tensor(output_shape, dtypes.int32, "output_shape")
        known = constant_value(whole)
        whole = whole if known is None else known
        beyond = math.multiply(math.subtract(window, 1), rate if _named(padding) == "SAME" else 0)
        start = math.floordiv(beyond, 2)
        padded = math.add(whole[1:3], beyond)
        behind = math.floormod(math.negative(padded), rate)
        nothing = arrays.zeros_like(behind)
        apart = blocks.space_to_batch(x, rate, arrays.stack([nothing, behind], 1))
        inner = math.floordiv(math.add(padded, behind), rate)
        sizes = arrays.concat([whole[:1] * rate * rate, inner, arrays.shape(w)[2:3]], 0)
        y = conv2d_transpose(apart, w, sizes, 1, "VALID", name="Conv2DBackpropInput")
        end = math.add(math.subtract(beyond, start), behind)
        return blocks.batch_to_space(y, rate, arrays.stack([start, end], 1))


# *** channel by channel ***


def depthwise_conv2d(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Convolves each channel of images with its own filters.

    Args:
      input: images of floats, [batch, height, width, channels], or the layout that `data_format` names.
      filter: of the same dtype, [height, width, channels, outputs for each channel].
      strides: distance between adjacent windows: an int, [height, width], or one for each axis of `input`.
      padding: "SAME", "VALID", or a pair for each axis.
      data_format: "NHWC" (also None) or "NCHW".
      dilations: distance between adjacent elements of a window: an int or [height, width]; None: 1.
      name: name of the operation; "depthwise" if None.

    Returns:
      Images with channels * outputs channels; the outputs of one input channel are adjacent.

    Raises:
      ValueError: the shapes do not fit; or both a stride and a dilation are greater than 1.

    Source: TensorFlow's `tf.nn.depthwise_conv2d`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.depthwise_conv2d([[[[1.0, 2.0]]]], [[[[1.0, 10.0], [1.0, 10.0]]]], 1, "SAME").numpy().ravel().tolist()
      [1.0, 10.0, 2.0, 20.0]
    """
    with scopes.name_scope(name, "depthwise", [input, filter]) as scope:
        return _depthwise(input, filter, strides, padding, data_format, dilations, scope)


def _depthwise(
    input: Any, filter: Any, strides: Any, padding: Any, data_format: str | None, dilations: Any, name: str
) -> Any:
    b = scopes.builder(input, filter)
    x = b.tensor(input, None, "tensor_in")
    w = b.tensor(filter, x.dtype.base, "filter_in")
    layout = layout_of(data_format, 2)
    full = for_each_axis("strides", strides, layout)
    _, rates = _steps_and_rates(full[2:] if layout == "NCHW" else full[1:3], dilations, 2)
    if not isinstance(padding, str):
        padding = padding_pairs(padding, layout)

    def inner(x: Any, padding: Any) -> Any:
        return b.make("DepthwiseConv2dNative", (x, w), sliding(full, padding, layout), name)

    return blocks.with_space_to_batch(x, rates, padding, layout, inner, _window(w, 2))


def separable_conv2d(
    input: Any,
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Convolves images in two steps: within each channel, then across the channels.

    The first step is `depthwise_conv2d`, the second a `conv2d` with windows of one element.

    Args:
      input: images of floats, [batch, height, width, channels], or the layout that `data_format` names.
      depthwise_filter: [height, width, channels, n].
      pointwise_filter: [1, 1, channels * n, outputs].
      strides, padding, data_format, dilations: those of the first step; see `depthwise_conv2d`.
      name: name of the operation; "separable_conv2d" if None.

    Raises:
      ValueError: the shapes do not fit.

    Source: TensorFlow's `tf.nn.separable_conv2d`.

    Example:
      >>> import headrace as hr
      >>> x, one = hr.ones((1, 2, 2, 2)), hr.ones((2, 2, 2, 1))
      >>> hr.nn.separable_conv2d(x, one, hr.ones((1, 1, 2, 1)), 1, "VALID").numpy().item()
      8.0
    """
    with scopes.name_scope(name, "separable_conv2d", [input, depthwise_filter, pointwise_filter]) as scope:
        b = scopes.builder(input, depthwise_filter, pointwise_filter)
        x = b.tensor(input, None, "tensor_in")
        w = b.tensor(pointwise_filter, x.dtype.base, "pointwise_filter")
        if w.shape is not None and (len(w.shape) != 4 or any(d not in (1, None) for d in w.shape[:2])):
            raise ValueError(f"'pointwise_filter' must be of shape [1, 1, channels, outputs], got {w!r}")
        deep = _depthwise(x, depthwise_filter, strides, padding, data_format, dilations, "depthwise")
        return conv2d(deep, w, 1, "VALID", data_format, name=scope)


def depthwise_conv2d_backprop_input(
    input_sizes: Any,
    filter: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Computes the gradient of `depthwise_conv2d` with respect to the input.

    Args:
      input_sizes: an int32 vector: the shape of the input.
      filter: the filter of the convolution.
      out_backprop: the gradient with respect to the output.
      strides, padding, data_format, dilations: as for `depthwise_conv2d`.
      name: name of the operation; "DepthwiseConv2dNativeBackpropInput" if None.

    Source: TensorFlow's `tf.nn.depthwise_conv2d_backprop_input`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> w, dy = np.ones((2, 2, 1, 1)), np.ones((1, 1, 1, 1))
      >>> hr.nn.depthwise_conv2d_backprop_input([1, 2, 2, 1], w, dy, [1, 1, 1, 1], "VALID").numpy().ravel()
      array([1., 1., 1., 1.])
    """
    inputs = (input_sizes, filter, out_backprop)
    attrs = sliding(strides, padding, data_format, dilations)
    return scopes.builder(*inputs).make("DepthwiseConv2dNativeBackpropInput", inputs, attrs, name)


def depthwise_conv2d_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Tensor:
    """Computes the gradient of `depthwise_conv2d` with respect to the filter.

    Args:
      input: the input of the convolution.
      filter_sizes: an int32 vector: the shape of the filter.
      out_backprop: the gradient with respect to the output.
      strides, padding, data_format, dilations: as for `depthwise_conv2d`.
      name: name of the operation; "DepthwiseConv2dNativeBackpropFilter" if None.

    Source: TensorFlow's `tf.nn.depthwise_conv2d_backprop_filter`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> x, dy = np.ones((1, 2, 2, 1)), np.ones((1, 1, 1, 1))
      >>> hr.nn.depthwise_conv2d_backprop_filter(x, [2, 2, 1, 1], dy, [1, 1, 1, 1], "VALID").numpy().ravel()
      array([1., 1., 1., 1.])
    """
    inputs = (input, filter_sizes, out_backprop)
    attrs = sliding(strides, padding, data_format, dilations)
    return scopes.builder(*inputs).make("DepthwiseConv2dNativeBackpropFilter", inputs, attrs, name)
