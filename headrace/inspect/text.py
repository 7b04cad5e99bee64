"""Descriptions as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.inspect.describing import Description, StepDescription
from headrace.inspect.parts import Box, Passed, Structure, Value, plural, size_text, visible
from headrace.recursion import MOST, recursion_room_for_levels


@recursion_room_for_levels(MOST)
def render(d: Description, limit: int | None = 20) -> str:
    """Formats a description.

    Args:
      d: the description.
      limit: the largest number of entries of each list; None: all entries.

    Example:
      >>> from headrace.inspect.describing import describe
      >>> from headrace.ir.text import from_text
      >>> print(render(describe(from_text("x = NoOp"))).splitlines()[0])
      1 operation of 1 type
    """
    out = [_head(d)]
    _section(out, "inputs (placeholders)", d.inputs, limit)
    _section(out, "outputs (tensors without consumers)", d.outputs, limit)
    _add_inside(out, d, limit)
    return "\n".join(out)


@recursion_room_for_levels(MOST)
def render_step(s: StepDescription, limit: int | None = 20) -> str:
    """Formats the description of a step: its ends, then the operations between them.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import describe_step, render_step
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      ...     y = hr.square(x, name="y")
      >>> print(render_step(describe_step(g, [x], [y], [])).splitlines()[0])
      the step holds 1 of the graph's 2 operations
    """
    out = [f"the step holds {sum(s.graph.ops.values())} of the graph's {plural(s.of, 'operation')}"]
    fed = [f"{v}  -> {_names(readers, limit) or 'no consumer'}" for v, readers in s.args]
    constants = [plural(s.constants, "constant")] if s.constants else []
    _section(out, "Arg (fed)", fed or ["nothing"], limit)
    _section(out, "Retval (fetched)", s.retvals or ["nothing"], limit)
    _section(out, "Source -> (operations without inputs)", [*constants, *s.source] or ["nothing"], limit)
    _section(out, "-> Sink (operations without consumers)", s.sink or ["nothing"], limit)
    _section(out, "placeholders that are not fed", s.graph.inputs, limit)
    _add_inside(out, s.graph, limit)
    return "\n".join(out)


@recursion_room_for_levels(MOST)
def render_box(box: Box, limit: int | None = 20) -> str:
    """Formats the loops, conditionals and calls of a box as a tree, or "".

    The tree shows the values that are passed to each.

    Example:
      >>> from headrace.inspect.structure import draw
      >>> from headrace.ir.text import from_text
      >>> lines = ("p = Placeholder[dtype=bool]", "s = Switch(p, p)", "a = LogicalNot(s:1)", "b = Merge(s, a)")
      >>> g = from_text("\\n".join(lines))
      >>> print(render_box(draw(g)))
      if 'p'  of primitives  -> bool <unknown>
          true: 1 operation
    """
    return "\n".join(_whole(box, limit))


def _head(d: Description) -> str:
    return f"{plural(sum(d.ops.values()), 'operation')} of {plural(len(d.ops), 'type')}"


def _add_inside(out: list[str], d: Description, limit: int | None) -> None:
    """Adds all of a description except its ends."""
    _section(out, "operations", [_columns(d.ops)] if d.ops else [], None)
    _section(out, "dtypes of tensors", [f"{n} {t}" for t, n in d.dtypes.items()], limit)
    _section(out, "constants", _constants(d.constants), limit)
    states = [
        "  ".join(
            filter(None, (r.type, visible(r.name), visible(r.detail), "" if r.bytes is None else size_text(r.bytes)))
        )
        for r in d.resources
    ]
    _section(out, "state", states, limit)
    _section(out, "other operations with effects", [f"{n} {t}" for t, n in d.effects.items()], limit)
    _section(out, "loops, conditionals and calls", list(_whole(d.box, limit)), None)
    _section(out, "functions", d.functions, limit)
    _section(out, "requested devices", [f"{n} on {visible(name)}" for name, n in d.devices.items()], limit)


def _constants(constants: Sequence[Value]) -> list[str]:
    """Number and size of the constants, then the large ones."""
    if not constants:
        return []
    known = sum(c.bytes or 0 for c in constants)
    large = [c for c in constants if (c.bytes or 0) >= 1024]
    return [f"{len(constants)}, {size_text(known)}", *(f"{c}  {size_text(c.bytes or 0)}" for c in large)]


# *** the tree ***


def _whole(box: Box, limit: int | None) -> Iterator[str]:
    """Tree of a whole drawing."""
    if box.note:
        yield visible(box.note, None)
    yield from _tree(box, limit)


def _tree(box: Box, limit: int | None) -> Iterator[str]:
    """Structures of a box, without the box's own line."""
    found = box.structures
    shown = found if limit is None else found[:limit]
    for s in shown:
        yield from _structure(s, limit)
    if len(found) > len(shown):
        yield f"... and {len(found) - len(shown)} more"


