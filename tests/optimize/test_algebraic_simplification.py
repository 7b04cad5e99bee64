"""Operations that return their input unchanged, bit for bit, are bypassed."""

import numpy as np
import pytest

from headrace.optimize.algebraic_simplification import SimplifyAlgebra
from headrace.optimize.dead_code import EliminateDeadCode
from headrace.optimize.effects import Effects
from tests.optimize.running import apply, same, unchanged

X = "x = Placeholder[dtype=float32, shape=[8,3]]\n"
N = "x = Placeholder[dtype=int32, shape=[8,3]]\n"
P = "x = Placeholder[dtype=bool, shape=[]]\n"


def const(name, dtype, value, shape=""):
    return f"{name} = Const[value={dtype}[{shape}]{{{value}}}, dtype={dtype}]\n"


@pytest.mark.parametrize("type", ["Identity", "StopGradient", "Snapshot"])
def test_what_hands_on_its_input(type):
    after, context = apply(SimplifyAlgebra(), f"{X}y = {type}(x)\nz = Tanh(y)\nn = NoOp ^y")
    same(after, f"{X}z = Tanh(x)\nn = NoOp ^x")
    assert [n.text for n in context.notes] == [f"{type} returns 'x:0' unchanged"]


@pytest.mark.parametrize("type", ["PlaceholderWithDefault[shape=[8,3]]", 'CheckNumerics[message="m"]'])
def test_what_may_be_fed_or_fail_is_not_bypassed(type):
    unchanged(SimplifyAlgebra(), f"{X}y = {type}(x)\nz = Tanh(y)")


@pytest.mark.parametrize(
    ("before", "op"),
    [
        (N + const("n", "int32", 0), "AddV2(x, n)"),
        (N + const("n", "int32", 0), "AddV2(n, x)"),
        (N + const("n", "int32", 0), "Sub(x, n)"),
        (N + const("n", "int32", 1), "Mul(n, x)"),
        (N + const("n", "int32", 1), "FloorDiv(x, n)"),
        (N + const("n", "int32", 1), "TruncateDiv(x, n)"),
        (X + const("n", "float32", "-0.0"), "AddV2(x, n)"),
        (X + const("n", "float32", "0.0"), "Sub(x, n)"),
        (X + const("n", "float32", "1.0"), "Mul(x, n)"),
        (X + const("n", "float32", "1.0"), "RealDiv(x, n)"),
        (X + const("n", "float32", "1.0"), "Div(x, n)"),
        (X + const("n", "float32", "1.0, 1.0, 1.0", "3"), "Mul(x, n)"),
        (X + const("n", "float32", "1.0", "1,1"), "Mul(x, n)"),
        (P + const("n", "bool", "true"), "LogicalAnd(x, n)"),
        (P + const("n", "bool", "false"), "LogicalOr(n, x)"),
        (N + "n = Neg(x)\n", "Neg(n)"),
        (N + "n = Invert(x)\n", "Invert(n)"),
        (P + "n = LogicalNot(x)\n", "LogicalNot(n)"),
        (X + const("n", "int32", "0, 1", "2"), "Transpose(x, n)"),
        (X + const("p", "int32", "1, 0", "2") + "n = Transpose(x, p)\n", "Transpose(n, p)"),
        (X, "Cast[SrcT=float32, DstT=float32](x)"),
        (X + "n = Cast[SrcT=float32, DstT=float64](x)\n", "Cast[SrcT=float64, DstT=float32](n)"),
        (X + const("n", "int32", "8, 3", "2"), "Reshape(x, n)"),
        (X + const("n", "int32", "8, 3", "2"), "BroadcastTo(x, n)"),
        (X, "EnsureShape[shape=[?,3]](x)"),
        (N + "n = Cast[SrcT=int32, DstT=int64](x)\n", "Cast[SrcT=int64, DstT=int32](n)"),
        (X.replace("]]", ']] @"/device:CPU:1"'), "Identity(x)"),
    ],
)
def test_what_changes_nothing(before, op):
    after, _ = apply(SimplifyAlgebra(), f"{before}y = {op}\nz = Rank(y)\nk = NoOp ^y")
    same(after, f"{before}z = Rank(x)\nk = NoOp ^x")


