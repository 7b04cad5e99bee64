"""Functions for programs of `tests.order.programs` that make the primitive graph of TensorFlow 1.

A value is a pair: a number, and its derivative by `x0`. A vector is a tuple of pairs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.order.primitives import Graph, Node, Tensor


def _unfed(state: Any) -> Any:
    """A placeholder: its operation may fire, and nothing reads what it gives."""
    return 0.0, 0.0


class Unread:
    """The result of an assignment: reading it is a read that waits for the assignment."""

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
        self.watching: list[list[Node]] = []  # operations of each structure that is open
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
        """dy/dx, of which only the value is modelled: each use of it fetches `y`."""
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

    def case(self, pairs: Sequence[tuple[Tensor, Callable[[], Any]]], default: Callable[[], Any]) -> Any:
        fn = default
        for pred, action in reversed(pairs):
            fn = functools.partial(self.cond, pred, action, fn)
        return fn()

    def while_loop(
        self, cond: Any, body: Any, loop_vars: Sequence[Any], parallel_iterations: int = 10,
        maximum_iterations: int | None = None,
    ) -> Any:  # fmt: skip
        if maximum_iterations is None:
            return self._structure(lambda: self.graph.while_loop(cond, body, loop_vars))
        limit = self.tensor(float(maximum_iterations))

        def more(n: Tensor, *xs: Tensor) -> Tensor:
            return self.pure(lambda a, b: a and b, None, n < limit, cond(*xs))

        def counted(n: Tensor, *xs: Tensor) -> Any:
            out = body(*xs)
            return n + 1.0, *(out if isinstance(out, tuple) else (out,))

        _, *out = self._structure(lambda: self.graph.while_loop(more, counted, [0.0, *loop_vars]))
        return out[0] if len(out) == 1 else tuple(out)

    def function(self, fn: Callable[..., Any]) -> Callable[..., Tensor]:
        """A function whose calls are inlined; a call takes all its arguments, used or not."""

        def call(*args: Any) -> Any:
            def build() -> Tensor:
                given = [self.identity(a) for a in args]
                out = self.identity(fn(*given))
                out.op.extra += [t.op for t in given]
                return out

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
        return rows, size, empty, lambda n, i, *_: n < size

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

    # *** inputs, variables and effects of a program ***

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
