"""`hr.vmap`: axes, structures, gradients of each example, random numbers, state, errors."""

from __future__ import annotations

import itertools
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

import headrace as hr
from headrace.errors import InvalidArgumentError, SignatureError, UnimplementedError
from tests.extending.registering import forgotten
from tests.vmap.alone import as_array, check

RNG = np.random.default_rng(5)
A = RNG.normal(size=(4, 3)).astype(np.float32)
B = RNG.normal(size=(4, 3, 2)).astype(np.float32)
W = RNG.normal(size=(3, 2)).astype(np.float32)


class Layer(NamedTuple):
    w: Any
    b: Any


# *** axes and structures ***


@pytest.mark.parametrize("axis", [0, 1, -1, -2])
def test_in_axes_may_be_any_axis(axis: int) -> None:
    got = hr.vmap(lambda x: x * 2 + hr.reduce_sum(x), in_axes=axis)(A)
    want = np.stack([r * 2 + r.sum() for r in np.moveaxis(A, axis, 0)])
    np.testing.assert_allclose(as_array(got), want, rtol=1e-5)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_out_axes_may_be_any_axis(axis: int) -> None:
    got = hr.vmap(lambda x: hr.transpose(x), out_axes=axis)(B)
    np.testing.assert_array_equal(as_array(got), np.moveaxis(B.transpose(0, 2, 1), 0, axis))


def test_axes_of_structures_are_upper_parts_of_them() -> None:
    def f(layer: Layer, inputs: Any) -> Any:
        return {"y": inputs["x"] @ layer.w + layer.b, "w": layer.w}

    w, b, x = RNG.normal(size=(2, 3, 5)), RNG.normal(size=(3, 5)), RNG.normal(size=(7, 2))
    mapped = hr.vmap(f, in_axes=(Layer(w=1, b=0), None), out_axes={"y": 1, "w": 0})
    got = mapped(Layer(w, b), {"x": x})
    want = np.stack([x @ w[:, i] + b[i] for i in range(3)], axis=1)
    np.testing.assert_allclose(as_array(got["y"]), want)
    np.testing.assert_array_equal(as_array(got["w"]), w.swapaxes(0, 1))


def test_keyword_arguments_are_mapped_along_axis_0() -> None:
    got = hr.vmap(lambda x, *, y: x - y)(A, y=A[::-1])
    np.testing.assert_array_equal(as_array(got), A - A[::-1])


def test_a_result_that_is_the_same_for_all_is_repeated_or_returned_as_it_is() -> None:
    got = hr.vmap(lambda x, w: (hr.reduce_sum(w), w), in_axes=(0, None), out_axes=(0, None))(A, W)
    assert as_array(got[0]).shape == (4,)
    assert as_array(got[1]).shape == W.shape
    with pytest.raises(ValueError, match=r"out_axes=None for the result of .*, which differs between the examples"):
        hr.vmap(lambda x: x, out_axes=None)(A)


def test_nested_vmap() -> None:
    got = hr.vmap(hr.vmap(hr.multiply, in_axes=(None, 0)), in_axes=(0, None))(A[:, 0], A[:, 1])
    np.testing.assert_array_equal(as_array(got), np.multiply.outer(A[:, 0], A[:, 1]))
    check(hr.vmap(lambda v: hr.cond(v[0] > 0, lambda: hr.reduce_max(v), lambda: hr.reduce_min(v))), B)


def test_python_values_stay_with_in_axes_none() -> None:
    def f(x: Any, how: str, n: int) -> Any:
        assert (how, n) == ("sum", 2)
        return hr.reduce_sum(x) * n

    np.testing.assert_allclose(as_array(hr.vmap(f, in_axes=(0, None, None))(A, "sum", 2)), A.sum(1) * 2, rtol=1e-5)


def test_a_batch_may_be_empty() -> None:
    def f(x: Any) -> Any:
        y = hr.cond(hr.reduce_sum(x) > 0, lambda: x * 2, lambda: x)
        return hr.while_loop(lambda a: hr.reduce_sum(a) < 9.0, lambda a: a + 1.0, [y])[0]

    assert as_array(hr.vmap(f)(np.zeros((0, 3), np.float32))).shape == (0, 3)


def test_names_and_static_shapes() -> None:
    with hr.Graph():
        f = hr.vmap(lambda x: hr.tanh(x @ W), out_axes=1)
        y = f(hr.placeholder(hr.float32, [None, 5, 3]))
        assert y.shape == (5, None, 2)
    assert f.__name__ == "vmap_of_function"


