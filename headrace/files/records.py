"""Record files: TensorFlow's TFRecord, in which each record lies in a frame that shows damage.

A frame is

    length of the data        8 bytes, little-endian
    checksum of these         4 bytes
    data
    checksum of the data      4 bytes

where a checksum is a masked CRC32C (`checksum`). A file is frames and nothing else; a compressed one (GZIP, ZLIB) is
the compressed form of that. Nobody who reads has to trust a length: it is only believed with its checksum, only up to a
limit, and never beyond the end of the file; of a compressed file, whose end is not known, memory is taken only as the
data really comes.

Source: TensorFlow's `tf.io.TFRecordWriter` and `tf.data.TFRecordDataset`.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final

from headrace.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from headrace.files import local
from headrace.files.checksum import masked_crc32c

MOST: Final = 1 << 30  # bytes of a record
KINDS: Final = ("", "GZIP", "ZLIB")
_HEAD: Final = struct.Struct("<QI")
_FOOT: Final = struct.Struct("<I")


def framed(record: bytes) -> bytes:
    """A record in its frame."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, _FOOT.pack(masked_crc32c(length)), record, _FOOT.pack(masked_crc32c(record))))


class Writer:
    """Writes a record file. One thread at a time.

    Args:
      path: of the file. What is there is replaced.
      append: whether what is there is kept, and the records come after it; not for compressed files.
      compression: "", "GZIP" or "ZLIB".
      level: of the compression: 0 to 9, -1 for what zlib thinks best.

    Raises:
      InvalidArgumentError: there is no such compression, or it and `append`.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: the file cannot be opened.

    Example:
      >>> import os, tempfile
      >>> path = os.path.join(tempfile.mkdtemp(), "some.tfrecord")
      >>> with Writer(path) as out:
      ...     out.write(b"one")
      >>> list(read(path))
      [b'one']
    """

    def __init__(self, path: local.Path, append: bool = False, compression: str = "", level: int = -1) -> None:
        check_kind(compression)
        if append and compression:
            raise InvalidArgumentError(f"records cannot be appended to a file that {compression} compresses as a whole")
        self._path = local.text_of(path)
        self._file: IO[bytes] | None = local.opened(path, "ab" if append else "wb")
        bits = {"": 0, "GZIP": 31, "ZLIB": 15}[compression]
        self._packer = zlib.compressobj(level, zlib.DEFLATED, bits) if bits else None

    def write(self, record: bytes) -> None:
        """Adds a record.

        Raises:
          TypeError: it is not bytes.
          FailedPreconditionError: the file is closed.
        """
        if not isinstance(record, bytes):
            raise TypeError(f"a record is bytes, got {type(record).__name__}: encode text, serialize messages")
        frame = framed(record)
        with local.as_ours(self._path):
            self._open().write(frame if self._packer is None else self._packer.compress(frame))

    def flush(self) -> None:
        """Hands all that was written to the system, so that others who read the file see it."""
        file = self._open()
        with local.as_ours(self._path):
            if self._packer is not None:
                file.write(self._packer.flush(zlib.Z_SYNC_FLUSH))
            file.flush()

    def close(self) -> None:
        """Ends the file. May be called twice."""
        file, self._file = self._file, None
        if file is None:
            return
        with local.as_ours(self._path), file:
            if self._packer is not None:
                file.write(self._packer.flush())

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _open(self) -> IO[bytes]:
        if self._file is None:
            raise FailedPreconditionError(f"{self._path}: the writer is closed")
        return self._file


