"""Fractional pooling: FractionalMaxPool, FractionalAvgPool and their gradients.

Source: TensorFlow's ops of the same names; Graham, "Fractional Max-Pooling", 2014. Rows and columns are divided into
windows of two sizes, which differ by one, in a random order. With given seeds the order is TensorFlow's; without seeds
it is drawn once for each node and session, as in TensorFlow.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from headrace.dtypes import INTEGER, DType, bool_, float32, float64, int32, int64
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, flops_per_input, list_attr, op
from headrace.opkit.arrays import check_size, dims, shape_from
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, converter
from headrace.opkit.testing.samples import draw
from headrace.opkit.window_arrays import full, kept_in
from headrace.ops.nn.greatest import lowest
from headrace.resources.philox import Philox, Stream
from headrace.shapes import Dim, Shape, show, with_rank

if TYPE_CHECKING:
    from headrace.ir.kernel import KernelContext

Array: TypeAlias = np.ndarray
Cuts: TypeAlias = tuple[Array, Array]  # where the windows along an axis begin, and behind their ends

_CONTAINER = "_fractional"
_TYPES = frozenset({float32, float64, int32, int64})

# *** Sequences ***


def _sequence(stream: Stream, length: int, count: int, pseudo: bool) -> tuple[Array, Stream]:
    """The `count` + 1 cuts of an axis, and the stream behind what they took."""
    if pseudo:
        alpha = length / count
        k = length // count
        greatest = min((k + 2) / alpha - 1, (length + 1 - k) / alpha - (count - 1))
        u = float(stream.uniform(1, float64)[0]) * greatest
        inner = [math.ceil(alpha * (i + u)) - 1 for i in range(1, count)]
        return np.array([0, *inner, length], np.int64), stream.skip(1)
    sizes = [length // count + (i < length % count) for i in range(count)]
    for i, word in enumerate(stream.words(count - 1).tolist()):
        other = i + word % (count - i)
        sizes[i], sizes[other] = sizes[other], sizes[i]
    return np.cumsum([0, *sizes], dtype=np.int64), stream.skip(-(-count // 4))


def _counts(type: str, x: tuple[int, ...], ratios: Sequence[float]) -> tuple[int, int]:
    """Number of rows and columns of the result."""
    if len(x) != 4:
        raise InvalidArgumentError(f"{type}: tensor_in must be 4-dimensional, got {show(x)}")
    for ratio in ratios:
        if not ratio >= 1:
            raise InvalidArgumentError(f"pooling_ratio cannot be smaller than 1, got: {ratio}")
    if ratios[0] != 1 or ratios[3] != 1:
        raise UnimplementedError(
            f"{type} is not yet supported on the batch nor channel dimension, got the ratios {list(ratios)}"
        )
    for i, ratio in enumerate(ratios):
        if x[i] < ratio:
            raise InvalidArgumentError(
                f"Pooling ratio is higher than input dimension size for dimension {i}. "
                f"Input dim size: {x[i]} pooling ratio: {ratio}"
            )
    return _count(x[1], ratios[1]), _count(x[2], ratios[2])


def _count(length: int, ratio: float) -> int:
    return math.floor(np.float32(length) / np.float32(ratio))


# *** Windows between cuts ***


def _cuts(sequence: Array, length: int, overlapping: bool) -> Cuts:
    return sequence[:-1], np.minimum(sequence[1:] + overlapping, length)


def _given(name: str, sequence: Array, count: int, length: int, overlapping: bool) -> Cuts:
    """The windows that a sequence says, of which there must be `count`."""
    cuts = np.array(dims(sequence), np.int64)
    if len(cuts) != count + 1:
        raise InvalidArgumentError(f"{name} must have {count + 1} elements for {count} windows, but got {len(cuts)}")
    if cuts.min() < 0 or (np.diff(cuts) < 1).any() or cuts[-2] >= length:
        raise InvalidArgumentError(
            f"{name} must not be negative and must increase, within the {length} elements, got {cuts.tolist()}"
        )
    return _cuts(cuts, length, overlapping)


def _steps(cuts: Cuts) -> Iterator[tuple[Array, Array]]:
    """Yields, for each k, the windows with a k-th element and its positions."""
    first, behind = cuts
    for k in range(int((behind - first).max(initial=0))):
        windows = np.flatnonzero(first + k < behind)
        yield windows, first[windows] + k


def _reduced(f: Any, x: Array, axis: int, cuts: Cuts) -> Array:
    """Reduces the windows along `axis`, 1 or 2, by the ufunc `f`."""
    before: tuple[Any, ...] = (slice(None),) * axis
    out: Any = None
    for windows, elements in _steps(cuts):
        part = x[*before, elements]
        if out is None:  # every window has a first element
            out = part
        else:
            out[*before, windows] = f(out[*before, windows], part)
    return out


def _spread(g: Array, axis: int, cuts: Cuts, length: int) -> Array:
    """The transpose of sums along an axis."""
    before: tuple[Any, ...] = (slice(None),) * axis
    out = np.zeros((*g.shape[:axis], length, *g.shape[axis + 1 :]), g.dtype)
    for windows, elements in _steps(cuts):  # whose elements are different ones, as cuts increase
        out[*before, elements] += g[*before, windows]
    return out


def _greatest(x: Array, rows: Cuts, columns: Cuts) -> Array:
    f = np.maximum if x.dtype.kind == "i" else np.fmax
    y = _reduced(f, _reduced(f, x, 1, rows), 2, columns)
    return y if x.dtype.kind == "i" else np.fmax(y, x.dtype.type(lowest(_dtype(x))))


def _dtype(x: Array) -> DType:
    return float32 if x.dtype == np.float32 else float64


def _sizes(rows: Cuts, columns: Cuts) -> Array:
    """Number of elements of each window; broadcasts to the shape of the result."""
    across, along = (behind - first for first, behind in (rows, columns))
    return (across[:, None] * along).astype(np.float64)[:, :, None]


def _means(x: Array, rows: Cuts, columns: Cuts) -> Array:
    """Means of the windows, rounded towards zero for integers."""
    sums = _reduced(np.add, _reduced(np.add, x, 1, rows), 2, columns)
    return (
        np.trunc(sums / _sizes(rows, columns)).astype(x.dtype)
        if x.dtype.kind == "i"
        else (sums / _sizes(rows, columns).astype(x.dtype))
    )


# *** The same of any namespace of the array API standard ***


class _Portable:
    """Pooling of arrays of a namespace between cuts, which are numpy's.

    Elements are taken by their numbers. A window without a k-th element takes another one, which does not count.
    """

    def __init__(self, xp: Any, t: DType, like: Any) -> None:
        self.xp, self.dtype, self.like = xp, t, like

    def greatest(self, x: Any, rows: Cuts, columns: Cuts) -> Any:
        """As `_greatest`."""
        xp = self.xp
        if self.dtype in INTEGER:
            return self._reduced(xp.max, self._reduced(xp.max, x, 1, rows), 2, columns)
        numbers = xp.where(xp.isnan(x), xp.full_like(x, lowest(self.dtype)), x)
        y = self._reduced(xp.max, self._reduced(xp.max, numbers, 1, rows), 2, columns)
        return xp.maximum(y, xp.full_like(y, lowest(self.dtype)))

    def means(self, x: Any, rows: Cuts, columns: Cuts) -> Any:
        """As `_means`."""
        xp = self.xp
        sums = self._reduced(xp.sum, self._reduced(xp.sum, x, 1, rows), 2, columns)
        if self.dtype in INTEGER:
            exact = converter(xp, float64)(sums) / self.sizes(rows, columns, float64)
            return converter(xp, self.dtype)(xp.trunc(exact))
        return sums / self.sizes(rows, columns, self.dtype)

    def sizes(self, rows: Cuts, columns: Cuts, t: DType) -> Any:
        """As `_sizes`, of a dtype."""
        return constant(self.xp, _sizes(rows, columns).tolist(), t, self.like)

    def at_greatest(self, x: Any, y: Any, rows: Cuts, columns: Cuts) -> Iterator[tuple[_Step, _Step, Any]]:
        """Yields steps of rows and columns, and where the first greatest elements are."""
        xp = self.xp
        is_open = xp.ones(y.shape, dtype=xp.bool, device=y.device)
        across = self.steps(columns, x.shape[2])
        for down in self.steps(rows, x.shape[1]):
            for along in across:
                hit = is_open & (self.read(x, down, along) == y)
                hit = hit & xp.reshape(down.has, (-1, 1, 1)) & xp.reshape(along.has, (-1, 1))
                is_open = is_open ^ hit
                yield down, along, hit

    def steps(self, cuts: Cuts, length: int) -> list[_Step]:
        """For each k, the k-th elements of the windows along an axis of some length."""
        out = []
        for windows, elements in _steps(cuts):
            has, element = np.zeros(len(cuts[0]), np.bool_), np.zeros(len(cuts[0]), np.int64)
            used, window = np.zeros(length, np.bool_), np.zeros(length, np.int64)
            has[windows], element[windows] = True, elements
            used[elements], window[elements] = True, windows
            place = [(bool_, has), (int64, element), (bool_, used), (int64, window)]
            out.append(_Step(*[constant(self.xp, a.tolist(), t, self.like) for t, a in place]))
        return out

    def read(self, x: Any, down: _Step, along: _Step) -> Any:
        """The elements of `x` at steps of rows and columns, one a window."""
        return self.xp.take(self.xp.take(x, down.element, axis=1), along.element, axis=2)

    def written(self, values: Any, down: _Step, along: _Step) -> Any:
        """The array with the values of the windows at steps of rows and columns."""
        return self._written(self._written(values, 1, down), 2, along)

    def spread(self, g: Any, axis: int, cuts: Cuts, length: int) -> Any:
        """As `_spread`."""
        return functools.reduce(operator.add, [self._written(g, axis, s) for s in self.steps(cuts, length)])

    def _written(self, values: Any, axis: int, step: _Step) -> Any:
        out = self.xp.take(values, step.window, axis=axis)
        used = self.xp.reshape(step.used, (-1, *[1] * (3 - axis)))
        return self.xp.where(used, out, self.xp.zeros_like(out))

    def _reduced(self, f: Any, x: Any, axis: int, cuts: Cuts) -> Any:
        lead: tuple[Any, ...] = (slice(None),) * axis
        pairs = zip(cuts[0].tolist(), cuts[1].tolist(), strict=True)
        parts = [x[*lead, first:behind, ...] for first, behind in pairs]
        typed = {"dtype": x.dtype} if f is self.xp.sum else {}
        return self.xp.concat([f(part, axis=axis, keepdims=True, **typed) for part in parts], axis=axis)


class _Step(NamedTuple):
    """The k-th elements of windows along an axis.

    Attributes:
      has: for each window, whether it has one.
      element: its number in the array.
      used: for each element of the array, whether it is the k-th one of a window.
      window: the number of the window.
    """

    has: Any
    element: Any
    used: Any
    window: Any


def _at_greatest(x: Array, y: Array, rows: Cuts, columns: Cuts) -> Iterator[tuple[Any, Any, Array]]:
    """Yields windows, their elements, and a mask of the first greatest elements."""
    is_open = np.ones(y.shape, np.bool_)
    steps = list(_steps(columns))
    for some_rows, at_rows in _steps(rows):
        for some_columns, at_columns in steps:
            windows = (slice(None), some_rows[:, None], some_columns)
            elements = (slice(None), at_rows[:, None], at_columns)
            hit = is_open[windows] & (x[elements] == y[windows])
            is_open[windows] ^= hit
            yield windows, elements, hit


# *** Kernels ***


def _kernel(type: str, pool: Callable[[Array, Cuts, Cuts], Array]) -> Any:
    def factory(ctx: KernelContext, attrs: Mapping[str, Any]) -> Any:
        seeds, ratios = (attrs["seed"], attrs["seed2"]), attrs["pooling_ratio"]
        _require_ratios(ratios)
        if not attrs["deterministic"] and any(seeds):
            raise InvalidArgumentError(f"Both seed and seed2 should be 0 if deterministic is false, got {seeds}")
        state: Philox = ctx.step.session.lookup_or_create(_CONTAINER, Philox, ctx.node, lambda: Philox(*seeds))
        pseudo, overlapping = attrs["pseudo_random"], attrs["overlapping"]

        def kernel(x: Array) -> tuple[Array, Array, Array]:
            count = _counts(type, x.shape, ratios)
            rows, stream = _sequence(state.reserve(0), x.shape[1], count[0], pseudo)
            columns, _ = _sequence(stream, x.shape[2], count[1], pseudo)
            cuts = _cuts(rows, x.shape[1], overlapping), _cuts(columns, x.shape[2], overlapping)
            return pool(x, *cuts), rows, columns

        return kernel

    return factory


def _require_ratios(ratios: Sequence[float]) -> None:
    if len(ratios) != 4:
        raise ValueError(f"pooling_ratio field must specify 4 dimensions, got {list(ratios)}")


def _both(attrs: Mapping[str, Any], x: tuple[int, ...], y: tuple[int, ...], rows: Any, columns: Any) -> Any:
    """Windows of rows and columns from two inputs, for shapes of an input and result."""
    for what, shape in (("orig_input", x), ("out_backprop", y)):
        if len(shape) != 4:
            raise InvalidArgumentError(f"{what} must be 4-dimensional, got {show(shape)}")
    if x[0] != y[0] or x[3] != y[3] or not x[0]:
        raise InvalidArgumentError(f"Batch and channels must be alike and the batch not 0, got {show(x)} and {show(y)}")
    overlapping = attrs["overlapping"]
    return (
        _given("row_pooling_sequence", rows, y[1], x[1], overlapping),
        _given("col_pooling_sequence", columns, y[2], x[2], overlapping),
    )


def _of_greatest(attrs: Mapping[str, Any], x: Array, y: Array, rows: Array, columns: Array) -> Any:
    cuts = _both(attrs, x.shape, y.shape, rows, columns)
    return _at_greatest(x, _greatest(x, *cuts), *cuts)


def _same_shape(name: str, got: Array, wanted: Array) -> None:
    if got.shape != wanted.shape:
        raise InvalidArgumentError(f"{name} must have the shape {show(wanted.shape)}, got {show(got.shape)}")


def _max_grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Array, y: Array, g: Array, rows: Array, columns: Array) -> Array:
        _same_shape("out_backprop", g, y)
        dx = full(xp, x.shape, 0, x)
        if xp is not np:
            of, cuts = _Portable(xp, attrs["T"], x), _both(attrs, x.shape, y.shape, rows, columns)
            for down, along, hit in of.at_greatest(x, of.greatest(x, *cuts), *cuts):
                dx = dx + of.written(kept_in(xp, hit, g), down, along)
            return dx
        for windows, elements, hit in _of_greatest(attrs, x, y, rows, columns):
            dx[elements] += np.where(hit, g[windows], x.dtype.type(0))
        return dx

    return kernel


def _max_tangent_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(x: Array, y: Array, dx: Array, rows: Array, columns: Array) -> Array:
        _same_shape("grad", dx, x)
        dy = full(xp, y.shape, 0, x)
        if xp is not np:
            of, cuts = _Portable(xp, attrs["T"], x), _both(attrs, x.shape, y.shape, rows, columns)
            for down, along, hit in of.at_greatest(x, of.greatest(x, *cuts), *cuts):
                dy = dy + kept_in(xp, hit, of.read(dx, down, along))
            return dy
        for windows, elements, hit in _of_greatest(attrs, x, y, rows, columns):
            dy[windows] += np.where(hit, dx[elements], x.dtype.type(0))
        return dy

    return kernel


def _avg_grad_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    t = attrs["T"]

    def kernel(shape: Array, g: Array, rows: Array, columns: Array) -> Array:
        x = dims(shape)
        if len(x) != 4:
            raise InvalidArgumentError(
                f"original input tensor shape must be 1-dimensional and 4 elements, got {list(x)}"
            )
        check_size(x, float64)
        down, across = _both(attrs, x, g.shape, rows, columns)
        if xp is not np:
            of = _Portable(xp, t, g)
            parts = converter(xp, float64)(g) / of.sizes(down, across, float64)
            return converter(xp, t)(of.spread(of.spread(parts, 1, down, x[1]), 2, across, x[2]))
        parts = g / _sizes(down, across)  # summed in float64, of integers too
        return _spread(_spread(parts, 1, down, x[1]), 2, across, x[2]).astype(t.numpy)

    return kernel


def _avg_tangent_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(dx: Array, rows: Array, columns: Array) -> Array:
        y = (*dx.shape[:1], len(dims(rows)) - 1, len(dims(columns)) - 1, *dx.shape[3:])
        means = _means if xp is np else _Portable(xp, attrs["T"], dx).means
        return means(dx, *_both(attrs, dx.shape, y, rows, columns))

    return kernel


# *** Shapes ***


def _shape(c: Inference) -> Sequence[Shape]:
    ratios = c.attrs["pooling_ratio"]
    _require_ratios(ratios)
    x = with_rank(c.shapes[0], 4)
    assert x is not None
    y: list[Dim] = []
    for i, (d, ratio) in enumerate(zip(x, ratios, strict=True)):
        y.append(None if d is None or not ratio > 0 else _count(d, ratio))
        if ratio < 0:
            raise ValueError(f"Size computed for dim {i} is negative: the ratio is {ratio}")
    return [tuple(y), *((None if d is None else d + 1,) for d in y[1:3])]


def _like(i: int) -> Any:
    return lambda c: [with_rank(c.shapes[i], 4)]


def _avg_tangent_shape(c: Inference) -> Sequence[Shape]:
    x = with_rank(c.shapes[0], 4)
    assert x is not None
    cuts = [with_rank(s, 1) for s in c.shapes[1:]]
    return [(x[0], *(None if s is None or s[0] is None else s[0] - 1 for s in cuts), x[3])]


# *** Gradients ***

_MAX_TANGENT, _AVG_TANGENT = "_FractionalMaxPoolTangent", "_FractionalAvgPoolTangent"


def _flag(n: Any) -> dict[str, Any]:
    return {"overlapping": n.attrs["overlapping"]}


def _max_grad(b: Any, n: Any, dy: Any, *others: Any) -> list[Any]:
    return [None if dy is None else b.FractionalMaxPoolGrad(n.value, n.output, dy, *n.outputs[1:], **_flag(n))]


def _avg_grad(b: Any, n: Any, dy: Any, *others: Any) -> list[Any]:
    if dy is None:
        return [None]
    return [b.FractionalAvgPoolGrad(b.Shape(n.value, out_type=int64), dy, *n.outputs[1:], **_flag(n))]


def _max_jvp(b: Any, n: Any, dx: Any) -> list[Any]:
    return [b.make(_MAX_TANGENT, [n.value, n.output, dx, *n.outputs[1:]], _flag(n)), None, None]


def _avg_jvp(b: Any, n: Any, dx: Any) -> list[Any]:
    return [b.make(_AVG_TANGENT, [dx, *n.outputs[1:]], _flag(n)), None, None]


def _max_back(type: str) -> Any:
    """The rule of one of the two ops that are each other's transpose."""
    return lambda b, n, h: [
        None,
        None,
        lambda: b.make(type, [n.inputs[0], n.inputs[1], h, *n.inputs[3:]], _flag(n)),
        None,
        None,
    ]


