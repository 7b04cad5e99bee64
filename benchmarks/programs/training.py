"""Networks in training: a step of Adam each time, as the examples do it.

A program's result is the losses of the first steps; later steps are timed. The variables are made by the cells
and layers of each system and then given the same first values. (They are not compared themselves: Adam's step is as
long where a derivative is nothing but rounding.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.programs import Program, numbers

STEPS = 5  # that are compared
RATE = 1e-3


def digits_lstm(batch: int, units: int, leaves_batch_open: bool = False) -> Program:
    """`examples/digits_lstm.py`: an LSTM over columns of 8 pixels, of which there are 8 at most."""
    new, random = numbers(), np.random.default_rng(0)
    data = {
        "columns": np.abs(new(batch, 8, 8, scale=0.5)),
        "lengths": random.integers(4, 9, batch).astype(np.int32),
        "labels": np.arange(batch, dtype=np.int32) % 10,
    }
    weights = {
        "kernel": new(8 + units, 4 * units, scale=0.1),
        "bias": new(4 * units, scale=0.1),
        "w": new(units, 10, scale=0.1),
        "b": new(10, scale=0.1),
    }
    title = f"LSTM on digits, {f'any batch ({batch})' if leaves_batch_open else batch}x8x{units}"
    return Program(title, "digits_lstm", 1, {"units": units}, data | weights, (*weights,), leaves_batch_open)


def digits_vgg(batch: int, widths: tuple[int, int] = (32, 64), dense: int = 128) -> Program:
    """The network of `examples/digits_vgg.py`, without dropout.

    It has two blocks of two convolutions and a pooling, then two dense layers. The random numbers of a dropout would
    differ between the systems.
    """
    new = numbers()
    data = {
        "images": np.abs(new(batch, 8, 8, 1, scale=0.5)),
        "labels": np.arange(batch, dtype=np.int32) % 10,
    }
    weights: dict[str, np.ndarray] = {}
    before = 1
    for k, after in enumerate(w for w in widths for _ in range(2)):
        weights[f"filter{k}"] = new(3, 3, before, after, scale=(2 / (9 * before)) ** 0.5)
        weights[f"bias{k}"] = new(after, scale=0.1)
        before = after
    flat = 4 * widths[1]
    weights |= {"w0": new(flat, dense, scale=flat**-0.5), "b0": new(dense, scale=0.1)}
    weights |= {"w1": new(dense, 10, scale=dense**-0.5), "b1": new(10, scale=0.1)}
    sizes = {"first": widths[0], "second": widths[1], "dense": dense}
    return Program(f"VGG on digits, {batch}x8x8", "digits_vgg", 1, sizes, data | weights, tuple(weights))


def split(program: Program) -> tuple[Mapping[str, Any], list[Any]]:
    """The fed values, and the initial values of the variables."""
    data = {name: value for name, value in program.arguments.items() if name not in program.by}
    return data, [program.arguments[name] for name in program.by]
