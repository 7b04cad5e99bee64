"""`hr.custom_gradient`: in graphs, loops, branches and functions, to the second order, with variables; its errors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.errors import SignatureError
from headrace.ir import custom_rules


@pytest.fixture
def g() -> Iterator[hr.Graph]:
    with hr.Graph() as graph:
        yield graph


def run(fetches: Any, feeds: Any = None) -> Any:
    """Runs `fetches` in a new session of the current graph, with its variables initialized."""
    graph = scopes.current_graph()
    with hr.Session(graph=graph) as session:
        if graph.variables:
            session.run(hr.variables_initializer())
        return session.run(fetches, feeds)


def x_of(value: Any) -> hr.Tensor:
    """A tensor that is no constant, so that nothing is known of it."""
    return hr.placeholder_with_default(np.float32(value), np.shape(value))


@hr.custom_gradient
def marked(x, y):
    """x * y, with a gradient by x that is a hundred times too large."""
    return x * y, lambda dz: (dz * y * 100, dz * x)


@hr.custom_gradient
def exponential(x):
    e = hr.exp(x)
    return e, lambda dy: dy * e


def test_the_value_is_that_of_the_function_and_the_gradient_the_users(g):
    x, y = x_of(2.0), x_of(3.0)
    z = marked(x, y)
    assert run([z, *hr.gradients(z, [x, y])]) == [6.0, 300.0, 2.0]


def test_the_documented_example_does_not_overflow(g):
    @hr.custom_gradient
    def log1pexp(x):
        e = hr.exp(x)
        return hr.log(1 + e), lambda dy: dy * (1 - 1 / (1 + e))

    x = x_of(100.0)
    assert run(hr.gradients(log1pexp(x), x)) == [1.0]
    plain = hr.log(1 + hr.exp(x))
    assert np.isnan(run(hr.gradients(plain, x)[0]))


def test_the_gradient_of_the_gradient_is_that_of_what_the_user_wrote(g):
    x, y = x_of(2.0), x_of(3.0)
    (dx,) = hr.gradients(marked(x, y), x)
    assert run(hr.gradients(dx, [x, y], unconnected="zero")) == [0.0, 100.0]
    d = exponential(x)
    for _ in range(3):
        (d,) = hr.gradients(d, x)
    assert run(d) == pytest.approx(np.exp(2), rel=1e-6)


def test_a_gradient_function_that_calls_the_function_again(g):
    @hr.custom_gradient
    def f(x):
        return hr.exp(x), lambda dy: dy * f(x) * 2

    x = x_of(0.0)
    (d,) = hr.gradients(f(x), x)
    assert run([d, hr.gradients(d, x)[0]]) == [2.0, 4.0]


def test_in_a_loop_to_the_second_order(g):
    x = x_of(2.0)
    _, y = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, marked(x, a)), (0, 1.0))
    (d,) = hr.gradients(y, x)
    (dd,) = hr.gradients(d, x)
    # d = 100 (a2 + x a1 + x^2 a0), whose a's are marked products again: a1' = 100, a2' = 100 * 2 x
    assert run([y, d, dd]) == [8.0, 1200.0, 100 * (400.0 + 2 + 200 + 4)]


def test_in_a_branch(g):
    x = x_of(2.0)
    y = hr.cond(x > 0, lambda: marked(x, x), lambda: x)
    assert run(hr.gradients(y, x)) == [202.0]


def test_with_a_conditional_and_a_loop_in_the_gradient_function(g):
    @hr.custom_gradient
    def f(x):
        e = hr.exp(x)

        def back(dy):
            doubled = hr.cond(e > 0, lambda: dy * e, lambda: dy)
            return hr.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a * e), (0, doubled))[1]

        return e, back

    x = x_of(0.5)
    _, y = hr.while_loop(lambda i, a: i < 1, lambda i, a: (i + 1, f(a)), (0, x))
    (d,) = hr.gradients(y, x)
    np.testing.assert_allclose(run([d, hr.gradients(d, x)[0]]), [np.exp(1.5), 3 * np.exp(1.5)], rtol=1e-5)


@pytest.mark.parametrize("save", ["all", hr.recompute(every=2)])
def test_in_a_loop_whose_body_is_computed_again(g, save):
    x = x_of(0.1)
    _, y = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, exponential(a * 0.5)), (0, x), save=save)
    (d,) = hr.gradients(y, x)
    want, at = 1.0, 0.1
    for _ in range(3):
        want *= np.exp(at / 2) / 2
        at = np.exp(at / 2)
    np.testing.assert_allclose(run(d), want, rtol=1e-5)


def test_forward_through_a_loop_for_each_element():
    def f(x):
        return hr.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, exponential(a)), (0, x))[1]

    got = hr.jacobian(f, mode="fwd")(np.float32([0.1, 0.2]))
    e = np.exp([0.1, 0.2])
    np.testing.assert_allclose(got, np.diag(np.exp(e) * e), rtol=1e-5)


def test_in_a_function_called_twice(g):
    f = hr.Function(lambda x: exponential(x * 2), name="f")
    x = x_of(1.0)
    (d,) = hr.gradients(f(x) + f(x * 3), x)
    np.testing.assert_allclose(run(d), 2 * np.exp(2) + 6 * np.exp(6), rtol=1e-5)


def test_in_what_is_computed_again(g):
    def f(x):
        return exponential(x) * x

    x = x_of(0.5)
    (d,) = hr.gradients(hr.recompute_grad(f)(x), x)
    np.testing.assert_allclose(run(d), np.exp(0.5) * 1.5, rtol=1e-5)


def test_structures_of_arguments_and_results(g):
    @hr.custom_gradient
    def f(p, q):
        def back(da, db):
            return {"w": da * 10, "b": None}, [da, db * 2]

        return {"a": p["w"] * q[0], "b": (q[1] + p["b"],)}, back

    w, b, q0, q1 = (x_of(v) for v in (2.0, 5.0, 3.0, 4.0))
    z = f({"w": w, "b": b}, [q0, q1])
    got = hr.gradients([z["a"], z["b"][0]], [w, b, q0, q1])
    assert got[1] is None
    assert run([got[0], got[2], got[3]]) == [10.0, 1.0, 2.0]


def test_leaves_one_after_the_other_as_tensorflow_wants_them(g):
    @hr.custom_gradient
    def f(pair):
        return pair[0] * pair[1], lambda dy: (dy * 7, dy * 8)

    x, y = x_of(2.0), x_of(3.0)
    assert run(hr.gradients(f([x, y]), [x, y])) == [7.0, 8.0]


def test_integers_among_arguments_and_results(g):
    seen = []

    @hr.custom_gradient
    def f(x, n):
        def back(dy, dn):
            seen.append(dn)
            return dy * 3, None

        return (x * hr.cast(n, hr.float32), n + 1), back

    x = x_of(2.0)
    y, n = f(x, hr.constant(5))
    assert run([y, n, hr.gradients(y, x)[0]]) == [10.0, 6, 3.0]
    assert seen == [None]


def test_an_unused_result_brings_zeros(g):
    @hr.custom_gradient
    def f(x):
        return (x, x * 2), lambda da, db: da + 10 * db

    x = x_of([1.0, 2.0])
    np.testing.assert_array_equal(run(hr.gradients(f(x)[0], x)[0]), [1.0, 1.0])


def test_numbers_reach_the_function_as_tensors_and_gradients_may_be_numbers(g):
    @hr.custom_gradient
    def f(x, y):
        assert isinstance(y, hr.SymbolicTensor)
        return x * y, lambda dz: (5.0, np.float32(6.0))

    x = x_of(2.0)
    assert run(hr.gradients(f(x, 3.0), x)) == [5.0]


def test_a_method(g):
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        @hr.custom_gradient
        def __call__(self, x):
            """Multiplies."""
            return x * self.factor, lambda dy: dy * self.factor * 10

    x = x_of(2.0)
    assert run(hr.gradients(Scale(3.0)(x), x)) == [30.0]
    assert Scale.__call__.__doc__ == "Multiplies."


def test_variables_that_it_uses(g):
    v = hr.Variable(3.0, name="v")
    unused = hr.Variable(1.0, name="unused")
    fixed = hr.Variable(1.0, name="fixed", trainable=False)
    before = v * 1.0
    seen = []

    @hr.custom_gradient
    def f(x):
        def back(dy, variables):
            seen.append(variables)
            return dy * v * 10, [dy * x * 100]

        return x * v * fixed + before, back

    x = x_of(2.0)
    dx, dv, none = hr.gradients(f(x), [x, v, unused])
    assert none is None
    assert run([dx, dv]) == [30.0, 200.0]
    assert seen == [[v]]


def test_variables_in_a_loop(g):
    v = hr.Variable(3.0)

    @hr.custom_gradient
    def f(x):
        return x * v, lambda dy, variables: (dy * v, [dy * x * 100 for _ in variables])

    x = x_of(2.0)
    _, y = hr.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, f(a)), (0, x))
    assert run(hr.gradients(y, [x, v])) == [9.0, 100 * (2 * 3 + 6)]


def test_outside_of_graphs_it_is_the_function():
    assert float(marked(2.0, 3.0)) == 6.0
    assert float(hr.grad(marked)(2.0, 3.0)) == 300.0


@pytest.mark.matrix
def test_graphs_with_custom_gradients_are_freed():
    with hr.Graph() as graph:
        x = x_of(2.0)
        hr.gradients(marked(x, x), x)
    gone = weakref.ref(graph)
    del graph, x
    gc.collect()
    assert gone() is None


# *** errors ***


@pytest.mark.parametrize("returned", [lambda x: x, lambda x: (x, 1), lambda x: (x, lambda dy: dy, 3)])
def test_no_pair(g, returned):
    f = hr.custom_gradient(returned)
    with pytest.raises(SignatureError, match=r"test_custom.py:\d+.*must return a pair \(y, grad_fn\)"):
        f(x_of(1.0))
    with pytest.raises(SignatureError, match="must return a pair"):
        hr.custom_gradient(lambda x: x)(hr.constant(1.0))


def test_too_few_gradients(g):
    @hr.custom_gradient
    def f(x, y):
        return x * y, lambda dz: (dz,)

    x = x_of(1.0)
    with pytest.raises(
        SignatureError,
        match=r"gradient function '<lambda>' \(.*test_custom.py:\d+.*'IdentityN' \(IdentityN, made at .*"
        r"must return the gradient of each argument.*a tuple of 2.*got a tuple of 1",
    ):
        hr.gradients(f(x, x), x)


def test_another_structure(g):
    @hr.custom_gradient
    def f(p, y):
        return p["w"] * y, lambda dz: ({"v": dz}, dz)

    x = x_of(1.0)
    with pytest.raises(SignatureError, match="in the structure of the arguments"):
        hr.gradients(f({"w": x}, x), x)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (lambda: hr.zeros([3]), r"shape \[2\] .*of shape \[3\]"),
        (lambda: hr.zeros([2], hr.float64), "dtype float32 .*float64"),
        (lambda: "text", "dtype float32"),
    ],
)
def test_another_shape_or_dtype(g, value, match):
    @hr.custom_gradient
    def f(x):
        return x * 2, lambda dy: value()

    x = x_of([1.0, 2.0])
    with pytest.raises(SignatureError, match=match):
        hr.gradients(f(x), x)


def test_variables_without_the_keyword(g):
    v = hr.Variable(3.0, name="weights")
    f = hr.custom_gradient(lambda x: (x * v, lambda dy: dy))
    with pytest.raises(TypeError, match=r"uses variables \(weights:0\).*keyword argument 'variables'"):
        f(x_of(1.0))


def test_variables_without_their_gradients(g):
    v = hr.Variable(3.0)
    x = x_of(1.0)
    no_pair = hr.custom_gradient(lambda x: (x * v, lambda dy, variables: dy))
    with pytest.raises(SignatureError, match="so must return a pair"):
        hr.gradients(no_pair(x), x)
    too_many = hr.custom_gradient(lambda x: (x * v, lambda dy, variables: (dy, [dy, dy])))
    with pytest.raises(SignatureError, match="a gradient for each of the 1 variables; got a list of 2"):
        hr.gradients(too_many(x), x)


def test_keyword_arguments_in_a_graph(g):
    with pytest.raises(ValueError, match=r"'marked' .*keyword arguments y;"):
        marked(x_of(1.0), y=x_of(2.0))


def test_a_graph_from_a_file_says_that_the_function_is_not_there(g):
    x = hr.placeholder(hr.float32, (), name="x")
    hr.identity(marked(x, x), name="y")
    message = g.as_graph_def()
    kept = dict(custom_rules._customs)
    custom_rules._customs.clear()  # as in another process
    try:
        with hr.Graph() as other:
            hr.import_graph_def(message, name="")
            with pytest.raises(LookupError, match=r"'IdentityN'.*CustomGradient-\d+.*not saved in a file"):
                hr.gradients(other.get_tensor_by_name("y:0"), other.get_tensor_by_name("x:0"))
    finally:
        custom_rules._customs.update(kept)
