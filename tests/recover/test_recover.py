"""Recovery from primitives: small graphs as text, with the recovered and the refused ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.api import scopes
from headrace.errors import InvalidArgumentError
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.function import bodies
from headrace.ir.graph import FuncGraph, Graph, Operation
from headrace.ir.text import from_text
from headrace.lower import lower
from headrace.prune import prune
from headrace.recover import recover, resolved

COUNT = """
    zero = Const[value=int32[]{0}, dtype=int32]
    n = Placeholder[dtype=int32, shape=[]]
    e = Enter[frame_name="w"](zero)
    lim = Enter[frame_name="w", is_constant=true](n)
    m = Merge(e, next)
    less = Less(m, lim)
    cond = LoopCond(less)
    s = Switch(m, cond)
    i = Identity(s:1)
    one = Const[value=int32[]{1}, dtype=int32] ^i
    body = AddV2(i, one)
    next = NextIteration(body)
    out = Exit(s)
    after = Neg(out)
"""

CHOOSE = """
    p = Placeholder[dtype=bool, shape=[]]
    x = Placeholder[dtype=float32, shape=[]]
    c/Switch = Switch(p, p)
    c/t = Identity(c/Switch:1)
    c/pred_id = Identity(p)
    c/Neg/Switch = Switch(x, c/pred_id)
    c/Neg = Neg(c/Neg/Switch:1)
    c/Merge = Merge(c/Neg/Switch, c/Neg)
    y = Exp(c/Merge)
