"""Accumulators of gradients: several workers add gradients, and one worker takes their mean (or sum).

An accumulator has a step number, the *global step*. A gradient that was computed at an earlier step is stale, and is
dropped. Taking the accumulated gradient increments the step number by one.
"""

from __future__ import annotations

from typing import Any

from headrace import dtypes, shapes
from headrace.api import math, scopes
from headrace.errors import ShapeError
from headrace.ir.graph import Operation
from headrace.ir.indexed_slices import IndexedSlices
from headrace.shapes import Shape


class ConditionalAccumulatorBase:
    """Base of the accumulators of dense and sparse gradients.

    Args:
      dtype: dtype of the gradients.
      shape: shape of the gradients; None: any shape.
      accumulator_ref: the handle of the accumulator.

    Source: TensorFlow's `tf.compat.v1.ConditionalAccumulatorBase`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     mean = hr.ConditionalAccumulator(hr.float32, shape=())
      ...     put = mean.apply_grad(3.0)
      ...     count = mean.num_accumulated()
      >>> isinstance(mean, hr.ConditionalAccumulatorBase), mean.dtype
      (True, headrace.float32)
      >>> with hr.Session(graph=g) as sess:
      ...     sess.run(put)
      ...     sess.run(count)
      np.int32(1)
    """

    _prefix = "Resource"  # prefix of the types of operations that take the handle

    def __init__(self, dtype: Any, shape: Any, accumulator_ref: Any) -> None:
        self._dtype = dtypes.as_dtype(dtype)
        self._shape: Shape = shapes.as_shape(shape)
        self._ref = accumulator_ref
        op = getattr(accumulator_ref, "op", None)
        self._name = op.name.rpartition("/")[2] if isinstance(op, Operation) else "accumulator"

    @classmethod
    def _handle(cls, dtype: Any, shape: Any, shared_name: str | None, name: str, reduction_type: str) -> Any:
        kind = f"{'Resource' if cls._prefix else 'Sparse'}ConditionalAccumulator"
        b = scopes.builder()
        attrs = {
            "dtype": dtypes.as_dtype(dtype),
            "shape": shapes.as_shape(shape),
            "shared_name": shared_name or "",
            "container": getattr(b.graph, "current_container", ""),
            "reduction_type": reduction_type,
        }
        return b.make(kind, (), attrs, name)

    @property
    def accumulator_ref(self) -> Any:
        """The handle of the accumulator, an input of its operations."""
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that creates the handle, without its scope."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        """The dtype of the gradients."""
        return self._dtype

    def num_accumulated(self, name: str | None = None) -> Any:
        """Returns the number of gradients since the last `take_grad`: an int32 scalar.

        Args:
          name: name of the operation.
        """
        type = f"{self._prefix}AccumulatorNumAccumulated"
        return scopes.builder(self._ref).make(type, (self._ref,), {}, name or f"{self._name}_NumAccumulated")

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Any:
        """Adds an operation that sets the global step of the accumulator.

        Gradients with a local step below the global step are stale.

        Args:
          new_global_step: an int scalar, not less than the current global step.
          name: name of the operation.
        """
        b = scopes.builder(self._ref, new_global_step)
        step = _step(b, new_global_step)
        return b.make(f"{self._prefix}AccumulatorSetGlobalStep", (self._ref, step), {}, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self._dtype.name}{shapes.show(self._shape)}>"


def _step(b: Any, step: Any) -> Any:
    return math.cast(b.tensor(step), dtypes.int64)


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """Accumulator of dense gradients.

    Args:
      dtype: dtype of the gradients.
      shape: shape of the gradients; None: any shape.
      shared_name: accumulators with the same name are one accumulator in a session; None: the name of the operation.
      name: name of the operation.
      reduction_type: "MEAN" or "SUM": the result of `take_grad`.

    Source: TensorFlow's `tf.compat.v1.ConditionalAccumulator`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     sums = hr.ConditionalAccumulator(hr.float32, ())
      ...     x = hr.placeholder(hr.float32, ())
      ...     put, mean = sums.apply_grad(x), sums.take_grad(2)
      >>> with hr.Session(graph=g) as session:
      ...     session.run(put, {x: 1.0})
      ...     session.run(put, {x: 4.0})
      ...     session.run(mean)
      np.float32(2.5)
    """

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        super().__init__(dtype, shape, self._handle(dtype, shape, shared_name, name, reduction_type))

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Any:
        """Adds an operation that accumulates a gradient, or drops it if it is stale.

        Args:
          grad: the gradient, a tensor.
          local_step: the global step at which the gradient was computed, an int scalar.
          name: name of the operation.

        Raises:
          ShapeError (a ValueError): the gradient has another shape than the accumulator.
        """
        b = scopes.builder(self._ref, grad, local_step)
        value = b.tensor(grad, self._dtype)
        if not shapes.compatible(value.shape, self._shape):
            raise ShapeError(
                f"Shapes {shapes.show(value.shape)} and {shapes.show(self._shape)} are incompatible: those of a "
                f"gradient and of {self!r}"
            )
        return b.make("ResourceAccumulatorApplyGradient", (self._ref, _step(b, local_step), value), {}, name)

    def take_grad(self, num_required: Any, name: str | None = None) -> Any:
        """Takes the mean (or sum) of the gradients, waiting until there are `num_required`.

        The accumulator is then empty, and its global step is greater by 1.

        Args:
          num_required: the least number of gradients, an int scalar.
          name: name of the operation.

        Raises:
          InvalidArgumentError: in a run, if `num_required` is not positive.
        """
        b = scopes.builder(self._ref, num_required)
        out = b.make("ResourceAccumulatorTakeGradient", (self._ref, num_required), {"dtype": self._dtype}, name)
        if b.graph is not None:
            out.refine(self._shape)
        return out


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """Accumulator of sparse gradients (`hr.IndexedSlices`).

    The mean of a row is taken over the gradients that contain the row. The accumulator works in graphs only.

    The arguments are those of `ConditionalAccumulator`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     accumulator = hr.SparseConditionalAccumulator(hr.float32, shape=(4, 2))
      ...     apply = accumulator.apply_grad([1], [[1.0, 2.0]])
      ...     rows, values, shape = accumulator.take_grad(1)
      >>> with hr.Session(graph=g) as session:
      ...     session.run(apply)
      ...     print(session.run([rows, values]))
      [array([1]), array([[1., 2.]], dtype=float32)]

    Source: TensorFlow's `tf.compat.v1.SparseConditionalAccumulator`.
    """

    _prefix = ""

    def __init__(
        self,
        dtype: Any,
        shape: Any = None,
        shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:
        scopes.graph_builder("SparseConditionalAccumulator")
        super().__init__(dtype, shape, self._handle(dtype, shape, shared_name, name, reduction_type))

    def apply_grad(
        self, grad_indices: Any, grad_values: Any, grad_shape: Any = None, local_step: Any = 0, name: str | None = None
    ) -> Any:
        """Adds an operation that accumulates a gradient, or drops it if it is stale.

        Args:
          grad_indices: indices of the rows, an int vector in ascending order.
          grad_values: the rows.
          grad_shape: shape of the dense gradient, an int vector; None: not checked.
          local_step: the global step at which the gradient was computed, an int scalar.
          name: name of the operation.

        Raises:
          InvalidArgumentError: in a run, if the shapes contradict each other or those of accumulated gradients.
        """
        b = scopes.builder(self._ref, grad_indices, grad_values, grad_shape, local_step)
        whole = b.const([], dtypes.int64) if grad_shape is None else math.cast(b.tensor(grad_shape), dtypes.int64)
        rows = (math.cast(b.tensor(grad_indices), dtypes.int64), b.tensor(grad_values, self._dtype), whole)
        attrs = {"has_known_shape": grad_shape is not None}
        return b.make("SparseAccumulatorApplyGradient", (self._ref, _step(b, local_step), *rows), attrs, name)

    def apply_indexed_slices_grad(self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None) -> Any:
        """Adds an operation that accumulates an `IndexedSlices`; see `apply_grad`."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def take_grad(self, num_required: Any, name: str | None = None) -> tuple[Any, Any, Any]:
        """Takes the mean (or sum) of the gradients, waiting until there are `num_required`.

        Args:
          num_required: the least number of gradients, an int scalar.
          name: name of the operation.

        Returns:
          Its indices, rows and dense shape.
        """
        b = scopes.builder(self._ref, num_required)
        attrs = {"dtype": self._dtype}
        made: tuple[Any, Any, Any] = b.make("SparseAccumulatorTakeGradient", (self._ref, num_required), attrs, name)
        return made

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """Takes the mean (or sum) as an `IndexedSlices`; see `take_grad`."""
        indices, rows, whole = self.take_grad(num_required, name)
        return IndexedSlices(rows, indices, whole)
