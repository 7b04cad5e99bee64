"""Tensor lists in sessions: every op, static shapes, and gradients to third order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InvalidArgumentError, ShapeError
from headrace.ir.builder import Builder
from headrace.ir.graph import Tensor
from tests.ops.running import Program, check_gradient, gradients

f32, f64, i32 = dtypes.float32, dtypes.float64, dtypes.int32


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def shape(b: Builder, *dims: int) -> Tensor:
    return b.const(np.array(dims, np.int32))


def empty(b: Builder, *dims: int, dtype: dtypes.DType = f32) -> Tensor:
    out: Tensor = b.EmptyTensorList(shape(b, *dims), -1, element_dtype=dtype)
    return out


def stacked(p: Program, x: Tensor, dtype: dtypes.DType = f32) -> Any:
    return p.run(p.b.TensorListStack(x, -1, element_dtype=dtype)).tolist()


# *** values ***


def test_push_pop_and_length(p: Program) -> None:
    b = p.b
    two = b.TensorListPushBack(b.TensorListPushBack(empty(b), 1.0), 2.0)
    rest, last = b.TensorListPopBack(two, shape(b), element_dtype=f32)
    assert stacked(p, two) == [1, 2]
    assert stacked(p, rest) == [1]
    assert p.run([last, b.TensorListLength(two), b.TensorListLength(rest)]) == [2, 2, 1]


def test_set_get_and_resize(p: Program) -> None:
    b = p.b
    x = b.TensorListSetItem(b.TensorListReserve(shape(b, 2), 3, element_dtype=f32), 1, [1.0, 2.0])
    assert stacked(p, x) == [[0, 0], [1, 2], [0, 0]]
    assert p.run(b.TensorListGetItem(x, 1, -1, element_dtype=f32)).tolist() == [1, 2]
    assert p.run(b.TensorListGetItem(x, 0, -1, element_dtype=f32)).tolist() == [0, 0]
    assert stacked(p, b.TensorListResize(x, 2)) == [[0, 0], [1, 2]]
    longer = b.TensorListSetItem(x, 4, [3.0, 4.0], resize_if_index_out_of_bounds=True)
    assert p.run(b.TensorListLength(longer)) == 5


def test_tensors_to_lists_and_back(p: Program) -> None:
    b = p.b
    x = b.const([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    rows = b.TensorListFromTensor(x, shape(b, 2))
    assert stacked(p, rows) == [[1, 2], [3, 4], [5, 6]]
    assert p.run(b.TensorListGather(rows, [2, 0, 2], -1, element_dtype=f32)).tolist() == [[5, 6], [1, 2], [5, 6]]
    put = b.TensorListScatterV2(x, [3, 1, 0], shape(b, 2), 5)
    assert stacked(p, put) == [[5, 6], [3, 4], [0, 0], [1, 2], [0, 0]]
    assert stacked(p, b.TensorListScatter(x, [1, 2, 0], shape(b, 2))) == [[5, 6], [1, 2], [3, 4]]
    over = b.TensorListScatterIntoExistingList(rows, b.const([[9.0, 9.0]]), [1])
    assert stacked(p, over) == [[1, 2], [9, 9], [5, 6]]


def test_split_and_concat(p: Program) -> None:
    b = p.b
    pieces = b.TensorListSplit([1.0, 2.0, 3.0], shape(b, -1), b.const([2, 0, 1], dtypes.int64))
    for value, lengths in (
        b.TensorListConcat(pieces, element_dtype=f32),
        b.TensorListConcatV2(pieces, -1, b.const([], dtypes.int64), element_dtype=f32),
    ):
        got = p.run([value, lengths])
        assert [v.tolist() for v in got] == [[1, 2, 3], [2, 0, 1]]
        assert got[1].dtype == np.int64
    more = b.TensorListResize(pieces, 4)
    value, lengths = b.TensorListConcatV2(more, -1, b.const([0, 0, 0, 2], dtypes.int64), element_dtype=f32)
    assert p.run(value).tolist() == [1, 2, 3, 0, 0]


def test_lists_of_lists(p: Program) -> None:
    b = p.b
    inner = b.TensorListPushBack(empty(b), 1.0)
    outer = b.TensorListPushBack(b.EmptyTensorList(shape(b), -1, element_dtype=dtypes.variant), inner)
    _, got = b.TensorListPopBack(outer, shape(b), element_dtype=dtypes.variant)
    assert stacked(p, got) == [1]
    both = b.Pack([inner, b.TensorListPushBack(inner, 2.0)])
    pushed = b.Unpack(b.TensorListPushBackBatch(both, [8.0, 9.0]), num=2)
    assert [stacked(p, x) for x in pushed] == [[1, 8], [1, 2, 9]]
    joined = b.Unpack(b.TensorListConcatLists(both, both, element_dtype=f32), num=2)
    assert stacked(p, joined[1]) == [1, 2, 1, 2]
    assert stacked(p, b.TensorListConcatLists(inner, inner, element_dtype=f32)) == [1, 1]


def test_element_shapes_as_tensors(p: Program) -> None:
    b = p.b
    for given, want in ((shape(b, -1, 3), [-1, 3]), (shape(b), []), (b.const(-1), -1)):
        x = b.EmptyTensorList(given, -1, element_dtype=f32)
        got = p.run(b.TensorListElementShape(x, shape_type=dtypes.int64))
        assert got.tolist() == want
        assert got.dtype == np.int64
    for bad, match in (
        (3, "only valid scalar shape"),
        ([2, -2], "Dimension -2 must be >= -1"),
        ([[1]], "at most rank 1"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(b.TensorListLength(b.EmptyTensorList(p.feed(np.int32(bad)), -1, element_dtype=f32)))


def test_what_is_no_list_of_that_kind(p: Program) -> None:
    b = p.b
    x = b.TensorListPushBack(empty(b), 1.0)
    with p.fails(InvalidArgumentError, "Invalid data types; op elements int32 but list elements float32"):
        hidden = b.PlaceholderWithDefault(x, shape=None)
        p.run(b.TensorListStack(hidden, -1, element_dtype=i32))
    with p.fails(InvalidArgumentError, r"Input list must be a scalar saw: \[1\]"):
        p.run(b.TensorListLength(b.PlaceholderWithDefault(b.Pack([x]), shape=None)))
    with p.fails(InvalidArgumentError, "Input handle is not a list. Saw: 'None'"):
        nothing = b.TensorListReserve(shape(b), 1, element_dtype=dtypes.variant)
        p.run(b.TensorListLength(b.TensorListGetItem(nothing, 0, -1, element_dtype=dtypes.variant)))
    with p.fails(InvalidArgumentError, "max_num_elements: 1"):
        full = b.TensorListPushBack(b.EmptyTensorList(-1, 1, element_dtype=f32), 1.0)
        p.run(b.TensorListLength(b.TensorListPushBack(full, 1.0)))
    with p.fails(InvalidArgumentError, r"element has shape \[\], but element_shape is \[2\]"):
        p.run(b.TensorListGetItem(x, 0, p.feed(np.int32([2])), element_dtype=f32))


# *** shapes ***


def test_static_shapes(p: Program) -> None:
    b = p.b
    x = b.TensorListFromTensor(b.Placeholder(dtype=f32, shape=(None, 4)), shape(b, 4))
    assert x.handle == (f32, (4,))
    assert b.TensorListStack(x, -1, element_dtype=f32).shape == (None, 4)
    assert b.TensorListStack(x, -1, element_dtype=f32, num_elements=3).shape == (3, 4)
    assert b.TensorListGather(x, [1, 2], -1, element_dtype=f32).shape == (2, 4)
    assert b.TensorListGetItem(x, 0, -1, element_dtype=f32).shape == (4,)
    rest, last = b.TensorListPopBack(x, -1, element_dtype=f32)
    assert (rest.handle, last.shape) == ((f32, (4,)), (4,))
    assert b.TensorListElementShape(x, shape_type=i32).shape == (1,)
    assert b.Fill(b.TensorListElementShape(x, shape_type=i32), 1.0).shape == (4,)
    value, lengths = b.TensorListConcat(b.EmptyTensorList(shape(b, -1, 3), -1, element_dtype=f32), element_dtype=f32)
    assert (value.shape, lengths.shape) == ((None, 3), (None,))
    unknown = b.EmptyTensorList(-1, -1, element_dtype=f32)
    assert b.TensorListPopBack(unknown, shape(b, 2, 5), element_dtype=f32)[1].shape == (2, 5)


def test_contradictions_are_found_while_building_where_tensorflow_finds_them(p: Program) -> None:
    b = p.b
    x = b.TensorListReserve(shape(b, -1, 2), 2, element_dtype=f32)
    for wrong in (
        lambda: b.TensorListGetItem(x, 0, shape(b, 1, 3), element_dtype=f32),
        lambda: b.TensorListStack(x, shape(b, 1, 3), element_dtype=f32),
        lambda: b.TensorListGather(x, [0], shape(b, 1, 3), element_dtype=f32),
        lambda: b.TensorListConcatV2(x, shape(b, 1, 3), b.const([], dtypes.int64), element_dtype=f32),
        lambda: b.TensorListSetItem(x, 0, [1.0, 2.0]),
        lambda: b.TensorListPushBack(x, [[1, 2]]),
        lambda: b.TensorListFromTensor([1.0, 2.0], shape(b, 2)),
        lambda: b.TensorListStack(x, 3, element_dtype=f32),
    ):
        with pytest.raises(ShapeError):
            wrong()
    later: list[tuple[Callable[[], Any], str]] = [
        (lambda: b.TensorListPushBack(x, [1.0, 2.0]), "incompatible shape"),
        (lambda: b.TensorListPopBack(x, shape(b, 1, 3), element_dtype=f32)[0], "Incompatible shapes during merge"),
        (lambda: b.TensorListScatterIntoExistingList(x, [1.0, 2.0], [0, 1]), "incompatible shape"),
    ]
    for make, match in later:
        with p.fails(InvalidArgumentError, match):
            p.run(b.TensorListLength(make()))


# *** gradients ***


def through_push_and_pop(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    items = b.TensorListPushBack(b.TensorListPushBack(empty(b, -1, dtype=f64), b.Square(x)), b.Mul(x, y))
    rest, last = b.TensorListPopBack(items, b.Shape(x), element_dtype=f64)
    _, first = b.TensorListPopBack(rest, b.Shape(x), element_dtype=f64)
    out: Tensor = b.Mul(first, last)
    return out


def through_one_pop(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    items = b.TensorListPushBack(b.TensorListPushBack(empty(b, -1, dtype=f64), b.Square(x)), b.Mul(x, y))
    out: Tensor = b.Square(b.TensorListPopBack(items, b.Shape(x), element_dtype=f64)[1])
    return out


def through_stack(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    items = b.TensorListReserve(shape(b, -1), 3, element_dtype=f64)
    items = b.TensorListSetItem(b.TensorListSetItem(items, 2, b.Square(x)), 0, b.Mul(x, y))
    out: Tensor = b.Square(b.TensorListStack(items, b.Shape(x), element_dtype=f64))
    return out


def through_items(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    items = b.TensorListFromTensor(b.Pack([b.Square(x), b.Mul(x, y)]), shape(b, -1))
    items = b.TensorListSetItem(items, 0, b.Mul(b.TensorListGetItem(items, 1, -1, element_dtype=f64), y))
    out: Tensor = b.Square(b.TensorListGetItem(items, 0, -1, element_dtype=f64))
    return out


def through_gather(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    items = b.TensorListScatterV2(b.Pack([b.Square(x), b.Mul(x, y)]), [2, 0], shape(b, -1), 4)
    items = b.TensorListScatterIntoExistingList(items, b.Pack([b.Exp(x)]), [3])
    out: Tensor = b.Square(b.TensorListGather(items, [0, 3, 2, 0], b.Shape(x), element_dtype=f64))
    return out


def through_concat(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    lengths = b.const([1, 2], dtypes.int64)
    pieces = b.TensorListSplit(b.Mul(x, b.Square(y)), shape(b, -1), lengths)
    both = b.TensorListResize(b.TensorListPushBack(pieces, b.Square(x)), 2)
    out: Tensor = b.Square(b.TensorListConcatV2(both, -1, b.const([], dtypes.int64), element_dtype=f64)[0])
    return out


def through_two_consumers(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    items = b.TensorListPushBack(b.TensorListPushBack(empty(b, -1, dtype=f64), b.Square(x)), b.Mul(x, y))
    one = b.TensorListStack(items, -1, element_dtype=f64)
    rest, last = b.TensorListPopBack(items, -1, element_dtype=f64)
    two = b.TensorListStack(b.TensorListPushBack(rest, b.Exp(last)), -1, element_dtype=f64)
    out: Tensor = b.Mul(one, two)
    return out


def through_lists_of_lists(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    inner = b.TensorListPushBack(b.TensorListPushBack(empty(b, -1, dtype=f64), b.Square(x)), b.Mul(x, y))
    outer = b.EmptyTensorList(shape(b), -1, element_dtype=dtypes.variant)
    outer = b.TensorListPushBack(b.TensorListPushBack(outer, inner), b.TensorListPushBack(inner, y))
    rest, last = b.TensorListPopBack(outer, shape(b), element_dtype=dtypes.variant)
    _, first = b.TensorListPopBack(rest, shape(b), element_dtype=dtypes.variant)
    out: Tensor = b.Mul(
        b.TensorListStack(first, -1, element_dtype=f64),
        b.TensorListStack(b.TensorListResize(last, 2), -1, element_dtype=f64),
    )
    return out


def through_ragged_pieces(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Pieces of several lengths, one of them empty.

    The longest is replaced, and one is not there.
    """
    pieces = b.TensorListSplit(b.Mul(x, b.Square(y)), shape(b, -1), b.const([2, 0, 1], dtypes.int64))
    first = b.TensorListGetItem(pieces, 0, -1, element_dtype=f64)
    more = b.TensorListResize(b.TensorListSetItem(pieces, 0, b.Mul(x, y)), 4)
    joined, lengths = b.TensorListConcatV2(more, -1, b.const([9, 9, 9, 2], dtypes.int64), element_dtype=f64)
    again = b.TensorListSplit(b.Square(joined), shape(b, -1), lengths)
    last = b.TensorListGetItem(again, 2, -1, element_dtype=f64)
    out: Tensor = b.ConcatV2([b.TensorListConcat(again, element_dtype=f64)[0], b.Mul(last, b.Exp(first))], 0)
    return out


