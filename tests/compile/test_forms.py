"""Expressions of forms have the results of the kernels."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.ir.graph import Tensor
from headrace.ir.infer import constant_value
from headrace.ir.kernel import find_kernel
from headrace.opkit.forms import NATIVE, form_of
from headrace.targets.python.forms import expressions
from headrace.targets.python.source import Source
from tests.compile.running import b, both, same, source

SEEDS = range(12)


def check(t: Tensor, data: dict[Tensor, np.ndarray], becomes: bool | None = True) -> bool:
    """Compares the expressions for an operation with its kernel.

    Args:
      t: An output of the operation.
      data: Values of its inputs that are no constants.
      becomes: Whether there must be expressions; None if there may be.

    Returns:
      Whether there are expressions.
    """
    op = t.op
    kernel = find_kernel(op)
    assert kernel is not None
    out = Source()
    values = [data[x] if x in data else constant_value(x) for x in op.inputs]
    form = form_of(op)
    texts = (
        None
        if form is None or isinstance(form, NATIVE)
        else expressions(form, [f"x{i}" for i in range(len(values))], out)
    )
    if becomes is not None:
        assert (texts is not None) is becomes
    if texts is None:
        return False
    want = kernel.factory(np, op.attrs)(*values)
    got = [eval(text, dict(out.names), {f"x{i}": v for i, v in enumerate(values)}) for text in texts]
    for g, w in zip(got, want if len(op.outputs) > 1 else [want], strict=True):
        same(np.asarray(g), np.asarray(w), texts)
        assert isinstance(g, np.generic) == (np.asarray(w).shape == ()), "of rank 0 it is a scalar"
    return True


def given(rng: random.Random, rank: int | None = None, dtype: str = "float32", least: int = 0) -> Any:
    """A placeholder of a random static shape, and a value for it."""
    rank = rng.randint(1, 4) if rank is None else rank
    shape = [rng.randint(least, 4) for _ in range(rank)]
    value = np.array(rng.choices(range(-50, 50), k=int(np.prod(shape))), dtype).reshape(shape)
    return hr.placeholder(dtype, shape), value


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with hr.Graph():
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_reshape(seed: int) -> None:
    rng = random.Random(seed)
    x, value = given(rng)
    scalar = hr.placeholder(hr.float32, [])
    for dims in ([1], [1, 1], []):
        check(b().Reshape(scalar, b().const(np.array(dims, np.int32))), {scalar: np.float32(rng.random())})
    for shape in ([-1], [value.size], [1, value.size, 1], [*value.shape, 1], list(value.shape)):
        if value.size or -1 not in shape:
            check(b().Reshape(x, b().const(shape)), {x: value})


@pytest.mark.parametrize("seed", SEEDS)
def test_axes_of_one_more_or_less(seed: int) -> None:
    rng = random.Random(seed)
    x, value = given(rng)
    for axis in range(-value.ndim - 1, value.ndim + 1):
        check(b().ExpandDims(x, b().const(axis)), {x: value})
    y, value = given(rng, least=1)
    check(b().Squeeze(y), {y: value}, becomes=True)
    ones = [k for k, d in enumerate(value.shape) if d == 1]
    if ones:
        check(b().Squeeze(y, squeeze_dims=[ones[0] - rng.choice((0, value.ndim))]), {y: value})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_concat(seed: int, dtype: str) -> None:
    rng = random.Random(seed)
    x, value = given(rng, dtype=dtype)
    axis = rng.randrange(-value.ndim, value.ndim)
    parts = {x: value}
    for _ in range(rng.randint(1, 3)):
        shape = list(value.shape)
        shape[axis] = rng.randint(0, 3)
        more = np.array(rng.choices((0, 1), k=int(np.prod(shape))), dtype).reshape(shape)
        parts[hr.placeholder(dtype, shape)] = more
    check(b().ConcatV2(list(parts), b().const(axis)), parts)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_pack_and_unpack(seed: int, dtype: str) -> None:
    rng = random.Random(seed)
    x, value = given(rng, dtype=dtype)
    axis = rng.randrange(-value.ndim - 1, value.ndim + 1)
    parts = {x: value}
    for _ in range(rng.randint(0, 2)):
        parts[hr.placeholder(dtype, value.shape)] = np.array(rng.choices((0, 1), k=value.size), dtype).reshape(
            value.shape
        )
    check(b().Pack(list(parts), axis=axis), parts)
    for axis in range(-value.ndim, value.ndim):
        parts_of_x = b().Unpack(x, num=value.shape[axis], axis=axis) if value.shape[axis] else []
        for part in [parts_of_x] if isinstance(parts_of_x, Tensor) else parts_of_x[-1:]:
            check(part, {x: value})


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "bfloat16"])
def test_pack_of_scalars(dtype: str) -> None:
    scalars = {hr.placeholder(dtype, ()): np.array(v, hr.as_dtype(dtype).numpy) for v in (1, 0, 1)}
    check(b().Pack(list(scalars)), scalars)


@pytest.mark.parametrize("seed", SEEDS)
def test_split(seed: int) -> None:
    rng = random.Random(seed)
    x, value = given(rng)
    for axis in range(-value.ndim, value.ndim):
        for n in (1, 2, 3, 4):
            if value.shape[axis] % n == 0:
                parts = b().Split(b().const(axis), x, num_split=n)
                check(parts if isinstance(parts, Tensor) else parts[0], {x: value})


@pytest.mark.parametrize("seed", SEEDS)
def test_split_by_sizes(seed: int) -> None:
    rng = random.Random(seed)
    x, value = given(rng)
    for axis in range(-value.ndim, value.ndim):
        ends = sorted(rng.randint(0, value.shape[axis]) for _ in range(rng.randint(0, 3)))
        sizes = np.diff([0, *ends, value.shape[axis]])
        if rng.random() < 0.5:
            sizes[rng.randrange(len(sizes))] = -1
        parts = b().SplitV(x, b().const(sizes), b().const(axis), num_split=len(sizes))
        check(parts if isinstance(parts, Tensor) else parts[0], {x: value})


@pytest.mark.parametrize("seed", SEEDS)
def test_slice(seed: int) -> None:
    rng = random.Random(seed)
    x, value = given(rng)
    for _ in range(4):
        begin = [rng.randint(0, d) for d in value.shape]
        size = [rng.choice((-1, rng.randint(0, d - f))) for d, f in zip(value.shape, begin, strict=True)]
        check(b().Slice(x, b().const(begin), b().const(size)), {x: value})


@pytest.mark.parametrize("seed", range(40))
def test_strided_slice(seed: int) -> None:
    """Random bounds, in and out of range, forwards and backwards, masks of all kinds."""
    rng = random.Random(seed)
    x, value = given(rng, least=1)
    n = rng.randint(1, value.ndim)
    begin = [rng.randint(-6, 6) for _ in range(n)]
    end = [rng.randint(-6, 6) for _ in range(n)]
    strides = [rng.choice((1, 1, 2, 3, -1, -2)) for _ in range(n)]
    shrink = sum(1 << i for i in range(n) if rng.random() < 0.3)
    for i in range(n):
        if shrink >> i & 1:
            begin[i], strides[i] = rng.randrange(-value.shape[i], value.shape[i]), 1
            end[i] = begin[i] + 1 or value.shape[i]
    masks = {k: rng.randrange(1 << n) if rng.random() < 0.5 else 0 for k in ("begin_mask", "end_mask")}
    masks["new_axis_mask"] = rng.randrange(1 << n) if not shrink and rng.random() < 0.2 else 0
    masks["shrink_axis_mask"] = shrink
    masks["ellipsis_mask"] = 1 << rng.randrange(n) if not shrink and rng.random() < 0.2 else 0
    t = b().StridedSlice(x, b().const(begin), b().const(end), b().const(strides), **masks)
    check(t, {x: value}, None)
    dy = hr.placeholder(hr.float32, t.shape)
    numbers = np.arange(np.prod(t.shape), dtype=np.float32).reshape(t.shape)[()]
    whole = b().StridedSliceGrad(b().const(value.shape), *t.op.inputs[1:], dy, **masks)
    assert (form_of(whole.op) is None) is (form_of(t.op) is None)
    check(whole, {dy: numbers}, None)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
def test_pad(seed: int, dtype: str) -> None:
    rng = random.Random(seed)
    x, value = given(rng, dtype=dtype)
    check(b().Pad(x, b().const([[rng.randint(0, 3), rng.randint(0, 3)] for _ in value.shape])), {x: value})


def test_what_strided_slices_are_expressions() -> None:
    x, value = hr.placeholder(hr.float32, [4, 5]), np.arange(20, dtype=np.float32).reshape(4, 5)
    for t in (x[1:3], x[:, 2], x[1], x[-1, -2], x[::2, 1:4:2], x[1:, :-1], x[9:], x[3:1]):
        check(t, {x: value})
    for t in (x[..., 1], x[:, None], x[None], x[1, None], x[..., None], x[None, ..., 1:3, None], x[1, ..., None, 2]):
        check(t, {x: value})
    for t in (x[::-1], x[3:0:-1, 0]):
        check(t, {x: value}, False)


@pytest.mark.parametrize("seed", SEEDS)
def test_tile(seed: int) -> None:
    rng = random.Random(seed)
    x, value = given(rng, least=1)
    for least in (0, 1):
        times = [rng.randint(least, 3) for _ in value.shape]
        check(b().Tile(x, b().const(times)), {x: value}, 0 not in times)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_hot(seed: int) -> None:
    rng = random.Random(seed)
    shape = [rng.randint(1, 3) for _ in range(rng.randint(0, 2))]
    x = hr.placeholder(rng.choice(["uint8", "int32", "int64"]), shape)
    value = np.array(rng.choices(range(5), k=int(np.prod(shape))), x.dtype.as_numpy_dtype).reshape(shape)[()]
    on, off = (b().const(np.float32(v)) for v in (2.0, -1.0))
    axis = rng.randint(-1, len(shape))
    check(b().OneHot(x, b().const(rng.randint(1, 4)), on, off, axis=axis), {x: value})


@pytest.mark.parametrize("seed", SEEDS)
def test_transpose(seed: int) -> None:
    rng = random.Random(seed)
    x, value = given(rng)
    perm = list(range(value.ndim))
    rng.shuffle(perm)
    check(b().Transpose(x, b().const(perm)), {x: value})


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sum(seed: int, dtype: str) -> None:
    rng = random.Random(seed)
    x, value = given(rng, dtype=dtype)
    value = value / np.array(7, dtype)
    axes = rng.sample(range(value.ndim), rng.randint(1, value.ndim))
    axes = [a - rng.choice((0, value.ndim)) for a in axes]
    for keep in (False, True):
        check(b().Sum(x, b().const(axes), keep_dims=keep), {x: value})
        check(b().Sum(x, b().const(axes[0]), keep_dims=keep), {x: value})


def _graded(dy: Tensor, shape: list[int]) -> Tensor:
    """The zeros of `shape` with `dy` in rows 1 and 2."""
    graded: Tensor = b().StridedSliceGrad(b().const(shape), b().const([1]), b().const([3]), b().const([1]), dy)
    return graded


NOT: dict[str, Callable[[], Tensor]] = {
    "an unknown shape": lambda: hr.reshape(hr.placeholder(hr.float32, [None, 2]), [-1]),
    "a scalar": lambda: hr.transpose(hr.placeholder(hr.float32, [])),
    "strings": lambda: hr.reshape(hr.placeholder(hr.string, [2, 2]), [4]),
    "an axis that is not known": lambda: b().ConcatV2([hr.ones([2])] * 2, hr.placeholder(hr.int32, [])),
    "means of integers": lambda: hr.reduce_mean(hr.placeholder(hr.int32, [3, 3]), 0),
    "sums of halves": lambda: hr.reduce_sum(hr.placeholder(hr.float16, [3, 3]), 0),
    "a sum over no axis": lambda: hr.reduce_sum(hr.placeholder(hr.float32, [3, 3]), hr.constant([], hr.int32)),
    "pieces of unknown sizes": lambda: b().SplitV(hr.ones([4]), hr.placeholder(hr.int32, [2]), 0, num_split=2)[0],
    "a part of another shape": lambda: _graded(hr.placeholder(hr.float32, [3]), [4, 4]),
    "zeros too large to be made": lambda: _graded(hr.placeholder(hr.float32, [2, 8]), [1 << 30, 8]),
    "unknown paddings": lambda: b().Pad(hr.ones([2]), hr.placeholder(hr.int32, [1, 2])),
    "too many zeros": lambda: b().Pad(hr.ones([2]), b().const([[0, 1 << 30]])),
    "another operation": lambda: hr.math.lgamma(hr.placeholder(hr.float32, [3, 3])),
}  # fmt: skip


@pytest.mark.parametrize("name", NOT)
def test_what_is_left_to_kernels(name: str) -> None:
    t = NOT[name]()
    assert form_of(t.op) is None


def test_programs_of_moves() -> None:
    x = hr.placeholder(hr.float64, [4, 6], name="x")
    left, right = hr.split(x, 2, axis=1)
    y = hr.transpose(hr.concat([left * 2.0, right], 0))
    z = hr.reduce_sum(hr.reshape(y[1:], [2, 2, 4]), [0, 2])
    w = hr.expand_dims(z[0], 0) + hr.squeeze(hr.slice(x, [1, 2], [1, -1]))
    fed = np.random.default_rng(0).standard_normal((4, 6))
    both([left, right, y, z, w], {x: fed})
    text = source([w], [x])
    assert ".reshape((2, 2, 4))" in text
    assert ".transpose(1, 0)" in text
    assert "[1:]" in text
