"""TensorFlow 1's `tf.queue`, and its accumulators: headrace's, in the default graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import public_names
from headrace.api.storage import accumulators, queues
from headrace.v1.graph import in_default_graph

QueueBase = queues.QueueBase


class FIFOQueue(queues.FIFOQueue):
    """A queue that gives its elements in the order in which they came. See `headrace.FIFOQueue`.

    Source: TensorFlow's `tf.FIFOQueue`.
    """

    __init__ = in_default_graph(queues.FIFOQueue.__init__)


class PaddingFIFOQueue(queues.PaddingFIFOQueue):
    """A `FIFOQueue` whose components may differ in some dimensions. See `headrace.PaddingFIFOQueue`.

    Source: TensorFlow's `tf.PaddingFIFOQueue`.
    """

    __init__ = in_default_graph(queues.PaddingFIFOQueue.__init__)


class RandomShuffleQueue(queues.RandomShuffleQueue):
    """A queue that gives its elements in random order. See `headrace.RandomShuffleQueue`.

    Source: TensorFlow's `tf.RandomShuffleQueue`.
    """

    __init__ = in_default_graph(queues.RandomShuffleQueue.__init__)


class PriorityQueue(queues.PriorityQueue):
    """A queue that gives the element with the least number first. See `headrace.PriorityQueue`.

    Source: TensorFlow's `tf.PriorityQueue`.
    """

    __init__ = in_default_graph(queues.PriorityQueue.__init__)


ConditionalAccumulatorBase = accumulators.ConditionalAccumulatorBase


class ConditionalAccumulator(accumulators.ConditionalAccumulator):
    """An accumulator of gradients that are tensors. See `headrace.ConditionalAccumulator`.

    Source: TensorFlow's `tf.ConditionalAccumulator`.
    """

    __init__ = in_default_graph(accumulators.ConditionalAccumulator.__init__)


class SparseConditionalAccumulator(accumulators.SparseConditionalAccumulator):
    """An accumulator of gradients that are some rows of a tensor. See `headrace.SparseConditionalAccumulator`.

    Source: TensorFlow's `tf.SparseConditionalAccumulator`.
    """

    __init__ = in_default_graph(accumulators.SparseConditionalAccumulator.__init__)


# fmt: off
__all__ = [
    "ConditionalAccumulator", "ConditionalAccumulatorBase", "FIFOQueue", "PaddingFIFOQueue", "PriorityQueue",
    "QueueBase", "RandomShuffleQueue", "SparseConditionalAccumulator",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
