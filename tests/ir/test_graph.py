"""`ir.graph`, `ir.builder`, `ir.walk`, `ir.source`: operations, tensors, names."""

import copy
import pickle
import threading

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import GraphError, NotFoundError, ShapeError
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.conversion import as_array
from headrace.ir.graph import Graph
from headrace.ir.serial.functiondef import EncodedFunction
from headrace.ir.source import Source, here
from headrace.ir.text import from_text


@pytest.fixture
def b():
    return Builder(Graph())


# *** graphs ***


def test_a_graph_grows(b):
    g = b.graph
    x = b.Placeholder(dtype=dtypes.float32, shape=(2,), name="x")
    before = g.version
    y = b.Identity(x, name="y")
    assert g.version > before
    assert [op.name for op in g.operations] == ["x", "y"] == [op.name for op in g.get_operations()]
    assert len(g) == 2
    assert "x" in g
    assert g.find("x") is x.op
    assert g.find("z") is None
    assert y.op.id == 1
    assert y.op.inputs == [x]
    assert repr(g) == "<Graph of 2 operations>"
    g.add_control_input(x.op, y.op)
    g.add_control_input(x.op, y.op)
    assert x.op.control_inputs == [y.op]


def test_names_lead_to_things(b):
    g = b.graph
    x = b.Placeholder(dtype=dtypes.float32, name="scope/x")
    assert g.get_operation_by_name("scope/x") is x.op
    assert g.get_tensor_by_name("scope/x:0") is x
    for element in (x, x.op, "scope/x", "scope/x:0", "^scope/x"):
        assert g.as_graph_element(element) in (x, x.op)
    with pytest.raises(KeyError, match="'scope/y' refers to an Operation not in the graph; near: 'scope/x'"):
        g.get_operation_by_name("scope/y")
    with pytest.raises(KeyError, match="'y:0' refers to a Tensor which does not exist: no operation 'y'"):
        g.get_tensor_by_name("y:0")
    with pytest.raises(KeyError, match=r"the operation 'scope/x' \(Placeholder\) has 1 outputs"):
        g.get_tensor_by_name("scope/x:1")
    with pytest.raises(ValueError, match="is no tensor name"):
        g.get_tensor_by_name("scope/x")


def test_elements_of_another_kind_or_graph(b):
    x = b.Placeholder(dtype=dtypes.float32, name="x")
    g = b.graph
    with pytest.raises(ValueError, match="not an element of this graph"):
        Graph().as_graph_element(x)
    with pytest.raises(TypeError, match="an operation is needed"):
        g.as_graph_element(x, allow_tensor=False)
    with pytest.raises(TypeError, match="a tensor is needed"):
        g.as_graph_element(x.op, allow_operation=False)
    with pytest.raises(ValueError, match="names a tensor; the name of an operation is needed"):
        g.as_graph_element("x:0", allow_tensor=False)
    with pytest.raises(ValueError, match="perhaps you meant 'x:0'"):
        g.as_graph_element("x", allow_operation=False)
    with pytest.raises(TypeError, match="cannot use 3"):
        g.as_graph_element(3)


def test_unique_names():
    g = Graph()
    assert [g.unique_name("a") for _ in range(3)] == ["a", "a_1", "a_2"]
    assert g.unique_name("A") == "A_3"  # case does not tell names apart, as in TensorFlow
    assert g.unique_name("a_1") == "a_1_1"
    assert g.unique_name("b", mark_as_used=False) == g.unique_name("b", mark_as_used=False) == "b"


def test_names_are_checked():
    g = Graph()
    for name in ("", "a b", "_a", "-a", "a:0", "a\n"):
        with pytest.raises(GraphError, match="Node name contains invalid characters"):
            g.add_op("NoOp", name)
    g.add_op("NoOp", "a.b/c-d>e\\f_")
    g.add_op("NoOp", "a")
    with pytest.raises(GraphError, match="Node 'a' is not unique"):
        g.add_op("NoOp", "a")


