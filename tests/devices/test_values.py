"""Values in the memory of a device: fetched, watched, traced, checked and kept by variables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, step_events
from headrace.device_arrays import DeviceArray, is_host, to_host

pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
pytestmark = pytest.mark.system

DEVICE = "/device:TORCH:0"
ENGINES = pytest.mark.parametrize("engine", ["auto", "interpret"])


def memory() -> Any:
    from headrace.devices.torch.device import memory

    return memory("TORCH", 0)


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "uint8", "float16", "float32", "float64", "complex64"])
def test_values_go_to_the_memory_and_back(dtype: str) -> None:
    for array in (np.arange(6).reshape(2, 3).astype(dtype), np.arange(6).astype(dtype)[::-2], np.array(1, dtype)[()]):
        value = memory().put(array)
        assert isinstance(value, DeviceArray)
        assert not is_host(value)
        assert (value.dtype, value.shape, value.ndim, value.size) == (array.dtype, array.shape, array.ndim, array.size)
        assert value.nbytes == array.nbytes
        np.testing.assert_array_equal(to_host(value), array)


def test_bfloat16_goes_to_the_memory_and_back() -> None:
    array = np.array([1.5, -2.0, np.inf]).astype(hr.bfloat16.numpy)
    assert to_host(memory().put(array)).tolist() == array.tolist()


def test_dtypes_that_tensors_lack_stay_on_the_host() -> None:
    for value in (np.array([b"a"], object), np.array([1], np.uint32), [1]):
        assert memory().put(value) is value


def test_elements_are_not_read_implicitly() -> None:
    value = memory().put(np.float32(1.0))
    for use in (float, bool, np.asarray, lambda v: v[0], iter, len):
        with pytest.raises(TypeError, match=r"<float32 array of shape \(\) on TORCH:0> is in the memory of its device"):
            use(value)
    with pytest.raises(TypeError):
        np.float32(1.0) + value


def model() -> tuple[hr.Graph, Any, Any, Any]:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float32, [3], name="x")
        v = hr.Variable(np.ones(3, np.float32), name="v")
        y = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, hr.tanh(a * v, name="h")), [0, x])[1]
    return g, x, v, y


@ENGINES
def test_a_step_has_the_values_of_the_cpu(engine: str) -> None:
    g, x, v, y = model()
    with g:
        (dx,) = hr.gradients(y, [x])
        change = v.assign_add(y)
    at = {x: np.array([0.1, -0.5, 2.0], np.float32)}
    results = []
    for devices in ({}, {"TORCH": 1}):
        with hr.Session(graph=g, devices=devices, engine=engine) as session:
            session.run(v.initializer)
            first = session.run([y, dx], at)
            session.run(change, at)
            results.append([*first, session.run(v)])
    for a, b in zip(*results, strict=True):
        assert isinstance(b, np.ndarray)
        np.testing.assert_allclose(b, a, rtol=1e-6)


def test_watched_and_traced_values_are_arrays_of_numpy() -> None:
    g, x, v, y = model()
    events: list[step_events.Event] = []
    with hr.Session(graph=g, devices={"TORCH": 1}) as session:
        session.run(v.initializer)
        at = {x: np.array([0.1, -0.5, 2.0], np.float32)}
        _, watched = session.run(y, at, watch=hr.watch("while/h"))
        session.run(y, at, options=hr.RunOptions(listener=events.append))
    assert [r.iteration for r in watched["while/h"]] == [0, 1, 2]
    want = np.tanh(at[x])
    np.testing.assert_allclose(watched["while/h"][0].value, want, rtol=1e-6)
    assert any(isinstance(e, step_events.NodeEnd) for e in events)


@ENGINES
def test_checks_of_outputs_take_them(engine: str) -> None:
    g, x, v, y = model()
    with flags.override(VERIFY=2), hr.Session(graph=g, devices={"TORCH": 1}, engine=engine) as session:
        session.run(v.initializer)
        assert session.run(y, {x: np.zeros(3, np.float32)}).tolist() == [0.0, 0.0, 0.0]


@ENGINES
def test_errors_of_pytorch_are_those_of_the_cpu(engine: str) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x, y = (hr.placeholder(hr.float32, None, name=n) for n in "xy")
        z = hr.add(x, y, name="z")
    with hr.Session(graph=g, devices={"TORCH": 1}, engine=engine) as session:
        with pytest.raises(hr.errors.InvalidArgumentError, match="'z'"):
            session.run(z, {x: np.zeros(2), y: np.zeros(3)})
        assert session.run(z, {x: np.zeros(2), y: np.ones(2)}).tolist() == [1.0, 1.0]


@ENGINES
def test_optimizers_have_the_results_of_the_cpu(engine: str) -> None:
    for make in (hr.train.SGD, hr.train.Adam, hr.train.Adagrad, hr.train.RMSProp, lambda r: hr.train.Momentum(r, 0.9)):
        found = []
        for device in ("/device:CPU:0", DEVICE):
            with hr.Graph() as g, hr.device(device):
                v = hr.Variable(np.array([1.0, -2.0, 0.5], np.float32))
                step = make(0.1).minimize(hr.reduce_sum(hr.square(v - 3.0)))
                init = hr.variables_initializer()
            with hr.Session(graph=g, devices={"TORCH": 1}, engine=engine) as session:
                session.run(init)
                for _ in range(5):
                    session.run(step)
                found.append(session.run(v))
        np.testing.assert_allclose(found[1], found[0], rtol=2e-6)
