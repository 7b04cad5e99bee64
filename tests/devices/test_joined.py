"""Joined steps: the residence of tensors, and the copies between the host and a device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.device_arrays import DeviceArray
from tests.devices.fake import DEVICE, FAKE, MEMORY

X = np.array([0.5, -1.0, 2.0])


def run(build: Callable[[Any], Any], engine: str = "auto") -> tuple[Any, list[tuple[str, tuple[int, ...]]], str]:
    """The value of a program on the device, its copies, and its source."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float64, [3], name="x")
        with hr.device(DEVICE):
            y = build(x)
    with hr.Session(graph=g) as session:
        want = session.run(y, {x: X})
    with hr.Session(graph=g, devices={FAKE: 1}, engine=engine) as session:
        session.run(y, {x: X})
        MEMORY.copies.clear()
        got = session.run(y, {x: X})
        copies = list(MEMORY.copies)
        source = str(session.explain(y, [x]))
    for a, b in zip(hr.nest.flatten(got), hr.nest.flatten(want), strict=True):
        np.testing.assert_array_equal(a, b)
    return got, copies, source


def test_feeds_and_fetches_are_the_only_copies() -> None:
    _, copies, source = run(lambda x: hr.sin(x) * hr.cos(x) + 1.0)
    assert copies == [("put", (3,)), ("get", (3,))]
    assert "join, compile" in source


def test_inputs_that_kernels_read_stay_on_the_host() -> None:
    with hr.Graph() as g:
        x, perm = hr.placeholder(hr.float64, name="x"), hr.placeholder(hr.int32, name="perm")
        axis, shift = hr.placeholder(hr.int32, name="axis"), hr.placeholder(hr.int32, name="shift")
        with hr.device(DEVICE):
            y = hr.roll(hr.cumsum(hr.transpose(x, perm), axis), shift, axis)
    fed = {x: np.ones((2, 3)), perm: np.array([1, 0], np.int32), axis: np.int32(1), shift: np.int32(1)}
    with hr.Session(graph=g, devices={FAKE: 1}) as session:
        MEMORY.copies.clear()
        assert session.run(y, fed).tolist() == [[2.0, 1.0]] * 3
    assert MEMORY.copies == [("put", (2, 3)), ("get", (3, 2))]


@pytest.mark.parametrize(
    "build",
    [
        lambda x: hr.reshape(hr.sin(x), hr.concat([hr.shape(x)[:-1], [2, 2]], 0)),
        lambda x: hr.transpose(hr.sin(x), hr.range(hr.rank(x))[::-1]),
        lambda x: hr.reduce_sum(hr.sin(x), hr.range(hr.size(hr.shape(x)) - 1)),
        lambda x: hr.tile(hr.sin(x), hr.ones_like(hr.shape(x)) * 2),
        lambda x: hr.gradients(hr.reduce_sum(hr.sin(x) * hr.cos(x[0]), [0]), x)[0],
    ],
)
def test_shapes_of_unknown_rank_stay_on_the_host(build: Callable[[Any], Any]) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, name="x")
        y = build(x)
    with hr.Session(graph=g, devices={FAKE: 1}) as session:
        MEMORY.copies.clear()
        session.run(y, {x: np.ones((2, 3, 4))})
    assert [direction for direction, _ in MEMORY.copies] == ["put", "get"]


def test_vectors_whose_length_is_a_dimension_are_computed_on_the_device() -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        x = hr.placeholder(hr.float64, [None], name="x")
        y = x[::-1] + hr.cast(hr.range(hr.shape(x)[0]), hr.float64)
    with hr.Session(graph=g, devices={FAKE: 1}) as session:
        MEMORY.copies.clear()
        assert session.run(y, {x: np.arange(20.0)}).tolist() == [19.0] * 20
    assert [direction for direction, _ in MEMORY.copies] == ["put", "get"]


def test_a_loop_on_the_device_copies_nothing_but_its_ends() -> None:
    def build(x: Any) -> Any:
        return hr.while_loop(lambda i, a: i < 10, lambda i, a: (i + 1, hr.sin(a) + x), [0, x])[1]

    _, copies, source = run(build)
    assert copies == [("put", (3,)), ("get", (3,))]
    assert re.search(r"for \w+ in range\(0, 10\)", source), "the counter is the host's"


def test_a_predicate_is_copied_in_each_iteration() -> None:
    def build(x: Any) -> Any:
        return hr.while_loop(lambda a: hr.reduce_sum(a) < 100.0, lambda a: a * a + 1.0, [x])[0]

    _, copies, _ = run(build)
    assert set(copies[1:-1]) == {("get", ())}


def test_branches_end_where_one_of_them_computes() -> None:
    def build(x: Any) -> Any:
        def other() -> Any:
            with hr.device("/cpu:0"):
                return hr.cos(x)

        return hr.cond(hr.reduce_sum(x) > 100.0, lambda: hr.sin(x), other) * 2.0

    _, copies, _ = run(build)
    assert copies[0] == ("put", (3,))
    assert ("put", (3,)) in copies[1:], "the result of the branch on the host"


def test_variables_that_change_places_stay_on_the_host() -> None:
    def build(x: Any) -> Any:
        return hr.while_loop(lambda i, a, b: i < 3, lambda i, a, b: (i + 1, b, a), [0, x, hr.sin(x)])[1:]

    run(build)


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_variables_are_in_the_memory_of_the_device(engine: str) -> None:
    with hr.Graph() as g, hr.device(DEVICE):
        v = hr.Variable(X, name="v")
        change = v.assign_add(hr.sin(v))
    with hr.Session(graph=g, devices={FAKE: 1}, engine=engine) as session:
        session.run(v.initializer)
        MEMORY.copies.clear()
        session.run(change.op)
        assert MEMORY.copies == []
        np.testing.assert_array_equal(session.run(v), X + np.sin(X))


def test_an_op_without_a_kernel_runs_on_the_host() -> None:
    def build(x: Any) -> Any:
        return hr.sin(hr.strings.to_number(hr.strings.as_string(hr.cos(x), precision=17), hr.float64))

    _, copies, source = run(build)
    assert copies == [("put", (3,)), ("get", (3,)), ("put", (3,)), ("get", (3,))]
    assert "AsString" in source


def test_values_of_the_device_never_leave_it_unnoticed() -> None:
    value = MEMORY.put(X)
    assert isinstance(value, DeviceArray)
    with pytest.raises(TypeError, match=r"in the memory of its device; `to_host` copies it"):
        np.asarray(value)
