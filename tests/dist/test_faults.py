"""Faults of real processes: kills, stops, cut links, hostile bytes; training that goes on."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, thresholds
from headrace.dist import messages
from headrace.dist.address import Address
from headrace.dist.codec import Control, Decoder, encode_control, encode_token
from headrace.dist.handshake import Connector, Identity
from headrace.dist.messages import Challenge, Hello, Message, Order, PartData, PrepareProgram, RunStep, StartStep
from headrace.dist.values import Buffer
from headrace.environment import NO_OPTIONS
from headrace.errors import AbortedError, OpError, UnavailableError
from tests.dist import faults
from tests.dist.faults import MASTER, SECRET, Cluster, linked, options, until, usage, worker_name
from tests.dist.hostile_bytes import feed, joined

pytestmark = [pytest.mark.system, pytest.mark.one_engine]

RIGHT = Identity("client", "client of the tests", 1, SECRET.encode())


# *** kills, stops and cuts ***


@pytest.mark.timeout(300)
def test_no_fault_hangs_a_call_or_changes_a_result() -> None:
    assert len(list(faults.check(range(20)))) == 20


@pytest.mark.nightly
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("first", range(20, 220, 50))
def test_no_fault_hangs_a_call_or_changes_a_result_in_many_rounds(first: int) -> None:
    assert len(list(faults.check(range(first, first + 50)))) == 50


def test_the_first_rounds_have_every_victim_fault_program_and_phase() -> None:
    first, all_ = ([(c.victim, c.fault, c.program, c.phase) for c in map(faults.case, range(n))] for n in (20, 1000))
    for i in range(4):
        assert {c[i] for c in first} == {c[i] for c in all_}


def test_a_new_session_of_a_stopped_master_is_unavailable(server: Server) -> None:
    """The class of the error is one from which a monitored session recovers."""
    process = server.cluster.processes[MASTER]
    address = Address(f"headrace://{server.address(MASTER)}", dataclasses.replace(options(), connect_timeout=0.5))
    process.signal(signal.SIGSTOP)
    try:
        with pytest.raises(UnavailableError, match="no connection within"):
            hr.Session(address, graph=hr.Graph())
    finally:
        process.signal(signal.SIGCONT)
    server.serves()


def test_a_worker_that_was_restarted_between_two_steps_is_reported_once() -> None:
    """The next step fails; it does not wait for elements of a lost queue."""
    with hr.Graph(ordered=False) as g, hr.device(f"{worker_name(0)}/device:CPU:0"):
        queue = hr.FIFOQueue(10, [hr.int32], shapes=[()], shared_name="restarted")
        put, size = queue.enqueue([1]), queue.size()
        stateless = hr.placeholder(hr.int32, (), name="x") * 2
    with Cluster(workers=1) as cluster:
        cluster.wait_for_workers()
        target = Address(cluster.url, options())
        with hr.Session(target, graph=g) as session, hr.Session(target, graph=g) as without_state:
            session.run(put)
            assert session.run(size) == 1
            assert without_state.run(stateless, {"x:0": 4}) == 8
            cluster.processes[worker_name(0)].kill()
            until(lambda: not _is_up(cluster), 10, "the loss is noticed")
            cluster.start(worker_name(0))
            cluster.wait_for_workers()
            with pytest.raises(AbortedError, match=f"{worker_name(0)} was restarted"):
                session.run(size)
            assert session.run(size) == 0
            assert without_state.run(stateless, {"x:0": 5}) == 10


def _is_up(cluster: Cluster) -> bool:
    """Whether the master is connected to the first worker."""
    url = f"headrace://{cluster._addresses[MASTER]}"
    target = Address(url, options()).connect(NO_OPTIONS, ["/job:master"])
    try:
        return next(bool(w["is_up"]) for w in target.describe()["workers"] if w["name"] == worker_name(0))
    finally:
        target.close()


# *** training that goes on ***

STEPS = 60


def _model() -> tuple[hr.Graph, list[hr.Variable], list[Any]]:
    """Training of two layers on two workers, between them a loop that alternates.

    The data depend on the step alone.
    """
    rng = np.random.default_rng(7)
    data = rng.normal(size=(32, 8))
    with hr.Graph() as g:
        step = hr.train.create_global_step()
        first, second = (hr.device(f"{worker_name(i)}/device:CPU:0") for i in range(2))
        x = hr.gather(hr.constant(data), hr.reshape(step % 32, (1,)))
        with first:
            a = hr.Variable(rng.normal(size=(8, 16)), name="a")
            h = hr.tanh(hr.matmul(x, a))

        def body(i: Any, h: Any) -> Any:
            with hr.device(f"{worker_name(1)}/device:CPU:0"):
                h = hr.sin(h)
            with hr.device(f"{worker_name(0)}/device:CPU:0"):
                return i + 1, h * 0.9

        h = hr.while_loop(lambda i, h: i < 3, body, (hr.constant(0), h))[1]
        with second:
            b = hr.Variable(rng.normal(size=(16, 2)), name="b")
            loss = hr.reduce_sum(hr.square(hr.matmul(h, b) - hr.sin(x[:, :2])))
        train = hr.train.Momentum(0.02, 0.9).minimize(loss, global_step=step)
    return g, [a, b], [train, step]


class _Losses(hr.train.SessionRunHook):
    """Counts the sessions that were lost."""

    count = 0

    def session_lost(self, error: BaseException) -> None:
        self.count += 1


def _trained(target: Any, folder: Path, after: Callable[[int], object], losses: _Losses) -> list[np.ndarray]:
    """Trains to the end; returns the parameters."""
    g, variables, fetches = _model()
    with g:
        creator = hr.train.ChiefSessionCreator(hr.train.Scaffold(), target, checkpoint_dir=folder)
        hooks = [
            hr.train.CheckpointSaverHook(folder, save_steps=4, scaffold=creator._scaffold, save_graph_def=False),
            hr.train.StopAtStepHook(last_step=STEPS),
            losses,
        ]
    with hr.train.MonitoredSession(creator, hooks, graph=g) as session:
        while not session.should_stop():
            *_, step = session.run(fetches)
            after(int(step))
    path = hr.train.latest_checkpoint(folder)
    assert path is not None
    assert path.endswith(f"-{STEPS}"), path
    return [hr.train.load_variable(path, v.op.name) for v in variables]


def _training_survives(seed: int, tmp_path: Path) -> None:
    """Kills workers at seeded moments.

    With odd seeds the first worker is also the master of the sessions.
    """
    rng = random.Random(f"training {seed}")
    kills = {step: rng.randrange(2) for step in rng.sample(range(3, STEPS - 8), 3)}
    timers = []
    with hr.cluster.local(2) as cluster, flags.override(CLUSTER_SECRET=cluster.secret):
        target = cluster.address if seed % 2 else cluster
        want = _trained(target, tmp_path / "undisturbed", lambda step: None, _Losses())

        def kill(step: int) -> None:
            if step in kills:
                pid = cluster.processes[kills.pop(step)]
                timers.append(threading.Timer(rng.uniform(0, 0.03), _kill, (pid,)))
                timers[-1].start()
            if step == STEPS - 4:  # the last checkpoint is not disturbed
                for timer in timers:
                    timer.join()

        losses = _Losses()
        got = _trained(target, tmp_path / "disturbed", kill, losses)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    assert losses.count >= 2, "too few kills hit the training"


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("seed", [0, 1])
def test_training_with_killed_workers_ends_with_the_same_parameters(seed: int, tmp_path: Path) -> None:
    _training_survives(seed, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(2, 22))
def test_training_with_killed_workers_ends_with_the_same_parameters_for_many_seeds(seed: int, tmp_path: Path) -> None:
    _training_survives(seed, tmp_path)


OPEN_AT_EXIT = """
import builtins
import headrace as hr

