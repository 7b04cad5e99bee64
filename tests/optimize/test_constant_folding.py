"""Constant folding, text in, text out."""

import numpy as np
import pytest

from headrace.ir.text import from_text, to_text
from headrace.optimize.base import Options, PassContext
from headrace.optimize.constant_folding import FoldConstants
from headrace.optimize.dead_code import EliminateDeadCode
from headrace.optimize.effects import Effects
from tests.optimize.running import apply, same, unchanged


def test_constants_fold_along_a_chain_in_place():
    after, context = apply(
        FoldConstants(),
        """
        a = Const[value=int32[]{2}, dtype=int32] @"/device:CPU:1"
        b = Const[value=int32[]{3}, dtype=int32]
        c = Mul(a, b) @"/device:CPU:1"
        d = AddV2(c, b)
        """,
    )
    same(
        after,
        """
        a = Const[value=int32[]{2}, dtype=int32] @"/device:CPU:1"
        b = Const[value=int32[]{3}, dtype=int32]
        c = Const[value=int32[]{6}, dtype=int32] @"/device:CPU:1"
        d = Const[value=int32[]{9}, dtype=int32]
        """,
    )
    assert [(n.op, n.text) for n in context.notes] == [("c", "Mul of constants: 6"), ("d", "AddV2 of constants: 9")]


def test_a_folded_operation_keeps_its_line_and_colocation():
    g = from_text('a = Const[value=int32[]{2}, dtype=int32]\nb = Neg[_class=("loc:@a")](a)', "there.py")
    line = g.operations[1].source
    FoldConstants().call(g, PassContext())
    assert g.operations[1].type == "Const"
    assert g.operations[1].source is line
    assert g.operations[1].attrs["_class"] == ("loc:@a",)
    assert not g.operations[1].attrs["value"].flags.writeable


@pytest.mark.parametrize(
    ("op", "value"),
    [("Shape(x)", "int32[2]{8, 3}"), ("Size(x)", "int32[]{24}"), ("Rank(x)", "int32[]{2}")],
)
def test_what_asks_for_a_known_shape(op, value):
    x = "x = _Arg[T=float32, index=0, shape=[8,3]]\n"
    after, _ = apply(FoldConstants(), f"{x}n = {op}")
    same(after, f"{x}n = Const[value={value}, dtype=int32]")


@pytest.mark.parametrize("op", ["Shape(x)", "Size(x)", "ZerosLike(x)"])
def test_a_shape_that_is_not_known_stays(op):
    unchanged(FoldConstants(), f"x = Placeholder[dtype=float32, shape=[?,3]]\nn = {op}")


def test_slices_of_shapes_and_what_is_made_of_them():
    after, _ = apply(
        FoldConstants(),
        """
        x = _Arg[T=float32, index=0, shape=[8,3]]
        s = Shape(x)
        zero = Const[value=int32[1]{0}, dtype=int32]
        one = Const[value=int32[1]{1}, dtype=int32]
        n = StridedSlice[shrink_axis_mask=1](s, zero, one, one)
        y = Placeholder[dtype=float32]
        k = Pack(n, n)
        z = Reshape(y, k)
        """,
    )
    assert "k = Const[value=int32[2]{8, 8}, dtype=int32]" in after
    assert "z = Reshape[T=float32](y, k) : float32[8,8]" in after


def test_more_becomes_known_of_shapes_behind_a_constant():
    g = from_text(
        """
        x = Placeholder[dtype=float32]
        a = Const[value=int32[1]{6}, dtype=int32]
        b = Neg(a)
        c = Neg(b)
        y = Reshape(x, c)
        z = Tanh(y)
        """
    )
    for op in g.operations[-2:]:
        op.outputs[0].shape = None
    FoldConstants().call(g, PassContext())
    assert g.get_tensor_by_name("z:0").shape == (6,)


