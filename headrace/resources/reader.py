"""Readers: what goes through files one after the other and gives their pieces, the names of the files from a queue.

A reader serves one request at a time, in the order in which they come, and nobody who asks is kept waiting in a call.
What a request needs is done in two places:

    the queue          gives the next file's name, when it has one: a request to it, which may wait;
    a thread           opens the file and reads; it is the reader's own, and ends when there is nothing to do.

    ask ──► line ──► thread: piece? ──────────────► done(piece)
                        │  ▲
              no file   ▼  │ a name
                       queue

A request that is given up loses nothing: a name that the queue has handed over is the next file, a piece that has been
read goes to the next request.

Source: TensorFlow's `tf.ReaderBase`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace import dtypes, forking
from headrace.errors import (
    CancelledError,
    HeadraceInternalError,
    InvalidArgumentError,
    OpError,
    UnimplementedError,
)
from headrace.files.sources import Piece, Source
from headrace.resources.queue import Cancel, Done, Queue
from headrace.resources.values import shape_of
from headrace.resources.workers import Workers

Open: TypeAlias = Callable[[str], Source]


class _Request:
    """A read that has not finished.

    Attributes:
      queue: where names come from.
      most: how many pieces it takes; None: one, which is given alone and not as a list.
      cancel_wait: gives up the wait for a name, while there is one.
    """

    __slots__ = ("cancel_wait", "done", "most", "queue")

    def __init__(self, queue: Queue, most: int | None, done: Done) -> None:
        self.queue = queue
        self.most = most
        self.done = done
        self.cancel_wait: Cancel | None = None


class Reader:
    """See the module's text. Thread safe.

    Args:
      name: for messages.
      open: opens a file as a source of pieces.
      declaration: what ops that share this reader by its name must declare alike; the kind under "type".
      keeps_state: whether `state` is something from which one can go on; only readers whose files are one piece can.

    Attributes:
      records_produced: how many pieces it has given.
      work_units_completed: how many files are done with.
    """

    def __init__(self, name: str, open: Open, declaration: Mapping[str, object], keeps_state: bool = False) -> None:
        self.name = name
        self._open = open
        self._declaration = dict(declaration)
        self._keeps_state = keeps_state
        self._workers = Workers(f"headrace-reader-{name}")
        self._forked()
        self._begin()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`: who asked does so in the parent."""
        self._lock = threading.Lock()  # of the line
        self._files = threading.RLock()  # of the files and counters
        self._line: deque[_Request] = deque()
        self._is_busy = False
        self._is_released = False

    def _begin(self) -> None:
        self._source: Source | None = None
        self._work = ""  # the file that was begun last
        self._ahead: deque[str] = deque()  # files whose requests were given up
        self._kept: deque[Piece] = deque()  # pieces whose requests were given up
        self.records_produced = 0
        self._started = self.work_units_completed = 0

    # *** asking ***

    def read(self, queue: Queue, done: Done) -> Cancel:
        """Reads one piece; `done((key, value))`, or `done(error)`: OutOfRangeError if there are no more files.

        Returns:
          A function that gives the request up.
        """
        return self._ask(_Request(queue, None, done))

    def read_up_to(self, queue: Queue, most: int, done: Done) -> Cancel:
        """Reads up to `most` pieces: as many as there still are in the file; `done([(key, value), ...])`.

        Raises:
          InvalidArgumentError: `most` is not positive.
        """
        if most <= 0:
            raise InvalidArgumentError(f"num_records must be positive, got {most}")
        return self._ask(_Request(queue, most, done))

    def release(self) -> None:
        """Cancels everything that waits, and lets its file go."""
        with self._lock:
            self._is_released = True
            gone = list(self._line)
            self._line.clear()
        for request in gone:
            self._give_up(request)
        self._workers.submit(self._close)

    def _ask(self, request: _Request) -> Cancel:
        with self._lock:
            if self._is_released:
                raise CancelledError(f"{self.describe()} belongs to a session that was closed")
            self._line.append(request)
            is_idle, self._is_busy = not self._is_busy, True
        if is_idle:
            self._workers.submit(self._go_on)

        def cancel() -> bool:
            with self._lock:
                if request not in self._line:
                    return False
                self._line.remove(request)
            self._give_up(request)
            return True

        return cancel

    def _give_up(self, request: _Request) -> None:
        """Tells a request that was taken out of the line."""
        cancel_wait = request.cancel_wait
        if cancel_wait is not None:
            cancel_wait()
        request.done(CancelledError(f"Reading was cancelled: it waited on {self.describe()}"))

    # *** the thread ***

    def _go_on(self) -> None:
        """Serves the line until it is empty, or its first request has to wait for a name."""
        while True:
            with self._lock:
                if not self._line:
                    self._is_busy = False
                    return
                request = self._line[0]
            try:
                pieces = self._pieces(request)
                if pieces is None:
                    self._wait_for_name(request)
                    return
                result: Any = pieces[0] if request.most is None else pieces
            except OpError as e:
                pieces, result = [], e
            except Exception as e:
                pieces, result = [], HeadraceInternalError(f"{self.describe()} failed: {type(e).__name__}: {e}")
                result.__cause__ = e
            self._finish(request, pieces, result)

    def _pieces(self, request: _Request) -> list[Piece] | None:
        """What the request gets from the files that are there; None if the next file's name is needed."""
        with self._files:
            out: list[Piece] = []
            most = request.most or 1
            while self._kept and len(out) < most:
                out.append(self._kept.popleft())
            while len(out) < most:
                if self._source is None:
                    if out or not self._ahead:
                        break
                    self._begin_file(self._ahead.popleft())
                    continue
                try:
                    piece = self._source.next()
                except OpError:
                    if out:
                        break  # these first: the file will say so again
                    raise
                if piece is None:
                    self._end_file()
                else:
                    out.append(piece)
                    self.records_produced += 1
                    if self._keeps_state:
                        self._end_file()  # its file is one piece
            return out or None

    def _begin_file(self, name: str) -> None:
        self._source = self._open(name)
        self._work = name
        self._started += 1

    def _end_file(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()
        self.work_units_completed = self._started

    def _close(self) -> None:
        with self._files:
            source, self._source = self._source, None
            if source is not None:
                source.close()

    def _finish(self, request: _Request, pieces: list[Piece], result: Any) -> None:
        with self._lock:
            is_wanted = request in self._line
            if is_wanted:
                self._line.remove(request)
        if is_wanted:
            request.done(result)
        else:
            with self._files:
                self._kept.extendleft(reversed(pieces))

    def _wait_for_name(self, request: _Request) -> None:
        def got(result: Any) -> None:
            self._workers.submit(lambda: self._named(request, result))

        cancel = request.queue.dequeue(got)
        with self._lock:
            request.cancel_wait = cancel
            is_given_up = request not in self._line
        if is_given_up:
            cancel()

    def _named(self, request: _Request, result: Any) -> None:
        """Goes on with what the queue gave: a name, or an error."""
        request.cancel_wait = None
        try:
            if isinstance(result, BaseException):
                raise result
            name = _name_in(result, request.queue)
        except OpError as e:
            with self._files:
                self._work = ""  # as in TensorFlow: there is no file that was begun last
            self._finish(request, [], e)
        else:
            with self._files:
                self._ahead.append(name)
        self._go_on()

    # *** state ***

    def num_records_produced(self) -> int:
        """How many pieces it has given."""
        with self._files:
            return self.records_produced

    def num_work_units_completed(self) -> int:
        """How many files are done with."""
        with self._files:
            return self.work_units_completed

    def reset(self) -> None:
        """Makes it as it was when it was new. What is still in the queue stays there."""
        with self._files:
            self._close()
            self._begin()

    def state(self) -> bytes:
        """What `restore` goes on from.

        Raises:
          UnimplementedError: this kind of reader cannot.
        """
        self._check_state("SerializeState")
        with self._files:
            numbers = (self._started, self.work_units_completed, self.records_produced)
            return _message(numbers, os.fsencode(self._work))

    def restore(self, state: bytes) -> None:
        """Makes it as the one was that gave `state`.

        Raises:
          UnimplementedError: this kind of reader cannot.
          InvalidArgumentError: that is no state of a reader.
        """
        self._check_state("RestoreState")
        try:
            (started, finished, produced), work = _parsed(state)
        except ValueError as e:
            raise InvalidArgumentError(f"Could not parse state for {self.name}: {e}") from e
        if min(started, finished, produced) < 0:
            raise InvalidArgumentError(
                f"Unexpected negative value when restoring in {self.name}: {started} files begun, {finished} "
                f"completed, {produced} records produced"
            )
        if finished > started:
            raise InvalidArgumentError(
                f"Inconsistent work started vs. finished when restoring in {self.name}: {started} vs. {finished}"
            )
        with self._files:
            self._close()
            self._begin()
            self._started, self.work_units_completed, self.records_produced = started, finished, produced
            self._work = os.fsdecode(work)
            if finished < started:
                self._source = self._open(self._work)

    def _check_state(self, what: str) -> None:
        if not self._keeps_state:
            raise UnimplementedError(
                f"Reader {what}: {self.describe()} stands somewhere inside a file, which its state does not tell; "
                "readers of whole files and of names have one"
            )

    def check_same(self, declaration: Mapping[str, object]) -> None:
        """For an op that shares this reader by name.

        Raises:
          InvalidArgumentError: it declares another kind of reader.
        """
        for what, wanted in declaration.items():
            if self._declaration.get(what) != wanted:
                raise InvalidArgumentError(
                    f"Shared reader '{self.name}' has {what} {self._declaration.get(what)!r} but requested {what} was "
                    f"{wanted!r}"
                )

    def describe(self) -> str:
        """Its kind and name, as messages show them."""
        return f"{self._declaration.get('type', 'Reader')} '{self.name}'"

    def __repr__(self) -> str:
        return f"<{self.describe()}: {self.records_produced} pieces of {self._started} files>"


def _name_in(element: Any, queue: Queue) -> str:
    """The file name that an element of a queue is.

    Raises:
      InvalidArgumentError: it is something else.
    """
    if len(element) != 1:
        raise InvalidArgumentError(f"Expected single component queue, but {queue.describe()} has {len(element)}")
    if queue.component_types[0] is not dtypes.string:
        raise InvalidArgumentError(
            f"Expected queue with single string component, got {queue.component_types[0].name} from {queue.describe()}"
        )
    (value,) = element
    if shape_of(value) != () and getattr(value, "size", 0) != 1:
        raise InvalidArgumentError(f"Expected to dequeue a one-element string tensor, got shape {shape_of(value)}")
    return os.fsdecode(value.reshape(()).item())


# *** the state as a message: TensorFlow's ReaderBaseState, three numbers (fields 1 to 3) and a string (4) ***


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _message(numbers: tuple[int, ...], work: bytes) -> bytes:
    parts = [bytes([field << 3]) + _varint(n) for field, n in enumerate(numbers, 1) if n]
    if work:
        parts.append(b"\x22" + _varint(len(work)) + work)
    return b"".join(parts)


def _parsed(state: bytes) -> tuple[tuple[int, int, int], bytes]:
    numbers, work, at = [0, 0, 0], b"", 0

    def varint() -> int:
        nonlocal at
        out = 0
        for shift in range(0, 70, 7):
            if at >= len(state):
                raise ValueError("it ends in the middle of a number")
            byte = state[at]
            at += 1
            out |= (byte & 127) << shift
            if byte < 128:
                return out - (1 << 64) if out >= 1 << 63 else out
        raise ValueError("a number has more than 64 bits")

    while at < len(state):
        tag = varint()
        if tag in (8, 16, 24):
            numbers[(tag >> 3) - 1] = varint()
        elif tag == 34:
            n = varint()
            if not 0 <= n <= len(state) - at:
                raise ValueError("it ends in the middle of a name")
            work, at = state[at : at + n], at + n
        else:
            raise ValueError(f"it has a field of tag {tag}")
    return (numbers[0], numbers[1], numbers[2]), work
