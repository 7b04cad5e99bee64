"""Sparse gradients: some rows of a tensor, the others being zero."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace import nest, shapes
from headrace.ir.graph import Tensor
from headrace.ir.infer import shape_value
from headrace.ir.symbolic import seen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dtypes import DType
    from headrace.ir.builder import Builder
    from headrace.ir.grad_node import GradNode
    from headrace.ir.graph import Graph, Operation
    from headrace.shapes import Shape


class IndexedSlicesValue(NamedTuple):
    """The value of an `IndexedSlices`: the result of a fetch of one, and the value to feed for one.

    Attributes:
      values, indices: arrays.
      dense_shape: an array; None if the slices have none.

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


@dataclasses.dataclass(frozen=True, slots=True)
class IndexedSlices(nest.Composite):
    """Rows of a tensor of shape `dense_shape`: `values[i]` belongs to row `indices[i]`; rows that come twice add up.

    The gradient with respect to what rows are gathered from is made of the rows that were gathered: for a table of a
    million rows, of which a step uses ten, that is ten rows. Where a tensor is needed it becomes one
    (`hr.convert_to_tensor`, or any operation that is given it). Conditionals, loops and functions keep it, and so do
    `-slices`, `hr.cast`, `hr.identity` and the functions that clip. A fetch of one gives an `IndexedSlicesValue`; such
    a value, or a tuple of the parts, can be fed for it.

    Attributes:
      values: the rows, [n, ...].
      indices: their numbers, [n], int32 or int64.
      dense_shape: the shape of the whole, a vector of integers; its first element is the number of rows. None if it is
        not known: then it cannot become a tensor.

    Source: TensorFlow's `tf.IndexedSlices`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     table = hr.placeholder(hr.float32, (1000, 2))
      ...     (d,) = hr.gradients(hr.reduce_sum(hr.gather(table, [3, 7, 3])), table)
      >>> d.values.shape
      (3, 2)
    """

    values: Tensor
    indices: Tensor
    dense_shape: Tensor | None = None

    fetched_as = IndexedSlicesValue

    @property
    def dtype(self) -> DType:
        """The dtype of the rows."""
        return self.values.dtype

    @property
    def shape(self) -> Any:
        """What is known of the shape of the whole before anything runs."""
        whole: Any = self.dense_shape
        if whole is not None:
            whole = shape_value(whole) if isinstance(whole, Tensor) else tuple(np.asarray(whole).tolist())
        return seen(whole, self.values)

    @property
    def graph(self) -> Graph:
        """The graph that it is of."""
        return self.values.graph

    @property
    def op(self) -> Operation:
        """The operation that makes the rows."""
        return self.values.op

    @property
    def name(self) -> str:
        """The name of the rows."""
        return self.values.name

    @property
    def device(self) -> str:
        """The device requested for the rows."""
        return self.values.device

    def with_values(self, new_values: Any) -> IndexedSlices:
        """The same rows of another tensor of the same shape."""
        return IndexedSlices(new_values, self.indices, self.dense_shape)

    def __neg__(self) -> IndexedSlices:
        return self.with_values(-self.values)  # type: ignore[operator]  # `api.operators` installs it

    # *** nest.Composite ***

    def _flatten(self) -> list[Any]:
        parts = [self.values, self.indices]
        return parts if self.dense_shape is None else [*parts, self.dense_shape]

    def _unflatten(self, parts: Sequence[Any]) -> IndexedSlices:
        return IndexedSlices(*parts)

    def _loop_shapes(self, invariant: Shape) -> list[Shape]:
        """The shapes of the parts in all iterations of a loop.

        Args:
          invariant: the shape of the values; None: what is known of it at first.
        """
        if invariant is None:
            return [t.shape for t in self._flatten()]
        parts: list[Shape] = [invariant, invariant[:1]]
        return parts if self.dense_shape is None else [*parts, (len(invariant),)]

    def as_tensor(self, b: Builder) -> Tensor:
        """The whole tensor, with zeros where there are no rows.

        Raises:
          ValueError: nothing says how many rows it has.
        """
        if self.dense_shape is None:
            raise ValueError(f"the IndexedSlices {self.name!r} cannot become a tensor: it has no dense_shape")
        rows = b.StridedSlice(self.dense_shape, [0], [1], [1], shrink_axis_mask=1)
        out: Tensor = b.UnsortedSegmentSum(self.values, self.indices, rows)
        return out


def of_gather(b: Builder, dy: Tensor, indices: Tensor, shape: Tensor) -> IndexedSlices:
    """The gradient of a gather of rows, by what they are rows of: the rows of `dy`.

    Args:
      dy: the gradient of what was gathered.
      indices: which rows, a tensor of any shape.
      shape: that of the whole.
    """
    index = shape.dtype.base
    n = shapes.size(indices.shape)
    # not -1: if the rows have no elements, their number does not follow from how many elements there are
    count = b.const([n], index) if n is not None else b.ExpandDims(b.Size(indices, out_type=index), 0)
    row = b.StridedSlice(shape, [1], [0], [1], end_mask=1)
    return IndexedSlices(b.Reshape(dy, b.ConcatV2([count, row], 0)), b.Reshape(indices, [-1]), shape)


def forwarded(b: Builder, n: GradNode, *dys: Tensor | IndexedSlices | None) -> Sequence[Tensor | IndexedSlices | None]:
    """The gradient rule of operations that hand on what they are given. The walk gives it slices as they are; those of
    all others get tensors."""
    return dys
