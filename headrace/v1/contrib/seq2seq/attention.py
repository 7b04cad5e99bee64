"""Attention of `tf.contrib.seq2seq`: mechanisms, which weight the steps of a memory, and `AttentionWrapper`.

A mechanism compares a query with the *keys* of the memory, which a dense layer makes once. A call returns weights,
`alignments`, and the state for the next step. The wrapper adds the weighted mean of the *values* to the inputs of a
cell.
"""

from __future__ import annotations

import math as python_math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import arrays, functional, gathering, initializers, linalg, math, nn, random, reductions, scopes
from headrace.api.rnn import memory as scoring
from headrace.api.rnn import sizes
from headrace.api.rnn.cells import check_cell
from headrace.errors import ShapeError
from headrace.v1 import layers
from headrace.v1.graph import in_default_graph
from headrace.v1.rnn_cell import RNNCell
from headrace.v1.tensor_array import TensorArray
from headrace.v1.variable_scopes import variable_scope
from headrace.v1.variable_store import get_variable

Probability = Callable[..., Any]


class AttentionMechanism:
    """Base class of the mechanisms of attention.

    Source: TensorFlow's `tf.contrib.seq2seq.AttentionMechanism`.
    """

    @property
    def alignments_size(self) -> Any:
        """Number of steps of the memory."""
        raise NotImplementedError

    @property
    def state_size(self) -> Any:
        """Size of the state."""
        raise NotImplementedError


