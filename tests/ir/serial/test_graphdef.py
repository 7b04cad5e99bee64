"""`ir.serial.graphdef` and `ir.serial.attrs`: TensorFlow's file format, in and out."""

import contextlib
import random
import time

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

import headrace as hr
from headrace import dtypes, pb
from headrace.errors import GraphError, NotFoundError, ShapeError
from headrace.ir import attr_values
from headrace.ir.attr_values import Func
from headrace.ir.graph import Graph
from headrace.ir.infer import constant_value
from headrace.ir.opdef import func_attr, list_attr, type_attr
from headrace.ir.serial import attrs as wire
from headrace.ir.serial.graphdef import GRAPH_DEF_VERSION, export_graph_def, import_graph_def
from headrace.ir.text import to_text
from tests.ir import corpus


def node(name, op, *inputs, device="", **attrs):
    """The text of a node.

    Attributes: DT_... names, ints, floats, bools, strings, or text in braces as it is.
    """
    text = f'node {{ name: "{name}" op: "{op}" device: "{device}" '
    text += "".join(f'input: "{i}" ' for i in inputs)
    for k, v in attrs.items():
        if isinstance(v, bool):
            value = f"b: {str(v).lower()}"
        elif isinstance(v, int):
            value = f"i: {v}"
        elif isinstance(v, float):
            value = f"f: {v}"
        elif v.startswith("DT_"):
            value = f"type: {v}"
        elif v.startswith("{"):
            value = v[1:-1]
        else:
            value = f's: "{v}"'
        text += f'attr {{ key: "{k}" value {{ {value} }} }} '
    return text + "}\n"


def placeholder(name, dtype="DT_FLOAT", shape=""):
    return node(name, "Placeholder", dtype=dtype, **({"shape": f"{{shape {{ {shape} }}}}"} if shape else {}))


def identity(name, *inputs, T="DT_FLOAT", **kw):
    return node(name, "Identity", *inputs, T=T, **kw)


def merge(name, *inputs, T="DT_FLOAT"):
    return node(name, "Merge", *inputs, T=T, N=len(inputs))


def const(name, tensor, dtype="DT_FLOAT"):
    return node(name, "Const", dtype=dtype, value=f"{{tensor {{ {tensor} }}}}")


def imported(text, **kw):
    g = Graph()
    import_graph_def(text, g, **kw)
    return g


def names(g):
    return [op.name for op in g.operations]


LOOP = (
    placeholder("x", shape="dim { size: 2 }")
    + placeholder("p", "DT_BOOL")
    + node("e", "Enter", "x", T="DT_FLOAT", frame_name="f")
    + node("pe", "Enter", "p", T="DT_BOOL", frame_name="f", is_constant=True)
    + merge("m", "e", "n")
    + node("c", "LoopCond", "pe")
    + node("s", "Switch", "m", "c", T="DT_FLOAT")
    + identity("b", "s:1")
    + node("n", "NextIteration", "b", T="DT_FLOAT")
    + node("out", "Exit", "s", T="DT_FLOAT")
)

# *** reading ***


def test_a_graph_comes_in():
    g = imported(placeholder("x") + identity("y", "x", "^x", device="/cpu:0") + identity("z", "y:0"))
    y = g.find("y")
    assert names(g) == ["x", "y", "z"]
    assert y.inputs == [g.get_tensor_by_name("x:0")]
    assert y.control_inputs == [g.find("x")]
    assert y.attrs == {"T": dtypes.float32}
    assert y.device == "/cpu:0"
    assert g.find("z").inputs == [y.outputs[0]]
    assert y.outputs[0].shape is None


@pytest.mark.parametrize("form", ["text", "bytes", "bytearray", "message", "other message"])
def test_a_graph_def_has_several_forms(form):
    text = placeholder("x")
    message = text_format.Parse(text, pb.GraphDef())

    class Other:
        """TensorFlow's GraphDef, which is another class."""

        def SerializeToString(self):
            return message.SerializeToString()

    data = message.SerializeToString()
    forms = {"text": text, "bytes": data, "bytearray": bytearray(data), "message": message, "other message": Other()}
    assert names(imported(forms[form])) == ["x"]


def test_an_empty_file_is_an_empty_graph():
    assert names(imported(b"")) == []


@pytest.mark.parametrize("data", [b"abc", b"\x0a\xff", b"\x0a\x03\x0a\x01\xff", "node {", "nod { }", "node { x: 1 }"])
def test_what_is_no_graph_def_is_said_to_be_none(data):
    with pytest.raises(GraphError, match="not a GraphDef: ") as e:
        imported(data)
    assert e.value.__cause__ is not None


def test_truncation_is_found():
    data = text_format.Parse(LOOP, pb.GraphDef()).SerializeToString()
    for n in range(1, len(data), 7):
        with contextlib.suppress(GraphError, NotFoundError):
            imported(data[:n])


