"""Explicit effects of lowered steps: edges that hold already, and no wait that is new."""

from __future__ import annotations

import pytest

from headrace.ir.function import nested_operations
from headrace.ir.graph import Graph
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify
from headrace.optimize.base import Options, PassContext, run
from headrace.optimize.effects import Effects
from headrace.optimize.pipeline import optimize
from tests.optimize.running import LOWERED

STEP = """
x = _Arg[T=float32, index=0, shape=[2]]
p = _Arg[T=bool, index=1, shape=[]]
n = _Arg[T=int32, index=2, shape=[]]
v = VarHandleOp[dtype=float32, shape=[2], shared_name="v"]
zero = Const[value=int32[]{0}, dtype=int32]
"""


def explicit(text: str) -> tuple[Graph, list[str]]:
    """Graph of a lowered step after the pass, and names of operations that must run."""
    graph = from_text(STEP + text)
    context = PassContext(LOWERED)
    run((Effects(),), graph, context, verify)
    once = to_text(graph)
    run((Effects(),), graph, context, verify)
    assert to_text(graph) == once, "the second run changed the graph"
    return graph, [op.name for op in context.preserved]


def waits(graph: Graph, name: str) -> list[str]:
    (op,) = [op for op in nested_operations(graph.operations) if op.name == name]
    return [c.name for c in op.control_inputs]


def test_effects_are_in_the_order_of_a_path() -> None:
    graph, must = explicit(
        "a = AssignVariableOp(v, x)\nk = Identity(x) ^a\ns = Shape(k)\nt = AsString(n)\nb = PrintV2(t) ^s\n"
        "d = Identity(s) ^b\nr = _Retval[index=0](d)"
    )
    assert must == ["a", "b"]
    assert waits(graph, "b") == ["s", "a"]


def test_a_draw_must_run() -> None:
    _, must = explicit("s = Shape(x)\nd = RandomUniform[dtype=float32](s)\nt = Shape(d)\nr = _Retval[index=0](t)")
    assert must == ["d"]


CONDITIONAL = """
c = If[Tout=(float32, float32), then_branch=@"t", else_branch=@"e"](p, x, x)
s = Shape(c:1)
text = AsString(n)
after = PrintV2(text) ^s
d = Identity(c) ^after
r = _Retval[index=0](d)
graph "t" of c, then_branch (a: float32[2], b: float32[2]) -> (a1, b1) {
  m = AsString(a)
  o = PrintV2(m)
  a1 = Neg(a)
  k = Identity(b) ^o
  b1 = Exp(k)
}
graph "e" of c, else_branch (a: float32[2], b: float32[2]) -> (a2, b2) {
  a2 = Neg(a)
  b2 = Neg(b)
}
"""


def test_a_result_of_a_conditional_stands_for_the_effects_that_it_reaches() -> None:
    graph, must = explicit(CONDITIONAL)
    assert must == ["after", "c"]
    assert waits(graph, "after") == ["s", "c/effects_1"]
    assert graph.get_operation_by_name("c/effects_1").inputs[0].name == "c:1"
    (o,) = [op for op in nested_operations(graph.operations) if op.name == "o"]
    assert o.graph.control_results == [o]
    assert [r.op.type for r in o.graph.results] == ["Neg", "Identity"]
    assert o.graph.results[1].op.control_inputs == [o]


def test_the_order_of_effects_survives_all_passes() -> None:
    graph = from_text(STEP + CONDITIONAL)
    optimize(graph, (), LOWERED, verify)
    assert waits(graph, "after") == ["c/effects_1"]
    assert graph.get_operation_by_name("c/effects_1").inputs[0].name == "c:1"


LOOP = """
loop = While[cond=@"c", body=@"b"](zero, n, x)
r = _Retval[index=0](loop:2)
graph "c" of loop, cond (i: int32[], n: int32[], h: float32[2]) -> (less) {
  less = Less(i, n)
}
graph "b" of loop, body (i: int32[], n: int32[], h: float32[2]) -> (next, n, new) {
  one = Const[value=int32[]{1}, dtype=int32]
  next = AddV2(i, one)
  size = Shape(h)
  text = AsString(i)
  print = PrintV2(text) ^size
  k = Identity(h) ^print
  s = Shape(k)
  e = Cast[DstT=float32](s)
  zero = Const[value=int32[1]{0}, dtype=int32]
  f = Sum(e, zero)
  new = Fill(s, f)
}
"""


