"""Headless Chromium by Playwright: Debian's browser, so that no browser is downloaded.

python -m tests.view.browser docs/images    # takes the screenshots of the documentation
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from headrace.view.page import assemble
from tests.view import documents

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SIZE = {"width": 1440, "height": 900}
DEADLINE = 60_000  # ms: a page that is not ready by then has failed


def executable() -> str | None:
    """Path of an installed Chromium."""
    return next((path for path in map(shutil.which, CHROMIUM) if path), None)


def missing() -> str:
    """Why the browser tests cannot run; empty if they can."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright is not installed (pip install -e '.[browser]')"
    return "" if executable() else "no Chromium is installed (apt-get install chromium)"


class Browser:
    """One process of Chromium; each page has a context of its own."""

    def __enter__(self) -> Self:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._browser.close()
        self._playwright.stop()

    def open(self, path: Path | str, **context: Any) -> Opened:
        """Opens a file or an address and waits until the graph is laid out."""
        return Opened(self._browser.new_context(viewport=SIZE, **context), path)


class Opened:
    """A page in the browser, with the errors that it reported."""

    def __init__(self, context: Any, path: Path | str) -> None:
        self.errors: list[str] = []
        self.page = context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda text: self.errors.append(text.text) if text.type == "error" else None)
        self.page.set_default_timeout(DEADLINE)
        self._metrics = context.new_cdp_session(self.page)
        self._metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
        self.page.goto(path.as_uri() if isinstance(path, Path) else path)
        self.page.wait_for_selector("html[data-ready], #problem:not([hidden])", state="attached")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.page.context.close()

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript."""
        return self.page.evaluate(script)

    def node(self, name: str) -> int:
        """Index of the node of a name."""
        return self.run(f"app.recording.nodes.findIndex((node) => node.name === {json.dumps(name)})")

    def where(self, name: str) -> tuple[float, float]:
        """Position of a node on the screen, which the camera brings into view first."""
        self.run(f"app.graph.show({self.node(name)}, true)")
        self.settle()
        x, y = self.run(f"app.graph.whereIs({self.node(name)})")
        return x, y

    def settle(self) -> None:
        """Waits until the page has drawn all changes so far."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait(self, condition: str) -> None:
        """Waits until an expression is true.

        The page's policy forbids Playwright's own function for it, which makes code of text.
        """
        end = time.monotonic() + DEADLINE / 1000
        while not self.run(condition):
            assert time.monotonic() < end, condition
            self.page.wait_for_timeout(20)

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def text(self, selector: str) -> str:
        return self.page.locator(selector).inner_text()

    def cpu_seconds(self) -> float:
        """CPU time of the page's main thread so far."""
        found = self._metrics.send("Performance.getMetrics")["metrics"]
        return next(each["value"] for each in found if each["name"] == "TaskDuration")

    def row(self) -> int:
        """Row of the current token."""
        return self.run("app.moment.row")


def write(name: str, folder: Path) -> Path:
    """The page of one of the documents of `documents`, as a file."""
    path = folder / f"{name}.html"
    if not path.exists():
        path.write_text(assemble(json.dumps(documents.DOCUMENTS[name]())), encoding="utf-8")
    return path


def take(opened: Opened, path: Path) -> None:
    """A screenshot with 256 colors, a third of the size."""
    from PIL import Image

    opened.settle()
    opened.page.screenshot(path=path)
    Image.open(path).convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(
        path, optimize=True
    )


def screenshots(folder: Path, work: Path) -> None:
    """Takes the pictures of docs/how-to/viewing.md, inspecting.md and debugging.md."""
    from tests.view import live_program  # here: it uses this module

    folder.mkdir(parents=True, exist_ok=True)
    with Browser() as browser:
        with browser.open(write("nested", work), color_scheme="light") as opened:
            opened.run("(app.moment.seek(190), app.moment.pin(1, 2), app.moment.pin(2, 2))")
            opened.run(f"app.graph.reveal({opened.node('outer/inner/squash')})")
            opened.run("app.graph.fit(true)")
            take(opened, folder / "page.png")
        with browser.open(write("nested", work), color_scheme="dark") as opened:
            opened.page.click("#tab-iterations")
            opened.press("Home", "d", "d", "c", "f")
            opened.run(f"app.moment.select({opened.node('outer/cond/scale')})")
            x, y = opened.where("outer/cond/scale")
            opened.page.mouse.move(x, y)
            take(opened, folder / "page_dark.png")
            opened.press("2")
            opened.wait("Boolean(app.stages.drawing.view.boxes)")
            opened.run("app.stages.drawing.view.reveal(app.stages.drawing.graph.marks.indexOf('~', 1))")
            take(opened, folder / "stages.png")
        with browser.open(write("graph", work), color_scheme="light") as opened:
            opened.run(f"app.graph.reveal({opened.node('outer/inner/squash')})")
            opened.run("app.graph.fit(true)")
            take(opened, folder / "graph.png")
        live_program.take_picture(browser, folder.resolve() / "breakpoint.png", work)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as temporary:
        screenshots(Path(sys.argv[1]), Path(temporary))
