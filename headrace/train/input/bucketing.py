"""Buckets: batches of similar examples, mostly by length, to reduce padding.

    example ──► its bucket's queue ──► batches, from whichever bucket has one ──► the training step
                (one for each bucket)            (one more queue)

Source: TensorFlow's `tf.contrib.training.bucket` and `bucket_by_sequence_length`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from headrace import dtypes, nest
from headrace.api import scopes
from headrace.api.arrays import reshape
from headrace.api.cond import cond, switch_case
from headrace.api.debugging import Assert
from headrace.api.grouping import group, no_op
from headrace.api.math import greater_equal, less, logical_and
from headrace.api.reductions import searchsorted
from headrace.api.storage.queues import FIFOQueue, PaddingFIFOQueue
from headrace.api.tensors import constant, convert_to_tensor
from headrace.errors import CancelledError, OutOfRangeError
from headrace.train.input.elements import Elements, as_lists, as_tensors, like, stacked
from headrace.train.input.running import fill


def bucket(
    tensors: Any,
    which_bucket: Any,
    batch_size: int | Sequence[int],
    num_buckets: int,
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: Any = True,
    shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Collects examples into batches whose examples are from the same bucket.

    Args:
      tensors: an example: a tensor, or a list or dict of tensors. They may include `SparseTensor`s.
      which_bucket: bucket of the example: an int32 scalar from 0 to `num_buckets` - 1.
      batch_size: number of examples in a batch, or a list with a number for each bucket.
      num_buckets: number of buckets.
      num_threads: number of threads that fill the buckets. With more than one the order is not deterministic.
      capacity: largest number of batches that are ready; and by default the largest number of examples in a bucket, but
        at least a batch.
      bucket_capacities: largest number of examples in each bucket.
      shapes: shapes of the tensors of an example. None: their static shapes.
      dynamic_pad: whether the examples of a batch may differ in their unknown dimensions. They are padded with zeros.
      allow_smaller_final_batch: whether the examples that remain in the buckets at the end of the data form smaller
        batches. Otherwise they are dropped.
      keep_input: whether the example is kept: a bool scalar.
      shared_name: prefix of the shared names of the queues. Queues with the same name are one queue in a session.
      name: name of the scope. None: "bucket".

    Returns:
      A pair: the bucket of the batch, an int32 scalar; and the batch, in the structure of `tensors`, with an additional
      first dimension.

    Raises:
      ValueError: a list does not have `num_buckets` elements; or a bucket's capacity is less than its batch size.
      InvalidArgumentError: in a run: `which_bucket` is out of range.

    Source: TensorFlow's `tf.contrib.training.bucket`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(6, num_epochs=1, shuffle=False).dequeue()
      ...     which, batch = hr.train.bucket(number, number % 2, batch_size=3, num_buckets=2)
      >>> with hr.train.MonitoredSession(graph=g) as session:
      ...     batches = [session.run((which, batch)) for _ in range(2)]
      >>> sorted((int(i), numbers.tolist()) for i, numbers in batches)
      [(0, [0, 2, 4]), (1, [1, 3, 5])]
    """
    sizes = _for_each(batch_size, num_buckets, "batch_size")
    holds = _for_each(
        [max(capacity, n) for n in sizes] if bucket_capacities is None else bucket_capacities, num_buckets,
        "bucket_capacities",
    )  # fmt: skip
    for n, most in zip(sizes, holds, strict=True):
        if n > most:
            raise ValueError(f"a bucket that holds {most} examples cannot make a batch of {n}")
    scopes.graph_builder("hr.train.bucket")
    kind = PaddingFIFOQueue if dynamic_pad else FIFOQueue
    with scopes.name_scope(name, "bucket", as_lists([tensors])[0]) as scope:
        some = as_tensors(as_lists([tensors])[0])
        which = convert_to_tensor(which_bucket, dtypes.int32)
        elements = Elements([some], shapes, False, shared_name or scope)
        types, known = elements.types, elements.shapes
        names = [f"{shared_name}_{i}" if shared_name else None for i in range(num_buckets)]
        buckets = [
            kind(most, types, known, shared_name=shared, name="bucket_queue")
            for most, shared in zip(holds, names, strict=True)
        ]
        same = sizes[0] if len(set(sizes)) == 1 and not allow_smaller_final_batch else None
        batches = stacked(same, known)
        # batches differ in unknown dimensions, so the queue has no shapes, and a dequeue takes one batch
        top_shared = f"{shared_name}_top" if shared_name else None
        top = FIFOQueue(capacity, [dtypes.int32, *types], shared_name=top_shared, name="top_queue")

        put = _put(buckets, elements, some, which, keep_input)
        fill(
            buckets[0],
            [put] * num_threads,
            close_op=group(*[q.close() for q in buckets]),
            cancel_op=group(*[q.close(cancel_pending_enqueues=True) for q in buckets]),
        )
        moves = [
            _move(q, top, i, n, allow_smaller_final_batch) for i, (q, n) in enumerate(zip(buckets, sizes, strict=True))
        ]
        fill(top, moves, queue_closed_exception_types=(OutOfRangeError, CancelledError))

        number, *parts = top.dequeue(name="dequeue_top")
        number.refine(())
        for t, shape in zip(parts, batches, strict=True):
            t.refine(shape)

        return number, like(tensors, elements.taken(parts))


