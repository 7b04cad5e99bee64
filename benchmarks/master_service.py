"""Latency of a TensorFlow client's step on servers of headrace and of TensorFlow.

    python -m benchmarks.master_service

The step is `y = 2 x`, fed and fetched. The client, a session of TensorFlow, and the servers are processes of their own
on one machine. Both servers are measured in turns. Needs TensorFlow and the extra `grpc`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

SERVERS: Final = ("headrace", "TensorFlow")
SIZES: Final = (4, 1 << 10, 1 << 16, 1 << 20)


def serve(system: str) -> None:
    """Serves until the standard input ends; prints the target of clients."""
    if system == "headrace":
        from headrace.master_service import Server

        with Server() as server:
            print(server.target, flush=True)
            sys.stdin.read()
    else:
        import tensorflow.compat.v1 as tf

        print(tf.train.Server.create_local_server().target, flush=True)
        sys.stdin.read()
        os._exit(0)  # a server of TensorFlow has no end of its own


def latencies(target: str, size: int, runs: int) -> list[float]:
    """Returns the milliseconds of each run after 20 others."""
    import tensorflow.compat.v1 as tf

    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [size])
        y = x * 2.0
        given = np.arange(size, dtype=np.float32)
        with tf.Session(target) as session:
            call = session.make_callable(y, [x])
            np.testing.assert_array_equal(call(given), 2 * given)
            out = []
            for _ in range(20 + runs):
                began = time.perf_counter()
                call(given)
                out.append(1e3 * (time.perf_counter() - began))
    return out[20:]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="runs of a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", choices=SERVERS, help=argparse.SUPPRESS)  # of the process of a server
    args = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if args.serve:
        serve(args.serve)
        return 0
    started: list[Any] = []
    try:
        for name in SERVERS:
            command = [sys.executable, "-m", "benchmarks.master_service", "--serve", name]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        targets = [s.stdout.readline().strip() for s in started]
        if not all(targets):
            raise RuntimeError("a server has ended before it listened")
        print("| floats | server | p50, ms | p99, ms | p50, headrace / this |")
        print("|---:|---|---:|---:|---:|")
        for size in SIZES:
            found: list[list[float]] = [[] for _ in SERVERS]
            for _ in range(args.rounds):
                for k, target in enumerate(targets):
                    found[k] += latencies(target, size, args.runs)
            for name, times in zip(SERVERS, found, strict=True):
                p50, p99 = np.percentile(times, [50, 99])
                ratio = np.median(found[0]) / p50
                print(f"| {size:,} | {name} | {p50:.2f} | {p99:.2f} | {ratio:.2f} |", flush=True)
    finally:
        for process in started:
            process.communicate("", timeout=60)
    return 0


if __name__ == "__main__":
    sys.exit(main())
