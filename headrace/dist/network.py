"""Network of a process: its connections to other processes.

Each worker sends its tokens over a connection of its own to each other worker, made at the first program that needs it.
So the connection of two workers is two links, one in each direction, and no two attempts to connect can collide.
"""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import thresholds
from headrace.dist.codec import UNKNOWN_PEER
from headrace.dist.handshake import Identity
from headrace.dist.link import Link, LinkSettings
from headrace.dist.transport import OnLink, connect, connect_blocking
from headrace.errors import InvalidArgumentError, OpError, UnavailableError
from headrace.records import record

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from headrace.dist import messages
    from headrace.dist.reactor import Reactor
    from headrace.dist.rendezvous import Outlet
    from headrace.dist.transport import OnFailed
    from headrace.dist.values import Buffer


@record(frozen=True, slots=True)
class NetworkOptions:
    """Options of all connections of a process.

    Attributes:
      secret: the secret that all processes of the cluster share; empty: none.
      server_tls: context for connections from others, with the certificate of this process; None: no encryption.
      client_tls: context for connections to others, which checks their certificates; None: no encryption.
      heartbeat: seconds between two signs of life on each connection.
      patience: seconds without a sign of life after which a connection counts as lost.
      connect_timeout: seconds that making a connection may take. A client waits so long for a server that does not
        listen yet.
      largest_frame: bytes of the longest message with its tensors, sent or received.
      largest_greeting: bytes of the longest message that is received before the other end has proved that it belongs to
        the cluster.
      shared_memory: bytes of memory that this process shares, for large tensors, with each other process on its machine
        that it sends to; 0: none. Connections with TLS use none.

    Example:
      >>> import headrace as hr
      >>> options = hr.NetworkOptions(secret=b"xyzzy", patience=5.0)
      >>> options.patience, options.heartbeat
      (5.0, 1.0)
    """

    secret: bytes = dataclasses.field(default=b"", repr=False)
    server_tls: ssl.SSLContext | None = None
    client_tls: ssl.SSLContext | None = None
    heartbeat: float = 1.0
    patience: float = 10.0
    connect_timeout: float = 10.0
    largest_frame: int = thresholds.LARGEST_FRAME
    largest_greeting: int = UNKNOWN_PEER
    shared_memory: int = thresholds.SHARED_MEMORY

    @classmethod
    def from_files(
        cls,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        ca: str | os.PathLike[str] | None = None,
        secret_file: str | os.PathLike[str] | None = None,
        **others: Any,
    ) -> NetworkOptions:
        """Returns options with mutual TLS, or a secret, or both, from files in PEM format.

        Both ends of each connection show a certificate that `ca` has signed, by TLS 1.2 or later. The certificate of a
        server names its host as it stands in the cluster.

        Args:
          cert: the certificate of this process, followed by those between it and `ca`; None: no TLS.
          key: the private key, without a password; None: `cert` has it.
          ca: the certificates of the authorities that other processes must have theirs from.
          secret_file: a file with the secret; a line end at its end is not part of it.
          others: further attributes.

        Raises:
          InvalidArgumentError: a file is missing or malformed, or there is a certificate without a `ca`.
        """
        if secret_file is not None:
            others["secret"] = _secret_in(os.fspath(secret_file))
        if cert is None and key is None and ca is None:
            return cls(**others)
        if cert is None or ca is None:
            raise InvalidArgumentError("TLS between the processes of a cluster takes a certificate and an authority")
        import ssl  # a slow import

        contexts = []
        for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
            context = ssl.SSLContext(protocol)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_cert_chain(cert, key, password=lambda: "")  # else OpenSSL would ask on the terminal
                context.load_verify_locations(ca)
            except (OSError, ValueError) as e:
                names = ", ".join(str(f) for f in (cert, key, ca) if f is not None)
                raise InvalidArgumentError(f"the files for TLS ({names}) cannot be used: {e}") from e
            contexts.append(context)
        return cls(server_tls=contexts[0], client_tls=contexts[1], **others)

    @property
    def settings(self) -> LinkSettings:
        """Settings of the links."""
        return LinkSettings(
            self.heartbeat, self.patience, self.largest_frame, self.largest_greeting, self.shared_memory
        )

    @property
    def is_guarded(self) -> bool:
        """Whether a client must know the secret or have a certificate."""
        tls = self.server_tls
        return bool(self.secret) or (tls is not None and tls.verify_mode.name == "CERT_REQUIRED")


def _secret_in(path: str) -> bytes:
    """Returns the contents of a file without a line end at its end."""
    try:
        with open(path, "rb") as f:
            secret = f.read(thresholds.LONGEST_SECRET + 1).removesuffix(b"\n").removesuffix(b"\r")
    except OSError as e:
        raise InvalidArgumentError(f"the secret in {path} cannot be read: {e.strerror}") from e
    if not secret or len(secret) > thresholds.LONGEST_SECRET:
        raise InvalidArgumentError(f"{path} has no secret: expected 1 to {thresholds.LONGEST_SECRET} bytes")
    return secret


