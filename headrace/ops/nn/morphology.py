"""Grey-scale dilation of images: Dilation2D and its gradients.

Source: TensorFlow's ops of the same names. Each element of the result is the maximum of the sums of a window element
and its filter element; padding does not count. The gradients flow to the first maximum. NaN is never the maximum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from headrace.dtypes import REAL, DType, float32
from headrace.errors import InvalidArgumentError, UnimplementedError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, list_attr, op, string_attr
from headrace.opkit.arrays import check_size
from headrace.opkit.batch_rules import folding
from headrace.opkit.elementwise import HALF
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import converter
from headrace.opkit.testing.samples import draw
from headrace.opkit.testing.window_samples import windows_of_axis
from headrace.opkit.window_arrays import full, kept_in, put
from headrace.opkit.windows import Axis, Sliding, taps
from headrace.ops.nn.greatest import lowest
from headrace.shapes import Shape, merge_dim, show, size, with_rank

Array: TypeAlias = np.ndarray
Axes: TypeAlias = tuple[Axis, ...]

_TANGENT = "_Dilation2DTangent"

# *** Geometry ***


def _sliding(type: str, attrs: Mapping[str, Any]) -> Sliding:
    """The windows that the attributes say.

    Raises:
      ValueError: there are too many or too few of them, or they do not move.
    """
    strides, rates = tuple(attrs["strides"]), tuple(attrs["rates"])
    for what, values in (("stride", strides), ("rate", rates)):
        if len(values) != 4:
            raise ValueError(f"{type} requires the {what} attribute to contain 4 values, but got: {len(values)}")
        if min(values) < 1:
            raise ValueError(f"{what.capitalize()} must be > 0, but got {min(values)}")
    return Sliding(strides, rates, attrs["padding"], (), (1, 2), 3)


def _geometry(s: Sliding, x: tuple[int, ...], w: tuple[int, ...]) -> Axes:
    for what, shape, rank in (("input", x, 4), ("filter", w, 3)):
        if len(shape) != rank:
            raise InvalidArgumentError(f"{what} must be {rank}-dimensional: {show(shape)}")
    for what, values in (("Stride", s.strides), ("Rate", s.dilations)):
        if any(values[i] != 1 for i in s.others):
            raise UnimplementedError(f"{what} is only supported across spatial dimensions, got {list(values)}")
    if x[3] != w[2]:
        raise InvalidArgumentError(f"input and filter must have the same depth: {x[3]} vs {w[2]}")
    return tuple(s.axis(i, x[i], k) for i, k in zip(s.spatial, w, strict=False))


# *** Kernels ***


def _weights(xp: Any, w: Any) -> Any:
    """The elements of a filter, [elements of a window, channels]."""
    return xp.reshape(w, (w.shape[0] * w.shape[1], w.shape[2]))


def _greatest(xp: Any, x: Any, w: Any, axes: Axes, t: DType) -> tuple[Any, Any]:
    """Greatest sum of each window, and the number of its element of the window.

    The sum is in float32 for half precision. The number is 0 if no sum is greater than the lowest finite number.
    """
    if t in HALF:
        widen = converter(xp, float32)
        x, w = widen(x), widen(w)
    y = full(xp, (x.shape[0], *(a.count for a in axes), x.shape[-1]), lowest(t), x)
    which = xp.zeros(y.shape, dtype=xp.int32, device=x.device)
    weights = _weights(xp, w)
    for k, (windows, elements) in enumerate(taps(axes)):
        at = (slice(None), *windows, slice(None))
        total = x[:, *elements, :] + weights[k, :]
        better = total > y[*at]
        put(xp, y, at, total, better)
        put(xp, which, at, xp.asarray(k, dtype=xp.int32, device=x.device), better)
    return y, which


def _tangent_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    s, t = _sliding(_TANGENT, attrs), attrs["T"]

    def kernel(x: Array, w: Array, dx: Array, dw: Array) -> Array:
        axes = _geometry(s, x.shape, w.shape)
        if dx.shape != x.shape or dw.shape != w.shape:
            raise InvalidArgumentError(
                f"the tangents must have the shapes {show(x.shape)} and {show(w.shape)}, "
                f"got {show(dx.shape)} and {show(dw.shape)}"
            )
        _, which = _greatest(xp, x, w, axes, t)
        out, weights = full(xp, which.shape, 0, dx), _weights(xp, dw)
        for k, (windows, elements) in enumerate(taps(axes)):
            at = (slice(None), *windows, slice(None))
            put(xp, out, at, dx[:, *elements, :] + weights[k, :], which[*at] == k)
        return out

    return kernel


def _kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    s, t = _sliding("Dilation2D", attrs), attrs["T"]
    narrow = converter(xp, t)

    def kernel(x: Array, w: Array) -> Array:
        axes = _geometry(s, x.shape, w.shape)
        check_size((x.shape[0], *(a.count for a in axes), x.shape[-1]), t)
        return narrow(_greatest(xp, x, w, axes, t)[0])

    return kernel


def _grad_kernel(type: str, by_filter: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        s, t = _sliding(type, attrs), attrs["T"]
        wide = float32 if t in HALF else t
        widen, narrow = converter(xp, wide), converter(xp, t)

        def kernel(x: Array, w: Array, g: Array) -> Array:
            axes = _geometry(s, x.shape, w.shape)
            y = (x.shape[0], *(a.count for a in axes), x.shape[-1])
            if g.shape != y:
                raise InvalidArgumentError(
                    f"out_backprop has incompatible size: got {show(g.shape)}, expected {show(y)}"
                )
            g = widen(g)
            _, which = _greatest(xp, x, w, axes, t)
            out = full(xp, _weights(xp, w).shape if by_filter else x.shape, 0, g)
            for k, (windows, elements) in enumerate(taps(axes)):
                at = (slice(None), *windows, slice(None))
                part = kept_in(xp, which[*at] == k, g[*at])
                if by_filter:
                    out[k, :] += xp.sum(part, axis=(0, 1, 2), dtype=out.dtype)
                else:
                    out[:, *elements, :] += part
            return narrow(xp.reshape(out, w.shape) if by_filter else out)

        return kernel

    return factory


# *** Shapes ***


def _shape(c: Inference) -> Sequence[Shape]:
    s = _sliding("Dilation2D", c.attrs)
    x, w = with_rank(c.shapes[0], 4), with_rank(c.shapes[1], 3)
    assert x is not None
    assert w is not None
    return [(x[0], *(s.dim(i, x[i], k) for i, k in zip(s.spatial, w, strict=False)), merge_dim(x[3], w[2]))]


def _grad_shape(type: str, like: int) -> Any:
    def rule(c: Inference) -> Sequence[Shape]:
        _sliding(type, c.attrs)
        return [with_rank(c.shapes[like], 4 - like)]

    return rule


def _cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
    y, w = size(ins[2] if len(ins) == 3 else outs[0]), ins[1]
    window = None if w is None else size(w[:2])
    return None if y is None or window is None else 4.0 * y * window


# *** Gradients ***


def _same(n: Any) -> dict[str, Any]:
    return {k: n.attrs[k] for k in ("strides", "rates", "padding")}


def _grad(b: Any, n: Any, dy: Any) -> list[Any]:
    return [
        lambda: b.Dilation2DBackpropInput(n.input, n.filter, dy, **_same(n)),
        lambda: b.Dilation2DBackpropFilter(n.input, n.filter, dy, **_same(n)),
    ]


def _jvp(b: Any, n: Any, dx: Any, dw: Any) -> list[Any]:
    moved = [b.ZerosLike(like) if d is None else d for like, d in ((n.input, dx), (n.filter, dw))]
    return [b.make(_TANGENT, [n.input, n.filter, *moved], _same(n))]


def _grad_grad(which: int) -> Any:
    """Gradient rule of the gradient by the input (0) or by the filter (1).

    The op is linear in the gradient of the result.
    """

    def rule(b: Any, n: Any, h: Any) -> list[Any]:
        def by_grad() -> Any:
            moved = [h, b.ZerosLike(n.filter)] if which == 0 else [b.ZerosLike(n.input), h]
            return b.make(_TANGENT, [n.input, n.filter, *moved], _same(n))

        return [None, None, by_grad]

    return rule


# *** How the tests exercise them ***


def _first_greatest(x: Array, w: Array, **attrs: Any) -> Any:
    """Yields each position of the result, and the greatest sum there with its operands.

    The second element is (sum, position in the input, position in the filter).
    """
    along = [
        windows_of_axis(x.shape[i], w.shape[i - 1], attrs["strides"][i], attrs["rates"][i], attrs["padding"], ())
        for i in (1, 2)
    ]
    for n, i, j, c in np.ndindex(len(x), len(along[0]), len(along[1]), x.shape[3]):
        sums = [
            (float(x[n, p, q, c]) + float(w[k, m, c]), (n, p, q, c), (k, m, c))
            for k, p in along[0][i]
            for m, q in along[1][j]
        ]
        yield (n, i, j, c), max(sums, key=lambda s: s[0])


def _oracle(x: Array, w: Array, **attrs: Any) -> Array:
    found = dict(_first_greatest(x, w, **attrs))
    out = np.empty([1 + max(p[i] for p in found) for i in range(4)], x.dtype)
    for p, (total, _, _) in found.items():
        out[p] = total
    return out


def _grad_oracle(which: int) -> Any:
    def oracle(x: Array, w: Array, g: Array, **attrs: Any) -> Array:
        out = np.zeros((x, w)[which].shape, np.float64)
        for p, (_, *places) in _first_greatest(x, w, **attrs):
            out[places[which]] += float(g[p])
        return out.astype(g.dtype)

    return oracle


def _tangent_oracle(x: Array, w: Array, dx: Array, dw: Array, **attrs: Any) -> Array:
    found = dict(_first_greatest(x, w, **attrs))
    out = np.empty([1 + max(p[i] for p in found) for i in range(4)], x.dtype)
    for p, (_, place, weight) in found.items():
        out[p] = dx[place] + dw[weight]
    return out


_CASES: tuple[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], ...] = (
    ((2, 3, 4, 2), (2, 2, 2), {"strides": [1, 1, 1, 1], "rates": [1, 1, 1, 1], "padding": "SAME"}),
    ((1, 5, 6, 1), (3, 2, 1), {"strides": [1, 1, 2, 1], "rates": [1, 2, 3, 1], "padding": "VALID"}),
)


def _samples(more: str) -> Any:
    """Test cases of images, a filter and further arrays named by `more`.

    The letters give their shapes: that of the images (x), filter (w) or result (y).
    """

    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        out = []
        for x, w, attrs in _CASES if dtype is float32 else _CASES[:1]:
            axes = _geometry(_sliding("Dilation2D", attrs), x, w)
            shapes = {"x": x, "w": w, "y": (x[0], *(a.count for a in axes), x[-1])}
            out.append(case(*(draw(rng, dtype, shapes[a], -9, 9) for a in f"xw{more}"), **attrs))
        return out

    return sample


# *** Records ***

_ATTRS: dict[str, Any] = {
    "T": REAL,
    "strides": list_attr("int", minimum=4),
    "rates": list_attr("int", minimum=4),
    "padding": string_attr(allowed=("SAME", "VALID")),
}

op(
    "Dilation2D",
    "input: T, filter: T",
    "output: T",
    _ATTRS,
    shape=_shape,
    kernel=_kernel,
    xp=True,
    grad=_grad,
    jvp=_jvp,
    batch=folding(0),
    facts=Facts(cost=_cost, fresh=True),
    oracle=_oracle,
    sample=_samples(""),
    doc="The greatest sum of the elements of each window and those of a filter [height, width, channels].",
)
for _type, _output, _which, _doc in (
    ("Dilation2DBackpropInput", "in_backprop", 0, "input: each goes to the element whose sum was the greatest"),
    ("Dilation2DBackpropFilter", "filter_backprop", 1, "filter: each goes to the element whose sum was the greatest"),
):
    op(
        _type,
        "input: T, filter: T, out_backprop: T",
        f"{_output}: T",
        _ATTRS,
        shape=_grad_shape(_type, _which),
        kernel=_grad_kernel(_type, _which == 1),
        xp=True,
        grad=_grad_grad(_which),
        jvp=linear("out_backprop"),
        batch=None if _which else folding(0, 2),
        facts=Facts(cost=_cost, fresh=True),
        oracle=_grad_oracle(_which),
        sample=_samples("y"),
        doc=f"The gradient of Dilation2D by its {_doc}.",
    )
op(
    _TANGENT,
    "input: T, filter: T, by_input: T, by_filter: T",
    "output: T",
    _ATTRS,
    shape=_shape,
    kernel=_tangent_kernel,
    xp=True,
    grad=lambda b, n, dy: [None, None, *_grad(b, n, dy)],
    jvp=linear("by_input", "by_filter"),
    facts=Facts(cost=_cost, fresh=True),
    oracle=_tangent_oracle,
    sample=_samples("xw"),
    doc="The sum of the elements of `by_input` and `by_filter` that lie where the greatest sums of Dilation2D are.",
)
