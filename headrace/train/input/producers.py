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
    """Returns a variable with the paths that match patterns. Its initializer reads the folders.

    Args:
      pattern: a pattern such as "data/*.csv", or a string vector of patterns.
      name: name of the variable. None: "matching_filenames".

    Source: TensorFlow's `tf.train.match_filenames_once`.

    Example:
      >>> import headrace as hr, os, pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     pathlib.Path(folder, "a.csv").touch()
      ...     with hr.Graph() as g:
      ...         paths = hr.train.match_filenames_once(f"{folder}/*.csv")
      ...     with hr.Session(graph=g) as session:
      ...         session.run(paths.initializer)
      ...         found = session.run(paths)
      >>> [os.path.basename(path) for path in found]
      [b'a.csv']
    """
    graph = scopes.graph_builder("match_filenames_once").graph
    with scopes.name_scope(name, "matching_filenames", [pattern]) as scope:
        return keeper_of(graph).local_variable(matching_files(pattern), scope, validate_shape=False)


def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Any:
    """Returns a tensor that can be evaluated a limited number of times.

    After that its evaluation raises OutOfRangeError. A local variable `epochs` holds the count; it must be initialized.

    Args:
      tensor: the tensor.
      num_epochs: the number of times. None: no limit.
      name: name of the operation. None: "limit_epochs".

    Raises:
      ValueError: `num_epochs` is not positive.

    Source: TensorFlow's `tf.train.limit_epochs`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.train.limit_epochs(hr.constant([1, 2]), 1)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     value = sess.run(x)
      >>> value
      array([1, 2], dtype=int32)
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
    """Returns a queue of the rows of a tensor, and adds its queue runner.

    Args:
      input_tensor: tensor whose first dimension is that of the rows.
      element_shape: shape of a row. None: its static shape.
      num_epochs: number of times that each row is produced before the queue is closed. None: no limit.
      shuffle: whether each epoch has a new random order.
      seed: seed of the orders.
      capacity: largest number of rows in the queue.
      shared_name: queues with the same name are one queue in a session. None: not shared.
      summary_name: name of a summary of the fraction of the queue that is filled, in graphs with summaries. None: no
        summary.
      name: name of the queue. None: "fifo_queue".
      cancel_op: operation that cancels pending enqueue operations. None: closes the queue.

    Raises:
      ValueError: the shape of a row is not known, or `num_epochs` is not positive.

    Source: TensorFlow's `tf.train.input_producer`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     out = hr.train.input_producer(hr.constant([7, 8]), num_epochs=1, shuffle=False).dequeue()
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     value = sess.run(out)
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> value
      np.int32(7)
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
        # as in TensorFlow, `name` is the name of both the scope and the queue in it
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
    """Returns a queue of strings, such as file names for a reader.

    Args:
      string_tensor: a vector of strings, not empty.
      num_epochs, shuffle, seed, capacity, shared_name, name, cancel_op: see `input_producer`.

    Raises:
      ValueError: `string_tensor` is an empty list.

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
    """Returns a queue of the numbers from 0 to `limit` - 1.

    Args:
      limit: an int32 scalar.
      num_epochs, shuffle, seed, capacity, shared_name, name: see `input_producer`.

    Source: TensorFlow's `tf.train.range_input_producer`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     number = hr.train.range_input_producer(2, num_epochs=1, shuffle=False).dequeue()
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     values = [int(sess.run(number)) for _ in range(2)]
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> values
      [0, 1]
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
    """Returns one row of each tensor, at the same index, in each step.

    Args:
      tensor_list: tensors with the same first dimension.
      num_epochs, shuffle, seed, capacity, shared_name, name: see `input_producer`.

    Returns:
      A list with the row of each tensor.

    Raises:
      ValueError: there are no tensors.

    Source: TensorFlow's `tf.train.slice_input_producer`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     row = hr.train.slice_input_producer([[5, 6]], num_epochs=1, shuffle=False)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(hr.variables_initializer(g.variables))
      ...     coord = hr.train.Coordinator()
      ...     threads = hr.train.start_queue_runners(sess, coord)
      ...     values = [int(sess.run(row)[0]) for _ in range(2)]
      ...     coord.request_stop()
      ...     coord.join(threads)
      >>> values
      [5, 6]
    """
    with scopes.name_scope(name, "input_producer", list(tensor_list)):
        given = [tensors.convert_to_tensor(t) for t in tensor_list]
        if not given:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        queue = range_input_producer(arrays.shape(given[0])[0], num_epochs, shuffle, seed, capacity, shared_name)
        index = queue.dequeue()
        return [gathering.gather(t, index) for t in given]
