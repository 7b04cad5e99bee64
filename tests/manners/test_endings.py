"""Closed and dropped objects free their threads, files and memory.

A program ends, independent of the state of its sessions.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.errors import CancelledError
from headrace.execute.threads import Pool
from tests.inside import environment_of, manager_of, memories_of, resources_of, steps_of, target_of
from tests.manners.running import GRAPH, SESSIONS, passes

pytestmark = pytest.mark.system

X = np.ones((128, 128), np.float32)
NAMES: dict[str, Any] = {}
exec(GRAPH, NAMES)  # the same graph as in the processes


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def files() -> int:
    return len(os.listdir("/proc/self/fd"))


def used(session: str) -> tuple[Any, dict[str, weakref.ref[Any]]]:
    """A session that has run everything, and references to all that it holds."""
    g = NAMES["build"]()
    s = eval(session, {"hr": hr, "g": g})
    s.run("init")
    s.run(["heavy:0", "two:0", "kept:0"], {"x:0": X})
    s.run("enqueue")
    s.run("got:0")
    s.run("enqueue")
    held: dict[str, Any] = {"session": s, "graph": g, "target": target_of(s), "resources": manager_of(s)}
    held |= {f"resource {r.name}": r for r in resources_of(s) if hasattr(r, "name")}
    held |= {f"device {name}": d for name, d in target_of(s).local_devices.items()}
    held |= {f"memory {i}": m for i, m in enumerate(memories_of(s))}
    held |= {"step": steps_of(s)[0], "pool": target_of(s).run_environment.pool, "environment": environment_of(s)}
    return s, {name: weakref.ref(x) for name, x in held.items()}


@pytest.mark.one_engine
@pytest.mark.parametrize("how", ["closed", "dropped", "in a partial run", "in a cycle"])
@pytest.mark.parametrize("session", SESSIONS)
def test_nothing_is_left_of_a_session(session: str, how: str) -> None:
    with flags.override(VERIFY=0):
        gc.collect()
        threads, open_files = threading.active_count(), files() if sys.platform == "linux" else 0
        s, held = used(session)
        if "interpret" in session or "CPU" in session:
            assert threading.active_count() > threads
        if how == "closed":
            s.close()
            s.close()
        elif how == "in a partial run":
            s.partial_run_setup(["heavy:0", "more:0"], ["x:0"])
        elif how == "in a cycle":
            s.graph.kept.append(s)
        del s
        gc.collect()
    assert [name for name, r in held.items() if r() is not None] == []
    until(lambda: threading.active_count() == threads)
    if sys.platform == "linux":
        until(lambda: files() == open_files)


@pytest.mark.one_engine
@pytest.mark.parametrize("session", SESSIONS)
def test_a_closed_session_holds_nothing_though_it_is_there(session: str) -> None:
    gc.collect()
    threads, open_files = threading.active_count(), files() if sys.platform == "linux" else 0
    s, held = used(session)
    s.close()
    gc.collect()
    assert [name for name, r in held.items() if name.startswith("resource ") and r() is not None] == []
    until(lambda: threading.active_count() == threads)
    if sys.platform == "linux":
        until(lambda: files() == open_files)
    assert s.graph is not None


@pytest.mark.parametrize("session", SESSIONS)
def test_closing_ends_what_runs(session: str) -> None:
    g = NAMES["build"]()
    s = eval(session, {"hr": hr, "g": g})
    errors: list[BaseException] = []

    def run(fetch: str) -> None:
        try:
            s.run(fetch)
        except CancelledError as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(f,)) for f in ("got:0", "endless:0", "got:0")]
    for t in threads:
        t.start()
    until(lambda: s.statistics().active == 3)
    s.close()
    for t in threads:
        t.join(20)
    assert [str(e) for e in errors] == ["the session was closed while this step ran"] * 3
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session"):
        s.run("got:0")


def test_an_error_in_the_block_closes_the_session() -> None:
    with pytest.raises(ZeroDivisionError), hr.Session(graph=NAMES["build"]()) as s:
        1 / 0
    with pytest.raises(RuntimeError, match="closed Session"):
        s.run("more:0")


# *** pools ***


@pytest.mark.one_engine
def test_a_pool_has_no_more_threads_than_it_needs() -> None:
    def mine() -> int:  # threads of earlier tests may end meanwhile
        return sum(thread.name.startswith("few-threads") for thread in threading.enumerate())

    pool = Pool(3, "few-threads")
    assert mine() == 0
    for _ in range(20):  # one after the other: a single thread
        done = threading.Event()
        pool.submit(done.set)
        done.wait(10)
        until(lambda: not pool.is_busy)
    assert mine() == 1
    go, n = threading.Event(), []
    for i in range(9):
        pool.submit(lambda i=i: (go.wait(10), n.append(i)))
    assert mine() == 3
    go.set()
    until(lambda: sorted(n) == list(range(9)))
    pool.close()
    pool.close()
    until(lambda: mine() == 0)
    with pytest.raises(RuntimeError, match="'few-threads' accept no work"):
        pool.submit(done.set)


@pytest.mark.one_engine
def test_a_pool_that_nobody_has_ends_once_its_work_is_done() -> None:
    before, done, go = threading.active_count(), [], threading.Event()
    pool = Pool(2, "test")
    pool.submit(lambda: (go.wait(10), done.append(1)))
    pool.submit(lambda: done.append(2))
    del pool
    go.set()
    until(lambda: threading.active_count() == before)
    assert sorted(done) == [1, 2]


@pytest.mark.one_engine
def test_what_work_raises_is_shown_and_the_thread_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append((args.exc_type, args.thread.name)))
    pool, done = Pool(1, "test"), threading.Event()
    pool.submit(lambda: 1 // 0)
    pool.submit(done.set)
    assert done.wait(10)
    assert seen == [(ZeroDivisionError, "test_0")]
    pool.close()


@pytest.mark.one_engine
def test_a_pool_lets_go_of_what_it_has_done() -> None:
    class Thing:
        pass

    thing = Thing()
    ref, done = weakref.ref(thing), threading.Event()
    pool = Pool(1, "test")
    pool.submit(functools.partial(lambda _: done.set(), thing))
    done.wait(10)
    del thing
    until(lambda: ref() is None)
    pool.close()


# *** the end of the program ***

ENDINGS = {
    "open sessions": "a, b = s(), s(devices={'CPU': 2}); a.run(HEAVY, F); b.run([HEAVY, TWO], F)",
    "a dequeue": "a = s(); thread(lambda: a.run(GOT)); until(lambda: a._active)",
    "a dequeue on devices": "a = s(devices={'CPU': 2}); thread(lambda: a.run(GOT)); until(lambda: a._active); "
    "until(lambda: sum('headrace' in t.name for t in threading.enumerate()) > 0)",
    "a dequeue on devices, interpreted, with memory": "a = s(engine='interpret', devices={'CPU': 2}, "
    "memory_limit=10**7); a.run(KEPT, F); thread(lambda: a.run(GOT)); time.sleep(0.2)",
    "a loop": "a = s(); thread(lambda: a.run(ENDLESS)); until(lambda: a._active)",
    "a loop, interpreted": "a = s(engine='interpret'); thread(lambda: a.run(ENDLESS)); until(lambda: a._active)",
    "a partial run": "a = s(); h = a.partial_run_setup([HEAVY, LOOP], ['x:0', 'n:0']); a.partial_run(h, HEAVY, F)",
    "a partial run that waits": "a = s(); h = a.partial_run_setup([HEAVY, 'dequeue:0'], ['x:0']);"
    "thread(lambda: a.partial_run(h, [HEAVY, 'dequeue:0'], F)); until(lambda: a._active); time.sleep(0.1)",
    "exit in a block": "with s(devices={'CPU': 2}) as a:\n    a.run(TWO, F)\n    sys.exit(0)",
    "threads that go on": """
a = s(devices={'CPU': 2})
b = s(engine='interpret')
def work():
    threading.main_thread().join()
    time.sleep(0.1)  # the interpreter has begun to end
    assert a.run(TWO, F) > 0 and b.run(HEAVY, F) > 0 and a.run([HEAVY, TWO], F)
    os.write(1, b"worked")
thread(work, daemon=False)
""",
}


@pytest.mark.one_engine
@pytest.mark.parametrize("case", ENDINGS)
def test_a_program_ends(case: str) -> None:
    program = f"{GRAPH}\ng = build()\nF = {{'x:0': X}}\ns = lambda **kw: hr.Session(graph=g, **kw)\n{ENDINGS[case]}\n"
    if case == "threads that go on":
        from tests.manners.running import run

        assert run(program) == (0, "worked", "")
    else:
        passes(program, "-W", "error", timeout=40)
