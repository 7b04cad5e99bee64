"""Recvs are held back until their values are needed.

The gates never make two devices wait for each other.
"""

from __future__ import annotations

import random

import pytest

from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.partition import Part
from tests.execute.loops import Loop
from tests.partition.machine import Parts, cut, names

pytestmark = pytest.mark.one_engine

A, B = names(2)


def chain(b: Builder, x: Tensor, length: int, name: str) -> list[Tensor]:
    """Operations each of which needs the one before: name, name_1, ..."""
    out = [x]
    for _ in range(length):
        out.append(b.Neg(out[-1], name=name))
    return out[1:]


def gate_of(part: Part, recv: str) -> list[str]:
    """The gates of a Recv."""
    op = part.graph.find(recv)
    assert op is not None
    return [c.name for c in op.control_inputs]


def across(parts: dict[str, Part]) -> list[Operation]:
    """All operations of all parts, each after those it waits for.

    Raises if there is a cycle through several devices.
    """
    ops = [op for p in parts.values() for op in p.ops]
    sends = {op.attrs["tensor_name"]: op for op in ops if op.opdef.primitive == "Send"}
    for op in ops:
        if op.opdef.primitive == "Recv":
            op.control_inputs.append(sends[op.attrs["tensor_name"]])
    try:
        return walk.toposort(ops)
    finally:
        for op in ops:
            if op.opdef.primitive == "Recv":
                op.control_inputs.pop()


def test_a_recv_starts_when_its_value_is_soon_needed() -> None:
    """B computes for ten seconds before it uses what A has after one."""
    b = Builder(Graph())
    x, y = b.Identity(b.const(3.0), name="x"), b.Identity(b.const(5.0), name="y")
    early = b.Neg(x, name="early")
    work = chain(b, y, 10, "work")
    end = b.AddV2(early, work[-1], name="end")
    of = dict.fromkeys(b.graph.operations, B) | {x.op: A, early.op: A}
    costs = dict.fromkeys(of, 1.0)
    parts = cut(b.graph.operations, of)
    assert gate_of(parts[B], "early/from_CPU_0") == [], "nothing is known of the costs"
    parts = cut(b.graph.operations, of, costs=costs)
    assert gate_of(parts[B], "early/from_CPU_0") == [work[-1].op.name]
    assert Parts(parts).run().value(end) == 2.0


def test_a_recv_on_the_critical_path_is_not_held_back() -> None:
    b = Builder(Graph())
    x, y = b.Identity(b.const(3.0), name="x"), b.Identity(b.const(5.0), name="y")
    late = chain(b, x, 10, "late")[-1]
    work = chain(b, y, 3, "work")
    b.AddV2(late, work[-1], name="end")
    of = dict.fromkeys(b.graph.operations, B)
    of.update((op, A) for op in walk.reachable([late.op]))
    parts = cut(b.graph.operations, of, costs=dict.fromkeys(of, 1.0))
    assert gate_of(parts[B], f"{late.op.name}/from_CPU_0") == []


def test_a_gate_does_not_wait_for_what_it_gates_through_another_device() -> None:
    """`g` would be done in time, but A needs a result of B for it.

    B makes the result from the value that is to be held back.
    """
    b = Builder(Graph())
    x = b.Identity(b.const(3.0), name="x")
    used = b.Neg(x, name="used")  # on B
    back = b.Neg(used, name="back")  # on A
    g = b.Neg(back, name="g")  # on B
    work = chain(b, b.Identity(b.const(1.0), name="y"), 20, "work")
    b.AddV2(b.AddV2(g, x, name="sum"), work[-1], name="end")
    of = dict.fromkeys(b.graph.operations, B) | {x.op: A, back.op: A}
    parts = cut(b.graph.operations, of, costs=dict.fromkeys(of, 1.0))
    gates = gate_of(parts[B], "x/from_CPU_0")
    assert gates
    assert gates[0].startswith("work")
    assert gate_of(parts[B], "back/from_CPU_0")[0].startswith("work")
    across(parts)
    Parts(parts).run()


