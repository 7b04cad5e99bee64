"""Work on several threads: the same results on any number, and no threads without need."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, intra_op, thresholds
from headrace.denormals import flushed
from headrace.errors import DeadlineExceededError, HeadraceInternalError, InvalidArgumentError
from headrace.execute import blas
from headrace.opkit.windows import Axis
from headrace.targets.native import engine, state, threads
from headrace.targets.native.deep_calls import EndedCalls
from headrace.targets.native.entry import Entry, Slot
from headrace.targets.native.llvm_text import Function, Module
from headrace.targets.native.windows import kernels
from headrace.targets.native.windows.pooling import Kind

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = pytest.mark.one_engine

LONG = 1_000_000  # an estimate of the time of a part for which any number of threads is woken


@pytest.fixture(autouse=True)
def _one() -> Iterator[None]:
    with flags.override(CACHE="off"):
        yield
    intra_op.set_threads(1)


def compiled(body: Callable[[Function, list[str], str], None], cost: int = LONG) -> Callable[[np.ndarray, int], None]:
    """A function that runs parts; `body` gets the address of an array."""
    module = Module()
    f = module.function("run", "void", [("ptr", "x"), ("i64", "parts")], "nounwind")
    threads.each_part(f, "%parts", [("ptr", "%x")], cost, body)
    f.line("ret void")
    library = engine.compile_module(module.text(), ["run"])
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(library.address("run"))

    def run(x: np.ndarray, parts: int) -> None:
        assert library.text
        call(x.ctypes.data, parts)

    return run


def element(g: Function, address: str, part: str) -> str:
    """The address of the float64 with the number of the part."""
    return g.op(f"getelementptr double, ptr {address}, i64 {part}")


def add_one(g: Function, given: list[str], part: str) -> None:
    """A part that adds 1 to one element."""
    at = element(g, given[0], part)
    value = g.op(f"load double, ptr {at}")
    g.line(f"store double {g.op(f'fadd double {value}, 1.0')}, ptr {at}")


def wait(g: Function, given: list[str], part: str) -> None:
    """A part that counts itself and then waits until three parts have begun."""
    g.op(f"atomicrmw add ptr {given[0]}, i64 1 monotonic")
    g.jump("look")
    g.begin("look")
    g.branch(g.op(f"icmp slt i64 {g.op(f'load atomic i64, ptr {given[0]} monotonic, align 8')}, 3"), "look", "end")
    g.begin("end")


@pytest.mark.parametrize("n", [1, 2, 3, 8])
@pytest.mark.parametrize("parts", [0, 1, 2, 7, 500])
def test_each_part_runs_once(n: int, parts: int) -> None:
    run = compiled(add_one)
    intra_op.set_threads(n)
    x = np.zeros(max(parts, 1))
    for _ in range(20):
        run(x, parts)
    assert (x[:parts] == 20).all()


def test_so_many_threads_work_together() -> None:
    run = compiled(wait)
    intra_op.set_threads(3)
    run(np.zeros(1, np.int64), 3)  # each part waits for the others, so it ends only if three threads have one each


@pytest.mark.parametrize(("n", "parts", "cost"), [(1, 100, LONG), (8, 1, LONG), (8, 3, thresholds.NATIVE_PART // 2)])
def test_one_thread_and_short_work_wake_no_thread(n: int, parts: int, cost: int) -> None:
    run = compiled(add_one, cost)
    run(np.zeros(parts), parts)
    layout = engine.team().layout
    layout.args, started = 0, layout.started
    intra_op.set_threads(n)
    run(np.zeros(parts), parts)
    assert not layout.args  # the team was not asked
    assert layout.started == started


def test_threads_have_the_floating_point_mode_of_the_caller() -> None:
    def halve(g: Function, given: list[str], part: str) -> None:
        wait(g, given, part)
        at = element(g, given[0], g.op(f"add i64 {part}, 1"))
        value = g.op(f"load double, ptr {at}")
        g.line(f"store double {g.op(f'fmul double {value}, 0.5')}, ptr {at}")

    run = compiled(halve)
    intra_op.set_threads(3)
    for _ in range(2):
        x = np.array([0, 1e-310, 1e-310, 1e-310])
        with flushed():
            run(x, 3)
        assert (x[1:] == 0).all()
        x = np.array([0, 1e-310, 1e-310, 1e-310])
        run(x, 3)
        assert (x[1:] == 5e-311).all()


def test_an_operation_that_finds_the_team_busy_runs_alone() -> None:
    run = compiled(add_one)
    intra_op.set_threads(2)
    team, x = engine.team(), np.zeros(50)
    team.layout.busy = 1
    try:
        run(x, 50)
    finally:
        team.layout.busy = 0
    assert (x == 1).all()


def test_two_callers_at_once() -> None:
    run = compiled(add_one)
    intra_op.set_threads(2)
    arrays = [np.zeros(300) for _ in range(4)]

    def many(x: np.ndarray) -> None:
        for _ in range(50):
            run(x, 300)

    callers = [threading.Thread(target=many, args=(x,)) for x in arrays]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert all((x == 50).all() for x in arrays)


def add_ones(g: Function, given: list[str], part: str) -> None:
    """A part that adds 1 to one element, 10,000 times."""
    at = element(g, given[0], part)
    with g.loop("0", "10000"):
        value = g.op(f"load volatile double, ptr {at}")
        g.line(f"store volatile double {g.op(f'fadd double {value}, 1.0')}, ptr {at}")


def polling(parts: int, fail: Any) -> Callable[..., Any]:
    """A Python function whose caller polls after each of its parts, by their estimate."""
    module = Module()
    f = module.function("core", "i32", [("ptr", "state"), ("ptr", "inputs"), ("ptr", "outputs")], "nounwind")
    x = f.op("load ptr, ptr %inputs, align 8")
    threads.each_part(f, parts, [("ptr", x)], 10 * LONG, add_ones, "stopped")
    f.line(f"ret i32 {state.DONE}")
    f.begin("stopped")
    f.line(f"ret i32 {state.STOPPED}")
    library = engine.compile_module(module.text(), ["core"])
    return Entry([Slot(np.float64, (parts,))], [], True).bind(library, "core", fail)


@pytest.mark.parametrize("n", [1, 2])
def test_the_caller_polls_and_stops_all_parts(n: int) -> None:
    looks = []

    def look() -> None:
        looks.append(time.monotonic())
        if len(looks) == 5:
            raise TimeoutError("late")

    run = polling(2000, None)
    intra_op.set_threads(n)
    x = np.zeros(2000)
    with pytest.raises(TimeoutError, match="late"):
        run(look, x)
    assert len(looks) == 5
    assert 5 <= np.count_nonzero(x) < 2000
    assert set(x) == {0, 10_000}  # parts that began have ended
    run(None, x)  # the team is free again
    assert not engine.team().layout.busy


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.system
def test_a_forked_process_starts_threads_of_its_own() -> None:
    run = compiled(wait)
    intra_op.set_threads(3)
    run(np.zeros(1, np.int64), 3)
    pid = os.fork()
    if not pid:
        before = engine.team().layout.started
        intra_op.set_threads(3)
        run(np.zeros(1, np.int64), 3)
        os._exit(0 if before == 0 and engine.team().layout.started == 2 else 1)
    end = time.monotonic() + 30
    while (ended := os.waitpid(pid, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    assert ended == (pid, 0)
    run(np.zeros(1, np.int64), 3)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.system
def test_a_call_whose_poll_forks_stops_in_the_child() -> None:
    children: list[int] = []

    def look() -> None:
        if not children:
            children.append(os.fork())

    def fail(place: int, counters: list[int], calls: EndedCalls) -> None:
        raise HeadraceInternalError(f"stopped at {place}")

    run = polling(2000, fail)
    intra_op.set_threads(2)
    try:
        run(look, np.zeros(2000))
    except HeadraceInternalError:
        os._exit(7 if children == [0] else 8)
    if children == [0]:
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7


def test_a_step_sets_the_number() -> None:
    assert intra_op.threads() == 1
    with blas.threads(3):
        assert intra_op.threads() == 3
    assert intra_op.threads() == 1


# *** Regions ***


def on_threads(build: Callable[[Any], Any], values: np.ndarray) -> list[Any]:
    """The results of a step, which are equal on 1, 2, 3 and 8 threads."""
    results = []
    for n in (1, 2, 3, 8):
        with hr.Graph() as g:
            x = hr.placeholder(values.dtype, values.shape)
            y = build(x)
            with hr.Session(graph=g, engine="compiled", intra_op_threads=n) as session:
                assert "headrace_parts" in session.explain(y, [x]).native_source
                results.append(session.run(y, {x: values}))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    with hr.Graph() as g, flags.override(NATIVE="off"):
        x = hr.placeholder(values.dtype, values.shape)
        y = build(x)
        with hr.Session(graph=g, engine="compiled") as session:
            for a, b in zip(results[0], session.run(y, {x: values}), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5)
    return results[0]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short work is divided, too."""
    for name in ("NATIVE_THREAD_WORK", "NATIVE_PART"):
        monkeypatch.setattr(thresholds, name, 100)
    monkeypatch.setattr(thresholds, "NATIVE_LEAST_SAVING", 0)


