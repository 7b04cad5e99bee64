"""Frames of a connection."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest

from headrace import dtypes
from headrace.diagnosis import OpRef
from headrace.dist import messages
from headrace.dist.codec import (
    MOST_LEVELS,
    SHARED,
    SMALL,
    UNKNOWN_PEER,
    Control,
    Decoder,
    Frame,
    Ping,
    Place,
    Pong,
    Token,
    encode_control,
    encode_ping,
    encode_place,
    encode_pong,
    encode_token,
)
from headrace.dist.values import ALIGNMENT, LARGE, Buffer
from headrace.errors import DataLossError, InvalidArgumentError, ResourceExhaustedError
from headrace.execute.records import DeadCause, Path
from headrace.resources.manager import Handle
from headrace.resources.optional import Optional
from headrace.resources.tensor_list import TensorList
from headrace.resources.tensor_map import TensorMap
from tests.dist.hostile_bytes import damaged, feed, joined, same, survives, with_numbers

LOOP: Path = ((), 0, "while/frame")
NESTED: Path = (LOOP, (1 << 63) - 1, "while/inner/främe")
CAUSE = DeadCause(OpRef("cond/Switch", "Switch", "train.py:12"), "while/frame#3", "cond/pred", 1, 2)
LIST = TensorList(dtypes.float32).push(np.float32([1, 2])).resized(3)
VARIANTS = (
    TensorMap().insert(np.int32(1), LIST.zeros_like()),
    Optional((b"x", np.array([b"a", b"bc"], object)), (dtypes.string, dtypes.string)),
    Handle("/device:CPU:0", "localhost", "Variable", "w", False, "float32", (2, None)),
    np.broadcast_to(np.int32(1), (LARGE,)),
)


def token(value: Any, cause: DeadCause | None = None, path: Path = LOOP, step: int = 7) -> tuple[list[Buffer], Token]:
    """Returns the buffers of a token, and the frame that they decode to."""
    return encode_token(step, 3, path, 5, value, cause), Token(step, 3, path, 5, None if cause else value, cause)


FRAMES: dict[str, tuple[list[Buffer], Frame]] = {
    "scalar": token(np.int32(-1)),
    "root": token(np.float64(1.5), path=(), step=(1 << 63) - 1),
    "nested": token(dtypes.bfloat16.numpy.type(2), path=NESTED),
    "array": token(np.arange(6, dtype=np.int16).reshape(2, 3)),
    "booleans": token(np.array([True, False])),
    "nothing": token(None),
    "list": token(LIST),
    "dead": token(None, CAUSE),
    "values of a dead token are not sent": token(np.ones(3), CAUSE),
    "message": (encode_control(messages.Describe(7)), Control(messages.Describe(7))),
    "reply": (
        encode_control(messages.Reply(2, {"a": [1]}, (0, 1, 2, 3)), VARIANTS),
        Control(messages.Reply(2, {"a": [1]}, (0, 1, 2, 3)), VARIANTS),
    ),
    "ping": (encode_ping(1 << 62), Ping(1 << 62)),
    "place": (
        encode_place(Place(0, 7, 1 << 40, 9, 1 << 33, bytes(range(16)))),
        Place(0, 7, 1 << 40, 9, 1 << 33, bytes(range(16))),
    ),
    "pong": (encode_pong(3, (1 << 64) - 1), Pong(3, (1 << 64) - 1)),
}
STREAM = b"".join(joined(buffers) for buffers, _ in FRAMES.values())
EXPECTED = [frame for _, frame in FRAMES.values()]


def frames_of(buffers: list[Buffer]) -> list[Frame]:
    return feed(Decoder(1 << 34), joined(buffers))


# *** round trips ***


@pytest.mark.parametrize(("buffers", "frame"), FRAMES.values(), ids=FRAMES)
def test_a_frame_is_decoded_to_its_content(buffers: list[Buffer], frame: Frame) -> None:
    assert same(frames_of(buffers), [frame])
    assert all(isinstance(b, (bytes, bytearray, memoryview)) and len(b) for b in buffers)


def test_a_small_token_is_one_buffer() -> None:
    assert len(encode_token(1, 2, LOOP, 3, np.float32(1))) == 1
    assert len(encode_token(1, 2, LOOP, 3, np.ones(8))) == 1


@pytest.mark.parametrize("size", [1, 7, 63, 1000])
def test_pieces_of_equal_size_give_equal_frames(size: int) -> None:
    assert same(feed(Decoder(), STREAM, [size] * len(STREAM)), EXPECTED)


def test_a_cut_at_any_byte_gives_equal_frames() -> None:
    decoder = Decoder()
    for buffers, frame in FRAMES.values():
        data = joined(buffers)
        for n in range(1, len(data)):
            assert same(feed(decoder, data, [n]), [frame])


@pytest.mark.parametrize("seed", range(5))
def test_random_pieces_give_equal_frames(seed: int) -> None:
    rng = random.Random(seed)
    large = np.arange(SMALL, dtype=np.float64)
    middle = np.arange(SMALL // 4, dtype=np.int8)
    made = [token(large), token(middle), *FRAMES.values(), token(large[1:]), token(np.int8(1))]
    rng.shuffle(made)
    data = b"".join(joined(buffers) for buffers, _ in made)
    sizes = [rng.choice([1, 40, 5000, SMALL, 3 * SMALL]) for _ in range(1000)]
    assert same(feed(Decoder(1 << 30), data, sizes), [frame for _, frame in made])


def test_many_frames_pass_the_shared_buffer() -> None:
    decoder = Decoder()
    value = np.arange(400)
    data = joined(encode_token(1, 2, LOOP, 3, value))
    n = 4 * SHARED // len(data)
    frames = feed(decoder, data * n, [SHARED // 3] * 100)
    assert len(frames) == n
    assert all(isinstance(f, Token) and np.array_equal(f.value, value) for f in frames)


def test_paths_beyond_the_memo_are_encoded_too() -> None:
    decoder = Decoder()
    for i in range(5000):
        path: Path = (((), i, "outer"), 2, "inner")
        (frame,) = feed(decoder, joined(encode_token(1, 2, path, 3, None)))
        assert isinstance(frame, Token)
        assert frame.path == path


def test_a_path_has_a_greatest_depth() -> None:
    deep: Path = ()
    for i in range(MOST_LEVELS):
        deep = (deep, i, "f")
    (frame,) = frames_of(encode_token(1, 2, deep, 3, None))
    assert isinstance(frame, Token)
    assert frame.path == deep
    assert "f#5" in repr(frame)
    with pytest.raises(InvalidArgumentError, match="'f' cannot be sent"):
        encode_token(1, 2, (deep, 0, "f"), 3, None)
    with pytest.raises(InvalidArgumentError, match="a name of 65536 bytes"):
        encode_token(1, 2, ((), 0, "x" * (1 << 16)), 3, None)


# *** buffers ***


@pytest.mark.parametrize("first", [1, 15, 16, 100, SMALL, SHARED])
def test_a_large_tensor_is_sent_and_received_without_a_copy(first: int) -> None:
    value = np.arange(SHARED, dtype=np.float64)
    buffers, expected = token(value)
    assert len(buffers) == 2
    assert np.shares_memory(np.frombuffer(buffers[1], np.uint8), value)
    data = joined(buffers)
    decoder = Decoder(1 << 30)
    assert feed(decoder, data[:first]) == []
    if first < 16:  # the length is not known yet
        assert feed(decoder, data[first:99]) == []
        first = 99
    memory = decoder.buffer()
    assert len(memory) == len(data) - first
    (frame,) = feed(decoder, data[first:])
    assert same(frame, expected)
    assert isinstance(frame, Token)
    assert np.shares_memory(frame.value, np.frombuffer(memory, np.uint8))


def test_the_memory_of_a_large_frame_is_that_of_its_arrays() -> None:
    value = np.arange(SHARED, dtype=np.float64)
    data = joined(encode_control(messages.Reply(1), [value, np.int8(1), value + 1]))
    decoder = Decoder(1 << 30)
    decoder.buffer()[:99] = data[:99]
    assert list(decoder.received(99)) == []
    memory = decoder.buffer()
    assert len(memory) == len(data) - 99
    memory[:] = data[99:]
    (frame,) = decoder.received(len(memory))
    assert isinstance(frame, Control)
    for got, sent in zip(frame.values[::2], (value, value + 1), strict=True):
        assert np.array_equal(got, sent)
        assert np.shares_memory(got, np.frombuffer(memory, np.uint8))
        assert got.ctypes.data % ALIGNMENT == 0
        assert not got.flags.writeable
    assert len(decoder.buffer()) == SHARED


def test_a_small_array_does_not_share_the_reused_buffer() -> None:
    decoder = Decoder()
    (first,) = feed(decoder, joined(encode_token(1, 2, LOOP, 3, np.arange(3))))
    memory = np.frombuffer(decoder.buffer(), np.uint8)
    (second,) = feed(decoder, joined(encode_token(1, 2, LOOP, 3, np.zeros(3, int))))
    assert isinstance(first, Token)
    assert isinstance(second, Token)
    assert not np.shares_memory(first.value, memory)
    assert first.value.tolist() == [0, 1, 2]


# *** limits ***


def test_a_frame_above_the_limit_is_refused_before_it_arrives() -> None:
    data = joined(encode_token(1, 2, LOOP, 3, np.zeros(UNKNOWN_PEER, np.int8)))
    with pytest.raises(DataLossError, match=f"{len(data)} bytes; at most {UNKNOWN_PEER}"):
        feed(Decoder(), data[:16])
    decoder = Decoder(len(data) - 1)
    with pytest.raises(DataLossError, match=f"at most {len(data) - 1} "):
        feed(decoder, data[:16])
    assert len(feed(Decoder(len(data)), data)) == 1


def test_a_new_limit_applies_to_the_next_frame() -> None:
    large = joined(encode_token(1, 2, LOOP, 3, np.zeros(2 * UNKNOWN_PEER, np.int8)))
    for n in (16, len(large)):
        decoder = Decoder()
        data = joined(encode_ping(1)) + large[:n]
        decoder.buffer()[: len(data)] = data
        frames = decoder.received(len(data))
        assert next(frames) == Ping(1)
        decoder.limit = 1 << 30
        assert len([*frames, *feed(decoder, large[n:])]) == 1


def test_a_frame_without_memory_is_an_error_of_resources() -> None:
    data = joined(encode_ping(1))
    with pytest.raises(ResourceExhaustedError, match="does not fit into memory"):
        feed(Decoder(1 << 63), data[:8] + struct.pack("<Q", 1 << 60) + data[16:])


# *** hostile bytes ***


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"GET / HTTP/1.1\r\n", "no process of a headrace cluster"),
        (b"hr\x09\x00" + bytes(12), "version 9"),
        (b"hr\x01\x09" + bytes(12), "unknown kind 9"),
        (b"hr\x01\x00" + bytes(12), "length of 0 bytes"),
        (b"hr\x01\x03" + struct.pack("<IQ", 0, 16), "frame of 16 bytes is damaged"),
        (b"hr\x01\x04" + struct.pack("<IQQQ", 0, 40, 0, 0) + bytes(8), "frame of 40 bytes is damaged"),
        (b"hr\x01\x00" + struct.pack("<IQ", 1, 16), "message of 1 bytes"),
        (b"hr\x01\x00" + struct.pack("<IQ", 0, 16), "no message"),
        (b"hr\x01\x01" + struct.pack("<IQQQI", 0, 36, 1 << 63, 0, 0), "states a path"),
        (b"hr\x01\x01" + struct.pack("<IQQQI", 0, 36, 0, 0, 1 << 31), "states a path"),
        (b"hr\x01\x01" + struct.pack("<IQQQIB", 0, 38, 0, 0, 0, 0) + b"\0", "1 bytes follow"),
        (b"hr\x01\x02" + struct.pack("<IQQQI", 0, 36, 0, 0, 0), "no cause"),
        (b"hr\x01\x01" + struct.pack("<IQQQIQHs", 0, 47, 0, 0, 11, 0, 1, b"\xff"), "can't decode"),
        (b"hr\x01\x01" + struct.pack("<IQQQIQHs", 0, 47, 0, 0, 11, 0, 2, b"x"), "path of a token is damaged"),
        (b"hr\x01\x01" + struct.pack("<IQQQIQHs", 0, 47, 0, 0, 11, 1 << 63, 1, b"x"), "path of a token is damaged"),
        (b"hr\x01\x01" + struct.pack("<IQQQI", 0, 10046, 0, 0, 10010) + bytes(10010), "path of a token is damaged"),
        (b"hr\x01\x01" + struct.pack("<IQQQI", 0, 40, 0, 0, 4) + bytes(4), "40 bytes is damaged"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_bytes_that_are_no_frame_are_refused(data: bytes, why: str) -> None:
    with pytest.raises(DataLossError, match=why):
        feed(Decoder(), data)


@pytest.mark.parametrize(("buffers", "frame"), FRAMES.values(), ids=FRAMES)
def test_a_damaged_byte_gives_a_frame_or_data_loss(buffers: list[Buffer], frame: Frame) -> None:
    results = [survives(data) for data in damaged(joined(buffers))]
    assert False in results


@pytest.mark.parametrize(("buffers", "frame"), FRAMES.values(), ids=FRAMES)
def test_a_shorter_frame_gives_data_loss_or_fewer_values(buffers: list[Buffer], frame: Frame) -> None:
    data = joined(buffers)
    values = len(frame.values) if isinstance(frame, Control) else 0
    legal = 0
    for n in range(16, len(data)):
        legal += survives(data[:8] + struct.pack("<Q", n) + data[16:n])
    assert legal == values


@pytest.mark.parametrize("number", [1 << 60, (1 << 32) - 1, 1 << 30])
@pytest.mark.parametrize("name", ["array", "list", "dead", "reply"])
def test_a_huge_number_at_any_byte_allocates_little(name: str, number: int) -> None:
    data = joined(FRAMES[name][0])
    tracemalloc.start()
    try:
        for other in with_numbers(data, [number], 16):
            survives(other)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * SHARED


@pytest.mark.parametrize("kind", range(6))
def test_random_bytes_give_a_frame_or_data_loss(kind: int) -> None:
    rng = random.Random(kind)
    for _ in range(300):
        body = bytes(rng.choice((0, 1, 2, 3, 255, rng.randrange(256))) for _ in range(rng.randrange(100)))
        number = rng.choice((0, 1, len(body), rng.randrange(100)))
        head = b"hr\x01" + bytes((kind,)) + struct.pack("<IQ", number, 16 + len(body))
        survives(head + body)
        if kind in (1, 2):
            survives(b"hr\x01" + bytes((kind,)) + struct.pack("<IQQQI", 0, 36 + len(body), 0, 0, 0) + body)
    survives(rng.randbytes(1000))
