"""Eager tensors in other array libraries: numpy, DLPack and the array API standard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.eager import array_api

X = np.array([[1.0, -2.5, 3.0], [0.5, 4.0, -1.0]], np.float32)
I = np.array([[3, 1, 2], [5, 0, 4]], np.int32)

# *** numpy ***


def test_asarray_is_a_read_only_view_and_array_is_a_copy() -> None:
    x = hr.constant(X)
    view = np.asarray(x)
    assert np.shares_memory(view, np.asarray(x))
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 7.0
    copy = np.array(x)
    copy[0, 0] = 7.0
    x.numpy()[0, 0] = 7.0
    assert float(x[0, 0]) == 1.0
    assert np.asarray(x, np.float64).dtype == np.float64
    with pytest.raises(ValueError, match=r"float32 is no array of float64 without a copy"):
        x.__array__(np.float64, copy=False)


def test_a_scalar_is_an_array_of_rank_0() -> None:
    assert np.asarray(hr.constant(2.0)).shape == ()
    assert np.asarray(hr.constant("a")).item() == b"a"


@pytest.mark.parametrize(
    "ufunc",
    [
        np.add,
        np.subtract,
        np.multiply,
        np.true_divide,
        np.power,
        np.maximum,
        np.less,
        np.equal,
        np.arctan2,
        np.remainder,
    ],
    ids=lambda f: f.__name__,
)
def test_ufuncs_of_two_arguments_are_headraces(ufunc: np.ufunc) -> None:
    a, b = np.abs(X), np.abs(X[::-1]) + 0.5
    want = ufunc(a, b)
    for args in ((hr.constant(a), b), (a, hr.constant(b)), (hr.constant(a), hr.constant(b))):
        found = ufunc(*args)
        assert isinstance(found, hr.EagerTensor)
        np.testing.assert_allclose(np.asarray(found), want, rtol=1e-6)
    assert isinstance(ufunc(2.0, hr.constant(b)), hr.EagerTensor)


@pytest.mark.parametrize(
    "ufunc", [np.sin, np.arctan, np.absolute, np.isnan, np.floor, np.rint], ids=lambda f: f.__name__
)
def test_ufuncs_of_one_argument_are_headraces(ufunc: np.ufunc) -> None:
    found = ufunc(hr.constant(X))
    assert isinstance(found, hr.EagerTensor)
    np.testing.assert_allclose(np.asarray(found), ufunc(X), rtol=1e-6)


def test_a_ufunc_is_recorded_by_a_tape() -> None:
    x = hr.constant(2.0)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = np.multiply(np.square(x), np.float32(3.0))
    assert float(tape.gradient(y, x)) == 12.0


def test_other_ways_to_call_a_ufunc_are_numpys() -> None:
    x, out = hr.constant(X), np.zeros_like(X)
    assert np.add(x, x, out=out) is out
    np.testing.assert_array_equal(out, X + X)
    np.testing.assert_array_equal(np.add.reduce(x, axis=0), X.sum(0))
    np.testing.assert_array_equal(np.cbrt(x), np.cbrt(X))
    np.testing.assert_array_equal(np.concatenate([x, X]), np.concatenate([X, X]))


def test_operators_with_arrays_are_headraces() -> None:
    x = hr.constant(X)
    for found in (X + x, x + X, np.float32(1.0) * x, X.astype(np.float64) * x):
        assert isinstance(found, hr.EagerTensor)
        assert found.dtype is hr.float32


# *** DLPack ***


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8", "bool", "complex64"])
def test_arrays_pass_by_dlpack_in_both_directions(dtype: str) -> None:
    array = np.abs(X).astype(dtype)
    tensor = hr.from_dlpack(array)
    assert tensor.dtype is hr.as_dtype(dtype)
    back = np.from_dlpack(tensor)
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype


def test_a_tensor_from_dlpack_is_immutable() -> None:
    array = X.copy()
    tensor, shared = hr.from_dlpack(array), hr.from_dlpack(array, copy=False)
    array[0, 0] = 7.0
    assert (float(tensor[0, 0]), float(shared[0, 0])) == (1.0, 7.0)
    assert hr.from_dlpack(tensor) is tensor
    assert hr.from_dlpack(tensor, copy=True) is not tensor
    assert hr.from_dlpack(np.array(2.0)).shape == ()


def test_only_consumers_that_know_of_read_only_memory_share_it() -> None:
    x = hr.constant(X)
    shared = x.__dlpack__(max_version=(1, 0))
    assert "dltensor" in repr(shared)
    with pytest.raises(BufferError, match="immutable"):
        x.__dlpack__(copy=False)
    with pytest.raises(BufferError, match="no DLPack form"):
        hr.constant("a").__dlpack__()
    with pytest.raises(BufferError, match="is on the CPU"):
        x.__dlpack__(dl_device=(2, 0))
    assert x.__dlpack_device__() == (1, 0)


def test_what_has_no_dlpack_is_refused() -> None:
    with pytest.raises(TypeError, match=r"no method __dlpack__; use hr.constant"):
        hr.from_dlpack([1.0])
    with pytest.raises(ValueError, match="device must be None"):
        hr.from_dlpack(X, device="cuda")  # type: ignore[arg-type]


# *** the array API standard ***


def program(xp: Any, x: Any, i: Any) -> dict[str, Any]:
    """One use of each function of the namespace, with numpy's results as the truth."""
    square = xp.matmul(x, xp.matrix_transpose(x))
    return {
        "abs": xp.abs(x),
        "all": xp.all(x > 0, axis=1),
        "any": xp.any(x > 0, axis=0, keepdims=True),
        "arange": xp.arange(1, 10, 3),
        "argmax": xp.argmax(x, axis=1),
        "argmin": xp.argmin(x),
        "argsort": xp.argsort(x, axis=0),
        "asarray": xp.asarray([1.5, 2.0], dtype=xp.float64),
        "astype": xp.astype(x, xp.int64),
        "bitwise_left_shift": xp.bitwise_left_shift(i, i),
        "broadcast_to": xp.broadcast_to(x, (2, 2, 3)),
        "ceil": xp.ceil(x),
        "concat": xp.concat([x, x], axis=1),
        "concat flat": xp.concat([x, x[0]], axis=None),
        "cumulative_sum": xp.cumulative_sum(x, axis=1),
        "divide": xp.divide(x, x),
        "expand_dims": xp.expand_dims(x, axis=1),
        "eye": xp.eye(2, 3, k=1, dtype=xp.float32),
        "flip": xp.flip(x),
        "flip one": xp.flip(x, axis=-1),
        "floor": xp.floor(i),
        "full": xp.full((2,), 3.5, dtype=xp.float64),
        "isnan": xp.isnan(i),
        "linspace": xp.linspace(0.0, 1.0, 5, dtype=xp.float64),
        "matmul": square,
        "matmul of vectors": xp.matmul(x[0], x[1]),
        "matmul of a vector": xp.matmul(x, x[1]),
        "matmul by a vector": xp.matmul(x[:, 0], x),
        "max": xp.max(x, axis=1),
        "mean": xp.mean(x, axis=0),
        "ones_like": xp.ones_like(x),
        "permute_dims": xp.permute_dims(xp.reshape(x, (1, 2, 3)), (2, 0, 1)),
        "prod": xp.prod(x, axis=1),
        "roll": xp.roll(x, 2),
        "roll axis": xp.roll(x, 1, axis=1),
        "sort": xp.sort(x, axis=-1),
        "squeeze": xp.squeeze(xp.reshape(x, (2, 1, 3)), 1),
        "stack": xp.stack([x, x], axis=2),
        "std": xp.std(x, axis=1, correction=1),
        "sum": xp.sum(x, axis=(0, 1)),
        "take": xp.take(x, xp.asarray([2, 0]), axis=1),
        "tensordot": xp.tensordot(x, x, axes=2),
        "tile": xp.tile(x, (2, 1)),
        "var": xp.var(x, keepdims=True),
        "vecdot": xp.vecdot(x, x),
        "where": xp.where(x > 0, x, -x),
        "zeros": xp.zeros((2, 3), dtype=xp.float32),
        "power": xp.pow(xp.abs(x), 2.0 * xp.ones_like(x)),
    }


