"""TensorFlow 1's `tf.nn`, as far as there are ops for it."""

from __future__ import annotations

from typing import Any

from headrace.build import arrays, linalg, nn, scopes
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
softmax_cross_entropy_with_logits = named(nn.softmax_cross_entropy_with_logits, "labels logits dim=axis name axis")
softmax_cross_entropy_with_logits_v2 = named(
    nn.softmax_cross_entropy_with_logits, "labels logits axis name dim=axis", "softmax_cross_entropy_with_logits_v2"
)
sparse_softmax_cross_entropy_with_logits = in_default_graph(nn.sparse_softmax_cross_entropy_with_logits)
log_poisson_loss = in_default_graph(nn.log_poisson_loss)
l2_loss = in_default_graph(nn.l2_loss)

bias_add = in_default_graph(nn.bias_add)
moments = named(nn.moments, "x axes shift name keep_dims=keepdims keepdims")
batch_normalization = in_default_graph(nn.batch_normalization)
# how rows are spread over several tensors does not matter for a single one
embedding_lookup = named(nn.embedding_lookup, "params ids partition_strategy! name validate_indices! max_norm")
zero_fraction = in_default_graph(nn.zero_fraction)


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
