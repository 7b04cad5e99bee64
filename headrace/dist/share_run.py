"""Runs of shares: compiled functions of several devices that send values to each other.

A share (`partition.shares`) is one function. Where it receives a value that has not arrived, the function is suspended:
it is a generator (`compile.Compiled.begin`). Its thread goes on leading the reactor, and the value, when it arrives,
resumes the share as a job. So any number of shares wait without a thread, and a value costs no switch of threads.

The values of an edge arrive in the order in which they are sent, and are received in this order.

**The baton.** A suspended share must be resumed by exactly one thread, and values arrive in any. The share *parks*: it
appends its baton to a deque, and then looks once more at the queue that it waits for. A thread that has appended a
value to this queue pops the baton. Whichever of the two finds the baton goes on; `deque.append` and `deque.pop` are
atomic, so no value is overlooked.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import flags
from headrace.dist import messages
from headrace.dist.codec import encode_token
from headrace.dist.worker_run import report_of
from headrace.errors import CancelledError, InvalidArgumentError, UnavailableError
from headrace.execute import blas
from headrace.execute.compiled_run import run_code
from headrace.execute.step_state import Event, Failed, Finished
from headrace.file_access import current, limited
from headrace.records import record

if TYPE_CHECKING:
    from headrace.compile import Compiled
    from headrace.dist.codec import Token
    from headrace.dist.reactor import Reactor, Timer
    from headrace.dist.rendezvous import Outlet
    from headrace.execute.step import Step


@record(frozen=True, slots=True, eq=False)
class CompiledShare:
    """A share as one function.

    Attributes:
      device: the full name of its device.
      code: the function.
      feeds: positions of the feeds that it reads, in the order of its arguments.
      fetches: positions of the fetches that it returns, in order.
      edges: the keys of the edges on which it receives.
      is_apart: whether it runs in a thread that does not lead the reactor: it calls Python functions, or has long work
        during which other shares of this worker can run.
    """

    device: str
    code: Compiled
    feeds: tuple[int, ...]
    fetches: tuple[int, ...]
    edges: tuple[str, ...]
    is_apart: bool = False


class ShareRun:
    """Running share of a step, with the values that it receives.

    Args:
      number: the number of the step.
      share: the share.
      routes: edge on which the share sends → the share of this worker that receives, or the number of the edge and the
        connection to another worker.
      step: the cancellation of the share.
      fed: position of a feed → its value.
      reactor: the threads of the worker.
      finished: called at the end, with the share and its event.

    Attributes:
      share: the share.
      values: the values of its fetches, once it has finished.
    """

    def __init__(
        self,
        number: int,
        share: CompiledShare,
        routes: Mapping[str, ShareRun | tuple[int, Outlet]],
        step: Step,
        fed: Mapping[int, Any],
        reactor: Reactor,
        finished: Callable[[ShareRun, Event], object],
    ) -> None:
        self.share = share
        self.values: Sequence[Any] = ()
        self._number = number
        self._routes = routes
        self._step = step
        self._fed = fed
        self._reactor = reactor
        self._finished = finished
        self._queues: dict[str, deque[Any]] = {edge: deque() for edge in share.edges}
        self._code: Generator[deque[Any], None, Sequence[Any]] | None = None  # once it has begun
        self._awaited: deque[Any] | None = None  # the queue that lacks a value
        self._parked: deque[None] = deque()  # the baton
        self._resumed = 0  # how often
        self._alarm: Timer | None = None

    # *** for kernels ***

    def sender(self, edge: str, is_last: bool = True) -> Callable[..., None]:
        """Returns the function that sends the values or signals (None) of an edge.

        It never waits.

        Args:
          edge: the edge.
          is_last: whether a value leaves at once. Otherwise it leaves with the next one.
        """
        route = self._routes.get(edge)
        if route is None:
            raise InvalidArgumentError(
                f"this share sends nothing on an edge {edge!r}; it sends on {sorted(self._routes)}"
            )
        if isinstance(route, ShareRun):
            return functools.partial(route.put, edge)
        step, (number, link), indices = self._number, route, itertools.count()

        def send(value: Any = None) -> None:
            link.send(encode_token(step, number, (), next(indices), value), is_last)

        return send

    def queue(self, edge: str) -> deque[Any]:
        """Returns the values of an edge that have arrived."""
        return self._queues[edge]

    # *** for other threads ***

    def put(self, edge: str, value: Any = None) -> None:
        """Hands over a value or a signal that another share has sent."""
        queue = self._queues[edge]
        queue.append(value)
        if self._awaited is queue:
            self.wake()

    def wake(self) -> None:
        """Resumes the share if it is suspended: it has a value, or must end."""
        try:
            self._parked.pop()
        except IndexError:  # it runs, or another thread has resumed it
            return
        self.go()

    def go(self) -> None:
        """Lets the reactor run the share."""
        if self.share.is_apart:
            try:
                self._reactor.spawn(self._go_on)
                return
            except UnavailableError as e:
                self._step.cancel(e)  # the share fails at once
        self._reactor.submit(self._go_on)

    # *** running ***

    def _go_on(self) -> None:
        """Runs the share until it waits for a value, or ends."""
        self._resumed += 1
        files = self._step.files
        event: Event | None
        try:
            if files is current():  # nearly always, and a block takes as long as a small kernel
                event = self._run()
            else:
                with limited(files):
                    event = self._run()
        except BaseException as e:
            event = Failed(self.share.device, e)
        if event is not None:
            if self._alarm is not None:
                self._alarm.cancel()
            self._step.exchange = self._code = None  # they refer back to this object
            self._finished(self, event)

    def _run(self) -> Event | None:
        """Runs the function; None if it waits, or if another thread goes on."""
        step, parked, awaited = self._step, self._parked, self._awaited
        while True:
            if awaited is None or awaited or step.cancelled is not None:
                awaited = self._awaited = run_code(self.share.code, step, self._segment)
                if awaited is None:
                    return Finished(self.share.device, 1)
                if self._alarm is None:
                    self._watch()
            parked.append(None)
            if not awaited and step.cancelled is None:
                return None
            try:
                parked.pop()
            except IndexError:
                return None

    def _segment(self) -> deque[Any] | None:
        """Runs the function up to the next value that is missing.

        Returns:
          The queue that lacks the value. None: the function has returned.
        """
        code, step = self._code, self._step
        try:
            if code is not None:
                return code.send(None) if step.cancelled is None else code.throw(step.cancelled)
            step.look()
            fed = [self._fed[p] for p in self.share.feeds]
            if not self.share.code.suspends:
                self.values = self.share.code.run(step, fed)
                return None
            self._code = code = self.share.code.begin(step, fed)
            return code.send(None)
        except StopIteration as e:
            self.values = e.value
            return None

    def _watch(self) -> None:
        """Ends the share if it waits for one value longer than the limit."""
        limit, resumed = flags.WAIT_LIMIT.value, self._resumed

        def look() -> None:
            if self._resumed != resumed:
                self._watch()
                return
            self._step.cancel(self._step.past_wait_limit(limit, " for a value of another device"))
            self.wake()

        self._alarm = self._reactor.call_later(limit, look)


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
        self._names = names
        self._blas = blas.threads(blas_threads) if any(s.code.uses_threads for s in shares) else None
        self._report = report
        self._fed: dict[int, Any] = {}
        self._left = len(shares)
        self._events: list[Event] = []
        self._positions: list[int] = []
        self._values: list[Any] = []
        self._lock = threading.Lock()
        self._routes: dict[str, ShareRun | tuple[int, Outlet]] = dict(outlets)
        self._shares: list[ShareRun] = []
        for share in shares:
            part = step.part()
            part.exchange = run = ShareRun(number, share, self._routes, part, self._fed, reactor, self._finished)
            self._shares.append(run)
            self._routes.update(dict.fromkeys(share.edges, run))

    def feed(self, positions: Sequence[int], values: Sequence[Any], is_fed: bool = True) -> None:
        """Supplies the feeds."""
        self._fed.update(zip(positions, values, strict=True))

    def start(self) -> None:
        """Lets the reactor run the shares."""
        if self._blas is not None:
            self._blas.__enter__()
        for share in self._shares:
            share.go()

    def _finished(self, share: ShareRun, event: Event) -> None:
        """Reports failures at once, and the ends of all shares together."""
        with self._lock:
            self._left -= 1
            self._events.append(event)
            if not isinstance(event, Failed):
                self._positions += share.share.fetches
                self._values += share.values
                share.values = ()
            elif self._left:
                self._report(report_of(self.number, [event], (), ()), ())
                self._events.pop()
            if not self._left:
                if self._blas is not None:
                    self._blas.__exit__()
                self._report(report_of(self.number, self._events, self._positions, ()), self._values)
                self._events, self._values = [], []
                self._fed.clear()
                self._routes.clear()  # the shares refer to each other by it, and to this object
                self._shares = []

    def carry_out(self, orders: Sequence[messages.Order]) -> None:
        """Does nothing: a share is over when it reports."""

    def deliver(self, token: Token) -> None:
        """Hands over a value of another worker."""
        edge = self._names[token.edge]
        route = self._routes.get(edge)
        if isinstance(route, ShareRun):
            route.put(edge, token.value)

    def abort(self, error: BaseException) -> None:
        """Makes the shares fail with `error` at their next checks."""
        self.step.cancel(error)
        for share in self._shares:
            share.wake()

    def close(self) -> None:
        """Drops the resources of the step."""
        with self._lock:
            is_running = self._left > 0
        if is_running:
            self.abort(CancelledError("the step is over"))
        self.step.close()
