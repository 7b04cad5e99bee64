"""Flags of headrace: environment variables, allowed values, defaults and meanings.

    with flags.override(VERIFY=2): ...

No other module reads the environment. `page` generates the page of `headrace docs reference/flags`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from headrace import public_names, thresholds
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

V = TypeVar("V")


@record(slots=True)
class Flag(Generic[V]):
    """One flag; read it as `flags.NAME.value`.

    Attributes:
      name: the name after `HEADRACE_` in the environment.
      parse: converts text to a value; raises ValueError for other text.
      allowed: the allowed values in words.
      is_allowed: whether a value is allowed.
      default: the value without an environment variable.
      doc: one line about its meaning.
      value: the current value.
      overrides: values of the open `override` blocks, each in a list of its own, after the value before them.

    Example:
      >>> import headrace as hr
      >>> hr.flags.ENGINE.name, hr.flags.ENGINE.default
      ('ENGINE', 'auto')
    """

    name: str
    parse: Callable[[str], V]
    allowed: str
    is_allowed: Callable[[V], bool]
    default: V
    doc: str
    value: V
    overrides: list[list[V]] = dataclasses.field(default_factory=list)
    _more: Callable[[V], object] | None = None

    def check(self, value: V) -> None:
        """Raises ValueError, with a text about the allowed values, unless `value` is allowed."""
        if not self.is_allowed(value):
            raise ValueError(f"{self.name}={value!r} is not valid: expected {self.allowed}")
        if self._more is not None:
            self._more(value)

    def also_check(self, check: Callable[[V], object]) -> None:
        """Adds a check of values, which is applied to the current value too.

        `check(value)` raises ValueError.
        """
        self._more = check
        try:
            check(self.value)
        except ValueError as e:
            raise ValueError(f"the environment variable HEADRACE_{self.name} is not valid: {e}") from None


_FLAGS: Final[dict[str, Flag[Any]]] = {}


def _flag(
    name: str, parse: Callable[[str], V], default: V, allowed: str, is_allowed: Callable[[V], bool], doc: str
) -> Flag[V]:
    text = os.environ.get("HEADRACE_" + name, "")
    flag = _FLAGS[name] = Flag(name, parse, allowed, is_allowed, default, doc, default)
    if text:
        try:
            flag.value = parse(text)
            flag.check(flag.value)
        except ValueError:
            raise ValueError(
                f"the environment variable HEADRACE_{name}={text!r} is not valid: expected {allowed}. {doc}"
            ) from None
    return flag


def _is_int(low: int, high: float = math.inf) -> Callable[[Any], bool]:
    return lambda v: isinstance(v, int) and not isinstance(v, bool) and low <= v <= high


def _is_text(v: Any) -> bool:
    return isinstance(v, str) and "\0" not in v


VERIFY: Final = _flag(
    "VERIFY",
    int,
    0,
    "0, 1, 2 or 3",
    _is_int(0, 3),
    "0: no checks; 1: verify graphs after each stage; 2: also compare the results of kernels with inferred shapes and "
    "dtypes; 3: also verify after each pass, and check the memory around the buffers of native code.",
)
RUN_EAGERLY: Final = _flag(
    "RUN_EAGERLY",
    int,
    0,
    "0 or 1",
    _is_int(0, 1),
    "1: functions under `hr.jit` run eagerly, operation by operation, for debugging (`hr.run_eagerly`).",
)
STRICT_TYPES: Final = _flag(
    "STRICT_TYPES",
    int,
    0,
    "0 or 1",
    _is_int(0, 1),
    "1: functions under `hr.jit` without the argument strict check annotated types and shapes at every call "
    "(`hr.check_types`). Read at the first call of a function.",
)
V1_EAGER: Final = _flag(
    "V1_EAGER",
    int,
    0,
    "0 or 1",
    _is_int(0, 1),
    "1: `headrace.v1` executes eagerly outside of graphs (`tf.enable_eager_execution`).",
)
WAIT_LIMIT: Final = _flag(
    "WAIT_LIMIT",
    float,
    600.0,
    "a number above 0, at most 1e9",
    lambda v: isinstance(v, (int, float)) and 0 < v <= 1e9,
    "Seconds that a step may wait for a queue or another device without progress before it fails with "
    "DeadlineExceededError, unless its run has a time limit.",
)
SILENT_WAIT: Final = _flag(
    "SILENT_WAIT",
    float,
    thresholds.SILENT_WAIT,
    "0, or a number above 0, at most 1e9",
    lambda v: isinstance(v, (int, float)) and 0 <= v <= 1e9,
    "Seconds that a step may wait for a queue or another device before a line in the log says for which operation; "
    "0: no line.",
)
STRING_LIMIT: Final = _flag(
    "STRING_LIMIT",
    int,
    1 << 30,
    "an integer above 0",
    _is_int(1),
    "Limit in bytes of all strings that one operation creates by decompressing, joining, formatting or replacing. "
    "The operation fails with ResourceExhaustedError before it allocates more.",
)
CLUSTER_SECRET: Final = _flag(
    "CLUSTER_SECRET",
    str,
    "",
    "a text",
    _is_text,
    "Secret that all processes of a cluster share. Without it, or certificates, a server listens on loopback only.",
)
CLUSTER_SECRET_FILE: Final = _flag(
    "CLUSTER_SECRET_FILE",
    str,
    "",
    "the path of a file",
    _is_text,
    "File with the secret of the cluster, in place of CLUSTER_SECRET.",
)
CLUSTER_CERT: Final = _flag(
    "CLUSTER_CERT",
    str,
    "",
    "the path of a file",
    _is_text,
    "Certificate of this process (PEM), for encrypted connections (TLS) in a cluster. CLUSTER_CA must be set too.",
)
CLUSTER_KEY: Final = _flag(
    "CLUSTER_KEY",
    str,
    "",
    "the path of a file",
    _is_text,
    "Private key of CLUSTER_CERT (PEM); not set: that file has it.",
)
CLUSTER_CA: Final = _flag(
    "CLUSTER_CA",
    str,
    "",
    "the path of a file",
    _is_text,
    "Certificates of the authorities (PEM) that have signed the certificates of all processes of the cluster.",
)
ENGINES: Final = ("auto", "interpret", "compiled")
ENGINE: Final = _flag(
    "ENGINE",
    str,
    "auto",
    ", ".join(ENGINES[:-1]) + f" or {ENGINES[-1]}",
    lambda v: v in ENGINES,
    "Engine of sessions without the argument engine: interpret, compiled, or auto, which compiles where possible.",
)
OPTIMIZE: Final = _flag(
    "OPTIMIZE",
    str,
    "on",
    "on, off, or names of passes with a '-' before each, separated by commas",
    lambda v: isinstance(v, str),  # `optimize.pipeline` has the names
    "Passes that run before a step is compiled: on (all), off (none), or all except those listed: -fold,-cse.",
)
DUMP: Final = _flag(
    "DUMP",
    str,
    "",
    "the path of a folder",
    _is_text,
    "Folder for dumps: each step writes its graph as text after each stage that changed it, and its compiled source.",
)
CALL_DEPTH: Final = _flag(
    "CALL_DEPTH",
    int,
    100_000,
    "a whole number from 1 to 100000000",
    _is_int(1, 10**8),
    "Maximum depth of recursive calls in a step; a deeper call fails with ResourceExhaustedError.",
)
ACCUMULATOR_LIMIT: Final = _flag(
    "ACCUMULATOR_LIMIT",
    int,
    0,
    "a whole number of bytes, 0 or more",
    _is_int(0),
    "Limit in bytes of the residuals that the gradient of a loop keeps of one value; 0: three quarters of the "
    "machine's memory.",
)
PINNED_LIMIT: Final = _flag(
    "PINNED_LIMIT",
    int,
    0,
    "a whole number of bytes, 0 or more",
    _is_int(0),
    "Limit in bytes of the pinned memory for values that loops on GPUs swap out, in one process; 0: half of the "
    "machine's memory.",
)
SPILL_FOLDER: Final = _flag(
    "SPILL_FOLDER",
    str,
    "",
    "the path of a folder",
    _is_text,
    "Folder on a disk for values that sessions with a memory limit swap out; empty: the system's temporary folder.",
)
NATIVE: Final = _flag(
    "NATIVE",
    str,
    "on",
    "on or off",
    lambda v: v in ("on", "off"),
    "on: parts of compiled steps run as machine code, where llvmlite is installed; off: all of them run in Python.",
)
CUDA_GRAPHS: Final = _flag(
    "CUDA_GRAPHS",
    str,
    "on",
    "on or off",
    lambda v: v in ("on", "off"),
    "on: operations of a step on a CUDA device are captured and replayed as CUDA graphs; off: each is called.",
)
CACHE: Final = _flag(
    "CACHE",
    str,
    "",
    "the path of a folder, or off",
    _is_text,
    "Folder of compiled machine code for later processes. By default it is `headrace` in the user's cache folder "
    "(`XDG_CACHE_HOME`); off: each process compiles for itself. The folder must belong to the user, and no other user "
    "may write into it.",
)
TRACEBACK: Final = _flag(
    "TRACEBACK",
    str,
    "short",
    "short or full",
    lambda v: v in ("short", "full"),
    "short: tracebacks have the user's lines and one line for each call of headrace, and more lines of headrace only "
    "where an error indicates a defect; full: all lines.",
)
_OF_TESTS: Final = {"CONFORMANCE", "RECORD"}  # read by headrace's own tests


def _warn_of_unknown() -> None:
    """Warns of variables that no flag reads, which may be misspelt."""
    for variable in os.environ:
        name = variable.removeprefix("HEADRACE_")
        if name != variable and name not in _FLAGS and name not in _OF_TESTS:
            import difflib  # a slow import, needed only here

            from headrace import notices

            near = difflib.get_close_matches(name.upper(), _FLAGS, 1)
            hint = f"did you mean HEADRACE_{near[0]}?" if near else f"there are {', '.join(_FLAGS)}"
            notices.warn(f"the environment variable {variable} is no flag of headrace; {hint}")


_warn_of_unknown()


def accumulator_limit() -> int:
    """The flag ACCUMULATOR_LIMIT in bytes; for 0 three quarters of the machine's memory.

    Example:
      >>> import headrace as hr
      >>> with hr.flags.override(ACCUMULATOR_LIMIT=1000):
      ...     limit = hr.flags.accumulator_limit()
      >>> limit
      1000
    """
    return ACCUMULATOR_LIMIT.value or _machine_memory() // 4 * 3


def pinned_limit() -> int:
    """The flag PINNED_LIMIT in bytes; for 0 half of the machine's memory.

    Example:
      >>> import headrace as hr
      >>> with hr.flags.override(PINNED_LIMIT=1000):
      ...     limit = hr.flags.pinned_limit()
      >>> limit
      1000
    """
    return PINNED_LIMIT.value or _machine_memory() // 2


def _machine_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def cache_folder() -> str:
    """The folder of compiled machine code (the flag CACHE); "" if there is none."""
    if CACHE.value == "off":
        return ""
    if CACHE.value:
        return os.path.abspath(CACHE.value)
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(home):  # the specification calls a relative path invalid
        home = os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "headrace") if os.path.isabs(home) else ""


def tf_config() -> str:
    """The text of TensorFlow's environment variable TF_CONFIG, which describes a task; "" without one."""
    return os.environ.get("TF_CONFIG", "")


