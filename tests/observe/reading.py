"""A recording's document as Python objects, for the tests."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headrace import step_events
from headrace.observe import columns


class Token(NamedTuple):
    """A row of the tokens with its texts: values are `(dtype, shape, elements)` of the outputs."""

    node: str
    tag: str
    dead: bool
    values: tuple[tuple[str, str, str], ...]


def column(document: dict[str, Any], table: str, name: str) -> list[Any]:
    found: list[Any] = columns.read(document[table][name]).tolist()
    return found


def rows(document: dict[str, Any], table: str) -> list[dict[str, Any]]:
    """Rows of a table of columns, with None for a missing index and for NaN."""
    names = list(document[table])
    given = zip(*(column(document, table, name) for name in names), strict=True)
    return [
        {n: None if v in (columns.NONE,) or v != v else v for n, v in zip(names, row, strict=True)} for row in given
    ]


def tokens(document: dict[str, Any]) -> list[Token]:
    """Tokens in order."""
    values, texts, out = rows(document, "values"), document["strings"], []
    for row in rows(document, "tokens"):
        node = document["nodes"][row["node"]]
        first, n = row["value"], len(node["outputs"])
        kept = [] if first is None else values[first : first + n]
        shown = tuple((texts[v["dtype"]], texts[v["shape"]], texts[v["elements"]]) for v in kept)
        out.append(Token(node["name"], document["tags"][row["tag"]]["text"], bool(row["dead"]), shown))
    return out


def fired(document: dict[str, Any]) -> list[Token]:
    """Tokens without those of feeds and parameters, of which there are no events."""
    arguments = {n["name"] for n in document["nodes"] if n["type"] == "_Arg"}
    return [t for t in tokens(document) if t.node not in arguments]


def values_of(document: dict[str, Any], node: str, output: int = 0) -> dict[str, str]:
    """Elements of an output of a node by tag, of its live tokens."""
    return {t.tag: t.values[output][2] for t in tokens(document) if t.node == node and t.values}


def causes(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """(node, tag) → cause of each dead token."""
    return {
        (document["nodes"][r["node"]]["name"], document["tags"][r["tag"]]["text"]): document["causes"][r["cause"]]
        for r in rows(document, "tokens")
        if r["cause"] is not None
    }


def held_by(document: dict[str, Any]) -> dict[str, str | None]:
    """Tag → node that let its iteration open, on the first device that opened it."""
    return {
        document["tags"][r["tag"]]["text"]: None if r["held_by"] is None else document["nodes"][r["held_by"]]["name"]
        for r in reversed(rows(document, "iterations"))
    }


def in_flight(document: dict[str, Any]) -> dict[tuple[str, str], int]:
    """(device, tag without the iteration) → most iterations that were open at once."""
    most: dict[tuple[str, str], int] = {}
    found = rows(document, "iterations")
    for row in found:
        key = document["devices"][row["device"]], document["tags"][row["tag"]]["text"].rpartition("#")[0]
        same = [r for r in found if r["device"] == row["device"] and _loop(document, r) == key[1]]
        most[key] = max(most.get(key, 0), sum(r["open"] <= row["open"] < r["close"] for r in same))
    return most


def _loop(document: dict[str, Any], row: dict[str, Any]) -> str:
    return str(document["tags"][row["tag"]]["text"].rpartition("#")[0])


def path(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Critical path as (node, tag)."""
    all_of = tokens(document)
    return [(all_of[i].node, all_of[i].tag) for i in columns.read(document["critical"]).tolist()]


class Events:
    """Listener that keeps events with values and causes, which the interpreter reports without a recording."""

    wants_values = True
    wants_causes = True

    def __init__(self) -> None:
        self.all: list[step_events.Event] = []

    def __call__(self, event: step_events.Event) -> None:
        self.all.append(event)

    def ends(self) -> list[tuple[str, str, bool]]:
        return [(e.node, e.tag, e.dead) for e in self.all if isinstance(e, step_events.NodeEnd)]


def elements(value: Any) -> str:
    return ", ".join(str(x) for x in np.asarray(value).reshape(-1))