# *** products and structure of the result ***


def test_products_with_each_factor_mapped() -> None:
    X = RNG.normal(size=(4, 2, 3)).astype(np.float32)
    check(lambda x: x @ W, X)
    check(lambda x, w: x @ w, X, B)
    check(lambda x, w: x @ w, X[0], B, in_axes=(None, 0))
    check(lambda x, w: hr.matmul(x, w, transpose_a=True, transpose_b=True), X, X.transpose(0, 2, 1), rtol=1e-4)
    check(lambda x, w: hr.matvec(x, w), X, A)
    check(lambda x, w: hr.einsum("ij,jk->ki", x, w), X, B)
    check(lambda x, w: hr.tensordot(x, w, 1), X, B)
    check(lambda x: hr.matmul(x, x, transpose_a=True), X[:, :1])


def test_a_product_of_mapped_rows_with_one_matrix_is_a_single_product() -> None:
    with hr.Graph() as g:
        hr.vmap(lambda x: hr.matmul(x, W))(hr.placeholder(hr.float32, [4, 2, 3]))
        assert [op.type for op in g.operations if "MatMul" in op.type] == ["MatMul"]


def test_positions_that_differ_between_examples() -> None:
    i = np.array([0, 2, -1, 1], np.int32)
    check(lambda x, i: x[i], A, i)
    check(lambda x, i: x[i, 1:], B, i)
    check(lambda x, i: x[:, i], B.transpose(0, 2, 1), i)
    check(lambda x, i: x[i], A[0], i, in_axes=(None, 0))
    check(hr.grad(lambda x, i: x[i] * x[0]), A, i)
    check(lambda x, i: hr.slice(x, [i], [2]), A, np.array([0, 1, 1, 0], np.int32))
    check(lambda x, i: hr.one_hot(i, 3) * x, A, np.abs(i))
    check(lambda x, i: hr.gather(x, [i, 0]), B, np.abs(i))
    check(lambda x, i: hr.tensor_scatter_nd_update(x, [[i]], [9.0]), A, np.abs(i))


# *** gradients ***


def mlp(params: Any, x: Any) -> Any:
    for w, b in params[:-1]:
        x = hr.tanh(hr.matvec(w, x) + b)
    w, b = params[-1]
    return hr.matvec(w, x) + b


def loss(params: Any, x: Any, y: Any) -> Any:
    return hr.reduce_sum(hr.square(mlp(params, x) - y))


def test_gradients_of_each_example() -> None:
    sizes = [3, 5, 4, 2]
    params = [
        (RNG.normal(size=(o, i)).astype(np.float32), RNG.normal(size=o).astype(np.float32))
        for i, o in itertools.pairwise(sizes)
    ]
    x, y = RNG.normal(size=(6, 3)).astype(np.float32), RNG.normal(size=(6, 2)).astype(np.float32)
    grads = hr.vmap(hr.grad(loss), in_axes=(None, 0, 0))(params, x, y)
    for i in range(len(x)):
        want = hr.grad(loss)(params, x[i], y[i])
        for g, one in zip(hr.tree.leaves(grads), hr.tree.leaves(want), strict=True):
            np.testing.assert_allclose(as_array(g)[i], as_array(one), rtol=2e-5, atol=1e-5)


def test_the_gradient_of_a_sum_over_the_batch_is_the_sum_of_the_gradients() -> None:
    f = lambda w, x: hr.reduce_sum(hr.tanh(x * w)) ** 2
    whole = hr.grad(lambda w: hr.reduce_sum(hr.vmap(f, in_axes=(None, 0))(w, A)))(A[0])
    each = hr.vmap(hr.grad(f), in_axes=(None, 0))(A[0], A)
    np.testing.assert_allclose(as_array(whole), as_array(each).sum(0), rtol=1e-4, atol=1e-6)


def test_jacobians_and_hessians_by_vmap() -> None:
    f = lambda x: hr.tanh(x) * hr.reduce_sum(x * x)

    def jacobian(x: Any) -> Any:
        _, pull = hr.vjp(f, x)
        return hr.vmap(lambda row: pull(row))(hr.eye(3))

    with hr.Graph() as g:
        found = jacobian(hr.constant(A[0]))
        found = found[0] if isinstance(found, tuple) else found
        want = hr.jacobian(f)(hr.constant(A[0]))
        with hr.Session(graph=g) as s:
            got, expected = s.run([found, want])
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    check(hr.hessian(lambda x: hr.reduce_sum(hr.sin(x) * x[0])), A, rtol=1e-4)
    check(hr.jacobian(f), A, rtol=1e-4)


