"""Array ops: slices with all masks, shapes that flow, limits, errors, handles.

The cases of the records cannot express these.

The values and the classes of errors are those that TensorFlow 2.21 gives, unless a test says otherwise.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import dtypes, shapes
from headrace.errors import (
    InvalidArgumentError,
    OutOfRangeError,
    ResourceExhaustedError,
    ShapeError,
    UnimplementedError,
)
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Tensor
from headrace.ir.infer import constant_value, shape_value
from headrace.ir.opdef import op_registry
from headrace.opkit import arrays
from headrace.resources.tensor_list import TensorList
from tests.ops.cases import evaluate, gradients, placeholder
from tests.ops.running import Program

F32, I32, I64 = np.float32, np.int32, np.int64
MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def ints(*values: Any) -> np.ndarray:
    return np.array(values, I32)


def texts(*values: str) -> np.ndarray:
    return np.array([v.encode() for v in values], object)


def numbers(*shape: int) -> np.ndarray:
    """Different numbers in an array of a shape."""
    return np.arange(int(np.prod(shape)), dtype=F32).reshape(shape)


def run(type: str, /, *inputs: Any, **attrs: Any) -> Any:
    """An op's kernel on arrays.

    A list is a list argument, and any other value that is no array is a scalar variant.
    """
    record = op_registry.get(type)
    groups = [list(x) if isinstance(x, list) else [x] for x in inputs]
    complete = record.infer_attrs([[dtype_of(x) for x in g] for g in groups], attrs)
    assert record.kernel is not None
    with np.errstate(all="ignore"):
        return record.kernel(np, complete)(*(x for g in groups for x in g))


def dtype_of(x: Any) -> dtypes.DType:
    if not hasattr(x, "dtype"):
        return dtypes.variant
    is_text = x.dtype == object and x.size and isinstance(x.flat[0], bytes)
    return dtypes.variant if x.dtype == object and not is_text else dtypes.from_numpy(x.dtype)


@pytest.fixture
def b() -> Builder:
    return Builder(Graph())


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def open_(b: Builder, *dims: int | None, dtype: dtypes.DType = dtypes.float32) -> Tensor:
    """A placeholder of a static shape."""
    out: Tensor = b.Placeholder(dtype=dtype, shape=dims)
    return out


# *** StridedSlice against a model in plain Python ***


@st.composite
def slices(draw: Any) -> tuple[tuple[int, ...], dict[str, list[int]], dict[str, int]]:
    """A shape, begin, end and strides, and masks; some of them make no sense."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    n = draw(st.integers(0, len(shape) + 2))
    small = st.integers(-6, 6)
    entries = {
        "begin": draw(st.lists(small, min_size=n, max_size=n)),
        "end": draw(st.lists(small, min_size=n, max_size=n)),
        "strides": draw(st.lists(st.sampled_from([1, 1, 1, 2, 3, -1, -2, 0]), min_size=n, max_size=n)),
    }
    masks = {m: draw(st.integers(0, 2**n - 1)) for m in MASKS}
    if draw(st.booleans()):
        masks["ellipsis_mask"] = draw(st.sampled_from([0, *(1 << i for i in range(n))]))
    return shape, entries, masks


def as_python(rank: int, entries: dict[str, list[int]], masks: dict[str, int]) -> list[Any]:
    """The items between the brackets that the masks stand for, one for each dimension.

    Raises `IndexError` if they have no sense.
    """
    items: list[Any] = []
    for i, (begin, end, step) in enumerate(zip(*entries.values(), strict=True)):
        bit = {m: bool(masks[m] >> i & 1) for m in MASKS}
        if bit["ellipsis_mask"]:
            items.append(...)
        elif bit["new_axis_mask"]:
            items.append(None)
        elif step == 0 or (bit["shrink_axis_mask"] and step < 0):
            raise IndexError(step)
        elif bit["shrink_axis_mask"]:
            items.append(begin)
        else:
            items.append(slice(None if bit["begin_mask"] else begin, None if bit["end_mask"] else end, step))
    if items.count(...) > 1:
        raise IndexError("two ellipses")
    if ... not in items:
        items.append(...)
    at = items.index(...)
    left = rank - sum(i is not None for i in items) + 1
    if left < 0:
        raise IndexError("too many dimensions")
    return [*items[:at], *[slice(None)] * left, *items[at + 1 :]]


