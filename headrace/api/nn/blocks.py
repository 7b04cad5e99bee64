"""Rearrangement of image blocks: space to depth, space to batch, and patches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, scopes
from headrace.api.nn.windows import layout_of
from headrace.api.tensors import constant_value, is_tensor
from headrace.ir.tensor_type import Tensor


def space_to_depth(input: Any, block_size: int, data_format: str = "NHWC", name: str | None = None) -> Tensor:
    """Moves blocks of rows and columns of images into the channels.

    Args:
      input: images, [batch, height, width, channels] or what `data_format` says.
      block_size: height and width of a block, at least 2. The height and width of the images must be multiples of it.
      data_format: "NHWC" or "NCHW".
      name: name of the operation; "SpaceToDepth" if None.

    Raises:
      ValueError: the block size is less than 2, or does not divide the height and width of the images.

    Source: TensorFlow's `tf.nn.space_to_depth`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.space_to_depth([[[[1], [2]], [[3], [4]]]], 2).numpy().tolist()
      [[[[1, 2, 3, 4]]]]
    """
    attrs = {"block_size": int(block_size), "data_format": data_format}
    return scopes.builder(input).make("SpaceToDepth", (input,), attrs, name)


def depth_to_space(input: Any, block_size: int, data_format: str = "NHWC", name: str | None = None) -> Tensor:
    """Moves channels of images into blocks of rows and columns: the inverse of `space_to_depth`.

    Args:
      input: images, [batch, height, width, channels], or the layout that `data_format` names. The number of channels
        must be a multiple of block_size².
      block_size: height and width of a block, at least 2.
      data_format: "NHWC" or "NCHW".
      name: name of the operation; "DepthToSpace" if None.

    Source: TensorFlow's `tf.nn.depth_to_space`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.depth_to_space([[[[1, 2, 3, 4]]]], 2).numpy().ravel().tolist()
      [1, 2, 3, 4]
    """
    attrs = {"block_size": int(block_size), "data_format": data_format}
    return scopes.builder(input).make("DepthToSpace", (input,), attrs, name)


def space_to_batch(input: Any, block_shape: Any, paddings: Any, name: str | None = None) -> Tensor:
    """Pads a tensor, and moves the elements of each block to separate batches.

    Args:
      input: a tensor, [batch, spatial axes..., other axes...].
      block_shape: an int vector with the size of a block along each spatial axis, or an int for two axes.
      paddings: [spatial axes, 2]: numbers of zeros before and after each spatial axis. The padded sizes must be
        multiples of the block.
      name: name of the operation; "SpaceToBatchND" if None.

    Returns:
      A tensor whose batch is that of `input` times the number of elements of a block.

    Raises:
      ValueError: the block does not divide the padded sizes.

    Source: TensorFlow's `tf.space_to_batch`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.space_to_batch([[[[1], [2]], [[3], [4]]]], [2, 2], [[0, 0], [0, 0]]).numpy().tolist()
      [[[[1]]], [[[2]]], [[[3]]], [[[4]]]]
    """
    b = scopes.builder(input, block_shape, paddings)
    return b.make("SpaceToBatchND", (input, _block(block_shape), paddings), {}, name)


def batch_to_space(input: Any, block_shape: Any, crops: Any, name: str | None = None) -> Tensor:
    """Moves batches back to blocks, and crops the result: the inverse of `space_to_batch`.

    Args:
      input: a tensor, [batch, spatial axes..., other axes...].
      block_shape: an int vector with the size of a block along each spatial axis, or an int for two axes.
      crops: [spatial axes, 2]: numbers of elements to remove before and after each spatial axis.
      name: name of the operation; "BatchToSpaceND" if None.

    Source: TensorFlow's `tf.batch_to_space`.

    Example:
      >>> import headrace as hr
      >>> hr.nn.batch_to_space([[[[1]]], [[[2]]], [[[3]]], [[[4]]]], [2, 2], [[0, 0], [0, 1]]).numpy().ravel().tolist()
      [1, 3]
    """
    b = scopes.builder(input, block_shape, crops)
    return b.make("BatchToSpaceND", (input, _block(block_shape), crops), {}, name)


def _block(block_shape: Any) -> Any:
    """Converts an int block size to a vector of two, as TensorFlow does."""
    is_number = isinstance(block_shape, (int, np.integer))
    return np.array([block_shape] * 2, np.int64) if is_number else block_shape


def required_space_to_batch_paddings(
    input_shape: Any, block_shape: Any, base_paddings: Any = None, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Computes paddings for which blocks divide a tensor, and the crops that undo them.

    Args:
      input_shape: an int vector: the sizes of the spatial axes.
      block_shape: an int vector of the same length: the sizes of a block.
      base_paddings: [axes, 2]: paddings to which others are added; None: zeros.
      name: name of the scope; "required_space_to_batch_paddings" if None.

    Returns:
      Two int32 tensors, [axes, 2]: paddings for `space_to_batch`, and crops for `batch_to_space`.

    Source: TensorFlow's `tf.compat.v1.required_space_to_batch_paddings`.

    Example:
      >>> import headrace as hr
      >>> [t.numpy().tolist() for t in hr.nn.required_space_to_batch_paddings([5], [2])]
      [[[0, 1]], [[0, 1]]]
    """
    with scopes.name_scope(name, "required_space_to_batch_paddings", [input_shape, block_shape]):
        b = scopes.builder(input_shape, block_shape, base_paddings)
        sizes = b.tensor(input_shape, dtypes.int32, "input_shape")
        block = b.tensor(block_shape, dtypes.int32, "block_shape")
        if base_paddings is None:
            base_paddings = arrays.zeros(arrays.concat([arrays.shape(block), [2]], 0), dtypes.int32)
        base = b.tensor(base_paddings, dtypes.int32, "base_paddings")
        behind = math.floormod(math.negative(math.add(sizes, b.Sum(base, 1))), block)
        extra = arrays.stack([arrays.zeros_like(behind), behind], 1, name="crops")
        return math.add(base, extra, name="paddings"), extra


