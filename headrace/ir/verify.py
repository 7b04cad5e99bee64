"""Whether a graph is legal: what every stage may rely on, checked at the boundary between two stages.

A pass that leaves an illegal graph behind is found here, at once, instead of as a wrong result three stages later. The
error shows the operation with ten lines of the graph around it. Whether graphs are verified at all, and how often, is
the caller's business (`HEADRACE_VERIFY`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.errors import GraphError, HeadraceError
from headrace.ir import frames, walk
from headrace.ir.device import DeviceSpec
from headrace.ir.graph import Graph
from headrace.ir.opdef import REQUIRED, check_attr, op_registry
from headrace.ir.text import check_const, show_op

if TYPE_CHECKING:
    from headrace.ir.graph import Operation

_CONTEXT = 5  # lines shown before and after the operation that is wrong


def verify(graph: Graph | Sequence[Operation]) -> None:
    """Checks that a graph is legal. Linear in operations and edges.

    Checked are: op types and attributes against the registry, input and output dtypes, names, that edges join
    operations of the graph, that there are no cycles but loops, frames (`ir.frames`), device names.

    Args:
      graph: a graph, or operations of one; edges from operations of the graph that are not given count as legal then.

    Raises:
      GraphError: it is not; the text says what is wrong with which operation, and shows it among its neighbours.
      InvalidArgumentError, InternalError: its frames do not fit together (TensorFlow's classes for that).

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
    whole = isinstance(graph, Graph)
    ops = graph.operations if isinstance(graph, Graph) else graph
    names: set[str] = set()
    at = 0
    try:
        for at, op in enumerate(ops):
            _check_op(op, at if whole else None)
            if op.name in names:
                raise GraphError(f"two operations are called '{op.name}'")
            names.add(op.name)
    except HeadraceError as e:
        e.add_note(_around(ops, at))
        raise
    # The order first: the frames of a graph with a cycle are not defined.
    walk.toposort(ops)
    frames.derive(ops)


def _check_op(op: Operation, at: int | None) -> None:
    """What can be said of one operation. `at`: its place in the graph, if the whole graph is verified."""
    record = op_registry.find(op.type)
    if record is not op.opdef:
        raise GraphError(f"the record of '{op.name}' is not the one registered for its type {op.type!r}")
    for name, spec in record.attrs.items():
        if name not in op.attrs:
            missing = "" if spec.default is REQUIRED else " (though it has a default, it must be written out)"
            raise GraphError(f"operation '{op.name}' has no attribute {name!r}, which {op.type} declares{missing}")
        check_attr(op.type, name, spec, op.attrs[name])
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


def _show(ds: Sequence[object]) -> str:
    return "(" + ", ".join(map(str, ds)) + ")"


def _around(ops: Sequence[Operation], at: int) -> str:
    """The lines of the graph around operation `at`, which an arrow marks."""
    first = max(0, at - _CONTEXT)
    lines = ["in the graph:"]
    for i, op in enumerate(ops[first : at + _CONTEXT + 1], first):
        try:
            text = show_op(op)
        except Exception as e:  # it is illegal, after all
            text = f"{op!r} ({e})"
        lines.append(("--> " if i == at else "    ") + text)
    return "\n".join(lines)