class BaseAttention(AttentionMechanism):
    """Base of mechanisms with a memory.

    Args:
      memory: [batch, time, depth].
      num_units: size of the keys.
      memory_sequence_length: number of steps of each example's memory; None: all.
      probability_fn: a function from scores and the previous state to weights.
      score_mask_value: score of a step that an example does not have; None: -infinity.
      dtype: dtype of the variables; None: that of the memory.
      custom_key_value_fn: a function from keys and values to others, or None.
      query_layer: whether the query is projected by a dense layer, "query_layer".
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any,
        probability_fn: Probability,
        score_mask_value: Any,
        dtype: Any,
        custom_key_value_fn: Callable[[Any, Any], Any] | None,
        query_layer: bool,
    ) -> None:
        memory = nest.map_leaves(lambda m: scopes.builder(m).tensor(m, None, "memory"), memory)
        if memory.shape is None or len(memory.shape) < 3 or memory.shape[2] is None:
            raise ShapeError(f"Expected memory {memory.name} to have fully defined inner dimensions, got {memory!r}")
        self._probability_fn = probability_fn
        self._dtype = dtypes.as_dtype(dtype or memory.dtype).base
        self._num_units = num_units
        self._allowed = None
        if memory_sequence_length is not None:
            self._allowed = gathering.sequence_mask(memory_sequence_length, sizes.batch_size(memory, 1))
            b = scopes.builder(memory)
            # elements beyond the lengths may have any value, also NaN
            memory = b.make(
                "SelectV2", (arrays.expand_dims(self._allowed, -1), memory, b.const(0, memory.dtype.base)), {}
            )
        self._mask_value = -np.inf if score_mask_value is None else score_mask_value
        self._values = memory
        self._memory_layer = layers.Dense(num_units, name="memory_layer", use_bias=False, dtype=self._dtype)
        self._query_layer = layers.Dense(num_units, name="query_layer", use_bias=False, dtype=self._dtype)
        self._has_query_layer = query_layer
        self._keys = self._memory_layer(memory)
        if custom_key_value_fn is not None:
            self._keys, self._values = custom_key_value_fn(self._keys, self._values)
        self._batch_size, self._steps = sizes.batch_size(self._keys, 0), sizes.batch_size(self._keys, 1)

    @property
    def memory_layer(self) -> Any:
        """The dense layer that makes the keys."""
        return self._memory_layer

    @property
    def query_layer(self) -> Any:
        """The dense layer that projects the query, or None."""
        return self._query_layer if self._has_query_layer else None

    @property
    def values(self) -> Any:
        """The memory, with zeros for the steps that an example does not have."""
        return self._values

    @property
    def keys(self) -> Any:
        """[batch, time, num_units]."""
        return self._keys

    @property
    def batch_size(self) -> Any:
        """Number of examples: an int or a scalar."""
        return self._batch_size

    @property
    def alignments_size(self) -> Any:
        """Number of steps of the memory: an int or a scalar."""
        return self._steps

    @property
    def state_size(self) -> Any:
        """Size of the weights."""
        return self._steps

    @property
    def dtype(self) -> Any:
        """The dtype of the variables."""
        return self._dtype

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the weights before the first step: zeros."""
        return arrays.zeros([batch_size, self._steps], dtype)

    def initial_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the state before the first step."""
        return self.initial_alignments(batch_size, dtype)

    def _weighed(self, scores: Any, state: Any) -> tuple[Any, Any]:
        """Returns the weights and the next state for scores [batch, time]."""
        if self._allowed is not None:
            b = scopes.builder(scores)
            least = b.const(np.array(self._mask_value, scores.dtype.base.numpy))
            scores = b.make("SelectV2", (self._allowed, scores, least), {})
        alignments = self._probability_fn(scores, state)
        return alignments, alignments

    def _add_normalization(self, normalize: bool) -> tuple[Any, Any]:
        """Returns the variables attention_g and attention_b, or None."""
        if not normalize:
            return None, None
        first = initializers.Constant(python_math.sqrt(1.0 / self._num_units))
        g = get_variable("attention_g", [], self._dtype, first)
        return g, get_variable("attention_b", [self._num_units], self._dtype, initializers.zeros())


def _unary(probability_fn: Callable[[Any], Any] | None) -> Probability:
    function = probability_fn or nn.softmax
    return lambda scores, _: function(scores)


class LuongAttention(BaseAttention):
    """Attention with multiplicative scores: key · query.

    Variables: memory_layer/kernel; with `scale` luong_attention/attention_g.

    Args:
      num_units: depth of the keys, which must be that of the queries.
      memory: [batch, time, depth]: the memory, such as the outputs of an encoder.
      memory_sequence_length: number of steps of each example's memory; None: all.
      scale: whether the scores are multiplied by a learned factor.
      probability_fn: a function from scores to weights; None: softmax.
      score_mask_value: score of a step that an example does not have; None: -infinity.
      dtype: dtype of the variables; None: that of the memory.
      custom_key_value_fn: a function from keys and values to others, or None.
      name: name of the scope of the operations that prepare the memory.

    Source: TensorFlow's `tf.contrib.seq2seq.LuongAttention`; Luong et al., "Effective approaches to attention-based
    neural machine translation" (2015).
    """

    @in_default_graph
    def __init__(
        self, num_units: int, memory: Any, memory_sequence_length: Any = None, scale: bool = False,
        probability_fn: Callable[[Any], Any] | None = None, score_mask_value: Any = None, dtype: Any = None,
        custom_key_value_fn: Callable[[Any, Any], Any] | None = None, name: str = "LuongAttention",
    ) -> None:  # fmt: skip
        self._scale, self._name = scale, name
        with scopes.name_scope(name, "AttentionMechanismInit"):
            super().__init__(
                num_units, memory, memory_sequence_length, _unary(probability_fn), score_mask_value, dtype,
                custom_key_value_fn, False,
            )  # fmt: skip

    @in_default_graph
    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Returns the weights [batch, time] for a query [batch, depth], and the next state."""
        with variable_scope(None, "luong_attention", [query]):
            return self._weighed(_products(self, query, self._scale), state)


def _products(mechanism: BaseAttention, query: Any, scale: bool) -> Any:
    """Returns the multiplicative scores of a query."""
    depth = None if query.shape is None else query.shape[-1]
    if depth != mechanism._keys.shape[-1]:
        raise ShapeError(
            f"Incompatible or unknown inner dimensions between query and keys.  Query ({query.name}) has units: "
            f"{depth}.  Keys ({mechanism._keys.name}) have units: {mechanism._keys.shape[-1]}.  Perhaps you need to "
            f"set num_units to the keys' dimension ({mechanism._keys.shape[-1]})?"
        )
    g = get_variable("attention_g", [], query.dtype.base, initializers.ones()) if scale else None
    return scoring.multiplicative_scores(mechanism._keys, query, g)


