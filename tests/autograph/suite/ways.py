"""The ways in which a case runs, and the comparison of their results and gradients.

The plain way calls the function with Python numbers and numpy arrays. Its derivative in a direction is a difference of
values. The other ways run the converted function on tensors, and their gradients are headrace's.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

import headrace as hr
from tests.autograph.suite.cases import Case

#: Half of the distance over which values are compared with a gradient.
STEP = 1e-6


class Outcome(NamedTuple):
    """Result of one call.

    Attributes:
      leaves: the arrays of the result, in the order of its structure.
      slopes: the gradient of `weighed(leaves)` for each float argument, in the order of the arguments; None where the
        result has no float.
    """

    leaves: list[np.ndarray]
    slopes: list[np.ndarray] | None


def leaves(x: Any) -> Iterator[Any]:
    """The numbers, arrays and tensors of a structure."""
    if isinstance(x, Mapping):
        for key in sorted(x):
            yield from leaves(x[key])
    elif isinstance(x, tuple | list):
        for part in x:
            yield from leaves(part)
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        for field in dataclasses.fields(x):
            yield from leaves(getattr(x, field.name))
    elif isinstance(x, hr.TensorArray):
        yield from leaves(x.stack())
    elif x is not None:
        yield x


def mapped(f: Callable[[Any], Any], x: Any) -> Any:
    """A structure with each number and array replaced by `f` of it."""
    if isinstance(x, Mapping):
        changed = {key: mapped(f, x[key]) for key in sorted(x)}  # in the order of `leaves`
        return {key: changed[key] for key in x}
    if isinstance(x, tuple | list):
        parts = [mapped(f, part) for part in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        return dataclasses.replace(x, **{d.name: mapped(f, getattr(x, d.name)) for d in dataclasses.fields(x)})
    return f(x)


def as_array(x: Any) -> Any:
    """A number or array with the dtype of its tensor; anything else unchanged."""
    if isinstance(x, bool | np.bool_):
        return np.array(x)
    if isinstance(x, int | np.integer):
        return np.array(x, np.int32)
    if isinstance(x, float):
        return np.array(x, np.float64)
    return x


def is_float(x: Any) -> bool:
    return isinstance(x, np.ndarray) and x.dtype == np.float64


def weights(shape: tuple[int, ...], position: int) -> np.ndarray:
    """Fixed weights of one leaf, of which none is 0."""
    return np.cos(np.arange(int(np.prod(shape))) + position).reshape(shape)


def weighed(results: list[np.ndarray]) -> float:
    """The weighted sum of the floats of a result, whose gradient is compared."""
    return sum(float(np.sum(weights(x.shape, i) * x)) for i, x in enumerate(results) if is_float(x))


def loss_of(result: Any) -> Any:
    """`weighed` for tensors, or None where the result has no float tensor."""
    terms = []
    for i, x in enumerate(leaves(result)):
        if isinstance(x, hr.Tensor | hr.EagerTensor) and x.dtype == hr.float64:
            positions = hr.reshape(hr.cast(hr.range(hr.size(x)), hr.float64), hr.shape(x))
            terms.append(hr.reduce_sum(hr.cos(positions + float(i)) * x))
    return hr.add_n(terms) if terms else None


def values(result: Any) -> list[np.ndarray]:
    return [np.asarray(as_array(x)) for x in leaves(result)]


# *** Plain Python ***


def copied(call: tuple[Any, ...]) -> Any:
    """Arguments that the function may change."""
    return mapped(lambda x: x.copy() if isinstance(x, np.ndarray) else x, call)


def plain(case: Case, call: tuple[Any, ...]) -> list[np.ndarray]:
    """The result of the function itself for Python numbers and numpy arrays."""
    return values(case.of_numpy()(*copied(call)))


def difference(case: Case, call: tuple[Any, ...], direction: list[np.ndarray]) -> float:
    """The derivative of the weighted result in a direction, by a difference of values."""

    def moved(by: float) -> float:
        steps = iter(direction)

        def move(x: Any) -> Any:
            if not is_float(as_array(x)):
                return x
            after = x + by * next(steps)
            return float(after) if isinstance(x, float) else after

        return weighed(plain(case, mapped(move, copied(call))))

    return (moved(STEP) - moved(-STEP)) / (2 * STEP)


# *** The other ways ***


def arrays_of(call: tuple[Any, ...]) -> list[np.ndarray]:
    """The arguments that become tensors, in order."""
    return [x for x in map(as_array, leaves(call)) if isinstance(x, np.ndarray)]


def rebuilt(call: tuple[Any, ...], parts: list[Any]) -> Any:
    """The arguments with `parts` in the places of `arrays_of`."""
    rest = iter(parts)
    return mapped(lambda x: next(rest) if isinstance(as_array(x), np.ndarray) else x, call)


def eager(case: Case) -> Callable[[tuple[Any, ...]], Outcome]:
    """Converted code on eager tensors under a tape."""
    f = case.of_tensors(hr.autograph.convert(case.function))

    def run(call: tuple[Any, ...]) -> Outcome:
        tensors = [hr.constant(x) for x in arrays_of(call)]
        floats = [x for x in tensors if x.dtype == hr.float64]
        with hr.GradientTape() as tape:
            for x in floats:
                tape.watch(x)
            result = f(*rebuilt(call, tensors))
            loss = loss_of(result)
        got = values(result)
        slopes = [None] * len(floats) if loss is None else tape.gradient(loss, floats)
        return Outcome(got, _dense(slopes, floats) if any(map(is_float, got)) else None)

    return run


def jitted(case: Case) -> Callable[[tuple[Any, ...]], Outcome]:
    """A jitted function, and the transform of it that computes the gradient."""
    f = case.of_tensors(hr.jit(case.function))
    by = tuple(k for k, x in enumerate(arrays_of(case.calls[0])) if is_float(x))

    def loss(*tensors: Any) -> Any:
        return loss_of(f(*rebuilt(case.calls[0], list(tensors))))

    slopes = hr.grad(loss, by)

    def run(call: tuple[Any, ...]) -> Outcome:
        tensors = [hr.constant(x) for x in arrays_of(call)]
        got = values(f(*rebuilt(call, tensors)))
        if not any(map(is_float, got)):
            return Outcome(got, None)
        return Outcome(got, [np.asarray(x) for x in slopes(*tensors)] if by else [])

    return run


def _dense(slopes: Any, xs: list[Any]) -> list[np.ndarray]:
    """Gradients as arrays, zeros where the result does not depend on the argument."""
    return [np.zeros(x.shape) if g is None else np.asarray(hr.convert_to_tensor(g)) for g, x in zip(slopes, xs)]


class Traced(NamedTuple):
    """The graph of a case, which takes the arguments of all calls.

    Attributes:
      graph: the graph.
      inputs: placeholders of the arguments that become tensors.
      fetches: the tensors of the result.
      slopes: the gradient of the weighted result for each float argument; None where the result has no float.
    """

    graph: hr.Graph
    inputs: list[Any]
    fetches: list[Any]
    slopes: list[Any] | None


@functools.lru_cache(maxsize=1)
def traced(case: Case) -> Traced:
    """Converted code in one graph with placeholders."""
    with hr.Graph() as built:
        inputs = [hr.placeholder(hr.as_dtype(x.dtype), x.shape) for x in arrays_of(case.calls[0])]
        floats = [x for x in inputs if x.dtype == hr.float64]
        result = case.of_tensors(hr.autograph.convert(case.function))(*rebuilt(case.calls[0], inputs))
        fetches = [hr.convert_to_tensor(x) for x in leaves(result)]
        loss = loss_of(fetches)
        slopes = None
        if loss is not None:
            found = hr.gradients(loss, floats)
            slopes = [hr.zeros_like(x) if g is None else hr.convert_to_tensor(g) for g, x in zip(found, floats)]
    return Traced(built, inputs, fetches, slopes)


def graph(case: Case, engine: str) -> Callable[[tuple[Any, ...]], Outcome]:
    """The graph of a case, run by an engine."""
    made = traced(case)
    session = hr.Session(graph=made.graph, engine=engine)

    def run(call: tuple[Any, ...]) -> Outcome:
        got, by = session.run([made.fetches, made.slopes or []], dict(zip(made.inputs, arrays_of(call))))
        return Outcome([np.asarray(x) for x in got], None if made.slopes is None else [np.asarray(x) for x in by])

    return run


WAYS: dict[str, Callable[[Case], Callable[[tuple[Any, ...]], Outcome]]] = {
    "eager": eager,
    "jitted": jitted,
    "compiled": lambda case: graph(case, "compiled"),
    "interpreted": lambda case: graph(case, "interpret"),
}


def in_turn(number: int) -> tuple[str, ...]:
    """Eager execution and one of the ways that trace a case.

    Successive numbers have all of these in turn.
    """
    eager_way, *traced_ways = WAYS
    return eager_way, traced_ways[number % len(traced_ways)]


# *** Comparison ***


def check(case: Case, ways: tuple[str, ...] = tuple(WAYS)) -> None:
    """Runs all calls of a case in these ways.

    Raises:
      AssertionError: a result differs from that of plain Python, or a gradient from the difference of values.
    """
    runs = {way: WAYS[way](case) for way in ways}
    for number, call in enumerate(case.calls):
        wanted = plain(case, call)
        rng = np.random.default_rng(number)
        direction = [rng.standard_normal(x.shape) for x in arrays_of(call) if is_float(x)]
        slope = difference(case, call, direction) if case.smooth and direction else 0.0
        for way, run in runs.items():
            here = f"{case.name}, {way}, call {number}: {call}"
            got = run(call)
            assert len(got.leaves) == len(wanted), here
            for have, want in zip(got.leaves, wanted):
                assert have.shape == want.shape, here
                near = 1e-6 if have.dtype == np.float32 else 1e-9  # a result of Python numbers alone is float32
                assert np.allclose(have, want, rtol=near, atol=near, equal_nan=True), f"{here}: {have}, not {want}"
            assert got.slopes is not None or not any(map(is_float, wanted)), f"{here}: dtypes of the result"
            if case.smooth and got.slopes is not None:
                along = sum(float(np.sum(g * d)) for g, d in zip(got.slopes, direction))
                assert np.isclose(along, slope, rtol=2e-5, atol=1e-6), f"{here}: slope {along}, not {slope}"
