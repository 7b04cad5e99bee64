"""Causes of deadness over several devices: plain records and the text of one device."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from headrace.diagnosis import OpRef
from headrace.errors import InvalidArgumentError
from headrace.execute import parts
from headrace.execute.records import DeadCause
from headrace.execute.rendezvous import Key, LocalRendezvous
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Tensor
from headrace.lower import Lowered
from tests.execute.loops import Loop, counting
from tests.multi import seeded

pytestmark = pytest.mark.one_engine

PLACEMENTS = 12  # random placements of each program
sent: list[DeadCause] = []


class Seen(LocalRendezvous):
    """Records the causes of dead tokens."""

    def send(self, key: Key, value: Any, cause: DeadCause | None = None) -> None:
        if cause is not None:
            sent.append(cause)
        super().send(key, value, cause)


def _branch(b: Builder, p: Tensor) -> Tensor:
    return b.Identity(b.Neg(b.Switch(b.const(1), b.LogicalNot(p), name="decide")[1]))


def _fed_predicate(b: Builder, p: Tensor) -> Tensor:
    return b.Identity(b.Neg(b.Switch(b.const(1), p, name="decide")[0]))


def _three_ways(b: Builder, p: Tensor) -> Tensor:
    index = b.AddV2(b.Cast(p, DstT="int32"), b.const(7))
    return b.Neg(b.make("_SwitchN", (b.const(1.0), index), {"num_outs": 3}, "choose")[1])


def _first_of_two(b: Builder, p: Tensor) -> Tensor:
    gone = b.Switch(b.const(1), b.LogicalNot(p), name="first")[1]
    return b.AddV2(b.Identity(b.Switch(gone, p, name="second")[0]), b.const(1))


def _through_a_loop(b: Builder, p: Tensor) -> Tensor:
    gone = b.Neg(b.Switch(b.const(1), p, name="decide")[0])
    loop = Loop(b, "a")
    i = loop.var(gone)
    loop.goes_while(b.Less(i, loop.constant(gone)))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    return b.Neg(loop.exit(i))


def _in_a_loop(b: Builder, p: Tensor) -> Tensor:
    loop, i = counting(b, 0)
    return b.Neg(loop.body(i))


def _exit_that_never_fires(b: Builder, p: Tensor) -> Tensor:
    loop = Loop(b, "a")
    i, k = loop.var(b.const(0)), loop.var(b.const(5))
    loop.goes_while(b.Less(i, loop.constant(b.const(2))))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    loop.next(k, b.Neg(b.Switch(loop.body(k), loop.constant(p), name="inside")[0]))
    loop.exit(i)
    return b.Neg(loop.exit(k))


PROGRAMS: dict[str, tuple[Callable[[Builder, Tensor], Tensor], str]] = {
    "branch": (_branch, r"the Switch 'decide' \(Switch\), made at .* its predicate 'LogicalNot:0' was False"),
    "fed": (_fed_predicate, r"to the true side: its predicate 'p:0' was True\. Fetch"),
    "three ways": (
        _three_ways,
        r"'choose' \(_SwitchN\), made at .* to output 2 of 3: its output_index 'AddV2:0' was 8",
    ),
    "two switches": (_first_of_two, r"the Switch 'first'"),
    "loop": (_through_a_loop, r"the Switch 'decide'"),
    "iteration": (_in_a_loop, r"was False in iteration 0 of loop 'count'"),
    "exit": (_exit_that_never_fires, r"its predicate 'LoopCond:0' was True in iteration 0 of loop 'a'"),
}


@pytest.mark.system
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_error_of_a_dead_fetch_is_that_of_one_device(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LocalRendezvous", Seen)
    program, pattern = PROGRAMS[name]
    b = Builder(Graph())
    p = b.Placeholder(dtype="bool", shape=(), name="p")
    step = _lowered(program(b, p), p)
    rng = random.Random(name)
    seen: set[str] = set()
    sent.clear()
    for seed in range(PLACEMENTS):
        of = seeded.at_random(step, rng, 3) if seed else seeded.placed(step, lambda group: 0)
        with pytest.raises(InvalidArgumentError, match=pattern) as caught:
            seeded.run(step, of, seed, [np.bool_(True)])
        seen.add(str(caught.value))
    assert len(seen) == 1, seen
    assert sent
    for cause in sent:
        assert all(isinstance(v, (str, int)) for v in (*dataclasses.astuple(cause.op), *_plain(cause)))


def _lowered(fetch: Tensor, fed: Tensor) -> Lowered:
    step = seeded.lowered([fetch], [fed])
    (arg,) = (op for op in step.ops if op.type == "_Arg")
    arg.attrs["of"] = fed.name  # as a session names it
    return step


def _plain(cause: DeadCause) -> list[Any]:
    return [getattr(cause, f.name) for f in dataclasses.fields(cause) if f.name != "op"]


def test_a_cause_that_was_received_is_passed_on_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LocalRendezvous", Seen)
    b = Builder(Graph())
    p = b.Placeholder(dtype="bool", shape=(), name="p")
    x = b.Switch(b.const(1), p, name="decide")[0]
    want = DeadCause(OpRef("decide", "Switch", str(x.op.source)), "", "p:0", 1, 2)
    for _ in range(3):
        x = b.Neg(x)
    step = _lowered(x, p)
    turns = {"decide": 0, "Neg": 1, "Neg_1": 2, "Neg_2": 0}
    of = {op: f"{seeded.CPU}{turns.get(op.name, 0)}" for op in step.ops}
    sent.clear()
    with pytest.raises(InvalidArgumentError, match="the Switch 'decide'"):
        seeded.run(step, of, 0, [np.bool_(True)])
    assert len(sent) == 3
    assert sent[0] is sent[1] is sent[2]
    assert sent[0] == want
