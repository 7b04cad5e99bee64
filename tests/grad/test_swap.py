"""Gradients of loops in sessions with a memory limit.

Residuals that do not fit are swapped, and the values are the same.
"""

from __future__ import annotations

import gc
import io
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, step_events
from headrace.resources.memory import Memory
from headrace.resources.spill import SpillFile
from tests.compile.running import same
from tests.inside import memories_of

f32, f64 = hr.float32, hr.float64
ENGINES = ["interpret", "compiled", "auto"]
WIDTH = 600  # 4,800 bytes, which is just worth a copy
Made = tuple[list[hr.Tensor], dict[hr.Tensor, np.ndarray]]


def memory_of(session: hr.Session) -> Memory:
    (memory,) = memories_of(session)
    return memory


def assert_released(memory: Memory) -> None:
    """Asserts that a memory holds nothing after its copies, which may outlive a step."""
    until = time.monotonic() + 10
    gc.collect()
    while (memory.held or memory.spilled) and time.monotonic() < until:
        gc.collect()
    assert memory.held == memory.spilled == 0


def values_and_gradients(make: Callable[..., Any], *at: np.ndarray, orders: int = 1) -> Made:
    """Fetches and feeds: `make(*xs)` and its derivatives with respect to all xs."""
    xs = [hr.placeholder(a.dtype.name, a.shape) for a in at]
    y = make(*xs)
    fetches = [y]
    for _ in range(orders):
        grads = hr.gradients(fetches[-1], xs)
        fetches += [g for g in grads if g is not None]
    return fetches, dict(zip(xs, at, strict=True))


def random(*shape: int, dtype: str = "float64") -> np.ndarray:
    return (np.random.default_rng(len(shape)).normal(size=shape) * 0.5).astype(dtype)


# *** programs; each takes the keyword arguments of its loops ***


def plain(**how: Any) -> Made:
    def make(x: Any) -> Any:
        return hr.while_loop(lambda i, y: i < 30, lambda i, y: (i + 1, hr.sin(y) * x), (0, x), **how)[1]

    return values_and_gradients(make, random(WIDTH))


def second_order(**how: Any) -> Made:
    def make(x: Any) -> Any:
        return hr.while_loop(lambda i, y: i < 12, lambda i, y: (i + 1, hr.sin(y) * x), (0, x), **how)[1]

    return values_and_gradients(make, random(WIDTH), orders=2)


def third_order(**how: Any) -> Made:
    def make(x: Any) -> Any:
        return hr.while_loop(lambda i, y: i < 6, lambda i, y: (i + 1, hr.exp(y) * x), (0, x), **how)[1]

    return values_and_gradients(make, random(WIDTH) * 0.1, orders=3)


def lstm(**how: Any) -> Made:
    """Of float32, with products, in which the layout of what comes back shows."""

    def make(x: Any, w: Any) -> Any:
        def step(t: Any, h: Any, c: Any) -> Any:
            i, j, f, o = hr.split(hr.matmul(hr.concat([x, h], 1), w), 4, 1)
            c = hr.sigmoid(f) * c + i * hr.tanh(j) + hr.transpose(hr.matmul(h, h, transpose_a=True) * 0.01)[:32]
            return t + 1, hr.sigmoid(o) * hr.tanh(c), c

        return hr.while_loop(lambda t, *_: t < 10, step, (0, x, x), **how)[1]

    return values_and_gradients(make, random(32, 64, dtype="float32"), random(128, 256, dtype="float32") * 0.2)


def nested(**how: Any) -> Made:
    def make(x: Any) -> Any:
        def inner(y: Any) -> Any:
            return hr.while_loop(lambda j, z: j < 5, lambda j, z: (j + 1, hr.sin(z) * x), (0, y), **how)[1]

        return hr.while_loop(lambda i, y: i < 7, lambda i, y: (i + 1, inner(y) + hr.exp(y)), (0, x), **how)[1]

    return values_and_gradients(make, random(WIDTH) * 0.1, orders=2)


