"""Reductions over dimensions: Sum, Prod, Max, Min, Mean, All, Any, EuclideanNorm, ArgMax, ArgMin, L2Loss.

Source: TensorFlow's ops of the same names. Results keep the dtype of the input; half precision is summed in float32;
means of integers lose their fraction. For an empty array the sum is 0, the product 1, and the maximum -inf or the
lowest integer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import COMPLEX, FLOATING, INDEX, INTEGER, NUMERIC, REAL, DType, int32, int64
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference, constant_value
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_input, op, type_attr
from headrace.opkit import forms
from headrace.opkit.batch_rules import shifting_axes
from headrace.opkit.batch_shapes import l2_loss
from headrace.opkit.elementwise import HALF, composed, conj
from headrace.opkit.index_forms import extreme
from headrace.opkit.jvp_rules import linear
from headrace.opkit.kernel_library import reduced
from headrace.opkit.namespaces import converter, dtype_in, integers
from headrace.opkit.shape_rules import scalars
from headrace.opkit.testing.samples import draw, unary
from headrace.shapes import Shape, show

_AXES = type_attr(INDEX, int32)


def axes_of(indices: Any, rank: int) -> tuple[int, ...]:
    """Dimensions that `indices` select in an input of rank `rank`, each in [0, rank).

    Raises:
      InvalidArgumentError: one is out of range, or named twice.
    """
    out = []
    found = integers(indices)
    for a in found:
        if not -rank <= a < rank:
            raise InvalidArgumentError(f"Invalid reduction dimension ({a} for input with {rank} dimension(s))")
        if a % rank in out:
            raise InvalidArgumentError(
                f"Invalid reduction arguments: Axes contains duplicate dimension: {a % rank}, in {list(found)}"
            )
        out.append(a % rank)
    return tuple(out)


def _over_axes(reduce: Callable[[Any, tuple[int, ...]], Any]) -> Callable[[Any, Any], Any]:
    """The kernel of `reduce(x, axes)`; it caches the last axes, which are mostly constant."""
    seen: tuple[Any, int, tuple[int, ...]] = (None, 0, ())

    def kernel(x: Any, indices: Any) -> Any:
        nonlocal seen
        known = seen  # read once: another thread may run the same node for another iteration
        if known[0] is not indices or known[1] != x.ndim:
            known = seen = (indices, x.ndim, axes_of(indices, x.ndim))
        return reduce(x, known[2])

    return kernel


def _wide(t: DType) -> DType:
    """The dtype in which elements of `t` are added up."""
    return dtypes.float32 if t in HALF else t


def _with_library(
    ufunc: np.ufunc, attrs: Mapping[str, Any], reduce: Callable[[Any, tuple[int, ...]], Any]
) -> Callable[[Any, tuple[int, ...]], Any]:
    """Returns `reduce(x, axes)`, by the library of kernels for large arrays of floats.

    The library computes half precision in float32, and so do its results.
    """
    keep = attrs["keep_dims"]
    if attrs["T"] not in FLOATING:
        return reduce

    def total(x: Any, axes: tuple[int, ...]) -> Any:
        found = reduced(ufunc, x, sorted(axes))
        if found is None:
            return reduce(x, axes)
        return found.reshape([1 if k in axes else d for k, d in enumerate(x.shape)]) if keep else found

    return total


# numpy's reductions are methods of ufuncs, which its functions of the standard call a microsecond later
_NAMES: dict[Any, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
}


def _totals(xp: Any, ufunc: np.ufunc, attrs: Mapping[str, Any], wide: DType) -> Callable[[Any, tuple[int, ...]], Any]:
    """Returns the sum or product over axes, `reduce(x, axes)`, in the dtype `wide`."""
    keep, to = attrs["keep_dims"], dtype_in(xp, wide)
    if xp is np:
        f: Any = ufunc.reduce
        reduce = lambda x, axes: f(x, axes, to, None, keep)
        return _with_library(np.add, attrs, reduce) if ufunc is np.add else reduce
    portable = getattr(xp, _NAMES[ufunc])
    return lambda x, axes: portable(x, axis=axes, dtype=to, keepdims=keep)


def _accumulated(ufunc: np.ufunc) -> Any:
    """The factory of a sum or product in the dtype of the input."""

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t = attrs["T"]
        reduce, back = _totals(xp, ufunc, attrs, _wide(t)), converter(xp, t)
        return _over_axes((lambda x, axes: back(reduce(x, axes))) if t in HALF else reduce)

    return factory


def least(t: DType) -> Any:
    """The element that Max starts from."""
    return t.numpy.type(np.iinfo(t.numpy).min if t in INTEGER else -np.inf)


def greatest(t: DType) -> Any:
    """The element that Min starts from."""
    return t.numpy.type(np.iinfo(t.numpy).max if t in INTEGER else np.inf)


def _extreme(ufunc: np.ufunc, start: Callable[[DType], Any]) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        t, keep = attrs["T"], attrs["keep_dims"]
        first = start(t)
        if xp is not np:
            return _over_axes(_portable_extreme(xp, getattr(xp, _NAMES[ufunc]), first.item(), attrs))
        f = ufunc.reduce
        reduce = _with_library(ufunc, attrs, lambda x, axes: f(x, axis=axes, initial=first, keepdims=keep))
        return _over_axes((lambda x, axes: reduce(x, axes).astype(t.numpy, copy=False)) if t in HALF else reduce)

    return factory


def _portable_extreme(xp: Any, f: Any, first: Any, attrs: Mapping[str, Any]) -> Callable[[Any, tuple[int, ...]], Any]:
    """Returns the extreme over axes by a function of the standard.

    That function needs at least one element.
    """
    keep = attrs["keep_dims"]

    def extreme(x: Any, axes: tuple[int, ...]) -> Any:
        if 0 not in x.shape:
            return f(x, axis=axes, keepdims=keep)
        return xp.full(shapes.reduced(x.shape, axes, keep), first, dtype=x.dtype, device=x.device)

    return extreme


def _logical(ufunc: np.ufunc) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        f, keep = ufunc.reduce if xp is np else getattr(xp, _NAMES[ufunc]), attrs["keep_dims"]
        return _over_axes(lambda x, axes: f(x, axis=axes, keepdims=keep))

    return factory


def _mean(xp: Any, attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]
    wide = (dtypes.uint64 if t is dtypes.uint64 else int64) if t in INTEGER else _wide(t)
    total, back = _totals(xp, np.add, attrs, wide), converter(xp, t)

    def mean(x: Any, axes: tuple[int, ...]) -> Any:
        return total(x, axes) / math.prod(x.shape[a] for a in axes)

    def whole(x: Any, axes: tuple[int, ...]) -> Any:
        n = max(math.prod(x.shape[a] for a in axes), 1)
        sums = total(x, axes)
        if xp is np:
            return ((sums - np.fmod(sums, n)) // n).astype(t.numpy)  # towards zero
        below = sums // n
        return back(xp.where((sums < 0) & (below * n != sums), below + 1, below))

    if t in INTEGER:
        return _over_axes(whole)
    if t in HALF:
        return _over_axes(lambda x, axes: back(mean(x, axes)))
    return _over_axes(mean)


def _norm(xp: Any, attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]
    part = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}.get(t, t)
    total = _totals(xp, np.add, attrs, _wide(part))
    widen, back = converter(xp, _wide(t)), converter(xp, t)
    root = xp.sqrt
    if t in INTEGER and xp is not np:
        to_float64 = converter(xp, dtypes.float64)
        root = lambda sums: xp.sqrt(to_float64(sums))

    def norm(x: Any, axes: tuple[int, ...]) -> Any:
        squares = xp.square(xp.abs(x) if t in COMPLEX else widen(x))
        return back(root(total(squares, axes)))

    return _over_axes(norm)


# *** Shapes ***


def _reduced(c: Inference) -> Sequence[Shape]:
    axes, x = c.axes(1), c.shapes[0]
    inside = axes is not None and x is not None and all(-len(x) <= a < len(x) for a in axes)
    if axes is not None and x is not None and inside and len({a % len(x) for a in axes}) < len(axes):
        raise ValueError(f"Invalid reduction arguments: Axes contains duplicate dimension, in {axes}")
    return [shapes.reduced(x, axes, c.attrs["keep_dims"])]


# *** Gradients ***


def _known_axes(n: Any) -> list[int] | None:
    """The reduced dimensions in ascending order, or None if they or the rank are unknown."""
    indices, x = constant_value(n.op.inputs[1]), n.op.inputs[0].shape
    return None if indices is None or x is None else sorted(axes_of(indices, len(x)))


def _kept(b: Any, n: Any, y: Any) -> Any:
    """Reshapes `y` from the output's shape to one that broadcasts to the input's.

    Each reduced dimension gets size 1.
    """
    if n.attrs["keep_dims"] or y.shape == ():
        return y
    axes, x = _known_axes(n), n.op.inputs[0].shape
    if axes is not None and shapes.is_full(x):
        return b.Reshape(y, [1 if i in axes else d for i, d in enumerate(x)])
    if axes is not None:
        for a in axes:
            y = b.ExpandDims(y, a)
        return y
    rank = b.Rank(n.input)
    indices = b.Cast(b.Reshape(n.reduction_indices, [-1]), DstT=int32)
    wrapped = b.FloorMod(b.AddV2(indices, rank), rank)
    shape = b.DynamicStitch([b.Range(0, rank, 1), wrapped], [b.Shape(n.input), b.OnesLike(indices)])
    return b.Reshape(y, shape)


def _sum_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.BroadcastTo(_kept(b, n, dy), b.Shape(n.input)), None]


def _mean_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    x, y = shapes.size(n.op.inputs[0].shape), shapes.size(n.op.outputs[0].shape)
    if x is not None and y is not None:
        count = float(x // max(y, 1))
    else:
        count = b.Cast(b.FloorDiv(b.Size(n.input), b.Maximum(b.Size(dy), 1)), DstT=n.attrs["T"])
    return [b.BroadcastTo(_kept(b, n, b.RealDiv(dy, count)), b.Shape(n.input)), None]


def _extreme_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient of Max or Min, divided evenly among the elements equal to the result."""
    winners = b.Cast(b.Equal(n.input, _kept(b, n, n.output)), DstT=n.attrs["T"])
    count = _kept(b, n, b.Sum(winners, n.reduction_indices, keep_dims=n.attrs["keep_dims"]))
    return [b.Mul(winners, b.RealDiv(_kept(b, n, dy), count)), None]


