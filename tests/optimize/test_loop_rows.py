"""Rows that a loop reads by an index in range come from lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.optimize.base import Options
from headrace.optimize.loops import LOOP_PASSES
from headrace.optimize.pipeline import PASSES as PIPELINE
from tests.optimize.loop_steps import PASSES, Optimized, close, optimize

_RULE = "loop_rows"
XS = np.arange(24, dtype=np.float32).reshape(4, 2, 3) / 10


def step(
    read: Any, limit: Any = 4, first: int = 0, dims: Any = (4, 2, 3), passes: Any = None, **options: Any
) -> Optimized:
    """A loop that adds what `read` reads of a tensor in each iteration."""
    with hr.Graph():
        n: Any = hr.placeholder(hr.int32, ())
        xs: Any = hr.placeholder(hr.float32, dims)
        end = n if limit is None else limit
        start = hr.zeros(read(xs, 0).shape)

        def body(t: Any, y: Any) -> Any:
            return t + 1, y * 0.5 + hr.tanh(read(xs, t))

        _, y = hr.while_loop(lambda t, y: t < end, body, (first, start))
        return optimize([xs, n], [y], [PASSES[_RULE]] if passes is None else passes, options=Options(**options))


@pytest.mark.parametrize(
    "read",
    [
        lambda xs, t: xs[t],
        lambda xs, t: xs[t, ...],
        lambda xs, t: hr.gather(xs, t),
        lambda xs, t: hr.gather(xs, hr.cast(t, hr.int64)),
        lambda xs, t: xs[t + 1 - 1],
        lambda xs, t: xs[3 - t],
        lambda xs, t: hr.gather(xs, 4 - (t + 1)),
        lambda xs, t: hr.slice(xs, hr.stack([t, 0, 0]), [1, 2, 3]),
        lambda xs, t: hr.slice(xs, hr.stack([t, 0, 0]), [1, -1, -1]),
        lambda xs, t: hr.slice(xs, hr.stack([3 - t, 0, 0]), [1, 2, 3]),
        lambda xs, t: hr.reshape(xs[t : t + 1], (1, 2, 3)),
        lambda xs, t: (lambda last: hr.reshape(xs[last : last + 1, :], (1, 2, 3)))(3 - t),
    ],
)
def test_a_row_is_read_from_a_list_of_the_tensor(read: Any) -> None:
    made = step(read)
    assert len(made.fired(_RULE)) == 1
    assert (made.count("while", "TensorListGetItem"), made.count("while", "StridedSlice")) == (1, 0)
    assert made.count("while", "GatherV2") == made.count("while", "Slice") == 0
    close(made.run([XS, 4]), step(read, passes=[]).run([XS, 4]), 0)


@pytest.mark.parametrize(("axis", "limit"), [(1, 2), (2, 3)])
def test_rows_along_another_dimension_are_read_from_a_list_of_the_transposed_tensor(axis: int, limit: int) -> None:
    reads = [lambda xs, t: xs[:, t], lambda xs, t: xs[..., t]]
    slices = [
        lambda xs, t: hr.slice(xs, hr.stack([0, t, 0]), [4, 1, 3]),
        lambda xs, t: hr.slice(xs, hr.stack([0, 0, t]), [-1, -1, 1]),
    ]
    for read in (reads[axis - 1], slices[axis - 1], lambda xs, t: hr.gather(xs, t, axis=axis)):
        made = step(read, limit)
        assert sum(op.type == "Transpose" for op in made.graph.operations) == 1
        assert made.count("while", "TensorListGetItem") == 1
        close(made.run([XS, 4]), step(read, limit, passes=[]).run([XS, 4]), 0)


def test_rows_that_are_read_twice_are_in_one_list() -> None:
    made = step(lambda xs, t: xs[t] + hr.gather(xs, t) * xs[:, 0][t, None] if not isinstance(t, int) else xs[t])
    assert made.count("while", "TensorListGetItem") == 2
    assert sum(op.type == "TensorListFromTensor" for op in made.graph.operations) == 1


def test_at_least_half_of_the_rows_must_be_read() -> None:
    assert step(lambda xs, t: xs[t], 4, dims=(8, 2, 3)).fired(_RULE)
    made = step(lambda xs, t: xs[t], 4, dims=(9, 2, 3))
    assert made.refused() == ["while/strided_slice: the loop reads less than half of the rows"]
    assert not made.changed


@pytest.mark.parametrize(
    ("limit", "first", "dims"), [(5, 0, (4, 2, 3)), (None, 0, (4, 2, 3)), (4, -1, (4, 2, 3)), (4, 0, (None, 2, 3))]
)
def test_a_row_that_may_be_out_of_range_stays(limit: Any, first: int, dims: Any) -> None:
    made = step(lambda xs, t: xs[t], limit, first, dims)
    assert made.refused() == ["while/strided_slice: its indices are not known to be in range"]
    assert not made.changed


@pytest.mark.parametrize(
    "read",
    [
        lambda xs, t: xs[t + t - t],
        lambda xs, t: xs[t, 1:],
        lambda xs, t: (xs * hr.cast(t, hr.float32))[t],
        lambda xs, t: hr.reshape(xs[t : t + 2][:1], (1, 2, 3)),
        lambda xs, t: hr.slice(xs, hr.stack([t, 1, 0]), [1, 1, 3]),
        lambda xs, t: hr.slice(xs, hr.stack([t, t, 0]), [1, 1, 3]),
    ],
)
def test_other_selections_stay(read: Any) -> None:
    assert not step(read).changed


@pytest.mark.parametrize("dtype", [hr.int32, hr.int64])
@pytest.mark.parametrize(("numbers", "is_index"), [([0, 1, 2, 3], True), ([1, 2, 3, 3], False), ([0, 1, 3, 2], False)])
def test_an_element_of_a_range_is_its_index(numbers: list[int], is_index: bool, dtype: Any) -> None:
    def build(passes: Any) -> Optimized:
        with hr.Graph():
            xs: Any = hr.placeholder(hr.float32, (4, 2, 3))
            places = hr.TensorArray(dtype, 4).unstack(hr.constant(numbers, dtype))
            start = (0, hr.zeros((2, 3)))
            _, y = hr.while_loop(lambda t, y: t < 4, lambda t, y: (t + 1, y * 0.5 + xs[places.read(t)]), start)
            return optimize([xs], [y], passes)

    made = build([PASSES[_RULE]])
    assert made.count("while", "StridedSlice") == (0 if is_index else 1)
    assert [each for each in made.fired() if "equal to their index" in each] == (
        ["while: equal to their index: while/TensorArrayV2Read/TensorListGetItem"] if is_index else []
    )
    close(made.run([XS]), build([]).run([XS]), 0)


def test_a_loop_over_a_range_is_one_over_the_rows() -> None:
    def over_range(xs: Any, h: Any) -> Any:
        for t in hr.range(4):
            h = hr.tanh(xs[t] + h)
        return h

    def over_rows(xs: Any, h: Any) -> Any:
        for x in xs:
            h = hr.tanh(x + h)
        return h

    found = []
    for function in (over_range, over_rows):
        with hr.Graph():
            xs, h = hr.placeholder(hr.float32, (4, 2, 3)), hr.placeholder(hr.float32, (2, 3))
            made = optimize([xs, h], [hr.autograph.convert(function)(xs, h)], PIPELINE)
        (loop,) = (op for op in made.graph.operations if op.opdef.structured == "While")
        found.append(sorted(op.type for op in loop.attrs["body"].operations))
        close(made.run([XS, XS[0]]), [over_numpy(XS, XS[0])], 1e-6)
    assert found[0] == found[1]


def over_numpy(xs: np.ndarray, h: np.ndarray) -> np.ndarray:
    for x in xs:
        h = np.tanh(x + h)
    return h


def test_a_row_that_waits_stays() -> None:
    def read(xs: Any, t: Any) -> Any:
        with hr.control_dependencies([hr.identity(t)] if not isinstance(t, int) else []):
            return xs[t]

    assert not step(read).changed


def test_strings_stay() -> None:
    with hr.Graph():
        names: Any = hr.placeholder(hr.string, (4,))
        _, y = hr.while_loop(lambda t, y: t < 4, lambda t, y: (t + 1, names[t]), (0, hr.constant("")))
        assert not optimize([names], [y], [PASSES[_RULE]]).changed


def test_the_gradient_reads_from_the_last_row_to_the_first() -> None:
    def build(passes: Any) -> Optimized:
        with hr.Graph():
            xs: Any = hr.placeholder(hr.float32, (4, 2, 3))
            h: Any = hr.placeholder(hr.float32, (2, 3))
            w: Any = hr.placeholder(hr.float32, (3, 3))
            _, y = hr.while_loop(lambda t, h: t < 4, lambda t, h: (t + 1, hr.tanh(hr.matmul(xs[t], w) * h)), (0, h))
            loss = hr.reduce_sum(y * y)
            return optimize([xs, h, w], [loss, *hr.gradients(loss, [w, h])], passes)

    made = build(LOOP_PASSES)
    loops = [op.name for op in made.graph.operations if op.opdef.structured == "While"]
    assert len(made.fired(_RULE)) == 2
    assert all(made.count(name, "StridedSlice") == 0 for name in loops)
    fed = [XS, XS[0] + 0.1, XS[1:, 0] * 0.3]
    close(made.run(fed), build([]).run(fed), 1e-6)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_the_gradient_of_rows_is_one_tensor_after_the_loop(axis: int, first: int) -> None:
    def build(passes: Any) -> Optimized:
        with hr.Graph():
            xs: Any = hr.placeholder(hr.float32, (4, 5, 3))
            h: Any = hr.placeholder(hr.float32, (5 if axis == 0 else 4, 3))
            n = 4 if axis == 0 else 5

            def body(t: Any, h: Any) -> Any:
                return t + 1, hr.tanh((xs[t] if axis == 0 else xs[:, t]) * h)

            _, y = hr.while_loop(lambda t, h: t < n, body, (first, h))
            loss = hr.reduce_sum(y * y)
            return optimize([xs, h], [loss, *hr.gradients(loss, [xs])], passes)

    made = build(LOOP_PASSES)
    _, backward = (op.name for op in made.graph.operations if op.opdef.structured == "While")
    assert made.count(backward, "StridedSliceGrad") == first  # the index of a gradient must begin at the last row
    assert bool(made.fired("loop_collections")) is (first == 0)
    rng = np.random.default_rng(2)
    fed = [rng.standard_normal((4, 5, 3)), rng.standard_normal((5 if axis == 0 else 4, 3))]
    fed = [v.astype(np.float32) for v in fed]
    close(made.run(fed), build([]).run(fed), 1e-6)