def test_gradients_of_a_gradient_of_each_example() -> None:
    g = hr.grad(lambda x: hr.reduce_sum(hr.vmap(hr.grad(lambda a: a**3))(x) ** 2))
    x = A[:, 0]
    np.testing.assert_allclose(as_array(g(x)), 36 * x**3, rtol=1e-4)


def test_convolutions_of_each_example() -> None:
    images = RNG.normal(size=(3, 2, 6, 6, 2)).astype(np.float32)
    filters = RNG.normal(size=(3, 3, 2, 4)).astype(np.float32)

    def f(w: Any, x: Any) -> Any:
        y = hr.nn.relu(hr.nn.conv2d(x, w, [1, 1, 1, 1], "SAME"))
        return hr.reduce_sum(hr.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "VALID") ** 2)

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none is computed alone
        check(f, filters, images, in_axes=(None, 0), rtol=1e-4)
        given = hr.vmap(hr.grad(f), in_axes=(None, 0))(filters, images)
    want = np.stack([as_array(hr.grad(f)(filters, x)) for x in images])
    np.testing.assert_allclose(as_array(given), want, rtol=1e-3, atol=1e-3)


def test_batch_norm_of_each_example() -> None:
    images = RNG.normal(size=(3, 4, 2, 2, 3)).astype(np.float32)

    def f(scale: Any, x: Any) -> Any:
        y, mean, _ = hr.nn.fused_batch_norm(x, scale, hr.zeros([3]))
        return hr.reduce_sum(y**3) + hr.reduce_sum(mean)

    scale = np.array([1.0, 2.0, 0.5], np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = hr.vmap(f, in_axes=(None, 0))(scale, images)
        grads = hr.vmap(hr.grad(f, (0, 1)), in_axes=(None, 0))(scale, images)
    np.testing.assert_allclose(as_array(value), [as_array(f(scale, x)) for x in images], rtol=1e-4)
    wants = [hr.grad(f, (0, 1))(scale, x) for x in images]
    for got, want in zip(grads, zip(*wants, strict=True), strict=True):
        np.testing.assert_allclose(as_array(got), np.stack(list(map(as_array, want))), rtol=2e-3, atol=1e-4)


def test_cross_entropies_of_each_example() -> None:
    logits, labels = RNG.normal(size=(5, 4)).astype(np.float32), np.array([0, 3, 1, 1, 2], np.int32)

    def f(x: Any, y: Any) -> Any:
        return hr.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x)

    check(f, logits, labels)
    check(hr.grad(f), logits, labels)


def test_a_custom_gradient_inside_of_the_mapped_function() -> None:
    @hr.custom_gradient
    def clipped(x: Any) -> Any:
        return x * x, lambda dy: hr.clip_by_value(dy * 2 * x, -1.0, 1.0)

    check(hr.grad(lambda x: clipped(x) * 3.0), A[:, 0])


def test_the_gradient_of_a_mapped_function_with_a_custom_gradient() -> None:
    @hr.custom_gradient
    def scaled(x: Any, w: Any) -> Any:
        y = x * w
        unused = hr.exp(x)  # which only the gradient reads
        return hr.reduce_sum(y), lambda dy: (dy * w * 10.0, dy * unused)

    def total(x: Any, w: Any) -> Any:
        return hr.reduce_sum(hr.vmap(lambda v: scaled(v, w) ** 2)(x))

    for argnums, want in (
        (0, 20 * (A * A[0]).sum(1)[:, None] * A[0]),
        (1, (2 * (A * A[0]).sum(1)[:, None] * np.exp(A)).sum(0)),
    ):
        np.testing.assert_allclose(as_array(hr.grad(total, argnums)(A, A[0])), want, rtol=1e-4)


def test_a_custom_gradient_in_a_mapped_loop() -> None:
    @hr.custom_gradient
    def doubled(x: Any) -> Any:
        return x * 2.0, lambda dy: dy * x

    def f(x: Any) -> Any:
        return hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, doubled(a)), (0, x))[1]

    x = A[:, 0]
    got = hr.grad(lambda x: hr.reduce_sum(hr.vmap(f)(x)))(x)
    np.testing.assert_allclose(as_array(got), x * (2 * x) * (4 * x), rtol=1e-4)


