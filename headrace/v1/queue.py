"""TensorFlow 1's `tf.queue`: headrace's queues, which are made in the default graph."""

from __future__ import annotations

from headrace.build import queues
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
