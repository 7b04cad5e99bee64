"""CUDA graphs of segments, on a simulation of them."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, notices, thresholds

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")

from headrace.devices.torch import device  # noqa: E402
from headrace.devices.torch.graphs import Graphs, Replayed  # noqa: E402
from tests.devices.simulated_graphs import Cuda  # noqa: E402

pytestmark = [pytest.mark.system, pytest.mark.one_engine]

DEVICE = "/device:TORCH:0"
MANY = 100  # kernels; more than the copies of any test


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """A simulation, which the device TORCH has as well."""
    made = Cuda()
    monkeypatch.setattr(device.memory("TORCH", 0), "_graphs", Graphs(made, torch.device("cpu")))
    return made


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(notices, "inform", lambda stage, lines: found.extend(lines))
    return found


def replayed(cuda: Cuda, f: Callable[[list[Any]], Any], kernels: int = MANY) -> Callable[..., Any]:
    made = Replayed(f, Graphs(cuda, torch.device("cpu")), "f", kernels)
    return lambda *values: made(list(values))


def tensor(*elements: float) -> Any:
    return torch.tensor(elements)


def product(values: list[Any]) -> Any:
    a, b = values
    values.clear()
    return a * b + 1.0


def test_calls_of_one_form_are_captured_and_replayed(cuda: Cuda) -> None:
    f = replayed(cuda, product)
    for k in range(6):
        assert f(tensor(1.0, k), tensor(2.0, 3.0)).tolist() == [3.0, 3.0 * k + 1.0]
    assert (cuda.captures, cuda.replays) == (1, 7 - thresholds.GRAPH_CALLS)


def test_results_outlive_later_replays(cuda: Cuda) -> None:
    f = replayed(cuda, lambda values: (values[0] + 1.0, values[0] * values[1]))
    results = [f(tensor(float(k)), tensor(2.0)) for k in range(6)]
    assert [(a.item(), b.item()) for a, b in results] == [(k + 1.0, 2.0 * k) for k in range(6)]


def test_an_input_that_stays_the_same_tensor_is_read_where_it_is(cuda: Cuda) -> None:
    f, same = replayed(cuda, product), tensor(2.0)
    for k in range(6):
        assert f(same, tensor(float(k))).item() == 2.0 * k + 1.0
    same.fill_(5.0)
    assert f(same, tensor(3.0)).item() == 16.0
    assert cuda.captures == 1


def test_another_tensor_in_place_of_the_same_one_is_copied(cuda: Cuda) -> None:
    f, same = replayed(cuda, product), tensor(2.0)
    for k in range(5):
        f(same, tensor(float(k)))
    del same
    gc.collect()
    for k in range(5):
        assert f(tensor(7.0 + k), tensor(3.0)).item() == 3.0 * (7.0 + k) + 1.0
    assert (cuda.captures, cuda.replays) == (2, 8)


def test_a_result_may_be_an_input_or_a_view_of_it(cuda: Cuda) -> None:
    f = replayed(cuda, lambda values: (values[0], values[0][1:], values[1]))
    same = tensor(5.0)
    results = [f(tensor(1.0, k), same) for k in range(6)]
    assert [(a.tolist(), b.tolist(), c.item()) for a, b, c in results] == [([1.0, k], [k], 5.0) for k in range(6)]


def test_each_form_has_a_graph_up_to_a_number(cuda: Cuda) -> None:
    f = replayed(cuda, product)
    for n in range(1, thresholds.GRAPHS + 3):
        for _ in range(4):
            assert f(torch.full((n,), 2.0), torch.full((n,), 3.0)).tolist() == [7.0] * n
    assert cuda.captures == thresholds.GRAPHS


def test_forms_that_vary_in_each_call_are_not_kept(cuda: Cuda) -> None:
    made = Replayed(product, Graphs(cuda, torch.device("cpu")), "f", MANY)
    for n in range(2 * thresholds.GRAPH_FORMS):
        made([torch.ones(n), torch.ones(n)])
    assert len(made._forms) <= thresholds.GRAPH_FORMS
    assert cuda.captures == 0


def test_values_on_the_host_are_part_of_the_form(cuda: Cuda) -> None:
    f = replayed(cuda, lambda values: torch.roll(values[0], int(values[1])) + 0.0)
    for k in range(12):
        want = np.roll([1.0, 2.0, 3.0], k % 2).tolist()
        assert f(tensor(1.0, 2.0, 3.0), np.int32(k % 2)).tolist() == want
    assert cuda.captures == 2


def test_large_values_on_the_host_prevent_a_capture(cuda: Cuda) -> None:
    f = replayed(cuda, lambda values: values[0] + float(values[1].sum()))
    for n in (thresholds.GRAPH_HOST_BYTES + 1,) * 5:
        assert f(tensor(1.0), np.ones(n, np.int8)).item() == n + 1.0
    assert cuda.captures == 0


def test_reads_of_elements_are_not_captured(cuda: Cuda, records: list[str]) -> None:
    f = replayed(cuda, lambda values: values[0] * values[0].sum().item())
    for k in range(6):
        assert f(tensor(1.0, k)).tolist() == [1.0 + k, k * (1.0 + k)]
    assert (cuda.captures, cuda.replays) == (0, 0)
    assert len(records) == 1
    assert "the segment of 'f' runs without CUDA graphs: operation failed due to a previous error" in records[0]


def test_a_segment_of_few_kernels_is_not_replayed(cuda: Cuda, records: list[str]) -> None:
    f = replayed(cuda, product, 4)
    for k in range(6):
        assert f(tensor(1.0), tensor(float(k))).item() == k + 1.0
    assert cuda.replays == 0
    assert records == ["the segment of 'f' runs without CUDA graphs: a replay has 3 copies, in place of 4 kernels"]


def test_errors_of_the_function_are_no_failures_of_a_capture(cuda: Cuda, records: list[str]) -> None:
    f = replayed(cuda, lambda values: torch.reshape(values[0], (2,)) + 1.0)
    for _ in range(6):
        with pytest.raises(RuntimeError, match="shape"):
            f(tensor(1.0, 2.0, 3.0))
    assert f(tensor(1.0, 2.0)).tolist() == [2.0, 3.0]
    assert records == []


def test_another_stream_than_the_default_one_has_no_graph(cuda: Cuda) -> None:
    f = replayed(cuda, product)
    with cuda.stream(cuda.Stream(torch.device("cpu"))):
        for k in range(6):
            assert f(tensor(2.0), tensor(float(k))).item() == 2.0 * k + 1.0
    assert cuda.captures == 0


def test_threads_do_not_write_into_the_buffers_of_one_another(cuda: Cuda) -> None:
    f = replayed(cuda, product)
    for k in range(4):
        f(tensor(2.0), tensor(float(k)))
    results: list[float] = []
    other = threading.Thread(target=lambda: results.append(f(tensor(3.0), tensor(5.0)).item()))

    def disturb() -> None:
        cuda.before_replay = lambda: None
        other.start()
        other.join(0.05)  # it waits for the lock, and so longer

    cuda.before_replay = disturb
    assert f(tensor(2.0), tensor(7.0)).item() == 15.0
    other.join(30)
    assert results == [16.0]


def steps(cuda: Cuda, build: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Results of runs with graphs, and those without."""
    rng = np.random.default_rng(0)
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float32, [4, 4], name="x")
        y = build(x)
        init = hr.variables_initializer()
    values = [rng.normal(size=(4, 4)).astype("f") for _ in range(5)]
    found = []
    for flag in ("on", "off"):
        with flags.override(CUDA_GRAPHS=flag), hr.Session(graph=g, devices={"TORCH": 1}, engine="compiled") as session:
            session.run(init)
            before = cuda.replays
            found.append([session.run(y, {x: v}) for v in values])
            assert (cuda.replays > before) == (flag == "on")
    return zip(*found, strict=True)


