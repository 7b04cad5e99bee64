"""Runs of shares: compiled functions of several devices that send values to each other.

A share (`partition.shares`) is one function. Where it receives a value that has not arrived, its thread waits. If the
thread leads the reactor, it goes on leading: it reads the sockets itself until the value is there, so a value costs no
switch of threads. The jobs that it runs meanwhile are short; another share, which may wait itself, is run by a thread
of its own (`Reactor.spawn`).

The values of an edge arrive in the order in which they are sent, and are received in this order.
"""

from __future__ import annotations

import collections
import dataclasses
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any

from headrace import flags
from headrace.dist import messages
from headrace.dist.codec import encode_token
from headrace.dist.worker_run import report_of
from headrace.errors import CancelledError, InvalidArgumentError, UnavailableError
from headrace.execute.compiled_run import run_code
from headrace.execute.step_state import Event, Failed, Finished
from headrace.file_access import limited

if TYPE_CHECKING:
    from headrace.compile import Compiled
    from headrace.dist.codec import Token
    from headrace.dist.reactor import Reactor
    from headrace.dist.rendezvous import Outlet
    from headrace.execute.step import Step


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CompiledShare:
    """A share as one function.

    Attributes:
      device: the full name of its device.
      code: the function.
      feeds: positions of the feeds that it reads, in the order of its arguments.
      fetches: positions of the fetches that it returns, in order.
      edges: the keys of the edges on which it receives.
    """

    device: str
    code: Compiled
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    edges: tuple[str, ...]


class Exchange:
    """Values between the shares of a step, seen from one of them.

    Args:
      number: the number of the step.
      routes: edge on which the share sends → the exchange of a share of this worker, or the number of the edge and the
        connection to another worker.
      edges: the edges on which the share receives.
      step: the cancellation of the share.
      reactor: the threads of the worker.
    """

    def __init__(
        self,
        number: int,
        routes: Mapping[str, Exchange | tuple[int, Outlet]],
        edges: Sequence[str],
        step: Step,
        reactor: Reactor,
    ) -> None:
        self._number = number
        self._routes = routes
        self._step = step
        self._reactor = reactor
        self._arrived: dict[str, collections.deque[Any]] = {edge: collections.deque() for edge in edges}
        self._sent: dict[str, int] = {}
        self._thread = 0  # that runs the share
        self._awaited: collections.deque[Any] | None = None  # the values for which it waits
        self._leads = False  # whether its thread leads, or is about to, while it waits
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()

    # *** the share ***

    def send(self, edge: str, value: Any) -> None:
        """Sends a value; never waits."""
        route = self._routes.get(edge)
        if route is None:
            raise InvalidArgumentError(
                f"this share sends nothing on an edge {edge!r}; it sends on {sorted(self._routes)}"
            )
        if isinstance(route, Exchange):
            route.put(edge, value)
        else:
            number, link = route
            index = self._sent.get(edge, 0)
            self._sent[edge] = index + 1
            link.send(encode_token(self._number, number, (), index, value, None), flush=False)

    def receiver(self, edge: str) -> Callable[[], Any]:
        """Returns the function that receives the next value of an edge; it waits for it."""
        arrived = self._arrived[edge]

        def receive() -> Any:
            return arrived.popleft() if arrived else self._wait(edge, arrived)

        return receive

    def _wait(self, edge: str, arrived: collections.deque[Any]) -> Any:
        step, reactor = self._step, self._reactor
        limit = flags.WAIT_LIMIT.value
        self._thread = get_ident()
        self._awaited = arrived
        try:
            while not arrived:
                step.look()
                self._leads = True
                is_there = reactor.wait(lambda: arrived or step.cancelled is not None)
                self._leads = False
                if is_there:
                    continue
                reactor.flush()
                if arrived or step.cancelled is not None:
                    continue
                try:
                    step.clock.take(self._wakes, limit)
                except queue.Empty:
                    raise step.past_wait_limit(limit, f" for the value of the edge {edge!r}") from None
        finally:
            self._awaited = None
        return arrived.popleft()

    # *** others ***

    def put(self, edge: str, value: Any) -> None:
        """Hands over a value that another share has sent."""
        self._arrived[edge].append(value)
        self.wake()

    def wake(self) -> None:
        """Lets the share look whether it must go on."""
        if self._awaited is not None and self._thread != get_ident():
            if self._leads:
                self._reactor.submit(_nothing)
            else:
                self._wakes.put(None)


