"""The page of a graph, and its frame in a notebook.

`tests/view/test_graph_page.py` opens both in a browser.
"""

from __future__ import annotations

import html
import html.parser
import json
import re
from typing import Any

import pytest

import headrace as hr
from headrace import inspect, thresholds
from headrace.inspect import page as pages
from headrace.ir.text import from_text
from tests.inspect.graphs import HOSTILE, chain, hostile
from tests.inspect.test_tree import nested
from tests.ir import functional

ALLOWED = {"div", "iframe", "p", "i", "details", "summary", "pre"}


class Snippet(html.parser.HTMLParser):
    """Elements and texts of a notebook's HTML, with checks of both."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []
        self.frames: list[dict[str, str | None]] = []
        self.feed(text)
        self.close()
        assert not self.open
        assert text.isascii()
        self.text = "".join(self.texts)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag == "iframe":
            self.frames.append(dict(attrs))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def document(self) -> dict[str, Any]:
        """The document of the page in the frame."""
        (frame,) = self.frames
        assert frame["sandbox"] == "allow-scripts"
        return document_in(frame["srcdoc"] or "")


def document_in(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="recording">(.*?)</script>', page, flags=re.S)
    assert found
    return dict(json.loads(found[1]))


def test_a_page_has_the_document_of_its_graph_as_data() -> None:
    document = inspect.document_of_graph(nested(), "title")
    page = inspect.render_page(document)
    assert document_in(page) == json.loads(json.dumps(document))
    assert not re.findall(r"""(?:src|href)\s*=\s*["']""", page)
    assert "default-src 'none'" in page


def test_names_cannot_become_tags() -> None:
    page = inspect.render_page(inspect.document_of_graph(hostile(), HOSTILE))
    plain = inspect.render_page(inspect.document_of_graph(chain(1)))
    assert page.count("<script") == plain.count("<script")
    assert "<img" not in page
    snippet = Snippet(inspect.graph_html(hostile()))
    assert "<script>alert('x')" in snippet.text
    assert "\u202e" not in snippet.text
    assert any("<img" in node["name"] for node in snippet.document()["nodes"])


def test_a_graph_shows_itself_in_a_notebook() -> None:
    snippet = Snippet(nested()._repr_html_())
    assert re.search(r"graph of \d+ operations: \d+ _Arg", snippet.text)
    assert "%outer" in snippet.text, "the program, where frames are not allowed"
    document = snippet.document()
    assert [f["kind"] for f in document["frames"]] == ["root", "loop", "loop", "branch", "branch"]
    assert all(f["text"] is None for f in document["files"]), "a notebook has no text of the user's files"
    Snippet(inspect.graph_html(functional.program()))


def test_a_notebook_draws_a_part_of_a_large_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NOTEBOOK_OPERATIONS", 20)
    snippet = Snippet(chain(49)._repr_html_())
    assert len(snippet.document()["nodes"]) == 20
    assert "30 of 50 operations are not drawn here." in snippet.text


@pytest.mark.parametrize(
    ("threshold", "message"),
    [("DRAWN_OPERATIONS", "too large to be drawn here; headrace inspect --html"), ("NOTEBOOK_PAGE", "more than 10;")],
)
def test_a_very_large_graph_is_a_text_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, threshold: str, message: str
) -> None:
    monkeypatch.setattr(thresholds, threshold, 10)
    snippet = Snippet(inspect.graph_html(from_text("\n".join(f"x{i} = NoOp" for i in range(11)))))
    assert not snippet.frames
    assert message in snippet.text
    assert "graph of 11 operations: 11 NoOp" in snippet.text
    assert "%x3" in snippet.text


def test_the_size_in_a_notebook_is_bounded() -> None:
    one, many = (len(inspect.graph_html(chain(n))) for n in (1, 200))
    assert one < 300_000
    assert (many - one) / 199 * thresholds.NOTEBOOK_OPERATIONS + one < thresholds.NOTEBOOK_PAGE


def test_a_graph_that_cannot_be_drawn_says_why_in_a_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise hr.errors.NotFoundError("there is no function 'f'")

    monkeypatch.setattr(pages, "document_of_graph", refused)
    snippet = Snippet(inspect.graph_html(chain(1)))
    assert "cannot be drawn: NotFoundError: there is no function 'f'" in snippet.text
    assert "%x" in snippet.text


def test_an_empty_graph_has_no_frame() -> None:
    assert not Snippet(inspect.graph_html(hr.Graph())).frames