def conditional(**how: Any) -> Made:
    def make(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            taken = hr.cond(hr.equal(i % 3, 0), lambda: hr.exp(-y * y), lambda: y * x)
            return i + 1, hr.sin(taken)

        return hr.while_loop(lambda i, y: i < 25, body, (0, x), **how)[1]

    return values_and_gradients(make, random(WIDTH))


def arrays(**how: Any) -> Made:
    """A tensor array, which the loop fills, and lists of several dtypes and sizes."""

    def make(x: Any) -> Any:
        ta = hr.TensorArray(f64, 20)

        def body(i: Any, y: Any, s: Any, ta: Any) -> Any:
            small = hr.cast(hr.sin(y[:100]), f32)
            s = s * hr.tanh(s + hr.reduce_sum(small * small))
            return i + 1, hr.sin(y) * x, s, ta.write(i, y * y)

        first = hr.cast(hr.reduce_mean(x), f32)
        _, y, s, ta = hr.while_loop(lambda i, *_: i < 20, body, (0, x, first, ta), **how)
        return hr.reduce_sum(ta.stack(), 0) * y * hr.cast(s, f64)

    return values_and_gradients(make, random(WIDTH))


def of_unknown_shape(**how: Any) -> Made:
    x = hr.placeholder(f64, (None,))
    n = hr.placeholder(hr.int32, ())
    _, y = hr.while_loop(
        lambda i, y: i < n,
        lambda i, y: (i + 1, hr.concat([hr.sin(y) * 0.9, y[:50]], 0)),
        (0, x),
        shape_invariants=((), (None,)),
        **how,
    )
    (dx,) = hr.gradients(hr.reduce_sum(y * y), x)
    return [y, dx], {x: random(WIDTH), n: np.int32(20)}


PROGRAMS = [plain, second_order, third_order, lstm, nested, conditional, arrays, of_unknown_shape]


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda f: f.__name__)
def test_results_are_the_same_to_the_bit(make: Callable[..., Made], engine: str) -> None:
    limit = 16 * 8192 if make is lstm else 12 * 8 * WIDTH
    with hr.Graph() as g:
        fetches, feeds = make(swap_memory=True)
    with flags.override(OPTIMIZE="off"):
        with hr.Session(graph=g, engine=engine) as session:
            want = session.run(fetches, feeds)
        with hr.Session(graph=g, engine=engine, memory_limit=limit) as session:
            for _ in range(2):
                same(session.run(fetches, feeds), want)
            memory = memory_of(session)
            assert memory.peak <= limit
            assert memory.bytes_out > 0
            assert memory.bytes_in > 0
            assert_released(memory)


