"""Tracebacks without the frames of headrace.

try:
    ...
except BaseException as e:
    tracebacks.hide(e)
    raise

A traceback for the user has the user's frames and, for each call of headrace, one line: the function that the user
called. `hide` removes the others where an error leaves the package: in `Session.run`, builders and jitted functions,
and by the decorator `entry` in functions that trace the user's functions. A `try` block costs nothing unless it raises.

Only errors that are meant for the user lose frames: headrace's own classes, errors that a statement `raise` of headrace
raises, and errors of the user's functions. Errors that indicate a defect keep all frames: `HeadraceInternalError`,
`InternalError`, a failed `assert`, and errors that Python or numpy raise in the code of headrace. The flag
`HEADRACE_TRACEBACK=full` keeps all frames of all errors. The exception, its notes, its `__cause__` and its
`__context__` remain the same objects; `full` returns the removed frames, for reports and debuggers.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import numpy as np

from headrace import flags
from headrace.errors import HeadraceError, HeadraceInternalError, InternalError, UnknownError

if TYPE_CHECKING:
    from types import FrameType

P = ParamSpec("P")
R = TypeVar("R")

_PACKAGE: Final = os.path.dirname(os.path.abspath(__file__)) + os.sep
_COMPILED: Final = "<compiled"  # beginning of the file name of generated code
_STANDARD: Final = os.path.dirname(os.__file__) + os.sep, "<frozen "
_PACKAGES: Final = os.sep + "site-packages" + os.sep  # folder of packages, which may be in that of the standard library
_NUMPY: Final = os.path.dirname(np.__file__) + os.sep, "<__array_function__"
#: Files whose frames are between the user's function and the function that it calls.
_BETWEEN: Final = (os.path.join(_PACKAGE, "autograph") + os.sep, os.path.abspath(__file__))
_KEY: Final = "_hidden_frames"  # attribute of an error


class _Hidden:
    """Traceback with all frames. It is pickled and copied without them.

    Attributes:
      shown: the traceback that replaced it.
      full: the whole traceback.
    """

    def __init__(self, shown: TracebackType | None = None, full: TracebackType | None = None) -> None:
        self.shown = shown
        self.full = full

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hidden, ()


def hide(error: BaseException) -> None:
    """Removes frames of headrace from the traceback of `error`; see the module.

    The caller handles `error` in an `except` clause, and raises it again by a bare `raise`.

    Args:
      error: the error. A frame of the caller stays if the user's code called it.
    """
    if flags.TRACEBACK.value == "full" or not isinstance(error, Exception):
        return
    whole = full(error)
    if not _is_for_user(error, whole):
        restore(error)
        return
    caller: FrameType | None = sys._getframe(1).f_back
    while caller is not None and caller.f_code.co_filename.startswith(_BETWEEN):
        caller = caller.f_back
    _shorten(error, whole, caller is not None and _is_ours(caller.f_code.co_filename))
    is_explained = not isinstance(error, UnknownError)
    for cause in _causes(error):
        whole = full(cause)
        if isinstance(cause, Exception) and (
            _is_for_user(cause, whole) or (is_explained and not _is_defect(cause, whole))
        ):
            _shorten(cause, whole, True)


def restore(error: BaseException) -> None:
    """Adds the removed frames again to the tracebacks of an error and its causes."""
    for e in (error, *_causes(error)):
        e.__traceback__ = full(e)
        e.__dict__.pop(_KEY, None)


def entry(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a public function: its errors have no frames of headrace but its own."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except BaseException as e:
            hide(e)
            raise

    return call


def full(error: BaseException) -> TracebackType | None:
    """Returns the traceback of `error` with the frames that `hide` removed."""
    hidden = error.__dict__.get(_KEY)
    if hidden is None:
        return error.__traceback__
    outside, tb = [], error.__traceback__
    while tb is not None and tb is not hidden.shown:
        outside.append(tb)
        tb = tb.tb_next
    whole: TracebackType | None = hidden.full
    for tb in reversed(outside):
        whole = TracebackType(whole, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    return whole


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Iterates over the errors that Python prints before `error`, the last one first."""
    seen = {id(error)}
    while True:
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is None or id(cause) in seen:
            return
        seen.add(id(cause))
        yield cause
        error = cause


def _is_defect(error: Exception, tb: TracebackType | None) -> bool:
    """Whether the class of an error says that headrace has a defect."""
    if isinstance(error, AssertionError) and not isinstance(error, HeadraceInternalError):
        last = _last(tb)
        return last is None or _is_ours(last.tb_frame.f_code.co_filename)
    return isinstance(error, (HeadraceInternalError, InternalError))


def _is_for_user(error: Exception, tb: TracebackType | None) -> bool:
    """Whether an error is meant for the user, and not a sign of a defect."""
    if _is_defect(error, tb):
        return False
    last = _last(tb)
    if isinstance(error, HeadraceError) or last is None:
        return True
    code = last.tb_frame.f_code
    if not _is_ours(code.co_filename):
        return not _is_library(code.co_filename)
    import opcode  # here: needed for errors only

    return code.co_code[last.tb_lasti] == opcode.opmap["RAISE_VARARGS"]


def _last(tb: TracebackType | None) -> TracebackType | None:
    """The innermost entry of a traceback."""
    while tb is not None and tb.tb_next is not None:
        tb = tb.tb_next
    return tb


def _shorten(error: BaseException, whole: TracebackType | None, is_inside: bool) -> None:
    """Replaces the traceback of an error.

    Args:
      error: the error.
      whole: its traceback with all frames.
      is_inside: whether headrace called the first frame.
    """
    kept = list(_kept(whole, is_inside))
    shown: TracebackType | None = None
    for tb in reversed(kept):
        shown = TracebackType(shown, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    error.__dict__[_KEY] = _Hidden(shown, whole)
    error.__traceback__ = shown


def _kept(tb: TracebackType | None, is_inside: bool) -> Iterator[TracebackType]:
    """Iterates over the user's entries and those of headrace that the user called."""
    while tb is not None:
        file = tb.tb_frame.f_code.co_filename
        if _is_ours(file):
            if not is_inside and not file.startswith(_BETWEEN) and not file.startswith(_COMPILED):
                yield tb
                is_inside = True
        elif not (is_inside and _is_library(file)):
            yield tb
            is_inside = False
        tb = tb.tb_next


def _is_library(file: str) -> bool:
    """Whether a file is part of Python or numpy."""
    return file.startswith(_NUMPY) or (file.startswith(_STANDARD) and _PACKAGES not in file)


def _is_ours(file: str) -> bool:
    """Whether a file is part of headrace, or generated by it."""
    return file.startswith((_PACKAGE, _COMPILED))
