"""The graph in which the gradient of a branch or body is made, and how it gets at the values of that.

Let F be a graph that an operation owns (a branch, a loop's body), the *forward* graph. Its gradient B is a graph of its
own: it runs later, and it belongs to another operation (an If on the same predicate, a loop that runs backwards). The
rules of the operations say what goes into B, and name tensors of F while they do: the gradient of `y = sin(x)` is
`dy * cos(x)`. That x is a tensor of F, and when the multiplication is put into B it must be available there.

That is all `GradGraph` is about. It is a FuncGraph, and FuncGraphs *capture*: an operation that is given a tensor from
elsewhere gets what stands for it. A tensor of F is captured by the first of these ways that serves (`fetch`):

1. it is a constant: a clone of it;
2. it is a parameter of F that hands in a value from outside (an input of a branch, a loop constant): that value, taken
   from the graph around B, which may be the gradient of a graph again and get it in the same manner;
3. it is available already;
4. it is cheap to compute (`OpDef.is_cheap`) from values that ways 1 to 3 make available: it is rematerialized in B;
5. else it becomes a *residual* (`residual`): a conditional returns it as one more result, a loop adds it to a list in
   each iteration.

Shapes are a case of their own. Many rules need no more of a tensor than its shape. The `GradBuilder` puts an operation
that only looks at shapes beside the tensor it looks at, so that what is kept is a few integers and not the tensor.

Since all that happens when an operation of B names a tensor, rules need not know of it, nor need functions of users:
the same rule serves every graph, and, B being a graph like any other, every order.

Source: the design is that of functional while loops and conditionals (TensorFlow's RFCs "Functional while_loop" and
"Switch/Merge-free cond"); keeping shapes, recomputing and growing in place are our own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes, thresholds
from headrace.ir.builder import Builder
from headrace.ir.function import param_offset
from headrace.ir.graph import FuncGraph, Graph, Tensor
from headrace.ir.opdef import PerElement, op_registry
from headrace.ir.order import follow_order
from headrace.opkit.tensor_lists import MARKS

if TYPE_CHECKING:
    from headrace.ir.graph import Operation


class GradGraph(FuncGraph):
    """The gradient of `forward`, a graph that `op` owns; see the module's text.

    Args:
      name: what it is called in a function library.
      outer: the graph in which the gradient of `op` is made.
      op: the owner of `forward`.
      forward: the graph whose gradient this is.
    """

    forward: FuncGraph
    outer: Graph

    def __init__(self, name: str, outer: Graph, op: Operation, forward: FuncGraph) -> None:
        super().__init__(name.replace("/", "_"), outer, shares_names=True)
        self.op = op
        self.forward = forward
        self.source = op.source
        self.role = f"the gradient of {forward.role or repr(forward.name)}"
        follow_order(self, outer)
        self.position = {p: k for k, p in enumerate(forward.params)}
        self.offset = param_offset(op)
        self.have: dict[Tensor, Tensor] = {}
        self._dormant: set[Operation] = set()
        self.measured: dict[tuple[Any, ...], Tensor] = {}

    # *** what a kind of operation decides ***

    def passes(self, k: int) -> bool:
        """Whether parameter `k` of the forward graph always is what the operation was given."""
        return True

    def given(self, k: int) -> Tensor | None:
        """What parameter `k` is, if that is available without keeping anything."""
        return self.capture_outer(self.op.inputs[k + self.offset]) if self.passes(k) else None

    def is_given(self, k: int) -> bool:
        """Whether `given(k)` would find something."""
        return self.passes(k)

    def residual(self, t: Tensor) -> Tensor:
        """`t`, a tensor of the forward graph, which the operation is made to keep."""
        raise NotImplementedError

    # *** how tensors become available ***

    def capture(self, t: Tensor) -> Tensor:
        if t.op.graph is not self.forward:
            t = self.counterpart(t)
        if t.op.graph is not self.forward:
            return super().capture(t)
        got = self.have.get(t)
        if got is None:
            for each in self._chain(t):
                if each not in self.have:
                    self.have[each] = self.fetch(each)
            got = self.have[t]
        return got

    def capture_outer(self, t: Tensor) -> Tensor:
        """`t`, a tensor of the graph that `op` stands in, as operations here may use it."""
        return super().capture(t)

    def fetch(self, t: Tensor) -> Tensor:
        """`t`, a tensor of the forward graph, by the first way that serves; see the module's text."""
        op = t.op
        if _is_constant(op):
            return self.rematerialize(t)
        k = self.position.get(t)
        if k is not None:
            given = self.given(k)
            return self.residual(t) if given is None else given
        same = _forwarded(op)
        if same is not None:
            return self.capture(same)
        if self.is_rematerialized(t):
            return self.rematerialize(t)
        return self.residual(t)

    def _chain(self, t: Tensor) -> list[Tensor]:
        """`t`, and before it what `fetch` would capture for it, one after the other: chains of operations that are done
        again may be longer than Python's stack."""
        out: list[Tensor] = []
        met: set[Tensor] = set()
        todo = [t]
        while todo:
            top = todo[-1]
            before = [] if top in met else [i for i in self.made_of(top) if i not in self.have]
            met.add(top)
            if before:
                todo += reversed(before)
            else:
                out.append(todo.pop())
        return out

    def made_of(self, t: Tensor) -> Sequence[Tensor]:
        """The tensors of the forward graph that `fetch(t)` captures."""
        op = t.op
        if _is_constant(op) or t in self.position:
            return ()
        same = _forwarded(op)
        if same is not None:
            return (same,)
        return op.inputs if self.is_rematerialized(t) else ()

    def rematerialize(self, t: Tensor) -> Tensor:
        """`t`, computed here, by a copy of its operation."""
        op = t.op
        copy = self.copy_op(op, [self.capture(i) for i in op.inputs], (), self.unique_name(op.name))
        self.have.update(zip(op.outputs, copy.outputs, strict=True))
        return copy.outputs[t.index]

    def is_rematerialized(self, t: Tensor) -> bool:
        """Whether `t` is cheap to compute from available values, or from one tensor that is no larger to keep."""
        op = t.op
        if not _is_cheap(op):
            return False
        seen: dict[Tensor, bool] = {}
        lack = {i for i in op.inputs if not self.is_available(i, thresholds.RECOMPUTED_CHAIN, seen)}
        if not lack:
            return True
        return len(lack) == 1 and _is_no_larger(lack.pop(), t)

    def is_available(self, t: Tensor, depth: int, seen: dict[Tensor, bool]) -> bool:
        """Whether `t` is available without keeping what takes memory, by at most `depth` operations in a row."""
        got = seen.get(t)
        if got is None:
            k = self.position.get(t)
            mine = self.have.get(t)
            if (mine is not None and mine.op not in self._dormant) or _is_constant(t.op):
                got = True
            elif k is not None:
                got = self.is_given(k)
            else:
                is_free = depth > 0 and (_is_cheap(t.op) or _is_checked_read(t.op))
                got = is_free and all(self.is_available(i, depth - 1, seen) for i in t.op.inputs)
            seen[t] = got
        return got

    def settle(self, since: int, ends: Iterable[Tensor]) -> None:
        """Counts of the operations made last as available only what the results need.

        A rule gives the gradients of all inputs of an operation, though perhaps one is wanted. What it names for the
        others would be kept for nothing, and count as available for what comes later: it becomes *dormant*. `capture`
        still finds it, so that a chain of operations that many rules name in vain is copied once.

        Args:
          since: how many operations there were before.
          ends: the results that are wanted.
        """
        needed = self._needed(since, ends)
        self._dormant.update(op for op in self._operations[since:] if op not in needed)
        self._dormant -= needed

    def remove_dead(self, since: int, ends: Iterable[Tensor]) -> None:
        """Takes out of the operations made last those that no result needs, and what is known of them.

        Args:
          since: how many operations there were before.
          ends: the results of the walk.
        """
        needed = self._needed(since, ends)
        dead = {op for op in self._operations[since:] if op not in needed}
        if dead:
            self._dormant -= dead
            self.drop(dead)
            self.take_back(dead)

    def _needed(self, since: int, ends: Iterable[Tensor]) -> set[Operation]:
        """The operations, of those made last and those dormant, that `ends` need or that change something."""
        new = self._operations[since:]
        needed = {op for op in new if op.opdef.is_effectful}
        todo = [*needed, *(t.op for t in ends)]
        while todo:
            op = todo.pop()
            if op.graph is self and (op.id >= since or op in self._dormant):
                needed.add(op)
                more = [t.op for t in (*op.inputs, *self.needed_with(op))] + op.control_inputs
                todo += [o for o in more if o not in needed]
        return needed

    def needed_with(self, op: Operation) -> Sequence[Tensor]:
        """What is needed where `op`, a parameter, is."""
        return ()

    def drop(self, dead: set[Operation]) -> None:
        """Forgets all that is known of operations that are to be taken out."""
        for known in (self.have, self.captures):
            for t in [t for t, got in known.items() if got.op in dead]:
                del known[t]
        self.set_params([p for p in self.params if p.op not in dead])

    def origin(self, t: Tensor) -> Tensor:
        """The tensor, as far out as possible, that always has the value of `t`, a tensor of a forward graph."""
        graph: Graph | None = self
        while graph is not None:
            if isinstance(graph, GradGraph) and t.op.graph is graph.forward:
                k = graph.position.get(t)
                if k is None or not graph.passes(k):
                    break
                t = graph.op.inputs[k + graph.offset]
            graph = graph.outer
        return t


