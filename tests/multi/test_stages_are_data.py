"""Graphs between the stages of a step contain no objects of this process.

An attribute has one of the types of `ir.attr_values`, and a note can be encoded. The exception is a fused region, whose
note has its compiled function. Each stage and each pass verifies its graph (`HEADRACE_VERIFY=3`), so a spy on `verify`
finds all graphs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.ir import verify as verifying
from headrace.ir.attr_values import check_is_data
from headrace.ir.function import nested_operations
from headrace.ir.graph import Graph, Operation
from headrace.ir.notes import FusedKernel, note_from_data
from tests.grad.test_random_gradients import Example, Made
from tests.multi.scattering import scatter

pytestmark = [pytest.mark.matrix, pytest.mark.one_engine]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Operation]]:
    """Collects the operations of all verified graphs."""
    found: list[Operation] = []
    verify = verifying.verify

    def spy(graph: Graph | Sequence[Operation]) -> None:
        found.extend(nested_operations(graph.operations if isinstance(graph, Graph) else graph))
        verify(graph)

    monkeypatch.setattr(verifying, "verify", spy)
    with flags.override(VERIFY=3):
        yield found


def _check(ops: Sequence[Operation]) -> set[str]:
    """Checks operations; returns the names of the classes of their notes."""
    notes = set()
    for op in ops:
        for name, value in op.attrs.items():
            check_is_data(name, value)
        for note in op.notes:
            if note != op.notes.get(FusedKernel):
                assert note_from_data(type(note).__name__, note.to_data()) == note
            notes.add(type(note).__name__)
    return notes


@pytest.mark.parametrize("seed", range(4))
def test_random_gradients(seed: int, seen: list[Operation]) -> None:
    with Made(Example(50_000 + seed)) as made:
        fetches = [made.y, *made.gradients(made.y).values()]
    with made.session() as session:
        made.run(fetches, session)
    scatter(made.graph, random.Random(seed), 3)
    with hr.Session(graph=made.graph, devices={"CPU": 3}) as session:
        session.run(made.inputs["V"].initializer)
        made.run(fetches, session)
    assert len(seen) > 300
    assert {"ResidualPush", "ResidualPop", "StandsFor"} & _check(seen)


def test_a_step_with_all_kinds_of_notes(seen: list[Operation]) -> None:
    with hr.Graph() as g:
        w = hr.placeholder(hr.float32, [16, 16], name="w")
        x = hr.placeholder(hr.float32, [4, 16], name="x")
        queue = hr.FIFOQueue(10, [hr.float32], shapes=[()])
        fill = queue.enqueue(1.0)
        y = hr.while_loop(
            lambda i, h: i < 200, lambda i, h: (i + 1, hr.tanh(hr.matmul(h, w))), (0, x), swap_memory=True
        )[1]
        gradients = hr.gradients(y, [w, x])
        waits = hr.reduce_sum(hr.add_n([hr.sin(y) * k for k in (2.0, 3.0, 4.0, 5.0)])) + queue.dequeue()
    feeds = {w: np.eye(16, dtype=np.float32), x: np.ones((4, 16), np.float32)}
    with hr.Session(graph=g, memory_limit=1 << 30, engine="auto") as session:
        session.run(gradients, feeds)
        session.run([waits, fill], feeds)
    wanted = {"ResidualPush", "ResidualPop", "CountedResidual", "SwapMemory", "ContiguousResult", "FusedKernel"}
    assert wanted <= _check(seen)
