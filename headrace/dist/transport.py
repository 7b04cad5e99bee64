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

**Unknown peers.** Until the handshake (`dist.handshake`) is complete, a frame has at most 64 KiB, a connection that
sends anything but the handshake is closed, and a listener has only a small number of such connections, for a few
seconds each.

TLS encrypts a connection if both ends are given an `ssl.SSLContext`. OpenSSL copies all bytes, takes no list of
buffers, and may not be entered by two threads at once; `_Tls` has the same interface as a plain socket.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from headrace import notices, thresholds
from headrace.dist.codec import (
    UNKNOWN_PEER,
    Control,
    Decoder,
    Frame,
    Ping,
    Pong,
    Token,
    encode_control,
    encode_ping,
    encode_pong,
)
from headrace.dist.handshake import Acceptor, Connector, Identity, Peer
from headrace.dist.messages import AnyMessage, Refused
from headrace.dist.reactor import READ, WRITE, Reactor, Timer
from headrace.dist.values import Buffer
from headrace.errors import (
    DataLossError,
    DeadlineExceededError,
    OpError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)

if TYPE_CHECKING:
    import ssl

CORKED: Final = thresholds.CORKED_BYTES  # bytes that `send(..., flush=False)` leaves unsent
MOST_BUFFERS: Final = min(os.sysconf("SC_IOV_MAX"), 1024) if hasattr(os, "sysconf") else 16  # of one `sendmsg`
JOINED: Final = thresholds.TLS_JOINED_BYTES  # bytes up to which buffers are joined for TLS
WRITES: Final = thresholds.LINK_WRITES  # calls of `sendmsg` before the leader has other work
EARLY_PINGS: Final = thresholds.EARLY_PINGS  # of a link, which follow each other faster than the others
EARLY_PING: Final = thresholds.EARLY_PING  # seconds between two of them
READS: Final = thresholds.LINK_READS  # calls of `recv_into` before other links have their turn
TLS_RECORD: Final = 1 << 14  # bytes that one call returns at most
TLS_READS: Final = thresholds.TLS_LINK_READS  # the same for TLS, where each call returns 16 KiB
SAMPLES: Final = thresholds.CLOCK_SAMPLES  # pings from which the difference of clocks is estimated
WARNING: Final = 30  # the number of `logging`

_Address: TypeAlias = tuple[int, int, int, str, Any]  # an entry of `socket.getaddrinfo`
OnLink: TypeAlias = "Callable[[Link], object]"
OnFailed: TypeAlias = Callable[[OpError], object]


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Numbers of a link.

    Attributes:
      interval: seconds between two pings.
      limit: seconds without any byte from the other end after which the link is closed.
      largest_frame: bytes of the longest frame after the handshake, sent or received.
      largest_greeting: bytes of the longest frame that is received before the end of the handshake.
    """

    interval: float = 1.0
    limit: float = 10.0
    largest_frame: int = thresholds.LARGEST_FRAME
    largest_greeting: int = UNKNOWN_PEER


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """Counters of a link.

    Attributes:
      bytes_in: bytes that were received, decrypted.
      bytes_out: bytes that the socket has taken, before encryption.
      frames_in: frames that were passed to `on_frames`.
      frames_out: calls of `send`, each of which has one frame, as a rule.
      pending_bytes: bytes in the queue.
      silence: seconds since the last byte arrived.
      round_trip_ns: the smallest round trip of the last pings; None before the first answer.
      clock_offset_ns: see `Link.clock_offset_ns`.
    """

    bytes_in: int
    bytes_out: int
    frames_in: int
    frames_out: int
    pending_bytes: int
    silence: float
    round_trip_ns: int | None
    clock_offset_ns: int | None


class _Greeter(Protocol):
    """The handshake of a link.

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


