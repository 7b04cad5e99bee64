"""Kernels that compiled steps make once for their variables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import HeadraceError
from headrace.ir.graph import Operation, Tensor
from tests.compile.running import b, same

ENGINES = ("compiled", "interpret")


@pytest.fixture(params=ENGINES)
def session(request: pytest.FixtureRequest) -> Iterator[hr.Session]:
    with hr.Graph(ordered=False) as g, hr.Session(graph=g, engine=request.param) as s:
        yield s


def handle(name: str = "v", dtype: Any = hr.float32, shape: Any = (2,)) -> Tensor:
    made: Tensor = b().VarHandleOp(shared_name=name, dtype=dtype, shape=shape)
    return made


def read(h: Tensor, dtype: Any = hr.float32) -> Tensor:
    value: Tensor = b().ReadVariableOp(h, dtype=dtype)
    return value


def assign(h: Tensor, value: Any) -> Operation:
    made: Operation = b().AssignVariableOp(h, np.array(value, np.float32))
    return made


def failure(f: Callable[[], Any]) -> tuple[type, str]:
    with pytest.raises(HeadraceError) as found:
        f()
    return type(found.value), str(found.value).split("\n")[0]


def test_reads_are_bound(session: hr.Session) -> None:
    h = handle()
    session.run(assign(h, [1, 2]))
    told = session.explain(read(h))
    assert "run.bound[0]()" in told.source or told.engine == "interpret"


def test_a_read_follows_writes_of_its_own_step(session: hr.Session) -> None:
    h = handle()
    session.run(assign(h, [1, 2]))
    first = read(h)
    with hr.control_dependencies([first]):
        add = b().AssignAddVariableOp(h, np.float32([10, 20]))
    with hr.control_dependencies([add]):
        second = read(h)
    for k in range(3):
        before, after = session.run([first, second])
        same(before, np.float32([1 + 10 * k, 2 + 20 * k]))
        same(after, np.float32([11 + 10 * k, 22 + 20 * k]))


def test_a_fetched_value_stays(session: hr.Session) -> None:
    h = handle()
    session.run(assign(h, [1, 2]))
    value = read(h)
    kept = session.run(value)
    session.run(b().AssignAddVariableOp(h, np.float32([10, 20])))
    same(kept, np.float32([1, 2]))
    same(session.run(value), np.float32([11, 22]))


def test_dropped_variables(session: hr.Session) -> None:
    """After a container was cleared the handle names another variable, which is not initialized."""
    h = handle()
    value, first, other = read(h), assign(h, [1, 2]), assign(h, [3, 4])
    session.run(first)
    same(session.run(value), np.float32([1, 2]))
    session.clear_container()
    kind, text = failure(lambda: session.run(value))
    assert kind is hr.errors.FailedPreconditionError
    assert "uninitialized value v" in text
    session.run(other)
    same(session.run(value), np.float32([3, 4]))


def test_destroyed_variables(session: hr.Session) -> None:
    h = handle()
    value, first, gone = read(h), assign(h, [1, 2]), b().DestroyResourceOp(h)
    add = b().AssignAddVariableOp(h, np.float32([1, 1]))
    session.run(first)
    session.run([value])
    session.run(gone)
    assert failure(lambda: session.run(value))[0] is hr.errors.FailedPreconditionError
    assert failure(lambda: session.run(add))[0] is hr.errors.NotFoundError
    session.run(first)
    session.run(add)
    same(session.run(value), np.float32([2, 3]))


def test_sessions_have_their_own_variables() -> None:
    with hr.Graph(ordered=False) as g:
        h = handle()
        value, first, other = read(h), assign(h, [1, 2]), assign(h, [3, 4])
        with hr.Session(graph=g) as one, hr.Session(graph=g) as two:
            one.run(first)
            two.run(other)
            for _ in range(2):
                same(one.run(value), np.float32([1, 2]))
                same(two.run(value), np.float32([3, 4]))


def test_an_unsuitable_variable_fails_the_operation_on_it() -> None:
    """Another graph may have made a variable of this name and of another dtype."""
    told = []
    for engine in ENGINES:
        with hr.Graph(ordered=False) as g, hr.Session(graph=g, engine=engine) as s:
            whole, h = handle(dtype=hr.int32), handle()
            s.run(b().AssignVariableOp(whole, np.int32([1, 2])))
            is_read = hr.placeholder(hr.bool, [])
            value = hr.cond(is_read, lambda h=h: read(h), lambda: hr.constant([5.0, 6.0]))
            for _ in range(2):
                same(s.run(value, {is_read: False}), np.float32([5, 6]))
                told.append(failure(lambda s=s, value=value, is_read=is_read: s.run(value, {is_read: True})))
            s.clear_container()
            s.run(assign(h, [7, 8]))
            same(s.run(value, {is_read: True}), np.float32([7, 8]))
    assert len(set(told)) == 1
    assert "wrong dtype" in told[0][1]


def test_a_variable_of_a_branch_exists_only_if_the_branch_runs(session: hr.Session) -> None:
    takes = hr.placeholder(hr.bool, [])

    def then() -> Tensor:
        h = handle("inner")
        with hr.control_dependencies([assign(h, [1, 2])]):
            return read(h)

    y = hr.cond(takes, then, lambda: hr.constant([0.0, 0.0]))
    names = session._target.resources.names
    same(session.run(y, {takes: False}), np.float32([0, 0]))
    assert "inner" not in [name for _, _, name in names()]
    same(session.run(y, {takes: True}), np.float32([1, 2]))
    assert "inner" in [name for _, _, name in names()]


def test_a_fed_variable_takes_the_place_of_the_bound_one(session: hr.Session) -> None:
    v = hr.Variable(np.float32([1, 2]), name="w")
    session.run(v.initializer)
    y = v * 2.0
    same(session.run(y), np.float32([2, 4]))
    same(session.run(y, {v: np.float32([5, 6])}), np.float32([10, 12]))
    same(session.run(y), np.float32([2, 4]))


def test_a_handle_that_is_fetched(session: hr.Session) -> None:
    h = handle("kept")
    found = session.run(h)
    assert (found.name, found.kind) == ("kept", "Variable")


def test_a_variable_as_its_own_slot_fails() -> None:
    told = []
    for engine in ENGINES:
        with hr.Graph(ordered=False) as g, hr.Session(graph=g, engine=engine) as s:
            h = handle()
            s.run(assign(h, [1, 2]))
            one = np.float32(1)
            step = b().ResourceApplyMomentum(h, h, one, np.float32([1, 1]), one)
            told += [failure(lambda s=s, step=step: s.run(step)) for _ in range(2)]
    assert len(set(told)) == 1
    assert "variables of their own" in told[0][1]