builtins.kept = hr.cluster.local(1)  # outlives the modules
"""


def test_a_cluster_that_is_open_at_exit_ends_without_errors() -> None:
    done = subprocess.run([sys.executable, "-c", OPEN_AT_EXIT], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


# *** hostile bytes ***


class Server:
    """A master and a worker as processes, and what they have written."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.tasks = [MASTER, worker_name(0)]
        self.read = {task: len(cluster.log(task).read_text(errors="replace")) for task in self.tasks}
        self.serves()
        self.before = {task: usage(cluster.processes[task].pid) for task in self.tasks}

    def address(self, task: str) -> str:
        return self.cluster._addresses[task]

    def connect(self, task: str) -> socket.socket:
        host, _, port = self.address(task).rpartition(":")
        s = socket.create_connection((host, int(port)), timeout=10)
        s.settimeout(10)
        return s

    def logs(self, task: str, text: str, times: int = 1) -> None:
        """A server has written a text so often since this object was made."""
        new = lambda: self.cluster.log(task).read_text(errors="replace")[self.read[task] :]
        until(lambda: new().count(text) >= times, 10.0, f"{task} writes {text!r}; it has written {new()}")

    def serves(self, seconds: float = 10.0) -> None:
        """The next client gets its answer, over the worker."""
        with hr.Graph() as g:
            x = hr.placeholder(hr.int32, ())
            with hr.device(f"{worker_name(0)}/device:CPU:0"):
                y = x * 3
        end = time.monotonic() + seconds
        while True:
            try:
                with hr.Session(Address(f"headrace://{self.address(MASTER)}", options()), graph=g) as session:
                    assert session.run(y, {x: 14}) == 42
                return
            except OpError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)

    def is_unharmed(self, megabytes: float = 8.0, files: int = 2) -> None:
        """Clients are served, and nothing of the attack is left."""
        self.serves()
        self.cluster.check_logs()

        def excess() -> list[Any]:
            out: list[Any] = []
            for task, before in self.before.items():
                now = usage(self.cluster.processes[task].pid)
                if now.files > before.files + files or now.threads > before.threads + 2:
                    out.append((task, before, now))
                if now.megabytes > before.megabytes + megabytes:
                    out.append((task, before, now))
            return out

        end = time.monotonic() + 20
        while (left := excess()) and time.monotonic() < end:
            time.sleep(0.1)
        assert not left, f"not released: {left}"
        d = self.cluster.description()
        assert (d["sessions"], d["steps"]) == (1, []), d


