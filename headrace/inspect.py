"""What is in a graph, as data and as text: `headrace inspect`.

    print(render(describe(graph)))

`describe` collects plain data (names, dtypes, shapes), so that other tools can use it without parsing text;
`render` lays it out for a terminal. `describe_step` does the same for what is left of a graph when only some
fetches matter, with its ends shown: what feeds it, what it returns, what is ready at the start (Source) and what
nobody waits for (Sink).
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace import dtypes, shapes
from headrace.errors import GraphError, OpError
from headrace.ir import frames, walk
from headrace.ir.function import body
from headrace.prune import prune

if TYPE_CHECKING:
    from headrace.ir.function import FuncGraph
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.shapes import Shape

_PLACEHOLDERS = frozenset({"Placeholder", "PlaceholderV2", "PlaceholderWithDefault"})
_DEPTH = 20  # of graphs inside graphs that are shown
_HANDLES = frozenset({dtypes.resource, dtypes.variant})


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """A tensor as it is shown: name, dtype, shape."""

    name: str
    dtype: str
    shape: Shape

    def __str__(self) -> str:
        return f"{self.name}  {self.dtype} {shapes.show(self.shape)}"


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """An operation that owns or names something that lives on: a variable, a queue, a tensor array.

    Attributes:
      type, name: of the operation.
      detail: what it holds, as far as its attributes tell.
    """

    type: str
    name: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True)
class LoopVariable:
    """A value that goes round: entered, merged, handed to the next iteration and, if wanted, taken out.

    Attributes:
      value: what comes out of the Merge.
      enter, next, exits: the names of its Enters, NextIterations and Exits, joined by commas; "" for none.
    """

    value: Value
    enter: str
    next: str
    exits: str


@dataclasses.dataclass(frozen=True, slots=True)
class Loop:
    """A frame of the graph.

    Attributes:
      name, depth: of the frame. Loops come in the order of a tree walk, so depth says whose child one is.
      ops: how many operations fire in it.
      parallel_iterations: how many iterations may be open at once.
      condition: what its LoopCond reads; "" if it has none.
      variables: what goes round.
      constants: what comes in once and is there in every iteration.
    """

    name: str
    depth: int
    ops: int
    parallel_iterations: int
    condition: str
    variables: tuple[LoopVariable, ...]
    constants: tuple[Value, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Conditional:
    """The Switches that one predicate decides, loops' own aside.

    Attributes:
      predicate: the tensor, with identities looked through.
      frame: the loop it stands in, "" for none.
      switches: how many values it sends one way or the other.
    """

    predicate: str
    frame: str
    switches: int


@dataclasses.dataclass(frozen=True, slots=True)
class Body:
    """A graph that an operation owns, or a function that it calls.

    Attributes:
      attr: the attribute that has it ("then_branch", "branches.0").
      name: what it is called.
      ops: how many operations it has besides its parameters.
      inside: its own conditionals, loops and calls; left out if it was shown before.
      note: why there is no more to be said: it was shown before, or cannot be read; "" if there is.
    """

    attr: str
    name: str
    ops: int
    inside: tuple[Structured, ...]
    note: str


@dataclasses.dataclass(frozen=True, slots=True)
class Structured:
    """A conditional, loop or call, with the graphs that it runs.

    Attributes:
      type, name: of the operation.
      outputs: what it gives.
      bodies: the graphs.
    """

    type: str
    name: str
    outputs: tuple[Value, ...]
    bodies: tuple[Body, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Description:
    """What `describe` found.

    Attributes:
      ops: how many operations there are of each type, most frequent first.
      inputs: placeholders.
      outputs: outputs of operations that no other one reads; operations without outputs by name alone.
      resources: variables, queues and the like.
      effects: how many other stateful operations there are of each type.
      loops, conditionals: those made of primitives, see these classes.
      structured: conditionals, loops and calls that have graphs of their own.
      functions: names of the graph's functions.
      devices: how many operations ask for each device, where they ask for one.
      problem: why loops could not be told: the error's text, or "".
    """

    ops: Mapping[str, int]
    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    resources: tuple[Resource, ...]
    effects: Mapping[str, int]
    loops: tuple[Loop, ...]
    conditionals: tuple[Conditional, ...]
    structured: tuple[Structured, ...]
    functions: tuple[str, ...]
    devices: Mapping[str, int]
    problem: str


@dataclasses.dataclass(frozen=True, slots=True)
class StepDescription:
    """What a step holds.

    Attributes:
      of: how many operations the whole graph has.
      graph: what is left of it, the ends not counted.
      args: (what is fed, who reads it) for each feed.
      retvals: (what is fetched, by which operation it is made) for each fetch.
      source: operations that wait for nothing; constants only counted.
      constants: how many of those are constants.
      sink: operations that nobody waits for, the fetches' ends aside.
    """

    of: int
    graph: Description
    args: tuple[tuple[Value, tuple[str, ...]], ...]
    retvals: tuple[Value, ...]
    source: tuple[str, ...]
    constants: int
    sink: tuple[str, ...]


# *** collecting ***


def describe(graph: Graph) -> Description:
    """What is in `graph`."""
    return _describe(graph.operations, _functions(graph))


def _describe(ops: Sequence[Operation], functions: tuple[str, ...] = ()) -> Description:
    uses = walk.uses(ops)
    waited_for = {t.op for t in uses} | {c for op in ops for c in op.control_inputs}
    resources = [op for op in ops if _is_resource(op)]
    effects = [op for op in ops if _has_effect(op) and not _is_resource(op)]
    problem, tree = "", None
    try:
        tree = frames.derive(ops)
    except (GraphError, OpError) as e:
        problem = str(e)
    return Description(
        ops=_counts(op.type for op in ops),
        inputs=tuple(_value(op.outputs[0]) for op in ops if op.type in _PLACEHOLDERS),
        outputs=tuple(_end(op) for op in ops if op not in waited_for),
        resources=tuple(Resource(op.type, op.name, _detail(op)) for op in resources),
        effects=_counts(op.type for op in effects),
        loops=tuple(_loop(f, uses) for f in _tree_order(tree)) if tree else (),
        conditionals=_conditionals(ops, tree),
        structured=_structured(ops, set(), 0),
        functions=functions,
        devices=_counts(op.device for op in ops if op.device),
        problem=problem,
    )


def describe_step(
    graph: Graph, feeds: Sequence[Tensor], fetches: Sequence[Tensor], targets: Sequence[Operation]
) -> StepDescription:
    """What is left of `graph` in a step that is fed `feeds`, fetches `fetches` and runs `targets`."""
    pruned = prune(feeds, fetches, targets)
    ends = set(pruned.args) | set(pruned.retvals)
    ops = [op for op in pruned.graph.operations if op not in ends]
    readers = walk.uses(pruned.graph.operations)
    waited_for = {t.op for t in readers} | {c for op in pruned.graph.operations for c in op.control_inputs}
    source = [op for op in ops if not op.inputs and not op.control_inputs]
    return StepDescription(
        of=len(graph.operations),
        graph=_describe(ops, _functions(pruned.graph)),
        args=tuple(
            (_value(t), tuple(dict.fromkeys(u.name for u, _ in readers.get(a.outputs[0], ()) if u not in ends)))
            for a, t in zip(pruned.args, feeds)
        ),
        retvals=tuple(_value(t) for t in fetches),
        source=tuple(op.name for op in source if op.type != "Const"),
        constants=sum(op.type == "Const" for op in source),
        sink=tuple(op.name for op in ops if op not in waited_for),
    )


def _counts(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(collections.Counter(names).items(), key=lambda item: (-item[1], item[0])))


def _value(t: Tensor) -> Value:
    return Value(t.name, t.dtype.name, t.shape)


def _end(op: Operation) -> str:
    return ", ".join(str(_value(t)) for t in op.outputs) or f"{op.name}  ({op.type})"


def _has_effect(op: Operation) -> bool:
    record = op.opdef
    return op.type not in _PLACEHOLDERS and bool(record.facts.effect or record.stateful or record.async_)


def _is_resource(op: Operation) -> bool:
    """Whether `op` is where a variable, queue, ... comes from: it hands out a handle and takes none."""
    return (
        _has_effect(op)
        and any(t.dtype.is_ref or t.dtype in _HANDLES for t in op.outputs)
        and not any(t.dtype.is_ref or t.dtype in _HANDLES for t in op.inputs)
    )


def _detail(op: Operation) -> str:
    """What a resource holds, from the attributes that TensorFlow's resource ops have in common."""
    a, parts = op.attrs, []
    types = a.get("component_types") or ((a["dtype"],) if "dtype" in a else ())
    if types:
        parts.append(", ".join(d.name for d in types))
    if "shape" in a:
        parts.append(shapes.show(a["shape"]))
    if a.get("shapes"):
        parts.append(", ".join(map(shapes.show, a["shapes"])))
    if a.get("capacity", -1) >= 0:
        parts.append(f"capacity {a['capacity']}")
    if a.get("shared_name"):
        parts.append(f"shared as {a['shared_name']!r}")
    return " ".join(parts)