def positions(shape: tuple[int, ...], items: list[Any]) -> tuple[list[int], list[int]]:
    """The shape of the slice, and the flat position of each of its elements."""
    out: list[int] = []
    flat = [0]
    dims = iter(shape)
    for item in items:
        if item is None:
            out.append(1)
            continue
        n = next(dims)
        places = [range(n)[item]] if isinstance(item, int) else list(range(n))[item]
        flat = [f * n + p for f in flat for p in places]
        if not isinstance(item, int):
            out.append(len(places))
    return out, flat


@pytest.mark.matrix
@given(slices(), st.data())
def test_strided_slice(drawn: Any, data: Any) -> None:
    shape, entries, masks = drawn
    x = numbers(*shape)
    args = [np.array(v, I64) for v in entries.values()]
    b = Builder(Graph())
    known = tuple(d if data.draw(st.booleans()) else None for d in shape)
    inputs = [b.Placeholder(dtype=dtypes.float32, shape=known), *map(b.const, args)]
    try:
        want, flat = positions(shape, as_python(len(shape), entries, masks))
    except IndexError:
        with pytest.raises((InvalidArgumentError, ValueError)):
            run("StridedSlice", x, *args, **masks)
        return
    got = run("StridedSlice", x, *args, **masks)
    assert np.shape(got) == tuple(want)
    assert np.ravel(got).tolist() == flat
    y = b.StridedSlice(*inputs, **masks)
    assert shapes.fits(want, y.shape)
    full = b.StridedSlice(b.const(x), *inputs[1:], **masks)
    assert full.shape == tuple(want)
    if data.draw(st.booleans()):  # the shape rule knows of begin and end only what it sees through a Pack
        parts = [
            b.Pack([b.const(v) if data.draw(st.booleans()) else b.PlaceholderWithDefault(v, shape=()) for v in a])
            for a in args[:2]
            if len(a)
        ]
        if parts:
            assert shapes.fits(want, b.StridedSlice(inputs[0], *parts, inputs[3], **masks).shape)
    # the gradient and an update write to the positions of the slice
    dy = np.reshape(np.arange(1, len(flat) + 1, dtype=F32), want)
    put = run("StridedSliceGrad", np.array(shape, I64), *args, dy, **masks).ravel()
    assert put[flat].tolist() == dy.ravel().tolist()
    assert np.count_nonzero(put) == len(flat)
    updated = run("TensorStridedSliceUpdate", -x - 1, *args, dy, **masks).ravel()
    assert updated[flat].tolist() == dy.ravel().tolist()
    assert (updated < 0).sum() == x.size - len(flat)


def test_slices_of_strings_stay_arrays() -> None:
    got = run("StridedSlice", texts("a", "b"), ints(1), ints(2), ints(1), shrink_axis_mask=1)
    assert isinstance(got, np.ndarray)
    assert got.shape == ()
    assert got[()] == b"b"
    for out in (*run("Unpack", texts("a", "b"), num=2), run("GatherV2", texts("a"), I32(0), I32(0))):
        assert isinstance(out, np.ndarray)


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((ints(5), ints(6), ints(1), {"shrink_axis_mask": 1}), "slice index 5 of dimension 0 out of bounds"),
        ((ints(0, 0, 0), ints(1, 1, 1), ints(1, 1, 1), {}), "Index out of range using input dim 2; input has only 2"),
        ((ints(0), ints(1), ints(0), {}), r"strides\[0\] must be non-zero"),
        ((ints(0), ints(1), ints(-1), {"shrink_axis_mask": 1}), "only stride 1 allowed on non-range indexing"),
        ((ints(0, 0), ints(1, 1), ints(1, 1), {"ellipsis_mask": 3}), "Multiple ellipses in slice spec not allowed"),
        ((ints(0), ints(1, 1), ints(1), {}), "Expected begin, end, and strides to be 1D equal size tensors"),
        ((np.zeros(40, I32),) * 3 + ({},), "fewer than 32 entries"),
    ],
)
def test_strided_slice_errors(args: Any, text: str, b: Builder) -> None:
    *entries, masks = args
    with pytest.raises((InvalidArgumentError, ValueError), match=text):
        run("StridedSlice", numbers(2, 3), *entries, **masks)
    with pytest.raises(ShapeError):
        b.StridedSlice(b.const(numbers(2, 3)), *map(b.const, entries), **masks)


