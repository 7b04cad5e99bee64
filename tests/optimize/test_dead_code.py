"""Dead code goes: operations, and inputs, results and variables of structured operations."""

import pytest

import headrace as hr
from headrace.ir.edit.copying import copied
from headrace.ir.edit.editor import own_bodies
from headrace.ir.function import owned
from headrace.ir.text import from_text, to_text
from headrace.ir.verify import verify
from headrace.optimize.base import PassContext, run
from headrace.optimize.dead_code import EliminateDeadCode
from headrace.optimize.effects import Effects
from headrace.prune import prune as pruned
from tests.optimize.running import apply, same, unchanged


def test_what_no_end_needs_goes():
    text = """
        x = _Arg[T=float32, index=0, shape=[2]]
        unused = _Arg[T=float32, index=1, shape=[2]]
        a = Tanh(x)
        b = Neg(a)
        dead = Neg(b)
        w = NoOp
        y = _Retval[index=0](b) ^w
        """
    after, _ = apply(EliminateDeadCode(), text)
    same(after, text.replace("        dead = Neg(b)\n", ""))
    assert unchanged(EliminateDeadCode(), text, preserved=["dead"]).ran[-1][0] == "prune"


IF = """
    p = _Arg[T=bool, index=0, shape=[]]
    x = _Arg[T=float32, index=1, shape=[2]]
    u = Neg(x)
    v = Exp(x)
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32, float32, float32), Tout=(float32, float32)](p, u, x, v)
    graph "yes" of c, then_branch (a: float32[2], b: float32[2], d: float32[2]) -> (s, t) {
      s = Tanh(a)
      t = Sin(b)
    }
    graph "no" of c, else_branch (a: float32[2], b: float32[2], d: float32[2]) -> (a, b) {
    }
    y = _Retval[index=0](c:K)
    """


def test_an_unread_result_goes_with_its_inputs():
    after, context = apply(EliminateDeadCode(), IF.replace(":K", ":1"))
    same(
        after,
        """
    p = _Arg[T=bool, index=0, shape=[]]
    x = _Arg[T=float32, index=1, shape=[2]]
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32), Tout=(float32)](p, x)
    graph "yes" of c, then_branch (b: float32[2]) -> (t) {
      t = Sin(b)
    }
    graph "no" of c, else_branch (b: float32[2]) -> (b) {
    }
    y = _Retval[index=0](c)
        """,
    )
    assert [n.text for n in context.notes] == ["1 result without consumers", "2 inputs that its graphs do not read"]


def test_the_other_result():
    after, _ = apply(EliminateDeadCode(), IF.replace(":K", ":0"))
    assert "c = If[Tcond=bool, Tin=(float32), Tout=(float32)" in after
    assert "](p, u) : float32[2]" in after


CASE = """
    k = _Arg[T=int32, index=0, shape=[]]
    x = _Arg[T=float32, index=1, shape=[2]]
    c = Case[branches=(@"f", @"g"), Tin=(float32, float32), Tout=(float32, float32), output_shapes=([2], [?])](k, x, x)
    graph "f" of c, branches.0 (a: float32[2], b: float32[2]) -> (s, b) {
      s = Tanh(a)
    }
    graph "g" of c, branches.1 (a: float32[2], b: float32[2]) -> (a, b) {
    }
    y = _Retval[index=0](c:1)
    """


def test_stated_shapes_move_up():
    after, _ = apply(EliminateDeadCode(), CASE)
    assert 'c = Case[Tin=(float32), Tout=(float32), branches=(@"f", @"g"), output_shapes=([?])](k, x)' in after


CALL = """
    x = _Arg[T=float32, index=0, shape=[2]]
    c = PartitionedCall[f=@"f", Tin=(float32, float32), Tout=(float32, float32)](x, x)
    graph "f" of c, f (a: float32[2], b: float32[2]) -> (a, s) {
      s = Tanh(b)
    }
    y = _Retval[index=0](c:1)
    """


