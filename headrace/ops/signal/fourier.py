"""Discrete Fourier transforms (FFT, IFFT, RFFT, IRFFT) in several dimensions, with the Batch names.

Source: TensorFlow's ops of the same names. The transforms of real arrays return the first half of the last axis, up to
the middle of `fft_length`, and their inverses read the same half. They use the first `fft_length` elements of each
axis, which must exist; in the ops with given axes, shorter axes are padded with zeros.
"""

from __future__ import annotations

import cmath
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace.dtypes import COMPLEX, DType, complex64, complex128, float32, float64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, op, type_attr
from headrace.opkit.arrays import axis_in, check_size
from headrace.opkit.batch_rules import first_in_step, in_step, shifting_axes
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter, dtype_in, integers
from headrace.opkit.testing.samples import draw
from headrace.records import record
from headrace.shapes import Shape, merge_dim, show, with_rank, with_rank_at_least

_FACTS = Facts(cost=flops_per_input(30))
_COMPLEX_OF = {float32: complex64, float64: complex128}


@record(frozen=True)
class _Kind:
    """A transform: whether it is the inverse one, and whether the other side is real."""

    inverse: bool
    real: bool

    @property
    def name(self) -> str:
        return "I" * self.inverse + "R" * self.real + "FFT"

    def kept(self, n: int) -> int:
        """Number of elements of the complex side, for a last axis of length `n`."""
        return n // 2 + 1 if self.real and n else n


_KINDS = [_Kind(inverse, real) for real in (False, True) for inverse in (False, True)]


def _transform(xp: Any, kind: _Kind, x: Any, lengths: Sequence[int], axes: Sequence[int], t: DType) -> Any:
    """The transform of these lengths along `axes`, of `x`, which has elements enough."""
    if not axes:
        return converter(xp, t)(xp.real(x) if kind.real and kind.inverse else x)
    result = list(x.shape)
    for a, n in zip(axes, lengths, strict=True):
        result[a] = n
    if not kind.inverse:
        result[axes[-1]] = kind.kept(lengths[-1])
    check_size(result, t)
    if 0 in result or 0 in x.shape:  # of no elements all sums are 0
        return xp.zeros(tuple(result), dtype=dtype_in(xp, t), device=x.device)
    index = [slice(None)] * x.ndim
    for a, n in zip(axes, lengths, strict=True):
        index[a] = slice(0, kind.kept(n) if kind.inverse and a == axes[-1] else n)
    f = getattr(xp.fft, f"{kind.name.lower()}n")
    found = f(x[tuple(index)], s=tuple(lengths), axes=tuple(axes))
    return found if found.dtype == dtype_in(xp, t) else converter(xp, t)(found)


def _check_rank(x: Any, rank: int) -> None:
    if x.ndim < rank:
        raise InvalidArgumentError(f"Input must have rank of at least {rank} but got: {show(x.shape)}")


def _check_types(kind: _Kind, attrs: Mapping[str, Any]) -> None:
    if kind.real and _COMPLEX_OF[attrs["Treal"]] is not attrs["Tcomplex"]:
        raise InvalidArgumentError(
            f"Wrong types for {kind.name}: {attrs['Treal']} goes with {_COMPLEX_OF[attrs['Treal']]}"
        )


def _result_type(kind: _Kind, attrs: Mapping[str, Any]) -> DType:
    t: DType = attrs["Treal"] if kind.real and kind.inverse else attrs.get("Tcomplex", complex64)
    return t


def _checked_lengths(fft_length: Any, count: int) -> list[int]:
    if fft_length.shape != (count,):
        raise InvalidArgumentError(f"fft_length must have shape [{count}], got the shape {show(fft_length.shape)}")
    lengths = list(integers(fft_length))
    if lengths and min(lengths) < 0:
        raise InvalidArgumentError(f"fft_length must be >= 0, but got {lengths}")
    return lengths


# *** Along the last axes ***


