"""Walk that makes the operations of a function again, for a batch of examples.

Each operation without batched outputs is copied. For each other one, the batching rule of its record makes the
operation for all examples at once; `control` has the rules of conditionals and loops. An operation without a rule is
computed for each example alone, by a loop (`alone`).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace import dtypes, notices
from headrace.errors import UnimplementedError
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.custom_rules import custom_of
from headrace.ir.graph import FuncGraph, Operation, Tensor
from headrace.ir.opdef import Missing
from headrace.opkit.batch_node import BatchNode, NoBatchRule, SameForAll, spread
from headrace.opkit.batch_rules import draws, rule_of
from headrace.vmap import alone, control
from headrace.vmap.copies import copied
from headrace.vmap.custom import with_gradient

if TYPE_CHECKING:
    from headrace.vmap.flow import Flow


class Batching:
    """The batch of one call of a mapped function.

    Args:
      flow: the batched tensors.
      size: the number of examples: an int, or an int32 scalar.
      title: the description of the function in messages.

    Attributes:
      flow, size, title: as given.
      may_write: whether operations may change state.
    """

    def __init__(self, flow: Flow, size: int | Tensor, title: str) -> None:
        self.flow = flow
        self.size = size
        self.title = title
        self.may_write = True

    def for_some(self) -> Batching:
        """Returns this batch for a branch that only some examples take."""
        other = copy.copy(self)
        other.may_write = False
        return other

    def of(self, flow: Flow) -> Batching:
        """Returns this batch for another function, with its own batched tensors."""
        other = copy.copy(self)
        other.flow = flow
        return other

    def run(
        self,
        b: Builder,
        graph: FuncGraph,
        given: Sequence[Tensor],
    ) -> list[Tensor]:
        """Makes the operations of `graph` again.

        Args:
          b: the builder of the new operations.
          graph: the function, branch or body.
          given: the replacement of each parameter of `graph`; it has a batch dimension if the parameter is batched.

        Returns:
          The replacement of each result, with a batch dimension where it is batched.

        Raises:
          UnimplementedError: an operation with effects has batched inputs.
        """
        moved: dict[Tensor, Tensor] = dict(zip(graph.params, given, strict=True))
        done: dict[Operation, Operation] = {}
        params = {p.op for p in graph.params}
        ends = {*(t.op for t in graph.results), *graph.control_results}
        if any(custom_of(op) is not None for op in graph.operations):  # a custom gradient may use any tensor
            ends.update(op for op in graph.operations if not op.opdef.is_effectful and not op.opdef.primitive)
        needed = walk.reachable(ends)
        for op in walk.in_order(needed - params):
            if not self.may_write:
                self._check_pure(op)
            controls = [done[c] for c in op.control_inputs if c in done]
            at = Builder(b.graph, _scope(b, op), op.device or b.device, (*b.control_inputs, *controls), op.source)
            inputs = [b.graph.capture(moved[t]) for t in op.inputs]
            custom = custom_of(op)
            if custom is None:
                outs = self._made(at, op, inputs)
            else:
                outs = with_gradient(self, at, op, inputs, custom, moved)
            moved.update(zip(op.outputs, outs, strict=True))
            done[op] = b.graph.operations[-1]
        return [b.graph.capture(moved[t]) for t in graph.results]

    def _check_pure(self, op: Operation) -> None:
        record = op.opdef
        if not record.structured and record.facts.writes and not record.facts.checks and not draws(record):
            raise UnimplementedError(
                f"vmap of {self.title}: '{op.name}' ({op.type}, made at {op.source}) changes state in a branch or loop "
                "that only some of the examples take. Move it out of the branch or loop",
                op.name,
                op,
            )

    def _made(self, b: Builder, op: Operation, inputs: list[Tensor]) -> Sequence[Tensor]:
        """Returns the replacements of the outputs of `op`."""
        batched = self.flow.batched
        kind = op.opdef.structured
        if kind and not self.flow.is_alone(op) and self._is_touched(op):
            return control.RULES[kind](self, b, op, inputs)
        flags = [t in batched for t in op.inputs]
        if not any(flags) and not self.flow.any(op.outputs):
            return copied(b, op, inputs)
        n = BatchNode(b, op, inputs, flags, self.size, any(map(self.flow.is_ragged, (*op.inputs, *op.outputs))))
        outs, is_batch = self._ruled(b, n)
        return [self._fitted(b, t, new, is_batch) for t, new in zip(op.outputs, outs, strict=True)]

    def _is_touched(self, op: Operation) -> bool:
        """Whether a structured operation has batched inputs, or batched tensors in its graphs."""
        flow = self.flow
        if flow.any(op.inputs) or flow.any(op.outputs):
            return True
        return any(
            flow.any(inner.outputs) or (bool(inner.opdef.structured) and self._is_touched(inner))
            for g in flow.graphs(op)
            for inner in g.operations
        )

    def _ruled(self, b: Builder, n: BatchNode) -> tuple[Sequence[Tensor], bool]:
        """Returns the outputs, and whether they have a batch dimension."""
        op = n.op
        rule = None if op.opdef.structured else rule_of(op.opdef)
        if isinstance(rule, Missing):
            raise UnimplementedError(f"vmap of {self.title}: {_title(op)} cannot be batched: {rule.why}", op.name, op)
        why = f"{op.type} has no batching rule"
        if rule is not None:
            try:
                return rule(b, n), not isinstance(rule, SameForAll)
            except NoBatchRule as e:
                why = f"the batching rule of {op.type} does not apply: {e.message}"
        self._check_alone(n, why)
        if any(t.shape is None or None in t.shape for t in op.outputs):
            why += ". Results of different shapes cannot be stacked; the step fails then"
        if not n.ragged:  # lists of different lengths have no other way
            notices.warn(f"vmap computes {_title(op)} for each example alone, in a loop: {why}")
        return alone.each(b, n), True

    def _check_alone(self, n: BatchNode, why: str) -> None:
        op = n.op
        facts = op.opdef.facts
        if facts.writes and facts.effect not in ("random", "python", "stdout"):
            raise UnimplementedError(
                f"vmap of {self.title}: {_title(op)} changes state, and its inputs differ between the examples. Let "
                "the function return the values, and change the state once for the batch, outside of vmap",
                op.name,
                op,
            )
        handles = [t for t in (*op.inputs, *op.outputs) if t.dtype.base is dtypes.variant]
        if handles and not n.ragged:
            raise UnimplementedError(
                f"vmap of {self.title}: {_title(op)} works on a list whose elements differ between the examples, and "
                f"cannot be computed for each example alone; {why}",
                op.name,
                op,
            )

    def _fitted(self, b: Builder, t: Tensor, new: Tensor, is_batch: bool) -> Tensor:
        """Returns the replacement of an output, with its static shape and a batch dimension."""
        if t not in self.flow.batched:
            return new
        if t.dtype.base is dtypes.variant:
            return new
        if not is_batch:
            new = spread(b, new, self.size)
        n = self.size if isinstance(self.size, int) else None
        new.refine(None if t.shape is None else (n, *t.shape))
        return new


def _title(op: Operation) -> str:
    return f"'{op.name}' ({op.type}, made at {op.source})"


def _scope(b: Builder, op: Operation) -> str:
    """Returns the scope of the operations that replace `op`."""
    return b.scope + op.name.rpartition("/")[0] + "/" * ("/" in op.name)
