"""Rendezvous of one worker, from which tokens for other workers leave by connections.

Between the parts of one worker a token passes by reference, as in a step without a cluster. A token for another worker
is encoded and *pushed* over a connection to it at once: a sender never waits, and a receiver finds the token where it
looks for it. The connection of two workers carries tokens of all their steps, so a token names its step. On the wire an
edge is a number, which all workers of a program have from the master.

A token is corked: it leaves with the next tokens to the same worker, at the latest before the sending thread waits or
begins work that may take long (`transport.Link.send`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from headrace.device_arrays import to_host
from headrace.dist.codec import encode_token
from headrace.execute.rendezvous import LocalRendezvous

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.dist.codec import Token
    from headrace.dist.values import Buffer
    from headrace.execute.records import DeadCause
    from headrace.execute.rendezvous import Key


class Outlet(Protocol):
    """Connection to another worker."""

    def send(self, buffers: Sequence[Buffer], flush: bool = True) -> None:
        """Sends bytes without waiting; raises `UnavailableError` if the worker is lost."""
        ...


class WorkerRendezvous(LocalRendezvous):
    """Rendezvous of one worker's parts of a step.

    Args:
      step: the number of the step.
      outlets: the number of each edge to another worker, and the connection to it.
    """

    def __init__(self, step: int, outlets: Mapping[str, tuple[int, Outlet]]) -> None:
        super().__init__()
        self._step = step
        self._outlets = outlets

    def send(self, key: Key, value: Any, cause: DeadCause | None = None) -> None:
        """Hands over a token, or sends it to another worker.

        Raises:
          InternalError: a token with this key was sent before and not yet received.
          InvalidArgumentError: the value is an object of this process.
          UnavailableError: the other worker is lost.
        """
        outlet = self._outlets.get(key[0])
        if outlet is None:
            super().send(key, value, cause)
        else:
            number, link = outlet
            link.send(encode_token(self._step, number, key[1], key[2], to_host(value), cause), flush=False)

    def deliver(self, edge: str, token: Token) -> None:
        """Hands over a token from another worker.

        Raises:
          InternalError: a token with this key arrived before and was not yet received.
        """
        super().send((edge, token.path, token.index), token.value, token.cause)
