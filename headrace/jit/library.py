"""Calls of functions in graphs: tracing into the graph's library, and the operations that call.

A Python function becomes a function of the graph's library, traced once for each signature of its calls. A call is one
operation that names the library function, so a function may call itself. Tensors captured from outside become
additional parameters, which every call supplies.

While a function is being traced (it is *open*), its recursive calls cannot know its future captures. When all open
functions are complete, those calls, and the conditionals and loops around them, receive the missing captures
(`_settle`).
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace import dtypes, nest, shapes
from headrace.api import scopes, tracing
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import GraphError, SignatureError
from headrace.ir.attr_values import Func
from headrace.ir.builder import Builder
from headrace.ir.function import move_to
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor, foreign, is_cloned

if TYPE_CHECKING:
    import weakref


class CalledFunction(Protocol):
    """Function that graphs call, as `jit.function.Function` describes it.

    Attributes:
      fn: the Python function.
      name: the name of the function and of its calls.
      input_signature: the TensorSpecs of the arguments, or None.
      results: the TensorSpecs of the results, or None.
      names: for each root graph and signature, the names in the graph's library.
    """

    fn: Callable[..., Any]
    name: str
    input_signature: Any
    results: Any
    names: weakref.WeakKeyDictionary[Graph, dict[Hashable, list[str]]]


class _Traced(FuncGraph):
    """Function in the library.

    Attributes:
      specs: the TensorSpec of each argument that is a tensor.
      value: the return value of the Python function, with tensors of this graph; the declared one during tracing.
      calls: the calls of it that were created while any function was open.
      keeps: the Python arguments that its signature identifies by `id`.
      kind: a key that is equal for calls that differ in static shapes only.
      is_recursive: whether it was called while it was open.
      made_from: the `Function` from which it is traced, while it is open; else None.
    """

    def __init__(self, name: str, outer: Graph, specs: list[TensorSpec], kind: Hashable) -> None:
        super().__init__(name, outer)
        self.specs = specs
        self.kind = kind
        self.is_recursive = False
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
        if kwargs:  # a keyword argument is equivalent to a positional one
            bound = inspect.signature(function.fn).bind(*args, **kwargs)
            args, kwargs = bound.args, bound.kwargs
        if function.input_signature is not None:
            args, kwargs = self._fitted(args), {}
        self.structure = (tuple(args), kwargs)
        self.leaves = nest.flatten(self.structure)
        self.tensors: list[Tensor] = []
        self.where: list[int | None] = []  # for each leaf its position among the tensors, or None
        self.keeps: list[Any] = []
        key: list[Hashable] = []
        for leaf in self.leaves:
            if not tracing.is_tensor_argument(leaf):
                self.where.append(None)
                key.append(self._python(leaf))
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
        self.kind: Hashable = (id(function), nest.outline(self.structure), *key)
        self.signature: Hashable = (self.kind, *self.specs)

    def _fitted(self, args: Sequence[Any]) -> Any:
        """Returns the arguments as tensors of the declared dtypes."""
        signature = self.function.input_signature
        try:
            leaves = nest.flatten_up_to(signature, tuple(args))
        except ValueError as e:
            raise SignatureError(
                f"the arguments of {self.function!r} do not have the structure of its input_signature: {e}"
            ) from e
        names = tracing.argument_names(self.function.fn, len(args))
        out = []
        for (path, spec), leaf in zip(nest.flatten_with_paths(signature), leaves, strict=True):
            k, _, rest = path[1:].partition("]")
            label = f"argument {(names[int(k)] + rest if int(k) < len(names) else path)!r} of {self.function!r}"
            try:
                t = self.b.tensor(leaf, spec.dtype)
            except TypeError as e:
                raise SignatureError(f"{label} must be {spec}, got {nest.describe(leaf)}: {e}") from e
            if not shapes.covers(spec.shape, t.shape):
                raise SignatureError(
                    f"{label} must be {spec}, got {nest.describe(leaf)} of shape {shapes.show(t.shape)}"
                )
            out.append(t)
        return nest.pack(signature, out)

    def _python(self, leaf: Any) -> Hashable:
        """Returns the part of the signature for an argument that is not a tensor."""
        if not hasattr(type(leaf), "as_tensor"):
            try:
                hash(leaf)
                return type(leaf), leaf
            except TypeError:
                pass
        self.keeps.append(leaf)
        return type(leaf), id(leaf)

    def make(self) -> Any:
        """Creates the operation; returns its results."""
        graph = self._find() or self._trace()
        if graph.is_open and self.function.results is None:
            raise GraphError(
                f"{graph.title} calls itself, and what it returns is not known before it has returned: say so by "
                "Function(..., results=TensorSpec(shape, dtype)), or a structure of them"
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

    def _trace(self) -> _Traced:
        function, root = self.function, self.root
        if sum(graph.made_from is function for graph in _now.open) > _DEEPEST:
            raise GraphError(
                f"{_now.open[-1].title} calls itself with other Python arguments each time, and so has to be made anew "
                "without end; give it tensors (hr.constant(3), not 3)"
            )
        for graph in _now.open:
            if graph.kind == self.kind:  # a recursive call with other shapes: one function serves both
                self._widen(graph.specs)
        graph = _Traced(self._library_name(), self.b.graph, self.specs, self.kind)
        graph.made_from = function
        graph.keeps = self.keeps
        graph.value = function.results
        tracing.begin(graph, self.b.graph, f"function {graph.name!r}", function.fn)
        for t, spec in zip(self.tensors, self.specs, strict=True):
            graph.add_param(t.dtype, spec.shape, _plain(spec.name or t.op.name), handle=t.handle)
        args, kwargs = nest.pack(
            self.structure,
            [leaf if at is None else graph.params[at] for leaf, at in zip(self.leaves, self.where, strict=True)],
        )
        before = set(root.functions)
        root.functions[graph.name] = graph
        _now.open.append(graph)
        try:
            value = tracing.call(self._returned, graph, Builder(graph), args, kwargs)
            self._check(graph, value)
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

    def _widen(self, others: Sequence[TensorSpec]) -> None:
        self.specs = [
            TensorSpec(shapes.join(a.shape, b.shape), a.dtype, a.name) for a, b in zip(self.specs, others, strict=True)
        ]
        self.signature = (self.kind, *self.specs)

    def _library_name(self) -> str:
        base = name = self.function.name
        n = 0
        while name in self.root.functions or name in self.root.library:
            n += 1
            name = f"{base}_{n}"
        return name

    def _returned(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the result of the Python function, with numbers of the declared dtypes."""
        value, declared = self.function.fn(*args, **kwargs), self.function.results
        if declared is None or nest.mismatch(declared, value) is not None:
            return value
        b = scopes.builder()
        return nest.map_leaves(lambda s, x: b.tensor(x, s.dtype) if isinstance(x, (int, float)) else x, declared, value)

    def _check(self, graph: _Traced, value: Any) -> None:
        declared = self.function.results
        if declared is None:
            return
        found = nest.mismatch(declared, value)
        if found is not None:
            raise SignatureError(
                f"{graph.title} returned {found.second}{_at(found.path)}, but its results= say {found.first}; let "
                "both have the same structure"
            )
        for (path, spec), t in zip(nest.flatten_with_paths(declared), nest.flatten(value), strict=True):
            if t.dtype.base is not spec.dtype.base or not shapes.covers(spec.shape, t.shape):
                raise SignatureError(
                    f"{graph.title} returned '{t.name}' of dtype {t.dtype.base.name} and shape {shapes.show(t.shape)}"
                    f"{_at(path)}, but its results= say {spec}; cast it, or declare what it returns"
                )


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
