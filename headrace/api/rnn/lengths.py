"""Batches of sequences with different lengths: states and outputs of examples that have ended.

The sequences of a batch are padded to one length, and the loop runs until the longest has ended. An example that has
ended keeps its state, and its outputs are zero. Both are selected, not multiplied by a mask: the results of the cell
for padding may be anything, even infinities, and must not have an effect.

The active examples are known before the loop, for all time steps at once: a matrix of [time, batch], of which the loop
reads a row in each step. Outputs are set to zero after the loop, all at once.
"""

from __future__ import annotations

from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api import arrays, math, reductions, scopes, tensors
from headrace.api.tensor_array import TensorArray
from headrace.errors import ShapeError


def checked(sequence_length: Any, batch: Any) -> Any:
    """Returns the sequence lengths as an int32 vector.

    Args:
      sequence_length: an int vector: one length for each example.
      batch: number of examples, if it is known.

    Raises:
      ShapeError (a ValueError): it is not a vector, or has another size.
    """
    b = scopes.builder(sequence_length)
    given = b.tensor(sequence_length, None, "sequence_length")
    wanted = (batch if isinstance(batch, int) else None,)
    if not shapes.compatible(given.shape, wanted):
        raise ShapeError(
            f"sequence_length must be a vector with one length for each of the {wanted[0] or ''} examples of the "
            f"batch, got {shapes.show(given.shape)}"
        )
    made = tensors.identity(math.cast(given, dtypes.int32), name="sequence_length")
    tensors.narrow(made, wanted)
    return made


class Going:
    """Mask of the examples whose sequences have not ended, for all steps.

    Args:
      lengths: an int32 vector.
      steps: number of steps: an int or a scalar.
    """

    def __init__(self, lengths: Any, steps: Any) -> None:
        times = arrays.expand_dims(reductions.range(steps), 1)
        self._by_time = math.less(times, arrays.expand_dims(lengths, 0), name="going")
        self._rows = TensorArray(dtypes.bool_, size=steps, tensor_array_name="going").unstack(self._by_time)

    def state(self, time: Any, old: Any, new: Any) -> Any:
        """Selects the new state for running examples, the old one for ended examples."""
        going = self._rows.read(time)
        return nest.map_leaves(lambda was, now: _chosen(going, now, was, was), old, new)

    def outputs(self, by_time: Any) -> Any:
        """Replaces outputs, [time, batch, ...], after the end of a sequence by zeros."""
        b = scopes.builder(by_time)
        mask = self._by_time
        for _ in range(len(by_time.shape) - 2):
            mask = arrays.expand_dims(mask, -1)
        return b.make("SelectV2", (mask, by_time, b.const(0, by_time.dtype.base)), {})


def finished(done: Any, old: Any, new: Any) -> Any:
    """Selects the old state of finished examples, the new state of the others.

    Args:
      done: a bool vector: whether each example has finished.
      old, new: structures of tensors, [batch, ...].
    """
    return nest.map_leaves(lambda was, now: _chosen(done, was, now, was), old, new)


def _chosen(mask: Any, one: Any, other: Any, old: Any) -> Any:
    """Selects rows of two states; a scalar or tensor array is not selected by rows."""
    if old.shape == ():
        return other if one is old else one
    # SelectV2 would broadcast a state of another batch size, and its gradient would have to handle broadcasting
    chosen = scopes.builder(one, other).make("Select", (mask, one, other), {})
    tensors.narrow(chosen, old.shape)
    return chosen
