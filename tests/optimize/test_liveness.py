"""What results are made of, question by question."""

import pytest

from headrace.ir.graph import Operation
from headrace.ir.text import from_text
from headrace.optimize.liveness import Needs, Parts
from headrace.optimize.prune import Prune
from tests.optimize.running import apply

LOOP = """
    x = Placeholder[dtype=float32, shape=[]]
    n = Placeholder[dtype=int32, shape=[]]
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


def op(text: str, name: str) -> Operation:
    return from_text(text).get_operation_by_name(name)


@pytest.mark.parametrize(("read", "live"), [(0, [0, 4]), (1, [0, 1, 2, 3, 4]), (2, [0, 2, 3, 4]), (3, [0, 3, 4])])
def test_variables_of_a_loop(read, live):
    parts = Parts(op(LOOP, "w"))
    assert {t.name for t in parts.need(None)} == {"n:0"}  # the condition's
    assert len(parts.need(read)) == len(live) - 2
    assert sorted(parts.live) == live
    assert parts.need(read) == []  # known already


IF = """
    p = Placeholder[dtype=bool, shape=[]]
    x = Placeholder[dtype=float32, shape=[]]
    u = Neg(x)
    v = Exp(x)
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32, float32, float32), Tout=(float32, float32)](p, u, v, x)
    graph "yes" of c, then_branch (a: float32[], b: float32[], d: float32[]) -> (a, s) ^k {
      k = NoOp ^d
      s = Neg(b)
    }
    graph "no" of c, else_branch (a: float32[], b: float32[], d: float32[]) -> (b, a) {
    }
    """


def test_inputs_of_a_conditional():
    parts = Parts(op(IF, "c"))
    assert [t.name for t in parts.need(None)] == ["p:0", "x:0"]
    assert [t.name for t in parts.need(0)] == ["u:0", "v:0"]
    assert parts.need(1) == []


def test_what_of_a_graph_is_needed():
    inner = IF.replace("    ", "      ").replace("p = Placeholder[dtype=bool, shape=[]]", "k = NoOp ^e")
    inner = inner.replace("x = Placeholder[dtype=float32, shape=[]]", "t = Tanh(q)").replace(
        "](p, u, v, x)", "](p, u, v, x) ^t"
    )
    call = 'f = PartitionedCall[f=@"f", Tin=(bool, float32, float32, float32), Tout=(float32)](o, z, z, z)\n'
    text = (
        "o = Placeholder[dtype=bool, shape=[]]\nz = Placeholder[dtype=float32, shape=[]]\n"
        + call
        + 'graph "f" of f, f (p: bool[], x: float32[], q: float32[], e: float32[]) -> (u) {\n'
        + inner.replace("-> (a, s)", "-> (d, s)").replace("-> (b, a)", "-> (d, d)")
        + "}\n"
    )
    (graph,) = [op(text, "f").attrs["f"]]
    find = graph.get_operation_by_name
    needs = Needs(graph)
    # of the conditional's first result nothing but the choice, x, and what the whole waits for
    assert sorted(needs.need([find("c").outputs[0]])) == [0, 1, 2]
    assert needs.need([find("c").outputs[1]], [find("u")]) == []
    assert needs.need([], [find("k")]) == [3]
    assert needs.need([], [find("k")]) == []


def test_a_variable_that_only_what_must_run_in_a_branch_reads():
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
    _, context = apply(Prune(), text)
    assert [n.text for n in context.notes] == ["1 variable that nobody needs: g"]
