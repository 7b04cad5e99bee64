"""Shared memory of two processes: segments, their use and release, and hostile offers."""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import thresholds
from headrace.dist import shared_memory
from headrace.dist.codec import ACCEPT, OFFER, REFUSE, RELEASE, USE, WITHDRAW, Decoder, Place, encode_token
from headrace.dist.network import NetworkOptions
from headrace.dist.server import Server
from headrace.dist.shared_memory import Incoming, Outgoing
from headrace.errors import DataLossError
from tests.dist.faults import free_ports
from tests.dist.waits import until

pytestmark = [
    pytest.mark.one_engine,
    pytest.mark.skipif(not shared_memory.IS_AVAILABLE, reason="this system has no files without names"),
]

LIMIT = 8 << 20
SIZE = 1 << 20


class Ends:
    """Both ends of a connection, without the connection."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.out, self.into = Outgoing(limit), Incoming(limit)
        self.now = 0.0

    def send(self, data: bytes) -> memoryview | None:
        """Sends a frame; None if it does not pass by shared memory."""
        for place in self.out.place([data[:7], data[7:]], len(data), self.now):
            if place.verb == USE:
                return self.into.frame(place)
            for answer in self.into.hear(place):
                self.out.hear(answer)
        return None

    def release(self) -> int:
        gc.collect()
        places = self.into.take_released()
        for place in places:
            assert place.verb == RELEASE
            self.out.hear(place)
        return len(places)


def frame(k: int, size: int = SIZE) -> bytes:
    return bytes([k % 256]) * size


def offered(size: int = SIZE) -> tuple[Outgoing, Place]:
    """An offer that was not answered."""
    out = Outgoing(LIMIT)
    assert out.place([frame(1, size)], size, 0.0) == []
    (place,) = out.place([frame(1, size)], size, 0.0)
    assert place.verb == OFFER
    return out, place


# *** use ***


def test_the_third_large_frame_passes_by_memory() -> None:
    ends = Ends()
    got = [ends.send(frame(k)) for k in range(4)]
    assert got[:2] == [None, None]
    assert got[2] == frame(2)
    assert got[3] is None  # the segment is in use, and another one is offered
    assert ends.send(frame(4)) == frame(4)


def test_a_segment_is_free_when_no_array_uses_its_frame() -> None:
    ends = Ends()
    for k in range(2):
        ends.send(frame(k))
    held = ends.send(frame(2))
    assert held is not None
    view = np.frombuffer(held, np.uint8)[5:]
    del held
    assert ends.release() == 0
    assert ends.send(frame(3)) is None
    del view
    assert ends.release() == 1
    for k in range(4, 9):
        assert ends.send(frame(k)) == frame(k)
        ends.release()
    assert len(ends.out._segments) == 2


def test_arrays_outlive_the_connection() -> None:
    ends = Ends()
    for k in range(2):
        ends.send(frame(k))
    held = ends.send(frame(9))
    ends.out.close()
    assert ends.send(frame(1)) is None
    ends.into = Incoming(LIMIT)
    gc.collect()
    assert held == frame(9)
    with pytest.raises(TypeError):
        held[0] = 1  # type: ignore[index]


def test_segments_keep_within_their_limit() -> None:
    ends = Ends(3 * SIZE)
    held = [ends.send(frame(k)) for k in range(20)]
    assert sum(x is not None for x in held) == 3
    assert ends.send(frame(0, 3 * SIZE + 1)) is None
    del held
    ends.release()
    assert ends.send(frame(5, 3 * SIZE)) is None  # the small ones are withdrawn for it
    assert ends.send(frame(6, 3 * SIZE)) == frame(6, 3 * SIZE)
    assert len(ends.into._maps) == 1


def test_unused_segments_are_withdrawn() -> None:
    ends = Ends()
    for k in range(2):
        ends.send(frame(k))
    assert ends.out.trim(thresholds.SHARED_MEMORY_IDLE) == []
    (place,) = ends.out.trim(thresholds.SHARED_MEMORY_IDLE + 1.0)
    assert place.verb == WITHDRAW
    assert ends.into.hear(place) == []
    assert not ends.into._maps


@pytest.mark.system
@pytest.mark.parametrize("seed", range(4))
def test_frames_keep_their_bytes_as_long_as_they_are_held(seed: int) -> None:
    rng, ends = random.Random(seed), Ends()
    held: list[tuple[memoryview, bytes]] = []
    shared = 0
    for k in range(60):
        data = frame(k, rng.randrange(SIZE // 4, 2 * SIZE))
        got = ends.send(data)
        if got is not None:
            shared += 1
            held.append((got, data))
        del got
        while held and rng.random() < 0.5:
            held.pop(rng.randrange(len(held)))
        if rng.random() < 0.5:
            ends.release()
        assert all(a == b for a, b in held)
    assert shared > 10


# *** hostile offers ***


def _damage(place: Place, **changes: Any) -> Place:
    for name, value in changes.items():
        setattr(place, name, value)
    return place


@pytest.mark.parametrize(
    "change",
    [
        lambda p: _damage(p, nonce=bytes(16)),
        lambda p: _damage(p, pid=1 << 40),
        lambda p: _damage(p, pid=(1 << 64) - 1),
        lambda p: _damage(p, fd=1 << 30),
        lambda p: _damage(p, size=p.size - 1),
        lambda p: _damage(p, size=p.size + 4096),
        lambda p: _damage(p, size=0),
        lambda p: _damage(p, size=1 << 60),
    ],
)
def test_an_offer_that_is_not_as_it_says_is_refused(change: Callable[[Place], Place]) -> None:
    out, place = offered()
    into = Incoming(LIMIT)
    (answer,) = into.hear(change(place))
    assert answer.verb == REFUSE
    assert not into._maps
    out.hear(answer)
    assert out.place([frame(1)], SIZE, 0.0) == []
    assert not out._segments


def test_files_that_are_not_sealed_and_pipes_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(SIZE + 16))
    ends = [os.open(file, os.O_RDWR), *os.pipe()]
    try:
        for fd in ends:
            (answer,) = Incoming(LIMIT).hear(Place(OFFER, 1, SIZE, fd, os.getpid()))
            assert answer.verb == REFUSE
    finally:
        for fd in ends:
            os.close(fd)


def test_an_offer_beyond_the_limit_or_for_a_number_in_use_is_refused() -> None:
    _, place = offered()
    into = Incoming(LIMIT)
    assert [a.verb for a in into.hear(place)] == [ACCEPT]
    assert [a.verb for a in into.hear(place)] == [REFUSE]
    assert [a.verb for a in Incoming(SIZE // 2).hear(place)] == [REFUSE]


def test_a_use_of_what_is_not_there_is_data_loss() -> None:
    _, place = offered()
    into = Incoming(LIMIT)
    into.hear(place)
    for use in (Place(USE, 7, 100), Place(USE, place.number, SIZE + 1), Place(USE, place.number, 0)):
        with pytest.raises(DataLossError, match="no new frame"):
            into.frame(use)
    held = into.frame(Place(USE, place.number, 100))
    with pytest.raises(DataLossError, match="no new frame"):
        into.frame(Place(USE, place.number, 100))
    assert len(held) == 100


def test_only_tokens_and_messages_are_decoded_from_memory() -> None:
    decoder = Decoder()
    (data,) = encode_token(1, 2, (), 3, np.float32(4))
    assert decoder.content(memoryview(data)).value == 4  # type: ignore[union-attr]
    for wrong in (b"", data[:-1], bytes(len(data)), bytes(data) + b"x"):
        with pytest.raises(DataLossError):
            decoder.content(memoryview(wrong))


# *** connections ***


@pytest.mark.system
@pytest.mark.timeout(60)
@pytest.mark.parametrize("others", [0, thresholds.SHARED_MEMORY])
@pytest.mark.parametrize("memory", [0, thresholds.SHARED_MEMORY])
def test_large_tensors_of_a_cluster_pass_by_memory(memory: int, others: int) -> None:
    spec = {"a": [f"127.0.0.1:{p}" for p in free_ports(2)]}
    ones = np.ones(SIZE, np.float32)
    mine, theirs = NetworkOptions(shared_memory=memory), NetworkOptions(shared_memory=others)
    with Server(spec, "a", 0, options=mine) as first, Server(spec, "a", 1, options=theirs) as second:
        with hr.Graph() as g:
            with hr.device("/job:a/task:0"):
                v = hr.Variable(np.arange(SIZE, dtype=np.float32), name="v")
                grown = v.assign_add(ones)
            with hr.device("/job:a/task:1"):
                there = hr.identity(grown) * 2.0
        with hr.Session(second.target, graph=g) as session:
            session.run(v.initializer)
            held = [session.run(there) for _ in range(8)]
            for k, x in enumerate(held):
                np.testing.assert_array_equal(x, 2 * (np.arange(SIZE, dtype=np.float32) + k + 1))
            (link,) = [outlet._link for outlet in first._worker._peers._links.values() if outlet._link is not None]
            sent = link.statistics()
            if memory and others:
                assert sent.bytes_shared >= 4 * 4 * SIZE
                assert sent.bytes_out < 5 * 4 * SIZE
            else:
                assert sent.bytes_shared == 0
            second.close()
            until(lambda: link.is_closed)
