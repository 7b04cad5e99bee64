"""TensorFlow 1's `tf.TypeSpec`: descriptions of tensors and of objects that are made of tensors."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.api.data.optional import Optional, OptionalSpec
from headrace.api.data.structure import DatasetSpec, TensorArraySpec, VariantSpec, is_dataset
from headrace.api.sparse_tensor import SparseTensor, SparseTensorSpec, SparseTensorValue
from headrace.api.tensor_array import TensorArray
from headrace.api.tensor_spec import TensorSpec
from headrace.api.variable import Variable
from headrace.ir.indexed_slices import IndexedSlices
from headrace.ir.tensor_type import Tensor
from headrace.v1.ragged.ragged_tensor import RaggedTensor, RaggedTensorSpec
from headrace.v1.tensor_shape import TensorShape


class TypeSpec(abc.ABC):
    """Base of the descriptions: `TensorSpec`, `SparseTensorSpec`, `RaggedTensorSpec`, those of datasets and others.

    Source: TensorFlow's `tf.TypeSpec`.

    Example:
      >>> import headrace.v1 as tf
      >>> isinstance(tf.TensorSpec([2]), tf.TypeSpec)
      True
    """

    @property
    @abc.abstractmethod
    def value_type(self) -> Any:
        """Class of the values."""

    @abc.abstractmethod
    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether another description, or a value, can have a common value with this one.

        Args:
          spec_or_value: the description or value.
        """


for _described in (TensorSpec, SparseTensorSpec, VariantSpec):
    TypeSpec.register(_described)


class IndexedSlicesSpec(TypeSpec):
    """Description of `IndexedSlices`.

    Args:
      shape: shape of the dense tensor; None: any.
      dtype: dtype of the values.
      indices_dtype: int64 or int32.
      dense_shape_dtype: dtype of the dense shape; None: the slices have none.
      indices_shape: shape of the indices; None: any vector.

    Source: TensorFlow's `tf.IndexedSlicesSpec`.
    """

    def __init__(
        self,
        shape: Any = None,
        dtype: Any = dtypes.float32,
        indices_dtype: Any = dtypes.int64,
        dense_shape_dtype: Any = None,
        indices_shape: Any = None,
    ) -> None:
        self._shape, self._indices_shape = TensorShape(shape), TensorShape(indices_shape)
        self._dtype, self._indices_dtype = dtypes.as_dtype(dtype), dtypes.as_dtype(indices_dtype)
        self._dense_shape_dtype = None if dense_shape_dtype is None else dtypes.as_dtype(dense_shape_dtype)

    @property
    def value_type(self) -> Any:
        """`IndexedSlices`."""
        return IndexedSlices

    @classmethod
    def from_value(cls, value: IndexedSlices) -> IndexedSlicesSpec:
        """Describes slices.

        Args:
          value: the slices.
        """
        dense = value.dense_shape
        dense_dtype = None if dense is None else dense.dtype.base
        shape = TensorShape([None]).concatenate(TensorShape(value.values.shape)[1:]) if dense is None else value.shape
        return cls(shape, value.values.dtype.base, value.indices.dtype.base, dense_dtype, value.indices.shape)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """See `TypeSpec.is_compatible_with`."""
        is_value = isinstance(spec_or_value, IndexedSlices)
        other = self.from_value(spec_or_value) if is_value else spec_or_value
        return (
            isinstance(other, IndexedSlicesSpec)
            and self._dtypes() == other._dtypes()
            and self._shape.is_compatible_with(other._shape)
            and self._indices_shape.is_compatible_with(other._indices_shape)
        )

    def _dtypes(self) -> tuple[Any, ...]:
        return self._dtype, self._indices_dtype, self._dense_shape_dtype

    def _key(self) -> tuple[Any, ...]:
        return str(self._shape), str(self._indices_shape), *self._dtypes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IndexedSlicesSpec) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"IndexedSlicesSpec({self._shape!r}, {', '.join(map(repr, self._dtypes()))}, {self._indices_shape!r})"


class NoneTensorSpec(TypeSpec):
    """Description of None. Source: TensorFlow's `tf.NoneTensorSpec`."""

    @property
    def value_type(self) -> Any:
        """The class of None."""
        return type(None)

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """See `TypeSpec.is_compatible_with`."""
        return spec_or_value is None or isinstance(spec_or_value, NoneTensorSpec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NoneTensorSpec)

    def __hash__(self) -> int:
        return hash(NoneTensorSpec)

    def __repr__(self) -> str:
        return "NoneTensorSpec()"


