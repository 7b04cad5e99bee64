"""One loop on each route of a step: compiled, cut outside of it, cut inside.

    python -m benchmarks --only routes

The loop has a loop-invariant product of matrices, which the passes hoist. It is written in several ways, and each is
run on one device and on two. A cut outside of the loop leaves all of it on one device; a cut inside it leaves the
product on the other one, and each iteration sends a token if the product is not hoisted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr
from benchmarks.measure import Result, in_turns

TRIPS, SIZE = 200, 64

Cut = tuple[int | None, int | None, int | None]  # devices of the operations before the loop, the product, the rest

CUTS: dict[str, Cut] = {
    "one device": (None, None, None),
    "two devices, cut outside of the loop": (0, 1, 1),
    "two devices, cut inside the loop": (0, 0, 1),
}


def _on(device: int | None) -> Any:
    return contextlib.nullcontext() if device is None else hr.device(f"/device:CPU:{device}")


def _loop(x: Any, cut: Cut, trips: int, branches: bool = False) -> Any:
    """Loop over `h` with the product of `x` and itself in each iteration."""
    first, product, rest = cut
    with _on(first):
        x = x * 2.0

    def body(i: Any, h: Any) -> Any:
        with _on(product):
            w = hr.matmul(x, x)
        with _on(rest):
            if branches:
                return i + 1, hr.cond(hr.equal(i % 2, 0), lambda: h + w, lambda: h - w)
            return i + 1, hr.tanh(h + w)

    with _on(rest):
        return hr.while_loop(lambda i, h: i < trips, body, [0, x])[1]


def _plain(x: Any, cut: Cut, trips: int) -> Any:
    return _loop(x, cut, trips)


def _conditional(x: Any, cut: Cut, trips: int) -> Any:
    return _loop(x, cut, trips, branches=True)


def _gradient(x: Any, cut: Cut, trips: int) -> Any:
    (out,) = hr.gradients([hr.reduce_sum(_loop(x, cut, trips))], [x])
    return out


SPELLINGS: dict[str, Callable[[Any, Cut, int], Any]] = {
    "plain": _plain,
    "with a conditional": _conditional,
    "its gradient": _gradient,
    "imported with primitives": _plain,
    "fed from a queue": _plain,
}


def _call(spelling: str, cut: Cut, trips: int, size: int) -> tuple[hr.Session, Callable[[], Any]]:
    """Session of one spelling of the loop, and a function that runs it once."""
    at = (np.random.default_rng(0).standard_normal((size, size)) / size).astype(np.float32)
    build = SPELLINGS[spelling]
    is_queued = spelling == "fed from a queue"
    with hr.Graph() as g:
        fed = hr.placeholder(hr.float32, (size, size), name="fed")
        queue = hr.FIFOQueue(1, [hr.float32], shapes=[(size, size)])
        put = queue.enqueue(fed)
        out = hr.identity(build(queue.dequeue() if is_queued else fed, cut, trips), name="out")
    if spelling == "imported with primitives":
        text = g.as_graph_def()
        with hr.Graph() as g:
            hr.import_graph_def(text, name="")
        fed, out = (g.get_tensor_by_name(f"{name}:0") for name in ("fed", "out"))
    session = hr.Session(graph=g, devices={"CPU": 2 if any(cut) else 1}, engine="auto")
    if not is_queued:
        run = session.make_callable(out, [fed])
        return session, lambda: run(at)
    fill, take = session.make_callable(put, [fed]), session.make_callable(out)

    def call() -> Any:
        fill(at)
        return take()

    return session, call


def routes(repeats: int = 7, trips: int = TRIPS, size: int = SIZE) -> list[Result]:
    """Time of each spelling on each route, also compared with one device."""
    out = []
    for spelling in SPELLINGS:
        made = [_call(spelling, cut, trips, size) for cut in CUTS.values()]
        calls = [call for _, call in made]
        want, *others = [np.asarray(call()) for call in calls]
        for got in others:
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
        times = in_turns(calls, repeats)
        for session, _ in made:
            session.close()
        name = f"a loop of {trips} iterations, {spelling}"
        for where, seconds in zip(CUTS, times, strict=True):
            out.append(Result(f"{name}: {where}", "ms", [1000 * s for s in seconds]))
        for where, seconds in list(zip(CUTS, times, strict=True))[1:]:
            ratios = [b / a for a, b in zip(times[0], seconds, strict=True)]
            out.append(Result(f"{name}: {where}, compared with one", "ratio", ratios))
    return out
