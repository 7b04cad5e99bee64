"""Loops and conditionals in fused regions: which are, and that nothing but speed tells."""

from __future__ import annotations

import random
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import flags, pipeline, step_events
from headrace.api import scopes
from headrace.compile.outlining import is_outlined
from headrace.denormals import flushed
from headrace.errors import (
    CancelledError,
    CompileWarning,
    DeadlineExceededError,
    GraphError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.graph import FuncGraph, Graph, Tensor
from headrace.lower import lower_whole
from tests.api.programs import initial
from tests.api.test_random_programs import _check, _program
from tests.compile.running import same
from tests.compile.test_fused_regions import check, clusters_of, everywhere, queue, results
from tests.compile.waiting_programs import Program, numbers_of
from tests.inside import memories_of, step_of

pytestmark = pytest.mark.one_engine


def loops_of(graph: Graph, fetches: Any) -> list[str]:
    """The loops and conditionals that are members of fused regions of a step."""
    # no pass changes the operations
    with hr.Session(graph=graph, engine="auto") as session, flags.override(OPTIMIZE="off"):
        regions = step_of(session, fetches, {}).general.fused_regions
        return [op.name for c in regions for op in c.members if is_outlined(op)]


def going(n: Any, body: Callable[..., Any], first: Any, name: str = "loop") -> Tensor:
    """A loop of `n` rounds over one value."""
    out: Tensor = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, body(i, v)), [0, first], name=name)[1]
    return out


# *** which ***


@pytest.mark.parametrize("error", [GraphError, NotFoundError])
def test_an_error_in_the_structured_form_is_reported(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise error("a defect of the compiler")

    with hr.Graph() as g:
        q, fill = queue("q", [0.5])
        y = going(3, lambda i, v: hr.sin(v), q.dequeue())
    with hr.Session(graph=g, engine="auto") as session:
        session.run(fill)
        monkeypatch.setattr(pipeline, "name_as_lowered", fails)
        with pytest.warns(CompileWarning, match="a defect of the compiler"):
            value = session.run(y)
    np.testing.assert_allclose(value, np.sin(np.sin(np.sin(np.float32(0.5)))), rtol=1e-6)


def test_an_error_of_the_program_is_not_reported_as_one_of_the_compiler() -> None:
    """The library of the graph does not have the function that a branch calls."""
    with hr.Graph() as g:
        q, _ = queue("q", [0.5])
        g.functions["missing"] = f = FuncGraph("missing", g, captures_from_outer=False)
        f.results = [f.add_param(hr.float32, (), "x")]
        called = Builder(g).StatefulPartitionedCall([q.dequeue()], f=Func("missing"), Tout=(hr.float32,))
        y = going(3, lambda i, v: hr.sin(v), called)
        del g.functions["missing"]
    with hr.Session(graph=g, engine="auto") as session, warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NotFoundError, match="'missing', which is not in the library"):
            session.run(y)


def test_a_loop_is_a_cluster_with_what_is_around_it() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [0.5])
        x = q.dequeue(name="x")
        y = going(3, lambda i, v: hr.sin(v) + x, hr.negative(x, name="first")) * 2.0
    assert loops_of(g, y) == ["loop"]
    assert clusters_of(g, y) == "first loop mul"
    with hr.Session(graph=g, engine="auto") as session:
        plan = step_of(session, y, {}).general.plan
        assert plan.is_acyclic
        assert plan.flushes
    check(g, fill, y)


def test_a_conditional_is_a_member_and_one_with_a_large_product_is_not() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [4.0])
        x = q.dequeue(name="x")
        big = hr.fill([300, 300], x)
        small = hr.cond(x > 0.0, lambda: x + 1.0, lambda: x - 1.0, name="small")
        large = hr.cond(x > 0.0, lambda: hr.matmul(big, big), lambda: big, name="large")
        chosen = hr.switch_case(hr.cast(x, hr.int32), [lambda: x, lambda: x + small], name="chosen")
    assert loops_of(g, [small, large, chosen]) == ["small", "chosen/indexed_case"]
    check(g, fill, [small, large, chosen])


