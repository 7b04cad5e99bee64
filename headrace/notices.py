"""Messages other than results and errors: warnings at the user's line, and records for `logging`.

headrace writes nothing to standard output. Warnings go through the `warnings` module, as `HeadraceWarning` or
`DeprecationWarning`, so that the user's filters apply. Records go to the loggers `headrace.session`,
`headrace.placement` and `headrace.compile`, at the levels INFO and DEBUG, which a logger shows only on request.

`logging` is slow to import, so headrace never imports it for records. A program that has not imported it cannot have
requested records, and none are made.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceWarning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from logging import Logger
    from types import FrameType

_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
# files of frames that may lie between a line of the user (a `with`, an `import`) and a function of headrace
_BETWEEN: Final = (contextlib.__file__, importlib.__file__, "<frozen importlib")

DEBUG: Final = 10  # the numbers of `logging`
INFO: Final = 20
WARNING: Final = 30


def users_frame() -> FrameType | None:
    """Innermost frame outside headrace; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_PACKAGE, *_BETWEEN)):
            return frame
        frame = frame.f_back
    return None


def warn(message: str, category: type[Warning] = HeadraceWarning) -> None:
    """Warns at the responsible line of the user's code.

    By default Python shows a warning once for each line.

    Args:
      message: the text.
      category: the class of the warning.

    Example:
      >>> with warnings.catch_warnings(record=True) as caught:
      ...     warnings.simplefilter("always")
      ...     warn("so and so")
      >>> caught[0].category.__name__, str(caught[0].message)
      ('HeadraceWarning', 'so and so')
    """
    frame = users_frame()
    if frame is None:  # a thread of headrace
        warnings.warn(message, category, stacklevel=2)
        return
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    module = names.get("__name__", "<unknown>")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def listener(stage: str, level: int) -> Logger | None:
    """Logger "headrace.`stage`" if it takes records of `level`; else None."""
    if "logging" not in sys.modules:  # the program does not use it, so headrace does not import it either
        return None
    import logging  # waits until another thread that is importing it has finished

    log: Logger = logging.getLogger(f"headrace.{stage}")
    return log if log.isEnabledFor(level) and log.hasHandlers() else None


def inform(stage: str, lines: Iterable[str], asked: bool = False) -> None:
    """Makes a record of level INFO of each line.

    Args:
      stage: the last part of the logger's name.
      lines: the texts.
      asked: whether the user has requested them other than by logging. If so, lines that no logger takes are written to
        standard error.
    """
    log = listener(stage, INFO)
    if log is not None:
        for line in lines:
            log.info("%s", line, stacklevel=2)
    elif asked:
        sys.stderr.writelines(f"{line}\n" for line in lines)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Makes a DEBUG record of the duration of a stage of compilation."""
    log = listener("compile", DEBUG)
    if log is None:
        yield
        return
    began = time.perf_counter()
    yield
    log.debug("%s: %.3f ms", what, (time.perf_counter() - began) * 1e3, stacklevel=3)
