"""The environment of steps: measured costs and homes of state, with several threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.environment import Environment
from tests.inside import environment_of, step_of

pytestmark = pytest.mark.one_engine

CPU = "/job:localhost/replica:0/task:0/device:CPU:"


@pytest.fixture
def switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(n: int, f: Any) -> None:
    """Calls `f(0)` to `f(n - 1)` in threads that start together; raises their first error."""
    start, errors = threading.Barrier(n), []

    def work(i: int) -> None:
        try:
            start.wait(10)
            f(i)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert not any(t.is_alive() for t in threads)
    if errors:
        raise errors[0]


def test_costs_are_moving_averages_by_operation_and_type_of_device() -> None:
    environment = Environment()
    environment.record("conv", "CPU", 1.0)
    before = environment.costs()
    environment.record("conv", "CPU", 2.0)
    environment.record("conv", "DLP", 0.5)
    assert before.measured == {("conv", "CPU"): 1.0}  # a snapshot
    w = thresholds.MEASUREMENT_WEIGHT
    assert environment.costs().measured == {("conv", "CPU"): 1.0 + w, ("conv", "DLP"): 0.5}


def test_all_homes_of_a_claim_are_fixed_or_none() -> None:
    environment = Environment()
    assert environment.claim({"v": "a", "w": "b"})
    assert not environment.claim({"v": "a", "w": "c", "x": "c"})
    assert [environment.home(op) for op in "vwx"] == ["a", "b", None]
    assert environment.claim({"v": "a", "x": "c"})
    assert environment.home("x") == "c"


def test_one_of_several_claims_at_once_wins(switching: None) -> None:
    environment, names = Environment(), [f"v{i}" for i in range(50)]
    won: list[int] = []

    def work(i: int) -> None:
        if environment.claim(dict.fromkeys(names, f"device {i}")):
            won.append(i)

    in_threads(8, work)
    assert len(won) == 1
    assert {environment.home(name) for name in names} == {f"device {won[0]}"}


def test_no_measurement_of_several_threads_is_lost(switching: None) -> None:
    environment = Environment()

    def work(i: int) -> None:
        for k in range(100):
            environment.record(f"op {i} {k}", "CPU", 1.0)
            environment.costs()

    in_threads(4, work)
    assert len(environment.costs().measured) == 400


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_place_steps_at_once_keep_every_home(seed: int, switching: None) -> None:
    """Consumers of each step request a device, which alone would attract the variables."""
    rng = np.random.default_rng(seed)
    with hr.Graph() as g:
        vs = [hr.Variable(np.full(4, float(i)), name=f"v{i}") for i in range(3)]
        reads = [rng.permutation(3)[:2] for _ in range(6)]
        fetches = []
        for i, some in enumerate(reads):
            with hr.device(f"/device:CPU:{i % 3}"):
                fetches.append([hr.reduce_sum(vs[k].read_value() * 2.0) for k in some])
        start = hr.group(*(v.initializer for v in vs))
    with hr.Session(graph=g, devices={"CPU": 3}) as s:
        in_threads(len(fetches) + 1, lambda i: step_of(s, (*fetches, start)[i], {}).general.placement)
        homes = {v.op.name: environment_of(s).home(v.op.name) for v in vs}
        assert None not in homes.values()
        for fetch in fetches:
            placed = {op.name: d for op, d in step_of(s, fetch, {}).general.placement.of.items()}
            assert {name: d for name, d in placed.items() if name in homes}.items() <= homes.items()
        s.run(start)
        np.testing.assert_array_equal(s.run(fetches), [8.0 * some for some in reads])


def test_the_homes_of_another_thread_are_read_again_after_a_lost_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Graph() as g:
        v = hr.Variable(np.zeros(4), name="v")
        with hr.device("/device:CPU:0"):
            y = hr.reduce_sum(v.read_value())
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        environment = environment_of(s)
        claim = Environment.claim

        def late(self: Environment, homes: Any) -> bool:
            monkeypatch.undo()
            assert claim(self, {"v": CPU + "1"})  # by a step of another thread
            return claim(self, homes)

        monkeypatch.setattr(Environment, "claim", late)
        of = step_of(s, y, {}).general.placement.of
        assert {d for op, d in of.items() if op.name == "v"} == {CPU + "1"}
        assert environment.home("v") == CPU + "1"


def test_state_without_a_home_prefers_the_home_that_another_session_has_claimed() -> None:
    names = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(3)]
    shared: dict[str, str] = {}
    first, second = (Environment(names[: 3 - i], is_remote=True, shared=shared) for i in range(2))
    assert first.claim({"v": names[1], "w": names[2]})
    assert second.preferred_home("v", "") == names[1]
    assert second.preferred_home("v", "/job:worker/task:1") == names[1]
    assert second.preferred_home("v", "/job:worker/task:0") is None  # it requests another device
    assert second.preferred_home("w", "") is None  # not a device of this session
    assert second.home("v") is None
    assert second.claim({"v": names[0]})
    assert second.preferred_home("v", "") == names[0]
    assert first.preferred_home("v", "") == names[1]