def test_calls_in_a_loop_and_loops_in_loops() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [0.5])
        x = q.dequeue()
        f = hr.Function(lambda u: going(2, lambda i, w: hr.tanh(w + u), u, "inside"), name="f")
        y = going(3, lambda i, v: hr.cond(v > 0.0, lambda: f(v), lambda: -v), x)
    assert loops_of(g, y) == ["loop"]
    check(g, fill, y)


def test_what_has_effects_or_waits_inside_is_taken_apart_and_the_rest_of_it_is_not() -> None:
    with hr.Graph() as g:
        v = hr.Variable(1.0, name="v")
        q, fill = queue("q", [0.5, 0.25, 0.125])

        def counted(i: Tensor, s: Tensor) -> Any:
            with hr.control_dependencies([v.assign_add(1.0)]):
                return s + 1.0

        def drawn(i: Tensor, s: Tensor) -> Any:
            return s + hr.random.uniform([], seed=7)

        def taking(i: Tensor, s: Tensor) -> Any:
            taken = q.dequeue()
            return going(4, lambda j, w: hr.sin(w + taken), s + taken, "within")

        a = going(3, counted, 0.0, "writes")
        b = going(3, drawn, 0.0, "random")
        c = going(3, taking, 0.0, "takes")
    assert loops_of(g, [a, b, c]) == ["takes/within"]
    check(g, [v.initializer, fill], [a, c])


def test_a_loop_that_reads_a_variable_ends_whatever_it_reads() -> None:
    with hr.Graph() as g:
        v = hr.Variable(3.0, name="v")
        q, fill = queue("q", [2.0])
        x = q.dequeue()
        n = hr.cast(x, hr.int32)
        counts = going(n, lambda i, s: s + v.read_value(), x, "counts")
        asks = hr.while_loop(lambda s: s < v.read_value(), lambda s: s + x, [x], name="asks")[0]
        with hr.control_dependencies([counts]):
            after = v.assign(counts)
        again = going(n, lambda i, s: s * v.read_value(), after, "again")
    assert loops_of(g, [asks]) == []
    assert loops_of(g, [counts, again]) == ["counts", "again"]
    assert check(g, [v.initializer, fill], again, 2) == 512.0


def test_variables_of_loops_that_nobody_needs_take_nothing() -> None:
    """A result that is not read is not computed.

    Its initial value is not taken from a queue.
    """
    with hr.Graph() as g:
        p, fill = queue("p", [1.0])
        q, more = queue("q", [2.0])
        x, y = p.dequeue(), q.dequeue()
        out = hr.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, hr.sin(a), b + a), [0, x, y], name="loop")
        left = q.size()
    assert loops_of(g, out[1]) == ["loop"]
    for engine in ("auto", "interpret"):
        with hr.Session(graph=g, engine=engine) as session:
            session.run([fill, more])
            session.run(out[1], timeout_ms=10_000)
            assert session.run(left) == 1


@pytest.mark.usefixtures("python_target")
def test_what_a_loop_begins_with_is_in_its_fused_region() -> None:
    """Lists that gradients keep values in are empty at first, and know of no queue."""
    with hr.Graph() as g:
        q, fill = queue("q", [0.5])
        w = hr.Variable(0.3, name="w")
        x = q.dequeue()
        y = going(5, lambda i, v: hr.tanh(v * w), x)
        grads = hr.gradients([y], [w, x])
    with hr.Session(graph=g, engine="auto") as session:
        step = step_of(session, [y, grads], {}).general
        assert len(step.fused_regions) == 1
        assert "run.span" in step.fused_regions[0].source or "range(" in step.fused_regions[0].source
        assert "TensorList" not in step.fused_regions[0].source
    with flags.override(OPTIMIZE="off"):
        check(g, [w.initializer, fill], [y, grads])


# *** waiting ***


