"""Fused regions: the operations that are fused, and the equality of their results.

Only the speed differs: values, deadness, waiting, errors and traces are the same as without fused regions.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import flags, pipeline, step_events, thresholds
from headrace.compile.deadness import deadness_of
from headrace.compile.fused_regions import show
from headrace.errors import InvalidArgumentError
from headrace.execute.executor import MachineProgram
from headrace.ir.analysis import frames
from headrace.ir.graph import Graph, Tensor
from headrace.ir.text import from_text
from headrace.programs import Programs
from headrace.target import LocalTarget
from tests.api.programs import initial
from tests.api.test_random_programs import _check, _program
from tests.compile.running import same
from tests.inside import step_of

SOON_MS = 10_000  # of a step that takes a few milliseconds, but may wait for ever if fused regions are wrong


def queue(name: str, values: Sequence[Any] = (), dtype: Any = hr.float32) -> Any:
    """A queue of scalars, and what fills it."""
    q = hr.FIFOQueue(100, [dtype], shapes=[[]], name=name)
    return q, (q.enqueue_many([hr.constant(np.array(values, dtype.numpy))]) if len(values) else None)


def clusters_of(graph: Graph, fetches: Any, feeds: Sequence[Any] = ()) -> str:
    """The members of the fused regions of a step, a line for each fused region."""
    # no pass changes the operations
    with hr.Session(graph=graph, engine="auto") as session, flags.override(OPTIMIZE="off"):
        return show(step_of(session, fetches, dict.fromkeys(feeds)).general.fused_regions)


def results(graph: Graph, before: Any, fetches: Any, engine: str, **kwargs: Any) -> Any:
    with hr.Session(graph=graph, engine=engine) as session:
        if before is not None:
            session.run(before)
        return session.run(fetches, timeout_ms=SOON_MS, **kwargs)


def check(graph: Graph, before: Any, fetches: Any, at_least: int = 1) -> Any:
    """The values of `fetches`, with fused regions (`at_least` so many) and without."""
    with hr.Session(graph=graph, engine="auto") as session:
        step = step_of(session, fetches, {}).general
        assert step.compiled is None
        assert len(step.fused_regions) >= at_least
    got = results(graph, before, fetches, "auto")
    same(got, results(graph, before, fetches, "interpret"))
    return got


# *** which operations ***


def test_what_waits_for_different_queues_stays_apart() -> None:
    with hr.Graph() as g:
        p, fill_p = queue("p", [2.0])
        q, fill_q = queue("q", [3.0])
        x, y = p.dequeue(name="x"), q.dequeue(name="y")
        a = hr.add(hr.negative(hr.square(x, name="xx"), name="xm"), 1.0, name="xp")
        b = hr.add(hr.negative(hr.square(y, name="yy"), name="ym"), 1.0, name="yp")
        c = hr.square(hr.multiply(hr.add(a, b, name="sum"), 0.5, name="half"), name="end")
    assert clusters_of(g, c) == "xx xm xp\nyy ym yp\nsum half end"
    assert check(g, [fill_p, fill_q], c, 3) == 30.25


def test_a_loop_body_is_a_cluster_with_its_counter_apart_from_what_a_queue_holds_up() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1.0, 2.0, 3.0])

        def body(i: Tensor, x: Tensor, y: Tensor) -> Any:
            taken = q.dequeue(name="taken")
            i = hr.add(hr.multiply(hr.add(i, 3, name="i1"), 1, name="i2"), -2, name="i3")
            x = hr.multiply(hr.add(hr.square(x, name="x1"), taken, name="x2"), 0.5, name="x3")
            y = hr.negative(hr.add(x, taken, name="y1"), name="y2")
            return i, x, y

        i, x, y = hr.while_loop(lambda i, x, y: i < 3, body, [0, hr.constant(1.0), hr.constant(0.0)], name="loop")
    # x1 works on what the queue gave an iteration before, and need not wait for what it gives in this one
    assert clusters_of(g, [i, x, y]) == "loop/x2 loop/token_2 loop/x3 loop/y1 loop/y2\nloop/i1 loop/i2 loop/i3"
    check(g, fill, [i, x, y], 1)


def test_the_branches_of_a_conditional_are_clusters_and_what_follows_is_one_with_what_goes_round_it() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [4.0])
        x = q.dequeue(name="x")

        def branch(f: Any, name: str) -> Any:
            with hr.control_dependencies([q.enqueue([x])]):  # else the conditional would be a member itself
                return f(hr.square(hr.negative(x, name="n"), name="s"), name=name)

        r = hr.cond(x > 0.0, lambda: branch(hr.sin, "t"), lambda: branch(hr.cos, "c"), name="if")
        around = hr.square(x, name="around")
        z = hr.multiply(hr.add(r, around, name="z1"), hr.add(r, 1.0, name="z2"), name="z3")
    assert clusters_of(g, z) == "if/n_1 if/s_1 if/c\nif/n if/s if/t\nz1 z2 z3"
    check(g, fill, z, 3)


def test_a_cluster_ends_where_a_path_leaves_it_and_comes_back() -> None:
    with hr.Graph() as g:
        v = hr.Variable(1.0, name="v")
        q, fill = queue("q", [4.0])
        a = hr.square(hr.square(hr.square(q.dequeue(name="x"), name="a1"), name="a2"), name="a3")
        with hr.control_dependencies([v.assign(a)]):
            b = hr.add(hr.square(hr.square(v.read_value(), name="b1"), name="b2"), a, name="b3")
    assert clusters_of(g, b) == "a1 a2 a3\nIdentity b1 b2 b3"
    check(g, [v.initializer, fill], b, 2)


def test_few_operations_are_left_alone_and_the_interpreter_makes_none() -> None:
    with hr.Graph() as g:
        q, _ = queue("q", [4.0])
        x = q.dequeue()
        few, many = hr.square(hr.negative(x)), hr.square(hr.square(hr.negative(x)))
    assert clusters_of(g, few) == ""
    assert clusters_of(g, many) != ""
    with hr.Session(graph=g, engine="interpret") as session:
        step = step_of(session, many, {}).general
        assert not step.fused_regions


# *** waiting ***


def test_what_fills_a_queue_does_not_wait_for_what_is_taken_from_it() -> None:
    with hr.Graph() as g:
        p, fill = queue("p", [2.0])
        q, _ = queue("q")
        x = p.dequeue(name="x")
        put = q.enqueue([hr.add(hr.square(hr.square(x)), 1.0)])  # no edge leads from here to the dequeue
        y = q.dequeue(name="y")
        z = hr.add(hr.multiply(hr.square(y), hr.negative(x)), 1.0)
    (got, _) = check(g, fill, (z, put))
    assert got == -577.0


def test_the_same_between_iterations() -> None:
    with hr.Graph() as g:
        q, _ = queue("q")

        def body(i: Tensor, x: Tensor) -> Any:
            put = q.enqueue([hr.add(hr.square(hr.multiply(x, 0.5)), 1.0)])  # of what the iteration before took
            y = q.dequeue()
            with hr.control_dependencies([put]):
                return hr.add(i, 1), hr.add(hr.multiply(hr.square(y), 0.25), 0.5)

        _, x = hr.while_loop(lambda i, x: i < 20, body, [0, hr.constant(1.0)])
    check(g, None, x, 0)


def test_behind_a_loop_that_takes_from_a_queue_nothing_waits_that_did_not_before() -> None:
    with hr.Graph() as g:
        p, fill = queue("p", [2.0])
        q, _ = queue("q")
        x = p.dequeue()

        def loop(xs: Any, ys: Any) -> Any:
            out = hr.while_loop(lambda i, v: i < 2, lambda i, v: (hr.add(i, 1), v * ys(v)), [0, xs])
            return hr.add(hr.square(hr.negative(out[1])), 0.5)

        a = loop(x, lambda v: v)
        b = loop(x, lambda v: q.dequeue())
        put = q.enqueue_many([hr.stack([a, a])])
    check(g, fill, [a + b, put], 0)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_a_merge_of_some_sides_is_not_always_alive(n: int) -> None:
    """By hand: two of the three branches of a choice, and all of them."""
    g = from_text(
        """
