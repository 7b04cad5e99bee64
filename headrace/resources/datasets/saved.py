"""Datasets in folders of files: saved ones, and snapshots, which the first pass writes.

A folder has a record file of encoded elements (`state`) for each shard, and a description in JSON, which is written
last. It appears at its name when it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.errors import AlreadyExistsError, DataLossError, InvalidArgumentError, NotFoundError
from headrace.files import local, records, system
from headrace.resources.datasets import state
from headrace.resources.datasets.base import UNKNOWN, Call, Dataset, Element, Iterator, Pass, Through, no_state
from headrace.resources.datasets.element_file import ElementFile
from headrace.resources.datasets.elements import Elements
from headrace.resources.datasets.grouping import int64_scalar
from headrace.resources.datasets.mapping import made_dataset
from headrace.resources.datasets.state import Saved, State

if TYPE_CHECKING:
    from headrace.dtypes import DType

DESCRIPTION: Final = "dataset.json"
_MOST_SHARDS: Final = 1 << 20


def packing(compression: str) -> str:
    """Returns the compression of the files; "AUTO" and "SNAPPY" stand for none.

    Raises:
      InvalidArgumentError: it is unknown.
    """
    kind = "" if compression in ("AUTO", "SNAPPY", "NONE") else compression
    records.check_kind(kind)
    return kind


def description(path: str) -> dict[str, Any]:
    """Returns the description of the dataset in a folder.

    Raises:
      NotFoundError: the folder has none.
      DataLossError: the file is damaged.
    """
    name = os.path.join(path, DESCRIPTION)
    if not system.exists(name):
        raise NotFoundError(f"{path} has no saved dataset ({DESCRIPTION} is missing)")
    try:
        found = json.loads(local.whole(name))
    except (ValueError, RecursionError) as e:
        raise DataLossError(f"{name}: it cannot be read ({e})") from e
    number = found.get("shards") if isinstance(found, dict) else None
    if type(number) is not int or not 0 <= number <= _MOST_SHARDS:
        raise DataLossError(f"{name}: it does not describe a dataset")
    if found.get("compression") not in ("", "GZIP", "ZLIB"):
        raise DataLossError(f"{name}: an unknown compression")
    out: dict[str, Any] = found
    return out


class Writer:
    """Writer of a folder, complete when it is finished.

    Args:
      path: the folder.
      compression: "", "GZIP" or "ZLIB".
      shard: the function from an element to the number of its shard; None: all are in one.
    """

    def __init__(self, path: str, compression: str, shard: Call | None) -> None:
        self._path, self._compression, self._shard = path, compression, shard
        self._folder = f"{path.rstrip('/')}.{secrets.token_hex(8)}.tmp"
        self._files: dict[int, records.Writer] = {}
        local.made_folder(self._folder)
        self._discard = weakref.finalize(self, _discard, self._files, self._folder)

    def write(self, element: Element, run: Pass) -> None:
        """Writes an element.

        Raises:
          InvalidArgumentError: the number of its shard is negative or too large.
        """
        number = 0 if self._shard is None else int64_scalar(self._shard(element, run), "shard_func")
        if not 0 <= number < _MOST_SHARDS:
            raise InvalidArgumentError(
                f"`shard_func` returned {number}; shards have the numbers 0 to {_MOST_SHARDS - 1}"
            )
        if number not in self._files:
            name = os.path.join(self._folder, _shard_name(number))
            self._files[number] = records.Writer(name, compression=self._compression)
        self._files[number].write(state.encode(list(element)))

    def finish(self) -> None:
        """Writes the description, and gives the folder its name."""
        for file in self._files.values():
            file.close()
        numbers = sorted(self._files)
        for place, number in enumerate(numbers):  # shards without an element have no file
            if place != number:
                system.replace(*(os.path.join(self._folder, _shard_name(n)) for n in (number, place)))
        text = {"shards": len(numbers), "compression": self._compression}
        local.written(os.path.join(self._folder, DESCRIPTION), json.dumps(text).encode())
        self._discard.detach()
        try:
            system.replace(self._folder, self._path)
        except OSError as e:
            _discard({}, self._folder)
            if not system.exists(os.path.join(self._path, DESCRIPTION)):  # else another pass was faster
                raise AlreadyExistsError(f"{self._path} exists and is not a folder of a dataset ({e})") from e


def _shard_name(number: int) -> str:
    return f"{number:08}.shard"


def _discard(files: dict[int, records.Writer], folder: str) -> None:
    """Removes the files of a pass that was not completed."""
    for file in files.values():
        with contextlib.suppress(OSError):
            file.close()
    with contextlib.suppress(OSError, NotFoundError):
        for name in system.listdir(folder):
            system.unlink(os.path.join(folder, name))
        system.rmdir(folder)


def saved(dataset: Dataset, writer: Writer, run: Pass) -> None:
    """Writes the elements of a dataset."""
    take = dataset.iterator(run).next
    while (element := take()) is not None:
        run.check()
        writer.write(element, run)
    writer.finish()


class _Shard(Dataset):
    """Dataset of the elements of a shard."""

    def __init__(self, path: str, compression: str, types: Sequence[DType]) -> None:
        self.path, self.compression, self.types = path, compression, tuple(types)

    def iterator(self, run: Pass) -> Iterator:
        return _ShardIterator(run, self)


class _ShardIterator(ElementFile):
    __slots__ = ("_shard",)

    def __init__(self, run: Pass, shard: _Shard) -> None:
        super().__init__(run, shard.path, shard.compression)
        self._shard = shard

    def next(self) -> Element | None:
        element = super().next()
        if element is not None and [_kind(v) for v in element] != [t.numpy.kind for t in self._shard.types]:
            raise DataLossError(f"{self._shard.path}: element {self._at - 1} has other dtypes than its dataset")
        return element


def _kind(value: Any) -> str:
    return value.dtype.kind if isinstance(value, (np.ndarray, np.generic)) else "O"


def loaded(path: str, types: Sequence[DType], read: Call, run: Pass) -> Dataset:
    """Returns the dataset that a function makes of a folder's shards.

    Raises:
      NotFoundError: the folder has none.
      DataLossError: its description is damaged.
    """
    found = description(path)
    names = [os.path.join(path, _shard_name(i)) for i in range(found["shards"])]
    shards = Elements([(_Shard(name, found["compression"], types),) for name in names])
    return made_dataset(read((shards,), run))


class Loaded(Dataset):
    """Dataset of the elements in a folder.

    Args:
      path: the folder.
      types: the dtypes of the components.
      read: the function from the dataset of the shards to a dataset.
    """

    def __init__(self, path: str, types: Sequence[DType], read: Call) -> None:
        self._path, self._types, self._read = path, tuple(types), read

    def iterator(self, run: Pass) -> Iterator:
        return loaded(self._path, self._types, self._read, run).iterator(run)


class Snapshot(Dataset):
    """Dataset that its first complete pass writes to a folder.

    Args:
      input: the other dataset.
      path: the folder.
      types: the dtypes of the components.
      compression: that of the files.
      shard: the function from an element to the number of its shard.
      read: the function from the dataset of the shards to a dataset.
    """

    def __init__(
        self, input: Dataset, path: str, types: Sequence[DType], compression: str, shard: Call, read: Call
    ) -> None:
        self.inputs = (input,)
        self._path, self._types, self._compression = path, tuple(types), compression
        self._shard, self._read = shard, read

    def iterator(self, run: Pass) -> Iterator:
        if system.exists(os.path.join(self._path, DESCRIPTION)):
            return loaded(self._path, self._types, self._read, run).iterator(run)
        writer = Writer(self._path, self._compression, self._shard)
        return _SnapshotIterator(run, self.inputs[0].iterator(run), writer)

    def cardinality(self) -> int:
        n = self.inputs[0].cardinality()
        return n if n >= 0 else UNKNOWN


class _SnapshotIterator(Through):
    __slots__ = ("_writer",)

    def __init__(self, run: Pass, input: Iterator, writer: Writer) -> None:
        super().__init__(run, input)
        self._writer: Writer | None = writer

    def next(self) -> Element | None:
        found = self._input.next()
        if self._writer is not None:
            if found is not None:
                self._writer.write(found, self.run)
            else:
                self._writer.finish()
                self._writer = None
        return found

    def save(self) -> State:
        raise no_state("a snapshot that is being written to files")

    def restore(self, saved: Saved) -> None:
        self.save()
