"""TensorFlow 1's `tf.nn`, for the ops that headrace has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, public_names
from headrace.api import arrays, linalg, math, nn, random, reductions, scopes, tensors
from headrace.api.functional import map_fn
from headrace.api.nn import ctc, embedding
from headrace.api.nn.losses import broadcast_softmax_cross_entropy
from headrace.api.nn.windows import sliding
from headrace.api.sparse_tensor import SparseTensor
from headrace.v1 import array_ops, math_ops
from headrace.v1.arguments import named
from headrace.v1.array_ops import depth_to_space as depth_to_space
from headrace.v1.array_ops import space_to_batch as space_to_batch
from headrace.v1.array_ops import space_to_depth as space_to_depth
from headrace.v1.graph import in_default_graph
from headrace.v1.math_ops import approx_max_k as approx_max_k
from headrace.v1.math_ops import approx_min_k as approx_min_k
from headrace.v1.math_ops import l2_normalize as l2_normalize
from headrace.v1.math_ops import log_sigmoid as log_sigmoid
from headrace.v1.math_ops import sigmoid as sigmoid
from headrace.v1.math_ops import tanh as tanh
from headrace.v1.math_ops import top_k as top_k
from headrace.v1.plain_ops import conv3d_backprop_filter as conv3d_backprop_filter
from headrace.v1.plain_ops import conv3d_backprop_filter_v2 as conv3d_backprop_filter_v2
from headrace.v1.plain_ops import quantized_avg_pool as quantized_avg_pool
from headrace.v1.plain_ops import quantized_conv2d as quantized_conv2d
from headrace.v1.plain_ops import quantized_max_pool as quantized_max_pool
from headrace.v1.plain_ops import quantized_relu_x as quantized_relu_x

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
    broadcast_softmax_cross_entropy, "labels logits axis name dim=axis", "softmax_cross_entropy_with_logits_v2"
)
sparse_softmax_cross_entropy_with_logits = in_default_graph(nn.sparse_softmax_cross_entropy_with_logits)
log_poisson_loss = in_default_graph(nn.log_poisson_loss)
l2_loss = in_default_graph(nn.l2_loss)

bias_add = in_default_graph(nn.bias_add)
crelu = named(nn.crelu, "features name axis")

# *** convolutions ***

conv1d = named(
    nn.conv1d,
    "value=input filters stride padding use_cudnn_on_gpu! data_format name input dilations",
)
conv2d = named(nn.conv2d, "input filter=filters strides padding use_cudnn_on_gpu! data_format dilations name filters")
conv3d = named(nn.conv3d, "input filter=filters strides padding data_format dilations name filters")
_TRANSPOSE = "value=input filter=filters output_shape strides padding data_format name input filters dilations"
conv1d_transpose = in_default_graph(nn.conv1d_transpose)
conv2d_transpose = named(nn.conv2d_transpose, _TRANSPOSE)
conv3d_transpose = named(nn.conv3d_transpose, _TRANSPOSE)
conv_transpose = in_default_graph(nn.conv_transpose)
convolution = named(
    nn.convolution,
    "input filter=filters padding strides dilation_rate=dilations name data_format filters dilations",
)
atrous_conv2d = in_default_graph(nn.atrous_conv2d)
atrous_conv2d_transpose = in_default_graph(nn.atrous_conv2d_transpose)
_SPREAD = "strides padding rate=dilations name data_format dilations"
depthwise_conv2d = named(nn.depthwise_conv2d, f"input filter {_SPREAD}")
separable_conv2d = named(nn.separable_conv2d, f"input depthwise_filter pointwise_filter {_SPREAD}")
depthwise_conv2d_backprop_input = in_default_graph(nn.depthwise_conv2d_backprop_input)
depthwise_conv2d_native_backprop_input = depthwise_conv2d_backprop_input
depthwise_conv2d_backprop_filter = in_default_graph(nn.depthwise_conv2d_backprop_filter)
depthwise_conv2d_native_backprop_filter = depthwise_conv2d_backprop_filter


@in_default_graph
def ctc_unique_labels(labels: Any, name: str | None = None) -> Any:
    """Finds the different labels of each row, and the place of each label among them.

    Args:
      labels: integers, [batch, length], padded with 0.
      name: name of the scope; "ctc_unique_labels" if None.

    Returns:
      The different labels of each row in the order of their first places, int64 [batch, length], padded with 0; and
      int32 places, [batch, length].

    Source: TensorFlow's `tf.nn.ctc_unique_labels`.
    """
    with scopes.name_scope(name, "ctc_unique_labels", [labels]):

        def of_row(row: Any) -> Any:
            found, places = array_ops.unique(row)
            missing = array_ops.size(places) - array_ops.size(found)
            return math_ops.cast(array_ops.pad(found, [[0, missing]]), dtypes.int64), places

        rows = array_ops.convert_to_tensor(labels, name="labels")
        return map_fn(of_row, rows, dtype=(dtypes.int64, dtypes.int32))


@in_default_graph
def with_space_to_batch(
    input: Any,
    dilation_rate: Any,
    padding: str,
    op: Callable[[Any, int, str], Any],
    filter_shape: Any = None,
    spatial_dims: Sequence[int] | None = None,
    data_format: str | None = None,
) -> Any:
    """Applies a dense window operation as one with dilated windows.

    Args:
      input: a tensor.
      dilation_rate: dilation of each spatial axis, ints.
      padding: "SAME" or "VALID".
      op: a function from a tensor, the number of spatial axes and a padding to the result of the dense operation.
      filter_shape: size of a window, needed for "SAME".
      spatial_dims: the spatial axes of `input`, ascending; None: those after the batch, or after the channels if
        `data_format` begins with "NC".
      data_format: layout of `input`.

    Raises:
      ValueError: a dilation is below 1, the axes do not ascend from 1, or the padding has no window.

    Source: TensorFlow's `tf.nn.with_space_to_batch`.
    """
    x = array_ops.convert_to_tensor(input, name="input")
    rates = np.asarray(tensors.constant_value(dilation_rate) if tensors.is_tensor(dilation_rate) else dilation_rate)
    count = len(rates)
    first = 2 if data_format is not None and data_format.startswith("NC") else 1
    axes = list(range(first, first + count)) if spatial_dims is None else [int(i) for i in spatial_dims]
    if axes != sorted(set(axes)) or axes[0] < 1:
        raise ValueError(f"`spatial_dims` must be a monotonically increasing sequence of positive integers, got {axes}")
    if (rates < 1).any():
        raise ValueError(f"`dilation_rate` must be positive, got {rates}")
    if (rates == 1).all():
        return op(x, count, padding)
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"`padding` must be one of 'SAME' or 'VALID', got {padding!r}")
    if padding == "SAME" and filter_shape is None:
        raise ValueError("`filter_shape` must be specified for `padding='SAME'`")
    base: Any = np.zeros((count, 2), np.int32)
    if padding == "SAME":
        beyond = (array_ops.convert_to_tensor(filter_shape)[:count] - 1) * rates.astype(np.int32)
        base = array_ops.stack([beyond // 2, beyond - beyond // 2], axis=1)
    sizes = array_ops.gather(array_ops.shape(x), axes)
    paddings, crops = array_ops.required_space_to_batch_paddings(sizes, rates, base)
    block = np.ones(axes[-1], np.int32)  # an axis between the spatial ones stays whole
    block[np.array(axes) - 1] = rates
    at = [[axis - 1] for axis in axes]
    paddings, crops = (array_ops.scatter_nd(at, p, [len(block), 2]) for p in (paddings, crops))
    inner = op(array_ops.space_to_batch_nd(x, block, paddings), count, "VALID")
    return array_ops.batch_to_space_nd(inner, block, crops)


# *** pooling ***

_POOL = "value=input ksize strides padding data_format name input"


def _called(pool: Callable[..., Any], default: str) -> Callable[..., Any]:
    """A function whose operation has another name if none is given."""

    @functools.wraps(pool)
    def function(name: str | None = None, **given: Any) -> Any:
        return pool(name=name or default, **given)

    return function


max_pool = named(_called(nn.max_pool2d, "MaxPool"), _POOL, "max_pool")
max_pool_v2 = in_default_graph(nn.max_pool)
max_pool1d = in_default_graph(nn.max_pool1d)
max_pool2d = in_default_graph(nn.max_pool2d)
max_pool3d = in_default_graph(nn.max_pool3d)
avg_pool = avg_pool2d = named(_called(nn.avg_pool2d, "AvgPool"), _POOL, "avg_pool")
avg_pool_v2 = in_default_graph(nn.avg_pool)
avg_pool1d = in_default_graph(nn.avg_pool1d)
avg_pool3d = in_default_graph(nn.avg_pool3d)
pool = named(
    nn.pool, "input window_shape pooling_type padding dilation_rate=dilations strides name data_format dilations"
)
max_pool_with_argmax = named(
    nn.max_pool_with_argmax,
    "input ksize strides padding data_format Targmax=output_dtype name output_dtype include_batch_in_index",
)
dilation2d = named(nn.dilation2d, "input filter=filters strides rates=dilations padding name filters dilations")
erosion2d = named(nn.erosion2d, "value kernel=filters strides rates=dilations padding name")

# *** normalization ***

lrn = local_response_normalization = in_default_graph(nn.local_response_normalization)
moments = named(nn.moments, "x axes shift name keep_dims=keepdims keepdims")
weighted_moments = named(nn.weighted_moments, "x axes frequency_weights name keep_dims=keepdims keepdims")
sufficient_statistics = named(nn.sufficient_statistics, "x axes shift keep_dims=keepdims name keepdims")
normalize_moments = in_default_graph(nn.normalize_moments)
batch_normalization = in_default_graph(nn.batch_normalization)
batch_norm_with_global_normalization = named(
    nn.batch_norm_with_global_normalization,
    "t=input m=mean v=variance beta gamma variance_epsilon scale_after_normalization name input mean variance",
)
fused_batch_norm = in_default_graph(nn.fused_batch_norm)

# *** classes ***

embedding_lookup = named(
    embedding.rows, "params ids partition_strategy name validate_indices! max_norm", "nn.embedding_lookup"
)
safe_embedding_lookup_sparse = named(
    embedding.safe_embedding_lookup_sparse,
    "embedding_weights sparse_ids sparse_weights combiner default_id name partition_strategy max_norm "
    "allow_fast_lookup",
)


@in_default_graph
def embedding_lookup_sparse(
    params: Any,
    sp_ids: Any,
    sp_weights: Any,
    partition_strategy: str = "mod",
    name: str | None = None,
    combiner: str | None = None,
    max_norm: Any = None,
    allow_fast_lookup: bool = False,
) -> Any:
    """Combines the embeddings of the ids of each example. See `headrace.nn.embedding_lookup_sparse`.

    Source: TensorFlow's `tf.nn.embedding_lookup_sparse`.
    """
    return embedding.embedding_lookup_sparse(
        params, sp_ids, sp_weights, combiner, max_norm, name, allow_fast_lookup, partition_strategy
    )


zero_fraction = in_default_graph(nn.zero_fraction)
in_top_k = named(nn.in_top_k, "predictions targets k name")
uniform_candidate_sampler = in_default_graph(nn.uniform_candidate_sampler)
log_uniform_candidate_sampler = in_default_graph(nn.log_uniform_candidate_sampler)
learned_unigram_candidate_sampler = in_default_graph(nn.learned_unigram_candidate_sampler)
fixed_unigram_candidate_sampler = in_default_graph(nn.fixed_unigram_candidate_sampler)
all_candidate_sampler = in_default_graph(nn.all_candidate_sampler)
compute_accidental_hits = in_default_graph(nn.compute_accidental_hits)
_SAMPLED = "weights biases labels inputs num_sampled num_classes num_true sampled_values remove_accidental_hits"


def _dealt_out(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a sampled loss with TensorFlow 1's default `partition_strategy`."""

    @functools.wraps(loss)
    def function(partition_strategy: str = "mod", **given: Any) -> Any:
        return loss(partition_strategy=partition_strategy, **given)

    return function