@pytest.mark.parametrize("what", [3, None, ["x"], open])
def test_other_types_are_refused(what):
    with pytest.raises(TypeError, match="must be bytes, text or a GraphDef message"):
        imported(what)


def test_nesting_has_a_limit():
    deep = 'name: "f" attr { key: "a" value { func { ' * 3000 + "} } } " * 3000
    with pytest.raises(GraphError, match="not a GraphDef"):
        imported('node { name: "x" op: "NoOp" attr { key: "a" value { func { ' + deep + "} } } }")


# *** order, loops ***


def test_nodes_may_stand_in_any_order():
    want = to_text(imported(LOOP).operations)
    nodes = list(text_format.Parse(LOOP, pb.GraphDef()).node)
    for seed in range(20):
        random.Random(seed).shuffle(nodes)
        g = imported(pb.GraphDef(node=nodes))
        assert sorted(to_text(g.operations).split("\n")) == sorted(want.split("\n"))


def test_the_order_of_the_file_is_kept_where_it_can_be():
    assert names(imported(identity("z", "y") + placeholder("a") + identity("y", "x") + placeholder("x"))) == [
        "a", "x", "y", "z",
    ]  # fmt: skip


def test_a_loop_leads_backwards():
    g = imported(LOOP)
    m = g.find("m")
    assert [t.name for t in m.inputs] == ["e:0", "n:0"]
    assert names(g) == ["x", "p", "e", "pe", "m", "c", "s", "b", "n", "out"]


def test_the_back_edge_may_come_first():
    g = imported(LOOP.replace(merge("m", "e", "n"), merge("m", "n", "e")))
    assert [t.name for t in g.find("m").inputs] == ["n:0", "e:0"]


def test_a_merge_may_have_several_back_edges():
    g = imported(
        placeholder("x")
        + node("e", "Enter", "x", T="DT_FLOAT", frame_name="f")
        + merge("m", "n1", "e", "n2", "n1")
        + node("n1", "NextIteration", "m", T="DT_FLOAT")
        + node("n2", "NextIteration", "m", T="DT_FLOAT")
    )
    assert [t.name for t in g.find("m").inputs] == ["n1:0", "e:0", "n2:0", "n1:0"]


def test_references_go_round_too():
    g = imported(
        node("v", "VariableV2", dtype="DT_FLOAT", shape="{shape { }}")
        + node("e", "RefEnter", "v", T="DT_FLOAT", frame_name="f")
        + node("m", "RefMerge", "e", "n", T="DT_FLOAT", N=2)
        + node("n", "RefNextIteration", "m", T="DT_FLOAT")
    )
    assert g.find("m").inputs[1].name == "n:0"
    assert g.get_tensor_by_name("m:0").dtype == dtypes.float32.ref


# *** shapes ***


def shape_in_loop(body, enter_shape="dim { size: 2 }", more=""):
    g = imported(LOOP.replace(identity("b", "s:1"), body).replace("dim { size: 2 }", enter_shape) + more, name="")
    return {op.name: op.outputs[0].shape for op in g.operations if op.outputs}


def test_a_loop_variable_keeps_its_shape():
    got = shape_in_loop(identity("b", "s:1"))
    assert got["m"] == got["b"] == got["out"] == (2,)


def test_a_growing_loop_variable_loses_it():
    body = node(
        "axis", "Const", "^s", dtype="DT_INT32", value="{tensor { dtype: DT_INT32 tensor_shape { } int_val: 0 }}"
    ) + node("b", "ConcatV2", "s:1", "s:1", "axis", T="DT_FLOAT", Tidx="DT_INT32", N=2)
    got = shape_in_loop(body)
    assert got["m"] == got["b"] == got["out"] == (None,)
    got = shape_in_loop(body, "dim { size: 2 } dim { size: 3 }")
    assert got["m"] == got["out"] == (None, 3)


def test_a_constant_of_a_shape_that_did_not_hold_is_forgotten():
    # sh = Shape(m) is known to be [2] while m is taken to be [2]; once m is [?] it is not.
    axis = const("axis", "dtype: DT_INT32 tensor_shape { } int_val: 0", "DT_INT32").replace(
        'op: "Const"', 'op: "Const" input: "^s"'
    )
    body = axis + node("b", "ConcatV2", "s:1", "s:1", "axis", T="DT_FLOAT", Tidx="DT_INT32", N=2)
    more = node("sh", "Shape", "m", T="DT_FLOAT", out_type="DT_INT32") + node(
        "r", "Fill", "sh", "fe", T="DT_FLOAT", index_type="DT_INT32"
    )
    more += const("fill", "dtype: DT_FLOAT tensor_shape { } float_val: 1") + node(
        "fe", "Enter", "fill", T="DT_FLOAT", frame_name="f", is_constant=True
    )
    g = imported(LOOP.replace(identity("b", "s:1"), body) + more)
    assert g.get_tensor_by_name("r:0").shape == (None,)
    assert constant_value(g.get_tensor_by_name("sh:0")) is None


