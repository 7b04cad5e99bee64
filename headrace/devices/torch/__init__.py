"""Devices whose arrays are PyTorch's tensors: type "TORCH" on the processor, "GPU" on CUDA.

    session = hr.Session(graph=graph, devices={"TORCH": 1})

PyTorch is an extra, `pip install 'headrace[torch]'`. This package is imported when a session asks for such a device.
A device runs each op whose record declares `xp=True`, by PyTorch's functions of the array API standard. The modules of
this package have kernels for other ops, and for those that PyTorch computes faster than the portable formula
(`registering`).
"""

from __future__ import annotations

from headrace.devices.torch import kernels
from headrace.devices.torch.device import register

__all__ = ["kernels"]

register()
