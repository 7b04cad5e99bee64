"""`ir.serial.functiondef`, and functions in `ir.serial.graphdef`: TensorFlow's function library, in and out."""

import pytest

import headrace as hr
from headrace import dtypes, pb
from headrace.errors import GraphError, NotFoundError, ShapeError
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph, Graph
from headrace.ir.opdef import op_registry
from headrace.ir.serial import nodedefs
from headrace.ir.serial.functiondef import decode, encode
from headrace.ir.serial.graphdef import export_graph_def, import_graph_def
from headrace.ir.text import to_text
from headrace.ir.verify import verify
from tests.ir import corpus, functional
from tests.ir.serial.test_graphdef import const, identity, node, placeholder


def function(name, args, results, *nodes, ret, controls=(), more=""):
    """The text of a function. `args`, `results`: "x" or "x: DT_INT32"; `ret`: result → tensor."""

    def arg(text):
        n, _, t = text.partition(": ")
        return f'{{ name: "{n}" type: {t or "DT_FLOAT"} }}'

    text = f'function {{ signature {{ name: "{name}" '
    text += "".join(f"input_arg {arg(a)} " for a in args) + "".join(f"output_arg {arg(r)} " for r in results)
    text += "".join(f'control_output: "{c}" ' for c, _ in controls) + "} "
    text += "".join("node_def" + n.removeprefix("node") for n in nodes)
    text += "".join(f'ret {{ key: "{k}" value: "{v}" }} ' for k, v in ret.items())
    text += "".join(f'control_ret {{ key: "{k}" value: "{v}" }} ' for k, v in controls)
    return text + more + " }\n"


def library(*functions):
    return "library { " + "".join(functions) + "}\n"


def imported(text, **kw):
    g = Graph()
    import_graph_def(text, g, **kw)
    return g


def of(text, name="f"):
    """The function `name` of a library."""
    return imported(library(text)).function(name)


def add(name, x, y, *controls, **kw):
    return node(name, "AddV2", x, y, *controls, **{"T": "DT_FLOAT", **kw})


DOUBLE = function("double", ["x"], ["y"], add("sum", "x", "x"), ret={"y": "sum:z:0"})

# *** in ***


def test_a_function_comes_in():
    f = of(
        function(
            "f",
            ["x", "n: DT_INT32"],
            ["y", "same: DT_INT32", "i: DT_INT32"],
            identity("late", "a/m:output:0", "^p", device="/cpu:0"),
            node("a/m", "Merge", "x", "x:0", T="DT_FLOAT", N=2),
            node("p", "Print", "x", "n", "^n", T="DT_FLOAT", U="{list { type: DT_INT32 }}"),
            ret={"y": "late:output:0", "same": "n", "i": "a/m:value_index:0"},
            controls=[("second", "p"), ("first", "late")],
            more="""arg_attr { key: 0 value { attr { key: "_output_shapes"
                 value { list { shape { dim { size: 2 } dim { size: -1 } } } } } } }
                 attr { key: "_noinline" value { b: true } }""",
        )
    )
    assert isinstance(f, FuncGraph)
    assert f.name == "f"
    assert [(t.name, t.dtype, t.shape) for t in f.params] == [
        ("x:0", dtypes.float32, (2, None)),
        ("n:0", dtypes.int32, None),
    ]
    assert [t.name for t in f.results] == ["late:0", "n:0", "a/m:1"]
    assert [op.name for op in f.control_results] == ["p", "late"]
    assert f.is_ordered
    assert f.attrs == {"_noinline": True}
    assert f.find("late").device == "/cpu:0"
    assert [t.name for t in f.find("a/m").inputs] == ["x:0", "x:0"]
    assert [c.name for c in f.find("p").control_inputs] == ["n"]
    assert f.results[0].shape == (2, None)
    verify(f)