def test_a_changing_rank_is_an_unknown_one():
    body = const("axis", "dtype: DT_INT32 tensor_shape { } int_val: 0", "DT_INT32").replace(
        'op: "Const"', 'op: "Const" input: "^s"'
    ) + node("b", "ExpandDims", "s:1", "axis", T="DT_FLOAT", Tdim="DT_INT32")
    assert shape_in_loop(body)["m"] is None


def test_what_cannot_be_in_iteration_0_may_be_in_a_branch_not_taken():
    # MatMul of a vector fails, if it runs; TensorFlow, which knows nothing of m's shape, imports it.
    body = node("b", "MatMul", "s:1", "s:1", T="DT_FLOAT")
    got = shape_in_loop(body)
    assert got["m"] is None
    assert got["b"] == (None, None)
    assert got["x"] == (2,)


def test_what_can_never_be_is_refused_in_a_loop_too():
    with pytest.raises(ShapeError, match="'bad'"):
        shape_in_loop(
            identity("b", "s:1"),
            more=node("bad", "Switch", "x", "pv", T="DT_FLOAT") + placeholder("pv", "DT_BOOL", "dim { size: 3 }"),
        )


def test_shapes_are_inferred():
    with pytest.raises(ShapeError, match="'y'"):
        imported(placeholder("x", shape="dim { size: 3 }") + node("y", "MatMul", "x", "x", T="DT_FLOAT"))
    with pytest.raises(ValueError, match="'y'"):
        imported(placeholder("x", "DT_BOOL", "dim { size: 3 }") + node("y", "LoopCond", "x"))


# *** prefix, input map, return elements ***


def test_a_prefix_is_a_scope():
    g = Graph()
    text = placeholder("x") + identity("y", "x", "^x", _class='{list { s: "loc:@x" }}')
    import_graph_def(text, g, name="a")
    import_graph_def(text, g, name="a")
    import_graph_def(text, g, name="a/b/")
    assert names(g) == ["a/x", "a/y", "a_1/x", "a_1/y", "a/b/x", "a/b/y"]
    assert g.find("a_1/y").inputs[0].name == "a_1/x:0"
    assert g.find("a_1/y").attrs["_class"] == ("loc:@a_1/x",)


def test_a_bad_prefix_is_refused():
    with pytest.raises(GraphError, match="invalid characters"):
        imported(placeholder("x"), name="a b")


def test_names_that_are_taken_get_a_number():
    g = Graph()
    import_graph_def(placeholder("x") + identity("y", "x"), g)
    import_graph_def(placeholder("x") + identity("x_1", "x") + identity("y", "x_1"), g)
    assert names(g) == ["x", "y", "x_2", "x_1", "y_1"]
    assert [t.name for t in g.find("x_1").inputs] == ["x_2:0"]


def test_the_input_map_replaces_inputs():
    g = imported(placeholder("w") + node("split", "Switch", "w", "p", T="DT_FLOAT") + placeholder("p", "DT_BOOL"))
    w, p = g.get_tensor_by_name("w:0"), g.find("p")
    text = placeholder("x") + identity("y", "x", "^x") + identity("z", "missing:1")
    got = import_graph_def(text, g, "a", {"x": w, "^x": p, "missing:1": w}, return_elements=["x:0", "x", "y", "z:0"])
    assert [t.name for t in g.find("a/y").inputs] == ["w:0"]
    assert g.find("a/y").control_inputs == [p]
    assert got[0] is w
    assert [e.name for e in got] == ["w:0", "a/x", "a/y", "a/z:0"]


def test_what_enters_a_loop_may_be_mapped():
    g = imported(placeholder("w"))
    w = g.get_tensor_by_name("w:0")
    import_graph_def(merge("m", "e", "n") + node("n", "NextIteration", "m", T="DT_FLOAT"), g, input_map={"e:0": w})
    assert [t.name for t in g.find("m").inputs] == ["w:0", "n:0"]


@pytest.mark.parametrize(
    ("key", "unknown"), [("zz", "zz:0"), ("x:1", "x:1"), ("^zz", r"\^zz"), ("x:99999999999", "x:99999999999:0")]
)
def test_the_input_map_names_what_is_there(key, unknown):
    g = imported(placeholder("w"))
    with pytest.raises(GraphError, match=rf"not found in graph_def: \[{unknown}\]"):
        import_graph_def(placeholder("x"), g, "a", {key: g.get_tensor_by_name("w:0")})
    assert names(g) == ["w"]


def test_the_input_map_may_name_what_nothing_reads():
    g = imported(placeholder("w"))
    import_graph_def(placeholder("x"), g, "a", {"x:0": g.get_tensor_by_name("w:0"), "^x": g.find("w")})


