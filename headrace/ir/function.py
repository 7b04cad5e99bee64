"""Graphs that operations own: the branches of an `If`, the condition and body of a `While`, functions.

A `FuncGraph` is a graph with an order among its ends: *parameters*, what it is given, and *results*, what it gives
back. The operation that owns it supplies the parameters by its inputs and has the results as its outputs; a function of
the library is not owned but called by name.

**Captures.** What happens in a branch may use values from outside. When an operation in a FuncGraph is given a tensor
of the graph around it, the FuncGraph gets one parameter more, which stands for that tensor, and remembers the pair. So
a sub-graph never has an edge that leads out of it: all comes in by parameters, and whoever reads it (lowering,
gradients, a compiler) need not look around. With several sub-graphs in one operation all get the same parameters
(`unify`). A captured constant is cloned instead, so that what is known about its value stays known: a size, an axis.
Not one of floats (`is_cloned`): of those no static value is asked for, but a gradient may be.

**Control inputs** that point out of a sub-graph are collected in `outer_controls`; the operation that comes to own it
waits for them.

**What runs.** When its owner runs, what the wanted results need does, and what `control_results` need: operations that
change something.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import recursion
from headrace.errors import GraphError
from headrace.ir.graph import Graph, Operation, Tensor, foreign
from headrace.ir.opdef import Func, Owned

if TYPE_CHECKING:
    from headrace.ir.source import Source
    from headrace.shapes import Shape


class FuncGraph(Graph, Owned):
    """A graph with parameters and results; see the module's text.

    Args:
      name: what it is called in a function library and in messages.
      outer: the graph whose tensors it may capture, in which its owner stands; for a function of the library the graph
        that has the library (it captures nothing then).
      captures_from_outer: whether it may capture tensors of `outer` (and of the graphs around that).
      shares_names: its operations take names that no operation of `outer` has, so that lowering can keep them.

    Attributes:
      params: what it is given: for each parameter the output of an `_Arg`.
      results: what it gives back.
      captures: outer tensor → the parameter that stands for it.
      control_results: operations that run whenever it does, though no result may need them.
      outer_controls: operations of graphs around it that its owner has to wait for.
      is_open: it is being made, so what it comes to touch is not known yet.
      is_ordered: stateful operations keep their order from one iteration of a loop to the next.
      source: the line of the user's function.
      role: what it is, in messages ("the body of 'while'"); its name if empty.
      attrs: attributes of its definition in a function library.
      keeping: of a recursive function, the name of one that does the same and returns, last, what its gradient needs.
      gradient: of such a one, the name of the function that goes back through it.
      tangent: of a recursive function, the name of one that does the same and takes and returns tangents too.
      level: how many graphs there are around it.
      originals: if it is a copy, tensor of what it is a copy of → its own. Functions of users that compute gradients
        know the tensors of the graph that was traced, and mean those of the copy.
    """

    def __init__(
        self, name: str, outer: Graph | None, captures_from_outer: bool = True, shares_names: bool = False
    ) -> None:
        super().__init__()
        self.name = name
        self.outer = outer
        self.level: int = 1 + outer.level if isinstance(outer, FuncGraph) else 0
        if self.level >= recursion.MOST:
            raise GraphError(
                f"{name[:40]!r}...: conditionals, loops and functions may be nested {recursion.MOST} deep, not deeper. "
                "Put some of them one after the other, or into functions (hr.Function) that are called"
            )
        self.params: list[Tensor] = []
        self.results: list[Tensor] = []
        self.captures: dict[Tensor, Tensor] = {}
        self.control_results: list[Operation] = []
        self.outer_controls: list[Operation] = []
        self.is_open = False
        self.is_ordered = False
        self.source: Source | None = None
        self.role = ""
        self.attrs: dict[str, Any] = {}
        self.keeping = self.gradient = self.tangent = ""
        self.originals: dict[Tensor, Tensor] = {}
        self.captures_from_outer = captures_from_outer
        self._suffixes: dict[str, int] = {}  # of parameters: name -> the last number behind it
        self.shares_names = shares_names
        if outer is not None:
            self.tensor_type = outer.tensor_type
        if outer is not None and shares_names:
            self._taken, self._lock = outer._taken, outer._lock
            self.shows_primitives = outer.shows_primitives

    @property
    def title(self) -> str:
        where = f" ({self.source})" if self.source is not None else ""
        return f"{self.role or repr(self.name)}{where}"

    def add_param(self, dtype: Any, shape: Shape, name: str, of: str = "", source: Source | None = None) -> Tensor:
        """A new parameter at the end. Where names are shared it is called "arg.name", to take no user's name away."""
        attrs = {"T": dtype.base, "index": len(self.params), "shape": shape, "of": of}
        if self.shares_names:
            base = full = f"arg.{name.rpartition('/')[2].removeprefix('arg.')}"
            while full in self:
                i = self._suffixes[base] = self._suffixes.get(base, 0) + 1
                full = f"{base}_{i}"
        else:
            full = self.unique_name(name)
        op = self.add_op("_Arg", full, attrs=attrs, source=source)
        t = op.outputs[0]
        t.static_shape = shape
        self.params.append(t)
        return t

    def add_captured(self, t: Tensor) -> Tensor:
        """The parameter that stands for `t`, a tensor of `outer`."""
        got = self.captures.get(t)
        if got is None:
            got = self.captures[t] = self.add_param(t.dtype, t.static_shape, t.op.name, t.name, t.op.source)
            got.handle = t.handle
        return got

    def capture(self, t: Tensor) -> Tensor:
        """`t`, if it is of this graph; else what stands for it here: a parameter, or a clone of a constant.

        Raises:
          GraphError: `t` is of a graph that does not surround this one.
        """
        if t.op.graph is self:
            return t
        got = self.captures.get(t)
        if got is not None:
            return got
        t = self.counterpart(t)
        if t.op.graph is self:
            return t
        outer = self.outer
        if outer is None or not self.captures_from_outer or not self.is_within(t.op.graph):
            raise GraphError(foreign(t, self))
        inner = outer.capture(t)
        got = self.captures.get(inner)
        if got is None and is_cloned(inner):
            name = f"arg.{inner.op.name.removeprefix('arg.')}" if self.shares_names else inner.op.name
            clone = self.copy_op(inner.op, (), (), self.unique_name(name))
            got = clone.outputs[0]
            self.captures[t] = got
        elif got is None:
            got = self.add_captured(inner)
        return got

    def capture_control(self, op: Operation) -> Operation | None:
        if op.graph is self:
            return op
        if self.outer is None or not self.captures_from_outer or not self.is_within(op.graph):
            raise GraphError(foreign(op, self))
        if op not in self.outer_controls:
            self.outer_controls.append(op)
        return None

    def counterpart(self, t: Tensor) -> Tensor:
        """What stands for `t` in a copy of its graph, if this is in the copy, or in the gradient of it; else itself."""
        around: Graph | None = self
        while around is not None:
            for g in (around, around.forward):
                if isinstance(g, FuncGraph) and t in g.originals:
                    return g.originals[t]
            around = around.outer
        return t

    def is_within(self, graph: Graph) -> bool:
        """Whether `graph` is one of those around this one, or one that such a one is the gradient of."""
        around = self.outer
        while around is not None and around is not graph and around.forward is not graph:
            around = around.outer if not isinstance(around, FuncGraph) or around.captures_from_outer else None
        return around is not None

    @property
    def captured(self) -> list[tuple[Tensor, Tensor]]:
        """(outer tensor, parameter) of what is captured, in the order of the parameters; cloned constants are not."""
        outside = {p: t for t, p in self.captures.items() if t.op.graph is self.outer}
        return [(outside[p], p) for p in self.params if p in outside]

    def __repr__(self) -> str:
        return f"<FuncGraph {self.name!r} of {len(self)} operations, {len(self.params)} -> {len(self.results)}>"


