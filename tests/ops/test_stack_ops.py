"""Stacks in sessions."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from headrace import dtypes
from headrace.errors import InternalError, InvalidArgumentError, NotFoundError
from headrace.resources.manager import Handle, ResourceManager, resource_of
from headrace.resources.stack import Stack
from tests.ops.running import Program

f32, i32 = dtypes.float32, dtypes.int32


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def test_push_and_pop(p: Program) -> None:
    s = p.b.StackV2(-1, elem_type=f32)
    first = p.b.StackPushV2(s, [1.0, 2.0])
    second = p.b.after(first).StackPushV2(s, 3.0)
    x = p.b.after(second).StackPopV2(s, elem_type=f32)
    y = p.b.after(x).StackPopV2(s, elem_type=f32)
    for _ in range(2):  # each step has a stack of its own
        got = p.run([first, x, y])
        assert [v.tolist() for v in got] == [[1, 2], 3, [1, 2]]


def test_the_ops_before_v2_go_by_name(p: Program) -> None:
    s = p.b.Stack(elem_type=f32)
    pushed = p.b.StackPush(s, 3.0)
    assert p.run(p.b.after(pushed).StackPop(s, elem_type=f32)) == 3
    closed = p.b.after(pushed).StackClose(s)
    with p.fails(InvalidArgumentError, "has already been closed"):
        p.run(p.b.after(closed).StackPop(s, elem_type=f32))
    with p.fails(InvalidArgumentError, "Stack handle must have two elements"):
        v = p.b.VariableV2(shape=(1,), dtype=dtypes.string)
        p.run(p.b.StackPop(p.b.Assign(v, np.array([b"x"], object)), elem_type=f32))
    with p.fails(NotFoundError, "nowhere/x/Stack does not exist"):
        v = p.b.VariableV2(shape=(2,), dtype=dtypes.string)
        p.run(p.b.StackPop(p.b.Assign(v, np.array([b"nowhere", b"x"], object)), elem_type=f32))


def test_a_stack_refuses_what_does_not_fit(p: Program) -> None:
    s = p.b.StackV2(1, elem_type=f32, stack_name="s")
    with p.fails(InvalidArgumentError, r"Stack\[s_\d+\] is empty when calling Pop\(\)"):
        p.run(p.b.StackPopV2(s, elem_type=f32))
    first = p.b.StackPushV2(s, 1.0)
    with p.fails(InvalidArgumentError, r"overflowed its max_size \(1\)"):
        p.run(p.b.after(first).StackPushV2(s, 1.0))
    with p.fails(InvalidArgumentError, "Must have type float32 but got int32"):
        p.run(p.b.StackPushV2(s, 1))
    with p.fails(InternalError, "does not match declared output type int32"):
        p.run(p.b.after(first).StackPopV2(s, elem_type=i32))
    with p.fails(InvalidArgumentError, "already been closed"):
        p.run(p.b.after(p.b.StackCloseV2(s)).StackPushV2(s, 1.0))
    with p.fails(InvalidArgumentError, r"Stack size must be a scalar, but had shape: \[1\]"):
        p.run(p.b.StackCloseV2(p.b.StackV2(p.feed([1], i32), elem_type=f32)))


def test_a_stack_ends_with_its_step(p: Program) -> None:
    s = p.b.StackV2(-1, elem_type=f32)
    old = p.run(s)
    assert old == Handle("", "_stacks", "Stack", "StackV2_0", True, "float32")
    with p.fails(NotFoundError, r"Resource _stacks/StackV2_0/Stack does not exist"):
        resource_of(SimpleNamespace(session=ResourceManager(), resources=ResourceManager()), old, Stack)
