"""Calls in frames made at run time, and `_SwitchN`.

The functions are made by hand and run in many orders of firing.
"""

from __future__ import annotations

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace import flags, step_events
from headrace.errors import (
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    ResourceExhaustedError,
)
from headrace.execute.blame import where
from headrace.execute.records import Frame
from headrace.ir.builder import Builder
from headrace.ir.graph import Operation, Tensor
from headrace.ir.source import Source
from tests.execute.functions import Program, factorial
from tests.execute.loops import Loop, counting, dead
from tests.execute.machine import DEAD, Machine
from tests.session.helpers import call as custom_call
from tests.session.helpers import custom_ops

SEEDS = (None, *range(50))


@pytest.fixture
def custom() -> Iterator[None]:
    with custom_ops():
        yield


def in_every_order(p: Program, check: Callable[[Machine], None]) -> None:
    """Runs `p` in 51 orders, without an executor.

    `check` receives each run after its invariant has been checked.
    """
    for seed in SEEDS:
        try:
            check(p.machine(seed))
        except BaseException as e:
            e.add_note(f"seed {seed}")
            raise


def gives(p: Program, *want: Any) -> None:
    """Asserts that what `p` fetches is `want`, in every order and by the executor."""
    fetched = [op for op in p.b.graph.operations if op.type == "_Retval"]

    def check(m: Machine) -> None:
        got = [m.value(op) for op in fetched]
        assert [DEAD if v is DEAD else v[0] for v in got] == list(want)

    in_every_order(p, check)
    if DEAD not in want:
        for seed in (None, 0, 1):
            assert p.execute(seed) == list(want)
        assert p.execute(listener=lambda event: None) == list(want)


# *** recursion ***


@pytest.mark.parametrize(("n", "want"), [(0, 1), (1, 1), (5, 120)])
def test_factorial(n: int, want: int) -> None:
    p = Program()
    factorial(p)
    p.fetch(p.call(p.b, "fact", n))
    gives(p, want)
    in_every_order(p, lambda m: None if m.opened["fact"] == n + 1 else pytest.fail(f"{m.opened}"))


def fibonacci(p: Program) -> None:
    def fib(b: Builder, n: Tensor) -> Tensor:
        base, step = p.cond(b, b.Less(n, 2), n)
        m = step.data[0]
        two = b.AddV2(p.call(b, "fib", b.Sub(m, 1)), p.call(b, "fib", b.Sub(m, 2)))
        out: Tensor = b.Merge([base.data[0], two])[0]
        return out

    p.function("fib", fib)


def test_fibonacci() -> None:
    p = Program()
    fibonacci(p)
    p.fetch(p.call(p.b, "fib", 6))
    gives(p, 8)


def test_functions_that_call_each_other() -> None:
    p = Program()

    def body(other: str, at_zero: int) -> Callable[[Builder, Tensor], Tensor]:
        def f(b: Builder, n: Tensor) -> Tensor:
            base, step = p.cond(b, b.Less(n, 1), n)
            out: Tensor = b.Merge([base.b.const(at_zero), p.call(b, other, b.Sub(step.data[0], 1))])[0]
            return out

        return f

    p._results.update(even=1, odd=1)
    p.function("even", body("odd", 1))
    p.function("odd", body("even", 0))
    for n in (0, 5, 6):
        p.fetch(p.call(p.b, "even", n))
    gives(p, 1, 0, 1)


def test_many_calls_of_one_function_and_one_of_another() -> None:
    p = Program()
    factorial(p)
    p.function("double", lambda b, x: b.AddV2(x, x))
    x = p.call(p.b, "fact", 3)
    p.fetch(p.call(p.b, "double", p.call(p.b, "fact", x)))
    p.fetch(p.b.AddV2(p.call(p.b, "fact", 2), p.call(p.b, "double", x)))
    gives(p, 1440, 14)


# *** loops ***


def test_a_loop_calls_a_recursive_function() -> None:
    p = Program()
    factorial(p)
    b = p.b
    loop = Loop(b, "sum", parallel_iterations=3)
    i, total = loop.var(b.const(0)), loop.var(b.const(0))
    loop.goes_while(b.Less(i, loop.constant(b.const(5))))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    loop.next(total, b.AddV2(loop.body(total), p.call(b, "fact", loop.body(i))))
    p.fetch(loop.exit(total))
    gives(p, 1 + 1 + 2 + 6 + 24)


