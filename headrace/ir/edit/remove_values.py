"""Removal of inputs, loop variables and results from an `If`, `While` or call.

It is the counterpart of `ir.edit.add_values`. A user's operation only grows, because programs refer to its outputs by
number. Operations of private graphs (`ir.edit.editor`) may lose values that no operation reads. The remaining tensors
are the same objects as before, with new numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, TypeVar

from headrace.ir.function import owned, param_offset

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Operation, Tensor

V = TypeVar("V")


def remove_all_but(op: Operation, inputs: Collection[int], outputs: Collection[int]) -> None:
    """Removes all but the given inputs and outputs of `op`, with their parameters and results.

    The caller shrinks all operations of a step at once: nothing is checked here, and the caller changes the readers of
    removed tensors, before or after.

    Args:
      op: an operation that owns graphs.
      inputs: the numbers of the inputs to keep, including a predicate. For a While they are its loop variables.
      outputs: the numbers of the outputs to keep; for a While they follow from `inputs`.
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