def _tree_order(tree: frames.FrameTree) -> list[frames.Frame]:
    """The loops, each followed by those inside it."""
    inside: dict[frames.Frame | None, list[frames.Frame]] = {}
    for f in tree.frames:
        inside.setdefault(f.parent, []).append(f)
    out: list[frames.Frame] = []
    todo = list(reversed(inside.get(tree.root, [])))
    while todo:
        f = todo.pop()
        out.append(f)
        todo.extend(reversed(inside.get(f, [])))
    return out


def _loop(frame: frames.Frame, uses: Mapping[Tensor, Sequence[tuple[Operation, int]]]) -> Loop:
    cond = frame.loop_cond
    return Loop(
        name=frame.name,
        depth=frame.depth,
        ops=len(frame.ops),
        parallel_iterations=frame.parallel_iterations,
        condition=cond.inputs[0].name if cond is not None else "",
        variables=tuple(_loop_variable(m, uses) for m in sorted(frame.merges, key=lambda op: op.id)),
        constants=tuple(_value(e.outputs[0]) for e in frame.enters if e.attrs["is_constant"]),
    )


def _loop_variable(merge: Operation, uses: Mapping[Tensor, Sequence[tuple[Operation, int]]]) -> LoopVariable:
    by_primitive: dict[str, list[str]] = {}
    for t in merge.inputs:
        by_primitive.setdefault(t.op.opdef.primitive, []).append(t.op.name)
    for switch, _ in uses.get(merge.outputs[0], ()):
        if switch.opdef.primitive == "Switch":
            for user, _ in uses.get(switch.outputs[0], ()):
                if user.opdef.primitive == "Exit":
                    by_primitive.setdefault("Exit", []).append(user.name)
    enter, following, exits = (
        ", ".join(dict.fromkeys(by_primitive.get(p, ()))) for p in ("Enter", "NextIteration", "Exit")
    )
    return LoopVariable(_value(merge.outputs[0]), enter, following, exits)


