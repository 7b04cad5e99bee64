"""What a graph is drawn from: boxes in boxes, with operations in them. Plain data: numbers, text and tuples of them.

A `Box` holds operations (`Node`) and, where one of them owns graphs or where primitives make up a loop or conditional,
a `Structure`, which has boxes of its own. `structure.draw` makes the tree, and the text, the Graphviz and the HTML form
only say how it looks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import shapes

if TYPE_CHECKING:
    from headrace.shapes import Shape

_SHOWN: Final = 200  # characters of a name or text from a graph


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A tensor as it is shown: name, dtype, shape, and the bytes it takes where the shape is known (else None)."""

    name: str
    dtype: str
    shape: Shape
    bytes: int | None = None

    def __str__(self) -> str:
        return f"{visible(self.name)}  {self.kind}"

    @property
    def kind(self) -> str:
        """Its dtype and shape: `float32 [2,?]`."""
        return f"{self.dtype} {shapes.show(self.shape)}"


Reference: TypeAlias = "tuple[str, int]"  # the name of a tensor or operation, and the id of its node, 0 if not drawn


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """An operation.

    Attributes:
      id: a number that no other node of the drawing has.
      name, type: of the operation.
      inputs, controls: what it takes and what it waits for.
      outputs: what it gives.
      attrs: its attributes as text, without dtypes, defaults and large arrays.
      device: what it asks for; "" for any.
      source: the user's line; "" if not known.
      goes_back: its inputs come from the iteration before, but for the first one.
    """

    id: int
    name: str
    type: str
    inputs: tuple[Reference, ...] = ()
    controls: tuple[Reference, ...] = ()
    outputs: tuple[Value, ...] = ()
    attrs: str = ""
    device: str = ""
    source: str = ""
    goes_back: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Passed:
    """A value that goes into a loop, conditional or call.

    Attributes:
      role: "variable" (it goes round), "constant" (the same in every iteration), "capture" (a branch uses it),
        "argument" (a function takes it).
      value: as it is called inside.
      start: what it comes from; "" if that is not known.
      next: what the next iteration has for it; "" if there is no such thing.
      out: what takes it out of a loop of primitives; "" for nothing.
    """

    role: str
    value: Value
    start: str = ""
    next: str = ""
    out: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Structure:
    """A loop, conditional or call, with the boxes that it runs.

    Attributes:
      kind: "while", "for", "if", "case", "call", "gradient", "loop" (of primitives without a condition) or "function".
      name: of the operation, the frame, or the predicate.
      about: what else there is to say.
      node: the operation, None if it is made of several primitives.
      passed: what goes in, in order.
      outputs: what comes out.
      boxes: the branches, the condition and body, the function.
    """

    kind: str
    name: str
    about: str
    node: Node | None
    passed: tuple[Passed, ...]
    outputs: tuple[Value, ...]
    boxes: tuple[Box, ...]

    @property
    def total(self) -> int:
        """How many operations are in it, itself and those further inside included."""
        return (self.node is not None) + sum(b.total for b in self.boxes)


Part: TypeAlias = "Node | Structure"


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """Operations that belong together: a graph, a branch, a body.

    Attributes:
      label: what it is for its structure ("body", "true", "branches.0"); "" for the whole drawing.
      name: of the function or graph; "" for none.
      parts: what is in it, in the order of making.
      results: what it gives back.
      ops: how many operations stand in it, parameters and those further inside not counted.
      total: how many nodes are drawn in it and further inside.
      note: why there is no more to be seen; "" if there is nothing to say.
      left_out: how many operations are not drawn, those further inside included (`cut`).
    """

    label: str = ""
    name: str = ""
    parts: tuple[Part, ...] = ()
    results: tuple[Reference, ...] = ()
    ops: int = 0
    total: int = 0
    note: str = ""
    left_out: int = 0

    @property
    def structures(self) -> tuple[Structure, ...]:
        """The conditionals, loops and calls among its parts."""
        return tuple(p for p in self.parts if isinstance(p, Structure))


def nodes(box: Box) -> Iterator[Node]:
    """All nodes drawn in `box` and further inside."""
    for part in box.parts:
        if isinstance(part, Node):
            yield part
        else:
            if part.node is not None:
                yield part.node
            for inner in part.boxes:
                yield from nodes(inner)


def cut(box: Box, limit: int | None) -> Box:
    """`box` with at most about `limit` nodes: loops, conditionals and calls stay before single operations do, and each
    gets its share. What is left out is counted (`Box.left_out`). None: all of it.

    Example:
      >>> cut(Box(parts=tuple(Node(i, f"x{i}", "NoOp") for i in range(5)), ops=5, total=5), 2).left_out
      3
    """
    if limit is None or box.total <= limit:
        return box
    limit = max(limit, 0)
    kept = {id(s) for s in box.structures[:limit]}
    inside = sum(s.total for s in box.structures[:limit])
    single = max(limit // 2, limit - inside) if kept else limit
    parts: list[Part] = []
    left_out = drawn = 0
    for part in box.parts:
        if isinstance(part, Structure):
            if id(part) not in kept:
                left_out += part.total
        elif drawn < single:
            drawn += 1
        else:
            left_out += 1
            continue
        if isinstance(part, Node) or id(part) in kept:
            parts.append(part)
    left, waiting = limit - drawn, len(kept)
    for i, part in enumerate(parts):
        if isinstance(part, Structure):
            smaller = _cut_structure(part, left // waiting)
            left_out += part.total - smaller.total
            left, waiting = left - smaller.total, waiting - 1
            parts[i] = smaller
    return dataclasses.replace(box, parts=tuple(parts), total=box.total - left_out, left_out=box.left_out + left_out)


def _cut_structure(s: Structure, limit: int) -> Structure:
    boxes: list[Box] = []
    left = limit - (s.node is not None)
    for i, box in enumerate(s.boxes):
        boxes.append(cut(box, max(left, 0) // (len(s.boxes) - i)))
        left -= boxes[-1].total
    return dataclasses.replace(s, boxes=tuple(boxes))


def visible(text: str, limit: int | None = _SHOWN) -> str:
    r"""`text` from a graph as it may be shown: what does not print (escape sequences for terminals, marks that turn the
    direction of writing, lone surrogates) is spelled out, and what is too long is cut.

    >>> visible("a\x1b[31m")
    'a\\x1b[31m'
    """
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}... ({len(text):,} characters)"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def size_text(n: int) -> str:
    """A number of bytes to read.

    >>> size_text(12), size_text(1536)
    ('12 B', '1.5 KiB')
    """
    amount = float(n)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.3g} {unit}" if unit != "B" else f"{n} B"
        amount /= 1024
    return f"{amount:,.3g} TiB"


def plural(n: int, noun: str) -> str:
    """`1 operation`, `2 operations`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
