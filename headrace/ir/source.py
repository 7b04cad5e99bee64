"""Which line of the user's made an op.

`here()` walks the stack outwards to the first frame that is not headrace's own and keeps its code object and line
number; turning them into text is left to whoever prints them.
"""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Source(NamedTuple):
    """A place in the user's code (or, for an imported graph, in the file it came from)."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where} in {self.function}" if self.function else where


def is_ours(file: str) -> bool:
    """Whether a file of code is part of headrace."""
    return file.startswith(_PACKAGE)


def here() -> Source | None:
    """The innermost frame outside headrace, or None when there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            return Source(code.co_filename, frame.f_lineno, code.co_name)
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None
