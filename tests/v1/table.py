"""Makes docs/reference/v1.md and its pages of areas: which of TensorFlow 1's public names `headrace.v1` has.

    python -m tests.v1.table

TensorFlow's names, arguments and members are data (`tensorflow_names.json` and `tensorflow_members.json`, made by
`collect_names.py`); those of headrace are looked up. Differences are written by hand below, and the reasons for absent
names in `headrace/v1/absent.py`, which errors show too.
"""

from __future__ import annotations

import dis
import enum
import functools
import importlib
import inspect
import json
import operator
import types
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, NamedTuple

NAMES = Path(__file__).parent / "tensorflow_names.json"
FIRST_NAMES = Path(__file__).parent / "first_names.txt"
MEMBERS = Path(__file__).parent / "tensorflow_members.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "v1.md"
FOLDER = PAGE.with_suffix("")

AREAS = (
    "graph",
    "control flow",
    "math",
    "array",
    "state",
    "session",
    "queues",
    "input",
    "training",
    "layers",
    "losses and metrics",
    "summaries",
    "images",
    "signals",
    "sparse tensors",
    "ragged tensors",
    "sets",
    "lookup tables",
    "quantization",
    "audio",
    "distributions",
    "data sets",
    "feature columns",
    "saved models",
    "eager execution",
    "mixed precision",
    "programs",
    "tests",
    "system",
    "profiler",
    "experimental",
    "XLA and MLIR",
    "raw operations",
    "Keras",
    "TensorFlow Lite",
    "TPUs",
    "distribution",
)

# Areas outside of the goal, of which headrace has little by intent.
OUTSIDE = ("Keras", "TensorFlow Lite", "TPUs", "distribution")

# Areas whose pages have a row for each remark: most of their names share one.
BY_REMARK = (*OUTSIDE, "raw operations")
# Differences from TensorFlow's objects, other than missing arguments (those are found).
DIFFERS = {
    "enable_tensor_equality": "variables compare by identity, in eager execution too",
    "TensorArray": "an element that was never written reads as zeros where a write elsewhere tells the shape",
    "Graph": "no `as_graph_def(from_version)`; scopes and devices are always those of the thread",
    "RunMetadata": "the message of `headrace.pb`; of its fields `step_stats` and `partition_graphs` are filled",
    "while_loop": "one operation (`While`) in the graph; Switch, Merge and the like are made when a step is compiled",
    "cond": "one operation (`If`) in the graph; Switch and Merge are made when a step is compiled",
    "CXX11_ABI_FLAG": "0: headrace has no C++ interface",
    "CXX_VERSION": "0: headrace has no C++ interface",
    "MONOLITHIC_BUILD": "0: headrace has no C++ interface",
    "resource_loader.load_resource": "paths are below the folder of the caller",
    "errors.error_code_from_exception_type": "another class is a `KeyError`",
    "train.import_meta_graph": "where the file says nothing of a saver, a new one adds its operations when first used",
    "debugging.enable_check_numerics": "the values of every step are checked, of older operations too",
    "register_tensor_conversion_function": "the function is given no dtype",
    "py_function": "gradients of first order",
}

# `*args` is how the signature of a wrapped function of TensorFlow's looks.
ARGUMENTS_WITHOUT_MEANING = {"cls", "self", "*args"}


class Row(NamedTuple):
    """One object of TensorFlow's: its names, and the state and difference of headrace's."""

    names: tuple[str, ...]
    state: str
    remark: str


class Count(NamedTuple):
    """Numbers of names by state."""

    has: int
    differs: int
    has_not: int

    @property
    def all(self) -> int:
        return sum(self)

    def percent(self, number: int) -> str:
        return f"{100 * number / self.all:.1f} %" if self.all else ""


@functools.cache
def recorded() -> dict[str, dict[str, Any]]:
    """TensorFlow's names: area, identity, argument names."""
    found: dict[str, dict[str, Any]] = json.loads(NAMES.read_text(encoding="utf-8"))
    return found


@functools.cache
def recorded_members() -> dict[str, list[str]]:
    """The public members of TensorFlow's classes."""
    found: dict[str, list[str]] = json.loads(MEMBERS.read_text(encoding="utf-8"))
    return found


MISSING = object()

# TensorFlow's public class -> the class of the objects, where headrace's public class is abstract.
CLASSES = {"Tensor": "headrace.ir.graph:Tensor"}


@functools.cache
def look_up(name: str) -> Any:
    """Object of `headrace.v1` at a dotted name; `MISSING` without one."""
    import headrace.v1 as tf

    try:
        return operator.attrgetter(name)(tf)
    except (AttributeError, NotImplementedError):
        return MISSING


def is_there(name: str) -> bool:
    """Whether `headrace.v1` has a name."""
    return look_up(name) is not MISSING


