"""`hr.gradients`: results for structures, variables, paths, inner and outer graphs, and its errors.

The derivatives of each kind of operation and of loops are tested elsewhere; here the programs are small.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.errors import GraphError, SignatureError
from headrace.grad.registered import gradient_registry
from headrace.registry import DuplicateError


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


# *** results ***


def test_a_single_x_gives_a_list_of_one(g):
    x = x_of(3.0)
    assert run(hr.gradients(x * x, x)) == [6.0]


def test_the_gradient_is_that_of_the_sum_over_all_ys_and_their_elements(g):
    x = x_of([1.0, 2.0])
    y = x_of(3.0)
    (dx,) = hr.gradients([x * x, y * x, y], [x])
    np.testing.assert_array_equal(run(dx), [5.0, 7.0])


def test_the_same_y_twice_counts_twice(g):
    x = x_of(1.0)
    y = x * x
    assert run(hr.gradients([y, y], x)) == [4.0]


def test_grad_ys_weigh_and_none_among_them_is_ones(g):
    x = x_of([1.0, 2.0])
    (dx,) = hr.gradients([x * x, x * 4], [x], [[10.0, 100.0], None])
    np.testing.assert_array_equal(run(dx), [24.0, 404.0])


def test_gradients_go_through_xs_that_lie_on_the_way_to_others(g):
    x = x_of(1.0)
    a = x * 2
    b = a + x * 3
    assert run(hr.gradients(a + b, [x, a, b])) == [7.0, 2.0, 1.0]


def test_stop_gradients_gives_partial_derivatives(g):
    x = x_of(1.0)
    a = x * 2
    b = a + x * 3
    dx, da, db = hr.gradients(a + b, [x, a, b], stop_gradients=[a, b])
    assert dx is None
    assert run([da, db]) == [1.0, 1.0]


def test_what_is_stopped_inside_a_loop_is_a_constant_there(g):
    x = x_of(2.0)
    y = x_of(5.0)
    _, z = hr.while_loop(lambda i, z: i < 3, lambda i, z: (i + 1, z * x + y), (0, y))
    dx, dy = hr.gradients(z, [x, y], stop_gradients=y)
    # z = y x^3 + y (x^2 + x + 1)
    assert run([dx, dy]) == [5 * 12 + 5 * 5, 8 + 7]
    assert hr.gradients(z, x, stop_gradients=[x]) is not None


def test_no_path_is_none_or_zeros(g):
    x, z = x_of([1.0, 2.0]), hr.placeholder(hr.float32, (None, 2))
    assert hr.gradients(x, [z])[0] is None
    dz, dx = hr.gradients(x, [z, x], unconnected="zero")
    zeros, ones = run([dz, dx], {z: np.ones((3, 2))})
    np.testing.assert_array_equal(zeros, np.zeros((3, 2)))
    np.testing.assert_array_equal(ones, [1, 1])


def test_nothing_to_differentiate_is_no_path(g):
    x = x_of(1.0)
    assert hr.gradients([], [x]) == [None]
    assert hr.gradients(x, []) == []


def test_structures_of_xs_come_back_as_they_are(g):
    @dataclasses.dataclass
    class Layer:
        w: Any
        b: Any

    p = {"first": Layer(x_of(2.0), x_of(3.0)), "second": (x_of(4.0),)}
    y = p["first"].w * p["first"].b * p["second"][0]
    found = hr.gradients({"loss": y}, p)
    assert isinstance(found["first"], Layer)
    assert run((found["first"].w, found["first"].b, found["second"])) == (12.0, 8.0, (6.0,))
    assert run(hr.gradients(y, [p["first"], p["second"]])[1]) == (6.0,)
    assert isinstance(hr.gradients(y, (p["first"].w,)), list)


def test_the_gradient_of_a_variable_is_that_of_all_its_reads(g):
    v = hr.Variable([1.0, 2.0], name="v")
    y = hr.reduce_sum(v * v) + hr.reduce_sum(v.read_value())
    (dv,) = hr.gradients(y, v)
    np.testing.assert_array_equal(run(dv), [3.0, 5.0])
    one_read = v.value()
    np.testing.assert_array_equal(run(hr.gradients(one_read * v, one_read)[0]), [1.0, 2.0])


def test_a_variable_read_in_a_loop(g):
    v = hr.Variable(2.0)
    _, y = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * v), (0, 1.0))
    assert run(hr.gradients(y, [v])) == [12.0]


def test_a_variable_that_nothing_depends_on_has_zeros_of_its_shape(g):
    v = hr.Variable([1.0, 2.0])
    (dv,) = hr.gradients(x_of(1.0), v, unconnected="zero")
    np.testing.assert_array_equal(run(dv), [0.0, 0.0])


def test_complex_ys_with_their_gradients(g):
    x = hr.placeholder_with_default(np.complex64(1 + 2j), ())
    (dx,) = hr.gradients(x * x, x, [np.complex64(1)])
    assert run(dx) == np.conj(2 * (1 + 2j))


def test_a_gradient_is_a_tensor_like_any_other(g):
    x = x_of(2.0)
    y = x * x * x
    orders = [y]
    for _ in range(4):
        orders.append(hr.gradients(orders[-1], x, unconnected="zero")[0])
    assert run(orders) == [8.0, 12.0, 12.0, 6.0, 0.0]


def test_gradients_of_numbers_among_ys_are_none(g):
    x = x_of(2.0)
    assert run(hr.gradients([x, 3.0], x)) == [1.0]


# *** names and lines ***


def test_operations_are_called_what_tensorflow_calls_them(g):
    x, v = hr.placeholder(hr.float32, (4,), name="x"), hr.placeholder(hr.float32, (4,), name="v")
    y = hr.sin(x * v) * x
    before = len(g)
    dx, dv = hr.gradients(y, [x, v])
    assert [op.name for op in g.operations[before:]] == [
        "gradients/Shape",
        "gradients/grad_ys_0/Const",
        "gradients/grad_ys_0",
        "gradients/mul_1_grad/Mul",
        "gradients/mul_1_grad/Mul_1",
        "gradients/Sin_grad/Cos",
        "gradients/Sin_grad/Mul",
        "gradients/mul_grad/Mul",
        "gradients/mul_grad/Mul_1",
        "gradients/AddN",
    ]
    assert (dx.name, dv.name) == ("gradients/AddN:0", "gradients/mul_grad/Mul_1:0")
    assert hr.gradients(y, v)[0].name.startswith("gradients_1/")
    assert hr.gradients(y, v, name="mine")[0].name.startswith("mine/")


def test_an_operation_has_the_line_of_what_it_is_the_gradient_of(g):
    x = x_of(2.0)
    y = hr.sin(x)
    (dx,) = hr.gradients(y, x)
    assert dx.op.source == y.op.source
    assert dx.op.source is not None


# *** inside branches and bodies ***


def test_inside_a_body_by_its_own_variable(g):
    x = x_of(3.0)

    def body(i, a):
        return i + 1, hr.gradients(a * a * x, a)[0]

    assert run(hr.while_loop(lambda i, a: i < 2, body, (0, 1.0))[1]) == 6 * 6


def test_inside_a_body_by_a_tensor_from_outside(g):
    x = x_of(3.0)
    z = x * x

    def body(i, a):
        return i + 1, hr.gradients(a * z * x, x)[0]  # also by way of z, which comes from outside too

    assert run(hr.while_loop(lambda i, a: i < 1, body, (0, 2.0))[1]) == 2 * 3 * 9


def test_inside_nested_branches_by_a_tensor_from_far_outside(g):
    x = x_of(3.0)
    z = x * x

    def inner(i, a):
        y = hr.cond(a > 0, lambda: hr.gradients(z * x * a, [x])[0], lambda: a)
        return i + 1, y

    assert run(hr.while_loop(lambda i, a: i < 1, inner, (0, 2.0))[1]) == 2 * 27


def test_inside_a_branch_of_what_is_outside(g):
    x = x_of(3.0)
    _, z = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * x), (0, 1.0))
    assert run(hr.cond(x > 0, lambda: hr.gradients(z, x)[0], lambda: x)) == 27.0


def test_inside_a_body_what_it_does_not_use_is_no_path(g):
    x, other = x_of(3.0), x_of(1.0)
    seen = []

    def body(i, a):
        seen.append(hr.gradients(a * x, other)[0])
        return i + 1, a * x

    hr.while_loop(lambda i, a: i < 2, body, (0, 2.0))
    assert seen == [None]


def test_inside_a_body_by_a_constant_from_outside(g):
    x = hr.constant(3.0)

    def body(i, a):
        return i + 1, hr.gradients(a * x * x, x)[0]

    assert run(hr.while_loop(lambda i, a: i < 1, body, (0, 2.0))[1]) == 12.0


def test_gradients_that_were_made_inside_are_differentiated(g):
    x = x_of(2.0)

    def body(i, a):
        return i + 1, hr.gradients(a * a * a * x, a)[0]

    _, y = hr.while_loop(lambda i, a: i < 2, body, (0, x))
    (dx,) = hr.gradients(y, x)
    # a1 = 3 x^3; a2 = 3 a1^2 x = 27 x^7
    assert run([y, dx]) == [27 * 2**7, 27 * 7 * 2**6]


# *** errors ***


def test_integers_are_named_with_their_lines(g):
    n = hr.constant(3, name="n")
    with pytest.raises(TypeError, match=r"x 'n:0' \(made at .*test_gradients.py:\d+.*int32.*has no gradients.*cast"):
        hr.gradients(hr.cast(n, hr.float32), n)
    with pytest.raises(TypeError, match=r"y 'Cast_1:0' .*int32"):
        hr.gradients(hr.cast(x_of(1.0), hr.int32), x_of(1.0))


def test_what_is_no_tensor(g):
    with pytest.raises(TypeError, match=r"x\[1\] must be a tensor of the graph or a variable.*the number 3.0"):
        hr.gradients(x_of(1.0), [x_of(1.0), 3.0])
    with pytest.raises(TypeError, match=r"y must be a tensor, got an object"):
        hr.gradients(object(), x_of(1.0))


def test_tensors_say_which_graph_is_meant():
    with hr.Graph() as graph:
        x = x_of(3.0)
        y = x * x
    (d,) = hr.gradients(y, x)  # outside of all graphs
    assert d.graph is graph
    assert hr.Session(graph=graph).run(d) == 6.0


def test_outside_of_graphs_it_says_what_there_is_instead():
    with pytest.raises(GraphError, match=r"hr\.grad\(f\)"):
        hr.gradients(hr.constant(1.0), hr.constant(2.0))


def test_tensors_of_other_graphs(g):
    with hr.Graph():
        other = hr.placeholder(hr.float32, (), name="other")
    with pytest.raises(GraphError, match=r"with respect to 'other:0'.*made at .*belongs to another graph"):
        hr.gradients(x_of(1.0), other)
    with pytest.raises(GraphError, match="another graph"):
        hr.gradients(other, x_of(1.0))


def test_a_tensor_of_a_finished_loop_names_the_loop(g):
    inner = []

    def body(i, a):
        inner.append(a * 2)
        return i + 1, inner[-1]

    _, y = hr.while_loop(lambda i, a: i < 2, body, (0, 1.0), name="spin")
    with pytest.raises(GraphError, match=r"body of loop 'spin'.*has no value outside"):
        hr.gradients(y, inner[0])
    with pytest.raises(GraphError, match="body of loop 'spin'"):
        hr.gradients(inner[0], y)


@pytest.mark.parametrize("grad_ys", [[1.0, 1.0], [], [[1.0], [2.0]]])
def test_too_many_or_too_few_grad_ys(g, grad_ys):
    x = x_of(1.0)
    with pytest.raises(ValueError, match=rf"Length mismatch: {len(grad_ys)} grad_ys .* 1 ys"):
        hr.gradients(x * x, x, grad_ys)


def test_grad_ys_of_another_dtype_or_shape(g):
    x = x_of([1.0, 2.0])
    y = hr.square(x, name="y")
    with pytest.raises(SignatureError, match=r"y 'y:0' must be .*float32 and shape \[2\].*float64"):
        hr.gradients(y, x, hr.constant([1.0, 2.0], hr.float64))
    with pytest.raises(SignatureError, match=r"y 'y:0' must be .*shape \[2\].*of shape \[3\]"):
        hr.gradients(y, x, [[1.0, 2.0, 3.0]])


def test_complex_ys_need_their_gradients(g):
    x = hr.placeholder(hr.complex64, ())
    with pytest.raises(TypeError, match=r"must set grad_ys \(y\.dtype = complex64\)"):
        hr.gradients(x * x, x)


def test_an_unknown_word_for_unconnected(g):
    with pytest.raises(ValueError, match=r"unconnected.*'zeros'"):
        hr.gradients(x_of(1.0), x_of(1.0), unconnected="zeros")


# *** gradients that users register ***


def test_a_type_is_overridden_by_name(g):
    @hr.RegisterGradient("test_gradients.Doubled")
    def doubled(op, dy):
        assert (op.type, op.inputs[0].dtype, op.outputs[0].dtype) == ("Square", hr.float32, hr.float32)
        assert op.get_attr("T") is hr.float32
        return dy * op.inputs[0] * 200

    x = x_of(3.0)
    with scopes.gradient_override_map({"Square": "test_gradients.Doubled"}):
        y = hr.square(x)
    z = hr.square(x)
    assert run(hr.gradients([y, z], x)) == [606.0]


def test_an_override_in_a_loop_to_the_second_order(g):
    @hr.RegisterGradient("test_gradients.Cubed")
    def cubed(op, dy):
        return [dy * op.inputs[0] * op.outputs[0]]  # x^3, not 2 x

    x = x_of(2.0)

    def body(i, a):
        with scopes.gradient_override_map({"Square": "test_gradients.Cubed"}):
            return i + 1, hr.square(a)

    _, y = hr.while_loop(lambda i, a: i < 1, body, (0, x))
    (d,) = hr.gradients(y, x)
    # the derivative of x * y by x: y + x * x^3
    assert run([d, hr.gradients(d, x)[0]]) == [8.0, 4.0 + 16.0]


def test_an_override_may_name_an_op_type(g):
    x = x_of(2.7)
    with scopes.gradient_override_map({"Round": "Identity"}):
        y = hr.round(x)
    assert run(hr.gradients(y, x)) == [1.0]
    assert hr.gradients(hr.floor(x), x) == [None]


def test_a_registered_gradient_that_differentiates_itself(g):
    @hr.RegisterGradient("test_gradients.OfSine")
    def of_sine(op, dy):
        (x,) = op.inputs
        return hr.gradients(hr.sin(x) * 5, x, dy)[0]

    x = x_of(0.0)

    def body(i, a):
        with scopes.gradient_override_map({"Square": "test_gradients.OfSine"}):
            return i + 1, hr.square(a)

    _, y = hr.while_loop(lambda i, a: i < 1, body, (0, x))
    with scopes.gradient_override_map({"Square": "test_gradients.OfSine"}):
        z = hr.square(x)
    assert run([hr.gradients(y, x)[0], hr.gradients(z, x)[0]]) == [5.0, 5.0]


def test_integer_outputs_bring_none_and_unused_ones_zeros(g):
    given = []

    @hr.RegisterGradient("test_gradients.Top")
    def top(op, *dys):
        given.extend(dys)
        return hr.zeros_like(op.inputs[0]), None

    x = x_of([1.0, 2.0, 3.0])
    with scopes.gradient_override_map({"TopKV2": "test_gradients.Top"}):
        values, _ = hr.top_k(x, 2)
    np.testing.assert_array_equal(run(hr.gradients(values, x)[0]), [0, 0, 0])
    assert given[0].shape == (2,)
    assert given[1] is None


@pytest.mark.parametrize(
    ("returned", "match"),
    [
        (lambda dy: (dy, dy), r"returned 2 gradients; it has 1 inputs"),
        (lambda dy: hr.zeros([3]), r"shape \[2\] like 'Placeholder.*of shape \[3\]"),
        (lambda dy: hr.zeros([2], hr.float64), "dtype float32.*float64"),
        (lambda dy: "no", "dtype float32"),
    ],
)
def test_a_registered_function_that_returns_something_else(g, returned, match):
    name = f"test_gradients.Wrong{match}"
    hr.RegisterGradient(name)(lambda op, dy: returned(dy))
    x = hr.placeholder(hr.float32, (2,))
    with scopes.gradient_override_map({"Sin": name}):
        y = hr.sin(x, name="bent")
    with pytest.raises(SignatureError, match=rf"'bent' \(Sin, made at .*test_gradients.*{match}"):
        hr.gradients(y, x)


def test_an_override_that_nobody_registered(g):
    x = x_of(1.0)
    with scopes.gradient_override_map({"Sin": "test_gradients.Nobody"}):
        y = hr.sin(x, name="lost")
    with pytest.raises(LookupError, match=r"'lost' \(Sin, made at .*overridden by 'test_gradients.Nobody'.*Register"):
        hr.gradients(y, x)


def test_registering_twice_names_the_first_line():
    hr.RegisterGradient("test_gradients.Twice")(lambda op, dy: dy)
    with pytest.raises(DuplicateError, match=r"test_gradients.py:\d+"):
        hr.RegisterGradient("test_gradients.Twice")(lambda op, dy: dy)
    with pytest.raises(KeyError, match=r"'Sin' is the name of an op type.*gradient_override_map"):
        hr.RegisterGradient("Sin")(lambda op, dy: dy)
    with pytest.raises(TypeError, match="must be a string"):
        hr.RegisterGradient(hr.sin)


# *** operations without a gradient ***


def test_an_operation_without_a_rule_names_itself_its_line_and_what_to_do(g):
    x = x_of([1.0, 2.0])
    y = hr.raw_ops.InplaceAdd(x=x, i=[0], v=[1.0], name="hard")
    with pytest.raises(
        LookupError,
        match=r"'hard' \(InplaceAdd, made at .*test_gradients.py:\d+.*RegisterGradient\('InplaceAdd.*hr.stop_gradient",
    ):
        hr.gradients(y, x)
    np.testing.assert_array_equal(run(hr.gradients(hr.stop_gradient(y) * x, x)[0]), [2.0, 2.0])


def test_registering_a_gradient_of_an_op_type_that_has_none(g, monkeypatch):
    monkeypatch.setattr(gradient_registry, "_items", dict(gradient_registry._items))

    @hr.RegisterGradient("InplaceAdd")
    def inplace_add(op, dy):
        return dy, None, hr.gather(dy, op.inputs[1])

    x, v = x_of([1.0, 2.0]), x_of([3.0])
    y = hr.raw_ops.InplaceAdd(x=x, i=[1], v=v)
    dx, dv = run(hr.gradients(y * y, [x, v]))
    np.testing.assert_array_equal(dx, [2.0, 10.0])
    np.testing.assert_array_equal(dv, [10.0])


def test_prevented_gradients(g):
    x = x_of(1.0)
    with pytest.raises(LookupError, match=r"PreventGradient.*|because I say so"):
        hr.gradients(hr.prevent_gradient(x, "because I say so"), x)