def test_the_input_map_has_tensors_of_the_graph():
    g = imported(placeholder("w"))
    with pytest.raises(GraphError, match="another graph"):
        import_graph_def(placeholder("x"), Graph(), "", {"x:0": g.get_tensor_by_name("w:0")})
    with pytest.raises(TypeError, match=r"input_map\['x:0'\] must be a tensor"):
        import_graph_def(placeholder("x"), g, "", {"x:0": 3.0})
    with pytest.raises(TypeError, match="must be a tensor or operation"):
        import_graph_def(placeholder("x"), g, "", {"^x": "w"})
    with pytest.raises(TypeError, match="keys of input_map must be names"):
        import_graph_def(placeholder("x"), g, "", {3: g.find("w")})


def test_a_mapped_input_has_the_right_dtype():
    g = imported(placeholder("w", "DT_INT32"))
    with pytest.raises(
        GraphError, match=r"Input 0 of node 'y' was passed int32 from w:0 incompatible with expected float."
    ):
        import_graph_def(identity("y", "x"), g, "", {"x": g.get_tensor_by_name("w:0")})


@pytest.mark.parametrize(
    ("element", "says"),
    [
        ("b:0", "Requested return tensor 'b:0' not found in graph def"),
        ("b", "Requested return node 'b' not found in graph def"),
        ("x:3", "Invalid return output 3 of node 'x', which has 1 output"),
    ],
)
def test_return_elements_are_there(element, says):
    with pytest.raises(GraphError, match=says):
        imported(placeholder("x"), return_elements=[element])


# *** errors ***

