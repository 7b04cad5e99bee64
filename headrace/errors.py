"""Exceptions of headrace, with TensorFlow's names.

There are three families:

* `OpError` and its subclasses: an operation failed while a graph ran. The class gives the kind of the failure
  (`InvalidArgumentError`, `OutOfRangeError`, ...), and `.op` and `.node` the operation.
* `GraphError` (a `ValueError`) and `ShapeError`: the graph itself is wrong. They are raised while it is built or
  imported.
* `HeadraceInternalError`: a defect of headrace. Please report it with its text.

An error of a running step has a `Diagnosis`, from which its notes are made. `to_data` and `from_data` convert errors to
plain data and back, for other processes.

The names and numeric codes are those of TensorFlow's `tf.errors`, so `except hr.errors.OutOfRangeError` reads the
same in both systems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

from headrace import plain_data, public_names
from headrace.diagnosis import Diagnosis
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.pb import NodeDef

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
    """Base class of headrace's own errors.

    Attributes:
      diagnosis: the place of the failure in a running step; None if it is unknown, or the failure was elsewhere.
    """

    diagnosis: Diagnosis | None = None

    def diagnose(self, diagnosis: Diagnosis) -> None:
        """Sets the diagnosis and adds its notes.

        They replace the notes of an earlier diagnosis of the same operation.
        """
        notes: list[str] = list(getattr(self, "__notes__", ()))
        at, before = len(notes), self.diagnosis
        if before is not None and before.op == diagnosis.op:
            old = before.notes()
            at = next((i for i, n in enumerate(notes) if n in old), at)
            notes = [n for n in notes if n not in old]
        notes[at:at] = diagnosis.notes()
        self.diagnosis, self.__notes__ = diagnosis, notes


class OpError(HeadraceError):
    """A failure of an operation while a graph ran.

    Args:
      message: the value found, the value expected, and the remedy.
      node: the name of the operation that failed, if it is known.
      op: the operation that failed, if it is known (`ir.Operation`).

    With a text in third place the positional arguments are TensorFlow's: `(node_def, op, message, *details)`.

    Attributes:
      error_code: TensorFlow's numeric code of this class.
      message: the text without the notes that the runtime added.
      node: the name of the operation that failed, if it is known.
      op: the operation that failed, if it is known (`ir.Operation`).
    """

    error_code: int = UNKNOWN

    @overload
    def __init__(self, message: str, node: str | None = None, op: object | None = None) -> None: ...
    @overload
    def __init__(self, node_def: NodeDef | None, op: object | None, message: str, *details: object) -> None: ...
    def __init__(self, *given: Any, **named: Any) -> None:
        theirs = len(given) > 2 and isinstance(given[2], str)
        order = ("node_def", "op", "message") if theirs else ("message", "node", "op")
        said = {**dict(zip(order, given, strict=False)), **named}
        given_once = len(said) == (3 if theirs else len(given)) + len(named)
        if not given_once or "message" not in said or not said.keys() <= {"message", "node", "op", "node_def"}:
            raise TypeError(
                f"{type(self).__name__} takes (message, node=None, op=None) or TensorFlow's (node_def, op, message); "
                f"got {len(given)} arguments by position and {sorted(named)} by name"
            )
        super().__init__(said["message"])
        self.message: str = said["message"]
        self.op: object | None = said.get("op")
        made = said.get("node_def")
        self.node: str | None = said.get("node", None if made is None else made.name)
        if type(self) is OpError and len(given) > 3:
            self.error_code = given[3]

    @property
    def node_def(self) -> NodeDef | None:
        """The message of the operation that failed, if the operation is known."""
        return getattr(self.op, "node_def", None)

    def __reduce__(self) -> tuple[object, ...]:
        """Reduces the error without its operation, which belongs to its graph."""
        return type(self), self.args, {**self.__dict__, "op": None}

    @property
    def experimental_payloads(self) -> Mapping[bytes, bytes]:
        """Always empty; present because TensorFlow's errors have it."""
        return {}


class CancelledError(OpError):
    """The step, session or queue for which the operation waited was cancelled or closed."""

    error_code = CANCELLED


class UnknownError(OpError):
    """A failure of unknown kind."""

    error_code = UNKNOWN


class InvalidArgumentError(OpError):
    """An operation received a value that it does not accept (shape, range, dead fetch, ...)."""

    error_code = INVALID_ARGUMENT


