"""Limits of a connection, which the server library does not have.

A client that sends a request slowly, byte by byte, or does not read its response would hold memory and a connection
for as long as it likes. A timer runs from the first moment of a connection, and from the first byte of a request, to
the end of the request; another one while the client does not read.
"""

from __future__ import annotations

from asyncio import TimerHandle, Transport
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headrace.serve.limits import Limits

_LATE: Final = b'{"error":"the request did not arrive in time"}'
_RESPONSE: Final = (
    b"HTTP/1.1 408 Request Timeout\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_LATE), _LATE)
)


def protocol_with(limits: Limits) -> type[HttpToolsProtocol]:
    """The class of connections with these limits.

    Args:
      limits: times and sizes.
    """

    most_bytes = limits.header_bytes + 8 * limits.body_bytes  # a chunk of one byte takes six

    class Connection(HttpToolsProtocol):
        """A connection with deadlines for requests and responses."""

        _arriving: TimerHandle | None = None
        _unread: TimerHandle | None = None
        _is_partial = False  # a request has begun and not ended
        _is_head = False  # its headers have not ended
        _size = 0  # bytes of a request that did not come as a whole

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._expect()

        def connection_lost(self, exc: Exception | None) -> None:
            self._arrived()
            self.resume_writing()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self._is_partial:
                if self._arriving is None:
                    self._expect()
                self._size += len(data)
                most = limits.header_bytes if self._is_head else most_bytes
                if self._size > most and not self.transport.is_closing():
                    self.send_400_response(f"the request has more than {most} bytes of headers or of chunks")
            elif self.cycle is not None and not self.cycle.response_complete:
                self._arrived()
            elif self._arriving is None:  # an empty line between requests, which ends the library's own timer
                self._expect()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._is_partial = self._is_head = True
            self._size = 0

        def on_headers_complete(self) -> None:
            self._is_head = False
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._is_partial = False
            super().on_message_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            if self._unread is None:
                self._unread = self.loop.call_later(limits.response_seconds, self.transport.abort)

        def resume_writing(self) -> None:
            if self._unread is not None:
                self._unread.cancel()
                self._unread = None
            super().resume_writing()

        def _is_answerable(self) -> bool:
            """Whether the request that is late is also the one to be answered next."""
            return self._is_partial and not self._is_head and not self.pipeline and not self.cycle.response_started

        def _expect(self) -> None:
            self._arriving = self.loop.call_later(limits.request_seconds, self._late)

        def _arrived(self) -> None:
            if self._arriving is not None:
                self._arriving.cancel()
                self._arriving = None

        def _late(self) -> None:
            self._arriving = None
            if not self.transport.is_closing():
                if self.cycle is None or self.cycle.response_complete or self._is_answerable():
                    self.transport.write(_RESPONSE)
                self.transport.close()

    return Connection


def options(limits: Limits) -> dict[str, Any]:
    """The server library's own options for these limits.

    Args:
      limits: times and numbers.
    """
    return {
        "http": protocol_with(limits),
        "limit_concurrency": int(limits.connections),
        "timeout_keep_alive": limits.idle_seconds,
        "timeout_graceful_shutdown": limits.end_seconds,
    }
