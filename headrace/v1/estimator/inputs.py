"""Input functions for arrays and data frames: `numpy_input_fn`, `pandas_input_fn`.

Batches are made in Python and fed to a queue while steps run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, public_names
from headrace.train.input.feeding import feed
from headrace.v1.graph import get_default_graph

_TARGET = "__target_key__"


class _Batches:
    """Batches of rows of arrays, across the boundaries of epochs."""

    def __init__(self, arrays: Sequence[Any], size: int, epochs: int | None, seed: int | None, shuffles: bool) -> None:
        self.arrays, self.size, self.epochs, self.seed, self.shuffles = arrays, size, epochs, seed, shuffles
        self.length = len(arrays[0])

    def __call__(self) -> Iterator[list[Any]]:
        """Yields the rows of each batch, of which the last one may be smaller."""
        left = np.zeros(0, np.int64)
        for order in self._orders():
            left = np.concatenate([left, order])
            while len(left) >= self.size:
                yield self._rows(left[: self.size])
                left = left[self.size :]
        if len(left):
            yield self._rows(left)

    def _orders(self) -> Iterator[Any]:
        rng = np.random.default_rng(self.seed)
        count = 0
        while self.length and (self.epochs is None or count < self.epochs):
            count += 1
            yield rng.permutation(self.length) if self.shuffles else np.arange(self.length)

    def _rows(self, rows: Any) -> list[Any]:
        return [a[rows] for a in self.arrays]


def _fed(
    arrays: Sequence[Any], batch_size: int, num_epochs: int | None, shuffle: bool, queue_capacity: int, num_threads: int
) -> list[Any]:
    """Returns tensors of the next batch of each array."""
    types = [dtypes.as_dtype(dtypes.string if a.dtype.kind in "OSU" else a.dtype) for a in arrays]
    # every size but the last is `batch_size`; TensorFlow's queue knows no size either
    shapes = [(None, *a.shape[1:]) for a in arrays]
    source = _Batches(arrays, batch_size, num_epochs, get_default_graph().seed, shuffle)
    capacity = max(1, queue_capacity // batch_size)
    found: list[Any] = feed(
        source, types, shapes, threads=num_threads, capacity=capacity, name="enqueue_input"
    )  # fmt: skip
    return found


def _check_shuffle(shuffle: Any) -> None:
    if not isinstance(shuffle, bool):
        raise ValueError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for "
            f"training); got {shuffle}"
        )


def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> Callable[[], Any]:
    """Returns an input function for arrays.

    Args:
      x: array, or dict of arrays, of the features.
      y: array, or dict of arrays, of the labels. None: the function returns features alone.
      batch_size: number of examples of a batch.
      num_epochs: number of passes over the arrays. None: no limit.
      shuffle: whether each pass has a new random order. It must be given. A seed of the graph determines the orders.
      queue_capacity: number of examples that are prepared.
      num_threads: number of threads that prepare batches. With more than one their order varies.

    Raises:
      ValueError: `shuffle` is not given; a dict is empty; the arrays have different lengths; or `x` and `y` have a
        common key.
      TypeError: `x` is no array or dict.

    Source: TensorFlow 1's `tf.estimator.inputs.numpy_input_fn`.

    Example:
      >>> import headrace.v1 as tf, numpy as np
      >>> fn = tf.estimator.inputs.numpy_input_fn({"a": np.arange(3)}, np.arange(3) * 2, batch_size=2, shuffle=False)
      >>> with tf.Graph().as_default():
      ...     features, labels = fn()
      ...     with tf.train.MonitoredSession() as session:
      ...         session.run([features["a"], labels])
      [array([0, 1]), array([0, 2])]
    """
    _check_shuffle(shuffle)

    def input_fn() -> Any:
        if not isinstance(x, (np.ndarray, Mapping)):
            raise TypeError(f"x must be a dict or array; got {type(x).__name__}")
        if isinstance(x, Mapping) and not x:
            raise ValueError("x cannot be empty")
        if isinstance(y, Mapping) and not y:
            raise ValueError("y cannot be empty dict, use None instead.")
        features = dict(x) if isinstance(x, Mapping) else {_TARGET: x}
        targets: dict[Any, Any] = {} if y is None else dict(y) if isinstance(y, Mapping) else {_TARGET: y}
        common = sorted(features.keys() & targets.keys()) if isinstance(x, Mapping) and isinstance(y, Mapping) else []
        if common:
            raise ValueError(f"{len(common)} duplicate keys are found in both x and y: {common}")
        names = [*(("x", k) for k in sorted(features)), *(("y", k) for k in sorted(targets))]
        arrays = [np.asarray((features if side == "x" else targets)[k]) for side, k in names]
        if len({len(a) for a in arrays}) != 1:
            raise ValueError(
                "Length of tensors in x and y is mismatched. All elements in x and y must have the same length.\n"
                f"Shapes in x: { {k: np.shape(v) for k, v in features.items()} }\n"
                f"Shapes in y: { {k: np.shape(v) for k, v in targets.items()} }\n"
            )
        tensors = dict(zip(names, _fed(arrays, batch_size, num_epochs, bool(shuffle), queue_capacity, num_threads),
                           strict=True))  # fmt: skip
        fed_x = {k: tensors["x", k] for k in features} if isinstance(x, Mapping) else tensors["x", _TARGET]
        if y is None:
            return fed_x
        return fed_x, {k: tensors["y", k] for k in targets} if isinstance(y, Mapping) else tensors["y", _TARGET]

    return input_fn


def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> Callable[[], Any]:
    """Returns an input function for a data frame: a dict of its columns.

    Args:
      x: a `DataFrame` of pandas, or an object with its `columns`, `index` and `__getitem__`.
      y: a `Series`, or a `DataFrame`, of the labels, with the index of `x`. None: the function returns features alone.
      batch_size, num_epochs, shuffle, queue_capacity, num_threads: see `numpy_input_fn`.
      target_column: name of the labels, which must not be a column of `x`.

    Raises:
      TypeError: `x` is no data frame.
      ValueError: `shuffle` is not given, the indexes differ, or the columns contain `target_column`.

    Source: TensorFlow 1's `tf.estimator.inputs.pandas_input_fn`.
    """
    if not all(hasattr(x, name) for name in ("columns", "index", "__getitem__")):
        raise TypeError(f"x must be a pandas DataFrame; got {type(x).__name__}")
    _check_shuffle(shuffle)
    if y is not None and not np.array_equal(x.index, y.index):
        raise ValueError(f"Index for x and y are mismatched.\nIndex for x: {x.index}\nIndex for y: {y.index}\n")
    if y is not None and not hasattr(y, "columns") and target_column in x:
        raise ValueError(
            f"Cannot use name {target_column} for target column: DataFrame already has a column with that name."
        )
    features = {name: np.asarray(x[name]) for name in x.columns}
    labels: Any = None
    if y is not None:
        labels = {name: np.asarray(y[name]) for name in y.columns} if hasattr(y, "columns") else np.asarray(y)
    return numpy_input_fn(features, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


__all__ = ["numpy_input_fn", "pandas_input_fn"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
