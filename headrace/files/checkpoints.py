"""Checkpoints: named tensors in files, in headrace's own format (`native`) or TensorFlow's (`bundle`, `checkpoint_v1`).

A checkpoint is named by a *prefix*: the path of its files without their endings, relative ones from the working folder.
It may be any path whose last part is a name (not empty, ".", ".."), and says all there is about which files are
touched: these are the index and the data beside it that carry the name, and temporary files in the same folder while
one is written. What is in a checkpoint's files never leads anywhere else. Which format a checkpoint has is found out
when it is opened. (Of TensorFlow's first version a prefix may also be a pattern of files, `model-?????-of-00002`.)

Writing is one step: until `write` or `merge` is done, the checkpoint that was there under this prefix is whole, and
afterwards the new one is. Reading checks the checksum of everything that it gives back.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import numpy as np

from headrace.errors import InvalidArgumentError, NotFoundError
from headrace.files import bundle, checkpoint_v1, commit, native
from headrace.files.manifest import ManifestEntry, TensorEntry
from headrace.files.regular import check_path, delete, named
from headrace.files.slices import TensorSlice

FORMATS: Final = ("native", "tensorflow")  # those that can hold every tensor
_WRITERS: Final = {"native": native.write, "tensorflow": bundle.write, "tensorflow-v1": checkpoint_v1.write}


class Reader(Protocol):
    """A checkpoint that is there.

    Attributes:
      prefix: the path of its files without their endings.
      format: "native", "tensorflow" or "tensorflow-v1".
      entries: the dtype and the shape of each tensor.
    """

    prefix: str
    format: str
    entries: dict[str, TensorEntry]

    def read(self, name: str, part: TensorSlice | None = None) -> np.ndarray:
        """A tensor, or a part of it, whose checksum is right.

        Raises:
          NotFoundError: there is no such tensor.
          DataLossError: it is damaged.
          InvalidArgumentError: it has no such part, or a dtype that headrace does not have.
        """


def check_prefix(prefix: str) -> str:
    """`prefix`, if it can be one of a checkpoint.

    Raises:
      InvalidArgumentError: it cannot; see the module's text.
    """
    if os.path.basename(check_path(prefix, "prefix")) in ("", os.curdir, os.pardir):
        raise InvalidArgumentError(
            f"prefix {prefix!r} is a folder; that of a checkpoint is a path with a name at its end, as folder/model"
        )
    return prefix


def exists(prefix: str) -> bool:
    """Whether there is a checkpoint, sound or not, of this prefix."""
    check_prefix(prefix)
    indexes = native.index_path(prefix), bundle.index_path(prefix)
    return any(os.path.exists(path) for path in indexes) or bool(checkpoint_v1.paths(prefix))


def modified(prefix: str) -> float | None:
    """When the checkpoint of this prefix was written, in seconds since 1970; None if there is none."""
    for path in (native.index_path(prefix), bundle.index_path(prefix), *checkpoint_v1.paths(prefix)[:1]):
        try:
            return os.stat(path).st_mtime
        except (FileNotFoundError, NotADirectoryError):
            continue
    return None


def open(prefix: str) -> Reader:
    """The checkpoint of a prefix.

    Where several formats are there (a program was killed before it deleted the one it replaced) the native one counts,
    then TensorFlow's second.

    Raises:
      NotFoundError: there is none.
      DataLossError: its index is damaged.
      UnimplementedError: it is of a form that is not read.

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
    if os.path.lexists(native.index_path(prefix)):
        return native.Native(prefix)
    if os.path.lexists(bundle.index_path(prefix)):
        return bundle.Bundle(prefix)
    if checkpoint_v1.paths(prefix):
        return checkpoint_v1.First(prefix)
    raise NotFoundError(
        f"Unsuccessful TensorSliceReader constructor: Failed to find any matching files for {prefix}: there is neither "
        f"{native.index_path(prefix)} (a checkpoint of headrace) nor {bundle.index_path(prefix)} (one of TensorFlow)"
    )


def write(prefix: str, tensors: Mapping[str, np.ndarray] | Iterable[ManifestEntry], format: str = "native") -> None:
    """Writes a checkpoint, in place of the one of the same prefix if there is one.

    Args:
      prefix: see the module's text. Its folder is made if the folder above is there, as TensorFlow does.
      tensors: arrays by name, or `Piece`s, which can be parts of tensors.
      format: "native", "tensorflow", or "tensorflow-v1", TensorFlow's first version.

    Raises:
      InvalidArgumentError: there are two tensors of a name, or one has no form in files.
      NotFoundError, PermissionDeniedError, ResourceExhaustedError, ...: as the system says. What was there is there
        still.
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
    """Makes one checkpoint of several of one format. Their data is not copied but renamed, so they are gone afterwards.

    Args:
      prefixes: of the checkpoints, each with tensors, or parts of tensors, of its own.
      destination: the prefix of the new one.
      delete_old_dirs: whether to delete the folders they were in, where these are empty now and not the new one's.
      allow_missing_files: whether those that are not there are left out.

    Raises:
      NotFoundError: one of them is not there, or none is.
      InvalidArgumentError: two of them have the same tensor, or they are of different formats.
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
    """Reads all of a checkpoint, one tensor after the other, and compares every checksum.

    Raises:
      DataLossError: it is damaged; `open` and `Reader.read` say how else this can fail.
    """
    reader = open(prefix)
    for name in reader.entries:
        reader.read(name)


def files_of(prefix: str) -> list[str]:
    """The files that belong to a prefix: the index first, then the data, that of unfinished writes too."""
    check_prefix(prefix)
    indexes = [path for path in (native.index_path(prefix), bundle.index_path(prefix)) if os.path.lexists(path)]
    return [*indexes, *native.data_files(prefix), *bundle.data_files(prefix), *checkpoint_v1.data_files(prefix)]


def remove(prefix: str) -> None:
    """Deletes a checkpoint, its index first: what is half deleted is none. Nothing happens if there is none."""
    paths = files_of(prefix)
    if paths:
        delete(paths)
        commit.sync_folder(commit.folder_of(prefix))


def sweep(folder: str) -> list[str]:
    """Deletes the temporary files that writers left in `folder` who were killed; gives their paths.

    What is being written by a living process of this machine stays.
    """
    return commit.sweep(folder)


def _keep_only(format: str, prefix: str) -> None:
    """Deletes what is of the other formats: the checkpoint of this prefix that was just replaced."""
    doomed = []
    for name, other in (("native", native), ("tensorflow", bundle)):
        index = other.index_path(prefix)
        if name != format and os.path.lexists(index):
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
            os.mkdir(folder)
        except FileExistsError:
            return


def _remove_if_empty(folder: str) -> None:
    try:
        os.rmdir(folder)
    except OSError:  # not empty, or gone: TensorFlow too leaves it
        return
