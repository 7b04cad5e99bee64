"""Event files: a program's reports over time, for TensorBoard.

An event has a step, a time and contents: a summary, the graph, the start of a session. An event file is a record file
(`records`) of `Event` messages, the first of which contains the version of the format. Files are only appended to. A
folder may contain any number of them, one for each writer. A reader takes all of them together, in the order of their
names:

    events.out.tfevents.SECONDS.HOST.NUMBER

SECONDS (since 1970, ten digits) is the time at which the file was begun, and NUMBER (four digits) distinguishes files
that were begun in one second. HOST is "localhost" by default, so that files do not reveal the names of machines.

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
from headrace.files import local, records, system

if TYPE_CHECKING:
    from headrace.pb import Event

VERSION: Final = "brain.Event:2"
MOST: Final = 1 << 30  # bytes of an event
_MARK: Final = "tfevents"  # a file is an event file if its name contains this
_MOST_NAMES: Final = 10_000  # files begun in one second


def __getattr__(name: str) -> Any:
    if name not in ("Event", "SessionLog"):  # the messages load slowly, so they are loaded on first use
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from headrace import pb

    return getattr(pb, name)


class Writer:
    """New event file, to which events are appended. One thread at a time.

    Args:
      folder: The folder, which is made if it does not exist.
      suffix: The end of the file's name.
      host: The text in the name that stands for the machine.
      clock: Returns the seconds since 1970.

    Attributes:
      path: The path of the file.

    Raises:
      InvalidArgumentError: `suffix` or `host` contains a path separator or a zero byte.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: The file cannot be made.

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
        """Appends events (see `event`) and passes them to the system, so that readers see them.

        Raises:
          FailedPreconditionError: The file is closed.
          OpError: The system refused an operation.
        """
        if self._file is None:
            raise FailedPreconditionError(f"{self.path}: the writer is closed")
        frames = memoryview(b"".join(map(records.framed, serialized)))
        with local.as_ours(self.path):
            while frames:
                frames = frames[self._file.write(frames) :]

    def close(self) -> None:
        """Closes the file. Further calls have no effect."""
        file, self._file = self._file, None
        if file is not None:
            with local.as_ours(self.path):
                file.close()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _created(folder: str, begin: str, end: str) -> tuple[str, IO[bytes]]:
    """Makes a new file that no other writer uses; returns its path and the file.

    The file has no buffer, because a forked process would write the contents of a buffer a second time.
    """
    local.made_folder(folder)
    for n in range(_MOST_NAMES):
        path = os.path.join(folder, f"{begin}.{n:04d}{end}")
        with local.as_ours(path), contextlib.suppress(FileExistsError):
            return path, system.stream(path, "xb", buffering=0)
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
      wall_time: The time in seconds since 1970.
      step: The step of the program; None leaves it out, which reads as 0.
      summary: A serialized summary.
      session_log: A serialized session log.
      **fields: One of `file_version` (text), `graph_def`, `meta_graph_def` (serialized messages) and
        `tagged_run_metadata` (a dictionary of its fields).

    Returns:
      The serialized message.

    Raises:
      InvalidArgumentError: A message cannot be parsed.
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
    """Returns `serialized` if it is an event.

    Raises:
      InvalidArgumentError: It is not an event.
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
    """Reads the events of a file, one after the other.

    Args:
      path: The path of the file.
      torn: The treatment of an incomplete last event, which is usual while a writer runs or after it was killed:
        "error", or "end" to end before it, as TensorBoard does.

    Yields:
      `Event` messages; the first one contains the version.

    Raises:
      InvalidArgumentError: `torn` has another value.
      DataLossError: The file is damaged, or (with `torn="error"`) incomplete, at the position that was reached.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: The file cannot be opened.
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
    """Paths of the event files in a folder, oldest first.

    Raises:
      NotFoundError, FailedPreconditionError, PermissionDeniedError: The folder cannot be read.
    """
    name = local.text_of(folder)
    with local.as_ours(folder):
        return [e.path for e in sorted(system.scandir(name), key=lambda e: e.name) if _MARK in e.name and e.is_file()]
