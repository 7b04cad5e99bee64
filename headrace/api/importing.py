"""`import_graph_def` for the current graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import tracebacks
from headrace.api.scopes import builder, current_graph
from headrace.ir import source
from headrace.ir.builder import Builder
from headrace.ir.device import DeviceSpec
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import Graph, Operation, Tensor


@tracebacks.entry
def import_graph_def(
    graph_def: Any,
    name: str = "",
    input_map: Mapping[str, Any] | None = None,
    return_elements: Sequence[str] | None = None,
    *,
    graph: Graph | None = None,
    producer_op_list: Any = None,
) -> list[Tensor | Operation] | None:
    """Adds the nodes of a `GraphDef` to a graph, optionally with a prefix.

    Args:
      graph_def: a serialized `GraphDef` (`bytes`), its text form (`str`), or a `GraphDef` message, headrace's or
        TensorFlow's.
      name: the prefix of the nodes' names; "" for none.
      input_map: tensor name in the GraphDef → its replacement: a tensor of the graph, a variable, or a value that
        becomes a constant. The result of a conditional or loop may have its name in TensorFlow 1's primitive form
        ("cond/Merge:0", "while/Exit_1:0"), here and in `return_elements`.
      return_elements: the names of tensors and operations of the GraphDef to return.
      graph: the graph to add to; None: the current graph (`with hr.Graph()`).
      producer_op_list: the op definitions of the GraphDef's producer (an `OpList` message or its bytes). Attributes
        that headrace's ops do not have are dropped if they have the producer's default value; others are an error.
        Without it, such attributes have no effect, and a warning names them.

    Returns:
      The `return_elements`, or None.

    Raises:
      GraphError (a ValueError): the GraphDef is malformed; the graph is unchanged.
      NotFoundError: it has an op type that headrace does not know.

    Source: TensorFlow's `tf.import_graph_def`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     y, = hr.import_graph_def('node { name: "y" op: "NoOp" }', return_elements=["y"])
      >>> y
      <Operation 'y' type=NoOp>
    """
    from headrace.ir.serial import graphdef  # protobuf takes long to import, and not every program needs it

    into = graph if graph is not None else current_graph()
    if into is None:
        raise ValueError(
            "no graph to import into: call import_graph_def inside `with hr.Graph() as g:`, or give graph="
        )
    b = builder()
    here = b if isinstance(b, Builder) and b.graph is into else Builder(into)
    where = source.here()
    mapped = _tensors(dataclasses.replace(here, scope=f"{name.rstrip('/')}/_inputs/" if name else ""), input_map)
    before = len(into)
    found = graphdef.import_graph_def(
        graph_def, into, name, mapped, return_elements, source=where, producer_op_list=producer_op_list
    )
    added = into.operations[before:]
    _settle(here, added)
    if into.separates_imports and added:
        _separate(added)
    return found


def _tensors(b: Builder, input_map: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the values of an input map as tensors, and operations unchanged (control inputs).

    Raises:
      TypeError: `input_map` is not a mapping.
      ValueError: a value is None.
    """
    if input_map is None:
        return {}
    if not isinstance(input_map, Mapping):
        raise TypeError(f"input_map must be a dictionary from names to tensors, got {input_map!r}")
    if any(value is None for value in input_map.values()):
        raise ValueError(
            f"None values not supported: input_map[{next(k for k, v in input_map.items() if v is None)!r}]"
        )
    return {k: v if isinstance(v, (Tensor, Operation)) else b.tensor(v, None, "Const") for k, v in input_map.items()}


def _separate(ops: Sequence[Operation]) -> None:
    """Gives imported variables under a prefix separate resources.

    A variable whose shared name is its name without the prefix gets its full name as shared name.
    """
    for op in ops:
        name = op.attrs.get("shared_name") if op.type == "VarHandleOp" else None
        if name and op.name != name and op.name.endswith(f"/{name}"):
            Editor(op.graph).set_attr(op, "shared_name", op.name)


def _settle(b: Builder, ops: Sequence[Operation]) -> None:
    """Adds the control inputs, devices and colocation of the current scope to imported operations.

    The device of an operation overrides that of the scope. An operation that is colocated with another one requests the
    device of that operation.
    """
    controls = [c for c in map(b.graph.capture_control, b.control_inputs) if c is not None]
    outer = DeviceSpec.from_string(b.device)
    edit = Editor(b.graph)
    for op in ops:
        for c in controls:
            b.graph.add_control_input(op, c)
        if b.colocate:
            edit.set_attr(op, "_class", tuple(f"loc:@{name}" for name in b.colocate))
        if "_class" in op.attrs:
            continue
        if b.device:
            edit.set_device(op, outer.merge(DeviceSpec.from_string(op.device)).to_string())
        if b.device_function is not None:
            edit.set_device(op, b.device_function(op))
    for op in ops:
        names = [text.removeprefix("loc:@") for text in op.attrs.get("_class", ())]
        beside = [other for other in map(b.graph.find, names) if other is not None and other is not op]
        device = next((other.device for other in beside if other.device), "")
        if device:
            edit.set_device(op, device)
