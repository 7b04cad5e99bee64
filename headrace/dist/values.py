"""Values of tensors as bytes, without pickle.

    out = Writer()
    write(value, out)
    socket.sendmsg(out.buffers())
    value = read(Reader(received))       # its arrays are views of `received`

A value begins with a byte for its kind. All numbers are little-endian. `dtype` is the number of TensorFlow's `DataType`
(u8), `dims` are the rank (u8) and the dimensions (i64 each), and `value` is a value.

| kind | content | of |
|---|---|---|
| NONE | | None |
| SCALAR | dtype, element | a numpy scalar |
| ARRAY | dtype, dims, *data* of the elements in C order | an array |
| STRIDED | dtype, dims, strides in bytes (i64 each), *data*: see below | an array in another order, or with gaps |
| REPEATED | dims, value: an array with one element along each repeated dimension | an array with strides of 0 |
| BYTES | length (u64), *data* | `bytes`, a string of rank 0 |
| STRINGS | dims, *data* of the lengths (u64 each), *data* of the joined strings | an object array of `bytes` |
| OBJECTS | dims, values | any other object array |
| HANDLE | length (u64), *data*: msgpack | a `Handle`, if no resource belongs to it |
| LIST | head (`_LIST_HEAD`), dims with -1 for unknown ones, values, value of the pattern | a `TensorList` |
| MAP | number (u64), for each item the values of its key and its content | a `TensorMap` |
| OPTIONAL | number of components + 1, or 0 without a value (u32); dtype and value of each | an `Optional` |
| UNSET | | an uninitialized element of a list |

*Data* of less than `LARGE` bytes is copied into one buffer with the numbers, aligned to 8 bytes. Larger data is a
buffer of its own, aligned to 64 bytes, which is a view of the array that was written. So a large array is sent without
a copy, and received without one if the reader's bytes are aligned. All positions are relative to the start of the
frame. Elements have the byte order of the machine, and all machines of a cluster are little-endian.

An array keeps its layout in memory, since the libraries that multiply use other algorithms for other layouts, and the
last bits of the results differ. The data of a STRIDED array without gaps, such as a transposed one, are its elements in
the order of its memory; of one with gaps, in C order. An array that consists mostly of gaps becomes contiguous.

Elements of a quantized dtype are plain integers in numpy, so they have the number of the integer. A list of lists
contains an uninitialized element as such. The pattern of a list determines shapes only, so zeros are written in place
of its tensors. A list that is a version of a TensorFlow 1 array loses `accesses`: the array is in the other process.

The bytes are hostile input. A length is compared with the number of bytes that follow before anything is allocated, a
REPEATED array occupies only the memory of its elements, and the depth of values within values is limited.
"""

from __future__ import annotations

import itertools
import math
import struct
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

import msgspec
import numpy as np

from headrace import dtypes, thresholds
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.resources.manager import Handle
from headrace.resources.memory import SpilledTensor
from headrace.resources.optional import Optional
from headrace.resources.persistent import BLANK as UNINITIALIZED
from headrace.resources.persistent import Vector
from headrace.resources.spill import Layout, layout
from headrace.resources.tensor_list import TensorList
from headrace.resources.tensor_map import TensorMap
from headrace.resources.values import numpy_dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.dtypes import DType
    from headrace.resources.values import Value
    from headrace.shapes import Shape

Buffer: TypeAlias = bytes | bytearray | memoryview

LARGE: Final = 1 << 14  # bytes from which data has a buffer of its own
ALIGNMENT: Final = 64  # of large data
MOST_DEPTH: Final = 64  # of values within values
MOST_DIMS: Final = 64  # numpy's limit for arrays; static shapes of lists may have more
MOST_ELEMENTS: Final = 1 << 58  # so the number of bytes of an array is below 2**63

