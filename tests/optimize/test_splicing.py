"""Graphs that replace their owner: names, control edges and known facts."""

from headrace.optimize.branch_elimination import EliminateBranches
from headrace.optimize.inline import Inline
from tests.optimize.running import apply, same

CALL = """
    m = Const[value=string[]{"m"}, dtype=string]
    w = PrintV2(m)
    x = Placeholder[dtype=float32]
    n = Const[value=int32[1]{6}, dtype=int32]
    c = PartitionedCall[f=@"f", Tin=(float32, int32), Tout=(float32)](x, n) ^w
    graph "f" of c, f (a: float32<unknown>, k: int32[1]) -> (t) {
      r = Reshape(a, k)
      s = Tanh(r)
      t = Mul(s, s)
    }
    k = NoOp ^c
    """
HEAD = CALL.partition("    c = ")[0]


def test_what_waits_and_what_becomes_known_of_constants():
    after, _ = apply(Inline(), CALL)
    same(
        after,
        f"""{HEAD}
    c/r = Reshape(x, n) ^w
    c/s = Tanh(c/r)
    c/t = Mul(c/s, c/s)
    k = NoOp ^c/t""",
    )
    assert "c/t = Mul[T=float32](c/s, c/s) : float32[6]" in after


def test_who_waits_for_what_gives_nothing_waits_for_what_came_before():
    text = CALL.replace("Tout=(float32)", "Tout=()").replace("-> (t)", "-> ()")
    after, _ = apply(Inline(), text)
    same(after, f"{HEAD}    k = NoOp ^w")


def test_names_in_graphs_inside():
    text = """
    p = Const[value=bool[]{true}, dtype=bool]
    x = Placeholder[dtype=float32, shape=[2]]
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32), Tout=(float32)](p, x)
    graph "yes" of c, then_branch (a: float32[2]) -> (s) {
      s = PartitionedCall[f=@"f", Tin=(float32), Tout=(float32)](a)
      graph "f" of s, f (b: float32[2]) -> (r) {
        r = Tanh(b)
      }
    }
    graph "no" of c, else_branch (a: float32[2]) -> (a) {
    }
    y = Neg(c)
    """
    after, _ = apply(EliminateBranches(), text)
    assert 'graph "f" of c/then_branch/s, f (b: float32[2]) -> (r) {' in after
    assert "\n  r = Tanh" in after
    after, _ = apply(EliminateBranches(), text.replace("of s, f (", "of s, f, shares_names ("))
    assert 'graph "f" of c/then_branch/s, f, shares_names (c/then_branch/b: float32[2]) -> (c/then_branch/r)' in after


def test_a_result_that_is_a_parameter_is_no_control_result():
    text = """
    x = _Arg[T=float32, index=0, shape=[2]]
    o = PartitionedCall[f=@"g", Tin=(float32), Tout=(float32)](x)
    graph "g" of o, f (a: float32[2]) -> (r) ^c {
      yes = Const[value=bool[]{true}, dtype=bool]
      c = If[Tout=(float32, float32), then_branch=@"t", else_branch=@"e"](yes, a)
      r = Neg(c)
      graph "t" of c, then_branch (b: float32[2]) -> (s, b) {
        s = Sin(b)
      }
      graph "e" of c, else_branch (b: float32[2]) -> (u, b) {
        u = Cos(b)
      }
    }
    """
    after, _ = apply(EliminateBranches(), text)
    assert "(a: float32[2]) -> (r) ^c/then_branch/s {" in after
