"""TensorFlow 1's `tf.metrics` of the k best predictions, compared with an example's labels.

The classes of an example are a set, and so are its labels: each counts once, in any order. Labels are a dense tensor,
or a sparse one, in which examples may have different numbers of labels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, gathering, math, reductions, scopes, sparse
from headrace.api.cond import cond
from headrace.api.sparse import sets
from headrace.api.sparse_tensor import SparseTensor, convert_to_tensor_or_sparse_tensor
from headrace.errors import ShapeError
from headrace.v1.graph import in_default_graph
from headrace.v1.losses import spread, weighted
from headrace.v1.metric_states import collected, state


@in_default_graph
def recall_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """How many of the labels are among the `k` classes of the greatest predictions: a part of 1.

    Args:
      labels: int64, the classes that are right: [..., number of labels], a tensor or a sparse one with its indices in
        order; or without the last axis, if there is one for each example. What is no class (-1, say) is never found.
      predictions: numbers, [..., classes].
      k: how many count.
      class_id: only this class counts; None: all do.
      weights: how much each example counts: a number, or of the shape of the examples, [...], where sizes may be 1.
      metrics_collections, updates_collections: lists of collections for the two results.
      name: of the scope, and by this of the variables; "recall_at_<k>" if None, with a class "recall_at_<k>_class<id>".

    Returns:
      The part, a float64 scalar (nan if there have been no labels), and the operation that takes `labels` and
      `predictions` into account and gives the new part.

    Raises:
      TypeError: the labels are not int64.
      ValueError: they do not fit the predictions, or the weights do not.

    Source: TensorFlow's `tf.metrics.recall_at_k`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     labels = tf.constant([[0, 2], [1, 2]], tf.int64)
      ...     value, update = tf.metrics.recall_at_k(labels, [[0.1, 0.7, 0.2], [0.9, 0.0, 0.1]], 2)
      ...     sess.run(tf.local_variables_initializer())
      ...     sess.run(update)
      np.float64(0.5)
    """
    with scopes.name_scope(name, _at("recall", k, class_id), [predictions, labels, weights]) as scope:
        best = _best(predictions, k)
        return recall_at_top_k(labels, best, k, class_id, weights, metrics_collections, updates_collections, scope)


@in_default_graph
def recall_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: int | None = None,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """How many of the labels are among the classes that were predicted. For the other arguments and results see
    `recall_at_k`.

    Args:
      predictions_idx: ints, [..., k]: classes.
      k: for the name alone; "k" if None.

    Source: TensorFlow's `tf.metrics.recall_at_top_k`.
    """
    return _share(
        "recall", ("false_negative", _missed), labels, predictions_idx, k, class_id, weights, metrics_collections,
        updates_collections, name,
    )  # fmt: skip


@in_default_graph
def precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """How many of the `k` classes of the greatest predictions are among the labels: a part of 1, nan if there have been
    none. For the arguments and results see `recall_at_k`; the name is "precision_at_<k>".

    Source: TensorFlow's `tf.metrics.precision_at_k`.
    """
    with scopes.name_scope(name, _at("precision", k, class_id), [predictions, labels, weights]) as scope:
        best = _best(predictions, k)
        return precision_at_top_k(labels, best, k, class_id, weights, metrics_collections, updates_collections, scope)


@in_default_graph
def precision_at_top_k(
    labels: Any,
    predictions_idx: Any,
    k: int | None = None,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """How many of the classes that were predicted are among the labels. For the arguments and results see
    `recall_at_top_k`.

    Source: TensorFlow's `tf.metrics.precision_at_top_k`.
    """
    return _share(
        "precision", ("false_positive", sets.difference), labels, predictions_idx, k, class_id, weights,
        metrics_collections, updates_collections, name,
    )  # fmt: skip


@in_default_graph
def sparse_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    class_id: int | None = None,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """The older name of `precision_at_k`.

    Source: TensorFlow's `tf.metrics.sparse_precision_at_k`.
    """
    return precision_at_k(labels, predictions, k, class_id, weights, metrics_collections, updates_collections, name)


@in_default_graph
def average_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """The mean over examples of their average precision: the sum of the precisions among the 1, 2, ... `k` classes of
    the greatest predictions, at each that is right, over how many of `k` could be right. For the other arguments and
    results see `recall_at_k`.

    Args:
      labels: of dense ones those below 0 do not count; sparse ones all do, each once.
      k: at least 1.
      name: of the scope; "average_precision_at_<k>" if None.

    Returns:
      The mean, a float64 scalar (nan once an example has no labels), and the operation that updates it.

    Raises:
      ValueError: `k` is less than 1; see also `recall_at_k`.

    Source: TensorFlow's `tf.metrics.average_precision_at_k`.
    """
    if k < 1:
        raise ValueError(f"k must be 1 at least, got {k}")
    with scopes.name_scope(name, _at("average_precision", k), [predictions, labels, weights]) as scope:
        best = _best(predictions, k)
        average = _average_precision(_within(labels, predictions), best, k)
        if weights is None:
            most = math.cast(arrays.size(average), dtypes.float64)
        else:
            factors = spread(_factors(weights), average)
            average = math.multiply(average, factors)
            most = reductions.reduce_sum(factors)
        seen, new_seen = _added("max_1", most)  # TensorFlow's name
        total, new_total = _added("total", reductions.reduce_sum(average))
        value = math.divide_no_nan(total, seen, name="mean")
        update = math.divide_no_nan(new_total, new_seen, name=scope)
        return collected(value, update, metrics_collections, updates_collections)


@in_default_graph
def sparse_average_precision_at_k(
    labels: Any,
    predictions: Any,
    k: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """The older name of `average_precision_at_k`.

    Source: TensorFlow's `tf.metrics.sparse_average_precision_at_k`.
    """
    return average_precision_at_k(labels, predictions, k, weights, metrics_collections, updates_collections, name)


# *** what they share ***


def _at(what: str, k: int | None, class_id: int | None = None) -> str:
    """The name of a measure, as TensorFlow has it."""
    name = f"{what}_at_{'k' if k is None else int(k)}"
    return name if class_id is None else f"{name}_class{int(class_id)}"


def _best(predictions: Any, k: int) -> Any:
    """The classes of the `k` greatest predictions, int64, [..., k]."""
    return math.cast(reductions.top_k(predictions, k)[1], dtypes.int64)


def _factors(weights: Any) -> Any:
    return math.cast(scopes.builder(weights).tensor(weights, None, "weights"), dtypes.float64)


def _missed(found: Any, labels: Any) -> SparseTensor:
    return sets.difference(found, labels, aminusb=False)


def _share(
    what: str,
    wrong: tuple[str, Callable[[Any, Any], SparseTensor]],
    labels: Any,
    predictions_idx: Any,
    k: int | None,
    class_id: int | None,
    weights: Any,
    metrics_collections: Any,
    updates_collections: Any,
    name: str | None,
) -> tuple[Any, Any]:
    """How many are right of those that are right or `wrong`, of which there is the name and what gives these sets."""
    with scopes.name_scope(name, _at(what, k, class_id), [predictions_idx, labels, weights]) as scope:
        found = math.cast(predictions_idx, dtypes.int64)
        right = _with_last_axis(labels, found)
        if class_id is not None:
            found, right = _only(found, class_id), _only(right, class_id)
        counts = []
        for kind, sets_of in (("true_positive", sets.intersection), wrong):
            with scopes.name_scope(None, _at(kind, k, class_id), [found, right, weights]) as inner:
                number = math.cast(sets.size(sets_of(found, right)), dtypes.float64)
                if weights is not None:
                    number = weighted(number, _factors(weights))
                counts.append(_added(inner, reductions.reduce_sum(number)))
        (hits, new_hits), (errors, new_errors) = counts
        value = math.divide(hits, math.add(hits, errors), name=scope)
        update = math.divide(new_hits, math.add(new_hits, new_errors), name="update")
        return collected(value, update, metrics_collections, updates_collections)


def _added(name: str, more: Any) -> tuple[Any, Any]:
    """The sum of all that has been seen, and the same with `more`; in a variable of this name."""
    with scopes.name_scope(name, name) as scope:
        seen = state(scope, dtype=dtypes.float64)
        return seen.value(), seen.assign_add(more, name="update")


def _with_last_axis(labels: Any, found: Any) -> Any:
    """Labels with an axis for several of an example, if there is none."""
    given = convert_to_tensor_or_sparse_tensor(labels, name="labels")
    is_sparse = isinstance(given, SparseTensor)
    rank = _known_rank(given)
    wanted = _known_rank(found)

    def with_axis() -> Any:
        return sparse.expand_dims(given, -1) if is_sparse else arrays.expand_dims(given, -1)

    if rank is not None and wanted is not None:
        if wanted not in (rank, rank + 1):
            raise ShapeError(
                f"labels of rank {rank} do not fit predictions of rank {wanted}: they must be of the same rank, or of "
                "one less if there is one for each example"
            )
        return given if wanted == rank else with_axis()
    mine = arrays.size(given.dense_shape) if is_sparse else arrays.rank(given)
    return cond(math.equal(arrays.rank(found), mine + 1), with_axis, lambda: given)


def _known_rank(x: Any) -> int | None:
    if isinstance(x, SparseTensor):
        length = x.dense_shape.shape
        return None if length is None else length[0]
    return None if x.shape is None else len(x.shape)


def _only(classes: Any, class_id: int) -> Any:
    """Sets of classes without all but one."""
    if isinstance(classes, SparseTensor):
        return sparse.retain(classes, math.equal(classes.values, class_id))
    groups = arrays.shape(classes)[:-1]
    one = arrays.fill(arrays.concat([groups, [1]], 0), np.int64(class_id))
    return sets.intersection(one, classes)


def _within(labels: Any, predictions: Any) -> Any:
    """Labels with -1 for those that are larger than any class."""
    given = convert_to_tensor_or_sparse_tensor(labels, name="labels")
    classes = math.cast(arrays.shape(predictions)[-1], dtypes.int64)

    def cut(x: Any) -> Any:
        return gathering.where(math.less(x, classes), x, math.negative(arrays.ones_like(x)))

    return given.with_values(cut(given.values)) if isinstance(given, SparseTensor) else cut(given)


def _average_precision(labels: Any, found: Any, k: int) -> Any:
    """The average precision of each example."""
    right = _with_last_axis(labels, found)
    each = arrays.expand_dims(found, -1)
    if isinstance(right, SparseTensor):
        labels_for_each = sparse.concat(-2, [sparse.expand_dims(right, -2)] * k)
        hits = math.cast(sets.size(sets.intersection(each, labels_for_each)), dtypes.float64)
        number = sets.size(right)
    else:
        is_hit = math.equal(each, arrays.expand_dims(right, -2))
        hits = math.cast(reductions.reduce_any(is_hit, -1), dtypes.float64)
        number = reductions.reduce_sum(math.cast(math.greater_equal(right, 0), dtypes.int32), -1)
    precision = math.divide(reductions.cumsum(hits, -1), np.arange(1.0, k + 1))
    possible = math.cast(math.minimum(number, k), dtypes.float64)
    return math.divide(reductions.reduce_sum(math.multiply(precision, hits), -1), possible)
