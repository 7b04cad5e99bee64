"""Bytes that a loop keeps for its gradient: counted, measured and expected; and their price.

The bytes that an iteration keeps are counted in three ways.

* By hand: one copy of each value that the derivative of an iteration needs and the loop's inputs do not give.
* In the lists that the forward loop returns, its accumulators: the bytes of their elements, shared ones once.
* By tracemalloc: how much more the gradient needs at its worst moment with 2 N iterations than with N, over N. That has
  everything in it: the part of the fed sequence that an iteration reads, and the array objects, about 150 bytes each.

`while_loop(save=hr.recompute("sqrt"))` keeps about the square root of that and computes the rest again.
"""

from __future__ import annotations

import dataclasses
import gc
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import headrace as hr
from benchmarks import programs
from benchmarks.measure import Result, alternating
from benchmarks.programs import Program, in_graphs
from headrace.resources.tensor_list import TensorList


def gradient_memory(trips: int = 50, calls: int = 5) -> list[Result]:
    """Bytes that an iteration of an RNN and an LSTM keeps, by three methods."""
    results = []
    # large batches and small matrices: how many gradients of a matrix there are at once differs from run to run
    for batch, hidden in ((4, 16), (256, 64)):
        state = batch * hidden * 4
        two = programs.rnn(batch, hidden, trips), programs.rnn(batch, hidden, 2 * trips)
        results += _kept(*two, state, 0, "h", calls)
    for batch, hidden in ((8, 64), (128, 64)):
        state = batch * hidden * 4
        two = programs.lstm(batch, trips, hidden), programs.lstm(batch, 2 * trips, hidden)
        results += _kept(*two, 7 * state, state, "h, c, tanh(c) and four gates", calls)
    return results


def _kept(program: Program, longer: Program, by_hand: int, read: int, what: str, calls: int) -> list[Result]:
    kept = kept_bytes(longer) / longer.trips
    needed = (peak(run_of(longer), calls) - peak(run_of(program), calls)) / (longer.trips - program.trips)
    unit = "bytes an iteration"
    in_lists = f"{kept / by_hand:.3g} times the {by_hand} by hand ({what})"
    in_all = f"{needed / (by_hand + read):.3g} times those by hand" + (" and the input" if read else "")
    return [
        Result(f"{program.title}: in lists", unit, [kept], in_lists),
        Result(f"{program.title}: memory", unit, [needed], in_all),
    ]


@dataclasses.dataclass
class Built:
    """A program and its gradient as a graph."""

    graph: hr.Graph
    feeds: dict[hr.Tensor, np.ndarray]
    grads: list[hr.Tensor]


def built(program: Program) -> Built:
    with hr.Graph() as graph:
        args = {name: hr.placeholder("float32", np.shape(v), name) for name, v in program.arguments.items()}
        loss = getattr(in_graphs, program.function)(hr, **program.sizes, **args)
        grads = hr.gradients(loss, [args[name] for name in program.by])
    return Built(graph, {args[name]: v for name, v in program.arguments.items()}, grads)


def run_of(program: Program) -> Callable[[], Any]:
    """A function that computes the gradients."""
    b = built(program)
    gradient = hr.Session(graph=b.graph).make_callable(b.grads, list(b.feeds))
    values = list(b.feeds.values())
    return lambda: gradient(*values)


def kept_bytes(program: Program) -> int:
    """Bytes of the arrays in the accumulators of the forward loop, without its inputs."""
    b = built(program)
    loops = [op for op in b.graph.operations if op.type in ("While", "StatelessWhile")]
    (forward,) = [op for op in loops if not op.name.startswith("gradients")]
    body = forward.attrs["body"]
    ends = zip(forward.outputs, body.results, strict=True)
    lists = [t for t, r in ends if r.op.type == "TensorListPushBack"]
    values: Sequence[TensorList] = hr.Session(graph=b.graph).run(lists, b.feeds)
    arrays = {id(x): x for v in values for x in (v.get(i) for i in range(v.length()))}
    return sum(x.nbytes for x in arrays.values() if isinstance(x, (np.ndarray, np.generic)))


def peak(call: Callable[[], Any], calls: int = 1) -> int:
    """Peak of the bytes that a call allocates, the least of several `calls`."""
    call()
    found = []
    for _ in range(calls):
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            call()
            found.append(tracemalloc.get_traced_memory()[1] - before)
        finally:
            tracemalloc.stop()
    return min(found)


# *** time for memory ***


def recomputation(lengths: Sequence[int] = (100, 1_000, 10_000), repeats: int = 3) -> list[Result]:
    """Seconds and bytes of an RNN's gradient, with all values kept or few."""
    results = []
    for n in lengths:
        calls = {str(save): _rnn(n, save) for save in ("all", hr.recompute("sqrt"))}
        (all_, little) = calls.values()
        np.testing.assert_allclose(little()[0], all_()[0], rtol=1e-4, atol=1e-6)
        seconds = alternating([all_, little], repeats)
        memory = [peak(f) for f in (all_, little)]
        ratio = [b / a for a, b in zip(*seconds)]
        results += [
            Result(f"RNN of {n:,} steps, gradient: save='all'", "s", seconds[0], f"{memory[0] / 2**10:.0f} KiB"),
            Result(f"RNN of {n:,} steps, gradient: recompute('sqrt')", "s", seconds[1], f"{memory[1] / 2**10:.0f} KiB"),
            Result(f"RNN of {n:,} steps: time for memory", "ratio", ratio, f"of memory {memory[1] / memory[0]:.3g}"),
        ]
    return results


def _rnn(n: int, save: Any, batch: int = 16, hidden: int = 64) -> Callable[[], Any]:
    program = programs.rnn(batch, hidden, n)
    with hr.Graph() as graph:
        h, w, b = (hr.placeholder("float32", np.shape(v), name) for name, v in program.arguments.items())
        _, last = hr.while_loop(
            lambda i, h: i < n, lambda i, h: (i + 1, hr.tanh(hr.matmul(h, w) + b)), (0, h), save=save
        )
        grads = hr.gradients(hr.reduce_sum(last * last), [w, b, h])
    call = hr.Session(graph=graph).make_callable(grads, [h, w, b])
    values = list(program.arguments.values())
    return lambda: call(*values)