def _prod_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    """The gradient of Prod: for each element the product of all others.

    It multiplies the products of the elements before and after each one; division would fail at zeros.
    """
    x, axes = n.input, _known_axes(n)
    if n.op.outputs[0].shape == () and (axes is None or len(axes) > 1):
        return [b.Reshape(b.Mul(conj(b, _others(b, b.Reshape(x, [-1]), 0)), dy), b.Shape(x)), None]
    if axes is None:
        return [b.Mul(conj(b, _others_along(b, x, n.reduction_indices)), _kept(b, n, dy)), None]
    steps = [x]  # one dimension at a time
    for a in axes[:-1]:
        steps.append(b.Prod(steps[-1], [a], keep_dims=True))
    dx = _kept(b, n, dy)
    for i in reversed(range(len(axes))):
        dx = b.Mul(conj(b, _others(b, steps[i], axes[i])), dx)
    return [dx, None]


def _others(b: Any, x: Any, axis: int) -> Any:
    return b.Mul(b.Cumprod(x, axis, exclusive=True), b.Cumprod(x, axis, exclusive=True, reverse=True))


def _others_along(b: Any, x: Any, indices: Any) -> Any:
    """Products of all other elements along dimensions that only a run determines.

    The reduced dimensions are transposed to the front and merged into one.
    """
    shape, rank = b.Shape(x), b.Rank(x)
    axes = b.FloorMod(b.Cast(b.Reshape(indices, [-1]), DstT=dtypes.int32), rank)
    rest, _ = b.ListDiff(b.Range(0, rank, 1), axes)
    order = b.ConcatV2([axes, rest], 0)
    front = b.Transpose(x, order)
    sizes = [b.Prod(b.GatherV2(shape, part, 0), 0) for part in (axes, rest)]
    others = _others(b, b.Reshape(front, b.Pack(sizes)), 0)
    return b.Transpose(b.Reshape(others, b.Shape(front)), b.InvertPermutation(order))


