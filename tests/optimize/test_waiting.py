"""Passes add no wait: programs that fill their own queues end."""

from __future__ import annotations

import random

import pytest

import headrace as hr
from headrace.ir import walk
from headrace.ir.edit.editor import own_bodies
from headrace.ir.graph import Graph, Tensor
from headrace.ir.text import from_text
from headrace.optimize.base import Options, PassContext
from headrace.optimize.pipeline import optimize
from headrace.optimize.waiting import have_equal_waits, waits
from headrace.prune import prune
from tests import tiers
from tests.compile.waiting_programs import Program, Value, numbers_of
from tests.grad.test_random_gradients import _all
from tests.multi.scattering import scatter
from tests.optimize.running import LOWERED, optimized

STEP_MS = 10_000


def check_ends(seed: int) -> None:
    """An optimized program ends, with the same numbers."""
    program = Program(random.Random(seed), 12)
    with optimized(), hr.Session(graph=program.graph, engine="interpret") as session:
        assert numbers_of(session.run(program.fetches, timeout_ms=STEP_MS)) == program.numbers


@pytest.mark.matrix
@pytest.mark.one_engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("block", [*range(3), *(pytest.param(b, marks=pytest.mark.nightly) for b in range(3, 60))])
def test_programs_that_wait_for_themselves(block: int) -> None:
    _all(tiers.rotated(range(25 * block, 25 * (block + 1)), 2), check_ends)


@pytest.mark.matrix
@pytest.mark.one_engine
def test_such_a_program_hangs_if_structured_operations_wait_as_a_whole() -> None:
    program = Program(random.Random(0), 12)
    with (
        optimized(options=Options()),
        hr.Session(graph=program.graph, engine="interpret") as session,
        pytest.raises(hr.errors.DeadlineExceededError),
    ):
        session.run(program.fetches, timeout_ms=1000)


# *** partial runs ***


class _Fed(Program):
    """A program whose elements of queues are placeholders.

    Attributes:
      feeds: The placeholders, with the numbers to feed.
    """

    def __init__(self, rng: random.Random, size: int) -> None:
        self.feeds: list[tuple[Tensor, int]] = []
        super().__init__(rng, size)

    def _take(self) -> None:
        self._taken += 1
        n = self._rng.randrange(-9, 10)
        x = hr.placeholder(hr.int32, ())
        self.feeds.append((x, n))
        self._add(Value(n, self._taken), x)


def check_partial(seed: int, devices: int) -> None:
    """A fetch of a partial run is available once its feeds are fed."""
    rng = random.Random(f"partial {seed}")
    program = _Fed(rng, 10)
    if devices > 1:
        scatter(program.graph, rng, devices)
    tensors = program.fetches[0]
    placeholders = [x for x, _ in program.feeds]
    left = dict.fromkeys(t for t in tensors if t not in placeholders)
    want = dict(zip(tensors, program.numbers, strict=True))
    needs = {t: {x for x in placeholders if x.op in walk.reachable([t.op])} for t in left}
    with hr.Session(graph=program.graph, devices={"CPU": devices}, engine="auto") as session:
        handle = session.partial_run_setup(list(left), placeholders)
        fed: set[Tensor] = set()
        for x, n in program.feeds:
            fed.add(x)
            now = [t for t in left if needs[t] <= fed]
            got = session.partial_run(handle, now, {x: n})
            assert [int(v) for v in got] == [want[t] for t in now]
            for t in now:
                del left[t]


@pytest.mark.matrix
@pytest.mark.one_engine
@pytest.mark.timeout(600)
@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("block", [0, *(pytest.param(b, marks=pytest.mark.nightly) for b in range(1, 20))])
def test_partial_runs_of_random_programs(block: int, devices: int) -> None:
    _all(tiers.rotated(range(15 * block, 15 * (block + 1)), 2), lambda seed: check_partial(seed, devices))


def test_a_loop_of_a_partial_run_does_not_wait_for_the_feed_of_another_loop() -> None:
    """An iteration of fused loops waits for all variables of an earlier iteration."""
    with hr.Graph() as g:
        x, y = hr.placeholder(hr.float32, ()), hr.placeholder(hr.float32, ())
        ends = [
            hr.while_loop(lambda i, h: i < 20, lambda i, h, f=f: (i + 1, f(h)), [0, z])[1]
            for z, f in ((x, hr.abs), (y, hr.negative))
        ]
    with hr.Session(graph=g, engine="auto") as session:
        handle = session.partial_run_setup(ends, [x, y])
        assert session.partial_run(handle, ends[0], {x: -2.0}) == 2.0
        assert session.partial_run(handle, ends[1], {y: 3.0}) == 3.0