def test_a_function_is_read_when_it_is_called_for_the_first_time():
    broken = function("broken", [], ["y"], node("n", "NoSuchOp"), ret={"y": "n:y:0"})
    g = imported(library(DOUBLE, broken))
    assert g.functions == {}
    assert g.function("double") is g.function("double")
    with pytest.raises(NotFoundError, match=r"'NoSuchOp' .node 'n', number 0 of the function 'broken'"):
        g.function("broken")
    with pytest.raises(NotFoundError, match=r"Function 'doubl' is not in the library .*near: 'double'"):
        g.function("doubl")


def test_a_result_in_a_list_is_found_by_its_number():
    f = of(
        function(
            "f",
            ["x"],
            ["a", "b"],
            node("axis", "Const", dtype="DT_INT32", value="{tensor { dtype: DT_INT32 tensor_shape { } }}"),
            node("s", "Split", "axis:output:0", "x", T="DT_FLOAT", num_split=3),
            node("u", "Unique", "x", T="DT_FLOAT", out_idx="DT_INT32") if "Unique" in op_registry else "",
            identity("b", "s:output:2"),
            ret={"a": "s:output:1", "b": "b:output"},
        )
    )
    assert [t.name for t in f.results] == ["s:1", "b:0"]
    assert f.find("b").inputs[0].name == "s:2"


def test_a_loop_in_a_function():
    f = of(
        function(
            "f",
            ["x", "p: DT_BOOL"],
            ["y"],
            node("e", "Enter", "x", T="DT_FLOAT", frame_name="l"),
            node("pe", "Enter", "p", T="DT_BOOL", frame_name="l", is_constant=True),
            node("m", "Merge", "e:output:0", "n:output:0", T="DT_FLOAT", N=2),
            node("c", "LoopCond", "pe:output:0"),
            node("s", "Switch", "m:output:0", "c:output:0", T="DT_FLOAT"),
            node("n", "NextIteration", "s:output_true:0", T="DT_FLOAT"),
            node("out", "Exit", "s:output_false:0", T="DT_FLOAT"),
            ret={"y": "out:output:0"},
        )
    )
    assert f.find("m").inputs[1].name == "n:0"
    assert f.find("out").inputs[0].name == "s:0"
    verify(f)


def test_resources_know_what_they_hold():
    text = function("f", ["v: DT_RESOURCE"], [], node("r", "ReadVariableOp", "v", dtype="DT_FLOAT"), ret={})
    says = "type: DT_RESOURCE handle_data { dtype: DT_FLOAT shape { dim { size: 3 } } }"
    f = of(text.replace("type: DT_RESOURCE", says))
    assert f.get_tensor_by_name("r:0").shape == (3,)
    assert encode(f, "f").signature.input_arg[0].handle_data[0].shape.dim[0].size == 3