@pytest.fixture(scope="module")
def cluster_() -> Iterator[Cluster]:
    with Cluster(workers=1) as cluster:
        yield cluster


@pytest.fixture
def server(cluster_: Cluster) -> Server:
    return Server(cluster_)


def _is_closed(s: socket.socket) -> bool:
    """Whether the other end closes the connection. Bytes before are ignored."""
    with contextlib.suppress(ConnectionResetError):
        while s.recv(1 << 16):
            pass
    return True


def _frames(s: socket.socket, n: int = 1) -> list[Any]:
    decoder = Decoder()
    out: list[Any] = []
    while len(out) < n:
        data = s.recv(1 << 16)
        assert data, "the connection was closed"
        out += feed(decoder, data)
    return out


def _bytes(message: Message, values: Any = ()) -> bytes:
    return joined(encode_control(message, values))  # type: ignore[arg-type]


TASKS = [MASTER, worker_name(0)]


@pytest.mark.parametrize("task", TASKS)
def test_bytes_that_are_no_frames_are_logged_and_dropped(server: Server, task: str) -> None:
    rng = random.Random(task)
    texts = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0" * 64,
        b"hr\x01\x09" + b"\0" * 12,
        b"hr\x07\0" + b"\0" * 12,
    ]
    texts += [rng.randbytes(rng.choice((16, 100, 10_000))) for _ in range(20)]
    for text in texts:
        with server.connect(task) as s:
            s.sendall(text)
            assert _is_closed(s)
    server.logs(task, "was closed before the end of its handshake", len(texts))
    server.logs(task, "the peer is no process of a headrace cluster", 20)
    server.logs(task, "a frame has version 7")
    server.is_unharmed()


@pytest.mark.parametrize("task", TASKS)
def test_truncated_handshakes_are_dropped(server: Server, task: str) -> None:
    hello = _bytes(Hello(messages.VERSION, "client", "x", 1, b"n" * 32, b"p" * 32))
    for n in (0, 1, 15, 16, 17, len(hello) - 1):
        with server.connect(task) as s:
            _frames(s)
            s.sendall(hello[:n])
            s.shutdown(socket.SHUT_WR)
            assert _is_closed(s)
    server.logs(task, "before the end of its handshake", 6)
    server.is_unharmed()


def test_a_peer_that_goes_silent_in_its_handshake_is_dropped(server: Server) -> None:
    with server.connect(MASTER) as s:
        s.sendall(_bytes(Hello(messages.VERSION, "client", "x", 1, b"n" * 32, b"p" * 32))[:20])
        began = time.monotonic()
        assert _is_closed(s)
        assert time.monotonic() - began < 8
    server.logs(MASTER, "the handshake was not complete within 5 s")
    server.is_unharmed()


