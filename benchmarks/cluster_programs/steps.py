"""Steps over two tasks: an empty one, and one that moves a large tensor."""

from __future__ import annotations

import time
from typing import Any

from benchmarks.cluster_programs import Place, check, worker
from benchmarks.measure import no_collection


class Empty:
    """A step that runs a no-op on each task."""

    def __init__(self, tf: Any, place: Place) -> None:
        self._ops = []
        with tf.Graph().as_default() as graph:
            for k in range(len(place.cluster["worker"])):
                with tf.device(worker(k)):
                    self._ops.append(tf.no_op())
        self._session = tf.Session(place.target, graph=graph)

    def run(self, steps: int) -> float:
        """Seconds of so many steps."""
        run, ops = self._session.run, self._ops
        with no_collection():
            began = time.perf_counter()
            for _ in range(steps):
                result = run(ops)
            seconds = time.perf_counter() - began
        if result != [None] * len(ops):
            raise ArithmeticError(f"the empty step returned {result!r}")
        return seconds

    def close(self) -> None:
        self._session.close()


class Moved:
    """A variable on task 1, added to a variable on task 0 and reduced there.

    Args:
      tf: the module.
      place: the client's task.
      size: elements of each variable, of float32.
    """

    def __init__(self, tf: Any, place: Place, size: int) -> None:
        self._size = size
        with tf.Graph().as_default() as graph:
            self._value = tf.placeholder(tf.float32, ())
            with tf.device(worker(1)):
                v = tf.get_variable("moved_v", [size], initializer=tf.zeros_initializer())
                self._assign = tf.assign(v, tf.fill([size], self._value)).op
            with tf.device(worker(0)):
                w = tf.get_variable("moved_w", [size], initializer=tf.constant_initializer(-0.5))
                self._sum = tf.reduce_sum(v + w)
            init = tf.global_variables_initializer()
        self._session = tf.Session(place.target, graph=graph)
        self._session.run(init)
        self._round = 0

    def run(self, steps: int) -> float:
        """Seconds of so many steps, after the variable has received a new value."""
        self._round += 1
        value = 1 + self._round % 7
        self._session.run(self._assign, {self._value: value})
        run, fetch = self._session.run, self._sum
        with no_collection():
            began = time.perf_counter()
            for _ in range(steps):
                result = run(fetch)
            seconds = time.perf_counter() - began
        check("the sum of the moved tensor", float(result), (value - 0.5) * self._size, 1e-3)
        return seconds

    def close(self) -> None:
        self._session.close()
