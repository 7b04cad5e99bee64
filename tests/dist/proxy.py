"""TCP proxy in front of a server, by which tests cut links and restore them.

    with Proxies() as proxies:
        proxy = proxies.add("127.0.0.1:2222")       # others connect to proxy.address
        proxy.cut("reset", lambda peer: peer.role == "master")
        proxy.restore()

The proxy reads the role and name of each connector from its `Hello`, so that a cut can concern some links alone. There
are two kinds of cuts. A *reset* closes the links and refuses new ones: bytes under way are lost, and both ends notice
at once. A *hole* forwards no byte and closes nothing, as a network does whose cable is out: both ends notice by their
heartbeats. When it is restored, the bytes that have waited are forwarded, as TCP does it.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final, Literal

from headrace.dist import messages
from headrace.dist.handshake import Peer
from headrace.dist.network import split_address
from headrace.errors import DataLossError

Kind = Literal["reset", "hole"]
Match = Callable[[Peer], bool]

UNKNOWN: Final = Peer("", "", 0)  # a connector before its `Hello`
_HEAD: Final = struct.Struct("<IIQ")
_PIECE: Final = 1 << 18
_MOST_WAITING: Final = 1 << 22  # bytes of one direction; the proxy reads no more until they are forwarded


def _any(peer: Peer) -> bool:
    return True


class _End:
    """One socket of a pair, with the bytes for it."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.waiting = bytearray()  # to be sent to this socket
        self.ends = False  # whether nothing follows `waiting`
        self.is_over = False  # whether nothing more arrives from this socket


