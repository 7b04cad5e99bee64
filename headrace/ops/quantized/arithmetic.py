"""Arithmetic on quantised numbers: products, convolution, sums, relu, pooling, joining.

Source: TensorFlow's ops QuantizedMatMul, QuantizedConv2D, QuantizedMul, QuantizedAdd, QuantizedBiasAdd, QuantizedRelu,
QuantizedRelu6, QuantizedReluX, QuantizedMaxPool, QuantizedAvgPool, QuantizedConcat and QuantizedReshape. Each quantised
array, also the result, has two further tensors with the ends of its range. Products of 8-bit numbers are exact in 32
bits, and the range of the result follows from those of the factors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import ALL, INDEX, QUANTIZED, DType, int32, qint8, qint32, quint8
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import (
    NOT_DIFFERENTIABLE,
    Facts,
    case,
    flops_per_element,
    flops_per_input,
    int_attr,
    list_attr,
    op,
    string_attr,
    type_attr,
)
from headrace.opkit.arrays import axis_in, check_size, dims
from headrace.opkit.pooling import axes_of, counted, counts, pooled_shape, reduced
from headrace.opkit.testing.samples import meant_as
from headrace.opkit.testing.window_samples import pool_windows, pooled
from headrace.opkit.windows import sliding, taps
from headrace.ops.quantized.levels import F32, F64, clipped, from_float, limits, one_level, range_of_products, to_float
from headrace.ops.quantized.levels import scalar as one
from headrace.shapes import Shape, broadcast, merge, show, with_rank

_COST = Facts(cost=flops_per_element(10))


def _only(type: str, attrs: Mapping[str, Any], *kernels: tuple[DType, ...]) -> tuple[DType, ...]:
    """Quantized dtypes of an op in attribute order, after a check for a kernel.

    Raises `UnimplementedError` if TensorFlow has no kernel for them.
    """
    given = tuple(v for v in attrs.values() if isinstance(v, DType) and v in QUANTIZED)
    if not any(given[: len(k)] == k for k in kernels):
        raise UnimplementedError(f"{type} is for {' or '.join(map(_named, kernels))}, not {_named(given)}")
    return given


def _named(types: Sequence[DType]) -> str:
    return ", ".join(t.name for t in types)


def _checked(low: Any, high: Any, name: str, strict: bool = False) -> tuple[Any, Any]:
    low, high = one(low, f"min_{name}"), one(high, f"max_{name}")
    if strict and not low < high:
        raise InvalidArgumentError(f"max_{name} must be larger than min_{name}, got {high} and {low}")
    return low, high


def _ranges(ends: Sequence[Any], names: Sequence[str], strict: bool = False) -> list[tuple[Any, Any]]:
    """The ranges of two arrays."""
    return [_checked(ends[2 * i], ends[2 * i + 1], name, strict) for i, name in enumerate(names)]


def _centred(q: Any, t: DType, low: Any, high: Any) -> Any:
    """Distances of the numbers from the level of 0, in double precision.

    Products of 8 bits are exact in it, and its matrix product is fast.
    """
    return q.astype(F64) - from_float(F64(0), t, low, high)


def _wrapped(x: Any) -> Any:
    return x.astype(np.int64).astype(np.int32)


def _product(type: str, names: tuple[str, str], multiply: Callable[..., Any], *kernels: tuple[DType, ...]) -> Any:
    """The factory of a kernel of two quantised arrays and the ends of their ranges."""

    def factory(attrs: Mapping[str, Any]) -> Any:
        first, second, out = _only(type, attrs, *kernels)[:3]

        def kernel(x: Any, y: Any, *ends: Any) -> tuple[Any, Any, Any]:
            a, b = _ranges(ends, names, strict=True)
            found = multiply(_centred(x, first, *a), _centred(y, second, *b), attrs)
            low, high = range_of_products(one_level(first, *a), one_level(second, *b), out)
            return _wrapped(found), np.asarray(low), np.asarray(high)

        return kernel

    return factory


def _matmul(x: Any, y: Any, attrs: Mapping[str, Any]) -> Any:
    if x.ndim != 2 or y.ndim != 2:
        raise InvalidArgumentError(f"In[0] and In[1] must be matrices, got {show(x.shape)} and {show(y.shape)}")
    x, y = x.T if attrs["transpose_a"] else x, y.T if attrs["transpose_b"] else y
    if x.shape[1] != y.shape[0]:
        raise InvalidArgumentError(f"Matrix size-incompatible: In[0]: {show(x.shape)}, In[1]: {show(y.shape)}")
    return x @ y


def _convolution(x: Any, w: Any, attrs: Mapping[str, Any]) -> Any:
    if x.ndim != 4 or w.ndim != 4:
        raise InvalidArgumentError(f"input and filter must be 4-dimensional: {show(x.shape)} and {show(w.shape)}")
    if x.shape[3] != w.shape[2]:
        raise InvalidArgumentError(f"input and filter must have the same depth: {x.shape[3]} vs {w.shape[2]}")
    s = sliding("QuantizedConv2D", attrs)
    if s.strides[0] != 1 or s.strides[3] != 1:
        raise InvalidArgumentError("Current implementation does not yet support strides in the batch and depth.")
    if s.strides[1] != s.strides[2]:
        raise InvalidArgumentError("Current implementation only supports equal length strides in rows and columns.")
    if set(s.dilations) != {1}:
        raise InvalidArgumentError("Current implementation only supports dilations of 1.")
    if not w.size:
        raise InvalidArgumentError(f"filter must not have zero elements, got {show(w.shape)}")
    axes = tuple(s.axis(i, x.shape[i], w.shape[i - 1]) for i in s.spatial)
    shape = (len(x), *(a.count for a in axes), w.shape[3])
    check_size(shape, qint32)
    out = np.zeros(shape)
    for (windows, elements), weights in zip(taps(axes), w.reshape(-1, *w.shape[2:]), strict=True):
        out[:, *windows] += x[:, *elements] @ weights
    return out


def _times(x: Any, y: Any, attrs: Mapping[str, Any]) -> Any:
    check_size(np.broadcast_shapes(x.shape, y.shape), qint32)
    return x * y


def _each_rescaled(q: Any, t: DType, ends: tuple[Any, Any], out: DType, high: Any) -> Any:
    """Numbers rescaled to the dtype `out` in the range `-high` to `high`."""
    return from_float(to_float(q, t, *ends), out, -high, high)


def _by_first_levels(q: Any, t: DType, ends: tuple[Any, Any], out: DType, high: Any) -> Any:
    """Rescales by the rounded distance of the first two levels, as TensorFlow's kernel does."""
    zero, one = _each_rescaled(np.array([0, 1]), t, ends, out, high)
    return zero + q.astype(F64) * (one - zero)