def format_address(host: str, port: int) -> str:
    """Returns "host:port", or "[host]:port" for IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class _Tls:
    """An encrypted socket with the interface of a plain one.

    Attributes:
      read_waits: whether reading continues when the socket is writable.
      write_waits: whether writing continues when something was read.
    """

    def __init__(self, sock: ssl.SSLSocket) -> None:
        import ssl  # imported already, by the caller that made the context

        self._socket = sock
        self._want_read, self._want_write = ssl.SSLWantReadError, ssl.SSLWantWriteError
        self._lock = threading.Lock()
        self.read_waits = self.write_waits = False

    def shake(self) -> int:
        """Continues the handshake of TLS.

        Returns the events to wait for, or 0 at the end.
        """
        try:
            self._socket.do_handshake()
        except self._want_read:
            return READ
        except self._want_write:
            return WRITE
        return 0

    def recv_into(self, buffer: memoryview) -> int:
        with self._lock:
            self.read_waits = False
            try:
                return self._socket.recv_into(buffer)
            except self._want_read:
                raise BlockingIOError from None
            except self._want_write:
                self.read_waits = True
                raise BlockingIOError from None

    def pending(self) -> int:
        """Number of bytes that are decrypted but not received; the poll does not see them."""
        with self._lock:
            return self._socket.pending()

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """Returns the number of bytes that the socket has taken.

        Small buffers are sent together, and large ones one after another.
        """
        sent = at = 0
        with self._lock:
            self.write_waits = False
            while at < len(buffers):
                end, size = at + 1, len(buffers[at])
                while end < len(buffers) and size + len(buffers[end]) <= JOINED:
                    size += len(buffers[end])
                    end += 1
                data = memoryview(buffers[at] if end == at + 1 else b"".join(buffers[at:end]))
                while data:
                    try:
                        n = self._socket.send(data)
                    except self._want_write:  # the next call begins with the same bytes, as OpenSSL demands
                        return sent
                    except self._want_read:
                        self.write_waits = True
                        return sent
                    sent += n
                    data = data[n:]
                at = end
        return sent


class Link:
    """A connection to another process. Made by `listen` and `connect`; its methods are thread-safe.

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
    """

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        address: str,
        settings: LinkSettings,
        greeter: _Greeter | None = None,
    ) -> None:
        self.address = address
        self.peer: Peer | None = None
        self.on_frames: Callable[[list[Frame]], object] = _ignore
        self.on_closed: Callable[[str], object] = _ignore
        self.round_trip_ns: int | None = None
        self.clock_offset_ns: int | None = None

        self._reactor = reactor
        self._monotonic = reactor.monotonic
        self._socket = sock
        self._fd = sock.fileno()
        self._settings = settings
        self._greeter = greeter  # None after the handshake
        self._decoder = Decoder(settings.largest_greeting)
        self._tls: _Tls | None = None
        self._recv_into: Callable[[memoryview], int] = sock.recv_into
        self._sendmsg: Callable[[Sequence[Buffer]], int] = sock.sendmsg
        self._is_shaking = False
        self._beat_timer: Timer | None = None
        self._early_pings = EARLY_PINGS
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
        self._bytes_out = self._frames_out = 0
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
        reason = f"writing failed: {_text(error)}"
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
        for _ in range(READS if tls is None else TLS_READS):
            if self._reason is not None:
                return False
            buffer = decoder.buffer()
            try:
                n = self._recv_into(buffer)
            except BlockingIOError:
                if self._broken:
                    self._fail(UnavailableError(self._broken))
                break
            except OSError as e:
                is_early = tls is not None and self._greeter is not None  # TLS 1.3 refuses a client after its handshake
                self._fail(_tls_error(e) if is_early else UnavailableError(f"reading failed: {_text(e)}"))
                return False
            if not n:
                self._fail(UnavailableError("the other end has closed the connection"))
                return False
            self._bytes_in += n
            self._heard = self._monotonic()
            frames: list[Frame] = []
            try:
                for frame in decoder.received(n):
                    kind = type(frame)
                    if (kind is Token or kind is Control) and self._greeter is None:
                        frames.append(frame)
                    else:
                        self._take(frame)
            except OpError as e:
                self._fail(e)
            if frames and self._reason is None:
                self._frames_in += len(frames)
                try:
                    self.on_frames(frames)
                except Exception as e:
                    self._reactor.report(e)
                    self.close(f"frames of {self._name} could not be handled: {type(e).__name__}: {e}")
            if tls is None:
                if n < len(buffer):
                    return False
            elif n < TLS_RECORD and not tls.pending():
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

    def _take(self, frame: Frame) -> None:
        """Handles a frame of the handshake, or a ping, or its answer."""
        if self._greeter is not None:
            self._greeter.receive(frame)
        elif type(frame) is Ping:
            with contextlib.suppress(UnavailableError):  # closed in the meantime
                self.send(encode_pong(frame.sent, time.perf_counter_ns()))
        elif type(frame) is Pong:
            now = time.perf_counter_ns()
            if frame.sent <= now:
                self._samples.append((now - frame.sent, frame.time - (now + frame.sent) // 2))
                self.round_trip_ns, self.clock_offset_ns = min(self._samples)

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

    def _begin(self, secure: Callable[[socket.socket], ssl.SSLSocket] | None) -> None:
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
                secured = secure(self._socket)
                self._socket, self._tls = secured, _Tls(secured)
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
            self._fail(_tls_error(e))
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

    def _open(self, peer: Peer) -> None:
        """Ends the handshake. The owner is notified after this."""
        self.peer = peer
        self._decoder.limit = self._settings.largest_frame
        self._greeter = None
        self._reactor.submit(self._beat)

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
            self.send(encode_ping(time.perf_counter_ns()))
            wait = min(self._settings.interval, max(limit - silence, self._settings.interval / 8))
            if self._early_pings:  # the first ones measure the clock offset, before a busy process answers one late
                self._early_pings -= 1
                wait = min(wait, EARLY_PING)
            self._beat_timer = self._reactor.call_later(wait, self._beat)

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

    def _fail(self, error: OpError) -> None:
        if self._greeter is not None and self._greeter.error is None:
            self._greeter.error = error
        elif self._greeter is None and not isinstance(error, UnavailableError):  # damaged frames
            _warn(f"the connection to {self._name} is closed: {error.message}")
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
                if self._is_writing or self._is_finished:
                    return
                self._is_finished = True
                self._reactor.unregister(self._fd)
                self._socket.close()
                self._queue.clear()
                self._queued = 0
        finally:
            self._reading.release()
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
            self._frames_in,
            self._frames_out,
            self._queued,
            max(self._monotonic() - self._heard, 0.0),
            self.round_trip_ns,
            self.clock_offset_ns,
        )


# *** listening ***


class Listener:
    """A socket that accepts connections. Made by `listen`.

    Attributes:
      address: "host:port", with the actual port.
      port: the actual port.
    """

    def __init__(
        self,
        reactor: Reactor,
        sock: socket.socket,
        on_link: OnLink,
        identity: Identity,
        settings: LinkSettings,
        tls: ssl.SSLContext | None,
        handshake_timeout: float,
        most_unknown: int,
    ) -> None:
        host, self.port = sock.getsockname()[:2]
        self.address = format_address(host, self.port)
        self._reactor = reactor
        self._socket = sock
        self._fd = sock.fileno()
        self._on_link = on_link
        self._identity = identity
        self._settings = settings
        self._tls = tls
        self._handshake_timeout = handshake_timeout
        self._most_unknown = most_unknown
        self._unknown: set[_Accepted] = set()
        self._accepting = threading.Lock()  # held while the socket is used
        self._is_closed = False
        self._is_finished = False

    def close(self, reason: str = "") -> None:
        """Accepts no more connections. Existing links stay open. Further calls have no effect.

        Args:
          reason: not used.
        """
        if not self._is_closed:
            self._is_closed = True
            try:
                self._reactor.submit(self._finish)
            except OpError:  # the reactor has ended
                self._finish()

    def _begin(self) -> None:
        self._reactor.add(self)
        self._reactor.register(self._fd, self._acceptable, self._acceptable)

    def _acceptable(self) -> None:
        """Callback: connections have arrived."""
        with self._accepting:
            for _ in range(16):
                if self._is_closed:
                    return
                try:
                    sock, address = self._socket.accept()
                except (BlockingIOError, ConnectionAbortedError):
                    return
                except OSError as e:
                    if e.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                        raise
                    _warn(f"{self.address} accepts no connections for a second: {_text(e)}")
                    self._reactor.set_interest(self._fd, 0)
                    self._reactor.call_later(1.0, self._resume)
                    return
                self._accept(sock, format_address(*address[:2]))

    def _resume(self) -> None:
        with self._accepting:
            if not self._is_closed:
                self._reactor.set_interest(self._fd, READ)

    def _accept(self, sock: socket.socket, address: str) -> None:
        if len(self._unknown) >= self._most_unknown:
            _warn(f"a connection from {address} was closed: {self._most_unknown} others have not said their names yet")
            sock.close()
            return
        _Accepted(self, sock, address)

    def _finish(self) -> None:
        with self._accepting:
            if self._is_finished:
                return
            self._is_finished = True
            self._reactor.unregister(self._fd)
            self._socket.close()
        self._reactor.discard(self)
        for accepted in list(self._unknown):
            accepted.link.close("the listener was closed")

    def _forked(self) -> None:
        self._is_closed = self._is_finished = True
        self._socket.close()


class _Accepted:
    """Handshake of the end of a connection that listened."""

    def __init__(self, listener: Listener, sock: socket.socket, address: str) -> None:
        self.error: OpError | None = None
        self._listener = listener
        self._acceptor = Acceptor(listener._identity)
        self._timer: Timer | None = None
        sock.setblocking(False)
        self.link = Link(listener._reactor, sock, address, listener._settings, self)
        context = listener._tls
        secure = None
        if context is not None:
            secure = lambda s: context.wrap_socket(s, server_side=True, do_handshake_on_connect=False)
        listener._unknown.add(self)
        try:
            _set_options(sock)
            self._timer = listener._reactor.call_later(listener._handshake_timeout, self._expire)
            self.link._begin(secure)
        except (OSError, OpError) as e:
            self.link._fail(UnavailableError(str(e)))

    def begin(self) -> None:
        self.link.send(encode_control(self._acceptor.challenge()))

    def receive(self, frame: Frame) -> None:
        try:
            welcome = self._acceptor.receive(_message(frame))
        except UnauthenticatedError as e:
            self.link.send(encode_control(Refused(e.message)))
            raise
        peer = self._acceptor.peer
        assert peer is not None
        self.link.send(encode_control(welcome))
        self._end()
        self.link._open(peer)
        _notify(self._listener._on_link, self.link, self._listener._reactor)

    def lost(self, reason: str) -> None:
        self._end()
        _warn(f"a connection from {self.link.address} was closed before the end of its handshake: {reason}")

    def _expire(self) -> None:
        if self.link.peer is None:
            self.link.close(f"the handshake was not complete within {self._listener._handshake_timeout:g} s")

    def _end(self) -> None:
        self._listener._unknown.discard(self)
        if self._timer is not None:
            self._timer.cancel()


def listen(
    reactor: Reactor,
    host: str,
    port: int,
    on_link: OnLink,
    identity: Identity,
    *,
    settings: LinkSettings | None = None,
    tls: ssl.SSLContext | None = None,
    handshake_timeout: float = 5.0,
    most_unknown: int = 64,
) -> Listener:
    """Listens on an address.

    Args:
      reactor: the reactor of this process.
      host: a host name, or an IPv4 or IPv6 address. "" is any address.
      port: the port; 0: any free one.
      on_link: called with each link after its handshake, in the leader of the reactor and before any frame is
        delivered. It sets `on_frames` and `on_closed`.
      identity: name and secret of this process.
      settings: the numbers of the links.
      tls: the context with the certificate of this process; None: connections are not encrypted.
      handshake_timeout: seconds until a handshake must be complete.
      most_unknown: the largest number of connections whose handshake is not complete. Further ones are closed.

    Raises:
      UnavailableError: the address cannot be used.
    """
    sock: socket.socket | None = None
    try:
        family, _, _, _, address = _resolve(host, port, socket.AI_PASSIVE)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(128)
        settings = LinkSettings() if settings is None else settings
        listener = Listener(reactor, sock, on_link, identity, settings, tls, handshake_timeout, most_unknown)
        listener._begin()
    except (OSError, OpError) as e:
        if sock is not None:
            sock.close()
        if isinstance(e, OpError):
            raise
        raise UnavailableError(f"cannot listen on {format_address(host, port)}: {_text(e)}") from e
    return listener


# *** connecting ***


class Connecting:
    """A connection that is being made. Returned by `connect`.

    Attributes:
      address: the address of the other end.
      error: the error of the handshake, if it has failed.
    """

    def __init__(
        self,
        reactor: Reactor,
        host: str,
        port: int,
        on_link: OnLink,
        on_failed: OnFailed,
        connector: Connector,
        timeout: float,
        settings: LinkSettings,
        tls: ssl.SSLContext | None,
        server_hostname: str | None,
    ) -> None:
        self.error: OpError | None = None
        self.address = format_address(host, port)
        self._reactor = reactor
        self._host, self._port = host, port
        self._on_link, self._on_failed = on_link, on_failed
        self._connector = connector
        self._timeout = timeout
        self._settings = settings
        self._tls = tls
        self._server_hostname = server_hostname or host
        self._stage = "its name is not resolved"
        self._said_hello = False
        self._lock = threading.Lock()  # guards the fields below
        self._addresses: deque[_Address] = deque()
        self._socket: socket.socket | None = None  # before the link is made
        self._link: Link | None = None
        self._is_settled = False
        self._timer = reactor.call_later(timeout, self._expire)

    def cancel(self, reason: str = "the connection is not needed any more") -> None:
        """Gives up, unless `on_link` has been called. `on_failed` is called with the reason."""
        self._settle(UnavailableError(reason))

    close = cancel  # by the reactor

    def _start(self) -> None:
        self._reactor.add(self)
        try:
            self._try_addresses(_resolve(self._host, self._port, socket.AI_NUMERICHOST))
        except OSError:  # a name
            self._reactor.submit(self._resolve_name)

    def _resolve_name(self) -> None:
        self._reactor.busy()
        try:
            self._try_addresses(_resolve(self._host, self._port))
        except OSError as e:
            self._settle(UnavailableError(_text(e)))

    def _try_addresses(self, addresses: Sequence[_Address]) -> None:
        self._stage = "the host does not answer"
        self._addresses.extend(addresses)
        self._try_next("the host has no address")

    def _try_next(self, problem: str) -> None:
        """Tries the next address.

        Args:
          problem: the problem of the address before, which is reported if no address is left.
        """
        with self._lock:
            while self._addresses and not self._is_settled:
                family, _, _, _, address = self._addresses.popleft()
                try:
                    sock = socket.socket(family, socket.SOCK_STREAM)
                except OSError as e:
                    problem = _text(e)
                    continue
                sock.setblocking(False)
                _set_options(sock)
                code = sock.connect_ex(address)
                if code not in (0, errno.EINPROGRESS):
                    problem = os.strerror(code)
                    sock.close()
                    continue
                connected = functools.partial(self._connected, sock)
                self._socket = sock
                try:
                    self._reactor.register(sock.fileno(), connected, connected, WRITE)
                    return
                except OpError as e:  # the reactor has ended
                    problem, self._socket = e.message, None
                    sock.close()
        self._settle(UnavailableError(problem))

    def _connected(self, sock: socket.socket) -> None:
        """Callback: the socket is connected, or it has failed."""
        problem = ""
        with self._lock:
            if self._socket is not sock:  # settled, or called twice
                return
            self._socket = None
            self._reactor.unregister(sock.fileno())
            try:
                if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                    problem = os.strerror(code)
                elif sock.getsockname() == sock.getpeername():  # TCP connects a free local port to itself
                    problem = os.strerror(errno.ECONNREFUSED)
            except OSError as e:
                problem = _text(e)
            if not problem:
                self._stage = "the other process has not completed the handshake"
                self._link = link = Link(self._reactor, sock, self.address, self._settings, self)
        if problem:
            sock.close()
            self._try_next(problem)
            return
        secure, context = None, self._tls
        if context is not None:
            name = self._server_hostname
            secure = lambda s: context.wrap_socket(s, do_handshake_on_connect=False, server_hostname=name)
        try:
            link._begin(secure)
        except (OSError, OpError) as e:
            self._settle(UnavailableError(str(e)))

    def begin(self) -> None:
        """Waits for `Challenge`."""

    def receive(self, frame: Frame) -> None:
        """Takes a frame of the handshake."""
        link = self._link
        assert link is not None
        message = _message(frame)
        if not self._said_hello:
            hello = self._connector.answer(message)
            self._said_hello = True
            link.send(encode_control(hello))
            return
        peer = self._connector.finish(message)
        if self._settle(None):
            link._open(peer)
            _notify(self._on_link, link, self._reactor)

    def lost(self, reason: str) -> None:
        """Reports that the link has been closed."""
        error = self.error or UnavailableError(reason)
        if self._tls is None and not self._said_hello and type(error) is UnavailableError:
            error = UnavailableError(f"{error.message}. It has not begun the handshake, so it may demand TLS")
        self._settle(error)

    def _expire(self) -> None:
        self._settle(DeadlineExceededError(f"no connection within {self._timeout:g} s: {self._stage}"))

    def _settle(self, error: OpError | None) -> bool:
        """Ends the attempt with an error, or with success.

        Returns whether it had not ended before.
        """
        with self._lock:
            if self._is_settled:
                return False
            self._is_settled = True
            sock, self._socket = self._socket, None
            link = self._link
            if sock is not None:
                self._reactor.unregister(sock.fileno())
                sock.close()
        self._timer.cancel()
        self._reactor.discard(self)
        if error is not None:
            failure = type(error)(f"cannot connect to {self.address}: {error.message}")
            if link is not None:
                link.close(failure.message)
            try:
                self._reactor.submit(lambda: self._on_failed(failure))
            except OpError:  # the reactor has ended
                self._on_failed(failure)
        return True

    def _forked(self) -> None:
        self._is_settled = True
        if self._socket is not None:
            self._socket.close()


def connect(
    reactor: Reactor,
    host: str,
    port: int,
    on_link: OnLink,
    on_failed: OnFailed,
    identity: Identity,
    *,
    timeout: float = 10.0,
    expected_name: str = "",
    expected_incarnation: int = 0,
    settings: LinkSettings | None = None,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
) -> Connecting:
    """Connects to an address, without waiting. Either `on_link` or `on_failed` is called, once.

    Args:
      reactor: the reactor of this process.
      host: a host name, or an IPv4 or IPv6 address.
      port: the port.
      on_link: called with the link after the handshake, in the leader of the reactor and before any frame is delivered.
        It sets `on_frames` and `on_closed`.
      on_failed: called with the error: `UnavailableError`, `UnauthenticatedError`, `DataLossError` or
        `DeadlineExceededError`.
      identity: name and secret of this process.
      timeout: seconds until the handshake must be complete.
      expected_name: the name that the other end must have; "": any.
      expected_incarnation: the incarnation that the other end must have; 0: any.
      settings: the numbers of the link.
      tls: the context that checks the certificate of the other end; None: the connection is not encrypted.
      server_hostname: the name in the certificate; by default `host`.

    Raises:
      UnavailableError: the reactor is closed.
    """
    connector = Connector(identity, expected_name, expected_incarnation)
    settings = LinkSettings() if settings is None else settings
    attempt = Connecting(reactor, host, port, on_link, on_failed, connector, timeout, settings, tls, server_hostname)
    attempt._start()
    return attempt


def connect_blocking(
    reactor: Reactor,
    host: str,
    port: int,
    on_link: OnLink,
    identity: Identity,
    *,
    timeout: float = 10.0,
    expected_name: str = "",
    expected_incarnation: int = 0,
    settings: LinkSettings | None = None,
    tls: ssl.SSLContext | None = None,
    server_hostname: str | None = None,
) -> Link:
    """Connects to an address, and waits for the end of the handshake.

    A job of the reactor that calls this hands over the lead.

    Args:
      reactor: the reactor of this process.
      Others: see `connect`.

    Returns:
      The link, after `on_link` was called with it.

    Raises:
      UnavailableError: the other process does not answer, or the reactor is closed.
      UnauthenticatedError: the processes have different secrets, names or versions.
      DataLossError: the other process does not speak this protocol.
      DeadlineExceededError: the handshake was not complete in time.
    """
    done = threading.Event()
    links: list[Link] = []
    errors: list[OpError] = []

    def opened(link: Link) -> None:
        try:
            on_link(link)
        finally:  # after an error the link will be closed
            links.append(link)
            done.set()

    def failed(error: OpError) -> None:
        errors.append(error)
        done.set()

    attempt = connect(
        reactor,
        host,
        port,
        opened,
        failed,
        identity,
        timeout=timeout,
        expected_name=expected_name,
        expected_incarnation=expected_incarnation,
        settings=settings,
        tls=tls,
        server_hostname=server_hostname,
    )
    try:
        reactor.busy()
        if reactor.is_active():
            raise UnavailableError(f"cannot connect to {attempt.address}: all threads of the reactor are in jobs")
        if not done.wait(timeout + 5.0):  # longer than the timer, in case that this process is suspended
            raise DeadlineExceededError(f"cannot connect to {attempt.address}: no connection within {timeout:g} s")
    finally:
        if not done.is_set():
            attempt.cancel()
    if errors:
        raise errors[0]
    return links[0]


# *** helpers ***


def _ignore(_: object) -> None:
    """Does nothing."""


def _notify(on_link: OnLink, link: Link, reactor: Reactor) -> None:
    try:
        on_link(link)
    except Exception as e:
        reactor.report(e)
        link.close(f"the connection was not taken over: {type(e).__name__}: {e}")


def _message(frame: Frame) -> AnyMessage:
    if type(frame) is not Control or frame.values:
        raise DataLossError(f"a {type(frame).__name__} arrived before the end of the handshake")
    return frame.message


def _resolve(host: str, port: int, flags: int = 0) -> Sequence[_Address]:
    return socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)


def _set_options(sock: socket.socket) -> None:
    # The sizes of the buffers are left to the system: with fixed ones 64 MB take longer on Linux, which adapts them.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _tls_error(error: OSError) -> OpError:
    """Returns the error of a connection by TLS that has failed in its handshake."""
    import ssl  # imported already, by the caller that made the context

    text = f"the handshake of TLS failed: {_text(error)}"
    if not isinstance(error, ssl.SSLError):
        return UnavailableError(text)
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return UnauthenticatedError(f"{text}. This process does not accept the certificate of the other end")
    if "CERTIFICATE_REQUIRED" in reason or "ALERT_HANDSHAKE_FAILURE" in reason:
        return UnauthenticatedError(f"{text}. The other end demands a certificate")
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return UnauthenticatedError(f"{text}. The other end does not accept the certificate of this process")
    if "RETURN_CERTIFICATE" in reason:
        return UnauthenticatedError(f"{text}. The other end has shown no certificate")
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "UNEXPECTED_MESSAGE"):
        return UnavailableError(f"{text}. Only one end uses TLS; give certificates to all processes of the cluster")
    return UnavailableError(text)


def _text(error: OSError) -> str:
    return error.strerror or str(error)


def _warn(text: str) -> None:
    log = notices.listener("dist", WARNING)
    if log is not None:
        log.warning(text)
