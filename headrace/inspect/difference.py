"""Difference of two graphs: operations added, removed and changed, in bodies and functions too.

Operations are identified by their names, so their order in a file has no effect. A renamed operation is recognized if
nothing else about it changed and no other operation fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from headrace.errors import GraphError, NotFoundError, OpError
from headrace.inspect.parts import plural, visible
from headrace.inspect.structure import brief
from headrace.ir import attr_values, walk
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.attr_values import Func
from headrace.ir.function import body
from headrace.ir.graph import FuncGraph
from headrace.ir.notes import stated_attrs
from headrace.ir.serial.nodedefs import show_tensor
from headrace.ir.text import show_value
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation

_DEPTH: Final = 100  # nested graphs that are compared
# attributes that describe an operation in a file and do not define it
_ANNOTATIONS: Final = frozenset({"_output_shapes"})
_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~", "renamed": "="}


@record(frozen=True, slots=True, order=True)
class Change:
    """An operation, function or end of a graph that differs.

    Attributes:
      where: the structures and bodies around it, outermost first ("while", "body"); a function begins with its name.
      name: the name of the operation, in the second graph if it is there; "" for the ends of the graph `where`.
      kind: "added", "removed", "changed" or "renamed".
      type: the op type, or "function"; "" for the ends of a graph.
      details: a line for each difference.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import diff
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (2,), name="x")
      ...     y = hr.tanh(x, name="y")
      >>> [change.name for change in diff(hr.Graph(), g).changes]
      ['x', 'y']
    """

    where: tuple[str, ...]
    name: str
    kind: str
    type: str
    details: tuple[str, ...] = ()


@record(frozen=True, slots=True)
class Difference:
    """Result of `diff`; False if there is no difference.

    `str()` of it is a text to read.

    Attributes:
      changes: the changes, sorted by place and name.
      compared: number of operations of the second graph, without those of its bodies and functions.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import diff
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (2,), name="x")
      ...     y = hr.tanh(x, name="y")
      >>> bool(diff(g, g))
      False
    """

    changes: tuple[Change, ...]
    compared: int

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __str__(self) -> str:
        return self.text(None)

    def text(self, limit: int | None) -> str:
        """Formats the difference.

        Args:
          limit: the largest number of changes, and of lines of each change; None: no limit.
        """
        if not self.changes:
            return f"the same: {plural(self.compared, 'operation')}"
        counts = [(sum(c.kind == kind for c in self.changes), kind) for kind in _SIGNS]
        out = [f"different: {', '.join(f'{n:,} {kind}' for n, kind in counts if n)}"]
        shown = self.changes if limit is None else self.changes[:limit]
        for c in shown:
            path = " > ".join(visible(x) for x in (*c.where, c.name) if x)
            out.append(f"{_SIGNS[c.kind]} {path}" + (f"  ({visible(c.type)})" if c.type else ""))
            lines = c.details if limit is None else c.details[:limit]
            out += [f"    {line}" for line in lines]
            if len(c.details) > len(lines):
                out.append(f"    ... and {len(c.details) - len(lines)} more")
        if len(self.changes) > len(shown):
            out.append(f"... and {len(self.changes) - len(shown)} more; --full shows all of them")
        return "\n".join(out)


@deepens_recursion
def diff(a: Graph, b: Graph) -> Difference:
    """Compares two graphs.

    It compares types, attributes, inputs, control inputs (in any order) and devices of operations, the results of
    graphs, the graphs that operations own or call, and the functions of the library. It does not compare inferred
    shapes, the names of functions, source lines and the versions of the files.

    Args:
      a: the first graph.
      b: the second graph.

    Returns:
      The changes that turn `a` into `b`.

    Example:
      >>> from headrace.ir.text import from_text
      >>> a = from_text("x = Placeholder[dtype=float32]\\ny = Neg(x)")
      >>> b = from_text("x = Placeholder[dtype=float32]\\ny = Exp(x)\\nz = Neg(y)")
      >>> print(diff(a, b))
      different: 1 added, 1 changed
      ~ y  (Exp)
          type: Neg -> Exp
      + z  (Neg)
          takes y
    """
    comparison = _Comparison()
    comparison.graphs(a, b, ())
    comparison.libraries(a, b)
    return Difference(tuple(sorted(comparison.changes)), len(b.operations))


class _Comparison:
    """Compares graphs and collects the changes."""

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self._functions: list[tuple[FuncGraph, FuncGraph]] = []  # pairs of called functions to compare
        self._paired: dict[tuple[str, str], None] = {}
        self._seen: set[tuple[int, int]] = set()

    def _add(self, where: tuple[str, ...], name: str, kind: str, type: str, details: Iterable[str] = ()) -> None:
        self.changes.append(Change(where, name, kind, type, tuple(details)))

    # *** functions ***

    def libraries(self, a: Graph, b: Graph) -> None:
        """Compares the functions: those that calls in both graphs name, then those of equal name."""
        names = [dict.fromkeys([*g.library, *g.functions]) for g in (a, b)]
        for name in sorted(set(names[0]) & set(names[1])):
            if all(name not in pair for pair in self._paired):
                self._call(a, b, name, name)
        for fa, fb in self._functions:  # the list grows during the loop
            self.graphs(fa, fb, (f"function {fb.name}",))
        met = [{pair[side] for pair in self._paired} for side in (0, 1)]
        for name in sorted(set(names[0]) - met[0]):
            self._add((), name, "removed", "function")
        for name in sorted(set(names[1]) - met[1]):
            self._add((), name, "added", "function")

    def _call(self, a: Graph, b: Graph, name_a: str, name_b: str) -> None:
        """Adds two functions to those to compare, once."""
        if (name_a, name_b) in self._paired:
            return
        self._paired[name_a, name_b] = None
        functions, problems = [], []
        for graph, name in ((a, name_a), (b, name_b)):
            try:
                functions.append(graph.function(name))
                problems.append("")
            except (GraphError, OpError) as e:
                problems.append("is not there" if isinstance(e, NotFoundError) else f"cannot be read: {e}")
        if not any(problems):
            self._functions.append((functions[0], functions[1]))
        elif problems[0] != problems[1]:
            told = [f"it {x} in {g}" for g, x in zip("AB", problems, strict=True) if x]
            self._add((), name_b, "changed", "function", told)
        elif a.library.get(name_a) != b.library.get(name_b):
            self._add((), name_b, "changed", "function", [f"its bytes, which cannot be read: {problems[0]}"])

    # *** graphs ***

    def graphs(self, a: Graph, b: Graph, where: tuple[str, ...]) -> None:
        """Compares two corresponding graphs."""
        if (id(a), id(b)) in self._seen:
            return
        self._seen.add((id(a), id(b)))
        if len(where) > 2 * _DEPTH:
            raise GraphError(f"{' > '.join(where[:4])} > ...: graphs are nested too deeply to be compared")
        old = {op.name: op for op in a.operations}
        new = {op.name: op for op in b.operations}
        called = _renamed(
            {name: op for name, op in old.items() if name not in new},
            {name: op for name, op in new.items() if name not in old},
        )
        for name, op in old.items():
            if name not in new and name not in called.values():
                self._add(where, name, "removed", op.type, _lines(op))
        for name, op in new.items():
            before = old.get(called.get(name, name))
            if before is None:
                self._add(where, name, "added", op.type, _lines(op))
                continue
            if name in called:
                self._add(where, name, "renamed", op.type, [f"was {visible(before.name)}"])
            self._operations(before, op, called, where)
        if isinstance(a, FuncGraph) and isinstance(b, FuncGraph):
            ends = list(_sequence("returns", _names(a.results), _names(b.results, called)))
            ends += _set("always runs", _controls(a.control_results), _controls(b.control_results, called))
            if ends:
                self._add(where, "", "changed", "", ends)

    def _operations(self, a: Operation, b: Operation, called: Mapping[str, str], where: tuple[str, ...]) -> None:
        """Compares two corresponding operations; `called` maps new names to old ones."""
        details = [f"type: {a.type} -> {b.type}"] if a.type != b.type else []
        details += _sequence("input", _names(a.inputs), _names(b.inputs, called))
        details += _set("waits for", _controls(a.control_inputs), _controls(b.control_inputs, called))
        if a.device != b.device:
            details.append(f"device: {visible(a.device) or 'any'} -> {visible(b.device) or 'any'}")
        mine, theirs = _comparable(a), _comparable(b)
        for name in sorted(mine.keys() | theirs.keys()):
            if name not in mine or name not in theirs:
                text = f"{'+' if name in theirs else '-'} {_brief(b if name in theirs else a, name)}"
                details.append(f"attribute {visible(name)}: {text}")
            elif _holds_graphs(mine[name]) and _holds_graphs(theirs[name]):
                details += self._bodies(a, b, name, where)
            elif not attr_values.equal(mine[name], theirs[name]):
                details.append(f"attribute {visible(name)}: {_changed(a, b, name)}")
        if details:
            self._add(where, b.name, "changed", b.type, details)

    def _bodies(self, a: Operation, b: Operation, attr: str, where: tuple[str, ...]) -> list[str]:
        """Compares the graphs in an attribute; returns a line if their numbers differ."""
        pairs = [x if isinstance(x, tuple) else (x,) for x in (a.attrs[attr], b.attrs[attr])]
        for i, (f, g) in enumerate(zip(*pairs, strict=False)):
            label = f"{attr}.{i}" if isinstance(b.attrs[attr], tuple) else attr
            if isinstance(f, Func) and isinstance(g, Func):
                self._call(a.graph, b.graph, f.name, g.name)
            else:
                self.graphs(body(a, f), body(b, g), (*where, b.name, label))
        counts = [len(p) for p in pairs]
        return [f"{attr}: {counts[0]} -> {counts[1]} graphs"] if counts[0] != counts[1] else []


def _holds_graphs(value: Any) -> bool:
    return all(isinstance(x, (Func, FuncGraph)) for x in (value if isinstance(value, tuple) and value else (value,)))


def _comparable(op: Operation) -> dict[str, Any]:
    """Attributes that define `op`."""
    return {name: x for name, x in stated_attrs(op.attrs, op.notes).items() if name not in _ANNOTATIONS}


# *** names ***


def _names(tensors: Sequence[Any], called: Mapping[str, str] = {}) -> list[str]:
    """Names of tensors, with the old names of renamed operations."""
    out = []
    for t in tensors:
        old = called.get(t.op.name)
        out.append(show_tensor(t) if old is None else f"{old}:{t.index}" if t.index else old)
    return out


def _controls(ops: Sequence[Operation], called: Mapping[str, str] = {}) -> set[str]:
    return {called.get(op.name, op.name) for op in ops}


def _renamed(old: Mapping[str, Operation], new: Mapping[str, Operation]) -> dict[str, str]:
    """Finds renamed operations, each after its inputs; returns new name → old name."""
    by_signature: dict[Any, list[str]] = {}
    for name in sorted(old):
        by_signature.setdefault(_signature(old[name], {}), []).append(name)
    called: dict[str, str] = {}
    for op in _ordered(new):
        # a second operation of equal signature finds no candidate
        several = by_signature.pop(_signature(op, called), ())
        if len(several) == 1:
            called[op.name] = several[0]
    return called


def _ordered(ops: Mapping[str, Operation]) -> list[Operation]:
    given = [ops[name] for name in sorted(ops)]
    try:
        return walk.toposort(given)
    except GraphError:
        return given


def _signature(op: Operation, called: Mapping[str, str]) -> Any:
    """Key of an operation without its name and without the graphs that it owns."""
    attrs = tuple((name, _key(x)) for name, x in sorted(_comparable(op).items()))
    controls = tuple(sorted(_controls(op.control_inputs, called)))
    return op.type, op.device, attrs, tuple(_names(op.inputs, called)), controls


def _key(value: Any) -> Any:
    """Hashable key of an attribute. Equal attributes have equal keys."""
    if isinstance(value, np.ndarray):
        flat = attr_values.first_element(value) if attr_values.is_splat(value) else value
        content = tuple(flat.reshape(-1).tolist()) if value.dtype == object else flat.tobytes()
        return str(value.dtype), value.shape, content
    if isinstance(value, tuple) and any(isinstance(x, (Func, FuncGraph)) for x in value):
        return len(value)
    if isinstance(value, (Func, FuncGraph)):
        return 1
    try:
        return show_value(value)
    except GraphError:
        return repr(value)


# *** lines ***


def _lines(op: Operation) -> Iterator[str]:
    """Lines about an operation that is in one graph only."""
    if op.inputs:
        yield "takes " + ", ".join(visible(x) for x in _names(op.inputs))
    if op.control_inputs:
        yield "waits for " + ", ".join(visible(c.name) for c in op.control_inputs)
    if op.device:
        yield f"device: {visible(op.device)}"


def _sequence(what: str, a: Sequence[str], b: Sequence[str]) -> Iterator[str]:
    """Lines about the differing positions of two lists of names."""
    for i in range(max(len(a), len(b))):
        x, y = (names[i] if i < len(names) else None for names in (a, b))
        if x != y:
            yield f"{what} {i}: {visible(x) if x else 'nothing'} -> {visible(y) if y else 'nothing'}"


def _set(what: str, a: set[str], b: set[str]) -> Iterator[str]:
    for sign, names in (("no longer ", a - b), ("", b - a)):
        if names:
            yield f"{sign}{what}: {', '.join(visible(x) for x in sorted(names))}"


def _brief(op: Operation, name: str) -> str:
    spec = op.opdef.attrs.get(name)
    return visible(brief(stated_attrs(op.attrs, op.notes)[name], spec is not None and spec.kind == "shape"))


def _changed(a: Operation, b: Operation, name: str) -> str:
    """Describes the change of an attribute; for arrays with equal text, the positions that differ."""
    old, new = (stated_attrs(op.attrs, op.notes)[name] for op in (a, b))
    x, y = _brief(a, name), _brief(b, name)
    if x != y:
        return f"{x} -> {y}"
    if (
        isinstance(old, np.ndarray)
        and isinstance(new, np.ndarray)
        and old.shape == new.shape
        and old.dtype == new.dtype
    ):
        differs = np.flatnonzero((old != new).reshape(-1))
        first = f", the first is number {differs[0]}" if differs.size else " (in their bits only)"
        return f"{differs.size or 'some'} of {old.size} elements{first}"
    return f"{type(old).__name__} -> {type(new).__name__}" if type(old) is not type(new) else "its value"