def test_several_outputs_become_as_many_constants_of_those_that_are_read():
    after, _ = apply(
        FoldConstants(),
        """
        x = _Arg[T=float32, index=0, shape=[8,3]]
        y = _Arg[T=float32, index=1, shape=[2]]
        s = ShapeN(x, y)
        z = Neg(s:1)
        """,
    )
    same(
        after,
        """
        x = _Arg[T=float32, index=0, shape=[8,3]]
        y = _Arg[T=float32, index=1, shape=[2]]
        s_1 = Const[value=int32[1]{2}, dtype=int32]
        z = Const[value=int32[1]{-2}, dtype=int32]
        """.replace("s_1", "s/1"),
    )


def test_one_of_several_outputs_that_is_a_target_stays():
    text = "x = _Arg[T=float32, index=0, shape=[8,3]]\ns = ShapeN(x, x)\nz = Neg(s:1)"
    unchanged(FoldConstants(), text, preserved=["s"])


def test_a_constant_waits_for_what_its_origin_waited_for():
    after, _ = apply(
        FoldConstants(),
        """
        v = VarHandleOp[dtype=float32, shape=[], shared_name="v"]
        x = Placeholder[dtype=float32, shape=[]]
        w = AssignVariableOp(v, x)
        u = AssignAddVariableOp(v, x)
        a = Const[value=int32[]{2}, dtype=int32] ^w
        b = Neg(a) ^u
        """,
    )
    assert "b = Const[value=int32[]{-2}, dtype=int32] ^u ^w" in after


def test_an_effect_that_only_a_shape_reaches_stays_and_stays_first():
    text = """
        v = VarHandleOp[dtype=float32, shape=[3], shared_name="v"]
        x = Placeholder[dtype=float32, shape=[3]]
        w = AssignVariableOp(v, x)
        y = Neg(x) ^w
        a = Shape(y)
        r = ReadVariableOp[dtype=float32](v) ^a
        z = _Retval[index=0](r)
        """
    after, context = apply((Effects(), FoldConstants(), EliminateDeadCode()), text)
    assert "a = Const[value=int32[1]{3}, dtype=int32] :" in after
    assert "r = ReadVariableOp[dtype=float32](v) ^a ^w" in after
    assert [op.name for op in context.preserved] == ["w"]


def test_a_check_that_only_a_shape_reaches_stays():
    x = "x = Placeholder[dtype=float32]\ny = EnsureShape[shape=[3]](x)\nz = Neg(y)\n"
    after, _ = apply((Effects(), FoldConstants(), EliminateDeadCode()), f"{x}n = Shape(z)\no = _Retval[index=0](n)")
    same(
        after,
        "x = Placeholder[dtype=float32]\ny = EnsureShape[shape=[3]](x)\nn = Const[value=int32[1]{3}, dtype=int32]\n"
        "o = _Retval[index=0](n)",
    )


@pytest.mark.parametrize(
    "text",
    [
        "s = Const[value=int32[1]{2}, dtype=int32]\nr = RandomUniform[dtype=float32](s)",  # another one each time
        "a = Const[value=float32[]{2.0}, dtype=float32]\nb = PlaceholderWithDefault[shape=[]](a)",  # no_fold
        'a = Const[value=string[]{"x"}, dtype=string]\nb = Identity(a)',
        "v = VariableV2[shape=[2], dtype=float32]\nn = Shape(v)",  # an assignment may change it
        "s = Const[value=int32[1]{2}, dtype=int32]\nn = Const[value=int32[]{4}, dtype=int32]\n"
        "h = EmptyTensorList[element_dtype=float32](s, n)\nl = TensorListLength(h)",
    ],
)
def test_what_does_not_fold(text):
    unchanged(FoldConstants(), text)


def test_what_fails_is_left_to_fail():
    context = unchanged(
        FoldConstants(),
        """
        one = Const[value=int32[]{1}, dtype=int32]
        zero = Const[value=int32[]{0}, dtype=int32]
        y = FloorDiv(one, zero)
        """,
    )
    assert [(n.op, n.fired) for n in context.notes[:1]] == [("y", False)]
    assert "fails" in context.notes[0].text


FILL = """
    n = Const[value=int32[1]{N}, dtype=int32]
    x = Const[value=float32[]{1.0}, dtype=float32]
    y = Fill(n, x)
    """


