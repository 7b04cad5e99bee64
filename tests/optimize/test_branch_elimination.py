"""Conditionals and loops of which it is known what they do."""

import pytest

from headrace.optimize.branch_elimination import EliminateBranches
from tests.optimize.running import apply, same, unchanged

IF = """
    x = Placeholder[dtype=float32, shape=[2]]
    p = Const[value=bool[]{true}, dtype=bool]
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32), Tout=(float32, float32)](p, x)
    graph "yes" of c, then_branch, shares_names (a: float32[2]) -> (s, a) {
      s = Tanh(a)
      unused = Exp(a)
    }
    graph "no" of c, else_branch, shares_names (a: float32[2]) -> (a, t) {
      t = Sin(a)
    }
    y = Neg(c:0)
    z = Neg(c:1)
    k = NoOp ^c
    """
TRUE = "p = Const[value=bool[]{true}, dtype=bool]"
SAY = 'm = Const[value=string[]{"m"}, dtype=string]\n      say = PrintV2(m)'
HEAD = IF.partition("    c = ")[0]


def test_a_known_predicate():
    after, context = apply(EliminateBranches(), IF)
    same(after, HEAD + "    s = Tanh(x)\n    y = Neg(s)\n    z = Neg(x)\n    k = NoOp ^s ^x")
    assert [n.text for n in context.notes] == ["its predicate is constant: then_branch replaces it"]
    after, _ = apply(EliminateBranches(), IF.replace("{true}", "{false}"))
    same(after, HEAD.replace("true", "false") + "    t = Sin(x)\n    y = Neg(x)\n    z = Neg(t)\n    k = NoOp ^x ^t")


def test_names_below_the_conditional_where_the_branch_has_its_own():
    after, _ = apply(EliminateBranches(), IF.replace(", shares_names", ""))
    assert "c/then_branch/s = Tanh" in after


@pytest.mark.parametrize("p", ["bool[1]{true}", 'string[]{"a"}'])
def test_other_predicates_are_left_to_lowering(p):
    dtype = p.partition("[")[0]
    text = IF.replace(TRUE, f"p = Const[value={p}, dtype={dtype}]")
    unchanged(EliminateBranches(), text)


def test_numbers_as_predicates():
    after, _ = apply(EliminateBranches(), IF.replace(TRUE, "p = Const[value=int32[]{2}, dtype=int32]"))
    assert "s = Tanh" in after


def test_waiting_is_kept():
    # all operations that replace the conditional wait for its control inputs, as do those that forward an input of it
    text = IF.replace("](p, x)", "](p, x) ^w").replace("    c = If", "    w = PrintV2(m)\n    c = If")
    text = text.replace("    p = Const", '    m = Const[value=string[]{"m"}, dtype=string]\n    p = Const')
    after, _ = apply(EliminateBranches(), text)
    head = text.partition("    c = ")[0]
    same(
        after,
        head
        + "    s = Tanh(x) ^w\n    i = Identity(x) ^w\n    y = Neg(s)\n    z = Neg(i)\n    k = NoOp ^s ^i".replace(
            "i)", "c/Identity)"
        )
        .replace("    i =", "    c/Identity =")
        .replace("^i", "^c/Identity"),
    )


def test_constants_of_a_branch_do_not_wait_but_what_reads_them_does():
    text = IF.replace("s = Tanh(a)", "q = Const[value=float32[]{1.0}, dtype=float32]\n      s = Neg(q)")
    text = (
        text.replace("](p, x)", "](p, x) ^w")
        .replace("    c = If", "    w = NoOp\n    c = If")
        .replace("-> (s, a)", "-> (s, q)")
    )
    text = text.replace("float32[2]) -> (a, t)", "float32[2]) -> (a, t)")
    after, _ = apply(EliminateBranches(), text)
    assert "q = Const[value=float32[]{1.0}, dtype=float32] :" in after
    assert "s = Neg[T=float32](q) ^w" in after
    assert "c/Identity = Identity[T=float32](q) ^w" in after


