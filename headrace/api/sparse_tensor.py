"""Sparse tensors: the nonzero elements and their indices.

A `SparseTensor` is a structure of three tensors: the functions of `headrace.api.sparse` split it and build another one.
It can be fetched and fed as a whole (`headrace.fetches`), and conditionals, loops and functions treat it as a structure
(`nest`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.errors import ShapeError
from headrace.ir import infer
from headrace.ir.graph import Tensor
from headrace.ir.symbolic import seen
from headrace.shapes import Shape


class SparseTensorValue(NamedTuple):
    """Value of a `SparseTensor`: the result of a fetch, and a value to feed.

    Source: TensorFlow's `tf.compat.v1.SparseTensorValue`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.sparse_placeholder(hr.int32, (3,))
      ...     y = hr.sparse.to_dense(x)
      >>> hr.Session(graph=g).run(y, {x: hr.SparseTensorValue([[1]], [5], [3])})
      array([0, 5, 0], dtype=int32)
    """

    indices: Any
    values: Any
    dense_shape: Any


class SparseTensor(nest.Composite):
    """Tensor given by the indices and values of some elements; the others are zero.

    Args:
      indices: indices of the elements: int64, [n, rank]. Most functions require row-major order (`hr.sparse.reorder`).
      values: the elements, [n].
      dense_shape: the shape of the tensor: int64, [rank].

    Attributes:
      indices, values, dense_shape: the three tensors.
      shape: the static shape.
      dtype: dtype of the values.

    Raises:
      ShapeError (a ValueError): the ranks or lengths of the three are incompatible.

    Source: TensorFlow's `tf.sparse.SparseTensor`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     eye = hr.SparseTensor([[0, 0], [1, 1]], [1.0, 1.0], [2, 2])
      ...     twice = hr.sparse.add(eye, eye)
      >>> hr.Session(graph=g).run(hr.sparse.to_dense(twice))
      array([[2., 0.],
             [0., 2.]], dtype=float32)
    """

    fetched_as = SparseTensorValue

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        with scopes.name_scope(None, "SparseTensor", [indices, values, dense_shape]):
            b = scopes.builder(indices, values, dense_shape)
            self.indices: Any = b.tensor(indices, dtypes.int64, "indices")
            self.values: Any = b.tensor(values, None, "values")
            self.dense_shape: Any = b.tensor(dense_shape, dtypes.int64, "dense_shape")
        at, elements, whole = self.indices.shape, self.values.shape, self.dense_shape.shape
        n, rank = shapes.with_rank(at, 2)
        if not shapes.compatible((n,), shapes.with_rank(elements, 1)):
            raise ShapeError(
                f"Dimensions {n} and {elements[0]} are not compatible: there are so many indices and values"
            )
        if not shapes.compatible((rank,), shapes.with_rank(whole, 1)):
            raise ShapeError(
                f"Dimensions {rank} and {whole[0]} are not compatible: each index has so many parts, and the shape"
            )
        self._shape = static_shape(self.dense_shape)

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """Converts a `SparseTensorValue`; copies a `SparseTensor`.

        Args:
          sparse_tensor_value: a `SparseTensor` or `SparseTensorValue`.

        Raises:
          TypeError: the argument is neither.
        """
        if not isinstance(sparse_tensor_value, (SparseTensor, SparseTensorValue)):
            raise TypeError(f"a SparseTensor or SparseTensorValue expected, got {sparse_tensor_value!r}")
        return (
            cls(*nest.flatten(sparse_tensor_value))
            if isinstance(sparse_tensor_value, SparseTensor)
            else cls(*sparse_tensor_value)
        )

    def with_values(self, new_values: Any) -> SparseTensor:
        """Returns a sparse tensor with the same indices and other values."""
        return SparseTensor(self.indices, new_values, self.dense_shape)

    @property
    def dtype(self) -> dtypes.DType:
        found: dtypes.DType = self.values.dtype
        return found

    @property
    def shape(self) -> Any:
        """The static shape."""
        return seen(self._shape, self.values)

    @property
    def graph(self) -> Any:
        """The graph of the tensors."""
        return self.values.graph

    @property
    def op(self) -> Any:
        """The operation of `values`."""
        return self.values.op

    @property
    def name(self) -> str:
        """The name of `values`."""
        return str(self.values.name)

    def set_shape(self, shape: Any) -> None:
        """Merges `shape` into the static shape.

        Raises:
          ShapeError: the shapes contradict each other.
        """
        self._shape = shapes.merge(self._shape, shapes.as_shape(shape))

    def numpy(self) -> Any:
        """Returns the dense array of a sparse tensor outside of graphs."""
        out = np.zeros(tuple(self.dense_shape.numpy().tolist()), self.dtype.numpy)
        for at, x in zip(self.indices.numpy().tolist(), self.values.numpy(), strict=True):
            out[tuple(at)] = x
        return out

    def __mul__(self, other: Any) -> SparseTensor:
        return self._with_dense("SparseDenseCwiseMul", other)

    def __rmul__(self, other: Any) -> SparseTensor:
        if not isinstance(other, Tensor) and not hasattr(type(other), "as_tensor"):
            return NotImplemented  # a tensor alone, as in TensorFlow
        return self._with_dense("SparseDenseCwiseMul", other)

    def __truediv__(self, other: Any) -> SparseTensor:
        return self._with_dense("SparseDenseCwiseDiv", other)

    def _with_dense(self, type: str, other: Any) -> SparseTensor:
        """Combines each value with the element of a dense tensor at its indices."""
        parts = self._flatten()
        b = scopes.builder(*parts, other)
        return self.with_values(b.make(type, (*parts, b.tensor(other, self.dtype.base, "y")), {}))

    def _flatten(self) -> list[Any]:
        return [self.indices, self.values, self.dense_shape]

    def _unflatten(self, parts: Sequence[Any]) -> SparseTensor:
        out = SparseTensor.__new__(SparseTensor)  # the parts may be of another graph; they are compatible already
        out.indices, out.values, out.dense_shape = parts
        out._shape = static_shape(out.dense_shape)
        return out

    def _loop_shapes(self, invariant: Shape) -> list[Shape]:
        """Returns the shapes of the parts in all iterations; the number of elements may change.

        Args:
          invariant: the shape of `dense_shape`; None: its static shape before the loop.

        Raises:
          ShapeError (a ValueError): `invariant` is not the shape of a vector.
        """
        if invariant is None:
            return [(None, *shapes.with_rank(self.indices.shape, 2)[1:]), (None,), self.dense_shape.shape]
        try:
            (rank,) = shapes.with_rank(invariant, 1)
        except ValueError as e:
            raise ShapeError(
                "the shape invariant of a SparseTensor is the shape of its dense_shape, which is a vector: (rank,); "
                f"got {shapes.show(invariant)}: {e}"
            ) from e
        return [(None, rank), (None,), (rank,)]

    def __repr__(self) -> str:
        return f"SparseTensor(indices={self.indices!r}, values={self.values!r}, dense_shape={self.dense_shape!r})"


class SparseTensorSpec:
    """The static shape and the dtype of a `SparseTensor`.

    Source: TensorFlow's `tf.SparseTensorSpec`.

    >>> SparseTensorSpec((None, 3), "float32")
    SparseTensorSpec(shape=[?,3], dtype=float32)
    """

    __slots__ = ("dtype", "shape")

    def __init__(self, shape: Any = None, dtype: Any = dtypes.float32) -> None:
        self.shape: Shape = shapes.as_shape(shape)
        self.dtype = dtypes.as_dtype(dtype)

    @property
    def value_type(self) -> type:
        """Class of the sparse tensors."""
        return SparseTensor

    @classmethod
    def from_value(cls, value: Any) -> SparseTensorSpec:
        """Describes a sparse tensor.

        Args:
          value: a `SparseTensor` or `SparseTensorValue`.
        """
        found = value if isinstance(value, SparseTensor) else SparseTensor.from_value(value)
        return cls(found.shape, found.dtype.base)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a description, or a sparse tensor, has the dtype and a shape that fits.

        Args:
          spec_or_value: the description or sparse tensor.
        """
        is_spec = isinstance(spec_or_value, (SparseTensorSpec, SparseTensor))
        return (
            is_spec
            and spec_or_value.dtype.base == self.dtype
            and shapes.compatible(self.shape, shapes.as_shape(spec_or_value.shape))
        )

    def __repr__(self) -> str:
        return f"SparseTensorSpec(shape={shapes.show(self.shape)}, dtype={self.dtype.name})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SparseTensorSpec) and (self.shape, self.dtype) == (other.shape, other.dtype)

    def __hash__(self) -> int:
        return hash((self.shape, self.dtype))


