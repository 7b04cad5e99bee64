"""Reactor: the threads of a process that poll its sockets and run its jobs.

**The problem.** A token that arrives for an idle executor should be executed at once. If one thread reads the sockets
and another one executes, each token costs two switches of threads: with Python's global lock about 50 microseconds,
more than its way through the network.

**Leader and followers.** One thread at a time *leads*: it polls the sockets, reads the frames, and runs the jobs that
they lead to. So a token is read, dispatched and executed by one thread, without a switch. The other threads are
*spare*. A job that may take long calls `Reactor.busy`, which hands the lead over to a spare thread before the job goes
on; its thread becomes a spare when the job returns. So the process always answers its peers, and the threads in long
jobs run in parallel with it.

**The baton.** The lead is an object that can be taken: while the leader runs a job, its baton lies in `_baton`, and the
thread that pops it leads. After the job the leader pops the baton itself; if it is gone, another thread leads, and this
one becomes a spare. `deque.append` and `deque.pop` are atomic, so this costs no lock. Outside of jobs the leader holds
the baton, and no thread can take it.

**The watchdog.** One spare thread, the *watcher*, looks at the leader every 20 ms, or 100 ms if it polls all the time.
If the leader has neither polled nor finished a job since the last look, the watcher takes the baton. So a job that
takes long without a call of `busy` delays other jobs by 40 ms, or 120 ms after an idle time, provided that it releases
the global lock now and then.

**No lost wake-ups.** The leader sets `_is_polling`, then looks for jobs, then polls. `submit` appends a job, then looks
at `_is_polling`. Whichever is first, the leader finds the job or `submit` interrupts the poll.

**Order.** Callbacks of sockets and timers are run before the jobs. After `BATCH` jobs the sockets are polled without
waiting, so that a long queue of jobs does not delay the answers to the peers. Jobs are run in the order of their
submission; jobs that hand over the lead overlap with the jobs after them.

Source: D. Schmidt, C. O'Ryan, M. Kircher, I. Pyarali: "Leader/Followers: A Design Pattern for Efficient Multi-threaded
Event Demultiplexing and Dispatching", 2000.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import math
import os
import queue
import select
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import Final, Protocol, TypeAlias, TypeVar

from headrace import denormals, forking, thresholds
from headrace.errors import FailedPreconditionError, OpError, UnavailableError
from headrace.execute.clock import Clock, SystemClock

T = TypeVar("T")
Job: TypeAlias = Callable[[], object]

READ: Final = 1  # POLLIN and EPOLLIN
WRITE: Final = 4  # POLLOUT and EPOLLOUT

BATCH: Final = thresholds.POLLED_JOBS  # jobs between two polls
WATCH_PERIOD: Final = thresholds.WATCH_PERIOD  # seconds between two looks at the leader
IDLE_PERIODS: Final = thresholds.IDLE_WATCH_PERIODS  # the same in an idle process, in periods
GUEST_SLICE: Final = thresholds.GUEST_SLICE  # seconds between two attempts of a thread outside the reactor to lead
GUEST_MEMORY: Final = thresholds.GUEST_MEMORY  # seconds after which a thread outside the reactor is not expected back
GUEST_PERIOD: Final = thresholds.GUEST_PERIOD  # seconds between two looks at the leader while it is
SPARE_LIFE: Final = thresholds.SPARE_THREAD  # seconds after which an unused spare thread ends
LONGEST_POLL: Final = thresholds.LONGEST_POLL  # seconds
EVENTS: Final = thresholds.POLLED_EVENTS  # taken from one poll
PATIENCE: Final = 1.0  # the longest wait for the threads at the end of the process, in seconds

_LEAD: Final = "lead"  # notices to a spare thread
_WATCH: Final = "watch"
_END: Final = "end"


class Member(Protocol):
    """A link or listener of a reactor."""

    def close(self, reason: str) -> None:
        """Closes it. Thread-safe."""

    def _forked(self) -> None:
        """Closes the copies of file descriptors in a forked process, without waiting for a lock."""


class Flushable(Protocol):
    """An object with unsent bytes."""

    def flush(self) -> None:
        """Sends the bytes, as far as that is possible without waiting."""


class Timer:
    """A job that will be run later. Made by `Reactor.call_later`."""

    __slots__ = ("_job", "_reactor")

    def __init__(self, reactor: Reactor, job: Job) -> None:
        self._reactor = reactor
        self._job: Job | None = job

    def cancel(self) -> None:
        """Drops the job, unless it has begun. Thread-safe; may be called again."""
        if self._job is not None:
            self._job = None
            self._reactor._cancelled_timer()


class _Worker:
    """A thread of a reactor.

    Attributes:
      ident: the number of the thread; 0 before it runs.
      notices: `_LEAD`, `_WATCH` and `_END` for the thread while it is a spare, or a job to run.
      thread: the thread.
      is_guest: whether it is a thread outside the reactor (`Reactor.take`).
      until: the end of the wait of such a thread.
    """

    __slots__ = ("ident", "is_guest", "notices", "thread", "until")

    def __init__(self, until: float | None = None) -> None:
        self.ident = 0
        self.is_guest = until is not None
        self.until = 0.0 if until is None else until
        self.notices: queue.SimpleQueue[str | Job] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None


class _PortablePoller:
    """`select.poll` with the interface of `select.epoll`.

    A change of interests takes effect with the next poll.
    """

    def __init__(self) -> None:
        self._poll = select.poll()

    def register(self, fd: int, eventmask: int) -> None:
        self._poll.register(fd, eventmask)

    def modify(self, fd: int, eventmask: int) -> None:
        self._poll.modify(fd, eventmask)

    def unregister(self, fd: int) -> None:
        self._poll.unregister(fd)

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        return self._poll.poll(math.ceil(timeout * 1000.0))

    def close(self) -> None:
        pass


if sys.platform == "linux":
    #: With `epoll` a change of interests takes effect at once, also during a poll.
    Poller: TypeAlias = select.epoll | _PortablePoller

    def make_poller() -> Poller:
        """Returns the poller of this system."""
        return select.epoll()

else:
    Poller: TypeAlias = _PortablePoller

    def make_poller() -> Poller:
        """Returns the poller of this system."""
        return _PortablePoller()


class _Alarm:
    """A file descriptor that becomes readable when `ring` is called: an eventfd, or a pipe."""

    def __init__(self) -> None:
        self._is_eventfd = hasattr(os, "eventfd")
        if self._is_eventfd:
            self.fd = self._write_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        else:
            self.fd, self._write_fd = os.pipe()
            os.set_blocking(self.fd, False)
            os.set_blocking(self._write_fd, False)

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it is ringing already
            os.write(self._write_fd, (1).to_bytes(8, sys.byteorder))

    def silence(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 8 if self._is_eventfd else 1 << 16)

    def close(self) -> None:
        os.close(self.fd)
        if not self._is_eventfd:
            os.close(self._write_fd)


class Reactor:
    """Runs jobs, timers and the callbacks of sockets, see the module. Thread-safe.

    Args:
      name: the prefix of the names of the threads.
      clock: the time of the timers.
      on_error: called with each exception of a job or callback, in its thread. The default logs a warning with the
        traceback (logger "headrace.dist").
      most_threads: the largest number of threads. If all of them are in jobs, `busy` has no effect.
      watch_period: seconds between two looks of the watchdog.

    Example:
      >>> reactor, done = Reactor("example"), threading.Event()
      >>> reactor.submit(done.set)
      >>> done.wait(10)
      True
      >>> reactor.close()
      True
    """

    def __init__(
        self,
        name: str = "headrace-reactor",
        clock: Clock | None = None,
        on_error: Callable[[BaseException], None] | None = None,
        most_threads: int = 64,
        watch_period: float = WATCH_PERIOD,
    ) -> None:
        if most_threads < 1:
            raise ValueError(f"most_threads = {most_threads}; a reactor has at least one thread")
        self._name = name
        #: The time in seconds since an arbitrary moment.
        self.monotonic: Callable[[], float] = (
            time.monotonic if clock is None or type(clock) is SystemClock else clock.monotonic
        )
        self._on_error = _log if on_error is None else on_error
        self._most_threads = most_threads
        self._watch_period = watch_period

        self._jobs: deque[Job] = deque()
        self._ready: deque[Job] = deque()  # callbacks of sockets and timers; appended to and popped by the leader
        self._unflushed: deque[Flushable] = deque()
        self._timers: list[tuple[float, int, Timer]] = []  # a heap
        self._cancelled = 0  # entries of `_timers` without a job
        self._timer_numbers = itertools.count()
        self._timer_lock = threading.Lock()

        self._poller: Poller = make_poller()
        self._is_portable = isinstance(self._poller, _PortablePoller)
        self._callbacks: dict[int, tuple[Job, Job]] = {}  # by file descriptor: readable, writable
        self._masks: dict[int, int] = {}
        self._members: dict[int, Member] = {}
        self._alarm = _Alarm()
        self._alarm_lock = threading.Lock()  # so that a closed descriptor is not written
        self._is_polling = False

        self._baton: deque[_Worker] = deque()
        self._ticks = 0  # polls and finished jobs
        self._by_ident: dict[int, _Worker] = {}
        self._lock = threading.Lock()  # guards the fields below; the leader alone changes `_baton` without it
        self._workers: list[_Worker] = []
        self._worker_numbers = itertools.count()
        self._spares: list[_Worker] = []
        self._watcher: _Worker | None = None
        self._is_wanted = False  # whether a thread outside the reactor wants to lead
        self._guest_at = -math.inf  # the last time at which such a thread led
        self._is_closing = False
        self._is_shutting = False  # whether the leader runs the callbacks of `close`, and holds the baton
        self._end_reason: str | None = None  # of a closed reactor, or in a forked process
        self._is_forked = False
        self._ended = threading.Event()

        self.register(self._alarm.fd, self._silence, self._silence)
        self._leader = _Worker()
        with self._lock:
            if not self._start(self._leader, leads=True):
                raise UnavailableError("the reactor cannot start a thread")
            self._start(_Worker())
        forking.register_at_fork(self)
        _reactors.add(self)

    # *** jobs ***

    def submit(self, job: Job) -> None:
        """Runs `job` after the jobs that were submitted before. Thread-safe.

        Raises:
          UnavailableError: the reactor is closed.
          FailedPreconditionError: the process is a fork of the reactor's.
        """
        if self._end_reason is not None:
            raise self._end_error()
        self._jobs.append(job)
        if self._is_polling:
            self._interrupt()
        if self._end_reason is not None:  # `_shut` may have emptied the queue before
            with contextlib.suppress(ValueError):  # it has run the job
                self._jobs.remove(job)
                raise self._end_error()

    def call_later(self, seconds: float, job: Job) -> Timer:
        """Runs `job` after a number of seconds. Thread-safe.

        Raises:
          UnavailableError: the reactor is closed.
          FailedPreconditionError: the process is a fork of the reactor's.
        """
        if self._end_reason is not None:
            raise self._end_error()
        timer = Timer(self, job)
        entry = (self.monotonic() + seconds, next(self._timer_numbers), timer)
        with self._timer_lock:
            heapq.heappush(self._timers, entry)
            is_first = self._timers[0] is entry
        if is_first and self._is_polling:
            self._interrupt()
        return timer

    def busy(self) -> None:
        """Hands over the lead, because the calling job may take long.

        Without effect in a thread that does not lead.
        """
        ident = get_ident()
        if self._leader.ident != ident:
            return
        with self._lock:
            if self._leader.ident != ident:
                return
            try:
                me = self._baton.pop()
            except IndexError:
                if not self._is_shutting:  # another thread has just taken the lead, and notes itself after this block
                    self._leader = _Worker()
                return
            if not self._promote():
                self._baton.append(me)

    def is_active(self) -> bool:
        """Whether the calling thread leads."""
        return self._leader.ident == get_ident()

    def take(self, source: queue.SimpleQueue[T], timeout: float) -> T:
        """Returns the next entry of a queue to a thread outside the reactor.

        The thread asks a leader that polls to step down, and leaves no leader behind. So a thread that waits again and
        again is soon served by itself, without a switch of threads. If it does not come back, the watcher leads.

        Args:
          source: the queue. An entry arrives by a callback or job of this reactor, or `submit` is called after it.
          timeout: the longest wait in seconds.

        Raises:
          queue.Empty: no entry arrived in time.
        """
        ident, until = get_ident(), self.monotonic() + timeout
        if ident in self._by_ident:  # a kernel that runs in this reactor runs a step itself
            return source.get(timeout=timeout)
        if self._end_reason is not None:
            raise self._end_error()
        me = self._by_ident[ident] = _Worker(until)
        me.ident = ident

        def done() -> bool:
            return not source.empty() or self.monotonic() >= until

        try:
            while not done():
                try:
                    self._baton.pop()
                except IndexError:  # the leader polls
                    self._is_wanted = True
                    if self._is_polling:
                        self._interrupt()
                    with contextlib.suppress(queue.Empty):
                        return source.get(timeout=min(GUEST_SLICE, max(until - self.monotonic(), 0.0)))
                else:
                    with self._lock:
                        self._leader = me
                    self._lead(me, done)
            return source.get_nowait()
        finally:
            self._guest_at = self.monotonic()
            del self._by_ident[ident]

    def spawn(self, job: Job) -> None:
        """Runs a job that may wait, in a thread that does not lead.

        Raises:
          UnavailableError: the reactor is closed, or all threads are in jobs.
        """
        with self._lock:
            if self._end_reason is not None:
                raise self._end_error()
            if self._spares:
                self._spares.pop().notices.put(job)
                return
            worker = _Worker()
            if not self._start(worker, first=job):
                raise UnavailableError("all threads of the reactor are in jobs")

    def report(self, error: BaseException) -> None:
        """Passes an exception of a job or callback to `on_error`."""
        try:
            self._on_error(error)
        except Exception as e:
            _log(e)

    # *** sockets ***

    def register(self, fd: int, on_readable: Job, on_writable: Job, mask: int = READ) -> None:
        """Begins to poll a file descriptor.

        Args:
          fd: the file descriptor. It must stay open until `unregister`.
          on_readable: called when it is readable, closed or broken.
          on_writable: called when it is writable.
          mask: the events to poll for, `READ` or `WRITE` or both.

        Raises:
          UnavailableError: the reactor is closed.
          FailedPreconditionError: the process is a fork of the reactor's.
        """
        if self._end_reason is not None:
            raise self._end_error()
        self._callbacks[fd] = on_readable, on_writable
        self._masks[fd] = 0
        self.set_interest(fd, mask)

    def set_interest(self, fd: int, mask: int) -> None:
        """Sets the events of a registered file descriptor; 0: it is not polled.

        Calls for one descriptor must not overlap.
        """
        old = self._masks[fd]
        if self._end_reason is not None or old == mask:
            return
        self._masks[fd] = mask
        try:
            if not old:
                self._poller.register(fd, mask)
            elif mask:
                self._poller.modify(fd, mask)
            else:
                self._poller.unregister(fd)
        except (OSError, ValueError):
            if self._end_reason is None:
                raise
            return  # the reactor was closed at this moment
        if self._is_portable and self._is_polling:
            self._interrupt()

    def unregister(self, fd: int) -> None:
        """Ends polling of a file descriptor, which may be closed then."""
        if self._masks.get(fd):
            self.set_interest(fd, 0)
        self._masks.pop(fd, None)
        self._callbacks.pop(fd, None)

    def add(self, member: Member) -> None:
        """Adds a link or listener, which `close` will close.

        Raises:
          UnavailableError: the reactor is closed.
          FailedPreconditionError: the process is a fork of the reactor's.
        """
        with self._lock:
            if self._end_reason is not None or self._is_closing:
                raise self._end_error()
            self._members[id(member)] = member

    def discard(self, member: Member) -> None:
        """Removes a link or listener."""
        self._members.pop(id(member), None)

    def flush_later(self, link: Flushable) -> None:
        """Calls `link.flush()` before the next poll. Thread-safe."""
        self._unflushed.append(link)
        if self._is_polling:
            self._interrupt()

    def flush(self) -> None:
        """Flushes all links with unsent bytes. Thread-safe."""
        unflushed = self._unflushed
        for _ in range(len(unflushed)):  # a flush may append its link again
            try:
                link = unflushed.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                link.flush()
            except Exception as e:
                self.report(e)

    # *** the end ***

    def close(self, timeout: float = 5.0) -> bool:
        """Closes all links and listeners, and ends the threads.

        Jobs that were submitted before are still run. The call may come from any thread. In a job it does not wait for
        its own thread. Further calls wait until the first one has closed the links.

        Args:
          timeout: the longest wait for the threads, in seconds.

        Returns:
          Whether all other threads have ended. A thread in a long job ends after the job.
        """
        if self._is_forked:
            return True
        until = time.monotonic() + timeout
        with self._lock:
            is_first, self._is_closing = not self._is_closing, True
        self.busy()
        self._interrupt()
        if self.is_active():  # no other thread can lead; this one ends after the job
            return False
        if not self._ended.wait(max(until - time.monotonic(), 0.0)):
            return False
        if not is_first:
            return True
        me, is_complete = threading.current_thread(), True
        for worker in list(self._workers):
            thread = worker.thread
            if thread is not None and thread is not me:
                thread.join(max(until - time.monotonic(), 0.0))
                is_complete &= not thread.is_alive()
        return is_complete

    def _shut(self) -> None:
        """Closes everything, in the leader, outside of jobs."""
        self._is_shutting = True
        self._run_queue()
        for _ in range(4):  # a callback may open and submit more, but not for ever
            for member in list(self._members.values()):
                try:
                    member.close("the reactor of this process was closed")
                except Exception as e:
                    self.report(e)
            self._run_queue()
            if not self._members and not self._jobs:
                break
        with self._lock:
            self._end_reason = "the reactor is closed"
            for worker in self._workers:
                worker.notices.put(_END)
            self._spares.clear()
            self._watcher = None
        with self._alarm_lock:
            self._is_polling = False
            self._poller.close()
            self._alarm.close()
        with self._timer_lock:
            self._timers.clear()
        self._run_queue()  # a thread may have submitted the end of its link after the last round
        for things in (self._ready, self._unflushed, self._callbacks, self._members):
            things.clear()
        self._ended.set()

    def _run_queue(self) -> None:
        """Runs the jobs that are in the queues at this moment."""
        for jobs in (self._ready, self._jobs):
            for _ in range(len(jobs)):
                try:
                    jobs.popleft()()
                except BaseException as e:
                    self.report(e)
        self.flush()

    def _end_error(self) -> OpError:
        text = self._end_reason or "the reactor is closing"
        return FailedPreconditionError(text) if self._is_forked else UnavailableError(text)

    def _forked(self) -> None:
        """Gives up the reactor in a forked process, see `forking`.

        The copies of its sockets are closed, so that the end of the parent closes its connections.
        """
        if self._end_reason is None:
            self._is_forked = True
            self._end_reason = (
                "this process was forked from a process of a cluster: the connections and their threads belong to the "
                "parent. Start a process of its own, or make a new server or session after the fork"
            )
            self._lock, self._timer_lock, self._alarm_lock = threading.Lock(), threading.Lock(), threading.Lock()
            self._is_polling = False
            self._leader = _Worker()
            for member in list(self._members.values()):
                member._forked()
            self._poller.close()
            self._alarm.close()
            for things in (self._jobs, self._ready, self._unflushed, self._callbacks, self._members, self._timers):
                things.clear()

    # *** the leader ***

    def _interrupt(self) -> None:
        """Ends the current poll, or else the next one."""
        with self._alarm_lock:
            if self._end_reason is None:
                self._is_polling = False  # one interruption suffices
                self._alarm.ring()

    def _silence(self) -> None:
        """Callback: the alarm has rung."""
        with self._alarm_lock:
            if self._end_reason is None:  # else another thread has just closed the descriptor
                self._alarm.silence()

    def _lead(self, me: _Worker, done: Callable[[], object] | None = None) -> bool:
        """Runs callbacks and jobs and polls, until the reactor is closed or another thread leads.

        Args:
          me: the calling thread.
          done: a condition that ends it, too (`take`). None: none.

        Returns:
          Whether the condition is fulfilled.
        """
        jobs, ready, baton, timers, unflushed = self._jobs, self._ready, self._baton, self._timers, self._unflushed
        callbacks, monotonic, poll = self._callbacks, self.monotonic, self._poller.poll
        job: Job | None
        while True:
            count = BATCH
            while True:
                if ready:
                    job = ready.popleft()
                elif count and jobs:
                    job = jobs.popleft()
                    count -= 1
                else:
                    break
                baton.append(me)
                try:
                    job()
                except BaseException as e:
                    if me.is_guest and isinstance(e, KeyboardInterrupt):
                        raise  # the lead is without a leader
                    self.report(e)
                try:
                    holder = baton.pop()
                except IndexError:
                    return False  # another thread leads
                if holder is not me:  # the lead was taken, and is now taken back from a thread in a job
                    with self._lock:
                        self._leader = me
                self._ticks += 1
            job = None  # the objects that it refers to must not live until the next one arrives
            if done is not None and (done() or self._is_closing):
                baton.append(me)
                return not self._is_closing
            if self._is_closing:
                self._shut()
                return False
            if self._is_wanted and done is None and not jobs and not ready:
                self._is_wanted = False
                self._guest_at = monotonic()
                baton.append(me)
                return False
            now = monotonic()
            if timers and timers[0][0] <= now:
                self._take_due(now)
            if unflushed:
                self.flush()
            if jobs or ready:
                seconds = 0.0
            else:
                self._is_polling = True
                if jobs or unflushed or self._is_closing:
                    self._is_polling = False
                    seconds = 0.0
                elif timers:
                    seconds = min(max(timers[0][0] - now, 0.0), LONGEST_POLL)
                else:
                    seconds = LONGEST_POLL
            if me.is_guest:  # its wait has an end, and Python handles a signal between two polls
                seconds = min(seconds, thresholds.SIGNAL_POLL, max(me.until - now, 0.0))
            try:
                events = poll(seconds, EVENTS)
            except BaseException:  # Ctrl-C in a guest
                baton.append(me)
                raise
            finally:
                self._is_polling = False
            self._ticks += 1
            for fd, mask in events:
                both = callbacks.get(fd)
                if both is not None:  # else another thread has just unregistered it
                    if mask & WRITE:
                        ready.append(both[1])
                    if mask & ~WRITE:
                        ready.append(both[0])

    def _take_due(self, now: float) -> None:
        """Moves the jobs of due timers to `_ready`."""
        with self._timer_lock:
            timers = self._timers
            while timers and timers[0][0] <= now:
                timer = heapq.heappop(timers)[2]
                job, timer._job = timer._job, None
                if job is None:
                    self._cancelled -= 1
                else:
                    self._ready.append(job)

    def _cancelled_timer(self) -> None:
        """Counts a cancelled timer. If most are cancelled, they are removed."""
        with self._timer_lock:
            self._cancelled += 1
            if self._cancelled > 64 and self._cancelled * 2 > len(self._timers):
                self._timers[:] = [entry for entry in self._timers if entry[2]._job is not None]
                heapq.heapify(self._timers)
                self._cancelled = 0

    # *** the threads ***

    def _start(self, worker: _Worker, leads: bool = False, first: Job | None = None) -> bool:
        """Starts a thread, which leads, runs the job `first`, or becomes a spare.

        The lock is held. Returns whether the thread has started.
        """
        if len(self._workers) >= self._most_threads:
            return False
        name = f"{self._name}_{next(self._worker_numbers)}"
        worker.thread = threading.Thread(target=self._serve, args=(worker, leads, first), name=name, daemon=True)
        before = self._leader
        if leads:
            self._leader = worker
        self._workers.append(worker)
        try:
            worker.thread.start()
        except RuntimeError:  # the limit of the system, or the end of the process
            self._workers.remove(worker)
            self._leader = before
            return False
        return True

    def _promote(self) -> bool:
        """Makes another thread the leader.

        The lock and the baton are held. Returns whether there is such a thread.
        """
        if self._spares:
            self._leader = self._spares.pop()
        elif self._start(_Worker(), leads=True):
            return True
        elif self._watcher is not None:
            self._leader, self._watcher = self._watcher, None
        else:
            return False
        self._leader.notices.put(_LEAD)
        return True

    def _serve(self, me: _Worker, leads: bool, first: Job | None = None) -> None:
        """The life of a thread."""
        me.ident = get_ident()
        self._by_ident[me.ident] = me
        try:
            denormals.begin_thread()
            if first is not None:
                self._run_apart(first)
            self._live(me, leads)
        finally:
            del self._by_ident[me.ident]

    def _run_apart(self, job: Job) -> None:
        """Runs a job in a thread that does not lead."""
        try:
            job()
        except BaseException as e:
            self.report(e)

    def _live(self, me: _Worker, leads: bool) -> None:
        while True:
            while leads:
                try:
                    self._lead(me)
                    break
                except BaseException as e:  # a defect; without a leader the process would hang
                    self.report(e)
                    time.sleep(self._watch_period)
            leads = self._follow(me)
            if not leads:
                return

    def _follow(self, me: _Worker) -> bool:
        """Waits as a spare. Returns whether the thread leads now; otherwise it ends."""
        with self._lock:
            if self._end_reason is not None:
                return False
            if self._watcher is None:
                self._watcher = me
            else:
                self._spares.append(me)
        seen, period = -1, self._watch_period
        while True:
            try:
                notice = me.notices.get(timeout=period if self._watcher is me else SPARE_LIFE)
            except queue.Empty:
                with self._lock:
                    if self._watcher is me:
                        is_near = self.monotonic() - self._guest_at < GUEST_MEMORY
                        if self._ticks != seen:
                            seen, period = self._ticks, GUEST_PERIOD if is_near else self._watch_period
                        elif self._take_lead(me):
                            return True
                        else:
                            period = min(period * 2.0, self._watch_period * IDLE_PERIODS)
                    elif me in self._spares:  # else a notice is on its way
                        self._spares.remove(me)
                        self._workers.remove(me)
                        return False
                continue
            if notice is _LEAD:
                return True
            if notice is _END:
                return False
            if callable(notice):
                self._run_apart(notice)
                with self._lock:
                    if self._end_reason is not None:
                        return False
                    if self._watcher is None:
                        self._watcher = me
                    else:
                        self._spares.append(me)

    def _take_lead(self, me: _Worker) -> bool:
        """Takes the lead from a thread in a long job.

        The lock is held. Returns whether the lead was taken. The next watcher is a spare thread, or a new one.
        """
        try:
            self._baton.pop()
        except IndexError:  # the leader polls
            return False
        self._leader, self._watcher = me, None
        if self._spares:
            self._watcher = self._spares.pop()
            self._watcher.notices.put(_WATCH)
        else:
            self._start(_Worker())
        return True


def _log(error: BaseException) -> None:
    import logging  # slow to import, and needed only here

    text = "an exception in a job or callback of the reactor"
    logging.getLogger("headrace.dist").warning(text, exc_info=(type(error), error, error.__traceback__))


_reactors: Final[weakref.WeakSet[Reactor]] = weakref.WeakSet()


def _at_exit() -> None:
    until = time.monotonic() + PATIENCE
    for reactor in list(_reactors):
        reactor.close(max(until - time.monotonic(), 0.0))


atexit.register(_at_exit)
