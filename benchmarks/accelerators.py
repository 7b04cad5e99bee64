"""Devices of another array library: times of calls, copies and training steps.

    python -m benchmarks --only accelerators

It needs PyTorch (the extra `torch`), and measures the device type TORCH, and GPU where PyTorch finds one. `thresholds`
has figures of the first two kinds for the placer.

Three comparisons are for GPUs: the gradient of an LSTM and a training step of a convolutional network, in turns with
PyTorch and JAX on the same GPU, and an LSTM that swaps, in turns with one of half the length that need not. Where there
is no GPU they have no rows. (`benchmarks.workloads` compares TORCH with PyTorch.)
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

import headrace as hr
from benchmarks import gradients, programs, swap
from benchmarks.contenders import script
from benchmarks.measure import Result, alternating, in_turns, no_collection
from benchmarks.programs import Program
from benchmarks.programs.training import digits_vgg

GPU = "GPU"
MISSING = "" if importlib.util.find_spec("torch") else "PyTorch is not installed"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the programs for GPUs.

    Attributes:
      batches: the numbers of sequences of the LSTMs.
      time: the length of the sequences.
      hidden: the units of the LSTMs.
      network: the network for images.
      swapped: the LSTM of which one twice as long swaps.
    """

    batches: tuple[int, ...] = (1, 10)
    time: int = 500
    hidden: int = 128
    network: Program = dataclasses.field(default_factory=lambda: digits_vgg(128, (64, 128), 256))
    swapped: swap.Lstm = dataclasses.field(default_factory=lambda: swap.Lstm(512, 512, 500))


def accelerators(
    repeats: int = 9,
    calls: int = 200,
    megabytes: int = 16,
    width: int = 256,
    sizes: Sizes = Sizes(),
    compared_on: Collection[str] = (GPU,),
) -> list[Result]:
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
            if d.device_type in compared_on:
                out += [*compared(d.device_type, repeats, sizes), swapping(d.device_type, repeats, sizes.swapped)]
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


# *** for GPUs ***


def compared(type: str, repeats: int, sizes: Sizes) -> list[Result]:
    """Times of gradients and of a step of training, in turns with PyTorch and JAX."""
    out = []
    for program in (*(programs.lstm(n, sizes.time, sizes.hidden) for n in sizes.batches), sizes.network):
        is_training = program is sizes.network
        found = {
            type: _headrace(type, program, is_training),
            "PyTorch": _pytorch(type, program, is_training),
            "JAX": None if is_training else _jax(type, program),
        }
        here = {name: call for name, call in found.items() if call is not None}
        losses = {name: float(np.asarray(call()[0])) for name, call in here.items()}
        if not np.allclose(list(losses.values()), losses[type], rtol=1e-3):
            raise ArithmeticError(f"{program.title}: the losses differ: {losses}")
        seconds = in_turns(list(here.values()), repeats, 0.02)
        values = {name: [1e3 * s for s in mine] for name, mine in zip(here, seconds, strict=True)}
        what = "a step of training" if is_training else "gradient"
        out.append(Result(f"{type}: {program.title}, {what}", "ms", values.pop(type), "", values))
    return out


def _headrace(type: str, program: Program, is_training: bool) -> Callable[[], Any]:
    text = script("headrace.v1", f"/device:{type}:0")
    found: Callable[[], Any] = text.training(program, 1)[0] if is_training else text.callable(program, 1)
    return found


def _pytorch(type: str, program: Program, is_training: bool) -> Callable[[], Any]:
    """The program in PyTorch on the same device, with results on the host as headrace's."""
    torch: Any = importlib.import_module("torch")
    from benchmarks.programs.in_torch import GRADIENTS, Training

    with torch.device("cuda" if type == GPU else "cpu"):
        if is_training:
            learning = Training(program)
            return lambda: [learning.step().cpu()]
        gradient = GRADIENTS[program.function](**program.sizes, **program.arguments)
    return lambda: [v.cpu() for v in gradient()]


def _jax(type: str, program: Program) -> Callable[[], Any] | None:
    """The program in JAX; None if it is not installed or has no such device."""
    if not importlib.util.find_spec("jax"):
        return None
    os.environ.setdefault("JAX_PLATFORMS", "")  # those that it finds
    system = gradients.Jax()
    if system.jax.default_backend() != ("gpu" if type == GPU else "cpu"):
        return None
    gradient = system.prepare(program)[1]
    return lambda: [np.asarray(v) for v in gradient()]


def swapping(type: str, repeats: int, size: swap.Lstm) -> Result:
    """The cost of swapping for an iteration, in percent.

    An LSTM whose values fit in memory is compared with one of twice the length, which swaps half of its values.
    """
    long = dataclasses.replace(size, trips=2 * size.trips)
    runs: list[Callable[[], object]] = []
    sessions = []
    # values leave at three quarters of the memory for them, which on a GPU is three quarters of the limit
    limits = size.kept * 16 // 9 if type == GPU else size.kept * 4 // 3
    for lstm, limit in ((long, limits), (size, None)):
        graph, fetches, feeds = swap.graph_of(lstm, device=f"/device:{type}:0")
        session = hr.Session(graph=graph, devices={type: 1}, memory_limit=limit)
        sessions.append(session)
        runs.append(functools.partial(session.make_callable(fetches, list(feeds)), *feeds.values()))
        runs[-1]()
    swapped, plain = alternating(runs, repeats)
    copied = max(m.bytes_out for m in sessions[0].statistics().memory.values()) / (repeats + 1)
    for session in sessions:
        session.close()
    longer = [100 * (a / 2 / b - 1) for a, b in zip(swapped, plain, strict=True)]
    name = f"{type}: LSTM {size.batch}x{size.hidden}, {long.trips} steps that swap, to {size.trips} steps that do not"
    return Result(name, "% an iteration", longer, f"{copied / swap.MIB:.0f} MiB out in a run")
