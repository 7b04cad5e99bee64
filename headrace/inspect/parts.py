"""Nested boxes with the operations of a graph, as plain data: numbers, text and tuples.

A `Box` holds operations (`Node`). If an operation owns graphs, or if primitives form a loop or conditional, the box
holds a `Structure`, which has boxes of its own. `structure.draw` builds the tree; the text, Graphviz and HTML modules
only format it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import shapes
from headrace.records import record

if TYPE_CHECKING:
    from headrace.shapes import Shape

_SHOWN: Final = 200  # characters of a name or text from a graph


@record(frozen=True, slots=True)
class Value:
    """A tensor for display.

    Attributes:
      name: the name of the tensor.
      dtype: the name of its dtype.
      shape: its static shape.
      bytes: its size if the shape is known; else None.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import Value
      >>> str(Value("x:0", "float32", (2, None)))
      'x:0  float32 [2,?]'
    """

    name: str
    dtype: str
    shape: Shape
    bytes: int | None = None

    def __str__(self) -> str:
        return f"{visible(self.name)}  {self.kind}"

    @property
    def kind(self) -> str:
        """Dtype and shape: `float32 [2,?]`."""
        return f"{self.dtype} {shapes.show(self.shape)}"


Reference: TypeAlias = "tuple[str, int]"  # name of a tensor or operation, and the id of its node, 0 if it is not drawn


@record(frozen=True, slots=True)
class Node:
    """An operation.

    Attributes:
      id: a number that no other node of the drawing has.
      name: the name of the operation.
      type: the op type.
      inputs: references to its inputs.
      controls: references to its control inputs.
      outputs: its outputs.
      attrs: its attributes as text, without dtypes, defaults and large arrays.
      device: the requested device; "" for any.
      source: the user's line with the path of the file and the function; "" if it is not known.
      line: the user's line as "file:line", without the folder; "" if it is not known.
      goes_back: whether its inputs except the first come from the previous iteration.
      is_argument: whether it is a placeholder, or a parameter of a function.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import draw, nodes
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (2,), name="x")
      ...     y = hr.tanh(x, name="y")
      >>> node = list(nodes(draw(g)))[1]
      >>> node.type, node.inputs[0][0], node.outputs[0].kind
      ('Tanh', 'x', 'float32 [2]')
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
    line: str = ""
    goes_back: bool = False
    is_argument: bool = False


@record(frozen=True, slots=True)
class Passed:
    """A value that is passed to a loop, conditional or call.

    Attributes:
      role: "variable" (of a loop), "constant" (of a loop), "capture" (of a branch) or "argument" (of a function).
      value: the value with its name inside.
      start: the name of its source outside; "" if it is not known.
      next: the name of its value for the next iteration; "" if there is none.
      out: the names of the Exits of a loop of primitives; "" for none.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import draw
      >>> with hr.Graph() as g:
      ...     y = hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
      >>> passed = draw(g).structures[0].passed[0]
      >>> passed.role, passed.value.name, passed.next
      ('variable', 'i', 'while/add')
    """

    role: str
    value: Value
    start: str = ""
    next: str = ""
    out: str = ""


@record(frozen=True, slots=True)
class Structure:
    """A loop, conditional or call, with the boxes that it runs.

    Attributes:
      kind: "while", "for", "if", "case", "call", "gradient", "loop" (of primitives without a condition) or "function".
      name: the name of the operation, the frame or the predicate.
      about: further information.
      node: the operation; None for a structure of primitives.
      passed: the values passed to it, in order.
      outputs: its outputs.
      boxes: the branches, the condition and body, or the function.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import draw
      >>> with hr.Graph() as g:
      ...     y = hr.cond(hr.placeholder(hr.bool, ()), lambda: 1, lambda: 2)
      >>> structure = draw(g).structures[0]
      >>> structure.kind, [box.label for box in structure.boxes]
      ('if', ['then_branch', 'else_branch'])
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
        """Number of nodes in it, including itself and all nested ones."""
        return (self.node is not None) + sum(b.total for b in self.boxes)


Part: TypeAlias = "Node | Structure"


@record(frozen=True, slots=True)
class Box:
    """A group of operations: a graph, a branch or a body.

    Attributes:
      label: its role in its structure ("body", "true", "branches.0"); "" for the whole drawing.
      name: the name of the function or graph; "" for none.
      parts: its operations and structures, in the order of their creation.
      params: names of its parameters, in order.
      results: references to its results.
      ops: number of its operations, without parameters and nested operations.
      total: number of nodes drawn in it, including nested ones.
      note: the reason why it shows no more; "" for none.
      left_out: number of operations that are not drawn, including nested ones (`cut`).

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import draw
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (2,), name="x")
      ...     y = hr.tanh(x, name="y")
      >>> box = draw(g)
      >>> box.ops, [part.name for part in box.parts]
      (2, ['x', 'y'])
    """

    label: str = ""
    name: str = ""
    parts: tuple[Part, ...] = ()
    params: tuple[str, ...] = ()
    results: tuple[Reference, ...] = ()
    ops: int = 0
    total: int = 0
    note: str = ""
    left_out: int = 0

    @property
    def structures(self) -> tuple[Structure, ...]:
        """Conditionals, loops and calls among its parts."""
        return tuple(p for p in self.parts if isinstance(p, Structure))


def nodes(box: Box) -> Iterator[Node]:
    """Iterates over all nodes drawn in `box`, including nested ones.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      >>> from headrace.inspect import draw, nodes
      >>> [node.name for node in nodes(draw(g))]
      ['x']
    """
    for part in box.parts:
        if isinstance(part, Node):
            yield part
        else:
            if part.node is not None:
                yield part.node
            for inner in part.boxes:
                yield from nodes(inner)


def cut(box: Box, limit: int | None) -> Box:
    """Reduces `box` to at most about `limit` nodes; None: no limit.

    Loops, conditionals and calls are kept before single operations, and each of them gets its share of the nodes.
    `Box.left_out` counts the others.

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
    r"""Makes `text` from a graph printable, and cuts it to `limit` characters.

    Characters that do not print are escaped: escape sequences for terminals, marks for the direction of writing, lone
    surrogates.

    >>> visible("a\x1b[31m")
    'a\\x1b[31m'
    """
    if limit is not None and len(text) > limit:
        text = f"{text[:limit]}... ({len(text):,} characters)"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def size_text(n: int) -> str:
    """Formats a number of bytes.

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
    """Formats a number with a noun: `1 operation`, `2 operations`."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
