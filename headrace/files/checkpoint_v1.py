"""TensorFlow's checkpoints of version 1, byte for byte as TensorFlow writes them.

A checkpoint `model` is one file of that name, a table (`sstable`). Its first entry, with the key "", lists the tensors
and the parts in which they are stored (`SavedTensorSliceMeta`). Every other entry contains the elements of a part,
under a key of the name and the part (`bundle.slice_key`). A sharded checkpoint consists of several such files,
`model-00000-of-00002` and so on, each with tensors or parts of its own. Its prefix is a pattern that matches all their
names, `model-?????-of-00002`.

The elements are numbers of a protocol buffer, in which the size of an integer depends on its value. Only the blocks of
a table have checksums; each part is also compared with its description in the first entry.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np
from google.protobuf.message import DecodeError

from headrace import dtypes, pb, varints
from headrace.dtypes import DType
from headrace.errors import DataLossError, InvalidArgumentError, UnimplementedError
from headrace.files import commit, sstable, system
from headrace.files.bundle import slice_key
from headrace.files.checksum import as_bytes, little_endian
from headrace.files.manifest import ManifestEntry, TensorEntry, distinct, entry_of
from headrace.files.regular import RegularFile, named
from headrace.files.slices import TensorSlice, all_of, assemble, is_shape

_META: Final = b""
_VERSION: Final = 1
_MOST_BYTES: Final = 2**31  # of an entry: the limit of a protocol buffer
_PATTERN: Final = re.compile(r"(.*)-\?{5}-of-([0-9]{5})", re.DOTALL)

# The field of the elements and their dtype in it. Floats are stored in the field as in memory.
_FLOATS: Final[Mapping[DType, tuple[str, str]]] = {
    dtypes.float32: ("float_val", "<f4"),
    dtypes.float64: ("double_val", "<f8"),
    dtypes.complex64: ("scomplex_val", "<f4"),
    dtypes.complex128: ("dcomplex_val", "<f8"),
}
_INTEGERS: Final[Mapping[DType, str]] = {
    **dict.fromkeys((dtypes.int8, dtypes.int16, dtypes.int32, dtypes.uint8, dtypes.uint16), "int_val"),
    **dict.fromkeys((dtypes.qint8, dtypes.quint8, dtypes.qint32), "int_val"),
    dtypes.int64: "int64_val",
    dtypes.bool_: "bool_val",
    dtypes.float16: "half_val",  # its bits
}


def pattern_of(prefix: str, n: int) -> str:
    """The prefix of a checkpoint that is sharded into `n` files.

    Example:
      >>> pattern_of("model", 2)
      'model-?????-of-00002'
    """
    return f"{prefix}-?????-of-{n:05d}"


def base_of(prefix: str) -> str:
    """The common beginning of a checkpoint's file names: `prefix` without its pattern."""
    found = _PATTERN.fullmatch(prefix)
    return found[1] if found else prefix


def paths(prefix: str) -> list[str]:
    """Files that `prefix` names, independent of their contents; [] if there are none."""
    found = _PATTERN.fullmatch(os.path.basename(prefix))
    if found is None:
        return [prefix] if system.isfile(prefix) else []
    folder = os.path.dirname(prefix)
    shard = re.compile(re.escape(found[1]) + f"-[0-9]{{5}}-of-{found[2]}", re.ASCII | re.DOTALL)
    with named(prefix):
        try:
            names = system.listdir(folder or os.curdir)
        except (FileNotFoundError, NotADirectoryError):
            return []
    return [os.path.join(folder, name) for name in sorted(names) if shard.fullmatch(name)]


def data_files(prefix: str) -> list[str]:
    """Files that `prefix` names and that are tables, which may therefore be deleted."""
    out = []
    for path in paths(prefix):
        with RegularFile(path) as file:
            if sstable.is_table(file):
                out.append(path)
    return out


# *** reading ***


