"""Oracles of convolutions by their definition, element by element, and test cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace.dtypes import int32
from headrace.ir.opdef import case
from headrace.opkit.elementwise import HALF
from headrace.opkit.testing.samples import draw
from headrace.opkit.testing.window_samples import windows_of_axis
from headrace.opkit.windows import sliding
from headrace.ops.nn.convolving import geometry

if TYPE_CHECKING:
    from headrace.dtypes import DType

Array: TypeAlias = np.ndarray

# of the input, of the filter, strides, dilations, padding (or margins before and behind each axis)
_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], Any], ...] = (
    ((2, 4, 5, 2), (3, 3, 2, 3), (1, 1), (1, 1), "SAME"),
    ((1, 4, 5, 3), (2, 3, 3, 2), (1, 1), (1, 1), "VALID"),
    ((2, 5, 6, 1), (3, 2, 1, 2), (2, 3), (1, 1), "SAME"),
    ((1, 7, 6, 2), (3, 2, 2, 1), (1, 1), (2, 3), "VALID"),
    ((1, 6, 7, 1), (3, 3, 1, 8), (2, 1), (1, 2), "SAME"),
    ((2, 3, 4, 3), (1, 1, 3, 2), (1, 1), (1, 1), "SAME"),
    ((1, 5, 4, 2), (1, 1, 2, 2), (2, 2), (1, 1), "VALID"),
    ((1, 4, 3, 1), (2, 3, 1, 2), (2, 1), (1, 1), (1, 2, 0, 3)),
    ((1, 3, 3, 2), (2, 2, 2, 2), (1, 1), (1, 1), (2, 0, 3, 1)),
    ((1, 3, 4, 4), (2, 2, 2, 6), (1, 1), (1, 1), "SAME"),
    ((0, 4, 4, 2), (3, 3, 2, 2), (1, 1), (1, 1), "SAME"),
)
_VOLUMES: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], Any], ...] = (
    ((1, 3, 3, 4, 2), (2, 2, 3, 2, 3), (1, 1, 1), (1, 1, 1), "SAME"),
    ((2, 3, 4, 3, 1), (2, 2, 1, 1, 2), (2, 1, 2), (1, 1, 1), "VALID"),
    ((1, 3, 4, 2, 1), (2, 2, 2, 1, 1), (1, 1, 1), (1, 2, 1), "SAME"),
)
_BOTH_LAYOUTS = {False: (0, 2, 4, 7), True: (1,)}  # the numbers of the cases, by whether they are of volumes

# *** The definition ***


def meetings(x: Sequence[int], w: Sequence[int], attrs: Mapping[str, Any]) -> tuple[list[int], list[Any]]:
    """Number of windows along each axis, and the index triples of all products.

    A triple has the indices along the axes in the result, in the window and in the input.

    Args:
      x: the shape of the input.
      w: of the filter, whose last two axes are no axes of the window.
      attrs: of the operation.
    """
    rank = len(x)
    first = 2 if _is_first(attrs) else 1
    margins = attrs.get("explicit_paddings", ())
    dilations = attrs.get("dilations") or (1,) * rank
    counts, found = [], []
    for i in range(first, first + rank - 2):
        pair = margins[2 * i : 2 * i + 2]
        windows = windows_of_axis(x[i], w[i - first], attrs["strides"][i], dilations[i], attrs["padding"], pair)
        counts.append(len(windows))
        found.append([(o, k, e) for o, places in enumerate(windows) for k, e in places])
    return counts, [tuple(zip(*m, strict=True)) for m in itertools.product(*found)]


def _is_first(attrs: Mapping[str, Any]) -> bool:
    """Whether the channels come before the spatial axes."""
    return attrs.get("data_format", "NHWC").endswith(("CHW", "CDHW", "FIRST"))


def oracle(which: str, step: Callable[[Any, Any, Any, str], None], outputs: Callable[[Any], int]) -> Any:
    """Oracle of an op that computes the array `which` of a convolution.

    `which` is "x", "w" or "y".

    Args:
      which: the array.
      step: `step(x, w, y, which)` adds to it what one meeting gives: `x` is [batch, channels], `w` an element of the
        window, `y` [batch, outputs], all float64 or int64.
      outputs: how many channels the result has, from the shape of the filter.
    """

    def made(a: Array, b: Array, c: Array | None = None, **attrs: Any) -> Array:
        first = _is_first(attrs)

        def last(array: Array) -> Array:
            return np.moveaxis(array, 1, -1) if first else array

        t = (a if which != "x" else b).dtype
        kind = np.dtype(np.int64 if t.kind == "i" else np.float64)
        x, w = (np.zeros(tuple(s), kind) if s.ndim == 1 else s.astype(kind) for s in (a, b))
        counts, found = meetings(x.shape, w.shape, attrs)
        x = last(x)
        y = np.zeros((len(x), *counts, outputs(w.shape)), kind) if c is None else last(c).astype(kind)
        if which == "x":
            x = np.zeros(x.shape, kind)
        if which == "w":
            w = np.zeros(w.shape, kind)
        for p, k, e in found:
            step(x[:, *e], w[k], y[:, *p], which)
        out = {"x": x, "w": w, "y": y}[which].astype(t)
        return np.moveaxis(out, -1, 1) if first and which != "w" else out

    return made


def in_groups(x: Array, w: Array, y: Array, which: str) -> None:
    """Adds one product of a convolution whose filter may have fewer channels.

    The convolution is grouped if the filter has fewer channels than the input; see `oracle`.
    """
    groups = max(1, x.shape[1] // w.shape[0])
    some = w.shape[1] // groups
    for g in range(groups):
        ins, outs = slice(g * w.shape[0], (g + 1) * w.shape[0]), slice(g * some, (g + 1) * some)
        if which == "y":
            y[:, outs] += x[:, ins] @ w[:, outs]
        elif which == "x":
            x[:, ins] += y[:, outs] @ w[:, outs].T
        else:
            w[:, outs] += x[:, ins].T @ y[:, outs]


# *** Cases ***


def attributes(
    strides: Sequence[int], dilations: Sequence[int], padding: Any, first: bool, names: tuple[str, str]
) -> dict[str, Any]:
    """The attributes of a case.

    Args:
      strides, dilations: of the spatial axes.
      padding: "SAME", "VALID", or the margins before and behind each of them.
      first: whether the channels come first; then `data_format` is the second of `names`.
      names: of the layouts.
    """

    def placed(values: Sequence[Any], fill: Any) -> tuple[Any, ...]:
        return (fill, fill, *values) if first else (fill, *values, fill)

    attrs: dict[str, Any] = {"strides": placed(strides, 1), "padding": padding}
    if set(dilations) != {1}:
        attrs["dilations"] = placed(dilations, 1)
    if first:
        attrs["data_format"] = names[1]
    if isinstance(padding, tuple):
        pairs = placed(tuple(zip(padding[::2], padding[1::2], strict=True)), (0, 0))
        attrs |= {"padding": "EXPLICIT", "explicit_paddings": tuple(m for pair in pairs for m in pair)}
    return attrs


def channels_first(x: Sequence[int]) -> tuple[int, ...]:
    """Shape with the last axis, the channels, moved behind the batch."""
    return (x[0], x[-1], *x[1:-1])


def samples(which: str, volumes: bool = False, like: bool = False) -> Any:
    """Test cases of a convolution or of its gradients, in both layouts.

    `which` is "y" for the convolution, and "x" or "w" for its gradient by the input or filter.

    Args:
      which: the array that is made.
      volumes: whether there are three spatial axes, not two.
      like: whether the shape of what is made is that of an input, not a vector.
    """
    names = ("NDHWC", "NCDHW") if volumes else ("NHWC", "NCHW")

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for number, (x, w, strides, dilations, padding) in enumerate(_VOLUMES if volumes else _CASES):
            if like and number not in (0, 2):
                continue
            both = number in _BOTH_LAYOUTS[volumes] and not like
            for first in (False, True) if both else (False,):
                shape = channels_first(x) if first else x
                attrs = attributes(strides, dilations, padding, first, names)
                out.append(_case(rng, dtype, which, shape, w, attrs, like))
        return out

    return sample


def drawn(rng: np.random.Generator, dtype: DType, shape: Sequence[int]) -> Array:
    """Random elements; in half precision integers, whose sums are exact."""
    return draw(rng, int32, shape).astype(dtype.numpy) if dtype in HALF else draw(rng, dtype, shape)


def _case(rng: np.random.Generator, dtype: DType, which: str, x: Any, w: Any, attrs: dict[str, Any], like: bool) -> Any:
    images, weights = drawn(rng, dtype, x), drawn(rng, dtype, w)
    if which == "y":
        return case(images, weights, **attrs)
    default = "NHWC" if len(x) == 4 else "NDHWC"
    dy = drawn(rng, dtype, geometry(sliding("Conv", {"data_format": default, **attrs}), x, w)[2])
    if which == "x":
        return case(images if like else np.array(x, np.int32), weights, dy, **attrs)
    return case(images, weights if like else np.array(w, np.int32), dy, **attrs)
