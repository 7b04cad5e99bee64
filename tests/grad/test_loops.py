"""Gradients of loops and conditionals: one program for each rule.

The rules are those of grad/loops.py and grad/conditionals.py; the programs are written by hand.
"""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from headrace.ir.function import owned
from tests.grad.numeric import check, count, operations

f64 = hr.float64
V = np.array([0.5, 0.3, 0.7])


def cube(x: hr.Tensor) -> hr.Tensor:
    return hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, hr.constant(1.0, f64)))[1]


def test_derivatives_of_x_cubed_as_a_loop() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, ())
        found = [cube(x)]
        for _ in range(4):
            found += hr.gradients(found[-1], x)
    with hr.Session(graph=g) as session:
        assert session.run(found, {x: 2.0}) == [8.0, 12.0, 12.0, 6.0, 0.0]


@pytest.mark.matrix
@pytest.mark.parametrize("trips", [0, 1, 2, 5])
def test_any_number_of_trips(trips: int) -> None:
    check(lambda x: hr.while_loop(lambda i, y: i < trips, lambda i, y: (i + 1, hr.sin(y) * x), (0, x * x))[1], V)


@pytest.mark.matrix
def test_loops_in_loops_with_trips_that_depend_on_the_outer_one() -> None:
    def body(i, y):
        z = hr.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, hr.sin(z) * x_of[0] + z), (0, y))[1]
        return i + 1, z * 0.9

    x_of: list[hr.Tensor] = []

    def make(x):
        x_of[:] = [x]
        return hr.while_loop(lambda i, y: i < 4, body, (0, x))[1]

    check(make, V)


@pytest.mark.matrix
def test_a_conditional_in_a_loop_and_a_loop_in_a_conditional() -> None:
    def make(x):
        def body(i, y):
            def inner():
                return hr.while_loop(lambda j, z: j < 2, lambda j, z: (j + 1, hr.sin(z) * x), (0, y))[1]

            return i + 1, hr.cond(i % 2 < 1, inner, lambda: hr.tanh(y) * y)

        return hr.while_loop(lambda i, y: i < 5, body, (0, x))[1]

    check(make, V)


@pytest.mark.matrix
def test_case_in_a_loop() -> None:
    def make(x):
        def body(i, y):
            return i + 1, hr.switch_case(i % 3, [lambda: hr.sin(y) * x, lambda: y * x, lambda: hr.exp(-y)])

        return hr.while_loop(lambda i, y: i < 5, body, (0, x))[1]

    check(make, V)


def test_a_branch_that_does_not_use_x() -> None:
    for positive in (True, False):
        check(lambda x, p=positive: hr.cond(hr.reduce_sum(x) > 0.0 if p else hr.reduce_sum(x) < 0.0,
                                            lambda: hr.sin(x), lambda: hr.ones([3], f64)), V)  # fmt: skip


@pytest.mark.matrix
def test_variables_that_change_places_and_one_that_is_reset() -> None:
    def make(x):
        return hr.while_loop(
            lambda i, a, b, c: i < 3, lambda i, a, b, c: (i + 1, b * x, hr.sin(a) + c, x), (0, x, x * 2.0, x)
        )[1]

    check(make, V)


@pytest.mark.matrix
def test_shapes_that_grow() -> None:
    def make(x):
        return hr.while_loop(
            lambda i, y: i < 3,
            lambda i, y: (i + 1, hr.concat([y, hr.sin(y[:1]) * x[:1]], 0)),
            (0, x),
            shape_invariants=((), (None,)),
        )[1]

    check(make, V)


@pytest.mark.matrix
def test_ragged_tensor_arrays() -> None:
    def make(x):
        ta = hr.TensorArray(f64, 4, infer_shape=False)
        _, ta = hr.while_loop(lambda i, ta: i < 4, lambda i, ta: (i + 1, ta.write(i, hr.sin(x[:i]) * 2.0)), (0, ta))
        return hr.while_loop(
            lambda i, s: i < 4,
            lambda i, s: (i + 1, s + hr.reduce_sum(ta.read(i) * s)),
            (0, hr.constant(0.3, f64)),
        )[1]

    check(make, V)


@pytest.mark.matrix
def test_number_of_trips_that_depends_on_values() -> None:
    def make(x):
        return hr.while_loop(
            lambda y: hr.reduce_max(hr.abs(y * y - x)) > 1e-12, lambda y: y - (y * y - x) / (2.0 * y), [x + 1.0]
        )[0]

    check(make, V)


