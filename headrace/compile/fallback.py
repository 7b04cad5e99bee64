"""Failures of the compiler on a correct program.

Such a failure is a bug of headrace. It is reported as a warning, and the executor runs the step instead.
"""

from __future__ import annotations

import traceback

from headrace import notices, tracebacks
from headrace.errors import CompileWarning, HeadraceError, HeadraceInternalError


class Failure:
    """Failure of one stage of compiling a step.

    Attributes:
      stage: The stage of compiling a step.
      error: The original exception.
    """

    def __init__(self, stage: str, error: Exception) -> None:
        tracebacks.restore(error)  # a builder in a pass has removed its frames
        self.stage = stage
        self.error = error

    def __str__(self) -> str:
        text = f"{type(self.error).__name__}: {self.error}"
        return f"compilation failed at stage {self.stage!r}: {text.splitlines()[0]}"

    @property
    def details(self) -> str:
        """The exception with its traceback and notes."""
        return "".join(traceback.format_exception(self.error)).rstrip()

    @property
    def may_be_users(self) -> bool:
        """Whether the exception is of a class that an incorrect program raises."""
        error = self.error
        known = isinstance(error, HeadraceError) and not isinstance(error, HeadraceInternalError)
        return known or type(error) is LookupError  # an operation without a gradient

    def warn(self) -> None:
        """Warns at the user's line, with the exception in the text."""
        notices.warn(
            f"{self}. The executor interprets the step instead: the results are the same, but slower. This is a bug in "
            "headrace; please report it with the output of hr.explain",
            CompileWarning,
        )

    def as_error(self) -> HeadraceInternalError:
        """Error for steps that must not be interpreted; raise it from `error`."""
        return HeadraceInternalError(f'{self}; with engine="auto" the executor interprets the step')
