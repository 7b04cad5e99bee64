"""Patches: copies of windows by ExtractImagePatches and ExtractVolumePatches.

Source: TensorFlow's ops of the same names. A patch is a vector of the elements of its window, with zeros for padding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace import dtypes
from headrace.dtypes import NUMERIC, REAL, DType
from headrace.errors import InvalidArgumentError, OutOfRangeError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_element, list_attr, op, string_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.batch_rules import folding
from headrace.opkit.jvp_rules import linear
from headrace.opkit.testing.samples import draw
from headrace.opkit.testing.window_samples import windows_of_axis
from headrace.opkit.window_arrays import full
from headrace.opkit.windows import Axis, Sliding
from headrace.shapes import Shape, show, with_rank

Array: TypeAlias = np.ndarray


def _sliding(type: str, rank: int, attrs: Mapping[str, Any]) -> Sliding:
    """The windows that the attributes say.

    Raises:
      ValueError: there are too many or too few of them.
    """
    rates = attrs.get("rates", (1,) * rank)
    for what, values in (("ksizes", attrs["ksizes"]), ("strides", attrs["strides"]), ("rates", rates)):
        if len(values) != rank:
            raise ValueError(f"{type} requires the {what} attribute to contain {rank} values, but got: {len(values)}")
    spatial = tuple(range(1, rank - 1))
    return Sliding(tuple(attrs["strides"]), tuple(rates), attrs["padding"], (), spatial, rank - 1)


def _require(s: Sliding, ksizes: Sequence[int]) -> None:
    """Raises for windows that are not across space, or not at all."""
    for what, values in (("ksizes", ksizes), ("strides", s.strides), ("rates", s.dilations)):
        if any(values[i] != 1 for i in s.others):
            raise UnimplementedError(f"Only support {what} across space, got {list(values)}")
        if min(values) < 1 or max(values) >= 2**31:
            raise OutOfRangeError(f"{what} is out of range: {list(values)}")


def _axes(s: Sliding, x: tuple[int, ...], ksizes: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(s.axis(i, x[i], ksizes[i]) for i in s.spatial)


def _kernel(type: str, rank: int) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, ksizes, t = _sliding(type, rank, attrs), attrs["ksizes"], attrs["T"]

        def kernel(x: Array) -> Array:
            if x.ndim != rank:
                raise InvalidArgumentError(f"input must be {rank}-dimensional, got {show(x.shape)}")
            _require(s, ksizes)
            axes = _axes(s, x.shape, ksizes)
            counts, sizes = [a.count for a in axes], [a.size for a in axes]
            shape = (x.shape[0], *counts, *sizes, x.shape[-1])
            check_size(shape, t)
            out = full(xp, shape, 0, x)
            for k in itertools.product(*(a.met for a in axes)) if math.prod(shape) else ():
                windows, elements = zip(*(a.tap(i) for a, i in zip(axes, k, strict=True)), strict=True)
                out[:, *windows, *k, :] = x[:, *elements, :]
            return xp.reshape(out, (x.shape[0], *counts, math.prod(sizes) * x.shape[-1]))

        return kernel

    return factory


def _shape(type: str, rank: int) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        s, ksizes = _sliding(type, rank, c.attrs), c.attrs["ksizes"]
        x = with_rank(c.shapes[0], rank)
        assert x is not None
        channels = None if x[-1] is None else x[-1] * math.prod(ksizes)
        if min(*ksizes, *s.strides, *s.dilations) < 1:
            return [(x[0], *[None] * (rank - 1))]  # an error when it runs, as in TensorFlow
        return [(x[0], *(s.dim(i, x[i], ksizes[i]) for i in s.spatial), channels)]

    return rule


# *** Gradients ***


def _grad(type: str, rank: int) -> Any:
    """Gradient rule: the sum of the gradients of all copies of each element.

    Patches of the elements' numbers give the element of each copy.
    """

    def rule(b: Any, n: Any, dy: Any) -> list[Any]:
        shape = b.Shape(n.inputs[0])
        batch, space, channels = (
            b.StridedSlice(shape, [i], [j], [1]) for i, j in ((0, 1), (1, rank - 1), (rank - 1, rank))
        )
        count = b.Prod(space, [0])
        numbers = b.Reshape(b.Range(1, b.AddV2(count, 1), 1), b.ConcatV2([[1], space, [1]], 0))
        attrs = {k: n.attrs[k] for k in ("ksizes", "strides", "rates", "padding") if k in n.attrs}
        places = b.Sub(b.Reshape(b.make(type, [numbers], attrs), [-1]), 1)  # -1 is padding, which is dropped
        parts = b.Reshape(dy, b.ConcatV2([batch, b.Shape(places), channels], 0))
        sums = b.UnsortedSegmentSum(b.Transpose(parts, [1, 0, 2]), places, count)
        return [b.Reshape(b.Transpose(sums, [1, 0, 2]), shape)]

    return rule


# *** How the tests exercise them ***


def _oracle(x: Array, ksizes: Any, strides: Any, padding: str, rates: Any = None) -> Array:
    axes = range(1, x.ndim - 1)
    rates = rates or (1,) * x.ndim
    along = [windows_of_axis(x.shape[i], ksizes[i], strides[i], rates[i], padding, ()) for i in axes]
    counts, sizes = [len(a) for a in along], [ksizes[i] for i in axes]
    out = np.zeros((len(x), *counts, *sizes, x.shape[-1]), x.dtype)
    for o in np.ndindex(*counts):
        windows = [dict(a[i]) for a, i in zip(along, o, strict=True)]
        for k in np.ndindex(*sizes):
            if all(j in window for j, window in zip(k, windows, strict=True)):
                out[:, *o, *k] = x[:, *(window[j] for j, window in zip(k, windows, strict=True))]
    return out.reshape(len(x), *counts, -1 if out.size else math.prod(sizes) * x.shape[-1])


_IMAGES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 4, 2), {"ksizes": [1, 2, 3, 1], "strides": [1, 1, 2, 1], "rates": [1, 1, 1, 1], "padding": "SAME"}),
    ((1, 4, 5, 1), {"ksizes": [1, 2, 2, 1], "strides": [1, 2, 1, 1], "rates": [1, 2, 3, 1], "padding": "VALID"}),
)
_VOLUMES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((1, 2, 3, 2, 2), {"ksizes": [1, 2, 2, 1, 1], "strides": [1, 1, 1, 1, 1], "padding": "SAME"}),
    ((2, 3, 2, 4, 1), {"ksizes": [1, 2, 1, 2, 1], "strides": [1, 1, 1, 2, 1], "padding": "VALID"}),
)


def _samples(cases: Sequence[tuple[tuple[int, ...], dict[str, Any]]]) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        some = cases if dtype in dtypes.FLOATING else cases[:1]
        return [case(draw(rng, dtype, shape), **attrs) for shape, attrs in some]

    return sample


# *** Records ***

for _type, _rank, _input, _output, _types, _rates, _cases, _what in (
    (
        "ExtractImagePatches",
        4,
        "images",
        "patches",
        NUMERIC | {dtypes.bool_},
        {"rates": list_attr("int", minimum=4)},
        _IMAGES,
        "images",
    ),
    ("ExtractVolumePatches", 5, "input", "patches", REAL, {}, _VOLUMES, "volumes"),
):
    op(
        _type,
        f"{_input}: T",
        f"{_output}: T",
        {"T": _types}
        | {"ksizes": list_attr("int", minimum=_rank), "strides": list_attr("int", minimum=_rank)}
        | _rates
        | {"padding": string_attr(allowed=("SAME", "VALID"))},
        shape=_shape(_type, _rank),
        kernel=_kernel(_type, _rank),
        xp=True,
        grad=_grad(_type, _rank),
        jvp=linear(_input),
        batch=folding(0),
        facts=Facts(cost=flops_per_element(1), fresh=True),
        oracle=_oracle,
        sample=_samples(_cases),
        doc=f"The windows of {_what}, each one vector of [rows, columns, channels].",
    )
