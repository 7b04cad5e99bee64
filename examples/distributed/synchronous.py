"""Synchronous data parallelism with a backup worker: `python -m examples.distributed.synchronous`.

An update applies the mean of the first two gradients that three workers have computed at the current parameters. A
gradient that comes later is dropped, and its worker continues with the new parameters. So a slow worker, here the last
one, does not delay the others, and no gradient is stale.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

import headrace as hr
import headrace.v1 as tf
from examples.distributed import common
from examples.distributed.parameter_server import model

WORKERS, NEEDED, BATCH = 3, 2, 32


def work(options: Any, server: hr.Server) -> int:
    """Trains as one of the workers; the first one, the chief, applies the updates."""
    is_chief = options.task == 0
    images, classes, *held_out = common.digits()
    images, classes = images[options.task :: WORKERS], classes[options.task :: WORKERS]
    rng = np.random.default_rng(options.task)

    me = f"/job:worker/task:{options.task}"
    with tf.device(tf.train.replica_device_setter(cluster=server.cluster, worker_device=me)):
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        tf.set_random_seed(1)
        loss, accuracy = model(x, y)
        step = tf.train.get_or_create_global_step()
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.AdamOptimizer(4e-3), replicas_to_aggregate=NEEDED, total_num_replicas=WORKERS
        )
        train = optimizer.minimize(loss, global_step=step)

    at_end = tf.train.FinalOpsHook([loss, accuracy], dict(zip([x, y], held_out, strict=True)))
    hooks = [optimizer.make_session_run_hook(is_chief, num_tokens=0), tf.train.StopAtStepHook(last_step=options.steps)]
    mine, began = 0, time.perf_counter()
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        hooks=hooks,
        chief_only_hooks=[at_end],
        config=tf.ConfigProto(device_filters=["/job:ps", me]),
        recovery=hr.train.Recovery(longest_wait_secs=0.1),
    ) as session:
        while not session.should_stop():
            if options.task == WORKERS - 1:
                time.sleep(options.delay)
            batch = rng.integers(len(classes), size=BATCH)
            last, n = session.run([loss, train], {x: images[batch], y: classes[batch]})
            mine += 1
            if mine % 50 == 1:
                print(f"worker {options.task}: its gradient {mine}, global step {n}, loss {last:.3f}", flush=True)
    seconds = time.perf_counter() - began
    print(f"worker {options.task} computed {mine} gradients in {seconds:.1f} s", flush=True)
    if not is_chief:
        return 0
    last, right = at_end.final_ops_values
    print(f"held-out digits after {options.steps} updates: loss {last:.3f}, {right:.2%} are right", flush=True)
    return 0 if right > 0.93 or options.steps < 300 else 1


def main() -> int:
    parser = common.parser(__doc__, steps=300)
    parser.add_argument("--delay", type=float, default=0.05, help="seconds before each step of the last worker")
    common.add_task_options(parser)
    options = parser.parse_args()
    if options.cluster is None:
        arguments = ["--steps", str(options.steps), "--delay", str(options.delay)]
        return common.start_tasks(__spec__.name, {"ps": 1, "worker": WORKERS}, arguments)
    with common.server_of(options) as server:
        if options.job == "worker":
            return work(options, server)
        server.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
