"""TensorFlow 1's functions that only create one operation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from headrace.api import scopes
from headrace.v1.graph import in_default_graph

_KIND = inspect.Parameter.POSITIONAL_OR_KEYWORD


def plain(title: str, type: str, inputs: str, required: str = "", optional: str = "") -> Callable[..., Any]:
    """The function of the name `title` that makes an op of the type `type`.

    Args:
      title: TensorFlow's name.
      type: of the op.
      inputs, required, optional: its arguments in TensorFlow's order: those that are tensors, the attributes that it
        must be given, and those that have a default. That is in the op's record, which is imported when the first op of
        its field is made.
    """
    wanted = inputs.split()
    parameters = [inspect.Parameter(n, _KIND) for n in (*wanted, *required.split())]
    parameters += [inspect.Parameter(n, _KIND, default=None) for n in (*optional.split(), "name")]
    signature = inspect.Signature(parameters)

    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        name = given.pop("name", None)
        tensors = [given.pop(n) for n in wanted]
        attrs = {n: x for n, x in given.items() if x is not None}
        return scopes.builder(*tensors).make(type, tensors, attrs, name)

    call.__name__ = call.__qualname__ = title.rpartition(".")[2]
    call.__doc__ = f"Makes the op {type}: see `headrace.raw_ops.{type}`.\n\nSource: TensorFlow's `tf.{title}`."
    call.__signature__ = signature  # type: ignore[attr-defined]
    return in_default_graph(call)


approx_top_k = plain(
    "approx_top_k", "ApproxTopK", "input", "k",
    "reduction_dimension recall_target is_max_k reduction_input_size_override aggregate_to_topk",
)  # fmt: skip
fftnd = plain("fftnd", "FFTND", "input fft_length axes")
ifftnd = plain("ifftnd", "IFFTND", "input fft_length axes")
rfftnd = plain("rfftnd", "RFFTND", "input fft_length axes", "", "Tcomplex")
irfftnd = plain("irfftnd", "IRFFTND", "input fft_length axes", "", "Treal")
guarantee_const = plain("guarantee_const", "GuaranteeConst", "input")
quantized_relu_x = plain(
    "nn.quantized_relu_x", "QuantizedReluX", "features max_value min_features max_features", "", "out_type"
)
quantized_concat = plain("quantized_concat", "QuantizedConcat", "concat_dim values input_mins input_maxes")
ragged_fill_empty_rows = plain(
    "ragged_fill_empty_rows", "RaggedFillEmptyRows", "value_rowids values nrows default_value"
)
ragged_fill_empty_rows_grad = plain(
    "ragged_fill_empty_rows_grad", "RaggedFillEmptyRowsGrad", "reverse_index_map grad_values"
)
timestamp = plain("timestamp", "Timestamp", "")
check_pinned = plain("check_pinned", "CheckPinned", "tensor")
sparse_matmul = plain("sparse_matmul", "SparseMatMul", "a b", "", "transpose_a transpose_b a_is_sparse b_is_sparse")
random_index_shuffle = plain("random_index_shuffle", "RandomIndexShuffle", "index seed max_index", "", "rounds")
conv = plain(
    "conv", "Conv", "input filter", "strides padding", "explicit_paddings data_format dilations batch_dims groups"
)
_CONV_GRADIENT = (
    "input filter out_backprop", "strides padding", "use_cudnn_on_gpu explicit_paddings data_format dilations",
)  # fmt: skip
conv2d_backprop_filter_v2 = plain("conv2d_backprop_filter_v2", "Conv2DBackpropFilterV2", *_CONV_GRADIENT)
conv2d_backprop_input_v2 = plain("conv2d_backprop_input_v2", "Conv2DBackpropInputV2", *_CONV_GRADIENT)
conv3d_backprop_filter = conv3d_backprop_filter_v2 = plain(
    "nn.conv3d_backprop_filter", "Conv3DBackpropFilterV2", "input filter_sizes out_backprop", "strides padding",
    "data_format dilations",
)  # fmt: skip
quantized_avg_pool = plain(
    "nn.quantized_avg_pool", "QuantizedAvgPool", "input min_input max_input", "ksize strides padding"
)
quantized_max_pool = plain(
    "nn.quantized_max_pool", "QuantizedMaxPool", "input min_input max_input", "ksize strides padding"
)
quantized_conv2d = plain(
    "nn.quantized_conv2d", "QuantizedConv2D", "input filter min_input max_input min_filter max_filter",
    "strides padding", "out_type dilations",
)  # fmt: skip
