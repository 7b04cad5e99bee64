"""Source lines: the lines of the user's program that created operations.

`here()` searches the stack from the inside for the first frame outside of headrace, and keeps its file, line number and
function. `str()` of the result formats them.
"""

from __future__ import annotations

import contextlib
import os
import sys
from types import FrameType
from typing import NamedTuple

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# its decorators call functions of headrace; it calls a user's generator, whose frame is further inside
_PASSED = _PACKAGE, contextlib.__file__


class Source(NamedTuple):
    """Place in the user's code or, for an imported graph, in the imported file.

    Attributes:
      file: the path of the file.
      line: the line number; 0 if unknown.
      function: the name of the function, "" if unknown.
    """

    file: str
    line: int
    function: str = ""

    @property
    def brief(self) -> str:
        """File name without folder, and line: "train.py:12"; "" if the line is unknown."""
        return f"{os.path.basename(self.file)}:{self.line}" if self.line else ""

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where} in {self.function}" if self.function else where


def is_ours(file: str) -> bool:
    """Whether a source file is part of headrace."""
    return file.startswith(_PACKAGE)


def here(depth: int = 1) -> Source | None:
    """Returns the place of the innermost stack frame outside headrace, or None.

    Args:
      depth: a number of inner frames that are known to be headrace's.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if not file.startswith(_PASSED):
            return Source(file, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return None
