"""Joined steps: the host and one device in one graph, with explicit copies.

The partitioner cuts a step into a part for each device, and their executors exchange tokens. Where a device belongs
to this process and its kernels are called from Python, one thread can run both parts: the step then becomes one
function in which a kernel of the device is a call like any other. `join` prepares the graph of such a *joined step*:

* Each operation gets a note `OnDevice` if a kernel of the device computes it. The others run on the host.
* Each tensor has one *residence*, the host or the device. Where an operation reads a tensor of the other residence, a
  copy is inserted behind its producer: `_ToDevice` or `_ToHost`. An operation that reads shapes only takes both.
* A loop variable resides on the device if its next value is computed there, and an output of a conditional if a branch
  computes it there. Predicates, and small integers such as counters, axes and shapes, reside on the host, because
  kernels read them there. A copy would make the host wait for the device.
* Strings and handles are Python objects on the host.
* The residence of a list is that of its elements. Lists that share elements are a family with one residence
  (`list_families`). It is the device if an element that is put into one of the lists is computed there, or if only
  operations on the device read the elements.
* Copies of a far memory overlap with other work: they begin behind their producer (`_BeginToDevice`, `_BeginToHost`).
  The host waits for one at the last moment (`_EndToHost`), and a device by itself (`DeviceArray.array`).
  `schedule.regions` orders the operations accordingly, and `rotated_loops` begins the copy of a predicate in the
  iteration before.

The fixpoint of the residence of loop variables and lists starts from the host. It can only move variables and lists to
the device, so that it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from headrace import dtypes
from headrace.ir import walk
from headrace.ir.edit.editor import Editor
from headrace.ir.function import owned, owns_all, param_offset
from headrace.ir.graph import FuncGraph
from headrace.ir.kernel import CPU, find_kernel, host_inputs, memory_of
from headrace.ir.notes import OnDevice
from headrace.ir.order import is_constant
from headrace.partition.list_families import ListFamilies, element_inputs, element_outputs, is_list
from headrace.partition.rotated_loops import rotate_loops
from headrace.partition.shape_vectors import has_few, shape_vectors

if TYPE_CHECKING:
    from headrace.ir.device import DeviceSpec
    from headrace.ir.graph import Graph, Operation, Tensor

_STRUCTURES: Final = ("If", "Case", "While", "Call")


def join(graph: Graph, where: Mapping[Operation, str], device: DeviceSpec) -> bool:
    """Inserts the copies between the host and a device into a structured graph, in place.

    Args:
      graph: A private graph. Its structured operations own their graphs.
      where: The full name of the device of each operation that owns no graph, nested operations included.
      device: The device; other operations run on the host.

    Returns:
      Whether it could; False if an operation calls a function that it does not own, and the graph is unchanged.
    """
    joined = _Join(where, device)
    if not joined.suits(graph):
        return False
    joined.find_residence(graph)
    joined.insert(graph)
    if joined.is_far:
        rotate_loops(graph)
    return True


class _Join:
    def __init__(self, where: Mapping[Operation, str], device: DeviceSpec) -> None:
        self._device = device
        self._name = str(device)
        self._where = where
        self._on_device: set[Tensor] = set()  # apart from lists
        self._lists: ListFamilies
        self._vectors: frozenset[Tensor]
        self._variables: dict[Operation, list[bool]] = {}  # of loops, from which the rounds of outer loops go on
        self._copies: dict[Tensor, Tensor] = {}
        self.is_far = not memory_of(device).is_near

    def suits(self, graph: Graph) -> bool:
        """Whether all structured operations are of known kinds and own their graphs."""
        return all(
            not op.opdef.structured
            or (op.opdef.structured in _STRUCTURES and owns_all(op) and all(map(self.suits, owned(op))))
            for op in graph.operations
        )

    def computes(self, op: Operation) -> bool:
        """Whether the device computes an operation that owns no graph."""
        if op.opdef.facts.forwards is not None and op.opdef.is_pure:  # no kernel is called
            return self._is_there(op.inputs[0])
        if self._where.get(op) != self._name or op.type in ("_Arg", "_Retval") or _is_constant(op):
            return False
        tensors = (*op.inputs, *op.outputs)
        if op.opdef.is_pure and tensors and all(map(self._is_small, op.outputs)):
            is_light = op.opdef.facts.shape_only or all(map(self._is_small, op.inputs))
            if is_light and find_kernel(op) is not None:
                return False
        return find_kernel(op, self._device.type or CPU) is not None

    def _is_small(self, t: Tensor) -> bool:
        """Whether a tensor has few integers or bools, so that the host keeps it."""
        return has_few(t) or t in self._vectors

    # *** residence ***

    def find_residence(self, graph: Graph) -> None:
        """Determines the residence of the tensors of a step."""
        self._vectors = shape_vectors(graph)
        self._lists = lists = ListFamilies(graph)
        moved = -1
        while moved != lists.moved:
            moved = lists.moved
            self.flow(graph, [])
            if moved == lists.moved:
                for t, elements in lists.read:
                    if self._are_read_there(elements):
                        lists.move(t)

    def flow(self, graph: Graph, params: Sequence[bool]) -> list[bool]:
        """Determines the residence of the tensors of a graph.

        Args:
          graph: The graph.
          params: Whether each of its parameters resides on the device.

        Returns:
          The same of its results.
        """
        if isinstance(graph, FuncGraph):
            for t, is_there in zip(graph.params, params, strict=True):
                self._settle(t, is_there)
        for op in walk.in_order(graph.operations):
            kind = op.opdef.structured
            if kind == "While":
                found = self._loop(op)
            elif kind:
                inside = [self._is_there(t) for t in op.inputs[param_offset(op) :]]
                results = [self.flow(g, inside) for g in owned(op)]
                found = [any(r) for r in zip(*results, strict=True)]
            elif op.type == "_Arg":
                continue
            else:
                if any(self._is_there(op.inputs[i]) for i in element_inputs(op)):
                    self._lists.move(op.outputs[0])
                elements = self._elements(op)
                is_there = self.computes(op)
                of_refs = is_there or any(t.dtype.is_ref and self._is_there(t) for t in op.inputs)
                found = [
                    of_refs if t.dtype.is_ref else (is_there or t in elements) and _may_reside(t) for t in op.outputs
                ]
            for t, is_there in zip(op.outputs, found, strict=True):
                self._settle(t, is_there)
        return [self._is_there(t) for t in graph.results] if isinstance(graph, FuncGraph) else []

    def _loop(self, op: Operation) -> list[bool]:
        """Residence of the variables of a loop."""
        cond, body = op.attrs["cond"], op.attrs["body"]
        constant = [is_constant(body, k) for k in range(len(op.inputs))]
        there = self._variables.get(op) or [False] * len(constant)
        there = [v or (c and self._is_there(t)) for v, c, t in zip(there, constant, op.inputs, strict=True)]
        while True:
            results = self.flow(body, there)
            following = [t or (r and not c) for t, r, c in zip(there, results, constant, strict=True)]
            self.flow(cond, following)
            if following == there:  # a loop constant that only the device reads is copied before the loop
                following = [
                    t or (c and _may_reside(body.params[k]) and self._readers(op, k) == {True})
                    for k, (t, c) in enumerate(zip(there, constant, strict=True))
                ]
            if following == there:
                self._variables[op] = there
                return there
            there = following

    def _readers(self, op: Operation, k: int) -> set[bool]:
        """Whether the device reads input `k` of an operation, for each of its readers."""
        kind, facts = op.opdef.structured, op.opdef.facts
        if kind == "While":
            body, cond = op.attrs["body"], op.attrs["cond"]
            if not is_constant(body, k):
                return {self._is_there(body.params[k])}
            params = [body.params[k], cond.params[k]]
        elif kind:
            offset = param_offset(op)
            if k < offset:
                return {False}
            params = [g.params[k - offset] for g in owned(op)]
        elif facts.forwards == k and op.opdef.is_pure:
            params = [op.outputs[0]]
        else:
            if k in element_inputs(op):
                return {self._is_there(op.outputs[0])}
            there = self.computes(op)
            return set() if facts.shape_only and not there else {there and k not in host_inputs(op.opdef, op.attrs)}
        return self._readers_of(params)

    def _readers_of(self, tensors: Sequence[Tensor]) -> set[bool]:
        """Whether the device reads a tensor, for each reader of some tensors."""
        found: set[bool] = set()
        for t in tensors:
            for reader in t.op.graph.operations:
                for i, read in enumerate(reader.inputs):
                    if read is t:
                        found |= self._readers(reader, i)
        return found

    def _are_read_there(self, elements: Sequence[Tensor]) -> bool:
        """Whether only the device reads the elements of a list."""
        results = {t for x in elements if isinstance(x.op.graph, FuncGraph) for t in x.op.graph.results}
        return results.isdisjoint(elements) and self._readers_of(elements) == {True}

    def _elements(self, op: Operation) -> Sequence[Tensor]:
        """The outputs of an operation that are elements of a list on the device."""
        at = element_outputs(op)
        return [op.outputs[i] for i in at] if at and self._is_there(op.inputs[0]) else ()

    def _settle(self, t: Tensor, is_there: bool) -> None:
        if is_there:
            self._on_device.add(t)
        else:
            self._on_device.discard(t)

    def _is_there(self, t: Tensor) -> bool:
        return self._lists.is_there(t) if is_list(t) else t in self._on_device

    # *** copies ***

    def insert(self, graph: Graph) -> None:
        """Inserts copies and notes into a graph and those that its operations own."""
        edit = Editor(graph)
        for op in walk.in_order(graph.operations):
            kind, is_there = op.opdef.structured, False
            if kind:
                self._insert_into_structure(op, edit)
            elif op.type == "_Retval":
                self._give(edit, op, lambda i: False)
            elif op.type != "_Arg" and (op.opdef.facts.forwards is None or not op.opdef.is_pure):
                is_there = self.computes(op)
                if is_there or not op.opdef.facts.shape_only:
                    self._give(edit, op, self._wanted(op, is_there).__contains__)
                edit.set_device(op, self._name if is_there else "")
            elif op.type != "_Arg" and len(op.inputs) > 1:  # only its first input is forwarded
                self._give(edit, op, lambda i, first=op.inputs[0]: self._is_there(first))  # type: ignore[misc]
            self._note(edit, op, is_there)

    def _wanted(self, op: Operation, is_there: bool) -> Collection[int]:
        """The positions of the inputs that an operation takes from the device."""
        if is_there:
            host = host_inputs(op.opdef, op.attrs) or _numbers(op)
            return frozenset(range(len(op.inputs))) - host
        elements = element_inputs(op)
        return elements if elements and self._is_there(op.outputs[0]) else ()

    def _insert_into_structure(self, op: Operation, edit: Editor) -> None:
        for g in owned(op):
            self.insert(g)
        if op.opdef.structured == "While":
            cond, body = op.attrs["cond"], op.attrs["body"]
            there = [self._is_there(t) for t in body.params]
            self._give(edit, op, there.__getitem__)
            self._end(body, there)
            self._end(cond, [False] * len(cond.results))
            return
        offset = param_offset(op)
        inside = [self._is_there(t) for t in op.inputs]
        self._give(edit, op, lambda i: i >= offset and inside[i])
        for g in owned(op):
            self._end(g, [self._is_there(t) for t in op.outputs])

    def _end(self, graph: FuncGraph, wanted: Sequence[bool]) -> None:
        """Lets the results of a graph have the residence that its owner wants."""
        edit = Editor(graph)
        for k, is_there in enumerate(wanted):
            t = graph.results[k]
            if _may_reside(t) and self._is_there(t) is not is_there:
                edit.set_result(k, self._copy(edit, t))

    def _give(self, edit: Editor, op: Operation, wants: Callable[[int], bool]) -> None:
        """Lets the inputs of an operation have the residence that it wants.

        The value of a reference is on the device of its variable.
        """
        dtypes_wanted = op.opdef.input_dtypes(op.attrs) if any(t.dtype.is_ref for t in op.inputs) else ()
        for i, t in enumerate(op.inputs):
            if t.dtype.is_ref:
                is_copied = self._is_there(t) and not dtypes_wanted[i].is_ref and not wants(i)
            else:
                is_copied = _may_reside(t) and self._is_there(t) is not wants(i)
            if is_copied:
                edit.set_input(op, i, self._copy(edit, t))

    def _copy(self, edit: Editor, t: Tensor) -> Tensor:
        """Returns the copy of a tensor with the other residence."""
        found = self._copies.get(t)
        if found is not None:
            return found
        graph, is_there = t.op.graph, self._is_there(t)
        if _is_constant(t.op) and find_kernel(t.op, self._device.type or CPU) is not None:
            made = graph.copy_op(t.op, (), (), graph.unique_name(t.op.name))
        else:
            type = "ToHost" if is_there else "ToDevice"
            name = f"{t.op.name}/{'to_host' if is_there else 'to_device'}"
            if self.is_far:
                made = self._crossing(edit, f"_Begin{type}", f"{name}/begin" if is_there else name, t)
                if is_there:
                    self._settle(made.outputs[0], True)
                    self._note(edit, made, True)
                    made = self._crossing(edit, "_EndToHost", name, made.outputs[0])
            else:
                made = self._crossing(edit, f"_{type}", name, t)
        edit.extended(made)
        out = made.outputs[0]
        self._settle(out, not is_there)
        if not is_there:
            edit.set_device(made, self._name)
        self._note(edit, made, False)
        self._copies[t] = out
        return out

    def _crossing(self, edit: Editor, type: str, name: str, t: Tensor) -> Operation:
        """Appends an operation of a copy."""
        graph = t.op.graph
        attrs = {"T": t.dtype.base, "device": self._name}
        made = graph.add_op(type, graph.unique_name(name), [t], attrs, source=t.op.source)
        made.outputs[0].replace_static(t.static_shape, t.handle)
        edit.extended(made)
        return made

    def _note(self, edit: Editor, op: Operation, is_computed: bool) -> None:
        """Notes the outputs of an operation on the device, which may compute it without outputs."""
        there = tuple(k for k, t in enumerate(op.outputs) if self._is_there(t))
        if there or is_computed:
            edit.add_note(op, OnDevice(self._name, there))


def _is_constant(op: Operation) -> bool:
    """Whether an operation is a constant, of which the device may have a copy."""
    return op.type == "Const" and not op.control_inputs


def _numbers(op: Operation) -> frozenset[int]:
    """The positions of constant scalars among the inputs of a stateful operation."""
    if op.opdef.is_pure:
        return frozenset()
    return frozenset(i for i, t in enumerate(op.inputs) if _is_constant(t.op) and t.shape == ())


def _may_reside(t: Tensor) -> bool:
    """Whether a tensor may reside on a device: numbers or bools, and no reference."""
    return t.dtype not in dtypes.OBJECT and not t.dtype.is_ref
