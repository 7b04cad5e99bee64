"""Control results that are parameters."""

from headrace.ir.text import from_text
from headrace.lower import lower


def test_a_control_result_that_is_a_parameter_is_the_value_passed_to_it() -> None:
    graph = from_text(
        """
        x = _Arg[T=float32, index=0, shape=[2]]
        y = _Arg[T=float32, index=1, shape=[2]]
        p = _Arg[T=bool, index=2, shape=[]]
        c = If[Tout=(float32), then_branch=@"t", else_branch=@"e"](p, x, y)
        r = _Retval[index=0](c)
        graph "t" of c, then_branch (a: float32[2], b: float32[2]) -> (s) ^b {
          s = Sin(a)
        }
        graph "e" of c, else_branch (a: float32[2], b: float32[2]) -> (u) {
          u = Cos(a)
        }
        """
    )
    assert [op.name for op in lower(graph).ops if op.type == "_Arg"] == ["x", "y", "p"]
