"""Entries of native steps in the object cache, which spare later processes the printing.

The name of an object file is a digest of LLVM's text, and printing takes longer than all else that a step from the
cache needs of native code. An entry names the object file of regions and has the facts about their text. Its own name
is a digest of all that the text depends on: the signature of the regions (`signatures`), thresholds, flags, the
processor, and the printers. The latter are the source files of this package, and are compared as Python compares them
with its cache of byte code: by path, size and time of the last change.

An entry is a file like an object file, with the same checks. If one of the two files is missing, regions are printed.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace import flags, memo, thresholds
from headrace.records import record
from headrace.targets.native import object_cache

if TYPE_CHECKING:
    from headrace.targets.native.calls import Functions
    from headrace.targets.native.regions import NativeRegion

_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_FOLDERS: Final = (
    "",
    "opkit",
    "schedule",
    os.path.join("targets", "native"),
    os.path.join("targets", "native", "windows"),
)
_IMPORTED: Final = time.time_ns()
_FORM: Final = re.compile(rb"headrace step 1\n([0-9a-f]{64}) ([0-9a-f]{64}) ([01]) ([01]*)\n")


@record(frozen=True, slots=True)
class CachedStep:
    """Facts about the regions of a step whose object file is in the cache.

    Attributes:
      object_key: The key of the object file.
      text_digest: The SHA-256 digest of the module's text.
      uses_blas: Whether the module calls the BLAS library.
      have_parts: For each region that is compiled, whether several threads may run parts of an instruction. The regions
        behind these would take too long to compile.
    """

    object_key: bytes
    text_digest: bytes
    uses_blas: bool
    have_parts: tuple[bool, ...]


def digest(text: str) -> bytes:
    """The SHA-256 digest of a text."""
    return hashlib.sha256(text.encode()).digest()


@memo.cached(1, "state of source files")
def sources() -> str:
    """The state of the source files that determine native code; "" if it is unknown."""
    return _sources()


def key(regions: Sequence[NativeRegion], identity: str, functions: Functions) -> bytes | None:
    """The key of the entry of a step's regions.

    Args:
      regions: The regions.
      identity: The text about LLVM and the processor.
      functions: The native functions of the program.

    Returns:
      The key; None if the text of the regions or the state of the source files is unknown.
    """
    if not flags.cache_folder():
        return None
    from headrace.targets.native.signatures import signature  # here: not needed without a cache

    text, files = signature(regions, functions), sources()
    if text is None or not files:
        return None
    settings = [value for name, value in vars(thresholds).items() if name.isupper()]
    given = flags.VERIFY.value, flags.CALL_DEPTH.value, flags.accumulator_limit()
    return object_cache.key("step", files, identity, repr(settings), repr(given), text)


def load(of: bytes) -> CachedStep | None:
    """The entry of a key; None if there is no valid one."""
    content = object_cache.load(of)
    found = None if content is None else _FORM.fullmatch(content)
    if found is None:
        return None
    object_key, text, uses_blas, parts = found.groups()
    return CachedStep(
        bytes.fromhex(object_key.decode()),
        bytes.fromhex(text.decode()),
        uses_blas == b"1",
        tuple([part == ord("1") for part in parts]),
    )


def save(of: bytes, made: CachedStep) -> None:
    """Writes the entry of a key, unless source files have changed."""
    if _sources() != sources():
        return
    parts = "".join(str(int(part)) for part in made.have_parts)
    text = f"headrace step 1\n{made.object_key.hex()} {made.text_digest.hex()} {int(made.uses_blas)} {parts}\n"
    object_cache.save(of, text.encode())


def _sources() -> str:
    found = []
    try:
        for folder in _FOLDERS:
            with os.scandir(os.path.join(_PACKAGE, folder)) as entries:
                for entry in entries:
                    if entry.name.endswith(".py"):
                        about = entry.stat()
                        if about.st_mtime_ns > _IMPORTED:  # this process may have read another content
                            return ""
                        found.append(f"{folder}/{entry.name} {about.st_size} {about.st_mtime_ns}")
    except OSError:  # not in files, such as in a zip archive
        return ""
    return "\n".join([_PACKAGE, sys.version, np.__version__, *sorted(found)])
