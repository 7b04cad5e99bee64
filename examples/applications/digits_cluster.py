"""Data parallelism on a cluster and on Ray, through a lost worker: `python -m examples.applications.digits_cluster`.

Two workers train a network for scikit-learn's digits. In the *synchronous* way each worker has a copy of the parameters
and half of each batch. `hr.all_sum` adds the gradients, so the copies stay equal, and the losses are those of one
process with the whole batch. In the *asynchronous* way (Dean et al. 2012) the parameters are on worker 0. A session for
each worker applies the gradients of its worker when they are ready, without waiting for the other one.

In both ways a worker is killed after five eighths of the steps: worker 1 in the synchronous way, and the one with the
parameters in the asynchronous way. The cluster starts it again, and `MonitoredTrainingSession` continues from the last
checkpoint. A batch is a function of the global step, so the synchronous training repeats the lost steps exactly. The
workers are processes of this machine (`hr.cluster.local`), and then actors of Ray (`hr.cluster.ray`) if it is
installed. Results of the asynchronous way depend on the order of the workers, and so on the clock.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import headrace as hr
from examples.applications import records
from examples.distributed import common
from examples.distributed.all_reduce import averaged
from examples.distributed.towers import logits_of, parameters

WORKERS, BATCH, HIDDEN, FULL, CHECKPOINTS = 2, 64, 128, 1200, 12  # FULL: steps
DEVICES = [f"/job:worker/task:{k}" for k in range(WORKERS)]


# *** graphs ***


class Model(NamedTuple):
    """A graph: global step after an update, loss before it, accuracy for held-out digits."""

    graph: hr.Graph
    step: Any
    loss: Any
    accuracy: Any


def loss_of(values: Sequence[Any], step: Any, k: int, n: int) -> Any:
    """Returns the loss of part k of n of the batch of a step."""
    images, classes, *_ = common.digits()
    rows = len(classes) // WORKERS * WORKERS // n  # the parts are equally long
    picked = (step * (BATCH // n) + hr.range(BATCH // n, dtype=hr.int64)) % rows
    logits = logits_of(values, hr.gather(hr.constant(images[k::n]), picked))
    return hr.reduce_mean(hr.nn.sparse_softmax_cross_entropy_with_logits(hr.gather(classes[k::n], picked), logits))


def accuracy_of(values: Sequence[Any]) -> Any:
    """Returns the share of the held-out digits that are right."""
    *_, images, classes = common.digits()
    return hr.reduce_mean(hr.cast(hr.equal(hr.argmax(logits_of(values, hr.constant(images)), 1), classes), hr.float32))


def synchronous(devices: Sequence[str], seed: int) -> Model:
    """Returns the graph of all replicas; each has a copy of the parameters."""
    copies, losses, gradients = [], [], []
    with hr.Graph() as graph:
        with hr.device(devices[0]):
            count = hr.train.create_global_step()
        for k, device in enumerate(devices):
            with hr.device(device):
                copies.append(parameters(HIDDEN, seed))
                values = [v.value() for v in copies[-1]]
                losses.append(loss_of(values, count.value(), k, len(devices)))
                gradients.append(hr.gradients(losses[-1], values))
        means = averaged(gradients, devices)
        pairs = [pair for mean, copy in zip(means, copies) for pair in zip(mean, copy)]
        update = hr.train.Momentum(0.1, 0.9).apply_gradients(pairs)
        with hr.device(devices[0]), hr.control_dependencies([update]):
            return Model(graph, count.assign_add(1), hr.add_n(losses) / len(devices), accuracy_of(copies[0]))


def asynchronous(k: int, devices: Sequence[str], seed: int) -> Model:
    """Returns the graph of replica k; the parameters are on the first device."""
    with hr.Graph() as graph:
        with hr.device(devices[0]):
            count, variables = hr.train.create_global_step(), parameters(HIDDEN, seed)
            values = [v.value() for v in variables]
        with hr.device(devices[k]):
            loss = loss_of(values, count.value(), k, len(devices))
            gradients = hr.gradients(loss, values)
        with hr.device(devices[0]):
            update = hr.train.Momentum(0.1, 0.9).apply_gradients(zip(gradients, variables))
            with hr.control_dependencies([update]):
                return Model(graph, count.assign_add(1), loss, accuracy_of(variables))


# *** training ***


class Seen(NamedTuple):
    """A step that has ended."""

    time: float
    step: int
    loss: float


class Fault(hr.train.SessionRunHook):
    """Kills a worker once; measures the repeated steps and the time of recovery."""

    def __init__(self, cluster: Any, worker: int, after: int, sessions: int) -> None:
        self.cluster, self.worker, self.after = cluster, worker, after
        self.begun = threading.Barrier(sessions, timeout=60)
        self.once, self.is_over = threading.Lock(), False
        self.time, self.seconds, self.repeated = 0.0, 0.0, 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.is_over = self.time > 0

    def after_step(self, seen: list[Seen]) -> None:
        """Receives the steps of a session after each one of them."""
        now, step, _ = seen[-1]
        if len(seen) == 1:
            self.begun.wait()  # so that none trains alone while another one compiles
        elif step >= self.after and self.once.acquire(blocking=False):
            self.time, self.after = now, step
            os.kill(self.cluster.processes[self.worker], signal.SIGKILL)
        elif self.is_over and not self.seconds:
            self.seconds, self.repeated = now - self.time, self.after - step + 1


def train(
    model: Model, target: Any, steps: int, fault: Fault | None = None, **session: Any
) -> tuple[list[Seen], float]:
    """Trains to a global step; returns the steps of this session, and the accuracy."""
    at_end, seen = hr.train.FinalOpsHook(model.accuracy), []
    session |= {"save_summaries_steps": None, "log_step_count_steps": None, "save_graph_def": False}
    session |= {"save_checkpoint_steps": max(steps // CHECKPOINTS, 1), "graph": model.graph}
    session |= {"recovery": hr.train.Recovery(retries=300, longest_wait_secs=0.1)}
    hooks = [hr.train.StopAtStepHook(last_step=steps), at_end, *([fault] if fault else [])]
    with hr.train.MonitoredTrainingSession(target, hooks=hooks, **session) as running:
        while not running.should_stop():
            step, loss = running.run([model.step, model.loss])
            seen.append(Seen(time.perf_counter(), int(step), float(loss)))
            if fault:
                fault.after_step(seen)
    return seen, float(at_end.final_ops_values)


def train_synchronously(cluster: Any, steps: int, seed: int) -> tuple[list[Seen], float, Fault]:
    """Trains with one session for all workers; worker 1 is lost."""
    fault = Fault(cluster, 1, steps * 5 // 8, 1)
    with tempfile.TemporaryDirectory() as folder:
        return *train(synchronous(DEVICES, seed), cluster, steps, fault, checkpoint_dir=folder), fault


def train_asynchronously(cluster: Any, steps: int, seed: int) -> tuple[list[Seen], float, Fault]:
    """Trains with a session for each worker, each in a thread; worker 0 is lost."""
    fault = Fault(cluster, 0, steps * 5 // 8, WORKERS)
    chief, other = (asynchronous(k, DEVICES, seed) for k in range(WORKERS))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as threads:
        one = threads.submit(train, chief, cluster, steps, fault, checkpoint_dir=folder)
        two = threads.submit(train, other, cluster, steps, fault, is_chief=False)
        return sorted(one.result()[0] + two.result()[0]), one.result()[1], fault


def run(options: argparse.Namespace) -> records.Record:
    record, starts = records.Record(), {"processes": hr.cluster.local, "Ray": hr.cluster.ray}
    if options.without_ray or importlib.util.find_spec("ray") is None:
        print("without Ray (pip install 'headrace[ray]')")
        del starts["Ray"]
    alone, right = train(synchronous(["/cpu:0"], options.seed), "", options.steps)
    losses = {s.step: s.loss for s in alone}
    record.figure("one process: held-out digits", 100 * right, "%", at_least=95)
    for name, start in starts.items():
        for way, trained in ("synchronous", train_synchronously), ("asynchronous", train_asynchronously):
            with start(WORKERS) as cluster:
                seen, right, fault = trained(cluster, options.steps, options.seed)
            title, is_exact = f"{name}, {way}", way == "synchronous"
            record.figure(f"{title}: held-out digits", 100 * right, "%", at_least=95, timed=not is_exact)
            if is_exact:
                difference = max(abs(s.loss - losses[s.step]) for s in seen)
                record.figure(f"{title}: largest difference of a loss to one process", difference, at_most=1e-4)
                record.curve(title, [s.step for s in seen], [s.loss for s in seen])
            times = [s.time for s in seen if s.time <= fault.time][len(seen) // 10 :]  # the first steps are compiled
            record.figure(f"{title}: speed", (len(times) - 1) / (times[-1] - times[0]), "steps/s", timed=True)
            record.figure(f"{title}: repeated after the kill", fault.repeated, "steps", timed=not is_exact)
            record.figure(f"{title}: from the kill to the next step", fault.seconds, "s", timed=True)
    return record


if __name__ == "__main__":
    sys.exit(records.main(__doc__, run, FULL, lambda parser: parser.add_argument("--without-ray", action="store_true")))
