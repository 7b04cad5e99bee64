"""Report for requests for help: versions, machine, changed flags, the failing stage and the memos.

    >>> import headrace as hr
    >>> hr.report().splitlines()[0].split()[0]
    'headrace'

It has at most 64 lines, for an issue. It omits folders, and shows only headrace's own flags of the environment. So it
contains nothing private, except for the first line of the error itself.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

from headrace import flags, memo, tracebacks
from headrace.execute.devices import device_types
from headrace.ir import source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

LINES: Final = 72  # more than the package has memos, so each of them has its line
WIDTH: Final = 300  # characters of a line

_PACKAGES: Final = ("numpy", "ml_dtypes", "protobuf", "scipy", "threadpoolctl")
_GUESTS: Final = ("tensorflow", "jax", "jaxlib")  # shown if they are in this process

# Stages of a step by part of headrace. The outermost part in a traceback determines the stage of an error, because a
# pass may create operations, and a running step may call functions of the user.
_BUILDING: Final = frozenset({"api", "grad", "autograph", "v1"})
_STAGES: Final = {
    **dict.fromkeys(("interchange", "inspect"), "import and export"),
    "fetches": "feed and fetch",
    "prune": "prune",
    "recover": "recover",
    "optimize": "optimize",
    "lower": "lower",
    "place": "place",
    "partition": "partition",
    "compile": "compile",
    **dict.fromkeys(("execute", "eager"), "run"),
}
# Stages of functions of `pipeline`, for errors that they or `ir` find.
_IN_PIPELINE: Final = {
    "pruned": "prune",
    "recovered": "recover",
    "optimized": "optimize",
    "compiled_function": "compile",
    "lowered_form": "lower",
    "placed": "place",
    "divided": "divide",
    "partitioned": "partition",
    "with_fused_regions": "fused_regions",
}
_PATH: Final = re.compile(r"(?:[A-Za-z]:)?[^\s'\"(),<>:]*[/\\]([^\s/\\'\"():]+\.\w+)")


class Report(str):
    """Text whose representation is the text itself, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def report(error: BaseException | None = None) -> Report:
    """Reports versions, machine, changed flags, the failing stage and the memos.

    The text has at most 64 lines. Each bounded memo of the process that has been used has a line with its entries,
    limit, hits and misses; memos of one name share a line. Many misses of a full memo mean that its entries are made
    again and again.

    Args:
      error: the error to report; None: the error that is being handled, or the last unhandled one.

    Returns:
      Text (a `str`), which a notebook or prompt shows without quotes.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g, hr.Session(graph=g) as session:
      ...     try:
      ...         session.run(hr.gather([1.0, 2.0], hr.placeholder_with_default(5, ())))
      ...     except hr.errors.InvalidArgumentError as e:
      ...         told = hr.report(e)
      >>> [line for line in told.splitlines() if line.startswith("stage")]
      ['stage: run']
      >>> [line for line in told.splitlines() if line.startswith("memo session calls")]  # doctest: +ELLIPSIS
      ['memo session calls: ... hits, ... misses']
    """
    if error is None:
        error = sys.exc_info()[1] or getattr(sys, "last_value", None)
    lines = [*_machine(), *([] if error is None else _failure(error)), *_memos()]
    if len(lines) > LINES:
        lines = [*lines[: LINES - 1], f"and {len(lines) - LINES + 1} more lines"]
    return Report("\n".join(map(_line, lines)))


def _line(text: str) -> str:
    text = text.replace("\n", " ")
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."


def _machine() -> Iterator[str]:
    import platform
    from importlib import metadata

    yield f"headrace {sys.modules['headrace'].__version__}"
    yield f"Python {platform.python_version()} ({platform.python_implementation()})"
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"no {name}")
    yield ", ".join(found)
    guests = [f"{n} {getattr(sys.modules[n], '__version__', '?')}" for n in _GUESTS if n in sys.modules]
    if guests:
        yield f"in this process: {', '.join(guests)}"
    cores = f"{_usable()} of {os.cpu_count()} cores"
    yield f"platform: {platform.system()} {platform.release()} {platform.machine()}, {cores}"
    yield f"BLAS: {_blas()}"
    changed = [f"HEADRACE_{name}={_shown(value)}" for name, value in flags.changed().items()]
    yield f"flags: {', '.join(changed) or 'none changed'}"
    yield f"types of devices: {', '.join(sorted(device_types))}"


