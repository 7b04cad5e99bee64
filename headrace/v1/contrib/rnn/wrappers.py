"""Cells of `tf.contrib.rnn` that wrap a cell."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, nest
from headrace.api import arrays, initializers, linalg, math, nn, reductions
from headrace.api.nn import embedding
from headrace.api.rnn import sizes
from headrace.api.rnn.cells import activation_of, check_cell, columns, like_inputs
from headrace.api.tensor_spec import TensorSpec
from headrace.v1.contrib.rnn.cells import linear
from headrace.v1.rnn_cell import RNNCell
from headrace.v1.variable_scopes import AUTO_REUSE, get_variable_scope


class _Around(RNNCell):
    """Base of cells with variables of their own around a cell."""

    _cell: Any

    def _reuses(self) -> Any:
        is_complete = getattr(self._cell, "built", True)  # a cell without `build` makes variables in its first call
        return AUTO_REUSE if self.built and not is_complete else super()._reuses()

    def prepare(self, inputs: Any) -> None:
        """See `RNNCell.prepare`."""
        if not self.built:
            with self._entered(inputs):
                self._build(inputs)
                if hasattr(self._cell, "prepare"):
                    self._cell.prepare(self._inner(inputs))

    def _inner(self, inputs: Any) -> Any:
        """Returns a spec of the inputs of the wrapped cell."""
        return inputs

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """Returns the zero state of the wrapped cell."""
        return self._cell.zero_state(batch_size, dtype)

    @property
    def state_size(self) -> Any:
        """State size of the wrapped cell."""
        return self._cell.state_size

    @property
    def output_size(self) -> Any:
        """Output size of the wrapped cell."""
        return self._cell.output_size


def _spec(inputs: Any, size: int) -> Any:
    return nest.flatten(like_inputs(size, inputs))[0]


class InputProjectionWrapper(_Around):
    """Cell whose inputs are projected; variables kernel and bias.

    Args:
      cell: the cell to wrap.
      num_proj: size of the projected inputs.
      activation: a function of them, or None.
      input_size: accepted as in TensorFlow, without effect.
      reuse: see `tf.variable_scope`.

    Source: TensorFlow's `tf.contrib.rnn.InputProjectionWrapper`.
    """

    def __init__(
        self, cell: Any, num_proj: int, activation: Any = None, input_size: Any = None, reuse: Any = None
    ) -> None:
        super().__init__(_reuse=reuse)
        check_cell("cell", cell)
        self._cell, self._num_proj = cell, num_proj
        self._activation = None if activation is None else activation_of(activation)

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        self._kernel = self.add_variable("kernel", [columns(input_shape, self.name), self._num_proj])
        self._bias = self.add_variable("bias", [self._num_proj], initializer="zeros")

    def _inner(self, inputs: Any) -> Any:
        return _spec(inputs, self._num_proj)

    def call(self, inputs: Any, state: Any) -> Any:
        """Runs a step of the cell with projected inputs."""
        projected = linear([inputs], self._kernel, self._bias)
        return self._cell(projected if self._activation is None else self._activation(projected), state)


class OutputProjectionWrapper(_Around):
    """Cell whose outputs are projected; variables kernel and bias.

    Args:
      cell: the cell to wrap.
      output_size: size of the projected outputs.
      activation: a function of them, or None.
      reuse: see `tf.variable_scope`.

    Source: TensorFlow's `tf.contrib.rnn.OutputProjectionWrapper`.
    """

    def __init__(self, cell: Any, output_size: int, activation: Any = None, reuse: Any = None) -> None:
        super().__init__(_reuse=reuse)
        check_cell("cell", cell)
        self._cell, self._size = cell, output_size
        self._activation = None if activation is None else activation_of(activation)

    @property
    def output_size(self) -> int:
        """Size of the projected outputs."""
        return self._size

    def build(self, input_shape: Any) -> None:
        """Creates the kernel and the bias."""
        self._kernel = self.add_variable("kernel", [sizes.width(self._cell.output_size), self._size])
        self._bias = self.add_variable("bias", [self._size], initializer="zeros")

    def call(self, inputs: Any, state: Any) -> Any:
        """Runs a step of the cell, and projects the outputs."""
        outputs, new = self._cell(inputs, state)
        projected = linear([outputs], self._kernel, self._bias)
        return projected if self._activation is None else self._activation(projected), new


class EmbeddingWrapper(_Around):
    """Cell whose inputs are ids that are embedded; variable embedding [classes, size].

    Args:
      cell: the cell to wrap.
      embedding_classes: number of ids.
      embedding_size: size of an embedding.
      initializer: initializer of the embeddings; None: that of the scope, else uniform from -sqrt(3) to sqrt(3).
      reuse: see `tf.variable_scope`.

    Raises:
      ValueError: a number is not positive.

    Source: TensorFlow's `tf.contrib.rnn.EmbeddingWrapper`.
    """

    def __init__(
        self, cell: Any, embedding_classes: int, embedding_size: int, initializer: Any = None, reuse: Any = None
    ) -> None:
        super().__init__(_reuse=reuse)
        check_cell("cell", cell)
        if embedding_classes <= 0 or embedding_size <= 0:
            raise ValueError(
                f"Both embedding_classes and embedding_size must be > 0: {embedding_classes}, {embedding_size}."
            )
        self._cell, self._classes, self._size, self._first = cell, embedding_classes, embedding_size, initializer

    def build(self, input_shape: Any) -> None:
        """Creates the embeddings."""
        first = self._first or get_variable_scope().initializer or initializers.random_uniform(-(3**0.5), 3**0.5)
        self._embedding = self.add_variable("embedding", [self._classes, self._size], initializer=first)

    def _inner(self, inputs: Any) -> Any:
        x = nest.flatten(inputs)[0]
        return TensorSpec((x.shape[0] if x.shape else None, self._size), dtypes.float32)

    def call(self, inputs: Any, state: Any) -> Any:
        """Runs a step of the cell with the embeddings of the inputs."""
        return self._cell(embedding.rows(self._embedding, arrays.reshape(inputs, [-1])), state)


class AttentionCellWrapper(_Around):
    """Cell that attends to its last outputs.

    Variables: kernel and bias (of the inputs); attention/attn_w, attention/attn_v, attention/kernel, attention/bias;
    attn_output_projection/kernel and bias.

    Args:
      cell: the cell to wrap.
      attn_length: number of outputs that it attends to.
      attn_size: size of an output; None: that of the cell.
      attn_vec_size: size of the vectors that are compared; None: `attn_size`.
      input_size: size of the inputs of the cell; None: that of the inputs.
      state_is_tuple: whether the state is a tuple: the state of the cell, the attention, and the outputs side by side.
      reuse: see `tf.variable_scope`.

    Raises:
      ValueError: `attn_length` is not positive, or the cell has states in tuples but this one has not.

    Source: TensorFlow's `tf.contrib.rnn.AttentionCellWrapper`; Bahdanau et al., "Neural machine translation by jointly
    learning to align and translate" (2015).
    """

    def __init__(
        self, cell: Any, attn_length: int, attn_size: int | None = None, attn_vec_size: int | None = None,
        input_size: int | None = None, state_is_tuple: bool = True, reuse: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(_reuse=reuse)
        check_cell("cell", cell)
        if nest.is_nested(cell.state_size) and not state_is_tuple:
            raise ValueError("Cell returns tuple of states, but the flag state_is_tuple is not set.")
        if attn_length <= 0:
            raise ValueError(f"attn_length should be greater than zero, got {attn_length}")
        self._cell, self._length, self._is_tuple = cell, attn_length, state_is_tuple
        self._size = sizes.width(cell.output_size) if attn_size is None else attn_size
        self._vec_size = self._size if attn_vec_size is None else attn_vec_size
        self._input_size = input_size

    @property
    def state_size(self) -> Any:
        """Sizes of the state of the cell, the attention, and the joined outputs."""
        found = (self._cell.state_size, self._size, self._size * self._length)
        return found if self._is_tuple else sum(sizes.width(n) for n in nest.flatten(found))

    @property
    def output_size(self) -> int:
        """Size of an output."""
        return self._size

    def zero_state(self, batch_size: Any, dtype: Any) -> Any:
        """See `RNNCell.zero_state`."""
        return RNNCell.zero_state(self, batch_size, dtype)

    def build(self, input_shape: Any) -> None:
        """Creates the kernels and biases."""
        n, m = self._size, self._vec_size
        size = columns(input_shape, self.name)
        self._width = self._input_size or size
        query = sum(sizes.width(k) for k in nest.flatten(self._cell.state_size))
        self._of_inputs = self._add_linear("", size + n, self._width)
        self._w = self.add_variable("attention/attn_w", [1, 1, n, m])
        self._v = self.add_variable("attention/attn_v", [m])
        self._of_query = self._add_linear("attention/", query, m)
        self._of_outputs = self._add_linear("attn_output_projection/", sizes.width(self._cell.output_size) + n, n)

    def _add_linear(self, prefix: str, rows: int, size: int) -> tuple[Any, Any]:
        kernel = self.add_variable(f"{prefix}kernel", [rows, size])
        return kernel, self.add_variable(f"{prefix}bias", [size], initializer="zeros")

    def _inner(self, inputs: Any) -> Any:
        return _spec(inputs, self._width)

    def call(self, inputs: Any, state: Any) -> Any:
        """Runs a step of the cell and the attention."""
        n, length = self._size, self._length
        if self._is_tuple:
            inner, attention, history = state
        else:
            rest = sizes.width(self._cell.state_size)
            inner, attention, history = arrays.split(state, [rest, n, n * length], axis=1)
        history = arrays.reshape(history, [-1, length, n])
        inputs = linear([inputs, attention], *self._of_inputs)
        outputs, new = self._cell(inputs, inner)
        query = linear(nest.flatten(new), *self._of_query)
        hidden = linalg.tensordot(history, arrays.reshape(self._w, [n, self._vec_size]), 1)
        scores = reductions.reduce_sum(self._v * math.tanh(hidden + arrays.expand_dims(query, 1)), [2])
        weights = arrays.expand_dims(nn.softmax(scores), 2)
        attention = reductions.reduce_sum(weights * history, [1])
        outputs = linear([outputs, attention], *self._of_outputs)
        later = arrays.concat([history[:, 1:], arrays.expand_dims(outputs, 1)], 1)
        later = arrays.reshape(later, [-1, n * length])
        return outputs, (new, attention, later) if self._is_tuple else arrays.concat([new, attention, later], 1)
