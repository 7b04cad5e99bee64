"""TensorFlow's checkpoints of version 1: the same bytes as TensorFlow's, patterns, refusals, files that lie."""

from __future__ import annotations

import base64
import io
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import dtypes, pb
from headrace.errors import (
    DataLossError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from headrace.files import bundle, checkpoint_v1, checkpoints, sstable
from headrace.files.manifest import ManifestEntry
from headrace.files.regular import RegularFile
from headrace.files.slices import TensorSlice
from tests.files.test_hostile_checkpoints import MOST_BYTES, bounded, content, must_fail_or_give, saved

__all__ = ["bounded"]  # a fixture

V1 = "tensorflow-v1"

# The file of SaveSlices in TensorFlow 2.21 with the tensors of `recorded()`, compressed.
FILE = (
    "eNrVUj9P21AQv3Mc27kk4LzQyjIgiGmXLGnTLUNJs3RnqdTNiAACA1ECShNVjdOVb8DQP3sHho4MfACkfoB+iaobaiX63vnZBYTEzOn9ke9+73"
    "x3vx/AX6RLpEdkrzeGB/2NgTCF4eQ8OzAIqEr5zSjcSpyGR+wUZG6H0ab2Vdm3TKUoHHX7jd1uf78bCUfFOBEGpowDPaXKdUTj1Ua4xzBUO4PV"
    "CHvsznF2I7DIcJEgcMh00NVFDfbCKNIFWFxAiczBYbcnwCsEQLOEQw6jJ3QjOBaWAH7hJP9SYZj5gaA7B0SMJ+IC/89CPvXPsINhBzrf8R2MHt"
    "zCYpUZ1M1VUkJVZ+ZbA0Fyr9jU8armVoXtnXz8Po5zONe8zpxEGvFEYp/d4pyH6vt1D9jiVXm05ZI7lvtLu1xeYdqzDLW7NJGkseomwPkEC7Ue"
    "w6cSvqS0ofXgi6YLN+zXqmW+mH6UuOesoVQvftBc1pB2cjn6dvU918biAktKT8FPFaael1vFq9Qwb1ielBkgiMep4vzSGl1mCLQXhzrNvFKhSi"
    "HW3bTGtBIslMfZHIpKnUnfHEV1TFof5rOP899fTwFzCCd25nvpfzr9bDvf7Fm41978iY+fHL3++Q8+IMhR"
)


def recorded() -> list[ManifestEntry]:
    p = np.arange(6, dtype=np.float64).reshape(3, 2)
    return [
        ManifestEntry.of("layer/kernel", np.arange(6, dtype=np.float32).reshape(2, 3)),
        ManifestEntry.of("layer/kernel/Adam", np.float32([[np.nan]])),
        ManifestEntry.of("step", np.int64(-7)),
        ManifestEntry.of("b/words", np.array([b"a", b"", b"x\0y" * 60], object), dtypes.string),
        ManifestEntry.of("flags", np.array([True, False])),
        ManifestEntry.of("half", np.float16([1.5, -2])),
        ManifestEntry.of("small", np.int8([-1, 5])),
        ManifestEntry.of("p", p[:1], None, "3 2 0,1:-"),
        ManifestEntry.of("p", p[1:], None, "3 2 1,2:-"),
        ManifestEntry.of("z", np.zeros((0, 2), np.complex64)),
        ManifestEntry.of("w", np.complex128([1 + 2j])),
    ]


def test_the_file_is_the_one_that_tensorflow_writes(tmp_path: Path) -> None:
    checkpoints.write(str(tmp_path / "model"), recorded(), V1)
    assert (tmp_path / "model").read_bytes() == zlib.decompress(base64.b64decode(FILE))
    assert os.listdir(tmp_path) == ["model"]


def test_what_tensorflow_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "model").write_bytes(zlib.decompress(base64.b64decode(FILE)))
    reader = checkpoints.open(str(tmp_path / "model"))
    assert reader.format == V1
    assert list(reader.entries) == sorted({piece.name for piece in recorded()})
    for piece in recorded():
        entry = reader.entries[piece.name]
        assert (entry.dtype, entry.shape, len(entry.parts)) == (piece.dtype, piece.shape, 2 if piece.part else 0)
        got = reader.read(piece.name, piece.part)
        assert got.dtype == piece.value.dtype
        assert got.shape == piece.value.shape
        assert got.tolist() == piece.value.tolist() or got.tobytes() == piece.value.tobytes()
        assert got.flags.writeable
    assert reader.read("p").tolist() == np.arange(6, dtype=np.float64).reshape(3, 2).tolist()
    assert reader.read("p", TensorSlice.parse("0,2:1,1")).tolist() == [[1], [3]]
    assert reader.read("layer/kernel", TensorSlice.parse("-:2,1")).tolist() == [[2], [5]]
    checkpoints.check(str(tmp_path / "model"))


