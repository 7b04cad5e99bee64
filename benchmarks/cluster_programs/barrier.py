"""Loops over several tasks with a barrier in each iteration.

Task 0 adds the contributions of all tasks, and the next iteration depends on the sum.

Each spelling computes the number of its iterations, which is exact in float32 below 2**24.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.cluster_programs import Place, check, worker
from benchmarks.measure import no_collection

VECTOR = 16  # elements of the small vector


def counted(tf: Any, trips: Any, tasks: int, parallel: int, shape: tuple[int, ...]) -> Any:
    """Counts with x = mean of x + 1; the condition is on a counter."""

    def body(i: Any, x: Any) -> Any:
        parts = []
        for k in range(tasks):
            with tf.device(worker(k)):
                parts.append(x + 1.0)
        with tf.device(worker(0)):
            return i + 1, tf.add_n(parts) * (1.0 / tasks)

    return tf.while_loop(lambda i, x: i < trips, body, (0, tf.zeros(shape)), parallel_iterations=parallel)[1]


def decided(tf: Any, trips: Any, tasks: int, parallel: int, shape: tuple[int, ...]) -> Any:
    """Computes the same without a counter: the loop's condition is on x."""

    def body(x: Any) -> Any:
        parts = []
        for k in range(tasks):
            with tf.device(worker(k)):
                parts.append(x + 1.0)
        with tf.device(worker(0)):
            return tf.add_n(parts) * (1.0 / tasks)

    bound = tf.cast(trips, tf.float32)
    return tf.while_loop(lambda x: x < bound, body, (tf.zeros(shape),), parallel_iterations=parallel)


def spread(tf: Any, trips: Any, tasks: int, parallel: int, shape: tuple[int, ...]) -> Any:
    """Computes the same with a loop variable on each task: 1 + their mean."""

    def body(i: Any, *states: Any) -> Any:
        with tf.device(worker(0)):
            mean = tf.add_n(states) * (1.0 / tasks)
            following = [i + 1]
        for k in range(tasks):
            with tf.device(worker(k)):
                following.append(mean + 1.0)
        return following

    states = []
    for k in range(tasks):
        with tf.device(worker(k)):
            states.append(tf.zeros(shape))
    results = tf.while_loop(lambda i, *_: i < trips, body, (0, *states), parallel_iterations=parallel)
    with tf.device(worker(0)):
        return tf.add_n(results[1:]) * (1.0 / tasks)


SPELLINGS = {
    "scalar": (counted, ()),
    "vector": (counted, (VECTOR,)),
    "decided": (decided, ()),
    "spread": (spread, ()),
}


class Barrier:
    """One loop, built for any number of iterations.

    Args:
      tf: the module.
      place: the client's task; all tasks are workers.
      spelling: a key of `SPELLINGS`.
      parallel: `parallel_iterations` of the loop.
    """

    def __init__(self, tf: Any, place: Place, spelling: str, parallel: int) -> None:
        loop, shape = SPELLINGS[spelling]
        with tf.Graph().as_default() as graph, tf.device(worker(0)):
            self._trips = tf.placeholder(tf.int32, ())
            self._result = loop(tf, self._trips, len(place.cluster["worker"]), parallel, shape)
        self._session = tf.Session(place.target, graph=graph)

    def run(self, trips: int) -> float:
        """Seconds of a step with so many iterations."""
        feeds = {self._trips: trips}
        with no_collection():
            began = time.perf_counter()
            result = self._session.run(self._result, feeds)
            seconds = time.perf_counter() - began
        for x in np.ravel(result):
            check("the number of iterations that the loop counted", float(x), trips)
        return seconds

    def close(self) -> None:
        self._session.close()
