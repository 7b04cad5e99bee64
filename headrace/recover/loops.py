"""Recovery of loops: frames become `While` operations.

    e    = Enter(i0)                     n' = Enter(n, is_constant=True)
    m    = Merge(e, next)
    go   = LoopCond(Less(m, n'))
    s    = Switch(m, go)
    next = NextIteration(AddV2(s:1, 1))
    i    = Exit(s:0)

Each Merge with a back edge from a NextIteration is a loop variable. The operations on which the LoopCond depends are
the condition. The operations on which the NextIterations depend, behind the Switches, are the body. Both are regions of
their own (`regions`), with the variables as parameters. A loop constant is a tensor from outside, which the graph
captures like any other. If the body needs a value that is computed before the Switches, it computes the value again. So
that computation must be pure.

The value of an Exit is the last value of a variable. Operations between a Switch and an Exit run after the loop. A
frame without a predicate and without back edges is not a loop: it runs once, so its operations are put into the graph
around it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.ir.function import unify
from headrace.ir.graph import Operation, Tensor
from headrace.ir.notes import FrameName
from headrace.recover.contexts import SubgraphDraft, captured, make, outer_controls, scope_of, sub_graph, waiting
from headrace.recover.reading import ill_structured
from headrace.recover.regions import FrameRegion

if TYPE_CHECKING:
    from headrace.ir.analysis.frames import Frame
    from headrace.recover.reading import FoundLoop, Node


def put_loop(outer: FrameRegion, loop: FoundLoop, context: SubgraphDraft) -> None:
    """Puts a loop into `context` of the region around it."""
    if loop.frame.loop_cond is None and not loop.frame.back_edges:
        _run_once(outer, loop, context)
    else:
        _While(outer, loop, context).put()


def _region(
    outer: FrameRegion, frame: Frame, base: Any, root: SubgraphDraft, given: dict[Tensor, Tensor], at: SubgraphDraft
) -> FrameRegion:
    return FrameRegion(outer.reading, frame, base, root, given, (outer, at), outer.read, outer.roots, outer.put_loop)


def _run_once(outer: FrameRegion, loop: FoundLoop, context: SubgraphDraft) -> None:
    frame = loop.frame
    region = _region(outer, frame, (), SubgraphDraft(context.graph, context), {}, context)
    roots = [op for op in frame.ops if op in outer.roots]
    nodes, _ = region.needed([*frame.exits, *roots])
    region.run(nodes)
    region.close_all()
    for e in frame.exits:
        t = region.value(e.inputs[0], region.root)
        outer.home[e.outputs[0]] = (context, t)
        context.values[e.outputs[0]] = t


class _While:
    """Recovery of one loop."""

    def __init__(self, outer: FrameRegion, loop: FoundLoop, context: SubgraphDraft) -> None:
        self.outer, self.context = outer, context
        self.loop = loop
        self.frame = frame = loop.frame
        self.reading = outer.reading
        cond = frame.loop_cond
        if cond is None:
            raise ill_structured(
                frame.merges[0],
                "a LoopCond in its loop",
                f"the loop {frame.name!r} has none",
                "let one predicate end the loop",
            )
        self.cond: Operation = cond
        key = cond.outputs[0]
        self.body_path = ((key, 1),)
        self.exit_path = ((key, 0),)
        self.enters = {m: self._entry(m) for m in frame.merges}
        self.nexts = {e.merge: e.next_iteration for e in frame.back_edges}

    def _entry(self, merge: Operation) -> Operation:
        """The Enter of a variable, given its Merge."""
        entries = [t.op for t in merge.inputs if t.op.opdef.primitive != "NextIteration"]
        if len(entries) != 1 or len(merge.inputs) != 2 or entries[0].opdef.primitive != "Enter":
            got = ", ".join(f"'{t.name}' ({t.op.type})" for t in merge.inputs)
            raise ill_structured(
                merge, "an Enter and a NextIteration as its inputs", f"it has {got}", "begin each variable by an Enter"
            )
        return entries[0]

    def put(self) -> None:
        outer, context, frame, reading = self.outer, self.context, self.frame, self.reading
        for n in self.nexts.values():
            self._check(n, self.body_path, "the value of the next iteration to come from the loop's body")
        for e in frame.exits:
            self._check(e, self.exit_path, "the input of an Exit to be the false side of a Switch on the predicate")
        references = [m for m in frame.merges if m.outputs[0].dtype.is_ref]
        merges = [m for m in frame.merges if m not in references]
        first = {m: outer.value(e.inputs[0], context) for m, e in self.enters.items()}
        initial = [first[m] for m in merges]
        name = context.graph.unique_name(scope_of(self.cond.name))
        graphs = [sub_graph(f"{name}_{part}", context.graph) for part in ("cond", "body")]
        graphs[0].role, graphs[1].role = f"the condition of loop {name!r}", f"the body of loop {name!r}"
        given: list[dict[Tensor, Tensor]] = [{}, {}]
        for m, start in zip(merges, initial, strict=True):
            for g, mine in zip(graphs, given, strict=True):
                called, handle = scope_of(m.name) if "/" not in m.name else m.name, m.outputs[0].handle or start.handle
                p = g.add_param(start.dtype, m.outputs[0].shape, called, source=m.source, handle=handle)
                mine[m.outputs[0]] = p
        for m in references:
            self._check_reference(m)
            for g, mine in zip(graphs, given, strict=True):
                mine[m.outputs[0]] = captured(first[m], g)
        inside = [
            _region(outer, frame, base, SubgraphDraft(g, context), mine, context)
            for g, mine, base in zip(graphs, given, ((), self.body_path), strict=True)
        ]
        cond, body = inside

        roots = [op for op in frame.ops if op in outer.roots]
        body_roots = [op for op in roots if reading.path[op][:1] == self.body_path]
        body_nodes, waits = body.needed([*self.nexts.values(), *body_roots])
        exits = self._exits(roots)
        exit_nodes: list[Node] = []
        if exits is not None:
            ends = [r for r in roots if reading.path[r][:1] == self.exit_path]
            exit_nodes, others = exits.needed([*self._computed(), *ends])
            waits = {**waits, **others}
        head_roots = [op for op in roots if not reading.path[op] or reading.path[op][0][0] is not self.cond.outputs[0]]
        waits = {c: None for c in waits if not cond.is_trivial(c)}
        cond_nodes, _ = cond.needed([self.cond, *map(reading.node_of, waits), *head_roots])

        cond.run(cond_nodes)
        pred = self._settled(cond, self.cond, reading.given(self.cond.inputs[0]), list(waits))
        cond.close_all()
        body.run(body_nodes)
        results = [self._settled(body, self.nexts[m], self.nexts[m].inputs[0], ()) for m in merges]
        body.close_all()

        more = unify(graphs, len(initial))
        graphs[0].set_results([pred])
        graphs[1].set_results([*results, *graphs[1].params[len(initial) :]])
        inputs = [*initial, *more]
        attrs = {
            "T": tuple(t.dtype.base for t in inputs),
            "cond": graphs[0],
            "body": graphs[1],
            "parallel_iterations": frame.parallel_iterations,
        }
        notes = [FrameName(frame.name)] if frame.name != name else []
        op = make("While", graphs, context.graph, name, inputs, attrs, self.cond, notes)
        controls, arrived = outer.waits(self.loop, context)
        outer.settle(op, [*controls, *outer_controls(graphs, context.graph)], arrived)
        for t, start in zip(op.outputs[len(initial) :], more, strict=True):
            t.copy_static(start)
        last: dict[Tensor, Tensor] = {m.outputs[0]: first[m] for m in references}
        for m, t in zip(merges, op.outputs, strict=False):
            t.replace_static(m.outputs[0].shape, given[1][m.outputs[0]].handle)
            last[m.outputs[0]] = t
        outer.keep_root(graphs, op)
        outer.done[self.loop] = (context, op)
        if exits is not None:
            exits.given = last
            exits.run(exit_nodes)
        for e in frame.exits:
            variable = reading.canonical(e.inputs[0])
            if variable in last:
                t = last[variable]
            else:
                assert exits is not None
                t = self._settled(exits, e, e.inputs[0], ())
            if t.shape is None and not t.dtype.is_ref:
                t.refine(e.outputs[0].shape)
            outer.home[e.outputs[0]] = (context, t)
            context.values[e.outputs[0]] = t
            outer.done[e] = (context, op)
        if exits is not None:
            exits.close_all()

    def _check(self, op: Operation, path: Any, expected: str) -> None:
        t = op.inputs[0]
        got = self.reading.path[op]
        if got != path:
            raise ill_structured(
                op,
                expected,
                f"'{t.name}' comes from another path" if got else f"'{t.name}' depends on no Switch",
                f"pass it through a Switch on '{self.cond.outputs[0].name}'",
            )

    def _check_reference(self, merge: Operation) -> None:
        """Raises unless the reference is that of one variable in all iterations."""
        t = self.nexts[merge].inputs[0]
        while t.op is not merge:
            op = t.op
            if op not in self.reading.ops or not op.inputs or not op.inputs[0].dtype.is_ref or op.control_inputs:
                raise ill_structured(
                    merge,
                    "a reference that is a loop variable to be equal in all iterations",
                    f"it comes from '{op.name}' ({op.type})",
                    "use a resource variable, or make the value the loop variable",
                )
            t = op.inputs[0]

    def _computed(self) -> list[Operation]:
        """Exits of values that are computed from variables after the Switches."""
        variables = {m.outputs[0] for m in self.frame.merges}
        return [e for e in self.frame.exits if self.reading.canonical(e.inputs[0]) not in variables]

    def _exits(self, roots: list[Operation]) -> FrameRegion | None:
        if not self._computed() and not any(self.reading.path[r][:1] == self.exit_path for r in roots):
            return None
        at = SubgraphDraft(self.context.graph, self.context)
        return _region(self.outer, self.frame, self.exit_path, at, {}, self.context)

    def _settled(self, region: FrameRegion, end: Operation, t: Tensor, waits: Any) -> Tensor:
        """The value of `t` at a region's end, with the control inputs of `end`."""
        root = region.root
        value = region.value(t, root)
        controls, _ = region.waits(end, root)
        for c in waits:
            found = region.stands_for(c, root)
            if found is not None:
                controls.append(found)
        controls = [c for c in controls if c.type != "_Arg" and c is not value.op]
        if controls or (value.dtype.is_ref and not end.outputs[0].dtype.is_ref):
            value = waiting(value, dict.fromkeys(controls), end.name, end)
        return value