def bits(x: np.ndarray) -> Any:
    return x.tolist() if x.dtype == object else x.tobytes()


@pytest.mark.parametrize("dtype", sorted(dtypes.VALUE | dtypes.QUANTIZED, key=lambda d: d.number), ids=str)
def test_every_bit_comes_back(tmp_path: Path, dtype: dtypes.DType) -> None:
    prefix = str(tmp_path / "model")
    data = np.random.default_rng(dtype.number).integers(0, 256, 480).astype(np.uint8)
    if dtype is dtypes.string:
        x = np.array([bytes(data[:i]) for i in range(9)], object).reshape(3, 3)
    elif dtype is dtypes.bool_:
        x = data.reshape(30, 16) > 127
    else:
        x = data.view(dtype.numpy).reshape(6, -1)
        if dtype is dtypes.float32:
            x.view(np.uint32)[0, :2] = 0x7F800001, 0xFFFFFFFF  # NaNs, one of them signalling
    if dtype in (dtypes.bfloat16, dtypes.qint16, dtypes.quint16, dtypes.uint32, dtypes.uint64):
        with pytest.raises(InvalidArgumentError, match=f"is of {dtype}, which TensorFlow's checkpoints of version 1"):
            checkpoints.write(prefix, [ManifestEntry.of("x", x, dtype)], V1)
        return
    checkpoints.write(prefix, [ManifestEntry.of("x", x, dtype), ManifestEntry.of("none", x[:0], dtype)], V1)
    reader = checkpoints.open(prefix)
    assert (reader.entries["x"].dtype, reader.entries["none"].shape) == (dtype, x[:0].shape)
    assert bits(reader.read("x")) == bits(x)
    assert reader.read("x").dtype == x.dtype
    assert reader.read("none").shape == x[:0].shape


