"""CUDA devices of this machine, as PyTorch finds them. This module imports PyTorch."""

from __future__ import annotations

import torch


def count() -> int:
    """Returns the number of CUDA devices."""
    return torch.cuda.device_count()


def capability(index: int) -> tuple[int, int]:
    """Returns the compute capability of a CUDA device: major and minor version."""
    return torch.cuda.get_device_capability(index)


def allocated(index: int) -> tuple[int, int]:
    """Returns the bytes of tensors on a CUDA device, now and at most."""
    return torch.cuda.memory_allocated(index), torch.cuda.max_memory_allocated(index)


def forget_peak(index: int) -> None:
    """Lets the greatest number of bytes on a CUDA device be the present one."""
    torch.cuda.reset_peak_memory_stats(index)
