"""The gradient graph of a branch or loop body, and its access to forward values.

Let F be a graph that an operation owns (a branch, a loop's body), the *forward* graph. Its gradient B is a separate
graph. B runs later than F and belongs to another operation (an If on the same predicate, a loop that runs backwards).
The gradient rules of F's operations make the operations of B, and use tensors of F for that. For example, the gradient
of `y = sin(x)` is `dy * cos(x)`. Here x is a tensor of F, and it must be available in B.

`GradGraph` solves this problem. It is a FuncGraph, and FuncGraphs *capture*: if an operation gets a tensor of another
graph, it gets the tensor's counterpart in its own graph. A tensor of F is captured by the first of these ways that
applies (`fetch`):

1. It is a constant. It is cloned. (Of a reference to a variable, a read in F is captured in its place.)
2. It is a parameter of F with a value from outside (an input of a branch, a loop constant). This value is captured from
   the graph around B. That graph may be a gradient graph, too, and then captures the value in the same way.
3. It is available already.
4. It is cheap to compute (`OpDef.is_cheap`) from values that are available by ways 1 to 3. It is rematerialized in B.
5. Otherwise it becomes a *residual* (`residual`). A conditional returns it as one more result. A loop pushes it to a
   list in each iteration.

Shapes are a special case. Many rules need only the shape of a tensor. The `GradBuilder` puts an operation that reads
only shapes into the graph of its argument. So the residual is a few integers and not the tensor.

All of this happens when an operation of B gets a tensor, so gradient rules and gradient functions of users need not
handle it. The same rule serves every graph. B is a graph like any other, so derivatives of any order are possible.

Source: the design of functional while loops and conditionals (TensorFlow's RFCs "Functional while_loop" and
"Switch/Merge-free cond"). Residuals of shapes, rematerialization and the extension of operations in place are additions
of headrace.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, nest, shapes, thresholds
from headrace.api.tracing import read_reference
from headrace.ir.attr_values import attr_key
from headrace.ir.builder import Builder
from headrace.ir.function import param_offset
from headrace.ir.graph import FuncGraph, Graph, Tensor
from headrace.ir.opdef import PerElement, op_registry
from headrace.ir.order import follow_order
from headrace.opkit.tensor_lists import MARKS
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.ir.notes import Note


class GradGraph(FuncGraph):
    """Gradient graph of `forward`, a graph that `op` owns.

    Args:
      name: its name in a function library.
      outer: the graph in which the gradient of `op` is made.
      op: the owner of `forward`.
      forward: the forward graph.

    Attributes:
      op: the owner of `forward`.
      forward: the forward graph.
      outer: the graph in which the gradient of `op` is made.
      position: the positions of the parameters of `forward`.
      offset: the number of inputs of `op` before the arguments of its graphs.
      have: the counterparts here of the forward tensors captured so far.
      measured: operations in forward graphs that read shapes, by type, arguments and attributes.
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
        self._values: dict[Tensor, Tensor] = {}  # a forward reference -> its read
        self.offset = param_offset(op)
        self.have: dict[Tensor, Tensor] = {}
        self._dormant: set[Operation] = set()
        self.measured: dict[tuple[Any, ...], Tensor] = {}

    # *** decisions of a kind of operation ***

    def passes(self, k: int) -> bool:
        """Whether parameter `k` of the forward graph always equals the input of `op`."""
        return True

    def given(self, k: int) -> Tensor | None:
        """Returns the value of parameter `k` without a residual, or None if it needs one."""
        return self.capture_outer(self.op.inputs[k + self.offset]) if self.passes(k) else None

    def is_given(self, k: int) -> bool:
        """Whether `given(k)` returns a value."""
        return self.passes(k)

    def residual(self, t: Tensor) -> Tensor:
        """Makes `op` return or store the forward tensor `t`, and returns its counterpart here."""
        raise NotImplementedError

    # *** captures ***

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
        """Returns the counterpart here of `t`, a tensor of the graph of `op`."""
        return super().capture(t)

    def _value_of(self, reference: Tensor) -> Tensor:
        """Returns the read of a forward reference, which is added at first."""
        found = self._values.get(reference)
        if found is None:
            found = self._values[reference] = read_reference(reference)
        return found

    def fetch(self, t: Tensor) -> Tensor:
        """Returns the counterpart here of the forward tensor `t`, by the first way that applies.

        The head of the module lists the ways. A reference does not leave its graph, so its value does.
        """
        if t.dtype.is_ref:
            return self.residual(self._value_of(t))
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
        """Returns the tensors that `fetch(t)` would capture, each after its own, and then `t`.

        This avoids recursion, because chains of rematerialized operations may be longer than Python's stack.
        """
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
        """Forward tensors that `fetch(t)` captures directly."""
        op = t.op
        if _is_constant(op) or t in self.position or t.dtype.is_ref:
            return ()
        same = _forwarded(op)
        if same is not None:
            return (same,)
        return op.inputs if self.is_rematerialized(t) else ()

    def rematerialize(self, t: Tensor) -> Tensor:
        """Computes `t` here by a copy of its operation."""
        op = t.op
        copy = self.copy_op(op, [self.capture(i) for i in op.inputs], (), self.unique_name(op.name))
        self.have.update(zip(op.outputs, copy.outputs, strict=True))
        return copy.outputs[t.index]

    def is_rematerialized(self, t: Tensor) -> bool:
        """Whether to rematerialize `t` instead of storing it.

        It must be cheap to compute from available values, or from those and one tensor that needs no more memory.
        """
        op = t.op
        if not _is_cheap(op):
            return False
        seen: dict[Tensor, bool] = {}
        lack = {i for i in op.inputs if not self.is_available(i, thresholds.RECOMPUTED_CHAIN, seen)}
        if not lack:
            return True
        return len(lack) == 1 and _is_no_larger(lack.pop(), t)

    def is_available(self, t: Tensor, depth: int, seen: dict[Tensor, bool]) -> bool:
        """Whether `t` is available without storing more, by at most `depth` operations in a row."""
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

    @property
    def has_dormant(self) -> bool:
        """Whether there are dormant operations; see `settle`."""
        return bool(self._dormant)

    def settle(self, since: int, ends: Iterable[Tensor]) -> None:
        """Marks new operations as dormant if no wanted gradient depends on them.

        A rule of a record makes nothing for unwanted gradients (`GradNode.wants`), but a gradient function of a user
        returns all gradients. The tensors that it reads for unwanted ones would be stored in vain, and count as
        available for later rules. So their operations become *dormant*: `is_available` ignores them. `capture` still
        finds them, so a chain of operations that many functions use in vain is copied only once.

        Args:
          since: the number of operations before the rule was called.
          ends: the wanted results of the rule.
        """
        needed = self._needed(since, ends)
        self._dormant.update(op for op in self._operations[since:] if op not in needed)
        self._dormant -= needed

    def remove_dead(self, since: int, ends: Iterable[Tensor]) -> None:
        """Removes new operations that no result of a walk needs, and their captures.

        These are dormant operations, and gradients that ended at a rule without an entry for its input.

        Args:
          since: the number of operations before the walk.
          ends: the results of the walk.
        """
        needed = self._needed(since, ends)
        dead = {op for op in self._operations[since:] if op not in needed}
        if dead:
            self._dormant -= dead
            self.drop(dead)
            self.take_back(dead)

    def _needed(self, since: int, ends: Iterable[Tensor]) -> set[Operation]:
        """Operations, new or dormant, that `ends` depend on or that have effects.

        Args:
          since: the number of operations before the new ones.
          ends: the tensors to compute.
        """
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
        """Tensors that are needed if the parameter `op` is."""
        return ()

    def drop(self, dead: set[Operation]) -> None:
        """Forgets captures whose operations are about to be removed."""
        for known in (self.have, self.captures):
            for t in [t for t, got in known.items() if got.op in dead]:
                del known[t]
        self.set_params([p for p in self.params if p.op not in dead])

    def origin(self, t: Tensor) -> Tensor:
        """Returns the outermost tensor that always equals the forward tensor `t`."""
        graph: Graph | None = self
        while graph is not None:
            if isinstance(graph, GradGraph) and t.op.graph is graph.forward:
                k = graph.position.get(t)
                if k is None or not graph.passes(k):
                    break
                t = graph.op.inputs[k + graph.offset]
            graph = graph.outer
        return t


