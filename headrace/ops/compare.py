"""Comparisons, logic, and selection by conditions: Select, SelectV2, ClipByValue.

Source: TensorFlow's ops of the same names.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import FLOATING, NUMERIC, REAL, DType
from headrace.errors import InvalidArgumentError
from headrace.ir.infer import Inference
from headrace.ir.op_roles import Relation
from headrace.ir.opdef import NOT_DIFFERENTIABLE, Facts, case, flops_per_element, op, type_attr
from headrace.opkit.arrays import HANDLES
from headrace.opkit.batch_rules import broadcasting, in_step, of_whole_shape
from headrace.opkit.batch_shapes import select
from headrace.opkit.elementwise import alike, each, ufunc
from headrace.opkit.jvp_rules import linear
from headrace.opkit.namespaces import constant, number
from headrace.opkit.shape_rules import broadcast, unbroadcast
from headrace.opkit.testing.samples import PAIRS, binary, draw
from headrace.shapes import Shape, show

_ELEMENTWISE = Facts(cost=flops_per_element(1), total=())
_COMMUTATIVE = Facts(commutative=True, cost=flops_per_element(1), total=())

_ORDERS: tuple[tuple[str, str, Any, Relation], ...] = (
    ("Less", "less", operator.lt, "<"),
    ("LessEqual", "less_equal", operator.le, "<="),
    ("Greater", "greater", operator.gt, ">"),
    ("GreaterEqual", "greater_equal", operator.ge, ">="),
)
for _type, _ufunc, _oracle, _relation in _ORDERS:
    op(
        _type,
        "x: T, y: T",
        "z: bool",
        {"T": REAL},
        shape=broadcast,
        kernel=ufunc(_ufunc),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=dataclasses.replace(_ELEMENTWISE, compares=_relation),
        oracle=each(_oracle, out=np.bool_),
        sample=binary(-2, 2),
        doc=f"x {_relation} y.",
    )


def _bools(rng: np.random.Generator, dtype: DType) -> list[Any]:
    return [case(draw(rng, dtypes.bool_, s), draw(rng, dtypes.bool_, t)) for s, t in PAIRS]


for _type, _ufunc, _oracle, _doc in (
    ("LogicalAnd", "logical_and", operator.and_, "Whether both hold."),
    ("LogicalOr", "logical_or", operator.or_, "Whether one or both hold."),
):
    op(
        _type,
        "x: bool, y: bool",
        "z: bool",
        shape=broadcast,
        kernel=ufunc(_ufunc),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        facts=_COMMUTATIVE,
        oracle=each(_oracle),
        sample=_bools,
        doc=_doc,
    )


# *** Equality: also of strings, and of incompatible shapes ***


def _equality(name: str) -> Any:
    def factory(xp: Any, attrs: Mapping[str, Any]) -> Any:
        f = getattr(xp, name)
        if attrs["T"] is dtypes.string:
            f = _of_text(f)
        if attrs["incompatible_shape_error"]:
            return f
        is_unequal = name == "not_equal"

        def tolerant(x: Any, y: Any) -> Any:
            if x.shape != y.shape:
                try:
                    np.broadcast_shapes(x.shape, y.shape)
                except ValueError:
                    return constant(xp, is_unequal, dtypes.bool_, x)[()]
            return f(x, y)

        return tolerant

    return factory


def _of_text(f: Any) -> Any:
    return lambda x, y: np.asarray(f(x, y), np.bool_)


def _equality_shape(c: Inference) -> Sequence[Shape]:
    if c.attrs["incompatible_shape_error"]:
        return broadcast(c)
    known = shapes.is_full(c.shapes[0]) and shapes.is_full(c.shapes[1])
    try:
        out = broadcast(c)[0]
    except ValueError:
        return [()]
    return [out if known else None]  # a scalar, if the dimensions turn out not to fit


def _equality_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype not in NUMERIC | {dtypes.bool_, dtypes.string}:
        return []
    some = list(binary(-2, 2)(rng, dtype))
    x = draw(rng, dtype, (3,))
    lax = {"incompatible_shape_error": False}
    return [*some, case(x, x), case(x, draw(rng, dtype, (3,)), **lax), case(x, draw(rng, dtype, (2,)), **lax)]


def _equality_oracle(f: Any) -> Any:
    def oracle(x: np.ndarray, y: np.ndarray, incompatible_shape_error: bool = True) -> np.ndarray:
        if not incompatible_shape_error and 1 != len(x) != len(y) != 1:
            return np.array(f(0, 1))
        return each(f, out=np.bool_)(x, y)

    return oracle


_EQUALITIES: tuple[tuple[str, str, Any, Relation, str], ...] = (
    ("Equal", "equal", operator.eq, "==", "x = y."),
    ("NotEqual", "not_equal", operator.ne, "!=", "x ≠ y."),
)
for _type, _ufunc, _oracle, _relation, _doc in _EQUALITIES:
    op(
        _type,
        "x: T, y: T",
        "z: bool",
        {"T": NUMERIC | {dtypes.bool_, dtypes.string}, "incompatible_shape_error": True},
        shape=_equality_shape,
        kernel=_equality(_ufunc),
        xp=True,
        grad=NOT_DIFFERENTIABLE,
        batch=broadcasting,
        facts=dataclasses.replace(_COMMUTATIVE, compares=_relation),
        oracle=_equality_oracle(_oracle),
        sample=_equality_samples,
        doc=_doc,
    )


def _approximate_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    tolerance = number(xp, np.float32(attrs["tolerance"]), attrs["T"])

    def kernel(x: Any, y: Any) -> Any:
        if x.shape != y.shape:
            raise InvalidArgumentError(
                f"x and y must be of the same shape. x shape: {show(x.shape)}. y shape: {show(y.shape)}"
            )
        return xp.abs(x - y) < tolerance

    return kernel


def _nearly(rng: np.random.Generator, dtype: DType) -> list[Any]:
    x = draw(rng, dtype, (2, 3))
    return [case(x, x), case(x, x + dtype.numpy.type(0.25), tolerance=0.75), case(x[0, 0], x[0, 1])]


op(
    "ApproximateEqual",
    "x: T, y: T",
    "z: bool",
    {"T": FLOATING, "tolerance": 1e-5},
    shape=alike,
    kernel=_approximate_kernel,
    xp=True,
    grad=NOT_DIFFERENTIABLE,
    batch=in_step,
    facts=_COMMUTATIVE,
    oracle=lambda x, y, tolerance=1e-5: each(lambda a, b: abs(a - b) < tolerance, out=np.bool_)(x, y),
    sample=_nearly,
    doc="|x - y| < tolerance.",
)


# *** Select ***


def _pick(condition: Any, t: Any, e: Any) -> Any:
    """A choice between arrays of objects, or between objects at rank 0."""
    if condition.ndim == 0:
        return t if condition else e
    return np.where(condition, t, e)


def _rows(condition: Any, like: Any) -> Any:
    """A vector of conditions in a shape that broadcasts with the rows of an array."""
    return condition[:, *[None] * (like.ndim - 1)]


def _select_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    if attrs["T"] in HANDLES:
        return _pick

    def kernel(condition: Any, t: Any, e: Any) -> Any:
        if t.shape != e.shape:
            raise InvalidArgumentError(
                f"'then' and 'else' must have the same size. but received: {show(t.shape)} vs. {show(e.shape)}"
            )
        if condition.shape == t.shape:
            return xp.where(condition, t, e)
        if condition.ndim == 0:
            return (t if condition else e) if xp is np else xp.where(condition, t, e)
        if condition.ndim > 1 or t.ndim == 1:
            raise InvalidArgumentError(
                "Inputs to operation Select must have the same size and shape, or the condition must be a scalar or "
                f"choose rows. Input 0: {show(condition.shape)} != input 1: {show(t.shape)}"
            )
        if t.ndim == 0:
            raise InvalidArgumentError("'then' must be at least a vector, but saw shape: []")
        n = t.shape[0]
        if condition.shape[0] != n:
            raise InvalidArgumentError(
                f"Number of batches of 'then' must match size of 'cond', but saw: {n} vs. {condition.shape[0]}"
            )
        if xp is np:  # in loops over sequences mostly all or none of the batch continue
            taken = np.count_nonzero(condition)
            if taken == n:
                return t
            if not taken:
                return e
            out = e.copy()
            np.copyto(out, t, where=_rows(condition, t))  # takes two thirds of np.where's time
            return out
        return xp.where(_rows(condition, t), t, e)

    return kernel


def _select_shape(c: Inference) -> Sequence[Shape]:
    condition = c.shapes[0]
    out = shapes.merge(c.shapes[1], c.shapes[2])
    if c.handle(1) is not None:
        c.set_handle(0, *c.handle(1))  # type: ignore[misc]
    if condition is None or condition == () or out is None:
        return [out]
    if len(condition) == 1 and len(out) != 1:
        out = shapes.with_rank_at_least(out, 1)
        return [None if out is None else (shapes.merge_dim(condition[0], out[0]), *out[1:])]
    return [shapes.merge(condition, out)]


def _select_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype in HANDLES:
        return []
    found = []
    for c, s in (((), ()), ((), (2, 3)), ((2, 3), (2, 3)), ((2,), (2, 3)), ((3,), (3,)), ((0,), (0, 2))):
        found.append(case(draw(rng, dtypes.bool_, c), draw(rng, dtype, s), draw(rng, dtype, s)))
    return found


def _select_oracle(c: np.ndarray, t: np.ndarray, e: np.ndarray) -> np.ndarray:
    out = np.array(e)
    for i in np.ndindex(t.shape):
        if c[i[: c.ndim]]:
            out[i] = t[i]
    return out


def _zeros(b: Any, n: Any, dy: Any) -> tuple[Any, Any]:
    """Returns zeros for the elements of `t` and `e` that are not selected.

    Lists that are not selected may have another length than `dy`.
    """
    if n.attrs["T"] is dtypes.variant:
        return b.ZerosLike(n.t), b.ZerosLike(n.e)
    zero = b.ZerosLike(dy)
    return zero, zero


def _select_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    zero_t, zero_e = _zeros(b, n, dy)
    return [None, lambda: b.Select(n.condition, dy, zero_t), lambda: b.Select(n.condition, zero_e, dy)]


op(
    "Select",
    "condition: bool, t: T, e: T",
    "output: T",
    {"T": type_attr()},
    shape=_select_shape,
    kernel=_select_kernel,
    xp=True,
    grad=_select_grad,
    jvp=linear("t", "e"),
    batch=select,
    facts=_ELEMENTWISE,
    oracle=_select_oracle,
    sample=_select_samples,
    doc="`t` where the condition holds, else `e`; a vector of conditions chooses rows.",
)


def _select_v2_shape(c: Inference) -> Sequence[Shape]:
    if c.handle(1) is not None:
        c.set_handle(0, *c.handle(1))  # type: ignore[misc]
    return broadcast(c)


def _select_v2_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    if dtype in HANDLES:
        return []
    found = []
    for c, s, t in (((), (), ()), ((3,), (2, 3), ()), ((2, 1), (1, 3), (2, 3)), ((), (2,), (1,)), ((0,), (0,), ())):
        found.append(case(draw(rng, dtypes.bool_, c), draw(rng, dtype, s), draw(rng, dtype, t)))
    return found


def _select_v2_oracle(c: np.ndarray, t: np.ndarray, e: np.ndarray) -> np.ndarray:
    c, t, e = np.broadcast_arrays(c, t, e)
    return _select_oracle(c, t, e)


def _select_v2_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    zero_t, zero_e = _zeros(b, n, dy)
    by_t = unbroadcast(b, n.t, dy, lambda: b.SelectV2(n.condition, dy, zero_t), None)[0]
    by_e = unbroadcast(b, n.e, dy, lambda: b.SelectV2(n.condition, zero_e, dy), None)[0]
    return [None, by_t, by_e]


op(
    "SelectV2",
    "condition: bool, t: T, e: T",
    "output: T",
    {"T": type_attr()},
    shape=_select_v2_shape,
    kernel=lambda xp, attrs: _pick if attrs["T"] in HANDLES else xp.where,
    xp=True,
    grad=_select_v2_grad,
    jvp=linear("t", "e"),
    batch=broadcasting,
    facts=_ELEMENTWISE,
    oracle=_select_v2_oracle,
    sample=_select_v2_samples,
    doc="`t` where the condition holds, else `e`; all three broadcast.",
)


# *** ClipByValue ***


def _clip_kernel(xp: Any, attrs: Mapping[str, Any]) -> Any:
    def kernel(t: Any, low: Any, high: Any) -> Any:
        if low.shape not in ((), t.shape) or high.shape not in ((), t.shape):
            raise InvalidArgumentError(
                "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. "
                f"input shape: {show(t.shape)} clip_value_min shape: {show(low.shape)} "
                f"clip_value_max shape: {show(high.shape)}"
            )
        return xp.maximum(xp.minimum(t, high), low)

    return kernel


def _clip_shape(c: Inference) -> Sequence[Shape]:
    out = c.shapes[0]
    for s in c.shapes[1:]:
        if s:  # neither unknown nor a scalar
            out = shapes.merge(out, s)
    return [out]


def _clip_samples(rng: np.random.Generator, dtype: DType) -> list[Any]:
    found = []
    for s, t, u in (((), (), ()), ((2, 3), (), ()), ((2, 3), (2, 3), ()), ((3,), (3,), (3,)), ((0,), (), ())):
        found.append(case(draw(rng, dtype, s, -3, 6), draw(rng, dtype, t, -2, 1), draw(rng, dtype, u, 1, 4)))
    return found


def _clip_grad(b: Any, n: Any, dy: Any) -> list[Any]:
    t, low, high = n.t, n.clip_value_min, n.clip_value_max
    zero = b.ZerosLike(dy)
    below = b.Less(t, low) if n.wants("t", "clip_value_min") else None
    above = b.Greater(t, high) if n.wants("t", "clip_value_max") else None
    return [
        lambda: b.SelectV2(b.LogicalOr(below, above), zero, dy),
        unbroadcast(b, low, dy, lambda: b.SelectV2(below, dy, zero), None)[0],
        unbroadcast(b, high, dy, lambda: b.SelectV2(above, dy, zero), None)[0],
    ]


op(
    "ClipByValue",
    "t: T, clip_value_min: T, clip_value_max: T",
    "output: T",
    {"T": REAL},
    shape=_clip_shape,
    kernel=_clip_kernel,
    xp=True,
    grad=_clip_grad,
    batch=of_whole_shape,
    facts=Facts(cost=flops_per_element(2), total=()),
    oracle=each(lambda t, low, high: max(min(t, high), low)),
    sample=_clip_samples,
    doc="`t`, clamped to [clip_value_min, clip_value_max].",
)
