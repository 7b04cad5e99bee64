"""Matrix products: MatMul, BatchMatMul and its later versions.

Source: TensorFlow's ops of the same names. Half precision is multiplied in float32, by the BLAS library.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from headrace import shapes
from headrace.dtypes import INDEX, INEXACT, UNSIGNED, DType, int8, int16, int32, uint8
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.opdef import Facts, case, op
from headrace.opkit import forms
from headrace.opkit.batch_products import batch_matmul, matmul
from headrace.opkit.elementwise import conj, widened
from headrace.opkit.jvp_rules import multilinear
from headrace.opkit.namespaces import converter
from headrace.opkit.shape_rules import then
from headrace.opkit.testing.samples import draw
from headrace.shapes import Shape, broadcast, merge, merge_dim, show, with_rank, with_rank_at_least


def _product_cost(ins: Sequence[Shape], outs: Sequence[Shape]) -> float | None:
    """The cost of 2·m·k·n for each product of the batch.

    m·k·n is the root of the product of the sizes m·k, k·n and m·n, which are the same for transposed matrices.
    """
    x, y, out = ins[0], ins[1], outs[0]
    if x is None or y is None or out is None:
        return None
    sizes = [shapes.size(s[-2:]) for s in (x, y, out)]
    batch = shapes.size(out[:-2])
    if batch is None or None in sizes:
        return None
    return 2.0 * batch * math.sqrt(math.prod(sizes))  # type: ignore[arg-type]


_FACTS = Facts(cost=_product_cost, blas=True, total=(), rounds_once=True)


def _product_dims(x: Sequence[Any], y: Sequence[Any], turn_x: bool, turn_y: bool) -> tuple[Any, Any]:
    """Numbers of rows and columns of a matrix product.

    Raises:
      ValueError: the inner dimensions differ.
    """
    rows, inner = (x[-1], x[-2]) if turn_x else (x[-2], x[-1])
    inner2, columns = (y[-1], y[-2]) if turn_y else (y[-2], y[-1])
    merge_dim(inner, inner2)
    return rows, columns


def _gradients(
    product: Callable[..., Any], x: Callable[[], Any], y: Callable[[], Any], dy: Any, turn_x: bool, turn_y: bool
) -> list[Callable[[], Any]]:
    """Functions that make the gradients of both factors, given functions that make the factors.

    `product(x, y, turn_x, turn_y)` builds a product; a `turn_` flag transposes its factor first.
    """
    return [
        lambda: product(y(), dy, turn_y, True) if turn_x else product(dy, y(), False, not turn_y),
        lambda: product(dy, x(), True, turn_x) if turn_y else product(x(), dy, not turn_x, False),
    ]


def _products(x: np.ndarray, y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The oracle: matrix products by definition, in a wide dtype."""
    wide = np.complex128 if dtype.kind == "c" else np.int64 if dtype.kind in "iu" else np.float64
    return (x.astype(wide)[..., :, :, None] * y.astype(wide)[..., None, :, :]).sum(-2).astype(dtype)


def _turned(shape: tuple[int, ...], turn: bool) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2]) if turn else shape


_TURNS = ((False, False), (True, False), (False, True), (True, True))


# *** MatMul ***


