"""Common subexpressions."""

import pytest

from headrace.optimize.cse import MergeCommon
from headrace.optimize.dead_code import EliminateDeadCode
from tests.optimize.running import apply, same, unchanged

XY = "x = Placeholder[dtype=float32, shape=[2]]\ny = Placeholder[dtype=float32, shape=[2]]\n"


def test_the_same_is_computed_once():
    after, context = apply(
        MergeCommon(), f"{XY}a = Sub(x, y)\nb = Sub(x, y)\nc = Tanh(a)\nd = Tanh(b)\ne = Mul(c, d)\nf = NoOp ^d"
    )
    same(after, f"{XY}a = Sub(x, y)\nc = Tanh(a)\ne = Mul(c, c)\nf = NoOp ^c")
    assert [(n.op, n.text) for n in context.notes] == [("b", "equal to 'a'"), ("d", "equal to 'c'")]


def test_either_order_of_a_commutative_operation():
    after, _ = apply(MergeCommon(), f"{XY}a = Mul(x, y)\nb = Mul(y, x)\nc = Sub(a, b)")
    same(after, f"{XY}a = Mul(x, y)\nc = Sub(a, a)")
    unchanged(MergeCommon(), f"{XY}a = Sub(x, y)\nb = Sub(y, x)")


@pytest.mark.parametrize("value", ["int32[]{2}", "float32[2]{1.0, -0.0}", "bool[]{true}", "float32[]{nan}"])
def test_constants_of_one_value(value):
    dtype = value.partition("[")[0]
    text = f"a = Const[value={value}, dtype={dtype}]\nb = Const[value={value}, dtype={dtype}]\n"
    after, _ = apply(MergeCommon(), text + "c = Rank(a)\nd = Size(b)")
    same(after, text.split("\n")[0] + "\nc = Rank(a)\nd = Size(a)")


def test_texts_of_one_value():
    text = 'a = Const[value=string[]{"x"}, dtype=string]\nb = Const[value=string[]{"VALUE"}, dtype=string]\nd = Size(b)'
    after, _ = apply(MergeCommon(), text.replace("VALUE", "x"))
    assert "d = Size[T=string](a)" in after
    unchanged(MergeCommon(), text.replace("VALUE", "y"))


@pytest.mark.parametrize(
    "other",
    ["float32[1]{0.0}", "float32[]{-0.0}", "float32[]{1.0}"],  # a dimension, a sign
)
def test_constants_that_differ(other):
    unchanged(
        MergeCommon(),
        f"a = Const[value=float32[]{{0.0}}, dtype=float32]\nb = Const[value={other}, dtype=float32]\nc = Tanh(b)",
    )


def test_constants_of_other_dtypes_or_colocation():
    zero = "a = Const[value=int32[]{0}, dtype=int32]\n"
    unchanged(MergeCommon(), zero + "b = Const[value=uint32[]{0}, dtype=uint32]\nc = Rank(b)")
    unchanged(MergeCommon(), zero + 'b = Const[value=int32[]{0}, dtype=int32, _class=("loc:@a")]\nc = Rank(b)')


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Tanh(x)", "Sin(x)"),
        ("Tanh(x)", "Tanh(y)"),
        ("LeakyRelu[alpha=0.0](x)", "LeakyRelu[alpha=-0.0](x)"),
        ("Tanh(x)", "Tanh(x) ^y"),
        ("Tanh(x) ^x", "Tanh(x) ^y"),
        ("Tanh(x)", 'Tanh[_class=("loc:@x")](x)'),
        ("Tanh(x)", "Tanh{ContiguousResult}(x)"),
        ("FakeParam[dtype=float32, shape=[]]", 'FakeParam[dtype=float32, shape=[]]{FrameName[name="f"]}'),
        ("Tanh[_mark=(0.0, 1.0)](x)", "Tanh[_mark=(-0.0, 1.0)](x)"),
        ("Fill(s, z)", "Fill(s, o)"),
        ("RandomUniform[dtype=float32](s)", "RandomUniform[dtype=float32](s)"),
        ("FakeParam[dtype=float32, shape=[2]]", "FakeParam[dtype=float32, shape=[2]]"),
        ("EmptyTensorList[element_dtype=float32](s, n)", "EmptyTensorList[element_dtype=float32](s, n)"),
        ("Neg(r)", "Neg(r)"),  # reads a reference: at what time matters
    ],
)
def test_what_is_not_the_same(a, b):
    unchanged(
        MergeCommon(),
        f"""
        x = Placeholder[dtype=float32, shape=[2]]
        y = Placeholder[dtype=float32, shape=[2]]
        s = Const[value=int32[1]{{2}}, dtype=int32]
        n = Const[value=int32[]{{4}}, dtype=int32]
        z = Const[value=float32[]{{0.0}}, dtype=float32]
        o = Const[value=float32[]{{1.0}}, dtype=float32]
        v = VarHandleOp[dtype=float32, shape=[2]]
        r = VariableV2[dtype=float32, shape=[2]]
        a = {a}
        b = {b}
        c = Rank(a)
        d = Size(b)
        """,
    )


