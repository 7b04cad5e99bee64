"""TensorFlow 1's construction of control flow, in plain Python: the reference for what an operation waits for.

A program of `tests.order.programs` is executed with `Api` in the place of TensorFlow. The result is the primitive
graph that TensorFlow 1 would build: every loop variable has its Enter, Merge, Switch, NextIteration and Exit, every
captured tensor its Switch or Enter, used or not, and control inputs end where `control_flow_ops.py` lets them end.
`tests.order.reference` executes that graph.

Source: tensorflow/python/ops/control_flow_ops.py (CondContext, WhileContext), framework/ops.py
(`_ControlDependenciesController`), ops/map_fn.py, ops/functional_ops.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Effect = tuple[str, str]  # (resource, "read" | "write" | "add": adds commute)


@dataclasses.dataclass(eq=False, slots=True)
class Node:
    """One operation of the primitive graph.

    Attributes:
      id: creation order.
      type: Switch, Merge, Enter, Exit, NextIteration, LoopCond, Gradient, or "" for what `compute` does.
      inputs, controls: data and control edges.
      context: the branch or loop it is in.
      loop: the loop whose frame it runs in (an Exit runs in the frame around).
      compute: of a plain node: (state, values) -> value, see `reference`.
      effect: the resource that it reads or changes.
      extra: further operations that are reached with this one (automatic order), without being waited for.
      results: of a result of a structure: all results of that structure.
    """

    id: int
    type: str
    inputs: list[Tensor]
    controls: list[Node]
    context: Context | None
    compute: Callable[..., Any] | None = None
    effect: Effect | None = None
    label: tuple[str, int] | None = None  # of what is counted by itself: ("call", 7)
    is_constant: bool = False  # of an Enter
    frame: WhileContext | None = None  # of an Enter or Exit: the loop it belongs to
    has_outputs: bool = True
    extra: list[Node] = dataclasses.field(default_factory=list)
    results: list[Node] = dataclasses.field(default_factory=list)
    outputs: tuple[Tensor, ...] = ()

    def loop(self) -> WhileContext | None:
        """The loop in whose frame the operation fires."""
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
        """`_FixControlInputsAndContext`: an Enter waits for what the `while_loop` call was told to wait for."""
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
        """A structured result as a control input: its Merge or Exit; with `whole` all of its structure's."""
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


def _unfed(state: Any) -> Any:
    """A placeholder: its operation may fire, and nothing reads what it gives."""
    return 0.0, 0.0


class Unread:
    """What an assignment returns: reading it is a read that waits for the assignment."""

    def __init__(self, variable: Variable, op: Node) -> None:
        self.variable, self.op = variable, op


class Variable:
    def __init__(self, api: Api, name: str, size: int | None) -> None:
        self.api, self.name, self.size = api, name, size
        with api.graph.clear():
            self.handle = api.graph.add("", [], compute=lambda state: None).outputs[0]

    def read_value(self) -> Tensor:
        return self.api.graph.add(
            "", [self.handle], compute=lambda state, h: state.read(self.name), effect=(self.name, "read")
        ).outputs[0]

    def _change(self, mode: str, x: Any, read_value: bool, change: Callable[..., Any], k: int = -1) -> Any:
        row = [] if k < 0 else [self.api.tensor(float(k))]
        inputs = [self.handle, *row, self.api.tensor(x)]

        def compute(state: Any, h: Any, *values: Any) -> None:
            state.write(self.name, change(state.variables[self.name], *(v for v, _ in values)))

        label = (self.name, k) if self.name == "c" else None
        op = self.api.graph.add("", inputs, 0, compute=compute, effect=(self.name, mode), label=label)
        return Unread(self, op) if read_value else op

    def assign(self, x: Any, read_value: bool = True) -> Any:
        return self._change("write", x, read_value, lambda old, x: x)

    def assign_add(self, x: Any, read_value: bool = True) -> Any:
        return self._change("add", x, read_value, lambda old, x: old + x)

    def scatter(self, mode: str, k: int, x: Any) -> Unread:
        def change(old: Any, i: Any, x: Any) -> Any:
            new = list(old)
            new[int(i)] = new[int(i)] + x if mode == "add" else x
            return tuple(new)

        out: Unread = self._change(mode, x, True, change, k)
        return out


