"""Calls become what they call."""

import pytest

import headrace as hr
from headrace.optimize.inline import Inline
from tests.optimize.running import apply, optimized, same, unchanged

CALL = """
    function "square" (v: float32[]) -> (y) {
      y = Mul(v, v)
    }
    x = Placeholder[dtype=float32, shape=[2]]
    a = PartitionedCall[f=&"square", Tin=(float32), Tout=(float32)](x)
    b = PartitionedCall[f=&"square", Tin=(float32), Tout=(float32)](a)
    k = NoOp ^b
    """


SAY = 'm = Const[value=string[]{"m"}, dtype=string]\n      say = PrintV2(m)'


def test_calls_of_a_function():
    after, context = apply(Inline(), CALL.replace("v: float32[]", "v: float32[2]"))
    same(
        after,
        """
    function "square" (v: float32[2]) -> (y) {
      y = Mul(v, v)
    }
    x = Placeholder[dtype=float32, shape=[2]]
    a/y = Mul(x, x)
    b/y = Mul(a/y, a/y)
    k = NoOp ^b/y
        """,
    )
    assert [n.text for n in context.notes[:2]] == [
        "library functions became owned graphs",
        "replaced by the body of 'square'",
    ]


def test_more_is_known_of_shapes_inside():
    after, _ = apply(Inline(), CALL.replace("v: float32[]", "v: float32<unknown>"))
    assert "b/y = Mul[T=float32](a/y, a/y) : float32[2]" in after


def test_calls_in_calls():
    text = (
        CALL.replace(
            "    x = Place",
            """    function "fourth" (v: float32[2]) -> (b) {
      a = PartitionedCall[f=&"square", Tin=(float32), Tout=(float32)](v)
      b = PartitionedCall[f=&"square", Tin=(float32), Tout=(float32)](a)
    }
    x = Place""",
        )
        .replace(
            'b = PartitionedCall[f=&"square", Tin=(float32), Tout=(float32)](a)\n    k',
            'b = PartitionedCall[f=&"fourth", Tin=(float32), Tout=(float32)](a)\n    k',
        )
        .replace("v: float32[]", "v: float32[2]")
    )
    after, _ = apply((Inline(), Inline(), Inline()), text)
    assert "b/a/y = Mul[T=float32](a/y, a/y)" in after
    assert "b/b/y = Mul[T=float32](b/a/y, b/a/y)" in after


def test_what_calls_itself_stays():
    text = """
    function "f" (v: float32[2]) -> (c) {
      c = PartitionedCall[f=&"f", Tin=(float32), Tout=(float32)](v)
    }
    x = Placeholder[dtype=float32, shape=[2]]
    a = PartitionedCall[f=&"f", Tin=(float32), Tout=(float32)](x)
    """
    context = unchanged(Inline(), text)
    assert [n.text for n in context.notes] == ["'f' calls itself"]


def test_what_computes_again_stays():
    text = """
    x = Placeholder[dtype=float32, shape=[2]]
    a = PartitionedCall[f=@"f", Tin=(float32), Tout=(float32)]{RematerializedCall}(x)
    graph "f" of a, f (v: float32[2]) -> (c) {
      c = Tanh(v)
    }
    """
    context = unchanged(Inline(), text)
    assert "rematerialization" in context.notes[0].text
    after, _ = apply(Inline(), text.replace("{RematerializedCall}", ""))
    assert "a/c = Tanh[T=float32](x)" in after


def test_branches_that_are_functions_of_the_library():
    text = """
    function "square" (v: float32[2]) -> (y) {
      y = Mul(v, v)
    }
    x = Placeholder[dtype=float32, shape=[2]]
    p = Placeholder[dtype=bool, shape=[]]
    a = If[then_branch=&"square", else_branch=&"square", Tin=(float32), Tout=(float32)](p, x)
    """
    after, _ = apply(Inline(), text)
    assert 'graph "square" of a, then_branch (v: float32[2]) -> (y) {' in after


def test_what_does_not_fit_is_left_to_fail():
    text = CALL.replace("v: float32[]) -> (y)", "v: float32[2], w: float32[]) -> (y)")
    context = unchanged(Inline(), text)
    assert ", expected " in context.notes[0].text


def test_functions_of_primitives_stay():
    text = CALL.replace(
        "y = Mul(v, v)", "p = Const[value=bool[]{true}, dtype=bool]\n      s = Switch(v, p)\n      y = Neg(s:1)"
    )
    context = unchanged(Inline(), text)
    assert "control-flow primitives" in context.notes[0].text


def test_what_must_run_when_it_is_called_does():
    text = CALL.replace("y = Mul(v, v)", SAY + "\n      y = Mul(v, v)")
    after, context = apply(Inline(), text.replace("-> (y) {", "-> (y) ^say {").replace("float32[]", "float32[2]"))
    assert [op.name for op in context.preserved] == ["a/say", "b/say"]
    assert "k = NoOp ^b/y ^b/say" in after


@pytest.mark.parametrize("make", ["function", "cond", "loop in function"])
def test_a_random_operation_goes_on_with_its_stream(make):
    def draw(x):
        return hr.random.uniform((2,), seed=3) + x

    with hr.Graph() as g:
        if make == "function":
            f = hr.Function(draw, name="f")
            y = f(f(hr.constant([1.0, 1.0])))
        elif make == "cond":
            y = hr.cond(hr.constant(True), lambda: draw(1.0), lambda: draw(2.0))
        else:
            f = hr.Function(
                lambda x: hr.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, draw(x)), (0, x))[1], name="f"
            )
            y = f(hr.constant([1.0, 2.0]))
    with hr.Session(graph=g, engine="interpret") as s:
        want = [s.run(y).tolist() for _ in range(3)]
    with hr.Session(graph=g, engine="interpret") as s:
        got = [s.run(y).tolist()]
        with optimized():
            got += [s.run([y])[0].tolist() for _ in range(2)]  # another step, but the same streams
    assert got == want
