"""Checkpoints: named tensors in files, in headrace's own format (`native`) or TensorFlow's (`bundle`, `checkpoint_v1`).

The name of a checkpoint is a *prefix*: the path of its files without their endings, relative to the working folder. It
may be any path whose last part is a name (not empty, ".", ".."). The prefix alone determines the files that are read
and written: the index and the data next to it with that name, and temporary files in the same folder during a write.
The contents of the files never lead to other files. The format of a checkpoint is detected when it is opened. (For
TensorFlow's version 1, a prefix may also be a pattern of files, `model-?????-of-00002`.)

Writing is atomic: until `write` or `merge` returns, the previous checkpoint of the prefix is complete, and afterwards
the new one is. Reading verifies the checksum of everything that it returns.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import numpy as np

from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.files import bundle, checkpoint_v1, commit, native, system
from headrace.files.manifest import ManifestEntry, TensorEntry
from headrace.files.regular import check_path, delete, named
from headrace.files.slices import TensorSlice

FORMATS: Final = ("native", "tensorflow")  # the formats that can hold every tensor
_WRITERS: Final = {"native": native.write, "tensorflow": bundle.write, "tensorflow-v1": checkpoint_v1.write}


class Reader(Protocol):
    """Checkpoint for reading.

    Attributes:
      prefix: The path of its files without their endings.
      format: The format: "native", "tensorflow" or "tensorflow-v1".
      entries: The dtype and the shape of each tensor.
    """

    prefix: str
    format: str
    entries: dict[str, TensorEntry]

    def read(self, name: str, part: TensorSlice | None = None) -> np.ndarray:
        """Reads a tensor or a part of it, and verifies its checksum.

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


def check_prefix(prefix: str) -> str:
    """Returns `prefix` if it is valid for a checkpoint.

    Raises:
      InvalidArgumentError: It is not valid; see the module's text.
    """
    if os.path.basename(check_path(prefix, "prefix")) in ("", os.curdir, os.pardir):
        raise InvalidArgumentError(
            f"prefix {prefix!r} is a folder; that of a checkpoint is a path with a name at its end, as folder/model"
        )
    return prefix


def exists(prefix: str) -> bool:
    """Whether a checkpoint of this prefix exists, damaged or not."""
    check_prefix(prefix)
    indexes = native.index_path(prefix), bundle.index_path(prefix)
    return any(system.exists(path) for path in indexes) or bool(checkpoint_v1.paths(prefix))


def modified(prefix: str) -> float | None:
    """Time of the write of a checkpoint in seconds since 1970; None without one."""
    for path in (native.index_path(prefix), bundle.index_path(prefix), *checkpoint_v1.paths(prefix)[:1]):
        try:
            return system.stat(path).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def open(prefix: str, maps: bool = False) -> Reader:
    """Opens the checkpoint of a prefix.

    If several formats exist (because a program was killed before it deleted the checkpoint it replaced), the native one
    takes precedence, then TensorFlow's version 2.

    Args:
      prefix: The prefix.
      maps: Whether the arrays of large tensors may be memory of their files, which must not change as long as the
        arrays exist (`files.regular.MappedFile`). Only tensors of TensorFlow's format are.

    Returns:
      The checkpoint.

    Raises:
      NotFoundError: There is no checkpoint.
      DataLossError: The index is damaged.
      UnimplementedError: The form of the checkpoint is not supported.
    Example:
      >>> import os, tempfile
      >>> import numpy as np
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     write(os.path.join(folder, "model"), {"w": np.float32([1, 2])})
      ...     sorted(os.listdir(folder))
      ...     open(os.path.join(folder, "model")).read("w")
      ['model.index.json', 'model.safetensors']
      array([1., 2.], dtype=float32)
    """
    check_prefix(prefix)
    if system.lexists(native.index_path(prefix)):
        return native.Native(prefix)
    if system.lexists(bundle.index_path(prefix)):
        return bundle.Bundle(prefix, maps)
    if checkpoint_v1.paths(prefix):
        return checkpoint_v1.First(prefix)
    raise NotFoundError(
        f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {prefix}: there is neither "
        f"{native.index_path(prefix)} (a checkpoint of headrace) nor {bundle.index_path(prefix)} (one of TensorFlow)"
    )


