"""What headrace tells beside results and errors: warnings, at the user's line, and records for Python's `logging`.

Nothing is written to standard output. Warnings go through the `warnings` module, as `HeadraceWarning` or
`DeprecationWarning`, so that the user's filters decide; records go to the loggers `headrace.session`,
`headrace.placement` and `headrace.compile`, at the levels INFO and DEBUG, so nothing is shown unless somebody asked
for it.

`logging` takes a while to import, so it is left to whoever wants to see something: as long as nobody has imported it,
nobody can have asked for records, and none are made.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceWarning

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from logging import Logger
    from types import FrameType

_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
# what may stand between a line of the user's (a `with`, an `import`) and a function of ours
_BETWEEN: Final = (contextlib.__file__, importlib.__file__, "<frozen importlib")

DEBUG: Final = 10  # `logging`'s numbers
INFO: Final = 20


def users_frame() -> FrameType | None:
    """The innermost frame outside headrace; None if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_PACKAGE, *_BETWEEN)):
            return frame
        frame = frame.f_back
    return None


def warn(message: str, category: type[Warning] = HeadraceWarning) -> None:
    """Warns, at the line of the user's code that is responsible. By default that is shown once for each line.

    Example:
      >>> with warnings.catch_warnings(record=True) as caught:
      ...     warnings.simplefilter("always")
      ...     warn("so and so")
      >>> caught[0].category.__name__, str(caught[0].message)
      ('HeadraceWarning', 'so and so')
    """
    frame = users_frame()
    if frame is None:  # a thread of ours
        warnings.warn(message, category, stacklevel=2)
        return
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    module = names.get("__name__", "<unknown>")
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, module, registry)


def listener(stage: str, level: int) -> Logger | None:
    """The logger "headrace.`stage`" if it takes records of `level`; None if nobody would see them."""
    logging: Any = sys.modules.get("logging")
    if logging is None:
        return None
    log: Logger = logging.getLogger(f"headrace.{stage}")
    return log if log.isEnabledFor(level) and log.hasHandlers() else None


def inform(stage: str, lines: Iterable[str], asked: bool = False) -> None:
    """Makes a record of level INFO of each line.

    Args:
      asked: whether the user has asked for them by other means than logging: then they are written to standard error
        if no logger takes them.
    """
    log = listener(stage, INFO)
    if log is not None:
        for line in lines:
            log.info("%s", line, stacklevel=2)
    elif asked:
        sys.stderr.writelines(f"{line}\n" for line in lines)


@contextlib.contextmanager
def timed(what: str) -> Iterator[None]:
    """Makes a record of level DEBUG of how long the block, or the function, took: a stage of compiling a step."""
    log = listener("compile", DEBUG)
    if log is None:
        yield
        return
    began = time.perf_counter()
    yield
    log.debug("%s: %.3f ms", what, (time.perf_counter() - began) * 1e3, stacklevel=3)