(
    _NONE, _SCALAR, _ARRAY, _REPEATED, _BYTES, _STRINGS, _OBJECTS, _HANDLE, _LIST, _MAP, _OPTIONAL, _UNSET, _STRIDED,
) = range(13)  # fmt: skip
_NO_RANK: Final = 255  # in place of the rank of a static shape

_LENGTH: Final = struct.Struct("<Q")
_COUNT: Final = struct.Struct("<I")
_LIST_HEAD: Final = struct.Struct("<BBqQQ")  # dtype, flags, max_num_elements or -1, nbytes, number of elements
_BLANK, _PATTERN = 1, 2  # flags: all elements are uninitialized, and no values follow; a pattern follows
_ARRAY_HEADS: Final = [struct.Struct(f"<BBB{rank}q") for rank in range(MOST_DIMS + 1)]
_PADDING: Final = [bytes(n) for n in range(ALIGNMENT)]

_handles: Final = msgspec.msgpack.Decoder(Handle)
_handle_bytes: Final = msgspec.msgpack.Encoder()

# The quantized dtypes are not among them, and share the integers' storage.
_DTYPES: Final = {d.number: d for d in (dtypes.ALL | dtypes.SMALL) - dtypes.OBJECT}
_NUMBERS: Final = {d.numpy: d.number for d in _DTYPES.values()}
_SCALAR_HEADS: Final = {d.numpy.type: bytes((_SCALAR, d.number)) for d in _DTYPES.values()}
_LIST_DTYPES: Final = _DTYPES | {d.number: d for d in dtypes.OBJECT | dtypes.QUANTIZED}


# *** writing ***


class Writer:
    """Bytes of a frame as buffers, which are sent in order.

    Args:
      head: the first bytes of the frame.
    """

    __slots__ = ("_before", "_buffers", "_small", "depth")

    def __init__(self, head: bytes = b"") -> None:
        self._buffers: list[Buffer] = []
        self._before = 0  # bytes in `_buffers`
        self._small = bytearray(head)  # follows `_buffers`
        self.depth = 0  # number of values around the current one

    @property
    def size(self) -> int:
        """Number of bytes that were written."""
        return self._before + len(self._small)

    def buffers(self) -> list[Buffer]:
        """Buffers of all bytes that were written, of which the first one is a `bytearray`."""
        return [*self._buffers, self._small] if self._small or not self._buffers else self._buffers

    def put(self, data: bytes) -> None:
        """Copies a few bytes."""
        self._small += data

    def put_whole(self, data: Buffer) -> None:
        """Adds bytes without a copy if there are many."""
        if len(data) < LARGE:
            self._small += data
            return
        self._before += len(self._small) + len(data)
        if self._small:
            self._buffers.append(self._small)
            self._small = bytearray()
        self._buffers.append(data)

    def put_data(self, data: Buffer) -> None:
        """Adds the data of a value, aligned."""
        n, small = len(data), self._small
        small += _PADDING[-(self._before + len(small)) % (8 if n < LARGE else ALIGNMENT)]
        if n < LARGE:
            small += data
        else:
            self.put_whole(data)


def write(value: Value, out: Writer) -> None:
    """Writes a value.

    Raises:
      InvalidArgumentError: the value contains an object of this process, or too many nested values.
    """
    (_WRITERS.get(type(value)) or _writer_of(value))(value, out)


def small_bytes(value: Value, at: int) -> bytes | None:
    """Returns the bytes that `write` writes for a numpy scalar or a small array.

    Args:
      value: the value.
      at: the position of the bytes in the frame.

    Returns:
      The bytes; None for other values.
    """
    head = _BUFFER_SCALARS.get(type(value))
    if head is not None:
        return b"".join((head, value))
    if (
        type(value) is np.ndarray
        and value.nbytes < LARGE
        and value.flags.c_contiguous
        and (number := _NUMBERS.get(value.dtype)) is not None
    ):
        shape = value.shape
        head = _ARRAY_HEADS[len(shape)].pack(_ARRAY, number, len(shape), *shape)
        return b"".join((head, _PADDING[-(at + len(head)) % 8], value.tobytes()))
    return None


