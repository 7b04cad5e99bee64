"""Python functions in graphs: arguments, permitted results, failures and lifetime."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api.cond import cond
from headrace.api.py_func import numpy_function, py_func, py_function
from headrace.api.scopes import current_graph
from headrace.api.tensors import constant
from headrace.api.while_loop import while_loop
from headrace.errors import (
    InvalidArgumentError,
    OpError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnimplementedError,
    UnknownError,
)


@pytest.fixture
def g() -> Iterator[hr.Graph]:
    with hr.Graph() as graph:
        yield graph


def run(graph: hr.Graph, fetches: Any) -> Any:
    with hr.Session(graph=graph) as sess:
        return sess.run(fetches)


def test_values_in_and_out(g: hr.Graph) -> None:
    pair = py_func(lambda a, b: (a + b, a * b), [constant([1.0, 2.0]), 3.0], [hr.float32, hr.float32])
    one = py_func(lambda: np.int64(7), [], hr.int64, name="f")
    in_a_list = numpy_function(lambda s: [s + b"!"], ["text"], [hr.string])
    texts = py_func(lambda s: np.array([t.decode() + "é" for t in s]), [["a", "b\0"]], hr.string, stateful=False)
    nothing = py_func(lambda: None, [], [])
    assert [t.op.type for t in (one, texts)] == ["PyFunc", "PyFuncStateless"]
    assert (one.op.name, pair[0].shape, nothing.type) == ("f", None, "PyFunc")
    got = run(g, [pair, one, in_a_list, texts, nothing])
    assert [x.tolist() for x in got[0]] == [[4, 5], [3, 6]]
    assert got[1:3] == [7, [b"text!"]]
    assert got[3].tolist() == ["aé".encode(), "b\0é".encode()]
    assert got[4] is None


def test_what_a_function_gets(g: hr.Graph) -> None:
    seen: list[Any] = []
    run(g, py_func(lambda *xs: seen.extend(xs), [1, [1.0], "a", ["a"], True], []))
    assert [type(x) for x in seen] == [np.int32, np.ndarray, bytes, np.ndarray, np.bool_]
    source = constant([1.0, 2.0])

    def change(x: np.ndarray) -> np.ndarray:
        x += 1
        return x

    y = py_func(change, [source], hr.float32)
    assert [v.tolist() for v in run(g, [y, source])] == [[2, 3], [1, 2]]
    kept = np.zeros(2, np.float32)

    def count() -> np.ndarray:
        kept[:] += 1
        return kept

    first = py_func(count, [], hr.float32)
    second = py_func(count, [], hr.float32)
    assert [v.tolist() for v in run(g, [first, second])] == [[1, 1], [2, 2]]


def raising(error: BaseException) -> Callable[[], Any]:
    def function() -> Any:
        raise error

    return function


@pytest.mark.parametrize(
    ("function", "Tout", "error", "message"),
    [
        (raising(ValueError("boo")), hr.float32, InvalidArgumentError, "ValueError: boo .*raising"),
        (raising(TypeError("boo")), hr.float32, InvalidArgumentError, "TypeError: boo"),
        (raising(StopIteration("boo")), hr.float32, OutOfRangeError, "StopIteration: boo"),
        (raising(MemoryError("boo")), hr.float32, ResourceExhaustedError, "MemoryError: boo"),
        (raising(NotImplementedError("boo")), hr.float32, UnimplementedError, "boo"),
        (raising(KeyError("boo")), hr.float32, UnknownError, "KeyError: 'boo'"),
        (raising(OutOfRangeError("boo")), hr.float32, OutOfRangeError, "boo"),
        (lambda: 1.0, hr.float32, InvalidArgumentError, "0-th value .* is float64, but expects float32.*np.float32"),
        (lambda: "a", hr.int32, InvalidArgumentError, "is string, but expects int32"),
        (lambda: object(), hr.string, InvalidArgumentError, "which is no text"),
        (lambda: (1.0, 2.0), hr.float64, InvalidArgumentError, "returns 2 values, but expects to see 1"),
        (lambda: None, hr.float64, InvalidArgumentError, "returns 0 values, but expects to see 1"),
    ],
)
def test_failing(g: hr.Graph, function: Any, Tout: hr.DType, error: type[OpError], message: str) -> None:
    y = py_func(function, [], Tout)
    with pytest.raises(error, match=message) as e:
        run(g, y)
    assert type(e.value) is error
    assert e.value.op is y.op


def test_nothing_is_around_a_function(g: hr.Graph) -> None:
    def function() -> np.ndarray:
        assert current_graph() is None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            np.float64(1.0) / np.float64(0.0)
        return np.array([str(c.message) for c in caught])

    assert run(g, py_func(function, [], hr.string)).tolist() == [b"divide by zero encountered in scalar divide"]


def test_order(g: hr.Graph) -> None:
    seen: list[int] = []

    def note(k: Any) -> np.int32:
        seen.append(int(k))
        return np.int32(k)

    py_func(note, [1], hr.int32)
    cond(constant(True), lambda: py_func(note, [2], hr.int32), lambda: 0)
    while_loop(lambda i: i < 6, lambda i: (py_func(note, [i], hr.int32), i + 1)[1], [3])
    last = py_func(note, [9], hr.int32)
    for _ in range(5):
        seen.clear()
        assert run(g, last) == 9
        assert seen == [1, 2, 3, 4, 5, 9]


def test_eager_functions(g: hr.Graph) -> None:
    def function(x: Any, y: Any) -> Any:
        assert type(x).__name__ == "EagerTensor"
        return x * 2 + y if x.numpy()[0] > 0 else -1.0

    y = py_function(function, [constant([1.0, 2.0]), 3.0], hr.float32)
    assert y.op.type == "EagerPyFunc"
    assert run(g, y).tolist() == [5, 7]
    assert run(g, py_function(function, [[-1.0], 0.0], [hr.float32])) == [-1]
    with pytest.raises(InvalidArgumentError, match="returns 2 values"):
        run(g, py_function(lambda: (1, 2), [], hr.int32))


def graph_that_calls() -> tuple[hr.Graph, str, weakref.ref[Any]]:
    """A graph, the name of what a function gives in it, and the function."""

    def function() -> np.int32:
        return np.int32(5)

    with hr.Graph() as g:
        y = cond(constant(True), lambda: py_func(function, [], hr.int32), lambda: 0)
    return g, y.name, weakref.ref(function)


@pytest.mark.system
def test_how_long_a_function_lives() -> None:
    g, name, function = graph_that_calls()
    gc.collect()
    with hr.Graph() as copy:
        hr.import_graph_def(g.as_graph_def().SerializeToString(), name="")
    assert run(g, name) == run(copy, name) == 5
    del g
    gc.collect()
    assert function() is None
    with pytest.raises(InvalidArgumentError, match=r"callback pyfunc_\d+ is not found.*in the process that made it"):
        run(copy, name)


def test_outside_of_graphs() -> None:
    assert py_func(lambda x: x[::-1], [[1, 2, 3]], hr.int32).numpy().tolist() == [3, 2, 1]
    assert float(py_function(lambda x: x + 1, [1.0], hr.float32)) == 2
    with pytest.raises(ValueError, match="Expected func to be callable"):
        py_func(3, [], hr.int32)  # type: ignore[arg-type]