@pytest.mark.parametrize(
    ("before", "op"),
    [
        (X + const("n", "float32", "0.0"), "AddV2(x, n)"),  # -0.0 would become 0.0
        (X + const("n", "float32", "-0.0"), "Sub(x, n)"),
        (X + const("n", "float32", "0.0"), "Sub(n, x)"),
        (X + const("n", "float32", "-0.0, 0.0, -0.0", "3"), "AddV2(x, n)"),
        (X + const("n", "float32", "1.0, 2.0, 1.0", "3"), "Mul(x, n)"),
        (X + const("n", "float32", "1.0"), "RealDiv(n, x)"),
        (X + const("n", "float32", "1.0"), "FloorDiv(x, n)"),
        (X + const("n", "float32", "1.0", "1,1,1"), "Mul(x, n)"),  # one dimension more
        ("x = Placeholder[dtype=float32, shape=[1,3]]\n" + const("n", "float32", "1.0, 1.0", "2,1"), "Mul(x, n)"),
        ("x = Placeholder[dtype=float32]\n" + const("n", "float32", "1.0, 1.0", "2"), "Mul(x, n)"),
        ("x = Placeholder[dtype=float32]\n" + const("n", "float32", "1.0", "1"), "Mul(x, n)"),
        ("x = Placeholder[dtype=float32, shape=[?,3]]\n" + const("n", "float32", "1.0, 1.0, 1.0", "1,3"), "Mul(x, n)"),
        ("x = Placeholder[dtype=complex64, shape=[]]\n" + const("n", "complex64", "1.0+0.0j"), "Mul(x, n)"),
        (P + const("n", "bool", "false"), "LogicalAnd(x, n)"),
        (P + const("n", "bool", "true"), "LogicalOr(n, x)"),
        (N + "n = Neg(x)\n", "Invert(n)"),
        (N + const("n", "int32", 5), "Sub(x, n)"),
        (N + const("n", "int32", 5), "AddV2(x, n)"),
        ("x = VariableV2[dtype=float32, shape=[]]\nn = Neg(x)\n", "Neg(n)"),
        (X + "n = Placeholder[dtype=int32, shape=[2]]\n", "Transpose(x, n)"),
        (X + const("p", "int32", "1, 0", "2") + "n = Tile(x, p)\n", "Transpose(n, p)"),
        (X + const("p", "int32", "1, 0", "2") + "n = Transpose(x, p) ^x\n", "Transpose(n, p)"),
        (X + "p = Placeholder[dtype=int32, shape=[2]]\nn = Transpose(x, p)\n" + const("q", "int32", "1, 0", "2"),
         "Transpose(n, q)"),
        (X + "n = Cast[SrcT=float32, DstT=float64](x) ^x\n", "Cast[SrcT=float64, DstT=float32](n)"),
        ("x = Placeholder[dtype=int64, shape=[]]\nn = Cast[SrcT=int64, DstT=float64](x)\n",
         "Cast[SrcT=float64, DstT=int64](n)"),
        ("x = Placeholder[dtype=int64, shape=[]]\nn = Cast[SrcT=int64, DstT=int32](x)\n",
         "Cast[SrcT=int32, DstT=int64](n)"),
        ("x = Placeholder[dtype=int64, shape=[]]\nn = Neg(x)\n", "Cast[SrcT=int64, DstT=int32](n)"),
        (N + 'n = Neg(x) @"/device:CPU:1"\n', "Neg(n)"),
        (N + "n = Neg(x) ^x\n", "Neg(n)"),
        (X + const("n", "int32", "1, 0", "2"), "Transpose(x, n)"),
        ("x = Placeholder[dtype=float32]\n" + const("n", "int32", "0, 1", "2"), "Transpose(x, n)"),  # may fail
        ("x = Placeholder[dtype=float32, shape=[2,3,4]]\n" + const("p", "int32", "1, 2, 0", "3")
         + "n = Transpose(x, p)\n", "Transpose(n, p)"),
        (X + "n = Cast[SrcT=float32, DstT=float16](x)\n", "Cast[SrcT=float16, DstT=float32](n)"),
        (X + "n = Cast[SrcT=float32, DstT=float64](x)\n", "Cast[SrcT=float64, DstT=int32](n)"),
        (N + "n = Cast[SrcT=int32, DstT=float32](x)\n", "Cast[SrcT=float32, DstT=int32](n)"),
        (X + const("n", "int32", "3, 8", "2"), "Reshape(x, n)"),
        ("x = Placeholder[dtype=float32, shape=[?,3]]\n", "EnsureShape[shape=[8,3]](x)"),
        ("x = Placeholder[dtype=float32, shape=[?]]\nn = Shape(x)\n", "Reshape(x, n)"),  # not known to be its own
    ],
)  # fmt: skip
def test_what_changes_something(before, op):
    unchanged(SimplifyAlgebra(), f"{before}y = {op}\nz = Rank(y)")


