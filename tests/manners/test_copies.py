"""Copying and pickling of the objects of the public API.

The error of an object that cannot be copied gives the reason and the remedy.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.ir.function import bodies
from tests.inside import target_of

pytestmark = pytest.mark.one_engine


@hr.Function
def at_the_top(x: Any) -> Any:
    """A function that its module knows by its name."""
    return x + 1


def pickled(x: Any) -> Any:
    return pickle.loads(pickle.dumps(x))


WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": pickled}


@pytest.fixture(scope="module")
def things() -> dict[str, Any]:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2,), name="x")
        made = {
            "a graph": g,
            "a tensor": x,
            "an operation": x.op,
            "a variable": hr.Variable(1.0),
            "a queue": hr.FIFOQueue(3, [hr.float32]),
            "a tensor array": hr.TensorArray(hr.float32, 3).write(0, 1.0),
            "slices": hr.IndexedSlices(x, hr.constant([0, 1])),
            "a nested structure": {"x": [x]},
        }
        hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
        loop = next(op for op in g.operations if op.opdef.structured == "While")
    session = hr.Session(graph=g)
    error = hr.errors.InvalidArgumentError("wrong", "x", x.op)
    error.add_note("a note")
    return made | {
        "the graph of a body": next(b for _, b in bodies(loop)),
        "a session": session,
        "a session of v1": tf.Session(graph=tf.Graph()),
        "a callable": session.make_callable(x, [x]),
        "a device": next(iter(target_of(session).local_devices.values())),
        "an eager queue": hr.FIFOQueue(3, [hr.float32]),
        "a handle": hr.Variable(1.0).handle,
        "a local function": hr.Function(lambda x: x),
        "an error": error,
        "an explanation": session.explain(x, [x]),
    }


# Objects that raise TypeError: the ways of copying that do, and the words that the text has to contain.
REFUSED = {
    "a graph": ("copy deepcopy pickle", "as_graph_def()"),
    "the graph of a body": ("copy deepcopy pickle", "as_graph_def()"),
    "a tensor": ("copy deepcopy pickle", "as_graph_def()"),
    "an operation": ("copy deepcopy pickle", "as_graph_def()"),
    "a variable": ("copy deepcopy pickle", "as_graph_def()"),
    "a session": ("copy deepcopy pickle", "make one from the graph (as_graph_def) where it is needed"),
    "a session of v1": ("copy deepcopy pickle", "as_graph_def"),
    "a queue": ("copy deepcopy pickle", "Make another one"),
    "an eager queue": ("copy deepcopy pickle", "Make another one"),
    "a handle": ("pickle", "pickle what is in the resource"),
    "a device": ("copy deepcopy pickle", "its name (device.name) can"),
    "a local function": ("pickle", "Define it at the top of a module"),
    "a tensor array": ("deepcopy pickle", "as_graph_def()"),
    "slices": ("deepcopy pickle", "as_graph_def()"),
    "a nested structure": ("deepcopy pickle", "as_graph_def()"),
}


@pytest.mark.parametrize(("what", "way"), [(what, w) for what, (ways, _) in REFUSED.items() for w in ways.split()])
def test_refused(things: dict[str, Any], what: str, way: str) -> None:
    with pytest.raises(TypeError) as caught:
        WAYS[way](things[what])
    assert REFUSED[what][1] in str(caught.value)


def test_a_callable_is_a_function_of_its_session(things: dict[str, Any]) -> None:
    call = things["a callable"]
    assert copy.copy(call) is copy.deepcopy(call) is call
    with pytest.raises((AttributeError, pickle.PicklingError), match="make_callable"):  # Python's own
        pickle.dumps(call)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("value", [hr.float32, hr.string, hr.bool, at_the_top], ids=str)
def test_the_same(value: Any, way: str) -> None:
    assert WAYS[way](value) is value


def _same_array(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a.numpy(), b.numpy())) and a.dtype is b.dtype


EQUAL: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], bool]]] = {
    "spec": (lambda: hr.TensorSpec((None, 2), hr.int8, "a"), lambda a, b: a == b and a.name == b.name),
    "shape": (lambda: tf.TensorShape([1, None]), lambda a, b: a.as_list() == b.as_list()),
    "options": (lambda: hr.RunOptions(timeout_in_ms=3), lambda a, b: a == b),
    "eager": (lambda: hr.constant([1.0, 2.0]), _same_array),
    "eager bfloat16": (lambda: hr.constant([1.5], hr.bfloat16), _same_array),
    "eager strings": (lambda: hr.constant(["a", "bc"]), _same_array),
    "eager bytes": (lambda: hr.constant(b"\xff"), _same_array),
    "graph def": (lambda: _graph().as_graph_def(), lambda a, b: a == b),
    "error": (lambda: hr.errors.OutOfRangeError("m", "n"), lambda a, b: (a.node, a.message) == (b.node, b.message)),
    "device attributes": (lambda: hr.Session(graph=hr.Graph()).list_devices(), lambda a, b: a == b),
    "cluster": (lambda: hr.Cluster.local(["/job:localhost/replica:0/task:0/device:CPU:0"]), lambda a, b: a == b),
    "eager slices": (
        lambda: hr.IndexedSlices(hr.constant([1.0]), hr.constant([0])),
        lambda a, b: _same_array(a.values, b.values) and _same_array(a.indices, b.indices),
    ),
}


def _graph() -> hr.Graph:
    with hr.Graph() as g:
        hr.cond(hr.placeholder(hr.bool, ()), lambda: 1, lambda: 2)
    return g


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", EQUAL)
def test_equal(what: str, way: str) -> None:
    make, is_same = EQUAL[what]
    value = make()
    assert is_same(value, WAYS[way](value))


@pytest.mark.parametrize("way", WAYS)
def test_a_variable_outside_of_graphs_is_a_value(way: str) -> None:
    v = hr.Variable([1.0, 2.0], name="v", trainable=False)
    other = WAYS[way](v)
    other.assign_add([1.0, 1.0])
    assert v.numpy().tolist() == [1.0, 2.0]
    assert other.numpy().tolist() == [2.0, 3.0]
    assert (other.name, other.trainable, other.dtype, other.shape) == (v.name, False, v.dtype, v.shape)


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_array_outside_of_graphs_is_a_value(way: str) -> None:
    a = hr.TensorArray(hr.float32, 2).write(0, 1.0).write(1, 2.0)
    assert WAYS[way](a).stack().numpy().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("way", WAYS)
def test_an_error_keeps_all_but_the_operation(things: dict[str, Any], way: str) -> None:
    error = things["an error"]
    other = WAYS[way](error)
    assert type(other) is type(error)
    assert (str(other), other.node, other.op, other.__notes__) == ("wrong", "x", None, ["a note"])
    assert error.op is not None


def test_an_error_of_a_step_can_be_pickled() -> None:
    with hr.Graph() as g:
        y = hr.check_numerics(hr.placeholder(hr.float32, (), name="x"), "not a number")
    for engine in ("interpret", "compiled"):
        with hr.Session(graph=g, engine=engine) as s, pytest.raises(hr.errors.InvalidArgumentError) as caught:
            s.run(y, {"x:0": np.nan})
        other = pickled(caught.value)
        assert other.node == caught.value.node == "CheckNumerics"
        assert other.__notes__ == caught.value.__notes__


def test_an_explanation_is_data(things: dict[str, Any]) -> None:
    value = things["an explanation"]
    assert str(pickled(value)) == str(copy.deepcopy(value)) == str(value)
