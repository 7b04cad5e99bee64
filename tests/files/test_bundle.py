"""TensorFlow's format, byte for byte: its known layout, and files that TensorFlow wrote."""

from __future__ import annotations

import base64
import os
import zlib
from pathlib import Path

import numpy as np
import pytest

from headrace import dtypes, pb
from headrace.errors import DataLossError, InvalidArgumentError, NotFoundError
from headrace.files import bundle, checkpoints, sstable
from headrace.files.manifest import ManifestEntry
from headrace.files.regular import RegularFile
from headrace.files.slices import TensorSlice, parse_spec

# The files of SaveV2 in TensorFlow 2.21 with the tensors of `recorded()`, compressed.
DATA = "eNpjYACBBnsg4QBEQNwAxAuAmMGenQECGBm2MNawbZRKrGCoHHKIkeGAPcMBBhTwwR7KcIBQHFBaAEqLOAAAKS1CYQ=="
INDEX = (
    "eNpjYGDjYJRi4mBk4BJjKGBgZGRqaGyo52AS4hACCgIxk8JzRg0BU97drSpsLGKNTXBJJrDkd0YNBdO3nA78DOxCSfrl+UUpxRzs"
    "QixAOWYFFY29jKb+4RFtDKxCaTmJ6cUcXGAZJoWHjBpMpvEbzjUysAhlJOakcfBBJR4zarCY6nmFfWLgEc5JrEwt0s9OLcpLzQE6"
    "BWYns4aE6YHbtuI8rKL6jimJuVApkFsZFSSA2tks1OUZGOUKoO5kBumzYuNiEmDkYrDi4GLhYBRg4mJgYOEtLkkt4OAUYlCQ0eAw"
    "3X19viADo1AVB4cQmxAD2DHTmUxvvGpaxAAEjCAi830kN5xz4NPCDQyMzNUMq5ngYge3Lfq/gYljLxM/A0EQ/ruhW6XU/TYAcSxB"
    "ow=="
)


def recorded() -> list[ManifestEntry]:
    p = np.arange(6, dtype=np.float64).reshape(3, 2)
    return [
        ManifestEntry.of("layer/kernel", np.arange(6, dtype=np.float32).reshape(2, 3)),
        ManifestEntry.of("layer/kernel/Adam", np.float32([[0.5]])),
        ManifestEntry.of("step", np.int64(7)),
        ManifestEntry.of("b/words", np.array([b"a", b"", b"x\0y" * 60], object), dtypes.string),
        ManifestEntry.of("flags", np.array([True, False])),
        ManifestEntry.of("half", np.array([1.5, -2], dtypes.bfloat16.numpy)),
        ManifestEntry.of("p", p[:1], None, "3 2 0,1:-"),
        ManifestEntry.of("p", p[1:], None, "3 2 1,2:-"),
        ManifestEntry.of("z", np.zeros((0, 2), np.complex64)),
    ]


def test_files_are_those_that_tensorflow_writes(tmp_path: Path) -> None:
    """The same tensors give the same bytes as TensorFlow 2.21 wrote."""
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, recorded(), "tensorflow")
    assert Path(bundle.data_path(prefix, 0, 1)).read_bytes() == zlib.decompress(base64.b64decode(DATA))
    assert Path(bundle.index_path(prefix)).read_bytes() == zlib.decompress(base64.b64decode(INDEX))


def test_what_tensorflow_wrote_is_read(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    Path(bundle.data_path(prefix, 0, 1)).write_bytes(zlib.decompress(base64.b64decode(DATA)))
    Path(bundle.index_path(prefix)).write_bytes(zlib.decompress(base64.b64decode(INDEX)))
    reader = checkpoints.open(prefix)
    assert list(reader.entries) == ["b/words", "flags", "half", "layer/kernel", "layer/kernel/Adam", "p", "step", "z"]
    for piece in recorded():
        entry = reader.entries[piece.name]
        assert (entry.dtype, entry.shape) == (piece.dtype, piece.shape)
        got = reader.read(piece.name, piece.part)
        assert got.dtype == piece.value.dtype
        assert got.tolist() == piece.value.tolist()
    assert reader.read("p").tolist() == np.arange(6, dtype=np.float64).reshape(3, 2).tolist()


def test_codes_keep_the_order_of_numbers() -> None:
    numbers = sorted({s * (2**k + d) for k in range(63) for d in (-1, 0, 1) for s in (1, -1)})
    codes = [bundle._ordered_signed(n) for n in numbers]
    assert codes == sorted(codes)
    assert len(set(codes)) == len(codes)
    # the examples of the code's own description
    assert [bundle._ordered_signed(n) for n in (0, 63, 64, -1, -64)] == [
        b"\x80",
        b"\xbf",
        b"\xc0\x40",
        b"\x7f",
        b"\x40",
    ]
    assert bundle.slice_key("a\0\xff", TensorSlice.parse("0,2:-")).startswith(b"\0a\0\xff\xc3\xbf\0\1\1\2")


@pytest.mark.system
@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 1000, 20000])
def test_tables_of_any_length(tmp_path: Path, n: int) -> None:
    rng = np.random.default_rng(n)
    entries = sorted(
        {rng.bytes(int(rng.integers(1, 40))): rng.bytes(int(rng.integers(0, 60))) for _ in range(n)}.items()
    )
    with (tmp_path / "t").open("wb") as out:
        sstable.write(out, entries)
    with RegularFile(str(tmp_path / "t")) as file:
        assert list(sstable.read(file)) == entries
        assert (file.size > 2 * 2**18) == (n == 20000)  # several blocks


