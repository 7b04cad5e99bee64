"""Links: connections between two processes of a cluster, served by a `Reactor`.

**Sending never waits.** `Link.send` appends buffers to the queue of the link and writes as much of the queue as the
socket takes, in one system call (`sendmsg`) and without a copy. The reactor writes the rest when the socket is
writable. One thread at a time writes; a thread that finds another one writing leaves its buffers in the queue for it.
With `flush=False` the buffers stay in the queue until the next flush, so that many small tokens are one system call.

**Receiving.** The thread that leads the reactor receives into the memory of the decoder, decodes, and passes all frames
that have arrived to `on_frames` in one call. `_reading` guarantees that the calls for one link do not overlap, even if
`on_frames` takes long and another thread leads in the meantime; then the link is not polled until the call returns.

**Heartbeats.** Each end sends a ping every second and answers pings at once. A link from which no byte has arrived for
ten seconds closes itself. So a process that hangs and a network that is cut are found without the limits of TCP, which
are minutes. The answers also give the difference of the two clocks (see `Link.clock_offset_ns`).

**Closing.** `Link.close` may come from any thread. It marks the link. The file descriptor is closed later, in the
leader, when no thread reads or writes the socket; otherwise a thread could use a descriptor that belongs to another
connection by then. `on_closed` is called after that, and after the last call of `on_frames`.

**Large frames** pass to a process on the same machine by shared memory (`dist.shared_memory`), and only their places by
the socket.

TLS encrypts a connection if both ends are given an `ssl.SSLContext` (`dist.tls`).
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from headrace import notices, thresholds
from headrace.dist.codec import (
    OFFER,
    REFUSE,
    UNKNOWN_PEER,
    USE,
    WITHDRAW,
    Control,
    Decoder,
    Frame,
    Ping,
    Place,
    Pong,
    Token,
    encode_ping,
    encode_place,
    encode_pong,
)
from headrace.dist.reactor import READ, WRITE, Reactor, Timer
from headrace.dist.shared_memory import IS_AVAILABLE, Incoming, Outgoing
from headrace.dist.values import Buffer
from headrace.errors import DataLossError, OpError, ResourceExhaustedError, UnavailableError
from headrace.records import record

if TYPE_CHECKING:
    import ssl

    from headrace.dist.handshake import Peer
    from headrace.dist.tls import TlsSocket

SHARED_FRAME: Final = thresholds.SHARED_FRAME  # bytes of a frame from which shared memory is used
CORKED: Final = thresholds.CORKED_BYTES  # bytes that `send(..., flush=False)` leaves unsent
MOST_BUFFERS: Final = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16  # of one `sendmsg`
WRITES: Final = thresholds.LINK_WRITES  # calls of `sendmsg` before the leader has other work
EARLY_PINGS: Final = thresholds.EARLY_PINGS  # of a link, which follow each other faster than the others
EARLY_PING: Final = thresholds.EARLY_PING  # seconds between two of them
READS: Final = thresholds.LINK_READS  # calls of `recv_into` before other links have their turn
PROBE: Final = thresholds.BANDWIDTH_PROBE  # bytes that measure the bandwidth
SAMPLES: Final = thresholds.CLOCK_SAMPLES  # pings from which the difference of clocks is estimated


@record(frozen=True, slots=True)
class LinkSettings:
    """Numbers of a link.

    Attributes:
      interval: seconds between two pings.
      limit: seconds without any byte from the other end after which the link is closed.
      largest_frame: bytes of the longest frame after the handshake, sent or received.
      largest_greeting: bytes of the longest frame that is received before the end of the handshake.
      shared_memory: bytes of memory that this process shares with one on the same machine, in each direction; 0: none.
    """

    interval: float = 1.0
    limit: float = 10.0
    largest_frame: int = thresholds.LARGEST_FRAME
    largest_greeting: int = UNKNOWN_PEER
    shared_memory: int = thresholds.SHARED_MEMORY


@record(frozen=True, slots=True)
class LinkStatistics:
    """Counters of a link.

    Attributes:
      bytes_in: bytes that were received, decrypted.
      bytes_out: bytes that the socket has taken, before encryption.
      bytes_shared: bytes of frames that were sent by shared memory.
      frames_in: frames that were passed to `on_frames`.
      frames_out: calls of `send`, each of which has one frame, as a rule.
      pending_bytes: bytes in the queue.
      silence: seconds since the last byte arrived.
      round_trip_ns: the smallest round trip of the last pings; None before the first answer.
      clock_offset_ns: see `Link.clock_offset_ns`.
    """

    bytes_in: int
    bytes_out: int
    bytes_shared: int
    frames_in: int
    frames_out: int
    pending_bytes: int
    silence: float
    round_trip_ns: int | None
    clock_offset_ns: int | None


class Greeter(Protocol):
    """Handshake of a link.

    Attributes:
      error: the error that ended it; None if there is none.
    """

    error: OpError | None

    def begin(self) -> None:
        """Begins the handshake: the connection is made, and encrypted if it should be."""

    def receive(self, frame: Frame) -> None:
        """Takes a frame.

        Raises:
          OpError: the handshake has failed.
        """

    def lost(self, reason: str) -> None:
        """Ends the handshake: the link has been closed."""


class Link:
    """A connection to another process. Made by `transport.listen` and `connect`; its methods are thread-safe.

    Attributes:
      address: the address of the other end.
      peer: the process at the other end; None during the handshake.
      on_frames: called with the tokens and messages that have arrived, in order. Calls do not overlap. If it raises an
        error, the link is closed. It is set in `on_link`.
      on_closed: called once with the reason when the link has been closed, after the last call of `on_frames`. It is
        set in `on_link`.
      round_trip_ns: the smallest round trip of the last pings; None before the first answer.
      clock_offset_ns: `time.perf_counter_ns()` of the other process minus that of this one, from the ping with the
        smallest round trip. The error is at most half of that round trip. None before the first answer.
      bandwidth: bytes a second, as `measure_bandwidth` has found; None before.
    """

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        address: str,
        settings: LinkSettings,
        greeter: Greeter | None = None,
    ) -> None:
        self.address = address
        self.peer: Peer | None = None
        self.on_frames: Callable[[list[Frame]], object] = _ignore
        self.on_closed: Callable[[str], object] = _ignore
        self.round_trip_ns: int | None = None
        self.clock_offset_ns: int | None = None
        self.bandwidth: float | None = None

        self._reactor = reactor
        self._monotonic = reactor.monotonic
        self._socket = sock
        self._fd = sock.fileno()
        self._settings = settings
        self._greeter = greeter  # None after the handshake
        self._decoder = Decoder(settings.largest_greeting)
        self._tls: TlsSocket | None = None
        self._recv_into: Callable[[memoryview], int] = sock.recv_into
        self._sendmsg: Callable[[Sequence[Buffer]], int] = sock.sendmsg
        self._is_shaking = False
        self._outgoing: Outgoing | None = None  # shared memory
        self._incoming: Incoming | None = None
        self._beat_timer: Timer | None = None
        self._early_pings = EARLY_PINGS
        self._probe = 0  # the ping that measures the bandwidth
        self._samples: deque[tuple[int, int]] = deque(maxlen=SAMPLES)  # round trip and offset

        self._reading = threading.Lock()  # held from receiving until `on_frames` has returned
        self._heard = reactor.monotonic()
        self._bytes_in = self._frames_in = 0

        self._lock = threading.Lock()  # guards the fields below
        self._queue: deque[Buffer] = deque()
        self._queued = 0  # bytes in `_queue`
        self._is_corked = False  # the reactor will flush the link
        self._is_writing = False  # a thread is in `sendmsg`; it alone takes from `_queue`
        self._is_blocked = False  # the socket takes no more
        self._broken = ""  # the reason why nothing can be written any more
        self._is_muted = False  # the socket is not polled for reading
        self._mask = 0  # the polled events
        self._bytes_out = self._bytes_shared = self._frames_out = 0
        self._reason: str | None = None  # of a closed link
        self._is_finished = False

    # *** sending ***

    def send(self, buffers: Sequence[Buffer], flush: bool = True) -> None:
        """Sends a frame. Never waits.

        Frames of one thread arrive in the order of the calls. The memory of the buffers must not change until it was
        sent (`pending_bytes`).

        Args:
          buffers: the bytes, which are not copied.
          flush: whether to write at once. Otherwise the bytes are written by the next flush of the link or the reactor,
            if more than `CORKED` bytes are pending, or before the next poll.

        Raises:
          UnavailableError: the link is closed.
          ResourceExhaustedError: the frame is longer than the other end accepts.
        """
        size = len(buffers[0]) if len(buffers) == 1 else sum(map(len, buffers))
        if size > self._settings.largest_frame:
            raise ResourceExhaustedError(
                f"a message of {size} bytes to {self._name}: at most {self._settings.largest_frame} are sent. Raise "
                "NetworkOptions.largest_frame in all processes of the cluster"
            )
        if size >= SHARED_FRAME and self._outgoing is not None:
            buffers, size = self._by_memory(self._outgoing, buffers, size)
        with self._lock:
            if self._reason is not None:
                raise self._closed_error()
            self._frames_out += 1
            is_direct = flush and not self._queue and not self._is_writing and len(buffers) <= MOST_BUFFERS
            if not is_direct:
                self._queue.extend(buffers)
                self._queued += size
                if self._is_writing or self._is_blocked:
                    return
                if not flush and self._queued <= CORKED:
                    if not self._is_corked:
                        self._is_corked = True
                        self._reactor.flush_later(self)
                    return
            self._is_writing = True
        if is_direct:
            try:
                n = self._sendmsg(buffers)
            except OSError as e:
                n = self._not_written(e)
            self._bytes_out += n
            if n == size:
                # Without the lock: another thread appends to the queue before it looks at `_is_writing`.
                self._is_writing = False
                if self._queue:
                    self.flush()
                if self._reason is not None:
                    self._finish_soon()
                return
            with self._lock:
                self._queue.extendleft(reversed(buffers))  # before the buffers of other threads
                self._queued += size - n
                self._drop(n)
                self._goes_on(False)
            if self._reason is not None:
                self._finish_soon()
            return
        self._write()

    def _by_memory(self, outgoing: Outgoing, buffers: Sequence[Buffer], size: int) -> tuple[Sequence[Buffer], int]:
        """Writes a frame into shared memory if there is any; returns the frame to send."""
        for place in outgoing.place(buffers, size, self._monotonic()):
            data = encode_place(place)
            if place.verb == USE:
                self._bytes_shared += size
                return data, len(data[0])
            self.send(data, flush=False)
        return buffers, size

    def flush(self) -> None:
        """Writes as much of the queue as the socket takes. Never waits."""
        with self._lock:
            self._is_corked = False
            if not self._queue or self._is_writing or self._is_blocked:
                return
            self._is_writing = True
        self._write()

    @property
    def pending_bytes(self) -> int:
        """Number of bytes that the socket has not taken yet."""
        return self._queued

    def _write(self) -> None:
        """Writes the queue, in the thread that has set `_is_writing`."""
        for _ in range(WRITES):
            with self._lock:
                buffers = list(islice(self._queue, MOST_BUFFERS))
            size = sum(map(len, buffers))
            try:
                n = self._sendmsg(buffers)
            except OSError as e:
                n = self._not_written(e)
            with self._lock:
                self._bytes_out += n
                self._queued -= n
                self._drop(n)
                if not self._goes_on(n == size):
                    break
        else:  # other threads append all the time: the leader writes the rest, after a poll
            with self._lock:
                self._is_writing = False
                if not self._is_corked and self._reason is None:
                    self._is_corked = True
                    self._reactor.flush_later(self)
        if self._reason is not None:
            self._finish_soon()

    def _not_written(self, error: OSError) -> int:
        """Closes the link, unless the socket only takes no bytes at the moment. Returns 0."""
        if isinstance(error, BlockingIOError):
            return 0
        reason = f"writing failed: {error_text(error)}"
        if isinstance(error, (BrokenPipeError, ConnectionResetError)):
            self._broken = reason
            with contextlib.suppress(OpError):
                self._reactor.submit(self._readable)  # the last frames of the other end may say more
                return 0
        self.close(reason)
        return 0

    def _drop(self, n: int) -> None:
        """Removes `n` bytes from the queue. The lock is held."""
        queue = self._queue
        while queue and len(queue[0]) <= n:
            n -= len(queue.popleft())
        if n:
            queue[0] = memoryview(queue[0])[n:]

    def _goes_on(self, has_room: bool) -> bool:
        """Whether the thread continues to write, after a call of `sendmsg`. The lock is held."""
        if self._reason is None:
            if has_room and self._queue:
                return True
            if not has_room:
                self._is_blocked = True
                self._arm()
        self._is_writing = False
        return False

    def _writable(self) -> None:
        """Callback: the socket takes bytes again."""
        if self._is_shaking:
            self._readable()
            return
        with self._lock:
            if not self._is_blocked or self._is_finished:
                return
            self._is_blocked = False
            self._arm()
            self._is_writing = True
        self._write()
        if self._tls is not None and self._tls.read_waits:
            self._readable()

    def _arm(self) -> None:
        """Sets the events that are polled. The lock is held."""
        mask = 0 if self._is_muted else READ
        if self._is_blocked and not self._broken:
            mask |= WRITE
        if self._tls is not None:
            if self._tls.write_waits:
                mask &= ~WRITE
            if self._tls.read_waits:
                mask |= WRITE
        if mask != self._mask and not self._is_finished:
            self._mask = mask
            self._reactor.set_interest(self._fd, mask)

    # *** receiving ***

    def _readable(self) -> None:
        """Callback: bytes have arrived, or the connection is closed or broken."""
        if not self._reading.acquire(False):
            self._mute()
            if self._reason is not None:
                self._finish_soon()
            return
        try:
            has_more = self._shake() if self._is_shaking else self._read()
        finally:
            self._reading.release()
        if self._is_muted:
            self._unmute()
        if has_more:
            self._reactor.submit(self._readable)
        if self._reason is not None:
            self._finish_soon()

    def _read(self) -> bool:
        """Receives and handles frames.

        Returns whether there may be bytes that the poll does not see.
        """
        decoder, tls = self._decoder, self._tls
        for _ in range(READS if tls is None else tls.reads):
            if self._reason is not None:
                return False
            buffer = decoder.buffer()
            try:
                n = self._recv_into(buffer)
            except BlockingIOError:
                if self._broken:
                    self.fail(UnavailableError(self._broken))
                break
            except OSError as e:
                if tls is not None and self._greeter is not None:  # TLS 1.3 refuses a client after its handshake
                    self.fail(tls.failure(e))
                else:
                    self.fail(UnavailableError(f"reading failed: {error_text(e)}"))
                return False
            if not n:
                self.fail(UnavailableError("the other end has closed the connection"))
                return False
            self._bytes_in += n
            self._heard = self._monotonic()
            frames: list[Frame] = []
            try:
                for frame in decoder.received(n):
                    kind = type(frame)
                    if (kind is Token or kind is Control) and self._greeter is None:
                        frames.append(frame)
                    elif (found := self._take(frame)) is not None:
                        frames.append(found)
            except OpError as e:
                self.fail(e)
            if frames and self._reason is None:
                self._frames_in += len(frames)
                try:
                    self.on_frames(frames)
                except Exception as e:
                    self._reactor.report(e)
                    self.close(f"frames of {self._name} could not be handled: {type(e).__name__}: {e}")
            if self._incoming is not None and self._incoming.released:
                self._release(self._incoming)
            if tls is None:
                if n < len(buffer):
                    return False
            elif n < tls.record and not tls.pending():
                break
        else:
            return tls is not None
        if tls is not None:
            if tls.read_waits:
                with self._lock:
                    self._arm()
            if tls.write_waits:
                tls.write_waits = False
                self._writable()
        return False

    def _take(self, frame: Frame) -> Frame | None:
        """Handles a frame that is not for the owner of the link.

        Returns the frame in shared memory that it names, if there is one.
        """
        if self._greeter is not None:
            self._greeter.receive(frame)
        elif type(frame) is Ping:
            with contextlib.suppress(UnavailableError):  # closed in the meantime
                self.send(encode_pong(frame.sent, time.perf_counter_ns()))
        elif type(frame) is Pong:
            now = time.perf_counter_ns()
            if frame.sent == self._probe:
                self.bandwidth = PROBE * 1e9 / max(now - frame.sent - (self.round_trip_ns or 0), 1)
            elif frame.sent <= now:
                self._samples.append((now - frame.sent, frame.time - (now + frame.sent) // 2))
                self.round_trip_ns, self.clock_offset_ns = min(self._samples)
        elif type(frame) is Place:
            return self._take_place(frame)
        return None

    def _take_place(self, place: Place) -> Frame | None:
        """Handles a message about shared memory; returns the frame in it, if there is one."""
        outgoing, incoming = self._outgoing, self._incoming
        if outgoing is None or incoming is None:
            if place.verb != OFFER:
                raise DataLossError("a frame about shared memory, which this connection does not use")
            with contextlib.suppress(UnavailableError):  # closed in the meantime
                self.send(encode_place(Place(REFUSE, place.number)))
            return None
        if place.verb == USE:
            return self._decoder.content(incoming.frame(place))
        if place.verb in (OFFER, WITHDRAW):
            with contextlib.suppress(UnavailableError):  # closed in the meantime
                for answer in incoming.hear(place):
                    self.send(encode_place(answer))
        else:
            outgoing.hear(place)
        return None

    def _release(self, incoming: Incoming) -> None:
        """Reports the segments whose frames no array uses any more."""
        with contextlib.suppress(UnavailableError):  # closed in the meantime
            for place in incoming.take_released():
                self.send(encode_place(place))

    def _mute(self) -> None:
        """Ends polling for reading, while another thread is in `on_frames`."""
        with self._lock:
            self._is_muted = True
            self._arm()
        if self._reading.acquire(blocking=False):  # it has just returned
            self._reading.release()
            self._unmute()

    def _unmute(self) -> None:
        with self._lock:
            self._is_muted = False
            self._arm()

    # *** beginning ***

    def begin(self, secure: Callable[[socket.socket], ssl.SSLSocket] | None) -> None:
        """Registers the link and begins the handshake.

        Args:
          secure: wraps the socket for TLS; None: the connection is not encrypted.

        Raises:
          OpError: the link or the reactor is closed.
          OSError: the connection is closed already.
        """
        with self._lock:
            if self._reason is not None:
                raise self._closed_error()
            if secure is not None:
                from headrace.dist.tls import TlsSocket  # imports ssl, which is slow

                secured = secure(self._socket)
                self._socket, self._tls = secured, TlsSocket(secured)
                self._recv_into, self._sendmsg = self._tls.recv_into, self._tls.sendmsg
                self._is_shaking = True
            self._reactor.add(self)
            self._mask = READ
            self._reactor.register(self._fd, self._readable, self._writable, READ)
        if self._is_shaking:
            self._reactor.submit(self._readable)
        elif self._greeter is not None:
            self._greeter.begin()

    def _shake(self) -> bool:
        """Continues the handshake of TLS. Returns whether it is complete."""
        tls, greeter = self._tls, self._greeter
        if tls is None or greeter is None or self._reason is not None:
            return False
        try:
            mask = tls.shake()
        except OSError as e:
            self.fail(tls.failure(e))
            return False
        with self._lock:
            if not self._is_finished:
                self._mask = mask or READ
                self._reactor.set_interest(self._fd, self._mask)
        if mask:
            return False
        self._is_shaking = False
        greeter.begin()
        return True

    def open(self, peer: Peer) -> None:
        """Ends the handshake. The owner is notified after this."""
        self.peer = peer
        self._decoder.limit = self._settings.largest_frame
        self._greeter = None
        limit = self._settings.shared_memory
        if IS_AVAILABLE and limit and self._tls is None and self._is_on_one_machine():
            self._outgoing, self._incoming = Outgoing(limit), Incoming(limit)
        self._reactor.submit(self._beat)

    def _is_on_one_machine(self) -> bool:
        """Whether both ends have the same address; `shared_memory` finds out for certain."""
        try:
            return bool(self._socket.getpeername()[0] == self._socket.getsockname()[0])
        except OSError:  # closed in the meantime
            return False

    # *** heartbeats ***

    def _beat(self) -> None:
        """Sends a ping, or closes the link if the other end is silent."""
        if self._reason is not None:
            return
        limit = self._settings.limit
        silence = self._monotonic() - self._heard
        if silence >= limit:
            # This process may have been suspended itself, so the bytes that have arrived are read first. If another
            # thread is in `on_frames`, they cannot be read, and the silence means nothing.
            self._readable()
            if not self._is_muted:
                silence = self._monotonic() - self._heard
                if silence >= limit:
                    self.close(f"no answer for {limit:g} s: the process has stopped, or the network is cut")
                    return
        with contextlib.suppress(OpError):  # closed in the meantime
            if self._outgoing is not None and self._incoming is not None:
                for place in (*self._incoming.take_released(), *self._outgoing.trim(self._monotonic())):
                    self.send(encode_place(place), flush=False)
            self.send(encode_ping(time.perf_counter_ns()))
            wait = min(self._settings.interval, max(limit - silence, self._settings.interval / 8))
            if self._early_pings:  # the first ones measure the clock offset, before a busy process answers one late
                self._early_pings -= 1
                wait = min(wait, EARLY_PING)
            self._beat_timer = self._reactor.call_later(wait, self._beat)

    def measure_bandwidth(self) -> None:
        """Sends a long ping, whose answer gives the bandwidth."""
        self._probe = time.perf_counter_ns()
        with contextlib.suppress(UnavailableError):  # closed in the meantime
            self.send(encode_ping(self._probe, PROBE))

    # *** the end ***

    def close(self, reason: str = "closed by this process") -> None:
        """Closes the connection. Bytes in the queue are dropped. Further calls have no effect.

        Args:
          reason: the reason, which `on_closed` and later calls of `send` report.
        """
        with self._lock:
            if self._reason is not None:
                return
            self._reason = reason
            with contextlib.suppress(OSError):  # the other end was faster
                # not the method of SSLSocket, after which another thread would send without encryption
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        self._finish_soon()

    @property
    def is_closed(self) -> bool:
        """Whether the link accepts no more frames."""
        return self._reason is not None

    def fail(self, error: OpError) -> None:
        if self._greeter is not None and self._greeter.error is None:
            self._greeter.error = error
        elif self._greeter is None and not isinstance(error, UnavailableError):  # damaged frames
            warn(f"the connection to {self._name} is closed: {error.message}")
        self.close(error.message)

    def _finish_soon(self) -> None:
        """Lets the leader finish the closed link."""
        if not self._is_finished:
            try:
                self._reactor.submit(self._finish)
            except OpError:  # the reactor has ended
                self._finish()

    def _finish(self) -> None:
        """Closes the descriptor, unless a thread uses it. That thread will call this method again."""
        if not self._reading.acquire(blocking=False):
            return
        try:
            with self._lock:
                if self._is_finished:
                    return
                is_in_use = self._is_writing
                if not is_in_use:
                    self._is_finished = True
                    self._reactor.unregister(self._fd)
                    self._socket.close()
                    self._queue.clear()
                    self._queued = 0
                    if self._outgoing is not None:
                        self._outgoing.close()
                    self._outgoing = self._incoming = None
        finally:
            self._reading.release()
        if is_in_use:
            if not self._is_writing:  # the writer has just ended, and its call found `_reading` acquired
                self._finish_soon()
            return
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        self._reactor.discard(self)
        reason = self._reason or ""
        if self._greeter is not None:
            self._greeter.lost(reason)
        else:
            self.on_closed(reason)

    def _forked(self) -> None:
        self._lock = threading.Lock()
        if self._reason is None:
            self._reason = "this process was forked, and the connection belongs to its parent"
        self._is_finished = True
        with contextlib.suppress(OSError):
            self._socket.close()

    def _closed_error(self) -> UnavailableError:
        return UnavailableError(f"the connection to {self._name} is closed: {self._reason}")

    @property
    def _name(self) -> str:
        return self.address if self.peer is None else f"{self.peer.name} ({self.address})"

    def __repr__(self) -> str:
        return f"<Link to {self._name}{'' if self._reason is None else f', closed: {self._reason}'}>"

    def statistics(self) -> LinkStatistics:
        """Returns the counters at this moment."""
        return LinkStatistics(
            self._bytes_in,
            self._bytes_out,
            self._bytes_shared,
            self._frames_in,
            self._frames_out,
            self._queued,
            max(self._monotonic() - self._heard, 0.0),
            self.round_trip_ns,
            self.clock_offset_ns,
        )


def warn(text: str) -> None:
    """Logs a warning about a connection (logger "headrace.dist")."""
    log = notices.listener("dist", notices.WARNING)
    if log is not None:
        log.warning(text)


def error_text(error: OSError) -> str:
    """Returns the text of an error of the system."""
    return error.strerror or str(error)


def _ignore(_: object) -> None:
    """Does nothing."""
