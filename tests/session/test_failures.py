"""Errors of runs that fail: class, operation, line, loop and iteration, inputs, cause."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import (
    FailedPreconditionError,
    HeadraceInternalError,
    InternalError,
    InvalidArgumentError,
    OpError,
    OutOfRangeError,
    ResourceExhaustedError,
    UnimplementedError,
)
from headrace.ir.builder import Builder
from headrace.ir.source import Source
from tests.execute.loops import Loop, counting, dead
from tests.session.helpers import builder, call, session


def here() -> str:
    """`file:line` of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return f"{__file__}:{frame.f_back.f_lineno}"


def text(e: BaseException) -> str:
    """An error as a traceback shows it, notes included."""
    return "".join(traceback.format_exception_only(e))


def failing_loop(b: Builder, error: Any, at: int = 1000) -> tuple[hr.Tensor, hr.Tensor]:
    """Makes a loop whose kernel 'step' fails in iteration `at`.

    Returns the loop's result and the kernel's output.
    """
    loop = Loop(b, "while/context")
    i = loop.var(b.const(0))
    loop.goes_while(b.Less(i, loop.constant(b.const(2000))))

    def step(ctx: Any, x: Any) -> Any:
        if x == at:
            raise error
        return x + 1

    made = call(b.at(Source("model.py", 17, "train")), "Stateful", step, [loop.body(i)], name="step", scalar=True)
    loop.next(i, made)
    return loop.exit(i), made


@pytest.mark.parametrize("engine", ["interpret", "compiled"])
@pytest.mark.parametrize(
    ("error", "becomes"),
    [
        (ValueError("bad value"), InvalidArgumentError),
        (IndexError("bad index"), InvalidArgumentError),
        (OverflowError("too much"), InvalidArgumentError),
        (MemoryError("no room"), ResourceExhaustedError),
        (RuntimeError("strange"), HeadraceInternalError),
        (TypeError("strange"), HeadraceInternalError),
        (StopIteration(), HeadraceInternalError),
        (OutOfRangeError("the end"), OutOfRangeError),
        (UnimplementedError("not this"), UnimplementedError),
        (FailedPreconditionError("not yet", "elsewhere"), FailedPreconditionError),
    ],
)
def test_a_kernel_that_fails_in_iteration_1000(
    custom: None, error: Exception, becomes: type[Exception], engine: str
) -> None:
    b = builder()
    out, made = failing_loop(b, error)
    with session(b, engine=engine) as s:
        with pytest.raises(becomes) as e:
            s.run(out)
        assert type(e.value) is becomes
        shown = text(e.value)
        for part in ("'step' (TestStateful)", "model.py:17 in train", "iteration 1000 of loop 'while/context'"):
            assert part in shown
        # the compiled loop is recovered, and an error object that is raised again keeps the notes of the first time
        given = (made.op.inputs[0].name, "loop variable 'Merge'")
        assert any(f"{name}: int32[] = 1000" in shown for name in given)
        if isinstance(error, OpError):
            assert e.value is error
        else:
            assert e.value.__cause__ is error
        if isinstance(e.value, OpError):
            assert e.value.node == (getattr(error, "node", None) or "step")
            assert e.value.op in (made.op, None)
            assert e.value.error_code == type(e.value).error_code
        other = counting(b, 3)
        assert s.run(other[0].exit(other[1])) == 3


def test_the_same_error_object_twice_is_told_once(custom: None) -> None:
    b = builder()
    out, _ = failing_loop(b, ValueError("bad"), at=3)
    with session(b) as s:
        for _ in range(3):
            with pytest.raises(InvalidArgumentError) as e:
                s.run(out)
            assert len(e.value.__notes__) == 2
            assert "iteration 3 of loop" in text(e.value)


def test_an_error_of_a_kernel_is_told_anew_in_each_run(custom: None) -> None:
    """Notes of the last run do not stay on an error raised again.

    A kernel may raise the same object in each run.
    """
    b = builder()
    error = InvalidArgumentError("always the same object")
    x = call(b, "Stateful", lambda ctx: _raise(error), name="first", scalar=True)
    with session(b) as s:
        for _ in range(3):
            with pytest.raises(InvalidArgumentError) as e:
                s.run(x)
            assert len(e.value.__notes__) <= 2


def _raise(e: BaseException) -> Any:
    raise e


