"""Values of tensors as bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra import numpy as hnp

from headrace import dtypes, thresholds
from headrace.dist.values import ALIGNMENT, LARGE, MOST_DEPTH, Reader, Writer, read, small_bytes, write
from headrace.errors import DataLossError, InvalidArgumentError
from headrace.resources.array_accesses import Accesses
from headrace.resources.manager import Handle
from headrace.resources.memory import Memory
from headrace.resources.optional import Optional
from headrace.resources.tensor_list import TensorList
from headrace.resources.tensor_map import TensorMap
from tests.dist.hostile_bytes import joined, same

NUMBERS = sorted((d for d in dtypes.ALL - dtypes.OBJECT), key=lambda d: d.number)
HANDLE = Handle("/device:CPU:0", "localhost", "Variable", "w", False, "float32", (2, None))


def through(value: Any) -> Any:
    out = Writer()
    write(value, out)
    data = joined(out.buffers())
    assert len(data) == out.size
    assert all(map(len, out.buffers()))
    source = Reader(data)
    got = read(source)
    assert source.at_end
    assert source.left == 0
    return got


def again(value: Any) -> Any:
    """Returns a value that went through bytes, and is equal."""
    got = through(value)
    assert same(value, got)
    return got


def objects(*items: Any) -> np.ndarray:
    out = np.empty(len(items), object)
    for i, item in enumerate(items):
        out[i] = item
    return out


def nested(depth: int) -> TensorList:
    out = TensorList(dtypes.variant)
    for _ in range(depth - 1):
        out = TensorList(dtypes.variant).push(out)
    return out


FLOATS = TensorList(dtypes.float32, (None, 2), max_num_elements=9)
FULL = FLOATS.push(np.ones((3, 2), np.float32)).push(np.zeros((0, 2), np.float32))


# *** numbers ***


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_every_dtype_keeps_its_bits(dtype: dtypes.DType) -> None:
    bits = np.arange(32, dtype=np.uint8) % 2 if dtype is dtypes.bool_ else np.arange(100, 132, dtype=np.uint8)
    array = bits.view(dtype.numpy)
    again(array)
    again(array.reshape(2, -1))
    again(array[:1].reshape(()))
    scalar = again(array[0])
    assert isinstance(scalar, np.generic)
    for value in (array[0], array, array.reshape(2, -1), array[::2], array[:0], np.array(7), array.tobytes()):
        for at in range(9):
            out = Writer(bytes(at))
            write(value, out)
            assert small_bytes(value, at) in (None, joined(out.buffers())[at:])


BLOCK = np.arange(4 * 6 * 50).reshape(4, 6, 50)
LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "transposed": lambda x: x.T,
    "axes turned": lambda x: x.transpose(1, 2, 0),
    "reversed": lambda x: x[::-1, :, ::-1],
    "reversed vector": lambda x: x.reshape(-1)[::-1],
    "every second": lambda x: x[:, ::2],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "repeated scalar": lambda x: np.broadcast_to(np.float32(1), (3,)),
    "a slice of a transposed one": lambda x: x.T[3:-3],
}


@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize("name", LAYOUTS)
def test_an_array_keeps_its_layout(name: str, times: int) -> None:
    """Small and large; products of other layouts have other last bits."""
    array = LAYOUTS[name](np.repeat(BLOCK, times, axis=0))
    got = again(array)
    assert got.strides == array.strides
    assert not got.flags.writeable


def test_an_array_of_gaps_becomes_contiguous() -> None:
    got = again(np.arange(10_000.0)[::1000])
    assert got.strides == (8,)


def test_hostile_strides_are_data_loss() -> None:
    out = Writer()
    write(BLOCK.T, out)
    data = joined(out.buffers())
    at = 3 + 3 * 8
    for stride in (0, 1, -8, 1 << 62, -(1 << 62)):
        for k in range(3):
            damaged = bytearray(data)
            struct.pack_into("<q", damaged, at + 8 * k, stride)
            try:
                got = read(Reader(bytes(damaged)))
            except DataLossError:
                continue
            assert got.shape == BLOCK.T.shape
            got.sum()  # all of it lies in the frame


def test_nan_keeps_its_payload() -> None:
    again(np.array(0x7FA00001, np.uint32).view(np.float32)[()])


@pytest.mark.parametrize("dtype", sorted(dtypes.QUANTIZED, key=lambda d: d.number), ids=str)
def test_quantized_elements_are_integers(dtype: dtypes.DType) -> None:
    array = again(np.arange(4).astype(dtype.numpy))
    got = again(TensorList(dtype).push(array))
    assert got.element_dtype is dtype


def test_a_scalar_is_no_array_of_rank_0() -> None:
    assert type(again(np.float32(1))) is np.float32
    assert type(again(np.array(1, np.float32))) is np.ndarray


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 1 << 40), (1,) * 64, (2, 1, 3)], ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    again(np.zeros(shape, np.complex64))
    again(np.full(shape, b"x", object) if 1 << 40 not in shape else np.empty(shape, object))


@pytest.mark.parametrize("n", [3, 100])
def test_the_order_of_elements_in_memory_has_no_effect(n: int) -> None:
    rows = np.arange(2 * n * n, dtype=np.float32).reshape(n, 2 * n)
    for array in (np.asfortranarray(rows), rows.T, rows[::-1, ::3], np.flip(rows), rows.astype(">f4").T):
        got = through(array)
        assert got.dtype == np.float32
        assert np.array_equal(got, array)


def test_equal_c_types_have_one_number() -> None:
    for kind in (np.longlong, np.ulonglong, np.intc):
        assert through(kind(5)) == 5
        assert through(np.array([5], kind)).tolist() == [5]


def test_subclasses_of_arrays_are_arrays() -> None:
    got = through(np.ma.masked_array([1, 2], [True, False]))
    assert type(got) is np.ndarray


def test_a_large_array_is_neither_copied_nor_unaligned() -> None:
    small, large = np.arange(3, dtype=np.int8), np.arange(LARGE, dtype=np.float64)
    out = Writer()
    for value in (small, large, large[1:], small, large.astype(dtypes.bfloat16.numpy)):
        write(value, out)
    buffers = out.buffers()
    assert np.shares_memory(np.frombuffer(buffers[1], np.uint8), large)
    memory = np.empty(out.size + ALIGNMENT, np.uint8)
    memory = memory[-memory.ctypes.data % ALIGNMENT :][: out.size]
    memory[:] = np.frombuffer(joined(buffers), np.uint8)
    source = Reader(memory.data.toreadonly())
    got = [read(source) for _ in range(5)]
    assert source.at_end
    assert same(got, [small, large, large[1:], small, large.astype(dtypes.bfloat16.numpy)])
    assert all(x.ctypes.data % ALIGNMENT == 0 for x in got if x.nbytes >= LARGE)
    assert all(x.flags.aligned and not x.flags.writeable and np.shares_memory(x, memory) for x in got)


def test_repeated_elements_are_sent_once() -> None:
    one = np.arange(5, dtype=np.float32).reshape(5, 1)
    for array in (np.broadcast_to(one, (7, 5, 1000)), np.broadcast_to(np.int8(3), (1, 1 << 50, 1))):
        out = Writer()
        write(array, out)
        assert out.size < 200
        got = read(Reader(joined(out.buffers())))
        assert got.shape == array.shape
        assert got.dtype == array.dtype
        assert np.array_equal(got[..., :2, 0], array[..., :2, 0])
    again(np.broadcast_to(np.arange(LARGE), (1, LARGE)))
    again(np.broadcast_to(np.arange(3), (2, 3)))


# *** strings, handles and variants ***

VALUES: dict[str, Any] = {
    "nothing": None,
    "bytes": b"\0\xff",
    "no bytes": b"",
    "long bytes": bytes(LARGE + 1),
    "strings": objects(b"a", b"", b"\xff" * 300).reshape(1, 3),
    "a string": np.array(b"abc", object),
    "no strings": np.empty((0, 2), object),
    "long strings": objects(bytes(LARGE), *[b"x"] * 3000),
    "long strings of aligned length": objects(*[bytes(64)] * (LARGE // 8)),
    "handle": HANDLE,
    "handle without a shape": Handle("", "c", "Queue", "q", True),
    "handles": objects(HANDLE, None, HANDLE),
    "empty list": FLOATS,
    "list": FULL,
    "list of scalars": TensorList(dtypes.int64, ()).push(np.int64(2)).push(np.array(3)),
    "list of strings": TensorList(dtypes.string).push(b"x").push(np.array([b"y"], object)),
    "list with uninitialized elements": TensorList.reserve(dtypes.float32, None, 5).set(2, np.float32([1])),
    "blank list": TensorList.reserve(dtypes.bfloat16, (2,), 100_000),
    "zeros": FULL.zeros_like(),
    "some zeros": FULL.zeros_like().set(1, np.ones((4, 2), np.float32)),
    "zeros of some zeros": FULL.zeros_like().set(1, np.ones((4, 2), np.float32)).zeros_like(),
    "lists in a list": TensorList(dtypes.variant, ()).push(FULL).push(FULL.zeros_like()).push(nested(3)),
    "zeros of lists in a list": TensorList(dtypes.variant).push(FULL).push(nested(3)).zeros_like(),
    "unset lists in a list": TensorList(dtypes.variant).push(FULL).unset([0]),
    "lists in an array": objects(FULL, nested(2), None).reshape(3, 1),
    "map": TensorMap().insert(np.int32(1), FULL).insert(b"key", np.ones(3)).insert(np.array([b"a"], object), None),
    "empty map": TensorMap(),
    "optional": Optional((np.float32(1), b"x", FULL), (dtypes.float32, dtypes.string, dtypes.variant)),
    "empty optional": Optional(),
    "optional of nothing": Optional((), ()),
    "deep": nested(MOST_DEPTH),
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_values_that_are_no_numbers(value: Any) -> None:
    again(value)


def test_subclasses_of_bytes_are_bytes() -> None:
    assert through(np.bytes_(b"ab")) == b"ab"


def test_zeros_have_the_shapes_of_their_pattern() -> None:
    got = again(VALUES["some zeros"])
    assert got.get(0).shape == (3, 2)
    assert got.get(1).shape == (4, 2)
    assert got.add(got).get(1)[0, 0] == 2
    inner = again(VALUES["zeros of lists in a list"]).get(0)
    assert [inner.get(i).shape for i in range(2)] == [(3, 2), (0, 2)]


def test_the_contents_of_a_pattern_are_not_sent() -> None:
    large = TensorList(dtypes.float32).push(np.ones(1 << 20, np.float32))
    outer = TensorList(dtypes.variant).push(large)
    for zeros in (large.zeros_like(), outer.zeros_like(), large.zeros_like().push(np.float32(1)).zeros_like()):
        out = Writer()
        write(zeros, out)
        assert out.size < 500
        assert same(read(Reader(joined(out.buffers()))).pattern, zeros.pattern)


def test_swapped_elements_are_read_back() -> None:
    memory = Memory("/device:CPU:0", None)

    class Use:
        step_id, listener = 0, None

        def __init__(self) -> None:
            self.memory = memory

        def look(self) -> None: ...

    kept = memory.save(Use(), np.arange(3), "x", may_swap=True)
    got = again(TensorList(dtypes.int64).push(kept))
    assert got.get(0).tolist() == [0, 1, 2]


def test_a_counted_list_stays_counted() -> None:
    counted = TensorList(dtypes.float64).push_counted(np.ones(4), 100)
    assert counted is not None
    assert again(counted).nbytes == 32


def test_the_accesses_of_an_array_are_not_sent() -> None:
    assert through(FULL.tracked(Accesses("a", True))).accesses is None


# *** refusals ***


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (Handle("", "localhost", "Variable", "v_3", owned=object()), "v_3.*in the graph and with a name"),
        (object(), "builtins.object.*one task"),
        ([1], "builtins.list"),
        (1, "builtins.int"),
        ("text", "builtins.str"),
        (objects("text"), "builtins.str"),
        (objects(b"x", np.ones(2)), "numpy.ndarray"),
        (TensorList(dtypes.variant).push(Memory("d", None)), "Memory"),
        (np.array(["text"]), "dtype <U4"),
        (np.array(["2020"], "M8[D]"), "datetime64"),
        (np.datetime64("2020"), "datetime64"),
        (np.str_("text"), "<U4"),
        (nested(MOST_DEPTH + 2), "levels of nested"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_an_object_of_the_process_is_refused_by_name(value: Any, named: str) -> None:
    with pytest.raises(InvalidArgumentError, match=named):
        write(value, Writer())


# *** random values ***

ARRAYS = st.sampled_from(NUMBERS).flatmap(
    lambda d: hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3).map(
        lambda shape: np.arange(np.prod(shape, dtype=int)).astype(d.numpy).reshape(shape)
    )
)
LEAVES = ARRAYS | ARRAYS.filter(lambda a: a.size > 0).map(lambda a: a.ravel()[0]) | st.binary(max_size=20) | st.none()


def _list_of(items: list[Any]) -> TensorList:
    out = TensorList(dtypes.variant)
    for item in items:
        is_number = isinstance(item, (np.ndarray, np.generic)) and item.dtype.kind != "O"
        out = out.resized(out.length() + 1) if is_number else out.push(item)
    return out


VARIANTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4).map(_list_of)
        | st.lists(inner, max_size=3).map(lambda xs: objects(*[_list_of([x]) for x in xs]))
        | st.lists(st.tuples(ARRAYS, inner), max_size=3).map(TensorMap.of)
    ),
    max_leaves=8,
)


@settings(max_examples=20, derandomize=True)
@given(st.lists(VARIANTS, max_size=3))
def test_random_values(values: list[Any]) -> None:
    out = Writer(b"head")
    for value in values:
        write(value, out)
    source = Reader(joined(out.buffers()), 4)
    assert same([read(source) for _ in values], values)
    assert source.at_end


# *** hostile bytes ***


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_a_truncated_value_is_refused(value: Any) -> None:
    out = Writer()
    write(value, out)
    data = joined(out.buffers())
    for n in {*range(min(len(data), 300)), len(data) - 1}:
        with pytest.raises(DataLossError):
            read(Reader(data[:n]))


def dims(*sizes: int) -> bytes:
    return struct.pack(f"<B{len(sizes)}q", len(sizes), *sizes)


SCALAR = b"\x01\x03\0\0\0\0"
ONE = b"\x02\x04" + dims(1) + bytes(8)
LIST = b"\x08" + struct.pack("<BBqQQ", 1, 1, -1, 0, 0) + b"\xff"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "out of range"),
        (b"\xff", "out of range"),
        (b"\x0b", "uninitialized element outside"),
        (b"\x01\x07" + bytes(8), "DataType 7"),
        (b"\x01\x67" + bytes(8), "DataType 103"),
        (b"\x02\x00\x00", "DataType 0"),
        (b"\x02\x01" + dims(1 << 60), "shape"),
        (b"\x02\x01" + dims(1 << 57), "are left"),
        (b"\x02\x01" + dims(0, 1 << 62, 1 << 62), "shape"),
        (b"\x02\x01" + dims(-1), "shape"),
        (b"\x02\x01" + dims(*[1] * 65), "rank 65"),
        (b"\x02\x0a" + dims(1) + b"\2" * 8, "boolean"),
        (b"\x03" + dims(3) + SCALAR, "repeats a int32"),
        (b"\x03" + dims(1, 3) + ONE, "repeats a ndarray of uint8"),
        (b"\x03" + dims(1 << 60) + ONE, "shape"),
        (b"\x04" + struct.pack("<Q", 1 << 60), "are left"),
        (b"\x05" + dims(1 << 50) + bytes(99), "are left"),
        (b"\x05" + dims(2) + bytes(6) + struct.pack("<QQ", 1 << 63, 1 << 63), "are left"),
        (b"\x06" + dims(1 << 50) + bytes(99), "are left"),
        (b"\x06" + dims(1) + SCALAR, "object array with a int32"),
        (b"\x07" + struct.pack("<Q", 1) + bytes(8), "no handle"),
        (b"\x08" + struct.pack("<BBqQQ", 1, 1, -1, 0, 1 << 60) + b"\xff", f"at most {thresholds.LIST_ELEMENTS}"),
        (b"\x08" + struct.pack("<BBqQQ", 1, 0, -1, 0, 1 << 60) + b"\xff", "are left"),
        (
            b"\x08" + struct.pack("<BBqQQ", 1, 0, -1, 0, 1) + b"\xff" + SCALAR,
            "int32 in a list or an optional of float32",
        ),
        (b"\x08" + struct.pack("<BBqQQ", 1, 3, -1, 0, 0) + b"\xff" + SCALAR, "whose pattern is a int32"),
        (b"\x08" + struct.pack("<BBqQQ", 1, 1, -1, 0, 0) + dims(-2), "dimension -2"),
        (b"\x09" + struct.pack("<Q", 1 << 60), "are left"),
        (b"\x09" + struct.pack("<Q", 1) + b"\x03" + dims(1 << 50) + ONE + b"\0", "as a key"),
        (b"\x0a" + struct.pack("<I", 1 << 31), "are left"),
        (b"\x0a" + struct.pack("<I", 2) + b"\1" + SCALAR, "int32 in a list or an optional of float32"),
        ((b"\x06" + dims(1)) * (MOST_DEPTH + 1) + b"\0", "levels of nested"),
    ],
    ids=lambda v: v if isinstance(v, str) else v[:1].hex(),
)
def test_a_value_that_cannot_be_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(DataLossError, match=why):
        read(Reader(data))


def test_a_handle_with_a_resource_is_refused() -> None:
    out = Writer()
    write(HANDLE, out)
    data = joined(out.buffers())
    assert data.count(b"owned\xc0") == 1
    with pytest.raises(DataLossError, match="with a resource"):
        read(Reader(data.replace(b"owned\xc0", b"owned\x01")))
