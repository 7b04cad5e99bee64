"""Geometry of sliding windows over the axes of an array, for convolutions and pooling.

A window of `size` elements, `dilation` apart, starts at every `stride`-th element of an axis that is padded at both
ends. `Axis` is one axis of known length. For each element of the window, `taps` returns the slices of the array that
contain this element of all windows. So kernels work on a few slices and not on many windows.

A `Sliding` has the attributes of an operation for all axes, in the order of the array's axes, for every `data_format`.
Source: TensorFlow's conventions of padding ("SAME", "VALID", "EXPLICIT") and of its shape functions.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.memo import cached
from headrace.records import record

if TYPE_CHECKING:
    from headrace.shapes import Dim

Slices: TypeAlias = tuple[slice, ...]


@record(frozen=True, slots=True)
class Axis:
    """Axis of known length with the windows over it.

    Attributes:
      length: the number of elements of the input.
      count: the number of windows.
      size: the number of elements of a window.
      stride: the distance between the starts of two windows.
      dilation: the distance between two elements of a window.
      before: the number of padding elements in front. A negative number is the distance from the first element to the
        start of the first window.
    """

    length: int
    count: int
    size: int
    stride: int
    dilation: int
    before: int

    @property
    def reach(self) -> int:
        """Number of places from the first element of a window to its last, inclusive."""
        return _reach(self.size, self.dilation)

    @property
    def extent(self) -> int:
        """Number of places from the first window's start to the last window's end."""
        return (self.count - 1) * self.stride + self.reach

    @property
    def is_plain(self) -> bool:
        """Whether each window is one element and each element a window."""
        return self.size == self.stride == 1 and self.count == self.length and not self.before

    @property
    def is_inside(self) -> bool:
        """Whether no window contains padding."""
        return self.before <= 0 and self.extent - self.before <= self.length

    @property
    def is_disjoint(self) -> bool:
        """Whether no element is in two windows."""
        return self.stride >= self.reach

    def tap(self, k: int) -> tuple[slice, slice]:
        """Returns the windows whose element `k` is not padding, and these elements in the input."""
        at = k * self.dilation - self.before
        first = max(0, -(at // self.stride))
        behind = min(self.count, (self.length - 1 - at) // self.stride + 1)
        if behind <= first:
            return slice(0), slice(0)
        start = at + first * self.stride
        return slice(first, behind), slice(start, start + (behind - first - 1) * self.stride + 1, self.stride)

    @property
    def met(self) -> range:
        """Range of window elements that are not padding in every window, without gaps."""
        if not self.count or not self.length:
            return range(0)
        first = max(0, -(((self.count - 1) * self.stride - self.before) // self.dilation))
        return range(first, min(self.size, (self.length - 1 + self.before) // self.dilation + 1))

    def trimmed(self) -> Axis:
        """Returns the axis with smaller windows: without elements that are padding in all of them.

        At least one element remains.
        """
        met = self.met or range(1)
        return dataclasses.replace(self, size=len(met), before=self.before - met.start * self.dilation)

    def part(self, windows: slice) -> Axis:
        """Returns the axis with only the windows in a slice of step 1."""
        first = windows.start or 0
        return dataclasses.replace(self, count=windows.stop - first, before=self.before - first * self.stride)

    def overlap(self) -> tuple[slice, slice]:
        """Returns the places of the input in the `extent`, and this part of the input."""
        first = max(0, -self.before)
        behind = max(first, min(self.length, self.extent - self.before))
        return slice(first + self.before, behind + self.before), slice(first, behind)


def _reach(size: int, dilation: int) -> int:
    return (size - 1) * dilation + 1


def taps(axes: Sequence[Axis]) -> Iterator[tuple[Slices, Slices]]:
    """Iterates over the elements of the windows, the first axis outermost.

    Yields:
      The windows that have the element outside of the padding, and these elements in the input.
    """
    for pairs in itertools.product(*([a.tap(k) for k in range(a.size)] for a in axes)):
        yield tuple(w for w, _ in pairs), tuple(e for _, e in pairs)


class Sliding(NamedTuple):
    """Window attributes of an operation for each axis, including batch and channels.

    Attributes:
      strides, dilations: those of the windows.
      padding: "SAME", "VALID" or "EXPLICIT".
      margins: the padding before and behind each axis, under "EXPLICIT"; otherwise empty.
      spatial: the axes other than batch and channels.
      channels: the axis of the channels.
    """

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: str
    margins: tuple[tuple[int, int], ...]
    spatial: tuple[int, ...]
    channels: int

    @property
    def others(self) -> tuple[int, int]:
        """Axes of batch and channels."""
        return 0, self.channels

    def dim(self, axis: int, length: Dim, size: Dim) -> Dim:
        """Returns the number of windows along an axis, None if unknown.

        Args:
          axis: the axis.
          length: its length.
          size: the number of elements of a window.

        Raises:
          ValueError: the axis is shorter than a window.
        """
        stride = self.strides[axis]
        if length is None:
            return None
        if self.padding == "SAME":
            return -(-length // stride)
        if size is None:
            return None
        reach, padded = _reach(size, self.dilations[axis]), length + sum(self._margins(axis))
        if padded < reach:
            raise ValueError(f"Negative dimension size caused by subtracting {reach} from {padded}")
        return (padded - reach) // stride + 1

    def axis(self, axis: int, length: int, size: int) -> Axis:
        """Returns the windows along an axis of known length.

        Args:
          axis: the axis.
          length: its length.
          size: the number of elements of a window.

        Raises:
          InvalidArgumentError: the axis is shorter than a window by more than a stride. (TensorFlow's kernels return an
            empty output for a smaller difference, although its shape functions refuse it.)
        """
        stride, dilation = self.strides[axis], self.dilations[axis]
        reach = _reach(size, dilation)
        if self.padding == "SAME":
            count = -(-length // stride)
            return Axis(length, count, size, stride, dilation, max(0, (count - 1) * stride + reach - length) // 2)
        before, behind = self._margins(axis)
        room = length + before + behind - reach + stride
        if room < 0:
            raise InvalidArgumentError(
                f"Computed output size would be negative: {math.trunc(room / stride)} "
                f"[input_size: {length + before + behind}, effective_filter_size: {reach}, stride: {stride}]"
            )
        return Axis(length, room // stride, size, stride, dilation, before)

    def _margins(self, axis: int) -> tuple[int, int]:
        return self.margins[axis] if self.margins else (0, 0)


def sliding(type: str, attrs: Mapping[str, Any]) -> Sliding:
    """Returns the windows of a convolution or pooling with these attributes.

    For a convolution the window size is not an attribute.

    Args:
      type: the op type, for errors.
      attrs: `strides`, `padding`, and `data_format`, `dilations`, `explicit_paddings` if the op has them.

    Raises:
      ValueError: the attributes are invalid; the texts are those of TensorFlow's shape functions.
    """
    layout = attrs.get("data_format", "NHWC")
    margins = attrs.get("explicit_paddings", ())
    return _sliding(type, attrs["strides"], attrs.get("dilations"), attrs["padding"], margins, layout)


@cached(256, "sliding windows")
def _sliding(
    type: str,
    strides: tuple[int, ...],
    dilations: tuple[int, ...] | None,
    padding: str,
    margins: tuple[int, ...],
    layout: str,
) -> Sliding:
    if layout == "NCHW_VECT_C":
        raise UnimplementedError(f"{type} under data format {layout} is for quantized numbers on GPUs alone")
    rank = len(layout)
    if len(strides) != rank:
        raise ValueError(
            f"{type} on data format {layout} requires the stride attribute to contain {rank} values, "
            f"but got: {len(strides)}"
        )
    if dilations is not None and len(dilations) != rank:
        raise ValueError(f"{type} requires the dilation attribute to contain {rank} values, but got: {len(dilations)}")
    if min(strides) < 1:
        raise ValueError(f"Stride must be > 0, but got {min(strides)}")
    if dilations is not None and min(dilations) < 1:
        raise ValueError(f"Dilation rate must be >= 1, but got {min(dilations)}")
    channels = layout.index("C")
    if padding != "EXPLICIT":
        if margins:
            raise ValueError(
                f"explicit_paddings attribute must be empty if the padding attribute is not EXPLICIT, got "
                f"{list(margins)} and {padding}"
            )
    elif len(margins) != 2 * rank:
        raise ValueError(f"explicit_paddings attribute must contain {2 * rank} values, but got: {len(margins)}")
    elif min(margins) < 0:
        raise ValueError(f"All elements of explicit_paddings must be nonnegative, got {list(margins)}")
    pairs = tuple(zip(margins[::2], margins[1::2], strict=True))
    if pairs and (any(pairs[0]) or any(pairs[channels])):
        raise ValueError(
            f"Nonzero explicit padding in the batch or depth dimensions is not supported: "
            f"{list(margins)} under {layout}"
        )
    spatial = tuple(i for i in range(1, rank) if i != channels)
    return Sliding(strides, dilations or (1,) * rank, padding, pairs, spatial, channels)