def values_of(*shape: int) -> np.ndarray:
    """Numbers, among them NaN, infinities and a zero."""
    drawn = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    drawn.ravel()[:4] = np.nan, np.inf, -np.inf, 0
    return drawn


@pytest.mark.matrix
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("shape", [(5000,), (97, 61), (64, 128), (3, 1, 2000)])
def test_maps_on_any_number_of_threads(shape: tuple[int, ...]) -> None:
    def build(x: Any) -> Any:
        row = hr.constant(np.arange(shape[-1], dtype=np.float32))
        return [hr.exp(x) * row + x[..., :1], hr.tanh(x) > 0.5]

    on_threads(build, values_of(*shape))


@pytest.mark.matrix
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("axes", [None, [1], [0], [1, 2]])
def test_reductions_on_any_number_of_threads(axes: list[int] | None) -> None:
    def build(x: Any) -> Any:
        return [hr.reduce_sum(x, axes), hr.reduce_max(x * 2.0, axes), hr.reduce_mean(x, axes)]

    values = values_of(24, 20, 36)
    values[~np.isfinite(values)] = 1
    on_threads(build, np.abs(values))


@pytest.mark.matrix
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("shape", [(256, 64), (131, 33), (40, 12, 9)])
def test_strips_on_any_number_of_threads(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def build(x: Any) -> list[Any]:
        e = hr.exp(x - hr.reduce_max(x, 1, keepdims=True))
        return [e / hr.reduce_sum(e, 1, keepdims=True), hr.reduce_mean(x, 0), hr.reduce_sum(x * x)]

    monkeypatch.setattr(thresholds, "STRIPPED_BYTES", 1)
    monkeypatch.setattr(thresholds, "STRIP_BYTES", 1 << 11)
    on_threads(build, values_of(*shape))


@pytest.mark.matrix
@pytest.mark.usefixtures("short")
def test_parts_in_a_loop() -> None:
    def build(x: Any) -> Any:
        return hr.while_loop(lambda i, v: i < 20, lambda i, v: (i + 1, hr.tanh(v) * 0.5 + x), [0, x])

    on_threads(build, values_of(300, 20))


@pytest.mark.matrix
def test_a_deadline_stops_a_map_of_several_threads_in_a_loop() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [1 << 18])
        n = hr.placeholder(hr.int32, [])
        y = hr.while_loop(lambda i, v: i < n, lambda i, v: (i + 1, hr.tanh(v) + x), [0, x])[1]
        with hr.Session(graph=g, engine="compiled", intra_op_threads=2) as session:
            values = np.zeros(1 << 18, np.float32)
            session.run(y, {x: values, n: 2})
            with pytest.raises(DeadlineExceededError):
                session.run(y, {x: values, n: 10_000_000}, timeout_ms=100)
            assert not session.run(y, {x: values, n: 2}).any()
    assert not engine.team().layout.busy