# *** random numbers and state ***


def test_random_numbers_are_drawn_for_each_example() -> None:
    with hr.Graph() as g:
        y = hr.vmap(lambda x: (x * 0 + hr.random.uniform([3]), hr.random.normal([])))(hr.constant(A))
        with hr.Session(graph=g) as s:
            uniform, normal = s.run(y)
    assert uniform.shape == (4, 3)
    assert len(np.unique(uniform)) == 12
    assert len(np.unique(normal)) == 4


def test_dropout_differs_between_examples() -> None:
    with hr.Graph() as g:
        y = hr.vmap(lambda x: hr.nn.dropout(x, rate=0.5))(hr.ones([4, 50]))
        with hr.Session(graph=g) as s:
            kept = s.run(y) != 0
    assert len({row.tobytes() for row in kept}) == 4


def test_prints_are_made_for_each_example(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.warns(UserWarning, match="for each example alone"):
        hr.vmap(lambda x: hr.group(hr.print(x)) and x)(np.array([1.0, 2.5], np.float32))
    printed = capfd.readouterr()
    assert (printed.out + printed.err).split() == ["1", "2.5"]


def test_variables_are_read_and_must_not_change_by_example() -> None:
    with hr.Graph() as g:
        v = hr.Variable(W)
        y = hr.vmap(lambda x: hr.reduce_sum(hr.matmul(hr.expand_dims(x, 0), v)))(hr.constant(A))
        with pytest.raises(UnimplementedError, match=r"AssignAddVariableOp.*changes state, and its inputs differ"):
            hr.vmap(lambda x: v.assign_add(hr.expand_dims(x, 1) * W))(hr.constant(A))
        with hr.Session(graph=g) as s:
            s.run(v.initializer)
            np.testing.assert_allclose(s.run(y), (A @ W).sum(1), rtol=1e-4)


def test_assertions_hold_for_all_examples() -> None:
    def f(x: Any) -> Any:
        with hr.control_dependencies([hr.assert_positive(x)]):
            return hr.identity(x)

    check(f, np.abs(A) + 1)
    with pytest.raises(InvalidArgumentError):
        hr.vmap(f)(np.array([[1.0], [-1.0]], np.float32))


# *** without a rule ***


def test_an_operation_without_a_rule_is_computed_for_each_example_with_a_warning() -> None:
    with pytest.warns(
        UserWarning, match=r"vmap computes .*Unique, made at .*test_vmap\.py:\d+.* for each example alone"
    ):
        got = hr.vmap(lambda x: hr.unique(x)[1])(np.array([[1, 2, 1], [5, 5, 5]], np.int32))
    assert as_array(got).tolist() == [[0, 1, 0], [0, 0, 0]]


def test_ops_of_extensions_state_their_rule() -> None:
    from headrace import extend

    def shape(c: Any) -> Any:
        return [(*c.shapes[0][:-1], 2)]

    given: Any = {
        "shape": shape,
        "kernel": lambda attrs: lambda x: x[..., [0, -1]],
        "grad": extend.missing("a test"),
    }
    with pytest.raises(TypeError, match=r"batch= must be a function or missing\('why'\), got 3"):
        extend.register_op("VmapTestEnds", "x: float32", "y: float32", **given, batch=3)
    with forgotten():
        ends = extend.register_op("VmapTestEnds", "x: float32", "y: float32", **given, batch=extend.in_step)
        check(lambda x: ends(x), A)
        given["shape"] = extend.unknown
        never = extend.register_op(
            "VmapTestNever", "x: float32", "y: float32", **given, batch=extend.missing("it knows the batch")
        )
        with pytest.raises(
            UnimplementedError, match=r"VmapTestNever, made at .* cannot be batched: it knows the batch"
        ):
            hr.vmap(lambda x: never(x))(A)


def test_python_functions_are_called_for_each_example() -> None:
    with pytest.warns(UserWarning, match="for each example alone"):
        got = hr.vmap(lambda x: hr.numpy_function(lambda a: a * np.float32(2), [x], hr.float32))(A)
    np.testing.assert_array_equal(as_array(got), A * 2)


# *** errors ***


def test_sizes_that_differ_name_both_arguments() -> None:
    with pytest.raises(SignatureError, match=r"argument 'x' has 4 examples and argument 'y' at \['k'\] has 3"):
        hr.vmap(lambda x, y: x)(A, {"k": np.zeros(3)})


def test_unknown_sizes_are_compared_when_the_step_runs() -> None:
    with hr.Graph() as g:
        x, y = hr.placeholder(hr.float32, [None]), hr.placeholder(hr.float32, [None])
        z = hr.vmap(lambda a, b: a * b)(x, y)
        with hr.Session(graph=g) as s:
            assert s.run(z, {x: [1, 2], y: [3, 4]}).tolist() == [3, 8]
            with pytest.raises(InvalidArgumentError, match="must have equally many examples"):
                s.run(z, {x: [1, 2], y: [3]})


@pytest.mark.parametrize("axis", [2, -3])
def test_an_axis_out_of_range_names_the_argument(axis: int) -> None:
    with pytest.raises(ValueError, match=rf"in_axes={axis} for argument 'x' of .* its shape \[4,3\] has 2 dimensions"):
        hr.vmap(lambda x: x, in_axes=axis)(A)
    with pytest.raises(ValueError, match=r"out_axes=2 for the result of"):
        hr.vmap(lambda x: x, out_axes=2)(A)


def test_without_a_mapped_argument_the_size_is_unknown() -> None:
    with pytest.raises(ValueError, match="no argument is mapped"):
        hr.vmap(lambda x: x, in_axes=None)(A)
    with pytest.raises(ValueError, match="no argument is mapped"):
        hr.vmap(lambda: 1.0)()


def test_axes_of_another_structure_are_errors() -> None:
    with pytest.raises(ValueError, match=r"'in_axes' must have the structure of the arguments .* a tuple of 3"):
        hr.vmap(lambda x, y: x, in_axes=(0, 0, 0))(A, A)
    with pytest.raises(ValueError, match=r"'out_axes' must have the structure of the result"):
        hr.vmap(lambda x: x, out_axes=(0, 0))(A)
    with pytest.raises(TypeError, match=r"'in_axes' must be an integer, None, or a structure of them, got a str"):
        hr.vmap(lambda x: x, in_axes="0")
    with pytest.raises(TypeError, match="'out_axes' must be an integer"):
        hr.vmap(lambda x: x, out_axes=True)


def test_mapped_arguments_are_tensors() -> None:
    with pytest.raises(SignatureError, match=r"argument 'x' of .* is mapped and must be a tensor, got a function"):
        hr.vmap(lambda x: x)(lambda: 1)
    with pytest.raises(ValueError, match=r"in_axes=0 for argument 'x' of .* its shape \[\] has 0 dimensions"):
        hr.vmap(lambda x: x)(1.0)
    with pytest.raises(TypeError, match="'f' must be callable"):
        hr.vmap(3)  # type: ignore[arg-type]


def test_errors_of_the_function_name_it() -> None:
    with pytest.raises(ValueError, match="Dimensions must be equal") as e:
        hr.vmap(lambda x: x + hr.zeros([7]))(A)
    assert any("the function of vmap" in note for note in getattr(e.value, "__notes__", []))


def test_a_list_that_differs_between_examples_is_no_result() -> None:
    with pytest.raises(SignatureError, match="return its stack"):
        hr.vmap(lambda x: hr.TensorArray(hr.float32, 2).unstack(x))(A)


def test_a_python_number_that_is_not_mapped_yields_to_the_examples() -> None:
    x = np.array([1.0, 2.0])
    y = hr.vmap(lambda x, s: x * s, in_axes=(0, None))(x, 0.1)
    np.testing.assert_array_equal(as_array(y), x * 0.1)


@pytest.mark.parametrize(("stride", "padding"), [(1, "SAME"), (2, "VALID")])
def test_gradients_by_images_with_a_filter_for_each_example(stride: int, padding: str) -> None:
    rng = np.random.default_rng(0)
    images, filters = rng.normal(size=(3, 5, 5, 2)), rng.normal(size=(3, 3, 3, 2, 4))

    def f(x: Any, k: Any) -> Any:
        return hr.reduce_sum(hr.sin(hr.nn.conv2d(x[None], k, strides=stride, padding=padding)))

    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none is computed alone
        got = as_array(hr.vmap(hr.grad(f))(images, filters))
    want = [as_array(hr.grad(f)(x, k)) for x, k in zip(images, filters, strict=True)]
    np.testing.assert_allclose(got, want, rtol=1e-9)