def test_what_waits_is_left_alone():
    context = unchanged(SimplifyAlgebra(), f"{X}w = NoOp\ny = Identity(x) ^w\nz = Tanh(y)")
    assert [n.text for n in context.notes] == ["it has the control input 'w'"]


def test_a_device_of_its_own_is_what_it_may_be_there_for():
    context = unchanged(SimplifyAlgebra(), f'{X}y = Identity(x) @"/device:CPU:1"\nz = Tanh(y)')
    assert "requests device '/device:CPU:1'" in context.notes[0].text
    on = X.replace("]]", ']] @"/device:CPU:1"')
    after, _ = apply(SimplifyAlgebra(), f'{on}y = Identity(x) @"/device:CPU:1"\nz = Tanh(y)')
    same(after, f"{on}z = Tanh(x)")


def test_a_target_stays():
    unchanged(SimplifyAlgebra(), f"{X}y = Identity(x)\nz = Tanh(y)", preserved=["y"])


def test_what_reads_a_reference_stays():
    unchanged(SimplifyAlgebra(), "v = VariableV2[shape=[], dtype=float32]\ny = Identity(v)\nz = Tanh(y)")


def test_a_shape_that_is_known_better_behind():
    x = "a = Placeholder[dtype=float32]\nx = Tanh(a)\n"
    after, _ = apply(SimplifyAlgebra(), f"{x}y = Identity(x) : float32[3]\nz = Neg(y)")
    assert "x = Tanh[T=float32](a) : float32[3]" in after
    arg = "x = _Arg[T=float32, index=0, shape=[?]] : float32[?]\n"
    context = unchanged(SimplifyAlgebra(), f"{arg}y = Identity(x) : float32[3]\nz = Neg(y)")
    assert "its static shape is more specific" in context.notes[0].text


def test_one_reshape_of_two():
    shapes = const("s", "int32", "24", "1") + const("t", "int32", "4, 6", "2")
    after, context = apply(SimplifyAlgebra(), f"{X}{shapes}y = Reshape(x, s)\nz = Reshape(y, t)")
    same(after, f"{X}{shapes}y = Reshape(x, s)\nz = Reshape(x, t)")
    assert "reads the input of 'y' directly" in context.notes[0].text


@pytest.mark.parametrize("first", ["BroadcastTo(x, s)", "Reshape(x, s) ^x", 'Reshape(x, s) @"/device:CPU:1"'])
def test_what_is_not_just_a_first_reshape_stays(first):
    shapes = const("s", "int32", "2, 8, 3", "3") if "Broad" in first else const("s", "int32", "24", "1")
    shapes += const("t", "int32", "-1, 6", "2")
    unchanged(SimplifyAlgebra(), f"{X}{shapes}y = {first}\nz = Reshape(y, t)")


def test_a_first_reshape_that_may_fail_stays():
    x = "x = Placeholder[dtype=float32]\n"
    shapes = const("s", "int32", "24", "1") + const("t", "int32", "4, 6", "2")
    unchanged(SimplifyAlgebra(), f"{x}{shapes}y = Reshape(x, s)\nz = Reshape(y, t)")


