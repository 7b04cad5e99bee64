"""Cache of the traces of a function by the signatures of its calls.

A call with the signature of an earlier call runs that call's trace. Otherwise the function is traced for the new
signature. If the shapes of some argument vary, a trace with unknown dimensions serves them all: after a few traces for
exact shapes the next one leaves the dimensions open in which the shapes differ.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace import flags, forking, nest, notices, shapes, thresholds
from headrace.api import recorder, scopes, tracing
from headrace.api.tensor_spec import TensorSpec
from headrace.errors import GraphError
from headrace.ir.conversion import frozen
from headrace.jit.concrete import Argument, ConcreteFunction
from headrace.jit.recorded import recorded
from headrace.jit.signature import NUMBERS, Parameters, Static, fitted, python_key
from headrace.jit.surroundings import Surroundings
from headrace.memo import Memo
from headrace.records import record
from headrace.shapes import Shape


class CacheInfo(NamedTuple):
    """Statistics of a jitted function.

    Attributes:
      hits: the calls that found a trace.
      traces: the traces made so far.
      signatures: the signature of each trace that is kept, as text.
    """

    hits: int
    traces: int
    signatures: tuple[str, ...]


class _Call(NamedTuple):
    """A call outside of graphs, flattened.

    Attributes:
      structure: the pair of its positional and keyword arguments.
      leaves: the leaves of the structure, with eager tensors in the place of arrays.
      tensors: the eager tensors among the leaves.
      where: for each leaf whether it is a tensor of the signature.
      weak: the positions of the leaves that are Python numbers and tensors of the signature.
      key: the signature.
      kind: the signature with ranks in place of shapes.
      pattern: the kind without the values of numbers.
    """

    structure: Any
    leaves: list[Any]
    tensors: list[Any]
    where: list[bool]
    weak: list[int]
    key: Hashable
    kind: Hashable
    pattern: Hashable

    @property
    def values(self) -> list[Any]:
        """Values of the tensors between kernels."""
        return [t._value for t in self.tensors]

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Shapes of the tensors."""
        return tuple(t.shape for t in self.tensors)


def _read(parts: Iterable[Any], tensor: type[Any], has_weak_floats: bool, key: list[Any], values: list[Any]) -> bool:
    """Reads the signature and the values of the most frequent kinds of arguments.

    The order is that of `nest.flatten`. A call whose arguments it can read need not be flattened.

    Args:
      parts: the arguments, or parts of one.
      tensor: the class of eager tensors.
      has_weak_floats: whether Python floats are tensors.
      key: receives the signature.
      values: receives the values between kernels, and the Python floats.

    Returns:
      Whether it can read all of them.
    """
    for x in parts:
        kind = x.__class__
        if kind is tensor:
            key.append(x.dtype)
            key.append(x.shape)
            values.append(x._value)
        elif kind is int or kind is bool or kind is str or x is None:
            key.append(kind)
            key.append(x)
        elif kind is list or kind is tuple:
            key.append(kind)
            key.append(len(x))
            if not _read(x, tensor, has_weak_floats, key, values):
                return False
        elif kind is dict:
            try:
                names = sorted(x)
            except TypeError:  # keys of several kinds
                return False
            key.append(kind)
            key.append(tuple(names))
            if not _read([x[name] for name in names], tensor, has_weak_floats, key, values):
                return False
        elif kind is np.ndarray and x.ndim and x.dtype.isnative and x.dtype.kind in "fiub":
            key.append(x.dtype)
            key.append(x.shape)
            values.append(frozen(x))
        elif kind is float and has_weak_floats and abs(x) < 1e38:
            key.append(kind)
            values.append(x)
        else:
            return False
    return True


@record(slots=True)
class _Kind:
    """Calls that differ in shapes only.

    Attributes:
      traces: the traces, each with the shapes that it takes.
      is_exact: whether every call needs a trace for its exact shapes.
    """

    traces: list[tuple[tuple[Shape, ...], ConcreteFunction]]
    is_exact: bool


