"""Swapping to pinned memory, where each missing wait gives garbage (`simulated_cuda`)."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.device_arrays import DeviceArray
from headrace.errors import ResourceExhaustedError
from headrace.resources.memory import Memory, SpilledTensor
from headrace.resources.step_memory import StepMemory

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
pytestmark = pytest.mark.one_engine

from headrace.devices.torch.device import TorchMemory  # noqa: E402  # it needs PyTorch
from headrace.devices.torch.pinned import Bound, Layout, PinnedStore  # noqa: E402
from tests.devices.simulated_cuda import CUDA, DEVICE, FAR, MEMORY, STREAMS  # noqa: E402

N = 8192  # bytes of a value
LIMIT = 174_762
ROOM = 16 * N  # the rest is for temporary values


@pytest.fixture(autouse=True)
def _nothing_enqueued() -> None:
    CUDA.reset()


@pytest.fixture
def stream() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def computed(k: int) -> DeviceArray:
    """A value that the device computes, in work that is enqueued."""
    return DeviceArray(MEMORY.put(np.full(N // 8, k - 1.0)).array + 1.0, MEMORY)


def account(submit: Callable[[Callable[[], object]], object]) -> StepMemory:
    return StepMemory(Memory(DEVICE, LIMIT, submit, MEMORY))


def states(saved: list[SpilledTensor]) -> list[str]:
    return [s._record.state for s in saved]


def test_values_leave_and_come_back(stream: ThreadPoolExecutor) -> None:
    use = account(stream.submit)
    saved: list[Any] = [use.save(computed(k), "x", True) for k in range(40)]
    assert use.memory.peak <= ROOM
    assert use.memory.spilled > 20 * N
    sums = [use.pop(saved).array.sum() for _ in range(40)]  # enqueued, so the host does not wait for the copies
    for k, total in enumerate(reversed(sums)):
        assert total.item() == k * N / 8
    stream.submit(gc.collect).result(timeout=60)  # after the copies of the stream
    assert (use.memory.held, use.memory.spilled) == (0, 0)
    assert use.memory.statistics().bytes_in > 0


def test_the_memory_of_a_value_is_free_after_its_copy_alone() -> None:
    work: list[Callable[[], object]] = []
    use = account(work.append)
    saved = [use.save(computed(k), "x", True) for k in range(13)]
    assert states(saved) == ["leaving"] * 2 + ["resident"] * 11
    assert CUDA.labels("out") == []
    work.pop(0)()
    assert states(saved) == ["away"] * 2 + ["resident"] * 11
    copies = [w for w in CUDA.log if w.stream == "out"]
    assert [w.label for w in copies] == ["copy", "copy"]
    assert all(w.end == w.end for w in copies), "they have run, and were not only enqueued"


def test_the_host_does_not_wait_for_copies_to_the_device() -> None:
    work: list[Callable[[], object]] = []
    use = account(work.append)
    saved = [use.save(computed(k), "x", True) for k in range(13)]
    work.pop(0)()
    del saved[2:]
    CUDA.costs["copy"] = 100.0
    assert saved[1].want()
    work.pop(0)()
    assert states(saved) == ["away", "resident"]
    before = CUDA.now
    value = saved[1].value()
    total = value.array.sum()
    assert CUDA.now - before < 1.0
    assert total.item() == N / 8
    assert CUDA.now - before >= 100.0


def test_values_that_are_dropped_on_their_way_do_no_harm() -> None:
    work: list[Callable[[], object]] = []
    use = account(work.append)
    saved = [use.save(computed(k), "x", True) for k in range(13)]
    work.pop(0)()
    del saved[2:]
    for s in saved:
        assert s.want()
    work.pop(0)()
    del s
    saved.clear()
    assert (use.memory.held, use.memory.spilled) == (0, 0)
    others = [computed(k) for k in range(4)]
    CUDA.finish()
    assert [float(v.to_host()[0]) for v in others] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "view",
    [lambda t: t, lambda t: t.T, lambda t: t[:, 8:40], lambda t: t.permute(1, 0), lambda t: t[3:, ::2]],
    ids=["plain", "turned", "columns", "permuted", "gaps"],
)
def test_the_layout_is_kept(view: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    value = DeviceArray(view(MEMORY.put(rng.normal(size=(64, 64))).array), MEMORY)
    store = PinnedStore(MEMORY, STREAMS, Bound())
    layout = store.layout_of(value)
    assert layout is not None
    slot = store.reserve(layout.span)
    store.write([(slot, layout, value)])
    (back,) = store.read([(slot, layout, None)])
    assert back.array.stride() == value.array.stride()
    np.testing.assert_array_equal(back.to_host(), value.to_host())


@pytest.mark.parametrize(
    "tensor",
    [torch.zeros(10), torch.zeros(1, 64).expand(64, 64), torch.zeros(64, 640)[:, ::10], torch.zeros(4096) * 1j],
    ids=["small", "repeated", "scattered", "conjugate"],
)
def test_values_that_stay(tensor: Any) -> None:
    assert Layout.of(tensor.conj()) is None


def test_pinned_memory_is_bounded(stream: ThreadPoolExecutor) -> None:
    use = account(stream.submit)
    saved: list[Any] = []
    refused = r"cannot be written to pinned memory of the host: .*limit is 30,000 bytes.*Raise HEADRACE_PINNED_LIMIT"
    with flags.override(PINNED_LIMIT=30_000), pytest.raises(ResourceExhaustedError, match=refused):
        saved.extend(use.save(computed(k), "x", True) for k in range(40))
    assert use.memory.spilled <= 30_000
    saved.clear()
    stream.submit(gc.collect).result(timeout=60)  # after the copies of the stream
    assert use.memory.spilled == 0


def test_the_bound_holds_for_all_stores_of_the_process() -> None:
    bound = Bound()
    first, second = PinnedStore(MEMORY, STREAMS, bound), PinnedStore(MEMORY, STREAMS, bound)
    with flags.override(PINNED_LIMIT=100):
        slot = first.reserve(60)
        with pytest.raises(OSError, match="of which 60 are in use, and a value needs 50"):
            second.reserve(50)
        first.free(slot)
        second.reserve(50)
    assert (first.used, second.used, bound.held) == (0, 50, 50)


def test_no_memory_of_the_device_is_an_error_of_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    work: list[Callable[[], object]] = []
    use = account(work.append)
    saved = [use.save(computed(k), "x", True) for k in range(13)]
    work.pop(0)()
    del saved[2:]

    def full(*args: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    with monkeypatch.context() as patch:
        patch.setattr(STREAMS, "to_device", full)
        assert saved[0].want()
        work.pop(0)()
        assert states(saved) == ["away", "away"], "it is read again on use"
        with pytest.raises(ResourceExhaustedError, match=r"OOM on FAR:0: CUDA out of memory\."):
            saved[0].value()
    assert float(saved[0].value().to_host()[0]) == 0.0


def test_a_part_of_the_limit_is_for_temporary_values() -> None:
    memory = Memory(DEVICE, 1000, None, MEMORY)
    memory.change("variable 'v'", 0, 750)
    refused = r"limit of 1,000 bytes, of which 750 are for values that are kept: variable 'w' asks for 1 bytes"
    with pytest.raises(ResourceExhaustedError, match=refused):
        memory.change("variable 'w'", 0, 1)


def test_an_error_lists_the_holders_on_the_device() -> None:
    class Figures:
        def figures(self) -> tuple[int, int]:
            return 5_000, 7_000

    there = TorchMemory(FAR, 0, STREAMS, Figures())  # type: ignore[arg-type]
    error = there.error_of(torch.cuda.OutOfMemoryError("CUDA out of memory."))
    assert "have 5,000 bytes there, at most 7,000 so far. No session lists its values" in str(error)
    memory = Memory("/device:FAR:0", 10_000, None, there)
    memory.change("variable 'v'", 0, 800)
    assert memory.statistics().allocated_peak == 7_000
    error = there.error_of(torch.cuda.OutOfMemoryError("CUDA out of memory."))
    assert isinstance(error, ResourceExhaustedError)
    assert "sessions with a memory limit hold 800 for variable 'v'" in str(error)
    del memory
    gc.collect()
    assert "'v'" not in str(there.error_of(torch.cuda.OutOfMemoryError("CUDA out of memory.")))


def test_loops_on_the_device_swap() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, (1000,), name="x")
        y = hr.while_loop(lambda i, y: i < 14, lambda i, y: (i + 1, hr.sin(y) * x), (0, x), swap_memory=True)[1]
        (dx,) = hr.gradients(y, [x])
    at = np.linspace(0.1, 0.9, 1000)
    state, slope = at, np.ones(1000)
    for _ in range(14):
        state, slope = np.sin(state) * at, np.cos(state) * slope * at + np.sin(state)
    with hr.Session(graph=g, devices={FAR: 1}, memory_limit=100_000) as session:
        np.testing.assert_allclose(session.run(dx, {x: at}), slope, rtol=1e-9)
        device: Any = session._target.local_devices[f"/job:localhost/replica:0/task:0{DEVICE}"]  # type: ignore[attr-defined]
        device.stream("copy").wait()
        found = session.statistics().memory[f"/job:localhost/replica:0/task:0{DEVICE}"]
        assert found.bytes_out > 50_000
        assert (found.held, found.spilled) == (0, 0)


@pytest.mark.parametrize("seed", range(3))
def test_random_pushes_and_pops(seed: int, stream: ThreadPoolExecutor) -> None:
    rng = np.random.default_rng(seed)
    use = account(stream.submit)
    saved: list[Any] = []
    numbers: list[int] = []
    for k in range(120):
        if rng.random() < (0.8 if k < 60 else 0.2) or not saved:
            number = int(rng.integers(1000))
            value = MEMORY.put(np.full(int(rng.integers(100, 2 * N // 8)), number, np.float64))
            saved.append(use.save(DeviceArray(value.array * 1.0, MEMORY), "x", bool(rng.random() < 0.9)))
            numbers.append(number)
        elif rng.random() < 0.7:
            value = use.pop(saved)
            assert (value.array == numbers.pop()).all().item()
        else:
            at = int(rng.integers(len(saved)))
            assert (use.get(saved[at]).array == numbers[at]).all().item()
        assert use.memory.peak <= ROOM
    value = None
    saved.clear()
    stream.submit(gc.collect).result(timeout=60)  # after the copies of the stream
    assert (use.memory.held, use.memory.spilled) == (0, 0)
    assert use.memory.bytes_out > 0