def test_the_number_of_iterations_may_be_what_fills_the_queue() -> None:
    with hr.Graph() as g:
        p, fill = queue("p", [3], hr.int32)
        q, _ = queue("q")
        n, y = p.dequeue(), q.dequeue()
        i, s = hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, hr.sin(s + y)), [0, 0.0], name="loop")
        put = q.enqueue([hr.cast(i, hr.float32)])
    assert loops_of(g, s) == ["loop"]
    assert loops_of(g, [s, put]) == []
    check(g, fill, [s, put], 0)


def test_a_loop_that_may_go_round_no_time_looks_at_nothing_that_its_body_reads() -> None:
    with hr.Graph() as g:
        p, fill = queue("p", [0], hr.int32)
        q, _ = queue("q")
        n, y = p.dequeue(), q.dequeue()
        s = going(n, lambda i, s: hr.sin(s + y), 4.0)
        put = q.enqueue([s])
    assert loops_of(g, [s, y, put]) == []
    assert check(g, fill, [s, y, put], 0)[1] == 4.0


def test_a_number_that_is_known_early_may_be_late_for_who_waits_anyway() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [0.5])
        other, _ = queue("other")
        x = q.dequeue()
        i, s = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, hr.sin(s + x)), [0, x], name="loop")
        late = other.enqueue([hr.cast(i, hr.float32) + x])
        early = other.enqueue([hr.cast(i, hr.float32)])
    assert loops_of(g, [s, late]) == ["loop"]
    assert loops_of(g, [s, early]) == []
    check(g, fill, [s, late])
    check(g, fill, [s, early], 0)


def test_a_branch_not_taken_keeps_nobody_waiting() -> None:
    with hr.Graph() as g:
        p, fill = queue("p", [True], hr.bool)
        q, _ = queue("q")
        take, y = p.dequeue(), q.dequeue()
        a = hr.cond(take, lambda: hr.constant(3.0), lambda: y * 2.0, name="either")
        b = hr.cond(take, lambda: y + 1.0, lambda: y * 2.0, name="both")
        put = q.enqueue([a])
    assert loops_of(g, [a, b, put]) == ["both"]
    check(g, fill, [a, b, put])


def test_the_sides_of_a_merge_may_wait_for_different_things() -> None:
    """One branch waits for more than the values that the other one needs anyway."""
    with hr.Graph() as g:
        p, fill = queue("p", [-1.0])
        q, _ = queue("q")
        x, y = p.dequeue(), q.dequeue()

        def inner() -> Tensor:
            with hr.control_dependencies([q.size()]):  # so that the outer one is taken apart
                z = hr.identity(x)
            return hr.cond(z < 0.0, lambda: z, lambda: y, name="inner")

        r = hr.cond(x < 0.0, inner, lambda: y + 1.0, name="outer")
        put = q.enqueue([r * 2.0])
    assert loops_of(g, [r, put]) == []
    check(g, fill, [r, put, y], 0)


@pytest.mark.matrix
@settings(max_examples=20, suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large), deadline=None)
@given(seed=st.integers(0, 2**48), optimize=st.sampled_from(["on", "off"]), verify=st.sampled_from([0, 3]))
def test_random_programs_of_queues_and_loops(seed: int, optimize: str, verify: int) -> None:
    """Programs that fill the queues from which they take.

    An operation that waits for more than it has to waits for ever.
    """
    program = Program(random.Random(seed), 8)
    for engine in ("interpret", "auto"):
        with (
            flags.override(OPTIMIZE=optimize, VERIFY=verify),
            hr.Session(graph=program.graph, engine=engine) as session,
        ):
            assert numbers_of(session.run(program.fetches, timeout_ms=10_000)) == program.numbers


@pytest.mark.parametrize("seed", [1396, 1916, 2206])
def test_programs_that_once_waited_for_ever(seed: int) -> None:
    program = Program(random.Random(seed), 8)
    with hr.Session(graph=program.graph, engine="auto") as session:
        assert numbers_of(session.run(program.fetches, timeout_ms=10_000)) == program.numbers


