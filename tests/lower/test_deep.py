"""Function libraries that are recursive in odd places, deep, or huge when inlined.

They run, or are refused, soon.
"""

from __future__ import annotations

import functools

import pytest

import headrace as hr
from headrace import pb, thresholds


def function(name: str, body: str, result: str, stateful: bool = False) -> pb.FunctionDef:
    """A function from an int32 `x` to one int32.

    `body` is the text of its nodes.
    """
    from google.protobuf import text_format

    out = pb.FunctionDef()
    text_format.Parse(
        f'signature {{ name: "{name}" input_arg {{ name: "x" type: DT_INT32 }} '
        f'output_arg {{ name: "y" type: DT_INT32 }} }} {body} ret {{ key: "y" value: "{result}" }}',
        out,
    )
    if stateful:
        out.control_ret["done"] = "show"
        out.signature.control_output.append("done")
    return out


def call(name: str, f: str, x: str, op: str = "PartitionedCall") -> str:
    types = "".join(f'attr {{ key: "{k}" value {{ list {{ type: DT_INT32 }} }} }} ' for k in ("Tin", "Tout"))
    of = f'attr {{ key: "f" value {{ func {{ name: "{f}" }} }} }}'
    return f'node_def {{ name: "{name}" op: "{op}" input: "{x}" {types}{of} }} '


def binary(name: str, op: str, a: str, b: str) -> str:
    return (
        f'node_def {{ name: "{name}" op: "{op}" input: "{a}" input: "{b}" '
        'attr { key: "T" value { type: DT_INT32 } } } '
    )


def number(name: str, value: int) -> str:
    return (
        f'node_def {{ name: "{name}" op: "Const" attr {{ key: "dtype" value {{ type: DT_INT32 }} }} '
        f'attr {{ key: "value" value {{ tensor {{ dtype: DT_INT32 tensor_shape {{}} int_val: {value} }} }} }} }} '
    )


def branch(name: str, pred: str, yes: str, no: str, x: str) -> str:
    types = "".join(f'attr {{ key: "{k}" value {{ list {{ type: DT_INT32 }} }} }} ' for k in ("Tin", "Tout"))
    graphs = "".join(
        f'attr {{ key: "{k}" value {{ func {{ name: "{f}" }} }} }} '
        for k, f in (("then_branch", yes), ("else_branch", no))
    )
    return (
        f'node_def {{ name: "{name}" op: "If" input: "{pred}" input: "{x}" '
        f'attr {{ key: "Tcond" value {{ type: DT_BOOL }} }} {types}{graphs}}} '
    )


def run(functions: list[pb.FunctionDef], f: str, x: int, engine: str | None = None) -> int:
    graph = pb.GraphDef()
    graph.library.function.extend(functions)
    with hr.Graph() as g:
        start = hr.constant(x, name="start")
        node = graph.node.add(name="out", op="PartitionedCall", input=["start"])
        node.attr["f"].func.name = f
        for k in ("Tin", "Tout"):
            node.attr[k].list.type.append(pb.DT_INT32)
        (out,) = hr.import_graph_def(graph, input_map={"start": start}, return_elements=["out:0"]) or [None]
    with hr.Session(graph=g, engine=engine) as session:
        return int(session.run(out, timeout_ms=60_000))


def add_one(name: str, then: str | None) -> pb.FunctionDef:
    out = pb.FunctionDef()
    out.CopyFrom(_add_one(then is not None))  # to parse it takes long
    out.signature.name = name
    if then is not None:
        out.node_def[-1].attr["f"].func.name = then
    return out


@functools.cache
def _add_one(calls: bool) -> pb.FunctionDef:
    name, then = "f", "g" if calls else None
    body = number("one", 1) + binary("sum", "AddV2", "x", "one:output:0")
    return function(
        name, body + call("rest", then, "sum:z:0") if then else body, "rest:output:0" if then else "sum:z:0"
    )


def test_a_branch_that_is_the_function_around_it() -> None:
    """The conditional of `down` names `again`, which calls `down`.

    down(x) = if x < 1: x else: again(x); again(x) = down(x - 1).
    """
    down = function(
        "down",
        number("one", 1) + binary("low", "Less", "x", "one:output:0") + branch("if", "low:z:0", "same", "again", "x"),
        "if:output:0",
    )
    again = function(
        "again",
        number("one", 1) + binary("less", "Sub", "x", "one:output:0") + call("call", "down", "less:z:0"),
        "call:output:0",
    )
    same = function("same", "", "x")
    assert run([down, again, same], "down", 50) == 0


def test_a_branch_that_is_itself() -> None:
    twice = function(
        "f",
        number("big", 100)
        + binary("low", "Less", "x", "big:output:0")
        + binary("double", "AddV2", "x", "x")
        + branch("if", "low:z:0", "f", "same", "double:z:0"),
        "if:output:0",
    )
    same = function("same", "", "x")
    assert run([twice, same], "f", 3) == 2 * 192  # the one that is not below 100 is doubled once more


@pytest.mark.matrix
@pytest.mark.parametrize(
    "n", [10, thresholds.EXPANDED_DEPTH + 5, 1_000, pytest.param(2_000, marks=pytest.mark.nightly)]
)
def test_a_chain_of_calls(n: int) -> None:
    functions = [add_one(f"f{i}", f"f{i + 1}" if i + 1 < n else None) for i in range(n)]
    assert run(functions, "f0", 5) == 5 + n


@pytest.mark.matrix
@pytest.mark.parametrize(("n", "engine"), [(16, "interpret"), (12, "compiled")])
def test_functions_that_would_be_huge_inlined(n: int, engine: str) -> None:
    """Each function calls the next one twice, which makes 2**16 additions.

    Beyond some number of additions the functions are shared, not copied.
    """
    functions = [
        function(f"f{i}", call("a", f"f{i + 1}", "x") + call("b", f"f{i + 1}", "a:output:0"), "b:output:0")
        for i in range(n)
    ]
    assert run([*functions, add_one(f"f{n}", None)], "f0", 0, engine) == 2**n


def test_effects_of_functions_that_call_functions_twice() -> None:
    """The effects of a loop's body are found without walking every call of every call.

    There are 2**40 calls.
    """
    n = 40
    functions = [
        function(f"f{i}", call("a", f"f{i + 1}", "x") + call("b", f"f{i + 1}", "x"), "a:output:0") for i in range(n)
    ]
    show = (
        'node_def { name: "show" op: "Print" input: "sum:z:0" input: "sum:z:0" '
        'attr { key: "T" value { type: DT_INT32 } } attr { key: "U" value { list { type: DT_INT32 } } } } '
    )
    last = add_one(f"f{n}", None)
    step = call("call", "f0", "x") + number("one", 1) + binary("sum", "AddV2", "x", "one:output:0")
    body = function("body", step + show, "sum:z:0", stateful=True)
    cond = function("cond", number("n", 0) + binary("low", "Less", "x", "n:output:0"), "low:z:0")
    cond.signature.output_arg[0].type = pb.DT_BOOL
    graph = pb.GraphDef()
    graph.library.function.extend([*functions, last, body, cond])
    with hr.Graph() as g:
        start = hr.constant(5, name="start")
        node = graph.node.add(name="loop", op="While", input=["start"])
        node.attr["cond"].func.name, node.attr["body"].func.name = "cond", "body"
        node.attr["T"].list.type.append(pb.DT_INT32)
        (out,) = hr.import_graph_def(graph, input_map={"start": start}, return_elements=["loop:0"]) or [None]
    with hr.Session(graph=g) as session:
        assert session.run(out, timeout_ms=60_000) == 5
