"""Initial values that read other variables, which may be uninitialized at that time.

In most programs one step initializes all variables, in no particular order. So if an initial value reads a variable,
its initializer gets a copy of the computation. The copy uses the initial value of the other variable while that
variable has no value.

Source: TensorFlow 1 does the same for `tf.Variable`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.api import scopes
from headrace.ir import walk

if TYPE_CHECKING:
    from headrace.ir.builder import Builder
    from headrace.ir.graph import Tensor

_READS = ("ReadVariableOp", "Identity")  # by handle, by reference


def guarded(value: Tensor, b: Builder) -> Tensor:
    """Returns `value`, or a copy by builder `b` that reads no uninitialized variable."""
    graph = b.graph
    if not value.op.inputs or not isinstance(graph, scopes.Graph):
        return value
    variables = {v.handle: v for v in graph.variables}
    instead: dict[Tensor, Tensor] = {}
    for op in walk.in_order(walk.reachable([value.op])):
        if op.type in _READS and op.inputs[0] in variables:
            with scopes.entered(b):
                instead[op.outputs[0]] = variables[op.inputs[0]].initialized_value()
        # operations that own graphs, and the operations of a loop, are not copied
        elif any(t in instead for t in op.inputs) and not op.opdef.structured and not op.opdef.primitive:
            name = graph.unique_name(b.scope + op.name.rpartition("/")[2])
            copy = graph.copy_op(op, [instead.get(t, t) for t in op.inputs], op.control_inputs, name)
            instead.update(zip(op.outputs, copy.outputs, strict=True))
    return instead.get(value, value)