def test_a_checkpoint_of_many_blocks(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    given = {f"layer_{i}/kernel": np.full(i * 37, i, np.float32) for i in range(300)}
    checkpoints.write(prefix, given, V1)
    reader = checkpoints.open(prefix)
    for name, want in given.items():
        assert reader.read(name).tolist() == want.tolist()
    with RegularFile(prefix) as file:
        assert sstable.find(file, b"") is not None
        assert sstable.find(file, b"\xff") is None
        assert sstable.find(file, b"\0a") is None
        assert dict(sstable.read(file)).keys() >= {bundle.slice_key(n, TensorSlice.parse("-")) for n in given}


# *** several files ***


def test_a_pattern_means_all_of_its_files(tmp_path: Path) -> None:
    whole = np.arange(8.0).reshape(4, 2)
    for i, pieces in enumerate((
        [ManifestEntry.of("a", 1.0), ManifestEntry.of("w", whole[:3], None, "4 2 0,3:-")],
        [ManifestEntry.of("w", whole[3:], None, "4 2 3,1:-"), ManifestEntry.of("b", 2.0)],
    )):  # fmt: skip
        checkpoints.write(str(tmp_path / f"model-{i:05d}-of-00002"), pieces, V1)
    (tmp_path / "model-00000-of-00003").write_bytes(b"of another one")
    pattern = checkpoint_v1.pattern_of(str(tmp_path / "model"), 2)
    assert checkpoints.exists(pattern)
    assert checkpoints.modified(pattern) == (tmp_path / "model-00000-of-00002").stat().st_mtime
    reader = checkpoints.open(pattern)
    assert reader.read("w").tolist() == whole.tolist()
    assert (reader.read("a"), reader.read("b")) == (1, 2)
    checkpoints.check(pattern)
    with pytest.raises(DataLossError, match="a part is missing"):
        checkpoints.open(str(tmp_path / "model-00000-of-00002")).read("w")
    assert checkpoint_v1.base_of(pattern) == str(tmp_path / "model")
    checkpoints.remove(pattern)
    assert os.listdir(tmp_path) == ["model-00000-of-00003"]
    assert not checkpoints.exists(pattern)
    for missing in (pattern, str(tmp_path / "no" / "model-?????-of-00001")):
        with pytest.raises(NotFoundError):
            checkpoints.open(missing)


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (ManifestEntry.of("w", np.zeros((2, 2), np.float64)), "another dtype or shape"),
        (ManifestEntry.of("w", np.zeros((2, 3), np.float32)), "another dtype or shape"),
        (ManifestEntry.of("w", np.zeros((2, 2), np.float32)), "two overlap"),
    ],
)
def test_files_that_do_not_belong_together(tmp_path: Path, other: ManifestEntry, says: str) -> None:
    for i, piece in enumerate((ManifestEntry.of("w", np.zeros((2, 2), np.float32)), other)):
        checkpoints.write(str(tmp_path / f"m-{i:05d}-of-00002"), [piece], V1)
    with pytest.raises(DataLossError, match=says):
        checkpoints.open(str(tmp_path / "m-?????-of-00002")).read("w")


# *** together with other formats ***


