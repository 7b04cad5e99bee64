"""Pooling layers, which downsample sequences, images and volumes without variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.api import nn, reductions
from headrace.api.layers.arguments import count, has_channels_first, padding_of, rank_of
from headrace.api.layers.base import Layer
from headrace.api.nn.windows import LAYOUTS, for_window


class _Pooling(Layer):
    axes: int
    _function: Callable[..., Any]

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: str = "valid",
        data_format: str = "channels_last",
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        self.pool_size = tuple(count("pool_size", n) for n in for_window("pool_size", pool_size, self.axes))
        given = for_window("strides", pool_size if strides is None else strides, self.axes)
        self.strides = tuple(count("strides", n) for n in given)
        self.padding = padding_of(padding)
        self.data_format = data_format
        self._layout = LAYOUTS[self.axes][has_channels_first(data_format)]

    def call(self, inputs: Any) -> Any:
        """Computes the outputs."""
        rank_of(inputs.shape, self.name, self.axes + 2)
        return type(self)._function(inputs, self.pool_size, self.strides, self.padding, self._layout)


class MaxPooling1D(_Pooling):
    """Layer that computes the maximum of each window of sequences. See `MaxPooling2D`.

    The inputs have shape [batch, width, channels].

    Source: TensorFlow's `tf.layers.MaxPooling1D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.MaxPooling1D(2)([[[1.0], [3.0], [2.0], [0.0]]]).numpy().ravel().tolist()
      [3.0, 2.0]
    """

    axes = 1
    _function = staticmethod(nn.max_pool1d)


class MaxPooling2D(_Pooling):
    """Layer that computes the maximum of each window of images, for each channel.

    The inputs are numbers of shape [batch, height, width, channels]. The outputs have the same dtype.

    Args:
      pool_size: size of the windows: an int for all axes, or one int for each axis.
      strides: distance between adjacent windows, as `pool_size`; None: `pool_size`.
      padding: "valid": windows are inside the inputs; "same": windows at the edge may extend beyond the inputs.
      data_format: "channels_last", or "channels_first" for inputs of shape [batch, channels, height, width].
      name: see `Layer`.

    Raises:
      ValueError: an argument is not as described above; in the call: the inputs do not have rank 4.

    Source: TensorFlow's `tf.layers.MaxPooling2D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.MaxPooling2D(2)(hr.reshape(hr.range(16.0), (1, 4, 4, 1))).numpy().ravel().tolist()
      [5.0, 7.0, 13.0, 15.0]
    """

    axes = 2
    _function = staticmethod(nn.max_pool2d)


class MaxPooling3D(_Pooling):
    """Layer that computes the maximum of each window of volumes. See `MaxPooling2D`.

    The inputs have shape [batch, depth, height, width, channels].

    Source: TensorFlow's `tf.layers.MaxPooling3D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.MaxPooling3D(2)(hr.ones((1, 4, 4, 4, 1))).shape
      (1, 2, 2, 2, 1)
    """

    axes = 3
    _function = staticmethod(nn.max_pool3d)


class AveragePooling1D(_Pooling):
    """Layer that computes the mean of each window of sequences, without padding. See `MaxPooling1D`.

    Source: TensorFlow's `tf.layers.AveragePooling1D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.AveragePooling1D(2)([[[1.0], [3.0], [2.0], [0.0]]]).numpy().ravel().tolist()
      [2.0, 1.0]
    """

    axes = 1
    _function = staticmethod(nn.avg_pool1d)


class AveragePooling2D(_Pooling):
    """Layer that computes the mean of each window of images, without padding. See `MaxPooling2D`.

    Source: TensorFlow's `tf.layers.AveragePooling2D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.AveragePooling2D(2)(hr.reshape(hr.range(16.0), (1, 4, 4, 1))).numpy().ravel().tolist()
      [2.5, 4.5, 10.5, 12.5]
    """

    axes = 2
    _function = staticmethod(nn.avg_pool2d)


class AveragePooling3D(_Pooling):
    """Layer that computes the mean of each window of volumes, without padding. See `MaxPooling3D`.

    Source: TensorFlow's `tf.layers.AveragePooling3D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.AveragePooling3D(2)(hr.ones((1, 4, 4, 4, 1))).shape
      (1, 2, 2, 2, 1)
    """

    axes = 3
    _function = staticmethod(nn.avg_pool3d)


class _GlobalPooling2D(Layer):
    _function: Callable[..., Any]

    def __init__(self, data_format: str = "channels_last", keepdims: bool = False, name: str | None = None) -> None:
        super().__init__(name=name)
        self.data_format, self.keepdims = data_format, keepdims
        self._over = [2, 3] if has_channels_first(data_format) else [1, 2]

    def call(self, inputs: Any) -> Any:
        """Computes the outputs."""
        rank_of(inputs.shape, self.name, 4)
        return type(self)._function(inputs, self._over, self.keepdims)


class GlobalAveragePooling2D(_GlobalPooling2D):
    """Layer that computes the mean of each channel of images.

    Inputs of shape [batch, height, width, channels] give outputs of shape [batch, channels].

    Args:
      data_format: "channels_last", or "channels_first" for inputs of shape [batch, channels, height, width].
      keepdims: whether the outputs keep the axes of height and width, with size 1.
      name: see `Layer`.

    Source: TensorFlow's `tf.keras.layers.GlobalAveragePooling2D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.GlobalAveragePooling2D()([[[[1.0], [3.0]]]]).numpy().tolist()
      [[2.0]]
    """

    _function = staticmethod(reductions.reduce_mean)


class GlobalMaxPooling2D(_GlobalPooling2D):
    """Layer that computes the maximum of each channel of images. See `GlobalAveragePooling2D`.

    Source: TensorFlow's `tf.keras.layers.GlobalMaxPooling2D`.

    Example:
      >>> import headrace as hr
      >>> hr.layers.GlobalMaxPooling2D()([[[[1.0], [3.0]]]]).numpy().tolist()
      [[3.0]]
    """

    _function = staticmethod(reductions.reduce_max)