@functools.cache
def parameters(name: str) -> tuple[str, ...] | None:
    """Names of the arguments of a function of `headrace.v1`; None if it takes any.

    None also where they differ between versions of Python (enums).
    """
    f = look_up(name)
    if name.startswith("raw_ops."):
        from headrace.ir.opdef import op_registry

        record = op_registry.get(name.partition(".")[2])
        return (*(a.name for a in record.ins), *record.attrs, "name")
    if isinstance(f, enum.EnumType):
        return None
    if name == "flags.FLAGS":
        f = types.MethodType(type(f).__call__, f)  # `FLAGS` reads the command line for any attribute
    try:
        found = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found):
        return None
    return tuple(("*" if p.kind is inspect.Parameter.VAR_POSITIONAL else "") + p.name for p in found)


def missing_arguments(name: str, wanted: list[str] | None) -> list[str]:
    """TensorFlow's arguments that our function of this name has not."""
    ours = parameters(name) if wanted else None
    if ours is None or not wanted:
        return []
    return [a for a in wanted if a not in ours and not a.startswith("**") and a not in ARGUMENTS_WITHOUT_MEANING]


def misplaced_arguments(name: str, wanted: list[str] | None) -> list[str]:
    """TensorFlow's arguments that our function has at another place.

    Those of raw operations are given by keyword.
    """
    ours = parameters(name) if wanted and not name.startswith("raw_ops.") else None
    if ours is None or not wanted:
        return []
    common = [a for a in wanted if a in ours and a not in ARGUMENTS_WITHOUT_MEANING]
    return [a for a, b in zip(common, [b for b in ours if b in common], strict=True) if a != b]


@functools.cache
def rows(area: str) -> tuple[Row, ...]:
    """Rows of an area's table: the names of one object are in one row.

    They are in two rows if headrace has only some of them.
    """
    from headrace.v1 import absent

    groups: dict[tuple[str, bool], list[str]] = {}
    known = recorded()
    for name, entry in known.items():
        if entry["area"] == area:
            groups.setdefault((entry["of"], is_there(name)), []).append(name)
    out = []
    for (_, there), names in groups.items():
        names.sort(key=lambda n: (n.count("."), n))
        if not there:
            out.append(Row(tuple(names), "has not", absent.reason(names[0])))
            continue
        remarks = [DIFFERS.get(n, "") for n in names]
        wanted = known[names[0]]["arguments"]
        missing = missing_arguments(names[0], wanted)
        moved = misplaced_arguments(names[0], wanted)
        if missing:
            remarks.append("without " + ", ".join(f"`{a}`" for a in missing))
        if moved:
            remarks.append("another order: " + ", ".join(f"`{a}`" for a in moved))
        remark = "; ".join(filter(None, remarks))
        out.append(Row(tuple(names), "differs" if remark else "has", remark))
    return tuple(sorted(out, key=lambda r: r.names[0].lower()))


@functools.cache
def of_version_1() -> frozenset[str]:
    """The names of TensorFlow 1.15, the last version of TensorFlow 1."""
    return frozenset(FIRST_NAMES.read_text(encoding="utf-8").split())


def count(areas: Iterable[str], among: Container[str] | None = None) -> Count:
    """The numbers of names of areas by state, of all or among some names."""
    found = [(r.state, n) for area in areas for r in rows(area) for n in r.names if among is None or n in among]
    return Count(*(sum(state == s for state, _ in found) for s in ("has", "differs", "has not")))


def own_members(cls: type) -> set[str]:
    """Attributes of objects: those of the class, its fields, those that methods assign."""
    found = set(dir(cls))
    for c in cls.__mro__:
        found |= set(vars(c).get("__annotations__", ()))
        for f in vars(c).values():
            if isinstance(f, types.FunctionType):
                found |= {i.argval for i in dis.get_instructions(f) if i.opname == "STORE_ATTR"}
    return found


def missing_members() -> dict[str, tuple[int, list[str]]]:
    """Class -> the number of TensorFlow's public members, and those that headrace has not."""
    out = {}
    for name, wanted in recorded_members().items():
        module, _, inside = CLASSES.get(name, "").partition(":")
        cls = getattr(importlib.import_module(module), inside) if module else look_up(name)
        if isinstance(cls, type) and wanted:
            out[name] = len(wanted), sorted(set(wanted) - own_members(cls))
    return out


