"""Fetches: the objects and structures allowed, and the ownership of the results."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import numpy as np
import pytest

import headrace as hr
from tests.session.helpers import builder, call, session


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Model:
    loss: Any
    parts: Any


@pytest.fixture
def graph() -> Any:
    b = builder()
    b.const(1, name="a")
    b.const([1.0, 2.0], name="v")
    b.Switch(b.const(3), b.const(True), name="switch")
    b.NoOp(name="nothing")
    b.const("text", name="s")
    return b.graph


@pytest.fixture
def s(graph: Any) -> Any:
    with hr.Session(graph=graph) as opened:
        yield opened


def test_names_tensors_and_operations(s: hr.Session, graph: hr.Graph) -> None:
    assert s.run("a:0") == 1
    assert s.run(graph.get_tensor_by_name("a:0")) == 1
    assert s.run("a") is None
    assert s.run("nothing") is None
    assert s.run(graph.get_operation_by_name("a")) is None
    assert s.run("switch:1") == 3


def test_rank_zero_gives_scalars(s: hr.Session) -> None:
    assert type(s.run("a:0")) is np.int32
    assert type(s.run("s:0")) is bytes
    assert s.run("v:0").shape == (2,)


def test_structures(s: hr.Session, graph: hr.Graph) -> None:
    a = graph.get_tensor_by_name("a:0")
    assert s.run(["a:0", a, "nothing"]) == [1, 1, None]
    assert s.run(("a:0", ["switch:1"])) == (1, [3])
    assert s.run([]) == []
    assert s.run(()) == ()
    assert s.run({}) == {}
    assert s.run({"x": "a:0", "y": {"z": ("switch:1", "nothing")}}) == {"x": 1, "y": {"z": (3, None)}}
    assert s.run([[[["a:0"]]]]) == [[[[1]]]]
    pair = s.run(Pair("a:0", Pair("switch:1", a)))
    assert pair == Pair(1, Pair(3, 1))
    assert type(pair.second) is Pair
    assert s.run(Model("a:0", [Model("switch:1", ())])) == Model(1, [Model(3, ())])


def test_the_order_and_type_of_a_mapping_are_kept(s: hr.Session) -> None:
    got = s.run(collections.OrderedDict([("z", "a:0"), ("b", "switch:1")]))
    assert type(got) is collections.OrderedDict
    assert list(got.items()) == [("z", 1), ("b", 3)]


def test_keys_of_a_mapping_that_are_equal_keep_their_classes(s: hr.Session) -> None:
    for key in (1, True, 1.0):
        ((got, value),) = s.run({key: "a:0"}).items()
        assert (type(got), value) == (type(key), 1)


def test_a_defaultdict_keeps_its_factory(s: hr.Session) -> None:
    got = s.run(collections.defaultdict(list, {"z": "a:0", "b": ["switch:1"]}))
    assert (list(got.items()), got.default_factory) == ([("z", 1), ("b", [3])], list)


def test_structures_that_change_between_runs(s: hr.Session) -> None:
    fetches: dict[str, Any] = {"b": "a:0", "a": ["switch:1"]}
    first = s.make_callable(fetches)
    for _ in range(2):
        assert list(s.run(fetches).items()) == [("b", 1), ("a", [3])]
    fetches["a"].append("nothing")
    fetches["c"] = ()
    assert list(s.run(fetches).items()) == [("b", 1), ("a", [3, None]), ("c", ())]
    assert list(s.run({"a": ["switch:1"], "b": "a:0"}).items()) == [("a", [3]), ("b", 1)]
    assert list(first().items()) == [("b", 1), ("a", [3])]


def test_one_tensor_many_times(s: hr.Session) -> None:
    got = s.run(["a:0", "a:0", {"again": "a:0"}])
    assert got == [1, 1, {"again": 1}]
    x, y = s.run(["v:0", "v:0"])
    np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("fetch", [3, None, 1.5, object(), {"a:0"}, ["a:0", 3], np.zeros(2), Model])
def test_what_cannot_be_fetched(s: hr.Session, fetch: Any) -> None:
    with pytest.raises(TypeError, match="cannot fetch"):
        s.run(fetch)


def test_an_operation_that_was_not_made_in_a_graph_is_explained(s: hr.Session) -> None:
    for made in (hr.variables_initializer([]), hr.group(), hr.no_op()):
        with pytest.raises(TypeError, match="an operation is None if it was called outside of `with graph:`"):
            s.run(made)


@pytest.mark.parametrize("fetch", ["b:0", "a:1", "b", "", ":0", "a:b", ["a:0", "b:0"]])
def test_unknown_names(s: hr.Session, fetch: Any) -> None:
    with pytest.raises(ValueError, match="cannot be interpreted as a Tensor"):
        s.run(fetch)


def test_a_near_name_is_suggested(s: hr.Session) -> None:
    with pytest.raises(ValueError, match=r"near: 'switch'"):
        s.run("swich:0")


def test_a_tensor_of_another_graph(s: hr.Session) -> None:
    stranger = builder().const(1)
    with pytest.raises(ValueError, match="belongs to another"):
        s.run(stranger)


def test_only_what_the_fetches_need_runs(custom: None) -> None:
    b = builder()
    runs: list[str] = []

    def counted(name: str, *args: Any) -> Any:
        return call(b, "Stateful", lambda ctx, *xs: runs.append(name) or np.int32(1), args, scalar=True)

    x = counted("x")
    y, z = counted("y", x), counted("z", x)
    w = b.after(z).const(5)
    failing = call(b, "Stateful", lambda ctx: 1 / 0)
    b.Placeholder(dtype="float32", shape=(), name="unfed")
    with session(b) as s:
        s.run(y)
        assert runs == ["x", "y"]
        runs.clear()
        assert s.run(w) == 5
        assert runs == ["x", "z"]
        runs.clear()
        s.run([y, z, y.op])
        assert sorted(runs) == ["x", "y", "z"]
        with pytest.raises(hr.errors.HeadraceInternalError):
            s.run(failing)


def test_results_belong_to_the_caller(s: hr.Session) -> None:
    first = s.run("v:0")
    first[...] = 99
    assert s.run("v:0").tolist() == [1, 2]


def test_a_result_may_be_written_whatever_else_holds_it(custom: None) -> None:
    b = builder()
    v = b.VarHandleOp(dtype="float32", shape=(4,))
    init = b.AssignVariableOp(v, b.const(np.arange(4, dtype=np.float32)))
    read = b.ReadVariableOp(v, dtype="float32")
    views = [b.Identity(read), b.Reshape(read, [2, 2]), b.Reshape(b.Identity(read), [4, 1])]
    added = b.AssignAddVariableOp(v, b.const(np.ones(4, np.float32)))
    after = b.after(added).ReadVariableOp(v, dtype="float32")
    cached = np.arange(3, dtype=np.int32)
    kept = call(b, "Stateful", lambda ctx: cached)
    with session(b) as s:
        s.run(init)
        for fetched in (*s.run([read, *views]), s.run(read)):
            assert fetched.flags.writeable
            fetched[...] = -1
        assert s.run(read).tolist() == [0, 1, 2, 3]
        s.run(after)[...] = -1
        assert s.run(read).tolist() == [1, 2, 3, 4]
        s.run(kept)[...] = -1
        assert cached.tolist() == [0, 1, 2]


def test_a_result_does_not_change_when_the_variable_does() -> None:
    b = builder()
    v = b.VariableV2(shape=(2,), dtype="float32")
    init = b.Assign(v, b.const([1.0, 2.0]))
    add = b.AssignAdd(v, b.const([10.0, 10.0]))
    with session(b) as s:
        s.run(init.op)
        before = s.run(v)
        assert s.run(add).tolist() == [11, 12]
        assert before.tolist() == [1, 2]


def test_a_large_result_is_handed_over_without_a_copy(custom: None) -> None:
    made: list[int] = []

    def make(ctx: Any) -> Any:
        array = np.zeros(1000, np.float32)
        made.append(array.ctypes.data)
        return array

    b = builder()
    x = call(b, "Stateful", make, out=("float32",))
    with session(b) as s:
        assert s.run(x).ctypes.data == made[0]
