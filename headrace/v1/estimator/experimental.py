"""TensorFlow 1's `tf.estimator.experimental`: the receiver of graphs that train or evaluate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.estimator.export import build_raw_supervised_input_receiver_fn

__all__ = ["build_raw_supervised_input_receiver_fn"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
