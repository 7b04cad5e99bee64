"""`constant`, `placeholder`, `convert_to_tensor` and the like."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import tensors, variable
from headrace.api.tensors import constant, constant_value, convert_to_tensor, placeholder


def run(fetch: Any, feed: Any = None) -> Any:
    return hr.Session(graph=fetch.graph).run(fetch, feed)


@pytest.fixture
def graph() -> Any:
    with hr.Graph() as g:
        yield g


@pytest.mark.parametrize(
    ("value", "dtype", "shape", "want"),
    [
        (1, None, None, np.int32(1)),
        (2**40, None, None, np.int64(2**40)),
        (1.5, None, None, np.float32(1.5)),
        (1j, None, None, np.complex128(1j)),
        (True, None, None, np.bool_(True)),
        ([1, 2], hr.float64, None, np.array([1.0, 2.0])),
        (np.arange(3), None, None, np.arange(3)),
        (np.float64(1), None, None, np.float64(1)),
        (3.0, None, (2, 3), np.full((2, 3), 3, np.float32)),
        ([7], None, (2,), np.array([7, 7], np.int32)),
        ([1, 2, 3, 4], None, [2, 2], np.array([[1, 2], [3, 4]], np.int32)),
        ([], None, (0, 3), np.zeros((0, 3), np.float32)),
        ("abc", None, None, b"abc"),
    ],
)
def test_constant(graph: hr.Graph, value: Any, dtype: Any, shape: Any, want: Any) -> None:
    t = constant(value, dtype, shape)
    assert t.op.name == "Const"
    assert t.shape == np.shape(want)
    got = run(t)
    assert np.array_equal(got, want)
    assert isinstance(want, bytes) or got.dtype == want.dtype


def test_a_constant_of_another_number_of_elements(graph: hr.Graph) -> None:
    with pytest.raises(hr.errors.ShapeError, match=r"of shape \[2,3\] has 6 elements, but the value given has 3"):
        constant([1, 2, 3], shape=(2, 3))
    with pytest.raises(hr.errors.ShapeError, match="the shape of a constant must be known"):
        constant(1, shape=(None, 2))
    with pytest.raises(TypeError, match=r"expected int32, got 1\.5"):
        constant(1.5, hr.int32)
    with pytest.raises(TypeError, match="needs a value, got the symbolic tensor 'Const:0'"):
        constant(constant(1))


def test_placeholders(graph: hr.Graph) -> None:
    x = placeholder(hr.float32, (None, 2))
    y = placeholder("int32", name="y")
    z = tensors.placeholder_with_default(5, ())
    assert [(t.name, t.shape, t.dtype) for t in (x, y, z)] == [
        ("Placeholder:0", (None, 2), hr.float32),
        ("y:0", None, hr.int32),
        ("PlaceholderWithDefault:0", (), hr.int32),
    ]
    assert (run(z), run(z, {z: 7})) == (5, 7)


def test_a_placeholder_needs_a_graph() -> None:
    with pytest.raises(hr.errors.GraphError, match="placeholder needs a graph"):
        placeholder(hr.int32)


def test_convert_to_tensor(graph: hr.Graph) -> None:
    x = placeholder(hr.float32, (), "x")
    assert convert_to_tensor(x) is x
    assert convert_to_tensor(3, hr.float64).dtype == hr.float64
    assert convert_to_tensor(3, preferred_dtype=hr.float32).dtype == hr.float32
    assert convert_to_tensor(3.5, preferred_dtype=hr.int32).dtype == hr.float32  # it cannot be what is preferred
    assert convert_to_tensor(1.0, name="c").op.name == "c"
    packed = convert_to_tensor([[x, 1], [2, x]])
    assert packed.shape == (2, 2)
    assert np.array_equal(run(packed, {x: 5.0}), [[5, 1], [2, 5]])
    with pytest.raises(TypeError, match=r"requested dtype int32 for Tensor with dtype float32.*cast it"):
        convert_to_tensor(x, hr.int32)


def test_lists_with_tensors_are_named_as_in_tensorflow(graph: hr.Graph) -> None:
    x = placeholder(hr.float32, (), "x")
    convert_to_tensor([[x, 1], [2, x], [3, 4]])
    assert [op.name for op in graph.operations] == [
        "x", "packed/0/1", "packed/0", "packed/1/0", "packed/1", "packed/2_1", "packed",
    ]  # fmt: skip


def test_constants_stand_below_the_operation_that_they_are_for(graph: hr.Graph) -> None:
    x = placeholder(hr.float32, (2,), "x")
    y = x + 1
    z = y + 1
    hr.concat([x, [1.0]], 0)
    assert [op.name for op in graph.operations[1:]] == [
        "add/y", "add", "add_1/y", "add_1", "concat/values_1", "concat/axis", "concat",
    ]  # fmt: skip
    assert (y.dtype, z.op.inputs[1].dtype) == (hr.float32, hr.float32)


def test_constant_value(graph: hr.Graph) -> None:
    x = placeholder(hr.float32, (2, None))
    assert np.array_equal(constant_value(constant([1, 2]) * 3), [3, 6])
    assert constant_value(x) is None
    assert constant_value(hr.shape(placeholder(hr.int32, (2, 3)))).tolist() == [2, 3]
    assert constant_value(5) == 5


def test_constant_value_of_what_is_not_symbolic() -> None:
    assert constant_value(constant([1, 2])).tolist() == [1, 2]
    assert constant_value(variable.Variable(1.0)) is None  # it may change
    assert tensors.is_tensor(constant(1))
    assert not tensors.is_tensor(1)
    assert not tensors.is_tensor(np.ones(2))


def test_identities(graph: hr.Graph) -> None:
    x = constant([1.0, 2.0])
    shaped = tensors.ensure_shape(x, (None,))
    for t in (tensors.identity(x), tensors.stop_gradient(x), shaped, tensors.identity_n([x, 1])[0]):
        assert run(t).tolist() == [1, 2]
    unknown = placeholder(hr.float32)
    assert tensors.ensure_shape(unknown, (2, None)).shape == (2, None)


def test_dtypes_that_differ(graph: hr.Graph) -> None:
    x, i = placeholder(hr.float32, (2,), "x"), placeholder(hr.int32, (2,), "i")
    for make in (lambda: x + i, lambda: hr.add(x, i), lambda: hr.concat([x, i], 0), lambda: hr.maximum(x, i)):
        with pytest.raises(TypeError) as e:
            make()
        text = str(e.value)
        assert re.search(r"has type int32 that does not match type float32 of argument", text)
        assert "'i:0'" in text
        assert "'x:0'" in text
        assert "hr.cast" in text
        assert "test_tensors.py" in text
        assert isinstance(e.value, ValueError)  # as all errors in building
    with pytest.raises(TypeError, match=r"Input 'y' of 'AddV2' Op does not match type int32 of argument 'x' \('i:0'\)"):
        i + 1.5


def test_a_failed_conversion_leaves_the_graph_usable(graph: hr.Graph) -> None:
    i = placeholder(hr.int32, (2,), "i")
    with pytest.raises(TypeError):
        hr.add(i, "text")
    assert run(hr.add(i, 1), {i: [1, 2]}).tolist() == [2, 3]


def test_a_list_with_tensors_is_cast_to_what_is_asked_for() -> None:
    """A shape with a dimension of 64 bits is cast, as in TensorFlow.

    A tensor of another dtype in a list with one of the right dtype is refused.
    """
    with hr.Graph():
        n = hr.constant(3, hr.int64)
        x = hr.ones([2, n, 1])
        packed = x.op.inputs[0].op
        assert [t.op.type for t in packed.inputs] == ["Const", "Cast", "Const"]
        assert x.shape == (2, 3, 1)
        with pytest.raises(TypeError, match="requested dtype int32 for Tensor with dtype int64"):
            hr.convert_to_tensor([hr.constant(1), n], hr.int32)
    n = hr.constant(3, hr.int64)
    assert hr.ones([n, 1]).shape == (3, 1)
    assert hr.convert_to_tensor([[n], [2]], hr.int32).numpy().tolist() == [[3], [2]]


def test_results_have_names() -> None:
    assert hr.top_k([3, 9, 1], 2).indices.numpy().tolist() == [1, 0]
    assert hr.unique([4, 4, 5]).idx.numpy().tolist() == [0, 0, 1]
    assert hr.unique_with_counts([4, 4, 5])._fields == ("y", "idx", "count")
    assert hr.setdiff1d([1, 2, 3], [2]).out.numpy().tolist() == [1, 3]
