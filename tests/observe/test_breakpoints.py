"""Breakpoints: where a run pauses, what a paused step shows, and how it goes on."""

from __future__ import annotations

import io
import sys
import threading
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import (
    CancelledError,
    DeadlineExceededError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnimplementedError,
)
from headrace.metadata import scoped_options
from headrace.observe.paused import Paused
from tests.execute.clocks import ManualClock
from tests.inside import use_clock

pytestmark = pytest.mark.one_engine


def program() -> tuple[hr.Graph, Any, Any, Any]:
    """A loop with a branch, in which `h` doubles: graph, feed, tensor `h`, fetch."""
    inside: list[Any] = []
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2,), name="x")

        def body(i: Any, v: Any) -> Any:
            h = hr.multiply(v, 2.0, name="h")
            inside.append(h)
            return i + 1, hr.cond(i > 0, lambda: hr.identity(h + 1.0, name="more"), lambda: hr.identity(h, name="same"))

        y = hr.while_loop(lambda i, v: i < 3, body, (0, x), name="loop")[1]
    return g, x, inside[0], y


def paused_run(what: Any, condition: Any, on_pause: Any, **session: Any) -> Any:
    g, x, h, y = program()
    point = hr.breakpoint_when(h if what is None else what, condition, on_pause=on_pause)
    with hr.Session(graph=g, **session) as s, point:
        return s.run(y, {x: [1.0, 2.0]})


def commands(*lines: str, at: str = "loop/h", condition: Any = None) -> str:
    """The output of a prompt that receives these commands."""
    g, x, _, y = program()
    out = io.StringIO()
    typed = io.StringIO("".join(f"{line}\n" for line in lines))
    with hr.Session(graph=g) as s, hr.breakpoint_when(at, condition, stdin=typed, stdout=out):
        s.run(y, {x: [1.0, 2.0]})
    return out.getvalue()


# *** where a run pauses ***


def test_a_run_pauses_in_each_iteration_for_which_the_condition_holds() -> None:
    seen: list[Any] = []
    note = lambda p: seen.append((p.reason, p.values[0].tolist(), p.levels()[0].iteration))
    assert paused_run(None, lambda v: v.max() > 4.0, note).tolist() == [11.0, 19.0]
    assert seen == [("loop/h:0", [4.0, 8.0], 1), ("loop/h:0", [10.0, 18.0], 2)]


@pytest.mark.parametrize("name", ["x", "x:0", "loop:1", "loop/h:0", "more"])
def test_a_tensor_is_found_by_its_name(name: str) -> None:
    seen: list[str] = []
    paused_run(name, None, lambda p: seen.append(p.op.name))
    assert len(seen) == {"loop/h:0": 3, "more": 2}.get(name, 1)


def test_a_run_without_the_block_is_not_changed() -> None:
    g, x, h, y = program()
    hits: list[Any] = []
    with hr.Session(graph=g) as s:
        point = hr.breakpoint_when(h, on_pause=hits.append)
        with point:
            assert scoped_options.count == 1
            inside = threading.Thread(target=lambda: s.run(y, {x: [1.0, 2.0]}))
            inside.start()  # a block applies to its own thread
            inside.join()
            assert not hits
            s.run(y, {x: [1.0, 2.0]})
        assert scoped_options.count == 0
        s.run(y, {x: [1.0, 2.0]})
        assert len(hits) == point.hits == 3
        s.run(y, {x: [1.0, 2.0]}, options=hr.RunOptions(breakpoints=[point]))
        assert point.hits == 6


def test_wrong_breakpoints_are_refused() -> None:
    with pytest.raises(TypeError, match="needs a tensor of a graph or its name"):
        hr.breakpoint_when(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="is a function of the value"):
        hr.breakpoint_when("x", True)  # type: ignore[arg-type]
    with pytest.warns(
        hr.errors.HeadraceWarning, match=r"no run in the block .* computed 'loop/g:0'; near names: loop/h"
    ):
        paused_run("loop/g", None, print)
    with pytest.raises(InvalidArgumentError, match="the breakpoint at 'loop/h:0' failed with KeyError"):
        paused_run(None, lambda v: {}[1], print)
    g, x, _, y = program()
    options = hr.RunOptions(breakpoints=[hr.breakpoint_when("loop/g", on_pause=print)])
    with hr.Session(graph=g) as s, pytest.raises(InvalidArgumentError, match=r"computes 'loop/g:0'.*names: loop/h"):
        s.run(y, {x: [1.0, 2.0]}, options=options)
    options = hr.RunOptions(breakpoints=["loop/h"])
    with (
        hr.Session(graph=g) as s,
        pytest.raises(InvalidArgumentError, match="got 'loop/h'"),
    ):
        s.run(y, {x: [1.0, 2.0]}, options=options)


