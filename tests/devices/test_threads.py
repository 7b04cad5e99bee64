"""Threads of PyTorch's operations: `intra_op_threads` in steps, and the program's number outside of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.fixture(autouse=True)
def before() -> Iterator[None]:
    n = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(n)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of threads of each call of `torch.tanh`."""
    found: list[int] = []
    tanh: Callable[..., Any] = torch.tanh

    def counted(*args: Any) -> Any:
        found.append(torch.get_num_threads())
        return tanh(*args)

    monkeypatch.setattr("torch.tanh", counted)
    monkeypatch.setattr("array_api_compat.torch.tanh", counted)
    return found


@pytest.mark.parametrize("engine", ["auto", "interpret"])
@pytest.mark.parametrize("n", [1, 2])
def test_a_step_has_the_threads_of_its_session(seen: list[int], engine: str, n: int) -> None:
    with hr.Graph() as g, hr.device("/device:TORCH:0"):
        x = hr.placeholder(hr.float32, [2])
        y = hr.tanh(x)
    with hr.Session(graph=g, devices={"TORCH": 1}, engine=engine, intra_op_threads=n) as session:
        session.run(y, {x: np.zeros(2, np.float32)})
        session.run(y, {x: np.zeros(2, np.float32)}, options=hr.RunOptions(timeout_in_ms=100_000))
    assert set(seen) == {n}
    assert torch.get_num_threads() == 3


def test_steps_on_the_host_leave_them() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [2])
        y = hr.py_function(lambda a: np.float32(torch.get_num_threads()), [x], hr.float32)
    with hr.Session(graph=g, devices={"TORCH": 1}) as session:
        assert session.run(y, {x: np.zeros(2, np.float32)}) == 3


def test_an_error_restores_them() -> None:
    with hr.Graph() as g, hr.device("/device:TORCH:0"):
        x = hr.placeholder(hr.float32, None)
        y = hr.matmul(x, x)
    with hr.Session(graph=g, devices={"TORCH": 1}) as session, pytest.raises(hr.errors.InvalidArgumentError):
        session.run(y, {x: np.zeros((2, 3), np.float32)})
    assert torch.get_num_threads() == 3