# An operation with control inputs says when its value is there, and that others run: a gradient that needs the value
# takes the operation's own.


def _is_constant(op: Operation) -> bool:
    return op.type == "Const" and not op.control_inputs


def _forwarded(op: Operation) -> Tensor | None:
    """The input that `op` hands on as it is, whenever it is there."""
    k = op.opdef.facts.forwards
    return None if k is None or op.control_inputs else op.inputs[k]


def _is_cheap(op: Operation) -> bool:
    """Whether to compute `op` again costs hardly more than to keep what it gave. For single numbers most things do."""
    if op.control_inputs:
        return False
    record = op.opdef
    if record.is_cheap:
        return True
    few = isinstance(record.facts.cost, PerElement) and not record.facts.no_fold
    return record.is_pure and few and all(t.shape == () for t in (*op.inputs, *op.outputs))


def _is_checked_read(op: Operation) -> bool:
    """Whether `op` reads an element of a TensorFlow 1 array, and waits for the check of that alone.

    A gradient takes the value of the operation itself: a copy of the read would be one without the check. To keep it
    takes no memory, as the array holds it.
    """
    return op.opdef.list_kind == "get" and all(c.type in MARKS for c in op.control_inputs)


def _is_no_larger(a: Tensor, b: Tensor) -> bool:
    """Whether `a` is known to take no more memory than `b`."""
    if a.shape is None or b.shape is None:
        return False
    if a.shape == b.shape:
        n: int | None = 1
        m: int | None = 1
    else:
        n, m = shapes.size(a.shape), shapes.size(b.shape)
    if n is None or m is None or a.dtype.base in dtypes.OBJECT:
        return False
    return n * a.dtype.base.numpy.itemsize <= m * b.dtype.base.numpy.itemsize


