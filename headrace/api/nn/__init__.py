"""`hr.nn`: neural networks.

`activations`, `convolution`, `pooling`, `normalizing` and `layers` have the parts of layers. `losses`,
`sampling_losses` and `ctc` have losses, and `blocks` rearranges images. The loops over recurrent cells, and attention,
are in `api.rnn`. That package is imported on first use, because it uses layers, which use this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.api.linalg import l2_normalize
from headrace.api.math import log_sigmoid, sigmoid, tanh
from headrace.api.nn.activations import (
    crelu,
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    relu6,
    selu,
    silu,
    softmax,
    softplus,
    softsign,
    swish,
)
from headrace.api.nn.blocks import (
    batch_to_space,
    depth_to_space,
    required_space_to_batch_paddings,
    space_to_batch,
    space_to_depth,
)
from headrace.api.nn.convolution import (
    atrous_conv2d,
    atrous_conv2d_transpose,
    conv1d,
    conv1d_transpose,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    conv_transpose,
    convolution,
    depthwise_conv2d,
    depthwise_conv2d_backprop_filter,
    depthwise_conv2d_backprop_input,
    separable_conv2d,
)
from headrace.api.nn.ctc import ctc_beam_search_decoder, ctc_greedy_decoder, ctc_loss
from headrace.api.nn.embedding import embedding_lookup, embedding_lookup_sparse, safe_embedding_lookup_sparse
from headrace.api.nn.layers import bias_add, dropout, in_top_k, zero_fraction
from headrace.api.nn.losses import (
    l2_loss,
    log_poisson_loss,
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
    weighted_cross_entropy_with_logits,
)
from headrace.api.nn.normalizing import (
    batch_norm_with_global_normalization,
    batch_normalization,
    fused_batch_norm,
    local_response_normalization,
    lrn,
    moments,
    normalize_moments,
    sufficient_statistics,
    weighted_moments,
)
from headrace.api.nn.pooling import (
    avg_pool,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    dilation2d,
    erosion2d,
    fractional_avg_pool,
    fractional_max_pool,
    max_pool,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    max_pool_with_argmax,
    pool,
)
from headrace.api.nn.sampling_losses import (
    all_candidate_sampler,
    compute_accidental_hits,
    fixed_unigram_candidate_sampler,
    learned_unigram_candidate_sampler,
    log_uniform_candidate_sampler,
    nce_loss,
    sampled_softmax_loss,
    uniform_candidate_sampler,
)
from headrace.api.reductions import top_k
from headrace.api.tensors import is_tensor

_LATER = {
    "bidirectional_dynamic_rnn": "headrace.api.rnn.bidirectional:bidirectional_dynamic_rnn",
    "dynamic_rnn": "headrace.api.rnn.dynamic:dynamic_rnn",
    "raw_rnn": "headrace.api.rnn.raw:raw_rnn",
    "scaled_dot_product_attention": "headrace.api.rnn.attention:scaled_dot_product_attention",
    "stack_bidirectional_dynamic_rnn": "headrace.api.rnn.bidirectional:stack_bidirectional_dynamic_rnn",
    "static_bidirectional_rnn": "headrace.api.rnn.static:static_bidirectional_rnn",
    "static_rnn": "headrace.api.rnn.static:static_rnn",
    "static_state_saving_rnn": "headrace.api.rnn.static:static_state_saving_rnn",
}

if TYPE_CHECKING:
    from headrace.api.rnn.attention import scaled_dot_product_attention
    from headrace.api.rnn.bidirectional import bidirectional_dynamic_rnn, stack_bidirectional_dynamic_rnn
    from headrace.api.rnn.dynamic import dynamic_rnn
    from headrace.api.rnn.raw import raw_rnn
    from headrace.api.rnn.static import static_bidirectional_rnn, static_rnn, static_state_saving_rnn

__all__ = [
    "all_candidate_sampler", "atrous_conv2d", "atrous_conv2d_transpose", "avg_pool", "avg_pool1d", "avg_pool2d",
    "avg_pool3d", "batch_norm_with_global_normalization", "batch_normalization", "batch_to_space", "bias_add",
    "bidirectional_dynamic_rnn", "compute_accidental_hits", "conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose",
    "conv3d", "conv3d_transpose", "conv_transpose", "convolution", "crelu", "ctc_beam_search_decoder",
    "ctc_greedy_decoder", "ctc_loss", "depth_to_space", "depthwise_conv2d", "depthwise_conv2d_backprop_filter",
    "depthwise_conv2d_backprop_input", "dilation2d", "dropout", "dynamic_rnn", "elu", "embedding_lookup",
    "embedding_lookup_sparse", "erosion2d", "fixed_unigram_candidate_sampler", "fractional_avg_pool",
    "fractional_max_pool", "fused_batch_norm", "gelu", "in_top_k", "is_tensor", "l2_loss", "l2_normalize",
    "leaky_relu", "learned_unigram_candidate_sampler", "local_response_normalization", "log_poisson_loss",
    "log_sigmoid", "log_softmax", "log_uniform_candidate_sampler", "lrn", "max_pool", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_pool_with_argmax", "moments", "nce_loss", "normalize_moments", "pool", "raw_rnn", "relu",
    "relu6", "required_space_to_batch_paddings", "safe_embedding_lookup_sparse", "sampled_softmax_loss",
    "scaled_dot_product_attention", "selu", "separable_conv2d", "sigmoid", "sigmoid_cross_entropy_with_logits", "silu",
    "softmax", "softmax_cross_entropy_with_logits", "softplus", "softsign", "space_to_batch", "space_to_depth",
    "sparse_softmax_cross_entropy_with_logits", "stack_bidirectional_dynamic_rnn", "static_bidirectional_rnn",
    "static_rnn", "static_state_saving_rnn", "sufficient_statistics", "swish", "tanh", "top_k",
    "uniform_candidate_sampler", "weighted_cross_entropy_with_logits", "weighted_moments", "zero_fraction",
]  # fmt: skip

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