def test_one_call_site_is_open_in_several_iterations() -> None:
    p = Program()
    p.function("same", lambda b, x: b.Identity(x))
    b = p.b
    loop, i = counting(b, 6, parallel_iterations=3)
    inside = p.call(b, "same", loop.body(i))
    late = [op for op in p.functions["same"] if op.type == "Identity"]
    for seed in SEEDS:
        m = p.machine(seed, last=late)
        calls = [f for f in m.history if f.name == inside.op.name and f.values is not None]
        assert len(calls) == m.opened["same"] == 6
        assert m.records == 1 + 3 + 3  # the root, three iterations, and in each a frame of "same"


def test_a_recursive_function_contains_a_loop() -> None:
    p = Program()

    def f(b: Builder, n: Tensor) -> Tensor:  # n + (n - 1) + ... + 0, each counted by a loop
        loop, i = counting(b, n, "inner", parallel_iterations=2)
        counted = loop.exit(i)
        base, step = p.cond(b, b.Less(n, 1), n, counted)
        m, c = step.data
        out: Tensor = b.Merge([base.data[1], b.AddV2(c, p.call(b, "f", b.Sub(m, 1)))])[0]
        return out

    p.function("f", f)
    p.fetch(p.call(p.b, "f", 4))
    gives(p, 10)


@pytest.mark.matrix
def test_calls_and_loops_in_turns() -> None:
    p = Program()

    def f(b: Builder, n: Tensor) -> Tensor:  # f(n) = 1 + f(0) + ... + f(n - 1) = 2 ** n
        loop = Loop(b, "over", parallel_iterations=2)
        i, total = loop.var(b.const(0)), loop.var(b.const(1))
        loop.goes_while(b.Less(i, loop.constant(n)))
        loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
        loop.next(total, b.AddV2(loop.body(total), p.call(b, "f", loop.body(i))))
        return loop.exit(total)

    p.function("f", f)
    p.fetch(p.call(p.b, "f", 4))
    gives(p, 16)


def test_a_half_fed_loop_in_a_function_ends() -> None:
    p = Program()

    def f(b: Builder, n: Tensor) -> list[Tensor]:
        loop, i = counting(b, n)
        return [loop.exit(i), b.Exit(b.Identity(loop.enter(n)))]  # the second has a token in iteration 0 only

    p.function("f", f, results=2)
    for t in p.call(p.b, "f", 3):
        p.fetch(t)
    for seed in SEEDS:
        e = p.executor(seed)
        e.run()
        assert [e.fetch(0), e.fetch(1)] == [3, 3]


# *** deadness ***


def test_a_call_in_a_branch_that_is_not_taken_opens_no_frame() -> None:
    p = Program()
    factorial(p)
    b = p.b
    yes, no = p.cond(b, b.const(False), b.const(3))
    call = p.call(b, "fact", yes.data[0])
    p.fetch(call)
    p.fetch(b.Merge([call, no.data[0]])[0])
    end = b.after(call).const(1)

    def check(m: Machine) -> None:
        assert m.value(end) is DEAD
        assert m.opened["fact"] == 0

    in_every_order(p, check)
    gives(p, DEAD, 3)


def test_a_call_with_a_dead_input_or_control_input_is_dead() -> None:
    p = Program()
    p.function("add", lambda b, x, y: b.AddV2(x, y))
    gone = p.b.Identity(dead(p.b))
    p.fetch(p.call(p.b, "add", 1, gone))
    p.fetch(p.call(p.b.after(gone), "add", 1, 2))
    gives(p, DEAD, DEAD)


def test_a_result_may_be_dead_though_the_call_is_not() -> None:
    p = Program()
    p.function("sides", lambda b, x, n: list(b.Switch(x, b.Less(n, 1))), results=2)
    no, yes = p.call(p.b, "sides", 7, 0)
    fetched = [p.fetch(no), p.fetch(yes)]
    p.fetch(p.b.Merge([no, yes])[0])
    end = p.b.after(no.op).const(1)  # the call itself has run

    def check(m: Machine) -> None:
        assert m.value(end) == 1
        assert [m.value(op) for op in fetched] == [DEAD, (7,)]

    in_every_order(p, check)
    e = p.executor()
    e.run()
    assert e.fetch(1) == 7
    with pytest.raises(InvalidArgumentError, match=r"(?s)'call:0' is dead.*'sides/Switch'.*true side.*'sides/Less:0'"):
        e.fetch(0)