@pytest.mark.parametrize("engine", ["interpret", "compiled"])
def test_with_the_passes_on(engine: str) -> None:
    """No pass collects the values of all iterations, which together exceed the limit."""
    with hr.Graph() as g:
        fetches, feeds = lstm(swap_memory=True)
    with hr.Session(graph=g, engine=engine) as session:
        want = session.run(fetches, feeds)
        assert any("loop_" in name for name in session.explain(fetches, list(feeds)).passes) == (engine == "compiled")
    limit = 16 * 8192
    with hr.Session(graph=g, engine=engine, memory_limit=limit) as session:
        for got, good in zip(session.run(fetches, feeds), want, strict=True):
            np.testing.assert_allclose(got, good, rtol=1e-4, atol=1e-6)
        assert 0 < memory_of(session).peak <= limit
        passes = session.explain(fetches, list(feeds)).passes
        assert not {"loop_fission", "loop_accumulations", "loop_collections"}.intersection(passes)


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["interpret", "compiled"])
@pytest.mark.parametrize("make", [plain, nested], ids=lambda f: f.__name__)
def test_without_swapping_the_step_is_refused(make: Callable[..., Made], engine: str) -> None:
    limit = 12 * 8 * WIDTH
    with hr.Graph() as g:
        fetches, feeds = make()
    with hr.Session(graph=g, engine=engine, memory_limit=limit) as session:
        for _ in range(2):
            with pytest.raises(hr.errors.ResourceExhaustedError) as failed:
                session.run(fetches, feeds)
            text = str(failed.value)
            assert "device:CPU:0 would exceed its memory limit of 57,600 bytes" in text
            assert "of loop 'while" in text
            assert "test_swap.py" in text
            assert re.search(r"asks for 4,800 bytes, and 5\d,\d{3} bytes are held: [\d,]+ for '", text)
            assert "Let the loop swap (while_loop(..., swap_memory=True))" in text
            assert "in iteration" in failed.value.__notes__[0]
            del failed
            gc.collect()
            assert memory_of(session).held == 0
        session.run(fetches[0], feeds)  # the value alone keeps nothing
        assert memory_of(session).bytes_out == 0
    with hr.Session(graph=g, engine=engine, memory_limit=1 << 30) as session:
        session.run(fetches, feeds)
        assert memory_of(session).peak > limit


@pytest.mark.parametrize("engine", ["interpret", "compiled"])
def test_small_values_are_never_swapped(engine: str) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (10,))
        y = hr.while_loop(lambda i, y: i < 100, lambda i, y: (i + 1, hr.sin(y) * x), (0, x), swap_memory=True)[1]
        (dx,) = hr.gradients(y, x)
    with (
        hr.Session(graph=g, engine=engine, memory_limit=5000) as session,
        pytest.raises(hr.errors.ResourceExhaustedError, match="All that can be swapped is; arrays of less than"),
    ):
        session.run(dx, {x: np.ones(10)})


@pytest.mark.parametrize("engine", ["interpret", "compiled"])
@pytest.mark.parametrize("save", ["auto", hr.recompute(4)], ids=repr)
def test_strategies(save: Any, engine: str) -> None:
    """With "auto" a loop swaps only if the limit requires it.

    `recompute` keeps fewer values: they fit here, but may exceed a lower limit.
    """
    with hr.Graph() as g:
        fetches, feeds = plain(save=save)
    with flags.override(OPTIMIZE="off"):
        with hr.Session(graph=g, engine=engine) as session:
            want = session.run(fetches, feeds)
        fits, limit = 30 * 8 * WIDTH, 16 * 8 * WIDTH
        for bytes, swaps in ((100 * fits, False), (limit, save == "auto")):
            with hr.Session(graph=g, engine=engine, memory_limit=bytes) as session:
                same(session.run(fetches, feeds), want)
                assert (memory_of(session).bytes_out > 0) == swaps


def test_both_strategies_together() -> None:
    with hr.Graph() as g:
        fetches, feeds = plain(save=hr.recompute(10), swap_memory=True)
    with hr.Session(graph=g, engine="compiled") as session:
        want = session.run(fetches, feeds)
    with hr.Session(graph=g, engine="compiled", memory_limit=12 * 8 * WIDTH) as session:
        np.testing.assert_allclose(session.run(fetches, feeds), want)
        assert memory_of(session).bytes_out > 0


@pytest.mark.usefixtures("python_target")
def test_without_a_limit_nothing_is_counted() -> None:
    with hr.Graph() as g:
        fetches, feeds = plain(swap_memory=True)
    with hr.Session(graph=g, engine="compiled") as session, flags.override(OPTIMIZE="off", VERIFY=0):
        source = session.explain(fetches, list(feeds)).source
    assert ".append(v" in source
    assert ".pop()" in source
    assert "memory" not in source
    with hr.Session(graph=g, engine="compiled", memory_limit=1000) as session, flags.override(OPTIMIZE="off", VERIFY=0):
        limited = session.explain(fetches, list(feeds)).source
    assert "run.step.memory.save(" in limited
    assert "run.step.memory.pop(" in limited


