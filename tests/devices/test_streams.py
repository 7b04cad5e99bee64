"""Copies on streams of their own, where each missing wait gives garbage (`simulated_cuda`)."""

from __future__ import annotations

import math
import types
from typing import Any

import numpy as np
import pytest

from headrace import flags
from headrace.device_arrays import DeviceArray, is_host, to_host
from headrace.errors import CancelledError, DeadlineExceededError, InvalidArgumentError

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
pytestmark = pytest.mark.one_engine

from tests.devices.simulated_cuda import CUDA, IN, MEMORY, OUT, STREAMS  # noqa: E402  # it needs PyTorch

X = np.arange(4.0)


@pytest.fixture(autouse=True)
def _nothing_enqueued() -> None:
    CUDA.reset()


def sums(value: DeviceArray) -> DeviceArray:
    """A value that the device computes of another one."""
    return DeviceArray(torch.sin(value.array) + value.array, MEMORY)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8", "float16", "float32", "complex64"])
def test_values_go_to_the_device_and_back(dtype: str) -> None:
    array = X.astype(dtype)
    value = MEMORY.put(array)
    assert not is_host(value)
    assert (value.dtype, value.shape, value.nbytes) == (array.dtype, (4,), array.nbytes)
    np.testing.assert_array_equal(to_host(value), array)


def test_compute_waits_for_a_copy_at_its_first_read() -> None:
    first, second = MEMORY.put(X), MEMORY.put(X)
    CUDA.costs["copy"] = 10.0
    late = MEMORY.put(X)
    made = sums(first), sums(second), sums(late)
    CUDA.finish()
    np.testing.assert_array_equal(to_host(made[2]), np.sin(X) + X)
    copies = [w for w in CUDA.log if w.stream == "in"]
    kernels = [w for w in CUDA.log if w.label == "sin"]
    assert kernels[0].start < copies[2].start < kernels[1].end, "kernels run during the last copy"
    assert kernels[2].start >= copies[2].end


def test_a_copy_to_the_host_overlaps_with_what_follows_it() -> None:
    CUDA.costs["copy"] = 10.0
    value = MEMORY.put(X)
    made = sums(value)
    MEMORY.begin_get(made)
    following = sums(made)
    np.testing.assert_array_equal(to_host(made), np.sin(X) + X)
    CUDA.finish()
    out = next(w for w in CUDA.log if w.stream == "out")
    later = CUDA.log[-1]
    assert following.array is not None
    assert (later.label, later.stream) == ("add", "compute")
    assert out.start < later.start < later.end < out.end


def test_a_copy_begins_once() -> None:
    value = sums(MEMORY.put(X))
    MEMORY.begin_get(value)
    MEMORY.begin_get(value)
    to_host(value)
    assert CUDA.labels("out") == ["copy"]
    to_host(value)
    assert CUDA.labels("out") == ["copy", "copy"], "the first one was read"


def test_the_host_may_change_an_array_that_is_copied() -> None:
    array = X.copy()
    value = MEMORY.put(array)
    array[:] = -1.0
    np.testing.assert_array_equal(to_host(value), X)


def test_a_tensor_may_be_freed_while_another_stream_reads_it() -> None:
    value = sums(MEMORY.put(X))
    copy = STREAMS.to_host(value.array)
    del value
    CUDA.default.synchronize()
    np.testing.assert_array_equal(copy.wait().numpy(), np.sin(X) + X)


def test_a_copied_tensor_may_be_freed_while_compute_reads_it() -> None:
    value = MEMORY.put(X)
    made = sums(value)
    del value
    IN.synchronize()  # the stream "in" would use its memory again
    np.testing.assert_array_equal(to_host(made), np.sin(X) + X)


def test_conjugates_are_resolved_by_the_device() -> None:
    z = (X + 1j * X).astype(np.complex64)
    value = DeviceArray(MEMORY.put(z).array.conj(), MEMORY)
    np.testing.assert_array_equal(to_host(value), z.conj())


