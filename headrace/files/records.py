"""Record files: TensorFlow's TFRecord, in which each record has a frame with checksums.

A frame is

    length of the data        8 bytes, little-endian
    checksum of the length    4 bytes
    data
    checksum of the data      4 bytes

where a checksum is a masked CRC32C (`checksum`). A file consists of frames only; a compressed file (GZIP, ZLIB) is the
compressed form of that. A reader trusts no length from a file: it requires the right checksum, a limit, and that the
file is long enough. The length of a compressed file's contents is unknown, so there memory grows with the data that
arrives.

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

from headrace import thresholds
from headrace.errors import DataLossError, FailedPreconditionError, InvalidArgumentError
from headrace.files import local
from headrace.files.checksum import masked_crc32c

MOST: Final = 1 << 30  # bytes of a record
KINDS: Final = ("", "GZIP", "ZLIB")
_HEAD: Final = struct.Struct("<QI")
_FOOT: Final = struct.Struct("<I")


def framed(record: bytes) -> bytes:
    """A record with its frame."""
    length = struct.pack("<Q", len(record))
    return b"".join((length, _FOOT.pack(masked_crc32c(length)), record, _FOOT.pack(masked_crc32c(record))))


class Writer:
    """Writer of a record file. One thread at a time.

    Args:
      path: The path of the file, which is replaced if it exists.
      append: Whether to keep the file and add records at its end; not for compressed files.
      compression: The compression: "", "GZIP" or "ZLIB".
      level: The level of the compression, 0 to 9, or -1 for zlib's default.

    Raises:
      InvalidArgumentError: The compression does not exist or cannot be combined with `append`.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: The file cannot be opened.

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
          TypeError: The record is not bytes.
          FailedPreconditionError: The file is closed.
        """
        if not isinstance(record, bytes):
            raise TypeError(f"a record is bytes, got {type(record).__name__}: encode text, serialize messages")
        frame = framed(record)
        with local.as_ours(self._path):
            self._open().write(frame if self._packer is None else self._packer.compress(frame))

    def flush(self) -> None:
        """Passes all written records to the system, so that readers see them."""
        file = self._open()
        with local.as_ours(self._path):
            if self._packer is not None:
                file.write(self._packer.flush(zlib.Z_SYNC_FLUSH))
            file.flush()

    def close(self) -> None:
        """Closes the file. Further calls have no effect."""
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
    """Record file that is read from its beginning.

    Args:
      path: The path of the file.
      compression: The compression: "", "GZIP" or "ZLIB".
      most: The largest allowed size of a record in bytes.

    Attributes:
      offset: The position of the next record, in the decompressed contents.

    Raises:
      InvalidArgumentError: The compression does not exist.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: The file cannot be opened.
    """

    def __init__(self, path: local.Path, compression: str = "", most: int = MOST) -> None:
        check_kind(compression)
        self._path = local.text_of(path)
        self._most = most
        raw = local.opened(path)
        self._size = None if compression else os.fstat(raw.fileno()).st_size
        self._file = unpacked(raw, compression)
        self.offset = 0
        self._is_astray = False  # whether the position of the file may differ from `offset`

    def next(self) -> bytes | None:
        """The next record; None at the end.

        Raises:
          DataLossError: The file is damaged or incomplete here. Further calls raise the same error.
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
        """Closes the file."""
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
    """Reads the records of a file, one after the other.

    Args:
      path: The path of the file.
      compression: The compression: "", "GZIP" or "ZLIB".
      most: The largest allowed size of a record in bytes.

    Yields:
      The records.

    Raises:
      DataLossError: The file is damaged or incomplete at the position that was reached.
      InvalidArgumentError: The compression does not exist.
      NotFoundError, FailedPreconditionError, PermissionDeniedError: The file cannot be opened.
    """
    file = File(path, compression, most)
    try:
        while (record := file.next()) is not None:
            yield record
    finally:
        file.close()


def check_kind(compression: str) -> None:
    """Raises InvalidArgumentError unless the compression exists."""
    if compression not in KINDS:
        raise InvalidArgumentError(
            f"Unsupported compression type: {compression!r}; it is one of {', '.join(map(repr, KINDS))}"
        )


def unpacked(raw: IO[bytes], compression: str) -> IO[Any]:
    """The contents of a file that may be compressed, decompressed while they are read.

    Reads raise zlib's error for damaged data, and EOFError for incomplete data.
    """
    if not compression:
        return raw
    bits = 31 if compression == "GZIP" else 15
    return io.BufferedReader(_Unpacked(raw, bits), thresholds.READ_BYTES)


class _Unpacked(io.RawIOBase):
    """Decompressed form of a file; a read takes no more memory than it returns."""

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
        """Seeks to an offset; to seek backwards, it decompresses from the beginning."""
        if whence == 1:
            offset += self._at
        elif whence != 0:
            raise io.UnsupportedOperation("the end of what is compressed is not known")
        if offset < self._at:
            self._raw.seek(0)
            self._unpacker, self._at = zlib.decompressobj(self._bits), 0
        while self._at < offset and self.read(min(offset - self._at, thresholds.READ_BYTES)):
            pass
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fills `buffer` from the next bytes; returns 0 at the end."""
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
                    return 0  # the file is empty
                raise EOFError("the compressed data ends in the middle")
        return 0

    def close(self) -> None:
        """Closes the file."""
        self._raw.close()
        super().close()
