"""Ten mistakes that are found by the tools that look into a step.

Each test is a program with one mistake. It uses a tool as a user would, and the output of the tool has the cause: the
operation, the line, the iteration or the number that is wrong.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import DeadlineExceededError, InvalidArgumentError
from tests.observe.reading import fired

pytestmark = pytest.mark.system


def _line_of(function: Callable[..., Any], text: str) -> str:
    """Place, as `file.py:N`, of the first line of a function that contains `text`."""
    lines, first = inspect.getsourcelines(function)
    return f"test_solved.py:{first + next(i for i, line in enumerate(lines) if text in line)}"


def test_a_dead_fetch_names_the_conditional_and_a_recording_the_cause() -> None:
    with hr.Graph() as g:
        p = hr.placeholder(hr.bool, (), name="p")
        off, _ = hr.raw_ops.Switch(data=hr.constant(2.0), pred=p, name="choice")
        y = hr.identity(off, name="y")
    told = r"the Switch 'choice'.* its predicate 'p:0' was True"
    with hr.Session(graph=g) as session, hr.record() as recording, pytest.raises(InvalidArgumentError, match=told):
        session.run(y, {p: True})
    document = recording.document()
    names = [node["name"] for node in document["nodes"]]
    (cause,) = document["causes"]
    assert (cause["op"], names[cause["node"]], cause["selector"], cause["value"]) == ("choice", "choice", "p:0", 1)


def test_a_hang_of_queues_names_the_queue_and_the_missing_call() -> None:
    with hr.Graph() as g:
        numbers = hr.train.range_input_producer(3, shuffle=False, name="numbers")
        doubled = numbers.dequeue(name="get") * 2
    with pytest.raises(DeadlineExceededError) as caught:
        hr.Session(graph=g).run(doubled, timeout_ms=50)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "'get'" in text
    assert "the empty FIFOQueue 'numbers'" in text
    assert "start_queue_runners" in text


def test_nan_in_a_nested_loop_is_found_with_its_iterations_and_inputs() -> None:
    def outer(i: Any, h: Any) -> Any:
        inner = hr.while_loop(
            lambda j, k: j < 3, lambda j, k: (j + 1, hr.sqrt(k - 1.0, name="root")), (0, h), name="inner"
        )
        return i + 1, inner[1] * 2.0

    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        y = hr.while_loop(lambda i, h: i < 2, outer, (0, x), name="outer")[1]
    session = hr.Session(graph=g)
    assert np.isnan(session.run(y, {x: 40.0}))
    with pytest.raises(InvalidArgumentError) as caught:
        session.run(y, {x: 40.0}, check_numerics=True)
    found = caught.value.diagnosis
    assert found is not None
    assert found.op is not None
    assert found.op.name == "outer/inner/root"
    assert found.where == "iteration 2 of loop 'outer/inner', in iteration 1 of loop 'outer'"
    assert _line_of(outer, "hr.sqrt") in str(found.op)
    assert [link.op.name for link in found.chain][:2] == ["outer/inner/sub", "outer/inner/root"]


def test_shapes_that_change_are_seen_by_a_watch() -> None:
    def body(i: Any, rows: Any) -> Any:
        more = hr.concat([rows, rows[: i + 1]], 0, name="more")
        return i + 1, more

    with hr.Graph() as g:
        start = hr.ones((1, 2))
        rows = hr.while_loop(lambda i, rows: i < 4, body, (0, start), shape_invariants=((), (None, 2)), name="grow")[1]
    _, watched = hr.Session(graph=g).run(rows, watch=hr.watch("grow/more"))
    assert [r.value.shape for r in watched["grow/more"]] == [(2, 2), (4, 2), (7, 2), (11, 2)]


def test_a_wrong_gradient_is_found_by_differences() -> None:
    def cube_with(factor: float) -> Callable[[Any], Any]:
        @hr.custom_gradient
        def cube(x: Any) -> Any:
            return x * x * x, lambda dy: dy * factor * x * x

        return lambda x: hr.while_loop(lambda i, y: i < 2, lambda i, y: (i + 1, cube(y) * 0.5), (0, x))[1]

    hr.check_gradients(cube_with(3.0), (np.float64(1.1),), modes=("rev",))
    with pytest.raises(AssertionError) as caught:
        hr.check_gradients(cube_with(2.0), (np.float64(1.1),), modes=("rev",))  # the mistake: 2 in place of 3
    assert "rev" in str(caught.value)


def test_a_slow_loop_is_found_by_a_profile() -> None:
    def body(i: Any, h: Any) -> Any:
        wide = hr.matmul(h, h, name="wide")
        return i + 1, hr.tanh(wide / 96.0)

    with hr.Graph() as g:
        h = hr.placeholder(hr.float64, (96, 96))
        out = hr.while_loop(lambda i, h: i < 20, body, (0, h), name="loop")[1]
    session = hr.Session(graph=g)
    p = hr.profile(lambda: session.run(out, {h: np.ones((96, 96))}))
    (loop,) = p.loops
    assert (loop.name, loop.calls) == ("loop", 20)
    (product,) = [row for row in p.rows if "wide" in row.label]
    assert product.calls == 20
    assert product.seconds > 0.0
    assert any(_line_of(body, "hr.matmul").partition(":")[2] in line for line in product.lines)


def test_a_stuck_step_of_two_devices_says_what_each_waits_for() -> None:
    with hr.Graph() as g:
        with hr.device("/cpu:0"):
            queue = hr.FIFOQueue(1, [hr.float32], name="pipe")
            got = queue.dequeue(name="take")
        with hr.device("/cpu:1"):
            y = hr.identity(got * 2.0, name="y")
    with hr.Session(graph=g, devices={"CPU": 2}) as session, pytest.raises(DeadlineExceededError) as caught:
        session.run(y, timeout_ms=100)
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert "'take'" in text
    assert _line_of(test_a_stuck_step_of_two_devices_says_what_each_waits_for, "queue.dequeue") in text


def test_a_graph_that_grows_is_named_with_its_line() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
    session = hr.Session(graph=g)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(60):
            session.run(x * 2.0, {x: 1.0})  # the mistake: an operation for each run
    told = [str(w.message) for w in caught if "grow" in str(w.message) or "operations" in str(w.message)]
    assert told
    assert _line_of(test_a_graph_that_grows_is_named_with_its_line, "session.run(x * 2.0") in told[0]


def test_a_loop_that_never_ends_shows_its_iteration_and_its_condition() -> None:
    def body(x: Any) -> Any:
        return hr.identity(x + 0.25, name="next")  # the mistake: x != 1 is never reached from 0.1

    with hr.Graph() as g:
        start = hr.placeholder(hr.float32, (), name="start")
        end = hr.while_loop(lambda x: hr.not_equal(x, 1.0), body, (start,), name="until")
    session = hr.Session(graph=g)
    with pytest.raises(DeadlineExceededError, match="loop 'until'"):
        session.run(end, {start: 0.1}, timeout_ms=100)
    seen: list[float] = []

    def look(paused: Any) -> None:
        seen.append(float(paused.values[0]))
        if len(seen) == 5:
            paused.quit()

    with pytest.raises(hr.errors.CancelledError), hr.breakpoint_when("until/next", on_pause=look):
        session.run(end, {start: 0.1})
    assert np.allclose(seen, [0.35, 0.6, 0.85, 1.1, 1.35])


def test_validation_that_trains_shows_the_assignment_in_the_recording() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        w = hr.Variable(2.0, name="w")
        loss = hr.square(w * x - 1.0)
        train = hr.train.SGD(0.1).minimize(loss)
        accuracy = hr.identity(w * x, name="accuracy")  # the mistake: after the training step, so it runs one
    session = hr.Session(graph=g)
    session.run([v.initializer for v in g.variables])
    with hr.record() as recording:
        session.run(accuracy, {x: 1.0})
    document = recording.document()
    types = {node["name"]: node["type"] for node in document["nodes"]}
    written = [token.node for token in fired(document) if "ResourceApply" in types[token.node]]
    assert len(written) == 1
    assert written[0].split("/")[0] == train.name.split("/")[0]