def _sum(type: str, names: tuple[str, str], factor: int, bias: bool, *kernels: tuple[DType, ...]) -> Any:
    """Factory of a sum whose range is `factor` times that of its terms."""

    def factory(attrs: Mapping[str, Any]) -> Any:
        first, second, out = _only(type, attrs, *kernels)[:3]

        def kernel(x: Any, y: Any, *ends: Any) -> tuple[Any, Any, Any]:
            a, b = _ranges(ends, names)
            if bias and (y.ndim != 1 or x.ndim < 2 or y.shape != x.shape[-1:]):
                raise InvalidArgumentError(
                    "Must provide as many biases as the last dimension of the input tensor: "
                    f"{show(y.shape)} vs. {show(x.shape)}"
                )
            check_size(np.broadcast_shapes(x.shape, y.shape), out)
            high = np.max(np.abs(np.array([*a, *b]))) * F32(factor)
            rescaled = _each_rescaled if bias else _by_first_levels
            terms = [rescaled(q, t, r, out, high) for q, t, r in ((x, first, a), (y, second, b))]
            return _wrapped(np.nan_to_num(terms[0] + terms[1])), np.asarray(-high), np.asarray(high)

        return kernel

    return factory


def _relu(type: str, top: float | None) -> Any:
    def factory(attrs: Mapping[str, Any]) -> Any:
        t = _only(type, attrs, (quint8, quint8), (qint32, qint32))[0]

        def kernel(q: Any, *ends: Any) -> tuple[Any, Any, Any]:
            limit = top
            if len(ends) == 3:
                if ends[0].ndim:
                    raise InvalidArgumentError(f"max_value must be a scalar, got shape {list(ends[0].shape)}")
                limit = float(ends[0])
            low, high = _checked(ends[-2], ends[-1], "features")
            zero = clipped(from_float(F64(0), t, low, high), t)
            out = np.maximum(q, zero)
            if limit is not None:
                out = np.minimum(out, clipped(from_float(F64(limit), t, low, high), t))
            return out, np.asarray(low), np.asarray(high)

        return kernel

    return factory


