"""Gradients of loops.

    h = While(h0)     condition: h < 100      body: sin(h) * w         (w is captured: a loop constant)

runs N times. Its gradient runs N times too, from the last iteration to the first, and is a loop like any other:

    k, dh, dw, hs = While(0, dy, 0, all h)     condition: k < N
        body:  hs', h = pop(hs)                       the h of that iteration
               k + 1,  dh * cos(h) * w,  dw + dh * sin(h),  hs'

Each part of this loop has a reason.

**The trip counter.** The trip count of the forward loop is not known in advance. So the forward loop gets one more
variable, a counter, unless it has one already. The backward loop counts up to the final value of that counter. Its own
counter is its trip counter when it is differentiated.

**The variables for gradients.** The initial value of `dh` is the gradient of the loop's result, or zeros. The gradient
of the body computes the gradient of the body's parameter from that of the body's result. If the loop runs no iteration,
`dh` leaves the backward loop unchanged. This is correct, because the forward loop then returned its initial value.
Activity analysis (`grad.activity`) finds the variables that need a gradient.

**Loop constants.** `w` is used in every iteration, so its gradient is a sum over iterations. If the gradient of an
iteration is sparse (`IndexedSlices`, of gathered rows), its slices are collected in lists and concatenated after the
loop.

**Accumulators.** The residuals of the body, which are those forward values that are not available otherwise, are stored
in lists. The forward loop gets a list as a variable, and pushes the value in each iteration. The backward loop gets the
list and pops from it. Lists are values, so data dependences alone determine the order, and no iteration waits for the
pushes of another. Push and pop are each other's gradients, so the gradient of the backward loop is a loop again, to any
order.

**Values that need no accumulator** (`GradGraph.fetch`). Values that are cheap to compute are rematerialized. Counters
count backwards. An invariant value (a variable that is read in the body) is stored once. So is the trip count of a loop
in the body, if a limit that is invariant determines it. A value and the variable that takes it over need one list, not
two: the next value of a variable in iteration i is the value of the variable in
iteration i + 1, which the backward loop has just visited.

Source: reverse-mode differentiation of while loops as in Yu et al., "Dynamic Control Flow in Large-Scale Machine
Learning" (EuroSys 2018), on immutable lists in place of stacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headrace import dtypes, shapes
from headrace.api import tracing
from headrace.grad.graph import GradBuilder, GradGraph
from headrace.grad.sums import dense
from headrace.grad.zeros import gradient_dtype, gradient_shape, shape_of_gradient, zeros_for
from headrace.ir.analysis.trip_count import trip_count
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.function import base_name, bodies
from headrace.ir.graph import FuncGraph, Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.infer import scalar_value
from headrace.ir.notes import NoBackProp, ResidualPop, ResidualPush, SwapMemory
from headrace.ir.order import counts, effects, is_constant
from headrace.records import record

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.grad.sums import Gradient
    from headrace.grad.walks import Flow, Walks
    from headrace.ir.graph import Graph, Operation
    from headrace.shapes import Shape

_COUNTERS = (dtypes.int32, dtypes.int64)


@record(slots=True)
class _Variable:
    """A variable of a backward loop.

    Attributes:
      init: its initial value, a tensor of the graph around.
      param: its parameter in the body.
      next: its value in the next iteration.
    """

    init: Tensor
    param: Tensor
    next: Tensor


class _Returned:
    """Variables of a loop that already return a tensor of the body, by use.

    Attributes:
      carried: for a tensor, the variable whose next value it is.
      invariants: for a loop-invariant tensor, the variable whose final value it is.
      pushed: for a tensor, the list variable to which each iteration pushes it.
    """

    def __init__(self, op: Operation, body: FuncGraph) -> None:
        self._op, self._body = op, body
        self._read = 0
        self.carried: dict[Tensor, int] = {}
        self.invariants: dict[Tensor, int] = {}
        self.pushed: dict[Tensor, int] = {}

    def read(self) -> None:
        """Adds the variables that the loop has gained since the last call."""
        for k in range(self._read, len(self._body.results)):
            result, param, first = self._body.results[k], self._body.params[k], self._op.inputs[k].op
            if result is not param:
                self.carried.setdefault(result, k)
            if first.type == "FakeParam":
                self.invariants.setdefault(result, k)
            push = result.op
            if push.opdef.list_kind == "push" and push.inputs[0] is param and first.opdef.list_kind == "empty":
                self.pushed.setdefault(push.inputs[1], k)
        self._read = len(self._body.results)


class GradBody(GradGraph):
    """Body of a backward loop: the gradient graph of the body of `op`.

    Args:
      name: see `GradGraph`.
      outer: see `GradGraph`.
      op: the forward loop.
      forward: the body of the forward loop.
      scope: the name scope of the gradient.
      last: the number of the last iteration of `op` (-1 if there was none), a tensor of `outer`.
    """

    def __init__(self, name: str, outer: Graph, op: Operation, forward: FuncGraph, scope: str, last: Tensor) -> None:
        super().__init__(name, outer, op, forward)
        self.last = last
        self.variables: dict[Operation, _Variable] = {}  # by the operation of the parameter
        self.builder = GradBuilder(self, scope, source=op.source)
        zero = Builder(outer, scope, source=op.source).const(0, last.dtype.base, "count")
        self.count = self.add_variable(zero, f"{base_name(op.outputs[0])}_count", ())
        self.count.next = self.builder.AddV2(self.count.param, 1, name="count")
        self._index: Tensor | None = None
        self._returned = _Returned(op, forward)
        self._invariant: dict[Tensor, bool] = {}
        self._reads: bool | None = None

    def add_variable(
        self, init: Tensor, name: str, shape: Shape = None, handle: tuple[DType, Shape] | None = None
    ) -> _Variable:
        """Adds a loop variable. It is loop-invariant until `next` is assigned.

        Args:
          init: its initial value, a tensor of the graph around.
          name: the name of its parameter.
          shape: its static shape in all iterations.
          handle: the static information of a list or handle in all iterations, or None.
        """
        param = self.add_param(init.dtype, shape, name, init.name, init.op.source, handle)
        v = _Variable(init, param, param)
        self.variables[param.op] = v
        return v

    def needed_with(self, op: Operation) -> Sequence[Tensor]:
        v = self.variables.get(op)
        return () if v is None else (v.next,)

    def drop(self, dead: set[Operation]) -> None:
        super().drop(dead)
        self.variables = {op: v for op, v in self.variables.items() if op not in dead}
        if self._index is not None and self._index.op in dead:
            self._index = None

    def passes(self, k: int) -> bool:
        return is_constant(self.forward, k)

    def given(self, k: int) -> Tensor | None:
        if self.passes(k):
            return super().given(k)
        step = self.step(k)
        if step is None:
            return None
        if scalar_value(self.op.inputs[k]) == 0 and counts(self.forward, k):  # it equals the iteration number
            number: Tensor = self.builder.Sub(self.capture(self.last), self.count.param, name="number")
            dtype = step.dtype.base
            return number if number.dtype.base is dtype else self.builder.Cast(number, DstT=dtype, name="number")
        # the counter runs backwards: its value in an iteration is its next value less the step
        v = self.add_variable(self.outer.capture(self.op.outputs[k]), self.op.name + "_counter", ())
        down = self.builder.AddV2 if step.op.opdef.facts.sum_sign < 0 else self.builder.Sub
        by = next(t for t in step.op.inputs if t is not self.forward.params[k])
        v.next = down(v.param, by, name="counter")
        return v.next

    def is_given(self, k: int) -> bool:
        return self.passes(k) or self.step(k) is not None

    def fetch(self, t: Tensor) -> Tensor:
        k = self.popped(t)
        if k is None:
            return super().fetch(t)
        # `op` popped elements from the end of the list; this loop reverses its order, so it reads from the start
        every = self.capture_outer(self.op.inputs[k])
        value: Tensor = self.builder.TensorListGetItem(
            every, self.index(), _vector(t.shape), element_dtype=t.dtype.base, name="item"
        )
        value.copy_static(t)
        return value

    def made_of(self, t: Tensor) -> Sequence[Tensor]:
        return () if self.popped(t) is not None else super().made_of(t)

    def is_available(self, t: Tensor, depth: int, seen: dict[Tensor, bool]) -> bool:
        return self.popped(t) is not None or super().is_available(t, depth, seen)

    def popped(self, t: Tensor) -> int | None:
        """Position of the accumulator from which a backward loop popped `t`, or None.

        Such a list has one element for each iteration and still exists, so its elements need not be stored again.
        """
        op = t.op
        if t.index != 1 or op.opdef.list_kind != "pop" or ResidualPop not in op.notes:
            return None
        k = self.position.get(op.inputs[0])
        return k if k is not None and self.forward.results[k] is op.outputs[0] else None

    def index(self) -> Tensor:
        """Number of finished iterations of this loop, an int32."""
        if self._index is None:
            self._index = count = self.count.param
            if count.dtype.base is not dtypes.int32:
                self._index = self.builder.Cast(count, DstT=dtypes.int32, name="index")
        return self._index

    def step(self, k: int) -> Tensor | None:
        """Next value of variable `k`, if the variable is a counter; else None.

        A counter is an integer that changes by the same loop-invariant step in each iteration.
        """
        p, r = self.forward.params[k], self.forward.results[k]
        sign = r.op.opdef.facts.sum_sign
        if p.dtype.base not in _COUNTERS or p.shape != () or not sign:
            return None
        x, y = r.op.inputs
        if x is p:
            by = y
        elif y is p and sign > 0:
            by = x
        else:
            return None
        at = self.position.get(by)
        fixed = by.op.type == "Const" or (at is not None and self.passes(at))
        return r if fixed and by.shape == () else None

    def residual(self, t: Tensor) -> Tensor:
        self._returned.read()
        if self.is_invariant(t):
            k = self._returned.invariants.get(t)
            return self.capture_outer(hoisted(self.op, t) if k is None else self.op.outputs[k])
        k = self._returned.carried.get(t)
        return self._accumulated(t) if k is None else self._carried(t, k)

    def is_invariant(self, t: Tensor) -> bool:
        """Whether the forward tensor `t` is loop-invariant.

        It is if it is computed only from loop constants, and from variables that the loop only reads.
        """
        known, todo = self._invariant, [t]
        while todo:  # no recursion, because chains of operations may be longer than Python's stack
            top = todo[-1]
            op, k = top.op, self.position.get(top)
            if top in known:
                todo.pop()
            elif k is not None:
                known[top] = self.passes(k)
            elif not (op.opdef.is_pure or (op.opdef.facts.effect == "resource" and self._only_reads())):
                known[top] = False
            else:
                unknown = [i for i in op.inputs if i not in known]
                if unknown and all(known.get(i, True) for i in op.inputs):
                    todo += unknown
                else:
                    known[top] = not unknown and all(known[i] for i in op.inputs)
        return known[t]

    def _only_reads(self) -> bool:
        """Whether the loop changes no state."""
        if self._reads is None:
            self._reads = not any(effects(self.op).values())
        return self._reads

    def _carried(self, t: Tensor, k: int) -> Tensor:
        """Returns `t`, the next value of variable `k`, without an accumulator.

        It equals the value of the variable in the forward iteration that the backward loop visited before.
        """
        p = self.forward.params[k]
        shape = shapes.join(t.shape, p.shape)
        v = self.add_variable(self.outer.capture(self.op.outputs[k]), f"{t.op.name}_next", shape, t.handle)
        self.have[t] = v.param
        v.next = self.capture(p)
        return v.param

    def _accumulated(self, t: Tensor) -> Tensor:
        k = self._returned.pushed.get(t)
        out = accumulator(self.op, t) if k is None else self.op.outputs[k]
        v = self.add_variable(self.outer.capture(out), f"{t.op.name}_acc", (), out.handle)
        rest, value = self.builder.make(
            "TensorListPopBack",
            (v.param, _vector(t.shape)),
            {"element_dtype": t.dtype.base},
            "pop",
            [ResidualPop()],
        )
        value.copy_static(t)
        v.next = rest
        popped: Tensor = value
        return popped

    def finish(self, b: Builder) -> Operation:
        """Makes the backward loop, which has the trip count of the forward loop."""
        of = {v.param: v for v in self.variables.values()}
        outside = {p: t for t, p in self.captured}
        most = self.capture(self.last)
        outside.setdefault(most, self.last)
        cond = FuncGraph(self.name.replace("body", "cond"), b.graph, shares_names=True)
        cond.role, cond.source = f"the condition of {self.title}", self.source
        for p in self.params:
            name = p.op.name.removeprefix("arg.")
            cond.add_param(p.dtype, p.static_shape, name, p.op.attrs["of"], handle=p.handle)
        at = {p: k for k, p in enumerate(self.params)}
        inner = Builder(cond, self.builder.scope, source=self.source)
        goes_on = inner.LessEqual(cond.params[at[self.count.param]], cond.params[at[most]])
        cond.set_results([goes_on], (), self.is_ordered)
        tracing.finish(self, [of[p].next if p in of else p for p in self.params])
        inputs = [of[p].init if p in of else outside[p] for p in self.params]
        type = "While" if tracing.is_stateful(self) else "StatelessWhile"
        attrs = {"cond": cond, "body": self, "parallel_iterations": self.op.attrs.get("parallel_iterations", 10)}
        notes = [n for n in self.op.notes if isinstance(n, SwapMemory)]
        return tracing.operation_of(b.after(*self.outer_controls).make(type, (inputs,), attrs, "While", notes))


def trip_count_tensor(op: Operation) -> Tensor:
    """Returns the trip count of the loop `op`, from a counter of it.

    If the loop has no counter, one is added. In a graph that another one owns, such as the body of a loop, the trip
    count is computed from the limit of the counter where possible. An outer gradient need not keep it in each iteration
    then.
    """
    graph: FuncGraph = op.attrs["body"]
    b = Builder(op.graph, source=op.source)
    known = trip_count(op) if isinstance(op.graph, FuncGraph) else None
    if known is not None and known.count is not None:
        return b.const(known.count, known.bounds[0].first.dtype.base, f"{op.name}/trips")
    if known is not None and known.is_exact and len(known.bounds) == 1:
        (bound,) = known.bounds
        if bound.position is not None and not bound.is_inclusive and scalar_value(bound.first) == 0:
            trips: Tensor = b.Maximum(bound.limit, 0, name=f"{op.name}/trips")
            return trips
    counters = [k for k in range(len(graph.params)) if counts(graph, k)]
    for k in sorted(counters, key=lambda k: scalar_value(op.inputs[k]) != 0):
        first, last = op.inputs[k], op.outputs[k]
        return last if scalar_value(first) == 0 else b.Sub(last, first, name=f"{op.name}/trips")
    param, out = add_values.add_variable(op, b.const(0, dtypes.int64, f"{op.name}/trips"), f"{op.name}_trips")
    one_more = Builder(graph, source=op.source).AddV2(param, 1, name=f"{op.name}/trips/add")
    add_values.set_result(op, len(graph.params) - 1, one_more)
    return out


def accumulator(op: Operation, t: Tensor) -> Tensor:
    """Adds a list of the values of `t` in all iterations to the loop `op`.

    Args:
      op: the loop.
      t: a tensor of its body.

    Returns:
      The list, an output of the loop.
    """
    graph: FuncGraph = op.attrs["body"]
    dtype = t.dtype.base
    b = Builder(op.graph, source=t.op.source, device=t.op.device)  # residuals are stored on the device that makes them
    first = b.EmptyTensorList(_vector(t.shape), -1, element_dtype=dtype, name=f"{op.name}/{base_name(t)}_acc")
    param, out = add_values.add_variable(op, first, f"{base_name(t)}_acc")
    where = f" ({t.op.source})" if t.op.source is not None else ""
    note = ResidualPush(f"'{t.name}' of loop '{op.name}'{where}", may_swap=SwapMemory in op.notes)
    at = dataclasses.replace(b, graph=graph)
    pushed = at.make("TensorListPushBack", (param, t), {}, f"{t.op.name}/push", [note])
    add_values.set_result(op, len(graph.params) - 1, pushed)
    return out


def _vector(shape: Shape) -> np.ndarray:
    """A shape as an argument of list operations: -1 for an unknown rank or dimension."""
    return np.array(-1 if shape is None else [-1 if d is None else d for d in shape], np.int32)


def hoisted(op: Operation, t: Tensor) -> Tensor:
    """Adds an output with the loop-invariant value of `t` to the loop `op`.

    If the loop runs no iteration, the output has no value and is not read.

    Args:
      op: the loop.
      t: a tensor of its body, equal in all iterations.
    """
    graph: FuncGraph = op.attrs["body"]
    nothing = Builder(op.graph, source=t.op.source).FakeParam(dtype=t.dtype.base, shape=t.shape, name=f"{op.name}/none")
    _, out = add_values.add_variable(op, nothing, f"{base_name(t)}_held")
    add_values.set_result(op, len(graph.params) - 1, t)
    return out


def flow_of_loop(flow: Flow, op: Operation, ins: Sequence[int]) -> list[int]:
    """Returns the sets of sources of the outputs of a While; see `conditionals.flow_of_branches`."""
    body = dict(bodies(op))["body"]
    bits = list(ins)
    for _ in range(len(bits) + 1):
        more = [old | new for old, new in zip(bits, flow.through_graph(body, bits), strict=True)]
        if more == bits:
            return bits
        bits = more
    raise AssertionError("the fixpoint iteration over the loop variables did not converge")


def grad_loop(
    b: Builder, op: Operation, dys: Sequence[Gradient | None], wanted: Sequence[bool], walks: Walks
) -> list[Gradient | None]:
    """Returns the gradients of a While; see `conditionals.grad_branches`."""
    none: list[Gradient | None] = [None] * len(op.inputs)
    if NoBackProp in op.notes:
        return none
    add_values.own_graphs(op)
    forward: FuncGraph = op.attrs["body"]
    seeded = [k for k, dy in enumerate(dys) if dy is not None]
    reached = [k for k, want in enumerate(wanted) if want]
    active = sorted(walks.flow.active(forward, reached, seeded))
    if not active:
        return none
    last = b.Sub(trip_count_tensor(op), 1, name="last")
    body = GradBody(f"{op.name}_grad_body", b.graph, op, forward, b.scope, last)
    at = body.builder

    moving = [k for k in active if not is_constant(forward, k)]
    carried: dict[int, _Variable] = {}
    for k in moving:
        p, dy = forward.params[k], dys[k]
        init = zeros_for(b, op.outputs[k]) if dy is None else dense(b, dy)
        carried[k] = body.add_variable(init, f"{base_name(p)}_grad", gradient_shape(p), p.handle)
    ys = [forward.results[k] for k in moving]
    found = walks.backward(at, ys, [carried[k].param for k in moving], [forward.params[k] for k in active])
    collected: dict[int, list[_Variable]] = {}
    for k, g in zip(active, found, strict=True):
        if k in carried:
            carried[k].next = zeros_for(at, forward.params[k]) if g is None else dense(at, g)
        elif g is not None:
            collected[k] = _collect(b, body, op, k, dys[k], g)

    loop = body.finish(b)
    result = dict(zip(body.params, loop.outputs, strict=True))
    grads = list(none)
    for k in active:
        if k in carried:
            grads[k] = result[carried[k].param]
        elif k not in collected:
            grads[k] = dys[k]
        else:
            ends = [result[v.param] for v in collected[k]]
            grads[k] = ends[0] if len(ends) == 1 else _slices(b, op.inputs[k], ends, found[active.index(k)], dys[k])
    return grads


def _collect(b: Builder, body: GradBody, op: Operation, k: int, dy: Gradient | None, part: Gradient) -> list[_Variable]:
    """Adds variables that collect the gradient of a loop constant.

    They are a sum, or lists of slices.

    Args:
      b: the builder of the gradient, in the graph around the backward loop.
      body: the body of the backward loop.
      op: the forward loop.
      k: the position of the loop constant.
      dy: the gradient of the loop's output `k`, or None.
      part: the gradient of an iteration.
    """
    at, p, name = body.builder, body.forward.params[k], base_name(body.forward.params[k])
    if isinstance(part, IndexedSlices):
        lists = []
        for what, t in (("values", part.values), ("indices", part.indices)):
            shape = None if t.shape is None else (None, *t.shape[1:])
            first = b.EmptyTensorList(_vector(shape), -1, element_dtype=t.dtype.base)
            v = body.add_variable(first, f"{name}_{what}", (), first.handle)
            v.next = at.TensorListPushBack(v.param, t)
            lists.append(v)
        return lists
    v = body.add_variable(
        zeros_for(b, op.inputs[k]) if dy is None else dense(b, dy), f"{name}_grad", gradient_shape(p), p.handle
    )
    v.next = at.AddN([v.param, part])
    return [v]


def _slices(b: Builder, x: Tensor, lists: Sequence[Tensor], part: Gradient | None, dy: Gradient | None) -> Gradient:
    """Returns the sum of the slices in `lists` and of `dy`, the gradient of `x`."""
    from headrace.grad.sums import total

    assert isinstance(part, IndexedSlices)
    shape = shape_of_gradient(b, x)
    rows = b.StridedSlice(shape, [1], [0], [1], end_mask=1)
    values, _ = b.TensorListConcatV2(
        lists[0],
        b.ConcatV2([[-1], rows], 0),
        b.const([], dtypes.int64, "leading_dims"),
        element_dtype=gradient_dtype(x),
    )
    indices, _ = b.TensorListConcatV2(
        lists[1], [-1], b.const([], dtypes.int64, "leading_dims"), element_dtype=part.indices.dtype.base
    )
    static = gradient_shape(x)
    values.replace_static(None if static is None else (None, *static[1:]), values.handle)
    all_slices = IndexedSlices(values, indices, shape)
    every = total(b, [all_slices] if dy is None else [dy, all_slices])
    assert every is not None
    return every