@contextlib.contextmanager
def override(**values: Any) -> Iterator[None]:
    """Sets flags for the duration of a `with` block.

    A flag has one value in the whole process, so other threads and tasks read the new value too. Blocks of several
    threads may overlap: the block that began last determines the value, and after all of them the initial value is
    restored.

    Args:
      values: name of the flag → value.

    Raises:
      KeyError: an unknown flag.
      ValueError: a value that is not allowed.

    Example:
      >>> import headrace as hr
      >>> with hr.flags.override(ENGINE="interpret"):
      ...     hr.flags.ENGINE.value
      'interpret'
      >>> with hr.flags.override(VERIFY=7):
      ...     pass
      Traceback (most recent call last):
      ValueError: VERIFY=7 is not valid: expected 0, 1, 2 or 3
    """
    for name, v in values.items():
        if name not in _FLAGS:
            raise KeyError(f"no flag {name!r}; there are {', '.join(sorted(_FLAGS))}")
        _FLAGS[name].check(v)
    mine = [(_FLAGS[name], [v]) for name, v in values.items()]
    for flag, entry in mine:
        flag.overrides += [entry] if flag.overrides else [[flag.value], entry]
        flag.value = entry[0]
    try:
        yield
    finally:
        for flag, entry in mine:
            open_ = flag.overrides = [e for e in flag.overrides if e is not entry]
            flag.value = open_[-1][0]
            if len(open_) == 1:
                open_.clear()


