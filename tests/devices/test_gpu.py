"""The device type GPU, where PyTorch finds a CUDA device; elsewhere the tests skip."""

from __future__ import annotations

import random

import numpy as np
import pytest

import headrace as hr
from headrace import flags, notices, step_events
from tests.devices.corpus import OnDevice, corpus, declared_programs, replay

if not hr.list_devices("GPU"):
    pytest.skip("PyTorch finds no CUDA device on this machine", allow_module_level=True)

pytestmark = [pytest.mark.system, pytest.mark.one_engine]

DEVICE = "/device:GPU:0"
ENGINES = pytest.mark.parametrize("engine", ["auto", "interpret"])


@ENGINES
def test_training_has_the_results_of_the_cpu(engine: str) -> None:
    found = []
    for device in ("/device:CPU:0", DEVICE):
        rng = np.random.default_rng(0)
        with hr.Graph() as g, hr.device(device):
            x = hr.constant(rng.normal(size=(8, 6, 6, 3)).astype("f"))
            w = hr.Variable(rng.normal(size=(3, 3, 3, 4)).astype("f"))
            y = hr.nn.max_pool(hr.nn.relu(hr.nn.conv2d(x, w, 1, "SAME")), 2, 2, "SAME")
            step = hr.train.Adam(0.1).minimize(hr.reduce_mean(hr.square(y)))
            init = hr.variables_initializer()
        with hr.Session(graph=g, devices={"GPU": 1}, engine=engine) as session:
            session.run(init)
            for _ in range(5):
                session.run(step)
            found.append(session.run(w))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)


@ENGINES
def test_loops_have_the_results_of_the_cpu(engine: str) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [3])
        with hr.device(DEVICE):
            y = hr.while_loop(lambda i, a: i < 10, lambda i, a: (i + 1, hr.sin(a) + x), [0, x])[1]
            (dx,) = hr.gradients(y, [x])
    at = {x: np.array([0.1, 0.5, -2.0], np.float32)}
    with hr.Session(graph=g) as session:
        want = session.run([y, dx], at)
    with hr.Session(graph=g, devices={"GPU": 1}, engine=engine) as session:
        got = session.run([y, dx], at)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_cuda_graphs_have_the_results_of_single_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float32, [64, 64])
        body = lambda i, a: (i + 1, hr.tanh(hr.matmul(a, x) * 0.1 + x) - hr.sin(a) * hr.cos(a + x) + hr.exp(-a * a))
        y = hr.while_loop(lambda i, a: i < 20, body, [0, x])[1]
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(64, 64)).astype("f") for _ in range(5)]
    refusals: list[str] = []
    monkeypatch.setattr(notices, "inform", lambda stage, lines: refusals.extend(lines))
    found = []
    for flag in ("on", "off"):
        with flags.override(CUDA_GRAPHS=flag), hr.Session(graph=g, devices={"GPU": 1}, engine="compiled") as session:
            found.append([session.run(y, {x: v}) for v in values])
    for a, b in zip(*found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert refusals == []


@pytest.mark.parametrize("start", [0.5, 100.0])
def test_predicates_of_the_device_have_the_results_of_the_cpu(start: float) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float32, [1000])
        body = lambda a, n: (a * 1.01 + 0.01, hr.sin(n) + hr.cos(a))
        found = hr.while_loop(lambda a, n: hr.reduce_max(a) < 10.0, body, [x, x], maximum_iterations=500)
    at = {x: np.linspace(0.0, start, 1000, dtype=np.float32)}
    with hr.Session(graph=g) as session:
        want = session.run(found, at)
    with hr.Session(graph=g, devices={"GPU": 1}) as session:
        for _ in range(3):
            for a, b in zip(session.run(found, at), want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_copies_that_overlap_have_the_values_that_were_copied() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float32, [256, 256])
        values = [x]
        for _ in range(20):
            values.append(hr.matmul(values[-1], x) * 0.05)
    fed = np.random.default_rng(0).normal(size=(256, 256)).astype("f")
    with hr.Session(graph=g, devices={"GPU": 1}) as session:
        first = session.run(values, {x: fed})
        for _ in range(20):
            given = fed.copy()
            later = session.run(values, {x: given})
            given[:] = 0.0
            for a, b in zip(first, later, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_trace_has_the_copies_of_the_device() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float32, [64, 64])
        y = hr.matmul(x, x)
    events: list[step_events.Event] = []
    with hr.Session(graph=g, devices={"GPU": 1}) as session:
        at = {x: np.zeros((64, 64), np.float32)}
        session.run(y, at, options=hr.RunOptions(listener=events.append))
    spans = [e for e in events if isinstance(e, step_events.StreamSpan) and e.stream.startswith("copy ")]
    assert {s.stream for s in spans} == {"copy in", "copy out"}
    assert all(s.time < s.end for s in spans)


def test_recorded_programs_have_their_results() -> None:
    hr.Session(graph=hr.Graph(), devices={"GPU": 1}).close()
    chosen = random.Random(0).sample(declared_programs(), 100)
    failed = []
    for program in chosen:
        try:
            replay.execute(corpus.load(program), OnDevice(type="GPU"), replay.TOL)
        except Exception as e:
            failed.append(f"{program}: {e}")
    assert len(failed) <= 5, "\n".join(failed)


def test_loops_swap_to_pinned_memory() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float32, (1 << 18,))
        y = hr.while_loop(lambda i, y: i < 100, lambda i, y: (i + 1, hr.sin(y) * x), (0, x), swap_memory=True)[1]
        (dx,) = hr.gradients(y, [x])
    at = {x: np.linspace(0.1, 0.9, 1 << 18).astype("f")}
    with hr.Session(graph=g, devices={"GPU": 1}) as session:
        want = session.run(dx, at)
    with hr.Session(graph=g, devices={"GPU": 1}, memory_limit=64 << 20) as session:
        np.testing.assert_array_equal(session.run(dx, at), want)
        found = session.statistics().memory[f"/job:localhost/replica:0/task:0{DEVICE}"]
    assert found.bytes_out > 100 << 20
    assert found.peak <= 64 << 20
    assert found.allocated_peak > 0


def test_the_limit_bounds_temporary_values() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float32, ())
        y = hr.reduce_sum(hr.sin(hr.fill([64 << 20], x)))
    refused = pytest.raises(hr.errors.ResourceExhaustedError, match=r"OOM on GPU:0.*All tensors of this process")
    with hr.Session(graph=g, devices={"GPU": 1}, memory_limit=16 << 20) as session, refused:
        session.run(y, {x: 0.5})
    with hr.Session(graph=g, devices={"GPU": 1}) as session:
        np.testing.assert_allclose(session.run(y, {x: 0.5}), (64 << 20) * np.sin(0.5), rtol=1e-3)
