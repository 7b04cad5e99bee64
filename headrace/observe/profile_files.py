"""Files of a profile: a Chrome trace, collapsed stacks and a page."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace.metadata.run import show_seconds
from headrace.observe.profile_rows import short
from headrace.records import record

if TYPE_CHECKING:
    from headrace.observe.profile_rows import Row


@record(slots=True)
class _Frame:
    """Loop or function of the drawing, with all that is inside.

    Attributes:
      name: its name.
      rows: the rows of its own.
      inside: the loops inside, by name.
    """

    name: str
    rows: list[Row] = dataclasses.field(default_factory=list)
    inside: dict[str, _Frame] = dataclasses.field(default_factory=dict)

    def nanoseconds(self) -> int:
        """The time of all rows inside, as the sum of rounded times."""
        own = sum(round(row.seconds * 1e9) for row in self.rows)
        return own + sum(frame.nanoseconds() for frame in self.inside.values())


@record(frozen=True, slots=True)
class _Bar:
    """Bar with its place.

    Attributes:
      name: its text.
      row: the row, or None for a loop or function.
      start: the first nanosecond.
      end: the nanosecond behind the last.
      depth: the number of bars around it.
    """

    name: str
    row: Row | None
    start: int
    end: int
    depth: int


def _frames(rows: Sequence[Row]) -> dict[str, _Frame]:
    """A frame of each device with the rows by loop."""
    out: dict[str, _Frame] = {}
    for row in rows:
        frame = out.setdefault(row.device, _Frame(row.device or "profile"))
        for name in row.path:
            frame = frame.inside.setdefault(name, _Frame(name))
        frame.rows.append(row)
    return out


def _bars(frame: _Frame, start: int = 0, depth: int = 0) -> Iterator[_Bar]:
    """The bars of a frame: itself, the bars inside and its rows, the longest first."""
    yield _Bar(frame.name, None, start, start + frame.nanoseconds(), depth)
    for inner in sorted(frame.inside.values(), key=lambda f: -f.nanoseconds()):
        yield from _bars(inner, start, depth + 1)
        start += inner.nanoseconds()
    for row in frame.rows:
        end = start + round(row.seconds * 1e9)
        if end > start:
            yield _Bar(row.label, row, start, end, depth + 1)
        start = end


def write_chrome(rows: Sequence[Row], runs: int, path: str) -> None:
    """Writes the sums of a profile as a Chrome trace; see `Profile.write_chrome`."""
    import json  # a slow import, needed only here

    out: list[dict[str, Any]] = []
    for pid, (device, frame) in enumerate(_frames(rows).items(), 1):
        title = f"profile of {runs} runs{f', {device}' if device else ''}: sums, not a time line"
        out.append({"name": "process_name", "ph": "M", "pid": pid, "tid": 0, "args": {"name": title}})
        for bar in _bars(frame):
            times = {"ts": bar.start / 1000, "dur": (bar.end - bar.start) / 1000}
            kind = "loop" if bar.row is None else "+".join(dict.fromkeys(bar.row.types))
            about = {} if bar.row is None else _about(bar.row)
            out.append({"name": bar.name, "cat": kind, "ph": "X", **times, "pid": pid, "tid": 1, "args": about})
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"traceEvents": out, "displayTimeUnit": "ns"}, f)


def _about(row: Row) -> dict[str, Any]:
    return {
        "ops": list(row.names),
        "types": list(row.types),
        "calls": row.calls,
        "lines": list(row.lines),
        "shapes": list(row.shapes),
        "machine code": row.is_native,
    }


def write_collapsed(rows: Sequence[Row], path: str) -> None:
    """Writes the sums of a profile as collapsed stacks; see `Profile.write_collapsed`."""
    with open(path, "w", encoding="utf-8") as f:
        for row in rows:
            microseconds = round(row.seconds * 1e6)
            if microseconds:
                lines = ", ".join(map(short, row.lines))
                stack = [row.device, *row.path, row.label, lines]
                f.write(";".join(_clean(name) for name in stack if name) + f" {microseconds}\n")


def _clean(name: str) -> str:
    """A name without the separators of collapsed stacks."""
    return name.replace(";", ":").replace("\n", " ")


_STYLE: Final = """
:root { color-scheme: light dark; font: 14px/1.4 system-ui, sans-serif; }
body { margin: 1rem; }
.bars { position: relative; margin-bottom: 1rem; }
.bars div { position: absolute; height: 19px; overflow: hidden; white-space: nowrap; font-size: 12px; color: #000;
  border-radius: 2px; box-sizing: border-box; border-right: 1px solid #fff; padding-left: 3px; }
table { border-collapse: collapse; }
td, th { padding: 1px 8px; text-align: left; }
td:nth-child(-n+3), th:nth-child(-n+3) { text-align: right; font-variant-numeric: tabular-nums; }
"""


def write_html(rows: Sequence[Row], seconds: float, heads: Sequence[str], path: str) -> None:
    """Writes a page of a profile; see `Profile.write_html`."""
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(_page(rows, seconds or 1.0, heads)) + "\n")


def _page(rows: Sequence[Row], seconds: float, heads: Sequence[str]) -> Iterator[str]:
    yield f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Profile</title><style>{_STYLE}</style>'
    yield f"</head><body><h1>Profile</h1><p>{'<br>'.join(map(html.escape, heads))}</p>"
    for frame in _frames(rows).values():
        bars = list(_bars(frame))
        whole = max(bars[0].end, 1)
        yield f'<div class="bars" style="height: {20 * (1 + max(bar.depth for bar in bars))}px">'
        for bar in bars:
            yield _div(bar, whole)
        yield "</div>"
    yield "<table><tr><th>time<th>share<th>calls<th>op<th>type<th>loop<th>line</tr>"
    for row in rows:
        time, share = (show_seconds(row.seconds), f"{row.seconds / seconds:.1%}") if row.is_timed else ("", "")
        cells = [time, share, f"{row.calls:,}", row.label, "+".join(dict.fromkeys(row.types)), row.shown_path]
        yield "<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in [*cells, ", ".join(row.lines)]) + "</tr>"
    yield "</table></body></html>"


def _div(bar: _Bar, whole: int) -> str:
    hue = 210 if bar.row is None else 30 if bar.row.is_native else 100
    place = f"left: {bar.start / whole:.4%}; width: {(bar.end - bar.start) / whole:.4%}; top: {20 * bar.depth}px"
    about = f"{bar.name}: {show_seconds((bar.end - bar.start) / 1e9)}"
    if bar.row is not None:
        about += f", {bar.row.calls:,} calls\n" + "\n".join(bar.row.lines)
    name = html.escape(bar.name)
    return f'<div style="{place}; background: hsl({hue} 60% 75%)" title="{html.escape(about)}">{name}</div>'
