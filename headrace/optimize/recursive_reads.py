"""Reads variables before the outermost call of a recursive function.

    def f(n, h): return h if n < 1 else f(n - 1, h * v.read())
    f(n, h)

becomes

    def f(n, h, x): return h if n < 1 else f(n - 1, h * x, x)
    f(n, h, read v if needed (not n < 1))

A function that calls itself stays in the library, and each of its calls would read the variable. Machine code has no
reads, so the recursion would stay in Python. The value takes the place of the handle among the parameters.

The read can fail, because the variable may have no value, and then the outermost call must not read it in vain. So the
reads are in the function itself, or together with all of its calls of itself in one branch of a conditional of the
function. The outermost call then reads the variable if it takes this branch, and otherwise no call does. The results of
the function, and of the branch, depend on a read.

The function writes no state and waits for nothing, passes the handle on unchanged, and uses it in no other way. All
other calls of the function are in the graph of the step. In lowered form, which computes each result by itself, and
where reads cost no more than parameters, they stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace import dtypes, shapes
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.edit.copying import copied, copy_into
from headrace.ir.edit.editor import Editor
from headrace.ir.edit.replace_params import add_param_at, remove_param
from headrace.ir.function import called_names, nested_operations, owned, param_offset, recursive_functions
from headrace.ir.graph import FuncGraph
from headrace.optimize.base import Pass, PassContext
from headrace.optimize.queries import is_silent, other_device
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class ReadBeforeRecursion(Pass):
    """Pass that reads variables before recursive calls."""

    name = "recursive_reads"
    whole = True
    grows = True

    def call(self, graph: Graph, context: PassContext) -> bool:
        if context.options.is_lowered or not any(called_names(op) for op in nested_operations(graph.operations)):
            return False
        changed = False
        for name in sorted(recursive_functions(graph.operations)):
            function, calls = _calls(graph, name)
            if function is None or (why := _why_not(function)):
                if function is not None and _handles(function):
                    context.refused(self.name, calls[0], f"{name!r} {why}")
                continue
            found = {k: needs for k in _handles(function) if (needs := _needs(function, k)) is not None}
            if not found:
                continue
            mine = copied(function, graph)
            graph.functions = {**graph.functions, name: mine}
            for call in calls:
                _read(call, function, found)
            for k, needs in found.items():
                _take_values(mine, k, needs.read, name)
            context.fired(self.name, calls[0], f"{len(found)} variables are read before the calls of {name!r}")
            changed = True
        return changed


@record(frozen=True, slots=True)
class _Needs:
    """Condition under which the outermost call of a function reads a variable.

    Attributes:
      read: one of the reads.
      branching: the conditional with the reads and all calls; None if each call reads it.
      is_then: whether they are in its first branch.
    """

    read: Operation
    branching: Operation | None = None
    is_then: bool = False


def _calls(graph: Graph, name: str) -> tuple[FuncGraph | None, list[Operation]]:
    """Returns a function that only itself and the step call, or None, and the calls."""
    calls = [op for op in nested_operations(graph.operations) if name in called_names(op)]
    if not calls or any(op.opdef.structured != "Call" for op in calls):
        return None, calls
    function = calls[0].graph.function(name)
    inside = {*nested_operations(graph.operations), *nested_operations(function.operations)}
    for op in nested_operations(graph.operations, calls=True):
        if name in called_names(op) and (op not in inside or op.opdef.structured != "Call"):
            return None, calls
    return function, calls


def _handles(function: FuncGraph) -> list[int]:
    """Positions of the parameters that are handles."""
    return [k for k, p in enumerate(function.params) if p.dtype is dtypes.resource]


def _why_not(function: FuncGraph) -> str:
    """Reason why no variable can be read before the calls of a function, or ""."""
    ops = list(nested_operations(function.operations, calls=True))
    for op in ops:
        facts = op.opdef.facts
        if facts.writes or facts.waits or facts.blocking or op.opdef.primitive not in ("", "ControlTrigger"):
            return f"has the effects of '{op.name}' ({op.type})"
    return other_device(ops)


def _needs(function: FuncGraph, k: int) -> _Needs | None:
    """Returns when the outermost call reads the variable of parameter `k`, or None."""
    reads: list[Operation] = []
    if not _finds(function, function.params[k], k, function.name, reads):
        return None
    if not reads:
        return None
    value = reads[0].outputs[0]
    if value.dtype.base in dtypes.OBJECT or not shapes.is_full(value.shape):
        return None
    if _are_reached(function, [read for read in reads if read.graph is function]):
        return _Needs(reads[0])
    calls = [op for op in nested_operations(function.operations) if function.name in called_names(op)]
    for op in function.operations:
        if op.opdef.structured != "If" or not _are_reached(function, [op]) or not _is_known(op.inputs[0]):
            continue
        for is_then, branch in ((True, op.attrs["then_branch"]), (False, op.attrs["else_branch"])):
            inside = set(nested_operations(branch.operations)) if isinstance(branch, FuncGraph) else set()
            direct = [read for read in reads if read.graph is branch]
            if inside.issuperset((*reads, *calls)) and _are_reached(branch, direct):
                return _Needs(direct[0], op, is_then)
    return None


def _finds(graph: FuncGraph, handle: Tensor, k: int, name: str, reads: list[Operation]) -> bool:
    """Finds the reads of a variable; returns whether its handle has no other use.

    Args:
      graph: a function, or a branch in it.
      handle: the parameter of `graph`.
      k: the position of the parameter of the function.
      name: the name of the function.
      reads: the list to which the reads are added.
    """
    if handle in graph.results:
        return False
    for op in graph.operations:
        for i, t in enumerate(op.inputs):
            if t is not handle:
                continue
            if op.type == "ReadVariableOp":
                waits = any(called_names(c) != [name] for c in op.control_inputs)  # its calls write nothing
                if waits or "_class" in op.attrs or op in graph.control_results:
                    return False
                reads.append(op)
            elif op.opdef.structured == "If" and i > 0 and len(owned(op)) == 2:
                for branch in owned(op):
                    if not _finds(branch, branch.params[i - param_offset(op)], k, name, reads):
                        return False
            elif called_names(op) != [name] or i != k:
                return False
        if called_names(op) == [name] and op.inputs[k] is not handle:
            return False
    return True


def _are_reached(graph: FuncGraph, some: Iterable[Operation]) -> bool:
    """Whether the results of `graph` depend on one of `some`."""
    return not walk.reachable([t.op for t in graph.results]).isdisjoint(some)


def _maker(t: Tensor) -> list[Operation]:
    return walk.in_order({op for op in walk.reachable([t.op]) if op.type != "_Arg"})


def _is_known(pred: Tensor) -> bool:
    """Whether a predicate is pure and cannot fail, as a copy of it must."""
    if pred.shape != () or pred.dtype.base is not dtypes.bool_:
        return False
    return all(is_silent(op) and not op.control_inputs and "_class" not in op.attrs for op in _maker(pred))


def _read(call: Operation, function: FuncGraph, found: Mapping[int, _Needs]) -> None:
    """Makes a call from outside pass values of variables in place of their handles."""
    moved = dict(zip(function.params, call.inputs, strict=True))
    inputs = list(call.inputs)
    made: dict[Tensor, Tensor] = {}
    for k, needs in found.items():
        read = needs.read
        b = Builder(call.graph, device=read.device, source=read.source, control_inputs=tuple(call.control_inputs))
        dtype, shape = read.attrs["dtype"], read.outputs[0].shape
        if needs.branching is None:
            inputs[k] = b.ReadVariableOp(call.inputs[k], dtype=dtype, name=read.name)
            continue
        pred = needs.branching.inputs[0]
        if pred not in moved:
            copy_into(call.graph, [op for op in _maker(pred) if op.outputs[0] not in moved], moved)
        is_needed = moved[pred]
        if not needs.is_then:
            if pred not in made:
                made[pred] = b.LogicalNot(is_needed)
            is_needed = made[pred]
        inputs[k] = b._ReadVariableIfNeeded(call.inputs[k], is_needed, dtype=dtype, shape=shape, name=read.name)
    _pass(call, inputs)


def _take_values(graph: FuncGraph, k: int, read: Operation, name: str) -> None:
    """Replaces parameter `k`, the handle of a variable, by its value."""
    handle = graph.params[k]
    value = add_param_at(graph, k, read.attrs["dtype"], read.outputs[0].shape)
    edit = Editor(graph)
    for op in list(graph.operations):
        if handle not in op.inputs:
            continue
        if op.type == "ReadVariableOp":
            edit.replace(op.outputs[0], value)
            edit.replace_control(op, ())
            edit.remove([op])
            continue
        if op.opdef.structured == "If":
            for i in [i for i, t in enumerate(op.inputs) if t is handle]:
                for branch in owned(op):
                    _take_values(branch, i - param_offset(op), read, name)
        _pass(op, [value if t is handle else t for t in op.inputs])
    remove_param(graph, k + 1)


def _pass(op: Operation, inputs: list[Tensor]) -> None:
    """Makes `op` pass other inputs to its graphs, which take them already."""
    attrs = {**op.attrs, "Tin": tuple(t.dtype.base for t in inputs[param_offset(op) :])}
    edit, notes = Editor(op.graph), op.notes
    edit.become(op, op.type, inputs, attrs, op.control_inputs)
    for note in notes:
        edit.add_note(op, note)
