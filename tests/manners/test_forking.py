"""A forked process: its sessions go on or fail at once with the reason.

Nothing hangs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.manners.running import GRAPH, ROOT, SESSIONS, passes

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
    pytest.mark.one_engine,
]

FORK = """
warnings.simplefilter("ignore")  # Python 3.12 warns of a fork with threads

def child(what, seconds=30):
    "What `what()` gives in a forked process, as text."
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            text = repr(what())
        except BaseException as e:
            text = f"{type(e).__name__}: {e}"
        os.write(write, text.encode())
        os._exit(0)
    end = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > end:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            return "it hangs"
        time.sleep(0.002)
    os.close(write)
    with open(read, "rb") as file:
        return file.read().decode()

def anew():
    with hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run("init")
        return [float(v) for v in s.run([MORE, HEAVY, TWO], {"x:0": X})]
"""


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_that_runs_nothing_goes_on_in_the_child(session: str) -> None:
    passes(
        GRAPH
        + FORK
        + f"""
g = build()
s = {session}
s.run("init")
feeds = {{"x:0": X}}
want = repr(s.run([HEAVY, TWO, KEPT], feeds))
same(child(lambda: s.run([HEAVY, TWO, KEPT], feeds)), want)
same(child(lambda: s.run(KEPT, feeds)), repr(s.run(KEPT, feeds)))
same(child(lambda: [s.run(MORE), s.run(MORE)]), repr([np.float32(2), np.float32(3)]))
same(child(lambda: (s.run("enqueue"), s.run(GOT))), repr((None, np.float32(2))))
same(child(lambda: s.run(LOOP, {{"n:0": 3, **feeds}})), repr(np.float32(3 * 128**2)))
same(child(lambda: child(lambda: s.run(HEAVY, feeds))), repr(repr(s.run(HEAVY, feeds))))
same(child(lambda: s.close()), "None")
new = anew()
same(child(anew), repr(new))
assert s.run(MORE) == 2, "what a child does to a variable is its own"
s.close()
same(child(lambda: s.run(MORE)), "RuntimeError: Attempted to use a closed Session.")
"""
    )


@pytest.mark.parametrize("session", SESSIONS)
def test_a_session_with_a_step_under_way_says_so(session: str) -> None:
    passes(
        GRAPH
        + FORK
        + f"""
g = build()
s = {session}
s.run("init")
s.run([HEAVY, TWO], {{"x:0": X}})
waiting = thread(lambda: s.run(GOT))
until(lambda: s.statistics().active)
text = child(lambda: s.run(MORE))
assert text.startswith("RuntimeError: this session had a step under way when the process was forked"), text
assert "Make a new Session in the child" in text
same(child(lambda: s.run("enqueue")), text)  # it would wake nobody
same(child(lambda: s.partial_run_setup([HEAVY], ["x:0"])), text)
same(child(lambda: (s.close(), s.close())), "(None, None)")
same(child(anew), repr(anew()))
s.run("enqueue")
waiting.join()
assert s.run(MORE) == 2
s.close()
"""
    )


def test_a_partial_run_is_the_parents() -> None:
    passes(
        GRAPH
        + FORK
        + """
g = build()
s = hr.Session(graph=g)
handle = s.partial_run_setup([HEAVY, LOOP], ["x:0", "n:0"])
assert "had a step under way" in child(lambda: s.partial_run(handle, HEAVY, {"x:0": X}))
s.partial_run(handle, HEAVY, {"x:0": X})
"""
    )


def test_locks_that_other_threads_hold_are_free_in_the_child() -> None:
    """Another thread holds every long-lived lock while the process is forked.

    Long-lived locks are those that live longer than a step.
    """
    passes(
        GRAPH
        + FORK
        + """
from headrace import recursion
from headrace.execute import blas, step

g = build()
v, q, r = hr.Variable(1.0), hr.FIFOQueue(2, [hr.float32], shared_name="q"), hr.random
r.uniform([2])
s = hr.Session(graph=g, devices={"CPU": 2}, memory_limit=10**7)
s.run("init")
s.run([HEAVY, TWO, KEPT], {"x:0": X})

def locks(owners):
    for o in owners:
        for name in ("_lock", "_changed"):
            if hasattr(o, name):
                yield getattr(o, name)
        if hasattr(o, "_shared"):
            yield o._shared.lock

