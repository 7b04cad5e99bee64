"""How operations are put into the primitive graph: places, gates and pivots.

**Deadness is inherited.** When a conditional takes one branch, the operations of the other one must come out dead. A
Switch in front of the branch sends its data to one side and a dead token to the other, and from there deadness spreads
by itself, from input to output. So all that lowering has to see to is that each operation of a branch has at least one
input that is dead when the branch is not taken. The same holds for the body of a loop, which is dead in the iteration
in which the loop ends.

**Gated values.** A value is *gated* in a place (a branch, a body) if its deadness follows the place: the outputs of the
place's own Switches, and of every operation that is lowered in it. What is not gated there comes from outside without
passing a Switch of the place: loop constants, which are alive in every iteration, and constants.

**The pivot rule.** An operation without a gated data input gets a control edge from the place's *pivot*, an operation
that is dead or alive with it: in a branch the Identity of a Switch of the predicate, in a body the Identity of the
first Switch, in a condition the first loop Merge. This holds for the Switches and Enters of inner structures too. A
result that is not gated (`lambda: 1`) passes through an Identity that is.

**Constants** are put outside all places, once, and enter the loops around them as loop constants. There they cost
nothing: an iteration's record has them in its template. (A constant with control inputs is an operation like others.)

**Names.** A sub-graph that was traced from a user's function has names of its own already ("cond/Add"), and keeps
them. What comes out of a function library, perhaps several times, is put below the name of what calls it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from headrace import dtypes
from headrace.errors import HeadraceInternalError
from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.ir.analysis.signature_check import check_fit
from headrace.ir.attr_values import Func
from headrace.ir.function import base_name, body
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor

if TYPE_CHECKING:
    from headrace.shapes import Shape

# Beyond so many operations copied out of functions, or so many calls in one another, calls run in frames of their own.
INLINE_LIMIT: Final = 100_000
INLINE_DEPTH: Final = 20

Values: TypeAlias = "dict[Tensor, Tensor]"

# What lowering a structured operation gives: the lowered outputs, and what to wait for to have the operation done.
Made: TypeAlias = "tuple[list[Tensor], Callable[[], Sequence[Operation]]]"
Rule: TypeAlias = "Callable[[Lowering, Operation, list[Tensor], list[Operation], LoweringScope], Made]"


class LoweredLoop:
    """A frame of the graph that is made.

    Attributes:
      outside: the place that its Enters fire in.
      scope: what names in it begin with.
      name, limit: its frame name and `parallel_iterations`.
      entered: what has entered as a loop constant: the tensor outside → the Enter's output.
    """

    def __init__(self, outside: LoweringScope, scope: str, name: str, limit: int) -> None:
        self.outside = outside
        self.scope = scope
        self.name = name
        self.limit = limit
        self.entered: Values = {}


class LoweringScope:
    """Where operations are put: a branch, a condition, a body, or the root. See the module's text.

    Attributes:
      loop: the frame it is in; None in the root frame.
      pivot: what operations without gated input wait for; None at the root.
      gated: the tensors whose deadness follows the place.
      prefix: of names.
      anchor: in a loop that was imported as primitives, what constants wait for to be in its frame.
    """

    def __init__(
        self,
        loop: LoweredLoop | None,
        pivot: Operation | None,
        gated: Iterable[Tensor],
        prefix: str,
        anchor: Operation | None = None,
    ) -> None:
        self.loop = loop
        self.pivot = pivot
        self.gated = set(gated)
        self.prefix = prefix
        self.anchor = anchor

    def below(self, prefix: str) -> LoweringScope:
        """The same place, for operations whose names begin with `prefix`."""
        out = LoweringScope(self.loop, self.pivot, (), prefix, self.anchor)
        out.gated = self.gated
        return out

    @property
    def base(self) -> LoweringScope:
        """The place, outside all loops that are being made, in which this one lies."""
        place = self
        while place.loop is not None:
            place = place.loop.outside
        return place


class Done:
    """For the operations of one lowered graph, what to wait for to have them done.

    That of a structured operation (a Merge of its branches' ends, say) is made when it is first asked for.
    """

    def __init__(self) -> None:
        self._known: dict[Operation, Sequence[Operation] | Callable[[], Sequence[Operation]]] = {}

    def set(self, op: Operation, ends: Sequence[Operation] | Callable[[], Sequence[Operation]]) -> None:
        self._known[op] = ends

    def of(self, op: Operation) -> Sequence[Operation]:
        ends = self._known.get(op, ())
        if callable(ends):
            ends = self._known[op] = ends()
        return ends

    def of_all(self, ops: Iterable[Operation]) -> list[Operation]:
        return list(dict.fromkeys(e for op in ops for e in self.of(op)))


class Shared:
    """What all graphs made by one lowering share.

    Attributes:
      rules: kind of structured operation → what lowers it.
      recursive: names of the functions that call themselves, directly or not.
      differentiate: gives the graph of a SymbolicGradient operation.
      stays: whether a structured operation is left as it is.
      left: those that are, in the graphs that are made; for each what it is a copy of.
      called: the functions that calls in frames of their own have been made to.
      differentiated: the functions whose gradients are being inlined.
      schedules: for each graph the operations it needs, in order.
      copied: how many operations have been copied out of functions.
      depth: how many sub-graphs are being lowered, one in another.
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        recursive: frozenset[str],
        differentiate: Callable[[Operation], FuncGraph] | None,
        stays: Callable[[Operation], bool] = lambda op: False,
        is_inlined: bool = True,
    ) -> None:
        self.rules = rules
        self.recursive = recursive
        self.differentiate = differentiate
        self.stays = stays
        self.left: dict[Operation, Operation] = {}
        self.called: dict[str, FuncGraph] = {}
        self.differentiated: set[str] = set()
        self.schedules: dict[FuncGraph, list[Operation]] = {}
        self.copied = 0 if is_inlined else INLINE_LIMIT + 1
        self.depth = 0
        self._read: dict[Graph, set[Tensor]] = {}
        self._wrappers: dict[tuple[str, int], FuncGraph] = {}

    def is_called(self, f: Func | FuncGraph) -> bool:
        """Whether the function `f` is called in frames of its own, here, instead of being inlined."""
        if isinstance(f, FuncGraph):
            return False
        return f.name in self.recursive or self.copied > INLINE_LIMIT or self.depth > INLINE_DEPTH

    def graph_of(self, op: Operation, f: Func | FuncGraph) -> FuncGraph:
        """The graph of a branch, condition or body of `op`: what `f` means, or a graph with a call of that."""
        graph = body(op, f)
        if isinstance(f, FuncGraph) or not self.is_called(f):
            return graph
        key = (f.name, id(graph))
        if key not in self._wrappers:
            self._wrappers[key] = _calling(op, f, graph)
        return self._wrappers[key]

    def is_read(self, t: Tensor) -> bool:
        """Whether an operation reads `t`, or `t` is a result of its graph."""
        graph = t.op.graph
        read = self._read.get(graph)
        if read is None:
            read = self._read[graph] = {t for op in graph.operations for t in op.inputs}
            if isinstance(graph, FuncGraph):
                read.update(graph.results)
        return t in read

    def schedule(self, graph: FuncGraph) -> list[Operation]:
        """The operations that the results and control results of `graph` need, each after what it waits for."""
        got = self.schedules.get(graph)
        if got is None:
            kept = walk.reachable([t.op for t in graph.results] + graph.control_results)
            got = self.schedules[graph] = walk.in_order(kept)
        return got


