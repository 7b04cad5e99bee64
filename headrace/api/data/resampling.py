"""Resampling of datasets: elements are rejected until their classes have a given distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from headrace import dtypes
from headrace.api import arrays, math, random, scopes, tracing
from headrace.api.cond import cond
from headrace.api.debugging import Print
from headrace.ir.graph import Tensor
from headrace.ir.infer import constant_value

_BATCH: Final = 32  # elements after which the estimate of the distribution changes
_SMOOTHING: Final = 10  # elements of each class that the first estimate assumes


def resampled(
    dataset: Any, class_func: Callable[..., Any], target_dist: Any, initial_dist: Any, seed: int | None
) -> Any:
    """Returns a dataset of pairs of a class and an element; see `Dataset.rejection_resample`."""
    class_func = tracing.converted(class_func)
    door = dataset._door()
    b = scopes.builder(dataset.variant_tensor, target_dist, initial_dist)
    target = _floats(b, target_dist)
    known = None
    if initial_dist is None:
        estimated = _estimated(dataset, class_func, target, door)
        both = estimated.map(lambda initial: _acceptance(initial, target))
        initial, accepted, kept = estimated, both.map(lambda a, m: a), both.map(lambda a, m: m)
    else:
        first = _floats(b, initial_dist)
        initial, accepted, kept = (door.from_tensors(x).repeat() for x in (first, *_acceptance(first, target)))
        values = [_static(x) for x in (target, first)]
        if all(v is not None for v in values):
            known = np.min(values[0] / values[1])
    filtered = _filtered(dataset, accepted, initial, class_func, seed, door).prefetch(3)
    labelled = lambda *x: (class_func(*x), x[0] if len(x) == 1 else x)
    if known == 1:
        return dataset.map(labelled)
    if known == 0:
        return filtered
    weights = kept.map(lambda m: arrays.stack([m, 1.0 - m]))
    return door.sample_from_datasets([dataset.map(labelled), filtered], weights, seed, True)


def _floats(b: Any, x: Any) -> Any:
    return math.cast(b.tensor(x), dtypes.float32)


def _static(x: Any) -> Any:
    return constant_value(x) if isinstance(x, Tensor) else x.numpy()


def _estimated(dataset: Any, class_func: Callable[..., Any], target: Any, door: Any) -> Any:
    """Returns a dataset of the distribution of the classes so far, for each element."""
    b = scopes.builder(target)
    n = target.shape[0]
    if n is None:
        raise ValueError("the number of classes must be known: give `target_dist` with a static shape")
    first = b.const(np.full(n, _SMOOTHING, np.int64))

    def step(seen: Any, classes: Any) -> Any:
        b = scopes.builder(seen, classes)
        hot = b.OneHot(classes, n, b.const(1, dtypes.int64), b.const(0, dtypes.int64))
        seen = b.AddV2(seen, b.Sum(hot, b.const([0], dtypes.int32)))
        total = b.Sum(seen, b.const([0], dtypes.int32))
        share = b.RealDiv(b.Cast(seen, DstT=dtypes.float64), b.Cast(total, DstT=dtypes.float64))
        share = b.Cast(share, DstT=dtypes.float32)
        return seen, b.Tile(b.ExpandDims(share, 0), b.const([_BATCH, 1], dtypes.int32))

    return dataset.map(class_func).batch(_BATCH).scan(first, step).unbatch()


def _acceptance(initial: Any, target: Any) -> tuple[Any, Any]:
    """Returns the acceptance probability of each class, and that of no rejection.

    An element is taken from the unchanged dataset with the largest probability m that leaves each class possible, and
    from the filtered one otherwise.
    """
    b = scopes.builder(initial, target)
    ratio = b.RealDiv(target, b.AddV2(initial, b.const(np.finfo(np.float32).tiny, dtypes.float32)))
    axis = b.const([0], dtypes.int32)
    most, m = b.Max(ratio, axis), b.Min(ratio, axis)
    return b.RealDiv(b.Sub(ratio, m), b.Sub(most, m)), m


def _filtered(
    dataset: Any, accepted: Any, initial: Any, class_func: Callable[..., Any], seed: int | None, door: Any
) -> Any:
    """Returns a dataset of the accepted pairs of class and element."""

    def noted(accept: Any, dist: Any) -> Any:
        b = scopes.builder(accept, dist)
        rejected = b.Sum(b.Mul(b.Sub(b.const(1, dtypes.float32), accept), dist), b.const([0], dtypes.int32))
        text = "Proportion of examples rejected by sampler is high: "
        warn = lambda: Print(accept, [rejected, dist, accept], text, first_n=10, summarize=100)
        return cond(b.Less(rejected, b.const(0.5, dtypes.float32)), lambda: accept, warn)

    def with_class(accept: Any, element: Any) -> Any:
        label = class_func(*element) if type(element) is tuple else class_func(element)
        b = scopes.builder(accept, label)
        return label, b.GatherV2(accept, label, 0), element

    def is_accepted(label: Any, p: Any, element: Any) -> Any:
        return random.uniform([], seed=seed, dtype=p.dtype) < p

    probabilities = door.zip((accepted, initial)).map(noted)
    found = door.zip((probabilities, dataset)).map(with_class).filter(is_accepted)
    return found.map(lambda label, p, element: (label, element))