BRANCHES = """
    p = Placeholder[dtype=bool, shape=[]]
    x = Placeholder[dtype=float32, shape=[2]]
    u = Placeholder[dtype=float32, shape=[2]]
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32, float32), Tout=(float32, float32)](p, x, u)
    graph "yes" of c, then_branch (a: float32[2], b: float32[2]) -> (b, t) {
      t = Tanh(a)
    }
    graph "no" of c, else_branch (a: float32[2], b: float32[2]) -> (b, a) {
    }
    y = Neg(c:0)
    z = Neg(c:1)
    """


def test_a_result_that_is_the_same_input_in_all_branches():
    after, context = apply(SimplifyAlgebra(), BRANCHES)
    same(after, BRANCHES.replace("Neg(c:0)", "Neg(u)"))
    assert [(n.op, n.text) for n in context.notes] == [("c", "returns 1 of its inputs unchanged")]


def test_a_conditional_with_an_effect_goes_on_having_it():
    text = BRANCHES.replace("float32[2]) -> (b, t) {", "float32[2]) -> (b, t) ^say {\n      say = PrintV2(m)").replace(
        "say = PrintV2(m)", 'm = Const[value=string[]{"m"}, dtype=string]\n      say = PrintV2(m)'
    )
    after, context = apply((Effects(), SimplifyAlgebra()), text + RETURNS)
    assert "y = Neg[T=float32](u)" in after
    assert "c" in [op.name for op in context.preserved]


RETURNS = "r = _Retval[index=0](y)\n    s = _Retval[index=1](z)\n"


LOOP = """
    n = Placeholder[dtype=int32, shape=[]]
    i = Const[value=int32[]{0}, dtype=int32]
    w = While[cond=@"c", body=@"b", T=(int32, int32)](i, n)
    graph "c" of w, cond (i: int32[], n: int32[]) -> (go) {
      go = Less(i, n)
    }
    graph "b" of w, body (i: int32[], n: int32[]) -> (j, n) {
      one = Const[value=int32[]{1}, dtype=int32]
      j = AddV2(i, one)
    }
    y = Neg(w:0)
    z = Neg(w:1)
    """


def test_what_a_loop_does_not_change_comes_out_as_it_went_in():
    after, _ = apply(SimplifyAlgebra(), LOOP)
    same(after, LOOP.replace("Neg(w:1)", "Neg(n)"))


def test_an_identity_of_a_result_is_not_bypassed_for_those_that_wait():
    # a control edge from the loop would wait for the whole loop
    text = LOOP.replace("y = Neg(w:0)", "e = Identity(w:0)\n    y = Neg(e)\n    k = NoOp ^e")
    after, _ = apply(SimplifyAlgebra(), text)
    same(after, text.replace("Neg(e)", "Neg(w:0)").replace("Neg(w:1)", "Neg(n)"))


def test_an_identity_in_a_body_makes_a_loop_constant():
    text = LOOP.replace("(j, n) {", "(j, m) {\n      m = Identity(n)")
    after, _ = apply(SimplifyAlgebra(), text)
    same(after, LOOP.replace("Neg(w:1)", "Neg(n)"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_small_floats_too(dtype):
    x = f"x = Placeholder[dtype={dtype}, shape=[]]\n"
    after, _ = apply(SimplifyAlgebra(), f"{x}{const('n', dtype, '-0.0')}y = AddV2(x, n)\nz = Tanh(y)")
    assert f"z = Tanh[T={dtype}](x)" in after
    unchanged(SimplifyAlgebra(), f"{x}{const('n', dtype, '0.0')}y = AddV2(x, n)\nz = Tanh(y)")


def test_that_the_numbers_are_what_they_are_taken_for():
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -3.5], np.float32)
    for y in (
        x + np.float32(-0.0),
        x - np.float32(0.0),
        x * np.float32(1),
        x / np.float32(1),
        np.negative(np.negative(x)),
    ):
        assert y.tobytes() == x.tobytes()
    assert (x + np.float32(0)).tobytes() != x.tobytes()


def test_text_is_not_added():
    text = "x = Placeholder[dtype=string, shape=[]]\n" + 'n = Const[value=string[]{""}, dtype=string]\n'
    unchanged(SimplifyAlgebra(), f"{text}y = Add(x, n)\nz = Rank(y)")


