"""Thresholds are in one file, each with its unit and the source of its value."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "headrace"
FILE = PACKAGE / "thresholds.py"

KINDS = ("Measured", "Estimate", "TensorFlow", "Bound")
_LAST: Final = re.compile(rf"# Unit: [^.]+\. (?:{'|'.join(KINDS)})(?: \((?P<source>.+)\))?\.")
_SOURCE: Final = re.compile(r'(?P<path>(?:tests|benchmarks|docs)/\S+\.(?:py|md))(?: "(?P<row>[^"]+)")?')

_CONSTANT: Final = re.compile(r"^(_?[A-Z][A-Z0-9_]*)(?:: [^=\n]+)? = (.+?)(?: +#.*)?$", re.M)
_NUMBER: Final = re.compile(r"[-+*/<()\s]*[0-9](?:[-+*/<>()\s0-9_.xA-F]|e[-+]?[0-9])*")

#: Numbers at the top of a module of the engine that are no thresholds.
ENGINE: Final = (
    *("compile", "dist", "eager", "execute", "grad", "lower", "optimize"),
    *("partition", "place", "recover", "schedule", "targets"),
)
ELSEWHERE: Final[dict[str, set[str]]] = {
    "lines and names in error texts and listings": {
        "compile/blame.py SHOWN",
        "dist/launch_ray.py LONGEST_REASON",
        "execute/blame.py BRIEFLY",
        "execute/blame.py EVENTS",
        "execute/blame.py SHOWN",
        "execute/observer.py RECENT",
        "execute/rendezvous.py SHOWN",
        "execute/waits.py SHOWN",
        "place/constraints.py _LISTED",
        "place/simulate.py _COLUMNS",
        "targets/python/source.py _COLUMN",
        "targets/python/source.py _ELEMENTS",
    },
    "the wire format": {
        "dist/codec.py MOST_LEVELS",
        "dist/codec.py UNKNOWN_PEER",
        "dist/codec.py NONCE_BYTES",
        "dist/codec.py VERSION",
        "dist/codec.py _LENGTH_AT",
        "dist/handshake.py NONCE_BYTES",
        "dist/messages.py MASTERS",
        "dist/messages.py LONGEST_TEXT",
        "dist/messages.py MOST_WAITS",
        "dist/messages.py VERSION",
        "dist/step_codec.py VERSION",
        "dist/values.py ALIGNMENT",
        "dist/values.py LARGE",
        "dist/values.py MOST_DEPTH",
        "dist/values.py MOST_DIMS",
        "dist/values.py MOST_ELEMENTS",
        "dist/values.py _NO_RANK",
        "partition/codec.py VERSION",
    },
    "limits of a file of a cluster": {"dist/cluster_spec.py MOST_BYTES", "dist/cluster_spec.py MOST_TASKS"},
    "numbers of the operating system and of `logging`": {
        "dist/reactor.py READ",
        "dist/reactor.py WRITE",
    },
    "limits of Python's grammar": {
        "targets/python/printer.py MOST_BLOCKS",
        "targets/python/printer.py MOST_LOOPS",
        "schedule/scalar_expressions.py DEEPEST",
    },
    "layouts of memory, and results of calls, of native code and of Python's interface for C": {
        "targets/native/entry.py _FASTCALL",
        "targets/native/object_cache.py _DIGEST",
        "targets/native/object_layout.py BYTES_AT",
        "targets/native/object_layout.py ITEMS_AT",
        "targets/native/object_layout.py QUALIFIED",
        "targets/native/object_layout.py TYPE_AT",
        "targets/native/object_layout.py VALUE_AT",
        "targets/native/object_layout.py _ARRAY_TYPE_AT",
        "targets/native/object_layout.py _VERSION",
        "targets/native/object_layout.py _VERSION_AT",
        "targets/native/plan.py ALIGNMENT",
        "targets/native/tuples.py _ALIGNED",
        "targets/native/state.py ALIGNMENT",
        "targets/native/state.py CLASSES",
        "targets/native/state.py COUNTERS",
        "targets/native/state.py DAMAGED",
        "targets/native/state.py DONE",
        "targets/native/state.py LARGEST_CLASS",
        "targets/native/state.py NO_MEMORY",
        "targets/native/state.py STOPPED",
        "targets/native/state.py _FRESH_BYTE",
        "targets/native/state.py _GUARD",
        "targets/native/state.py _GUARD_BYTE",
        "targets/native/support.py MOST_DIMS",
        "targets/native/threads.py _NO_PART",
        "targets/native/threads.py _WORDS",
    },
    "limits of integers and of recursion": {
        "targets/native/lists.py _MOST",
        "targets/native/products.py _MOST",
        "targets/native/regions.py _DEEPEST",
        "targets/native/deep_calls.py _NAMED",
    },
    "tiles of vectors, for the registers and pipelines of processors, and loops that are written out": {
        "targets/native/products.py _BODY",
        "targets/native/products.py _CHAINS",
        "targets/native/products.py _DOT_ROWS",
        "targets/native/products.py _KIND",
        "targets/native/products.py _MOST_ROWS",
        "targets/native/products.py _UNROLLED",
        "targets/native/reductions.py _BLOCK",
        "targets/native/reductions.py _BODY",
        "targets/native/reductions.py _CHAINS",
        "targets/native/reductions.py _ROWS",
        "targets/native/reductions.py _UNROLLED",
        "targets/native/windows/convolution.py _CHUNK",
        "targets/native/windows/convolution.py _POSITIONS",
        "targets/native/windows/convolution.py _VECTORS",
        "targets/native/windows/convolution.py _WRITTEN_PRODUCTS",
        "targets/native/windows/convolution.py _WRITTEN_TAPS",
        "targets/native/windows/lines.py _WRITTEN_TAPS",
        "targets/native/windows/lines.py _WRITTEN_TILES",
        "targets/native/windows/channelwise.py POSITIONS",
        "targets/native/windows/channelwise.py VECTORS",
        "targets/native/windows/channelwise.py WRITTEN_TAPS",
    },
    "deadlines": {
        "dist/launched.py END_SECONDS",
        "dist/master_state.py LONGEST_TIMEOUT",
        "dist/reactor.py PATIENCE",
        "execute/blocking.py _FOREVER",
        "execute/threads.py PATIENCE",
    },
    "markers": {"execute/static_schedule.py BINARY"},
    "tolerances": {"grad/checks.py _ROUNDING"},
}
#: Numbers of the kinds of nodes and of packed counts.
FORMATS: Final = {"execute/plan.py"}


def entries() -> dict[str, list[str]]:
    """Returns the comment above each threshold, by name; names that stand together share it."""
    out: dict[str, list[str]] = {}
    comment: list[str] = []
    is_new = True
    for line in FILE.read_text(encoding="utf-8").splitlines():
        found = re.match(r"([A-Z_]+): Final = ", line)
        if found:
            out[found[1]] = comment
            is_new = True
        elif line.startswith("# "):
            comment = [*([] if is_new else comment), line]
            is_new = False
        elif not line:
            is_new, comment = True, []
    return out


def problem_of(comment: list[str]) -> str:
    """Returns the first fault of a threshold's comment; "" if there is none."""
    if len(comment) < 2:
        return "needs a decision, and a line '# Unit: ...'"
    last = _LAST.fullmatch(comment[-1])
    if last is None:
        return f"the last line must be '# Unit: UNIT. KIND (SOURCE).' with a KIND of {KINDS}: {comment[-1]!r}"
    if last["source"] is None:
        return "Measured needs a source" if "Measured" in comment[-1] else ""
    source = _SOURCE.fullmatch(last["source"])
    if source is None:
        return "" if "TensorFlow (" in comment[-1] else f"the source is not a file: {last['source']!r}"
    path = ROOT / source["path"]
    if not path.is_file():
        return f"{source['path']} does not exist"
    if source["row"] and source["row"] not in path.read_text(encoding="utf-8"):
        return f"{source['path']} has no {source['row']!r}"
    return ""


