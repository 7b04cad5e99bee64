"""Accumulators of watched values: a change of the graph of a step.

A tensor inside of a loop, a branch or a function has no value outside. So each watched tensor gets two lists, which all
operations between the root graph and the tensor take and return: loops as variables, conditionals and calls as further
inputs and results. Where the tensor is computed, its value is pushed to the list of values. The lists are ordinary
values of the graph, as the residuals that a gradient keeps (`grad.loops`). So every pass, engine and device handles
them, and an iteration does not wait for the pushes of another.

**The log.** The second list says where the values belong. It has pairs of int64, in the order in which the program
would run in one thread:

    (site, i)      the operation number `site` begins: a loop, or the call of a library function. i is the iteration,
                   in which it is, of the loop around it
    (CLOSE, n)     it ends, after n iterations (1 for a call)
    (TAKEN, i)     the next value belongs to iteration i
    (OFFERED, i)   so does this one, if `Watch.takes` it

`watched_values` reads the log.

**Cost.** A tensor directly in the body of a loop, all of whose values are wanted, needs no entries: each iteration
pushes one value, and the log has the trip count (`Site.dense`). The number of the iteration is an existing counter of
the loop where there is one. A value that is not selected is not pushed: selection and predicate are the condition of an
`If`. The last iterations are not known while a loop runs. So loop variables carry the last values of a tensor directly
in its body, and they are pushed after the loop. A tensor deeper inside, of a branch or function, has several values in
an iteration, or none. All its values are pushed (OFFERED).

A function of the library gets a copy with parameters and results for the lists, which all watched calls use, recursive
ones too. If the shapes of a tensor's values are known and equal, the fetched value is one array, else the list.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from headrace import dtypes, shapes
from headrace.api import tracing
from headrace.errors import UnimplementedError
from headrace.ir import walk
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.edit import add_values
from headrace.ir.edit.copying import copied, copy_into
from headrace.ir.function import (
    bodies,
    free_function_name,
    functions_of,
    nested_operations,
    owned,
    recursive_functions,
)
from headrace.ir.graph import FuncGraph, Graph, Tensor
from headrace.ir.infer import scalar_value
from headrace.ir.order import counts
from headrace.records import record

if TYPE_CHECKING:
    from headrace.ir.graph import Operation
    from headrace.observe.watch import Watch
    from headrace.shapes import Shape

CLOSE: Final = -1
TAKEN: Final = -2
OFFERED: Final = -3

_FEW: Final = 4  # iterations that are compared one by one

Lists: TypeAlias = "tuple[Tensor, Tensor]"  # the values and the log of a watched tensor
State: TypeAlias = "dict[WatchedTensor, Lists]"


@record(slots=True, eq=False)
class WatchedTensor:
    """A tensor to watch.

    Attributes:
      name: its name.
      tensor: the tensor, of the step's graph, of a graph nested in it, or of a function of its library.
      spec: the specification.
      when: the traced predicate, or None.
    """

    name: str
    tensor: Tensor
    spec: Watch
    when: FuncGraph | None


@record(frozen=True, slots=True)
class Site:
    """An operation that is a frame of paths.

    Attributes:
      name: the name in paths.
      is_call: whether it is a call of a library function.
      counts: whether the iterations of values in it are its own: it is a loop, or the call of a recursive function.
      dense: the watched tensors of which each iteration pushes one value.
      tested: the watched tensors in the condition of the loop, which is computed once more than the body.
    """

    name: str
    is_call: bool
    counts: bool
    dense: frozenset[WatchedTensor] = frozenset()
    tested: frozenset[WatchedTensor] = frozenset()


@record(frozen=True, slots=True)
class _Place:
    """Position of operations in the iterations of a step.

    Attributes:
      iteration: the number of the iteration, a scalar of the graph or a constant number.
      carried: watched tensors whose last values the loop carries.
      dense: watched tensors whose values need no log.
    """

    iteration: Tensor | int = 0
    carried: frozenset[WatchedTensor] = frozenset()
    dense: frozenset[WatchedTensor] = frozenset()


class Accumulators:
    """Adds accumulators to the graph of a step.

    Args:
      graph: a private graph, which is changed.
      watched: the tensors to watch.

    Attributes:
      sites: the operations that are frames of paths, by their numbers in the log.
    """

    def __init__(self, graph: Graph, watched: Sequence[WatchedTensor]) -> None:
        self.sites: list[Site] = []
        self._graph = graph
        self._watched = watched
        self._recursive = recursive_functions(graph.operations)
        self._in_function = self._functions()
        self._copies: dict[str, FuncGraph] = {}
        graph.own_functions()

    def add(self) -> list[Lists]:
        """Adds the accumulators; returns the values and the log of each watched tensor.

        Raises:
          UnimplementedError: a tensor is in a graph of an operation that cannot be extended.
        """
        b = Builder(self._graph, "watch/")
        lists: State = {}
        for w in self._watched:
            values = b.EmptyTensorList(_vector(w.tensor.shape), -1, element_dtype=w.tensor.dtype.base, name="values")
            lists[w] = values, b.EmptyTensorList(_vector(()), -1, element_dtype=dtypes.int64, name="log")
        lists = self._through(self._graph, lists, _Place())
        out = []
        for w in self._watched:
            values, log = lists[w]
            b = Builder(self._graph, "watch/", source=w.tensor.op.source)
            if shapes.is_full(w.tensor.shape):
                values = b.TensorListStack(values, _vector(w.tensor.shape), element_dtype=w.tensor.dtype.base)
            out.append((values, b.TensorListStack(log, _vector(()), element_dtype=dtypes.int64)))
        return out

    # *** which graphs have which watched tensors ***

    def _functions(self) -> dict[str, frozenset[WatchedTensor]]:
        """Returns the watched tensors in each function of the library that the step calls."""
        graphs: dict[str, FuncGraph] = {}
        for op in nested_operations(self._graph.operations, calls=True):
            for f in functions_of(op) if op.opdef.structured else ():
                if isinstance(f, Func):
                    graphs[f.name] = op.graph.function(f.name, op)
        of: dict[str, frozenset[WatchedTensor]] = dict.fromkeys(graphs, frozenset())
        self._in_function = of
        is_new = True
        while is_new:
            is_new = False
            for name, graph in graphs.items():
                found = self._inside(graph)
                is_new = is_new or found != of[name]
                of[name] = found
        return of

    def _inside(self, graph: Graph) -> frozenset[WatchedTensor]:
        mine = frozenset(w for w in self._watched if self._here(graph, w) is not None)
        return mine.union(*(self._below(op) for op in graph.operations if op.opdef.structured))

    def _below(self, op: Operation) -> frozenset[WatchedTensor]:
        """Watched tensors in the graphs that `op` owns or calls."""
        found: frozenset[WatchedTensor] = frozenset()
        for f in functions_of(op):
            found |= self._in_function[f.name] if isinstance(f, Func) else self._inside(f)
        return found

    def _here(self, graph: Graph, w: WatchedTensor) -> Tensor | None:
        """The watched tensor as a tensor of `graph`, or None."""
        if w.tensor.op.graph is graph:
            return w.tensor
        return graph.originals.get(w.tensor) if isinstance(graph, FuncGraph) else None

    # *** one graph ***

    def _through(self, graph: Graph, lists: State, place: _Place) -> State:
        """Adds accumulators to a graph.

        Args:
          graph: the graph.
          lists: the lists before the operations of the graph run, tensors of it.
          place: the position of the operations.

        Returns:
          The lists after they have run.
        """
        lists = dict(lists)
        made: dict[Operation, list[tuple[WatchedTensor, Tensor]]] = {}
        for w in lists:
            t = self._here(graph, w)
            if t is not None:
                made.setdefault(t.op, []).append((w, t))
        for op in walk.in_order(list(graph.operations)):
            if op.opdef.structured:
                below = self._below(op)
                mine = {w: lists[w] for w in lists if w in below}
                if mine:
                    lists.update(self._operation(op, mine, place))
            for w, t in made.get(op, ()):
                lists[w] = self._pushed(Builder(graph, "watch/", source=op.source), w, t, lists[w], place)
        return lists

    def _pushed(self, b: Builder, w: WatchedTensor, t: Tensor, lists: Lists, place: _Place) -> Lists:
        """Returns the lists with the value of `t`, if the iteration is selected."""
        b = b.on(t.op.device)
        if t.dtype.is_ref:
            t = b.Identity(t)
        if w in place.dense:
            return b.TensorListPushBack(lists[0], t), lists[1]
        wanted, i = w.spec.iterations, place.iteration
        conditions: list[Callable[[Builder], Tensor]] = []
        marker = TAKEN
        if wanted is not None:
            if isinstance(i, int):
                if not w.spec.takes(i, i + 1):
                    return lists
            elif w.spec.reaches_back and w not in place.carried:
                marker = OFFERED
            elif max(wanted) < 0:
                return lists
            else:
                conditions.append(functools.partial(_is_one_of, i=i, wanted=wanted))
        if w.when is not None:
            conditions.append(lambda b: self._holds(b, w, t))
        return _when(b, conditions, lists, lambda b: _with_value(b, lists, t, marker, i))

    def _holds(self, b: Builder, w: WatchedTensor, t: Tensor) -> Tensor:
        """The predicate of `w` for the value of `t`."""
        assert w.when is not None
        (param,), graph = w.when.params, w.when
        moved: dict[Tensor, Tensor] = {param: b.own(t)}
        copy_into(b.graph, walk.in_order([op for op in graph.operations if op is not param.op]), moved)
        return moved[graph.results[0]]

    # *** structured operations ***

    def _operation(self, op: Operation, lists: State, place: _Place) -> State:
        kind = op.opdef.structured
        if kind == "While":
            return self._loop(op, lists, place)
        if kind == "Call" and not owned(op):
            return self._call(op, lists, place)
        if kind in ("If", "Case", "Call"):
            return self._branches(op, lists, place)
        raise UnimplementedError(f"values inside of '{op.name}' ({op.type}) cannot be accumulated", op.name, op)

    def _branches(self, op: Operation, lists: State, place: _Place) -> State:
        given = _flat(lists)
        if isinstance(place.iteration, Tensor):
            given.append(place.iteration)
        params = [add_values.add_input(op, t, "watch") for t in given]
        ends: list[list[Tensor]] = []
        for k, (_, graph) in enumerate(bodies(op)):
            mine = [of[k] for of in params]
            inner = _Place(mine.pop() if isinstance(place.iteration, Tensor) else place.iteration)
            ends.append(_flat(self._through(graph, _paired(lists, mine), inner)))
        return _paired(lists, [add_values.add_result(op, same) for same in zip(*ends, strict=True)])

    def _call(self, op: Operation, lists: State, place: _Place) -> State:
        """Replaces the called function by its copy with accumulators."""
        name = op.attrs["f"].name
        is_recursive = name in self._recursive
        site = self._site(Site(f"{name}@{op.name}", True, is_recursive))
        b = Builder(op.graph, "watch/", source=op.source)
        order = [w for w in self._watched if w in self._in_function[name]]
        lists = {w: (lists[w][0], _noted(b, lists[w][1], site, place.iteration)) for w in order}
        given = _flat(lists)
        if not is_recursive:
            i = place.iteration
            given.append(b.const(i, dtypes.int64) if isinstance(i, int) else _long(b, i))
        copy = self._copy(name, op)
        n = len(op.outputs)
        attrs = {
            "f": Func(copy.name, op.attrs["f"].attrs),
            "Tin": (*op.attrs["Tin"], *(t.dtype.base for t in given)),
            "Tout": (*op.attrs["Tout"], *(t.dtype.base for t in _flat(lists))),
        }
        op.graph.extend_op(op, given, attrs)
        for old, new in zip(_flat(lists), op.outputs[n:], strict=True):
            new.copy_static(old)
        out = _paired(lists, op.outputs[n:])
        return {w: (values, _noted(b, log, CLOSE, 1)) for w, (values, log) in out.items()}

    def _copy(self, name: str, caller: Operation) -> FuncGraph:
        """Returns the copy with accumulators of a library function."""
        made = self._copies.get(name)
        if made is not None:
            return made
        home, original = self._graph, caller.graph.function(name, caller)
        new = free_function_name(home, f"{name}_watched")
        made = self._copies[name] = home.functions[new] = copied(original, home, name=new)
        order = [w for w in self._watched if w in self._in_function[name]]
        params: list[Tensor] = []
        for w in order:
            element = (w.tensor.dtype.base, w.tensor.shape)
            handles = (element, (dtypes.int64, ()))
            params += [made.add_param(dtypes.variant, (), "watch", handle=handle) for handle in handles]
        place = _Place() if name in self._recursive else _Place(made.add_param(dtypes.int64, (), "iteration"))
        out = self._through(made, _paired(dict.fromkeys(order), params), place)
        made.add_results(_flat({w: out[w] for w in order}))
        return made

    def _loop(self, op: Operation, lists: State, place: _Place) -> State:
        add_values.own_graphs(op)
        body: FuncGraph = op.attrs["body"]
        direct = {w: t for w in lists if (t := self._here(body, w)) is not None}
        tested = {w: t for w in lists if (t := self._here(op.attrs["cond"], w)) is not None}
        deeper = frozenset().union(*(self._below(o) for o in body.operations if o.opdef.structured))
        dense = frozenset(w for w in direct if w.spec.iterations is None and w.when is None and w not in deeper)
        carried = frozenset(w for w in direct if w.spec.reaches_back)
        site = self._site(Site(op.name, False, True, dense, frozenset(tested)))

        b = Builder(op.graph, "watch/", source=op.source)
        number, trips = self._counter(op, body)
        lists = {w: (values, _noted(b, log, site, place.iteration)) for w, (values, log) in lists.items()}
        at: dict[Tensor, int] = {}
        params = []
        for t in _flat(lists):
            at[t] = len(body.params)
            params.append(add_values.add_variable(op, t, "watch")[0])
        windows = {w: self._window(op, body, direct[w], w.spec.reaches_back) for w in carried}
        inner = _paired(lists, params)
        for w, t in tested.items():
            again = _computed_again(body, op.attrs["cond"], t, body.params)
            inner[w] = self._pushed(Builder(body, "watch/", source=t.op.source), w, again, inner[w], _Place(number))
        inner = self._through(body, inner, _Place(number, carried, dense))
        for before, after in zip(_flat(lists), _flat(inner), strict=True):
            if body.params[at[before]] is not after:
                add_values.set_result(op, at[before], after)
        out = _paired(lists, [op.outputs[at[t]] for t in _flat(lists)])
        for w, last in windows.items():
            for k, t in reversed([*enumerate(last, 1)]):
                if w.spec.iterations is not None and -k in w.spec.iterations:
                    out[w] = self._pushed_last(b, w, t, k, trips, out[w])
        for w, t in tested.items():
            again = _computed_again(op.graph, op.attrs["cond"], t, op.outputs)
            out[w] = self._pushed(b.at(t.op.source), w, again, out[w], _Place(trips))
        return {w: (values, _noted(b, log, CLOSE, trips)) for w, (values, log) in out.items()}

    def _counter(self, op: Operation, body: FuncGraph) -> tuple[Tensor, Tensor]:
        """Returns the number of the iteration, a tensor of the body, and the trip count."""
        for k in range(len(body.params)):
            if counts(body, k) and scalar_value(op.inputs[k]) == 0:
                return body.params[k], op.outputs[k]
        b = Builder(op.graph, "watch/", source=op.source)
        param, out = add_values.add_variable(op, b.const(0, dtypes.int64, "first"), "iteration")
        more = Builder(body, "watch/", source=op.source).AddV2(param, 1, name="next")
        add_values.set_result(op, len(body.params) - 1, more)
        return param, out

    def _window(self, op: Operation, body: FuncGraph, t: Tensor, n: int) -> list[Tensor]:
        """Adds variables with the last `n` values of `t`, the last one first.

        Those of iterations that did not take place have a value that is not read.
        """
        outs = []
        for _ in range(n):
            b = Builder(op.graph, "watch/", source=t.op.source)
            none = b.FakeParam(dtype=t.dtype.base, shape=t.shape, name="none")
            param, out = add_values.add_variable(op, none, "last")
            add_values.set_result(op, len(body.params) - 1, t)
            outs.append(out)
            t = param
        return outs

    def _pushed_last(self, b: Builder, w: WatchedTensor, t: Tensor, k: int, trips: Tensor, lists: Lists) -> Lists:
        """Returns the lists with `t`, the value `k` iterations before the end, if it exists."""
        conditions: list[Callable[[Builder], Tensor]] = [lambda b: b.GreaterEqual(trips, k)]
        if w.when is not None:
            conditions.append(lambda b: self._holds(b, w, t))
        return _when(b, conditions, lists, lambda b: _with_value(b, lists, t, TAKEN, b.Sub(trips, k)))

    def _site(self, site: Site) -> int:
        self.sites.append(site)
        return len(self.sites) - 1


def is_repeatable(graph: FuncGraph, t: Tensor) -> bool:
    """Whether `t`, a tensor of a condition, can be computed twice with the same result."""
    return t.op.graph is graph and all(op.opdef.is_pure or op.type == "_Arg" for op in walk.reachable([t.op]))


def _computed_again(graph: Graph, cond: FuncGraph, t: Tensor, variables: Sequence[Tensor]) -> Tensor:
    """Returns a tensor of a loop's condition, computed from other loop variables.

    A condition has no results but the predicate, so the body computes the tensor again, and so does the graph around
    the loop for the last evaluation of the condition.
    """
    ops = walk.reachable([t.op])
    params = {p.op for p in cond.params}
    moved = dict(zip(cond.params, variables, strict=False))  # the outputs include further variables of watches
    copy_into(graph, walk.in_order(ops - params), moved)
    return moved[t]


def _when(
    b: Builder, conditions: Sequence[Callable[[Builder], Tensor]], lists: Lists, push: Callable[[Builder], Lists]
) -> Lists:
    """Returns the lists of `push` if all conditions hold, else `lists`."""
    if not conditions:
        return push(b)
    pred = conditions[0](b)
    graphs = []
    for name in ("push", "skip"):
        graph = FuncGraph(name, b.graph, shares_names=True)
        inner = dataclasses.replace(b, graph=graph)
        ends = _when(inner, conditions[1:], lists, push) if name == "push" else lists
        graph.set_results([graph.capture(t) for t in ends])
        graphs.append(graph)
    attrs = {"then_branch": graphs[0], "else_branch": graphs[1], "Tout": (dtypes.variant, dtypes.variant)}
    op = tracing.make("If", b, "select", graphs, [pred], [], attrs)
    return op.outputs[0], op.outputs[1]


def _with_value(b: Builder, lists: Lists, t: Tensor, marker: int, iteration: Tensor | int) -> Lists:
    return b.TensorListPushBack(lists[0], t), _noted(b, lists[1], marker, iteration)


def _noted(b: Builder, log: Tensor, first: int, second: Tensor | int) -> Tensor:
    """Returns the log with a pair at its end."""
    log = b.TensorListPushBack(log, b.const(first, dtypes.int64))
    out: Tensor = b.TensorListPushBack(
        log, b.const(second, dtypes.int64) if isinstance(second, int) else _long(b, second)
    )
    return out


def _long(b: Builder, t: Tensor) -> Tensor:
    out: Tensor = t if t.dtype.base is dtypes.int64 else b.Cast(t, DstT=dtypes.int64)
    return out


def _is_one_of(b: Builder, i: Tensor, wanted: Sequence[int]) -> Tensor:
    """Whether the number `i` is one of the numbers from 0 on in `wanted`."""
    out: Tensor
    if max(wanted) > np.iinfo(i.dtype.base.numpy).max:
        i = _long(b, i)
    if isinstance(wanted, range) and len(wanted) > _FEW:
        low, high, step = min(wanted[0], wanted[-1]), max(wanted[0], wanted[-1]), abs(wanted.step)
        out = b.LogicalAnd(b.GreaterEqual(i, low), b.LessEqual(i, high))
        if step > 1:
            out = b.LogicalAnd(out, b.Equal(b.FloorMod(b.Sub(i, low), step), 0))
        return out
    numbers = [n for n in wanted if n >= 0]
    if len(numbers) > _FEW:
        return b.Any(b.Equal(i, b.const(np.array(numbers), i.dtype.base)), [0])  # type: ignore[no-any-return]
    out = b.Equal(i, numbers[0])
    for n in numbers[1:]:
        out = b.LogicalOr(out, b.Equal(i, n))
    return out


def _vector(shape: Shape) -> np.ndarray[Any, Any]:
    """A shape as an argument of list operations: -1 for an unknown rank or dimension."""
    return np.array(-1 if shape is None else [-1 if d is None else d for d in shape], np.int32)


def _flat(lists: State) -> list[Tensor]:
    return [t for pair in lists.values() for t in pair]


def _paired(lists: Any, flat: Sequence[Tensor]) -> State:
    """The inverse of `_flat`."""
    return {w: (flat[2 * k], flat[2 * k + 1]) for k, w in enumerate(lists)}