def _conditionals(ops: Sequence[Operation], tree: frames.FrameTree | None) -> tuple[Conditional, ...]:
    switches: dict[tuple[str, str], int] = {}
    for op in ops:
        if op.opdef.primitive != "Switch":
            continue
        p = op.inputs[1]
        while p.op.opdef.facts.forwards is not None and p.op.type != "LoopCond":
            p = p.op.inputs[p.op.opdef.facts.forwards]
        if p.op.type != "LoopCond":
            key = (p.name, tree.of(op).name if tree else "")
            switches[key] = switches.get(key, 0) + 1
    return tuple(Conditional(p, frame, n) for (p, frame), n in switches.items())


def _functions(graph: Graph) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*graph.library, *graph.functions]))


def _structured(ops: Sequence[Operation], shown: set[FuncGraph], depth: int) -> tuple[Structured, ...]:
    """The conditionals, loops and calls among `ops`; in `shown` are the functions that need not be told again."""
    return tuple(
        Structured(op.type, op.name, tuple(map(_value, op.outputs)), tuple(_bodies(op, shown, depth)))
        for op in ops
        if op.opdef.structured
    )


def _bodies(op: Operation, shown: set[FuncGraph], depth: int) -> Iterator[Body]:
    for attr, spec in op.opdef.attrs.items():
        if spec.kind != "func":
            continue
        value = op.attrs[attr]
        for i, f in enumerate(value if spec.is_list else (value,)):
            path = f"{attr}.{i}" if spec.is_list else attr
            try:
                graph = body(op, f)
            except (GraphError, OpError) as e:
                yield Body(path, f.name, 0, (), str(e))
                continue
            note = "shown above" if graph in shown else "nested too deeply to be shown" if depth > _DEPTH else ""
            shown.add(graph)
            inside = () if note else _structured(graph.operations, shown, depth + 1)
            yield Body(path, graph.name, len(graph) - len(graph.params), inside, note)


# *** text ***


def render(d: Description, limit: int | None = 20) -> str:
    """The text of a description; of each list at most `limit` entries (None: all)."""
    out = [f"{_plural(sum(d.ops.values()), 'operation')} of {_plural(len(d.ops), 'type')}"]
    _section(out, "inputs (placeholders)", d.inputs, limit)
    _section(out, "outputs (nobody uses them)", d.outputs, limit)
    _add_inside(out, d, limit)
    return "\n".join(out)


