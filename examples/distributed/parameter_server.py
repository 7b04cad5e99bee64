"""Asynchronous data parallelism with a parameter server: `python -m examples.distributed.parameter_server`.

The variables are on a parameter server. Each worker builds the graph for itself, takes batches of its own part of the
digits, and applies its gradients when they are ready, without waiting for the other worker. So a gradient may be that
of parameters which the other worker has changed since. The global step counts the updates of both.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import headrace as hr
import headrace.v1 as tf
from examples.distributed import common

WORKERS, BATCH, HIDDEN = 2, 32, 128


def model(images: Any, classes: Any) -> tuple[Any, Any]:
    """Returns the loss of a network with a hidden layer, and its accuracy."""
    hidden = tf.layers.dense(images, HIDDEN, tf.nn.relu, name="hidden")
    logits = tf.layers.dense(hidden, 10, name="logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits))
    return loss, tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), classes), tf.float32))


def work(options: Any, server: hr.Server) -> int:
    """Trains as one of the workers; the first one, the chief, initializes the variables."""
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
        train = tf.train.AdamOptimizer(2e-3).minimize(loss, global_step=step)

    hooks = [tf.train.StopAtStepHook(last_step=options.steps)]
    at_end = tf.train.FinalOpsHook([loss, accuracy], dict(zip([x, y], held_out, strict=True)))
    mine = 0
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        hooks=hooks,
        chief_only_hooks=[at_end],
        # a worker needs no other worker, so it does not notice when one of them ends
        config=tf.ConfigProto(device_filters=["/job:ps", me]),
        recovery=hr.train.Recovery(longest_wait_secs=0.1),  # seconds until it looks for the variables again
    ) as session:
        while not session.should_stop():
            batch = rng.integers(len(classes), size=BATCH)
            _, last, n = session.run([train, loss, step], {x: images[batch], y: classes[batch]})
            mine += 1
            if mine % 50 == 1:
                print(f"worker {options.task}: its step {mine}, global step {n}, loss {last:.3f}", flush=True)
    print(f"worker {options.task} made {mine} steps", flush=True)
    if not is_chief:
        return 0
    last, right = at_end.final_ops_values
    print(f"held-out digits: loss {last:.3f}, {right:.2%} are right", flush=True)
    return 0 if right > 0.93 or options.steps < 600 else 1


def main() -> int:
    parser = common.parser(__doc__, steps=600)
    common.add_task_options(parser)
    options = parser.parse_args()
    if options.cluster is None:
        return common.start_tasks(__spec__.name, {"ps": 1, "worker": WORKERS}, ["--steps", str(options.steps)])
    with common.server_of(options) as server:
        if options.job == "worker":
            return work(options, server)
        server.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