def _checked(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Returns a product that raises `ValueError` for shapes that do not fit."""

    def product(x: Any, y: Any) -> Any:
        batches = zip(reversed(x.shape[:-2]), reversed(y.shape[:-2]), strict=False)
        if x.shape[-1] != y.shape[-2] or any(m != n and 1 not in (m, n) for m, n in batches):
            raise ValueError("the shapes do not fit")
        return f(x, y)

    return product


def _matmul_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    # `np.dot` would ask for overrides first
    dot = widened(np.ndarray.dot if xp is np else _checked(xp.matmul), attrs["T"], xp)
    turn_a, turn_b = attrs["transpose_a"], attrs["transpose_b"]

    def kernel(a: Any, b: Any) -> Any:
        if a.ndim != 2 or b.ndim != 2:
            raise InvalidArgumentError(f"In[0] and In[1] must be matrices: {show(a.shape)} vs. {show(b.shape)}")
        try:
            return dot(a.T if turn_a else a, b.T if turn_b else b)
        except ValueError:
            raise InvalidArgumentError(
                f"Matrix size-incompatible: In[0]: {show(a.shape)}, In[1]: {show(b.shape)} "
                f"(transpose_a={turn_a}, transpose_b={turn_b})"
            ) from None

    return kernel


def _matmul_shape(c: Inference) -> Sequence[Shape]:
    a, b = (with_rank(s, 2) for s in c.shapes)
    return [_product_dims(a, b, c.attrs["transpose_a"], c.attrs["transpose_b"])]


def _matmul_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    def product(x: Any, y: Any, turn_x: bool, turn_y: bool) -> Any:
        return b.MatMul(x, y, transpose_a=turn_x, transpose_b=turn_y)

    turns = n.attrs["transpose_a"], n.attrs["transpose_b"]
    return list(_gradients(product, lambda: conj(b, n.a), lambda: conj(b, n.b), dy, *turns))


def _matrices(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [
        case(
            draw(rng, dtype, _turned((m, k), turn_a)),
            draw(rng, dtype, _turned((k, n), turn_b)),
            transpose_a=turn_a,
            transpose_b=turn_b,
        )
        for m, k, n in ((2, 3, 4), (1, 1, 1), (2, 0, 3), (0, 2, 3))
        for turn_a, turn_b in _TURNS
    ]


def _matmul_oracle(a: np.ndarray, b: np.ndarray, transpose_a: bool, transpose_b: bool) -> np.ndarray:
    return _products(a.T if transpose_a else a, b.T if transpose_b else b, a.dtype)


op(
    "MatMul",
    "a: T, b: T",
    "product: T",
    {
        "transpose_a": False,
        "transpose_b": False,
        "T": INEXACT | INDEX | UNSIGNED,
        "grad_a": False,  # grad_a and grad_b are TensorFlow's hints for tuning
        "grad_b": False,
    },
    shape=_matmul_shape,
    kernel=_matmul_kernel,
    xp=True,
    grad=_matmul_grad,
    jvp=multilinear("a", "b"),
    batch=matmul,
    form=forms.matrix_product,
    facts=_FACTS,
    oracle=_matmul_oracle,
    sample=_matrices,
    doc="The product of two matrices, each transposed first if its attribute says so.",
)


# *** BatchMatMul: products of the matrices in the last two dimensions ***


def _batch_kernel(broadcasts: bool) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        adj_x, adj_y = attrs["adj_x"], attrs["adj_y"]
        out = attrs.get("Tout", attrs.get("T"))
        multiply: Any = np.multiply
        product: Any = np.matmul
        if xp is not np:
            multiply, product = _checked(xp.multiply), _checked(xp.matmul)
        product = widened(product, out, xp)
        is_real = not out.is_complex  # infinity times a complex number is another one by the two functions
        to = converter(xp, out) if "Tout" in attrs else None

        def adjoint(x: Any) -> Any:
            turned = xp.matrix_transpose(x) if xp is not np else x.swapaxes(-1, -2)
            return turned if is_real else xp.conj(turned)

        def kernel(x: Any, y: Any) -> Any:
            for i, m in enumerate((x, y)):
                if m.ndim < 2:
                    raise InvalidArgumentError(f"In[{i}] ndims must be >= 2: {m.ndim}")
            if not broadcasts and x.shape[:-2] != y.shape[:-2]:
                raise InvalidArgumentError(
                    f"In[0] and In[1] must have the same batch dimensions: {show(x.shape)} vs. {show(y.shape)}"
                )
            given = x.shape, y.shape
            if to is not None:
                x, y = to(x), to(y)
            x, y = adjoint(x) if adj_x else x, adjoint(y) if adj_y else y
            try:
                if x.shape[-1] == y.shape[-2] == 1 and is_real:
                    return multiply(x, y)  # the library of matrix products takes several times as long
                return product(x, y)
            except ValueError:
                raise InvalidArgumentError(_mismatch(*given, adj_x, adj_y)) from None

        return kernel

    return factory


def _mismatch(x: tuple[int, ...], y: tuple[int, ...], adj_x: bool, adj_y: bool) -> str:
    both = f"In[0]: {show(x)}, In[1]: {show(y)}"
    if x[-2 if adj_x else -1] != y[-1 if adj_y else -2]:
        return f"Matrix size-incompatible: {both} (adj_x={adj_x}, adj_y={adj_y})"
    return f"In[0] and In[1] must have compatible batch dimensions: {both}"


def _batch_shape(together: Callable[[Shape, Shape], Shape]) -> Any:
    """The shape rule of a batched product; `together` computes the batch dimensions."""

    def rule(c: Inference) -> Sequence[Shape]:
        x, y = (with_rank_at_least(s, 2) for s in c.shapes)
        if x is None or y is None:
            return [None]
        batch = together(x[:-2], y[:-2])
        dims = _product_dims(x, y, c.attrs["adj_x"], c.attrs["adj_y"])
        return [None if batch is None else (*batch, *dims)]

    return rule


def _batch_grad(broadcasts: bool) -> Any:
    def grad(b: Any, n: Any, dy: Any) -> list[Any]:
        x, y = n.x, n.y

        def product(p: Any, q: Any, adj_p: bool, adj_q: bool) -> Any:
            attrs: dict[str, Any] = {"adj_x": adj_p, "adj_y": adj_q}
            if "Tout" in n.attrs:
                attrs["Tout"] = n.attrs["Ta"] if x is not p and x is not q else n.attrs["Tb"]
            return b.make(n.op.type, [p, q], attrs)

        both = _gradients(product, lambda: x, lambda: y, dy, n.attrs["adj_x"], n.attrs["adj_y"])
        xs, ys = n.op.inputs[0].shape, n.op.inputs[1].shape
        if not broadcasts or (shapes.is_full(xs) and shapes.is_full(ys) and xs[:-2] == ys[:-2]):
            return list(both)

        @functools.cache
        def axes() -> Any:
            batches = (b.StridedSlice(b.Shape(m), [0], [-2], [1], begin_mask=1) for m in (x, y))
            return b.BroadcastGradientArgs(*batches)

        return [
            then(both[0], lambda g: b.Reshape(b.Sum(g, axes()[0], keep_dims=False), b.Shape(x))),
            then(both[1], lambda g: b.Reshape(b.Sum(g, axes()[1], keep_dims=False), b.Shape(y))),
        ]

    return grad


_SAME = (
    ((2, 3), (3, 4)),
    ((2, 3, 1), (2, 1, 2)),
    ((2, 2, 3), (2, 3, 1)),
    ((0, 2, 3), (0, 3, 2)),
    ((1, 2, 2, 0), (1, 2, 0, 3)),
)
_BROADCAST = (((2, 1, 2, 3), (3, 3, 2)), ((2, 3), (2, 3, 1)), ((2, 2, 3), (1, 3, 2)))


def _batches(pairs: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], out: bool = False) -> Any:
    def sample(rng: np.random.Generator, dtype: DType) -> list[Any]:
        more = {"Tout": int32 if dtype in (int8, uint8) else dtype} if out else {}
        return [
            case(draw(rng, dtype, _turned(s, ax)), draw(rng, dtype, _turned(t, ay)), adj_x=ax, adj_y=ay, **more)
            for s, t in pairs
            for ax, ay in _TURNS
        ]

    return sample


def _batch_oracle(x: np.ndarray, y: np.ndarray, adj_x: bool, adj_y: bool, Tout: DType | None = None) -> np.ndarray:
    x, y = (np.swapaxes(m, -1, -2).conj() if adj else m for m, adj in ((x, adj_x), (y, adj_y)))
    return _products(x, y, x.dtype if Tout is None else Tout.numpy)


_ADJ = {"adj_x": False, "adj_y": False, "grad_x": False, "grad_y": False}
_NARROW = INEXACT | INDEX | {uint8, int8, int16}

for _type, _ins, _outs, _attrs, _broadcasts, _sample, _doc in (
    (
        "BatchMatMul",
        "x: T, y: T",
        "output: T",
        {"T": INEXACT | INDEX},
        False,
        _batches(_SAME),
        "Products of matrices; the other dimensions are the same in both.",
    ),
    (
        "BatchMatMulV2",
        "x: T, y: T",
        "output: T",
        {"T": INEXACT | INDEX | UNSIGNED | {int16}},
        True,
        _batches(_SAME + _BROADCAST),
        "Products of matrices; the other dimensions broadcast.",
    ),
    (
        "BatchMatMulV3",
        "x: Ta, y: Tb",
        "output: Tout",
        {"Ta": _NARROW, "Tb": _NARROW, "Tout": INEXACT | INDEX | {int16}},
        True,
        _batches(_SAME + _BROADCAST, out=True),
        "Products of matrices in the dtype `Tout`; the other dimensions broadcast.",
    ),
):
    op(
        _type,
        _ins,
        _outs,
        _attrs | _ADJ,
        shape=_batch_shape(broadcast if _broadcasts else merge),
        kernel=_batch_kernel(_broadcasts),
        xp=True,
        grad=_batch_grad(_broadcasts),
        jvp=multilinear("x", "y"),
        batch=batch_matmul,
        form=None if "Tout" in _attrs else forms.batch_product,
        facts=_FACTS,
        oracle=_batch_oracle,
        sample=_sample,
        doc=_doc,
    )
