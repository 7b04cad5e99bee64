"""The walk by which passes replace operations.

The tests are about facts that become known on the way, and facts that must not be lost.
"""

from headrace import dtypes
from headrace.ir.graph import Operation
from headrace.ir.text import from_text
from headrace.ir.verify import verify
from headrace.optimize.algebraic_simplification import SimplifyAlgebra
from headrace.optimize.base import PassContext
from headrace.optimize.branch_elimination import EliminateBranches
from headrace.optimize.rewriter import Rewriter
from tests.optimize.running import apply, same


def replaced(text: str, old: str, new: str) -> dict[str, Operation]:
    """Replaces `old` by `new`; returns the operations by name.

    No shapes are inferred in `text` before that.
    """
    g = from_text(text)
    walking = Rewriter(g, PassContext())
    for op in walking:
        if op.name == old:
            walking.replace(op, g.get_operation_by_name(new).outputs, ())
    assert walking.finish()
    verify(g)
    return {op.name: op for op in g.operations}


def test_shapes_of_what_reads_something_better_known():
    ops = replaced(
        """
        x = Placeholder[dtype=float32, shape=[2]]
        u = Placeholder[dtype=float32]
        y = Placeholder[dtype=float32]
        a = Pack(y, u)
        b = Neg(a)
        c = Pack(u, y)
        d = Neg(u)
        """,
        "y",
        "x",
    )
    assert ops["a"].outputs[0].shape == ops["b"].outputs[0].shape == ops["c"].outputs[0].shape == (2, 2)
    assert ops["d"].outputs[0].shape is None


def test_shapes_of_what_reads_what_is_a_constant_now():
    ops = replaced(
        """
        s = Const[value=int32[2]{2, 3}, dtype=int32]
        x = Placeholder[dtype=float32]
        t = Placeholder[dtype=int32, shape=[2]]
        y = Reshape(x, t)
        """,
        "t",
        "s",
    )
    assert ops["y"].outputs[0].shape == (2, 3)


def test_what_was_known_of_the_old_is_known_of_the_new():
    ops = replaced(
        """
        a = Placeholder[dtype=float32]
        x = Tanh(a) : float32[?,3]
        y = Placeholder[dtype=float32, shape=[2,?]]
        z = Neg(x)
        u = Neg(y)
        """,
        "y",
        "x",
    )
    assert ops["x"].outputs[0].shape == ops["z"].outputs[0].shape == ops["u"].outputs[0].shape == (2, 3)


def test_what_is_known_of_handles():
    h = "x = Placeholder[dtype=resource, shape=[]]\ny = Placeholder[dtype=resource, shape=[]]\nz = Identity(y)"
    for known in (None, (dtypes.int32, (1,))):
        g = from_text(h)
        x, y = (g.get_tensor_by_name(f"{n}:0") for n in "xy")
        x.handle, y.handle = known, (dtypes.float32, (2,))
        walking = Rewriter(g, PassContext())
        for op in walking:
            if op is y.op:
                walking.replace(op, [x], ())
        assert walking.finish()
        assert x.handle == (known or (dtypes.float32, (2,)))


def test_what_a_step_is_given_stays_as_declared():
    text = """
        x = _Arg[T=float32, index=0, shape=[?]]
        p = Const[value=bool[]{true}, dtype=bool]
        c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32), Tout=(float32)](p, x)
        graph "yes" of c, then_branch (a: float32[3]) -> (a) {
        }
        graph "no" of c, else_branch (a: float32[3]) -> (a) {
        }
        y = Neg(c)
        """
    after, _ = apply(EliminateBranches(), text)
    assert "x = _Arg[T=float32, index=0, shape=[?]] : float32[?]" in after
    assert "y = Neg[T=float32](x) : float32[3]" in after


CHECKED = """
    a = Placeholder[dtype=float32, shape=[?]]
    u = Placeholder[dtype=float32, shape=[]]
    k = CheckNumerics[message="k"](u)
    x = CheckNumerics[message="x"](a) : float32[2]
    SHAPE
    y = Reshape(x, s) : float32[2]
    z = Tanh(y)
    """


def test_what_is_made_of_the_same_is_no_loss():
    text = CHECKED.replace("SHAPE", "s = Shape(x)")
    after, _ = apply(SimplifyAlgebra(), text)
    same(after, text.replace("Tanh(y)", "Tanh(x)").replace("    y = Reshape(x, s) : float32[2]\n", ""))