def test_a_wait_ends_with_its_step() -> None:
    class Stopped:
        def query(self) -> bool:
            return False

    copy = STREAMS.to_host(MEMORY.put(X).array)
    copy.ended = Stopped()

    def look() -> None:
        raise CancelledError("the step was cancelled")

    with pytest.raises(CancelledError):
        copy.wait(look)
    with (
        flags.override(WAIT_LIMIT=1e-6),
        pytest.raises(DeadlineExceededError, match=r"not finished a copy to the host .* HEADRACE_WAIT_LIMIT"),
    ):
        copy.wait()


def test_errors_of_the_device_are_those_of_the_runtime() -> None:
    class Failed:
        def query(self) -> bool:
            raise RuntimeError("CUDA error: device-side assert triggered")

    value = sums(MEMORY.put(X))
    MEMORY.begin_get(value)
    value.departure.ended = Failed()
    with pytest.raises(InvalidArgumentError, match="device-side assert"):
        to_host(value)


def test_timed_copies_have_times() -> None:
    CUDA.costs["copy"] = 3.0
    step = types.SimpleNamespace(id=1, listener=None, cancelled=None, look=lambda doing: None)
    trace = STREAMS.trace("a device", step)
    start = STREAMS.mark(CUDA.default, is_timed=True)
    copy = STREAMS.to_device(torch.from_numpy(X))
    assert trace.copies == [copy]
    CUDA.finish()
    assert copy.began is not None
    assert copy.began.elapsed_time(copy.ended) == 3.0
    assert start.elapsed_time(copy.ended) >= 3.0


# *** the simulation ***


def far(array: np.ndarray) -> Any:
    return MEMORY.put(array).array


def test_missing_waits_show() -> None:
    source = far(X)
    made = source + 1.0
    with CUDA.stream(OUT):
        pinned = torch.empty_like(made, device="cpu", pin_memory=True)
        pinned.copy_(made, non_blocking=True)
    OUT.synchronize()
    assert all(map(math.isnan, pinned.tolist())), "the stream did not wait for compute"
    copy = STREAMS.to_host(made)
    assert all(map(math.isnan, copy.tensor.tolist())), "the host did not wait for the copy"
    arriving = STREAMS.to_device(torch.from_numpy(X))
    made = arriving.tensor + 1.0
    CUDA.default.synchronize()
    assert all(map(math.isnan, made.elements.tolist())), "compute did not wait for the copy"


def test_freed_memory_shows() -> None:
    made = far(X) + 1.0
    with CUDA.stream(OUT):
        OUT.wait_event(CUDA.default.record_event())
        pinned = torch.empty_like(made, device="cpu", pin_memory=True)
        pinned.copy_(made, non_blocking=True)
    del made
    CUDA.default.synchronize()
    OUT.synchronize()
    assert all(map(math.isnan, pinned.tolist())), "without record_stream the allocator uses the memory again"


def test_operations_of_all_kinds_have_the_results_of_the_processor() -> None:
    def compute(x: Any) -> Any:
        view = x.reshape(2, 2).T
        changed = view.clone()
        changed[0] += 5.0
        changed.mul_(2.0)
        parts = torch.split(changed, 1)
        found = torch.nonzero(view > 1.0)
        largest, where = torch.max(changed, 0)
        total = torch.zeros(2, 2, dtype=x.dtype).index_add_(0, torch.tensor([1, 0]), changed)
        if float(changed.sum()) > 0.0:
            largest = largest + 1.0
        return [view, changed, *parts, found, largest, where, total, torch.add(x, x, out=torch.empty_like(x))]

    want = compute(torch.from_numpy(X))
    got = compute(far(X))
    CUDA.finish()
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    assert "nonzero" in CUDA.looks
    assert "_local_scalar_dense" in CUDA.looks
