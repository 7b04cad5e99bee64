"""The session as an object: its state between runs, its end, operations that it refuses."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import pipeline
from headrace.errors import CancelledError, FeedError, InvalidArgumentError
from tests.execute.loops import Loop, counting
from tests.inside import manager_of
from tests.session.helpers import builder, call, session


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each step that is compiled."""
    seen: list[Any] = []
    original = pipeline.compile_step

    def compile_step(*args: Any) -> Any:
        seen.append(args)
        return original(*args)

    monkeypatch.setattr(pipeline, "compile_step", compile_step)
    return seen


# *** the plan cache ***


def test_the_same_run_is_compiled_once(compiled: list[Any]) -> None:
    b = builder()
    x = b.Placeholder(dtype="float32", shape=())
    y = b.Mul(x, b.const(2.0))
    with session(b) as s:
        for i in range(5):
            assert s.run(y, {x: i}) == 2 * i
        assert len(compiled) == 1
        s.run([y], {x: 1})
        s.run([y], {x: 2})
        assert len(compiled) == 2
        s.run(y.name, {x.name: 1})
        s.run(y.name, {x.name: 1})
        assert len(compiled) == 3
        s.run(x, {x: 1})
        s.run([y, x], {x: 1})
        s.run([x, y], {x: 1})
        s.run((x, y), {x: 1})
        s.run({"x": x}, {x: 1})
        s.run({"y": x}, {x: 1})
        assert len(compiled) == 9


def test_another_order_of_feeds_is_another_call_but_right(compiled: list[Any]) -> None:
    b = builder()
    x, y = b.Placeholder(dtype="int32", shape=()), b.Placeholder(dtype="int32", shape=())
    z = b.Sub(x, y)
    with session(b) as s:
        for _ in range(2):
            assert s.run(z, {x: 5, y: 3}) == 2
            assert s.run(z, {y: 3, x: 5}) == 2
        assert len(compiled) == 2


def test_growth_makes_a_new_step_and_says_so_once(compiled: list[Any]) -> None:
    b = builder()
    y = b.const(1)
    with session(b) as s:
        s.run(y)
        b.const(2)  # built in two stages: nothing to complain about
        s.run(y)
        assert len(compiled) == 2
        newest = b.const(3, name="newest")
        with pytest.warns(UserWarning, match="the graph grows between runs") as caught:
            s.run(y)
        assert newest.op.name in str(caught[0].message)
        assert "test_session.py" in str(caught[0].message)
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(3):
                b.const(4)
                s.run(y)


def test_what_was_added_can_be_run() -> None:
    b = builder()
    x = b.const(1)
    with session(b) as s:
        assert s.run(x) == 1
        y = b.AddV2(x, x)
        assert s.run([x, y]) == [1, 2]


def test_a_failed_compilation_is_not_kept() -> None:
    b = builder()
    loop, i = counting(b, 2)
    bad = b.graph.add_op("AddV2", "bad", [i, b.const(1)], {"T": hr.int32})
    with session(b) as s:
        for _ in range(2):
            with pytest.raises(InvalidArgumentError, match="inputs from different frames"):
                s.run(bad.outputs[0])
        assert s.run(loop.exit(i)) == 2


def test_two_sessions_of_one_graph_share_nothing_but_the_graph() -> None:
    b = builder()
    v = b.VarHandleOp(dtype="float32", shape=())
    init, read = b.AssignVariableOp(v, b.const(1.0)), b.ReadVariableOp(v, dtype="float32")
    with session(b) as one, session(b) as two:
        one.run(init)
        assert one.run(read) == 1
        with pytest.raises(hr.errors.FailedPreconditionError):
            two.run(read)


# *** make_callable ***


def test_callables() -> None:
    b = builder()
    x, y = b.Placeholder(dtype="float32", shape=()), b.Placeholder(dtype="float32", shape=())
    z = b.Sub(x, y)
    with session(b) as s:
        f = s.make_callable({"z": z, "x": x}, [x, y])
        assert f(5, 3) == {"z": 2, "x": 5}
        assert f(1, 1) == {"z": 0, "x": 1}
        assert s.make_callable(b.const(4))() == 4
        assert s.make_callable(z.op, [x.name, y])(1, 2) is None
        with pytest.raises(FeedError, match=r"takes 2 values .*, got 1"):
            f(1)
        with pytest.raises(FeedError, match=x.name):
            f("text", 1)
        with pytest.raises(TypeError, match="accept_options=True"):
            f(1, 2, options=hr.RunOptions())
        with pytest.raises(ValueError, match="cannot be interpreted as a Tensor"):
            s.make_callable("nothing:0")
        with pytest.raises(FeedError, match="Cannot interpret"):
            s.make_callable(z, ["nothing:0"])
        events: list[Any] = []
        g = s.make_callable(z, [x, y], accept_options=True)
        assert g(3, 1, options=hr.RunOptions(listener=events.append)) == 2
        assert events
        assert g(3, 1) == 2
    with pytest.raises(RuntimeError, match="closed Session"):
        f(1, 2)


