"""Variables in sessions: by handle and by reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    OpError,
    OutOfRangeError,
    ShapeError,
)
from headrace.grad.backward import backward
from headrace.grad.sums import dense
from headrace.ir.indexed_slices import IndexedSlices
from tests.ops.running import Program

f32, i32 = dtypes.float32, dtypes.int32


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def handle(p: Program, name: str = "v", shape: Any = (2,), dtype: dtypes.DType = f32) -> Any:
    return p.b.VarHandleOp(dtype=dtype, shape=shape, shared_name=name)


def ref(p: Program, shape: Any = (2,), dtype: dtypes.DType = f32, name: str = "r") -> Any:
    return p.b.VariableV2(shape=shape, dtype=dtype, name=name)


def read(p: Program, v: Any) -> Any:
    return p.run(p.b.ReadVariableOp(v, dtype=v.handle[0])).tolist()


# *** by handle ***


def test_a_variable_lives_as_long_as_the_session(p: Program) -> None:
    v = handle(p)
    p.run(p.b.AssignVariableOp(v, [1.0, 2.0]))
    assert read(p, v) == [1, 2]
    assert read(p, handle(p)) == [1, 2]  # the same name, so the same variable
    p.run(p.b.AssignAddVariableOp(v, [10.0, 10.0]))
    p.run(p.b.AssignSubVariableOp(v, [1.0, 0.0]))
    assert read(p, v) == [10, 12]
    with hr.Session(graph=p.graph) as other, p.fails(FailedPreconditionError, "uninitialized value v"):
        other.run(p.b.ReadVariableOp(v, dtype=f32))


def test_a_read_that_is_not_needed(p: Program) -> None:
    v = handle(p)

    def guarded(is_needed: bool) -> Any:
        return p.b._ReadVariableIfNeeded(v, is_needed, dtype=f32, shape=(2,))

    assert guarded(True).shape == (2,)
    assert p.run(guarded(False)).tolist() == [0, 0]
    assert p.run(guarded(False)).dtype == np.float32
    with p.fails(FailedPreconditionError, "uninitialized value v"):
        p.run(guarded(True))
    p.run(p.b.AssignVariableOp(v, [1.0, 2.0]))
    assert p.run([guarded(True), guarded(False)])[1].tolist() == [1, 2]
    destroyed = p.b.DestroyResourceOp(v)
    late = p.b.after(destroyed)
    assert p.run(late._ReadVariableIfNeeded(v, False, dtype=f32, shape=(2,))).tolist() == [0, 0]
    with p.fails(OpError, "v"):
        p.run(late._ReadVariableIfNeeded(v, True, dtype=f32, shape=(2,)))


def test_unnamed_variables_are_told_apart_by_their_ops(p: Program) -> None:
    a, b = p.b.VarHandleOp(dtype=f32, shape=(1,)), p.b.VarHandleOp(dtype=f32, shape=(1,))
    p.run([p.b.AssignVariableOp(a, [1.0]), p.b.AssignVariableOp(b, [2.0])])
    assert (read(p, a), read(p, b)) == ([1], [2])


def test_before_it_is_assigned(p: Program) -> None:
    v = handle(p)
    assert p.run(p.b.VarIsInitializedOp(v)) == np.False_
    for use, error in (
        (p.b.ReadVariableOp(v, dtype=f32), FailedPreconditionError),
        (p.b.AssignAddVariableOp(v, [1.0, 1.0]), NotFoundError),
        (p.b.VariableShape(v), NotFoundError),
        (p.b.ResourceGather(v, [0], dtype=f32), NotFoundError),
        (p.b.ResourceScatterAdd(v, [0], 1.0), NotFoundError),
        (p.b.ResourceApplyGradientDescent(v, 1.0, [1.0, 1.0]), InternalError),
        (p.b.DestroyResourceOp(v, ignore_lookup_error=False), NotFoundError),
    ):
        with p.fails(error, "uninitialized|does not exist"):
            p.run(use)
    p.run(p.b.DestroyResourceOp(v))


def test_destroying_makes_it_uninitialized(p: Program) -> None:
    v = handle(p)
    p.run(p.b.AssignVariableOp(v, [1.0, 2.0]))
    p.run(p.b.DestroyResourceOp(v, ignore_lookup_error=False))
    assert p.run(p.b.VarIsInitializedOp(v)) == np.False_
    p.run(p.b.AssignVariableOp(v, [3.0, 4.0]))
    assert read(p, v) == [3, 4]


def test_destroying_another_resource(p: Program) -> None:
    q = p.b.FIFOQueueV2(component_types=(f32,), shapes=((),), shared_name="q")
    p.run(p.b.QueueEnqueueV2(q, [1.0]))
    p.run(p.b.DestroyResourceOp(q, ignore_lookup_error=False))
    assert p.run(p.b.QueueSizeV2(q)) == 0


def test_variable_shape_is_that_of_the_value(p: Program) -> None:
    v = handle(p)
    p.run(p.b.AssignVariableOp(v, p.feed(np.zeros(3, np.float32))))  # its static shape is a promise, not a check
    shape = p.b.VariableShape(v, out_type=dtypes.int64)
    assert p.run(shape).tolist() == [3]
    assert p.run(shape).dtype == np.int64
    with p.fails(InvalidArgumentError, "shapes of both tensors to match"):
        p.run(p.b.AssignVariableOp(v, p.feed(np.zeros(4, np.float32)), validate_shape=True))
    with p.fails(InvalidArgumentError, r"with shape \[3\] using a Tensor with shape \[\], shapes must be equal"):
        p.run(p.b.AssignAddVariableOp(v, p.feed(np.float32(1))))
    assert p.b.ReadVariableOp(v, dtype=f32).shape == (2,)
    for wrong in (
        lambda: p.b.AssignVariableOp(v, [1.0]),
        lambda: p.b.AssignAddVariableOp(v, 1.0),
        lambda: p.b.ReadVariableOp(v, dtype=i32),
        lambda: p.b.ResourceScatterAdd(handle(p, "m", (2, 3)), [0], [[1.0, 2.0]]),
    ):
        with pytest.raises(ShapeError):
            wrong()


def test_a_name_keeps_its_dtype(p: Program) -> None:
    p.run(p.b.AssignVariableOp(handle(p), [1.0, 2.0]))
    with p.fails(InvalidArgumentError, "wrong dtype. Expected float32 got int32"):
        p.run(p.b.ReadVariableOp(handle(p, dtype=i32), dtype=i32))
    with p.fails(InvalidArgumentError, "as a Variable, but it is a Queue"):
        q = p.b.FIFOQueueV2(component_types=(f32,), name="q")
        p.run(p.b.ReadVariableOp(q, dtype=f32))


def test_what_was_read_does_not_change(p: Program) -> None:
    v = handle(p)
    p.run(p.b.AssignVariableOp(v, [1.0, 2.0]))
    before = p.b.ReadVariableOp(v, dtype=f32)
    add = p.b.after(before).ResourceScatterAdd(v, [0], 5.0)
    assert p.run([before, add])[0].tolist() == [1, 2]
    assert read(p, v) == [6, 2]


def test_variables_of_strings_and_lists(p: Program) -> None:
    s = handle(p, "s", (), dtypes.string)
    p.run(p.b.AssignVariableOp(s, b"text"))
    assert p.run(p.b.ReadVariableOp(s, dtype=dtypes.string)) == b"text"
    lists = handle(p, "l", (), dtypes.variant)
    one = p.b.TensorListFromTensor([1.0, 2.0], p.b.const([], i32))
    p.run(p.b.AssignVariableOp(lists, one))
    again = p.b.ReadVariableOp(lists, dtype=dtypes.variant)
    assert p.run(p.b.TensorListStack(again, -1, element_dtype=f32)).tolist() == [1, 2]


def test_a_gradient_reaches_the_variable(p: Program) -> None:
    v = handle(p, "m", (3, 2))
    p.run(p.b.AssignVariableOp(v, np.zeros((3, 2), np.float32)))
    value = p.b.ReadVariableOp(v, dtype=f32)
    (d,) = backward(p.b, [value], [value], [v])
    assert d is value
    some = p.b.ResourceGather(v, [[2], [2]], dtype=f32)
    (d,) = backward(p.b, [some], [p.b.const([[[1.0, 2.0]], [[3.0, 4.0]]])], [v])
    assert isinstance(d, IndexedSlices)
    assert p.run(d.values).tolist() == [[1, 2], [3, 4]]
    assert p.run(d.indices).tolist() == [2, 2]
    assert p.run(dense(p.b, d)).tolist() == [[0, 0], [0, 0], [4, 6]]


# *** by reference ***


def test_references(p: Program) -> None:
    r = ref(p)
    assert p.run(p.b.IsVariableInitialized(r)) == np.False_
    with p.fails(FailedPreconditionError, "Attempting to use uninitialized value r"):
        p.run(r)
    assert p.run(p.b.Assign(r, [1.0, 2.0])).tolist() == [1, 2]
    assert p.run(p.b.AssignAdd(r, [1.0, 1.0])).tolist() == [2, 3]
    assert p.run(p.b.AssignSub(r, [0.5, 0.5])).tolist() == [1.5, 2.5]
    assert p.run(p.b.IsVariableInitialized(r)) == np.True_


def test_a_reference_is_read_when_its_consumer_fires(p: Program) -> None:
    r = ref(p)
    p.run(p.b.Assign(r, [1.0, 2.0]))
    changed = p.b.Assign(r, [3.0, 4.0])
    assert p.run(p.b.after(changed).Neg(r)).tolist() == [-3, -4]


def test_assigning_another_shape_to_a_reference(p: Program) -> None:
    r = ref(p)
    three = p.feed(np.zeros(3, np.float32))
    with p.fails(InvalidArgumentError, r"lhs shape= \[2\] rhs shape= \[3\]"):
        p.run(p.b.Assign(r, three))
    assert p.run(p.b.Assign(r, three, validate_shape=False)).shape == (3,)
    with p.fails(InvalidArgumentError, "must be the same size"):
        p.run(p.b.AssignAdd(r, p.feed(np.zeros(4, np.float32))))
    with p.fails(InvalidArgumentError, r"Shape \[\?\] is not fully defined"):
        p.run(p.b.Assign(ref(p, (None,), name="partial"), three))
    with p.fails(InvalidArgumentError, r"lhs shape= \[\] rhs shape= \[3\]"):
        p.run(p.b.Assign(ref(p, None, name="unknown"), three))
    assert p.b.Variable(shape=(), dtype=f32).shape is None


def test_temporary_variables(p: Program) -> None:
    t = p.b.TemporaryVariable(shape=(2,), dtype=f32, var_name="t")
    assert p.run(p.b.DestroyTemporaryVariable(t, var_name="t")).tolist() == [0, 0]
    assigned = p.b.Assign(t, [1.0, 2.0])
    assert p.run(p.b.DestroyTemporaryVariable(assigned, var_name="t")).tolist() == [1, 2]
    with p.fails(NotFoundError, "does not exist"):
        p.run(p.b.DestroyTemporaryVariable(t, var_name="another"))
    twice = p.b.TemporaryVariable(shape=(2,), dtype=f32, var_name="t")
    with p.fails(AlreadyExistsError, "exists already"):
        p.run([p.b.Identity(t), p.b.Identity(twice)])


# *** counting and descending ***


def test_counting(p: Program) -> None:
    r, v = ref(p, (), i32, "c"), handle(p, "h", (), i32)
    p.run([p.b.Assign(r, 0), p.b.AssignVariableOp(v, 0)])
    for count in (p.b.CountUpTo(r, limit=2), p.b.ResourceCountUpTo(v, limit=2, T=i32)):
        assert [p.run(count), p.run(count)] == [0, 1]
        with p.fails(OutOfRangeError, "Reached limit of 2"):
            p.run(count)
    assert read(p, v) == 2


def test_gradient_descent(p: Program) -> None:
    r, v = ref(p), handle(p)
    p.run([p.b.Assign(r, [1.0, 2.0]), p.b.AssignVariableOp(v, [1.0, 2.0])])
    assert p.run(p.b.ApplyGradientDescent(r, 0.5, [1.0, 1.0])).tolist() == [0.5, 1.5]
    p.run(p.b.ResourceApplyGradientDescent(v, 0.5, [1.0, 1.0]))
    assert read(p, v) == [0.5, 1.5]
    one = p.feed(np.zeros(1, np.float32))
    with p.fails(InvalidArgumentError, r"alpha is not a scalar: \[1\]"):
        p.run(p.b.ApplyGradientDescent(r, one, [1.0, 1.0]))
    with p.fails(InvalidArgumentError, r"do not have the same shape\[2\] \[1\]"):
        p.run(p.b.ResourceApplyGradientDescent(v, 0.5, one))


# *** rows ***


def test_gathering(p: Program) -> None:
    v = handle(p, "m", (2, 3))
    p.run(p.b.AssignVariableOp(v, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]))
    for indices, batch, want in (
        (1, 0, [4, 5, 6]),
        ([[1], [0]], 0, [[[4, 5, 6]], [[1, 2, 3]]]),
        ([[0], [2]], 1, [[1], [6]]),
        ([0, 2], 1, [1, 6]),
    ):
        y = p.b.ResourceGather(v, indices, dtype=f32, batch_dims=batch)
        got = p.run(y)
        assert got.tolist() == want
        assert got.shape == y.shape
    for indices, batch, match in (
        ([0, 2], 0, r"indices\[1\] = 2 is not in \[0, 2\)"),
        (-1, 0, r"indices = -1 is not in \[0, 2\)"),
        ([[0], [3]], 1, r"indices\[1,0\] = 3 is not in \[0, 3\)"),
        ([0], 1, "batch_dims = 1"),
    ):
        with p.fails(InvalidArgumentError, match):
            p.run(p.b.ResourceGather(v, p.feed(np.int32(indices)), dtype=f32, batch_dims=batch))


SCATTERS = {
    "Update": [9, 2, 8],
    "Add": [8, 2, 11],
    "Sub": [-6, 2, -5],
    "Mul": [12, 2, 24],
    "Div": [1 / 12, 2, 3 / 8],
    "Min": [1, 2, 3],
    "Max": [4, 2, 8],
}


@pytest.mark.parametrize("name", SCATTERS)
@pytest.mark.parametrize("by_handle", [True, False])
def test_scattering(p: Program, name: str, by_handle: bool) -> None:
    v = handle(p, "m", (3,)) if by_handle else ref(p, (3,))
    if by_handle:
        p.run(p.b.AssignVariableOp(v, [1.0, 2.0, 3.0]))
    else:
        p.run(p.b.Assign(v, [1.0, 2.0, 3.0]))
    updates = [4.0, 3.0, 8.0] if name != "Update" else [4.0, 9.0, 8.0]
    made = p.b.make(("Resource" if by_handle else "") + f"Scatter{name}", [v, [0, 0, 2], updates], {})
    got = p.run(made)
    np.testing.assert_allclose(read(p, v) if by_handle else got, SCATTERS[name], 1e-6)


def test_scattering_rows_and_scalars(p: Program) -> None:
    v = handle(p, "m", (2, 2))
    p.run(p.b.AssignVariableOp(v, np.zeros((2, 2), np.float32)))
    p.run(p.b.ResourceScatterUpdate(v, [[1]], [[[3.0, 4.0]]]))
    p.run(p.b.ResourceScatterAdd(v, [0, 1], 1.0))
    p.run(p.b.ResourceScatterAdd(v, p.b.const([], i32), np.zeros((0, 2), np.float32)))
    assert read(p, v) == [[1, 1], [4, 5]]


def test_integer_division_rounds_to_zero(p: Program) -> None:
    r = ref(p, (3,), i32)
    p.run(p.b.Assign(r, [-7, 7, -7]))
    assert p.run(p.b.ScatterDiv(r, [0, 1, 2, 2], [2, -2, -2, 2])).tolist() == [-3, -3, 1]
    with p.fails(InvalidArgumentError, "division by zero"):
        p.run(p.b.ScatterDiv(r, [0], [0]))


def test_scatters_that_do_not_fit(p: Program) -> None:
    v, r = handle(p, "m", None), ref(p, (3,))
    p.run([p.b.AssignVariableOp(v, 1.0), p.b.Assign(r, [1.0, 2.0, 3.0])])
    with p.fails(InvalidArgumentError, "params must be at least 1-D"):
        p.run(p.b.ResourceScatterAdd(v, [0], [1.0]))
    with p.fails(InvalidArgumentError, "Must have updates.shape = indices.shape"):
        p.run(p.b.ScatterAdd(r, [0], p.feed(np.zeros(2, np.float32))))
    for bad in (-1, 3):
        with p.fails(InvalidArgumentError, rf"indices\[1\] = {bad} is not in \[0, 3\)"):
            p.run(p.b.ScatterAdd(r, [0, bad], [1.0, 1.0]))
    assert p.run(p.b.Identity(r)).tolist() == [1, 2, 3]  # nothing was written
