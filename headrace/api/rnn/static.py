"""Recurrent networks without a loop, for sequences with a known number of steps.

A graph for a hundred steps contains a hundred cells, which takes long to build; `dynamic_rnn` has one cell in a loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace import nest, shapes
from headrace.api import arrays, scopes, tensors
from headrace.api.rnn import lengths, sizes
from headrace.api.rnn.cells import check_cell
from headrace.api.rnn.dynamic import first_state, prepare, state_dtype
from headrace.api.rnn.naming import NAME_SCOPES, Naming
from headrace.errors import ShapeError


def static_rnn(
    cell: Any,
    inputs: Sequence[Any],
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """Calls a cell once for each step.

    Args:
      cell: a `hr.layers.RNNCell`.
      inputs: for each step [batch, ...]: a tensor, or a structure of them.
      initial_state: what the cell starts with; None: zeros.
      dtype: of states and outputs; needed if there is no `initial_state`.
      sequence_length: an integer vector: how long each sequence is. Beyond that an example's outputs are zero and its
        state stays as it is.
      scope: the name of the scope; "rnn" if None.

    Returns:
      The outputs, a list of one for each step, and the last state.

    Raises:
      TypeError: `cell` is none, or `inputs` no list.
      ValueError: there are no inputs, or neither `initial_state` nor `dtype`.

    Source: TensorFlow's `tf.nn.static_rnn`.

    Example:
      >>> import headrace as hr
      >>> outputs, state = hr.nn.static_rnn(hr.layers.GRUCell(2), [hr.ones((1, 3))] * 4, dtype=hr.float32)
      >>> len(outputs), bool((outputs[-1].numpy() == state.numpy()).all())
      (4, True)
    """
    return written_out(NAME_SCOPES, cell, inputs, initial_state, dtype, sequence_length, scope)


def written_out(
    naming: Naming,
    cell: Any,
    inputs: Sequence[Any],
    initial_state: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """`static_rnn` with scopes of some kind."""
    check_cell("cell", cell)
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(f"inputs must be a list with the inputs of each step, got {nest.describe(inputs)}")
    if not inputs:
        raise ValueError("inputs must not be empty: there must be one step at least")
    given = nest.flatten(inputs)
    with naming.enter(scope, "rnn", given) as place:
        b = scopes.builder(*given)
        inputs = [nest.map_leaves(lambda x: b.tensor(x, None, "inputs"), step) for step in inputs]
        flat = nest.flatten(inputs)
        for x in flat:
            if x.shape is None or not x.shape or None in x.shape[1:]:
                raise ShapeError(f"the inputs of a network must be of known rank and sizes, [batch, ...], got {x!r}")
            if not shapes.compatible(x.shape[:1], flat[0].shape[:1]):
                raise ShapeError(
                    f"the inputs of a network must have the same batch size, got {shapes.show(x.shape)} and "
                    f"{shapes.show(flat[0].shape)}"
                )
        batch = next((x.shape[0] for x in flat if x.shape[0] is not None), None)
        if batch is None:
            batch = sizes.batch_size(flat[0], 0)
        state = first_state(cell, initial_state, batch, dtype)
        going = None
        if sequence_length is not None:
            going = lengths.Going(lengths.checked(sequence_length, batch), len(inputs))
            zeros = sizes.zeros(batch, cell.output_size, state_dtype(dtype, state))
        prepare(cell, inputs[0])
        outputs = []
        for time, step in enumerate(inputs):
            if time == 1:
                naming.reuse(place)  # a cell without `build` makes its variables when it is first called
            output, new = cell(step, state)
            if going is not None:
                output, new = going.state(time, zeros, output), going.state(time, state, new)
            outputs.append(output)
            state = new
        return outputs, state


def static_bidirectional_rnn(
    cell_fw: Any,
    cell_bw: Any,
    inputs: Sequence[Any],
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:
    """`static_rnn` with one cell from the beginning and another from the end.

    Args:
      cell_fw, cell_bw: the cells.
      initial_state_fw, initial_state_bw: what they start with; None: zeros.
      scope: the name of the scope; "bidirectional_rnn" if None.
      inputs, dtype, sequence_length: see `hr.nn.static_rnn`.

    Returns:
      For each step the outputs of both cells, joined along the second axis; the last state of the first cell, and of
      the second.

    Raises:
      TypeError, ValueError: as `hr.nn.static_rnn`.

    Source: TensorFlow's `tf.nn.static_bidirectional_rnn`.

    Example:
      >>> import headrace as hr
      >>> cells = hr.layers.GRUCell(2), hr.layers.GRUCell(2)
      >>> outputs, last, first = hr.nn.static_bidirectional_rnn(*cells, [hr.ones((1, 3))] * 4, dtype=hr.float32)
      >>> len(outputs), outputs[0].shape
      (4, (1, 4))
    """
    return written_out_both_ways(
        NAME_SCOPES, cell_fw, cell_bw, inputs, initial_state_fw, initial_state_bw, dtype, sequence_length, scope
    )


def written_out_both_ways(
    naming: Naming,
    cell_fw: Any,
    cell_bw: Any,
    inputs: Sequence[Any],
    initial_state_fw: Any = None,
    initial_state_bw: Any = None,
    dtype: Any = None,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any, Any]:
    """`static_bidirectional_rnn` with scopes of some kind."""
    check_cell("cell_fw", cell_fw)
    check_cell("cell_bw", cell_bw)
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(f"inputs must be a list with the inputs of each step, got {nest.describe(inputs)}")
    if not inputs:
        raise ValueError("inputs must not be empty: there must be one step at least")
    with naming.enter(scope, "bidirectional_rnn", nest.flatten(inputs)):
        with naming.enter("fw", "fw") as place:
            forth, last_fw = written_out(naming, cell_fw, inputs, initial_state_fw, dtype, sequence_length, place)
        with naming.enter("bw", "bw") as place:
            turned = _reversed(inputs, sequence_length)
            back, last_bw = written_out(naming, cell_bw, turned, initial_state_bw, dtype, sequence_length, place)
        outputs = [
            nest.map_leaves(lambda x, y: arrays.concat([x, y], 1), one, other)
            for one, other in zip(forth, _reversed(back, sequence_length), strict=True)
        ]
        return outputs, last_fw, last_bw


def _reversed(steps: Sequence[Any], sequence_length: Any) -> list[Any]:
    """The steps of each sequence from its end to its beginning."""
    if sequence_length is None:
        return list(reversed(steps))
    columns = []
    for column in zip(*map(nest.flatten, steps), strict=True):
        turned = arrays.reverse_sequence(arrays.stack(list(column)), sequence_length, 0, 1)
        columns.append(arrays.unstack(turned, len(column)))
    return [nest.pack(step, [column[k] for column in columns]) for k, step in enumerate(steps)]


def static_state_saving_rnn(
    cell: Any,
    inputs: Sequence[Any],
    state_saver: Any,
    state_name: Any,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """`static_rnn` that starts with a state that something keeps, and has it keep the last: for long sequences that are
    read in pieces.

    Args:
      cell, inputs, sequence_length, scope: see `hr.nn.static_rnn`.
      state_saver: an object with `state(name)`, which gives a state, and `save_state(name, value)`, which gives an
        operation that keeps one.
      state_name: a name for each state of the cell, in the structure of `cell.state_size`.

    Returns:
      The outputs and the last state. The last output and the state wait until the state is kept.

    Raises:
      ValueError: there are not as many names as states.

    Source: TensorFlow's `tf.nn.static_state_saving_rnn`.
    """
    return written_out_and_saved(NAME_SCOPES, cell, inputs, state_saver, state_name, sequence_length, scope)


def written_out_and_saved(
    naming: Naming,
    cell: Any,
    inputs: Sequence[Any],
    state_saver: Any,
    state_name: Any,
    sequence_length: Any = None,
    scope: Any = None,
) -> tuple[list[Any], Any]:
    """`static_state_saving_rnn` with scopes of some kind."""
    names = nest.flatten(state_name)
    size = cell.state_size
    if nest.is_nested(size) != nest.is_nested(state_name) or len(names) != len(nest.flatten(size)):
        raise ValueError(
            f"state_name must have a name for each state of the cell, got {state_name!r} for the states {size!r}"
        )
    first = nest.pack(size, [state_saver.state(name) for name in names])
    outputs, state = written_out(naming, cell, inputs, first, None, sequence_length, scope)
    kept = [state_saver.save_state(name, x) for name, x in zip(names, nest.flatten(state), strict=True)]
    with scopes.control_dependencies(kept):
        outputs[-1] = nest.map_leaves(tensors.identity, outputs[-1])
        return outputs, nest.map_leaves(tensors.identity, state)