class _Pair:
    """A connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client, self.server = _End(client), _End(server)
        self.peer = UNKNOWN
        self.is_held = False  # by a hole
        self._said: bytearray | None = bytearray()  # until the `Hello` is complete

    def hear(self, data: bytes) -> None:
        """Finds role and name of the connector in its first bytes."""
        if self._said is None:
            return
        said = self._said
        said += data
        if len(said) < _HEAD.size:
            return
        _, n, length = _HEAD.unpack_from(said)
        if len(said) < min(length, 1 << 16):
            return
        self._said = None
        with contextlib.suppress(DataLossError):
            m = messages.decode(bytes(said[_HEAD.size : _HEAD.size + n]))
            if isinstance(m, messages.Hello):
                self.peer = Peer(m.role, m.name, m.incarnation)

    def other(self, end: _End) -> _End:
        return self.server if end is self.client else self.client


class Proxy:
    """Address in front of one server. Thread-safe.

    Attributes:
      address: "host:port", to which others connect.
    """

    def __init__(self, proxies: Proxies, target: str) -> None:
        self._proxies = proxies
        self._target = split_address(target)
        self._cut: tuple[Kind, Match] | None = None
        self._pairs: set[_Pair] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def peers(self) -> list[Peer]:
        """The connectors of the links that exist now."""
        with self._proxies.lock:
            return [pair.peer for pair in self._pairs]

    def cut(self, kind: Kind, match: Match = _any) -> None:
        """Cuts links, until `restore`.

        Args:
          kind: "reset" or "hole", see the module.
          match: whether the link of a connector is cut.
        """
        with self._proxies.lock:
            self._cut = kind, match
            for pair in list(self._pairs):
                self._apply(pair)
        self._proxies.wake()

    def restore(self) -> None:
        """Ends the cut."""
        with self._proxies.lock:
            self._cut = None
            for pair in self._pairs:
                pair.is_held = False
                self._arm(pair)
        self._proxies.wake()

    # *** in the thread of the proxies, or with their lock ***

    def _apply(self, pair: _Pair) -> None:
        if self._cut is None or pair.peer is UNKNOWN or not self._cut[1](pair.peer):
            return
        if self._cut[0] == "reset":
            self._drop(pair)
        else:
            pair.is_held = True
            self._arm(pair)

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        server = socket.socket()
        for s in (client, server):
            s.setblocking(False)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        code = server.connect_ex(self._target)
        if code not in (0, errno.EINPROGRESS):
            _reset(client)
            server.close()
            return
        pair = _Pair(client, server)
        self._pairs.add(pair)
        self._arm(pair)

    def _arm(self, pair: _Pair) -> None:
        """Sets the events that are polled."""
        for end in (pair.client, pair.server):
            mask = 0
            if not pair.is_held:
                if not end.is_over and len(pair.other(end).waiting) < _MOST_WAITING:
                    mask |= selectors.EVENT_READ
                if end.waiting or end.ends:
                    mask |= selectors.EVENT_WRITE
            self._proxies.watch(end.socket, mask, lambda events, pair=pair, end=end: self._move(pair, end, events))

    def _move(self, pair: _Pair, end: _End, events: int) -> None:
        """Receives from and sends to one end of a pair."""
        if pair not in self._pairs or pair.is_held:
            return
        other = pair.other(end)
        try:
            if events & selectors.EVENT_READ:
                data = end.socket.recv(_PIECE)
                if end is pair.client:
                    pair.hear(data)
                other.waiting += data
                if not data:
                    end.is_over = other.ends = True
                self._apply(pair)
                if pair not in self._pairs or pair.is_held:
                    return
                self._send(other)
            if events & selectors.EVENT_WRITE:
                self._send(end)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(pair)
            return
        if pair.client.is_over and pair.server.is_over and not pair.client.waiting and not pair.server.waiting:
            self._drop(pair, False)
        else:
            self._arm(pair)

    def _send(self, end: _End) -> None:
        if end.waiting:
            with contextlib.suppress(BlockingIOError):
                n = end.socket.send(end.waiting)
                del end.waiting[:n]
        if end.ends and not end.waiting:
            end.ends = False
            end.socket.shutdown(socket.SHUT_WR)

    def _drop(self, pair: _Pair, has_reset: bool = True) -> None:
        self._pairs.discard(pair)
        for end in (pair.client, pair.server):
            self._proxies.watch(end.socket, 0, None)
            if has_reset:
                _reset(end.socket)
            else:
                end.socket.close()


class Proxies:
    """Proxies of one process, which share a thread."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._proxies: list[Proxy] = []
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._is_closed = False
        self.watch(self._wake_in, selectors.EVENT_READ, lambda events: self._wake_in.recv(4096))
        self._thread = threading.Thread(target=self._run, name="proxies", daemon=True)
        self._thread.start()

    def add(self, target: str) -> Proxy:
        """Returns a new proxy in front of the server at `target`, which may start later."""
        proxy = Proxy(self, target)
        with self.lock:
            self._proxies.append(proxy)
            self.watch(proxy._listener, selectors.EVENT_READ, lambda events: proxy._accept())
        self.wake()
        return proxy

    def watch(self, sock: socket.socket, mask: int, handler: Callable[[int], object] | None) -> None:
        """Sets the events of a socket and their handler. The lock is held."""
        known = sock.fileno() >= 0 and sock.fileno() in self._selector.get_map()
        if not mask:
            if known:
                self._selector.unregister(sock)
        elif known:
            self._selector.modify(sock, mask, handler)
        else:
            self._selector.register(sock, mask, handler)

    def wake(self) -> None:
        """Lets the thread poll again."""
        with contextlib.suppress(OSError):
            self._wake_out.send(b"x")

    def close(self) -> None:
        """Closes all links."""
        self._is_closed = True
        self.wake()
        self._thread.join(10)
        for proxy in self._proxies:
            for pair in list(proxy._pairs):
                proxy._drop(pair)
            proxy._listener.close()
        self._wake_in.close()
        self._wake_out.close()
        self._selector.close()

    def __enter__(self) -> Proxies:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._is_closed:
            ready = self._selector.select(1.0)
            with self.lock:
                for key, events in ready:
                    if key.fileobj.fileno() >= 0 and key.fd in self._selector.get_map():  # type: ignore[union-attr]
                        key.data(events)


def _reset(sock: socket.socket) -> None:
    """Closes a connection; the other end gets a reset and loses unread bytes."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
