"""One graph over two devices, each result compared with that of one device: `make demo`.

A pipeline, whose stages in different iterations of a loop work at the same time; learning from two halves of a batch,
whose gradients are summed by a collective; and a prediction for devices that are not here.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import headrace as hr

SIZE, TRIPS = 512, 12
RATE = 0.5


def on(i: int) -> Any:
    return hr.device(f"/device:CPU:{i}")


def pipeline(x: Any, w: Any, v: Any, parallel: int) -> Any:
    """Multiplies x by w repeatedly on device 0, and processes each product on device 1."""

    def body(i: Any, a: Any, total: Any) -> tuple[Any, Any, Any]:
        with on(0):
            a = hr.matmul(a, w)
        with on(1):
            seen = hr.reduce_sum(hr.matmul(a, v))
        with on(0):
            return i + 1, a, total + seen

    start = (0, x, hr.constant(0.0))
    return hr.while_loop(lambda i, *_: i < TRIPS, body, start, parallel_iterations=parallel)[2]


def learning(xs: Any, ys: Any, w: Any) -> Any:
    """Returns the weights after one step of gradient descent, half a batch on each device."""
    grads = []
    for i, (x, y) in enumerate(zip(hr.split(xs, 2), hr.split(ys, 2), strict=True)):
        with on(i):
            error = hr.matmul(x, w) - y
            grads.append(hr.gradients(hr.reduce_mean(hr.square(error)), [w])[0])
    total = hr.all_sum(grads, ["/device:CPU:0", "/device:CPU:1"])[0]
    with on(0):
        return w - RATE / 2 * total


def milliseconds(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return 1000 * statistics.median(seconds)


def main() -> int:
    rng = np.random.default_rng(0)
    x, w, v = (rng.standard_normal((SIZE, SIZE)).astype(np.float32) / np.float32(SIZE**0.5) for _ in range(3))
    wrong = 0

    print(f"1. A pipeline of two products of {SIZE}x{SIZE} in {TRIPS} iterations of a loop, a stage on each device")
    for parallel in (1, 8):
        with hr.Graph() as g:
            total = pipeline(hr.constant(x), hr.constant(w), hr.constant(v), parallel)
        with hr.Session(graph=g) as one, hr.Session(graph=g, devices={"CPU": 2}) as two:
            same = bool(np.isclose(one.run(total), two.run(total), rtol=1e-4))
            took = milliseconds(two.make_callable(total))
        wrong += not same
        print(
            f"   {parallel} iteration{'s' * (parallel > 1)} at a time: {took:.0f} ms; "
            f"{'the same as' if same else 'NOT what came out'} on one device"
        )

    print("\n2. Linear regression, half a batch on each device, the gradients summed by a collective")
    xs = rng.standard_normal((64, 3))
    ys = xs @ np.array([[1.0], [-2.0], [0.5]])
    with hr.Graph() as g:
        weights = hr.placeholder(hr.float64, (3, 1))
        after = learning(hr.constant(xs), hr.constant(ys), weights)
    with hr.Session(graph=g, devices={"CPU": 2}) as session:
        values = np.zeros((3, 1))
        for _ in range(60):
            values = session.run(after, {weights: values})
        sends = _fired(session, after, weights).count("_Send")
    right = bool(np.allclose(values.ravel(), [1.0, -2.0, 0.5]))
    wrong += not right
    print(f"   weights {np.round(values.ravel(), 3)}, {'as they were' if right else 'WRONG'}")
    print(f"   in each step {sends} tensors cross")

    print("\n3. The pipeline predicted for two machines, joined by a gigabit a second")
    names = [f"/job:worker/replica:0/task:{i}/device:CPU:0" for i in range(2)]
    machines = tuple(hr.DeviceModel(n, flops=3e10) for n in names)
    with hr.Graph() as g:
        with hr.device("/job:worker/task:0"):
            a = hr.matmul(hr.constant(x), hr.constant(w))
        with hr.device("/job:worker/task:1"):
            b = hr.reduce_sum(hr.matmul(a, hr.constant(v)))
    found = hr.simulate(b, hr.Cluster(machines, hr.Link(latency=1e-4, bandwidth=1.25e8)))
    print("   " + str(found).replace("\n", "\n   "))

    print(f"\n{'All results are right.' if not wrong else f'{wrong} results are WRONG.'}")
    return int(wrong > 0)


def _fired(session: hr.Session, fetch: Any, feed: Any) -> list[str]:
    """The types of the operations that fire in a step."""
    events: list[Any] = []
    session.run(fetch, {feed: np.zeros(feed.shape)}, hr.RunOptions(listener=events.append))
    return [e.type for e in events if isinstance(e, hr.step_events.NodeEnd)]


if __name__ == "__main__":
    sys.exit(main())
