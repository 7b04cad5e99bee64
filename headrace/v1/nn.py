"""TensorFlow 1's `tf.nn`, as far as there are ops for it."""

from __future__ import annotations

from typing import Any

from headrace.build import arrays, linalg, nn, scopes, tensors
from headrace.build.convolution import sliding
from headrace.v1.arguments import named
from headrace.v1.graph import in_default_graph
from headrace.v1.math_ops import l2_normalize as l2_normalize
from headrace.v1.math_ops import log_sigmoid as log_sigmoid
from headrace.v1.math_ops import sigmoid as sigmoid
from headrace.v1.math_ops import tanh as tanh
from headrace.v1.math_ops import top_k as top_k

relu = in_default_graph(nn.relu)
relu6 = in_default_graph(nn.relu6)
elu = in_default_graph(nn.elu)
selu = in_default_graph(nn.selu)
softplus = in_default_graph(nn.softplus)
softsign = in_default_graph(nn.softsign)
leaky_relu = in_default_graph(nn.leaky_relu)
silu = swish = named(nn.silu, "features beta")
softmax = named(nn.softmax, "logits axis name dim=axis")
log_softmax = named(nn.log_softmax, "logits axis name dim=axis")

sigmoid_cross_entropy_with_logits = in_default_graph(nn.sigmoid_cross_entropy_with_logits)
weighted_cross_entropy_with_logits = named(
    nn.weighted_cross_entropy_with_logits, "labels logits pos_weight name targets=labels"
)
softmax_cross_entropy_with_logits_v2 = named(
    nn.softmax_cross_entropy_with_logits, "labels logits axis name dim=axis", "softmax_cross_entropy_with_logits_v2"
)
sparse_softmax_cross_entropy_with_logits = in_default_graph(nn.sparse_softmax_cross_entropy_with_logits)
log_poisson_loss = in_default_graph(nn.log_poisson_loss)
l2_loss = in_default_graph(nn.l2_loss)

bias_add = in_default_graph(nn.bias_add)
conv2d = named(nn.conv2d, "input filter=filters strides padding use_cudnn_on_gpu! data_format dilations name filters")
conv2d_transpose = named(
    nn.conv2d_transpose,
    "value=input filter=filters output_shape strides padding data_format name input filters dilations",
)
max_pool = named(nn.max_pool2d, "value=input ksize strides padding data_format name input", "max_pool")
max_pool2d = max_pool_v2 = in_default_graph(nn.max_pool2d)
avg_pool_v2 = in_default_graph(nn.avg_pool2d)
avg_pool = avg_pool2d = named(nn.avg_pool2d, "value=input ksize strides padding data_format name input", "avg_pool")
moments = named(nn.moments, "x axes shift name keep_dims=keepdims keepdims")
batch_normalization = in_default_graph(nn.batch_normalization)
# how rows are spread over several tensors does not matter for a single one
embedding_lookup = named(nn.embedding_lookup, "params ids partition_strategy! name validate_indices! max_norm")
zero_fraction = in_default_graph(nn.zero_fraction)


@in_default_graph
def conv2d_backprop_input(
    input_sizes: Any,
    filter: Any = None,
    out_backprop: Any = None,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
    filters: Any = None,
) -> Any:
    """The gradient of `conv2d` by its input, which has the shape `input_sizes`.

    Source: TensorFlow's `tf.nn.conv2d_backprop_input`. See `headrace.nn.conv2d_transpose`.
    """
    weights = filter if filters is None else filters
    attrs = sliding(strides, padding, data_format, dilations)
    inputs = (input_sizes, weights, out_backprop)
    return scopes.builder(*inputs).make("Conv2DBackpropInput", inputs, attrs, name)


@in_default_graph
def conv2d_backprop_filter(
    input: Any,
    filter_sizes: Any,
    out_backprop: Any,
    strides: Any = None,
    padding: Any = None,
    use_cudnn_on_gpu: bool = True,
    data_format: str | None = None,
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """The gradient of `conv2d` by its filter, which has the shape `filter_sizes`.

    Source: TensorFlow's `tf.nn.conv2d_backprop_filter`.
    """
    attrs = sliding(strides, padding, data_format, dilations)
    inputs = (input, filter_sizes, out_backprop)
    return scopes.builder(*inputs).make("Conv2DBackpropFilter", inputs, attrs, name)


@in_default_graph
def softmax_cross_entropy_with_logits(
    labels: Any = None, logits: Any = None, dim: int = -1, name: str | None = None, axis: int | None = None
) -> Any:
    """-sum(labels * log(softmax(logits))) along an axis; no gradient goes to the labels.

    Source: TensorFlow's `tf.nn.softmax_cross_entropy_with_logits`. See `headrace.nn.softmax_cross_entropy_with_logits`.

    Raises:
      ValueError: an argument is missing.
    """
    with scopes.name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as scope:
        if labels is not None:
            labels = tensors.stop_gradient(labels, name="labels_stop_gradient")
        return nn.softmax_cross_entropy_with_logits(labels, logits, dim if axis is None else axis, scope)


@in_default_graph
def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Any:
    """`x`, of which each element is kept with probability `keep_prob` (1 - `rate`), made greater, and else is 0.

    Source: TensorFlow's `tf.nn.dropout`. See `headrace.nn.dropout`.

    Raises:
      ValueError: neither or both of `keep_prob` and `rate` are given.
    """
    if (keep_prob is None) == (rate is None):
        raise ValueError("dropout needs rate, or keep_prob = 1 - rate: one of the two")
    return nn.dropout(x, 1 - keep_prob if rate is None else rate, noise_shape, seed, name)


@in_default_graph
def crelu(features: Any, name: str | None = None, axis: int = -1) -> Any:
    """relu(x) and relu(-x), joined along an axis.

    Source: TensorFlow's `tf.nn.crelu`.
    """
    with scopes.name_scope(name, "CRelu", [features]) as scope:
        b = scopes.builder(features)
        x = b.tensor(features)
        return nn.relu(arrays.concat([x, b.Neg(x)], axis), name=scope)


@in_default_graph
def xw_plus_b(x: Any, weights: Any, biases: Any, name: str | None = None) -> Any:
    """x @ weights + biases, of matrices and a vector.

    Source: TensorFlow's `tf.nn.xw_plus_b`.
    """
    with scopes.name_scope(name, "xw_plus_b", [x, weights, biases]) as scope:
        return nn.bias_add(linalg.matmul(x, weights), biases, name=scope)


@in_default_graph
def relu_layer(x: Any, weights: Any, biases: Any, name: str | None = None) -> Any:
    """relu(x @ weights + biases), of matrices and a vector.

    Source: TensorFlow's `tf.nn.relu_layer`.
    """
    with scopes.name_scope(name, "relu_layer", [x, weights, biases]) as scope:
        return nn.relu(nn.bias_add(linalg.matmul(x, weights), biases), name=scope)