@pytest.mark.matrix
def test_the_random_programs_have_loops_in_clusters_and_loops_that_are_not() -> None:
    inside = outside = 0
    for seed in range(12):
        program = Program(random.Random(seed), 8)
        found = loops_of(program.graph, program.fetches)
        inside += len(found)
        outside += sum(is_outlined(op) and op.name not in found for op in program.graph.operations)
    assert inside > 20
    assert outside > 5


# *** the same numbers ***


def network(batch: int, time: int, size: int, is_fed: bool) -> tuple[Graph, Any, Any, Any, dict[Any, Any]]:
    """An RNN, its loss and its gradients: graph, what is run first, fetches, training, feeds."""
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(time, batch, size)).astype(np.float32)
    ys = rng.normal(size=(batch, size)).astype(np.float32)
    with hr.Graph() as g:
        w = hr.Variable(rng.normal(size=(2 * size, size)).astype(np.float32) * 0.3, name="w")
        feeds: dict[Any, Any] = {}
        before = [w.initializer]
        if is_fed:
            x, y = hr.placeholder(hr.float32, xs.shape), hr.placeholder(hr.float32, ys.shape)
            feeds = {x: xs, y: ys}
        else:
            q = hr.FIFOQueue(1, [hr.float32, hr.float32], shapes=[xs.shape, ys.shape])
            before.append(q.enqueue([hr.constant(xs), hr.constant(ys)]))
            x, y = q.dequeue()

        def step(i: Tensor, h: Tensor) -> Tensor:
            return hr.tanh(hr.matmul(hr.concat([x[i], h], 1), w))

        h = going(time, step, hr.zeros([batch, size]))
        loss = hr.reduce_mean(hr.square(h - y))
        (dw,) = hr.gradients([loss], [w])
        train = w.assign_sub(0.1 * dw)
    return g, before, [loss, dw], train, feeds


def test_a_network_fed_by_a_queue_is_the_one_that_is_fed() -> None:
    made = {}
    for kind, is_fed, engine in (("fed", True, "compiled"), ("queue", False, "auto"), ("plain", False, "interpret")):
        g, before, fetches, train, feeds = network(2, 7, 3, is_fed)
        with flags.override(OPTIMIZE="off"), hr.Session(graph=g, engine=engine) as session:
            session.run(before)
            made[kind] = session.run([*fetches, train], feeds)
            if kind == "queue":
                step = step_of(session, [*fetches, train], {}).general
                assert sum(is_outlined(op) for c in step.fused_regions for op in c.members) == 2
    same(made["queue"], made["plain"])
    same(made["queue"], made["fed"])


def test_the_passes_do_to_a_cluster_what_they_do_to_a_step() -> None:
    made = []
    for is_fed in (True, False):
        g, before, fetches, _, feeds = network(2, 7, 3, is_fed)
        with hr.Session(graph=g, engine="auto") as session:
            session.run(before)
            made.append(session.run(fetches, feeds))
            told = session.explain(fetches, list(feeds))
            assert {"loop_fission", "loop_accumulations"} & set(told.passes)
    same(*made)


@pytest.mark.matrix
def test_random_programs_with_loops_in_clusters_keep_the_order_of_effects() -> None:
    rng = random.Random(11)
    with everywhere(1) as made:
        for _ in range(3):
            _check(_program(rng, True), initial(rng), True, 2, rng.randrange(1000))
    assert sum(made) > 10


def test_memory_that_is_limited_is_counted() -> None:
    seen = []
    for engine in ("auto", "interpret"):
        g, before, fetches, _, _ = network(2, 50, 3, False)
        with flags.override(OPTIMIZE="off"), hr.Session(graph=g, engine=engine, memory_limit=1 << 20) as session:
            session.run(before)
            seen.append(session.run(fetches))
            memory = memories_of(session)[0]
            assert memory.peak > 50 * 2 * 3 * 4
    same(*seen)


