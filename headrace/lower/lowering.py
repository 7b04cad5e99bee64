"""Lowering of single operations: scopes, gates and pivots.

**Deadness spreads by itself.** When a conditional takes one branch, the operations of the other one must be dead. A
Switch in front of the branch sends its data to one side and a dead token to the other, and from there deadness spreads
from input to output. So lowering only ensures that each operation of a branch has at least one input that is dead when
the branch is not taken. The same holds for the body of a loop, which is dead in the iteration in which the loop ends.

**Gated values.** A value is *gated* in a scope (a branch, a body) if its deadness follows the scope. Gated values are
the outputs of the scope's own Switches, and of every operation that is lowered in it. Other values come from outside
without a Switch of the scope: loop constants, which are alive in every iteration, and constants.

**The pivot rule.** An operation without a gated data input gets a control edge from the *pivot* of the scope, an
operation that is dead or alive with the scope. In a branch the pivot is the Identity of a Switch of the predicate, in a
body the Identity of the first Switch, and in a condition the first loop Merge. The rule holds for the Switches and
Enters of inner structures too. A result that is not gated (`lambda: 1`) passes through an Identity that is.

**Constants** are placed outside all scopes, once, and enter the loops around them as loop constants. There they cost
nothing, because the record of an iteration has them in its template. (A constant with control inputs is treated like
any other operation.)

**Names.** A sub-graph that was traced from a user's function already has unique names ("cond/Add"), and keeps them. The
operations of a library function, which may be lowered several times, get the name of the caller as a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from headrace import dtypes, thresholds
from headrace.errors import HeadraceInternalError
from headrace.ir import walk
from headrace.ir.analysis import frames
from headrace.ir.analysis.signature_check import check_fit
from headrace.ir.attr_values import Func
from headrace.ir.edit.editor import Editor
from headrace.ir.function import base_name, body
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor

if TYPE_CHECKING:
    from headrace.ir.notes import Note
    from headrace.shapes import Shape


Values: TypeAlias = "dict[Tensor, Tensor]"

# Result of lowering a structured operation: its outputs, and a function for the operations to wait for.
Made: TypeAlias = "tuple[list[Tensor], Callable[[], Sequence[Operation]]]"
Rule: TypeAlias = "Callable[[Lowering, Operation, list[Tensor], list[Operation], LoweringScope], Made]"


class LoweredLoop:
    """Frame of the primitive graph.

    Attributes:
      outside: The scope in which its Enters fire.
      scope: The prefix of names in it.
      name: The frame name.
      limit: Its `parallel_iterations`.
      entered: The loop constants: outputs of Enters by the tensor outside.
    """

    def __init__(self, outside: LoweringScope, scope: str, name: str, limit: int) -> None:
        self.outside = outside
        self.scope = scope
        self.name = name
        self.limit = limit
        self.entered: Values = {}


class LoweringScope:
    """Place for operations: a branch, a condition, a body or the root; see the module.

    Attributes:
      loop: The frame of the scope; None in the root frame.
      pivot: The operation for which operations without a gated input wait; None at the root.
      gated: The tensors whose deadness follows the scope.
      prefix: The prefix of names.
      anchor: In a loop that was imported as primitives, the operation that puts constants into its frame; else None.
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
        """The same scope, with another prefix of names."""
        out = LoweringScope(self.loop, self.pivot, (), prefix, self.anchor)
        out.gated = self.gated
        return out

    @property
    def base(self) -> LoweringScope:
        """The scope outside all loops of this lowering that contains this scope."""
        place = self
        while place.loop is not None:
            place = place.loop.outside
        return place