def environment_of_child(variables: Mapping[str, str], **values: Any) -> dict[str, str]:
    """Returns the environment variables of a child process.

    Args:
      variables: environment variables in addition to those of this process.
      values: name of a flag → its value in the child process.

    Example:
      >>> import headrace as hr
      >>> hr.flags.environment_of_child({}, VERIFY=1)["HEADRACE_VERIFY"]
      '1'
    """
    return {**os.environ, **variables, **{f"HEADRACE_{_FLAGS[name].name}": str(v) for name, v in values.items()}}


def page() -> str:
    """Text of the page that `headrace docs reference/flags` prints.

    Example:
      >>> import headrace as hr
      >>> hr.flags.page().splitlines()[0]
      '# Flags'
    """
    return f"""# Flags

Environment variables that change the behaviour of headrace. They are read once, when headrace is imported. An empty
variable counts as unset, and a value that is not allowed is an error. Any other variable `HEADRACE_...` causes a
warning that suggests the closest name.

{describe()}

In a program, `headrace.flags.override(NAME=value)` sets flags for the duration of a `with` block:

```python
import headrace as hr

with hr.flags.override(ENGINE="interpret", VERIFY=1):
    print(hr.flags.ENGINE.value)  # interpret
```

A flag has one value in the whole process, so all threads and asynchronous tasks read the new value. Sessions read
`ENGINE` when they are created; steps read the other flags when they are compiled or run. A setting for one session is
an argument: `hr.Session(engine="interpret")`.

This page is generated by `python -m tests.manners.pages`; a test compares it.
"""


