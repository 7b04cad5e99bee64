"""`ir.verify`: faults of a graph are found and shown."""

from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import GraphError, InvalidArgumentError, NotFoundError
from headrace.ir.graph import Graph
from headrace.ir.serial.functiondef import EncodedFunction
from headrace.ir.serial.graphdef import import_graph_def
from headrace.ir.text import from_text
from headrace.ir.verify import verify
from tests.ir import corpus, functional

TEXT = """
    x = Placeholder[dtype=float32, shape=[2]]
    p = Placeholder[dtype=bool]
    y = Identity(x) ^p
    z = AddV2(x, y)
    k = Const[dtype=float32, value=float32[]{1}]
"""


def broken(change):
    g = from_text(TEXT)
    other = from_text("other = Placeholder[dtype=float32]")
    change(g, {op.name: op for op in [*g.operations, *other.operations]})
    return g


def set_attr(ops, name, attr, value):
    ops[name].attrs[attr] = value


CASES = {
    "attribute missing": (lambda g, o: o["y"].attrs.clear(), "'y' has no attribute 'T', which Identity declares"),
    "default missing": (
        lambda g, o: o["x"].attrs.pop("shape"),
        "'x' has no attribute 'shape', .* declares .though it has a default, it must be written out",
    ),
    "attribute wrong": (lambda g, o: set_attr(o, "y", "T", 3.5), "attribute 'T' of Identity must be type, got 3.5"),
    "input dtype": (lambda g, o: o["z"].inputs.__setitem__(0, o["p"].outputs[0]), "Input 0 of AddV2 was passed bool"),
    "too few inputs": (lambda g, o: o["z"].inputs.pop(), "AddV2 takes 2 inputs under its attributes, got 1"),
    "output dtype": (
        lambda g, o: setattr(o["y"].outputs[0], "dtype", dtypes.int32),
        r"outputs of 'y' are \(int32\), but its attributes say that Identity makes \(float32\)",
    ),
    "input of another graph": (
        lambda g, o: o["y"].inputs.__setitem__(0, o["other"].outputs[0]),
        "input 0 of 'y' is other:0, which is not in its graph",
    ),
    "control input of another graph": (
        lambda g, o: o["y"].control_inputs.append(o["other"]),
        r"the control input '\^other' of 'y' is not in its graph",
    ),
    "tensor that is no output": (lambda g, o: setattr(o["x"], "outputs", ()), "'x' are .., but"),
    "forgotten tensor": (
        lambda g, o: setattr(
            o["x"], "outputs", type(o["x"])(g, "q", o["x"].opdef, [], [], o["x"].attrs, "", None).outputs
        ),
        "input 0 of 'y' is x:0, which 'x' does not have as an output",
    ),
    "same name": (lambda g, o: setattr(o["y"], "name", "x"), "number 2 by its own account|called 'x'"),
    "removed": (lambda g, o: g._by_name.pop("k"), "'k' is number 4 by its own account but stands at 4"),
    "moved": (lambda g, o: setattr(o["k"], "id", 7), "'k' is number 7 by its own account but stands at 4"),
    "device": (lambda g, o: setattr(o["y"], "device", "/gnu:0"), "Unknown attribute 'gnu'"),
    "constant": (
        lambda g, o: set_attr(o, "k", "value", np.zeros(())),
        "a Const of float32 holds an array of float64",
    ),
    "record": (
        lambda g, o: setattr(o["y"], "type", "Foo"),
        "the record of 'y' is not the one registered for its type 'Foo'",
    ),
}


def test_a_legal_graph_is_legal():
    verify(from_text(TEXT))
    verify(from_text(TEXT).operations)
    verify(from_text(TEXT).operations[1:])
    verify(Graph())


@pytest.mark.parametrize("case", CASES)
def test_what_is_illegal_is_found(case):
    change, says = CASES[case]
    with pytest.raises(GraphError, match=says):
        verify(broken(change))


def test_the_place_is_shown():
    g = from_text("\n".join(f"x{i} = Placeholder[dtype=float32]" for i in range(20)))
    g.operations[10].device = "/gnu:0"
    with pytest.raises(GraphError) as e:
        verify(g)
    (note,) = e.value.__notes__
    lines = note.split("\n")
    assert lines[0] == "in the graph:"
    assert len(lines) == 12
    assert lines[1] == "    x5 = Placeholder[dtype=float32] : float32<unknown>"
    assert lines[6] == '--> x10 = Placeholder[dtype=float32] @"/gnu:0" : float32<unknown>'


def test_what_cannot_be_shown_does_not_stand_in_the_way():
    g = from_text("x = NoOp\ny = NoOp")
    g.operations[1].attrs["odd"] = object()
    with pytest.raises(GraphError, match="no attribute value") as e:
        verify(g)
    assert "no text form" in e.value.__notes__[0]


# *** graphs that operations own ***


def owned(change):
    """A legal graph with graphs that operations own, after `change(graph, its while, condition, body)`."""
    g = functional.program()
    loop = g.find("while")
    change(g, loop, loop.attrs["cond"], loop.attrs["body"])
    return g


