"""TensorFlow 1's `tf.strings`, as far as there are ops for it."""

from __future__ import annotations

from headrace.build import strings
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph

join = in_default_graph(strings.join)
reduce_join = named(
    strings.reduce_join, "inputs axis keep_dims=keepdims separator name reduction_indices=axis keepdims"
)
format = in_default_graph(strings.format)
as_string = in_default_graph(strings.as_string)
to_number = named(strings.to_number, "string_tensor=input out_type name input")
length = named(strings.length, "input name unit")
substr = named(strings.substr, "input pos len name unit")
lower = in_default_graph(strings.lower)
upper = in_default_graph(strings.upper)
strip = in_default_graph(strings.strip)