def with_space_to_batch(
    x: Any,
    rates: tuple[int, ...],
    padding: Any,
    layout: str,
    inner: Callable[[Any, Any], Any],
    filter_shape: Any = None,
) -> Any:
    """Applies a dense window operation as one with dilated windows.

    The elements of a dilated window are adjacent in one batch of `space_to_batch`, to which the dense operation is
    applied.

    Args:
      x: a tensor.
      rates: the dilation of each axis of the window.
      padding: "SAME", "VALID", or a pair for each axis of `layout`.
      layout: layout of `x`, such as "NHWC".
      inner: a function from a tensor and a padding to the result of the dense operation.
      filter_shape: the size of a window, as numbers or a tensor; needed for "SAME" only.

    Source: TensorFlow's `tf.nn.with_space_to_batch`.
    """
    if all(r == 1 for r in rates):
        return inner(x, padding)
    first = 2 if layout_of(layout, len(rates))[1] == "C" else 1
    block = np.array([1] * (first - 1) + list(rates), np.int32)
    if padding == "SAME":
        beyond = math.multiply(math.subtract(filter_shape, 1), np.array(rates, np.int32))
        start = math.floordiv(beyond, 2)
        base: Any = arrays.stack([start, math.subtract(beyond, start)], 1)
        value = constant_value(base)
        base = base if value is None else value
    elif padding == "VALID":
        base = np.zeros((len(rates), 2), np.int32)
    else:
        base = np.array(padding[first : first + len(rates)], np.int32)
    stop = first + len(rates)
    sizes = x.shape[first:stop] if x.shape is not None else (None,)
    of_x = np.array(sizes, np.int32) if None not in sizes else arrays.shape(x)[first:stop]
    paddings, crops = required_space_to_batch_paddings(of_x, rates, base)
    if first == 2:
        nothing = np.zeros((1, 2), np.int32)
        paddings, crops = (arrays.concat([nothing, p], 0) for p in (paddings, crops))
    paddings, crops = (_known(p) for p in (paddings, crops))
    return batch_to_space(inner(space_to_batch(x, block, paddings), "VALID"), block, crops)


def _known(x: Any) -> Any:
    value = constant_value(x) if is_tensor(x) else x
    return x if value is None else value


def extract_patches(images: Any, sizes: Any, strides: Any, rates: Any, padding: str, name: str | None = None) -> Tensor:
    """Extracts the elements of each window of images into the channels.

    Args:
      images: [batch, height, width, channels].
      sizes: size of a window, [1, height, width, 1].
      strides: distance between adjacent windows, [1, rows, columns, 1].
      rates: distance between adjacent elements of a window, [1, rows, columns, 1].
      padding: "SAME" or "VALID".
      name: name of the operation; "ExtractImagePatches" if None.

    Returns:
      A tensor [batch, rows of windows, columns of windows, height * width * channels].

    Source: TensorFlow's `tf.image.extract_patches`.

    Example:
      >>> import headrace as hr
      >>> image = hr.reshape(hr.range(4), (1, 2, 2, 1))
      >>> hr.image.extract_patches(image, [1, 2, 2, 1], [1] * 4, [1] * 4, "VALID").numpy().tolist()
      [[[[0, 1, 2, 3]]]]
    """
    attrs = {"ksizes": tuple(sizes), "strides": tuple(strides), "rates": tuple(rates), "padding": padding}
    return scopes.builder(images).make("ExtractImagePatches", (images,), attrs, name)


def extract_volume_patches(input: Any, ksizes: Any, strides: Any, padding: str, name: str | None = None) -> Any:
    """Extracts the elements of each window of volumes into the channels; see `extract_patches`.

    Args:
      input: [batch, depth, height, width, channels].
      ksizes: size of a window, five ints.
      strides: distance between adjacent windows, five ints.
      padding: "SAME" or "VALID".
      name: name of the operation; "ExtractVolumePatches" if None.

    Source: TensorFlow's `tf.extract_volume_patches`.
    """
    attrs = {"ksizes": tuple(ksizes), "strides": tuple(strides), "padding": padding}
    return scopes.builder(input).make("ExtractVolumePatches", (input,), attrs, name)
