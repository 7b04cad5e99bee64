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
    """Computes the area under the ROC or precision-recall curve.

    The curve has a point for each threshold of the predictions.

    Args:
      labels: a tensor that is cast to bool.
      predictions: a tensor of the same shape, with values from 0 to 1.
      weights, metrics_collections, updates_collections: see `mean`.
      num_thresholds: number of evenly spaced thresholds, if `thresholds` is None.
      curve: "ROC": true positive rate over false positive rate; "PR": precision over recall.
      name: name of the variable scope. None: "auc".
      summation_method: area between two points: "trapezoidal"; "minoring", with the lower point; "majoring", with the
        upper point; or "careful_interpolation", which for "PR" interpolates the counts and not the precision (Davis and
        Goadrich 2006, "The Relationship Between Precision-Recall and ROC Curves").
      thresholds: thresholds from 0 to 1, to which 0 and 1 are added. None: `num_thresholds` even ones.

    Returns:
      A pair: the area, a float32 scalar; and the update, which has its new value.

    Raises:
      ValueError: an argument has a wrong value.

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
    """Returns the area below the precision-recall curve between successive thresholds.

    Between two points, the number p of predictions changes linearly, and tp with it: tp = at_0 + slope * p. The area is
    the integral of tp / p over tp, divided by the number of true labels.
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
    """Returns thresholds from slightly below 0 to 1 + `above`."""
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
    """Returns the counts of true or false positives or negatives at each threshold, and updates."""
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
    """Computes the sensitivity (true positive rate) at the threshold with a given specificity.

    Args:
      labels: a tensor that is cast to bool.
      predictions: a tensor of the same shape, with values from 0 to 1.
      specificity: the specificity (true negative rate), from 0 to 1. The threshold with the nearest one is used; if
        several are equally near, the lowest.
      weights, metrics_collections, updates_collections: see `mean`.
      num_thresholds: number of thresholds, evenly spaced from 0 to 1.
      name: name of the variable scope. None: "sensitivity_at_specificity".

    Returns:
      A pair: the sensitivity, a float32 scalar; and the update, which has its new value.

    Raises:
      ValueError: `specificity` is not from 0 to 1, or `num_thresholds` is less than 2.

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
    """Computes the specificity (true negative rate) at the threshold with a given sensitivity.

    Args:
      labels: a tensor that is cast to bool.
      predictions: a tensor of the same shape, with values from 0 to 1.
      sensitivity: the sensitivity (true positive rate), from 0 to 1. The threshold with the nearest one is used; if
        several are equally near, the highest.
      weights, metrics_collections, updates_collections: see `mean`.
      num_thresholds: number of thresholds, evenly spaced from 0 to 1. A prediction of 1 is above the last threshold.
      name: name of the variable scope. None: "specificity_at_sensitivity".

    Returns:
      A pair: the specificity, a float32 scalar; and the update, which has its new value.

    Raises:
      ValueError: `sensitivity` is not from 0 to 1, or `num_thresholds` is less than 2.

    Source: TensorFlow's `tf.metrics.specificity_at_sensitivity`.
    """
    _check_part("sensitivity", sensitivity)
    edges = _spread_out(num_thresholds, -_EDGE)

    def measure(counts: Sequence[Any], name: str) -> Any:
        tp, fn, tn, fp = counts
        far = arrays.reverse(math.abs(_part(tp, fn) - sensitivity), [0])  # argmin then finds the last minimum
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
