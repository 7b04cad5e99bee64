"""TensorFlow as a client of `headrace serve --grpc`: unmodified programs, of which only the target differs.

The server is a process of its own. The programs of the recorded corpus that are about control flow run with their
recorded results, and the LSTM of `examples/digits_v1.py` has the losses of TensorFlow's own session.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

import headrace as hr
from tests.conformance import processes

LOSSES = 60  # steps of training
TOLERANCE = 2e-5  # relative, that of the corpus for float32


@contextlib.contextmanager
def serving(*options: str, **variables: str) -> Iterator[str]:
    """Context manager of a server; the target that clients give."""
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "serve", "--grpc", "0", *options],
        cwd=processes.ROOT, env=processes.environment() | variables, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "grpc://" in line, line + process.stderr.read()
        yield line.split()[-1]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, process.stderr.read()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    processes.find_tensorflow()
    with serving() as found:
        yield found


# *** the corpus ***

# `open_tf` of the driver with sessions on a server; a reset makes each program's variables its own.
CORPUS = r"""
import argparse, collections, functools, importlib.util, json, logging, os, sys, warnings
warnings.simplefilter("ignore")
import tensorflow as tf
tf.get_logger().setLevel(logging.ERROR)
from tests.conformance.test_master_service import serving
from tests.corpus.test_corpus import CORE, KNOWN, corpus, replay

Session = tf.compat.v1.Session
by_devices = collections.defaultdict(list)
for program in CORE:
    loaded = corpus.load(program)
    by_devices[loaded["config"].get("device_count", {}).get("CPU", 1)].append((program, loaded))
failed = {}
for n, programs in by_devices.items():
    with serving("--device", f"CPU={n}") as target:
        tf.compat.v1.Session = functools.partial(Session, target)
        for program, loaded in programs:
            Session.reset(target)
            try:
                replay.execute(loaded, replay.open_tf, replay.TOL)
            except replay.Mismatch as e:
                failed[program] = str(e)
print(json.dumps([len(CORE), failed, [p for p in CORE if p in KNOWN]]))
"""


def test_the_core_of_the_corpus_has_its_recorded_results(run_anew: Callable[[str], bytes]) -> None:
    count, failed, known = json.loads(run_anew(CORPUS).splitlines()[-1])
    assert count > 500
    assert sorted(failed) == sorted(known), failed


# *** training ***

TRAINING = r"""
import json, sys, threading
sys.path.insert(0, "examples")
import digits_v1
import tensorflow.compat.v1 as tf
tf.disable_eager_execution()

def losses(target, steps, device=None):
    with tf.Graph().as_default():
        with tf.device(device):
            fed, enqueue, close, step, loss = digits_v1.training(tf)
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())

            def feed():
                epoch = digits_v1.batches()
                for k in range(steps):
                    session.run(enqueue, dict(zip(fed, epoch[k % len(epoch)])))

            thread = threading.Thread(target=feed)
            thread.start()
            found = [float(session.run([step, loss])[1]) for _ in range(steps)]
            thread.join()
            session.run(close)
            return found

def spread(op):
    return "/job:worker/task:0" if "Var" in op.type else "/job:worker/task:1"
"""


def test_the_digits_lstm_has_the_losses_of_tensorflows_session(run_python: Callable[[str], bytes], target: str) -> None:
    with (
        hr.cluster.local(2) as cluster,
        serving("--target", cluster.address, HEADRACE_CLUSTER_SECRET=cluster.secret) as on_cluster,
    ):
        program = f"""{TRAINING}
targets = [("", None), ({target!r}, None), ({on_cluster!r}, spread)]
print(json.dumps([losses(target, {LOSSES}, device) for target, device in targets]))
"""
        local, server, two_workers = json.loads(run_python(program).splitlines()[-1])
    assert local[-1] < local[0] / 2
    assert server == pytest.approx(local, rel=TOLERANCE)
    assert two_workers == pytest.approx(local, rel=TOLERANCE)


# *** sessions ***

SESSIONS = r"""
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
v1 = tf.compat.v1
v1.disable_v2_behavior()

def fails(error, run):
    try:
        run()
    except error as e:
        return e
    raise AssertionError(f"expected {error.__name__}")

