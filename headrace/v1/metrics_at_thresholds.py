"""TensorFlow 1's `tf.metrics` of predictions in [0, 1], which thresholds convert to bools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes
from headrace.api import arrays, gathering, math, reductions, scopes, tensors
from headrace.api.debugging import assert_greater_equal, assert_less_equal
from headrace.v1.graph import in_default_graph
from headrace.v1.losses import spread
from headrace.v1.metric_states import agreeing, collected, state
from headrace.v1.variable_scopes import variable_scope

_EDGE = 1e-7  # so that predictions of 0 and 1 are on the right side of the first and last threshold
_LEAST = 1e-6  # keeps rates from being 0 / 0


_COUNTS = ("true_positives", "false_negatives", "true_negatives", "false_positives")


@in_default_graph
def auc(
    labels: Any,
    predictions: Any,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    curve: str = "ROC",
    name: str | None = None,
    summation_method: str = "trapezoidal",
    thresholds: Sequence[float] | None = None,
) -> tuple[Any, Any]:
    """The area under a curve that shows what a threshold for predictions makes of them. For the other arguments and
    results see `mean`.

    Args:
      labels: cast to bool.
      predictions: of the same shape, from 0 to 1.
      num_thresholds: how many, evenly spread, if no `thresholds` are given.
      curve: "ROC": recall by the part of false labels that were predicted; "PR": precision by recall.
      summation_method: how the area between two points is taken: "trapezoidal", "minoring" (of the lower one),
        "majoring", or "careful_interpolation", which for "PR" has the counts and not the precision run in straight
        lines between them (Davis and Goadrich 2006, "The Relationship Between Precision-Recall and ROC Curves").
      thresholds: from 0 to 1; 0 and 1 are added.

    Raises:
      ValueError: an argument is not as described above.

    Source: TensorFlow's `tf.metrics.auc`.
    """
    if curve not in ("ROC", "PR"):
        raise ValueError(f"curve must be 'ROC' or 'PR', got {curve!r}")
    ways: dict[str, Callable[[Any, Any], Any]] = {
        "trapezoidal": lambda a, b: (a + b) / 2.0, "careful_interpolation": lambda a, b: (a + b) / 2.0,
        "minoring": math.minimum, "majoring": math.maximum,
    }  # fmt: skip
    if summation_method not in ways:
        raise ValueError(f"summation_method must be one of {', '.join(ways)}, got {summation_method!r}")
    edges = _spread_out(num_thresholds) if thresholds is None else [-_EDGE, *sorted(thresholds), 1 + _EDGE]
    if any(not 0 <= t <= 1 for t in edges[1:-1]):
        raise ValueError(f"thresholds must be from 0 to 1, got {thresholds}")

    def area(counts: Sequence[Any], name: str) -> Any:
        tp, fn, tn, fp = counts
        if curve == "PR" and summation_method == "careful_interpolation":
            return reductions.reduce_sum(_between(tp, fn, fp), name=name)
        recall = (tp + _LEAST) / (tp + fn + _LEAST)
        x, y = (fp / (fp + tn + _LEAST), recall) if curve == "ROC" else (recall, (tp + _LEAST) / (tp + fp + _LEAST))
        height = ways[summation_method](y[:-1], y[1:])
        return reductions.reduce_sum((x[:-1] - x[1:]) * height, name=name)

    with variable_scope(name, "auc"):
        seen = _at_thresholds(labels, predictions, edges, weights, _COUNTS)
        return _measured(area, seen, metrics_collections, updates_collections)


def _between(tp: Any, fn: Any, fp: Any) -> Any:
    """The area below precision by recall, between each threshold and the next.

    What was predicted, p, goes in a straight line from one point to the next, and tp with it: tp = at_0 + slope * p.
    The area is the integral of tp / p by tp, over all that there was to predict.
    """
    p = tp + fp
    rise = tp[:-1] - tp[1:]
    slope = math.divide_no_nan(rise, math.maximum(p[:-1] - p[1:], 0.0))
    at_0 = tp[1:] - slope * p[1:]
    there = math.logical_and(math.greater(p[:-1], 0.0), math.greater(p[1:], 0.0))
    ratio = math.divide_no_nan(p[:-1], math.maximum(p[1:], 0.0))
    ratio = gathering.where(there, ratio, arrays.ones_like(ratio))
    return math.divide_no_nan(slope * (rise + at_0 * math.log(ratio)), math.maximum(tp[1:] + fn[1:], 0.0))


def _spread_out(num_thresholds: int, above: float = _EDGE) -> list[float]:
    """Thresholds from a little below 0 to `above` 1."""
    if num_thresholds < 2:
        raise ValueError(f"num_thresholds must be 2 at least, got {num_thresholds}")
    return [-_EDGE, *(i / (num_thresholds - 1) for i in range(1, num_thresholds - 1)), 1.0 + above]


def _measured(
    measure: Callable[[Sequence[Any], str], Any],
    seen: Sequence[tuple[Any, Any]],
    metrics_collections: Any,
    updates_collections: Any,
) -> tuple[Any, Any]:
    value, update = measure([v for v, _ in seen], "value"), measure([u for _, u in seen], "update_op")
    return collected(value, update, metrics_collections, updates_collections)


def _at_thresholds(
    labels: Any, predictions: Any, thresholds: Sequence[float], weights: Any, names: Sequence[str]
) -> list[tuple[Any, Any]]:
    """For each threshold, how often predictions above it (below it) have been right (wrong), and the updates."""
    b = scopes.builder(predictions, labels)
    edges = np.asarray(thresholds, np.float32)
    states = [(v, v.value()) for v in (state(name, edges.shape) for name in names)]  # read before any check
    x = b.tensor(predictions, None, "predictions")
    message = "predictions must be from 0 to 1"
    checks = [assert_greater_equal(x, b.const(0.0, x.dtype.base), message=message)]
    checks.append(assert_less_equal(x, b.const(1.0, x.dtype.base), message=message))
    with scopes.control_dependencies([c for c in checks if c is not None]):
        x = math.cast(x, dtypes.float32)
        y, x, w = agreeing(math.cast(b.tensor(labels, None, "labels"), dtypes.bool_), x, weights)
        w = None if w is None else arrays.reshape(spread(w, x), [1, -1])
        above = math.greater(arrays.reshape(x, [1, -1]), edges[:, None])
        holds = arrays.reshape(y, [1, -1])
        of = {
            "true_positives": (holds, above), "false_negatives": (holds, math.logical_not(above)),
            "true_negatives": (math.logical_not(holds), math.logical_not(above)),
            "false_positives": (math.logical_not(holds), above),
        }  # fmt: skip
        out = []
        for name, (kept, value) in zip(names, states, strict=True):
            hits = math.cast(math.logical_and(*of[name]), dtypes.float32)
            hits = hits if w is None else hits * w
            out.append((value, kept.assign_add(reductions.reduce_sum(hits, 1))))
    return out


@in_default_graph
def sensitivity_at_specificity(
    labels: Any,
    predictions: Any,
    specificity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """How many of the labels that held were predicted, by the threshold at which a wanted part of those that did not
    hold were not. For the other arguments and results see `mean`.

    Args:
      labels: cast to bool.
      predictions: of the same shape, from 0 to 1.
      specificity: the wanted part, from 0 to 1. Of the thresholds the one that comes nearest is taken, of several the
        lowest.
      num_thresholds: how many are tried, evenly spread from 0 to 1.

    Raises:
      ValueError: `specificity` is not from 0 to 1; there are less than 2 thresholds.

    Source: TensorFlow's `tf.metrics.sensitivity_at_specificity`.
    """
    _check_part("specificity", specificity)

    def measure(counts: Sequence[Any], name: str) -> Any:
        tp, fn, tn, fp = counts
        at = reductions.argmin(math.abs(_part(tn, fp) - specificity), 0)
        return _part(tp[at], fn[at], name)

    with variable_scope(name, "sensitivity_at_specificity"):
        seen = _at_thresholds(labels, predictions, _spread_out(num_thresholds), weights, _COUNTS)
        return _measured(measure, seen, metrics_collections, updates_collections)


@in_default_graph
def specificity_at_sensitivity(
    labels: Any,
    predictions: Any,
    sensitivity: float,
    weights: Any = None,
    num_thresholds: int = 200,
    metrics_collections: Any = None,
    updates_collections: Any = None,
    name: str | None = None,
) -> tuple[Any, Any]:
    """How many of the labels that did not hold were not predicted, by the threshold at which a wanted part of those
    that held were. For the other arguments and results see `mean`.

    Args:
      labels: cast to bool.
      predictions: of the same shape, from 0 to 1.
      sensitivity: the wanted part, from 0 to 1. Of the thresholds the one that comes nearest is taken, of several the
        highest.
      num_thresholds: how many are tried, evenly spread from 0 to 1; at the last a prediction of 1 still holds.

    Raises:
      ValueError: `sensitivity` is not from 0 to 1; there are less than 2 thresholds.

    Source: TensorFlow's `tf.metrics.specificity_at_sensitivity`.
    """
    _check_part("sensitivity", sensitivity)
    edges = _spread_out(num_thresholds, -_EDGE)

    def measure(counts: Sequence[Any], name: str) -> Any:
        tp, fn, tn, fp = counts
        far = arrays.reverse(math.abs(_part(tp, fn) - sensitivity), [0])  # so that the last of the nearest is found
        at = len(edges) - 1 - reductions.argmin(far, 0)
        return _part(tn[at], fp[at], name)

    with variable_scope(name, "specificity_at_sensitivity"):
        seen = _at_thresholds(labels, predictions, edges, weights, _COUNTS)
        return _measured(measure, seen, metrics_collections, updates_collections)


def _check_part(name: str, given: float) -> None:
    if not 0 <= given <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {given}")


def _part(right: Any, wrong: Any, name: str | None = None) -> Any:
    return math.divide(right, right + wrong + _EDGE, name=name)


# *** at several thresholds ***


def _at(name: str, of: Sequence[str], what: str, measure: Callable[..., Any]) -> Any:
    @in_default_graph
    def function(
        labels: Any,
        predictions: Any,
        thresholds: Sequence[float],
        weights: Any = None,
        metrics_collections: Any = None,
        updates_collections: Any = None,
        name: str | None = None,
    ) -> tuple[Any, Any]:
        with variable_scope(name, scope):
            seen = _at_thresholds(labels, predictions, thresholds, weights, of)
            value, update = measure(*(v for v, _ in seen)), measure(*(u for _, u in seen))
            return collected(value, update, metrics_collections, updates_collections)

    title = function.__name__ = function.__qualname__ = name
    scope = of[0] if len(of) == 1 else title
    function.__doc__ = f"""{what} for each threshold that predictions have to be above.
    For the other arguments see `mean`.

    Args:
      labels: cast to bool.
      predictions: of the same shape, from 0 to 1.
      thresholds: a list of numbers from 0 to 1.

    Returns:
      Two vectors with a number for each threshold: the measure, and what takes new ones into account and gives it.

    Source: TensorFlow's `tf.metrics.{name}`.
    """
    return function


def _counted(which: str, what: str) -> Any:
    return _at(f"{which}_at_thresholds", (which,), what, tensors.identity)


true_positives_at_thresholds = _counted("true_positives", "How often labels held that were predicted to,")
false_negatives_at_thresholds = _counted("false_negatives", "How often labels held that were not predicted to,")
true_negatives_at_thresholds = _counted("true_negatives", "How often labels did not hold that were not predicted to,")
false_positives_at_thresholds = _counted("false_positives", "How often labels did not hold that were predicted to,")
precision_at_thresholds = _at(
    "precision_at_thresholds",
    ("true_positives", "false_positives"),
    "How many predictions that held were right,",
    _part,
)
recall_at_thresholds = _at(
    "recall_at_thresholds", ("true_positives", "false_negatives"), "How many labels that held were predicted,", _part
)
