"""Scalar expressions: they are found, and compute the same as their kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

import headrace as hr
from headrace.ir.graph import Tensor
from headrace.ir.kernel import find_kernel
from headrace.ir.opdef import Facts
from headrace.schedule.scalar_expressions import Apply, Input, scalar_expression
from tests.compile.running import b, both, source

F64 = hr.float64


def found(t: Tensor) -> Apply | None:
    """The scalar expression of what makes `t`."""
    factory = t.op.opdef.kernel
    assert factory is not None
    return scalar_expression(t.op, factory, factory(np, t.op.attrs))


def value(node: Any, given: list[Any]) -> Any:
    """The value of a scalar expression."""
    if isinstance(node, Input):
        return given[node.index]
    return node.ufunc(*(value(a, given) for a in node.args)) if isinstance(node, Apply) else node


def ufuncs(node: Any) -> list[str]:
    """The names of the ufuncs in a scalar expression, outermost first."""
    return [node.ufunc.__name__, *(n for a in node.args for n in ufuncs(a))] if isinstance(node, Apply) else []


FORMULAS: dict[str, tuple[Callable[..., Tensor], list[str]]] = {
    "AddV2": (lambda x, y: x + y, ["add"]),
    "Sub": (lambda x, y: x - y, ["subtract"]),
    "Square": (lambda x, y: hr.square(x), ["square"]),
    "Neg": (lambda x, y: -x, ["negative"]),
    "Tanh": (lambda x, y: hr.tanh(x), ["tanh"]),
    "Maximum": (lambda x, y: hr.maximum(x, y), ["maximum"]),
    "TanhGrad": (lambda x, y: b().TanhGrad(x, y), ["multiply", "subtract", "multiply"]),
    "SquaredDifference": (lambda x, y: hr.math.squared_difference(x, y), ["multiply", "subtract", "subtract"]),
    "Less": (lambda x, y: x < y, ["less"]),
}


@pytest.mark.parametrize("type", FORMULAS)
@pytest.mark.parametrize("shape", [(), (3,), None])
def test_elementwise_kernels_are_scalar_expressions(type: str, shape: Any) -> None:
    make, names = FORMULAS[type]
    with hr.Graph():
        x, y = (hr.placeholder(F64, shape, name=n) for n in "xy")
        t = make(x, y)
        assert t.op.type == type
        made = found(t)
        if shape is None and type == "TanhGrad":  # its kernel asks for shapes
            assert made is None
            return
        assert made is not None
        assert ufuncs(made) == names
        assert made.dtype == t.dtype.numpy
        given = [np.array([0.5, -2.0, 3.0]), np.array([1.5, -2.0, 0.25])]
        both(t, dict(zip((x, y), given if shape != () else [np.float64(0.5), np.float64(3)], strict=True)))
        kernel = find_kernel(t.op)
        assert kernel is not None
        want = kernel.factory(np, t.op.attrs)(*given[: len(t.op.inputs)])
        assert np.array_equal(value(made, given), want)


NONE: dict[str, Callable[[Tensor], Tensor]] = {
    "a reduction": lambda x: hr.reduce_sum(x),
    "what moves elements": lambda x: hr.reshape(x, [-1]),
    "a product": lambda x: hr.matmul(x, x),
    "a softmax": lambda x: hr.nn.softmax(x),
    "a constant": lambda x: hr.constant(1.0),
}


@pytest.mark.parametrize("name", NONE)
def test_other_kernels_are_not(name: str) -> None:
    with hr.Graph():
        assert found(NONE[name](hr.placeholder(F64, [3, 3], name="x"))) is None


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_narrower_than_numpy_computes_in_have_none(dtype: str) -> None:
    with hr.Graph():
        x = hr.placeholder(dtype, [3], name="x")
        assert found(hr.tanh(x) if dtype == "float16" else x + x) is None


COST = Facts(cost=lambda ins, outs: 1.0)


def made_of(kernel: Callable[..., Any], shape: Any = (3,), facts: Facts = COST) -> Apply | None:
    """The scalar expression of a kernel, as that of an operation on one float64."""
    with hr.Graph():
        op = hr.sin(hr.placeholder(F64, shape, name="x")).op
    record = dataclasses.replace(op.opdef, facts=facts)
    with mock.patch.object(op, "opdef", record):
        return scalar_expression(op, lambda xp, attrs: lambda x: kernel(xp, x), kernel)


def _raises(xp: Any, x: Any) -> Any:
    raise ValueError("not for me")


def _decides(xp: Any, x: Any) -> Any:
    return xp.sin(x) if x[0] > 0 else xp.cos(x)


@pytest.mark.parametrize(
    "kernel",
    [
        _raises,
        _decides,
        lambda xp, x: x if x > 0 else -x,
        lambda xp, x: xp.where(x > 0, x, 0.0),
        lambda xp, x: xp.sin(x.T),
        lambda xp, x: xp.sin(np.asarray(x)),
        lambda xp, x: sum(x),
        lambda xp, x: xp.modf(x)[0],
        lambda xp, x: xp.add(x, np.array([1.0, 2.0, 3.0])),
        lambda xp, x: x,
        lambda xp, x: 1.0,
        lambda xp, x: x > 0,  # not the dtype of the output
        lambda xp, x: xp.no_such_thing(x),
        lambda xp, x: xp.bitwise_and(x, x),  # not for this dtype
    ],
)
def test_a_kernel_that_is_more_than_ufuncs_has_none(kernel: Any) -> None:
    assert made_of(kernel) is None


def test_a_kernel_may_ask_for_shapes_that_are_known() -> None:
    def kernel(xp: Any, x: Any) -> Any:
        return xp.sin(x) * float(x.size * x.ndim)

    assert made_of(kernel, (3, 2)) is not None
    assert made_of(kernel, None) is None
    assert made_of(kernel, (3, None)) is None


def test_a_kernel_without_a_cost_is_not_asked() -> None:
    assert made_of(lambda xp, x: xp.sin(x) * 2.0) is not None
    assert made_of(lambda xp, x: xp.sin(x) * 2.0, facts=Facts()) is None


def test_what_is_read_twice_is_one_application() -> None:
    def kernel(xp: Any, x: Any) -> Any:
        e = xp.exp(x)
        return e * e + e

    made = made_of(kernel)
    assert made is not None
    product, again = made.args
    assert product.args[0] is product.args[1] is again


def test_all_scalar_expressions_of_numbers_can_be_written() -> None:
    """A number is in the source as Python writes it.

    A number without such a literal is bound to a name.
    """
    made = made_of(lambda xp, x: xp.minimum(x, math.inf) * -1.5 + np.float64(2))
    assert made is not None
    with hr.Graph():
        x = hr.placeholder(F64, [], name="x")
        for t in (hr.sigmoid(x), hr.nn.relu6(x), hr.nn.softplus(x), hr.nn.elu(x), hr.nn.leaky_relu(x)):
            for fed in (0.5, -3.0, np.inf, np.nan, -0.0):
                both(t, {x: fed})
        assert "def step" in source(hr.sigmoid(x), [x])