def test_a_call_loses_results_and_where_effects_are_explicit_arguments():
    text = """
    x = _Arg[T=float32, index=0, shape=[2]]
    c = PartitionedCall[f=@"f", Tin=(float32, float32), Tout=(float32)](x, x)
    graph "f" of c, f (a: float32[2], b: float32[2]) -> (s) {
      s = Tanh(b)
    }
    y = _Retval[index=0](c)
    """
    after, _ = apply(EliminateDeadCode(), CALL)
    same(after, text)
    one = (
        text.replace("Tin=(float32, float32)", "Tin=(float32)").replace("(x, x)", "(x)").replace("a: float32[2], ", "")
    )
    same(explicit(CALL), one)


def test_what_names_a_function_of_the_library_stays():
    text = CALL.replace("f=@", "f=&").replace('graph "f" of c, f ', 'function "f" ')
    head, tail = text.split("    function")
    block, end = tail.split("}\n")
    unchanged(EliminateDeadCode(), "function" + block + "}\n" + head + end)


LOOP = """
    n = _Arg[T=int32, index=0, shape=[]]
    x = _Arg[T=float32, index=1, shape=[]]
    i = Const[value=int32[]{0}, dtype=int32]
    w = While[cond=@"c", body=@"b", T=(int32, float32, float32, float32, int32, float32)](i, x, x, x, n, x)
    graph "c" of w, cond (i: int32[], f: float32[], g: float32[], h: float32[], n: int32[], k: float32[]) -> (go) {
      go = Less(i, n)
    }
    graph "b" of w, body (i: int32[], f: float32[], g: float32[], h: float32[], n: int32[], k: float32[])
        -> (j, ff, gg, hh, n, k) {
      one = Const[value=int32[]{1}, dtype=int32]
      j = AddV2(i, one)
      ff = Mul(f, k)
      gg = AddV2(g, h)
      hh = Neg(g)
    }
    y = _Retval[index=0](w:R)
    """.replace("\n        ->", " ->")


@pytest.mark.parametrize(
    ("read", "left"),
    [
        (0, "](i, n)"),  # f, and g and h, which feed one another
        (1, "](i, x, n, x)"),
        (2, "](i, x, x, n)"),
        (3, "](i, x, x, n)"),
        (4, "](i, n)"),
        (5, "](i, n, x)"),
    ],
)
def test_dead_loop_variables_go(read, left):
    after, context = apply(EliminateDeadCode(), LOOP.replace(":R", f":{read}"))
    assert left in after
    assert "without live uses" in context.notes[0].text


def test_loop_variables_in_full():
    after, context = apply(EliminateDeadCode(), LOOP.replace(":R", ":0"))
    same(
        after,
        """
    n = _Arg[T=int32, index=0, shape=[]]
    x = _Arg[T=float32, index=1, shape=[]]
    i = Const[value=int32[]{0}, dtype=int32]
    w = While[cond=@"c", body=@"b", T=(int32, int32)](i, n)
    graph "c" of w, cond (i: int32[], n: int32[]) -> (go) {
      go = Less(i, n)
    }
    graph "b" of w, body (i: int32[], n: int32[]) -> (j, n) {
      one = Const[value=int32[]{1}, dtype=int32]
      j = AddV2(i, one)
    }
    y = _Retval[index=0](w)
        """,
    )
    assert [n.text for n in context.notes] == ["4 variables without live uses: f, g, h, k"]


def test_what_must_run_keeps_what_it_reads():
    text = LOOP.replace(":R", ":0").replace("-> (j, ff, gg, hh, n, k) {", "-> (j, ff, gg, hh, n, k) ^say {").replace(
        "      hh =", "      say = Print[U=(float32)](g, f)\n      hh ="
    )  # fmt: skip
    after, _ = apply(EliminateDeadCode(), text)
    assert "](i, x, x, x, n, x)" in after


def test_an_effect_that_the_loop_need_not_have_goes():
    # v1 graphs: only what the fetches need runs
    text = LOOP.replace(":R", ":0").replace("gg = AddV2(g, h)", "gg = Print[U=(float32)](g, h)")
    after, _ = apply(EliminateDeadCode(), text)
    assert "Print" not in after