def _avg_grad_grad(b: Any, n: Any, h: Any) -> list[Any]:
    return [None, b.make(_AVG_TANGENT, [h, *n.inputs[2:]], _flag(n)), None, None]


def _avg_tangent_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [b.FractionalAvgPoolGrad(b.Shape(n.grad, out_type=int64), dy, *n.inputs[1:], **_flag(n)), None, None]


# *** How the tests exercise them ***

_ROWS, _COLUMNS = np.array([0, 2, 3, 5], np.int64), np.array([0, 1, 3, 4], np.int64)


def _oracle_windows(x: tuple[int, ...], overlapping: bool) -> Iterator[tuple[Any, list[Any]]]:
    for n, i, j, c in np.ndindex(x[0], 3, 3, x[3]):
        rows = range(_ROWS[i], min(_ROWS[i + 1] + overlapping, x[1]))
        columns = range(_COLUMNS[j], min(_COLUMNS[j + 1] + overlapping, x[2]))
        yield (n, i, j, c), [(n, p, q, c) for p in rows for q in columns]


def _pooled(x: Array, overlapping: bool) -> Array:
    y = np.empty((len(x), 3, 3, x.shape[3]), x.dtype)
    for o, places in _oracle_windows(x.shape, overlapping):
        y[o] = max(x[p] for p in places)
    return y