def test_the_predicate_of_a_dead_result_may_be_a_parameter() -> None:
    p = Program()
    p.function("f", lambda b, x, i: switch_n(b, x, i, 2)[0])
    p.fetch(p.call(p.b.at(Source("model.py", 3)), "f", 7, 1))
    e = p.executor()
    e.run()
    with pytest.raises(InvalidArgumentError) as error:
        e.fetch(0)
    for part in ("output 1 of 2", "output_index 'f/arg_1:0' was 1", "function 'f' (called by 'call' at model.py:3)"):
        assert part in str(error.value)


# *** arguments, results, control edges ***


def test_a_function_without_parameters() -> None:
    p = Program()
    p.function("three", lambda b: b.AddV2(1, 2))
    p.function("seven", lambda b: b.const(7))
    p.fetch(p.call(p.b, "three"))
    p.fetch(p.call(p.b, "seven"))
    p.fetch(p.call(p.b.after(p.call(p.b, "three")), "seven"))
    gives(p, 3, 7, 7)


def test_results_may_be_parameters_constants_and_one_another() -> None:
    p = Program()

    def f(b: Builder, x: Tensor, y: Tensor, unused: Tensor) -> list[Tensor]:
        return [y, x, x, b.const(9)]

    p.function("f", f, results=4)
    for t in p.call(p.b, "f", 1, 2, 3):
        p.fetch(t)
    gives(p, 2, 1, 1, 9)


def test_functions_with_nothing_in_them() -> None:
    p = Program()
    p.function("nothing", lambda b: [], results=0)
    p.function("ignore", lambda b, x: [], results=0)
    ends = [p.call(p.b, "nothing"), p.call(p.b, "ignore", 1)]
    p.fetch(p.b.after(*ends).const(4))
    gives(p, 4)


def test_a_result_does_not_wait_for_what_else_the_function_does() -> None:
    p = Program()
    slow: list[Operation] = []

    def f(b: Builder, x: Tensor) -> Tensor:
        slow.append(b.AddV2(x, x).op)
        return b.Identity(x)

    p.function("f", f)
    out = p.call(p.b, "f", 1)
    user, after = p.b.Identity(out), p.b.after(out.op).const(1)
    for seed in SEEDS:
        m = p.machine(seed, last=slow)
        assert m.when(user) < m.when(slow[0], "f@call#0") < m.when(after)


def test_a_call_waits_for_all_its_inputs_and_control_inputs() -> None:
    p = Program()

    def f(b: Builder, x: Tensor, y: Tensor) -> Tensor:
        b.const(1, name="first")
        return b.AddV2(x, y)

    p.function("f", f)
    b = p.b
    slow = b.Identity(b.Identity(b.const(1)))
    before = b.after(slow).NoOp()
    out = p.call(b.after(before), "f", slow, 2)

    def check(m: Machine) -> None:
        assert m.when(before) < m.when(out.op)
        assert m.value(p.functions["f"][-1], "f@call#0") == (3,)

    in_every_order(p, check)


def test_control_edges_into_everything_a_call_can_be_before() -> None:
    p = Program()
    p.function("f", lambda b, x: b.AddV2(x, x))
    done = p.call(p.b, "f", 4).op
    b = p.b.after(done)
    x = p.b.const(1)
    p.fetch(b.const(1))  # waits for nothing else
    p.fetch(b.AddV2(x, x))
    p.fetch(b.Merge([x, x])[0])
    p.fetch(p.call(b, "f", 2))
    gives(p, 1, 2, 1, 4)