def test_a_gate_does_not_wait_for_what_it_gates_through_a_loop() -> None:
    """On B there is nothing to wait for but `g`.

    `g` needs the result of a loop over the value that is to be held back.
    """
    b = Builder(Graph())
    x, y = b.Identity(b.const(3.0), name="x"), b.Identity(b.const(1.0), name="y")
    work = chain(b, y, 20, "work")
    before = len(b.graph)
    loop = Loop(b)
    i, limit = loop.var(x), loop.constant(b.const(5.0))
    loop.goes_while(b.Less(i, limit))
    loop.next(i, b.AddV2(loop.body(i), loop.const(1.0)))
    g = b.Neg(loop.exit(i), name="g")
    inside = b.graph.operations[before:]
    end = b.AddV2(g, work[-1], name="end")
    of = dict.fromkeys(b.graph.operations, A) | dict.fromkeys(inside, B)
    parts = cut(b.graph.operations, of, costs=dict.fromkeys((t.op for t in (g, end, *work)), 1.0))
    assert gate_of(parts[B], "x/from_CPU_0") == []
    assert Parts(parts).run().value(end) == -4.0


def test_a_cost_that_is_lost_in_rounding_makes_no_gate() -> None:
    b = Builder(Graph())
    x, y = b.Identity(b.const(3.0), name="x"), b.Identity(b.const(1.0), name="y")
    work, g = chain(b, y, 2, "work"), b.Neg(x, name="g")
    b.AddV2(g, work[-1], name="end")
    of = dict.fromkeys(b.graph.operations, A) | {g.op: B}
    costs = dict.fromkeys((t.op for t in work), 1e6) | {g.op: 1e-20}
    parts = cut(b.graph.operations, of, costs=costs)
    assert gate_of(parts[B], "x/from_CPU_0") == []


def _loop(b: Builder) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """A loop whose variable has a quick update, and work for an unused result.

    Returns the work, the operand to which it is added, the next value of the variable, and the result of the loop.
    """
    loop = Loop(b)
    i = loop.var(b.const(0.0))
    limit = loop.constant(b.const(3.0))
    loop.goes_while(b.Less(i, limit))
    quick = b.Neg(loop.body(i), name="quick")
    work = chain(b, loop.body(i), 10, "work")
    b.AddV2(quick, work[-1], name="beside")
    step = b.AddV2(loop.body(i), loop.const(1.0), name="step")
    loop.next(i, step)
    return work, quick, step, b.Identity(loop.exit(i))


def test_what_goes_round_is_not_held_back() -> None:
    b = Builder(Graph())
    work, quick, step, result = _loop(b)
    of = dict.fromkeys(b.graph.operations, A) | {quick.op: B, step.op: B}
    parts = cut(b.graph.operations, of, costs=dict.fromkeys(of, 1.0))
    merge = ["LoopCond/control/Merge"]
    assert gate_of(parts[A], "step/from_CPU_1") == merge
    assert gate_of(parts[A], "quick/from_CPU_1") == [*merge, work[-1].op.name]
    assert gate_of(parts[B], "LoopCond/from_CPU_0") == merge
    for seed in range(10):
        assert Parts(parts, seed).run().value(result) == 3.0


@pytest.mark.matrix
def test_any_costs_give_no_cycle() -> None:
    """The proof that there is no cycle needs no good estimates of costs.

    Random costs, on random graphs, hold back many Recvs and block none.
    """
    held = 0
    for seed in range(60):
        rng = random.Random(seed)
        b = Builder(Graph())
        made = [b.Identity(b.const(1.0)) for _ in range(2)]
        for _ in range(40):
            kind = rng.random()
            at = b.after(rng.choice(made)) if kind < 0.2 else b
            made.append(at.AddV2(*rng.choices(made[-9:], k=2)) if kind < 0.6 else at.Neg(rng.choice(made)))
        devices = names(3)
        of = {op: rng.choice(devices) for op in b.graph.operations}
        costs = {op: rng.choice((0.0, 1e-9, rng.random(), 1e6)) for op in of if rng.random() < 0.9}
        free = cut(b.graph.operations, of)
        parts = cut(b.graph.operations, of, costs=costs)
        held += sum(len(op.control_inputs) for p in parts.values() for op in p.ops if op.opdef.primitive == "Recv")
        held -= sum(len(op.control_inputs) for p in free.values() for op in p.ops if op.opdef.primitive == "Recv")
        across(parts)
        Parts(parts, seed).run()
    assert held > 200