def through_nothing(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    """Lists without elements, put together with others."""
    none = b.TensorListFromTensor(b.Reshape(b.StridedSlice(x, [0], [0], [1]), [0, 3]), shape(b, -1))
    no_rows = b.TensorListStack(none, shape(b, 3), element_dtype=f64)
    no_parts, _ = b.TensorListConcatV2(none, shape(b, -1), b.const([], dtypes.int64), element_dtype=f64)
    some = b.TensorListPushBack(none, b.Square(y))
    rows = b.ConcatV2([no_rows, b.TensorListStack(some, shape(b, 3), element_dtype=f64)], 0)
    out: Tensor = b.Mul(b.ConcatV2([no_parts, b.Mul(x, y)], 0), b.Square(rows))
    return out


def through_indices_that_come_twice(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    twice = b.PlaceholderWithDefault(b.const([2, 0, 2]), shape=None)
    rows = b.Pack([b.Square(x), b.Mul(x, y), b.Exp(y)])
    items = b.TensorListScatterV2(rows, twice, shape(b, -1), 4)
    items = b.TensorListScatterIntoExistingList(items, b.Square(rows), b.AddV2(twice, 1))
    out: Tensor = b.Square(b.TensorListGather(items, twice, b.Shape(x), element_dtype=f64))
    return out


def through_gather_of_ragged(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    pieces = b.TensorListSplit(b.Mul(x, b.Square(y)), shape(b, -1), b.const([1, 1, 1], dtypes.int64))
    pieces = b.TensorListSetItem(pieces, 1, b.Mul(x, y))
    rows = b.Square(b.TensorListGather(pieces, [2, 0, 2], shape(b, 1), element_dtype=f64))
    out: Tensor = b.Mul(b.TensorListGetItem(pieces, 1, -1, element_dtype=f64), rows)
    return out


def through_joined_lists(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    one = b.TensorListSplit(b.Square(x), shape(b, -1), b.const([1, 2], dtypes.int64))
    two = b.TensorListPushBack(b.TensorListResize(b.TensorListPushBack(empty(b, -1, dtype=f64), y), 2), b.Mul(x, y))
    both = b.TensorListConcatLists(one, two, element_dtype=f64)
    both = b.TensorListSetItem(both, 1, b.Exp(y))
    out, _ = b.TensorListConcatV2(both, -1, b.const([0, 0, 0, 2, 0], dtypes.int64), element_dtype=f64)
    squared: Tensor = b.Square(out)
    return squared


def through_vectors_of_lists(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    one = b.TensorListPushBack(empty(b, -1, dtype=f64), b.Square(x))
    lists = b.Pack([one, b.TensorListPushBack(one, b.Mul(x, y))])
    lists = b.TensorListPushBackBatch(lists, b.Pack([b.Exp(y), b.Mul(y, x)]))
    lists = b.TensorListConcatLists(lists, lists, element_dtype=f64)
    first, second = b.Unpack(lists, num=2)
    _, last = b.TensorListPopBack(second, -1, element_dtype=f64)
    out: Tensor = b.Mul(b.TensorListStack(first, -1, element_dtype=f64), last)
    return out


def through_a_list_in_a_list_that_is_replaced(b: Builder, x: Tensor, y: Tensor) -> Tensor:
    variant = dtypes.variant
    inner = b.TensorListPushBack(empty(b, -1, dtype=f64), b.Square(x))
    longer = b.TensorListPushBack(inner, b.Mul(x, y))
    outer = b.TensorListReserve(shape(b), 2, element_dtype=variant)
    before = b.TensorListSetItem(b.TensorListSetItem(outer, 0, inner), 1, longer)
    after = b.TensorListSetItem(before, 0, longer)
    short, long = (b.TensorListGetItem(o, 0, shape(b), element_dtype=variant) for o in (before, after))
    a, c = (b.TensorListStack(o, -1, element_dtype=f64) for o in (short, long))
    out: Tensor = b.Mul(a, b.Exp(c))
    return out


PROGRAMS = [
    through_ragged_pieces,
    through_nothing,
    through_indices_that_come_twice,
    through_gather_of_ragged,
    through_joined_lists,
    through_vectors_of_lists,
    through_a_list_in_a_list_that_is_replaced,
    through_push_and_pop,
    through_one_pop,
    through_stack,
    through_items,
    through_gather,
    through_concat,
    through_two_consumers,
    through_lists_of_lists,
]


@pytest.mark.matrix
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("known", [(3,), None], ids=["known", "unknown"])
def test_tensor_list_gradients_match_differences(
    p: Program, program: Callable[[Builder, Tensor, Tensor], Tensor], known: Any
) -> None:
    x, y = (p.b.Placeholder(dtype=f64, shape=known) for _ in range(2))
    values = {x: np.array([0.5, -1.0, 2.0]), y: np.array([1.5, 0.7, -0.3])}
    check_gradient(p, program(p.b, x, y), values, orders=2 if known is None else 3)


def test_the_gradient_of_an_element_that_is_replaced_is_zero(p: Program) -> None:
    b = p.b
    x = b.Placeholder(dtype=f64, shape=(2,))
    items = b.TensorListFromTensor(b.Pack([x, x]), shape(b, 2))
    y = b.TensorListStack(b.TensorListSetItem(items, 0, b.const([0.0, 0.0], f64)), -1, element_dtype=f64)
    (dx,) = gradients(b, {y: b.const([[1.0, 2.0], [3.0, 4.0]], f64)}, [x])
    assert p.run(dx, {x: np.zeros(2)}).tolist() == [3, 4]
