"""The token machine's rules, one by one, without an executor.

The graphs are made by hand and fire in many orders.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace.errors import InternalError
from headrace.execute import plan as plans
from headrace.execute.acyclic_propagator import AcyclicPropagator
from headrace.execute.dispatch_loop import dispatch_loop
from headrace.execute.frames import Propagator
from headrace.execute.plan import PlanNode, make_plan
from headrace.execute.records import Iteration
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Tensor
from headrace.prune import prune
from tests.execute.loops import Loop, counting, dead
from tests.execute.machine import DEAD, Machine, SeededReady

pytestmark = pytest.mark.one_engine

SEEDS = (None, *range(20))


def every_order(test: Callable[[int | None], None]) -> Callable[[], None]:
    """Runs a test in first-in-first-out order and in 20 random ones.

    A failure names the seed.
    """

    @functools.wraps(test)
    def in_every_order() -> None:
        for seed in SEEDS:
            try:
                test(seed)
            except BaseException as e:
                e.add_note(f"seed {seed}")
                raise

    del in_every_order.__wrapped__  # pytest would take `seed` for a fixture
    return in_every_order


def new() -> Builder:
    return Builder(Graph())


def run(b: Builder, seed: int | None, **kwargs: object) -> Machine:
    return Machine(b.graph, seed, **kwargs).run()  # type: ignore[arg-type]


# *** Switch ***


@every_order
def test_switch_sends_data_one_way_and_a_dead_token_the_other(seed: int | None) -> None:
    for taken in (False, True):
        b = new()
        x = b.const(7)
        sides = b.Switch(x, b.const(taken))
        ends = [b.Identity(s) for s in sides]
        far = [b.AddV2(e, e) for e in ends]
        m = run(b, seed)
        assert [m.value(e) for e in ends] == ([DEAD, 7] if taken else [7, DEAD])
        assert [m.value(e) for e in far] == ([DEAD, 14] if taken else [14, DEAD])


@every_order
def test_switch_is_dead_on_both_sides_if_data_or_predicate_is_dead(seed: int | None) -> None:
    for data_dead, pred_dead in ((True, False), (False, True), (True, True)):
        b = new()
        data = dead(b) if data_dead else b.const(5)
        pred = dead(b, True) if pred_dead else b.const(True)
        switch = b.Switch(data, pred)
        ends = [b.Identity(s) for s in switch]
        m = run(b, seed)
        assert m.value(switch[0].op) is DEAD
        assert [m.value(e) for e in ends] == [DEAD, DEAD]


@every_order
def test_each_end_of_a_switch_may_have_many_users(seed: int | None) -> None:
    b = new()
    no, yes = b.Switch(b.const(7), b.const(True))
    live = [b.Identity(yes), b.AddV2(yes, yes), b.AddV2(yes, b.Identity(yes)), b.Merge([no, yes])[0]]
    gone = [b.Identity(no), b.AddV2(no, yes), b.AddV2(b.Identity(no), no)]
    m = run(b, seed)
    assert [m.value(t) for t in live] == [7, 14, 14, 7]
    assert [m.value(t) for t in gone] == [DEAD] * 3


@every_order
def test_control_edge_from_a_switch_lives_whatever_side_is_taken(seed: int | None) -> None:
    b = new()
    no, yes = b.Switch(b.const(7), b.const(True))
    end = b.after(no.op).const(1)
    join = b.after(no.op, yes.op).AddV2(b.const(1), end)
    nothing = b.after(no.op).NoOp()
    m = run(b, seed)
    assert (m.value(end), m.value(join), m.value(nothing)) == (1, 2, ())
    assert m.when(no.op) < m.when(end)


@every_order
def test_control_edge_from_a_dead_switch_kills(seed: int | None) -> None:
    b = new()
    no, _ = b.Switch(dead(b), b.const(True))
    end = b.after(no.op).const(1)
    assert run(b, seed).value(end) is DEAD


@every_order
def test_control_edge_from_a_dead_op_kills(seed: int | None) -> None:
    b = new()
    gone = b.Identity(dead(b))
    ends = [
        b.after(gone).const(1),
        b.after(gone).Identity(b.const(2)),
        b.after(gone, b.const(1)).NoOp(),
        b.after(b.after(gone).NoOp()).AddV2(1, 2),
    ]
    m = run(b, seed)
    assert [m.value(e) for e in ends] == [DEAD] * 4


# *** any node ***


@every_order
def test_a_node_waits_for_all_its_tokens(seed: int | None) -> None:
    b = new()
    slow = b.Identity(b.Identity(b.Identity(b.const(1))))
    x = b.after(slow, b.Identity(slow)).AddV2(b.const(2), b.AddV2(slow, slow))
    m = run(b, seed)
    assert m.value(x) == 4
    assert m.when(slow) < m.when(x)


@every_order
def test_one_dead_token_among_live_ones_is_enough(seed: int | None) -> None:
    for k in range(3):
        b = new()
        parts = [b.Identity(dead(b)) if i == k else b.Identity(b.const(i)) for i in range(3)]
        x = b.after(parts[2]).AddV2(parts[0], parts[1])
        assert run(b, seed).value(x) is DEAD


@every_order
def test_control_trigger_lives_whatever_its_inputs_are(seed: int | None) -> None:
    b = new()
    gone = [b.Identity(dead(b)) for _ in range(2)]
    one = b.after(gone[0]).ControlTrigger()
    two = b.after(*gone, b.Identity(b.const(1))).ControlTrigger()
    none = b.ControlTrigger()
    end = b.after(one, two, none).const(4)
    m = run(b, seed)
    assert [m.value(t) for t in (one, two, none, end)] == [(), (), (), 4]
    assert max(m.when(g) for g in gone) < m.when(two)


# *** Merge outside loops ***


@every_order
def test_merge_takes_the_live_one(seed: int | None) -> None:
    for k in range(3):
        b = new()
        inputs = [b.Identity(b.const(i)) if i == k else b.Identity(dead(b)) for i in range(3)]
        value, index = b.Merge(inputs)
        ends = [b.Identity(value), b.AddV2(index, index)]
        m = run(b, seed)
        assert [m.value(e) for e in ends] == [k, 2 * k]


@every_order
def test_merge_of_a_conditional(seed: int | None) -> None:
    for p in (False, True):
        b = new()
        no, yes = b.Switch(b.const(10), b.Identity(b.const(p)))
        value, index = b.Merge([b.Mul(no, no), b.AddV2(yes, yes)])
        m = run(b, seed)
        assert (m.value(value), m.value(index)) == ((20, 1) if p else (100, 0))


def test_merge_takes_the_first_of_several_live_ones_and_consumes_the_rest() -> None:
    winners = set()
    for seed in range(20):
        b = new()
        inputs = [b.Identity(b.Identity(b.const(i))) for i in range(3)] + [b.Identity(dead(b))]
        value, index = b.Merge(inputs)
        end = b.Identity(value)
        m = run(b, seed)
        first = min(inputs[:3], key=m.when)
        assert m.value(value) == m.value(end) == m.value(index) == inputs.index(first), f"seed {seed}"
        assert len(m.firings(value)) == 1, f"seed {seed}"
        winners.add(int(m.value(index)))
    assert winners == {0, 1, 2}


@every_order
def test_merge_of_dead_inputs_is_dead_in_both_outputs(seed: int | None) -> None:
    for n in (1, 2, 3):
        b = new()
        value, index = b.Merge([b.Identity(dead(b)) for _ in range(n)])
        ends = [b.Identity(value), b.Identity(index), b.after(value.op).const(1)]
        m = run(b, seed)
        assert m.value(value.op) is DEAD
        assert [m.value(e) for e in ends] == [DEAD] * 3


@every_order
def test_merge_with_one_input_and_merge_of_one_tensor_twice(seed: int | None) -> None:
    b = new()
    x = b.Identity(b.const(3))
    alone, _ = b.Merge([x])
    twice, _ = b.Merge([x, x])
    dead_twice, _ = b.Merge([dead(b)] * 2)
    chosen, index = b.Merge([b.const(8), b.Identity(dead(b))])
    m = run(b, seed)
    assert [m.value(t) for t in (alone, twice, dead_twice, chosen, index)] == [3, 3, DEAD, 8, 0]


@every_order
def test_merge_waits_for_its_control_inputs_and_ignores_their_deadness(seed: int | None) -> None:
    b = new()
    gone, late = b.Identity(dead(b)), b.Identity(b.Identity(b.const(1)))
    no, yes = b.Switch(b.const(7), b.const(True))
    live = b.after(gone, late).Merge([no, yes])[0]
    nothing = b.after(gone, late).Merge([b.Identity(no), no])[0]
    after_switch = b.after(yes.op, late).Merge([dead(b), yes])[0]
    m = run(b, seed)
    assert [m.value(t) for t in (live, nothing, after_switch)] == [7, DEAD, 7]
    for merge in (live, nothing):
        assert m.when(merge) > max(m.when(gone), m.when(late))


@every_order
def test_merges_feed_merges(seed: int | None) -> None:
    b = new()
    no, yes = b.Switch(b.const(7), b.const(False))
    inner = b.Merge([yes, b.Identity(yes)])[0]
    outer, index = b.Merge([inner, b.Merge([no, inner])[0]])
    m = run(b, seed)
    assert (m.value(inner), m.value(outer), m.value(index)) == (DEAD, 7, 1)


# *** loops ***


@every_order
def test_a_counting_loop(seed: int | None) -> None:
    for trips in (0, 1, 2, 7):
        b = new()
        loop, i = counting(b, trips)
        end = b.Identity(loop.exit(i))
        m = run(b, seed)
        assert m.value(end) == trips
        tags = [f"count#{k}" for k in range(trips + 1)]
        assert m.tags(i) == tags
        assert [m.value(i, t) for t in tags] == list(range(trips + 1))
        assert [m.value(i.op.outputs[1], t) for t in tags] == [0] + [1] * trips
        assert [m.value(loop.body(i), t) for t in tags] == [*range(trips), DEAD]
        assert [m.value(loop.done(i), t) for t in tags] == [DEAD] * trips + [trips]
        assert m.opened["count"] == trips + 1


@every_order
def test_enter_goes_to_iteration_zero_and_a_constant_one_to_every_iteration(seed: int | None) -> None:
    for late in (False, True):  # a constant that arrives after iterations have been opened goes to those too
        b = new()
        x = b.const(100)
        loop = Loop(b, "a", parallel_iterations=4)
        i = loop.var(b.const(0))
        limit = loop.constant(b.const(5))
        deep = b.Identity(b.Identity(b.Identity(x)))
        constant = loop.constant(deep)
        loop.goes_while(b.Less(i, limit))
        alone = b.Identity(constant)
        used = b.AddV2(loop.body(i), constant)
        loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
        end = b.Identity(loop.exit(i))
        m = run(b, seed, last=[deep] if late else [])
        assert m.value(end) == 5
        assert [m.value(alone, f"a#{k}") for k in range(6)] == [100] * 6
        assert [m.value(used, f"a#{k}") for k in range(6)] == [100, 101, 102, 103, 104, DEAD]
        assert len(m.firings(constant)) == 1
        assert m.value(constant, "") == 100  # an Enter fires in its parent's frame


@every_order
def test_a_constant_enter_may_feed_anything(seed: int | None) -> None:
    b = new()
    loop = Loop(b, "a", parallel_iterations=3)
    i = loop.var(b.const(0))
    c, p = loop.constant(b.Identity(b.const(10))), loop.constant(b.Identity(b.const(True)))
    gone = loop.constant(dead(b))
    loop.goes_while(b.Less(i, loop.constant(b.const(4))))
    no, yes = b.Switch(c, p)
    merged, index = b.Merge([c, b.Identity(gone)])
    both = b.AddV2(c, c)
    killed = b.AddV2(c, gone)
    controlled = b.after(c.op).Identity(loop.body(i))
    merge_controlled = b.after(c.op, gone.op).Merge([no, yes])[0]
    trigger = b.after(gone.op).ControlTrigger()
    kill_by_control = b.after(gone.op).Identity(c)
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    end = b.Identity(loop.exit(i))
    m = run(b, seed)
    assert m.value(end) == 4
    for k in range(5):
        tag = f"a#{k}"
        assert (m.value(no, tag), m.value(yes, tag), m.value(both, tag)) == (DEAD, 10, 20)
        assert (m.value(merged, tag), m.value(index, tag), m.value(merge_controlled, tag)) == (10, 0, 10)
        assert (m.value(killed, tag), m.value(kill_by_control, tag), m.value(trigger, tag)) == (DEAD, DEAD, ())
        assert m.value(controlled, tag) == (DEAD if k == 4 else k)


@every_order
def test_a_dead_token_stops_at_next_iteration(seed: int | None) -> None:
    b = new()
    _, i = counting(b, 3)
    nxt = i.op.inputs[1]
    m = run(b, seed)
    assert [m.value(nxt, f"count#{k}") for k in range(4)] == [1, 2, 3, DEAD]
    assert m.tags(i) == [f"count#{k}" for k in range(4)]
    assert m.opened["count"] == 4


@every_order
def test_a_dead_exit_is_withheld_and_a_live_one_sent_once(seed: int | None) -> None:
    b = new()
    loop, i = counting(b, 4)
    out = loop.exit(i)
    ends = [b.Identity(out), b.AddV2(out, out), b.Merge([b.Identity(dead(b)), out])[0], b.after(out).const(1)]
    m = run(b, seed)
    assert [m.value(e) for e in ends] == [4, 8, 4, 1]
    assert [f.tag for f in m.firings(out) if f.values is not None] == ["count#4"]
    assert all(len(m.firings(e)) == 1 for e in ends)


@every_order
def test_several_variables_and_an_order_that_only_data_decides(seed: int | None) -> None:
    b = new()
    loop = Loop(b, "fib")
    i, x, y = loop.var(b.const(0)), loop.var(b.const(0)), loop.var(b.const(1))
    loop.goes_while(b.Less(i, loop.constant(b.const(20))))
    loop.next(x, b.Identity(loop.body(y)))
    loop.next(y, b.AddV2(loop.body(x), loop.body(y)))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    out = loop.exit(x)
    assert run(b, seed).value(out, "fib#20") == 6765


@every_order
def test_a_loop_of_which_every_enter_is_dead(seed: int | None) -> None:
    b = new()
    loop = Loop(b, "a")
    i, x = loop.var(dead(b)), loop.var(dead(b))
    n = loop.constant(dead(b))
    loop.goes_while(b.Less(i, n))
    pivot = b.Identity(loop.body(i))
    loop.next(i, b.AddV2(loop.body(i), b.after(pivot).const(1)))
    loop.next(x, b.AddV2(loop.body(x), n))
    outs = [loop.exit(i), loop.exit(x)]
    ends = [b.Identity(outs[0]), b.AddV2(*outs), b.after(outs[1]).const(1)]
    merged = b.Merge([outs[0], b.const(9)])[0]
    m = run(b, seed)
    assert [m.value(e) for e in ends] == [DEAD] * 3
    assert m.value(merged) == 9
    assert m.opened["a"] == 1
    assert all(len(m.firings(e)) == 1 for e in ends)


@every_order
def test_a_loop_in_a_branch(seed: int | None) -> None:
    for p in (False, True):
        b = new()
        pred = b.const(p)
        no, yes = b.Switch(b.const(3), pred)
        loop = Loop(b, "a")
        i = loop.var(b.Identity(yes))
        loop.goes_while(b.Less(i, loop.constant(b.after(b.Identity(yes)).const(10))))
        loop.next(i, b.AddV2(loop.body(i), loop.const(2)))
        value, index = b.Merge([b.Mul(no, no), loop.exit(i)])
        m = run(b, seed)
        assert (m.value(value), m.value(index)) == ((11, 1) if p else (9, 0))
        assert m.opened["a"] == (5 if p else 1)


@every_order
def test_a_conditional_in_a_loop(seed: int | None) -> None:
    b = new()
    loop = Loop(b, "a", parallel_iterations=3)
    i, x = loop.var(b.const(0)), loop.var(b.const(1))
    loop.goes_while(b.Less(i, loop.constant(b.const(8))))
    no, yes = b.Switch(loop.body(x), b.Less(loop.body(x), loop.constant(b.const(20))))
    merged, index = b.Merge([b.Sub(no, b.after(b.Identity(no)).const(15)), b.AddV2(yes, yes)])
    loop.next(x, merged)
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    out = loop.exit(x)
    m = run(b, seed)
    want, taken = 1, []
    for _ in range(8):
        taken.append(want < 20)
        want = want + want if want < 20 else want - 15
    assert m.value(b.graph.operations[-1], "a#8") == (want,)
    assert m.value(out, "a#8") == want
    assert [m.value(index, f"a#{k}") for k in range(9)] == [*map(int, taken), DEAD]


@pytest.mark.matrix
@every_order
def test_nested_loops(seed: int | None) -> None:
    for outer_trips, inner_trips in ((3, 4), (2, 0), (0, 3), (1, 1)):
        b = new()
        outer = Loop(b, "outer", parallel_iterations=2)
        i, total = outer.var(b.const(0)), outer.var(b.const(0))
        n, inner_n = outer.constant(b.const(outer_trips)), outer.constant(b.const(inner_trips))
        outer.goes_while(b.Less(i, n))
        inner = Loop(b, "inner", parallel_iterations=3)
        j, s = inner.var(outer.const(0)), inner.var(outer.body(total))
        inner.goes_while(b.Less(j, inner.constant(inner_n)))
        inner.next(s, b.AddV2(inner.body(s), inner.constant(outer.body(i))))
        inner.next(j, b.AddV2(inner.body(j), inner.const(1)))
        outer.next(total, inner.exit(s))
        outer.next(i, b.AddV2(outer.body(i), outer.const(1)))
        out = b.Identity(outer.exit(total))
        m = run(b, seed)
        assert m.value(out) == inner_trips * sum(range(outer_trips))
        assert m.tags(inner.cond) == [
            f"outer#{a}/inner#{c}" for a in range(outer_trips) for c in range(inner_trips + 1)
        ]
        # the outer loop's last iteration is dead in its body: the inner loop opens there too, dead
        assert m.opened["inner"] == outer_trips * (inner_trips + 1) + 1
        assert m.opened["outer"] == outer_trips + 1


@every_order
def test_three_frames_deep(seed: int | None) -> None:
    b = new()
    a = Loop(b, "a")
    i, x = a.var(b.const(0)), a.var(b.const(0))
    two = a.constant(b.const(2))
    a.goes_while(b.Less(i, two))
    c = Loop(b, "b")
    j, y = c.var(a.const(0)), c.var(a.body(x))
    two_b = c.constant(two)
    c.goes_while(b.Less(j, two_b))
    d = Loop(b, "c")
    k, z = d.var(c.const(0)), d.var(c.body(y))
    d.goes_while(b.Less(k, d.constant(two_b)))
    d.next(z, b.AddV2(d.body(z), d.const(1)))
    d.next(k, b.AddV2(d.body(k), d.const(1)))
    c.next(y, d.exit(z))
    c.next(j, b.AddV2(c.body(j), c.const(1)))
    a.next(x, c.exit(y))
    a.next(i, b.AddV2(a.body(i), a.const(1)))
    out = b.Identity(a.exit(x))
    m = run(b, seed)
    assert m.value(out) == 8
    assert len(m.tags(d.body(z))) >= 8
    assert "a#1/b#1/c#2" in m.tags(z)


@every_order
def test_two_loops_one_after_the_other(seed: int | None) -> None:
    b = new()
    first, i = counting(b, 3, "first")
    second, j = counting(b, first.exit(i), "second")
    m = run(b, seed)
    assert m.value(second.exit(j), "second#3") == 3


@every_order
def test_a_frame_without_a_loop(seed: int | None) -> None:
    b = new()
    loop = Loop(b, "a")
    live, gone = loop.enter(b.const(1)), loop.enter(dead(b))
    outs = [b.Exit(live), b.Exit(b.AddV2(live, live)), b.Exit(gone), b.Exit(b.AddV2(live, gone))]
    ends = [b.Identity(o) for o in outs]
    m = run(b, seed)
    assert [m.value(e) for e in ends] == [1, 2, DEAD, DEAD]


@every_order
def test_next_iteration_in_the_root_frame_passes_on(seed: int | None) -> None:
    b = new()
    live = b.Identity(b.NextIteration(b.Identity(b.const(3))))
    gone = b.Identity(b.NextIteration(b.Identity(dead(b))))
    m = run(b, seed)
    assert (m.value(live), m.value(gone)) == (3, DEAD)


@every_order
def test_a_merge_of_a_next_iteration_in_the_root_frame(seed: int | None) -> None:
    for live in (False, True):
        b = new()
        passed = b.NextIteration(b.Identity(b.const(3)) if live else dead(b))
        value, index = b.Merge([passed, dead(b) if live else b.Identity(b.const(2))])
        m = run(b, seed)
        assert (m.value(value), m.value(index)) == ((3, 0) if live else (2, 1))


@every_order
def test_control_edges_in_loops(seed: int | None) -> None:
    b = new()
    loop = Loop(b, "a")
    i = loop.var(b.const(0))
    limit = loop.constant(b.const(3))
    loop.goes_while(b.Less(i, limit))
    after_merge = b.after(i.op).const(1)
    after_switch = b.after(loop.body(i).op).const(2)
    after_body = b.after(b.Identity(loop.body(i))).const(3)
    after_cond = b.after(loop.cond).NoOp()
    trigger = b.after(b.Identity(loop.body(i))).ControlTrigger()
    loop.next(i, b.after(after_cond).AddV2(loop.body(i), after_merge))
    after_exit = b.after(loop.exit(i)).const(4)
    m = run(b, seed)
    tags = [f"a#{k}" for k in range(4)]
    assert [m.value(after_merge, t) for t in tags] == [1] * 4
    assert [m.value(after_switch, t) for t in tags] == [2] * 4
    assert [m.value(after_body, t) for t in tags] == [3, 3, 3, DEAD]
    assert [m.value(trigger, t) for t in tags] == [()] * 4
    assert m.value(after_exit) == 4
    for t in tags:
        assert m.when(i.op, t) < m.when(after_merge, t)
        assert m.when(loop.cond, t) < m.when(after_cond, t)


@every_order
def test_a_loop_merge_waits_for_its_control_inputs(seed: int | None) -> None:
    b = new()
    loop = Loop(b, "a")
    i = loop.var(b.const(0))
    limit = loop.constant(b.const(3))
    held = b.Identity(limit)
    entered = loop.enter(b.const(10))
    x = b.after(held).Merge([entered, entered])[0]
    loop.merges.append(x)
    loop.goes_while(b.Less(i, limit))
    loop.next(x, b.AddV2(loop.body(x), loop.body(i)))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    out = loop.exit(x)
    m = run(b, seed)
    assert m.value(out, "a#3") == 13
    for k in range(4):
        assert m.when(held, f"a#{k}") < m.when(x, f"a#{k}")
    assert [m.value(x.op.outputs[1], f"a#{k}") for k in range(4)] == [0, 1, 1, 1]


@every_order
def test_an_exit_with_control_edges_and_one_that_is_dead(seed: int | None) -> None:
    b = new()
    loop = Loop(b, "a")
    i, x = loop.var(b.const(0)), loop.var(b.const(5))
    loop.goes_while(b.Less(i, loop.constant(b.const(2))))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    loop.next(x, b.Identity(loop.body(x)))
    done = loop.done(x)
    never = b.Switch(done, b.after(b.Identity(done)).const(True))[0]
    dead_exit, live_exit = b.Exit(never), loop.exit(x)
    ends = [b.after(dead_exit).const(1), b.after(live_exit).const(2), b.after(loop.exit(i)).Identity(live_exit)]
    merged = b.after(dead_exit).Merge([dead_exit, live_exit])[0]
    m = run(b, seed)
    assert [m.value(e) for e in ends] == [DEAD, 2, 5]
    assert m.value(merged) == 5


# *** the window ***


def _two_speeds(trips: int, window: int) -> tuple[Builder, Tensor, Tensor]:
    """A loop whose counter may run ahead while `slow` is held back.

    Returns the builder, `slow` and the result.
    """
    b = new()
    loop = Loop(b, "a", window)
    i, x = loop.var(b.const(0)), loop.var(b.const(0))
    loop.goes_while(b.Less(i, loop.constant(b.const(trips))))
    slow = b.AddV2(loop.body(x), loop.body(i))
    loop.next(x, slow)
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    return b, slow, loop.exit(x)


@pytest.mark.parametrize("window", [1, 2, 10])
@pytest.mark.parametrize("trips", [0, 1, 9, 10, 11, 30])
def test_no_more_iterations_are_open_than_the_window_allows(window: int, trips: int) -> None:
    for seed in SEEDS:
        b, slow, out = _two_speeds(trips, window)
        m = run(b, seed, last=[slow])  # Machine asserts the bound at every opening
        assert m.value(out, f"a#{trips}") == sum(range(trips)), f"seed {seed}"
        assert m.most["a"] == min(window, trips + 1), f"seed {seed}: the window is not used"
        assert m.records <= window + 1


def test_with_a_window_of_one_iterations_do_not_overlap() -> None:
    for seed in SEEDS:
        b, _, _ = _two_speeds(6, 1)
        m = run(b, seed)
        inside = [f.tag for f in m.history if f.tag]
        assert inside == sorted(inside), f"seed {seed}"


def test_nested_windows_are_bounded_each_in_its_own_instance() -> None:
    for seed in SEEDS:
        b = new()
        outer = Loop(b, "outer", 2)
        i, total = outer.var(b.const(0)), outer.var(b.const(0))
        outer.goes_while(b.Less(i, outer.constant(b.const(5))))
        inner = Loop(b, "inner", 3)
        j, s = inner.var(outer.const(0)), inner.var(outer.body(i))
        inner.goes_while(b.Less(j, inner.constant(outer.const(6))))
        slow = b.AddV2(inner.body(s), inner.body(j))
        inner.next(s, slow)
        inner.next(j, b.AddV2(inner.body(j), inner.const(1)))
        outer.next(total, b.AddV2(outer.body(total), inner.exit(s)))
        outer.next(i, b.AddV2(outer.body(i), outer.const(1)))
        out = outer.exit(total)
        m = run(b, seed, last=[slow])
        assert m.value(out, "outer#5") == 5 * 15 + 10, f"seed {seed}"
        assert m.most == {"": 1, "outer": 2, "inner": 3}, f"seed {seed}"
        assert m.records <= 1 + 2 + 2 * 3, f"seed {seed}"


def test_a_held_token_waits_for_the_oldest_iteration() -> None:
    for seed in SEEDS:
        b, slow, _ = _two_speeds(12, 4)
        m = run(b, seed, last=[slow])
        order = [f for f in m.history if f.name == slow.op.name or f.name == "Less"]
        for n in range(4, 12):
            opened = next(i for i, f in enumerate(order) if f.tag == f"a#{n}")
            freed = next(i for i, f in enumerate(order) if f.tag == f"a#{n - 4}" and f.name == slow.op.name)
            assert freed < opened, f"seed {seed}: iteration {n} began before {n - 4} was done"


@pytest.mark.matrix
@pytest.mark.parametrize("window", [1, 10])
def test_long_loops_hold_a_constant_number_of_iterations(window: int) -> None:
    trips = 30_000
    b = new()
    counting(b, trips, parallel_iterations=window)
    m = Machine(b.graph, remember=False)
    m.run()
    assert m.opened["count"] == trips + 1
    assert m.most["count"] <= window
    assert m.records <= window + 1
    assert m.propagator.open_iterations == 0


def test_the_frame_of_a_loop_holds_nothing_for_iterations_that_are_over() -> None:
    b = new()
    loop = Loop(b, "a")
    i, x = loop.var(b.const(0)), loop.var(b.const(0))
    loop.goes_while(b.Less(i, loop.constant(b.const(300))))
    no, yes = b.Switch(loop.body(x), b.Less(loop.body(x), loop.constant(b.const(2))))
    loop.next(x, b.Merge([b.Sub(no, no), b.AddV2(yes, b.after(b.Identity(yes)).const(1))])[0])
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    sizes = []
    for seed in range(3):
        m = Machine(b.graph, seed)
        frames = {}

        def watch(event: str, frame: object, it: object, frames: dict = frames, m: Machine = m) -> None:
            m._watch(event, frame, it)  # type: ignore[arg-type]
            frames[frame] = True
            sizes.append(
                max((len(f.origins) + len(f.next_iteration_roots) + len(f.children) for f in frames), default=0)
            )

        m.propagator.watch = watch  # type: ignore[assignment]
        m.run()
    assert max(sizes) < 120, "deadness or held tokens of past iterations are kept"


# *** feeds, fetches, several runs ***


@every_order
def test_feeds_and_fetches_are_nodes_too(seed: int | None) -> None:
    b = new()
    x, y = b.Placeholder(dtype="int32", shape=()), b.Placeholder(dtype="int32", shape=())
    z = b.AddV2(x, b.AddV2(y, y))
    pruned = prune([x, y], [z, x], [])
    m = Machine(pruned.graph, seed).run({0: 1, 1: 10})
    assert [m.value(r) for r in pruned.retvals] == [(21,), (1,)]


def test_feeds_that_come_late() -> None:
    b = new()
    x, y = b.Placeholder(dtype="int32", shape=()), b.Placeholder(dtype="int32", shape=())
    early = b.AddV2(x, x)
    late = b.AddV2(early, y)
    pruned = prune([x, y], [early, late], [])
    m = Machine(pruned.graph, 0)
    m.propagator.start()
    m.propagator.done(m.plan.args[0], m.propagator.root, 4)
    while m.ready:
        m._fire(*m.ready.popleft())
    assert m.value(pruned.retvals[0]) == (8,)
    assert not m.propagator.finished
    assert [n.op.name for n, _ in m.propagator.waiting()] == [pruned.graph.find(late.op.name).name]
    m.propagator.done(m.plan.args[1], m.propagator.root, 1)
    while m.ready:
        m._fire(*m.ready.popleft())
    assert m.value(pruned.retvals[1]) == (9,)
    m.ready.check(m.propagator)


def test_one_plan_runs_many_times_side_by_side() -> None:
    b = new()
    loop, i = counting(b, 5)
    out = loop.exit(i)
    first = Machine(b.graph, 1)
    machines = [first, *(Machine(first.plan, seed) for seed in range(2, 6))]
    for m in machines:
        m.propagator.start()
    while any(m.ready for m in machines):
        for m in machines:
            if m.ready:
                m._fire(*m.ready.popleft())
    for m in machines:
        m.ready.check(m.propagator)
        assert m.value(out, "count#5") == 5


@every_order
def test_the_propagator_for_graphs_without_control_flow_does_the_same(seed: int | None) -> None:
    b = new()
    x = b.Identity(b.const(2))
    y = b.AddV2(x, b.AddV2(x, b.const(3)))
    end = b.after(y).Identity(x)
    nothing = b.after(end, x).NoOp()
    last = b.after(nothing, b.after(x).NoOp()).const(9)
    for propagator in (Propagator, AcyclicPropagator):
        m = run(b, seed, propagator=propagator)
        assert [m.value(t) for t in (x, y, end, nothing, last)] == [2, 7, 2, (), 9]


def test_an_empty_graph_is_finished_when_it_starts() -> None:
    for propagator in (Propagator, AcyclicPropagator):
        m = Machine([], propagator=propagator).run()
        assert m.history == []


# *** graphs that are no loops ***


def test_an_exit_that_is_alive_twice_is_an_error() -> None:
    b = new()
    loop, i = counting(b, 3)
    b.Exit(b.Identity(loop.body(i)))
    with pytest.raises(InternalError, match="fired alive in more than one iteration of loop 'count'"):
        run(b, None)


def test_what_is_dead_knows_the_switch() -> None:
    b = new()
    no, _ = b.Switch(b.Identity(b.const(1)), b.const(True), name="decide")
    gone = b.Identity(b.AddV2(no, b.const(1)))
    m = Machine(b.graph)
    m.propagator.start()
    origins = []
    while m.ready:
        node, it, x = m.ready.popleft()
        if node.live is not node:
            switch, iteration, taken = x
            origins.append((node.op.name, switch.op.name, iteration.tag, taken))
        m._fire(node, it, x)
    assert origins == [("AddV2", "decide", "", True), (gone.op.name, "decide", "", True)]


def test_values_are_opaque_to_the_machine() -> None:
    class Thing:
        def __eq__(self, other: object) -> bool:
            raise AssertionError("nobody looks at a value")

        __hash__ = None  # type: ignore[assignment]

        def __bool__(self) -> bool:
            raise AssertionError("nobody looks at a value")

        def __array__(self, *args: object, **kwargs: object) -> np.ndarray:
            raise AssertionError("nobody looks at a value")

    thing = Thing()
    b = new()
    x = b.Placeholder(dtype="int32", shape=())
    loop = Loop(b, "a")
    i, kept = loop.var(b.const(0)), loop.var(x)
    loop.goes_while(b.Less(i, loop.constant(b.const(3))))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    loop.next(kept, b.Identity(loop.body(kept)))
    out = loop.exit(kept)
    pruned = prune([x], [out], [])
    m = Machine(pruned.graph, 3).run({0: thing})
    assert m.firings(pruned.retvals[0])[0].values[0] is thing  # type: ignore[index]


# *** the hot loop ***


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_burst_may_end_anywhere_in_a_chain(limit: int, seed: int | None) -> None:
    b = new()
    sent: list[int] = []
    t = b.const(0)
    for _ in range(7):
        t = b.Identity(b.AddV2(t, 1))
    loop, i = counting(b, 5)
    b.make("_Retval", [b.AddV2(t, loop.exit(i))], {"index": 0}, "fetch")
    ready: Any = collections.deque() if seed is None else SeededReady(seed)
    p = Propagator(make_plan(b.graph.operations), ready)

    def fire(node: PlanNode, it: Iteration, x: Any) -> None:
        if node.kind == plans.RETVAL:
            sent.append(int(x))
            p.absorbed(it)
        elif node.kind == plans.ENTER:
            p.enter(node, it, x)
        else:
            p.exit(node, it, x)

    p.start()
    bursts = 1
    while dispatch_loop(p, fire, bool, limit):
        bursts += 1
    assert sent == [12]
    assert p.finished
    assert bursts > 50 / limit
