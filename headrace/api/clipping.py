"""Implementation of the clipping functions."""

from __future__ import annotations

from typing import Any

from headrace import shapes
from headrace.errors import ShapeError


def not_larger(t: Any, clipped: Any) -> Any:
    """Returns `clipped`, whose static shape must fit that of `t`.

    Raises:
      ShapeError (a ValueError): the bounds broadcast it to a larger shape.
    """
    if not shapes.compatible(t.shape, clipped.shape):
        raise ShapeError(
            f"Shapes {shapes.show(t.shape)} and {shapes.show(clipped.shape)} are incompatible: the bounds of a clip "
            f"must not make {t!r} larger"
        )
    return clipped