def base_name(t: Tensor) -> str:
    """Return the last part of the name of the operation of `t`, without the prefix of parameters."""
    return t.op.name.rpartition("/")[2].removeprefix("arg.")


def is_cloned(t: Tensor) -> bool:
    """Whether sub-graphs that use `t` have a clone of it: a constant that is no float, and waits for nothing."""
    if t.op.type != "Const" or t.op.control_inputs:
        return False
    return not (t.dtype.base.is_floating or t.dtype.base.is_complex)


def unify(graphs: Sequence[FuncGraph], own: int) -> list[Tensor]:
    """Gives all `graphs`, which one operation owns, the same parameters: the first `own`, then what any captured.

    Args:
      graphs: of one operation.
      own: how many parameters they have in common already: variables, and what they captured before.

    Returns:
      The captured tensors that are new, in the order of the parameters.
    """
    union: dict[Tensor, None] = {}
    for g in graphs:
        fixed = set(g.params[:own])
        union.update((t, None) for t, p in g.captured if p not in fixed)
    for g in graphs:
        g.params[own:] = [g.add_captured(t) for t in union]
        for i, p in enumerate(g.params):
            p.op.attrs["index"] = i
    return list(union)


def functions_of(op: Operation) -> list[Func | FuncGraph]:
    """What the `func` attributes of a structured operation hold: names of functions, and graphs that it owns."""
    values = [f for v in op.attrs.values() for f in (v if isinstance(v, tuple) else (v,))]
    return [f for f in values if isinstance(f, (Func, FuncGraph))]