WRONG = {
    "unknown input": (
        [identity("a", "zz:output:0")],
        {},
        "Node 'a': Unknown input node 'zz:output:0' .node 0 of the fun",
    ),
    "no such output": (
        [identity("a", "x"), identity("b", "a:y:0")],
        {},
        "Node 'b': Connecting to invalid output 'y:0'",
    ),
    "output too far": ([identity("a", "x"), identity("b", "a:output:1")], {}, "invalid output 'output:1' of source"),
    "output no number": (
        [identity("a", "x"), identity("b", "a:output:-1")],
        {},
        "invalid output 'output:-1' of source",
    ),
    "number missing": (
        [node("e", "IdentityN", "x", "x", T="{list { type: DT_FLOAT type: DT_FLOAT }}"), identity("b", "e:output")],
        {},
        "invalid output 'output' of source node e",
    ),
    "output not named": ([identity("a", "x"), identity("b", "a")], {}, "invalid output '' of source node a"),
    "argument too far": ([identity("a", "x:1")], {}, "Unknown input node 'x:1'"),
    "cycle": (
        [identity("a", "b:output:0"), identity("b", "a:output:0")],
        {},
        "2 nodes in a cycle or behind one: 'a' .Identity. -> 'b'",
    ),
    "not unique": (
        [identity("a", "x"), identity("a", "x")],
        {},
        "'a' is not unique: nodes 0 and 1 of the function 'f'",
    ),
    "as an argument": ([identity("x", "x")], {}, "Node 'x' is called as an argument of the function is"),
    "dtype": ([node("a", "Identity", "x", T="DT_INT32")], {}, "Input 0 of node 'a' was passed float from x:0"),
    "attribute": ([node("a", "Identity", "x", T=3)], {}, "Node 'a': AttrValue had value with type 'int'"),
    "outputs": ([node("s", "Split", "x", "x", T="DT_FLOAT", num_split=2**40)], {}, "outputs, which cannot be meant"),
    "result": ([], {}, "the result 'y' of the function 'f' has no value"),
    "result not there": ([], {"y": "q:z:0"}, "the result 'y' of the function 'f' is said to be 'q:z:0', which is not"),
    "result too far": ([identity("a", "x")], {"y": "a:output:1"}, "said to be 'a:output:1', which is not in it"),
    "result dtype": (
        [node("s", "Shape", "x", T="DT_FLOAT")],
        {"y": "s:output:0"},
        "'y' of the function 'f' is declared as float32, but 's:output:0' is int32",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said(case):
    nodes, ret, says = WRONG[case]
    g = imported(library(function("f", ["x"], ["y"], *nodes, ret=ret or {"y": "x"} if case != "result" else {})))
    with pytest.raises(GraphError, match=says) as e:
        g.function("f")
    assert "in the function 'f'" in e.value.__notes__
    assert g.functions == {}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (function("f", ["x", "x"], [], ret={}), "argument 1 .'x'. of the function 'f': another argument has that name"),
        (function("f", ["x: DT_FLOAT_REF"], [], ret={}), "argument 0 .'x'. of .*cannot be a reference"),
        (function("f", ["x: 77"], [], ret={}), "argument 0 .'x'. .*invalid DataType enum: 77"),
        (function("f", [""], [], ret={}), "argument 0 .''. .*not a valid operation name"),
        (
            function("f", [], [], ret={}, controls=[("c", "n")]),
            "control result 'c' of the function 'f', 'n', is not in it",
        ),
        (
            function("f", ["x"], [], ret={}).replace("signature {", 'signature { attr { name: "T" type: "type" }'),
            "the function 'f' is generic .in its attribute 'T'., which is not supported",
        ),
        (
            function(
                "f",
                ["x"],
                [],
                ret={},
                more='arg_attr { key: 0 value { attr { key: "_output_shapes" value { list { shape '
                "{ dim { size: -9 } } } } } } }",
            ),
            r"argument 0 .'x'. .*Shape \[-9\] has dimensions",
        ),
    ],
)
def test_what_is_wrong_with_the_ends_is_said(text, says):
    with pytest.raises(GraphError, match=says):
        of(text)


def test_shapes_that_cannot_go_together():
    text = function("f", [], [], const("a", "dtype: DT_FLOAT tensor_shape { dim { size: 2 } }"),
                    const("b", "dtype: DT_FLOAT tensor_shape { dim { size: 3 } }"),
                    add("s", "a:output:0", "b:output:0"), ret={})  # fmt: skip
    with pytest.raises(ShapeError, match="'s'") as e:
        of(text)
    assert "in the function 'f'" in e.value.__notes__


def test_bytes_that_are_no_function():
    with pytest.raises(GraphError, match="not a FunctionDef"):
        decode(b"\xff\xff", Graph())


# *** nodes that call functions ***


def test_operations_name_functions():
    text = placeholder("x") + node(
        "c", "PartitionedCall", "x", f='{func { name: "double" attr { key: "a" value { i: 3 } } }}',
        Tin="{list { type: DT_FLOAT }}", Tout="{list { type: DT_FLOAT }}",
    ) + library(DOUBLE)  # fmt: skip
    g = imported(text)
    assert g.find("c").attrs["f"] == Func("double", (("a", 3),))
    verify(g)


