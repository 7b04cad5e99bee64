"""Errors of a failing compiled step: the same as the interpreter's.

A compiled loop can be aborted.
"""

from __future__ import annotations

import _thread
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    ResourceExhaustedError,
)
from headrace.ir.graph import Tensor
from tests.compile.running import b, both, failure

f32, i32 = hr.float32, hr.int32


def alike(fetches: Any, feeds: Any = None, *parts: str) -> Exception:
    """The error in which both engines end: same class, text and notes.

    Values that are freed are excepted.
    """
    one, other = failure(fetches, feeds), failure(fetches, feeds, "interpret")
    assert type(one) is type(other)
    assert str(one) == str(other)
    differ = ("inputs", "the last events of the step")  # the latter is what the token machine alone can tell
    notes, wanted = ([n for n in getattr(e, "__notes__", []) if not n.startswith(differ)] for e in (one, other))
    assert notes == wanted
    assert getattr(one, "node", None) == getattr(other, "node", None)
    told = "\n".join([str(one), *getattr(one, "__notes__", [])])
    for part in parts:
        assert re.search(part, told), f"{part!r} is not in\n{told}"
    return one


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with hr.Graph():
        yield


def counting(n: Any, body: Callable[[Tensor, Tensor], Tensor], first: Any) -> Tensor:
    """`n` times `body(i, value)`."""
    out: Tensor = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, body(i, v)), [0, first])[1]
    return out


# *** operations ***


def test_an_operation_that_fails_is_named_with_its_line_and_what_it_was_given() -> None:
    x, y = (hr.placeholder(i32, [], name=n) for n in "xy")
    e = alike(
        hr.floordiv(x, y, name="half"), {x: 7, y: 0}, r"'half' \(FloorDiv\), made at .*test_errors.py:\d+ in test_an"
    )
    assert type(e) is InvalidArgumentError
    assert e.op is not None
    assert e.op.name == "half"
    assert any(n == "inputs: x:0: int32[] = 7, y:0: int32[] = 0" for n in e.__notes__)


def test_shapes_that_do_not_fit() -> None:
    x, y = (hr.placeholder(f32, None, name=n) for n in "xy")
    fed = {x: np.ones(3), y: np.ones(2)}
    alike(x + y, fed, r"Incompatible shapes: \[3\] vs. \[2\]", "'add'")
    alike(hr.tanh(x * 2.0) * y, fed, "'mul_1'")
    alike(hr.matmul(x, y), {x: np.ones((2, 3)), y: np.ones((2, 3))}, "'MatMul'")
    alike(hr.reshape(x, [2, 2]), fed, "'Reshape'")


def test_what_was_not_fed() -> None:
    x = hr.placeholder(f32, [2], name="x")
    alike(x + 1.0, None, "You must feed a value for placeholder tensor 'x'")


def test_an_assertion() -> None:
    x = hr.placeholder(f32, [], name="x")
    with hr.control_dependencies([hr.Assert(x > 0.0, [x, "is too small"])]):
        y = hr.identity(x)
    assert both(y, {x: 1.0}) == 1.0
    alike(y, {x: -1.0}, "assertion failed", "is too small")


def test_a_variable_that_has_no_value() -> None:
    v = hr.Variable(1.0, name="v")
    assert type(alike(v + 1.0)) is FailedPreconditionError


def test_a_check_of_numbers() -> None:
    x = hr.placeholder(f32, [2], name="x")
    alike(hr.check_numerics(hr.log(x), "the logarithm"), {x: [1.0, -1.0]}, "the logarithm")


# *** loops ***


def test_the_iteration_of_a_loop() -> None:
    n = hr.placeholder(i32, [], name="n")
    y = counting(n, lambda i, v: v + hr.floordiv(100, 20 - i, name="part"), 0)
    alike(y, {n: 40}, r"iteration 20 of loop 'while'", "'while/part'")
    y = hr.while_loop(lambda i, v: v < 1000, lambda i, v: (i + 1, v + hr.floordiv(100, 20 - i)), [0, 0], name="other")[
        1
    ]
    alike(y, None, r"iteration 20 of loop 'other'")


