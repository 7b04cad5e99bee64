"""Sorted tables of keys and values, of which TensorFlow's checkpoints consist.

A table is the index of a checkpoint of version 2, or a file of a checkpoint of version 1. The layout is LevelDB's. From
the beginning:

    block ... block        the entries, in the order of their keys
    block                  "metaindex": empty here
    block                  index: for each block of entries a key not below its last one, and its position
    footer                 positions of metaindex and index, padding to 40 bytes, a number that identifies the format

A block is followed by a byte for its compression (0: none) and the masked CRC32C of the block and that byte. The keys
in a block are shortened: an entry contains the number of bytes that it shares with the previous key. At some entries,
the restarts, it shares none, so a reader can start there. The block ends with the positions of the restarts.

    entry = varint(shared) varint(not shared) varint(length of value) rest-of-key value
    block = entry ... uint32(restart) ... uint32(number of restarts)

A table may be malicious. So all lengths are compared with the available bytes, each block must begin at the end of the
previous one (so that a checksum covers every byte), keys must ascend, and the total size of the expanded keys is
limited to that of a table with restarts at every 16th entry.
"""

from __future__ import annotations

import bisect
import struct
from collections.abc import Iterable, Iterator
from typing import BinaryIO, Final

from headrace import varints
from headrace.errors import DataLossError, UnimplementedError
from headrace.files.checksum import masked_crc32c
from headrace.files.regular import RegularFile

MAGIC: Final = 0xDB4775248B80FB57
FOOTER: Final = 48
_TRAILER: Final = 5  # bytes of the compression and the checksum behind a block
_BLOCK: Final = 2**18  # bytes after which a block is closed
_RESTART: Final = 16  # entries
_SLACK: Final = 2**20  # bytes of expanded keys that every table may have
_U32 = struct.Struct("<I")
_COMPRESSION: Final = {1: "snappy", 2: "zstd"}


# *** writing ***


class _Block:
    """Block of entries in construction."""

    def __init__(self, every: int) -> None:
        self._every = every
        self.last = b""
        self.clear()

    def clear(self) -> None:
        """Removes all entries, but keeps the last key in `last`."""
        self.data = bytearray()
        self._restarts = [0]
        self._count = 0

    def add(self, key: bytes, value: bytes) -> None:
        shared = 0
        if self._count and self._count % self._every == 0:
            self._restarts.append(len(self.data))
        elif self._count:
            shared = _shared(self.last, key)
        for n in (shared, len(key) - shared, len(value)):
            self.data += varints.encode(n)
        self.data += key[shared:] + value
        self.last = key
        self._count += 1

    @property
    def size(self) -> int:
        """Size in bytes of the block with the current entries."""
        return len(self.data) + 4 * len(self._restarts) + 4

    def finished(self) -> bytes:
        for at in (*self._restarts, len(self._restarts)):
            self.data += _U32.pack(at)
        return bytes(self.data)


def _shared(a: bytes, b: bytes) -> int:
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def _between(a: bytes, b: bytes) -> bytes:
    """A key in the range from `a` to below `b`, shorter than `a` if possible."""
    n = _shared(a, b)
    return a[:n] + bytes([a[n] + 1]) if n < min(len(a), len(b)) and a[n] + 1 < b[n] else a


def _after(a: bytes) -> bytes:
    """A key not below `a`, shorter than `a` if possible."""
    n = len(a) - len(a.lstrip(b"\xff"))
    return a[:n] + bytes([a[n] + 1]) if n < len(a) else a


def write(file: BinaryIO, entries: Iterable[tuple[bytes, bytes]]) -> None:
    """Writes a table of `entries`, whose keys must ascend.

    Args:
      file: The file, which is empty.
      entries: The keys and values.
    """
    at = 0
    block, index = _Block(_RESTART), _Block(1)

    def put(data: bytes) -> bytes:
        nonlocal at
        kind = b"\0"
        file.write(data + kind + _U32.pack(masked_crc32c(data + kind)))
        handle = varints.encode(at) + varints.encode(len(data))
        at += len(data) + _TRAILER
        return handle

    handle = b""  # of the last block that was written
    for key, value in entries:
        if not block.data and handle:
            index.add(_between(block.last, key), handle)
        block.add(key, value)
        if block.size >= _BLOCK:
            handle = put(block.finished())
            block.clear()
    if block.data:
        handle = put(block.finished())
    if handle:
        index.add(_after(block.last), handle)
    handles = put(_Block(_RESTART).finished()) + put(index.finished())
    file.write(handles.ljust(FOOTER - 8, b"\0") + struct.pack("<Q", MAGIC))


# *** reading ***


def is_table(file: RegularFile) -> bool:
    """Whether a file ends with the number that identifies a table."""
    return file.size >= FOOTER and file.read(file.size - 8, 8) == struct.pack("<Q", MAGIC)