def test_without_a_terminal_the_run_fails_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("continue\n"))
    with pytest.raises(FailedPreconditionError, match=r"needs a terminal.*stdin=, stdout="):
        paused_run_in_terminal()


def paused_run_in_terminal() -> None:
    g, x, h, y = program()
    with hr.Session(graph=g) as s, hr.breakpoint_when(h):
        s.run(y, {x: [1.0, 2.0]})


def test_paused_time_does_not_count_for_the_deadline() -> None:
    g, x, h, y = program()
    clock = ManualClock()
    with hr.Session(graph=g) as s:
        use_clock(s, clock)
        with hr.breakpoint_when(h, on_pause=lambda p: clock.advance(100.0)):
            assert s.run(y, {x: [1.0, 2.0]}, timeout_ms=1000).tolist() == [11.0, 19.0]
        late = hr.breakpoint_when("e/i", lambda v: clock.advance(100.0), on_pause=print)  # a condition takes time
        with late, pytest.raises(DeadlineExceededError):
            s.run(endless(g), timeout_ms=1000)


def endless(g: hr.Graph) -> Any:
    with g.as_default():
        return hr.while_loop(lambda i: i >= 0, lambda i: (hr.identity(i * 0, name="i"),), (0,), name="e")[0]


def test_a_jitted_function_pauses() -> None:
    triple = hr.jit(lambda x: hr.multiply(x, 3.0, name="triple") + 1.0)
    seen: list[Any] = []
    with hr.breakpoint_when("triple", on_pause=lambda p: seen.append(float(p.values[0]))):
        assert float(triple(np.float32(2.0))) == 7.0
    assert seen == [6.0]


# *** a paused step ***


def test_a_paused_step_is_plain_data() -> None:
    found: list[Any] = []

    def look(p: Paused) -> None:
        found.append([(level.kind, level.name, level.iteration) for level in p.levels()])
        found.append([(f.kind, f.tag, [n for n, _ in f.iterations]) for f in p.frames()])
        found.append([e.op.name for e in p.ready()])
        found.append({e.op.name: e.missing for e in p.waiting()})
        found.append(p.started())
        with pytest.raises(ValueError, match="read-only"):
            p.values[0][0] = 7.0

    paused_run(None, lambda v: v[0] == 4.0, look)
    levels, frames, ready, waiting, started = found
    assert levels == [("loop", "loop", 1), ("step", "", 0)]
    assert frames[0][:2] == ("step", "")
    assert frames[1][:2] == ("loop", "loop")
    assert 1 in frames[1][2]
    assert ready
    assert all(waiting.values())
    assert started == []


def test_values_of_iterations_feeds_and_constants() -> None:
    def look(p: Paused) -> None:
        assert p.value("h")[2].tolist() == [10.0, 18.0]
        assert [p.value("loop/h", n)[2].tolist() for n in range(2)] == [[2.0, 4.0], [4.0, 8.0]]
        assert p.value("x")[:2] == p.value("x:0")[:2] == ("x:0", "")
        assert p.value("more", 1)[:2] == ("loop/cond/more:0", "loop#1")
        with pytest.raises(LookupError, match="fired dead"):
            p.value("more", 0)
        with pytest.raises(LookupError, match="the newest open iteration is"):
            p.value("h", 99)
        with pytest.raises(LookupError, match="no operation of this step is called 'g'"):
            p.value("g")
        assert "hr.multiply" in dict(p.lines())[p.source().line]  # type: ignore[union-attr]
        assert "hr.while_loop" in dict(p.lines(1))[p.source(1).line]  # type: ignore[union-attr]

    paused_run(None, lambda v: v[0] == 10.0, look)


def test_all_devices_pause() -> None:
    with hr.Graph() as g:
        with hr.device("/cpu:0"):
            a = hr.identity(hr.placeholder_with_default(1.0, ()), name="a")
        with hr.device("/cpu:1"):
            b = hr.multiply(a, 2.0, name="b")
    threads: list[Any] = []

    def look(p: Paused) -> None:
        threads.append(threading.current_thread())
        assert p.value("a")[2] == 1.0
        assert {f.device[-5:] for f in p.frames()} <= {"CPU:0", "CPU:1"}

    with hr.Session(graph=g, devices={"CPU": 2}) as s, hr.breakpoint_when(b, on_pause=look):
        assert s.run(b) == 2.0
    assert threads == [threading.current_thread()]


# *** going on ***


def test_commands_that_step() -> None:
    seen: list[tuple[str, int]] = []

    def go(p: Paused) -> None:
        seen.append((p.op.name, p.levels()[0].iteration))
        if len(seen) == 1:
            p.next()
        elif len(seen) == 2:
            p.step(2)

    paused_run(None, lambda v: v[0] == 2.0, go)
    assert seen[0] == ("loop/h", 0)
    assert seen[1][1] == 1
    assert len(seen) == 3


