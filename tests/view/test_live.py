"""The page of breakpoints in a real browser: a pause in nested loops."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.view import live_program
from tests.view.browser import Browser, Opened
from tests.view.live_program import Program

pytestmark = pytest.mark.system

RESULT = [3.078125, 14.46875, 25.859375]


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    running: list[Program] = []

    def begin(*names: str, condition: Any = None, program: Any = None) -> Program:
        running.append(Program(names or ("outer/inner/cond/grow",), condition, program))
        return running[-1]

    yield begin
    for each in running:
        each.stop()


def paused(browser: Browser, program: Program, **context: Any) -> Opened:
    """The page of a program at its first pause."""
    opened = browser.open(program.url, **context)
    opened.wait("app.live.isPaused")
    return opened


def where(opened: Opened) -> str:
    return opened.text("#live .state p:nth-of-type(1)")


def press(opened: Opened, key: str) -> None:
    """Presses the key of a command and waits for the next complete state."""
    before = opened.run("Number(document.documentElement.dataset.state)")
    opened.press(key)
    opened.wait(f"Number(document.documentElement.dataset.state) > {before}")
    opened.settle()


def test_a_pause_in_a_nested_loop_is_inspected_stepped_and_continued(
    browser: Browser, program: Callable[..., Program]
) -> None:
    running = program(condition=lambda v: v.max() > 10.0)
    with paused(browser, running) as opened:
        # The place: the operation, its iterations, the line.
        assert "outer/inner/cond/grow" in opened.text("#live .state")
        assert where(opened) == "in iteration 2 of loop 'outer/inner', in iteration 1 of loop 'outer'"
        assert opened.text("#token .now") == "outer/inner/cond/grow"
        lit = opened.page.locator("#source .line.lit code")
        assert 'name="grow"' in lit.inner_text()
        # Live frames with their iterations, waiting nodes, values.
        frames = opened.text("#live-frames")
        assert "outer#1/outer/inner" in frames
        opened.page.click("#live-waiting summary")
        assert "waits for" in opened.text("#live-waiting")
        assert opened.text("#value").startswith("outer/inner/cond/grow:0 = float32[3] = [")
        opened.page.fill("#value-name", "grow@1")
        opened.page.keyboard.press("Enter")
        opened.wait("document.getElementById('value').textContent.includes('inner#1')")
        opened.page.fill("#value-name", "nothing")
        opened.page.keyboard.press("Enter")
        opened.wait("document.getElementById('value').textContent.includes('no operation of this step')")
        opened.run("document.activeElement.blur()")
        # An iteration of an open frame is chosen: its dead branch is grey.
        opened.run("app.moment.select(-1)")
        x, y = opened.where("outer/inner/cond/keep")
        opened.page.mouse.move(x, y)
        assert "dead since" in opened.text("#tooltip")
        # On: to the next operation, the next iteration, the next hit, the end.
        press(opened, "n")
        assert "outer/inner/cond/grow" not in opened.text("#live .state .link")
        press(opened, "i")
        press(opened, "g")
        assert "grow" in opened.text("#live .state")
        assert "in iteration 2 of loop 'outer'" in where(opened)
        press(opened, "e")
        assert "ended" in opened.text("#live .state")
        assert opened.run("app.recording.length === app.recording.tokens.node.length && app.recording.length > 100")
        assert not opened.errors
    assert running.result().tolist() == RESULT


def test_a_level_shows_its_line_and_finds_names_there(browser: Browser, program: Callable[..., Program]) -> None:
    with paused(browser, program()) as opened:
        opened.page.click("#live .levels li:nth-child(2) button")
        opened.wait("document.getElementById('value').textContent.includes('grow')")
        assert opened.page.get_attribute("#live .levels li:nth-child(2) button", "aria-pressed") == "true"
        assert not opened.errors


def test_a_selected_node_shows_its_value_in_the_chosen_iteration(
    browser: Browser, program: Callable[..., Program]
) -> None:
    with paused(browser, program(condition=lambda v: v.max() > 5.0)) as opened:
        opened.run(f"app.moment.select({opened.node('outer/inner/cond/grow')})")
        opened.wait("document.getElementById('value').textContent.includes('float32[3]')")
        opened.page.click("#live-frames .frame:nth-child(2) .link >> nth=0")  # iteration 0 of the outer loop
        opened.settle()
        assert opened.run("[...app.moment.pins.values()]")[0] == 0
        assert not opened.errors


def test_a_breakpoint_that_the_page_adds_is_hit(browser: Browser, program: Callable[..., Program]) -> None:
    running = program("x")
    with paused(browser, running) as opened:
        opened.page.fill("#value-name", "lowered")
        opened.page.click("#live form button:nth-of-type(2)")
        opened.wait("document.querySelector('#live .problem').textContent.includes('will pause at lowered')")
        opened.run("document.activeElement.blur()")
        press(opened, "g")
        assert "outer/lowered" in opened.text("#live .state")
        press(opened, "e")
    assert running.result().tolist() == RESULT


def test_abort_needs_two_presses_and_fails_the_run(browser: Browser, program: Callable[..., Program]) -> None:
    running = program()
    with paused(browser, running) as opened:
        opened.press("x")
        assert "Press again" in opened.text("#live .problem")
        assert opened.run("app.live.isPaused")
        press(opened, "x")
        assert "failed" in opened.text("#live .state")
    with pytest.raises(hr.errors.CancelledError, match="at a breakpoint"):
        running.result()


def test_the_page_follows_runs_of_several_programs_and_says_when_it_is_closed(
    browser: Browser, program: Callable[..., Program]
) -> None:
    graph, feeds, y = live_program.nested()
    with graph:
        more = hr.add(y, 1.0, name="more")
    running = program("outer/lowered", condition=lambda v: v.max() > 20.0, program=(graph, feeds, [y, y, more]))
    with paused(browser, running) as opened:
        for fetch in ("outer:1", "more:0"):
            before = opened.run("app.live.state.step")
            opened.press("g")
            wait_for_pause(opened, before)
            assert opened.run("app.recording.step.fetches") == [fetch]
        opened.press("g")
        opened.wait("document.querySelector('#live .badge').textContent === 'closed'")
        assert "has ended" in opened.text("#live .state")
    assert running.result().tolist() == [x + 1 for x in RESULT]


def wait_for_pause(opened: Opened, step: int) -> None:
    """Waits for the pause of a step after `step`, across a reload of the page."""
    from playwright.sync_api import Error

    later = f"app.live.state.step > {step} && app.recording.step.number > {step}"
    end = time.monotonic() + live_program.SECONDS
    while time.monotonic() < end:
        try:
            if opened.run(f"app.recording && app.live.isPaused && {later}"):
                return
        except Error as e:
            if "context was destroyed" not in str(e) and "is not defined" not in str(e):  # it is not being loaded again
                raise
        opened.page.wait_for_timeout(20)
    raise AssertionError(later)


def test_text_of_a_program_is_never_code(browser: Browser, program: Callable[..., Program]) -> None:
    hostile = "<img src=x onerror='window.hacked = 1'></script><script>window.hacked = 1</script>"
    with hr.Graph() as g:
        y = hr.identity(hr.constant([hostile, "b"]), name="shown")
        z = hr.identity(y, name="after")
    with paused(browser, program("after", program=(g, {}, [z]))) as opened:
        opened.page.fill("#value-name", hostile)
        opened.page.keyboard.press("Enter")
        opened.wait("document.getElementById('value').textContent.includes('no operation of this step')")
        assert "onerror" in opened.text("#value")
        opened.run("app.live.showValue('shown')")
        opened.wait("document.getElementById('value').textContent.includes('</script>')")
        assert opened.run("window.hacked") is None
        assert opened.page.locator("img").count() == 0
        assert not opened.errors


def test_the_picture_of_the_documentation_is_made(browser: Browser, tmp_path: Path) -> None:
    live_program.take_picture(browser, tmp_path / "breakpoint.png", tmp_path)
    assert (tmp_path / "breakpoint.png").stat().st_size > 10_000


def test_the_commands_stay_above_a_long_panel(browser: Browser, program: Callable[..., Program]) -> None:
    with paused(browser, program(), color_scheme="dark") as opened:
        for each in ("ready", "waiting"):
            opened.page.click(f"#live-{each} summary")
        opened.run("byId('live').scrollTop = 1e6")
        opened.settle()
        assert opened.run("byId('live').scrollTop > 0 || byId('live').scrollHeight <= byId('live').clientHeight")
        opened.page.click("#live .step")  # it is neither covered nor out of view
        opened.wait("!app.live.isPaused || app.live.state.state > 2")
        assert not opened.errors
