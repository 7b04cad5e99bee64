"""`ir.infer` and `ir.analysis.loop_shapes`: static shapes and values before a run."""

import numpy as np
import pytest

from headrace import dtypes, thresholds
from headrace.errors import ShapeError
from headrace.ir.infer import constant_value, scalar_value, shape_value
from headrace.ir.text import from_text


def tensors(text):
    g = from_text(text)
    return {op.name: op.outputs[0] for op in g.operations if op.outputs}


def test_shapes_flow():
    t = tensors("""
        x = Placeholder[dtype=float32, shape=[2,?]]
        y = Placeholder[dtype=float32, shape=[?,3]]
        z = AddV2(x, y)
        m = MatMul(x, y)
    """)
    assert t["z"].shape == (2, 3)
    assert t["m"].shape == (2, 3)


def test_errors_name_the_operation_and_its_inputs():
    with pytest.raises(
        ShapeError,
        match=r"Dimensions must be equal.* for 'z' .op: 'AddV2'. with inputs x:0: float32\[2\], y:0: float32\[3\]",
    ):
        tensors("""
            x = Placeholder[dtype=float32, shape=[2]]
            y = Placeholder[dtype=float32, shape=[3]]
            z = AddV2(x, y)
        """)


def test_constants_are_known():
    t = tensors("""
        a = Const[value=int32[2]{1, 2}, dtype=int32]
        b = AddV2(a, a)
        x = Placeholder[dtype=int32, shape=[2]]
        c = AddV2(a, x)
        p = Const[value=bool[]{true}, dtype=bool]
        s = Switch(a, p)
        d = PlaceholderWithDefault[shape=[2]](a)
    """)
    np.testing.assert_array_equal(constant_value(t["b"]), [2, 4])
    assert not constant_value(t["b"]).flags.writeable
    assert constant_value(t["c"]) is None
    assert constant_value(t["s"]) is None
    assert constant_value(t["d"]) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = Const[value=int64[]{-4}, dtype=int64]", -4),
        ("x = Const[value=int32[]{7}, dtype=int32]", 7),
        ("x = Const[value=int32[1]{7}, dtype=int32]", None),
        ("x = Const[value=float32[]{7}, dtype=float32]", None),
        ("x = Const[value=bool[]{true}, dtype=bool]", None),
        ("x = Placeholder[dtype=int32, shape=[]]", None),
    ],
)
def test_only_integer_scalars_have_a_scalar_value(text, expected):
    (op,) = from_text(text).operations
    assert scalar_value(op.outputs[0]) == expected


def test_shape_of_a_known_shape_is_a_constant():
    t = tensors("""
        x = Placeholder[dtype=float32, shape=[2,3]]
        y = Placeholder[dtype=float32, shape=[2,?]]
        sx = Shape(x)
        sy = Shape(y)
    """)
    np.testing.assert_array_equal(constant_value(t["sx"]), [2, 3])
    assert constant_value(t["sy"]) is None
    assert shape_value(t["sy"]) == (2, None)
    assert t["sy"].shape == (2,)


def test_shapes_flow_through_shape_arithmetic():
    t = tensors("""
        x = Placeholder[dtype=float32, shape=[2,?]]
        s = Shape(x)
        i = Identity(s)
        f = Const[value=float32[]{0}, dtype=float32]
        y = Fill(i, f)
    """)
    assert t["y"].shape == (2, None)


def test_an_unknown_shape_vector_gives_a_rank():
    t = tensors("""
        s = Placeholder[dtype=int32, shape=[3]]
        u = Placeholder[dtype=int32]
        f = Const[value=float32[]{0}, dtype=float32]
        y = Fill(s, f)
        z = Fill(u, f)
    """)
    assert t["y"].shape == (None, None, None)
    assert t["z"].shape is None


def test_what_fails_is_not_known():
    t = tensors("""
        a = Const[value=int32[]{1}, dtype=int32]
        z = Const[value=int32[]{0}, dtype=int32]
        q = FloorDiv(a, z)
    """)
    assert constant_value(t["q"]) is None


def test_large_values_are_left_alone():
    n = 10**13
    t = tensors(f"""
        big = Const[value=int32[{n}]{{1...}}, dtype=int32]
        sum = AddV2(big, big)
        zero = Const[value=int32[]{{0}}, dtype=int32]
        total = Sum(big, zero)
        over = Sum(big, big)
        some = Const[value=float32[{thresholds.INFERENCE_ELEMENTS + 1}]{{1...}}, dtype=float32]
        more = Neg(some)
    """)
    assert t["sum"].shape == (n,)
    assert constant_value(t["sum"]) is None
    assert constant_value(t["total"]) is None
    assert constant_value(t["more"]) is None


@pytest.mark.matrix
def test_long_chains_are_no_problem():
    lines = ["x0 = Placeholder[dtype=int32, shape=[2]]", "f = Const[value=float32[]{0}, dtype=float32]"]
    lines += [f"x{i} = Identity(x{i - 1})" for i in range(1, 3000)]
    lines += ["y = Fill(x2999, f)"]
    assert tensors("\n".join(lines))["y"].shape == (None, None)
    lines = ["x0 = Const[value=int32[2]{1, 2}, dtype=int32]"]
    lines += [f"x{i} = AddV2(x{i - 1}, x{i - 1})" for i in range(1, 3000)]
    t = tensors("\n".join(lines))
    assert t["x2999"].shape == (2,)
    constant_value(t["x2999"])  # known or not, it comes to an end


