"""Runs a step over several devices in one thread, in a seeded random order.

After the step it checks that nothing is left over.

The interleaving of the threads of devices is not reproducible. Here one thread drives the executors of all parts: the
device that goes on next, the number of its nodes and the first of its ready nodes are drawn from a seed. So every
interference of two devices happens sooner or later, and happens again with the same seed. A token on its way waits in
the queue of the receiving device until that has its turn.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from headrace.execute.devices import LocalDevice, make_devices
from headrace.execute.part import Part
from headrace.execute.parts import PartsProgram
from headrace.execute.plan import Plan
from headrace.execute.run import RunEnvironment
from headrace.execute.step import Step
from headrace.execute.step_state import Abort, Begin, End, Probe, Release, Start
from headrace.grad.differentiate import differentiate
from headrace.ir.analysis import frames
from headrace.ir.edit.editor import own_bodies
from headrace.ir.graph import Operation, Tensor
from headrace.lower import Lowered, lower
from headrace.optimize.base import Options
from headrace.optimize.loops import LOOP_PASSES
from headrace.optimize.pipeline import optimize
from headrace.partition import partition
from headrace.place.colocation import colocation_groups
from headrace.place.costs import is_free
from headrace.place.groups import Group
from headrace.prune import prune
from headrace.resources.manager import ResourceManager
from tests.execute.machine import SeededReady
from tests.partition.plans import plan_of, through_bytes

CPU = "/job:localhost/replica:0/task:0/device:CPU:"

Placement = Mapping[Operation, str]


# those that keep every bit of the results
EXACT = Options(off=frozenset(p.name for p in LOOP_PASSES if not p.is_exact), is_lowered=True)


def lowered(
    fetches: Sequence[Tensor],
    feeds: Sequence[Tensor] = (),
    targets: Sequence[Operation] = (),
    options: Options | None = None,
) -> Lowered:
    """The primitive form of a step, after the passes with `options`; None: without passes."""
    pruned = prune(feeds, fetches, targets)
    preserved: Sequence[Operation] = [op for t in targets if (op := pruned.graph.find(t.name)) is not None]
    if options is not None:
        own_bodies(pruned.graph)
        preserved = optimize(pruned.graph, preserved, options).preserved
    return lower(pruned.graph, preserved, differentiate)


def groups(step: Lowered) -> list[Group]:
    """Groups of operations of the root graph that have to share a device."""
    wanted = set(step.ops)
    made = colocation_groups(step.ops, frames.derive(step.ops), step.functions).groups
    return [g for g in made if not wanted.isdisjoint(g.ops)]


def placed(step: Lowered, choose: Callable[[Group], int]) -> Placement:
    """Each group on the device that `choose` says."""
    of: dict[Operation, str] = {}
    for g in groups(step):
        of.update(dict.fromkeys(g.ops, f"{CPU}{choose(g)}"))
    return of


def at_random(step: Lowered, rng: random.Random, devices: int) -> Placement:
    """Each group on a random device; of some placements most are on one."""
    lean = rng.choice([0.0, 0.0, 0.6, 0.9])
    return placed(step, lambda g: 0 if rng.random() < lean else rng.randrange(devices))


def every(step: Lowered, devices: int) -> Iterator[Placement]:
    """All placements on `devices` devices, up to a renaming of the devices.

    Constants are on the devices of their uses.
    """
    there = groups(step)
    constants = [g for g in there if all(map(is_free, g.ops))]
    found = [g for g in there if g not in constants]

    def extend(chosen: list[int], used: int) -> Iterator[list[int]]:
        if len(chosen) == len(found):
            yield chosen
            return
        for d in range(min(used + 1, devices)):
            yield from extend([*chosen, d], max(used, d + 1))

    for chosen in extend([], 0):
        where = dict(zip([*found, *constants], [*chosen, *(0 for _ in constants)], strict=True))
        yield {op: f"{CPU}{d}" for g, d in where.items() for op in g.ops}


def count(step: Lowered, devices: int) -> int:
    """Number of placements that `every` yields."""
    n = sum(not all(map(is_free, g.ops)) for g in groups(step))
    ways = [1] + [0] * devices  # of placing the groups so far on exactly k devices
    for _ in range(n):
        ways = [0] + [ways[k] * k + ways[k - 1] for k in range(1, devices + 1)]
    return sum(ways)


class AtOnce:
    """Heavy kernels run where they are given in."""

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        out: Future[Any] = Future()
        out.set_result(work())
        return out


class AtOnceDevice(LocalDevice):
    """A device without threads."""

    def compute(self) -> Any:
        return AtOnce()


def planned(step: Lowered, of: Placement) -> dict[str, Plan]:
    """Returns a plan for each part of a step; each part goes through bytes."""
    before = {op.graph: op.graph.version for ops in (step.ops, *step.functions.values()) for op in ops}
    parts = partition(step.ops, of, functions=step.functions)
    plans = {name: plan_of(through_bytes(part), False) for name, part in parts.items()}
    assert all(graph.version == version for graph, version in before.items())  # the input is not changed
    return plans


def is_idle(part: Part) -> bool:
    """Whether no node of a part is ready."""
    e = part.executor
    return e.finished or bool(e._waiting and not e._ready and not e._calls and e.step.completions.empty())


class Driven:
    """A step over several devices, driven by one thread.

    Args:
      plans: of the step's parts.
      seed: of all that is left open.
      session: its resources.
    """

    def __init__(self, plans: Mapping[str, Plan], seed: int, session: ResourceManager | None = None) -> None:
        self.random = random.Random(seed)
        self.queues: dict[str, SeededReady] = {}
        devices = {name: AtOnceDevice(d.spec) for name, d in make_devices({"CPU": 9}).items()}
        resources = ResourceManager() if session is None else session
        self.step = Step(resources, ResourceManager, ready=self._queue)
        self.parts = PartsProgram(plans, RunEnvironment(devices=devices)).start(self.step)

    def _queue(self, name: str) -> SeededReady:
        out = self.queues[name] = SeededReady(self.random.getrandbits(32))
        return out

    def run(self, feeds: Sequence[Any] = (), fetches: int = 1) -> list[Any]:
        """The values of so many fetches; everything is checked to have come to its end."""
        for i, x in enumerate(feeds):
            self.parts.feed(i, x)
        self._mail: list[Any] = [Begin()]  # events and instructions on their way
        self._ends: list[End] = []
        parts = list(self.parts.parts.values())
        started: set[str] = set()
        reported: dict[str, Any] = {}  # the last report of each part, without its number
        while not self._ends:
            self.random.shuffle(parts)
            for part in parts:
                if part.name in started:
                    part.executor.advance(self.random.choice([1, 1, 2, 5, 100]), once=True)
            for _ in range(self.random.choice([0, 1, 1, 3])):
                self._deliver(started)
            for part in parts:
                if part.name in started and is_idle(part):
                    report = part.report()
                    seen = dataclasses.replace(report, epoch=0)
                    if reported.get(part.name) != seen:  # it became idle, or a token arrived that wakes no node
                        reported[part.name] = seen
                        self._mail.append(report)
        for _ in range(len(self._mail)):
            self._deliver(started)
        assert self._ends == [End(None)]
        out = [self.parts.fetch(i) for i in range(fetches)]
        self.check()
        return out

    def _deliver(self, started: set[str]) -> None:
        """Delivers an event or instruction on its way, in any order; some are delivered twice."""
        if not self._mail:
            return
        i = self.random.randrange(len(self._mail))
        mail = self._mail[i] if self.random.random() < 0.2 else self._mail.pop(i)
        if isinstance(mail, (Start, Release)):
            self.parts.parts[mail.part].obey(mail, is_fed=True)
            started.add(mail.part)
        elif isinstance(mail, Probe):
            part = self.parts.parts[mail.part]
            if is_idle(part):
                part.probe(mail.wave)
                self._mail.append(part.report())
            else:
                self._mail.append(mail)  # it reports when it is idle
        else:
            assert not isinstance(mail, Abort), mail.error
            made = self.parts.state.handle(mail)
            if any(isinstance(m, Release) for m in made):
                assert all(map(is_idle, self.parts.parts.values())), "an iteration is ended while a token is under way"
            self._ends += [m for m in made if isinstance(m, End)]
            self._mail += [m for m in made if not isinstance(m, End)]

    def check(self) -> None:
        """Asserts the invariant on each device, and that no token is left over."""
        assert len(self.parts.rendezvous) == 0, self.parts.rendezvous.table()
        for name, part in self.parts.parts.items():
            self.queues[name].check(part.executor.propagator)
            assert not part.executor._waiting, name


def run(step: Lowered, of: Placement, seed: int, feeds: Sequence[Any] = (), fetches: int = 1) -> list[Any]:
    """Runs a step with the placement `of` in the order of `seed`; returns its fetches."""
    return Driven(planned(step, of), seed).run(feeds, fetches)
