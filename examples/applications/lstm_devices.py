"""LSTM of eight layers over devices and workers: `python -m examples.applications.lstm_devices`.

Each layer is placed on a device, and the body of the loop over time is divided among them. Only the output of a layer
crosses to the next device, and its gradient crosses back. With `parallel_iterations` above 1 a device begins the next
input while the device after it works on this one, so the layers form a pipeline. The program trains the network on one
device, on logical devices of one process and on two workers, and compares losses and times. It also compares the loop
with the same steps unrolled into the graph.

`hr.simulate` predicts the times with a core for each device. The measured times are of two cores: two devices can be
twice as fast as one at best, and four cannot be faster than two. Each device computes its products in one thread; numpy
releases the interpreter lock during them.

Source: Yu et al., "Dynamic Control Flow in Large-Scale Machine Learning" (2018), section 6. There, eight devices are
5.5 times as fast as one, and the dynamic loop takes 3 to 9 % longer than the static graph.
"""

from __future__ import annotations

import argparse
import sys
import timeit
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import headrace as hr
import headrace.v1 as v1
from examples.applications import records

LAYERS, BATCH, UNITS, LENGTH = 8, 256, 256, 8
PARALLEL = (1, 2, 4, 8, 16, 32)
LENGTHS = (4, 8, 16)  # of the comparison with static graphs
STEPS, COMPARED, TURNS = 30, 3, 3
RATE = 100.0
CAPTION = "Speed-up over one device with so many iterations at once"


def devices(n: int, kind: str = "device:CPU") -> list[str]:
    """Returns the device of each layer; neighbouring layers share one."""
    return [f"/{kind}:{layer * n // LAYERS}" for layer in range(LAYERS)]


def kernels(seed: int) -> list[np.ndarray]:
    """Returns the first weights of each layer, float32[2 * units, 4 * units]."""
    random = np.random.default_rng(seed)
    shape = (2 * UNITS, 4 * UNITS)
    return [random.normal(0, 1.5 * shape[0] ** -0.5, shape).astype(np.float32) for _ in range(LAYERS)]


