"""Pooling with the positions of the maxima: MaxPoolWithArgmax, and its gradients.

Source: TensorFlow's ops of the same names. A position is the number of an element in its image or, with
`include_batch_in_index`, in the whole array. NaN is the maximum only if it is the first element of its window.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace.dtypes import INDEX, INTEGER, REAL, DType, float32, int64
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, flops_per_input, list_attr, op, string_attr, type_attr
from headrace.opkit.arrays import bounds, check_size, placed, reshaper
from headrace.opkit.elementwise import HALF
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, dtype_in, is_near
from headrace.opkit.pooling import axes_of, counted, expect, pooled_shape, reduced
from headrace.opkit.row_sums import row_sums
from headrace.opkit.testing.window_samples import pool_samples, pool_windows, pooled
from headrace.opkit.window_arrays import put, size
from headrace.opkit.windows import Axis, Sliding, sliding
from headrace.ops.nn.greatest import first_hits, lowest, with_first_nans
from headrace.shapes import Shape, show, with_rank

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]


def _axes(s: Sliding, x: tuple[int, ...], ksize: tuple[int, ...]) -> Axes:
    axes = axes_of(s, x, ksize)
    if ksize[s.channels] != 1 or s.strides[s.channels] != 1:
        raise UnimplementedError(f"Pooling with argmax is not supported on the depth dimension, got {list(ksize)}")
    return axes


# *** Kernels ***


def _numbers(xp: Any, x: Any, elements: Sequence[slice], include_batch: bool, t: DType) -> Any:
    """Flat indices of the elements in these slices of `x`, of the dtype `t`.

    The result broadcasts to the shape of the slices.
    """
    parts = []
    for i in range(0 if include_batch else 1, x.ndim):
        numbers = xp.arange(x.shape[i], dtype=dtype_in(xp, int64), device=x.device)[elements[i]]
        parts.append(xp.reshape(numbers * math.prod(x.shape[i + 1 :]), (-1, *[1] * (x.ndim - 1 - i))))
    return converter(xp, t)(functools.reduce(operator.add, parts))


def _pool_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    s, ksize, t = sliding("MaxPoolWithArgmax", attrs), tuple(attrs["ksize"]), attrs["T"]
    include_batch, places = attrs["include_batch_in_index"], attrs["Targmax"]
    is_real, to_places = t not in INTEGER, dtype_in(xp, places)
    widen, narrow = converter(xp, float32 if t in HALF else t), converter(xp, t)

    def kernel(x: Array) -> tuple[Array, Array]:
        axes = _axes(s, x.shape, ksize)
        if not size(x):
            raise InvalidArgumentError(f"tensor_in must not be empty, got {show(x.shape)}")
        check_size(counted(axes), int64)
        wide = widen(x)
        y = with_first_nans(wide, axes, xp) if is_real else reduced(xp.maximum, wide, axes, lowest(t), xp)
        argmax = xp.zeros(y.shape, dtype=to_places, device=x.device)
        for windows, elements, hit in first_hits(xp, wide, y, axes, is_real):
            put(xp, argmax, windows, _numbers(xp, x, elements, include_batch, places), hit)
        return narrow(y), argmax

    return kernel


def _flat(xp: Any, type: str, argmax: Any, x: tuple[int, ...], include_batch: bool) -> Any:
    """The places, as numbers of elements of the whole array `x`.

    In memory that is not near, places out of range become that behind the last element.
    """
    image = math.prod(x[1:])
    limit = image * x[0] if include_batch else image
    has_checks = xp is np or is_near(argmax)
    first, last = bounds(xp, argmax) if has_checks and size(argmax) else (0, -1)
    if not (first >= 0 and last < limit):
        raise InvalidArgumentError(
            f"{type}: argmax has places from {first} to {last}, which must be in [0, {limit}), for the input {show(x)}"
        )
    places = converter(xp, int64)(argmax)
    if not include_batch:
        batch = xp.arange(x[0], dtype=dtype_in(xp, int64), **placed(xp, argmax))
        places = places + reshaper(xp)(batch, (-1, 1, 1, 1)) * image
    return places if has_checks else xp.where((argmax >= 0) & (argmax < limit), places, image * x[0])


def _grad_kernel(type: str, back: bool) -> Any:
    """Kernel of the gradient (`back`) or of its gradient.

    The first adds up `grad` at the positions of `argmax`; the second reads the elements there.
    """

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, ksize, include_batch = sliding(type, attrs), tuple(attrs["ksize"]), attrs["include_batch_in_index"]
        t: DType = attrs["T"]
        widen, narrow, reshape = converter(xp, float32 if t in HALF else t), converter(xp, t), reshaper(xp)

        def kernel(x: Array, g: Array, argmax: Array) -> Array:
            y = counted(_axes(s, x.shape, ksize))
            expect("grad", g.shape, y if back else x.shape)
            expect("argmax", argmax.shape, y)
            places = reshape(_flat(xp, type, argmax, x.shape, include_batch), (-1,))
            flat = reshape(g, (-1,))
            if not back:
                if xp is not np and not is_near(argmax):
                    flat = xp.concat([flat, xp.zeros_like(flat[:1])])
                return reshape(flat[places], argmax.shape)
            sums = row_sums(xp, widen(flat), places, size(x))
            return reshape(narrow(sums), x.shape)

        return kernel

    return factory


# *** Shapes ***


def _pool_shape(c: Inference) -> Sequence[Shape]:
    (shape,) = pooled_shape("MaxPoolWithArgmax")(c)
    return [shape, shape]


def _grad_shape(c: Inference) -> Sequence[Shape]:
    return [with_rank(c.shapes[0], 4)]


# *** Gradients ***

_ATTRS = ("ksize", "strides", "padding", "include_batch_in_index")


def _same(n: Any) -> dict[str, Any]:
    return {k: n.attrs[k] for k in _ATTRS}


def _there(b: Any, n: Any, x: Any, dx: Any, argmax: Any) -> Any:
    return b.MaxPoolGradGradWithArgmax(x, dx, argmax, **_same(n))


def _back(b: Any, n: Any, dy: Any, argmax: Any) -> Any:
    return b.MaxPoolGradWithArgmax(n.input, dy, argmax, **_same(n))


# *** How the tests exercise them ***


def _first_greatest(x: Array, windows: Any) -> dict[Any, Any]:
    """The place of the greatest element of each window, by the place of the result."""
    found = {}
    for o, places in windows:
        best = places[0]
        for p in places:
            best = p if x[p] > x[best] else best
        found[o] = best
    return found


def _oracle(x: Array, **attrs: Any) -> tuple[Array, Array]:
    shape = pooled(x.shape, attrs)
    y, argmax = np.empty(shape, x.dtype), np.empty(shape, attrs.get("Targmax", int64).numpy)
    for o, p in _first_greatest(x, pool_windows(x.shape, attrs)).items():
        y[o] = x[p]
        number = np.ravel_multi_index(p, x.shape)
        argmax[o] = number if attrs.get("include_batch_in_index") else number % x[0].size
    return y, argmax


def _grad_oracle(x: Array, g: Array, argmax: Array, **attrs: Any) -> Array:
    out = np.zeros(x.shape, np.float64 if x.dtype.kind not in "iu" else x.dtype)
    for o in np.ndindex(argmax.shape):
        out[_place(x, argmax, o, attrs)] += g[o]
    return out.astype(g.dtype)


def _grad_grad_oracle(x: Array, g: Array, argmax: Array, **attrs: Any) -> Array:
    out = np.empty(argmax.shape, g.dtype)
    for o in np.ndindex(argmax.shape):
        out[o] = g[_place(x, argmax, o, attrs)]
    return out


def _place(x: Array, argmax: Array, o: tuple[int, ...], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    whole = np.unravel_index(int(argmax[o]), x.shape)
    return tuple(whole) if attrs.get("include_batch_in_index") else (o[0], *whole[1:])


def _samples(inputs: Any) -> Any:
    """Test cases of pooling ops for nonempty images with the channels last."""
    every = pool_samples(inputs)

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        made = [c for c in every(rng, dtype) if c.inputs[0].size and "data_format" not in c.attrs]
        for number, c in enumerate(made):
            c.attrs["include_batch_in_index"] = number % 2 == 1
        return made[:3]

    return sample


def _images(x: Any, y: Any, attrs: Any, drawn: Any) -> list[Array]:
    return [drawn(x)]


def _with_grad(shape: int) -> Any:
    """Inputs: images, a gradient and positions.

    The gradient has the shape of the input (`shape` 0) or of the result (1).
    """

    def inputs(x: Any, y: Any, attrs: Any, drawn: Any) -> list[Array]:
        return [drawn(x), drawn((x, y)[shape]), np.arange(math.prod(y)).reshape(y) * 3 % max(1, math.prod(x[1:]))]

    return inputs


# *** Records ***

_SHARED: dict[str, Any] = {
    "ksize": list_attr("int", minimum=4),
    "strides": list_attr("int", minimum=4),
    "padding": string_attr(allowed=("SAME", "VALID")),
    "include_batch_in_index": False,
}
_COST = flops_per_input(8)

op(
    "MaxPoolWithArgmax",
    "input: T",
    "output: T, argmax: Targmax",
    {"T": REAL, "Targmax": type_attr(INDEX, int64)} | _SHARED,
    shape=_pool_shape,
    kernel=_pool_kernel,
    xp=True,
    grad=lambda b, n, dy, d_argmax: [None if dy is None else _back(b, n, dy, n.argmax)],
    jvp=lambda b, n, dx: [_there(b, n, n.input, dx, n.argmax), None],
    facts=Facts(cost=_COST),
    oracle=_oracle,
    sample=_samples(_images),
    doc="The greatest element of each window, and the number of its place.",
    differs="Refuses pooling along the channels, which TensorFlow's kernel computes differently.",
)
for _type, _shape, _is_back, _gradient, _reference, _doc in (
    (
        "MaxPoolGradWithArgmax",
        _grad_shape,
        True,
        lambda b, n, g: [None, lambda: _there(b, n, n.input, g, n.argmax), None],
        _grad_oracle,
        "The gradient of MaxPoolWithArgmax: sums of `grad` at the places `argmax`.",
    ),
    (
        "MaxPoolGradGradWithArgmax",
        pooled_shape("MaxPoolGradGradWithArgmax"),
        False,
        lambda b, n, g: [None, lambda: _back(b, n, g, n.argmax), None],
        _grad_grad_oracle,
        "The gradient of MaxPoolGradWithArgmax: what `grad` has at the places `argmax`.",
    ),
):
    op(
        _type,
        "input: T, grad: T, argmax: Targmax",
        "output: T",
        {"T": REAL, "Targmax": INDEX} | _SHARED,
        shape=_shape,
        kernel=_grad_kernel(_type, _is_back),
        xp=True,
        grad=_gradient,
        jvp=linear("grad"),
        facts=Facts(cost=_COST, fresh=True),
        oracle=_reference,
        sample=_samples(_with_grad(1 if _is_back else 0)),
        doc=_doc,
        differs="Positions outside the input are an error; TensorFlow ends the process."
        if _is_back
        else "TensorFlow has no kernel for it on the CPU.",
    )
