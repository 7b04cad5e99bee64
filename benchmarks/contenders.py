"""Systems that run the workloads: headrace, TensorFlow, numpy by hand, JAX and PyTorch.

TORCH is headrace with all operations on a device of that type.

`prepare` builds or compiles a program for one of them. A system that is not installed prepares nothing.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
import sys
import types
from collections.abc import Callable
from typing import Any

from benchmarks import gradients
from benchmarks.programs import Program, by_hand, in_c, in_v1
from headrace import flags

Call = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A program, ready to run.

    Attributes:
      call: runs it; this is what is timed.
      results: runs it and gives the result, then the derivatives, as all give them. They are compared.
    """

    call: Call
    results: Callable[[], list[Any]]


def prepare(contender: str, program: Program, how: str, threads: int) -> Prepared | None:
    """The program made ready for one of `CONTENDERS`.

    Args:
      contender: its name.
      program: the program.
      how: the function of `programs.in_v1` that prepares it: "callable", "run", "first", "graph", "shared" or
        "training".
      threads: how many a session may use.

    Returns:
      None: `contender` is not installed.
    """
    return CONTENDERS[contender](program, how, threads)


@functools.cache
def script(module: str, device: str | None = None) -> types.ModuleType:
    """The script for TensorFlow 1 with `module` imported, or as it stands for headrace."""
    return in_v1.of(module, device)


def _in_v1(module: str, program: Program, how: str, threads: int, device: str | None = None) -> Prepared:
    text = script(module, device)
    if how == "training":
        return Prepared(*text.training(program, threads))
    call = getattr(text, how)(program, threads)
    # a graph alone has no results: those of building it and running it once
    return Prepared(call, text.first(program, threads) if how == "graph" else call)


def _headrace(program: Program, how: str, threads: int) -> Prepared:
    return _in_v1("headrace.v1", program, how, threads)


def _interpreter(program: Program, how: str, threads: int) -> Prepared:
    """headrace with every step interpreted, independent of HEADRACE_ENGINE."""
    with flags.override(ENGINE="interpret"):  # sessions read it when they are made
        prepared = _headrace(program, how, threads)
    call = prepared.call
    if how == "training":
        return prepared
    if how != "first":
        return Prepared(call, call)

    def interpreted() -> Any:
        with flags.override(ENGINE="interpret"):
            return call()

    return Prepared(interpreted, interpreted)


def _tensorflow(program: Program, how: str, threads: int) -> Prepared | None:
    if how == "training" and not _has("tf_keras"):  # where TensorFlow 1's cells and layers are by now
        return None
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    return _in_v1("tensorflow.compat.v1", program, how, threads) if _has("tensorflow") else None


def _by_hand(program: Program, how: str, threads: int) -> Prepared:
    f = getattr(by_hand, f"{program.function}_gradient" if program.by else program.function)
    call = functools.partial(f, **program.sizes, **program.arguments)
    return Prepared(call, call if program.by else lambda: [call()])


def _jax(program: Program, how: str, threads: int) -> Prepared | None:
    if not _has("jax"):
        return None
    forward, gradient = gradients.Jax().prepare(program)
    call = gradient if program.by else forward
    return Prepared(call, call)


def _pytorch(program: Program, how: str, threads: int) -> Prepared | None:
    """PyTorch's fused LSTM, a network's gradient, or a network in training."""
    if not _has("torch"):
        return None
    import torch

    from benchmarks.programs.in_torch import GRADIENTS, Training

    torch.set_num_threads(threads)
    if how == "training":
        learning = Training(program)
        return Prepared(learning, learning.results)
    gradient = GRADIENTS[program.function](**program.sizes, **program.arguments)
    return Prepared(gradient, gradient.results)


def _torch_device(program: Program, how: str, threads: int) -> Prepared | None:
    """headrace on a device with PyTorch's tensors."""
    if not _has("torch"):
        return None
    import torch

    torch.set_num_threads(threads)
    return _in_v1("headrace.v1", program, how, threads, "/device:TORCH:0")


def _c(program: Program, how: str, threads: int) -> Prepared | None:
    """The program in C; one thread, however many there may be."""
    reason = in_c.missing()
    if reason is not None:
        print(f"  C: {reason}", file=sys.stderr)
        return None
    call = in_c.prepare(program)
    return Prepared(call, call)


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


CONTENDERS: dict[str, Callable[[Program, str, int], Prepared | None]] = {
    "headrace": _headrace,
    "interpreter": _interpreter,
    "TensorFlow": _tensorflow,
    "by hand": _by_hand,
    "JAX": _jax,
    "PyTorch": _pytorch,
    "TORCH": _torch_device,
    "C": _c,
}
