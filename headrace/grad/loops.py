"""Gradients of loops.

    h = While(h0)     condition: h < 100      body: sin(h) * w         (w is captured: a loop constant)

runs N times. Its gradient runs N times too, from the last iteration to the first, and is a loop like any other:

    k, dh, dw, hs = While(0, dy, 0, all h)     condition: k < N
        body:  hs', h = pop(hs)                       the h of that iteration
               k + 1,  dh * cos(h) * w,  dw + dh * sin(h),  hs'

Each thing in it has a reason of its own.

**The trip counter.** The forward loop does not say how often it ran. So it gets a variable more, which counts; unless
it has one already. The backward loop counts to that, and its own counter is its trip counter when it is differentiated.

**The variables that carry a gradient.** `dh` begins as the gradient of the loop's result, or zeros; the gradient of the
body makes of the gradient of what the body returned that of what it was given. With no trip at all it comes out as it
went in, which is right: then the loop returned what it was given. Which variables need one is a question of flow
(`grad.activity`).

**Loop constants.** `w` is used in every iteration, so its gradient is a sum over iterations. If what the body has for
it is sparse (`IndexedSlices`, of rows gathered), slices are collected in lists and put together after the loop.

**Accumulators.** What the backward body needs of the forward body and cannot have otherwise is kept: the forward loop
gets a list for a variable, to which each iteration pushes the value, and the backward loop one from which it pops.
Lists are values, so order is kept by data dependence alone, iterations need not wait for one another's pushes, and push
and pop are each other's gradients: the gradient of the backward loop is a loop again, to any order.

Less is kept than one might think (`GradGraph.fetch`): nothing that is cheap to compute again; counters not, they can
count backwards; what is the same in all iterations (a variable that is read in the body) once; of what goes from one
iteration to the next one list, not two: the value that a variable gets in iteration i is the one it has in iteration
i + 1, where the backward loop has just been.

Source: reverse-mode differentiation of while loops as in Yu et al., "Dynamic Control Flow in Large-Scale Machine
Learning" (EuroSys 2018), on immutable lists in place of stacks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace import dtypes, shapes
from headrace.api import tracing
from headrace.grad.activity import Activity
from headrace.grad.graph import GradBuilder, GradGraph
from headrace.grad.sums import dense
from headrace.grad.zeros import gradient_dtype, gradient_shape, shape_of_gradient, zeros_for
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.function import base_name
from headrace.ir.graph import FuncGraph, Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.infer import scalar_value
from headrace.ir.order import counts, effects, is_constant

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.grad.conditionals import Backward
    from headrace.grad.sums import Gradient
    from headrace.ir.graph import Graph, Operation
    from headrace.shapes import Shape

_COUNTERS = (dtypes.int32, dtypes.int64)


@dataclasses.dataclass(slots=True)
class _Variable:
    """A variable of a backward loop: its first value, its parameter, its value in the next iteration."""

    init: Tensor
    param: Tensor
    next: Tensor


class _Returned:
    """Which variable of a loop has a tensor of the body, in each way in which a gradient can use it.

    Attributes:
      carried: a tensor → the variable that it is the next value of.
      invariants: a loop-invariant tensor → the variable whose last value it is.
      pushed: a tensor → the list to which each iteration pushes it.
    """

    def __init__(self, op: Operation, body: FuncGraph) -> None:
        self._op, self._body = op, body
        self._read = 0
        self.carried: dict[Tensor, int] = {}
        self.invariants: dict[Tensor, int] = {}
        self.pushed: dict[Tensor, int] = {}

    def read(self) -> None:
        """Takes in the variables that the loop has gained."""
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
    """The body of a backward loop: the gradient of the body of `op`.

    Args:
      name, outer, op, forward: see `GradGraph`.
      scope: of names.
      last: the number of the last iteration of `op` (-1 if it did not go round), a tensor of `outer`.
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
        """A variable more, which is what it was as long as nobody sets its `next`.

        Args:
          init: its first value, a tensor of the graph around.
          name: of its parameter.
          shape, handle: what is known of it in all iterations.
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
        if scalar_value(self.op.inputs[k]) == 0 and counts(self.forward, k):  # it is the iteration's number
            number: Tensor = self.builder.Sub(self.capture(self.last), self.count.param, name="number")
            dtype = step.dtype.base
            return number if number.dtype.base is dtype else self.builder.Cast(number, DstT=dtype, name="number")
        # it counts backwards: before the last step it had its last value less that step
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
        # the loop popped it from the end of a list, in the last iteration first; this one begins with that
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
        """If `t` is what a backward loop popped from an accumulator, the number of that variable.

        Such a list has an element for each iteration, so it need not be kept again: it is still there.
        """
        op = t.op
        if t.index != 1 or op.opdef.list_kind != "pop" or not op.attrs.get("_accumulated"):
            return None
        k = self.position.get(op.inputs[0])
        return k if k is not None and self.forward.results[k] is op.outputs[0] else None

    def index(self) -> Tensor:
        """How many iterations of this loop have been, an int32."""
        if self._index is None:
            self._index = count = self.count.param
            if count.dtype.base is not dtypes.int32:
                self._index = self.builder.Cast(count, DstT=dtypes.int32, name="index")
        return self._index

    def step(self, k: int) -> Tensor | None:
        """If variable `k` is a counter, what it becomes: an integer plus or minus the same in each iteration."""
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
        """Whether `t`, of the forward body, has the same value in all iterations: it is computed from loop constants,
        and from variables that the loop only reads."""
        known, todo = self._invariant, [t]
        while todo:  # chains of operations may be longer than Python's stack
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
        """Whether the loop changes nothing outside."""
        if self._reads is None:
            self._reads = not any(effects(self.op).values())
        return self._reads

    def _carried(self, t: Tensor, k: int) -> Tensor:
        """What variable `k` gets in an iteration: what it has in the next one, where this loop comes from."""
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
            {"element_dtype": t.dtype.base, "_accumulated": True},
            "pop",
        )
        value.copy_static(t)
        v.next = rest
        popped: Tensor = value
        return popped

    def finish(self, b: Builder) -> Operation:
        """The loop, which goes round as often as the forward one."""
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
        if self.op.attrs.get("_swap_memory"):
            attrs["_swap_memory"] = True
        return tracing.operation_of(b.after(*self.outer_controls).make(type, (inputs,), attrs, "While"))


def trip_count_tensor(op: Operation) -> Tensor:
    """How often the loop `op` went round: what one of its variables counted; one is made if there is none."""
    graph: FuncGraph = op.attrs["body"]
    b = Builder(op.graph, source=op.source)
    counters = [k for k in range(len(graph.params)) if counts(graph, k)]
    for k in sorted(counters, key=lambda k: scalar_value(op.inputs[k]) != 0):
        first, last = op.inputs[k], op.outputs[k]
        return last if scalar_value(first) == 0 else b.Sub(last, first, name=f"{op.name}/trips")
    param, out = add_values.add_variable(op, b.const(0, dtypes.int64, f"{op.name}/trips"), f"{op.name}_trips")
    one_more = Builder(graph, source=op.source).AddV2(param, 1, name=f"{op.name}/trips/add")
    add_values.set_result(op, len(graph.params) - 1, one_more)
    return out


def accumulator(op: Operation, t: Tensor) -> Tensor:
    """A new list of the values that `t`, a tensor of the body of the loop `op`, has in all iterations: an output."""
    graph: FuncGraph = op.attrs["body"]
    dtype = t.dtype.base
    b = Builder(op.graph, source=t.op.source, device=t.op.device)  # what is kept stays where it is made
    first = b.EmptyTensorList(_vector(t.shape), -1, element_dtype=dtype, name=f"{op.name}/{base_name(t)}_acc")
    param, out = add_values.add_variable(op, first, f"{base_name(t)}_acc")
    where = f" ({t.op.source})" if t.op.source is not None else ""
    attrs: dict[str, Any] = {"_accumulates": f"'{t.name}' of loop '{op.name}'{where}"}
    if op.attrs.get("_swap_memory"):
        attrs["_swap"] = True
    at = dataclasses.replace(b, graph=graph)
    pushed = at.make("TensorListPushBack", (param, t), attrs, f"{t.op.name}/push")
    add_values.set_result(op, len(graph.params) - 1, pushed)
    return out


def _vector(shape: Shape) -> np.ndarray:
    """A shape as operations on lists take it: -1 for what is unknown."""
    return np.array(-1 if shape is None else [-1 if d is None else d for d in shape], np.int32)


def hoisted(op: Operation, t: Tensor) -> Tensor:
    """The value that `t`, a tensor of the body of the loop `op`, has in all iterations alike: a new output of the loop.
    If the loop does not go round it is nothing, and nobody asks for it."""
    graph: FuncGraph = op.attrs["body"]
    nothing = Builder(op.graph, source=t.op.source).FakeParam(dtype=t.dtype.base, shape=t.shape, name=f"{op.name}/none")
    _, out = add_values.add_variable(op, nothing, f"{base_name(t)}_held")
    add_values.set_result(op, len(graph.params) - 1, t)
    return out


def grad_loop(
    b: Builder, op: Operation, dys: Sequence[Gradient | None], wanted: Sequence[bool], backward: Backward
) -> list[Gradient | None]:
    """The gradients of a While with respect to the inputs that are `wanted`; see `conditionals.grad_branches`."""
    none: list[Gradient | None] = [None] * len(op.inputs)
    if not op.attrs.get("_back_prop", True):
        return none
    add_values.own_graphs(op)
    forward: FuncGraph = op.attrs["body"]
    seeded = [k for k, dy in enumerate(dys) if dy is not None]
    reached = [k for k, want in enumerate(wanted) if want]
    active = sorted(Activity().active(forward, reached, seeded))
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
    found = backward(at, ys, [carried[k].param for k in moving], [forward.params[k] for k in active])
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
    """The variables in which the gradient of a loop constant comes together: a sum, or lists of slices."""
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
    """The slices that were collected in `lists`, and `dy`, as the gradient with respect to `x`."""
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
    return all_slices if dy is None else total(b, [dy, all_slices]) or all_slices
