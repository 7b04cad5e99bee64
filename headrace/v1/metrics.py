"""TensorFlow 1's `tf.metrics`: measures over many steps.

Each function returns a tensor with the measure of all values so far, and an operation that adds its inputs and returns
the new measure. Local variables accumulate the values (`tf.local_variables_initializer` resets them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import dtypes, public_names, shapes
from headrace.api import arrays, linalg, math, reductions, scopes, tensors
from headrace.api.counting import confusion_matrix
from headrace.errors import ShapeError
from headrace.v1.graph import in_default_graph
from headrace.v1.losses import spread, weighted, without_last_axis
from headrace.v1.metric_states import agreeing, collected, state
from headrace.v1.metrics_at_k import average_precision_at_k as average_precision_at_k
from headrace.v1.metrics_at_k import precision_at_k as precision_at_k
from headrace.v1.metrics_at_k import precision_at_top_k as precision_at_top_k
from headrace.v1.metrics_at_k import recall_at_k as recall_at_k
from headrace.v1.metrics_at_k import recall_at_top_k as recall_at_top_k
from headrace.v1.metrics_at_k import sparse_average_precision_at_k as sparse_average_precision_at_k
from headrace.v1.metrics_at_k import sparse_precision_at_k as sparse_precision_at_k
from headrace.v1.metrics_at_thresholds import auc as auc
from headrace.v1.metrics_at_thresholds import false_negatives_at_thresholds as false_negatives_at_thresholds
from headrace.v1.metrics_at_thresholds import false_positives_at_thresholds as false_positives_at_thresholds
from headrace.v1.metrics_at_thresholds import precision_at_thresholds as precision_at_thresholds
from headrace.v1.metrics_at_thresholds import recall_at_thresholds as recall_at_thresholds
from headrace.v1.metrics_at_thresholds import sensitivity_at_specificity as sensitivity_at_specificity
from headrace.v1.metrics_at_thresholds import specificity_at_sensitivity as specificity_at_sensitivity
from headrace.v1.metrics_at_thresholds import true_negatives_at_thresholds as true_negatives_at_thresholds
from headrace.v1.metrics_at_thresholds import true_positives_at_thresholds as true_positives_at_thresholds
from headrace.v1.variable_scopes import variable_scope


@in_default_graph
def mean(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the weighted mean of all values since the initialization of local variables.

    Args:
      values: a numeric tensor of any shape.
      weights: a scalar, or a tensor with the rank of `values`, whose dimensions are equal or 1. None: 1.
      metrics_collections: lists of collections to which the mean is added, or None.
      updates_collections: lists of collections to which the update is added, or None.
      name: name of the variable scope. None: "mean".

    Returns:
      A pair: the mean, a float32 scalar; and the update, a tensor that adds `values` to the mean and has its new value.

    Raises:
      ValueError: the shape of the weights does not fit.

    Source: TensorFlow's `tf.metrics.mean`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default(), tf.Session() as sess:
      ...     x = tf.placeholder(tf.float32, [None])
      ...     value, update = tf.metrics.mean(x)
      ...     sess.run(tf.local_variables_initializer())
      ...     for batch in ([1.0, 2.0], [6.0]):
      ...         _ = sess.run(update, {x: batch})
      ...     sess.run(value)
      np.float32(3.0)
    """
    with variable_scope(name, "mean"):
        b = scopes.builder(values, weights)
        given = math.cast(b.tensor(values, None, "values"), dtypes.float32)
        total, count = state("total"), state("count")
        if weights is None:
            seen = math.cast(arrays.size(given), dtypes.float32)
        else:
            factors = math.cast(b.tensor(weights, None, "weights"), dtypes.float32)
            _, given, factors = without_last_axis(None, given, factors)
            factors = spread(factors, given)
            given = math.multiply(given, factors)
            seen = reductions.reduce_sum(factors)
        new_total = total.assign_add(reductions.reduce_sum(given))
        with scopes.control_dependencies([given]):
            new_count = count.assign_add(seen)
        value = math.divide_no_nan(total, math.maximum(count, 0.0), name="value")
        update = math.divide_no_nan(new_total, math.maximum(new_count, 0.0), name="update_op")
        return collected(value, update, metrics_collections, updates_collections)


