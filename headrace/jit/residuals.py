"""Recorded calls that draw random numbers in loops, and keep the draws for the gradient.

A tape creates the operations of a recorded call again (`jit.recorded`), and feeds what the call drew. Draws in a
loop or conditional cannot be fed. Therefore the step of such a call also computes the *residuals* of its gradient:
the gradient is added to the trace, and the residuals are the tensors that cross from the call to the gradient. A
second step computes the gradient from them.

Source: the forward and backward functions of TensorFlow's `tf.function`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace import nest
from headrace.api import recorder, scopes
from headrace.errors import UnimplementedError
from headrace.ir import walk
from headrace.ir.builder import Builder
from headrace.ir.function import nested_operations
from headrace.ir.graph import Tensor
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.order import effects

if TYPE_CHECKING:
    from headrace.dtypes import DType
    from headrace.jit.concrete import ConcreteFunction


class SavingFunction:
    """A trace whose recorded calls keep what their gradient needs.

    Args:
      concrete: the trace. The gradient is added to its graph.

    Raises:
      LookupError: an operation has no gradient.
      UnimplementedError: the gradient would draw or change state again.
    """

    def __init__(self, concrete: ConcreteFunction) -> None:
        self._concrete = concrete
        inputs = concrete.inputs
        ys = dict.fromkeys(t for t in nest.flatten(concrete.value) if isinstance(t, Tensor) and _is_float(t.dtype))
        with concrete.graph.reopened():
            b = Builder(concrete.graph).within("gradients")
            dys = [b.make("Placeholder", (), {"dtype": y.dtype.base, "shape": y.static_shape}, "dy") for y in ys]
            xs = [x for x in inputs if _is_float(x.dtype) or x.handle is not None]
            grads = scopes.runtime().differentiate(b, list(zip(ys, dys, strict=True)), xs)
        self._grads = dict(zip(xs, grads, strict=True))
        self._results = list(dict.fromkeys(t for g in grads for t in _parts(g)))
        self._residuals = [t for t in _crossing(self._results, dys) if t not in inputs]
        self._position = {y: i for i, y in enumerate(ys)}
        self._forward = concrete.step((concrete.value, self._residuals), effects=concrete.effects)
        self._backward = concrete.step(self._results, [*dys, *self._residuals])
        _check_repeatable(concrete, self._results, {*inputs, *dys, *self._residuals})

    def __call__(self, tensors: Sequence[Any], checks: Callable[[], Callable[[], None]]) -> Any:
        """Calls the function with eager tensors, and records the call.

        Args:
          tensors: the arguments.
          checks: returns, after the call, a check to make before the gradient.
        """
        given = [t._value for t in tensors]
        value, residuals = self._forward(given)
        kept = [t._value for t in residuals]
        leaves = zip(nest.flatten(self._concrete.value), nest.flatten(value), strict=True)
        at = [(self._position[t], y) for t, y in leaves if isinstance(t, Tensor) and t in self._position]
        inputs = (*tensors, *self._concrete.captured)
        check = checks()

        def pull_back(dys: list[Any]) -> list[Any]:
            check()
            return self._pulled_back(inputs, given, kept, [k for k, _ in at], dys)

        recorder.record(recorder.CustomEntry(inputs, tuple([y for _, y in at]), pull_back))
        return value

    def _pulled_back(
        self, inputs: tuple[Any, ...], given: list[Any], kept: list[Any], at: Sequence[int], dys: Sequence[Any]
    ) -> list[Any]:
        """Returns the gradient of each input.

        Args:
          inputs: the inputs of the call.
          given: the values of the arguments.
          kept: the values of the residuals.
          at: the position of each result among the differentiable tensors of the trace.
          dys: the gradient of each result.
        """
        eager = scopes.runtime().eager
        totals: list[Any] = [None] * len(self._position)
        for k, dy in zip(at, dys, strict=True):
            totals[k] = dy if totals[k] is None else eager.AddV2(totals[k], dy)
        with recorder.set_to(()):
            found = dict(zip(self._results, self._backward([*given, *[t._value for t in totals], *kept]), strict=True))
        if found:
            recorder.record(_Pulled(self._concrete.graph.title, (*inputs, *dys), tuple(found.values())))
        return [_gradient(self._grads.get(x), found) for x in self._concrete.inputs]


class _Pulled(NamedTuple):
    """Gradient that has been computed, as an entry of recorders that has no gradient itself."""

    title: str
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    @property
    def structure(self) -> Hashable:
        raise UnimplementedError(
            f"the second derivative of a tape through {self.title}, which has effects inside a loop or conditional "
            "(random numbers, prints), is not supported; compute it by hr.grad of hr.grad of the function"
        )

    def create(self, b: Builder, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Raises the error of `structure`."""
        raise AssertionError(self.structure)


def _is_float(dtype: DType) -> bool:
    return dtype.is_floating or dtype.is_complex


def _parts(g: Any) -> list[Any]:
    """Returns the tensors of a gradient."""
    every = (g.values, g.indices, g.dense_shape) if _is_slices(g) else (g,)
    return [t for t in every if t is not None]


def _is_slices(g: Any) -> bool:
    return isinstance(g, IndexedSlices)


def _gradient(g: Any, found: Mapping[Tensor, Any]) -> Any:
    """Returns the value of a gradient from those of its tensors."""
    if _is_slices(g):
        made: Any = IndexedSlices
        return made(*[None if t is None else found[t] for t in (g.values, g.indices, g.dense_shape)])
    return None if g is None else found[g]


def _crossing(results: Sequence[Tensor], dys: Sequence[Tensor]) -> list[Tensor]:
    """Returns the tensors that do not depend on `dys`, from which `results` are computed."""
    late = set(dys)
    found: dict[Tensor, None] = {}
    for op in walk.in_order(walk.reachable([t.op for t in results], late)):
        if late.isdisjoint(op.inputs):
            continue
        found.update(dict.fromkeys(t for t in op.inputs if t not in late))
        late.update(op.outputs)
    found.update(dict.fromkeys(t for t in results if t not in late))
    return [t for t in found if t.op.inputs or t.op.opdef.is_effectful]


def _check_repeatable(concrete: ConcreteFunction, results: Sequence[Tensor], fed: set[Tensor]) -> None:
    ops = walk.reachable([t.op for t in results if t not in fed], fed)
    bad = next((op for op in nested_operations(ops, calls=True) if any(effects(op).values())), None)
    if bad is not None:
        raise UnimplementedError(
            f"the gradient of a tape through {concrete.graph.title} would run '{bad.name}' ({bad.type}, made at "
            f"{bad.source}) again; compute it by hr.grad of the function"
        )
