"""TensorFlow 1's `tf.sets`."""

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.api.sparse import sets
from headrace.v1.graph import in_default_graph

size = set_size = in_default_graph(sets.size)
intersection = set_intersection = in_default_graph(sets.intersection)
difference = set_difference = in_default_graph(sets.difference)
union = set_union = in_default_graph(sets.union)

# fmt: off
__all__ = [
    "difference", "intersection", "set_difference", "set_intersection", "set_size", "set_union", "size", "union",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