class First:
    """Checkpoint for reading. Its constructor reads the first entry of each file only.

    Args:
      prefix: The file, or the pattern of several files; see the module's text.

    Attributes:
      prefix: The file, or the pattern of several files.
      format: The format, "tensorflow-v1".
      entries: The dtype and the shape of each tensor.
      strange: TensorFlow's dtype numbers of the tensors whose dtype the format or headrace does not have, by name.

    Raises:
      DataLossError: A file is damaged or not a checkpoint, or two files contradict each other.
      UnimplementedError: The checkpoint is compressed or requires a later reader.
    """

    format = "tensorflow-v1"

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.strange: dict[str, int] = {}
        self.entries: dict[str, TensorEntry] = {}
        self._parts: dict[str, list[tuple[TensorSlice, str]]] = {}  # the parts of a tensor and their files
        for path in paths(prefix):
            with RegularFile(path) as file:
                self._add(file)

    def _add(self, file: RegularFile) -> None:
        key, value = next(sstable.read(file), (b"?", b""))
        first = _parsed(value, file.path) if key == _META else pb.SavedTensorSlices()
        if not first.HasField("meta"):
            raise DataLossError(f"{file.path}: the table does not say which tensors it has; it is no checkpoint")
        meta = first.meta
        if meta.versions.min_consumer > _VERSION or _VERSION in meta.versions.bad_consumers:
            raise UnimplementedError(
                f"{file.path}: the checkpoint wants a reader of version {meta.versions.min_consumer}; this one has "
                f"{_VERSION}"
            )
        left = file.size
        for tensor in meta.tensor:
            left -= self._add_tensor(tensor, file.path)
            if left < 0:
                raise DataLossError(f"{file.path}: it claims to have more than its {file.size} bytes can hold")

    def _add_tensor(self, tensor: pb.SavedSliceMeta, path: str) -> int:
        """Adds the description of a tensor; returns the minimum of bytes that its parts take."""
        name, shape = tensor.name, tuple(d.size for d in tensor.shape.dim)
        try:
            dtype = dtypes.from_number(tensor.type)
        except TypeError:
            dtype = dtypes.resource  # treated the same: a dtype without values in files
        if tensor.shape.unknown_rank or not is_shape(shape, dtype.size):
            raise DataLossError(f"{path}: tensor {name!r} has no shape that a tensor can have")
        if not _can_hold(dtype):
            self.strange[name] = tensor.type
            return 0
        if not tensor.slice:
            raise DataLossError(f"{path}: tensor {name!r} is said to have no part")
        parts = self._parts.setdefault(name, [])
        least = dtype.size if dtype in _FLOATS else 1
        size = 0
        for proto in tensor.slice:
            part = TensorSlice.from_proto(proto)
            try:
                size += math.prod(part.shape_in(shape)) * least
            except InvalidArgumentError as e:
                raise DataLossError(f"{path}: tensor {name!r}: {e}") from None
            parts.append((part, path))
        is_whole = len(parts) == 1 and parts[0][0] == all_of(shape)
        entry = TensorEntry(dtype, shape, () if is_whole else tuple(part for part, _ in parts))
        before = self.entries.setdefault(name, entry)
        if (before.dtype, before.shape) != (dtype, shape):
            raise DataLossError(f"{path}: tensor {name!r} has another dtype or shape than another file says")
        self.entries[name] = entry
        return size

    def read(self, name: str, part: TensorSlice | None = None) -> np.ndarray:
        """Reads a tensor or a part of it, with all stored parts that overlap it.

        Args:
          name: The name of the tensor.
          part: The part to read; None reads the whole tensor.

        Returns:
          The values.

        Raises:
          NotFoundError: The tensor does not exist.
          DataLossError: The stored data is damaged.
          InvalidArgumentError: The tensor has no such part, or a dtype that is not supported.
        """
        entry = entry_of(name, self.prefix, self.entries, self.strange)
        stored = [
            (kept, lambda kept=kept, path=path: _stored(path, name, kept, entry)) for kept, path in self._parts[name]
        ]
        if part is None and not entry.parts:
            return stored[0][1]()
        return assemble(name, entry.shape, part, entry.dtype.numpy, stored)


def _can_hold(dtype: DType) -> bool:
    return dtype in _FLOATS or dtype in _INTEGERS or dtype is dtypes.string


def _parsed(value: bytes, path: str) -> pb.SavedTensorSlices:
    try:
        return pb.SavedTensorSlices.FromString(value)
    except DecodeError as e:
        raise DataLossError(f"{path}: an entry cannot be read: {e}") from None


def _stored(path: str, name: str, part: TensorSlice, entry: TensorEntry) -> np.ndarray:
    """Reads a stored part of a tensor."""
    with RegularFile(path) as file:
        value = sstable.find(file, slice_key(name, part))
    what = f"{path}: tensor {name!r}"
    if value is None:
        raise DataLossError(f"{what}: its part {part} is missing")
    kept = _parsed(value, path).data
    if kept.name != name or TensorSlice.from_proto(kept.slice) != part:
        raise DataLossError(f"{what}: under the key of its part {part} there is another one")
    shape = part.shape_in(entry.shape)
    found = _elements(kept.data, entry.dtype, what)
    if found.size != math.prod(shape):
        raise DataLossError(f"{what}: its part {part} has {found.size} elements, and not {math.prod(shape)}")
    return found.reshape(shape)


