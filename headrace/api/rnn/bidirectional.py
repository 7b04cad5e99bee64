"""Recurrent networks that read sequences in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace import nest
from headrace.api import arrays, scopes
from headrace.api.rnn.cells import check_cell
from headrace.api.rnn.dynamic import unrolled
from headrace.api.rnn.naming import NAME_SCOPES, Naming


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
    save: Any = "all",
) -> tuple[Any, Any]:
    """Runs a cell over time, and another one in reverse.

    Args:
      cell_fw, cell_bw: the forward and the backward cell.
      inputs, sequence_length, dtype, parallel_iterations, swap_memory, time_major, save: see `hr.nn.dynamic_rnn`. With
        lengths, the backward cell starts at the last input of each sequence.
      initial_state_fw, initial_state_bw: the initial states of the cells; None: zeros.
      scope: name of the scope; "bidirectional_rnn" if None.

    Returns:
      The pair of the outputs of both cells, in the order of the inputs (`hr.concat(outputs, 2)` joins them), and the
      pair of their final states.

    Raises:
      TypeError, ValueError: as for `hr.nn.dynamic_rnn`.

    Source: TensorFlow's `tf.nn.bidirectional_dynamic_rnn`; Schuster and Paliwal, "Bidirectional recurrent neural
    networks" (1997).

    Example:
      >>> import headrace as hr
      >>> x = hr.constant([[[1.0], [2.0], [0.0]]])
      >>> cells = hr.layers.GRUCell(2), hr.layers.GRUCell(2)
      >>> (forth, back), (last, first) = hr.nn.bidirectional_dynamic_rnn(*cells, x, [2], dtype=hr.float32)
      >>> bool((forth.numpy()[:, 1] == last.numpy()).all()), bool((back.numpy()[:, 0] == first.numpy()).all())
      (True, True)
    """
    return both_ways(
        NAME_SCOPES, cell_fw, cell_bw, inputs, sequence_length, initial_state_fw, initial_state_bw, dtype,
        parallel_iterations, swap_memory, time_major, scope, save,
    )  # fmt: skip


def both_ways(
    naming: Naming,
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
    save: Any = "all",
) -> tuple[Any, Any]:
    """Computes `bidirectional_dynamic_rnn`; `naming` opens the scopes."""
    check_cell("cell_fw", cell_fw)
    check_cell("cell_bw", cell_bw)
    given = nest.flatten(inputs)
    with naming.enter(scope, "bidirectional_rnn", given):
        b = scopes.builder(*given)
        inputs = nest.map_leaves(lambda x: b.tensor(x, None, "inputs"), inputs)
        if sequence_length is not None:
            sequence_length = b.tensor(sequence_length, None, "sequence_length")

        def turned(x: Any) -> Any:
            return reversed_in_time(x, sequence_length, time_major)

        options = (dtype, parallel_iterations, swap_memory, time_major)
        with naming.enter("fw", "fw") as place:
            forth, last_fw = unrolled(naming, cell_fw, inputs, sequence_length, initial_state_fw, *options, place, save)
        with naming.enter("bw", "bw") as place:
            back, last_bw = unrolled(
                naming, cell_bw, nest.map_leaves(turned, inputs), sequence_length, initial_state_bw, *options, place,
                save,
            )  # fmt: skip
        return (forth, nest.map_leaves(turned, back)), (last_fw, last_bw)


def reversed_in_time(x: Any, sequence_length: Any, time_major: bool) -> Any:
    """Reverses each sequence in time; elements beyond its length keep their place.

    Args:
      x: [batch, time, ...], or [time, batch, ...] if `time_major`.
      sequence_length: an int vector; None: every sequence has the length of `x`.
      time_major: whether time is the first axis.
    """
    axis = 0 if time_major else 1
    if sequence_length is None:
        return arrays.reverse(x, [axis])
    return arrays.reverse_sequence(x, sequence_length, axis, 1 - axis)


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
    """Stacks bidirectional networks: each takes the joined outputs of the one below.

    Args:
      cells_fw, cells_bw: the forward and the backward cells, from the lowest layer on.
      inputs: [batch, time, depth], or [time, batch, depth] if `time_major`.
      initial_states_fw, initial_states_bw: an initial state for each cell; None: zeros.
      scope: name of the scope; "stack_bidirectional_rnn" if None.
      dtype, sequence_length, parallel_iterations, swap_memory, time_major: see `hr.nn.dynamic_rnn`.

    Returns:
      The outputs of both cells of the last layer, joined along the last axis; a tuple of the final states of the
      forward cells, and one of those of the backward cells.

    Raises:
      ValueError: there are no cells, or the numbers of forward cells, backward cells and states differ.

    Source: TensorFlow's `tf.contrib.rnn.stack_bidirectional_dynamic_rnn`.

    Example:
      >>> import headrace as hr
      >>> def cells():
      ...     return [hr.layers.GRUCell(3), hr.layers.GRUCell(2)]
      >>> y, forward, backward = hr.nn.stack_bidirectional_dynamic_rnn(
      ...     cells(), cells(), hr.ones((1, 5, 2)), dtype=hr.float32
      ... )
      >>> y.shape, [s.shape for s in forward]
      ((1, 5, 4), [(1, 3), (1, 2)])
    """
    return stacked(
        NAME_SCOPES, cells_fw, cells_bw, inputs, initial_states_fw, initial_states_bw, dtype, sequence_length,
        parallel_iterations, time_major, scope, swap_memory,
    )  # fmt: skip


def stacked(
    naming: Naming,
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
    """Computes `stack_bidirectional_dynamic_rnn`; `naming` opens the scopes."""
    n = len(cells_fw)
    starts_fw = [None] * n if initial_states_fw is None else list(initial_states_fw)
    starts_bw = [None] * n if initial_states_bw is None else list(initial_states_bw)
    if n == 0 or not n == len(cells_bw) == len(starts_fw) == len(starts_bw):
        raise ValueError(
            f"there must be as many cells of both kinds, one at least, and a state for each, got {n} and "
            f"{len(cells_bw)} cells, {len(starts_fw)} and {len(starts_bw)} states"
        )
    last_fw, last_bw = [], []
    with naming.enter(scope, "stack_bidirectional_rnn", [inputs]):
        for k, (fw, bw) in enumerate(zip(cells_fw, cells_bw, strict=True)):
            with naming.enter(f"cell_{k}", f"cell_{k}"):
                outputs, (one, other) = both_ways(
                    naming, fw, bw, inputs, sequence_length, starts_fw[k], starts_bw[k], dtype, parallel_iterations,
                    swap_memory, time_major,
                )  # fmt: skip
                inputs = arrays.concat(list(outputs), 2)
            last_fw.append(one)
            last_bw.append(other)
    return inputs, tuple(last_fw), tuple(last_bw)
