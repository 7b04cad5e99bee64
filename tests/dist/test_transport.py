"""Links: order, partial writes, heartbeats, closing, unknown peers and TLS, over the loopback interface."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import thresholds
from headrace.dist import link as link_module
from headrace.dist import reactor as reactor_module
from headrace.dist.codec import (
    Control,
    Decoder,
    Frame,
    Ping,
    Pong,
    Token,
    encode_control,
    encode_ping,
    encode_pong,
    encode_token,
)
from headrace.dist.handshake import Connector, Identity, Peer
from headrace.dist.link import Link, LinkSettings
from headrace.dist.messages import VERSION, Challenge, Describe, Hello, Refused, Welcome
from headrace.dist.reactor import Reactor
from headrace.dist.transport import Listener, connect, connect_blocking, listen
from headrace.errors import (
    DataLossError,
    DeadlineExceededError,
    OpError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from tests.dist.waits import SECONDS, ManualClock, await_, until

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent.parent
WORKER = Identity("worker", "/job:worker/task:1", 22, b"secret")
MASTER = Identity("master", "/job:master/task:0", 11, b"secret")


class End:
    """One end of a connection, with all that it has received."""

    def __init__(self) -> None:
        self.link: Link = None  # type: ignore[assignment]
        self.frames: list[Frame] = []
        self.reasons: list[str] = []
        self.opened = threading.Event()

    def on_link(self, link: Link) -> None:
        self.link = link
        link.on_frames = self.frames.extend
        link.on_closed = self.reasons.append
        self.opened.set()

    def send(self, index: int, value: object = None, flush: bool = True, step: int = 0) -> None:
        self.link.send(encode_token(step, 0, (), index, value), flush)

    @property
    def indices(self) -> list[int]:
        return [f.index for f in self.frames if isinstance(f, Token)]


class Net:
    """Reactors, listeners and connections of a test."""

    def __init__(self) -> None:
        self.peers: list[RawPeer] = []
        self.reactors: list[Reactor] = []
        self.errors: list[BaseException] = []

    def reactor(self, **options: Any) -> Reactor:
        self.reactors.append(Reactor("test", on_error=self.errors.append, **options))
        return self.reactors[-1]

    def listen(self, end: End, host: str = "127.0.0.1", clock: ManualClock | None = None, **options: Any) -> Listener:
        return listen(self.reactor(clock=clock), host, 0, end.on_link, WORKER, **options)

    def peer(self, port: int, greets: bool = True) -> RawPeer:
        self.peers.append(RawPeer(port, greets))
        return self.peers[-1]

    def pair(self, host: str = "127.0.0.1", clock: ManualClock | None = None, **options: Any) -> tuple[End, End]:
        """A connection: the end that connected, and the end that listened."""
        a, b = End(), End()
        listener = self.listen(b, host, clock, **options)
        connect_blocking(self.reactor(clock=clock), host, listener.port, a.on_link, MASTER, **options)
        await_(b.opened)
        return a, b


@pytest.fixture
def net(caplog: pytest.LogCaptureFixture) -> Iterator[Net]:
    """A net that leaves no threads, open files and errors."""
    caplog.set_level(logging.WARNING, "headrace.dist")
    threads, files = threading.active_count(), open_files()
    net = Net()
    yield net
    for peer in net.peers:
        peer.socket.close()
    for r in net.reactors:
        assert r.close(SECONDS)
    assert net.errors == []
    until(lambda: threading.active_count() == threads)
    until(lambda: open_files() == files)


@pytest.fixture(params=["native", "portable"])
def poller(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "portable":
        monkeypatch.setattr(reactor_module, "make_poller", reactor_module._PortablePoller)


def open_files() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0


class RawPeer:
    """A blocking connector without a reactor, which does as the test says."""

    def __init__(self, port: int, greets: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._decoder = Decoder(1 << 30)
        self._frames: list[Frame] = []
        if greets:
            connector = Connector(MASTER)
            self.send(encode_control(connector.answer(self.message())))
            connector.finish(self.message())

    def send(self, buffers: list[Any]) -> None:
        self.socket.sendall(b"".join(buffers))

    def frame(self, most: int = 1 << 30, pause: float = 0.0) -> Frame:
        while not self._frames:
            n = self.socket.recv_into(self._decoder.buffer()[:most])
            time.sleep(pause)
            if not n:
                raise EOFError
            self._frames.extend(self._decoder.received(n))
        return self._frames.pop(0)

    def message(self) -> Any:
        frame = self.frame()
        assert type(frame) is Control
        return frame.message

    def is_closed(self) -> bool:
        """Whether the other end closes the connection, after any frames."""
        try:
            while True:
                self.frame()
        except (EOFError, ConnectionError):
            return True
        finally:
            self.socket.close()


# *** sending and receiving ***


def test_frames_arrive_in_order_in_both_directions(net: Net, poller: None) -> None:
    a, b = net.pair()
    for i in range(500):
        a.send(i, np.float32(i))
        b.send(i, np.arange(i, dtype=np.int64))
    until(lambda: len(a.frames) == len(b.frames) == 500)
    assert a.indices == b.indices == list(range(500))
    assert [f.value.size for f in a.frames if isinstance(f, Token)] == list(range(500))
    for end in (a, b):
        s = end.link.statistics()
        assert (s.frames_out >= 500, s.frames_in, s.pending_bytes) == (True, 500, 0)


def test_both_ends_know_each_other(net: Net) -> None:
    a, b = net.pair()
    assert a.link.peer == Peer("", WORKER.name, WORKER.incarnation)
    assert b.link.peer == Peer("master", MASTER.name, MASTER.incarnation)
    assert WORKER.name in repr(a.link)


def test_order_holds_across_flushed_and_corked_frames(net: Net, poller: None) -> None:
    a, b = net.pair()
    rng = random.Random(5)
    for i in range(2000):
        a.send(i, np.zeros(rng.choice((1, 10, 3000))), flush=rng.random() < 0.3)
    a.link.flush()
    until(lambda: len(b.frames) == 2000)
    assert b.indices == list(range(2000))


@pytest.mark.parametrize("writes", [1, link_module.WRITES])
def test_order_of_each_thread_holds_with_many_threads(writes: int, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "WRITES", writes)
    monkeypatch.setattr(link_module, "MOST_BUFFERS", 5 if writes == 1 else link_module.MOST_BUFFERS)
    a, b = net.pair()

    def run(step: int) -> None:
        rng = random.Random(step)
        for i in range(300):
            a.send(i, np.zeros(rng.choice((1, 10, 30000))), rng.random() < 0.5, step)
        a.link.flush()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS)
    until(lambda: len(b.frames) == 1200)
    for step in range(4):
        assert [f.index for f in b.frames if isinstance(f, Token) and f.step == step] == list(range(300))
    assert a.link.pending_bytes == 0


def test_corked_frames_are_one_system_call(net: Net) -> None:
    a, b = net.pair()
    calls: list[int] = []
    send = a.link._sendmsg
    a.link._sendmsg = lambda buffers: calls.append(len(buffers)) or send(buffers)  # type: ignore[func-returns-value]

    def job() -> None:  # the leader does not poll in the meantime
        for i in range(100):
            a.send(i, flush=False)

    net.reactors[1].submit(job)
    until(lambda: len(b.frames) == 100)
    assert calls.count(100) == 1


@pytest.mark.parametrize("how", ["link", "reactor", "send", "poll", "size"])
def test_corked_frames_are_sent_by(how: str, net: Net) -> None:
    a, b = net.pair()
    n, done = 20, threading.Event()

    def job() -> None:
        for i in range(n):
            a.send(i, flush=False)
        if how == "link":
            a.link.flush()
        elif how == "reactor":
            net.reactors[1].flush()
        elif how == "send":
            a.send(n)
        elif how == "size":
            a.send(n, np.zeros(10000), flush=False)
        if how != "poll":
            assert a.link.pending_bytes == 0
            until(lambda: len(b.frames) >= n)  # before the next poll of this end
        done.set()

    net.reactors[1].submit(job)
    await_(done)
    until(lambda: len(b.frames) >= n)
    assert b.indices == list(range(len(b.frames)))


def test_corked_frames_of_another_thread_are_sent_at_once(net: Net) -> None:
    a, b = net.pair()
    time.sleep(0.02)  # both ends poll
    for i in range(20):
        a.send(i, flush=False)
        until(lambda i=i: len(b.frames) == i + 1)


def test_a_frame_of_many_buffers_is_sent(net: Net) -> None:
    a, b = net.pair()
    values = [np.full(5000, i) for i in range(1500)]  # each is a buffer of its own, more than the system takes
    a.link.send(encode_control(Describe(7), values))
    until(lambda: b.frames)
    (frame,) = b.frames
    assert isinstance(frame, Control)
    assert [int(v[-1]) for v in frame.values] == list(range(1500))


def test_large_values_are_received_without_a_copy_and_sent_without_waiting(net: Net) -> None:
    a, b = net.pair()
    value = np.random.default_rng(1).integers(0, 255, 1 << 26, np.uint8)
    start = time.monotonic()
    for i in range(2):
        a.send(i, value)
        b.send(i, value)
    a.send(2)
    assert time.monotonic() - start < 5.0
    until(lambda: len(b.frames) == 3 and len(a.frames) == 2)
    assert b.indices == [0, 1, 2]
    for frame in (*a.frames, *b.frames[:2]):
        assert isinstance(frame, Token)
        assert np.array_equal(frame.value, value)
        assert not frame.value.flags.owndata


def test_64_megabytes_reach_a_slow_reader_in_parts(net: Net, poller: None) -> None:
    b = End()
    peer = net.peer(net.listen(b).port)
    await_(b.opened)
    value = np.random.default_rng(2).integers(0, 255, 1 << 26, np.uint8)
    frames = [encode_token(1, 0, (), 0, value), encode_token(1, 0, (), 1, np.float32(3))]
    for buffers in frames:
        b.link.send(buffers)  # returns though the reader has not begun
    assert b.link.pending_bytes > 1 << 25
    got: list[Frame] = []
    before = b.link.pending_bytes
    while len(got) < 2:
        frame = peer.frame(most=1 << 20, pause=0.001)
        assert b.link.pending_bytes <= before
        before = b.link.pending_bytes
        if not isinstance(frame, Ping):
            got.append(frame)
    assert [f.index for f in got if isinstance(f, Token)] == [0, 1]
    assert isinstance(got[0], Token)
    assert np.array_equal(got[0].value, value)
    assert b.link.pending_bytes == 0


def test_slow_on_frames_keeps_the_order_and_does_not_stop_the_reactor(net: Net, poller: None) -> None:
    a, b = net.pair()
    entered, released, seen = threading.Event(), threading.Event(), []

    def on_frames(frames: list[Frame]) -> None:
        seen.extend(f.index for f in frames if isinstance(f, Token))
        if not entered.is_set():
            entered.set()
            await_(released)  # the watchdog takes the lead

    b.link.on_frames = on_frames
    for i in range(3):
        a.send(i)
    await_(entered)
    for i in range(3, 100):
        a.send(i)
    answered = threading.Event()
    until(lambda: (net.reactors[0].submit(answered.set), answered.is_set())[1])  # another thread leads
    b.send(7)
    until(lambda: a.indices == [7])
    assert len(seen) <= 3
    released.set()
    until(lambda: len(seen) == 100)
    assert seen == list(range(100))


def test_an_error_of_on_frames_closes_the_link(net: Net) -> None:
    a, b = net.pair()
    b.link.on_frames = lambda frames: frames[9]
    a.send(0)
    until(lambda: a.reasons and b.reasons)
    assert "could not be handled: IndexError" in b.reasons[0]
    assert type(net.errors.pop()) is IndexError


# *** heartbeats ***


def test_a_live_link_stays_open_and_measures_the_round_trip(net: Net) -> None:
    clock = ManualClock()
    a, b = net.pair(clock=clock)
    for i in range(25):
        before = [e.link.statistics().bytes_in for e in (a, b)]
        clock.advance(1.0, *net.reactors)
        if i:
            until(lambda before=before: all(e.link.statistics().bytes_in > n for e, n in zip((a, b), before)))
    until(lambda: a.link.round_trip_ns and b.link.round_trip_ns)
    for end in (a, b):
        assert end.link.round_trip_ns is not None
        assert end.link.clock_offset_ns is not None
        assert 0 < end.link.round_trip_ns < 1e9
        assert abs(end.link.clock_offset_ns) <= end.link.round_trip_ns  # one machine has one clock
        assert end.reasons == []
        assert end.frames == []


def test_a_long_ping_measures_the_bandwidth(net: Net) -> None:
    a, b = net.pair()
    assert a.link.bandwidth is None
    a.link.measure_bandwidth()
    until(lambda: a.link.bandwidth)
    assert a.link.bandwidth is not None
    assert 1e6 < a.link.bandwidth < 1e15
    assert b.link.bandwidth is None
    assert b.frames == []


def test_the_offset_is_that_of_the_fastest_ping(net: Net) -> None:
    b = End()
    peer = net.peer(net.listen(b, settings=LinkSettings(interval=0.2)).port)
    for i, pause in enumerate((0.1, 0.0, 0.12)):
        ping = peer.frame()
        assert isinstance(ping, Ping)
        time.sleep(pause)
        peer.send(encode_pong(ping.sent, time.perf_counter_ns() + (i + 1) * 10**15))
    until(lambda: len(b.link._samples) == 3)
    assert b.link.clock_offset_ns is not None
    assert abs(b.link.clock_offset_ns - 2 * 10**15) < 10**9


def test_a_ping_is_answered_at_once(net: Net) -> None:
    b = End()
    peer = net.peer(net.listen(b).port)
    assert isinstance(peer.frame(), Ping)
    before = time.perf_counter_ns()
    peer.send(encode_ping(12345))
    pong = peer.frame()
    assert isinstance(pong, Pong)
    assert pong.sent == 12345
    assert before < pong.time < time.perf_counter_ns()


@pytest.mark.parametrize("size", [0, 1 << 26])
def test_a_peer_that_stops_reading_is_found(net: Net, size: int) -> None:
    clock, b = ManualClock(), End()
    net.peer(net.listen(b, clock=clock).port)
    await_(b.opened)
    if size:
        b.send(0, np.zeros(size, np.uint8))
        assert b.link.pending_bytes > 0
    for _ in range(9):
        clock.advance(1.0, *net.reactors)
    time.sleep(0.02)
    assert b.reasons == []
    clock.advance(1.5, *net.reactors)
    until(lambda: b.reasons)
    assert b.reasons == ["no answer for 10 s: the process has stopped, or the network is cut"]
    with pytest.raises(UnavailableError, match=r"/job:master/task:0 \(127.0.0.1:\d+\) is closed: no answer for 10 s"):
        b.send(1)


def test_a_process_that_was_suspended_itself_reads_before_it_judges(net: Net) -> None:
    clock, b = ManualClock(), End()
    net.peer(net.listen(b, clock=clock).port)
    await_(b.opened)
    entered, released = threading.Event(), threading.Event()
    r = net.reactor(clock=clock, watch_period=1000.0)
    end = End()
    server = listen(r, "127.0.0.1", 0, end.on_link, WORKER)
    other = net.peer(server.port)
    await_(end.opened)

    def suspended() -> None:
        entered.set()
        await_(released)

    r.submit(suspended)
    await_(entered)
    other.send(encode_token(0, 0, (), 5, None))
    clock.now += 60.0
    released.set()
    until(lambda: end.indices == [5])
    time.sleep(0.02)
    assert end.reasons == []
    clock.advance(0.0, *net.reactors)
    until(lambda: b.reasons)  # the other one has sent nothing


PEER = """
import sys, threading
from headrace.dist.handshake import Identity
from headrace.dist.reactor import Reactor
from headrace.dist.transport import connect_blocking
done = threading.Event()
def on_link(link):
    link.on_closed = lambda reason: (print(reason, flush=True), done.set())