def test_denormal_numbers_are_zeros_in_a_loop_in_a_fused_region() -> None:
    with flushed():
        is_known = bool((np.float32([1e-39]) / 2)[0] == 0)
    with hr.Graph() as g:
        q = hr.FIFOQueue(1, [hr.float32], shapes=[[4]])
        fill = q.enqueue([hr.constant(np.full(4, 1e-30, np.float32))])
        y = going(11, lambda i, v: v * 0.1, q.dequeue())
    got = check(g, fill, y)
    assert bool((got == 0).all()) == is_known


def test_a_loop_of_primitives_is_recovered() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [0.5])
        x = q.dequeue(name="x")
        y = hr.identity(going(5, lambda i, v: hr.cond(v > 0.3, lambda: hr.sin(v + x), lambda: v * 2.0), x), name="y")
        dx = hr.identity(hr.gradients([y], [x])[0], name="dx")
    primitive = lower_whole(g)
    assert not any(op.opdef.structured for op in primitive.operations)
    fetches = [primitive.get_tensor_by_name(t.name) for t in (y, dx)]
    start = primitive.get_operation_by_name(fill.name)
    assert loops_of(primitive, fetches)
    with flags.override(OPTIMIZE="off"):
        same(check(primitive, start, fetches), results(g, fill, [y, dx], "interpret"))


def test_primitives_that_are_no_structure_are_as_before() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [2.0])
        x = q.dequeue(name="x")
        b = scopes.builder()
        side = b.Switch(x, x > 0.0)[1]
        y = going(3, lambda i, v: hr.sin(v + x), x)
        z = hr.negative(hr.square(hr.negative(side)))
    assert loops_of(g, [y, z]) == []
    check(g, fill, [y, z])


# *** stopping ***


def for_ever(x: Tensor) -> Tensor:
    out: Tensor = hr.while_loop(lambda v: v >= 0.0, lambda v: v * 0.5 + x, [x], name="loop")[0]
    return out


def for_ever_within(x: Tensor) -> Tensor:
    return going(3, lambda i, v: for_ever(v), x, "outer")


def counting_long(x: Tensor) -> Tensor:
    return going(2**31 - 1, lambda i, v: v * 0.5 + x, x)


ENDLESS = [for_ever, for_ever_within, counting_long]


@pytest.mark.system
@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", ENDLESS)
def test_a_deadline(make: Callable[[Tensor], Tensor]) -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1.0])
        y = make(q.dequeue())
    assert loops_of(g, y)
    with hr.Session(graph=g, engine="auto") as session:
        session.run(fill)
        run = session.make_callable(y)
        run.explain()  # it is compiled now, which takes none of the time
        with pytest.raises(DeadlineExceededError, match="time limit") as e:
            session.run(y, timeout_ms=500)
    asked = [note for note in e.value.__notes__ if "Does the condition of the loop become false?" in note]
    assert len(asked) == 1
    assert "loop" in asked[0]
    assert "test_outlining.py" in asked[0]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", ENDLESS)
def test_a_session_that_closes(make: Callable[[Tensor], Tensor]) -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1.0])
        y = make(q.dequeue())
        left = q.size()
    session = hr.Session(graph=g, engine="auto")
    session.run(fill)
    errors: list[BaseException] = []

    def go() -> None:
        try:
            session.run(y)
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=go)
    thread.start()
    while session.run(left):  # it has not taken the number yet
        time.sleep(0.001)
    session.close()
    thread.join(20)
    assert not thread.is_alive()
    assert [type(e) for e in errors] == [CancelledError]


# *** telling ***


def failures(graph: Graph, fill: Any, fetches: Any) -> list[Any]:
    """The errors that a step raises, with fused regions and without."""
    out: list[Any] = []
    assert loops_of(graph, fetches)
    for engine in ("auto", "interpret"):
        with pytest.raises(InvalidArgumentError) as e:
            results(graph, fill, fetches, engine)
        out.append(e.value)
    return out