def test_what_is_large_is_not_kept():
    apply_ = apply(FoldConstants(), FILL.replace("N", "16384"))[0]
    assert "y = Const" in apply_
    context = unchanged(FoldConstants(), FILL.replace("N", "16385"))
    assert "times more than its inputs" in context.notes[0].text
    context = unchanged(FoldConstants(), FILL.replace("N", "300"), options=Options(fold_bytes=1199))
    assert "the limit for constants is 1199" in context.notes[0].text
    assert "y = Const" in apply(FoldConstants(), FILL.replace("N", "300"), options=Options(fold_bytes=1200))[0]


def test_large_from_large_is_kept():
    g = from_text("a = Const[value=float32[20000]{1.0...}, dtype=float32]\nb = Neg(a)")
    assert FoldConstants().call(g, PassContext())
    np.testing.assert_array_equal(g.operations[1].attrs["value"], np.full(20000, -1, np.float32))


def test_graphs_of_primitives_are_left_alone():
    text = """
        p = Placeholder[dtype=bool, shape=[]]
        x = Const[value=float32[]{1.0}, dtype=float32]
        s = Switch(x, p)
        n = Shape(s:1)
        """
    context = unchanged(FoldConstants(), text)
    assert "primitives" in context.ran[0][0]
    assert "n = Shape" in to_text(from_text(text))


def test_the_shape_of_a_variable_that_is_read_waits_for_that():
    # which fails if there is no value
    v = "v = VarHandleOp[dtype=float32, shape=[3]]\nr = ReadVariableOp[dtype=float32](v) : float32[3]\n"
    after, _ = apply(FoldConstants(), f"{v}n = Shape(r)")
    assert "n = Const[value=int32[1]{3}, dtype=int32] ^r" in after
    v = "v = VariableV2[shape=[3], dtype=float32]\nr = Neg(v)\n"
    after, _ = apply(FoldConstants(), f"{v}n = Shape(r)")
    assert "n = Const[value=int32[1]{3}, dtype=int32] ^r" in after


def test_the_shape_of_what_is_to_be_fed_waits_for_that():
    after, _ = apply(FoldConstants(), "x = Placeholder[dtype=float32, shape=[3]]\nn = Shape(x)")
    assert "n = Const[value=int32[1]{3}, dtype=int32] ^x" in after


def test_a_shape_of_a_constant_that_waits():
    x = "x = _Arg[T=float32, index=0, shape=[3]]\nw = NoOp\nc = Const[value=float32[]{1.0}, dtype=float32] ^w\n"
    after, _ = apply(FoldConstants(), f"{x}s = ShapeN(c, x)\nn = Rank(s:0)\nm = Neg(s:1)")
    assert "n = Const[value=int32[]{1}, dtype=int32] ^w" in after


def test_a_result_whose_size_cannot_be_told_before():
    text = "c = Const[value=bool[N]{true...}, dtype=bool]\ni = Where(c)"
    assert "i = Const" in apply(FoldConstants(), text.replace("N", "100"))[0]
    context = unchanged(FoldConstants(), text.replace("N", "65537"))
    assert "the size of its result is unknown" in context.notes[0].text
    context = unchanged(FoldConstants(), text.replace("N", "65536"))
    assert "times more than its inputs" in context.notes[0].text


def test_handles_and_references_are_not_tried():
    h = "s = Const[value=int32[1]{2}, dtype=int32]\nn = Const[value=int32[]{4}, dtype=int32]\n"
    context = unchanged(
        FoldConstants(), h + "h = EmptyTensorList[element_dtype=float32](s, n)\nl = TensorListLength(h)"
    )
    assert context.notes == []
    unchanged(FoldConstants(), "v = VariableV2[shape=[2], dtype=float32] : float32_ref[2]\nn = Shape(v)")


@pytest.mark.parametrize("value", [np.zeros(3, np.int32), np.zeros(2, np.float64)])
def test_what_kernels_and_inference_do_not_agree_on_stays(monkeypatch, value):
    monkeypatch.setattr("headrace.optimize.constant_folding.constant_kernel", lambda op: lambda x: value)
    context = unchanged(FoldConstants(), "a = Const[value=int32[2]{1, 2}, dtype=int32]\nb = Neg(a)")
    assert "from the graph" in context.notes[0].text
