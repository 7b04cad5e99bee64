"""TensorFlow 1's recurrent networks (`tf.nn.dynamic_rnn` and others): headrace's, in variable scopes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from headrace.api.rnn import bidirectional, dynamic, raw, static
from headrace.api.rnn.naming import Naming
from headrace.v1.graph import in_default_graph
from headrace.v1.variable_scopes import variable_scope


class _VariableScopes(Naming):
    def enter(self, scope: Any, default: str, values: Any = None) -> AbstractContextManager[Any]:
        entered: AbstractContextManager[Any] = variable_scope(scope or default)
        return entered

    def reuse(self, scope: Any) -> None:
        scope.reuse_variables()


SCOPES = _VariableScopes()


@in_default_graph
def dynamic_rnn(
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[Any, Any]:
    """Runs a cell over time in a loop.

    Args:
      cell, inputs, sequence_length, initial_state, dtype, parallel_iterations, swap_memory, time_major: see
        `headrace.nn.dynamic_rnn`.
      scope: a variable scope or its name. None: "rnn".

    Source: TensorFlow's `tf.nn.dynamic_rnn`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     x = tf.placeholder(tf.float32, [None, 28, 8])
      ...     y, state = tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicLSTMCell(16), x, dtype=tf.float32)
      ...     y.shape.as_list(), [v.name for v in tf.trainable_variables()]
      ([None, 28, 16], ['rnn/basic_lstm_cell/kernel:0', 'rnn/basic_lstm_cell/bias:0'])
    """
    return dynamic.unrolled(
        SCOPES,
        cell,
        inputs,
        sequence_length,
        initial_state,
        dtype,
        parallel_iterations,
        swap_memory,
        time_major,
        scope,
    )


@in_default_graph
def bidirectional_dynamic_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
) -> tuple[Any, Any]:
    """Runs one cell forward in time and another cell backward, in loops.

    Args:
      cell_fw, cell_bw, inputs, sequence_length, initial_state_fw, initial_state_bw, dtype, parallel_iterations,
        swap_memory, time_major: see `headrace.nn.bidirectional_dynamic_rnn`.
      scope: a variable scope or its name. None: "bidirectional_rnn".

    Source: TensorFlow's `tf.nn.bidirectional_dynamic_rnn`.
    """
    return bidirectional.both_ways(
        SCOPES, cell_fw, cell_bw, inputs, sequence_length, initial_state_fw, initial_state_bw, dtype,
        parallel_iterations, swap_memory, time_major, scope,
    )  # fmt: skip


@in_default_graph
def raw_rnn(
    cell: Any, loop_fn: Any, parallel_iterations: int | None = None, swap_memory: bool = False, scope: Any = None
) -> tuple[Any, Any, Any]:
    """Runs a cell in a loop, with a function between steps.

    The loop ends when the function reports that all examples are finished.

    Args:
      cell, loop_fn, parallel_iterations, swap_memory: see `headrace.nn.raw_rnn`.
      scope: a variable scope or its name. None: "rnn".

    Source: TensorFlow's `tf.nn.raw_rnn`.
    """
    return raw.raw(SCOPES, cell, loop_fn, parallel_iterations, swap_memory, scope)


@in_default_graph
def static_rnn(
    cell: Any, inputs: Any, initial_state: Any = None, dtype: Any = None, sequence_length: Any = None, scope: Any = None
) -> tuple[list[Any], Any]:
    """Calls a cell once for each time step, without a loop.

    Args:
      cell, inputs, initial_state, dtype, sequence_length: see `headrace.nn.static_rnn`.
      scope: a variable scope or its name. None: "rnn".

    Source: TensorFlow's `tf.nn.static_rnn`.
    """
    return static.written_out(SCOPES, cell, inputs, initial_state, dtype, sequence_length, scope)


@in_default_graph
def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Any,
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:
    """Calls one cell forward in time and another cell backward, without a loop.

    Args:
      cell_fw, cell_bw, inputs, initial_state_fw, initial_state_bw, dtype, sequence_length: see
        `headrace.nn.static_bidirectional_rnn`.
      scope: a variable scope or its name. None: "bidirectional_rnn".

    Source: TensorFlow's `tf.nn.static_bidirectional_rnn`.
    """
    return static.written_out_both_ways(
        SCOPES, cell_fw, cell_bw, inputs, initial_state_fw, initial_state_bw, dtype, sequence_length, scope
    )


@in_default_graph
def static_state_saving_rnn(
    cell: Any, inputs: Any, state_saver: Any, state_name: Any, sequence_length: Any = None, scope: Any = None
) -> tuple[list[Any], Any]:
    """Calls a cell once for each time step, with a state that persists.

    Args:
      cell, inputs, state_saver, state_name, sequence_length: see `headrace.nn.static_state_saving_rnn`.
      scope: a variable scope or its name. None: "rnn".

    Source: TensorFlow's `tf.nn.static_state_saving_rnn`.
    """
    return static.written_out_and_saved(SCOPES, cell, inputs, state_saver, state_name, sequence_length, scope)