connect_blocking(Reactor(), "127.0.0.1", int(sys.argv[1]), on_link, Identity("master", "m", 1, b"secret"))
print("connected", flush=True)
done.wait(60)
"""


@pytest.fixture
def other_process() -> Iterator[Callable[[int], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(port: int) -> subprocess.Popen[str]:
        p = subprocess.Popen([sys.executable, "-c", PEER, str(port)], stdout=subprocess.PIPE, text=True, cwd=ROOT)
        started.append(p)
        assert p.stdout is not None
        assert p.stdout.readline() == "connected\n"
        return p

    yield start
    for p in started:
        p.kill()
        p.communicate(timeout=SECONDS)


def test_a_killed_process_is_noticed_at_once(net: Net, other_process: Callable[[int], subprocess.Popen[str]]) -> None:
    b = End()
    process = other_process(net.listen(b).port)
    await_(b.opened)
    process.kill()
    until(lambda: b.reasons)
    assert b.reasons[0] in ("the other end has closed the connection", "reading failed: Connection reset by peer")


def test_a_stopped_process_is_found_by_its_silence(
    net: Net, other_process: Callable[[int], subprocess.Popen[str]]
) -> None:
    b = End()
    process = other_process(net.listen(b, settings=LinkSettings(interval=0.05, limit=0.4)).port)
    await_(b.opened)
    process.send_signal(signal.SIGSTOP)
    start = time.monotonic()
    until(lambda: b.reasons)
    assert b.reasons == ["no answer for 0.4 s: the process has stopped, or the network is cut"]
    assert time.monotonic() - start < 5.0
    process.send_signal(signal.SIGCONT)


def test_the_end_of_this_process_closes_its_links(
    net: Net, other_process: Callable[[int], subprocess.Popen[str]]
) -> None:
    b = End()
    process = other_process(net.listen(b).port)
    await_(b.opened)
    b.link.close("enough")
    assert process.wait(SECONDS) == 0
    assert process.stdout is not None
    assert process.stdout.read() == "the other end has closed the connection\n"


# *** closing ***


def test_close_is_reported_once_at_both_ends(net: Net, poller: None) -> None:
    a, b = net.pair()
    for _ in range(3):
        a.link.close("the step is over")
    a.link.close("later")
    until(lambda: a.reasons and b.reasons)
    assert a.link.is_closed
    for call in (lambda: a.send(0), lambda: a.send(0, flush=False)):
        with pytest.raises(UnavailableError, match=r"/job:worker/task:1 .* is closed: the step is over"):
            call()
    a.link.flush()
    time.sleep(0.02)
    assert a.reasons == ["the step is over"]
    assert b.reasons == ["the other end has closed the connection"]


@pytest.mark.parametrize("is_reset", [False, True])
def test_the_last_frames_arrive_though_sending_fails(is_reset: bool, net: Net, poller: None) -> None:
    r, b = net.reactor(watch_period=1000.0), End()
    listener = listen(r, "127.0.0.1", 0, b.on_link, WORKER)
    peer = net.peer(listener.port)
    await_(b.opened)
    done = threading.Event()

    def job() -> None:  # the leader does not poll in the meantime
        peer.send([b"".join(encode_token(0, 0, (), i, None)) for i in range(50)])
        if is_reset:
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.socket.close()
        for i in range(20):
            b.send(i)
            time.sleep(0.001)
        done.set()

    r.submit(job)
    await_(done)
    until(lambda: b.reasons)
    assert b.indices == list(range(50))


def test_close_during_sends_of_other_threads(net: Net) -> None:
    for _ in range(10):
        a, b = net.pair()
        stopped: list[str] = []

        def run(a: End = a, stopped: list[str] = stopped) -> None:
            with contextlib.suppress(UnavailableError):
                while True:
                    a.send(0, np.zeros(random.choice((1, 100000))), random.random() < 0.5)
            stopped.append("")

        threads = [threading.Thread(target=run) for _ in range(3)]
        for t in threads:
            t.start()
        time.sleep(0.01)
        (a if random.random() < 0.5 else b).link.close()
        for t in threads:
            t.join(SECONDS)
        assert len(stopped) == 3
        until(lambda a=a, b=b: a.reasons and b.reasons)
        assert len(a.reasons) == len(b.reasons) == 1


def test_on_closed_follows_the_last_frames(net: Net) -> None:
    a, b = net.pair()
    log: list[str] = []

    def on_frames(frames: list[Frame]) -> None:
        log.append("begins")
        time.sleep(0.1)  # the watchdog takes the lead in the meantime
        log.append("ends")

    b.link.on_frames = on_frames
    b.link.on_closed = lambda reason: log.append(reason)
    a.send(0)
    until(lambda: log)
    b.link.close("over")
    until(lambda: len(log) == 3)
    assert log == ["begins", "ends", "over"]


def test_the_end_of_a_reactor_closes_links_and_listeners(net: Net) -> None:
    a, b = net.pair()
    assert net.reactors[0].close()
    assert b.reasons == ["the reactor of this process was closed"]
    until(lambda: a.reasons == ["the other end has closed the connection"])
    with pytest.raises(UnavailableError, match="the reactor is closed"):
        net_port(net, b)


def net_port(net: Net, end: End) -> int:
    return listen(net.reactors[0], "127.0.0.1", 0, end.on_link, WORKER).port


def test_a_callback_may_close_its_link_and_its_reactor(net: Net) -> None:
    a, b = net.pair()
    b.link.on_frames = lambda frames: b.link.close("by itself")
    a.send(0)
    until(lambda: b.reasons == ["by itself"])
    a, b = net.pair()
    b.link.on_frames = lambda frames: net.reactors[2].close()
    a.send(0)
    until(lambda: b.reasons == ["the reactor of this process was closed"])
    until(lambda: a.reasons)


def test_a_forked_process_gets_a_clear_error_and_does_not_hold_the_connection(net: Net) -> None:
    a, b = net.pair()
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of a fork with threads
        pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(write)
            with pytest.raises(UnavailableError, match="was forked, and the connection belongs to its parent"):
                a.send(0)
            code = 0
            os.read(read, 1)  # until the parent allows the end
        finally:
            os._exit(code)
    a.send(1)
    until(lambda: b.indices == [1])
    a.link.close()
    until(lambda: b.reasons)  # though the child is alive
    os.write(write, b"x")
    os.close(write), os.close(read)
    assert os.waitpid(pid, 0)[1] == 0


def test_many_connections_leave_nothing(net: Net) -> None:
    b = End()
    listener = net.listen(b)
    r = net.reactor()
    ends = []
    files = open_files()
    for i in range(30):
        ends.append(End())
        connect_blocking(r, "127.0.0.1", listener.port, ends[-1].on_link, MASTER)
        ends[-1].link.close() if i % 2 else None
    for end in ends:
        end.link.close()
    until(lambda: all(end.reasons for end in ends))
    until(lambda: open_files() == files)
    assert len(r._members) == 0
    until(lambda: len(net.reactors[0]._members) == 1)  # the listener


# *** unknown peers ***


def test_a_wrong_secret_is_refused_and_the_next_client_is_served(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    b = End()
    listener = net.listen(b)
    r = net.reactor()
    for secret, text in ((b"wrong", "differs"), (b"", "has no secret")):
        with pytest.raises(UnauthenticatedError, match=rf"cannot connect to 127.0.0.1:\d+: .* was refused: .*{text}"):
            connect_blocking(r, "127.0.0.1", listener.port, End().on_link, Identity("client", "c", 1, secret))
    until(lambda: len(caplog.records) == 2)
    assert "the secret of the client c differs from that of this process" in caplog.text
    end = End()
    connect_blocking(r, "127.0.0.1", listener.port, end.on_link, MASTER)
    end.send(0)
    until(lambda: b.indices == [0])


def test_an_acceptor_without_the_secret_is_refused(net: Net) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=_impostor, args=(server,))
    thread.start()
    with pytest.raises(UnauthenticatedError, match="the secret of /job:worker/task:1 differs"):
        connect_blocking(net.reactor(), "127.0.0.1", server.getsockname()[1], End().on_link, MASTER)
    thread.join(SECONDS)
    server.close()


def _impostor(server: socket.socket) -> None:
    server.settimeout(SECONDS)
    sock, _ = server.accept()
    with sock:
        sock.sendall(b"".join(encode_control(Challenge(VERSION, bytes(32)))))
        sock.recv(1000)
        sock.sendall(b"".join(encode_control(Welcome(WORKER.name, WORKER.incarnation, bytes(32)))))
        sock.recv(1000)


def test_another_version_is_refused_by_both_ends(net: Net) -> None:
    b = End()
    peer = net.peer(net.listen(b).port, greets=False)
    assert isinstance(peer.message(), Challenge)
    peer.send(encode_control(Hello(VERSION + 1, "worker", "w", 1, bytes(32), b"")))
    reply = peer.message()
    assert isinstance(reply, Refused)
    assert reply.reason == (
        f"the worker w speaks version {VERSION + 1}, this process {VERSION}; use one version of headrace in all "
        "processes"
    )
    assert peer.is_closed()
    server = socket.create_server(("127.0.0.1", 0))
    errors: list[OpError] = []
    connect(net.reactor(), *server.getsockname(), End().on_link, errors.append, MASTER)
    sock, _ = server.accept()
    sock.sendall(b"".join(encode_control(Challenge(VERSION + 1, bytes(32)))))
    until(lambda: errors)
    assert type(errors[0]) is UnauthenticatedError
    assert f"speaks version {VERSION + 1}" in str(errors[0])
    sock.close(), server.close()


GARBAGE = {
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "zeros": bytes(1000),
    "random": random.Random(1).randbytes(3000),
    "token": b"".join(encode_token(1, 2, (), 3, np.float32(4))),
    "ping": b"".join(encode_ping(1)),
    "call": b"".join(encode_control(Describe(1))),
    "large frame": b"".join(encode_control(Describe(1), [np.zeros(1 << 17, np.uint8)])),
    "hello with values": b"".join(encode_control(Hello(1, "a", "b", 1, bytes(32), b""), [np.float32(1)])),
}


@pytest.mark.parametrize("kind", GARBAGE)
def test_garbage_is_dropped_and_the_next_client_is_served(
    kind: str, net: Net, caplog: pytest.LogCaptureFixture
) -> None:
    b = End()
    listener = net.listen(b)
    peer = net.peer(listener.port, greets=False)
    with contextlib.suppress(ConnectionError):  # closed already
        peer.socket.sendall(GARBAGE[kind])
    assert peer.is_closed()
    until(lambda: "was closed before the end of its handshake" in caplog.text)
    assert not b.opened.is_set()
    end = End()
    connect_blocking(net.reactor(), "127.0.0.1", listener.port, end.on_link, MASTER)
    await_(b.opened)


def test_half_a_handshake_is_dropped_at_its_deadline(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    clock, b = ManualClock(), End()
    listener = net.listen(b, clock=clock, handshake_timeout=3.0)
    peers = [net.peer(listener.port, greets=False) for _ in range(3)]
    hello = b"".join(encode_control(Connector(MASTER).answer(peers[1].message())))
    peers[1].socket.sendall(hello[:20])
    until(lambda: len(listener._unknown) == 3)
    end = End()
    connect_blocking(net.reactor(), "127.0.0.1", listener.port, end.on_link, MASTER)  # in the meantime
    await_(b.opened)
    clock.advance(3.1, net.reactors[0])
    assert all(peer.is_closed() for peer in peers)
    until(lambda: caplog.text.count("the handshake was not complete within 3 s") == 3)
    assert listener._unknown == set()
    assert not end.reasons


def test_the_number_of_unknown_connections_is_limited(net: Net, caplog: pytest.LogCaptureFixture) -> None:
    b = End()
    listener = net.listen(b, most_unknown=4)
    peers = [net.peer(listener.port, greets=False) for _ in range(4)]
    until(lambda: len(listener._unknown) == 4)
    assert net.peer(listener.port, greets=False).is_closed()
    assert "4 others" in caplog.text
    for peer in peers:
        peer.socket.close()
    until(lambda: not listener._unknown)
    end = End()
    connect_blocking(net.reactor(), "127.0.0.1", listener.port, end.on_link, MASTER)


def test_damaged_frames_close_an_open_link(net: Net) -> None:
    b = End()
    peer = net.peer(net.listen(b).port)
    await_(b.opened)
    peer.socket.sendall(b"nonsense" * 10)
    assert peer.is_closed()
    until(lambda: b.reasons)
    assert "begin no frame" in b.reasons[0]


def test_a_frame_above_the_limit_closes_the_link(net: Net) -> None:
    a, b = net.pair(settings=LinkSettings(largest_frame=1 << 20))
    a.send(0, np.zeros(1 << 19, np.uint8))
    until(lambda: b.indices == [0])
    with pytest.raises(ResourceExhaustedError, match="at most 1048576 are sent"):
        a.send(1, np.zeros(1 << 20, np.uint8))
    a.link._settings = LinkSettings()
    a.send(1, np.zeros(1 << 20, np.uint8))
    until(lambda: a.reasons and b.reasons)
    assert "at most 1048576 are allowed" in b.reasons[0]


def test_large_frames_directly_behind_the_handshake_arrive(net: Net) -> None:
    """They are received together with the last message of the handshake, if possible."""
    for _ in range(20):
        a, b = End(), End()

        def on_link(link: Link, b: End = b) -> None:
            b.on_link(link)
            b.send(0, np.zeros(100000))

        listener = listen(net.reactor(), "127.0.0.1", 0, on_link, WORKER)
        connect_blocking(net.reactor(), "127.0.0.1", listener.port, a.on_link, MASTER)
        until(lambda a=a: a.indices == [0])
        for r in net.reactors[-2:]:
            assert r.close()


def test_an_error_of_on_link_closes_the_link(net: Net) -> None:
    b = End()
    listener = net.listen(b)
    b.on_link = lambda link: [][0]  # type: ignore[method-assign, assignment]
    listener._on_link = b.on_link
    end = End()
    connect_blocking(net.reactor(), "127.0.0.1", listener.port, end.on_link, MASTER)
    until(lambda: end.reasons)
    assert type(net.errors.pop()) is IndexError


# *** listening and connecting ***


def test_a_closed_listener_refuses_connections_and_keeps_links(net: Net) -> None:
    b, a = End(), End()
    listener = net.listen(b)
    r = net.reactor()
    connect_blocking(r, "127.0.0.1", listener.port, a.on_link, MASTER)
    listener.close()
    listener.close()
    until(lambda: listener._is_finished)
    with pytest.raises(UnavailableError, match=rf"cannot connect to 127.0.0.1:{listener.port}: Connection refused"):
        connect_blocking(r, "127.0.0.1", listener.port, End().on_link, MASTER)
    a.send(3)
    until(lambda: b.indices == [3])
    listen(net.reactors[0], "127.0.0.1", listener.port, b.on_link, WORKER)  # the port is free again


def test_a_used_port_is_an_error(net: Net) -> None:
    listener = net.listen(End())
    with pytest.raises(UnavailableError, match=rf"cannot listen on 127.0.0.1:{listener.port}: Address already in use"):
        listen(net.reactors[0], "127.0.0.1", listener.port, End().on_link, WORKER)


def test_an_address_may_be_ipv6(net: Net) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    a, b = net.pair("::1")
    assert a.link.address.startswith("[::1]:")
    a.send(1)
    until(lambda: b.indices == [1])


def test_a_name_is_resolved_without_stopping_the_reactor(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    b, end, r, resolving, released = End(), End(), net.reactor(), threading.Event(), threading.Event()
    listener = net.listen(b)
    resolve = socket.getaddrinfo

    def slow(host: str, port: int, **options: Any) -> Any:
        if not options["flags"]:
            resolving.set()
            await_(released)
        return resolve(host, port, **options)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    connect(r, "localhost", listener.port, end.on_link, net.errors.append, MASTER)
    await_(resolving)
    r.submit(released.set)
    await_(end.opened)


def test_an_unknown_name_is_an_error(net: Net) -> None:
    with pytest.raises(UnavailableError, match=r"cannot connect to no-such-host\.invalid:1: "):
        connect_blocking(net.reactor(), "no-such-host.invalid", 1, End().on_link, MASTER)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_server_may_begin_to_listen_after_the_first_attempt(net: Net, host: str) -> None:
    clock, end, b = ManualClock(), End(), End()
    r = net.reactor(clock=clock)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    attempt = connect(r, host, port, end.on_link, net.errors.append, MASTER, waits=True)
    until(lambda: attempt._stage == "Connection refused")
    listen(net.reactors[0], "127.0.0.1", port, b.on_link, WORKER)
    clock.advance(thresholds.WORKER_RETRY, r)
    await_(end.opened)
    assert not net.errors


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_waiting_for_a_server_ends_once(net: Net, is_cancelled: bool) -> None:
    clock = ManualClock()
    errors: list[OpError] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    r = net.reactor(clock=clock)
    attempt = connect(r, "127.0.0.1", port, End().on_link, errors.append, MASTER, timeout=2.0, waits=True)
    until(lambda: attempt._stage == "Connection refused")
    assert not errors
    if is_cancelled:
        attempt.cancel("the session was closed")
    clock.advance(2.0, r)
    until(lambda: errors)
    text = "the session was closed" if is_cancelled else "no connection within 2 s: Connection refused"
    assert text in str(errors[0])
    clock.advance(thresholds.WORKER_RETRY, r)
    time.sleep(0.01)
    assert len(errors) == 1


def test_a_server_without_a_handshake_exceeds_the_deadline(net: Net) -> None:
    clock = ManualClock()
    server = socket.create_server(("127.0.0.1", 0))
    errors: list[OpError] = []
    r = net.reactor(clock=clock)
    attempt = connect(r, *server.getsockname(), End().on_link, errors.append, MASTER, timeout=2.0)
    sock, _ = server.accept()
    until(lambda: attempt._link is not None)
    clock.advance(2.0, r)
    until(lambda: errors)
    assert type(errors[0]) is DeadlineExceededError
    assert "no connection within 2 s: the other process has not completed the handshake" in str(errors[0])
    assert sock.recv(10) == b""
    time.sleep(0.01)
    assert len(errors) == 1
    sock.close(), server.close()


def test_a_server_that_hangs_up_or_speaks_nonsense_is_an_error(net: Net) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    for data, kind in ((b"", UnavailableError), (b"HTTP/1.1 400 Bad Request\r\n", DataLossError)):
        errors: list[OpError] = []
        connect(net.reactor(), *server.getsockname(), End().on_link, errors.append, MASTER)
        sock, _ = server.accept()
        sock.sendall(data)
        sock.close()
        until(lambda errors=errors: errors)
        assert [type(e) for e in errors] == [kind]
    server.close()


def test_another_process_at_the_address_is_refused(net: Net) -> None:
    listener, r = net.listen(End()), net.reactor()
    with pytest.raises(UnauthenticatedError, match="/job:worker/task:2 was expected"):
        connect_blocking(r, "127.0.0.1", listener.port, End().on_link, MASTER, expected_name="/job:worker/task:2")
    with pytest.raises(UnavailableError, match="was started again"):
        connect_blocking(r, "127.0.0.1", listener.port, End().on_link, MASTER, expected_incarnation=23)
    connect_blocking(
        r, "127.0.0.1", listener.port, End().on_link, MASTER, expected_name=WORKER.name, expected_incarnation=22
    )


def test_a_cancelled_attempt_fails_once(net: Net) -> None:
    server = socket.create_server(("127.0.0.1", 0))
    errors: list[OpError] = []
    attempt = connect(net.reactor(), *server.getsockname(), End().on_link, errors.append, MASTER)
    attempt.cancel("the session was closed")
    attempt.cancel()
    until(lambda: errors)
    assert f"cannot connect to {attempt.address}: the session was closed" in str(errors[0])
    time.sleep(0.01)
    assert len(errors) == 1
    server.close()


def test_a_job_may_connect_and_wait(net: Net) -> None:
    """Also to a listener of its own reactor."""
    r, a, b, done = net.reactor(), End(), End(), threading.Event()
    listener = listen(r, "127.0.0.1", 0, b.on_link, WORKER)

    def job() -> None:
        connect_blocking(r, "127.0.0.1", listener.port, a.on_link, MASTER)
        done.set()

    r.submit(job)
    await_(done)
    a.send(4)
    until(lambda: b.indices == [4])


def test_a_listener_pauses_without_file_descriptors(
    net: Net, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, b, a = ManualClock(), End(), End()
    listener = net.listen(b, clock=clock)

    class Full:
        def accept(self) -> None:
            raise OSError(24, "Too many open files")

    real, listener._socket = listener._socket, Full()  # type: ignore[assignment]
    errors: list[OpError] = []
    connect(net.reactor(), "127.0.0.1", listener.port, a.on_link, errors.append, MASTER)
    until(lambda: "accepts no connections for a second: Too many open files" in caplog.text)
    listener._socket = real
    time.sleep(0.02)
    assert len(caplog.records) == 1
    clock.advance(1.0, net.reactors[0])
    await_(a.opened)


# *** TLS ***


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of the acceptor and the connector, with a new certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("the command openssl, which makes a certificate, is missing")
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), "-addext", names, *files], check=True, capture_output=True, timeout=SECONDS)
    acceptor = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    acceptor.load_cert_chain(certificate, key)
    return acceptor, ssl.create_default_context(cafile=str(certificate))


def tls_pair(net: Net, contexts: tuple[ssl.SSLContext, ssl.SSLContext], **options: Any) -> tuple[End, End]:
    a, b = End(), End()
    listener = net.listen(b, tls=contexts[0], **options)
    connect_blocking(net.reactor(), "127.0.0.1", listener.port, a.on_link, MASTER, tls=contexts[1], **options)
    await_(b.opened)
    return a, b


def test_tls_carries_small_and_large_frames(
    net: Net, poller: None, contexts: tuple[ssl.SSLContext, ssl.SSLContext]
) -> None:
    a, b = tls_pair(net, contexts)
    assert a.link._socket.version() == "TLSv1.3"  # type: ignore[attr-defined]
    rng = np.random.default_rng(4)
    values = [rng.integers(0, 255, n, np.uint8) for n in (1, 100, 20000, 1 << 23, 5, 300000, 17000, 1)]
    for _ in range(3):
        for i, value in enumerate(values):
            a.send(i, value, flush=bool(i % 3))
            b.send(i, value, flush=bool(i % 2))
    for end in (a, b):
        end.link.flush()
        until(lambda end=end: len(end.frames) == 24)
        assert end.indices == list(range(8)) * 3
        for frame in end.frames:
            assert isinstance(frame, Token)
            assert np.array_equal(frame.value, values[frame.index])


def test_tls_of_many_threads_keeps_their_orders(net: Net, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    a, b = tls_pair(net, contexts)

    def run(end: End, step: int) -> None:
        rng = random.Random(step)
        for i in range(150):
            end.send(i, np.zeros(rng.choice((1, 10, 30000))), rng.random() < 0.7, step)
        end.link.flush()

    threads = [threading.Thread(target=run, args=(end, i)) for i in range(3) for end in (a, b)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(SECONDS)
    for end in (a, b):
        until(lambda end=end: len(end.frames) == 450)
        for step in range(3):
            assert [f.index for f in end.frames if isinstance(f, Token) and f.step == step] == list(range(150))


def test_tls_reaches_a_slow_reader(net: Net, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    a, b = tls_pair(net, contexts)
    value = np.random.default_rng(6).integers(0, 255, 1 << 25, np.uint8)
    entered, released = threading.Event(), threading.Event()

    def on_frames(frames: list[Frame]) -> None:
        b.frames.extend(frames)
        entered.set()
        await_(released)

    b.link.on_frames = on_frames
    a.send(0)
    await_(entered)
    a.send(1, value)
    assert a.link.pending_bytes > 0
    released.set()
    until(lambda: len(b.frames) == 2)
    assert isinstance(b.frames[1], Token)
    assert np.array_equal(b.frames[1].value, value)


def test_tls_closes_at_both_ends(net: Net, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    a, b = tls_pair(net, contexts)
    a.link.close("over")
    until(lambda: a.reasons and b.reasons)
    assert a.reasons == ["over"]


def test_an_unknown_certificate_is_refused(net: Net, contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    listener, r = net.listen(End(), tls=contexts[0]), net.reactor()
    with pytest.raises(UnauthenticatedError, match=r"handshake of TLS failed: .*(?i:verify.failed)"):
        connect_blocking(r, "127.0.0.1", listener.port, End().on_link, MASTER, tls=ssl.create_default_context())
    with pytest.raises(UnauthenticatedError, match="handshake of TLS failed"):
        connect_blocking(r, "127.0.0.1", listener.port, End().on_link, MASTER, tls=contexts[1], server_hostname="other")


def test_a_plain_client_of_a_tls_server_is_dropped(
    net: Net, contexts: tuple[ssl.SSLContext, ssl.SSLContext], caplog: pytest.LogCaptureFixture
) -> None:
    clock, b = ManualClock(), End()
    listener = net.listen(b, clock=clock, tls=contexts[0])
    peer = net.peer(listener.port, greets=False)
    peer.socket.sendall(b"".join(encode_control(Hello(VERSION, "a", "b", 1, bytes(32), b""))))
    with contextlib.suppress(OpError):  # an alert of TLS is no frame
        assert peer.is_closed()
    until(lambda: "the handshake of TLS failed" in caplog.text)
    silent = net.peer(listener.port, greets=False)
    until(lambda: listener._unknown)
    clock.advance(5.1, net.reactors[0])
    assert silent.is_closed()