def _write_none(value: None, out: Writer) -> None:
    out.put(b"\0")


def _write_scalar(value: np.generic, out: Writer) -> None:
    out.put(_SCALAR_HEADS[type(value)] + value.tobytes())


def _write_array(value: np.ndarray, out: Writer) -> None:
    is_strided = not value.flags.c_contiguous
    if is_strided and any(step == 0 and n > 1 for n, step in zip(value.shape, value.strides)):
        _write_repeated(value, out)
        return
    number = _NUMBERS.get(value.dtype)
    if number is None:
        if value.dtype == object:
            _write_objects(value, out)
            return
        dtype = _plain_dtype(value)
        number, value = dtype.number, value.astype(dtype.numpy)
    elif is_strided and (found := layout(value.shape, value.dtype, value.strides)) is not None:
        _write_strided(value, number, found, out)
        return
    rank = value.ndim
    out.put(_ARRAY_HEADS[rank].pack(_ARRAY, number, rank, *value.shape))
    if value.nbytes < LARGE:
        out.put_data(value.tobytes())
    else:  # numpy has no `memoryview` of bfloat16, so the elements are viewed as bytes
        out.put_data(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)


def _write_strided(value: np.ndarray, number: int, found: Layout, out: Writer) -> None:
    _put_dims(_STRIDED, value.shape, out, bytes((number,)))
    out.put(struct.pack(f"<{value.ndim}q", *value.strides))
    if found.span == value.nbytes:
        order = sorted(range(value.ndim), key=lambda k: -abs(value.strides[k]))
        turned = tuple([slice(None, None, -1 if value.strides[k] < 0 else 1) for k in order])
        value = value.transpose(order)[turned]  # contiguous
    out.put_data(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)


def _write_repeated(value: np.ndarray, out: Writer) -> None:
    _put_dims(_REPEATED, value.shape, out)
    _write_within(value[tuple([slice(0, 1) if step == 0 else slice(None) for step in value.strides])], out)


def _write_bytes(value: bytes, out: Writer) -> None:
    _put_bytes(_BYTES, value, out)


def _write_objects(value: np.ndarray, out: Writer) -> None:
    items = value.reshape(-1).tolist()
    types = set(map(type, items))
    if types <= {bytes}:
        _put_dims(_STRINGS, value.shape, out)
        out.put_data(struct.pack(f"<{len(items)}Q", *map(len, items)))
        out.put_data(b"".join(items))
        return
    if not types <= _ELEMENTS:
        raise _unsendable(next(item for item in items if type(item) not in _ELEMENTS))
    _put_dims(_OBJECTS, value.shape, out)
    for item in items:
        _write_within(item, out)


def _write_handle(value: Handle, out: Writer) -> None:
    if value.owned is not None:
        raise InvalidArgumentError(
            f"the resource {value!r} has no name of its own: it belongs to its handle, an object of this process, and "
            "so it cannot be sent to another one. Create the resource in the graph and with a name, or place all "
            "operations on it on one task"
        )
    _put_bytes(_HANDLE, _handle_bytes.encode(value), out)


def _write_list(value: TensorList, out: Writer) -> None:
    items: Sequence[Value] = () if value.is_blank else value.stored()
    pattern = value.pattern
    flags = _BLANK * value.is_blank | _PATTERN * (pattern is not None)
    most = -1 if value.max_num_elements is None else value.max_num_elements
    head = _LIST_HEAD.pack(value.element_dtype.number, flags, most, value.nbytes, value.length())
    _put_dims(_LIST, value.element_shape, out, head)
    for item in items:
        if item is UNINITIALIZED:
            out.put(_UNSET_BYTE)
        else:
            _write_within(item.value() if type(item) is SpilledTensor else item, out)
    if pattern is not None:
        _write_within(pattern, out)


