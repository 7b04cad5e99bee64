"""`raw_rnn`: a loop over time with a user function that runs between the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api import arrays, math, reductions, scopes, tensors
from headrace.api.rnn import sizes
from headrace.api.rnn.cells import check_cell
from headrace.api.rnn.dynamic import prepare
from headrace.api.rnn.lengths import finished
from headrace.api.rnn.naming import NAME_SCOPES, Naming
from headrace.api.tensor_array import TensorArray
from headrace.api.tensor_spec import TensorSpec
from headrace.api.while_loop import while_loop
from headrace.errors import ShapeError


def raw_rnn(
    cell: Any,
    loop_fn: Callable[[Any, Any, Any, Any], Any],
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: Any = None,
    save: Any = "all",
) -> tuple[Any, Any, Any]:
    """Runs a cell in a loop; a function computes the inputs of each step.

    A decoder, for example, receives its last output as input. The loop computes:

        finished, inputs, state, emit, loop_state = loop_fn(0, None, None, None)
        while not all(finished):
            output, new = cell(inputs, state)
            next_finished, inputs, new, emit, loop_state = loop_fn(time + 1, output, new, loop_state)
            emitted[time] = where(finished, 0, emit)
            state = where(finished, state, new)
            finished = finished | next_finished
            time += 1

    Args:
      cell: a `hr.layers.RNNCell`.
      loop_fn: a function of four arguments: time (an int32 scalar), the cell's output, the cell's new state, and the
        loop state, which only the function reads. The first call has time 0 and None for the other arguments. The
        function returns a tuple of five: `finished`, a bool vector; the inputs of the next step, [batch, ...]; the
        state of the next step; `emit`, the value to keep of this step; and the loop state, of any structure, or None if
        unchanged. The first `emit` is only an example: zeros of the shape that one example emits, or None if the cell's
        outputs are emitted.
      parallel_iterations: the largest number of open iterations; None: 32.
      swap_memory, save: see `hr.while_loop`.
      scope: name of the scope; "rnn" if None.

    Returns:
      The emitted values, an `hr.TensorArray` (or a structure of them) with an element for each step; the final state;
      and the final loop state, None if there was none.

    Raises:
      TypeError: `cell` is not a cell, or `loop_fn` is not callable.
      ValueError: a result of `loop_fn` does not have the structure of its first result or of the cell's state.

    Source: TensorFlow's `tf.nn.raw_rnn`.

    Example:
      >>> import headrace as hr
      >>> cell = hr.layers.BasicRNNCell(2)
      >>> def loop_fn(time, output, state, _):
      ...     if output is None:
      ...         return hr.fill([1], False), hr.ones((1, 2)), cell.zero_state(1, hr.float32), None, None
      ...     return hr.fill([1], time >= 3), output, state, output, None
      >>> emitted, state, _ = hr.nn.raw_rnn(cell, loop_fn)
      >>> emitted.stack().shape
      (3, 1, 2)
    """
    return raw(NAME_SCOPES, cell, loop_fn, parallel_iterations, swap_memory, scope, save)


def raw(
    naming: Naming,
    cell: Any,
    loop_fn: Callable[[Any, Any, Any, Any], Any],
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    scope: Any = None,
    save: Any = "all",
) -> tuple[Any, Any, Any]:
    """Computes `raw_rnn`; `naming` opens the scopes."""
    check_cell("cell", cell)
    if not callable(loop_fn):
        raise TypeError(f"loop_fn must be a callable, got {loop_fn!r}")
    with naming.enter(scope, "rnn"):
        zero = scopes.builder().const(0, dtypes.int32, "time")
        done, inputs, state, example, own = _five(loop_fn(zero, None, None, None))
        b = scopes.builder(done, *nest.flatten(inputs), *nest.flatten(state))
        done = b.tensor(done, dtypes.bool_, "finished")
        inputs = nest.map_leaves(lambda x: b.tensor(x, None, "inputs"), inputs)
        state = nest.map_leaves(lambda x: b.tensor(x, None, "state"), state)
        _same(cell.state_size, state, "the first state")
        batch = _batch(nest.flatten(inputs))
        prepare(cell, nest.map_leaves(lambda x: TensorSpec(x.shape, x.dtype.base), inputs))
        cell = cell.with_values_read() if hasattr(cell, "with_values_read") else cell
        if example is None:
            example = cell.output_size
            emitted = [(s, nest.flatten(state)[0].dtype.base) for s in nest.flatten(example)]
        else:
            example = nest.map_leaves(lambda x: b.tensor(x, None, "emit"), example)
            emitted = [(TensorSpec(x.shape, x.dtype), x.dtype.base) for x in nest.flatten(example)]
        arrays_ = [
            TensorArray(t, size=0, dynamic_size=True, element_shape=sizes.static(batch, s), tensor_array_name="output")
            for s, t in emitted
        ]
        nothing = [_zeros(batch, s, t, x) for (s, t), x in zip(emitted, nest.flatten(example), strict=True)]

        def step(time: Any, done: Any, inputs: Any, written: Any, state: Any, own: Any) -> Any:
            output, new = cell(inputs, state)
            _same(cell.output_size, output, "what the cell returned as output")
            _same(state, new, "what the cell returned as state")
            later = time + 1
            next_done, next_inputs, new, emit, next_own = _five(loop_fn(later, output, new, own))
            _same(inputs, next_inputs, "what loop_fn returned as inputs")
            _same(state, new, "what loop_fn returned as state")
            _same(example, emit, "what loop_fn returned to be emitted")
            new = finished(done, state, new)
            said = finished(done, nothing, nest.flatten(emit))
            written = [to.write(time, y) for to, y in zip(written, said, strict=True)]
            own = own if next_own is None else next_own
            return later, math.logical_or(done, next_done), next_inputs, written, new, own

        first = (zero, done, inputs, arrays_, state, 0 if own is None else own)
        *_, filled, state, last = while_loop(
            lambda _, done, *rest: math.logical_not(reductions.reduce_all(done)), step, first,
            parallel_iterations=parallel_iterations or 32, swap_memory=swap_memory, save=save,
        )  # fmt: skip
        return nest.pack(example, filled), state, None if own is None else last


def _five(returned: Any) -> tuple[Any, Any, Any, Any, Any]:
    if not isinstance(returned, (list, tuple)) or len(returned) != 5:
        raise ValueError(
            "loop_fn must return five things (finished, inputs, state, emit, loop_state), got "
            f"{nest.describe(returned)}"
        )
    return tuple(returned)


def _same(wanted: Any, got: Any, what: str) -> None:
    found = nest.mismatch(wanted, got)
    if found is not None:
        raise ValueError(f"The two structures don't have the same nested structure: {what}{found} was expected")


def _batch(flat: list[Any]) -> Any:
    """Returns the batch size of inputs: an int or a scalar."""
    known = [x.shape[0] for x in flat if x.shape and x.shape[0] is not None]
    if len(set(known)) > 1:
        raise ShapeError(f"the inputs must have the same batch size, got {[shapes.show(x.shape) for x in flat]}")
    return known[0] if known else sizes.batch_size(flat[0], 0)


def _zeros(batch: Any, size: Any, dtype: Any, example: Any) -> Any:
    """Returns the zeros that a finished example emits."""
    if tensors.is_tensor(example) and not shapes.is_full(example.shape):
        b = scopes.builder(example)
        rest = arrays.shape(example)
        return arrays.zeros(arrays.concat([b.make("Pack", ([batch],), {"axis": 0}), rest], 0), dtype)
    return sizes.zeros(batch, size, dtype)
