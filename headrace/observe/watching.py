"""Watching a step: from the specifications to the values.

    watching = Watching(specs, graph, names, pack)
    Request(feeds, [*fetches, *watching.root_tensors], targets, addition=watching)     # the step
    values, watched = watching.pack(fetched)                                            # after a run

`Watching.added` changes the pruned graph of the step, before any other stage, so the rest of the way is that of any
step. If the loops of the graph are primitives that cannot be recovered, or a watched tensor in the condition of a loop
cannot be computed twice, the token machine runs the step with a listener (`watch_listener`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace import nest
from headrace.api import tracing
from headrace.api.cond import checked_predicate
from headrace.errors import InvalidArgumentError, SignatureError
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.edit.editor import Editor
from headrace.ir.function import nested
from headrace.ir.graph import FuncGraph, Graph, Tensor
from headrace.observe.accumulators import Accumulators, WatchedTensor, is_repeatable
from headrace.observe.watch import Reading, Watch, Watched
from headrace.observe.watchable import Names, canonical, conditions
from headrace.observe.watched_values import watched_values

if TYPE_CHECKING:
    from headrace.compiled_step import Request
    from headrace.observe.accumulators import Site
    from headrace.observe.watch_listener import WatchListener
    from headrace.prune import StepGraph


def specs_of(given: Any) -> tuple[Watch, ...]:
    """Returns the specifications of the argument `watch` of a run.

    Raises:
      TypeError: it is not a specification or a sequence of them.
    """
    specs = (given,) if isinstance(given, Watch) else given
    if not isinstance(specs, (list, tuple)) or not specs or not all(isinstance(s, Watch) for s in specs):
        raise TypeError(f"watch={given!r} must be an hr.watch(...), or a list of them")
    return tuple(specs)


class Watching:
    """The watched tensors of a step.

    Args:
      specs: the specifications.
      graph: the user's graph.
      names: the names of the user's fetches.
      pack: builds the user's structure from their values.

    Attributes:
      root_tensors: watched tensors of the user's graph itself. They are fetched after the user's fetches, so that the
        step computes them.
      fetch_names: the names of all fetches of the step; complete when the step has been changed.
      tensors: the watched tensors; known when the step has been changed.
      reason: the reason why values come from a listener; "" if they are fetched.
    """

    def __init__(
        self, specs: Sequence[Watch], graph: Graph, names: Sequence[str], pack: Callable[[Sequence[Any]], Any]
    ) -> None:
        self.root_tensors: list[Tensor] = []
        for what in [what for spec in specs for what in spec.what]:
            t = _root_tensor(graph, what)
            if t is not None and t not in self.root_tensors:
                self.root_tensors.append(t)
        self.fetch_names = list(names)
        self.tensors: list[WatchedTensor] = []
        self.reason = ""
        self._specs = specs
        self._fetched = len(names)
        self._pack = pack
        self._sites: Sequence[Site] = ()
        self._names: dict[Tensor, str] = {}  # names of the tensors of the specifications

    def added(self, step: StepGraph) -> StepGraph:
        """Returns a copy of a step with accumulators, which are its last fetches.

        Args:
          step: the step, pruned and recovered.

        Raises:
          InvalidArgumentError: a name is not that of a tensor of the step, or its values cannot be watched.
          SignatureError: a predicate does not return a boolean scalar.
        """
        step = step.copy()
        retvals = list(step.retvals[: self._fetched])
        extra = step.retvals[self._fetched :]
        given = {f"{t.op.name}:{t.index}": r.inputs[0] for t, r in zip(self.root_tensors, extra, strict=True)}
        names = Names(step.graph)
        found = {
            (spec, t): name for spec in self._specs for what in spec.what for name, t in self._found(names, what, given)
        }
        self.tensors = [WatchedTensor(name, t, spec, _traced(spec, t)) for (spec, t), name in found.items()]
        Editor(step.graph).remove(extra)
        for t in [t for pair in self._accumulated(step.graph) for t in pair]:
            attrs = {"T": t.dtype.base, "index": len(retvals)}
            retvals.append(step.graph.add_op("_Retval", step.graph.unique_name("ret.watched"), [t], attrs=attrs))
            self.fetch_names.append(t.name)
        return dataclasses.replace(step, retvals=tuple(retvals))

    def _accumulated(self, graph: Graph) -> Sequence[tuple[Tensor, Tensor]]:
        """Adds accumulators to the graph of the step; none if a listener is necessary."""
        if any(op.opdef.primitive not in ("", "ControlTrigger") for op in graph.operations):
            self.reason = "its loops and conditionals are primitives that cannot be recovered"
        inside = conditions(graph.operations)
        for w in self.tensors:
            around = w.tensor.op.graph
            if around in inside and not (isinstance(around, FuncGraph) and is_repeatable(around, w.tensor)):
                self.reason = f"'{w.name}' is in the condition of a loop and cannot be computed twice"
        if self.reason:
            return ()
        accumulators = Accumulators(graph, self.tensors)
        self._sites = accumulators.sites
        return accumulators.add()

    def _found(self, names: Names, what: Tensor | str, given: dict[str, Tensor]) -> list[tuple[str, Tensor]]:
        label = f"{canonical(what.op)}:{what.index}" if isinstance(what, Tensor) else what
        name = next((n for n in (label, f"{label}:0") if n in given), "")
        is_inside = isinstance(what, Tensor) and isinstance(what.op.graph, FuncGraph)
        found = [(name, given[name])] if name and not is_inside else names.find(what)
        if isinstance(what, Tensor):
            self._names[what] = found[0][0]
        return found

    def pack(self, values: Sequence[Any]) -> tuple[Any, Watched]:
        """Returns the user's values, and the watched values, of all values of a run."""
        return self._pack(values[: self._fetched]), self.read(values[self._fetched :])

    def read(self, values: Sequence[Any]) -> Watched:
        """Returns the watched values.

        Args:
          values: the values of the added fetches; None for one that is not known yet.
        """
        read: dict[str, list[Reading]] = {}
        for w, found, log in zip(self.tensors, values[::2], values[1::2], strict=False):  # none with a listener
            if found is not None and log is not None:
                reader = functools.partial(watched_values, w, self._sites, found, log)
                read.setdefault(w.name, []).append((w.spec, reader))
        return Watched(read, self._names)

    def partial_values(self) -> PartialValues:
        """Returns the watched values of a new partial run."""
        return PartialValues(self, range(self._fetched, len(self.fetch_names)))

    def listener(self) -> WatchListener | None:
        """Returns a listener that collects the values of a run, if they are not fetched."""
        if not self.reason:
            return None
        from headrace.observe.watch_listener import WatchListener

        return WatchListener(self.tensors)

    def heard(self, listener: WatchListener) -> Watched:
        """Returns the watched values of a run with `listener`."""
        read: dict[str, list[Reading]] = {}
        for w, records in zip(self.tensors, listener.values(), strict=True):
            read.setdefault(w.name, []).append((w.spec, functools.partial(list, records)))
        return Watched(read, self._names)


