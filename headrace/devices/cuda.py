"""CUDA devices of this machine, as PyTorch finds them. This module imports PyTorch."""

from __future__ import annotations

import torch


def count() -> int:
    """Returns the number of CUDA devices."""
    return torch.cuda.device_count()


def capability(index: int) -> tuple[int, int]:
    """Returns the compute capability of a CUDA device: major and minor version."""
    return torch.cuda.get_device_capability(index)