def test_a_control_edge_from_a_loop_reaches_all_its_results():
    text = LOOP.replace(":R", ":0") + "    k = NoOp ^w\n    z = _Retval[index=1](n) ^k"
    unchanged(EliminateDeadCode(), text)


def test_a_control_edge_from_a_conditional_reaches_all_its_results():
    after, _ = apply(EliminateDeadCode(), IF.replace(":K", ":1") + "    z = _Retval[index=1](x) ^c")
    assert "Tout=(float32, float32)" in after
    assert "](p, u, x)" in after  # nothing reads the third


def test_explicit_effects_need_no_results():
    text = IF.replace(":K", ":1") + "    z = _Retval[index=1](x) ^c"
    assert "Tout=(float32)," in explicit(text)  # the Tanh has no effect
    assert "Tout=(float32)," in explicit(text, preserved=["c"])
    must = text.replace("s = Tanh(a)", "s = Print[U=(float32)](a, a)")
    assert "Tout=(float32)," in explicit(must)
    assert "-> (t) ^s" in explicit(must)


def explicit(text, preserved=()):
    graph = from_text(text)
    context = PassContext(preserved=[graph.get_operation_by_name(name) for name in preserved])
    run((Effects(), EliminateDeadCode()), graph, context, verify)
    return to_text(graph)


def test_a_parameter_that_is_only_waited_for_stays():
    # in the primitive form the NoOp waits for the Switch of `v`, and that for the Exp
    text = IF.replace(":K", ":1").replace("t = Sin(b)", "k = NoOp ^d\n      t = Sin(b) ^k")
    after, _ = apply(EliminateDeadCode(), text)
    assert "](p, x, v)" in after
    assert "k = NoOp ^d" in after


def test_a_loop_variable_that_is_only_waited_for_stays():
    text = LOOP.replace(":R", ":0").replace("j = AddV2(i, one)", "j = AddV2(i, one) ^f")
    after, _ = apply(EliminateDeadCode(), text)
    assert "](i, x, n, x)" in after  # f, and k, which makes its next value


def test_inside_out_and_outside_in():
    # the inner loop's second variable is dead because the outer's is
    text = """
        n = _Arg[T=int32, index=0, shape=[]]
        x = _Arg[T=float32, index=1, shape=[]]
        w = While[cond=@"c", body=@"b", T=(int32, float32)](n, x)
        graph "c" of w, cond (i: int32[], f: float32[]) -> (go) {
          go = Less(i, i)
        }
        graph "b" of w, body (i: int32[], f: float32[]) -> (v:0, v:1) {
          v = While[cond=@"cc", body=@"bb", T=(int32, float32)](i, f)
          graph "cc" of v, cond (i: int32[], f: float32[]) -> (go) {
            go = Less(i, i)
          }
          graph "bb" of v, body (i: int32[], f: float32[]) -> (j, g) {
            j = Neg(i)
            g = Neg(f)
          }
        }
        y = _Retval[index=0](w:0)
        """
    after, _ = apply(EliminateDeadCode(), text)
    assert "float32" not in after.replace("_Arg[T=float32", "").replace("x = [T=", "").split("\n", 2)[2]


SAYS = IF.replace(":K", ":1").replace("s = Tanh(a)", "s = Print[U=(float32)](a, a)")


def test_an_effect_that_a_conditional_need_not_have_goes():
    after, _ = apply(EliminateDeadCode(), SAYS)
    assert "Print" not in after


def test_a_target_is_wanted_with_all_its_results():
    assert "Print" in apply(EliminateDeadCode(), SAYS, preserved=["c"])[0]


