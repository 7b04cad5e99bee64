"""Conversion of attribute values and tensors between wire form and Python values.

The wire forms are `AttrValue` and `TensorProto`. `headrace docs how-to/adding_ops` lists the Python value of each kind
of attribute: a `DType`, an int, a float, a bool, a `str`, a shape (a tuple, or None), a read-only numpy array, a
`Func`, and tuples of these.

Files are hostile input. Three rules apply:

* No allocation has a size that only the file states: a constant of 10^12 equal elements is one element, repeated by a
  view without storage.
* A tensor whose value does not fit its dtype or shape becomes a `BadTensor`. TensorFlow imports such a constant too,
  and its kernel fails.
* An attribute that the op does not declare becomes a plain Python value if this is lossless, and a `Raw` otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

import numpy as np
from google.protobuf import message as protobuf

from headrace import dtypes, pb
from headrace.dtypes import DType
from headrace.errors import GraphError
from headrace.ir.attr_values import AttrSpec, BadTensor, Func, Raw, first_element, is_splat
from headrace.shapes import Shape

MAX_RANK: Final = 254  # TensorFlow's limit
_MAX_ELEMENTS: Final = 2**63 - 1

# If a tensor states its first few elements, of which the last is repeated, it must be written out; with one element it
# need not. This limits the allocation that a few bytes of a file can cause.
_MAX_FILLED_BYTES: Final = 1 << 24

Values: TypeAlias = "np.ndarray[Any, Any]"


# *** dtypes and shapes ***


def decode_dtype(number: int) -> DType:
    """Returns the dtype of an enum number.

    Raises:
      GraphError: the number is invalid.
    """
    try:
        return dtypes.from_number(number)
    except TypeError as e:
        raise GraphError(f"AttrValue has invalid DataType enum: {number}") from e


def decode_shape(proto: pb.TensorShapeProto) -> Shape:
    """Returns the shape that `proto` describes.

    Raises:
      GraphError: no tensor can have the shape.
    """
    if proto.unknown_rank:
        return None
    sizes = [d.size for d in proto.dim]
    if len(sizes) > MAX_RANK:
        raise GraphError(f"Shape has {len(sizes)} dimensions; a tensor has at most {MAX_RANK}")
    if any(n < -1 for n in sizes):
        raise GraphError(f"Shape {sizes} has dimensions with values below -1 (where -1 means unknown)")
    if 0 not in sizes and math.prod(n for n in sizes if n > 0) > _MAX_ELEMENTS:
        raise GraphError(f"Shape {sizes} is too large (more than 2**63 - 1 entries)")
    return tuple(None if n < 0 else n for n in sizes)


def encode_shape(shape: Shape) -> pb.TensorShapeProto:
    """Returns the wire form of a shape."""
    if shape is None:
        return pb.TensorShapeProto(unknown_rank=True)
    return pb.TensorShapeProto(dim=[pb.TensorShapeProto.Dim(size=-1 if n is None else n) for n in shape])


# *** tensors ***

# dtype -> the field with its elements, and the numpy dtype of that field
_FIELDS: Final[dict[DType, tuple[str, Any]]] = {
    dtypes.float32: ("float_val", np.float32),
    dtypes.float64: ("double_val", np.float64),
    dtypes.float16: ("half_val", np.int32),
    dtypes.bfloat16: ("half_val", np.int32),
    dtypes.complex64: ("scomplex_val", np.float32),
    dtypes.complex128: ("dcomplex_val", np.float64),
    dtypes.bool_: ("bool_val", np.bool_),
    dtypes.int64: ("int64_val", np.int64),
    dtypes.uint64: ("uint64_val", np.uint64),
    dtypes.uint32: ("uint32_val", np.uint32),
    **dict.fromkeys((dtypes.int32, dtypes.int16, dtypes.int8, dtypes.uint16, dtypes.uint8), ("int_val", np.int32)),
    **dict.fromkeys(dtypes.QUANTIZED | dtypes.SMALL_INTEGER, ("int_val", np.int32)),
    **dict.fromkeys(dtypes.SMALL_FLOATING, ("float8_val", np.uint8)),
}


def decode_tensor(proto: pb.TensorProto) -> Values | BadTensor:
    """Returns the read-only array of a `TensorProto`; strings are `bytes` objects.

    Returns:
      The array (one stored element if all are equal), or a `BadTensor` if the value does not fit dtype and shape.

    Raises:
      GraphError: no tensor can have the shape.
    """
    # TensorFlow reads an unknown rank here as rank 0.
    shape = () if proto.tensor_shape.unknown_rank else decode_shape(proto.tensor_shape)
    if shape is None or None in shape:
        raise GraphError(f"Shape {[d.size for d in proto.tensor_shape.dim]} is not fully defined")
    known = tuple(d for d in shape if d is not None)
    try:
        array = _decode(proto, known, math.prod(known))
    except (ValueError, GraphError) as e:  # GraphError: the dtype; ValueError: from this module or numpy's limits
        return BadTensor(f"Cannot parse tensor from proto: {e}", proto.SerializeToString(deterministic=True))
    array.flags.writeable = False
    return array


def _decode(proto: pb.TensorProto, shape: tuple[int, ...], n: int) -> Values:
    dtype = decode_dtype(proto.dtype)
    if dtype is dtypes.string:
        values = _strings(proto, n)
    elif dtype not in _FIELDS:
        raise ValueError(f"a constant cannot be {dtype.name}")
    elif proto.tensor_content:
        return _content(proto.tensor_content, dtype, n).reshape(shape)
    else:
        values = _elements(proto, dtype)
    if len(values) == 0:
        zero = np.zeros((), values.dtype) if values.dtype != object else _array_of([b""])[0:1].reshape(())
        return np.broadcast_to(zero, shape)
    if len(values) >= n:
        return values[:n].reshape(shape)
    if len(values) == 1:
        return np.broadcast_to(values.reshape(()), shape)
    if n * values.itemsize > _MAX_FILLED_BYTES:
        raise ValueError(f"{n} elements are given by {len(values)}; write them out")
    out = np.empty(n, values.dtype)
    out[: len(values)] = values
    out[len(values) :] = values[-1]
    return out.reshape(shape)


def _elements(proto: pb.TensorProto, dtype: DType) -> Values:
    field, of = _FIELDS[dtype]
    given = getattr(proto, field)
    values: Values = np.fromiter(given, of, len(given))
    if field == "half_val":
        return values.astype(np.uint16).view(dtype.numpy)
    if field == "float8_val":
        return values.view(dtype.numpy)
    if dtype.is_complex:
        return values[: len(values) // 2 * 2].view(dtype.numpy)
    return values.astype(dtype.numpy, copy=False)


def _content(content: bytes, dtype: DType, n: int) -> Values:
    if len(content) != n * dtype.size:
        raise ValueError(f"it has {len(content)} bytes of content; {n} elements of {dtype.name} take {n * dtype.size}")
    values: Values
    if dtype is dtypes.bool_:
        values = np.frombuffer(content, np.uint8) != 0
    else:
        values = np.frombuffer(content, dtype.numpy.newbyteorder("<")).astype(dtype.numpy, copy=False)
    return values


def _strings(proto: pb.TensorProto, n: int) -> Values:
    if not proto.tensor_content:
        return _array_of(proto.string_val)
    # The lengths of all the strings, as varints, then their bytes.
    content, at, lengths = proto.tensor_content, 0, []
    if n > len(content):
        raise ValueError(f"it has {len(content)} bytes of content for {n} strings")
    for _ in range(n):
        value = shift = 0
        while True:
            if at == len(content) or shift > 28:
                raise ValueError("the lengths of its strings are damaged")
            byte = content[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        lengths.append(value)
    if at + sum(lengths) != len(content):
        raise ValueError(f"its strings take {sum(lengths)} bytes, and there are {len(content) - at}")
    out = []
    for length in lengths:
        out.append(content[at : at + length])
        at += length
    return _array_of(out)


def _array_of(items: Iterable[Any]) -> Values:
    """Returns a vector of the objects `items`, which numpy does not convert."""
    items = list(items)
    out = np.empty(len(items), object)
    out[:] = items
    return out


def encode_tensor(array: Values | BadTensor) -> pb.TensorProto:
    """Returns the wire form of an array.

    An array without storage for its size, of equal elements, is written as one element.

    Raises:
      GraphError: the elements of an object array are not `bytes` (handles and variants have no wire form).
    """
    if isinstance(array, BadTensor):
        return pb.TensorProto.FromString(array.proto)
    dtype = dtypes.from_numpy(array.dtype)
    proto = pb.TensorProto(dtype=dtype.number, tensor_shape=encode_shape(array.shape))  # type: ignore[arg-type]
    size = array.size
    splat = is_splat(array)
    flat = first_element(array) if splat else array.reshape(-1)
    in_field = dtype is dtypes.string or dtype in dtypes.SMALL_INTEGER
    if in_field or (splat and (size > 1 or flat[0] == flat[0])):  # a scalar NaN would lose its payload
        add_elements(proto, flat, dtype)
    else:
        proto.tensor_content = flat.astype(flat.dtype.newbyteorder("<"), copy=False).tobytes()
    return proto


def add_elements(proto: pb.TensorProto, flat: Values, dtype: DType) -> None:
    """Adds the elements of a vector to the field of a message for their dtype.

    Raises:
      GraphError: see `encode_tensor`.
    """
    if dtype is dtypes.string:
        if not all(isinstance(x, bytes) for x in flat):
            raise GraphError(f"an array of {type(flat[0]).__name__} objects cannot be written to a GraphDef")
        proto.string_val.extend(flat)
        return
    field, of = _FIELDS[dtype]
    if field == "float8_val":
        proto.float8_val += flat.tobytes()
        return
    if field == "half_val":
        flat = flat.view(np.uint16)
    elif dtype in dtypes.SMALL_INTEGER:
        flat = flat.astype(np.int32)
    elif dtype.is_complex:
        flat = flat.view(of)
    getattr(proto, field).extend(flat.tolist())


def write_tensor(array: Values, dtype: DType) -> bytes:
    """Returns the serialized wire form of an array of `dtype`, with all elements.

    Raises:
      GraphError: see `encode_tensor`.
    """
    if dtype is dtypes.string:
        return encode_tensor(array).SerializeToString(deterministic=True)
    content = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    proto = pb.TensorProto(tensor_shape=encode_shape(array.shape), tensor_content=content)
    proto.dtype = dtype.number  # type: ignore[assignment]
    return proto.SerializeToString(deterministic=True)


def read_tensor(data: bytes) -> tuple[DType, Values]:
    """Returns the dtype and array of a serialized tensor.

    Raises:
      ValueError: `data` is not a serialized tensor.
    """
    try:
        proto = pb.TensorProto.FromString(data)
        array = decode_tensor(proto)
        if isinstance(array, BadTensor):
            raise ValueError(array.reason)
        return decode_dtype(proto.dtype), array
    except (protobuf.DecodeError, GraphError) as e:
        raise ValueError(f"Cannot parse tensor from proto: {e}") from None


# *** attributes ***


def to_str(value: bytes) -> str:
    """Returns a string of the file as Python text."""
    return value.decode("utf-8", "surrogateescape")


def to_bytes(value: str) -> bytes:
    """Returns the bytes of a string; the inverse of `to_str`.

    Raises:
      GraphError: no bytes correspond to the text.
    """
    try:
        return value.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as e:
        raise GraphError(f"{value!r} cannot be written to a GraphDef: {e}") from None


def _decode_func(proto: pb.NameAttrList) -> Func:
    return Func(proto.name, tuple((k, _undeclared(proto.attr[k])) for k in sorted(proto.attr)))


def _encode_func(func: Func) -> pb.NameAttrList:
    return pb.NameAttrList(name=func.name, attr={k: encode_attr(v) for k, v in func.attrs})


# kind -> field, wire to Python, Python to wire
_KINDS: Final[dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "type": ("type", decode_dtype, lambda d: d.number),
    "int": ("i", int, int),
    "float": ("f", float, float),
    "bool": ("b", bool, bool),
    "string": ("s", to_str, to_bytes),
    "shape": ("shape", decode_shape, encode_shape),
    "tensor": ("tensor", decode_tensor, encode_tensor),
    "func": ("func", _decode_func, _encode_func),
}
_KIND_OF_FIELD: Final = {field: kind for kind, (field, _, _) in _KINDS.items()}
_KIND_OF_TYPE: Final[tuple[tuple[type, str], ...]] = (  # bool before int
    (DType, "type"), (bool, "bool"), (int, "int"), (float, "float"), (str, "string"), (Func, "func")
)  # fmt: skip
_PLAIN: Final = frozenset({"type", "int", "float", "bool", "string"})  # kinds that are determined by the Python value


def decode_attr(value: pb.AttrValue, spec: AttrSpec | None) -> Any:
    """Returns the Python value of an attribute.

    Args:
      value: its wire form.
      spec: its declaration; None if the record does not declare it.

    Raises:
      GraphError: the value is not of the declared kind. The text does not name the attribute or node, which the caller
        adds.
    """
    if spec is None:
        return _undeclared(value)
    field = value.WhichOneof("value")
    want, decode, _ = _KINDS[spec.kind]
    if not spec.is_list:
        if field != want:
            raise _wrong_kind(_show_kind(value, field), spec.kind)
        return decode(getattr(value, want))
    if field is None:
        return ()
    if field != "list":
        raise _wrong_kind(_show_kind(value, field), f"list({spec.kind})")
    for other, _ in value.list.ListFields():
        if other.name != want:
            raise _wrong_kind(_show_kind(value, field), f"list({spec.kind})")
    return tuple(decode(v) for v in getattr(value.list, want))


def _wrong_kind(got: str, want: str) -> GraphError:
    if not got:
        return GraphError(f"AttrValue missing value with expected type '{want}'")
    return GraphError(f"AttrValue had value with type '{got}' when '{want}' expected")


def _show_kind(value: pb.AttrValue, field: str | None) -> str:
    if field == "list":
        return " and ".join(f"list({_KIND_OF_FIELD[f.name]})" for f, _ in value.list.ListFields()) or "list()"
    return _KIND_OF_FIELD.get(field or "", field or "")


def _undeclared(value: pb.AttrValue) -> Any:
    field = value.WhichOneof("value")
    try:
        if field == "list":
            lists = value.list.ListFields()
            if not lists:
                return ()
            if len(lists) == 1 and _KIND_OF_FIELD[lists[0][0].name] in _PLAIN:
                decode = _KINDS[_KIND_OF_FIELD[lists[0][0].name]][1]
                return tuple(decode(v) for v in lists[0][1])
        elif field is not None and _KIND_OF_FIELD.get(field) in _PLAIN:
            return _KINDS[_KIND_OF_FIELD[field]][1](getattr(value, field))
    except GraphError:  # an unsupported dtype
        pass
    return Raw(value.SerializeToString(deterministic=True))


def encode_attr(value: Any, spec: AttrSpec | None = None) -> pb.AttrValue:
    """Returns the wire form of an attribute; the inverse of `decode_attr`.

    Raises:
      GraphError: the value has no wire form.
    """
    if isinstance(value, Raw):
        return pb.AttrValue.FromString(value.proto)
    try:
        if spec is not None:
            field, _, encode = _KINDS[spec.kind]
            is_list = spec.is_list
        else:
            is_list = isinstance(value, tuple)
            if is_list and not value:
                return pb.AttrValue(list=pb.AttrValue.ListValue())
            field, _, encode = _KINDS[_kind_of(value[0] if is_list else value)]
        if is_list:
            return pb.AttrValue(list=pb.AttrValue.ListValue(**{field: [encode(v) for v in value]}))
        return pb.AttrValue(**{field: encode(value)})
    except (TypeError, ValueError, AttributeError) as e:
        raise GraphError(f"{value!r} cannot be written to a GraphDef: {e}") from e


def _kind_of(value: Any) -> str:
    for t, kind in _KIND_OF_TYPE:
        if isinstance(value, t):
            return kind
    if isinstance(value, (np.ndarray, BadTensor)):
        return "tensor"
    raise TypeError(f"a {type(value).__name__} is no attribute value")