# *** single conditions ***


def _loops(is_fed: bool) -> tuple[Graph, list[Tensor]]:
    """Step with two loops over two feeds or two elements of queues."""
    with hr.Graph():
        if is_fed:
            x, y = hr.placeholder(hr.float32, ()), hr.placeholder(hr.float32, ())
        else:
            x, y = (hr.FIFOQueue(1, [hr.float32], shapes=[[]]).dequeue() for _ in range(2))
        ends = [
            hr.while_loop(lambda i, h: i < 3, lambda i, h, f=f: (i + 1, f(h)), [0, z])[1]
            for z, f in ((x, hr.sin), (y, hr.cos))
        ]
        pruned = prune([x, y] if is_fed else [], ends, [])
    own_bodies(pruned.graph)
    return pruned.graph, ends


@pytest.mark.parametrize(
    ("is_fed", "options", "left"),
    [
        (True, Options(), 1),
        (True, LOWERED, 1),
        (True, Options(is_lowered=True, is_partial=True), 2),
        (False, LOWERED, 2),
    ],
)
def test_loops_that_wait_for_different_events_are_not_fused(is_fed: bool, options: Options, left: int) -> None:
    graph, _ = _loops(is_fed)
    report = optimize(graph, (), options)
    assert sum(op.opdef.structured == "While" for op in graph.operations) == left
    reasons = [n.text for n in report.notes if n.rule == "loop_merging" and not n.fired]
    assert reasons == (["it and 'while' wait for different events"] if left == 2 else [])


EVENTS = """
q = FIFOQueueV2[component_types=(int32), shapes=([])]
a = QueueDequeueV2[component_types=(int32)](q)
b = QueueDequeueV2[component_types=(int32)](q)
p = _Arg[T=bool, index=0, shape=[]]
a1 = Neg(a)
a2 = Mul(a, a1)
ab = AddV2(a, b)
one = Const[value=int32[]{1}, dtype=int32]
late = Const[value=int32[]{1}, dtype=int32] ^ab
c = If[Tout=(int32, int32), then_branch=@"t", else_branch=@"e"](p, a, b)
graph "t" of c, then_branch (x: int32[], y: int32[]) -> (x1, y1) {
  x1 = Neg(x)
  y1 = Neg(y)
}
graph "e" of c, else_branch (x: int32[], y: int32[]) -> (x2, y2) {
  x2 = Abs(x)
  y2 = Abs(x)
}
"""


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        ("a1:0", "a2:0", True),
        ("a1:0", "b:0", False),
        ("a1:0", "ab:0", False),
        ("ab:0", "late:0", True),
        ("one:0", "late:0", False),
        ("one:0", "p:0", True),
        ("c:1", "a:0", False),
        ("c:1", "ab:0", False),  # one branch alone waits for `b`
        ("c:1", "c:1", True),
    ],
)
def test_tensors_that_wait_for_the_same_events(one: str, other: str, equal: bool) -> None:
    graph = from_text(EVENTS)
    x, y = (graph.get_tensor_by_name(n) for n in (one, other))
    assert have_equal_waits(graph, PassContext(LOWERED), [x], [y]) is equal
    assert have_equal_waits(graph, PassContext(), [x], [y])


def test_a_feed_of_a_partial_run_is_an_event() -> None:
    graph = from_text(EVENTS)
    one, p = (graph.get_tensor_by_name(n) for n in ("one:0", "p:0"))
    assert not have_equal_waits(graph, PassContext(Options(is_lowered=True, is_partial=True)), [one], [p])


def test_operations_that_wait() -> None:
    graph = from_text(EVENTS)
    assert [op.name for op in graph.operations if waits(op)] == ["q", "a", "b"]


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_read_stays_in_a_loop_that_waits(is_waiting: bool) -> None:
    """Another step may write the variable while the loop waits."""
    with hr.Graph():
        q = hr.FIFOQueue(1, [hr.float32], shapes=[[]])
        v = hr.Variable(1.0)
        first = q.dequeue()
        y = hr.while_loop(
            lambda i, h: i < 3,
            lambda i, h: (i + 1, h * v.read_value() + (q.dequeue() if is_waiting else first)),
            [0, 0.0],
        )[1]
        graph = prune([], [y], []).graph
    own_bodies(graph)
    optimize(graph, (), LOWERED)
    (loop,) = [op for op in graph.operations if op.opdef.structured == "While"]
    assert any(op.type == "ReadVariableOp" for op in loop.attrs["body"].operations) is is_waiting
