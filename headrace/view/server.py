"""Server of the page of a recording, on the loopback interface of this machine.

It has two answers, the page and its document, and reads no file for a request. A page of another host that is open in
the same browser must not read a recording: a request is answered only if its Host is this server's own address, since a
name that such a page controls may resolve to 127.0.0.1 (DNS rebinding), and no other origin may read the answer.
"""

from __future__ import annotations

import http.server
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from headrace.view.page import assemble

if TYPE_CHECKING:
    from types import TracebackType

LOOPBACK: Final = "127.0.0.1"
_SECONDS: Final = 10.0  # the longest wait for a request on an open connection

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageServer:
    """Server of one document; it runs in the `with` block, in threads of its own.

    Args:
      document_json: the document of a recording as JSON.
      port: the port; 0: a free one.

    Attributes:
      port: the port.
      url: the address of the page.

    Raises:
      OSError: the port is in use, or may not be used.

    Example:
      >>> import json, urllib.request
      >>> with PageServer("{}") as server:
      ...     json.load(urllib.request.urlopen(f"{server.url}recording.json", timeout=10))
      {}
    """

    def __init__(self, document_json: str, port: int = 0) -> None:
        self._answers = {
            "/": ("text/html; charset=utf-8", assemble(None).encode()),
            "/recording.json": ("application/json", document_json.encode()),
        }
        self._server = _Server((LOOPBACK, port), _Handler)
        self._server.answers = self._answers
        self.port = int(self._server.server_address[1])
        self._server.hosts = frozenset({f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"})
        self.url = f"http://{LOOPBACK}:{self.port}/"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="headrace-view", daemon=True
        )

    def __enter__(self) -> PageServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_SECONDS)

    def wait(self) -> None:
        """Waits until an exception (Ctrl-C) ends the wait."""
        while self._thread.is_alive():
            self._thread.join(1.0)  # with a limit, so that Python handles signals in between


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False
    answers: dict[str, tuple[str, bytes]]
    hosts: frozenset[str]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version = "headrace"
    sys_version = ""
    timeout = _SECONDS

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def _answer(self, has_body: bool) -> None:
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"the Host is not this server\n", has_body)
            return
        found = self.server.answers.get(self.path)
        if found is None:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n", has_body)
        else:
            self._send(HTTPStatus.OK, *found, has_body)

    def _send(self, status: HTTPStatus, kind: str, body: bytes, has_body: bool) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing: the terminal shows the address only."""
