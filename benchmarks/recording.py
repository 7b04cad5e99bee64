"""The cost of `hr.record`, compared with a step that is interpreted without it.

Both runs alternate in one process, and each ratio is of two neighbors. The times are CPU times of the thread that
drives the step, so that other programs of the machine do not count. Saving the file is not part of the step; its time
is in the remarks.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from benchmarks import graphs
from benchmarks.measure import Result, no_collection
from headrace.ir.graph import Graph, Tensor
from headrace.metadata import RunOptions
from headrace.observe.recorded import write_recording
from headrace.session import Session

AIM = 3.0


def matrix_loop(trips: int) -> tuple[Graph, Tensor]:
    """`x = tanh(x @ w)` for 8 rows of 64 numbers."""
    random = np.random.default_rng(0)
    with hr.Graph() as g:
        w = hr.constant(random.standard_normal((64, 64)).astype(np.float32) * 0.1)
        x = hr.constant(np.ones((8, 64), np.float32))
        y = hr.while_loop(lambda i, x: i < trips, lambda i, x: (i + 1, hr.tanh(hr.matmul(x, w))), [0, x])[1]
    return g, y


def _measured(session: Session, out: Tensor, repeats: int) -> tuple[list[float], list[float], dict[str, Any]]:
    """Seconds of plain and of recorded runs in turns, and the last document."""
    plain, recorded = [], []
    with no_collection():
        for _ in range(repeats + 1):
            recorder = hr.record()  # a new one each time, so that no run frees the log of the run before
            options = RunOptions(listener=recorder)
            began = time.thread_time()
            session.run(out)
            between = time.thread_time()
            session.run(out, options=options)
            recorded.append(time.thread_time() - between)
            plain.append(between - began)
    return plain[1:], recorded[1:], recorder.document()  # the first runs compile


def recording(trips: int = 1_000, repeats: int = 15) -> list[Result]:
    """The cost of a recording in three loops."""
    results = []
    loops = {
        "counting loop": graphs.counting_loop(trips),
        "conditional in a loop": graphs.conditional_loop(trips),
        "loop of matrix products": matrix_loop(trips),
    }
    for name, (graph, out) in loops.items():
        with Session(graph=graph, engine="interpret") as session:
            plain, recorded, document = _measured(session, out, repeats)
        n = document["tokens"]["node"]["n"]
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "step.hrrec"
            began = time.perf_counter()
            write_recording(file, document)
            saved, size = time.perf_counter() - began, file.stat().st_size
        facts = (
            f"{n:,} tokens; {1e6 * np.median(plain) / n:.3g} and {1e6 * np.median(recorded) / n:.3g} µs each;"
            f" {size / n:.3g} bytes each in the file, written in {saved:.2g} s; {AIM:g} is the aim"
        )
        ratios = [r / p for r, p in zip(recorded, plain)]
        results.append(Result(f"{name}: recorded, divided by interpreted", "ratio", ratios, facts))
    return results
