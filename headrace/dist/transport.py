"""Connections are made here: listening, connecting, and their handshakes.

    listener = listen(reactor, host, port, on_link, identity)
    attempt = connect(reactor, host, port, on_link, on_failed, identity)

Both ends get a `Link` after the handshake (`dist.handshake`). Until it is complete, a frame has at most 64 KiB, a
connection that sends anything but the handshake is closed, and a listener has only a small number of such connections,
for a few seconds each.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace import thresholds
from headrace.dist.codec import Control, Frame, encode_control
from headrace.dist.handshake import Acceptor, Connector, Identity
from headrace.dist.link import Link, LinkSettings, error_text, warn
from headrace.dist.messages import AnyMessage, Refused
from headrace.dist.reactor import READ, WRITE, Reactor, Timer
from headrace.errors import DataLossError, DeadlineExceededError, OpError, UnauthenticatedError, UnavailableError

if TYPE_CHECKING:
    import ssl

_Address: TypeAlias = tuple[int, int, int, str, Any]  # an entry of `socket.getaddrinfo`
_REFUSED: Final = os.strerror(errno.ECONNREFUSED)
OnLink: TypeAlias = "Callable[[Link], object]"
OnFailed: TypeAlias = Callable[[OpError], object]


def format_address(host: str, port: int) -> str:
    """Returns "host:port", or "[host]:port" for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# *** listening ***


class Listener:
    """A socket that accepts connections. Made by `listen`.

    Attributes:
      address: "host:port", with the actual port.
      port: the actual port.
    """

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        on_link: OnLink,
        identity: Identity,
        settings: LinkSettings,
        tls: ssl.SSLContext | None,
        handshake_timeout: float,
        most_unknown: int,
    ) -> None:
        host, self.port = sock.getsockname()[:2]
        self.address = format_address(host, self.port)
        self._reactor = reactor
        self._socket = sock
        self._fd = sock.fileno()
        self._on_link = on_link
        self._identity = identity
        self._settings = settings
        self._tls = tls
        self._handshake_timeout = handshake_timeout
        self._most_unknown = most_unknown
        self._unknown: set[_Accepted] = set()
        self._accepting = threading.Lock()  # held while the socket is used
        self._is_closed = False
        self._is_finished = False

    def close(self, reason: str = "") -> None:
        """Accepts no more connections. Existing links stay open. Further calls have no effect.

        Args:
          reason: not used.
        """
        if not self._is_closed:
            self._is_closed = True
            try:
                self._reactor.submit(self._finish)
            except OpError:  # the reactor has ended
                self._finish()

    def _begin(self) -> None:
        self._reactor.add(self)
        self._reactor.register(self._fd, self._acceptable, self._acceptable)

    def _acceptable(self) -> None:
        """Callback: connections have arrived."""
        with self._accepting:
            for _ in range(16):
                if self._is_closed:
                    return
                try:
                    sock, address = self._socket.accept()
                except (BlockingIOError, ConnectionAbortedError):
                    return
                except OSError as e:
                    if e.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                        raise
                    warn(f"{self.address} accepts no connections for a second: {error_text(e)}")
                    self._reactor.set_interest(self._fd, 0)
                    self._reactor.call_later(1.0, self._resume)
                    return
                self._accept(sock, format_address(*address[:2]))

    def _resume(self) -> None:
        with self._accepting:
            if not self._is_closed:
                self._reactor.set_interest(self._fd, READ)

    def _accept(self, sock: socket.socket, address: str) -> None:
        if len(self._unknown) >= self._most_unknown:
            warn(f"a connection from {address} was closed: {self._most_unknown} others have not said their names yet")
            sock.close()
            return
        _Accepted(self, sock, address)

    def _finish(self) -> None:
        with self._accepting:
            if self._is_finished:
                return
            self._is_finished = True
            self._reactor.unregister(self._fd)
            self._socket.close()
        self._reactor.discard(self)
        for accepted in list(self._unknown):
            accepted.link.close("the listener was closed")

    def _forked(self) -> None:
        self._is_closed = self._is_finished = True
        self._socket.close()