def test_lengths_beyond_the_limits_close_the_connection(server: Server) -> None:
    head = struct.Struct("<4sIQ")
    for length in (0, 15, (1 << 16) + 1, 1 << 33, 1 << 40, (1 << 64) - 1):
        with server.connect(MASTER) as s:  # before the handshake
            s.sendall(head.pack(b"hr\x01\0", 0, length))
            assert _is_closed(s)
        with _raw(server) as s:  # after it
            s.sendall(head.pack(b"hr\x01\0", 0, length) + b"x" * 100)
            if length > thresholds.LARGEST_FRAME or length < head.size:
                assert _is_closed(s)
    server.logs(MASTER, "before the end of its handshake: a frame states a length of", 6)
    server.logs(MASTER, "is closed: a frame states a length of", 5)
    server.is_unharmed()


@contextlib.contextmanager
def _raw(server: Server, role: str = "client", task: str = MASTER) -> Iterator[socket.socket]:
    """Context manager of a socket after a right handshake."""
    with server.connect(task) as s:
        connector = Connector(Identity(role, "a tester", 1, SECRET.encode()))
        s.sendall(_bytes(connector.answer(_frames(s)[0].message)))
        connector.finish(_frames(s)[0].message)
        yield s


@pytest.mark.parametrize("task", TASKS)
def test_peers_with_another_secret_or_version_are_refused(server: Server, task: str) -> None:
    for secret in ("another secret", ""):
        with pytest.raises(OpError, match="secret"), linked(server.address(task), "client", secret):
            pass
    with server.connect(task) as s:
        challenge = _frames(s)[0].message
        assert isinstance(challenge, Challenge)
        hello = Connector(RIGHT).answer(challenge)
        s.sendall(_bytes(Hello(99, hello.role, hello.name, 1, hello.nonce, hello.proof)))
        assert "speaks version 99" in _frames(s)[0].message.reason
        assert _is_closed(s)
    with _raw(server, role="tourist", task=task) as s:
        assert _is_closed(s)
    server.logs(task, "the secret of the client")
    server.logs(task, "has no secret")
    server.logs(task, "speaks version 99")
    server.logs(task, "the role 'tourist' is unknown")
    server.is_unharmed()


def test_silent_connections_are_dropped(server: Server) -> None:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(server.connect(MASTER)) for _ in range(200)]
        until(
            lambda: usage(server.cluster.processes[MASTER].pid).files < server.before[MASTER].files + 80, 10, "closed"
        )
        server.serves(20.0)  # when the first ones have been silent for 5 s
        assert all(map(_is_closed, sockets))
    server.logs(MASTER, "64 others have not said their names yet", 100)
    server.logs(MASTER, "the handshake was not complete within 5 s", 60)
    server.is_unharmed(megabytes=32.0)  # 64 buffers of 256 KiB, which the allocator keeps


TIMES = [0.0, -1.0, 1e300, float("nan"), float("inf")]
NUMBERS = [0, 1, 2, 5, 1 << 20, (1 << 63) - 1]


def _nonsense(rng: random.Random) -> tuple[Any, tuple[Any, ...]]:
    """A legal message about objects that its sender does not have, with values."""
    number: Callable[[], int] = lambda: rng.choice([*NUMBERS, rng.getrandbits(63)])
    position = lambda: rng.choice([0, 1, 7, (1 << 20) - 1])
    error = rng.choice([None, "text", [1, 2], {"class": "InvalidArgumentError"}, {"class": "os.system", "args": ["x"]}])
    positions = tuple(position() for _ in range(rng.randrange(3)))
    name = rng.choice(
        ["", "/job:worker/replica:0/task:0", "/job:worker/replica:0/task:0/device:CPU:0", "x" * 1000, "/device:"]
    )
    blob = rng.choice([b"", b"hr-step\n", rng.randbytes(100)])
    made: list[Any] = [
        messages.Reply(number(), rng.choice([None, [number()], {"devices": 3}]), positions),
        messages.Failure(number(), error),
        messages.OpenSession(number(), filters=(name,)),
        messages.CompileStep(number(), number(), blob),
        RunStep(number(), number(), number(), rng.choice(TIMES), rng.random() < 0.5),
        messages.ResumeRun(number(), number(), positions, rng.choice([None, positions]), rng.random() < 0.5),
        messages.CancelRun(number(), error),
        messages.CloseSession(number(), number()),
        messages.Describe(number()),
        messages.ProgramPrepared(number(), error),
        PrepareProgram(number(), (PartData(name, blob),), (name,), rng.random() < 0.5),
        messages.DropProgram(number()),
        StartStep(number(), number(), number(), positions, True, (number(),)),
        messages.ResumeStep(number(), positions, True),
        messages.Orders(number(), (Order(rng.choice(["start", "release", "probe", "x"]), name, number()),)),
        messages.AbortStep(number(), error),
        messages.EndSteps((number(), number())),
        messages.DropSession(number()),
        messages.Report(number(), (messages.PartFailed(name, error),), positions),
        messages.Report(number(), (messages.PartFinished(name, 1, number(), number(), number()),), positions, (error,)),
        messages.Topology((messages.Task("/job:x/replica:0/task:0", "nowhere:1", number()),)),
        Challenge(1, b"n" * 32),
        messages.Refused("no"),
    ]  # fmt: skip
    values = tuple(rng.choice([np.float32(1), np.zeros(3), b"text"]) for _ in range(rng.choice([0, 0, 1, 3])))
    return rng.choice(made), values