class DeadlineExceededError(OpError):
    """A step or a wait exceeded its time limit."""

    error_code = DEADLINE_EXCEEDED


class NotFoundError(OpError):
    """A named object (op type, resource, node) does not exist."""

    error_code = NOT_FOUND


class AlreadyExistsError(OpError):
    """A named object exists already."""

    error_code = ALREADY_EXISTS


class PermissionDeniedError(OpError):
    """The caller lacks the permission."""

    error_code = PERMISSION_DENIED


class UnauthenticatedError(OpError):
    """The caller is not authenticated."""

    error_code = UNAUTHENTICATED


class ResourceExhaustedError(OpError):
    """The memory is exhausted, or a limit that protects it is exceeded."""

    error_code = RESOURCE_EXHAUSTED


class FailedPreconditionError(OpError):
    """The state of the system does not allow the operation, such as an uninitialized variable."""

    error_code = FAILED_PRECONDITION


class AbortedError(OpError):
    """The operation was aborted, usually because another one failed."""

    error_code = ABORTED


class OutOfRangeError(OpError):
    """The end of the data is passed: a closed and empty queue, an exhausted reader."""

    error_code = OUT_OF_RANGE


class UnimplementedError(OpError):
    """The operation is known, but not in this form."""

    error_code = UNIMPLEMENTED


class InternalError(OpError):
    """An invariant of the running step does not hold."""

    error_code = INTERNAL


class UnavailableError(OpError):
    """A needed service or device is not available now; a retry may succeed."""

    error_code = UNAVAILABLE


class DataLossError(OpError):
    """Stored data is damaged and cannot be restored."""

    error_code = DATA_LOSS


class GraphError(HeadraceError, ValueError):
    """An invalid graph: unknown inputs, bad attributes, mixed frames, cycles that are not loops, ..."""


class ShapeError(GraphError):
    """Shapes, ranks or dtypes of an operation's inputs do not fit together."""


class SignatureError(GraphError, TypeError):
    """The arguments or results do not fit the operation, function, conditional, loop or call.

    TensorFlow raises `ValueError` for some of these and `TypeError` for others; this class is both.
    """


class TextError(GraphError):
    """A text is not a valid graph; the message shows the line with a caret."""


class ConversionError(HeadraceError, ValueError, TypeError):
    """A value cannot be converted to a tensor: its dtype differs, or it is None.

    TensorFlow raises `ValueError` for these and `TypeError` for other values that cannot be a tensor; this class is
    both.
    """


class AutographError(HeadraceError, ValueError, TypeError):
    """Python code cannot be converted, or a tensor decides where only Python can.

    The text has the user's line, with a caret if the conversion itself fails.
    """


class UndefinedError(AutographError, UnboundLocalError):
    """Converted code reads a variable without a value.

    It may have one in another branch of a conditional.
    """


class FeedError(HeadraceError, ValueError, TypeError):
    """A fed value does not fit its tensor: its shape, its dtype or its kind.

    TensorFlow raises `ValueError` for some of these and `TypeError` for others; this class is both.
    """


class HeadraceWarning(UserWarning):
    """Base class of headrace's warnings, except those of deprecation.

    The program works, but probably not as intended. A warning names a line of the user's code, and is shown once for
    each line. `warnings.filterwarnings` turns warnings into errors, or silences them.
    """


class CompileWarning(HeadraceWarning):
    """A defect of headrace prevented the compilation of a step or a part of it.

    The token machine runs it instead, so the results are the same. The text names the stage and the exception;
    `hr.explain` shows all details.
    """


class HeadraceInternalError(HeadraceError, AssertionError):
    """A defect of headrace: an invariant does not hold. Please report this text."""


def exception_type_from_error_code(error_code: int) -> type[OpError]:
    """Returns the error class of a numeric code.

    >>> exception_type_from_error_code(11).__name__
    'OutOfRangeError'
    """
    for cls in OpError.__subclasses__():
        if cls.error_code == error_code:
            return cls
    raise KeyError(f"no error class has code {error_code}")


def error_code_from_exception_type(cls: type[OpError]) -> int:
    """Returns the numeric code of an error class.

    Args:
      cls: the class.

    Raises:
      KeyError: the class has no code.

    >>> error_code_from_exception_type(NotFoundError)
    5
    """
    code = vars(cls).get("error_code") if issubclass(cls, OpError) else None
    if code is None:
        raise KeyError(f"{cls!r} has no code")
    return int(code)