class PartialValues:
    """Watched values of a partial run, as far as they are known.

    Args:
      watching: the watched tensors of the step.
      positions: the positions of the fetches that have their values.

    Attributes:
      positions: the positions of the fetches that have their values.
      listener: the listener of the run, if the values are not fetched; else None.
    """

    def __init__(self, watching: Watching, positions: range) -> None:
        self.positions = positions
        self.listener = watching.listener()
        self._watching = watching
        self._values: list[Any] = [None] * len(positions)

    def add(self, position: int, value: Any) -> None:
        """Adds the value of a fetch."""
        self._values[position - self.positions.start] = value

    def watched(self) -> Watched:
        """Returns the watched values so far."""
        return self._watching.read(self._values) if self.listener is None else self._watching.heard(self.listener)


def watching_of(request: Request) -> Watching:
    """Returns the watched tensors of a step that has some."""
    watching = request.addition
    assert isinstance(watching, Watching)
    return watching


def _root_tensor(graph: Graph, what: Tensor | str) -> Tensor | None:
    """Returns the tensor of the root graph that `what` means, or None.

    A tensor inside of loops or conditionals that are primitives has no value there.
    """
    if isinstance(what, Tensor):
        if what.op.graph is not graph:
            if not isinstance(what.op.graph, FuncGraph):
                raise InvalidArgumentError(f"'{what.name}' belongs to another graph than that of the session")
            return None
        t = what
    else:
        name, _, number = what.partition(":")
        op = graph.find(name)
        if op is None or not (number or "0").isdigit() or int(number or 0) >= len(op.outputs):
            return None
        t = op.outputs[int(number or 0)]
    if t.op.opdef.primitive or (not graph.replaced and _has_primitives(t)):
        return None
    return None if graph.replaced and t.op.name in _inner_names(graph) else t


def _has_primitives(t: Tensor) -> bool:
    return any(op.opdef.primitive not in ("", "ControlTrigger") for op in walk.reachable([t.op]))


def _inner_names(graph: Graph) -> set[str]:
    return {op.name for _, inner in nested(graph.operations) for op in inner.operations}


def _traced(spec: Watch, t: Tensor) -> FuncGraph | None:
    """Returns the graph of the predicate of `spec` for `t`, or None.

    Raises:
      SignatureError: it does not return a boolean scalar.
    """
    if spec.when is None:
        return None
    when: Callable[[Any], Any] = spec.when
    graph = FuncGraph("when", None, captures_from_outer=False)
    tracing.begin(graph, graph, f"the predicate of the watch of '{t.name}'", when)
    param = graph.add_param(t.dtype, t.shape, "value")
    value = tracing.call(when, graph, Builder(graph), [param])
    what = f"what {graph.title} returned"
    if not isinstance(value, Tensor):
        raise SignatureError(f"{what} must be a boolean scalar, got {nest.describe(value)}; return one comparison")
    graph.set_results([checked_predicate(value, what)])
    return graph