def test_the_order_of_iterations_is_explicit() -> None:
    """The data edges of the only variable between two prints are folded."""
    text = LOOP.replace(
        "new = Tile(e, s)", "zero = Const[value=int32[1]{0}, dtype=int32]\n  f = Sum(e, zero)\n  new = Fill(s, f)"
    )
    graph = from_text(STEP + text)
    optimize(graph, (), LOWERED, verify)
    body = graph.get_operation_by_name("loop").attrs["body"]
    assert waits(graph, "print") == ["h"]
    assert body.results[2].op.type == "Const"
    assert [c.name for c in body.results[2].op.control_inputs] == ["print"]
    assert not body.control_results  # which would make a print wait for that of the previous iteration


@pytest.mark.parametrize("is_lowered", [False, True])
def test_a_result_that_waits_for_less_adds_no_edge(is_lowered: bool) -> None:
    """The counter of a loop does not wait for its other variables."""
    text = (
        "a = AssignVariableOp(v, x)\ny = Identity(x) ^a\n"
        'loop = While[cond=@"c", body=@"b"](zero, n, y)\nt = AsString(loop)\nafter = PrintV2(t)\n'
        "d = Identity(loop:2) ^after\nr = _Retval[index=0](d)\n"
        'graph "c" of loop, cond (i: int32[], n: int32[], h: float32[2]) -> (less) {\n  less = Less(i, n)\n}\n'
        'graph "b" of loop, body (i: int32[], n: int32[], h: float32[2]) -> (next, n, new) {\n'
        "  one = Const[value=int32[]{1}, dtype=int32]\n  next = AddV2(i, one)\n  new = Sin(h)\n}"
    )
    graph = from_text(STEP + text)
    run((Effects(),), graph, PassContext(Options(is_lowered=is_lowered)), verify)
    assert waits(graph, "after") == ([] if is_lowered else ["a"])


def test_reads_wait_for_effects_and_writes_for_reads_of_the_same_state() -> None:
    graph, must = explicit(
        'u = VarHandleOp[dtype=float32, shape=[2], shared_name="u"]\n'
        "a = AssignVariableOp(v, x)\nk = Identity(x) ^a\ns = Shape(k)\n"
        "before = ReadVariableOp[dtype=float32](v) ^s\nt = Shape(before)\n"
        "b = AssignVariableOp(v, x) ^t\nc = AssignVariableOp(u, x) ^t\n"
        "d = Identity(before) ^b ^c\nr = _Retval[index=0](d)"
    )
    assert must == ["a", "b", "c"]
    assert waits(graph, "before") == ["s", "a"]
    assert waits(graph, "b") == ["t", "before"]
    assert waits(graph, "c") == ["t", "a"]


def test_a_fetch_that_reaches_a_result_needs_it() -> None:
    """The fetched shape is folded, and the effect in the branch must still run."""
    text = CONDITIONAL.replace("d = Identity(c) ^after\nr = _Retval[index=0](d)", "r = _Retval[index=0](s)")
    graph, must = explicit(text.replace("text = AsString(n)\nafter = PrintV2(text) ^s\n", ""))
    assert must == ["c/effects_0", "c"]  # the first result has no consumer and is removed
    graph = from_text(STEP + text.replace("text = AsString(n)\nafter = PrintV2(text) ^s\n", ""))
    optimize(graph, (), LOWERED, verify)
    assert any(op.type == "PrintV2" for op in nested_operations(graph.operations))


def test_an_input_after_an_effect_is_settled_and_a_handle_is_not() -> None:
    text = (
        "a = AssignVariableOp(v, x)\ny = Neg(x) ^a\nz = Exp(y)\nh = Identity(v) ^a\n"
        'c = StatefulPartitionedCall[f=@"f", Tin=(float32, resource), Tout=(float32)](z, h)\n'
        "r = _Retval[index=0](c)\n"
        'graph "f" of c, f (b: float32[2], w: resource[]) -> (k) {\n'
        "  s = Shape(b)\n  o = AssignAddVariableOp(w, b) ^s\n  k = Neg(b) ^o\n}"
    )
    graph, must = explicit(text)
    call = graph.get_operation_by_name("c")
    assert [t.name for t in call.inputs] == ["z/settled:0", "h:0"]
    assert waits(graph, "z/settled") == ["a"]
    assert waits(graph, "o") == ["s"]  # it reads both parameters
    assert must == ["a", "c"]