@pytest.mark.matrix
def test_gradients_in_the_body_of_a_loop_differentiated_again() -> None:
    def make(x):
        def body(i, y):
            (d,) = hr.gradients(hr.reduce_sum(hr.sin(y) * x), y)
            return i + 1, y + 0.1 * d

        return hr.while_loop(lambda i, y: i < 3, body, (0, x))[1]

    check(make, V)


def test_what_is_unused_or_an_integer_has_no_gradient() -> None:
    with hr.Graph() as g:
        x, unused = hr.placeholder(f64, ()), hr.placeholder(f64, ())
        n = hr.placeholder(hr.int32, ())
        _, y, z, _ = hr.while_loop(
            lambda i, y, z, u: i < n,
            lambda i, y, z, u: (i + 1, y * x, hr.cast(i, f64), u * 2.0),
            (0, x, 0.0 * x, unused),
        )
        assert hr.gradients(y, unused) == [None]
        (dz,) = hr.gradients(z, x, unconnected="zero")
        with hr.Session(graph=g) as session:
            assert session.run(dz, {x: 2.0, n: 3, unused: 1.0}) == 0.0


def test_with_respect_to_constants_initial_values_and_variables() -> None:
    with hr.Graph() as g:
        w, h0 = hr.constant(2.0), hr.constant(3.0)
        v = hr.Variable(5.0)
        _, y = hr.while_loop(lambda i, h: i < 2, lambda i, h: (i + 1, h * w + v), (0, h0))
        found = hr.gradients(y, [w, h0, v])
        with hr.Session(graph=g) as session:
            session.run(v.initializer)
            assert session.run([y, *found]) == [12 + 10 + 5, 2 * 3 * 2 + 5, 4, 3]


def test_gradients_of_one_loop_share_what_is_kept_and_earlier_fetches_stay() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, ())
        _, y, z = hr.while_loop(lambda i, y, z: i < 3, lambda i, y, z: (i + 1, hr.sin(y), z * hr.sin(y)), (0, x, x))
        with hr.Session(graph=g) as session:
            before = session.run([y, z], {x: 0.5})
            (dy,) = hr.gradients(y, x)
            (dz,) = hr.gradients(z, x)
            (again,) = hr.gradients(z, x)
            loop = y.op
            pushes = [r for r in loop.get_attr("body").results if r.op.type == "TensorListPushBack"]
            assert len({push.op.inputs[1] for push in pushes}) == len(pushes) <= 3
            assert session.run([y, z], {x: 0.5}) == before
            assert session.run([dz, again], {x: 0.5})[0] == session.run(again, {x: 0.5})
            assert session.run(dy, {x: 0.5}) == pytest.approx(
                np.cos(0.5) * np.cos(np.sin(0.5)) * np.cos(np.sin(np.sin(0.5)))
            )


def test_an_rnn_keeps_one_list() -> None:
    """Only h is kept.

    Its successor is the h of the next iteration, and values read from a list are read again.
    """
    with hr.Graph() as g:
        w = hr.placeholder(f64, (4, 4))
        rows = hr.TensorArray(f64, 5).unstack(hr.placeholder(f64, (5, 2, 4)))
        _, h = hr.while_loop(
            lambda t, h: t < 5,
            lambda t, h: (t + 1, hr.tanh(hr.matmul(rows.read(t), w) + hr.matmul(h, w))),
            (0, hr.zeros([2, 4], f64)),
        )
        hr.gradients(h, w)
        pushed = [op.inputs[1] for op in operations(g) if op.type == "TensorListPushBack"]
        assert [t.op.name for t in pushed] == ["arg.h"]


def test_only_a_shape_is_kept_where_that_is_enough() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (None,))
        _, y = hr.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, y + hr.reduce_sum(hr.concat([x, x], 0)[i:])), (0, 0.0 * x[0])
        )
        hr.gradients(y, x)
        pushed = [op.inputs[1] for op in operations(g) if op.type == "TensorListPushBack"]
        assert all(t.dtype is hr.int32 for t in pushed)


def test_back_prop_false_keeps_nothing() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, ())
        _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, hr.sin(y)), (0, x), back_prop=False)
        assert hr.gradients(y, x) == [None]
        assert count(g, "TensorListPushBack") == 0


def test_a_gradient_names_the_line_of_its_forward_operation() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, ())
        _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, hr.sin(y)), (0, x))
        line = next(op.source for op in operations(g) if op.type == "Sin")
        (dx,) = hr.gradients(y, x)
        cos = [op for op in operations(g) if op.type == "Cos"]
        assert cos
        assert all(op.source == line for op in cos)
        assert dx.op.name.startswith("gradients/")
        assert owned(dx.op)