def _max_grad_oracle(x: Array, y: Array, g: Array, *sequences: Array, overlapping: bool) -> Array:
    out = np.zeros(x.shape, x.dtype)
    for o, places in _oracle_windows(x.shape, overlapping):
        out[next(p for p in places if x[p] == y[o])] += g[o]
    return out


def _max_tangent_oracle(x: Array, y: Array, dx: Array, *sequences: Array, overlapping: bool) -> Array:
    out = np.zeros(y.shape, x.dtype)
    for o, places in _oracle_windows(x.shape, overlapping):
        out[o] = dx[next(p for p in places if x[p] == y[o])]
    return out


def _avg_grad_oracle(shape: Array, g: Array, *sequences: Array, overlapping: bool) -> Array:
    out = np.zeros(tuple(shape), np.float64)
    for o, places in _oracle_windows(tuple(shape), overlapping):
        for p in places:
            out[p] += float(g[o]) / len(places)
    return out.astype(g.dtype)


def _avg_tangent_oracle(dx: Array, *sequences: Array, overlapping: bool) -> Array:
    out = np.zeros((len(dx), 3, 3, dx.shape[3]), np.float64)
    for o, places in _oracle_windows(dx.shape, overlapping):
        out[o] = sum(float(dx[p]) for p in places) / len(places)
    return out.astype(dx.dtype)


