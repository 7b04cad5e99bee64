"""TensorFlow 1's TensorArray: headrace's, which goes into the default graph."""

from __future__ import annotations

from headrace.build import tensor_array
from headrace.v1.graph import in_default_graph


class TensorArray(tensor_array.TensorArray):
    """An array of tensors of one dtype, each written and read by its index. See `headrace.TensorArray`.

    Source: TensorFlow's `tf.TensorArray`.
    """

    __init__ = in_default_graph(tensor_array.TensorArray.__init__)
