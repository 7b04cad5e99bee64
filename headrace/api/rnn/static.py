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
    """Builds a network by calling a cell once for each step.

    Args:
      cell: a `hr.layers.RNNCell`.
      inputs: for each step [batch, ...]: a tensor, or a structure of them.
      initial_state: the initial state; None: zeros.
      dtype: dtype of states and outputs; needed if there is no `initial_state`.
      sequence_length: an int vector: length of each sequence. For later steps of an example the outputs are zero and
        the state is kept.
      scope: name of the scope; "rnn" if None.

    Returns:
      A list with the outputs of each step, and the final state.

    Raises:
      TypeError: `cell` is not a cell, or `inputs` is not a list.
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
    """Computes `static_rnn`; `naming` opens the scopes."""
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
                naming.reuse(place)  # a cell without `build` creates its variables in its first call
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
    """Builds a network with a forward and a backward cell; see `static_rnn`.

    Args:
      cell_fw, cell_bw: the forward and the backward cell.
      initial_state_fw, initial_state_bw: the initial states of the cells; None: zeros.
      scope: name of the scope; "bidirectional_rnn" if None.
      inputs, dtype, sequence_length: see `hr.nn.static_rnn`.

    Returns:
      A list with the outputs of each step, those of both cells joined along the second axis; and the final states of
      the forward and of the backward cell.

    Raises:
      TypeError, ValueError: as for `hr.nn.static_rnn`.

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
    """Computes `static_bidirectional_rnn`; `naming` opens the scopes."""
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
    """Reverses the steps of each sequence."""
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
    """Builds a network whose state is saved between runs; see `static_rnn`.

    Long sequences can be read in pieces: the network starts with the saved state, and saves its final state.

    Args:
      cell, inputs, sequence_length, scope: see `hr.nn.static_rnn`.
      state_saver: an object with the methods `state(name)`, which returns a saved state, and `save_state(name, value)`,
        which returns an operation that saves one.
      state_name: a name for each state of the cell, in the structure of `cell.state_size`.

    Returns:
      The outputs and the final state. The last output and the state wait until the state is saved.

    Raises:
      ValueError: the structure of `state_name` is not that of the states.

    Source: TensorFlow's `tf.nn.static_state_saving_rnn`.

    Example:
      >>> import headrace as hr, numpy as np
      >>> class Saver:
      ...     def __init__(self):
      ...         self.saved = hr.Variable(np.zeros((1, 2), np.float32))
      ...
      ...     def state(self, name):
      ...         return self.saved.value()
      ...
      ...     def save_state(self, name, value):
      ...         return self.saved.assign(value).op
      >>> with hr.Graph() as g:
      ...     saver = Saver()
      ...     outputs, state = hr.nn.static_state_saving_rnn(
      ...         hr.layers.GRUCell(2), [hr.ones((1, 3))] * 2, saver, "h")
      >>> len(outputs), state.shape
      (2, (1, 2))
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     final = sess.run(state)
      ...     bool(np.all(sess.run(saver.saved) == final))
      True
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
    """Computes `static_state_saving_rnn`; `naming` opens the scopes."""
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