def test_a_call_does_not_fit_its_function() -> None:
    p = Program()
    p.function("f", lambda b, x: x)
    p._results["f"] = 2
    p.call(p.b, "f", 1)
    with pytest.raises(InvalidArgumentError, match="expects 2 back, but it takes 1 and returns 1"):
        p.machine()
    p = Program()
    p.function("f", lambda b, x, y: x)
    p.call(p.b, "f", 1)
    with pytest.raises(InvalidArgumentError, match=r"'call' .* gives 1 values to function 'f' .* it takes 2"):
        p.machine()
    p = Program()
    p._results["f"] = 1
    p.call(p.b, "f", 1)
    with pytest.raises(NotFoundError, match="calls function 'f', which is not defined"):
        p.machine()


# *** kernels that do something, or wait ***


def test_stateful_nodes_have_a_tag_for_each_call(custom: None) -> None:
    p = Program()
    tags: list[str] = []

    def note(ctx: Any, x: Any) -> Any:
        tags.append(ctx.step.tag)
        return x

    def f(b: Builder, n: Tensor) -> Tensor:
        seen = custom_call(b, "Stateful", note, [n], scalar=True)
        base, step = p.cond(b, b.Less(seen, 1), seen)
        loop = Loop(b, "twice")
        i, limit = loop.var(step.b.const(0)), loop.constant(step.b.const(2))
        loop.goes_while(b.Less(i, limit))
        loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
        custom_call(b, "Stateful", note, [loop.body(i)], scalar=True)
        out: Tensor = b.Merge([base.data[0], p.call(b, "f", b.Sub(step.data[0], 1))])[0]
        return out

    p.function("f", f)
    p.fetch(p.call(p.b, "f", 2, name="main"))
    for seed in (None, *range(10)):
        tags.clear()
        e = p.executor(seed)
        e.run()
        assert e.fetch(0) == 0
        one, two = "f@main#0", "f@main#0/f@f/call#0"
        loops = [f"{f}/twice#{k}" for f in (one, two) for k in (0, 1)]
        assert sorted(tags) == sorted([one, two, f"{two}/f@f/call#0", *loops])


def test_deep_tags_are_short_and_differ(custom: None) -> None:
    p = Program()
    tags: list[str] = []

    def note(ctx: Any, x: Any) -> Any:
        tags.append(ctx.step.tag)
        return x

    def f(b: Builder, n: Tensor) -> Tensor:
        seen = custom_call(b, "Stateful", note, [n], scalar=True)
        again = custom_call(b, "Stateful", note, [seen], scalar=True)
        base, step = p.cond(b, b.Less(again, 1), again)
        m = b.Sub(step.data[0], 1)
        out: Tensor = b.Merge([base.data[0], p.call(b, "f", m)])[0]
        return out

    p.function("f", f)
    p.fetch(b_add(p, [p.call(p.b, "f", 300), p.call(p.b, "f", 300)]))
    assert p.execute() == [0]
    assert len(set(tags)) == 2 * 301
    assert all(tags.count(t) == 2 for t in tags)
    assert max(map(len, tags)) < 1000


def b_add(p: Program, terms: list[Tensor]) -> Tensor:
    out: Tensor = p.b.AddV2(*terms)
    return out


def test_an_asynchronous_node_in_a_recursive_function(custom: None) -> None:
    p = Program()
    started: list[int] = []

    def later(ctx: Any, x: Any, done: Callable[..., None]) -> None:
        started.append(int(x))
        threading.Timer(0.002, done, [x]).start()

    def f(b: Builder, n: Tensor) -> Tensor:
        base, step = p.cond(b, b.Less(n, 1), n)
        m = step.data[0]
        waited = custom_call(b, "Async", later, [m], scalar=True)
        out: Tensor = b.Merge([base.b.const(0), b.AddV2(waited, p.call(b, "f", b.Sub(m, 1)))])[0]
        return out

    p.function("f", f)
    p.fetch(p.call(p.b, "f", 5))
    for seed in (None, *range(10)):
        started.clear()
        assert p.execute(seed) == [15]
        assert sorted(started) == [1, 2, 3, 4, 5]
    assert p.execute(listener=lambda event: None) == [15]


