"""The page and the notebook's drawing: well-formed and self-contained.

Names in them are names and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import html.parser
import re

import numpy as np
import pytest

import headrace as hr
from headrace import inspect
from headrace.inspect import page as pages
from headrace.inspect.rows import rows
from headrace.ir.attr_values import Func
from headrace.ir.graph import FuncGraph
from headrace.ir.source import Source
from headrace.ir.text import from_text
from tests.inspect.test_tree import PRIMITIVES, nested
from tests.ir import functional

HOSTILE = "</style></script><script>alert('x')</script><img src=x onerror=\"alert(1)\">&amp;\x00\u202e"
TAGS = set(
    "html head meta title style body main h1 p table tr th td div label input button output details summary b code "
    "span ul li a script".split()
)
VOID = {"meta", "input"}


class Checker(html.parser.HTMLParser):
    """Checks that a page is balanced; collects ids, links, scripts and text.

    It raises at elements and attributes that a page should not have, too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.scripts: list[str] = []
        self.texts: list[str] = []
        self.folds = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        given = dict(attrs)
        assert not [a for a in given if a.startswith("on") or a in ("src", "style", "srcdoc")]
        self.ids += [given["id"] or ""] if "id" in given else []
        if tag == "a":
            self.links.append(given["href"] or "")
        if tag == "details":
            self.folds += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.texts).append(data)


def check(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert not checker.open
    assert len(set(checker.ids)) == len(checker.ids)
    assert all(link.startswith("#") and link[1:] in checker.ids for link in checker.links)
    assert text.isascii()
    style = "".join(re.findall(r"<style>(.*?)</style>", text, flags=re.S))
    assert not re.search(r"@import|url\(|https?:", style)
    return checker


def hostile() -> hr.Graph:
    """A graph with that text in every place where a graph can have text."""
    g = hr.Graph()
    source = Source(HOSTILE, 3, HOSTILE)
    f = FuncGraph(HOSTILE, g, captures_from_outer=False)
    f.params = f.results = [f.add_param(hr.string, (), "v")]
    g.functions[HOSTILE] = f
    attrs = {"value": np.array(HOSTILE.encode(), object), "dtype": hr.string}
    c = g.add_op("Const", "c", (), attrs, (), HOSTILE, source)
    attrs = {"Tin": (hr.string,), "Tout": (hr.string,), "f": Func(HOSTILE)}
    call = g.add_op("PartitionedCall", "call", c.outputs, attrs, (), HOSTILE, source)
    last = g.add_op("NoOp", "last", (), {"_note": HOSTILE}, (call,), HOSTILE, source)
    for i, op in enumerate((c, call, last)):
        op.name = f"{HOSTILE}{i}"  # no graph takes such a name, but what is drawn rests on that nowhere
    return g


@pytest.mark.parametrize("graph", [nested, functional.program, lambda: from_text(PRIMITIVES), hr.Graph])
def test_pages_are_well_formed(graph: object) -> None:
    g = graph()  # type: ignore[operator]
    d = inspect.describe(g)
    found = check(inspect.render_page(d, "title"))
    assert len(found.ids) == d.box.total
    snippet = check(inspect.render_snippet(d.box, "title"))
    assert not snippet.ids
    assert not snippet.scripts
    check(inspect.render_page(inspect.describe(g, lowered=True), "lowered"))


def test_names_cannot_become_tags() -> None:
    g = hostile()
    for text in (inspect.render_page(inspect.describe(g), HOSTILE), inspect.render_snippet(inspect.draw(g), HOSTILE)):
        found = check(text)
        assert "alert" not in "".join(found.scripts)
        assert "<script>alert('x')" in "".join(found.texts)
        assert "&#x202e;" not in text.lower()
        assert "&#8238;" not in text
        assert "\x00" not in text


def test_only_the_script_of_the_page_may_run() -> None:
    text = inspect.render_page(inspect.describe(nested()), "title")
    (script,) = check(text).scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text


def test_a_page_tells_dtypes_sizes_devices_and_lines() -> None:
    with hr.Graph() as g, hr.device("/device:CPU:1"):
        hr.constant([[1.0, 2.0]], name="w")
    text = " ".join(check(inspect.render_page(inspect.describe(g), "title")).texts)
    for told in ("float32 [1,2], 8 B", "on /device:CPU:1", "test_page.py:", "1 /device:CPU:1", "1 Const"):
        assert told in text


def test_loops_branches_and_functions_are_boxes_that_fold() -> None:
    found = check(inspect.render_page(inspect.describe(nested()), "title"))
    assert found.folds == 3 + 6  # two loops and a conditional, each with two graphs
    text = inspect.render_page(inspect.describe(functional.program()), "title")
    assert '<details class="call" id=' in text
    assert '<details class="case" id=' in text


def test_every_rule_of_a_notebooks_style_is_about_the_drawing() -> None:
    rules = re.findall(r"([^{}]+)\{[^{}]*\}", pages._STYLE)
    assert rules
    assert all(s.strip().startswith(".headrace-graph") for rule in rules for s in rule.split(","))


def test_a_page_says_what_it_leaves_out() -> None:
    g = from_text("\n".join(f"x{i} = NoOp" for i in range(50)))
    text = inspect.render_page(inspect.describe(g), "title", limit=20)
    assert "30 of 50 operations are not drawn here" in text
    assert len(check(text).ids) == 20


def test_large_graphs_are_not_unfolded() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")

        def body(y: hr.Tensor) -> tuple[hr.Tensor]:
            for _ in range(400):
                y = hr.tanh(y)
            return (y,)

        hr.while_loop(lambda y: y < 1.0, body, (x,))
    text = inspect.render_page(inspect.describe(g), "title")
    assert re.search(r'<details class="while" id="n\d+"><summary>', text)
    check(text)


def test_a_graph_shows_itself_in_a_notebook() -> None:
    text = nested()._repr_html_()
    found = "".join(check(text).texts)
    assert re.search(r"graph of \d+ operations", found)
    assert "outer/inner/cond" in found
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        for _ in range(1000):
            x = hr.tanh(x)
    text = g._repr_html_()
    assert len(text) < 200_000
    assert "701 of 1,001 operations are not drawn here" in "".join(check(text).texts)


def test_a_very_large_graph_tells_only_what_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_LIMIT", 10)
    g = from_text("\n".join(f"x{i} = NoOp" for i in range(11)))
    text = "".join(check(pages.graph_html(g)).texts)
    assert "graph of 11 operations: 11 NoOp" in text
    assert "too large to be drawn here" in text


def test_rows_follow_the_edges() -> None:
    lines = (
        "x = Placeholder[dtype=float32]",
        "y = Neg(x)",
        "z = Exp(y)",
        "k = Const[value=float32[]{1.0}, dtype=float32]",
    )
    parts = inspect.draw(from_text("\n".join([*lines, "w = Mul(z, k)"]))).parts
    assert [[p.name for p in row] for row in rows(parts)] == [["x"], ["y"], ["z", "k"], ["w"]]


def test_rows_of_a_loop_of_primitives_end() -> None:
    box = inspect.draw(from_text(PRIMITIVES))
    names = [[p.name for p in row] for row in rows(box.structures[0].boxes[0].parts)]
    assert names[0] == ["a_in"]
    assert names[1] == ["a"]