def _norm_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.Mul(n.input, _kept(b, n, b.RealDiv(dy, n.output))), None]


# *** Oracles: loops over the elements of each result ***


def _reducing(f: Callable[[list[Any], DType], Any]) -> Any:
    """The oracle that applies `f(elements, dtype)` to the list of elements (Python numbers) of each result."""

    def oracle(x: np.ndarray, indices: np.ndarray, keep_dims: bool = False) -> np.ndarray:
        axes = {int(a) % x.ndim for a in np.ravel(indices)}
        kept = tuple(1 if i in axes else d for i, d in enumerate(x.shape))
        found: dict[tuple[int, ...], list[Any]] = {i: [] for i in np.ndindex(kept)}
        for i in np.ndindex(x.shape):
            v = x[i]
            key = tuple(0 if k in axes else d for k, d in enumerate(i))
            found[key].append(v.item() if x.dtype.kind in "iub" else complex(v) if x.dtype.kind == "c" else float(v))
        out = np.empty(kept, x.dtype)
        for i, values in found.items():
            out[i] = f(values, dtypes.from_numpy(x.dtype))
        return out if keep_dims else out.reshape(tuple(d for i, d in enumerate(x.shape) if i not in axes))

    return oracle


def _wrapped(v: Any, t: DType) -> Any:
    """A Python number as a value of `t`; integers wrap."""
    return np.array(v % 2**64, np.uint64).astype(t.numpy)[()] if t in INTEGER else v