def test_inputs_are_checked(b):
    g = b.graph
    x = b.Placeholder(dtype=dtypes.float32, name="x")
    with pytest.raises(NotFoundError, match=r"Op type not registered 'Foo'.*'y'"):
        g.add_op("Foo", "y")
    with pytest.raises(GraphError, match="takes 1 inputs under its attributes, got 0"):
        g.add_op("Identity", "y", [], {"T": dtypes.float32})
    with pytest.raises(GraphError, match="Input 0 of Identity was passed float32, incompatible with expected int32"):
        g.add_op("Identity", "y", [x], {"T": dtypes.int32})
    with pytest.raises(GraphError, match="belongs to another graph"):
        Graph().add_op("Identity", "y", [x], {"T": dtypes.float32})
    with pytest.raises(GraphError, match=r"control input .* of another graph"):
        Graph().add_op("NoOp", "y", control_inputs=[x.op])
    with pytest.raises(GraphError, match="joins two graphs"):
        Graph().add_control_input(x.op, x.op)
    assert len(g) == 1


def test_back_edges(b):
    x = b.Placeholder(dtype=dtypes.float32)
    e = b.Enter(x, frame_name="f")
    m, _ = b.Merge([e, e])
    n = b.NextIteration(m)
    b.graph.set_back_edge(m.op, 1, n)
    assert m.op.inputs == [e, n]
    with pytest.raises(GraphError, match="only a Merge"):
        b.graph.set_back_edge(e.op, 0, n)
    with pytest.raises(GraphError, match="joins two graphs"):
        Graph().set_back_edge(m.op, 0, n)


def test_all_or_nothing(b):
    g = b.graph
    b.Placeholder(dtype=dtypes.float32, name="x")
    with g.all_or_nothing():
        b.NoOp(name="kept")

    def grow_and_fail():
        with g.all_or_nothing():
            b.NoOp(name="gone")
            g.unique_name("scope")
            g.library["f"] = EncodedFunction(b"")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        grow_and_fail()
    assert [op.name for op in g.operations] == ["x", "kept"]
    assert "gone" not in g
    assert g.library == {}
    assert g.unique_name("scope") == "scope"
    assert b.NoOp(name="gone").name == "gone"


def test_a_graph_grows_from_many_threads():
    g = Graph()

    def grow():
        for _ in range(200):
            Builder(g).NoOp()

    threads = [threading.Thread(target=grow) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len({op.name for op in g.operations}) == 800
    assert [op.id for op in g.operations] == list(range(800))


# *** tensors and operations ***


def test_a_tensor_is_itself_only(b):
    x, y = b.Switch(b.Placeholder(dtype=dtypes.float32), b.Placeholder(dtype=dtypes.bool_), name="s")
    assert x == x
    assert x != y
    assert {x: 1}[x] == 1
    assert (x.name, y.name, x.graph, x.device) == ("s:0", "s:1", b.graph, "")
    assert repr(x) == "<Tensor 's:0' shape=<unknown> dtype=float32>"
    assert repr(x.op) == "<Operation 's' type=Switch>"
    assert x.op.get_attr("T") is dtypes.float32
    with pytest.raises(ValueError, match=r"operation 's' .Switch. has no attribute 'U'; it has .'T'"):
        x.op.get_attr("U")


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (bool, "for `if` use hr.cond, for `while` hr.while_loop"),
        (len, "use its .shape"),
        (iter, "use hr.while_loop, or unstack"),
        (list, "use hr.while_loop, or unstack|use its .shape"),
        (np.asarray, r"run it: session.run\(tensor\)"),
        (copy.copy, "belongs to its graph and cannot be copied"),
        (copy.deepcopy, "belongs to its graph and cannot be copied"),
        (pickle.dumps, "belongs to its graph and cannot be pickled"),
    ],
)
def test_a_symbolic_tensor_has_no_value(b, use, says):
    x = b.Placeholder(dtype=dtypes.float32)
    with pytest.raises(TypeError, match=says):
        use(x)
    if use in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="belongs to its graph"):
            use(x.op)
    if use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a Graph cannot be"):
            use(b.graph)


# *** the builder ***


def test_it_makes_what_the_record_says(b):
    x = b.Placeholder(dtype=dtypes.float32, shape=(2,))
    assert b.NoOp() is b.graph.find("NoOp")
    s = b.Switch(x, b.Placeholder(dtype=dtypes.bool_, shape=()))
    assert isinstance(s, tuple)
    y = b.AddV2(x, 2.0)
    assert y.op.inputs[1].op.type == "Const"
    assert y.op.inputs[1].dtype is dtypes.float32
    assert b.AddV2(1, b.Placeholder(dtype=dtypes.int64)).op.inputs[0].dtype is dtypes.int64
    m, index = b.Merge([x, y], name="m")
    assert (m.op.attrs["N"], index.dtype, m.shape) == (2, dtypes.int32, (2,))


