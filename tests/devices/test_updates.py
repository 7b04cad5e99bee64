"""Optimizers that change variables of a device in place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.device_arrays import DeviceArray, to_host
from headrace.ops.training.optimizers import RULES
from headrace.resources.variable import DeviceVariable, Variable, change_together

torch = pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
pytestmark = pytest.mark.system

DEVICE = "/device:TORCH:0"
ENGINES = pytest.mark.parametrize("engine", ["auto", "interpret"])
NUMBERS = {
    "lr": 0.1,
    "alpha": 0.1,
    "rho": 0.9,
    "momentum": 0.7,
    "epsilon": 1e-3,
    "beta1_power": 0.81,
    "beta2_power": 0.98,
    "beta1": 0.9,
    "beta2": 0.99,
}


def memory() -> Any:
    from headrace.devices.torch.device import memory

    return memory("TORCH", 0)


# *** Which tensors may be written to ***


def is_private(value: DeviceArray) -> bool:
    return bool(memory().may_change(value, value))


def test_a_computed_tensor_without_other_references_may_be_changed() -> None:
    found = is_private(DeviceArray(torch.ones(3, 4), memory()))  # an assertion would hold references
    assert found
    found = is_private(DeviceArray(torch.empty_strided((3, 4), (1, 3)), memory()))  # this order has no gaps either
    assert found


@pytest.mark.parametrize(
    "held",
    [
        lambda x: x,
        lambda x: x.view(12),
        lambda x: x[1:],
        lambda x: x.detach(),
        lambda x: x.numpy(),
    ],
)
def test_a_tensor_with_other_references_may_not_be_changed(held: Callable[[Any], Any]) -> None:
    value = DeviceArray(torch.ones(3, 4), memory())
    other = held(value.array)
    assert not is_private(value)
    del other


def test_bytes_that_numpy_shares_or_has_shared_may_not_be_changed() -> None:
    assert not is_private(memory().put(np.ones(3)))
    value = DeviceArray(torch.ones(3, 4), memory())
    to_host(value)
    assert not is_private(value)


def test_tensors_with_gaps_and_repeated_elements_may_not_be_changed() -> None:
    for tensor in (torch.ones(3, 4)[:, :2], torch.ones(3, 1).expand(3, 4)):
        assert not is_private(DeviceArray(tensor, memory()))


def test_a_copy_has_the_order_of_its_model() -> None:
    value = DeviceArray(torch.arange(12.0).reshape(3, 4), memory())
    for like in (torch.ones(4, 3).t(), torch.ones(3, 4), torch.ones(3, 1).expand(3, 4)):
        model = DeviceArray(like, memory())
        found = memory().copied(value, model)
        assert found.array.tolist() == value.array.tolist()
        assert found.array.stride() == torch.empty_like(like).stride()
        is_free = is_private(found)
        assert is_free
    other = memory().copied(value, DeviceArray(torch.ones(2), memory()))
    assert other.array.tolist() == value.array.tolist()


# *** Rules ***

FOUND: list[tuple[str, dict[str, bool]]] = [
    ("GradientDescent", {}),
    *[("Momentum", {"use_nesterov": nesterov}) for nesterov in (False, True)],
    *[(name, {"update_slots": updates}) for name in ("Adagrad", "AdagradV2") for updates in (False, True)],
    ("RMSProp", {}),
    ("Adam", {"use_nesterov": False}),
    ("AdamWithAmsgrad", {}),
]


def attributes(flags: Mapping[str, bool], dtype: dtypes.DType) -> dict[str, Any]:
    return {**flags, "T": dtype}


def find(name: str, attrs: Mapping[str, Any], number: Callable[[float], Any] = float) -> Any:
    given = [number(NUMBERS[a]) for a in RULES[name].args if a != "grad"]
    return memory().update(name, attrs, given)


@pytest.mark.parametrize("shape", [(), (0,), (3, 4), (70, 3)])
@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64])
@pytest.mark.parametrize(("name", "flags"), FOUND)
def test_a_rule_computes_its_formula(
    name: str, flags: dict[str, bool], dtype: dtypes.DType, shape: tuple[int, ...]
) -> None:
    rule, attrs, rng = RULES[name], attributes(flags, dtype), np.random.default_rng(0)
    values = [rng.uniform(0.1, 1, shape).astype(dtype.numpy) for _ in rule.slots]
    grad = rng.normal(size=shape).astype(dtype.numpy)
    numbers = {a: dtype.numpy.type(x) for a, x in NUMBERS.items()}
    expected = rule.formula(np, attrs, *values, *[grad if a == "grad" else numbers[a] for a in rule.args])
    for order in ("C", "F"):
        tensors = [torch.tensor(v) for v in values]
        find(name, attrs)(torch.from_numpy(np.array(grad, order=order)), *tensors)
        for tensor, wanted in zip(tensors, expected, strict=True):
            np.testing.assert_allclose(tensor.numpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "flags"), [f for f in FOUND if f[0] not in ("RMSProp", "Adagrad", "AdagradV2")])
def test_numbers_that_the_host_does_not_know(name: str, flags: dict[str, bool]) -> None:
    attrs = attributes(flags, dtypes.float32)
    results = []
    for number in (float, torch.tensor):
        tensors = [torch.full((5,), 0.5) for _ in RULES[name].slots]
        find(name, attrs, number)(torch.linspace(-1, 1, 5), *tensors)
        results.append(torch.stack(tensors).numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)


def test_what_the_library_has_no_function_for() -> None:
    assert find("Adam", attributes({"use_nesterov": True}, dtypes.float32)) is None
    assert find("Adam", attributes({"use_nesterov": False}, dtypes.float16)) is None
    assert find("Momentum", attributes({"use_nesterov": False}, dtypes.complex64)) is None
    assert find("GradientDescent", attributes({}, dtypes.float64), torch.tensor) is None
    assert find("RMSProp", attributes({}, dtypes.float32), torch.tensor) is None
    assert memory().update("Adam", attributes({}, dtypes.float32), [1.0, 0.9, 0.1, 0.5, 1.0, 1e-8]) is None
    assert memory().update("Ftrl", attributes({}, dtypes.float32), []) is None


# *** Variables ***


def variable(value: Any) -> DeviceVariable:
    v = DeviceVariable("v", dtypes.float32, None, memory())
    v.assign(DeviceArray(torch.tensor(value), memory()))
    return v


def doubled(value: DeviceArray) -> None:
    value.array.mul_(2)


def test_a_change_on_the_device_writes_into_a_value_that_only_the_variable_has() -> None:
    v = variable([1.0, 2.0])
    like = DeviceArray(torch.ones(2), memory())
    address = v.read().array.data_ptr()
    change_together([v], doubled, like)
    assert (v.read().array.tolist(), v.read().array.data_ptr()) == ([2.0, 4.0], address)
    held = v.read()
    change_together([v], doubled, like)
    assert (held.array.tolist(), v.read().array.tolist()) == ([2.0, 4.0], [4.0, 8.0])


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_change_on_the_device_that_raises_leaves_the_value(is_shared: bool) -> None:
    v = variable([1.0, 2.0])
    held = v.read() if is_shared else None
    with pytest.raises(ZeroDivisionError):
        change_together([v], lambda x: 1 / 0, DeviceArray(torch.ones(2), memory()))
    assert v.read().array.tolist() == [1.0, 2.0]
    assert held is None or held is v.read()


# *** Steps ***


class Learning:
    """A program that trains a matrix and a scalar."""

    def __init__(self, make: Callable[[float], Any] = hr.train.Adam, device: str = DEVICE) -> None:
        with hr.Graph() as self.graph, hr.device(device):
            self.x = hr.placeholder(hr.float32, [None, 3])
            self.w = hr.Variable(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), name="w")
            self.b = hr.Variable(np.float32(0.5), name="b")
            self.loss = hr.reduce_mean(hr.square(hr.matmul(self.x, self.w) * self.b - 1.0))
            self.step = make(0.1).minimize(self.loss)
            self.init = hr.variables_initializer()
        self.feeds = {self.x: np.arange(6, dtype=np.float32).reshape(2, 3) / 6}

    def session(self, engine: str = "auto") -> hr.Session:
        session = hr.Session(graph=self.graph, devices={"TORCH": 1}, engine=engine)
        session.run(self.init)
        return session

    def address(self, session: hr.Session) -> int:
        """The address of the matrix."""
        resources = session._target.resources
        assert resources is not None
        found = resources.of_kind(Variable)
        (v,) = (v for (_, name), v in found.items() if name == "w")
        return int(v.read().array.data_ptr())


@ENGINES
def test_steps_change_a_variable_where_it_is(engine: str) -> None:
    p = Learning()
    with p.session(engine) as session:
        session.run(p.step, p.feeds)  # the initial value is that of a constant
        address = p.address(session)
        for _ in range(3):
            session.run(p.step, p.feeds)
            assert p.address(session) == address


@ENGINES
def test_what_a_user_fetched_stays(engine: str) -> None:
    p = Learning()
    with p.session(engine) as session:
        kept = []
        for _ in range(3):
            kept.append(session.run([p.w, p.b, p.loss], p.feeds))
            copies = [[x.copy() for x in values] for values in kept]
            session.run(p.step, p.feeds)
            for values, copy in zip(kept, copies, strict=True):
                for x, y in zip(values, copy, strict=True):
                    np.testing.assert_array_equal(x, y)
        assert not np.array_equal(kept[0][0], kept[1][0])


@ENGINES
def test_a_value_that_a_step_reads_before_its_update_stays(engine: str) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        v = hr.Variable(hr.fill([3, 4], 2.0))
        before = v.read_value()
        flat = hr.reshape(v.read_value(), [12])  # a tensor of its own, with the same bytes
        with hr.control_dependencies([before, flat]):
            step = hr.train.SGD(0.5).apply_gradients([(hr.ones([3, 4]), v)])
        with hr.control_dependencies([step]):
            later, flat_later = before * 1.0, flat * 1.0
        init = hr.variables_initializer()
    for fetches in ([before, later, step], [flat, step], [flat_later, step]):
        with hr.Session(graph=g, devices={"TORCH": 1}, engine=engine) as session:
            session.run(init)
            for value in (2.0, 1.5, 1.0):
                for found in session.run(fetches)[:-1]:
                    assert found.ravel().tolist() == [value] * 12


def test_a_constant_stays_what_it_is() -> None:
    p = Learning()
    with p.session() as session:
        wanted = session.run([p.w, p.b])
        for _ in range(2):
            session.run(p.step, p.feeds)
        session.run(p.init)
        for found, value in zip(session.run([p.w, p.b]), wanted, strict=True):
            np.testing.assert_array_equal(found, value)


def test_reads_of_other_threads_see_whole_values() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        v = hr.Variable(hr.zeros([20_000], hr.float32))
        ends = hr.stack([hr.reduce_max(v), hr.reduce_min(v)])
        step = hr.train.SGD(1.0).apply_gradients([(hr.ones([20_000]), v)])
        init = hr.variables_initializer()
    with hr.Session(graph=g, devices={"TORCH": 1}) as session:
        session.run(init)
        found: list[Any] = []

        def read() -> None:
            found.extend(session.run([v, ends]) for _ in range(20))

        threads = [threading.Thread(target=read) for _ in range(2)]
        for t in threads:
            t.start()
        for _ in range(60):
            session.run(step)
        for t in threads:
            t.join(30)
        for value, both in found:
            assert value.min() == value.max()
            assert both[0] == both[1]
        assert len(found) == 40
        assert session.run(v)[0] == -60


def test_a_checkpoint_has_the_values_of_its_step(tmp_path: Path) -> None:
    # the filter of a convolution has another order of elements on the device than in a file
    with hr.Graph() as g, hr.device(DEVICE):
        w = hr.Variable(np.linspace(-1, 1, 36, dtype=np.float32).reshape(3, 3, 1, 4), name="w")
        y = hr.nn.conv2d(hr.ones([2, 5, 5, 1]), w, strides=[1, 1, 1, 1], padding="SAME")
        step = hr.train.Momentum(0.01, 0.9).minimize(hr.reduce_mean(hr.square(y - 1.0)))
        saver = hr.train.Saver()
        init = hr.variables_initializer()
    with hr.Session(graph=g, devices={"TORCH": 1}) as session:
        session.run(init)
        for _ in range(2):
            session.run(step)
        wanted = session.run(w)
        assert wanted.flags.c_contiguous
        path = saver.save(session, str(tmp_path / "saved"))
        assert path is not None
        session.run(step)
        assert not np.array_equal(session.run(w), wanted)
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(w), wanted)
        session.run(step)
        np.testing.assert_array_equal(hr.train.load_checkpoint(path).get_tensor("w"), wanted)


@ENGINES
@pytest.mark.parametrize(
    "make",
    [
        hr.train.SGD,
        lambda r: hr.train.Momentum(r, 0.9),
        lambda r: hr.train.Momentum(r, 0.9, use_nesterov=True),
        hr.train.Adagrad,
        hr.train.RMSProp,
        hr.train.Adam,
    ],
)
def test_training_has_the_results_of_the_cpu(make: Callable[[float], Any], engine: str) -> None:
    found = []
    for device in ("/device:CPU:0", DEVICE):
        p = Learning(make, device)
        with p.session(engine) as session:
            for _ in range(5):
                session.run(p.step, p.feeds)
            found.append(session.run([p.w, p.b]))
    for on_cpu, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, on_cpu, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("make", [hr.train.Adam, lambda r: hr.train.Momentum(r, 0.9)])
def test_training_in_a_far_memory_has_the_results_of_the_cpu(make: Callable[[float], Any]) -> None:
    from tests.devices import simulated_cuda  # it needs PyTorch

    found = []
    for device in ("/device:CPU:0", simulated_cuda.DEVICE):
        p = Learning(make, device)
        with hr.Session(graph=p.graph, devices={simulated_cuda.FAR: 1}) as session:
            session.run(p.init)
            simulated_cuda.CUDA.looks.clear()
            fetched = [session.run([p.w, p.step, p.b], p.feeds)[::2] for _ in range(3)]  # copies overlap with updates
            for _ in range(3):
                session.run(p.step, p.feeds)
            assert simulated_cuda.CUDA.looks == []  # the host waits for no kernel
            found.append([*fetched[0], *fetched[1], *fetched[2], *session.run([p.w, p.b])])
    for on_cpu, there in zip(*found, strict=True):
        np.testing.assert_allclose(there, on_cpu, rtol=2e-5, atol=1e-6)


def test_a_value_whose_copy_to_the_host_was_begun_may_not_be_changed() -> None:
    from tests.devices.simulated_cuda import MEMORY  # it needs PyTorch

    def computed() -> DeviceArray:
        return DeviceArray(MEMORY.put(np.arange(3.0)).array + 1, MEMORY)

    value, like = computed(), computed()
    assert MEMORY.may_change(value, like)
    MEMORY.begin_get(value)
    assert not MEMORY.may_change(value, like)  # a step that was cancelled does not wait for the copy
    assert list(value.to_host()) == [1, 2, 3]
    assert MEMORY.may_change(value, like)


def test_shapes_that_differ_are_errors() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        w = hr.Variable(hr.ones([3, 4]))
        grad, rate = hr.placeholder(hr.float32, None), hr.placeholder(hr.float32, None)
        step = hr.train.Adam(rate).apply_gradients([(grad, w)])
        init = hr.variables_initializer()
    with hr.Session(graph=g, devices={"TORCH": 1}) as session:
        session.run(init)
        for shape in ((4, 3), (), (3, 1)):
            with pytest.raises(hr.errors.InvalidArgumentError, match="do not have the same shape"):
                session.run(step, {grad: np.ones(shape, np.float32), rate: 0.1})
        with pytest.raises(hr.errors.InvalidArgumentError, match="lr is not a scalar"):
            session.run(step, {grad: np.ones((3, 4), np.float32), rate: [0.1]})
        np.testing.assert_array_equal(session.run(w), np.ones((3, 4)))