def _mean_of(values: list[Any], t: DType) -> Any:
    if t in INTEGER:
        return math.trunc(sum(values) / len(values)) if values else 0
    return sum(values) / len(values) if values else math.nan


def _norm_of(values: list[Any], t: DType) -> Any:
    norm = math.sqrt(sum(abs(v) ** 2 for v in values))
    return math.trunc(norm) if t in INTEGER else norm


_CASES: tuple[tuple[tuple[int, ...], Any, bool], ...] = (
    ((), [], False),
    ((4,), [0], False),
    ((2, 3), [0], True),
    ((2, 3), [-1], False),
    ((2, 3), [0, 1], False),
    ((2, 3), [], False),
    ((2, 3), 1, False),
    ((2, 2, 3), [2, 0], True),
    ((2, 2, 3), [0, 1], False),
    ((0, 3), [1], False),
    ((2, 0), [-1], False),
)


def _samples(low: float = -3, high: float = 3) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        found = [
            case(draw(rng, dtype, shape, low, high), np.array(axes, np.int32), keep_dims=keep)
            for shape, axes, keep in _CASES
        ]
        return [*found, case(draw(rng, dtype, (2, 3), low, high), np.array([1], np.int64))]

    return sample


_LINEAR = linear("input")

_greatest, _least = _extreme(np.maximum, least), _extreme(np.minimum, greatest)
_sum, _prod = _accumulated(np.add), _accumulated(np.multiply)
_FORMS: dict[Any, Any] = {
    _sum: forms.reduction(np.add),
    _prod: forms.reduction(np.multiply),
    _greatest: forms.reduction(np.maximum),
    _least: forms.reduction(np.minimum),
    _mean: forms.reduction(np.add, is_mean=True),
}