def test_iterations_are_counted_from_where_the_loop_begins() -> None:
    first = hr.placeholder(i32, [], name="first")
    y = hr.while_loop(lambda i, v: i < 9, lambda i, v: (i + 1, v + hr.floordiv(9, 4 - i)), [first, 0])[1]
    for start in (-3, 0, 2):
        alike(y, {first: start}, f"iteration {4 - start} of loop 'while'")


def test_iterations_of_nested_loops() -> None:
    def outer(i: Tensor, v: Tensor) -> Tensor:
        return counting(5, lambda j, w: w + hr.floordiv(10, i * 10 + j - 23), v)

    alike(counting(4, outer, 0), None, r"iteration 3 of loop 'while/while', in iteration 2 of loop 'while'")


def test_a_failing_condition() -> None:
    y = hr.while_loop(lambda i: hr.floordiv(10, 3 - i, name="asked") > -100, lambda i: i + 1, [0])
    alike(y, None, "'while/asked'", "iteration 3 of loop 'while'")


def test_in_a_branch_in_a_loop() -> None:
    def body(i: Tensor, v: Tensor) -> Tensor:
        out: Tensor = hr.cond(hr.equal(i, 6), lambda: hr.floordiv(v, i - 6, name="bad"), lambda: v + 1)
        return out

    alike(counting(9, body, 0), None, "'while/cond/bad'", "iteration 6 of loop 'while'")


def test_in_a_function() -> None:
    x = hr.placeholder(i32, [], name="x")
    fn = hr.Function(lambda u: hr.floordiv(10, u, name="inner"), name="tenth")
    alike(fn(x), {x: 0}, r"'tenth/inner' \(FloorDiv\)", r"test_errors.py:\d+ in <lambda>")
    alike(counting(3, lambda i, v: v + fn(i - 2), 0), None, r"'while/tenth/inner' \(FloorDiv\)", "iteration 2 of loop")


def test_in_the_gradient_of_a_loop() -> None:
    @hr.custom_gradient
    def picky(x: Tensor) -> Any:
        return hr.tanh(x), lambda dy: dy * hr.check_numerics(hr.log(x), "too small")

    x = hr.placeholder(f32, [], name="x")
    y = counting(5, lambda i, v: picky(v - 0.5), x)
    alike(hr.gradients([y], [x]), {x: 2.0}, "too small", "iteration 0 of loop")


# *** lists ***


def empty() -> Tensor:
    out: Tensor = b().EmptyTensorList(b().const(np.array([], np.int32)), b().const(-1), element_dtype=f32)
    return out


def pop(x: Tensor) -> Any:
    return b().TensorListPopBack(x, b().const(np.array([], np.int32)), element_dtype=f32)


def test_pop_from_an_empty_list() -> None:
    alike(pop(empty())[1], None, "Trying to pop from an empty list", "TensorListPopBack")

    def body(i: Tensor, v: Tensor, s: Tensor) -> Any:
        rest, last = pop(v)
        return i + 1, rest, s + last

    x = b().TensorListPushBack(empty(), 1.0)
    alike(hr.while_loop(lambda i, v, s: i < 3, body, [0, x, 0.0])[2], None, "iteration 1 of loop 'while'")


@pytest.mark.parametrize("index", [-1, 3, 100])
def test_an_index_out_of_range(index: int) -> None:
    i = hr.placeholder(i32, [], name="i")
    x = b().TensorListFromTensor([1.0, 2.0, 3.0], b().const(np.array([], np.int32)))
    value = b().TensorListGetItem(x, i, b().const(np.array([], np.int32)), element_dtype=f32)
    alike(value, {i: index}, f"Trying to access element {index} in a list with 3 elements")
    put = b().TensorListSetItem(x, i, 4.0)
    out = b().TensorListStack(put, b().const(np.array([], np.int32)), element_dtype=f32)
    alike(out, {i: index}, f"Trying to modify element {index} in a list with 3 elements")


def test_an_index_out_of_range_in_a_counted_loop() -> None:
    n = hr.placeholder(i32, [], name="n")
    rows = hr.TensorArray(f32, size=3, element_shape=[]).unstack([1.0, 2.0, 3.0])
    y = counting(n, lambda i, v: v + rows.read(i), 0.0)
    assert both(y, {n: 3}) == 6.0
    alike(y, {n: 5}, "element 3 in a list with 3 elements", "iteration 3 of loop 'while'")
    y = hr.while_loop(
        lambda i, ta: i < n, lambda i, ta: (i + 1, ta.write(i, 1.0)), [0, hr.TensorArray(f32, 3, element_shape=[])]
    )[1].stack()
    alike(y, {n: 5}, "element 3 in a list with 3 elements", "iteration 3 of loop 'while_1'")


