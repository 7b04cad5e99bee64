"""Paused steps as data for a page: bounded lists and texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace as hr
from headrace.observe.pause_document import clipped, document_of_pause
from headrace.thresholds import LIVE_ENTRIES, LIVE_TEXT

pytestmark = pytest.mark.one_engine


def test_lists_and_texts_are_bounded() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.string, (), name="x")
        ends = [hr.identity(x, name=f"end{i}") for i in range(LIVE_ENTRIES + 20)]
    seen: list[dict[str, Any]] = []
    with hr.Session(graph=g) as s, hr.breakpoint_when("end0", on_pause=lambda p: seen.append(document_of_pause(p))):
        s.run(ends, {x: "a" * (3 * LIVE_TEXT)})
    about = json.loads(json.dumps(seen[0]))
    assert about["op"] == "end0"
    assert about["ready"]["n"] == LIVE_ENTRIES + 19
    assert len(about["ready"]["entries"]) == LIVE_ENTRIES
    assert len(about["values"][0]) <= LIVE_TEXT + 4
    assert clipped("a" * (LIVE_TEXT + 1)) == "a" * LIVE_TEXT + " ..."
