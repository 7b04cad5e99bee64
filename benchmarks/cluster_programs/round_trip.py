"""Raw TCP round trips between two Python processes: blocking sockets, 100 bytes, no delay."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from benchmarks.cluster_programs import Place
from benchmarks.measure import no_collection

BYTES = 100
TIMEOUT = 30.0  # seconds to connect


def echo(address: str, listening: Callable[[], None]) -> None:
    """Sends back every message of one connection.

    Args:
      address: address to listen at.
      listening: called once connections are accepted.
    """
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port))) as server:
        listening()
        connection, _ = server.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while message := connection.recv(BYTES, socket.MSG_WAITALL):
                connection.sendall(message)


class RoundTrip:
    """Client of the second task's echo."""

    def __init__(self, tf: Any, place: Place) -> None:
        host, port = place.cluster[place.job][1].rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), TIMEOUT)
        self._socket.settimeout(None)  # blocking: a timeout would poll before each call
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, trips: int) -> float:
        """Seconds of so many round trips, one after the other."""
        message = bytes(range(BYTES))
        send, receive, flags = self._socket.sendall, self._socket.recv, socket.MSG_WAITALL
        with no_collection():
            began = time.perf_counter()
            for _ in range(trips):
                send(message)
                answer = receive(BYTES, flags)
            seconds = time.perf_counter() - began
        if answer != message:
            raise ArithmeticError(f"the echo of {message!r} is {answer!r}")
        return seconds

    def close(self) -> None:
        self._socket.close()
