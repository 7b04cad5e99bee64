"""Convolutions and pooling of `tf.contrib.layers`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from headrace.api import initializers, nn, scopes
from headrace.errors import ShapeError
from headrace.v1 import layers as v1_layers
from headrace.v1.contrib.framework.arg_scope import add_arg_scope
from headrace.v1.contrib.framework.variables import model_variable
from headrace.v1.contrib.layers import collecting
from headrace.v1.contrib.layers.applying import applied
from headrace.v1.contrib.layers.initializers import xavier_initializer
from headrace.v1.graph import in_default_graph
from headrace.v1.variable_scopes import variable_scope

_XAVIER, _ZEROS = xavier_initializer(), initializers.zeros()
_CLASSES = {3: v1_layers.Conv1D, 4: v1_layers.Conv2D, 5: v1_layers.Conv3D}
_FORMATS = {
    None: "channels_last", "NWC": "channels_last", "NHWC": "channels_last", "NDHWC": "channels_last",
    "NCW": "channels_first", "NCHW": "channels_first", "NCDHW": "channels_first",
}  # fmt: skip


def _format(data_format: str | None) -> str:
    """Returns the name of a layout in `tf.layers`.

    Raises:
      ValueError: there is no such layout.
    """
    if data_format not in _FORMATS:
        raise ValueError(f"Invalid data_format: {data_format!r}; one of {', '.join(filter(None, _FORMATS))}")
    return _FORMATS[data_format]


@add_arg_scope
@in_default_graph
def convolution(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str | None = None,
    rate: Any = 1,
    activation_fn: Callable[[Any], Any] | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
    conv_dims: int | None = None,
) -> Any:
    """Returns a convolution with biases, normalized and with an activation.

    Variables: weights [*window, channels, num_outputs] and biases [num_outputs], in the scope "Conv".

    Args:
      inputs: floats [batch, *space, channels], with one to three axes of space.
      num_outputs: number of filters.
      kernel_size: size of the windows: a number, or one for each axis of space.
      stride: distance between adjacent windows, likewise.
      padding: "SAME" or "VALID".
      data_format: layout of the inputs, such as "NHWC" or "NCHW"; None: the channels are the last axis.
      rate: distance between the elements of a window, likewise. With it, the stride is 1.
      conv_dims: number of the axes of space that the inputs must have; None: any.
      Others: see `fully_connected`.

    Raises:
      ValueError: the inputs have another number of axes.

    Source: TensorFlow's `tf.contrib.layers.convolution`.
    """
    inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
    rank = None if inputs.shape is None else len(inputs.shape)
    if rank not in _CLASSES or conv_dims not in (None, rank - 2):
        wanted = "1 to 3" if conv_dims is None else conv_dims
        raise ShapeError(f"Convolution expects inputs with {wanted} axes of space, got {inputs!r} of rank {rank}")
    make = functools.partial(
        _CLASSES[rank], int(num_outputs), kernel_size, stride, padding, _format(data_format), rate,
        kernel_initializer=weights_initializer, bias_initializer=biases_initializer,
        kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer, trainable=trainable,
    )  # fmt: skip
    return applied(
        make, inputs, scope, "Conv", reuse, variables_collections, outputs_collections, normalizer_fn,
        normalizer_params, activation_fn, biases_initializer,
    )  # fmt: skip


def _of_axes(axes: int) -> Callable[..., Any]:
    """Returns `convolution` for inputs with a number of axes of space."""
    function = functools.partial(convolution.__wrapped__, conv_dims=axes)  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = f"convolution{axes}d"  # type: ignore[attr-defined]
    function.__module__ = __name__
    function.__doc__ = f"""Returns a convolution along {axes} axes. See `convolution`.

    Source: TensorFlow's `tf.contrib.layers.convolution{axes}d`.
    """
    return add_arg_scope(function)


convolution1d = conv1d = _of_axes(1)
convolution2d = conv2d = _of_axes(2)
convolution3d = conv3d = _of_axes(3)


@add_arg_scope
@in_default_graph
def convolution2d_transpose(
    inputs: Any,
    num_outputs: int,
    kernel_size: Any,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    activation_fn: Callable[[Any], Any] | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Returns a transposed convolution of images. See `convolution`.

    Variables: weights [height, width, num_outputs, channels] and biases, in the scope "Conv2d_transpose".

    Source: TensorFlow's `tf.contrib.layers.convolution2d_transpose`.
    """
    make = functools.partial(
        v1_layers.Conv2DTranspose, int(num_outputs), kernel_size, stride, padding, _format(data_format),
        kernel_initializer=weights_initializer, bias_initializer=biases_initializer,
        kernel_regularizer=weights_regularizer, bias_regularizer=biases_regularizer, trainable=trainable,
    )  # fmt: skip
    return applied(
        make, inputs, scope, "Conv2d_transpose", reuse, variables_collections, outputs_collections, normalizer_fn,
        normalizer_params, activation_fn, biases_initializer,
    )  # fmt: skip


conv2d_transpose = convolution2d_transpose