@pytest.mark.parametrize(("role", "task"), [("client", MASTER), ("master", worker_name(0)), ("worker", worker_name(0))])
def test_legal_frames_with_nonsense_harm_no_other_client(server: Server, role: str, task: str) -> None:
    _send_nonsense(server, role, task, 40)


@pytest.mark.nightly
@pytest.mark.parametrize(("role", "task"), [("client", MASTER), ("master", worker_name(0)), ("worker", worker_name(0))])
def test_much_nonsense_harms_no_other_client(server: Server, role: str, task: str) -> None:
    _send_nonsense(server, role, task, 200)  # the allocator keeps some buffers, but not more and more
    _send_nonsense(Server(server.cluster), role, task, 1800, 16.0)


def _send_nonsense(server: Server, role: str, task: str, connections: int, megabytes: float = 24.0) -> None:
    rng = random.Random(f"{role} {task} {connections}")
    for _ in range(connections):
        with linked(server.address(task), role) as (link, frames):
            for _ in range(20):
                message, values = _nonsense(rng)
                if isinstance(message, messages.OpenSession) and role == "client":
                    continue  # an honest call
                with contextlib.suppress(OpError):  # the server may close the connection
                    link.send(encode_control(message, values))
            with contextlib.suppress(OpError):
                link.send(encode_control(messages.Describe(77)))
            if role != "worker":
                _await_answer(frames)
    server.is_unharmed(megabytes)


def _await_answer(frames: Any) -> None:
    """The server still answers on this connection, or has closed it."""
    while (frame := frames.get(timeout=10)) is not None:
        if isinstance(frame, Control) and isinstance(frame.message, messages.Reply) and frame.message.call == 77:
            return


def test_tokens_of_unknown_steps_are_dropped(server: Server) -> None:
    """Their number and their bytes are bounded, and steps of others go on."""
    rng = random.Random(3)
    task = worker_name(0)
    with linked(server.address(task), "worker", name=task) as (link, _):
        for i in range(100_000):
            value: Any = np.float32(i) if i % 100 else np.zeros(1000)
            step = rng.getrandbits(60) if i % 2 else 5
            buffers: list[Buffer] = encode_token(step, rng.getrandbits(31), (), i, value)
            with contextlib.suppress(OpError):
                link.send(buffers, flush=i % 100 == 0)
            if link.pending_bytes > 1 << 22:
                until(lambda: link.pending_bytes < 1 << 20, 20, "the worker reads")
        server.serves()
    server.is_unharmed(megabytes=100.0)


def test_large_tokens_of_unknown_steps_do_not_fill_the_memory(server: Server) -> None:
    task = worker_name(0)
    value = np.zeros(1 << 17)  # 1 MiB
    with linked(server.address(task), "worker", name=task) as (link, _):
        for i in range(1000):
            with contextlib.suppress(OpError):
                link.send(encode_token(1000 + i, 0, (), 0, value))
            until(lambda: link.pending_bytes < 1 << 24 or link.is_closed, 20, "the worker reads")
        server.serves()
    server.is_unharmed(megabytes=256.0 + 64.0, files=2 + thresholds.SHARED_SEGMENTS)
