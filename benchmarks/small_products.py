"""Agents with small matrix products, with one and with several threads: `python -m benchmarks.small_products`.

An agent of three layers chooses an action for one observation and is trained on a batch, in turns, as in deep
Q-learning. On a busy machine the threads of a BLAS library wait for each other's time slices, so a session that may use
several threads must not use them for such products. The busy machine is this one with two spinning processes for each
core.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

import numpy as np

from benchmarks.threads import environment

SIZES = ((64, 32), (128, 64), (256, 64))  # units of a layer, rows of a batch
ROUNDS = 3
STEPS = 300


def seconds(threads: int, units: int, rows: int) -> float:
    """Returns the time of `STEPS` choices and updates."""
    import headrace.v1 as tf

    tf.disable_v2_behavior()
    x, y = tf.placeholder(tf.float32, [None, 8]), tf.placeholder(tf.float32, [None, 2])
    hidden = tf.layers.dense(tf.layers.dense(x, units, tf.nn.relu), units, tf.nn.relu)
    q = tf.layers.dense(hidden, 2)
    update = tf.train.AdamOptimizer(1e-3).minimize(tf.reduce_mean((q - y) ** 2))
    rng = np.random.RandomState(0)
    xs, ys = rng.randn(rows, 8), rng.randn(rows, 2)
    with tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=threads)) as sess:
        sess.run(tf.global_variables_initializer())
        for n in (20, STEPS):  # the first ones compile
            start = time.perf_counter()
            for _ in range(n):
                sess.run(q, {x: xs[:1]})
                sess.run(update, {x: xs, y: ys})
        return time.perf_counter() - start


def measured(threads: int, units: int, rows: int) -> float:
    """Returns `seconds` of a process of its own."""
    command = [sys.executable, "-m", __spec__.name, *map(str, (threads, units, rows))]
    out = subprocess.run(command, env=environment(threads), capture_output=True, text=True, check=True, timeout=600)
    return float(out.stdout)


def main() -> None:
    """Prints a table of medians."""
    cores = os.cpu_count() or 1
    print("| machine | units | batch | 1 thread, s | several, s | ratio |\n| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, load in (("idle", 0), ("busy", 2 * cores)):
        spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(load)]
        try:
            for units, rows in SIZES:
                pairs = [(measured(1, units, rows), measured(max(cores, 2), units, rows)) for _ in range(ROUNDS)]
                one, several = (statistics.median(times) for times in zip(*pairs, strict=True))
                ratio = statistics.median(b / a for a, b in pairs)
                print(f"| {name} | {units} | {rows} | {one:.2f} | {several:.2f} | {ratio:.2f} |", flush=True)
        finally:
            for process in spinning:
                process.kill()
                process.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(seconds(*map(int, sys.argv[1:])))
    else:
        main()