"""


def structured(graph: Graph) -> list[Operation]:
    return [op for op in graph.operations if op.opdef.structured]


def types(graph: FuncGraph) -> list[str]:
    """The types of the operations of a graph, without its parameters."""
    return sorted(op.type for op in graph.operations if op.type != "_Arg")


def run(graph: Graph, fetches: Any, feeds: dict[str, Any] | None = None) -> Any:
    with hr.Session(graph=graph) as sess:
        return sess.run(fetches, feeds)


def recovered(text: str) -> Graph:
    g = from_text(text)
    recover(g)
    return g


# *** loops ***


def test_a_loop() -> None:
    g = recovered(COUNT)
    (op,) = structured(g)
    assert op.type == "StatelessWhile"
    assert [t.op.name for t in op.inputs] == ["zero", "n"]
    assert g.replaced == {g.find("out").outputs[0]: op.outputs[0]}
    assert resolved(g.get_tensor_by_name("out:0")) is op.outputs[0]
    graphs = dict(bodies(op))
    assert types(graphs["cond"]) == ["Less"]
    assert types(graphs["body"]) == ["AddV2", "Const"]
    assert graphs["body"].find("body") is not None  # operations keep their names
    body = graphs["body"]
    assert [r is p for r, p in zip(body.results, body.params, strict=True)] == [False, True]  # a loop constant
    assert not any(o.control_inputs for f in graphs.values() for o in f.operations)  # a pivot says nothing now
    assert g.find("after").inputs[0] is op.outputs[0]
    assert run(g, ["out:0", "after:0"], {"n:0": 5}) == [5, -5]


def test_variables_without_exits_and_several_exits() -> None:
    g = recovered(
        COUNT
        + """
        f = Enter[frame_name="w"](zero)
        mf = Merge(f, nextf)
        sf = Switch(mf, cond)
        sq = AddV2(sf:1, i)
        nextf = NextIteration(sq)
        out2 = Exit(sf)
        twice = Exit(s)
    """
    )
    (op,) = structured(g)
    assert len(op.outputs) == 2 + len(op.inputs) - 2
    assert run(g, ["out:0", "twice:0", "out2:0"], {"n:0": 4}) == [4, 4, 6]
    g = recovered(
        COUNT
        + """
        f = Enter[frame_name="w"](zero)
        mf = Merge(f, nextf)
        sf = Switch(mf, cond)
        nextf = NextIteration(sf:1)
        """
    )
    body = dict(bodies(structured(g)[0]))["body"]
    assert body.results[1] is body.params[1]
    assert run(g, "out:0", {"n:0": 4}) == 4


def test_what_the_condition_shares_with_the_body_is_in_both() -> None:
    g = recovered(
        COUNT.replace("less = Less(m, lim)", "sq = Square(m)\n less = Less(sq, lim)").replace(
            "body = AddV2(i, one)", "more = AddV2(sq, one)\n body = AddV2(i, more)"
        )
    )
    graphs = dict(bodies(structured(g)[0]))
    assert "Square" in types(graphs["cond"])
    assert "Square" in types(graphs["body"])
    # 0 -> 0 + 0 + 1 = 1 -> 1 + 1 + 1 = 3 -> 9 is not below 8
    assert run(g, "out:0", {"n:0": 8}) == 3


def test_what_is_computed_after_the_switch_is_computed_after_the_loop() -> None:
    g = recovered(COUNT.replace("out = Exit(s)", "sq = Square(s)\n out = Exit(sq)"))
    assert run(g, "out:0", {"n:0": 4}) == 16
    assert "Square" not in types(dict(bodies(structured(g)[0]))["body"])


def test_a_frame_in_which_nothing_goes_round_runs_once() -> None:
    g = recovered(
        """
        x = Placeholder[dtype=float32, shape=[]]
        e = Enter[frame_name="f"](x)
        c = Enter[frame_name="f", is_constant=true](x)
        y = Mul(e, c)
        out = Exit(y)
        z = Neg(out)
    """
    )
    assert not structured(g)
    assert run(g, "z:0", {"x:0": 3.0}) == -9


NESTED = """
    n = Placeholder[dtype=int32, shape=[]]
    k = Placeholder[dtype=int32, shape=[]]
    zero = Const[value=int32[]{0}, dtype=int32]
    e = Enter[frame_name="w"](zero)
    t0 = Enter[frame_name="w"](zero)
    lim = Enter[frame_name="w", is_constant=true](n)
    kk = Enter[frame_name="w", is_constant=true](k)
    m = Merge(e, next)
    mt = Merge(t0, nextt)
    less = Less(m, lim)
    cond = LoopCond(less)
    s = Switch(m, cond)
    st = Switch(mt, cond)
    one = Const[value=int32[]{1}, dtype=int32] ^s
    body = AddV2(s:1, one)
    next = NextIteration(body)
    e2 = Enter[frame_name="v"](st:1)
    j0 = Enter[frame_name="v"](s:1)
    k2 = Enter[frame_name="v", is_constant=true](kk)
    m2 = Merge(e2, next2)
    mj = Merge(j0, nextj)
    less2 = Less(mj, k2)
    cond2 = LoopCond(less2)
    s2 = Switch(m2, cond2)
    sj = Switch(mj, cond2)
    one2 = Const[value=int32[]{1}, dtype=int32] ^sj
    j = AddV2(sj:1, one2)
    t = AddV2(s2:1, k2)
    nextj = NextIteration(j)
    next2 = NextIteration(t)
    inner = Exit(s2)
    nextt = NextIteration(inner)
    out = Exit(st)
