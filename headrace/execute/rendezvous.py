"""Rendezvous of the devices of a step: transfers tokens from Send to Recv.

**The idea.** A value that is made on one device and needed on another takes part in two steps that know nothing of each
other: the one that makes it *sends* it, the one that needs it *receives* it, and neither knows which of them comes
first. They meet under a name. It says which edge of the graph was cut, and which firing of it this is: the path of the
frame and the number of the iteration (a tag). A name is used once: one send, one receive.

**Push.** A sender never waits: its token is stored, or handed over at once to the receiver that waits for it. So a
device that is ahead is not slowed down by one that is behind; `parallel_iterations` limits the distance. A receiver
registers a function that is called with the token when it arrives (`recv_async`), or waits (`recv`).

A token is dead or alive: `origin`, None if it is alive, says where deadness began.

When a step fails on one device its rendezvous is aborted: current and later receivers fail with the error. A
token that comes late is dropped. There is one rendezvous for each step, so names need not say which.

Source: TensorFlow's `Rendezvous`, which is keyed by strings and shared by all steps of a process.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace.errors import DeadlineExceededError, InternalError

if TYPE_CHECKING:
    from headrace.execute.records import Origin, Path

# The edge that was cut; the frame instance and the iteration that its source fired in.
Key: TypeAlias = "tuple[str, Path, int]"
Token: TypeAlias = "tuple[Any, Origin | None]"
# Given the token and None, or None and the error that the step was aborted with.
Receiver: TypeAlias = "Callable[[Token | None, BaseException | None], object]"

SHOWN: Final = 12  # lines of a table


class Rendezvous(abc.ABC):
    """Transfers tokens between the devices of one step. Thread-safe."""

    @abc.abstractmethod
    def send(self, key: Key, value: Any, origin: Origin | None = None) -> None:
        """Hands over a token. Never waits.

        Args:
          key: its name, used once.
          value: the value; None for a dead token.
          origin: why it is dead; None if it is alive.

        Raises:
          InternalError: a token of this name was sent before and is still here.
        """

    @abc.abstractmethod
    def take(self, key: Key) -> Token | None:
        """The token of that name if it has come, else None."""

    @abc.abstractmethod
    def recv_async(self, key: Key, receiver: Receiver) -> None:
        """Calls `receiver` with the token of that name, now or when it comes, from whichever thread brings it.

        Raises:
          InternalError: the token has a receiver already.
        """

    @abc.abstractmethod
    def forget(self, key: Key) -> None:
        """Removes the receiver of the token of that name."""

    @abc.abstractmethod
    def abort(self, error: BaseException) -> None:
        """Aborts the step: current and later receivers fail with `error`. The first call counts."""

    @abc.abstractmethod
    def table(self) -> list[str]:
        """Lines about tokens that receivers wait for, and tokens without a receiver."""

    def recv(self, key: Key, timeout: float) -> Token:
        """The token of that name, waited for.

        Args:
          timeout: seconds to wait at most.

        Raises:
          DeadlineExceededError: it did not come in time.
          OpError: what the step was aborted with.
        """
        there = threading.Event()
        got: list[tuple[Token | None, BaseException | None]] = []

        def receiver(token: Token | None, error: BaseException | None) -> None:
            got.append((token, error))
            there.set()

        self.recv_async(key, receiver)
        if not there.wait(timeout):
            self.forget(key)
            if not got:
                raise DeadlineExceededError(f"{show(key)} did not come within {timeout:g} s")
        token, error = got[0]
        if token is None:
            assert error is not None, "it is one of the two"
            raise error
        return token


class LocalRendezvous(Rendezvous):
    """The rendezvous of devices in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: dict[Key, Token] = {}
        self._waiting: dict[Key, Receiver] = {}
        self._error: BaseException | None = None

    def send(self, key: Key, value: Any, origin: Origin | None = None) -> None:
        with self._lock:
            receiver = self._waiting.pop(key, None)
            if receiver is None:
                if self._error is not None:
                    return
                if key in self._arrived:
                    raise InternalError(f"{show(key)} was sent twice")
                self._arrived[key] = (value, origin)
                return
        receiver((value, origin), None)

    def take(self, key: Key) -> Token | None:
        return self._arrived.pop(key, None)

    def recv_async(self, key: Key, receiver: Receiver) -> None:
        with self._lock:
            token, error = self._arrived.pop(key, None), self._error
            if token is None and error is None:
                if key in self._waiting:
                    raise InternalError(f"{show(key)} is waited for twice")
                self._waiting[key] = receiver
                return
        receiver(token, error)

    def forget(self, key: Key) -> None:
        with self._lock:
            self._waiting.pop(key, None)

    def abort(self, error: BaseException) -> None:
        with self._lock:
            if self._error is not None:
                return
            self._error = error
            waiting, self._waiting = self._waiting, {}
            self._arrived.clear()
        for receiver in waiting.values():
            receiver(None, error)

    def __len__(self) -> int:
        """Number of tokens without a receiver plus number of receivers that wait."""
        with self._lock:
            return len(self._arrived) + len(self._waiting)

    def table(self) -> list[str]:
        with self._lock:
            lines = [f"{show(k)}: waited for, not sent" for k in self._waiting]
            lines += [
                f"{show(k)}: sent{'' if origin is None else ' dead'}, not asked for"
                for k, (_, origin) in self._arrived.items()
            ]
        return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"and {len(lines) - SHOWN} more"]


def show(key: Key) -> str:
    """A name as text: the edge and the tag."""
    edge, path, index = key
    tag = show_tag(path, index)
    return f"'{edge}'" + (f" in {tag}" if tag else "")


def show_tag(path: Path, index: int) -> str:
    """The tag of iteration `index` of the frame instance at `path`: "" in the root, else "outer#3/inner#0"."""
    parts = []
    while path:
        path, outer, name = path
        parts.append(f"{name}#{index}")
        index = outer
    return "/".join(reversed(parts))
