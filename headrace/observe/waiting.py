"""Queue that an operation waits for: its state and its queue runners."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.errors import NotFoundError
from headrace.resources.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.ir.graph import Graph, Operation
    from headrace.resources.manager import ResourceManager

_HOPS: Final = 64  # operations between a queue and an operation on it, such as Enter and Switch


def describe_wait(op: Operation, graph: Graph, session: Any, resources: ResourceManager) -> str:
    """Describes the queue that an operation uses, and names `start_queue_runners` if that is the remedy.

    Args:
      op: the operation.
      graph: the graph of the session, which has the queue runners.
      session: the session.
      resources: the resources of the session.

    Returns:
      The text; "" if the operation uses no queue of this process.
    """
    source = _queue_op(op)
    if source is None:
        return ""
    name = source.attrs.get("shared_name") or source.name
    try:
        queue: Queue = resources.lookup(source.attrs.get("container", ""), Queue, name)  # type: ignore[type-abstract]
    except NotFoundError:
        return ""
    size = queue.size()
    text = f"on {queue.describe()}, which has {size} elements" if size else f"on the empty {queue.describe()}"
    return text + (_advice(source.name, graph, session) if not size and "Dequeue" in op.type else "")


def _advice(queue: str, graph: Graph, session: Any) -> str:
    """Returns the advice about the queue runners of an empty queue, or ""."""
    runners = [r for r in _kept(graph) if getattr(getattr(r, "queue", None), "name", None) == queue]
    if not runners:
        return ""
    for r in runners:
        if r.has_run(session):
            failed = r.exceptions_raised
            return f"; its queue runner has stopped: {failed[0]}" if failed else ""
    return "; its queue runners were not started: call hr.train.start_queue_runners(session)"


def _kept(graph: Graph) -> Iterable[Any]:
    """Objects that a graph keeps: `hr.Graph` in a list, graphs of TensorFlow 1 in collections."""
    collection = getattr(graph, "get_collection", None)
    return (*getattr(graph, "kept", ()), *(collection("queue_runners") if collection is not None else ()))


def _queue_op(op: Operation) -> Operation | None:
    """The operation that made the queue which is the first input of `op`."""
    for _ in range(_HOPS):
        if not op.inputs:
            return op if "shared_name" in op.attrs and "capacity" in op.attrs else None
        op = op.inputs[0].op
    return None