# the columns of the tables below
_jvp: Any
_types: Any
_oracle: Any

# fmt: off
for _type, _types, _kernel, _grad, _jvp, _oracle, _sample, _flops, _doc in (
    ("Sum", NUMERIC, _sum, _sum_grad, _LINEAR, lambda v, t: _wrapped(sum(v), t), _samples(), 1,
     "The sum"),
    ("Prod", NUMERIC, _prod, _prod_grad, None, lambda v, t: _wrapped(math.prod(v), t),
     _samples(1, 3), 1, "The product"),
    ("Max", REAL, _greatest, _extreme_grad, None, lambda v, t: max(v, default=least(t)), _samples(), 1,
     "The greatest element"),
    ("Min", REAL, _least, _extreme_grad, None, lambda v, t: min(v, default=greatest(t)),
     _samples(), 1, "The least element"),
    ("Mean", NUMERIC, _mean, _mean_grad, _LINEAR, _mean_of, _samples(), 1, "The mean"),
    ("EuclideanNorm", NUMERIC, _norm, _norm_grad, None, _norm_of, _samples(1, 3), 2, "The root of the sum of squares"),
):
    op(
        _type,
        "input: T, reduction_indices: Tidx",
        "output: T",
        {"keep_dims": False, "T": type_attr(_types), "Tidx": _AXES},
        shape=_reduced,
        kernel=_kernel,
        xp=True,
        host=("reduction_indices",),
        grad=_grad,
        jvp=_jvp, batch=shifting_axes(1, 0),
        form=_FORMS.get(_kernel),
        facts=Facts(
            total=("reduction_indices",), dynamic_shape=True, cost=flops_per_input(_flops), rounds_once=True
        ),
        oracle=_reducing(_oracle),
        sample=_sample,
        doc=f"{_doc} over some dimensions.",
    )
# fmt: on

for _type, _ufunc, _oracle, _doc in (
    ("All", np.logical_and, lambda v, t: all(v), "The logical and of the elements over dimensions."),
    ("Any", np.logical_or, lambda v, t: any(v), "The logical or of the elements over dimensions."),
):
    op(
        _type,
        "input: bool, reduction_indices: Tidx",
        "output: bool",
        {"keep_dims": False, "Tidx": _AXES},
        shape=_reduced,
        kernel=_logical(_ufunc),
        xp=True,
        host=("reduction_indices",),
        form=forms.reduction(_ufunc),
        grad=NOT_DIFFERENTIABLE,
        batch=shifting_axes(1, 0),
        facts=Facts(total=("reduction_indices",), dynamic_shape=True, cost=flops_per_input(1)),
        oracle=_reducing(_oracle),
        sample=lambda rng, dtype: _samples()(rng, dtypes.bool_),
        doc=_doc,
    )


def _half_of_squares(xp: Any, t: Any) -> Any:
    squares = xp.square(t)
    if xp is not np:
        return 0.5 * xp.sum(squares)
    total = reduced(np.add, squares, range(t.ndim))
    return (np.add.reduce(squares, axis=None) if total is None else total[()]) * t.dtype.type(0.5)


op(
    "L2Loss",
    "t: T",
    "output: T",
    {"T": FLOATING},
    shape=scalars,
    kernel=composed(_half_of_squares),
    xp=True,
    grad=lambda b, n, dy: [b.Mul(n.t, dy)],
    batch=l2_loss,
    facts=Facts(cost=flops_per_input(2), total=(), rounds_once=True),
    oracle=lambda x: np.asarray(math.fsum(float(v) ** 2 for v in x.ravel()) / 2).astype(x.dtype),
    sample=unary(),
    doc="Half the sum of squares.",
)


# *** ArgMax, ArgMin ***


