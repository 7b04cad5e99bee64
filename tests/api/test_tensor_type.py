"""The type `hr.Tensor`, and Python's operators on tensors and variables."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.ir.tensor_type import TensorOperations

INTS = np.array([[5, -7], [12, 3]], np.int32)
FLOATS = np.array([[2.5, -1.25], [0.125, 3.5]], np.float32)


def test_eager_and_symbolic_tensors_are_tensors() -> None:
    assert isinstance(hr.constant(1), hr.Tensor)
    assert isinstance(hr.constant(1), hr.EagerTensor)
    assert not isinstance(hr.constant(1), hr.SymbolicTensor)
    with hr.Graph():
        x = hr.placeholder(hr.float32)
    assert isinstance(x, hr.Tensor)
    assert isinstance(x, hr.SymbolicTensor)
    assert not isinstance(x, hr.EagerTensor)


def test_a_tensor_of_headrace_v1_is_a_tensor_of_both() -> None:
    import headrace.v1 as tf

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32)
    assert isinstance(x, tf.Tensor)
    assert isinstance(x, hr.Tensor)


def test_a_variable_and_a_number_are_no_tensors() -> None:
    assert not isinstance(hr.Variable(1.0), hr.Tensor)
    assert not isinstance(1.0, hr.Tensor)


def test_the_type_makes_no_tensor() -> None:
    with pytest.raises(TypeError, match=r"use hr\.constant\(value\)"):
        hr.Tensor([1.0])


def test_the_type_costs_no_memory() -> None:
    assert not hasattr(hr.constant(1), "__dict__")


def test_declared_operators_are_there() -> None:
    """The declared operators are exactly the installed ones."""
    import ast
    import inspect

    body = ast.parse(inspect.getsource(TensorOperations)).body[0]
    assert isinstance(body, ast.ClassDef)
    declared = {n.name for n in ast.walk(body) if isinstance(n, ast.FunctionDef) and n.name.startswith("__")}
    conversions = "bool int float complex index len iter array setitem eq ne hash".split()
    declared -= {f"__{name}__" for name in conversions}
    there = set(vars(TensorOperations)) - {
        "__module__",
        "__doc__",
        "__slots__",
        "__array_priority__",
        "__getitem__",
        "__annotations__",
        "__firstlineno__",  # from Python 3.13
        "__static_attributes__",
    }
    assert declared - {"__getitem__"} == {n for n in there if n.startswith("__")}


OPERATORS: list[tuple[str, Callable[..., Any], Any, Any]] = [
    ("<<", operator.lshift, INTS, np.array([1, 3], np.int32)),
    ("<< number", operator.lshift, INTS, 2),
    ("number <<", operator.lshift, 3, np.array([1, 4], np.int32)),
    (">>", operator.rshift, INTS, np.array([1, 2], np.int32)),
    ("number >>", operator.rshift, 100, np.array([1, 2], np.int32)),
    ("divmod", divmod, INTS, 4),
    ("divmod of floats", divmod, FLOATS, np.float32(0.75)),
    ("number divmod", divmod, 17, INTS),
    ("round", round, FLOATS, None),
    ("round to 1", lambda x, y: np.round(x, 1) if isinstance(x, np.ndarray) else round(x, 1), FLOATS, None),
]


@pytest.mark.parametrize(("f", "x", "y"), [c[1:] for c in OPERATORS], ids=[c[0] for c in OPERATORS])
@pytest.mark.parametrize("way", ["eager", "graph", "variable"])
def test_operators(way: str, f: Callable[..., Any], x: Any, y: Any) -> None:
    operands = (x,) if f is round or y is None else (x, y)
    expected = np.round(x) if f is round else f(*operands) if y is not None else f(x, y)

    def tensors(make: Callable[[np.ndarray], Any]) -> list[Any]:
        return [make(v) if isinstance(v, np.ndarray) else v for v in operands]

    def apply(args: list[Any]) -> Any:
        return f(*args) if y is not None or f is round else f(*args, None)

    if way == "graph":
        with hr.Graph() as g:
            got = hr.Session(graph=g).run(apply(tensors(hr.constant)))
    else:
        got = apply(tensors(hr.constant if way == "eager" else hr.Variable))
    for mine, its in zip(got, expected) if isinstance(expected, tuple) else [(got, expected)]:
        assert np.asarray(mine).dtype == np.asarray(its).dtype
        assert np.allclose(mine, its)


def test_rounding_integers_to_decimals_is_refused() -> None:
    with pytest.raises(TypeError, match=r"round\(\) to 2 decimals takes a tensor of floats, got int32"):
        round(hr.constant([1]), 2)