@pytest.mark.parametrize("limit", [0, -5])
def test_a_limit_is_a_number_of_bytes(limit: int) -> None:
    with hr.Graph() as g, pytest.raises(ValueError, match=f"memory_limit must be at least 1 byte, got {limit}"):
        hr.Session(graph=g, memory_limit=limit)


@pytest.mark.parametrize("engine", ["interpret", "compiled"])
def test_variables_count(engine: str) -> None:
    with hr.Graph() as g:
        v = hr.Variable(np.zeros(1000), name="weights")
        first = v.initializer
        larger = hr.Variable(np.zeros(9000), name="more").initializer
    with hr.Session(graph=g, engine=engine, memory_limit=50_000) as session:
        session.run(first)
        assert memory_of(session).held == 8000
        with pytest.raises(hr.errors.ResourceExhaustedError, match="variable 'more' asks for 72,000 bytes, and 8,000"):
            session.run(larger)
        session.run(first)
        assert memory_of(session).held == 8000
        session.clear_container()
        assert memory_of(session).held == 0


# *** ends ***


def slow_copies(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    write = SpillFile.write

    def slowly(self: SpillFile, *args: Any) -> None:
        time.sleep(seconds)
        write(self, *args)

    monkeypatch.setattr(SpillFile, "write", slowly)


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["interpret", "compiled"])
def test_a_step_that_waits_for_copies_keeps_its_time_limit(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    slow_copies(monkeypatch, 0.05)
    with hr.Graph() as g:
        fetches, feeds = plain(swap_memory=True)
    with hr.Session(graph=g, engine=engine, memory_limit=12 * 8 * WIDTH) as session:
        session.explain(fetches, list(feeds))
        with pytest.raises(hr.errors.DeadlineExceededError, match="ran past its time limit"):
            session.run(fetches, feeds, timeout_ms=200)
        gc.collect()
        assert memory_of(session).held <= 12 * 8 * WIDTH


@pytest.mark.parametrize("engine", ["interpret", "compiled"])
def test_a_session_is_closed_while_it_swaps(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    slow_copies(monkeypatch, 0.02)
    with hr.Graph() as g:
        fetches, feeds = plain(swap_memory=True)
    session = hr.Session(graph=g, engine=engine, memory_limit=12 * 8 * WIDTH)
    failed: list[BaseException] = []

    def run() -> None:
        try:
            session.run(fetches, feeds)
        except BaseException as e:
            failed.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    memory = memory_of(session)
    until = time.monotonic() + 20
    while not memory.bytes_out and time.monotonic() < until:
        time.sleep(0.005)
    session.close()
    thread.join(20)
    assert not thread.is_alive()
    assert [type(e) for e in failed] == [hr.errors.CancelledError]


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["interpret", "compiled"])
def test_a_step_that_fails_leaves_nothing(engine: str) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (WIDTH,))

        def body(i: Any, y: Any) -> Any:
            return i + 1, hr.sin(y) * x + hr.cast(60 // (20 - i), f64)

        y = hr.while_loop(lambda i, y: i < 30, body, (0, x), swap_memory=True)[1]
        (dx,) = hr.gradients(y, x)
    with hr.Session(graph=g, engine=engine, memory_limit=12 * 8 * WIDTH) as session:
        with pytest.raises(hr.errors.InvalidArgumentError):
            session.run(dx, {x: random(WIDTH)})
        assert_released(memory_of(session))


@pytest.mark.parametrize("engine", ["interpret", "compiled"])
def test_several_threads_share_the_memory(engine: str) -> None:
    with hr.Graph() as g:
        fetches, feeds = plain(swap_memory=True)
    with flags.override(OPTIMIZE="off"):
        with hr.Session(graph=g, engine=engine) as session:
            want = session.run(fetches, feeds)
        limit = 20 * 8 * WIDTH
        with hr.Session(graph=g, engine=engine, memory_limit=limit) as session:
            session.run(fetches, feeds)
            found: list[Any] = []
            threads = [
                threading.Thread(target=lambda: found.extend(session.run(fetches, feeds) for _ in range(4)))
                for _ in range(3)
            ]
            for t in threads:
                t.start()
            for t in threads:
                t.join(60)
            assert len(found) == 12
            for got in found:
                same(got, want)
            assert memory_of(session).peak <= limit


def test_what_is_kept_outlives_the_step() -> None:
    """A list that is fetched has elements in the file, and gives them."""
    with hr.Graph() as g:
        _, feeds = plain(swap_memory=True)
        loop = next(op for op in g.operations if op.type in ("While", "StatelessWhile"))
        body = loop.attrs["body"]
        lists = [t for t, r in zip(loop.outputs, body.results, strict=True) if r.op.type == "TensorListPushBack"]
    with hr.Session(graph=g, memory_limit=12 * 8 * WIDTH) as session, flags.override(OPTIMIZE="off"):
        kept = session.run(lists, feeds)
        assert memory_of(session).spilled > 0
        found = [x.get(k) for x in kept for k in range(30)]
        assert memory_of(session).bytes_in > 0
    with hr.Session(graph=g) as session, flags.override(OPTIMIZE="off"):
        same(found, [x.get(k) for x in session.run(lists, feeds) for k in range(30)])


def test_each_device_has_its_own() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(f64, (WIDTH,))

        def body(i: Any, y: Any) -> Any:
            with hr.device("/device:CPU:0"):
                a = hr.sin(y)
            with hr.device("/device:CPU:1"):
                return i + 1, hr.exp(a * x)

        y = hr.while_loop(lambda i, y: i < 30, body, (0, x), swap_memory=True)[1]
        (dx,) = hr.gradients(y, x)
    feeds, limit = {x: random(WIDTH) * 0.1}, 12 * 8 * WIDTH
    with hr.Session(graph=g, engine="interpret") as session:
        want = session.run([y, dx], feeds)
    with hr.Session(graph=g, devices={"CPU": 2}, memory_limit=limit) as session:
        same(session.run([y, dx], feeds), want)
        for memory in memories_of(session):
            assert memory.bytes_out > 0
            assert memory.peak <= limit


def test_copies_are_in_the_trace() -> None:
    with hr.Graph() as g:
        fetches, feeds = plain(swap_memory=True)
    events: list[step_events.Event] = []
    with hr.Session(graph=g, memory_limit=12 * 8 * WIDTH) as session:
        session.run(fetches, feeds, options=hr.RunOptions(listener=events.append))
    spans = [e for e in events if isinstance(e, step_events.StreamSpan)]
    assert {e.stream for e in spans} == {"copy"}
    assert {e.device for e in spans} == {"/job:localhost/replica:0/task:0/device:CPU:0"}
    assert {e.name.partition(":")[0] for e in spans} == {"swap out", "swap in"}
    assert all(e.bytes and not e.bytes % (8 * WIDTH) and e.end >= e.time for e in spans)
    assert "of loop 'while'" in spans[0].name
    file = io.StringIO()
    step_events.write_chrome(events, file)
    written = json.loads(file.getvalue())["traceEvents"]
    bars = [e for e in written if e["name"].startswith("swap ")]
    assert len(bars) == len(spans)
    rows = {(e["pid"], e["tid"]) for e in bars}
    names = {e["args"]["name"] for e in written if e["name"] == "thread_name" and (e["pid"], e["tid"]) in rows}
    # A kernel that waits for a value may read it while the thread of copies writes another: two lanes of one stream.
    assert names in ({"stream copy"}, {"stream copy", "stream copy 2"})
    assert {(e["pid"], e["tid"]) for e in written if e["ph"] == "X"} - rows