@pytest.mark.parametrize(("more", "type"), [("", "PartitionedCall"), ("is_stateful: true", "StatefulPartitionedCall")])
def test_a_node_called_as_a_function_is_a_call(more, type):
    text = placeholder("x") + node("c", "double", "x", _mark="m", k=3, device="/cpu:0") + identity("y", "c")
    g = imported(text + library(DOUBLE.replace("signature {", "signature {" + more)))
    c = g.find("c")
    assert (c.type, c.device) == (type, "/cpu:0")
    assert c.attrs["f"] == Func("double", (("k", 3),))
    assert (c.attrs["Tin"], c.attrs["Tout"], c.attrs["_mark"]) == ((dtypes.float32,), (dtypes.float32,), "m")
    again = imported(export_graph_def(g))
    assert export_graph_def(again) == export_graph_def(g)
    assert again.find("c").attrs == c.attrs
    # the function may also have come earlier
    import_graph_def(placeholder("x") + node("d", "double", "x"), g, name="s")
    assert g.find("s/d").type == type


def test_a_function_calls_a_function_by_the_names_of_its_results():
    two = function("two", ["x"], ["a", "b"], identity("i", "x"), ret={"a": "x", "b": "i:output:0"})
    f = function("f", ["x"], ["y"], node("c", "two", "x"), ret={"y": "c:b:0"})
    g = imported(library(two, f))
    assert g.function("f").results[0].name == "c:1"
    assert g.function("f").find("c").attrs["f"] == Func("two")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (node("c", "double"), "Node 'c': the function 'double' takes 1 arguments, and 0 inputs are specified"),
        (node("c", "double", "n"), "Input 0 of node 'c' was passed int32 from n:0 incompatible with expected float"),
        (node("c", "generic", "n"), "the type of the argument 'x' depends on the attribute 'T'"),
        (node("c", "two"), "no op type named|takes"),
    ],
)
def test_a_call_that_does_not_fit(text, says):
    generic = DOUBLE.replace('"double"', '"generic"').replace('"x" type: DT_FLOAT', '"x" type_attr: "T"')
    with pytest.raises((GraphError, NotFoundError), match=says):
        imported(placeholder("n", "DT_INT32") + text + library(DOUBLE, generic))


def test_many_calls_of_many_results_are_refused(monkeypatch):
    monkeypatch.setattr(nodedefs, "_FREE_OUTPUTS", 1000)
    many = function("f", [], [f"r{i}" for i in range(200)], ret={})
    calls = "".join(node(f"c{i}", "f") for i in range(200))
    with pytest.raises(GraphError, match="the function 'f' asks for 200 outputs, which cannot be meant"):
        imported(calls + library(many))


GRADIENT = 'gradient { function_name: "double" gradient_func: "g" } '


def test_gradients_of_functions_are_kept():
    g = imported(library(DOUBLE, GRADIENT))
    assert g.gradient_functions == {"double": "g"}
    assert 'gradient "double" = "g"\n' in to_text(g)
    assert export_graph_def(g).library.gradient[0].gradient_func == "g"
    import_graph_def(library(GRADIENT), g)
    with pytest.raises(GraphError, match="Cannot assign gradient function 'h' to 'double'"):
        import_graph_def(library(GRADIENT.replace('"g"', '"h"')), g)
    with pytest.raises(GraphError, match="'z' not found"):
        import_graph_def(library(GRADIENT.replace('"double"', '"new"')), g, return_elements=["z"])
    assert g.gradient_functions == {"double": "g"}


def test_an_own_function_is_not_replaced():
    g = functional.program()
    with pytest.raises(GraphError, match="Cannot add function 'square'"):
        import_graph_def(library(function("square", [], [], ret={})), g)


# *** out ***


@pytest.mark.parametrize("make", [functional.program, functional.counting])
def test_graphs_that_operations_own_go_out(make):
    g = make()
    out = export_graph_def(g)
    back = imported(out)
    assert [op.name for op in back.operations] == [op.name for op in g.operations]
    assert [t.shape for op in back.operations for t in op.outputs if op.type in ("If", "While")] == [
        t.shape for op in g.operations for t in op.outputs if op.type in ("If", "While")
    ]
    verify(back)
    for name in back.library:
        verify(back.function(name))
    assert export_graph_def(back) == out
    assert to_text(imported(export_graph_def(back))) == to_text(back)