@pytest.mark.parametrize("op", ["Mul(x, n)", "Reshape(x, s)"])
def test_a_check_before_a_bypassed_operand_is_still_made(op):
    text = f"""
        x = Placeholder[dtype=float32, shape=[2]]
        c = CheckNumerics[message="m"](x)
        n = Const[value=float32[]{{1.0}}, dtype=float32] ^c
        s = Const[value=int32[1]{{2}}, dtype=int32] ^c
        y = {op}
        z = Tanh(y)
        r = _Retval[index=0](z)
        """
    after, _ = apply((Effects(), SimplifyAlgebra(), EliminateDeadCode()), text)
    assert "z = Tanh[T=float32](x)" in after
    assert "c = CheckNumerics" in after


def test_an_operation_that_waits_is_not_bypassed():
    text = """
        x = Placeholder[dtype=float32, shape=[2]]
        c = CheckNumerics[message="m"](x)
        m = Neg(x) ^c
        y = Neg(m)
        z = Tanh(y)
        """
    unchanged(SimplifyAlgebra(), text)


def test_two_of_what_is_checked_undo_each_other():
    x = 'a = Placeholder[dtype=float32, shape=[2]]\nx = CheckNumerics[message="m"](a)\n'
    after, _ = apply(SimplifyAlgebra(), f"{x}n = Neg(x)\ny = Neg(n)\nz = Tanh(y)")
    same(after, f"{x}n = Neg(x)\nz = Tanh(x)")


def test_a_check_before_the_choice_of_a_branch_is_still_made():
    checked = """    q = Cast[SrcT=bool, DstT=float32](p)
    k = CheckNumerics[message="m"](q)
    o = Cast[SrcT=float32, DstT=bool](k)
    x = P"""
    text = BRANCHES.replace("    x = P", checked).replace("(p, x, u)", "(o, x, u)").replace("    z = Neg(c:1)\n", "")
    after, _ = apply((Effects(), SimplifyAlgebra(), EliminateDeadCode()), text + "    r = _Retval[index=0](y)")
    assert "y = Neg[T=float32](u)" in after
    assert "If" not in after
    assert "k = CheckNumerics" in after


def test_a_loop_with_an_effect_goes_on_having_it():
    say = 'm = Const[value=string[]{"m"}, dtype=string]\n      say = PrintV2(m)\n      one ='
    text = LOOP.replace("(j, n) {", "(j, n) ^say {").replace("one =", say)
    after, context = apply((Effects(), SimplifyAlgebra()), text + RETURNS)
    assert "z = Neg[T=int32](n)" in after
    assert "w" in [op.name for op in context.preserved]


def test_not_of_a_reference():
    unchanged(SimplifyAlgebra(), BRANCHES.replace("u = Placeholder[", "u = VariableV2["))


def test_an_identity_of_a_result_for_which_nobody_waits_goes():
    text = LOOP.replace("Neg(w:1)", "Neg(n)")
    after, _ = apply(SimplifyAlgebra(), text.replace("y = Neg(w:0)", "e = Identity(w:0)\n    y = Neg(e)"))
    same(after, text)


def test_what_a_call_hands_on_does_not_wait_for_it():
    text = """
    a = Placeholder[dtype=float32, shape=[2]]
    x = CheckNumerics[message="m"](a)
    c = PartitionedCall[f=@"f", Tin=(float32, float32), Tout=(float32)](x, a)
    graph "f" of c, f (b: float32[2], d: float32[2]) -> (d) {
    }
    y = Neg(c)
    """
    after, _ = apply(SimplifyAlgebra(), text)
    same(after, text.replace("Neg(c)", "Neg(a)"))


def test_a_first_reshape_of_a_reference_stays():
    # which is read when it runs, and not again when the second does
    shapes = const("s", "int32", "24", "1") + const("t", "int32", "4, 6", "2")
    unchanged(
        SimplifyAlgebra(),
        f"v = VariableV2[shape=[8,3], dtype=float32]\n{shapes}y = Reshape(v, s)\nz = Reshape(y, t)\nk = Rank(y)",
    )
