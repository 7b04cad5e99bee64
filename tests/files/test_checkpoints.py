"""Checkpoints of both formats.

Tensors that are written are read unchanged, and a checkpoint appears in one step, however the writer ends.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headrace import dtypes
from headrace.dtypes import DType
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
)
from headrace.files import checkpoints
from headrace.files.manifest import ManifestEntry
from headrace.files.slices import TensorSlice

ROOT = Path(__file__).parents[2]
KINDS = sorted(dtypes.VALUE | dtypes.QUANTIZED, key=lambda d: d.number)
each_format = pytest.mark.parametrize("format", checkpoints.FORMATS)


def values(dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng([dtype.number, *shape])
    if dtype is dtypes.string:
        out = np.empty(shape, object)
        out.reshape(-1)[:] = [rng.bytes(int(rng.integers(0, 400))) for _ in range(out.size)]
        return out
    if dtype is dtypes.bool_:
        return np.asarray(rng.integers(0, 2, shape) > 0)
    if dtype in dtypes.INTEGER or dtype in dtypes.QUANTIZED:
        limits = np.iinfo(dtype.numpy)
        return np.asarray(rng.integers(limits.min, limits.max, shape, dtype.numpy, endpoint=True))
    out = np.asarray(rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype.is_complex else 0))
    out = out.astype(dtype.numpy)
    out[out.real > 1] = np.nan
    return out


@each_format
@pytest.mark.parametrize("dtype", KINDS, ids=str)
def test_every_dtype_comes_back_bit_for_bit(tmp_path: Path, format: str, dtype: DType) -> None:
    prefix = str(tmp_path / "model")
    shapes = ((), (0,), (5,), (2, 3), (3, 0, 2), (1, 2, 3, 4))
    pieces = [ManifestEntry.of(f"t{len(s)}{0 in s}", values(dtype, s), dtype) for s in shapes]
    turned = values(dtype, (4, 3)).T[::-1]  # that does not lie in one piece
    pieces.append(ManifestEntry.of("turned", turned, dtype))
    checkpoints.write(prefix, pieces, format)
    reader = checkpoints.open(prefix)
    assert reader.format == format
    assert list(reader.entries) == sorted(reader.entries) if format == "tensorflow" else [p.name for p in pieces]
    for piece in pieces:
        got, entry = reader.read(piece.name), reader.entries[piece.name]
        assert (entry.dtype, entry.shape, entry.parts) == (dtype, piece.shape, ())
        assert (got.dtype, got.shape) == (piece.value.dtype, piece.shape)
        if dtype is dtypes.string:
            assert got.tolist() == piece.value.tolist()
        else:
            assert got.tobytes() == piece.value.tobytes()
    got = reader.read("turned", TensorSlice.parse("1,2:-"))
    assert (
        got.tobytes() == turned[1:3].tobytes() if dtype is not dtypes.string else got.tolist() == turned[1:3].tolist()
    )
    checkpoints.check(prefix)


@each_format
def test_names_that_nobody_would_choose(tmp_path: Path, format: str) -> None:
    names = [
        "a",
        "a/b",
        "a#lengths",
        "a#2",
        "__metadata__",
        "ä",
        "\udcff",
        "\\xff",
        "x" * 5000,
        "a\0b",
        " ",
        "//",
        "../..",
    ]
    prefix = str(tmp_path / "model")
    text = np.array([b"q"], object)
    checkpoints.write(
        prefix, [ManifestEntry.of(n, text if i % 2 else np.int32(i)) for i, n in enumerate(names)], format
    )
    reader = checkpoints.open(prefix)
    assert set(reader.entries) == set(names)
    for i, name in enumerate(names):
        assert reader.read(name).tolist() == ([b"q"] if i % 2 else i)


@each_format
def test_what_cannot_be_saved_is_refused_by_name(tmp_path: Path, format: str) -> None:
    prefix = str(tmp_path / "model")
    part = np.zeros((2, 3))
    for make, match in {
        lambda: [
            ManifestEntry.of("q", np.empty((), object), dtypes.resource)
        ]: "'q' is a resource, which no checkpoint",
        lambda: [ManifestEntry.of("q", np.empty((), object), dtypes.variant)]: "'q' is a variant, which no checkpoint",
        lambda: [
            ManifestEntry.of("q", np.array(["a", 3], object), dtypes.string)
        ]: r"'q' should have strings \(bytes\)",
        lambda: [
            ManifestEntry.of("q", np.zeros(3), dtypes.float32)
        ]: "should have the dtype float32, and its array is float64",
        lambda: [ManifestEntry.of("q", 1.0), ManifestEntry.of("q", 1.0)]: "Adding duplicate key: q",
        lambda: [ManifestEntry.of("", 1.0)]: "cannot be named ''",
        lambda: [ManifestEntry.of("q", part, None, "4 3 0,2:-")] * 2: "Adding duplicate key: q",
        lambda: [
            ManifestEntry.of("q", part, None, "4 3 0,2:-"),
            ManifestEntry.of("q", part, None, "5 3 2,2:-"),
        ]: "Two tensors of",
        lambda: [
            ManifestEntry.of("q", part, None, "4 3 0,2:-"),
            ManifestEntry.of("q", 1.0),
        ]: "Two tensors of different shapes",
        lambda: [ManifestEntry.of("q", part, None, "4 3 0,3:-")]: "does not match the shape of the tensor to save",
    }.items():
        with pytest.raises(InvalidArgumentError, match=match):
            checkpoints.write(prefix, make(), format)
    assert os.listdir(tmp_path) == []
    with pytest.raises(InvalidArgumentError, match="one of native, tensorflow, tensorflow-v1, got 'v1'"):
        checkpoints.write(prefix, {}, "v1")


def test_prefixes_that_name_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for prefix in ("", "a/", "..", ".", "a/..", "a\0b", str(tmp_path) + "/"):
        for do in (checkpoints.open, checkpoints.remove, checkpoints.files_of, lambda p: checkpoints.write(p, {})):
            with pytest.raises(InvalidArgumentError, match="prefix"):
                do(prefix)
    with pytest.raises(NotFoundError, match=r"no/deep; No such file"):
        checkpoints.write("no/deep/model", {})
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FailedPreconditionError):
        checkpoints.write("file/model", {})
    with pytest.raises(InvalidArgumentError, match="File name too long"):
        checkpoints.write("x" * 300, {})
    with pytest.raises(NotFoundError, match=r"Failed to find any matching files for model: .*model.index.json"):
        checkpoints.open("model")
    assert os.listdir(tmp_path) == ["file"]
    checkpoints.write("new/model", {"a": np.zeros(1)})  # one folder is made
    checkpoints.write("here", {"a": np.zeros(1)})
    assert checkpoints.open("new/../here").read("a").tolist() == [0]


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    others = [
        "model2.index",
        "model.index.jsonx",
        "model.data-0-of-1",
        "xmodel.safetensors",
        "model.meta",
        "model.indexx",
    ]
    others += ["m*.index", "model.data-00000-of-00001.bak", "model.data-00000-of-00001.safetensors.x", "Model.index"]
    for name in others:
        (tmp_path / name).write_bytes(b"other")
    for prefix in ("model", "m*", "m.d"):
        for format in checkpoints.FORMATS:
            checkpoints.write(str(tmp_path / prefix), {"a": np.zeros(3)}, format)
            checkpoints.write(str(tmp_path / prefix), {"a": np.ones(3)}, format)
            assert len(checkpoints.files_of(str(tmp_path / prefix))) == 2
        checkpoints.remove(str(tmp_path / prefix))
    assert set(os.listdir(tmp_path)) == set(others) - {"m*.index"}


def test_one_format_takes_the_place_of_the_other(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    for i in range(4):
        format = checkpoints.FORMATS[i % 2]
        checkpoints.write(prefix, {"a": np.int32(i)}, format)
        reader = checkpoints.open(prefix)
        assert (reader.format, int(reader.read("a"))) == (format, i)
        assert len(os.listdir(tmp_path)) == 2
    assert checkpoints.exists(prefix)
    checkpoints.remove(prefix)
    checkpoints.remove(prefix)
    assert not checkpoints.exists(prefix)
    assert os.listdir(tmp_path) == []


@each_format
def test_merging(tmp_path: Path, format: str) -> None:
    prefix, parts = str(tmp_path / "model"), [str(tmp_path / f"parts/p{i}") for i in range(3)]
    whole = np.arange(12.0).reshape(6, 2)
    given = {
        parts[0]: [ManifestEntry.of("a", np.int32([1])), ManifestEntry.of("w", whole[:2], None, "6 2 0,2:-")],
        parts[1]: [
            ManifestEntry.of("w", whole[2:3], None, "6 2 2,1:-"),
            ManifestEntry.of("t", np.array([b"x"], object), dtypes.string),
        ],
        parts[2]: [ManifestEntry.of("w", whole[3:], None, "6 2 3,3:-"), ManifestEntry.of("c", np.complex64([1j]))],
    }
    for _ in range(2):  # the second time over the first
        for part, pieces in given.items():
            checkpoints.write(part, pieces, format)
        checkpoints.merge(parts, prefix)
        assert len(os.listdir(tmp_path)) == 4
        reader = checkpoints.open(prefix)
        assert set(reader.entries) == {"a", "w", "t", "c"}
        assert reader.read("w").tolist() == whole.tolist()
        assert reader.read("t").tolist() == [b"x"]
        assert reader.read("c").tolist() == [1j]
        checkpoints.check(prefix)
    # merged ones can be merged again, and a folder in which there is more stays
    checkpoints.write(parts[0], {"b": np.int32([2])}, format)
    (tmp_path / "parts/more").write_bytes(b"")
    with pytest.raises(NotFoundError, match="p1"):
        checkpoints.merge([prefix, *parts[:2]], prefix)
    checkpoints.merge([prefix, *parts[:2]], prefix, allow_missing_files=True)
    assert os.listdir(tmp_path / "parts") == ["more"]
    reader = checkpoints.open(prefix)
    assert set(reader.entries) == {"a", "b", "w", "t", "c"}
    checkpoints.check(prefix)


@each_format
def test_what_cannot_be_merged_stays_as_it_was(tmp_path: Path, format: str) -> None:
    a, b, prefix = (str(tmp_path / n) for n in ("a", "b", "model"))
    part = np.zeros((1, 2))
    for left, right, match in (
        (ManifestEntry.of("x", 1.0), ManifestEntry.of("x", 2.0), "Duplicate tensor keyed by b?'x'"),
        (
            ManifestEntry.of("x", part, None, "2 2 0,1:-"),
            ManifestEntry.of("x", np.zeros((2, 2))),
            "Duplicate tensor keyed",
        ),
        (
            ManifestEntry.of("x", part, None, "2 2 0,1:-"),
            ManifestEntry.of("x", part, None, "3 2 1,1:-"),
            "differ in dtype or shape",
        ),
        (
            ManifestEntry.of("x", part, None, "2 2 0,1:-"),
            ManifestEntry.of("x", part, None, "2 2 0,1:-"),
            "Duplicate|a part of tensor 'x'",
        ),
    ):
        checkpoints.write(a, [left], format)
        checkpoints.write(b, [right], format)
        with pytest.raises(InvalidArgumentError, match=match):
            checkpoints.merge([a, b], prefix)
        checkpoints.open(a).read("x", left.part)
        checkpoints.open(b).read("x", right.part)
    other = next(f for f in checkpoints.FORMATS if f != format)
    checkpoints.write(b, {"y": np.zeros(1)}, other)
    with pytest.raises(InvalidArgumentError, match="save all parts in one format"):
        checkpoints.merge([a, b], prefix)
    with pytest.raises(NotFoundError, match="none of the checkpoints to merge is there: no prefix"):
        checkpoints.merge([], prefix)
    with pytest.raises(NotFoundError, match=r"none of the checkpoints to merge is there: .*model"):
        checkpoints.merge([prefix], prefix, allow_missing_files=True)


@each_format
def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.zeros(3)}, format)
    before = {n: (tmp_path / n).read_bytes() for n in os.listdir(tmp_path)}
    fsync = os.fsync
    for k in range(4):
        calls = 0

        def failing(fd: int, k: int = k) -> None:
            nonlocal calls
            calls += 1
            if calls > k:
                raise OSError(28, "No space left on device")
            fsync(fd)

        monkeypatch.setattr(os, "fsync", failing)
        with pytest.raises(ResourceExhaustedError, match="No space left"):
            checkpoints.write(prefix, {"a": np.ones(3)}, format)
        monkeypatch.setattr(os, "fsync", fsync)
        got = checkpoints.open(prefix).read("a").tolist()
        assert got == ([0, 0, 0] if k < 3 else [1, 1, 1])  # only the name of the new one was not made to last
        if k == 0:
            assert {n: (tmp_path / n).read_bytes() for n in os.listdir(tmp_path)} == before


def test_check_finds_one_bit(tmp_path: Path) -> None:
    for format in checkpoints.FORMATS:
        prefix = str(tmp_path / format)
        checkpoints.write(prefix, {"a": np.zeros(1000), "b": np.zeros(1000)}, format)
        checkpoints.check(prefix)
        data = Path(checkpoints.files_of(prefix)[1])
        content = bytearray(data.read_bytes())
        content[-1] ^= 1
        data.write_bytes(content)
        with pytest.raises(DataLossError, match="Checksum does not match"):
            checkpoints.check(prefix)
        checkpoints.open(prefix).read("a")


def killing(tmp_path: Path, format: str, way: str, seed: int = 0, rounds: int = 0) -> int:
    """See `killing.py`; gives how many writers were killed."""
    args = [sys.executable, "-m", "tests.files.killing", str(tmp_path), format, way, str(seed), str(rounds)]
    done = subprocess.run(args, cwd=ROOT, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch("[0-9]+\n", done.stdout), done.stdout
    return int(done.stdout)


@pytest.mark.system
@pytest.mark.parametrize(("format", "least"), [("native", 50), ("tensorflow", 50), ("tensorflow-v1", 8)])
def test_a_writer_killed_at_any_call_leaves_a_whole_checkpoint(tmp_path: Path, format: str, least: int) -> None:
    assert killing(tmp_path, format, "calls") > least


@pytest.mark.system
@each_format
def test_a_writer_killed_at_any_time_leaves_a_whole_checkpoint(tmp_path: Path, format: str) -> None:
    assert killing(tmp_path, format, "times", seed=1, rounds=10) == 10


@pytest.mark.nightly
@pytest.mark.timeout(200)
@each_format
def test_a_writer_killed_at_many_times(tmp_path: Path, format: str) -> None:
    assert killing(tmp_path, format, "times", seed=2, rounds=100) == 100
