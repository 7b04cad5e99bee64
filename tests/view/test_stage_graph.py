"""The drawing of the graph after a stage, with marked changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.view.page import assemble
from tests.view import browser as browsers
from tests.view import documents
from tests.view.browser import Browser, Opened

pytestmark = pytest.mark.system

MINUS = "\N{MINUS SIGN}"

MARKED = """Object.fromEntries(app.stages.drawing.graph.marks.map((mark, at) =>
    [app.stages.drawing.graph.nodes[at].name, mark]).filter(([, mark]) => mark))"""


@pytest.fixture
def stages(browser: Browser, pages: Path) -> Iterator[Opened]:
    with browser.open(browsers.write("nested", pages)) as opened:
        opened.press("2")
        laid_out(opened)
        yield opened
        assert not opened.errors


def laid_out(opened: Opened) -> None:
    opened.wait("Boolean(app.stages.drawing.view.boxes)")
    opened.settle()


def color(opened: Opened, name: str) -> list[int]:
    """Color of the corner of an operation, where its sign is."""
    opened.run(f"(() => {{ {AT}; app.stages.drawing.view.show(at, true); }})()".replace("NAME", json.dumps(name)))
    opened.settle()
    return opened.run(
        f"""(() => {{ {AT}; const {{ view }} = app.stages.drawing; const {{ x, y, scale }} = view.camera;
        const box = view.boxes[`n${{at}}`]; const pen = view.base.getContext("2d");
        const [left, top] = [box[0] * scale + x - 4.5 * scale, box[1] * scale + y - 2 * scale];
        return [...pen.getImageData(Math.round(left), Math.round(top), 1, 1).data]; }})()""".replace(
            "NAME", json.dumps(name)
        )
    )


AT = "const at = app.stages.drawing.graph.nodes.findIndex((node) => node.name === NAME)"


def test_added_removed_and_changed_operations_are_marked(stages: Opened) -> None:
    assert stages.run(MARKED) == {"x": "~", "loss": "~", "Square": MINUS, "unused": MINUS}
    legend = stages.page.locator("#stage-drawing .legend button").all_inner_texts()
    assert [text.replace("\n", "") for text in legend] == ["+0 added", f"{MINUS}2 removed", "~2 changed"]
    # Each mark has its color, and the list of changes has its sign.
    assert color(stages, "Square")[:3] == [163, 38, 43]
    assert color(stages, "loss")[:3] == [138, 90, 0]
    assert stages.page.locator("#details h3").all_inner_texts() == [f"{MINUS} 2 removed", "~ 2 changed"]
    # The difference of the texts stays below.
    assert stages.page.locator("#stage-text .removed").count() == 4


def test_the_inspector_shows_an_operation_before_and_after(stages: Opened) -> None:
    stages.page.locator("#details").get_by_role("button", name="loss", exact=True).click()
    stages.settle()
    assert stages.text("#details h2") == "loss"
    assert stages.page.locator("#details del").all_inner_texts() == ["Sum", "Square"]
    assert stages.page.locator("#details ins").all_inner_texts() == ["SumSquares", "outer/Exit_h"]
    stages.press("Escape")
    assert stages.text("#details h2") == "Stage"
    stages.press("1")
    assert stages.text("#details h2") == "Step 3"


def test_a_removed_operation_is_drawn_where_it_was(stages: Opened) -> None:
    edges = stages.run(
        """app.stages.drawing.view.model.edges.map(({ from, to }) =>
        [from, to].map((at) => at < 0 ? "" : app.stages.drawing.graph.nodes[at].name).join(" "))"""
    )
    assert "outer/next_h Square" in edges
    assert "outer/next_h loss" in edges


def test_stages_with_one_graph_have_no_marks_and_one_alone_is_not_compared(stages: Opened) -> None:
    stages.page.click("#stage-next")
    laid_out(stages)
    assert stages.run(MARKED) == {}
    assert "No operation is marked" in stages.text("#details")
    stages.page.select_option("#stage-before", label="nothing (whole text)")
    laid_out(stages)
    assert stages.run(MARKED) == {}
    assert stages.text("#stage-drawing .legend") == "50 operations"


def test_closed_boxes_count_the_changes_inside(browser: Browser, tmp_path: Path) -> None:
    document = documents.nested()
    graphs = document["stage_graphs"]
    squash = next(i for i, n in enumerate(graphs["nodes"]) if n["name"] == "outer/inner/squash")
    graphs["nodes"].append({**graphs["nodes"][squash], "type": "Sigmoid"})
    graphs["graphs"][1][graphs["graphs"][1].index(squash)] = len(graphs["nodes"]) - 1
    (tmp_path / "page.html").write_text(assemble(json.dumps(document)), encoding="utf-8")
    with browser.open(tmp_path / "page.html") as opened:
        opened.press("2")
        laid_out(opened)
        opened.page.click("#stage-drawing [aria-label='Close loop inner']")
        opened.page.wait_for_selector("#stage-drawing [aria-label='Open loop inner']")
        assert opened.text("#stage-drawing .title.closed .marks.changed") == "~1"
        assert not opened.errors


def test_a_stage_without_a_graph_says_so(browser: Browser, tmp_path: Path) -> None:
    document = documents.nested()
    document["stages"][1]["graph"] = -1
    document["stage_graphs"]["note"] = "The drawings of 1 stages are left out."
    (tmp_path / "page.html").write_text(assemble(json.dumps(document)), encoding="utf-8")
    with browser.open(tmp_path / "page.html") as opened:
        opened.press("2")
        assert opened.text("#stage-drawing > p") == "optimize has no drawing. The drawings of 1 stages are left out."
        assert not opened.page.locator("#stage-drawing .stage").is_visible()
        assert opened.page.locator("#stage-text .added").count() == 2
        opened.page.click("#stage-next")
        laid_out(opened)
        assert "optimize has no drawing" in opened.text("#stage-drawing > p")
        assert opened.run(MARKED) == {}
        opened.press("s", "f", "+", "t")
        assert not opened.errors


def test_the_keys_of_the_drawing_work_on_the_stage_in_view(stages: Opened) -> None:
    scale = stages.run("[app.graph.camera.scale, app.stages.drawing.view.camera.scale]")
    stages.press("+")
    zoomed = stages.run("[app.graph.camera.scale, app.stages.drawing.view.camera.scale]")
    assert zoomed[0] == scale[0]
    assert zoomed[1] > scale[1]
    stages.press("/")
    stages.page.fill("#search", "squash")
    stages.page.keyboard.press("Enter")
    assert stages.page.locator("#view-graph").is_visible(), "a found operation is shown in the graph of the step"
