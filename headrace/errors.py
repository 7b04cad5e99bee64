"""Every exception headrace raises, under TensorFlow's names.

Three families:

* `OpError` and its subclasses: something went wrong while a graph ran. The class says what kind of thing
  (`InvalidArgumentError`, `OutOfRangeError`, ...), `.op` and `.node` say where.
* `GraphError` (a `ValueError`) and `ShapeError`: the graph itself is wrong; raised while it is built or imported.
* `HeadraceInternalError`: a bug of ours. It should never be seen; please report it with the text it carries.

The names and numeric codes are those of TensorFlow's `tf.errors`, so `except hr.errors.OutOfRangeError` reads the
same in both systems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping

OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15
UNAUTHENTICATED = 16


class HeadraceError(Exception):
    """Base of all errors that are headrace's own."""


class OpError(HeadraceError):
    """An operation failed while a graph ran.

    Args:
      message: what was given, what was expected, what to do.
      node: the name of the operation that failed, if one is known.
      op: the operation object, if one is known (`ir.Operation`).

    Attributes:
      error_code: TensorFlow's numeric code of this class.
      message: the text without the notes that the runtime added.
    """

    error_code: ClassVar[int] = UNKNOWN

    def __init__(self, message: str, node: str | None = None, op: object | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.node = node
        self.op = op

    def __reduce__(self) -> tuple[object, ...]:
        """In another process, or a copy, there is no operation (that belongs to its graph), nor what the run noted."""
        state = {k: v for k, v in self.__dict__.items() if k == "__notes__" or not k.startswith("_")}
        return type(self), self.args, {**state, "op": None}

    @property
    def experimental_payloads(self) -> Mapping[bytes, bytes]:
        """Always empty; present because TensorFlow's errors have it."""
        return {}


class CancelledError(OpError):
    """The step, the session or the queue this operation waited on was cancelled or closed."""

    error_code = CANCELLED


class UnknownError(OpError):
    """A failure whose kind is not known."""

    error_code = UNKNOWN


class InvalidArgumentError(OpError):
    """An operation received a value it cannot work on (shape, range, dead fetch, ...)."""

    error_code = INVALID_ARGUMENT


class DeadlineExceededError(OpError):
    """A step or a wait ran past its time limit."""

    error_code = DEADLINE_EXCEEDED


class NotFoundError(OpError):
    """A named thing (op type, resource, node) does not exist."""

    error_code = NOT_FOUND


class AlreadyExistsError(OpError):
    """A named thing exists already."""

    error_code = ALREADY_EXISTS


class PermissionDeniedError(OpError):
    """The caller may not do this."""

    error_code = PERMISSION_DENIED


class UnauthenticatedError(OpError):
    """The caller did not say who it is."""

    error_code = UNAUTHENTICATED


class ResourceExhaustedError(OpError):
    """Out of memory, or past a limit that protects it."""

    error_code = RESOURCE_EXHAUSTED


class FailedPreconditionError(OpError):
    """The system is not in a state in which this can run (an uninitialized variable, for one)."""

    error_code = FAILED_PRECONDITION


class AbortedError(OpError):
    """The operation was given up, usually because another one failed."""

    error_code = ABORTED


class OutOfRangeError(OpError):
    """Past the end: a closed and empty queue, an exhausted reader."""

    error_code = OUT_OF_RANGE


class UnimplementedError(OpError):
    """headrace knows the operation but not this form of it."""

    error_code = UNIMPLEMENTED


class InternalError(OpError):
    """An invariant of the running step does not hold."""

    error_code = INTERNAL


class UnavailableError(OpError):
    """A needed service or device is not there now; trying again may help."""

    error_code = UNAVAILABLE


class DataLossError(OpError):
    """Stored data is damaged beyond repair."""

    error_code = DATA_LOSS


class GraphError(HeadraceError, ValueError):
    """The graph is wrong: an unknown input, a cycle without a loop, a bad attribute, mixed frames, ..."""


class ShapeError(GraphError):
    """Shapes, ranks or dtypes of an operation's inputs do not fit together."""


class SignatureError(GraphError, TypeError):
    """What an operation is given, or a user's function takes or gives back, does not fit the operation, conditional,
    loop or call.

    TensorFlow raises `ValueError` for some of these and `TypeError` for others; this is both.
    """


class TextError(GraphError):
    """A graph in text form cannot be parsed; the message has the line and a caret."""


class ConversionError(HeadraceError, ValueError, TypeError):
    """A tensor is not of the dtype that is wanted, or None stands where a tensor is.

    TensorFlow raises `ValueError` for these and `TypeError` for other values that cannot be a tensor; this is both.
    """


class FeedError(HeadraceError, ValueError, TypeError):
    """A fed value does not fit its tensor: wrong shape, wrong dtype, or not an array at all.

    TensorFlow raises `ValueError` for some of these and `TypeError` for others; this is both.
    """


class HeadraceWarning(UserWarning):
    """Of all warnings that headrace gives but those of what is deprecated: something works, but hardly as it is meant.

    They name a line of the user's, and are shown once for each; `warnings.filterwarnings` makes errors of them, or
    silences them.
    """


class CompileWarning(HeadraceWarning):
    """A step, or a part of it, could not be compiled though it should: a bug in headrace. The token machine runs it, so
    the results are the same. The text names the stage and the exception; `hr.explain` has all of it.
    """


class HeadraceInternalError(HeadraceError, AssertionError):
    """A bug in headrace: an invariant of its own does not hold. Please report it with this text."""


def exception_type_from_error_code(code: int) -> type[OpError]:
    """The error class of a numeric code.

    >>> exception_type_from_error_code(11).__name__
    'OutOfRangeError'
    """
    for cls in OpError.__subclasses__():
        if cls.error_code == code:
            return cls
    raise KeyError(f"no error class has code {code}")