@dataclasses.dataclass(frozen=True, slots=True)
class GradBuilder(Builder):
    """Makes operations in a `GradGraph`; those that only look at shapes beside the tensors they look at."""

    def make(self, type: str, args: Sequence[Any], attrs: dict[str, Any], name: str | None = None) -> Any:
        graph = self.graph
        if isinstance(graph, GradGraph) and len(args) == 1:
            record = op_registry.find(type)
            if record is not None and record.facts.shape_only:
                group = list(args[0]) if isinstance(args[0], (list, tuple)) else [args[0]]
                if group and all(isinstance(t, Tensor) and t.op.graph is not graph for t in group):
                    return self._measured(graph, type, group, args, attrs, name)
        return Builder.make(self, type, args, attrs, name)

    def _measured(
        self,
        graph: GradGraph,
        type: str,
        group: list[Tensor],
        args: Sequence[Any],
        attrs: dict[str, Any],
        name: str | None,
    ) -> Any:
        if type in ("ZerosLike", "OnesLike") and group[0].dtype.base not in dtypes.OBJECT:
            t = group[0]
            one = self.const(np.array(type == "OnesLike", t.dtype.base.numpy), t.dtype.base)
            return Builder.make(self, "Fill", [self.make("Shape", [t], {}), one], {}, name)
        if type == "Shape" and shapes.is_full(group[0].shape):
            return self.const(group[0].shape, attrs.get("out_type", dtypes.int32), name or "Shape")
        group = [graph.origin(t) for t in group]
        key = (type, *group, *sorted(attrs.items()))
        if key not in graph.measured:
            t = group[0]
            if any(x.op.graph is not t.op.graph for x in group):
                return Builder.make(self, type, args, attrs, name)
            beside = Builder(t.op.graph, device=t.op.device, source=self.source)
            made = beside.make(type, [group if isinstance(args[0], (list, tuple)) else t], attrs, f"{t.op.name}/{type}")
            graph.measured[key] = made
        made = graph.measured[key]
        return tuple(graph.capture(t) for t in made) if isinstance(made, tuple) else graph.capture(made)
