"""Files of a profile: bars nest, stacks add up, the page needs no other file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import flags
from headrace.observe.profile import Profile
from tests.multi.test_traces import overlaps

pytestmark = pytest.mark.one_engine


@pytest.fixture(params=["compiled", "interpret"])
def made(request: pytest.FixtureRequest) -> Profile:
    with hr.Graph() as g, hr.name_scope("a>b"):
        x = hr.placeholder_with_default([1.0, 2.0], (2,))

        def body(i: Any, v: Any) -> Any:
            inner = hr.while_loop(lambda j, w: j < 3, lambda j, w: (j + 1, hr.tanh(w)), (0, v), name="inner")[1]
            return i + 1, hr.exp(inner) * 0.1

        y = hr.while_loop(lambda i, v: i < 4, body, (0, x), name="outer")[1]
    with flags.override(NATIVE="off"), hr.Session(graph=g, engine=request.param) as session:
        return hr.profile(lambda: session.run(y))


def test_bars_of_the_chrome_trace_nest(made: Profile, tmp_path: Path) -> None:
    made.write_chrome(str(tmp_path / "p.json"))
    bars = [e for e in json.loads((tmp_path / "p.json").read_text())["traceEvents"] if e["ph"] == "X"]
    assert not overlaps(bars)
    (tanh,) = [b for b in bars if b["cat"] == "Tanh"]
    assert tanh["args"]["calls"] == 12
    assert tanh["args"]["shapes"] == ["float32[2]"]
    assert __file__ in tanh["args"]["lines"][0]
    around = [b for b in bars if b["ts"] <= tanh["ts"] and b["ts"] + b["dur"] >= tanh["ts"] + tanh["dur"]]
    assert [b["name"].rpartition("/")[2] for b in around] == ["profile", "outer", "inner", "Tanh"]


def test_collapsed_stacks_have_loops_ops_and_lines(made: Profile, tmp_path: Path) -> None:
    made.write_collapsed(str(tmp_path / "p.txt"))
    stacks = dict(line.rsplit(" ", 1) for line in (tmp_path / "p.txt").read_text().splitlines())
    want = {row.label: round(row.seconds * 1e6) for row in made.rows if row.seconds >= 0.5e-6}
    assert sum(map(int, stacks.values())) == sum(
        round(row.seconds * 1e6) for row in made.rows if round(row.seconds * 1e6)
    )
    assert want
    found = [stack.split(";") for stack in stacks if ";Tanh;" in stack]
    for loops in found:
        assert [name.rpartition("/")[2] for name in loops[:-1]] == ["outer", "inner", "Tanh"]
        assert loops[-1].startswith("test_profile_files.py:")


def test_the_page_is_one_file_with_escaped_names(made: Profile, tmp_path: Path) -> None:
    made.write_html(str(tmp_path / "p.html"))
    page = (tmp_path / "p.html").read_text()
    assert "a&gt;b" in page
    assert "a>b" not in page
    assert "http" not in page
    assert "<script" not in page
    assert page.count("<tr>") == 1 + len(made.rows)
    assert "Tanh" in page


def test_separators_in_names_are_replaced(tmp_path: Path) -> None:
    with hr.Graph() as g:
        y = hr.py_func(lambda: 1.0, [], hr.float64)
    with hr.Session(graph=g) as session:
        p = hr.profile(lambda: session.run(y))
    from headrace.observe import profile_files

    assert profile_files._clean("a;b\nc") == "a:b c"
    p.write_collapsed(str(tmp_path / "p.txt"))
    for line in (tmp_path / "p.txt").read_text().splitlines():
        assert line.rsplit(" ", 1)[1].isdecimal()