def test_an_error_in_a_loop_in_a_loop_names_both_iterations() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [2], hr.int32)
        x = q.dequeue()

        def outer(i: Tensor, v: Tensor) -> Tensor:
            return going(4, lambda j, w: w + hr.floordiv(12, i * 10 + j - 21 + x * 0, name="divide"), v, "inner")

        y = going(3, outer, x, "outer")
    got, want = failures(g, fill, y)
    assert str(got) == str(want)
    assert got.op is want.op
    assert got.__notes__[:2] == want.__notes__[:2]
    assert "'outer/inner/divide' (FloorDiv)" in got.__notes__[0]
    assert "iteration 1 of loop 'outer/inner', in iteration 2 of loop 'outer'" in got.__notes__[0]
    assert "test_outlining.py" in got.__notes__[0]


def test_an_error_in_a_fused_region_in_a_loop_that_waits() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1, 1, 1], hr.int32)

        def outer(i: Tensor, v: Tensor) -> Tensor:
            x = q.dequeue()
            return going(x + 3, lambda j, w: w + hr.floordiv(12, i * 10 + j - 21, name="divide"), v + x, "inner")

        y = going(3, outer, 0, "outer")
    got, want = failures(g, fill, y)
    assert str(got) == str(want)
    assert got.op is want.op
    assert got.__notes__[:2] == want.__notes__[:2]
    assert "iteration 1 of loop 'outer/inner', in iteration 2 of loop 'outer'" in got.__notes__[0]


def test_explain_tells_what_is_in_a_fused_region_and_what_the_passes_did() -> None:
    g, _, fetches, train, _ = network(2, 7, 3, False)
    with hr.Session(graph=g, engine="auto") as session:
        told = session.explain([*fetches, train])
    assert told.engine == "interpret"
    assert any("loop" in names for names in told.fused_regions)
    assert "prune" in told.passes
    assert told.notes
    assert "passes that changed the graph: none" not in str(told)
    assert not any("primitive" in why for why, _ in told.apart)


def test_who_traces_sees_single_operations() -> None:
    with hr.Graph() as g:
        q, fill = queue("q", [1.0, 1.0])
        y = going(3, lambda i, v: hr.sin(v, name="sine"), q.dequeue())
    seen: list[str] = []

    def listener(event: Any) -> None:
        if isinstance(event, step_events.NodeStart):
            seen.append(event.node)

    with hr.Session(graph=g, engine="auto") as session:
        session.run(fill)
        assert session.run(y) == session.run(y, options=hr.RunOptions(listener=listener))
    assert seen.count("loop/sine") >= 3
    assert not any("fused_region" in name for name in seen)


def test_the_interpreter_makes_none() -> None:
    with hr.Graph() as g:
        y = going(3, lambda i, v: hr.sin(v), queue("q")[0].dequeue())
    with hr.Session(graph=g, engine="interpret") as session:
        step = step_of(session, y, {}).general
        assert not step.fused_regions


# *** speed, to look at: python -m tests.compile.test_outlining ***


def benchmark(sizes: Sequence[int] = (8, 50, 32), rounds: int = 30, echo: Callable[[str], None] = print) -> None:
    """Prints the times of a training step: fed by a queue, fed directly, and interpreted."""
    batch, n, size = sizes
    best: dict[str, float] = {}
    for kind, is_fed, engine in (("queue", False, "auto"), ("fed", True, "auto"), ("interpreted", False, "interpret")):
        g, (init, *fill), _, train, feeds = network(batch, n, size, is_fed)
        with hr.Session(graph=g, engine=engine) as session:
            session.run(init)
            for _ in range(rounds):
                session.run(fill)
                began = time.perf_counter()
                session.run(train, feeds)
                best[kind] = min(best.get(kind, 1e9), time.perf_counter() - began)
    echo(f"an RNN {batch}x{n}x{size}: " + ", ".join(f"{kind} {t * 1e3:.2f} ms" for kind, t in best.items()))


def test_the_benchmark_runs() -> None:
    lines: list[str] = []
    benchmark((2, 3, 4), 2, lines.append)
    assert lines[0].startswith("an RNN 2x3x4: queue ")


if __name__ == "__main__":
    benchmark()