def owned(op: Operation) -> list[FuncGraph]:
    """The graphs that an operation owns; none if it is not structured."""
    return [f for f in functions_of(op) if isinstance(f, FuncGraph)] if op.opdef.structured else []


def with_owned(ops: Iterable[Operation]) -> Iterator[Operation]:
    """`ops`, then those of the graphs that they own, then those of the graphs in these, and so on."""
    todo = [ops]
    for some in todo:
        for op in some:
            yield op
            todo += [f.operations for f in owned(op)]


def bodies(op: Operation) -> list[tuple[str, FuncGraph]]:
    """(name, graph) of the graphs that a structured operation owns or calls; of a list attribute "name.0", "name.1".

    Raises:
      NotFoundError: it calls a function that its graph's library does not have.
    """
    out = []
    for name, spec in op.opdef.attrs.items():
        if spec.kind == "func":
            value = op.attrs[name]
            many = value if spec.is_list else (value,)
            for i, f in enumerate(many):
                out.append((f"{name}.{i}" if spec.is_list else name, body(op, f)))
    return out


def body(op: Operation, f: Func | FuncGraph | Any) -> FuncGraph:
    """The graph that the value `f` of a `func` attribute of `op` means."""
    if isinstance(f, FuncGraph):
        return f
    return op.graph.function(f.name, op)


def find_anywhere(graph: Graph, name: str) -> Operation | None:
    """The operation of that name in `graph`, or in one of the graphs that its operations own."""
    todo = [graph]
    for g in todo:
        found = g.find(name)
        if found is not None:
            return found
        for op in g.operations:
            todo.extend(owned(op))
    return None


def recursive_functions(ops: Iterable[Operation]) -> frozenset[str]:
    """The names of the functions, among those that `ops` come to call, that come to call themselves."""
    calls: dict[str, set[str]] = {}

    pending: list[tuple[str, FuncGraph]] = []

    def callees(ops: Iterable[Operation]) -> set[str]:
        out: set[str] = set()
        todo = [ops]
        while todo:
            for op in todo.pop():
                for f in functions_of(op) if op.opdef.structured else ():
                    if isinstance(f, FuncGraph):
                        todo.append(f.operations)
                        continue
                    out.add(f.name)
                    if f.name not in calls:
                        calls[f.name] = set()
                        pending.append((f.name, op.graph.function(f.name, op)))
        return out

    callees(ops)
    while pending:
        name, graph = pending.pop()
        calls[name] = callees(graph.operations)
    called: dict[str, set[str]] = {name: set() for name in calls}
    for name, others in calls.items():
        for other in others:
            called[other].add(name)
    # who calls nobody that is left, or is called by nobody, calls not itself; of most libraries nothing is left
    for edges, back in ((calls, called), (called, calls)):
        done = [name for name, others in edges.items() if not others]
        while done:
            name = done.pop()
            for other in back.pop(name):
                edges[other].discard(name)
                if not edges[other]:
                    done.append(other)
            del edges[name]
    return frozenset(name for name in calls if _reaches(calls, name))


def _reaches(calls: Mapping[str, set[str]], name: str) -> bool:
    seen: set[str] = set()
    todo = list(calls[name])
    while todo:
        n = todo.pop()
        if n == name:
            return True
        if n not in seen:
            seen.add(n)
            todo.extend(calls.get(n, ()))
    return False
