"""The server of the page: its answers, refusals and end; the command `view`."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import headrace as hr
from headrace import cli
from headrace.view.server import LOOPBACK, PageServer

pytestmark = pytest.mark.system

DOCUMENT = json.dumps({"format": "headrace-recording", "strings": ["</script><script>alert(1)</script>"]})


def ask(port: int, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()


def test_the_server_answers_with_the_page_and_the_document() -> None:
    with PageServer(DOCUMENT) as server:
        status, headers, body = ask(server.port)
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"Content-Security-Policy" in body
        assert b"alert(1)" not in body, "the page asks for the document"
        status, headers, body = ask(server.port, "/recording.json")
        assert (status, headers["content-type"], body.decode()) == (200, "application/json", DOCUMENT)
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers
        assert ask(server.port, "/", "HEAD")[2] == b""
        assert server.url == f"http://127.0.0.1:{server.port}/"


@pytest.mark.parametrize("path", ["/page.py", "/../page.py", "/assets/page.css", "/?x", "/%2e%2e/%2e%2e/etc/passwd"])
def test_the_server_reads_no_file_for_a_request(path: str) -> None:
    with PageServer(DOCUMENT) as server:
        assert ask(server.port, path)[0] == 404


def test_a_request_for_another_host_is_refused() -> None:
    with PageServer(DOCUMENT) as server:
        for host in (
            "attacker.example",
            f"attacker.example:{server.port}",
            "127.0.0.1",
            f"127.0.0.1:{server.port}.x",
            "",
        ):
            assert ask(server.port, "/recording.json", Host=host)[0] == 403
        assert ask(server.port, "/recording.json", Host=f"localhost:{server.port}")[0] == 200
        two = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nHost: attacker.example\r\n\r\n"
        for request in (two, "GET / HTTP/1.1\r\n\r\n"):
            with socket.create_connection((LOOPBACK, server.port), timeout=20) as s:
                s.sendall(request.encode())
                assert s.recv(100).startswith(b"HTTP/1.1 403")


def test_other_methods_are_refused() -> None:
    with PageServer(DOCUMENT) as server:
        assert ask(server.port, "/", "POST")[0] == 501
        assert ask(server.port, "/", "OPTIONS")[0] == 501


def test_the_server_listens_on_the_loopback_interface_and_ends_with_its_block() -> None:
    before = set(threading.enumerate())
    with PageServer(DOCUMENT) as server:
        assert server._server.server_address[0] == "127.0.0.1"
        with pytest.raises(OSError, match="in use"):
            PageServer(DOCUMENT, server.port)
        idle = socket.create_connection(
            (LOOPBACK, server.port), timeout=20
        )  # an open connection does not delay the end
    idle.close()
    assert not [t for t in set(threading.enumerate()) - before if t.name == "headrace-view"]
    with pytest.raises(ConnectionRefusedError):
        ask(server.port)


# *** the command ***


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    with hr.Graph() as g:
        y = hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0], name="count")[0]
    file = tmp_path / "step.hrrec"
    with hr.Session(graph=g) as s, hr.record(file):
        s.run(y)
    return file


def test_view_serves_a_recording_until_it_is_interrupted(recording: Path) -> None:
    command = [sys.executable, "-m", "headrace", "view", str(recording)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            port = int(line.partition("http://127.0.0.1:")[2].partition("/")[0])
            document = json.loads(ask(port, "/recording.json")[2])
            assert [t["text"] for t in document["tags"]] == ["", "count#0", "count#1", "count#2", "count#3"]
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_view_writes_a_page_with_the_document_in_it(recording: Path, tmp_path: Path) -> None:
    out = tmp_path / "step.html"
    assert cli.main(["view", str(recording), "--html", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    assert "count#3" in page
    assert "default-src 'none'" in page
    assert "http://" not in page.partition('id="recording"')[0].replace("http://www.w3.org", "")


def test_view_takes_a_graph_without_a_run(tmp_path: Path) -> None:
    graph, out = tmp_path / "graph.txt", tmp_path / "graph.html"
    graph.write_text('x = Const[value=string[]{"</script><!--"}, dtype=string]\ny = Identity(x)\n')
    assert cli.main(["view", str(graph), "--html", str(out)]) == 0
    text = out.read_text(encoding="utf-8").partition('id="recording">')[2].partition("</script>")[0]
    nodes = json.loads(text)["nodes"]
    assert [(n["name"], n["constant"]) for n in nodes] == [("x", "b'</script><!--'"), ("y", None)]


def test_view_names_what_it_cannot_use(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "damaged.hrrec"
    damaged.write_bytes(recording.read_bytes()[:100])
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        cases = {
            ("view", str(damaged)): "not a recording",
            ("view", str(tmp_path / "none")): "cannot read",
            ("view", str(recording), "--html", str(tmp_path / "no" / "x.html")): "cannot write",
            ("view", str(recording), "--port", "70000"): "from 0 to 65535",
            ("view", str(recording), "--port", str(port)): f"cannot use port {port}",
        }
        for args, why in cases.items():
            assert cli.main(args) == 2, args
            assert why in capsys.readouterr().err
