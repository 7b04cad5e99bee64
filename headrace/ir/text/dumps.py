"""Graphs on disk, a file for each stage that a step goes through (HEADRACE_DUMP).

    FOLDER/step-1/01-pruned.txt
                  02-fold.txt
                  03-source.py

Each step has a folder of its own, which nobody had before: steps of other sessions, threads and processes take the next
number. The graphs are text that `ir.text.from_text` reads.
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
    """The files of one step; none if the flag is not set when this is made.

    Methods raise:
      InvalidArgumentError: a file or folder cannot be written.
      GraphError: the graph has no text.
    """

    def __init__(self) -> None:
        self._root: str = flags.DUMP.value
        self._folder: Path | None = None  # made when there is something to be written
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """See `forking`."""
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        """Whether anything will be written."""
        return bool(self._root)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been written yet."""
        return self._folder is None

    def graph(self, stage: str, graph: Graph) -> None:
        """Writes `graph`, as `stage` left it."""
        if not self:
            return
        try:
            text = to_text(graph)
        except GraphError as e:
            e.add_note(f"while the graph after {stage!r} was written to {self._root!r} (HEADRACE_DUMP)")
            raise
        self.text(f"{stage}.txt", text)

    def text(self, name: str, text: str) -> None:
        """Writes `text`, unless it is empty, to a file called `name`, with its number before it."""
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
    """`name`, for a file: functions of a library may be called anything, and be called it at any length."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[-100:]


def _new_folder(root: Path) -> Path:
    """Makes the first of root/step-1, root/step-2, ... that is not there yet."""
    root.mkdir(parents=True, exist_ok=True)
    for k in itertools.count(1 + sum(1 for _ in root.glob("step-*"))):
        folder = root / f"step-{k}"
        try:
            folder.mkdir()
        except FileExistsError:  # of another session, thread or process, a moment ago
            continue
        return folder
    raise AssertionError("there is always one more number")
