"""Attention to a memory: in each step, a recurrent network reads all outputs of another.

`BahdanauAttention` and `LuongAttention` compare a query with a key for each row of the memory (`attention` explains the
terms). `AttentionWrapper` adds one of them to a cell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes, nest
from headrace.api import arrays, gathering, linalg, math, reductions, scopes, tensors
from headrace.api.layers.base import Layer
from headrace.api.rnn import sizes
from headrace.api.rnn.attention import masked_softmax
from headrace.api.rnn.cells import RNNCell, check_cell, like_inputs
from headrace.api.rnn.dynamic import prepare
from headrace.api.tensor_array import TensorArray
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import ShapeError
from headrace.ir.graph import Tensor


def additive_scores(keys: Any, query: Any, v: Any, g: Any, b: Any) -> Any:
    """Returns Bahdanau's scores, v · tanh(key + query): [batch, time].

    Args:
      keys: [batch, time, units].
      query: [batch, units].
      v: [units].
      g, b: a factor of the normalized v, and a bias [units]; None: v is not normalized.
    """
    both = keys + arrays.expand_dims(query, 1)
    if g is not None:
        both = both + b
        v = g * v * math.rsqrt(reductions.reduce_sum(math.square(v)))
    return reductions.reduce_sum(v * math.tanh(both), [2])


def multiplicative_scores(keys: Any, query: Any, g: Any) -> Any:
    """Returns Luong's scores, key · query: [batch, time].

    Args:
      keys: [batch, time, units].
      query: [batch, units].
      g: a factor of the scores, or None.
    """
    scores = arrays.squeeze(linalg.matmul(arrays.expand_dims(query, 1), keys, transpose_b=True), [1])
    return scores if g is None else g * scores


class _Attention(Layer):
    """Attention to a memory. Subclasses define the scores of a query."""

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any,
        probability_fn: Callable[[Any], Any] | None,
        name: str | None,
        dtype: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._num_units = num_units
        self._probability_fn = probability_fn
        b = scopes.builder(memory)
        self._memory = b.tensor(memory, None, "memory")
        if self._memory.shape is None or len(self._memory.shape) != 3 or self._memory.shape[2] is None:
            raise ShapeError(f"a memory is [batch, time, depth] of known depth, got {self._memory!r}")
        self._allowed = None
        if memory_sequence_length is not None:
            n = sizes.batch_size(self._memory, 1)
            self._allowed = gathering.sequence_mask(memory_sequence_length, n)
            live = arrays.expand_dims(self._allowed, -1)
            # elements beyond the lengths may have any value, also NaN
            zero = b.const(0, self._memory.dtype.base)
            self._memory = b.make("SelectV2", (live, self._memory, zero), {})
        self._keys: Any = None

    @property
    def memory_depth(self) -> int:
        """Depth of the memory, which is that of the result."""
        return int(self._memory.shape[2])

    @property
    def alignments_size(self) -> Any:
        """Number of time steps of the memory: an int or a scalar."""
        return sizes.batch_size(self._memory, 1)

    def build(self, input_shape: Any) -> None:
        """Creates the variables and the keys."""
        self._kernel = self.add_variable("memory_layer/kernel", [self.memory_depth, self._num_units])
        if isinstance(self._memory, Tensor):
            self._keys = linalg.tensordot(self._memory, self._kernel, 1)  # once, before the loop that calls the layer
        self._more(input_shape)

    def _copied(self, instead: Mapping[int, Any]) -> Any:
        made = super()._copied(instead)
        made._keys = None  # the keys depend on the replaced kernel
        return made

    def _all_keys(self) -> Any:
        return linalg.tensordot(self._memory, self._kernel, 1) if self._keys is None else self._keys

    def _more(self, input_shape: Any) -> None:
        """Creates the variables of the subclass."""

    def _scores(self, query: Any) -> Any:
        """Computes the scores, [batch, time], of a query [batch, depth]."""
        raise NotImplementedError

    def call(self, inputs: Any) -> tuple[Any, Any]:
        """Computes the attention of a query to the memory.

        Args:
          inputs: the query: [batch, depth].

        Returns:
          The weighted mean of the memory, [batch, memory depth], and the weights, [batch, time].
        """
        scores = self._scores(inputs)
        if self._probability_fn is None:
            weights = masked_softmax(scores, self._allowed)
        else:
            if self._allowed is not None:
                t = scores.dtype.base
                b = scopes.builder(scores)
                scores = b.make("SelectV2", (self._allowed, scores, b.const(np.array(-np.inf, t.numpy))), {})
            weights = self._probability_fn(scores)
        context = linalg.matmul(arrays.expand_dims(weights, 1), self._memory)
        return arrays.squeeze(context, [1]), weights


class BahdanauAttention(_Attention):
    """Attention to a memory with additive scores: v · tanh(key + query).

    Args:
      num_units: depth of the projected queries and keys.
      memory: [batch, time, depth]: the memory, such as the outputs of an encoder.
      memory_sequence_length: an int vector: number of time steps of the memory of each example; None: all.
      normalize: whether v is normalized and multiplied by a learned factor, and the sum has a bias.
      probability_fn: a function from scores to weights, [batch, time]; None: softmax.
      name, dtype: see `hr.layers.Layer`.

    Variables: memory_layer/kernel [depth, units], query_layer/kernel [query depth, units], attention_v [units]; if
    `normalize`, attention_g and attention_b [units].

    Source: TensorFlow's `tf.contrib.seq2seq.BahdanauAttention`; Bahdanau et al., "Neural machine translation by jointly
    learning to align and translate" (2015).

    Example:
      >>> import headrace as hr
      >>> attention = hr.layers.BahdanauAttention(4, memory=hr.ones((2, 5, 3)), memory_sequence_length=[5, 2])
      >>> context, weights = attention(hr.ones((2, 6)))
      >>> context.shape, weights.numpy()[1].tolist()
      ((2, 3), [0.5, 0.5, 0.0, 0.0, 0.0])
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        normalize: bool = False,
        probability_fn: Callable[[Any], Any] | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_units, memory, memory_sequence_length, probability_fn, name, dtype)
        self._normalize = normalize

    def _more(self, input_shape: Any) -> None:
        n = self._num_units
        self._query_kernel = self.add_variable("query_layer/kernel", [_depth(self, input_shape), n])
        self._v = self.add_variable("attention_v", [n])
        if self._normalize:
            self._g = self.add_variable("attention_g", [], initializer=lambda shape, dtype: _filled(1 / n**0.5, dtype))
            self._b = self.add_variable("attention_b", [n], initializer="zeros")

    def _scores(self, query: Any) -> Any:
        g, b = (self._g, self._b) if self._normalize else (None, None)
        return additive_scores(self._all_keys(), linalg.matmul(query, self._query_kernel), self._v, g, b)


