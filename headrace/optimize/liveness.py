"""Liveness: the operations, inputs and results of a step that its ends reach.

The reference is the primitive form as TensorFlow 1 builds it (`lower`): every loop variable has its Enter, Merge,
Switch, NextIteration and Exit, every captured tensor its Switch or Enter. An operation *waits for* the producers of its
inputs and for its control inputs. Every operation that an end reaches along these edges runs. On the structured graph
this means:

* The ends may reach single results of a conditional, loop or call. A result of a conditional or call reaches the same
  result of each of its graphs. A result of a loop reaches its variable: the initial value, and the next value in the
  body. A parameter that is read *or waited for* reaches the input, or the loop variable, that it stands for.
* A call reaches all its inputs, as an operation without graphs does.
* Any result reaches the inputs of the decision whether it is produced at all: the predicate, the result of a loop's
  condition, the control inputs of the operation, and the operations that must run in its graphs (`control_results`).
* A control edge from the operation, or its use as a target, reaches all its results.

Loop variables reach each other in cycles, so the walk is over tensors and marks those that it has visited.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headrace.ir.edit.editor import roots
from headrace.ir.function import owned, param_offset
from headrace.ir.graph import FuncGraph
from headrace.optimize.queries import owns_graphs

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor


class Reached:
    """Operations, inputs and results that the ends of a graph reach, also in nested graphs.

    Args:
      graph: the graph of a step.
      preserved: operations of it that must run: targets.
      literal: whether a control edge from a structured operation reaches all its results, and a call all its inputs,
        read or not. This is not necessary where effects are explicit (`optimize.effects`): then every operation that
        must run is named.

    Attributes:
      ops: the operations.
      inputs: the positions of the reached inputs (of a While: of its variables), for each reached structured operation
        that owns graphs with matching signatures.
      outputs: likewise the positions of the reached outputs.
    """

    def __init__(self, graph: Graph, preserved: Collection[Operation] = (), literal: bool = True) -> None:
        self.ops: set[Operation] = set()
        self.inputs: dict[Operation, set[int]] = {}
        self.outputs: dict[Operation, set[int]] = {}
        self._literal = literal
        self._owners: dict[Graph, tuple[Operation, int]] = {}  # owner, and the position of its input for parameter 0
        self._waited: set[Operation] = set()
        self._values: list[Tensor] = []
        self._whole: list[Operation] = []
        if isinstance(graph, FuncGraph):
            self._values += graph.results
            self._whole += [*graph.control_results, *preserved]
        else:
            self._whole += roots(graph, preserved)
        self._walk()

    def _walk(self) -> None:
        values, whole = self._values, self._whole
        while values or whole:
            if values:
                t = values.pop()
                if t.op in self.inputs or self._begins(t.op):
                    self._reach_output(t.op, t.index)
                elif t.op not in self.ops:
                    self._visit(t.op)
            else:
                op = whole.pop()
                if op in self._waited:
                    continue
                self._waited.add(op)
                if op in self.inputs or self._begins(op):
                    if self._literal:
                        values += op.outputs
                elif op not in self.ops:
                    self._visit(op)

    def _visit(self, op: Operation) -> None:
        """Reaches an operation whose results are not distinguished."""
        self.ops.add(op)
        self._values += op.inputs
        self._whole += op.control_inputs
        if op.type == "_Arg" and op.graph in self._owners:
            owner, offset = self._owners[op.graph]
            self._reach_input(owner, op.attrs["index"] + offset)

    def _begins(self, op: Operation) -> bool:
        """Reaches everything that any result of `op` needs.

        Returns:
          False if `op` owns no graphs, or their signatures do not match it.
        """
        if not op.opdef.structured or not owns_graphs(op):
            return False
        graphs = owned(op)
        offset = param_offset(op)
        results = len(op.inputs) if op.opdef.structured == "While" else len(op.outputs)
        for g in graphs:
            n = 1 if g is op.attrs.get("cond") else results
            if len(g.params) != len(op.inputs) - offset or len(g.results) != n:
                return False
        self.ops.add(op)
        self.inputs[op], self.outputs[op] = set(), set()
        self._whole += op.control_inputs
        is_strict = op.opdef.structured == "Call" and self._literal
        for i in range(len(op.inputs) if is_strict else offset):
            self._reach_input(op, i)
        for g in graphs:
            self._owners[g] = op, offset
            self._whole += g.control_results
        if op.opdef.structured == "While":
            self._values.append(op.attrs["cond"].results[0])
        return True

    def _reach_output(self, op: Operation, k: int) -> None:
        if k in self.outputs[op]:
            return
        self.outputs[op].add(k)
        if op.opdef.structured == "While":
            self._reach_input(op, k)
        else:
            self._values += [g.results[k] for g in owned(op)]

    def _reach_input(self, op: Operation, k: int) -> None:
        if k in self.inputs[op]:
            return
        self.inputs[op].add(k)
        self._values.append(op.inputs[k])
        if op.opdef.structured == "While":
            self._values.append(op.attrs["body"].results[k])