def test_the_line_of_the_op_that_failed() -> None:
    b = builder()
    p = b.Placeholder(dtype="int32", shape=())
    x, line = b.FloorDiv(b.const(1), p, name="divide"), here()
    with session(b) as s, pytest.raises(InvalidArgumentError, match="division by zero") as e:
        s.run(x, {p: 0})
    assert f"operation 'divide' (FloorDiv), made at {line}" in text(e.value)
    assert e.value.node == "divide"
    assert e.value.op is x.op


def test_nested_loops_are_named_from_the_inside_out(custom: None) -> None:
    b = builder()
    outer = Loop(b, "outer")
    i = outer.var(b.const(0))
    outer.goes_while(b.Less(i, outer.constant(b.const(5))))
    inner = Loop(b, "inner")
    j = inner.var(outer.const(0))
    start = inner.constant(outer.body(i))
    inner.goes_while(b.Less(j, inner.constant(outer.const(4))))

    def step(ctx: Any, i: Any, j: Any) -> Any:
        if (i, j) == (3, 2):
            raise ValueError(f"at {ctx.step.tag}")
        return j + 1

    inner.next(j, call(b, "Stateful", step, [start, inner.body(j)], scalar=True))
    outer.next(i, b.AddV2(outer.body(i), b.Sub(inner.exit(j), outer.const(3))))
    out = outer.exit(i)
    with session(b) as s, pytest.raises(InvalidArgumentError) as e:
        s.run(out)
    assert "at outer#3/inner#2" in str(e.value)
    assert "in iteration 2 of loop 'inner', in iteration 3 of loop 'outer'" in text(e.value)


def test_shapes_that_do_not_go_together_are_named() -> None:
    b = builder()
    p, q = (b.Placeholder(dtype="float32", shape=None) for _ in range(2))
    with session(b) as s, pytest.raises(InvalidArgumentError, match=r"Incompatible shapes: \[2\] vs\. \[3\]") as e:
        s.run(b.AddV2(p, q, name="sum"), {p: [1, 2], q: [1, 2, 3]})
    assert e.value.node == "sum"
    assert "Placeholder:0: float32[2] = [1.0, 2.0]" in text(e.value)


def test_a_fetch_that_fails_is_told_as_what_was_fetched() -> None:
    b = builder()
    v, line = b.VariableV2(shape=(), dtype="float32", name="weights"), here()
    with session(b) as s, pytest.raises(FailedPreconditionError, match="uninitialized value weights") as e:
        s.run(v)
    assert e.value.node == "weights"
    assert e.value.op is v.op
    assert f"operation 'weights' (VariableV2), made at {line}" in text(e.value)


# *** dead fetches ***


def test_a_dead_fetch_names_the_switch_and_its_predicate() -> None:
    b = builder()
    p = b.Placeholder(dtype="bool", shape=(), name="training")
    (no, yes), line = b.Switch(b.const(1), p, name="decide"), here()
    ends = [b.Identity(b.Identity(x)) for x in (no, yes)]
    with session(b) as s:
        for value in (False, True):
            with pytest.raises(InvalidArgumentError) as e:
                s.run([ends[value], ends[not value]], {p: value})
            assert "Retval[1] does not have value" in str(e.value)
            assert f"'{ends[not value].name}' is dead" in str(e.value)
            assert f"the Switch 'decide' (Switch), made at {line}" in str(e.value)
            assert f"its predicate 'training:0' was {value}" in str(e.value)
            assert f"to the {'true' if value else 'false'} side" in str(e.value)
            assert e.value.op is ends[not value].op
            assert s.run([ends[not value].op, ends[value]], {p: value}) == [None, 1]


def test_a_dead_fetch_behind_a_loop_and_behind_control_edges() -> None:
    b = builder()
    gone = b.Identity(dead(b))
    loop = Loop(b, "a")
    i = loop.var(gone)
    loop.goes_while(b.Less(i, loop.constant(gone)))
    loop.next(i, loop.body(i))
    fetches = [loop.exit(i), b.after(gone).const(1), b.Merge([gone, dead(b)])[0], b.Merge([gone])[1]]
    with session(b) as s:
        for f in fetches:
            with pytest.raises(
                InvalidArgumentError, match=r"Retval\[0\] does not have value.*because the Switch 'Switch"
            ):
                s.run(f)


def test_a_dead_fetch_in_a_loop_names_the_iteration() -> None:
    b = builder()
    loop, i = counting(b, 0)
    with session(b) as s, pytest.raises(InvalidArgumentError, match="was False in iteration 0 of loop 'count'"):
        s.run([loop.exit(i), loop.body(i)])


def test_targets_may_be_dead() -> None:
    b = builder()
    gone = b.Identity(dead(b))
    with session(b) as s:
        assert s.run([gone.op, b.after(gone).NoOp()]) == [None, None]