nce_loss = named(_dealt_out(nn.nce_loss), f"{_SAMPLED} partition_strategy name")
sampled_softmax_loss = named(_dealt_out(nn.sampled_softmax_loss), f"{_SAMPLED} partition_strategy name seed")
ctc_loss_v2 = in_default_graph(nn.ctc_loss)
ctc_greedy_decoder = in_default_graph(nn.ctc_greedy_decoder)
ctc_beam_search_decoder_v2 = named(
    nn.ctc_beam_search_decoder, "inputs sequence_length beam_width top_paths", "ctc_beam_search_decoder_v2"
)


@in_default_graph
def ctc_loss(
    labels: Any,
    inputs: Any = None,
    sequence_length: Any = None,
    preprocess_collapse_repeated: bool = False,
    ctc_merge_repeated: bool = True,
    ignore_longer_outputs_than_inputs: bool = False,
    time_major: bool = True,
    logits: Any = None,
) -> Any:
    """-log of the probability that sequences of labels have; the blank is the last class.

    Source: TensorFlow's `tf.nn.ctc_loss`. See `headrace.nn.ctc_loss`.

    Raises:
      TypeError: the labels are no SparseTensor.
    """
    if not isinstance(labels, SparseTensor):
        raise TypeError(f"Expected argument 'labels' to be a SparseTensor, got {labels!r}")
    given = inputs if logits is None else logits
    x = scopes.builder(given).tensor(given, None, "inputs")
    attrs = {
        "preprocess_collapse_repeated": preprocess_collapse_repeated,
        "ctc_merge_repeated": ctc_merge_repeated,
        "ignore_longer_outputs_than_inputs": ignore_longer_outputs_than_inputs,
    }
    x = x if time_major else arrays.transpose(x, (1, 0, 2))
    return ctc.sparse_loss(x, labels.indices, labels.values, sequence_length, attrs)