def test_calls_start_while_others_wait(custom: None) -> None:
    p = Program()
    calls: list[Callable[..., None]] = []

    def both(ctx: Any, x: Any, done: Callable[..., None]) -> None:
        calls.append(done)
        if len(calls) == 2:  # each waits for the other to be there
            for d in calls:
                d(x)

    p.function("f", lambda b, x: custom_call(b, "Async", both, [x], scalar=True))
    p.fetch(b_add(p, [p.call(p.b, "f", 3), p.call(p.b, "f", 3)]))
    assert p.execute() == [6]


def test_a_call_gets_its_turn_beside_a_loop_that_waits_for_it(custom: None) -> None:
    p = Program()
    seen = threading.Event()

    def note(ctx: Any, x: Any) -> Any:
        seen.set()
        return x

    p.function("f", lambda b, x: custom_call(b, "Stateful", note, [x], scalar=True))
    b = p.b
    p.fetch(p.call(b, "f", 1))
    loop = Loop(b, "polls")
    i = loop.var(b.const(0))
    go = custom_call(b, "Stateful", lambda ctx, x: np.bool_(not seen.is_set()), [i], ["bool"], scalar=True)
    loop.goes_while(go)
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    p.fetch(loop.exit(i))
    one, trips = p.execute()
    assert one == 1
    assert trips < 10_000


# *** depth ***


def counting_down(p: Program, is_tail: bool) -> None:
    def tail(b: Builder, n: Tensor, acc: Tensor) -> Tensor:
        base, step = p.cond(b, b.Less(n, 1), n, acc)
        m, a = step.data
        out: Tensor = b.Merge([base.data[1], p.call(b, "down", b.Sub(m, 1), b.AddV2(a, 1))])[0]
        return out

    def deep(b: Builder, n: Tensor, acc: Tensor) -> Tensor:
        base, step = p.cond(b, b.Less(n, 1), n, acc)
        m, a = step.data
        out: Tensor = b.Merge([base.data[1], b.AddV2(p.call(b, "down", b.Sub(m, 1), a), 1)])[0]
        return out

    p.function("down", tail if is_tail else deep)


@pytest.mark.matrix
@pytest.mark.parametrize("is_tail", [True, False])
def test_recursion_50000_deep(is_tail: bool) -> None:
    p = Program()
    counting_down(p, is_tail)
    p.fetch(p.call(p.b, "down", 50_000, 0))
    assert p.execute() == [50_000]


@pytest.mark.matrix
def test_100000_frames_close_at_once() -> None:
    p = Program()
    p.function("f", lambda b: p.call(b, "f").outputs, results=0)
    p.call(p.b, "f")
    propagator = p.executor().propagator
    propagator.start()
    ready: Any = propagator.ready
    for _ in range(100_000):
        node, it, x = ready.popleft()
        propagator.call(node, it, x)
    assert propagator.open_iterations == 100_001
    node, it, x = ready.popleft()
    propagator.dead(node.dead, it, (node, it, False))  # say it stands in a branch that is not taken
    assert propagator.finished
    assert propagator.open_frames() == []
    assert len(ready) == 0


@pytest.mark.matrix
def test_a_level_takes_little_memory_and_none_stays() -> None:
    p = Program()
    counting_down(p, is_tail=False)
    p.fetch(p.call(p.b, "down", 1_000, 0))
    p.execute()  # the first run creates the objects that are created once
    e = p.executor()
    gc.collect()
    before = sum(isinstance(o, Frame) for o in gc.get_objects())
    gc.disable()  # frames must go without it
    try:
        tracemalloc.start()
        e.run()
        after = sum(isinstance(o, Frame) for o in gc.get_objects())
        gc.collect()  # empties Python's own stocks of tuples
        left, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()
    assert e.fetch(0) == 1_000
    assert peak < 1_000 * 5_000
    assert left < 50_000
    assert after == before


@pytest.mark.system
def test_a_function_that_calls_itself_twice_is_walked_in_depth() -> None:
    p = Program()
    fibonacci(p)
    p.fetch(p.call(p.b, "fib", 14))
    most = opened = alive = 0

    def count(event: step_events.Event) -> None:
        nonlocal most, opened, alive
        if isinstance(event, step_events.IterationOpen) and event.frame:
            opened += 1
            alive += 1
            most = max(most, alive)
        elif isinstance(event, step_events.IterationFree):
            alive -= 1

    assert p.execute(listener=count) == [377]
    assert opened == 1219
    assert most < 60