def test_writing_over_a_checkpoint_leaves_nothing_of_it(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    for i in range(5):
        checkpoints.write(prefix, {"a": np.int32([i])}, "tensorflow")
        assert checkpoints.open(prefix).read("a").tolist() == [i]
        assert len(os.listdir(tmp_path)) == 2
    assert sorted(os.listdir(tmp_path)) == ["model.data-00000-of-00001", "model.index"]


def test_tensors_of_other_dtypes_are_left_out_and_named(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.uint8([1]), "b": np.uint8([2])}, "tensorflow")
    read = bundle.Bundle(prefix)
    read.protos[b"b"].dtype = 99  # type: ignore[assignment]
    header = pb.BundleHeaderProto(num_shards=1)
    with open(bundle.index_path(prefix), "wb") as file:
        entries = [(key, proto.SerializeToString()) for key, proto in sorted(read.protos.items())]
        sstable.write(file, [(b"", header.SerializeToString()), *entries])
    reader = checkpoints.open(prefix)
    assert list(reader.entries) == ["a"]
    assert reader.read("a").tolist() == [1]
    with pytest.raises(InvalidArgumentError, match=r"tensor 'b' of checkpoint .* has TensorFlow's DataType 99"):
        reader.read("b")


def test_slices_as_text() -> None:
    shape, part = parse_spec("4 5 1,2:-")
    assert (shape, part.extents, str(part)) == ((4, 5), ((1, 2), (0, -1)), "1,2:-")
    assert part.shape_in(shape) == (2, 5)
    assert TensorSlice.from_proto(part.to_proto()) == part
    assert parse_spec("3 -") == ((3,), TensorSlice(((0, -1),)))
    for spec, match in {
        "4": "Need least two elements",
        "a 0,1": "Non numerical dimension",
        "4 -1,2": "Expected a pair of numbers",
        "4 1": "Expected a pair of numbers",
        "4 1,0": "Expected non-negative start and positive length",
        "4 3,2": "out of bounds",
        "4 5 0,2": "has 1 dimensions",
        "-4 -": "Non numerical dimension",
        f"{2**63} -": "Non numerical dimension",
        "4 0,99999999999999999999": "Expected a pair of numbers",
        " ".join(["1"] * 300 + [":".join("-" * 300)]): "cannot have 300 dimensions",
    }.items():
        with pytest.raises(InvalidArgumentError, match=match):
            parse_spec(spec)


def test_parts_can_be_read_across(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    whole = rng.normal(size=(7, 6, 5))
    specs = [f"7 6 5 {a},{n}:{b},{m}:-" for a, n in ((0, 3), (3, 1), (4, 3)) for b, m in ((0, 4), (4, 2))]
    prefix = str(tmp_path / "model")
    pieces = [ManifestEntry.of("w", whole[parse_spec(s)[1].index_in(whole.shape)], None, s) for s in specs]
    checkpoints.write(prefix, pieces, "tensorflow")
    reader = checkpoints.open(prefix)
    assert reader.read("w").tolist() == whole.tolist()
    for _ in range(50):
        starts = [int(rng.integers(n)) for n in whole.shape]
        lengths = [int(rng.integers(1, n - s + 1)) for s, n in zip(starts, whole.shape, strict=True)]
        part = TensorSlice(tuple(zip(starts, lengths, strict=True)))
        assert reader.read("w", part).tolist() == whole[part.index_in(whole.shape)].tolist()
    with pytest.raises(InvalidArgumentError, match="out of bounds"):
        reader.read("w", TensorSlice(((5, 3), (0, -1), (0, -1))))
    checkpoints.write(prefix, pieces[:-1], "tensorflow")
    reader = checkpoints.open(prefix)
    with pytest.raises(DataLossError, match="a part is missing"):
        reader.read("w")
    inside = TensorSlice(((0, 3), (1, 2), (0, -1)))  # of what is there
    assert reader.read("w", inside).tolist() == whole[:3, 1:3].tolist()


def test_a_name_that_is_not_there(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"layer/kernel": np.zeros(2), "layer/bias": np.zeros(2)}, "tensorflow")
    with pytest.raises(
        NotFoundError, match=r"Key layer/kernels not found in checkpoint .*2 tensors; like it: layer/kernel"
    ):
        checkpoints.open(prefix).read("layer/kernels")
