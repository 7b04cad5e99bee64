"""Tensors of TensorFlow's checkpoints as memory of their files: `checkpoints.open(prefix, maps=True)`."""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import dtypes, thresholds
from headrace.errors import DataLossError, FailedPreconditionError, NotFoundError, ResourceExhaustedError
from headrace.files import bundle, checkpoints, regular
from headrace.files.manifest import ManifestEntry
from headrace.files.slices import TensorSlice

LARGE = np.arange(thresholds.MAPPED_BYTES, dtype=np.float32).reshape(-1, 4)


def is_mapped(x: Any) -> bool:
    """Whether the memory of an array is that of a file."""
    while x is not None and not isinstance(x, mmap.mmap):
        x = x.obj if isinstance(x, memoryview) else getattr(x, "base", None)
    return x is not None


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A checkpoint with two large tensors and a small one."""
    path = str(tmp_path / "model")
    checkpoints.write(path, {"a": LARGE, "b": -LARGE, "small": np.float32([1, 2])}, "tensorflow")
    return path


def data_of(prefix: str) -> Path:
    return Path(bundle.data_path(prefix, 0, 1))


def test_large_tensors_are_memory_of_the_file(prefix: str) -> None:
    reader = checkpoints.open(prefix, maps=True)
    for name, value in (("a", LARGE), ("b", -LARGE), ("small", np.float32([1, 2]))):
        found = reader.read(name)
        np.testing.assert_array_equal(found, value, strict=True)
        assert is_mapped(found) == (name != "small"), name
        assert found.flags.aligned
    assert not is_mapped(checkpoints.open(prefix).read("a"))


@pytest.mark.parametrize("before", [1, 2, 3, 4, 7])
def test_a_tensor_at_an_odd_position_is_a_copy(tmp_path: Path, before: int) -> None:
    path = str(tmp_path / "model")
    checkpoints.write(path, {"a": np.zeros(before, np.int8), "b": LARGE}, "tensorflow")
    found = checkpoints.open(path, maps=True).read("b")
    np.testing.assert_array_equal(found, LARGE)
    assert is_mapped(found) == (before == 4)
    assert found.flags.aligned


def test_tensors_of_every_dtype_are_equal(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    tensors = []
    for name in ("complex128", "complex64", "float64", "int64", "float32", "bfloat16", "float16", "uint8", "bool"):
        dtype = dtypes.as_dtype(name)
        tensors.append(ManifestEntry.of(name, rng.integers(0, 2, 2**13).astype(dtype.numpy), dtype))
    tensors.append(ManifestEntry.of("words", np.array([b"a" * 10**5], object), dtypes.string))
    whole = np.arange(2**14, dtype=np.float32).reshape(4, -1)
    tensors += [
        ManifestEntry.of("p", whole[:1], None, "4 4096 0,1:-"),
        ManifestEntry.of("p", whole[1:], None, "4 4096 1,3:-"),
    ]
    checkpoints.write(str(tmp_path / "model"), tensors, "tensorflow")
    mapped, copied = (checkpoints.open(str(tmp_path / "model"), maps) for maps in (True, False))
    for name in copied.entries:
        np.testing.assert_array_equal(mapped.read(name), copied.read(name), strict=True)
        assert is_mapped(mapped.read(name)) == (name not in ("words", "p")), name


def test_parts_are_read(prefix: str) -> None:
    reader = checkpoints.open(prefix, maps=True)
    np.testing.assert_array_equal(reader.read("a", TensorSlice.parse("2,3:-")), LARGE[2:5])


def test_a_file_is_mapped_once(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def mapping(*args: Any, **kwargs: Any) -> mmap.mmap:
        made.append(args)
        return mmap.mmap(*args, **kwargs)

    monkeypatch.setattr(regular, "mmap", Module(mapping))
    reader = checkpoints.open(prefix, maps=True)
    assert not made
    assert reader.read("small").tolist() == [1, 2]
    assert not made
    kept = [reader.read(name) for name in ("a", "b", "a")]
    assert len(made) == 1
    assert all(map(is_mapped, kept))


class Module:
    """Module `mmap` with another function."""

    ACCESS_COPY = mmap.ACCESS_COPY

    def __init__(self, f: Any) -> None:
        self.mmap = f


def test_changes_of_arrays_do_not_reach_the_file(prefix: str) -> None:
    before = data_of(prefix).read_bytes()
    found = checkpoints.open(prefix, maps=True).read("a")
    found += 1
    assert data_of(prefix).read_bytes() == before
    np.testing.assert_array_equal(found, LARGE + 1)
    np.testing.assert_array_equal(checkpoints.open(prefix, maps=True).read("a"), LARGE)


def test_arrays_outlive_the_reader_and_the_folder(prefix: str) -> None:
    found = checkpoints.open(prefix, maps=True).read("a")
    shutil.rmtree(os.path.dirname(prefix))
    np.testing.assert_array_equal(found, LARGE)


def test_arrays_keep_their_values_when_the_checkpoint_is_replaced(prefix: str) -> None:
    found = checkpoints.open(prefix, maps=True).read("a")
    for format in ("tensorflow", "tensorflow", "native"):
        checkpoints.write(prefix, {"a": LARGE * 2}, format)
    np.testing.assert_array_equal(found, LARGE)
    checkpoints.write(f"{prefix}-2", {"b": LARGE}, "tensorflow")
    found = checkpoints.open(f"{prefix}-2", maps=True).read("b")
    checkpoints.write(f"{prefix}-3", {"a": LARGE}, "tensorflow")
    checkpoints.merge([f"{prefix}-2", f"{prefix}-3"], prefix)
    np.testing.assert_array_equal(found, LARGE)


def test_a_checkpoint_can_be_written_over_itself(prefix: str) -> None:
    found = checkpoints.open(prefix, maps=True).read("a")
    checkpoints.write(prefix, {"a": found, "b": found}, "tensorflow")
    np.testing.assert_array_equal(checkpoints.open(prefix, maps=True).read("b"), LARGE)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_mapping_ends_with_its_arrays(prefix: str) -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = descriptors()
    reader = checkpoints.open(prefix, maps=True)
    found = [reader.read("a"), reader.read("b")]
    assert descriptors() == before + 1
    del reader
    assert descriptors() == before + 1
    del found
    assert descriptors() == before


# *** damaged files, and systems that refuse ***


def test_damaged_bytes_are_found(prefix: str) -> None:
    data = bytearray(data_of(prefix).read_bytes())
    data[LARGE.nbytes // 2] ^= 1
    data_of(prefix).write_bytes(data)
    reader = checkpoints.open(prefix, maps=True)
    with pytest.raises(DataLossError, match=r"tensor 'a': Checksum does not match"):
        reader.read("a")
    np.testing.assert_array_equal(reader.read("b"), -LARGE)


@pytest.mark.parametrize("size", [0, 1, LARGE.nbytes - 1, LARGE.nbytes + 1])
def test_files_cut_short_are_found(prefix: str, size: int) -> None:
    os.truncate(data_of(prefix), size)
    with pytest.raises(DataLossError, match=f"tensor 'b' should be .* bytes at .*, but the file has {size}"):
        checkpoints.open(prefix, maps=True).read("b")


@pytest.fixture
def reader(prefix: str) -> checkpoints.Reader:
    return checkpoints.open(prefix, maps=True)


def test_other_files_are_refused(prefix: str, reader: checkpoints.Reader) -> None:
    data_of(prefix).unlink()
    with pytest.raises(NotFoundError, match="data-00000-of-00001"):
        reader.read("a")
    os.mkfifo(data_of(prefix))
    with pytest.raises(FailedPreconditionError, match="no regular file"):
        reader.read("a")


@pytest.mark.parametrize(
    ("raised", "error", "text"),
    [
        (OSError(errno.ENOMEM, "no"), ResourceExhaustedError, "data-00000-of-00001; Cannot allocate memory"),
        (OSError(errno.EMFILE, "no"), ResourceExhaustedError, "data-00000-of-00001; Too many open files"),
        (ValueError("mmap length is greater than file size"), DataLossError, "became shorter while it was opened"),
    ],
)
def test_a_refused_mapping_is_an_error(
    reader: checkpoints.Reader, monkeypatch: pytest.MonkeyPatch, raised: Exception, error: type[Exception], text: str
) -> None:
    def refuses(*args: Any, **kwargs: Any) -> None:
        raise raised

    monkeypatch.setattr(regular, "mmap", Module(refuses))
    with pytest.raises(error, match=text):
        reader.read("a")


def test_file_systems_without_mappings_are_read(reader: checkpoints.Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENODEV, "no")

    monkeypatch.setattr(regular, "mmap", Module(refuses))
    np.testing.assert_array_equal(reader.read("a"), LARGE)
    np.testing.assert_array_equal(reader.read("b"), -LARGE)


def test_an_empty_file_has_an_empty_mapping(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with regular.RegularFile(str(tmp_path / "empty")) as file:
        found = file.mapped()
    assert found is not None
    assert found.read_array(0, 0).size == 0
    with pytest.raises(DataLossError, match="should be 1 bytes at 0, but the file has 0"):
        found.read_array(0, 1)