def test_slice_assignment_to_variables(p: Program) -> None:
    v = p.b.VarHandleOp(dtype=dtypes.int32, shape=(2, 3), shared_name="v")
    p.run(p.b.AssignVariableOp(v, p.b.const(np.zeros((2, 3), I32))))
    before = p.run(p.b.ReadVariableOp(v, dtype=dtypes.int32))
    p.run(p.b.ResourceStridedSliceAssign(v, [0, 1], [2, 3], [1, 1], p.b.const(ints(7, 8))))  # broadcast
    assert p.run(p.b.ReadVariableOp(v, dtype=dtypes.int32)).tolist() == [[0, 7, 8], [0, 7, 8]]
    assert not before.any()  # an array that was read stays unchanged
    r = p.b.VariableV2(shape=(3,), dtype=dtypes.int32)
    p.run(p.b.Assign(r, p.b.const(ints(1, 2, 3))))
    assert p.run(p.b.StridedSliceAssign(r, [0], [0], [-1], p.b.const(ints(9)), begin_mask=1)).tolist() == [1, 9, 9]
    with p.fails(InvalidArgumentError, "cannot be assigned"):
        p.run(p.b.StridedSliceAssign(r, [0], [2], [1], p.feed(ints(1, 2, 3))))


# *** shapes that flow through shape arithmetic ***


def test_reshape_by_a_shape_that_is_partly_known(b: Builder) -> None:
    x = open_(b, None, 6, 2)
    rows = b.StridedSlice(b.Shape(x), [0], [1], [1], shrink_axis_mask=1)
    assert b.Reshape(x, b.Pack([rows, 3, 4])).shape == (None, 3, 4)
    assert b.Reshape(x, b.ConcatV2([b.Shape(x), [1]], 0)).shape == (None, 6, 2, 1)
    assert b.Reshape(x, b.GatherV2(b.Shape(x), [1, 0, 2], 0)).shape == (6, None, 2)
    assert b.Reshape(x, b.Slice(b.Shape(x), [1], [-1])).shape == (6, 2)
    assert b.Reshape(x, b.ExpandDims(b.Size(x), 0)).shape == (None,)
    assert b.Fill(b.Reshape(b.Shape(x), [-1]), 0.0).shape == (None, 6, 2)
    assert b.Fill(b.BroadcastArgs(b.Shape(x), [5, 1, 2]), 0.0).shape == (5, 6, 2)
    assert b.BroadcastTo(b.const(F32(1)), b.Fill([2], b.Rank(x))).shape == (3, 3)
    assert shape_value(b.StridedSlice(b.Shape(x), [2], [0], [-2], end_mask=1)) == (2, None)
    assert b.Range(0, b.Rank(x), 1).shape == (3,)


