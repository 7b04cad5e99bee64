"""Control edges that say nothing are left out."""

import pytest

from headrace.optimize.control_edges import SimplifyControlEdges
from tests.optimize.running import apply, same, unchanged

HEAD = """
    v = VarHandleOp[dtype=float32, shape=[2]]
    x = Placeholder[dtype=float32, shape=[2]]
    n = Const[value=float32[]{1.0}, dtype=float32]
    a = AssignVariableOp(v, x)
    b = AssignAddVariableOp(v, x) ^a
    """


def check(before, after):
    got, context = apply(SimplifyControlEdges(), HEAD + before)
    same(got, HEAD + after)
    return [n.text for n in context.notes]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("y = Neg(x) ^n", "y = Neg(x)"),  # a constant
        ("y = Neg(x) ^a ^b", "y = Neg(x) ^b"),  # by way of b
        ("k = NoOp ^a\n y = Neg(x) ^k", "k = NoOp ^a\n y = Neg(x) ^a"),
        ("k = NoOp ^a\n l = NoOp ^k ^b\n y = Neg(x) ^l", "k = NoOp ^a\n l = NoOp ^b\n y = Neg(x) ^b"),
        ("k = Neg(x) ^b\n y = Neg(n) ^k", "k = Neg(x) ^b\n y = Neg(n) ^b"),
        ("k = Neg(x) ^b\n y = Neg(k) ^k", "k = Neg(x) ^b\n y = Neg(k)"),
        ("k = Neg(x) ^b\n y = Neg(k) ^b ^a", "k = Neg(x) ^b\n y = Neg(k)"),
        ("k = Neg(x) ^a\n l = Neg(k)\n y = Neg(l) ^a", "k = Neg(x) ^a\n l = Neg(k)\n y = Neg(l)"),
        ("k = Neg(x)\n y = Neg(n) ^k", "k = Neg(x)\n y = Neg(n) ^x"),  # a fed operation may be missing
        ("c = Const[value=float32[]{1.0}, dtype=float32] ^b\n y = Neg(c)",
         "c = Const[value=float32[]{1.0}, dtype=float32]\n y = Neg(c) ^b"),
    ],
)  # fmt: skip
def test_what_says_nothing(before, after):
    check(before, after)


@pytest.mark.parametrize(
    "text",
    [
        "y = Neg(x) ^b",
        'k = CheckNumerics[message="m"](x)\n y = Neg(n) ^k',  # to wait for a check is to want it made
        "r = ReadVariableOp[dtype=float32](v) ^b\n w = AssignVariableOp(v, x) ^r",  # it is to be read before
        "c = Const[value=float32[]{1.0}, dtype=float32] ^b\n y = _Retval[index=0](c)",
        "c = Const[value=float32[]{1.0}, dtype=float32] ^b\n y = Neg(c)\n z = _Retval[index=0](c)",
    ],
)
def test_what_says_something(text):
    unchanged(SimplifyControlEdges(), HEAD + text)


def test_the_report():
    assert check("y = Neg(x) ^n ^a ^b", "y = Neg(x) ^b") == ["has control inputs b instead of n, a, b"]
    assert check("y = Neg(x) ^n", "y = Neg(x)") == ["has no control inputs instead of n"]
    c = "c = Const[value=float32[]{1.0}, dtype=float32]"
    assert check(f"{c} ^b\ny = Neg(c)", f"{c}\ny = Neg(c) ^b") == ["its control inputs were moved to its consumers"]


def test_a_constant_that_is_read_and_waited_for():
    d = "d = Const[value=float32[]{1.0}, dtype=float32]"
    check(f"{d} ^b\ny = Neg(d) ^b\nz = Neg(x) ^d", f"{d}\ny = Neg(d) ^b\nz = Neg(x) ^b")
    again = CALL.replace("Tout=(float32, float32)]", "Tout=(float32, float32)]{RematerializedCall}")
    unchanged(SimplifyControlEdges(), f"{HEAD}{d} ^b\ny = Neg(d){again.replace('^a', '^d')}")  # it keeps its edges


def test_many_edges_do_not_come_in_the_place_of_one():
    many = "".join(f"w{i} = PrintV2(m)\n" for i in range(5))
    text = HEAD + 'm = Const[value=string[]{"m"}, dtype=string]\n' + many
    unchanged(SimplifyControlEdges(), text + "k = Neg(n) ^w0 ^w1 ^w2 ^w3 ^w4\ny = Neg(n) ^k")
    after, _ = apply(SimplifyControlEdges(), text + "k = Neg(n) ^w0 ^w1 ^w2 ^w3\ny = Neg(n) ^k")
    assert "y = Neg[T=float32](n) ^w0 ^w1 ^w2 ^w3 :" in after
    after, _ = apply(SimplifyControlEdges(), text + "k = NoOp ^w0 ^w1 ^w2 ^w3 ^w4\ny = Neg(n) ^k")
    assert "y = Neg[T=float32](n) ^w0 ^w1 ^w2 ^w3 ^w4" in after


