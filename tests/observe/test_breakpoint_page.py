"""The server of breakpoints: answers, refusals, and pauses that no browser shows."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

import headrace as hr
from headrace.errors import CancelledError, FailedPreconditionError
from headrace.observe import recorded
from headrace.observe.breakpoint_page import BreakpointPage

pytestmark = [pytest.mark.one_engine, pytest.mark.system]

SECONDS = 30


def loop() -> tuple[hr.Graph, Any]:
    with hr.Graph() as g:
        y = hr.while_loop(lambda i: i < 5, lambda i: hr.add(i, 1, name="up"), [0], name="loop")[0]
    return g, y


class Visitor:
    """A run in a thread, and requests to its page."""

    def __init__(self, page: BreakpointPage, name: str = "loop/up") -> None:
        self.page, self.found = page, None
        self._name = name
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._is_open.wait(SECONDS)
        self._at = urlsplit(page.url)

    def _run(self) -> None:
        g, y = loop()
        try:
            with self.page, hr.Session(graph=g) as self.session, hr.breakpoint_when(self._name, on_pause=self.page):
                self._is_open.set()
                self.found = self.session.run(y)
        except Exception as e:
            self.found = e

    def ask(
        self, path: str, body: bytes | None = None, root: str | None = None, **headers: str | None
    ) -> tuple[int, Any]:
        """The status of an answer, and its contents; a header None is left out."""
        own = f"{self._at.hostname}:{self._at.port}"
        given = (
            {"Host": own}
            if body is None
            else {"Host": own, "Origin": f"http://{own}", "Content-Type": "application/json"}
        )
        given |= {k.replace("_", "-"): v for k, v in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self._at.port, timeout=SECONDS)
        connection.putrequest("GET" if body is None else "POST", (root or self._at.path) + path, skip_host=True)
        for name, value in given.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None and "Content-Length" not in given:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text) if answer.headers["Content-Type"] == "application/json" else text

    def pause(self) -> dict[str, Any]:
        """The state of the next pause."""
        state: dict[str, Any] = {"state": 0, "kind": ""}
        while state["kind"] != "paused":
            state = self.ask(f"state/{state['state']}")[1]
        return state

    def do(self, what: str, state: int, **more: Any) -> tuple[int, Any]:
        return self.ask("do", json.dumps({"do": what, "state": state, **more}).encode())

    def end(self) -> Any:
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()
        return self.found


@pytest.fixture
def visitor() -> Iterator[Visitor]:
    out = Visitor(hr.breakpoint_page())
    yield out
    out.session.close()
    out.end()


def test_the_page_shows_a_pause_and_lets_the_step_go_on(visitor: Visitor) -> None:
    status, page = visitor.ask("")
    assert status == 200
    assert b'<html lang="en" data-live>' in page
    assert b"Content-Security-Policy" in page
    state = visitor.pause()
    about = state["pause"]
    assert (about["op"], about["tag"], about["reason"]) == ("loop/up", "loop#0", "loop/up:0")
    assert [level["kind"] for level in about["levels"]] == ["loop", "step"]
    assert about["frames"]["entries"][1]["iterations"]["entries"][0][0] == 0
    document = visitor.ask(f"recording/{state['state']}")[1]
    recorded.check(document)
    fired = recorded.columns.read(document["tokens"]["node"]).tolist()
    assert document["nodes"][fired[-1]]["name"] == "loop/up"
    number = state["state"]
    assert visitor.do("value", number, name="up") == (
        200,
        {"name": "loop/up:0", "tag": "loop#0", "text": "int32[] = 1"},
    )
    assert "newest open iteration" in visitor.do("value", number, name="up", iteration=7)[1]["problem"]
    assert "integer" in visitor.do("value", number, name="up", level=-1)[1]["problem"]
    assert visitor.do("next", number) == (200, {})
    later = visitor.pause()
    assert later["pause"]["tag"] == "loop#1"
    assert visitor.do("step", number)[0] == 409, "the command is for an earlier pause"
    assert visitor.ask(f"recording/{number}")[0] == 409
    assert visitor.do("run", later["state"]) == (200, {})
    assert visitor.end() == 5


def test_only_the_page_itself_may_ask_and_act(visitor: Visitor) -> None:
    number = visitor.pause()["state"]
    body = json.dumps({"do": "quit", "state": number}).encode()
    for path in ("", "do", f"state/{number - 1}", f"recording/{number}"):
        assert visitor.ask(path, root="/")[0] == 404
        assert visitor.ask(path, root="/" + "A" * 32 + "/")[0] == 404
    assert visitor.ask("do", body, root="/" + "A" * 32 + "/")[0] == 404
    refused: list[tuple[int, dict[str, str | None]]] = [
        (403, {"Host": "attacker.example"}),
        (403, {"Origin": None}),
        (403, {"Origin": "null"}),
        (403, {"Origin": "http://attacker.example"}),
        (403, {"Origin": f"https://127.0.0.1:{visitor._at.port}"}),
        (415, {"Content-Type": "text/plain"}),
        (411, {"Content-Length": None, "Transfer-Encoding": "chunked"}),
        (411, {"Content-Length": "-1"}),
        (413, {"Content-Length": "4097"}),
        (413, {"Content-Length": "9" * 30}),
    ]
    for status, headers in refused:
        assert visitor.ask("do", body, **{k.replace("-", "_"): v for k, v in headers.items()})[0] == status, headers
    for bad in (b"", b"[1]", b"[" * 4000, b"\xff", json.dumps({"do": "document", "state": number}).encode()):
        assert visitor.ask("do", bad)[0] == 400
    assert "is no command" in visitor.do("import os", number)[1]["problem"]
    for odd in ([1], {}, None, 7, "value"):
        assert "is no command" in visitor.ask("do", json.dumps({"do": odd, "state": number}).encode())[1]["problem"]
    assert visitor.ask("do", json.dumps({"do": "quit"}).encode())[0] == 409
    assert visitor.ask("state/x")[0] == visitor.ask("state/" + "9" * 40)[0] == visitor.ask("etc/1")[0] == 404
    assert visitor.pause()["state"] == number, "nothing has acted"


def test_an_abort_cancels_the_step(visitor: Visitor) -> None:
    assert visitor.do("quit", visitor.pause()["state"]) == (200, {})
    assert isinstance(visitor.end(), CancelledError)


def test_a_closed_session_ends_a_pause(visitor: Visitor) -> None:
    visitor.pause()
    visitor.session.close()
    assert isinstance(visitor.end(), CancelledError)


def test_a_pause_without_a_browser_is_told_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    g, y = loop()
    with hr.Session(graph=g) as s, hr.breakpoint_page(patience=0.7) as page:
        url = page.url
        with hr.breakpoint_when("loop/up", on_pause=page), pytest.raises(CancelledError, match="at a breakpoint"):
            s.run(y)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"headrace: breakpoints: {url}"
    assert f"open {url}, or press Ctrl-C" in lines[1]
    assert "no browser has shown the page for 0.7 s, so the step is cancelled" in lines[2]


def test_ctrl_c_ends_a_pause() -> None:
    program = (
        "import headrace as hr\n"
        "with hr.Graph() as g:\n"
        "    y = hr.while_loop(lambda i: i < 5, lambda i: hr.add(i, 1, name='up'), [0], name='loop')[0]\n"
        "with hr.breakpoint_page() as page, hr.breakpoint_when('loop/up', on_pause=page):\n"
        "    hr.Session(graph=g).run(y)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            for _ in range(2):  # the address, and the line about the pause
                line = process.stderr.readline()
            assert "or press Ctrl-C" in line
            process.send_signal(signal.SIGINT)
            assert process.wait(SECONDS) != 0
            assert "KeyboardInterrupt" in process.stderr.read()
        finally:
            process.kill()


def test_a_page_serves_the_runs_of_its_block_only() -> None:
    g, y = loop()
    page = hr.breakpoint_page()
    point = hr.breakpoint_when("loop/up", on_pause=page)
    refused = pytest.raises(FailedPreconditionError, match="a page that is not open for this run")
    with hr.Session(graph=g) as session, point, refused:
        session.run(y)
    with page, pytest.raises(FailedPreconditionError, match="is open already"), page:
        pass
    assert page.url == ""
    with pytest.raises(ValueError, match="positive"):
        hr.breakpoint_page(patience=0.0)
