"""Verification of graphs at the boundary between two stages.

An illegal graph is found directly behind the pass that left it, instead of as a wrong result three stages later. The
error shows the operation with ten lines of the graph around it. The caller decides whether and how often graphs are
verified (`HEADRACE_VERIFY`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import GraphError, HeadraceError, InvalidArgumentError, NotFoundError
from headrace.ir.analysis import frames
from headrace.ir.analysis.graph_size import deepens_recursion
from headrace.ir.analysis.signature_check import interface
from headrace.ir.attr_values import REQUIRED, check_attr, check_const, check_is_data
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import FuncGraph, Graph
from headrace.ir.opdef import op_registry
from headrace.ir.text import show_op

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

_CONTEXT = 5  # lines shown before and after the illegal operation


@deepens_recursion
def verify(graph: Graph | Sequence[Operation]) -> None:
    """Checks that a graph is legal. The time is linear in operations and edges.

    The checks cover op types and attributes, compared with the registry; input and output dtypes; names; device names;
    that edges join operations of the graph; that all cycles are loops; frames (`ir.analysis.frames`); that owned graphs
    are legal and fit their owners; and that called functions exist.

    Args:
      graph: a graph, or operations of a graph; in the latter case edges from other operations of the graph count as
        legal.

    Raises:
      GraphError: the graph is illegal; the text names the operation and the fault, and shows the operation among its
        neighbours.
      InvalidArgumentError, InternalError: the frames do not fit together, or a graph does not fit the operation that
        owns it (TensorFlow's classes for these faults).
      NotFoundError: a called function does not exist.

    Example:
      >>> from headrace.ir import text
      >>> g = text.from_text("x = Placeholder[dtype=float32]")
      >>> verify(g)
      >>> g.operations[0].device = "/gnu:0"
      >>> verify(g)
      Traceback (most recent call last):
      ...
      headrace.errors.GraphError: Unknown attribute 'gnu' is encountered while parsing the device spec: ...
    """
    _verify(graph, {})


def _verify(graph: Graph | Sequence[Operation], owners: dict[FuncGraph, str]) -> None:
    """Implements `verify`; `owners` describes the owner of each graph found so far."""
    whole = isinstance(graph, Graph)
    ops = graph.operations if isinstance(graph, Graph) else graph
    names: set[str] = set()
    at = 0
    try:
        if isinstance(graph, Graph):
            for name, function in graph.functions.items():
                _enter(function, f"the function {name!r}", owners)
        if isinstance(graph, FuncGraph):
            _check_ends(graph)
        for at, op in enumerate(ops):
            _check_op(op, at if whole else None)
            if op.name in names:
                raise GraphError(f"two operations are called '{op.name}'")
            names.add(op.name)
            if op.opdef.structured:
                _check_graphs(op, owners)
    except HeadraceError as e:
        if not getattr(e, "__notes__", None):  # else the fault is in an owned graph, which the notes show
            e.add_note(_around(ops, at))
        raise
    frames.derive(ops)  # finds cycles, too


def _check_op(op: Operation, at: int | None) -> None:
    """Checks one operation. `at` is its position if the whole graph is verified, else None."""
    record = op_registry.find(op.type)
    if record is not op.opdef:
        raise GraphError(f"the record of '{op.name}' is not the one registered for its type {op.type!r}")
    for name, spec in record.attrs.items():
        if name not in op.attrs:
            missing = "" if spec.default is REQUIRED else " (though it has a default, it must be written out)"
            raise GraphError(f"operation '{op.name}' has no attribute {name!r}, which {op.type} declares{missing}")
        check_attr(op.type, name, spec, op.attrs[name])
    for name in op.attrs:
        try:
            check_is_data(name, op.attrs[name])
        except GraphError as e:
            raise GraphError(f"operation '{op.name}' ({op.type}): {e}") from None
    check_const(op.type, op.attrs)
    record.check_inputs(op.attrs, [t.dtype for t in op.inputs])
    made = [t.dtype for t in op.outputs]
    want = record.output_dtypes(op.attrs)
    if made != want:
        raise GraphError(
            f"the outputs of '{op.name}' are {_show(made)}, but its attributes say that {op.type} makes {_show(want)}"
        )
    _check_edges(op)
    if at is not None and (op.id != at or op.graph.find(op.name) is not op):
        raise GraphError(f"operation '{op.name}' is number {op.id} by its own account but stands at {at} in its graph")
    if op.device:
        DeviceSpec.from_string(op.device)


def _check_edges(op: Operation) -> None:
    graph = op.graph
    for i, t in enumerate(op.inputs):
        if t.op.graph is not graph or graph.find(t.op.name) is not t.op:
            raise GraphError(f"input {i} of '{op.name}' is {t.name}, which is not in its graph")
        if t.index >= len(t.op.outputs) or t.op.outputs[t.index] is not t:
            raise GraphError(f"input {i} of '{op.name}' is {t.name}, which '{t.op.name}' does not have as an output")
    for c in op.control_inputs:
        if c.graph is not graph or graph.find(c.name) is not c:
            raise GraphError(f"the control input '^{c.name}' of '{op.name}' is not in its graph")


# *** graphs that operations own or call ***


def _check_graphs(op: Operation, owners: dict[FuncGraph, str]) -> None:
    """Checks the functions and graphs in the attributes of `op`, and that they fit `op`."""
    for name, spec in op.opdef.attrs.items():
        if spec.kind != "func":
            continue
        value = op.attrs[name]
        for i, f in enumerate(value if spec.is_list else (value,)):
            path = f"{name}.{i}" if spec.is_list else name
            where = f"attribute {path!r} of '{op.name}' ({op.type})"
            if isinstance(f, FuncGraph):
                _check_fit(op, path, f)
                _enter(f, where, owners)
            elif not _exists(op.graph, f.name):
                raise NotFoundError(f"{where} calls the function {f.name!r}, which is not in the library", op.name, op)


def _enter(graph: FuncGraph, where: str, owners: dict[FuncGraph, str]) -> None:
    if graph in owners:
        raise GraphError(f"{where} is {graph.title}, which {owners[graph]} is already; a graph has one owner")
    owners[graph] = where
    try:
        _verify(graph, owners)
    except HeadraceError as e:
        e.add_note(f"in {graph.title}, {where}")
        raise


def _exists(graph: Graph, name: str) -> bool:
    around: Graph | None = graph
    while around is not None and name not in around.functions and name not in around.library:
        around = around.outer
    return around is not None


def _check_fit(op: Operation, path: str, graph: FuncGraph) -> None:
    """Checks that parameters and results of a graph agree with its owner's inputs and outputs."""
    takes, gives = interface(op, path)
    of = f"{graph.title}, the attribute {path!r} of '{op.name}' ({op.type}),"
    has = [t.dtype for t in graph.params]
    if has != takes:
        raise InvalidArgumentError(f"{of} takes {_show(has)}, but is passed {_show(takes)}", op.name, op)
    made = [t.dtype for t in graph.results]
    if gives is None and len(made) != 1:
        raise InvalidArgumentError(f"{of} gives {_show(made)}, but a condition gives one value", op.name, op)
    if gives is not None and made != gives:
        raise InvalidArgumentError(f"{of} gives {_show(made)}, but must give {_show(gives)}", op.name, op)


def _check_ends(graph: FuncGraph) -> None:
    """Checks the parameters and results of an owned graph."""
    for i, t in enumerate(graph.params):
        op = t.op
        if op.graph is not graph or graph.find(op.name) is not op or op.type != "_Arg" or t is not op.outputs[0]:
            raise GraphError(f"parameter {i} of {graph.title} is {t.name}, which is no _Arg of it")
        if op.attrs["index"] != i:
            raise GraphError(f"parameter {i} of {graph.title}, '{op.name}', says that it is number {op.attrs['index']}")
    params = {t.op for t in graph.params}
    if len(params) < len(graph.params):
        raise GraphError(f"two parameters of {graph.title} are the same operation")
    for op in graph.operations:
        if op.type == "_Arg" and op not in params:
            raise GraphError(f"'{op.name}' is an _Arg, but no parameter of {graph.title}")
    for what, ops in (("result", [t.op for t in graph.results]), ("control result", graph.control_results)):
        for i, op in enumerate(ops):
            if op.graph is not graph or graph.find(op.name) is not op:
                raise GraphError(f"{what} {i} of {graph.title} is of '{op.name}', which is not in it")


def _show(ds: Sequence[object]) -> str:
    return "(" + ", ".join(map(str, ds)) + ")"


def _around(ops: Sequence[Operation], at: int) -> str:
    """Returns the lines of the graph around operation `at`, which an arrow marks."""
    first = max(0, at - _CONTEXT)
    lines = ["in the graph:"]
    for i, op in enumerate(ops[first : at + _CONTEXT + 1], first):
        try:
            text = show_op(op)
        except Exception as e:  # possible because the operation is illegal
            text = f"{op!r} ({e})"
        lines.append(("--> " if i == at else "    ") + text)
    return "\n".join(lines)
