"""Gradients of calls: ordinary, recursive, of graphs that operations stand for."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.ir.graph import FuncGraph
from tests.grad.numeric import check, count

f64 = hr.float64
V = np.array([0.5, 0.3, 0.7])
SPEC = hr.TensorSpec((3,), f64)


def test_a_function_called_twice() -> None:
    def make(x):
        f = hr.Function(lambda a, b: hr.sin(a) * b)
        return f(f(x, x), x)

    check(make, V)


@pytest.mark.matrix
def test_a_recursive_function() -> None:
    def make(x):
        f = hr.Function(
            lambda v, n: hr.cond(n > 0, lambda: hr.sin(f(v * 1.1, n - 1)) * v, lambda: v * v), results=SPEC, name="f"
        )
        return f(x, hr.constant(3))

    g = check(make, V)
    assert {"f", "f_residuals", "f_grad"} <= set(g.functions)


@pytest.mark.matrix
def test_a_recursive_function_that_calls_itself_twice() -> None:
    def make(x):
        f = hr.Function(
            lambda v, n: hr.cond(n > 0, lambda: hr.sin(f(v * 1.1, n - 1)) * f(v * v, n - 2), lambda: v + 0.1),
            results=SPEC,
        )
        return f(x, hr.constant(4))

    check(make, V)


@pytest.mark.matrix
def test_functions_that_call_each_other_and_capture_x() -> None:
    def make(x):
        a = hr.Function(
            lambda v, n: hr.cond(n > 0, lambda: hr.sin(b(v * 1.1, n - 1)) * v, lambda: v * v), results=SPEC, name="a"
        )
        b = hr.Function(
            lambda v, n: hr.cond(n > 0, lambda: hr.cos(a(v, n - 1)) + v * x, lambda: v), results=SPEC, name="b"
        )
        return a(x, hr.constant(4))

    check(make, V)


@pytest.mark.matrix
def test_a_loop_in_a_recursive_function_in_a_loop() -> None:
    def make(x):
        def f_of(v, n):
            def deeper():
                return hr.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, hr.sin(f(y, n - 1)) * v), (0, v))[1]

            return hr.cond(n > 0, deeper, lambda: v * v)

        f = hr.Function(f_of, results=SPEC)
        return hr.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, f(y, i)), (0, x))[1]

    check(make, V)


def test_a_recursive_function_is_differentiated_once() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (3,))
        f = hr.Function(lambda v, n: hr.cond(n > 0, lambda: hr.sin(f(v, n - 1)), lambda: v), results=SPEC, name="f")
        y = f(f(x, hr.constant(2)), hr.constant(1))
        hr.gradients(y, x)
        hr.gradients(y, x)
        assert sorted(g.functions) == ["f", "f_grad", "f_residuals"]


def _square_of_sine(g: hr.Graph) -> FuncGraph:
    f = FuncGraph("square_of_sine", g, captures_from_outer=False)
    x = f.add_param(f64, (3,), "x")
    b = scopes.builder()
    b = type(b)(f)
    s = b.Sin(x)
    f.results = [b.Mul(s, s)]
    return f


def test_the_gradient_of_a_symbolic_gradient() -> None:
    def make(x):
        f = _square_of_sine(x.graph)
        return scopes.builder().SymbolicGradient([x, x * x], Tout=(f64,), f=f)

    check(make, V)


@pytest.mark.matrix
def test_the_gradient_of_a_for() -> None:
    def make(x):
        body = FuncGraph("body", x.graph, captures_from_outer=False)
        i, y, w = (body.add_param(d, s, n) for d, s, n in ((hr.int32, (), "i"), (f64, (3,), "y"), (f64, (3,), "w")))
        b = type(scopes.builder())(body)
        body.results = [b.AddV2(b.Mul(b.Sin(y), w), b.Cast(i, DstT=f64)), w]
        y, _ = scopes.builder().For(0, 3, 1, [x, x * 2.0], body=body)
        return y

    check(make, V)


def test_a_function_that_computes_again() -> None:
    def make(x):
        w = x * 2.0
        f = hr.recompute_grad(lambda a: {"y": hr.sin(a) * w, "z": hr.tanh(a)})
        found = f(x)
        return found["y"] * found["z"]

    g = check(make, V, orders=2)
    assert count(g, "Sin") >= 2