q = FIFOQueueV2[component_types=(int32), shapes=([])]() : resource[]
k = Const[value=int32[]{N}, dtype=int32]() : int32[]
put = QueueEnqueueV2[Tcomponents=(int32)](q, k)
i = QueueDequeueV2[component_types=(int32)](q) : int32[]
x = Const[value=float32[]{2.0}, dtype=float32]() : float32[]
s = _SwitchN[num_outs=3](x, i)
a = Neg(s)
b = Square(s:1)
c = Sqrt(s:2)
two = Merge(a, b)
all = Merge(a, b, c)
y1 = Neg(two)
y2 = Square(y1)
y3 = Add(y2, two)
z1 = Neg(all)
z2 = Square(z1)
f = Cast[SrcT=int32, DstT=float32](i)
z3 = Add(z2, f)
""".replace("N}", f"{n}}}")
    )
    assert clusters_of(g, ["y3:0", "z3:0", "put"]) == "y1 y2 y3\nz1 z2 z3"
    check(g, None, ["z3:0", "put"])
    with contextlib.nullcontext() if n < 2 else pytest.raises(InvalidArgumentError, match="dead"):
        check(g, None, ["y3:0", "z3:0", "put"], 2)


@pytest.mark.parametrize(("back", "lasts"), [("b", True), ("c", False)])
def test_a_loop_that_is_entered_dead_is_dead_if_its_variable_goes_round(back: str, lasts: bool) -> None:
    g = from_text(
        f"""
