"""Passes of the dual coordinate solver for TensorFlow 1 or `headrace.v1`, by name.

python tests/v1/sdca_cases.py              # with TensorFlow: writes sdca_values.json

The examples share no features, so that their random order does not matter. TensorFlow writes into the tensor with the
states, so each case has a graph of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

VALUES = Path(__file__).parent / "sdca_values.json"
LOSSES = ("logistic_loss", "squared_loss", "hinge_loss", "smooth_hinge_loss", "poisson_loss")


def _states(*duals: float) -> np.ndarray:
    return np.array([[dual, 0, 0, 0] for dual in duals], np.float32)


def _sparse(tf: Any, loss: str, l1: float, l2: float, partitions: int) -> Any:
    old = -0.4 if loss == "poisson_loss" else 0.3
    labels = [0.0, 1.0, 2.0 if loss in ("squared_loss", "poisson_loss") else 0.0]
    return tf.train.sdca_optimizer(
        [[0, 1, 1, 2]], [[7, 3, 5, 9]], [[1.0, 2.0, 0.5, 3.0]], [], [1.0, 2.0, 0.5], labels, [[3, 5, 7, 9]],
        [[0.5, -1.0, 0.25, 0.05]], [], tf.constant(_states(0, old, 0)), loss, l1, l2, partitions, 1, adaptative=False,
    )  # fmt: skip


def _dense(tf: Any, loss: str) -> Any:
    return tf.train.sdca_optimizer(
        [], [], [], [[[1.0, 2.0]], [[0.5]]], [1.5], [1.0], [], [], [[0.1, 0.2], [-0.3]], tf.constant(_states(0)), loss,
        0.05, 0.7, 1, 1,
    )  # fmt: skip


def _binary(tf: Any, loss: str) -> Any:
    return tf.train.sdca_optimizer(
        [[0, 1], [0]], [[1, 0], [0]], [], [], [1.0, 1.0], [1.0, 0.0], [[0, 1], [0]], [[0.1, 0.2], [0.4]], [],
        tf.constant(_states(0, 0)), loss, 0.05, 0.7, 1, 1, adaptative=False,
    )  # fmt: skip


CASES = {
    **{
        f"{loss} l1={l1} l2={l2} of {n}": (_sparse, loss, l1, l2, n)
        for loss in LOSSES
        for l1, l2, n in ((0.0, 1.0, 1), (0.1, 0.5, 2), (0.0, 0.01, 1))
    },
    **{f"{loss} dense": (_dense, loss) for loss in LOSSES},
    **{f"{loss} binary": (_binary, loss) for loss in LOSSES},
}


def run(tf: Any, name: str) -> list[Any]:
    """The numbers of a case, in the order of the results."""
    function, *arguments = CASES[name]
    with tf.Graph().as_default(), tf.Session() as session:
        found = session.run(tuple(function(tf, *arguments)))
    return [[x.tolist() for x in part] if isinstance(part, list | tuple) else part.tolist() for part in found]


if __name__ == "__main__":
    import tensorflow.compat.v1 as tensorflow

    tensorflow.disable_eager_execution()
    VALUES.write_text(json.dumps({name: run(tensorflow, name) for name in CASES}, indent=1) + "\n", encoding="utf-8")