@pytest.mark.parametrize("before", ["native", "tensorflow", V1])
@pytest.mark.parametrize("after", ["native", "tensorflow", V1])
def test_one_takes_the_place_of_another(tmp_path: Path, before: str, after: str) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.zeros(3)}, before)
    checkpoints.write(prefix, {"b": np.ones(2)}, after)
    reader = checkpoints.open(prefix)
    assert (reader.format, list(reader.entries)) == (after, ["b"])
    assert len(os.listdir(tmp_path)) == (1 if after == V1 else 2)
    checkpoints.remove(prefix)
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_none_is_left_alone(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    (tmp_path / "model").write_bytes(b"no table")
    with pytest.raises(DataLossError, match="does not end as a table does"):
        checkpoints.open(prefix)
    checkpoints.remove(prefix)
    checkpoints.write(prefix, {"a": np.zeros(1)}, "tensorflow")
    assert (tmp_path / "model").read_bytes() == b"no table"
    (tmp_path / "model.index").rename(tmp_path / "other")  # a table, but of the second version
    with pytest.raises(DataLossError, match=r"does not say which tensors"):
        checkpoints.open(str(tmp_path / "other"))


def test_it_is_not_merged(tmp_path: Path) -> None:
    checkpoints.write(str(tmp_path / "a"), {"a": np.zeros(1)}, V1)
    with pytest.raises(InvalidArgumentError, match="not merged"):
        checkpoints.merge([str(tmp_path / "a")], str(tmp_path / "b"))
    assert checkpoints.open(str(tmp_path / "a")).read("a").tolist() == [0]


def test_what_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prefix = str(tmp_path / "model")
    with pytest.raises(InvalidArgumentError, match="cannot be named"):
        checkpoints.write(prefix, {"\udcff": np.zeros(1)}, V1)
    monkeypatch.setattr(checkpoint_v1, "_MOST_BYTES", 5000)
    x = np.zeros(500)
    for given in (x.astype(np.int8), x.astype(np.float64), np.array([b"x" * 2000] * 2, object)):
        checkpoints.write(prefix, {"x": given[: len(given) // 2]}, V1)
        with pytest.raises(InvalidArgumentError, match="too large to serialize"):
            checkpoints.write(prefix, {"x": given}, V1)
    assert len(checkpoints.open(prefix).read("x")) == 1


# *** files made to harm, with checksums that are right (what chance does is in test_hostile_checkpoints) ***

ABSURD = (-1, 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))


def of(meta: pb.SavedTensorSliceMeta, name: str) -> pb.SavedSliceMeta:
    return next(t for t in meta.tensor if t.name == name)


def changes() -> Iterator[tuple[str, Callable[[pb.SavedTensorSliceMeta, dict[bytes, pb.SavedTensorSlices]], object]]]:
    kernel, words, waves, step = (
        bundle.slice_key(n, TensorSlice.parse(s))
        for n, s in (("a/kernel", "-:-"), ("words", "-:-"), ("c", "-"), ("step", ""))
    )
    p0, p1 = (bundle.slice_key("p", TensorSlice(((i, n), (0, -1)))) for i, n in ((0, 3), (3, 5)))

    def dims(name: str, *sizes: int) -> Callable[..., None]:
        def change(m: Any, e: Any) -> None:
            del of(m, name).shape.dim[:]
            for n in sizes:
                of(m, name).shape.dim.add().size = n

        return change

    def setting(name: str, dtype: int) -> Callable[..., None]:
        return lambda m, e: setattr(of(m, name), "type", dtype)

    for name in ("a/kernel", "words", "p"):
        for value in ABSURD:
            yield f"shape [{value}] of {name}", dims(name, value)
            yield f"shape [{value}, 11] of {name}", dims(name, value, 11)
        for dtype in (2, 3, 4, 10, 19, *((7,) if name != "words" else ())):
            yield f"dtype {dtype} of {name}", setting(name, dtype)
        yield f"300 dimensions of {name}", dims(name, *[1] * 300)
        yield f"no shape of {name}", lambda m, e, name=name: setattr(of(m, name).shape, "unknown_rank", True)
        yield f"no part of {name}", lambda m, e, name=name: of(m, name).ClearField("slice")

    def extent(start: int, length: int | None) -> Callable[..., None]:
        def change(m: Any, e: Any) -> None:
            part = of(m, "p").slice[0].extent[0]
            part.start = start
            part.ClearField("length") if length is None else setattr(part, "length", length)

        return change

    for start, length in ((-1, 3), (0, 2**62), (2**62, 2**62), (0, 0), (1, None), (0, None), (0, -5), (1, 3)):
        yield f"a part of {length} at {start}", extent(start, length)
    yield "a part is missing", lambda m, e: of(m, "p").slice.pop()
    yield "a part twice", lambda m, e: of(m, "p").slice.append(of(m, "p").slice[0])
    yield "a part gone", lambda m, e: e.pop(p1)
    yield "a tensor gone", lambda m, e: e.pop(kernel)
    yield "two tensors of a name", lambda m, e: m.tensor.append(of(m, "a/kernel"))
    yield "another name", lambda m, e: setattr(e[kernel].data, "name", "a/bias")
    yield "another part", lambda m, e: e[p0].data.slice.CopyFrom(e[p1].data.slice)
    yield "swapped parts", lambda m, e: e.update({p0: e[p1], p1: e[p0]})
    yield "no data", lambda m, e: e[kernel].Clear()
    yield "no elements", lambda m, e: e[kernel].data.ClearField("data")
    yield "one element less", lambda m, e: e[kernel].data.data.float_val.pop()
    yield "one element more", lambda m, e: e[kernel].data.data.float_val.append(1)
    yield "elements of another field", lambda m, e: e[step].data.data.CopyFrom(e[kernel].data.data)
    yield "half a complex number", lambda m, e: e[waves].data.data.scomplex_val.pop()

    def too_large(m: Any, e: Any) -> None:
        of(m, "step").type = pb.DT_INT8
        e[step].data.data.int_val.append(1000)

    yield "a number too large", too_large
    yield "one string less", lambda m, e: e[words].data.data.string_val.pop()


def lying(prefix: str, change: Callable[..., object]) -> bytes:
    with RegularFile(prefix) as file:
        entries = {key: pb.SavedTensorSlices.FromString(value) for key, value in sstable.read(file)}
    meta = entries.pop(b"").meta
    change(meta, entries)
    head = [(b"", pb.SavedTensorSlices(meta=meta).SerializeToString())]
    out = io.BytesIO()
    sstable.write(out, head + [(key, entries[key].SerializeToString()) for key in sorted(entries)])
    return out.getvalue()


@pytest.mark.matrix
def test_files_that_lie(tmp_path: Path, bounded: None) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, saved(V1), V1)
    sound = Path(prefix).read_bytes()
    want = content(prefix)
    for what, change in changes():
        Path(prefix).write_bytes(lying(prefix, change))
        assert must_fail_or_give(prefix, want, what), what
        Path(prefix).write_bytes(sound)
    assert not must_fail_or_give(prefix, want, "in the end")


def test_elements_that_are_not_in_their_field_alone(tmp_path: Path) -> None:
    """Other fields of the message, known or not, are passed over, as TensorFlow does."""
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"w": np.float32([1, 2])}, V1)
    key = bundle.slice_key("w", TensorSlice.parse("-"))

    def change(m: Any, e: Any) -> None:
        data = e[key].data.data
        data.MergeFromString(b"\xf8\x07\x01")  # a field of the future
        data.dtype, data.int_val[:], data.bool_val[:] = pb.DT_INT8, [1, 2, 3], [True]

    Path(prefix).write_bytes(lying(prefix, change))
    assert checkpoints.open(prefix).read("w").tolist() == [1, 2]