def test_the_namespace_computes_what_numpy_computes() -> None:
    x, i = hr.constant(X), hr.constant(I)
    found, want = program(x.__array_namespace__(), x, i), program(np, X, I)
    for name, value in found.items():
        assert isinstance(value, hr.EagerTensor), name
        np.testing.assert_allclose(np.asarray(value), want[name], rtol=1e-5, atol=1e-6, err_msg=name)
        if want[name].dtype.kind == "f":
            assert value.dtype.numpy == want[name].dtype, name


def test_the_namespace_has_names_of_the_standard_that_numpy_has() -> None:
    assert [n for n in vars(array_api.NAMESPACE) if not n.startswith("_") and not hasattr(np, n)] == []


def test_an_unknown_version_of_the_standard_is_refused() -> None:
    x = hr.constant(1.0)
    assert x.__array_namespace__(api_version="2022.12") is array_api.NAMESPACE
    with pytest.raises(ValueError, match=r"the latest is 2023\.12"):
        x.__array_namespace__(api_version="2030.12")


@pytest.mark.parametrize("call", [lambda xp, x: xp.sum(x), lambda xp, x: xp.mean(x), lambda xp, x: xp.max(xp.abs(x))])
def test_functions_of_the_namespace_have_gradients(call: Callable[[Any, Any], Any]) -> None:
    x = hr.constant(X.astype(np.float64))
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = call(x.__array_namespace__(), x)
    np.testing.assert_allclose(tape.gradient(y, x), hr.grad(lambda x: call(array_api.NAMESPACE, x))(x))
