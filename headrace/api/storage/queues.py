"""Queues, through which steps pass tensors to each other.

An element of a queue is a tuple of tensors, its components. Steps put elements in and take them out. A step that finds
the queue full, or empty, waits while other steps continue. So the steps of one session that share a queue run in
several threads.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.api.random import seeds
from headrace.errors import ShapeError, SignatureError
from headrace.ir.graph import Operation
from headrace.ir.symbolic import seen
from headrace.shapes import Dim, Shape


class QueueBase:
    """Base of all queues, and a queue given by its handle.

    Args:
      dtypes: dtypes of the components of an element: a dtype or a list.
      shapes: shapes of the components: a list (or one shape for one component); None: any shapes.
      names: names of the components: a list. Elements are then dicts.
      queue_ref: the handle.

    Attributes:
      dtypes: list of the dtypes of the components.
      names: list of the names of the components, or None.
      queue_ref: the handle, a tensor of dtype resource that is an input of the queue's operations.

    Source: TensorFlow's `tf.queue.QueueBase`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     queue = hr.FIFOQueue(10, [hr.int32])
      ...     size = queue.size()
      >>> isinstance(queue, hr.QueueBase), hr.Session(graph=g).run(size)
      (True, np.int32(0))
    """

    def __init__(self, dtypes: Any, shapes: Any, names: Any, queue_ref: Any) -> None:
        self._dtypes = _as_dtypes(dtypes)
        self._shapes = _as_shapes(shapes, self._dtypes)
        self._names = _as_names(names, self._dtypes)
        self._ref = queue_ref
        op = getattr(queue_ref, "op", None)
        self._name: str = op.name if isinstance(op, Operation) else "queue"

    def _open(self, type: str, capacity: int, shared_name: str | None, name: str, **attrs: Any) -> Any:
        """Creates the handle of a queue of type `type`."""
        b = scopes.builder()
        attrs |= {
            "component_types": tuple(self._dtypes),
            "shapes": tuple(self._shapes or ()),
            "capacity": capacity,
            "shared_name": shared_name or "",
            "container": getattr(b.graph, "current_container", ""),
        }
        self._name = name
        made = b.make(type, (), attrs, name)
        if b.graph is not None:
            self._name = made.op.name
        return made

    @staticmethod
    def from_list(index: Any, queues: Sequence[QueueBase]) -> QueueBase:
        """Returns the queue `queues[index]`, where `index` is a tensor.

        Args:
          index: an int scalar.
          queues: queues with the same dtypes and names.

        Raises:
          TypeError: the dtypes or names differ, or an element is not a queue.
        """
        if not queues or not all(isinstance(q, QueueBase) for q in queues):
            raise TypeError(f"A list of queues expected, got {queues!r}")
        first = queues[0]
        if any(q.dtypes != first.dtypes for q in queues):
            raise TypeError(f"Queues do not have matching component dtypes: {_told(queues, 'dtypes')}")
        if any(q.names != first.names for q in queues):
            raise TypeError(f"Queues do not have matching component names: {_told(queues, 'names')}")
        b = scopes.builder(index, *(q.queue_ref for q in queues))
        chosen = b.GatherV2(b.Pack([q.queue_ref for q in queues]), index, 0)
        common: list[Shape] | None = None
        if all(q._shapes is not None for q in queues):
            common = [_joined(column) for column in zip(*(q._shapes or () for q in queues), strict=True)]
        return QueueBase(first.dtypes, common, first.names, chosen)

    # *** properties ***

    @property
    def queue_ref(self) -> Any:
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that creates the handle."""
        return self._name

    @property
    def dtypes(self) -> list[dtypes.DType]:
        return list(self._dtypes)

    @property
    def shapes(self) -> list[Any]:
        """The shape of each component; None: any shape."""
        known = self._shapes if self._shapes is not None else [None] * len(self._dtypes)
        return list(map(seen, known, itertools.repeat(self._ref)))

    @property
    def names(self) -> list[str] | None:
        return self._names

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the queue {self._name!r} cannot be copied or pickled: what is in it belongs to a session. Make another "
            "one; a graph with its queues is exported by as_graph_def()"
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of ({', '.join(d.name for d in self._dtypes)})>"

    # *** operations ***

    def enqueue(self, vals: Any, name: str | None = None) -> Any:
        """Adds an operation that inserts an element, waiting while the queue is full.

        Args:
          vals: the components: a tensor, a list of tensors, or a dict if the components have names.
          name: name of the operation.

        Raises (when it runs):
          CancelledError: the queue is closed.

        Returns:
          The operation; None outside of graphs, where it has run.
        """
        return self._put("QueueEnqueueV2", "enqueue", vals, name)

    def enqueue_many(self, vals: Any, name: str | None = None) -> Any:
        """Adds an operation that inserts each row of the components as an element.

        It waits while the queue is full; see `enqueue`.

        Args:
          vals: the components, as for `enqueue`, with a further first axis.
          name: name of the operation.

        Raises:
          ShapeError (a ValueError): a component is a scalar, or the numbers of rows differ.
        """
        return self._put("QueueEnqueueManyV2", "EnqueueMany", vals, name)

    def _put(self, type: str, default: str, vals: Any, name: str | None) -> Any:
        parts = self._components(vals)
        with scopes.name_scope(name or self._called(default), values=[self._ref, *parts]) as scope:
            b = scopes.builder(self._ref, *parts)
            tensors = [
                b.tensor(x, d, f"component_{i}") for i, (x, d) in enumerate(zip(parts, self._dtypes, strict=True))
            ]
        rows: Dim = None  # of all components
        for i, (t, wanted) in enumerate(zip(tensors, self.shapes, strict=True)):
            shape = wanted
            if type == "QueueEnqueueManyV2":
                one = (t.shape or ())[1:] if wanted is None else wanted
                shape = (rows, *one)
                rows = t.shape[0] if t.shape and rows is None else rows
            if not shapes.compatible(t.shape, shape):
                raise ShapeError(
                    f"component {i} of what is put into {self!r} must have the shape {shapes.show(shape)}, got "
                    f"{shapes.show(t.shape)}"
                )
        return scopes.builder(self._ref, *parts).make(type, (self._ref, tensors), {}, scope)

    def dequeue(self, name: str | None = None) -> Any:
        """Removes and returns an element, waiting while the queue is empty.

        Raises (when it runs):
          OutOfRangeError: the queue is empty and closed.

        Returns:
          A tensor, a list of tensors if there are several components, or a dict if they have names.
        """
        return self._took("QueueDequeueV2", "Dequeue", (), name, ())

    def dequeue_many(self, n: Any, name: str | None = None) -> Any:
        """Removes `n` elements and returns them stacked, waiting until there are `n`.

        The shapes of the components must be known.
        """
        return self._took("QueueDequeueManyV2", "DequeueMany", (n,), name, (_known(n),))

    def dequeue_up_to(self, n: Any, name: str | None = None) -> Any:
        """Removes `n` elements and returns them stacked; fewer (at least one) from a closed queue."""
        return self._took("QueueDequeueUpToV2", "DequeueUpTo", (n,), name, (None,))

    def _took(self, type: str, default: str, args: tuple[Any, ...], name: str | None, leading: tuple[Any, ...]) -> Any:
        b = scopes.builder(self._ref, *args)
        attrs = {"component_types": tuple(self._dtypes)}
        got = b.make(type, (self._ref, *args), attrs, name or self._called(default))
        tensors = nest.as_list(got)
        if b.graph is not None:
            for t, wanted in zip(tensors, self.shapes, strict=True):
                t.refine(shapes.concatenate(leading, wanted))
        if self._names is not None:
            return dict(zip(self._names, tensors, strict=True))
        return tensors[0] if len(tensors) == 1 else tensors

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Any:
        """Adds an operation that closes the queue: it accepts no more elements.

        The elements in the queue can still be removed. An operation that waits for further elements fails with
        OutOfRangeError.

        Args:
          cancel_pending_enqueues: whether waiting enqueue operations fail with CancelledError; otherwise they complete
            first.
          name: name of the operation.
        """
        b = scopes.builder(self._ref)
        attrs = {"cancel_pending_enqueues": cancel_pending_enqueues}
        return b.make("QueueCloseV2", (self._ref,), attrs, name or self._called("Close"))

    def is_closed(self, name: str | None = None) -> Any:
        """Whether the queue is closed: a bool scalar."""
        return scopes.builder(self._ref).make("QueueIsClosedV2", (self._ref,), {}, name or self._called("Is_Closed"))

    def size(self, name: str | None = None) -> Any:
        """Returns the number of elements: an int32 scalar."""
        return scopes.builder(self._ref).make("QueueSizeV2", (self._ref,), {}, name or self._called("Size"))

    def _called(self, what: str) -> str:
        return f"{self._name.rpartition('/')[2]}_{what}"

    def _components(self, vals: Any) -> list[Any]:
        """Returns the components of an element in order."""
        if isinstance(vals, Mapping):
            if self._names is None:
                raise ValueError("Queue must have names to enqueue a dictionary")
            if sorted(vals) != sorted(self._names):
                raise ValueError(
                    "Keys in dictionary to enqueue do not match names of Queue.  "
                    f"Dictionary: {sorted(vals)}, Queue: {sorted(self._names)}"
                )
            return [vals[k] for k in self._names]
        if self._names is not None:
            raise ValueError(f"You must enqueue a dictionary in a Queue with names: {self._names}")
        parts = nest.as_list(vals)
        n = len(self._dtypes)
        if len(parts) != n:
            raise SignatureError(
                f"an element of {self!r} has {n} components, got {len(parts)}: {vals!r}"
                + ("; put a list around a list that is one component" if n == 1 else "")
            )
        return parts


