"""The limit of PyTorch's allocator, of which a process has one for each device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from headrace.devices.torch.allocator import Allocator


class Cuda:
    """In place of `torch.cuda`, with 1,000 bytes of memory."""

    def __init__(self) -> None:
        self.fraction = 0.9

    def get_device_properties(self, device: int) -> SimpleNamespace:
        return SimpleNamespace(total_memory=1000)

    def set_per_process_memory_fraction(self, fraction: float, device: int) -> None:
        assert device == 1
        self.fraction = fraction

    def get_per_process_memory_fraction(self, device: int) -> float:
        return self.fraction

    def memory_allocated(self, device: int) -> int:
        return 7

    def max_memory_allocated(self, device: int) -> int:
        return 8


def test_the_limit_is_the_sum_of_those_of_open_sessions() -> None:
    cuda = Cuda()
    allocator = Allocator(cuda, 1)
    allocator.open(100)
    assert cuda.fraction == 0.1
    allocator.open(300)
    assert cuda.fraction == 0.4
    allocator.close(100)
    assert cuda.fraction == 0.3
    allocator.open(800)
    assert cuda.fraction == 0.9, "the program allows no more"
    allocator.close(800)
    allocator.close(300)
    assert cuda.fraction == 0.9, "as before"


def test_a_session_without_a_limit_has_what_the_program_allows() -> None:
    cuda = Cuda()
    allocator = Allocator(cuda, 1)
    allocator.open(100)
    allocator.open(None)
    assert cuda.fraction == 0.9
    allocator.close(None)
    assert cuda.fraction == 0.1
    allocator.close(100)
    assert cuda.fraction == 0.9
    allocator.open(None)
    cuda.fraction = 0.5  # set by the program, and left alone without limits
    allocator.close(None)
    assert cuda.fraction == 0.5


def test_figures_are_those_of_the_allocator() -> None:
    assert Allocator(Cuda(), 1).figures() == (7, 8)
