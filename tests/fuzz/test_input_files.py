"""Damaged input files: clear errors, and no memory for missing data.

Nothing is run, and no other path is touched.
"""

from __future__ import annotations

import gzip
import random
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from headrace.files import records, sources

ROUNDS = 150
MOST_BYTES = 64 << 20
ALLOWED = (DataLossError, InvalidArgumentError, NotFoundError, ResourceExhaustedError)


def damaged(rng: random.Random, whole: bytes) -> bytes:
    """The bytes with a few faults.

    Bytes are changed, left out, doubled, cut off, or have other numbers in them.
    """
    out = bytearray(whole)
    for _ in range(rng.randrange(1, 5)):
        at = rng.randrange(max(1, len(out)))
        match rng.randrange(6):
            case 0:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del out[at : at + rng.randrange(1, 20)]
            case 2:
                out[at:at] = out[at : at + rng.randrange(1, 40)]
            case 3:
                del out[at:]
            case 4:
                out[at : at + 8] = rng.choice([0, 1, 2**31 - 1, 2**63 - 1, 2**64 - 1]).to_bytes(8, "little")
            case _:
                out[at : at + 4] = rng.choice([b"\xff" * 4, b"9999", b"\x7f\xff\xff\xff", b"../."])
    return bytes(out)


def pieces(source: Callable[[], sources.Source]) -> Iterator[bytes]:
    opened = source()
    try:
        while (piece := opened.next()) is not None:
            yield piece[1]
    finally:
        opened.close()


def check(tmp_path: Path, whole: bytes, source: Callable[[str], sources.Source], most: int = ROUNDS) -> int:
    """Reads damaged forms of a file; returns how many were refused."""
    rng = random.Random(1)
    folder = tmp_path / "only"
    folder.mkdir(exist_ok=True)
    path = folder / "file"
    refused = 0
    tracemalloc.start()
    try:
        for _ in range(most):
            path.write_bytes(damaged(rng, whole))
            try:
                for _, _piece in zip(range(10_000), pieces(lambda: source(str(path))), strict=False):
                    pass
            except ALLOWED:
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert sorted(tmp_path.iterdir()) == [folder]
    assert list(folder.iterdir()) == [path]
    return refused


RECORDS = b"".join(records.framed(random.Random(i).randbytes(i * 7)) for i in range(12))


def test_records(tmp_path: Path) -> None:
    assert check(tmp_path, RECORDS, sources.Records) > ROUNDS * 0.9


def test_compressed_records(tmp_path: Path) -> None:
    packed = gzip.compress(RECORDS)
    assert check(tmp_path, packed, lambda name: sources.Records(name, "GZIP")) > ROUNDS * 0.8


def test_pieces_of_one_length(tmp_path: Path) -> None:
    packed = gzip.compress(bytes(1000))
    assert check(tmp_path, packed, lambda name: sources.Fixed(name, 10, 5, 5, encoding="GZIP")) > ROUNDS * 0.5


def test_lines(tmp_path: Path) -> None:
    assert check(tmp_path, b"one\ntwo\r\n\nthree" * 20, sources.Lines) == 0  # any bytes are lines


@pytest.mark.parametrize("packs", [False, True])
def test_archives_of_arrays(tmp_path: Path, packs: bool) -> None:
    made = tmp_path / "made.npz"
    (np.savez_compressed if packs else np.savez)(made, x=np.arange(60, dtype=np.float32).reshape(20, 3), y=np.ones(2))
    whole = made.read_bytes()
    made.unlink()
    assert check(tmp_path, whole, lambda name: sources.Rows(name, dtypes.float32, (3,), "x")) > ROUNDS * 0.5


def test_arrays(tmp_path: Path) -> None:
    made = tmp_path / "made.npy"
    np.save(made, np.arange(60, dtype=np.float32).reshape(20, 3))
    whole = made.read_bytes()
    made.unlink()
    assert check(tmp_path, whole[:140], lambda name: sources.Rows(name, dtypes.float32, (3,))) > ROUNDS * 0.8


def test_comma_separated_values() -> None:
    rng = random.Random(3)
    whole = b'1,2.5,"a ""b"", c",x\n'[:-1]
    defaults: list[Any] = [[0], [0.0], [""], [""]]
    outcomes = set()
    for _ in range(ROUNDS * 2):
        line = damaged(rng, whole)
        try:
            got = hr.io.decode_csv(np.array(line, object), defaults)
        except InvalidArgumentError:
            outcomes.add("refused")
        else:
            assert [t.shape for t in got] == [()] * 4
            outcomes.add("read")
    assert outcomes == {"refused", "read"}


def test_patterns_touch_nothing(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a").write_bytes(b"")
    rng = random.Random(4)
    for _ in range(ROUNDS):
        pattern = "".join(rng.choice("a*?[]!-{}$`~\\.") for _ in range(rng.randrange(1, 12)))
        found = hr.io.matching_files(f"{tmp_path}/here/{pattern}").numpy()
        assert all(x.startswith(f"{tmp_path}/here/".encode()) for x in found), pattern
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "here"]