def _pool(type: str, mean: bool) -> Any:
    def factory(attrs: Mapping[str, Any]) -> Any:
        t = _only(type, attrs, (quint8,), (qint8,))[0]
        s, ksize = sliding(type, attrs), tuple(attrs["ksize"])

        def kernel(q: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
            low, high = _checked(low, high, "input")
            axes = axes_of(s, q.shape, ksize)
            if ksize[3] != 1 or s.strides[3] != 1:
                raise UnimplementedError(f"Non-spatial pooling is not yet supported, got the windows {list(ksize)}")
            check_size(counted(axes), t)
            if mean:
                sums = reduced(np.add, q.astype(np.int32), axes, 0)
                out = np.trunc(sums / counts(axes, np.dtype(F64))).astype(t.numpy)
            else:
                out = reduced(np.maximum, q, axes, limits(t)[0])
            return out, np.asarray(low), np.asarray(high)

        return kernel

    return factory


def _concat_kernel(attrs: Mapping[str, Any]) -> Any:
    t, n = _only("QuantizedConcat", attrs, (quint8,), (qint32,))[0], attrs["N"]

    def kernel(axis: Any, *rest: Any) -> tuple[Any, Any, Any]:
        if axis.ndim:
            raise InvalidArgumentError(f"Concat dim tensor should be a scalar integer, got shape {show(axis.shape)}")
        arrays = rest[:n]
        ends = [_checked(low, high, "input") for low, high in zip(rest[n : 2 * n], rest[2 * n :], strict=True)]
        at = axis_in(int(axis), arrays[0].ndim, "concat_dim")
        low, high = min(F32(0), *(e[0] for e in ends)), max(e[1] for e in ends)
        if limits(t)[0]:  # ranges of signed numbers are symmetric
            high = max(abs(low), abs(high))
            low = -high
        moved = [
            q if e == (low, high) else clipped(from_float(to_float(q, t, *e), t, low, high), t)
            for q, e in zip(arrays, ends, strict=True)
        ]
        return np.concatenate(moved, at), np.asarray(F32(low)), np.asarray(F32(high))

    return kernel


def _reshape_kernel(attrs: Mapping[str, Any]) -> Any:
    def kernel(q: Any, shape: Any, low: Any, high: Any) -> tuple[Any, Any, Any]:
        low, high = _checked(low, high, "input")
        wanted = dims(shape)
        if min(wanted, default=0) < -1 or wanted.count(-1) > 1:
            raise InvalidArgumentError(f"Only one input size may be -1, and none less, got {list(wanted)}")
        return q.reshape(wanted), np.asarray(low), np.asarray(high)

    return kernel


# *** Shapes ***


def _with_range(rule: Callable[[Inference], Shape], first: int) -> Any:
    """Shape rule of an op whose inputs from `first` on are ends of ranges.

    `rule` infers the shape of output 0.
    """

    def shapes_of(c: Inference) -> Sequence[Shape]:
        for s in c.shapes[first:]:
            with_rank(s, 0)
        return [rule(c), (), ()]

    return shapes_of


def _matmul_shape(c: Inference) -> Shape:
    a, b = with_rank(c.shapes[0], 2), with_rank(c.shapes[1], 2)
    a, b = a[::-1] if c.attrs["transpose_a"] else a, b[::-1] if c.attrs["transpose_b"] else b
    merge(a[1:], b[:1])
    return (a[0], b[1])


def _convolution_shape(c: Inference) -> Shape:
    s, x, w = sliding("QuantizedConv2D", c.attrs), with_rank(c.shapes[0], 4), with_rank(c.shapes[1], 4)
    merge(x[3:], w[2:3])
    return (x[0], *(s.dim(i, x[i], w[i - 1]) for i in s.spatial), w[3])


def _concat_shape(c: Inference) -> Sequence[Shape]:
    with_rank(c.shapes[0], 0)
    n, at = c.attrs["N"], c.scalar(0)
    for s in c.shapes[1 + n :]:
        with_rank(s, 0)
    found = [s for s in c.shapes[1 : 1 + n] if s is not None]
    if at is None or len(found) < n:
        return [(None,) * len(found[0]) if found else None, (), ()]
    at = axis_in(at, len(found[0]), "concat_dim")
    out: Shape = None
    for s in found:
        out = merge(out, (*s[:at], None, *s[at + 1 :]))
    sizes = [s[at] for s in found]
    total = None if None in sizes else sum(sizes)  # type: ignore[arg-type]
    assert out is not None
    return [(*out[:at], total, *out[at + 1 :]), (), ()]


def _reshape_shape(c: Inference) -> Shape:
    given, x = c.shape_value(1), c.shapes[0]
    v = c.value(1)
    if v is not None and -1 in v and given is not None and x is not None and None not in x:
        rest = int(np.prod([d for d in given if d is not None], dtype=np.int64))
        missing = int(np.prod(x, dtype=np.int64)) // rest if rest else None  # type: ignore[arg-type]
        return tuple(missing if d is None else d for d in given)
    return given


def _pool_shape(type: str) -> Any:
    rule = pooled_shape(type)
    return _with_range(lambda c: rule(c)[0], 1)


# *** How the tests exercise them ***


def _ends(*values: float) -> list[np.ndarray]:
    return [np.array(v, F32) for v in values]


def _levels(values: Any, low: float, high: float) -> np.ndarray:
    """Distances in levels of the quint8 `values` from the level nearest to 0."""
    level = (high - low) / 255
    return values.astype(np.int64) - round(-low / level)


def _int32s(values: Any, *ranges: tuple[float, float]) -> tuple[Any, ...]:
    level = float(np.prod([(high - low) / 255 for low, high in ranges]))
    return values.astype(np.int32), *_ends(-level * 2**31, level * (2**31 - 1))


_A, _B = (-1.0, 2.0), (-3.0, 1.0)


def _draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(0, 256, shape).astype(np.uint8)


def _matmuls(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is not quint8:
        return []
    out = []
    for ta, tb in ((False, False), (True, False), (False, True)):
        x, y = _draw(rng, 2, 3), _draw(rng, *((3, 2) if ta == tb else (2, 4) if ta else (4, 3)))
        a, b = _levels(x, *_A), _levels(y, *_B)
        want = _int32s((a.T if ta else a) @ (b.T if tb else b), _A, _B)
        attrs = {"transpose_a": ta, "transpose_b": tb}
        out.append(case(meant_as(x, t), meant_as(y, t), *_ends(*_A, *_B), **attrs, want=want))
    return out


def _convolutions(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is not quint8:
        return []
    out = []
    for padding, stride, margin, n in (("VALID", 1, 0, 2), ("SAME", 1, 1, 4), ("SAME", 2, 0, 2)):
        x, w = _draw(rng, 1, 4, 4, 2), _draw(rng, 3, 3, 2, 2)
        a = np.pad(_levels(x, *_A), ((0, 0), (margin, 1), (margin, 1), (0, 0)))
        found = np.zeros((1, n, n, 2), np.int64)
        for _, i, j, k in np.ndindex(found.shape):
            part = a[0, i * stride : i * stride + 3, j * stride : j * stride + 3]
            found[0, i, j, k] = (part * _levels(w, *_B)[..., k]).sum()
        attrs = {"strides": (1, stride, stride, 1), "padding": padding}
        out.append(case(meant_as(x, t), meant_as(w, t), *_ends(*_A, *_B), **attrs, want=_int32s(found, _A, _B)))
    return out


def _products(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is not quint8:
        return []
    x, y = _draw(rng, 2, 3), _draw(rng, 3)
    want = _int32s(_levels(x, *_A) * _levels(y, *_B), _A, _B)
    return [case(meant_as(x, t), meant_as(y, t), *_ends(*_A, *_B), want=want)]


def _sums(factor: int, **attrs: Any) -> Any:
    def sample(rng: np.random.Generator, t: DType) -> list[Any]:
        if t is not quint8:
            return []
        x, y = np.array([[1, 2], [200, 255]], np.uint8), np.array([3, 250], np.uint8)
        level = 2 * 4 * factor / 2**32
        terms = []
        for q, low, high in ((x, *_A), (y, 0, 4)):
            if attrs:
                terms.append(np.rint((q * float(high - low) / 255 + low) / level))
            else:
                first = np.rint(low / level)
                terms.append(first + q * (np.rint((low + (high - low) / 255) / level) - first))
        want = (terms[0] + terms[1]).astype(np.int32), *_ends(-4 * factor, 4 * factor)
        return [case(meant_as(x, t), meant_as(y, t), *_ends(*_A, 0, 4), **attrs, want=want)]

    return sample


def _relus(top: bool) -> Any:
    def sample(rng: np.random.Generator, t: DType) -> list[Any]:
        if t is not quint8:
            return []
        q = meant_as(np.array([0, 50, 85, 200, 255], np.uint8), t)
        want = np.array([20, 50, 85, 138, 138] if top else [20, 50, 85, 200, 255], np.uint8)
        return [case(q, *_ends(-1, 12), want=(want, *_ends(-1, 12)))]

    return sample


def _limited_relus(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is not quint8:
        return []
    q = meant_as(np.array([0, 50, 85, 200, 255], np.uint8), t)
    low, high = _ends(-1, 12)
    return [case(q, np.float32(6), low, high, want=(np.array([20, 50, 85, 138, 138], np.uint8), low, high))]


def _poolings(mean: bool) -> Any:
    def sample(rng: np.random.Generator, t: DType) -> list[Any]:
        if t not in (quint8, qint8):
            return []
        out = []
        for padding, stride in (("SAME", 2), ("VALID", 1)):
            attrs = {"ksize": (1, 3, 3, 1), "strides": (1, stride, stride, 1), "padding": padding}
            x = _draw(rng, 1, 4, 4, 1).view(t.numpy)
            want = np.empty(pooled(x.shape, attrs), t.numpy)
            for o, places in pool_windows(x.shape, attrs):
                values = [int(x[p]) for p in places]
                want[o] = int(sum(values) / len(values)) if mean else max(values)
            out.append(case(meant_as(x, t), *_ends(*_A), **attrs, want=(want, *_ends(*_A))))
        return out

    return sample


def _concats(rng: np.random.Generator, t: DType) -> list[Any]:
    x, y = np.array([[1, 2, 255]], np.uint8), np.array([[3, 4, 255]], np.uint8)
    if t is not quint8:
        return []
    both = [meant_as(x, t), meant_as(y, t)]
    want = np.array([[64, 65, 128], [3, 4, 255]], np.uint8)
    return [
        case(np.array(0, np.int32), both, _ends(0, -1), _ends(1, 3), want=(want, *_ends(-1, 3))),
        case(np.array(-1, np.int32), both, _ends(0, 0), _ends(1, 1), want=(np.hstack([x, y]), *_ends(0, 1))),
    ]


def _reshapes(rng: np.random.Generator, t: DType) -> list[Any]:
    if t is not quint8:
        return []
    q = _draw(rng, 4)
    return [case(meant_as(q, t), np.array([2, -1], np.int32), *_ends(*_A), want=(q.reshape(2, 2), *_ends(*_A)))]


# *** Records ***

_EIGHT = (quint8, quint8, qint32)
_OUT = type_attr(QUANTIZED, qint32)
_PADDING = {"padding": string_attr(allowed={"SAME", "VALID"})}
_HEAVY = Facts(cost=flops_per_input(100), blas=True)


def _pair(x: str, y: str, tx: str, ty: str, ends: tuple[str, str]) -> str:
    """The arguments of an op of two quantised arrays."""
    return ", ".join([f"{x}: {tx}, {y}: {ty}", *(f"min_{e}: float32, max_{e}: float32" for e in ends)])


_AB, _XY = ("a", "b"), ("x", "y")
_FILTER, _BIAS = ("input", "filter"), ("input", "bias")
_TYPES = {"T1": QUANTIZED, "T2": QUANTIZED}

for _type, _ins, _outs, _attrs, _shape, _kernel, _facts, _sample, _doc in (
    (
        "QuantizedMatMul",
        _pair("a", "b", "T1", "T2", _AB),
        "out: Toutput, min_out: float32, max_out: float32",
        _TYPES
        | {"Toutput": _OUT, "transpose_a": False, "transpose_b": False, "Tactivation": type_attr(QUANTIZED, quint8)},
        _with_range(_matmul_shape, 2),
        _product("QuantizedMatMul", _AB, _matmul, _EIGHT),
        _HEAVY,
        _matmuls,
        "The product of two matrices.",
    ),
    (
        "QuantizedConv2D",
        _pair("input", "filter", "Tinput", "Tfilter", _FILTER),
        "output: out_type, min_output: float32, max_output: float32",
        {"Tinput": QUANTIZED, "Tfilter": QUANTIZED, "out_type": _OUT, "strides": list_attr("int")}
        | _PADDING
        | {"dilations": list_attr("int", (1, 1, 1, 1))},
        _with_range(_convolution_shape, 2),
        _product("QuantizedConv2D", _FILTER, _convolution, _EIGHT, (quint8, qint8, qint32)),
        _HEAVY,
        _convolutions,
        "A convolution of images.",
    ),
    (
        "QuantizedMul",
        _pair("x", "y", "T1", "T2", _XY),
        "z: Toutput, min_z: float32, max_z: float32",
        _TYPES | {"Toutput": _OUT},
        _with_range(lambda c: broadcast(c.shapes[0], c.shapes[1]), 2),
        _product("QuantizedMul", _XY, _times, _EIGHT),
        _COST,
        _products,
        "The products of elements.",
    ),
    (
        "QuantizedAdd",
        _pair("x", "y", "T1", "T2", _XY),
        "z: Toutput, min_z: float32, max_z: float32",
        _TYPES | {"Toutput": _OUT},
        _with_range(lambda c: broadcast(c.shapes[0], c.shapes[1]), 2),
        _sum("QuantizedAdd", _XY, 2**14, False, _EIGHT),
        _COST,
        _sums(2**14),
        "The sums of elements.",
    ),
    (
        "QuantizedBiasAdd",
        _pair("input", "bias", "T1", "T2", _BIAS),
        "output: out_type, min_out: float32, max_out: float32",
        _TYPES | {"out_type": QUANTIZED},
        _with_range(lambda c: c.shapes[0], 2),
        _sum("QuantizedBiasAdd", _BIAS, 2**17, True, _EIGHT, (qint8, qint8, qint32)),
        _COST,
        _sums(2**17, out_type=qint32),
        "The array with a vector added along its last axis.",
    ),
):
    op(
        _type,
        _ins,
        _outs,
        _attrs,
        shape=_shape,
        kernel=_kernel,
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=_facts,
        sample=_sample,
        doc=_doc,
    )

for _type, _top in (("QuantizedRelu", None), ("QuantizedRelu6", 6.0)):
    op(
        _type,
        "features: Tinput, min_features: float32, max_features: float32",
        "activations: out_type, min_activations: float32, max_activations: float32",
        {"Tinput": QUANTIZED, "out_type": type_attr(QUANTIZED, quint8)},
        shape=_with_range(lambda c: c.shapes[0], 1),
        kernel=_relu(_type, _top),
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=_COST,
        sample=_relus(_top is not None),
        doc=f"Each element, but at least 0{'' if _top is None else ' and at most 6'}.",
    )

op(
    "QuantizedReluX",
    "features: Tinput, max_value: float32, min_features: float32, max_features: float32",
    "activations: out_type, min_activations: float32, max_activations: float32",
    {"Tinput": QUANTIZED, "out_type": type_attr(QUANTIZED, quint8)},
    shape=_with_range(lambda c: c.shapes[0], 2),
    kernel=_relu("QuantizedReluX", None),
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_limited_relus,
    doc="Each element, but at least 0 and at most `max_value`.",
)

for _type, _mean, _doc in (
    ("QuantizedMaxPool", False, "The greatest element of each window."),
    ("QuantizedAvgPool", True, "The mean of each window, rounded towards 0."),
):
    op(
        _type,
        "input: T, min_input: float32, max_input: float32",
        "output: T, min_output: float32, max_output: float32",
        {"T": QUANTIZED, "ksize": list_attr("int"), "strides": list_attr("int")} | _PADDING,
        shape=_pool_shape(_type),
        kernel=_pool(_type, _mean),
        xp=False,
        grad=NOT_DIFFERENTIABLE,
        facts=Facts(cost=flops_per_input(3)),
        sample=_poolings(_mean),
        doc=_doc,
    )

op(
    "QuantizedConcat",
    "concat_dim: int32, values: N * T, input_mins: N * float32, input_maxes: N * float32",
    "output: T, output_min: float32, output_max: float32",
    {"N": int_attr(minimum=2), "T": type_attr(ALL | QUANTIZED)},
    shape=_concat_shape,
    kernel=_concat_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=_COST,
    sample=_concats,
    doc="Arrays joined along an axis, in a range that has all of theirs.",
)
op(
    "QuantizedReshape",
    "tensor: T, shape: Tshape, input_min: float32, input_max: float32",
    "output: T, output_min: float32, output_max: float32",
    {"T": type_attr(ALL | QUANTIZED), "Tshape": type_attr(INDEX, int32)},
    shape=_with_range(_reshape_shape, 2),
    kernel=_reshape_kernel,
    xp=False,
    grad=NOT_DIFFERENTIABLE,
    facts=Facts(dynamic_shape=True),
    sample=_reshapes,
    doc="The array in another shape, and the ends of its range.",
)
