"""Recurrent cells, and a layer of cells, that are a single operation.

They compute the same functions as `LSTMCell` and `GRUCell` and have the same variables. In the executor, one operation
is faster than twenty. The compiler moves a product out of a loop only if the product is an operation of the graph, so
in a compiled loop the cells of `cells` are faster.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, gathering, math, reductions, scopes
from headrace.api.layers.base import Layer
from headrace.api.rnn import lengths, sizes
from headrace.api.rnn.cells import LSTMStateTuple, RNNCell, columns
from headrace.errors import ShapeError


class LSTMBlockCell(RNNCell, only_computes=True):
    """LSTM cell whose step is one operation, `LSTMBlockCell`; float16 and float32 only.

    Args:
      num_units: size of the state and the output.
      forget_bias: a number that is added to the forget gate.
      cell_clip: c is clipped to [-cell_clip, cell_clip]; None: no clipping.
      use_peephole: whether the gates also depend on c (peephole connections).
      name, trainable, dtype: see `hr.layers.Layer`; "lstm_cell" if `name` is None.

    Variables: those of `LSTMCell`.

    Source: TensorFlow's `tf.contrib.rnn.LSTMBlockCell`.

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.LSTMBlockCell(4)
      >>> output, state = cell(hr.ones((2, 3)), cell.zero_state(2, hr.float32))
      >>> output.shape, [v.name for v in cell.variables]
      ((2, 4), ['lstm_cell/kernel:0', 'lstm_cell/bias:0'])
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        name: str | None = "lstm_cell",
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = -1.0 if cell_clip is None else float(cell_clip)
        self._use_peephole = use_peephole

    @property
    def state_size(self) -> LSTMStateTuple:
        """`num_units` for c and for h."""
        return LSTMStateTuple(self._num_units, self._num_units)

    @property
    def output_size(self) -> int:
        """`num_units`."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Creates the kernel, the bias and the peephole weights."""
        self._weights = _lstm_weights(self, columns(input_shape, self.name), self._num_units, self._use_peephole)

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes h and the new state."""
        c, h = state
        kernel, peepholes, bias = self._weights
        attrs = {
            "forget_bias": self._forget_bias, "cell_clip": self._cell_clip, "use_peephole": self._use_peephole,
        }  # fmt: skip
        made = scopes.builder(inputs).make(
            "LSTMBlockCell", (inputs, c, h, kernel, *_peepholes(self, peepholes), bias), attrs
        )
        return made[6], LSTMStateTuple(made[1], made[6])


def _lstm_weights(layer: Layer, inputs: int, units: int, has_peepholes: bool) -> tuple[Any, list[Any], Any]:
    """Creates the kernel, the peephole weights of i, f and o, and the bias."""
    kernel = layer.add_variable("kernel", [inputs + units, 4 * units])
    bias = layer.add_variable("bias", [4 * units], initializer="zeros")
    names = ("w_i_diag", "w_f_diag", "w_o_diag") if has_peepholes else ()
    return kernel, [layer.add_variable(name, [units]) for name in names], bias


def _peepholes(layer: Any, own: list[Any]) -> list[Any]:
    return own or [arrays.zeros([layer._num_units], layer.dtype)] * 3


class LSTMBlockFusedCell(Layer):
    """LSTM layer over all time steps as one operation, `BlockLSTM`; float16 and float32 only.

    It replaces `hr.nn.dynamic_rnn` with an LSTM cell. It has no second derivative.

    Args:
      num_units: size of the state and the output.
      forget_bias: a number that is added to the forget gate.
      cell_clip: c is clipped to [-cell_clip, cell_clip]; None: no clipping.
      use_peephole: whether the gates also depend on c (peephole connections).
      name, trainable, dtype: see `hr.layers.Layer`; "lstm_fused_cell" if `name` is None.

    Variables: those of `LSTMCell`.

    Source: TensorFlow's `tf.contrib.rnn.LSTMBlockFusedCell`.

    Example:
      >>> import headrace as hr
      >>> layer = hr.layers.LSTMBlockFusedCell(4)
      >>> outputs, (c, h) = layer(hr.ones((5, 2, 3)), dtype=hr.float32, sequence_length=[5, 2])
      >>> outputs.shape, bool((outputs.numpy()[1, 1] == h.numpy()[1]).all()), outputs.numpy()[2:, 1].any().item()
      ((5, 2, 4), True, False)
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        name: str | None = "lstm_fused_cell",
        dtype: Any = None,
        trainable: bool = True,
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self._num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = -1.0 if cell_clip is None else float(cell_clip)
        self._use_peephole = use_peephole

    @property
    def num_units(self) -> int:
        """Size of the state and the output."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Creates the kernel, the bias and the peephole weights."""
        if input_shape is None or len(input_shape) != 3 or input_shape[2] is None:
            raise ShapeError(f"'{self.name}' takes [time, batch, input_size], with a known size, got {input_shape}")
        self._weights = _lstm_weights(self, input_shape[2], self._num_units, self._use_peephole)

    def call(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None
    ) -> tuple[Any, LSTMStateTuple]:
        """Computes the outputs of all steps and the final state.

        Args:
          inputs: [time, batch, input_size].
          initial_state: (c, h), each [batch, units]; None: zeros.
          dtype: dtype of the state; needed if there is no `initial_state`.
          sequence_length: an int vector: length of each sequence; None: the length of the inputs. Outputs beyond the
            length are zeros.

        Raises:
          ValueError: there is neither `initial_state` nor `dtype`.
        """
        steps, batch = sizes.batch_size(inputs, 0), sizes.batch_size(inputs, 1)
        if initial_state is None:
            if dtype is None:
                raise ValueError("Either initial_state or dtype needs to be specified: give dtype=hr.float32")
            zeros = sizes.zeros(batch, self._num_units, dtype)
            initial_state = LSTMStateTuple(zeros, zeros)
        c, h = initial_state
        last = steps
        if sequence_length is not None:
            sequence_length = lengths.checked(sequence_length, batch)
            last = math.minimum(steps, reductions.reduce_max(sequence_length))
        kernel, peepholes, bias = self._weights
        attrs = {
            "forget_bias": self._forget_bias, "cell_clip": self._cell_clip, "use_peephole": self._use_peephole,
        }  # fmt: skip
        b = scopes.builder(inputs)
        most = np.int64(last) if isinstance(last, int) else math.cast(last, dtypes.int64)
        made = b.make("BlockLSTM", (most, inputs, c, h, kernel, *_peepholes(self, peepholes), bias), attrs)
        states, outputs = made[1], made[6]
        if sequence_length is None:
            # the initial state is prepended: it is the final state if there are no steps
            return outputs, LSTMStateTuple(*(_last(first, rows) for first, rows in ((c, states), (h, outputs))))
        going = lengths.Going(sequence_length, steps)
        at = arrays.stack([math.minimum(sequence_length, steps), reductions.range(batch)], 1)
        state = LSTMStateTuple(*(_all(first, rows, at) for first, rows in ((c, states), (h, outputs))))
        return going.outputs(outputs), state


