"""Sources of readers: the lines, records, blocks or rows of a file, in order.

A *source* is an open file of such a kind. Each of its pieces has a key, which states its position ("data.csv:3"), and a
value of bytes.
"""

from __future__ import annotations

import math
import os
import re
import zipfile
import zlib
from collections.abc import Sequence
from typing import IO, Any, Final, Protocol

import numpy as np

from headrace import shapes
from headrace.dtypes import DType
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from headrace.files import local, records

Piece = tuple[bytes, bytes]  # key and value

MOST: Final = records.MOST  # bytes of one piece


class Source(Protocol):
    """Open file that yields pieces."""

    def next(self) -> Piece | None:
        """The next piece; None at the end."""
        ...

    def close(self) -> None:
        """Closes the file."""
        ...


def _key(name: str, number: int) -> bytes:
    return os.fsencode(f"{name}:{number}")


class Name:
    """Source of one piece: the name of the file."""

    def __init__(self, name: str) -> None:
        self._name: str | None = name

    def next(self) -> Piece | None:
        name, self._name = self._name, None
        return None if name is None else (os.fsencode(name), os.fsencode(name))

    def close(self) -> None:
        pass


class Whole:
    """Source of one piece: the contents of the file."""

    def __init__(self, name: str) -> None:
        self._name: str | None = name

    def next(self) -> Piece | None:
        name = self._name
        if name is None:
            return None
        content = local.whole(name)
        self._name = None
        return os.fsencode(name), content

    def close(self) -> None:
        pass


class Lines:
    """Source of the lines of a text, without line ends (LF or CR LF).

    Args:
      name: The name of the file.
      skipped: The number of lines to skip at the beginning.
      encoding: The compression: "", "GZIP" or "ZLIB".
    """

    def __init__(self, name: str, skipped: int = 0, encoding: str = "") -> None:
        self._name = name
        self._file: IO[bytes] = records.unpacked(local.opened(name), encoding)
        self._number = 0
        self._skipped = skipped

    def next(self) -> Piece | None:
        while (line := self._line()) is not None:
            if self._number > self._skipped:
                return _key(self._name, self._number), line
        return None

    def close(self) -> None:
        self._file.close()

    def _line(self) -> bytes | None:
        try:
            with local.as_ours(self._name):
                line = self._file.readline(MOST)
        except (EOFError, zlib.error) as e:
            raise DataLossError(f"{self._name}: it cannot be decompressed behind line {self._number}: {e}") from e
        if len(line) == MOST and line[-1:] != b"\n":
            raise ResourceExhaustedError(f"{self._name}:{self._number + 1}: a line of more than {MOST} bytes")
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if not text and line[-1:] != b"\n":
            return None
        self._number += 1
        return text


#: The rest of a quoted field behind its first quote; two quotes mean one.
_CLOSING: Final = re.compile(rb'[^"]*(?:""[^"]*)*"(?!")')


class CommaSeparated:
    """Source of comma-separated records, whose quoted fields may contain line ends.

    Args:
      name: The name of the file.
      delimiter: The byte between fields.
      quotes: Whether fields may be quoted.
      header: Whether the first record is skipped.
      encoding: The compression: "", "GZIP" or "ZLIB".
    """

    def __init__(self, name: str, delimiter: bytes, quotes: bool, header: bool, encoding: str = "") -> None:
        self._name = name
        self._file: IO[bytes] = records.unpacked(local.opened(name), encoding)
        self._delimiter, self._quotes = delimiter, quotes
        self._unquoted = re.compile(b"[\r\n" + re.escape(delimiter) + b"]")
        self._rest = b""  # behind a lone CR
        self._number = 0
        if header:
            try:
                self.next()
            except BaseException:
                self.close()
                raise

    def next(self) -> Piece | None:
        text, self._rest = self._rest or self._line(), b""
        if not text:
            return None
        self._number += 1
        before: list[bytes] = []  # lines of the record before the present one
        size = at = 0
        while True:
            if self._quotes and text.startswith(b'"', at):
                at += 1
                while (found := _CLOSING.match(text, at)) is None:
                    before.append(text)
                    size += len(text)
                    text, at = self._line(), 0
                    if not text:
                        raise InvalidArgumentError(
                            f"{self._name}: Reached end of file without closing quoted field in record"
                        )
                    if size + len(text) > MOST:
                        raise ResourceExhaustedError(f"{self._name}: a record of more than {MOST} bytes")
                at = found.end()
            end = self._unquoted.search(text, at)
            if end is None or end[0] != self._delimiter:
                break
            at = end.end()
        stop, behind = (len(text), len(text)) if end is None else end.span()
        self._rest = text[behind + text.startswith(b"\r\n", stop) :]
        return _key(self._name, self._number), b"".join([*before, text[:stop]])

    def close(self) -> None:
        self._file.close()

    def _line(self) -> bytes:
        try:
            with local.as_ours(self._name):
                line = self._file.readline(MOST)
        except (EOFError, zlib.error) as e:
            raise DataLossError(f"{self._name}: it cannot be decompressed behind record {self._number}: {e}") from e
        if len(line) == MOST and line[-1:] != b"\n":
            raise ResourceExhaustedError(f"{self._name}: a line of more than {MOST} bytes")
        return line