@in_default_graph
def accuracy(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the fraction of predictions that are equal to their labels.

    Args:
      labels, predictions: tensors of the same shape. One of them may have an additional last dimension of size 1.
      weights, metrics_collections, updates_collections: see `mean`.
      name: name of the variable scope. None: "accuracy".

    Returns:
      A pair: the fraction, a float32 scalar; and the update, which has its new value.

    Source: TensorFlow's `tf.metrics.accuracy`.
    """
    y, x, w = agreeing(labels, predictions, weights)
    if x.dtype.base is not y.dtype.base:
        x = math.cast(x, y.dtype.base)
    hits = math.cast(math.equal(x, y), dtypes.float32)
    return mean(hits, w, metrics_collections, updates_collections, name or "accuracy")


def _error(name: str, what: str, measure: Callable[[Any, Any], Any]) -> Any:
    @in_default_graph
    def function(
        labels: Any,
        predictions: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Any, Any]:
        y, x, w = agreeing(labels, predictions, weights, dtypes.float32)
        return mean(measure(x, y), w, metrics_collections, updates_collections, name or title)

    title = function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""The mean of {what}. For the other arguments and results see `mean`.

    Args:
      labels, predictions: numbers of the same shape.

    Source: TensorFlow's `tf.metrics.{name}`.
    """
    return function


mean_absolute_error = _error("mean_absolute_error", "|predictions - labels|", lambda x, y: math.abs(x - y))
mean_squared_error = _error(
    "mean_squared_error", "the squares of predictions - labels", lambda x, y: math.squared_difference(y, x)
)


@in_default_graph
def root_mean_squared_error(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the root of `mean_squared_error`.

    Args:
      labels, predictions: numeric tensors of the same shape.
      weights, metrics_collections, updates_collections: see `mean`.
      name: name of the variable scope. None: "root_mean_squared_error".

    Returns:
      A pair: the root, a float32 scalar; and the update, which has its new value.

    Source: TensorFlow's `tf.metrics.root_mean_squared_error`.
    """
    value, update = mean_squared_error(labels, predictions, weights, name=name or "root_mean_squared_error")
    return collected(math.sqrt(value), math.sqrt(update), metrics_collections, updates_collections)


@in_default_graph
def mean_relative_error(
    labels: Any,
    predictions: Any,
    normalizer: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean of |labels - predictions| / normalizer.

    An element whose normalizer is 0 counts as 0.

    Args:
      labels, predictions, normalizer: numeric tensors of the same shape.
      weights, metrics_collections, updates_collections: see `mean`.
      name: name of the variable scope. None: "mean_relative_error".

    Returns:
      A pair: the mean, a float32 scalar; and the update, which has its new value.

    Source: TensorFlow's `tf.metrics.mean_relative_error`.
    """
    y, x, w = agreeing(labels, predictions, weights, dtypes.float32)
    per = math.cast(scopes.builder(x).tensor(normalizer, None, "normalizer"), dtypes.float32)
    error = math.divide_no_nan(math.abs(y - x), per)
    return mean(error, w, metrics_collections, updates_collections, name or "mean_relative_error")


@in_default_graph
def mean_cosine_distance(
    labels: Any,
    predictions: Any,
    dim: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean of 1 - sum(labels * predictions) along an axis, for unit vectors.

    Args:
      labels, predictions: numeric tensors of the same shape.
      dim: axis of the vectors.
      weights, metrics_collections, updates_collections: see `mean`.
      name: name of the variable scope. None: "mean_cosine_distance".

    Returns:
      A pair: the mean, a float32 scalar; and the update, which has its new value.

    Source: TensorFlow's `tf.metrics.mean_cosine_distance`.
    """
    y, x, w = agreeing(labels, predictions, weights, dtypes.float32)
    near, near_now = mean(reductions.reduce_sum(x * y, [dim], True), w, name=name or "mean_cosine_distance")
    return collected(1.0 - near, 1.0 - near_now, metrics_collections, updates_collections)


@in_default_graph
def mean_tensor(
    values: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the elementwise mean of all tensors since the initialization of local variables.

    Args:
      values: a numeric tensor with a fully known static shape.
      weights, metrics_collections, updates_collections, name: see `mean`.

    Returns:
      A pair: the mean, a float32 tensor of the shape of `values`; and the update, which has its new value.

    Raises:
      ShapeError (a ValueError): the static shape is not fully known.

    Source: TensorFlow's `tf.metrics.mean_tensor`.
    """
    with variable_scope(name, "mean"):
        given = math.cast(scopes.builder(values).tensor(values, None, "values"), dtypes.float32)
        if not shapes.is_full(given.shape):
            raise ShapeError(f"mean_tensor needs values of a known shape, got {shapes.show(given.shape)} (set_shape)")
        total, count = state("total_tensor", given.shape), state("count_tensor", given.shape)
        seen = arrays.ones_like(given)
        if weights is not None:
            factors = math.cast(scopes.builder(given).tensor(weights, None, "weights"), dtypes.float32)
            _, given, factors = without_last_axis(None, given, factors)
            seen = spread(factors, given)
            given = math.multiply(given, seen)
        new_total = total.assign_add(given)
        with scopes.control_dependencies([given]):
            new_count = count.assign_add(seen)
        value = math.divide_no_nan(total, math.maximum(count, 0.0), name="value")
        update = math.divide_no_nan(new_total, math.maximum(new_count, 0.0), name="update_op")
        return collected(value, update, metrics_collections, updates_collections)


@in_default_graph
def percentage_below(
    values: Any,
    threshold: Any,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the fraction of values that are less than a threshold.

    Args:
      values: a numeric tensor of any shape.
      threshold: the threshold, a scalar.
      weights, metrics_collections, updates_collections: see `mean`.
      name: name of the variable scope. None: "percentage_below_threshold".

    Returns:
      A pair: the fraction, a float32 scalar; and the update, which has its new value.

    Source: TensorFlow's `tf.metrics.percentage_below`.
    """
    below = math.cast(math.less(values, threshold), dtypes.float32)
    return mean(below, weights, metrics_collections, updates_collections, name or "percentage_below_threshold")


# *** how often predictions and labels hold ***


def _count(name: str, labels_hold: bool, predictions_hold: bool) -> Any:
    @in_default_graph
    def function(
        labels: Any,
        predictions: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Any, Any]:
        with variable_scope(name, title):
            y, x, w = agreeing(labels, predictions, weights, dtypes.bool_)
            y, x = y if labels_hold else math.logical_not(y), x if predictions_hold else math.logical_not(x)
            count = state("count")
            hits = math.cast(math.logical_and(y, x), dtypes.float32)
            hits = hits if w is None else weighted(hits, w)
            update = count.assign_add(reductions.reduce_sum(hits))
            return collected(count.value(), tensors.identity(update), metrics_collections, updates_collections)

    title = function.__name__ = function.__qualname__ = name
    of = "held" if labels_hold else "did not hold"
    function.__doc__ = f"""How often labels {of} where predictions {"did" if predictions_hold else "did not"}.
    For the other arguments and results see `mean`.

    Args:
      labels, predictions: of the same shape; cast to bool.

    Source: TensorFlow's `tf.metrics.{name}`.
    """
    return function


true_positives = _count("true_positives", True, True)
false_negatives = _count("false_negatives", True, False)
true_negatives = _count("true_negatives", False, False)
false_positives = _count("false_positives", False, True)


def _share(name: str, of: str, other: Any) -> Any:
    @in_default_graph
    def function(
        labels: Any,
        predictions: Any,
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Any, Any]:
        with variable_scope(name, title):
            y, x, w = agreeing(labels, predictions, weights, dtypes.bool_)
            right, right_now = true_positives(y, x, w)
            wrong, wrong_now = other(y, x, w)
            value = math.divide_no_nan(right, right + wrong, name="value")
            update = math.divide_no_nan(right_now, right_now + wrong_now, name="update_op")
            return collected(value, update, metrics_collections, updates_collections)

    title = function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""How many of {of}: a part of 1; 0 if there were none.
    For the other arguments and results see `mean`.

    Args:
      labels, predictions: of the same shape; cast to bool.

    Source: TensorFlow's `tf.metrics.{name}`.
    """
    return function


precision = _share("precision", "the predictions that held were right", false_positives)
recall = _share("recall", "the labels that held were predicted", false_negatives)


@in_default_graph
def mean_per_class_accuracy(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean over classes of the fraction of examples that are predicted correctly.

    Args:
      labels, predictions: integer tensors of classes, of the same shape.
      num_classes: number of classes.
      weights, metrics_collections, updates_collections: see `mean`.
      name: name of the variable scope. None: "mean_accuracy".

    Returns:
      A pair: the mean, a scalar; and the update, a vector with the new accuracy of each class.

    Source: TensorFlow's `tf.metrics.mean_per_class_accuracy`.
    """
    with variable_scope(name, "mean_accuracy"):
        y, x, w = agreeing(labels, predictions, weights, dtypes.int64)
        total, count = state("total", (num_classes,)), state("count", (num_classes,))
        each = arrays.reshape(y, [-1])
        hits = math.cast(math.equal(each, arrays.reshape(x, [-1])), dtypes.float32)
        seen = arrays.ones_like(hits)
        if w is not None:
            w = arrays.reshape(spread(w, math.cast(x, dtypes.float32)), [-1])
            hits, seen = hits * w, seen * w
        new_total, new_count = total.scatter_add(each, hits), count.scatter_add(each, seen)
        value = reductions.reduce_mean(math.divide_no_nan(total, count), name="mean_accuracy")
        update = math.divide_no_nan(new_total, new_count, name="update_op")
        return collected(value, update, metrics_collections, updates_collections)


@in_default_graph
def mean_iou(
    labels: Any,
    predictions: Any,
    num_classes: int,
    weights: Any = None,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """Computes the mean intersection over union of labels and predictions.

    For each class, it is the number of examples with this label and prediction, divided by the number of examples with
    this label or prediction. The mean is over the classes that have occurred.

    Args:
      labels, predictions: integer tensors of classes, of the same shape.
      num_classes: number of classes.
      weights, metrics_collections, updates_collections: see `mean`.
      name: name of the variable scope. None: "mean_iou".

    Returns:
      A pair: the mean, a scalar; and the update, the new confusion matrix [num_classes, num_classes].

    Source: TensorFlow's `tf.metrics.mean_iou`.
    """
    with variable_scope(name, "mean_iou"):
        y, x, w = agreeing(labels, predictions, weights, dtypes.int64)
        seen = state("total_confusion_matrix", (num_classes, num_classes), dtypes.float64)
        w = None if w is None else arrays.reshape(spread(w, math.cast(x, dtypes.float32)), [-1])
        flat = arrays.reshape(y, [-1]), arrays.reshape(x, [-1])
        update = seen.assign_add(confusion_matrix(*flat, num_classes, w, dtypes.float64))
        table = seen.value()
        both = linalg.diag_part(table)
        either = reductions.reduce_sum(table, 0) + reductions.reduce_sum(table, 1) - both
        there = reductions.reduce_sum(math.cast(math.not_equal(either, 0.0), dtypes.float64))
        share = math.divide_no_nan(reductions.reduce_sum(math.divide_no_nan(both, either)), there)
        value = math.cast(share, dtypes.float32, name="mean_iou")
        return collected(value, tensors.identity(update, name="update_op"), metrics_collections, updates_collections)


# fmt: off
__all__ = [
    "accuracy", "auc", "average_precision_at_k", "false_negatives", "false_negatives_at_thresholds", "false_positives",
    "false_positives_at_thresholds", "mean", "mean_absolute_error", "mean_cosine_distance", "mean_iou",
    "mean_per_class_accuracy", "mean_relative_error", "mean_squared_error", "mean_tensor", "percentage_below",
    "precision", "precision_at_k", "precision_at_thresholds", "precision_at_top_k", "recall", "recall_at_k",
    "recall_at_thresholds", "recall_at_top_k", "root_mean_squared_error", "sensitivity_at_specificity",
    "sparse_average_precision_at_k", "sparse_precision_at_k", "specificity_at_sensitivity", "true_negatives",
    "true_negatives_at_thresholds", "true_positives", "true_positives_at_thresholds",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
