"""Readers: sequential reads of files whose names come from a queue.

A reader serves one request at a time, in the order of the requests, and no call waits. A request is served in two
places:

    the queue          provides the name of the next file, by a request to the queue, which may wait;
    a thread           opens and reads the file; it belongs to the reader, and ends without further requests.

    request ──► line ──► thread: piece? ──────────► done(piece)
                            │  ▲
                  no file   ▼  │ a name
                           queue

A cancelled request loses nothing: a name that the queue has already provided is the next file, and a piece that was
already read goes to the next request.

Source: TensorFlow's `tf.ReaderBase`.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace import dtypes, file_access, forking, varints
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
    """Unfinished read.

    Attributes:
      queue: The queue of file names.
      most: The largest number of pieces; None for one piece, which is returned without a list.
      done: Receives the result, or the exception.
      cancel_wait: Cancels the wait for a name, during such a wait.
      access: The files that the requesting kernel may use; None for all.
    """

    __slots__ = ("access", "cancel_wait", "done", "most", "queue")

    def __init__(self, queue: Queue, most: int | None, done: Done) -> None:
        self.queue = queue
        self.most = most
        self.done = done
        self.cancel_wait: Cancel | None = None
        self.access = file_access.current()


class Reader:
    """Reader of files; see the module's text. Thread safe.

    Args:
      name: The name, for messages.
      open: Opens a file as a source of pieces.
      declaration: The properties that ops that share this reader must declare equally; the kind is under "type".
      keeps_state: Whether `state` is supported, which requires that each file is one piece.

    Attributes:
      name: The name, for messages.
      records_produced: The number of pieces that were read.
      work_units_completed: The number of files that were finished.
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
        """Replaces the locks after a fork and drops requests of the parent; see `forking`."""
        self._lock = threading.Lock()  # protects the line
        self._files = threading.RLock()  # protects the files and counters
        self._line: deque[_Request] = deque()
        self._is_busy = False
        self._is_released = False

    def _begin(self) -> None:
        self._source: Source | None = None
        self._work = ""  # the last file that was begun
        self._ahead: deque[str] = deque()  # files of cancelled requests
        self._unread: deque[Piece] = deque()  # pieces of cancelled requests
        self.records_produced = 0
        self._started = self.work_units_completed = 0

    # *** requests ***

    def read(self, queue: Queue, done: Done) -> Cancel:
        """Reads one piece.

        Args:
          queue: The queue of file names.
          done: Receives `(key, value)`, or an error: OutOfRangeError if there are no more files.

        Returns:
          A function that cancels the request.
        """
        return self._ask(_Request(queue, None, done))

    def read_up_to(self, queue: Queue, most: int, done: Done) -> Cancel:
        """Reads up to `most` pieces, as many as the current file still has.

        Args:
          queue: The queue of file names.
          most: The largest number of pieces.
          done: Receives a list of `(key, value)`, or an error.

        Returns:
          A function that cancels the request.

        Raises:
          InvalidArgumentError: `most` is not positive.
        """
        if most <= 0:
            raise InvalidArgumentError(f"num_records must be positive, got {most}")
        return self._ask(_Request(queue, most, done))

    def release(self) -> None:
        """Cancels all waiting requests and closes the current file."""
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
        """Fails a request that was removed from the line."""
        cancel_wait = request.cancel_wait
        if cancel_wait is not None:
            cancel_wait()
        request.done(CancelledError(f"Reading was cancelled: it waited on {self.describe()}"))

    # *** the thread ***

    def _go_on(self) -> None:
        """Serves the line until it is empty or its first request must wait."""
        while True:
            with self._lock:
                if not self._line:
                    self._is_busy = False
                    return
                request = self._line[0]
            try:
                with file_access.limited(request.access):  # the line may have requests of several clients
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
        """Pieces for a request from the current files; None if another file is needed."""
        with self._files:
            out: list[Piece] = []
            most = request.most or 1
            while self._unread and len(out) < most:
                out.append(self._unread.popleft())
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
                        break  # these pieces first; the next read of the file raises the error again
                    raise
                if piece is None:
                    self._end_file()
                else:
                    out.append(piece)
                    self.records_produced += 1
                    if self._keeps_state:
                        self._end_file()  # the file is one piece
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
                self._unread.extendleft(reversed(pieces))

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
        """Continues with a file name or an error from the queue."""
        request.cancel_wait = None
        try:
            if isinstance(result, BaseException):
                raise result
            name = _name_in(result, request.queue)
        except OpError as e:
            with self._files:
                self._work = ""  # as in TensorFlow: no file is the last one
            self._finish(request, [], e)
        else:
            with self._files:
                self._ahead.append(name)
        self._go_on()

    # *** state ***

    def num_records_produced(self) -> int:
        """Number of pieces that were read."""
        with self._files:
            return self.records_produced

    def num_work_units_completed(self) -> int:
        """Number of files that were finished."""
        with self._files:
            return self.work_units_completed

    def reset(self) -> None:
        """Resets the reader to its initial state. The queue is unchanged."""
        with self._files:
            self._close()
            self._begin()

    def state(self) -> bytes:
        """The state for `restore`.

        Raises:
          UnimplementedError: This kind of reader does not support it.
        """
        self._check_state("SerializeState")
        with self._files:
            numbers = (self._started, self.work_units_completed, self.records_produced)
            return _message(numbers, os.fsencode(self._work))

    def restore(self, state: bytes) -> None:
        """Restores an earlier `state`.

        Raises:
          UnimplementedError: This kind of reader does not support it.
          InvalidArgumentError: The bytes are not a valid state.
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
        """Checks an op that shares this reader by name.

        Raises:
          InvalidArgumentError: It declares another kind of reader.
        """
        for what, wanted in declaration.items():
            if self._declaration.get(what) != wanted:
                raise InvalidArgumentError(
                    f"Shared reader '{self.name}' has {what} {self._declaration.get(what)!r} but requested {what} was "
                    f"{wanted!r}"
                )

    def describe(self) -> str:
        """Kind and name of the reader, for messages."""
        return f"{self._declaration.get('type', 'Reader')} '{self.name}'"

    def __repr__(self) -> str:
        return f"<{self.describe()}: {self.records_produced} pieces of {self._started} files>"


def _name_in(element: Any, queue: Queue) -> str:
    """The file name in an element of a queue.

    Raises:
      InvalidArgumentError: The element is not one string.
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


def _message(numbers: tuple[int, ...], work: bytes) -> bytes:
    parts = [bytes([field << 3]) + varints.encode(n) for field, n in enumerate(numbers, 1) if n]
    if work:
        parts.append(b"\x22" + varints.encode(len(work)) + work)
    return b"".join(parts)


def _parsed(state: bytes) -> tuple[tuple[int, int, int], bytes]:
    numbers, work, at = [0, 0, 0], b"", 0

    def varint() -> int:
        nonlocal at
        out, at = varints.decode(state, at, len(state))
        return out - (1 << 64) if out >= 1 << 63 else out

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
