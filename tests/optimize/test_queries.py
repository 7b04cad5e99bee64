"""Queries of the passes about graphs and operations."""

import pytest

from headrace.ir.opdef import op_registry
from headrace.ir.text import from_text
from headrace.optimize.queries import has_effect, is_silent, is_zeros

OPS = """
    x = Placeholder[dtype=float32, shape=[2]]
    s = Const[value=int32[1]{2}, dtype=int32]
    m = Const[value=string[]{"m"}, dtype=string]
    v = VarHandleOp[dtype=float32, shape=[2]]
    r = VariableV2[dtype=float32, shape=[2]]
    q = FIFOQueueV2[component_types=(float32)]
    n = NoOp
    """


@pytest.mark.parametrize(
    ("op", "has", "silent"),
    [
        ("Neg(x)", False, True),
        ("Neg(r)", False, False),  # if the variable has no value, it fails
        ("FloorDiv(s, s)", False, False),
        ("NoOp ^x", False, True),
        ("_Arg[T=float32, index=0, shape=[2]]", False, True),
        ("Const[value=float32[]{1.0}, dtype=float32]", False, True),
        ("ReadVariableOp[dtype=float32](v)", False, False),
        ("AssignVariableOp(v, x)", True, False),
        ("Assign(r, x)", True, False),
        ("RandomUniform[dtype=float32](s)", True, False),
        ("PrintV2(m)", True, False),
        ('CheckNumerics[message="m"](x)', True, False),
        ("EnsureShape[shape=[2]](x)", True, False),
        ("QueueSizeV2(q)", True, False),  # others may wait for it
        ("QueueEnqueueV2(q, x)", True, False),
        ("QueueDequeueV2[component_types=(float32)](q)", True, False),
    ],
)
def test_effects_and_silence(op, has, silent):
    made = from_text(f"{OPS}y = {op}").get_operation_by_name("y")
    assert has_effect(made) is has
    assert is_silent(made) is silent


def test_what_the_records_say_of_effects():
    """`has_effect` asks for no more than `writes`, `waits` and `checks`."""
    for record in map(op_registry.get, op_registry):
        assert record.facts.writes or record.facts.effect in ("", "resource"), record.type
        assert record.facts.waits or record.async_ is None, record.type


DEEP = """
    function "inner" (a: float32[2]) -> (b) {
      b = Tanh(a)
    }
    x = Placeholder[dtype=float32, shape=[2]]
    p = Placeholder[dtype=bool, shape=[]]
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(bool, float32), Tout=(float32)](p, p, x)
    graph "yes" of c, then_branch (p: bool[], a: float32[2]) -> (d) {
      d = If[then_branch=@"one", else_branch=@"two", Tin=(float32), Tout=(float32)](p, a)
      graph "one" of d, then_branch (b: float32[2]) -> (e) {
        e = PartitionedCall[f=&"inner", Tin=(float32), Tout=(float32)](b)
      }
      graph "two" of d, else_branch (b: float32[2]) -> (b) {
      }
    }
    graph "no" of c, else_branch (p: bool[], a: float32[2]) -> (a) {
    }
    y = Neg(c)
    z = Neg(x) ^y
    """


def test_effects_deep_inside():
    c = from_text(DEEP).get_operation_by_name("c")
    assert not has_effect(c)
    g = from_text(DEEP.replace("Tanh(a)", 'CheckNumerics[message="m"](a)'))
    assert has_effect(g.get_operation_by_name("c"))


def test_functions_that_call_themselves():
    text = DEEP.replace("b = Tanh(a)", 'b = PartitionedCall[f=&"inner", Tin=(float32), Tout=(float32)](k)')
    silent = text.replace("      b = ", "      k = Neg(a)\n      b = ")
    assert not has_effect(from_text(silent).get_operation_by_name("c"))
    checks = text.replace("      b = ", '      k = CheckNumerics[message="m"](a)\n      b = ')
    assert has_effect(from_text(checks).get_operation_by_name("c"))


@pytest.mark.parametrize(
    ("made", "is_nothing", "is_positive"),
    [
        ("ZerosLike(x)", True, True),
        ("Fill(n, zero)", True, True),
        ("Fill(n, minus)", True, False),
        ("Fill(n, one)", False, False),
        ("Fill(n, y)", False, False),
        ("OnesLike(x)", False, False),
        ("Neg(x)", False, False),
        ("Const[value=float32[2]{0, 0}, dtype=float32]", True, True),
        ("Const[value=float32[2]{0, -0.0}, dtype=float32]", True, False),
        ("Const[value=float32[2]{0, 1}, dtype=float32]", False, False),
        ("Const[value=int32[2]{0, 0}, dtype=int32]", True, True),
        ("Const[value=bool[]{false}, dtype=bool]", True, True),
        ('Const[value=string[1]{""}, dtype=string]', False, False),
        ("Const[value=bfloat16[2]{0, 0}, dtype=bfloat16]", True, True),
        ("Const[value=bfloat16[2]{0, -0.0}, dtype=bfloat16]", True, False),
        ("Complex(zero, zero)", True, True),
        ("Complex(minus, zero)", True, False),
        ("Complex(zero, minus)", True, False),
    ],
)
def test_zeros(made, is_nothing, is_positive):
    g = from_text(
        f"""
        x = Placeholder[dtype=float32, shape=[2]]
        y = Placeholder[dtype=float32, shape=[]]
        n = Placeholder[dtype=int32, shape=[1]]
        zero = Const[value=float32[]{{0}}, dtype=float32]
        minus = Const[value=float32[]{{-0.0}}, dtype=float32]
        one = Const[value=float32[]{{1}}, dtype=float32]
        z = {made}
        """
    )
    t = g.get_tensor_by_name("z:0")
    assert is_zeros(t) is is_nothing
    assert is_zeros(t, may_be_negative=False) is is_positive
