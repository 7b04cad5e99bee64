"""Data-parallel training on handwritten digits by two workers, each in a process of its own.

`BetweenGraph`: each worker has its own graph and session, and updates the shared parameters when it is ready, without
waiting for the other. `InGraph`: one client has the towers of all workers in one graph and applies the mean of their
gradients.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.cluster_programs import Place, check, worker
from benchmarks.measure import no_collection

BATCH = 32
RATE = 0.1
HIDDEN = {"softmax": 0, "mlp": 64}
PIXELS, CLASSES = 64, 10


class Data:
    """The digits of one worker, in batches that repeat.

    Args:
      index: number of the worker.
      workers: number of all workers.
    """

    def __init__(self, index: int, workers: int) -> None:
        from sklearn.datasets import load_digits

        digits = load_digits()
        order = np.random.default_rng(0).permutation(len(digits.target))
        self.images = (digits.data[order] / 16).astype(np.float32)
        self.labels = digits.target[order].astype(np.int64)
        mine = slice(index, None, workers)
        images, labels = self.images[mine], self.labels[mine]
        starts = range(0, len(labels) - BATCH + 1, BATCH)
        self._batches = [(images[i : i + BATCH], labels[i : i + BATCH]) for i in starts]
        self._next = 0

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        """The next batch: images and labels."""
        found = self._batches[self._next % len(self._batches)]
        self._next += 1
        return found


def parameters(tf: Any, model: str) -> list[Any]:
    """Weights and biases of a model, on the device of the caller's scope."""
    rng = np.random.default_rng(1)
    hidden = HIDDEN[model]
    sizes = [(PIXELS, hidden), (hidden, CLASSES)] if hidden else [(PIXELS, CLASSES)]
    found = []
    for layer, (rows, columns) in enumerate(sizes):
        initial = rng.standard_normal((rows, columns)) * (2 / rows) ** 0.5 if hidden else np.zeros((rows, columns))
        found.append(tf.Variable(initial.astype(np.float32), name=f"{model}_w{layer}"))
        found.append(tf.Variable(np.zeros(columns, np.float32), name=f"{model}_b{layer}"))
    return found


def loss_of(tf: Any, variables: Sequence[Any], images: Any, labels: Any) -> Any:
    """Mean cross entropy of a batch."""
    x = images
    for w, b in zip(variables[:-2:2], variables[1:-2:2]):
        x = tf.nn.relu(tf.matmul(x, w) + b)
    logits = tf.matmul(x, variables[-2]) + variables[-1]
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def inputs(tf: Any) -> tuple[Any, Any]:
    """Placeholders of images and labels, for batches of any size."""
    return tf.placeholder(tf.float32, (None, PIXELS)), tf.placeholder(tf.int64, (None,))


class Digits:
    """Session, batches and checks of both programs; they make the graph."""

    def __init__(self, tf: Any, place: Place, graph: Any, data: Sequence[Data]) -> None:
        self._data = data
        self._session = tf.Session(place.target, graph=graph)
        self._inputs: list[tuple[Any, Any]]
        self._loss: Any
        self._step: Any
        self._train: Any
        self._init: Any

    def begin(self) -> float:
        """Sets all parameters to their first values and returns the loss of all digits."""
        self._session.run(self._init)
        return self._whole_loss()

    def train(self, steps: int) -> tuple[float, float]:
        """Runs training steps.

        Returns:
          Times of the begin and the end, of the clock that all processes share.
        """
        run, op = self._session.run, self._train
        with no_collection():
            began = time.perf_counter()
            for _ in range(steps):
                feeds = {}
                for (x, y), data in zip(self._inputs, self._data):
                    feeds[x], feeds[y] = data.batch()
                run(op, feeds)
            return began, time.perf_counter()

    def end(self, before: float, steps: int) -> float:
        """Checks the loss and the number of steps, and returns the loss.

        Args:
          before: loss before the training.
          steps: number of steps that were made in all.

        Raises:
          ArithmeticError: the loss has not halved, or steps are lost.
        """
        # one tolerated loss in a hundred: TensorFlow counts without a lock
        check("the number of training steps", float(self._session.run(self._step)), steps, 0.01)
        after = self._whole_loss()
        if not after < before / 2:
            raise ArithmeticError(f"the loss is {after} after {steps} steps and was {before} before")
        return after

    def _whole_loss(self) -> float:
        (x, y), data = self._inputs[0], self._data[0]
        return float(self._session.run(self._loss, {x: data.images, y: data.labels}))

    def close(self) -> None:
        self._session.close()


class BetweenGraph(Digits):
    """One worker's graph; the parameters are those of all workers.

    Args:
      tf: the module.
      place: the worker's task.
      model: a key of `HIDDEN`.
    """

    def __init__(self, tf: Any, place: Place, model: str) -> None:
        workers = len(place.cluster["worker"])
        mine = worker(place.index)
        if "ps" in place.cluster:
            shared = tf.train.replica_device_setter(cluster=tf.train.ClusterSpec(place.cluster), worker_device=mine)
        else:
            shared = worker(0)
        with tf.Graph().as_default() as graph:
            with tf.device(shared):
                variables = parameters(tf, model)
                self._step = tf.train.get_or_create_global_step()
            with tf.device(shared if "ps" in place.cluster else mine):
                self._inputs = [inputs(tf)]
                self._loss = loss_of(tf, variables, *self._inputs[0])
                optimizer = tf.train.GradientDescentOptimizer(RATE)
                self._train = optimizer.minimize(self._loss, global_step=self._step)
            self._init = tf.global_variables_initializer()
        super().__init__(tf, place, graph, [Data(place.index, workers)])


class InGraph(Digits):
    """The towers of all workers in one graph, with the parameters on worker 0.

    Args:
      tf: the module.
      place: the client's task.
      model: a key of `HIDDEN`.
    """

    def __init__(self, tf: Any, place: Place, model: str) -> None:
        workers = len(place.cluster["worker"])
        self._inputs = []
        with tf.Graph().as_default() as graph:
            with tf.device(worker(0)):
                variables = parameters(tf, model)
                self._step = tf.train.get_or_create_global_step()
                optimizer = tf.train.GradientDescentOptimizer(RATE)
            towers = []
            for k in range(workers):
                with tf.device(worker(k)):
                    self._inputs.append(inputs(tf))
                    loss = loss_of(tf, variables, *self._inputs[k])
                    towers.append([g for g, _ in optimizer.compute_gradients(loss, variables)])
                    if k == 0:
                        self._loss = loss
            with tf.device(worker(0)):
                means = [tf.add_n(gradients) * (1.0 / workers) for gradients in zip(*towers)]
                self._train = optimizer.apply_gradients(list(zip(means, variables)), global_step=self._step)
            self._init = tf.global_variables_initializer()
        super().__init__(tf, place, graph, [Data(k, workers) for k in range(workers)])
