"""State of `tf.metrics`: variables for accumulated values, and the collections of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace import dtypes, shapes
from headrace.api import arrays, math, scopes
from headrace.errors import ShapeError
from headrace.v1.graph import GraphKeys, add_to_collections
from headrace.v1.losses import without_last_axis
from headrace.v1.variables import Variable


def state(name: str, shape: Sequence[int] = (), dtype: Any = dtypes.float32) -> Any:
    """A variable of zeros for what has been seen."""
    keys = [GraphKeys.LOCAL_VARIABLES, GraphKeys.METRIC_VARIABLES]
    return Variable(lambda: arrays.zeros(tuple(shape), dtype), trainable=False, collections=keys, name=name)


def collected(value: Any, update: Any, metrics_collections: Any, updates_collections: Any) -> tuple[Any, Any]:
    """A measure and its update, which are put into the collections (None: into none)."""
    if metrics_collections:
        add_to_collections(metrics_collections, value)
    if updates_collections:
        add_to_collections(updates_collections, update)
    return value, update


def agreeing(labels: Any, predictions: Any, weights: Any, cast: Any = None) -> tuple[Any, Any, Any]:
    """Returns all three as tensors of compatible shapes.

    If `cast` is a dtype, labels and predictions are cast to it.

    Raises:
      ShapeError (a ValueError): labels and predictions do not agree.
    """
    b = scopes.builder(predictions, labels, weights)
    x, y = b.tensor(predictions, None, "predictions"), b.tensor(labels, None, "labels")
    if cast is not None:
        x, y = math.cast(x, cast), math.cast(y, cast)
    w = None if weights is None else math.cast(b.tensor(weights, None, "weights"), dtypes.float32)
    y, x, w = without_last_axis(y, x, w)
    if not shapes.compatible(x.shape, y.shape):
        raise ShapeError(
            f"predictions of shape {shapes.show(x.shape)} and labels of shape {shapes.show(y.shape)} must be of the "
            "same shape"
        )
    return y, x, w