def _structure(s: Structure, limit: int | None) -> Iterator[str]:
    yield heading(s)
    shown = s.passed if limit is None else s.passed[:limit]
    for p in shown:
        yield f"    {passed(p)}"
    if len(s.passed) > len(shown):
        yield f"    ... and {len(s.passed) - len(shown)} more"
    for b in s.boxes:
        yield f"    {box_heading(b)}"
        for line in _tree(b, limit):
            yield f"        {line}"


def heading(s: Structure) -> str:
    """Line of a structure: `while 'loop'  on i < n, parallel_iterations 10  -> int32 []  at model.py:3`."""
    node = s.node
    gives = ", ".join(v.kind for v in s.outputs[:8]) + (", ..." if len(s.outputs) > 8 else "")
    words = [f"{s.kind} '{visible(s.name)}'", visible(s.about), f"-> {gives}" if gives else ""]
    if node is not None:
        words += [
            f"on {visible(node.device)}" if node.device else "",
            f"at {visible(node.source)}" if node.source else "",
        ]
    return "  ".join(filter(None, words))


def passed(p: Passed) -> str:
    """Line of a value passed to a structure: `variable  i  int32 []  (from zero, next add)`."""
    way = [f"{word} {visible(x)}" for word, x in (("from", p.start), ("next", p.next), ("out by", p.out)) if x]
    called = f"{visible(p.value.name)}  {p.value.kind}" if p.value.name else p.value.kind
    return f"{p.role}  {called}" + (f"  ({', '.join(way)})" if way else "")


def box_heading(b: Box) -> str:
    """Line of a box: `body 'while_body': 8 operations`."""
    name = f" '{visible(b.name)}'" if b.name else ""
    size = [plural(b.ops, "operation")] if b.ops or not b.note else []
    return f"{visible(b.label)}{name}: " + ", ".join([*size, *([visible(b.note, None)] if b.note else [])])


# *** lists ***


def _section(out: list[str], title: str, entries: Sequence[Any], limit: int | None) -> None:
    if not entries:
        return
    out.append(f"\n{title}:")
    shown = entries if limit is None else entries[:limit]
    for e in shown:
        out.extend("  " + visible(line, None) for line in str(e).splitlines())
    if len(entries) > len(shown):
        out.append(f"  ... and {len(entries) - len(shown)} more")


def _names(names: Sequence[str], limit: int | None) -> str:
    shown = names if limit is None else names[:limit]
    more = len(names) - len(shown)
    return ", ".join(map(visible, shown)) + (f" and {more} more" if more else "")


def _columns(counts: Mapping[str, int], width: int = 100) -> str:
    """Formats counts in columns, row by row: `3 Add   2 Const   ...`."""
    entries = [f"{n:>4} {visible(t)}" for t, n in counts.items()]
    wide = max(map(len, entries)) + 2
    per_row = max(1, width // wide)
    rows = [entries[i : i + per_row] for i in range(0, len(entries), per_row)]
    return "\n".join("".join(e.ljust(wide) for e in row).rstrip() for row in rows)
