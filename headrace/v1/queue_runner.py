"""TensorFlow 1's queue runners: threads that fill the queues of the default graph."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import public_names
from headrace.errors import GraphError, OpError, exception_type_from_error_code
from headrace.interchange.files import read_message
from headrace.train import coordinator, queue_runner
from headrace.v1.graph import GraphKeys, get_default_graph, in_default_graph
from headrace.v1.session import get_default_session


class QueueRunner(queue_runner.QueueRunner):
    """Threads that fill a queue. See `headrace.train.QueueRunner`.

    Args:
      queue, enqueue_ops, close_op, cancel_op, queue_closed_exception_types: see `headrace.train.QueueRunner`.
      queue_runner_def: a `QueueRunnerDef` message, in place of the other arguments.
      import_scope: a name scope to put before the names of the message.

    Raises:
      ValueError: both `queue_runner_def` and `queue` or `enqueue_ops` are given, or see `headrace.train.QueueRunner`.
      GraphError: the message is malformed. KeyError: the graph has no such operation.

    Source: TensorFlow's `tf.train.QueueRunner`.
    """

    @in_default_graph
    def __init__(
        self,
        queue: Any = None,
        enqueue_ops: Sequence[Any] = (),
        close_op: Any = None,
        cancel_op: Any = None,
        queue_closed_exception_types: Sequence[type[BaseException]] | None = None,
        queue_runner_def: Any = None,
        import_scope: str | None = None,
    ) -> None:
        given = (queue, list(enqueue_ops or ()), close_op, cancel_op, queue_closed_exception_types)
        if queue_runner_def is not None:
            if queue is not None or enqueue_ops:
                raise ValueError("queue_runner_def and queue are mutually exclusive.")
            prefix, graph = f"{import_scope}/" if import_scope else "", get_default_graph()
            given = _described(queue_runner_def, lambda name: graph.as_graph_element(prefix + name))
        super().__init__(*given)

    def to_proto(self) -> Any:
        """The names of its queue and operations: a `QueueRunnerDef` message."""
        from headrace import pb

        codes: list[Any] = [c.error_code for c in self._closed if issubclass(c, OpError)]
        return pb.QueueRunnerDef(
            queue_name=self.queue.name,
            enqueue_op_name=[op.name for op in self.enqueue_ops],
            close_op_name=self.close_op.name,
            cancel_op_name=self.cancel_op.name,
            queue_closed_exception_types=codes,
        )

    @classmethod
    def from_proto(cls, queue_runner_def: Any, import_scope: str | None = None) -> QueueRunner:
        """The queue runner that a `QueueRunnerDef` message describes, in the default graph.

        Args:
          queue_runner_def: headrace's message, or TensorFlow's.
          import_scope: put before its names.

        Raises:
          GraphError: it is malformed. KeyError: the graph has no such operation.
        """
        return cls(queue_runner_def=queue_runner_def, import_scope=import_scope)

    @classmethod
    def of_names(cls, queue_runner_def: Any, find: Callable[[str], Any]) -> QueueRunner:
        """The queue runner of a `QueueRunnerDef` message.

        Args:
          queue_runner_def: the message, or its bytes.
          find: gives the tensor or operation of a name.

        Raises:
          GraphError: it is malformed.
        """
        return cls(*_described(queue_runner_def, find))


def _described(queue_runner_def: Any, find: Callable[[str], Any]) -> tuple[Any, list[Any], Any, Any, Any]:
    """Returns the queue, the operations and the exceptions that a `QueueRunnerDef` message describes.

    Raises:
      GraphError: it is malformed.
    """
    from headrace import pb

    given = read_message(pb.QueueRunnerDef, queue_runner_def)
    if not given.enqueue_op_name:
        raise GraphError("a QueueRunnerDef without operations that enqueue")
    try:
        closed = [exception_type_from_error_code(code) for code in given.queue_closed_exception_types]
    except KeyError as e:
        raise GraphError(f"a QueueRunnerDef with an error code that there is not: {e}") from e
    ops = [find(name) for name in (*given.enqueue_op_name, given.close_op_name, given.cancel_op_name)]
    return find(given.queue_name), ops[:-2], ops[-2], ops[-1], closed


def add_queue_runner(qr: QueueRunner, collection: str = GraphKeys.QUEUE_RUNNERS) -> None:
    """Adds a queue runner to those that `start_queue_runners` starts.

    Source: TensorFlow's `tf.train.add_queue_runner`.
    """
    get_default_graph().add_to_collection(collection, qr)


def start_queue_runners(
    sess: Any = None,
    coord: coordinator.Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> list[threading.Thread]:
    """Starts all queue runners of the session's graph; returns their threads.

    Args:
      sess: the session; None: the default one.
      coord, daemon, start: see `QueueRunner.create_threads`.
      collection: which queue runners.

    Raises:
      ValueError: there is no session.

    Source: TensorFlow's `tf.train.start_queue_runners`.
    """
    session = sess if sess is not None else get_default_session()
    if session is None:
        raise ValueError(
            "Cannot start queue runners: no default session is registered. Use `with tf.Session():` or sess="
        )
    graph: Any = session.graph
    runners: Sequence[QueueRunner] = graph.get_collection(collection)
    return [t for qr in runners for t in qr.create_threads(session, coord=coord, daemon=daemon, start=start)]


# fmt: off
__all__ = ["QueueRunner", "add_queue_runner", "start_queue_runners"]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
