"""Devices of another array library: times of calls, copies and training steps.

    python -m benchmarks --only accelerators

It needs PyTorch (the extra `torch`), and measures the device type TORCH, and GPU where PyTorch finds one. `thresholds`
has figures of the first two kinds for the placer.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
from benchmarks.measure import Result, alternating, no_collection

MISSING = "" if importlib.util.find_spec("torch") else "PyTorch is not installed"


def accelerators(repeats: int = 9, calls: int = 200, megabytes: int = 16, width: int = 256) -> list[Result]:
    """All figures, see the module's text; none without PyTorch."""
    if MISSING:
        return []
    torch: Any = importlib.import_module("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as an operation of headrace has
    out: list[Result] = []
    for d in hr.list_devices():
        if d.device_type != "CPU":
            out += [
                *copies(d.device_type, repeats, calls, megabytes),
                kernel(d.device_type, repeats, calls),
                training(d.device_type, repeats, width),
            ]
    torch.set_num_threads(threads)
    return out


def copies(type: str, repeats: int, calls: int, megabytes: int) -> list[Result]:
    """Times of `put` and `get` of 8 bytes and of a large array."""
    out = []
    with hr.Session(graph=hr.Graph(), devices={type: 1}) as session:
        device: Any = list(session._target.local_devices.values())[-1]  # type: ignore[attr-defined]
        for what, array in (("8 bytes", np.zeros(1)), (f"{megabytes} MB", np.zeros(megabytes << 17))):
            value = device.put(array)
            for name, f in (
                ("put", functools.partial(device.put, array)),
                ("get", functools.partial(device.get, value)),
            ):
                out.append(Result(f"{type}: {name} of {what}", "us", [1e6 * s for s in _each(f, repeats, calls)]))
    return out


def _each(f: Callable[[], object], repeats: int, calls: int) -> list[float]:
    """Seconds of a call, over rounds of `calls` of them."""
    out = []
    f()
    with no_collection():
        for _ in range(repeats):
            began = time.perf_counter()
            for _ in range(calls):
                f()
            out.append((time.perf_counter() - began) / calls)
    return out


def kernel(type: str, repeats: int, calls: int) -> Result:
    """Time that each kernel of a chain adds to a step."""
    runs: list[Callable[[], object]] = []
    for n in (calls, 2 * calls):
        with hr.Graph() as g:
            x = y = hr.placeholder("float32", (2, 2))
            with hr.device(f"/device:{type}:0"):
                for _ in range(n):
                    y = hr.matmul(y, x)
        session = hr.Session(graph=g, devices={type: 1})
        runs.append(functools.partial(session.make_callable(y, [x]), np.eye(2, dtype=np.float32)))
        runs[-1]()
    short, long = alternating(runs, repeats)
    return Result(f"{type}: a product of 2x2 in a chain", "us", [1e6 * (b - a) / calls for a, b in zip(short, long)])


def training(type: str, repeats: int, width: int) -> Result:
    """Time of a training step of three layers, compared with the CPU."""
    rng = np.random.default_rng(0)
    at = rng.standard_normal((64, width)).astype(np.float32)
    weights = [(rng.standard_normal((width, width)) / width**0.5).astype(np.float32) for _ in range(3)]
    times: list[Callable[[], object]] = []
    sessions = []
    for where in (type, "CPU"):
        with hr.Graph() as g, hr.device(f"/device:{where}:0"):
            x = hr.placeholder("float32", at.shape)
            h = x
            variables = [hr.Variable(w) for w in weights]
            for w in variables:
                h = hr.tanh(hr.matmul(h, w))
            loss = hr.reduce_mean(hr.square(h - x))
            slopes = hr.gradients(loss, variables)
            step = [w.assign_sub(0.1 * s) for w, s in zip(variables, slopes, strict=True)]
        session = hr.Session(graph=g, devices={} if where == "CPU" else {type: 1})
        sessions.append(session)
        session.run([v.initializer for v in variables])
        times.append(functools.partial(session.make_callable([loss, *step], [x]), at))
        times[-1]()
    there, here = alternating(times, repeats)
    for session in sessions:
        session.close()
    name = f"{type}: a training step of three layers of {width}, a batch of 64"
    return Result(name, "ms", [1e3 * s for s in there], "", {"CPU": [1e3 * s for s in here]})
