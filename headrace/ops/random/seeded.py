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
from headrace.shapes import Shape

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext


def _draw(distribution: str) -> Any:
    """The factory of an op that fills a shape with a method of `philox.Stream`."""

    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any], Any]:
        state, dtype = state_of(ctx, attrs), attrs["dtype"]

        def kernel(shape: Any) -> Any:
            dims = dims_of(shape, dtype)
            n = math.prod(dims)
            return getattr(state.reserve_numbers(n), distribution)(n, dtype).reshape(dims)

        return kernel

    return factory


def _draw_ints(ctx: KernelContext, attrs: Mapping[str, Any]) -> Callable[[Any, Any, Any], Any]:
    state, dtype = state_of(ctx, attrs), attrs["Tout"]

    def kernel(shape: Any, minval: Any, maxval: Any) -> Any:
        dims = dims_of(shape, dtype)
        n = math.prod(dims)
        if not n:
            require_scalar(minval, "minval")
            require_scalar(maxval, "maxval")
            return np.zeros(dims, dtype.numpy)
        low, high = range_of(minval, maxval)
        return state.reserve_numbers(n).uniform_int(n, low, high, dtype).reshape(dims)

    return kernel


def _ints_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    shapes.with_rank(c.shapes[2], 0)
    return drawn_shape(c)


for _name, _distribution, _doc in (
    ("RandomUniform", "uniform", "Numbers evenly distributed over [0, 1)."),
    ("RandomStandardNormal", "normal", "Normally distributed numbers of mean 0 and deviation 1."),
    ("TruncatedNormal", "truncated_normal", "Normally distributed numbers, drawn again where beyond two deviations."),
):
    op(
        _name,
        "shape: T",
        "output: dtype",
        {**SEEDS, "dtype": FLOATING, "T": INDEX},
        shape=drawn_shape,
        stateful=_draw(_distribution),
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