def test_shape_arithmetic_that_forks_takes_linear_time():
    lines = """
        x0 = Placeholder[dtype=int32, shape=[2]]
        f = Const[value=float32[]{0}, dtype=float32]
        z = Const[value=int32[]{0}, dtype=int32]
        b = Const[value=int32[1]{0}, dtype=int32]
        e = Const[value=int32[1]{1}, dtype=int32]
    """.split("\n")
    for i in range(60):
        lines += [f"s{i} = StridedSlice(x{i}, b, e, e)", f"x{i + 1} = ConcatV2[N=2](s{i}, s{i}, z)"]
    lines += ["y = Fill(x60, f)"]
    assert tensors("\n".join(lines))["y"].shape == (None, None)


# *** loops ***

LOOP = """
    x = Placeholder[dtype=float32, shape={shape}]
    p = Placeholder[dtype=bool, shape=[]]
    e = Enter[frame_name="f"](x)
    m = Merge(e, n)
    c = LoopCond(pe)
    s = Switch(m, c)
    {body}
    n = NextIteration(b)
    out = Exit(s)
"""
ENTER = 'pe = Enter[frame_name="f", is_constant=true](p)'


def loop(shape, body, more=""):
    text = LOOP.format(shape=shape, body=body).replace("    e =", f"    {ENTER}\n    e =")
    return tensors(text + more)


@pytest.mark.parametrize(
    ("shape", "body", "want"),
    [
        ("[2,3]", "b = Neg(s:1)", (2, 3)),
        ("[?,3]", "b = Neg(s:1)", (None, 3)),
        ("<unknown>", "b = Neg(s:1)", None),
        ("[2,3]", "ax = Const[value=int32[]{0}, dtype=int32] ^s\n    b = ConcatV2(s:1, s:1, ax)", (None, 3)),
        ("[2]", "ax = Const[value=int32[]{0}, dtype=int32] ^s\n    b = ExpandDims(s:1, ax)", None),
        ("[3,3]", "b = MatMul(s:1, s:1)", (3, 3)),
        ("[3,4]", "b = MatMul[transpose_a=true](s:1, s:1)", (None, 4)),
    ],
)
def test_loop_variables(shape, body, want):
    if "ConcatV2" in body:
        body = body.replace("ConcatV2(", "ConcatV2[N=2](")
    t = loop(shape, body)
    assert t["m"].shape == t["out"].shape == want
    assert t["m"].op.outputs[1].shape == ()


def test_several_variables_settle_together():
    # a takes b's shape, b takes c's, c grows: all three are unknown in the end, though no round tells all of them.
    lines = ["p = Placeholder[dtype=bool, shape=[]]", ENTER, "c = LoopCond(pe)"]
    k = 8
    for i in range(k):
        lines += [
            f"x{i} = Placeholder[dtype=float32, shape=[2]]",
            f'e{i} = Enter[frame_name="f"](x{i})',
            f"m{i} = Merge(e{i}, n{i})",
            f"s{i} = Switch(m{i}, c)",
        ]
    lines += ["ax = Const[value=int32[]{0}, dtype=int32] ^s0", f"b = ConcatV2[N=2](s{k - 1}:1, s{k - 1}:1, ax)"]
    lines += [f"n{i} = NextIteration({'b' if i == k - 1 else f's{i + 1}:1'})" for i in range(k)]
    t = tensors("\n".join(lines))
    assert all(t[f"m{i}"].shape in (None, (None,)) for i in range(k))


def test_nested_loops():
    t = tensors(f"""
        x = Placeholder[dtype=float32, shape=[2]]
        p = Placeholder[dtype=bool, shape=[]]
        {ENTER}
        e = Enter[frame_name="f"](x)
        m = Merge(e, n)
        c = LoopCond(pe)
        s = Switch(m, c)
        ie = Enter[frame_name="g"](s:1)
        ip = Enter[frame_name="g", is_constant=true](pe)
        im = Merge(ie, in)
        ic = LoopCond(ip)
        is = Switch(im, ic)
        ax = Const[value=int32[]{{0}}, dtype=int32] ^is
        ib = ConcatV2[N=2](is:1, is:1, ax)
        in = NextIteration(ib)
        io = Exit(is)
        n = NextIteration(io)
        out = Exit(s)
    """)
    assert t["m"].shape == t["im"].shape == t["out"].shape == (None,)


def test_a_branch_that_never_runs_may_be_wrong():
    t = loop("[3]", "b = Neg(s:1)\n    bad = MatMul(s:1, s:1)")
    assert t["bad"].shape == (None, None)
    assert t["m"].shape is None
    assert t["x"].shape == (3,)


def test_references_and_dtypes_are_kept():
    t = tensors("x = Placeholder[dtype=float32, shape=[2]]\ny = Identity(x)")
    assert t["y"].dtype is dtypes.float32
