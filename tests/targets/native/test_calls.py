"""Functions that call themselves, as native code: results, gradients, errors, depth and memory."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from benchmarks.measure import resident_bytes
from headrace import flags, thresholds
from headrace.api import scopes
from headrace.denormals import flushed
from headrace.errors import DeadlineExceededError, InvalidArgumentError, ResourceExhaustedError
from headrace.targets.native import deep_calls, engine
from tests.targets.native import region_running as running

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = [pytest.mark.one_engine, pytest.mark.system]

F64 = hr.float64


@pytest.fixture(autouse=True)
def _graph() -> Any:
    with hr.Graph():
        yield


def number(name: str = "n") -> Any:
    """A fed integer."""
    return hr.placeholder(hr.int32, [], name=name)


def spec(shape: tuple[int, ...] = (), dtype: Any = hr.int32) -> Any:
    """The specification of a result."""
    return hr.TensorSpec(shape, dtype)


def compare(fetches: Any, feeds: Any, is_native: bool = True) -> Any:
    """Returns the results of native code, equal to those of the other engines."""
    got = []
    for native, name, verify in (("on", "compiled", 0), ("on", "compiled", 3), ("off", "compiled", 0)):
        with flags.override(NATIVE=native, VERIFY=verify), hr.Session(engine=name) as session:
            got.append(session.run(fetches, feeds))
            if native == "on" and is_native:
                assert len(session.explain(fetches, list(feeds)).native) == 1
    with hr.Session(engine="interpret") as session:
        got.append(session.run(fetches, feeds))
    for other in got[1:]:
        for a, b in zip(hr.nest.flatten(got[0]), hr.nest.flatten(other), strict=True):
            running.close(a, b)
    return got[0]


def failed(fetches: Any, feeds: Any, native: str) -> Any:
    """The error of a compiled step."""
    with flags.override(NATIVE=native), hr.Session(engine="compiled") as session:
        with pytest.raises(hr.errors.HeadraceError) as e:
            session.run(fetches, feeds)
        if native == "on":
            assert len(session.explain(fetches, list(feeds)).native) == 1
    return e.value


def halving() -> Any:
    """A function of an array and a depth that calls itself twice."""

    def fn(x: Any, d: Any) -> Any:
        return hr.cond(d < 1, lambda: hr.sin(x), lambda: tree(x * 0.5, d - 1) * tree(x + 1.0, d - 1))

    tree = hr.Function(fn, results=spec((3,), F64), name="tree")
    return tree


def countdown() -> Any:
    """A function that calls itself once, and works behind the call."""
    down = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x, lambda: down(k - 1, x) + 2), results=spec(), name="countdown"
    )
    return down


# *** Results ***


def test_two_calls_in_a_branch() -> None:
    fib = hr.Function(lambda n: hr.cond(n < 2, lambda: n, lambda: fib(n - 1) + fib(n - 2)), results=spec(), name="fib")
    n = number()
    assert compare(fib(n), {n: 15}) == 610


def test_a_call_as_the_argument_of_a_call() -> None:
    def fn(m: Any, k: Any) -> Any:
        return hr.cond(m < 1, lambda: k + 1, lambda: hr.cond(k < 1, lambda: ack(m - 1, 1), lambda: inner(m, k)))

    def inner(m: Any, k: Any) -> Any:
        return ack(m - 1, ack(m, k - 1))

    ack = hr.Function(fn, results=spec(), name="ack")
    m, k = number("m"), number("k")
    assert compare(ack(m, k), {m: 2, k: 3}) == 9


def test_functions_that_call_each_other() -> None:
    even = hr.Function(lambda k: hr.cond(k < 1, lambda: True, lambda: odd(k - 1)), results=spec((), hr.bool), name="e")
    odd = hr.Function(lambda k: hr.cond(k < 1, lambda: False, lambda: even(k - 1)), results=spec((), hr.bool), name="o")
    n = number()
    assert compare([even(n), odd(n)], {n: 7}) == [False, True]


def test_several_results_of_which_some_are_not_read() -> None:
    def fn(k: Any, x: Any, s: Any) -> Any:
        def more() -> Any:
            u, v, _, flag = f(k - 1, x * 0.5, s + 1)
            return hr.transpose(u), v + 1, s, hr.logical_not(flag)

        return hr.cond(k < 1, lambda: (x, k, s, True), more)

    results = (spec((2, 2), F64), spec(), spec((), hr.int64), spec((), hr.bool))
    f = hr.Function(fn, results=results, name="f")
    n, x = number(), hr.placeholder(F64, [2, 2])
    found = f(n, x, hr.constant(5, hr.int64))
    compare([found[0], found[1], found[3]], {n: 4, x: np.arange(4.0).reshape(2, 2)})


def test_arguments_that_are_not_in_row_major_order() -> None:
    def fn(k: Any, x: Any) -> Any:
        return hr.cond(k < 1, lambda: x, lambda: f(k - 1, hr.transpose(x) + f(k - 1, hr.reverse(x, [0]))))

    f = hr.Function(fn, results=spec((3, 3), hr.float32), name="f")
    n, x = number(), hr.placeholder(hr.float32, [3, 3])
    compare(f(n, hr.transpose(x)), {n: 3, x: np.arange(9, dtype=np.float32).reshape(3, 3)})


def test_results_that_are_arguments_constants_and_equal() -> None:
    def fn(k: Any, x: Any) -> Any:
        a, b, c = hr.cond(k < 1, lambda: (x, x, x), lambda: tuple(f(k - 1, x * 2.0)))
        return b, a + c, hr.constant([1.0, 2.0])

    f = hr.Function(fn, results=(spec((2,), hr.float32),) * 3, name="f")
    n, x = number(), hr.placeholder(hr.float32, [2])
    compare(list(f(n, x)), {n: 3, x: np.array([3, 4], np.float32)})


def test_captured_values() -> None:
    w, s = hr.placeholder(hr.float32, [2, 2]), hr.placeholder(hr.float32, [])
    f = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x, lambda: f(k - 1, hr.matmul(x, w) * s)),
        results=spec((2, 2), hr.float32),
        name="f",
    )
    n = number()
    compare(f(n, w), {n: 3, w: np.array([[1, 2], [3, 4]], np.float32), s: np.float32(0.5)})


def test_large_constants_of_functions_that_call_each_other() -> None:
    a, b = np.random.default_rng(0).standard_normal((2, 20, 20)) * 0.2
    f = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x, lambda: g(k - 1, x @ a)), results=spec((2, 20), F64), name="f"
    )
    g = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x + b[:2], lambda: f(k - 1, x @ b)), results=spec((2, 20), F64), name="g"
    )
    n, x = number(), hr.placeholder(F64, [2, 20])
    y = f(n, x)
    compare([y, hr.gradients(y, [x])[0]], {n: 3, x: np.ones((2, 20))})


def test_recursion_in_a_loop_and_a_loop_in_recursion() -> None:
    def fn(k: Any) -> Any:
        def more() -> Any:
            return hr.while_loop(lambda i, s: i < k, lambda i, s: (i + 1, s + f(i)), [0, 1])[1]

        return hr.cond(k < 1, lambda: 1, more)

    f = hr.Function(fn, results=spec(), name="f")
    n = number()
    assert compare(f(n), {n: 6}) == 64
    assert compare(hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + f(i)), [0, 0])[1], {n: 5}) == 31


def test_lists_in_a_function_end_with_its_call() -> None:
    def fn(k: Any, x: Any) -> Any:
        def more() -> Any:
            out = hr.TensorArray(F64, 3, element_shape=[4])
            out = hr.while_loop(lambda i, o: i < 3, lambda i, o: (i + 1, o.write(i, f(k - 1, x + 1.0))), [0, out])[1]
            return hr.reduce_sum(out.stack(), 0)

        return hr.cond(k < 1, lambda: x, more)

    f = hr.Function(fn, results=spec((4,), F64), name="f")
    n, x = number(), hr.placeholder(F64, [4])
    compare(f(n, x), {n: 3, x: np.arange(4.0)})


def test_complex_arguments_and_residuals() -> None:
    f = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x, lambda: f(k - 1, x * x + x) * x),
        results=spec((), hr.complex64),
        name="f",
    )
    n, x = number(), hr.placeholder(hr.complex64, [])
    y = f(n, x)
    compare([y, *hr.gradients(hr.math.real(y), x)], {n: 4, x: np.complex64(0.3 + 0.2j)})
    rows = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x, lambda: rows(k - 1, x * x + x) * x),
        results=spec((3,), hr.complex128),
        name="rows",
    )
    z = hr.placeholder(hr.complex128, [3])
    y = rows(n, z)
    compare([y, *hr.gradients(hr.math.real(y), z)], {n: 4, z: np.array([0.3 + 0.2j, -0.1j, 0.5])})


def test_a_function_with_a_kernel_stays_in_python() -> None:
    f = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x, lambda: f(k - 1, hr.math.lgamma(x) * 2.0)),
        results=spec((3,), F64),
        name="f",
    )
    n, x = number(), hr.placeholder(F64, [3])
    y = f(n, x)
    compare(y, {n: 3, x: np.array([3.0, 1.0, 2.0])}, is_native=False)
    with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
        assert any("a function that calls itself is not native" in why for why in session.explain(y, [n, x]).native)


def test_a_native_function_called_from_python() -> None:
    down = countdown()
    f = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x, lambda: f(k - 1, hr.sort(x)) + hr.cast(down(k, 1), F64)),
        results=spec((3,), F64),
        name="f",
    )
    n, x = number(), hr.placeholder(F64, [3])
    compare(f(n, x), {n: 3, x: np.array([3.0, 1.0, 2.0])}, is_native=False)


# *** Gradients ***


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_of_a_tree_of_calls(order: int) -> None:
    n, x = number(), hr.placeholder(F64, [3])
    y = halving()(x, n)
    for _ in range(order):
        y = hr.gradients(hr.reduce_sum(y), [x])[0]
    for depth in 0, 1, 3:
        compare(y, {n: depth, x: np.array([0.1, -0.5, 0.9])})


def test_the_gradient_of_recursion_in_a_loop() -> None:
    n, m, x = number(), number("m"), hr.placeholder(F64, [3])
    tree = halving()
    y = hr.while_loop(lambda i, v: i < m, lambda i, v: (i + 1, v + tree(v, n)), [0, x])[1]
    compare(hr.gradients(y, [x])[0], {n: 2, m: 4, x: np.array([0.1, -0.5, 0.9])})


@pytest.mark.parametrize("order", [1, 2])
def test_gradients_of_a_loop_in_recursion(order: int) -> None:
    def fn(k: Any, x: Any) -> Any:
        def more() -> Any:
            return hr.while_loop(lambda i, v: i < k, lambda i, v: (i + 1, hr.sin(v) + f(k - 1, v * 0.5)), [0, x])[1]

        return hr.cond(k < 1, lambda: hr.square(x), more)

    f = hr.Function(fn, results=spec((3,), F64), name="f")
    n, x = number(), hr.placeholder(F64, [3])
    y = f(n, x)
    for _ in range(order):
        y = hr.gradients(hr.reduce_sum(y), [x])[0]
    compare(y, {n: 3, x: np.array([0.1, -0.5, 0.9])}, is_native=order == 1)


def test_the_gradient_of_functions_that_call_each_other() -> None:
    def fn(name: str) -> Callable[..., Any]:
        def body(k: Any, x: Any, w: Any) -> Any:
            other = functions["b" if name == "a" else "a"]
            step = (lambda v: hr.tanh(v * w)) if name == "a" else (lambda v: v - w)
            return hr.cond(k < 1, lambda: x, lambda: other(k - 1, step(x), w))

        return body

    functions = {name: hr.Function(fn(name), results=spec((3,), F64), name=name) for name in "ab"}
    n, x, w = number(), hr.placeholder(F64, [3]), hr.placeholder(F64, [])
    y = functions["a"](n, x, w)
    compare(hr.gradients(y, [x, w]), {n: 5, x: np.array([0.1, -0.5, 0.9]), w: 0.7})


def test_a_limit_of_residuals_in_recursion() -> None:
    def fn(k: Any, x: Any) -> Any:
        def more() -> Any:
            return f(k - 1, hr.while_loop(lambda i, v: i < 9, lambda i, v: (i + 1, hr.sin(v) * x), [0, x])[1])

        return hr.cond(k < 1, lambda: x, more)

    f = hr.Function(fn, results=spec((3,), F64), name="f")
    n, x = number(), hr.placeholder(F64, [3])
    y = hr.gradients(f(n, x), [x])[0]
    with flags.override(ACCUMULATOR_LIMIT=100):
        errors = [failed(y, {n: 1, x: np.ones(3)}, native) for native in ("off", "on")]
    assert all(type(e) is ResourceExhaustedError and "4 values of 96 bytes" in str(e) for e in errors)
    assert errors[0].__notes__[0] == errors[1].__notes__[0]


def test_a_tuple_that_another_branch_returned_is_not_read() -> None:
    def empty() -> Any:
        return scopes.builder().EmptyTensorList(np.zeros(0, np.int32), np.int32(-1), element_dtype=hr.variant)

    def fn(k: Any, x: Any) -> Any:
        here = hr.cond(x > 0.0, lambda: scopes.builder().OptionalFromValue([x]), empty)
        got = scopes.builder().OptionalGetValue(here, output_types=(F64,), output_shapes=((),), name="got")
        return hr.cond(k < 1, lambda: x, lambda: f(k - 1, got * 0.5 - 1.0))

    f = hr.Function(fn, results=spec((), F64), name="f")
    n, x = number(), hr.placeholder(F64, [])
    compare(f(n, x), {n: 2, x: 8.0})
    errors = [failed(f(n, x), {n: 3, x: 4.0}, native) for native in ("off", "on")]
    assert all(type(e) is InvalidArgumentError and "must be an optional" in str(e) for e in errors)
    assert str(errors[0]) == str(errors[1])


# *** Errors ***


def test_an_error_names_calls_and_iterations() -> None:
    def fn(k: Any, x: Any) -> Any:
        def body(i: Any, v: Any) -> Any:
            return i + 1, hr.cond(k < 1, lambda: hr.floordiv(v, i - 1, name="bad"), lambda: v + f(k - 1, v))

        return hr.while_loop(lambda i, v: i < 3, body, [0, x])[1]

    f = hr.Function(fn, results=spec(), name="down")
    n, x = number(), number("x")
    y = hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + f(n, v)), [0, x], name="outer")[1]
    for depth in 0, 1, 6, 40:
        errors = [failed(y, {n: depth, x: 7}, native) for native in ("off", "on")]
        assert all(type(e) is InvalidArgumentError for e in errors)
        assert errors[0].__notes__ == errors[1].__notes__
        assert "in iteration 1 of loop" in errors[1].__notes__[0]
        assert ("in function 'down' (called by 'outer/down' at" in errors[1].__notes__[0]) == (depth < 99)
        assert ("in 75 more calls and loops" in errors[1].__notes__[0]) == (depth == 40)


def test_calls_nested_too_deeply() -> None:
    n = number()
    y = countdown()(n, 1)
    with flags.override(CALL_DEPTH=50):
        assert compare(y, {n: 49}) == 99
        errors = [failed(y, {n: 50}, native) for native in ("off", "on")]
    assert all(type(e) is ResourceExhaustedError for e in errors)
    assert str(errors[0]) == str(errors[1])
    assert "calls are nested deeper than 50" in str(errors[1])
    assert errors[0].__notes__ == errors[1].__notes__


def test_endless_recursion_ends_at_the_limit() -> None:
    x = hr.placeholder(hr.int32, [])
    f = hr.Function(lambda v: f(v + 1) * 2, results=spec(), name="endless")
    e = failed(f(x), {x: 1}, "on")
    assert type(e) is ResourceExhaustedError
    assert "calls are nested deeper than 100000" in str(e)
    assert "in 99992 more calls and loops, in function 'endless'" in e.__notes__[0]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("is_deep", [False, True])
def test_recursion_ends_at_the_deadline(is_deep: bool) -> None:
    n = number()
    fib = hr.Function(
        lambda k: hr.cond(k < 2, lambda: k, lambda: fib(k - 1) ^ fib(k - (1 if is_deep else 2))),
        results=spec(),
        name="f",
    )
    with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
        y = fib(n)
        assert session.explain(y, [n]).native_source
        with pytest.raises(DeadlineExceededError) as e:
            session.run(y, {n: 20_000 if is_deep else 200}, timeout_ms=100)
    at = e.value.__notes__[0]
    assert re.match(r"operation 'cond/f(_1)?' \(\w+\), made at .*, in function 'f' \(called by 'cond/f", at)


# *** The stack ***


def deep(n: Any) -> Any:
    """An array from calls that are nested `n` deep, and its gradient."""
    f = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x, lambda: f(k - 1, x) * 0.999 + x), results=spec((40,), F64), name="deep"
    )
    x = hr.placeholder(F64, [40])
    y = f(n, x)
    return x, [y, hr.gradients(y, [x])[0]]


def test_deep_recursion_continues_in_other_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_STACK_CALLS", 1 << 15)
    monkeypatch.setattr(thresholds, "NATIVE_STACK_FAR", 1 << 18)
    started: list[Any] = []
    start = deep_calls.start_new_thread
    monkeypatch.setattr(deep_calls, "start_new_thread", lambda f, args: (started.append(f), start(f, args)))
    n = number()
    x, fetches = deep(n)
    given = {n: 2000, x: np.linspace(-1, 1, 40)}
    compare(fetches, given)
    assert len(started) > 6
    assert threading.stack_size() == 0
    with flags.override(CALL_DEPTH=2000):
        errors = [failed(fetches, given, native) for native in ("off", "on")]
    assert str(errors[0]) == str(errors[1])
    assert errors[0].__notes__ == errors[1].__notes__


def test_denormal_numbers_are_zeros_on_another_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_STACK_CALLS", 1 << 15)
    with flushed():
        is_known = bool((np.array([1e-39], np.float32) / 2)[0] == 0)
    f = hr.Function(
        lambda k, x: hr.cond(k < 1, lambda: x * 0.1, lambda: hr.maximum(f(k - 1, x), -1.0)),
        results=spec((4,), hr.float32),
        name="f",
    )
    n, x = number(), hr.placeholder(hr.float32, [4])
    y = f(n, x)
    with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
        for depth in 0, 20_000:
            got = session.run(y, {n: depth, x: np.full(4, 1e-37, np.float32)})
            assert bool((got * np.float32(2) ** 20 == 0).all()) == is_known
        assert len(session.explain(y, [n, x]).native) == 1


def test_an_error_without_a_thread_for_deep_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*args: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(thresholds, "NATIVE_STACK_CALLS", 1 << 15)
    n = number()
    y = countdown()(n, 1)
    with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
        assert session.run(y, {n: 90_000}) == 180_001
        with monkeypatch.context() as patch:
            patch.setattr(deep_calls, "start_new_thread", start)
            with pytest.raises(ResourceExhaustedError, match="the stack of another thread"):
                session.run(y, {n: 90_000})
        assert session.run(y, {n: 90_000}) == 180_001


@pytest.mark.timeout(20)
def test_an_interrupt_ends_deep_recursion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_STACK_CALLS", 1 << 15)
    n = number()
    f = hr.Function(
        lambda k, x: hr.cond(
            k < 1,
            lambda: hr.while_loop(lambda v: v > 0.0, lambda v: v * 0.5 + 1.0, [x])[0],
            lambda: f(k - 1, x) + 1.0,
        ),
        results=spec((), F64),
        name="f",
    )
    y = f(n, hr.placeholder_with_default(np.float64(1.0), []))
    ended = threading.Event()
    start = deep_calls.start_new_thread
    monkeypatch.setattr(deep_calls, "start_new_thread", lambda f, args: start(lambda: (f(), ended.set()), args))

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
        assert session.explain(y, [n]).native_source
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(KeyboardInterrupt):
                session.run(y, {n: 20_000})
            assert ended.wait(10)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


# *** Memory ***


def test_tuples_of_an_iteration_end_with_it() -> None:
    n, x = number(), hr.placeholder(F64, [3])
    tree = halving()

    def slope(v: Any) -> Any:
        return hr.gradients(hr.reduce_sum(tree(v, 3)), [v])[0]

    y = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, slope(v)), [0, x])[1]

    with flags.override(NATIVE="on"), hr.Session(engine="compiled") as session:
        session.run(y, {n: 10, x: np.ones(3)})
        assert len(session.explain(y, [n, x]).native) == 1
        before = resident_bytes()
        session.run(y, {n: 30_000, x: np.ones(3)})  # an iteration makes 2 KiB of tuples
        assert resident_bytes() - before < 8 << 20
