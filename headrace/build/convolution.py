"""Convolutions and pooling of images."""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.build import scopes


def conv2d(
    input: Any,
    filters: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """The convolution of images with filters: each output is a sum over a window of all channels.

    Args:
      input: images of floats or int32, [batch, height, width, channels] or what `data_format` says.
      filters: of the same dtype, [height, width, channels, outputs]; if there are fewer channels than in `input`, those
        are parted into groups.
      strides: how far one window is from the next: a number, [height, width], or one for each axis of `input`.
      padding: "SAME" (as many windows as elements, over the strides), "VALID" (no padding), or the padding before and
        behind each axis, as in [[0, 0], [1, 1], [2, 0], [0, 0]].
      data_format: "NHWC" (also None) or "NCHW".
      dilations: how far apart the elements of a window are; as `strides`; None: 1.
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
    attrs = sliding(strides, padding, data_format, dilations)
    return scopes.builder(input, filters).make("Conv2D", (input, filters), attrs, name)


def conv2d_transpose(
    input: Any,
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """The transpose of `conv2d`, which is its gradient by its input: each element of `input` is spread over a window.

    Args:
      input: images, [batch, height, width, outputs] or what `data_format` says.
      filters: [height, width, channels, outputs], those of the convolution.
      output_shape: an int32 vector: the shape of what `conv2d` would make `input` of.
      strides, padding, data_format, dilations: those of the convolution; see `conv2d`.
      name: name of the operation; "conv2d_transpose" if None.

    Raises:
      ValueError: as `conv2d`.

    Source: TensorFlow's `tf.nn.conv2d_transpose`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.conv2d_transpose(hr.ones((1, 1, 1, 1)), hr.ones((2, 2, 1, 1)), (1, 2, 2, 1), 2).numpy().ravel().tolist()
      [1.0, 1.0, 1.0, 1.0]
    """
    attrs = sliding(strides, padding, data_format, dilations)
    with scopes.name_scope(name, "conv2d_transpose", [input, filters, output_shape]) as scope:
        b = scopes.builder(input, filters, output_shape)
        sizes = b.tensor(output_shape, dtypes.int32, "output_shape")
        return b.make("Conv2DBackpropInput", (sizes, filters, input), attrs, scope)


def max_pool2d(
    input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None = None, name: str | None = None
) -> Any:
    """The greatest element of each window, channel by channel.

    Args:
      input: images of numbers, [batch, height, width, channels] or what `data_format` says.
      ksize: the size of the windows: a number, [height, width], or one for each axis of `input`.
      strides: how far one window is from the next; as `ksize`.
      padding: as `conv2d` takes it; padding is never the greatest element.
      data_format: "NHWC" (also None) or "NCHW".
      name: name of the operation; "MaxPool" if None.

    Raises:
      ValueError: as `conv2d`.

    Source: TensorFlow's `tf.nn.max_pool2d`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(16.0), (1, 4, 4, 1))
      >>> hr.nn.max_pool2d(image, 2, 2, "VALID").numpy().ravel().tolist()
      [5.0, 7.0, 13.0, 15.0]
    """
    return _pool("MaxPool", input, ksize, strides, padding, data_format, name)


def avg_pool2d(
    input: Any, ksize: Any, strides: Any, padding: str, data_format: str | None = None, name: str | None = None
) -> Any:
    """The mean of each window, channel by channel; padding does not count.

    Args:
      input: images of floats, [batch, height, width, channels] or what `data_format` says.
      ksize: the size of the windows: a number, [height, width], or one for each axis of `input`.
      strides: how far one window is from the next; as `ksize`.
      padding: "SAME" or "VALID"; see `conv2d`.
      data_format: "NHWC" (also None) or "NCHW".
      name: name of the operation; "AvgPool" if None.

    Raises:
      ValueError: as `conv2d`.

    Source: TensorFlow's `tf.nn.avg_pool2d`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(16.0), (1, 4, 4, 1))
      >>> hr.nn.avg_pool2d(image, 2, 2, "VALID").numpy().ravel().tolist()
      [2.5, 4.5, 10.5, 12.5]
    """
    return _pool("AvgPool", input, ksize, strides, padding, data_format, name)


def _pool(
    type: str, input: Any, ksize: Any, strides: Any, padding: Any, data_format: str | None, name: str | None
) -> Any:
    attrs = sliding(strides, padding, data_format) | {"ksize": _for_each_axis("ksize", ksize, _layout(data_format))}
    return scopes.builder(input).make(type, (input,), attrs, name)


def sliding(strides: Any, padding: Any, data_format: str | None, dilations: Any = None) -> dict[str, Any]:
    """The attributes of an operation that say how windows move, from the arguments of `conv2d` of these names."""
    layout = _layout(data_format)
    attrs = {"strides": _for_each_axis("strides", strides, layout), "data_format": layout}
    if dilations is not None:
        attrs["dilations"] = _for_each_axis("dilations", dilations, layout)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise ValueError(f"'padding' must be 'SAME', 'VALID' or a pair for each axis, got {padding!r}")
        return attrs | {"padding": padding}
    pairs = [tuple(p) for p in padding]
    if len(pairs) != len(layout) or any(len(p) != 2 for p in pairs):
        raise ValueError(f"'padding' must have a pair for each of the axes {layout}, got {padding!r}")
    return attrs | {"padding": "EXPLICIT", "explicit_paddings": tuple(int(v) for p in pairs for v in p)}


def _layout(data_format: str | None) -> str:
    if data_format not in (None, "NHWC", "NCHW"):
        raise ValueError(f"'data_format' must be 'NHWC' or 'NCHW', got {data_format!r}")
    return data_format or "NHWC"


def _for_each_axis(what: str, value: Any, layout: str) -> tuple[int, ...]:
    """`value`, given for all spatial axes, for each of them, or for each axis."""
    given = [int(v) for v in np.ravel(value)]
    if len(given) == 1:
        given *= 2
    if len(given) == 2:
        return (1, 1, *given) if layout == "NCHW" else (1, *given, 1)
    if len(given) != len(layout):
        raise ValueError(f"'{what}' must have 1, 2 or {len(layout)} numbers, got {value!r}")
    return tuple(given)
