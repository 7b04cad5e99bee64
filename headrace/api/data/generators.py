"""Datasets of the elements of Python iterators."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api import scopes
from headrace.api.data import functions, structure
from headrace.api.py_func import py_func
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import InvalidArgumentError
from headrace.ir.conversion import as_array


class _Passes:
    """Python iterators of the passes over a dataset, by number.

    Args:
      generator: the function that returns an iterable.
      specs: the descriptions of the components.
      spec: the description of an element.
    """

    def __init__(self, generator: Callable[..., Any], specs: Sequence[TensorSpec], spec: Any) -> None:
        self._generator = generator
        self._specs, self._spec = specs, spec
        self._numbers = itertools.count()
        self._open: dict[int, Any] = {}

    def begin(self, *args: Any) -> np.int64:
        """Starts a pass; returns its number."""
        n = next(self._numbers)
        self._open[n] = iter(self._generator(*args))
        return np.int64(n)

    def step(self, n: Any) -> list[Any]:
        """Returns the components of the next element of a pass; raises StopIteration at the end."""
        value = next(self._open[int(n)])
        if isinstance(value, list):
            leaves = [value] if len(self._specs) == 1 else value
        else:
            leaves = structure.flatten(value)
        if len(leaves) != len(self._specs):
            raise InvalidArgumentError(
                f"`generator` yielded an element that did not match the expected structure. The expected structure was "
                f"{self._spec}, but the yielded element was {value!r}."
            )
        return [_checked(x, s) for x, s in zip(leaves, self._specs, strict=True)]

    def end(self, n: Any) -> np.int64:
        """Ends a pass."""
        self._open.pop(int(n), None)
        return np.int64(0)


def _checked(value: Any, spec: TensorSpec) -> Any:
    """Returns a component as an array, of the dtype and shape of its spec."""
    try:
        array = as_array(value, spec.dtype)
    except (TypeError, ValueError) as e:
        raise InvalidArgumentError(
            f"`generator` yielded an element that could not be converted to the expected type. The expected type was "
            f"{spec.dtype.name}, but the yielded element was {value!r}."
        ) from e
    if not shapes.fits(array.shape, spec.shape):
        raise InvalidArgumentError(
            f"`generator` yielded an element of shape {shapes.show(array.shape)} where an element of shape "
            f"{shapes.show(spec.shape)} was expected."
        )
    return array


def generated(door: Any, generator: Callable[..., Any], spec: Any, args: Sequence[Any]) -> Any:
    """Returns a dataset of the elements of a Python iterator; see `Dataset.from_generator`."""
    if not callable(generator):
        raise TypeError("`generator` must be a Python callable.")
    leaves = structure.flatten(spec)
    for s in leaves:
        if not isinstance(s, TensorSpec):
            raise TypeError(f"elements of a generator are dense tensors, got {s}")
    passes = _Passes(generator, leaves, spec)
    types = [s.dtype for s in leaves]
    b = scopes.builder(*args)
    scopes.keep(b.graph, passes)
    tensors = tuple(b.tensor(a) for a in args)

    def step(n: Any) -> Any:
        parts = py_func(passes.step, [n], types)
        for t, s in zip(parts, leaves, strict=True):
            t.refine(s.shape)
        return tuple(parts)

    number = TensorSpec((), dtypes.int64)
    none: Any = ()

    def begin() -> Any:
        made = py_func(passes.begin, list(tensors), dtypes.int64)
        made.refine(())
        return made

    def end(n: Any) -> Any:
        return py_func(passes.end, [n], dtypes.int64)

    made = {
        "init": functions.traced(b, begin, none, "from_generator", door),
        "next": functions.traced(b, step, number, "from_generator", door),
        "finalize": functions.traced(b, end, number, "from_generator", door),
    }
    attrs = {f"{name}_func": f.attr for name, f in made.items()}
    b = functions.with_controls(b, *made.values())
    variant = b.make("GeneratorDataset", [f.captured for f in made.values()], {**attrs, **structure.attributes(spec)})
    return door(variant, spec)
