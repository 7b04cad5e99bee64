"""Random programs under random placements, in random orders.

The results of all devices together are those of one device.
"""

from __future__ import annotations

import itertools
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.lower import lower
from headrace.partition.copies import is_copied
from headrace.prune import prune
from tests.execute.loops import Loop, counting
from tests.execute.machine import DEAD, Machine
from tests.execute.programs import Block, Lowering, evaluate, show
from tests.execute.test_random_graphs import NAMES, PROGRAMS, oracle, random_graph
from tests.partition.machine import Parts, compute, cut, names, place, units

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

some = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
many = settings(max_examples=2000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def _check_program(program: Block, starts: list[int], rng: random.Random) -> None:
    want = evaluate(program, dict(zip(NAMES, starts, strict=True)))
    for parallel_iterations in (1, 2, 10):
        b = Builder(Graph())
        feeds = [b.Placeholder(dtype="int32", shape=()) for _ in NAMES]
        results = Lowering(b, parallel_iterations).lower(program, dict(zip(NAMES, feeds, strict=True)))
        pruned = prune(feeds, [results[n] for n in NAMES], [])
        of = place(pruned.graph.operations, rng, rng.choice((2, 2, 3)))
        costs = {op: rng.random() for op in of} if rng.random() < 0.5 else None
        seed = rng.randrange(1000)
        try:
            parts = cut(pruned.graph.operations, of, costs=costs)
            run = Parts(parts, seed).run({i: np.int32(v) for i, v in enumerate(starts)})
            got = {n: int(run.results()[i]) for i, n in enumerate(NAMES)}
            assert got == want
        except BaseException as e:
            e.add_note(f"{show(program)}\nfrom {starts}, parallel_iterations {parallel_iterations}, seed {seed}")
            raise


@some
@given(PROGRAMS, st.integers(0, 2**32))
def test_random_programs(case: tuple[Block, list[int]], seed: int) -> None:
    _check_program(*case, random.Random(seed))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@many
@given(PROGRAMS, st.integers(0, 2**32))
def test_many_random_programs(case: tuple[Block, list[int]], seed: int) -> None:
    _check_program(*case, random.Random(seed))


def _check_graph(seed: int) -> None:
    """Random Switches, Merges and control edges; each device must agree with the oracle."""
    rng = random.Random(seed)
    graph = random_graph(rng)
    parts = cut(graph.operations, place(graph.operations, rng, 3))
    run = Parts(parts, rng.randrange(1000)).run()
    picks: dict[Operation, int] = {}
    for op in graph.operations:
        if op.type == "Merge" and run.value(op) is not DEAD:
            picks[op] = run.value(op)[1]
    want = oracle(graph, picks)
    for op in graph.operations:
        if op.type != "Const" or op.control_inputs:  # else it is no node
            assert (run.value(op) is DEAD) == (want[op] is DEAD), op
            for t in op.outputs:
                assert run.value(t) is want[t] or run.value(t) == want[t], t


@some
@given(st.integers(0, 2**32))
def test_random_primitive_graphs(seed: int) -> None:
    _check_graph(seed)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@many
@given(st.integers(0, 2**32))
def test_many_random_primitive_graphs(seed: int) -> None:
    _check_graph(seed)


# *** every placement of small ones ***


def _a_loop(b: Builder, trips: int, parallel_iterations: int) -> Tensor:
    _, i = loop = counting(b, trips, parallel_iterations=parallel_iterations)
    return loop[0].exit(i)


def _a_dead_loop(b: Builder, trips: int, parallel_iterations: int) -> Tensor:
    """In a branch that is taken if trips is even."""
    no, yes = b.Switch(b.const(trips), b.const(trips % 2 == 0))
    loop = Loop(b, "loop", parallel_iterations)
    i = loop.var(yes)
    loop.goes_while(b.Greater(i, b.after(i.op).const(0)))
    loop.next(i, b.Sub(loop.body(i), loop.const(1)))
    out: Tensor = b.Merge([loop.exit(i), no])[0]
    return out


@pytest.mark.parametrize("make", [_a_loop, _a_dead_loop])
@pytest.mark.parametrize("trips", [0, 1, 3])
def test_placements_of_a_loop(make: Any, trips: int) -> None:
    _check_placements(make, trips, 60)


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("make", [_a_loop, _a_dead_loop])
def test_every_placement_of_a_loop(make: Any) -> None:
    for trips in range(4):
        _check_placements(make, trips, 1 << 20)


def _check_placements(make: Any, trips: int, most: int) -> None:
    """Checks about `most` of the placements on two devices.

    The placement of an operation that is copied anyway makes no difference.
    """
    rng = random.Random(trips)
    b = Builder(Graph())
    result = make(b, trips, (1, 2, 10)[trips % 3])
    pruned = prune([], [result], [])
    ops = pruned.graph.operations
    (want,) = Machine(ops, compute=compute).run().value(pruned.retvals[0])
    copied = dict.fromkeys((op for op in ops if is_copied(op)), names(1)[0])
    groups = [group for group in units(ops) if not copied.keys() >= set(group)]
    for devices in itertools.product(names(2), repeat=len(groups)):
        if rng.random() > most / 2 ** len(groups):
            continue
        of = copied | {op: d for d, group in zip(devices, groups, strict=True) for op in group}
        run = Parts(cut(ops, of), rng.randrange(1000)).run()
        assert run.results()[0] == want, devices


# *** programs as users write them ***


def _nested(x: Any) -> Any:
    def body(i: Any, y: Any) -> Any:
        _, z = hr.while_loop(lambda j, z: j < i, lambda j, z: (j + 1, z * x + 0.1), [0, y])
        return i + 1, hr.cond(hr.reduce_sum(z) > 1.0, lambda: z - x, lambda: z * 2.0)

    return hr.while_loop(lambda i, y: i < 3, body, [0, x])[1]


def test_gradients_of_nested_loops() -> None:
    """The backward loops pop the values that the forward ones pushed, under any placement."""
    with hr.Graph():
        x = hr.placeholder(hr.float32, [2])
        y = hr.reduce_sum(_nested(x))
        (dx,) = hr.gradients(y, [x])
        (ddx,) = hr.gradients(hr.reduce_sum(dx), [x])
        pruned = prune([x], [y, dx, ddx], [])
    lowered = lower(pruned.graph)
    ops = lowered.ops
    fed = {0: np.array([0.3, -0.2], np.float32)}
    alone = Machine(ops, compute=compute).run(fed)
    rets = sorted((op for op in ops if op.type == "_Retval"), key=lambda op: op.attrs["index"])
    want = [alone.value(op)[0] for op in rets]
    assert not np.allclose(want[1], 0)
    rng = random.Random(5)
    for _ in range(4):
        of = place(ops, rng, 3)
        run = Parts(cut(ops, of), rng.randrange(1000)).run(fed)
        for i, value in enumerate(want):
            np.testing.assert_array_equal(run.results()[i], value)
