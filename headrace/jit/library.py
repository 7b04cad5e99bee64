"""Calls of functions in graphs: tracing into the graph's library, and the operations that call.

A Python function becomes a function of the graph's library, traced once for each signature of its calls. A call is one
operation that names the library function, so a function may call itself. Tensors captured from outside become
additional parameters, which every call supplies.

While a function is being traced (it is *open*), its recursive calls cannot know its future captures. When all open
functions are complete, those calls, and the conditionals and loops around them, receive the missing captures
(`_settle`).
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace import dtypes, nest, shapes
from headrace.api import scopes, tracing
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import GraphError, SignatureError
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.function import free_function_name, move_to
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor, foreign, is_cloned
from headrace.jit.signature import Parameters, Static, fitted, python_key

if TYPE_CHECKING:
    import weakref

    from headrace.jit.cache import Traces


class CalledFunction(Protocol):
    """Function that graphs call, as `jit.function.Function` describes it.

    Attributes:
      fn: the Python function.
      name: the name of the function and of its calls.
      parameters: its parameters.
      traces: its traces outside of graphs.
      static: the positions of static arguments.
      input_signature: the TensorSpecs of the arguments, or None.
      results: the TensorSpecs of the results, or None.
      names: for each root graph and signature, the names in the graph's library.
    """

    name: str
    static: frozenset[int]
    input_signature: Any
    results: Any
    names: weakref.WeakKeyDictionary[Graph, dict[Hashable, list[str]]]

    @property
    def fn(self) -> Callable[..., Any]: ...

    @property
    def parameters(self) -> Parameters: ...

    @property
    def traces(self) -> Traces: ...


class _Traced(FuncGraph):
    """Function in the library.

    Attributes:
      specs: the TensorSpec of each argument that is a tensor.
      value: the return value of the Python function, with tensors of this graph; the declared one during tracing.
      calls: the calls of it that were created while any function was open.
      keeps: the arguments and surroundings of its first call, some of which its signature identifies by `id`.
      kind: a key that is equal for calls that differ in static shapes only.
      is_recursive: whether it was called while it was open.
      knows_results: whether its results are known while it is open.
      is_asked: whether a call needed its results before they were known.
      made_from: the `Function` from which it is traced, while it is open; else None.
    """

    def __init__(self, name: str, outer: Graph, specs: list[TensorSpec], kind: Hashable) -> None:
        super().__init__(name, outer)
        self.specs = specs
        self.kind = kind
        self.is_recursive = False
        self.knows_results = False
        self.is_asked = False
        self.made_from: CalledFunction | None = None
        self.value: Any = None
        self.calls: list[Operation] = []
        self.keeps: list[Any] = []
        self.is_open = True

    def capture(self, t: Tensor) -> Tensor:
        """Captures `t` as any `FuncGraph` does, but records `t` itself.

        Other `FuncGraph`s record the tensor that represents `t` in the surrounding graph. Here calls in other graphs
        must supply `t` too.
        """
        if t.op.graph is self:
            return t
        got = self.captures.get(t)
        if got is None:
            if not self.is_within(t.op.graph):
                raise GraphError(foreign(t, self))
            if is_cloned(t):
                clone = self.copy_op(t.op, (), (), self.unique_name(t.op.name))
                got = self.captures[t] = clone.outputs[0]
            else:
                got = self.add_captured(t)
        return got

    @property
    def captured(self) -> list[tuple[Tensor, Tensor]]:
        outside = {p: t for t, p in self.captures.items()}
        return [(outside[p], p) for p in self.params if p in outside]

    def can_be_called_in(self, graph: Graph) -> bool:
        """Whether all captured tensors are available in `graph`."""
        around = {graph}
        outer = graph.outer
        while outer is not None:
            around.add(outer)
            outer = outer.outer
        return all(t.op.graph in around for t, _ in self.captured)

    def takes(self, specs: Sequence[TensorSpec]) -> bool:
        """Whether arguments like `specs` fit the traced specs."""
        return all(shapes.covers(mine.shape, given.shape) for mine, given in zip(self.specs, specs, strict=True))


class _Found(Exception):
    """Results that a recursive function was found to have.

    Args:
      results: their structure of TensorSpecs.
    """

    def __init__(self, results: Any) -> None:
        self.results = results


def _joined(a: TensorSpec, b: TensorSpec) -> TensorSpec:
    return TensorSpec(shapes.join(a.shape, b.shape), a.dtype)


class _Tracing(threading.local):
    """Functions that this thread is tracing, outermost first; and functions to settle afterwards."""

    def __init__(self) -> None:
        self.open: list[_Traced] = []
        self.made: list[_Traced] = []


_now = _Tracing()

_DEEPEST = 30  # limit of nested calls with different Python arguments, which would never end


class LibraryCall:
    """Call of a `Function` in a graph."""

    def __init__(self, function: CalledFunction, b: Builder, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.b = b
        self.root = b.graph
        while self.root.outer is not None:
            self.root = self.root.outer
        args, kwargs = function.parameters.bound(args, kwargs)
        if function.input_signature is not None:
            args, kwargs = fitted(function.input_signature, args, b, function.parameters, repr(function)), {}
        args = Static.wrapped(args, function.static, function.parameters, repr(function))
        self.structure = (tuple(args), kwargs)
        self.leaves = nest.flatten(self.structure)
        self.tensors: list[Tensor] = []
        self.where: list[int | None] = []  # for each leaf its position among the tensors, or None
        key: list[Hashable] = []
        for leaf in self.leaves:
            if not tracing.is_tensor_argument(leaf):
                self.where.append(None)
                key.append(python_key(leaf))
                continue
            t = b.tensor(leaf)
            at = next((i for i, s in enumerate(self.tensors) if s is t), None) if t.dtype is dtypes.resource else None
            if at is None:
                at = len(self.tensors)
                self.tensors.append(t)
            self.where.append(at)
            key.append((at, t.dtype.base, t.handle))
        self.specs = [TensorSpec(t.shape, t.dtype.base, t.op.name) for t in self.tensors]
        if function.input_signature is not None:
            self.specs = nest.flatten(function.input_signature)
        self.kind: Hashable = (id(function), function.traces.surroundings.key(), nest.outline(self.structure), *key)
        self.signature: Hashable = (self.kind, *self.specs)

    def make(self) -> Any:
        """Creates the operation; returns its results."""
        graph = self._find() or self._traced()
        if graph.is_open and not graph.knows_results:
            graph.is_asked = True
            raise tracing.ResultsUnknown(
                f"{graph.title} calls itself, and no branch that ends the recursion tells its results; declare them: "
                "hr.jit(results=hr.TensorSpec(shape, dtype)), or a structure of TensorSpecs"
            )
        attrs = {"f": Func(graph.name), "Tout": tuple(x.dtype.base for x in nest.flatten(graph.value))}
        inputs = [*self.tensors, *(t for t, _ in graph.captured)]
        b = self.b.after(*graph.outer_controls)
        type = "StatefulPartitionedCall" if graph.is_open or tracing.is_stateful(graph) else "PartitionedCall"
        op = tracing.operation_of(b.make(type, (inputs,), attrs, self.function.name))
        if graph.is_open:
            graph.is_recursive = True
            for t, spec in zip(op.outputs, nest.flatten(graph.value), strict=True):
                t.replace_static(spec.shape, t.handle)
        if _now.open:
            graph.calls.append(op)
            if graph not in _now.made:
                _now.made.append(graph)
        return op if graph.value is None else nest.pack(graph.value, op.outputs)

    def _find(self) -> _Traced | None:
        """Returns the traced function for this call, or an open one with wide enough parameters."""
        for graph in reversed(_now.open):
            if graph.kind == self.kind and graph.takes(self.specs):
                return graph
        for name in self.function.names.get(self.root, {}).get(self.signature, ()):
            found = self.root.functions.get(name)
            if isinstance(found, _Traced) and found.can_be_called_in(self.b.graph):
                return found
        return None

    def _traced(self) -> _Traced:
        """Returns a new function, traced with the results that are declared or found."""
        results, is_known = self.function.results, self.function.results is not None
        while True:
            try:
                return self._trace(results, is_known)
            except _Found as e:  # each time some dimension is found to vary, so this ends
                results = nest.map_leaves(_joined, results, e.results) if is_known else e.results
                is_known = True

    def _trace(self, results: Any, is_known: bool) -> _Traced:
        function, root = self.function, self.root
        if sum(graph.made_from is function for graph in _now.open) > _DEEPEST:
            raise GraphError(
                f"{_now.open[-1].title} calls itself with other Python arguments each time, and so has to be made anew "
                "without end; give it tensors (hr.constant(3), not 3)"
            )
        for graph in _now.open:
            if graph.kind == self.kind:  # a recursive call with other shapes: one function serves both
                self._widen(graph.specs)
        graph = _Traced(free_function_name(root, function.name), self.b.graph, self.specs, self.kind)
        graph.made_from = function
        graph.keeps = [*self.leaves, function.traces.surroundings.values]
        graph.value = results
        graph.knows_results = is_known
        tracing.begin(graph, self.b.graph, f"function {graph.name!r}", function.fn)
        for t, spec in zip(self.tensors, self.specs, strict=True):
            graph.add_param(t.dtype, spec.shape, _plain(spec.name or t.op.name), handle=t.handle)
        args, kwargs = nest.pack(
            self.structure,
            [
                Static.unwrapped(leaf) if at is None else graph.params[at]
                for leaf, at in zip(self.leaves, self.where, strict=True)
            ],
        )
        before = set(root.functions)
        root.functions[graph.name] = graph
        _now.open.append(graph)
        try:
            value = tracing.call(functools.partial(returned, function), graph, Builder(graph), args, kwargs)
            if function.results is None:
                self._compare(graph, value)
        except BaseException:
            for name in set(root.functions) - before:  # the function, and functions traced only for it
                del root.functions[name]
            _now.made[:] = [g for g in _now.made if len(_now.open) > 1 and g.name in root.functions]
            raise
        finally:
            _now.open.pop()
            graph.is_open = False
            graph.made_from = None
        graph.value = value
        tracing.finish(graph, nest.flatten(value))
        function.names.setdefault(root, {}).setdefault(self.signature, []).append(graph.name)
        if graph not in _now.made:
            _now.made.append(graph)
        if not _now.open:
            _settle()
        return graph

    def _compare(self, graph: _Traced, value: Any) -> None:
        """Raises `_Found` if the results of a recursive function differ from those of its calls.

        Raises:
          SignatureError: they have other dtypes or another structure.
        """
        if not graph.is_asked and not (graph.knows_results and graph.is_recursive):
            return
        found = nest.map_leaves(lambda t: TensorSpec(t.shape, t.dtype.base), value)
        if not graph.knows_results:
            raise _Found(found)
        differs = nest.mismatch(graph.value, found)
        pairs = [] if differs else list(zip(nest.flatten(graph.value), nest.flatten(found), strict=True))
        if differs or any(a.dtype is not b.dtype for a, b in pairs):
            raise SignatureError(
                f"{graph.title} calls itself; where the recursion ends it returns {graph.value}, and with the results "
                f"of its own calls {found}. Let both be equal in structure and dtypes"
            )
        if not all(shapes.covers(a.shape, b.shape) for a, b in pairs):
            raise _Found(found)

    def _widen(self, others: Sequence[TensorSpec]) -> None:
        self.specs = [
            TensorSpec(shapes.join(a.shape, b.shape), a.dtype, a.name) for a, b in zip(self.specs, others, strict=True)
        ]
        self.signature = (self.kind, *self.specs)


def returned(function: CalledFunction, *args: Any, **kwargs: Any) -> Any:
    """Calls the Python function; returns its results as tensors, which fit the declared results.

    Raises:
      SignatureError: they do not fit, or cannot be tensors.
    """
    value, declared = function.fn(*args, **kwargs), function.results
    b = scopes.builder()
    if declared is None:
        return tracing.convert(value, b, b.graph.title)
    found = nest.mismatch(declared, value)
    if found is not None:
        raise SignatureError(
            f"{b.graph.title} returned {found.second}{_at(found.path)}, but its results= say {found.first}; let "
            "both have the same structure"
        )
    value = nest.map_leaves(lambda s, x: b.tensor(x, s.dtype) if isinstance(x, (int, float)) else x, declared, value)
    value = tracing.convert(value, b, b.graph.title)
    for (path, spec), t in zip(nest.flatten_with_paths(declared), nest.flatten(value), strict=True):
        if t.dtype.base is not spec.dtype.base or not shapes.covers(spec.shape, t.shape):
            raise SignatureError(
                f"{b.graph.title} returned '{t.name}' of dtype {t.dtype.base.name} and shape {shapes.show(t.shape)}"
                f"{_at(path)}, but its results= say {spec}; cast it, or declare what it returns"
            )
    return value


def _at(path: str) -> str:
    return f" at {path}" if path else ""


def _plain(name: str) -> str:
    return name.rpartition("/")[2]


def _settle() -> None:
    """Adds the later captures of functions that were open to their calls.

    The graphs around the calls get the captures too.
    """
    made = [*_now.made]
    _now.made.clear()
    grew = True
    while grew:
        grew = False
        for graph in made:
            outside = {p: t for t, p in graph.captured}
            for op in graph.calls:
                more = [outside[p] for p in graph.params[len(op.inputs) :]]
                if more:
                    grew = True
                    types = tuple(t.dtype.base for t in more)
                    op.graph.extend_op(op, more, {"Tin": op.attrs["Tin"] + types})
        if grew:
            for graph in made:
                tracing.regrow(graph)
    if any(g.is_recursive for g in made):
        tracing.refinish(made)
    for graph in made:
        graph.calls.clear()
        while graph.outer is not None and graph.outer.outer is not None:
            move_to(graph, graph.outer.outer)
