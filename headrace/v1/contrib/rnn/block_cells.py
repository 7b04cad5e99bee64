"""Cells of `tf.contrib.rnn` whose step is one operation, and networks that are one operation."""

from __future__ import annotations

from typing import Any

from headrace import nest
from headrace.api import arrays, scopes
from headrace.api.rnn import block_cells
from headrace.api.rnn.bidirectional import reversed_in_time
from headrace.api.rnn.cells import columns
from headrace.v1 import rnn
from headrace.v1.graph import in_default_graph
from headrace.v1.layers import Scoped
from headrace.v1.rnn_cell import RNNCell


class LSTMBlockCell(RNNCell, block_cells.LSTMBlockCell, only_computes=True):
    """LSTM cell as one operation. See `headrace.layers.LSTMBlockCell`.

    Source: TensorFlow's `tf.contrib.rnn.LSTMBlockCell`.
    """

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None, use_peephole: bool = False,
        dtype: Any = None, reuse: Any = None, name: str | None = "lstm_cell",
    ) -> None:  # fmt: skip
        block_cells.LSTMBlockCell.__init__(self, num_units, forget_bias, cell_clip, use_peephole, name, dtype)
        self._reuse = reuse


class GRUBlockCellV2(RNNCell, block_cells.GRUBlockCellV2, only_computes=True):
    """GRU cell as one operation, with the variables of `GRUCell`. See `headrace.layers.GRUBlockCellV2`.

    Source: TensorFlow's `tf.contrib.rnn.GRUBlockCellV2`.
    """

    def __init__(
        self, num_units: int | None = None, cell_size: int | None = None, reuse: Any = None,
        name: str | None = "gru_cell",
    ) -> None:  # fmt: skip
        block_cells.GRUBlockCellV2.__init__(self, _one(num_units, cell_size), name)
        self._reuse = reuse


class GRUBlockCell(GRUBlockCellV2, only_computes=True):
    """GRU cell as one operation, with the variables w_ru, b_ru, w_c and b_c.

    Source: TensorFlow's `tf.contrib.rnn.GRUBlockCell`.
    """

    def build(self, input_shape: Any) -> None:
        """Creates the kernels and biases."""
        n = self._num_units
        rows = columns(input_shape, self.name) + n
        self._gate_kernel = self.add_variable("w_ru", [rows, 2 * n])
        self._gate_bias = self.add_variable("b_ru", [2 * n], initializer="ones")
        self._candidate_kernel = self.add_variable("w_c", [rows, n])
        self._candidate_bias = self.add_variable("b_c", [n], initializer="zeros")


def _one(num_units: int | None, cell_size: int | None) -> int:
    if (num_units is None) == (cell_size is None):
        raise ValueError("Specify num_units, or cell_size, which is its older name, and not both")
    found = cell_size if num_units is None else num_units
    assert found is not None
    return found


class LSTMBlockFusedCell(Scoped, block_cells.LSTMBlockFusedCell):
    """LSTM over all time steps as one operation. See `headrace.layers.LSTMBlockFusedCell`.

    Source: TensorFlow's `tf.contrib.rnn.LSTMBlockFusedCell`.
    """

    def __init__(
        self, num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None, use_peephole: bool = False,
        reuse: Any = None, dtype: Any = None, name: str | None = "lstm_fused_cell",
    ) -> None:  # fmt: skip
        block_cells.LSTMBlockFusedCell.__init__(self, num_units, forget_bias, cell_clip, use_peephole, name, dtype)
        self._reuse = reuse

    def __call__(  # type: ignore[override]
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> tuple[Any, Any]:
        """Computes the outputs, [time, batch, units] or a list, and the final state."""
        is_list = isinstance(inputs, list)
        steps = in_default_graph(arrays.stack)(inputs) if is_list else inputs
        outputs, state = super().__call__(steps, initial_state, dtype, sequence_length, scope=scope)
        return (arrays.unstack(outputs) if is_list else outputs), state


class FusedRNNCell:
    """Base class of networks over all time steps: `cell(inputs, initial_state, dtype, sequence_length)`.

    Source: TensorFlow's `tf.contrib.rnn.FusedRNNCell`.
    """

    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> tuple[Any, Any]:
        """Computes the outputs [time, batch, units] and the final state."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it computes: define __call__")


class FusedRNNCellAdaptor(FusedRNNCell):
    """Network over all time steps that calls a cell.

    Args:
      cell: the cell.
      use_dynamic_rnn: whether the steps are a loop; otherwise the graph has a cell for each step.

    Source: TensorFlow's `tf.contrib.rnn.FusedRNNCellAdaptor`.
    """

    def __init__(self, cell: Any, use_dynamic_rnn: bool = False) -> None:
        self._cell, self._is_loop = cell, use_dynamic_rnn

    @in_default_graph
    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> tuple[Any, Any]:
        """Computes the outputs of all steps and the final state."""
        is_list = isinstance(inputs, list)
        if self._is_loop:
            whole = arrays.stack(inputs) if is_list else inputs
            outputs, state = rnn.dynamic_rnn(
                self._cell, whole, sequence_length, initial_state, dtype, time_major=True, scope=scope
            )
            return (arrays.unstack(outputs) if is_list else outputs), state
        steps = inputs if is_list else arrays.unstack(inputs)
        made, state = rnn.static_rnn(self._cell, steps, initial_state, dtype, sequence_length, scope)
        return (made if is_list else arrays.stack(made)), state


class TimeReversedFusedRNN(FusedRNNCell):
    """Network over all time steps that begins with the last one.

    Args:
      cell: a network over all time steps.

    Source: TensorFlow's `tf.contrib.rnn.TimeReversedFusedRNN`.
    """

    def __init__(self, cell: Any) -> None:
        self._cell = cell

    @in_default_graph
    def __call__(
        self, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
    ) -> tuple[Any, Any]:
        """Computes the outputs, in the order of the inputs, and the final state."""

        def turned(x: Any) -> Any:
            return reversed_in_time(x, sequence_length, True)

        is_list = isinstance(inputs, list)
        whole = scopes.builder().tensor(arrays.stack(inputs) if is_list else inputs)
        outputs, state = self._cell(turned(whole), initial_state, dtype, sequence_length, scope)
        outputs = nest.map_leaves(turned, outputs)
        return (arrays.unstack(outputs) if is_list else outputs), state