def set_index(t, index):
    t.op.attrs["index"] = index


WRONG_GRAPHS = {
    "too few parameters": (
        lambda g, w, c, f: f.params.pop(),
        "'while_body', the attribute 'body' of 'while' .While., takes .int32, float32, int32, float32., but is passed",
    ),
    "result dtype": (
        lambda g, w, c, f: f.results.__setitem__(1, f.results[0]),
        r"'body' of 'while' .While., gives \(int32, int32, int32, .*but must give \(int32, float32, int32,",
    ),
    "two conditions": (lambda g, w, c, f: c.results.append(c.results[0]), "gives .bool, bool., but a condition gives"),
    "index": (
        lambda g, w, c, f: set_index(f.params[0], 3),
        "parameter 0 of 'while_body', 'v0', says that it is number 3",
    ),
    "foreign parameter": (
        lambda g, w, c, f: f.params.__setitem__(2, c.params[2]),
        "parameter 2 of 'while_body' is n:0, which is no _Arg of it",
    ),
    "no parameter": (
        lambda g, w, c, f: f.add_op("_Arg", "more", attrs={"T": dtypes.int32, "index": 0}),
        "'more' is an _Arg, but no parameter of 'while_body'",
    ),
    "foreign result": (
        lambda g, w, c, f: c.results.__setitem__(0, f.find("Less").outputs[0]),
        "result 0 of 'while_cond' is of 'Less', which is not in it",
    ),
    "foreign control result": (
        lambda g, w, c, f: f.control_results.append(g.find("x")),
        "control result 0 of 'while_body' is of 'x', which is not in it",
    ),
    "two owners": (
        lambda g, w, c, f: f.find("cond_1").attrs.__setitem__("then_branch", f.find("cond_1").attrs["else_branch"]),
        "attribute 'else_branch' of 'cond_1' .If. is 'cond_false', which attribute 'then_branch' of 'cond_1' .If. is",
    ),
    "deep inside": (
        lambda g, w, c, f: f.find("case").attrs["branches"][1].find("Mul").attrs.clear(),
        "'Mul' has no attribute 'T'",
    ),
    "in a function": (
        lambda g, w, c, f: setattr(g.functions["square"].find("Mul"), "device", "/gnu:0"),
        "Unknown attribute 'gnu'",
    ),
}


@pytest.mark.parametrize("case", WRONG_GRAPHS)
def test_what_is_illegal_in_owned_graphs_is_found(case):
    change, says = WRONG_GRAPHS[case]
    does_not_fit = case in ("too few parameters", "result dtype", "two conditions")
    with pytest.raises(InvalidArgumentError if does_not_fit else GraphError, match=says):
        verify(owned(change))


def test_the_place_in_an_owned_graph_is_shown():
    change, _ = WRONG_GRAPHS["deep inside"]
    with pytest.raises(GraphError) as e:
        verify(owned(change))
    shown, *around = e.value.__notes__
    assert "--> Mul = Mul" in shown
    assert around == [
        "in 'case_1', attribute 'branches.1' of 'case' (Case)",
        "in 'while_body', attribute 'body' of 'while' (While)",
    ]


def test_a_function_that_is_called_is_there():
    g = functional.program()
    verify(g)
    del g.functions["square"]
    with pytest.raises(NotFoundError, match=r"attribute 'f' of 'square' .PartitionedCall. calls the function 'square'"):
        verify(g)
    g.library["square"] = EncodedFunction(b"\xff")  # whether it can be read is another question
    verify(g)


def test_cycles_and_frames():
    g = broken(lambda g, o: o["y"].inputs.__setitem__(0, o["z"].outputs[0]))
    with pytest.raises(GraphError, match=r"2 nodes in a cycle that is no loop.*'y'.*'z'|'z'.*'y'"):
        verify(g)
    g = from_text("""
        x = Placeholder[dtype=float32]
        e = Enter[frame_name="f"](x)
        y = AddV2(e, x)
    """)
    with pytest.raises(InvalidArgumentError, match=r"{{node y}} has inputs from different frames"):
        verify(g)


def test_a_back_edge_by_a_control_input_is_a_cycle():
    g = from_text("""
        x = Placeholder[dtype=float32]
        e = Enter[frame_name="f"](x)
        m = Merge(e, n) ^n
        n = NextIteration(m)
    """)
    with pytest.raises(GraphError, match="2 nodes in a cycle"):
        verify(g)


@pytest.mark.matrix
def test_tensorflows_graphs_are_legal():
    for program in corpus.programs(sample=100, seed=2):
        if corpus.index()[program]["module"] == "probes":
            continue  # some of them have frames that do not fit, on purpose
        g = Graph()
        import_graph_def(corpus.graph_bytes(program), g)
        verify(g)


@pytest.mark.parametrize("value", [len, object(), np.array([len], object), (1, object()), Graph()])
def test_an_attribute_that_is_an_object_of_this_process(value: Any) -> None:
    g = Graph()
    g.add_op("NoOp", "n", attrs={"_held": value})
    with pytest.raises(GraphError, match=r"operation 'n' \(NoOp\): attribute '_held' is .* no attribute value"):
        verify(g)
