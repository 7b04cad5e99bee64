"""Programs of `benchmarks.gradients` and `workloads`, the same in several systems.

A `Program` is data: the inputs and the trip count of the loop. A function of its name computes it in each of the other
modules: `in_graphs` (headrace and TensorFlow, which differ in the import line alone), `by_hand` (numpy),
`in_jax`, `in_torch` and, for one program, `in_c`. All return one number, the loss (those of `kernels` whole arrays),
and are differentiated by their arguments named in `by`. `in_v1` is how one is run by TensorFlow 1's sessions.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np


class Late(Mapping[str, np.ndarray]):
    """Large arguments of a program, made when the first of them is read.

    Lists of workloads are imported more often than run.
    """

    def __init__(self, make: Callable[[], Mapping[str, np.ndarray]]) -> None:
        self._make = make

    @functools.cached_property
    def _made(self) -> Mapping[str, np.ndarray]:
        return self._make()

    def __getitem__(self, name: str) -> np.ndarray:
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._made)

    def __len__(self) -> int:
        return len(self._made)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, without its text.

    Attributes:
      title: as tables show it.
      function: its name in the modules.
      trips: how many iterations it does in all.
      sizes: integers that the text needs; they are fixed when a graph is built or a function compiled.
      arguments: arrays of float32 that it is called with; numbers of trips that are not fixed, and of classes, are of
        int32.
      by: the arguments it is differentiated by; none: its result is all that is wanted.
      leaves_batch_open: whether a network in training is built for batches of any size, as most programs build it.
      given: how a graph has an argument that is not fed. A text whose name ends in "_cell" is called without the
        variables, and makes them itself in this order.
    """

    title: str
    function: str
    trips: int
    sizes: Mapping[str, int]
    arguments: Mapping[str, np.ndarray]
    by: tuple[str, ...]
    leaves_batch_open: bool = False
    given: Mapping[str, Literal["variable", "constant"]] = dataclasses.field(default_factory=dict)


def power(n: int) -> Program:
    """x**n, a factor an iteration: nothing but the loop."""
    return Program(f"power loop, {n}", "power", n, {"n": n}, {"x": np.float32(1.01)}, ("x",))


def rnn(batch: int, hidden: int, time: int) -> Program:
    """h = tanh(h w + b)."""
    new = numbers()
    arguments = {"h": new(batch, hidden), "w": new(hidden, hidden), "b": new(hidden)}
    return Program(f"RNN {batch}x{hidden}, {time} steps", "rnn", time, {"n": time}, arguments, ("h", "w", "b"))


def lstm(batch: int, time: int, hidden: int) -> Program:
    """An LSTM over a sequence; its inputs are as wide as its state."""
    new = numbers()
    arguments = {
        "xs": new(time, batch, hidden, scale=1.0),
        "h": new(batch, hidden),
        "c": new(batch, hidden),
        "w": new(2 * hidden, 4 * hidden),
        "b": new(4 * hidden),
    }
    return Program(f"LSTM {batch}x{time}x{hidden}", "lstm", time, {"n": time}, arguments, ("w", "b"))


def branches(n: int, a: float = 0.4) -> Program:
    """A conditional in a loop: x shrinks if it is large and grows otherwise."""
    arguments = {"x": np.float32(7.0), "a": np.float32(a), "b": np.float32(0.7)}
    return Program(f"cond in a loop, {n}", "branches", n, {"n": n}, arguments, ("x", "a", "b"))


def nested(n: int, m: int) -> Program:
    """Nested loops: n times m steps of an RNN, with an addition in between."""
    new = numbers()
    arguments = {"h": new(4, 16), "w": new(16, 16), "b": new(16)}
    return Program(f"nested loops, {n}x{m}", "nested", n * m, {"n": n, "m": m}, arguments, ("h", "w", "b"))


def add() -> Program:
    """x + 1: nothing but the run."""
    return Program("scalar add", "add", 1, {}, {"x": np.float32(1.0)}, ())


def counting(n: int) -> Program:
    """i = i + 1 while i < n, for an argument n."""
    return Program(f"counting loop, {n:,}", "counting", n, {}, {"n": np.int32(n)}, ())


def nested_scalars(n: int, m: int) -> Program:
    """A loop in a loop: x = x a + b, m times, n times."""
    arguments = {"n": np.int32(n), "m": np.int32(m)}
    arguments |= {"x": np.float32(3.0), "a": np.float32(0.9), "b": np.float32(0.25)}
    return Program(f"nested scalar loop, {n}x{m}", "nested_scalars", n * m, {}, arguments, ())


def chain(n: int) -> Program:
    """n scalar operations, each on the result of the one before."""
    arguments = {"x": np.float32(3.0), "a": np.float32(0.9), "b": np.float32(0.25)}
    return Program(f"chain of {n:,} scalar operations", "chain", 1, {"n": n}, arguments, ())


def wide(n: int) -> Program:
    """n scalar operations that do not depend on each other, summed as a tree."""
    return Program(f"{n:,} scalar operations side by side", "wide", 1, {"n": n}, {"x": np.float32(3.0)}, ())


def elementwise(n: int, rows: int) -> Program:
    """n elementwise operations, one after the other, on a square matrix; groups of six."""

    @Late
    def arguments() -> dict[str, np.ndarray]:
        new = numbers()
        return {"x": new(rows, rows, scale=0.5), "y": new(rows, rows)}

    return Program(f"{n} elementwise operations on {rows}x{rows}", "elementwise", 1, {"n": n}, arguments, ())


def convnet(batch: int, side: int, channels: Sequence[int], classes: int = 10) -> Program:
    """The loss of a convolutional network for square pictures.

    It has a 3x3 convolution, a bias, relu and a pooling that halves the sides for each number of `channels`, then a
    dense layer.
    """
    new = numbers()
    weights = {}
    for k, (before, after) in enumerate(itertools.pairwise((3, *channels))):
        weights[f"filter{k}"] = new(3, 3, before, after, scale=math.sqrt(2 / (9 * before)))
        weights[f"bias{k}"] = new(after, scale=0.1)
    pixels = (side // 2 ** len(channels)) ** 2
    weights |= {"w": new(pixels * channels[-1], classes), "b": new(classes, scale=0.1)}
    data = {"images": new(batch, side, side, 3, scale=1.0), "labels": np.arange(batch, dtype=np.int32) % classes}
    sizes = {"batch": batch, "layers": len(channels)}
    return Program(f"convnet {batch}x{side}x{side}", "convnet", 1, sizes, data | weights, tuple(weights))


def numbers() -> Callable[..., np.ndarray]:
    """A function that makes arrays of random numbers, the same ones every time."""
    random = np.random.default_rng(4)

    def new(*shape: int, scale: float | None = None) -> np.ndarray:
        """Random numbers; a matrix as large as keeps what it multiplies at its size."""
        return np.float32(random.standard_normal(shape) * (scale or 1 / math.sqrt(shape[0])))

    return new