def _memos() -> Iterator[str]:
    """A line for each name of memos that have been used."""
    for m in memo.statistics():
        if m.hits or m.misses or m.entries:
            entries = f"{m.entries} of {m.limit} entries"
            if m.size != m.entries:
                entries = f"{m.entries} entries of size {m.size}, at most {m.limit}"
            elif m.memos > 1:
                entries = f"{m.entries} entries in {m.memos} memos of at most {m.limit}"
            yield f"memo {m.name}: {entries}, {m.hits} hits, {m.misses} misses"


def _usable() -> int:
    """Number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _blas() -> str:
    """Loaded libraries of linear algebra, with their threads."""
    try:
        import threadpoolctl
    except ImportError:
        return "not known without threadpoolctl"
    found = [lib for lib in threadpoolctl.threadpool_info() if lib.get("user_api") == "blas"]
    told = (f"{lib['internal_api']} {lib['version'] or '?'} ({lib['num_threads']} threads)" for lib in found)
    return ", ".join(dict.fromkeys(told)) or "none loaded"


def _shown(value: object) -> str:
    """Value of a flag; a path is replaced by "<a folder>"."""
    text = str(value)
    return "<a folder>" if os.sep in text else text


def _failure(error: BaseException) -> Iterator[str]:
    kind = type(error)
    yield f"error: {kind.__module__}.{kind.__qualname__}"
    first = str(error).partition("\n")[0]
    yield f"says: {without_folders(first)}"
    op = getattr(error, "op", None)
    if op is not None:
        yield f"operation: {op.name} ({op.type})"
    line = _user_line(error)
    if line:
        yield f"line: {line}"
    yield f"stage: {stage(error)}"


def without_folders(text: str) -> str:
    """Returns `text` with file names in place of paths."""
    return _PATH.sub(r"\1", text)


def _user_line(error: BaseException) -> str:
    """User's line: the line that created the failed operation, or else the program's."""
    made = getattr(getattr(error, "op", None), "source", None)
    if made is not None:
        return without_folders(str(made))
    for note in getattr(error, "__notes__", ()):
        found = re.search(r"(?:made|making \w+) at ([^,\n]*)", note)
        if found:
            return without_folders(found[1])
    for file, line, function in reversed(list(_frames(tracebacks.full(error)))):
        is_library = file.startswith(os.path.dirname(os.__file__)) or "site-packages" in file
        if not (is_library or source.is_ours(file)) and os.path.exists(file):
            return f"{os.path.basename(file)}:{line} in {function}"
    return ""


def stage(error: BaseException) -> str:
    """Stage in which an error arose: "build", "prune", "optimize", "lower", "place", "run", ...

    The modules in its traceback determine it.
    """
    root = os.path.dirname(os.path.abspath(__file__)) + os.sep
    found = ""
    for file, _, function in _frames(tracebacks.full(error)):
        if not file.startswith(root):
            continue
        part = file[len(root) :].split(os.sep)[0].removesuffix(".py")
        if part == "compile" and function in ("run", "_run", "quietly"):
            return "run"
        if part == "execute" and file.endswith("plan.py"):
            return "plan"
        if part == "partition" and file.endswith("shares.py"):
            return "divide"
        if part in _BUILDING:
            found = "build"  # an operation that runs at once makes it another stage
        elif part in _STAGES:
            return _STAGES[part]
        elif part == "programs":
            found = "compile"  # unless a function below has a stage of its own
        elif part == "pipeline":
            found = _IN_PIPELINE.get(function, found)
    return found or "outside headrace"


def _frames(tb: TracebackType | None) -> Iterator[tuple[str, int, str]]:
    while tb is not None:
        code = tb.tb_frame.f_code
        yield code.co_filename, tb.tb_lineno, code.co_name
        tb = tb.tb_next