"""


def test_a_loop_in_a_loop() -> None:
    g = from_text(NESTED)
    want = run(g, "out:0", {"n:0": 3, "k:0": 5})
    recover(g)
    (outer,) = structured(g)
    body = dict(bodies(outer))["body"]
    (inner,) = [op for op in body.operations if op.opdef.structured]
    # k goes in through both: a constant of the outer loop, and so of the inner
    inside = dict(bodies(inner))["body"]
    assert sum(r is p for r, p in zip(inside.results, inside.params, strict=True)) == 1
    assert run(g, "out:0", {"n:0": 3, "k:0": 5}) == want == 5 * (5 + 4 + 3)


# *** conditionals ***


def test_a_conditional() -> None:
    g = recovered(CHOOSE)
    (op,) = structured(g)
    assert op.name == "c"
    assert op.type == "StatelessIf"
    assert g.replaced == {g.find("c/Merge").outputs[0]: op.outputs[0]}
    graphs = dict(bodies(op))
    assert types(graphs["then_branch"]) == ["Neg"]
    assert types(graphs["else_branch"]) == []  # the value bypasses the branch
    assert graphs["else_branch"].results == graphs["else_branch"].params
    for p, want in ((True, -2.0), (False, 2.0)):
        np.testing.assert_allclose(run(g, "y:0", {"p:0": p, "x:0": 2.0}), np.exp(want), rtol=1e-6)


def test_the_index_of_a_merge() -> None:
    g = recovered(CHOOSE + "which = AddV2(c/Merge:1, c/Merge:1)")
    assert run(g, "which:0", {"p:0": True, "x:0": 2.0}) == 2
    assert run(g, "which:0", {"p:0": False, "x:0": 2.0}) == 0


def test_merges_of_one_predicate_are_one_conditional() -> None:
    g = recovered(
        CHOOSE
        + """
        u = Switch(x, p)
        sq = Square(u)
        v = Merge(sq, u:1)
        """
    )
    (op,) = structured(g)
    assert len(op.outputs) == 2


def test_a_second_conditional_uses_what_the_first_computed() -> None:
    """As TensorFlow 1's gradients do: branches of the same predicate, after the first one's results."""
    text = (
        CHOOSE.replace("c/Neg = Neg(c/Neg/Switch:1)", "c/Neg = Tanh(c/Neg/Switch:1)")
        + """
        g = Switch(y, p)
        d = Mul(g:1, c/Neg)
        dx = Merge(g, d)
        """
    )
    g = from_text(text)
    want = [run(g, "dx:0", {"p:0": p, "x:0": 2.0}) for p in (True, False)]
    recover(g)
    first, second = structured(g)
    assert len(first.outputs) == 2  # the tanh, once more
    assert types(dict(bodies(second))["then_branch"]) == ["Mul"]
    assert types(dict(bodies(first))["else_branch"]) == ["FakeParam"]
    assert [run(g, "dx:0", {"p:0": p, "x:0": 2.0}) for p in (True, False)] == want


def test_one_that_is_next_to_nothing_is_computed_again() -> None:
    g = recovered(CHOOSE + "g = Switch(y, p)\n d = Mul(g:1, c/Neg)\n dx = Merge(g, d)")
    first, second = structured(g)
    assert len(first.outputs) == 1
    assert types(dict(bodies(second))["then_branch"]) == ["Mul", "Neg"]


def test_a_conditional_on_the_same_predicate_within_its_branch() -> None:
    g = recovered(
        """
        p = Placeholder[dtype=bool, shape=[]]
        x = Placeholder[dtype=float32, shape=[]]
        s = Switch(x, p)
        t = Switch(s:1, p)
        never = Exp(t)
        neg = Neg(t:1)
        inner = Merge(never, neg)
        out = Merge(s, inner)
        """
    )
    (op,) = structured(g)
    assert types(dict(bodies(op))["then_branch"]) == ["Neg"]
    assert run(g, "out:0", {"p:0": True, "x:0": 2.0}) == -2


def test_a_case() -> None:
    g = recovered(
        """
        k = Placeholder[dtype=int32, shape=[]]
        x = Placeholder[dtype=float32, shape=[]]
        s = _SwitchN[num_outs=3](x, k)
        a = Neg(s)
        b = Square(s:1)
        y = Merge(b, a, s:2)
        z = Identity(y)
        """
    )
    (op,) = structured(g)
    assert op.type == "StatelessCase"
    assert [run(g, "z:0", {"k:0": k, "x:0": 3.0}) for k in (0, 1, 2, 7)] == [-3, 9, 3, 3]


# *** operations with effects ***

VARIABLE = """
    v = VarHandleOp[dtype=float32, shape=[], shared_name="v"]
    unit = Const[value=float32[]{1.0}, dtype=float32]
    init = AssignVariableOp(v, unit)
    read = ReadVariableOp(v)[dtype=float32]