@in_default_graph
def ctc_beam_search_decoder(
    inputs: Any, sequence_length: Any, beam_width: int = 100, top_paths: int = 1, merge_repeated: bool = True
) -> Any:
    """Decodes the likeliest label sequences; repeated labels are merged by default.

    Source: TensorFlow's `tf.nn.ctc_beam_search_decoder`. See `headrace.nn.ctc_beam_search_decoder`.
    """
    return nn.ctc_beam_search_decoder(inputs, sequence_length, beam_width, top_paths, merge_repeated)


@in_default_graph
def depthwise_conv2d_native(
    input: Any,
    filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = None,
    name: str | None = None,
) -> Any:
    """The convolution of each channel of images with filters of its own, by one operation.

    Source: TensorFlow's `tf.nn.depthwise_conv2d_native`. See `headrace.nn.depthwise_conv2d`.
    """
    attrs = sliding(strides, padding, data_format, dilations)
    return scopes.builder(input, filter).make("DepthwiseConv2dNative", (input, filter), attrs, name)


def _fractional(type: str, what: str) -> Any:
    @in_default_graph
    def function(
        value: Any,
        pooling_ratio: Any,
        pseudo_random: bool = False,
        overlapping: bool = False,
        deterministic: bool = False,
        seed: int = 0,
        seed2: int = 0,
        name: str | None = None,
    ) -> Any:
        attrs = {
            "pooling_ratio": tuple(float(r) for r in pooling_ratio),
            "pseudo_random": pseudo_random,
            "overlapping": overlapping,
            "deterministic": deterministic,
            "seed": seed,
            "seed2": seed2,
        }
        return scopes.builder(value).make(type, (value,), attrs, name)

    function.__name__ = function.__qualname__ = what
    function.__doc__ = f"""`headrace.nn.{what}`, with the attributes of its operation as they are.

    Source: TensorFlow's `tf.nn.{what}`.
    """
    return function


