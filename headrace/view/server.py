"""Server of a page on the loopback interface of this machine.

It reads no file for a request: `LoopbackServer` asks a function for the answer to a path, and another one to act.
`PageServer` has two answers, the page of a recording and its document. A page of another host that is open in the same
browser must neither read an answer nor act. So a request is answered only if its Host is this server's own address,
since a name that such a page controls may resolve to 127.0.0.1 (DNS rebinding), no other origin may read the answer,
and a request that acts must have the Origin of the server's own page.
"""

from __future__ import annotations

import http.server
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from headrace.view.page import assemble

if TYPE_CHECKING:
    from types import TracebackType

LOOPBACK: Final = "127.0.0.1"
LONGEST_REQUEST: Final = 4096  # bytes of the body of a request
HTML: Final = "text/html; charset=utf-8"
JSON: Final = "application/json"
_TEXT: Final = "text/plain"
_SECONDS: Final = 10.0  # the longest wait for a request on an open connection

_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Answer(NamedTuple):
    """Answer to a request.

    Attributes:
      kind: its media type.
      body: its contents.
      status: the status of HTTP.
    """

    kind: str
    body: bytes
    status: HTTPStatus = HTTPStatus.OK


class LoopbackServer:
    """Server that runs in the `with` block, in threads of its own.

    Args:
      get: the answer to a path; None: there is no such path. Several threads call it.
      port: the port; 0: a free one.
      act: the answer to a path and the body of a POST, which is JSON of at most `LONGEST_REQUEST` bytes; None: the
        server only answers.
      path: the path of the page, which ends the address.

    Attributes:
      port: the port.
      url: the address of the page.

    Raises:
      OSError: the port is in use, or may not be used.
    """

    def __init__(
        self,
        get: Callable[[str], Answer | None],
        port: int = 0,
        act: Callable[[str, bytes], Answer | None] | None = None,
        path: str = "/",
    ) -> None:
        self._server = _Server((LOOPBACK, port), _Handler if act is None else _ActingHandler)
        self._server.get = get
        self._server.act = act
        self.port = int(self._server.server_address[1])
        self._server.hosts = frozenset({f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"})
        self.url = f"http://{LOOPBACK}:{self.port}{path}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="headrace-view", daemon=True
        )

    def __enter__(self) -> Self:
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


class PageServer(LoopbackServer):
    """Server of one document.

    Args:
      document_json: the document of a recording as JSON.
      port: the port; 0: a free one.

    Raises:
      OSError: the port is in use, or may not be used.

    Example:
      >>> import json, urllib.request
      >>> with PageServer("{}") as server:
      ...     json.load(urllib.request.urlopen(f"{server.url}recording.json", timeout=10))
      {}
    """

    def __init__(self, document_json: str, port: int = 0) -> None:
        answers = {"/": Answer(HTML, assemble(None).encode()), "/recording.json": Answer(JSON, document_json.encode())}
        super().__init__(answers.get, port)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = False
    get: Callable[[str], Answer | None]
    act: Callable[[str, bytes], Answer | None] | None
    hosts: frozenset[str]

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # else the browser closed the connection before its answer
            super().handle_error(request, client_address)


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
        if self._is_foreign("Host", ""):
            self._refuse(HTTPStatus.FORBIDDEN, "the Host is not this server", has_body)
        elif (found := self.server.get(self.path)) is None:
            self._refuse(HTTPStatus.NOT_FOUND, "not found", has_body)
        else:
            self._send(found, has_body)

    def _is_foreign(self, header: str, scheme: str) -> bool:
        """Whether a header is not, once, an address of this server."""
        return self.headers.get_all(header, []) not in [[scheme + host] for host in self.server.hosts]

    def _refuse(self, status: HTTPStatus, why: str, has_body: bool = True) -> None:
        self._send(Answer(_TEXT, f"{why}\n".encode(), status), has_body)

    def _send(self, answer: Answer, has_body: bool = True) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if has_body:
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing: the terminal shows the address only."""


class _ActingHandler(_Handler):
    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        self.close_connection = True  # the body of a refused request is not read
        if self._is_foreign("Host", ""):
            self._refuse(HTTPStatus.FORBIDDEN, "the Host is not this server")
        elif self._is_foreign("Origin", "http://"):
            self._refuse(HTTPStatus.FORBIDDEN, "the Origin is not the page of this server")
        elif self.headers.get("Content-Type") != JSON:
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected {JSON}")
        elif not (length.isascii() and length.isdecimal()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "expected the length of the body")
        elif len(length) > 9 or int(length) > LONGEST_REQUEST:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {LONGEST_REQUEST} bytes are read")
        else:
            assert self.server.act is not None, "this handler is for servers that act"
            body = self.rfile.read(int(length))
            found = self.server.act(self.path, body)
            if found is None:
                self._refuse(HTTPStatus.NOT_FOUND, "not found")
            else:
                self._send(found)
