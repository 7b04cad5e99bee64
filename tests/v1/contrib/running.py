"""Runs of graphs with given values of variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import headrace.v1 as tf


def names(key: str = "variables") -> dict[str, list[int]]:
    """Shapes of the variables of a collection by name."""
    return {v.op.name: v.shape.as_list() for v in tf.get_collection(key)}


def drawn(seed: int = 0) -> dict[str, np.ndarray]:
    """A normal value for each variable of the default graph, by name."""
    rng = np.random.default_rng(seed)
    return {
        v.op.name: np.asarray(rng.normal(size=v.shape.as_list()), v.dtype.base_dtype.as_numpy_dtype)
        for v in tf.global_variables()
    }


def run(fetches: Any, feeds: Any = None, values: Mapping[str, np.ndarray] | None = None) -> Any:
    """Values of fetches, with the variables at given values, or at those of their initializers."""
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer(), tf.tables_initializer()])
        for v in tf.global_variables():
            if values is not None and v.op.name in values:
                v.load(values[v.op.name], session)
        return session.run(fetches, feeds)


def sigmoid(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = 1 / (1 + np.exp(-x))
    return found


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    found: np.ndarray = e / e.sum(-1, keepdims=True)
    return found