class BahdanauAttention(BaseAttention):
    """Attention with additive scores: v · tanh(key + query).

    Variables: memory_layer/kernel, bahdanau_attention/query_layer/kernel, bahdanau_attention/attention_v; with
    `normalize` attention_g and attention_b.

    Args:
      normalize: whether v is normalized and multiplied by a learned factor, and the sum has a bias.
      Others: see `LuongAttention`.

    Source: TensorFlow's `tf.contrib.seq2seq.BahdanauAttention`; Bahdanau et al., "Neural machine translation by jointly
    learning to align and translate" (2015).
    """

    @in_default_graph
    def __init__(
        self, num_units: int, memory: Any, memory_sequence_length: Any = None, normalize: bool = False,
        probability_fn: Callable[[Any], Any] | None = None, score_mask_value: Any = None, dtype: Any = None,
        custom_key_value_fn: Callable[[Any, Any], Any] | None = None, name: str = "BahdanauAttention",
    ) -> None:  # fmt: skip
        self._normalize, self._name = normalize, name
        with scopes.name_scope(name, "AttentionMechanismInit"):
            super().__init__(
                num_units, memory, memory_sequence_length, _unary(probability_fn), score_mask_value, dtype,
                custom_key_value_fn, True,
            )  # fmt: skip

    @in_default_graph
    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Returns the weights [batch, time] for a query [batch, depth], and the next state."""
        with variable_scope(None, "bahdanau_attention", [query]):
            return self._weighed(self._scores(query), state)

    def _scores(self, query: Any) -> Any:
        projected = self._query_layer(query)
        v = get_variable("attention_v", [self._num_units], self._dtype)
        return scoring.additive_scores(self._keys, projected, v, *self._add_normalization(self._normalize))


# *** monotonic attention ***


@in_default_graph
def safe_cumprod(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Returns the cumulative product by a sum of logarithms, with a floor for zeros.

    Source: TensorFlow's `tf.contrib.seq2seq.safe_cumprod`.
    """
    with scopes.name_scope(None, "SafeCumprod", [x]):
        x = scopes.builder(x).tensor(x, None, "x")
        tiny = float(np.finfo(x.dtype.base.numpy).tiny)
        return math.exp(reductions.cumsum(math.log(math.clip_by_value(x, tiny, 1)), *args, **kwargs))


@in_default_graph
def monotonic_attention(p_choose_i: Any, previous_attention: Any, mode: str) -> Any:
    """Returns the distribution of a monotonic attention, which moves forward in the memory alone.

    Args:
      p_choose_i: the probability of each step of the memory to be chosen: [batch, time].
      previous_attention: the distribution of the step before: [batch, time].
      mode: "recursive", "parallel" (the same by cumulative sums and products), or "hard" (of samples, 0 and 1).

    Raises:
      ValueError: the mode is another one.

    Source: TensorFlow's `tf.contrib.seq2seq.monotonic_attention`; Raffel et al., "Online and linear-time attention by
    enforcing monotonic alignments" (2017).
    """
    b = scopes.builder(p_choose_i, previous_attention)
    p, before = b.tensor(p_choose_i, None, "p_choose_i"), b.tensor(previous_attention, None, "previous_attention")
    if mode == "recursive":
        missed = arrays.concat([arrays.ones_like(p[:, :1]), 1 - p[:, :-1]], 1)
        found = functional.scan(
            lambda x, yz: yz[0] * x + yz[1],
            [arrays.transpose(missed), arrays.transpose(before)],
            arrays.zeros_like(p[:, 0]),
        )
        return p * arrays.transpose(found)
    if mode == "parallel":
        missed = safe_cumprod(1 - p, axis=1, exclusive=True)
        return p * missed * reductions.cumsum(before / math.clip_by_value(missed, 1e-10, 1.0), axis=1)
    if mode == "hard":
        open_ = p * reductions.cumsum(before, axis=1)
        return open_ * reductions.cumprod(1 - open_, axis=1, exclusive=True)
    raise ValueError("mode must be 'recursive', 'parallel', or 'hard'.")


