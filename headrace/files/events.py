"""Event files: what a program tells of itself over time, for TensorBoard.

An event is something that happened at a step and a time: a summary, the graph, the start of a session. A file of them
is a record file (`records`) of `Event` messages, of which the first says which version of the format it is. Files are
only ever appended to; a folder may hold any number of them, one for each time that somebody began to write, and whoever
reads it takes all of them together, in the order of their names:

    events.out.tfevents.SECONDS.HOST.NUMBER

SECONDS (since 1970, ten digits) is when the file was begun, and NUMBER (four digits) tells apart those begun in one
second. In place of HOST stands "localhost", for nobody needs to know the names of our machines from a file.

Source: TensorFlow's event files.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final

from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from headrace.files import local, records

if TYPE_CHECKING:
    from headrace.pb import Event

VERSION: Final = "brain.Event:2"
MOST: Final = 1 << 30  # bytes of an event
_MARK: Final = "tfevents"  # a file is one of events if this is in its name
_MOST_NAMES: Final = 10_000  # files begun in one second


def __getattr__(name: str) -> Any:
    if name not in ("Event", "SessionLog"):  # the messages, which take long to load: on first use
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headrace import pb

    return getattr(pb, name)


class Writer:
    """A new event file, to which events are appended. One thread at a time.

    Args:
      folder: where; it is made if it is not there.
      suffix: the end of the file's name.
      host: what stands for the machine's name.
      clock: gives seconds since 1970.

    Attributes:
      path: of the file.

    Raises:
      InvalidArgumentError: `suffix` or `host` would lead out of the folder.
      NotFoundError, FailedPreconditionError, PermissionDeniedError, ...: it cannot be made.

    Example:
      >>> import tempfile
      >>> from headrace.files import summaries
      >>> with Writer(tempfile.mkdtemp()) as out:
      ...     out.write(event(2.5, 7, summary=summaries.scalars([b"loss"], [0.5])))
      >>> [(e.step, e.summary.value[0].tag) for e in read(out.path) if e.HasField("summary")]
      [(7, 'loss')]
    """

    def __init__(
        self, folder: local.Path, suffix: str = "", host: str = "localhost", clock: Callable[[], float] = time.time
    ) -> None:
        for what, given in (("suffix", suffix), ("host", host)):
            if os.sep in given or "\0" in given:
                raise InvalidArgumentError(f"{what}={given!r} must be part of a file's name")
        now = clock()
        self._file: IO[bytes] | None
        self.path, self._file = _created(local.text_of(folder), f"events.out.{_MARK}.{int(now):010d}.{host}", suffix)
        try:
            self.write(event(now, file_version=VERSION))
        except BaseException:
            self.close()
            raise

    def write(self, *serialized: bytes) -> None:
        """Appends events (see `event`) and hands them to the system, so that readers see them.

        Raises:
          FailedPreconditionError: the file is closed.
          UnknownError, ...: the system refuses.
        """
        if self._file is None:
            raise FailedPreconditionError(f"{self.path}: the writer is closed")
        frames = memoryview(b"".join(map(records.framed, serialized)))
        with local.as_ours(self.path):
            while frames:
                frames = frames[self._file.write(frames) :]

    def close(self) -> None:
        """Ends the file. May be called twice."""
        file, self._file = self._file, None
        if file is not None:
            with local.as_ours(self.path):
                file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _created(folder: str, begin: str, end: str) -> tuple[str, IO[bytes]]:
    """A new file in the folder, which nobody else writes to, and its path.

    It has no buffer: a process that is forked off while there is something in it would write that again.
    """
    local.made_folder(folder)
    for n in range(_MOST_NAMES):
        path = os.path.join(folder, f"{begin}.{n:04d}{end}")
        with local.as_ours(path), contextlib.suppress(FileExistsError):
            return path, open(path, "xb", buffering=0)
    raise ResourceExhaustedError(f"{folder} has {_MOST_NAMES} event files begun in one second; reuse a FileWriter")


def event(
    wall_time: float,
    step: int | None = None,
    *,
    summary: bytes | None = None,
    session_log: bytes | None = None,
    **fields: Any,
) -> bytes:
    """A serialized event.

    Args:
      wall_time: seconds since 1970.
      step: the step of the program; None: none is told, which reads as 0.
      summary, session_log: what happened, as the serialized message.
      **fields: or one of `file_version` (text), `graph_def`, `meta_graph_def` (serialized messages) and
        `tagged_run_metadata` (its own fields as a dictionary).

    Raises:
      InvalidArgumentError: a message cannot be parsed.
    """
    from headrace import pb

    made = pb.Event(wall_time=wall_time, **fields)
    if step is not None:
        made.step = step
    for name, data in (("summary", summary), ("session_log", session_log)):
        if data is not None:
            _parse(getattr(made, name), data)
            getattr(made, name).SetInParent()
    return _bytes(made)


def checked(serialized: bytes) -> bytes:
    """`serialized`, if it is an event.

    Raises:
      InvalidArgumentError: it is none.
    """
    from headrace import pb

    _parse(pb.Event(), serialized)
    return serialized


def _parse(into: Any, data: bytes) -> None:
    from google.protobuf import message as protobuf

    try:
        into.ParseFromString(data)
    except protobuf.DecodeError as e:
        raise InvalidArgumentError(f"{len(data)} bytes that are no {into.DESCRIPTOR.name} message: {e}") from None


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def read(path: local.Path, torn: str = "error") -> Iterator[Event]:
    """The events of a file, one after the other.

    Args:
      path: of the file.
      torn: what becomes of a last event of which the end is missing, as is usual while somebody writes, or has been
        killed: "error", or "end": the file ends before it, as TensorBoard takes it.

    Yields:
      `Event` messages; the first one says the version.

    Raises:
      InvalidArgumentError: `torn` is something else.
      DataLossError: the file is damaged, or (`torn="error"`) torn, once that place is reached.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: it cannot be opened.
    """
    from google.protobuf import message as protobuf

    from headrace import pb

    if torn not in ("error", "end"):
        raise InvalidArgumentError(f'torn must be "error" or "end", got {torn!r}')
    file = records.File(path, most=MOST)
    try:
        while True:
            at = file.offset
            try:
                data = file.next()
            except DataLossError as e:
                if torn == "end" and f": truncated record at {at}:" in str(e):
                    return
                raise
            if data is None:
                return
            try:
                yield pb.Event.FromString(data)
            except protobuf.DecodeError as e:
                raise DataLossError(f"{local.text_of(path)}: the record at {at} is no Event message: {e}") from None
    finally:
        file.close()


def files_in(folder: local.Path) -> list[str]:
    """The paths of the event files in a folder, in the order in which they were begun.

    Raises:
      NotFoundError, FailedPreconditionError, PermissionDeniedError: it cannot be read.
    """
    name = local.text_of(folder)
    with local.as_ours(folder):
        return [e.path for e in sorted(os.scandir(name), key=lambda e: e.name) if _MARK in e.name and e.is_file()]
