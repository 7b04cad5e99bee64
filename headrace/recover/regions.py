"""Regions: construction of the structured graphs for the operations of one frame.

A *region* becomes one graph and the conditionals in it: the operations outside all loops, a loop's condition, or a
loop's body. Its nodes are visited in topological order. A node is put into the graph of its path (`reading`). For each
predicate of the path there is an *open* conditional with a graph for each side, into which operations are copied. When
only nodes that wait for results of the conditional are left, the conditional is *closed*: the `If` is made, its results
replace the Merges, and the visit continues.

An operation of a branch may be visited after its conditional was closed, because it depends on the results of that
conditional. For example, TensorFlow 1's gradient of a conditional is in branches of the same predicate, and uses values
of the forward branch. Then a second conditional is opened. A value of the first conditional that it needs is computed
again if that is cheap. Otherwise it becomes a further result of the first conditional.

**Control edges.** A control edge from a Switch, or from an Identity of one (a *pivot*), states the branch of its
target, which is now the graph that contains the target. So such edges are dropped. Their other meaning is that the
value has arrived, and an operation may have changed state before the value was sent. So operations with effects keep
them as edges from the source of the value, and inherit those of their inputs. An edge from outside a branch becomes an
edge to the conditional.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes
from headrace.errors import InvalidArgumentError
from headrace.ir.edit.copying import copied_attrs
from headrace.ir.edit.editor import Editor
from headrace.ir.function import unify
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.recover.contexts import (
    Conditional,
    SubgraphDraft,
    captured,
    is_effectful_node,
    make,
    outer_controls,
    scope_of,
)
from headrace.recover.reading import NEVER, FoundLoop, Path, ill_structured

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame
    from headrace.recover.reading import Node, StructureAnalysis


class FrameRegion:
    """Construction of the graph of one region; see the module's text.

    Args:
      reading: The analysis of the primitive graph.
      frame: The frame of the operations.
      base: The common prefix of their paths (for a loop's body, side 1 of its predicate).
      root: The context of the region's graph.
      given: The values of the frame's variables in that graph.
      outer: The region and context that contain the loop of the frame; None for the root frame.
      read: The tensors that operations of the primitive graph read.
      roots: Operations that must run even if no operation needs them.
      put_loop: Puts a loop of the frame into a context (`loops.put_loop`, which makes further regions).
      in_place: Whether operations stay in their graph, so that only loops and conditionals are made.
    """

    def __init__(
        self,
        reading: StructureAnalysis,
        frame: Frame,
        base: Path,
        root: SubgraphDraft,
        given: Mapping[Tensor, Tensor],
        outer: tuple[FrameRegion, SubgraphDraft] | None,
        read: set[Tensor],
        roots: frozenset[Operation],
        put_loop: Callable[[FrameRegion, FoundLoop, SubgraphDraft], None],
        in_place: bool = False,
    ) -> None:
        self.reading = reading
        self.frame = frame
        self.base = base
        self.root = root
        self.given = given
        self.outer = outer
        self.read = read
        self.roots = roots
        self.put_loop = put_loop
        self.in_place = in_place
        self.home: dict[Tensor, tuple[SubgraphDraft, Tensor]] = {}
        self.done: dict[Node, tuple[SubgraphDraft, Operation]] = {}
        self.pending: dict[Operation, dict[Operation, None]] = {}  # control inputs inherited through an operation
        self.musts: set[Graph] = set() if outer is None else outer[0].musts
        self.rewired: list[tuple[Operation, list[Tensor], list[Operation]]] = []

    # *** the needed nodes ***

    def is_head(self, node: Node) -> bool:
        """Whether a node is in the head of the frame, outside the region."""
        path = self.reading.path[node]
        return path is not NEVER and path[: len(self.base)] != self.base

    def path(self, node: Node) -> Path:
        path = self.reading.path[node]
        return path[len(self.base) :] if path is not NEVER and path[: len(self.base)] == self.base else path

    def needed(self, sinks: Iterable[Node]) -> tuple[list[Node], dict[Operation, None]]:
        """Nodes that `sinks` need.

        Args:
          sinks: The nodes to compute.

        Returns:
          The needed nodes in order, and the nodes of the head for which they only wait.

        Raises:
          InvalidArgumentError: The region needs a value of a stateful operation of the head.
        """
        reading = self.reading
        seen: set[Node] = set()
        waits: dict[Operation, None] = {}
        self._sinks = list(sinks)
        todo = list(self._sinks)
        while todo:
            n = todo.pop()
            if n in seen:
                continue
            seen.add(n)
            if self.base and self.is_head(n) and is_effectful_node(n):
                raise ill_structured(
                    n if isinstance(n, Operation) else n.frame.enters[0],
                    "an operation with effects to be in the condition of a loop or in its body",
                    "it runs at every evaluation of the predicate, and other operations use its value",
                    "pass the value on as a loop variable",
                )
            inputs = reading.inputs(n)
            if is_switch(n) and inputs[1].op is self.frame.loop_cond:
                inputs = inputs[:1]  # the loop's own predicate belongs to the condition
            todo += [reading.node_of(t.op) for t in inputs if reading.is_inside(t.op)]
            for c, _ in reading.controls(n):
                if not reading.is_inside(c):
                    continue
                before = reading.node_of(c)
                if self.base and self.is_head(before):
                    waits[c] = None
                else:
                    todo.append(before)
        self._want(seen)
        return [n for n in reading.nodes[self.frame] if n in seen], waits

    def _want(self, nodes: set[Node]) -> None:
        """Selects the nodes to copy, for example without those that only compute predicates of Switches."""
        reading = self.reading
        self.wanted: set[Node] = set()
        todo: list[Node] = list(self._sinks)
        while todo:
            n = todo.pop()
            if n in self.wanted:
                continue
            self.wanted.add(n)
            tensors = [] if is_switch(n) else reading.inputs(n)
            path = self.path(n)
            tensors += [key for key, _ in path] if path is not NEVER else []
            if isinstance(n, Operation) and n in reading.joins:
                tensors.append(reading.joins[n].key)
            found = [reading.canonical(t).op for t in tensors]
            for c, _ in reading.controls(n):
                found.append(reading.canonical(c.outputs[0]).op if self.is_trivial(c) else c)
                if is_switch(c):
                    found.append(reading.key(c).op)
            todo += [m for op in found if op in reading.ops and (m := reading.node_of(op)) in nodes]

    # *** the walk ***

    def run(self, nodes: Sequence[Node]) -> None:
        """Puts `nodes` into their graphs and closes conditionals until all are done."""
        reading = self.reading
        inside = set(nodes)
        place = {n: i for i, n in enumerate(nodes)}
        self._after: dict[Node, list[Node]] = {n: [] for n in nodes}
        self._waiting: dict[Node, int] = {}
        for n in nodes:
            before = [p for p in dict.fromkeys(reading.predecessors(n)) if p in inside]
            self._waiting[n] = len(before)
            for p in before:
                self._after[p].append(n)
        self._left = Counter(part for n in nodes for part in _parts(self.path(n)))
        self._place = place
        self._ready = [place[n] for n in nodes if not self._waiting[n]]
        heapq.heapify(self._ready)
        count = 0
        while True:
            while self._ready:
                node = nodes[heapq.heappop(self._ready)]
                count += 1
                self._left.subtract(_parts(self.path(node)))
                self._put(node)
            conditional = self._next_to_close()
            if conditional is None:
                break
            self._close(conditional)
        if count < len(nodes):
            raise InvalidArgumentError("the conditionals of the graph form a cycle")

    def _release(self, node: Node, path: Path) -> None:
        """Notifies the successors of `node`; some of them wait until conditionals are closed."""
        for n in self._after[node]:
            self._let(n, node, path)

    def _let(self, n: Node, node: Node, path: Path) -> None:
        target = self.path(n)
        common = 0
        while common < len(path) and common < len(target) and path[common] == target[common]:
            common += 1
        if common < len(path) and target is not NEVER and not self._ends_at(n, path):
            both = len(target) > common and target[common][0] is path[common][0]
            at = self._context_at(path[:common])
            conditional = at.open.get(path[common][0])
            if conditional is not None and not both:
                conditional.after.append(n)
                return
        self._waiting[n] -= 1
        if not self._waiting[n]:
            heapq.heappush(self._ready, self._place[n])

    def _ends_at(self, n: Node, path: Path) -> bool:
        """Whether `n` is a Merge that joins the sides of a conditional in `path`."""
        join = self.reading.joins.get(n) if isinstance(n, Operation) else None
        if join is None:
            return False
        at = len(self.path(n))
        return len(path) > at and path[at][0] is join.key

    def _next_to_close(self) -> Conditional | None:
        """The open conditional to close next: an innermost one, if possible without nodes to come."""
        best: tuple[tuple[int, int], Conditional] | None = None
        todo = [self.root]
        while todo:
            context = todo.pop()
            for conditional in context.open.values():
                todo += conditional.sides
                if conditional.merges or conditional.after:
                    left = self._left[(conditional.path, conditional.key)]
                    rank = (int(left > 0), -len(conditional.path))
                    if best is None or rank < best[0]:
                        best = (rank, conditional)
        return None if best is None else best[1]

    def _context_at(self, path: Path) -> SubgraphDraft:
        """The context of a path, whose conditionals are opened if needed."""
        at = self.root
        for i, (key, side) in enumerate(path):
            at = self._conditional(at, key, path[:i]).sides[side]
        return at

    def _put(self, node: Node) -> None:
        reading = self.reading
        path = self.path(node)
        if path is NEVER or (node not in self.wanted and not is_switch(node)):
            self._release(node, () if path is NEVER else path)
            return
        if isinstance(node, FoundLoop):
            exits = node.frame.exits
            if any(e.outputs[0] not in reading.replaced for e in exits) or not self.roots.isdisjoint(node.frame.ops):
                self.put_loop(self, node, self._context_at(path))
            self._release(node, path)
            return
        kind = node.opdef.primitive
        join = reading.joins.get(node)
        if join is not None:
            if node.outputs[0] in reading.replaced:
                self._release(node, path)
                return
            self._conditional(self._context_at(path), join.key, path).join(node, join)
            return  # successors are notified when the conditional is closed
        if kind in ("Switch", "SwitchN"):
            self._put_switch(node, path)
        elif kind or reading.is_idle(node) or node.type == "LoopCond":
            pass
        elif self.in_place and not path:
            self._stay(node)
        else:
            self.copy(node, self._context_at(path))
        self._release(node, path)

    def _put_switch(self, switch: Operation, path: Path) -> None:
        """Makes the conditional wait for the control inputs of a Switch."""
        reading = self.reading
        context = self._context_at(path)
        controls = reading.controls(switch) + reading.key_controls(switch)
        found = [op for c, _ in controls if (op := self.stands_for(c, context)) is not None]
        if found and reading.path_of(switch.outputs[0]) is not reading.path_of(switch.outputs[-1]):
            conditional = self._conditional(context, reading.key(switch), path)
            conditional.controls.update(dict.fromkeys(found))

    def _conditional(self, context: SubgraphDraft, key: Tensor, path: Path) -> Conditional:
        """The open conditional on `key` in `context`, whose path is `path`."""
        found = context.open.get(key)
        if found is None:
            found = context.open[key] = Conditional(self, context, key, path)
        return found

    def found_within(self, c: Operation, conditional: Conditional) -> tuple[int, Operation | None]:
        """The side of an open conditional with the copy of `c`, and that copy."""
        if c in self.done:
            at, op = self.done[c]
            while at.parent is not None and at.conditional is not None and at.conditional.op is not None:
                at, op = self._outside(at, op)
            if at.conditional is conditional:
                return at.side, op
        return 0, None

    def _stay(self, node: Operation) -> None:
        """Keeps an operation of the graph itself, with structured values as inputs."""
        inputs = [self.value(t, self.root) for t in self.reading.inputs(node)]
        controls = []
        for c in node.control_inputs:
            if c.opdef.primitive == "ControlTrigger":  # it may wait for operations in a branch
                inside = [x for x in self.reading.controls_of_trigger(c) if self.reading.path_of_op(x)]
                controls += [x for x in (self.stands_for(i, self.root) for i in inside) if x is not None]
                if inside:
                    continue
            controls.append(self.stands_for(c, self.root) or c)
        if inputs != node.inputs or controls != node.control_inputs:
            self.rewired.append((node, inputs, list(dict.fromkeys(controls))))
        self.done[node] = (self.root, node)
        for t in node.outputs:
            self.home[t] = (self.root, t)

    # *** operations ***

    def copy(self, op: Operation, context: SubgraphDraft) -> Operation:
        """Adds a copy of `op` to a context."""
        graph = context.graph
        if op.opdef.is_effectful and op.name in self.reading.recovered:
            raise ill_structured(
                op,
                "an operation with effects to be recovered once",
                "another call recovered a part of the graph that contains it",
                "recover the whole graph at once, or all its consumers in one call",
            )
        inputs = [self.value(t, context) for t in self.reading.inputs(op)]
        controls, arrived = self.waits(op, context)
        copy = graph.copy_op(op, inputs, [], self.name_for(op, graph), copied_attrs(op, graph))
        self.settle(copy, controls, arrived)
        for old, new in zip(op.outputs, copy.outputs, strict=True):
            self.home[old] = (context, new)
            context.values[old] = new
        self.done[op] = (context, copy)
        if op in self.roots and isinstance(graph, FuncGraph):
            graph.add_results((), [copy])
            self.musts.add(graph)
        return copy

    def settle(self, op: Operation, controls: Iterable[Operation], arrived: Iterable[Operation]) -> None:
        """Sets the control inputs of a new operation.

        Args:
          op: The operation.
          controls: Operations for which it waits.
          arrived: Operations for which it waited through pivots. They are kept only if the operation, or one that
            depends on it, has effects.
        """
        inherited = dict.fromkeys(arrived)
        for t in op.inputs:
            inherited.update(self.pending.get(t.op, {}))
        kept = dict.fromkeys(controls)
        if op.opdef.is_effectful:
            kept.update(inherited)
        elif inherited:
            self.pending[op] = inherited
        made = {t.op for t in op.inputs}
        Editor(op.graph).set_controls(op, [c for c in kept if c is not op and not (c in made and c.type == "_Arg")])

    def name_for(self, op: Operation, graph: Graph) -> str:
        return op.name if op.name not in graph and isinstance(graph, FuncGraph) else graph.unique_name(op.name)

    def waits(self, op: Node, context: SubgraphDraft) -> tuple[list[Operation], list[Operation]]:
        """Control inputs of a copy of a node.

        An operation outside the graph of the context becomes a control input of the owner of that graph.

        Args:
          op: The node of the primitive graph.
          context: The context of the copy.

        Returns:
          The control inputs, and the operations whose arrival pivots stood for.
        """
        controls, arrived = [], []
        for c, _ in self.reading.controls(op):
            if self.is_trivial(c):
                at = self._arrival(c, context)
                if at is not None:
                    arrived.append(at)
                continue
            found = self.stands_for(c, context)
            if found is not None:
                found = self._lifted(found, context)
                if found is not None:
                    controls.append(found)
        return controls, arrived

    def is_trivial(self, c: Operation) -> bool:
        """Whether a control edge from `c` only determines the branch or loop of its target."""
        reading = self.reading
        if c not in reading.ops:
            return False
        if c.opdef.primitive in ("Switch", "SwitchN", "Enter") or c.type == "LoopCond" or c in reading.loop_merges:
            return True
        return reading.is_idle(c)

    def _arrival(self, c: Operation, context: SubgraphDraft) -> Operation | None:
        """The operation in `context` that has run when the pivot `c` is alive."""
        reading = self.reading
        if c.opdef.primitive == "Enter":
            return None
        t = reading.canonical(c.outputs[0])
        at: SubgraphDraft | None = context
        while at is not None:
            if at.conditional is not None and at.conditional.key is t:
                return None  # the predicate is available when the branch is chosen
            at = at.parent
        if t in self.given:
            return self._lifted(self.given[t].op, context)
        found = self.home.get(t)
        if found is None or not found[0].encloses(context):
            return None
        return self._lifted(found[1].op, context)

    def _lifted(self, op: Operation, context: SubgraphDraft) -> Operation | None:
        """`op` if it is in the graph of `context`; else the graph's owner waits."""
        return context.graph.capture_control(op)

    def stands_for(self, c: Operation, context: SubgraphDraft) -> Operation | None:
        """The operation to wait for instead of `c`, in `context` or outside; else None."""
        reading = self.reading
        if c not in reading.ops:
            return c
        if self.is_trivial(c):
            arrived = self._arrival(c, context)
            return arrived if arrived is not None and arrived.type != "_Arg" else None
        if c.opdef.primitive in ("Merge", "Exit") and c.outputs[0] in reading.replaced:
            return reading.replaced[c.outputs[0]].op
        if c.opdef.primitive in ("Merge", "Exit") and c.outputs[0] in self.home:
            home, value = self.home[c.outputs[0]]
            found: tuple[SubgraphDraft, Operation] | None = (home, value.op)
        else:
            found = self.done.get(c)
        if found is None:
            return None
        at, op = found
        while not at.encloses(context):
            if at.conditional is None or at.conditional.op is None or at.parent is None:
                return None
            at, op = self._outside(at, op)
        return op

    def _outside(self, at: SubgraphDraft, op: Operation) -> tuple[SubgraphDraft, Operation]:
        """The closed conditional around `op`; keeps `op` in its branch if it has effects."""
        assert at.conditional is not None
        assert at.conditional.op is not None
        graph = at.graph
        if op.opdef.is_effectful and isinstance(graph, FuncGraph) and op not in graph.control_results:
            graph.add_results((), [op])
        return at.conditional.context, at.conditional.op

    # *** values ***

    def value(self, t: Tensor, context: SubgraphDraft) -> Tensor:
        """The value of `t` in the graph of `context`."""
        t = self.reading.canonical(t)
        got = context.values.get(t)
        if got is None:
            got = context.values[t] = self._find(t, context)
        return got

    def _find(self, t: Tensor, context: SubgraphDraft) -> Tensor:
        graph = context.graph
        if t in self.given:
            return captured(self.given[t], graph)
        op = t.op
        if op not in self.reading.ops:
            return captured(t, graph)  # of the graph itself: a result that was recovered before
        if op.opdef.primitive == "Enter":
            return captured(self.entered(op), graph)
        home = self.home.get(t)
        if home is None:
            if self.outer is not None and self.reading.tree.outputs_of(op) is not self.frame:
                return captured(self.outer[0].value(t, self.outer[1]), graph)  # a predicate from outside
            raise ill_structured(
                op, "a value that is available where it is used", "it is not", "use it where it is computed"
            )
        if home[0].encloses(context):
            return captured(home[1], graph)
        return self._from_elsewhere(t, *home, context)

    def entered(self, enter: Operation) -> Tensor:
        """The value, outside the loop, that the loop constant `enter` brings in."""
        if not enter.attrs["is_constant"] and self.given:
            raise ill_structured(
                enter,
                "an Enter of a loop variable (read by a Merge) or of a loop constant (is_constant=True)",
                "its value is used directly, in the first iteration only",
                "make it a loop constant",
            )
        assert self.outer is not None
        region, context = self.outer
        return region.value(enter.inputs[0], context)

    def _from_elsewhere(self, t: Tensor, home: SubgraphDraft, made: Tensor, context: SubgraphDraft) -> Tensor:
        """The value of `t` from an earlier conditional of the predicate, or from another side."""
        op = t.op
        is_recomputed = op.opdef.is_cheap and not op.opdef.primitive
        if is_recomputed and (made.dtype.base in dtypes.OBJECT or all(self._is_near(i, context) for i in op.inputs)):
            kept = {o: self.home[o] for o in op.outputs}, self.done[op]
            copy = self.copy(op, context)
            self.home.update(kept[0])
            self.done[op] = kept[1]
            return copy.outputs[t.index]
        at, value = home, made
        while not at.encloses(context):
            conditional = at.conditional
            if conditional is None or conditional.op is None or at.parent is None:
                raise ill_structured(
                    op,
                    "a value that is available where it is used",
                    "it is in another branch",
                    "use it where it is computed",
                )
            value = conditional.export(at.side, value)
            at = at.parent
        self.home[t] = (at, value)
        return captured(value, context.graph)

    def _is_near(self, t: Tensor, context: SubgraphDraft) -> bool:
        t = self.reading.canonical(t)
        if t in context.values or t in self.given or t.op not in self.reading.ops or t.op.opdef.primitive == "Enter":
            return True
        home = self.home.get(t)
        return home is not None and home[0].encloses(context)

    # *** closing ***

    def close_all(self) -> None:
        """Closes the remaining conditionals, which have no results but may have to run."""
        for conditional in list(self.root.open.values()):
            self._close(conditional)

    def _close(self, conditional: Conditional) -> None:
        for side in conditional.sides:
            for inner in list(side.open.values()):
                self._close(inner)
        context = conditional.context
        if context.open.get(conditional.key) is conditional:
            del context.open[conditional.key]
        if conditional.is_wanted:
            self._make(conditional)
        for merge in conditional.merges:
            self._release(merge, conditional.path)
        for node in conditional.after:
            self._waiting[node] -= 1
            if not self._waiting[node]:
                heapq.heappush(self._ready, self._place[node])

    def _make(self, conditional: Conditional) -> None:
        """Makes the `If` or `Case` of a conditional."""
        context, graphs = conditional.context, conditional.graphs
        outside = context.graph
        for g, ends in zip(graphs, zip(*conditional.results, strict=True), strict=False):
            g.add_results(ends)
        inputs = unify(graphs, 0)
        pred = self.value(conditional.key, context)
        attrs: dict[str, Any] = {
            "Tin": tuple(t.dtype.base for t in inputs),
            "Tout": tuple(r[0].dtype.base for r in conditional.results),
        }
        is_if = pred.dtype.base is dtypes.bool_
        if is_if:
            attrs |= {"Tcond": dtypes.bool_, "then_branch": graphs[1], "else_branch": graphs[0]}
        else:
            attrs |= {"branches": tuple(graphs)}
        type = "If" if is_if else "Case"
        like = conditional.merges[0] if conditional.merges else conditional.key.op
        name = outside.unique_name(scope_of(like.name))
        op = make(type, graphs, outside, name, [pred, *inputs], attrs, like)
        for g, part in zip(graphs, ("false", "true") if is_if else range(len(graphs)), strict=True):
            g.name, g.role = f"{name}_{part}".replace("/", "_"), f"branch {part} of {name!r}"
        conditional.op = op
        controls = [*conditional.controls, *outer_controls(graphs, outside)]
        lifted = [outside.capture_control(c) for c in controls]
        self.settle(op, [c for c in lifted if c is not None], ())
        for t, made, several in zip(op.outputs, conditional.made, conditional.results, strict=True):
            handles = {e.handle for e in several}
            t.replace_static(made.shape, made.handle or (handles.pop() if len(handles) == 1 else None))
            self.home[made] = (context, t)
            context.values[made] = t
        for merge in conditional.merges:
            self.done[merge] = (context, op)
        self.keep_root(graphs, op)

    def keep_root(self, graphs: Sequence[FuncGraph], op: Operation) -> None:
        """Makes `op` run if an operation inside it must run."""
        if not self.musts.isdisjoint(graphs) and isinstance(op.graph, FuncGraph):
            op.graph.add_results((), [op])
            self.musts.add(op.graph)


def is_switch(node: Node) -> bool:
    return isinstance(node, Operation) and node.opdef.primitive in ("Switch", "SwitchN")


def _parts(path: Path) -> list[tuple[Path, Tensor]]:
    """Conditionals of a path."""
    return [] if path is NEVER else [(path[:i], key) for i, (key, _) in enumerate(path)]