@pytest.mark.matrix
@pytest.mark.usefixtures("short")
def test_an_error_before_a_map_in_parts_names_its_operation() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, [4000])
        y = hr.floordiv(hr.constant(7), x, name="quotient") + x
        with hr.Session(graph=g, engine="compiled", intra_op_threads=2) as session:
            assert (session.run(y, {x: np.full(4000, 2, np.int32)}) == 5).all()
            with pytest.raises(InvalidArgumentError, match="quotient"):
                session.run(y, {x: np.arange(4000, dtype=np.int32)})


@pytest.mark.matrix
@pytest.mark.usefixtures("short")
def test_two_sessions_at_once() -> None:
    found: list[np.ndarray] = []

    def many(n: int) -> None:
        with hr.Graph() as g:
            x = hr.placeholder(hr.float32, [50_000])
            y = hr.tanh(x) * 2.0
            with hr.Session(graph=g, engine="compiled", intra_op_threads=n) as session:
                found.extend(session.run(y, {x: np.ones(50_000, np.float32)}) for _ in range(40))

    with flags.override(NATIVE="on", CACHE="off"):
        callers = [threading.Thread(target=many, args=(n,)) for n in (2, 3)]
        for c in callers:
            c.start()
        for c in callers:
            c.join()
    assert len(found) == 80
    assert len({f.tobytes() for f in found}) == 1
    assert intra_op.threads() == 1


