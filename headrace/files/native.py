"""headrace's own checkpoints: the tensors as safetensors, which many programs read, and a small index.

A checkpoint `model` consists of files in one folder:

    model.safetensors        the tensors; model.data-00000-of-00003.safetensors, ... where there are several files
    model.index.json         the index of these files

safetensors has numbers and booleans, but no complex numbers, strings or parts of tensors. The index describes the
storage of each tensor:

    "numbers"    as it is, under `key`
    "pairs"      complex numbers, as real numbers with a last dimension of 2
    "bytes"      strings: all their bytes under `key`, and the length of each (int64) under `lengths`
    "parts"      in parts, each stored in one of the ways above: `part` is "0,2:-" for rows 0 and 1, all columns

It also contains its dtype, its shape and the CRC32C of its bytes, and the size of each file. The index begins with a
line that contains the checksum of the rest. Together with that line the rest is one JSON object, so other programs can
read it.

**Atomic replacement.** The data is written first, to a file with an unused name. Then the index, which contains that
name, replaces an older index in one step (`commit`). Only then older data is deleted. So a checkpoint exists if its
index exists, and a checkpoint that replaces another one is complete or not there at all.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import numpy as np

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import DataLossError, InvalidArgumentError, UnimplementedError
from headrace.files import commit, system
from headrace.files.checksum import as_bytes, crc32c, little_endian
from headrace.files.manifest import ManifestEntry, TensorEntry, distinct, missing
from headrace.files.regular import RegularFile, delete, named
from headrace.files.slices import TensorSlice, assemble, is_shape
from headrace.records import record

VERSION: Final = 1
_MOST_INDEX: Final = 2**30  # bytes of an index
_MOST_FILES: Final = 10**5
_MOST_HEADER: Final = 10**8  # bytes: the limit of safetensors
_FIRST_LINE: Final = re.compile(
    rb'\{"headrace_checkpoint": ([0-9]{1,9}), "crc32c": ([0-9]{1,10}), "bytes": ([0-9]{1,10}),\n'
)

# The dtype names of safetensors. Quantized numbers are stored as their integers.
_CODES: Final[dict[str, str]] = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_WIDTH: Final = {code: dtypes.as_dtype(name).size for name, code in _CODES.items()}
_HALF: Final = {dtypes.complex64: dtypes.float32, dtypes.complex128: dtypes.float64}


def index_path(prefix: str) -> str:
    """Path of the index of the checkpoint `prefix`."""
    return f"{prefix}.index.json"


def data_path(prefix: str, i: int = 0, n: int = 0) -> str:
    """Path of data file `i` of `n`; `n` is 0 for a single file."""
    return f"{prefix}.data-{i:05d}-of-{n:05d}.safetensors" if n else f"{prefix}.safetensors"


def _data_name(prefix: str) -> re.Pattern[str]:
    """Pattern of the names of its data files."""
    name = re.escape(os.path.basename(prefix))
    return re.compile(name + r"(?:\.data-[0-9]{5}-of-([0-9]{5}))?\.safetensors", re.ASCII)


def data_files(prefix: str) -> list[str]:
    """Paths of the data files named after `prefix`, also of an unfinished checkpoint."""
    folder, pattern = os.path.dirname(prefix), _data_name(prefix)
    with named(prefix):
        try:
            found = system.listdir(folder or os.curdir)
        except FileNotFoundError:
            return []
    return [os.path.join(folder, f) for f in sorted(found) if pattern.fullmatch(f)]


# *** reading ***


class Native:
    """Checkpoint for reading. Its constructor reads the index only.

    Args:
      prefix: The path of the files without ".index.json".

    Attributes:
      prefix: The path of the files without ".index.json".
      format: The format, "native".
      entries: The dtype and the shape of each tensor.
      files: The path and the size in bytes of each data file.
      records: The record of each tensor in the index.

    Raises:
      NotFoundError: The checkpoint does not exist.
      DataLossError: The index is damaged.
      UnimplementedError: A later version of headrace wrote the checkpoint.
    """

    format = "native"

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._path = index_path(prefix)
        self._open: dict[int, Any] = {}
        self._keys: dict[int, frozenset[str]] = {}
        content = self._content()
        self.files = [self._file(f) for f in self._list(content, "files")]
        tensors = content.get("tensors")
        if not isinstance(tensors, dict):
            raise self._damage("it lists no tensors")
        self.records: dict[str, dict[str, Any]] = {}
        self.entries: dict[str, TensorEntry] = {}
        keys: set[tuple[int, str]] = set()
        for name, about in tensors.items():
            self._add(name, about, keys)

    def _damage(self, why: str) -> DataLossError:
        return DataLossError(f"{self._path}: {why}; the file is damaged, or no index of a checkpoint")

    def _content(self) -> dict[str, Any]:
        """Reads the JSON object of the index."""
        with RegularFile(self._path) as file:
            if file.size > _MOST_INDEX:
                raise self._damage(f"it has {file.size} bytes, more than an index can have")
            data = file.read(0, file.size)
        first = _FIRST_LINE.match(data)
        if first is None:
            raise self._damage("its first line is not that of an index")
        version, crc, size = map(int, first.groups())
        if version != VERSION:
            raise UnimplementedError(
                f"{self._path}: it is of version {version}, and this headrace knows {VERSION}; use a later one"
            )
        rest = data[first.end() :]
        if len(rest) != size or crc32c(rest) != crc:
            raise self._damage("its checksum does not match")
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as e:
            raise self._damage(f"it is no JSON ({e})") from None
        if not isinstance(content, dict):
            raise self._damage("it is no JSON object")
        return content

    def _list(self, record: Mapping[str, Any], what: str) -> list[dict[str, Any]]:
        out = record.get(what)
        if not isinstance(out, list) or not all(isinstance(x, dict) for x in out):
            raise self._damage(f"{what!r} is no list of objects")
        return out

    def _file(self, record: Mapping[str, Any]) -> tuple[str, int]:
        """The path and size of a data file, always in the folder of the index."""
        name, size = record.get("name"), record.get("bytes")
        if not isinstance(name, str) or not _data_name(self.prefix).fullmatch(name):
            raise self._damage(f"a file of data cannot be named {name!r}")
        if type(size) is not int or size < 0:
            raise self._damage(f"a file of data cannot have {size!r} bytes")
        return os.path.join(os.path.dirname(self.prefix), name), size

    def _add(self, name: str, record: Any, keys: set[tuple[int, str]]) -> None:
        if not isinstance(record, dict):
            raise self._damage(f"tensor {name!r} has no record")
        shape = record.get("shape")
        try:
            dtype = dtypes.as_dtype(str(record.get("dtype")))
        except TypeError:
            dtype = dtypes.resource
        if dtype in (dtypes.resource, dtypes.variant) or dtype.is_ref:
            raise self._damage(f"tensor {name!r} has the dtype {record.get('dtype')!r}")
        if not isinstance(shape, list) or not all(type(n) is int for n in shape) or not is_shape(shape, dtype.size):
            raise self._damage(f"tensor {name!r} has no shape that a tensor can have")
        parts: list[TensorSlice] = []
        stored = [record]
        if record.get("stored") == "parts":
            stored = self._list(record, "parts")
            if not stored:
                raise self._damage(f"tensor {name!r} has no parts")
            try:
                parts = [TensorSlice.parse(str(p.get("part"))) for p in stored]
                for p in parts:
                    p.ranges(shape)
            except InvalidArgumentError as e:
                raise self._damage(f"tensor {name!r}: {e}") from None
        for s in stored:
            how = "bytes" if dtype is dtypes.string else "pairs" if dtype in _HALF else "numbers"
            if s.get("stored") != how:
                raise self._damage(f"tensor {name!r} of {dtype} is said to be stored as {s.get('stored')!r}")
            file = s.get("file")
            if type(file) is not int or not 0 <= file < len(self.files):
                raise self._damage(f"tensor {name!r} is in no file")
            for key in [s.get("key"), *([s.get("lengths")] if how == "bytes" else [])]:
                if not isinstance(key, str) or (file, key) in keys:
                    raise self._damage(f"tensor {name!r} has no place of its own")
                keys.add((file, key))
        self.records[name] = record
        self.entries[name] = TensorEntry(dtype, tuple(shape), tuple(parts))

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
          InvalidArgumentError: The tensor has no such part.
        """
        entry = self.entries.get(name)
        if entry is None:
            raise missing(name, self.prefix, self.entries)
        record = self.records[name]
        if not entry.parts:
            whole = self._reader(name, entry.dtype, entry.shape, record)()
            return whole if part is None else whole[part.index_in(entry.shape)].copy()

        stored = [
            (p, self._reader(name, entry.dtype, p.shape_in(entry.shape), r))
            for p, r in zip(entry.parts, record["parts"], strict=True)
        ]
        return assemble(name, entry.shape, part, entry.dtype.numpy, stored)

    def _reader(
        self, name: str, dtype: DType, shape: tuple[int, ...], record: Mapping[str, Any]
    ) -> Callable[[], np.ndarray]:
        """Returns a function that reads a stored tensor or part, whose metadata is checked."""
        if dtype is dtypes.string:
            n = math.prod(shape)
            lengths = self._key(name, record, "lengths", "I64", (n,))
            text = self._key(name, record, "key", "U8", None)
            return lambda: _strings(lengths(), text()).reshape(shape)
        half = _HALF.get(dtype)
        if half is None:
            numbers = self._key(name, record, "key", _CODES[dtype.numpy.name], shape)
            return lambda: _checked_bools(numbers()).view(dtype.numpy)
        pairs = self._key(name, record, "key", _CODES[half.name], (*shape, 2))
        return lambda: pairs().view(dtype.numpy).reshape(shape)

    def _key(
        self, name: str, record: Mapping[str, Any], what: str, code: str, shape: tuple[int, ...] | None
    ) -> Callable[[], np.ndarray]:
        """Returns a function that reads an array of a record, whose metadata is checked.

        Args:
          name: The name of the tensor, for errors.
          record: The record.
          what: The field of the record with the key of the array: "key" or "lengths".
          code: The expected dtype.
          shape: The expected shape; None for any vector.

        Returns:
          The function.
        """
        path, _ = self.files[record["file"]]
        file = self._opened(record["file"])
        key, crc = record[what], record.get("crc32c" if what == "key" else "lengths_crc32c")
        with _told(path):
            if key not in self._keys[record["file"]]:
                raise DataLossError(f"{path}: tensor {name!r} is not there (it should have the key {key!r})")
            there = file.get_slice(key)
            got_code, got = there.get_dtype(), tuple(there.get_shape())
        if got_code != code or (got != shape if shape is not None else len(got) != 1):
            raise DataLossError(
                f"{path}: tensor {name!r} is {got_code}{list(got)}, and its index says {code}"
                f"{'' if shape is None else list(shape)}; the two do not belong together"
            )

        def read() -> np.ndarray:
            with _told(path):
                out: np.ndarray = file.get_tensor(key)
            if crc32c(out) != crc:
                raise DataLossError(
                    f"{path}: Checksum does not match: tensor {name!r} is not what was saved. The file is damaged; use "
                    "an earlier checkpoint"
                )
            return out

        return read

    def _opened(self, i: int) -> Any:
        """Opens a data file, which stays open in case its name is reused."""
        if i not in self._open:
            import safetensors  # a slow import

            path, size = self.files[i]
            with RegularFile(path) as file:  # checks that it is not a pipe, for which safetensors would wait
                if file.size != size:
                    raise DataLossError(
                        f"{path}: it has {file.size} bytes, and its index says {size}; it was cut short or damaged"
                    )
            with _told(path):
                opened = safetensors.safe_open(path, framework="np")
                self._keys[i] = frozenset(opened.keys())  # type: ignore[no-untyped-call]
            self._open[i] = opened
        return self._open[i]


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Context in which an error of safetensors becomes a `DataLossError`."""
    import safetensors

    with named(path):
        try:
            yield
        except safetensors.SafetensorError as e:
            raise DataLossError(f"{path}: it is no sound file of safetensors: {e}") from None


def _checked_bools(x: np.ndarray) -> np.ndarray:
    if x.dtype == np.bool_ and x.size and x.view(np.uint8).max() > 1:
        raise DataLossError("a tensor of truth values has others than 0 and 1")
    return x


def _strings(lengths: np.ndarray, text: np.ndarray) -> np.ndarray:
    n = len(text)
    if lengths.size and (lengths.min() < 0 or lengths.max() > n):
        raise DataLossError("a tensor of strings has absurd lengths")
    if sum(lengths.tolist()) != n:
        raise DataLossError("a tensor of strings has other lengths than its text")
    out, data, start = np.empty(len(lengths), object), text.tobytes(), 0
    for i, end in enumerate(np.cumsum(lengths).tolist()):
        out[i] = data[start:end]
        start = end
    return out


# *** writing ***


@record
class _Stored:
    """Array to write to a safetensors file.

    Attributes:
      key: Its name in the file.
      code: Its dtype in safetensors' notation.
      shape: Its shape.
      size: Its size in bytes.
      value: Numbers, or strings whose bytes are stored one after the other.
      note: The record and the field of the index for the checksum, which is known after the write.
    """

    key: str
    code: str
    shape: tuple[int, ...]
    size: int
    value: np.ndarray | list[bytes]
    note: tuple[dict[str, Any], str]

    def write(self, file: BinaryIO) -> None:
        crc = 0
        chunks = self.value
        if isinstance(chunks, np.ndarray):
            chunks = [as_bytes(little_endian(chunks))]  # type: ignore[list-item]
        for chunk in chunks:
            file.write(chunk)
            crc = crc32c(chunk, crc)
        record, name = self.note
        record[name] = crc


class _Tensors:
    """Contents of one file in construction, with the records of its tensors."""

    def __init__(self) -> None:
        self.stored: list[_Stored] = []
        self.records: dict[str, dict[str, Any]] = {}
        self._taken = {"__metadata__"}  # a key of safetensors itself

    def add(self, piece: ManifestEntry) -> None:
        whole: dict[str, Any] = {"dtype": piece.dtype.name, "shape": list(piece.shape)}
        if piece.part is None:
            self.records[piece.name] = self._stored(piece, piece.name, whole)
            return
        record = self.records.setdefault(piece.name, whole | {"stored": "parts", "parts": []})
        record["parts"].append(self._stored(piece, f"{piece.name}#{piece.part}", {"part": str(piece.part)}))

    def _stored(self, piece: ManifestEntry, name: str, record: dict[str, Any]) -> dict[str, Any]:
        """Adds the array of `piece`, and its storage to `record`, which is returned."""
        value, dtype = piece.value, piece.dtype
        record["stored"] = "bytes" if dtype is dtypes.string else "pairs" if dtype in _HALF else "numbers"
        if dtype is dtypes.string:
            strings: list[bytes] = value.reshape(-1).tolist()
            lengths = np.fromiter(map(len, strings), np.int64, len(strings))
            self._store(record, "lengths", f"{name}#lengths", dtypes.int64, lengths)
            self._store(record, "key", name, dtypes.uint8, strings, int(lengths.sum()))
        elif dtype in _HALF:
            # a contiguous complex array has the memory of an array of twice as many real numbers
            pairs = np.ascontiguousarray(value).reshape(*value.shape, 1).view(_HALF[dtype].numpy)
            self._store(record, "key", name, _HALF[dtype], pairs)
        else:
            self._store(record, "key", name, dtype, value)
        return record

    def _store(
        self, record: dict[str, Any], what: str, name: str, dtype: DType, value: Any, size: int | None = None
    ) -> None:
        # keys of safetensors are text, so bytes that are not UTF-8 are escaped
        key = base = name.encode("utf-8", "backslashreplace").decode()
        n = 1
        while key in self._taken:
            n += 1
            key = f"{base}#{n}"
        self._taken.add(key)
        record["file"], record[what] = 0, key
        shape = value.shape if size is None else (size,)
        size = value.size * dtype.size if size is None else size
        note = (record, "crc32c" if what == "key" else "lengths_crc32c")
        self.stored.append(_Stored(key, _CODES[dtype.numpy.name], shape, size, value, note))

    def write(self, file: BinaryIO) -> None:
        # the widest dtypes first, so that each array is aligned to its width
        stored = sorted(self.stored, key=lambda s: -_WIDTH[s.code])
        header: dict[str, Any] = {}
        at = 0
        for s in stored:
            header[s.key] = {"dtype": s.code, "shape": s.shape, "data_offsets": [at, at + s.size]}
            at += s.size
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-len(text) % 8)
        if len(text) > _MOST_HEADER:
            raise InvalidArgumentError(
                f"safetensors files have headers of at most {_MOST_HEADER} bytes, and that of {len(stored)} tensors "
                f"would have {len(text)}; save fewer in one file, or in TensorFlow's format"
            )
        file.write(len(text).to_bytes(8, "little") + text)
        for s in stored:
            s.write(file)


def write(prefix: str, pieces: Iterable[ManifestEntry]) -> None:
    """Writes a checkpoint and replaces an existing one of the same name.

    Args:
      prefix: The path of the files without ".index.json". The folder must exist.
      pieces: The tensors, or parts of tensors.

    Raises:
      InvalidArgumentError: Two tensors have one name, or parts do not belong together.
      NotFoundError, PermissionDeniedError, ResourceExhaustedError: The system refused an operation.
    """
    # The writer of safetensors keeps a copy of all tensors in memory, or leaves files under its own names when it is
    # killed. The format is a header and the bytes, so it is written here.
    tensors = _Tensors()
    for piece in distinct(pieces):
        tensors.add(piece)
    (path,) = _free(prefix, 1)
    with commit.replacing(path) as file:
        tensors.write(file)
        size = file.tell()
    _finish(prefix, {path: size}, tensors.records)


def _free(prefix: str, n: int) -> list[str]:
    """Paths for `n` data files that do not exist yet."""
    found = (_data_name(prefix).fullmatch(os.path.basename(path)) for path in data_files(prefix))
    taken = {int(m[1] or 0) for m in found if m is not None}
    if n == 1 and 0 not in taken:
        return [data_path(prefix)]
    total = next(k for k in range(max(n, 1), _MOST_FILES) if k not in taken)
    return [data_path(prefix, i, total) for i in range(n)]


def _finish(prefix: str, files: Mapping[str, int], records: Mapping[str, Any]) -> None:
    """Writes the index, which completes the checkpoint, and deletes the replaced data."""
    about = [{"name": os.path.basename(path), "bytes": size} for path, size in files.items()]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(record)}" for name, record in records.items())
    rest = f'"files": {json.dumps(about)},\n"tensors": {{\n{lines}\n}}}}\n'.encode()
    line = f'{{"headrace_checkpoint": {VERSION}, "crc32c": {crc32c(rest)}, "bytes": {len(rest)},\n'
    with commit.replacing(index_path(prefix)) as file:
        file.write(line.encode() + rest)
    delete(path for path in data_files(prefix) if path not in files)


def merge(sources: Sequence[Native], destination: str) -> None:
    """Merges checkpoints by renaming their data files; their indexes are deleted.

    Args:
      sources: The checkpoints. A tensor may be in several of them only in parts.
      destination: The path of the files of the new checkpoint.

    Raises:
      InvalidArgumentError: Two checkpoints contain the same tensor, or parts of one that do not belong together.
    """
    old: list[str] = []
    records: dict[str, Any] = {}
    for source in sources:
        for name, about in source.records.items():
            moved = _moved(about, len(old))
            there = records.setdefault(name, moved)
            if there is moved:
                continue
            if "parts" not in there or "parts" not in about:
                raise InvalidArgumentError(
                    f"Duplicate tensor keyed by {name!r} encountered, when merging prefix: {source.prefix}"
                )
            if (there["dtype"], there["shape"]) != (about["dtype"], about["shape"]):
                raise InvalidArgumentError(
                    f"tensor {name!r} has parts of wholes that differ in dtype or shape, when merging prefix: "
                    f"{source.prefix}"
                )
            there["parts"] += moved["parts"]
            if len({p["part"] for p in there["parts"]}) < len(there["parts"]):
                raise InvalidArgumentError(f"a part of tensor {name!r} is in {source.prefix} and another checkpoint")
        old += [path for path, _ in source.files]
    sizes = [size for s in sources for _, size in s.files]
    new = _free(destination, len(old))
    for source_path, path in zip(old, new, strict=True):
        commit.move(source_path, path)
    commit.sync_folder(commit.folder_of(destination))
    _finish(destination, dict(zip(new, sizes, strict=True)), records)
    for source in sources:
        if source.prefix != destination:
            delete([index_path(source.prefix), *data_files(source.prefix)])


def _moved(record: Mapping[str, Any], by: int) -> dict[str, Any]:
    """A copy of a record whose file numbers are increased by `by`."""
    out = dict(record)
    if "parts" in out:
        out["parts"] = [_moved(p, by) for p in out["parts"]]
    else:
        out["file"] += by
    return out