X = placeholder("x")
WRONG = {
    "cycle": (identity("a", "b") + identity("b", "a"), "2 nodes in a cycle.*'a' .Identity. -> 'b' .Identity."),
    "self": (identity("a", "a"), "1 nodes in a cycle"),
    "behind a cycle": (identity("c", "b") + identity("a", "b") + identity("b", "a"), "3 nodes in a cycle"),
    "cycle by a control edge": (identity("a", "x", "^b") + X + identity("b", "a"), "2 nodes in a cycle"),
    "cycle through a merge": (X + merge("m", "x", "i") + identity("i", "m"), "2 nodes in a cycle"),
    "cycle without a merge": (identity("i", "n") + node("n", "NextIteration", "i", T="DT_FLOAT"), "2 nodes in a cycle"),
    "loop that nothing enters": (merge("m", "n") + node("n", "NextIteration", "m", T="DT_FLOAT"), "nodes in a cycle"),
    "control cycle in a loop": (
        X + node("m", "Merge", "x", "n", "^n", T="DT_FLOAT", N=2) + node("n", "NextIteration", "m", T="DT_FLOAT"),
        "2 nodes in a cycle",
    ),
    "unknown input": (identity("a", "zz"), "Node 'a': Unknown input node 'zz' .node 0"),
    "unknown output": (identity("a", "zz:3"), "Node 'a': Unknown input node 'zz:3'"),
    "unknown control": (identity("a", "x", "^zz") + X, "Unknown input node '\\^zz'"),
    "negative output": (X + identity("a", "x:-1"), "Unknown input node 'x:-1'"),
    "huge output": (X + identity("a", "x:" + "9" * 5000), "Unknown input node 'x:9"),
    "foreign digit": (X + identity("a", "x:²"), "Unknown input node 'x:²'"),
    "twice": (X + X, "Node 'x' is not unique: nodes 0 and 1"),
    "control first": (
        X + identity("a", "^x", "x"),
        "Node 'a': Control dependencies must come after regular dependencies",
    ),
    "no such output": (
        placeholder("p") + identity("a", "p:3"),
        "Connecting to invalid output 3 of source node p which has 1 outputs.",
    ),
    "no such output of a back edge": (
        LOOP.replace('input: "n"', 'input: "n:2"'),
        "Node 'm': Connecting to invalid output 2 of source node n which has 1 outputs.",
    ),
    "space in a name": (placeholder("a b"), "Node 'a b': Node name contains invalid characters"),
    "underscore": (placeholder("_a"), "Node '_a': Node name contains invalid characters"),
    "no name": (placeholder(""), "Node '': Node name contains invalid characters"),
    "empty part": (placeholder("a>>b"), "Node name contains invalid characters"),
    "no op": ('node { name: "b" }', "Node 'b' does not specify an operation"),
    "dtype": (
        placeholder("y") + identity("x", "y", T="DT_INT32"),
        "Input 0 of node 'x' was passed float from scope/y:0 incompatible with expected int32.",
    ),
    "value for a reference": (X + node("a", "RefIdentity", "x", T="DT_FLOAT"), "float from x:0 .* expected float_ref"),
    "dtype of a back edge": (
        LOOP.replace(
            node("n", "NextIteration", "b", T="DT_FLOAT"),
            node("k", "Cast", "b", SrcT="DT_FLOAT", DstT="DT_HALF") + node("n", "NextIteration", "k", T="DT_HALF"),
        ),
        "Input 1 of node 'm' was passed half from n:0 incompatible with expected float.",
    ),
    "missing attr": (
        X + node("b", "Identity", "x"),
        "Node 'b': Identity needs the attribute 'T' .type., which is missing",
    ),
    "attr of another kind": (
        X + node("b", "Identity", "x", T=3),
        "AttrValue had value with type 'int' when 'type' expected for attr 'T' of Identity",
    ),
    "attr without value": (
        X + node("b", "Identity", "x", T="{ }"),
        "AttrValue missing value with expected type 'type'",
    ),
    "unknown dtype": (X + node("b", "Identity", "x", T="{type: 77}"), "invalid DataType enum: 77"),
    "no dtype": (X + node("b", "Identity", "x", T="DT_INVALID"), "invalid DataType enum: 0"),
    "dtype we lack": (
        X + node("b", "Identity", "x", T="{type: 99}"),
        "invalid DataType enum: 99",
    ),
    "list of another kind": (
        X + node("b", "Squeeze", "x", T="DT_FLOAT", squeeze_dims="{list { f: 1 }}"),
        r"type 'list\(float\)' when 'list\(int\)' expected",
    ),
    "a value for a list": (
        X + node("b", "Squeeze", "x", T="DT_FLOAT", squeeze_dims=1),
        r"type 'int' when 'list\(int\)'",
    ),
    "too few inputs": (node("b", "Identity", T="DT_FLOAT"), "NodeDef expected inputs 'float' do not match 0 inputs"),
    "too many inputs": (X + identity("b", "x", "x"), "NodeDef expected inputs 'float' do not match 2 inputs specified"),
    "N is 0": (node("m", "Merge", T="DT_FLOAT", N=0), "Node 'm': .*'N' of Merge must be int >= 1, got 0"),
    "N is absurd": (
        X + node("m", "Merge", "x", T="DT_FLOAT", N=10**9),
        r"expected inputs .attr 'N' says 1000000000. do not",
    ),
    "N is too small": (X + node("m", "Merge", "x", "x", T="DT_FLOAT", N=1), "'float' do not match 2 inputs specified"),
    "outputs are absurd": (X + node("u", "Unpack", "x", T="DT_FLOAT", num=10**9), "asks for 1000000000 outputs"),
    "device": (identity("a", "x", device="/foo") + X, "Node 'a': Unknown attribute 'foo' is encountered while parsing"),
    "colocation": (
        X + identity("a", "x", _class='{list { s: "loc:@q" }}'),
        "Node 'a' expects to be colocated with unknown",
    ),
    "shape below -1": (placeholder("p", shape="dim { size: -2 }"), r"Shape \[-2\] has dimensions with values below -1"),
    "shape too large": (
        placeholder("p", shape="dim { size: 4611686018427387904 } dim { size: 4 }"),
        r"too large \(more than 2\*\*63 - 1 entries\)",
    ),
    "rank too large": (
        placeholder("p", shape="dim { size: 1 } " * 255),
        "has 255 dimensions; a tensor has at most 254",
    ),
    "negative tensor": (
        const("c", "dtype: DT_FLOAT tensor_shape { dim { size: -1 } }"),
        r"Shape \[-1\] is not fully defined",
    ),
    "producer": ("versions { producer: -1 }", "GraphDef producer version -1 below min producer 0"),
    "consumer": ("versions { min_consumer: 99999 }", "GraphDef min consumer version 99999 above current version 2474"),
    "bad consumer": (f"versions {{ bad_consumers: {GRAPH_DEF_VERSION} }}", "GraphDef disallows consumer version 2474"),
    "functions": (
        'library { function { signature { name: "f" } } function { signature { name: "f" description: "x" } } }',
        "Cannot add function 'f' because a different function with the same name already exists.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case):
    text, says = WRONG[case]
    g = imported(placeholder("there"))
    before = to_text(g), dict(g._taken), dict(g.library), g.versions
    with pytest.raises(GraphError, match=says):
        import_graph_def(text, g, name="scope" if case in ("cycle", "dtype") else "")
    assert (to_text(g), dict(g._taken), dict(g.library), g.versions) == before
    assert isinstance(GraphError("x"), ValueError)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (node("b", "Foo"), "Op type not registered 'Foo' .node 'b', number 1 .*no op type named 'Foo'"),
        (node("b", "Identitty"), "near: 'Identity"),
        (node("b", "f") + 'library { function { signature { name: "g" } } }', "no op type named 'f'"),
        (node("b", "NoSuchIf", then_branch='{func { name: "f" }}'), "no op type named 'NoSuchIf'"),
    ],
)
def test_an_unknown_op_is_not_found(text, says):
    g = imported(placeholder("there"))
    with pytest.raises(NotFoundError, match=says) as e:
        import_graph_def(X + text, g)
    assert e.value.node == "b"
    assert names(g) == ["there"]


# *** attributes ***

