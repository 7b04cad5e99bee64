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
    """The lengths as an int32 vector.

    Args:
      sequence_length: an integer vector: one for each example.
      batch: how many examples, if it is known.

    Raises:
      ShapeError (a ValueError): it is no vector, or one of another size.
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
    """Which examples are still going.

    Args:
      lengths: an int32 vector.
      steps: how many steps there are: a number or a scalar.
    """

    def __init__(self, lengths: Any, steps: Any) -> None:
        times = arrays.expand_dims(reductions.range(steps), 1)
        self._by_time = math.less(times, arrays.expand_dims(lengths, 0), name="going")
        self._rows = TensorArray(dtypes.bool_, size=steps, tensor_array_name="going").unstack(self._by_time)

    def state(self, time: Any, old: Any, new: Any) -> Any:
        """The new state of those that are going, the old state of the others."""
        going = self._rows.read(time)
        return nest.map_leaves(lambda was, now: _chosen(going, now, was, was), old, new)

    def outputs(self, by_time: Any) -> Any:
        """Outputs of [time, batch, ...], with zeros for those that had ended."""
        b = scopes.builder(by_time)
        mask = self._by_time
        for _ in range(len(by_time.shape) - 2):
            mask = arrays.expand_dims(mask, -1)
        return b.make("SelectV2", (mask, by_time, b.const(0, by_time.dtype.base)), {})


def finished(done: Any, old: Any, new: Any) -> Any:
    """The old state of the examples that have finished, the new one of the others.

    Args:
      done: a bool vector.
    """
    return nest.map_leaves(lambda was, now: _chosen(done, was, now, was), old, new)


def _chosen(mask: Any, one: Any, other: Any, old: Any) -> Any:
    """Rows of one state or another; the new one if it is nobody's own: a number, or a tensor array."""
    if old.shape == ():
        return other if one is old else one
    # Select and not SelectV2, which would stretch a state of another batch size, and whose gradient has to ask for that
    chosen = scopes.builder(one, other).make("Select", (mask, one, other), {})
    tensors.narrow(chosen, old.shape)
    return chosen
