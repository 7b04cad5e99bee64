"""Times of ops from events with given times."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.observe.profile_events import EventTimes
from headrace.observe.profile_rows import Row, Sum, by_line, by_loop, shown
from headrace.step_events import IterationOpen, NodeEnd, NodeStart, StreamSpan

pytestmark = pytest.mark.one_engine


def fired(node: str, start: int, end: int, tag: str = "", **more: Any) -> list[Any]:
    frame, _, iteration = tag.rpartition("/")[2].rpartition("#")
    about = (1, node, more.pop("type", "Op"), tag, frame, int(iteration or 0), more.pop("dead", False))
    return [NodeStart(start, *about), NodeEnd(end, *about, None, **more)]


def rows_of(events: list[Any]) -> dict[str, Row]:
    times = EventTimes()
    for e in events:
        times(e)
    assert times.nanoseconds > 0
    return {row.label: row for row in times.rows()}


def test_times_are_sums_by_node_over_iterations() -> None:
    events = [
        *fired("loop/a", 0, 100, "loop#0", source="/x/model.py:7 in f", shapes="float32[]"),
        IterationOpen(100, 1, "loop#1", "loop", 1, limit=10),
        *fired("loop/a", 200, 500, "loop#1"),
        *fired("b", 500, 2500),
        *fired("gone", 0, 9999, dead=True),
    ]
    rows = rows_of(events)
    assert (rows["a"].calls, rows["a"].seconds, rows["a"].path) == (2, 400e-9, ("loop",))
    assert (rows["a"].lines, rows["a"].shapes) == (("/x/model.py:7",), ("float32[]",))
    assert (rows["b"].calls, rows["b"].seconds, rows["b"].path) == (1, 2000e-9, ())
    assert (rows["loop loop"].calls, rows["loop loop"].is_loop) == (1, True)
    assert "gone" not in rows


def test_a_wait_is_no_work_and_a_kernel_on_a_thread_is() -> None:
    events = [
        *fired("take", 0, 1000, waited=True),
        *fired("call", 0, 5000, waited=True, type="PartitionedCall"),
        *fired("inside", 100, 200, "f@call#0"),
        NodeStart(0, 1, "big", "MatMul", "", "", 0, False, "cpu:1"),
        NodeEnd(5000, 1, "big", "MatMul", "", "", 0, False, None, "cpu:1", waited=True),
        StreamSpan(1000, 4000, 1, "cpu:1", "compute", "big"),
        StreamSpan(1000, 4000, 1, "cpu:1", "copy", "big"),
    ]
    rows = rows_of(events)
    assert (rows["take"].seconds, rows["take"].waited) == (0.0, 1000e-9)
    assert (rows["call"].seconds, rows["call"].waited) == (0.0, 0.0)
    assert rows["inside"].path == ("f",)
    assert (rows["big"].seconds, rows["big"].waited, rows["big"].device) == (3000e-9, 2000e-9, "cpu:1")


@pytest.mark.parametrize(
    ("tag", "path"),
    [
        ("", ()),
        ("outer#3/outer/inner#12", ("outer", "outer/inner")),
        ("outer#1/f@outer/call#0", ("f",)),
        ("f@main#0/f@f/call#0/loop#4", ("f", "loop")),
        ("...4711/f@f/call#0/f@f/call#0", ("f",)),
    ],
)
def test_the_path_of_a_tag_begins_at_its_innermost_function(tag: str, path: tuple[str, ...]) -> None:
    assert rows_of(fired("node", 0, 1, tag))["node"].path == path


def test_sums_by_loop_are_inclusive_and_those_by_line_are_divided() -> None:
    rows = [
        Row(("a",), ("A",), ("outer", "outer/inner"), ("m.py:1",), 6, 3.0),
        Row(("b", "c"), ("B", "C"), ("outer",), ("m.py:1", "m.py:2"), 2, 2.0),
        Row(("outer",), ("While",), ("outer",), (), 2, 0.5, is_loop=True),
        Row(("d",), ("D",), (), ("m.py:2",), 1, 1.0),
        Row(("outer",), ("While",), ("outer",), (), 2, 0.0, is_loop=True, device="cpu:1"),
    ]
    assert by_loop(rows) == [Sum("outer", 5.5, 2), Sum("outer / inner", 3.0)]
    assert by_line(rows) == [Sum("m.py:1", 4.0), Sum("m.py:2", 2.0)]
    assert shown(("while", "while/while_1")) == "while / while_1"