"""


def variable(text: str) -> Graph:
    return from_text(text.replace("(v)[dtype=float32]", "[dtype=float32](v)"))


def test_control_edges_between_operations_stay_and_those_from_outside_go_to_the_owner() -> None:
    g = variable(
        VARIABLE
        + CHOOSE.replace("y = Exp(c/Merge)", "")
        + """
        first = AssignAddVariableOp[dtype=float32](v, x) ^init
        c/v = Switch(v, p)
        c/add = AssignAddVariableOp[dtype=float32](c/v:1, c/Neg/Switch:1) ^first
        c/r = ReadVariableOp[dtype=float32](c/v:1) ^c/add
        c/other = Switch(x, p)
        out = Merge(c/other, c/r)
        """
    )
    recover(g)
    (op,) = structured(g)
    assert op.type == "If"
    assert g.find("first") in op.control_inputs
    branch = dict(bodies(op))["then_branch"]
    assert [c.name for c in branch.find("c/r").control_inputs] == ["c/add"]
    assert branch.find("c/add").control_inputs == []
    assert run(g, "out:0", {"p:0": True, "x:0": 2.0}) == 1 + 2 + 2


def test_what_has_effects_and_is_used_by_condition_and_body_is_refused() -> None:
    text = COUNT.replace(
        "less = Less(m, lim)",
        "r = RandomUniformInt[T=int32, seed=1, seed2=2](shape, lo, m) \n less = Less(r, lim)",
    ).replace("body = AddV2(i, one)", "body = AddV2(i, r)")
    text = text.replace(
        "m = Merge",
        """
        c = Const[value=int32[0]{}, dtype=int32]
        shape = Enter[frame_name="w", is_constant=true](c)
        lo = Enter[frame_name="w", is_constant=true](zero)
        m = Merge""",
    )
    g = from_text(text)
    with pytest.raises(InvalidArgumentError, match=r"'r' .* effects.* condition of a loop or in its body"):
        recover(g)


# *** graphs that are refused ***

ODD = {
    "more inputs than sides": (CHOOSE + "z = Switch(x, p)\n w = Merge(z, z:1, c/Neg)", "w"),
    "Switches on two predicates": (
        CHOOSE + "q = Placeholder[dtype=bool, shape=[]]\n z = Switch(x, q)\n w = Merge(c/Neg, z)",
        "w",
    ),
    "both from one side": (CHOOSE + "w = Merge(c/Neg, c/Neg/Switch:1)", "w"),
    "one from outside": (CHOOSE + "w = Merge(x, c/Neg)", "w"),
    "two branches in one operation": (
        CHOOSE + "q = Placeholder[dtype=bool, shape=[]]\n z = Switch(x, q)\n w = Mul(c/Neg, z)",
        "w",
    ),
    "no predicate": (COUNT.replace("cond = LoopCond(less)", "cond = Identity(less)"), "m"),
    "a variable that does not enter": (COUNT.replace("e = Enter[frame_name=\"w\"](zero)", "").replace(
        "m = Merge(e, next)", "f = Enter[frame_name=\"w\"](zero)\n e = Neg(f)\n m = Merge(e, next)"), "m"),
    "an Exit before the Switch": (COUNT.replace("out = Exit(s)", "out = Exit(m)"), "out"),
    "what goes on comes from before the Switch": (COUNT.replace("NextIteration(body)", "NextIteration(lim)"), "next"),
    "what enters is used as it is": (COUNT.replace("body = AddV2(i, one)", "body = AddV2(i, e)"), "e"),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
def test_what_is_not_well_structured_is_an_error_and_leaves_nothing(odd: str) -> None:
    text, name = ODD[odd]
    g = from_text(text)
    before = [(op, list(op.inputs), list(op.control_inputs)) for op in g.operations]
    with pytest.raises(InvalidArgumentError, match=f"'{name}' .* well-structured.*: expected .*but") as e:
        recover(g)
    assert e.value.node == name
    assert "; " in str(e.value)  # the remedy
    assert [(op, op.inputs, op.control_inputs) for op in g.operations] == before
    assert not g.replaced


def test_what_is_wanted_is_recovered_though_something_else_cannot_be() -> None:
    text, _ = ODD["both from one side"]
    g = from_text(text)
    recover(g, [g.get_tensor_by_name("y:0")])
    assert len(structured(g)) == 1
    with pytest.raises(InvalidArgumentError, match="'w'"):
        recover(g, [g.get_tensor_by_name("w:0")])
    np.testing.assert_allclose(run(g, "y:0", {"p:0": True, "x:0": 2.0}), np.exp(-2.0), rtol=1e-6)
    assert run(g, "w:0", {"p:0": True, "x:0": 0.0}) == 0  # by the primitives, as before


@pytest.mark.parametrize(("text", "name", "where"), [(COUNT, "body:0", "the loop 'w'"), (CHOOSE, "c/Neg:0", "side 1")])
def test_a_tensor_inside_has_no_one_value(text: str, name: str, where: str) -> None:
    g = from_text(text)
    with pytest.raises(InvalidArgumentError, match=f"'{name}' .*is in {where}"):
        recover(g, [g.get_tensor_by_name(name)])


# *** steps of a graph that has both forms ***


def test_a_step_that_names_the_inside_runs_the_primitives() -> None:
    g = recovered(COUNT)
    with hr.Session(graph=g) as sess:
        assert sess.run(["less:0", "out:0", "after:0"], {"n:0": 0}) == [False, 0, 0]  # of the one iteration there is
        assert sess.run(["out:0", "after:0"], {"n:0": 5}) == [5, -5]
        assert sess.run("after:0", {"out:0": 8}) == -8  # a result can be fed
        assert sess.run("out:0", {"n:0": 5, "zero:0": 7}) == 7
    g = recovered(CHOOSE)
    with hr.Session(graph=g) as sess:
        assert sess.run("y:0", {"p:0": True, "x:0": 2.0, "c/Neg:0": 0.0}) == 1


def test_a_constant_that_was_copied_in_can_be_fed() -> None:
    g = recovered(COUNT.replace("n = Placeholder[dtype=int32, shape=[]]", "n = Const[value=int32[]{4}, dtype=int32]"))
    assert structured(g)[0].inputs == [g.get_tensor_by_name("zero:0")]
    assert run(g, "after:0") == -4
    assert run(g, "after:0", {"n:0": 7}) == -7


def test_both_forms_in_one_step_are_an_error() -> None:
    g = recovered(CHOOSE)
    op = structured(g)[0]
    z = Builder(g).Neg(op.outputs[0])  # as a gradient would: it knows the structured one only
    assert run(g, z, {"p:0": True, "x:0": 2.0}) == 2
    assert run(g, [z, "c/Merge:0"], {"p:0": True, "x:0": 2.0}) == [2, -2]
    assert run(g, [z, "c/Neg:0"], {"p:0": True, "x:0": 2.0}) == [2, -2]  # the structured one's readers read primitives
    extra = add_values.add_result(op, [f.params[0] for _, f in bodies(op)])
    with pytest.raises(InvalidArgumentError, match="needs 'c' too"):
        run(g, [extra, "c/Neg:0"], {"p:0": True, "x:0": 2.0})


def test_a_graph_can_grow_and_be_recovered_again() -> None:
    g = recovered(COUNT)
    b = Builder(g)
    later = b.Mul(g.get_tensor_by_name("out:0"), 2)
    s = b.Switch(later, b.Less(later, 7))
    joined, _ = b.Merge([b.Neg(s[0]), s[1]])
    recover(g, [joined])
    assert len(structured(g)) == 2
    assert later.op.inputs[0].op.type == "StatelessWhile"
    assert [run(g, joined, {"n:0": n}) for n in (3, 4)] == [6, -8]


def test_a_pruned_graph_is_recovered_whole() -> None:
    """A step's graph in structured form is made by recovering it and pruning again."""
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, (), name="n")
        _, x = hr.while_loop(
            lambda i, x: i < n, lambda i, x: (i + 1, hr.cond(x > 9, lambda: x - n, lambda: x * 2)), (0, 1)
        )
    primitive = lower(prune([n], [x], []).graph).graph
    recover(primitive)
    (ret,) = [op for op in primitive.operations if op.type == "_Retval"]
    again = prune([primitive.operations[0].outputs[0]], [ret.inputs[0]], []).graph
    assert not any(op.opdef.primitive for op in again.operations)
    assert sum(bool(op.opdef.structured) for op in again.operations) == 1
    (arg,) = [op for op in primitive.operations if op.type == "_Arg"]
    assert run(primitive, ret.inputs[0], {arg.outputs[0]: 6}) == run(g, x, {n: 6})