class File:
    """A record file, read from its beginning, one record after the other.

    Args:
      path: of the file.
      compression: "", "GZIP" or "ZLIB".
      most: bytes that a record may have.

    Attributes:
      offset: where the next record begins (in what the file holds, once it is decompressed).

    Raises:
      InvalidArgumentError: there is no such compression.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: the file cannot be opened.
    """

    def __init__(self, path: local.Path, compression: str = "", most: int = MOST) -> None:
        check_kind(compression)
        self._path = local.text_of(path)
        self._most = most
        raw = local.opened(path)
        self._size = None if compression else os.fstat(raw.fileno()).st_size
        self._file = unpacked(raw, compression)
        self.offset = 0
        self._is_astray = False  # whether the file stands elsewhere

    def next(self) -> bytes | None:
        """The next record; None at the end.

        Raises:
          DataLossError: the file is damaged or torn here; asked again, it says so again.
        """
        try:
            with local.as_ours(self._path):
                if self._is_astray:
                    self._file.seek(self.offset)
                self._is_astray = True
                record = self._next()
                self._is_astray = False
                return record
        except (EOFError, zlib.error, gzip.BadGzipFile) as e:
            raise self._damaged("corrupted record", f"it cannot be decompressed ({e})") from e

    def close(self) -> None:
        """Lets the file go."""
        self._file.close()

    def _next(self) -> bytes | None:
        head = self._file.read(_HEAD.size)
        if not head:
            return None
        if len(head) < _HEAD.size:
            raise self._damaged("truncated record", f"{len(head)} bytes of its head are left")
        length, checksum = _HEAD.unpack(head)
        if masked_crc32c(head[:8]) != checksum:
            raise self._damaged("corrupted record", "the checksum of its length is wrong")
        if length > self._most:
            raise self._damaged("corrupted record", f"it claims to have {length} bytes, and may have {self._most}")
        left = None if self._size is None else self._size - self.offset - _HEAD.size - _FOOT.size
        if left is not None and length > left:
            raise self._damaged("truncated record", f"it has {length} bytes, of which {max(left, 0)} are in the file")
        record = local.taken(self._file, length)
        foot = self._file.read(_FOOT.size) if len(record) == length else b""
        if len(foot) < _FOOT.size:
            raise self._damaged("truncated record", f"it has {length} bytes, of which {len(record)} are in the file")
        if masked_crc32c(record) != _FOOT.unpack(foot)[0]:
            raise self._damaged("corrupted record", "the checksum of its data is wrong")
        self.offset += _HEAD.size + length + _FOOT.size
        return record

    def _damaged(self, how: str, why: str) -> DataLossError:
        return DataLossError(f"{self._path}: {how} at {self.offset}: {why}")


def read(path: local.Path, compression: str = "", most: int = MOST) -> Iterator[bytes]:
    """The records of a file, one after the other.

    Args:
      path: of the file.
      compression: "", "GZIP" or "ZLIB".
      most: bytes that a record may have.

    Raises:
      DataLossError: it is damaged or torn, once that place is reached.
      InvalidArgumentError: there is no such compression.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: it cannot be opened.
    """
    file = File(path, compression, most)
    try:
        while (record := file.next()) is not None:
            yield record
    finally:
        file.close()


def check_kind(compression: str) -> None:
    """Raises InvalidArgumentError unless there is such a compression."""
    if compression not in KINDS:
        raise InvalidArgumentError(
            f"Unsupported compression type: {compression!r}; it is one of {', '.join(map(repr, KINDS))}"
        )


def unpacked(raw: IO[bytes], compression: str) -> IO[Any]:
    """What is in a file that may be compressed, as a file that is decompressed as it is read.

    The error is zlib's, or EOFError for a torn one, when it is read.
    """
    if not compression:
        return raw
    bits = 31 if compression == "GZIP" else 15
    return io.BufferedReader(_Unpacked(raw, bits), local.PIECE)


class _Unpacked(io.RawIOBase):
    """The decompressed form of a file; it holds no more than was asked for, however far the data expands."""

    def __init__(self, raw: IO[bytes], bits: int) -> None:
        super().__init__()
        self._raw = raw
        self._bits = bits
        self._unpacker = zlib.decompressobj(bits)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        """Goes to an offset; back means from the beginning."""
        if whence == 1:
            offset += self._at
        elif whence != 0:
            raise io.UnsupportedOperation("the end of what is compressed is not known")
        if offset < self._at:
            self._raw.seek(0)
            self._unpacker, self._at = zlib.decompressobj(self._bits), 0
        while self._at < offset and self.read(min(offset - self._at, local.PIECE)):
            pass
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fills `buffer` from the next bytes; 0 at the end."""
        while len(buffer):
            if self._unpacker.eof:  # another compressed stream may follow
                fed = self._unpacker.unused_data or self._raw.read(1 << 16)
                if not fed:
                    return 0
                self._unpacker = zlib.decompressobj(self._bits)
            else:
                fed = self._unpacker.unconsumed_tail or self._raw.read(1 << 16)
            got = self._unpacker.decompress(fed, len(buffer))
            if got:
                buffer[: len(got)] = got
                self._at += len(got)
                return len(got)
            if not fed and not self._unpacker.eof:
                if not self._raw.tell():
                    return 0  # an empty file
                raise EOFError("the compressed data ends in the middle")
        return 0

    def close(self) -> None:
        """Lets the file go."""
        self._raw.close()
        super().close()
