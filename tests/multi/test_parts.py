"""The end of a step over several devices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.execute.devices import make_devices
from headrace.execute.part import Part
from headrace.execute.parts import PartsProgram
from headrace.execute.plan import KIND_NAMES
from headrace.execute.run import RunEnvironment
from headrace.execute.step import Step
from headrace.execute.step_state import Begin, End, Idle, Release
from headrace.ir.text import from_text
from headrace.lower import lower
from headrace.resources.manager import ResourceManager
from tests.inside import step_of
from tests.multi.seeded import AtOnceDevice, planned

TEXT = """
    x = _Arg[T=float32, index=0, shape=[]]
    y = Neg(x)
    z = _Retval[index=0](y)
    """


def test_a_part_that_looks_back_after_the_last_one_ended_finds_no_step_that_is_stuck() -> None:
    lowered = lower(from_text(TEXT))
    devices = {name: AtOnceDevice(d.spec) for name, d in make_devices({"CPU": 2}).items()}
    first, second = devices
    of = {op: second if op.type == "Neg" else first for op in lowered.ops}
    program = PartsProgram(planned(lowered, of), RunEnvironment(devices=devices))
    parts = program.start(Step(ResourceManager(), ResourceManager))
    parts.feed(0, np.float32(2.0))
    for part in [*parts.parts.values()] * 3:
        part.executor.advance()
    assert parts.finished
    assert parts.state.handle(Begin())
    ended = [parts.state.handle(part.report()) for part in parts.parts.values()]
    assert ended == [[], [End(None)]]
    parts._left = 0  # two threads have ended a part each; one of them is yet to look whether the others are stuck
    parts._park(None)
    assert parts._error is None


def test_a_part_that_a_report_releases_is_not_asked_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = lower(from_text(TEXT))
    devices = {name: AtOnceDevice(d.spec) for name, d in make_devices({"CPU": 3}).items()}
    ops = {op: sorted(devices)[i % 3] for i, op in enumerate(lowered.ops)}
    parts = PartsProgram(planned(lowered, ops), RunEnvironment(devices=devices)).start(
        Step(ResourceManager(), ResourceManager)
    )
    *_, middle, last = names = list(parts.parts)
    assert len(names) == 3
    asked: list[str] = []

    def handle(event: Any) -> list[Any]:
        asked.append(event.part)
        return [Release(last, 1)] if event.part == middle else []

    monkeypatch.setattr(parts.state, "handle", handle)
    monkeypatch.setattr(Part, "report", lambda part: Idle(part.name, 1))
    monkeypatch.setattr(Part, "obey", lambda part, order, is_fed: True)
    parts._parked.update(parts.parts.values())
    parts._settle()
    assert asked == names[:2]
    assert parts.parts[last] not in parts._parked


@pytest.mark.one_engine
@pytest.mark.parametrize(("shape", "threads"), [("[2]", 0), ("[1500, 1500]", 1), ("[1500, ?]", 1)])
def test_a_device_gives_a_thread_to_a_step_whose_kernels_may_take_long(shape: str, threads: int) -> None:
    text = f"""
        x = _Arg[T=float32, index=0, shape={shape}]
        y = Neg(x)
        z = Tanh(y)
        a = _Retval[index=0](y)
        b = _Retval[index=1](z)
        """
    lowered = lower(from_text(text))
    devices = make_devices({"CPU": 2})
    first, second = devices
    of = {op: second if op.type == "Tanh" else first for op in lowered.ops}
    program = PartsProgram(planned(lowered, of), RunEnvironment(devices=devices))
    parts = program.start(Step(ResourceManager(), ResourceManager))
    at = np.ones((1500, 1500) if threads else 2, np.float32)
    parts.feed(0, at)
    parts.run()
    np.testing.assert_array_equal(parts.fetch(1), np.tanh(-at))
    assert parts._started == threads
    for device in devices.values():
        device.close()


@pytest.mark.one_engine
@pytest.mark.parametrize(("shape", "is_long"), [((2,), False), ((400, 400), True), ((None,), True)])
def test_a_fused_region_that_may_take_long_is_announced(shape: tuple[int | None, ...], is_long: bool) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, shape)
        outs = []
        for i in range(2):
            with hr.device(f"/device:CPU:{i}"):
                y = x
                for _ in range(8):
                    y = hr.sin(y * x)
                outs.append(y)
    with hr.Session(graph=g, devices={"CPU": 2}, engine="auto") as session:
        parts = step_of(session, outs, [x]).general.plans
        kinds = [{KIND_NAMES[n.kind] for n in plan.nodes if n.op.type == "_FusedRegion"} for plan in parts.values()]
    assert kinds == [{"long" if is_long else "unary"}] * 2