def test_what_is_the_same_in_all_iterations_is_kept_once() -> None:
    with hr.Graph() as g:
        w, v = hr.placeholder(f64, (2, 2)), hr.Variable(np.eye(2))
        x = hr.placeholder(f64, (2, 2))
        _, y = hr.while_loop(
            lambda i, y: i < 3, lambda i, y: (i + 1, hr.matmul(hr.matmul(y, v), hr.matmul(w, w))), (0, x)
        )
        (dx,) = hr.gradients(y, x)
        assert count(g, "TensorListPushBack") == 0  # y and y v are residuals of the gradients of v and w alone
        (dv,) = hr.gradients(y, v)
        assert count(g, "TensorListPushBack") == 1  # y
        with hr.Session(graph=g) as session:
            session.run(v.initializer)
            at = {x: np.ones((2, 2)), w: np.eye(2) * 2}
            np.testing.assert_allclose(session.run(dx, at), np.full((2, 2), 64.0))
            np.testing.assert_allclose(session.run(dv, at), np.full((2, 2), 3 * 2 * 64.0))


def test_a_rule_in_a_loop_knows_the_outputs_with_a_gradient() -> None:
    """BlockLSTM has gradients of cs and h alone; the loss alone needs no Softmax."""
    shapes = {"x": (3, 2, 2), "cs_prev": (2, 3), "h_prev": (2, 3), "w": (5, 12), "wci": (3,)}
    shapes |= {"wcf": (3,), "wco": (3,), "b": (12,)}
    with hr.Graph() as g:
        args = {name: hr.placeholder(hr.float32, s) for name, s in shapes.items()}

        def body(i, s):
            h = hr.raw_ops.BlockLSTM(seq_len_max=np.int64(3), **args)[6]
            loss = hr.nn.sparse_softmax_cross_entropy_with_logits([0, 2], h[2])
            return i + 1, s + hr.reduce_sum(h) + hr.reduce_sum(loss)

        _, s = hr.while_loop(lambda i, s: i < 2, body, (0, 0.0))
        _, once = body(0, 0.0)
        grads = hr.gradients(s, args["w"]) + hr.gradients(once, args["w"])
        assert count(g, "Softmax") == 0
    rng = np.random.default_rng(0)
    with hr.Session(graph=g) as session:
        in_loop, outside = session.run(grads, {x: rng.uniform(-1, 1, x.shape) for x in args.values()})
    np.testing.assert_allclose(in_loop, 2 * outside, rtol=1e-5)


def test_a_variable_that_the_loop_changes_is_kept_as_it_was() -> None:
    with hr.Graph() as g:
        v = hr.Variable(hr.constant(1.0, f64))
        x = hr.placeholder(f64, ())

        def body(i, y):
            read = v.read_value()
            with hr.control_dependencies([read]):
                v.assign_add(hr.constant(1.0, f64))
            return i + 1, y * read

        _, y = hr.while_loop(lambda i, y: i < 3, body, (0, x))
        (dx,) = hr.gradients(y, x)
        with hr.Session(graph=g) as session:
            session.run(v.initializer)
            assert session.run([y, dx], {x: 5.0}) == [5.0 * 1 * 2 * 3, 6.0]


def test_in_a_branch_what_is_outside_cannot_depend_on_what_is_inside() -> None:
    with hr.Graph() as g:
        x, c = hr.placeholder(f64, ()), hr.constant(2.0, f64)
        found: list[object] = []

        def branch() -> hr.Tensor:
            u = hr.identity(x)
            found.extend(hr.gradients(c * c, u))
            return hr.gradients(c * c, u, unconnected="zero")[0]

        y = hr.cond(x > 0.0, branch, lambda: x)
        assert found == [None]
        with hr.Session(graph=g) as session:
            assert session.run(y, {x: 1.0}) == 0.0


def test_what_only_an_unwanted_gradient_would_need_is_not_kept() -> None:
    """The rule of `y * c` has a gradient for c too, which would need y.

    The test does not request that gradient.
    """
    with hr.Graph():
        x, c = hr.placeholder(f64, (3,)), hr.placeholder(f64, (3,))
        _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * c), (0, x))
        (dx,) = hr.gradients(y, x)
        body = dx.op.get_attr("body")
        assert not [op.type for op in body.operations if "TensorList" in op.type]
