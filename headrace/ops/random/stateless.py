"""Random numbers as functions of seeds: the same seeds always give the same numbers.

Source: TensorFlow's StatelessRandomUniform, StatelessRandomNormal, StatelessTruncatedNormal, StatelessRandomUniformInt,
StatelessRandomUniformFullInt, their V2 forms, which take a key and a counter, and the ops that compute these from
seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import FLOATING, INDEX, DType
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op, type_attr
from headrace.opkit.shape_rules import scalars
from headrace.ops.random import definition
from headrace.ops.random.drawing import (
    PHILOX,
    dims_of,
    drawn_shape,
    key_shape,
    range_of,
    seed_shape,
    stream_of_key,
    stream_of_seeds,
)
from headrace.resources.philox import Stream
from headrace.shapes import Shape

_WORDS = frozenset({dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64})
_FACTS = Facts(cost=flops_per_element(40), dynamic_shape=True)

_SEED = "seed: Tseed"
_KEY = "key: uint64, counter: uint64, alg: int32"


# *** Keys and counters ***


def _halves(stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """A stream as tensors: its key, and its counter in two numbers."""
    low, high = stream.counter & (1 << 64) - 1, stream.counter >> 64
    return np.array([stream.key], np.uint64), np.array([low, high], np.uint64)


def _key_shapes(c: Inference) -> Sequence[Shape]:
    seed_shape(c, 0)
    return [(1,), (2,), ()][: len(c.op.outputs)]


def _key_cases(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(np.array(pair, dtype.numpy)) for pair in ((1, 2), (-3, 2**31 - 1))]


def _key_oracle(seed: np.ndarray) -> tuple[np.ndarray, ...]:
    key, counter = definition.mixed(seed)
    return np.array([key], np.uint64), np.array([0, counter >> 64], np.uint64)


op(
    "StatelessRandomGetKeyCounter",
    _SEED,
    "key: uint64, counter: uint64",
    {"Tseed": type_attr(INDEX, dtypes.int64)},
    shape=_key_shapes,
    kernel=lambda attrs: lambda seed: _halves(stream_of_seeds(seed)),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    oracle=_key_oracle,
    sample=_key_cases,
    doc="The key and counter of Philox that two seeds are scrambled to.",
)
op(
    "StatelessRandomGetKeyCounterAlg",
    _SEED,
    "key: uint64, counter: uint64, alg: int32",
    {"Tseed": type_attr(INDEX, dtypes.int64)},
    shape=_key_shapes,
    kernel=lambda attrs: lambda seed: (*_halves(stream_of_seeds(seed)), np.int32(PHILOX)),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    oracle=lambda seed: (*_key_oracle(seed), np.int32(1)),
    sample=_key_cases,
    doc="The key and counter that two seeds are scrambled to, and the algorithm they are for.",
)
op(
    "StatelessRandomGetAlg",
    outs="alg: int32",
    shape=scalars,
    kernel=lambda attrs: lambda: np.int32(PHILOX),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    sample=lambda rng, dtype: [case(want=np.int32(1))],
    doc="The algorithm for random numbers that devices of this type have: 1, Philox.",
)


# *** Numbers, by seeds or by key and counter ***

_SOURCES: Sequence[tuple[str, int, Callable[..., Stream], Callable[[Inference, int], None]]] = (
    (_SEED, 1, stream_of_seeds, seed_shape),
    (_KEY, 3, stream_of_key, key_shape),
)


def _fill(source: Callable[..., Stream], distribution: str) -> Any:
    """The factory of an op that fills a shape with a method of `Stream`."""

    def factory(attrs: Mapping[str, Any]) -> Callable[..., Any]:
        dtype = attrs["dtype"]

        def kernel(shape: Any, *seeds: Any) -> Any:
            stream, dims = source(*seeds), dims_of(shape, dtype)
            return getattr(stream, distribution)(math.prod(dims), dtype).reshape(dims)

        return kernel

    return factory


def _fill_range(source: Callable[..., Stream]) -> Any:
    """The factory of an op that fills a shape with integers of a range."""

    def factory(attrs: Mapping[str, Any]) -> Callable[..., Any]:
        dtype = attrs["dtype"]

        def kernel(shape: Any, *args: Any) -> Any:
            *seeds, minval, maxval = args
            stream, dims = source(*seeds), dims_of(shape, dtype)
            n = math.prod(dims)
            if not n:
                return np.zeros(dims, dtype.numpy)
            return stream.uniform_int(n, *range_of(minval, maxval), dtype).reshape(dims)

        return kernel

    return factory


def _shape_rule(check: Callable[[Inference, int], None]) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        check(c, 1)
        return drawn_shape(c)

    return rule


def _range_rule(check: Callable[[Inference, int], None], seeds: int) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        check(c, 1)
        for i in (1, 2):
            shapes.with_rank(c.shapes[seeds + i], 0)
        return drawn_shape(c)

    return rule


def _seeds(seeds: int) -> list[np.ndarray]:
    """Seeds, or a key, counter and algorithm."""
    if seeds == 1:
        return [np.array([7, -4], np.int64)]
    return [np.array([2**63 + 5], np.uint64), np.array([2**64 - 2, 3], np.uint64), np.array(PHILOX, np.int32)]


def _stream_in(seeds: Sequence[np.ndarray]) -> tuple[int, int]:
    """The stream that such inputs stand for, by definition."""
    return definition.mixed(seeds[0]) if len(seeds) == 1 else definition.keyed(*seeds[:2])


def _fill_cases(seeds: int) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        dims = ((2, 13), (0, 3), ()) if dtype in (dtypes.float32, dtypes.uint64) else ((5,),)
        return [case(np.array(d, np.int32), *_seeds(seeds), dtype=dtype) for d in dims]

    return sample


def _fill_oracle(draw: Callable[..., np.ndarray]) -> Any:
    def oracle(shape: np.ndarray, *seeds: np.ndarray, dtype: DType) -> np.ndarray:
        return draw(_stream_in(seeds), math.prod(shape.tolist()), dtype).reshape(shape)

    return oracle


def _range_cases(seeds: int) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        low = 3 if dtype in dtypes.UNSIGNED else -7
        ends = np.array([low, 1000], dtype.numpy)
        return [case(np.array(dims, np.int32), *_seeds(seeds), *ends) for dims in ((3, 5), (0,))]

    return sample


def _range_oracle(shape: np.ndarray, *args: np.ndarray) -> np.ndarray:
    *seeds, low, high = args
    n, dtype = math.prod(shape.tolist()), dtypes.from_numpy(low.dtype)
    return definition.uniform_int(_stream_in(seeds), n, int(low), int(high), dtype).reshape(shape)


for _args, _n, _source, _check in _SOURCES:
    _v2 = "V2" if _source is stream_of_key else ""
    _T = "Tshape" if _v2 else "T"
    _more = {} if _v2 else {"Tseed": type_attr(INDEX, dtypes.int64)}
    for _name, _distribution, _types, _default, _draw, _doc in (
        ("StatelessRandomUniform", "uniform", FLOATING, dtypes.float32, definition.uniform,
         "Numbers evenly distributed over [0, 1)."),
        ("StatelessRandomNormal", "normal", FLOATING, dtypes.float32, definition.normal,
         "Normally distributed numbers of mean 0 and deviation 1."),
        ("StatelessTruncatedNormal", "truncated_normal", FLOATING, dtypes.float32, definition.truncated_normal,
         "Normally distributed numbers, drawn again where beyond two deviations."),
        ("StatelessRandomUniformFullInt", "integers", _WORDS, dtypes.uint64, definition.integers,
         "Integers evenly distributed over all that their type has."),
    ):  # fmt: skip
        _seed_types = _WORDS if _name.endswith("FullInt") else INDEX
        op(
            _name + _v2,
            f"shape: {_T}, {_args}",
            "output: dtype",
            {
                "dtype": type_attr(_types, _default),
                _T: type_attr(INDEX, dtypes.int32),
                **({} if _v2 else {"Tseed": type_attr(_seed_types, dtypes.int64)}),
            },
            shape=_shape_rule(_check),
            kernel=_fill(_source, _distribution),
            xp=False,
            host=() if _v2 else ("shape", "seed"),
            grad=NOT_DIFFERENTIABLE,
            facts=_FACTS,
            oracle=_fill_oracle(_draw),
            sample=_fill_cases(_n),
            doc=_doc,
        )
    op(
        f"StatelessRandomUniformInt{_v2}",
        f"shape: {_T}, {_args}, minval: dtype, maxval: dtype",
        "output: dtype",
        {
            "dtype": type_attr(_WORDS if _v2 else INDEX),
            _T: type_attr(INDEX, dtypes.int32) if _v2 else INDEX,
            **_more,
        },
        shape=_range_rule(_check, _n),
        kernel=_fill_range(_source),
        xp=False,
        host=() if _v2 else ("shape", "seed", "minval", "maxval"),
        grad=NOT_DIFFERENTIABLE,
        facts=_FACTS,
        oracle=_range_oracle,
        sample=_range_cases(_n),
        doc="Integers evenly distributed over [minval, maxval).",
    )
