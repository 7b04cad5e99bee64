"""Steps without control flow run in an order that is fixed beforehand.

Their results are those of the token machine; the rules of the schedule are its own.
"""

from __future__ import annotations

import random
import weakref
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.execute.plan import Plan
from headrace.execute.static_schedule import StaticSchedule, static_schedule
from headrace.ir.builder import Builder
from headrace.metadata import RunOptions
from tests.execute.clocks import ManualClock
from tests.execute.machine import SeededReady
from tests.inside import step_of, use_clock
from tests.session.helpers import call, custom_ops


def plan_of(session: hr.Session, fetches: object, feeds: tuple[hr.Tensor, ...] = ()) -> Plan:
    return step_of(session, fetches, dict.fromkeys(feeds)).observed.plan


def straight(seed: int) -> tuple[hr.Graph, list[hr.Tensor], list[hr.Tensor]]:
    """A random graph without control flow, its feeds and its fetches.

    The operations have one, two, many and no inputs, and one or several outputs.
    """
    r = random.Random(seed)
    with hr.Graph() as g:
        feeds = [hr.placeholder(hr.float32, (2, 3)) for _ in range(r.randrange(1, 4))]
        values = [*feeds, hr.constant(np.full((2, 3), 0.5, np.float32))]
        for _ in range(r.randrange(3, 30)):
            a, b = r.choice(values), r.choice(values)
            with hr.control_dependencies([r.choice(values)] if r.random() < 0.2 else []):
                made = r.choice(
                    [
                        lambda a, b: [a + b],
                        lambda a, b: [hr.tanh(a)],
                        lambda a, b: [hr.identity(b)],
                        lambda a, b: [hr.add_n([a, b, a])],
                        lambda a, b: hr.split(hr.concat([a, b], 0), 2),
                        lambda a, b: [hr.reshape(hr.transpose(a), (2, 3))],
                        lambda a, b: [a * 2.0],
                    ]
                )(a, b)
            values += made
    return g, feeds, r.sample(values, min(len(values), r.randrange(1, 5)))


@pytest.mark.parametrize("seed", range(30))
def test_as_the_token_machine(seed: int) -> None:
    g, feeds, fetches = straight(seed)
    rng = np.random.default_rng(seed)
    given = {t: rng.normal(size=(2, 3)).astype(np.float32) for t in feeds}
    with hr.Session(graph=g, engine="interpret") as session:
        assert isinstance(static_schedule(plan_of(session, fetches, tuple(feeds))), StaticSchedule)
        got = session.run(fetches, given)
        want = session.run(fetches, given, RunOptions(ready=SeededReady(seed)))
    assert all(np.array_equal(a, b) for a, b in zip(got, want, strict=True))


def test_control_flow_and_what_waits_is_left_to_the_token_machine() -> None:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, ())
        branch = hr.cond(n > 0, lambda: n, lambda: -n)
        q = hr.FIFOQueue(2, hr.int32)
        put, got = q.enqueue(n), q.dequeue()
    with hr.Session(graph=g, engine="interpret") as session:
        assert static_schedule(plan_of(session, branch, (n,))) is None
        assert static_schedule(plan_of(session, got)) is None
        session.run(put, {n: 3})
        assert session.run(got) == 3


def test_state_changes_in_order() -> None:
    with hr.Graph() as g:
        v = hr.Variable(1.0)
        before = v.read_value()
        v.assign_add(2.0)
        after = v.read_value()
        v.assign(after * 10.0)
        last = v.read_value()
    with hr.Session(graph=g, engine="interpret") as session:
        session.run(hr.variables_initializer(g.variables))
        assert static_schedule(plan_of(session, [before, after, last])) is not None
        assert session.run([before, after, last]) == [1.0, 3.0, 30.0]


def test_a_value_goes_when_its_last_reader_has_it() -> None:
    class Watched(np.ndarray):
        pass

    seen: list[weakref.ref[Watched]] = []
    alive: list[int] = []

    def grow(ctx: object, x: np.ndarray) -> np.ndarray:
        alive.append(sum(r() is not None for r in seen))
        out = (np.asarray(x) + 1).view(Watched)
        seen.append(weakref.ref(out))
        return out

    with custom_ops(), hr.Graph() as g, hr.Session(graph=g, engine="interpret") as session:
        y = hr.placeholder(hr.float32, (4,))
        x = y
        for _ in range(8):
            y = hr.identity(call(Builder(g), "Stateful", grow, [y], ["float32"]))
        assert static_schedule(plan_of(session, y, (x,))) is not None
        out = session.run(y, {x: np.zeros(4, np.float32)})
    assert out.tolist() == [8.0] * 4
    assert max(alive) <= 1


def test_a_fetched_array_is_the_callers_own() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (3,))
        y, same = x * 2.0, hr.identity(x)
    with hr.Session(graph=g, engine="interpret") as session:
        fed = np.ones(3, np.float32)
        first, also = session.run([y, same], {x: fed})
        first[:], also[:] = 7.0, 8.0
        assert fed.tolist() == [1.0] * 3
        assert session.run(y, {x: fed}).tolist() == [2.0] * 3


def test_errors_say_what_the_token_machine_says() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, (2,))
        i = hr.placeholder(hr.int32, ())
        y = hr.gather(x + 1, i)
    texts = []
    with hr.Session(graph=g, engine="interpret") as session:
        for options in (None, RunOptions(ready=SeededReady())):
            with pytest.raises(hr.errors.InvalidArgumentError) as caught:
                session.run(y, {x: [1, 2], i: 5}, options)
            assert caught.value.op is y.op
            texts.append([str(caught.value), *caught.value.__notes__])
    assert texts[0] == texts[1]
    assert "int32[2] = [2, 3]" in texts[0][-1]


def test_a_long_sequence_sees_its_deadline() -> None:
    clock = ManualClock()

    def slow(v: Any) -> Any:
        clock.advance(1.0)
        return v

    with hr.Graph() as g:
        x = y = hr.placeholder(hr.float32, ())
        for n in range(3 * thresholds.FIRINGS_PER_LOOK):
            y = y + 1.0
            if n == thresholds.FIRINGS_PER_LOOK // 2:
                y = hr.numpy_function(slow, [y], hr.float32)
                y.set_shape(())
    with hr.Session(graph=g, engine="interpret") as session:
        use_clock(session, clock)
        assert session.run(y, {x: 0.0}) == 3 * thresholds.FIRINGS_PER_LOOK
        with pytest.raises(hr.errors.DeadlineExceededError, match="ran past its time limit"):
            session.run(y, {x: 0.0}, timeout_ms=500)