class Fixed:
    """Source of pieces of equal length. A shorter rest at the end is ignored.

    Args:
      name: The name of the file.
      length: The bytes of each piece.
      header: The bytes before the pieces.
      footer: The bytes after the pieces.
      hop: The bytes from the start of one piece to the start of the next; 0 for `length`.
      encoding: The compression: "", "GZIP" or "ZLIB".
    """

    def __init__(
        self, name: str, length: int, header: int = 0, footer: int = 0, hop: int = 0, encoding: str = ""
    ) -> None:
        self._name = name
        if encoding and max(length, footer) > MOST:
            raise ResourceExhaustedError(
                f"{name}: pieces or a footer of {max(length, footer)} bytes; of a compressed file they have at most "
                f"{MOST}"
            )
        raw = local.opened(name)
        end = os.fstat(raw.fileno()).st_size - footer
        self._limit = None if encoding else end
        self._file = records.unpacked(raw, encoding)
        self._length, self._hop, self._footer = length, hop or length, footer
        self._at = header
        self._number = 0

    def next(self) -> Piece | None:
        if self._limit is not None and self._at + self._length > self._limit:
            return None
        try:
            with local.as_ours(self._name):
                self._file.seek(self._at)
                piece = local.taken(self._file, self._length)
                # the length of a compressed file is unknown, so the footer must be found behind the piece
                behind = self._footer if self._limit is None else 0
                if len(local.taken(self._file, behind)) < behind:
                    return None
        except (EOFError, zlib.error) as e:
            raise DataLossError(f"{self._name}: it cannot be decompressed behind byte {self._at}: {e}") from e
        if len(piece) < self._length:
            return None
        key = _key(self._name, self._number)
        self._number += 1
        self._at += self._hop
        return key, piece

    def close(self) -> None:
        self._file.close()


class Records:
    """Source of the records of a record file (`records`), with byte positions in the keys."""

    def __init__(self, name: str, compression: str = "") -> None:
        self._name = name
        self._file = records.File(name, compression)

    def next(self) -> Piece | None:
        key = _key(self._name, self._file.offset)
        record = self._file.next()
        return None if record is None else (key, record)

    def close(self) -> None:
        self._file.close()


