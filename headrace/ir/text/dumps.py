"""Dumps of graphs, one file for each stage that a step passes (HEADRACE_DUMP).

    FOLDER/step-1/01-pruned.txt
                  02-fold.txt
                  03-source.py

Each step has a new folder: steps of other sessions, threads and processes take the next number. The graphs are in the
text form that `ir.text.from_text` reads.
"""

from __future__ import annotations

import itertools
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headrace import flags, forking
from headrace.errors import GraphError, InvalidArgumentError
from headrace.ir.text import to_text

if TYPE_CHECKING:
    from headrace.ir.graph import Graph


class Dumps:
    """Dump files of one step; no files if the flag is not set at creation.

    Methods raise:
      InvalidArgumentError: a file or folder cannot be written.
      GraphError: the graph has no text form.
    """

    def __init__(self) -> None:
        self._root: str = flags.DUMP.value
        self._folder: Path | None = None  # created with the first file
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock after a fork; see `forking`."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether dumps are written."""
        return bool(self._root)

    @property
    def is_empty(self) -> bool:
        """Whether no file has been written yet."""
        return self._folder is None

    def graph(self, stage: str, graph: Graph) -> None:
        """Writes `graph` as it is after `stage`."""
        if not self:
            return
        try:
            text = to_text(graph)
        except GraphError as e:
            e.add_note(f"while the graph after {stage!r} was written to {self._root!r} (HEADRACE_DUMP)")
            raise
        self.text(f"{stage}.txt", text)

    def text(self, name: str, text: str) -> None:
        """Writes `text`, unless it is empty, to the file `name` with a number as prefix."""
        if not self or not text:
            return
        try:
            with self._lock:
                if self._folder is None:
                    self._folder = _new_folder(Path(self._root))
                path = self._folder / f"{next(self._numbers):02d}-{_safe(name)}"
            path.write_text(text, encoding="utf-8")
        except OSError as e:
            raise InvalidArgumentError(
                f"HEADRACE_DUMP={self._root!r}: cannot write {e.filename!r}: {e.strerror}. Name a folder that can be "
                "made and written to, or leave the variable unset."
            ) from e


def _safe(name: str) -> str:
    """Returns `name` as a valid file name.

    Names of library functions may be arbitrary and long.
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[-100:]


def _new_folder(root: Path) -> Path:
    """Creates the first of root/step-1, root/step-2, ... that does not exist."""
    root.mkdir(parents=True, exist_ok=True)
    for k in itertools.count(1 + sum(1 for _ in root.glob("step-*"))):
        folder = root / f"step-{k}"
        try:
            folder.mkdir()
        except FileExistsError:  # another session, thread or process has just created it
            continue
        return folder
    raise AssertionError("there is always one more number")
