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

MakeQueue = Callable[[list[Any], list[Shape]], QueueBase]  # arguments: dtypes and shapes of an element's components


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
    """Collects the values of tensors in successive steps into batches.

    A queue collects the values, and a queue runner fills it. When the evaluation of the tensors raises OutOfRangeError
    (the end of the data), the queue is closed. Then the batch raises OutOfRangeError when the queue has too few
    elements. The remaining elements form a last batch if `allow_smaller_final_batch`, and are dropped otherwise.

    Args:
      tensors: a tensor, or a list or dict of tensors: one example, or with `enqueue_many` several examples along the
        first dimension. They may include `SparseTensor`s.
      batch_size: number of examples in a batch: an int, or an int32 scalar tensor.
      num_threads: number of threads that fill the queue. With more than one the order of examples is not deterministic.
      capacity: largest number of examples in the queue.
      enqueue_many: whether `tensors` contain several examples.
      shapes: shapes of the tensors of an example. None: their static shapes. Entries of sparse tensors are ignored.
      dynamic_pad: whether the examples of a batch may differ in their unknown dimensions. They are padded with zeros.
      allow_smaller_final_batch: whether the last batch may be smaller. The first dimension is then unknown.
      shared_name: queues with the same name are one queue in a session. None: not shared.
      name: name of the operation. None: "batch".

    Returns:
      The batch, in the structure of `tensors`, with an additional first dimension `batch_size`. The batch of a sparse
      tensor is sparse; each other dimension is the largest of its examples.

    Raises:
      ValueError: there are no tensors; or a shape is not known.

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
    """Collects examples into batches, and drops those that are not to be kept.

    Args:
      tensors: see `batch`.
      keep_input: whether the example is kept: a bool scalar, or with `enqueue_many` a bool vector with an element for
        each example.
      batch_size, num_threads, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch, shared_name: see
        `batch`.
      name: name of the operation. None: "batch".

    Source: TensorFlow's `tf.train.maybe_batch`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     out = hr.train.maybe_batch([number], number > 1, 2)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value
      array([2, 3], dtype=int32)
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
    """Collects the examples of several sources into batches, with a thread for each source.

    Args:
      tensors_list: for each source, the tensors as `batch` takes them.
      batch_size, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch, shared_name: see `batch`.
      name: name of the operation. None: "batch_join".

    Source: TensorFlow's `tf.train.batch_join`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     out = hr.train.batch_join([[number], [number]], 2)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value.shape
      (2,)
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
    """Collects the kept examples of several sources into batches.

    Args:
      tensors_list: see `batch_join`.
      keep_input: see `maybe_batch`.
      batch_size, capacity, enqueue_many, shapes, dynamic_pad, allow_smaller_final_batch, shared_name: see `batch`.
      name: name of the operation. None: "batch_join".

    Source: TensorFlow's `tf.train.maybe_batch_join`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     out = hr.train.maybe_batch_join([[number], [number]], True, 2)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value.shape
      (2,)
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
    """Collects examples into batches in random order.

    Args:
      tensors, batch_size, num_threads, enqueue_many, shapes, allow_smaller_final_batch, shared_name: see `batch`.
      capacity: largest number of examples in the queue, larger than `min_after_dequeue`.
      min_after_dequeue: smallest number of examples that a batch is drawn from, until the data ends.
      seed: seed of the order. None: the order differs between runs (but see `hr.random.set_seed`).
      name: name of the operation. None: "shuffle_batch".

    Raises:
      ValueError: `capacity` is not larger than `min_after_dequeue`; or see `batch`.

    Source: TensorFlow's `tf.train.shuffle_batch`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     out = hr.train.shuffle_batch([number], 2, 4, 1, seed=1)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value.shape
      (2,)
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
    """Collects the kept examples into batches in random order.

    Args:
      tensors, batch_size, num_threads, enqueue_many, shapes, allow_smaller_final_batch, shared_name: see `batch`.
      capacity, min_after_dequeue, seed: see `shuffle_batch`.
      keep_input: see `maybe_batch`.
      name: name of the operation. None: "shuffle_batch".

    Source: TensorFlow's `tf.train.maybe_shuffle_batch`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     out = hr.train.maybe_shuffle_batch([number], 2, 4, 1, number >= 0, seed=1)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value.shape
      (2,)
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
    """Collects the examples of several sources into batches in random order.

    Args:
      tensors_list: see `batch_join`.
      batch_size, enqueue_many, shapes, allow_smaller_final_batch, shared_name: see `batch`.
      capacity, min_after_dequeue, seed: see `shuffle_batch`.
      name: name of the operation. None: "shuffle_batch_join".

    Source: TensorFlow's `tf.train.shuffle_batch_join`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     out = hr.train.shuffle_batch_join([[number], [number]], 2, 4, 1, seed=1)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value.shape
      (2,)
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
    """Collects the kept examples of several sources into batches in random order.

    Args:
      tensors_list: see `batch_join`.
      batch_size, enqueue_many, shapes, allow_smaller_final_batch, shared_name: see `batch`.
      capacity, min_after_dequeue, seed: see `shuffle_batch`.
      keep_input: see `maybe_batch`.
      name: name of the operation. None: "shuffle_batch_join".

    Source: TensorFlow's `tf.train.maybe_shuffle_batch_join`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     out = hr.train.maybe_shuffle_batch_join([[number], [number]], 2, 4, 1, True, seed=1)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value.shape
      (2,)
    """
    queue = _shuffling(capacity, min_after_dequeue, seed, shared_name)
    return _batched(
        "shuffle_batch_join", tensors_list, keep_input, batch_size, 1, queue, enqueue_many, shapes,
        allow_smaller_final_batch, shared_name, name, capacity, min_after_dequeue,
    )  # fmt: skip


def prefetch(
    tensors: Any, capacity: int = 2, num_threads: int = 1, shared_name: str | None = None, name: str | None = None
) -> Any:
    """Computes the values of tensors ahead of the steps that use them.

    Args:
      tensors: a tensor, or a structure of tensors.
      capacity: largest number of values that are ready.
      num_threads: number of threads that compute. With more than one the order is not deterministic.
      shared_name: queues with the same name are one queue in a session. None: not shared.
      name: name of the scope. None: "prefetch".

    Returns:
      Tensors in the structure of `tensors`, dequeued from a queue of computed values.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()
      ...     out = hr.train.prefetch([number])
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value
      [np.int32(0)]
    """
    flat = nest.flatten(tensors)
    with scopes.name_scope(name, "prefetch", flat):
        given = as_tensors(flat)
        known = [t.shape for t in given]
        are_full = all(shapes.is_full(s) for s in known)
        queue = FIFOQueue(capacity, [t.dtype for t in given], known if are_full else None, shared_name=shared_name)
        fill(queue, [queue.enqueue(given)] * num_threads)
        return nest.pack(tensors, taken_from(queue, known))


# *** shared implementation ***


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
    """Builds the queue, its runner and the batch. `least` examples stay in the queue."""
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
    """Adds a summary of the fraction of the queue that is filled."""
    name = f"fraction_over_{least}_of_{capacity - least}_full" if least else f"fraction_of_{capacity}_full"

    def fraction() -> Any:
        above = maximum(0, subtract(queue.size(), least, name="sub")) if least else queue.size()
        return multiply(cast(above, dtypes.float32), 1.0 / (capacity - least), name="mul")

    keeper_of(graph).add_scalar(name, fraction)


def taken_from(queue: QueueBase, known: Sequence[Shape]) -> list[Any]:
    """Dequeues an element, and refines the static shapes of its components."""
    got = queue.dequeue()
    parts = nest.as_list(got)
    for t, shape in zip(parts, known, strict=True):
        t.refine(shape)
    return parts


def _checked_keep(keep_input: Any, enqueue_many: bool) -> Any:
    """Returns `keep_input` as a tensor. True is unchanged, so that no conditional is built."""
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
