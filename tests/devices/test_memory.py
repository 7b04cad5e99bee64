"""Memory of devices with arrays of their own: counts, refusals and swapped values."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.device_arrays import DeviceArray
from headrace.resources.memory import Memory
from headrace.resources.step_memory import StepMemory
from tests.devices.fake import DEVICE, FAKE, MEMORY

N = 8192  # bytes of a value
NAME = f"/job:localhost/replica:0/task:0{DEVICE}"
HOST = "/job:localhost/replica:0/task:0/device:CPU:0"


def on_device(k: int) -> Any:
    return MEMORY.put(np.full(N // 8, k, np.float64))


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_variables_count_on_their_device(engine: str) -> None:
    with hr.Graph() as g:
        with hr.device(DEVICE):
            v = hr.Variable(np.zeros(100), name="v")
            step = hr.train.Momentum(0.1, 0.9).minimize(hr.reduce_sum(hr.square(v)))
        with hr.device("/cpu:0"):
            host = hr.Variable(np.zeros(3), name="host")
    with hr.Session(graph=g, devices={FAKE: 1}, memory_limit=10_000, engine=engine) as session:
        session.run(hr.variables_initializer(g.variables))
        session.run(step)
        assert {name: m.held for name, m in session.statistics().memory.items()} == {NAME: 1600, HOST: 24}
        assert session.run(host).tolist() == [0, 0, 0]


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_a_variable_without_room_is_refused(engine: str) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        v, w = hr.Variable(np.zeros(100), name="v"), hr.Variable(np.zeros(50), name="w")
    with hr.Session(graph=g, devices={FAKE: 1}, memory_limit=1_000, engine=engine) as session:
        session.run(v.initializer)
        refused = (
            rf"{NAME} would exceed its memory limit of 1,000 bytes: variable 'w' asks for 400.*800 for variable 'v'"
        )
        with pytest.raises(hr.errors.ResourceExhaustedError, match=refused):
            session.run(w.initializer)
        with pytest.raises(hr.errors.FailedPreconditionError):
            session.run(w)


def test_a_session_without_a_limit_counts_nothing() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        v = hr.Variable(np.zeros(100), name="v")
    with hr.Session(graph=g, devices={FAKE: 1}) as session:
        session.run(v.initializer)
        assert session.statistics().memory == {}


def test_a_value_counts_in_the_memory_that_holds_it() -> None:
    host, there = Memory("cpu", None), Memory("there", None, place=MEMORY)
    use = StepMemory(host, others={MEMORY: there})
    kept = [use.save(on_device(1), "x", False), use.save(np.zeros(2), "y", False)]
    assert (host.held, there.held) == (16, N)
    assert isinstance(kept[0].value(), DeviceArray)
    del kept
    assert (host.held, there.held) == (0, 0)
    assert StepMemory(there).of(MEMORY).memory is there  # type: ignore[union-attr]
    alone = on_device(2)
    assert StepMemory(host).save(alone, "x", False) is alone


def test_values_of_a_near_device_go_to_the_spill_file() -> None:
    with ThreadPoolExecutor(1) as stream:
        memory = Memory("there", 16 * N, stream.submit, MEMORY)
        use = StepMemory(Memory("cpu", None), others={MEMORY: memory})
        saved = [use.save(on_device(k), "x", True) for k in range(40)]
        assert memory.peak <= 16 * N
        assert memory.spilled > 20 * N
        for k in range(39, -1, -1):
            value = use.pop(saved)
            assert isinstance(value, DeviceArray)
            np.testing.assert_array_equal(value.to_host(), np.full(N // 8, k))
            del value
        stream.submit(gc.collect).result(timeout=60)  # after the copies of the stream
        assert (memory.held, memory.spilled) == (0, 0)


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_loops_swap_on_a_device(engine: str) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, (1000,), name="x")
        y = hr.while_loop(lambda i, y: i < 40, lambda i, y: (i + 1, hr.sin(y) * x), (0, x), swap_memory=True)[1]
        (dx,) = hr.gradients(y, [x])
    at = {x: np.linspace(0.1, 0.9, 1000)}
    with hr.Session(graph=g) as free:
        want = free.run(dx, at)
    with hr.Session(graph=g, devices={FAKE: 1}, memory_limit=160_000, engine=engine) as session:
        np.testing.assert_array_equal(session.run(dx, at), want)
        there = session.statistics().memory[NAME if engine == "auto" else HOST]  # lists of the token machine are there
        assert there.bytes_in > 300_000
        assert there.peak <= 160_000
        assert there.held == 0
