"""Random programs with effects ordered by control edges.

On every route they have the effects of the primitive graph.
`python -m tests.order SEED --reduce` prints a failing program, reduced, as source.
"""

from __future__ import annotations

import dataclasses

import pytest

from tests.order import checking, programs, running
from tests.order.programs import Line, Loop, Program, With
from tests.order.reference import Expected

pytestmark = pytest.mark.one_engine

EACH = 25  # programs of one test


def check(first: int, last: int, many: bool = False) -> None:
    """Checks the programs with these seeds; shows the first that fails reduced."""
    tally = checking.sweep(first, last, many)
    if tally.failures:
        first_failure = checking.report(checking.reduced(tally.failures[0], 300))
        pytest.fail(f"{[str(f) for f in tally.failures]}\n{first_failure}", pytrace=False)


def test_a_few_programs_do_what_the_primitive_graph_does() -> None:
    check(0, 2)


@pytest.mark.matrix
@pytest.mark.rotated(3)
@pytest.mark.parametrize("block", [*range(10), *(pytest.param(b, marks=pytest.mark.nightly) for b in range(10, 40))])
def test_programs_do_what_the_primitive_graph_does(block: int) -> None:
    check(EACH * block, EACH * (block + 1))


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("block", range(100))
def test_many_programs_do_what_the_primitive_graph_does(block: int) -> None:
    check(1000 + 200 * block, 1000 + 200 * (block + 1))


# *** the reference, and the comparison, themselves ***


def program(text: str, fetches: str = "", targets: str = "") -> Program:
    block = tuple(Line(*line.split(" = ", 1)) for line in text.splitlines())
    return Program(block, tuple(fetches.split()), tuple(targets.split()), (1.0, 2.0))


def expected(p: Program, lenient: bool = False) -> Expected:
    (step,) = checking.expected(p, "v1", lenient)
    return step


def test_the_reference_does_what_is_reached() -> None:
    p = program("o1 = count(1)\no2 = count(2)\nf3 = with_dependencies([o2], x0)", "f3")
    assert expected(p).variables["c"][:3] == (0.0, 0.0, 1.0)
    assert expected(p, lenient=True).labels == {("c", 1)}


def test_the_reference_knows_what_is_not_determined() -> None:
    assert expected(program("o1 = v.assign(x0)\nf2 = v.read_value()", "f2", "o1.op")).fetches == [None]
    p = program("o1 = v.assign(x1)\nf2 = v.read_value()\nf3 = with_dependencies([o1], f2)", "f3")
    assert expected(p).fetches == [None]
    assert expected(p).variables["v"] == 2.0


def test_the_reference_orders_iterations_by_loop_variables() -> None:
    body = programs.Branch((Line("f2", "call(7, p1)"), Line("f3", "p1 + 1.0")), ("f3",))
    loop = Loop(("f4",), ("p1",), ("x0",), programs.Branch((), ("p1 < 3.0",)), body, 10)
    assert expected(Program((loop,), ("f4",), (), (0.0, 0.0))).log == []  # the call reaches nothing
    body = programs.Branch((Line("f2", "call(7, p1)"),), ("f2",))
    loop = Loop(("f4",), ("p1",), ("x0",), programs.Branch((), ("p1 < 3.0",)), body, 10)
    step = expected(Program((loop,), ("f4",), (), (0.0, 0.0)))
    assert step.log == [("call", 7, 0.0), ("call", 7, 1.0), ("call", 7, 2.0)]
    assert step.order == [(0, 1), (0, 2), (1, 2)]


def without_edges(block: programs.Block) -> programs.Block:
    """The statements of a block, which wait for nothing any more."""
    out: list[programs.Statement] = []
    for s in block:
        out += without_edges(s.body) if isinstance(s, With) else [s]
    return tuple(out)


@pytest.mark.matrix
def test_a_lost_control_edge_is_found_and_the_program_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    make = running.in_v1
    monkeypatch.setattr(running, "in_v1", lambda p: make(dataclasses.replace(p, block=without_edges(p.block))))
    tally = checking.sweep(0, 8, routes=[checking.Route("v1", "interpret")])
    assert tally.failures
    first = tally.failures[0]
    smallest = checking.reduced(first)
    assert smallest.wrong
    assert len(programs.source(smallest.program)) < len(programs.source(first.program)) / 2
    assert "control_dependencies" in programs.source(smallest.program)