class LuongAttention(_Attention):
    """Attention to a memory with multiplicative scores: key · query.

    Args:
      num_units: depth of the keys, which must be that of the queries.
      memory: [batch, time, depth]: the memory, such as the outputs of an encoder.
      memory_sequence_length: an int vector: number of time steps of the memory of each example; None: all.
      scale: whether the scores are multiplied by a learned factor.
      probability_fn: a function from scores to weights, [batch, time]; None: softmax.
      name, dtype: see `hr.layers.Layer`.

    Variables: memory_layer/kernel [depth, units]; if `scale`, attention_g.

    Source: TensorFlow's `tf.contrib.seq2seq.LuongAttention`; Luong et al., "Effective approaches to attention-based
    neural machine translation" (2015).

    Example:
      >>> import headrace as hr
      >>> attention = hr.layers.LuongAttention(4, memory=hr.ones((2, 5, 3)), memory_sequence_length=[5, 2])
      >>> context, weights = attention(hr.ones((2, 4)))
      >>> context.shape, weights.numpy()[1].tolist()
      ((2, 3), [0.5, 0.5, 0.0, 0.0, 0.0])
    """

    def __init__(
        self,
        num_units: int,
        memory: Any,
        memory_sequence_length: Any = None,
        scale: bool = False,
        probability_fn: Callable[[Any], Any] | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(num_units, memory, memory_sequence_length, probability_fn, name, dtype)
        self._scale = scale

    def _more(self, input_shape: Any) -> None:
        depth = _depth(self, input_shape)
        if depth != self._num_units:
            raise ShapeError(
                f"Incompatible or unknown inner dimensions between query and keys. Query ({depth}) and keys "
                f"({self._num_units}) must have the same depth: set num_units of '{self.name}' to that of the query"
            )
        if self._scale:
            self._g = self.add_variable("attention_g", [], initializer="ones")

    def _scores(self, query: Any) -> Any:
        return multiplicative_scores(self._all_keys(), query, self._g if self._scale else None)


def _depth(layer: Layer, shape: Any) -> int:
    if shape is None or len(shape) != 2 or shape[1] is None:
        raise ShapeError(f"the query of '{layer.name}' must be [batch, depth] of known depth, got {shape}")
    return int(shape[1])


def _filled(value: float, dtype: Any) -> Any:
    return tensors.constant(value, dtype)


class AttentionWrapperState(NamedTuple):
    """The state of an `AttentionWrapper`.

    Attributes:
      cell_state: the state of the wrapped cell.
      attention: the attention of the last step: [batch, attention size].
      time: number of steps so far: an int32 scalar.
      alignments: the weights of the last step: [batch, memory time].
      alignment_history: the weights of all steps, a `hr.TensorArray`, or ().

    Source: TensorFlow's `tf.contrib.seq2seq.AttentionWrapperState`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph():
      ...     mechanism = hr.layers.LuongAttention(2, hr.ones((1, 3, 2)))
      ...     cell = hr.layers.AttentionWrapper(hr.layers.LSTMCell(2), mechanism)
      ...     state = cell.zero_state(1, hr.float32)
      ...     state.clone(time=1).time, state.alignments.shape
      (1, (1, 3))
    """

    cell_state: Any
    attention: Any
    time: Any
    alignments: Any
    alignment_history: Any

    def clone(self, **changes: Any) -> AttentionWrapperState:
        """Returns a copy of the state with changed fields."""
        return self._replace(**changes)


class AttentionWrapper(RNNCell):
    """Cell that attends to a memory in each step.

    The wrapped cell receives its inputs joined with the attention of the previous step. Its output is the query of the
    attention of this step.

    Args:
      cell: the cell to wrap.
      attention_mechanism: a `BahdanauAttention` or a `LuongAttention`.
      attention_layer_size: size of a dense layer without bias that computes the attention from the joined output and
        context. None: the context is the attention.
      alignment_history: whether the state keeps the weights of all steps.
      cell_input_fn: a function from inputs and attention to the inputs of the cell; None: their concatenation.
      output_attention: whether the output is the attention; otherwise it is the output of the cell.
      initial_cell_state: the initial state of the cell; None: zeros.
      name: name of the layer and its scope.

    Variables: those of the cell and the attention, in the scope of the layer; attention_layer/kernel.

    Source: TensorFlow's `tf.contrib.seq2seq.AttentionWrapper`.

    Example:
      >>> import headrace as hr
      >>> attention = hr.layers.LuongAttention(4, memory=hr.ones((2, 5, 3)))
      >>> cell = hr.layers.AttentionWrapper(hr.layers.GRUCell(4), attention, attention_layer_size=6)
      >>> y, state = hr.nn.dynamic_rnn(cell, hr.ones((2, 7, 1)), dtype=hr.float32)
      >>> y.shape, state.alignments.shape, int(state.time)
      ((2, 7, 6), (2, 5), 7)
    """

    def __init__(
        self,
        cell: Any,
        attention_mechanism: Any,
        attention_layer_size: int | None = None,
        alignment_history: bool = False,
        cell_input_fn: Callable[[Any, Any], Any] | None = None,
        output_attention: bool = True,
        initial_cell_state: Any = None,
        name: str | None = None,
    ) -> None:
        super().__init__(name=name)
        check_cell("cell", cell)
        if not isinstance(attention_mechanism, _Attention):
            raise TypeError(
                f"attention_mechanism must be a layer of attention to a memory, got {attention_mechanism!r}"
            )
        self._cell = cell
        self._attention = attention_mechanism
        self._layer_size = attention_layer_size
        self._keeps_history = alignment_history
        self._cell_input_fn = cell_input_fn or (lambda inputs, attention: arrays.concat([inputs, attention], -1))
        self._output_attention = output_attention
        self._initial_cell_state = initial_cell_state

    @property
    def _width(self) -> int:
        return self._attention.memory_depth if self._layer_size is None else self._layer_size

    @property
    def output_size(self) -> Any:
        """Size of the attention, or of the output of the cell."""
        return self._width if self._output_attention else self._cell.output_size

    @property
    def state_size(self) -> AttentionWrapperState:
        """Sizes in the structure of the state; those of `time` and `alignment_history` are placeholders."""
        known = self._attention._memory.shape[1]
        history = TensorArray(self._attention._memory.dtype, flow=0) if self._keeps_history else ()
        return AttentionWrapperState(self._cell.state_size, self._width, 0, known, history)

    def zero_state(self, batch_size: Any, dtype: Any) -> AttentionWrapperState:
        """See `RNNCell.zero_state`."""
        with scopes.name_scope(None, type(self).__name__ + "ZeroState", [batch_size]):
            start = self._initial_cell_state
            n = self._attention.alignments_size
            b = scopes.builder(self._attention._memory, batch_size)
            weights = arrays.zeros([batch_size, n], dtype)
            history: Any = ()
            if self._keeps_history:
                history = TensorArray(dtype, size=0, dynamic_size=True, element_shape=weights.shape)
            return AttentionWrapperState(
                self._cell.zero_state(batch_size, dtype) if start is None else start,
                sizes.zeros(batch_size, self._width, dtype),
                b.const(0, dtypes.int32, "time"),
                weights,
                history,
            )

    def build(self, input_shape: Any) -> None:
        """Creates the variables of the cell, the attention and the attention layer."""
        assert self.dtype is not None
        spec = TensorSpec(input_shape, self.dtype)
        batch = input_shape[0] if input_shape else None
        # the call only determines the shape of the inputs of the cell
        with_attention = self._cell_input_fn(arrays.zeros([0, *input_shape[1:]], self.dtype),
                                             arrays.zeros([0, self._width], self.dtype))  # fmt: skip
        given = nest.map_leaves(lambda x: TensorSpec((batch, *x.shape[1:]), x.dtype.base), with_attention)
        prepare(self._cell, given)
        query = like_inputs(self._cell.output_size, spec)
        with self._attention._entered(query):
            if not self._attention.built:
                self._attention._build(query)
        if self._layer_size is not None:
            rows = query.shape[-1] + self._attention.memory_depth
            self._kernel = self.add_variable("attention_layer/kernel", [rows, self._layer_size])

    def call(self, inputs: Any, state: Any) -> tuple[Any, AttentionWrapperState]:
        """Runs a step of the cell, and attends to the memory."""
        if not isinstance(state, AttentionWrapperState):
            raise TypeError(
                f"Expected state to be an AttentionWrapperState, got {nest.describe(state)}; see zero_state"
            )
        output, cell_state = self._cell(self._cell_input_fn(inputs, state.attention), state.cell_state)
        context, weights = self._attention(output)
        attention = context
        if self._layer_size is not None:
            attention = linalg.matmul(arrays.concat([output, context], 1), self._kernel)
        history = state.alignment_history
        if self._keeps_history:
            history = history.write(state.time, weights)
        new = AttentionWrapperState(cell_state, attention, state.time + 1, weights, history)
        return attention if self._output_attention else output, new
