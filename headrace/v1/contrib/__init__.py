"""TensorFlow 1's `tf.contrib`, as far as headrace has it: `tf.contrib.eager`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.v1.contrib import eager

__all__ = ["eager"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
