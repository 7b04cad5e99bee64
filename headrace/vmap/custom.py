"""Custom gradients of a batch.

A function with a custom gradient (`hr.custom_gradient`) makes an operation that names its gradient function. This
function belongs to one example: it uses tensors of the example. So the operation of the batch gets a gradient of its
own: the gradient function is called with symbolic gradients of one example, and what it makes is batched like all
other operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.api import scopes
from headrace.ir.builder import Builder
from headrace.ir.custom_rules import OVERRIDE, Custom
from headrace.ir.grad_node import GradNode
from headrace.ir.graph import FuncGraph
from headrace.opkit.batch_node import spread
from headrace.vmap.flow import Flow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.ir.graph import Operation, Tensor
    from headrace.vmap.walks import Walk


def with_gradient(
    m: Walk, b: Builder, op: Operation, inputs: Sequence[Tensor], custom: Custom, moved: Mapping[Tensor, Tensor]
) -> Sequence[Tensor]:
    """Returns the outputs of an operation with a custom gradient.

    Args:
      m: the batch.
      b: the builder.
      op: the operation of one example, which passes its inputs on.
      inputs: the replacements of its inputs.
      custom: the gradient of one example.
      moved: tensor of one example → its replacement; it grows until the walk ends.
    """
    is_batch = m.flow.any(op.outputs)
    given = [
        spread(b, t, m.size) if is_batch and x not in m.flow.batched else t
        for x, t in zip(op.inputs, inputs, strict=True)
    ]

    def rule(b: Builder, n: GradNode, *dys: Any) -> list[Any]:
        graph = FuncGraph("vmap_gradient", op.graph)
        graph.role = f"the gradient of '{op.name}'"
        there = [k for k, dy in enumerate(dys) if dy is not None]
        params = [graph.add_param(dys[k].dtype, op.outputs[k].shape, f"dy{k}") for k in there]
        ends: list[Any] = [None] * len(dys)
        for k, p in zip(there, params, strict=True):
            ends[k] = p
        inner = Builder(graph, source=op.source)
        found = [g() if callable(g) else g for g in custom.rule(inner, GradNode(op, n.wanted, n.reached), *ends)]
        grads = [g if g is None else inner.tensor(g) for g in found]
        graph.set_results([graph.capture(g) for g in grads if g is not None])
        outside = {p: t for t, p in graph.captured}
        batched = [p for p in graph.params if (is_batch if p in params else outside[p] in m.flow.batched)]
        flow = Flow(graph, batched)
        args = [dys[there[params.index(p)]] if p in params else moved[outside[p]] for p in graph.params]
        results = m.of(flow).run(b, graph, [b.graph.capture(t) for t in args])
        made = iter(
            spread(b, t, m.size) if is_batch and r not in flow.batched else t
            for r, t in zip(graph.results, results, strict=True)
        )
        return [None if g is None else next(made) for g in grads]

    mine = Custom(rule)
    scopes.keep(b.graph, mine)
    made = b.make(op.type, (given,), {**op.attrs, OVERRIDE: mine.name}, op.name.rpartition("/")[2], op.notes)
    return made if isinstance(made, tuple) else (made,)