def test_what_must_run_still_must():
    say = SAY + "\n      s = Tanh(a)"
    text = IF.replace("(s, a) {", "(s, a) ^say {").replace("s = Tanh(a)", say).replace("    k = NoOp ^c\n", "")
    after, context = apply(EliminateBranches(), text)
    assert "say = PrintV2(m)" in after
    assert [op.name for op in context.preserved] == ["say"]


def test_in_a_body_too():
    inner = (
        IF.replace("Placeholder[dtype=float32, shape=[2]]", "Tanh(a)")
        .replace("k = NoOp ^c", "k = NoOp ^c")
        .replace("(s, a) {", "(s, a) ^say {")
        .replace("s = Tanh(a)", SAY + "\n      s = Tanh(a)")
    )
    text = (
        "u = Placeholder[dtype=float32, shape=[2]]\n"
        'f = PartitionedCall[f=@"f", Tin=(float32), Tout=(float32)](u)\n'
        'graph "f" of f, f (a: float32[2]) -> (y) ^c {\n' + inner + "}\n"
    )
    after, context = apply(EliminateBranches(), text)
    assert "-> (y) ^s ^x ^say {" in after  # to run the conditional meant all its results
    assert not context.preserved


def test_a_target_becomes_its_ends():
    _, context = apply(EliminateBranches(), IF, preserved=["c"])
    assert [op.name for op in context.preserved] == ["s", "x"]


CASE = """
    x = Placeholder[dtype=float32, shape=[2]]
    k = Const[value=int32[]{K}, dtype=int32]
    c = Case[branches=(@"f", @"g", @"h"), Tin=(float32), Tout=(float32)](k, x)
    graph "f" of c, branches.0, shares_names (a: float32[2]) -> (f0) {
      f0 = Tanh(a)
    }
    graph "g" of c, branches.1, shares_names (a: float32[2]) -> (g0) {
      g0 = Tanh(a)
    }
    graph "h" of c, branches.2 (a: float32[2]) -> (h0) {
      h0 = Tanh(a)
    }
    y = Neg(c)
    """


@pytest.mark.parametrize(
    ("k", "taken"), [(0, "f0"), (1, "g0"), (2, "c/branch2/h0"), (3, "c/branch2/h0"), (-1, "c/branch2/h0")]
)
def test_a_known_number_of_a_branch(k, taken):
    after, _ = apply(EliminateBranches(), CASE.replace("{K}", f"{{{k}}}"))
    assert f"y = Neg[T=float32]({taken})" in after


def test_graphs_inside_move_with_it():
    text = IF.replace(
        "s = Tanh(a)",
        """s = PartitionedCall[f=@"f", Tin=(float32), Tout=(float32)](a)
      graph "f" of s, f, shares_names (b: float32[2]) -> (r) {
        r = Tanh(b)
      }""",
    ).replace(", shares_names (a: float32[2]) -> (s", " (a: float32[2]) -> (s")
    after, _ = apply(EliminateBranches(), text)
    assert 'graph "f" of c/then_branch/s, f, shares_names (c/then_branch/b: float32[2]) -> (c/then_branch/r)' in after


INNER = """
    p = Placeholder[dtype=bool, shape=[]]
    x = Placeholder[dtype=float32, shape=[2]]
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(bool, float32), Tout=(float32)](p, p, x)
    graph "yes" of c, then_branch (q: bool[], a: float32[2]) -> (d) {
      d = If[then_branch=@"one", else_branch=@"two", Tin=(float32), Tout=(float32)](q, a)
      graph "one" of d, then_branch, shares_names (b: float32[2]) -> (t) {
        t = Tanh(b)
      }
      graph "two" of d, else_branch (b: float32[2]) -> (b) {
      }
    }
    graph "no" of c, else_branch (q: bool[], a: float32[2]) -> (a) {
      r = LogicalNot(q)
    }
    """


