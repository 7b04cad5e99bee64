"""Resources of a loaded SavedModel: tables and other objects that an operation makes.

The operation runs once, outside of graphs, without its shared name. So the resource belongs to the loaded object and
not to the step that made it, and every function of the model receives its handle.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from headrace import dtypes
from headrace.api import scopes
from headrace.errors import GraphError
from headrace.ir import walk
from headrace.ir.attr_values import Func
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.saved_model.traces import handle_of

_SHARING: Final = ("shared_name", "container", "use_node_name_sharing")
_MOST_CALLS: Final = 50  # inside of a function that creates a resource


def make_resource(op: Operation, inputs: list[Any], made_by: dict[int, Any] | None = None) -> Any:
    """Runs an operation outside of graphs; a resource that it makes has no name.

    Args:
      op: the operation.
      inputs: the eager tensors in place of its inputs.
      made_by: receives the type, inputs and attributes of the operation, by the resources that it makes; or None.

    Returns:
      The results, a list of eager tensors.
    """
    eager = scopes.runtime().eager
    if op.type == "Const":
        return [eager.const(op.attrs["value"], op.outputs[0].dtype.base)]
    given = {k: v for k, v in op.attrs.items() if not k.startswith("_") and k not in _SHARING}
    args: list[Any] = []
    for spec, span in zip(op.opdef.ins, op.opdef.spans(op.attrs).values(), strict=True):
        args.append(inputs[span.start : span.stop] if spec.is_list else inputs[span.start])
    made = eager.make(op.type, args, given, op.name)
    results = list(made) if isinstance(made, tuple) else [] if made is None else [made]
    for x in results:
        if made_by is not None and x.dtype.base is dtypes.resource:
            made_by.setdefault(handle_of(x), (op.type, args, given))  # an Identity is no new resource
    return results


def run_function(
    graph: FuncGraph, home: Graph, made_by: dict[int, Any], calls: Iterator[int] | None = None
) -> list[Any]:
    """Runs a function without arguments outside of graphs, operation by operation.

    Args:
      graph: the function.
      home: the graph with the library.
      made_by: see `make_resource`.
      calls: the calls that are left to the functions that it calls; None: `_MOST_CALLS`.

    Returns:
      The results, eager tensors.

    Raises:
      GraphError: the function has arguments, or makes too many calls, as a recursive one does.
    """
    calls = iter(range(_MOST_CALLS)) if calls is None else calls
    values: dict[Tensor, Any] = {}
    for op in walk.in_order(walk.reachable([t.op for t in graph.results])):
        f = op.attrs.get("f")
        if op.type == "_Arg":
            raise GraphError(f"{graph.title}, which creates a resource, has the argument '{op.name}'")
        if op.opdef.structured == "Call" and isinstance(f, Func) and not op.inputs:
            if next(calls, None) is None:
                raise GraphError(f"{graph.title}, which creates a resource, makes more than {_MOST_CALLS} calls")
            made = run_function(home.function(f.name), home, made_by, calls)
        else:
            made = make_resource(op, [values[t] for t in op.inputs], made_by)
        values.update(zip(op.outputs, made, strict=True))
    return [values[t] for t in graph.results]
