"""Shared memory of two processes on one machine, for large frames of their connection.

A frame of many bytes passes the kernel twice on its way through a socket. If both processes are on one machine, the
sender copies it into memory that both have mapped instead, and only its place is sent. The receiver's arrays are views
of this memory, so it is read where it is.

| verb | from | meaning |
|---|---|---|
| OFFER | sender | a new segment: its size, and where to open it |
| ACCEPT | receiver | the segment is mapped |
| REFUSE | receiver | it cannot be: the processes are on different machines, or in different containers |
| USE | sender | a frame is in the segment |
| RELEASE | receiver | no array uses the frame any more, so the segment is free |
| WITHDRAW | sender | the segment is not needed any more |

**Segments.** A segment is a file without a name (`memfd_create`), which the system frees when both processes have
ended, for any reason. New memory is slow, because the system clears it page by page, so segments are used again and
again, and the first large frames of a connection go through the socket. The sender offers a segment with the second of
them, and withdraws segments that it has not used for a while.

**Finding each other.** The receiver opens the sender's file by `/proc`, where the system allows that to processes of
one user. The process number in the offer may mean another process in another container, so the segment ends with a
random number that the offer has as well.

**Safety.** The sender cannot shorten the file after it was mapped (it is sealed), so reading it cannot fail. The
receiver maps it read-only, and checks a frame in it like a frame from the socket.

This module does the bookkeeping of one connection; `dist.link` sends and receives the verbs.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np

from headrace import thresholds
from headrace.dist.codec import ACCEPT, NONCE_BYTES, OFFER, REFUSE, RELEASE, USE, WITHDRAW, Place
from headrace.dist.values import Buffer
from headrace.errors import DataLossError

MOST_SEGMENTS: Final = thresholds.SHARED_SEGMENTS  # of one connection and direction
UNIT: Final = thresholds.SHARED_FRAME  # sizes of segments are multiples of this

#: Whether this system has files without names that can be sealed.
IS_AVAILABLE: Final = sys.platform == "linux" and hasattr(os, "memfd_create")


class _Segment:
    """A segment of the sender.

    Attributes:
      number: its number.
      size: bytes for a frame.
      memory: these bytes.
      is_free: whether a frame may be written.
      is_pending: whether it has neither been accepted nor refused.
      used: the time of its last use.
    """

    __slots__ = ("fd", "is_free", "is_pending", "memory", "nonce", "number", "size", "used")

    def __init__(self, number: int, size: int, now: float) -> None:
        import fcntl  # not on all systems

        self.number = number
        self.size = size
        self.is_free, self.is_pending = False, True
        self.used = now
        self.nonce = os.urandom(NONCE_BYTES)
        self.fd = os.memfd_create("headrace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size + NONCE_BYTES)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            whole = np.frombuffer(mmap.mmap(self.fd, size + NONCE_BYTES), np.uint8)
        except BaseException:
            os.close(self.fd)
            raise
        whole[size:] = np.frombuffer(self.nonce, np.uint8)
        self.memory = whole[:size]

    def close(self) -> None:
        """Closes the file; the memory lives as long as it is mapped anywhere."""
        os.close(self.fd)


class Outgoing:
    """Segments into which one end of a connection writes. Thread-safe.

    Args:
      limit: bytes of all segments together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._segments: dict[int, _Segment] = {}
        self._numbers = 0
        self._large = 0  # frames that could have used a segment
        self._is_refused = False

    def place(self, buffers: Sequence[Buffer], size: int, now: float) -> list[Place]:
        """Writes a frame into a free segment.

        Args:
          buffers: the bytes of the frame.
          size: their number.
          now: the time in seconds.

        Returns:
          The messages to send: `USE`, or others, after which the frame itself follows.
        """
        with self._lock:
            if self._is_refused:
                return []
            self._large += 1
            fitting = [s for s in self._segments.values() if s.is_free and s.size >= size]
            if not fitting:
                return self._offer(size, now) if self._large > 1 else []
            segment = min(fitting, key=lambda s: s.size)
            segment.is_free, segment.used = False, now
        at = 0
        for data in buffers:
            n = len(data)
            segment.memory[at : at + n] = np.frombuffer(data, np.uint8)
            at += n
        return [Place(USE, segment.number, size)]

    def _offer(self, size: int, now: float) -> list[Place]:
        """Makes a segment for `size` bytes if there is room. The lock is held."""
        if any(s.is_pending and s.size >= size for s in self._segments.values()):
            return []
        size = -(-size // UNIT) * UNIT
        out: list[Place] = []
        if self._held() + size > self._limit or len(self._segments) >= MOST_SEGMENTS:
            out = self._withdraw([s for s in self._segments.values() if s.is_free])  # they are too small
        if self._held() + size > self._limit or len(self._segments) >= MOST_SEGMENTS:
            return out
        self._numbers += 1
        try:
            segment = self._segments[self._numbers] = _Segment(self._numbers, size, now)
        except OSError:  # the system has no memory or no descriptors left: the socket remains
            self._is_refused = True
            return out
        return [*out, Place(OFFER, segment.number, segment.size, segment.fd, os.getpid(), segment.nonce)]

    def _held(self) -> int:
        return sum(s.size for s in self._segments.values())

    def _withdraw(self, segments: Sequence[_Segment]) -> list[Place]:
        for s in segments:
            del self._segments[s.number]
            s.close()
        return [Place(WITHDRAW, s.number) for s in segments]

    def hear(self, place: Place) -> None:
        """Handles an answer of the other end: `ACCEPT`, `REFUSE` or `RELEASE`."""
        with self._lock:
            segment = self._segments.get(place.number)
            if place.verb == REFUSE:
                self._is_refused = True
                self._withdraw(list(self._segments.values()))
            elif segment is not None:
                segment.is_free, segment.is_pending = True, False

    def trim(self, now: float) -> list[Place]:
        """Withdraws segments that were not used for a while; returns the messages to send."""
        with self._lock:
            idle = thresholds.SHARED_MEMORY_IDLE
            return self._withdraw([s for s in self._segments.values() if s.is_free and now - s.used > idle])

    def close(self) -> None:
        """Closes all segments."""
        with self._lock:
            self._is_refused = True
            self._withdraw(list(self._segments.values()))


class Incoming:
    """Segments from which one end of a connection reads.

    Args:
      limit: bytes of all segments together.

    Attributes:
      released: numbers of segments whose frames no array uses any more. Any thread may append to it, at any time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._maps: dict[int, mmap.mmap] = {}
        self._used: dict[int, weakref.ref[np.ndarray]] = {}
        self.released: deque[int] = deque()

    def hear(self, place: Place) -> list[Place]:
        """Handles `OFFER` or `WITHDRAW`; returns the answer."""
        if place.verb == WITHDRAW:
            self._maps.pop(place.number, None)
            return []
        held = sum(len(m) - NONCE_BYTES for m in self._maps.values())
        is_new = place.number not in self._maps and len(self._maps) < MOST_SEGMENTS
        if not is_new or not 0 < place.size <= self._limit or held + place.size > self._limit:
            return [Place(REFUSE, place.number)]
        found = _mapped(place)
        if found is None:
            return [Place(REFUSE, place.number)]
        self._maps[place.number] = found
        return [Place(ACCEPT, place.number)]

    def frame(self, place: Place) -> memoryview:
        """Returns the frame that `USE` names.

        Raises:
          DataLossError: there is no such frame.
        """
        memory, number = self._maps.get(place.number), place.number
        if memory is None or number in self._used or not 0 < place.size <= len(memory) - NONCE_BYTES:
            raise DataLossError(f"segment {number} of the shared memory has no new frame of {place.size} bytes")
        base = np.frombuffer(memory, np.uint8, place.size)
        released = self.released
        self._used[number] = weakref.ref(base, lambda _: released.append(number))
        return base.data

    def take_released(self) -> list[Place]:
        """Returns the messages to send about frames that are no longer used."""
        out = []
        while self.released:
            number = self.released.popleft()
            self._used.pop(number, None)
            out.append(Place(RELEASE, number))
        return out


def _mapped(place: Place) -> mmap.mmap | None:
    """Maps a segment of another process; None if the offer is not true."""
    import fcntl  # not on all systems

    path = f"/proc/{place.pid}/fd/{place.fd}"
    size = place.size + NONCE_BYTES
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening others may wait
            return None
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK or os.fstat(fd).st_size != size:
                return None
            memory = mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        finally:
            os.close(fd)
    except (OSError, ValueError, OverflowError):  # another machine, container or user
        return None
    return memory if memory[place.size :] == place.nonce else None
