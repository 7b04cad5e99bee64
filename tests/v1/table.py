"""Makes docs/reference/v1.md: which of TensorFlow 1's public names `headrace.v1` has.

    python -m tests.v1.table

TensorFlow's names and arguments are data (`tensorflow_names.json`, made by `collect_names.py`); those of headrace are
looked up. Only reasons are written by hand, below.
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import operator
from pathlib import Path
from typing import Any, NamedTuple

NAMES = Path(__file__).parent / "tensorflow_names.json"
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "v1.md"

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
)

# Differences from TensorFlow's objects, other than missing arguments (those are found).
DIFFERS = {
    "DeviceSpec": "made by `from_string`",
    "Variable": "always a resource variable: a read is the value at that time, never one that changes under it",
    "TensorArray": "an element that was never written reads as zeros where a write elsewhere tells the shape",
    "Graph": "tensors and operations cannot be kept from being fed or fetched; no `as_graph_def(from_version)`",
    "GraphDef": "the message of `headrace.pb`: the same fields and wire format, another Python class",
    "NodeDef": "the message of `headrace.pb`: the same fields and wire format, another Python class",
    "AttrValue": "the message of `headrace.pb`: the same fields and wire format, another Python class",
    "RunMetadata": "a record, not a message; of TensorFlow's fields `step_stats` is filled",
    "ConfigProto": "a plain record; of its fields only device counts, numbers of threads, soft placement and the time "
    "limit have an effect",
    "GPUOptions": "a plain record without effect",
    "GraphOptions": "a plain record without effect",
    "OptimizerOptions": "a plain record without effect",
    "RunOptions": "a plain record; only `timeout_in_ms` and `trace_level` have an effect",
    "while_loop": "one operation (`While`) in the graph; Switch, Merge and the like are made when a step is compiled",
    "cond": "one operation (`If`) in the graph; Switch and Merge are made when a step is compiled",
    "name_scope": "a function, not a class",
    "disable_resource_variables": "without effect: variables stay resource variables",
    "control_flow_v2_enabled": "always False, the names being TensorFlow 1's",
    "import_graph_def": "`op_dict` has no effect",
    "train.import_meta_graph": "where the file says nothing of a saver, a new one adds its operations when first used",
    "py_function": "gradients of first order",
    "nn.max_pool_v2": "of images alone, not of sequences or volumes",
    "nn.avg_pool_v2": "of images alone, not of sequences or volumes",
    "assert_equal": "an error shows both tensors, not `data`",
}

# Text for every error class, in place of its arguments.
ERRORS = "raised and caught the same; its own arguments are `(message, node, op)`"

ARGUMENTS_WITHOUT_MEANING = {"cls", "self"}


class Row(NamedTuple):
    """One object of TensorFlow's: its names, and what headrace has of it."""

    names: tuple[str, ...]
    state: str
    remark: str


def recorded() -> dict[str, dict[str, Any]]:
    """TensorFlow's names: area, identity, argument names."""
    found: dict[str, dict[str, Any]] = json.loads(NAMES.read_text(encoding="utf-8"))
    return found


def look_up(name: str) -> Any:
    """Object of `headrace.v1` at a dotted name; None if it is missing."""
    import headrace.v1 as tf

    try:
        return operator.attrgetter(name)(tf)
    except (AttributeError, NotImplementedError):
        return None


@functools.cache
def parameters(f: Any) -> tuple[str, ...] | None:
    """Names of a function's arguments; None if it takes any.

    None also where they differ between versions of Python (enums).
    """
    if isinstance(f, enum.EnumType):
        return None
    try:
        found = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found):
        return None
    return tuple(("*" if p.kind is inspect.Parameter.VAR_POSITIONAL else "") + p.name for p in found)


def missing_arguments(name: str, wanted: list[str] | None) -> list[str]:
    """TensorFlow's arguments that our function of this name has not."""
    ours = parameters(look_up(name)) if wanted else None
    if ours is None or not wanted:
        return []
    return [a for a in wanted if a not in ours and not a.startswith("**") and a not in ARGUMENTS_WITHOUT_MEANING]