def test_later_versions_and_strange_dtypes(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.zeros(1), "b": np.zeros(2)}, V1)
    sound = Path(prefix).read_bytes()
    for change in (
        lambda m, e: setattr(m.versions, "min_consumer", 2),
        lambda m, e: m.versions.bad_consumers.append(1),
    ):
        Path(prefix).write_bytes(lying(prefix, change))
        with pytest.raises(UnimplementedError, match="wants a reader of version"):
            checkpoints.open(prefix)
        Path(prefix).write_bytes(sound)
    for number in (14, 20, 21, 24, 127):
        Path(prefix).write_bytes(lying(prefix, lambda m, e, number=number: setattr(of(m, "a"), "type", number)))
        reader = checkpoints.open(prefix)
        assert list(reader.entries) == ["b"]
        with pytest.raises(InvalidArgumentError, match=f"DataType {number}"):
            reader.read("a")
        assert reader.read("b").tolist() == [0, 0]
        Path(prefix).write_bytes(sound)
    with pytest.raises(NotFoundError, match="Key c not found"):
        checkpoints.open(prefix).read("c")


def test_a_small_file_does_not_claim_much(tmp_path: Path, bounded: None) -> None:
    """Sizes that are impossible in so small a file are rejected without allocating memory.

    The sizes are impossible for all tensors together.
    """
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {f"x{i}": np.zeros(1, np.int64) for i in range(1000)}, V1)

    def change(m: Any, e: Any) -> None:
        for t in m.tensor:
            t.shape.dim[0].size = 10**5

    data = lying(prefix, change)
    assert len(data) * 1000 > MOST_BYTES
    Path(prefix).write_bytes(data)
    with pytest.raises(DataLossError, match=r"more than its .* bytes can hold"):
        checkpoints.open(prefix)
