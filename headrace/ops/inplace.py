"""InplaceUpdate, InplaceAdd, InplaceSub and DeepCopy, without writing in place: arrays never change.

Source: TensorFlow's ops of the same names, which write into their input and so need copies first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import NUMERIC, VALUE, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.opdef import Facts, Sample, case, flops_per_input, missing, op, type_attr
from headrace.opkit.arrays import copied, values_only
from headrace.opkit.batch_rules import in_step
from headrace.opkit.jvp_rules import passed
from headrace.opkit.namespaces import integers
from headrace.opkit.shape_rules import same_as
from headrace.opkit.testing.samples import draw

op(
    "DeepCopy",
    "x: T",
    "y: T",
    {"T": type_attr(VALUE)},
    shape=same_as(0),
    kernel=lambda xp, attrs: lambda x: x,
    xp=True,
    grad=lambda b, n, dy: [dy],
    jvp=passed,
    batch=in_step,
    facts=Facts(forwards=0),
    oracle=lambda x: x,
    sample=values_only(lambda rng, dtype: [case(draw(rng, dtype, s)) for s in ((), (2, 3))]),
    doc="The input.",
)


def _kernel(how: str) -> Any:
    """The factory of an op that combines rows by a function; "" replaces them."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        combine = getattr(xp, how) if how else None

        def kernel(x: Any, i: Any, v: Any) -> Any:
            if not x.ndim or i.ndim != 1 or v.shape != i.shape + x.shape[1:]:
                raise InvalidArgumentError(
                    f"i must be a vector and v have the rows of x it names, got x: {shapes.show(x.shape)}, "
                    f"i: {shapes.show(i.shape)}, v: {shapes.show(v.shape)}"
                )
            out, n = copied(xp, x), x.shape[0]
            if not n:
                return out
            # one by one, as an index may repeat; an index out of range wraps around, as in TensorFlow
            for k, index in enumerate(integers(i)):
                row, value = index % n, v[k, ...]
                out[row, ...] = value if combine is None else combine(out[row, ...], value)
            return out

        return kernel

    return factory


def _samples(allowed: frozenset[DType]) -> Sample:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        if dtype not in allowed:
            return []
        x = draw(rng, dtype, (3, 2))
        return [
            case(x, np.array([2, 0], np.int32), draw(rng, dtype, (2, 2))),
            case(x, np.array([-2], np.int32), draw(rng, dtype, (1, 2))),
        ]

    return sample


def _model(combine: Callable[[Any, Any], Any]) -> Any:
    def model(x: np.ndarray, i: np.ndarray, v: np.ndarray) -> np.ndarray:
        out = np.array(x)
        for row, value in zip(i, v):
            out[row] = combine(out[row], value)
        return out

    return model


_ANY = NUMERIC | {dtypes.bool_, dtypes.string}
for _name, _how, _take, _dtypes, _doc in (
    ("Update", "", lambda x, v: v, _ANY, "replaced by"),
    ("Add", "add", np.add, NUMERIC, "increased by"),
    ("Sub", "subtract", np.subtract, NUMERIC, "decreased by"),
):
    op(
        f"Inplace{_name}",
        "x: T, i: int32, v: T",
        "y: T",
        {"T": type_attr(VALUE)},
        shape=same_as(0),
        kernel=_kernel(_how),
        xp=True,
        host=("i",),
        grad=missing("TensorFlow has none; TensorScatterUpdate, TensorScatterAdd and TensorScatterSub have one"),
        facts=Facts(cost=flops_per_input(1)),
        oracle=_model(_take),
        sample=_samples(_dtypes),
        doc=f"The input with its rows `i` {_doc} those of `v`.",
    )
