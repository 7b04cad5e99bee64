"""TensorFlow's checkpoints of version 2 (bundles), byte for byte as TensorFlow writes them.

A checkpoint `model` consists of files in one folder:

    model.index                      a table (`sstable`) from the names of tensors to entries
    model.data-00000-of-00001        the bytes of the tensors, little-endian, one after the other

An entry (`BundleEntryProto`) contains the dtype and the shape of a tensor, the data file and the position of its bytes,
and their masked CRC32C. The key "" has the header, with the number of data files. A tensor that is saved in parts has
an entry that lists the parts, and one entry for each part under a key (`slice_key`) of the name and the part. Strings
are stored as all lengths (varints), a checksum of these, and all bytes.

**Atomic replacement.** The names of the data files contain their number. The writer chooses a number for which no such
file exists, so a checkpoint that replaces another one of the same name does not touch the old data. The index, which
contains the number, then replaces the old index in one step (`commit`), and only then the old data is deleted.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError

from headrace import dtypes, pb, thresholds, varints
from headrace.dtypes import DType
from headrace.errors import (
    DataLossError,
    InvalidArgumentError,
    UnimplementedError,
)
from headrace.files import commit, sstable, system
from headrace.files.checksum import as_bytes, crc32c, little_endian, mask
from headrace.files.manifest import ManifestEntry, TensorEntry, distinct, entry_of
from headrace.files.regular import MappedFile, RegularFile, check_apart, delete, named
from headrace.files.slices import TensorSlice, assemble, is_shape
from headrace.records import record

_Message = TypeVar("_Message", pb.BundleHeaderProto, pb.BundleEntryProto)

_HEADER: Final = b""
_PRODUCER: Final = 1  # TensorFlow's version of the format
_ESCAPED: Final = re.compile(b"[\0\xff]")
_MOST_FILES: Final = 10**5  # file names have five digits for it


def index_path(prefix: str) -> str:
    """Path of the index of the checkpoint `prefix`."""
    return f"{prefix}.index"


def data_path(prefix: str, i: int, n: int) -> str:
    """Path of data file `i` of `n`."""
    return f"{prefix}.data-{i:05d}-of-{n:05d}"


def data_files(prefix: str) -> list[str]:
    """Paths of the data files named after `prefix`, also of an unfinished checkpoint."""
    folder, name = os.path.split(prefix)
    pattern = re.compile(re.escape(name) + r"\.data-[0-9]{5}-of-[0-9]{5}", re.ASCII)
    with named(prefix):
        try:
            found = system.listdir(folder or os.curdir)
        except FileNotFoundError:
            return []
    return [os.path.join(folder, f) for f in sorted(found) if pattern.fullmatch(f)]


# *** keys ***


def name_key(name: str) -> bytes:
    """The key of a tensor's entry."""
    return name.encode("utf-8", "surrogateescape")


def slice_key(name: str, part: TensorSlice) -> bytes:
    """The key of the entry of a tensor's part, in TensorFlow's order-preserving code."""
    escaped = _ESCAPED.sub(lambda m: m[0] + (b"\xff" if m[0] == b"\0" else b"\0"), name_key(name))
    out = _ordered(0) + escaped + b"\0\1" + _ordered(len(part.extents))
    return out + b"".join(_ordered_signed(start) + _ordered_signed(length) for start, length in part.extents)


def _ordered(n: int) -> bytes:
    """Encodes a number in an order-preserving way: its length, then its bytes, highest first."""
    size = (n.bit_length() + 7) // 8
    return bytes([size]) + n.to_bytes(size, "big")


def _ordered_signed(n: int) -> bytes:
    """Encodes a number, perhaps negative, in an order-preserving way.

    The first bits give the length of the code: as many ones as bytes, then a zero. The others are the number in two's
    complement. All bits of the length are inverted for a negative number.
    """
    bits = (~n if n < 0 else n).bit_length()
    size = bits // 7 + 1
    total = 8 * size
    header = ((1 << size) - 1) << (total - size)
    return ((n & ((1 << total) - 1)) ^ header).to_bytes(size, "big")


