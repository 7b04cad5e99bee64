"""headrace's own format: safetensors, and an index.

Other libraries can read both.
"""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from headrace import dtypes
from headrace.errors import DataLossError, NotFoundError
from headrace.files import checkpoints, native
from headrace.files.checksum import crc32c
from headrace.files.manifest import ManifestEntry
from headrace.files.slices import TensorSlice

each_format = pytest.mark.parametrize("format", checkpoints.FORMATS)


def test_other_programs_can_read_it(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    rng = np.random.default_rng(0)
    plain = {
        d.name: np.asarray(rng.integers(0, 2, (2, 3))).astype(d.numpy)
        for d in sorted(dtypes.REAL | {dtypes.bool_}, key=lambda d: d.number)
    }
    pairs = np.complex64([[1 + 2j, 3 - 4j]])
    words = np.array([[b"ab", b""], [b"\0c", b"d"]], object)
    whole = np.arange(6, dtype=np.int16).reshape(3, 2)
    checkpoints.write(
        prefix,
        [
            *(ManifestEntry.of(name, x) for name, x in plain.items()),
            ManifestEntry.of("pairs", pairs),
            ManifestEntry.of("words", words, dtypes.string),
            ManifestEntry.of("p", whole[:2], None, "3 2 0,2:-"),
            ManifestEntry.of("p", whole[2:], None, "3 2 2,1:-"),
        ],
    )
    there = safetensors.numpy.load_file(prefix + ".safetensors")
    for name, x in plain.items():
        assert there[name].dtype == x.dtype
        assert there[name].tolist() == x.tolist()
    assert there["pairs"].tolist() == [[[1, 2], [3, -4]]]
    assert there["words"].tobytes() == b"ab\0cd"
    assert there["words#lengths"].tolist() == [2, 0, 2, 1]
    assert there["p#0,2:-"].tolist() == whole[:2].tolist()
    assert set(there) == {*plain, "pairs", "words", "words#lengths", "p#0,2:-", "p#2,1:-"}

    index = json.loads(Path(prefix + ".index.json").read_bytes())
    assert index["headrace_checkpoint"] == 1
    assert index["files"] == [{"name": "model.safetensors", "bytes": os.path.getsize(prefix + ".safetensors")}]
    assert index["tensors"]["pairs"] == {
        "dtype": "complex64",
        "shape": [1, 2],
        "stored": "pairs",
        "file": 0,
        "key": "pairs",
        "crc32c": crc32c(pairs),
    }
    assert index["tensors"]["p"]["parts"][1]["part"] == "2,1:-"
    assert index["tensors"]["words"]["lengths_crc32c"] == crc32c(np.int64([2, 0, 2, 1]))


def test_each_tensor_lies_at_a_multiple_of_its_width(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.int8([1]), "b": np.float64([2]), "c": np.int16([3]), "ä" * 7: np.float32([4])})
    data = Path(prefix + ".safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    assert size % 8 == 0
    places = {k: v["data_offsets"][0] for k, v in json.loads(data[8 : 8 + size]).items()}
    assert places == {"b": 0, "ä" * 7: 8, "c": 12, "a": 14}


def test_a_reader_keeps_the_data_that_it_opened(tmp_path: Path) -> None:
    """Another checkpoint may take the place of the one that is being read."""
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.int32([1]), "b": np.int32([2])})
    reader = checkpoints.open(prefix)
    assert reader.read("a").tolist() == [1]
    checkpoints.write(prefix, {"a": np.int32([3]), "b": np.int32([4])})
    assert reader.read("b").tolist() == [2]
    assert checkpoints.open(prefix).read("b").tolist() == [4]


def test_without_its_index_it_is_no_checkpoint(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.int32([1])})
    os.unlink(native.index_path(prefix))
    with pytest.raises(NotFoundError, match=r"neither .*model.index.json"):
        checkpoints.open(prefix)
    assert checkpoints.files_of(prefix) == [prefix + ".safetensors"]
    checkpoints.write(prefix, {"a": np.int32([2])})  # over what a killed writer left
    assert checkpoints.open(prefix).read("a").tolist() == [2]
    assert len(os.listdir(tmp_path)) == 2


def test_data_of_another_shape_than_the_index_says(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.zeros((2, 3)), "b": np.zeros(2)})
    size = os.path.getsize(prefix + ".safetensors")
    safetensors.numpy.save_file({"a": np.zeros((3, 2)), "c": np.zeros(2)}, prefix + ".safetensors")
    assert os.path.getsize(prefix + ".safetensors") == size
    reader = checkpoints.open(prefix)
    with pytest.raises(DataLossError, match=r"tensor 'a' is F64\[3, 2\], and its index says F64\[2, 3\]"):
        reader.read("a")
    with pytest.raises(DataLossError, match="tensor 'b' is not there"):
        reader.read("b")


@pytest.mark.system
@each_format
def test_large_tensors_are_not_held_twice(tmp_path: Path, format: str) -> None:
    prefix, n = str(tmp_path / "model"), 2**24
    big = {f"t{i}": np.arange(n // 4, dtype=np.float32) + i for i in range(4)}  # 64 MB
    tracemalloc.start()
    checkpoints.write(prefix, big, format)
    written = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    reader = checkpoints.open(prefix)
    got = reader.read("t1")
    read = tracemalloc.get_traced_memory()[1] - before
    del got
    tracemalloc.reset_peak()
    checkpoints.check(prefix)
    checked = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert written < 4 * 2**20
    assert read < n + 2 * 2**20
    assert checked < 2 * n
    assert reader.read("t3", TensorSlice(((5, 2),))).tolist() == [8.0, 9.0]
