"""A program in a thread, whose steps pause at breakpoints with a page."""

from __future__ import annotations

import contextlib
import inspect
import threading
from pathlib import Path
from typing import Any

import headrace as hr
from tests.view.browser import Browser, take

SECONDS = 60


def nested() -> tuple[hr.Graph, Any, Any]:
    """A loop in a loop with a branch: graph, feeds, fetch."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (3,), name="x")

        def inner(j: Any, k: Any) -> Any:
            grown = hr.cond(j > 0, lambda: hr.multiply(k, 1.5, name="grow"), lambda: hr.identity(k, name="keep"))
            return j + 1, grown

        def outer(i: Any, h: Any) -> Any:
            k = hr.while_loop(lambda j, k: j < 3, inner, (0, h), name="inner", parallel_iterations=1)[1]
            return i + 1, hr.subtract(k, 1.0, name="lowered")

        y = hr.while_loop(lambda i, h: i < 3, outer, (0, x), name="outer")[1]
    return g, {x: [1.0, 2.0, 3.0]}, y


class Program:
    """Runs with breakpoints and their page.

    Args:
      names: the tensors of the breakpoints.
      condition: their condition.
      program: the graph, the feeds and the fetches of the runs; None: one run of `nested`.

    Attributes:
      url: the address of the page.
      page: the page.
    """

    def __init__(self, names: tuple[str, ...], condition: Any, program: Any = None) -> None:
        graph, feeds, fetch = nested()
        self._program = (graph, feeds, [fetch]) if program is None else program
        self._names, self._condition = names, condition
        self._found: Any = None
        self.page = hr.breakpoint_page(patience=float(SECONDS))
        self.url = ""
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._is_open.wait(SECONDS)

    def _run(self) -> None:
        graph, feeds, fetches = self._program
        try:
            points = [hr.breakpoint_when(name, self._condition, on_pause=self.page) for name in self._names]
            with hr.Session(graph=graph) as self._session, self.page as page:
                self.url = page.url
                self._is_open.set()
                for fetch in fetches:
                    self._found = self._session.run(fetch, feeds, options=hr.RunOptions(breakpoints=points))
        except Exception as e:
            self._found = e

    def result(self) -> Any:
        """The value of the fetch, after the last run.

        Raises:
          Exception: that of the run.
        """
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        if isinstance(self._found, Exception):
            raise self._found
        return self._found

    def stop(self) -> None:
        """Cancels the run."""
        self._session.close()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


def take_picture(browser: Browser, path: Path, folder: Path) -> None:
    """Takes the picture of docs/how-to/debugging.md.

    The program is in a file of a folder, so that the picture has a short name of it.
    """
    with contextlib.chdir(folder):
        text = f"import headrace as hr\n\n\n{inspect.getsource(nested)}".replace(": Any", "").replace(" -> Any", "")
        text = text.replace(" -> tuple[hr.Graph, Any, Any]", "")
        Path("refine.py").write_text(text, encoding="utf-8")
        names: dict[str, Any] = {}
        exec(compile(text, "refine.py", "exec"), names)
        graph, feeds, fetch = names["nested"]()
        program = Program(("outer/inner/cond/grow",), lambda v: v.max() > 10.0, (graph, feeds, [fetch]))
        try:
            with browser.open(program.url, color_scheme="light") as opened:
                opened.wait("app.live.isPaused")
                opened.page.click("#live-waiting summary")
                opened.run("(app.graph.fit(true), byId('live').scrollTop = 0)")
                take(opened, path)
                assert not opened.errors
        finally:
            program.stop()
