"""Random numbers: TensorFlow's, number for number, for given seeds.

Source: TensorFlow's RandomUniform, RandomUniformInt, RandomStandardNormal, TruncatedNormal, RandomShuffle and
Multinomial. The state of an op is the session's (`resources.philox`): it advances with every firing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import FLOATING, INDEX, REAL
from headrace.errors import InvalidArgumentError
from headrace.ir import arrays
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, missing, op, type_attr
from headrace.resources.philox import RESERVED_PER_NUMBER, Philox
from headrace.resources.values import shape_of
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.ir.kernel import KernelContext

_CONTAINER = "_random"  # of its own: clearing a container of variables does not rewind random streams
_SEEDS = {"seed": 0, "seed2": 0}
_EFFECT = Facts(effect="random", writes=True, dynamic_shape=True)


def _state(ctx: KernelContext, attrs: Mapping[str, Any]) -> Philox:
    state: Philox = ctx.step.session.lookup_or_create(
        _CONTAINER, Philox, ctx.node, lambda: Philox(attrs["seed"], attrs["seed2"])
    )
    return state


def _dims(shape: Any, dtype: DType) -> tuple[int, ...]:
    """The shape to draw, from a tensor; refused if nothing of that size could be made."""
    if shape.ndim != 1:
        raise InvalidArgumentError(
            f"shape must be a vector of {{int32,int64}}, got shape {shapes.show(shape_of(shape))}"
        )
    dims = tuple(shape.tolist())
    arrays.check_size(dims, dtype)
    return dims


def _drawn_shape(c: Inference) -> Sequence[Shape]:
    return [arrays.shape_from(c, 0)]


def _draw(distribution: str) -> Any:
    """The factory of an op that fills a shape with a method of `philox.Stream`."""

    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
        state, dtype = _state(ctx, attrs), attrs["dtype"]

        def kernel(shape: Any) -> Any:
            dims = _dims(shape, dtype)
            n = math.prod(dims)
            return getattr(state.reserve_numbers(n), distribution)(n, dtype).reshape(dims)

        return kernel

    return factory


def _draw_ints(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    state, dtype = _state(ctx, attrs), attrs["Tout"]

    def kernel(shape: Any, minval: Any, maxval: Any) -> Any:
        for name, v in (("minval", minval), ("maxval", maxval)):
            if shape_of(v):
                raise InvalidArgumentError(f"{name} must be 0-D, got shape {shapes.show(shape_of(v))}")
        dims = _dims(shape, dtype)
        n = math.prod(dims)
        low, high = int(minval), int(maxval)
        if not n:
            return np.zeros(dims, dtype.numpy)
        if low >= high:
            raise InvalidArgumentError(f"Need minval < maxval, got {low} >= {high}")
        return state.reserve_numbers(n).uniform_int(n, low, high, dtype).reshape(dims)

    return kernel


def _ints_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    shapes.with_rank(c.shapes[2], 0)
    return _drawn_shape(c)


def _shuffle(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    state = _state(ctx, attrs)

    def kernel(value: Any) -> Any:
        shape = shape_of(value)
        if math.prod(shape) <= 1 or shape[0] <= 1:
            return value  # nothing to shuffle, and no number is drawn
        n = shape[0]
        return value[state.reserve(-(-(n - 1) // 4)).permutation(n)]

    return kernel


def _multinomial(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any], Any]:
    state, dtype = _state(ctx, attrs), attrs["output_dtype"]

    def kernel(logits: Any, num_samples: Any) -> Any:
        if len(shape_of(logits)) != 2:
            raise InvalidArgumentError(f"logits should be a matrix, got shape {shapes.show(shape_of(logits))}")
        if shape_of(num_samples):
            raise InvalidArgumentError(
                f"num_samples should be a scalar, got shape {shapes.show(shape_of(num_samples))}"
            )
        batch, classes = logits.shape
        n = int(num_samples)
        if n < 0:
            raise InvalidArgumentError(f"num_samples should be non-negative, got {n}")
        if not classes:
            raise InvalidArgumentError(f"num_classes should be positive, got {classes}")
        arrays.check_size((batch, n), dtypes.float64)
        out = np.empty((batch, n), dtype.numpy)
        if not out.size:
            return out
        stream = state.reserve(batch * (-(-n // 4) * 4) * 2 * RESERVED_PER_NUMBER)
        for row, scores, u in zip(
            out, _cumulative(logits), stream.uniform(batch * n, dtypes.float64).reshape(batch, n)
        ):
            row[:] = np.searchsorted(scores, u * scores[-1], side="right")
        return out

    return kernel


def _cumulative(logits: np.ndarray) -> np.ndarray:
    """Running sums of the unnormalised probabilities of each row; what is not finite counts nothing."""
    wide = logits.astype(np.float64)
    finite = np.isfinite(wide)
    top = np.max(wide, axis=1, keepdims=True, where=finite, initial=np.finfo(np.float64).min)
    out: np.ndarray = np.cumsum(np.where(finite, np.exp(np.where(finite, wide - top, 0.0)), 0.0), axis=1)
    return out


def _multinomial_shape(c: Inference) -> Sequence[Shape]:
    rows, _ = shapes.with_rank(c.shapes[0], 2)
    return [(rows, c.scalar(1))]


for _name, _distribution, _doc in (
    ("RandomUniform", "uniform", "Numbers evenly distributed over [0, 1)."),
    ("RandomStandardNormal", "normal", "Normally distributed numbers of mean 0 and deviation 1."),
    ("TruncatedNormal", "truncated_normal", "Normally distributed numbers, drawn again where beyond two deviations."),
):
    op(
        _name,
        "shape: T",
        "output: dtype",
        {**_SEEDS, "dtype": FLOATING, "T": INDEX},
        shape=_drawn_shape,
        stateful=_draw(_distribution),
        grad=NOT_DIFFERENTIABLE,
        facts=_EFFECT,
        doc=_doc,
    )
op(
    "RandomUniformInt",
    "shape: T, minval: Tout, maxval: Tout",
    "output: Tout",
    {**_SEEDS, "Tout": INDEX, "T": INDEX},
    shape=_ints_shape,
    stateful=_draw_ints,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="Integers evenly distributed over [minval, maxval).",
)
op(
    "RandomShuffle",
    "value: T",
    "output: T",
    {**_SEEDS, "T": type_attr()},
    shape=lambda c: [c.shapes[0]],
    stateful=_shuffle,
    grad=missing("the permutation is not an output; shuffle the indices and use GatherV2"),
    facts=Facts(effect="random", writes=True),
    doc="The rows of `value` in random order.",
)
op(
    "Multinomial",
    "logits: T, num_samples: int32",
    "output: output_dtype",
    {**_SEEDS, "T": REAL, "output_dtype": type_attr(INDEX, dtypes.int64)},
    shape=_multinomial_shape,
    stateful=_multinomial,
    grad=NOT_DIFFERENTIABLE,
    facts=_EFFECT,
    doc="For each row of logits, `num_samples` classes drawn with the probabilities of its softmax.",
)
