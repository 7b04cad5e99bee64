"""The devices of a process, and sessions that ask for devices it does not have.

Devices that this machine lacks are made up: PyTorch's number of CUDA devices is replaced, and its import fails.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.errors import InvalidArgumentError
from headrace.execute import devices
from tests.manners.running import run

pytestmark = pytest.mark.one_engine

TASK = "/job:localhost/replica:0/task:0/device:"


@pytest.fixture
def torch() -> Any:
    """PyTorch; tests with it are skipped where it is not installed."""
    pytest.importorskip("array_api_compat")
    return pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch cannot be imported, and no session has asked for its devices yet."""
    for name in [n for n in sys.modules if n == "torch" or n.startswith(("torch.", "headrace.devices.torch"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "torch" else found(n, *a))
    for type in devices.EXTRAS:
        monkeypatch.delitem(devices.device_types._items, type, raising=False)


def names(device_type: str | None = None) -> list[str]:
    return [d.name.removeprefix(TASK) for d in hr.list_devices(device_type)]


def pinned(device: str) -> tuple[hr.Graph, Any, dict[Any, Any]]:
    """A graph on a device, its result and its feeds."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [2])
        with hr.device(device):
            y = hr.tanh(x, name="y") + 1.0
    return g, y, {x: [1.0, 2.0]}


# *** the list ***


def test_without_pytorch_there_is_a_cpu(absent: None) -> None:
    assert names() == names("CPU") == ["CPU:0"]
    assert names("GPU") == names("TORCH") == names("TPU") == []


def test_gpus_are_those_that_pytorch_finds(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert names() == ["CPU:0", "TORCH:0", "GPU:0", "GPU:1"]
    assert names("GPU") == ["GPU:0", "GPU:1"]
    assert {d.device_type for d in hr.list_devices("TORCH")} == {"TORCH"}
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert names() == ["CPU:0", "TORCH:0"]


@pytest.mark.system
def test_pytorch_is_imported_to_count_gpus_alone() -> None:
    code = """
import sys
import headrace as hr, headrace.v1 as tf
hr.list_devices("CPU"), hr.list_devices("TORCH"), tf.config.list_physical_devices("CPU")
hr.Session(graph=hr.Graph())
tf.Session(graph=tf.Graph(), config=tf.ConfigProto(device_count={"CPU": 2, "GPU": 0}))
assert "torch" not in sys.modules
hr.list_devices()
"""
    assert run(code)[0] == 0


def test_v1_agrees(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (0, 2):
        monkeypatch.setattr(torch.cuda, "device_count", lambda n=n: n)
        assert tf.test.is_gpu_available() is (n > 0)
        assert tf.test.gpu_device_name() == ("/device:GPU:0" if n else "")
        gpus = tf.config.list_physical_devices("GPU")
        assert [d.name for d in gpus] == [f"/physical_device:GPU:{i}" for i in range(n)]
        assert len(tf.config.list_physical_devices()) == 1 + n
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
            assert tf.config.experimental.get_memory_growth(gpu)
            tf.config.set_visible_devices(gpu, "GPU")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: (8, i))
    assert tf.test.is_gpu_available(min_cuda_compute_capability=(8, 1))
    assert not tf.test.is_gpu_available(min_cuda_compute_capability=(9, 0))


def test_the_memory_of_a_gpu_is_that_of_pytorch(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda i: 10 + i)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda i: 20 + i)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", forgotten.append)
    assert tf.config.experimental.get_memory_info("GPU:1") == {"current": 11, "peak": 21}
    assert tf.config.experimental.get_memory_usage("/device:GPU:0") == 10
    tf.config.experimental.reset_memory_stats("GPU:1")
    assert forgotten == [1]
    with pytest.raises(ValueError, match=r"Unrecognized device: 'GPU:2'; there is .*GPU:1"):
        tf.config.experimental.get_memory_info("GPU:2")


# *** sessions that ask for them ***


@pytest.mark.parametrize("type", ["TORCH", "GPU"])
def test_a_session_names_the_missing_package(type: str, absent: None) -> None:
    text = (
        rf"devices of type '{type}' need the package 'torch', which is not installed: pip install 'headrace\[torch\]'"
    )
    with pytest.raises(InvalidArgumentError, match=text):
        hr.Session(graph=hr.Graph(), devices={type: 1})


def test_a_session_says_that_there_is_no_such_gpu(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(InvalidArgumentError, match=r'GPU:0: PyTorch finds 0 CUDA devices.*devices=\{"TORCH": 1\}'):
        hr.Session(graph=hr.Graph(), devices={"GPU": 1})


@pytest.mark.parametrize(("asked", "there", "found"), [(4, 2, 2), (1, 2, 1), (0, 2, 0), (2, 0, 0)])
def test_a_config_has_as_many_gpus_as_there_are(
    asked: int, there: int, found: int, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: there)
    config = tf.ConfigProto(device_count={"GPU": asked})
    with tf.Session(graph=tf.Graph(), config=config) as session:
        assert [d.device_type for d in session.list_devices()] == ["CPU", *["GPU"] * found]


def test_without_pytorch_a_config_has_no_gpus(absent: None) -> None:
    with tf.Session(graph=tf.Graph(), config=tf.ConfigProto(device_count={"GPU": 1})) as session:
        assert [d.device_type for d in session.list_devices()] == ["CPU"]


# *** graphs that ask for them ***


@pytest.mark.parametrize("counts", [{}, {"CPU": 2}])
@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_a_graph_on_a_gpu_runs_on_the_cpu(counts: dict[str, int], engine: str) -> None:
    g, y, feeds = pinned("/gpu:0")
    with hr.Session(graph=g, devices=counts, engine=engine) as session:
        np.testing.assert_allclose(session.run(y, feeds), np.tanh([1.0, 2.0]) + 1, rtol=1e-6)
        moved = dict(session.explain(y, list(feeds)).moved)
    why = "it requests '/device:GPU:0', which this session does not have; no part of the request is met"
    assert moved["y"] == why


def test_part_of_a_request_is_met_on_one_device_too() -> None:
    g, y, feeds = pinned("/cpu:3")
    with hr.Session(graph=g) as session:
        assert "the part '/device:CPU:*' of the request is met" in dict(session.explain(y, list(feeds)).moved)["y"]


@pytest.mark.parametrize("counts", [{}, {"CPU": 2}])
def test_a_session_notes_it_once(counts: dict[str, int], caplog: pytest.LogCaptureFixture) -> None:
    g, y, feeds = pinned("/gpu:0")
    with g.as_default():
        z = y * 2.0
    with caplog.at_level(logging.INFO, "headrace.placement"), hr.Session(graph=g, devices=counts) as session:
        session.run(y, feeds)
        session.run(z, feeds)
        session.run(z, feeds)
    (text,) = [r.getMessage() for r in caplog.records if "which this session does not have" in r.getMessage()]
    assert "requests '/device:GPU:0'" in text
    assert "devices={\"GPU\": 1}, which needs pip install 'headrace[torch]'" in text


def test_nothing_is_noted_of_devices_that_are_there(caplog: pytest.LogCaptureFixture) -> None:
    g, y, feeds = pinned("/cpu:0")
    with caplog.at_level(logging.INFO, "headrace.placement"), hr.Session(graph=g) as session:
        session.run(y, feeds)
        assert session.explain(y, list(feeds)).moved == ()
    assert not [r for r in caplog.records if "does not have" in r.getMessage()]


@pytest.mark.parametrize("counts", [{}, {"CPU": 2}])
def test_without_soft_placement_the_error_says_what_to_do(counts: dict[str, int]) -> None:
    g, y, feeds = pinned("/gpu:1")
    with (
        hr.Session(graph=g, devices=counts, config={"allow_soft_placement": False}) as session,
        pytest.raises(InvalidArgumentError) as e,
    ):
        session.run(y, feeds)
    text = str(e.value)
    assert "it requests '/device:GPU:1'" in text
    assert "CPU" in text.partition("this session has")[2]
    assert "Set allow_soft_placement to run it on an available device, or make the session with" in text
    assert "devices={\"GPU\": 2}, which needs pip install 'headrace[torch]'" in text


def test_explain_lists_the_operations_on_a_device(torch: Any) -> None:
    g, y, feeds = pinned("/device:TORCH:0")
    with hr.Session(graph=g, devices={"TORCH": 1}) as session:
        np.testing.assert_allclose(session.run(y, feeds), np.tanh([1.0, 2.0]) + 1, rtol=1e-6)
        explained = session.explain(y, list(feeds))
    assert explained.engine == "compiled"
    assert explained.moved == ()
    on = dict(explained.devices)
    assert set(on) == {f"{TASK}CPU:0", f"{TASK}TORCH:0"}
    assert {"y", "add"} <= set(on[f"{TASK}TORCH:0"])


def test_a_large_step_stays_on_the_cpu(torch: Any) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [1024, 1024])
        y = hr.reduce_sum(hr.matmul(x, x) + hr.matmul(x, x, transpose_a=True))
    with hr.Session(graph=g, devices={"TORCH": 1}) as session:
        explained = session.explain(y, [x])
    assert (explained.engine, explained.devices) == ("compiled", ())
