"""Placement on devices of types TORCH and GPU, which need not exist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import thresholds
from headrace.ir.kernel import find_kernel, override
from headrace.place import Cluster, Costs, Link, place
from headrace.place.cluster import processors
from tests.place.placing import TASK, lowered, short

NAMES = {type: (f"{TASK}CPU:0", f"{TASK}{type}:0") for type in ("TORCH", "GPU", "SLIM")}


def _kernel(attrs: Any) -> Callable[..., Any]:
    return lambda *x: x[0]


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The types have kernels for these ops, also where PyTorch is not installed."""
    monkeypatch.setattr("headrace.ir.kernel._overrides", dict(_overrides()))
    for type in ("TORCH", "GPU", "SLIM"):
        for op in ("MatMul", "AddV2", "Tanh", "Sum"):
            _overrides().pop((op, type), None)
            override(op, type)(_kernel)


def _overrides() -> dict[tuple[str, str], Any]:
    from headrace.ir import kernel

    return kernel._overrides


def devices(y: Any, cluster: Cluster, costs: Costs | None = None) -> dict[str, str]:
    """Devices by name of the operations that have kernels on the other type."""
    low = lowered([y])
    found = place(low.ops, cluster, costs=costs)
    return {op.name: short(found.of[op]) for op in low.ops if find_kernel(op, "SLIM") is not None}


def two_products(n: int, device: str | None = None) -> Any:
    """Two products of matrices that could run at the same time, and their sum."""
    with hr.Graph():
        x = hr.random.normal((n, n))
        with hr.device(device):
            a = hr.matmul(x, x, name="a")
        b = hr.matmul(x, x, transpose_a=True, name="b")
        return hr.reduce_sum(hr.tanh(a + b))


# *** TORCH ***


@pytest.mark.parametrize("n", [8, 512, 4096])
def test_nothing_moves_to_torch_without_a_request(n: int) -> None:
    """It uses the processor of the CPU, so that no work ends earlier there."""
    assert set(devices(two_products(n), Cluster.local(NAMES["TORCH"])).values()) == {"CPU:0"}


def test_a_type_of_another_package_is_a_processor_of_its_own() -> None:
    found = devices(two_products(1024), Cluster.local(NAMES["SLIM"]))
    assert {found["a"], found["b"]} == {"CPU:0", "SLIM:0"}


def test_a_request_for_torch_is_met() -> None:
    found = devices(two_products(1024, "/device:TORCH:0"), Cluster.local(NAMES["TORCH"]), None)
    assert found["a"] == "TORCH:0"


def test_small_operations_follow_those_on_torch() -> None:
    with hr.Graph():
        with hr.device("/device:TORCH:0"):
            x = hr.random.normal((64, 64))
            x = hr.matmul(x, x, name="product")
        y = hr.reduce_sum(hr.tanh(x))
    found = devices(y, Cluster.local(NAMES["TORCH"]))
    assert set(found.values()) == {"TORCH:0"}


@pytest.mark.parametrize("seconds", [1e-6, 1.0])
def test_figures_of_the_cpu_count_on_torch_until_it_has_its_own(seconds: float) -> None:
    """On a slow machine an operation does not move to the device with an estimate."""
    measured = {(name, "CPU"): seconds for name in ("a", "b")}
    found = devices(two_products(1024), Cluster.local(NAMES["TORCH"]), Costs(measured))
    assert set(found.values()) == {"CPU:0"}


def test_an_operation_that_was_measured_to_be_faster_on_torch_moves() -> None:
    measured = {(name, type): 1.0 if type == "CPU" else 0.1 for name in ("a", "b") for type in ("CPU", "TORCH")}
    found = devices(two_products(1024), Cluster.local(NAMES["TORCH"]), Costs(measured))
    assert (found["a"], found["b"]) == ("TORCH:0", "TORCH:0")


def test_torch_computes_on_the_first_cpu_of_its_task() -> None:
    names = [f"/job:w/replica:0/task:{i}/device:{d}" for i in (0, 1) for d in ("CPU:0", "CPU:1", "TORCH:0")]
    of = processors(Cluster.remote(names, Link(1e-3, 1e9)))
    assert {name: there for name, there in of.items() if name != there} == {names[2]: names[0], names[5]: names[3]}
    assert processors(Cluster.local(names[2:3])) == {names[2]: names[2]}


# *** GPU ***


def test_small_and_middling_operations_stay_on_the_cpu() -> None:
    for n in (8, 256):
        assert set(devices(two_products(n), Cluster.local(NAMES["GPU"])).values()) == {"CPU:0"}


def test_what_is_clearly_better_on_a_gpu_moves_there() -> None:
    found = devices(two_products(4096), Cluster.local(NAMES["GPU"]))
    assert (found["a"], found["b"]) == ("GPU:0", "GPU:0")


def test_what_is_fed_and_fetched_is_copied() -> None:
    """An addition takes less time than the copies of its operands and of its result."""
    with hr.Graph():
        x: Any = hr.placeholder("float32", (1 << 22,))
        y: Any = hr.placeholder("float32", (1 << 22,))
        z: Any = hr.add(x, y)
    low = lowered([z], [x, y])
    found = place(low.ops, Cluster.local(NAMES["GPU"]))
    assert {short(d) for d in found.of.values()} == {"CPU:0"}


# *** figures ***


def test_devices_of_each_type_have_their_figures() -> None:
    cpu, torch, gpu, slim = Cluster.local([f"{TASK}{d}:0" for d in ("CPU", "TORCH", "GPU", "SLIM")]).devices
    assert (torch.flops, torch.bandwidth, torch.overhead) == (cpu.flops, cpu.bandwidth, thresholds.TORCH_OVERHEAD)
    assert (gpu.flops, gpu.overhead) == (thresholds.GPU_FLOPS, thresholds.GPU_OVERHEAD)
    assert (slim.flops, slim.bandwidth, slim.overhead) == (cpu.flops, cpu.bandwidth, cpu.overhead)


def test_tokens_are_copied_in_addition_to_their_way() -> None:
    cpu, torch, gpu, slim = (f"{TASK}{d}:0" for d in ("CPU", "TORCH", "GPU", "SLIM"))
    local = Cluster.local([cpu, torch, gpu, slim])
    assert local.between(cpu, slim) == local.link == Link()
    assert local.between(cpu, gpu) == local.between(gpu, cpu)
    assert local.between(cpu, gpu).latency == pytest.approx(Link().latency + thresholds.GPU_COPY_LATENCY)
    assert local.between(torch, gpu).latency > local.between(cpu, gpu).latency
    size = 1 << 24
    copied = size / thresholds.GPU_COPY_BANDWIDTH + size / thresholds.LINK_BANDWIDTH
    assert local.between(gpu, cpu).seconds(size) == pytest.approx(local.between(gpu, cpu).latency + copied)


def test_between_tasks_tokens_cross_the_network_as_well() -> None:
    names = [f"/job:w/replica:0/task:{i}/device:{d}:0" for i in (0, 1) for d in ("CPU", "GPU")]
    network = Link(1e-3, 1e9)
    cluster = Cluster.remote(names, network)
    assert cluster.between(names[0], names[2]) == network
    assert cluster.between(names[1], names[3]).latency == pytest.approx(1e-3 + 2 * thresholds.GPU_COPY_LATENCY)
    near = cluster.between(names[0], names[1])
    assert near.latency == pytest.approx(Link().latency + thresholds.GPU_COPY_LATENCY)
