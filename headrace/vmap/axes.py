"""Axes of batches: `in_axes` and `out_axes` of `hr.vmap`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import nest, shapes
from headrace.errors import SignatureError
from headrace.opkit.batch_rules import moved

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor


def is_axis(x: Any) -> bool:
    """Whether `x` is an axis: an integer, or None for no axis."""
    return x is None or (isinstance(x, (int, np.integer)) and not isinstance(x, bool))


def check(axes: Any, name: str) -> None:
    """Raises TypeError unless all leaves of the structure `axes` are axes."""
    for leaf in nest.flatten(axes, is_leaf=lambda x: x is None):
        if not is_axis(leaf):
            raise TypeError(
                f"vmap: '{name}' must be an integer, None, or a structure of them, got {nest.describe(leaf)}"
            )


def of_leaves(axes: Any, tree: Any, name: str, what: str, path: str = "") -> list[int | None]:
    """Returns an axis for each leaf of `tree`.

    Args:
      axes: the axes: a tree whose upper part is that of `tree`; a leaf of it holds for all leaves of `tree` below.
      tree: the tree.
      name: the name of the argument `axes`.
      what: the description of `tree` in messages.
      path: the place in `tree`.

    Raises:
      ValueError: the structures differ.
    """
    if is_axis(axes):
        return [None if axes is None else int(axes)] * len(nest.flatten(tree))
    mine, yours = nest.nodes[type(axes)], nest.nodes[type(tree)]
    assert mine is not None
    if yours is None or yours.outline(tree) != mine.outline(axes):
        at = f" at {path}" if path else ""
        raise ValueError(
            f"vmap: '{name}' must have the structure of {what}, or of an upper part of it{at}: it is "
            f"{nest.describe(axes)}, where {what} is {nest.describe(tree)}"
        )
    keys, parts = mine.keys(axes), zip(mine.parts(axes), yours.parts(tree), strict=True)
    return [
        axis
        for key, (a, t) in zip(keys, parts, strict=True)
        for axis in of_leaves(a, t, name, what, path + mine.path(key))
    ]


def to_front(b: Builder, x: Tensor, axis: int, label: str) -> Tensor:
    """Returns `x` with the dimension `axis` in front.

    Raises:
      ValueError: `x` has no such dimension, or an unknown rank.
    """
    shape = x.shape
    if shape is None:
        raise ValueError(
            f"vmap: the rank of {label} is unknown, so that it has no axis {axis}; state its shape (hr.ensure_shape)"
        )
    if not -len(shape) <= axis < len(shape):
        raise ValueError(
            f"vmap: in_axes={axis} for {label}, but its shape {shapes.show(shape)} has "
            f"{len(shape)} dimension{'s' * (len(shape) != 1)}"
        )
    out: Tensor = moved(b, x, axis % len(shape), 0, len(shape))
    return out


def from_front(b: Builder, y: Tensor, axis: int, label: str) -> Tensor:
    """Returns `y`, a batch, with dimension 0 at `axis`.

    Raises:
      ValueError: `y` cannot have such a dimension.
    """
    shape = y.shape
    if axis == 0:
        return y
    if shape is None:
        raise ValueError(f"vmap: out_axes={axis} for {label}, whose rank is unknown; state its shape (hr.ensure_shape)")
    if not -len(shape) <= axis < len(shape):
        raise ValueError(
            f"vmap: out_axes={axis} for {label}, but the batch of it has the shape {shapes.show(shape)}, of "
            f"{len(shape)} dimension{'s' * (len(shape) != 1)}"
        )
    out: Tensor = moved(b, y, 0, axis % len(shape), len(shape))
    return out


def common_size(xs: Sequence[tuple[str, Tensor]]) -> int | None:
    """Returns the known number of examples.

    Args:
      xs: (description, tensor) of the mapped arguments, with the examples in dimension 0.

    Raises:
      SignatureError: two arguments have different numbers.
    """
    known = [(label, x.shape[0]) for label, x in xs if x.shape is not None and x.shape[0] is not None]
    if not known:
        return None
    first, n = known[0]
    for label, size in known[1:]:
        if size != n:
            raise SignatureError(
                f"vmap: the mapped axes must have one size, but {first} has {n} examples and {label} has {size}; map "
                "other axes (in_axes=), or none (None) for an argument that is the same for all examples"
            )
    return n
