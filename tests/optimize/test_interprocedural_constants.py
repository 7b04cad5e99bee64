"""Constants go into the graphs that are given them."""

from headrace.optimize.interprocedural_constants import PropagateConstants
from tests.optimize.running import apply, same, unchanged

IF = """
    p = Placeholder[dtype=bool, shape=[]]
    x = Placeholder[dtype=float32, shape=[]]
    two = Const[value=float32[]{2.0}, dtype=float32]
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32, float32), Tout=(float32)](p, two, x)
    graph "yes" of c, then_branch (a: float32[], b: float32[]) -> (s) {
      s = Mul(a, b)
    }
    graph "no" of c, else_branch (a: float32[], b: float32[]) -> (a) {
    }
    """


def test_into_branches_and_their_results():
    after, context = apply(PropagateConstants(), IF)
    clone = "      two = Const[value=float32[]{2.0}, dtype=float32]\n"
    want = IF.replace("      s = Mul(a, b)", clone + "      s = Mul(two, b)").replace(
        "-> (a) {\n", "-> (two) {\n" + clone
    )
    same(after, want)
    assert [n.text for n in context.notes] == ["constant parameters: two"]


def test_what_nothing_reads_is_not_cloned():
    unchanged(PropagateConstants(), IF.replace("Mul(a, b)", "Neg(b)").replace("-> (a)", "-> (b)"))


def test_a_constant_that_waits_stays_outside():
    unchanged(
        PropagateConstants(),
        IF.replace(
            "two = Const[value=float32[]{2.0}, dtype=float32]",
            "k = NoOp\n    two = Const[value=float32[]{2.0}, dtype=float32] ^k",
        ),
    )


LOOP = """
    n = Const[value=int32[]{9}, dtype=int32]
    x = Placeholder[dtype=int32, shape=[]]
    w = While[cond=@"c", body=@"b", T=(int32, int32, int32)](x, n, n)
    graph "c" of w, cond (i: int32[], k: int32[], l: int32[]) -> (go) {
      go = Less(k, l)
    }
    graph "b" of w, body (i: int32[], k: int32[], l: int32[]) -> (i, j, l) {
      j = AddV2(k, l)
    }
    """


def test_into_loops_what_does_not_change_in_them():
    after, _ = apply(PropagateConstants(), LOOP)
    clone = "      n = Const[value=int32[]{9}, dtype=int32]\n"
    want = LOOP.replace("      go = Less(k, l)", clone + "      go = Less(k, n)")
    same(after, want.replace("      j = AddV2(k, l)", clone + "      j = AddV2(k, n)"))


def test_not_into_functions_of_the_library():
    unchanged(
        PropagateConstants(),
        """
        function "f" (a: float32[]) -> (s) {
          s = Neg(a)
        }
        two = Const[value=float32[]{2.0}, dtype=float32]
        c = PartitionedCall[f=&"f", Tin=(float32), Tout=(float32)](two)
        """,
    )


def test_into_a_condition_that_is_a_constant():
    text = """
    p = Const[value=bool[]{true}, dtype=bool]
    w = While[cond=@"c", body=@"b", T=(bool)](p)
    graph "c" of w, cond (q: bool[]) -> (q) {
    }
    graph "b" of w, body (q: bool[]) -> (q) {
    }
    """
    after, _ = apply(PropagateConstants(), text)
    clone = "      p = Const[value=bool[]{true}, dtype=bool]\n"
    same(after, text.replace("cond (q: bool[]) -> (q) {\n", "cond (q: bool[]) -> (p) {\n" + clone))


def test_what_has_no_value_here_stays_outside():
    bad = 'Const[value=bad("it is broken", base64"AA=="), dtype=float32] : float32[]'
    unchanged(PropagateConstants(), IF.replace("Const[value=float32[]{2.0}, dtype=float32]", bad))
