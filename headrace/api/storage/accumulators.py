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
    """What both kinds of accumulators can do.

    Args:
      dtype: of the gradients.
      shape: of the gradients; None if they may be anything.
      accumulator_ref: the handle.

    Source: TensorFlow's `tf.compat.v1.ConditionalAccumulatorBase`.
    """

    _prefix = "Resource"  # of the types of operations that take its handle

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
        """The tensor that operations know it by."""
        return self._ref

    @property
    def name(self) -> str:
        """The name of the operation that makes its handle, without its scope."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        """The dtype of the gradients."""
        return self._dtype

    def num_accumulated(self, name: str | None = None) -> Any:
        """How many gradients have been put in since the last time that they were taken: an int32 scalar."""
        type = f"{self._prefix}AccumulatorNumAccumulated"
        return scopes.builder(self._ref).make(type, (self._ref,), {}, name or f"{self._name}_NumAccumulated")

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Any:
        """Sets its step number, which gradients are compared with: an operation.

        Args:
          new_global_step: an int scalar; it should not be below the one before.
          name: of the operation.
        """
        b = scopes.builder(self._ref, new_global_step)
        step = _step(b, new_global_step)
        return b.make(f"{self._prefix}AccumulatorSetGlobalStep", (self._ref, step), {}, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r} of {self._dtype.name}{shapes.show(self._shape)}>"


def _step(b: Any, step: Any) -> Any:
    return math.cast(b.tensor(step), dtypes.int64)


class ConditionalAccumulator(ConditionalAccumulatorBase):
    """An accumulator of gradients that are tensors.

    Args:
      dtype: of the gradients.
      shape: of the gradients; None if they may be anything.
      shared_name: accumulators of one name are one in a session; None: that of the operation.
      name: of the operation.
      reduction_type: "MEAN" or "SUM": what is taken.

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
        """Puts a gradient in, or drops it if it is stale: an operation.

        Args:
          grad: the gradient, a tensor.
          local_step: the step at which it was computed, an int scalar.
          name: of the operation.

        Raises:
          ShapeError (a ValueError): it has another shape.
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
        """The mean (or sum) of what has been put in, once that is `num_required` gradients or more; waits until then.

        Raises:
          InvalidArgumentError: when it runs, and `num_required` is not above 0.
        """
        b = scopes.builder(self._ref, num_required)
        out = b.make("ResourceAccumulatorTakeGradient", (self._ref, num_required), {"dtype": self._dtype}, name)
        if b.graph is not None:
            out.refine(self._shape)
        return out


class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """An accumulator of gradients that are some rows of a tensor (`hr.IndexedSlices`).

    A row's mean is that over the gradients which have the row. It works in graphs only.

    Args: see `ConditionalAccumulator`.

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
        """Puts a gradient in, or drops it if it is stale: an operation.

        Args:
          grad_indices: the numbers of its rows, an int vector, in ascending order.
          grad_values: its rows.
          grad_shape: the shape of the whole, an int vector; None: it is not checked.
          local_step: the step at which it was computed, an int scalar.
          name: of the operation.

        Raises:
          InvalidArgumentError: when it runs, and the parts do not fit one another, or others that were put in.
        """
        b = scopes.builder(self._ref, grad_indices, grad_values, grad_shape, local_step)
        whole = b.const([], dtypes.int64) if grad_shape is None else math.cast(b.tensor(grad_shape), dtypes.int64)
        rows = (math.cast(b.tensor(grad_indices), dtypes.int64), b.tensor(grad_values, self._dtype), whole)
        attrs = {"has_known_shape": grad_shape is not None}
        return b.make("SparseAccumulatorApplyGradient", (self._ref, _step(b, local_step), *rows), attrs, name)

    def apply_indexed_slices_grad(self, grad: IndexedSlices, local_step: Any = 0, name: str | None = None) -> Any:
        """`apply_grad` of an `IndexedSlices`."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def take_grad(self, num_required: Any, name: str | None = None) -> tuple[Any, Any, Any]:
        """The indices, rows and shape of the mean (or sum) of what has been put in, once that is `num_required`
        gradients or more; until then it waits."""
        b = scopes.builder(self._ref, num_required)
        attrs = {"dtype": self._dtype}
        made: tuple[Any, Any, Any] = b.make("SparseAccumulatorTakeGradient", (self._ref, num_required), attrs, name)
        return made

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """What `take_grad` gives, as an `IndexedSlices`."""
        indices, rows, whole = self.take_grad(num_required, name)
        return IndexedSlices(rows, indices, whole)