# *** reading ***


class Bundle:
    """Checkpoint for reading. Its constructor reads the index only.

    Args:
      prefix: The path of the files without ".index".
      maps: Whether the arrays of large tensors are memory of their files; see `MappedFile` for what that demands.

    Attributes:
      prefix: The path of the files without ".index".
      format: The format, "tensorflow".
      entries: The dtype and the shape of each tensor.
      strange: TensorFlow's dtype numbers of the tensors whose dtype headrace does not have, by name.

    Raises:
      NotFoundError: The checkpoint does not exist.
      DataLossError: The index is damaged.
      UnimplementedError: The checkpoint was written on a big-endian machine, or requires a later reader.
    """

    format = "tensorflow"

    def __init__(self, prefix: str, maps: bool = False) -> None:
        self.prefix = prefix
        self._maps: dict[str, MappedFile | None] | None = {} if maps else None  # by the paths of data files
        self.strange: dict[str, int] = {}
        self.entries: dict[str, TensorEntry] = {}
        self.protos: dict[bytes, pb.BundleEntryProto] = {}
        path = index_path(prefix)
        with RegularFile(path) as file:
            table = sstable.read(file)
            key, value = next(table, (b"?", b""))
            if key != _HEADER:
                raise DataLossError(f"{path}: the table has no header; it is no index of a checkpoint")
            self.shards = self._header(value, path)
            for key, value in table:
                proto = _parsed(pb.BundleEntryProto, value, path)
                self.protos[key] = proto
                if not key.startswith(b"\0"):  # such keys are those of parts
                    self._add(key.decode("utf-8", "surrogateescape"), proto)
        ranges: dict[int, list[tuple[int, int, str]]] = {}
        for key, proto in self.protos.items():
            ranges.setdefault(proto.shard_id, []).append((proto.offset, proto.size, repr(key[:80])[1:]))
        for shard, claimed in ranges.items():
            check_apart(claimed, f"{path} (data file {shard})")

    def _header(self, value: bytes, path: str) -> int:
        header = _parsed(pb.BundleHeaderProto, value, path)
        if header.endianness != pb.BundleHeaderProto.LITTLE:
            raise UnimplementedError(
                f"{path}: the checkpoint was written by a machine that stores the highest byte first, which is not "
                "read here. Restore and save it with TensorFlow on an ordinary machine"
            )
        if header.version.min_consumer > _PRODUCER or _PRODUCER in header.version.bad_consumers:
            raise UnimplementedError(
                f"{path}: the checkpoint wants a reader of version {header.version.min_consumer}; this one has "
                f"{_PRODUCER}"
            )
        if not 0 <= header.num_shards <= _MOST_FILES:
            raise DataLossError(f"{path}: a checkpoint cannot have {header.num_shards} files of data")
        return header.num_shards

    def _add(self, name: str, proto: pb.BundleEntryProto) -> None:
        path = index_path(self.prefix)
        shape = tuple(d.size for d in proto.shape.dim)
        if not 0 <= proto.shard_id < max(self.shards, 1):
            raise DataLossError(f"{path}: tensor {name!r} would be in data file {proto.shard_id} of {self.shards}")
        if proto.offset < 0 or proto.size < 0:
            raise DataLossError(f"{path}: tensor {name!r} would be {proto.size} bytes at {proto.offset}")
        try:
            dtype = dtypes.from_number(proto.dtype)
        except TypeError:
            dtype = dtypes.resource  # treated the same: a dtype without values in files
        if proto.shape.unknown_rank or not is_shape(shape, dtype.size):
            raise DataLossError(f"{path}: tensor {name!r} has no shape that a tensor can have")
        if dtype in (dtypes.resource, dtypes.variant) or dtype.is_ref:
            self.strange[name] = proto.dtype
            return
        parts = tuple(TensorSlice.from_proto(s) for s in proto.slices)
        if dtype is not dtypes.string and not parts:
            _check_size(path, name, shape, dtype, proto.size)
        self.entries[name] = TensorEntry(dtype, shape, parts)

    def read(self, name: str, part: TensorSlice | None = None) -> np.ndarray:
        """Reads a tensor or a part of it, with the checksums of the pieces verified.

        Args:
          name: The name of the tensor.
          part: The part to read; None reads the whole tensor.

        Returns:
          The values.

        Raises:
          NotFoundError: The tensor does not exist.
          DataLossError: The stored data is damaged.
          InvalidArgumentError: The tensor has no such part, or a dtype that headrace does not have.
        """
        entry = entry_of(name, self.prefix, self.entries, self.strange)
        if not entry.parts:
            whole = self._stored(name, self.protos[name_key(name)], entry.shape, entry.dtype)
            return whole if part is None else whole[part.index_in(entry.shape)].copy()
        stored = [(p, self._part(name, entry, p)) for p in entry.parts]
        return assemble(name, entry.shape, part, entry.dtype.numpy, stored)

    def _part(self, name: str, entry: TensorEntry, part: TensorSlice) -> Callable[[], np.ndarray]:
        """Returns a function that reads a stored part of a tensor."""
        path = index_path(self.prefix)
        proto = self.protos.get(slice_key(name, part))
        if proto is None:
            raise DataLossError(f"{path}: the part {part} of tensor {name!r} is missing")
        try:
            shape = part.shape_in(entry.shape)
        except InvalidArgumentError as e:
            raise DataLossError(f"{path}: tensor {name!r}: {e}") from None
        if tuple(d.size for d in proto.shape.dim) != shape or proto.dtype != entry.dtype.number:
            raise DataLossError(f"{path}: the part {part} of tensor {name!r} has another shape or dtype than it should")
        if entry.dtype is not dtypes.string:
            _check_size(path, name, shape, entry.dtype, proto.size)
        return lambda: self._stored(name, proto, shape, entry.dtype)

    def _stored(self, name: str, proto: pb.BundleEntryProto, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
        path = data_path(self.prefix, proto.shard_id, self.shards)
        is_aligned = dtype is not dtypes.string and proto.offset % dtype.size == 0
        with self._opened(path, is_aligned and proto.size >= thresholds.MAPPED_BYTES) as file:
            data = file.read_array(proto.offset, proto.size, f"tensor {name!r}")
        if dtype is dtypes.string:
            return _strings(data, proto.crc32c, shape, f"{path}: tensor {name!r}")
        _check_crc(mask(crc32c(data)), proto.crc32c, f"{path}: tensor {name!r}")
        if dtype is dtypes.bool_ and data.size and data.max() > 1:
            raise DataLossError(f"{path}: tensor {name!r} has truth values other than 0 and 1")
        return data.view(dtype.numpy).reshape(shape)

    @contextmanager
    def _opened(self, path: str, can_map: bool) -> Iterator[RegularFile | MappedFile]:
        """Opens a data file, mapped for a tensor that can be.

        The bundle must map files, and the file system must have mappings.
        """
        found = self._maps.get(path) if self._maps is not None and can_map else None
        if found is not None:
            yield found
            return
        with RegularFile(path) as file:
            if self._maps is not None and can_map:
                found = self._maps[path] = file.mapped()
            yield found or file


def _parsed(kind: type[_Message], value: bytes, path: str) -> _Message:
    try:
        return kind.FromString(value)
    except DecodeError as e:
        raise DataLossError(f"{path}: an entry cannot be read: {e}") from None


def _check_size(path: str, name: str, shape: tuple[int, ...], dtype: DType, size: int) -> None:
    want = math.prod(shape) * dtype.size
    if size != want:
        raise DataLossError(f"{path}: tensor {name!r} ({dtype}{list(shape)}) should take {want} bytes, not {size}")


def _check_crc(got: int, want: int, what: str) -> None:
    if got != want:
        raise DataLossError(
            f"{what}: Checksum does not match: stored {want:#010x} vs. calculated on the restored bytes {got:#010x}. "
            "The file is damaged; use an earlier checkpoint"
        )


def _strings(data: np.ndarray, want: int, shape: tuple[int, ...], what: str) -> np.ndarray:
    """Decodes the strings that are stored in `data`; see the module's text."""
    n = math.prod(shape)
    if n + 4 > data.size:  # a length takes at least one byte
        raise DataLossError(f"{what}: {data.size} bytes cannot hold {n} strings")
    lengths, at = _lengths(data, n, what)
    text = data[at:].tobytes()
    short = lengths <= 0xFFFFFFFF
    if short.all():
        crc = crc32c(lengths.astype("<u4"))
    else:  # lengths that do not fit into 32 bits enter the checksum with 64
        crc = 0
        for x, fits in zip(lengths, short, strict=True):
            crc = crc32c(x.astype("<u4" if fits else "<u8").tobytes(), crc)
    _check_crc(mask(crc), int.from_bytes(text[:4], "little"), f"{what} (lengths)")
    _check_crc(mask(crc32c(text, crc)), want, what)
    if sum(map(int, lengths)) != len(text) - 4:
        raise DataLossError(f"{what}: the strings' lengths are not those of what is stored")
    out = np.empty(n, object)
    ends = (np.cumsum(lengths, dtype=np.uint64) + np.uint64(4)).tolist()
    start = 4
    for i, end in enumerate(ends):
        out[i] = text[start:end]
        start = end
    return out.reshape(shape)


def _lengths(data: np.ndarray, n: int, what: str) -> tuple[np.ndarray, int]:
    """The first `n` varints in `data`, and the position after them."""
    last = np.flatnonzero(data[: 10 * n] < 0x80)[:n]  # the last byte of each number
    if len(last) < n:
        raise DataLossError(f"{what}: the strings' lengths have no end")
    if not n:
        return np.zeros(0, np.uint64), 0
    if np.diff(last, prepend=-1).max() > 9:  # a valid length has at most 63 bits
        raise DataLossError(f"{what}: a string has an absurd length")
    digits = data[: last[-1] + 1]
    first = np.concatenate([[0], last[:-1] + 1])
    place = np.arange(len(digits)) - np.repeat(first, last - first + 1)
    values = (digits & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
    return np.add.reduceat(values, first), int(last[-1]) + 1


# *** writing ***


@record
class _Data:
    """Data file in construction; adds tensors and makes their entries.

    Attributes:
      file: The open file.
      shard: The number of the file.
      at: The position of the next tensor.
    """

    file: BinaryIO
    shard: int
    at: int = 0

    def add(self, piece: ManifestEntry) -> pb.BundleEntryProto:
        proto = _entry(piece.dtype, piece.value.shape)
        proto.shard_id, proto.offset = self.shard, self.at
        if piece.dtype is dtypes.string:
            chunks, crc = _string_chunks(piece.value)
        else:
            data = as_bytes(little_endian(piece.value))
            chunks, crc = [data.data], crc32c(data)
        for chunk in chunks:
            self.file.write(chunk)
            self.at += len(chunk)
        proto.size, proto.crc32c = self.at - proto.offset, mask(crc)
        return proto


def _entry(dtype: DType, shape: Sequence[int]) -> pb.BundleEntryProto:
    proto = pb.BundleEntryProto(dtype=dtype.number)  # type: ignore[arg-type]
    proto.shape.SetInParent()
    for n in shape:
        proto.shape.dim.add().size = n
    return proto


def _string_chunks(value: np.ndarray) -> tuple[list[bytes | memoryview], int]:
    strings: list[bytes] = list(value.reshape(-1))
    lengths = b"".join(varints.encode(len(s)) for s in strings)
    crc = crc32c(b"".join(len(s).to_bytes(4 if len(s) <= 0xFFFFFFFF else 8, "little") for s in strings))
    check = mask(crc).to_bytes(4, "little")
    crc = crc32c(check, crc)
    for s in strings:
        crc = crc32c(s, crc)
    return [lengths, check, *strings], crc


def write(prefix: str, pieces: Iterable[ManifestEntry]) -> None:
    """Writes a checkpoint and replaces an existing one of the same name.

    Args:
      prefix: The path of the files without ".index". The folder must exist.
      pieces: The tensors, or parts of tensors.

    Raises:
      InvalidArgumentError: Two tensors have one name, or parts do not belong together.
      NotFoundError, PermissionDeniedError, ResourceExhaustedError: The system refused an operation.
    """
    pieces = distinct(pieces)
    shards = _free(prefix, 1)
    protos: dict[bytes, pb.BundleEntryProto] = {}
    with commit.replacing(data_path(prefix, 0, shards)) as file:
        data = _Data(file, 0)
        for piece in pieces:
            if piece.part is None:
                protos[name_key(piece.name)] = data.add(piece)
            else:
                whole = protos.setdefault(name_key(piece.name), _entry(piece.dtype, piece.shape))
                whole.slices.append(piece.part.to_proto())
                protos[slice_key(piece.name, piece.part)] = data.add(piece)
    _finish(prefix, shards, protos)


def _free(prefix: str, least: int) -> int:
    """The smallest number of data files, at least `least`, with unused file names."""
    taken = {int(path[-5:]) for path in data_files(prefix)}
    n = next(n for n in range(least, _MOST_FILES + 1) if n not in taken)
    return n


def _finish(prefix: str, shards: int, protos: Mapping[bytes, pb.BundleEntryProto]) -> None:
    """Writes the index, which completes the checkpoint, and deletes the replaced data."""
    header = pb.BundleHeaderProto(num_shards=shards)
    header.version.producer = _PRODUCER
    with commit.replacing(index_path(prefix)) as file:
        entries = [(key, protos[key].SerializeToString(deterministic=True)) for key in sorted(protos)]
        sstable.write(file, [(_HEADER, header.SerializeToString(deterministic=True)), *entries])
    delete([path for path in data_files(prefix) if int(path[-5:]) != shards])


def merge(sources: Sequence[Bundle], destination: str) -> None:
    """Merges checkpoints by renaming their data files; their indexes are deleted.

    Args:
      sources: The checkpoints. A tensor may be in several of them only in parts.
      destination: The path of the files of the new checkpoint.

    Raises:
      InvalidArgumentError: Two checkpoints contain the same tensor, or parts of one that do not belong together.
    """
    files: dict[tuple[str, int], int] = {}
    protos: dict[bytes, pb.BundleEntryProto] = {}
    for source in sources:
        for key, proto in source.protos.items():
            there = protos.get(key)
            if there is None:
                there = protos[key] = pb.BundleEntryProto()
                there.CopyFrom(proto)
                if not proto.slices:
                    there.shard_id = files.setdefault((source.prefix, proto.shard_id), len(files))
            elif not proto.slices or not there.slices:
                raise InvalidArgumentError(
                    f"Duplicate tensor keyed by {key[:200]!r} encountered, when merging prefix: {source.prefix}"
                )
            elif (proto.dtype, proto.shape) != (there.dtype, there.shape):
                raise InvalidArgumentError(
                    f"tensor {key[:200]!r} has parts of wholes that differ in dtype or shape, when merging prefix: "
                    f"{source.prefix}"
                )
            else:
                there.slices.extend(proto.slices)
    shards = _free(destination, max(len(files), 1))
    for (prefix, shard), i in files.items():
        source = next(s for s in sources if s.prefix == prefix)
        commit.move(data_path(prefix, shard, source.shards), data_path(destination, i, shards))
    commit.sync_folder(commit.folder_of(destination))
    _finish(destination, shards, protos)
    for s in sources:
        if s.prefix != destination:
            delete([index_path(s.prefix), *data_files(s.prefix)])
