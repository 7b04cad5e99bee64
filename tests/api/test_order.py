"""The order of stateful operations: which wait for which, and which do not."""

from __future__ import annotations

import pytest

import headrace as hr
from headrace.api import scopes
from headrace.ir import walk
from headrace.ir.graph import Operation, Tensor


def waits(later: Operation | Tensor, earlier: Operation | Tensor) -> bool:
    """Whether `later` comes after `earlier` by edges of the graph."""
    ops = [x.op if isinstance(x, Tensor) else x for x in (later, earlier)]
    return ops[1] in walk.reachable([ops[0]])


def test_reads_and_writes_of_one_variable(g: hr.Graph) -> None:
    v, w = hr.Variable(1.0), hr.Variable(2.0)
    first, again = v.value(), v.value()
    write = v.assign(3.0).op
    after = v.read_value()
    assert not waits(again, first)
    assert waits(write, first)
    assert waits(write, again)
    assert waits(after, write)
    assert not waits(w.read_value(), write)
    assert not waits(v.initializer, write)
    assert not waits(after, v.initializer)


def test_what_a_body_touches_its_owner_touches(g: hr.Graph) -> None:
    v, w = hr.Variable(1.0), hr.Variable(2.0)
    before = v.value()
    loop = hr.while_loop(lambda i: i < 3, lambda i: (v.assign_add(1.0), i + 1)[1], hr.constant(0))
    branch = hr.cond(loop < 3, lambda: w.value(), lambda: 0.0)
    assert waits(loop, before)
    assert waits(v.read_value(), loop)
    assert not waits(w.assign(1.0).op, v.assign(1.0).op)
    assert waits(w.assign(1.0).op, branch)


@pytest.mark.parametrize("is_outside", [False, True])
def test_a_write_waits_for_an_earlier_loop_only_if_the_loop_contains_the_read(g: hr.Graph, is_outside: bool) -> None:
    v = hr.Variable(1.0)
    read = v.read_value() if is_outside else v
    _, loop = hr.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, s + read), [0, 0.0])
    assert waits(v.assign(3.0, read_value=False), loop) != is_outside


def test_two_handles_of_one_name_are_one_variable(g: hr.Graph) -> None:
    b = scopes.builder()
    one, two = (b.VarHandleOp(dtype=hr.int32, shape=(), shared_name="v") for _ in range(2))
    write = b.AssignVariableOp(one, 1)
    assert waits(b.ReadVariableOp(two, dtype=hr.int32), write)


def test_a_handle_that_may_be_any(g: hr.Graph) -> None:
    b = scopes.builder()
    v, w, other = (hr.Variable(1.0) for _ in range(3))
    which = hr.cond(hr.placeholder(hr.bool, ()), lambda: v.handle, lambda: w.handle)
    before = other.assign(2.0).op
    write = b.AssignVariableOp(which, 5.0)
    assert waits(write, before)
    assert waits(v.read_value(), write)


def test_printing_is_ordered_and_queues_are_not(g: hr.Graph) -> None:
    b = scopes.builder()
    x = hr.constant(1)
    one, two = hr.Print(x, [x]), hr.Print(x, [x])
    assert waits(two, one)
    assert waits(b.Assert(hr.constant(True), [x]), two)
    q = hr.FIFOQueue(1, [hr.int32], shapes=[()])
    assert not waits(q.dequeue(), q.enqueue(x))


def test_random_ops_do_not_wait_for_one_another(g: hr.Graph) -> None:
    assert not waits(hr.random.uniform([2]), hr.random.uniform([2]))


@pytest.mark.parametrize("ordered", [True, False])
def test_graphs_without_order(ordered: bool) -> None:
    with hr.Graph(ordered=ordered) as g:
        v = hr.Variable(1.0)
        write = v.assign(3.0).op
        after = v.read_value()
        out = hr.cond(hr.constant(True), lambda: (v.assign(7.0), 5.0)[1], lambda: 6.0)
    assert waits(after, write) == ordered
    with hr.Session(graph=g) as session:
        session.run(v.initializer)
        assert session.run(out) == 5.0
        assert session.run(v) == (7.0 if ordered else 1.0)