# *** gradients ***


@pytest.mark.parametrize("name", ["loop", "conditional"])
def test_gradients_of_imported_primitives(name: str) -> None:
    if name == "loop":
        text = """
        x = Placeholder[dtype=float32, shape=[]]
        k = Const[value=int32[]{0}, dtype=int32]
        one = Const[value=float32[]{1.0}, dtype=float32]
        i0 = Enter[frame_name="w"](k)
        y0 = Enter[frame_name="w"](one)
        xx = Enter[frame_name="w", is_constant=true](x)
        mi = Merge(i0, nexti)
        my = Merge(y0, nexty)
        three = Const[value=int32[]{3}, dtype=int32] ^mi
        less = Less(mi, three)
        cond = LoopCond(less)
        si = Switch(mi, cond)
        sy = Switch(my, cond)
        step = Const[value=int32[]{1}, dtype=int32] ^si
        i = AddV2(si:1, step)
        prod = Mul(sy:1, xx)
        nexti = NextIteration(i)
        nexty = NextIteration(prod)
        y = Exit(sy)
        """
        feeds: dict[str, Any] = {"x:0": 2.0}
        want = [12.0, 12.0, 6.0]
    else:
        text, feeds = CHOOSE, {"p:0": True, "x:0": 0.0}
        want = [-1.0, 1.0, -1.0]
    g = from_text(text)
    x, y = g.get_tensor_by_name("x:0"), g.get_tensor_by_name("y:0")
    for d in want:
        with scopes.entered(Builder(g)):
            (y,) = hr.gradients(y, [x])
        assert run(g, y, feeds) == pytest.approx(d)


