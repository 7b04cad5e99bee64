"""Random numbers of generators: variables with a counter and a key, which every draw advances.

Source: TensorFlow's StatefulUniform, StatefulStandardNormalV2, StatefulTruncatedNormal, StatefulUniformInt,
StatefulUniformFullInt, StatefulRandomBinomial, RngSkip, RngReadAndSkip and NonDeterministicInts. A state is a vector of
int64: the counter in two numbers, and the key.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import INDEX
from headrace.errors import InvalidArgumentError, NotFoundError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, op, type_attr
from headrace.opkit import arrays
from headrace.opkit.batch_node import Independent
from headrace.opkit.batch_rules import drawing
from headrace.opkit.shape_rules import nothing
from headrace.ops.random.drawing import AUTO_SELECT, PHILOX, dims_of, range_of
from headrace.ops.random.rejection import as_type, binomials, check_drawn, drawn
from headrace.resources.manager import Owners, resource_of
from headrace.resources.philox import RESERVED_PER_NUMBER, Stream
from headrace.resources.values import shape_of
from headrace.resources.variable import Variable
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

_THREEFRY: Final = 2
_STATE: Final = 3  # numbers
_DRAWS: Final = Facts(effect="resource", writes=True, dynamic_shape=True)
_WORDS: Final = frozenset({dtypes.int32, dtypes.int64, dtypes.uint32, dtypes.uint64})
_COUNTED: Final = frozenset({dtypes.float16, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64})


def _check_algorithm(algorithm: Any) -> None:
    if shape_of(algorithm):
        raise InvalidArgumentError(f"algorithm must be of shape [], not {shapes.show(shape_of(algorithm))}")
    if int(algorithm) == _THREEFRY:
        raise UnimplementedError("Non-XLA devices don't support the ThreeFry algorithm: use Philox, number 1")
    if int(algorithm) not in (PHILOX, AUTO_SELECT):
        raise InvalidArgumentError(f"Unsupported algorithm id: {int(algorithm)}")


def _added(low: int, high: int, blocks: int) -> tuple[int, int]:
    """Counter advanced by `blocks`, with TensorFlow's arithmetic in words of 32 bits.

    A carry that overflows the upper word of `blocks` is lost, as it also is for a negative skip.
    """
    word = (1 << 32) - 1
    first = (low & word) + (blocks & word)
    second = (low >> 32) + ((blocks >> 32) + (first >> 32) & word)
    return (first & word) | (second & word) << 32, (high + (second >> 32)) % (1 << 64)


def _advanced(step: Owners, handle: Any, blocks: int) -> tuple[Stream, np.ndarray]:
    """Stream of a generator and its state, which then advances by `blocks` blocks."""
    variable = resource_of(step, handle, Variable)
    if not variable.is_initialized:
        raise NotFoundError(
            f"Resource {handle.container}/{handle.name} does not exist: the generator's state is uninitialized"
        )
    if variable.dtype is not dtypes.int64:
        raise InvalidArgumentError(f"dtype of RNG state variable must be int64, not {variable.dtype.name}")
    before: Any = None

    def move(state: Any) -> Any:
        nonlocal before
        if len(shape_of(state)) != 1:
            raise InvalidArgumentError(f"RNG state must have one and only one dimension, not {len(shape_of(state))}")
        if len(state) < _STATE:
            raise InvalidArgumentError(
                f"For the Philox algorithm, the size of state must be at least {_STATE}; got {len(state)}"
            )
        before = state
        low, high = state[:2].view(np.uint64).tolist()
        after = state.copy()
        after[:2] = np.array(_added(low, high, blocks), np.uint64).view(np.int64)
        return after

    variable.update(move)
    low, high, key = np.ascontiguousarray(before[:_STATE]).view(np.uint64).tolist()
    return Stream(key, low | high << 64), before


# *** Drawing ***


def _draw(distribution: str) -> Any:
    """The factory of an op that fills a shape with a method of `Stream`."""

    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        dtype = attrs["dtype"]

        def kernel(handle: Any, algorithm: Any, shape: Any, *bounds: Any) -> Any:
            _check_algorithm(algorithm)
            dims = dims_of(shape, dtype)
            n = math.prod(dims)
            if bounds:
                low, high = range_of(*bounds)
                stream, _ = _advanced(ctx.step, handle, n * RESERVED_PER_NUMBER)
                return stream.uniform_int(n, low, high, dtype).reshape(dims)
            stream, _ = _advanced(ctx.step, handle, n * RESERVED_PER_NUMBER)
            return getattr(stream, distribution)(n, dtype).reshape(dims)

        return kernel

    return factory


def _drawn_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    for s in c.shapes[3:]:
        shapes.with_rank(s, 0)
    return [arrays.shape_from(c, 2)]


def _binomial(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    dtype = attrs["dtype"]

    def kernel(handle: Any, algorithm: Any, shape: Any, counts: Any, probs: Any) -> Any:
        _check_algorithm(algorithm)
        dims = dims_of(shape, dtype)
        check_drawn(dims, dtype)
        inner = np.broadcast_shapes(shape_of(counts), shape_of(probs))
        rows = math.prod(inner)
        samples = math.prod(dims[: max(len(dims) - len(inner), 0)])
        stream, _ = _advanced(ctx.step, handle, rows * 2 * 100 * (samples + 3) // 4 * RESERVED_PER_NUMBER)
        return as_type(drawn(stream, dims, [np.asarray(counts), np.asarray(probs)], binomials), dtype)

    return kernel


def _binomial_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    return [arrays.shape_from(c, 2)]


_ARGS: Final = "resource: resource, algorithm: int64, shape: shape_dtype"
for _name, _distribution, _default, _bounds, _doc in (
    ("StatefulUniform", "uniform", dtypes.float32, "", "Numbers evenly distributed over [0, 1)"),
    ("StatefulStandardNormalV2", "normal", dtypes.float32, "", "Normal numbers of mean 0 and deviation 1"),
    ("StatefulTruncatedNormal", "truncated_normal", dtypes.float32, "",
     "Normally distributed numbers, drawn again where beyond two deviations"),
    ("StatefulUniformFullInt", "integers", dtypes.uint64, "", "Integers, any that the type has equally likely"),
    ("StatefulUniformInt", "uniform_int", dtypes.int64, ", minval: dtype, maxval: dtype",
     "Integers evenly distributed over [minval, maxval)"),
):  # fmt: skip
    op(
        _name,
        _ARGS + _bounds,
        "output: dtype",
        {"dtype": type_attr(default=_default), "shape_dtype": type_attr(default=dtypes.int64)},
        shape=_drawn_shape,
        stateful=_draw(_distribution),
        grad=NOT_DIFFERENTIABLE,
        batch=Independent(drawing(2)),
        facts=_DRAWS,
        doc=f"{_doc}, of a generator.",
    )
op(
    "StatefulRandomBinomial",
    "resource: resource, algorithm: int64, shape: S, counts: T, probs: T",
    "output: dtype",
    {"S": INDEX, "T": type_attr(_COUNTED, dtypes.float64), "dtype": type_attr(_COUNTED, dtypes.int64)},
    shape=_binomial_shape,
    stateful=_binomial,
    grad=NOT_DIFFERENTIABLE,
    facts=_DRAWS,
    differs="always advances the generator; in some programs TensorFlow left the state unchanged",
    doc="Draws the numbers of successes in `counts` trials with probability `probs`, from a generator.",
)


# *** Skipping ***


def _skip(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., None]:
    def kernel(handle: Any, algorithm: Any, delta: Any) -> None:
        _check_algorithm(algorithm)
        if shape_of(delta):
            raise InvalidArgumentError(f"delta must be of shape [], not {shapes.show(shape_of(delta))}")
        _advanced(ctx.step, handle, int(delta) * RESERVED_PER_NUMBER % (1 << 64))

    return kernel


def _read_and_skip(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[..., Any]:
    def kernel(handle: Any, alg: Any, delta: Any) -> Any:
        _check_algorithm(alg)
        if shape_of(delta):
            raise InvalidArgumentError(f"delta must be of shape [], not {shapes.show(shape_of(delta))}")
        _, state = _advanced(ctx.step, handle, int(delta) * RESERVED_PER_NUMBER % (1 << 64))
        return state[:_STATE].copy()

    return kernel


def _read_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    shapes.with_rank(c.shapes[2], 0)
    return [(_STATE,)]


def _any_ints(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    dtype = attrs["dtype"]
    if dtype not in _WORDS:
        raise InvalidArgumentError(f"there are integers of 32 and 64 bits only, asked for dtype {dtype.name}")
    if attrs["shape_dtype"] not in INDEX:
        raise InvalidArgumentError(f"Input tensor must be int32 or int64, but was {attrs['shape_dtype'].name}")

    def kernel(shape: Any) -> Any:
        dims = dims_of(shape, dtype)
        stream = Stream(secrets.randbits(64), secrets.randbits(128))
        return stream.integers(math.prod(dims), dtype).reshape(dims)

    return kernel


op(
    "RngSkip",
    "resource: resource, algorithm: int64, delta: int64",
    "",
    shape=nothing,
    stateful=_skip,
    grad=NOT_DIFFERENTIABLE,
    facts=_DRAWS,
    doc="Moves a generator on as if it had drawn `delta` numbers.",
)
op(
    "RngReadAndSkip",
    "resource: resource, alg: int32, delta: uint64",
    "value: int64",
    shape=_read_shape,
    stateful=_read_and_skip,
    grad=NOT_DIFFERENTIABLE,
    facts=_DRAWS,
    differs="returns only counter and key of a longer state; TensorFlow writes past its result",
    doc="Advances a generator as if it had drawn `delta` numbers, and returns its previous state.",
)
op(
    "NonDeterministicInts",
    "shape: shape_dtype",
    "output: dtype",
    {"dtype": type_attr(default=dtypes.int64), "shape_dtype": type_attr(default=dtypes.int64)},
    shape=lambda c: [arrays.shape_from(c, 0)],
    stateful=_any_ints,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(effect="random", writes=True, dynamic_shape=True),
    doc="Integers that nobody can foresee.",
)
