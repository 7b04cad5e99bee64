"""Paused step as plain data for its page: place, levels, frames, ready and waiting nodes.

Lists and texts are bounded (`thresholds.LIVE_ENTRIES`, `LIVE_TEXT`), so that a page can show any program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace import thresholds
from headrace.observe.value_text import value_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.observe.paused import Entry, Level, OpenFrame, Paused


def document_of_pause(paused: Paused) -> dict[str, Any]:
    """Returns a paused step as data for JSON.

    The field `op` is the operation that has fired, `device` its device ("" if the step has one only) and `tag` its
    iteration. Each list is an object with its length `n` and its first `entries`.
    """
    op, levels, firing = paused.op, paused.levels(), paused.firing
    return {
        "op": op.name,
        "type": op.type,
        "source": op.source,
        "reason": paused.reason,
        "device": paused.machine.plan.device,
        "tag": firing.it.tag,
        "where": levels[0].where,
        "values": [clipped(value_text(v)) for v in paused.values[:thresholds.LIVE_ENTRIES]],
        "levels": [_level(x) for x in levels[:thresholds.LIVE_ENTRIES]],
        "frames": _list([_frame(f) for f in paused.frames()]),
        "ready": _list(paused.ready()),
        "started": _list(paused.started()),
        "waiting": _list(paused.waiting()),
    }  # fmt: skip


def clipped(text: str) -> str:
    """Returns at most `LIVE_TEXT` characters of a text."""
    return text if len(text) <= thresholds.LIVE_TEXT else f"{text[: thresholds.LIVE_TEXT]} ..."


def _list(entries: Sequence[Entry] | list[dict[str, Any]]) -> dict[str, Any]:
    first = entries[: thresholds.LIVE_ENTRIES]
    return {"n": len(entries), "entries": [x if isinstance(x, dict) else _entry(x) for x in first]}


def _level(x: Level) -> dict[str, Any]:
    about = {"kind": x.kind, "name": x.name, "iteration": x.iteration, "tag": x.tag}
    return {**about, "op": x.op.name, "source": x.op.source}


def _frame(f: OpenFrame) -> dict[str, Any]:
    return {
        "kind": f.kind, "name": f.name, "tag": f.tag, "device": f.device, "limit": f.limit, "held": f.held,
        "iterations": {"n": len(f.iterations), "entries": [list(x) for x in f.iterations[:thresholds.LIVE_ENTRIES]]},
    }  # fmt: skip


def _entry(e: Entry) -> dict[str, Any]:
    missing = [clipped(name) for name in e.missing[: thresholds.LIVE_ENTRIES]]
    return {
        "op": e.op.name, "type": e.op.type, "tag": e.tag, "device": e.device, "dead": e.is_dead, "missing": missing
    }  # fmt: skip