def _samples(inputs: Callable[[Array, Array, Array], Sequence[Array]]) -> Any:
    """Cases of `inputs(x, y, g)`: an input, what it is pooled to, and an array as that."""

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for overlapping in (False, True):
            x = draw(rng, dtype, (2, 5, 4, 1), -50, 50)
            y = _pooled(x, overlapping)
            arrays = inputs(x, y, draw(rng, dtype, y.shape, -50, 50))
            out.append(case(*arrays, _ROWS, _COLUMNS, overlapping=overlapping))
        return out

    return sample


# *** Records ***

_ATTRS: dict[str, Any] = {
    "pooling_ratio": list_attr("float", minimum=4),
    "pseudo_random": False,
    "overlapping": False,
    "deterministic": False,
    "seed": 0,
    "seed2": 0,
}
_SEQUENCES = "row_pooling_sequence: int64, col_pooling_sequence: int64"
_COST = flops_per_input(6)

for _name, _pool, _gradient, _tangent, _what in (
    ("Max", _greatest, _max_grad, _max_jvp, "greatest element"),
    ("Avg", _means, _avg_grad, _avg_jvp, "mean"),
):
    op(
        f"Fractional{_name}Pool",
        "value: T",
        f"output: T, {_SEQUENCES}",
        {"T": _TYPES} | _ATTRS,
        shape=_shape,
        stateful=_kernel(f"Fractional{_name}Pool", _pool),
        grad=_gradient,
        jvp=_tangent,
        facts=Facts(effect="random", writes=True, cost=_COST),
        doc=f"The {_what} of each window, of which there are as many as the ratios say, and where they are cut.",
    )
