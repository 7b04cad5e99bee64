"""The examples of replicated training reach their figures, and end all their processes.

Each runs as a user starts it, and its processes share a pipe for their output. The output ends with the last of them.
They start their processes by common.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.system, pytest.mark.timeout(100)]

ROOT = Path(__file__).parents[2]
SECONDS = 80.0


@contextlib.contextmanager
def started(program: str, folder: Path, *options: object) -> Iterator[subprocess.Popen[str]]:
    module = f"examples.distributed.{program.removesuffix('.py')}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", module, *map(str, options)]
    process = subprocess.Popen(
        command, cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def output_of(program: str, folder: Path, *options: object) -> str:
    """All that the processes of an example print; it must succeed."""
    with started(program, folder, *options) as process:
        shown, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, shown
    return shown


def figures(pattern: str, shown: str) -> list[float]:
    return [float(x) for x in re.findall(pattern, shown)]


def losses(shown: str) -> list[float]:
    return figures(r"loss ([\d.]+)", shown)


def right(shown: str) -> float:
    """The percentage of correct predictions."""
    (found,) = figures(r"([\d.]+)% .*are right", shown)
    return found


def test_asynchronous_workers_train_the_variables_of_a_parameter_server(tmp_path: Path) -> None:
    shown = output_of("parameter_server.py", tmp_path, "--steps", 150)
    mine = figures(r"made (\d+) steps", shown)
    assert len(mine) == 2
    assert 150 <= sum(mine) <= 152  # both may be in a step when the last one is counted
    assert right(shown) > 80
    assert losses(shown)[-1] < 1.0 < losses(shown)[0]


def test_an_update_does_not_wait_for_a_backup_worker(tmp_path: Path) -> None:
    shown = output_of("synchronous.py", tmp_path, "--steps", 100, "--delay", 0.5)
    gradients = dict(re.findall(r"worker (\d) computed (\d+) gradients", shown))
    assert int(gradients["2"]) < 50 < 100 <= int(gradients["0"]) + int(gradients["1"])
    assert max(figures(r"gradients in ([\d.]+) s", shown)) < 100 * 0.5
    assert right(shown) > 80
    assert losses(shown)[-1] < 1.0 < losses(shown)[0]


def test_towers_train_as_one_process_with_the_whole_batch(tmp_path: Path) -> None:
    shown = output_of("towers.py", tmp_path, "--steps", 50)
    assert figures(r"to one process: ([\d.e+-]+)", shown)[0] < 1e-5
    first, last, *_ = losses(shown)
    assert last < 0.3 < 2 < first
    assert right(shown) > 90


def test_the_copies_of_a_ring_stay_equal(tmp_path: Path) -> None:
    shown = output_of("all_reduce.py", tmp_path, "--steps", 50)
    assert "equal, bit for bit" in shown
    assert figures(r"to one process: ([\d.e+-]+)", shown)[0] < 1e-4
    first, last, *_ = losses(shown)
    assert last < 0.4 < 2 < first
    assert right(shown) > 85


def test_a_model_over_two_workers_trains_as_in_one_process(tmp_path: Path) -> None:
    shown = output_of("lstm_layers.py", tmp_path, "--steps", 50)
    assert figures(r"to one process: ([\d.e+-]+)", shown)[0] < 1e-5
    first, last, *_ = losses(shown)
    assert last < 1.5 < 2 < first
    assert right(shown) > 40


def test_the_rows_of_an_embedding_are_trained_on_two_servers(tmp_path: Path) -> None:
    shown = output_of("sharded_embedding.py", tmp_path, "--steps", 150)
    assert re.findall(r"(words/part_\d) on (\S+):", shown) == [
        ("words/part_0", "/job:ps/task:0"),
        ("words/part_1", "/job:ps/task:1"),
    ]
    assert all(0 < n < 50_000 for n in figures(r"(\d+) of 50000 rows", shown))
    assert figures(r"([\d.]+)% of the topics", shown)[0] > 60
    assert losses(shown)[-1] < 1.2 < 2 < losses(shown)[0]


def children(pid: int) -> dict[int, str]:
    """The child processes of a process, with their command lines."""
    out = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):
            out[int(child)] = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return out


def read_until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"the output ended without {text!r}")


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds processes as Linux lists them")
@pytest.mark.parametrize("victim", ["starter", "worker"])
def test_no_process_is_left_after_a_kill(tmp_path: Path, victim: str) -> None:
    with started("parameter_server.py", tmp_path, "--steps", 1_000_000) as process:
        read_until(process, "its step 51")
        tasks = children(process.pid)
        assert len(tasks) == 3
        (worker,) = [pid for pid, command in tasks.items() if "--job worker --task 1" in command]
        os.kill(process.pid if victim == "starter" else worker, signal.SIGKILL)
        began = time.monotonic()
        process.communicate(timeout=SECONDS)  # to the end of the output of all processes
        assert time.monotonic() - began < 20
        assert process.returncode == (-signal.SIGKILL if victim == "starter" else 1)
        while alive := [
            command for pid, command in tasks.items() if is_alive(pid)
        ]:  # it closes its files before its end
            assert time.monotonic() - began < 20, alive
            time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