def test_reshape_infers_the_one_size_left(b: Builder) -> None:
    assert b.Reshape(open_(b, 4, 6), [3, -1]).shape == (3, 8)
    assert b.Reshape(open_(b, None, 6), [3, -1]).shape == (3, None)
    assert b.Reshape(open_(b, 4, 6), b.Pack([b.Placeholder(dtype=dtypes.int32, shape=()), 6])).shape == (4, 6)
    with pytest.raises(ShapeError, match="Cannot reshape a tensor with 24 elements"):
        b.Reshape(open_(b, 4, 6), [5, -1])
    with pytest.raises(ShapeError, match=r"made at .*test_array_ops"):
        b.Reshape(open_(b, 4, 6), [23])


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ([5, -1], "requires a multiple of 5"),
        ([7], "has 7"),
        ([-1, -1], "Only one input size may be -1, not both 0 and 1"),
        ([-2, 3], "Size 0 must be non-negative, not -2"),
        ([0, -1], "has 0"),
        ([[6]], "sizes input must be 1-D"),
    ],
)
def test_reshape_errors(shape: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        run("Reshape", numbers(2, 3), np.array(shape, I32))


def test_inference_refuses_what_cannot_go_together(b: Builder) -> None:
    x, anything = open_(b, 2, 3), b.Placeholder(dtype=dtypes.float32, shape=None)
    for make, text in (
        (lambda: b.ConcatV2([x, open_(b, 2, 4)], 0), "Dimensions must be equal, but are 3 and 4"),
        (lambda: b.ConcatV2([x, open_(b, 2)], 0), "Shape must be rank 2 but is rank 1"),
        (lambda: b.Pack([x, open_(b, 2, 4)]), "Dimensions must be equal"),
        (lambda: b.Unpack(x, num=3), "Dimension must be 3 but is 2"),
        (lambda: b.Split(1, x, num_split=2), "evenly divisible by 2 but is 3"),
        (lambda: b.SplitV(x, [1, 1], 1, num_split=2), "Determined shape must either match"),
        (lambda: b.Squeeze(x, squeeze_dims=(0,)), r"Can not squeeze dim\[0\]"),
        (lambda: b.Transpose(x, [0]), "Shape must be rank 1 but is rank 2"),
        (lambda: b.Tile(x, [1, -1]), "multiples must be >= 0"),
        (lambda: b.Pad(x, [[1, 1], [-1, 0]]), "Paddings must be non-negative"),
        (lambda: b.GatherNd(x, [[0, 0, 0]]), "indices.shape"),
        (lambda: b.Range(0, 5, 0), "Requires delta != 0"),
        (lambda: b.Fill([-1], 1.0), "Fill dimensions must be >= 0"),
        (lambda: b.EnsureShape(x, shape=(3, None)), "Dimensions must be equal"),
        (lambda: b.OneHot([1], -1, 1.0, 0.0), "depth must be non-negative"),
        (lambda: b.Slice(x, [0, 2], [1, 2]), r"Expected size\[1\] in \[0, 1\]"),
        (lambda: b.Transpose(anything, open_(b, 999, dtype=dtypes.int32)), "254 is the limit"),
    ):
        with pytest.raises(ShapeError, match=text):
            make()


def test_inference_with_unknown_values(b: Builder) -> None:
    x, i = open_(b, 2, 3), b.Placeholder(dtype=dtypes.int32, shape=())
    assert b.ConcatV2([x, x], i).shape == (None, None)
    assert b.GatherV2(x, [0, 1], i).shape == (None, None)
    assert b.Split(i, x, num_split=2)[0].shape == (None, None)
    assert b.Split(i, open_(b, 4), num_split=2)[0].shape == (2,)
    assert b.ExpandDims(x, i).shape == (None, None, None)
    assert b.OneHot(open_(b, 2, dtype=dtypes.int32), i, 1.0, 0.0).shape == (2, None)
    assert b.Transpose(x, open_(b, 2, dtype=dtypes.int32)).shape == (None, None)
    assert b.Tile(x, b.Pack([i, 2])).shape == (None, 6)
    assert b.Slice(x, b.Pack([i, 0]), [1, -1]).shape == (1, 3)
    assert b.Squeeze(open_(b, None, 1)).shape is None
    assert b.Unpack(open_(b, None, 3), num=2)[1].shape == (3,)


# *** sizes ***


def test_a_large_constant_array_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        x = run("Fill", ints(10**4, 10**4), F32(2))
        y = run("BroadcastTo", F32(3), ints(10**4, 10**4))
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert x.shape == y.shape == (10**4, 10**4)
    assert (x[5000, 5000], y[-1, -1]) == (2, 3)
    for a in (x, y):
        with pytest.raises(ValueError, match="read-only"):
            a[0, 0] = 1


ABSURD: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Fill", [ints(2**30, 2**30), F32(0)], {}),
    ("Fill", [ints(2**30), texts("a").reshape(())], {}),
    ("BroadcastTo", [F32(0), ints(2**30, 2**20)], {}),
    ("Range", [I64(0), I64(2**60), I64(1)], {}),
    ("LinSpace", [F32(0), F32(1), I64(2**60)], {}),
    ("Empty", [ints(2**30, 2**30)], {"dtype": dtypes.float32}),
    ("OneHot", [ints(1, 2), I32(2**31 - 1), F32(1), F32(0)], {}),
    ("Tile", [numbers(2), ints(2**30)], {}),
    ("Pad", [numbers(2), np.array([[0, 2**30]])], {}),
    ("MirrorPad", [run("BroadcastTo", F32(1), ints(2**24)), ints([0, 2**23])], {"mode": "SYMMETRIC"}),
    ("ScatterNd", [ints([0]), F32([1]), ints(2**31 - 1)], {}),
    ("DynamicStitch", [[ints(2**31 - 1)], [F32([1])]], {}),
    ("StridedSliceGrad", [ints(2**31 - 1), ints(0), ints(1), ints(1), F32([1])], {}),
    ("MatrixDiag", [run("BroadcastTo", F32(1), ints(10**5))], {}),
    ("Diag", [run("BroadcastTo", F32(1), ints(10**5))], {}),
    ("RaggedRange", [I64(0), I64(2**40), I64(1)], {}),
]


