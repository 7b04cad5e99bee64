"""`StructuredValue` messages of Python structures: the signatures of functions in a SavedModel.

Source: TensorFlow's `nested_structure_coder.py` and `struct.proto`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from headrace import nest
from headrace.api.tensor_spec import TensorSpec
from headrace.dtypes import DType
from headrace.errors import GraphError
from headrace.ir.serial.attrs import encode_shape
from headrace.pb.struct_pb2 import NoneValue, StructuredValue


def encode(value: Any) -> StructuredValue:
    """Returns the message of a structure.

    Args:
      value: None, a number, text, `TensorSpec` or dtype, or a list, tuple, named tuple or dict with text keys of them.

    Raises:
      GraphError: the structure contains another object, or an integer of more than 64 bits.
    """
    out = StructuredValue()
    if value is None:
        out.none_value.CopyFrom(NoneValue())
    elif isinstance(value, bool):
        out.bool_value = value
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise GraphError(f"{value} does not fit an int64, the integers of a SavedModel")
        out.int64_value = value
    elif isinstance(value, float):
        out.float64_value = value
    elif isinstance(value, str):
        out.string_value = value
    elif isinstance(value, DType):
        out.tensor_dtype_value = value.number  # type: ignore[assignment]
    elif isinstance(value, TensorSpec):
        out.tensor_spec_value.name = value.name or ""
        out.tensor_spec_value.shape.CopyFrom(encode_shape(value.shape))
        out.tensor_spec_value.dtype = value.dtype.base.number  # type: ignore[assignment]
    elif type(value) is list:
        out.list_value.SetInParent()
        out.list_value.values.extend(map(encode, value))
    elif type(value) is tuple:
        out.tuple_value.SetInParent()
        out.tuple_value.values.extend(map(encode, value))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        out.named_tuple_value.name = type(value).__name__
        for key in value._fields:
            out.named_tuple_value.values.add(key=key, value=encode(getattr(value, key)))
    elif isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        out.dict_value.SetInParent()
        for key in value:
            out.dict_value.fields[key].CopyFrom(encode(value[key]))
    else:
        raise GraphError(
            f"a SavedModel cannot describe {nest.describe(value)} in a signature; its signatures have tensors, "
            "numbers, text, None, lists, tuples, named tuples and dicts with text keys"
        )
    return out


def encode_parameters(signature: inspect.Signature) -> StructuredValue:
    """Returns the message of a Python function's parameters, a named tuple like `inspect.FullArgSpec`.

    Raises:
      GraphError: a default value cannot be described.
    """
    parameters = signature.parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    by_name = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    defaults = [p.default for p in positional if p.default is not p.empty]
    fields: dict[str, Any] = {
        "args": [p.name for p in positional],
        "varargs": next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None),
        "varkw": next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), None),
        "defaults": tuple(defaults) or None,
        "kwonlyargs": [p.name for p in by_name],
        "kwonlydefaults": {p.name: p.default for p in by_name if p.default is not p.empty} or None,
        "annotations": {},
    }
    out = StructuredValue()
    out.named_tuple_value.name = "FullArgSpec"
    for key, value in fields.items():
        out.named_tuple_value.values.add(key=key, value=encode(value))
    return out


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """Returns the signature of a Python function.

    Raises:
      GraphError: it has none, as some builtin functions.
    """
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError) as e:
        raise GraphError(f"{fn!r} does not state its parameters; wrap it into a Python function ({e})") from e