def test_another_device():
    context = unchanged(MergeCommon(), f'{XY}a = Tanh(x)\nb = Tanh(x) @"/device:CPU:1"')
    assert [(n.op, n.fired) for n in context.notes] == [("b", False)]
    assert context.notes[0].text == "'a' is equal but requests 'no device'"
    context = unchanged(MergeCommon(), f'{XY}a = Tanh(x) @"/device:CPU:1"\nb = Tanh(x)')
    assert context.notes[0].text == "'a' is equal but requests '/device:CPU:1'"
    one = "Const[value=float32[]{1.0}, dtype=float32]"  # a constant on each device is nothing to speak of
    assert unchanged(MergeCommon(), f'a = {one}\nb = {one} @"/device:CPU:1"').notes == []


def test_a_target_stays_but_others_may_become_it():
    unchanged(MergeCommon(), f"{XY}a = Tanh(x)\nb = Tanh(x)", preserved=["b"])
    after, _ = apply(MergeCommon(), f"{XY}a = Tanh(x)\nb = Tanh(x)", preserved=["a"])
    same(after, f"{XY}a = Tanh(x)")


def test_results_of_a_branch():
    text = """
        p = Placeholder[dtype=bool, shape=[]]
        x = Placeholder[dtype=float32, shape=[2]]
        c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32), Tout=(float32, float32)](p, x)
        graph "yes" of c, then_branch (a: float32[2]) -> (t, u) {
          t = Tanh(a)
          u = Tanh(a)
        }
        graph "no" of c, else_branch (a: float32[2]) -> (a, a) {
        }
        """
    after, _ = apply(MergeCommon(), text)
    same(after, text.replace("-> (t, u)", "-> (t, t)").replace("          u = Tanh(a)\n", ""))


TWICE = """
    p = Placeholder[dtype=bool, shape=[]]
    x = Placeholder[dtype=float32, shape=[2]]
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32, float32), Tout=(float32)](p, x, x)
    graph "yes" of c, then_branch (a: float32[2], b: float32[2]) -> (t) {
      t = Sub(a, b)
    }
    graph "no" of c, else_branch (a: float32[2], b: float32[2]) -> (b) {
    }
    y = _Retval[index=0](c)
    """


def test_what_is_given_twice_is_read_by_one_parameter():
    after, context = apply(MergeCommon(), TWICE)
    assert [n.text for n in context.notes] == ["merged 2 parameters that receive the same tensor"]
    same(after, TWICE.replace("Sub(a, b)", "Sub(a, a)").replace("-> (b)", "-> (a)"))
    after, _ = apply((MergeCommon(), EliminateDeadCode()), TWICE)
    assert "If[Tcond=bool, Tin=(float32), Tout=(float32), " in after
    other = TWICE.replace("(p, x, x)", "(p, x, u)").replace("c = If", "u = Neg(x)\n    c = If")
    assert unchanged(MergeCommon(), other).notes == []
    unread = TWICE.replace("Sub(a, b)", "Neg(a)").replace("-> (b)", "-> (a)")
    assert unchanged(MergeCommon(), unread).notes == []


def test_what_only_waits():
    after, _ = apply(MergeCommon(), f"{XY}a = NoOp ^x\nb = NoOp ^x\nc = NoOp ^y\nz = Neg(x) ^a ^b ^c")
    same(after, f"{XY}a = NoOp ^x\nc = NoOp ^y\nz = Neg(x) ^a ^c")


LOOP = """
    n = Placeholder[dtype=int32, shape=[]]
    w = While[cond=@"c", body=@"b", T=(int32, int32, int32)](n, n, n)
    graph "c" of w, cond (i: int32[], k: int32[], l: int32[]) -> (go) {
      go = Less(k, l)
    }
    graph "b" of w, body (i: int32[], k: int32[], l: int32[]) -> (j, k, l) {
      j = AddV2(l, i)
    }
    y = _Retval[index=0](w)
    """


def test_loop_constants_are_but_variables_are_not():
    after, _ = apply(MergeCommon(), LOOP)
    same(after, LOOP.replace("Less(k, l)", "Less(k, k)").replace("AddV2(l, i)", "AddV2(k, i)"))