@add_arg_scope
@in_default_graph
def separable_convolution2d(
    inputs: Any,
    num_outputs: int | None,
    kernel_size: Any,
    depth_multiplier: int = 1,
    stride: Any = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    rate: Any = 1,
    activation_fn: Callable[[Any], Any] | None = nn.relu,
    normalizer_fn: Callable[..., Any] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Any = _XAVIER,
    pointwise_initializer: Any = None,
    weights_regularizer: Any = None,
    biases_initializer: Any = _ZEROS,
    biases_regularizer: Any = None,
    reuse: Any = None,
    variables_collections: Any = None,
    outputs_collections: Any = None,
    trainable: bool = True,
    scope: Any = None,
) -> Any:
    """Returns a convolution within each channel, and then one across the channels.

    Variables: depthwise_weights [height, width, channels, depth_multiplier], pointwise_weights and biases, in the scope
    "SeparableConv2d". The argument `depth_multiplier` is the number of filters for each channel.

    Args:
      num_outputs: number of filters across the channels; None: there is no such convolution.
      depth_multiplier: number of filters for each channel.
      pointwise_initializer: initializer of pointwise_weights; None: `weights_initializer`.
      Others: see `convolution`.

    Source: TensorFlow's `tf.contrib.layers.separable_convolution2d`.
    """
    if num_outputs is None:
        return _depthwise(
            inputs, kernel_size, depth_multiplier, stride, padding, data_format, rate, activation_fn, normalizer_fn,
            normalizer_params, weights_initializer, weights_regularizer, biases_initializer, biases_regularizer, reuse,
            variables_collections, outputs_collections, trainable, scope,
        )  # fmt: skip
    make = functools.partial(
        v1_layers.SeparableConv2D, int(num_outputs), kernel_size, stride, padding, _format(data_format), rate,
        depth_multiplier, depthwise_initializer=weights_initializer,
        pointwise_initializer=pointwise_initializer or weights_initializer, bias_initializer=biases_initializer,
        depthwise_regularizer=weights_regularizer, pointwise_regularizer=weights_regularizer,
        bias_regularizer=biases_regularizer, trainable=trainable,
    )  # fmt: skip
    return applied(
        make, inputs, scope, "SeparableConv2d", reuse, variables_collections, outputs_collections, normalizer_fn,
        normalizer_params, activation_fn, biases_initializer,
    )  # fmt: skip


separable_conv2d = separable_convolution2d


def _depthwise(
    inputs: Any,
    kernel_size: Any,
    depth_multiplier: int,
    stride: Any,
    padding: str,
    data_format: str,
    rate: Any,
    activation_fn: Callable[[Any], Any] | None,
    normalizer_fn: Callable[..., Any] | None,
    normalizer_params: Mapping[str, Any] | None,
    weights_initializer: Any,
    weights_regularizer: Any,
    biases_initializer: Any,
    biases_regularizer: Any,
    reuse: Any,
    variables_collections: Any,
    outputs_collections: Any,
    trainable: bool,
    scope: Any,
) -> Any:
    """Returns a convolution within each channel alone, with the variables of `separable_convolution2d`."""
    is_first = _format(data_format) == "channels_first"
    with variable_scope(scope, "SeparableConv2d", [inputs], reuse=reuse) as sc:
        inputs = scopes.builder(inputs).tensor(inputs, None, "inputs")
        channels = inputs.shape[1 if is_first else 3]

        def made(name: str, shape: list[Any], first: Any, regularizer: Any) -> Any:
            kept = collecting.collections_of(variables_collections, name)
            return model_variable(name, shape, inputs.dtype.base, first, regularizer, trainable, kept)

        shape = [*collecting.two_element_tuple(kernel_size), channels, depth_multiplier]
        weights = made("depthwise_weights", shape, weights_initializer, weights_regularizer)
        outputs = nn.depthwise_conv2d(
            inputs, weights, collecting.two_element_tuple(stride), padding, data_format,
            collecting.two_element_tuple(rate),
        )  # fmt: skip
        if normalizer_fn is not None:
            outputs = normalizer_fn(outputs, **(normalizer_params or {}))
        elif biases_initializer is not None:
            biases = made("biases", [channels * depth_multiplier], biases_initializer, biases_regularizer)
            outputs = nn.bias_add(outputs, biases, "NC..." if is_first else None)
        outputs = outputs if activation_fn is None else activation_fn(outputs)
        return collecting.collect_named_outputs(outputs_collections, sc.name, outputs)


@add_arg_scope
@in_default_graph
def max_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    """Returns the maximum of each window of images.

    Source: TensorFlow's `tf.contrib.layers.max_pool2d`.
    """
    return _pooled(v1_layers.MaxPooling2D, "MaxPool2D", inputs, kernel_size, stride, padding, data_format,
                   outputs_collections, scope)  # fmt: skip


@add_arg_scope
@in_default_graph
def avg_pool2d(
    inputs: Any,
    kernel_size: Any,
    stride: Any = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: Any = None,
    scope: str | None = None,
) -> Any:
    """Returns the mean of each window of images.

    Source: TensorFlow's `tf.contrib.layers.avg_pool2d`.
    """
    return _pooled(v1_layers.AveragePooling2D, "AvgPool2D", inputs, kernel_size, stride, padding, data_format,
                   outputs_collections, scope)  # fmt: skip


def _pooled(
    layer: Any,
    default: str,
    inputs: Any,
    kernel_size: Any,
    stride: Any,
    padding: str,
    data_format: str,
    outputs_collections: Any,
    scope: str | None,
) -> Any:
    with scopes.name_scope(scope, default, [inputs]) as sc:
        outputs = layer(kernel_size, stride, padding, _format(data_format))(inputs)
        return collecting.collect_named_outputs(outputs_collections, sc, outputs)
