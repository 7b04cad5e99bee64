"""Critical paths of small steps, found by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headrace.observe.critical_path import Dependencies, Tokens, critical_path

ROOT = {"frame": 0, "iteration": 0, "parent": -1, "text": ""}


def node(type: str, *inputs: int | tuple[int, int], controls: Sequence[int] = ()) -> dict[str, Any]:
    pairs = [list(x) if isinstance(x, tuple) else [x, 0] for x in inputs]
    return {"type": type, "device": 0, "inputs": pairs, "controls": list(controls)}


def path(
    nodes: Sequence[dict[str, Any]],
    fired: Sequence[tuple[int, int, float]],
    tags: Sequence[dict[str, Any]] = (ROOT,),
    dead: Sequence[int] = (),
    transfers: Sequence[tuple[int, int, int]] = (),
    **more: Any,
) -> list[int]:
    """Nodes of the critical path; `fired` has (node, tag, end), `dead` the dead rows."""
    n, t, end = (np.array(x) for x in zip(*fired, strict=True))
    is_dead = np.isin(np.arange(len(fired)), list(dead))
    given = {"calls": {}, "results": {}, "held": {}} | more
    found = Dependencies(Tokens(nodes, tags, n, t, end, is_dead, **given), transfers)
    return [fired[row][0] for row in critical_path(found, end, is_dead)]


def test_the_path_goes_through_the_input_that_arrived_last() -> None:
    nodes = [node("Const"), node("Exp", 0), node("Neg", 0), node("Add", 1, 2)]
    assert path(nodes, [(0, 0, 1), (1, 0, 5), (2, 0, 2), (3, 0, 6)]) == [0, 1, 3]
    assert path(nodes, [(0, 0, 1), (1, 0, 2), (2, 0, 5), (3, 0, 6)]) == [0, 2, 3]


def test_a_control_input_may_be_last() -> None:
    nodes = [node("Const"), node("Assign"), node("Add", 0, 0, controls=[1])]
    assert path(nodes, [(0, 0, 1), (1, 0, 4), (2, 0, 5)]) == [1, 2]


def test_the_path_ends_at_the_last_live_token() -> None:
    nodes = [node("Const"), node("Neg", 0), node("Exp", 0)]
    assert path(nodes, [(0, 0, 1), (1, 0, 2), (2, 0, 3)], dead=[2]) == [0, 1]
    assert path(nodes[:1], [(0, 0, 1)], dead=[0]) == [0]


def test_a_merge_has_waited_for_its_first_live_input_only() -> None:
    nodes = [node("Exp"), node("Neg"), node("Merge", 0, 1)]
    assert path(nodes, [(0, 0, 1), (1, 0, 2), (2, 0, 3)]) == [0, 2]
    assert path(nodes, [(0, 0, 1), (1, 0, 2), (2, 0, 3)], dead=[0]) == [1, 2]
    assert path(nodes, [(0, 0, 1), (1, 0, 2), (2, 0, 3)], dead=[0, 1, 2]) == [1, 2]


# 0 Enter → 1 Merge(0, 3) → 2 Add(1, 5) → 3 NextIteration; 4 Exit(1); 5 a constant Enter; 6 a reader of the Exit
LOOP = [
    node("Enter"), node("Merge", 0, 3), node("Add", 1, 5), node("NextIteration", 2), node("Exit", 1), node("Enter"),
    node("Neg", 4),
]  # fmt: skip
TAGS = [ROOT, *({"frame": 1, "iteration": i, "parent": 0, "text": f"w#{i}"} for i in range(2))]
FIRED = [(0, 0, 1), (5, 0, 2), (1, 1, 3), (2, 1, 4), (3, 1, 5), (1, 2, 6), (4, 2, 7), (6, 0, 8)]


def test_a_path_crosses_iterations_by_next_iteration_and_leaves_by_the_exit() -> None:
    assert path(LOOP, FIRED, TAGS) == [0, 1, 2, 3, 1, 4, 6]


def test_the_exit_is_the_live_one() -> None:
    fired = [*FIRED[:6], (4, 1, 6.5), *FIRED[6:]]
    assert path(LOOP, fired, TAGS, dead=[6]) == [0, 1, 2, 3, 1, 4, 6]


def test_a_held_iteration_waits_for_the_firing_that_let_it_open() -> None:
    nodes = [*LOOP, node("Print", 1)]
    fired = [*FIRED[:5], (7, 1, 5.5), *FIRED[5:]]
    assert path(nodes, fired, TAGS, held={(0, 2): 5}) == [0, 1, 7, 1, 4, 6]


def test_a_recv_waits_for_its_send() -> None:
    nodes = [node("Exp"), node("_Send", 0), node("_Recv"), node("Neg", 2)]
    fired = [(0, 0, 1), (2, 0, 3), (1, 0, 3.5), (3, 0, 4)]  # the Send ends after its token has arrived
    assert path(nodes, fired, transfers=[(0, 1, 2)]) == [0, 1, 2, 3]
    assert path(nodes, fired) == [2, 3]


def test_a_path_enters_a_call_by_a_parameter_and_leaves_by_a_result() -> None:
    nodes = [node("Const"), node("Call", 0), node("_Arg"), node("Exp", 2), node("_Retval", 3), node("Neg", 1)]
    tags = [ROOT, {"frame": 1, "iteration": 0, "parent": 0, "text": "f@call#0"}]
    fired = [(0, 0, 1), (2, 1, 2), (3, 1, 3), (4, 1, 4), (5, 0, 5), (1, 0, 4.5)]
    assert path(nodes, fired, tags, calls={1: 1}, results={(1, 0): 4}) == [0, 2, 3, 4, 5]


def test_no_tokens_have_no_path() -> None:
    empty = np.array([], np.int64)
    tokens = Tokens([], [ROOT], empty, empty, empty.astype(float), empty.astype(bool), {}, {}, {})
    assert critical_path(Dependencies(tokens), tokens.end, tokens.dead) == []
