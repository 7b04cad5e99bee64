"""The registry of a graph's queue runners, and their start.

An `hr.Graph` stores its runners itself. A graph of `headrace.v1` has collections with conventions of their own; a
`Keeper` that such a graph stores with its pipelines implements them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from headrace.api import scopes
from headrace.api.variable import Variable
from headrace.train.coordinator import Coordinator
from headrace.train.queue_runner import QueueRunner

COLLECTION = "queue_runners"  # in graphs that have collections


class Keeper:
    """Conventions of a graph for the variables and summaries of input pipelines.

    This class has those of an `hr.Graph`. `headrace.v1` has a subclass for its graphs.
    """

    def local_variable(self, initial_value: Any, name: str, validate_shape: bool = True) -> Variable:
        """Creates a variable that is not trainable.

        Args:
          initial_value, name, validate_shape: see `Variable`.
        """
        return Variable(initial_value, trainable=False, name=name, validate_shape=validate_shape)

    def add_scalar(self, name: str, value: Callable[[], Any]) -> None:
        """Adds a scalar summary. An `hr.Graph` ignores it.

        Args:
          name: name of the summary.
          value: function without arguments that returns the scalar tensor.
        """


def keeper_of(graph: Any) -> Keeper:
    """Returns the keeper of a graph."""
    return next((k for k in getattr(graph, "kept", ()) if isinstance(k, Keeper)), Keeper())


def add_queue_runner(qr: QueueRunner) -> None:
    """Adds a queue runner to the current graph, for `start_queue_runners`.

    Args:
      qr: the queue runner.

    Raises:
      GraphError: no graph has been entered.

    Source: TensorFlow's `tf.train.add_queue_runner`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     queue = hr.FIFOQueue(4, hr.int32, [()])
      ...     hr.train.add_queue_runner(hr.train.QueueRunner(queue, [queue.enqueue(7)]))
      ...     taken = queue.dequeue()
      >>> with hr.train.MonitoredSession(graph=g) as session:
      ...     session.run(taken)
      np.int32(7)
    """
    graph: Any = _outermost(scopes.graph_builder("a queue runner").graph)
    if hasattr(graph, "add_to_collection"):
        graph.add_to_collection(COLLECTION, qr)
    else:
        scopes.keep(graph, qr)


def queue_runners(graph: Any) -> list[QueueRunner]:
    """Returns the queue runners of a graph, in the order of their creation."""
    if hasattr(graph, "get_collection"):
        return list(graph.get_collection(COLLECTION))
    return [thing for thing in getattr(graph, "kept", ()) if isinstance(thing, QueueRunner)]


def start_queue_runners(
    sess: Any, coord: Coordinator | None = None, daemon: bool = True, start: bool = True
) -> list[threading.Thread]:
    """Starts the threads of all queue runners of the session's graph.

    A `MonitoredSession` does this itself.

    Args:
      sess: the session.
      coord: coordinator that registers the threads, stops them and receives their errors, or None.
      daemon: whether the threads are daemon threads, which do not keep the program alive.
      start: whether to start the threads.

    Returns:
      The threads.

    Source: TensorFlow's `tf.train.start_queue_runners`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     numbers = hr.train.range_input_producer(3, num_epochs=1, shuffle=False)
      ...     number = numbers.dequeue()
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     [int(sess.run(number)) for _ in range(3)]
      ...     coord.request_stop()
      ...     coord.join(threads)
      [0, 1, 2]
    """
    made: list[threading.Thread] = []
    for qr in queue_runners(sess.graph):
        made += qr.create_threads(sess, coord=coord, daemon=daemon, start=start)
    return made


def fill(queue: Any, enqueue_ops: Sequence[Any], **options: Any) -> None:
    """Creates and adds the runner of a queue."""
    add_queue_runner(QueueRunner(queue, list(enqueue_ops), **options))


def _outermost(graph: Any) -> Any:
    while getattr(graph, "outer", None) is not None:
        graph = graph.outer
    return graph
