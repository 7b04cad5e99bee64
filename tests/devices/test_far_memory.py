"""Joined steps on a device whose copies overlap with other work (`simulated_cuda`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import step_events
from headrace.errors import DeadlineExceededError, InvalidArgumentError

pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
pytestmark = [pytest.mark.system, pytest.mark.one_engine]

from tests.devices.simulated_cuda import CUDA, DEVICE, FAR, STREAMS  # noqa: E402  # it needs PyTorch

X = np.array([0.5, -1.0, 2.0])


def run(build: Callable[[Any], Any], x: np.ndarray = X, costs: Mapping[str, float] = MappingProxyType({})) -> str:
    """Runs a program on the device as on the CPU, and returns its source.

    `CUDA` has the log of one run.
    """
    with hr.Graph() as g:
        fed = hr.placeholder(hr.float64, x.shape, name="x")
        with hr.device(DEVICE):
            y = build(fed)
    with hr.Session(graph=g) as session:
        want = session.run(y, {fed: x})
    with hr.Session(graph=g, devices={FAR: 1}) as session:
        session.run(y, {fed: x})
        CUDA.reset()
        CUDA.costs.update(costs)
        got = session.run(y, {fed: x})
        CUDA.finish()
        explained = session.explain(y, [fed])
    for a, b in zip(hr.nest.flatten(got), hr.nest.flatten(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert explained.engine == "compiled"
    return str(explained.source)


def growing(x: Any) -> Any:
    """A loop whose predicate depends on the first of two operations of its body."""
    cond = lambda a, n: hr.reduce_sum(a) < 100.0
    return hr.while_loop(cond, lambda a, n: (a * a + 1.0, hr.sin(n) + hr.cos(n)), [x, x])


# *** copies ***


def test_a_fetch_begins_behind_what_it_depends_on() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, [3])
        v = hr.Variable(X, name="v")
        change = v.assign(hr.exp(hr.tanh(hr.cos(x) * x)))
        loss = hr.sin(x)
    with hr.Session(graph=g, devices={FAR: 1}) as session:
        session.run(v.initializer)
        CUDA.reset()
        CUDA.costs["copy"] = 2.0
        got, _ = session.run([loss, change.op], {x: X})
        out = next(w for w in CUDA.log if w.stream == "out")
        left = [w.label for w in CUDA.log if not w.end <= out.end]
        assert CUDA.labels() == ["copy", "sin", "copy", "cos", "mul", "tanh", "exp"]
        assert left[-2:] == ["tanh", "exp"], "the step ends while the device still computes"
        CUDA.finish()
        assert any(w.stream == "compute" and w.start < out.end and out.start < w.end for w in CUDA.log), "they overlap"
        assert min(CUDA.waits) == len(CUDA.log), "the host waits when all is enqueued"
        np.testing.assert_array_equal(got, np.sin(X))
        np.testing.assert_allclose(session.run(v), np.exp(np.tanh(np.cos(X) * X)))


def test_what_needs_no_wait_is_enqueued_before_the_first() -> None:
    def build(x: Any) -> Any:
        y = hr.sin(x)
        with hr.device("/cpu:0"):
            on_host = hr.exp(y)
        return hr.cos(on_host) + hr.tanh(hr.tanh(x))

    run(build)
    assert CUDA.labels() == ["copy", "sin", "copy", "tanh", "tanh", "copy", "cos", "add", "copy"]
    assert sorted(CUDA.waits)[0] == 5


# *** predicates ***


def test_the_next_predicate_is_copied_while_the_iteration_is_enqueued() -> None:
    run(growing)
    assert CUDA.labels()[:4] == ["copy", "sum", "lt", "copy"]
    each = ["mul", "add", "sum", "lt", "copy", "sin", "cos", "add"]
    trips = CUDA.labels().count("mul")
    assert CUDA.labels()[4 : 4 + 8 * trips] == each * trips
    assert trips == 3
    assert [n for n in CUDA.waits if n < 28] == [4, 12, 20], "at the top of an iteration, after all of the one before"


def test_the_host_is_ahead_of_the_device() -> None:
    run(growing, costs={"sin": 50.0})
    slow = [w for w in CUDA.log if w.label == "sin"]
    enqueued = [w for w in CUDA.log if w.label == "mul"]
    assert enqueued[1].enqueued < slow[0].end, "iteration 1 is enqueued while the device computes iteration 0"


@pytest.mark.parametrize("limit", [0, 2, 10])
def test_limits_of_iterations_hold(limit: int) -> None:
    def build(x: Any) -> Any:
        return hr.while_loop(lambda a: hr.reduce_sum(a) < 100.0, lambda a: a * a + 1.0, [x], maximum_iterations=limit)[
            0
        ]

    run(build)
    assert CUDA.labels().count("mul") == min(limit, 3)


def test_a_loop_without_iterations_changes_nothing() -> None:
    run(growing, X + 100.0)
    assert CUDA.labels()[:4] == ["copy", "sum", "lt", "copy"]
    assert "mul" not in CUDA.labels()


def test_nested_loops_and_conditionals_have_the_values_of_the_cpu() -> None:
    def build(x: Any) -> Any:
        def body(a: Any, b: Any) -> Any:
            a = hr.while_loop(lambda c: hr.reduce_max(c) < 5.0, lambda c: c * 1.5 + 0.1, [a + 0.5])[0]
            a = hr.cond(hr.reduce_sum(a) > 8.0, lambda: a * 0.5, lambda: a + 1.0)
            return a, b + hr.reduce_sum(a)

        return hr.while_loop(lambda a, b: b < 30.0, body, [x, hr.reduce_sum(x)])

    run(build)


def test_gradients_of_loops_have_the_values_of_the_cpu() -> None:
    def build(x: Any) -> Any:
        a, n = growing(x)
        return [a, *hr.gradients([a, n], [x])]

    run(build)


def test_counting_loops_stay_on_the_host() -> None:
    source = run(lambda x: hr.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, hr.sin(a)), [0, x])[1])
    assert "in range(0, 4)" in source
    assert CUDA.labels() == ["copy", "sin", "sin", "sin", "sin", "copy"]


def test_a_condition_of_two_parts_is_divided() -> None:
    def build(x: Any) -> Any:
        def cond(i: Any, a: Any) -> Any:
            return hr.logical_and(i < 7, hr.reduce_sum(a) < 100.0)

        return hr.while_loop(cond, lambda i, a: (i + 1, a + hr.cast(i, hr.float64)), [0, x])

    run(build)
    assert CUDA.labels().count("sum") == 8


def failing(x: Any, effect: bool) -> Any:
    """A loop whose condition fails in iteration 1, where its shapes do not fit."""
    start = hr.placeholder_with_default(x, [None])
    v = hr.Variable(np.zeros(()), name="v")

    def body(a: Any) -> Any:
        if not effect:
            return hr.concat([a, a], 0)
        with hr.control_dependencies([v.assign_add(1.0)]):
            return hr.concat([a, a], 0)

    loop = hr.while_loop(
        lambda a: hr.reduce_sum(a + np.ones(3)) < 100.0, body, [start], shape_invariants=[[None]], name="loop"
    )
    return v, loop


@pytest.mark.parametrize("effect", [False, True])
def test_errors_of_a_condition_are_those_of_its_iteration(effect: bool) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, [3], name="x")
        v, y = failing(x, effect)
    with hr.Session(graph=g, devices={FAR: 1}) as session:
        session.run(v.initializer)
        with pytest.raises(InvalidArgumentError) as caught:
            session.run(y, {x: X})
        found = caught.value.diagnosis
        assert session.run(v) == float(effect), "the effects before it are there"
    assert found is not None
    assert found.op is not None
    assert found.op.name == "loop/add"
    assert found.where == "iteration 1 of loop 'loop'"


def test_conditions_with_effects_stay_where_they_are() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        v = hr.Variable(np.zeros(()), name="v")

        def cond(a: Any) -> Any:
            return v.assign_add(1.0) + a < 5.0

        y = hr.while_loop(cond, lambda a: a + v, [hr.constant(0.5, hr.float64)])[0]
    found = []
    for devices in ({}, {FAR: 1}):
        with hr.Session(graph=g, devices=devices) as session:
            session.run(v.initializer)
            found.append((session.run(y).tolist(), session.run(v).tolist()))
    assert found[0] == found[1]
    assert found[0][1] == 3.0


def test_a_wait_for_the_device_ends_with_the_time_of_the_step() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, [3])
        y = hr.sin(x, name="y")
    with hr.Session(graph=g, devices={FAR: 1}) as session:
        session.run(y, {x: X})
        CUDA.reset()
        CUDA.is_stuck = True
        with pytest.raises(DeadlineExceededError, match="while it waited for the value of 'y"):
            session.run(y, {x: X}, timeout_ms=1)
        CUDA.is_stuck = False
        np.testing.assert_array_equal(session.run(y, {x: X}), np.sin(X))


# *** the token machine ***


def test_a_wait_for_a_predicate_ends_with_the_time_of_the_step() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, [])
        y = hr.while_loop(lambda a: a < 100.0, lambda a: a * a + 1.0, [x])[0]
    with hr.Session(graph=g, devices={FAR: 1}, engine="interpret") as session:
        session.run(y, {x: 0.5})
        CUDA.reset()
        CUDA.is_stuck = True
        with pytest.raises(DeadlineExceededError, match="ran past its time limit"):
            session.run(y, {x: 0.5}, timeout_ms=1)
        CUDA.is_stuck = False


def test_a_sent_value_is_copied_while_its_device_goes_on() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [3])
        with hr.device(DEVICE):
            first = hr.sin(x)
            second = hr.tanh(hr.cos(first))
        with hr.device("/cpu:0"):
            y = hr.exp(first)
    with hr.Session(graph=g, devices={FAR: 1}, engine="interpret") as session:
        CUDA.reset()
        got = session.run([y, second], {x: X})
    assert CUDA.labels() == ["copy", "sin", "copy", "cos", "tanh", "copy"]
    assert min(CUDA.waits) >= 5, "the host waits when the device has its work"
    np.testing.assert_array_equal(got[0], np.exp(np.sin(X)))
    np.testing.assert_allclose(got[1], np.tanh(np.cos(np.sin(X))), rtol=1e-12)


def test_a_trace_shows_that_copies_overlap_with_computing() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [3])
        with hr.device(DEVICE):
            first = hr.sin(x)
            second = hr.tanh(hr.cos(first))
    events: list[step_events.Event] = []
    with hr.Session(graph=g, devices={FAR: 1}) as session:
        session.run([first, second], {x: X})
        CUDA.reset()
        CUDA.costs["copy"] = 2.0
        session.run([first, second], {x: X}, options=hr.RunOptions(listener=events.append))
    spans = [e for e in events if isinstance(e, step_events.StreamSpan)]
    copies = [w for w in CUDA.log if w.label == "copy"]
    kernels = [w for w in CUDA.log if w.label in ("cos", "tanh")]
    assert [(s.stream, s.name, s.bytes) for s in spans] == [
        ("copy in", "copy in: float64[3]", 24),
        ("copy out", "copy out: float64[3]", 24),
        ("copy out", "copy out: float64[3]", 24),
    ]
    zero = spans[0].time - copies[0].start * 1e6  # a unit of the simulation is 1 ms
    for span, copy in zip(spans, copies, strict=True):
        assert span.time == pytest.approx(zero + copy.start * 1e6)
        assert span.end == pytest.approx(zero + copy.end * 1e6)
    computed = [(zero + w.start * 1e6, zero + w.end * 1e6) for w in kernels]
    assert any(begin < spans[1].end and spans[1].time < end for begin, end in computed), "they overlap"
    assert isinstance(events[-1], step_events.StepEnd)
    assert not STREAMS._traces, "later copies are not timed"
