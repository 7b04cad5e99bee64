"""The page of a graph in a browser, as a file and in notebooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import inspect
from tests.inspect.graphs import hostile
from tests.inspect.test_tree import nested
from tests.view.browser import Browser, Opened

pytestmark = pytest.mark.system

#: The policy of a page that forbids workers, as that of an editor's notebook does.
WITHOUT_WORKERS = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; child-src https: data:"
)


def write(folder: Path, graph: Any, title: str = "model.pb", limit: int | None = None) -> Path:
    path = folder / "graph.html"
    path.write_text(inspect.render_page(inspect.document_of_graph(graph, title, limit)), encoding="utf-8")
    return path


def layers(n: int) -> hr.Graph:
    """`n` operations in scopes of 50."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        for i in range(n // 50):
            with hr.name_scope(f"layer_{i}"):
                for _ in range(50):
                    x = hr.tanh(x)
    return g


def test_the_page_of_a_graph_has_nothing_of_a_run(browser: Browser, tmp_path: Path) -> None:
    with browser.open(write(tmp_path, nested())) as opened:
        assert opened.page.title() == "model.pb · headrace"
        assert opened.text("#step") == "graph"
        for selector in ("#time", "#tab-stages", "#critical", "#legend", "#follow-token"):
            assert not opened.page.locator(selector).is_visible()
        titles = opened.page.locator("#titles .fold .name").all_inner_texts()
        assert set(titles) == {"outer", "inner", "Greater is true", "Greater is false"}
        facts = opened.text("#details dl")
        assert "6 of 4 types" in facts
        assert "5 float32, 4 int32" in facts
        # The keys of a run do nothing, and the list of keys has the others only.
        opened.press("[", "]", "2", "d", "c", " ", "ArrowRight", "?")
        assert opened.page.locator("#keys tr").count() == 7
        assert not opened.errors


def test_search_folding_the_inspector_and_the_source_work(browser: Browser, tmp_path: Path) -> None:
    with browser.open(write(tmp_path, nested())) as opened:
        opened.page.click("#titles [aria-label='Close loop inner']")
        opened.page.wait_for_selector("#titles [aria-label='Open loop inner']")
        opened.press("/")
        opened.page.fill("#search", "matmul")
        opened.page.keyboard.press("Enter")
        opened.wait(f"app.graph.boxes['n{opened.node('outer/inner/cond/matmul')}'] !== undefined")
        assert opened.text("#details h2") == "outer/inner/cond/matmul"
        assert "float32[?,2]" in opened.text("#details")
        assert "z @ w" in opened.text("#source .chosen")
        opened.page.click("#source .chosen")
        opened.press("s")
        opened.wait(f"app.graph.boxes['n{opened.node('w')}'] !== undefined")
        assert not opened.errors


def test_text_of_a_graph_is_never_code(browser: Browser, tmp_path: Path) -> None:
    with browser.open(write(tmp_path, hostile(), "<b>title</b>")) as opened:
        opened.page.on("dialog", lambda dialog: opened.errors.append(dialog.message))
        opened.run("app.graph.reveal(0)")
        opened.press("s")
        opened.settle()
        assert "<script>alert" in opened.text("#details")
        assert opened.page.locator("img, b").count() == 0
        assert not opened.errors


def test_a_graph_with_an_error_shows_it(browser: Browser, tmp_path: Path) -> None:
    graph = inspect.document_of_graph(nested())
    graph["problems"] = ["drawn without loops, conditionals and functions: <why>"]
    (tmp_path / "graph.html").write_text(inspect.render_page(graph), encoding="utf-8")
    with browser.open(tmp_path / "graph.html") as opened:
        assert "<why>" in opened.text("#details .failure")


def test_the_page_counts_the_operations_that_are_not_drawn(browser: Browser, tmp_path: Path) -> None:
    with browser.open(write(tmp_path, nested(), limit=30)) as opened:
        assert opened.text("#summary") == "30 operations · 28 not drawn"
        assert "--full draws all" in opened.text("#details dl")
        assert not opened.errors


def test_2000_operations_are_drawn_and_moved_without_stutter(browser: Browser, tmp_path: Path) -> None:
    with browser.open(write(tmp_path, layers(2000))) as opened:
        assert opened.run("app.recording.nodes.length") == 2001
        before, frames = opened.cpu_seconds(), 30
        opened.run(
            f"""new Promise((done) => {{ let left = {frames};
            const step = () => {{ app.graph.zoom(left % 2 ? 0.9 : 1.1);
              if (left--) requestAnimationFrame(step); else done(); }}; step(); }})"""
        )
        assert (opened.cpu_seconds() - before) / frames < 1 / 30
        opened.run(f"app.graph.reveal({opened.node('layer_39/Tanh_30')})")
        opened.wait(f"app.graph.boxes['n{opened.node('layer_39/Tanh_30')}'] !== undefined")
        assert not opened.errors


@pytest.mark.parametrize("policy", ["", WITHOUT_WORKERS])
def test_a_notebook_shows_the_page_in_a_frame(browser: Browser, tmp_path: Path, policy: str) -> None:
    meta = f'<meta http-equiv="Content-Security-Policy" content="{policy}">' if policy else ""
    path = tmp_path / "notebook.html"
    # The host says that it is ready, as a page does.
    path.write_text(
        f"<!DOCTYPE html><html data-ready='1'><head>{meta}</head><body>{nested()._repr_html_()}</body></html>"
    )
    with browser.open(path) as opened:
        inside = in_frame(opened)
        titles = inside.locator("#titles .fold .name").all_inner_texts()
        assert "outer" in titles
        assert inside.evaluate("Boolean(self.layOutInPage)") is bool(policy)
        assert not inside.locator("#source-pane").is_visible()
        # The frame has an origin of its own: its scripts cannot reach the notebook.
        reach = "(() => { try { return parent.document.title; } catch { return 'refused'; } })()"
        assert inside.evaluate(reach) == "refused"
        inside.locator("#search").fill("matmul")
        inside.locator("#search").press("Enter")
        inside.wait_for_selector("#details h2:text-is('outer/inner/cond/matmul')")  # drawn after a layout


def in_frame(opened: Opened) -> Any:
    """The document in the frame of a page, after its layout."""
    (inside,) = opened.page.frames[1:]
    inside.wait_for_selector("html[data-ready]", state="attached")
    return inside
