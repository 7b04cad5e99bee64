"""Order of stateful operations: control edges between operations that touch the same state.

The edges of a graph alone determine the order of execution, and data edges suffice for pure operations. They do not
suffice for effects: `v.assign(1)` and a later read of `v` have no edge between them. An ordered graph has an `Order`.
It supplies the missing control edges to the `Builder`, so that effects happen in the order in which the program created
the operations.

**Keys.** Keys identify the state that an operation touches. Two operations with a common key are ordered if one of them
writes; two reads are not ordered. The keys are

* a resource: the container and name of the operation that creates the handle, or the parameter through which the handle
  enters an owned graph (one outer variable is one parameter inside);
* the standard output, which Print and Assert share;
* the Python process, which Python functions and the operations on checkpoint files share (a Python function must not
  wait for a later one; in graphs without an order it may);
* the state of the step, for operations on it that take no handle;
* a random operation itself, whose stream continues from one firing to the next.

A handle of unknown origin (a result of a conditional) may denote any resource: `ANY`. While a recursive function is
traced, a call of it may touch everything that its body adds later: `EVERYTHING`.

An `If`, `While` or call touches the keys of its graphs, with parameters replaced by the inputs of the operation.
Operations that wait by nature (queues, barriers) are never ordered: a waiting operation could come before the operation
that ends its wait.

Source: TensorFlow 2's automatic control dependencies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from headrace import dtypes, thresholds
from headrace.ir.function import bodies, body, called_names, param_offset
from headrace.ir.infer import constant_value

if TYPE_CHECKING:
    from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor

Key: TypeAlias = "Hashable"

ANY: Final = "any resource"
EVERYTHING: Final = "everything"


# Effects of an operation: key -> whether it writes.
Effects: TypeAlias = "dict[Key, bool]"

_NONE: Final[Effects] = {}


class Order:
    """Latest readers and writers of each key in one graph; see the module's docstring."""

    __slots__ = ("_readers", "_writers")

    def __init__(self) -> None:
        self._writers: dict[Key, Operation] = {}
        self._readers: dict[Key, list[Operation]] = {}

    def after(self, op: Operation) -> list[Operation]:
        """Returns the operations that `op`, which is new, has to wait for, and records `op`."""
        touched = effects(op)
        if not touched:
            return []
        out: dict[Operation, None] = {}
        for key, writes in touched.items():
            for k in self._same(key):
                last = self._writers.get(k)
                if last is not None:
                    out[last] = None
                if writes:
                    out.update(dict.fromkeys(self._readers.get(k, ())))
            if writes:
                self._writers[key] = op
                for k in self._same(key):
                    self._readers.pop(k, None)
                    if key in (ANY, EVERYTHING):
                        self._writers[k] = op
            else:
                self._readers.setdefault(key, []).append(op)
        out.pop(op, None)
        return list(out)

    def _same(self, key: Key) -> Iterable[Key]:
        """Returns the recorded keys that may denote the same state as `key`."""
        if key == EVERYTHING:
            return {**self._writers, **self._readers, EVERYTHING: None}
        if key == ANY:
            return [ANY, EVERYTHING, *(k for k in {**self._writers, **self._readers} if is_resource(k) and k != ANY)]
        return (key, ANY, EVERYTHING) if is_resource(key) else (key, EVERYTHING)


def follow_order(graph: FuncGraph, outer: Graph) -> None:
    """Orders the stateful operations of the new graph `graph` if `outer` orders its own."""
    if outer.order is not None:
        graph.order = Order()
        graph.set_results(graph.results, is_ordered=True)


def is_resource(key: Key) -> bool:
    """Whether a key denotes a resource, known or unknown."""
    return key == ANY or (isinstance(key, tuple) and key[0] == "resource")


class _Question:
    """State of one computation of effects: intermediate results and remaining limits.

    Attributes:
      known: the effects of owned and called graphs.
      calls: the functions whose calls are being traversed.
      cuts: the number of calls that were skipped because their function is in `calls`.
      left: the number of graphs that may still be traversed.
      depth: the nesting depth of the current graph.
    """

    __slots__ = ("calls", "cuts", "depth", "known", "left")

    def __init__(self) -> None:
        self.known: dict[FuncGraph, Effects] = {}
        self.calls: set[str] = set()
        self.cuts = 0
        self.left = thresholds.ORDER_GRAPHS
        self.depth = 0