def sequences(seed: int, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns inputs float32[length, batch, units], and targets that depend on their mean over time."""
    inputs = np.random.default_rng(seed + 1).normal(size=(length, BATCH, UNITS)).astype(np.float32)
    return inputs, np.tanh(2 * inputs.mean(0))


def layer(tf: Any, x: Any, c: Any, h: Any, kernel: Any) -> tuple[Any, Any]:
    """Returns the next state of an LSTM cell."""
    i, j, f, o = tf.split(tf.matmul(tf.concat([x, h], 1), kernel), 4, 1)
    c = tf.sigmoid(f + 1.0) * c + tf.sigmoid(i) * tf.tanh(j)
    return c, tf.sigmoid(o) * tf.tanh(c)


def network(tf: Any, inputs: Any, weights: Sequence[Any], places: Sequence[str], parallel: int | None) -> Any:
    """Returns the last output of the last layer, float32[batch, units].

    `parallel` is the number of iterations that may run at once. If it is None, the loop is unrolled into the graph.
    """
    length = int(inputs.shape[0])

    def advance(t: Any, states: Sequence[Any]) -> tuple[Any, list[Any]]:
        with tf.device(places[0]):
            x = tf.gather(inputs, t)
        after = []
        for (c, h), kernel, place in zip(states, weights, places):
            with tf.device(place):
                c, x = layer(tf, x, c, h, kernel)
            after.append((c, x))
        return t + 1, after

    states: Any = []
    for place in places:
        with tf.device(place):
            states.append((tf.zeros([BATCH, UNITS]), tf.zeros([BATCH, UNITS])))
    if parallel is None:
        for t in range(length):
            _, states = advance(t, states)
    else:
        start = (tf.constant(0), states)
        _, states = tf.while_loop(lambda t, _: t < length, advance, start, parallel_iterations=parallel)
    return states[-1][1]


class Training:
    """Training of the network in a session; `places` are the devices of the layers."""

    def __init__(
        self,
        tf: Any,
        places: Sequence[str],
        parallel: int | None,
        seed: int,
        length: int = LENGTH,
        target: Any = "",
        threads: int = 1,
    ) -> None:
        inputs, targets = sequences(seed, length)
        with tf.Graph().as_default():
            weights = []
            for number, (place, kernel) in enumerate(zip(places, kernels(seed))):
                with tf.device(place):
                    weights.append(tf.get_variable(f"kernel_{number}", initializer=kernel, use_resource=True))
            with tf.device(places[0]):
                fed = tf.constant(inputs)
            output = network(tf, fed, weights, places, parallel)
            with tf.device(places[-1]):
                loss = tf.reduce_mean(tf.squared_difference(output, targets))
            optimizer = tf.train.MomentumOptimizer(RATE, 0.9)
            self.fetches = [loss, optimizer.minimize(loss, colocate_gradients_with_ops=True)]
            config = tf.ConfigProto(device_count={"CPU": len(set(places))}, intra_op_parallelism_threads=threads)
            self.session = tf.Session(target, config=None if target else config)
            self.session.run(tf.global_variables_initializer())

    def losses(self, steps: int) -> list[float]:
        """Trains, and returns the loss before each step."""
        return [float(self.session.run(self.fetches)[0]) for _ in range(steps)]


def trainer(tf: Any, seed: int = 0) -> Callable[[int], float]:
    """Returns a function that trains on all cores and returns the last loss."""
    training = Training(tf, devices(1), 32, seed, threads=2)
    return lambda steps: training.losses(steps)[-1]


def shortest(runs: Sequence[Training], turns: int) -> list[float]:
    """Returns the seconds of the shortest step of each run; the runs take turns."""
    return np.min([[timeit.timeit(lambda r=r: r.losses(1), number=1) for r in runs] for _ in range(turns)], 0).tolist()


def simulated(record: records.Record, counts: Sequence[int]) -> None:
    """Predicts the speed-up of 2, 4 and 8 devices that have a core each."""

    def makespan(n: int, parallel: int) -> float:
        models = tuple(hr.DeviceModel(f"/job:localhost/replica:0/task:0/device:CPU:{i}", flops=5e10) for i in range(n))
        link = hr.Link(latency=2e-5, bandwidth=1e10)
        return hr.simulate(Training(v1, devices(n), parallel, 0, 16).fetches, hr.Cluster(models, link)).makespan

    one = makespan(1, 32)
    rows = [[f"{n} devices", *(round(one / makespan(n, p), 2) for p in counts)] for n in (2, 4, 8)]
    record.table(f"{CAPTION}, predicted with a core for each device, sequences of 16", ["", *map(str, counts)], rows)
    record.figure("predicted speed-up of eight devices", max(rows[-1][1:]), at_least=5)


def placements(record: records.Record, cluster: Any, counts: Sequence[int], steps: int, seed: int) -> None:
    """Compares losses and times of several placements with those of one device."""
    one = Training(v1, devices(1), 32, seed)
    losses, compared = one.losses(steps), min(COMPARED, steps)
    record.curve("loss", range(steps), losses)
    record.figure("last loss, to the first", losses[-1] / losses[0], at_most=0.5)
    rows, most = [], 0.0
    kinds = {"2 devices": devices(2), "4 devices": devices(4), "2 workers": devices(2, "job:worker/task")}
    for name, places in kinds.items():
        others = []
        for parallel in counts:
            others.append(Training(v1, places, parallel, seed, target=cluster if "workers" in name else ""))
            most = max([most, *(abs(a - b) / b for a, b in zip(others[-1].losses(compared), losses))])
        first, *seconds = shortest([one, *others], TURNS)
        rows.append([name, *(first / s for s in seconds)])
        record.figure(f"speed-up of {name}", max(rows[-1][1:]), at_least=1.2 if "2" in name else None, timed=True)
    record.table(f"{CAPTION}, measured on two cores", ["", *map(str, counts)], rows, timed=True)
    record.figure(f"largest relative difference of the first {compared} losses", most, at_most=1e-4)


def unrolling(record: records.Record, lengths: Sequence[int], seed: int) -> None:
    """Compares the loop with steps that are unrolled into the graph."""
    rows, most = [], 0.0
    for length in lengths:
        runs = [Training(v1, devices(1), parallel, seed, length) for parallel in (32, None)]
        most = max([most, *(abs(a - b) / b for a, b in zip(*(training.losses(2) for training in runs)))])
        loop, static = shortest(runs, 4 * TURNS)
        rows.append([length, 1e3 * loop, 1e3 * static, loop / static])
    heads = ["length", "loop, ms", "static, ms", "ratio"]
    record.table("A step of training with the loop and with a static graph, on one device", heads, rows, timed=True)
    record.figure("loop, to static: largest ratio of the times", max(row[3] for row in rows), at_most=1.09, timed=True)
    record.figure("loop, to static: largest relative difference of losses", most, at_most=1e-4)


def run(options: argparse.Namespace) -> records.Record:
    record = records.Record()
    counts, lengths = (PARALLEL, LENGTHS) if options.steps >= STEPS else (PARALLEL[-1:], LENGTHS[:1])
    simulated(record, counts)
    with hr.cluster.local(2) as cluster:
        placements(record, cluster, counts, options.steps, options.seed)
    unrolling(record, lengths, options.seed)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, steps=STEPS))
