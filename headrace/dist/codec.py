"""Frames of a connection between two processes: messages, tokens and pings.

    socket.sendmsg(encode_token(step, edge, path, index, value, None))

    decoder = Decoder()
    for frame in decoder.received(socket.recv_into(decoder.buffer())):
        ...                            # a `Token`, a `Control`, a `Ping` or a `Pong`

A frame begins with a head of 16 bytes. All numbers are little-endian.

| field | type | content |
|---|---|---|
| magic | 2 bytes | "hr" |
| version | u8 | `VERSION` |
| kind | u8 | the row of the next table |
| number | u32 | see the next table |
| length | u64 | bytes of the frame, head included |

| kind | number | after the head |
|---|---|---|
| CONTROL | length of the message | the message (`dist.messages`), then values (`dist.values`) up to the end |
| LIVE | edge of the token | step (u64), index (u64), length of the path (u32), path, value |
| DEAD | edge of the token | step, index, length of the path, path, cause (msgpack) |
| PING | 0 | time of the sender in ns (u64), then bytes without a meaning |
| PONG | 0 | the number of the ping (u64), time of the sender in ns (u64) |
| PLACE | segment | about shared memory (`Place`): verb (u32), fd (u32), pid (u64), size (u64), nonce |

A path is a sequence of frames of the step, outermost first: the index of the parent iteration (u64), the length of the
name (u16), and the name in UTF-8. A connection carries the same paths again and again, so both ends keep them.

**Buffers.** Frames are received into one buffer of `SHARED` bytes, and each is copied out of it. The rest of a frame of
more than `SMALL` bytes is received into a buffer of its own, which the arrays of the frame then share. So a large
tensor is not copied after it was received, and a small one does not keep the bytes of other frames alive.

The bytes are hostile input: nothing is allocated for a frame above the limit, and each content is checked by its codec.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from headrace import thresholds
from headrace.dist import messages
from headrace.dist.messages import AnyMessage
from headrace.dist.values import ALIGNMENT, Buffer, Reader, Writer, read, read_last, small_bytes, write
from headrace.errors import DataLossError, InvalidArgumentError, ResourceExhaustedError
from headrace.execute.records import DeadCause, Path
from headrace.execute.rendezvous import show_tag
from headrace.records import record

VERSION: Final = 1  # of the layout
SHARED: Final = thresholds.RECEIVED_TOGETHER  # bytes of the buffer for small frames
SMALL: Final = thresholds.SMALL_FRAME  # bytes of the longest frame that is always received into the shared buffer
UNKNOWN_PEER: Final = 1 << 16  # bytes of the longest frame before the handshake has ended
MOST_LEVELS: Final = 800  # of a path, which is a nested tuple; Python compares those of less than 1000 levels

_MEMOIZED_PATHS: Final = thresholds.MEMOIZED_PATHS
_MEMOIZED_BYTES: Final = thresholds.MEMOIZED_PATH_BYTES  # of the encoded path; longer ones are encoded each time


def _tag(kind: int) -> int:
    """The first four bytes of a frame as a number."""
    return int.from_bytes(b"hr" + bytes((VERSION, kind)), "little")


_CONTROL, _LIVE, _DEAD, _PING, _PONG, _PLACE = map(_tag, range(6))

OFFER, ACCEPT, REFUSE, USE, RELEASE, WITHDRAW = range(6)  # verbs about shared memory (`dist.shared_memory`)
NONCE_BYTES: Final = 16  # at the end of a segment of shared memory

_HEAD: Final = struct.Struct("<IIQ")
_TOKEN: Final = struct.Struct("<IIQQQI")
_PING_FRAME: Final = struct.Struct("<IIQQ")
_PONG_FRAME: Final = struct.Struct("<IIQQQ")
_PLACE_FRAME: Final = struct.Struct(f"<IIQIIQQ{NONCE_BYTES}s")
_LENGTH: Final = struct.Struct("<Q")
_LENGTH_AT: Final = 8  # position of the length in a frame
_LEVEL: Final = struct.Struct("<QH")

_cause_bytes: Final = msgspec.msgpack.Encoder()
_causes: Final = msgspec.msgpack.Decoder(DeadCause)
_path_bytes: Final[dict[Path, bytes]] = {}


class Token:
    """A token of a step.

    Attributes:
      step: the number of the step.
      edge: the number of the edge in the program.
      path: the path of the frame in which the edge fired.
      index: the number of the iteration.
      value: the value; None for a dead token.
      cause: the cause of deadness; None if the token is alive.
    """

    # no dataclass: a frozen one takes three times as long to make
    __slots__ = ("cause", "edge", "index", "path", "step", "value")

    def __init__(self, step: int, edge: int, path: Path, index: int, value: Any, cause: DeadCause | None) -> None:
        self.step = step
        self.edge = edge
        self.path = path
        self.index = index
        self.value = value
        self.cause = cause

    def __repr__(self) -> str:
        dead = "" if self.cause is None else ", dead"
        return f"Token(step {self.step}, edge {self.edge}, {show_tag(self.path, self.index)!r}{dead})"


@record(slots=True)  # `frozen` would take longer to make it
class Control:
    """A message with the values that follow it.

    Attributes:
      message: the message.
      values: the values, in order.
    """

    message: AnyMessage
    values: tuple[Any, ...] = ()


@record(frozen=True, slots=True)
class Ping:
    """A request for a `Pong`.

    Attributes:
      sent: the time of the sender in ns.
    """

    sent: int


@record(frozen=True, slots=True)
class Pong:
    """The answer to a `Ping`.

    Attributes:
      sent: the number of the ping.
      time: the time of the process that answers, in ns.
    """

    sent: int
    time: int


@record(slots=True)
class Place:
    """A message about shared memory, see `dist.shared_memory`.

    Attributes:
      verb: `OFFER`, `ACCEPT`, `REFUSE`, `USE`, `RELEASE` or `WITHDRAW`.
      number: the number of the segment, among those of its sender.
      size: bytes of the segment (`OFFER`), or of the frame in it (`USE`).
      fd: the sender's file descriptor (`OFFER`).
      pid: the process number of the sender (`OFFER`).
      nonce: the bytes at the end of the segment (`OFFER`).
    """

    verb: int
    number: int
    size: int = 0
    fd: int = 0
    pid: int = 0
    nonce: bytes = bytes(NONCE_BYTES)


Frame: TypeAlias = Token | Control | Ping | Pong | Place


# *** encoding ***


def encode_token(
    step: int, edge: int, path: Path, index: int, value: Any, cause: DeadCause | None = None
) -> list[Buffer]:
    """Returns the buffers of a token.

    Args:
      step: the number of the step, below 2**63.
      edge: the number of the edge in the program, below 2**32.
      path: the path of the frame in which the edge fired.
      index: the number of the iteration, below 2**63.
      value: the value; it is not sent for a dead token.
      cause: the cause of deadness; None if the token is alive.

    Raises:
      InvalidArgumentError: the value contains an object of this process, or the path is too long.

    Example:
      >>> encode_token(7, 0, (), 0, np.float32(1.5))[0][-6:]
      b'\\x01\\x01\\x00\\x00\\xc0?'
    """
    try:
        where = _path_bytes[path]
    except KeyError:
        where = _encode_path(path)
    n = len(where)
    if cause is not None:
        data: bytes | None = _cause_bytes.encode(cause)
        tag = _DEAD
    else:
        data = small_bytes(value, _TOKEN.size + n)
        tag = _LIVE
    if data is not None:
        head = _TOKEN.pack(tag, edge, _TOKEN.size + n + len(data), step, index, n)
        return [b"".join((head, where, data))]
    out = Writer(_TOKEN.pack(tag, edge, 0, step, index, n) + where)
    write(value, out)
    return _finished(out)


def encode_control(message: AnyMessage, values: Iterable[Any] = ()) -> list[Buffer]:
    """Returns the buffers of a message with values.

    Raises:
      InvalidArgumentError: a value contains an object of this process, or the message has 4 GiB or more.
    """
    data = messages.encode(message)
    if len(data) >> 32:
        raise InvalidArgumentError(f"a message of {len(data)} bytes ({type(message).__name__}) cannot be sent")
    out = Writer(_HEAD.pack(_CONTROL, len(data), 0))
    out.put_whole(data)
    for value in values:
        write(value, out)
    return _finished(out)


def encode_ping(sent: int, more: int = 0) -> list[Buffer]:
    """Returns the buffers of a ping.

    Args:
      sent: the time of this process in ns.
      more: bytes without a meaning that follow.
    """
    head = _PING_FRAME.pack(_PING, 0, _PING_FRAME.size + more, sent)
    return [head, bytes(more)] if more else [head]


def encode_pong(sent: int, time: int) -> list[Buffer]:
    """Returns the buffers of the answer to a ping.

    Args:
      sent: the number of the ping.
      time: the time of this process in ns.
    """
    return [_PONG_FRAME.pack(_PONG, 0, _PONG_FRAME.size, sent, time)]


def encode_place(place: Place) -> list[Buffer]:
    """Returns the buffers of a message about shared memory."""
    p = place
    return [_PLACE_FRAME.pack(_PLACE, p.number, _PLACE_FRAME.size, p.verb, p.fd, p.pid, p.size, p.nonce)]


def _finished(out: Writer) -> list[Buffer]:
    """Returns the buffers of a frame, with its length in the head."""
    buffers = out.buffers()
    _LENGTH.pack_into(buffers[0], _LENGTH_AT, out.size)
    return buffers


def _encode_path(path: Path) -> bytes:
    levels: list[bytes] = []
    rest = path
    while rest:
        rest, index, name = rest
        text = name.encode()
        if len(text) >> 16 or len(levels) == MOST_LEVELS:
            raise InvalidArgumentError(
                f"a token in {name[:100]!r} cannot be sent to another task: a frame may have a name of {1 << 16} bytes "
                f"and {MOST_LEVELS} frames around it. Place the calls on one task"
            )
        levels.append(_LEVEL.pack(index, len(text)) + text)
    data = b"".join(reversed(levels))
    if len(data) <= _MEMOIZED_BYTES:
        if len(_path_bytes) >= _MEMOIZED_PATHS:
            _path_bytes.clear()
        _path_bytes[path] = data
    return data


# *** decoding ***


class Decoder:
    """Decodes the frames of a connection. It reads no socket.

    Args:
      limit: the bytes of the longest frame.

    Attributes:
      limit: the bytes of the longest frame. It may be changed between two frames.

    Example:
      >>> decoder = Decoder()
      >>> (data,) = encode_ping(3)
      >>> decoder.buffer()[:len(data)] = data
      >>> list(decoder.received(len(data)))
      [Ping(sent=3)]
    """

    __slots__ = ("_end", "_large", "_paths", "_shared", "_start", "limit")

    def __init__(self, limit: int = UNKNOWN_PEER) -> None:
        self.limit = limit
        self._shared = memoryview(bytearray(SHARED))
        self._start = 0  # of the first frame in the shared buffer that was not decoded
        self._large: memoryview | None = None  # the frame that is received into a buffer of its own
        self._end = 0  # of the bytes that were received into `_large`, else into the shared buffer
        self._paths: dict[bytes, Path] = {}

    def buffer(self) -> memoryview:
        """Returns the memory for the next bytes of the connection, which is not empty."""
        if self._large is not None:
            return self._large[self._end :]
        if self._end > SHARED - SMALL:
            n = self._end - self._start
            self._shared[:n] = self._shared[self._start : self._end]
            self._start, self._end = 0, n
        return self._shared[self._end :]

    def received(self, n: int) -> Iterator[Frame]:
        """Yields the frames that are complete after `n` bytes were received into `buffer()`.

        All frames must be taken before the next call of `buffer`. A frame is decoded when it is taken, so a change of
        `limit` applies to the frames behind the current one.

        Raises:
          DataLossError: the bytes are no frames, or a frame is above the limit. The connection cannot be used again.
          ResourceExhaustedError: there is no memory for a frame.
        """
        self._end += n
        large = self._large
        if large is not None:
            if self._end < len(large):
                return
            self._large, self._end = None, 0
            yield self._decoded(_HEAD.unpack_from(large)[0], large.toreadonly())
        while (available := self._end - self._start) >= _HEAD.size:
            start = self._start
            tag, _, length = _HEAD.unpack_from(self._shared, start)
            if tag not in _CONTENTS:
                raise _no_frame(tag)
            if length > self.limit or length < _HEAD.size:
                raise DataLossError(f"a frame states a length of {length} bytes; at most {self.limit} are allowed")
            if available < length:
                if length > SMALL:
                    self._large = _aligned(length)
                    self._large[:available] = self._shared[start : self._end]
                    self._start, self._end = 0, available
                return
            self._start = start + length
            if self._start == self._end:
                self._start = self._end = 0
            yield self._decoded(tag, bytes(self._shared[start : start + length]))

    def content(self, frame: memoryview) -> Frame:
        """Decodes a token or message that did not arrive in the connection itself (`dist.shared_memory`).

        Raises:
          DataLossError: the bytes are damaged, or another frame.
        """
        tag, _, length = _HEAD.unpack_from(frame) if len(frame) >= _HEAD.size else (0, 0, 0)
        if tag not in (_CONTROL, _LIVE, _DEAD) or length != len(frame):
            raise DataLossError(f"{len(frame)} bytes of shared memory are no token or message")
        return self._decoded(tag, frame)

    def _decoded(self, tag: int, frame: bytes | memoryview) -> Frame:
        try:
            return _CONTENTS[tag](self, frame)
        except (struct.error, UnicodeDecodeError) as e:  # numbers beyond the end, damaged texts (also from msgspec)
            raise DataLossError(f"a frame of {len(frame)} bytes is damaged: {e}") from e

    def _token(self, frame: bytes | memoryview) -> Token:
        tag, edge, _, step, index, n = _TOKEN.unpack_from(frame)
        at = _TOKEN.size + n
        if at > len(frame) or (step | index) >> 63:
            raise DataLossError(f"a token of step {step} and iteration {index} states a path of {n} bytes")
        where = bytes(frame[_TOKEN.size : at])
        try:
            path = self._paths[where]
        except KeyError:
            path = self._path(where)
        if tag == _DEAD:
            return Token(step, edge, path, index, None, _cause(frame[at:]))
        return Token(step, edge, path, index, read_last(frame, at), None)

    def _path(self, data: bytes) -> Path:
        path: Path = ()
        at, levels = 0, 0
        while at < len(data):
            index, n = _LEVEL.unpack_from(data, at)
            end = at + _LEVEL.size + n
            levels += 1
            if end > len(data) or index >> 63 or levels > MOST_LEVELS:
                raise DataLossError("the path of a token is damaged")
            path = (path, index, data[at + _LEVEL.size : end].decode())
            at = end
        if len(data) <= _MEMOIZED_BYTES:
            if len(self._paths) >= _MEMOIZED_PATHS:
                self._paths.clear()
            self._paths[data] = path
        return path

    def _control(self, frame: bytes | memoryview) -> Control:
        _, n, _ = _HEAD.unpack_from(frame)
        source = Reader(frame, _HEAD.size + n)
        if source.left < 0:
            raise DataLossError(f"a frame of {len(frame)} bytes states a message of {n} bytes")
        message = messages.decode(memoryview(frame)[_HEAD.size : source.at])
        values = []
        while source.left:
            values.append(read(source))
        return Control(message, tuple(values))

    def _ping(self, frame: bytes | memoryview) -> Ping:
        return Ping(_PING_FRAME.unpack_from(frame)[3])

    def _pong(self, frame: bytes | memoryview) -> Pong:
        return Pong(*_PONG_FRAME.unpack(frame)[3:])

    def _place(self, frame: bytes | memoryview) -> Place:
        _, number, _, verb, fd, pid, size, nonce = _PLACE_FRAME.unpack(frame)
        if verb > WITHDRAW:
            raise DataLossError(f"a frame about shared memory has the unknown verb {verb}")
        return Place(verb, number, size, fd, pid, nonce)


_CONTENTS: Final[dict[int, Callable[[Decoder, bytes | memoryview], Frame]]] = {
    _CONTROL: Decoder._control,
    _LIVE: Decoder._token,
    _DEAD: Decoder._token,
    _PING: Decoder._ping,
    _PONG: Decoder._pong,
    _PLACE: Decoder._place,
}


def _cause(data: bytes | memoryview) -> DeadCause:
    try:
        return _causes.decode(data)
    except (msgspec.MsgspecError, RecursionError) as e:
        raise DataLossError(f"{len(data)} bytes of a frame are no cause of a dead token: {e}") from e


def _aligned(n: int) -> memoryview:
    """Returns uninitialized memory of `n` bytes at an aligned address."""
    try:
        memory = np.empty(n + ALIGNMENT, np.uint8)
    except MemoryError as e:
        raise ResourceExhaustedError(f"a frame of {n} bytes does not fit into memory") from e
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + n].data


def _no_frame(tag: int) -> DataLossError:
    found = tag.to_bytes(4, "little")
    if found[:2] != b"hr":
        return DataLossError(f"the bytes {found!r} begin no frame: the peer is no process of a headrace cluster")
    if found[2] != VERSION:
        return DataLossError(
            f"a frame has version {found[2]}, and this version of headrace reads {VERSION}: use one version of "
            "headrace in all processes"
        )
    return DataLossError(f"a frame has the unknown kind {found[3]}")
