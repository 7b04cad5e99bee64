"""Variables in graphs: operations, names, values in sessions, order of reads and changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.api.cond import cond
from headrace.api.tensors import constant
from headrace.api.variable import Variable, variables_initializer
from headrace.api.while_loop import while_loop
from headrace.errors import FailedPreconditionError, GraphError, OutOfRangeError, ShapeError
from headrace.jit.function import Function


@pytest.fixture
def g() -> Iterator[hr.Graph]:
    with hr.Graph() as graph:
        yield graph


def ran(graph: hr.Graph, *fetches: Any, init: bool = True) -> list[Any]:
    """The values of each fetch, one run after the other in one session."""
    with hr.Session(graph=graph) as sess:
        if init:
            with graph:
                start = variables_initializer()
            sess.run(start)
        return [sess.run(f) for f in fetches]


# *** operations and names ***


def test_operations_are_named_as_tensorflow_names_them(g: hr.Graph) -> None:
    v = Variable(3.0)
    made = [(op.name, op.type) for op in g.operations]
    assert made == [
        ("Variable/Initializer/initial_value", "Const"),
        ("Variable", "VarHandleOp"),
        ("Variable/IsInitialized/VarIsInitializedOp", "VarIsInitializedOp"),
        ("Variable/Assign", "AssignVariableOp"),
        ("Variable/Read/ReadVariableOp", "ReadVariableOp"),
    ]
    assert (v.name, v.op.name, v.handle.name, v.initializer.name) == (
        "Variable:0", "Variable", "Variable:0", "Variable/Assign",
    )  # fmt: skip
    assert v.initial_value.name == "Variable/Initializer/initial_value:0"
    assert v.graph_element.name == "Variable/Read/ReadVariableOp:0"
    assert v.op.attrs["shared_name"] == "Variable"
    assert (v.value().name, v.read_value().name, v.read_value().op.inputs[0].name) == (
        "ReadVariableOp:0", "Identity:0", "Read_1/ReadVariableOp:0",
    )  # fmt: skip
    a = v.assign(4.0)
    assert (a.name, a.op.name, a.op.type) == ("AssignVariableOp", "AssignVariableOp", "AssignVariableOp")
    assert [v.assign(1.0, read_value=False).name, v.assign_add(1.0).name, v.is_initialized().op.name] == [
        "AssignVariableOp_1", "AssignAddVariableOp", "VarIsInitializedOp",
    ]  # fmt: skip
    assert g.variables == [v]


def test_scopes_and_second_names(g: hr.Graph) -> None:
    with scopes.name_scope("s"), scopes.device("/device:CPU:0"), scopes.control_dependencies([constant(1)]):
        v = Variable(lambda: constant([1.0, 2.0]), name="v")
        w = Variable([1], name="v")
    assert (v.name, w.name, v.initial_value.name) == ("s/v:0", "s/v_1:0", "s/v/Initializer/Const:0")
    assert v.device == "/device:CPU:0"
    assert all(not op.control_inputs for op in g.operations if op.name.startswith("s/v"))
    with scopes.name_scope(None):
        assert Variable(1, name="a/b").name == "a/b:0"


@pytest.mark.parametrize(
    ("initial", "more", "dtype", "shape"),
    [
        (3.0, {}, hr.float32, ()),
        ([1, 2], {}, hr.int32, (2,)),
        (3, {"dtype": "float64"}, hr.float64, ()),
        (np.ones((2, 3), np.int64), {}, hr.int64, (2, 3)),
        ("text", {}, hr.string, ()),
        ([1.0, 2.0], {"shape": (None,)}, hr.float32, (None,)),
        ([1.0, 2.0], {"validate_shape": False}, hr.float32, None),
        (lambda: [True], {}, hr.bool, (1,)),
    ],
)
def test_dtype_and_shape(g: hr.Graph, initial: Any, more: dict[str, Any], dtype: Any, shape: Any) -> None:
    v = Variable(initial, **more)
    assert (v.dtype, v.shape, v.handle.handle) == (dtype, shape, (dtype, shape))
    (got,) = ran(g, v)
    want = np.asarray(initial() if callable(initial) else initial)
    assert np.all(np.asarray(got) == (want.astype(bytes) if want.dtype.kind == "U" else want))


def test_what_no_variable_can_start_with(g: hr.Graph) -> None:
    with pytest.raises(TypeError, match="initial_value must be specified"):
        Variable()
    with pytest.raises(TypeError, match=r"expected int32, got 1\.5"):
        Variable(1.5, dtype=hr.int32)
    with pytest.raises(TypeError, match="requested dtype int32 for Tensor with dtype float32"):
        Variable(constant(1.5), dtype=hr.int32)
    with pytest.raises(ShapeError, match=r"shape \(\[2\]\) is not compatible with .* \(\[3\]\) of variable 'v'"):
        Variable([1, 2], shape=[3], name="v")
    assert g.variables == []


# *** values ***


def test_each_session_has_its_own_value(g: hr.Graph) -> None:
    v = Variable([1.0, 2.0], name="v")
    read = v.value()
    double = read * 2.0
    add = v.assign_add([1.0, 1.0])
    with hr.Session(graph=g) as one, hr.Session(graph=g) as two:
        with pytest.raises(FailedPreconditionError, match="uninitialized value v"):
            one.run(v)
        one.run(v.initializer)
        assert one.run(add).tolist() == [2, 3]
        assert one.run(v.is_initialized())
        assert not two.run(v.is_initialized())
        two.run(v.initializer)
        assert (one.run(v).tolist(), two.run(v).tolist()) == ([2, 3], [1, 2])
        assert one.run({"v": v, "op": v.op, "add": add.op})["op"] is None
        assert one.run(v).tolist() == [3, 4]
        assert (one.run(double).tolist(), one.run(double, {read: [0.0, 0.0]}).tolist()) == ([6, 8], [0, 0])
        assert one.run(v, {v: [7.0, 7.0]}).tolist() == [7, 7]


def test_an_assignment_is_the_value_after_it(g: hr.Graph) -> None:
    v = Variable(1.0)
    a = v.assign(10.0)
    b = v.assign_add(5.0)
    c = b.assign_sub(1.0)
    assert (v.assign(0.0, read_value=False).type, type(a)) == ("AssignVariableOp", Variable)
    assert ran(g, [a, b, c, a + b, c.op])[0] == [10, 15, 14, 25, None]
    assert a.dtype is hr.float32
    assert a.shape == ()
    assert a.handle is v.handle
    assert v not in (a, b)
    assert len({v, a, b}) == 3


def test_reads_and_changes_keep_their_order(g: hr.Graph) -> None:
    v = Variable(1.0)
    before = v * 1.0
    v.assign(5.0)
    between = v * 1.0
    v.assign_add(1.0)
    after = v.read_value()
    assert ran(g, [after, between, before])[0] == [6, 5, 1]


def test_initializing_is_outside_of_the_order(g: hr.Graph) -> None:
    v = Variable(1.0)
    add = v.assign_add(1.0)
    read = v.value()
    needed = {op.name for op in read.op.control_inputs}
    assert needed == {add.op.name}
    assert not add.op.control_inputs
    assert not v.initializer.control_inputs
    first, second, third = ran(g, read, read, v)
    assert (first, second, third) == (2, 3, 3)
    # a variable without a value can be assigned to
    with hr.Graph() as other:
        w = Variable(1.0)
        assign = w.assign(7.0)
    assert ran(other, assign, w, init=False) == [7, 7]


def test_without_an_order_only_control_inputs_count() -> None:
    graph = scopes.Graph()
    graph.order = None
    with graph:
        v = Variable(1.0)
        v.assign(100.0)
        read = v + 0.0
        with scopes.control_dependencies([v.assign(5.0)]):
            after = v.read_value()
        assert not read.op.inputs[0].op.control_inputs
        assert [op.type for op in after.op.inputs[0].op.control_inputs] == ["AssignVariableOp"]
        with scopes.control_dependencies([v]):
            assert [op.name for op in constant(1).op.control_inputs] == ["Variable"]
    assert ran(graph, read, after) == [1, 5]


def test_initial_values_may_read_other_variables(g: hr.Graph) -> None:
    v = Variable(2.0, name="v")
    w = Variable(v * 3.0, name="w")
    x = Variable(lambda: w + v, name="x")
    y = Variable(x.initialized_value() + 1.0, name="y")
    v.assign(100.0)  # in the order of the program, but not what initializers wait for
    z = Variable(v.initialized_value(), name="z")
    assert ran(g, [w, x, y, z], v)[0] == [6, 8, 9, 2]
    with hr.Session(graph=g) as sess:
        for fetch in (v.initializer, v.assign(10.0).op, w.initializer):
            sess.run(fetch)
        assert sess.run(w) == 30  # it has a value: that one
    assert w.initial_value.op.inputs[0].op.type == "ReadVariableOp"


def test_a_list_of_variables_is_a_tensor(g: hr.Graph) -> None:
    v, w = Variable(1.0), Variable(2.0)
    assert ran(g, scopes.builder().tensor([v, 3.0, w]), scopes.builder().AddN([v, w]))[0].tolist() == [1, 3, 2]


def test_operators(g: hr.Graph) -> None:
    v = Variable([4.0, 5.0], name="v")
    got = ran(g, [v + 1.0, 2.0 - v, v * v, -v, v[1], v > 4.0, np.float32(1) + v, v[:1]])[0]
    assert [np.asarray(x).tolist() for x in got] == [
        [5, 6], [-2, -3], [16, 25], [-4, -5], 5, [False, True], [5, 6], [4],
    ]  # fmt: skip


# *** rows, counters ***


def test_rows(g: hr.Graph) -> None:
    v = Variable([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]], name="v")
    reads = [v.sparse_read([2, 0]), v.gather_nd([[1, 0]])]
    assert [r.op.type for r in reads] == ["ResourceGather", "GatherNd"]
    steps: list[tuple[Callable[..., Any], Any, list[float]]] = [
        (v.scatter_update, [10.0, 10.0], [10, 10]),
        (v.scatter_add, 1.0, [11, 11]),
        (v.scatter_sub, [1.0, 0.0], [10, 11]),
        (v.scatter_mul, 2.0, [20, 22]),
        (v.scatter_div, [2.0, 1.0], [10, 22]),
        (v.scatter_min, 12.0, [10, 12]),
        (v.scatter_max, 11.0, [11, 12]),
    ]
    made = [change(1 if np.ndim(u) else [1], u) for change, u, _ in steps]
    got = ran(g, [*reads, *made])[0]
    assert (got[0].tolist(), got[1].tolist()) == ([[3, 3], [1, 1]], [2])
    assert [x[1].tolist() for x in got[2:]] == [want for *_, want in steps]

    class Slices:
        indices, values = [0], [[5.0, 5.0]]

    assert ran(g, v.scatter_add(Slices()))[0][0].tolist() == [6, 6]


def test_counting(g: hr.Graph) -> None:
    n = Variable(0, name="n")
    count = n.count_up_to(2)
    with hr.Session(graph=g) as sess:
        sess.run(n.initializer)
        assert [sess.run(count), sess.run(count)] == [0, 1]
        with pytest.raises(OutOfRangeError, match="Reached limit of 2"):
            sess.run(count)


# *** in branches, loops and functions ***


def test_a_variable_belongs_to_the_outermost_graph(g: hr.Graph) -> None:
    made: list[Variable] = []

    def branch(initial: Any) -> Callable[[], Any]:
        def make() -> Any:
            made.append(Variable(initial, name="v"))
            return made[-1] + 1.0

        return make

    a = cond(constant(True), branch(1.0), lambda: 0.0)
    b = cond(constant(True), lambda: cond(constant(True), branch(lambda: constant(2.0)), lambda: 0.0), lambda: 0.0)
    assert [v.name for v in made] == ["cond/v:0", "cond_1/cond/v:0"]
    assert all(v.graph is g for v in made)
    assert ran(g, [a, b])[0] == [2, 3]
    with pytest.raises(GraphError, match=r"(?s)initial_value.* from inside a control-flow.*test_variable.*lambda"):
        cond(constant(True), lambda: Variable(constant(1.0) + 1.0) + 1.0, lambda: 0.0)


def test_changes_in_a_loop(g: hr.Graph) -> None:
    v = Variable(0, name="v")

    def body(i: Any) -> Any:
        after = v.assign_add(i)
        return i + 1 + after - v.value()

    n = while_loop(lambda i: i < 4, body, [0])[0]
    later = v + 100
    assert ran(g, [n, later])[0] == [4, 106]


def test_changes_in_a_branch_and_a_function(g: hr.Graph) -> None:
    v = Variable(1.0, name="v")
    double = Function(lambda: v.assign(v * 2.0) + 0.0, name="double")
    first = double()
    second = cond(v > 1.0, lambda: v.assign_add(10.0) + 0.0, lambda: v + 0.0)
    third = double()
    assert ran(g, [third, second, first])[0] == [24, 12, 2]


# *** initializers, errors ***


def test_variables_initializer(g: hr.Graph) -> None:
    v, w = Variable(1.0, name="v"), Variable(2.0, name="w", trainable=False)
    init = variables_initializer([w])
    assert (init.name, [op.name for op in init.control_inputs]) == ("init", ["w/Assign"])
    assert {op.name for op in variables_initializer().control_inputs} == {"v/Assign", "w/Assign"}
    empty = variables_initializer([])
    assert empty.type == "NoOp"
    assert (v.trainable, w.trainable) == (True, False)
    with hr.Session(graph=g) as sess:
        assert sess.run([empty, init]) == [None, None]
        assert sess.run(w) == 2
        assert not sess.run(v.is_initialized())


def test_wrong_assignments(g: hr.Graph) -> None:
    v = Variable([1.0, 2.0], name="v")
    with pytest.raises(ShapeError, match=r"'v:0': Shape mismatch. The variable shape \[2\], and .* \[3\]"):
        v.assign([1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="float32"):
        v.assign(constant([1, 2]))
    with pytest.raises(ShapeError):
        v.assign_add([1.0, 2.0, 3.0])
    free = Variable([1.0], validate_shape=False)
    assert ran(g, free.assign([[1.0, 2.0]]))[0].tolist() == [[1, 2]]


def test_a_variable_has_no_value_while_the_graph_is_made(g: hr.Graph) -> None:
    v = Variable([1.0], name="v")
    for use in (bool, float, len, list, np.asarray, lambda v: v.numpy(), lambda v: f"{v:.2f}"):
        with pytest.raises(TypeError, match=r"of the variable 'v:0', which has no value until the graph runs"):
            use(v)  # type: ignore[operator]
    assert repr(v) == str(v) == f"{v}" == "<Variable 'v:0' shape=[1] dtype=float32>"


def test_another_graph(g: hr.Graph) -> None:
    v = Variable(1.0, name="v")
    with hr.Graph(), pytest.raises(GraphError, match="another graph"):
        v.assign(2.0)
    assert (v + 1.0).graph is g


def test_outside_of_its_with_block() -> None:
    with hr.Graph() as g:
        v = Variable(1.0, name="v")
    w = v.assign_add(1.0)
    assert ran(g, w, w + v)[1] == 6


def test_the_wire(g: hr.Graph) -> None:
    """Variables are found by name, so an exported graph has the same ones."""
    v = Variable(1.0, name="v")
    v.assign_add(2.0)
    with hr.Graph() as copy:
        hr.import_graph_def(g.as_graph_def().SerializeToString(), name="")
    with hr.Session(graph=copy) as sess:
        sess.run("v/Assign")
        sess.run("AssignAddVariableOp")
        assert sess.run("v/Read/ReadVariableOp:0") == 3
