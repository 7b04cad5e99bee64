"""How an `If`, `While` or call shrinks: inputs, variables and results go, and the rest moves up.

The counterpart of `ir.edit.add_values`. A user's operation only grows, since others know its outputs by their numbers;
here it is the operations of private graphs (`ir.edit.editor`) that lose what nothing reads. The tensors that stay are
the same objects as before, under new numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.ir.function import owned, param_offset

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Operation, Tensor

V = TypeVar("V")


def remove_all_but(op: Operation, inputs: Collection[int], outputs: Collection[int]) -> None:
    """Leaves `op` the given inputs and outputs, and its graphs the parameters and results that stand for them.

    For a caller that shrinks all operations of a step at once: nothing is checked, and the caller changes what reads a
    tensor that goes, before or after.

    Args:
      op: an operation that owns graphs.
      inputs: numbers of inputs, a predicate among them. Of a While they are its variables.
      outputs: numbers of outputs; of a While they follow from `inputs`.
    """
    graphs = owned(op)
    offset = param_offset(op)
    is_loop = op.opdef.structured == "While"
    gone = [k for k in range(len(op.inputs)) if k not in inputs]
    lost = gone if is_loop else [k for k in range(len(op.outputs)) if k not in outputs]
    for graph in graphs:
        if graph is not op.attrs.get("cond"):
            graph.set_results(_without(graph.results, lost))
        _remove_params(graph, {graph.params[k - offset] for k in gone})
    op.inputs = _without(op.inputs, gone)
    left = {"T": gone} if is_loop else {"Tin": [k - offset for k in gone], "Tout": lost}
    if op.attrs.get("output_shapes"):
        left["output_shapes"] = lost
    op.attrs = {**op.attrs, **{name: tuple(_without(op.attrs[name], some)) for name, some in left.items()}}
    op.outputs = tuple(_without(op.outputs, lost))
    for k, t in enumerate(op.outputs):
        t.index = k


def _without(items: Sequence[V], gone: Collection[int]) -> list[V]:
    some = set(gone)
    return [v for k, v in enumerate(items) if k not in some]


def _remove_params(graph: FuncGraph, gone: set[Tensor]) -> None:
    if not gone:
        return
    graph.set_params([p for p in graph.params if p not in gone])
    for t in [t for t, p in graph.originals.items() if p in gone]:
        del graph.originals[t]
    graph.take_back({p.op for p in gone})
