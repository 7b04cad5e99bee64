"""Structures of elements: specs of their leaves, and the components that represent them.

An element is a nested structure of tuples, dicts and records. A leaf is a tensor, a sparse tensor, or a dataset or
another object that a variant represents. Each leaf is one component between the ops of datasets: a sparse tensor three
strings. Python lists are no structures but tensors, as in TensorFlow.

An object can consist of several leaves (`headrace.v1.extension_types`). Its class, and that of its spec, have the
methods `_encoding()`, which returns a structure of these leaves, `_with_encoding(structure)`, which makes the object of
leaves or the spec of specs, and `_key()`, which is equal for objects of one kind. The spec also has `_batched(size)`,
`_unbatched()` and `_joined(other)`, as a `VariantSpec` has; the object has `_type_spec` and `_row_encoding()`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeAlias

from headrace import dtypes, nest, shapes
from headrace.api import scopes
from headrace.api.sparse_tensor import SparseTensor, SparseTensorSpec, SparseTensorValue
from headrace.api.tensor_array import TensorArray
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.graph import Tensor
from headrace.shapes import Shape


class VariantSpec:
    """Base of the descriptions of leaves whose component is a variant.

    The leaves have a method `_component(builder)`, which returns the component and the description, and perhaps
    `_rows(builder)`, which returns those of their rows.

    Attributes:
      shape, dtype: the static shape and the dtype of the leaf.
      component_shape, component_type: those of the component.
    """

    __slots__ = ()

    shape: Shape = ()
    dtype: dtypes.DType = dtypes.variant
    component_shape: Shape = ()
    component_type: dtypes.DType = dtypes.variant

    @property
    def value_type(self) -> type:
        """The class of the leaves."""
        raise NotImplementedError

    @staticmethod
    def from_value(value: Any) -> Any:
        """Returns the description of a leaf."""
        raise NotImplementedError

    def is_compatible_with(self, spec_or_value: Any) -> bool:
        """Whether a description, or a leaf, can have a common value with this one."""
        other = self.from_value(spec_or_value) if self._describes(spec_or_value) else spec_or_value
        return isinstance(other, type(self)) and self._fits(other)

    def _describes(self, x: Any) -> bool:
        """Whether `x` is a leaf of this kind, not a description."""
        return isinstance(x, self.value_type)

    def _fits(self, other: Any) -> bool:
        """Whether some leaf has both descriptions; `other` has the same class."""
        return self == other

    def _leaf(self, t: Any, dataset: Any) -> Any:
        """Returns the leaf of a component; `dataset` makes datasets of variants."""
        raise NotImplementedError

    def _batched(self, size: int | None) -> Any:
        """Returns the description of a batch of `size` leaves."""
        raise TypeError(f"Batching of {type(self).__name__} is not supported ({self}); use flat_map before")

    def _unbatched(self) -> Any:
        """Returns the description of the rows of the leaf."""
        raise ValueError("Cannot unbatch an input with scalar components.")

    def _joined(self, other: Any) -> Any:
        """Returns a description that the leaves of both have; `other` has the same class."""
        if self != other:
            raise TypeError(f"Incompatible types of datasets: elements are {self} and {other}")
        return self


class DatasetSpec(VariantSpec):
    """Description of a dataset that is a part of an element.

    Args:
      element_spec: the description of its elements.
      dataset_shape: the shape of the variant; () for one dataset.

    Source: TensorFlow's `tf.data.DatasetSpec`.

    >>> DatasetSpec(TensorSpec((), "int64"))
    DatasetSpec(TensorSpec(shape=[], dtype=int64))
    """

    __slots__ = ("element_spec", "shape")

    datasets: ClassVar[type]  # the class of datasets, whose module imports this one and sets it

    def __init__(self, element_spec: Any, dataset_shape: Any = ()) -> None:
        self.element_spec = element_spec
        self.shape = shapes.as_shape(dataset_shape)
        if self.shape:
            raise ValueError(f"an element has single datasets: `dataset_shape` is (), got {dataset_shape}")

    def _describes(self, x: Any) -> bool:
        return is_dataset(x)

    @property
    def value_type(self) -> type:
        """The class of the datasets."""
        return self.datasets

    @staticmethod
    def from_value(value: Any) -> DatasetSpec:
        """Returns the description of a dataset."""
        return DatasetSpec(value.element_spec)

    def __repr__(self) -> str:
        return f"DatasetSpec({self.element_spec!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatasetSpec) and self.element_spec == other.element_spec

    def __hash__(self) -> int:
        return hash(nest.outline(self.element_spec))

    def _leaf(self, t: Any, dataset: Any) -> Any:
        return dataset(t, self.element_spec)

    def _joined(self, other: Any) -> Any:
        return DatasetSpec(joined(self.element_spec, other.element_spec))


class SparseRowsSpec(VariantSpec):
    """Description of a batch of sparse tensors, with rows of three strings.

    Args:
      spec: the description of the sparse tensor of the batch.
    """

    __slots__ = ("spec",)

    component_shape = (None, 3)
    component_type = dtypes.string

    def __init__(self, spec: SparseTensorSpec) -> None:
        self.spec = spec

    def _leaf(self, t: Any, dataset: Any) -> Any:
        return _sparse("DeserializeManySparse", t, self.spec)


class TensorArraySpec(VariantSpec):
    """Description of a `TensorArray` that is a part of an element.

    Args:
      element_shape: the shape of its elements.
      dtype: their dtype.
      dynamic_size: whether writes make it larger.
      infer_shape: whether all elements have one shape.

    Source: TensorFlow's `tf.TensorArraySpec`.

    >>> TensorArraySpec((2,), "int32")
    TensorArraySpec((2,), int32, False, True)
    """

    __slots__ = ("_element_shape", "dtype", "dynamic_size", "infer_shape")

    def __init__(
        self,
        element_shape: Any = None,
        dtype: Any = dtypes.float32,
        dynamic_size: bool = False,
        infer_shape: bool = True,
    ) -> None:
        self.dtype = dtypes.as_dtype(dtype)
        self._element_shape = shapes.as_shape(element_shape)
        self.dynamic_size, self.infer_shape = dynamic_size, infer_shape

    @property
    def value_type(self) -> type:
        """The class that this describes."""
        return TensorArray

    @staticmethod
    def from_value(value: TensorArray) -> TensorArraySpec:
        """Returns the description of a `TensorArray`."""
        shape = shapes.as_shape(value.element_shape)
        return TensorArraySpec(shape, value.dtype, value._dynamic_size, value._infer_shape)

    def _fits(self, other: TensorArraySpec) -> bool:
        is_same = self._parts()[1:3] == other._parts()[1:3]
        return is_same and shapes.compatible(self._element_shape, other._element_shape)

    def _parts(self) -> tuple[Any, ...]:
        return self._element_shape, self.dtype, self.dynamic_size, self.infer_shape

    def __repr__(self) -> str:
        return f"TensorArraySpec({self._element_shape}, {self.dtype.name}, {self.dynamic_size}, {self.infer_shape})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorArraySpec) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _leaf(self, t: Any, dataset: Any) -> TensorArray:
        shape, dtype, grows, infers = self._parts()
        return TensorArray(dtype, dynamic_size=grows, flow=t, infer_shape=infers, element_shape=shape)


Spec: TypeAlias = "TensorSpec | SparseTensorSpec | VariantSpec"


def is_dataset(x: Any) -> bool:
    """Whether `x` is a dataset: it has a variant and a description of its elements."""
    return hasattr(x, "variant_tensor") and hasattr(x, "element_spec")


def _is_leaf(x: Any) -> bool:
    return isinstance(x, (list, SparseTensorValue)) or is_dataset(x) or hasattr(type(x), "_component")


def is_encoded(x: Any) -> bool:
    """Whether an object, or a spec, consists of several leaves."""
    return hasattr(type(x), "_encoding")


def wholes(structure: Any) -> list[Any]:
    """Returns the leaves of an element, or of a structure of specs.

    An object that consists of several leaves is one of them.
    """
    return nest.flatten(structure, expand=False, is_leaf=_is_leaf)


def pack_wholes(structure: Any, wholes: Sequence[Any]) -> Any:
    """Returns the structure with other leaves in the places of `wholes`."""
    return nest.pack(structure, wholes, expand=False, is_leaf=_is_leaf)


def flatten(structure: Any) -> list[Any]:
    """Returns the leaves of an element, or of a structure of specs."""
    found = wholes(structure)
    if not any(map(is_encoded, found)):
        return found
    return [y for x in found for y in (flatten(x._encoding()) if is_encoded(x) else (x,))]


def pack(structure: Any, leaves: Sequence[Any]) -> Any:
    """Returns the structure with other leaves."""
    found = wholes(structure)
    if not any(map(is_encoded, found)):
        return pack_wholes(structure, leaves)
    rest, made = list(leaves), []
    for x in found:
        inner = x._encoding() if is_encoded(x) else x
        n = len(flatten(inner))
        taken, rest = rest[:n], rest[n:]
        made.append(x._with_encoding(pack(inner, taken)) if is_encoded(x) else taken[0])
    return pack_wholes(structure, made + rest)


def same(first: Any, second: Any) -> bool:
    """Whether two structures of specs, or of elements, are nested alike."""
    if nest.mismatch(first, second, expand=False) is not None:
        return False
    pairs = zip(wholes(first), wholes(second), strict=True)
    return all(_kind(x) == _kind(y) for x, y in pairs)


def _kind(x: Any) -> Any:
    return x._key() if is_encoded(x) else None


def component_type(spec: Spec) -> dtypes.DType:
    """Returns the dtype of the component of a leaf."""
    if isinstance(spec, VariantSpec):
        return spec.component_type
    return dtypes.string if isinstance(spec, SparseTensorSpec) else spec.dtype


def component_shape(spec: Spec, batch: Shape = ()) -> Shape:
    """Returns the static shape of the component of a leaf.

    Args:
      spec: the description of the leaf.
      batch: the dimensions of `spec` that are those of a batch of sparse tensors.
    """
    if isinstance(spec, SparseTensorSpec):
        return (3,)
    return spec.component_shape if isinstance(spec, VariantSpec) else spec.shape


def attributes(spec: Any) -> dict[str, Any]:
    """Returns the attributes `output_types` and `output_shapes` for elements of a structure of specs."""
    leaves = flatten(spec)
    return {
        "output_types": tuple(map(component_type, leaves)),
        "output_shapes": tuple(map(component_shape, leaves)),
    }


def component(leaf: Any, b: Any) -> tuple[Any, Spec]:
    """Returns the component of a leaf, and its description."""
    if is_dataset(leaf):
        return b.tensor(leaf.variant_tensor), DatasetSpec(leaf.element_spec)
    if hasattr(type(leaf), "_component"):
        made: tuple[Any, Spec] = leaf._component(b)
        return made
    if isinstance(leaf, TensorArray):
        return leaf.flow, TensorArraySpec.from_value(leaf)
    if isinstance(leaf, SparseTensorValue):
        leaf = SparseTensor.from_value(leaf)
    if isinstance(leaf, SparseTensor):
        parts = [leaf.indices, leaf.values, leaf.dense_shape]
        packed = b.make("SerializeSparse", parts, {"out_type": dtypes.string})
        return packed, SparseTensorSpec(shapes.as_shape(leaf.shape), leaf.dtype.base)
    t = b.tensor(leaf)
    return t, TensorSpec(shapes.as_shape(t.shape), t.dtype.base)


def rows(leaf: Any, b: Any) -> tuple[Any, Spec]:
    """Returns the tensor of the components of a leaf's rows, and their spec."""
    if isinstance(leaf, SparseTensorValue):
        leaf = SparseTensor.from_value(leaf)
    if isinstance(leaf, SparseTensor):
        parts = [leaf.indices, leaf.values, leaf.dense_shape]
        packed = b.make("SerializeManySparse", parts, {"out_type": dtypes.string})
        shape = shapes.as_shape(leaf.shape)
        return packed, SparseTensorSpec(None if shape is None else shape[1:], leaf.dtype.base)
    if hasattr(type(leaf), "_rows"):
        made: tuple[Any, Spec] = leaf._rows(b)
        return made
    t = b.tensor(leaf)
    shape = shapes.as_shape(t.shape)
    if shape == ():
        raise ValueError("from_tensor_slices takes tensors of rank 1 or more, got a scalar; use from_tensors")
    return t, TensorSpec(None if shape is None else shape[1:], t.dtype.base)