def _write_map(value: TensorMap, out: Writer) -> None:
    items = value.items()
    out.put(bytes((_MAP,)) + _LENGTH.pack(len(items)))
    for key, content in items:
        # a key is compared by its elements, so it is not REPEATED
        _write_within(np.array(key) if isinstance(key, np.ndarray) else key, out)
        _write_within(content, out)


def _write_optional(value: Optional, out: Writer) -> None:
    components = value.components
    out.put(bytes((_OPTIONAL,)) + _COUNT.pack(0 if components is None else len(components) + 1))
    for dtype, component in zip(value.types, components or (), strict=components is not None):
        out.put(bytes((dtype.number,)))
        _write_within(component, out)


_WRITERS: Final[dict[type, Callable[[Any, Writer], None]]] = {
    **dict.fromkeys(_SCALAR_HEADS, _write_scalar),
    type(None): _write_none,
    np.ndarray: _write_array,
    bytes: _write_bytes,
    Handle: _write_handle,
    TensorList: _write_list,
    TensorMap: _write_map,
    Optional: _write_optional,
}
_ELEMENTS: Final = {type(None), bytes, Handle, TensorList, TensorMap, Optional}  # of object arrays
_UNSET_BYTE: Final = bytes((_UNSET,))


def _writer_of(value: Value) -> Callable[[Any, Writer], None]:
    """Returns the writer of a value whose class has none."""
    if isinstance(value, bytes):  # np.bytes_
        return _write_bytes
    if isinstance(value, np.ndarray):
        return lambda value, out: _write_array(np.asarray(value), out)
    if isinstance(value, np.generic):  # a second C type of one size, such as np.longlong
        dtype = _plain_dtype(value)
        return lambda value, out: _write_scalar(dtype.numpy.type(value), out)
    raise _unsendable(value)


def _plain_dtype(value: np.ndarray | np.generic) -> DType:
    """Returns the dtype of numbers, which may have a foreign byte order."""
    try:
        dtype = dtypes.from_numpy(value.dtype)
    except TypeError as e:
        raise InvalidArgumentError(f"a tensor cannot be sent to another task: {e}") from e
    if dtype.number not in _DTYPES:
        raise InvalidArgumentError(
            f"a tensor of numpy's dtype {value.dtype} cannot be sent to another task; a string tensor is an object "
            "array of bytes"
        )
    return dtype


def _unsendable(value: object) -> InvalidArgumentError:
    kind = type(value)
    return InvalidArgumentError(
        f"a value of type {kind.__module__}.{kind.__qualname__} cannot be sent to another task, as it is an object of "
        "this process. Place the operations that make it and use it on one task"
    )


def _write_within(value: Value, out: Writer) -> None:
    """Writes a value that is part of the current one."""
    out.depth += 1
    if out.depth > MOST_DEPTH:
        raise InvalidArgumentError(
            f"a value with more than {MOST_DEPTH} levels of nested lists, maps and optionals cannot be sent to another "
            "task"
        )
    write(value, out)
    out.depth -= 1


def _put_dims(kind: int, shape: Shape, out: Writer, head: bytes = b"") -> None:
    out.put(bytes((kind,)) + head)
    if shape is None:
        out.put(bytes((_NO_RANK,)))
        return
    out.put(struct.pack(f"<B{len(shape)}q", len(shape), *[-1 if d is None else d for d in shape]))


def _put_bytes(kind: int, data: bytes, out: Writer) -> None:
    out.put(bytes((kind,)) + _LENGTH.pack(len(data)))
    out.put_data(data)


# *** reading ***