@pytest.mark.parametrize(("type", "inputs", "attrs"), ABSURD, ids=[f"{t}-{i}" for i, (t, _, _) in enumerate(ABSURD)])
def test_absurd_sizes_are_refused(type: str, inputs: Any, attrs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "max_bytes", 10**7)
    op_registry.get(type)  # imports the modules of its family, which take memory
    tracemalloc.start()
    try:
        with pytest.raises((InvalidArgumentError, ResourceExhaustedError)):
            run(type, *inputs, **attrs)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


def test_more_elements_than_can_be_counted() -> None:
    with pytest.raises(InvalidArgumentError, match=r"would have more than 2\*\*63 - 1 elements"):
        run("Fill", np.array([2**40, 2**40]), F32(0))
    with pytest.raises(InvalidArgumentError, match="Dimension -3 must be >= 0"):
        run("Fill", ints(-3), F32(0))
    huge = np.broadcast_to(np.uint8(0), (2**33,))
    for type in ("Shape", "Size"):
        with pytest.raises(InvalidArgumentError, match="larger than representable by 32-bit"):
            run(type, huge)
    assert run("Size", huge, out_type=dtypes.int64) == 2**33


# *** indices ***


def test_indices_out_of_range() -> None:
    x = numbers(3, 2)
    for type, args, text in (
        ("GatherV2", (x, I32(3), I32(0)), r"indices = 3 is not in \[0, 3\)"),
        ("GatherV2", (x, ints(0, -1), I32(0)), r"indices\[1\] = -1 is not in \[0, 3\)"),
        ("GatherV2", (x, ints([0, 1], [0, 2]), I64(1)), r"indices\[1,1\] = 2 is not in \[0, 2\)"),
        ("Gather", (x, np.array([2**40])), r"indices\[0\] = 1099511627776 is not in \[0, 3\)"),
        ("GatherNd", (x, ints([0, 0], [3, 1])), r"indices\[1\] = \[3, 1\] does not index into shape \[3,2\]"),
        ("ScatterNd", (ints([1], [4]), F32([1, 2]), ints(4)), r"indices\[1\] = \[4\] does not index into shape \[4\]"),
        ("TensorScatterAdd", (x, ints([-1]), x[:1]), r"indices\[0\] = \[-1\] does not index"),
        ("DynamicStitch", ([ints(0, -2)], [F32([1, 2])]), "-2 is negative"),
        ("InvertPermutation", (ints(0, 2),), "2 is not between 0 and 2"),
        ("InvertPermutation", (ints(1, 1),), "1 is duplicated in the input"),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            run(type, *args)
    with pytest.raises(InvalidArgumentError, match=r"partitions\[1\] = 2 is not in \[0, 2\)"):
        run("DynamicPartition", F32([1, 2]), ints(0, 2), num_partitions=2)


def test_bad_indices_can_be_ignored() -> None:
    policy = {"bad_indices_policy": "IGNORE"}
    assert run("GatherNd", F32([1, 2, 3]), ints([2], [5], [-1], [0]), **policy).tolist() == [3, 0, 0, 1]
    assert run("ScatterNd", ints([1], [7]), F32([5, 6]), ints(3), **policy).tolist() == [0, 5, 0]
    assert run("TensorScatterUpdate", ints(1, 2), ints([9], [0]), ints(5, 6), **policy).tolist() == [6, 2]


def test_several_updates_of_one_place() -> None:
    where, updates = ints([1], [1], [0]), F32([1, 2, 4])
    assert run("ScatterNd", where, updates, ints(2)).tolist() == [4, 3]
    assert run("TensorScatterUpdate", F32([0, 0]), where, updates).tolist() == [4, 2]
    assert run("TensorScatterSub", F32([0, 0]), where, updates).tolist() == [-4, -3]
    assert run("TensorScatterMax", F32([5, 1]), where, updates).tolist() == [5, 2]
    assert run("DynamicStitch", [ints(0, 2), ints(0)], [F32([1, 2]), F32([3])]).tolist() == [3, 0, 2]
    assert run("ScatterNd", where, texts("a", "b", "c"), ints(2)).tolist() == [b"c", b"ab"]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64, object])
