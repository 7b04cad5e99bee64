"""`tf.map_fn` of extension types: each is mapped as its encoding, a list of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import nest
from headrace.api import functional
from headrace.api.data import structure
from headrace.api.sparse_tensor import SparseTensorSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.v1.tensor_shape import TensorShape
from headrace.v1.type_specs import TypeSpec, type_spec_from_value


def map_encoded(fn: Callable[[Any], Any], elems: Any, signature: Any, **options: Any) -> Any:
    """Applies a function to each row of extension types, and stacks the results.

    Args:
      fn: function of a row.
      elems: structure of tensors and batchable extension types.
      signature: the description of the result; None: that of a row.
      options: further arguments of `map_fn`.

    Raises:
      AttributeError, TypeError: an extension type is not batchable.
      ValueError: the function returned another structure than `signature` describes.
    """
    for x in structure.wholes(elems) if signature is not None else ():
        if structure.is_encoded(x) and not hasattr(x._type_spec, "__batch_encoder__"):
            raise TypeError(f"map_fn can not consume {x._type_spec} inputs: got {x}")
    leaves, like = structure.with_rows(elems)
    rows = structure.pack_wholes(like, [_row(x) for x in structure.wholes(like)])
    wanted = rows if signature is None else nest.map_leaves(_spec, signature)
    count = TensorShape(leaves[0].shape).as_list()[0]

    def of_encodings(given: list[Any]) -> list[Any]:
        value = fn(structure.pack(like, given))
        if not structure.same(wanted, value):
            raise ValueError(
                f"The two structures don't have the same nested structure: the function of map_fn returned {value!r}, "
                f"where {wanted!r} is expected"
            )
        return structure.flatten(value)

    specs = structure.flatten(wanted)
    found = functional.map_fn(of_encodings, leaves, fn_output_signature=specs, **options)
    return structure.pack(structure.batched(wanted, count), found)


def _row(x: Any) -> Any:
    if isinstance(x, TypeSpec):
        return x
    whole = type_spec_from_value(x)
    if not isinstance(whole, (TensorSpec, SparseTensorSpec)):
        return whole
    return type(whole)(None if whole.shape is None else whole.shape[1:], whole.dtype)


def _spec(x: Any) -> Any:
    return x if isinstance(x, TypeSpec) else TensorSpec(None, x)