def test_names_of_functions_are_unique():
    g = functional.program()
    names = [f.signature.name for f in export_graph_def(g).library.function]
    assert len(set(names)) == len(names)
    assert {"square", "fact", "cond_true", "cond_true_1", "cond_true_2", "case_2", "while_body"} <= set(names)
    assert export_graph_def(g) == export_graph_def(g)


def test_what_tensorflow_asks_of_a_function():
    g = Graph()
    b = Builder(g)
    f = FuncGraph("a b", g)
    x = f.add_param(dtypes.float32, (2, None), "A/x")
    y = f.add_param(dtypes.float32, None, "a/X")
    inner = Builder(f, scope="s/").after(x.op)
    z = inner.AddV2(x, y, _class=("loc:@outside", "loc:@s/AddV2"))
    f.results = [z, z, y]
    f.control_results = [inner.NoOp()]
    f.attrs = {"_noinline": True}
    p = b.Placeholder(dtype=dtypes.float32)
    b.make("PartitionedCall", [[p, p]], {"Tout": (dtypes.float32,) * 3, "f": f})
    out = export_graph_def(g).library.function[0]
    assert out.signature.name == "a_b"
    assert [a.name for a in out.signature.input_arg] == ["a_x", "a_x_1"]
    assert [a.name for a in out.signature.output_arg] == ["s_addv2", "s_addv2_1", "a_x_1"]
    assert dict(out.ret) == {"s_addv2": "s/AddV2:z:0", "s_addv2_1": "s/AddV2:z:0", "a_x_1": "a_x_1"}
    assert dict(out.control_ret) == {"s/NoOp": "s/NoOp"}
    there, add = out.node_def[:2]
    assert (there.op, list(there.input)) == ("Identity", ["a_x"])  # operations that wait for an argument wait for this
    assert list(add.input) == ["a_x", "a_x_1", f"^{there.name}"]
    assert list(add.attr["_class"].list.s) == [b"loc:@outside", b"loc:@s/AddV2"]
    assert out.arg_attr[0].attr["_output_shapes"].list.shape[0].dim[1].size == -1
    assert out.attr["_noinline"].b
    assert not out.signature.is_stateful


def test_a_function_that_changes_something_is_stateful():
    functions = {f.signature.name: f.signature for f in export_graph_def(functional.counting()).library.function}
    assert functions["cond_true"].is_stateful
    assert list(functions["cond_true"].control_output) == ["add"]
    assert not functions["cond_false"].is_stateful


def test_an_owned_graph_cannot_go_out_alone():
    f = functional.program().find("while").attrs["body"]
    with pytest.raises(GraphError, match=r"FuncGraph .* is owned by an operation; export the whole graph"):
        encode(f, "f")


def test_functions_with_one_name_in_two_places():
    g = functional.program()
    body = g.find("while").attrs["body"]
    body.functions["square"] = FuncGraph("square", body, captures_from_outer=False)
    with pytest.raises(GraphError, match="two functions are called 'square'"):
        export_graph_def(g)


# *** TensorFlow's own ***

WITH_FUNCTIONS = [i for i, p in sorted(corpus.index().items()) if "functions" in p["tags"]]


@pytest.mark.parametrize("program", WITH_FUNCTIONS[::5])
def test_programs_with_functions_go_round(program):
    g = hr.Graph()
    try:
        import_graph_def(corpus.graph_bytes(program), g)
    except NotFoundError as e:
        pytest.skip(str(e))
    out = export_graph_def(g)
    back = hr.Graph()
    import_graph_def(out, back)
    assert to_text(back) == to_text(g)
    for name, encoded in g.library.items():
        ops = {n.op for n in pb.FunctionDef.FromString(encoded.data).node_def}
        if not ops - set(op_registry) - set(g.library):
            f = g.function(name)
            verify(f)
            again = decode(encode(f, name).SerializeToString(), g)
            assert to_text(again) == to_text(f)
