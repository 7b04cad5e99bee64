"""Windows of convolutions and pooling: conversion of arguments to attributes, added and removed axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace.api import arrays, scopes
from headrace.api.tensors import narrow
from headrace.errors import ShapeError

# The layouts by the number of axes of a window; the first is the default.
LAYOUTS = {1: ("NWC", "NCW"), 2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


def sliding(
    strides: Any, padding: Any, data_format: str | None, dilations: Any = None, axes: int = 2
) -> dict[str, Any]:
    """Returns the attributes of an operation that describe the movement of windows.

    Args:
      strides, padding, data_format, dilations: as for `hr.nn.conv2d`.
      axes: number of axes of a window.

    Raises:
      ValueError: an argument is invalid.
    """
    layout = layout_of(data_format, axes)
    attrs = {"strides": for_each_axis("strides", strides, layout), "data_format": layout}
    if dilations is not None:
        attrs["dilations"] = for_each_axis("dilations", dilations, layout)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise ValueError(f"'padding' must be 'SAME', 'VALID' or a pair for each axis, got {padding!r}")
        return attrs | {"padding": padding}
    pairs = padding_pairs(padding, layout)
    return attrs | {"padding": "EXPLICIT", "explicit_paddings": tuple(v for p in pairs for v in p)}


def padding_pairs(padding: Any, layout: str) -> list[tuple[int, int]]:
    """Converts a padding to a list with a pair for each axis of `layout`.

    Raises:
      ValueError: the padding does not have one pair for each axis.
    """
    pairs = [tuple(int(v) for v in p) for p in padding]
    if len(pairs) != len(layout) or any(len(p) != 2 for p in pairs):
        raise ValueError(f"'padding' must have a pair for each of the axes {layout}, got {padding!r}")
    return [(p[0], p[1]) for p in pairs]


def layout_of(data_format: str | None, axes: int) -> str:
    """Returns the layout that `data_format` names for windows with `axes` axes.

    Raises:
      ValueError: the layout is unknown.
    """
    known = LAYOUTS[axes]
    if data_format is not None and data_format not in known:
        raise ValueError(f"'data_format' must be {known[0]!r} or {known[1]!r}, got {data_format!r}")
    return data_format or known[0]


def for_each_axis(what: str, value: Any, layout: str) -> tuple[int, ...]:
    """Expands an argument to one int for each axis of `layout`.

    The argument is one int, one for each axis of a window, or one for each axis of `layout`.

    Raises:
      ValueError: the argument has another number of ints.
    """
    axes = len(layout) - 2
    given = [int(v) for v in np.ravel(value)]
    if len(given) == len(layout):
        return tuple(given)
    inner = for_window(what, value, axes, len(layout))
    return (1, 1, *inner) if layout[1] == "C" else (1, *inner, 1)


def for_window(what: str, value: Any, axes: int, whole: int | None = None) -> tuple[int, ...]:
    """Expands an argument to one int for each of the `axes` of a window.

    The argument is one int, or one for each axis.

    Raises:
      ValueError: the argument has another number of ints.
    """
    given = [int(v) for v in np.ravel(value)]
    if len(given) == 1:
        given *= axes
    if len(given) != axes:
        lengths = [str(n) for n in dict.fromkeys((1, axes, whole)) if n is not None]
        raise ValueError(f"'{what}' must have {', '.join(lengths[:-1])} or {lengths[-1]} numbers, got {value!r}")
    return tuple(given)


def rank_of(what: str, x: Any, data_format: str | None = None) -> int:
    """Returns the number of axes of windows over `x`: its rank minus 2.

    Raises:
      ShapeError (a ValueError): it is unknown, or not 1, 2 or 3.
    """
    if x.shape is None:
        for axes, known in LAYOUTS.items():
            if data_format in known:
                return axes
        raise ShapeError(f"{what} needs a tensor of known rank, got {x!r}; set its shape (set_shape)")
    axes = len(x.shape) - 2
    if axes not in LAYOUTS:
        raise ShapeError(f"{what} takes tensors of rank 3, 4 or 5, got {x!r}, which has {len(x.shape)} axes")
    return axes


def widened(layout: str) -> tuple[int, str]:
    """Returns the axis that makes images of sequences of a layout, and their layout."""
    return (1, "NHWC") if layout == "NWC" else (2, "NCHW")


def without_batch_axes(x: Any, axes: int, whole: Callable[[Any], Any]) -> Any:
    """Applies `whole` to `x` with its batch axes joined to one, and separates them again."""
    more = 0 if x.shape is None else len(x.shape) - axes - 2
    if more <= 0:
        return whole(x)
    with scopes.name_scope(None, "squeeze_batch_dims", [x]):
        dims = arrays.shape(x)
        flat = arrays.reshape(x, arrays.concat([[-1], dims[more + 1 :]], 0))
        narrow(flat, (None, *x.shape[more + 1 :]))
        made = whole(flat)
        out = arrays.reshape(made, arrays.concat([dims[: more + 1], arrays.shape(made)[1:]], 0))
    narrow(out, (*x.shape[: more + 1], *made.shape[1:]))
    return out