def test_the_same_predicate_inside():
    after, context = apply([EliminateBranches(), EliminateBranches()], INNER)
    assert "t = Tanh[T=float32](a)" in after
    assert "q_1 = Const[value=bool[]{false}, dtype=bool]" in after
    assert context.notes[0].text == "its predicate is a constant inside each branch"
    unchanged(
        EliminateBranches(),
        INNER.replace("(p, p, x)", "(p, o, x)").replace("    c = If", "    o = LogicalNot(p)\n    c = If"),
    )


def test_only_of_one_boolean():
    unchanged(EliminateBranches(), INNER.replace("[dtype=bool, shape=[]]", "[dtype=bool]"))


LOOP = """
    x = Placeholder[dtype=float32, shape=[]]
    i = Const[value=int32[]{I}, dtype=int32]
    w = While[cond=@"c", body=@"b", T=(int32, float32)](i, x)
    graph "c" of w, cond (i: int32[], a: float32[]) -> (go) {
      n = Const[value=int32[]{4}, dtype=int32]
      go = Less(i, n)
    }
    graph "b" of w, body (i: int32[], a: float32[]) -> (j, d) {
      one = Const[value=int32[]{STEP}, dtype=int32]
      j = AddV2(i, one)
      d = Tanh(a)
    }
    y = Neg(w:0)
    z = Neg(w:1)
    """


@pytest.mark.parametrize("step", [1, 2])  # one that counts, and one of which only the beginning is known
def test_a_loop_that_does_not_go_round(step):
    text = LOOP.replace("{STEP}", f"{{{step}}}")
    after, context = apply(EliminateBranches(), text.replace("{I}", "{4}"))
    same(after, text.partition("    w = ")[0].replace("{I}", "{4}") + "    y = Neg(i)\n    z = Neg(x)")
    assert context.notes[0].text == "its condition is initially false: trip count 0"
    unchanged(EliminateBranches(), text.replace("{I}", "{3}"))


def test_a_condition_of_which_one_part_is_known():
    text = LOOP.replace("{STEP}", "{2}").replace("{I}", "{4}").replace("-> (go)", "-> (both)")
    text = text.replace("go = Less(i, n)", "go = Less(i, n)\n      f = Less(a, a)\n      both = LogicalAnd(f, go)")
    assert "While" not in apply(EliminateBranches(), text)[0]
    unchanged(EliminateBranches(), text.replace("LogicalAnd", "LogicalOr"))


def test_a_part_that_is_known_says_nothing_of_the_shape():
    text = LOOP.replace("{STEP}", "{2}").replace("{I}", "{4}").replace("-> (go)", "-> (most)")
    text = text.replace("a: float32[]", "a: float32[2]").replace("float32, shape=[]", "float32, shape=[2]")
    both = """f = Less(a, a)
      go = Less(i, n)
      both = LogicalAnd(f, go)
      k = Size(both)
      one = Const[value=int32[]{1}, dtype=int32]
      most = Less(one, k)"""  # true: there are two
    unchanged(EliminateBranches(), text.replace("go = Less(i, n)", both))


def test_a_condition_that_fails_is_left_to_fail():
    text = LOOP.replace("{STEP}", "{2}").replace("{I}", "{0}").replace("Less(i, n)", "Less(m, n)")
    unchanged(EliminateBranches(), text.replace("      go =", "      m = FloorDiv(n, i)\n      go ="))


def test_a_loop_that_is_waited_for_or_waits_stays():
    text = LOOP.replace("{STEP}", "{1}").replace("{I}", "{4}")
    for other in (text + "    k = NoOp ^w", text.replace("](i, x)", "](i, x) ^x")):
        context = unchanged(EliminateBranches(), other)
        assert "it has control edges" in context.notes[0].text
    unchanged(EliminateBranches(), text, preserved=["w"])


def test_a_condition_that_does_something_stays():
    text = LOOP.replace("{STEP}", "{1}").replace("{I}", "{4}")
    text = text.replace("go = Less(i, n)", SAY + "\n      go = Less(i, n)")
    context = unchanged(EliminateBranches(), text)
    assert "its condition has effects" in context.notes[0].text