@record(slots=True)
class _Status:
    """Code and message of a call, as those of TensorFlow's C library have.

    Attributes:
      code: the number of an error class; 0 for success.
      message: the message.
    """

    code: int = 0
    message: str = ""


class raise_exception_on_not_ok_status:
    """Context that raises the error which its block wrote into a status.

    Source: TensorFlow's `tf.errors.raise_exception_on_not_ok_status`.

    >>> try:
    ...     with raise_exception_on_not_ok_status() as status:
    ...         status.code, status.message = NOT_FOUND, "no such row"
    ... except NotFoundError as e:
    ...     print(e)
    no such row
    """

    def __enter__(self) -> _Status:
        self._status = _Status()
        return self._status

    def __exit__(self, *error: object) -> None:
        if self._status.code:
            raise exception_type_from_error_code(self._status.code)(self._status.message)


@record(frozen=True, slots=True)
class _ErrorRecord:
    """An error as data.

    Attributes:
      type: the name of its class.
      message: the text without notes.
      node: the name of the operation that failed, if it is known.
      notes: the notes.
      cause: class and text of the exception that caused it; "" if there is none.
      diagnosis: the diagnosis.
    """

    type: str
    message: str
    node: str | None = None
    notes: tuple[str, ...] = ()
    cause: str = ""
    diagnosis: Diagnosis | None = None


def to_data(error: BaseException) -> list[object]:
    """Returns an error as plain data: lists, texts, numbers and None (`plain_data`).

    An error that is neither an `OpError` nor a `HeadraceInternalError` becomes an `UnknownError` with the name of its
    class in the text. The operation (`.op`) is left out, because it belongs to its graph.

    Example:
      >>> from_data(to_data(NotFoundError("no such variable", "v")))
      NotFoundError('no such variable')
    """
    name, text = type(error).__name__, str(error)
    if isinstance(error, OpError):
        name = exception_type_from_error_code(error.error_code).__name__
    elif isinstance(error, HeadraceInternalError):
        name = "HeadraceInternalError"
    else:
        name, text = "UnknownError", f"{name}: {text}"
    cause = error.__cause__
    is_record = type(cause) is HeadraceError  # of an error that `from_data` has made
    record = _ErrorRecord(
        name,
        text,
        getattr(error, "node", None),
        tuple(getattr(error, "__notes__", ())),
        "" if cause is None else str(cause) if is_record else f"{type(cause).__name__}: {cause}",
        getattr(error, "diagnosis", None),
    )
    return plain_data.encode(record)


def from_data(data: object) -> OpError | HeadraceInternalError:
    """Returns the error that `to_data` converted.

    Its class, text, node, notes and diagnosis are equal. Its `__cause__` is a `HeadraceError` with the class and the
    text of the original one.

    Raises:
      InvalidArgumentError: `data` is not the data of an error, or exceeds a limit of `plain_data`.
    """
    try:
        record = plain_data.decode(_ErrorRecord, data)
    except ValueError as e:
        raise InvalidArgumentError(f"the data is not that of an error: {e}") from e
    kinds = {c.__name__: c for c in (*OpError.__subclasses__(), HeadraceInternalError) if c.__module__ == __name__}
    kind = kinds.get(record.type)
    if kind is None:
        raise InvalidArgumentError(f"the data is not that of an error: the class {record.type[:80]!r} is unknown")
    out: OpError | HeadraceInternalError = kind(record.message)
    if isinstance(out, OpError):
        out.node = record.node
    out.diagnosis = record.diagnosis
    for note in record.notes:
        out.add_note(note)
    if record.cause:
        out.__cause__ = HeadraceError(record.cause)
    return out


# fmt: off
__all__ = [
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OK",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
    "AbortedError",
    "AlreadyExistsError",
    "CancelledError",
    "CompileWarning",
    "ConversionError",
    "DataLossError",
    "DeadlineExceededError",
    "FailedPreconditionError",
    "FeedError",
    "GraphError",
    "HeadraceError",
    "HeadraceInternalError",
    "HeadraceWarning",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "OpError",
    "OutOfRangeError",
    "PermissionDeniedError",
    "ResourceExhaustedError",
    "ShapeError",
    "SignatureError",
    "TextError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "UnknownError",
    "exception_type_from_error_code",
    "raise_exception_on_not_ok_status",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