def test_many_updates_are_summed_like_few(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    where = rng.integers(0, 5, (300, 2))
    updates = texts("a", "", "b")[rng.integers(0, 3, (300, 2))] if dtype is object else rng.integers(0, 2, (300, 2))
    updates = updates.astype(dtype)
    got = run("ScatterNd", where, updates, np.array([5, 5, 2]))
    want = np.full((5, 5, 2), b"", object) if dtype is object else np.zeros((5, 5, 2), dtype)
    for i, u in zip(where, updates, strict=True):
        want[tuple(i)] = want[tuple(i)] + u
    assert got.dtype == want.dtype
    assert got.tolist() == want.tolist()


def test_a_gather_sums_the_gradients_of_one_row(b: Builder) -> None:
    x = open_(b, 3, 2)
    y = b.GatherV2(x, [1, 1, 0], 0)
    (dx,) = gradients(b, [y], [b.const(F32([[1, 2], [3, 4], [5, 6]]))], [x])
    assert dx.shape == (3, 2)
    assert evaluate([dx], {x: numbers(3, 2)})[0].tolist() == [[5, 6], [4, 6], [0, 0]]


@pytest.mark.parametrize("batch_dims", [0, 1])
def test_gradient_of_a_gather_along_an_axis_that_is_not_known(b: Builder, batch_dims: int) -> None:
    x, axis = b.Placeholder(dtype=dtypes.float64, shape=None), b.Placeholder(dtype=dtypes.int32, shape=())
    indices = ints([0, 3, 3], [1, 1, 0])
    y = b.GatherV2(x, indices, axis, batch_dims=batch_dims)
    seed = b.Placeholder(dtype=dtypes.float64, shape=None)
    (dx,) = gradients(b, [y], [seed], [x])
    value = np.random.default_rng(0).normal(size=(2, 4, 4))
    for a in (1, 2, -1):
        got = evaluate([y], {x: value, axis: I32(a)})[0]
        dy = np.random.default_rng(1).normal(size=got.shape)
        want = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            moved = value.copy()
            moved[at] += 1  # the function is linear
            want[at] = np.sum((evaluate([y], {x: moved, axis: I32(a)})[0] - got) * dy)
        assert np.allclose(evaluate([dx], {x: value, axis: I32(a), seed: dy})[0], want)


# *** corners of single ops ***


def test_corners() -> None:
    assert run("Unpack", numbers(0, 2), num=0) is None
    assert run("Transpose", numbers(2, 3), ints(-1, 0)).shape == (3, 2)
    assert run("ReverseV2", F32(1), ints(0)) == 1  # a scalar has no order, for any axis
    assert run("Reshape", numbers(6), I32(6)).shape == (6,)
    assert run("Reshape", numbers(0, 3), ints(0, -1)).shape == (0, 3)
    assert run("Fill", ints(2), F32([7])).tolist() == [7, 7]
    assert run("ConcatV2", [numbers(1), numbers(1)], ints(0)).tolist() == [0, 0]
    assert run("SplitV", numbers(4), np.array([-1, 1]), I32(0), num_split=2)[0].tolist() == [0, 1, 2]
    assert run("OneHot", ints(-1, 5, 0), I32(2), F32(1), F32(0)).tolist() == [[0, 0], [0, 0], [1, 0]]
    assert run("Range", F32(0), F32(1), F32(0.1)).tolist() == (np.arange(10, dtype=F32) * F32(0.1)).tolist()
    assert run("Range", np.int8(-128), np.int8(127), np.int8(127)).tolist() == [-128, -1, 126]
    assert run("Roll", numbers(3), I32(-7), I32(0)).tolist() == [1, 2, 0]
    assert run("LinSpace", F32(0), F32(1), I32(4))[-1] == 1
    assert run("InplaceAdd", numbers(2, 1), ints(3, 3), F32([[5], [1]])).tolist() == [[0], [7]]  # row 3 of 2 is row 1
    assert run("MatrixBandPart", numbers(2, 2), I64(0), I64(-1)).tolist() == [[0, 1], [0, 3]]
    values, places = run("TopKV2", F32([1, 3, 3, 2, 3]), I32(4))
    assert (values.tolist(), places.tolist()) == ([3, 3, 3, 2], [1, 2, 4, 3])
    assert places.dtype == I32


def test_equality_of_floats_decides_what_is_unique() -> None:
    y, which = run("Unique", F32([np.nan, 0.0, -0.0, np.nan, 1]))
    assert which.tolist() == [0, 1, 1, 2, 3]
    assert np.signbit(y[1]) == np.False_
    out, where = run("ListDiff", F32([np.nan, 0, 2]), F32([np.nan, -0.0]))
    assert where.tolist() == [0, 2]
    assert out[1] == 2


@pytest.mark.parametrize(
    ("type", "inputs", "attrs", "text"),
    [
        ("ExpandDims", [numbers(2), I32(3)], {}, "Tried to expand dim index 3 for tensor with 1 dimensions"),
        (
            "Squeeze",
            [numbers(2, 3)],
            {"squeeze_dims": (1,)},
            r"Can not squeeze dim\[1\]",
        ),
        ("EnsureShape", [numbers(2)], {"shape": (3,)}, r"\[2\] is not compatible with expected shape \[3\]"),
        (
            "BroadcastTo",
            [numbers(2, 3), ints(3)],
            {},
            r"Rank of input \(2\) must be no greater",
        ),
        ("BroadcastArgs", [ints(2), ints(3)], {}, "Incompatible shapes"),
        ("Range", [I32(5), I32(0), I32(1)], {}, "Requires start <= limit when delta > 0: 5/0"),
        ("Range", [F32(0), F32(np.inf), F32(1)], {}, "Requires"),
        ("LinSpace", [F32(0), F32(1), I32(0)], {}, "Requires num > 0: 0"),
        ("Pack", [[numbers(2), numbers(3)]], {}, "Shapes of all inputs must match"),
        ("ConcatV2", [[F32(1), F32(2)], I32(0)], {}, "ConcatOp"),
        ("Split", [I32(0), numbers(3)], {"num_split": 2}, "Number of ways to split should evenly divide"),
        ("SplitV", [numbers(3), np.array([2, 2]), I32(0)], {"num_split": 2}, "Determined shape must either match"),
        ("Slice", [numbers(3), ints(2), ints(2)], {}, r"Expected size\[0\] in \[0, 1\], but got 2"),
        ("MirrorPad", [numbers(2), ints([2, 0])], {"mode": "REFLECT"}, "must be less than the dimension size"),
        ("TopKV2", [numbers(2), I32(3)], {}, "input must have at least k columns. Had 2, needed 3"),
        ("Where", [F32(1)], {}, "Unhandled input dimensions: 0"),
        ("Roll", [numbers(2), ints(1, 2), I32(0)], {}, "shift and axis must be"),
        ("ConcatOffset", [I32(0), [ints(1, 2), ints(1, 3)]], {}, "All dimensions except 0 must match"),
        ("GatherV2", [numbers(2, 2), ints(0), I32(0)], {"batch_dims": 1}, "must be less than or equal to axis"),
        ("MatrixDiagV3", [numbers(2), I32(0), I32(1), I32(-1), F32(0)], {}, "The number of rows is too small"),
        ("MatrixSetDiagV3", [numbers(2, 2), numbers(3), I32(0)], {}, "got"),
        ("Unique", [numbers(2, 2)], {}, "unique expects a 1D vector"),
        ("LowerBound", [numbers(1, 2), numbers(2, 2)], {}, "Leading dim_size of both tensors must match"),
        ("StringToNumber", [texts("1", "x")], {}, "StringToNumberOp could not correctly convert string: x"),
        ("Substr", [texts("abc"), I32(4), I32(1)], {}, "pos 4 out of range for string"),
        ("StringJoin", [[texts("a"), texts("b", "c")]], {}, "Input shapes do not match"),
        ("AsString", [ints(1)], {"precision": 2}, "precision not supported for datatype int32"),
        ("AsString", [F32([1])], {"fill": "x"}, 'Fill argument not supported: "x"'),
        ("StringLower", [texts("a")], {"encoding": "latin-1"}, "only utf-8"),
        ("RaggedRange", [I32(0), I32(1), I32(0)], {}, "Requires delta != 0"),
    ],
)
def test_invalid_array_inputs_are_refused(type: str, inputs: Any, attrs: Any, text: str) -> None:
    with pytest.raises((InvalidArgumentError, ValueError), match=text):
        run(type, *inputs, **attrs)


def test_errors_of_other_classes() -> None:
    with pytest.raises(OutOfRangeError, match="Invalid reduction dimension"):
        run("ReduceJoin", texts("a"), ints(1))
    with pytest.raises(UnimplementedError, match="Substr broadcast not implemented for 3 dimensions"):
        run("Substr", texts("abc"), np.zeros((1, 2, 1), I32), np.zeros((1, 2, 1), I32))


# *** handles ***


def test_elements_may_be_handles() -> None:
    one, two = TensorList(dtypes.int32, ()), TensorList(dtypes.float32, ())
    both = run("Pack", [one, two])
    assert isinstance(both, np.ndarray)
    assert both.tolist() == [one, two]
    assert run("GatherV2", both, I32(1), I32(0)) is two  # at rank 0 the bare object
    assert run("Unpack", both, num=2) == (one, two)
    assert run("StridedSlice", both, ints(0), ints(1), ints(1), shrink_axis_mask=1) is one
    assert run("ConcatV2", [both, both], I32(0)).shape == (4,)
    assert run("Reshape", run("ExpandDims", one, I32(0)), np.zeros(0, I32)) is one
    assert run("Shape", one).tolist() == []
    assert run("Rank", both) == 1
    filled = run("Fill", ints(2), one)
    assert filled.tolist() == [one, one]
    zeros = run("ZerosLike", TensorList.from_tensor(ints(1, 2), dtypes.int32, ()))
    assert zeros.stack().tolist() == [0, 0]


# *** ragged tensors ***


def test_ragged_tensors_as_variants() -> None:
    outer, inner, values = np.array([0, 2, 2, 3]), np.array([0, 1, 3, 4]), texts("a", "b", "c", "d")
    rows = run("RaggedTensorToVariant", [outer, inner], values, batched_input=True)
    assert rows.shape == (3,)
    assert [r.values.tolist() for r in rows] == [[b"a", b"b", b"c"], [], [b"d"]]
    assert [s.tolist() for s in rows[0].splits] == [[0, 1, 3]]
    attrs = {"input_ragged_rank": 1, "output_ragged_rank": 2, "Tvalues": dtypes.string}
    back = run("RaggedTensorFromVariant", rows, **attrs)
    assert [x.tolist() for x in back] == [outer.tolist(), inner.tolist(), values.tolist()]
    whole = run("RaggedTensorToVariant", [outer, inner], values, batched_input=False)
    same = run("RaggedTensorFromVariant", whole, **{**attrs, "input_ragged_rank": -1})
    assert [x.tolist() for x in same] == [x.tolist() for x in back]
    with pytest.raises(InvalidArgumentError, match=r"ragged_rank=1\. Expected ragged_rank=0"):
        run("RaggedTensorFromVariant", rows, **{**attrs, "input_ragged_rank": 0, "output_ragged_rank": 1})
    with pytest.raises(InvalidArgumentError, match="Expected values Tensor dtype: int32"):
        run("RaggedTensorFromVariant", rows, **{**attrs, "Tvalues": dtypes.int32})
    for bad in ([1, 4], [0, 3, 2], [0, 9], []):
        with pytest.raises(InvalidArgumentError, match="Invalid row splits"):
            run("RaggedTensorToVariant", [np.array(bad, I64)], values, batched_input=True)


def test_gradient_through_ragged_rows(b: Builder) -> None:
    x = open_(b, 3)
    splits = b.const(np.array([0, 2, 3]))
    rows = b.RaggedTensorToVariant([splits], b.Mul(x, x), batched_input=True)
    _, y = b.RaggedTensorFromVariant(rows, input_ragged_rank=0, output_ragged_rank=1, Tvalues=dtypes.float32)
    seed = b.const(F32([1, 10, 100]))
    (dx,) = gradients(b, [y], [seed], [x])
    assert evaluate([dx], {x: F32([1, 2, 3])})[0].tolist() == [2, 40, 600]


def test_constants_fold_for_inference(b: Builder) -> None:
    total = b.ConcatV2([b.Tile(b.const(ints(1, 2)), [2]), b.ReverseV2(b.const(ints(5, 6)), [0])], 0)
    known = constant_value(total)
    assert known is not None
    assert known.tolist() == [1, 2, 1, 2, 6, 5]
    assert not known.flags.writeable
    assert constant_value(b.Shape(placeholder(b, numbers(2, 3), (2, 3)))).tolist() == [2, 3]  # type: ignore[union-attr]


def test_a_nan_among_updates_changes_no_extreme() -> None:
    where = np.array([[0], [1], [2]], np.int32)
    for type, want in (("TensorScatterMax", 5.0), ("TensorScatterMin", 2.0)):
        got = run(type, F32([1, np.nan, 2]), where, F32([np.nan, 3, 5]))
        np.testing.assert_array_equal(got, [1, np.nan, want])


def test_no_axis_of_numpy_s_own_meaning() -> None:
    for type in ("Concat", "ConcatV2"):
        x = [F32([1]), F32([2])]
        args = (np.int32(-(2**31)), x) if type == "Concat" else (x, np.int32(-(2**31)))
        with pytest.raises(InvalidArgumentError, match="in the range"):
            run(type, *args)
