"""Programs that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# A graph with what makes threads and holds resources. `heavy` takes a kernel pool (interpreted) or two devices.
GRAPH = """
import gc, os, sys, threading, time, warnings
import numpy as np
import headrace as hr

X = np.ones((128, 128), np.float32)
HEAVY, TWO, MORE, GOT, LOOP, ENDLESS, KEPT = (
    n + ":0" for n in ("heavy", "two", "more", "got", "total", "endless", "kept"))

def build():
    g = hr.Graph()
    with g:
        x = hr.placeholder(hr.float32, (128, 128), name="x")
        n = hr.placeholder(hr.int32, (), name="n")
        a, b = hr.matmul(x, x), hr.matmul(x + 1.0, x)
        heavy = hr.identity(hr.reduce_sum(hr.matmul(a, b) + hr.matmul(b, a)), name="heavy")
        with hr.device("/cpu:0"):
            first = hr.matmul(x, x)
        with hr.device("/cpu:1"):
            two = hr.reduce_sum(hr.matmul(first, x), name="two")
        v = hr.Variable(1.0)
        hr.group(v.initializer, name="init")
        hr.identity(v.assign_add(1.0), name="more")
        q = hr.FIFOQueue(2, [hr.float32], [()])
        with hr.device("/cpu:0"):
            got = q.dequeue(name="dequeue")
        with hr.device("/cpu:1"):
            hr.identity(got + 1.0, name="got")
        q.enqueue([1.0], name="enqueue")
        _, total = hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + hr.reduce_sum(x)), [0, 0.0])
        hr.identity(total, name="total")
        hr.identity(hr.while_loop(lambda i: i >= 0, lambda i: (i + 1) % 7, [0]), name="endless")
        body = lambda i, s: (i + 1, hr.matmul(s, x) * 0.01)
        _, y = hr.while_loop(lambda i, s: i < 40, body, [0, x], swap_memory=True)
        hr.reduce_sum(hr.gradients(y, [x])[0], name="kept")
    return g

def thread(f, *args, daemon=True, **kwargs):
    t = threading.Thread(target=f, args=args, kwargs=kwargs, daemon=daemon)
    t.start()
    return t

def same(got, want):
    assert got == want, f"{got!r}, expected {want!r}"

def until(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)
"""

SESSIONS = (
    "hr.Session(graph=g)",
    "hr.Session(graph=g, engine='interpret')",
    "hr.Session(graph=g, devices={'CPU': 2})",
    "hr.Session(graph=g, devices={'CPU': 2}, memory_limit=1_500_000)",
)


def run(program: str, *options: str, timeout: float = 60, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `program`; fails if it does not end."""
    done = subprocess.run(
        [sys.executable, *options, "-c", program],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def passes(program: str, *options: str, timeout: float = 60) -> None:
    """`program` succeeds and shows nothing."""
    status, out, err = run(program, *options, timeout=timeout)
    assert (status, out, err) == (0, "", ""), f"exit status {status}\n{out}\n{err}"