fractional_max_pool = _fractional("FractionalMaxPool", "fractional_max_pool")
fractional_avg_pool = _fractional("FractionalAvgPool", "fractional_avg_pool")


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
        return broadcast_softmax_cross_entropy(labels, logits, dim if axis is None else axis, scope)


@in_default_graph
def dropout(
    x: Any,
    keep_prob: Any = None,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
    rate: Any = None,
) -> Any:
    """Sets elements to 0 with probability `rate` (1 - `keep_prob`) and scales the others.

    Source: TensorFlow's `tf.nn.dropout`. See `headrace.nn.dropout`.

    Raises:
      ValueError: neither or both of `keep_prob` and `rate` are given.
    """
    if (keep_prob is None) == (rate is None):
        raise ValueError("dropout needs rate, or keep_prob = 1 - rate: one of the two")
    return nn.dropout(x, 1 - keep_prob if rate is None else rate, noise_shape, seed, name)


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


def compute_average_loss(per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None) -> Any:
    """Returns the sum of weighted losses divided by the size of the batch.

    Args:
      per_example_loss: the losses, a vector or a tensor whose first axis is that of the examples.
      sample_weight: weights that broadcast to the losses; None: 1.
      global_batch_size: the size; None: that of the first axis.

    Source: TensorFlow's `tf.nn.compute_average_loss`.
    """
    return _average_loss(per_example_loss, sample_weight, global_batch_size)


