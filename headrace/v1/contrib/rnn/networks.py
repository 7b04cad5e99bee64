"""Networks of `tf.contrib.rnn`: stacks of bidirectional networks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.api import arrays
from headrace.api.rnn import bidirectional
from headrace.v1 import rnn
from headrace.v1.graph import in_default_graph
from headrace.v1.variable_scopes import variable_scope


@in_default_graph
def stack_bidirectional_dynamic_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Any,
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    parallel_iterations: int | None = None,
    time_major: bool = False,
    scope: Any = None,
    swap_memory: bool = False,
) -> tuple[Any, Any, Any]:
    """Stacks bidirectional networks. See `headrace.nn.stack_bidirectional_dynamic_rnn`.

    Source: TensorFlow's `tf.contrib.rnn.stack_bidirectional_dynamic_rnn`.
    """
    return bidirectional.stacked(
        rnn.SCOPES, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, dtype, sequence_length,
        parallel_iterations, time_major, scope, swap_memory,
    )  # fmt: skip


@in_default_graph
def stack_bidirectional_rnn(
    cells_fw: Sequence[Any],
    cells_bw: Sequence[Any],
    inputs: Sequence[Any],
    initial_states_fw: Sequence[Any] | None = None,
    initial_states_bw: Sequence[Any] | None = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:
    """Stacks bidirectional networks without loops.

    Args:
      cells_fw, cells_bw: the forward and the backward cells, from the lowest layer on.
      inputs: for each step [batch, size].
      initial_states_fw, initial_states_bw: an initial state for each cell; None: zeros.
      dtype, sequence_length: see `tf.nn.static_bidirectional_rnn`.
      scope: a variable scope or its name. None: "stack_bidirectional_rnn".

    Returns:
      The outputs of both cells of the last layer for each step, joined; a tuple of the final states of the forward
      cells, and one of those of the backward cells.

    Raises:
      ValueError: there are no cells, or the numbers of cells differ.

    Source: TensorFlow's `tf.contrib.rnn.stack_bidirectional_rnn`.
    """
    if not cells_fw or len(cells_fw) != len(cells_bw):
        raise ValueError(f"Forward and Backward cells must have the same depth, got {len(cells_fw)}, {len(cells_bw)}")
    last_fw, last_bw, outputs = [], [], list(inputs)
    with variable_scope(scope, "stack_bidirectional_rnn"):
        for k, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            first_fw, first_bw = (None if s is None else s[k] for s in (initial_states_fw, initial_states_bw))
            with variable_scope(f"cell_{k}"):
                outputs, one, other = rnn.static_bidirectional_rnn(
                    fw, bw, outputs, first_fw, first_bw, dtype, sequence_length
                )
            last_fw.append(one)
            last_bw.append(other)
    return outputs, tuple(last_fw), tuple(last_bw)


@in_default_graph
def transpose_batch_time(x: Any) -> Any:
    """Exchanges the axes of batch and time, if there are two axes.

    Source: TensorFlow's `tf.contrib.rnn.transpose_batch_time`.
    """
    if x.shape is None or len(x.shape) < 2:
        return x
    return arrays.transpose(x, [1, 0, *range(2, len(x.shape))])