class FIFOQueue(QueueBase):
    """First-in, first-out queue.

    Args:
      capacity: the largest number of elements; negative: unlimited.
      dtypes: dtypes of the components of an element: a dtype or a list.
      shapes: shapes of the components: a list of fully known shapes; None: any shapes, and `dequeue_many` is
        unavailable.
      names: names of the components: a list. Elements are then dicts.
      shared_name: queues with the same name are one queue in a session; None: the name of the operation.
      name: name of the operation.

    Source: TensorFlow's `tf.queue.FIFOQueue`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     q = hr.FIFOQueue(10, hr.int32, shapes=[()])
      ...     put, take = q.enqueue_many([[1, 2, 3]]), q.dequeue_many(2)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run(take)
      array([1, 2], dtype=int32)
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "fifo_queue",
    ) -> None:
        super().__init__(dtypes, shapes, names, None)
        self._ref = self._open("FIFOQueueV2", capacity, shared_name, name)


class PaddingFIFOQueue(QueueBase):
    """FIFO queue whose components may have varying sizes; batches are padded with zeros.

    Args:
      shapes: a list of shapes of the components, with None for varying dimensions; the ranks must be known.
      Others: see `FIFOQueue`.

    Source: TensorFlow's `tf.queue.PaddingFIFOQueue`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     queue = hr.PaddingFIFOQueue(10, [hr.int32], [[None]])
      ...     x = hr.placeholder(hr.int32, [None])
      ...     put, items = queue.enqueue(x), queue.dequeue_many(2)
      >>> session = hr.Session(graph=g)
      >>> session.run(put, {x: [1]}), session.run(put, {x: [2, 3]})
      (None, None)
      >>> session.run(items).tolist()
      [[1, 0], [2, 3]]
    """

    def __init__(
        self,
        capacity: int,
        dtypes: Any,
        shapes: Any,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "padding_fifo_queue",
    ) -> None:
        if not isinstance(shapes, (list, tuple)) or not shapes or any(d is None or isinstance(d, int) for d in shapes):
            raise ValueError("When providing partial shapes, a list of shapes must be provided.")
        super().__init__(dtypes, shapes, names, None)
        self._ref = self._open("PaddingFIFOQueueV2", capacity, shared_name, name)


class RandomShuffleQueue(QueueBase):
    """Queue that returns its elements in random order.

    Args:
      capacity, dtypes, shapes, names, shared_name, name: as for `FIFOQueue`.
      min_after_dequeue: the number of elements that remain in the queue while it is open, for mixing.
      seed: seed of the order; None: another order in each run, unless `set_random_seed` was called.

    Source: TensorFlow's `tf.queue.RandomShuffleQueue`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     queue = hr.RandomShuffleQueue(10, 0, [hr.int32], [[]], seed=1)
      ...     fill = queue.enqueue_many([[1, 2, 3]])
      ...     items = queue.dequeue_many(3)
      >>> session = hr.Session(graph=g)
      >>> session.run(fill)
      >>> sorted(session.run(items).tolist())
      [1, 2, 3]
    """

    def __init__(
        self,
        capacity: int,
        min_after_dequeue: int,
        dtypes: Any,
        shapes: Any = None,
        names: Any = None,
        seed: int | None = None,
        shared_name: str | None = None,
        name: str = "random_shuffle_queue",
    ) -> None:
        super().__init__(dtypes, shapes, names, None)
        attrs = {"min_after_dequeue": min_after_dequeue, **seeds(seed)}
        if seed is None and attrs["seed"] and shared_name is not None:
            # the seed must not depend on the operation, because other operations may share the queue
            digest = hashlib.md5(f"{attrs['seed']}{shared_name}".encode(), usedforsecurity=False).hexdigest()
            attrs["seed2"] = int(digest[:8], 16) & 0x7FFFFFFF
        self._ref = self._open("RandomShuffleQueueV2", capacity, shared_name, name, **attrs)


class PriorityQueue(QueueBase):
    """Queue that returns the element with the least priority number first.

    The first component of each element is its priority, an int64 scalar; the components of `types` follow.

    Args:
      types: dtypes of the other components: a dtype, or a list.
      shapes: shapes of the other components: a list.
      names: must be None.
      capacity, shared_name, name: as for `FIFOQueue`.

    Source: TensorFlow's `tf.queue.PriorityQueue`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     queue = hr.PriorityQueue(10, [hr.string], [[]])
      ...     fill = queue.enqueue_many([hr.constant([2, 1], hr.int64), ["later", "first"]])
      ...     item = queue.dequeue()
      >>> session = hr.Session(graph=g)
      >>> session.run(fill)
      >>> session.run(item)
      [np.int64(1), b'first']
    """

    def __init__(
        self,
        capacity: int,
        types: Any,
        shapes: Any = None,
        names: Any = None,
        shared_name: str | None = None,
        name: str = "priority_queue",
    ) -> None:
        if names is not None:
            raise ValueError("the components of a PriorityQueue have no names; enqueue a list, the priority first")
        super().__init__(types, shapes, None, None)
        self._ref = self._open("PriorityQueueV2", capacity, shared_name, name)
        self._dtypes = [dtypes.int64, *self._dtypes]
        self._shapes = [(), *self._shapes] if self._shapes is not None else None


def _as_dtypes(given: Any) -> list[dtypes.DType]:
    many = nest.as_list(given)
    return [dtypes.as_dtype(d).base for d in many]


def _as_shapes(given: Any, types: Sequence[dtypes.DType]) -> list[Shape] | None:
    """Returns a list of shapes; one shape is that of the only component."""
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or all(d is None or isinstance(d, int) for d in given):
        given = [given]
    out = [shapes.as_shape(s) for s in given]
    if len(out) != len(types):
        raise ValueError(
            "Queue shapes must have the same length as dtypes, received "
            f"len(shapes)={len(out)}, len(dtypes)={len(types)}"
        )
    return out


def _as_names(given: Any, types: Sequence[dtypes.DType]) -> list[str] | None:
    if not given:
        return None
    names = [given] if isinstance(given, str) else list(given)
    if len(names) != len(types):
        raise ValueError(
            "Queue names must have the same length as dtypes, received "
            f"len(names)={len(names)}, len(dtypes)={len(types)}"
        )
    return names


def _told(queues: Sequence[QueueBase], what: str) -> str:
    return ", ".join(f"{q!r} has {getattr(q, what)}" for q in queues)


def _joined(column: Sequence[Shape]) -> Shape:
    out = column[0]
    for shape in column[1:]:
        out = shapes.join(out, shape)
    return out


def _known(n: Any) -> int | None:
    return n if isinstance(n, int) and n >= 0 else None