def changed() -> dict[str, Any]:
    """Flags with other values than their defaults, by name, for reports; the secret is hidden.

    Example:
      >>> import headrace as hr
      >>> with hr.flags.override(VERIFY=1):
      ...     found = hr.flags.changed()["VERIFY"]
      >>> found
      1
    """
    return {n: "(hidden)" if f is CLUSTER_SECRET else f.value for n, f in _FLAGS.items() if f.value != f.default}


def describe() -> str:
    """Markdown table of all flags.

    Example:
      >>> import headrace as hr
      >>> hr.flags.describe().splitlines()[0]
      '| variable | what it may be | default | what it does |'
    """
    defaults = {f.name: "not set" if f.default == "" else f"`{f.default}`" for f in _FLAGS.values()}
    rows = [f"| `HEADRACE_{f.name}` | {f.allowed} | {defaults[f.name]} | {f.doc} |" for f in _FLAGS.values()]
    return "\n".join(["| variable | what it may be | default | what it does |", "|---|---|---|---|", *rows])


# fmt: off
__all__ = [
    "ACCUMULATOR_LIMIT",
    "CACHE",
    "CALL_DEPTH",
    "CLUSTER_CA",
    "CLUSTER_CERT",
    "CLUSTER_KEY",
    "CLUSTER_SECRET",
    "CLUSTER_SECRET_FILE",
    "DUMP",
    "ENGINE",
    "ENGINES",
    "NATIVE",
    "OPTIMIZE",
    "PINNED_LIMIT",
    "RUN_EAGERLY",
    "SILENT_WAIT",
    "SPILL_FOLDER",
    "STRICT_TYPES",
    "STRING_LIMIT",
    "TRACEBACK",
    "V1_EAGER",
    "VERIFY",
    "WAIT_LIMIT",
    "Flag",
    "accumulator_limit",
    "changed",
    "describe",
    "environment_of_child",
    "override",
    "page",
    "pinned_limit",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
