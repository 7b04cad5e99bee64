"""Effects are explicit in control results, targets and control edges.

Control results and targets determine which operations must run, and control edges determine their order.
"""

import pytest

from headrace.ir.text import from_text
from headrace.ir.verify import verify
from headrace.optimize.base import PassContext, run
from headrace.optimize.effects import Effects

V = """
    v = VarHandleOp[dtype=float32, shape=[2], shared_name="v"]
    u = VarHandleOp[dtype=float32, shape=[2], shared_name="u"]
    x = _Arg[T=float32, index=0, shape=[2]]
    p = _Arg[T=bool, index=1, shape=[]]
    """


def explicit(text, preserved=()):
    """The graph after the pass, and the names of what must run."""
    graph = from_text(text)
    context = PassContext(preserved=[graph.get_operation_by_name(name) for name in preserved])
    run((Effects(),), graph, context, verify)
    assert context.explicit
    return graph, [op.name for op in context.preserved]


def waits(graph, name):
    return [c.name for c in graph.get_operation_by_name(name).control_inputs]


def test_an_effect_that_is_reached_by_data_must_run():
    text = V + "a = AssignVariableOp(v, x)\n k = Identity(x) ^a\n r = _Retval[index=0](k)"
    assert explicit(text)[1] == ["a"]


def test_an_effect_that_is_not_reached_does_not_run():
    graph, preserved = explicit(V + "a = AssignVariableOp(v, x)\n k = Identity(x)\n r = _Retval[index=0](k)")
    assert preserved == []
    assert graph.find("a") is None


def test_a_draw_must_run_but_has_no_order():
    text = V + (
        "s = Shape(x)\n d = RandomUniform[dtype=float32](s)\n a = AssignVariableOp(v, d)\n "
        "k = Identity(x) ^a\n t = Shape(k)\n e = RandomUniform[dtype=float32](t)\n r = _Retval[index=0](e)"
    )
    graph, preserved = explicit(text)
    assert preserved == ["d", "a", "e"]
    assert waits(graph, "a") == waits(graph, "e") == []


@pytest.mark.parametrize(
    ("second", "edges"),
    [
        ("b = AssignVariableOp(v, k)", ["a"]),
        ("b = AssignVariableOp(u, k)", ["a"]),
        ("n = Shape(k)\n b = PrintV2(m) ^n", ["n", "a"]),
        ("n = Shape(k)\n b = ReadVariableOp[dtype=float32](u) ^n", ["n", "a"]),
        ('n = Shape(k)\n c = CheckNumerics[message="m"](k)\n b = PrintV2(m) ^c', ["c"]),  # which waits for a
        ("b = Neg(k)", []),
        ("b = AssignVariableOp(v, x)", []),
    ],
)
def test_a_stateful_operation_waits_for_effects_that_it_reaches(second, edges):
    message = 'm = Const[value=string[]{"m"}, dtype=string]\n '
    text = V + message + f"a = AssignVariableOp(v, x)\n k = Identity(x) ^a\n {second}\n r = _Retval[index=0](x) ^b ^a"
    assert waits(explicit(text)[0], "b") == edges


def test_a_write_waits_for_a_read_of_the_same_variable_that_it_reaches():
    text = (
        V
        + """
    one = Const[value=float32[]{1.0}, dtype=float32]
    r = ReadVariableOp[dtype=float32](v)
    q = ReadVariableOp[dtype=float32](u)
    s = Shape(r)
    t = Shape(q)
    n = Maximum(s, t)
    y = Fill(n, one)
    a = AssignVariableOp(v, y)
    e = _Retval[index=0](r) ^a
    """
    )
    assert waits(explicit(text)[0], "a") == ["r"]


def test_no_edge_is_added_that_follows_from_others():
    text = (
        V
        + """
    a = AssignVariableOp(v, x)
    k = Identity(x) ^a
    b = AssignAddVariableOp(v, k) ^a
    l = Identity(k) ^b
    g = NoOp ^b
    c = AssignAddVariableOp(v, l) ^g
    e = _Retval[index=0](x) ^c
    """
    )
    graph, _ = explicit(text)
    assert waits(graph, "b") == ["a"]
    assert waits(graph, "c") == ["g"]


def test_many_edges_are_shared():
    some = "".join(f'v{i} = VarHandleOp[dtype=float32, shape=[2], shared_name="v{i}"]\n ' for i in range(6))
    some += "".join(f"a{i} = AssignVariableOp(v{i}, x)\n k{i} = Identity(x) ^a{i}\n " for i in range(6))
    both = "s = AddN(k0, k1, k2, k3, k4, k5)\n b = AssignVariableOp(v, s)\n c = AssignVariableOp(u, s)\n "
    graph, _ = explicit(V + some + both + "e = _Retval[index=0](x) ^b ^c")
    (join,) = waits(graph, "b")
    assert waits(graph, "c") == [join]
    assert sorted(waits(graph, join)) == [f"a{i}" for i in range(6)]
    verify(graph)


BRANCH = (
    V
    + """
    a = AssignVariableOp(v, x)
    k = Identity(x) ^a
    c = If[then_branch=@"yes", else_branch=@"no", Tin=(float32, resource), Tout=(float32)](p, k, v)
    graph "yes" of c, then_branch (k: float32[2], v: resource[]) -> (d) {
      s = Shape(k)
      w = AssignVariableOp(v, k)
      d = Identity(k) ^w
    }
    graph "no" of c, else_branch (k: float32[2], v: resource[]) -> (k) {
    }
    """
)


def test_a_branch_says_what_must_run_in_it():
    graph, preserved = explicit(BRANCH + "e = _Retval[index=0](c)")
    c = graph.get_operation_by_name("c")
    assert preserved == ["a", "c"]
    assert [op.name for op in c.attrs["then_branch"].control_results] == ["w"]
    assert waits(graph, "c") == ["a"]


def test_a_conditional_waits_for_what_an_unread_result_reaches():
    graph, preserved = explicit(BRANCH.replace("w = AssignVariableOp(v, k)", "w = NoOp") + "e = _Retval[index=0](x) ^c")
    assert preserved == ["a"]
    assert waits(graph, "c") == []  # nothing can tell when it runs


def test_a_second_time_changes_nothing():
    graph = from_text(BRANCH + "e = _Retval[index=0](c)")
    context = PassContext()
    assert run((Effects(),), graph, context, verify)
    assert not run((Effects(),), graph, PassContext(preserved=context.preserved), verify)