def test_a_callable_goes_on_when_the_graph_grows() -> None:
    b = builder()
    x = b.Placeholder(dtype="int32", shape=())
    y = b.AddV2(x, x)
    with session(b) as s:
        f = s.make_callable(y, [x])
        assert f(1) == 2
        b.const(1)
        assert f(2) == 4


# *** making one ***


def test_a_session_needs_a_graph() -> None:
    with pytest.raises(ValueError, match="no graph"):
        hr.Session()
    with hr.Graph() as g:
        assert hr.Session().graph is g


@pytest.mark.parametrize(
    ("kwargs", "why"),
    [
        ({"target": "grpc://host:1"}, "Session target"),
        ({"config": {"gpu_options": 1}}, "config has no"),
        ({"inter_op_threads": 0, "config": {"inter_op_parallelism_threads": -1}}, "at least 1"),
        ({"intra_op_threads": 0}, "at least 1"),
    ],
)
def test_arguments_that_are_wrong(kwargs: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        hr.Session(graph=hr.Graph(), **kwargs)


def test_devices() -> None:
    b = builder()
    x = b.on("/device:CPU:1").const(1)
    y = b.on("/job:worker/device:GPU:0").Identity(x)
    with session(b) as s:
        assert s.run(y) == 1
    with session(b, config={"allow_soft_placement": False, "device_count": {"CPU": 2}}) as s:
        assert s.run(x) == 1
        with pytest.raises(InvalidArgumentError, match="Cannot assign a device for operation Identity"):
            s.run(y)
    with (
        session(b, config={"allow_soft_placement": False}) as s,
        pytest.raises(InvalidArgumentError, match="Cannot assign a device for operation Const"),
    ):
        s.run(x)


# *** ending one ***


def test_closing() -> None:
    b = builder()
    x = b.const(1)
    s = session(b)
    s.run(x)
    s.close()
    s.close()
    for use in (
        lambda: s.run(x),
        lambda: s.make_callable(x),
        lambda: s.partial_run_setup(x),
        lambda: s.partial_run("h", x),
    ):
        with pytest.raises(RuntimeError, match="closed Session"):
            use()


def test_a_with_block_closes_after_an_error_too() -> None:
    b = builder()
    x = b.const(1)
    s = session(b)
    with pytest.raises(ZeroDivisionError), s:
        raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="closed Session"):
        s.run(x)


class Resource:
    """A resource that tells when it is let go."""

    def __init__(self, gone: list[str], name: str) -> None:
        self.gone, self.name = gone, name

    def release(self) -> None:
        self.gone.append(self.name)


def test_what_the_session_owns_is_released_when_it_closes(custom: None) -> None:
    b = builder()
    gone: list[str] = []
    make = call(
        b, "Stateful", lambda ctx: ctx.step.session.create("", Resource, "r", Resource(gone, "r")) and None, out=()
    )
    s = session(b)
    s.run(make)
    assert not gone
    s.close()
    assert gone == ["r"]


def test_what_a_step_owns_is_released_when_it_ends(custom: None) -> None:
    b = builder()
    gone: list[str] = []

    def make(ctx: Any) -> Any:
        ctx.step.resources.create("", Resource, "r", Resource(gone, f"step {ctx.step.id}"))
        return np.int32(ctx.step.id)

    x = call(b, "Stateful", make, scalar=True)
    fail = b.after(x).FloorDiv(x, b.const(0))
    with session(b) as s:
        first, second = s.run(x), s.run(x)
        assert first != second
        assert gone == [f"step {first}", f"step {second}"]
        with pytest.raises(InvalidArgumentError):
            s.run(fail)
        assert len(gone) == 3
        handle = s.partial_run_setup([x])
        s.partial_run(handle, x)
        assert len(gone) == 4