x = Const[value=float32[]{{2.0}}, dtype=float32]()
p = Placeholder[dtype=bool, shape=[]]()
s = Switch(x, p)
outside = Neg(s:1)
e = Enter[frame_name="loop"](s:1)
c = Enter[frame_name="loop", is_constant=true](x)
m = Merge(e, n)
b = Neg(m)
n = NextIteration({back})
"""
    )
    deadness = deadness_of(g.operations, frames.derive(g.operations), lambda op: False).of
    outside, inside = deadness[g.get_operation_by_name("outside")], deadness[g.get_operation_by_name("b")]
    assert outside.dead
    assert bool(outside.dead & inside.dead) is lasts


@pytest.mark.parametrize("which", [True, False])
def test_a_merge_waits_for_one_of_its_inputs(which: bool) -> None:
    """Two conditionals by one predicate, each of which needs the queue in one branch."""
    with hr.Graph() as g:
        p, fill = queue("p", [which], hr.bool)
        q, _ = queue("q")
        take = p.dequeue()
        y = q.dequeue()
        a = hr.cond(take, lambda: y + 1.0, lambda: hr.constant(3.0))
        b = hr.cond(take, lambda: hr.constant(5.0), lambda: y * 2.0)
        va = hr.add(hr.square(hr.negative(a)), 0.5)
        vb = hr.add(hr.square(hr.negative(b)), 0.5)
        put = q.enqueue([hr.cond(take, lambda: vb, lambda: va)])
        fetches = (va + vb, put)
    check(g, fill, fetches, 0)


# *** deadness ***


def test_what_is_not_taken_does_not_happen() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1.0, -2.0, 3.0, -4.0])
        out, _ = queue("out")

        def keep(x: Tensor) -> Any:
            y = hr.add(hr.square(hr.negative(x)), 0.5)
            with hr.control_dependencies([out.enqueue([y])]):
                return hr.identity(y)

        def body(i: Tensor, s: Tensor) -> Any:
            x = q.dequeue()
            y = hr.cond(x > 0.0, lambda: keep(x), lambda: hr.negative(hr.multiply(hr.add(x, 1.0), 3.0)))
            return hr.add(i, 1), s + y

        _, s = hr.while_loop(lambda i, s: i < 4, body, [0, hr.constant(0.0)])
        kept = out.size()
    seen = []
    for engine in ("auto", "interpret"):
        with hr.Session(graph=g, engine=engine) as session:
            session.run(fill)
            seen.append((session.run(s, timeout_ms=SOON_MS), session.run(kept)))
    assert seen[0] == seen[1]
    assert seen[0][1] == 2
    check(g, fill, s)


def test_a_dead_fetch_is_told_by_its_switch() -> None:
    g = from_text("""
