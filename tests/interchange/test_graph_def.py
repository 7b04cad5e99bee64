"""`Graph.as_graph_def`: both forms, their contents, their names and their meaning.

The written graph means the same as the graph.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import pb
from headrace.errors import GraphError
from headrace.interchange.portable import is_own
from headrace.ir.opdef import op_registry
from headrace.ir.serial.nodedefs import GRAPH_DEF_VERSION
from headrace.jit.function import Function
from tests.interchange import cases

pytestmark = pytest.mark.one_engine

FORMS = ("structured", "primitive")
i32, f32 = hr.int32, hr.float32


def types(message: Any) -> set[str]:
    return {n.op for n in message.node}


def written(graph: Any, **options: Any) -> list[str]:
    """The nodes of the primitive form: "name = Type(input, ...)"."""
    return [f"{n.name} = {n.op}({', '.join(n.input)})" for n in graph.as_graph_def("primitive", **options).node]


def results(graph: Any, fetches: Any, feeds: Any = None) -> Any:
    with hr.Session(graph=graph) as session:
        return session.run(fetches, feeds or {})


def by_both(graph: Any, fetches: Any, feeds: Any = None, **options: Any) -> None:
    """Asserts that what is written and read again gives the same results."""
    want = results(graph, fetches, feeds)
    for form in FORMS:
        for got, w in zip(results(cases.again(graph, form, **options), fetches, feeds), want, strict=True):
            np.testing.assert_array_equal(got, w, form)


# *** names ***

COND = """
x = Placeholder()
y = Placeholder()
cond/Less = Less(x, y)
z = Placeholder()
cond/Switch = Switch(cond/Less, cond/Less)
cond/switch_f = Identity(cond/Switch)
cond/switch_t = Identity(cond/Switch:1)
cond/y/Switch = Switch(y, cond/Less)
cond/Square = Square(cond/y/Switch)
cond/x/Switch = Switch(x, cond/Less)
cond/z/Switch = Switch(z, cond/Less)
cond/add = AddV2(cond/x/Switch:1, cond/z/Switch:1)
cond/Merge = Merge(cond/Square, cond/add)
"""

WHILE = """
n = Placeholder()
Const = Const()
while/Enter = Enter(Const)
while/Merge = Merge(while/Enter, while/NextIteration)
while/Enter_1 = Enter(n)
while/Merge_1 = Merge(while/Enter_1, while/NextIteration_1)
while/Less = Less(while/Merge, while/Merge_1)
while/LoopCond = LoopCond(while/Less)
while/Switch = Switch(while/Merge, while/LoopCond)
while/Switch_1 = Switch(while/Merge_1, while/LoopCond)
while/Identity = Identity(while/Switch:1)
while/mul/y = Const(^while/Identity)
while/mul = Mul(while/Switch:1, while/mul/y)
while/NextIteration = NextIteration(while/mul)
while/NextIteration_1 = NextIteration(while/Switch_1:1)
while/Exit = Exit(while/Switch)
while/Exit_1 = Exit(while/Switch_1)
"""


def test_names_of_a_conditional() -> None:
    assert written(cases.a_cond()) == COND.split("\n")[1:-1]


def test_names_of_a_loop() -> None:
    g = cases.a_loop()
    assert written(g) == WHILE.split("\n")[1:-1]
    frames = {n.attr["frame_name"].s for n in g.as_graph_def("primitive").node if n.op == "Enter"}
    assert frames == {b"while/while_context"}


def test_names_that_the_graph_shows_are_in_the_file() -> None:
    """A tensor of the graph has the same name in the file."""
    feeds = {"x:0": 2.0, "y:0": 3.0, "z:0": 4.0}
    assert results(cases.a_cond(), ["cond/Merge:0"], feeds) == [6.0]
    assert results(cases.again(cases.a_cond(), "primitive"), ["cond/Merge:0"], feeds) == [6.0]
    names = ["while/Exit:0", "while/Exit_1:0"]
    assert results(cases.a_loop(), names, {"n:0": 20}) == [32, 20]
    assert results(cases.again(cases.a_loop(), "primitive"), names, {"n:0": 20}) == [32, 20]


def test_names_of_a_graph_that_does_not_show_primitives() -> None:
    with hr.Graph() as g:
        n = hr.placeholder(i32, (), name="n")
        i, s = hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + i), (0, 0), name="count")
        y = hr.cond(s > 10, lambda: s, lambda: i, name="which")
    by_both(g, [i.name, s.name, y.name], {"n:0": 5})
    message = g.as_graph_def("primitive")
    got = {x.name: x.op for x in message.node}
    assert (got["count"], got["which"], got["count/Exit_1"], got["which/Merge"]) == (
        "IdentityN", "Identity", "Exit", "Merge",
    )  # fmt: skip


def test_no_name_of_the_users_changes() -> None:
    """Even where what loops and conditionals become would be called so."""
    with hr.Graph() as g:
        n = hr.placeholder(i32, (), name="n")
        (i,) = hr.while_loop(lambda i: i < n, lambda i: i + 1, (0,), name="loop")
        for name in ("loop/Enter", "loop/Merge", "loop/while_context", "loop/Switch"):
            hr.identity(n * 2, name=name)
        hr.constant(3.0, name="LOOP/exit")
    mine = [op.name for op in g.operations]
    for form in FORMS:
        message = g.as_graph_def(form)
        assert set(mine) <= {x.name for x in message.node}
        assert {x.op for x in message.node if x.name == "loop/Merge"} == {"Identity"}
    by_both(g, [i.name, "loop/Enter:0", "loop/Merge:0", "LOOP/exit:0"], {"n:0": 3})


def test_frames_of_imported_loops_are_their_own() -> None:
    with hr.Graph() as g:
        hr.import_graph_def(cases.a_loop().as_graph_def("primitive"), name="")
        m = hr.placeholder(i32, (), name="m")
        (j,) = hr.while_loop(lambda j: j < m, lambda j: j + 3, (0,), name="while")
    message = g.as_graph_def("primitive")
    frames = {x.attr["frame_name"].s for x in message.node if x.op == "Enter"}
    assert len(frames) == 2
    by_both(g, ["while/Exit:0", j.name], {"n:0": 5, "m:0": 7})


def test_what_stands_beside_something_names_what_it_is_called() -> None:
    with hr.Graph() as inner:
        x = hr.placeholder(f32, (), name="x")
        with hr.colocate_with(x):
            hr.square(x, name="y")
    with hr.Graph() as g:
        v = hr.placeholder(f32, (), name="v")

        def branch() -> Any:
            a = hr.sin(v, name="a")
            with hr.colocate_with(a):
                return hr.cos(a, name="b")

        hr.cond(v > 0.0, branch, lambda: v)
    found = {n.name: list(n.attr["_class"].list.s) for n in g.as_graph_def("primitive").node}
    assert found["cond/b"] == [b"loc:@cond/a"]
    again = cases.again(g, "structured")  # there the names are those of a function
    found = {n.name: list(n.attr["_class"].list.s) for n in again.as_graph_def("primitive").node}
    (b,) = (name for name in found if name.endswith("/b"))
    assert found[b] == [b"loc:@" + b[:-1].encode() + b"a"]
    assert list(inner.as_graph_def("primitive").node[1].attr["_class"].list.s) == [b"loc:@x"]


# *** the forms ***


@pytest.mark.parametrize("form", ["flat", "", None, "Primitive"])
def test_there_are_two_forms(form: Any) -> None:
    with pytest.raises(ValueError, match=f"form={form!r}.*the forms are 'structured' and 'primitive'"):
        hr.Graph().as_graph_def(form)


def test_primitive_has_nothing_else() -> None:
    for seed in range(4):
        case = cases.structured(seed, stateful=True)
        message = case.graph.as_graph_def("primitive")
        assert not any(op_registry.get(t).structured for t in types(message))
        assert not message.library.function
        assert not any(is_own(t) for t in types(message))


@pytest.mark.matrix
@pytest.mark.parametrize("stateful", [False, True])
def test_random_programs(stateful: bool) -> None:
    for seed in range(100, 104):
        case = cases.structured(seed, stateful)
        want, failed, shown = cases.run(case.graph, case.steps)
        for form in FORMS:
            got, also, printed = cases.run(cases.again(case.graph, form), case.steps)
            assert also == failed, (seed, form)
            assert printed == shown, (seed, form)
            assert failed or cases.same(got, want), (seed, form)


def _check_gradients(seed: int, orders: int = 2) -> None:
    case = cases.differentiated(seed, orders)
    want, _, _ = cases.run(case.graph, case.steps)
    for form in FORMS:
        got, _, _ = cases.run(cases.again(case.graph, form, portable=False), case.steps)
        assert cases.same(got, want, 1e-9), (seed, form)


@pytest.mark.matrix
def test_random_programs_with_gradients() -> None:
    for seed in (3, 7):  # which take elements out of lists, and call recursive functions
        _check_gradients(seed, orders=1)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_many_random_programs_with_gradients() -> None:
    for seed in range(40):
        _check_gradients(seed)


def test_a_case_is_switches_by_booleans() -> None:
    case = cases.branches()
    assert "_SwitchN" not in types(case.graph.as_graph_def("primitive"))
    want, _, _ = cases.run(case.graph, case.steps)
    assert [int(x) for x in want[::3]] == [7, 6, 50, 7, 7]
    for form in FORMS:
        assert cases.same(cases.run(cases.again(case.graph, form), case.steps)[0], want)


def test_what_nothing_fetches_is_written() -> None:
    with hr.Graph() as g:
        hr.constant(1.0, name="alone")
        v = hr.Variable(2.0, name="v")
        hr.cond(hr.constant(True), lambda: v.assign(3.0), lambda: v.assign(4.0), name="set")
    for form in FORMS:
        again = cases.again(g, form)
        with hr.Session(graph=again) as session:
            session.run(v.initializer.name)
            assert session.run("alone:0") == 1.0
            session.run("set")  # as an operation, with all that it does
            assert session.run("v/Read/ReadVariableOp:0") == 3.0


def test_a_result_comes_with_what_is_done_besides() -> None:
    with hr.Graph() as g:
        v = hr.Variable(0, name="v")

        def body(i: Any) -> Any:
            v.assign_add(10)
            return i + 1

        (i,) = hr.while_loop(lambda i: i < 3, body, (0,))
        read = v.read_value()
    for form in FORMS:
        with hr.Session(graph=cases.again(g, form)) as session:
            session.run(v.initializer.name)
            assert session.run(i.name) == 3
            assert session.run(read.name) in (30, 60)  # reading runs the loop, which stands before it


def test_effects_that_nothing_needs_are_left_out_of_branches() -> None:
    """In `headrace.v1` they do not happen; in a function TensorFlow would make them happen."""
    with tf.Graph().as_default() as g:
        v = tf.Variable(1.0, name="v", use_resource=True)

        def branch() -> Any:
            tf.assign_add(v, 1.0)
            return tf.constant(5.0)

        y = tf.cond(tf.constant(True), branch, lambda: tf.constant(6.0))
    for form in FORMS:
        message = g.as_graph_def(form)
        everywhere = [*message.node, *(n for f in message.library.function for n in f.node_def)]
        assert "AssignAddVariableOp" not in {n.op for n in everywhere}
    assert y.name == "cond/Merge:0"


# *** functions ***


def test_recursion_is_refused_and_kept_for_headrace() -> None:
    with hr.Graph() as g:
        n = hr.placeholder(i32, (), name="n")
        fact = Function(
            lambda n: hr.cond(n < 2, lambda: 1, lambda: n * fact(n - 1)), results=hr.TensorSpec((), i32), name="fact"
        )
        y = fact(n)
    for form in FORMS:
        with pytest.raises(GraphError, match=r"'fact' \(.*test_graph_def.py.*function 'fact', which calls itself"):
            g.as_graph_def(form)
        again = cases.again(g, form, portable=False)
        assert results(again, y.name, {"n:0": 6}) == 720


def test_calls_are_put_in_their_place() -> None:
    double = Function(lambda x: x * 2, name="double")
    with hr.Graph() as g:
        n = hr.placeholder(i32, (), name="n")
        y = double(double(n))
    message = g.as_graph_def("primitive")
    assert types(message) == {"Placeholder", "Const", "Mul", "Identity"}
    by_both(g, [y.name, y.op.inputs[0].name], {"n:0": 4})


# *** only in headrace ***


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_collectives_are_tensorflows_operations(form: str, n: int) -> None:
    case = cases.collectives(n)
    message = case.graph.as_graph_def(form)
    used = types(message) | {node.op for f in message.library.function for node in f.node_def}
    assert not any(map(is_own, used))
    want, _, _ = cases.run(case.graph, case.steps)
    got, _, _ = cases.run(cases.again(case.graph, form), case.steps)
    assert cases.same(got, want)  # to the bit: added up in the same order
    assert any(map(is_own, types(case.graph.as_graph_def(form, portable=False))))


def test_an_element_whose_gradient_nothing_needs_is_written_as_zeros() -> None:
    """The list has elements of unknown shape.

    No operation reads the element that is taken out.
    """
    with hr.Graph() as g:
        x = hr.constant([1.0, 2.0])
        a = hr.TensorArray(hr.float32, size=3, infer_shape=False).write(0, x * x)
        _, a = hr.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, a.write(i, [5.0, 5.0])), (1, a))
        dx = hr.gradients(hr.reduce_sum(a.read(0)), x)[0]
    written = g.as_graph_def()
    for message, is_there in ((g.as_graph_def(portable=False), True), (written, False)):
        used = types(message) | {node.op for f in message.library.function for node in f.node_def}
        assert ("_TensorListUnset" in used) is is_there
    with hr.Graph() as again:
        (got,) = hr.import_graph_def(written, return_elements=[dx.name], name="")
    assert hr.Session(graph=again).run(got).tolist() == hr.Session(graph=g).run(dx).tolist() == [2, 4]


def test_what_tensorflow_has_nothing_for_is_refused() -> None:
    with hr.Graph() as g:
        lists = hr.raw_ops.TensorListFromTensor(tensor=[1.0, 2.0], element_shape=hr.constant([], i32))
        g.add_op("_TensorListUnset", "gone", [lists, hr.constant([0, 1])], {}, source=lists.op.source)
    for form in FORMS:
        with pytest.raises(GraphError, match=r"'gone' \(_TensorListUnset\), made at .*graph_def.py.*portable=False"):
            g.as_graph_def(form)
        assert "_TensorListUnset" in types(g.as_graph_def(form, portable=False))
    with hr.Graph() as g:
        g.add_op("_Cut", "cut", [hr.constant([0, 1])], {"N": 2, "T": i32})
    with pytest.raises(GraphError, match=r"'cut' \(_Cut\) is an operation that only headrace has"):
        g.as_graph_def()


# *** other things written ***


@pytest.mark.parametrize("form", FORMS)
def test_exported_graphs_keep_static_shapes(form: str) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f32, (None, 3), name="x")
        hr.cond(hr.constant(True), lambda: hr.matmul(x, hr.ones((3, 2))), lambda: x[:, :2], name="c")
        hr.group(x, name="done")
    message = g.as_graph_def(form, add_shapes=True)
    shapes = {n.name: n.attr["_output_shapes"].list.shape for n in message.node if "_output_shapes" in n.attr}
    assert [d.size for d in shapes["x"][0].dim] == [-1, 3]
    assert [d.size for d in shapes["c"][0].dim] == [-1, 2]
    assert "done" not in shapes
    if form == "structured":
        inner = [n for f in message.library.function for n in f.node_def if n.op == "MatMul"]
        assert [d.size for d in inner[0].attr["_output_shapes"].list.shape[0].dim] == [-1, 2]
    assert not any("_output_shapes" in n.attr for n in g.as_graph_def(form).node)
    by_both(g, ["c:0"], {"x:0": np.ones((2, 3))}, add_shapes=True)


def test_shapes_of_an_imported_loop_stay_true_after_a_gradient() -> None:
    """A gradient adds outputs to the loop, which the shapes in the file lack."""
    with hr.Graph() as g:
        x = hr.placeholder(f32, (), name="x")
        hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, hr.tanh(y * x)), (0, x), name="loop")
    message = g.as_graph_def(add_shapes=True)
    loop = next(n for n in message.node if n.name == "loop")
    outputs = loop.attr["_output_shapes"].list.shape
    loop.attr["output_shapes"].list.shape.extend(outputs)
    with hr.Graph() as again:
        made: Any = hr.import_graph_def(message, name="", return_elements=["loop:1", "x:0", "loop"])
        hr.gradients(made[0], [made[1]])
    assert len(made[2].outputs) > len(outputs)
    for add_shapes in (False, True):
        loop = next(n for n in again.as_graph_def(add_shapes=add_shapes).node if n.name == "loop")
        assert len(loop.attr["output_shapes"].list.shape) == len(made[2].outputs)
        assert len(loop.attr["_output_shapes"].list.shape) == (len(made[2].outputs) if add_shapes else 0)


def test_versions() -> None:
    g = cases.a_loop()
    structured, primitive = (g.as_graph_def(form).versions for form in FORMS)
    assert (structured.producer, structured.min_consumer) == (GRAPH_DEF_VERSION, 12)  # which knows functions
    assert (primitive.producer, primitive.min_consumer) == (GRAPH_DEF_VERSION, 0)
    message = primitive_message = g.as_graph_def("primitive")
    message.versions.CopyFrom(pb.VersionDef(producer=27, min_consumer=21))
    with hr.Graph() as again:
        hr.import_graph_def(primitive_message, name="")
        hr.cond(hr.constant(True), lambda: 1, lambda: 2)
    for form in FORMS:
        versions = again.as_graph_def(form).versions
        assert (versions.producer, versions.min_consumer) == (27, 21), form


PROGRAM = """
import hashlib
from tests.interchange import cases
for case in (cases.structured(3, True), cases.differentiated(2, 1)):
    for form in ("structured", "primitive"):
        message = case.graph.as_graph_def(form, add_shapes=True)
        print(hashlib.sha256(message.SerializeToString(deterministic=True)).hexdigest())
"""


@pytest.mark.system
def test_the_same_program_gives_the_same_bytes() -> None:
    found = []
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", PROGRAM], env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."}, capture_output=True,
            text=True, check=True, cwd=hr.__path__[0] + "/..",
        )  # fmt: skip
        found.append(run.stdout.split())
    assert found[0] == found[1]
    assert len(set(found[0])) == 4


def test_writing_changes_nothing() -> None:
    case = cases.structured(11, True)
    version, names = case.graph.version, [op.name for op in case.graph.operations]
    for form in FORMS:
        first, second = (case.graph.as_graph_def(form) for _ in range(2))
        assert first == second
    assert case.graph.version == version
    assert [op.name for op in case.graph.operations] == names