# An operation with control inputs is not copied. Its control inputs state when its value is available, and that other
# operations run. So a gradient that needs the value takes the output of the operation itself. The same holds for an
# operation that reads a reference variable, which may have another value when the gradient runs.


def _is_constant(op: Operation) -> bool:
    return op.type == "Const" and not op.control_inputs


def _forwarded(op: Operation) -> Tensor | None:
    """The input that `op` forwards unchanged, or None."""
    k = op.opdef.facts.forwards
    return None if k is None or op.control_inputs or op.inputs[k].dtype.is_ref else op.inputs[k]


def _is_cheap(op: Operation) -> bool:
    """Whether computing `op` again costs hardly more than storing its outputs.

    For scalars this holds for most elementwise operations.
    """
    if op.control_inputs or any(t.dtype.is_ref for t in op.inputs):
        return False
    record = op.opdef
    if record.is_cheap:
        return True
    few = isinstance(record.facts.cost, PerElement) and not record.facts.no_fold
    return record.is_pure and few and all(t.shape == () for t in (*op.inputs, *op.outputs))


def _is_checked_read(op: Operation) -> bool:
    """Whether `op` reads an element of a TensorFlow 1 array, after its access check alone.

    A gradient takes the output of the operation itself, because a copy of the read would be unchecked. Storing it needs
    no memory, because the array holds the element.
    """
    return op.opdef.list_kind == "get" and all(c.type in MARKS for c in op.control_inputs)


def _is_no_larger(a: Tensor, b: Tensor) -> bool:
    """Whether `a` is known to need no more memory than `b`."""
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


@record(frozen=True, slots=True)
class GradBuilder(Builder):
    """Builder of a `GradGraph`, which reads shapes in the graph of the tensors."""

    def make(
        self,
        type: str,
        args: Sequence[Any],
        attrs: dict[str, Any],
        name: str | None = None,
        notes: Iterable[Note] = (),
    ) -> Any:
        graph = self.graph
        if isinstance(graph, GradGraph) and len(args) == 1:
            record = op_registry.find(type)
            if record is not None and record.facts.shape_only:
                group = nest.as_list(args[0])
                if group and all(isinstance(t, Tensor) and t.op.graph is not graph for t in group):
                    return self._measured(graph, type, group, args, attrs, name)
        return Builder.make(self, type, args, attrs, name, notes)

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
        key = (type, *group, *[(k, attr_key(v)) for k, v in sorted(attrs.items())])
        if key not in graph.measured:
            t = group[0]
            if any(x.op.graph is not t.op.graph for x in group):
                return Builder.make(self, type, args, attrs, name)
            there = Builder(t.op.graph, device=t.op.device, source=self.source)
            made = there.make(type, [group if isinstance(args[0], (list, tuple)) else t], attrs, f"{t.op.name}/{type}")
            graph.measured[key] = made
        made = graph.measured[key]
        return tuple(graph.capture(t) for t in made) if isinstance(made, tuple) else graph.capture(made)
