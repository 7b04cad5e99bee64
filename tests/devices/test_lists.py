"""Lists with elements in the memory of a device, in joined steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.device_arrays import Elements, to_host
from headrace.resources.memory import Memory
from headrace.resources.persistent import Vector
from headrace.resources.step_memory import StepMemory
from headrace.resources.tensor_list import TensorList
from headrace.resources.values import arrays_of
from tests.devices.fake import DEVICE, FAKE, MEMORY

X = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5], [0.0, 1.0, 3.0], [2.0, -2.0, 0.125]])
Build = Callable[[Any], Any]


def run(build: Build) -> tuple[list[tuple[str, tuple[int, ...]]], str]:
    """The copies of a program on the device, and its source.

    Its results are those of the CPU and of the token machine.
    """
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [4, 3], name="x")
        with hr.device(DEVICE):
            y = build(x)
    with hr.Session(graph=g) as session:
        want = session.run(y, {x: X})
    with hr.Session(graph=g, devices={FAKE: 1}, engine="interpret") as session:
        _same(session.run(y, {x: X}), want)
    with hr.Session(graph=g, devices={FAKE: 1}) as session:
        session.run(y, {x: X})
        MEMORY.copies.clear()
        _same(session.run(y, {x: X}), want)
        copies = list(MEMORY.copies)
        explained = session.explain(y, [x])
    assert explained.engine == "compiled"
    return copies, str(explained)


def _same(got: Any, want: Any) -> None:
    for a, b in zip(hr.nest.flatten(got), hr.nest.flatten(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def in_loops(source: str) -> list[str]:
    """The copies in the loops of a source."""
    return [line for line in source.splitlines() if re.match(r"\s{2,}.*\((_ToHost|_ToDevice)\)", line)]


def steps(f: Callable[[Any, Any], Any], x: Any, n: Any = 4) -> Any:
    """The last value of a loop, from the first row of `x`."""
    return hr.while_loop(lambda i, a: i < n, lambda i, a: (i + 1, f(i, a)), [0, x[0]])[1]


def only_ends(build: Build) -> None:
    """Checks that a program copies its feed and its fetches alone."""
    copies, source = run(build)
    assert in_loops(source) == []
    assert [c for c in copies if c[0] == "put" and len(c[1]) == 2] == [("put", (4, 3))]


# *** gradients of loops ***


def test_the_gradient_of_a_loop_keeps_its_values_on_the_device() -> None:
    def build(x: Any) -> Any:
        y = steps(lambda i, a: hr.sin(a) * hr.tanh(a), x)
        return [y, *hr.gradients(y, [x])]

    only_ends(build)


def test_gradients_of_second_order() -> None:
    def build(x: Any) -> Any:
        (slope,) = hr.gradients(steps(lambda i, a: hr.sin(a) * a, x), [x])
        return hr.gradients(slope, [x])

    only_ends(build)


def test_lists_in_lists() -> None:
    def build(x: Any) -> Any:
        def inner(i: Any, a: Any) -> Any:
            return hr.while_loop(lambda k, b: k < i, lambda k, b: (k + 1, hr.sin(b) * b), [0, a])[1]

        y = steps(inner, x)
        return [y, *hr.gradients(y, [x])]

    only_ends(build)


def test_a_conditional_in_a_loop() -> None:
    def build(x: Any) -> Any:
        y = steps(lambda i, a: hr.cond(i % 2 < 1, lambda: hr.sin(a) * a, lambda: hr.tanh(a)), x)
        return [y, *hr.gradients(y, [x])]

    only_ends(build)


# *** arrays ***


def rnn(x: Any) -> tuple[Any, Any]:
    """The outputs of a recurrent network over the rows of `x`, and its last state."""
    rows = hr.TensorArray(hr.float64, 4, element_shape=[3]).unstack(x)
    out = hr.TensorArray(hr.float64, 4, element_shape=[3])

    def body(i: Any, state: Any, out: Any) -> Any:
        state = hr.tanh(state + rows.read(i))
        return i + 1, state, out.write(i, state * 2.0)

    _, state, out = hr.while_loop(lambda i, *_: i < 4, body, [0, x[0], out])
    return out.stack(), state


def test_a_recurrent_network_and_its_gradient() -> None:
    def build(x: Any) -> Any:
        outputs, state = rnn(x)
        return [outputs, *hr.gradients([outputs, state], [x])]

    only_ends(build)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: hr.map_fn(lambda row: hr.sin(row) + 1.0, x),
        lambda x: hr.scan(lambda a, row: hr.tanh(a + row), x),
        lambda x: hr.foldl(lambda a, row: a * hr.sin(row), x),
        lambda x: hr.foldr(lambda a, row: a + hr.cos(row), x),
    ],
    ids=["map", "scan", "foldl", "foldr"],
)
def test_functions_on_rows(build: Build) -> None:
    only_ends(build)
    only_ends(lambda x: hr.gradients(build(x), [x]))


def array(x: Any, size: int = 4, **more: Any) -> Any:
    """An array with an element on the device."""
    return hr.TensorArray(hr.float64, size, **more).write(1, hr.sin(x[1]))


@pytest.mark.parametrize("shape", [None, [None], [3]])
def test_missing_elements_are_zeros(shape: Any) -> None:
    def build(x: Any) -> Any:
        a = array(x, element_shape=shape)
        return [a.read(1), a.read(2), a.stack(), a.gather([0, 1]), *hr.gradients(a.stack(), [x])]

    run(build)


def test_an_array_grows() -> None:
    def build(x: Any) -> Any:
        a = array(x, size=0, dynamic_size=True, element_shape=[3])
        a = a.write(5, hr.cos(x[2]))
        return [a.stack(), a.size(), *hr.gradients(a.stack(), [x])]

    run(build)


def test_elements_of_different_lengths_are_joined() -> None:
    def build(x: Any) -> Any:
        a = hr.TensorArray(hr.float64, 2, infer_shape=False, element_shape=[None, 3])
        a = a.write(0, hr.sin(x)).write(1, hr.cos(x[:2]))
        return [a.concat(), *hr.gradients(a.concat(), [x])]

    run(build)


def test_rows_are_split_and_scattered() -> None:
    def build(x: Any) -> Any:
        y = hr.sin(x)
        split = hr.TensorArray(hr.float64, 2, infer_shape=False, element_shape=[None, 3]).split(y, [1, 3])
        scattered = hr.TensorArray(hr.float64, 4, element_shape=[3]).scatter([3, 1, 0, 2], y)
        fetched = [split.read(0), split.read(1), scattered.read(3), scattered.stack()]
        return [*fetched, *hr.gradients(fetched, [x])]

    run(build)


def test_elements_of_the_host_and_the_device() -> None:
    def build(x: Any) -> Any:
        with hr.device("/cpu:0"):
            cpu = hr.exp(x[0])
        a = array(x, element_shape=[3]).write(0, cpu)
        with hr.device("/cpu:0"):
            read = hr.exp(a.read(1))
        return [read, hr.cos(a.read(0)), a.gather([0, 1])]

    run(build)


def test_an_array_in_branches_and_functions() -> None:
    def build(x: Any) -> Any:
        a = array(x, element_shape=[3])
        b = hr.cond(hr.reduce_sum(x) > 0.0, lambda: a.write(0, x[0]), lambda: a.write(0, hr.cos(x[0])))

        @hr.function
        def read(flow: Any) -> Any:
            c = hr.TensorArray(hr.float64, element_shape=[3], flow=flow)
            return c.read(0) * c.read(1)

        return read(b.flow)

    run(build)


# *** residence ***


def test_a_list_that_only_the_device_reads_is_copied_at_once() -> None:
    def build(x: Any) -> Any:
        with hr.device("/cpu:0"):
            rows = hr.TensorArray(hr.float64, 4, element_shape=[3]).unstack(hr.exp(x))
        return steps(lambda i, a: hr.tanh(a + rows.read(i)), x)

    copies, source = run(build)
    assert in_loops(source) == []
    assert [c for c in copies if c[0] == "put"].count(("put", (4, 3))) == 2


def test_small_integers_stay_on_the_host() -> None:
    def build(x: Any) -> Any:
        a = hr.TensorArray(hr.int32, 4, element_shape=[])
        b = hr.while_loop(lambda i, a: i < 4, lambda i, a: (i + 1, a.write(i, i * i)), [0, a])[1]
        return [b.stack(), hr.sin(x)]

    copies, _ = run(build)
    assert copies == [("put", (4, 3)), ("get", (4, 3))]


def test_a_list_that_is_fetched_has_elements_of_the_host() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [4, 3], name="x")
        with hr.device(DEVICE):
            a = array(x, element_shape=[3])
    with hr.Session(graph=g, devices={FAKE: 1}) as session:
        fetched = session.run(a.flow, {x: X})
    np.testing.assert_array_equal(fetched.get(1), np.sin(X[1]))


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_lists_may_be_requested_on_the_device(engine: str) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, [4, 3], name="x")
        y = rnn(x)
        fetches = [*y, *hr.gradients(y, [x])]
    with hr.Session(graph=g) as session:
        want = session.run(fetches, {x: X})
    with hr.Session(graph=g, devices={FAKE: 1}, engine=engine, config={"allow_soft_placement": False}) as session:
        _same(session.run(fetches, {x: X}), want)


def test_values_that_count_as_memory_are_read_on_the_device() -> None:
    account = StepMemory(Memory(DEVICE, 10_000))
    saved = [account.memory.save(account, MEMORY.put(row), "a value", False) for row in X]
    whole = TensorList(hr.float64, (3,), Vector.of(saved))
    arrays = arrays_of(Elements(MEMORY))
    np.testing.assert_array_equal(to_host(whole.stack(arrays=arrays)), X)
    joined, lengths = whole.concat(arrays=arrays)
    np.testing.assert_array_equal(to_host(joined), X.ravel())
    assert lengths.tolist() == [3] * 4
    np.testing.assert_array_equal(to_host(whole.add(whole).get(2)), X[2] * 2.0)