@in_default_graph
def _average_loss(losses: Any, weights: Any, size: Any) -> Any:
    losses = tensors.convert_to_tensor(losses)
    size = arrays.shape(losses)[0] if size is None else size
    weighted_losses = losses if weights is None else losses * math.cast(weights, losses.dtype)
    return reductions.reduce_sum(weighted_losses) / math.cast(size, losses.dtype)


@in_default_graph
def scale_regularization_loss(regularization_loss: Any) -> Any:
    """Returns the sum of the losses of regularizers, of which each process adds its own.

    Source: TensorFlow's `tf.nn.scale_regularization_loss`.
    """
    return reductions.reduce_sum(regularization_loss)


class experimental:
    """Dropout with other generators; TensorFlow's `tf.nn.experimental`."""

    @staticmethod
    def stateless_dropout(
        x: Any, rate: Any, seed: Any, rng_alg: Any = "auto_select", noise_shape: Any = None, name: str | None = None
    ) -> Any:
        """Applies dropout with random numbers that the seed determines.

        Args:
          x: a tensor of floats.
          rate: the probability of 0.
          seed: two integers.
          rng_alg: the algorithm of the numbers.
          noise_shape: shape of the choices, which broadcasts to that of `x`; None: that of `x`.
          name: of the scope.
        """

        def uniform(shape: Any, dtype: Any) -> Any:
            return random.stateless_uniform(shape, seed, dtype=dtype, alg=rng_alg)

        return experimental.general_dropout(x, rate, uniform, noise_shape, name)

    @staticmethod
    @in_default_graph
    def general_dropout(
        x: Any, rate: Any, uniform_sampler: Callable[..., Any], noise_shape: Any = None, name: str | None = None
    ) -> Any:
        """Applies dropout with the numbers of a function.

        Args:
          x: a tensor of floats.
          rate: the probability of 0, in [0, 1).
          uniform_sampler: function of a shape and a dtype that returns numbers of [0, 1).
          noise_shape: shape of the choices, which broadcasts to that of `x`; None: that of `x`.
          name: of the scope.

        Raises:
          ValueError: the rate is no probability.
        """
        if isinstance(rate, (int, float)) and not 0 <= rate < 1:
            raise ValueError(f"`rate` must be a scalar tensor or a float in the range [0, 1). Received: rate={rate}")
        with scopes.name_scope(name, "dropout", [x]):
            x = tensors.convert_to_tensor(x)
            rate = tensors.convert_to_tensor(rate, x.dtype)
            drawn = uniform_sampler(shape=arrays.shape(x) if noise_shape is None else noise_shape, dtype=x.dtype)
            return x * (1 / (1 - rate)) * math.cast(math.greater_equal(drawn, rate), x.dtype)


@in_default_graph
def collapse_repeated(labels: Any, seq_length: Any, name: str | None = None) -> Any:
    """Merges equal labels that follow one another in a sequence.

    Args:
      labels: a matrix of labels, a sequence in each row.
      seq_length: the vector of the lengths of the sequences.
      name: name of the operations.

    Returns:
      The matrix of the merged labels, filled up with zeros, and the vector of the new lengths.

    Source: TensorFlow's `tf.nn.collapse_repeated`.
    """
    with scopes.name_scope(name or "collapse_repeated_labels"):
        labels, lengths = tensors.convert_to_tensor(labels), tensors.convert_to_tensor(seq_length)
        size = array_ops.shape(labels)
        begins = math_ops.not_equal(labels[:, 1:], labels[:, :-1])
        start = array_ops.fill([size[0], math_ops.minimum(size[1], 1)], True)
        kept = array_ops.concat([start, begins], 1) & array_ops.sequence_mask(lengths, size[1])
        new = math_ops.reduce_sum(math_ops.cast(kept, lengths.dtype), 1)
        places = array_ops.where(array_ops.sequence_mask(new))
        longest = math_ops.cast(math_ops.reduce_max(new), size.dtype)
        shape = math_ops.cast(array_ops.stack([size[0], longest]), places.dtype)
        return array_ops.scatter_nd(places, array_ops.boolean_mask(labels, kept), shape), new