def check(cuda: Cuda, build: Callable[[Any], Any]) -> None:
    for with_graphs, without in steps(cuda, build):
        for a, b in zip(with_graphs, without, strict=True):
            np.testing.assert_array_equal(a, b)
    assert cuda.replays > cuda.captures


def test_loops_and_conditionals_have_the_same_results(cuda: Cuda) -> None:
    def build(x: Any) -> Any:
        def body(i: Any, a: Any) -> Any:
            b = hr.tanh(hr.matmul(a, x) + x) * 0.5 + hr.sin(a) * hr.cos(x)
            return i + 1, hr.cond(hr.equal(i % 2, 0), lambda: b, lambda: hr.exp(-b * b) - hr.sin(b) * hr.cos(b) + x)

        return hr.while_loop(lambda i, a: i < 6, body, [0, x])

    check(cuda, build)


def test_training_has_the_same_results(cuda: Cuda) -> None:
    def build(x: Any) -> Any:
        v = hr.Variable(np.eye(4, dtype="f") * 0.5)
        y = hr.tanh(hr.matmul(hr.sin(hr.matmul(x, v)) * hr.cos(x), v))
        loss = hr.reduce_sum(y * y)
        with hr.control_dependencies([v.assign_add(-0.01 * hr.gradients(loss, [v])[0])]):
            return loss, v.read_value()

    check(cuda, build)
