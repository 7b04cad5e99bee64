"""Record files: records are read as written, and every damage is detected."""

from __future__ import annotations

import gzip
import random
import struct
import tracemalloc
import zlib
from pathlib import Path

import pytest

from headrace import errors
from headrace.files import local, records
from headrace.files.checksum import masked_crc32c

SOME = [b"", b"one", bytes(range(256)) * 300, b"\0" * 5]


@pytest.mark.parametrize("kind", records.KINDS)
def test_what_is_written_is_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "some"
    with records.Writer(path, compression=kind) as out:
        for r in SOME:
            out.write(r)
    assert list(records.read(path, kind)) == SOME


def test_a_frame_is_lengths_and_checksums(tmp_path: Path) -> None:
    data = b"some data"
    length = struct.pack("<Q", len(data))
    want = length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))
    assert records.framed(data) == want


def test_records_are_appended(tmp_path: Path) -> None:
    path = tmp_path / "some"
    for part in (SOME[:2], SOME[2:]):
        with records.Writer(path, append=True) as out:
            for r in part:
                out.write(r)
    assert list(records.read(path)) == SOME
    with pytest.raises(errors.InvalidArgumentError, match="cannot be appended"):
        records.Writer(path, append=True, compression="GZIP")


@pytest.mark.parametrize("kind", records.KINDS)
def test_what_is_flushed_can_be_read_by_others(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "some"
    out = records.Writer(path, compression=kind)
    out.write(b"one")
    out.flush()
    assert next(records.read(path, kind)) == b"one"
    out.close()
    out.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        out.write(b"two")


def test_only_bytes_are_written(tmp_path: Path) -> None:
    with records.Writer(tmp_path / "x") as out, pytest.raises(TypeError, match="bytes"):
        out.write("text")  # type: ignore[arg-type]


@pytest.mark.matrix
def test_every_flipped_bit_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "some"
    whole = records.framed(b"first") + records.framed(b"second")
    for i in range(len(whole) * 8):
        damaged = bytearray(whole)
        damaged[i // 8] ^= 1 << i % 8
        path.write_bytes(damaged)
        with pytest.raises(errors.DataLossError, match=r"(corrupted|truncated) record at (0|21)"):
            list(records.read(path))


def test_every_torn_file_gives_what_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "some"
    first, second = records.framed(b"first"), records.framed(b"second")
    for n in range(1, len(first + second)):
        path.write_bytes((first + second)[:n])
        reader = records.read(path)
        if n >= len(first):
            assert next(reader) == b"first"
        if n == len(first):
            assert list(reader) == []
        else:
            with pytest.raises(errors.DataLossError, match="truncated record"):
                next(reader)


def test_after_damage_it_says_so_again(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(records.framed(b"first") + b"x" * 30)
    file = records.File(path)
    assert file.next() == b"first"
    for _ in range(2):
        with pytest.raises(errors.DataLossError, match="corrupted record at 21"):
            file.next()
    assert file.offset == 21
    file.close()


@pytest.mark.parametrize("kind", ["GZIP", "ZLIB"])
def test_torn_and_damaged_compressed_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "some"
    plain = b"".join(records.framed(random.Random(i).randbytes(500)) for i in range(20))
    packed = gzip.compress(plain) if kind == "GZIP" else zlib.compress(plain)
    rng = random.Random(7)
    for _ in range(60):
        damaged = bytearray(packed)
        if rng.random() < 0.5:
            del damaged[rng.randrange(1, len(damaged)) :]
        else:
            damaged[rng.randrange(20, len(damaged) - 8)] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        with pytest.raises(errors.DataLossError):
            list(records.read(path, kind))


def test_compressed_streams_may_follow_one_another(tmp_path: Path) -> None:
    path = tmp_path / "some"
    path.write_bytes(b"".join(gzip.compress(records.framed(r)) for r in SOME))
    assert list(records.read(path, "GZIP")) == SOME
    path.write_bytes(b"")
    assert list(records.read(path, "GZIP")) == []


def test_a_length_takes_no_memory_before_it_is_there(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 29)
    head = length + struct.pack("<I", masked_crc32c(length))
    for kind, content in (("", head + b"x" * 100), ("GZIP", gzip.compress(head + b"x" * 100))):
        path = tmp_path / "lies"
        path.write_bytes(content)
        tracemalloc.start()
        with pytest.raises(errors.DataLossError, match="truncated record at 0"):
            list(records.read(path, kind))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()


def test_what_expands_is_read_up_to_the_limit(tmp_path: Path) -> None:
    data = b"\0" * (4 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(records.framed(data)))
    with pytest.raises(errors.DataLossError, match="may have 1000"):
        list(records.read(path, "GZIP", most=1000))
    assert list(records.read(path, "GZIP")) == [data]


def test_what_is_no_file_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="missing"):
        list(records.read(tmp_path / "missing"))
    with pytest.raises(errors.FailedPreconditionError, match=r"directory|no regular file"):
        list(records.read(tmp_path))
    with pytest.raises(errors.InvalidArgumentError, match="zero byte"):
        list(records.read("a\0b"))
    with pytest.raises(errors.InvalidArgumentError, match="'GZIP', 'ZLIB'"):
        list(records.read(tmp_path, "LZ4"))


def test_whole_files_and_patterns(tmp_path: Path) -> None:
    local.written(tmp_path / "a" / "b" / "one.txt", b"1")
    local.written(tmp_path / "a" / ".two.txt", b"22")
    assert local.whole(str(tmp_path / "a" / "b" / "one.txt").encode()) == b"1"
    assert local.matching(tmp_path / "*" / "*.txt") == [str(tmp_path / "a" / ".two.txt")]
    with pytest.raises(errors.ResourceExhaustedError, match="2 bytes; at most 1"):
        local.whole(tmp_path / "a" / ".two.txt", most=1)