class Lowering:
    """Makes one primitive graph: that of a step, or of a function that runs in frames of its own."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.graph = Graph()
        self.graph.functions = shared.called
        self.roots: dict[Operation, None] = {}  # what runs though no end of the graph may need it
        self._constants: dict[Hashable, Tensor] = {}
        self._back: list[tuple[Operation, int, Tensor, Values]] = []

    # *** whole graphs ***

    def root(self, graph: Graph) -> Done:
        """Lowers a step's graph."""
        place = LoweringScope(None, None, (), "")
        return self.body(walk.toposort(graph.operations), {}, place)

    def function(self, name: str, graph: FuncGraph) -> list[Operation]:
        """Lowers a function that is called in frames of its own; returns the operations it needs."""
        place = LoweringScope(None, None, (), name + "/")
        values: Values = {}
        args = []
        for i, p in enumerate(graph.params):
            arg = self.copy(place, p.op, (), ())
            arg.attrs = {**arg.attrs, "index": i}
            values[p] = arg.outputs[0]
            args.append(arg)
        self.sub_graph(graph, values, place)
        ends = list(args)
        for i, r in enumerate(graph.results):
            attrs = {"T": r.dtype.base, "index": i}
            ends.append(self.emit(place, "_Retval", [values[r]], attrs, f"ret.{i}", source=r.op.source))
        return self.needed(ends)

    def needed(self, ends: Iterable[Operation]) -> list[Operation]:
        """The operations that `ends` and the roots need, in the order of their making."""
        kept = walk.reachable([*ends, *self.roots])
        return [op for op in self.graph.operations if op in kept]

    def sub_graph(
        self,
        graph: FuncGraph,
        values: Values,
        place: LoweringScope,
        waits: Mapping[Operation, Sequence[Operation]] | None = None,
    ) -> Done:
        """Lowers the operations of `graph` into `place`; `values` has its parameters and gains all its tensors."""
        self.shared.depth += 1
        done = self.body(self.shared.schedule(graph), values, place, waits)
        self.shared.depth -= 1
        self.roots.update(dict.fromkeys(done.of_all(graph.control_results)))
        return done

    def body(
        self,
        ops: Sequence[Operation],
        values: Values,
        place: LoweringScope,
        waits: Mapping[Operation, Sequence[Operation]] | None = None,
    ) -> Done:
        """Lowers `ops`, each of which comes after what it waits for.

        Args:
          ops: of one graph.
          values: what stands for tensors of that graph; gains their outputs.
          place: where they go.
          waits: what some of them wait for besides.
        """
        in_loops = _in_imported_loops(ops)
        done = Done()
        back = len(self._back)
        for op in ops:
            if op.type == "_Arg" and op.outputs[0] in values:
                done.set(op, [values[op.outputs[0]].op])
                continue
            if op.type == "Const" and not op.control_inputs and isinstance(op.attrs["value"], np.ndarray):
                values[op.outputs[0]] = t = self.constant(op, place)
                done.set(op, [t.op])
                continue
            controls = done.of_all(op.control_inputs)
            if waits and op in waits:
                controls += [w for w in waits[op] if w not in controls]
            if op.opdef.structured:
                inputs = [values[t] for t in op.inputs]
                at = self._anchored(op, inputs, controls, place) if op in in_loops else place
                made, ends = self.structure(op, inputs, controls, at)
                for old, new in zip(op.outputs, made, strict=True):
                    values[old] = new
                done.set(op, ends)
                continue
            copy = self.copy(place, op, [values.get(t) for t in op.inputs], controls)
            for old, new in zip(op.outputs, copy.outputs, strict=True):
                values[old] = new
            for i, t in enumerate(op.inputs):
                if t not in values:
                    self._back.append((copy, i, t, values))
            done.set(op, [copy])
        for merge, i, t, known in self._back[back:]:
            self.graph.set_back_edge(merge, i, known[t])
        del self._back[back:]
        return done

    def _anchored(
        self, op: Operation, inputs: Sequence[Tensor], controls: Sequence[Operation], place: LoweringScope
    ) -> LoweringScope:
        """The place of what is lowered for `op`, which stands in a loop that was imported as primitives."""
        name = f"{place.prefix}{op.name}/frame"
        if inputs:
            anchor = self.emit(place, "Identity", inputs[:1], {"T": inputs[0].dtype.base}, name, controls, op)
        else:
            anchor = self.emit(place, "NoOp", (), {}, name, controls, op)
        return LoweringScope(place.loop, anchor, (), place.prefix, anchor)

    # *** single operations ***

    def is_read(self, t: Tensor) -> bool:
        """Whether `t`, a result of a structured operation, is read; else nothing need be made for it."""
        return self.shared.is_read(t)

    def structure(self, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope) -> Made:
        """Puts what a structured operation means into `place`."""
        rule = self.shared.rules.get(op.opdef.structured)
        if rule is None:
            raise HeadraceInternalError(f"{op.type} ('{op.name}') has no lowering")
        check_fit(op)
        if not place.prefix and self.shared.stays(op):  # elsewhere, operations inside it would need other names
            copy = self.copy(place, op, inputs, controls)
            self.shared.left[copy] = op
            return list(copy.outputs), lambda: [copy]
        return rule(self, op, inputs, controls, place)

    def name_of(self, op: Operation, place: LoweringScope) -> str:
        """The name of a copy of `op` in `place`."""
        return self.graph.unique_name(place.prefix + op.name)

    def frame_name(self, name: str) -> str:
        """The name of the frame of the loop that is called `name`."""
        return self.graph.unique_name(name)

    def emit(
        self,
        place: LoweringScope,
        type: str,
        inputs: Sequence[Tensor],
        attrs: Mapping[str, Any],
        name: str,
        controls: Sequence[Operation] = (),
        like: Operation | None = None,
        shapes: Sequence[Shape] | None = None,
        source: Any = None,
        is_gated: bool = False,
    ) -> Operation:
        """Puts a new operation into `place`.

        Args:
          place, type, inputs, attrs, controls: where, what.
          name: its name, made unique; the place's prefix is not put before it.
          like: the operation whose device and source line it takes over.
          shapes: of its outputs; None: that of the first input for all.
          is_gated: it needs no pivot, though its inputs are not gated in `place` (they are in branches of it).
        """
        if not is_gated:
            controls = self._gate(place, inputs, controls)
        # a list goes round where values are pushed to it and popped, wherever the loop was asked to be
        is_list = any(t.dtype is dtypes.variant for t in inputs)
        op = self.graph.add_op(
            type,
            self.graph.unique_name(name),
            inputs,
            attrs,
            controls,
            like.device if like is not None and not is_list else "",
            like.source if like is not None else source,
            unchecked_back_edges=type == "Merge",
        )
        for i, t in enumerate(op.outputs):
            t.shape = shapes[i] if shapes is not None else inputs[0].shape
            if inputs and t.dtype is inputs[0].dtype:
                t.handle = inputs[0].handle
        place.gated.update(op.outputs)
        return op

    def copy(
        self, place: LoweringScope, op: Operation, inputs: Sequence[Tensor | None], controls: Sequence[Operation]
    ) -> Operation:
        """Puts a copy of `op` into `place`. A None among `inputs` is a loop's back edge, to be set later."""
        controls = self._gate(place, inputs, controls)
        copy = self.graph.copy_op(op, inputs, controls, self.name_of(op, place))
        if place.prefix and "frame_name" in op.attrs:  # a loop in a function: each copy is a loop of its own
            copy.attrs = {**op.attrs, "frame_name": place.prefix + op.attrs["frame_name"]}
        place.gated.update(copy.outputs)
        return copy

    def _gate(
        self, place: LoweringScope, inputs: Sequence[Tensor | None], controls: Sequence[Operation]
    ) -> Sequence[Operation]:
        """`controls`, and the pivot if none of the inputs is gated. A control edge from an operation of the place does
        as well (but not one from a Switch, which is alive on either side)."""
        pivot = place.pivot
        if pivot is None or pivot in controls:
            return controls
        gated = place.gated
        if any(t in gated for t in inputs if t is not None):
            return controls
        for c in controls:
            if c.opdef.primitive not in ("Switch", "SwitchN") and any(t in gated for t in c.outputs):
                return controls
        return [*controls, pivot]

    def settled(self, t: Tensor, place: LoweringScope, like: Operation, name: str) -> Tensor:
        """`t`, or an Identity of it that is gated in `place`."""
        if t in place.gated:
            return t
        op = self.emit(place, "Identity", [t], {"T": t.dtype.base}, name, like=like)
        return op.outputs[0]

    def switch(
        self, place: LoweringScope, t: Tensor, selector: Tensor, sides: int, name: str, like: Operation
    ) -> Sequence[Tensor]:
        """`t` for each of several sides, of which `selector` says which one is alive: a boolean, or a number."""
        attrs: dict[str, Any] = {"T": t.dtype.base}
        if selector.dtype.base is dtypes.bool_:
            return self.emit(place, "Switch", [t, selector], attrs, name, like=like).outputs
        attrs["num_outs"] = sides
        return self.emit(place, "_SwitchN", [t, selector], attrs, name, like=like).outputs

    # *** constants ***

    def constant(self, op: Operation, place: LoweringScope) -> Tensor:
        """The constant `op` as operations of `place` may use it."""
        base = place.base
        key = (id(op.attrs["value"]), op.outputs[0].dtype, op.device, base.anchor)
        t = self._constants.get(key)
        if t is None:
            controls = () if base.anchor is None else (base.anchor,)
            t = self.graph.copy_op(op, (), controls, self.name_of(op, place)).outputs[0]
            self._constants[key] = t
        return self.bring_in(t, place.loop, op, base_name(op.outputs[0]))

    def token(self, name: str, place: LoweringScope, like: Operation) -> Tensor:
        """A new constant, with which something may begin to go round a loop that stands in `place`."""
        anchor = place.base.anchor
        array = np.zeros((), np.int32)
        array.flags.writeable = False
        attrs = {"value": array, "dtype": dtypes.int32}
        controls = () if anchor is None else (anchor,)
        op = self.graph.add_op("Const", self.graph.unique_name(name), (), attrs, controls, like.device, like.source)
        op.outputs[0].shape = ()
        return self.bring_in(op.outputs[0], place.loop, like, "token")

    def bring_in(self, t: Tensor, loop: LoweredLoop | None, like: Operation, name: str) -> Tensor:
        """`t`, a tensor outside all loops, as a loop constant of `loop` and the loops around it."""
        if loop is None:
            return t
        return self.enter_constant(self.bring_in(t, loop.outside.loop, like, name), loop, like, name)

    def enter_constant(
        self, t: Tensor, loop: LoweredLoop, like: Operation, name: str, controls: Sequence[Operation] = ()
    ) -> Tensor:
        """`t`, a tensor outside `loop`, as a loop constant of it."""
        got = loop.entered.get(t)
        if got is None:
            op = self.enter(t, loop, True, f"{loop.scope}/{name}/Enter", like, controls)
            got = loop.entered[t] = op.outputs[0]
        return got

    def enter(
        self,
        t: Tensor,
        loop: LoweredLoop,
        is_constant: bool,
        name: str,
        like: Operation,
        controls: Sequence[Operation] = (),
    ) -> Operation:
        """An Enter of `t` into `loop`; it fires outside, and its output is inside."""
        attrs = {
            "T": t.dtype.base,
            "frame_name": loop.name,
            "is_constant": is_constant,
            "parallel_iterations": loop.limit,
        }
        op = self.emit(loop.outside, "Enter", [t], attrs, name, controls, like)
        loop.outside.gated.difference_update(op.outputs)
        return op