op(
    "FractionalMaxPoolGrad",
    f"orig_input: T, orig_output: T, out_backprop: T, {_SEQUENCES}",
    "output: T",
    {"T": _TYPES, "overlapping": False},
    shape=_like(0),
    kernel=_max_grad_kernel,
    xp=True,
    host=("row_pooling_sequence", "col_pooling_sequence"),
    grad=_max_back(_MAX_TANGENT),
    jvp=linear("out_backprop"),
    facts=Facts(cost=_COST, fresh=True),
    oracle=_max_grad_oracle,
    sample=_samples(lambda x, y, g: (x, y, g)),
    doc="The gradient of FractionalMaxPool: that of each window goes to the first of its greatest elements.",
    differs="Finds the greatest elements again; TensorFlow fails unless they are those of `orig_output`.",
)
op(
    _MAX_TANGENT,
    f"orig_input: T, orig_output: T, grad: T, {_SEQUENCES}",
    "output: T",
    {"T": _TYPES, "overlapping": False},
    shape=_like(1),
    kernel=_max_tangent_kernel,
    xp=True,
    host=("row_pooling_sequence", "col_pooling_sequence"),
    grad=_max_back("FractionalMaxPoolGrad"),
    jvp=linear("grad"),
    facts=Facts(cost=_COST, fresh=True),
    oracle=_max_tangent_oracle,
    sample=_samples(lambda x, y, g: (x, y, x[::-1].copy())),
    doc="What `grad` has at the first of the greatest elements of each window of FractionalMaxPool.",
)
op(
    "FractionalAvgPoolGrad",
    f"orig_input_tensor_shape: int64, out_backprop: T, {_SEQUENCES}",
    "output: T",
    {"T": _TYPES, "overlapping": False},
    shape=lambda c: [with_rank(shape_from(c, 0), 4)],
    kernel=_avg_grad_kernel,
    xp=True,
    host=("orig_input_tensor_shape", "row_pooling_sequence", "col_pooling_sequence"),
    grad=_avg_grad_grad,
    jvp=linear("out_backprop"),
    facts=Facts(cost=_COST, fresh=True),
    oracle=_avg_grad_oracle,
    sample=_samples(lambda x, y, g: (np.array(x.shape, np.int64), g)),
    doc="The gradient of FractionalAvgPool, whose input has the shape `orig_input_tensor_shape`.",
    differs="Refuses sequences that do not fit the shapes, which TensorFlow does not check.",
)
op(
    _AVG_TANGENT,
    f"grad: T, {_SEQUENCES}",
    "output: T",
    {"T": _TYPES, "overlapping": False},
    shape=_avg_tangent_shape,
    kernel=_avg_tangent_kernel,
    xp=True,
    host=("row_pooling_sequence", "col_pooling_sequence"),
    grad=_avg_tangent_grad,
    jvp=linear("grad"),
    facts=Facts(cost=_COST, fresh=True),
    oracle=_avg_tangent_oracle,
    sample=_samples(lambda x, y, g: (x,)),
    doc="The means of the windows of FractionalAvgPool, cut as given.",
)