def test_effects_are_not_recovered_twice() -> None:
    """Two results of one conditional, recovered one after the other.

    A part of the graph is ill-formed.
    """
    text = (
        CHOOSE
        + """
        v = VarHandleOp[dtype=float32, shape=[], shared_name="v"]
        c/v = Switch(v, p)
        c/add = AssignAddVariableOp[dtype=float32](c/v:1, c/Neg/Switch:1)
        c/one = Identity(c/Neg/Switch:1) ^c/add
        c/two = Neg(c/Neg/Switch:1) ^c/add
        one = Merge(c/Neg/Switch, c/one)
        two = Merge(c/Neg/Switch, c/two)
        odd = Merge(c/Neg, c/Neg/Switch:1)
        """
    )
    g = from_text(text)
    recover(g, [g.get_tensor_by_name("one:0")])
    with pytest.raises(InvalidArgumentError, match=r"'c/add' .*recovered once"):
        recover(g, [g.get_tensor_by_name("two:0")])
    g = from_text(text)
    recover(g, [g.get_tensor_by_name("one:0"), g.get_tensor_by_name("two:0")])
    assert len(structured(g)) == 1


def test_a_loop_is_recovered_whole_though_one_result_is_asked_for() -> None:
    text = COUNT + '    f = Enter[frame_name="w"](zero)\n    mf = Merge(f, nextf)\n    sf = Switch(mf, cond)\n'
    text += "    nextf = NextIteration(sf:1)\n    out2 = Exit(sf)\n    odd = Switch(n, p)\n    bad = Merge(odd, odd)\n"
    g = from_text("    p = Placeholder[dtype=bool, shape=[]]\n" + text)
    recover(g, [g.get_tensor_by_name("out:0")])
    (op,) = structured(g)
    assert {t.op.name for t in g.replaced} == {"out", "out2"}
    recover(g, [g.get_tensor_by_name("out2:0")])
    assert structured(g) == [op]


def test_a_condition_with_effects() -> None:
    g = variable(
        VARIABLE
        + COUNT.replace("n = Placeholder[dtype=int32, shape=[]]", "n = Const[value=float32[]{5.0}, dtype=float32]")
        .replace("less = Less(m, lim)", "r = ReadVariableOp[dtype=float32](h) ^m\n less = Less(r, lim)")
        .replace("m = Merge", 'h = Enter[frame_name="w", is_constant=true](v)\n m = Merge')
        .replace(
            "body = AddV2(i, one)",
            "by = Cast[DstT=float32](one)\n add = AssignAddVariableOp(h, by)\n body = AddV2(i, one) ^add",
        )
    )
    recover(g)
    (op,) = structured(g)
    assert types(dict(bodies(op))["cond"]) == ["Less", "ReadVariableOp"]
    assert "ReadVariableOp" not in types(dict(bodies(op))["body"])
    with hr.Session(graph=g) as sess:
        sess.run("init")
        assert sess.run("out:0") == 4
        assert sess.run("read:0") == 5