@pytest.mark.parametrize("width", [1, 2])
def test_endless_recursion_ends_at_the_limit(width: int) -> None:
    p = Program()

    def f(b: Builder, n: Tensor) -> Tensor:
        at = b.at(Source("model.py", 12, "f"))
        out = [p.call(at, "f", b.AddV2(n, 1)) for _ in range(width)]
        return out[0] if width == 1 else b.AddV2(*out)

    p.function("f", f)
    p.fetch(p.call(p.b.at(Source("model.py", 40, "main")), "f", 0, name="start"))
    for seed in (None, 0) if width == 1 else (None,):
        with flags.override(CALL_DEPTH=1000), pytest.raises(ResourceExhaustedError) as e:
            p.execute(seed)
        assert "calls are nested deeper than 1000" in str(e.value)
        assert "model.py:12 in f, calls 'f' again" in str(e.value)
        assert "HEADRACE_CALL_DEPTH" in str(e.value)
        assert e.value.node == "f/call"
        notes = "\n".join(e.value.__notes__)
        assert "function 'f' (called by 'start' at model.py:40 in main)" in notes
        assert "992 more calls and loops" in notes
        assert len(notes) < 1500


def test_the_limit_counts_calls_and_not_loops() -> None:
    p = Program()
    factorial(p)
    p.fetch(p.call(p.b, "fact", 4))
    with flags.override(CALL_DEPTH=5):
        assert p.execute() == [24]
    with flags.override(CALL_DEPTH=4), pytest.raises(ResourceExhaustedError):
        p.execute()


def test_an_error_in_a_deep_frame_names_the_calls(custom: None) -> None:
    p = Program()

    def fails(x: Any) -> Any:
        raise OutOfRangeError("no more")

    def f(b: Builder, n: Tensor) -> Tensor:
        base, step = p.cond(b, b.Less(n, 1), n)
        bad = custom_call(b.at(Source("model.py", 9, "f")), "Pure", fails, [base.data[0]], name="bad", scalar=True)
        out: Tensor = b.Merge([bad, p.call(b.at(Source("model.py", 7, "f")), "f", b.Sub(step.data[0], 1))])[0]
        return out

    p.function("f", f)
    b = p.b
    loop, i = counting(b, 3, "outer")
    p.call(b.at(Source("model.py", 20)), "f", loop.body(i), name="main")
    for listener in (None, lambda event: None):
        with pytest.raises(OutOfRangeError) as e:
            p.execute(listener=listener)
        assert e.value.node == "f/bad"
        assert "'f/bad' (TestPure), made at model.py:9 in f" in e.value.__notes__[0]
        chain = "function 'f' (called by 'main' at model.py:20), in iteration {} of loop 'outer'"
        assert any(chain.format(k) in e.value.__notes__[0] for k in range(3))
    p = Program()
    p.function("f", f)
    p.fetch(p.call(p.b, "f", 2, name="main"))
    with pytest.raises(OutOfRangeError) as e:
        p.execute()
    step = "function 'f' (called by 'f/call' at model.py:7 in f)"
    assert f"in {step}, in {step}, in function 'f' (called by 'main' at " in e.value.__notes__[0]


# *** events of a run ***


def test_a_call_ends_in_the_trace_when_its_frame_does() -> None:
    p = Program()
    factorial(p)
    p.fetch(p.call(p.b, "fact", 2, name="main"))
    events: list[step_events.Event] = []
    p.execute(listener=events.append)
    starts = [(e.node, e.tag) for e in events if isinstance(e, step_events.NodeStart)]
    ends = [(e.node, e.tag) for e in events if isinstance(e, step_events.NodeEnd)]
    assert sorted(starts) == sorted(ends)
    assert len(set(starts)) == len(starts)
    frees = [(e.tag, e.frame) for e in events if isinstance(e, step_events.IterationFree)]
    inner, outer = "fact@main#0/fact@fact/call#0", "fact@main#0"
    assert frees.index((inner, "fact")) < frees.index((outer, "fact")) < frees.index(("", ""))
    of_main = next(i for i, e in enumerate(events) if isinstance(e, step_events.NodeEnd) and e.node == "main")
    free = events[of_main - 1]
    assert isinstance(free, step_events.IterationFree)
    assert free.tag == outer
    names = [e["args"]["name"] for e in step_events.chrome_events(events) if e["name"] == "process_name"]
    assert [n.partition(": ")[2] for n in names][-1] == "root"
    assert any(n.endswith(": fact@main") for n in names)