def _in_imported_loops(ops: Sequence[Operation]) -> set[Operation]:
    """Those of `ops` that stand in a loop that is there as primitives already."""
    if not any(op.opdef.primitive == "Enter" for op in ops):
        return set()
    tree = frames.derive(ops)
    return {op for op in ops if tree.of(op).parent is not None}


def used_params(graph: FuncGraph, schedule: Sequence[Operation]) -> Iterator[int]:
    """The positions of the parameters that something in the schedule reads, or that are results."""
    read = {t for op in schedule for t in op.inputs} | set(graph.results)
    waited = {c for op in schedule for c in op.control_inputs}
    for i, p in enumerate(graph.params):
        if p in read or p.op in waited:
            yield i


def _calling(op: Operation, f: Func, graph: FuncGraph) -> FuncGraph:
    """A graph with the ends of `graph`, in which there is nothing but a call of `f`."""
    out = FuncGraph(f.name, op.graph, captures_from_outer=False)
    params = [out.add_param(p.dtype, p.shape, f"x{i}") for i, p in enumerate(graph.params)]
    types = {"Tin": tuple(p.dtype.base for p in params), "Tout": tuple(r.dtype.base for r in graph.results)}
    call = out.add_op("StatefulPartitionedCall", "call", params, {**types, "f": f}, source=op.source)
    for t, r in zip(call.outputs, graph.results, strict=True):
        t.shape, t.handle = r.shape, r.handle
    out.results = list(call.outputs)
    out.control_results = [call] if graph.control_results else []
    out.is_ordered = graph.is_ordered
    return out


def prefix_for(place: LoweringScope, op: Operation, graph: FuncGraph, part: str = "") -> str:
    """The prefix of names of `graph`'s operations when they are lowered for `op` in `place`."""
    if graph.shares_names:
        return place.prefix
    return f"{place.prefix}{op.name}/{part + '/' if part else ''}"
