"""Modes of a model: training, evaluation, prediction."""

from __future__ import annotations

from typing import Final


class ModeKeys:
    """Modes of a model: training, evaluation and prediction.

    Source: TensorFlow 1's `tf.estimator.ModeKeys`.
    """

    TRAIN: Final = "train"
    EVAL: Final = "eval"
    PREDICT: Final = "infer"