def split_address(address: str) -> tuple[str, int]:
    """Returns host and port of "host:port".

    Raises:
      ValueError: the text is no address.

    Example:
      >>> split_address("localhost:2222"), split_address("[::1]:80")
      (('localhost', 2222), ('::1', 80))
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{address!r} is not an address: expected host:port, such as 'localhost:2222'")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Network:
    """Connections from this process to others.

    Args:
      reactor: the reactor of this process.
      options: the options of all connections.
      name: the name of this process, its task or the name of a client.
      incarnation: the number that the process drew when it started.
    """

    def __init__(self, reactor: Reactor, options: NetworkOptions, name: str, incarnation: int) -> None:
        self.reactor = reactor
        self.options = options
        self._name = name
        self._incarnation = incarnation

    def identity(self, role: str) -> Identity:
        """Identity of this process in a role."""
        return Identity(role, self._name, self._incarnation, self.options.secret)

    def connect(self, address: str, role: str, name: str, on_link: OnLink, on_failed: OnFailed) -> None:
        """Connects to the process `name` without waiting, see `transport.connect`."""
        host, port = split_address(address)
        o = self.options
        connect(
            self.reactor, host, port, on_link, on_failed, self.identity(role), timeout=o.connect_timeout,
            expected_name=name, settings=o.settings, tls=o.client_tls,
        )  # fmt: skip

    def connect_blocking(
        self, address: str, role: str, name: str, incarnation: int, on_link: OnLink, waits: bool = False
    ) -> Link:
        """Connects to the process `name` and waits, see `transport.connect_blocking`."""
        host, port = split_address(address)
        o = self.options
        return connect_blocking(
            self.reactor, host, port, on_link, self.identity(role), timeout=o.connect_timeout, expected_name=name,
            expected_incarnation=incarnation, settings=o.settings, tls=o.client_tls, waits=waits,
        )  # fmt: skip


class TokenLink:
    """Connection to another worker, for tokens.

    It is made when it is first needed, and again after it was lost.

    Args:
      network: makes connections.
      task: the other worker.
      on_lost: called with this object and the reason when a connection has ended, before another one is made. Tokens
        that were under way may be lost.
    """

    def __init__(self, network: Network, task: str, on_lost: Callable[[TokenLink, str], object]) -> None:
        self.task = task
        self._network = network
        self._on_lost = on_lost
        self._where: messages.Task | None = None
        self._link: Link | None = None
        self._reported: Link | None = None  # the last connection whose end was reported
        self._lock = threading.Lock()

    def learn(self, where: messages.Task) -> None:
        """Notes the address; a connection to another incarnation of the worker is closed."""
        before, link = self._where, self._link
        if before is not None and before.address == where.address and not where.incarnation:
            return  # from a master that has not reached the worker yet
        self._where = where
        peer = None if link is None else link.peer
        if link is not None and peer is not None and where.incarnation not in (0, peer.incarnation):
            link.close("the worker was replaced")

    @property
    def is_connected(self) -> bool:
        """Whether tokens can be sent."""
        link = self._link
        return link is not None and not link.is_closed

    def connect(self) -> None:
        """Makes the connection unless it is there; waits for it.

        Raises:
          UnavailableError: the worker is not reached.
        """
        with self._lock:
            if self.is_connected:
                return
            self._lose(self._link, "it was closed")
            where = self._where
            if where is None:
                raise UnavailableError(f"no master has told this worker the address of {self.task}")
            try:
                self._link = self._network.connect_blocking(
                    where.address, "worker", self.task, where.incarnation, self._linked
                )
            except OpError as e:
                raise UnavailableError(f"worker {self.task} at {where.address} is not reached: {e}") from e

    def _linked(self, link: Link) -> None:
        link.on_closed = lambda reason: self._lose(link, reason)

    def _lose(self, link: Link | None, reason: str) -> None:
        """Reports the end of a connection, once."""
        if link is not None and link is not self._reported:
            self._reported = link
            self._on_lost(self, reason)

    def send(self, buffers: Sequence[Buffer], flush: bool = True) -> None:
        """Sends tokens without waiting; raises `UnavailableError` if the worker is lost."""
        link = self._link
        if link is None:
            raise UnavailableError(f"there is no connection to worker {self.task}")
        link.send(buffers, flush)


class Peers:
    """Connections of a worker to the others. Thread-safe.

    Args:
      network: makes connections.

    Attributes:
      on_lost: see `TokenLink`. The worker sets it.
    """

    def __init__(self, network: Network) -> None:
        self.on_lost: Callable[[TokenLink, str], object] = lambda link, reason: None
        self._network = network
        self._links: dict[str, TokenLink] = {}
        self._lock = threading.Lock()

    def learn(self, tasks: Iterable[messages.Task]) -> None:
        """Notes the addresses of workers."""
        for task in tasks:
            self.outlet(task.name).learn(task)

    def outlet(self, task: str) -> TokenLink:
        """Returns the connection to a worker, which may not have been made yet."""
        with self._lock:
            found = self._links.get(task)
            if found is None:
                found = self._links[task] = TokenLink(
                    self._network, task, lambda link, reason: self.on_lost(link, reason)
                )
            return found

    def are_connected(self, outlets: Iterable[tuple[int, Outlet]]) -> bool:
        """Whether all connections are there."""
        return all(link.is_connected for _, link in outlets if isinstance(link, TokenLink))

    def connect(self, outlets: Iterable[tuple[int, Outlet]]) -> None:
        """Makes the connections that are missing; waits for them.

        Raises:
          UnavailableError: a worker is not reached.
        """
        for link in dict.fromkeys(link for _, link in outlets):
            if isinstance(link, TokenLink):
                link.connect()