def read(file: RegularFile) -> Iterator[tuple[bytes, bytes]]:
    """Reads the entries of a table, in the order of their keys.

    Args:
      file: The file.

    Yields:
      The key and the value of each entry.

    Raises:
      DataLossError: The file is damaged or not a table.
      UnimplementedError: The blocks are compressed.
    """
    try:
        yield from _entries(file)
    except _Damage as e:
        raise DataLossError(f"{file.path}: {e}; the file is damaged, or no index of a checkpoint") from None


def find(file: RegularFile, key: bytes) -> bytes | None:
    """Reads the value of a key from its block; None if it does not exist.

    The errors are those of `read`.
    """
    try:
        blocks = _blocks(file)
        i = bisect.bisect_left(blocks, key, key=lambda b: b[0])
        if i == len(blocks):
            return None
        _, start, n = blocks[i]
        return next((value for k, value in _in_block(_block(file, start, n), 0) if k == key), None)
    except _Damage as e:
        raise DataLossError(f"{file.path}: {e}; the file is damaged, or no checkpoint") from None


class _Damage(Exception):
    """Raised where a table violates its format."""


def _blocks(file: RegularFile) -> list[tuple[bytes, int, int]]:
    """Upper limit of the keys, position and size of each block of entries."""
    if not is_table(file):
        raise _Damage("it does not end as a table does (bad magic number)")
    footer = file.read(file.size - FOOTER, FOOTER, "the footer")
    meta, at = _handle(footer, 0)
    (offset, size), at = _handle(footer, at)
    if any(footer[at : FOOTER - 8]):
        raise _Damage("its footer is not padded with zeros")
    if meta[0] + meta[1] + _TRAILER != offset or offset + size + _TRAILER + FOOTER != file.size:
        raise _Damage("its last blocks are not one behind the other")
    _block(file, *meta)  # its contents are not used, but must be undamaged
    end, out = 0, []
    for limit, value in _in_block(_block(file, offset, size), 0):
        (start, n), at = _handle(value, 0)
        if at != len(value):
            raise _Damage("an entry of the index has bytes left over")
        if start != end:
            raise _Damage("blocks are not one behind the other")
        end = start + n + _TRAILER
        _check_end(file, start, n)
        out.append((limit, start, n))
    if end != meta[0]:
        raise _Damage("there is something between its blocks and its index")
    return out


def _entries(file: RegularFile) -> Iterator[tuple[bytes, bytes]]:
    budget = _RESTART * file.size + _SLACK
    last: bytes | None = None
    for limit, start, n in _blocks(file):
        for key, entry in _in_block(_block(file, start, n), budget):
            budget -= len(key)
            if last is not None and key <= last:
                raise _Damage(f"the key {key[:80]!r} is not in order")
            last = key
            yield key, entry
        if last is None or last > limit:
            raise _Damage("a block has another last key than the index says")


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """The position and size of a block, and the position after this information."""
    offset, at = _varint(data, at, len(data))
    size, at = _varint(data, at, len(data))
    return (offset, size), at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    try:
        out, behind = varints.decode(data, at, end)
    except ValueError:
        out, behind = -1, at
    if not 0 <= out < 2**64 or (behind - at > 1 and not data[behind - 1]):  # too large, or not the shortest code
        raise _Damage("a number is not written as numbers are")
    return out, behind


def _check_end(file: RegularFile, offset: int, size: int) -> None:
    if offset + size + _TRAILER > file.size:
        raise _Damage(f"a block of {size} bytes at {offset} would reach behind the end of the file ({file.size} bytes)")


def _block(file: RegularFile, offset: int, size: int) -> bytes:
    _check_end(file, offset, size)
    data = file.read(offset, size + _TRAILER, "a block")
    if masked_crc32c(data[:-4]) != _U32.unpack(data[-4:])[0]:
        raise _Damage(f"the checksum of the block at {offset} does not match")
    if data[size]:
        name = _COMPRESSION.get(data[size], f"by method {data[size]}")
        raise UnimplementedError(
            f"{file.path}: its blocks are compressed ({name}), which is not read here. What TensorFlow writes now is "
            "not compressed: restore it in TensorFlow and save it with "
            "tf.train.Saver(write_version=tf.train.SaverDef.V2)"
        )
    return data[:size]


def _in_block(data: bytes, budget: int) -> Iterator[tuple[bytes, bytes]]:
    """Reads the entries of a block, with at most `budget` bytes of expanded keys.

    A budget of 0 stands for the limit of an index block.
    """
    if len(data) < 4:
        raise _Damage("a block is too short")
    budget = budget or len(data) * _RESTART + _SLACK
    (restarts,) = _U32.unpack(data[-4:])
    end = len(data) - 4 - 4 * restarts
    if not restarts or end < 0:
        raise _Damage("a block has no sound list of restarts")
    at, key = 0, b""
    while at < end:
        shared, at = _varint(data, at, end)
        rest, at = _varint(data, at, end)
        length, at = _varint(data, at, end)
        if shared > len(key) or at + rest + length > end:
            raise _Damage("an entry of a block reaches behind its end")
        budget -= shared + rest
        if budget < 0:
            raise _Damage("its keys would take far more room than it has")
        key = key[:shared] + data[at : at + rest]
        at += rest + length
        yield key, data[at - length : at]