def test_a_negative_size() -> None:
    n = hr.placeholder(i32, [], name="n")
    alike(hr.TensorArray(f32, size=n, element_shape=[]).stack(), {n: -2}, "-2")


@pytest.mark.parametrize("shape", [[], [50]])
@pytest.mark.parametrize("known", [True, False])
def test_the_limit_of_accumulators(shape: list[int], known: bool) -> None:
    x, n = hr.placeholder(f32, shape if known else None, name="x"), hr.placeholder(i32, [], name="n")
    y = counting(n, lambda i, v: hr.sin(v), x)
    grads = hr.gradients([y], [x])
    value = np.full(shape, 0.5, np.float32)
    with flags.override(ACCUMULATOR_LIMIT=2000):
        both(grads, {n: 5, x: value})
        e = alike(grads, {n: 2000, x: value}, "keeps more than 2,000 bytes of", "HEADRACE_ACCUMULATOR_LIMIT")
    assert type(e) is ResourceExhaustedError


# *** ending what would not end ***


def for_ever() -> Tensor:
    out: Tensor = hr.while_loop(lambda i: i >= 0.0, lambda i: i * 0.5 + 1.0, [0.0])[0]
    return out


def for_ever_inside() -> Tensor:
    """A loop that ends soon enough, in one that does not."""
    return hr.while_loop(lambda v: v >= 0.0, lambda v: counting(3, lambda i, w: w * 0.5 + 1.0, v), [0.0])[0]


def for_ever_within() -> Tensor:
    """A loop that does not end, in one that would."""
    return counting(3, lambda i, v: hr.while_loop(lambda w: w >= 0.0, lambda w: w * 0.5 + 1.0, [v])[0], 0.0)


def in_a_function() -> Tensor:
    out: Tensor = hr.Function(lambda v: hr.while_loop(lambda w: w >= 0.0, lambda w: w + 1.0, [v])[0], name="f")(0.0)
    return out


def a_long_count() -> Tensor:
    return counting(2**31 - 1, lambda i, v: v * 0.5 + 1.0, 0.0)


ENDLESS = [for_ever, for_ever_inside, for_ever_within, in_a_function, a_long_count]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", ENDLESS)
def test_a_deadline(make: Callable[[], Tensor]) -> None:
    y = make()
    e = failure(y, timeout_ms=60)
    assert type(e) is DeadlineExceededError
    assert "time limit" in str(e)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", ENDLESS)
def test_a_session_that_closes(make: Callable[[], Tensor]) -> None:
    y = make()
    session = hr.Session(graph=y.graph, engine="compiled")
    errors: list[BaseException] = []

    def go() -> None:
        try:
            session.run(y)
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=go)
    thread.start()
    while not session.statistics().active:
        time.sleep(0.001)
    session.close()
    thread.join(20)
    assert not thread.is_alive()
    assert [type(e) for e in errors] == [CancelledError]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("make", [for_ever, for_ever_within])
def test_a_keyboard_interrupt(make: Callable[[], Tensor]) -> None:
    y = make()
    with hr.Session(graph=y.graph, engine="compiled") as session:
        timer = threading.Timer(0.1, _thread.interrupt_main)

        def run() -> None:
            timer.start()  # in the call that must raise: if the machine has much to do, it fires before the next line
            session.run(y)

        with pytest.raises(KeyboardInterrupt):
            run()
        assert not session.statistics().active
        assert session.run(hr.constant(1.0)) == 1.0


def test_a_step_that_has_failed_may_run_again() -> None:
    x = hr.placeholder(i32, [], name="x")
    y = counting(4, lambda i, v: v + hr.floordiv(12, x - i), 0)
    with hr.Session(graph=y.graph, engine="compiled") as session:
        for _ in range(2):
            with pytest.raises(InvalidArgumentError) as e:
                session.run(y, {x: 2})
            assert len(e.value.__notes__) == 2
            assert session.run(y, {x: 4}) == 3 + 4 + 6 + 12
