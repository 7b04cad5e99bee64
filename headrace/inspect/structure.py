"""Conversion of a graph to nested boxes (`parts`), which all output formats draw."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from headrace import dtypes, shapes
from headrace.errors import GraphError, OpError
from headrace.inspect import primitives
from headrace.inspect.parts import Box, Node, Part, Passed, Reference, Structure, Value
from headrace.ir import attr_values
from headrace.ir.analysis.frames import Frame
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.attr_values import REQUIRED, Func
from headrace.ir.function import body, functions_of, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.notes import stated_attrs
from headrace.ir.serial import attrs as wire
from headrace.ir.serial.nodedefs import show_tensor
from headrace.ir.text import show_value

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

_DEPTH: Final = 20  # nested boxes that are drawn
_ATTR: Final = 60  # characters of an attribute
_INLINE: Final = 8  # elements of an array that is written out

_KINDS: Final = {
    "While": "while",
    "For": "for",
    "If": "if",
    "Case": "case",
    "Call": "call",
    "RemoteCall": "call",
    "SymbolicGradient": "gradient",
}


@deepens_recursion
def draw(graph: Graph, ops: Sequence[Operation] | None = None, called: Mapping[str, Sequence[Operation]] = {}) -> Box:
    """Converts `graph` to nested boxes.

    Args:
      graph: any graph, structured, of primitives, or both.
      ops: the operations to draw; None: all.
      called: functions that are called in frames of their own, in the form that lowering gives: name → operations.

    Returns:
      The outermost box. A part that cannot be analyzed (a loop that is not well-structured, a missing function) is
      described in the notes of boxes and is not an error.

    Example:
      >>> from headrace.ir.text import from_text
      >>> [part.name for part in draw(from_text("x = NoOp\\ny = NoOp ^x")).parts]
      ['x', 'y']
    """
    drawing = _Drawing(called)
    everything = graph.operations if ops is None else ops
    box = drawing.box(graph, everything, "", "", 0)
    functions = []
    for name, operations in called.items():
        inner = drawing.box(operations[0].graph, operations, "function", name, 1) if operations else Box("function")
        functions.append(Structure("function", name, "", None, (), (), (inner,)))
    total = box.total + sum(s.total for s in functions)
    return dataclasses.replace(box, parts=(*box.parts, *functions), total=total)


def value(t: Tensor) -> Value:
    """Description of a tensor for display."""
    n = shapes.size(t.shape)
    known = n is not None and not t.dtype.is_ref and t.dtype not in dtypes.OBJECT
    return Value(t.name, t.dtype.name, t.shape, n * t.dtype.size if n is not None and known else None)


class _Group:
    """A loop or conditional of primitives under construction: its sides and their operations."""

    __slots__ = ("key", "place", "sides")

    def __init__(self, place: primitives.Place, key: Frame | Tensor) -> None:
        self.place = place
        self.key = key
        self.sides: dict[int, list[_Item]] = {}


_Item: TypeAlias = "Operation | _Group"


class _Drawing:
    """State of a drawing: numbers of operations, and functions that are drawn already.

    Args:
      called: the names of functions that are drawn at the end.
    """

    def __init__(self, called: Collection[str]) -> None:
        self._called = called
        self._ids: dict[Operation, int] = {}
        self._shown: set[FuncGraph] = set()
        self._recovered: set[Operation] = set()

    def _id(self, op: Operation) -> int:
        return self._ids.setdefault(op, len(self._ids) + 1)

    def box(self, graph: Graph, ops: Sequence[Operation], label: str, name: str, depth: int) -> Box:
        """Returns the box of `ops`, which belong to `graph`."""
        self._recovered.update(t.op for t in graph.replaced.values())
        places = primitives.find(graph, ops, max(_DEPTH - depth, 0))
        top: list[_Item] = []
        groups: dict[tuple[primitives.Place, Frame | Tensor], _Group] = {}
        for op in ops:
            into = top
            place = places.of.get(op, ())
            for i, (key, side) in enumerate(place):
                group = groups.get((place[:i], key))
                if group is None:
                    group = groups[place[:i], key] = _Group(place[:i], key)
                    into.append(group)
                into = group.sides.setdefault(side, [])
            into.append(op)
        params = graph.params if isinstance(graph, FuncGraph) else ()
        results = graph.results if isinstance(graph, FuncGraph) else ()
        note = f"not all loops and conditionals were recognized: {places.problem}" if places.problem else ""
        box = self._box(top, places, depth, label, name, note)
        return dataclasses.replace(
            box,
            params=tuple(t.op.name for t in params),
            results=tuple(self._reference(t) for t in results),
            ops=len(ops) - len(params),
        )

    def _box(
        self, items: Iterable[_Item], places: primitives.Places, depth: int, label: str, name: str = "", note: str = ""
    ) -> Box:
        parts: list[Part] = []
        ops = total = 0
        for item in items:
            part: Part
            if isinstance(item, _Group):
                part = self._group(item, places, depth)
            elif item.opdef.structured:
                part = self._structure(item, depth)
            else:
                part = self._node(item)
            ops += not isinstance(item, _Group)
            total += 1 if isinstance(part, Node) else part.total
            parts.append(part)
        return Box(label, name, tuple(parts), ops=ops, total=total, note=note)

    # *** operations ***

    def _reference(self, t: Tensor) -> Reference:
        return show_tensor(t), self._id(t.op)

    def _node(self, op: Operation) -> Node:
        return Node(
            self._id(op),
            op.name,
            op.type,
            tuple([self._reference(t) for t in op.inputs]),
            tuple([(c.name, self._id(c)) for c in op.control_inputs]),
            tuple([value(t) for t in op.outputs]),
            _attrs(op),
            op.device,
            str(op.source) if op.source is not None and op.source.line else "",
            op.source.brief if op.source is not None else "",
            op.opdef.primitive == "Merge" and any(t.op.opdef.primitive == "NextIteration" for t in op.inputs),
            op.type == "_Arg" or op.opdef.facts.placeholder,
        )

    # *** operations that own graphs ***

    def _structure(self, op: Operation, depth: int) -> Structure:
        form = op.opdef.structured
        about = [op.type]
        if form in ("If", "Case"):
            about.insert(0, f"{'of' if form == 'Case' else 'on'} {show_tensor(op.inputs[0])}")
        if "parallel_iterations" in op.attrs:
            about.append(f"parallel_iterations {op.attrs['parallel_iterations']}")
        if op in self._recovered:
            about.append("recovered from primitives")
        return Structure(
            _KINDS.get(form, form),
            op.name,
            ", ".join(about),
            self._node(op),
            tuple(_passed(op)),
            tuple(map(value, op.outputs)),
            tuple(self._boxes(op, depth)),
        )

    def _boxes(self, op: Operation, depth: int) -> Iterator[Box]:
        for attr, spec in op.opdef.attrs.items():
            if spec.kind != "func":
                continue
            held = op.attrs[attr]
            for i, f in enumerate(held if spec.is_list else (held,)):
                label = f"{attr}.{i}" if spec.is_list else attr
                try:
                    graph = body(op, f)
                except (GraphError, OpError) as e:
                    yield Box(label, f.name, note=str(e))
                    continue
                size = len(graph) - len(graph.params)
                if isinstance(f, Func) and f.name in self._called:
                    yield Box(label, graph.name, note="shown below")
                elif graph in self._shown:
                    yield Box(label, graph.name, ops=size, note="shown above")
                elif depth > _DEPTH:
                    yield Box(label, graph.name, ops=size, note="nested too deeply to be shown")
                else:
                    self._shown.add(graph)
                    yield self.box(graph, graph.operations, label, graph.name, depth + 1)

    # *** structures of primitives ***

    def _group(self, group: _Group, places: primitives.Places, depth: int) -> Structure:
        if isinstance(group.key, Frame):
            return self._loop(group, group.key, places, depth)
        found = places.conditionals.get((group.place, group.key))
        sides = sorted(group.sides, reverse=found is None or found.sides == 2)  # of two sides, the true one comes first
        switches = found.switches if found is not None else []
        passed = dict.fromkeys(s.inputs[0] for s in switches if s.inputs[0] is not s.inputs[1])
        name = show_tensor(group.key)
        return Structure(
            "if" if found is None or found.sides == 2 else "case",
            name,
            "of primitives",
            None,
            tuple(Passed("capture", value(t), show_tensor(t)) for t in passed),
            tuple(value(m.outputs[0]) for m in (found.merges if found is not None else ())),
            tuple(
                self._box(
                    group.sides[s], places, depth + 1, ("false", "true")[s] if len(sides) < 3 and s < 2 else str(s)
                )
                for s in sides
            ),
        )

    def _loop(self, group: _Group, frame: Frame, places: primitives.Places, depth: int) -> Structure:
        condition = frame.loop_cond
        about = [f"on {show_tensor(condition.inputs[0])}"] if condition is not None else []
        about.append(f"parallel_iterations {frame.parallel_iterations}")
        passed = [
            Passed("variable", value(v.merge.outputs[0]), v.enter, v.next, v.exits)
            for v in primitives.variables(frame, places.uses)
        ]
        passed += [
            Passed("constant", value(e.outputs[0]), show_tensor(e.inputs[0]))
            for e in frame.enters
            if e.attrs["is_constant"]
        ]
        labels = {primitives.CONDITION: "condition", primitives.BODY: "body"}
        return Structure(
            "while" if condition is not None else "loop",
            frame.name,
            ", ".join(about),
            None,
            tuple(passed),
            tuple(value(e.outputs[0]) for e in frame.exits),
            tuple(self._box(group.sides[s], places, depth + 1, labels[s]) for s in sorted(group.sides)),
        )


def _passed(op: Operation) -> Iterator[Passed]:
    """Values passed to an operation's graphs, named as in the last one."""
    form = op.opdef.structured
    graph = _readable(op)
    shift = 1 if form == "For" else 0  # the first parameter of the body is the counter
    given = op.inputs[param_offset(op) + shift :]
    for i, t in enumerate(given):
        inner = graph.params[i + shift] if graph is not None and i + shift < len(graph.params) else None
        called = Value("", t.dtype.name, t.shape)
        if inner is not None:
            called = dataclasses.replace(value(inner), name=inner.op.name.removeprefix("arg."))
        role, following = "argument" if form not in ("If", "Case") else "capture", ""
        if form in ("While", "For") and inner is not None and graph is not None and i < len(graph.results):
            result = graph.results[i]
            role = "constant" if result is inner else "variable"
            following = "" if result is inner else show_tensor(result)
        yield Passed(role, called, show_tensor(t), following)


