"""The page of a recording in a real browser, by mouse and keyboard."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.view.page import assemble
from tests.view import browser as browsers
from tests.view import documents
from tests.view.browser import Browser, Opened

pytestmark = pytest.mark.system


@pytest.fixture
def nested(browser: Browser, pages: Path) -> Iterator[Opened]:
    with browser.open(browsers.write("nested", pages)) as opened:
        yield opened
        assert not opened.errors


def click_node(opened: Opened, name: str) -> None:
    x, y = opened.where(name)
    opened.page.mouse.click(x, y)
    opened.settle()


def pixel(opened: Opened, canvas: str, x: float, y: float) -> list[int]:
    """Color of a canvas at a point of the screen."""
    return opened.run(
        f"""(() => {{ const canvas = byId({json.dumps(canvas)}); const box = canvas.getBoundingClientRect();
        return [...canvas.getContext("2d").getImageData({x} - box.left, {y} - box.top, 1, 1).data]; }})()"""
    )


def test_the_page_shows_the_step_and_draws_its_graph(nested: Opened) -> None:
    document = documents.nested()
    tokens = document["tokens"]["node"]["n"]
    assert nested.text("#step") == "step 3"
    assert f"{tokens} tokens" in nested.text("#summary")
    assert "5 dead" in nested.text("#summary")
    assert nested.text("#position") == f"{tokens} / {tokens}"
    titles = nested.page.locator("#titles .fold").all_inner_texts()
    assert {t.split("\n")[-1] for t in titles} >= {"outer", "inner", "then", "else"}
    x, y = nested.where("loss")
    assert pixel(nested, "graph", x, y)[3] == 255
    assert nested.run("document.querySelectorAll('#details h2')[0].textContent") == "Step 3"


def test_set_up_operations_are_folded_and_constants_inline(nested: Opened) -> None:
    assert nested.run(f"app.graph.boxes['n{nested.node('outer/Enter_h')}'] === undefined")
    assert nested.run(f"app.model.operands[{nested.node('outer/inner/mul')}]") == "(·, 1.5)"
    nested.page.click("#setup")
    nested.wait(f"app.graph.boxes['n{nested.node('outer/Enter_h')}'] !== undefined")


def test_arrow_keys_step_by_token_in_both_directions(nested: Opened) -> None:
    nested.press("Home")
    assert nested.row() == 0
    assert nested.text("#token .now") == "x"
    nested.press("ArrowRight", "ArrowRight", "ArrowLeft")
    assert nested.row() == 1
    nested.press("Control+ArrowRight")
    assert nested.row() == 101
    nested.press("End", "ArrowRight")
    assert nested.row() == nested.run("app.recording.length - 1")


def test_shifted_arrows_step_through_the_tokens_of_the_selected_node(nested: Opened) -> None:
    click_node(nested, "outer/inner/squash")
    nested.press("Home", "Shift+ArrowRight", "Shift+ArrowRight")
    assert nested.text("#token .tag") == "outer/0 inner/1"
    nested.press("Shift+ArrowLeft")
    assert nested.text("#token .tag") == "outer/0 inner/0"


def test_scrubbing_moves_the_values_in_the_graph_and_the_details(nested: Opened) -> None:
    click_node(nested, "outer/project")
    nested.page.fill("#scrub", "20")
    nested.settle()
    early = nested.text("#details .token")
    nested.page.fill("#scrub", "380")
    nested.settle()
    assert nested.row() == 380
    assert nested.text("#details .token") != early
    box = nested.page.locator("#lanes").bounding_box()
    assert box is not None
    nested.page.mouse.click(box["x"] + 400, box["y"] + box["height"] - 30)
    nested.settle()
    assert 0 < nested.row() < 380


def test_space_plays_and_pauses(nested: Opened) -> None:
    nested.press("Home", " ")
    nested.wait("app.moment.row > 3")
    nested.press(" ")
    stopped = nested.row()
    nested.page.wait_for_timeout(200)
    assert nested.row() == stopped
    assert nested.page.get_attribute("#play", "aria-pressed") == "false"


def test_search_finds_by_name_by_type_and_by_line(nested: Opened) -> None:
    for text, expected in (("squash", "outer/inner/squash"), ("FloorMod", "outer/mod"), ("refine.py:23", "Square")):
        nested.press("/")
        assert nested.run("document.activeElement.id") == "search"
        nested.page.fill("#search", text)
        assert nested.text("#results [aria-selected=true] .name") == expected
        nested.page.keyboard.press("Enter")
        nested.settle()
        assert nested.text("#details h2") == expected
    nested.press("/")
    nested.page.fill("#search", "nothing like this")
    assert nested.text("#results") == "no operation matches"


def test_search_opens_closed_boxes(nested: Opened) -> None:
    nested.page.click("#titles [aria-label='Close loop outer']")
    nested.page.wait_for_selector("#titles [aria-label='Open loop outer']")
    assert nested.run(f"app.graph.boxes['n{nested.node('outer/inner/squash')}'] === undefined")
    nested.press("/")
    nested.page.fill("#search", "squash")
    nested.page.keyboard.press("Enter")
    nested.wait(f"app.graph.boxes['n{nested.node('outer/inner/squash')}'] !== undefined")


def test_a_dead_token_is_grey_and_shows_its_cause(nested: Opened) -> None:
    nested.press("Home", "d")
    assert nested.text("#token .dead") == "outer/cond/negate"
    x, y = nested.where("outer/cond/negate")
    nested.page.mouse.move(x, y)
    nested.settle()
    tip = nested.text("#tooltip .dead")
    assert "outer/cond/Switch took the other branch in iteration 0 of loop 'outer'" in tip
    assert "outer/even = 1" in tip
    assert pixel(nested, "overlay", x, y + 6)[3] > 100, "the card is washed out"
    x, y = nested.where("outer/cond/scale")
    nested.press("ArrowRight")
    assert pixel(nested, "overlay", x + 3, y + 2)[3] < 50


def test_iteration_3_of_a_nested_loop_shows_its_values(nested: Opened) -> None:
    click_node(nested, "outer/inner/squash")
    for loop in ("outer", "inner"):
        box = nested.page.get_by_label(f"Iteration of loop {loop}", exact=True)
        box.fill("3")
        box.press("Enter")
        nested.settle()
    assert nested.text("#details .token .tag") == "outer/3 inner/3"
    row = nested.run(f"app.moment.tokenOf({nested.node('outer/inner/squash')})")
    tag = nested.run(f"app.recording.tags[app.recording.tokens.tag[{row}]].text")
    assert tag == "outer/3 inner/3"
    # The plot and its table have the iterations inside of iteration 3 of the outer loop only.
    assert nested.page.locator(".values tbody tr").count() == 4
    assert nested.text(".values tr[aria-current] button") == "outer/3 inner/3"
    nested.page.get_by_label("Previous iteration of loop inner").click()
    nested.settle()
    assert nested.text("#details .token .tag") == "outer/3 inner/2"
    nested.press("]")
    assert nested.text("#details .token .tag") == "outer/3 inner/3"
    nested.page.get_by_label("Loop inner follows the current token").click()
    nested.page.get_by_label("Loop outer follows the current token").click()
    nested.settle()
    assert nested.text("#details .token .tag") == "outer/4 inner/3"


def test_values_by_iteration_are_those_of_the_document(nested: Opened) -> None:
    click_node(nested, "outer/i")
    assert nested.page.locator(".values tbody tr td:nth-child(2)").all_inner_texts() == ["0", "1", "2", "3", "4", "5"]
    nested.page.locator(".values tbody tr:nth-child(3) button").click()
    nested.settle()
    assert nested.text("#token") == "outer/i\nouter/2"


def test_a_line_selects_its_operations_and_a_token_lights_its_line(nested: Opened) -> None:
    nested.page.click("#source [data-line='23']")
    nested.settle()
    chosen = nested.run("[...app.moment.highlighted].map((node) => app.recording.nodes[node].name).sort()")
    assert chosen == ["Square", "loss"]
    assert nested.text("#details h2") == "Square"
    nested.press("Escape", "Home")
    assert nested.page.locator("#source .lit").get_attribute("data-line") == "5"
    click_node(nested, "outer/inner/squash")
    assert nested.page.locator("#source .chosen").get_attribute("data-line") == "14"


def test_arrows_between_devices_follow_the_crossings(nested: Opened) -> None:
    lanes = nested.run("app.timeline.lanes.map((lane) => [lane.name, lane.top])")
    assert [name for name, _ in lanes] == ["CPU:0", "CPU:1"]
    assert nested.run("app.recording.crossings.length") == 10
    sent, received = nested.run("[app.recording.crossings.sent[0], app.recording.crossings.received[0]]")
    assert received > sent
    nested.run(f"(app.timeline.span = [{sent} - 2, {received} + 2], app.moment.emit('timeline'))")
    nested.settle()
    box = nested.page.locator("#lanes").bounding_box()
    assert box is not None
    # Halfway between the two times and the two lanes, the arrow is the only thing drawn.
    x = nested.run(f"app.timeline.x({(sent + received) / 2})")
    first, second = nested.run("app.timeline.lanes.map((lane) => lane.top + app.timeline.rowHeight / 2)")
    drawn = [pixel(nested, "lanes", box["x"] + x + dx, box["y"] + (first + second) / 2)[3] for dx in range(-40, 40)]
    assert max(drawn) > 60


def test_iterations_name_the_operation_that_held_them_back(nested: Opened) -> None:
    nested.page.click("#tab-iterations")
    nested.page.select_option("#flight select", label="outer")
    assert "6 iterations" in nested.text("#flight")
    assert "10 allowed" in nested.text("#flight")
    nested.page.click("#flight button")
    nested.settle()
    assert nested.text("#details h2") == "outer/next_h"


def test_stages_are_compared_line_by_line(nested: Opened) -> None:
    nested.press("2")
    assert nested.page.locator("#stage-text .removed code").all_inner_texts() == [
        "  %x = Placeholder()",
        "  %unused = Const()",
        "  %sq = Square(%h)",
        "  %loss = Sum(%sq)",
    ]
    assert nested.page.locator("#stage-text .added code").all_inner_texts() == [
        "  %x = _Arg()",
        "  %loss = SumSquares(%h)",
    ]
    nested.page.select_option("#stage-before", label="nothing (whole text)")
    assert nested.page.locator("#stage-text .same").count() == 7


def test_the_critical_path_is_marked(nested: Opened) -> None:
    x, y = nested.where("outer/project")
    box = f"app.graph.boxes['n{nested.node('outer/project')}']"
    height = nested.run(f"{box}[3] * app.graph.camera.scale")
    nested.press("c")
    edge = [pixel(nested, "overlay", x, y - height / 2 + dy)[:3] for dy in (-1, 0, 1)]
    assert [180, 35, 106] in edge, edge


def test_keys_open_and_close_their_list(nested: Opened) -> None:
    nested.press("?")
    assert nested.page.locator("#help").is_visible()
    nested.press("Escape")
    assert not nested.page.locator("#help").is_visible()
    click_node(nested, "loss")
    nested.press("Escape")
    assert nested.text("#details h2") == "Step 3"


def test_boxes_open_and_close_by_keyboard(nested: Opened) -> None:
    nested.page.focus("#titles [aria-label='Close loop inner']")
    nested.page.keyboard.press("Enter")
    nested.page.wait_for_selector("#titles [aria-label='Open loop inner']")
    assert nested.run("document.activeElement.getAttribute('aria-label')") == "Open loop inner"
    nested.page.keyboard.press("Enter")
    nested.page.wait_for_selector("#titles [aria-label='Close loop inner']")


def test_the_theme_follows_the_browser_and_the_switch(browser: Browser, pages: Path) -> None:
    with browser.open(browsers.write("nested", pages), color_scheme="dark") as opened:
        background = "getComputedStyle(document.body).backgroundColor"
        dark = opened.run(background)
        opened.press("t")
        assert opened.run(background) != dark
        opened.press("t")
        assert opened.run(background) == dark
        assert not opened.errors


def contrast(a: list[float], b: list[float]) -> float:
    """Contrast of two colors by WCAG 2."""

    def luminance(color: list[float]) -> float:
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in (each / 255 for each in color)]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser: Browser, pages: Path, scheme: Any) -> None:
    with browser.open(browsers.write("nested", pages), color_scheme=scheme) as opened:
        colors = opened.run(
            """Object.fromEntries(["page", "panel", "card", "text", "muted", "loop", "branch", "function", "selected",
            "current", "removed", "added", "changed"].map((name) => { const e = document.createElement("i");
            e.style.color = theme[name] || getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
            document.body.append(e);
            return [name, getComputedStyle(e).color.match(/[0-9.]+/g).slice(0, 3).map(Number)]; }))"""
        )
        for name in ("text", "muted", "loop", "branch", "function", "selected", "removed", "added", "changed"):
            for ground in ("page", "panel", "card"):
                assert contrast(colors[name], colors[ground]) >= 4.5, (name, ground)
        assert contrast(colors["current"], colors["page"]) >= 3


def test_a_graph_without_a_run_has_no_time_line(browser: Browser, pages: Path) -> None:
    with browser.open(browsers.write("graph", pages)) as opened:
        assert not opened.page.locator("#time").is_visible()
        click_node(opened, "outer/inner/squash")
        assert "Tanh" in opened.text("#details")
        assert not opened.errors


def test_a_large_recording_is_drawn_and_scrubbed(browser: Browser, pages: Path) -> None:
    with browser.open(browsers.write("large", pages)) as opened:
        assert opened.run("app.recording.length") > 195_000
        assert opened.run("app.recording.nodes.length") > 1_990
        opened.page.fill("#scrub", "100000")
        opened.settle()
        assert opened.text("#position").startswith("100,001 /")
        # A node's token at a moment is the last of its rows up to it.
        assert opened.run(
            """(() => { const { tokens, byNode } = app.recording; const node = tokens.node[5000]; let last = -1;
            for (let row = 0; row <= 100000; row++) if (tokens.node[row] === node) last = row;
            return app.recording.lastOf(node, 100000) === last; })()"""
        )
        assert not opened.errors


def test_a_long_graph_without_scopes_is_divided_into_parts(browser: Browser, pages: Path) -> None:
    with browser.open(browsers.write("flat", pages)) as opened:
        assert not opened.errors
        parts = opened.run("app.model.containers[0].children.map((id) => app.model.containers[id].nodes.length)")
        assert sum(parts) == 2000
        assert max(parts) <= 160
        # Edges between parts have one direction.
        part_of = opened.run("[...app.model.ofNode]")
        assert part_of == sorted(part_of)
        opened.run(f"app.graph.reveal({opened.node('step_1990')})")
        opened.wait(f"app.graph.boxes['n{opened.node('step_1990')}'] !== undefined")
        x, y = opened.where("step_1990")
        opened.page.mouse.click(x, y)
        assert opened.text("#details h2") == "step_1990"


def test_a_branch_of_set_up_operations_alone_is_not_drawn(browser: Browser, tmp_path: Path) -> None:
    document = documents.nested()
    for node in document["nodes"]:
        node["setup"] = node["setup"] or node["name"] == "outer/cond/negate"
    (tmp_path / "folded.html").write_text(assemble(json.dumps(document)), encoding="utf-8")
    with browser.open(tmp_path / "folded.html") as opened:
        titles = opened.page.locator("#titles .fold .name").all_inner_texts()
        assert "then" in titles
        assert "else" not in titles
        assert not opened.errors


def test_a_send_has_an_edge_to_its_recv_and_loops_that_keep_step_are_hidden(browser: Browser, tmp_path: Path) -> None:
    b = documents.Builder(["/device:CPU:0", "/device:CPU:1"])
    loop = b.frame("loop", "loop", 0)
    x = b.node("x", "Placeholder")
    idle = b.node("loop/control/Merge", "Merge", [x], loop, setup=True, device=1)
    step = b.node("loop/control/NextIteration", "NextIteration", [idle], loop, setup=True, device=1)
    b.nodes[idle]["inputs"].append([step, 0])
    send = b.node("loop/p/to_CPU_1", "_Send", [x], loop)
    receive = b.node("loop/p/from_CPU_0", "_Recv", [], loop, device=1, controls=[idle])
    b.fire(x, 0, 1.0)
    (tmp_path / "send.html").write_text(assemble(json.dumps(b.document(("a.py", "")))), encoding="utf-8")
    with browser.open(tmp_path / "send.html") as opened:
        edges = opened.run("app.model.edges.map((edge) => [edge.from, edge.to, edge.kind])")
        assert [send, receive, "transfer"] in edges
        assert opened.run(f"[app.model.shown[{idle}], app.model.shown[{step}]]") == [0, 0]
        assert not opened.errors


def test_a_page_without_a_document_fetches_it_from_its_server(browser: Browser) -> None:
    texts = {"/": assemble(None), "/recording.json": json.dumps(documents.nested())}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = texts.get(self.path)
            self.send_response(404 if body is None else 200)
            self.send_header("Content-Type", "text/html; charset=utf-8" if self.path == "/" else "application/json")
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, format: str, *args: Any) -> None:
            del format, args

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}/"
        with browser.open(address) as opened:
            assert opened.text("#step") == "step 3"
        del texts["/recording.json"]
        with browser.open(address) as opened:
            assert "404" in opened.text("#problem")
        server.shutdown()
        thread.join(10)


def test_text_of_a_recording_is_never_code(browser: Browser, tmp_path: Path) -> None:
    document = documents.nested()
    hostile = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
    document["nodes"][0]["name"] = hostile
    document["files"][0]["name"] = hostile
    document["files"][0]["text"] = hostile + "\n" * 30
    document["step"]["error"] = hostile
    document["stages"][0]["text"] = hostile
    (tmp_path / "hostile.html").write_text(assemble(json.dumps(document)), encoding="utf-8")
    with browser.open(tmp_path / "hostile.html") as opened:
        opened.run("app.graph.reveal(0)")
        opened.press("2", "1")
        assert hostile in opened.text("#details")
        assert opened.run("window.hacked") is None
        assert opened.page.locator("img").count() == 0
        assert not opened.errors


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: d.update(version=1), "version 1"),
        (lambda d: d["tokens"].update(node=documents.column("u4", [10_000] * d["tokens"]["node"]["n"])), "index 10000"),
        (lambda d: d["tokens"].update(begin=documents.column("f8", [0.0])), "tokens.begin has 1 elements"),
        (lambda d: d["tags"][5].update(parent=9), "tag 5"),
        (lambda d: d["stage_graphs"]["graphs"][0].append(10_000), "graph 0"),
        (lambda d: d["stage_graphs"]["nodes"][3].update(frame=99), "node 3"),
    ],
)
def test_a_damaged_document_is_refused_with_its_place(
    browser: Browser, tmp_path: Path, damage: Any, message: str
) -> None:
    document = documents.nested()
    damage(document)
    (tmp_path / "damaged.html").write_text(assemble(json.dumps(document)), encoding="utf-8")
    with browser.open(tmp_path / "damaged.html") as opened:
        assert message in opened.text("#problem")