class Done:
    """Operations to wait for until given operations of one lowered graph have run.

    For a structured operation, such an operation (for example a Merge of its branches' ends) is made on first use.
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
    """State that all graphs of one lowering share.

    Attributes:
      rules: The rule by kind of structured operation.
      recursive: The names of recursive functions.
      differentiate: Returns the graph of a SymbolicGradient operation.
      is_outlined: Whether a structured operation is not lowered.
      left: The operations that were not lowered, each with the operation of which it is a copy.
      called: The functions that are called in frames of their own, by name.
      differentiated: The functions whose gradients are being inlined.
      schedules: The operations that each graph needs, in order.
      copied: The number of operations copied out of functions.
      depth: The current depth of nested sub-graphs.
    """

    def __init__(
        self,
        rules: Mapping[str, Rule],
        recursive: frozenset[str],
        differentiate: Callable[[Operation], FuncGraph] | None,
        is_outlined: Callable[[Operation], bool] = lambda op: False,
        is_inlined: bool = True,
    ) -> None:
        self.rules = rules
        self.recursive = recursive
        self.differentiate = differentiate
        self.is_outlined = is_outlined
        self.left: dict[Operation, Operation] = {}
        self.called: dict[str, FuncGraph] = {}
        self.differentiated: set[str] = set()
        self.schedules: dict[FuncGraph, list[Operation]] = {}
        self.copied = 0 if is_inlined else thresholds.EXPANDED_OPERATIONS + 1
        self.depth = 0
        self._read: dict[Graph, set[Tensor]] = {}
        self._wrappers: dict[tuple[str, int], FuncGraph] = {}

    def is_called(self, f: Func | FuncGraph) -> bool:
        """Whether the function `f` is called in a frame of its own, not inlined."""
        if isinstance(f, FuncGraph):
            return False
        return (
            f.name in self.recursive
            or self.copied > thresholds.EXPANDED_OPERATIONS
            or self.depth > thresholds.EXPANDED_DEPTH
        )

    def graph_of(self, op: Operation, f: Func | FuncGraph) -> FuncGraph:
        """The graph for a branch, condition or body `f`, or a graph that calls it."""
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
        """Operations that the results and control results of `graph` need, in topological order."""
        got = self.schedules.get(graph)
        if got is None:
            needed = walk.reachable([t.op for t in graph.results] + graph.control_results)
            got = self.schedules[graph] = walk.in_order(needed)
        return got


class Lowering:
    """Construction of one primitive graph, of a step or of a called function."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.graph = Graph()
        self.graph.functions = shared.called
        self.roots: dict[Operation, None] = {}  # operations that run although no end of the graph may need them
        self._constants: dict[Hashable, Tensor] = {}
        self._back: list[tuple[Operation, int, Tensor, Values]] = []

    # *** whole graphs ***

    def root(self, graph: Graph) -> Done:
        """Lowers the graph of a step."""
        place = LoweringScope(None, None, (), "")
        return self.body(walk.toposort(graph.operations), {}, place)

    def function(self, name: str, graph: FuncGraph) -> list[Operation]:
        """Lowers a function for calls in frames of their own; returns the operations it needs."""
        place = LoweringScope(None, None, (), name.lstrip("_") + "/")  # names of operations begin with a letter
        values: Values = {}
        args = []
        for i, p in enumerate(graph.params):
            arg = self.copy(place, p.op, (), ())
            Editor(self.graph).set_attr(arg, "index", i)
            values[p] = arg.outputs[0]
            args.append(arg)
        self.sub_graph(graph, values, place)
        ends = list(args)
        for i, r in enumerate(graph.results):
            attrs = {"T": r.dtype.base, "index": i}
            ends.append(self.emit(place, "_Retval", [values[r]], attrs, f"ret.{i}", source=r.op.source))
        return self.needed(ends)

    def needed(self, ends: Iterable[Operation]) -> list[Operation]:
        """Operations that `ends` and the roots need, in the order in which they were made."""
        needed = walk.reachable([*ends, *self.roots])
        return [op for op in self.graph.operations if op in needed]

    def sub_graph(
        self,
        graph: FuncGraph,
        values: Values,
        place: LoweringScope,
        waits: Mapping[Operation, Sequence[Operation]] | None = None,
    ) -> Done:
        """Lowers the operations of a sub-graph into a scope.

        Args:
          graph: The sub-graph.
          values: The lowered tensors; contains the parameters and gains all tensors of the sub-graph.
          place: The scope.
          waits: Further operations for which some of the operations wait.

        Returns:
          The operations to wait for, by operation of the sub-graph.
        """
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
        """Lowers operations into a scope.

        Args:
          ops: The operations of one graph, in topological order.
          values: The lowered tensors; gains the outputs of the operations.
          place: The scope.
          waits: Further operations for which some of the operations wait.

        Returns:
          The operations to wait for, by operation.
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
        """The scope for the structured operation `op` in a loop that was imported as primitives."""
        name = f"{place.prefix}{op.name}/frame"
        if inputs:
            anchor = self.emit(place, "Identity", inputs[:1], {"T": inputs[0].dtype.base}, name, controls, op)
        else:
            anchor = self.emit(place, "NoOp", (), {}, name, controls, op)
        return LoweringScope(place.loop, anchor, (), place.prefix, anchor)

    # *** single operations ***

    def is_read(self, t: Tensor) -> bool:
        """Whether output `t` of a structured operation is read; otherwise it needs no value."""
        return self.shared.is_read(t)

    def structure(self, op: Operation, inputs: list[Tensor], controls: list[Operation], place: LoweringScope) -> Made:
        """Lowers a structured operation into `place`, or copies it if it stays."""
        rule = self.shared.rules.get(op.opdef.structured)
        if rule is None:
            raise HeadraceInternalError(f"{op.type} ('{op.name}') has no lowering")
        check_fit(op)
        if not place.prefix and self.shared.is_outlined(op):  # with a prefix, operations inside would need other names
            copy = self.copy(place, op, inputs, controls)
            self.shared.left[copy] = op
            return list(copy.outputs), lambda: [copy]
        return rule(self, op, inputs, controls, place)

    def name_of(self, op: Operation, place: LoweringScope) -> str:
        """The name of a copy of `op` in `place`."""
        return self.graph.unique_name(place.prefix + op.name)

    def frame_name(self, name: str) -> str:
        """The frame name of the loop `name`."""
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
        notes: Sequence[Note] = (),
    ) -> Operation:
        """Adds a new operation to a scope.

        Args:
          place: The scope.
          type: The op type.
          inputs: The inputs.
          attrs: The attributes.
          name: The name without the scope's prefix; it is made unique.
          controls: The control inputs, to which the pivot may be added.
          like: The operation whose device and source line are copied.
          shapes: The shapes of the outputs; None for that of the first input.
          source: The source line if `like` is None.
          is_gated: Whether no pivot is needed, because the inputs are gated in branches inside `place`.
          notes: The notes.

        Returns:
          The operation.
        """
        if not is_gated:
            controls = self._gate(place, inputs, controls)
        # a list stays on the device where values are pushed and popped, independent of the loop's requested device
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
            notes=notes,
        )
        for i, t in enumerate(op.outputs):
            handle = inputs[0].handle if inputs and t.dtype is inputs[0].dtype else None
            t.replace_static(shapes[i] if shapes is not None else inputs[0].shape, handle)
        place.gated.update(op.outputs)
        return op

    def copy(
        self, place: LoweringScope, op: Operation, inputs: Sequence[Tensor | None], controls: Sequence[Operation]
    ) -> Operation:
        """Adds a copy of `op` to a scope; None in `inputs` is a back edge."""
        controls = self._gate(place, inputs, controls)
        attrs = op.attrs
        if place.prefix and "frame_name" in attrs:  # each copy of a loop in a function has a frame of its own
            attrs = {**attrs, "frame_name": place.prefix + attrs["frame_name"]}
        copy = self.graph.copy_op(op, inputs, controls, self.name_of(op, place), attrs)
        place.gated.update(copy.outputs)
        return copy

    def _gate(
        self, place: LoweringScope, inputs: Sequence[Tensor | None], controls: Sequence[Operation]
    ) -> Sequence[Operation]:
        """The control inputs of an operation, with the pivot if no input is gated.

        A control edge from an operation of the scope is a gate too, except one from a Switch, which is alive on both
        sides.
        """
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
        """`t` if it is gated in `place`; otherwise an Identity of it, which is."""
        if t in place.gated:
            return t
        op = self.emit(place, "Identity", [t], {"T": t.dtype.base}, name, like=like)
        return op.outputs[0]

    def switch(
        self, place: LoweringScope, t: Tensor, selector: Tensor, sides: int, name: str, like: Operation
    ) -> Sequence[Tensor]:
        """Outputs of a Switch of `t` by `selector`, a boolean or a number."""
        attrs: dict[str, Any] = {"T": t.dtype.base}
        if selector.dtype.base is dtypes.bool_:
            return self.emit(place, "Switch", [t, selector], attrs, name, like=like).outputs
        attrs["num_outs"] = sides
        return self.emit(place, "_SwitchN", [t, selector], attrs, name, like=like).outputs

    # *** constants ***

    def constant(self, op: Operation, place: LoweringScope) -> Tensor:
        """The tensor of the constant `op` for operations of `place`."""
        base = place.base
        key = (id(op.attrs["value"]), op.outputs[0].dtype, op.device, base.anchor)
        t = self._constants.get(key)
        if t is None:
            controls = () if base.anchor is None else (base.anchor,)
            t = self.graph.copy_op(op, (), controls, self.name_of(op, place)).outputs[0]
            self._constants[key] = t
        return self.bring_in(t, place.loop, op, base_name(op.outputs[0]))

    def token(self, name: str, place: LoweringScope, like: Operation) -> Tensor:
        """A new constant, the initial value of a token for a loop in `place`."""
        anchor = place.base.anchor
        array = np.zeros((), np.int32)
        array.flags.writeable = False
        attrs = {"value": array, "dtype": dtypes.int32}
        controls = () if anchor is None else (anchor,)
        op = self.graph.add_op("Const", self.graph.unique_name(name), (), attrs, controls, like.device, like.source)
        op.outputs[0].refine(())
        return self.bring_in(op.outputs[0], place.loop, like, "token")

    def bring_in(self, t: Tensor, loop: LoweredLoop | None, like: Operation, name: str) -> Tensor:
        """Enters `t` from outside all loops into `loop` and the loops around it."""
        if loop is None:
            return t
        return self.enter_constant(self.bring_in(t, loop.outside.loop, like, name), loop, like, name)

    def enter_constant(
        self, t: Tensor, loop: LoweredLoop, like: Operation, name: str, controls: Sequence[Operation] = ()
    ) -> Tensor:
        """Enters `t`, which is directly outside `loop`, as a loop constant."""
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
        """Adds an Enter of `t` into `loop`, which fires outside and has its output inside."""
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
    """Operations of `ops` that are in a loop that already consists of primitives."""
    if not any(op.opdef.primitive == "Enter" for op in ops):
        return set()
    tree = frames.derive(ops)
    return {op for op in ops if tree.of(op).parent is not None}


def used_params(graph: FuncGraph, schedule: Sequence[Operation]) -> Iterator[int]:
    """Positions of the parameters that the schedule or the ends of `graph` need."""
    read = {t for op in schedule for t in op.inputs} | set(graph.results)
    waited = {c for op in schedule for c in op.control_inputs} | set(graph.control_results)
    for i, p in enumerate(graph.params):
        if p in read or p.op in waited:
            yield i


def _calling(op: Operation, f: Func, graph: FuncGraph) -> FuncGraph:
    """A graph with the signature of `graph` that contains only a call of `f`."""
    out = FuncGraph(f.name, op.graph, captures_from_outer=False)
    params = [out.add_param(p.dtype, p.shape, f"x{i}") for i, p in enumerate(graph.params)]
    types = {"Tin": tuple(p.dtype.base for p in params), "Tout": tuple(r.dtype.base for r in graph.results)}
    call = out.add_op("StatefulPartitionedCall", "call", params, {**types, "f": f}, source=op.source)
    for t, r in zip(call.outputs, graph.results, strict=True):
        t.copy_static(r)
    out.set_results(call.outputs, [call] if graph.control_results else [], graph.is_ordered)
    return out


def prefix_for(place: LoweringScope, op: Operation, graph: FuncGraph, part: str = "") -> str:
    """Prefix of the names of `graph`'s operations, lowered for `op` in `place`."""
    if graph.shares_names:
        return place.prefix
    return f"{place.prefix}{op.name}/{part + '/' if part else ''}"
