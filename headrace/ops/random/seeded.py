"""Random numbers from seeds, equal to TensorFlow's number for number.

Source: TensorFlow's RandomUniform, RandomUniformInt, RandomStandardNormal and TruncatedNormal. The session stores the
state of an op (`resources.philox`), which advances with every firing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import shapes
from headrace.dtypes import FLOATING, INDEX
from headrace.ir.infer import Inference
from headrace.ir.opdef import NOT_DIFFERENTIABLE, op
from headrace.opkit.batch_node import Independent
from headrace.opkit.batch_rules import drawing
from headrace.ops.random.drawing import SEEDED, SEEDS, dims_of, drawn_shape, range_of, require_scalar, state_of
from headrace.resources.philox import Draws, within
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext


def _draw(distribution: str) -> Any:
    """The factory of an op that fills a shape with a distribution."""

    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
        dtype = attrs["dtype"]
        draws = Draws(state_of(ctx, attrs), distribution, dtype)

        def kernel(shape: Any) -> Any:
            dims = dims_of(shape, dtype)
            return draws.next(math.prod(dims)).reshape(dims)

        return kernel

    return factory


def _draw_truncated(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
    state, dtype = state_of(ctx, attrs), attrs["dtype"]

    def kernel(shape: Any) -> Any:
        dims = dims_of(shape, dtype)
        n = math.prod(dims)
        return state.reserve_numbers(n).truncated_normal(n, dtype).reshape(dims)

    return kernel


def _draw_ints(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    dtype = attrs["Tout"]
    draws = Draws(state_of(ctx, attrs), "integers", dtype)

    def kernel(shape: Any, minval: Any, maxval: Any) -> Any:
        dims = dims_of(shape, dtype)
        n = math.prod(dims)
        if not n:
            require_scalar(minval, "minval")
            require_scalar(maxval, "maxval")
            return np.zeros(dims, dtype.numpy)
        low, high = range_of(minval, maxval)
        return within(draws.next(n), low, high).reshape(dims)

    return kernel


def _ints_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    shapes.with_rank(c.shapes[2], 0)
    return drawn_shape(c)


for _name, _factory, _doc in (
    ("RandomUniform", _draw("uniform"), "Numbers evenly distributed over [0, 1)."),
    ("RandomStandardNormal", _draw("normal"), "Normally distributed numbers of mean 0 and deviation 1."),
    ("TruncatedNormal", _draw_truncated, "Normally distributed numbers, drawn again where beyond two deviations."),
):
    op(
        _name,
        "shape: T",
        "output: dtype",
        {**SEEDS, "dtype": FLOATING, "T": INDEX},
        shape=drawn_shape,
        stateful=_factory,
        grad=NOT_DIFFERENTIABLE,
        batch=Independent(drawing(0)),
        facts=SEEDED,
        doc=_doc,
    )
op(
    "RandomUniformInt",
    "shape: T, minval: Tout, maxval: Tout",
    "output: Tout",
    {**SEEDS, "Tout": INDEX, "T": INDEX},
    shape=_ints_shape,
    stateful=_draw_ints,
    grad=NOT_DIFFERENTIABLE,
    batch=Independent(drawing(0)),
    facts=SEEDED,
    doc="Integers evenly distributed over [minval, maxval).",
)
