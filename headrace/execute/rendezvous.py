"""Rendezvous of the devices of a step: transfers tokens from Send to Recv.

**The idea.** A value that is computed on one device and needed on another is an output of one part of the step and an
input of another. The first part *sends* it, the second *receives* it, and neither knows which of the two comes first.
They meet under a key. The key names the edge of the graph that was cut and the firing of this edge: the path of the
frame and the number of the iteration (a tag). A key is used once, by one send and one receive.

**Push.** A sender never waits: its token is stored, or passed at once to the receiver that waits for it. So a slow
device does not delay a fast one; `parallel_iterations` limits the distance between them. A receiver registers a
function that is called with the token when it arrives (`recv_async`), or blocks (`recv`).

**Deadness.** A token is dead or alive: its `cause` is None if it is alive, else it says where deadness began.

**Data.** Keys, causes and errors are data: names, numbers and texts. They refer to no node, iteration or object of the
part that sends them, so a rendezvous may encode them (`errors.to_data`).

**Failure.** When a step fails on one device, its rendezvous is aborted: current and later receivers fail with the
error, and a token that arrives late is dropped. There is one rendezvous for each step, so keys do not name the step.

Source: TensorFlow's `Rendezvous`, which is keyed by strings and shared by all steps of a process.
"""

from __future__ import annotations

import abc
import threading
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from headrace.errors import DeadlineExceededError, InternalError

if TYPE_CHECKING:
    from headrace.execute.records import DeadCause, Path

# The edge that was cut; the frame instance and the iteration in which its source fired.
Key: TypeAlias = "tuple[str, Path, int]"
Token: TypeAlias = "tuple[Any, DeadCause | None]"
# Called with the token and None, or with None and the error with which the step was aborted.
Receiver: TypeAlias = "Callable[[Token | None, BaseException | None], object]"

SHOWN: Final = 12  # lines of the table in an error


class Rendezvous(abc.ABC):
    """Transfers tokens between the devices of one step. Thread-safe."""

    @abc.abstractmethod
    def send(self, key: Key, value: Any, cause: DeadCause | None = None) -> None:
        """Hands over a token. Never waits.

        Args:
          key: the key of the token, used once.
          value: the value; None for a dead token.
          cause: the cause of deadness; None if the token is alive.

        Raises:
          InternalError: a token with this key was sent before and not yet received.
        """

    @abc.abstractmethod
    def take(self, key: Key) -> Token | None:
        """Removes and returns the token of `key`; None if it has not arrived."""

    @abc.abstractmethod
    def recv_async(self, key: Key, receiver: Receiver) -> None:
        """Calls `receiver` with the token of `key`, now or when it arrives.

        A later call comes from the thread that sends the token or aborts the step.

        Raises:
          InternalError: the token has a receiver already.
        """

    @abc.abstractmethod
    def forget(self, key: Key) -> None:
        """Removes the receiver of the token of `key`."""

    @abc.abstractmethod
    def abort(self, error: BaseException) -> None:
        """Aborts the step: current and later receivers fail with `error`. The first call counts."""

    @abc.abstractmethod
    def arrived(self, edges: Collection[str]) -> int:
        """Number of tokens without a receiver on some edges."""

    @abc.abstractmethod
    def table(self, edges: Collection[str] | None = None) -> list[str]:
        """Lines about tokens that receivers wait for, and tokens without a receiver.

        Args:
          edges: the edges; None: all.
        """

    def recv(self, key: Key, timeout: float) -> Token:
        """Blocks until the token of `key` arrives, and returns it.

        Args:
          key: the key of the token.
          timeout: the longest wait in seconds.

        Raises:
          DeadlineExceededError: the token did not arrive in time.
          OpError: the error with which the step was aborted.
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
                raise DeadlineExceededError(f"{show(key)} was not received within {timeout:g} s")
        token, error = got[0]
        if token is None:
            assert error is not None, "a receiver gets a token or an error"
            raise error
        return token


class LocalRendezvous(Rendezvous):
    """Rendezvous of devices in one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrived: dict[Key, Token] = {}
        self._waiting: dict[Key, Receiver] = {}
        self._error: BaseException | None = None

    def send(self, key: Key, value: Any, cause: DeadCause | None = None) -> None:
        with self._lock:
            receiver = self._waiting.pop(key, None)
            if receiver is None:
                if self._error is not None:
                    return
                if key in self._arrived:
                    raise InternalError(f"{show(key)} was sent twice")
                self._arrived[key] = (value, cause)
                return
        receiver((value, cause), None)

    def take(self, key: Key) -> Token | None:
        return self._arrived.pop(key, None)

    def recv_async(self, key: Key, receiver: Receiver) -> None:
        with self._lock:
            token, error = self._arrived.pop(key, None), self._error
            if token is None and error is None:
                if key in self._waiting:
                    raise InternalError(f"{show(key)} has two receivers")
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

    def arrived(self, edges: Collection[str]) -> int:
        if not self._arrived:
            return 0
        with self._lock:
            return sum(edge in edges for edge, _, _ in list(self._arrived))  # senders add without the lock

    def table(self, edges: Collection[str] | None = None) -> list[str]:
        with self._lock:
            lines = [f"{show(k)}: awaited, not sent" for k in self._waiting if edges is None or k[0] in edges]
            lines += [
                f"{show(k)}: sent{'' if cause is None else ' dead'}, not received"
                for k, (_, cause) in list(self._arrived.items())
                if edges is None or k[0] in edges
            ]
        return lines if len(lines) <= SHOWN else [*lines[:SHOWN], f"and {len(lines) - SHOWN} more"]


def show(key: Key) -> str:
    """Formats a key: the edge and the tag."""
    edge, path, index = key
    tag = show_tag(path, index)
    return f"'{edge}'" + (f" in {tag}" if tag else "")


def show_tag(path: Path, index: int) -> str:
    """Tag of iteration `index` of the frame instance at `path`, in the format of `Iteration.tag`.

    It is "" in the root, else "outer#3/inner#0".
    """
    parts = []
    while path:
        path, outer, name = path
        parts.append(f"{name}#{index}")
        index = outer
    return "/".join(reversed(parts))