class Traces:
    """Traces of one Python function by signature. Thread-safe.

    Args:
      fn: the function; it is called with symbolic tensors, in a graph.
      of: the user's function, whose surroundings are a part of each signature.
      in_graph: serves calls that are not outside of graphs, from the positional and the keyword arguments.
      title: its description in messages.
      parameters: its parameters.
      has_weak_floats: whether Python floats and complex numbers are tensor arguments.
      static: the positions of arguments that are static as a whole.
      input_signature: TensorSpecs of the only signature, or None.
      relaxes: whether dimensions that vary become unknown.
      obeys_run_eagerly: whether `hr.run_eagerly` has effect; a transform needs a graph.

    Attributes:
      made: the number of traces made.
      surroundings: the variables around the function.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        of: Callable[..., Any],
        in_graph: Callable[[Sequence[Any], dict[str, Any]], Any],
        title: str,
        parameters: Parameters,
        *,
        has_weak_floats: bool = False,
        static: frozenset[int] = frozenset(),
        input_signature: Any = None,
        relaxes: bool = True,
        obeys_run_eagerly: bool = True,
    ) -> None:
        self._fn = fn
        self._obeys_run_eagerly = obeys_run_eagerly
        self.surroundings = Surroundings(of)
        self._in_graph = in_graph
        self._title = title
        self._parameters = parameters
        self._has_weak_floats = has_weak_floats
        self._static = static
        self._input_signature = input_signature
        self._relaxes = relaxes
        self.made = 0
        self._is_simple = not static and input_signature is None
        self._traces: Memo[Hashable, ConcreteFunction] = Memo("traces of functions", thresholds.JIT_TRACES)
        self._kinds: Memo[Hashable, _Kind] = Memo("kinds of calls", thresholds.JIT_TRACES)
        self._numbers: Memo[Hashable, set[tuple[Any, ...]]] = Memo("numbers of calls", thresholds.JIT_TRACES)
        self._has_warned = False
        self._has_made_variables = False
        self._lock = threading.RLock()
        forking.register_at_fork(self)

    def _forked(self) -> None:
        """Replaces the lock in a forked process, see `forking`."""
        self._lock = threading.RLock()

    def __call__(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Calls the function.

        Outside of graphs the arguments are eager tensors, arrays and Python values, and the tensors among the results
        are eager.
        """
        if not scopes.is_outside() or (flags.RUN_EAGERLY.value and self._obeys_run_eagerly):
            return self._in_graph(args, kwargs)
        if self._is_simple and not recorder.active.get():
            given = self._parameters.positional(args, kwargs) if kwargs else args
            eager = scopes.runtime().eager
            key: list[Any] = [flags.ENGINE.value, eager.seed, self.surroundings.key()]
            values: list[Any] = []
            if given is not None and _read(given, eager.tensor_type, self._has_weak_floats, key, values):
                short = tuple(key)
                found = self._traces.get(short)
                if found is None:
                    found = self.find(args, kwargs)[0]
                    self._traces.put(short, found)
                for i, number in found.weak:
                    values[i] = number(values[i])
                return found.run(values)
        if scopes.graph_of((args, kwargs)) is not None:
            return self._in_graph(args, kwargs)
        call = self._bound(args, kwargs)
        found = self._found(call)
        return recorded(found)(call.tensors) if recorder.active.get() else found.run(call.values)

    def find(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[ConcreteFunction, list[Any]]:
        """Returns the trace for a call outside of graphs, and the values of its tensors."""
        call = self._bound(args, kwargs)
        return self._found(call), call.values

    def lower(self, args: Sequence[Any], kwargs: dict[str, Any]) -> ConcreteFunction:
        """Returns the trace for a call; a TensorSpec stands for a tensor."""
        return self._found(self._bound(args, kwargs))

    def _found(self, call: _Call) -> ConcreteFunction:
        found = self._traces.get(call.key)
        if found is None:
            with self._lock:
                found = self._traces.get(call.key)  # another thread may have traced it
                if found is None:
                    found = self._for(call)
                    self._traces.put(call.key, found)
        return found

    def all(self) -> list[ConcreteFunction]:
        """Returns the traces in the cache, each once."""
        return list(dict.fromkeys(self._traces.values()))

    def info(self) -> CacheInfo:
        """Returns the statistics."""
        return CacheInfo(self._traces.hits, self.made, tuple(map(repr, self.all())))

    def _bound(self, args: Sequence[Any], kwargs: dict[str, Any]) -> _Call:
        args, kwargs = self._parameters.bound(args, kwargs)
        eager = scopes.runtime().eager
        if self._input_signature is not None:
            args, kwargs = fitted(self._input_signature, args, eager, self._parameters, self._title), {}
        if self._static:
            args = Static.wrapped(args, self._static, self._parameters, self._title)
        structure = (tuple(args), kwargs)
        given = nest.flatten(structure)
        leaves = list(given)
        where, tensors, weak = [], [], []
        outline = nest.outline(structure)
        key: list[Hashable] = [flags.ENGINE.value, eager.seed, self.surroundings.key(), outline]
        kind: list[Hashable] = [*key]
        pattern: list[Hashable] = [*key]
        for i, leaf in enumerate(leaves):
            is_spec = isinstance(leaf, TensorSpec)
            is_tensor = tracing.is_tensor_argument(leaf)
            is_weak = self._has_weak_floats and not is_tensor and isinstance(leaf, (float, complex))
            where.append(is_spec or is_tensor or is_weak)
            if where[-1]:
                dtype = tracing.dtype_of_number(leaf, given) if is_weak else None
                leaves[i] = t = leaf if is_spec else eager.tensor(leaf, dtype)
                tensors.append(t)
                if is_weak:
                    weak.append(i)
                key += (t.dtype, None if self._input_signature is not None else t.shape, is_weak)
                part: tuple[Hashable, ...] = (t.dtype, None if t.shape is None else len(t.shape), is_weak)
                kind += part
                pattern += part
            else:
                part = (python_key(leaf),)
                key += part
                kind += part
                pattern.append(type(leaf) if isinstance(leaf, NUMBERS) else part[0])  # type: ignore[arg-type]
        return _Call(structure, leaves, tensors, where, weak, tuple(key), tuple(kind), tuple(pattern))

    def _for(self, call: _Call) -> ConcreteFunction:
        """Returns a trace for the call: one with wider shapes, or a new one."""
        if self._input_signature is not None:
            return self._trace(call, tuple(spec.shape for spec in nest.flatten(self._input_signature)))
        self._warn_of_numbers(call)
        kind = self._kinds.get(call.kind)
        if kind is None:
            kind = _Kind([], not self._relaxes)
            self._kinds.put(call.kind, kind)
        if kind.is_exact:
            return self._trace(call, call.shapes)
        for taken, found in kind.traces:
            if all(map(shapes.covers, taken, call.shapes)):
                return found
        wanted = call.shapes
        if len(kind.traces) >= thresholds.JIT_EXACT_SHAPES:
            for taken, _ in kind.traces:
                wanted = tuple(map(shapes.join, wanted, taken))
        try:
            made = self._trace(call, wanted)
        except Exception as e:
            if wanted == call.shapes:
                raise
            made = self._trace(call, call.shapes)  # raises the error of the function itself, if it has one
            kind.is_exact = True
            kind.traces.clear()
            self._warn_of_shapes(wanted, e)
            return made
        kind.traces.append((wanted, made))
        return made

    def _warn_of_shapes(self, wanted: Sequence[Shape], error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            notices.warn(
                f"{self._title} is traced and compiled for every new shape: it cannot be traced with the shapes "
                f"{', '.join(map(shapes.show, wanted))} that would serve all ({type(error).__name__}: {error}). Use "
                "hr.shape(x) in place of x.shape for dimensions that vary, or jit it with relax_shapes=False"
            )

    def _trace(self, call: _Call, wanted: tuple[Shape, ...]) -> ConcreteFunction:
        made = self._traced_once(call, wanted)
        if made.made:
            if not self._has_made_variables:
                self._has_made_variables = True
                made = self._traced_once(call, wanted)
            if made.made:
                names = ", ".join(repr(v.name) for v in made.made)
                raise GraphError(
                    f"{self._title} creates variables ({names}) at every call, so they could not keep their values; "
                    "create them outside, or once: `if self.v is None: self.v = hr.Variable(...)`"
                )
        return made

    def _traced_once(self, call: _Call, wanted: tuple[Shape, ...]) -> ConcreteFunction:
        rest = iter(zip(call.tensors, wanted, strict=True))
        paths = [path for path, _ in nest.flatten_with_paths(call.structure)]
        leaves = []
        for i, (path, leaf, is_tensor) in enumerate(zip(paths, call.leaves, call.where, strict=True)):
            if is_tensor:
                like, shape = next(rest)
                leaves.append(Argument(like, shape, self._parameters.name(path), i in call.weak))
            else:
                leaves.append(Static.unwrapped(leaf))
        self.made += 1
        concrete = ConcreteFunction(self._fn, self._title, call.structure, leaves)
        concrete.kept[Surroundings] = self.surroundings.values
        return concrete

    def _warn_of_numbers(self, call: _Call) -> None:
        """Warns once if calls differ in Python numbers only."""
        if self._has_warned:
            return
        if self.surroundings.changes >= thresholds.JIT_NUMBERS:
            self._has_warned = True
            notices.warn(
                f"{self._title} was traced and compiled {self.surroundings.changes + 1} times because a variable "
                f"around it changes (it reads {self.surroundings.changed_number()!r}); give the value as an argument, "
                "as a tensor (hr.constant)"
            )
        at = [
            i for i, (x, t) in enumerate(zip(call.leaves, call.where, strict=True)) if not t and isinstance(x, NUMBERS)
        ]
        if not at:
            return
        seen = self._numbers.get(call.pattern)
        if seen is None:
            seen = set()
            self._numbers.put(call.pattern, seen)
        numbers = tuple(call.leaves[i] for i in at)
        seen.add(numbers)
        if len(seen) >= thresholds.JIT_NUMBERS:
            self._has_warned = True
            changing = next(i for i, values in zip(at, zip(*seen, strict=True), strict=True) if len(set(values)) > 1)
            path, leaf = nest.flatten_with_paths(call.structure)[changing]
            notices.warn(
                f"{self._title} was traced and compiled {len(seen)} times for different Python numbers, at last "
                f"{leaf!r} as {self._parameters.label(path)}. Give a tensor (hr.constant({leaf!r})) for a number that "
                "changes; static_argnums= states that each value is meant to have a trace"
            )