def test_what_waits_in_a_call_is_named_with_it() -> None:
    p = Program()
    p.function("f", lambda b, x: b.AddV2(x, b.Identity(x)))
    p.fetch(p.call(p.b.at(Source("model.py", 5)), "f", p.b.Identity(p.b.const(1)), name="main"))
    propagator = p.executor().propagator
    propagator.start()
    ready: Any = propagator.ready
    node, it, x = ready.popleft()
    propagator.done(node, it, x)
    node, it, x = ready.popleft()
    propagator.call(node, it, [x])
    [(node, it)] = propagator.waiting()
    assert (node.op.name, it.tag) == ("f/AddV2", "f@main#0")
    assert where(it) == "function 'f' (called by 'main' at model.py:5)"
    assert not propagator.release()  # in a function everything must fire


# *** _SwitchN ***


def switch_n(b: Builder, x: Any, index: Any, n: int) -> list[Tensor]:
    made = b.make("_SwitchN", [b.tensor(x), b.tensor(index)], {"num_outs": n}, "SwitchN")
    return [made] if n == 1 else list(made)


@pytest.mark.parametrize(("index", "taken"), [(0, 0), (1, 1), (2, 2), (3, 2), (100, 2), (-1, 2)])
def test_switch_n_sends_data_to_one_of_its_outputs(index: int, taken: int) -> None:
    p = Program()
    outs = switch_n(p.b, 7, index, 3)
    for t in outs:
        p.fetch(p.b.Identity(t))
    p.fetch(p.b.Merge([p.b.AddV2(t, k) for k, t in enumerate(outs)])[0])
    end = p.b.after(outs[0].op).const(1)  # alive whichever is taken
    gives(p, *(7 if k == taken else DEAD for k in range(3)), 7 + taken)
    in_every_order(p, lambda m: None if m.value(end) == 1 else pytest.fail("dead"))
    e = p.executor()
    e.run()
    assert e.fetch(taken) == 7
    with pytest.raises(InvalidArgumentError) as error:
        e.fetch((taken + 1) % 3)
    name = outs[0].op.inputs[1].name
    assert f"sent its data to output {taken} of 3: its output_index '{name}' was {index}" in str(error.value)


def test_switch_n_with_one_output() -> None:
    p = Program()
    [t] = switch_n(p.b, 7, 5, 1)
    p.fetch(p.b.after(t.op).AddV2(t, t))
    p.fetch(t)
    gives(p, 14, 7)


def test_switch_n_is_dead_if_data_or_index_is() -> None:
    for x, index in ((dead, lambda b: b.const(0)), (lambda b: b.const(0), dead)):
        p = Program()
        outs = switch_n(p.b, x(p.b), index(p.b), 2)
        for t in outs:
            p.fetch(t)
        p.fetch(p.b.after(outs[0].op).const(1))
        gives(p, DEAD, DEAD, DEAD)


def test_switch_n_in_a_loop() -> None:
    p = Program()
    b = p.b
    loop = Loop(b, "loop", parallel_iterations=2)
    i, total = loop.var(b.const(0)), loop.var(b.const(0))
    loop.goes_while(b.Less(i, loop.constant(b.const(5))))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    sides = switch_n(b, loop.body(total), loop.body(i), 3)
    added = [b.AddV2(t, loop.const(10**k)) for k, t in enumerate(sides)]
    loop.next(total, b.Merge(added)[0])
    p.fetch(loop.exit(total))
    gives(p, 1 + 10 + 3 * 100)


def test_the_index_of_a_switch_n_is_a_scalar() -> None:
    p = Program()
    index = p.b.Reshape(p.b.const([1, 2]), p.b.const([-1]))
    index.shape = None  # unknown before the run
    p.fetch(switch_n(p.b, 7, index, 2)[0])
    with pytest.raises(InvalidArgumentError, match=r"must be a scalar, but it has shape \[2\]"):
        p.execute()
