"""Work for the first result of a step: done once, with every engine.

It is proportional to the number of operations of the step.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import pytest

import headrace as hr
from headrace import pipeline
from headrace.gc_pause import paused
from headrace.grad import sums
from headrace.ir import walk
from headrace.prune import prune
from tests.inside import step_of


@pytest.fixture
def pruned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of operations of each graph that was pruned."""
    found: list[int] = []
    prune = pipeline.prune

    def counted(*ends: Any) -> Any:
        made = prune(*ends)
        found.append(len(made.graph))
        return made

    monkeypatch.setattr(pipeline, "prune", counted)
    return found


def chain(n: int) -> tuple[hr.Graph, Any, Any]:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [2])
        y = x
        for _ in range(n):
            y = y + x
    return g, x, y


@pytest.mark.parametrize("engine", ["auto", "compiled", "interpret"])
def test_a_straight_step_is_pruned_once(pruned: list[int], engine: str) -> None:
    g, x, y = chain(5)
    with hr.Session(graph=g, engine=engine) as session:
        for _ in range(3):
            assert session.run(y, {x: [1.0, 2.0]}).tolist() == [6.0, 12.0]
    assert len(pruned) == 1


def test_a_callable_is_pruned_once(pruned: list[int]) -> None:
    g, x, y = chain(5)
    with hr.Session(graph=g, engine="auto") as session:
        f = session.make_callable(y, [x])
        assert f([1.0, 2.0]).tolist() == [6.0, 12.0]
    assert len(pruned) == 1


def test_a_step_that_waits_is_pruned_once_though_the_compiler_looked_at_it(pruned: list[int]) -> None:
    with hr.Graph() as g:
        queue = hr.FIFOQueue(3, hr.float32, ())
        fill, item = queue.enqueue(2.0), queue.dequeue() * 3.0
    with hr.Session(graph=g, engine="auto") as session:
        session.run(fill)
        del pruned[:]
        assert session.run(item) == 6.0
    assert len(pruned) == 1


def test_the_programs_for_several_shapes_share_the_pruned_graph(pruned: list[int]) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [None])
        _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), [0, x])
    with hr.Session(graph=g, engine="auto") as session:
        assert session.run(y, {x: [1.0]}).tolist() == [8.0]
        assert session.run(y, {x: [1.0, 1.0]}).tolist() == [8.0, 8.0]
    assert len(pruned) == 1


@pytest.mark.parametrize("engine", ["compiled", "interpret"])
def test_the_walks_of_a_first_run_grow_with_the_graph(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    """Four times as many operations need as many walks, each four times as long."""
    visited: list[int] = []
    toposort = walk.toposort

    def counted(ops: Any) -> Any:
        visited.append(len(ops))
        return toposort(ops)

    monkeypatch.setattr(walk, "toposort", counted)
    totals = []
    for n in (50, 200):
        g, x, y = chain(n)
        del visited[:]
        with hr.Session(graph=g, engine=engine) as session:
            session.run(y, {x: [1.0, 2.0]})
        totals.append((len(visited), sum(visited) / n))
    assert totals[0][0] == totals[1][0]
    assert totals[1][1] <= totals[0][1] * 1.01


def test_the_feeds_that_fetches_need_are_found_for_partial_runs() -> None:
    with hr.Graph() as g:
        a, b = hr.placeholder(hr.float32, ()), hr.placeholder(hr.float32, ())
        first, both = a + 1.0, a + b
    step = step_of(hr.Session(graph=g), [first, both], [a, b])
    assert step.general.pruned.depends_on() == (frozenset({0}), frozenset({0, 1}))


def test_the_feeds_that_fetches_need_are_found_across_iterations_of_primitive_loops() -> None:
    """A fetch depends on x after two iterations.

    In the loop x goes to y and y to z, so z needs x, which the first walk does not find.
    """
    with hr.Graph() as g:
        feeds = [hr.placeholder(hr.float32, (), name) for name in "xyzu"]
        x, y, z, u = feeds

        def body(i: Any, x: Any, y: Any, z: Any) -> tuple[Any, Any, Any, Any]:
            return i + 1, hr.identity(x), hr.identity(x), hr.identity(y)

        last = hr.while_loop(lambda i, *_: i < 3, body, [0, x, y, z])[3]
        names = [t.name for t in (*feeds, last, u * 2.0)]
        written = g.as_graph_def(form="primitive")
    with hr.Graph() as g:
        elements: Any = hr.import_graph_def(written, return_elements=names, name="")
        g.replaced.clear()  # the primitive form
        pruned = prune(elements[:4], elements[4:], [])
    assert any(op.type == "NextIteration" for op in pruned.graph.operations)
    assert pruned.depends_on() == (frozenset({0, 1, 2}), frozenset({3}))


def test_the_feeds_that_fetches_need_are_found_by_one_walk() -> None:
    def calls(n: int) -> int:
        with hr.Graph():
            xs = [hr.placeholder(hr.float32, ()) for _ in range(n)]
            shared = hr.constant(1.0)
            for _ in range(n):
                shared = hr.sin(shared)
            made = prune(xs, [x + shared for x in xs], [])
        count = 0

        def profile(frame: Any, event: str, arg: Any) -> None:
            nonlocal count
            count += event == "call" or event == "c_call"

        sys.setprofile(profile)
        try:
            needs = made.depends_on()
        finally:
            sys.setprofile(None)
        assert needs == tuple(frozenset([i]) for i in range(n))
        return count

    assert calls(40) <= 2.05 * calls(20)


def test_gradients_of_more_uses_than_one_operation_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MOST_TENSORS", 4)
    g, x, y = chain(10)
    with g:
        (grad,) = hr.gradients([y], [x])
    assert max(len(op.inputs) for op in g.operations) == 4
    with hr.Session(graph=g) as session:
        assert session.run(grad, {x: [1.0, 1.0]}).tolist() == [11.0, 11.0]


# *** the collector ***


def test_the_collector_is_off_while_a_step_is_made_and_on_again_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    prune = pipeline.prune
    monkeypatch.setattr(pipeline, "prune", lambda *ends: (seen.append(gc.isenabled()), prune(*ends))[1])
    g, x, y = chain(2)
    with hr.Session(graph=g) as session:
        session.run(y, {x: [1.0, 2.0]})
    assert seen
    assert not any(seen)
    assert gc.isenabled()


def test_a_collector_that_the_program_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_an_error_in_a_pause_ends_it() -> None:
    with pytest.raises(ValueError, match="inside"), paused():
        raise ValueError("inside")
    assert gc.isenabled()


@pytest.mark.system
def test_pauses_of_several_threads_end_with_the_last() -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with paused():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with paused():
        thread.start()
        assert inside.wait(10)
    assert not gc.isenabled()
    leave.set()
    thread.join(10)
    assert gc.isenabled()
