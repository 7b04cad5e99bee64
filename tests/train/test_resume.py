"""A run that is killed and resumed ends with the parameters of an undisturbed run.

They are equal bit for bit.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]

# A small classifier with dropout, shuffled batches and momentum. Its randomness comes from ops, whose states the saver
# keeps, or follows from the step. It saves every 5 steps, and kills itself at step `kill_at`.
PROGRAM = """
import os, signal
import numpy as np
import headrace as hr
from headrace.train import saving

folder, until, kill_at, engine, format, keeps = ARGUMENTS
until, kill_at = int(until), int(kill_at)
N = 64
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(N, 6)).astype(np.float32), rng.integers(0, 3, N).astype(np.int32)

with hr.Graph() as g:
    hr.random.set_seed(5)
    step = hr.Variable(np.int64(0), name="step", trainable=False)
    w1 = hr.Variable(hr.random.normal((6, 16)) * 0.3, name="w1")
    w2 = hr.Variable(hr.random.normal((16, 3)) * 0.3, name="w2")
    x, y = hr.placeholder(hr.float32, (None, 6)), hr.placeholder(hr.int32, (None,))
    batch = hr.random.shuffle(hr.range(N))[:8]
    bx, by = hr.gather(x, batch), hr.gather(y, batch)
    noisy = bx + hr.random.normal(hr.shape(bx)) * 0.01  # a seed of its own: the graph's and its number
    hidden = hr.nn.dropout(hr.tanh(noisy @ w1), rate=0.4)
    # a random op in a loop, whose state goes on from trip to trip
    _, hidden = hr.while_loop(
        lambda i, h: i < 2, lambda i, h: (i + 1, h * hr.random.uniform((), 0.9, 1.1)), (0, hidden)
    )
    loss = hr.reduce_mean(hr.nn.sparse_softmax_cross_entropy_with_logits(labels=by, logits=hidden @ w2))
    updates = [step.assign_add(1)]
    for v, dv in zip((w1, w2), hr.gradients(loss, [w1, w2])):
        m = hr.Variable(np.zeros(v.shape, np.float32), name=v.name[:-2] + "/Momentum", trainable=False)
        updates.append(v.assign_sub(0.1 * m.assign(0.9 * m + dv)))
    saver = saving.Saver(max_to_keep=2, random_state=keeps == "all", format=format)

with hr.Session(graph=g, engine=engine) as session:
    resumed = saver.restore_latest(session, folder)
    if resumed is None:
        session.run([v.initializer for v in g.variables])
    print("resumed", resumed, flush=True)
    for i in range(int(session.run(step)), until):
        order = np.random.default_rng([7, i]).permutation(N)  # what is fed follows from the step
        session.run([u.op for u in updates], {x: X[order], y: Y[order]})
        if i + 1 == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if (i + 1) % 5 == 0:
            saver.save(session, os.path.join(folder, "m"), i + 1)
    np.savez(os.path.join(folder, "end.npz"), *session.run(list(g.variables)))
"""


# Imports headrace once, and then runs programs each in a process of its own.
STARTER = """
import json, os, sys
import headrace as hr
import headrace.pipeline
from headrace.train import saving

with hr.Graph():
    saving.Saver([hr.Variable(1.0)])  # looks for its operations, and so imports all there are

for line in sys.stdin:
    program, arguments, out = json.loads(line)
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
            os.dup2(1, 2)
            exec(compile(program, "program", "exec"), {"ARGUMENTS": arguments})
        except BaseException:
            import traceback
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[..., str]]:
    """Runs `PROGRAM` in a process of its own, and gives what it prints."""
    env = {**os.environ, "PYTHONPATH": "."}
    child = subprocess.Popen(
        [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env
    )
    assert child.stdin is not None
    assert child.stdout is not None

    def run(folder: Path, kill_at: int, engine: str, format: str, keeps: str = "all") -> str:
        assert child.stdin is not None
        assert child.stdout is not None
        folder.mkdir(exist_ok=True)
        out = folder / "out"
        child.stdin.write(
            json.dumps([PROGRAM, [str(folder), "30", str(kill_at), engine, format, keeps], str(out)]) + "\n"
        )
        child.stdin.flush()
        assert child.stdout.readline().strip() == str(-signal.SIGKILL if kill_at else 0), out.read_text()
        return out.read_text()

    yield run
    child.stdin.close()
    try:
        child.wait(30)
    finally:
        child.kill()
        child.stdout.close()


def ends(folder: Path) -> list[Any]:
    with np.load(folder / "end.npz") as found:
        return [found[name] for name in found.files]


@pytest.mark.parametrize(("engine", "format"), [("auto", "native"), ("interpret", "tensorflow")])
def test_a_killed_run_ends_like_an_undisturbed_one(
    tmp_path: Path, run: Callable[..., str], engine: str, format: str
) -> None:
    run(tmp_path / "whole", 0, engine, format)
    killed = tmp_path / "killed"
    assert "resumed None" in run(killed, 13, engine, format)
    assert f"resumed {killed}/m-10\n" in run(killed, 21, engine, format)
    assert f"resumed {killed}/m-20\n" in run(killed, 0, engine, format)
    whole = ends(tmp_path / "whole")
    assert whole[0] == 30
    assert all(np.isfinite(x).all() for x in whole)
    for a, b in zip(whole, ends(killed), strict=True):
        assert a.tobytes() == b.tobytes()


def test_without_the_random_states_it_does_not(tmp_path: Path, run: Callable[..., str]) -> None:
    """The test above can fail: the states of random ops that the saver keeps matter."""
    run(tmp_path / "whole", 0, "auto", "native")
    run(tmp_path / "killed", 13, "auto", "native", "variables")
    run(tmp_path / "killed", 0, "auto", "native", "variables")
    whole, killed = ends(tmp_path / "whole"), ends(tmp_path / "killed")
    assert whole[0] == killed[0] == 30
    assert whole[1].tobytes() != killed[1].tobytes()