# Imported on first use.
_LATER = {"rnn_cell": "headrace.v1.rnn_cell"} | {
    name: f"headrace.v1.rnn:{name}"
    for name in (
        "bidirectional_dynamic_rnn",
        "dynamic_rnn",
        "raw_rnn",
        "static_bidirectional_rnn",
        "static_rnn",
        "static_state_saving_rnn",
    )
}

if TYPE_CHECKING:
    from headrace.v1 import rnn_cell
    from headrace.v1.rnn import (
        bidirectional_dynamic_rnn as bidirectional_dynamic_rnn,
    )
    from headrace.v1.rnn import (
        dynamic_rnn as dynamic_rnn,
    )
    from headrace.v1.rnn import (
        raw_rnn as raw_rnn,
    )
    from headrace.v1.rnn import (
        static_bidirectional_rnn as static_bidirectional_rnn,
    )
    from headrace.v1.rnn import (
        static_rnn as static_rnn,
    )
    from headrace.v1.rnn import (
        static_state_saving_rnn as static_state_saving_rnn,
    )

# fmt: off
__all__ = [
    "all_candidate_sampler", "approx_max_k", "approx_min_k", "atrous_conv2d", "atrous_conv2d_transpose", "avg_pool",
    "avg_pool1d", "avg_pool2d", "avg_pool3d", "avg_pool_v2", "batch_norm_with_global_normalization",
    "batch_normalization", "bias_add", "bidirectional_dynamic_rnn", "collapse_repeated", "compute_accidental_hits",
    "compute_average_loss", "conv1d", "conv1d_transpose", "conv2d", "conv2d_backprop_filter", "conv2d_backprop_input",
    "conv2d_transpose", "conv3d", "conv3d_backprop_filter", "conv3d_backprop_filter_v2", "conv3d_transpose",
    "conv_transpose", "convolution", "crelu", "ctc_beam_search_decoder", "ctc_beam_search_decoder_v2",
    "ctc_greedy_decoder", "ctc_loss", "ctc_loss_v2", "ctc_unique_labels", "depth_to_space", "depthwise_conv2d",
    "depthwise_conv2d_backprop_filter", "depthwise_conv2d_backprop_input", "depthwise_conv2d_native",
    "depthwise_conv2d_native_backprop_filter", "depthwise_conv2d_native_backprop_input", "dilation2d", "dropout",
    "dynamic_rnn", "elu", "embedding_lookup", "embedding_lookup_sparse", "erosion2d", "experimental",
    "fixed_unigram_candidate_sampler", "fractional_avg_pool", "fractional_max_pool", "fused_batch_norm", "in_top_k",
    "l2_loss", "l2_normalize", "leaky_relu", "learned_unigram_candidate_sampler", "local_response_normalization",
    "log_poisson_loss", "log_sigmoid", "log_softmax", "log_uniform_candidate_sampler", "lrn", "max_pool", "max_pool1d",
    "max_pool2d", "max_pool3d", "max_pool_v2", "max_pool_with_argmax", "moments", "nce_loss", "normalize_moments",
    "pool", "quantized_avg_pool", "quantized_conv2d", "quantized_max_pool", "quantized_relu_x", "raw_rnn", "relu",
    "relu6", "relu_layer", "rnn_cell", "safe_embedding_lookup_sparse", "sampled_softmax_loss",
    "scale_regularization_loss", "selu", "separable_conv2d", "sigmoid", "sigmoid_cross_entropy_with_logits", "silu",
    "softmax", "softmax_cross_entropy_with_logits", "softmax_cross_entropy_with_logits_v2", "softplus", "softsign",
    "space_to_batch", "space_to_depth", "sparse_softmax_cross_entropy_with_logits", "static_bidirectional_rnn",
    "static_rnn", "static_state_saving_rnn", "sufficient_statistics", "swish", "tanh", "top_k",
    "uniform_candidate_sampler", "weighted_cross_entropy_with_logits", "weighted_moments", "with_space_to_batch",
    "xw_plus_b", "zero_fraction",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__, _LATER)