def _elements(proto: pb.TensorProto, dtype: DType, what: str) -> np.ndarray:
    """The elements in the field of `dtype` of a message, as a vector."""
    if dtype is dtypes.string:
        out = np.empty(len(proto.string_val), object)
        out[:] = list(proto.string_val)
        return out
    if dtype in _FLOATS:
        field, stored = _FLOATS[dtype]
        values = getattr(proto, field)
        size = len(values) * np.dtype(stored).itemsize
        for other, _ in proto.ListFields():
            if other.name != field:
                proto.ClearField(other.name)
        proto.DiscardUnknownFields()
        # the rest of the message ends with the numbers as stored, so that no bit of a NaN changes
        data = proto.SerializeToString()[-size:] if size else b""
        if size % dtype.numpy.itemsize:
            raise DataLossError(f"{what}: it has half a complex number")
        return np.frombuffer(data, stored).astype(stored[1:], copy=True).view(dtype.numpy)
    values = getattr(proto, _INTEGERS[dtype])
    wide = np.fromiter(values, np.int64, len(values))
    bits = np.dtype(np.uint16) if dtype is dtypes.float16 else dtype.numpy
    narrow = wide.astype(bits)
    if (narrow != wide).any():
        raise DataLossError(f"{what}: it has numbers that no {dtype} is")
    return narrow.view(dtype.numpy)


# *** writing ***


def write(prefix: str, pieces: Iterable[ManifestEntry]) -> None:
    """Writes a checkpoint of one file and replaces an existing one of the same name.

    Args:
      prefix: The path of the file. The folder must exist.
      pieces: The tensors, or parts of tensors.

    Raises:
      InvalidArgumentError: Two tensors have one name, parts do not belong together, the format does not have a dtype,
        or a tensor has more than 2 GB.
      NotFoundError, PermissionDeniedError, ResourceExhaustedError: The system refused an operation.
    """
    meta = pb.SavedTensorSliceMeta()
    meta.versions.producer = _VERSION
    tensors: dict[str, pb.SavedSliceMeta] = {}
    entries: dict[bytes, bytes] = {}
    for piece in sorted(distinct(pieces), key=lambda p: p.name):  # TensorFlow's order
        part = all_of(piece.shape) if piece.part is None else piece.part
        kept = pb.SavedSlice(slice=part.to_proto(), data=_data_of(piece))
        try:
            kept.name = piece.name
        except (UnicodeEncodeError, ValueError):
            raise InvalidArgumentError(f"a tensor in a checkpoint cannot be named {piece.name!r}: not UTF-8") from None
        known = tensors.get(piece.name)
        if known is None:
            known = tensors[piece.name] = meta.tensor.add(name=piece.name, type=piece.dtype.number)
            known.shape.SetInParent()
            for n in piece.shape:
                known.shape.dim.add().size = n
        known.slice.append(part.to_proto())
        entries[slice_key(piece.name, part)] = pb.SavedTensorSlices(data=kept).SerializeToString(deterministic=True)
    first = pb.SavedTensorSlices(meta=meta).SerializeToString(deterministic=True)
    with commit.replacing(prefix) as file:
        sstable.write(file, [(_META, first), *((key, entries[key]) for key in sorted(entries))])


def _data_of(piece: ManifestEntry) -> pb.TensorProto:
    dtype, value = piece.dtype, piece.value
    if not _can_hold(dtype):
        raise InvalidArgumentError(
            f"tensor {piece.name!r} is of {dtype}, which TensorFlow's checkpoints of version 1 do not have; save it in "
            "version 2"
        )
    out = pb.TensorProto()
    if dtype is dtypes.string:
        size = sum(len(s) + 11 for s in value.reshape(-1))
    else:
        size = value.nbytes if dtype in _FLOATS else 10 * value.size
    if size + 1024 > _MOST_BYTES:
        raise InvalidArgumentError(
            f"Tensor slice is too large to serialize: {piece.name!r} may take {size} bytes, and a checkpoint of "
            "version 1 holds 2 GB of each; save it in version 2"
        )
    if dtype is dtypes.string:
        out.string_val.extend(value.reshape(-1).tolist())
    elif dtype in _FLOATS:
        tag = pb.TensorProto.DESCRIPTOR.fields_by_name[_FLOATS[dtype][0]].number << 3 | 2
        if size:
            out.MergeFromString(bytes([tag]) + varints.encode(size) + as_bytes(little_endian(value)).tobytes())
    else:
        bits = value.view(np.uint16) if dtype is dtypes.float16 else value
        getattr(out, _INTEGERS[dtype]).extend(bits.reshape(-1).tolist())
    return out