TENSORS = [
    ("float_val: 1.5", "DT_FLOAT", "", np.float32(1.5)),
    ("float_val: 1 float_val: 2", "DT_FLOAT", "dim { size: 3 }", np.float32([1, 2, 2])),
    ("float_val: 1 float_val: 2 float_val: 3", "DT_FLOAT", "dim { size: 2 }", np.float32([1, 2])),
    ("", "DT_INT64", "dim { size: 2 }", np.int64([0, 0])),
    ("", "DT_FLOAT", "dim { size: 0 } dim { size: 2 }", np.zeros((0, 2), np.float32)),
    ("float_val: 1 float_val: 2", "DT_FLOAT", "unknown_rank: true", np.float32(1)),
    ("double_val: 0.1", "DT_DOUBLE", "", np.float64(0.1)),
    ("int_val: 300", "DT_INT8", "", np.int8(44)),
    ("int_val: -1", "DT_UINT16", "", np.uint16(65535)),
    ("int64_val: -9", "DT_INT64", "", np.int64(-9)),
    ("uint32_val: 4294967295", "DT_UINT32", "", np.uint32(2**32 - 1)),
    ("uint64_val: 18446744073709551615", "DT_UINT64", "", np.uint64(2**64 - 1)),
    ("bool_val: true", "DT_BOOL", "dim { size: 2 }", np.array([True, True])),
    ("half_val: 15360", "DT_HALF", "", np.float16(1)),
    ("half_val: 16256", "DT_BFLOAT16", "", ml_dtypes.bfloat16(1)),
    ("scomplex_val: 1 scomplex_val: 2", "DT_COMPLEX64", "dim { size: 2 }", np.complex64([1 + 2j, 1 + 2j])),
    ("dcomplex_val: 1 dcomplex_val: 2 dcomplex_val: 3", "DT_COMPLEX128", "", np.complex128(1 + 2j)),
    ('string_val: "a" string_val: "\\xff"', "DT_STRING", "dim { size: 3 }", np.array([b"a", b"\xff", b"\xff"], object)),
    ("", "DT_STRING", "dim { size: 2 }", np.array([b"", b""], object)),
    ('tensor_content: "\\002\\001abc"', "DT_STRING", "dim { size: 2 }", np.array([b"ab", b"c"], object)),
    ('tensor_content: "\\001\\000\\002\\000"', "DT_INT16", "dim { size: 2 }", np.int16([1, 2])),
    ('tensor_content: "\\000\\005"', "DT_BOOL", "dim { size: 2 }", np.array([False, True])),
]


@pytest.mark.parametrize(("value", "dtype", "shape", "want"), TENSORS)
def test_tensors_are_read(value, dtype, shape, want):
    g = imported(const("c", f"dtype: {dtype} tensor_shape {{ {shape} }} {value}", dtype))
    got = g.find("c").attrs["value"]
    want = np.asarray(want)
    assert attr_values.equal(got, want), (got, want)
    assert not got.flags.writeable
    assert got.dtype == want.dtype
    assert g.get_tensor_by_name("c:0").shape == want.shape
    again = Graph()
    import_graph_def(export_graph_def(g), again)
    assert attr_values.equal(again.find("c").attrs["value"], want)


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        ('dtype: DT_FLOAT tensor_shape { } tensor_content: "abc"', "3 bytes of content; 1 elements of float32 take 4"),
        ("dtype: DT_INT32 tensor_shape { } int_val: 3", r"Type mismatch between value \(int32\) and dtype \(float\)"),
        ("dtype: DT_INT4 tensor_shape { }", r"Type mismatch between value \(int4\) and dtype \(float\)"),
        ("dtype: 99 tensor_shape { }", "invalid DataType enum: 99"),
        ("dtype: DT_INVALID tensor_shape { }", "invalid DataType enum: 0"),
        ("dtype: DT_RESOURCE tensor_shape { }", "a constant cannot be resource"),
        ("dtype: DT_FLOAT tensor_shape { " + "dim { size: 1 } " * 70 + "}", "dimension"),
        ("dtype: DT_FLOAT tensor_shape { dim { size: 9000000000000000000 } }", "too (big|large)"),
        (
            "dtype: DT_FLOAT tensor_shape { dim { size: 1000000000000 } } float_val: 1 float_val: 2",
            "1000000000000 elements are given by 2",
        ),
        (
            'dtype: DT_STRING tensor_shape { dim { size: 2 } } tensor_content: "\\005\\005abc"',
            "take 10 bytes, and there are 3",
        ),
        ('dtype: DT_STRING tensor_shape { } tensor_content: "\\377"', "the lengths of its strings are damaged"),
        (
            'dtype: DT_STRING tensor_shape { dim { size: 99999999 } } tensor_content: "a"',
            "content for 99999999 strings",
        ),
    ],
)
def test_a_damaged_constant_fails_when_it_runs(tensor, says):
    g = hr.Graph()
    import_graph_def(const("c", tensor), g)
    bad = g.find("c").attrs["value"]
    assert isinstance(bad, attr_values.BadTensor)
    with hr.Session(graph=g) as sess, pytest.raises(hr.errors.InvalidArgumentError, match=says):
        sess.run("c:0")
    again = Graph()
    import_graph_def(export_graph_def(g), again)
    assert again.find("c").attrs["value"] == bad
    assert str(again.find("c").attrs["value"]) == str(bad)