class Reader:
    """Position in the bytes of a frame.

    Args:
      data: the frame; arrays that are read are views of it.
      at: the position of the first value.
    """

    __slots__ = ("at", "data", "depth")

    def __init__(self, data: bytes | memoryview, at: int = 0) -> None:
        self.data = data
        self.at = at
        self.depth = 0  # number of values around the current one

    @property
    def at_end(self) -> bool:
        """Whether all bytes have been read."""
        return self.at >= len(self.data)

    @property
    def left(self) -> int:
        """Number of bytes that have not been read."""
        return len(self.data) - self.at

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Reads numbers; `struct.error` if there are too few bytes."""
        numbers = form.unpack_from(self.data, self.at)
        self.at += form.size
        return numbers

    def count(self) -> int:
        """Reads the number of values that follow, of at least a byte each."""
        (n,) = self.unpack(_LENGTH)
        return self.check(n)

    def check(self, n: int) -> int:
        """Returns `n`, for which at least as many bytes are left."""
        if n > self.left:
            raise DataLossError(f"a value of a frame states a length of {n}, and {self.left} bytes are left")
        return n

    def skip_data(self, n: int) -> int:
        """Returns the position of data of `n` bytes, and moves behind it."""
        at = self.at = self.at + -self.at % (8 if n < LARGE else ALIGNMENT)
        self.at += self.check(n)
        return at


def read(source: Reader) -> Value:
    """Returns the value at the position of a reader, which moves behind it.

    Arrays of numbers are read-only, and share the memory of the reader's bytes.

    Raises:
      DataLossError: the bytes are damaged or incomplete, or are no value.
    """
    try:
        return _READERS[source.data[source.at]](source)
    except (struct.error, IndexError, UnicodeDecodeError) as e:  # a number beyond the end, an unknown kind, a text
        raise DataLossError(f"there is no value at byte {source.at} of a frame: {e}") from e


def read_last(data: bytes | memoryview, at: int) -> Value:
    """Returns the value that fills the bytes from a position to their end.

    Raises:
      DataLossError: the bytes are damaged or incomplete, or others follow.
    """
    if len(data) > at + 2 and data[at] == _SCALAR:  # as `read` does it, without a reader
        scalar, end = _scalar(data, at)
        if end == len(data):
            return scalar
    source = Reader(data, at)
    value = read(source)
    if source.left:
        raise DataLossError(f"{source.left} bytes follow the value of a token")
    return value


def _read_none(source: Reader) -> None:
    source.at += 1


def _read_scalar(source: Reader) -> np.generic:
    scalar, source.at = _scalar(source.data, source.at)
    return scalar


def _scalar(data: bytes | memoryview, at: int) -> tuple[np.generic, int]:
    """Returns the scalar at a position, and the position behind it."""
    dtype = _dtype(data[at + 1], _DTYPES).numpy
    end = at + 2 + dtype.itemsize
    if end > len(data):
        raise DataLossError("a frame ends within a scalar")
    scalar: np.generic = np.ndarray((), dtype, data, at + 2)[()]  # type: ignore[assignment]
    return scalar, end


def _read_array(source: Reader) -> np.ndarray:
    source.at += 2
    dtype = _dtype(source.data[source.at - 1], _DTYPES).numpy
    shape, count = _read_dims(source)
    array = np.ndarray(shape, dtype, source.data, source.skip_data(count * dtype.itemsize))
    if dtype.kind == "b" and count:
        _check_booleans(array)
    return array


def _check_booleans(array: np.ndarray) -> None:
    """Raises `DataLossError` unless all bytes are 0 or 1.

    numpy counts True by the sum of the bytes, and then writes as many indices.
    """
    if array.view(np.uint8).max() > 1:
        raise DataLossError("a frame has a boolean that is neither 0 nor 1")


def _read_strided(source: Reader) -> np.ndarray:
    source.at += 2
    dtype = _dtype(source.data[source.at - 1], _DTYPES).numpy
    shape, count = _read_dims(source)
    strides = source.unpack(_DIMS[len(shape)])
    found = layout(shape, dtype, strides)
    n = count * dtype.itemsize
    if not count or found is None or found.span < n:
        raise DataLossError(f"a frame has an array of the shape {list(shape)} with the strides {list(strides)}")
    at = source.skip_data(n)
    data = np.ndarray((n,), np.uint8, source.data, at)
    if dtype.kind == "b":
        _check_booleans(data)
    if found.span == n:
        return np.ndarray(shape, dtype, source.data, at + found.first, strides)
    out = found.array(np.zeros(found.span, np.uint8))
    out[...] = np.ndarray(shape, dtype, source.data, at)
    out.flags.writeable = False
    return out


def _read_repeated(source: Reader) -> np.ndarray:
    source.at += 1
    shape, _ = _read_dims(source)
    one = _read_within(source)
    if (
        not isinstance(one, np.ndarray)
        or one.ndim != len(shape)
        or any(have not in (1, n) for have, n in zip(one.shape, shape))
    ):
        raise DataLossError(f"a frame repeats a {_brief(one)} to the shape {list(shape)}")
    return np.broadcast_to(one, shape)


def _read_bytes(source: Reader) -> bytes:
    source.at += 1
    n = source.count()
    at = source.skip_data(n)
    return bytes(source.data[at : at + n])


def _read_strings(source: Reader) -> np.ndarray:
    source.at += 1
    shape, count = _read_dims(source)
    at = source.skip_data(8 * count)
    ends = list(itertools.accumulate(struct.unpack_from(f"<{count}Q", source.data, at), initial=0))
    at = source.skip_data(ends[-1])
    data = bytes(source.data[at : at + ends[-1]])
    out = np.empty(count, object)
    out[:] = [data[a:b] for a, b in itertools.pairwise(ends)]
    return out.reshape(shape)


def _read_objects(source: Reader) -> np.ndarray:
    source.at += 1
    shape, count = _read_dims(source)
    out = np.empty(source.check(count), object)
    for i in range(count):
        item = _read_within(source)
        if type(item) not in _ELEMENTS:
            raise DataLossError(f"a frame has an object array with a {_brief(item)}")
        out[i] = item
    return out.reshape(shape)


def _read_handle(source: Reader) -> Handle:
    data = _read_bytes(source)
    try:
        handle: Handle = _handles.decode(data)
    except (msgspec.MsgspecError, RecursionError) as e:
        raise DataLossError(f"{len(data)} bytes of a frame are no handle: {e}") from e
    if handle.owned is not None:
        raise DataLossError(f"a frame has the handle {handle!r:.200} with a resource")
    return handle


def _read_list(source: Reader) -> TensorList:
    source.at += 1
    number, flags, most, nbytes, count = source.unpack(_LIST_HEAD)
    dtype = _dtype(number, _LIST_DTYPES)
    shape = _read_static_shape(source)
    if flags & _BLANK:
        if count > thresholds.LIST_ELEMENTS:
            raise DataLossError(
                f"a frame has a list of {count} elements; at most {thresholds.LIST_ELEMENTS} are allowed"
            )
        items: Vector[Value] = Vector.blank(count)
        initialized = 0
    else:
        elements = [_read_element(source, dtype) for _ in range(source.check(count))]
        items = Vector.of(elements)
        initialized = sum(item is not UNINITIALIZED for item in elements)
    pattern = _read_within(source) if flags & _PATTERN else None
    if pattern is not None and type(pattern) is not TensorList:
        raise DataLossError(f"a frame has a list whose pattern is a {_brief(pattern)}")
    out = TensorList(dtype, shape, items, None if most == -1 else most, initialized=initialized, pattern=pattern)
    out.nbytes = nbytes
    return out


def _read_element(source: Reader, dtype: DType) -> Value:
    if source.data[source.at] == _UNSET:
        source.at += 1
        return UNINITIALIZED
    return _of_dtype(_read_within(source), dtype)


def _read_map(source: Reader) -> TensorMap:
    source.at += 1
    items = []
    for _ in range(source.count()):
        key = _read_within(source)
        if getattr(key, "nbytes", 0) > 8 * len(source.data):
            raise DataLossError(f"a frame has a map with a repeated {_brief(key)} as a key")
        items.append((key, _read_within(source)))
    return TensorMap.of(items)


def _read_optional(source: Reader) -> Optional:
    source.at += 1
    (count,) = source.unpack(_COUNT)
    if not count:
        return Optional()
    types, components = [], []
    for _ in range(source.check(count - 1)):
        dtype = _dtype(source.data[source.at], _LIST_DTYPES)
        source.at += 1
        types.append(dtype)
        components.append(_of_dtype(_read_within(source), dtype))
    return Optional(tuple(components), types)


def _read_unset(source: Reader) -> NoReturn:
    raise DataLossError("a frame has an uninitialized element outside of a list")


_READERS: Final[tuple[Callable[[Reader], Value], ...]] = (
    *(_read_none, _read_scalar, _read_array, _read_repeated, _read_bytes, _read_strings),
    *(_read_objects, _read_handle, _read_list, _read_map, _read_optional, _read_unset, _read_strided),
)


def _read_within(source: Reader) -> Value:
    """Reads a value that is part of the current one."""
    source.depth += 1
    if source.depth > MOST_DEPTH:
        raise DataLossError(f"a frame has more than {MOST_DEPTH} levels of nested values")
    value = _READERS[source.data[source.at]](source)
    source.depth -= 1
    return value


def _read_dims(source: Reader) -> tuple[tuple[int, ...], int]:
    """Reads the shape of an array, and returns it with the number of elements."""
    data, at = source.data, source.at
    rank = data[at]
    if rank > MOST_DIMS:
        raise DataLossError(f"a frame has an array of rank {rank}; at most {MOST_DIMS} is allowed")
    shape: tuple[int, ...] = _DIMS[rank].unpack_from(data, at + 1)
    source.at = at + 1 + 8 * rank
    count = math.prod(shape)
    # numpy multiplies the dimensions other than 0 even if one is 0
    if rank and (min(shape) < 0 or (count or math.prod(filter(None, shape))) > MOST_ELEMENTS):
        raise DataLossError(f"a frame has an array of the shape {list(shape)}")
    return shape, count


def _read_static_shape(source: Reader) -> Shape:
    rank = source.data[source.at]
    source.at += 1
    if rank == _NO_RANK:
        return None
    dims = source.unpack(_DIMS[rank])
    if dims and min(dims) < 0:
        if min(dims) < -1:
            raise DataLossError(f"a frame has a shape with the dimension {min(dims)}")
        return tuple([None if n == -1 else n for n in dims])
    return dims


_DIMS: Final = [struct.Struct(f"<{rank}q") for rank in range(_NO_RANK)]


def _dtype(number: int, known: dict[int, DType]) -> DType:
    found = known.get(number)
    if found is None:
        raise DataLossError(f"a frame has a value of the DataType {number}")
    return found


def _of_dtype(value: Value, dtype: DType) -> Value:
    if numpy_dtype_of(value) != dtype.numpy:
        raise DataLossError(f"a frame has a {_brief(value)} in a list or an optional of {dtype.name}")
    return value


def _brief(value: Value) -> str:
    found = getattr(value, "dtype", None)
    return type(value).__name__ if found is None else f"{type(value).__name__} of {found}"


def _exports_bytes(kind: type[Any]) -> bool:
    try:
        return memoryview(kind(1)).contiguous
    except (TypeError, ValueError):
        return False


# Scalars whose memory is read without a call of numpy's `tobytes`, which is slow for scalars. Those of ml_dtypes fail.
_BUFFER_SCALARS: Final = {kind: head for kind, head in _SCALAR_HEADS.items() if _exports_bytes(kind)}