def bucket_by_sequence_length(
    input_length: Any,
    tensors: Any,
    batch_size: int | Sequence[int],
    bucket_boundaries: Sequence[int],
    num_threads: int = 1,
    capacity: int = 32,
    bucket_capacities: Sequence[int] | None = None,
    shapes: Any = None,
    dynamic_pad: bool = False,
    allow_smaller_final_batch: bool = False,
    keep_input: Any = True,
    shared_name: str | None = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Collects sequences into batches of sequences with similar lengths.

    Args:
      input_length: length of the sequence, an int32 scalar.
      tensors: an example: a tensor, or a list or dict of tensors.
      batch_size: number of examples in a batch, or a list with a number for each of the `len(bucket_boundaries) + 1`
        buckets.
      bucket_boundaries: lengths in ascending order. The first bucket has the lengths below the first boundary. Each
        other bucket starts at a boundary, which it includes.
      num_threads, capacity, bucket_capacities, shapes, dynamic_pad, allow_smaller_final_batch, keep_input, shared_name:
        see `bucket`.
      name: name of the scope. None: "bucket_by_sequence_length".

    Returns:
      A pair: the lengths of the sequences of the batch, an int32 vector; and the batch, in the structure of `tensors`,
        with
      an additional first dimension.

    Raises:
      ValueError: there are no boundaries, or they are not ascending ints; or see `bucket`.

    Source: TensorFlow's `tf.contrib.training.bucket_by_sequence_length`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     length = hr.train.range_input_producer(4, num_epochs=1, shuffle=False).dequeue() + 1
      ...     lengths, batch = hr.train.bucket_by_sequence_length(
      ...         length, hr.fill([length], 7), batch_size=2, bucket_boundaries=[3], dynamic_pad=True)
      >>> with hr.train.MonitoredSession(graph=g) as session:
      ...     batches = [session.run((lengths, batch)) for _ in range(2)]
      >>> sorted((sizes.tolist(), rows.tolist()) for sizes, rows in batches)
      [([1, 2], [[7, 0], [7, 7]]), ([3, 4], [[7, 7, 7, 0], [7, 7, 7, 7]])]
    """
    boundaries = list(bucket_boundaries)
    if not boundaries:
        raise ValueError("bucket_boundaries must not be empty")
    if any(not isinstance(b, int) for b in boundaries) or boundaries != sorted(set(boundaries)):
        raise ValueError(f"bucket_boundaries must be ascending ints, got {boundaries}")
    with scopes.name_scope(name, "bucket_by_sequence_length", [input_length]):
        length = convert_to_tensor(input_length, dtypes.int32)
        rows = as_lists([tensors])[0]
        place = searchsorted(constant(boundaries, dtypes.int32), reshape(length, (1,)), side="right")
        which = reshape(place, ())
        one = [(), *shapes] if shapes is not None else None
        _, parts = bucket(
            [length, *rows], which, batch_size, len(boundaries) + 1, num_threads, capacity, bucket_capacities, one,
            dynamic_pad, allow_smaller_final_batch, keep_input, shared_name,
        )  # fmt: skip
        lengths, *others = parts
        return lengths, like(tensors, others)


def _for_each(given: int | Sequence[int], n: int, what: str) -> list[int]:
    if n < 1:
        raise ValueError(f"there must be at least one bucket, got num_buckets={n}")
    values = [given] * n if isinstance(given, int) else list(given)
    if len(values) != n:
        raise ValueError(f"{what} has {len(values)} entries, and there are {n} buckets")
    if min(values) < 1:
        raise ValueError(f"{what} must be positive, got {values}")
    return values


def _put(buckets: Sequence[Any], elements: Elements, some: list[Any], which: Any, keep_input: Any) -> Any:
    """Returns the operation that puts an example into its bucket."""
    exists = logical_and(greater_equal(which, 0), less(which, len(buckets)))
    with scopes.control_dependencies([Assert(exists, ["there is no such bucket:", which])]):

        def put() -> Any:
            stored = elements.stored(some)
            branches: list[Callable[[], Any]] = [functools.partial(q.enqueue, stored) for q in buckets]
            return switch_case(which, branches) if len(branches) > 1 else branches[0]()

        if keep_input is True:
            return _op(put())
        return _op(cond(convert_to_tensor(keep_input, dtypes.bool_), put, no_op))


def _op(made: Any) -> Any:
    return getattr(made, "op", made)


def _move(queue: Any, top: Any, number: int, size: int, may_be_smaller: bool) -> Any:
    """Returns the operation that moves a batch from a bucket to the queue of batches."""
    taken = queue.dequeue_up_to(size) if may_be_smaller else queue.dequeue_many(size)
    return top.enqueue([constant(number, dtypes.int32), *nest.as_list(taken)])
