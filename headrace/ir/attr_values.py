"""Attributes of operations: declarations, Python values, checks against the declaration, and comparison.

`headrace docs how-to/adding_ops` has the table of kinds and of the Python types of their values. The wire form of the
values is the subject of `ir.serial.attrs`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final, TypeAlias

import numpy as np

from headrace import dtypes, shapes
from headrace.dtypes import DType
from headrace.errors import GraphError
from headrace.records import record

Array: TypeAlias = "np.ndarray[Any, Any]"

REQUIRED: Final = object()  # the default of an attribute without default

ATTR_KINDS: Final = ("type", "int", "float", "bool", "string", "shape", "tensor", "func")


@record(frozen=True, slots=True)
class AttrSpec:
    """Declaration of an attribute: its kind, default and allowed values.

    Attributes:
      kind: one of `ATTR_KINDS`.
      is_list: whether the value is a list (a Python tuple) of that kind.
      default: the value of an omitted attribute, or `REQUIRED`.
      allowed: the allowed dtypes or strings; None for any.
      minimum: the least value of an int, or the least length of a list.
    """

    kind: str
    is_list: bool = False
    default: Any = REQUIRED
    allowed: frozenset[Any] | None = None
    minimum: int | None = None


@record(frozen=True, slots=True)
class Func:
    """Value of a `func` attribute that names a function of the graph's library.

    The other possible value of such an attribute is a graph that the operation owns (`ir.graph.FuncGraph`).

    Attributes:
      name: the name of the function.
      attrs: the attributes of the call, as pairs (name, value).
    """

    name: str
    attrs: tuple[tuple[str, Any], ...] = ()


class Owned:
    """Base class of `ir.graph.FuncGraph`, by which this lower module recognizes owned graphs."""

    __slots__ = ()


def describe_attr(spec: AttrSpec) -> str:
    """Returns a description of the values that an attribute may have, for messages."""
    text = f"list({spec.kind})" if spec.is_list else spec.kind
    if spec.allowed is not None:
        text += " in {" + ", ".join(sorted(map(str, spec.allowed))) + "}"
    if spec.minimum is not None and not spec.is_list:
        text += f" >= {spec.minimum}"
    elif spec.minimum:
        text += f" of at least {spec.minimum}"
    return text


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {  # the first type is the most frequent
    "type": (DType,),
    "int": (int, np.integer),
    "float": (float, int, np.floating),
    "bool": (bool, np.bool_),
    "string": (str,),
    "shape": (tuple, type(None)),
    "func": (Func, Owned),
}


def check_attr(op_type: str, name: str, spec: AttrSpec, value: Any) -> Any:
    """Returns the canonical form of `value`: lists as tuples, types as DTypes.

    Raises:
      GraphError: the declaration does not allow the value.
    """
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


_PLAIN: Final = (DType, bool, int, float, str, np.generic)
_FREQUENT: Final = frozenset((DType, bool, int, float, str, type(None)))  # tested first, by type alone


def check_is_data(name: str, value: Any) -> None:
    """Raises `GraphError` unless an attribute's value has a wire form or is a graph.

    Such values are plain data: no object of this process, such as a function of Python or a handle.
    """
    values = value if isinstance(value, tuple) else (value,)
    for v in values:
        if type(v) in _FREQUENT or isinstance(v, (*_PLAIN, Func, Owned, BadTensor, Raw)):
            continue
        if isinstance(v, tuple) and all(x is None or isinstance(x, _PLAIN) for x in v):
            continue
        if isinstance(v, np.ndarray) and (
            v.dtype != object or all(isinstance(x, bytes) for x in (first_element(v) if is_splat(v) else v.flat))
        ):
            continue
        raise GraphError(f"attribute {name!r} is {v!r}, a {type(v).__name__}, which is no attribute value")


# *** values of imported attributes, and comparison ***


class BadTensor:
    """Value of an imported tensor attribute whose contents do not fit its dtype or shape.

    `str()` returns the reason.

    Attributes:
      reason: the error text of the kernel that reads the tensor.
      proto: the serialized `TensorProto`, which an export writes unchanged.
    """

    __slots__ = ("proto", "reason")

    def __init__(self, reason: str, proto: bytes) -> None:
        self.reason = reason
        self.proto = proto

    def __str__(self) -> str:
        return self.reason

    def __repr__(self) -> str:
        return f"BadTensor({self.reason!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BadTensor) and self.proto == other.proto

    def __hash__(self) -> int:
        return hash(self.proto)


class Raw:
    """Value, in wire form, of an attribute that the op type does not declare.

    Attributes:
      proto: the serialized `AttrValue`, which an export writes unchanged.
    """

    __slots__ = ("proto",)

    def __init__(self, proto: bytes) -> None:
        self.proto = proto

    def __repr__(self) -> str:
        from headrace import pb  # imported here so that attribute values do not depend on protobuf

        return f"Raw({' '.join(str(pb.AttrValue.FromString(self.proto)).split())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Raw) and self.proto == other.proto

    def __hash__(self) -> int:
        return hash(self.proto)


def equal(a: Any, b: Any) -> bool:
    """Whether two attribute values are equal bit for bit.

    NaN equals NaN; 0.0 does not equal -0.0; 1 does not equal True.
    """
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and _same_array(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, Func):
        return a.name == b.name and equal(a.attrs, b.attrs)
    return bool(attr_key(a) == attr_key(b))


_COMPARABLE: Final = frozenset((bool, int, str))  # values of one of these classes are equal if `==` holds


def attr_key(value: Any) -> Hashable:
    """Returns a key for an attribute value; keys are equal where the values are `equal`.

    The key of an array cannot be hashed.

    Example:
      >>> attr_key(0.0) == attr_key(-0.0), attr_key(1) == attr_key(True), attr_key((1, 2.0)) == attr_key((1, 2.0))
      (False, False, True)
    """
    kind = value.__class__
    if kind in _COMPARABLE:
        return kind, value
    if kind is DType:
        return kind, value.number
    if kind is tuple:
        return tuple(map(attr_key, value))
    if kind is Func:
        return kind, value.name, attr_key(value.attrs)
    if kind is float:  # 0.0 == -0.0, and NaN does not equal itself
        return kind, value if value and value == value else value.hex()
    return kind, value.tobytes() if isinstance(value, np.generic) else value


def _same_array(a: Array, b: Array) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if is_splat(a) and is_splat(b):  # their declared size may exceed memory
        a, b = first_element(a), first_element(b)
    if a.dtype == object:
        return bool((a == b).all())
    return a.tobytes() == b.tobytes()


def is_splat(array: Array) -> bool:
    """Whether all elements of `array` share one storage location (all strides are zero).

    Such an array has no storage for its size, which may be arbitrarily large.
    """
    return array.size > 0 and not any(s for s, n in zip(array.strides, array.shape, strict=True) if n > 1)


def first_element(array: Array) -> Array:
    """Returns the first element of `array` as a vector of one element."""
    return array.reshape(1) if array.ndim == 0 else array[(slice(0, 1),) * array.ndim].reshape(-1)


def check_const(type: str, attrs: Mapping[str, Any]) -> None:
    """Raises `GraphError` if the array of a `Const` and its attr `dtype` disagree."""
    if type == "Const" and isinstance(attrs["value"], np.ndarray) and attrs["value"].dtype != attrs["dtype"].numpy:
        raise GraphError(f"a Const of {attrs['dtype']} holds an array of {dtypes.from_numpy(attrs['value'].dtype)}")