class _Monotonic(BaseAttention):
    """Base of mechanisms whose weights are those of `monotonic_attention`."""

    _bias_init: float

    def initial_alignments(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the weights before the first step: 1 for the first step of the memory."""
        return arrays.one_hot(arrays.zeros([batch_size], dtypes.int32), self._steps, dtype=dtype)

    def _biased(self, scores: Any) -> Any:
        bias = get_variable("attention_score_bias", [], self._dtype, initializers.Constant(self._bias_init))
        return scores + bias


def _monotonic(noise: float, seed: int | None, mode: str) -> Probability:
    def probability(scores: Any, previous: Any) -> Any:
        if noise > 0:
            scores = scores + noise * random.normal(arrays.shape(scores), dtype=scores.dtype.base, seed=seed)
        if mode == "hard":
            p = math.cast(scores > 0, scores.dtype.base)
        else:
            p = math.sigmoid(scores)
        return monotonic_attention(p, previous, mode)

    return probability


class BahdanauMonotonicAttention(_Monotonic):
    """Monotonic attention with additive scores. See `BahdanauAttention`.

    Args:
      sigmoid_noise: standard deviation of noise that is added to the scores.
      sigmoid_noise_seed: seed of the noise.
      score_bias_init: initial value of the variable attention_score_bias.
      mode: see `monotonic_attention`.
      Others: see `BahdanauAttention`.

    Source: TensorFlow's `tf.contrib.seq2seq.BahdanauMonotonicAttention`.
    """

    @in_default_graph
    def __init__(
        self, num_units: int, memory: Any, memory_sequence_length: Any = None, normalize: bool = False,
        score_mask_value: Any = None, sigmoid_noise: float = 0.0, sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0, mode: str = "parallel", dtype: Any = None,
        custom_key_value_fn: Callable[[Any, Any], Any] | None = None, name: str = "BahdanauMonotonicAttention",
    ) -> None:  # fmt: skip
        self._normalize, self._bias_init, self._name = normalize, score_bias_init, name
        chooses = _monotonic(sigmoid_noise, sigmoid_noise_seed, mode)
        with scopes.name_scope(name, "AttentionMechanismInit"):
            super().__init__(
                num_units, memory, memory_sequence_length, chooses, score_mask_value, dtype, custom_key_value_fn, True
            )

    @in_default_graph
    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Returns the weights [batch, time] for a query [batch, depth], and the next state."""
        with variable_scope(None, "bahdanau_monotonic_attention", [query]):
            projected = self._query_layer(query)
            v = get_variable("attention_v", [self._num_units], self._dtype)
            scores = scoring.additive_scores(self._keys, projected, v, *self._add_normalization(self._normalize))
            return self._weighed(self._biased(scores), state)


class LuongMonotonicAttention(_Monotonic):
    """Monotonic attention with multiplicative scores. See `LuongAttention`, `BahdanauMonotonicAttention`.

    Source: TensorFlow's `tf.contrib.seq2seq.LuongMonotonicAttention`.
    """

    @in_default_graph
    def __init__(
        self, num_units: int, memory: Any, memory_sequence_length: Any = None, scale: bool = False,
        score_mask_value: Any = None, sigmoid_noise: float = 0.0, sigmoid_noise_seed: int | None = None,
        score_bias_init: float = 0.0, mode: str = "parallel", dtype: Any = None,
        custom_key_value_fn: Callable[[Any, Any], Any] | None = None, name: str = "LuongMonotonicAttention",
    ) -> None:  # fmt: skip
        self._scale, self._bias_init, self._name = scale, score_bias_init, name
        chooses = _monotonic(sigmoid_noise, sigmoid_noise_seed, mode)
        with scopes.name_scope(name, "AttentionMechanismInit"):
            super().__init__(
                num_units, memory, memory_sequence_length, chooses, score_mask_value, dtype, custom_key_value_fn, False
            )

    @in_default_graph
    def __call__(self, query: Any, state: Any) -> tuple[Any, Any]:
        """Returns the weights [batch, time] for a query [batch, depth], and the next state."""
        with variable_scope(None, "luong_monotonic_attention", [query]):
            return self._weighed(self._biased(_products(self, query, self._scale)), state)


@in_default_graph
def hardmax(logits: Any, name: str | None = None) -> Any:
    """Returns 1 for the largest element of each row, and 0 for the others.

    Source: TensorFlow's `tf.contrib.seq2seq.hardmax`.
    """
    with scopes.name_scope(name, "Hardmax", [logits]):
        x = scopes.builder(logits).tensor(logits, None, "logits")
        depth = arrays.shape(x)[-1] if x.shape is None or x.shape[-1] is None else x.shape[-1]
        return arrays.one_hot(reductions.argmax(x, -1), depth, dtype=x.dtype.base)


# *** the wrapper ***


class AttentionWrapperState(NamedTuple):
    """The state of an `AttentionWrapper`.

    Attributes:
      cell_state: state of the wrapped cell.
      attention: attention of the last step: [batch, size].
      time: number of steps so far: an int32 scalar.
      alignments: weights of the last step: [batch, memory time], or a tuple of them for several mechanisms.
      alignment_history: the weights of all steps, a `tf.TensorArray` or a tuple of them, or ().
      attention_state: state of the mechanism, or a tuple of states.

    Source: TensorFlow's `tf.contrib.seq2seq.AttentionWrapperState`.
    """

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any
    attention_state: Any

    @in_default_graph
    def clone(self, **kwargs: Any) -> AttentionWrapperState:
        """Returns a copy of the state with other fields, as in `clone(cell_state=encoder_state)`.

        Raises:
          ValueError: a tensor has another shape than that which it replaces.
        """
        for name, new in kwargs.items():
            for x, y in zip(nest.flatten(getattr(self, name)), nest.flatten(new), strict=False):
                old, found = getattr(x, "shape", None), getattr(y, "shape", None)
                if not shapes.compatible(old, found):
                    raise ShapeError(
                        f"The shape of the AttentionWrapperState is expected to be same as the one to clone: {name} "
                        f"has {shapes.show(old)}, the new value {shapes.show(found)}"
                    )
        return self._replace(**kwargs)


class AttentionWrapper(RNNCell):
    """Cell that attends to one memory or several in each step.

    The wrapped cell receives its inputs joined with the attention of the previous step. Its output is the query.

    Variables, in the scope "attention_wrapper": those of the cell and of the mechanisms; attention_layer/kernel.

    Args:
      cell: the cell to wrap.
      attention_mechanism: a mechanism, or a list of them.
      attention_layer_size: size of a dense layer without bias from the joined output and context to the attention, or a
        list of sizes. None: the context is the attention.
      alignment_history: whether the state keeps the weights of all steps.
      cell_input_fn: a function from inputs and attention to the inputs of the cell; None: their concatenation.
      output_attention: whether the output is the attention; otherwise it is the output of the cell.
      initial_cell_state: initial state of the cell; None: zeros.
      name: name of the layer.
      attention_layer: in place of `attention_layer_size`, a layer or a list of layers.
      attention_fn: a function (mechanism, output, state, layer) that returns attention, alignments and state.

    Raises:
      TypeError: an argument has another type.
      ValueError: the numbers of mechanisms and layers differ, or layers are given in both ways.

    Source: TensorFlow's `tf.contrib.seq2seq.AttentionWrapper`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     seq2seq = tf.contrib.seq2seq
      ...     attention = seq2seq.LuongAttention(4, memory=tf.ones([2, 5, 3]))
      ...     cell = seq2seq.AttentionWrapper(tf.nn.rnn_cell.GRUCell(4), attention, attention_layer_size=6)
      ...     y, state = tf.nn.dynamic_rnn(cell, tf.ones([2, 7, 1]), dtype=tf.float32)
      ...     y.shape.as_list(), state.alignments.shape.as_list()
      ([2, 7, 6], [2, 5])
    """

    def __init__(
        self, cell: Any, attention_mechanism: Any, attention_layer_size: Any = None, alignment_history: bool = False,
        cell_input_fn: Callable[[Any, Any], Any] | None = None, output_attention: bool = True,
        initial_cell_state: Any = None, name: str | None = None, attention_layer: Any = None,
        attention_fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name)
        check_cell("cell", cell)
        self._is_multi = isinstance(attention_mechanism, (list, tuple))
        self._mechanisms = tuple(attention_mechanism) if self._is_multi else (attention_mechanism,)
        for mechanism in self._mechanisms:
            if not isinstance(mechanism, AttentionMechanism):
                raise TypeError(
                    "attention_mechanism must be an AttentionMechanism or a list of AttentionMechanism instances, "
                    f"got {mechanism!r}"
                )
        if cell_input_fn is not None and not callable(cell_input_fn):
            raise TypeError(f"cell_input_fn must be callable, saw type: {type(cell_input_fn).__name__}")
        if attention_layer_size is not None and attention_layer is not None:
            raise ValueError("Only one of attention_layer_size and attention_layer should be set")
        self._cell, self._keeps_history, self._outputs_attention = cell, alignment_history, output_attention
        self._cell_input_fn = cell_input_fn or (lambda inputs, attention: arrays.concat([inputs, attention], -1))
        self._attention_fn = attention_fn or _attended
        self._first = initial_cell_state
        self._layers, self._widths = self._make_layers(attention_layer_size, attention_layer)

    def _make_layers(self, given: Any, made: Any) -> tuple[list[Any], list[int]]:
        """Returns the attention layers, or None for each mechanism, and the sizes of the attentions."""
        n = len(self._mechanisms)
        if made is not None:
            found = list(made) if isinstance(made, (list, tuple)) else [made]
            widths = [int(layer.units) for layer in found]
        elif given is not None:
            widths = [int(k) for k in given] if isinstance(given, (list, tuple)) else [int(given)]
            pairs = zip(widths, self._mechanisms, strict=False)
            found = [layers.Dense(k, name="attention_layer", use_bias=False, dtype=m.dtype) for k, m in pairs]
        else:
            widths = [int(m.values.shape[-1]) for m in self._mechanisms]
            found = [None] * n
        if len(widths) != n or len(found) != n:
            raise ValueError(
                f"If provided, attention_layer_size must contain exactly one integer per attention_mechanism, saw: "
                f"{len(widths)} vs {n}"
            )
        return found, widths

    def _item_or_tuple(self, parts: Sequence[Any]) -> Any:
        return tuple(parts) if self._is_multi else parts[0]

    @property
    def output_size(self) -> Any:
        """Size of the attention, or of the output of the cell."""
        return sum(self._widths) if self._outputs_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        """Sizes in the structure of the state; those of `time` and `alignment_history` are placeholders."""
        return AttentionWrapperState(
            cell_state=self._cell.state_size,
            time=0,
            attention=sum(self._widths),
            alignments=self._item_or_tuple([m.alignments_size for m in self._mechanisms]),
            attention_state=self._item_or_tuple([m.state_size for m in self._mechanisms]),
            alignment_history=self._item_or_tuple(
                [TensorArray(m.dtype, flow=0) if self._keeps_history else () for m in self._mechanisms]
            ),
        )

    @in_default_graph
    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        """Returns the state before the first step. See `RNNCell.zero_state`.

        Raises:
          ValueError: the batch size is not that of the memory.
        """
        for m in self._mechanisms:
            if isinstance(batch_size, int) and isinstance(m.batch_size, int) and batch_size != m.batch_size:
                raise ShapeError(
                    f"When calling zero_state of AttentionWrapper {self.name}: Non-matching batch sizes between the "
                    f"memory (encoder output), {m.batch_size}, and the requested batch size, {batch_size}.  Are you "
                    "using the BeamSearchDecoder?  You may need to tile your initial state via the tf.contrib.seq2seq."
                    "tile_batch function with argument multiplier=beam_width."
                )
        with scopes.name_scope(None, type(self).__name__ + "ZeroState", [batch_size]):
            start = self._cell.zero_state(batch_size, dtype) if self._first is None else self._first
            alignments = [m.initial_alignments(batch_size, dtype) for m in self._mechanisms]
            history: list[Any] = [
                TensorArray(dtype, size=0, dynamic_size=True, element_shape=a.shape) if self._keeps_history else ()
                for a in alignments
            ]
            return AttentionWrapperState(
                cell_state=start,
                time=arrays.zeros([], dtypes.int32),
                attention=sizes.zeros(batch_size, sum(self._widths), dtype),
                alignments=self._item_or_tuple(alignments),
                attention_state=self._item_or_tuple([m.initial_state(batch_size, dtype) for m in self._mechanisms]),
                alignment_history=self._item_or_tuple(history),
            )

    def call(self, inputs: Any, state: Any) -> Any:
        """Runs a step of the cell and the attention.

        Raises:
          TypeError: the state is no `AttentionWrapperState`.
        """
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(
                f"Expected state to be instance of AttentionWrapperState. Received type {type(state)} instead."
            )
        outputs, inner = self._cell(self._cell_input_fn(inputs, state.attention), state.cell_state)
        before, history = (list(x) if self._is_multi else [x] for x in (state.attention_state, state.alignment_history))
        attentions, alignments, states = [], [], []
        for k, (mechanism, layer) in enumerate(zip(self._mechanisms, self._layers, strict=True)):
            attention, weights, after = self._attention_fn(mechanism, outputs, before[k], layer)
            attentions.append(attention)
            alignments.append(weights)
            states.append(after)
            if self._keeps_history:
                history[k] = history[k].write(state.time, weights)
        attention = attentions[0] if len(attentions) == 1 else arrays.concat(attentions, 1)
        new = AttentionWrapperState(
            cell_state=inner,
            time=state.time + 1,
            attention=attention,
            alignments=self._item_or_tuple(alignments),
            attention_state=self._item_or_tuple(states),
            alignment_history=self._item_or_tuple(history),
        )
        return (attention if self._outputs_attention else outputs), new


def _attended(mechanism: Any, outputs: Any, state: Any, layer: Any) -> tuple[Any, Any, Any]:
    """Returns the attention, the weights and the next state of a mechanism."""
    alignments, after = mechanism(outputs, state)
    context = arrays.squeeze(linalg.matmul(arrays.expand_dims(alignments, 1), mechanism.values), [1])
    attention = context if layer is None else layer(arrays.concat([outputs, context], 1))
    return attention, alignments, after