def write(
    prefix: str, tensors: Mapping[str, np.ndarray | np.generic] | Iterable[ManifestEntry], format: str = "native"
) -> None:
    """Writes a checkpoint and replaces an existing one of the same prefix.

    Args:
      prefix: The prefix; see the module's text. Its folder is made if the parent folder exists, as TensorFlow does.
      tensors: Arrays by name, or `ManifestEntry`s, which may be parts of tensors.
      format: The format: "native", "tensorflow", or "tensorflow-v1" for TensorFlow's version 1.

    Raises:
      InvalidArgumentError: Two tensors have one name, or a tensor cannot be stored.
      NotFoundError, PermissionDeniedError, ResourceExhaustedError: The system refused an operation. The previous
        checkpoint is unchanged.
    """
    check_prefix(prefix)
    if isinstance(tensors, Mapping):
        pieces = [ManifestEntry.of(name, value) for name, value in tensors.items()]
    else:
        pieces = list(tensors)
    if format not in _WRITERS:
        raise InvalidArgumentError(f"a checkpoint's format is one of {', '.join(_WRITERS)}, got {format!r}")
    _make_folder(prefix)
    _WRITERS[format](prefix, pieces)
    _keep_only(format, prefix)


def merge(
    prefixes: Sequence[str], destination: str, delete_old_dirs: bool = True, allow_missing_files: bool = False
) -> None:
    """Merges checkpoints of one format by renaming their data files, so they no longer exist.

    Args:
      prefixes: The prefixes of the checkpoints, each with tensors, or parts of tensors, of its own.
      destination: The prefix of the new checkpoint.
      delete_old_dirs: Whether to delete the folders of the checkpoints, if they are empty and not the new one's.
      allow_missing_files: Whether to ignore checkpoints that do not exist.

    Raises:
      NotFoundError: One of the checkpoints does not exist, or none of them.
      InvalidArgumentError: Two of them contain the same tensor, or they have different formats.
    """
    check_prefix(destination)
    sources: list[Reader] = []
    for prefix in dict.fromkeys(prefixes):
        if allow_missing_files and not exists(prefix):
            continue
        sources.append(open(prefix))
    if not sources:
        raise NotFoundError(f"none of the checkpoints to merge is there: {', '.join(prefixes) or 'no prefix is given'}")
    _make_folder(destination)
    if any(isinstance(s, checkpoint_v1.First) for s in sources):
        raise InvalidArgumentError(
            "checkpoints of TensorFlow's first version are not merged: their files, named as its sharded ones are, are "
            "one checkpoint as they stand"
        )
    natives = [s for s in sources if isinstance(s, native.Native)]
    bundles = [s for s in sources if isinstance(s, bundle.Bundle)]
    if natives and bundles:
        raise InvalidArgumentError(
            f"{natives[0].prefix} is a checkpoint of headrace, and {bundles[0].prefix} one of TensorFlow: the two "
            "cannot be merged; save all parts in one format"
        )
    if natives:
        native.merge(natives, destination)
    else:
        bundle.merge(bundles, destination)
    _keep_only(sources[0].format, destination)
    if delete_old_dirs:
        here = os.path.abspath(commit.folder_of(destination))
        for folder in dict.fromkeys(commit.folder_of(s.prefix) for s in sources):
            if os.path.abspath(folder) != here:
                _remove_if_empty(folder)


def check(prefix: str) -> None:
    """Reads all tensors of a checkpoint, one after the other, and verifies every checksum.

    Raises:
      DataLossError: The checkpoint is damaged; other errors are those of `open` and `Reader.read`.
    """
    reader = open(prefix)
    for name in reader.entries:
        reader.read(name)


def files_of(prefix: str) -> list[str]:
    """Files of a prefix: the indexes first, then the data, including that of unfinished writes."""
    check_prefix(prefix)
    indexes = [path for path in (native.index_path(prefix), bundle.index_path(prefix)) if system.lexists(path)]
    return [*indexes, *native.data_files(prefix), *bundle.data_files(prefix), *checkpoint_v1.data_files(prefix)]


def remove(prefix: str) -> None:
    """Deletes a checkpoint if it exists, its index first.

    So a checkpoint that is only partly deleted is no longer valid.
    """
    paths = files_of(prefix)
    if paths:
        delete(paths)
        commit.sync_folder(commit.folder_of(prefix))


def sweep(folder: str) -> list[str]:
    """Deletes the temporary files that killed writers left in `folder`; returns their paths.

    Files that a living process of this machine writes are kept.
    """
    return commit.sweep(folder)


def _keep_only(format: str, prefix: str) -> None:
    """Deletes the files of other formats under this prefix, whose checkpoint was just replaced."""
    doomed = []
    for name, other in (("native", native), ("tensorflow", bundle)):
        index = other.index_path(prefix)
        if name != format and system.lexists(index):
            doomed += [index, *other.data_files(prefix)]
    if format != "tensorflow-v1":
        doomed += checkpoint_v1.data_files(prefix)
    if doomed:
        delete(doomed)
        commit.sync_folder(commit.folder_of(prefix))


def _make_folder(prefix: str) -> None:
    folder = commit.folder_of(prefix)
    with named(folder):
        try:
            system.mkdir(folder)
        except FileExistsError:
            return


def _remove_if_empty(folder: str) -> None:
    try:
        system.rmdir(folder)
    except OSError:  # it is not empty or does not exist; TensorFlow leaves it, too
        return
