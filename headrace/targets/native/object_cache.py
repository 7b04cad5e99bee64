"""Object files of native code on disk, for later processes.

Each file is named by a digest of all that determines the code: the text of the module, the version of LLVM and the
processor. A file is loaded as machine code, so it must be whole and written by this user:

* The folder belongs to the user and no other user may write into it (`_is_safe`). Otherwise nothing is read or written.
* A file is a regular file of the user, opened without following links. Its head has the key and a digest of the rest.
  A file that differs in anything is not loaded, and is replaced by the next `save`.
* `save` writes another file and renames it, so processes that run at the same time see the old content or the new one.

The cache is an aid alone: an error of the file system is no error of the step. The sum of the sizes is bounded, and the
files that were loaded least recently are removed first. The time of the last change of a file is the time of its last
use.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import time
from typing import Final

from headrace import flags, thresholds

_MAGIC: Final = b"headrace object 1\n"  # a new format has a new number
_DIGEST: Final = 32
_HEAD: Final = len(_MAGIC) + 2 * _DIGEST
_SUFFIX: Final = ".object"


def key(*parts: str) -> bytes:
    """Digest of all texts that determine the code."""
    digest = hashlib.sha256(_MAGIC)
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.digest()


def load(of: bytes) -> bytes | None:
    """The object file of a key; None if there is no valid one."""
    directory = flags.cache_folder()
    if not (directory and _is_safe(directory)):
        return None
    path = _path(directory, of)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            about = os.fstat(descriptor)
            is_own = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022
            if not (is_own and _HEAD < about.st_size <= _HEAD + thresholds.CACHED_OBJECT_BYTES):
                return None
            content = file.read(about.st_size)
    except OSError:
        return None
    code = content[_HEAD:]
    if content[:_HEAD] != _head(of, code):
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return code


def save(of: bytes, code: bytes) -> None:
    """Writes the object file of a key, if the folder can be used."""
    directory = flags.cache_folder()
    if not directory or len(code) > thresholds.CACHED_OBJECT_BYTES:
        return
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(directory), exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(directory, 0o700)
        if not _is_safe(directory):
            return
        descriptor, temporary = tempfile.mkstemp(_UNFINISHED, dir=directory)  # with the mode 0600
        try:
            with open(descriptor, "wb") as file:
                file.write(_head(of, code) + code)
            os.replace(temporary, _path(directory, of))
        except BaseException:
            os.unlink(temporary)
            raise
        _shrink(directory)


_UNFINISHED: Final = ".unfinished"


def _head(of: bytes, code: bytes) -> bytes:
    return _MAGIC + of + hashlib.sha256(of + code).digest()


def _path(directory: str, of: bytes) -> str:
    return os.path.join(directory, of.hex() + _SUFFIX)


def _is_safe(directory: str) -> bool:
    """Whether a folder is the user's and no other user may write into it."""
    try:
        about = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and not about.st_mode & 0o022


def _shrink(directory: str) -> None:
    """Removes files until the sizes of the others are within the bound."""
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.endswith((_SUFFIX, _UNFINISHED)):
                with contextlib.suppress(FileNotFoundError):  # another process removes files too
                    about = entry.stat(follow_symlinks=False)
                    if entry.name.endswith(_SUFFIX) or about.st_mtime < time.time() - thresholds.ABANDONED_WRITE:
                        found.append((about.st_mtime, about.st_size, entry.path))
    size = sum(each for _, each, _ in found)
    for _, each, path in sorted(found):
        if size <= thresholds.OBJECT_CACHE_BYTES:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        size -= each
