"""Devices of type "DLP" for headrace: a deep-learning processor, simulated, that can do one thing.

    session = hr.Session(graph=g, devices={"DLP": 1})

Importing this module registers the device type and its kernels; headrace does that by the entry point in
`pyproject.toml` as soon as a session asks for such a device.
"""

import headrace as hr
from headrace_dlp.device import DLP, DLPArray
from headrace_dlp.pooling import max_pool

__all__ = ["DLP", "DLPArray"]

hr.register_device("DLP", DLP)
hr.register_kernel(
    "MaxPool",
    "DLP",
    {"T": (hr.float32, hr.float16), "data_format": "NHWC", "padding": ("SAME", "VALID")},
)(max_pool)
