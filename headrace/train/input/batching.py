"""Batches of examples, in order or shuffled; and prefetching.

Examples arrive one by one or several at a time.

Source: TensorFlow's `tf.train.batch`, `tf.train.shuffle_batch`, and related functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.api.cond import cond
from headrace.api.grouping import no_op
from headrace.api.math import cast, maximum, multiply, subtract
from headrace.api.storage.queues import FIFOQueue, PaddingFIFOQueue, QueueBase, RandomShuffleQueue
from headrace.api.tensors import convert_to_tensor
from headrace.shapes import Shape
from headrace.train.input.elements import Elements, as_lists, as_tensors, like
from headrace.train.input.running import fill, keeper_of

MakeQueue = Callable[[list[Any], list[Shape]], QueueBase]  # from the dtypes and shapes of an element's components


def batch(
    tensors: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of what some tensors give in one step after the other.

    A queue collects them, and a queue runner fills it. When the tensors are an OutOfRangeError, which is the end of the
    data, so is the batch once the queue is empty; what is left and makes no whole batch is given only if
    `allow_smaller_final_batch` says so.

    Args:
      tensors: a tensor, a list or a dict of them: one example, or with `enqueue_many` several, along the first
        dimension. `SparseTensor`s may be among them.
      batch_size: how many make a batch; an int, or an int32 scalar.
      num_threads: how many threads fill the queue; with more than one the order is left to chance.
      capacity: how many examples the queue holds.
      enqueue_many: whether `tensors` are several examples.
      shapes: of an example's tensors; None: as they are known. Those of sparse tensors do not matter.
      dynamic_pad: whether the examples of a batch may differ in dimensions that are unknown; they are filled up with
        zeros.
      allow_smaller_final_batch: whether the last batch may be smaller; the first dimension is unknown then.
      shared_name: queues of one name are one queue in a session.
      name: of the operation; "batch" if None.

    Returns:
      The batches: as `tensors`, with one dimension more. That of a sparse tensor is sparse, and in the other dimensions
      as large as the largest of its examples.

    Raises:
      ValueError: there is nothing to batch; a shape is not known.

    Source: TensorFlow's `tf.train.batch`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     pairs = hr.train.batch([number, number * number], 2)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     [x.tolist() for x in sess.run(pairs)]
      ...     coord.request_stop()
      ...     coord.join(threads)
      [[0, 1], [0, 1]]
    """
    return maybe_batch(
        tensors, True, batch_size, num_threads, capacity, enqueue_many, shapes, dynamic_pad,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


def maybe_batch(
    tensors: Any,
    keep_input: Any,
    batch_size: Any,
    num_threads: int = 1,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of what is to be kept. See `batch`.

    Args:
      keep_input: whether an example is kept: a bool scalar, or with `enqueue_many` a vector with one for each.

    Source: TensorFlow's `tf.train.maybe_batch`.
    """
    queue = _fifo(capacity, dynamic_pad, shared_name)
    return _batched(
        "batch", [tensors], keep_input, batch_size, num_threads, queue, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name, capacity,
    )  # fmt: skip


def batch_join(
    tensors_list: Sequence[Any],
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of what several sources give, each with a thread of its own. See `batch`.

    Args:
      tensors_list: for each source what `batch` is given.

    Source: TensorFlow's `tf.train.batch_join`.
    """
    return maybe_batch_join(
        tensors_list, True, batch_size, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch,
        shared_name, name,
    )  # fmt: skip


def maybe_batch_join(
    tensors_list: Sequence[Any],
    keep_input: Any,
    batch_size: Any,
    capacity: int = 32,
    enqueue_many: bool = False,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of what several sources give and is to be kept. See `batch_join` and `maybe_batch`.

    Source: TensorFlow's `tf.train.maybe_batch_join`.
    """
    queue = _fifo(capacity, dynamic_pad, shared_name)
    return _batched(
        "batch_join", tensors_list, keep_input, batch_size, 1, queue, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name, capacity,
    )  # fmt: skip


def shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of examples in random order. See `batch`.

    Args:
      capacity: how many examples the queue holds.
      min_after_dequeue: so many examples at least are there to choose from, until the data ends.
      seed: what the order follows from; None: another order each time (but see `hr.random.set_seed`).

    Raises:
      ValueError: `capacity` is not larger than `min_after_dequeue`.

    Source: TensorFlow's `tf.train.shuffle_batch`.
    """
    return maybe_shuffle_batch(
        tensors, batch_size, capacity, min_after_dequeue, True, num_threads, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


def maybe_shuffle_batch(
    tensors: Any,
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    num_threads: int = 1,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of examples that are to be kept, in random order. See `shuffle_batch` and `maybe_batch`.

    Source: TensorFlow's `tf.train.maybe_shuffle_batch`.
    """
    queue = _shuffling(capacity, min_after_dequeue, seed, shared_name)
    return _batched(
        "shuffle_batch", [tensors], keep_input, batch_size, num_threads, queue, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name, capacity, min_after_dequeue,
    )  # fmt: skip


def shuffle_batch_join(
    tensors_list: Sequence[Any],
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of what several sources give, in random order. See `shuffle_batch` and `batch_join`.

    Source: TensorFlow's `tf.train.shuffle_batch_join`.
    """
    return maybe_shuffle_batch_join(
        tensors_list, batch_size, capacity, min_after_dequeue, True, seed, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name,
    )  # fmt: skip


def maybe_shuffle_batch_join(
    tensors_list: Sequence[Any],
    batch_size: Any,
    capacity: int,
    min_after_dequeue: int,
    keep_input: Any,
    seed: int | None = None,
    enqueue_many: bool = False,
    shapes: Any = None,
    allow_smaller_final_batch: bool = False,
    shared_name: str | None = None,
    name: str | None = None,
) -> Any:
    """Batches of what several sources give and is to be kept, in random order.

    Source: TensorFlow's `tf.train.maybe_shuffle_batch_join`. See `shuffle_batch_join` and `maybe_batch`.
    """
    queue = _shuffling(capacity, min_after_dequeue, seed, shared_name)
    return _batched(
        "shuffle_batch_join", tensors_list, keep_input, batch_size, 1, queue, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name, capacity, min_after_dequeue,
    )  # fmt: skip


def prefetch(
    tensors: Any, capacity: int = 2, num_threads: int = 1, shared_name: str | None = None, name: str | None = None
) -> Any:
    """What some tensors give, made ahead: while one step uses it, the next is being made.

    Args:
      tensors: a tensor, or a nested structure of them.
      capacity: how many values are kept ready.
      num_threads: how many threads make them; with more than one the order is left to chance.
      shared_name: queues of one name are one queue in a session.
      name: of the scope; "prefetch" if None.

    Returns:
      As `tensors`.
    """
    flat = nest.flatten(tensors)
    with scopes.name_scope(name, "prefetch", flat):
        given = as_tensors(flat)
        known = [t.shape for t in given]
        are_full = all(shapes.is_full(s) for s in known)
        queue = FIFOQueue(capacity, [t.dtype for t in given], known if are_full else None, shared_name=shared_name)
        fill(queue, [queue.enqueue(given)] * num_threads)
        return nest.pack(tensors, taken_from(queue, known))


# *** what they share ***


def _fifo(capacity: int, pads: bool, shared_name: str | None) -> MakeQueue:
    kind = PaddingFIFOQueue if pads else FIFOQueue
    return lambda types, known: kind(capacity, types, known, shared_name=shared_name)


def _shuffling(capacity: int, least: int, seed: int | None, shared_name: str | None) -> MakeQueue:
    def make(types: list[Any], known: list[Shape]) -> QueueBase:
        if capacity <= least:
            raise ValueError(f"capacity {capacity} must be bigger than min_after_dequeue {least}.")
        return RandomShuffleQueue(capacity, least, types, known, seed=seed, shared_name=shared_name)

    return make


def _batched(
    default_name: str,
    sources: Sequence[Any],
    keep_input: Any,
    batch_size: Any,
    num_threads: int,
    make_queue: MakeQueue,
    enqueue_many: bool,
    given_shapes: Any,
    may_be_smaller: bool,
    shared_name: str | None,
    name: str | None,
    capacity: int,
    least: int = 0,
) -> Any:
    """See `batch` for the arguments; `least` examples stay in the queue."""
    lists = as_lists(sources)
    graph = scopes.graph_builder(f"hr.train.{default_name}").graph
    with scopes.name_scope(name, default_name, [t for some in lists for t in some]) as scope:
        lists = [as_tensors(some) for some in lists]
        keep = _checked_keep(keep_input, enqueue_many)
        elements = Elements(lists, given_shapes, enqueue_many, shared_name or scope)
        queue = make_queue(elements.types, elements.shapes)
        fill(queue, [_enqueue(queue, elements, some, keep, enqueue_many) for some in lists] * num_threads)
        _show(graph, queue, capacity, least)
        dequeue = queue.dequeue_up_to if may_be_smaller else queue.dequeue_many
        return like(sources[0], elements.taken(dequeue(batch_size, name=scope)))


def _show(graph: Any, queue: QueueBase, capacity: int, least: int) -> None:
    """Lets graphs that have summaries show how full the queue is."""
    name = f"fraction_over_{least}_of_{capacity - least}_full" if least else f"fraction_of_{capacity}_full"

    def fraction() -> Any:
        above = maximum(0, subtract(queue.size(), least, name="sub")) if least else queue.size()
        return multiply(cast(above, dtypes.float32), 1.0 / (capacity - least), name="mul")

    keeper_of(graph).add_scalar(name, fraction)


def taken_from(queue: QueueBase, known: Sequence[Shape]) -> list[Any]:
    """The components of an element, of which more is known than the queue knows."""
    got = queue.dequeue()
    parts = nest.as_list(got)
    for t, shape in zip(parts, known, strict=True):
        t.refine(shape)
    return parts


def _checked_keep(keep_input: Any, enqueue_many: bool) -> Any:
    """`keep_input` as a tensor; True itself stays, so that no conditional is made."""
    if keep_input is True:
        return True
    keep = convert_to_tensor(keep_input, dtypes.bool_)
    rank = None if keep.shape is None else len(keep.shape)
    if rank is None:
        raise ValueError("`keep_input` dimensions must be known at graph construction.")
    if rank > 1:
        raise ValueError("`keep_input` must be 0 or 1 dimensions.")
    if rank == 1 and not enqueue_many:
        raise ValueError("`keep_input` cannot be a vector when `enqueue_many=False`.")
    return keep


def _enqueue(queue: QueueBase, elements: Elements, some: list[Any], keep: Any, many: bool) -> Any:
    put = queue.enqueue_many if many else queue.enqueue
    if keep is True:
        return put(elements.stored(some))
    if len(keep.shape) == 1:
        return put(elements.stored(some, keep))
    return cond(keep, lambda: put(elements.stored(some)), no_op)
