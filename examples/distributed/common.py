"""Processes, options and data of the examples of replicated training.

A program for parameter servers is started once for each task, with the options `--cluster`, `--job` and `--task`.
Without them, `start_tasks` starts it for every task on this machine, and ends all processes.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import random
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import headrace as hr

ROOT = Path(__file__).parents[2]
PORTS = range(20_000, 32_000)  # below those that systems give to outgoing connections
HELD_OUT = 360


def parser(description: str | None, steps: int) -> argparse.ArgumentParser:
    """Returns a parser of the options of all programs."""
    made = argparse.ArgumentParser(description=str(description).splitlines()[0])
    made.add_argument("--steps", type=int, default=steps, help="of training; default: %(default)s")
    return made


# *** processes ***


def add_task_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that name the task of a process."""
    parser.add_argument("--cluster", help="TOML file with the addresses of all tasks; default: tasks on this machine")
    parser.add_argument("--job", default="worker", choices=("ps", "worker"))
    parser.add_argument("--task", type=int, default=0)
    parser.add_argument("--until-eof", action="store_true", help="end with the standard input")


def server_of(options: argparse.Namespace) -> hr.Server:
    """Returns the server of this process.

    With `--until-eof` the process ends when its starter has ended.
    """
    if options.until_eof:
        threading.Thread(target=_exit_at_eof, daemon=True).start()
    return hr.Server(hr.ClusterSpec.from_toml(options.cluster), options.job, options.task)


def _exit_at_eof() -> None:
    while os.read(0, 4096):
        pass
    os._exit(1)


def start_tasks(program: str, jobs: Mapping[str, int], arguments: Sequence[str]) -> int:
    """Runs a program once for each task, as processes of this machine.

    Args:
      program: name of the module.
      jobs: the number of tasks of each job.
      arguments: arguments of the program, besides those that name the task.

    Returns:
      0 if all workers have succeeded. The parameter servers are ended after them.
    """
    ports = free_ports(sum(jobs.values()))
    addresses = {job: [f"127.0.0.1:{ports.pop()}" for _ in range(n)] for job, n in jobs.items()}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {**os.environ, "HEADRACE_CLUSTER_SECRET": secrets.token_hex(32), "PYTHONPATH": os.pathsep.join(paths)}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as ends:
        cluster = Path(folder, "cluster.toml")
        cluster.write_text("[jobs]\n" + "".join(f"{job} = {json.dumps(tasks)}\n" for job, tasks in addresses.items()))
        started = {}
        for job, tasks in addresses.items():
            for i in range(len(tasks)):
                command = [sys.executable, "-m", program, *arguments, "--cluster", str(cluster)]
                command += ["--job", job, "--task", str(i), "--until-eof"]
                process = subprocess.Popen(command, stdin=subprocess.PIPE, env=env)
                ends.callback(process.wait)
                ends.callback(process.kill)
                started[job, i] = process
        workers = [process for (job, _), process in started.items() if job == "worker"]
        while any(p.poll() is None for p in workers) and not any(p.poll() for p in started.values()):
            time.sleep(0.05)
        return int(any(p.poll() for p in started.values()))


def free_ports(n: int) -> list[int]:
    """Returns ports of loopback that no other process uses now."""
    found = []
    for port in random.sample(PORTS, 100 + n):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            found.append(port)
    return found[:n]


# *** data ***


def digits() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns scikit-learn's handwritten digits, shuffled.

    Returns:
      Images of shape [n, 64] with values in [0, 1] and their classes; then held-out images and classes.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        raise SystemExit("the digits are a file of scikit-learn: pip install scikit-learn")
    # without an import of scikit-learn, which takes longer than a short training
    found = np.loadtxt(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", np.float32, delimiter=",")
    found = found[np.random.default_rng(0).permutation(len(found))]
    images, classes = found[:, :64] / 16, found[:, 64].astype(np.int64)
    return images[HELD_OUT:], classes[HELD_OUT:], images[:HELD_OUT], classes[:HELD_OUT]
