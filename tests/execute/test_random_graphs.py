"""Random graphs and random programs on the token machine.

Their values are compared with those of a simpler evaluation.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace import flags
from headrace.errors import InvalidArgumentError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.prune import prune
from tests.execute.machine import DEAD, Machine, SeededReady
from tests.execute.programs import Assign, Binary, Block, Const, If, Less, Lowering, Var, While, evaluate, show

pytestmark = pytest.mark.matrix

some = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
many = settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


# *** (a) acyclic graphs of primitives ***


def random_graph(rng: random.Random) -> Graph:
    """A random graph in the root frame, partly dead.

    It has Switches, Merges, control edges and ordinary ops.
    """
    b = Builder(Graph())
    numbers: list[Tensor] = [b.const(rng.randrange(100)) for _ in range(2)]
    bools: list[Tensor] = [b.const(v) for v in (True, False)]
    ops: list[Operation] = []

    def one(pool: list[Tensor]) -> Tensor:
        return rng.choice(pool[-8:]) if rng.random() < 0.7 else rng.choice(pool)

    for _ in range(rng.randrange(3, 40)):
        at = b
        if ops and rng.random() < 0.3:
            at = b.after(*rng.choices(ops, k=rng.randrange(1, 3)))
        kind = rng.choice(
            ["Const", "Identity", "AddV2", "Less", "LogicalNot", "NoOp", "ControlTrigger"]
            + ["Switch"] * 4
            + ["BoolSwitch"] * 2
            + ["Merge"] * 3
            + ["BoolMerge"]
        )
        made: Any
        if kind == "Const":
            made = at.const(rng.randrange(100))
            numbers.append(made)
        elif kind == "Identity":
            made = at.Identity(one(numbers))
            numbers.append(made)
        elif kind == "AddV2":
            made = at.AddV2(one(numbers), one(numbers))
            numbers.append(made)
        elif kind == "Less":
            made = at.Less(one(numbers), one(numbers))
            bools.append(made)
        elif kind == "LogicalNot":
            made = at.LogicalNot(one(bools))
            bools.append(made)
        elif kind in ("NoOp", "ControlTrigger"):
            made = at.make(kind, (), {})
        elif kind == "Switch":
            made = at.Switch(one(numbers), one(bools))
            numbers += made
        elif kind == "BoolSwitch":
            made = at.Switch(one(bools), one(bools))
            bools += made
        else:
            pool = numbers if kind == "Merge" else bools
            made = at.Merge([one(pool) for _ in range(rng.randrange(1, 4))])
            pool.append(made[0])
            numbers.append(made[1])
        ops.append(made.op if isinstance(made, Tensor) else made[0].op if isinstance(made, tuple) else made)
    return b.graph


def oracle(
    graph: Graph, picks: dict[Operation, int], fed: dict[Tensor, Any] | None = None
) -> dict[Tensor | Operation, Any]:
    """The value or `DEAD` of every tensor and operation.

    They are in the order of creation, which is topological here.

    Args:
      graph: the graph, in the root frame.
      picks: position of the live input that arrived first, for Merges with several. Each of them is right.
      fed: tensors that are given a value.
    """
    fed = fed or {}
    out: dict[Tensor | Operation, Any] = {}
    for op in graph.operations:
        args = [out[t] for t in op.inputs]
        # a control edge is dead if its source is; one side of a Switch does not determine the other
        dead = any(out[c] is DEAD for c in op.control_inputs) and op.type not in ("ControlTrigger", "Merge")
        if op.type == "Merge":
            live = [i for i, a in enumerate(args) if a is not DEAD]
            k = picks.get(op, live[0] if live else 0)
            assert not live or k in live, f"{op.name} passed on its input {k}, which is dead; {live} live"
            values = [args[k], k] if live else [DEAD, DEAD]
            dead = not live
        elif dead or any(a is DEAD for a in args):
            dead, values = True, [DEAD] * len(op.outputs)
        elif op.type == "Switch":
            values = [DEAD, args[0]] if args[1] else [args[0], DEAD]
        elif op.type == "Const":
            values = [op.attrs["value"][()]]
        elif op.type in ("NoOp", "ControlTrigger"):
            values = []
        else:
            values = [
                {
                    "Identity": lambda x: x,
                    "AddV2": lambda x, y: x + y,
                    "Less": lambda x, y: x < y,
                    "LogicalNot": lambda x: not x,
                }[op.type](*args)
            ]
        out[op] = DEAD if dead else ()
        for t, v in zip(op.outputs, values, strict=True):
            out[t] = fed.get(t, v)
    return out


def _check_machine(seed: int) -> None:
    """Checks every firing of a random graph on the bare machine against the oracle."""
    graph = random_graph(random.Random(seed))
    for order in (None, *range(3)):
        m = Machine(graph, order).run()
        fired = {f.name for f in m.history}
        merges = [op for op in graph.operations if op.type == "Merge" and m.value(op) is not DEAD]
        want = oracle(graph, {op: int(m.value(op.outputs[1])) for op in merges})
        for op in graph.operations:
            if op.name not in fired:
                assert op.type == "Const"  # it is part of the plan's templates
                continue
            assert len(m.firings(op)) == 1
            got = [m.value(op) is DEAD, *(m.value(t) for t in op.outputs)]
            assert got == [want[op] is DEAD, *(want[t] for t in op.outputs)], f"{op.name} ({op.type}), order {order}"


def _check_session(seed: int, optimize: str = "on") -> None:
    """Checks fetches, dead fetches and feeds of a random graph in a session.

    The orders are random, and passes run.
    """
    rng = random.Random(seed)
    graph = random_graph(rng)
    tensors = [t for op in graph.operations for t in op.outputs]
    # a Merge's second output tells which input it took, so it is not fed
    candidates = [t for t in tensors if t.op.type != "Const" and not (t.op.type == "Merge" and t.index)]
    chosen = rng.sample(candidates, min(len(candidates), rng.randrange(0, 3)))
    fed = {
        t: np.bool_(rng.random() < 0.5) if t.dtype == hr.bool else np.int32(rng.randrange(1000, 2000)) for t in chosen
    }
    known = oracle(graph, {}, fed)
    unsure = _depends_on_a_race(graph, fed)
    alive = [t for t in tensors if known[t] is not DEAD and t not in unsure]
    dead = [t for t in tensors if known[t] is DEAD and t not in unsure]
    taken = {op: op.outputs[1] for op in graph.operations if op.type == "Merge"}
    with flags.override(OPTIMIZE=optimize), hr.Session(graph=graph) as session:
        for order in (0, 1, None):  # None: the order, and the program, of the session's own choice
            ready = None if order is None else SeededReady(order)
            options = None if ready is None else hr.RunOptions(ready=ready)
            got = dict(zip(alive, session.run(alive, fed, options), strict=True))
            if ready is not None:
                ready.check()
            want = oracle(graph, {op: int(got[i]) for op, i in taken.items() if i in got}, fed)
            assert {t: want[t] for t in alive} == got, f"order {order}"
        for t in dead[:4]:
            assert want[t] is DEAD, f"{t.name} must not be dead"
            with pytest.raises(InvalidArgumentError, match=r"Retval\[0\] does not have value"):
                session.run(t, fed, hr.RunOptions(ready=SeededReady(0)))
            session.run(t.op, fed, hr.RunOptions(ready=SeededReady(0)))


def _depends_on_a_race(graph: Graph, fed: dict[Tensor, Any]) -> set[Tensor]:
    """Tensors whose deadness depends on the live input that a Merge takes.

    They are those behind a Switch on the value of the Merge.
    """
    want = oracle(graph, {}, fed)
    open_values: set[Tensor | Operation] = set()
    unsure: set[Tensor | Operation] = set()
    for op in graph.operations:
        if op.type == "Merge":
            raced = sum(want[t] is not DEAD for t in op.inputs) > 1
            if raced or any(t in open_values for t in op.inputs):
                open_values |= set(op.outputs)
            if any(t in unsure for t in op.inputs):  # the input that arrives is not known either
                open_values |= set(op.outputs)
                unsure |= {op, *op.outputs}
        else:
            if any(t in open_values for t in op.inputs):
                open_values |= set(op.outputs)
                if op.type == "Switch" and op.inputs[1] in open_values:
                    unsure |= set(op.outputs)
            controls = () if op.type == "ControlTrigger" else op.control_inputs
            if any(t in unsure for t in op.inputs) or any(c in unsure for c in controls):
                open_values |= set(op.outputs)
                unsure |= {op, *op.outputs}
        for t in op.outputs:
            if t in fed:
                open_values.discard(t)
                unsure.discard(t)
    return {t for t in unsure if isinstance(t, Tensor)}


@some
@given(seed=st.integers(0, 2**32))
def test_random_primitive_graphs_on_the_machine(seed: int) -> None:
    _check_machine(seed)


@some
@given(seed=st.integers(0, 2**32), optimize=st.sampled_from(["on", "off"]))
def test_random_primitive_graphs_in_a_session(seed: int, optimize: str) -> None:
    _check_session(seed, optimize)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@many
@given(seed=st.integers(0, 2**32))
def test_many_random_primitive_graphs(seed: int) -> None:
    _check_machine(seed)
    _check_session(seed, "on" if seed % 4 else "off")


# *** (b) structured programs ***

NAMES = ("x", "y", "z", "u")


def expressions(depth: int = 2) -> st.SearchStrategy[Any]:
    leaf = st.one_of(st.builds(Var, st.sampled_from(NAMES)), st.builds(Const, st.integers(0, 12)))
    if not depth:
        return leaf
    inner = expressions(depth - 1)
    return st.one_of(leaf, st.builds(Binary, st.sampled_from("+-*"), inner, inner))


PREDICATES = st.builds(Less, expressions(1), expressions(1), st.booleans())


def blocks(depth: int) -> st.SearchStrategy[Block]:
    assign = st.builds(Assign, st.sampled_from(NAMES), expressions())
    if not depth:
        return st.lists(assign, min_size=1, max_size=2).map(tuple)
    inner = blocks(depth - 1)
    trips = st.one_of(st.sampled_from([Const(2), Const(3)]), expressions(1))
    loop = st.builds(While, trips, st.one_of(st.none(), st.none(), PREDICATES), inner)
    conditional = st.builds(If, PREDICATES, inner, inner)
    compound = st.one_of(loop, loop, conditional)
    return st.one_of(
        st.tuples(compound), st.tuples(assign, compound), st.tuples(compound, assign), st.tuples(compound, compound)
    )


PROGRAMS = st.tuples(st.one_of(blocks(1), blocks(2), blocks(3)), st.lists(st.integers(0, 20), min_size=4, max_size=4))


def _check_program(program: Block, starts: list[int], seeds: range) -> None:
    try:
        _check_results(program, starts, seeds)
    except Exception as e:
        e.add_note(f"{show(program)}\nfrom {dict(zip(NAMES, starts, strict=True))}")
        raise


def _check_results(program: Block, starts: list[int], seeds: range) -> None:
    want = evaluate(program, dict(zip(NAMES, starts, strict=True)))
    for parallel_iterations in (1, 2, 10):
        b = Builder(hr.Graph())
        feeds = {n: b.Placeholder(dtype="int32", shape=()) for n in NAMES}
        results = Lowering(b, parallel_iterations).lower(program, feeds)
        feed = {feeds[n]: np.int32(v) for n, v in zip(NAMES, starts, strict=True)}
        with hr.Session(graph=b.graph) as session:
            assert session.run(results, feed) == want, f"parallel_iterations {parallel_iterations}"
            for seed in seeds:
                ready = SeededReady(seed)
                got = session.run(results, feed, hr.RunOptions(ready=ready))
                ready.check()
                assert got == want, f"parallel_iterations {parallel_iterations}, seed {seed}"
            assert session.run(results, feed, hr.RunOptions(listener=lambda e: None)) == want  # the traced loop


@some
@given(PROGRAMS)
def test_random_programs(case: tuple[Block, list[int]]) -> None:
    _check_program(*case, range(2))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@many
@given(PROGRAMS)
def test_many_random_programs(case: tuple[Block, list[int]]) -> None:
    _check_program(*case, range(8))


@pytest.mark.one_engine
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow])
@given(PROGRAMS)
def test_random_programs_on_the_bare_machine(case: tuple[Block, list[int]]) -> None:
    """The machine alone keeps the window and its invariant.

    No more iterations are open than the window allows, each node fires once, and nothing is left over.
    """
    program, starts = case
    want = evaluate(program, dict(zip(NAMES, starts, strict=True)))
    for parallel_iterations in (1, 2, 10):
        b = Builder(Graph())
        feeds = [b.Placeholder(dtype="int32", shape=()) for _ in NAMES]
        results = Lowering(b, parallel_iterations).lower(program, dict(zip(NAMES, feeds, strict=True)))
        pruned = prune(feeds, [results[n] for n in NAMES], [])
        for seed in (None, 0, 1):
            m = Machine(pruned.graph, seed, compute=_compute).run(dict(enumerate(starts)))
            got = {n: int(m.value(r)[0]) for n, r in zip(NAMES, pruned.retvals, strict=True)}
            assert got == want, f"parallel_iterations {parallel_iterations}, seed {seed}"
            assert all(most <= parallel_iterations for frame, most in m.most.items() if frame)


def _compute(op: Operation, args: Any) -> Any:
    return {
        "Identity": lambda x: x,
        "LoopCond": lambda x: x,
        "AddV2": lambda x, y: x + y,
        "Sub": lambda x, y: x - y,
        "Mul": lambda x, y: x * y,
        "FloorMod": lambda x, y: x % y,
        "Less": lambda x, y: x < y,
        "LogicalNot": lambda x: not x,
        "LogicalAnd": lambda x, y: x and y,
    }[op.type](*args)


def test_the_lowering_makes_what_it_says() -> None:
    """One program by hand, with the cases that lowering distinguishes.

    It has nested loops with a conditional, zero trips, a constant result and an unchanged variable.
    """
    program: Block = (
        While(
            Const(3),
            None,
            (
                Assign("y", Var("x")),
                While(
                    Var("u"), Less(Var("z"), Const(50)), (If(Less(Var("z"), Var("x")), (Assign("z", Const(7)),), ()),)
                ),
                While(Const(4), None, (Assign("z", Const(0)),)),
                Assign("u", Binary("+", Var("u"), Const(1))),
            ),
        ),
    )
    assert evaluate(program, {"x": 9, "y": 1, "z": 5, "u": 1}) == {"x": 9, "y": 9, "z": 7, "u": 4}
    _check_program(program, [9, 1, 5, 1], range(20))
    b = Builder(Graph())
    Lowering(b).lower(program, {n: b.Placeholder(dtype="int32", shape=()) for n in NAMES})
    kinds = {op.type for op in b.graph.operations}
    assert {"Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond"} <= kinds
    assert any(op.attrs["is_constant"] for op in b.graph.operations if op.type == "Enter")
