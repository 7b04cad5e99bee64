"""The eager tensor as a Python value."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api.tensors import constant
from headrace.eager import EagerBuilder, EagerTensor
from headrace.errors import GraphError, SignatureError


def test_an_eager_tensor_shows_its_value_and_type() -> None:
    x = constant([[1.0, 2.0]])
    assert (x.dtype, x.shape, x.ndim, len(x)) == (hr.float32, (1, 2), 2, 1)
    assert isinstance(x.numpy(), np.ndarray)
    assert isinstance(constant(1).numpy(), np.int32)
    assert constant("a").numpy() == b"a"
    assert constant(["a", "bc"]).numpy().tolist() == [b"a", b"bc"]
    assert np.asarray(x).dtype == np.float32
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.sum(x) == 3
    assert np.stack([x, x]).shape == (2, 1, 2)
    assert repr(constant([1, 2])) == "<EagerTensor shape=[2] dtype=int32: array([1, 2], dtype=int32)>"
    assert str(constant([1, 2])) == "[1 2]"
    assert f"{constant(1.5):.3f} {constant(2)} {constant([1])}" == "1.500 2 [1]"


def test_nobody_can_change_one(b: EagerBuilder) -> None:
    array = np.array([1.0, 2.0])
    x = constant(array)
    array[:] = 0
    x.numpy()[:] = 0
    np.array(x)[:] = 0
    y = b.Reshape(x, [2, 1])
    y.numpy()[:] = 0
    assert x.numpy().tolist() == [1, 2]


def test_as_python_numbers() -> None:
    assert bool(constant(True))
    assert not constant([0.0])
    assert int(constant(3.7)) == 3
    assert float(constant(2)) == 2.0
    assert complex(constant(1.0)) == 1 + 0j
    assert [10, 11, 12][constant(1)] == 11
    assert list(range(constant(2))) == [0, 1]
    with pytest.raises(ValueError, match=r"truth value of a tensor of shape \[2\] is ambiguous"):
        bool(constant([1, 2]))
    with pytest.raises(TypeError, match="only an integer scalar"):
        [1][constant(0.0)]  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="scalar"):
        len(constant(1))
    with pytest.raises(TypeError, match=r"float\(\) of a tensor of shape \[2\]"):
        float(constant([1.0, 2.0]))


def test_iterating() -> None:
    assert [int(x) for x in constant([1, 2, 3])] == [1, 2, 3]
    rows = list(constant([["a", "b"], ["c", "d"]]))
    assert all(isinstance(r, EagerTensor) and r.shape == (2,) for r in rows)
    assert [s.numpy() for s in constant(["a", "b"])] == [b"a", b"b"]
    a, (c, d) = constant([[1, 2], [3, 4]])
    assert (a.numpy().tolist(), int(c), int(d)) == ([1, 2], 3, 4)
    with pytest.raises(TypeError, match="iterated"):
        iter(constant(1))


def test_operators() -> None:
    x = constant([1.0, 4.0])
    cases: list[tuple[Any, list[Any]]] = [
        (x + 1, [2, 5]), (1 - x, [0, -3]), (x * x, [1, 16]), (2 / x, [2, 0.5]), (x**2, [1, 16]), (-x, [-1, -4]),
        (abs(-x), [1, 4]), (x // 3, [0, 1]), (x % 3, [1, 1]), (x > 2, [False, True]), (x <= 1, [True, False]),
        (x == 4, [False, True]), (x != [1.0, 1.0], [False, True]), (x[::-1], [4, 1]), (x[1:], [4]),
        (np.float32(1) + x, [2, 5]), (np.ones(2, np.float32) * x, [1, 4]), (constant([5, 3]) & 1, [1, 1]),
        (~constant([True]), [False]),
    ]  # fmt: skip
    for got, want in cases:
        assert isinstance(got, EagerTensor)
        assert got.numpy().tolist() == want
    assert float(constant([[1.0, 2.0]]) @ constant([[3.0], [4.0]])) == 11
    assert float(x[1]) == 4
    assert x[None, :, None].shape == (1, 2, 1)


def test_it_is_no_key() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(constant(1))


def test_dtypes_do_not_mix() -> None:
    with pytest.raises(SignatureError, match=r"type int32 that does not match type float32 of argument 'x'.*cast"):
        constant(1.0) + constant(1)
    with pytest.raises(TypeError, match="int32"):
        constant(1) + 1.5
    assert (constant(1.0) + 1).dtype is hr.float32


def test_copies() -> None:
    x = constant([1.0, 2.0])
    assert copy.copy(x) is x
    assert copy.deepcopy([x])[0] is x
    again = pickle.loads(pickle.dumps(x))
    assert again.dtype is x.dtype
    assert again.numpy().tolist() == [1, 2]


def test_in_a_graph_it_is_a_constant(b: EagerBuilder) -> None:
    x = constant(np.array([1.0, 2.0]))
    assert x.dtype is hr.float64
    with hr.Graph() as g:
        y = x + 1
        z = constant(3.0) + constant(1.0)
        with pytest.raises(TypeError, match="float64"):
            z + x
        with pytest.raises(GraphError, match="dtype resource was used in a graph"):
            b.VarHandleOp(dtype=hr.float32, shape=()) + 1
    assert y.op.type == "AddV2"
    assert y.dtype is hr.float64
    assert y.op.inputs[0].op.type == "Const"
    assert hr.Session(graph=g).run(y).tolist() == [2, 3]
    # outside of the block an op with a symbolic tensor goes into its graph
    assert (z + constant(1.0)).graph is g
    assert (constant(1.0) + z).graph is g
