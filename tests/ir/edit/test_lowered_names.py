"""Operations inside operations have the names that lowering gives them.

So engines agree on streams and errors.
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace import flags, thresholds
from headrace.errors import InvalidArgumentError
from headrace.ir.edit.lowered_names import name_as_lowered
from headrace.ir.function import owned
from headrace.ir.graph import FuncGraph, Graph
from headrace.ir.text import from_text
from headrace.ir.verify import verify

FUNCTIONS = """
p = Placeholder[dtype=bool, shape=[]]
x = Placeholder[dtype=int32, shape=[]]
function "draw" (x: int32[]) -> (y, r) {
  ten = Const[value=int32[]{10}, dtype=int32]
  y = FloorDiv(ten, x)
  s = Const[value=int32[0]{}, dtype=int32]
  r = RandomUniform[seed=3, seed2=4, dtype=float32, T=int32](s)
}
function "keep" (x: int32[]) -> (x, r) {
  r = Const[value=float32[]{1.0}, dtype=float32]
}
function "twice" (x: int32[]) -> (first, second:1) {
  first = StatefulPartitionedCall[f=&"draw", Tin=(int32), Tout=(int32, float32)](x)
  second = StatefulPartitionedCall[f=&"draw", Tin=(int32), Tout=(int32, float32)](x)
}
"""
TYPES = "Tin=(int32), Tout=(int32, float32)"
IF = f'If[then_branch=&"draw", else_branch=&"keep", Tcond=bool, {TYPES}](p, x)'
CASE = f'Case[branches=(&"keep", &"draw"), {TYPES}](one, x)'
CALL = f'StatefulPartitionedCall[f=&"draw", {TYPES}](x)'
DEEP = f'StatefulPartitionedCall[f=&"twice", {TYPES}](x)'
WHILE = """
function "again" (i: int32[], v: float32[]) -> (go) {
  three = Const[value=int32[]{3}, dtype=int32]
  go = Less(i, three)
}
function "add" (i: int32[], v: float32[]) -> (next, sum) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(i, one)
  d = StatefulPartitionedCall[f=&"draw", Tin=(int32), Tout=(int32, float32)](one)
  sum = AddV2(v, d:1)
}
"""


def names(graph: Graph) -> set[str]:
    """Of all operations in `graph` and inside them, parameters aside."""
    out = {op.name for op in graph.operations if op.type != "_Arg"}
    for op in graph.operations:
        for f in owned(op):
            out |= names(f)
    return out


def fed(*lines: str) -> Graph:
    return from_text(FUNCTIONS + "one = Const[value=int32[]{1}, dtype=int32]\n" + "\n".join(lines))


@pytest.mark.parametrize(
    ("line", "inside"),
    [
        (IF, {"c/then_branch/y", "c/then_branch/r", "c/else_branch/r"}),
        (CASE, {"c/branch0/r", "c/branch1/y", "c/branch1/r"}),
        (CALL, {"c/y", "c/r"}),
        (DEEP, {"c/first/y", "c/second/r", "c/first", "c/second"}),
    ],
)
def test_names(line: str, inside: set[str]) -> None:
    g = fed(f"c = {line}")
    name_as_lowered(g)
    assert inside <= names(g)
    verify(g)
    assert g.function("draw").find("y") is not None, "what others name stays as it is"
    before = names(g)
    name_as_lowered(g)
    assert names(g) == before


def test_a_loop_and_calls_in_it() -> None:
    g = from_text(
        FUNCTIONS
        + WHILE
        + """
        zero = Const[value=int32[]{0}, dtype=int32]
        none = Const[value=float32[]{0.0}, dtype=float32]
        c = While[cond=&"again", body=&"add", T=(int32, float32)](zero, none)
    """
    )
    name_as_lowered(g)
    assert {"c/cond/go", "c/body/sum", "c/body/d", "c/body/d/r"} <= names(g)


def test_graphs_that_share_names_keep_theirs_and_pass_on_what_a_function_around_them_gets() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], name="x")
        hr.cond(x > 0.0, lambda: hr.negative(x, name="n"), lambda: x, name="if")
        f = hr.Function(lambda v: hr.cond(v > 0.0, lambda: hr.negative(v, name="n"), lambda: v, name="if"), name="f")
        f(x)
    name_as_lowered(g)
    assert {"if/n", "f/if/n", "f/if"} <= names(g)
    call = g.get_operation_by_name("f")
    (inner,) = owned(call)
    assert isinstance(inner, FuncGraph)
    assert inner.find("f/if") is not None
    assert inner.find("if") is None


def test_what_is_recursive_or_would_grow_without_end_keeps_its_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Graph() as g:
        spec = hr.TensorSpec((), hr.int32)
        f = hr.Function(lambda n: hr.cond(n < 1, lambda: n, lambda: f(n - 1) + n), [spec], spec, name="total")
        f(hr.constant(3))
    before = names(g)
    name_as_lowered(g)
    assert names(g) == before
    monkeypatch.setattr(thresholds, "RENAMED_OPERATIONS", 6)
    g = fed(f"c = {CALL}", f"d = {CALL}")
    name_as_lowered(g)
    assert {"c/y", "d"} <= names(g)
    assert "d/y" not in names(g)


@pytest.mark.parametrize("line", [IF, CASE, CALL, DEEP])
@pytest.mark.parametrize("optimize", ["on", "off"])
def test_engines_draw_the_same_numbers_where_a_function_is_used_twice(line: str, optimize: str) -> None:
    g = fed(f"c = {line}", f"d = {line}")
    drawn: list[Any] = []
    for engine in ("compiled", "interpret"):
        with flags.override(OPTIMIZE=optimize), hr.Session(graph=g, engine=engine) as s:
            drawn.append([s.run(["c:1", "d:1"], {"p:0": True, "x:0": 1}) for _ in range(2)])
            # a run with a listener is interpreted, and goes on where the others stopped
            heard = s.run("c:1", {"p:0": True, "x:0": 1}, hr.RunOptions(listener=lambda event: None))
            drawn[-1].append(heard)
    assert drawn[0] == drawn[1]
    (c, d), _, heard = drawn[0]
    assert c == d, "streams of their own with the same seeds"
    assert heard not in (c, d)


@pytest.mark.parametrize(("line", "name"), [(IF, "c/then_branch/y"), (CASE, "c/branch1/y"), (CALL, "c/y")])
@pytest.mark.parametrize("optimize", ["on", "off"])
def test_engines_blame_the_same_operation(line: str, name: str, optimize: str) -> None:
    g = fed(f"c = {line}")
    for engine in ("compiled", "interpret"):
        with (
            flags.override(OPTIMIZE=optimize),
            hr.Session(graph=g, engine=engine) as s,
            pytest.raises(InvalidArgumentError) as e,
        ):
            s.run("c:0", {"p:0": True, "x:0": 0})
        assert e.value.node == name
        assert f"'{name}' (FloorDiv)" in e.value.__notes__[0]


def test_functions_in_functions_to_some_depth() -> None:
    n = thresholds.EXPANDED_DEPTH + 5
    functions = "".join(
        f'function "f{i}" (x: int32[]) -> (y) {{\n'
        f'  y = PartitionedCall[f=&"f{i + 1}", Tin=(int32), Tout=(int32)](x)\n}}\n'
        for i in range(n)
    )
    last = f'function "f{n}" (x: int32[]) -> (y) {{\n  y = Neg(x)\n}}\n'
    g = from_text(
        functions + last + "x = Placeholder[dtype=int32, shape=[]]\n"
        'c = PartitionedCall[f=&"f0", Tin=(int32), Tout=(int32)](x)'
    )
    name_as_lowered(g)
    assert max(name.count("/") for name in names(g)) == thresholds.EXPANDED_DEPTH
    with hr.Session(graph=g, engine="compiled") as s:
        assert s.run("c:0", {"x:0": 3}) == -3
