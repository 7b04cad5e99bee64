"""TensorFlow 1's `tf.contrib.cudnn_rnn`: its layers and cells, computed by loops of cells.

The variables are those that TensorFlow saves in a checkpoint, and not one opaque vector:
"cudnn_lstm/rnn/multi_rnn_cell/cell_0/cudnn_compatible_lstm_cell/kernel", and for both directions
"cudnn_lstm/stack_bidirectional_rnn/cell_0/bidirectional_rnn/fw/cudnn_compatible_lstm_cell/kernel".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.api import arrays, math
from headrace.api.layers.core import as_flag
from headrace.api.rnn import sizes
from headrace.api.rnn.cells import columns
from headrace.v1 import rnn
from headrace.v1.contrib import equivalents
from headrace.v1.contrib.rnn.cells import OfUnits, linear
from headrace.v1.contrib.rnn.networks import stack_bidirectional_dynamic_rnn
from headrace.v1.layers import Scoped
from headrace.v1.rnn_cell import BasicLSTMCell, BasicRNNCell, DropoutWrapper, LSTMStateTuple, MultiRNNCell
from headrace.v1.variable_scopes import get_variable_scope, variable_scope

CUDNN_RNN_UNIDIRECTION = "unidirectional"
CUDNN_RNN_BIDIRECTION = "bidirectional"
CUDNN_LSTM, CUDNN_GRU, CUDNN_RNN_TANH, CUDNN_RNN_RELU = "lstm", "gru", "rnn_tanh", "rnn_relu"
CUDNN_INPUT_LINEAR_MODE, CUDNN_INPUT_SKIP_MODE, CUDNN_INPUT_AUTO_MODE = "linear_input", "skip_input", "auto_select"


class CudnnCompatibleLSTMCell(BasicLSTMCell, only_computes=True):
    """LSTM cell of a `CudnnLSTM`, without a `forget_bias`.

    Source: TensorFlow's `tf.contrib.cudnn_rnn.CudnnCompatibleLSTMCell`.
    """

    def __init__(self, num_units: int, reuse: Any = None) -> None:
        super().__init__(num_units, 0.0, reuse=reuse, name="cudnn_compatible_lstm_cell")


class CudnnCompatibleGRUCell(OfUnits, only_computes=True):
    """GRU cell of a `CudnnGRU`: the reset gate acts after the product with the state.

    Variables: gates/kernel [inputs + units, 2 * units] and gates/bias; candidate/input_projection/kernel
    [inputs, units], candidate/hidden_projection/kernel [units, units], and their biases.

    Args:
      num_units: size of the state and the output.
      reuse: see `tf.variable_scope`.
      kernel_initializer: initializer of the kernels.

    Source: TensorFlow's `tf.contrib.cudnn_rnn.CudnnCompatibleGRUCell`.
    """

    def __init__(self, num_units: int, reuse: Any = None, kernel_initializer: Any = None) -> None:
        super().__init__(_reuse=reuse, name="cudnn_compatible_gru_cell")
        self._num_units, self._first = num_units, kernel_initializer

    def build(self, input_shape: Any) -> None:
        """Creates the kernels and biases."""
        n, size = self._num_units, columns(input_shape, self.name)
        self._gates = self._pair("gates", size + n, 2 * n, "ones")
        self._of_input = self._pair("candidate/input_projection", size, n, "zeros")
        self._of_hidden = self._pair("candidate/hidden_projection", n, n, "zeros")

    def _pair(self, name: str, rows: int, size: int, bias: str) -> tuple[Any, Any]:
        kernel = self.add_variable(f"{name}/kernel", [rows, size], initializer=self._first)
        return kernel, self.add_variable(f"{name}/bias", [size], initializer=bias)

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes the output, which is also the new state."""
        r, u = arrays.split(math.sigmoid(linear([inputs, state], *self._gates)), 2, axis=1)
        candidate = math.tanh(linear([inputs], *self._of_input) + r * linear([state], *self._of_hidden))
        new = (1 - u) * candidate + u * state
        return new, new


def _tanh_cell(units: int) -> Any:
    return BasicRNNCell(units, name="cudnn_compatible_rnn_cell")