class _Accepted:
    """Handshake of the end of a connection that listened."""

    def __init__(self, listener: Listener, sock: socket.socket, address: str) -> None:
        self.error: OpError | None = None
        self._listener = listener
        self._acceptor = Acceptor(listener._identity)
        self._timer: Timer | None = None
        sock.setblocking(False)
        self.link = Link(listener._reactor, sock, address, listener._settings, self)
        context = listener._tls
        secure = None
        if context is not None:
            secure = lambda s: context.wrap_socket(s, server_side=True, do_handshake_on_connect=False)
        listener._unknown.add(self)
        try:
            _set_options(sock)
            self._timer = listener._reactor.call_later(listener._handshake_timeout, self._expire)
            self.link.begin(secure)
        except (OSError, OpError) as e:
            self.link.fail(UnavailableError(str(e)))

    def begin(self) -> None:
        self.link.send(encode_control(self._acceptor.challenge()))

    def receive(self, frame: Frame) -> None:
        try:
            welcome = self._acceptor.receive(_message(frame))
        except UnauthenticatedError as e:
            self.link.send(encode_control(Refused(e.message)))
            raise
        peer = self._acceptor.peer
        assert peer is not None
        self.link.send(encode_control(welcome))
        self._end()
        self.link.open(peer)
        _notify(self._listener._on_link, self.link, self._listener._reactor)

    def lost(self, reason: str) -> None:
        self._end()
        warn(f"a connection from {self.link.address} was closed before the end of its handshake: {reason}")

    def _expire(self) -> None:
        if self.link.peer is None:
            self.link.close(f"the handshake was not complete within {self._listener._handshake_timeout:g} s")

    def _end(self) -> None:
        self._listener._unknown.discard(self)
        if self._timer is not None:
            self._timer.cancel()


def listen(
    reactor: Reactor,
    host: str,
    port: int,
    on_link: OnLink,
    identity: Identity,
    *,
    settings: LinkSettings | None = None,
    tls: ssl.SSLContext | None = None,
    handshake_timeout: float = 5.0,
    most_unknown: int = 64,
) -> Listener:
    """Listens on an address.

    Args:
      reactor: the reactor of this process.
      host: a host name, or an IPv4 or IPv6 address. "" is any address.
      port: the port; 0: any free one.
      on_link: called with each link after its handshake, in the leader of the reactor and before any frame is
        delivered. It sets `on_frames` and `on_closed`.
      identity: name and secret of this process.
      settings: the numbers of the links.
      tls: the context with the certificate of this process; None: connections are not encrypted.
      handshake_timeout: seconds until a handshake must be complete.
      most_unknown: the largest number of connections whose handshake is not complete. Further ones are closed.

    Raises:
      UnavailableError: the address cannot be used.
    """
    sock: socket.socket | None = None
    try:
        family, _, _, _, address = _resolve(host, port, socket.AI_PASSIVE)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
        settings = LinkSettings() if settings is None else settings
        listener = Listener(reactor, sock, on_link, identity, settings, tls, handshake_timeout, most_unknown)
        listener._begin()
    except (OSError, OpError) as e:
        if sock is not None:
            sock.close()
        if isinstance(e, OpError):
            raise
        raise UnavailableError(f"cannot listen on {format_address(host, port)}: {error_text(e)}") from e
    return listener


# *** connecting ***


