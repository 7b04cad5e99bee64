"""Descriptions of elements in TensorFlow 1's form: types, shapes and classes."""

from __future__ import annotations

from typing import Any

from headrace import dtypes, nest, shapes
from headrace.api.data import structure
from headrace.api.data.structure import VariantSpec
from headrace.api.sparse_tensor import SparseTensor, SparseTensorSpec
from headrace.api.tensor_spec import TensorSpec
from headrace.ir.tensor_type import Tensor
from headrace.v1.tensor_shape import TensorShape


def converted(spec: Any, kind: str) -> Any:
    """Returns the types, shapes or classes of elements, by their description.

    Args:
      spec: the description of an element.
      kind: "types", "shapes" or "classes".
    """

    def leaf(s: Any) -> Any:
        if structure.is_encoded(s):  # in place of a type of several tensors stands the description
            return {"types": s, "classes": s.value_type}.get(kind, getattr(s, "shape", s))
        if isinstance(s, VariantSpec) and (kind == "classes" or s.dtype is dtypes.variant):
            return s
        if kind == "types":
            return s.dtype
        if kind == "shapes":
            return TensorShape(s.shape)
        return SparseTensor if isinstance(s, SparseTensorSpec) else Tensor

    return structure.pack_wholes(spec, [leaf(s) for s in structure.wholes(spec)])


def spec_of(types: Any, known: Any = None, classes: Any = None) -> Any:
    """Returns the description of elements of given types, shapes and classes.

    Args:
      types: the structure of the dtypes.
      known: the structure of the shapes; None: any.
      classes: the structure of the classes; None: tensors.
    """
    for given in (classes, types):
        if isinstance(given, VariantSpec) or structure.is_encoded(given):
            return given
    if isinstance(types, dict):
        shape, kind = known or {}, classes or {}
        return {k: spec_of(v, shape.get(k), kind.get(k)) for k, v in types.items()}
    if isinstance(types, (tuple, list)) and nest.is_nested(types):
        n = len(types)
        parts = [
            spec_of(t, s, c)
            for t, s, c in zip(
                types, [None] * n if known is None else known, [None] * n if classes is None else classes, strict=True
            )
        ]
        return type(types)(*parts) if hasattr(types, "_fields") else tuple(parts)
    shape = shapes.as_shape(TensorShape(known).as_list() if known is not None and _is_known(known) else None)
    made = SparseTensorSpec if classes is SparseTensor else TensorSpec
    return made(shape, dtypes.as_dtype(types))


def _is_known(shape: Any) -> bool:
    return TensorShape(shape).ndims is not None
