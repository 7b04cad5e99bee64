"""The editor of a loop, which the passes on loops share.

A `LoopEditor` is a While of a private graph, with an editor of its body and one of the graph around it. It answers
questions about the loop variables, makes operations inside and outside of the loop, and adds loop variables. A tensor
of the body is

* *invariant* if it is a loop constant or a `Const`: then `outside` returns its equal in the graph around the loop;
* otherwise, possibly different in every iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.edit.copying import copy_into
from headrace.ir.edit.editor import Editor
from headrace.ir.function import nested_operations
from headrace.ir.graph import FuncGraph
from headrace.ir.order import is_constant
from headrace.optimize.queries import is_plain, other_device
from headrace.optimize.waiting import have_equal_waits

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor
    from headrace.optimize.base import PassContext


class LoopEditor:
    """Questions about one loop, and changes of it.

    Args:
      op: a While that owns its graphs.
      context: the context of the pass, with the operations of the graph around the loop that must stay.

    Attributes:
      body, cond: its graphs.
      outer, inner: editors of the graph around it, and of the body.
      trip_count: the trip count of a loop that counts, else None.
    """

    def __init__(self, op: Operation, context: PassContext) -> None:
        self.op, self._context = op, context
        self.body: FuncGraph = op.attrs["body"]
        self.cond: FuncGraph = op.attrs["cond"]
        self.outer = Editor(op.graph, context.preserved_of(op.graph))
        self.inner = Editor(self.body)
        self.trip_count = trip_count(op)
        self._copies: dict[Tensor, Tensor] = {}

    # *** questions ***

    def position(self, t: Tensor) -> int | None:
        """Position of the variable whose parameter in the body is `t`, or None."""
        if t.op.type != "_Arg":
            return None
        k: int = t.op.attrs["index"]
        return k

    def is_constant(self, k: int) -> bool:
        return is_constant(self.body, k)

    def is_invariant(self, t: Tensor) -> bool:
        k = self.position(t)
        return t.op.type == "Const" if k is None else self.is_constant(k)

    def outside(self, t: Tensor) -> Tensor:
        """Tensor of the graph around the loop that equals `t`, which is invariant."""
        k = self.position(t)
        if k is not None:
            return self.op.inputs[k]
        got = self._copies.get(t)
        if got is None:
            copy_into(self.op.graph, [t.op], self._copies)
            got = self._copies[t]
        return got

    def is_movable(self, op: Operation) -> bool:
        """Whether only its inputs constrain the position of `op`, of the body.

        Then it is plain, and has no control edges in either direction.
        """
        return is_plain(op) and not op.control_inputs and not self.inner.waits.get(op) and self.is_free(op)

    def is_free(self, op: Operation) -> bool:
        return op not in self.body.control_results and "_class" not in op.attrs

    def is_only_for_itself(self, k: int) -> bool:
        """Whether only the computation of its own next value reads variable `k`.

        No other operation reads this next value, and the condition does not read the variable. So the value is not
        observed before the loop ends.
        """
        p, r, twin = self.body.params[k], self.body.results[k], self.cond.params[k]
        if [op for op, _ in self.inner.uses.get(p, ())] != [r.op] or self.inner.uses.get(r):
            return False
        if self.body.results.count(r) != 1 or p in self.body.results:
            return False
        return twin not in self.cond.results and not any(twin in op.inputs for op in self.cond.operations)

    def have_equal_waits(self, *groups: Sequence[Tensor]) -> bool:
        """Whether tensors around the loop wait for the same events (`waiting`)."""
        return have_equal_waits(self.op.graph, self._context, *groups)

    # *** changes ***

    def before(self, like: Operation) -> Builder:
        """Returns a builder in the graph around the loop, for operations that replace `like`."""
        return Builder(self.op.graph, device=like.device, source=like.source or self.op.source)

    def within(self, like: Operation) -> Builder:
        """Returns a builder in the body, for operations that replace `like`."""
        return Builder(self.body, device=like.device, source=like.source or self.op.source)

    def sweep(self) -> None:
        """Removes dead operations from the body."""
        self.inner.sweep()

    def constant(self, t: Tensor, name: str = "") -> Tensor:
        """Returns the parameter of the body for `t`, a tensor of the graph around.

        If no loop constant has the value `t`, one is added.
        """
        for k, given in enumerate(self.op.inputs):
            if given is t and self.is_constant(k):
                return self.body.params[k]
        return self.variable(t, name)[0]

    def variable(self, init: Tensor, name: str = "") -> tuple[Tensor, Tensor]:
        """Adds a loop variable, which is a loop constant until `set_next`.

        Returns:
          Its parameter in the body, and the new output of the loop.
        """
        param, out = add_values.add_variable(self.op, init, name)
        self.outer.extended(self.op)
        return param, out

    def set_next(self, k: int, value: Tensor) -> None:
        """Makes `value` the next value of variable `k`.

        Args:
          k: the position of the variable.
          value: a tensor of the body. The parameter itself makes the variable a loop constant.
        """
        param = self.body.params[k]
        if value is param:
            self.inner.set_result(k, param)
            self.op.outputs[k].copy_static(self.op.inputs[k])
        else:
            add_values.set_result(self.op, k, value)


def loops_of(
    graph: Graph,
    context: PassContext,
    having: Callable[[Operation], bool] | None = None,
    replaces_results: bool = False,
) -> Iterator[Operation]:
    """Yields the Whiles of `graph` that own their graphs, if the signatures match.

    A mismatch is left to the run of the loop, which reports it. A loop with an operation that requests a device other
    than a CPU stays, because the passes replace operations by others, which may have no kernel there.

    Args:
      graph: the graph.
      context: the context of the pass, for the reasons.
      having: None, or a predicate that must hold for an operation of the body. This check costs less than a
        `LoopEditor`.
      replaces_results: whether the pass makes readers of a loop's results read other tensors; a loop whose results
        stand for effects inside (`PassContext.has_parts`) stays then.
    """
    for op in list(graph.operations):
        if op.opdef.structured == "While" and all(isinstance(op.attrs[f], FuncGraph) for f in ("cond", "body")):
            loop: FuncGraph = op.attrs["body"]
            if len(loop.params) == len(loop.results) == len(op.inputs) == len(op.attrs["cond"].params) and (
                having is None or any(map(having, loop.operations))  # mutate: no
            ):
                if why := other_device([op, *nested_operations([*op.attrs["cond"].operations, *loop.operations])]):
                    context.refused("loops", op, why)
                elif replaces_results and context.has_parts(op):
                    context.refused("loops", op, "its results stand for effects inside, because it runs part by part")
                else:
                    yield op


def names(ops: Iterator[Operation] | list[Operation], most: int = 4) -> str:
    """Joins the names of the first `most` operations, for the report."""
    some = [op.name for op in ops]
    return ", ".join(some[:most]) + (f" and {len(some) - most} more" if len(some) > most else "")
