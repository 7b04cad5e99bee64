"""Times of building a graph, here and in TensorFlow in the same process.

The program is plain: a chain of `y + x`, `y * 2.0` and `tanh`, a thousand operations with
the constants. TensorFlow is used in its graph mode. Where it is not installed there is nothing to compare with; in an
environment that has it:

    python -m benchmarks --only building
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Result, alternating
from headrace.api import math, operators, tensors  # noqa: F401 - `operators` gives tensors theirs
from headrace.api.scopes import Graph


def building(ops: int = 1000, repeats: int = 15) -> list[Result]:
    """Microseconds an operation, here and in TensorFlow, and their ratio, for each round."""
    ours = here(ops)
    theirs = tensorflow(ops)
    n = ours()
    if theirs is None:
        (seconds,) = alternating([ours], repeats)
        return [Result("building an operation", "µs", [1e6 * s / n for s in seconds], f"a graph of {n}")]
    assert theirs() == n
    mine, other = alternating([ours, theirs], repeats)
    return [
        Result("building an operation", "µs", [1e6 * s / n for s in mine], f"a graph of {n}"),
        Result("building an operation in TensorFlow", "µs", [1e6 * s / n for s in other], "the same graph"),
        Result("building, headrace / TensorFlow", "ratio", [a / b for a, b in zip(mine, other)], "0.2 is the goal"),
    ]


def here(ops: int) -> Callable[[], int]:
    """Makes the graph with headrace; the number of its operations."""

    def build() -> int:
        with Graph() as g:
            _chain(tensors.placeholder("float32", (2, 3)), math.tanh, ops)
        return len(g)

    return build


def tensorflow(ops: int) -> Callable[[], int] | None:
    """Makes the graph with TensorFlow; None if that is not installed."""
    if importlib.util.find_spec("tensorflow") is None:
        return None
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    def build() -> int:
        with tf.Graph().as_default() as g:
            _chain(tf.compat.v1.placeholder(tf.float32, (2, 3)), tf.tanh, ops)
        return len(g.get_operations())

    return build


def _chain(x: Any, tanh: Callable[[Any], Any], ops: int) -> None:
    y = x
    for _ in range(ops // 4):
        y = y + x
        y = tanh(y * 2.0)
