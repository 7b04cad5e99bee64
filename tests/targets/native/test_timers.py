"""Timers of native code, with a clock that ticks once for each read."""

from __future__ import annotations

import ctypes
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.compile import Compiled
from headrace.execute.step import Step
from headrace.schedule.timers import Laps
from headrace.targets.native import engine, sections, timers
from tests.inside import step_of
from tests.multi.drawn import drawn

with flags.override(NATIVE="on"):
    if engine.available():
        pytest.skip(engine.available(), allow_module_level=True)

pytestmark = [pytest.mark.one_engine, pytest.mark.system]

WIDE = np.full((48, 48), 0.01, np.float32)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of reads of the clock of native code, each a nanosecond later."""
    reads = [0]

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_int64))
    def clock(of: int, out: Any) -> int:
        del of
        reads[0] += 1
        out[0], out[1] = divmod(reads[0], 10**9)
        return 0

    made = timers.Table.__init__

    def with_clock(table: timers.Table, count: int) -> None:
        made(table, count)
        table.symbols["clock_gettime"] = ctypes.cast(clock, ctypes.c_void_p).value or 0

    monkeypatch.setattr(timers.Table, "__init__", with_clock)
    return reads


def timed(fetches: Any, graph: hr.Graph, feeds: Any = ()) -> Compiled:
    with hr.Session(graph=graph, engine="compiled") as session:
        code = step_of(session, fetches, feeds).general.compiled
    assert code is not None
    return code.timed


def run(code: Compiled, *values: Any) -> tuple[Laps, Any]:
    laps = Laps(len(code.sites))
    return laps, code.run(Step(None, lambda: None), values, laps)


def loops(trips: int, inner: int) -> tuple[hr.Graph, Any]:
    with hr.Graph() as g:
        w = hr.constant(WIDE)

        def outer(i: Any, x: Any, s: Any) -> Any:
            y = hr.while_loop(lambda j, y: j < inner, lambda j, y: (j + 1, hr.matmul(y, w)), (0, x), name="inner")[1]
            t = hr.while_loop(lambda k, t: t < 50.0, lambda k, t: (k + 1, t * 1.5 + 1.0), (0, s), name="short")[1]
            return i + 1, hr.tanh(hr.matmul(y, w)), t * 0.0

        return g, hr.while_loop(lambda i, x, s: i < trips, outer, (0, w, 0.0), name="outer")[1:]


def test_each_interval_belongs_to_one_site(ticks: list[int]) -> None:
    graph, fetches = loops(3, 4)
    code = timed(fetches, graph)
    laps, _ = run(code)
    native = {i for i, site in enumerate(code.sites) if site.is_native}
    own = {i for i in native if code.sites[i].is_timed}
    assert not any(laps.times[i] for i in native - own)
    entries = {"outer": 1, "outer/inner": 3, "outer/short": 3}
    for i in own:
        site = code.sites[i]
        extra = 0  # a loop is timed when it is entered and when it ends, too
        if site.is_loop:
            extra = 2 * entries[site.path[-1]] if site.path[-1] != "outer/short" else 3 - laps.counts[i]
        elif site.path[-1:] == ("outer/short",):
            extra = 3 - laps.counts[i]  # once for all iterations
        assert laps.times[i] == laps.counts[i] + extra, site
    counts = {(site.is_loop, site.path[-1:]): laps.counts[i] for i, site in enumerate(code.sites) if i in native}
    assert counts[True, ("outer",)] == 3
    assert counts[True, ("outer/inner",)] == 12
    assert counts[True, ("outer/short",)] == 3 * 9


def test_laps_follow_the_code_of_their_site() -> None:
    graph, fetches = loops(2, 2)
    code = timed(fetches, graph)
    text = code.native_source
    products = [i for i, s in enumerate(code.sites) if s.is_native and {"MatMul"} & {op.type for op in s.ops}]
    assert len(products) == 2
    for site in products:
        before, _, _ = text.partition(f"call void @headrace.lap(i64 {site})")
        last = before.rsplit("call void ", 1)[1]
        assert "product" in last or "gemm" in last, last[:80]


def test_code_without_a_profile_has_no_timers() -> None:
    graph, fetches = loops(2, 2)
    with hr.Session(graph=graph, engine="compiled") as session:
        code = step_of(session, fetches).general.compiled
        assert code is not None
        before = code.native_source
        assert code.timed.native_source != before
        assert "headrace_times" in code.timed.native_source
        assert code.native_source == before
        assert "headrace_times" not in before
        assert "clock_gettime" not in before
        assert code.is_whole
        assert not code.timed.is_whole


def test_profiled_code_has_an_object_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[bool] = []
    load = engine.compile_module

    def counted(*args: Any) -> Any:
        library = load(*args)
        compiled.append(library.is_cached)
        return library

    monkeypatch.setattr(sections.engine, "compile_module", counted)
    with flags.override(CACHE=str(tmp_path)):
        for _ in range(2):
            graph, fetches = loops(2, 3)
            code = timed(fetches, graph)
            assert run(code)[0].counts
    assert compiled[:2] == [False, False]  # without and with timers
    assert compiled[-1]


def test_the_regions_are_those_of_code_without_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, fetches = loops(2, 2)
    with hr.Session(graph=graph, engine="compiled") as session:
        code = step_of(session, fetches).general.compiled
        assert code is not None
        plain, profiled = code.coverage, code.timed.coverage
        assert plain == profiled
        limit = engine.compile_seconds(code.native_source) * 1.001
        assert engine.compile_seconds(code.timed.native_source) > limit
    monkeypatch.setattr(thresholds, "NATIVE_COMPILE_SECONDS", limit)
    graph, fetches = loops(2, 2)
    with hr.Session(graph=graph, engine="compiled") as session:
        code = step_of(session, fetches).general.compiled
        assert code is not None
        assert code.timed.coverage == code.coverage == plain


def test_a_table_serves_one_call_at_a_time() -> None:
    graph, fetches = loops(40, 10)
    code = timed(fetches, graph)
    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(run(code)[0].counts)) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert len(found) == 4
    assert all(counts == found[0] for counts in found)


@pytest.mark.matrix
@pytest.mark.parametrize("native", ["on", "off"])
@pytest.mark.parametrize("seed", range(12))
def test_random_programs_have_the_same_results(seed: int, native: str) -> None:
    program = drawn(random.Random(f"profile {seed}"), stateful=False)
    if program.failure is not None:
        pytest.skip("the program fails")
    with flags.override(NATIVE=native), hr.Session(graph=program.graph) as session:
        want = session.run(program.values, program.build.feeds)
        p = hr.profile(lambda: session.run(program.values, program.build.feeds))
    for a, b in zip(want, p.result, strict=True):
        np.testing.assert_array_equal(a, b)
    assert p.engines == ["compiled"]
