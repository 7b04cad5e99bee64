"""Addresses of clusters.

A session of a process that has no server connects to an address by a connection of its own.
"""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace import flags
from headrace.dist.client import Calls, RemoteTarget
from headrace.dist.codec import Control, Frame, encode_control
from headrace.dist.master_node import in_clock_of
from headrace.dist.network import Network, NetworkOptions, split_address
from headrace.dist.reactor import Reactor
from headrace.errors import DeadlineExceededError, UnavailableError

if TYPE_CHECKING:
    from headrace.dist import messages
    from headrace.dist.link import Link
    from headrace.environment import PlacementOptions

T = TypeVar("T")
SCHEME: Final = "headrace"


class Address:
    """Address of a master.

    Args:
      url: "headrace://host:port".
      options: the secret, encryption and time limits of the connection; None: those of the flags CLUSTER_...

    Raises:
      ValueError: the text is no such address.
    """

    def __init__(self, url: str, options: NetworkOptions | None = None) -> None:
        scheme, _, address = url.partition("://")
        if scheme != SCHEME:
            raise ValueError(f"{url!r} is not the address of a cluster: expected headrace://host:port")
        split_address(address)
        self._address = address
        self._options = default_options() if options is None else options

    def connect(self, options: PlacementOptions, filters: Sequence[str] = ()) -> RemoteTarget:
        """Returns the target of a new session, see `target.Connectable`.

        A server that does not listen yet, because its process has just begun, has the time limit of the connection.

        Raises:
          UnavailableError: no server answers there, or workers are not connected.
          UnauthenticatedError: the server has another secret.
        """
        incarnation = int.from_bytes(os.urandom(7), "little") or 1
        reactor = Reactor("headrace-client")
        network = Network(reactor, self._options, f"client {os.getpid()}", incarnation)
        calls = Calls()

        def linked(link: Link) -> None:
            def received(frames: Sequence[Frame]) -> None:
                for frame in frames:
                    if type(frame) is Control:
                        calls.receive(in_clock_of(link, frame.message), frame.values)

            link.on_frames, link.on_closed = received, calls.lost

        try:
            link = network.connect_blocking(self._address, "client", "", 0, linked, waits=True)
            calls.channel = LinkChannel(link, reactor)
            return RemoteTarget(calls, options, filters)
        except DeadlineExceededError as e:  # a later attempt may succeed, see `train.recovery`
            reactor.close()
            raise UnavailableError(e.message) from e
        except BaseException:
            reactor.close()
            raise


class LinkChannel:
    """Connection of a session to a master in another process.

    Args:
      link: the connection.
      reactor: the reactor of the session, which ends with it.
    """

    def __init__(self, link: Link, reactor: Reactor) -> None:
        self._link = link
        self._reactor = reactor

    def send(self, message: messages.AnyMessage, values: Sequence[Any]) -> None:
        """Sends a message; raises `UnavailableError` if the master is lost."""
        self._link.send(encode_control(message, values))

    def take(self, source: queue.SimpleQueue[T], timeout: float) -> T:
        """Returns the next entry of a queue; reads the connection while it waits."""
        return self._reactor.take(source, timeout)

    def close(self) -> None:
        """Ends the connection and the threads of the session."""
        with contextlib.suppress(OSError):
            self._link.close("the session was closed")
        self._reactor.close()


def default_options(**files: str | None) -> NetworkOptions:
    """Default options of connections: the secret and the certificate of the flags `CLUSTER_...`.

    Args:
      files: files in place of those of the flags, see `NetworkOptions.from_files`; None: that of the flag.

    Raises:
      InvalidArgumentError: a file is missing or malformed.
    """
    of_flags = {
        "cert": flags.CLUSTER_CERT.value,
        "key": flags.CLUSTER_KEY.value,
        "ca": flags.CLUSTER_CA.value,
        "secret_file": flags.CLUSTER_SECRET_FILE.value,
    }
    given = {name: files.get(name) or value or None for name, value in of_flags.items()}
    return NetworkOptions.from_files(**given, secret=flags.CLUSTER_SECRET.value.encode())