def effects(op: Operation, question: _Question | None = None) -> Effects:
    """Returns the effects of `op` on state that operations around it can touch too.

    An operation with too many or too deeply nested graphs touches `EVERYTHING`.
    """
    record = op.opdef
    if record.structured:
        return _of_bodies(op, question or _Question())
    facts = record.facts
    if not facts.effect or facts.waits or record.async_ is not None:
        return _NONE
    if facts.effect == "random":
        return {("random", op): True}
    out: Effects = {}
    for t in op.inputs:
        if t.dtype.is_ref or t.dtype is dtypes.resource:
            key = key_of(t)
            if key is not None:
                out[key] = out.get(key, False) or facts.writes
    if facts.effect in ("stdout", "python") or (not out and facts.effect == "step" and facts.writes):
        out[facts.effect] = True
    elif not op.inputs and facts.writes:
        out[("resource", "made by", op)] = True
    return out


def _of_graph(graph: FuncGraph, question: _Question) -> Effects:
    """Returns the effects of the operations of an owned graph, with keys of that graph."""
    known = question.known.get(graph)
    if known is not None:
        return known
    question.left -= 1
    if graph.is_open or question.left < 0 or question.depth >= thresholds.ORDER_DEPTH:
        return {EVERYTHING: True}
    question.depth += 1
    cuts = question.cuts
    out: Effects = {}
    for op in graph.operations:
        for key, writes in effects(op, question).items():
            out[key] = out.get(key, False) or writes
    question.depth -= 1
    if question.cuts == cuts:  # else the result lacks the effects of the function whose call was skipped
        question.known[graph] = out
    return out


def key_of(t: Tensor) -> Key | None:
    """Returns the key of the resource with handle `t`; None for resources without order."""
    while t.op.opdef.facts.forwards is not None:
        t = t.op.inputs[t.op.opdef.facts.forwards]
    op = t.op
    facts = op.opdef.facts
    if facts.graph_end or facts.placeholder:  # each stands for another resource (`api.traced_graph`)
        return ("resource", t)
    if not op.inputs and op.opdef.facts.effect:
        if op.opdef.facts.waits:
            return None
        name = op.attrs.get("shared_name") or op.name
        return ("resource", op.attrs.get("container", ""), name)
    return ANY


def _of_bodies(op: Operation, question: _Question) -> Effects:
    named = set(called_names(op))
    if named & question.calls:  # recursive: the outermost call includes its other effects
        question.cuts += 1
        return {k: True for t in op.inputs if t.dtype is dtypes.resource and (k := key_of(t)) is not None}
    out: Effects = {}
    question.calls |= named
    for _, graph in bodies(op):
        for key, writes in _of_graph(graph, question).items():
            outer = _outside(key, graph, op)
            if outer is not None:
                out[outer] = out.get(outer, False) or writes
    question.calls -= named
    return out


def _outside(key: Key, graph: FuncGraph, op: Operation) -> Key | None:
    """Translates a key of an owned graph to the graph of the owner `op`."""
    if not (isinstance(key, tuple) and key[0] == "resource" and len(key) == 2):
        return key
    param = key[1]
    if param.op.graph is not graph:
        return key
    at = graph.params.index(param) + param_offset(op)
    if op.opdef.structured == "While" and not is_constant(body(op, op.attrs["body"]), at):
        return ANY
    return key_of(op.inputs[at]) if 0 <= at < len(op.inputs) else ANY


def is_constant(body: FuncGraph, k: int) -> bool:
    """Whether loop variable `k` is a loop constant: the body returns it unchanged."""
    return k >= len(body.results) or body.results[k] is body.params[k]


def counts(body: FuncGraph, k: int) -> bool:
    """Whether loop variable `k` is an int32 or int64 scalar that the body increments."""
    p, r = body.params[k], body.results[k]
    if p.dtype.base not in (dtypes.int32, dtypes.int64) or p.shape != () or r.op.opdef.facts.sum_sign != 1:
        return False
    x, y = r.op.inputs
    one = constant_value(y if x is p else x) if p in (x, y) else None
    return one is not None and one.shape == () and bool(one == 1)


def effects_in(graph: FuncGraph, ops: Iterable[Operation]) -> Iterator[tuple[Operation, Effects]]:
    """Iterates over those of `ops` that touch state, with their effects.

    The operations are in the owned graph `graph`. If it is not ordered, the iteration is empty.
    """
    if graph.is_ordered:
        question = _Question()
        for op in ops:
            touched = effects(op, question)
            if touched:
                yield op, touched