def static_shape(dense_shape: Any) -> Shape:
    """Returns the static shape for a dense shape, as far as it is known."""
    if isinstance(dense_shape, Tensor):
        return infer.shape_value(dense_shape)
    if not hasattr(dense_shape, "numpy"):
        return None
    return tuple(n if n >= 0 else None for n in dense_shape.numpy().tolist())


def as_sparse(x: Any) -> SparseTensor:
    """Returns a `SparseTensor` unchanged; converts a `SparseTensorValue`.

    Raises:
      TypeError: the argument is neither.
    """
    if isinstance(x, SparseTensorValue):
        return SparseTensor.from_value(x)
    if not isinstance(x, SparseTensor):
        raise TypeError(f"Input must be a SparseTensor, got {x!r} ({type(x).__name__}); hr.sparse.from_dense makes one")
    return x


def is_sparse(x: Any) -> bool:
    """Whether `x` is a `SparseTensor` or a `SparseTensorValue`."""
    return isinstance(x, (SparseTensor, SparseTensorValue))


def convert_to_tensor_or_sparse_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Converts a value to a tensor, and a `SparseTensorValue` to a `SparseTensor`.

    Args:
      value: a value that `hr.convert_to_tensor` accepts, a `SparseTensorValue`, or a `SparseTensor`, which is returned.
      dtype: the required dtype; None: that of the value.
      name: name of the constant; "Const" if None.

    Raises:
      RuntimeError: the value is sparse and has another dtype.

    Source: TensorFlow's `tf.compat.v1.convert_to_tensor_or_sparse_tensor`.

    Example:
      >>> import headrace as hr
      >>> value = hr.SparseTensorValue([[1]], [5], [3])
      >>> type(hr.convert_to_tensor_or_sparse_tensor(value)).__name__
      'SparseTensor'
    """
    wanted = None if dtype is None else dtypes.as_dtype(dtype)
    if is_sparse(value):
        sparse = as_sparse(value)
        if wanted not in (None, sparse.dtype.base):
            raise RuntimeError(f"Sparse dtype mismatch. Requested: {wanted.name},  Actual: {sparse.dtype.name}")
        return sparse
    return scopes.builder(value).tensor(value, wanted, name or "Const")


def sparse_placeholder(dtype: Any, shape: Any = None, name: str | None = None) -> SparseTensor:
    """Adds placeholders for a sparse tensor.

    It is fed with a `SparseTensorValue`, or a tuple of indices, values and dense shape.

    Args:
      dtype: dtype of the values.
      shape: static shape, a sequence with None for unknown sizes; None: unknown rank. If it is given, the dense shape
        need not be fed.
      name: prefix of the three placeholders' names ("name/values", "name/indices", "name/shape").

    Raises:
      GraphError: no graph has been entered.

    Source: TensorFlow's `tf.compat.v1.sparse_placeholder`.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.sparse_placeholder(hr.float32)
      ...     total = hr.sparse.reduce_sum(x)
      >>> hr.Session(graph=g).run(total, {x: ([[0, 1], [2, 0]], [1.0, 2.0], [3, 2])})
      np.float32(3.0)
    """
    b = scopes.graph_builder("sparse_placeholder")
    below = {part: f"{name}/{part}" if name else "Placeholder" for part in ("values", "indices", "shape")}
    known: Shape = None
    if shape is None:
        whole = b.make("Placeholder", (), {"dtype": dtypes.int64, "shape": (None,)}, below["shape"])
    elif isinstance(shape, Tensor):
        known = static_shape(shape)
        whole = b.make("PlaceholderWithDefault", (shape,), {"shape": shape.shape}, name and below["shape"])
    else:
        known = shapes.as_shape([None if d == -1 else d for d in shape]) or ()
        given = np.array([-1 if d is None else d for d in known], np.int64)
        default = b.const(given, dtypes.int64, f"{name}/shape_default" if name else "Const")
        whole = b.make("PlaceholderWithDefault", (default,), {"shape": given.shape}, name and below["shape"])
    rank = None if whole.shape is None else whole.shape[0]
    elements = b.make("Placeholder", (), {"dtype": dtypes.as_dtype(dtype), "shape": (None,)}, below["values"])
    indices = b.make("Placeholder", (), {"dtype": dtypes.int64, "shape": (None, rank)}, below["indices"])
    out = SparseTensor(indices, elements, whole)
    out.set_shape(known)
    return out
