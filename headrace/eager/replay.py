"""Gradients of recorded computations, by replay in a graph and a compiled step.

A `Slice` is the part of a recording between some sources and some targets. Its entries are created again in a graph,
and the reverse mode of graphs differentiates them. So all gradient rules apply, and Python's own control flow is that
of the recorded run. The step that runs then is the gradient alone: each forward tensor that it needs was recorded, and
is fed. So random numbers, reads of variables and results of Python functions are those of the recorded run.

Steps are kept in a memo by the structure of the slice: entries, wiring, dtypes and shapes. A training loop compiles
once. Small integers (axes, shapes, indices) are constants of the graph at first. One that differs in a later slice of
the same structure becomes a feed, so a structure compiles at most once for each of them.

Source: the tape of TensorFlow's eager mode; the replay into a graph is headrace's own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from headrace import dtypes, thresholds
from headrace.api import recorder, scopes
from headrace.eager.tensor import EagerTensor
from headrace.grad.gradients import differentiate
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.edit.copying import copy_into
from headrace.ir.graph import Operation, Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.memo import Memo

if TYPE_CHECKING:
    from headrace.api.recorder import Entry


class Slice:
    """Recorded entries between sources and targets, with their tensors numbered in order of appearance.

    Args:
      entries: the entries, in the order of their runs.
      targets: the tensors to differentiate, each with its gradient, or None for ones.
      sources: the tensors to differentiate by.

    Attributes:
      entries, sources: the arguments.
      tensors: all tensors, by number.
      leaves: the numbers of the tensors that no entry makes.
      wiring: the numbers of the inputs of each entry.
      made: the numbers of the outputs of each entry.
      ends: for each target its number and that of its gradient, or None for ones.
      starts: the numbers of the sources.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        targets: Sequence[tuple[EagerTensor, EagerTensor | None]],
        sources: Sequence[EagerTensor],
    ) -> None:
        self.entries = entries
        self.sources = sources
        self.tensors: list[EagerTensor] = []
        self._numbers: dict[int, int] = {}
        self.leaves: list[int] = []
        self.wiring: list[tuple[int, ...]] = []
        self.made: list[tuple[int, ...]] = []
        for entry in entries:
            self.wiring.append(tuple([self._number(x) for x in entry.inputs]))
            self.made.append(tuple([self._new(y) for y in entry.outputs]))
        self.ends = [(self._number(y), None if dy is None else self._number(dy)) for y, dy in targets]
        self.starts = [self._number(x) for x in sources]

    def _number(self, x: EagerTensor) -> int:
        """Returns the number of a tensor; a new one is a leaf."""
        n = self._numbers.get(id(x))
        if n is None:
            n = self._new(x)
            self.leaves.append(n)
        return n

    def _new(self, x: EagerTensor) -> int:
        n = self._numbers[id(x)] = len(self.tensors)
        self.tensors.append(x)
        return n

    @property
    def structure(self) -> Hashable:
        """A key; slices with equal keys have equal gradients as functions of their tensors.

        It cannot be hashed if an entry has an array as an attribute.
        """
        return (
            tuple([(e.structure, i, o) for e, i, o in zip(self.entries, self.wiring, self.made, strict=True)]),
            tuple([(t.dtype, t.shape) for t in self.tensors]),
            tuple([_contents(t._value) for n in self.leaves if (t := self.tensors[n]).dtype in _OBJECTS]),
            tuple(self.ends),
            tuple(self.starts),
        )

    @property
    def constants(self) -> dict[int, bytes]:
        """The values of the leaves that are small integers, by number."""
        used = {*self.starts, *[n for end in self.ends for n in end if n is not None]}
        found = {}
        for n in self.leaves:
            t = self.tensors[n]
            if (
                (t.dtype.is_integer or t.dtype.is_bool)
                and n not in used
                and np.size(t._value) <= thresholds.TAPE_CONSTANT_ELEMENTS
            ):
                found[n] = t._value.tobytes()
        return found


_OBJECTS: Final = (dtypes.resource, dtypes.variant)


def _contents(value: Any) -> Any:
    """Returns dtype and static shape of the contents of a resource or list, or None."""
    name = getattr(value, "value_dtype", "")
    if name:
        return dtypes.as_dtype(name), value.value_shape
    dtype = getattr(value, "element_dtype", None)
    return None if dtype is None else (dtype, value.element_shape)


class _Parts(NamedTuple):
    """Numbers of the results of a step that make up one gradient.

    Attributes:
      first: the number of the tensor, or of the values of slices.
      indices: the number of the indices of slices; None for a tensor.
      dense_shape: the number of the shape of slices, or None.
    """

    first: int
    indices: int | None = None
    dense_shape: int | None = None


