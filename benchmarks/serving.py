"""Latency and throughput of a served model, compared with the same server calling TensorFlow's `Session`.

    python -m benchmarks.serving --seconds 60 --connections 64

For each model, with and without batches, a server process runs for headrace and one for TensorFlow, in turns, and a
client process keeps a request under way on each connection and compares responses with the first one. Both
servers have the same HTTP, JSON, batching and limits (`hr.serve.Server`); they differ in the runner, so the ratio
contains the cost of HTTP and JSON in both terms. "server alone" is a runner that returns its argument.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from headrace.serve import Limits, SavedModelRunner, Server, ServingSignature

SYSTEMS: Final = ("headrace", "TensorFlow", "server alone")
WARM_SECONDS: Final = 2.0
PATH: Final = "/v1/models/m:predict"


# *** models ***


def _mlp(tf: Any, x: Any) -> Any:
    h = tf.nn.relu(tf.matmul(x, _weights(tf, "a", 16, 64)) + _weights(tf, "b", 64))
    return tf.nn.softmax(tf.matmul(h, _weights(tf, "c", 64, 10)))


def _loop(tf: Any, x: Any) -> Any:
    w = _weights(tf, "w", 16, 16)
    return tf.while_loop(lambda i, a: i < 10, lambda i, a: (i + 1, tf.tanh(tf.matmul(a, w))), [0, x])[1]


def _cond(tf: Any, x: Any) -> Any:
    w = _weights(tf, "w", 16, 16)
    is_positive = tf.reduce_sum(x) > 0
    return tf.cond(is_positive, lambda: tf.tanh(tf.matmul(x, w)), lambda: tf.sigmoid(tf.matmul(x, w) * 2.0))


def _rnn(tf: Any, x: Any) -> Any:
    w, u = _weights(tf, "w", 2, 32), _weights(tf, "u", 32, 32)
    steps = tf.transpose(tf.reshape(x, [-1, 8, 2]), [1, 0, 2])
    state = tf.zeros([tf.shape(x)[0], 32])

    def body(i: Any, h: Any) -> Any:
        return i + 1, tf.tanh(tf.matmul(steps[i], w) + tf.matmul(h, u))

    return tf.while_loop(lambda i, h: i < 8, body, [0, state], [tf.TensorShape([]), tf.TensorShape([None, 32])])[1]


MODELS: Final[dict[str, Callable[[Any, Any], Any]]] = {"mlp": _mlp, "loop": _loop, "cond": _cond, "rnn": _rnn}


def _weights(tf: Any, name: str, *shape: int) -> Any:
    values = np.random.default_rng(len(name) + sum(shape)).standard_normal(shape) / 4
    return tf.get_variable(name, initializer=values.astype(np.float32))


def save(name: str, folder: str) -> None:
    """Writes a SavedModel of one of `MODELS`, with rows of 16 numbers as its argument."""
    import headrace.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None, 16], name="x")
        y = MODELS[name](tf, x)
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, folder, {"x": x}, {"y": y})


# *** servers ***


class TensorFlowRunner:
    """A SavedModel in a session of TensorFlow, with a callable for its signature."""

    def __init__(self, folder: str) -> None:
        import tensorflow.compat.v1 as tf

        tf.disable_v2_behavior()
        self.signatures = SavedModelRunner(folder).signatures
        self._session = tf.Session(graph=tf.Graph(), config=tf.ConfigProto(intra_op_parallelism_threads=1))
        with self._session.graph.as_default():
            found = tf.saved_model.load(self._session, ["serve"], folder).signature_def["serving_default"]
            ends = [[t.name for t in x.values()] for x in (found.outputs, found.inputs)]
            self._call = self._session.make_callable(*ends)

    def run(self, signature: str, inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        del signature, timeout_ms  # options make TensorFlow's calls slower
        return list(self._call(*inputs))

    def close(self) -> None:
        self._session.close()


class EchoRunner:
    """Returns its argument, for the time of the server without a model."""

    def __init__(self, folder: str) -> None:
        inputs = SavedModelRunner(folder).signatures["serving_default"].inputs
        self.signatures = {"serving_default": ServingSignature(inputs, {"y": inputs["x"]})}

    def run(self, signature: str, inputs: Sequence[np.ndarray], timeout_ms: int) -> list[np.ndarray]:
        del signature, timeout_ms
        return list(inputs)

    def close(self) -> None:
        return


RUNNERS: Final[dict[str, Callable[[str], Any]]] = dict(
    zip(SYSTEMS, (SavedModelRunner, TensorFlowRunner, EchoRunner), strict=True)
)


def serve(system: str, folder: str, batch: int) -> None:
    """Serves until the standard input ends.

    Prints the port, and for each line of the input the processor time of the process in seconds.
    """
    with Server({"m": folder}, limits=Limits(batch_rows=batch), load=RUNNERS[system]) as server:
        print(server.port, flush=True)
        for _ in sys.stdin:
            print(time.process_time(), flush=True)


# *** the client ***


class _Connection(asyncio.Protocol):
    """A connection with one request under way at a time."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._received = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._began = time.perf_counter()
        self._transport.write(self._client.request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, _, body = self._received.partition(b"\r\n\r\n")
        size = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
        if not size or len(body) < int(size):
            return
        self._received = b""
        self._client.answered(head, body, time.perf_counter() - self._began)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._client.lost += 1


class _Client:
    def __init__(self) -> None:
        body = json.dumps({"instances": [[round(0.1 * k - 0.7, 1) for k in range(16)]]}).encode()
        self.request = b"POST %b HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%b" % (PATH.encode(), len(body), body)
        self.seconds: list[float] = []
        self.lost = 0
        self._first: Any = None

    def answered(self, head: bytes, body: bytes, seconds: float) -> None:
        """Records a response, and compares every 256th one with the first."""
        if len(self.seconds) % 256 == 0:
            assert head.startswith(b"HTTP/1.1 200"), head
            found = json.loads(body)["predictions"]
            self._first = self._first or found
            # products of other batches are rounded otherwise
            np.testing.assert_allclose(found, self._first, rtol=1e-5, atol=1e-6)
        self.seconds.append(seconds)

    async def run(self, port: int, connections: int, seconds: float) -> dict[str, Any]:
        """Returns requests a second, p50 and p99 in milliseconds, and the number of lost connections."""
        loop = asyncio.get_running_loop()
        held = [await loop.create_connection(lambda: _Connection(self), "127.0.0.1", port) for _ in range(connections)]
        await asyncio.sleep(WARM_SECONDS)
        print("warm", flush=True)
        self.seconds.clear()
        await asyncio.sleep(seconds)
        found = np.array(self.seconds)
        lost = self.lost
        for transport, _ in held:
            transport.abort()
        p50, p99 = np.percentile(found, [50, 99]) * 1e3
        return {"requests": len(found) / seconds, "p50": p50, "p99": p99, "lost": lost}


def measure(system: str, folder: str, batch: int, connections: int, seconds: float) -> dict[str, Any]:
    """Starts a server; returns `_Client.run`'s figures, and its processor time for a request in µs."""
    command = [sys.executable, "-m", "benchmarks.serving", "--folder", folder, "--batch", str(batch)]
    client = [*command, "--connections", str(connections), "--seconds", str(seconds), "--client"]
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    with _started([*command, "--serve", system], environment) as server:
        port = _line(server)
        with _started([*client, port], environment) as client_process:
            assert _line(client_process) == "warm"
            before = _line(server, "time")
            figures: dict[str, Any] = json.loads(_line(client_process))
            used = float(_line(server, "time")) - float(before)
            client_process.communicate("", timeout=60)
        server.communicate("", timeout=60)
    return figures | {"cpu": 1e6 * used / (figures["requests"] * seconds)}


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def _line(process: subprocess.Popen[str], question: str | None = None) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    if question is not None:
        process.stdin.write(question + "\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} has ended")
    return line.strip()


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=MODELS)
    parser.add_argument("--systems", nargs="*", default=list(SYSTEMS), choices=SYSTEMS)
    parser.add_argument("--batches", nargs="*", type=int, default=[0, 128])
    for hidden in ("--serve", "--folder", "--client", "--batch"):  # of the processes of a measurement
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.serve:
        serve(args.serve, args.folder, int(args.batch))
        return 0
    if args.client:
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            print(json.dumps(runner.run(_Client().run(int(args.client), args.connections, args.seconds))))
        return 0
    print(f"{args.connections} connections, {args.seconds:g} s each\n")
    titles = ["model", "rows of a batch", "system", "requests/s", "p50, ms", "p99, ms", "lost", "CPU of a request, µs"]
    print("|", " | ".join([*titles, "throughput, headrace / this"]), "|")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|")
    for name in args.models:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, name)
            save(name, path)
            for batch in args.batches:
                ours = None
                for system in args.systems:
                    f = measure(system, path, batch, args.connections, args.seconds)
                    ours = f["requests"] if ours is None else ours
                    cells = [
                        f"{f['requests']:,.0f}",
                        f"{f['p50']:.2f}",
                        f"{f['p99']:.2f}",
                        str(f["lost"]),
                        f"{f['cpu']:.0f}",
                    ]
                    cells.append(f"{ours / f['requests']:.2f}")
                    print("|", " | ".join([name, str(batch or "none"), system, *cells]), "|", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