# *** Windows ***


def axes(length: int, size: int, stride: int) -> tuple[Axis, Axis]:
    count = -(-length // stride)
    axis = Axis(length, count, size, stride, 1, max(0, (count - 1) * stride + size - length) // 2)
    return axis, axis


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("images", "length", "size", "channels", "outputs", "stride"),
    [(7, 15, 3, 32, 48, 1), (5, 31, 7, 3, 19, 2), (9, 14, 1, 70, 33, 1), (1, 28, 3, 16, 16, 1), (0, 28, 3, 16, 16, 1)],
)
def test_convolutions_on_any_number_of_threads(
    images: int, length: int, size: int, channels: int, outputs: int, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_PRODUCT", 1.0)  # small work is divided, too
    kernels._MEMO.clear()
    rng, windows = np.random.default_rng(0), axes(length, size, stride)
    x = rng.standard_normal((images, length, length, channels)).astype(np.float32)
    w = rng.standard_normal((size, size, channels, outputs)).astype(np.float32)
    dy = rng.standard_normal((images, windows[0].count, windows[0].count, outputs)).astype(np.float32)
    results = []
    for n in (1, 2, 3, 8):
        intra_op.set_threads(n)
        results.append(
            [kernels.convolved(x, w, windows), kernels.by_input(w, dy, windows), kernels.by_filter(x, dy, windows)]
        )
    kernels._MEMO.clear()
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.matrix
@pytest.mark.parametrize("kind", Kind)
def test_poolings_on_any_number_of_threads(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_POOLED", 100.0)
    kernels._MEMO.clear()
    rng, windows = np.random.default_rng(0), axes(15, 3, 2)
    x = rng.standard_normal((7, 15, 15, 20)).astype(np.float32)
    g = rng.standard_normal((7, 8, 8, 20)).astype(np.float32)
    x[2, 3, 4, 5] = np.nan
    results = []
    for n in (1, 2, 3, 8):
        intra_op.set_threads(n)
        first = g if kind is Kind.MEAN_GRADIENT else x
        results.append(kernels.pooled(kind, first, g if kind is Kind.MAXIMUM_GRADIENT else None, windows))
    kernels._MEMO.clear()
    assert len({r.tobytes() for r in results}) == 1