class GradientStep:
    """The compiled gradient of slices of one structure.

    Args:
      made_of: a slice of the structure.
      constants: the numbers of the leaves that become constants.

    Attributes:
      constants: the values of these leaves.
      feeds: the numbers of the tensors that the step reads.
    """

    def __init__(self, made_of: Slice, constants: set[int]) -> None:
        every = made_of.constants
        self.constants = {n: every[n] for n in constants}
        self._graph = scopes.Graph(ordered=False)  # effects of the recorded run do not happen again
        self._made = self._replayed(made_of)
        b = Builder(self._graph)
        with scopes.entered(b):
            grads = differentiate(
                b.within("gradients"), self._seeded(b, made_of), [self._made[n] for n in made_of.starts]
            )
        self._results: list[Tensor] = []
        self._grads = [None if g is None else self._parts(g) for g in grads]
        self.feeds = self._needed()
        self._types = [t.dtype.base for t in self._results]
        if self._results:
            session = scopes.runtime().session(graph=self._graph).__enter__()
            self._run = session.value_callable(self._results, [], [self._made[n] for n in self.feeds])

    def __call__(self, given: Slice) -> list[EagerTensor | IndexedSlices | None]:
        """Computes and records the gradient for each source of a slice of the same structure."""
        inputs = tuple([given.tensors[n] for n in self.feeds])
        values = self._run([t._value for t in inputs]) if self._results else []
        results = tuple([_tensor(v, d) for v, d in zip(values, self._types, strict=True)])
        if results and recorder.active.get():
            recorder.record(_GradientEntry(self, inputs, results))
        return [None if parts is None else _gradient(parts, results) for parts in self._grads]

    @property
    def size(self) -> int:
        """Number of operations of its graph."""
        return len(self._graph.operations)

    def create(self, b: Builder, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Creates the operations of the step in another graph.

        Args:
          b: the builder of the graph.
          inputs: a tensor of the graph for each of `feeds`.

        Returns:
          A tensor of the graph for each result.
        """
        fed = [self._made[n] for n in self.feeds]
        moved = dict(zip(fed, inputs, strict=True))
        stop = set(fed)
        ops = walk.in_order(walk.reachable([t.op for t in self._results if t not in stop], stop))
        copy_into(b.graph, ops, moved)
        return [moved[t] for t in self._results]

    def _replayed(self, made_of: Slice) -> list[Tensor]:
        """Creates the entries in the graph; returns the tensors by number."""
        b = Builder(self._graph)
        found: dict[int, Tensor] = {}
        for n in made_of.leaves:
            t = made_of.tensors[n]
            if n in self.constants:
                found[n] = b.const(t._value, t.dtype)
                continue
            found[n] = b.make("Placeholder", (), {"dtype": t.dtype.base, "shape": t.shape}, "value")
            if t.dtype in _OBJECTS:
                found[n].refine(handle=_contents(t._value))
        with scopes.entered(b):
            for entry, inputs, outputs in zip(made_of.entries, made_of.wiring, made_of.made, strict=True):
                created = entry.create(b, [found[n] for n in inputs])
                for n, made in zip(outputs, created, strict=True):
                    made.refine(made_of.tensors[n].shape)
                    found[n] = made
        return [found[n] for n in range(len(found))]

    def _seeded(self, b: Builder, made_of: Slice) -> list[tuple[Tensor, Tensor]]:
        """Returns each target with its gradient."""
        pairs = []
        for n, given in made_of.ends:
            y = self._made[n]
            if given is None:
                one = b.const(1, y.dtype.base)
                pairs.append((y, b.Fill(b.const(made_of.tensors[n].shape, dtypes.int32), one)))
            else:
                pairs.append((y, self._made[given]))
        return pairs

    def _parts(self, g: Tensor | IndexedSlices) -> _Parts:
        if isinstance(g, Tensor):
            return _Parts(self._result(g))
        values, indices, shape = cast("tuple[Tensor, Tensor, Tensor | None]", (g.values, g.indices, g.dense_shape))
        return _Parts(self._result(values), self._result(indices), None if shape is None else self._result(shape))

    def _result(self, t: Tensor) -> int:
        """Returns the number of a tensor among the results."""
        if t not in self._results:
            self._results.append(t)
        return self._results.index(t)

    def _needed(self) -> list[int]:
        """Returns the numbers of the tensors that the results are computed from."""
        numbers = {t: n for n, t in reversed(list(enumerate(self._made))) if n not in self.constants}
        found: set[int] = set()
        seen: set[Operation] = set()
        todo: list[Tensor] = list(self._results)
        while todo:
            t = todo.pop()
            n = numbers.get(t)
            if n is not None:
                found.add(n)
            elif t.op not in seen:
                seen.add(t.op)
                todo += t.op.inputs
        return sorted(found)


def _tensor(value: Any, dtype: dtypes.DType) -> EagerTensor:
    if value.__class__ is np.ndarray and not value.ndim and dtype is not dtypes.string:
        value = value[()]
    return EagerTensor(value, dtype)


def _gradient(parts: _Parts, results: Sequence[EagerTensor]) -> EagerTensor | IndexedSlices:
    if parts.indices is None:
        return results[parts.first]
    shape = None if parts.dense_shape is None else results[parts.dense_shape]
    made: Any = IndexedSlices
    slices: IndexedSlices = made(results[parts.first], results[parts.indices], shape)
    return slices


class _GradientEntry(NamedTuple):
    """A gradient that has been computed, as an entry of the recorders around (`api.recorder.Entry`)."""

    step: GradientStep
    inputs: tuple[EagerTensor, ...]
    outputs: tuple[EagerTensor, ...]

    @property
    def structure(self) -> Hashable:
        return self.step

    def create(self, b: Builder, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Creates the operations of the gradient; see `api.recorder.Entry`."""
        return self.step.create(b, inputs)


_steps: Final[Memo[Hashable, GradientStep]] = Memo(
    "gradients of recordings", thresholds.TAPE_GRADIENT_OPS, lambda step: step.size
)


def gradient_of(given: Slice) -> list[EagerTensor | IndexedSlices | None]:
    """Returns the gradient for each source of a slice; None without a path.

    Raises:
      LookupError: an operation on a path has no gradient.
    """
    key = given.structure
    constants = given.constants
    try:
        step = _steps.get(key)
    except TypeError:  # an attribute is an array
        return GradientStep(given, set(constants))(given)
    if step is None:
        step = GradientStep(given, set(constants))
        _steps.put(key, step)
    elif any(constants[n] != value for n, value in step.constants.items()):
        step = GradientStep(given, {n for n, value in step.constants.items() if constants[n] == value})
        _steps.put(key, step)
    return step(given)
