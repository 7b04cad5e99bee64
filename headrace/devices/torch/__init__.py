"""Devices whose arrays are PyTorch's tensors: type "TORCH" on the processor, "GPU" on CUDA.

    session = hr.Session(graph=graph, devices={"TORCH": 1})

PyTorch is an extra, `pip install 'headrace[torch]'`. This package is imported when a session asks for such a device.
A device runs each op whose record declares `xp=True`, by PyTorch's functions of the array API standard, and each op with
a kernel in the modules of this package.
"""

from __future__ import annotations

from headrace.devices.torch.device import register

register()
