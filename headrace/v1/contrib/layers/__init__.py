"""TensorFlow 1's `tf.contrib.layers`: layers as functions, with "weights" and "biases", for `arg_scope`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1.contrib import equivalents
from headrace.v1.contrib.layers import collecting as utils
from headrace.v1.contrib.layers.convolution import (
    avg_pool2d,
    conv1d,
    conv2d,
    conv2d_transpose,
    conv3d,
    convolution,
    convolution1d,
    convolution2d,
    convolution2d_transpose,
    convolution3d,
    max_pool2d,
    separable_conv2d,
    separable_convolution2d,
)
from headrace.v1.contrib.layers.core import (
    bias_add,
    dropout,
    embed_sequence,
    embedding_lookup_unique,
    flatten,
    fully_connected,
    linear,
    maxout,
    one_hot_encoding,
    relu,
    relu6,
    repeat,
    safe_embedding_lookup_sparse,
    softmax,
    spatial_softmax,
    stack,
)
from headrace.v1.contrib.layers.initializers import (
    variance_scaling_initializer,
    xavier_initializer,
    xavier_initializer_conv2d,
)
from headrace.v1.contrib.layers.normalization import batch_norm, group_norm, instance_norm, layer_norm, unit_norm
from headrace.v1.contrib.layers.optimizing import OPTIMIZER_CLS_NAMES, OPTIMIZER_SUMMARIES, optimize_loss
from headrace.v1.contrib.layers.regularizers import (
    apply_regularization,
    l1_l2_regularizer,
    l1_regularizer,
    l2_regularizer,
    sum_regularizer,
)
from headrace.v1.contrib.layers.summaries import (
    summarize_activation,
    summarize_activations,
    summarize_biases,
    summarize_collection,
    summarize_tensor,
    summarize_tensors,
    summarize_variables,
    summarize_weights,
)

# fmt: off
__all__ = [
    "OPTIMIZER_CLS_NAMES", "OPTIMIZER_SUMMARIES", "apply_regularization", "avg_pool2d", "batch_norm", "bias_add",
    "conv1d", "conv2d", "conv2d_transpose", "conv3d", "convolution", "convolution1d", "convolution2d",
    "convolution2d_transpose", "convolution3d", "dropout", "embed_sequence", "embedding_lookup_unique", "flatten",
    "fully_connected", "group_norm", "instance_norm", "l1_l2_regularizer", "l1_regularizer", "l2_regularizer",
    "layer_norm", "linear", "max_pool2d", "maxout", "one_hot_encoding", "optimize_loss", "relu", "relu6", "repeat",
    "safe_embedding_lookup_sparse", "separable_conv2d", "separable_convolution2d", "softmax", "spatial_softmax",
    "stack", "sum_regularizer", "summarize_activation", "summarize_activations", "summarize_biases",
    "summarize_collection", "summarize_tensor", "summarize_tensors", "summarize_variables", "summarize_weights",
    "unit_norm", "utils", "variance_scaling_initializer", "xavier_initializer", "xavier_initializer_conv2d",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
