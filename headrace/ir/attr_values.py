"""Declarations of attributes, Python values of attributes, and the check of a value against its declaration."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import GraphError

REQUIRED: Final = object()  # the default of an attribute that has none

ATTR_KINDS: Final = ("type", "int", "float", "bool", "string", "shape", "tensor", "func")


@dataclasses.dataclass(frozen=True, slots=True)
class AttrSpec:
    """One attribute: its kind, default and the values it may have.

    Attributes:
      kind: one of `ATTR_KINDS`.
      is_list: whether it is a list (a Python tuple) of that kind.
      default: `REQUIRED`, or the value when it is left out.
      allowed: the dtypes or strings it may be; None for any.
      minimum: least value of an int, or least length of a list.
    """

    kind: str
    is_list: bool = False
    default: Any = REQUIRED
    allowed: frozenset[Any] | None = None
    minimum: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Func:
    """The value of a `func` attribute that names a function of the graph's library, and its own attributes.

    The other value such an attribute can have is a graph that the operation owns (`ir.graph.FuncGraph`).
    """

    name: str
    attrs: tuple[tuple[str, Any], ...] = ()


class Owned:
    """The base of `ir.graph.FuncGraph`, for which this module, being below it, has only this name."""

    __slots__ = ()


def describe_attr(spec: AttrSpec) -> str:
    """What values an attribute takes, for messages."""
    text = f"list({spec.kind})" if spec.is_list else spec.kind
    if spec.allowed is not None:
        text += " in {" + ", ".join(sorted(map(str, spec.allowed))) + "}"
    if spec.minimum is not None and not spec.is_list:
        text += f" >= {spec.minimum}"
    elif spec.minimum:
        text += f" of at least {spec.minimum}"
    return text


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {  # the first is what most values are
    "type": (DType,),
    "int": (int, np.integer),
    "float": (float, int, np.floating),
    "bool": (bool, np.bool_),
    "string": (str,),
    "shape": (tuple, type(None)),
    "func": (Func, Owned),
}


def check_attr(op_type: str, name: str, spec: AttrSpec, value: Any) -> Any:
    """`value`, made canonical (a tuple for lists, a DType for types), or a `GraphError`."""
    if spec.is_list:
        if not isinstance(value, (list, tuple)):
            raise _wrong(op_type, name, spec, value)
        made: Any = tuple([_check_one(op_type, name, spec, v) for v in value])
        least = len(made)
    else:
        made = least = _check_one(op_type, name, spec, value)
    if spec.minimum is not None and least < spec.minimum:
        raise _wrong(op_type, name, spec, value)
    return made


def _check_one(op_type: str, name: str, spec: AttrSpec, value: Any) -> Any:
    kinds = _PYTHON_TYPES.get(spec.kind, (object,))
    if type(value) is not kinds[0]:
        if spec.kind == "type":
            try:
                value = dtypes.as_dtype(value)
            except TypeError as e:
                raise _wrong(op_type, name, spec, value) from e
        elif spec.kind == "shape" and (isinstance(value, list) or hasattr(value, "dims")):
            value = tuple(value) if isinstance(value, list) else shapes.as_shape(value)
        elif spec.kind == "int" and not isinstance(value, (bool, np.bool_)) and shapes.is_number(value):
            value = int(value)
        elif spec.kind == "string" and isinstance(value, bytes):
            value = value.decode("utf-8", "surrogateescape")
        if (spec.kind == "int" and isinstance(value, (bool, np.bool_))) or not isinstance(value, kinds):
            raise _wrong(op_type, name, spec, value)
    if spec.allowed is not None and value not in spec.allowed:
        raise _wrong(op_type, name, spec, value)
    return value


def _wrong(op_type: str, name: str, spec: AttrSpec, got: object) -> GraphError:
    return GraphError(f"attribute {name!r} of {op_type} must be {describe_attr(spec)}, got {got!r}")
