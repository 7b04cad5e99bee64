"""Calls of users' functions by the names of their arguments: `model_fn` and `input_fn`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from headrace.api.data import dataset as datasets
from headrace.train.hooks import SessionRunHook
from headrace.v1.data import make_initializable_iterator
from headrace.v1.estimator.spec import EstimatorSpec
from headrace.v1.logging import warn
from headrace.v1.scoping import device

_OF_MODEL_FN = frozenset(("features", "labels", "mode", "params", "config", "self"))


def argument_names(f: Callable[..., Any]) -> tuple[str, ...]:
    """Returns the names of the arguments that a function, method or `partial` still takes."""
    bound: set[str] = set()
    inner: Any = f
    while isinstance(inner, functools.partial):
        bound |= set(inner.keywords)
        inner = inner.func
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in inspect.signature(f).parameters.values() if p.kind in kinds and p.name not in bound)


def check_model_fn(model_fn: Any, params: Any) -> None:
    """Checks the names of the arguments of a `model_fn`.

    Raises:
      ValueError: it is missing or has no `features`; parameters are given that it does not take; or it takes others.
    """
    if model_fn is None:
        raise ValueError("model_fn must be provided to Estimator.")
    names = argument_names(model_fn)
    if "features" not in names:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed to Estimator."
        )
    if params is None and "params" in names:
        warn("Estimator's model_fn (%s) includes params argument, but params are not passed to Estimator.", model_fn)
    unknown = sorted(set(names) - _OF_MODEL_FN)
    if unknown:
        raise ValueError(f"model_fn ({model_fn}) has following not expected args: {unknown}")


def call_model_fn(model_fn: Any, features: Any, labels: Any, mode: str, params: Any, config: Any) -> EstimatorSpec:
    """Calls a `model_fn` with the arguments that it takes.

    Raises:
      ValueError: there are labels that it does not take, or its result is no `EstimatorSpec`.
    """
    names = argument_names(model_fn)
    if "labels" not in names and labels is not None:
        raise ValueError("model_fn does not take labels, but input_fn returns labels.")
    given = {"labels": labels, "mode": mode, "params": params, "config": config}
    found = model_fn(features=features, **{k: v for k, v in given.items() if k in names})
    if not isinstance(found, EstimatorSpec):
        raise ValueError(f"model_fn should return an EstimatorSpec, and returned {found!r}.")
    return found


class _StartIterator(SessionRunHook):
    """Starts the iterator of a dataset in each session."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        """See `SessionRunHook.begin`."""
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        """See `SessionRunHook.after_create_session`."""
        session.run(self._initializer)


def call_input_fn(input_fn: Any, mode: str, params: Any, config: Any) -> tuple[Any, Any, list[Any]]:
    """Calls an `input_fn` with the arguments that it takes.

    Returns:
      Features, labels (or None), and hooks that the input needs.

    Raises:
      ValueError: the result is a list or tuple without two elements.
    """
    names = argument_names(input_fn)
    given = {"mode": mode, "params": params, "config": config}
    with device("/cpu:0"):
        result = input_fn(**{k: v for k, v in given.items() if k in names})
        hooks: list[Any] = []
        if isinstance(result, datasets.Dataset):
            iterator = make_initializable_iterator(result)
            hooks.append(_StartIterator(iterator))
            result = iterator.get_next()
    if isinstance(result, (list, tuple)):
        if len(result) != 2:
            raise ValueError("input_fn should return (features, labels) as a len 2 tuple.")
        return result[0], result[1], hooks
    return result, None, hooks