def test_a_huge_constant_takes_no_room():
    g = imported(const("c", "dtype: DT_FLOAT tensor_shape { dim { size: 1000000000000 } } float_val: 7"))
    value = g.find("c").attrs["value"]
    assert value.shape == (10**12,)
    assert value.strides == (0,)
    assert value[10**11] == 7
    assert export_graph_def(g).ByteSize() < 100


def test_a_huge_constant_does_not_run():
    g = hr.Graph()
    import_graph_def(const("c", "dtype: DT_FLOAT tensor_shape { dim { size: 1000000000000000 } } float_val: 7"), g)
    with hr.Session(graph=g) as sess, pytest.raises(hr.errors.ResourceExhaustedError, match="4000000000000000 bytes"):
        sess.run("c:0")


def test_attributes_are_python_values():
    g = imported(
        X
        + node(
            "y",
            "Identity",
            "x",
            T="DT_FLOAT",
            _i=3,
            _f=1.5,
            _b=True,
            _s="té",
            _t="DT_FLOAT_REF",
            _li="{list { i: 1 i: 2 }}",
            _lt="{list { type: DT_INT32 }}",
            _le="{list { }}",
            _shape="{shape { dim { size: 2 } }}",
            _func='{func { name: "f" }}',
            _none="{ }",
            _q="{type: 99}",
        )
    )
    a = g.find("y").attrs
    assert (a["_i"], a["_f"], a["_b"], a["_s"], a["_t"]) == (3, 1.5, True, "té", dtypes.float32.ref)
    assert (a["_li"], a["_lt"], a["_le"]) == ((1, 2), (dtypes.int32,), ())
    assert all(isinstance(a[k], attr_values.Raw) for k in ("_shape", "_func", "_none", "_q"))
    assert "dim" in repr(a["_shape"])
    out = export_graph_def(g)
    want = text_format.Parse(X, pb.GraphDef())
    assert out.node[1].attr["_shape"].shape.dim[0].size == 2
    assert out.node[1].attr["_none"].WhichOneof("value") is None
    assert out.node[0].attr["dtype"] == want.node[0].attr["dtype"]
    again = Graph()
    import_graph_def(out, again)
    assert again.find("y").attrs == a


def test_defaults_are_filled_in():
    g = imported(X + node("e", "Enter", "x", T="DT_FLOAT", frame_name="f"))
    assert g.find("e").attrs["parallel_iterations"] == 10
    assert g.find("e").attrs["is_constant"] is False


def test_text_that_is_not_utf8_survives():
    g = imported(X + node("y", "PreventGradient", "x", T="DT_FLOAT", message='{s: "a\\377"}'))
    assert g.find("y").attrs["message"] == "a\udcff"
    assert export_graph_def(g).node[1].attr["message"].s == b"a\xff"


values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32),
    st.binary().map(wire.to_str),
    st.sampled_from(list(dtypes.ALL)),
)
shapes = st.none() | st.lists(st.none() | st.integers(0, 1000), max_size=4).map(tuple)


@given(values | st.lists(st.integers(-5, 5)).map(tuple) | st.lists(st.floats(width=32), min_size=1).map(tuple))
def test_undeclared_attributes_go_round(value):
    assert attr_values.equal(wire.decode_attr(wire.encode_attr(value), None), value)


@given(shapes)
def test_shapes_go_round(shape):
    assert wire.decode_shape(wire.encode_shape(shape)) == shape


@given(st.text(min_size=1), st.dictionaries(st.text(), values, max_size=3))
def test_functions_go_round(name, attrs):
    f = Func(name, tuple(sorted(attrs.items())))
    assert attr_values.equal(wire.decode_attr(wire.encode_attr(f), func_attr()), f)


@pytest.mark.parametrize("d", sorted(dtypes.ALL - {dtypes.resource, dtypes.variant}, key=lambda d: d.name), ids=str)
def test_arrays_go_round(d):
    rng = np.random.default_rng(0)
    for shape in [(), (1,), (3,), (2, 0), (2, 3)]:
        if d is dtypes.string:
            a = np.empty(shape, object)
            a[...] = [[b"a\xff", b"", b"c"]] * 2 if shape == (2, 3) else b"x\x00"
        else:
            size = int(np.prod(shape)) * d.size
            a = np.frombuffer(rng.bytes(size), np.uint8)
            a = (a & 1).astype(bool) if d is dtypes.bool_ else a.view(d.numpy)
            a = a.reshape(shape)
        for array in (a, np.broadcast_to(a, (5, *shape))):
            proto = wire.encode_tensor(array)
            got = wire.decode_tensor(pb.TensorProto.FromString(proto.SerializeToString()))
            if array.size > 1 and attr_values.is_splat(array) and d is not dtypes.string:
                np.testing.assert_array_equal(got, array)  # a repeated NaN may lose its payload
            else:
                assert attr_values.equal(got, array), (shape, got, array)


