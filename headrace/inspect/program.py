"""Graphs as programs for readers: `str(graph)` and `headrace text`.

    %x: float32[?,16] = Placeholder  # train.py:4
    %while: int32[], %while.1: float32[?,16] = StatelessWhile:  # train.py:9
      variable %i: int32[] = 0, next %add
      variable %h: float32[?,16] = %x, next %Tanh
      cond:
        %Less: bool[] = Less(%i, 10)
        results %Less
      body:
        %Tanh: float32[?,16] = Tanh(%h)
        %add: int32[] = AddV2(%i, 1)
        results %add, %Tanh
    %Sum: float32[] = Sum(%while.1, [0, 1])

A line is one operation: `%name: dtype[shape] = Type(inputs, attributes) after %control on device  # user's line`. Only
attributes with other values than their defaults are written, without dtypes. A constant of at most 8 elements stands
where it is read. Operations are in the order of their creation, each behind those for which it waits.

A name is the shortest end of the operation's name that is unique in its graph (`%Tanh` for "while/Tanh"). `%while` and
`%while.1` are the tensors "while:0" and "while:1". A loop, conditional or call is followed by the values that
enter it (`variable` and `constant` of a loop, `capture` of a branch) and by its graphs. Primitives of TensorFlow 1 are
nested by their frames and predicates. Functions follow the graph, each once.

This form is for readers and omits what they rarely need, such as elements of large constants. `ir.text` is the lossless
form, which `from_text` reads again: dumps and `headrace text --exact` write it.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import shapes
from headrace.inspect.ordering import in_order
from headrace.inspect.parts import Box, Node, Part, Structure, Value, cut, plural, visible
from headrace.inspect.structure import draw
from headrace.ir.function import nested_operations
from headrace.ir.graph import FuncGraph
from headrace.recursion import MOST, recursion_room_for_levels

if TYPE_CHECKING:
    from headrace.ir.graph import Graph

SHOWN: Final = 200  # operations of a graph that `str` writes
DRAWN: Final = 20_000  # operations of a graph of which `str` writes some
_LISTED: Final = 40  # outputs and inputs of one operation that are written
_INLINE: Final = 8  # elements of a constant that stands where it is read
_CALLS: Final = ("call", "gradient", "function")


def graph_text(graph: Graph) -> str:
    """Program of a graph for `str`, with about `SHOWN` operations at most.

    A graph of more than `DRAWN` operations is described by its numbers of operations.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      >>> from headrace.inspect import graph_text
      >>> graph_text(g).splitlines()[0]
      '# graph of 1 operation'
    """
    ops = collections.Counter(op.type for op in nested_operations(graph.operations))
    if ops.total() > DRAWN:
        most = ", ".join(f"{n:,} {visible(name)}" for name, n in ops.most_common(SHOWN))
        return f"# graph of {plural(ops.total(), 'operation')}: {most}\n# {_ALL}"
    name = graph.name if isinstance(graph, FuncGraph) else ""
    return render_program(draw(graph), SHOWN, name=name)


_ALL: Final = "headrace.inspect.render_program(headrace.inspect.draw(graph)) writes all"


@recursion_room_for_levels(MOST)
def render_program(box: Box, limit: int | None = None, *, full_names: bool = False, name: str = "") -> str:
    """Formats a graph as a program, one line for each operation.

    Args:
      box: the graph, as `draw` or `describe` returns it.
      limit: about the largest number of operations; None: all operations.
      full_names: whether operations have their full names.
      name: the name of the graph, if it is a function.

    Returns:
      The text. Its last line states the number of omitted operations.

    Example:
      >>> from headrace.inspect import draw
      >>> from headrace.ir.text import from_text
      >>> g = from_text("x = Placeholder[dtype=float32, shape=[2]]\\nc = Const[value=float32[]{2.0}, dtype=float32]\\n"
      ...               "y = Mul(x, c)")
      >>> print(render_program(draw(g)))
      # graph of 3 operations
      %x: float32[2] = Placeholder  # <text>:1
      %y: float32[2] = Mul(%x, 2.0)  # <text>:3
    """
    shown = cut(box, limit)
    writer = _Writer(full_names)
    scope = writer.scope((shown,), {})
    head = f"function {visible(name)}({writer.params(shown, scope)}):" if name else ""
    lines = [head or f"# graph of {plural(box.ops, 'operation')}"]
    lines += writer.block(shown, scope, "  " if head else "")
    for function, inner in writer.functions():  # writing one may find further ones
        scope = writer.scope((inner,), {})
        lines += [
            "",
            f"function {visible(function)}({writer.params(inner, scope)}):",
            *writer.block(inner, scope, "  "),
        ]
    if writer.left_out:
        lines.append(f"# {plural(writer.left_out, 'more operation')}; {_ALL}")
    return "\n".join(lines)


class _Scope:
    """Names in one graph: its operations and parameters, with those of nested primitives.

    Attributes:
      short: name of an operation → its name in the program.
      nodes: name of an operation → the operation.
      inline: constants that stand where they are read: name of the operation → text.
    """

    def __init__(self, nodes: Sequence[Node], params: Mapping[str, str], full_names: bool) -> None:
        self.nodes = {n.name: n for n in nodes}
        self.short: dict[str, str] = dict(params)
        self.inline: dict[str, str] = {}
        read = {name for n in nodes for name, _ in n.inputs}
        for n in nodes:
            if _is_inline(n) and n.name in read:
                self.inline[n.name] = n.attrs.removeprefix("value=")
        named = [n.name for n in nodes if n.name not in params and n.name not in self.inline]
        ends = collections.Counter(end for name in named for end in _ends(name))
        taken = set(params.values())
        for name in named:
            unique = (end for end in _ends(name) if ends[end] == 1 and end not in taken)
            self.short[name] = name if full_names else next(unique, name)

    def tensor(self, name: str) -> str:
        """Text of a tensor in an expression; `name` has no ":0"."""
        op, _, index = name.rpartition(":") if ":" in name else (name, "", "0")
        if op in self.inline:
            return self.inline[op]
        return f"%{visible(self.short.get(op, op))}" + (f".{index}" if index != "0" else "")

    def names(self, text: str) -> str:
        """Text of several tensors that are separated by commas; "" for none."""
        return ", ".join(self.tensor(name) for name in text.split(", ")) if text else ""


def _ends(name: str) -> Iterator[str]:
    """Ends of a name, from its last part to the whole name."""
    at = name.rfind("/", 0, -1)
    while at >= 0:
        yield name[at + 1 :]
        at = name.rfind("/", 0, at)
    yield name


def _is_inline(node: Node) -> bool:
    """Whether a node is a small constant without control inputs and device."""
    if node.type != "Const" or node.controls or node.device or not node.attrs.startswith("value="):
        return False
    n = shapes.size(node.outputs[0].shape)
    return n is not None and n <= _INLINE


class _Writer:
    """Writes boxes as lines, and collects the functions that are called.

    Attributes:
      left_out: the number of omitted operations.
    """

    def __init__(self, full_names: bool) -> None:
        self._full_names = full_names
        self._functions: dict[str, Box] = {}
        self.left_out = 0

    def functions(self) -> Iterator[tuple[str, Box]]:
        """Iterates over the called functions, including those that are found meanwhile."""
        written = 0
        while written < len(self._functions):
            yield list(self._functions.items())[written]
            written += 1

    def scope(self, boxes: Sequence[Box], params: Mapping[str, str]) -> _Scope:
        """Names of one graph.

        Args:
          boxes: the box of the graph.
          params: names of parameters in the program, by the names of their operations; others have their own.
        """
        found = {name: name.removeprefix("arg.") for box in boxes for name in box.params}
        return _Scope([n for box in boxes for n in _nodes(box.parts)], {**found, **params}, self._full_names)

    def params(self, box: Box, scope: _Scope) -> str:
        """Parameters of a function."""
        return ", ".join(self._defined(scope, scope.nodes[p]) for p in box.params if p in scope.nodes)

    def block(self, box: Box, scope: _Scope, indent: str) -> Iterator[str]:
        """Iterates over the lines of a box."""
        if box.note:
            yield f"{indent}# {visible(box.note, None)}"
        self.left_out += box.left_out
        params = set(box.params)
        for part in in_order(box.parts):
            if isinstance(part, Structure):
                yield from self._structure(part, scope, indent)
            elif part.name not in params and part.name not in scope.inline:
                yield indent + self._line(part, scope, len(part.inputs), "")
        if box.results:
            yield f"{indent}results {_listed([scope.tensor(name) for name, _ in box.results])}"

    def _defined(self, scope: _Scope, node: Node) -> str:
        """Outputs of a node with their types, or its name alone if it has none."""
        name = visible(scope.short.get(node.name, node.name))
        outputs = [f"%{name}{f'.{i}' if i else ''}: {_type(v)}" for i, v in enumerate(node.outputs)]
        return _listed(outputs) or f"%{name}"

    def _line(self, node: Node, scope: _Scope, inputs: int, more: str) -> str:
        """Line of an operation, with its first `inputs` inputs."""
        given = [scope.tensor(name) for name, _ in node.inputs[:inputs]]
        attrs = node.attrs
        if node.type == "Const":
            attrs = attrs.removeprefix("value=")
        arguments = ", ".join(filter(None, (_listed(given), more, visible(attrs, None))))
        text = f"{self._defined(scope, node)} = {visible(node.type)}" + (f"({arguments})" if arguments else "")
        if node.controls:
            text += f" after {_listed([scope.tensor(name) for name, _ in node.controls])}"
        if node.device:
            text += f" on {visible(node.device)}"
        return text + (f"  # {visible(node.line)}" if node.line else "")

    def _structure(self, s: Structure, scope: _Scope, indent: str) -> Iterator[str]:
        """Iterates over the lines of a loop, conditional or call."""
        if s.kind in _CALLS:
            named = [box for box in s.boxes if box.name]
            for box in named:
                if box.parts or box.params:
                    self._functions.setdefault(box.name, box)
            if s.node is not None:
                called = ", ".join(f"{visible(b.label)}={visible(b.name)}" for b in named)
                yield indent + self._line(s.node, scope, len(s.node.inputs), called)
            for box in s.boxes:
                if box.note and not box.note.startswith("shown "):
                    yield f"{indent}  # {visible(box.name)}: {visible(box.note, None)}"
            return
        if s.node is None:
            yield from self._primitives(s, scope, indent)
            return
        passed = s.node.inputs[len(s.node.inputs) - len(s.passed) :]
        line, comment = self._line(s.node, scope, len(s.node.inputs) - len(s.passed), ""), ""
        if s.node.line:
            line, _, comment = line.rpartition("  # ")
        yield f"{indent}{line}:{f'  # {comment}' if comment else ''}"
        scopes = [self.scope((box,), _renamed(box, s)) for box in s.boxes]
        if s.kind == "for" and s.boxes and s.boxes[-1].params:
            counter = s.boxes[-1].params[0]
            yield f"{indent}  counter {self._defined(scopes[-1], scopes[-1].nodes[counter])}"
        for i, (name, _) in enumerate(passed):
            p = s.passed[i]
            following = f", next {scopes[-1].tensor(p.next)}" if p.next and scopes else ""
            inside = f"%{visible(p.value.name)}: " if p.value.name else ""
            yield f"{indent}  {p.role} {inside}{_type(p.value)} = {scope.tensor(name)}{following}"
        for box, inner in zip(s.boxes, scopes, strict=True):
            yield f"{indent}  {visible(box.label)}:"
            yield from self.block(box, inner, indent + "    ")

    def _primitives(self, s: Structure, scope: _Scope, indent: str) -> Iterator[str]:
        """Iterates over the lines of primitives, which share the names of their graph."""
        name = scope.tensor(s.name) if s.kind in ("if", "case") else visible(s.name)
        yield f"{indent}{s.kind} {name} ({visible(s.about)}):"
        for p in s.passed:
            out = f", out by {scope.names(p.out)}" if p.out else ""
            following = f", next {scope.names(p.next)}" if p.next else ""
            inside = scope.tensor(p.value.name.removesuffix(":0"))
            initial = f" = {scope.names(p.start)}" if p.start != p.value.name.removesuffix(":0") else ""
            yield f"{indent}  {p.role} {inside}: {_type(p.value)}{initial}{following}{out}"
        for box in s.boxes:
            yield f"{indent}  {visible(box.label)}:"
            yield from self.block(box, scope, indent + "    ")


def _renamed(box: Box, s: Structure) -> dict[str, str]:
    """Names of a graph's parameters, the same in all graphs of the structure."""
    shift = len(box.params) - len(s.passed)  # 1 for the body of a `For`, whose first parameter is the counter
    if shift < 0:
        return {}
    return {name: p.value.name for name, p in zip(box.params[shift:], s.passed, strict=True) if p.value.name}


def _nodes(parts: Iterable[Part]) -> Iterator[Node]:
    """Iterates over the operations of one graph, including those of loops and conditionals of primitives."""
    for part in parts:
        if isinstance(part, Node):
            yield part
        elif part.node is not None:
            yield part.node
        elif part.kind not in _CALLS:
            for box in part.boxes:
                yield from _nodes(box.parts)


def _type(v: Value) -> str:
    return f"{v.dtype}{shapes.show(v.shape)}"


def _listed(texts: Sequence[str]) -> str:
    """Joins texts with commas; a long list is cut."""
    more = len(texts) - _LISTED
    return ", ".join(texts if more <= 0 else [*texts[:_LISTED], f"... {more:,} more"])