x = v1.placeholder(tf.float32, [2], name="x")
y = tf.multiply(x, 2.0, name="y")
ref = v1.get_variable("ref", initializer=[1.0, 2.0], use_resource=False)
res = v1.get_variable("res", initializer=[1.0, 2.0], use_resource=True)
start = v1.global_variables_initializer()

v1.Session.reset(target)
with v1.Session(target) as session:
    session.run(start)
    # devices, metadata and limits of time
    assert [d.device_type for d in session.list_devices()] == ["CPU"]
    metadata = v1.RunMetadata()
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
    session.run(y, {x: [1, 2]}, options=options, run_metadata=metadata)
    assert metadata.step_stats.dev_stats and metadata.partition_graphs
    queue = v1.FIFOQueue(3, [tf.float32], [()])
    soon = v1.RunOptions(timeout_in_ms=200)
    fails(tf.errors.DeadlineExceededError, lambda: session.run(queue.dequeue(), options=soon))

    # the graph grows between runs, with functions and loops, and nodes of earlier parts
    z = v1.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 2.0), [0, y])[1]
    assert session.run([z, y], {x: [1, 2]})[0].tolist() == [64.0, 128.0]
    assert session.run([v1.assign_add(ref, [1.0, 1.0]), res.assign_add([2.0, 2.0])])[0].tolist() == [2.0, 3.0]
    slope, = tf.gradients(z, x)
    assert session.run(slope, {x: [1, 2]}).tolist() == [64.0, 64.0]

    # partial runs and callables
    total = y + 1.0
    handle = session.partial_run_setup([y, total], [x])
    assert session.partial_run(handle, y, {x: [1, 2]}).tolist() == [2.0, 4.0]
    assert session.partial_run(handle, total).tolist() == [3.0, 5.0]
    call = session.make_callable([total, y], [x])
    assert call([3, 4])[0].tolist() == [7.0, 9.0]
    made = config_pb2.CallableOptions()
    made.feed.append(x.name)
    made.fetch.append(y.name)
    prepared = session._make_callable_from_options(made)
    assert prepared(np.array([1, 2], np.float32))[0].tolist() == [2.0, 4.0]
    del prepared

    # errors name the operation
    dead = tf.gather(y, 5, name="dead")
    e = fails(tf.errors.InvalidArgumentError, lambda: session.run(dead, {x: [1, 2]}))
    assert e.op is dead.op, e
    fails(tf.errors.CancelledError, lambda: session.run([queue.close(), queue.enqueue(1.0), queue.enqueue(1.0)]))

# variables belong to the server until a reset
with v1.Session(target) as session:
    assert session.run([ref, res])[0].tolist() == [2.0, 3.0]
v1.Session.reset(target)
with v1.Session(target) as session:
    fails((tf.errors.FailedPreconditionError, tf.errors.NotFoundError), lambda: session.run(ref))
    fails((tf.errors.FailedPreconditionError, tf.errors.NotFoundError), lambda: session.run(res))
"""


def test_sessions_offer_what_those_of_tensorflow_do(run_python: Callable[[str], bytes], target: str) -> None:
    run_python(f"target = {target!r}\n{SESSIONS}")


CLIENT = r"""
import sys
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_v2_behavior()
queue = v1.FIFOQueue(10, [tf.float32], [()], shared_name="shared")
session = v1.Session(sys.argv[1])
session.run(queue.size())
"""


def client(target: str, program: str) -> subprocess.Popen[str]:
    """Starts a process with a session on the server."""
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT + program, target],
        env=processes.environment(), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip


def test_clients_share_a_queue_and_one_may_die_in_a_step(target: str) -> None:
    waits = client(target, "print('waits', flush=True); session.run(queue.dequeue())")
    works = client(
        target,
        "print('ready', flush=True); sys.stdin.readline()\n"
        "session.run([queue.enqueue(3.0)]); print(session.run(queue.dequeue()))",
    )
    try:
        assert waits.stdout is not None
        assert waits.stdout.readline().strip() == "waits"
        assert works.stdout is not None
        assert works.stdout.readline().strip() == "ready"
        time.sleep(0.5)  # the first client is in its dequeue
        os.kill(waits.pid, signal.SIGKILL)
        waits.wait(20)
        time.sleep(0.5)  # the server learns of it from the connection
        out, _ = works.communicate("go\n", timeout=60)
        assert out.strip() == "3.0"  # the dead client's dequeue took nothing
    finally:
        for process in (waits, works):
            process.kill()
            process.communicate()