def _arg(name: str, worst: Callable[[DType], Any]) -> Any:
    """The kernel factory of ArgMax (`argmax`) or ArgMin (`argmin`).

    The result is the index of the first of equal elements. NaN counts as `worst(dtype)`.
    """

    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        f, t, to = getattr(xp, name), attrs["T"], converter(xp, attrs["output_type"])
        last = worst(t) if xp is np else float("-inf" if name == "argmax" else "inf")
        if t is dtypes.bool_ and xp is not np:
            to_numbers = converter(xp, dtypes.uint8)
            f = lambda x, axis: getattr(xp, name)(to_numbers(x), axis=axis)

        def kernel(x: Any, dimension: Any) -> Any:
            if dimension.ndim:
                raise InvalidArgumentError(
                    f"dim must be a scalar, but received tensor of shape: {show(dimension.shape)}"
                )
            axis = int(dimension)
            if not -x.ndim <= axis < x.ndim:
                raise InvalidArgumentError(f"Expected dimension in the range [{-x.ndim}, {x.ndim}), but got {axis}")
            if not x.shape[axis]:
                raise InvalidArgumentError(f"Reduction axis {axis} is empty in shape {show(x.shape)}")
            if t in FLOATING:
                x = xp.where(xp.isnan(x), last, x)
            return to(f(x, axis=axis))

        return kernel

    return factory


def _arg_shape(c: Inference) -> Sequence[Shape]:
    shapes.with_rank(c.shapes[1], 0)
    x = c.shapes[0]
    if x is None or len(x) <= 1:
        return [None if x is None else ()]
    axis = c.scalar(1)
    if axis is None:
        return [(None,) * (len(x) - 1)]
    if not -len(x) <= axis < len(x):
        raise ValueError(f"Dimension must be in the range [{-len(x)}, {len(x)}), but got {axis}")
    return [x[: axis % len(x)] + x[axis % len(x) + 1 :]]


def _arg_oracle(choose: Any) -> Any:
    def oracle(x: np.ndarray, dimension: np.ndarray, output_type: DType = int64) -> np.ndarray:
        rows = np.moveaxis(x, int(dimension), -1)
        out = np.empty(rows.shape[:-1], output_type.numpy)
        for i in np.ndindex(out.shape):
            values = rows[i].astype(float).tolist()
            numbers = [v for v in values if v == v]
            out[i] = values.index(choose(numbers)) if numbers else 0
        return out

    return oracle


def _arg_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    found = [
        case(draw(rng, dtype, s), np.array(a, i), output_type=o)
        for s, a, i, o in (
            ((4,), 0, np.int32, int64),
            ((2, 3), 1, np.int64, int32),
            ((2, 3), -2, np.int32, int64),
            ((2, 1, 3), 0, np.int32, int32),
            ((0, 3), 1, np.int32, int64),
        )
    ]
    if dtype in FLOATING:
        x = np.array([[np.nan, 1, 2, np.nan, 2], [np.nan] * 5, [-np.inf, np.inf, 0, 0, 0]]).astype(dtype.numpy)
        found.append(case(x, np.array(1, np.int32)))
    return found


_OUT = {dtypes.int16, dtypes.uint16, int32, int64}

for _type, _name, _worst, _choose, _types, _doc in (
    ("ArgMax", "argmax", least, max, _OUT, "The index of the greatest element along a dimension; NaN is skipped."),
    ("ArgMin", "argmin", greatest, min, INDEX, "The index of the least element along a dimension; NaN is skipped."),
):
    op(
        _type,
        "input: T, dimension: Tidx",
        "output: output_type",
        {"T": REAL | {dtypes.bool_}, "Tidx": _AXES, "output_type": type_attr(_types, int64)},
        shape=_arg_shape,
        kernel=_arg(_name, _worst),
        xp=True,
        host=("dimension",),
        form=extreme(_name == "argmax"),
        grad=NOT_DIFFERENTIABLE,
        batch=shifting_axes(1, 0),
        facts=Facts(dynamic_shape=True, cost=flops_per_input(1)),
        oracle=_arg_oracle(_choose),
        sample=_arg_samples,
        doc=_doc,
    )
