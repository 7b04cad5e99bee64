"""The array methods of tensors and variables, compared with numpy's."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api.methods import _ELSEWHERE, ArrayMethods
from headrace.ir.tensor_type import TensorOperations

ARRAYS: dict[str, Any] = {
    "floats": np.array([[[0.5, -1.25, 3.0], [2.0, 7.5, -0.75]]], np.float32),
    "ints": np.array([[[5, -3, 2], [8, 1, 1]]], np.int32),
    "bools": np.array([[[True, False, True], [False, False, True]]]),
    "complex": np.array([[[1 + 2j, -3j, 0.5], [2, 1j, 4 - 1j]]], np.complex64),
}
METHODS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sum()": (lambda x: x.sum(), "floats ints bools complex"),
    "sum(1)": (lambda x: x.sum(1), "floats ints bools complex"),
    "sum((0, 2))": (lambda x: x.sum((0, 2), keepdims=True), "floats ints"),
    "sum(dtype=float64)": (lambda x: x.sum(dtype=np.float64), "floats ints bools"),
    "prod(-1)": (lambda x: x.prod(-1), "floats ints complex"),
    "mean()": (lambda x: x.mean(), "floats ints bools complex"),
    "mean(axis=2)": (lambda x: x.mean(axis=2, keepdims=True), "floats ints bools"),
    "max()": (lambda x: x.max(), "floats ints bools"),
    "min(axis=1)": (lambda x: x.min(axis=1, keepdims=True), "floats ints bools"),
    "any(2)": (lambda x: x.any(2), "floats ints bools"),
    "all()": (lambda x: x.all(), "floats ints bools"),
    "std()": (lambda x: x.std(), "floats ints bools"),
    "std(1, ddof=1)": (lambda x: x.std(1, ddof=1), "floats ints"),
    "var((1, 2), ddof=2)": (lambda x: x.var((1, 2), ddof=2, keepdims=True), "floats ints"),
    "argmax()": (lambda x: x.argmax(), "floats ints bools"),
    "argmin(2)": (lambda x: x.argmin(2), "floats ints bools"),
    "argmax(keepdims)": (lambda x: x.argmax(keepdims=True), "floats ints"),
    "argmin(1, keepdims)": (lambda x: x.argmin(1, keepdims=True), "floats ints"),
    "cumsum()": (lambda x: x.cumsum(), "floats ints bools"),
    "cumsum(2)": (lambda x: x.cumsum(2), "floats ints"),
    "cumprod(axis=1)": (lambda x: x.cumprod(axis=1), "floats ints"),
    "reshape(3, 2)": (lambda x: x.reshape(3, 2), "floats ints bools complex"),
    "reshape((2, -1))": (lambda x: x.reshape((2, -1)), "floats"),
    "reshape(-1)": (lambda x: x.reshape(-1), "floats"),
    "ravel()": (lambda x: x.ravel(), "floats"),
    "flatten()": (lambda x: x.flatten(), "floats"),
    "transpose()": (lambda x: x.transpose(), "floats"),
    "transpose(1, 0, 2)": (lambda x: x.transpose(1, 0, 2), "floats bools"),
    "transpose((2, 1, 0))": (lambda x: x.transpose((2, 1, 0)), "floats"),
    "swapaxes(0, -1)": (lambda x: x.swapaxes(0, -1), "floats"),
    "squeeze()": (lambda x: x.squeeze(), "floats"),
    "squeeze(0)": (lambda x: x.squeeze(0), "floats"),
    "repeat(2, 1)": (lambda x: x.repeat(2, 1), "floats ints"),
    "repeat(2)": (lambda x: x.repeat(2), "floats"),
    "astype(int64)": (lambda x: x.astype(np.int64), "floats ints bools"),
    "clip(0, 2)": (lambda x: x.clip(0, 2), "floats ints"),
    "clip(max=1)": (lambda x: x.clip(max=1), "floats ints"),
    "clip(1)": (lambda x: x.clip(1), "floats"),
    "conj()": (lambda x: x.conj(), "floats complex"),
    "conjugate()": (lambda x: x.conjugate(), "complex"),
    "round()": (lambda x: x.round(), "floats"),
    "round(1)": (lambda x: x.round(1), "floats"),
    "argsort()": (lambda x: x.argsort(), "floats"),
    "argsort(None)": (lambda x: x.argsort(None), "floats"),
    "T": (lambda x: x.T, "floats"),
    "mT": (lambda x: x.swapaxes(-1, -2) if isinstance(x, np.ndarray) else x.mT, "floats"),  # numpy's is young
    "real": (lambda x: x.real, "floats complex"),
    "imag": (lambda x: x.imag, "floats complex"),
    "dot vector": (lambda x: x.dot(np.array([1, 2, 3], np.float32)), "floats"),
    "dot matrix": (lambda x: x.dot(np.arange(24, dtype=np.float32).reshape(2, 3, 4)), "floats"),
    "dot number": (lambda x: x.dot(3.0), "floats"),
}
WAYS = ("eager", "graph", "variable")
CASES = [(name, kind) for name, (_, kinds) in METHODS.items() for kind in kinds.split()]


def value_of(f: Callable[[Any], Any], array: np.ndarray, way: str) -> np.ndarray:
    """`f` of a tensor or variable with the value `array`."""
    if way != "graph":
        return np.asarray(f(hr.constant(array) if way == "eager" else hr.Variable(array)))
    with hr.Graph() as g:
        x = hr.placeholder(hr.as_dtype(array.dtype), array.shape)
        return np.asarray(hr.Session(graph=g).run(f(x), {x: array}))


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_methods(name: str, kind: str) -> None:
    f, array = METHODS[name][0], ARRAYS[kind]
    expected = np.asarray(f(array))
    for way in WAYS:
        got = value_of(f, array, way)
        assert got.shape == expected.shape
        assert got.dtype.kind == expected.dtype.kind
        assert np.allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("rank_known", [True, False])
def test_methods_on_unknown_shapes(rank_known: bool) -> None:
    array = ARRAYS["floats"]
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, None, None) if rank_known else None)
        made = [x.sum(), x.mean(1), x.T, x.cumsum(), x.argmax(), x.var(ddof=1), x.reshape(3, 2), x.std(1, ddof=1)]
        got = hr.Session(graph=g).run(made, {x: array})
    a = array
    for mine, its in zip(got, [a.sum(), a.mean(1), a.T, a.cumsum(), a.argmax(), a.var(ddof=1), a.reshape(3, 2)]):
        assert np.allclose(mine, its)


def test_sizes() -> None:
    for x in (hr.constant(np.zeros((2, 3), np.float32)), hr.Variable(np.zeros((2, 3), np.float32))):
        assert (x.ndim, x.size, x.itemsize, x.nbytes) == (2, 6, 4, 24)
    with hr.Graph():
        y = hr.placeholder(hr.float64, (2, 3))
        assert (y.ndim, y.size, y.itemsize, y.nbytes) == (2, 6, 8, 48)


def test_sizes_that_are_unknown() -> None:
    with hr.Graph():
        x, y = hr.placeholder(hr.float32, (2, None), name="x"), hr.placeholder(hr.float32, name="y")
    assert x.ndim == 2
    with pytest.raises(AttributeError, match=r"no attribute 'size': it is the symbolic tensor 'x:0'.*hr\.size"):
        x.size
    with pytest.raises(AttributeError, match=r"no attribute 'ndim': it is the symbolic tensor 'y:0'.*hr\.rank"):
        y.ndim
    assert not hasattr(x, "nbytes")


def test_python_values() -> None:
    x = hr.constant([[1, 2], [3, 4]])
    assert x.tolist() == [[1, 2], [3, 4]]
    assert x.item(1, 0) == 3
    assert hr.constant(2.5).item() == 2.5
    assert type(hr.constant(2.5).item()) is float
    assert hr.constant("text").item() == b"text"
    assert hr.Variable([True]).tolist() == [True]
    with pytest.raises(ValueError, match="size 1"):
        x.item()


@pytest.mark.parametrize("method", ["item", "tolist"])
def test_python_values_of_symbolic_tensors(method: str) -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, (), name="x")
    with pytest.raises(AttributeError, match=r"symbolic tensor 'x:0'.*session\.run\(tensor\)"):
        getattr(x, method)()


def test_numpys_functions_call_the_methods() -> None:
    a = ARRAYS["floats"]
    x = hr.constant(a)
    for f in (np.sum, np.mean, np.max, np.min, np.prod, np.std, np.var):
        assert isinstance(f(x, axis=1), hr.Tensor)
        assert np.allclose(f(x, axis=1), f(a, axis=1))
    assert np.allclose(np.clip(x, 0, 1), np.clip(a, 0, 1))
    assert (np.ndim(x), np.size(x), np.shape(x)) == (3, 6, (1, 2, 3))
    with pytest.raises(TypeError, match="tensors do not change"):
        np.sum(x, out=np.zeros(()))


def test_gradients_pass_through_methods() -> None:
    dx = hr.grad(lambda x: (x.T * x.mean()).sum())(np.array([[1.0, 2.0], [3.0, 6.0]], np.float32))
    assert np.allclose(dx, 6.0)  # d/dx of sum(x)^2 / 4


@pytest.mark.parametrize("name", _ELSEWHERE)
def test_methods_of_other_libraries(name: str) -> None:
    with hr.Graph():
        symbolic = hr.placeholder(hr.float32)
    for x, kind in ((hr.constant(1.0), "EagerTensor"), (symbolic, "Tensor"), (hr.Variable(1.0), "Variable")):
        with pytest.raises(AttributeError, match=f"'{kind}' object has no attribute '{name}': .*(use |not needed)"):
            getattr(x, name)
        assert name not in dir(x)


def test_the_functions_named_instead_exist() -> None:
    for hint in _ELSEWHERE.values():
        for path in re.findall(r"\bhr\.([\w.]+)", hint):
            thing: Any = hr
            for part in path.split("."):
                thing = getattr(thing, part)
        for method in re.findall(r"\btensor\.(\w+)", hint):
            assert hasattr(hr.constant([[1.0]]), method)


def test_the_declarations_are_those_of_the_methods() -> None:
    """The declarations have the parameters of the methods."""
    body = ast.parse(inspect.getsource(TensorOperations)).body[0]
    declared = {n.name: n for n in ast.walk(body) if isinstance(n, ast.FunctionDef)}
    methods = {n: x for n, x in vars(ArrayMethods).items() if not n.startswith("__")}
    for name, method in methods.items():
        if not isinstance(method, property):
            arguments = ast.unparse(declared[name].args)
            assert parameters(method) == declared_parameters(arguments), name
        else:
            assert ast.unparse(declared[name].decorator_list[0]) == "property"


def parameters(method: Any) -> list[str]:
    return [str(p.replace(annotation=p.empty)) for p in inspect.signature(method).parameters.values()]


def declared_parameters(arguments: str) -> list[str]:
    made: dict[str, Any] = {}
    exec(f"from __future__ import annotations\ndef f({arguments}): ...", made)
    return parameters(made["f"])


def test_methods_of_values_in_a_graph() -> None:
    """A tensor with a value becomes a constant of the graph that has been entered."""
    x = hr.constant([1.0, 3.0])
    with hr.Graph() as g:
        made = [x.sum(), x.std(), x.dot([1.0, 2.0])]
    assert all(isinstance(t, hr.SymbolicTensor) for t in made)
    assert np.allclose(hr.Session(graph=g).run(made), [4.0, 1.0, 7.0])
