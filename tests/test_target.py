"""`LocalTarget`: devices, threads, memory and resources of one process, without a session."""

from __future__ import annotations

import copy
import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.environment import PlacementOptions
from headrace.errors import CancelledError, InvalidArgumentError
from headrace.execute.compiled_run import CompiledProgram
from headrace.execute.executor import MachineProgram
from headrace.execute.parts import PartsProgram
from headrace.execute.static_schedule import StaticProgram
from headrace.resources.memory import Memory
from headrace.target import LocalTarget, Target
from tests.inside import step_of, target_of

pytestmark = pytest.mark.one_engine

CPU = "/job:localhost/replica:0/task:0/device:CPU:"


class Resource:
    """A resource that counts its releases."""

    released = 0

    def release(self) -> None:
        self.released += 1


def until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_a_local_target_is_a_target() -> None:
    target: Target = LocalTarget()
    assert [(d.name, d.device_type, d.memory_limit_bytes) for d in target.devices()] == [(CPU + "0", "CPU", 0)]
    target.close()


def test_the_environment_has_the_devices_options_and_limit() -> None:
    options = PlacementOptions(soft=False, bfloat16=True)
    environment = LocalTarget({"CPU": 2}, 1000, options=options).environment
    assert environment.names == (CPU + "0", CPU + "1")
    assert environment.options is options
    assert environment.has_limit
    assert not LocalTarget().environment.has_limit


@pytest.mark.parametrize(
    ("arguments", "error", "why"),
    [
        ({"memory_limit": 0}, ValueError, "memory_limit must be at least 1 byte, got 0"),
        ({"intra_op_threads": 0}, ValueError, "intra_op_threads and inter_op_threads must be at least 1"),
        ({"inter_op_threads": -1}, ValueError, "intra_op_threads and inter_op_threads must be at least 1"),
        ({"devices": {"CPU": 0}}, InvalidArgumentError, "expected the number of devices"),
        ({"devices": {"Abacus": 1}}, InvalidArgumentError, "no device type 'Abacus' is registered"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        LocalTarget(**arguments)


def test_steps_share_resources_until_their_container_is_cleared() -> None:
    target = LocalTarget()
    first, second = target.step(), target.step()
    v = first.session.create("", Resource, "v", Resource())
    w = first.session.create("other", Resource, "w", Resource())
    assert second.session.lookup("", Resource, "v") is v
    assert target.statistics().resources == (("localhost", "Resource", "v"), ("other", "Resource", "w"))
    target.clear_container()
    assert (v.released, w.released) == (1, 0)
    target.clear_container("other")
    assert (v.released, w.released) == (1, 1)
    assert target.statistics().resources == ()


def test_a_step_has_a_deadline_and_resources_of_its_own() -> None:
    target = LocalTarget()
    step, other = target.step(deadline=time.monotonic() + 100), target.step()
    assert step.id != other.id
    assert step.deadline is not None
    assert other.deadline is None
    assert step.resources is not other.resources
    assert step.resources is not step.session


def test_a_step_uses_the_memory_of_its_device_and_its_parts_that_of_theirs() -> None:
    target = LocalTarget({"CPU": 2}, memory_limit=1000)
    step = target.step()
    part = step.part()
    part.memory = target.run_environment.account(part, CPU + "1")
    memories = [x.memory.memory for x in (step, part)]
    assert [m.statistics() for m in memories] == list(target.statistics().memory.values())
    assert memories[0] is not memories[1]
    assert all(isinstance(m, Memory) for m in memories)
    assert list(target.statistics().memory) == [CPU + "0", CPU + "1"]
    assert target.step(device=CPU + "1").memory.memory is memories[1]
    assert LocalTarget().step().memory is None


def test_a_registered_program_is_of_the_kind_that_runs_it() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, ())
        with hr.device("/device:CPU:1"):
            y = x + 1.0
        with hr.device("/device:CPU:0"):
            z = y * 2.0
    session = hr.Session(graph=g, engine="compiled")
    session.run(z, {x: 1.0})
    compiled = step_of(session, z, [x]).general.compiled
    plan = step_of(hr.Session(graph=g, engine="interpret"), z, [x]).general.plan
    plans = step_of(hr.Session(graph=g, engine="interpret", devices={"CPU": 2}), z, [x]).general.plans
    target = LocalTarget({"CPU": 2})
    programs = {
        CompiledProgram: target.program(compiled, {}),
        StaticProgram: target.program(None, {"": plan}),
        MachineProgram: target.program(None, {"": plan}, is_interpreted=True),
        PartsProgram: target.program(None, plans),
    }
    for kind, program in programs.items():
        assert type(program) is kind
        for value in (3.0, 4.0):  # a program starts any number of times
            run = program.start(target.step())
            run.feed(0, np.float32(value))
            run.run()
            assert run.fetch(0) == (value + 1.0) * 2.0
            run.step.close()


def test_a_closed_target_has_released_everything_once() -> None:
    before = set(threading.enumerate())
    target, done = LocalTarget({"CPU": 2}), threading.Event()
    v = target.step().session.create("", Resource, "v", Resource())
    target.run_environment.pool.submit(done.set)
    assert done.wait(20)
    assert set(threading.enumerate()) - before
    target.close()
    target.close()
    assert v.released == 1
    until(lambda: not set(threading.enumerate()) - before)
    with pytest.raises(CancelledError, match="has been closed"):
        target.step().session.create("", Resource, "v", Resource())
    with pytest.raises(RuntimeError, match="accept no work"):
        target.run_environment.pool.submit(done.set)


def test_a_target_closed_by_several_threads_releases_once() -> None:
    target, start = LocalTarget(), threading.Barrier(4)
    v = target.step().session.create("", Resource, "v", Resource())

    def close() -> None:
        start.wait(20)
        target.close()

    threads = [threading.Thread(target=close) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(20)
    assert v.released == 1


def test_a_dropped_target_releases_its_resources_and_threads() -> None:
    gc.collect()
    before = set(threading.enumerate())
    target = LocalTarget()
    v = target.step().session.create("", Resource, "v", Resource())
    target.run_environment.pool.submit(lambda: None)
    target.step().threads.submit(lambda: None)
    reference = weakref.ref(target)
    del target
    assert reference() is None  # without the garbage collector
    assert v.released == 1
    until(lambda: not set(threading.enumerate()) - before)


def test_a_dropped_session_frees_its_threads_without_the_garbage_collector() -> None:
    gc.collect()
    before = set(threading.enumerate())
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (64, 64))
        with hr.device("/device:CPU:1"):
            y = hr.matmul(x, x)
        with hr.device("/device:CPU:0"):
            z = hr.matmul(x, y) + hr.py_func(np.negative, [x], hr.float32)
    s = hr.Session(graph=g, engine="interpret", devices={"CPU": 2})
    s.run(z, {x: np.ones((64, 64), np.float32)})
    assert set(threading.enumerate()) - before
    reference = weakref.ref(target_of(s))
    gc.disable()
    try:
        del s
        assert reference() is None
    finally:
        gc.enable()
    until(lambda: not set(threading.enumerate()) - before)


def test_resources_that_a_fork_has_cut_off_are_replaced_without_a_release() -> None:
    target = LocalTarget()
    v = target.step().session.create("", Resource, "v", Resource())
    target.discard_resources()
    target._forked()
    assert target.statistics().resources == ()
    target.close()
    assert v.released == 0


def test_a_target_cannot_be_copied() -> None:
    with pytest.raises(TypeError, match="a target cannot be pickled or copied"):
        copy.copy(LocalTarget())