class SharesRun:
    """Running shares of a step on one worker.

    Args:
      number: the number of the step.
      shares: the shares.
      names: the keys of all edges, by their numbers in tokens.
      outlets: the number of each edge to another worker, and the connection to it.
      step: the resources and the cancellation of the step.
      blas_threads: number of threads that the BLAS library may use.
      reactor: the threads of the worker.
      report: sends reports to the master.

    Attributes:
      number: the number of the step.
      outlets: the number of each edge to another worker, and the connection to it.
    """

    def __init__(
        self,
        number: int,
        shares: Sequence[CompiledShare],
        names: Sequence[str],
        outlets: Mapping[str, tuple[int, Outlet]],
        step: Step,
        blas_threads: int,
        reactor: Reactor,
        report: Callable[[messages.Report, Sequence[Any]], object],
    ) -> None:
        self.number = number
        self.outlets = outlets
        self.step = step
        self._shares = shares
        self._names = names
        self._blas_threads = blas_threads
        self._reactor = reactor
        self._report = report
        self._fed: dict[int, Any] = {}
        self._left = len(shares)
        self._events: list[Event] = []
        self._positions: list[int] = []
        self._values: list[Any] = []
        self._lock = threading.Lock()
        routes: dict[str, Exchange | tuple[int, Outlet]] = dict(outlets)
        self._exchanges: list[Exchange] = []
        for share in shares:
            part = step.part()
            part.exchange = Exchange(number, routes, share.edges, part, reactor)
            self._exchanges.append(part.exchange)
            routes.update(dict.fromkeys(share.edges, part.exchange))
        self._routes = routes

    def feed(self, positions: Sequence[int], values: Sequence[Any], is_fed: bool = True) -> None:
        """Supplies the feeds."""
        self._fed.update(zip(positions, values, strict=True))

    def start(self) -> None:
        """Lets the reactor run the shares."""
        for share, part in zip(self._shares, self.step.parts, strict=True):
            self._reactor.submit(lambda share=share, part=part: self._begin(share, part))  # type: ignore[misc]

    def _begin(self, share: CompiledShare, part: Step) -> None:
        """Runs a share, in this thread if no other share waits in it.

        A share that calls Python functions gets a thread of its own.
        """
        if share.code.blocks or (share.edges and self._reactor.is_waiting()):
            try:
                self._reactor.spawn(lambda: self._run(share, part))
                return
            except UnavailableError as e:
                part.cancel(e)  # the share fails at once
        self._run(share, part)

    def _run(self, share: CompiledShare, part: Step) -> None:
        code = share.code
        event: Event = Finished(share.device, 1)
        values: Sequence[Any] = ()
        try:
            part.look()
            fed = [self._fed[p] for p in share.feeds]
            with limited(part.files):
                values = run_code(code, part, fed, self._blas_threads)
        except BaseException as e:
            event = Failed(share.device, e)
        with self._lock:
            self._left -= 1
            self._events.append(event)
            if not isinstance(event, Failed):
                self._positions += share.fetches
                self._values += values
            elif self._left:
                self._report(report_of(self.number, [event], (), ()), ())
                self._events.pop()
            if not self._left:
                self._report(report_of(self.number, self._events, self._positions, ()), self._values)
                self._events, self._values = [], []

    def carry_out(self, orders: Sequence[messages.Order]) -> None:
        """Does nothing: a share is over when it reports."""

    def deliver(self, token: Token) -> None:
        """Hands over a value of another worker."""
        edge = self._names[token.edge]
        route = self._routes.get(edge)
        if isinstance(route, Exchange):
            route.put(edge, token.value)

    def abort(self, error: BaseException) -> None:
        """Makes the shares fail with `error` at their next checks."""
        self.step.cancel(error)
        for exchange in self._exchanges:
            exchange.wake()

    def close(self) -> None:
        """Drops the resources of the step."""
        with self._lock:
            is_running = self._left > 0
        if is_running:
            self.abort(CancelledError("the step is over"))
        self.step.close()


def _nothing() -> None:
    """Ends a poll of the reactor."""
