"""TensorFlow 1's `tf.io`, as far as it is there: graphs in files."""

from __future__ import annotations

from headrace.interchange.files import write_graph

__all__ = ["write_graph"]
