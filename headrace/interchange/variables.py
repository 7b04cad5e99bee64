"""Variables as `VariableDef` messages: the names of a variable's operations and tensors.

Source: TensorFlow's `tf.Variable.to_proto` and `from_proto`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace import pb
from headrace.api.partitioned import SLICE
from headrace.api.reference import ReferenceVariable
from headrace.api.variable import Variable
from headrace.errors import GraphError
from headrace.interchange.files import read_message
from headrace.ir.graph import Operation, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS: Sequence[type[Variable]] = (Variable, ReferenceVariable)  # resource variables, and references


def encode_variable(v: Variable, form: str = "structured") -> pb.VariableDef:
    """Returns the message of `v`: the names of its operations and tensors.

    Args:
      v: the variable.
      form: the form of the `GraphDef` with the names; see `Graph.as_graph_def`.
    """
    out = pb.VariableDef(
        variable_name=_name(v.handle),
        initializer_name=v.initializer.name,
        initial_value_name=_name(v.initial_value) if form == "structured" else v.initial_value.name,
        snapshot_name=_name(v.graph_element),
        is_resource=not isinstance(v, ReferenceVariable),
        trainable=v.trainable,
        synchronization=vars(v).get("_synchronization", 0),
        aggregation=vars(v).get("_aggregation", 0),
    )
    kept = getattr(v, SLICE, None)
    if kept is not None:
        out.save_slice_info_def.CopyFrom(kept)
    return out


def decode_variable(
    given: Any, find: Callable[[str], Tensor | Operation], kinds: Sequence[type[Variable]] = KINDS
) -> Variable:
    """Returns the variable that a `VariableDef` describes.

    Args:
      given: the message, headrace's or TensorFlow's, or its bytes.
      find: returns the tensor ("x:0") or operation ("x") of a name.
      kinds: the classes of resource variables and of references.

    Raises:
      GraphError: the message is no `VariableDef`, or its names do not form a variable; or an error of `find`.
    """
    proto = read_message(pb.VariableDef, given)
    handle = _tensor(proto.variable_name, find)
    initializer = find(proto.initializer_name)
    if not isinstance(initializer, Operation):
        raise GraphError(f"the initializer '{proto.initializer_name}' is no operation")
    initial = _tensor(proto.initial_value_name, find) if proto.initial_value_name else None
    element = proto.snapshot_name or f"{proto.variable_name.rpartition(':')[0]}/Read/ReadVariableOp:0"
    v: Variable = kinds[not proto.is_resource].of_operations(
        handle, initializer, _tensor(element, find), initial, proto.trainable
    )
    vars(v).update(_synchronization=proto.synchronization, _aggregation=proto.aggregation)
    if proto.HasField("save_slice_info_def"):
        info = proto.save_slice_info_def
        if info.full_name:  # the whole variable is in the scope of the import, as its part is
            info.full_name = handle.op.name.removesuffix(proto.variable_name.rpartition(":")[0]) + info.full_name
        vars(v)[SLICE] = info
    return v


def _tensor(name: str, find: Callable[[str], Tensor | Operation]) -> Tensor:
    found = find(name)
    if not isinstance(found, Tensor):
        raise GraphError(f"'{name}' names an operation, not a tensor (as '{name}:0' would)")
    return found


def _name(t: Tensor) -> str:
    return f"{t.op.name}:{t.index}"
