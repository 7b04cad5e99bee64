"""Boxes as Graphviz text with nested clusters, for `dot -Tsvg`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headrace.inspect.parts import Box, Node, Structure, cut, nodes, plural, size_text, visible
from headrace.inspect.text import box_heading, heading
from headrace.recursion import MOST, recursion_room_for_levels

_COLORS: Final = {"while": "#dbe9f6", "for": "#dbe9f6", "loop": "#dbe9f6", "if": "#fdebd0", "case": "#fdebd0"}
_OTHER: Final = "#e6f2e1"
_SHAPES: Final = {"_Arg": "cds", "Placeholder": "cds", "Const": "note", "Switch": "diamond", "Merge": "invtrapezium"}
_NAMED: Final = 40  # characters of a name: boxes are as wide as their text


@recursion_room_for_levels(MOST)
def render_dot(box: Box, title: str = "graph", limit: int | None = None) -> str:
    """Formats a box as a directed graph, in ASCII.

    Data edges are solid and control edges dashed. Edges from one iteration to the next are thick. The results of a
    branch or body have a double border.

    Args:
      box: the box to draw.
      title: the title of the graph.
      limit: the largest number of operations to draw; a note gives the number of the others. None: all.

    Example:
      >>> from headrace.inspect.structure import draw
      >>> from headrace.ir.text import from_text
      >>> print(render_dot(draw(from_text("x = NoOp\\ny = NoOp ^x"))))
      digraph "graph" {
        graph [label="graph", labelloc=t, fontname="sans-serif", compound=true];
        node [shape=box, fontname="sans-serif", fontsize=10];
        edge [fontname="sans-serif", fontsize=8];
        n1 [label="x\\nNoOp", tooltip="x at <text>:1"];
        n2 [label="y\\nNoOp", tooltip="y at <text>:2"];
        n1 -> n2 [style=dashed];
      }
    """
    box = cut(box, limit)
    lines = [
        f"digraph {_quote(title)} {{",
        f'  graph [label={_quote(title)}, labelloc=t, fontname="sans-serif", compound=true];',
        '  node [shape=box, fontname="sans-serif", fontsize=10];',
        '  edge [fontname="sans-serif", fontsize=8];',
        *(f"  {line}" for line in _Clusters().inside(box)),
        *(f"  {line}" for line in _edges(box)),
        "}",
    ]
    return "\n".join(lines)


class _Clusters:
    """Writer of nested clusters, which have consecutive numbers."""

    def __init__(self) -> None:
        self._count = 0

    def inside(self, box: Box) -> Iterator[str]:
        returned = {i for _, i in box.results}
        for part in box.parts:
            if isinstance(part, Node):
                yield _node(part, part.id in returned)
            else:
                yield from self._structure(part, part.node is not None and part.node.id in returned)
        if box.note or box.left_out:
            more = f"{plural(box.left_out, 'operation')} not drawn" if box.left_out else ""
            self._count += 1
            text = _quote("\n".join(filter(None, (box.note, more))))
            yield f"note{self._count} [shape=plaintext, label={text}];"

    def _structure(self, s: Structure, is_result: bool) -> Iterator[str]:
        yield f"subgraph cluster_{self._next()} {{"
        label = _quote(heading(s).replace("  ", "\n"))
        yield f'  label={label}; style="rounded,filled"; fillcolor="{_COLORS.get(s.kind, _OTHER)}";'
        if s.node is not None:
            yield f"  {_node(s.node, is_result)}"
        for b in s.boxes:
            yield f"  subgraph cluster_{self._next()} {{"
            yield f'    label={_quote(box_heading(b))}; style="rounded,filled"; fillcolor="white";'
            for line in self.inside(b):
                yield f"    {line}"
            yield "  }"
        yield "}"

    def _next(self) -> int:
        self._count += 1
        return self._count


def _node(n: Node, is_result: bool) -> str:
    lines = [n.name if len(n.name) <= _NAMED else "..." + n.name[-_NAMED:], n.type]
    lines += [v.kind for v in n.outputs[:4]]
    if n.type == "Const" and n.outputs and n.outputs[0].bytes is not None:
        lines[-1] += f", {size_text(n.outputs[0].bytes)}"
    lines += [n.device] if n.device else []
    form = f", shape={_SHAPES[n.type]}" if n.type in _SHAPES else ""
    tip = f", tooltip={_quote(f'{n.name} at {n.source}')}" if n.source else ""
    return f"n{n.id} [label={_quote(chr(10).join(lines))}{form}{', peripheries=2' if is_result else ''}{tip}];"


def _edges(box: Box) -> Iterator[str]:
    drawn = {n.id for n in nodes(box)}
    for n in nodes(box):
        for i, (name, source) in enumerate(n.inputs):
            if source in drawn:
                index = name.rpartition(":")[2] if ":" in name else ""
                look = [f'taillabel="{index}"'] if index else []
                look += ["penwidth=2.5", "constraint=false"] if n.goes_back and i else []
                style = f" [{', '.join(look)}]" if look else ""
                yield f"n{source} -> n{n.id}{style};"
        for _, source in n.controls:
            if source in drawn:
                yield f"n{source} -> n{n.id} [style=dashed];"


def _quote(text: str) -> str:
    """Quotes a string of the DOT language, which has entities (&) and escapes."""
    text = "\n".join(visible(line) for line in text.split("\n"))
    for old, new in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("&", "&amp;")):
        text = text.replace(old, new)
    return '"' + text.encode("ascii", "xmlcharrefreplace").decode() + '"'
