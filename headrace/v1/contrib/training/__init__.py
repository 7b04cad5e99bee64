"""TensorFlow 1's `tf.contrib.training`: hyperparameters, and batches of sequences by length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.train import input
from headrace.train.device_setter import GreedyLoadBalancingStrategy, byte_size_load_fn
from headrace.v1.contrib import equivalents
from headrace.v1.contrib.training.hparams import HParams, parse_values
from headrace.v1.input import kept

bucket = kept(input.bucket)
bucket_by_sequence_length = kept(input.bucket_by_sequence_length)

__all__ = [
    "GreedyLoadBalancingStrategy", "HParams", "bucket", "bucket_by_sequence_length", "byte_size_load_fn",
    "parse_values",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
