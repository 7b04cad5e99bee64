"""`grad`, `vjp`, `jvp`, `jacobian`, `hessian`: in graphs and outside, of one another; their errors."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import GraphError, SignatureError


def both_ways(f, *args):
    """Results of `f` outside of graphs and in a graph: two structures of arrays."""
    from headrace import nest

    outside = f(*args)
    with hr.Graph() as g:
        symbolic = [nest.map_leaves(lambda x: hr.placeholder_with_default(x, np.shape(x)), a) for a in args]
        made = f(*symbolic)
        leaves = nest.flatten(made)
        assert all(isinstance(t, hr.SymbolicTensor) for t in leaves)
    inside = nest.pack(made, hr.Session(graph=g).run(leaves))
    return nest.map_leaves(lambda t: t.numpy(), outside), inside


def cube(x):
    """x^3, as a loop."""
    return hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * x), (0, hr.ones_like(x)))[1]


# *** grad ***


@pytest.mark.matrix
def test_grad_of_grad_of_grad_of_a_loop():
    x = np.float32(2.0)
    f = cube
    for want in (12.0, 12.0, 6.0):
        f = hr.grad(f)
        assert both_ways(f, x) == (want, want)


def test_the_gradient_has_the_structure_and_dtypes_of_the_arguments():
    @dataclasses.dataclass
    class Params:
        w: Any
        b: Any

    def f(p, x):
        return hr.reduce_sum(p.w * x + hr.cast(p.b, hr.float64))

    got = hr.grad(f, argnums=(0, 1))(Params(np.array([1.0, 2.0]), 3.0), np.array([4.0, 5.0]))
    assert isinstance(got, tuple)
    assert isinstance(got[0], Params)
    np.testing.assert_array_equal(got[0].w, [4.0, 5.0])
    assert (got[0].w.dtype, got[0].b.dtype, float(got[0].b)) == (hr.float64, hr.float64, 2.0)
    np.testing.assert_array_equal(got[1], [1.0, 2.0])
    assert hr.grad(f, argnums=-1)(Params(np.array([1.0, 2.0]), 3.0), np.array([4.0, 5.0])).shape == (2,)


def test_what_the_function_does_not_depend_on_has_zeros():
    outside, inside = both_ways(hr.grad(lambda x, y: hr.reduce_sum(y)), np.float32([1, 2]), np.float32(3))
    np.testing.assert_array_equal(outside, [0, 0])
    np.testing.assert_array_equal(inside, [0, 0])


def test_an_argument_is_not_the_tensor_it_was_given():
    with hr.Graph() as g:
        x = hr.placeholder_with_default(3.0, ())
        d = hr.grad(lambda a, b: a * b + x * a)(x, x)
    assert hr.Session(graph=g).run(d) == 6.0  # by a alone


def test_value_and_grad_and_aux():
    def f(x):
        return hr.sin(x), {"twice": x * 2, "text": "as it is"}

    (y, aux), d = hr.value_and_grad(f, has_aux=True)(0.0)
    assert (float(y), float(d), float(aux["twice"]), aux["text"]) == (0.0, 1.0, 0.0, "as it is")
    d, aux = hr.grad(f, has_aux=True)(0.0)
    assert (float(d), aux["text"]) == (1.0, "as it is")


def test_keyword_arguments_are_not_differentiated():
    assert float(hr.grad(lambda x, k: x * k)(2.0, k=np.float32(5))) == 5.0


def test_python_arguments_stay_as_they_are():
    def f(x, n, how):
        assert (n, how) == (3, "up")
        for _ in range(n):
            x = x * x
        return x

    assert float(hr.grad(f)(2.0, 3, "up")) == 8 * 2**7


def test_gathered_rows_have_a_dense_gradient():
    outside, inside = both_ways(hr.grad(lambda p: hr.reduce_sum(hr.gather(p, [0, 0, 2]) ** 2.0)), np.float32([1, 2, 3]))
    np.testing.assert_array_equal(outside, [4, 0, 6])
    np.testing.assert_array_equal(inside, [4, 0, 6])


def test_inside_a_loop_and_a_branch():
    def f(x):
        step = hr.grad(lambda z: z * z * x)
        y = hr.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, step(a)), (0, x))[1]
        return hr.cond(x > 0, lambda: hr.grad(cube)(y), lambda: x)

    # a = 2 (2 x x) x = 4 x^3; 3 a^2 = 48 x^6
    assert both_ways(f, np.float32(1.5))[1] == np.float32(48 * 1.5**6)
    np.testing.assert_allclose(both_ways(hr.grad(f), np.float32(1.5)), np.float32([6 * 48 * 1.5**5] * 2), rtol=1e-6)


def test_a_value_of_unknown_shape_is_checked_when_it_runs():
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32)
        d = hr.grad(lambda x: x * x)(x)
    session = hr.Session(graph=g)
    assert session.run(d, {x: 3.0}) == 6.0
    with pytest.raises(hr.errors.InvalidArgumentError):
        session.run(d, {x: [1.0, 2.0]})


def test_the_function_has_a_name():
    assert hr.grad(cube).__name__ == "grad_of_cube"
    assert hr.hessian(lambda x: x).__name__ == "hessian_of_function"


# *** vjp and jvp ***


def test_vjp_goes_back_several_times():
    y, pull_back = hr.vjp(lambda a, n: {"y": hr.sin(a) * 2, "n": n + 1}, np.float32([0, 1]), np.int32(3))
    assert int(y["n"]) == 4
    np.testing.assert_allclose(y["y"], 2 * np.sin([0, 1]), rtol=1e-6)
    for dy in ([1.0, 0.0], [0.0, 10.0]):
        da, dn = pull_back({"y": np.float32(dy), "n": None})
        np.testing.assert_allclose(da, 2 * np.cos([0, 1]) * dy, rtol=1e-6)
        assert dn is None


def test_vjp_in_a_graph_and_back_inside_a_loop():
    with hr.Graph() as g:
        x = hr.placeholder_with_default(np.float32([1, 2]), (2,))
        _, pull_back = hr.vjp(cube, x)
        _, total = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + pull_back(s)[0]), (0, hr.ones([2])))
    np.testing.assert_allclose(hr.Session(graph=g).run(total), [4.0**3, 13.0**3], rtol=1e-6)


def test_jvp_is_the_slope():
    outside, inside = both_ways(lambda x, v: hr.jvp(cube, [x], [v]), np.float32([1, 2]), np.float32([10, 100]))
    for y, dy in (outside, inside):
        np.testing.assert_array_equal(y, [1, 8])
        np.testing.assert_array_equal(dy, [30, 1200])


def test_jvp_with_integers_and_structures():
    y, dy = hr.jvp(
        lambda p, n: (p["a"] * hr.cast(n, hr.float32), n), [{"a": 2.0, "b": 1.0}, 3], [{"a": 1.0, "b": None}, None]
    )
    assert (float(y[0]), float(dy[0]), dy[1]) == (6.0, 3.0, None)


def test_jvp_of_grad_and_grad_of_jvp():
    def slope(x):
        return hr.jvp(cube, [x], [hr.ones_like(x)])[1]

    assert both_ways(hr.grad(slope), np.float32(2)) == (12.0, 12.0)
    y, dy = hr.jvp(hr.grad(cube), [2.0], [1.0])
    assert (float(y), float(dy)) == (12.0, 12.0)
    assert float(hr.jvp(slope, [2.0], [1.0])[1]) == 12.0


# *** jacobians ***


def outer(x):
    return hr.sin(x)[:, None] * x


@pytest.mark.parametrize("mode", ["rev", "fwd"])
def test_a_jacobian_has_the_shape_of_the_result_and_then_of_the_argument(mode):
    want = np.zeros((2, 2, 2))
    x = np.array([1.0, 2.0])
    for i in range(2):
        for j in range(2):
            want[i, j, i] += np.cos(x[i]) * x[j]
            want[i, j, j] += np.sin(x[i])
    for got in both_ways(hr.jacobian(outer, mode=mode), x):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("mode", ["rev", "fwd"])
def test_a_jacobian_of_structures(mode):
    def f(p):
        return {"y": hr.matvec(p["w"], p["x"]), "s": hr.reduce_sum(p["x"])}

    p = {"w": np.eye(2, 3, dtype=np.float32), "x": np.float32([1, 2, 3])}
    for got in both_ways(hr.jacobian(f, mode=mode), p):
        assert {k: {j: a.shape for j, a in v.items()} for k, v in got.items()} == {
            "y": {"w": (2, 2, 3), "x": (2, 3)},
            "s": {"w": (2, 3), "x": (3,)},
        }
        np.testing.assert_array_equal(got["y"]["x"], p["w"])
        np.testing.assert_array_equal(got["s"]["w"], np.zeros((2, 3)))
        np.testing.assert_array_equal(got["y"]["w"][1], [[0, 0, 0], [1, 2, 3]])


@pytest.mark.parametrize("mode", ["rev", "fwd"])
def test_a_jacobian_of_tensors_whose_shapes_are_known_when_they_run(mode):
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None,))
        j = hr.jacobian(cube(x), x, mode)
        (d,) = hr.gradients(hr.reduce_sum(j), x)
        nested = hr.jacobian({"y": hr.reduce_sum(x)}, [x], mode)
    session = hr.Session(graph=g)
    j_, d_ = session.run([j, d], {x: [1, 2]})
    np.testing.assert_array_equal(j_, [[3, 0], [0, 12]])
    np.testing.assert_array_equal(d_, [6, 12])
    np.testing.assert_array_equal(session.run(nested["y"][0], {x: [1, 2, 3]}), [1, 1, 1])
    assert j.shape == (None, None)


def test_a_jacobian_of_two_arguments_and_with_aux():
    (da, db), aux = hr.jacobian(lambda a, b: (a * b, "aux"), (0, 1), has_aux=True)(np.float32([1, 2]), 3.0)
    np.testing.assert_array_equal(da, [[3, 0], [0, 3]])
    np.testing.assert_array_equal(db, [1, 2])
    assert aux == "aux"


@pytest.mark.parametrize("mode", ["rev", "fwd"])
def test_a_jacobian_of_nothing(mode):
    assert hr.jacobian(lambda x: x * 2, mode=mode)(np.zeros((0, 3), np.float32)).shape == (0, 3, 0, 3)


def test_a_hessian():
    x = np.float32([2, 3, 4])
    for got in both_ways(hr.hessian(hr.reduce_prod), x):
        np.testing.assert_array_equal(got, [[0, 4, 3], [4, 0, 2], [3, 2, 0]])
    for got in both_ways(hr.hessian(lambda x: hr.reduce_sum(cube(x))), x):
        np.testing.assert_array_equal(got, np.diag([12, 18, 24]))


def test_a_hessian_of_structures_and_of_tensors():
    got = hr.hessian(lambda p: p["a"] * p["a"] * hr.reduce_sum(p["b"]))({"a": 2.0, "b": np.float32([3, 4])})
    assert float(got["a"]["a"]) == 14.0
    np.testing.assert_array_equal(got["a"]["b"], [4, 4])
    np.testing.assert_array_equal(got["b"]["a"], [4, 4])
    np.testing.assert_array_equal(got["b"]["b"], np.zeros((2, 2)))
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None,))
        h = hr.hessian(hr.reduce_prod(x), x)
    np.testing.assert_array_equal(hr.Session(graph=g).run(h, {x: [2, 3]}), [[0, 1], [1, 0]])


@pytest.mark.matrix
def test_jacobians_of_jacobians():
    third = hr.jacobian(hr.jacobian(hr.jacobian(lambda x: hr.reduce_sum(cube(x)))))
    for got in both_ways(third, np.float32([1, 2])):
        want = np.zeros((2, 2, 2))
        want[0, 0, 0] = want[1, 1, 1] = 6
        np.testing.assert_array_equal(got, want)


# *** errors ***


def test_a_value_that_is_no_scalar_says_what_there_is():
    with pytest.raises(SignatureError, match=r"'cube' \(.*test_transforms.py:\d+.*of shape \[2\].*hr.vjp.*hr.jacobian"):
        hr.grad(cube)(np.float32([1, 2]))
    with pytest.raises(ValueError, match="a tuple of 2"):
        hr.grad(lambda x: (x, x))(1.0)
    with pytest.raises(SignatureError, match=r"has_aux=True.*must return a pair"):
        hr.grad(lambda x: x, has_aux=True)(1.0)
    with hr.Graph():
        x = hr.placeholder(hr.float32, (2,))
        with pytest.raises(SignatureError, match="hessian needs a scalar"):
            hr.hessian(x, x)


def test_integers_are_named():
    def f(x):
        return hr.cast(x, hr.float32)

    with pytest.raises(TypeError, match=r"argument 'x' of 'f'.*int32.*argnums"):
        hr.grad(f)(3)
    with pytest.raises(TypeError, match=r"argument 'p' at \['k'\]"):
        hr.grad(lambda p: p["a"])({"a": 1.0, "k": 1})
    with pytest.raises(TypeError, match=r"floating point number.*int32"):
        hr.grad(lambda x: hr.cast(x, hr.int32))(3.0)
    with pytest.raises(TypeError, match=r"complex64.*real part"):
        hr.grad(lambda x: x * x)(np.complex64(3))
    with pytest.raises(TypeError, match=r"jacobian: .*returned .* at \['n'\] of dtype int32"):
        hr.jacobian(lambda x: {"n": hr.cast(x, hr.int32)})(1.0)
    with hr.Graph(), pytest.raises(TypeError, match=r"jacobian: x must be .*int32"):
        hr.jacobian(hr.constant(1.0), hr.constant(1))


def test_arguments_that_are_not_there():
    with pytest.raises(ValueError, match="argnums=1, but the call has 1 positional arguments"):
        hr.grad(cube, argnums=1)(1.0)
    with pytest.raises(TypeError, match="argnums must be an integer"):
        hr.grad(cube, argnums="x")(1.0)
    with pytest.raises(TypeError, match="must be callable"):
        hr.grad(3.0)
    with pytest.raises(TypeError, match=r"argument 'x'.* must be a tensor"):
        hr.grad(cube)(object())


def test_gradients_and_tangents_that_do_not_fit():
    _, pull_back = hr.vjp(lambda x: (x * 2, x), np.float32([1, 2]))
    with pytest.raises(SignatureError, match=r"at \[0\] must be .*shape \[2\].*of shape \[3\]"):
        pull_back((np.float32([1, 2, 3]), None))
    with pytest.raises(SignatureError, match="does not have the structure of the result"):
        pull_back(np.float32([1, 2]))
    with pytest.raises(SignatureError, match="dtype float32"):
        pull_back((np.float64([1, 2]), None))
    with pytest.raises(SignatureError, match="1 args, but 2 tangents"):
        hr.jvp(cube, [1.0], [1.0, 2.0])
    with pytest.raises(SignatureError, match=r"the tangent at \[0\].*shape \[\].*of shape \[2\]"):
        hr.jvp(cube, [1.0], [np.float32([1, 2])])
    with pytest.raises(SignatureError, match=r"must be None.*int32"):
        hr.jvp(lambda n: n, [3], [1])
    with pytest.raises(TypeError, match="args must be a list or tuple"):
        hr.jvp(cube, 1.0, 1.0)


def test_values_and_graphs_do_not_mix():
    _, pull_back = hr.vjp(cube, 2.0)
    with hr.Graph(), pytest.raises(GraphError, match=r"call hr\.vjp inside the graph"):
        pull_back(hr.placeholder(hr.float32, ()))
    with pytest.raises(ValueError, match="mode must be 'rev' or 'fwd', got 'both'"):
        hr.jacobian(cube, mode="both")


# *** Python numbers as arguments ***


DOUBLE = np.array([0.5, 2.0, 3.0])


def product(x, s):
    return hr.reduce_sum(x * s)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_python_number_takes_the_dtype_of_the_tensors_beside_it(kind):
    dx, ds = hr.grad(product, argnums=(0, 1))(DOUBLE.astype(kind), 0.1)
    assert (dx.dtype, ds.dtype) == (kind, kind)
    np.testing.assert_array_equal(dx, [kind(0.1)] * 3)
    assert float(ds) == 5.5


def test_a_python_number_yields_to_a_captured_tensor():
    x = hr.constant(DOUBLE)
    assert float(hr.grad(lambda s: hr.reduce_sum(x * s))(2.0)) == 5.5
    assert hr.jvp(lambda s: s * x, (2.0,), (1.0,))[1].dtype == hr.float64


def test_a_number_of_numpy_does_not_yield():
    with pytest.raises(hr.errors.SignatureError, match="float32 that does not match type float64"):
        hr.grad(product)(DOUBLE, np.float32(0.1))


def test_a_python_number_and_a_tensor_of_its_dtype_have_different_traces():
    x = hr.constant(DOUBLE)
    f = lambda s: hr.reduce_sum(x * s)
    for _ in range(2):
        assert float(hr.grad(f)(2.0)) == 5.5
        with pytest.raises(hr.errors.SignatureError, match="float32 that does not match type float64"):
            hr.grad(f)(hr.constant(2.0))


def test_a_python_number_yields_in_a_graph():
    with hr.Graph(), hr.Session() as s:
        dx, ds = s.run(hr.grad(product, argnums=(0, 1))(hr.constant(DOUBLE), 0.1))
    np.testing.assert_array_equal(dx, [0.1] * 3)
    assert (ds.dtype, float(ds)) == (np.float64, 5.5)
