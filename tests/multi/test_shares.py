"""Shares of random programs on random devices: together they compute the results of one device.

Each operation of the structured graph, nested ones included, is on a random device. The shares are compiled, and run in
a random order.
"""

from __future__ import annotations

import dataclasses
import io
import random
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.compile import compile_graph
from headrace.compile.blockers import blockers
from headrace.errors import InvalidArgumentError
from headrace.execute.entered import entered
from headrace.execute.step import Step
from headrace.grad.differentiate import differentiate
from headrace.ir.edit.add_values import own_graphs
from headrace.ir.edit.editor import own_bodies
from headrace.ir.function import nested_operations, owned, recursive_functions
from headrace.ir.graph import Graph, Operation
from headrace.ir.verify import verify
from headrace.optimize.base import Options
from headrace.optimize.pipeline import optimize
from headrace.partition.shares import Indivisible, Share, divide
from headrace.prune import StepGraph, prune
from headrace.resources.manager import ResourceManager
from tests import tiers
from tests.grad.test_random_gradients import Example, Made, _all
from tests.inside import manager_of
from tests.multi.drawn import PARALLEL, drawn

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]

ran: Counter[str] = Counter()  # programs that were divided, and those that were refused


class Exchange:
    """Values between the shares of one step."""

    def __init__(self) -> None:
        self._queues: dict[str, deque[Any]] = {}
        self.sent = 0

    def queue(self, edge: str) -> deque[Any]:
        return self._queues.setdefault(edge, deque())

    def sender(self, edge: str, is_last: bool) -> Callable[..., None]:
        del is_last

        def send(value: Any = None) -> None:
            self.sent += 1
            self.queue(edge).append(value)

        return send

    def is_empty(self) -> bool:
        return not any(self._queues.values())


def operations(graph: Graph) -> Iterator[Operation]:
    """The operations of a graph and of the graphs in it."""
    for op in graph.operations:
        yield op
        for g in owned(op):
            yield from operations(g)


def at_random(step: StepGraph, rng: random.Random, devices: int = 3) -> dict[Operation, str]:
    """A random device for each operation without graphs; those that touch a handle are together."""

    def device(op: Operation) -> str:
        is_handle = any(t.dtype is dtypes.resource or t.dtype.is_ref for t in (*op.inputs, *op.outputs))
        return f"/job:worker/replica:0/task:{0 if is_handle else rng.randrange(devices)}/device:CPU:0"

    return {op: device(op) for op in operations(step.graph) if not op.opdef.structured and op.type != "_Arg"}


def run(
    step: StepGraph, where: Mapping[Operation, str], feeds: Sequence[Any], resources: ResourceManager, seed: int = 0
) -> tuple[list[Any], Mapping[str, Share], Exchange]:
    """Divides a step and runs its shares by turns, in a random order."""
    before = step.graph.version
    shares = divide(step.graph, step.args, step.retvals, step.targets, where)
    assert step.graph.version == before  # the input is not changed
    exchange, out = Exchange(), dict[int, Any]()

    def go(share: Share) -> Iterator[deque[Any]]:
        verify(share.graph)
        code = compile_graph(share.graph, share.args, share.retvals, share.targets, differentiate)
        of = Step(resources, ResourceManager)
        of.exchange = exchange
        fed = [feeds[op.attrs["index"]] for op in share.args]
        with entered(code.flushes):
            values = (yield from code.begin(of, fed)) if code.suspends else code.run(of, fed)
        out.update((op.attrs["index"], v) for op, v in zip(share.retvals, values, strict=True))

    rng = random.Random(seed)
    waiting: dict[Iterator[deque[Any]], deque[Any] | None] = dict.fromkeys(map(go, shares.values()))
    while waiting:
        ready = [share for share, awaited in waiting.items() if awaited is None or awaited]
        assert ready, "all shares wait"
        share = rng.choice(ready)
        try:
            waiting[share] = next(share)
        except StopIteration:
            del waiting[share]
    assert exchange.is_empty()
    return [out[i] for i in range(len(step.retvals))], shares, exchange


def prepared(step: StepGraph, is_optimized: bool) -> StepGraph:
    step = step.copy()
    for op in nested_operations(step.graph.operations):
        if op.opdef.structured == "Call" and not recursive_functions([op]):
            own_graphs(op)
    if is_optimized:
        own_bodies(step.graph)
        step = dataclasses.replace(step, targets=tuple(optimize(step.graph, step.targets, Options()).preserved))
    if blockers(step.graph.operations, True):
        raise Indivisible("an operation waits")
    return step