class Api:
    """The names that programs use, with TensorFlow 1's meaning.

    Args:
      whole: whether a structured result as a control input means all results of its structure, as in headrace, whose
        structures are single operations; TensorFlow waits for the one Merge or Exit.
      ordered: whether stateful operations are put in order automatically, as in an `hr.Graph`.
    """

    float64 = "float64"

    def __init__(self, whole: bool = True, ordered: bool = False) -> None:
        self.graph = Graph(self, whole)
        self.ordered = ordered
        self.order: dict[str, tuple[list[Node], list[Node]]] = {}  # of each resource the last writers, readers since
        self.watching: list[list[Node]] = []  # what runs in each structure that is open
        self.variables: dict[str, Any] = {}

    # *** automatic order ***

    def made(self, op: Node) -> None:
        """Notes an operation that has an effect."""
        if not self.ordered or op.effect is None:
            return
        if self.watching:
            self.watching[-1].append(op)
        else:
            self._touch([op], [op])

    def _touch(self, ops: Sequence[Node], effects: Sequence[Node]) -> None:
        """`ops`, an operation or all results of a structure, have these effects."""
        modes: dict[str, bool] = {}
        for e in effects:
            assert e.effect is not None
            resource, mode = e.effect
            if not resource.startswith("queue"):
                modes[resource] = modes.get(resource, False) or mode != "read"
        for resource, writes in modes.items():
            writers, readers = self.order.get(resource, ([], []))
            for op in ops:
                op.extra += writers + (readers if writes else [])
            self.order[resource] = ([*ops], []) if writes else (writers, [*readers, *ops])

    def _structure(self, build: Callable[[], Any]) -> Any:
        if not self.ordered:
            return build()
        self.watching.append([])
        out = build()
        inside = self.watching.pop()
        results = [t.op for t in (out if isinstance(out, tuple) else (out,))]
        results = results[0].results or results
        for r in results:
            r.extra += inside
        if not any(op.effect for op in inside):
            return out
        if self.watching:
            self.watching[-1] += [*inside, *results]
        else:
            self._touch(results, [op for op in inside if op.effect])
        return out

    # *** values ***

    def tensor(self, x: Any) -> Tensor:
        if isinstance(x, Tensor):
            return x
        if isinstance(x, Unread):
            with self.graph.control_dependencies([x.op]):
                return x.variable.read_value()
        return self.graph.add("", [], compute=lambda state: (float(x), 0.0)).outputs[0]

    def constant(self, x: float, dtype: Any = None) -> Tensor:
        return self.tensor(x)

    def pure(self, f: Callable[..., Any], df: Callable[..., Any] | None, *xs: Any) -> Tensor:
        def compute(state: Any, *values: Any) -> Any:
            vs, ds = [v for v, _ in values], [d for _, d in values]
            return f(*vs), (0.0 if df is None else df(*vs, *ds))

        # TensorFlow converts the operands before it makes the operation
        return self.graph.add("", [self.tensor(x) for x in xs], compute=compute).outputs[0]

    def identity(self, x: Any) -> Tensor:
        return self.graph.identity(self.tensor(x))

    def floormod(self, a: Any, b: Any) -> Tensor:
        return self.pure(lambda a, b: a % b, lambda a, b, da, db: da, a, b)

    def stop_gradient(self, x: Any) -> Tensor:
        return self.pure(lambda a: a, None, x)

    def stack(self, xs: Sequence[Any]) -> Tensor:
        return self.graph.add("", [self.tensor(x) for x in xs], compute=lambda state, *v: tuple(v)).outputs[0]

    def reduce_sum(self, x: Any) -> Tensor:
        return self.graph.add(
            "", [self.tensor(x)], compute=lambda s, v: (sum(a for a, _ in v), sum(d for _, d in v))
        ).outputs[0]

    def gradient(self, y: Tensor, x: Tensor) -> Tensor:
        """dy/dx, of which only the value is modelled: `y` is fetched wherever it is used."""
        return self.graph.add("Gradient", [y], compute=lambda state, y: (y[1], 0.0)).outputs[0]

    # *** order ***

    def control_dependencies(self, inputs: Iterable[Any]) -> Any:
        return self.graph.control_dependencies(inputs)

    def group(self, *inputs: Any) -> Node:
        with self.graph.control_dependencies(inputs):
            return self.no_op()

    def no_op(self) -> Node:
        return self.graph.add("", [], 0, compute=lambda state: None)

    def with_dependencies(self, deps: Iterable[Any], x: Tensor) -> Tensor:
        with self.graph.control_dependencies(deps):
            return self.identity(x)

    def tuple(self, tensors: Sequence[Tensor], control_inputs: Sequence[Any] = ()) -> list[Tensor]:
        gate = self.group(*tensors, *control_inputs)
        return [self.with_dependencies([gate], t) for t in tensors]

    # *** structures ***

    def cond(self, pred: Tensor, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
        return self._structure(lambda: self.graph.cond(pred, true_fn, false_fn))

    def while_loop(self, cond: Any, body: Any, loop_vars: Sequence[Any], parallel_iterations: int = 10) -> Any:
        return self._structure(lambda: self.graph.while_loop(cond, body, loop_vars))

    def function(self, fn: Callable[..., Any]) -> Callable[..., Tensor]:
        """A function whose calls are inlined.

        TensorFlow runs what makes an unused argument unless its optimizer removes the argument, so it may run or not.
        """

        def call(*args: Any) -> Any:
            def build() -> Tensor:
                return self.identity(fn(*(self.identity(a) for a in args)))

            return self._structure(build)

        return call

    def _element(self, elems: Tensor, i: Tensor) -> Tensor:
        return self.graph.add("", [elems, i], compute=lambda state, v, i: v[int(i[0])]).outputs[0]

    def _append(self, array: Tensor, x: Any) -> Tensor:
        return self.graph.add("", [array, self.tensor(x)], compute=lambda state, a, x: (*a, x)).outputs[0]

    def _rows(self, elems: Tensor) -> tuple[Tensor, Tensor, Tensor, Any]:
        rows = self.graph.identity(elems)  # unstack
        size = self.tensor(float(len(elems.op.inputs)))  # TensorFlow knows it when the loop is built
        empty = self.graph.add("", [], compute=lambda state: ()).outputs[0]
        return rows, size, empty, lambda n, i, *_: (n < size)

    def map_fn(self, fn: Callable[[Tensor], Any], elems: Tensor, parallel_iterations: int = 10) -> Tensor:
        rows, _, empty, cond = self._rows(elems)

        def body(n: Tensor, i: Tensor, array: Tensor) -> Any:
            return n + 1.0, i + 1.0, self._append(array, fn(self._element(rows, i)))

        out = self.while_loop(cond, body, [0.0, 0.0, empty])
        return self.graph.identity(out[2])

    def scan(self, fn: Any, elems: Tensor, initializer: Any, parallel_iterations: int = 10) -> Tensor:
        rows, _, empty, cond = self._rows(elems)

        def body(n: Tensor, i: Tensor, a: Tensor, array: Tensor) -> Any:
            a = self.tensor(fn(a, self._element(rows, i)))
            return n + 1.0, i + 1.0, a, self._append(array, a)

        out = self.while_loop(cond, body, [0.0, 0.0, self.tensor(initializer), empty])
        return self.graph.identity(out[3])

    def foldl(self, fn: Any, elems: Tensor, initializer: Any, parallel_iterations: int = 10) -> Tensor:
        rows, _, _, cond = self._rows(elems)

        def body(n: Tensor, i: Tensor, a: Tensor) -> Any:
            return n + 1.0, i + 1.0, fn(a, self._element(rows, i))

        out = self.while_loop(cond, body, [0.0, 0.0, self.tensor(initializer)])
        result: Tensor = out[2]
        return result

    # *** what a program is given ***

    def placeholder(self, name: str) -> Tensor:
        with self.graph.clear():
            return self.graph.add("", [], compute=_unfed, label=("x", int(name[1:]))).outputs[0]

    def variable(self, name: str, size: int | None = None) -> Variable:
        out = self.variables[name] = Variable(self, name, size)
        return out

    def scatter_update(self, v: Variable, k: int, x: Any) -> Unread:
        return v.scatter("write", k, x)

    def scatter_add(self, v: Variable, k: int, x: Any) -> Unread:
        return v.scatter("add", k, x)

    def _effect(
        self, resource: str, compute: Any, inputs: Sequence[Any], outputs: int = 1, label: tuple[str, int] | None = None
    ) -> Node:
        mode = "write" if label is None else "log"
        xs = [self.tensor(x) for x in inputs]
        return self.graph.add("", xs, outputs, compute=compute, effect=(resource, mode), label=label)

    def call(self, k: int, x: Any) -> Tensor:
        """A Python function that records its argument, and gives it plus one."""
        return self._effect("python", lambda s, x: s.record("call", k, x), [x], 1, ("call", k)).outputs[0]

    def calls(self, k: int, x: Any) -> Node:
        """A Python function without results."""
        return self._effect("python", lambda s, x: s.record("call", k, x), [x], 0, ("call", k))

    def show(self, k: int, x: Any) -> Tensor:
        x = self.tensor(x)
        return self._effect("stdout", lambda s, x: s.record("show", k, x, x), [x], 1, ("show", k)).outputs[0]

    def draw(self, k: int) -> Tensor:
        number = len(self.graph.nodes)  # every operation has a stream of its own
        return self._effect(f"random {number}", lambda s: s.draw(number, k), []).outputs[0]

    def enqueue(self, x: Any) -> Node:
        return self._effect("queue out", lambda s, x: s.put(x), [x], 0)

    def dequeue(self) -> Tensor:
        return self._effect("queue in", lambda s: s.take(), []).outputs[0]