def _readable(op: Operation) -> FuncGraph | None:
    """Last graph of an operation; None if it cannot be read."""
    graphs = [op.attrs["body"]] if op.opdef.structured == "While" else functions_of(op)
    try:
        return body(op, graphs[-1]) if graphs else None
    except (GraphError, OpError):
        return None


def _attrs(op: Operation) -> str:
    """Text of the attributes of `op`, without dtypes, graphs, defaults and numbers of inputs."""
    declared, out = op.opdef.attrs, []
    counts = {a.number_attr for a in op.opdef.ins}
    if op.type == "_Arg":
        return ""
    for name, given in stated_attrs(op.attrs, op.notes).items():
        spec = declared.get(name)
        if name == "shape" and op.outputs and op.outputs[0].shape == given:
            continue
        if (spec is not None and spec.kind in ("type", "func")) or name == "_output_shapes" or name in counts:
            continue
        if spec is not None and spec.default is not REQUIRED and attr_values.equal(given, spec.default):
            continue
        out.append(f"{name}={brief(given, spec is not None and spec.kind == 'shape')}")
    return ", ".join(out)


def brief(given: Any, is_shape: bool) -> str:
    """Formats an attribute in a text of bounded length.

    Args:
      given: the value.
      is_shape: whether the value is a shape or a list of shapes.
    """
    if isinstance(given, np.ndarray):
        return _array_text(given)
    if isinstance(given, (attr_values.BadTensor, attr_values.Raw)):
        return type(given).__name__
    if isinstance(given, (str, bytes)):
        shown = given[:_ATTR]
        more = "..." if len(given) > _ATTR else ""
        return show_value(wire.to_str(shown) if isinstance(shown, bytes) else shown) + more
    if isinstance(given, tuple) and len(given) > _INLINE and not is_shape:
        return f"{len(given)} values"
    try:
        text = show_value(given, is_shape)
    except GraphError:
        return f"a {type(given).__name__}"
    return text if len(text) <= _ATTR else text[:_ATTR] + "..."


def _array_text(array: np.ndarray) -> str:
    """Formats the elements of a small array, or the first ones of a large array."""
    several = array.size > 1 and attr_values.is_splat(array)
    flat = attr_values.first_element(array) if several else array.reshape(-1)[:_INLINE]
    if array.dtype == object:
        texts = [brief(x, False) if isinstance(x, bytes) else "..." for x in flat]
    else:
        texts = [str(x) for x in flat.tolist()]
    more = ", ..." if several or array.size > _INLINE else ""
    return texts[0] if array.ndim == 0 and texts else f"[{', '.join(texts)}{more}]"