HEAD = """# TensorFlow 1's names in headrace.v1

This page and those of the areas are generated by `python -m tests.v1.table`; a test fails if one is out of date.

A program for TensorFlow 1 runs with headrace if its import line is changed to

```python
import headrace.v1 as tf
```

and the program uses only names with the state *has* or *differs* on the pages below. They list all public names of
`tf.compat.v1` (TensorFlow 2.21 with tf_keras 2.21), each in its area. Names of the same object share a row. The remark
of a name that *differs* describes the difference; an argument that it lists as missing is refused. The remark of a name
that headrace *has not* is the reason, or the name to use in its place; the error for a missing name has the same text.
Many names of `tf.compat.v1` are younger than TensorFlow 1; the first row of the summary counts those that TensorFlow
1.15, its last version, had. The `tf.contrib` of TensorFlow 1 is no part of `tf.compat.v1`, nor is `tf.estimator`, which
is a package of its own ([estimators.md](../how-to/estimators.md)).

Three rules hold for all names:

- The `.shape` of a tensor, variable, `SparseTensor` or `IndexedSlices` of a `tf.Graph` is a `TensorShape` of
  `Dimension`s, equal to the result of `get_shape()`. (Modules of headrace itself read the same attribute as a plain
  tuple.)
- A conditional or loop is one operation in the graph, which owns graphs, as in TensorFlow 2. Its results
  nevertheless have TensorFlow 1's names ("cond/Merge:0", "while/Exit:0"). After `tf.disable_v2_behavior()` or
  `tf.disable_control_flow_v2()`, `Graph.as_graph_def()` and the files made from it have Switch, Merge, Enter and Exit
  in its place, as in TensorFlow.
- Variables of graphs are reference variables (`VariableV2`), with TensorFlow's aliasing, but after
  `tf.enable_resource_variables()` and with `use_resource=True`: then they are resource variables.
  A value fed for a variable replaces every read of the step.

"""

HEADING = "| names | all | has | differs | has not | has or differs |\n|---|---|---|---|---|---|\n"


def slug(area: str) -> str:
    """The name of an area's page."""
    return area.lower().replace(" ", "_")


def line(title: str, numbers: Count) -> str:
    """A row of the summary."""
    of_them = numbers.has + numbers.differs
    return (
        f"| {title} | {numbers.all} | {numbers.has} ({numbers.percent(numbers.has)}) | {numbers.differs} | "
        f"{numbers.has_not} | {of_them} ({numbers.percent(of_them)}) |\n"
    )


def title(area: str) -> str:
    return area[0].upper() + area[1:]


def page() -> str:
    """The text of docs/reference/v1.md."""
    inside = [a for a in AREAS if a not in OUTSIDE]
    written = [a for a in inside if a != "raw operations"]
    out = [HEAD, "## Summary\n\n", HEADING]
    without = f"without {', '.join(OUTSIDE)} and raw operations"
    out.append(line(f"of TensorFlow 1.15, {without}", count(written, of_version_1())))
    out.append(line(without, count(written)))
    out.append(line(f"without {', '.join(OUTSIDE)}", count(inside)))
    out.append(line("all", count(AREAS)))
    out.append("\n## Areas\n\n" + HEADING.replace("names", "area", 1))
    out += [line(f"[{title(a)}](v1/{slug(a)}.md)", count([a])) for a in AREAS]
    found = missing_members().values()
    lacking = sum(len(m) for _, m in found)
    total = sum(n for n, _ in found)
    out.append(
        f"\nOf the {total} public members of the {len(found)} classes that both have, headrace has {total - lacking} "
        f"({100 * (1 - lacking / total):.1f} %): [members of classes](v1/members.md).\n"
    )
    return "".join(out)


def area_page(area: str) -> str:
    """The text of the page of an area."""
    numbers = count([area])
    out = [
        f"# TensorFlow 1's names: {area}\n\n",
        f"Of {numbers.all} names headrace.v1 has {numbers.has}, {numbers.differs} differ and {numbers.has_not} are "
        "absent. [The first page](../v1.md) explains the table. Generated by `python -m tests.v1.table`.\n\n",
        "| name | | |\n|---|---|---|\n",
    ]
    if area in BY_REMARK:
        out += [f"| {', '.join(f'`{n}`' for n in names)} | {s} | {r} |\n" for (s, r), names in by_remark(area).items()]
    else:
        out += [f"| {', '.join(f'`{n}`' for n in r.names)} | {r.state} | {r.remark} |\n" for r in rows(area)]
    return "".join(out)


def by_remark(area: str) -> dict[tuple[str, str], list[str]]:
    """State and remark -> all names that have them."""
    out: dict[tuple[str, str], list[str]] = {}
    for row in rows(area):
        out.setdefault((row.state, row.remark), []).extend(row.names)
    return out


def members_page() -> str:
    """The text of the page of members."""
    out = [
        "# TensorFlow 1's names: members of classes\n\n",
        "The public members of the classes of `tf.compat.v1` that headrace.v1 has too. Generated by "
        "`python -m tests.v1.table`.\n\n",
        "| class | members | headrace has not |\n|---|---|---|\n",
    ]
    out += [f"| `{c}` | {n} | {', '.join(f'`{m}`' for m in m)} |\n" for c, (n, m) in missing_members().items()]
    return "".join(out)


def pages() -> dict[Path, str]:
    """All pages: file -> text."""
    found = {PAGE: page(), FOLDER / "members.md": members_page()}
    return found | {FOLDER / f"{slug(a)}.md": area_page(a) for a in AREAS}


def write() -> None:
    """Writes all pages, and removes others."""
    wanted = pages()
    FOLDER.mkdir(exist_ok=True)
    for file in set(FOLDER.glob("*.md")) - set(wanted):
        file.unlink()
    for file, text in wanted.items():
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
    print(PAGE)