def test_next_leaves_a_loop_after_its_last_iteration() -> None:
    seen: list[str] = []
    with hr.Graph() as g:
        out = hr.while_loop(lambda i: i < 2, lambda i: (hr.add(i, 1, name="inc"),), (0,), name="w")[0]
        y = hr.multiply(out, 5, name="after")

    def go(p: Paused) -> None:
        seen.append(p.op.name)
        p.next()

    with hr.Session(graph=g) as s, hr.breakpoint_when("w/inc", lambda v: v == 2, on_pause=go):
        assert s.run(y) == 10
    assert seen[0] == "w/inc"
    assert seen[-1] == "after"


def test_quit_cancels_the_step() -> None:
    with pytest.raises(CancelledError, match="cancelled at a breakpoint, after 'loop/h'"):
        paused_run(None, None, Paused.quit)


# *** the prompt ***


def test_the_prompt_shows_the_place_and_values() -> None:
    typed = ("where", "print h", "p h@0", "print", "print g", "up", "up", "down", "continue")
    out = commands(*typed, condition=lambda v: v[0] > 9)
    assert out.startswith("paused at 'loop/h:0' (Mul), made at ")
    assert "in iteration 2 of loop 'loop'" in out
    assert 'h = hr.multiply(v, 2.0, name="h")' in out
    assert "loop/h:0 = float32[2] = [10.0, 18.0]" in out
    assert "loop/h:0 in loop#0 = float32[2] = [2.0, 4.0]" in out
    assert "*** print needs the name of a tensor" in out
    assert "*** no operation of this step is called 'g'" in out
    assert "-> 1  the step: at 'loop' (loop)" in out
    assert "*** there is no further frame outside" in out


def test_the_rest_of_a_step_runs_without_pauses() -> None:
    assert commands("run").count("paused at") == 1
    assert commands("c", "run").count("paused at") == 2
    seen: list[Any] = []
    assert paused_run(None, None, lambda p: (seen.append(p), p.step(), p.run())).tolist() == [11.0, 19.0]
    assert len(seen) == 1


def test_the_prompt_shows_the_machine() -> None:
    with pytest.raises(CancelledError):
        commands("frames", "ready", "waiting", "quit")
    out = commands("frames", "ready", "waiting", "c", "c", "c")
    assert "loop 'loop': iterations 0 (" in out
    assert "at most 10 at a time" in out
    assert ", in loop#0" in out
    assert "waits for " in out


def test_watched_values_are_shown_at_each_pause() -> None:
    out = commands("watch h@0", "watch", "continue", "unwatch h@0", "unwatch h@0", "continue", "c")
    assert out.count("loop/h:0 in loop#0 = float32[2] = [2.0, 4.0]") == 2
    assert "\nh@0\n" in out
    assert "*** 'h@0' is not watched" in out


def test_break_adds_a_breakpoint() -> None:
    out = commands("break more", "break i", "break", "c", "c", "c", condition=lambda v: v[0] < 3)
    assert out.count("paused at 'loop/cond/more:0'") == 2
    assert "*** break needs the name of a tensor" in out


def test_help_names_each_command_once_and_wrong_commands_are_reported() -> None:
    out = commands("help", "help step", "dance", "step -1", "list x", "", "list", "stepi", "c", "c", "c")
    for name in ("where", "print", "frames", "ready", "waiting", "step", "next", "up", "down", "watch", "quit"):
        assert sum(line.strip().startswith((f"{name} ", f"{name}:")) for line in out.splitlines()) >= 1
    assert "*** no command 'dance'" in out
    assert "*** expected a number of firings of at least 1, got -1" in out
    assert "fired: " in out


def test_the_end_of_the_input_cancels_the_step() -> None:
    with pytest.raises(CancelledError):
        commands("where")


def test_a_cluster_refuses_breakpoints() -> None:
    from headrace.observe.inspectors import inspectors_of

    text = "breakpoints at 'x:0' cannot pause .* runs on a cluster, .*watch=hr.watch"
    with pytest.raises(UnimplementedError, match=text):
        inspectors_of(hr.RunOptions(breakpoints=[hr.breakpoint_when("x", on_pause=print)]), {})


def test_a_breakpoint_sees_a_bad_value_before_the_check_of_numbers() -> None:
    with hr.Graph() as g:
        y = hr.log(hr.placeholder_with_default(-1.0, ()), name="log")
    seen: list[Any] = []
    point = hr.breakpoint_when(y, np.isnan, on_pause=lambda p: seen.append(p.values))
    with hr.Session(graph=g) as s, point, pytest.raises(InvalidArgumentError, match="first NaN"):
        s.run(y, check_numerics=True)
    assert len(seen) == 1
