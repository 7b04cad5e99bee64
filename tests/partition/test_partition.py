"""Rules of partitioning: one test for each, on graphs made by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from headrace import dtypes, thresholds
from headrace.errors import HeadraceInternalError, InvalidArgumentError
from headrace.ir.builder import Builder
from headrace.ir.graph import Graph, Operation, Tensor
from headrace.ir.text import from_text
from headrace.partition import Part, partition
from tests.execute.loops import Loop, counting
from tests.execute.machine import DEAD
from tests.partition.machine import Parts, cut, names

pytestmark = pytest.mark.one_engine

A, B, C = names(3)


def new() -> Builder:
    return Builder(Graph())


def placed(b: Builder, *others: tuple[str, Sequence[Tensor | Operation]]) -> dict[Operation, str]:
    """Everything on A, except what `others` says."""
    of = dict.fromkeys(b.graph.operations, A)
    for device, what in others:
        of.update((x.op if isinstance(x, Tensor) else x, device) for x in what)
    return of


def kinds(part: Part, *types: str) -> list[str]:
    """The names of the operations of these types in a part."""
    return [op.name for op in part.ops if op.type in types]


def run(parts: Mapping[str, Part]) -> Parts:
    """The last of several runs in different orders."""
    return [Parts(parts, seed).run() for seed in range(10)][-1]


def inner_loop(b: Builder, start: Tensor, limit: Tensor) -> tuple[Loop, Tensor, Tensor]:
    """`j = start; while j < limit: j = j + 1` in a body: the loop, the sum, what j ends as."""
    inner = Loop(b, "inner")
    j, most = inner.var(start), inner.constant(limit)
    inner.goes_while(b.Less(j, most))
    added = b.AddV2(inner.body(j), inner.const(1), name="added")
    inner.next(j, added)
    return inner, added, inner.exit(j)


# *** edges ***


def test_what_stands_on_one_device_is_copied_as_it_is() -> None:
    b = new()
    loop, i = counting(b, 3)
    result = b.Identity(loop.exit(i))
    parts = cut(b.graph.operations, placed(b))
    assert list(parts) == [A]
    assert {op.name for op in parts[A].ops} == {op.name for op in b.graph.operations}
    assert run(parts).value(result) == 3


def test_a_tensor_crosses_once_to_a_device_however_many_use_it() -> None:
    b = new()
    x = b.Identity(b.const(3))
    users = [b.AddV2(x, x), b.Mul(x, x), b.Identity(x)]
    far = b.Identity(x)
    parts = cut(b.graph.operations, placed(b, (B, users), (C, [far])))
    assert kinds(parts[A], "_Send") == ["Identity/to_CPU_1", "Identity/to_CPU_2"]
    assert kinds(parts[B], "_Recv") == ["Identity/from_CPU_0"]
    assert kinds(parts[C], "_Recv") == ["Identity/from_CPU_0"]
    done = run(parts)
    assert [done.value(u) for u in (*users, far)] == [6, 9, 3, 3]
    assert sum(done.sent.values()) == 2


def test_each_output_crosses_by_itself() -> None:
    b = new()
    no, yes = b.Switch(b.Identity(b.const(3)), b.Identity(b.const(True)))
    ends = [b.Identity(no), b.Identity(yes)]
    parts = cut(b.graph.operations, placed(b, (B, ends)))
    done = run(parts)
    assert [done.value(e) for e in ends] == [DEAD, 3]
    assert set(done.sent) == {"Switch:0 -> CPU_1", "Switch:1 -> CPU_1"}


def test_copies_keep_what_they_are() -> None:
    g = from_text("x = _Arg[T=float32, index=3, shape=[2]]\ny = Square(x)\nr = _Retval[T=float32, index=5](y)")
    x, y, r = g.operations
    parts = cut(g.operations, {x: A, y: B, r: A})
    assert [op.name for op in parts[A].ops] == ["x", "x/to_CPU_1", "y/from_CPU_1", "r"]
    for op in g.operations:
        (copy,) = (c for p in parts.values() for c in p.ops if c.name == op.name)
        assert (copy.type, copy.attrs, copy.source) == (op.type, op.attrs, op.source)
        assert [t.shape for t in copy.outputs] == [t.shape for t in op.outputs]
    recv = parts[B].graph.find("x/from_CPU_0")
    assert recv is not None
    assert recv.outputs[0].shape == (2,)
    assert recv.source == x.source


def test_names_that_are_taken_are_left_alone() -> None:
    b = new()
    x = b.Identity(b.const(3), name="x")
    y = b.Identity(x, name="y")
    b.Identity(x, name="x/to_CPU_1")
    parts = cut(b.graph.operations, placed(b, (B, [y])))
    assert kinds(parts[A], "_Send") == ["x/to_CPU_1_1"]


def test_devices_of_several_processes_have_longer_names() -> None:
    b = new()
    x = b.Identity(b.const(3), name="x")
    y = b.Identity(x, name="y")
    there = "/job:worker/replica:0/task:2/device:CPU:1"
    of = placed(b)
    of[y.op] = there
    parts = partition(b.graph.operations, of)
    assert kinds(parts[A], "_Send") == ["x/to_worker_0_2_CPU_1"]
    assert kinds(parts[there], "_Recv") == ["x/from_localhost_0_0_CPU_0"]


# *** control edges ***


def test_a_control_edge_crosses_once_to_a_device() -> None:
    b = new()
    first = b.make("NoOp", (), {}, "first")
    after = b.after(first)
    users = [after.make("NoOp", (), {}) for _ in range(3)]
    parts = cut(b.graph.operations, placed(b, (B, users)))
    assert kinds(parts[A], "_ControlSend") == ["first/done_to_CPU_1"]
    assert kinds(parts[B], "_ControlRecv") == ["first/done_from_CPU_0"]
    done = run(parts)
    for u in users:
        assert done.value(u) == ()
    assert list(done.sent.values()) == [1]


@pytest.mark.parametrize("reads_first", [False, True])
def test_a_value_that_comes_anyway_tells_that_it_is_there(reads_first: bool) -> None:
    b = new()
    x = b.Identity(b.const(3))
    made = [lambda: b.after(x).make("NoOp", (), {}), lambda: b.Identity(x).op]
    users = [f() for f in (reversed(made) if reads_first else made)]
    parts = cut(b.graph.operations, placed(b, (B, users)))
    assert kinds(parts[A], "_Send", "_ControlSend") == ["Identity/to_CPU_1"]
    run(parts)


@pytest.mark.parametrize("side", [0, 1])
def test_one_side_of_a_switch_does_not_tell_of_the_switch(side: int) -> None:
    b = new()
    sides = b.Switch(b.Identity(b.const(3)), b.Identity(b.const(side == 0)))
    dead = b.Identity(sides[side])
    alive = b.after(sides[0]).make("NoOp", (), {})
    parts = cut(b.graph.operations, placed(b, (B, [dead, alive])))
    assert len(kinds(parts[A], "_Send", "_ControlSend")) == 2
    done = run(parts)
    assert done.value(dead) is DEAD
    assert done.value(alive) == ()


def test_a_dead_control_edge_is_dead_on_the_other_side() -> None:
    b = new()
    _, yes = b.Switch(b.Identity(b.const(3)), b.Identity(b.const(False)))
    gone = b.after(b.Identity(yes)).make("NoOp", (), {})
    there = b.after(gone).make("NoOp", (), {})
    done = run(cut(b.graph.operations, placed(b, (B, [there]))))
    assert done.value(there) is DEAD


# *** operations on several devices ***


def test_a_small_constant_is_copied_with_an_array_of_its_own() -> None:
    b = new()
    c = b.const([1, 2], name="c")
    users = [b.Identity(c), b.Identity(c), b.Neg(c)]
    parts = cut(b.graph.operations, placed(b, (B, users[:1]), (C, users[1:])))
    assert kinds(parts[B], "Const", "_Recv") == ["c/on_CPU_1"]
    assert kinds(parts[C], "Const", "_Recv") == ["c/on_CPU_2"]
    assert A not in parts, "nobody reads it there"
    arrays = [op.attrs["value"] for p in parts.values() for op in p.ops if op.type == "Const"]
    assert not np.shares_memory(*arrays)
    assert not arrays[1].flags.writeable


def test_a_large_constant_is_sent() -> None:
    b = new()
    c = b.const(np.zeros(thresholds.COPIED_CONSTANT_BYTES // 4 + 1, np.int32), name="c")
    parts = cut(b.graph.operations, placed(b, (B, [b.Identity(c)])))
    assert kinds(parts[A], "_Send") == ["c/to_CPU_1"]


def test_two_constants_of_one_array_do_not_share_it_across_devices() -> None:
    b = new()
    big = np.zeros((thresholds.COPIED_CONSTANT_BYTES, 2), np.int32)
    big.flags.writeable = False
    made = [b.make("Const", (), {"value": v, "dtype": dtypes.int32}, "c") for v in (big[:-1], big[1:])]
    cut(b.graph.operations, placed(b, (B, made[1:])))  # which checks it


def test_a_constant_of_one_element_seen_many_times_stays_small() -> None:
    b = new()
    value = np.broadcast_to(np.int32(7), (1 << 40,))
    made = [b.make("Const", (), {"value": value, "dtype": dtypes.int32}, "c") for _ in range(2)]
    parts = partition(b.graph.operations, placed(b, (B, made[1:])))
    copy = parts[B].graph.find("c_1")
    assert copy is not None
    assert copy.attrs["value"].strides == (0,)
    assert copy.attrs["value"][5] == 7


def test_a_constant_that_waits_is_not_copied() -> None:
    b = new()
    c = b.after(b.make("NoOp", (), {})).const(3, name="c")
    parts = cut(b.graph.operations, placed(b, (B, [b.Identity(c)])))
    assert kinds(parts[A], "_Send") == ["c/to_CPU_1"]


# *** loops ***


def _loop_with_work(b: Builder, trips: int, parallel_iterations: int = 10) -> tuple[Loop, Tensor, Tensor, Tensor]:
    """`i, s = 0, 0; while i < trips: i, s = i + 1, s + i * c`: the loop, the product, the Enter of c, the sum."""
    loop = Loop(b, "loop", parallel_iterations)
    i, s = loop.var(b.const(0)), loop.var(b.const(0))
    c = loop.constant(b.Identity(b.const(5), name="c"))
    limit = loop.constant(b.const(trips))
    loop.goes_while(b.Less(i, limit))
    work = b.Mul(loop.body(i), c, name="work")
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    loop.next(s, b.AddV2(loop.body(s), work))
    return loop, work, c, b.Identity(loop.exit(s))


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_loop_constant_crosses_once_and_what_changes_once_an_iteration(trips: int) -> None:
    b = new()
    _, work, c, result = _loop_with_work(b, trips)
    parts = cut(b.graph.operations, placed(b, (B, [work])))
    done = run(parts)
    assert done.value(result) == 5 * sum(range(trips))
    n = trips + 1  # iterations, the one in which the loop ends among them
    assert done.sent == {"c:0 -> CPU_1": 1, "Switch:1 -> CPU_1": n, "LoopCond:0 -> CPU_1": n, "work:0 -> CPU_0": n}
    assert c.op.name not in {op.name for op in parts[A].ops}, "nobody reads it there"


def test_a_constant_of_an_outer_loop_enters_twice_where_it_is_read() -> None:
    b = new()
    outer = Loop(b, "outer")
    i = outer.var(b.const(0))
    c, three = outer.constant(b.Identity(b.const(5), name="c")), outer.constant(b.const(3))
    outer.goes_while(b.Less(i, three))
    inner = Loop(b, "inner")
    j = inner.var(outer.body(i))
    step, limit = inner.constant(c), inner.constant(three)
    inner.goes_while(b.Less(j, limit))
    work = b.AddV2(inner.body(j), step, name="work")
    inner.next(j, work)
    outer.next(i, b.AddV2(inner.exit(j), outer.const(1)))
    result = b.Identity(outer.exit(i))
    parts = cut(b.graph.operations, placed(b, (B, [work])))
    done = run(parts)
    assert done.value(result) == 6
    assert done.sent["c:0 -> CPU_1"] == 1
    enters = [op for op in parts[B].ops if op.type == "Enter" and op.attrs["is_constant"]]
    assert [op.attrs["frame_name"] for op in enters] == ["outer", "inner"]
    assert enters[1].inputs[0].op is enters[0]


def test_a_small_loop_constant_does_not_cross() -> None:
    b = new()
    loop = Loop(b)
    i, five = loop.var(b.const(0)), loop.constant(b.const(5))
    loop.goes_while(b.Less(i, five))
    loop.next(i, b.AddV2(loop.body(i), five))
    result = b.Identity(loop.exit(i))
    less = loop.cond.op.inputs[0]
    done = run(cut(b.graph.operations, placed(b, (B, [less]))))
    assert done.value(result) == 5
    assert set(done.sent) == {"Merge:0 -> CPU_1", "Less:0 -> CPU_0", "LoopCond:0 -> CPU_1"}


def test_every_device_of_a_cut_loop_counts_and_gates_its_recvs() -> None:
    b = new()
    _, work, *_ = _loop_with_work(b, 4, parallel_iterations=3)
    parts = cut(b.graph.operations, placed(b, (B, [work])))
    for device, part in parts.items():
        merge = part.graph.find("LoopCond/control/Merge")
        assert merge is not None, device
        enter = merge.inputs[0].op
        assert (enter.attrs["frame_name"], enter.attrs["parallel_iterations"]) == ("loop", 3)
        for op in part.ops:
            if op.type == "_Recv":
                in_root = op.attrs["tensor_name"].startswith("c:")
                assert op.control_inputs == ([] if in_root else [merge])


def test_a_device_without_a_node_in_the_inner_loop_does_not_count_it() -> None:
    """The outer loop is on A and B, the inner loop on A and C.

    B has no control loop of the inner one, C has both.
    """
    b = new()
    outer = Loop(b, "outer")
    i, s, three = outer.var(b.const(0)), outer.var(b.const(0)), outer.constant(b.const(3))
    outer.goes_while(b.Less(i, three))
    _, added, end = inner_loop(b, outer.body(i), three)
    sum_ = b.AddV2(outer.body(s), end, name="sum")
    outer.next(i, b.AddV2(outer.body(i), outer.const(1)))
    outer.next(s, sum_)
    result = b.Identity(outer.exit(s))
    parts = cut(b.graph.operations, placed(b, (B, [sum_]), (C, [added])))
    loops = {d: {op.attrs["frame_name"] for op in p.ops if op.type == "Enter"} for d, p in parts.items()}
    assert loops == {A: {"outer", "inner"}, B: {"outer"}, C: {"outer", "inner"}}
    control = parts[C].graph.find("LoopCond_1/control/Enter")
    assert control is not None
    assert control.inputs[0].op.name == "LoopCond/control/Merge"
    assert run(parts).value(result) == 9


def test_a_loop_that_is_on_one_device_needs_no_control_loop_in_a_cut_one() -> None:
    b = new()
    outer = Loop(b, "outer")
    i, s, three = outer.var(b.const(0)), outer.var(b.const(0)), outer.constant(b.const(3))
    outer.goes_while(b.Less(i, three))
    before = len(b.graph)
    _, _, end = inner_loop(b, outer.body(i), three)
    inside = b.graph.operations[before:]
    outer.next(i, b.AddV2(outer.body(i), outer.const(1)))
    outer.next(s, b.AddV2(outer.body(s), end))
    result = b.Identity(outer.exit(s))
    parts = cut(b.graph.operations, placed(b, (B, inside)))
    assert [n for n in kinds(parts[B], "LoopCond", "Merge") if "control" in n] == ["LoopCond/control/Merge"]
    assert run(parts).value(result) == 9


# *** graphs that cannot be cut ***


def test_a_resource_stays_where_it_is() -> None:
    b = new()
    v = b.VarHandleOp(dtype=dtypes.float32, shape=(), name="v")
    loop = Loop(b)
    i, handle = loop.var(b.const(0)), loop.constant(v)
    loop.goes_while(b.Less(i, loop.constant(b.const(3))))
    read = b.ReadVariableOp(handle, dtype=dtypes.float32, name="read")
    loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
    with pytest.raises(InvalidArgumentError) as caught:
        partition(b.graph.operations, placed(b, (B, [read])))
    for text in ("'read' (ReadVariableOp, made at ", "'v' (VarHandleOp, made at ", f"on {B}", f"on {A}", "colocate"):
        assert text in str(caught.value)
    partition(b.graph.operations, placed(b, (B, [read, v])))  # the Enter goes with them


def test_a_reference_stays_where_it_is() -> None:
    b = new()
    v = b.VariableV2(shape=(), dtype=dtypes.float32, name="v")
    assign = b.Assign(v, b.const(1.0), name="assign")
    with pytest.raises(InvalidArgumentError, match=r"'assign' .*'v:0', a reference to a variable of float32"):
        partition(b.graph.operations, placed(b, (B, [assign])))


def test_a_reference_is_read_where_it_is_when_its_reader_may_fire() -> None:
    b = new()
    v = b.VariableV2(shape=(), dtype=dtypes.float32, name="v")
    assign = b.Assign(v, b.const(1.0), name="assign")
    read = dataclasses.replace(b, control_inputs=(assign.op,)).Neg(v, name="read")
    parts = cut(b.graph.operations, placed(b, (B, [read])))
    reader = next(op for op in parts[A].ops if op.name == "read/read_0")
    assert (reader.type, reader.inputs[0].op.name) == ("Identity", "v")
    assert [c.name for c in reader.control_inputs] == ["assign"]
    (send,) = [op for op in parts[A].ops if op.type == "_Send"]
    assert send.inputs[0] is reader.outputs[0]
    assert send.attrs["tensor_name"].startswith("v:0 for read")


def test_lists_may_cross() -> None:
    b = new()
    empty = b.EmptyTensorList(b.const([], dtypes.int32), 3, element_dtype=dtypes.int32)
    full = b.TensorListPushBack(empty, b.const(7), element_dtype=dtypes.int32)
    _, last = b.TensorListPopBack(full, b.const([], dtypes.int32), element_dtype=dtypes.int32)
    parts = cut(b.graph.operations, placed(b, (B, [full])))
    recv = next(op for op in parts[B].ops if op.type == "_Recv")
    assert recv.outputs[0].handle == empty.handle
    assert run(parts).value(last) == 7


def test_loop_plumbing_must_stand_together() -> None:
    b = new()
    _, i = counting(b, 3)
    merge = i.op
    for p in {t.op for t in merge.inputs}:
        with pytest.raises(HeadraceInternalError, match=f"'{p.name}'.* was placed on {B}, but the Merge"):
            partition(b.graph.operations, placed(b, (B, [p])))
    of = placed(b)
    del of[merge]
    with pytest.raises(HeadraceInternalError, match="has no device"):
        partition(b.graph.operations, of)


def test_a_cut_loop_needs_one_predicate() -> None:
    b = new()
    entered = b.Enter(b.const(3), frame_name="frame")
    x = b.Identity(b.Identity(entered, name="x"), name="y")
    b.Exit(x)
    partition(b.graph.operations, placed(b))
    with pytest.raises(InvalidArgumentError, match=r"the loop 'frame' is on several devices .*'y'.*has none"):
        partition(b.graph.operations, placed(b, (B, [x])))
    b = new()
    counting(b, 3, "same")
    b.LoopCond(b.Enter(b.const(True), is_constant=True, frame_name="same"), name="LoopCounterCond")
    partition(b.graph.operations, placed(b))
    less = next(op for op in b.graph.operations if op.type == "Less")
    with pytest.raises(InvalidArgumentError, match=r"the loop 'same' .*has several: 'LoopCond'.*'LoopCounterCond'"):
        partition(b.graph.operations, placed(b, (B, [less])))


# *** bfloat16 ***


def test_float32_crosses_as_bfloat16_when_asked() -> None:
    b = new()
    value = 1 + 2**-7 + 2**-20
    x, n = b.Identity(b.const(value), name="x"), b.Identity(b.const(7), name="n")
    near = b.Identity(x)
    users = [b.Identity(x), b.Neg(x), b.Identity(n), b.after(x).make("NoOp", (), {})]
    far = b.Identity(x)
    of = placed(b, (B, users), (C, [far]))
    parts = cut(b.graph.operations, of, bfloat16=True)
    assert kinds(parts[A], "Cast") == ["x/to_bfloat16"], "once for both devices"
    assert kinds(parts[B], "Cast") == ["x/from_bfloat16"]
    types = {op.name: op.attrs["tensor_type"].name for op in parts[B].ops if op.type == "_Recv"}
    assert types == {"x/from_CPU_0": "bfloat16", "n/from_CPU_0": "int32"}
    assert not kinds(parts[B], "_ControlRecv")
    done = run(parts)
    assert done.value(near) == np.float32(value)
    got = [done.value(t) for t in (*users[:3], far)]
    assert got == [np.float32(1 + 2**-7), -np.float32(1 + 2**-7), 7, np.float32(1 + 2**-7)]
    assert got[0].dtype == np.float32
    plain = cut(b.graph.operations, of)
    assert not any(op.type == "Cast" for p in plain.values() for op in p.ops)


def test_bfloat16_in_a_loop() -> None:
    b = new()
    loop = Loop(b)
    i, limit = loop.var(b.const(0.0)), loop.constant(b.Identity(b.const(3.0)))
    loop.goes_while(b.Less(i, limit))
    added = b.AddV2(loop.body(i), loop.const(1.0))
    loop.next(i, added)
    result = b.Identity(loop.exit(i))
    parts = cut(b.graph.operations, placed(b, (B, [added])), bfloat16=True)
    assert run(parts).value(result) == 3.0