def test_derived_builders(b):
    x = b.Placeholder(dtype=dtypes.float32)
    inner = b.within("a").on("/cpu:1").after(x).at(Source("model.py", 3, "f"))
    y = inner.Identity(x, name="y")
    z = b.within("a").AddV2(x, 1.0)
    assert (y.op.name, y.device, y.op.control_inputs, str(y.op.source)) == ("a/y", "/cpu:1", [x.op], "model.py:3 in f")
    assert z.op.name == "a_1/AddV2"
    assert inner.AddV2(x, 1.0).op.inputs[1].op.control_inputs == []


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda b, x: b.make("Foo", (), {}), NotFoundError, "Op type not registered 'Foo'"),
        (lambda b, x: b.Identity(), GraphError, "Identity takes 1 arguments .input., got 0"),
        (lambda b, x: b.Merge(x), GraphError, "argument 'inputs' of Merge must be a list of tensors"),
        (lambda b, x: b.Identity(x.op), GraphError, "give one of its outputs"),
        (lambda b, x: b.Switch(x, x), GraphError, "Input 1 of Switch was passed float32"),
        (lambda b, x: b.Switch(x, b.Placeholder(dtype=dtypes.bool_, shape=(3,))), ShapeError, "must be rank 0"),
        (lambda b, x: b.Identity(x, T=dtypes.int32), GraphError, "incompatible with expected int32"),
        (lambda b, x: b.Merge([]), GraphError, "needs at least 1 tensor as argument 'inputs', got 0"),
    ],
)
def test_errors_name_the_users_line(b, make, error, says):
    x = b.Placeholder(dtype=dtypes.float32, shape=(2,))
    with pytest.raises(error, match=says) as e:
        make(b, x)
    if error is GraphError:
        assert "test_graph.py" in e.value.__notes__[0]
    with pytest.raises(AttributeError, match="no attribute 'Foo', and no op type"):
        b.Foo


def test_python_values_become_arrays():
    assert as_array(1.5).dtype == np.float32
    assert as_array(3).dtype == np.int32
    assert as_array(2**40).dtype == np.int64
    assert as_array([True]).dtype == np.bool_
    assert as_array(np.float64(1)).dtype == np.float64
    assert as_array(3, dtypes.float64).dtype == np.float64
    assert as_array("é")[()] == "é".encode()
    assert as_array([b"a", "b"]).tolist() == [b"a", b"b"]
    assert not as_array([1, 2]).flags.writeable
    mine = np.ones(3, np.float32)
    as_array(mine)
    mine[0] = 2  # the array that is given stays the caller's
    for value, dtype in [
        (1.5, dtypes.int32),
        ("a", dtypes.int32),
        (3, dtypes.string),
        (object(), None),
        ([1, [2]], None),
    ]:
        with pytest.raises((TypeError, ValueError)):
            as_array(value, dtype)


# *** walks ***


def test_walks():
    g = from_text("""
        x = Placeholder[dtype=float32]
        y = Identity(x)
        z = AddV2(x, y) ^w
        w = NoOp
        u = NoOp ^z
    """)
    ops = {op.name: op for op in g.operations}
    assert walk.predecessors(ops["z"]) == [ops["x"], ops["y"], ops["w"]]
    assert {op.name for op in walk.reachable([ops["z"]])} == {"x", "y", "z", "w"}
    assert {op.name for op in walk.reachable([ops["z"]], {ops["y"].outputs[0]})} == {"x", "z", "w"}
    assert walk.uses(g.operations)[ops["x"].outputs[0]] == [(ops["y"], 0), (ops["z"], 0)]
    order = [op.name for op in walk.toposort(g.operations)]
    assert order.index("w") < order.index("z") < order.index("u")
    assert [op.name for op in walk.toposort([ops["u"], ops["z"]])] == ["z", "u"]


def test_here_is_the_users_line():
    where = here()
    assert where.function == "test_here_is_the_users_line"
    assert where.file.endswith("test_graph.py")
    assert str(Source("a.py", 0)) == "a.py"