def test_what_must_run_is_wanted_with_all_its_results():
    inner = SAYS.replace("    y = _Retval[index=0](c:1)\n", "").replace(
        "_Arg[T=bool, index=0, shape=[]]", "LogicalNot(q)"
    )
    inner = inner.replace("_Arg[T=float32, index=1, shape=[2]]", "Neg(z)")
    text = (
        "q0 = _Arg[T=bool, index=0, shape=[]]\nz0 = _Arg[T=float32, index=1, shape=[2]]\n"
        'f = PartitionedCall[f=@"f", Tin=(bool, float32), Tout=(float32)](q0, z0)\n'
        'graph "f" of f, f (q: bool[], z: float32[2]) -> (c:1) ^c {\n' + inner + "}\n"
        "r = _Retval[index=0](f)\n"
    )
    assert "Print" in apply(EliminateDeadCode(), text)[0]
    assert "Print" not in apply(EliminateDeadCode(), text.replace("-> (c:1) ^c {", "-> (c:1) {"))[0]


def test_what_is_swept_and_what_shrinks_at_once():
    after, _ = apply(EliminateDeadCode(), IF.replace(":K", ":1") + "    dead = Neg(x)\n")
    assert "dead" not in after
    assert "Tout=(float32)," in after


def test_beside_primitives_only_what_is_not_needed_goes():
    text = (
        IF.replace(":K", ":1").replace("u = Neg(x)", "w = Switch(x, p)\n    u = Merge(w:0, w:1)")
        + "    dead = Neg(x)\n"
    )
    after, _ = apply(EliminateDeadCode(), text)
    assert "dead" not in after
    assert "Tout=(float32, float32)" in after


def test_graphs_know_what_they_captured_of_what_is_left():
    # else no copy could be made of them
    with hr.Graph():
        p, x, u = hr.placeholder(hr.bool, ()), hr.placeholder(hr.int32, (), "x"), hr.placeholder(hr.int32, (), "u")
        three, four = hr.constant(3), hr.constant(4)
        y = hr.cond(p, lambda: (hr.negative(x), x * three, u * four), lambda: (x, x, x))
        z = hr.while_loop(lambda i, a: i < 9, lambda i, a: (i + three, a * four + u), (0, x))
    step = pruned([p, x, u], [y[1], z[0]], []).graph
    own_bodies(step)
    assert run((EliminateDeadCode(),), step, PassContext(), verify)
    captured = {}
    for graph in (f for op in step.operations for f in owned(op)):
        captured[graph.role] = [t.op.name for t in graph.captures]
        for t in (*graph.captures.values(), *graph.originals.values()):
            assert t.op in graph.operations
        assert graph.captures.keys() == copied(graph, step).captures.keys()
    assert captured == {
        "the true branch of 'cond'": ["x", "Const"],
        "the false branch of 'cond'": ["x"],
        "the condition of loop 'while'": [],
        "the body of loop 'while'": ["Const"],
    }


@pytest.mark.parametrize("is_nested", [False, True])
def test_a_recursive_function_keeps_residuals_only_for_a_gradient_that_is_fetched(is_nested: bool):
    spec = hr.TensorSpec((2,), hr.float64)
    with hr.Graph():
        x = hr.placeholder(hr.float64, [2])
        halved = lambda i, v: (i + 1, hr.tanh(v * 0.5))
        loop = lambda v: hr.while_loop(lambda i, v: i < 3, halved, [0, v])[1]
        f = hr.Function(lambda v, n: hr.cond(n > 0, lambda: f(loop(v), n - 1), lambda: v), results=spec, name="f")
        y = hr.cond(x[0] > 0, lambda: f(x, hr.constant(2)), lambda: x) if is_nested else f(x, hr.constant(2))
        (dx,) = hr.gradients(y, x)
        with hr.Session(engine="compiled") as session, hr.Session(engine="interpret") as other:
            value, both = (session.make_callable(fetches, [x]) for fetches in (y, [y, dx]))
            fed = [0.5, 1.0]
            assert value(fed).tolist() == both(fed)[0].tolist() == other.run(y, {x: fed}).tolist()
        texts = [str(hr.explain(call)) for call in (value, both)]
    assert ["TensorListPushBack" in text for text in texts] == [False, True]
    assert ["'f' is called without residuals, which no operation reads" in text for text in texts] == [True, False]