def numbers(source: str) -> set[str]:
    """Returns the constants of a module that consist of numbers."""
    return {name for name, value in _CONSTANT.findall(source) if _NUMBER.fullmatch(value)}


def test_thresholds_have_a_unit_and_a_source() -> None:
    problems = {name: problem for name, comment in entries().items() if (problem := problem_of(comment))}
    assert len(entries()) > 60
    assert not problems, problems


@pytest.mark.parametrize(
    "comment",
    [
        ["# Unit: bytes. Estimate."],
        ["# Size of a slice.", "# Unit: bytes."],
        ["# Size of a slice.", "# Unit: bytes. Measured."],
        ["# Size of a slice.", "# Unit: bytes. Measured (benchmarks/absent.py)."],
        ["# Size of a slice.", '# Unit: bytes. Measured (docs/internals/fusion.md "No Such Heading").'],
        ["# Size of a slice.", "# Unit: bytes. Estimate (it seemed right)."],
    ],
)
def test_a_faulty_comment_is_found(comment: list[str]) -> None:
    assert problem_of(comment)


@pytest.mark.system
def test_every_threshold_is_read_by_a_module() -> None:
    text = "\n".join(p.read_text(encoding="utf-8") for p in PACKAGE.rglob("*.py") if p != FILE and "/pb/" not in str(p))
    unused = entries().keys() - set(re.findall(r"\bthresholds\.([A-Z_]+)", text))
    assert not unused, f"thresholds that no module reads: {sorted(unused)}"


def test_modules_of_the_engine_have_no_thresholds_of_their_own() -> None:
    found = {
        f"{path.relative_to(PACKAGE).as_posix()} {name}"
        for part in ENGINE
        for path in (PACKAGE / part).rglob("*.py")
        if path.relative_to(PACKAGE).as_posix() not in FORMATS
        for name in numbers(path.read_text(encoding="utf-8"))
    }
    listed = set().union(*ELSEWHERE.values())
    assert not found - listed, f"thresholds that belong in headrace/thresholds.py: {sorted(found - listed)}"
    assert not listed - found, f"names to remove from ELSEWHERE: {sorted(listed - found)}"


def test_numbers_at_the_top_of_a_module_are_found() -> None:
    source = (
        "A = 1 << 4\nB: int = -2.5\nC = 'x'\nD = A + 1\nE = (1, 2)\nF = True\n  G = 3\nH: Final = 1e-4  # seconds\n"
    )
    assert numbers(source) == {"A", "B", "H"}
