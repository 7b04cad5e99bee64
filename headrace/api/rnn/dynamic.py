"""`dynamic_rnn`: a cell in a loop over time."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api import arrays, math, reductions, scopes, tensors
from headrace.api.rnn import sizes
from headrace.api.rnn.cells import check_cell
from headrace.api.rnn.lengths import Going, checked
from headrace.api.rnn.naming import NAME_SCOPES, Naming
from headrace.api.tensor_array import TensorArray
from headrace.api.tensor_spec import TensorSpec
from headrace.api.while_loop import while_loop
from headrace.errors import ShapeError
from headrace.ir.builder import Builder


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
    save: Any = "all",
) -> tuple[Any, Any]:
    """Runs a cell over time with a loop.

    Args:
      cell: a `hr.layers.RNNCell`.
      inputs: [batch, time, ...]: a tensor or a structure of them, of known rank and with known sizes after the second
        axis.
      sequence_length: an int vector: length of each sequence. For later steps of an example the outputs are zero and
        the state is kept, independent of the inputs. The loop ends after the longest sequence. None: all sequences have
        the length of `inputs`.
      initial_state: the initial state, in the structure of `cell.state_size`; None: zeros.
      dtype: dtype of states and outputs; needed if there is no `initial_state`.
      parallel_iterations: the largest number of open iterations; None: 32.
      swap_memory, save: see `hr.while_loop`.
      time_major: whether inputs and outputs are [time, batch, ...], which saves their transposition.
      scope: name of the scope; "rnn" if None.

    Returns:
      The outputs, [batch, time, ...] in the structure of `cell.output_size`, and the final state of each example.

    Raises:
      TypeError: `cell` is not a cell.
      ValueError: there is neither `initial_state` nor `dtype`.
      ShapeError (a ValueError): the inputs have too few dimensions or unknown sizes, or the inputs and the lengths have
        incompatible shapes.

    Source: TensorFlow's `tf.nn.dynamic_rnn`.

    Example:
      >>> import headrace as hr
      >>> x = hr.constant([[[1.0], [1.0], [1.0]], [[1.0], [1.0], [1.0]]])
      >>> cell = hr.layers.BasicRNNCell(2)
      >>> y, state = hr.nn.dynamic_rnn(cell, x, sequence_length=[3, 1], dtype=hr.float32)
      >>> y.shape, y.numpy()[1, 1:].tolist()
      ((2, 3, 2), [[0.0, 0.0], [0.0, 0.0]])
      >>> bool((y.numpy()[1, 0] == state.numpy()[1]).all())
      True
    """
    return unrolled(
        NAME_SCOPES, cell, inputs, sequence_length, initial_state, dtype, parallel_iterations, swap_memory,
        time_major, scope, save,
    )  # fmt: skip


def unrolled(
    naming: Naming,
    cell: Any,
    inputs: Any,
    sequence_length: Any = None,
    initial_state: Any = None,
    dtype: Any = None,
    parallel_iterations: int | None = None,
    swap_memory: bool = False,
    time_major: bool = False,
    scope: Any = None,
    save: Any = "all",
) -> tuple[Any, Any]:
    """Computes `dynamic_rnn`; `naming` opens the scopes."""
    check_cell("cell", cell)
    given = nest.flatten(inputs)
    if not given:
        raise ValueError(f"a network needs inputs, got {nest.describe(inputs)}")
    with naming.enter(scope, "rnn", given):
        b = scopes.builder(*given)
        flat = [b.tensor(x, None, "inputs") for x in given]
        if not time_major:
            flat = [time_and_batch(x) for x in flat]
        _check(flat)
        steps = next((x.shape[0] for x in flat if x.shape[0] is not None), None)
        if steps is None:
            steps = sizes.batch_size(flat[0], 0)
        batch = next((x.shape[1] for x in flat if x.shape[1] is not None), None)
        if batch is None:
            batch = sizes.batch_size(flat[0], 1)
        lengths = None if sequence_length is None else checked(sequence_length, batch)
        state = first_state(cell, initial_state, batch, dtype)
        prepare(cell, nest.pack(inputs, [TensorSpec(x.shape[1:], x.dtype.base) for x in flat]))
        outputs, state = _loop(
            cell, nest.pack(inputs, flat), state, dtype, steps, batch, lengths,
            {"parallel_iterations": parallel_iterations or 32, "swap_memory": swap_memory, "save": save},
        )  # fmt: skip
        if not time_major:
            outputs = nest.map_leaves(time_and_batch, outputs)
        return outputs, state


def _loop(
    cell: Any, inputs: Any, state: Any, dtype: Any, steps: Any, batch: Any, lengths: Any, options: dict[str, Any]
) -> tuple[Any, Any]:
    """Returns the outputs and the final state for inputs of [time, batch, ...]."""
    flat = nest.flatten(inputs)
    cell = cell.with_values_read() if hasattr(cell, "with_values_read") else cell
    arriving = [TensorArray(x.dtype.base, size=steps, tensor_array_name="input").unstack(x) for x in flat]
    kind = state_dtype(dtype, state)
    leaving = [_outputs(kind, steps, batch, size) for size in nest.flatten(cell.output_size)]
    going, end = None, steps
    if lengths is not None:
        going = Going(lengths, steps)
        # as in TensorFlow, the loop runs at least one step, unless the inputs have none
        end = math.minimum(steps, math.maximum(1, reductions.reduce_max(lengths)), name="end")

    def step(time: Any, leaving: Any, state: Any) -> Any:
        now = [tensor_array.read(time) for tensor_array in arriving]
        for x, whole in zip(now, flat, strict=True):
            tensors.narrow(x, whole.shape[1:])
        output, new = cell(nest.pack(inputs, now), state)
        _check_structures(cell, output, state, new)
        if going is not None:
            new = going.state(time, state, new)
        written = [to.write(time, y) for to, y in zip(leaving, nest.flatten(output), strict=True)]
        return time + 1, written, new

    _, filled, last = while_loop(
        lambda time, *_: time < end, step, (scopes.builder(*flat).const(0, dtypes.int32, "time"), leaving, state),
        **options,
    )  # fmt: skip
    outputs = [made.stack() for made in filled]
    static = steps if isinstance(steps, int) else None
    for y, size in zip(outputs, nest.flatten(cell.output_size), strict=True):
        tensors.narrow(y, (static, *sizes.static(batch, size)))
    if going is not None:
        outputs = [going.outputs(y) for y in outputs]
    return nest.pack(cell.output_size, outputs), last


def _outputs(dtype: Any, steps: Any, batch: Any, size: Any) -> TensorArray:
    """Creates the tensor array for the outputs of all steps."""
    shape = sizes.static(batch, size)
    b = scopes.builder(steps, batch)
    if not isinstance(b, Builder) or None not in shape or None in shape[1:]:
        return TensorArray(dtype, size=steps, element_shape=shape, tensor_array_name="output")
    # without steps, the stacked shape comes from the array: it is reserved with the output shape
    dims = b.make("Pack", ([batch, *shape[1:]],), {"axis": 0}, "output_shape")
    flow = b.TensorListReserve(dims, b.tensor(steps, dtypes.int32), element_dtype=dtype)
    return TensorArray(dtype, flow=flow, element_shape=shape)


def _check(flat: list[Any]) -> None:
    """Checks that the inputs, [time, batch, ...], have compatible shapes.

    Raises:
      ShapeError: the rank or a size is unknown, or the shapes are incompatible.
    """
    first = flat[0]
    for x in flat:
        if x.shape is None or len(x.shape) < 3 or None in x.shape[2:]:
            raise ShapeError(
                "the inputs of a network must have a known rank of 3 or more, [batch, time, ...], and known sizes "
                f"beyond the second, got {x!r}; hr.ensure_shape adds what is not known, hr.expand_dims(x, -1) makes "
                "vectors of numbers"
            )
        if not shapes.compatible(x.shape[:2], first.shape[:2]):
            raise ShapeError(
                f"the inputs of a network must have the same time steps and batch size, got {shapes.show(x.shape)} and "
                f"{shapes.show(first.shape)} ([time, batch, ...])"
            )


def _check_structures(cell: Any, output: Any, state: Any, new: Any) -> None:
    for what, wanted, got in (("output", cell.output_size, output), ("state", state, new)):
        found = nest.mismatch(wanted, got)
        if found is not None:
            raise ValueError(
                f"The two structures don't have the same nested structure: the {what} of {cell!r}{found}; it was "
                f"expected to have the first{' (output_size)' if what == 'output' else ''}"
            )


def time_and_batch(x: Any) -> Any:
    """Exchanges the first two dimensions of `x`."""
    if x.shape is None or len(x.shape) < 2:
        raise ShapeError(f"the inputs of a network must have a known rank of 3 or more, [batch, time, ...], got {x!r}")
    return arrays.transpose(x, [1, 0, *range(2, len(x.shape))])


def first_state(cell: Any, initial_state: Any, batch: Any, dtype: Any) -> Any:
    """Returns the initial state of a cell, as given or by default.

    Raises:
      ValueError: there is neither a state nor a dtype, or the state has another structure.
    """
    if initial_state is not None:
        found = nest.mismatch(cell.state_size, initial_state)
        if found is not None and not _is_shape(cell.state_size):
            raise ValueError(
                f"initial_state does not have the structure of the cell's state_size{found}: give {cell.state_size}"
            )
        b = scopes.builder(*nest.flatten(initial_state))
        wanted = None if dtype is None else dtypes.as_dtype(dtype)
        return nest.map_leaves(
            lambda x: b.tensor(x, None if tensors.is_tensor(x) else wanted, "initial_state"), initial_state
        )
    if dtype is None:
        raise ValueError("If there is no initial_state, a dtype must be: give dtype=hr.float32, or a state")
    make = getattr(cell, "get_initial_state", None)
    if make is not None:
        return make(inputs=None, batch_size=batch, dtype=dtype)
    return cell.zero_state(batch, dtype)


def _is_shape(size: Any) -> bool:
    return not nest.is_nested(size)


def prepare(cell: Any, inputs: Any) -> None:
    """Creates the variables of a cell before the loop in which it is called."""
    ready = getattr(cell, "prepare", None)
    if ready is not None:
        ready(inputs)


def state_dtype(dtype: Any, state: Any) -> Any:
    """Returns the dtype of outputs: `dtype` as given, or that of the states.

    Raises:
      ValueError: no dtype is given and the states do not have exactly one.
    """
    if dtype is not None:
        return dtypes.as_dtype(dtype)
    found = {x.dtype.base for x in nest.flatten(state)}
    if len(found) != 1:
        names = sorted(t.name for t in found) or "no state"
        raise ValueError(f"the dtype of the outputs cannot be told from the states ({names}): give dtype")
    return found.pop()
