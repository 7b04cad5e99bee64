"""Producers: queues of names, numbers or rows, in order or shuffled, for several epochs.

Source: TensorFlow's `tf.train.input_producer` and related functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace import dtypes, shapes
from headrace.api import arrays, gathering, random, reductions, scopes, tensors
from headrace.api.debugging import Assert
from headrace.api.io.files import matching_files
from headrace.api.math import cast, greater, multiply
from headrace.api.storage.queues import FIFOQueue
from headrace.api.variable import Variable
from headrace.train.input.running import fill, keeper_of


def match_filenames_once(pattern: Any, name: str | None = None) -> Variable:
    """A variable with the paths that patterns stand for, looked up when it is initialized.

    Args:
      pattern: a pattern such as "data/*.csv", or a vector of them.
      name: of the variable; "matching_filenames" if None.

    Source: TensorFlow's `tf.train.match_filenames_once`.
    """
    graph = scopes.graph_builder("match_filenames_once").graph
    with scopes.name_scope(name, "matching_filenames", [pattern]) as scope:
        return keeper_of(graph).local_variable(matching_files(pattern), scope, validate_shape=False)


def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Any:
    """The tensor, which can be had so often, and then is an OutOfRangeError.

    A variable `epochs` counts; it needs to be initialized.

    Args:
      tensor: any.
      num_epochs: how often; None: without end.
      name: of the operation; "limit_epochs" if None.

    Raises:
      ValueError: `num_epochs` is not positive.

    Source: TensorFlow's `tf.train.limit_epochs`.
    """
    if num_epochs is None:
        return tensor
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    graph = scopes.graph_builder("limit_epochs").graph
    with scopes.name_scope(name, "limit_epochs", [tensor]) as scope:
        zero = tensors.constant(0, dtypes.int64)
        epochs = keeper_of(graph).local_variable(zero, "epochs")
        with scopes.control_dependencies([epochs.count_up_to(num_epochs)]):
            return tensors.identity(tensor, name=scope)


def input_producer(
    input_tensor: Any,
    element_shape: Any = None,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    summary_name: str | None = None,
    name: str | None = None,
    cancel_op: Any = None,
) -> FIFOQueue:
    """A queue of the rows of a tensor, and a runner that fills it.

    Args:
      input_tensor: the rows, along its first dimension.
      element_shape: of a row; None if it is known anyway.
      num_epochs: how often each row is given, before the queue is closed; None: without end.
      shuffle: whether the rows are in another random order each time.
      seed: what the orders follow from.
      capacity: how many rows the queue holds.
      shared_name: queues of one name are one queue in a session.
      summary_name: of a summary of how full the queue is, where graphs have such.
      name: of the queue; "input_producer" if None.
      cancel_op: what gives up filling it; None: closes the queue.

    Raises:
      ValueError: the shape of a row is not known, or `num_epochs` is not positive.

    Source: TensorFlow's `tf.train.input_producer`.
    """
    graph = scopes.graph_builder("input_producer").graph
    with scopes.name_scope(name, "input_producer", [input_tensor]):
        rows = tensors.convert_to_tensor(input_tensor, name="input_tensor")
        wanted = None if element_shape is None else shapes.as_shape(element_shape)
        row = shapes.merge(None if rows.shape is None else tuple(rows.shape)[1:], wanted)
        if not shapes.is_full(row):
            raise ValueError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be specified, got rows "
                f"of shape {shapes.show(row)}"
            )
        if shuffle:
            rows = random.shuffle(rows, seed=seed)
        rows = limit_epochs(rows, num_epochs)
        # as in TensorFlow the name, below the scope that is made of it, is that of the queue
        queue = FIFOQueue(capacity, [rows.dtype.base], [row], shared_name=shared_name, name=name or "fifo_queue")
        fill(queue, [queue.enqueue_many([rows])], cancel_op=cancel_op)
        if summary_name is not None:
            keeper_of(graph).add_scalar(
                summary_name, lambda: multiply(cast(queue.size(), dtypes.float32), 1.0 / capacity, name="mul")
            )
        return queue


def string_input_producer(
    string_tensor: Any,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
    cancel_op: Any = None,
) -> FIFOQueue:
    """A queue of strings, mostly names of files for a reader. See `input_producer`.

    Args:
      string_tensor: a vector of strings, not empty.

    Raises:
      ValueError: there are none.

    Source: TensorFlow's `tf.train.string_input_producer`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     names = hr.train.string_input_producer(["a.csv", "b.csv"], num_epochs=1)
      ...     key, line = hr.io.TextLineReader().read(names)
    """
    empty = "string_input_producer requires a non-null input tensor"
    if isinstance(string_tensor, (list, tuple)) and not string_tensor:
        raise ValueError(empty)
    with scopes.name_scope(name, "input_producer", [string_tensor]) as scope:
        names = tensors.convert_to_tensor(string_tensor, dtypes.string)
        with scopes.control_dependencies([Assert(greater(arrays.size(names), 0), [empty])]):
            names = tensors.identity(names)
        return input_producer(
            names,
            (),
            num_epochs,
            shuffle,
            seed,
            capacity,
            shared_name,
            f"fraction_of_{capacity}_full",
            scope,
            cancel_op,
        )


def range_input_producer(
    limit: Any,
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> FIFOQueue:
    """A queue of the numbers from 0 to `limit` - 1. See `input_producer`.

    Args:
      limit: an int32 scalar.

    Source: TensorFlow's `tf.train.range_input_producer`.
    """
    with scopes.name_scope(name, "input_producer", [limit]) as scope:
        return input_producer(
            reductions.range(limit), (), num_epochs, shuffle, seed, capacity, shared_name,
            f"fraction_of_{capacity}_full", scope,
        )  # fmt: skip


def slice_input_producer(
    tensor_list: Sequence[Any],
    num_epochs: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    capacity: int = 32,
    shared_name: str | None = None,
    name: str | None = None,
) -> list[Any]:
    """One row of each of some tensors, the same one of all. See `input_producer`.

    Args:
      tensor_list: tensors with the same first dimension.

    Returns:
      A tensor for each.

    Raises:
      ValueError: there are no tensors.

    Source: TensorFlow's `tf.train.slice_input_producer`.
    """
    with scopes.name_scope(name, "input_producer", list(tensor_list)):
        given = [tensors.convert_to_tensor(t) for t in tensor_list]
        if not given:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        queue = range_input_producer(arrays.shape(given[0])[0], num_epochs, shuffle, seed, capacity, shared_name)
        index = queue.dequeue()
        return [gathering.gather(t, index) for t in given]