def _last_kernel(kind: _Kind, rank: int) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        t = _result_type(kind, attrs)

        def whole(x: Any) -> Any:
            _check_rank(x, rank)
            return _transform(xp, kind, x, x.shape[-rank:], range(x.ndim - rank, x.ndim), t)

        def part(x: Any, fft_length: Any) -> Any:
            _check_types(kind, attrs)
            _check_rank(x, rank)
            lengths = _checked_lengths(fft_length, rank)
            needed = lengths if not kind.inverse else [*lengths[:-1], lengths[-1] // 2 + 1]
            for i, n in enumerate(needed, x.ndim - rank):
                if 0 < x.shape[i] < n:
                    raise InvalidArgumentError(
                        f"Input dimension {i} must have length of at least {n} but got: {x.shape[i]}"
                    )
            return _transform(xp, kind, x, lengths, range(x.ndim - rank, x.ndim), t)

        return part if kind.real else whole

    return factory


def _last_shape(kind: _Kind, rank: int) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        x = with_rank_at_least(c.shapes[0], rank)
        if not kind.real:
            return [x]
        merge_dim(with_rank(c.shapes[1], 1)[0], rank)
        if x is None:
            return [None]
        lengths = c.shape_value(1)
        if lengths is None:
            return [(*x[:-rank], *[None] * rank)]
        with_rank(lengths, rank)
        last = lengths[-1]
        if last is not None and not kind.inverse:
            last = kind.kept(last)
        return [(*x[:-rank], *lengths[:-1], last)]

    return rule


# *** Along any axes ***


def _any_kernel(kind: _Kind) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Callable[..., Any]:
        t = _result_type(kind, attrs)

        def kernel(x: Any, fft_length: Any, axes: Any) -> Any:
            _check_types(kind, attrs)
            if axes.ndim != 1:
                raise InvalidArgumentError(f"axes must be a vector, got the shape {show(axes.shape)}")
            along = [axis_in(a, x.ndim) for a in integers(axes)]
            if len(set(along)) < len(along):
                raise InvalidArgumentError(f"axes must be distinct, got {list(integers(axes))}")
            lengths = _checked_lengths(fft_length, len(along))
            shape = list(x.shape)
            for a, n in zip(along, lengths, strict=True):
                shape[a] = max(shape[a], kind.kept(n) if kind.inverse and a == along[-1] else n)
            if shape != list(x.shape):
                check_size(shape, t)
                whole = xp.zeros(tuple(shape), dtype=x.dtype, device=x.device)
                whole[tuple([slice(0, d) for d in x.shape])] = x
                x = whole
            return _transform(xp, kind, x, lengths, along, t)

        return kernel

    return factory


def _any_shape(kind: _Kind) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        x, lengths, axes = c.shapes[0], c.value(1), c.axes(2)
        merge_dim(with_rank(c.shapes[1], 1)[0], with_rank(c.shapes[2], 1)[0])
        if x is None:
            return [None]
        if lengths is None or axes is None:
            return [(None,) * len(x)]
        out = list(x)
        for i, (a, n) in enumerate(zip(axes, lengths.tolist(), strict=True)):
            last = not kind.inverse and i == len(axes) - 1
            out[axis_in(a, len(x))] = kind.kept(n) if last else n
        return [tuple(out)]

    return rule


# *** Gradients: the adjoint transforms ***


def _fitted(b: Any, g: Any, shape: Any) -> Any:
    """`g` without what is beyond `shape`, and with zeros up to it."""
    common = b.Minimum(b.Shape(g), shape)
    inside = b.Slice(g, b.ZerosLike(common), common)
    after = b.ExpandDims(b.Sub(shape, common), 1)
    return b.Pad(inside, b.ConcatV2([b.ZerosLike(after), after], 1))


def _product(b: Any, ns: Any, t: DType) -> Any:
    """Number of elements over which a transform of the lengths `ns` sums."""
    return b.Cast(b.Prod(b.Cast(ns, DstT=float64), [0], keep_dims=False), DstT=t)


def _whole_grad(kind: _Kind, rank: int, opposite: str) -> Any:
    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        size = _product(b, b.StridedSlice(b.Shape(dy), [-rank], [0], [1], end_mask=1), dy.dtype.base)
        g = b.make(opposite, [dy], {})
        return [b.RealDiv(g, size) if kind.inverse else b.Mul(g, size)]

    return grad


def _any_grad(kind: _Kind, opposite: str) -> Any:
    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        size = _product(b, n.fft_length, dy.dtype.base)
        g = b.make(opposite, [dy, n.fft_length, n.axes], {})
        return [_fitted(b, b.RealDiv(g, size) if kind.inverse else b.Mul(g, size), b.Shape(n.input)), None, None]

    return grad


def _real_grad(b: Any, n: Any, dy: Any, inverse_transform: Any, whole: Any) -> Any:
    """Gradient rule of a transform of real numbers.

    It is the real part of the inverse transform of `dy`, with zeros for the other half.
    """
    t = n.attrs["Tcomplex"]
    g = b.Mul(inverse_transform(_fitted(b, dy, whole)), _product(b, n.fft_length, t))
    return _fitted(b, b.Real(g, Tout=n.attrs["Treal"]), b.Shape(n.input))


def _weights(b: Any, n: Any) -> Any:
    """Weights of the last axis in the sums of a transform to real numbers.

    An element counts twice, because it also stands for its conjugate; the first and the middle one count once. The
    weights are divided by the number of elements of the sums.
    """
    last = b.StridedSlice(n.fft_length, [-1], [0], [1], shrink_axis_mask=1, end_mask=1)
    k = b.Range(0, b.Add(b.FloorDiv(last, 2), 1), 1)
    single = b.LogicalOr(b.Equal(k, 0), b.Equal(b.Mul(k, 2), last))
    t = n.attrs["Tcomplex"]
    one, two = (b.const(v, t) for v in (1, 2))
    return b.RealDiv(b.SelectV2(single, b.Fill(b.Shape(k), one), two), _product(b, n.fft_length, t))


def _last_real_grad(kind: _Kind, rank: int) -> Any:
    suffix = _suffix(rank)

    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        if kind.inverse:
            g = b.make("RFFT" + suffix, [dy, n.fft_length], {"Tcomplex": n.attrs["Tcomplex"]})
            return [_fitted(b, b.Mul(g, _weights(b, n)), b.Shape(n.input)), None]
        batch = b.StridedSlice(b.Shape(dy), [0], [-rank], [1], begin_mask=1)
        whole = b.ConcatV2([batch, n.fft_length], 0)
        return [_real_grad(b, n, dy, lambda x: b.make("IFFT" + suffix, [x], {}), whole), None]

    return grad


def _any_real_grad(kind: _Kind) -> Any:
    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        rank = b.Rank(dy)
        axes = b.FloorMod(n.axes, rank)
        if not kind.inverse:
            whole = b.TensorScatterUpdate(b.Shape(dy), b.ExpandDims(axes, 1), n.fft_length)
            inverse = lambda x: b.IFFTND(x, n.fft_length, n.axes)
            return [_real_grad(b, n, dy, inverse, whole), None, None]
        g = b.RFFTND(dy, n.fft_length, n.axes, Tcomplex=n.attrs["Tcomplex"])
        last = b.StridedSlice(axes, [-1], [0], [1], end_mask=1)
        ones = b.Fill(b.Reshape(rank, [1]), 1)
        weights = _weights(b, n)
        along = b.TensorScatterUpdate(ones, b.ExpandDims(last, 1), b.Shape(weights))
        return [_fitted(b, b.Mul(g, b.Reshape(weights, along)), b.Shape(n.input)), None, None]

    return grad


# *** Tests ***


def _sum_along(x: np.ndarray, axis: int, n: int, inverse: bool) -> np.ndarray:
    """Transform of `n` elements by definition; missing elements are 0."""
    x = np.moveaxis(x, axis, -1)[..., :n].astype(complex)
    turn = (1 if inverse else -1) * 2j * cmath.pi / max(n, 1)
    table = np.array([[cmath.exp(turn * i * k) for k in range(n)] for i in range(x.shape[-1])]).reshape(x.shape[-1], n)
    return np.moveaxis(x @ table / (max(n, 1) if inverse else 1), -1, axis)


def _model(kind: _Kind, x: np.ndarray, lengths: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    if kind.real and kind.inverse:
        for a, n in list(zip(axes, lengths, strict=True))[:-1]:
            x = _sum_along(x, a, n, True)
        n, last = lengths[-1], axes[-1]
        half = np.moveaxis(x, last, -1)[..., : kind.kept(n)]
        if half.shape[-1] < kind.kept(n):
            half = np.concatenate([half, np.zeros((*half.shape[:-1], kind.kept(n) - half.shape[-1]))], axis=-1)
        mirrored = np.conj(half[..., 1 : n - half.shape[-1] + 1][..., ::-1])
        first = np.real(half[..., :1])
        whole = np.concatenate([first, half[..., 1:], mirrored], axis=-1)
        if n and n % 2 == 0:
            whole[..., n // 2] = whole[..., n // 2].real
        return _sum_along(np.moveaxis(whole, -1, last), last, n, True).real
    for a, n in zip(axes, lengths, strict=True):
        x = _sum_along(x, a, n, kind.inverse)
    return np.take(x, range(kind.kept(lengths[-1])), axes[-1]) if kind.real else x


def _pair(dtype: DType) -> tuple[DType, DType]:
    """The real and complex types of the precision of `dtype`, one of either."""
    return next((r, c) for r, c in _COMPLEX_OF.items() if dtype in (r, c))


def _model_result(kind: _Kind, x: np.ndarray, lengths: Sequence[int], axes: Sequence[int], dtype: DType) -> np.ndarray:
    real, complex_ = _pair(dtype)
    t = real if kind.real and kind.inverse else complex_
    return _model(kind, x, lengths, axes).astype(t.numpy)


def _last_samples(kind: _Kind, rank: int) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        real, complex_ = _pair(dtype)
        t = real if kind.real and not kind.inverse else complex_
        out = []
        for batch, lengths, more in (
            ((2,), (2, 3, 4), 0),
            ((), (3, 2, 3), 1),
            ((0,), (2, 2, 2), 0),
        ):
            ns = lengths[-rank:]
            axes = range(len(batch), len(batch) + rank)
            shape = [n + more * kind.real for n in ns]
            if kind.inverse:
                shape[-1] = kind.kept(shape[-1])
            x = draw(rng, t, (*batch, *shape))
            want = _model_result(kind, x, ns, axes, dtype)
            if kind.real:
                out.append(case(x, np.array(ns, np.int32), Treal=real, Tcomplex=complex_, want=want))
            else:
                out.append(case(x, want=want))
        return out if dtype in (float64, complex128) else out[:1]

    return sample


def _single_samples(kind: _Kind, rank: int, rng: np.random.Generator, dtype: DType) -> list[Any]:
    found: list[Any] = _last_samples(kind, rank)(rng, complex64)
    return found


def _any_samples(kind: _Kind) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        real, complex_ = _pair(dtype)
        t = real if kind.real and not kind.inverse else complex_
        types = {"Treal": real, "Tcomplex": complex_} if kind.real else {}
        out = []
        for shape, ns, axes in (((2, 3, 2), (2, 4), (2, 0)), ((3, 4), (2,), (-1,)), ((2, 3), (2, 3), (0, 1))):
            x = draw(rng, t, shape)
            want = _model_result(kind, x, ns, axes, dtype)
            out.append(case(x, np.array(ns, np.int32), np.array(axes, np.int32), want=want, **types))
        return out if dtype in (float64, complex128) else out[:1]

    return sample


# *** Records ***

_TYPES = {"Treal": type_attr({float32, float64}, float32), "Tcomplex": type_attr(COMPLEX, complex64)}


def _suffix(rank: int) -> str:
    return "" if rank == 1 else f"{rank}D"


def _doc(kind: _Kind, over: str) -> str:
    what = "inverse Fourier transform" if kind.inverse else "Fourier transform"
    side = (" to real numbers" if kind.inverse else " of real numbers") if kind.real else ""
    return f"The discrete {what}{side} along {over}."


for _kind in _KINDS:
    _from, _to = ("Tcomplex", "Treal" if _kind.real else "Tcomplex")[:: 1 if _kind.inverse else -1]
    _attrs = _TYPES if _kind.real else {"Tcomplex": _TYPES["Tcomplex"]}
    _opposite = _Kind(not _kind.inverse, False).name
    for _rank in (1, 2, 3):
        _over = "the last axis" if _rank == 1 else f"the last {_rank} axes"
        op(
            _kind.name + _suffix(_rank),
            f"input: {_from}" + ", fft_length: int32" * _kind.real,
            f"output: {_to}",
            _attrs,
            shape=_last_shape(_kind, _rank),
            kernel=_last_kernel(_kind, _rank),
            xp=True,
            host=("fft_length",) if _kind.real else (),
            grad=_last_real_grad(_kind, _rank) if _kind.real else _whole_grad(_kind, _rank, _opposite + _suffix(_rank)),
            jvp=linear("input"),
            batch=first_in_step(0),
            facts=Facts(dynamic_shape=True, cost=_FACTS.cost) if _kind.real else _FACTS,
            sample=_last_samples(_kind, _rank),
            doc=_doc(_kind, _over),
        )
        if not _kind.real:
            op(
                "Batch" + _kind.name + _suffix(_rank),
                "input: complex64",
                "output: complex64",
                shape=_last_shape(_kind, _rank),
                kernel=_last_kernel(_kind, _rank),
                xp=True,
                grad=_whole_grad(_kind, _rank, _opposite + _suffix(_rank)),
                jvp=linear("input"),
                batch=in_step,
                facts=_FACTS,
                sample=functools.partial(_single_samples, _kind, _rank),
                doc=_doc(_kind, _over),
            )
    op(
        _kind.name + "ND",
        f"input: {_from}, fft_length: int32, axes: int32",
        f"output: {_to}",
        _attrs,
        shape=_any_shape(_kind),
        kernel=_any_kernel(_kind),
        xp=True,
        host=("fft_length", "axes"),
        grad=_any_real_grad(_kind) if _kind.real else _any_grad(_kind, _opposite + "ND"),
        jvp=linear("input"),
        batch=shifting_axes(2, 0),
        facts=Facts(dynamic_shape=True, cost=_FACTS.cost),
        sample=_any_samples(_kind),
        doc=_doc(_kind, "the given axes, cut off at the given lengths or with zeros appended"),
        differs="TensorFlow has no kernel for it on the CPU.",
    )