# *** reads of resources ***

_V = "v = VarHandleOp[dtype=float32, shape=[2]]\nx = Placeholder[dtype=float32, shape=[2]]\n"
_READS = "a = ReadVariableOp[dtype=float32](v){}\nb = Neg(a)\nc = ReadVariableOp[dtype=float32](v){}\nd = Mul(b, c)\n"
_WRITTEN = "the resource that 'a' reads may be written between the two"


@pytest.mark.parametrize(
    ("before", "a", "c", "after"),
    [
        ("", "", "", ""),
        ("w = AssignVariableOp(v, x)\n", " ^w", " ^w", ""),
        ("w = AssignVariableOp(v, x)\ny = Identity(x) ^w\nn = NoOp ^y\n", " ^n", " ^n", ""),
        ("", "", "", "w = AssignVariableOp(v, d)\n"),
        ("", "", "", "w = AssignVariableOp(v, x) ^a ^c\n"),
        ("u = VarHandleOp[dtype=float32, shape=[2]]\n", "", "", "w = AssignVariableOp(u, x)\n"),
        ("s = Shape(x)\nr = RandomUniform[dtype=float32](s)\n", "", "", ""),
    ],
)
def test_reads_between_which_nothing_is_written(before: str, a: str, c: str, after: str) -> None:
    text = _V + before + _READS.format(a, c) + after
    got, context = apply(MergeCommon(), text)
    lines = text.replace("d = Mul(b, c)", "d = Mul(b, a)").replace(" ^a ^c", " ^a").splitlines(keepends=True)
    same(got, "".join(line for line in lines if not line.startswith("c =")))
    assert [(n.op, n.text) for n in context.notes if n.fired] == [("c", "equal to 'a'")]


@pytest.mark.parametrize(
    ("before", "a", "c", "after"),
    [
        ("", "", "", "w = AssignVariableOp(v, x)\n"),
        ("", "", "", "w = AssignVariableOp(v, b)\n"),
        ("w = AssignVariableOp(v, x)\n", "", "", ""),
    ],
)
def test_reads_between_which_something_may_be_written(before: str, a: str, c: str, after: str) -> None:
    context = unchanged(MergeCommon(), _V + before + _READS.format(a, c) + after)
    assert [n.text for n in context.notes] == [_WRITTEN]


def test_reads_that_wait_for_different_operations() -> None:
    assert not unchanged(MergeCommon(), _V + "w = AssignVariableOp(v, x)\n" + _READS.format("", " ^w")).notes
    assert not unchanged(MergeCommon(), _V + "n = NoOp\n" + _READS.format(" ^n", "")).notes


def test_reads_of_other_variables_or_rows() -> None:
    other = "u = VarHandleOp[dtype=float32, shape=[2]]\n" + _READS.format("", "").replace("(v)\nd", "(u)\nd")
    unchanged(MergeCommon(), _V + other)
    row = "ResourceGather[dtype=float32](v, i)\n"
    after, _ = apply(MergeCommon(), f"{_V}i = Const[value=int32[]{{0}}, dtype=int32]\na = {row}c = {row}")
    assert "c =" not in after


def test_draws_of_a_queue_or_a_reference_are_made_each_time() -> None:
    unchanged(MergeCommon(), "q = FIFOQueueV2[component_types=(float32)]\na = QueueSizeV2(q)\nb = QueueSizeV2(q)")
    known = "IsVariableInitialized(v)"
    unchanged(MergeCommon(), f"v = VariableV2[dtype=float32, shape=[2]]\na = {known}\nb = {known}")


def test_reads_around_a_loop_that_writes() -> None:
    loop = """w = While[T=(int32, resource), cond=@"cond", body=@"body"](zero, v)
graph "cond" of w, cond (i: int32[], v: resource[] holds float32[2]) -> (r) {
  r = Less(i, i)
}
graph "body" of w, body (i: int32[], v: resource[] holds float32[2]) -> (i, v) {
  x = Const[value=float32[2]{1.0, 2.0}, dtype=float32]
  a = AssignVariableOp(v, x)
}
"""
    text = _V + "zero = Const[value=int32[]{0}, dtype=int32]\n"
    context = unchanged(MergeCommon(), text + _READS.format("", "") + loop)
    assert [n.text for n in context.notes] == [_WRITTEN]
    after, _ = apply(MergeCommon(), text + _READS.format("", "") + loop.replace("(zero, v)", "(zero, v) ^a ^c"))
    assert "c =" not in after