def test_clear_container(custom: None) -> None:
    b = builder()
    v = b.VarHandleOp(dtype="float32", shape=(), shared_name="v")
    init, read = b.AssignVariableOp(v, b.const(1.0)), b.ReadVariableOp(v, dtype="float32")
    with session(b) as s:
        s.run(init)
        assert s.run(read) == 1
        s.clear_container()
        with pytest.raises(hr.errors.FailedPreconditionError):
            s.run(read)


@pytest.mark.system
def test_a_session_that_is_forgotten_lets_go(custom: None) -> None:
    b = builder()
    gone: list[str] = []
    make = call(
        b, "Stateful", lambda ctx: ctx.step.session.create("", Resource, "r", Resource(gone, "r")) and None, out=()
    )
    loop, i = counting(b, 3)
    s = session(b)
    s.run([make, loop.exit(i)])
    reference = weakref.ref(s)
    del s
    gc.collect()
    assert reference() is None
    assert gone == ["r"]


@pytest.mark.system
def test_a_forgotten_session_does_not_hold_its_graph() -> None:
    b = builder()
    loop, i = counting(b, 3)
    s = session(b)
    s.run(loop.exit(i))
    graph = weakref.ref(b.graph) if hasattr(b.graph, "__weakref__") else None
    del s, b, loop, i
    gc.collect()
    assert graph is None or graph() is None


# *** large graphs ***


@pytest.mark.system
def test_a_long_chain_and_deep_loops_need_no_deep_stack() -> None:
    b = builder()
    x = b.Placeholder(dtype="int32", shape=())
    y = x
    for _ in range(3000):
        y = b.AddV2(y, b.const(1))
    with session(b) as s:
        assert s.run(y, {x: 5}) == 3005
    b = builder()
    loops: list[Loop] = []
    value = b.const(0)
    for depth in range(40):
        outer = loops[-1] if loops else None
        loop = Loop(b, f"loop{depth}")
        make = outer.const if outer else b.const
        i, value = loop.var(make(0)), loop.var(value)
        loop.goes_while(b.Less(i, loop.constant(make(1))))
        loop.next(i, b.AddV2(loop.body(i), loop.const(1)))
        loops.append(loop)
        loop.merges = [i, value]
        value = loop.body(value)
    value = b.AddV2(value, loops[-1].const(7))
    for loop in reversed(loops):
        loop.next(loop.merges[1], value)
        value = loop.exit(loop.merges[1])
    with session(b) as s:
        assert s.run(value, timeout_ms=60_000) == 7


# *** refused operations ***


def test_copying_and_pickling_are_refused() -> None:
    b = builder()
    x = b.const(1)
    with session(b) as s:
        things: list[Any] = [b.graph, x, x.op, s]
        for thing in things:
            for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
                with pytest.raises(TypeError, match=r"cannot be (pickled|copied)"):
                    attempt(thing)


def test_errors_can_be_pickled_and_dtypes_too() -> None:
    e = InvalidArgumentError("what was wrong", "node")
    back = pickle.loads(pickle.dumps(e))
    assert type(back) is InvalidArgumentError
    assert back.message == "what was wrong"
    assert pickle.loads(pickle.dumps(hr.float32)) is hr.float32


def test_symbolic_tensors_have_no_value() -> None:
    x = builder().const([1, 2])
    for use in (bool, len, list, np.asarray):
        with pytest.raises(TypeError, match="symbolic tensor"):
            use(x)  # type: ignore[operator]


def test_a_closed_session_cancels_a_partial_run(custom: None) -> None:
    b = builder()
    gone: list[str] = []
    p = b.Placeholder(dtype="int32", shape=())
    x = call(
        b, "Stateful", lambda ctx: ctx.step.resources.create("", Resource, "r", Resource(gone, "r")) and np.int32(1)
    )
    y = b.AddV2(x, p)
    s = session(b)
    handle = s.partial_run_setup([x, y], [p])
    assert s.partial_run(handle, x) == 1
    assert not gone
    s.close()
    assert gone == ["r"]
    with pytest.raises(RuntimeError):
        s.partial_run(handle, y, {p: 1})


def test_kernels_of_a_closed_session_make_no_new_resources(custom: None) -> None:
    b = builder()
    s = session(b)
    seen: list[BaseException] = []

    def close_and_create(ctx: Any) -> Any:
        manager_of(s).close()
        try:
            ctx.step.session.create("", Resource, "late", Resource([], "late"))
        except CancelledError as e:
            seen.append(e)
        return np.int32(0)

    s.run(call(b, "Stateful", close_and_create, scalar=True))
    assert len(seen) == 1
    s.close()
