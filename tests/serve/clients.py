"""Clients of HTTP for tests: single requests, raw bytes, and load."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from typing import Any

SECONDS = 20.0  # the longest wait of a test


def request(port: int, path: str, body: bytes | None = None) -> tuple[int, Any]:
    """Sends a request; returns the status and the content of the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET" if body is None else "POST", path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def exchanged(port: int, *parts: bytes, pause: float = 0.0) -> bytes:
    """Sends bytes with pauses between the parts; returns all received bytes."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        received = []
        for part in parts:
            try:
                connection.sendall(part)
            except OSError:
                break
            time.sleep(pause)
        while True:
            try:
                found = connection.recv(1 << 16)
            except ConnectionResetError:
                break
            if not found:
                break
            received.append(found)
        return b"".join(received)


class Load:
    """Clients that send requests on kept connections until their or the server's end.

    A client counts a request as lost if its response is missing after the request was sent on an open connection.
    A refused connection ends the client, since it means that the server accepts no more.

    Args:
      port: the port of the server.
      path: the path of the requests.
      body: their body.
      clients: the number of clients.

    Attributes:
      answers: the content of each response with status 200, as text.
      lost: a text for each request without a response of status 200.
    """

    def __init__(self, port: int, path: str, body: bytes, clients: int = 8) -> None:
        self.answers: list[str] = []
        self.lost: list[str] = []
        self._port, self._path, self._body = port, path, body
        self._is_stopped = threading.Event()
        self._threads = [threading.Thread(target=self._send_all, daemon=True) for _ in range(clients)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._is_stopped.set()
        self.join()

    def join(self) -> None:
        """Waits for the end of all clients."""
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()

    def wait(self, answers: int) -> None:
        """Waits for a number of further responses."""
        wanted, until = len(self.answers) + answers, time.monotonic() + SECONDS
        while len(self.answers) < wanted:
            assert time.monotonic() < until, (len(self.answers), self.lost)
            time.sleep(0.005)

    def _send_all(self) -> None:
        while not self._is_stopped.is_set():
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS)
            try:
                connection.connect()
            except ConnectionRefusedError:
                return
            try:
                self._send_on(connection)
            finally:
                connection.close()

    def _send_on(self, connection: http.client.HTTPConnection) -> None:
        while not self._is_stopped.is_set():
            try:
                connection.request("POST", self._path, self._body)
                response = connection.getresponse()
                content = response.read().decode()
            except (OSError, http.client.HTTPException) as e:
                self.lost.append(f"{type(e).__name__}: {e}")
                return
            if response.status != 200:
                self.lost.append(f"{response.status}: {content}")
            else:
                self.answers.append(content)
            if response.will_close:
                return