def leaf_of(t: Any, spec: Spec, dataset: Any) -> Any:
    """Returns the leaf of a component.

    Args:
      t: the component.
      spec: its description.
      dataset: the function from a variant and the description of elements to a dataset.
    """
    if isinstance(spec, VariantSpec):
        return spec._leaf(t, dataset)
    if not isinstance(spec, SparseTensorSpec):
        return t
    return _sparse("DeserializeSparse", t, spec)


def _sparse(op: str, t: Any, spec: SparseTensorSpec) -> SparseTensor:
    rank = None if spec.shape is None else len(spec.shape)
    parts = scopes.builder(t).make(op, (t,), {"dtype": spec.dtype})
    if isinstance(parts[0], Tensor):
        for part, known in zip(parts, ((None, rank), (None,), (rank,)), strict=True):
            part.refine(known)
    out = SparseTensor(*parts)
    if isinstance(parts[0], Tensor):
        out.set_shape(spec.shape)
    return out


def batched(spec: Any, size: int | None) -> Any:
    """Returns the specs of batches of `size` elements."""
    return pack_wholes(spec, [_batched(s, size) for s in wholes(spec)])


def _batched(spec: Any, size: int | None) -> Spec:
    if isinstance(spec, VariantSpec) or is_encoded(spec):
        made: Spec = spec._batched(size)
        return made
    return _shaped(spec, None if spec.shape is None else (size, *spec.shape))


