"""Elements and slices of variables at many-dimensional indices, and references that are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError, ShapeError
from headrace.grad.backward import backward
from headrace.ir.indexed_slices import IndexedSlices
from tests.ops.running import Program

f32, f64 = dtypes.float32, dtypes.float64
FORMS = ("", "Resource")
each_form = pytest.mark.parametrize("form", FORMS)


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def variable(p: Program, form: str, value: Any, assigned: bool = True) -> Any:
    array = np.asarray(value)
    dtype = dtypes.from_numpy(array.dtype)
    if form:
        v = p.b.VarHandleOp(dtype=dtype, shape=array.shape, shared_name="v")
    else:
        v = p.b.VariableV2(dtype=dtype, shape=array.shape, shared_name="r")
    if assigned:
        p.run((p.b.AssignVariableOp if form else p.b.Assign)(v, p.b.const(array, dtype)))
    return v


def scatter(p: Program, form: str, kind: str, v: Any, indices: Any, updates: Any, **attrs: Any) -> Any:
    """The variable's value after a scatter."""
    p.run(p.b.make(f"{form}ScatterNd{kind}", [v, indices, updates], attrs))
    return p.run(v if not form else p.b.ReadVariableOp(v, dtype=v.handle[0])).tolist()


def matrix(dtype: Any = np.float32) -> np.ndarray:
    return np.arange(6).reshape(3, 2).astype(dtype)


@each_form
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Update", [[0, 1], [2, 3], [50, 60]]),
        ("Add", [[0, 1], [2, 3], [64, 85]]),
        ("Sub", [[0, 1], [2, 3], [-56, -75]]),
        ("Min", [[0, 1], [2, 3], [4, 5]]),
        ("Max", [[0, 1], [2, 3], [50, 60]]),
    ],
)
def test_slices_one_of_them_twice(p: Program, form: str, kind: str, expected: list[list[int]]) -> None:
    v = variable(p, form, matrix())
    updates = np.array([[10.0, 20.0], [50.0, 60.0]], np.float32)
    assert scatter(p, form, kind, v, [[2], [2]], updates) == expected


@each_form
def test_elements(p: Program, form: str) -> None:
    v = variable(p, form, matrix(np.int64))
    assert scatter(p, form, "Add", v, [[2, 0], [0, 1], [2, 0]], np.array([10, 20, 30])) == [[0, 21], [2, 3], [44, 5]]
    assert scatter(p, form, "Update", v, np.zeros((0, 2), np.int32), np.zeros(0, np.int64)) == [
        [0, 21],
        [2, 3],
        [44, 5],
    ]


def test_bools_and_strings(p: Program) -> None:
    flags = variable(p, "Resource", np.array([True, False, False]))
    assert scatter(p, "Resource", "Add", flags, [[0], [2]], [True, True]) == [True, False, True]
    words = variable(p, "", np.array([b"a", b"b"], object))
    assert scatter(p, "", "Update", words, [[1]], np.array([b"c"], object)) == [b"a", b"c"]


@each_form
def test_indices_out_of_range(p: Program, form: str) -> None:
    v, ones = variable(p, form, matrix()), np.ones((2, 2), np.float32)
    for indices in ([[0], [3]], [[-1], [0]]):
        with p.fails(InvalidArgumentError, r"indices\[[01]\] = .* does not index into shape \[3,2\]"):
            scatter(p, form, "Add", v, indices, ones)
    ignored = scatter(p, form, "Add", v, [[0], [3]], ones, bad_indices_policy="IGNORE")
    assert ignored == [[1, 2], [2, 3], [4, 5]]


@each_form
@pytest.mark.parametrize(
    ("indices", "updates", "match"),
    [
        (0, [1.0, 2.0], "Indices shape must have rank at least one"),
        ([[0]], 1.0, "Updates shape must have rank at least one"),
        ([[0]], [[1.0, 2.0, 3.0]], "Dimensions of updates must match"),
        ([[0]], [[1.0, 2.0], [1.0, 2.0]], "Dimensions of updates must match"),
        ([[0, 0, 0]], [1.0], "at most as many elements as there are dimensions|Dimensions of updates must match"),
    ],
)
def test_shapes_at_run_time(p: Program, form: str, indices: Any, updates: Any, match: str) -> None:
    v = variable(p, form, matrix())
    with p.fails(InvalidArgumentError, match):
        scatter(p, form, "Add", v, p.feed(np.array(indices, np.int32)), p.feed(np.array(updates, np.float32)))


@each_form
def test_a_scalar_has_no_elements_to_index(p: Program, form: str) -> None:
    v = variable(p, form, np.float32(1))
    with p.fails(InvalidArgumentError, "at least 1-D"):
        scatter(p, form, "Add", v, p.feed(np.zeros((1, 0), np.int32)), p.feed(np.ones(1, np.float32)))