from headrace import forking
held = [*locks(list(forking._followed)), blas._lock, step._making, recursion._lock]
kinds = {type(o).__name__ for o in forking._followed}
assert {"Graph", "Session", "Programs", "LocalTarget", "ResourceManager", "Variable", "FIFOQueue", "Philox", "Memory",
        "Pool", "LocalDevice"} <= kinds, kinds

ready, go = threading.Event(), threading.Event()

def hold():
    for l in held:
        l.acquire()
    ready.set()
    go.wait()
    for l in held:
        l.release()

t = thread(hold)
ready.wait()

def work():
    with g:
        y = hr.placeholder(hr.float32, (), name="later") * 2.0
    with blas.threads(1), recursion.recursion_room(10):
        pass
    return [float(x) for x in (s.run(y, {"later:0": 3.0}), s.run(MORE), s.run(HEAVY, {"x:0": X}) > 0,
            s.run(TWO, {"x:0": X}) > 0, s.run(KEPT, {"x:0": X}) >= 0, v.assign_add(1.0).numpy(),
            hr.reduce_sum(r.uniform([2])).numpy() > 0)] + [q.enqueue([1.0]), q.size().numpy()]

text = child(work)
assert text == "[6.0, 2.0, 1.0, 1.0, 1.0, 2.0, 1.0, None, np.int32(1)]", text
go.set()
t.join()
"""
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(method: str, tmp_path: Path) -> None:
    """A model made once is used by workers.

    Forked workers use it as it is; other workers make it from its definition.
    """
    program = tmp_path / "program.py"
    program.write_text(
        """
import multiprocessing, warnings
warnings.simplefilter("ignore")
import numpy as np
import headrace as hr

def build():
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (128, 128), name="x")
        v = hr.Variable(2.0)
        hr.reduce_sum(hr.matmul(x, x) * v + hr.matmul(x + 1.0, x), name="y")
        hr.group(v.initializer, name="init")
    return g

def forked(i):
    return float(session.run("y:0", {"x:0": np.full((128, 128), i, np.float32)}))

def spawned(i, definition):
    with hr.Graph() as g:
        hr.import_graph_def(definition, name="")
    with hr.Session(graph=g) as s:
        s.run("init")
        return float(s.run("y:0", {"x:0": np.full((128, 128), i, np.float32)}))

def failing(i):
    session.run("y:0", {"x:0": np.ones(3)})

def wrong():
    with hr.Graph() as g:
        y = hr.check_numerics(hr.placeholder(hr.float32, (), name="x"), "no")
    with hr.Session(graph=g, engine="interpret") as s:
        s.run(y, {"x:0": np.nan})

if __name__ == "__main__":
    method = METHOD
    session = hr.Session(graph=build(), engine="interpret")
    session.run("init")
    want = [forked(i) for i in range(4)]
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:
        if method == "fork":
            got = pool.map(forked, range(4))
        else:
            definition = session.graph.as_graph_def().SerializeToString()
            got = pool.starmap(spawned, [(i, definition) for i in range(4)])
        assert got == want, (got, want)
        try:
            pool.apply(wrong)
        except hr.errors.InvalidArgumentError as e:
            assert e.node == "CheckNumerics" and e.op is None and "no" in str(e), e
        else:
            raise AssertionError
""".replace("METHOD", repr(method))
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.nightly
@pytest.mark.parametrize("session", SESSIONS)
def test_forks_while_everything_runs(session: str) -> None:
    passes(
        GRAPH
        + FORK
        + f"""
g = build()
s = {session}
s.run("init")
v, over = hr.Variable(0.0), []

def again(work):
    while not over:
        work()

def build_more():
    with hr.Graph() as h, hr.Session(graph=h) as t:
        t.run(hr.Variable(1.0).initializer)

def look():
    try:
        old = s.run([HEAVY, MORE], {{"x:0": X}})
    except RuntimeError as e:
        assert "had a step under way" in str(e)
    return float(v.assign(3.0).numpy()), anew(), build_more()

threads = [thread(again, w) for w in (lambda: s.run([HEAVY, TWO], {{"x:0": X}}), lambda: s.run(MORE),
                                      lambda: v.assign_add(1.0), build_more)]
want = repr((3.0, anew(), None))
for _ in range(8):
    same(child(look), want)
over.append(True)
for t in threads:
    t.join()
s.close()
""",
        timeout=110,
    )
