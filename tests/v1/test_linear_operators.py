"""`tf.linalg.LinearOperator` and its classes, compared with values that TensorFlow 2.21 computed."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from tests.v1.linear_operator_cases import VALUES, checks, computed, operators, outcome, plain


@pytest.fixture(autouse=True)
def _graph() -> Iterator[None]:
    tf.reset_default_graph()
    yield
    tf.reset_default_graph()


# Operators whose batch TensorFlow does not broadcast in some of their methods, and those of single precision.
NARROWER = {
    "diag", "diag positive", "diag complex", "scaled", "tridiag", "tridiag batch", "tridiag sequence", "tridiag matrix",
    "toeplitz batch",
}  # fmt: skip
SINGLE = {"circulant", "circulant 2D", "circulant 3D", "circulant of reals"}


# TensorFlow 2.21's results in the test of conjugate gradients.
CG = {
    "iterations": (3, 3, 1),
    "x": [
        [0.22222222222222224, 0.11111111111111119, 1.4444444444444444],
        [-0.1111111111111111, 0.4444444444444444, -0.2222222222222222],
    ],
    "rest": [-0.6800000000000002, -0.8000000000000003, 0.7599999999999998, 1.6800000000000004],
}


@functools.cache
def recorded() -> Any:
    return json.loads(VALUES.read_text(encoding="utf-8"))


@pytest.mark.system
@pytest.mark.parametrize("name", [n for n in recorded() if n != "checks"])
def test_operators_have_tensorflows_values(name: str) -> None:
    wanted = recorded()[name]
    with tf.Session() as session:
        found = {k: plain(x) for k, x in computed(tf, session, operators(tf)[name]).items()}
    assert found.keys() == wanted.keys()
    for what, value in found.items():
        expected = wanted[what]
        if name == "circulant of reals" and what in ("adjoint", "square", "quotient"):
            expected = expected[0]  # the real part: TensorFlow's results are complex64 here
        if expected == "ValueError" and not isinstance(value, str):
            assert name in NARROWER, what
        elif isinstance(value, str) or isinstance(expected, str):
            assert value == expected, what
        else:
            tolerance = 1e-4 if name in SINGLE else 1e-6
            np.testing.assert_allclose(np.array(value), np.array(expected), tolerance, tolerance / 10, err_msg=what)


@pytest.mark.parametrize("name", list(checks(tf)))
def test_checks_have_tensorflows_outcome(name: str) -> None:
    with tf.Session() as session:
        assert outcome(tf, session, checks(tf)[name]) == recorded()["checks"][name]


def test_conjugate_gradients_have_tensorflows_values() -> None:
    # TensorFlow's iterations, solution and the norm of what is left
    matrix = np.array([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
    operator = tf.linalg.LinearOperatorFullMatrix(matrix, is_self_adjoint=True, is_positive_definite=True)
    rhs = tf.constant([[1.0, 2, 3], [0, 1, 0]], tf.float64)
    near = tf.linalg.LinearOperatorDiag(1 / np.diag(matrix))
    with tf.Session() as session:
        solve = tf.linalg.experimental.conjugate_gradient
        plain, better, short = session.run(
            [solve(operator, rhs), solve(operator, rhs, near, tol=1e-9), solve(operator, rhs[0], max_iter=1)]
        )
    assert (plain.i, better.i, short.i) == CG["iterations"]
    np.testing.assert_allclose(plain.x, CG["x"], 1e-9, 1e-9)
    np.testing.assert_allclose(better.x, np.linalg.solve(matrix, np.array([[1.0, 2, 3], [0, 1, 0]]).T).T, 1e-7, 1e-9)
    np.testing.assert_allclose([*short.r, short.gamma], CG["rest"], 1e-9)
    with pytest.raises(ValueError, match="positive definite operator"):
        solve(tf.linalg.LinearOperatorDiag([1.0]), rhs)


def test_parts_of_blocks_are_lists() -> None:
    square, wide = np.array([[2.0, 1], [0, 3]]), np.array([[1.0, 2]])
    full = tf.linalg.LinearOperatorFullMatrix
    lower = tf.linalg.LinearOperatorBlockLowerTriangular([[full(square)], [full(wide), full(np.array([[4.0]]))]])
    x = [np.array([[1.0], [2]]), np.array([[3.0]])]
    vectors = [part[:, 0] for part in x]
    with tf.Session() as session:
        product = session.run(lower.matmul(x))
        again, whole = session.run([lower.solve(product), lower.matmul(np.concatenate(x))])
        adjoint = session.run(lower.matvec(vectors, adjoint=True))
        solved = session.run(lower.solvevec(adjoint, adjoint=True))
    assert [p.tolist() for p in product] == [[[4], [6]], [[17]]]
    assert np.concatenate(product).tolist() == whole.tolist()
    assert [p.tolist() for p in again] == [[[1], [2]], [[3]]]
    assert [p.tolist() for p in adjoint] == [[5, 13], [12]]
    np.testing.assert_allclose(np.concatenate(solved), [1, 2, 3])


def test_sizes_may_be_unknown_until_a_step() -> None:
    matrix, diag = tf.placeholder(tf.float64, [None, None]), tf.placeholder(tf.float64, [None, None])
    rows = tf.placeholder(tf.int32, [])
    full, diagonal = tf.linalg.LinearOperatorFullMatrix(matrix), tf.linalg.LinearOperatorDiag(diag)
    kronecker = tf.linalg.LinearOperatorKronecker([full, diagonal])
    blocks = tf.linalg.LinearOperatorBlockDiag([full, diagonal])
    identity = tf.linalg.LinearOperatorIdentity(rows, dtype="float64")
    square, twice = np.array([[1.0, 2], [3, 5]]), np.array([[1.0, 2], [3, 4]])
    wanted = np.stack([np.kron(square, np.diag(d)) for d in twice])
    assert kronecker.shape.as_list() == [None, None, None]
    with tf.Session() as session:
        feeds = {matrix: square, diag: twice, rows: 2}
        product, shape, trace, dense, one = session.run(
            [
                kronecker.matmul(tf.eye(4, dtype=tf.float64)), kronecker.shape_tensor(), blocks.trace(),
                blocks.to_dense(), identity.to_dense(),
            ],
            feeds,
        )  # fmt: skip
    np.testing.assert_allclose(product, wanted)
    assert (shape.tolist(), trace.tolist()) == ([2, 4, 4], [9, 13])
    assert dense[1].tolist() == [[1, 2, 0, 0], [3, 5, 0, 0], [0, 0, 3, 0], [0, 0, 0, 4]]
    assert one.tolist() == [[1, 0], [0, 1]]


def test_products_of_operators_keep_their_class_and_hints() -> None:
    op = tf.linalg
    diag, scaled = op.LinearOperatorDiag([1.0, 2.0], is_positive_definite=True), op.LinearOperatorScaledIdentity(2, 3.0)
    one, lower = op.LinearOperatorIdentity(2), op.LinearOperatorLowerTriangular([[1.0, 0.0], [2.0, 3.0]])
    found = [diag.matmul(scaled), diag.matmul(one), lower @ diag, scaled.matmul(scaled), diag.matmul(lower)]
    names = [type(x).__name__.removeprefix("LinearOperator") for x in found]
    assert names == ["Diag", "Diag", "LowerTriangular", "ScaledIdentity", "Composition"]
    assert found[1] is diag
    assert (diag.inverse().is_positive_definite, diag.inverse().adjoint().is_non_singular) == (True, True)
    assert type(op.LinearOperatorInversion(lower).inverse()) is op.LinearOperatorLowerTriangular
    assert type(diag.cholesky()) is op.LinearOperatorDiag
    assert diag.parameters["is_positive_definite"] is True
    assert diag.matmul(lower).submodules == (diag, lower)


def test_variables_are_read_in_each_step() -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    operator = tf.linalg.LinearOperatorDiag(v)
    product = operator.matvec([1.0, 1.0])
    with tf.Session() as session:
        session.run(v.initializer)
        assert session.run(product).tolist() == [1, 2]
        session.run(v.assign([3.0, 4.0]))
        assert session.run(product).tolist() == [3, 4]
        gradient = tf.gradients(operator.log_abs_determinant(), [v])[0]
        assert session.run(gradient).tolist() == pytest.approx([1 / 3, 1 / 4])
    assert operator.variables == operator.trainable_variables == (v,)


def test_a_program_defines_an_operator() -> None:
    class Doubling(tf.linalg.LinearOperator):
        def _shape(self) -> Any:
            return tf.TensorShape([2, 2])

        def _shape_tensor(self) -> Any:
            return tf.constant([2, 2])

        def _matmul(self, x: Any, adjoint: bool = False, adjoint_arg: bool = False) -> Any:
            return 2 * (tf.linalg.adjoint(x) if adjoint_arg else x)

    operator = Doubling(tf.float32, is_self_adjoint=True)
    with tf.Session() as session:
        found = session.run([operator.to_dense(), operator.solvevec([4.0, 6.0]), operator.determinant()])
    assert [np.asarray(x).round(4).tolist() for x in found] == [[[2, 0], [0, 2]], [2, 3], 4]


def test_wrong_arguments_are_refused() -> None:
    op = tf.linalg
    full = op.LinearOperatorFullMatrix([[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match="not compatible"):
        full.matmul([[1.0]])
    with pytest.raises(TypeError, match="dtype"):
        full.matmul(np.ones((3, 1)))
    with pytest.raises(NotImplementedError, match="not be square"):
        full.solve([[1.0]])
    with pytest.raises(ValueError, match="incompatible"):
        full.matmul(full)
    with pytest.raises(ValueError, match="always self adjoint"):
        op.LinearOperatorDiag([1.0], is_self_adjoint=False)
    with pytest.raises(ValueError, match="always square"):
        op.LinearOperator(tf.float32, is_non_singular=True, is_square=False)
    with pytest.raises(ValueError, match="Cholesky"):
        full.cholesky()
    with pytest.raises(ValueError, match="unique integers"):
        op.LinearOperatorPermutation([0, 0])
    with pytest.raises(ValueError, match="must have 2 operators"):
        op.LinearOperatorBlockLowerTriangular([[op.LinearOperatorIdentity(1)]] * 2)


def test_a_spectrum_is_checked() -> None:
    with tf.Session() as session:
        session.run(tf.linalg.LinearOperatorCirculant([1.0, 2.0, 2.0]).assert_hermitian_spectrum())
        with pytest.raises(tf.errors.InvalidArgumentError, match="not Hermitian"):
            session.run(tf.linalg.LinearOperatorCirculant([1.0, 2.0, 3.0]).assert_hermitian_spectrum())