def unbatched(spec: Any) -> Any:
    """Returns the specs of the rows of elements."""
    return pack_wholes(spec, [_unbatched(s) for s in wholes(spec)])


def _unbatched(spec: Any) -> Spec:
    if isinstance(spec, VariantSpec) or is_encoded(spec):
        made: Spec = spec._unbatched()
        return made
    if spec.shape == ():
        raise ValueError("Cannot unbatch an input with scalar components.")
    return _shaped(spec, None if spec.shape is None else spec.shape[1:])


def _shaped(spec: Any, shape: Shape) -> Spec:
    made: Spec = type(spec)(shape, spec.dtype)
    return made


def joined(first: Any, second: Any) -> Any:
    """Returns the specs that elements of either structure of specs have.

    Raises:
      TypeError: the structures or dtypes differ.
    """
    if not same(first, second):
        raise TypeError(f"Incompatible types of datasets: elements are {first} and {second}")
    out = []
    for a, b in zip(wholes(first), wholes(second), strict=True):
        if type(a) is not type(b) or (not is_encoded(a) and a.dtype is not b.dtype):
            raise TypeError(f"Incompatible types of datasets: elements are {a} and {b}")
        out.append(a._joined(b) if isinstance(a, VariantSpec) or is_encoded(a) else _joined(a, b))
    return pack_wholes(first, out)


def with_rows(structure: Any) -> tuple[list[Any], Any]:
    """Returns the leaves of an element, and a structure like an element of its rows."""
    found = wholes(structure)
    if not any(map(is_encoded, found)):
        return found, structure
    leaves = [y for x in found for y in (flatten(x._row_encoding()) if is_encoded(x) else (x,))]
    return leaves, pack_wholes(structure, [x._type_spec._unbatched() if is_encoded(x) else x for x in found])


def _joined(a: Any, b: Any) -> Any:
    return type(a)(shapes.join(a.shape, b.shape), a.dtype)


def as_element(made: Any, spec: Any, dataset: Callable[[Any, Any], Any]) -> Any:
    """Returns the element of the outputs of an op."""
    parts = list(made) if isinstance(made, (tuple, list)) else [made]
    leaves = flatten(spec)
    return pack(spec, [leaf_of(t, s, dataset) for t, s in zip(parts, leaves, strict=True)])
