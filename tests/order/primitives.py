"""TensorFlow 1's construction of control flow, in plain Python.

It is the reference for the operations that an operation waits for. A program of `tests.order.programs` is executed with
`tests.order.api` in the place of TensorFlow. The result is the primitive graph that TensorFlow 1 would build: every
loop variable has its Enter, Merge, Switch, NextIteration and Exit, every captured tensor its Switch or Enter, used or
not, and control inputs end where `control_flow_ops.py` lets them end. `tests.order.reference` executes that graph.

Source: tensorflow/python/ops/control_flow_ops.py (CondContext, WhileContext), framework/ops.py
(`_ControlDependenciesController`), ops/map_fn.py, ops/functional_ops.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.order.api import Api

Effect = tuple[str, str]  # (resource, "read" | "write" | "add": adds commute)


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """One operation of the primitive graph.

    Attributes:
      id: Position in the order of creation.
      type: Switch, Merge, Enter, Exit, NextIteration, LoopCond, Gradient, or "" for a plain node.
      inputs, controls: Data and control edges.
      context: The branch or loop that contains the operation.
      compute: Function (state, values) -> value of a plain node, see `reference`.
      effect: The resource that the operation reads or changes.
      label: Kind and number of an operation that is counted by itself.
      is_constant: Whether an Enter's value is loop-invariant.
      frame: The loop of an Enter or Exit.
      has_outputs: Whether the operation has outputs.
      extra: Further operations that are reached with this one (automatic order), without being waited for.
      results: All results of a structure, for each result of it.
      outputs: The outputs of the operation.
    """

    id: int
    type: str
    inputs: list[Tensor]
    controls: list[Node]
    context: Context | None
    compute: Callable[..., Any] | None = None
    effect: Effect | None = None
    label: tuple[str, int] | None = None  # ("call", 7)
    is_constant: bool = False
    frame: WhileContext | None = None
    has_outputs: bool = True
    extra: list[Node] = dataclasses.field(default_factory=list)
    results: list[Node] = dataclasses.field(default_factory=list)
    outputs: tuple[Tensor, ...] = ()

    def loop(self) -> WhileContext | None:
        """The loop in whose frame the operation fires.

        An Enter or Exit fires in the frame around its loop.
        """
        context = self.context.while_context() if self.context is not None else None
        if self.type in ("Enter", "Exit"):
            assert self.frame is not None
            return self.frame.outer.while_context() if self.frame.outer is not None else None
        return context


@dataclasses.dataclass(frozen=True, eq=False)
class Tensor:
    op: Node
    index: int = 0
    api: Any = dataclasses.field(default=None, repr=False)

    def __add__(self, other: Any) -> Tensor:
        return self.api.pure(lambda a, b: a + b, lambda a, b, da, db: da + db, self, other)

    def __sub__(self, other: Any) -> Tensor:
        return self.api.pure(lambda a, b: a - b, lambda a, b, da, db: da - db, self, other)

    def __mul__(self, other: Any) -> Tensor:
        return self.api.pure(lambda a, b: a * b, lambda a, b, da, db: da * b + a * db, self, other)

    def __lt__(self, other: Any) -> Tensor:
        return self.api.pure(lambda a, b: a < b, None, self, other)

    def set_shape(self, shape: Any) -> None:
        pass


class Context:
    """A branch of a conditional, or a loop, while it is built."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.outer = graph.context
        self.values: set[Tensor] = set()
        self.external: dict[Tensor, Tensor] = {}

    def while_context(self) -> WhileContext | None:
        return self.outer.while_context() if self.outer is not None else None

    def pivot(self) -> Node:
        raise NotImplementedError

    def add_value(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def split_controls(self, op: Node) -> list[Node]:
        """`_RemoveExternalControlEdges`: keeps the control inputs from the same loop, returns the others."""
        loop = self.while_context()
        if loop is None:
            return []
        inside, outside = [], []
        for c in op.controls:
            context = output_context(c)
            same = context is not None and context.while_context() is loop
            (inside if same else outside).append(c)
        op.controls = inside
        return outside

    def add_op(self, op: Node) -> None:
        raise NotImplementedError


def output_context(op: Node) -> Context | None:
    """The context of what an operation gives."""
    context = op.context
    if op.type == "Exit" and context is not None:
        return context.outer
    return context


def _is_in(op: Node, context: Context) -> bool:
    at = op.context
    while at is not None and at is not context:
        at = at.outer
    return at is context


class CondContext(Context):
    def __init__(self, graph: Graph, pred: Tensor, pivot: Tensor, branch: int) -> None:
        super().__init__(graph)
        self.pred, self.pivot_tensor, self.branch = pred, pivot, branch
        self.values |= {pred, pivot}
        self.external[pred] = pred
        pivot.op.context = self

    def pivot(self) -> Node:
        return self.pivot_tensor.op

    def add_value(self, t: Tensor) -> Tensor:
        if t in self.values:
            return self.external.get(t, t)
        result = t
        self.values.add(t)
        if self.outer is not None:
            result = self.outer.add_value(t)
            self.values.add(result)
            self.external[result] = result
        with self.graph.clear():
            result = self.graph.switch(result, self.pred)[self.branch]
        result.op.context = self
        at: Context | None = self
        while at is not None:
            at.values.add(result)
            at = at.outer
        self.external[t] = result
        return result

    def add_op(self, op: Node) -> None:
        if not op.inputs:
            self.split_controls(op)
            if not any(_is_in(c, self) for c in op.controls):
                op.controls.append(self.pivot())
        else:
            op.inputs[:] = [self.add_value(t) for t in op.inputs]
            self.split_controls(op)
        at: Context | None = self
        while at is not None:
            at.values.update(op.outputs)
            at = at.outer

    def result(self, t: Tensor) -> Tensor:
        """`_ProcessOutputTensor`."""
        if t in self.values:
            return self.external.get(t, t)
        real = t
        self.values.add(t)
        if self.outer is not None:
            real = self.outer.add_value(t)
            self.values.add(real)
            self.external[real] = real
        real = self.graph.switch(real, self.pred)[self.branch]
        self.external[t] = real
        return real


class WhileContext(Context):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.pivot_for_pred: Node | None = None
        self.pivot_for_body: Node | None = None
        self.cond: Node | None = None

    def while_context(self) -> WhileContext:
        return self

    def pivot(self) -> Node:
        out = self.pivot_for_body or self.pivot_for_pred
        assert out is not None
        return out

    def add_value(self, t: Tensor) -> Tensor:
        if t in self.values:
            return self.external.get(t, t)
        self.values.add(t)
        result = t
        if self.outer is not None:
            result = self.outer.add_value(t)
        with self.graph.clear():
            enter = self.graph.enter(result, self, is_constant=True)
        self.fix_controls([enter])
        self.values.add(enter)
        self.external[t] = enter
        return enter

    def fix_controls(self, enters: Iterable[Tensor]) -> None:
        """`_FixControlInputsAndContext`: an Enter waits for the control inputs of the `while_loop` call."""
        for enter in enters:
            kept = []
            for c in self.graph.dependencies([enter.op.inputs[0].op]):
                context, at = output_context(c), self.outer
                outer_loop = self.outer.while_context() if self.outer is not None else None
                keep = True
                while at is not context:
                    if at is None or at is outer_loop:
                        keep = False
                        break
                    at = at.outer
                if keep:
                    kept.append(c)
            enter.op.context = self
            enter.op.controls += kept
            self.graph.record(enter.op)

    def add_op(self, op: Node) -> None:
        if not op.inputs:
            outside = self.split_controls(op)
            if not op.controls:
                op.controls.append(self.pivot())
        else:
            op.inputs[:] = [self.add_value(t) for t in op.inputs]
            outside = self.split_controls(op)
            is_free = not op.controls and all(t.op.type == "Enter" and t.op.is_constant for t in op.inputs)
            if is_free:
                op.controls.append(self.pivot())
        self.values.update(op.outputs)
        if outside:
            with self.graph.clear():
                previous, self.graph.context = self.graph.context, self
                copies = [self.graph.identity(c.outputs[0]).op for c in outside if c.has_outputs]
                self.graph.context = previous
            op.controls += copies


class Graph:
    """The primitive graph under construction."""

    def __init__(self, api: Api, whole: bool) -> None:
        self.api = api
        self.whole = whole
        self.nodes: list[Node] = []
        self.context: Context | None = None
        self.controllers: list[tuple[list[Node], set[Node]]] = []

    # *** scopes ***

    @contextlib.contextmanager
    def clear(self) -> Iterator[None]:
        """`control_dependencies(None)`."""
        before = self.controllers, self.context
        self.controllers, self.context = [], None
        try:
            yield
        finally:
            self.controllers, self.context = before

    @contextlib.contextmanager
    def control_dependencies(self, inputs: Iterable[Any]) -> Iterator[None]:
        nodes = list(dict.fromkeys(n for x in inputs for n in self.waited_for(x)))
        self.controllers.append((nodes, set()))
        try:
            yield
        finally:
            self.controllers.pop()

    def waited_for(self, x: Any) -> list[Node]:
        """Operations that a structured result as a control input stands for.

        These are its Merge or Exit; with `whole`, those of all results of its structure.
        """
        op = x if isinstance(x, Node) else x.op
        return op.results if self.whole and op.results else [op]

    def dependencies(self, inputs: Sequence[Node]) -> list[Node]:
        """`_control_dependencies_for_inputs`."""
        out: list[Node] = []
        for nodes, seen in self.controllers:
            if not any(op in seen for op in inputs):
                out += [c for c in nodes if c not in inputs]
        return out

    def record(self, op: Node) -> None:
        for _, seen in self.controllers:
            seen.add(op)

    # *** operations ***

    def add(self, type: str, inputs: Sequence[Tensor], outputs: int = 1, **attrs: Any) -> Node:
        controls = self.dependencies([t.op for t in inputs])
        op = Node(len(self.nodes), type, list(inputs), list(dict.fromkeys(controls)), self.context, **attrs)
        op.has_outputs = outputs > 0
        op.outputs = tuple(Tensor(op, i, self.api) for i in range(outputs))
        self.nodes.append(op)
        self.record(op)
        if self.context is not None:
            self.context.add_op(op)
        self.api.made(op)
        return op

    def identity(self, t: Tensor) -> Tensor:
        return self.add("", [t], compute=lambda state, x: x).outputs[0]

    def switch(self, t: Tensor, pred: Tensor) -> tuple[Tensor, ...]:
        return self.add("Switch", [t, pred], 2).outputs

    def enter(self, t: Tensor, loop: WhileContext, is_constant: bool = False) -> Tensor:
        return self.add("Enter", [t], frame=loop, is_constant=is_constant).outputs[0]

    # *** structures ***

    def cond(self, pred: Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
        off, on = self.switch(pred, pred)
        pivots = self.identity(on), self.identity(off)
        pred = self.identity(pred)
        results, single = [], False
        for branch, pivot, fn in ((1, pivots[0], true_fn), (0, pivots[1], false_fn)):
            context = CondContext(self, pred, pivot, branch)
            self.context, outer = context, self.context
            given = fn()
            single = not isinstance(given, (list, tuple))
            flat = [given] if single else list(given)
            results.append([context.result(self.branch_result(context, x)) for x in flat])
            self.context = outer
        merges = [self.add("Merge", list(pair)) for pair in zip(results[1], results[0], strict=True)]
        for m in merges:
            m.results = merges
        outs = [m.outputs[0] for m in merges]
        return outs[0] if single else tuple(outs)

    def branch_result(self, context: CondContext, x: Any) -> Tensor:
        if not isinstance(x, Node):
            return self.api.tensor(x)
        with self.control_dependencies([x]):  # an operation: the pivot stands for it
            return self.identity(context.pivot_tensor)

    def while_loop(self, cond: Callable[..., Any], body: Callable[..., Any], loop_vars: Sequence[Any]) -> Any:
        given = [self.api.tensor(x) for x in loop_vars]
        context = WhileContext(self)
        outer, self.context = self.context, context
        real = given if outer is None else [outer.add_value(t) for t in given]
        context.values = set(given)
        with self.clear():
            enters = [self.enter(t, context) for t in real]
        if outer is not None:
            for e in enters:
                if e.op.inputs[0].op.type == "Enter" and e.op.inputs[0].op.is_constant:
                    e.op.controls.append(outer.pivot())
        context.fix_controls(enters)
        context.values = set(enters)
        merges = [self.add("Merge", [e, e]).outputs[0] for e in enters]
        context.pivot_for_pred = merges[0].op
        context.cond = self.add("LoopCond", [self.api.tensor(cond(*merges))])
        switches = [self.switch(m, context.cond.outputs[0]) for m in merges]
        inside = [self.identity(s[1]) for s in switches]
        context.pivot_for_body = inside[0].op
        results = body(*inside)
        results = list(results) if isinstance(results, (list, tuple)) else [results]
        for m, r in zip(merges, [self.api.tensor(r) for r in results], strict=True):
            m.op.inputs[1] = self.add("NextIteration", [r]).outputs[0]
        exits = [self.add("Exit", [s[0]], frame=context).outputs[0] for s in switches]
        self.context = outer
        at = outer
        while at is not None:
            at.values.update(exits)
            at = at.outer
        for e in exits:
            e.op.results = [x.op for x in exits]
        return exits[0] if len(exits) == 1 else tuple(exits)