def test_a_predicate_that_waits():
    text = IF.replace(TRUE, "w = NoOp\n    p = Const[value=bool[]{true}, dtype=bool] ^w")
    after, _ = apply(EliminateBranches(), text)
    assert "s = Tanh[T=float32](x) ^w" in after


def test_that_the_predicate_is_known_is_a_change_by_itself():
    text = """
        p = Placeholder[dtype=DTYPE, shape=[]]
        c = If[then_branch=@"yes", else_branch=@"no", Tin=(DTYPE), Tout=(DTYPE)](p, p)
        graph "yes" of c, then_branch (q: DTYPE[]) -> (q) {
        }
        graph "no" of c, else_branch (q: DTYPE[]) -> (r) {
          r = Identity(q)
        }
        """
    after, _ = apply(EliminateBranches(), text.replace("DTYPE", "bool"))
    assert "q_1 = Const[value=bool[]{false}, dtype=bool]" in after
    assert unchanged(EliminateBranches(), text.replace("DTYPE", "int32")).notes == []  # 2 is as true as 1
    assert (
        unchanged(
            EliminateBranches(),
            text.replace("Identity(q)", "Identity(o)")
            .replace("          r =", "          o = Const[value=bool[]{true}, dtype=bool]\n          r =")
            .replace("DTYPE", "bool"),
        ).notes
        == []
    )


@pytest.mark.parametrize("type", ["int32[]", "bool[1]", "string[]"])
def test_conditions_that_are_no_booleans(type):
    dtype, _, shape = type.partition("[")
    value = {"int32": "0", "bool": "false", "string": '""'}[dtype]
    text = LOOP.replace("{STEP}", "{1}").replace("{I}", "{4}")
    go = f"go = Const[value={dtype}[{shape}{{{value}}}, dtype={dtype}]"
    unchanged(EliminateBranches(), text.replace("go = Less(i, n)", go))


@pytest.mark.parametrize(
    "go",
    [
        "s = Const[value=int32[0]{}, dtype=int32]\n      m = Const[value=int32[]{1}, dtype=int32]\n"
        "      k = Const[value=int32[]{2}, dtype=int32]\n"
        "      r = RandomUniformInt[Tout=int32](s, m, k)\n      go = Less(n, r)",
        "m = PlaceholderWithDefault[shape=[], dtype=int32](n)\n      go = Less(i, n)\n      go2 = Less(i, m)",
    ],
)
def test_conditions_that_are_not_computed_now(go):
    text = (
        LOOP.replace("{STEP}", "{1}").replace("{I}", "{4}").replace("-> (go)", "-> (go2)" if "go2" in go else "-> (go)")
    )
    unchanged(EliminateBranches(), text.replace("go = Less(i, n)", go))


def test_functions_of_the_library_are_not_looked_into():
    unchanged(
        EliminateBranches(),
        """
        function "f" (v: float32[2]) -> (y) {
          y = Neg(v)
        }
        p = Const[value=bool[]{true}, dtype=bool]
        x = Placeholder[dtype=float32, shape=[2]]
        c = If[then_branch=&"f", else_branch=&"f", Tin=(float32), Tout=(float32)](p, x)
        """,
    )


def test_a_condition_with_something_that_gives_nothing():
    text = LOOP.replace("{STEP}", "{1}").replace("{I}", "{4}")
    after, _ = apply(EliminateBranches(), text.replace("go = Less(i, n)", "k = NoOp\n      go = Less(i, n) ^k"))
    assert "While" not in after


def test_a_condition_of_which_no_part_is_known():
    text = LOOP.replace("{STEP}", "{1}").replace("{I}", "{4}")
    unchanged(EliminateBranches(), text.replace("go = Less(i, n)", "f = Less(a, a)\n      go = LogicalAnd(f, f)"))