# *** fetches inside loops ***


@pytest.mark.parametrize("seed", [None, *range(10)])
def test_a_body_tensor_of_several_iterations(seed: int | None) -> None:
    from tests.execute.machine import SeededReady

    b = builder()
    loop, i = counting(b, 3)
    with session(b) as s:
        for inner in (loop.body(i), i, loop.cond, i.op.outputs[1], i.op.inputs[1]):
            with pytest.raises(InternalError, match=r"Retval\[0\] has already been set") as e:
                s.run(inner, options=hr.RunOptions(ready=SeededReady(seed)))
            assert "loop 'count'" in text(e.value)
            assert f"'{inner.name}'" in str(e.value)
        assert s.run(loop.exit(i)) == 3


def test_a_body_tensor_of_one_live_iteration_has_a_value() -> None:
    b = builder()
    loop, i = counting(b, 1)
    with session(b) as s:
        assert s.run([loop.body(i), loop.exit(i)]) == [0, 1]
        assert s.run([loop.done(i)]) == [1]
    b = builder()
    loop, i = counting(b, 0)
    with session(b) as s:
        assert s.run([i, i.op.outputs[1], loop.cond, loop.exit(i)]) == [0, 0, False, 0]


def test_an_exit_that_is_alive_twice() -> None:
    b = builder()
    loop, i = counting(b, 3)
    twice = b.Exit(loop.body(i))
    with session(b) as s:
        with pytest.raises(InternalError, match="fired alive in more than one iteration"):
            s.run(twice)
        assert s.run(loop.exit(i)) == 3


# *** kernels that lie ***


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.float32(1), "must be int32, its kernel gave float32"),
        (np.int64(1), "must be int32, its kernel gave int64"),
        (1, "must be int32, its kernel gave int"),
        (None, "must be int32, its kernel gave NoneType"),
        (np.zeros(2, np.int32), r"was inferred as \[\], its kernel gave \[2\]"),
    ],
)
def test_a_kernel_that_lies_is_caught_when_results_are_verified(custom: None, value: Any, why: str) -> None:
    b = builder()
    with flags.override(VERIFY=2), session(b) as s:
        for form in ("Pure", "Heavy"):
            x = call(b, form, lambda *args: value, [b.const(1)], scalar=True, name=f"lie{form}")
            with pytest.raises(HeadraceInternalError, match=why) as e:
                s.run(x)
            assert f"lie{form}:0" in str(e.value)


def test_a_stateful_kernel_that_lies_is_caught_too(custom: None) -> None:
    b = builder()
    with flags.override(VERIFY=2), session(b) as s:
        x = call(b, "Stateful", lambda ctx: np.zeros(2, np.float64), scalar=True)
        with pytest.raises(HeadraceInternalError, match="must be int32, its kernel gave float64"):
            s.run(x)
        y = call(b, "Async", lambda ctx, done: done(np.zeros(2, np.float64)), scalar=True)
        with pytest.raises(HeadraceInternalError, match="must be int32, its kernel gave float64"):
            s.run(y)


def test_predicates_that_are_no_scalars() -> None:
    b = builder()
    p = b.Placeholder(dtype="bool", shape=None)
    no, yes = b.Switch(b.const(1), p, name="decide")
    with session(b) as s:
        assert s.run(yes, {p: True}) == 1
        assert s.run(no, {p: np.array(False)}) == 1
        for bad in ([True], [], [[False]], [True, False]):
            with pytest.raises(InvalidArgumentError, match="The second input must be a scalar, but it has shape") as e:
                s.run(yes, {p: np.array(bad, np.bool_)})
            assert e.value.node == "decide"


# *** steps that cannot go on ***


def test_a_variable_that_gets_stuck_in_its_loop_is_dead() -> None:
    b = builder()
    loop, i = counting(b, 3)
    other = Loop(b, "count")
    x = other.var(b.const(1))
    first_only = b.Identity(x.op.inputs[0])  # behind an Enter that is no constant: it has a value in iteration 0 only
    half_fed = b.AddV2(first_only, loop.body(i), name="half_fed")
    b.graph.set_back_edge(x.op, 1, b.NextIteration(half_fed))
    with session(b, config={"operation_timeout_in_ms": 20_000}) as s:
        with pytest.raises(InvalidArgumentError, match="does not have value") as e:
            s.run(b.Exit(b.Switch(x, loop.cond)[0]))
        assert "iteration 1 of loop 'count'" in str(e.value)
        assert s.run(loop.exit(i)) == 3
