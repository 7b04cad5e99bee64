"""TensorFlow 1's `tf.sets`."""

from headrace.api.sparse import sets
from headrace.v1.graph import in_default_graph

size = set_size = in_default_graph(sets.size)
intersection = set_intersection = in_default_graph(sets.intersection)
difference = set_difference = in_default_graph(sets.difference)
union = set_union = in_default_graph(sets.union)
