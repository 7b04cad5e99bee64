"""Inbox: messages of one process that are handled in their order, one at a time."""

from __future__ import annotations

import collections
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dist.reactor import Reactor

T = TypeVar("T")


class Inbox(Generic[T]):
    """Queue whose entries the reactor handles in their order.

    A handler may add entries to any inbox, its own included: they are handled later, never inside the handler.

    Args:
      reactor: runs the handler.
      handler: handles one entry. Its errors are reported to the reactor.
    """

    def __init__(self, reactor: Reactor, handler: Callable[[T], object]) -> None:
        self._reactor = reactor
        self._handler = handler
        self._entries: collections.deque[T] = collections.deque()
        self._lock = threading.Lock()

    def put(self, entry: T) -> None:
        """Adds an entry. Any thread may call it."""
        self._entries.append(entry)
        self._reactor.submit(self._drain)

    def _drain(self) -> None:
        with self._lock:
            while self._entries:
                try:
                    self._handler(self._entries.popleft())
                except Exception as e:  # the next entry is of another step or client
                    self._reactor.report(e)
