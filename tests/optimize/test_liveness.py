"""Operations, inputs and results that the ends of a step reach."""

import pytest

from headrace.ir.text import from_text
from headrace.optimize.dead_code import EliminateDeadCode
from headrace.optimize.liveness import Reached
from tests.optimize.running import apply

LOOP = """
    x = _Arg[T=float32, index=0, shape=[]]
    n = _Arg[T=int32, index=1, shape=[]]
    w = While[cond=@"c", body=@"b", T=(int32, float32, float32, float32, int32)](n, x, x, x, n)
    graph "c" of w, cond (i: int32[], f: float32[], g: float32[], h: float32[], n: int32[]) -> (go) {
      go = Less(i, n)
    }
    graph "b" of w, body (i: int32[], f: float32[], g: float32[], h: float32[], n: int32[]) -> (j, ff, gg, hh, n) ^k {
      k = NoOp ^j
      j = Neg(i)
      ff = Mul(f, g)
      gg = Neg(h)
      hh = Neg(h)
    }
    """


def reached(text, name, literal=True, preserved=()):
    """Inputs and outputs of one operation that the ends of a graph reach.

    The third result has the names of all operations that they reach.
    """
    graph = from_text(text)
    op = graph.get_operation_by_name(name)
    found = Reached(graph, [graph.get_operation_by_name(k) for k in preserved], literal)
    inputs, outputs = found.inputs.get(op, set()), found.outputs.get(op, set())
    return sorted(inputs), sorted(outputs), {each.name for each in found.ops}


@pytest.mark.parametrize(("read", "live"), [(0, [0, 4]), (1, [0, 1, 2, 3, 4]), (2, [0, 2, 3, 4]), (3, [0, 3, 4])])
def test_a_result_of_a_loop_reaches_the_variables_that_it_is_made_of(read, live):
    assert reached(LOOP + f"y = _Retval[index=0](w:{read})", "w")[:2] == (live, [read])


def test_a_control_edge_from_a_loop_reaches_all_variables():
    assert reached(LOOP + "y = _Retval[index=0](x) ^w", "w")[0] == [0, 1, 2, 3, 4]
    assert reached(LOOP, "w", preserved=["w"])[0] == [0, 1, 2, 3, 4]
    assert reached(LOOP + "y = _Retval[index=0](x) ^w", "w", literal=False)[0] == [0, 4]


def test_a_constant_of_a_loop_reaches_its_condition():
    assert reached(LOOP + "y = _Retval[index=0](w:4)", "w")[0] == [0, 4]


IF = """
    p = _Arg[T=bool, index=0, shape=[]]
    x = _Arg[T=float32, index=1, shape=[]]
    u = Neg(x)
    v = Exp(x)
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32, float32, float32), Tout=(float32, float32)](p, u, v, x)
    graph "yes" of c, then_branch (a: float32[], b: float32[], d: float32[]) -> (a, s) ^k {
      k = NoOp ^d
      s = Neg(b)
    }
    graph "no" of c, else_branch (a: float32[], b: float32[], d: float32[]) -> (b, b) {
    }
    """


def test_a_result_of_a_conditional_reaches_what_its_branches_make_it_of():
    inputs, outputs, ops = reached(IF + "y = _Retval[index=0](c:0)", "c")
    assert (inputs, outputs) == ([0, 1, 2, 3], [0])  # input 3 is waited for by what must run
    assert "s" not in ops
    inputs, outputs, ops = reached(IF + "y = _Retval[index=0](c:1)", "c")
    assert (inputs, outputs) == ([0, 2, 3], [1])
    assert "u" not in ops


def test_an_operation_without_results_reaches_what_it_waits_for():
    text = IF.replace("s = Neg(b)", "w = NoOp ^a\n s = Neg(b) ^w")
    assert reached(text + "y = _Retval[index=0](c:1)", "c")[0] == [0, 1, 2, 3]


CALL = """
    x = _Arg[T=float32, index=0, shape=[]]
    u = Neg(x)
    c = PartitionedCall[f=@"f", Tin=(float32, float32), Tout=(float32, float32)](x, u)
    graph "f" of c, f (a: float32[], b: float32[]) -> (a, s) {
      s = Neg(a)
    }
    y = _Retval[index=0](c:0)
    """


def test_a_call_reaches_all_its_arguments():
    assert reached(CALL, "c")[:2] == ([0, 1], [0])
    assert reached(CALL, "c", literal=False)[:2] == ([0], [0])


def test_a_function_of_the_library_is_reached_as_a_whole():
    text = """
    function "f" (a: float32[], b: float32[]) -> (a, b) {
    }
    x = _Arg[T=float32, index=0, shape=[]]
    u = Neg(x)
    c = PartitionedCall[f=&"f", Tin=(float32, float32), Tout=(float32, float32)](x, u)
    y = _Retval[index=0](c:0)
    """
    inputs, _, ops = reached(text, "c")
    assert inputs == []
    assert {"c", "u"} <= ops


def test_what_must_run_in_a_nested_conditional_reaches_a_variable():
    text = """
    n = _Arg[T=int32, index=0, shape=[]]
    x = _Arg[T=float32, index=1, shape=[]]
    w = While[cond=@"c", body=@"b", T=(int32, float32, float32, float32)](n, x, x, x)
    graph "c" of w, cond (i: int32[], f: float32[], g: float32[], h: float32[]) -> (go) {
      go = Less(i, i)
    }
    graph "b" of w, body (i: int32[], f: float32[], g: float32[], h: float32[]) -> (j, d, gg, hh) {
      j = Neg(i)
      p = Less(i, j)
      gg = Neg(g)
      hh = Neg(h)
      d = If[then_branch=@"yes", else_branch=@"no", Tin=(float32, float32), Tout=(float32)](p, f, h)
      graph "yes" of d, then_branch (f: float32[], h: float32[]) -> (q) ^say {
        q = Neg(f)
        say = Print[U=(float32)](h, h)
      }
      graph "no" of d, else_branch (f: float32[], h: float32[]) -> (f) {
      }
    }
    y = _Retval[index=0](w:1)
    """
    _, context = apply(EliminateDeadCode(), text)
    assert [n.text for n in context.notes] == ["1 variable without live uses: g"]
