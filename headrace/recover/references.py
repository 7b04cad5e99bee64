"""Replacement of reference variables by resource variables, in the graph of a step.

The optimizer and the compiler know resource variables best: a read is an operation, and so is each change. References
hide the reads in the edges. Where all uses of a variable are known, its operations become those on a handle:

    v = VariableV2()                      v = VarHandleOp()
    x = Identity(v)                       x = ReadVariableOp(v)
    w = Assign(v, y)                      w = AssignVariableOp(v, y)
    z = Add(w, 1)                         z = Add(ReadVariableOp(v), 1)           the read waits for w

Both kinds of operations find the same variable of the session, by its name. An operation that takes a reference as a
value reads it when it runs, so its read waits for its other inputs, too. A variable keeps its references if an
operation without counterpart uses one (RefSwitch, RefSelect), or if an assignment may change its shape.

The handles of branches and loops' bodies are then those of the outermost graph, captured, as they are of resource
variables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace import shapes
from headrace.ir import walk
from headrace.ir.edit import add_values
from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned, owns_all
from headrace.ir.graph import FuncGraph
from headrace.ir.op_roles import BY_REFERENCE
from headrace.ir.opdef import op_registry

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from headrace.ir.graph import Graph, Operation, Tensor

VARIABLES: Final = ("VariableV2", "Variable")
_GROWING: Final = ("If", "Case", "While", "Call")  # kinds of operations that get further inputs
_COUNTERPARTS: Final = {
    "Assign": "AssignVariableOp",
    "AssignAdd": "AssignAddVariableOp",
    "AssignSub": "AssignSubVariableOp",
    "IsVariableInitialized": "VarIsInitializedOp",
}


def handles_for_references(graph: Graph, targets: Sequence[Operation]) -> tuple[Operation, ...]:
    """Replaces reference variables of a private graph, and of the graphs that its operations own.

    Args:
      graph: the graph, which is changed.
      targets: the operations that a step runs.

    Returns:
      The operations in place of `targets`.
    """
    made: dict[Operation, Operation] = {}
    todo: list[Graph] = [graph]
    owners: dict[Graph, Operation] = {}
    for g in todo:
        for op in g.operations:
            for f in owned(op):
                owners[f] = op
                todo.append(f)
        made.update(_References(g, targets if g is graph else ()).run())
    handles = _SharedHandles(graph, owners, targets)
    for g in owners:
        handles.pass_into(g)
    return tuple([made.get(op, op) for op in targets])


def has_references(graph: Graph) -> bool:
    """Whether the graph, or one that its operations own, has a reference variable."""
    todo: list[Graph] = [graph]
    for g in todo:
        if any(op.type in VARIABLES for op in g.operations):
            return True
        todo += [f for op in g.operations for f in owned(op)]
    return False


def _counterpart(op: Operation) -> str:
    """Type of the operation on handles that is the counterpart of `op`; "" for none."""
    type = _COUNTERPARTS.get(op.type, f"Resource{op.type}")
    return type if type in op_registry else ""


class _SharedHandles:
    """Handles of the outermost graph, for the graphs that operations own.

    Args:
      graph: the outermost graph.
      owners: the owner of each of the other graphs.
      targets: the operations that a step runs.
    """

    def __init__(self, graph: Graph, owners: Mapping[Graph, Operation], targets: Sequence[Operation]) -> None:
        self.graph = graph
        self.owners = owners
        self.editor = Editor(graph, targets)
        self.known: dict[tuple[Graph, Hashable], Tensor] = {}  # the handle in each graph
        for op in graph.operations:
            if _is_converted(op):
                self.known.setdefault((graph, _name_of(op)), op.outputs[0])

    def pass_into(self, graph: Graph) -> None:
        """Replaces the handles that `graph` makes by parameters.

        It does not if the owner of `graph`, or of a graph around it, cannot get further inputs.
        """
        made = [op for op in graph.operations if _is_converted(op)]
        if not made:
            return
        around: list[Graph] = [graph]
        while around[-1] is not self.graph:
            owner = self.owners[around[-1]]
            if owner.opdef.structured not in _GROWING or not owns_all(owner):
                return
            around.append(owner.graph)
        editor = Editor(graph)
        for op in made:
            key = _name_of(op)
            if (self.graph, key) not in self.known:
                self.known[self.graph, key] = self._outermost(op)
            for outer, inner in zip(around[::-1], around[-2::-1], strict=False):
                if (inner, key) not in self.known:
                    self._add_param(self.owners[inner], self.known[outer, key], key)
            editor.replace(op.outputs[0], self.known[graph, key])
        editor.let_go(made)

    def _outermost(self, like: Operation) -> Tensor:
        name = self.graph.unique_name(like.name)
        op = self.graph.add_op("VarHandleOp", name, [], like.attrs, (), like.device, like.source, notes=like.notes)
        self.editor.put_first(op)
        return op.outputs[0]

    def _add_param(self, owner: Operation, handle: Tensor, key: Hashable) -> None:
        add = add_values.add_variable if owner.opdef.structured == "While" else add_values.add_input
        add(owner, handle)
        for f in owned(owner):
            self.known[f, key] = f.params[-1]


def _is_converted(op: Operation) -> bool:
    return op.type == "VarHandleOp" and op.attrs["debug_name"] == BY_REFERENCE


def _name_of(op: Operation) -> Hashable:
    """The name of a variable in the session."""
    return op.attrs["container"], op.attrs["shared_name"], op.attrs["dtype"]


class _References:
    """Reference variables of one graph."""

    def __init__(self, graph: Graph, targets: Sequence[Operation]) -> None:
        self.graph = graph
        self.editor = Editor(graph, targets)
        self.made: dict[Operation, Operation] = {}  # operation → the one in its place
        self.held: dict[Tensor, tuple[Tensor, tuple[Operation, ...]]] = {}  # reference → handle, what it waits for

    def run(self) -> Mapping[Operation, Operation]:
        order = walk.in_order(self.graph.operations)
        kept = self._convertible(order)
        if not kept:
            return {}
        new: list[Operation] = []
        for op in order:
            before = len(self.graph)
            last = self._converted(op) if op in kept else op
            if last is op:
                self._read_inputs(op)
            new += [*self.graph.operations[before:], *([op] if last is op else [])]
        if isinstance(self.graph, FuncGraph):
            ends = self.graph
            controls = [self.made.get(op, op) for op in ends.control_results]
            if controls != list(ends.control_results):
                ends.set_results(ends.results, controls)
        self.editor.arrange([*new, *self.made])
        self.editor.supersede(self.made)
        return self.made

    def _convertible(self, order: Sequence[Operation]) -> set[Operation]:
        """Returns the variables that can be replaced, and the operations that take references to them."""
        origin: dict[Tensor, Operation] = {}
        users: dict[Operation, list[Operation]] = {}
        bad: set[Operation] = set()
        for op in order:
            if op.type in VARIABLES:
                origin[op.outputs[0]] = op
                users[op] = []
                # a reference of unknown shape takes a scalar first; the shape () of the older op may be unknown
                is_known = shapes.is_full(op.attrs["shape"]) and (op.type != "Variable" or op.attrs["shape"] != ())
                if not is_known:
                    bad.add(op)
                continue
            wants = op.opdef.input_dtypes(op.attrs)
            taken = [t for t, want in zip(op.inputs, wants, strict=True) if want.is_ref]
            refs = [t for t in op.inputs if t.dtype.is_ref and t in origin]
            mine = {origin[t] for t in taken if t in origin}
            for v in mine:
                users[v].append(op)
            is_named = op.type == "_Retval" and op.inputs[0].op in users  # an error names the variable
            if op.opdef.structured or op.opdef.primitive or is_named:
                bad |= {origin[t] for t in refs}
            elif taken:
                if not _counterpart(op) or len(mine) != len(set(taken)) or self._changes_shape(op):
                    bad |= mine
                elif len(op.outputs) == 1 and op.outputs[0].dtype.is_ref:
                    origin[op.outputs[0]] = origin[taken[0]]
        if isinstance(self.graph, FuncGraph):
            bad |= {origin[t] for t in self.graph.results if t in origin}
        todo = list(bad)
        while todo:  # an operation on several variables has references or handles to all
            for op in users.get(todo.pop(), ()):
                more = {v for v, us in users.items() if op in us} - bad
                bad |= more
                todo += more
        good = set(users) - bad
        return good | {op for v in good for op in users[v]}

    def _changes_shape(self, op: Operation) -> bool:
        if op.type != "Assign" or op.attrs["validate_shape"]:
            return False
        ref, value = op.inputs
        return ref.shape is not None and value.shape != ref.shape

    def _waits(self, op: Operation) -> list[Operation]:
        return [self.made.get(c, c) for c in op.control_inputs]

    def _converted(self, op: Operation) -> Operation:
        """Adds the operation in place of a variable, or of an operation that takes references."""
        if op.type in VARIABLES:
            attrs = {k: op.attrs[k] for k in ("container", "dtype")}
            attrs |= {"shared_name": op.attrs["shared_name"] or op.name, "shape": op.attrs["shape"]}
            attrs["debug_name"] = BY_REFERENCE
            waits = [c for c in self._waits(op) if c.type != "_Arg"]  # which its readers have instead
            new = self._add("VarHandleOp", op, [], attrs, waits if self.editor.is_waited_for(op) else [])
            self.held[op.outputs[0]] = new.outputs[0], tuple(waits)
            return new
        type = _counterpart(op)
        record = op_registry.get(type)
        attrs = {k: op.attrs[k] for k in record.attrs if k in op.attrs}
        if "dtype" in record.attrs and "T" in op.attrs:
            attrs["dtype"] = op.attrs["T"]
        waits = self._waits(op)
        wants = op.opdef.input_dtypes(op.attrs)
        inputs = []
        for i, (t, want) in enumerate(zip(op.inputs, wants, strict=True)):
            if want.is_ref:
                handle, after = self.held[t]
                waits += after
                inputs.append(handle)
            else:
                inputs.append(self._value(op, i))
        new = self._add(type, op, inputs, attrs, waits)
        for i, t in enumerate(op.outputs):
            if t.dtype.is_ref:
                self.held[t] = inputs[0], (new,)
            else:
                self.editor.replace(t, new.outputs[i])
        return new

    def _add(
        self, type: str, op: Operation, inputs: list[Tensor], attrs: dict[str, object], waits: Sequence[Operation]
    ) -> Operation:
        name = self.graph.unique_name(op.name)
        waits = list(dict.fromkeys(waits))
        new = self.graph.add_op(type, name, inputs, attrs, waits, op.device, op.source, notes=op.notes)
        self.made[op] = new
        return new

    def _value(self, op: Operation, i: int) -> Tensor:
        """Returns input `i` of `op` as a value: a reference is read when `op` runs."""
        t = op.inputs[i]
        if t not in self.held:
            return t
        handle, after = self.held[t]
        others = [x.op for k, x in enumerate(op.inputs) if k != i and not x.dtype.is_ref]
        waits = [*after, *(self.made.get(x, x) for x in others), *self._waits(op)]
        name = self.graph.unique_name(f"{op.name}/read")
        attrs = {"dtype": t.dtype.base}
        waits = list(dict.fromkeys(waits))
        read = self.graph.add_op("ReadVariableOp", name, [handle], attrs, waits, handle.op.device, op.source)
        return read.outputs[0]

    def _read_inputs(self, op: Operation) -> None:
        """Gives an operation that stays the new operations as inputs and control inputs."""
        waits = self._waits(op)
        if op.type == "Identity" and op.inputs[0] in self.held:
            handle, after = self.held[op.inputs[0]]
            self.editor.become(op, "ReadVariableOp", [handle], {"dtype": op.outputs[0].dtype}, [*waits, *after])
            return
        for i, t in enumerate(op.inputs):
            if t in self.held:
                self.editor.set_input(op, i, self._value(op, i))
        if waits != op.control_inputs:
            self.editor.set_controls(op, list(dict.fromkeys(waits)))
