"""Random programs that read variables, with the passes and without.

Some of the variables are uninitialized, and some programs write.

Loops are nested, and most trip counts are fed, 0 among them. So a read that moves out of a loop must not fail where the
loop runs no iteration, and must not miss a write.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import FailedPreconditionError

pytestmark = [pytest.mark.one_engine, pytest.mark.matrix]

ENGINES = [
    {"ENGINE": "interpret", "OPTIMIZE": "on"},
    {"ENGINE": "compiled", "NATIVE": "off"},
    {"ENGINE": "compiled", "NATIVE": "on", "CACHE": "off"},
]
REFERENCE = {"ENGINE": "interpret", "OPTIMIZE": "off"}
DEVICES = ["/device:CPU:0", "/device:CPU:1"]
VECTOR = (3,)


class Program:
    """A graph with nested loops and conditionals over a state `h`, made from a seed.

    Attributes:
      graph: the graph.
      fetches: the final state, and its derivative by the initial one where nothing is written.
      feeds: the placeholders.
      initial: initializers of the variables that have a value.
    """

    def __init__(self, seed: int, devices: int = 1) -> None:
        self.rng = random.Random(seed)
        self.devices = DEVICES[:devices]
        self.writes = self.rng.random() < 0.4
        self.graph = hr.Graph()
        with self.graph:
            self.vectors = []
            for k in range(3):
                with hr.device(self.devices[k % devices]):
                    self.vectors.append(hr.Variable(np.full(VECTOR, 0.25 * (k + 1)), name=f"v{k}"))
            self.last = self.vectors[0]
            self.count = hr.Variable(np.int32(2), name="count")
            self.limits = [hr.placeholder(hr.int32, (), name=f"n{k}") for k in range(3)]
            self.flag = hr.placeholder(hr.bool, (), name="p")
            self.start = hr.placeholder(hr.float64, VECTOR, name="h")
            every = [*self.vectors, self.count]
            self.initial = [v.initializer for v in every if self.rng.random() < 0.6]
            self.feeds = [*self.limits, self.flag, self.start]
            end = self.block(self.start, 0, [])
            self.fetches = [end]
            if not self.writes and self.rng.random() < 0.5:
                self.fetches += hr.gradients(hr.reduce_sum(end), [self.start])

    def block(self, h: Any, depth: int, counters: Sequence[Any]) -> Any:
        for _ in range(self.rng.choice([1, 1, 2])):
            h = self.statement(h, depth, counters)
        return h

    def statement(self, h: Any, depth: int, counters: Sequence[Any]) -> Any:
        kinds = ["read", "read", "loop", "loop", "loop", "branch", "draw"] if depth < 3 else ["read", "read", "draw"]
        if self.writes:
            kinds += ["write", *["update"] * (3 if 0 < depth < 3 else 0)]
        kind = self.rng.choice(kinds)
        return getattr(self, kind)(h, depth, counters)

    def read(self, h: Any, *_: Any) -> Any:
        v = self.last = self.rng.choice(self.vectors)
        return hr.tanh(h * 0.5 + v) if self.rng.random() < 0.7 else h * 0.5 + hr.reverse(hr.tanh(v), [0])

    def write(self, h: Any, *_: Any) -> Any:
        v = self.last if self.rng.random() < 0.7 else self.rng.choice(self.vectors)
        with hr.control_dependencies([v.assign(h).op]):
            return hr.identity(h)

    def update(self, h: Any, depth: int, counters: Sequence[Any]) -> Any:
        """A loop, then a write, often of a variable that the loop reads."""
        return self.write(self.loop(h, depth, counters))

    def draw(self, h: Any, *_: Any) -> Any:
        return h + hr.reduce_sum(hr.random.uniform((2,), seed=3, dtype=hr.float64)) * 0

    def branch(self, h: Any, depth: int, counters: Sequence[Any]) -> Any:
        pred = self.flag if not counters or self.rng.random() < 0.5 else counters[-1] < 1
        return hr.cond(pred, lambda: self.block(h, depth + 1, counters), lambda: h * 0.5)

    def loop(self, h: Any, depth: int, counters: Sequence[Any]) -> Any:
        kind = self.rng.choice(["fed", "fed", "fed", "known", "outer", "variable", "flag", "divided"])
        n = self.rng.choice(self.limits)
        if kind == "known":
            n = hr.constant(self.rng.choice([0, 1, 2]))
        elif kind == "outer" and counters:
            n = counters[-1]

        def cond(i: Any, _: Any) -> Any:
            if kind == "variable":
                return i < self.count
            if kind == "flag":
                return hr.logical_and(i < n, self.flag)
            if kind == "divided":
                return i < 2 // (n + 1)
            return i < n

        def body(i: Any, h: Any) -> Any:
            return i + 1, self.block(h, depth + 1, [*counters, i])

        return hr.while_loop(cond, body, [hr.constant(0), h])[1]

    def run(self, feeds: Sequence[Any], **settings: Any) -> list[Any]:
        """The fetches and variables of three runs, or the class of an error."""
        out: list[Any] = []
        devices = {"CPU": len(self.devices)}
        with flags.override(**settings), hr.Session(graph=self.graph, devices=devices) as session:
            if self.initial:
                session.run(self.initial)
            for values in (feeds, feeds, [*feeds[1:3], feeds[0], *feeds[3:]]):
                try:
                    out += session.run(self.fetches, dict(zip(self.feeds, values, strict=True)))
                except FailedPreconditionError as e:
                    out.append((type(e), "uninitialized value" in str(e)))
                    if self.writes:  # an error may come before or after writes that no edge orders
                        break
                else:
                    for v in self.vectors:
                        if v.initializer in self.initial:
                            out.append(session.run(v))
        return out


def check(seed: int, devices: int = 1) -> None:
    program = Program(seed, devices)
    rng = random.Random(seed)
    for _ in range(2):
        feeds = [*(np.int32(rng.choice([0, 0, 1, 2, 2])) for _ in range(3)), rng.random() < 0.6, np.full(VECTOR, 0.5)]
        want = program.run(feeds, **REFERENCE)
        for engine in ENGINES if devices == 1 else [{"OPTIMIZE": "on"}]:
            got = program.run(feeds, **engine)
            assert len(got) == len(want), (engine, got, want)
            for a, b in zip(got, want, strict=True):
                if isinstance(a, tuple) or isinstance(b, tuple):
                    assert a == b, (engine, got, want)
                else:
                    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=f"{engine}")


@pytest.mark.rotated(2)
@pytest.mark.parametrize("seed", range(50))
def test_reads_of_variables_in_random_programs(seed: int) -> None:
    check(seed)


@pytest.mark.rotated(2)
@pytest.mark.parametrize("seed", range(20))
def test_reads_of_variables_on_two_devices(seed: int) -> None:
    check(seed, 2)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_reads_of_variables_in_many_random_programs() -> None:
    for seed in range(1000, 2000):
        check(seed, 2 if seed % 5 == 0 else 1)
