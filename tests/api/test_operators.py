"""Python's operators on tensors."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import operators
from headrace.api.tensors import placeholder

X = np.array([[1.5, -2.0], [3.0, 0.5]], np.float32)
I = np.array([[5, -3], [2, 7]], np.int32)
P = np.array([[True, False], [False, True]])


def value(f: Any, *arrays: np.ndarray) -> Any:
    with hr.Graph() as g:
        xs = [placeholder(hr.as_dtype(a.dtype), a.shape) for a in arrays]
        y = f(*xs)
    return hr.Session(graph=g).run(y, dict(zip(xs, arrays, strict=True)))


@pytest.mark.parametrize(
    "op", [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.lt,
           operator.le, operator.gt, operator.ge],
)  # fmt: skip
@pytest.mark.parametrize("other", [2.0, np.float32(2), np.array([2.0, 4.0], np.float32), [2.0, 4.0]], ids=type)
def test_both_ways_round(op: Any, other: Any) -> None:
    assert np.allclose(value(lambda x: op(x, other), X), op(X, np.asarray(other, np.float32)))
    assert np.allclose(value(lambda x: op(other, x), X), op(np.asarray(other, np.float32), X))
    assert np.allclose(value(lambda x, y: op(x, y), X, X.T.copy()), op(X, X.T))


def test_the_others() -> None:
    assert np.allclose(value(lambda x: x**2, X), X**2)
    assert np.allclose(value(lambda x: 2.0**x, X), 2**X)
    assert np.allclose(value(lambda x: x @ x, X), X @ X)
    assert np.allclose(value(lambda x: X @ x, X), X @ X)
    assert np.allclose(value(lambda x: abs(-x), X), abs(X))
    assert np.array_equal(value(lambda p: ~p & True | p ^ P, P), ~P)
    assert np.array_equal(value(lambda i: ~(i & 3) | (i ^ 1), I), ~(I & 3) | (I ^ 1))
    assert np.array_equal(value(lambda i: 7 & i, I), 7 & I)
    got = value(lambda i: i / 2, I)
    assert got.dtype == np.float64
    assert np.array_equal(got, I / 2)


def test_names_are_tensorflows() -> None:
    with hr.Graph() as g:
        x, i, p = (placeholder(d, (2,)) for d in (hr.float32, hr.int32, hr.bool))
        made = [
            x + 1, x - 1, 1 - x, x * x, x / x, i / 2, i // 2, i % 2, x**2, -x, abs(x), ~p, p & p, p | p, p ^ p, i & i,
            x < x, x > 1, x[0],
        ]  # fmt: skip
    assert [t.op.name for t in made] == [
        "add", "sub", "sub_1", "mul", "truediv", "truediv_1", "floordiv", "mod", "pow", "Neg", "Abs", "LogicalNot",
        "and", "or", "xor", "and_1/BitwiseAnd", "Less", "Greater", "strided_slice",
    ]  # fmt: skip
    names = {op.name for op in g.operations}
    assert {"add/y", "sub_1/x", "truediv_1/Cast", "truediv_1/Cast_1", "xor/LogicalOr"} <= names


def test_equality_is_identity() -> None:
    with hr.Graph() as g:
        x, y = placeholder(hr.float32), placeholder(hr.float32)
        assert x == x
        assert x != y
        for compare in (lambda: x == 1.0, lambda: x != 0, lambda: x == 3):
            with pytest.raises(TypeError, match=r"== or != with a number of the symbolic tensor .*; use hr.equal"):
                compare()
        assert (x == None) is False  # noqa: E711
        g.shows_primitives = True  # as headrace.v1 makes them: TensorFlow 1's programs ask it of placeholders
        assert (x == 1.0) is False
        assert {x: 1}[x] == 1


def test_numpy_leaves_it_to_the_tensor() -> None:
    with hr.Graph():
        x = placeholder(hr.float32, (2, 2))
        assert (X + x).shape == (2, 2)
        assert (np.float32(2) * x).op.type == "Mul"
        assert (X < x).op.type == "Greater"  # noqa: SIM300


class Other:
    def __radd__(self, x: Any) -> str:
        return "theirs"

    def __add__(self, x: Any) -> str:
        return "theirs first"


def test_other_classes_are_asked() -> None:
    with hr.Graph():
        x = placeholder(hr.float32)
        assert (x + Other(), Other() + x) == ("theirs", "theirs first")
        with pytest.raises(TypeError, match="unsupported operand"):
            x * object()
        with pytest.raises(TypeError, match="cannot be a tensor"):
            x + None


def test_no_truth_value() -> None:
    with hr.Graph():
        x = placeholder(hr.float32)
        with pytest.raises(TypeError, match=r"hr\.cond"):
            bool(x < 1.0)


def test_set_shape() -> None:
    with hr.Graph():
        x = placeholder(hr.float32)
        x.set_shape((None, 3))
        x.set_shape([2, None])
        assert x.shape == (2, 3)
        x.set_shape(None)
        assert x.shape == (2, 3)
        with pytest.raises(hr.errors.ShapeError, match=r"shape \[2,3\] is not compatible .* \[4,3\]: 'Pl.*test_op"):
            x.set_shape((4, 3))


def test_outside_a_graph() -> None:
    x = hr.constant(X)
    assert np.array_equal((x + 1) * 2, (X + 1) * 2)
    assert np.array_equal(1 - x / x[0, 0], 1 - X / X[0, 0])
    assert np.array_equal(x == X, np.ones((2, 2)))
    assert np.array_equal(x != X, np.zeros((2, 2)))
    assert (x == None) is False  # noqa: E711
    with pytest.raises(TypeError, match="unhashable"):
        hash(x)


def test_install() -> None:
    class Held:
        """Stands for a tensor, as variables do."""

        def __init__(self, t: Any) -> None:
            self.t = t
            self.graph = t.graph
            self.dtype = t.dtype

        def as_tensor(self, b: Any) -> Any:
            return self.t

    operators.install(Held)
    with hr.Graph():
        x = placeholder(hr.float32, (2,))
        y = Held(x)
        made = [y + 1, 1 + y, x + y, y + x, y[0], -y, y / 2, y < x]
    assert [t.op.type for t in made] == ["AddV2", "AddV2", "AddV2", "AddV2", "StridedSlice", "Neg", "RealDiv", "Less"]
    assert all(x in t.op.inputs for t in made)