class Rows:
    """Source of the rows of an array in numpy's files.

    An .npy file is mapped into memory and read on demand. A member of an .npz archive is read as a stream. Nothing is
    unpickled, or unpacked to disk.

    Args:
      name: The name of the file.
      dtype: The dtype of the elements; the byte order in the file may differ.
      row: The shape of a row: that of the array without its first dimension.
      member: The member of the archive, with or without ".npy"; "" for a file with one array.

    Raises:
      InvalidArgumentError: The array has another dtype, or its rows have another shape.
      DataLossError: The file is damaged or not of this kind.
      NotFoundError: The file or the member does not exist.
      ResourceExhaustedError: A row has more than `MOST` bytes.
    """

    def __init__(self, name: str, dtype: DType, row: Sequence[int], member: str = "") -> None:
        self._name = f"{name}[{member}]" if member else name
        self._dtype, self._row = dtype, tuple(row)
        self._bytes = math.prod(self._row) * dtype.size
        if self._bytes > MOST:
            raise ResourceExhaustedError(
                f"{self._name}: a row of shape {shapes.show(self._row)} has {self._bytes} bytes"
            )
        self._number = 0
        self._array: np.ndarray | None = None
        self._stream: IO[bytes] | None = None
        self._file: IO[bytes] = local.opened(name)
        try:
            with local.as_ours(name):
                if member:
                    self._stream, self._rows = self._opened_member(name, member)
                else:
                    self._array = self._mapped(name)
                    self._rows = len(self._array)
        except _DAMAGE as e:
            self.close()
            raise DataLossError(f"{self._name}: this is no array that can be read: {e}") from e
        except BaseException:
            self.close()
            raise

    def next(self) -> Piece | None:
        if self._number >= self._rows:
            return None
        key = _key(self._name, self._number)
        if self._array is not None:
            value = np.ascontiguousarray(self._array[self._number], self._dtype.numpy).tobytes()
        else:
            value = self._streamed()
        self._number += 1
        return key, value

    def close(self) -> None:
        self._array = None
        self._rows = 0
        if self._stream is not None:
            self._stream.close()
        self._file.close()

    def _streamed(self) -> bytes:
        assert self._stream is not None
        try:
            with local.as_ours(self._name):
                value = local.taken(self._stream, self._bytes)
        except _DAMAGE as e:
            raise DataLossError(f"{self._name}: row {self._number} cannot be read: {e}") from e
        if len(value) < self._bytes:
            raise DataLossError(f"{self._name}: the array ends within row {self._number} of {self._rows}")
        if not self._stored.isnative:
            value = np.frombuffer(value, self._stored).astype(self._dtype.numpy).tobytes()
        return value

    def _mapped(self, name: str) -> np.ndarray:
        if self._file.read(2) == b"PK":
            raise InvalidArgumentError(f"{name} is an archive of arrays: say which member is meant")
        self._file.seek(0)
        shape, is_fortran, stored = _npy_header(self._file)
        self._check(shape, stored)
        order: Any = "F" if is_fortran else "C"
        if 0 in shape:  # an empty array cannot be mapped
            return np.empty(shape, stored)
        return np.memmap(self._file, stored, "r", self._file.tell(), shape, order)

    def _opened_member(self, name: str, member: str) -> tuple[IO[bytes], int]:
        with zipfile.ZipFile(self._file) as archive:
            names = archive.namelist()
            wanted = next((n for n in (member, f"{member}.npy") if n in names), None)
            if wanted is None:
                there = ", ".join(sorted(n.removesuffix(".npy") for n in names)[:20])
                raise NotFoundError(f"{name} has no member {member!r}; it has {there or 'none'}")
            stream = archive.open(wanted)
        shape, is_fortran, stored = _npy_header(stream)
        self._check(shape, stored)
        if is_fortran and len(shape) > 1:
            raise InvalidArgumentError(f"{self._name} lies in Fortran's order, in which rows are not in one piece")
        self._stored: np.dtype = stored
        return stream, shape[0]

    def _check(self, shape: tuple[int, ...], stored: np.dtype[Any]) -> None:
        if stored.hasobject:
            raise InvalidArgumentError(f"{self._name} holds Python objects, which are never unpickled")
        if stored.newbyteorder("=") != self._dtype.numpy:
            raise InvalidArgumentError(f"{self._name} has elements of {stored}, wanted is {self._dtype.name}")
        if not shape or shape[1:] != self._row:
            raise InvalidArgumentError(
                f"{self._name} has the shape {shapes.show(shape)}, wanted are rows of {shapes.show(self._row)}"
            )


_NPY_HEADER: Final = re.compile(
    r"\s*\{\s*'descr':\s*'([<>|=][A-Za-z][0-9]{0,6})',\s*'fortran_order':\s*(True|False),\s*"
    r"'shape':\s*\(([0-9, ]*)\),?\s*\}\s*"
)


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Reads the header of an array's file, which is then positioned behind it.

    The header is text in Python's notation. Only the headers of arrays of numbers are accepted, and nothing is
    evaluated.

    Returns:
      The shape, whether the order is Fortran's, and the dtype.

    Raises:
      ValueError: The header is invalid.
    """
    start = file.read(8)
    if len(start) < 8 or start[:6] != b"\x93NUMPY" or start[6] not in (1, 2, 3):
        raise ValueError(f"it begins with {start!r}")
    length = int.from_bytes(file.read(2 if start[6] == 1 else 4), "little")
    if length > _MOST_HEADER:
        raise ValueError(f"its header claims to have {length} bytes")
    text = file.read(length).decode("latin-1")
    found = _NPY_HEADER.fullmatch(text)
    if found is None:
        raise ValueError(f"its header is {text[:200]!r}; arrays of plain numbers are read")
    shape = tuple(int(n) for n in found[3].split(",") if n.strip())
    if math.prod(shape) > 1 << 62:
        raise ValueError(f"it claims to have the shape {shapes.show(shape)}")
    return shape, found[2] == "True", np.dtype(found[1])


_MOST_HEADER: Final = 10_000
# Errors of numpy, zipfile and zlib for damaged files.
_DAMAGE: Final = (
    ValueError,
    EOFError,
    OverflowError,
    TypeError,
    KeyError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
)
