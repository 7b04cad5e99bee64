"""Sparse gradients: some rows of a tensor whose other rows are zero."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import nest, shapes
from headrace.ir import tensor_type
from headrace.ir.graph import Tensor
from headrace.ir.infer import shape_value
from headrace.ir.symbolic import seen
from headrace.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dtypes import DType
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradNode
    from headrace.ir.graph import Graph, Operation
    from headrace.shapes import Shape


class IndexedSlicesValue(NamedTuple):
    """Value of an `IndexedSlices`, which a fetch returns and a feed accepts.

    Attributes:
      values, indices: the rows and their numbers, arrays.
      dense_shape: the shape of the whole tensor, an array; None if unknown.

    Source: TensorFlow's `IndexedSlicesValue`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     table = hr.constant([1.0, 2.0, 3.0, 4.0])
      ...     (d,) = hr.gradients(hr.reduce_sum(hr.gather(table, [3, 1])), table)
      >>> values, indices, dense_shape = hr.Session(graph=g).run(d)
      >>> indices
      array([3, 1], dtype=int32)
    """

    values: Any
    indices: Any
    dense_shape: Any = None


@record(frozen=True, slots=True)
class IndexedSlices(nest.Composite):
    """Rows of a tensor of shape `dense_shape`: `values[i]` belongs to row `indices[i]`.

    Rows with equal indices are added.

    The gradient of a gather consists of the gathered rows: if a step uses ten rows of a table of a million rows, the
    gradient has ten rows. Where a tensor is required, the slices are converted to one (`hr.convert_to_tensor`, or any
    operation that receives them). Conditionals, loops and functions keep the slices, and so do `-slices`, `hr.cast`,
    `hr.identity` and the clipping functions. A fetch returns an `IndexedSlicesValue`; such a value, or a tuple of the
    parts, can be fed.

    Attributes:
      values: the rows, [n, ...].
      indices: the row numbers, [n], int32 or int64.
      dense_shape: the shape of the whole tensor, a vector of integers whose first element is the number of rows. None
        if unknown; then the slices cannot be converted to a tensor.

    Source: TensorFlow's `tf.IndexedSlices`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     table = hr.placeholder(hr.float32, (1000, 2))
      ...     (d,) = hr.gradients(hr.reduce_sum(hr.gather(table, [3, 7, 3])), table)
      >>> d.values.shape
      (3, 2)
    """

    values: tensor_type.Tensor
    indices: tensor_type.Tensor
    dense_shape: tensor_type.Tensor | None = None

    fetched_as = IndexedSlicesValue

    @property
    def dtype(self) -> DType:
        """Dtype of the rows."""
        return self.values.dtype

    @property
    def shape(self) -> Any:
        """Static shape of the whole tensor."""
        whole: Any = self.dense_shape
        if whole is not None:
            whole = shape_value(whole) if isinstance(whole, Tensor) else tuple(np.asarray(whole).tolist())
        return seen(whole, self.values)

    @property
    def graph(self) -> Graph:
        """Graph of the rows."""
        graph: Graph = self.values.graph
        return graph

    @property
    def op(self) -> Operation:
        """Operation that produces the rows."""
        op: Operation = self.values.op
        return op

    @property
    def name(self) -> str:
        """Name of the tensor of rows."""
        return self.values.name

    @property
    def device(self) -> str:
        """Device requested for the rows."""
        return self.values.device

    def with_values(self, new_values: Any) -> IndexedSlices:
        """Returns slices with the same indices and shape, and other rows."""
        return IndexedSlices(new_values, self.indices, self.dense_shape)

    def __neg__(self) -> IndexedSlices:
        return self.with_values(-self.values)

    # *** nest.Composite ***

    def _flatten(self) -> list[Any]:
        parts = [self.values, self.indices]
        return parts if self.dense_shape is None else [*parts, self.dense_shape]

    def _unflatten(self, parts: Sequence[Any]) -> IndexedSlices:
        return IndexedSlices(*parts)

    def _loop_shapes(self, invariant: Shape) -> list[Shape]:
        """Returns the shapes of the parts in all iterations of a loop.

        Args:
          invariant: the shape of the values; None: their present static shape.
        """
        if invariant is None:
            return [t.shape for t in self._flatten()]
        parts: list[Shape] = [invariant, invariant[:1]]
        return parts if self.dense_shape is None else [*parts, (len(invariant),)]

    def as_tensor(self, b: Builder) -> Tensor:
        """Returns the whole tensor, with zeros in the missing rows.

        Raises:
          ValueError: the number of rows is unknown, because `dense_shape` is None.
        """
        if self.dense_shape is None:
            raise ValueError(f"the IndexedSlices {self.name!r} cannot become a tensor: it has no dense_shape")
        rows = b.StridedSlice(self.dense_shape, [0], [1], [1], shrink_axis_mask=1)
        out: Tensor = b.UnsortedSegmentSum(self.values, self.indices, rows)
        return out


def of_gather(b: Builder, dy: Tensor, indices: Tensor, shape: Tensor) -> IndexedSlices:
    """Returns the gradient of a gather: the rows of `dy`, at `indices`.

    Args:
      b: the builder.
      dy: the gradient of the gathered rows.
      indices: the numbers of the rows, a tensor of any shape.
      shape: the shape of the tensor from which the rows were gathered.

    Returns:
      The gradient with respect to that tensor, as slices.
    """
    index = shape.dtype.base
    n = shapes.size(indices.shape)
    # Not -1: rows without elements do not determine their number.
    count = b.const([n], index) if n is not None else b.ExpandDims(b.Size(indices, out_type=index), 0)
    row = b.StridedSlice(shape, [1], [0], [1], end_mask=1)
    return IndexedSlices(b.Reshape(dy, b.ConcatV2([count, row], 0)), b.Reshape(indices, [-1]), shape)


def forwarded(b: Builder, n: GradNode, *dys: Tensor | IndexedSlices | None) -> Sequence[Tensor | IndexedSlices | None]:
    """Returns the output gradients as input gradients, for operations that return their inputs.

    This rule receives `IndexedSlices` as they are; other rules receive tensors.
    """
    return dys