CALL = """
    c = PartitionedCall[f=@"f", Tin=(float32, float32), Tout=(float32, float32)](x, n) ^a
    graph "f" of c, f (a: float32[2], b: float32[]) -> (s, t) {
      s = Tanh(a)
      t = Tanh(b)
    }
    """


def test_one_result_says_little_of_all():
    unchanged(SimplifyControlEdges(), HEAD + CALL + "y = Neg(c:0) ^c")
    unchanged(SimplifyControlEdges(), HEAD + CALL + "i = Neg(c:0)\ny = Neg(n) ^i")  # not: ^c
    check(CALL + "y = Neg(c:0) ^a", CALL + "y = Neg(c:0)")  # but what it waited for is done
    text = HEAD + CALL.replace("(x, n) ^a", "(k, n)").replace("    c =", "    k = Neg(x) ^a\n    c =")
    unchanged(SimplifyControlEdges(), text + "y = Neg(c:1) ^a")  # c:1 may come before k is done


def test_what_waits_for_all_of_it():
    check(CALL + "k = NoOp ^c\ny = Neg(n) ^k ^a", CALL + "k = NoOp ^c\ny = Neg(n) ^c")


def test_what_computes_again_keeps_its_edges():
    unchanged(
        SimplifyControlEdges(),
        HEAD
        + CALL.replace("Tout=(float32, float32)]", "Tout=(float32, float32)]{RematerializedCall}").replace("^a", "^n"),
    )


def test_results_and_targets_that_are_constants_go_on_waiting():
    c = "c = Const[value=float32[]{1.0}, dtype=float32] ^b\n y = Neg(c)"
    unchanged(SimplifyControlEdges(), HEAD + c, preserved=["c"])
    unchanged(
        SimplifyControlEdges(),
        """
        x = Placeholder[dtype=float32, shape=[2]]
        f = PartitionedCall[f=@"f", Tin=(float32), Tout=(float32)](x)
        graph "f" of f, f (a: float32[2]) -> (c) {
          k = CheckNumerics[message="m"](a)
          c = Const[value=float32[]{1.0}, dtype=float32] ^k
          l = Neg(c)
        }
        """,
    )


def test_readers_that_are_many_or_structured():
    c = "c = Const[value=float32[]{1.0}, dtype=float32] ^b\n"
    unchanged(SimplifyControlEdges(), HEAD + c + "".join(f"y{i} = Neg(c)\n" for i in range(17)))
    after, _ = apply(SimplifyControlEdges(), HEAD + c + "".join(f"y{i} = Neg(c)\n" for i in range(16)))
    assert "c = Const[value=float32[]{1.0}, dtype=float32] :" in after
    unchanged(SimplifyControlEdges(), HEAD + c.replace("c =", "d =") + CALL.replace("(x, n) ^a", "(x, d)"))


@pytest.mark.matrix
def test_long_chains_are_no_recursion():
    text = HEAD + "k0 = NoOp ^b\n" + "".join(f"k{i + 1} = NoOp ^k{i}\n" for i in range(3000))
    after, _ = apply(SimplifyControlEdges(), text)
    assert "k3000 = NoOp ^b" in after


def test_a_search_has_an_end():
    long = 'k0 = CheckNumerics[message="m"](x) ^a\n' + "".join(
        f'k{i + 1} = CheckNumerics[message="m"](k{i})\n' for i in range(100)
    )
    unchanged(SimplifyControlEdges(), HEAD + long + "y = Neg(k100) ^a")
    check(long + "y = Neg(k20) ^a", long + "y = Neg(k20)")


def test_a_search_looks_at_nothing_twice_and_not_further_back_than_need_be():
    # each reads the one before twice; and there is much that comes before `a`
    twice = 'k0 = CheckNumerics[message="m"](x) ^a\n' + "".join(f"k{i + 1} = AddV2(k{i}, k{i})\n" for i in range(20))
    check(twice + "y = Neg(k20) ^a", twice + "y = Neg(k20)")
    early = HEAD.replace(
        "    a =", "    l0 = Neg(x)\n" + "".join(f"l{i + 1} = Neg(l{i})\n" for i in range(60)) + "    a ="
    )
    late = 'k0 = CheckNumerics[message="m"](x) ^a\n' + "".join(f"k{i + 1} = Neg(k{i})\n" for i in range(50))
    after, _ = apply(SimplifyControlEdges(), f"{early}{late}y = AddV2(l60, k50) ^a")
    same(after, f"{early}{late}y = AddV2(l60, k50)")


def test_what_a_result_says_further_on():
    unchanged(SimplifyControlEdges(), HEAD + CALL + 'i = CheckNumerics[message="m"](c:0)\ny = Neg(i) ^c')
    check(
        CALL + 'i = CheckNumerics[message="m"](x) ^c\ny = Neg(i) ^c',
        CALL + 'i = CheckNumerics[message="m"](x) ^c\ny = Neg(i)',
    )