@each_form
def test_shapes_at_build_time(p: Program, form: str) -> None:
    v = variable(p, form, matrix())
    with p.fails(ShapeError, "Dimensions of updates must be"):
        scatter(p, form, "Add", v, [[0]], np.ones((1, 3), np.float32))
    with p.fails(ShapeError, "rank"):
        scatter(p, form, "Add", v, 0, np.ones(2, np.float32))


@pytest.mark.parametrize(("form", "error"), [("", FailedPreconditionError), ("Resource", NotFoundError)])
def test_before_it_is_assigned(p: Program, form: str, error: type[Exception]) -> None:
    v = variable(p, form, matrix(), assigned=False)
    with p.fails(error, "uninitialized"):
        scatter(p, form, "Add", v, [[0]], np.ones((1, 2), np.float32))


def test_what_was_read_stays_what_it_was(p: Program) -> None:
    v = variable(p, "Resource", matrix())
    before = p.run(p.b.ReadVariableOp(v, dtype=f32))
    scatter(p, "Resource", "Update", v, [[0]], np.full((1, 2), 9, np.float32))
    assert before.tolist() == matrix().tolist()


# *** gathering ***


@pytest.mark.parametrize("indices", [[[2], [0]], [[1, 1], [0, 1]], [1], [[[0]], [[2]]], np.zeros((2, 0), np.int32)])
def test_gathering(p: Program, indices: Any) -> None:
    v, x = variable(p, "Resource", matrix()), matrix()
    got = p.b.ResourceGatherNd(v, np.array(indices, np.int32), dtype=f32)
    want = p.run(p.b.GatherNd(x, np.array(indices, np.int32)))
    assert got.shape == want.shape
    assert p.run(got).tolist() == want.tolist()


def test_gathering_what_is_not_there(p: Program) -> None:
    v = variable(p, "Resource", matrix())
    with p.fails(InvalidArgumentError, r"indices\[0\] = \[3\] does not index into shape \[3,2\]"):
        p.run(p.b.ResourceGatherNd(v, [[3]], dtype=f32))
    with p.fails(InvalidArgumentError, "at least vectors"):
        p.run(p.b.ResourceGatherNd(v, p.feed(np.int32(0)), dtype=f32))
    with p.fails(ShapeError, "must be <= params.rank"):
        p.b.ResourceGatherNd(v, [[0, 0, 0]], dtype=f32)
    other = p.b.VarHandleOp(dtype=f32, shape=(1,), shared_name="other")
    with p.fails(NotFoundError, "uninitialized"):
        p.run(p.b.ResourceGatherNd(other, [[0]], dtype=f32))


@pytest.mark.parametrize("indices", [[[2], [0], [2]], [[1, 1], [0, 1]], [1]])
@pytest.mark.parametrize("static", [True, False])
def test_the_gradient_of_gathering(p: Program, indices: Any, static: bool) -> None:
    v = variable(p, "Resource", matrix(np.float64))
    at = np.array(indices, np.int32)
    y = p.b.ResourceGatherNd(v, p.b.const(at) if static else p.feed(at), dtype=f64)
    dy = np.arange(1.0, 1.0 + p.run(y).size).reshape(p.run(y).shape)
    (dv,) = backward(p.b, [y], [p.b.const(dy)], [v])
    want = np.zeros((3, 2))
    np.add.at(want, tuple(at.T) if at.ndim > 1 else tuple(at), dy)
    if isinstance(dv, IndexedSlices):
        assert static
        dv = dv.as_tensor(p.b)
    assert p.run(dv).tolist() == want.tolist()


# *** references ***


def test_choosing_a_reference(p: Program) -> None:
    refs = [p.b.VariableV2(dtype=f32, shape=(1,), shared_name=f"r{i}") for i in range(3)]
    chosen = p.b.RefSelect(p.feed(np.int32(1)), refs)
    p.run(p.b.Assign(chosen, [5.0]))
    assert p.run(refs[1]).tolist() == [5]
    for index, match in ((3, r"range \[0, 3\)"), (-1, r"range \[0, 3\)"), ([0], "scalar")):
        with p.fails(InvalidArgumentError, match):
            p.run(p.b.Assign(p.b.RefSelect(p.feed(np.array(index, np.int32)), refs), [5.0]))


def test_reads_that_copy_nothing(p: Program) -> None:
    v = variable(p, "Resource", matrix(), assigned=False)
    with p.fails(NotFoundError, "uninitialized"):
        p.run(p.b.DisableCopyOnRead(v))
    p.run(p.b.AssignVariableOp(v, matrix()))
    p.run(p.b.DisableCopyOnRead(v))
