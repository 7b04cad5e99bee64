"""Every flag of headrace: its environment variable, type, default and one line of what it does.

    with flags.override(VERIFY=2): ...

No other module reads the environment; `docs/flags.md` is generated from here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

V = TypeVar("V")


@dataclasses.dataclass(slots=True)
class Flag(Generic[V]):
    """One flag; read it as `flags.NAME.value`.

    Attributes:
      name: the name after `HEADRACE_` in the environment.
      parse: text → value.
      default: the value when the environment says nothing.
      doc: one line.
      value: the value now.
    """

    name: str
    parse: Callable[[str], V]
    default: V
    doc: str
    value: V


_FLAGS: Final[dict[str, Flag[Any]]] = {}


def _flag(name: str, parse: Callable[[str], V], default: V, doc: str) -> Flag[V]:
    text = os.environ.get("HEADRACE_" + name)
    value = default
    if text is not None:
        try:
            value = parse(text)
        except ValueError as e:
            raise ValueError(f"the environment variable HEADRACE_{name}={text!r} is not valid: {doc}") from e
    flag = Flag(name, parse, default, doc, value)
    _FLAGS[name] = flag
    return flag


VERIFY: Final = _flag(
    "VERIFY",
    int,
    0,
    "0: trust; 1: verify graphs after each stage; 2: also check what kernels give against inference; 3: also verify "
    "after each pass.",
)
WAIT_LIMIT: Final = _flag(
    "WAIT_LIMIT",
    float,
    600.0,
    "Seconds a step may wait for a queue or peer without any progress before it fails with DeadlineExceededError.",
)
ENGINES: Final = ("auto", "interpret", "compiled")


def _engine(text: str) -> str:
    if text not in ENGINES:
        raise ValueError(text)
    return text


ENGINE: Final = _flag(
    "ENGINE",
    _engine,
    "auto",
    "What runs the steps of sessions that do not say: interpret, compiled, or auto, which compiles what can be.",
)
OPTIMIZE: Final = _flag(
    "OPTIMIZE",
    str,
    "on",
    "Which passes run before a step is compiled: on (all), off (none), or all but some: -fold,-cse.",
)
DUMP: Final = _flag(
    "DUMP",
    str,
    "",
    "A folder: each step writes its graph there as text, after each stage that changed it, and the source it becomes.",
)
CALL_DEPTH: Final = _flag(
    "CALL_DEPTH",
    int,
    100_000,
    "How deep calls of recursive functions may be nested in a step before it fails with ResourceExhaustedError.",
)


ACCUMULATOR_LIMIT: Final = _flag(
    "ACCUMULATOR_LIMIT",
    int,
    0,
    "Bytes that the gradient of a loop may keep of one value; 0: three quarters of the machine's memory.",
)
SPILL_FOLDER: Final = _flag(
    "SPILL_FOLDER",
    str,
    "",
    "A folder on a disk, for what sessions with a memory limit swap; empty: where the system has temporary files.",
)


def accumulator_limit() -> int:
    """The flag ACCUMULATOR_LIMIT in bytes, where it is 0 what that means on this machine."""
    if ACCUMULATOR_LIMIT.value:
        return ACCUMULATOR_LIMIT.value
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4 * 3


@contextlib.contextmanager
def override(**values: Any) -> Iterator[None]:
    """Sets flags for the length of a `with` block."""
    for name in values:
        if name not in _FLAGS:
            raise KeyError(f"no flag {name!r}; there are {', '.join(sorted(_FLAGS))}")
    before = {n: _FLAGS[n].value for n in values}
    for n, v in values.items():
        _FLAGS[n].value = v
    try:
        yield
    finally:
        for n, v in before.items():
            _FLAGS[n].value = v


def describe() -> str:
    """A markdown table of all flags; `docs/flags.md` is made of it."""
    defaults = {f.name: "not set" if f.default == "" else f"`{f.default}`" for f in _FLAGS.values()}
    rows = [f"| `HEADRACE_{f.name}` | {defaults[f.name]} | {f.doc} |" for f in _FLAGS.values()]
    return "\n".join(["| variable | default | what it does |", "|---|---|---|", *rows])
