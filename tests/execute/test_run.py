"""The protocol of runs (`execute.run`), checked for every kind of program."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from headrace.errors import CancelledError, InternalError, InvalidArgumentError
from headrace.execute.compiled_run import CompiledProgram
from headrace.execute.devices import make_devices
from headrace.execute.executor import MachineProgram
from headrace.execute.parts import PartsProgram
from headrace.execute.plan import make_plan
from headrace.execute.run import Program, RunEnvironment
from headrace.execute.static_schedule import StaticProgram, static_schedule
from headrace.execute.step import Step
from headrace.ir.graph import Graph, Operation
from headrace.ir.text import from_text
from headrace.lower import lower
from headrace.resources.manager import ResourceManager
from tests.multi.seeded import planned

pytestmark = pytest.mark.one_engine

TEXT = """
    x = _Arg[T=float32, index=0, shape=[3]]
    y = _Arg[T=float32, index=1, shape=[3]]
    minus = Neg(x)
    sum = AddV2(minus, y)
    first = _Retval[index=0](minus)
    second = _Retval[index=1](sum)
    """
X, Y = np.float32([1, 2, 3]), np.float32([10, 20, 30])


class PythonCode:
    """The graph of `TEXT` as a Python function, in place of compiled code."""

    uses_threads = is_threaded = flushes = True
    calls_library = False
    blocks = False

    def run(self, step: Any, values: Sequence[Any]) -> Sequence[Any]:
        x, y = values
        return -x, -x + y


def machine() -> Program:
    return MachineProgram(make_plan(from_text(TEXT).operations), RunEnvironment())


def static() -> Program:
    schedule = static_schedule(make_plan(from_text(TEXT).operations))
    assert schedule is not None
    return StaticProgram(schedule, RunEnvironment())


def compiled() -> Program:
    return CompiledProgram(PythonCode(), RunEnvironment())


def parts(text: str = TEXT, there: Sequence[str] = ("sum",)) -> Program:
    """The step on two devices, with the operations `there` on the second one."""
    return parts_of(from_text(text), lambda op: op.name in there)


def parts_of(graph: Graph, is_second: Callable[[Operation], bool]) -> Program:
    lowered = lower(graph)
    devices = make_devices({"CPU": 2})
    first, second = devices
    of = {op: second if is_second(op) else first for op in lowered.ops}
    return PartsProgram(planned(lowered, of), RunEnvironment(devices=devices))


def step() -> Step:
    return Step(ResourceManager(), ResourceManager)


PROGRAMS = {f.__name__: f for f in (machine, static, compiled, parts)}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_can_be_started_several_times(program: Callable[[], Program]) -> None:
    made = program()
    for k in (1, 2):
        run = made.start(step())
        run.feed(0, k * X)
        run.feed(1, Y)
        assert not run.finished
        run.run()
        assert run.finished
        np.testing.assert_array_equal(run.fetch(1), Y - k * X)
        np.testing.assert_array_equal(run.fetch(0), -k * X)
        statistics = run.statistics()
        assert statistics.finished
        assert statistics.seconds > 0
        assert statistics.waiting == ()
        assert statistics.sent == statistics.received == (3 if program is parts else 0)  # x, y, and the sum back


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_fetched_value_is_dropped_by_its_run(program: Callable[[], Program]) -> None:
    run = program().start(step())
    run.feed(0, X)
    run.feed(1, Y)
    run.run()
    value = run.fetch(1)
    alive = weakref.ref(value)
    del value
    assert alive() is None


@pytest.mark.parametrize("program", [machine, parts])
def test_a_partial_run_pauses_when_nothing_further_can_be_computed(program: Callable[[], Program]) -> None:
    run = program().start(step())
    run.feed(0, X)
    run.run([0, 1], is_fed=False)
    assert [run.has(0), run.has(1)] == [True, False]
    assert not run.finished
    np.testing.assert_array_equal(run.fetch(0), -X)
    run.run([1], is_fed=False)
    assert not run.has(1)
    run.feed(1, Y)
    run.run([1])
    np.testing.assert_array_equal(run.fetch(1), Y - X)
    assert run.finished


@pytest.mark.parametrize("program", [static, compiled])
def test_a_run_that_computes_all_fetches_at_once_waits_for_its_feeds(program: Callable[[], Program]) -> None:
    run = program().start(step())
    run.feed(0, X)
    run.run([0], is_fed=False)
    assert not run.has(0)
    run.feed(1, Y)
    run.run([0])
    np.testing.assert_array_equal(run.fetch(0), -X)
    run.run([1])
    np.testing.assert_array_equal(run.fetch(1), Y - X)


@pytest.mark.parametrize("program", [machine, parts])
def test_a_cancelled_run_fails_with_the_given_error(program: Callable[[], Program]) -> None:
    run = program().start(step())
    run.feed(0, X)
    run.run([0], is_fed=False)
    run.cancel(CancelledError("closed"))
    run.feed(1, Y)
    with pytest.raises(CancelledError, match="closed"):
        run.run()
    assert not run.finished


CONDITIONAL = """
    x = _Arg[T=float32, index=0, shape=[]]
    p = _Arg[T=bool, index=1, shape=[]]
    s = Switch(x, p)
    minus = Neg(s:1)
    out = _Retval[index=0](minus)
    """


@pytest.mark.parametrize("there", [(), ("minus",), ("out",)])
def test_a_dead_fetch_of_a_partial_run_on_devices(there: Sequence[str]) -> None:
    run = parts(CONDITIONAL, there).start(step())
    run.feed(0, np.float32(1))
    run.run([0], is_fed=False)
    assert not run.has(0)
    run.feed(1, np.bool_(False))
    run.run([0])
    assert run.has(0)
    with pytest.raises(InvalidArgumentError, match="dead"):
        run.fetch(0)


def test_a_stuck_step_fails_once_everything_is_fed() -> None:
    run = parts().start(step())
    run.feed(0, X)
    with pytest.raises(InternalError, match="cannot continue"):
        run.run()


def test_a_queue_of_ready_nodes_for_several_devices_must_be_a_function() -> None:
    with pytest.raises(ValueError, match="several devices"):
        parts().start(Step(None, ResourceManager, ready=[]))  # type: ignore[arg-type]
