"""Traces of functions called outside of graphs: a graph and its compiled step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import recorder, scopes, tracing
from headrace.api.traced_graph import TracedGraph
from headrace.errors import SignatureError
from headrace.ir.builder import Builder
from headrace.ir.edit.editor import Editor
from headrace.ir.graph import Operation, Tensor
from headrace.ir.weak_numbers import WeakNumbers


class ConcreteFunction:
    """A function for arguments of one signature: its graph, and the step that runs it.

    Args:
      fn: the Python function.
      title: its description in messages.
      structure: the pair of its positional and keyword arguments.
      leaves: for each leaf of the structure the argument that stays, or the spec of a placeholder.

    Attributes:
      graph: the graph.
      arguments: the placeholders of the arguments that are tensors, in order.
      given: the pair of the positional and keyword arguments, with the placeholders.
      weak: (position, numpy scalar type) of the arguments that are Python numbers.
      value: the structure that the function returned; leaves that are not tensors of the graph stay as they are.
      effects: the operations that run although no output may need them.
      made: the variables that the function created.
      variables: the trainable variables that it reads.
      kept: objects that users of the trace keep with it, such as further steps, by their keys.

    Source: TensorFlow's `ConcreteFunction`.
    """

    def __init__(self, fn: Callable[..., Any], title: str, structure: Any, leaves: Sequence[Any]) -> None:
        self.graph = graph = TracedGraph(title)
        graph.seed = scopes.runtime().eager.seed
        self.arguments: list[Tensor] = []
        self.weak: list[tuple[int, Any]] = []
        given = []
        for leaf in leaves:
            if isinstance(leaf, Argument):
                made = leaf.placeholder(graph)
                if leaf.is_weak:
                    self.weak.append((len(self.arguments), made.dtype.base.numpy.type))
                leaf = made
                self.arguments.append(leaf)
            given.append(leaf)
        self._kept = given  # their identities may be parts of the signature
        args, kwargs = self.given = nest.pack(structure, given)
        b = Builder(graph)
        reads = recorder.VariableReads()
        with scopes.entered(b), recorder.set_to((*recorder.active.get(), reads)):
            self.value = fn(*args, **kwargs)
        graph.close()
        self.variables = reads.found
        self.made = list(graph.made)
        self.kept: dict[Any, Any] = {}
        self.effects: list[Operation] = tracing.changes(graph)
        self._session = scopes.runtime().session(graph=graph)
        self._call = Step(self, self.value, self.effects)

    def __call__(self, *tensors: Any) -> Any:
        """Calls the function.

        Args:
          tensors: a value for each of `arguments`, in order.

        Returns:
          The structure of the results, with eager tensors.

        Raises:
          SignatureError: the number, a dtype or a shape of the values differs from those of the arguments.
        """
        if len(tensors) != len(self.arguments):
            raise SignatureError(f"{self!r} takes {len(self.arguments)} tensors, got {len(tensors)}")
        values = []
        for x, t in zip(tensors, self.arguments, strict=True):
            try:
                value = scopes.runtime().eager.tensor(x, t.dtype.base)
            except TypeError as e:
                raise SignatureError(f"{self!r}: {t.op.name!r} got {nest.describe(x)}: {e}") from e
            if not shapes.fits(value.shape, t.static_shape):
                raise SignatureError(f"{self!r}: {t.op.name!r} got a value of shape {shapes.show(value.shape)}")
            values.append(value._value)
        return self.run(values)

    def run(self, values: Sequence[Any]) -> Any:
        """Returns the structure of the results for values between kernels, which are not checked."""
        return self._call(values)

    @property
    def captured(self) -> list[Any]:
        """Captured eager tensors."""
        return [value for value, _ in self.graph.captured.values()]

    @property
    def inputs(self) -> list[Tensor]:
        """Placeholders of the arguments and of the captured tensors."""
        return [*self.arguments, *(p for _, p in self.graph.captured.values())]

    @property
    def outputs(self) -> list[Tensor]:
        """Leaves of the results."""
        return nest.flatten(self.value)

    def step(self, structure: Any, feeds: Sequence[Tensor] = (), effects: Sequence[Operation] = ()) -> Step:
        """Returns a step of the same graph with other results.

        Args:
          structure: a structure of tensors of the graph.
          feeds: further placeholders, whose values follow those of the arguments.
          effects: the operations to run without a value.
        """
        return Step(self, structure, effects, feeds)

    def explain(self) -> Any:
        """Returns the explanation of the compiled step."""
        return self._call.explain()

    def __repr__(self) -> str:
        shown = ", ".join(f"{t.op.name}: {t.dtype.name}{shapes.show(t.shape)}" for t in self.arguments)
        return f"<ConcreteFunction of {self.graph.title}: ({shown})>"


class Argument:
    """Tensor argument of a trace.

    Args:
      like: an eager tensor of the dtype.
      shape: the static shape.
      name: the name of the placeholder.
      is_weak: whether it stands for a Python number, whose dtype yields to that of other tensors.
    """

    __slots__ = ("_like", "_name", "is_weak", "shape")

    def __init__(self, like: Any, shape: shapes.Shape, name: str, is_weak: bool) -> None:
        self._like = like
        self._name = name
        self.is_weak = is_weak
        self.shape = shape

    def placeholder(self, graph: TracedGraph) -> Tensor:
        """Returns a new placeholder for the argument."""
        made = graph.placeholder(self._like, self._name, self.shape)
        if self.is_weak:
            Editor(graph).add_note(made.op, WeakNumbers((0,)))
        return made


class Step:
    """Compiled step of a trace, from values to a structure of eager tensors.

    Args:
      concrete: the trace.
      structure: the structure of tensors to compute.
      effects: the operations to run without a value.
      feeds: placeholders whose values follow those of the arguments.
    """

    def __init__(
        self,
        concrete: ConcreteFunction,
        structure: Any,
        effects: Sequence[Operation],
        feeds: Sequence[Tensor] = (),
    ) -> None:
        leaves = nest.flatten(structure)
        outputs = list(dict.fromkeys(t for t in leaves if isinstance(t, Tensor)))
        captured = concrete.graph.captured.values()
        self._captured = [value._value for value, _ in captured]
        inputs = [*concrete.arguments, *feeds, *(p for _, p in captured)]
        self._run = concrete._session.value_callable(outputs, effects, inputs)
        self._pack = _packer(structure, leaves, outputs)

    def __call__(self, values: Sequence[Any]) -> Any:
        return self._pack(self._run([*values, *self._captured] if self._captured else values))

    def explain(self) -> Any:
        """Returns the explanation of the step."""
        return self._run.explain()  # type: ignore[attr-defined]


def _packer(structure: Any, leaves: Sequence[Any], outputs: Sequence[Tensor]) -> Callable[[list[Any]], Any]:
    """Returns a function from the values of `outputs` to the structure, with eager tensors."""
    kind = scopes.runtime().eager.tensor_type
    at = {t: i for i, t in enumerate(outputs)}

    def leaf(x: Any) -> Callable[[list[Any]], Any]:
        if not isinstance(x, Tensor):
            return lambda values: x
        i, dtype = at[x], x.dtype.base
        if dtype is dtypes.string:  # scalars of text are arrays in eager tensors
            return lambda values: kind(np.asarray(values[i], object), dtype)

        def tensor(values: list[Any]) -> Any:
            value = values[i]
            if value.__class__ is np.ndarray and not value.ndim:
                value = value[()]
            return kind(value, dtype)

        return tensor

    each = [leaf(x) for x in leaves]
    if len(leaves) == 1 and structure is leaves[0]:
        return each[0]
    is_flat = type(structure) in (tuple, list) and len(structure) == len(leaves)
    if is_flat and all(a is b for a, b in zip(structure, leaves, strict=True)):
        make = type(structure)
        return lambda values: make([f(values) for f in each])
    return lambda values: nest.pack(structure, [f(values) for f in each])