def type_spec_from_value(value: Any) -> Any:
    """Returns the description of a value.

    Args:
      value: a tensor, an array, an object made of tensors, a dataset, or None.

    Raises:
      TypeError: no description has such a value.

    Source: TensorFlow's `tf.type_spec_from_value`.

    Example:
      >>> import headrace.v1 as tf
      >>> with tf.Graph().as_default():
      ...     tf.type_spec_from_value(tf.zeros([2]))
      TensorSpec(shape=[2], dtype=float32)
    """
    if value is None:
        return NoneTensorSpec()
    if hasattr(type(value), "_type_spec"):  # an extension type, of a module that is imported on first use
        return value._type_spec
    for kind, describe in _DESCRIBED:
        if isinstance(value, kind):
            return describe(value)
    if is_dataset(value):
        return DatasetSpec(value.element_spec)
    try:
        array = np.asarray(value)
        if not all(isinstance(x, (str, bytes)) for x in (array.ravel() if array.dtype == object else ())):
            raise TypeError("its elements are no texts")
        return TensorSpec(array.shape, dtypes.from_numpy(array.dtype))
    except (TypeError, ValueError) as e:
        raise TypeError(f"Could not build a TypeSpec for {value!r} of type {type(value).__name__}") from e


# Class of values -> the function that describes one.
_DESCRIBED: Final[tuple[tuple[Any, Callable[[Any], Any]], ...]] = (
    (IndexedSlices, IndexedSlicesSpec.from_value),
    (RaggedTensor, RaggedTensorSpec.from_value),
    (TensorArray, TensorArraySpec.from_value),
    ((SparseTensor, SparseTensorValue), SparseTensorSpec.from_value),
    (Optional, lambda x: OptionalSpec(x.element_spec)),
    ((Tensor, Variable), lambda x: TensorSpec(x.shape, x.dtype.base)),
)


def is_subtype(spec: Any, other: Any) -> bool:
    """Whether all values of a description are values of another one."""
    if hasattr(type(spec), "is_subtype_of"):
        found: bool = spec.is_subtype_of(other)
        return found
    return type(spec) is type(other) and _without_shape(spec) == _without_shape(other) and _covers(other, spec)


def supertype(specs: Sequence[Any]) -> Any:
    """Returns the narrowest description of the values of several ones; None if there is none."""
    first, *others = specs
    if hasattr(type(first), "most_specific_common_supertype"):
        return first.most_specific_common_supertype(others)
    if any(type(s) is not type(first) or _without_shape(s) != _without_shape(first) for s in others):
        return None
    return functools.reduce(_wider, others, first)


def _wider(a: Any, b: Any) -> Any:
    if isinstance(a, (TensorSpec, SparseTensorSpec)):
        return type(a)(shapes.join(a.shape, b.shape), a.dtype)
    return a._joined(b) if isinstance(a, RaggedTensorSpec) else a


def _without_shape(spec: Any) -> Any:
    if isinstance(spec, (TensorSpec, SparseTensorSpec)):
        return spec.dtype
    return spec._parts()[1:] if isinstance(spec, RaggedTensorSpec) else spec


def _covers(wide: Any, narrow: Any) -> bool:
    is_shaped = isinstance(wide, (TensorSpec, SparseTensorSpec, RaggedTensorSpec))
    return not is_shaped or shapes.covers(wide.shape, narrow.shape)


def component_specs(spec: Any) -> list[TensorSpec]:
    """Returns descriptions of the tensors of a value.

    Raises:
      TypeError: the description is of values without a fixed number of tensors.
    """
    if isinstance(spec, TensorSpec):
        return [spec]
    if hasattr(type(spec), "flatten"):
        found: list[TensorSpec] = spec.flatten()
        return found
    if isinstance(spec, SparseTensorSpec):
        rank = None if spec.shape is None else len(spec.shape)
        integers = dtypes.int64
        shaped = ((None, rank), integers), ((None,), spec.dtype), ((rank,), integers)
        return [TensorSpec(shape, dtype) for shape, dtype in shaped]
    if isinstance(spec, RaggedTensorSpec):
        rank = spec.ragged_rank
        inner = None if spec.shape is None else spec.shape[rank + 1 :]
        values = TensorSpec(spec.shape if not rank else None if inner is None else (None, *inner), spec.dtype)
        count = None if spec.shape is None or spec.shape[0] is None else spec.shape[0] + 1
        lengths = [count, *[None] * (rank - 1)][:rank]
        return [values, *[TensorSpec((n,), spec.row_splits_dtype) for n in lengths]]
    raise TypeError(f"{spec!r} has no fixed number of tensors")


def of_tensors(spec: Any, tensors: Iterator[Any]) -> Any:
    """Returns the value of a description with the next tensors of an iterator."""
    if hasattr(type(spec), "from_tensors"):
        return spec.from_tensors(tensors)
    parts = [next(tensors) for _ in component_specs(spec)]
    if isinstance(spec, SparseTensorSpec):
        return SparseTensor(*parts)
    is_ragged = isinstance(spec, RaggedTensorSpec) and spec.ragged_rank > 0
    return RaggedTensor.of_parts(parts[0], parts[1:]) if is_ragged else parts[0]
