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
    """Computes the fraction of labels that are among the `k` classes with the greatest predictions.

    Args:
      labels: the correct classes, int64 [..., number of labels], a tensor or a `SparseTensor` with sorted indices. With
        one label for each example, the last dimension may be absent. Numbers that are not a class, such as -1, count
        as labels that are never predicted.
      predictions: a numeric tensor [..., classes].
      k: number of predicted classes of each example.
      class_id: a class to which the metric is restricted. None: all classes.
      weights: a scalar, or a tensor of the shape of the examples, [...], whose dimensions may be 1. None: 1.
      metrics_collections: lists of collections to which the fraction is added, or None.
      updates_collections: lists of collections to which the update is added, or None.
      name: name of the scope and prefix of the variables. None: "recall_at_<k>", or with a class
        "recall_at_<k>_class<id>".

    Returns:
      A pair: the fraction, a float64 scalar (nan without labels); and the update, a tensor that adds `labels` and
      `predictions` and has the new fraction.

    Raises:
      TypeError: the labels are not int64.
      ValueError: the shape of the labels or weights does not fit the predictions.

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
    """Computes the fraction of labels that are among the predicted classes.

    Args:
      labels, class_id, weights, metrics_collections, updates_collections: see `recall_at_k`.
      predictions_idx: the predicted classes, an integer tensor [..., k].
      k: number for the default of `name`. None: "k".
      name: see `recall_at_k`.

    Returns:
      The results of `recall_at_k`.

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
    """Computes the fraction of the `k` classes with the greatest predictions that are labels.

    Args:
      labels, predictions, k, class_id, weights, metrics_collections, updates_collections: see `recall_at_k`.
      name: name of the scope. None: "precision_at_<k>", or with a class "precision_at_<k>_class<id>".

    Returns:
      A pair: the fraction, a float64 scalar (nan without predicted classes); and the update, which has its new value.

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
    """Computes the fraction of the predicted classes that are labels.

    Args:
      labels, predictions_idx, k, class_id, weights, metrics_collections, updates_collections: see `recall_at_top_k`.
      name: see `precision_at_k`.

    Returns:
      The results of `precision_at_k`.

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
    """Older name of `precision_at_k`.

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
    """Computes the mean over examples of their average precision at `k`.

    The predicted classes of an example are those with the `k` greatest predictions, in descending order. The average
    precision is the sum of the precisions among the first i of them, over all i where class i is correct, divided by
    the largest possible number of correct classes.

    Args:
      labels: see `recall_at_k`. In a dense tensor, numbers below 0 do not count. In a sparse tensor all count, each
        once.
      predictions, weights, metrics_collections, updates_collections: see `recall_at_k`.
      k: number of predicted classes, at least 1.
      name: name of the scope. None: "average_precision_at_<k>".

    Returns:
      A pair: the mean, a float64 scalar (nan if an example has no labels); and the update, which has its new value.

    Raises:
      ValueError: `k` is less than 1; or see `recall_at_k`.

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
    """Older name of `average_precision_at_k`.

    Source: TensorFlow's `tf.metrics.sparse_average_precision_at_k`.
    """
    return average_precision_at_k(labels, predictions, k, weights, metrics_collections, updates_collections, name)


# *** shared implementation ***


def _at(what: str, k: int | None, class_id: int | None = None) -> str:
    """Returns TensorFlow's default name of a metric."""
    name = f"{what}_at_{'k' if k is None else int(k)}"
    return name if class_id is None else f"{name}_class{int(class_id)}"


def _best(predictions: Any, k: int) -> Any:
    """Returns the classes of the `k` greatest predictions, int64 [..., k]."""
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
    """Returns the fraction of correct classes among the correct and `wrong` ones.

    `wrong` is a pair: a name, and the function that computes the sets of wrong classes.
    """
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
    """Returns the sum in the variable `name`, and its update by `more`."""
    with scopes.name_scope(name, name) as scope:
        seen = state(scope, dtype=dtypes.float64)
        return seen.value(), seen.assign_add(more, name="update")


def _with_last_axis(labels: Any, found: Any) -> Any:
    """Returns labels with a last dimension for several labels per example."""
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
    """Restricts sets of classes to the class `class_id`."""
    if isinstance(classes, SparseTensor):
        return sparse.retain(classes, math.equal(classes.values, class_id))
    groups = arrays.shape(classes)[:-1]
    one = arrays.fill(arrays.concat([groups, [1]], 0), np.int64(class_id))
    return sets.intersection(one, classes)


def _within(labels: Any, predictions: Any) -> Any:
    """Replaces labels that are not less than the number of classes by -1."""
    given = convert_to_tensor_or_sparse_tensor(labels, name="labels")
    classes = math.cast(arrays.shape(predictions)[-1], dtypes.int64)

    def cut(x: Any) -> Any:
        return gathering.where(math.less(x, classes), x, math.negative(arrays.ones_like(x)))

    return given.with_values(cut(given.values)) if isinstance(given, SparseTensor) else cut(given)


def _average_precision(labels: Any, found: Any, k: int) -> Any:
    """Returns the average precision of each example."""
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
