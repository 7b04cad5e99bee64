"""`hr.sets`: set operations on the rows of the last axis.

A row of a tensor is a set; repeated elements count once. A row of a sparse tensor may also be empty. Results are
sparse, with the elements of each set in ascending order.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any, Final

from headrace import dtypes, nest, public_names
from headrace.api import scopes
from headrace.api.sparse_tensor import SparseTensor, convert_to_tensor_or_sparse_tensor
from headrace.ir.tensor_type import Tensor

_DTYPES: Final = (
    dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint16, dtypes.string
)  # fmt: skip


def size(a: Any, validate_indices: bool = True) -> Tensor:
    """Counts the different elements of each row of the last axis: an int32 tensor.

    Args:
      a: a sparse tensor of ints or strings, with indices in order.
      validate_indices: whether to check the order of the indices.

    Raises:
      TypeError: `a` is not sparse, or has an unsupported dtype.

    Source: TensorFlow's `tf.sets.size`.

    Example:
      >>> import headrace as hr
      >>> hr.sets.size(hr.sparse.from_dense([[1, 1], [1, 2]]))
      <EagerTensor shape=[2] dtype=int32: array([1, 2], dtype=int32)>
    """
    sp = convert_to_tensor_or_sparse_tensor(a, name="a")
    if not isinstance(sp, SparseTensor):
        raise TypeError(f"Expected `SparseTensor`, got {a!r}")
    _check(sp, "a")
    b = scopes.builder(*nest.flatten(sp))
    return b.make("SetSize", nest.flatten(sp), {"validate_indices": validate_indices})


def intersection(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """Computes the intersection of the sets of each row.

    Args:
      a, b: tensors or sparse tensors of ints or strings. They must have the same dtype, and the same shape except for
        the last axis.
      validate_indices: whether to check the order of sparse indices.

    Raises:
      TypeError: a dtype is unsupported, or the dtypes differ.

    Source: TensorFlow's `tf.sets.intersection`.

    Example:
      >>> import headrace as hr
      >>> hr.sets.intersection([[1, 2, 3]], [[3, 4, 1]]).values
      <EagerTensor shape=[2] dtype=int32: array([1, 3], dtype=int32)>
    """
    one, other, _ = _in_order(a, b)
    return _operation(one, other, "intersection", validate_indices)


def difference(a: Any, b: Any, aminusb: bool = True, validate_indices: bool = True) -> SparseTensor:
    """Computes the difference of the sets of each row.

    Args:
      a, b, validate_indices: see `intersection`.
      aminusb: whether to compute a - b; otherwise b - a.


    Source: TensorFlow's `tf.sets.difference`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.to_dense(hr.sets.difference([[1, 2, 3]], [[2, 4, 5]])).numpy()
      array([[1, 3]], dtype=int32)
    """
    one, other, is_flipped = _in_order(a, b)
    return _operation(one, other, "a-b" if aminusb != is_flipped else "b-a", validate_indices)


def union(a: Any, b: Any, validate_indices: bool = True) -> SparseTensor:
    """Computes the union of the sets of each row.

    Args:
      Others: see `intersection`.


    Source: TensorFlow's `tf.sets.union`.

    Example:
      >>> import headrace as hr
      >>> hr.sparse.to_dense(hr.sets.union([[1, 2]], [[2, 4]])).numpy()
      array([[1, 2, 4]], dtype=int32)
    """
    one, other, _ = _in_order(a, b)
    return _operation(one, other, "union", validate_indices)


def _check(x: Any, name: str) -> None:
    if x.dtype.base not in _DTYPES:
        raise TypeError(
            f"'{name}' has invalid dtype `{x.dtype.name}`: sets are of {', '.join(d.name for d in _DTYPES)}"
        )


def _in_order(a: Any, b: Any) -> tuple[Any, Any, builtins.bool]:
    """Returns both as tensors, a dense one first, and whether they were exchanged."""
    one, other = convert_to_tensor_or_sparse_tensor(a, name="a"), convert_to_tensor_or_sparse_tensor(b, name="b")
    _check(one, "a")
    if other.dtype.base is not one.dtype.base:
        raise TypeError(f"Types don't match, {one.dtype.name} vs {other.dtype.name}")
    if isinstance(one, SparseTensor) and not isinstance(other, SparseTensor):
        return other, one, True
    return one, other, False


def _operation(a: Any, b: Any, what: str, validate_indices: bool) -> SparseTensor:
    kinds = ["Sparse" if isinstance(x, SparseTensor) else "Dense" for x in (a, b)]
    inputs = [t for x in (a, b) for t in (nest.flatten(x) if isinstance(x, SparseTensor) else [x])]
    attrs = {"set_operation": what, "validate_indices": validate_indices}
    return SparseTensor(*scopes.builder(*inputs).make(f"{kinds[0]}To{kinds[1]}SetOperation", inputs, attrs))


# fmt: off
__all__ = [
    "difference", "intersection", "size", "union",
]
# fmt: on

if not TYPE_CHECKING:
    __getattr__, __dir__ = public_names.of(__name__, __all__)
