"""An embedding over two parameter servers: `python -m examples.distributed.sharded_embedding`.

The table has one half of its rows on each server. A step looks up the words of a batch: each server gathers its rows
and sends these alone. The gradients are sparse, so the servers change only the rows that were looked up. The workers
train asynchronously. The data are made by seed: a document has a topic, and half of its words are words of that topic.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import headrace as hr
import headrace.v1 as tf
from examples.distributed import common

SERVERS, WORKERS = 2, 2
WORDS, UNITS, TOPICS, LENGTH, BATCH = 100_000, 16, 8, 20, 32


def documents(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the words of documents, [n, LENGTH], and their topics. Low words are frequent."""
    topics = rng.integers(TOPICS, size=n)
    words = (WORDS * rng.random((n, LENGTH)) ** 8).astype(np.int64)
    is_of_topic = rng.random((n, LENGTH)) < 0.5
    return np.where(is_of_topic, words // TOPICS * TOPICS + topics[:, None], words), topics


def work(options: Any, server: hr.Server) -> int:
    """Trains as one of the workers; the first one, the chief, initializes the variables."""
    is_chief = options.task == 0
    rng = np.random.default_rng(options.task)

    me = f"/job:worker/task:{options.task}"
    with tf.device(tf.train.replica_device_setter(cluster=server.cluster, worker_device=me)):
        tf.set_random_seed(1)
        words, topics = tf.placeholder(tf.int64, [None, LENGTH]), tf.placeholder(tf.int64, [None])
        table = tf.get_variable("words", [WORDS, UNITS], partitioner=tf.fixed_size_partitioner(SERVERS))
        rows = tf.nn.embedding_lookup(table, words, partition_strategy="div")
        logits = tf.layers.dense(tf.reduce_mean(rows, 1), TOPICS, name="logits")
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=topics, logits=logits))
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), topics), tf.float32))
        step = tf.train.get_or_create_global_step()
        train = tf.train.AdagradOptimizer(0.5, initial_accumulator_value=0.01).minimize(loss, global_step=step)

    held_out = dict(zip([words, topics], documents(np.random.default_rng(99), 1000), strict=True))
    at_end = tf.train.FinalOpsHook([loss, accuracy, list(table)], held_out)
    first: list[np.ndarray] = []
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=is_chief,
        hooks=[tf.train.StopAtStepHook(last_step=options.steps)],
        chief_only_hooks=[at_end],
        config=tf.ConfigProto(device_filters=["/job:ps", me]),
        recovery=hr.train.Recovery(longest_wait_secs=0.1),
    ) as session:
        if is_chief:
            first = session.run_step_fn(lambda step_context: step_context.session.run(list(table)))
        mine = 0
        while not session.should_stop():
            feeds = dict(zip([words, topics], documents(rng, BATCH), strict=True))
            _, last, n = session.run([train, loss, step], feeds)
            mine += 1
            if mine % 100 == 1:
                print(f"worker {options.task}: its step {mine}, global step {n}, loss {last:.3f}", flush=True)
    if not is_chief:
        return 0
    last, right, parts = at_end.final_ops_values
    for variable, before, after in zip(table, first, parts, strict=True):
        changed = np.count_nonzero((before != after).any(1))
        print(f"{variable.op.name} on {variable.device}: {changed} of {len(after)} rows have changed")
    print(f"new documents: loss {last:.3f}, {right:.2%} of the topics are right", flush=True)
    return 0 if right > 0.9 or options.steps < 800 else 1


def main() -> int:
    parser = common.parser(__doc__, steps=800)
    common.add_task_options(parser)
    options = parser.parse_args()
    if options.cluster is None:
        return common.start_tasks(__spec__.name, {"ps": SERVERS, "worker": WORKERS}, ["--steps", str(options.steps)])
    with common.server_of(options) as server:
        if options.job == "worker":
            return work(options, server)
        server.join()
    return 0


if __name__ == "__main__":
    sys.exit(main())