def _last(first: Any, rows: Any) -> Any:
    if isinstance(rows.shape[0], int) and rows.shape[0] > 0:
        return rows[-1]
    return arrays.concat([arrays.expand_dims(first, 0), rows], 0)[-1]


def _all(first: Any, rows: Any, at: Any) -> Any:
    return gathering.gather_nd(arrays.concat([arrays.expand_dims(first, 0), rows], 0), at)


class GRUBlockCellV2(RNNCell, only_computes=True):
    """GRU cell whose step is one operation, `GRUBlockCell`; float32 only.

    Args:
      num_units: size of the state and the output.
      name, trainable, dtype: see `hr.layers.Layer`; "gru_cell" if `name` is None.

    Variables: those of `GRUCell`.

    Source: TensorFlow's `tf.contrib.rnn.GRUBlockCellV2`.

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.GRUBlockCellV2(4)
      >>> output, state = cell(hr.ones((2, 3)), cell.zero_state(2, hr.float32))
      >>> output.shape, cell.variables[0].name
      ((2, 4), 'gru_cell/gates/kernel:0')
    """

    def __init__(
        self, num_units: int, name: str | None = "gru_cell", dtype: Any = None, trainable: bool = True
    ) -> None:
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self._num_units = num_units

    @property
    def state_size(self) -> int:
        """`num_units`."""
        return self._num_units

    @property
    def output_size(self) -> int:
        """`num_units`."""
        return self._num_units

    def build(self, input_shape: Any) -> None:
        """Creates the kernels and biases."""
        n = self._num_units
        rows = columns(input_shape, self.name) + n
        self._gate_kernel = self.add_variable("gates/kernel", [rows, 2 * n])
        self._gate_bias = self.add_variable("gates/bias", [2 * n], initializer="ones")
        self._candidate_kernel = self.add_variable("candidate/kernel", [rows, n])
        self._candidate_bias = self.add_variable("candidate/bias", [n], initializer="zeros")

    def call(self, inputs: Any, state: Any) -> Any:
        """Computes the output, which is also the new state."""
        weights = (self._gate_kernel, self._candidate_kernel, self._gate_bias, self._candidate_bias)
        made = scopes.builder(inputs).make("GRUBlockCell", (inputs, state, *weights), {})
        return made[3], made[3]
