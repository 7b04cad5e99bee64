"""Convolution layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import shapes
from headrace.api import arrays, initializers, nn, tensors
from headrace.api.layers.arguments import (
    activation_of,
    count,
    has_channels_first,
    known_size,
    padding_of,
    rank_of,
)  # fmt: skip
from headrace.api.layers.base import Layer
from headrace.api.nn.windows import LAYOUTS, for_window


class _Convolution(Layer):
    """Base of the layers of convolutions: arguments, bias and activation."""

    axes: int
    bias: Any = None

    def __init__(
        self,
        filters: int | None,
        kernel_size: Any,
        strides: Any,
        padding: str,
        data_format: str,
        dilation_rate: Any,
        activation: Any,
        use_bias: bool,
        bias: tuple[Any, Any, Any],
        activity_regularizer: Callable[[Any], Any] | None,
        trainable: bool,
        name: str | None,
        dtype: Any,
        paddings: tuple[str, ...] = ("VALID", "SAME"),
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype, activity_regularizer=activity_regularizer)
        self.filters = None if filters is None else count("filters", filters)
        self.kernel_size = tuple(count("kernel_size", n) for n in for_window("kernel_size", kernel_size, self.axes))
        self.strides = tuple(count("strides", n) for n in for_window("strides", strides, self.axes))
        self.padding = padding_of(padding, paddings)
        self.data_format = data_format
        self._is_first = has_channels_first(data_format)
        self._layout = LAYOUTS[self.axes][self._is_first]
        self.dilation_rate = tuple(
            count("dilation_rate", n) for n in for_window("dilation_rate", dilation_rate, self.axes)
        )
        if max(self.strides) > 1 and max(self.dilation_rate) > 1:
            raise ValueError(
                f"strides and dilation_rate cannot both be greater than 1, got {strides!r} and {dilation_rate!r}"
            )
        self.activation = activation_of(activation)
        self.use_bias = use_bias
        self.bias_initializer, self.bias_regularizer, self.bias_constraint = bias

    def _channels(self, input_shape: Any) -> int:
        rank_of(input_shape, self.name, self.axes + 2)
        return known_size(input_shape, 1 if self._is_first else -1, self.name)

    def _add_bias(self, n: int) -> None:
        if self.use_bias:
            self.bias = self.add_variable(
                "bias", (n,), None, self.bias_initializer, True, self.bias_regularizer, self.bias_constraint
            )

    def _finished(self, outputs: Any) -> Any:
        if self.use_bias:
            outputs = nn.bias_add(outputs, self.bias, "NC..." if self._is_first else None)
        return outputs if self.activation is None else self.activation(outputs)


class _Conv(_Convolution):
    kernel: Any
    _function: Callable[..., Any]

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = initializers.zeros,
        kernel_regularizer: Callable[[Any], Any] | None = None,
        bias_regularizer: Callable[[Any], Any] | None = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
        kernel_constraint: Callable[[Any], Any] | None = None,
        bias_constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            (bias_initializer, bias_regularizer, bias_constraint), activity_regularizer, trainable, name, dtype,
            ("VALID", "SAME", "CAUSAL") if self.axes == 1 else ("VALID", "SAME"),
        )  # fmt: skip
        self.kernel_initializer, self.kernel_regularizer = kernel_initializer, kernel_regularizer
        self.kernel_constraint = kernel_constraint

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        assert self.filters is not None
        shape = (*self.kernel_size, self._channels(input_shape), self.filters)
        self.kernel = self.add_variable(
            "kernel", shape, None, self.kernel_initializer, True, self.kernel_regularizer, self.kernel_constraint
        )
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        """Computes the outputs."""
        padding = self.padding
        if padding == "CAUSAL":
            before = (self.kernel_size[0] - 1) * self.dilation_rate[0]
            pads = [(0, 0), (0, 0), (before, 0)] if self._is_first else [(0, 0), (before, 0), (0, 0)]
            inputs, padding = arrays.pad(inputs, pads), "VALID"
        steps = self.strides[0] if self.axes == 1 else self.strides
        convolve = type(self)._function
        return self._finished(convolve(inputs, self.kernel, steps, padding, self._layout, self.dilation_rate))


class Conv1D(_Conv):
    """Convolution layer for sequences: each output depends on a window of the inputs. See `Conv2D`.

    The inputs are floats of shape [batch, width, channels], or [batch, channels, width] with
    `data_format="channels_first"`. Variables: "kernel", [window width, channels, filters], and "bias", [filters].

    Args:
      padding: "valid", "same" or "causal". Causal padding is (width of the window - 1) * dilation zeros before the
        inputs, so that no output depends on later inputs.
      Others: see `Conv2D`.

    Source: TensorFlow's `tf.layers.Conv1D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.Conv1D(4, 3, padding="same")(hr.ones((2, 10, 5))).shape
      (2, 10, 4)
    """

    axes = 1
    _function = staticmethod(nn.conv1d)


class Conv2D(_Conv):
    """Convolution layer for images: each output depends on a window of all input channels.

    The inputs are floats of shape [batch, height, width, channels]. The outputs have shape [batch, output height,
    output width, filters]. Variables: "kernel", [window height, window width, channels, filters], and "bias",
    [filters].

    Args:
      filters: number of output channels.
      kernel_size: size of the windows: an int for all axes, or one int for each axis.
      strides: distance between adjacent windows: an int, or one for each axis.
      padding: "valid": no padding; "same": zero padding, so that with strides of 1 the outputs have the size of the
        inputs.
      data_format: "channels_last", or "channels_first" for inputs and outputs with the channels in the second axis.
      dilation_rate: distance between the elements of a window: an int, or one for each axis.
      activation: a function of a tensor, or its name in `hr.nn`; None: no activation.
      use_bias: whether a bias is added.
      kernel_initializer, bias_initializer: see `hr.initializers`; None: glorot_uniform.
      kernel_regularizer, bias_regularizer, activity_regularizer, kernel_constraint, bias_constraint: see `Dense`.
      trainable, name, dtype: see `Layer`.

    Raises:
      ValueError: an argument is not as described above; strides and dilations are both greater than 1; in the call: the
        rank of the inputs is wrong, or the number of channels is unknown.

    Source: TensorFlow's `tf.layers.Conv2D`.

    Example:
      >>> import headrace as hr
      >>> conv = hr.layers.Conv2D(8, 3, padding="same", activation="relu")
      >>> conv(hr.ones((1, 16, 16, 3))).shape, conv.kernel.shape
      ((1, 16, 16, 8), (3, 3, 3, 8))
    """

    axes = 2
    _function = staticmethod(nn.conv2d)


class Conv3D(_Conv):
    """Convolution layer for volumes. See `Conv2D`.

    The inputs are floats of shape [batch, depth, height, width, channels], or [batch, channels, depth, height, width]
    with `data_format="channels_first"`.

    Source: TensorFlow's `tf.layers.Conv3D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.Conv3D(2, 2)(hr.ones((1, 3, 4, 5, 1))).shape
      (1, 2, 3, 4, 2)
    """

    axes = 3
    _function = staticmethod(nn.conv3d)


class _ConvTranspose(_Convolution):
    kernel: Any
    _function: Callable[..., Any]

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = None,
        bias_initializer: Any = initializers.zeros,
        kernel_regularizer: Callable[[Any], Any] | None = None,
        bias_regularizer: Callable[[Any], Any] | None = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
        kernel_constraint: Callable[[Any], Any] | None = None,
        bias_constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            filters, kernel_size, strides, padding, data_format, 1, activation, use_bias,
            (bias_initializer, bias_regularizer, bias_constraint), activity_regularizer, trainable, name, dtype,
        )  # fmt: skip
        self.kernel_initializer, self.kernel_regularizer = kernel_initializer, kernel_regularizer
        self.kernel_constraint = kernel_constraint

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        assert self.filters is not None
        shape = (*self.kernel_size, self.filters, self._channels(input_shape))
        self.kernel = self.add_variable(
            "kernel", shape, None, self.kernel_initializer, True, self.kernel_regularizer, self.kernel_constraint
        )
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        """Computes the outputs."""
        dims = list(shapes.as_shape(inputs.shape) or ())
        start = 2 if self._is_first else 1
        channels = 1 if self._is_first else self.axes + 1
        asked = arrays.shape(inputs) if None in dims else None
        sizes: list[Any] = [asked[i] if d is None and asked is not None else d for i, d in enumerate(dims)]
        for i in range(self.axes):
            # with "valid", the last window ends at the end of the outputs
            more = max(self.kernel_size[i] - self.strides[i], 0) if self.padding == "VALID" else 0
            sizes[start + i] = sizes[start + i] * self.strides[i] + more
            dims[start + i] = None if dims[start + i] is None else sizes[start + i]
        sizes[channels] = dims[channels] = self.filters
        whole = sizes if asked is None else arrays.stack(sizes)
        made = type(self)._function(inputs, self.kernel, whole, self.strides, self.padding, self._layout)
        tensors.narrow(made, dims)
        return self._finished(made)


class Conv2DTranspose(_ConvTranspose):
    """Transposed convolution layer for images: each input is spread over a window of the outputs.

    The inputs are floats of shape [batch, height, width, channels]. With padding "same" the height and width of the
    outputs are `strides` times those of the inputs; with "valid" the outputs end where the last window ends. Variables:
    "kernel", [window height, window width, filters, channels], and "bias", [filters].

    The arguments are those of `Conv2D`, without `dilation_rate`.

    Source: TensorFlow's `tf.layers.Conv2DTranspose`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.Conv2DTranspose(3, 2, strides=2)(hr.ones((1, 4, 5, 8))).shape
      (1, 8, 10, 3)
    """

    axes = 2
    _function = staticmethod(nn.conv2d_transpose)


class Conv3DTranspose(_ConvTranspose):
    """Transposed convolution layer for volumes. See `Conv2DTranspose`.

    Source: TensorFlow's `tf.layers.Conv3DTranspose`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.Conv3DTranspose(3, 2, strides=2)(hr.ones((1, 2, 4, 5, 1))).shape
      (1, 4, 8, 10, 3)
    """

    axes = 3
    _function = staticmethod(nn.conv3d_transpose)


class SeparableConv2D(_Convolution):
    """Separable convolution layer for images: within each channel, then across the channels.

    The inputs are floats of shape [batch, height, width, channels]. Variables: "depthwise_kernel", [window height,
    window width, channels, depth_multiplier], "pointwise_kernel", [1, 1, channels * depth_multiplier, filters], and
    "bias", [filters].

    Args:
      depth_multiplier: number of channels that the first step computes from each input channel.
      depthwise_initializer, depthwise_regularizer, depthwise_constraint: for the depthwise kernel, as in `Conv2D` for
        the kernel.
      pointwise_initializer, pointwise_regularizer, pointwise_constraint: for the pointwise kernel.
      Others: see `Conv2D`.

    Source: TensorFlow's `tf.layers.SeparableConv2D`.

    Example:
      >>> import headrace as hr
      >>> conv = hr.layers.SeparableConv2D(8, 3)
      >>> conv(hr.ones((1, 5, 5, 2))).shape, sum(v.shape != (8,) for v in conv.variables)
      ((1, 3, 3, 8), 2)
    """

    axes = 2
    depthwise_kernel: Any
    pointwise_kernel: Any

    def __init__(
        self,
        filters: int,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        data_format: str = "channels_last",
        dilation_rate: Any = 1,
        depth_multiplier: int = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = None,
        pointwise_initializer: Any = None,
        bias_initializer: Any = initializers.zeros,
        depthwise_regularizer: Callable[[Any], Any] | None = None,
        pointwise_regularizer: Callable[[Any], Any] | None = None,
        bias_regularizer: Callable[[Any], Any] | None = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
        depthwise_constraint: Callable[[Any], Any] | None = None,
        pointwise_constraint: Callable[[Any], Any] | None = None,
        bias_constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            (bias_initializer, bias_regularizer, bias_constraint), activity_regularizer, trainable, name, dtype,
        )  # fmt: skip
        self.depth_multiplier = count("depth_multiplier", depth_multiplier)
        self._depthwise = depthwise_initializer, True, depthwise_regularizer, depthwise_constraint
        self._pointwise = pointwise_initializer, True, pointwise_regularizer, pointwise_constraint

    def build(self, input_shape: Any) -> None:
        """Creates the two kernels and the bias."""
        assert self.filters is not None
        channels = self._channels(input_shape)
        deep = (*self.kernel_size, channels, self.depth_multiplier)
        wide = (*(1 for _ in self.kernel_size), channels * self.depth_multiplier, self.filters)
        self.depthwise_kernel = self.add_variable("depthwise_kernel", deep, None, *self._depthwise)
        self.pointwise_kernel = self.add_variable("pointwise_kernel", wide, None, *self._pointwise)
        self._add_bias(self.filters)

    def call(self, inputs: Any) -> Any:
        """Computes the outputs."""
        kernels = self.depthwise_kernel, self.pointwise_kernel
        return self._finished(
            nn.separable_conv2d(inputs, *kernels, self.strides, self.padding, self._layout, self.dilation_rate)
        )


class SeparableConv1D(SeparableConv2D):
    """Separable convolution layer for sequences. See `SeparableConv2D`.

    Source: TensorFlow's `tf.layers.SeparableConv1D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.SeparableConv1D(8, 3)(hr.ones((1, 5, 2))).shape
      (1, 3, 8)
    """

    axes = 1

    def call(self, inputs: Any) -> Any:
        """Computes the outputs."""
        # sequences are convolved as images with one row
        at = 2 if self._is_first else 1
        deep, across = arrays.expand_dims(self.depthwise_kernel, 0), arrays.expand_dims(self.pointwise_kernel, 0)
        wide = nn.separable_conv2d(
            arrays.expand_dims(inputs, at), deep, across, self.strides * 2, self.padding,
            "NCHW" if self._is_first else "NHWC", (1, *self.dilation_rate),
        )  # fmt: skip
        return self._finished(arrays.squeeze(wide, [at]))


class DepthwiseConv2D(_Convolution):
    """Depthwise convolution layer for images: each channel is convolved with its own filters.

    The inputs are floats of shape [batch, height, width, channels]; the outputs have channels * depth_multiplier
    channels. Variables: "depthwise_kernel", [window height, window width, channels, depth_multiplier], and "bias",
    [channels * depth_multiplier].

    Args:
      depth_multiplier: number of output channels for each input channel.
      Others: see `Conv2D`.

    Source: TensorFlow's `tf.keras.layers.DepthwiseConv2D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.DepthwiseConv2D(3, depth_multiplier=2)(hr.ones((1, 5, 5, 2))).shape
      (1, 3, 3, 4)
    """

    axes = 2
    depthwise_kernel: Any

    def __init__(
        self,
        kernel_size: Any,
        strides: Any = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str = "channels_last",
        dilation_rate: Any = 1,
        activation: Any = None,
        use_bias: bool = True,
        depthwise_initializer: Any = None,
        bias_initializer: Any = initializers.zeros,
        depthwise_regularizer: Callable[[Any], Any] | None = None,
        bias_regularizer: Callable[[Any], Any] | None = None,
        activity_regularizer: Callable[[Any], Any] | None = None,
        depthwise_constraint: Callable[[Any], Any] | None = None,
        bias_constraint: Callable[[Any], Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            None, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            (bias_initializer, bias_regularizer, bias_constraint), activity_regularizer, trainable, name, dtype,
        )  # fmt: skip
        self.depth_multiplier = count("depth_multiplier", depth_multiplier)
        self._depthwise = depthwise_initializer, True, depthwise_regularizer, depthwise_constraint

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        channels = self._channels(input_shape)
        deep = (*self.kernel_size, channels, self.depth_multiplier)
        self.depthwise_kernel = self.add_variable("depthwise_kernel", deep, None, *self._depthwise)
        self._add_bias(channels * self.depth_multiplier)

    def call(self, inputs: Any) -> Any:
        """Computes the outputs."""
        return self._finished(
            nn.depthwise_conv2d(
                inputs, self.depthwise_kernel, self.strides, self.padding, self._layout, self.dilation_rate
            )
        )
