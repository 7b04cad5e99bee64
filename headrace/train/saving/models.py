"""The variables of a model in one call: `hr.save` and `hr.load`.

A model is a layer, an optimizer, a variable, an object with `variables`, or a nested structure of them. Two models of
the same making have the same variables in the same order, but not with the same names: the second `Dense` of a process
is "dense_1". So a file holds the values in their order, and the names for messages and for readers without a model.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from headrace import shapes
from headrace.api.variable import Variable
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.train.saving import values
from headrace.train.saving.restoring import assign

M = TypeVar("M")


def save(path: str | os.PathLike[str], model: Any, session: Any = None) -> str:
    """Writes the values of a model's variables to one file. Writing is atomic.

    Args:
      path: prefix of the file's name.
      model: a layer, an optimizer, a variable, an object with `variables`, or a list, tuple or dict of them. A variable
        that occurs twice is written once.
      session: the session with the values of a graph's variables; None: the variables are eager ones.

    Returns:
      The path.

    Raises:
      InvalidArgumentError: the model has no variables (a layer has none before its first call).
      TypeError: a part of the model has no variables by its kind.
      FailedPreconditionError: a variable has no value yet.
      ValueError: the variables are a graph's, and there is no session.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     dense, other = hr.layers.Dense(2), hr.layers.Dense(2)
      ...     y, _ = dense(hr.ones((1, 3))), other(hr.ones((1, 3)))
      ...     path = hr.save(os.path.join(folder, "model"), dense)
      ...     bool((hr.load(path, other)(hr.ones((1, 3))) == y).numpy().all())
      True
    """
    variables = _variables_of(model)
    if not variables:
        raise InvalidArgumentError("the model has no variables to save; a layer has none before its first call")
    written: str = values.save(
        path, {"names": [v.name for v in variables], "variables": _values_of(variables, session)}
    )
    return written


def load(path: str | os.PathLike[str], model: M | None = None, session: Any = None) -> M | dict[str, Any]:
    """Assigns the values of a file of `save` to the variables of a model.

    The model is of the same making. All shapes and dtypes are compared before any value is assigned.

    Args:
      path: as given to `save`.
      model: the model; None: only the values are read.
      session: see `save`.

    Returns:
      The model; without one, a dict from the names of the variables to arrays.

    Raises:
      NotFoundError: there is no such file.
      InvalidArgumentError: the model has another number of variables, or one of another shape or dtype.
      DataLossError: the file is damaged, or is not one of `save`.
      ValueError: the variables are a graph's, and there is no session.

    Example: see `save`.

    Example:
      >>> import headrace as hr, os, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     hr.load(hr.save(os.path.join(folder, "v"), hr.Variable([1.0, 2.0], name="v")))
      {'v:0': array([1., 2.], dtype=float32)}
    """
    names, found = _read(path)
    if model is None:
        return dict(zip(names, found, strict=True))
    variables = _variables_of(model)
    if len(variables) != len(found):
        raise InvalidArgumentError(
            f"{os.fspath(path)!r} has the values of {len(found)} variables and the model has {len(variables)}; a layer "
            "has none before its first call"
        )
    for v, name, value in zip(variables, names, found, strict=True):
        if v.dtype.base.numpy != value.dtype or not shapes.fits(value.shape, v.shape):
            raise InvalidArgumentError(
                f"the variable {v.name!r} has dtype {v.dtype.base.name} and shape {v.shape}; its value in "
                f"{os.fspath(path)!r}, of {name!r}, has dtype {value.dtype} and shape {value.shape}"
            )
    assign(_session_for(variables, session), zip(variables, found, strict=True))
    return model


def _read(path: str | os.PathLike[str]) -> tuple[list[str], list[np.ndarray]]:
    """The names and the values in a file of `save`."""
    content = values.load(path)
    names, found = content.get("names"), content.get("variables")
    if not isinstance(names, list) or not isinstance(found, list) or len(names) != len(found):
        raise DataLossError(f"{os.fspath(path)!r} is not a file of hr.save; hr.train.load reads any checkpoint")
    return [n.decode() for n in names], [np.asarray(x) for x in found]


def _variables_of(model: Any) -> list[Variable]:
    """The different variables of a model, in their order."""
    return list({id(v): v for v in _walk(model)}.values())


def _walk(model: Any) -> Iterator[Variable]:
    if isinstance(model, Variable):
        yield model
    elif isinstance(model, Mapping):
        for key in sorted(model):
            yield from _walk(model[key])
    elif isinstance(model, (list, tuple)):
        for part in model:
            yield from _walk(part)
    elif hasattr(model, "variables"):
        given = model.variables
        yield from _walk(list(given() if callable(given) else given))
    else:
        raise TypeError(
            f"a model is a layer, an optimizer, a variable, an object with `variables`, or a list, tuple or dict of "
            f"them; got {type(model).__name__}"
        )


def _session_for(variables: list[Variable], session: Any) -> Any:
    if session is None and any(v.graph is not None for v in variables):
        name = next(v.name for v in variables if v.graph is not None)
        raise ValueError(f"{name!r} is a variable of a graph: give the session with its value (session=...)")
    return session


def _values_of(variables: list[Variable], session: Any) -> list[Any]:
    if _session_for(variables, session) is None:
        return [v.numpy() for v in variables]
    read: list[Any] = session.run(variables)
    return read