q = FIFOQueueV2[component_types=(bool), shapes=([])]() : resource[]
p = QueueDequeueV2[component_types=(bool)](q) : bool[]
x = Const[value=float32[]{2.0}, dtype=float32]() : float32[]
s = Switch(x, p)
a = Neg(s:1)
b = Square(a)
c = Sqrt(b)
no = Const[value=bool[]{false}, dtype=bool]() : bool[]
put = QueueEnqueueV2[Tcomponents=(bool)](q, no)
""")
    assert clusters_of(g, ["c:0", "put"]) == "a b c"
    errors = []
    for engine in ("auto", "interpret"):
        with pytest.raises(InvalidArgumentError, match="dead") as e:
            results(g, None, ["c:0", "put"], engine)
        errors.append(str(e.value))
    assert errors[0] == errors[1]
    assert "'s' (Switch)" in errors[0]


@contextlib.contextmanager
def everywhere(fewest: int) -> Iterator[list[int]]:
    """All steps are interpreted with fused regions, of `fewest` operations, in any order of firing."""
    made: list[int] = []

    def program(self: LocalTarget, code: Any, plans: Any, is_interpreted: bool = False) -> MachineProgram:
        made.append(sum(n.op.type.startswith("_FusedRegion") for n in plans[""].nodes))
        return MachineProgram(plans[""], self.run_environment)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thresholds, "FUSED_REGION_OPS", fewest)
        patch.setattr(pipeline, "blockers", lambda ops, is_ordered: ["it is to be interpreted"])
        patch.setattr(LocalTarget, "program", program)
        patch.setattr(Programs, "observed", Programs.general)  # a run with a queue of ready nodes has fused regions
        yield made


@pytest.mark.matrix
@settings(max_examples=8, suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large), deadline=None)
@given(
    rng=st.integers(0, 2**48).map(random.Random),
    stateful=st.booleans(),
    parallel=st.sampled_from([1, 2, 10]),
    fewest=st.sampled_from([1, 3]),
)
def test_random_programs(rng: random.Random, stateful: bool, parallel: int, fewest: int) -> None:
    """Values, effects and their order, and that each node fires once in each iteration (`SeededReady.check`)."""
    block = _program(rng, stateful)
    with everywhere(fewest):
        _check(block, initial(rng), stateful, parallel, rng.randrange(1000))


def test_the_random_programs_have_fused_regions() -> None:
    rng = random.Random(1)
    with everywhere(1) as made:
        _check(_program(rng, True), initial(rng), True, 2, 1)
    assert sum(made) > 20


# *** partial runs, traces, errors ***


def test_partial_runs_wait_for_no_more_than_before() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1.0])
        a, b = hr.placeholder(hr.float32, []), hr.placeholder(hr.float32, [])
        x = q.dequeue()
        u = hr.negative(hr.square(x + a))
        v = hr.negative(hr.square(x + b)) + u
    assert clusters_of(g, [u, v], [a, b]) != ""
    with hr.Session(graph=g, engine="auto") as session:
        session.run(fill)
        handle = session.partial_run_setup([u, v], [a, b])
        assert session.partial_run(handle, u, {a: 1.0}) == -4.0
        assert session.partial_run(handle, v, {b: 2.0}) == -13.0


def test_who_traces_sees_single_operations() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1.0, 1.0])
        y = hr.square(hr.negative(hr.square(q.dequeue(), name="one"), name="two"), name="three")
    seen: list[str] = []

    def listener(event: Any) -> None:
        if isinstance(event, step_events.NodeStart):
            seen.append(event.node)

    with hr.Session(graph=g, engine="auto") as session:
        session.run(fill)
        assert session.run(y) == session.run(y, options=hr.RunOptions(listener=listener))
    assert {"one", "two", "three"} <= set(seen)
    assert not any("fused_region" in name for name in seen)


def failures(graph: Graph, fill: Any, fetches: Any) -> list[Any]:
    """The errors that a step raises, with fused regions and without."""
    out: list[Any] = []
    assert "divide" in clusters_of(graph, fetches)
    for engine in ("auto", "interpret"):
        with pytest.raises(InvalidArgumentError) as e:
            results(graph, fill, fetches, engine)
        out.append(e.value)
    return out


def test_an_error_names_the_operation_the_loop_and_the_iteration() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [4, 3, 0, 1], hr.int32)

        def body(i: Tensor, s: Tensor) -> Any:
            x = q.dequeue()
            return hr.add(i, 1), hr.negative(s + hr.floordiv(hr.add(x, 12), x, name="divide")) * 2

        _, s = hr.while_loop(lambda i, s: i < 4, body, [0, 0], name="loop")
    got, want = failures(g, fill, s)
    assert str(got) == str(want)
    assert got.__notes__[:2] == want.__notes__[:2]  # the last is of events, and a fused region is one
    assert got.op is want.op
    assert "divide" in got.__notes__[0]
    assert "iteration 2 of loop 'loop" in got.__notes__[0]
    assert "test_fused_regions.py" in got.__notes__[0]
    assert "= 12" in got.__notes__[1]


def test_an_error_of_numpys_is_translated() -> None:
    with hr.Graph() as g:
        q = hr.FIFOQueue(9, [hr.float32], name="q")
        fill = q.enqueue([hr.constant([1.0, 2.0, 3.0])])
        x = hr.negative(q.dequeue())
        y = hr.square(hr.divide(x, hr.constant([1.0, 2.0]), name="divide"))
    got, want = failures(g, fill, y)
    assert str(got) == str(want)
    assert got.__notes__ == want.__notes__


def test_products_limit_the_threads_of_the_library() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1.0])
        x = hr.reshape(q.dequeue(), [1, 1])
        y = hr.matmul(hr.negative(x), hr.square(x + 1.0))
    with hr.Session(graph=g, engine="auto") as session:
        step = step_of(session, y, {}).general
        assert len(step.fused_regions) == 1
        assert step.plan.uses_blas
    check(g, fill, y)


# *** speed, to look at: python -m tests.compile.test_fused_regions ***


def benchmark(n: int = 200, rounds: int = 200, echo: Callable[[str], None] = print) -> None:
    """Prints the time of a step of `n` scalar operations behind a queue.

    The step has fused regions, or none.
    """
    best: dict[str, float] = {}
    with hr.Graph() as g:
        q = hr.FIFOQueue(2, [hr.float32], shapes=[[]])
        put, x = q.enqueue([1.5]), q.dequeue()
        y = x
        for _ in range(n // 2):
            y = y * 0.99 + x
    with hr.Session(graph=g, engine="auto") as auto, hr.Session(graph=g, engine="interpret") as interpret:
        steps = {"auto": (auto, auto.make_callable(y)), "interpret": (interpret, interpret.make_callable(y))}
        for _ in range(rounds):
            for name, (session, run) in steps.items():
                session.run(put)
                began = time.perf_counter()
                run()
                best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
    with_, without = best["auto"] * 1e6, best["interpret"] * 1e6
    echo(f"{n} scalar operations behind a queue: {with_:.0f} us with fused regions, {without:.0f} us without")


def test_the_benchmark_runs() -> None:
    lines: list[str] = []
    benchmark(20, 2, lines.append)
    assert lines[0].startswith("20 scalar operations")


if __name__ == "__main__":
    benchmark()