def render_step(s: StepDescription, limit: int | None = 20) -> str:
    """The text of a step: its ends, then what is between them."""
    out = [f"the step holds {sum(s.graph.ops.values())} of the graph's {_plural(s.of, 'operation')}"]
    fed = [f"{v}  -> {_names(readers, limit) or 'nobody'}" for v, readers in s.args]
    constants = [_plural(s.constants, "constant")] if s.constants else []
    _section(out, "Arg (fed)", fed or ["nothing"], limit)
    _section(out, "Retval (fetched)", s.retvals or ["nothing"], limit)
    _section(out, "Source -> (what waits for nothing)", [*constants, *s.source] or ["nothing"], limit)
    _section(out, "-> Sink (what nobody waits for)", s.sink or ["nothing"], limit)
    _section(out, "placeholders that are not fed", s.graph.inputs, limit)
    _add_inside(out, s.graph, limit)
    return "\n".join(out)


def _add_inside(out: list[str], d: Description, limit: int | None) -> None:
    """All of a description but its ends."""
    _section(out, "operations", [_columns(d.ops)] if d.ops else [], None)
    _section(out, "state", [f"{r.type}  {r.name}  {r.detail}".rstrip() for r in d.resources], limit)
    _section(out, "other operations with effects", [f"{n} {t}" for t, n in d.effects.items()], limit)
    _section(out, "loops", [f"cannot be told: {d.problem}"] if d.problem else _loop_lines(d.loops, limit), None)
    conditionals = [
        f"{c.predicate}  decides the way of {_plural(c.switches, 'value')}"
        + (f", in loop '{c.frame}'" if c.frame else "")
        for c in d.conditionals
    ]
    _section(out, "conditionals", conditionals, limit)
    structured = [_structured_text(s, limit) for s in d.structured]
    _section(out, "conditionals, loops and calls with graphs of their own", structured, limit)
    _section(out, "functions", d.functions, limit)
    _section(out, "devices asked for", [f"{n} on {name}" for name, n in d.devices.items()], limit)


def _structured_text(s: Structured, limit: int | None) -> str:
    gives = ", ".join(f"{v.dtype} {shapes.show(v.shape)}" for v in s.outputs)
    out = [f"{s.type}  {s.name}" + (f"  -> {gives}" if gives else "")]
    for b in s.bodies:
        size = b.note if b.note and not b.ops else _plural(b.ops, "operation") + (f", {b.note}" if b.note else "")
        out.append(f"    {b.attr}  '{b.name}': {size}")
        shown = b.inside if limit is None else b.inside[:limit]
        out += [f"        {line}" for inner in shown for line in _structured_text(inner, limit).splitlines()]
        if len(b.inside) > len(shown):
            out.append(f"        ... and {len(b.inside) - len(shown)} more")
    return "\n".join(out)


def _section(out: list[str], title: str, entries: Sequence[Any], limit: int | None) -> None:
    if not entries:
        return
    out.append(f"\n{title}:")
    shown = entries if limit is None else entries[:limit]
    for e in shown:
        out.extend("  " + line for line in str(e).splitlines())
    if len(entries) > len(shown):
        out.append(f"  ... and {len(entries) - len(shown)} more")


def _plural(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _names(names: Sequence[str], limit: int | None) -> str:
    shown = names if limit is None else names[:limit]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _columns(counts: Mapping[str, int], width: int = 100) -> str:
    """`3 Add   2 Const   ...` in columns, to be read across."""
    entries = [f"{n:>4} {t}" for t, n in counts.items()]
    wide = max(map(len, entries)) + 2
    per_row = max(1, width // wide)
    rows = [entries[i : i + per_row] for i in range(0, len(entries), per_row)]
    return "\n".join("".join(e.ljust(wide) for e in row).rstrip() for row in rows)


def _loop_lines(loops: Sequence[Loop], limit: int | None) -> list[str]:
    out = []
    for loop in loops:
        pad = "    " * (loop.depth - 1)
        while_ = f" while {loop.condition}" if loop.condition else ""
        size = f"{_plural(loop.ops, 'operation')}, parallel_iterations {loop.parallel_iterations}"
        out.append(f"{pad}'{loop.name}'{while_}: {size}")
        rows: list[str] = []
        for v in loop.variables:
            way = [f"from {v.enter}" if v.enter else "", f"next {v.next}" if v.next else ""]
            way.append(f"out by {v.exits}" if v.exits else "nobody takes it out")
            rows.append(f"variable  {v.value}  ({', '.join(filter(None, way))})")
        rows += [f"constant  {c}" for c in loop.constants]
        shown = rows if limit is None else rows[:limit]
        out += [f"{pad}    {r}" for r in shown]
        if len(rows) > len(shown):
            out.append(f"{pad}    ... and {len(rows) - len(shown)} more")
    return out