def test_handles_have_no_wire_form():
    with pytest.raises(GraphError, match="object objects cannot be written"):
        wire.encode_tensor(np.array([object()], object))
    with pytest.raises(GraphError, match="cannot be written to a GraphDef"):
        wire.encode_attr(object())
    with pytest.raises(GraphError, match="cannot be written to a GraphDef"):
        wire.encode_attr("\ud800")
    with pytest.raises(GraphError, match="cannot be written to a GraphDef"):
        wire.encode_attr(2**63)
    with pytest.raises(GraphError, match="cannot be written to a GraphDef"):
        wire.encode_attr((3,), list_attr("type"))
    with pytest.raises(GraphError, match="cannot be written to a GraphDef"):
        wire.encode_attr(3, type_attr())


# *** out ***


def test_versions_and_library_are_kept():
    text = X + 'versions { producer: 21 min_consumer: 12 } library { function { signature { name: "f" } } }'
    g = imported(text)
    out = export_graph_def(g)
    assert (out.versions.producer, out.versions.min_consumer) == (21, 12)
    assert out.library.function[0].signature.name == "f"
    import_graph_def(placeholder("y") + "versions { producer: 30 min_consumer: 15 }", g)
    assert g.versions == (21, 15)
    assert export_graph_def(Graph()).versions.producer == GRAPH_DEF_VERSION


def test_a_graph_goes_out():
    g = imported(LOOP)
    out = export_graph_def(g)
    assert [list(n.input) for n in out.node][4] == ["e", "n"]
    assert list(next(n for n in out.node if n.name == "b").input) == ["s:1"]
    assert next(n for n in out.node if n.name == "e").attr["parallel_iterations"].i == 10


def test_what_cannot_go_out_is_named():
    g = imported(X)
    g.find("x").attrs["odd"] = object()
    with pytest.raises(GraphError, match=r"operation 'x' .Placeholder., attribute 'odd'"):
        export_graph_def(g)


def facts(g):
    return [
        (op.name, op.type, [t.name for t in op.inputs], [c.name for c in op.control_inputs], op.device,
         [(t.dtype, t.shape) for t in op.outputs])
        for op in g.operations
    ]  # fmt: skip


def goes_round(program):
    g = imported(corpus.graph_bytes(program))
    again = imported(export_graph_def(g).SerializeToString())
    assert facts(again) == facts(g)
    for a, b in zip(g.operations, again.operations, strict=True):
        assert a.attrs.keys() == b.attrs.keys()
        for k in a.attrs:
            assert attr_values.equal(a.attrs[k], b.attrs[k]), (program, a.name, k)


@pytest.mark.matrix
def test_tensorflows_graphs_go_round():
    for program in corpus.programs(sample=200):
        goes_round(program)


@pytest.mark.nightly
def test_all_of_tensorflows_graphs_go_round():
    for program in corpus.programs():
        goes_round(program)


def test_invalid_graphs_of_the_corpus_are_refused():
    seen = 0
    for program, entry in corpus.index().items():
        if "import_error" in entry["tags"]:
            seen += 1
            with pytest.raises(GraphError):
                imported(corpus.graph_bytes(program))
    assert seen == 6


@pytest.mark.matrix
def test_ten_thousand_nodes_take_about_a_second():
    g = pb.GraphDef()
    text_format.Parse(X, g)
    for i in range(5000):
        n = g.node.add(name=f"c{i}", op="Const")
        n.attr["dtype"].type = pb.DT_FLOAT
        n.attr["value"].tensor.dtype = pb.DT_FLOAT
        n.attr["value"].tensor.float_val.append(i)
        n = g.node.add(name=f"y{i}", op="Identity", input=[f"y{i - 1}" if i else "x", f"^c{i}"])
        n.attr["T"].type = pb.DT_FLOAT
    nodes = list(reversed(g.node))
    start = time.process_time()
    imported(pb.GraphDef(node=nodes))
    assert time.process_time() - start < 5  # a machine may be slow, but the time must not be quadratic


@pytest.mark.parametrize(("producer", "shape"), [(21, None), (23, None), (24, ()), (GRAPH_DEF_VERSION, ())])
def test_old_producers_wrote_the_scalar_shape_for_unknown(producer, shape):
    graph = Graph()
    text = node("p", "Placeholder", dtype="DT_FLOAT", shape="{shape { }}") + f"versions {{ producer: {producer} }}"
    (p,) = import_graph_def(text, graph, return_elements=["p:0"])
    assert p.shape == shape
