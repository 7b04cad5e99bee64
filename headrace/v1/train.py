"""TensorFlow 1's `tf.train`, as far as it is there: what keeps threads together that feed queues."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from headrace.train import coordinator, queue_runner
from headrace.v1.graph import GraphKeys, get_default_graph, in_default_graph
from headrace.v1.session import get_default_session

Coordinator = coordinator.Coordinator


class QueueRunner(queue_runner.QueueRunner):
    """Threads that fill a queue. See `headrace.train.QueueRunner`.

    Source: TensorFlow's `tf.train.QueueRunner`.
    """

    __init__ = in_default_graph(queue_runner.QueueRunner.__init__)


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


def __getattr__(name: str) -> Any:
    raise AttributeError(f"headrace.v1.train has no {name!r}: optimizers and savers are a later step; see docs/v1.md")


__all__ = ["Coordinator", "QueueRunner", "add_queue_runner", "start_queue_runners"]
