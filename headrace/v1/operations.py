"""Members of operations in TensorFlow 1: their messages and tracebacks; operations made by type."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import pb
from headrace.api import scopes
from headrace.errors import GraphError, NotFoundError
from headrace.interchange import op_defs
from headrace.ir.graph import Operation, Tensor
from headrace.ir.opdef import ArgSpec, OpDef, op_registry
from headrace.ir.serial.attrs import decode_attr
from headrace.ir.serial.nodedefs import show_tensor, write_node


def node_def(op: Operation) -> pb.NodeDef:
    """Returns the `NodeDef` message of an operation."""
    out = pb.NodeDef()
    write_node(out, op, show_tensor, lambda function: str(function.name))
    return out


def op_def(op: Operation) -> pb.OpDef:
    """Returns the definition of the type of an operation, an `OpDef` message."""
    return op_defs.op_def(op.opdef)


def source_lines(op: Operation) -> traceback.StackSummary:
    """Returns the user's line that created an operation, as a stack of one frame.

    A frame is also a tuple (file, line, function, text of the line).
    """
    source = op.source
    frames = [] if source is None else [(source.file, source.line, source.function, None)]
    return traceback.StackSummary.from_list(frames)


def definition(type: str) -> pb.OpDef:
    """Returns the definition of an op type, an `OpDef` message.

    Raises:
      NotFoundError: the type is not registered.
    """
    return op_defs.op_def(_record(type))


def created(type: str, inputs: Sequence[Tensor], name: str | None, attrs: Mapping[str, Any]) -> Operation:
    """Creates an operation in the current graph; see `headrace.v1.Graph.create_op`."""
    record = _record(type)
    given = {}
    for key, value in attrs.items():
        message = value if isinstance(value, pb.AttrValue) else pb.AttrValue.FromString(value.SerializeToString())
        given[key] = decode_attr(message, record.attrs.get(key))
    args: list[Any] = []
    rest = list(inputs)
    for arg in record.ins:
        n = 1 if not arg.is_list else _number(arg, given)
        n = len(rest) if n is None and arg is record.ins[-1] else n
        if n is None or n > len(rest):
            raise GraphError(f"{type} has the inputs {', '.join(a.name for a in record.ins)}; got {list(inputs)}")
        args.append(rest[:n] if arg.is_list else rest[0])
        del rest[:n]
    if rest:
        raise GraphError(f"{type} has the inputs {', '.join(a.name for a in record.ins)}; got {list(inputs)}")
    numbers = {a.number_attr for a in record.ins} | {a.type_list_attr for a in record.ins}  # `args` has them
    stated = {k: v for k, v in given.items() if k not in numbers}
    made = scopes.builder(*inputs).make(type, args, stated, name)
    if isinstance(made, Operation):
        return made
    op: Operation = (made[0] if isinstance(made, (tuple, list)) else made).op
    return op


def _number(arg: ArgSpec, attrs: Mapping[str, Any]) -> int | None:
    """Returns the number of tensors that attributes state for a list argument, or None."""
    if arg.number_attr is not None:
        return attrs.get(arg.number_attr)
    dtypes = attrs.get(arg.type_list_attr or "")
    return None if dtypes is None else len(dtypes)


def _record(type: str) -> OpDef:
    try:
        return op_registry.get(type)
    except LookupError as e:
        raise NotFoundError(f"Op type not registered '{type}': {e}") from e.__cause__