def misplaced_arguments(name: str, wanted: list[str] | None) -> list[str]:
    """TensorFlow's arguments that our function has at another place."""
    ours = parameters(look_up(name)) if wanted else None
    if ours is None or not wanted:
        return []
    common = [a for a in wanted if a in ours and a not in ARGUMENTS_WITHOUT_MEANING]
    return [a for a, b in zip(common, [b for b in ours if b in common], strict=True) if a != b]


def rows(area: str) -> list[Row]:
    """Rows of an area's table: the names of one object are in one row.

    They are in two rows if headrace has only some of them.
    """
    groups: dict[tuple[str, bool], list[str]] = {}
    known = recorded()
    for name, entry in known.items():
        if entry["area"] == area:
            groups.setdefault((entry["of"], look_up(name) is not None), []).append(name)
    out = []
    for (_, is_there), names in groups.items():
        names.sort(key=lambda n: (n.count("."), n))
        if not is_there:
            out.append(Row(tuple(names), "has not", ""))
            continue
        remarks = [DIFFERS.get(n, "") for n in names]
        wanted = known[names[0]]["arguments"]
        missing = missing_arguments(names[0], wanted)
        moved = misplaced_arguments(names[0], wanted)
        if names[0].endswith("Error") and inspect.isclass(look_up(names[0])):
            remarks.append(ERRORS)
            missing = moved = []
        if missing:
            remarks.append("without " + ", ".join(f"`{a}`" for a in missing))
        if moved:
            remarks.append("another order: " + ", ".join(f"`{a}`" for a in moved))
        remark = "; ".join(filter(None, remarks))
        out.append(Row(tuple(names), "differs" if remark else "has", remark))
    return sorted(out, key=lambda r: r.names[0].lower())


HEAD = """# TensorFlow 1's names in headrace.v1

This page is generated by `python -m tests.v1.table`; a test fails if it is out of date.

A program for TensorFlow 1 runs with headrace if its import line is changed to

```python
import headrace.v1 as tf
```

and the program uses only names with the state *has* or *differs* in the tables below. The tables list the public
names of `tf.compat.v1` (TensorFlow 2.21) in their areas. Names of the same object share a row. The remark of a name
that *differs* describes the difference; an argument that it lists as missing is refused. Other areas of TensorFlow
are not listed: most names for images, signals, sparse tensors, sets, lookup tables and quantisation exist; data
sets, Keras, estimators and distribution do not.

Three rules hold for all names:

- The `.shape` of a tensor, variable, `SparseTensor` or `IndexedSlices` of a `tf.Graph` is a `TensorShape` of
  `Dimension`s, equal to the result of `get_shape()`. (Modules of headrace itself read the same attribute as a plain
  tuple.)
- A conditional or loop is one operation in the graph, which owns graphs, as in TensorFlow 2. Its results
  nevertheless have TensorFlow 1's names ("cond/Merge:0", "while/Exit:0").
- Variables are resource variables. A value fed for a variable replaces every read of the step, as for TensorFlow
  1's reference variables.

"""


def page() -> str:
    """The text of docs/reference/v1.md."""
    tables = {area: rows(area) for area in AREAS}
    out = [HEAD, "| area | names | has | differs | has not |\n|---|---|---|---|---|\n"]
    for area, found in tables.items():
        count = {s: sum(len(r.names) for r in found if r.state == s) for s in ("has", "differs", "has not")}
        out.append(f"| {area} | {sum(count.values())} | " + " | ".join(map(str, count.values())) + " |\n")
    for area, found in tables.items():
        out.append(f"\n## {area.capitalize()}\n\n| name | | |\n|---|---|---|\n")
        out += [f"| {', '.join(f'`{n}`' for n in r.names)} | {r.state} | {r.remark} |\n" for r in found]
    return "".join(out)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
