"""Batching rules of convolutions and pooling.

If the filter is the same for all examples, these ops have the examples merged with the batch of each. If it differs
between examples, each example has channels of its own: the patches of the images, multiplied with the filters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.opkit.batch_node import BatchNode, NoBatchRule, spread
from headrace.opkit.batch_rules import moved

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor


def more_images(b: Builder, n: BatchNode, i: int) -> Any:
    """Returns the shape of a batch of images for the images of all examples."""
    known = n.constant(i)
    if known is not None and n.static_size is not None:
        return np.array([known[0] * n.static_size, *known[1:]], known.dtype)
    sizes = n.inputs[i]
    dtype = sizes.dtype.base
    zero, one = np.array([0], np.int32), np.array([1], np.int32)
    first = b.Mul(b.StridedSlice(sizes, zero, one, one), n.scalar(dtype))
    return b.ConcatV2([first, b.StridedSlice(sizes, one, zero, one, end_mask=1)], np.int32(0))


def of_sizes(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `AvgPoolGrad(orig_input_shape, grad)`."""
    n.only(1)
    return [n.unfolded(t) for t in n.make(more_images(b, n, 0), n.folded(1))]


def convolution(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Conv2D(input, filter)` and Conv3D."""
    if not n.batched[1]:
        return [n.unfolded(t) for t in n.make(n.folded(0), n.inputs[1])]
    patches, size, channels = _patches(b, n, n.folded(0), n.shape(1))
    height, width = _images(n, n.op.outputs[0].shape)
    examples, images = _known(n), _images_each(n, 0)
    rows = b.Reshape(patches, np.array([examples, images * height * width, size], np.int32))
    columns = b.Reshape(n.inputs[1], np.array([examples, size, channels], np.int32))
    out = b.BatchMatMulV2(rows, columns)
    return [b.Reshape(out, np.array([examples, images, height, width, channels], np.int32))]


def by_input(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Conv2DBackpropInput(input_sizes, filter, out_backprop)`.

    If the filter differs between examples, each example is a group of channels.
    """
    of_tensor = n.op.opdef.ins[0].name == "input"
    if n.batched[1] and not of_tensor:
        return _by_input_in_groups(b, n)
    n.only(2, *([0] if of_tensor else []))
    first = n.folded(0) if of_tensor else more_images(b, n, 0)
    return [n.unfolded(t) for t in n.make(first, n.inputs[1], n.folded(2))]


def _by_input_in_groups(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    shape, filters = n.op.outputs[0].shape, n.shape(1)
    if shape is None or None in shape or filters is None or len(shape) != 4:
        raise NoBatchRule("the filters differ between examples, and a shape is unknown")
    if n.attrs["data_format"] != "NHWC" or shape[3] != filters[2]:
        raise NoBatchRule("the filters differ between examples, with channels first or groups")
    n.only(1, 2)
    size = _known(n)
    given = [_merged(b, n, n.spread(i), n.shape(i), 3) for i in (1, 2)]
    (made,) = n.make(np.array([*shape[:3], shape[3] * size], np.int32), *given)  # type: ignore[operator]
    apart = b.Reshape(made, np.array([*shape[:3], size, shape[3]], np.int32))
    return [moved(b, apart, 3, 0, 5)]


def by_filter(b: Builder, n: BatchNode) -> Sequence[Tensor]:
    """Batches `Conv2DBackpropFilter(input, filter_sizes, out_backprop)`: products of patches and gradients."""
    if n.op.opdef.ins[1].name != "filter":
        n.only(0, 2)
    shape = n.op.outputs[0].shape
    patches, size, channels = _patches(b, n, n.folded(0), shape)
    height, width = _images(n, n.op.inputs[2].shape)
    examples, images = _known(n), _images_each(n, 0)
    rows = b.Reshape(patches, np.array([examples, images * height * width, size], np.int32))
    back = b.Reshape(n.spread(2), np.array([examples, images * height * width, channels], np.int32))
    out = b.BatchMatMulV2(rows, back, adj_x=True)
    assert shape is not None
    return [b.Reshape(out, np.array([examples, *shape], np.int32))]


def _known(n: BatchNode) -> int:
    if n.static_size is None:
        raise NoBatchRule("the number of examples is unknown, and each has filters or channels of its own")
    return n.static_size


def _images_each(n: BatchNode, i: int) -> int:
    shape = n.shape(i)
    if shape is None or shape[0] is None:
        raise NoBatchRule("the filters differ between examples, and the number of images is unknown")
    return shape[0]


def _images(n: BatchNode, shape: Any) -> tuple[int, int]:
    """Returns height and width of the images of a known shape."""
    if shape is None or None in shape[1:3]:
        raise NoBatchRule("the filters differ between examples, and the size of the images is unknown")
    return shape[1], shape[2]


def _patches(b: Builder, n: BatchNode, x: Tensor, filters: Any) -> tuple[Tensor, int, int]:
    """Returns the patches of images that meet a filter, their length, and the output channels.

    Args:
      b: the builder.
      n: the node.
      x: the images.
      filters: the shape of the filter of one example.
    """
    attrs = n.attrs
    shape = n.shape(0)
    if filters is None or None in filters or len(filters) != 4 or shape is None:
        raise NoBatchRule("the filters differ between examples, and are no filters of images of a known shape")
    height, width, ins, outs = filters
    if attrs["data_format"] != "NHWC" or attrs["padding"] == "EXPLICIT" or shape[3] != ins:
        raise NoBatchRule("the filters differ between examples, with explicit padding, channels first or groups")
    patches = b.ExtractImagePatches(
        x,
        ksizes=(1, height, width, 1),
        strides=tuple(attrs["strides"]),
        rates=tuple(attrs["dilations"]),
        padding=attrs["padding"],
    )
    return patches, height * width * ins, outs


# *** each channel alone ***


def depthwise(sizes: int | None, images: Sequence[int], filters: Sequence[int]) -> Callable[..., Sequence[Tensor]]:
    """Returns the rule of a depthwise convolution or of a gradient of it.

    Each example has channels of its own.

    Args:
      sizes: the input with the shape of the result; None for the convolution.
      images: the inputs that are images.
      filters: the inputs that are filters.
    """

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        if n.attrs["data_format"] != "NHWC":
            raise NoBatchRule("the channels are no last dimension")
        n.only(*images, *filters)
        given: list[Any] = []
        for i, t in enumerate(n.inputs):
            if i in images:
                given.append(_merged(b, n, n.spread(i), n.shape(i), 3))
            elif i in filters:
                given.append(_merged(b, n, n.spread(i), n.shape(i), 2))
            else:
                given.append(t)
        out: Any = n.op.outputs[0].shape
        is_filter = sizes == 1
        if out is None or None in out:
            raise NoBatchRule("the shape of the result is unknown")
        if sizes is not None:
            channel = 2 if is_filter else 3
            given[sizes] = np.array([d * _known(n) if k == channel else d for k, d in enumerate(out)], np.int32)
        (made,) = n.make(*given)
        channel = 2 if is_filter else 3
        apart = b.Reshape(made, np.array([*out[:channel], _known(n), *out[channel:]], np.int32))
        return [moved(b, apart, channel, 0, 5)]

    return rule


def _merged(b: Builder, n: BatchNode, t: Tensor, shape: Any, channel: int) -> Tensor:
    """Returns a batch with the examples merged into the dimension `channel` of one example."""
    if shape is None or None in shape:
        raise NoBatchRule("a shape is unknown")
    dims = [d * _known(n) if k == channel else d for k, d in enumerate(shape)]
    out: Tensor = b.Reshape(moved(b, t, 0, channel, len(shape) + 1), np.array(dims, np.int32))
    return out


def channelwise(*images: int) -> Callable[..., Sequence[Tensor]]:
    """Returns the rule of an op that treats each channel alone (batch norm).

    Each example has channels of its own.

    Args:
      images: the inputs that are images; the others have an element for each channel, or none.
    """

    def rule(b: Builder, n: BatchNode) -> Sequence[Tensor]:
        if n.attrs["data_format"] not in ("NHWC", "NDHWC"):
            raise NoBatchRule("the channels are no last dimension")
        size = _known(n)
        given = []
        for i in range(len(n.inputs)):
            shape = n.shape(i)
            if shape is None or None in shape:
                raise NoBatchRule("a shape is unknown")
            if i in images:
                given.append(_merged(b, n, n.spread(i), shape, len(shape) - 1))
            elif shape == (0,):
                given.append(n.inputs[i])
            else:
                given.append(b.Reshape(n.spread(i), np.array([-1], np.int32)))
        out = []
        for t, y in zip(n.make(*given), n.op.outputs, strict=True):
            shape = y.shape
            if shape is None or None in shape:
                raise NoBatchRule("the shape of a result is unknown")
            if len(shape) > 1:
                apart = b.Reshape(t, np.array([*shape[:-1], size, shape[-1]], np.int32))
                out.append(moved(b, apart, len(shape) - 1, 0, len(shape) + 1))
            elif len(shape) == 1 and shape[0]:
                out.append(b.Reshape(t, np.array([size, *shape], np.int32)))
            else:
                out.append(spread(b, t, size))
        return out

    return rule