class Connecting:
    """A connection that is being made. Returned by `connect`.

    Attributes:
      address: the address of the other end.
      error: the error of the handshake, if it has failed.
    """

    def __init__(
        self,
        reactor: Reactor,
        host: str,
        port: int,
        on_link: OnLink,
        on_failed: OnFailed,
        connector: Connector,
        timeout: float,
        settings: LinkSettings,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
        waits: bool,
    ) -> None:
        self.error: OpError | None = None
        self.address = format_address(host, port)
        self._reactor = reactor
        self._host, self._port = host, port
        self._on_link, self._on_failed = on_link, on_failed
        self._connector = connector
        self._timeout = timeout
        self._settings = settings
        self._tls = tls
        self._server_hostname = server_hostname or host
        self._waits = waits
        self._stage = "its name is not resolved"
        self._said_hello = False
        self._lock = threading.Lock()  # guards the fields below
        self._known: Sequence[_Address] = ()
        self._addresses: deque[_Address] = deque()  # those that are not tried yet
        self._socket: socket.socket | None = None  # before the link is made
        self._link: Link | None = None
        self._is_settled = False
        self._timer = reactor.call_later(timeout, self._expire)

    def cancel(self, reason: str = "the connection is not needed any more") -> None:
        """Gives up, unless `on_link` has been called. `on_failed` is called with the reason."""
        self._settle(UnavailableError(reason))

    close = cancel  # by the reactor

    def _start(self) -> None:
        self._reactor.add(self)
        try:
            self._try_addresses(_resolve(self._host, self._port, socket.AI_NUMERICHOST))
        except OSError:  # a name
            self._reactor.submit(self._resolve_name)

    def _resolve_name(self) -> None:
        self._reactor.busy()
        try:
            self._try_addresses(_resolve(self._host, self._port))
        except OSError as e:
            self._settle(UnavailableError(error_text(e)))

    def _try_addresses(self, addresses: Sequence[_Address]) -> None:
        self._stage = "the host does not answer"
        self._known = addresses
        self._try_all()

    def _try_all(self) -> None:
        self._addresses.extend(self._known)
        self._try_next("the host has no address")

    def _try_next(self, problem: str) -> None:
        """Tries the next address.

        Args:
          problem: the problem of the address before, which is reported if no address is left.
        """
        with self._lock:
            while self._addresses and not self._is_settled:
                family, _, _, _, address = self._addresses.popleft()
                try:
                    sock = socket.socket(family, socket.SOCK_STREAM)
                except OSError as e:
                    problem = error_text(e)
                    continue
                sock.setblocking(False)
                _set_options(sock)
                code = sock.connect_ex(address)
                if code not in (0, errno.EINPROGRESS):
                    problem = os.strerror(code)
                    sock.close()
                    continue
                connected = functools.partial(self._connected, sock)
                self._socket = sock
                try:
                    self._reactor.register(sock.fileno(), connected, connected, WRITE)
                    return
                except OpError as e:  # the reactor has ended
                    problem, self._socket = e.message, None
                    sock.close()
        if not self._waits or problem != _REFUSED or not self._try_later(problem):
            self._settle(UnavailableError(problem))

    def _try_later(self, problem: str) -> bool:
        """Tries all addresses again after a pause, until the attempt expires; returns whether it will."""
        self._stage = problem
        try:
            self._reactor.call_later(thresholds.WORKER_RETRY, self._try_all)
        except OpError:  # the reactor has ended
            return False
        return True

    def _connected(self, sock: socket.socket) -> None:
        """Callback: the socket is connected, or it has failed."""
        problem = ""
        with self._lock:
            if self._socket is not sock:  # settled, or called twice
                return
            self._socket = None
            self._reactor.unregister(sock.fileno())
            try:
                if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    problem = os.strerror(code)
                elif sock.getsockname() == sock.getpeername():  # TCP connects a free local port to itself
                    problem = _REFUSED
            except OSError as e:
                problem = error_text(e)
            if not problem:
                self._stage = "the other process has not completed the handshake"
                self._link = link = Link(self._reactor, sock, self.address, self._settings, self)
        if problem:
            sock.close()
            self._try_next(problem)
            return
        secure, context = None, self._tls
        if context is not None:
            name = self._server_hostname
            secure = lambda s: context.wrap_socket(s, do_handshake_on_connect=False, server_hostname=name)
        try:
            link.begin(secure)
        except (OSError, OpError) as e:
            self._settle(UnavailableError(str(e)))

    def begin(self) -> None:
        """Waits for `Challenge`."""

    def receive(self, frame: Frame) -> None:
        """Takes a frame of the handshake."""
        link = self._link
        assert link is not None
        message = _message(frame)
        if not self._said_hello:
            hello = self._connector.answer(message)
            self._said_hello = True
            link.send(encode_control(hello))
            return
        peer = self._connector.finish(message)
        if self._settle(None):
            link.open(peer)
            _notify(self._on_link, link, self._reactor)

    def lost(self, reason: str) -> None:
        """Reports that the link has been closed."""
        error = self.error or UnavailableError(reason)
        if self._tls is None and not self._said_hello and type(error) is UnavailableError:
            error = UnavailableError(f"{error.message}. It has not begun the handshake, so it may demand TLS")
        self._settle(error)

    def _expire(self) -> None:
        self._settle(DeadlineExceededError(f"no connection within {self._timeout:g} s: {self._stage}"))

    def _settle(self, error: OpError | None) -> bool:
        """Ends the attempt with an error, or with success.

        Returns whether it had not ended before.
        """
        with self._lock:
            if self._is_settled:
                return False
            self._is_settled = True
            sock, self._socket = self._socket, None
            link = self._link
            if sock is not None:
                self._reactor.unregister(sock.fileno())
                sock.close()
        self._timer.cancel()
        self._reactor.discard(self)
        if error is not None:
            failure = type(error)(f"cannot connect to {self.address}: {error.message}")
            if link is not None:
                link.close(failure.message)
            try:
                self._reactor.submit(lambda: self._on_failed(failure))
            except OpError:  # the reactor has ended
                self._on_failed(failure)
        return True

    def _forked(self) -> None:
        self._is_settled = True
        if self._socket is not None:
            self._socket.close()