def check_gradients(seed: int, is_optimized: bool) -> None:
    rng = random.Random(f"shares gradients {seed}")
    e = Example(80_000 + seed)
    with Made(e, rng.choice(PARALLEL)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    feeds = {made.inputs[n]: x for n, x in e.at.items() if n != "V"}
    with made.session() as session:
        want = made.run(fetches, session)
        step = prepared(prune(list(feeds), fetches, []), is_optimized)
        got, _, _ = run(step, at_random(step, rng), list(feeds.values()), manager_of(session), seed)
    for t, a, b in zip(fetches, got, want, strict=True):
        e.close(a, b, t.name)


def check_values(seed: int, is_optimized: bool) -> None:
    rng = random.Random(f"shares values {seed}")
    d = drawn(rng, False)
    build, python, failure = d.build, d.python, d.failure
    step = prepared(prune(list(build.feeds), d.values, []), is_optimized)
    err, sys.stderr = sys.stderr, io.StringIO()
    failed: InvalidArgumentError | None = None
    got: list[Any] = []
    try:
        got, _, _ = run(step, at_random(step, rng), list(build.feeds.values()), ResourceManager(), seed)
    except InvalidArgumentError as e:
        failed = e
    finally:
        sys.stderr = err
    if failure is not None:
        assert f"assertion failed: {failure}" in str(failed)
        return
    if failed is not None:
        raise failed
    for name, x in zip(d.names, got, strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.array(python.values[name], np.int32), name)


def _unless_indivisible(check: Callable[[int, bool], None], seed: int, is_optimized: bool) -> None:
    why = ""
    try:
        check(seed, is_optimized)
    except Indivisible as e:
        why = str(e)
    assert not why or why == "an operation waits" or "calls a function" in why
    ran["refused" if why else "divided"] += 1


@pytest.mark.parametrize("is_optimized", [False, True])
@pytest.mark.parametrize("check", [check_values, check_gradients])
@pytest.mark.parametrize("block", [0, *(pytest.param(b, marks=pytest.mark.nightly) for b in range(1, 12))])
def test_shares_of_random_programs(check: Callable[[int, bool], None], block: int, is_optimized: bool) -> None:
    ran.clear()
    _all(
        tiers.rotated(range(12 * block, 12 * (block + 1)), 2),
        lambda seed: _unless_indivisible(check, seed, is_optimized),
    )
    assert ran["divided"] > ran["refused"]


def _step(fetches: Sequence[Any], feeds: Sequence[Any] = (), targets: Sequence[Any] = ()) -> StepGraph:
    return prune(feeds, fetches, targets)


def test_a_variable_that_an_inner_loop_returns_unchanged_is_a_constant_of_the_outer_loop() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.int32, ())
        inner = lambda i, a: hr.while_loop(lambda j, b: j < 2, lambda j, b: (j + 1, b), [0, a])[1]
        y = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, inner(i, a)), [0, x])[1] + 1
    step = _step([y], [x])
    for seed in range(6):
        got, _, _ = run(step, at_random(step, random.Random(seed)), [np.int32(7)], ResourceManager())
        assert got == [8]


def test_a_loop_that_only_counts_sends_no_predicates() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        y = hr.while_loop(lambda i, a: i < 50, lambda i, a: (i + 1, hr.sin(a) * 2.0), [0, x])[1]
    step = _step([y], [x])
    where = {op: f"/job:w/replica:0/task:{int(op.type == 'Sin')}/device:CPU:0" for op in operations(step.graph)}
    got, shares, exchange = run(step, where, [np.float32(0.5)], ResourceManager())
    assert len(shares) == 2
    assert exchange.sent == 2 * 50  # the variable there, and its sine back
    with hr.Session(graph=x.graph) as session:
        assert got == [session.run(y, {x: 0.5})]


def test_the_final_value_of_a_counter_reaches_a_device_without_the_loop() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        n, y = hr.while_loop(lambda i, a: i < 50, lambda i, a: (i + 1, hr.sin(a) * 2.0), [0, x])
        z = n - 1
    step = _step([z, y], [x])
    tasks = {"Sin": 1, "Sub": 2}
    where = {op: f"/job:w/replica:0/task:{tasks.get(op.type, 0)}/device:CPU:0" for op in operations(step.graph)}
    for seed in range(4):
        got, shares, _ = run(step, where, [np.float32(0.5)], ResourceManager(), seed)
        assert len(shares) == 3
        assert got[0] == 49


def test_control_edges_between_devices_are_kept() -> None:
    with hr.Graph():
        v = hr.Variable(1, name="v")
        with hr.control_dependencies([v.assign_add(5)]):
            x = hr.identity(hr.constant(3), name="x")
        with hr.control_dependencies([x]):
            y = v.read_value() * 2
    resources = ResourceManager()
    step = _step([], (), [v.initializer])
    run(step, at_random(step, random.Random(0)), [], resources)
    step = _step([x, y])
    where = at_random(step, random.Random(0))
    where.update((op, "/job:worker/replica:0/task:1/device:CPU:0") for op in where if op.name == "x")
    got, _, exchange = run(step, where, [], resources)
    assert got == [3, 12]
    assert exchange.sent >= 2


def test_a_handle_does_not_leave_its_device() -> None:
    with hr.Graph():
        v = hr.Variable(1, name="v")
        y = v.read_value() + 1
    step = _step([y])
    where = {op: f"/job:w/replica:0/task:{i % 2}/device:CPU:0" for i, op in enumerate(operations(step.graph))}
    reads = [op for op in where if op.type == "ReadVariableOp"]
    where[reads[0].inputs[0].op], where[reads[0]] = (f"/job:w/replica:0/task:{i}/device:CPU:0" for i in range(2))
    with pytest.raises(Indivisible, match="is a handle on"):
        divide(step.graph, step.args, step.retvals, step.targets, where)


def test_floats_are_sent_as_bfloat16_on_request() -> None:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        y = hr.identity(x + 0.0) * 1.0
    step = _step([y], [x])
    where = {op: f"/job:w/replica:0/task:{int(op.type == 'Mul')}/device:CPU:0" for op in operations(step.graph)}
    shares = divide(step.graph, step.args, step.retvals, step.targets, where, bfloat16=True)
    sent = [op for share in shares.values() for op in share.graph.operations if op.type == "_StepSend"]
    assert [op.attrs["T"] for op in sent] == [hr.bfloat16]
    with hr.Session(graph=x.graph) as session:
        assert session.run(y, {x: 1.001}) == np.float32(1.001)