def _relu_cell(units: int) -> Any:
    return BasicRNNCell(units, "relu", name="cudnn_compatible_rnn_cell")


class _Network(Scoped):
    """Base of layers that are networks of several layers of cells.

    Args:
      num_layers: number of layers.
      num_units: size of the states.
      input_mode: "linear_input"; others are refused.
      direction: "unidirectional" or "bidirectional".
      dropout: the probability that an element of a layer's inputs is set to 0 in training, after the first layer.
      seed: seed of the dropout.
      dtype: dtype of the variables.
      kernel_initializer: initializer of the kernels; None: that of the scope.
      bias_initializer: initializer of the biases; None: that of the cell.
      name: name of the layer.

    Raises:
      ValueError: an argument has a value that is not allowed.
    """

    _cell: Callable[[int], Any]
    _type_name: str
    _has_memory = False

    def __init__(
        self, num_layers: int, num_units: int, input_mode: str = CUDNN_INPUT_LINEAR_MODE,
        direction: str = CUDNN_RNN_UNIDIRECTION, dropout: float = 0.0, seed: int | None = None,
        dtype: Any = dtypes.float32, kernel_initializer: Any = None, bias_initializer: Any = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name=name or self._type_name, dtype=dtype)
        if input_mode != CUDNN_INPUT_LINEAR_MODE:
            raise ValueError(f"input_mode must be 'linear_input', got {input_mode!r}")
        if direction not in (CUDNN_RNN_UNIDIRECTION, CUDNN_RNN_BIDIRECTION):
            raise ValueError(f"direction should be 'unidirectional' or 'bidirectional', got {direction!r}")
        self._num_layers, self._num_units, self._direction = num_layers, num_units, direction
        self._dropout, self._seed = dropout, seed
        self._first = kernel_initializer, bias_initializer
        self._cells: list[list[Any]] = [[self._make_cell() for _ in range(num_layers)] for _ in range(self.num_dirs)]

    def _make_cell(self) -> Any:
        return type(self)._cell(self._num_units)

    @property
    def num_layers(self) -> int:
        """Number of layers."""
        return self._num_layers

    @property
    def num_units(self) -> int:
        """Size of the states."""
        return self._num_units

    @property
    def direction(self) -> str:
        """ "unidirectional" or "bidirectional"."""
        return self._direction

    @property
    def num_dirs(self) -> int:
        """1, or 2 for both directions."""
        return 2 if self._direction == CUDNN_RNN_BIDIRECTION else 1

    def state_shape(self, batch_size: int) -> Any:
        """Returns the shapes of the states: [layers * directions, batch, units] of each."""
        shape = [self._num_layers * self.num_dirs, batch_size, self._num_units]
        return (shape, shape) if self._has_memory else (shape,)

    def _getter(self, get: Callable[..., Any], name: str, *args: Any, **kwargs: Any) -> Any:
        first = self._first[name.endswith("bias")]
        if first is not None:
            kwargs["initializer"] = first
        return get(name, *args, **kwargs)

    def call(
        self, inputs: Any, initial_state: Any = None, sequence_lengths: Any = None, time_major: bool = True,
        training: Any = True,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Computes the outputs of all steps, and the final states.

        Args:
          inputs: [time, batch, size].
          initial_state: h, and c for an LSTM, each [layers * directions, batch, units]; None: zeros.
          sequence_lengths: lengths of the sequences: [batch]; None: all steps.
          time_major: whether the inputs are [time, batch, size]; otherwise [batch, time, size].
          training: whether the dropout is active: a bool.

        Returns:
          The outputs, [time, batch, units * directions], and the tuple of the final states.
        """
        flag = as_flag(training)
        if flag is None:
            raise ValueError("training must be a bool: the dropout is part of the graph or not")
        batch = sizes.batch_size(inputs, 1 if time_major else 0)
        dtype = inputs.dtype.base
        if initial_state is None:
            zeros = sizes.zeros(batch, self._num_units, dtype)
            parts = [[zeros] * (self._num_layers * self.num_dirs)] * (1 + self._has_memory)
        else:
            parts = [arrays.unstack(s, self._num_layers * self.num_dirs) for s in initial_state]
        states = [LSTMStateTuple(c, h) for h, c in zip(*parts, strict=True)] if self._has_memory else list(parts[0])
        cells = [[self._dropped(c, k, flag) for k, c in enumerate(row)] for row in self._cells]
        with variable_scope(get_variable_scope(), custom_getter=self._getter, auxiliary_name_scope=False):
            outputs, last = self._run_cells(cells, inputs, states, sequence_lengths, time_major)
        stacked = [arrays.stack([s.h if self._has_memory else s for s in last])]
        if self._has_memory:
            stacked.append(arrays.stack([s.c for s in last]))
        return outputs, tuple(stacked)

    def _dropped(self, cell: Any, layer: int, training: bool) -> Any:
        is_active = training and self._dropout and layer > 0
        return DropoutWrapper(cell, input_keep_prob=1 - self._dropout, seed=self._seed) if is_active else cell

    def _run_cells(
        self, cells: list[list[Any]], inputs: Any, states: list[Any], lengths: Any, time_major: bool
    ) -> tuple[Any, list[Any]]:
        """Returns the outputs, and the final states by layer and direction."""
        if self.num_dirs == 1:
            outputs, last = rnn.dynamic_rnn(
                MultiRNNCell(cells[0]), inputs, lengths, tuple(states), time_major=time_major, scope="rnn"
            )
            return outputs, list(last)
        outputs, fw, bw = stack_bidirectional_dynamic_rnn(
            cells[0], cells[1], inputs, states[0::2], states[1::2], sequence_length=lengths, time_major=time_major
        )
        return outputs, [s for pair in zip(fw, bw, strict=True) for s in pair]


class CudnnLSTM(_Network):
    """Layers of LSTM cells over all time steps. Final states are (h, c).

    The module describes the variables.

    Source: TensorFlow's `tf.contrib.cudnn_rnn.CudnnLSTM`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     lstm = tf.contrib.cudnn_rnn.CudnnLSTM(num_layers=2, num_units=4)
      ...     outputs, (h, c) = lstm(tf.ones([5, 3, 6]))
      ...     outputs.shape.as_list(), h.shape.as_list()
      ([5, 3, 4], [2, 3, 4])
    """

    _cell, _type_name, _has_memory = CudnnCompatibleLSTMCell, "cudnn_lstm", True


class CudnnGRU(_Network):
    """Layers of GRU cells over all time steps. See `CudnnLSTM`; the final states are (h,).

    Source: TensorFlow's `tf.contrib.cudnn_rnn.CudnnGRU`.
    """

    _cell, _type_name = CudnnCompatibleGRUCell, "cudnn_gru"


class CudnnRNNTanh(_Network):
    """Layers of cells with tanh over all time steps. See `CudnnGRU`.

    Source: TensorFlow's `tf.contrib.cudnn_rnn.CudnnRNNTanh`.
    """

    _cell, _type_name = staticmethod(_tanh_cell), "cudnn_rnn_tanh"


class CudnnRNNRelu(_Network):
    """Layers of cells with a ReLU over all time steps. See `CudnnGRU`.

    Source: TensorFlow's `tf.contrib.cudnn_rnn.CudnnRNNRelu`.
    """

    _cell, _type_name = staticmethod(_relu_cell), "cudnn_rnn_relu"


# fmt: off
__all__ = [
    "CUDNN_GRU", "CUDNN_INPUT_AUTO_MODE", "CUDNN_INPUT_LINEAR_MODE", "CUDNN_INPUT_SKIP_MODE", "CUDNN_LSTM",
    "CUDNN_RNN_BIDIRECTION", "CUDNN_RNN_RELU", "CUDNN_RNN_TANH", "CUDNN_RNN_UNIDIRECTION", "CudnnCompatibleGRUCell",
    "CudnnCompatibleLSTMCell", "CudnnGRU", "CudnnLSTM", "CudnnRNNRelu", "CudnnRNNTanh",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = equivalents.of(__name__, __all__)