def connect(
    reactor: Reactor,
    host: str,
    port: int,
    on_link: OnLink,
    on_failed: OnFailed,
    identity: Identity,
    *,
    timeout: float = 10.0,
    expected_name: str = "",
    expected_incarnation: int = 0,
    settings: LinkSettings | None = None,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    waits: bool = False,
) -> Connecting:
    """Connects to an address, without waiting. Either `on_link` or `on_failed` is called, once.

    Args:
      reactor: the reactor of this process.
      host: a host name, or an IPv4 or IPv6 address.
      port: the port.
      on_link: called with the link after the handshake, in the leader of the reactor and before any frame is delivered.
        It sets `on_frames` and `on_closed`.
      on_failed: called with the error: `UnavailableError`, `UnauthenticatedError`, `DataLossError` or
        `DeadlineExceededError`.
      identity: name and secret of this process.
      timeout: seconds until the handshake must be complete.
      expected_name: the name that the other end must have; "": any.
      expected_incarnation: the incarnation that the other end must have; 0: any.
      settings: the numbers of the link.
      tls: the context that checks the certificate of the other end; None: the connection is not encrypted.
      server_hostname: the name in the certificate; by default `host`.
      waits: whether to wait until `timeout` for a process that does not listen yet.

    Raises:
      UnavailableError: the reactor is closed.
    """
    connector = Connector(identity, expected_name, expected_incarnation)
    settings = LinkSettings() if settings is None else settings
    attempt = Connecting(
        reactor, host, port, on_link, on_failed, connector, timeout, settings, tls, server_hostname, waits
    )
    attempt._start()
    return attempt


def connect_blocking(
    reactor: Reactor,
    host: str,
    port: int,
    on_link: OnLink,
    identity: Identity,
    *,
    timeout: float = 10.0,
    expected_name: str = "",
    expected_incarnation: int = 0,
    settings: LinkSettings | None = None,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
    waits: bool = False,
) -> Link:
    """Connects to an address, and waits for the end of the handshake.

    A job of the reactor that calls this hands over the lead.

    Args:
      reactor: the reactor of this process.
      Others: see `connect`.

    Returns:
      The link, after `on_link` was called with it.

    Raises:
      UnavailableError: the other process does not answer, or the reactor is closed.
      UnauthenticatedError: the processes have different secrets, names or versions.
      DataLossError: the other process does not speak this protocol.
      DeadlineExceededError: the handshake was not complete in time.
    """
    done = threading.Event()
    links: list[Link] = []
    errors: list[OpError] = []

    def opened(link: Link) -> None:
        try:
            on_link(link)
        finally:  # after an error the link will be closed
            links.append(link)
            done.set()

    def failed(error: OpError) -> None:
        errors.append(error)
        done.set()

    attempt = connect(
        reactor,
        host,
        port,
        opened,
        failed,
        identity,
        timeout=timeout,
        expected_name=expected_name,
        expected_incarnation=expected_incarnation,
        settings=settings,
        tls=tls,
        server_hostname=server_hostname,
        waits=waits,
    )
    try:
        reactor.busy()
        if reactor.is_active():
            raise UnavailableError(f"cannot connect to {attempt.address}: all threads of the reactor are in jobs")
        if not done.wait(timeout + 5.0):  # longer than the timer, in case that this process is suspended
            raise DeadlineExceededError(f"cannot connect to {attempt.address}: no connection within {timeout:g} s")
    finally:
        if not done.is_set():
            attempt.cancel()
    if errors:
        raise errors[0]
    return links[0]


# *** helpers ***


def _notify(on_link: OnLink, link: Link, reactor: Reactor) -> None:
    try:
        on_link(link)
    except Exception as e:
        reactor.report(e)
        link.close(f"the connection was not taken over: {type(e).__name__}: {e}")


def _message(frame: Frame) -> AnyMessage:
    if type(frame) is not Control or frame.values:
        raise DataLossError(f"a {type(frame).__name__} arrived before the end of the handshake")
    return frame.message


def _resolve(host: str, port: int, flags: int = 0) -> Sequence[_Address]:
    return socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)


def _set_options(sock: socket.socket) -> None:
    # The sizes of the buffers are left to the system: with fixed ones 64 MB take longer on Linux, which adapts them.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
