"""Checkpoints that are damaged or made to harm.

With any content of the files, reading gives the tensors that were saved or one of three errors, takes no more memory
than the files have, and touches nothing else.
"""

from __future__ import annotations

import io
import json
import os
import re
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headrace import dtypes, pb, varints
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnimplementedError,
)
from headrace.files import bundle, checkpoints, native, sstable
from headrace.files.checksum import crc32c, masked_crc32c
from headrace.files.manifest import ManifestEntry
from headrace.files.slices import TensorSlice

pytestmark = pytest.mark.matrix

ALLOWED = (DataLossError, NotFoundError, InvalidArgumentError)
MOST_BYTES = 8 * 2**20  # beyond what the files have
FORMATS = ("native", "tensorflow")
each_format = pytest.mark.parametrize("format", FORMATS)
each_of_all = pytest.mark.parametrize("format", [*FORMATS, "tensorflow-v1"])


def saved(format: str = "native") -> list[ManifestEntry]:
    rng = np.random.default_rng(1)
    text = np.empty((2, 3), object)
    text.reshape(-1)[:] = [b"", b"\0\1", b"abc" * 50, b"\xff", b"x", b"yz"]
    whole = np.arange(40, dtype=np.float32).reshape(8, 5)
    half = dtypes.float16 if format == "tensorflow-v1" else dtypes.bfloat16  # which that has not
    return [
        ManifestEntry.of("a/kernel", rng.normal(size=(7, 11)).astype(np.float32)),
        ManifestEntry.of("a/bias", rng.normal(size=11)),
        ManifestEntry.of("b/flags", rng.integers(0, 2, (3, 3)) > 0),
        ManifestEntry.of("c", (rng.normal(size=4) + 1j * rng.normal(size=4)).astype(np.complex64)),
        ManifestEntry.of("e", np.zeros((0, 3), np.int16)),
        ManifestEntry.of("half", np.arange(5).astype(half.numpy)),
        ManifestEntry.of("p", whole[:3], None, "8 5 0,3:-"),
        ManifestEntry.of("p", whole[3:], None, "8 5 3,5:-"),
        ManifestEntry.of("step", np.array(123456789, np.int64)),
        ManifestEntry.of("words", text, dtypes.string),
    ]


def saved_names() -> set[str]:
    return {p.name for p in saved()}


def content(prefix: str) -> dict[str, Any]:
    reader = checkpoints.open(prefix)
    return {name: reader.read(name) for name in reader.entries}


def frozen(x: np.ndarray) -> tuple[Any, ...]:
    return str(x.dtype), x.shape, x.tolist() if x.dtype == object else x.tobytes()


def must_fail_or_give(prefix: str, want: dict[str, Any], what: str) -> bool:
    """Whether reading all tensors fails.

    Every tensor that can be read must be one that was saved.
    """
    failed = False
    try:
        reader = checkpoints.open(prefix)
    except ALLOWED:
        return True
    except UnimplementedError as e:
        if "of version" not in str(e) and "wants a reader of version" not in str(e):  # of the future, by chance
            raise
        return True
    except Exception as e:
        e.add_note(what)
        raise
    for name in {**reader.entries, **dict.fromkeys(saved_names())}:
        try:
            got = reader.read(name)
        except ALLOWED:
            failed = True
        except Exception as e:
            e.add_note(f"{what}, tensor {name!r}")
            raise
        else:
            assert name in want, f"{what}: {name!r} was never saved"
            same = frozen(got) == frozen(want[name]) or not got.size
            assert same, f"{what}: {name!r} is another value than was saved"
    return failed


@pytest.fixture
def bounded(tmp_path: Path) -> Iterator[None]:
    """No more memory is taken than the files have and a little."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES, peak


# *** bytes that changed by chance ***


def damaged(rng: np.random.Generator, data: bytes) -> tuple[bytes, str]:
    """`data`, damaged in one of the ways in which files are."""
    n, out = len(data), bytearray(data)
    at = int(rng.integers(n))
    match int(rng.integers(7)):
        case 0:
            out[at] ^= 1 << int(rng.integers(8))
            what = f"a bit of byte {at}"
        case 1:
            out[at : at + 8] = rng.bytes(8)
            what = f"8 bytes at {at}"
        case 2:
            del out[at:]
            what = f"cut to {at}"
        case 3:
            out += rng.bytes(int(rng.integers(1, 100)))
            what = "lengthened"
        case 4:
            other, size = int(rng.integers(n)), int(rng.integers(1, 64))
            out[at : at + size] = data[other : other + size]
            what = f"{size} bytes from {other} to {at}"
        case 5:
            out[at : at + int(rng.integers(1, 200))] = b""
            what = f"bytes at {at} left out"
        case _:
            out[at : at + 4096] = bytes(len(out[at : at + 4096]))
            what = f"zeros from {at}"
    return bytes(out), what


def fuzz(tmp_path: Path, format: str, seed: int, rounds: int) -> None:
    rng = np.random.default_rng(seed)
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, saved(format), format)
    want = content(prefix)
    files = {path: Path(path).read_bytes() for path in checkpoints.files_of(prefix)}
    unharmed = 0
    for i in range(rounds):
        path = list(files)[i % len(files)]
        data, what = damaged(rng, files[path])
        Path(path).write_bytes(data)
        failed = must_fail_or_give(prefix, want, f"{os.path.basename(path)}: {what} (seed {seed}, round {i})")
        # bytes behind the last tensor of a bundle belong to none, and some damage changes nothing
        unharmed += not failed
        assert failed or data == files[path] or (format == "tensorflow" and ".data-" in path), what
        Path(path).write_bytes(files[path])
    assert unharmed < rounds / 4
    assert not must_fail_or_give(prefix, want, "in the end")


@each_of_all
def test_damage_is_noticed(tmp_path: Path, format: str, bounded: None) -> None:
    fuzz(tmp_path, format, seed=0, rounds=250)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 6))
@each_of_all
def test_damage_is_noticed_with_many_seeds(tmp_path: Path, format: str, seed: int, bounded: None) -> None:
    fuzz(tmp_path, format, seed, rounds=4000)


@each_of_all
def test_every_bit_of_the_index_counts(tmp_path: Path, format: str) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, [ManifestEntry.of("a", np.int8([1, 2])), ManifestEntry.of("bb", np.float64(3))], format)
    want = content(prefix)
    path = Path(checkpoints.files_of(prefix)[0])
    data = path.read_bytes()
    for i in range(len(data)):
        for bit in (0, 7):
            path.write_bytes(data[:i] + bytes([data[i] ^ 1 << bit]) + data[i + 1 :])
            assert must_fail_or_give(prefix, want, f"bit {bit} of byte {i}"), i


# *** files made to harm, with checksums that are right ***


def lying_bundle(
    prefix: str, change: Callable[[pb.BundleHeaderProto, dict[bytes, pb.BundleEntryProto]], object]
) -> bytes:
    """The index of a checkpoint with something else in it than was written."""
    read = bundle.Bundle(prefix)
    header = pb.BundleHeaderProto(num_shards=read.shards)
    header.version.producer = 1
    change(header, read.protos)
    entries = [(b"", header.SerializeToString())]
    entries += [(key, read.protos[key].SerializeToString()) for key in sorted(read.protos)]
    out = io.BytesIO()
    sstable.write(out, entries)
    return out.getvalue()


ABSURD = (-1, 1, 2**31 - 1, 2**31, 2**62, 2**63 - 1, -(2**63))


def bundle_changes() -> Iterator[tuple[str, Callable[..., None]]]:
    def setting(key: bytes, field: str, value: int) -> Callable[..., None]:
        return lambda h, e: setattr(e[key], field, value)

    def dims(key: bytes, *sizes: int) -> Callable[..., None]:
        def change(h: Any, e: Any) -> None:
            del e[key].shape.dim[:]
            for n in sizes:
                e[key].shape.dim.add().size = n

        return change

    for key in (b"a/kernel", b"words", b"p", b"e"):
        for value in ABSURD:
            yield f"offset {value} of {key!r}", setting(key, "offset", value)
            yield f"size {value} of {key!r}", setting(key, "size", value)
            yield f"shape [{value}] of {key!r}", dims(key, value)
            yield f"shape [{value}, {value}, 0] of {key!r}", dims(key, value, value, 0)
        for shard in (-1, 1, 2**31 - 1):
            yield f"shard {shard} of {key!r}", setting(key, "shard_id", shard)
        for dtype in (0, 2, 7, 14, 20, 21, 101, 24, 127, -5):
            yield f"dtype {dtype} of {key!r}", setting(key, "dtype", dtype)
        yield f"300 dimensions of {key!r}", dims(key, *[1] * 300)
        yield f"no shape of {key!r}", lambda h, e, key=key: setattr(e[key].shape, "unknown_rank", True)
    for shards in (-1, 0, 2, 2**31 - 1):
        yield f"{shards} shards", lambda h, e, shards=shards: setattr(h, "num_shards", shards)

    def share(h: Any, e: Any) -> None:  # much out of little: all entries claim the same bytes
        for i in range(1000):
            e[b"x%d" % i] = pb.BundleEntryProto()
            e[b"x%d" % i].CopyFrom(e[b"a/kernel"])

    def swap(h: Any, e: Any) -> None:
        e[b"a/kernel"].offset, e[b"a/bias"].offset = e[b"a/bias"].offset, e[b"a/kernel"].offset

    def extent(start: int, length: int | None) -> Callable[..., None]:
        def change(h: Any, e: Any) -> None:
            part = e[b"p"].slices[0].extent[0]
            part.start = start
            part.ClearField("length") if length is None else setattr(part, "length", length)

        return change

    yield "shared bytes", share
    yield "swapped places", swap
    for start, length in ((-1, 3), (0, 2**62), (2**62, 2**62), (0, 0), (1, None), (0, None), (0, -5)):
        yield f"a part of {length} at {start}", extent(start, length)
    yield "a part is missing", lambda h, e: e[b"p"].slices.pop()
    yield "a part twice", lambda h, e: e[b"p"].slices.append(e[b"p"].slices[0])
    yield "a part gone", lambda h, e: e.pop(bundle.slice_key("p", TensorSlice.parse("3,5:-")))
    yield "a whole of parts", lambda h, e: e[b"a/kernel"].slices.append(e[b"p"].slices[0])


# With other numbers these are other checkpoints, but sound ones: of what has no bytes it does not matter where they
# are, and tensors of dtypes that headrace does not have are left out.
SOUND = re.compile(
    r"(offset|size|shard) .*b'p'|offset .*b'e'|[02] shards|dtype (-5|0|20|21|24|101|127) |dtype .* of b'e'|"
    r"dtype 7 of b'words'|shape .*, 0. of b'e'"
)


def test_indexes_of_tensorflows_that_lie(tmp_path: Path, bounded: None) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, saved(), "tensorflow")
    index = Path(bundle.index_path(prefix))
    sound = index.read_bytes()
    want = content(prefix) | {f"x{i}": saved()[0].value for i in range(1000)}
    for what, change in bundle_changes():
        index.write_bytes(lying_bundle(prefix, change))
        assert must_fail_or_give(prefix, want, what) or SOUND.search(what), what
        index.write_bytes(sound)


def table(entries: list[tuple[int, bytes, bytes]]) -> bytes:
    """A block of entries (shared, rest, value).

    `shared` is the number of bytes that a key shares with the key before it, and `rest` is the rest of the key.
    """
    out = b"".join(
        varints.encode(shared) + varints.encode(len(rest)) + varints.encode(len(value)) + rest + value
        for shared, rest, value in entries
    )
    return out + struct.pack("<II", 0, 1)


def file_of(blocks: list[bytes], index: bytes | None = None, handles: Any = None, kind: bytes = b"\0") -> bytes:
    """A file of blocks whose checksums are right."""
    out, places = b"", []

    def put(block: bytes, kind: bytes = b"\0") -> bytes:
        nonlocal out
        place = varints.encode(len(out)) + varints.encode(len(block))
        places.append((len(out), len(block)))
        out += block + kind + struct.pack("<I", masked_crc32c(block + kind))
        return place

    for block in blocks:
        put(block, kind)
    given = handles or list(places)
    if index is None:
        index = table([(0, b"~%05d" % i, varints.encode(a) + varints.encode(n)) for i, (a, n) in enumerate(given)])
    place = put(table([])) + put(index)
    return out + place.ljust(40, b"\0") + struct.pack("<Q", sstable.MAGIC)


LONG = b"k" * 200_000
UNFOLDING = table([(0, b"", b""), (0, LONG, b""), *[(len(LONG) + i, b"k", b"") for i in range(100_000)]])
TABLES = {
    "empty": (b"", "does not end as a table"),
    "a footer only": (bytes(40) + struct.pack("<Q", sstable.MAGIC), "last blocks are not one behind the other"),
    "nothing but ones": (b"\xff" * 48, "does not end as a table"),
    "keys unfold to 20 GB": (file_of([UNFOLDING]), "far more room"),
    "keys that unfold, in the index": (file_of([], UNFOLDING), "a number is not written"),
    "a block again and again": (
        file_of([table([(0, b"", b"")])], handles=[(0, 11)] * 1000),
        "not one behind the other",
    ),
    "a block behind the end": (file_of([table([(0, b"a", b"")])], handles=[(0, 2**40)]), "reach behind the end"),
    "a block of 2**63": (file_of([table([(0, b"a", b"")])], handles=[(0, 2**63)]), "reach behind the end"),
    "keys out of order": (
        file_of([table([(0, b"", b""), (0, b"b", b""), (0, b"a", b"")])]),
        "key b'a' is not in order",
    ),
    "a key twice": (file_of([table([(0, b"", b""), (0, b"b", b""), (1, b"", b"")])]), "key b'b' is not in order"),
    "shares more than there is": (file_of([table([(5, b"a", b"")])]), "an entry of a block reaches behind its end"),
    "an endless number": (file_of([b"\xff" * 30 + struct.pack("<II", 0, 1)]), "not written as numbers are"),
    "a long zero": (file_of([b"\x80\0" * 9 + struct.pack("<II", 0, 1)]), "not written as numbers are"),
    "a rest behind the end": (file_of([b"\0\x7f\x7f" + struct.pack("<II", 0, 1)]), "reaches behind its end"),
    "restarts that are not there": (file_of([table([])[:-4] + struct.pack("<I", 2**31)]), "no sound list of restarts"),
    "no restarts": (file_of([struct.pack("<I", 0)]), "no sound list of restarts"),
    "a tiny block": (file_of([b"ab"]), "a block is too short"),
    "a hole": (file_of([table([(0, b"", b"")])], handles=[(1, 10)]), "not one behind the other"),
    "a block that no index has": (
        file_of([table([(0, b"", b"")]), table([(0, b"a", b"")])], handles=[(0, 11)]),
        "something between its blocks and its index",
    ),
    "no header": (file_of([table([(0, b"a", b"")])]), "no header"),
    "a header that is none": (file_of([table([(0, b"", b"\xff\xff\xff")])]), "an entry cannot be read"),
}


@pytest.mark.parametrize("what", TABLES)
def test_a_table_that_lies(tmp_path: Path, what: str) -> None:
    data, match = TABLES[what]
    (tmp_path / "model.index").write_bytes(data)
    tracemalloc.start()
    with pytest.raises(DataLossError, match=match):
        checkpoints.open(str(tmp_path / "model"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_BYTES + 2 * 16 * len(data)


def test_a_compressed_table_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "model.index").write_bytes(file_of([table([(0, b"", b"")])], kind=b"\1"))
    with pytest.raises(UnimplementedError, match=r"compressed \(snappy\).*SaverDef.V2"):
        checkpoints.open(str(tmp_path / "model"))


def test_other_machines_and_later_versions_are_refused(tmp_path: Path) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, saved(), "tensorflow")
    index = Path(bundle.index_path(prefix))
    sound = index.read_bytes()
    index.write_bytes(lying_bundle(prefix, lambda h, e: setattr(h, "endianness", pb.BundleHeaderProto.BIG)))
    with pytest.raises(UnimplementedError, match="highest byte first"):
        checkpoints.open(prefix)
    index.write_bytes(sound)
    index.write_bytes(lying_bundle(prefix, lambda h, e: setattr(h.version, "min_consumer", 2)))
    with pytest.raises(UnimplementedError, match="wants a reader of version 2"):
        checkpoints.open(prefix)
    checkpoints.remove(prefix)
    checkpoints.write(prefix, saved())
    path = Path(native.index_path(prefix))
    path.write_bytes(path.read_bytes().replace(b'"headrace_checkpoint": 1', b'"headrace_checkpoint": 2'))
    with pytest.raises(UnimplementedError, match="of version 2, and this headrace knows 1"):
        checkpoints.open(prefix)


# *** native indexes ***


def signed(rest: bytes) -> bytes:
    return b'{"headrace_checkpoint": 1, "crc32c": %d, "bytes": %d,\n' % (crc32c(rest), len(rest)) + rest


def native_changes() -> Iterator[tuple[str, Callable[[dict[str, Any]], object]]]:
    odd = (None, True, -1, 1.5, 2**63, 10**400, "", "x", [], {}, [[]], "../model.safetensors", "/etc/passwd")

    def at(path: tuple[Any, ...], value: object) -> Callable[[dict[str, Any]], object]:
        def change(content: dict[str, Any]) -> None:
            for step in path[:-1]:
                content = content[step]
            content[path[-1]] = value

        return change

    paths: list[tuple[Any, ...]] = [("files",), ("tensors",), ("files", 0), ("files", 0, "name"), ("files", 0, "bytes")]
    for name, fields in {
        "a/kernel": ("dtype", "shape", "stored", "file", "key", "crc32c"),
        "words": ("shape", "stored", "key", "lengths", "crc32c", "lengths_crc32c"),
        "p": ("shape", "stored", "parts"),
        "c": ("dtype", "stored", "key"),
    }.items():
        paths += [("tensors", name), *(("tensors", name, f) for f in fields)]
    paths += [("tensors", "p", "parts", 0, f) for f in ("part", "stored", "file", "key", "crc32c")]
    for path in paths:
        for value in odd:
            yield f"{'.'.join(map(str, path))} = {str(value)[:20]!r} ({type(value).__name__})", at(path, value)
    for shape in ([77], [7, 12], [11, 7], [2**40, 2**40], [-7, -11], [7, 11, 1], [[7], 11], [1] * 300, [0]):
        yield f"shape {shape[:5]}", at(("tensors", "a/kernel", "shape"), shape)
        yield f"shape of strings {shape[:5]}", at(("tensors", "words", "shape"), shape)
        yield f"shape of parts {shape[:5]}", at(("tensors", "p", "shape"), shape)
    for dtype in ("float64", "int32", "string", "complex64", "resource", "variant", "float32_ref", "object", "pickle"):
        yield f"dtype {dtype}", at(("tensors", "a/kernel", "dtype"), dtype)
    for part in ("0,2:-", "0,3:0,6", "0,9:-", "-:-", "3,5:-", f"0,{2**62}:-", "0,3", "0,3:-:-", "-1,3:-", "a:b"):
        yield f"part {part}", at(("tensors", "p", "parts", 0, "part"), part)
    for name in (
        "other.safetensors",
        "model",
        "model.index.json",
        "a/model.safetensors",
        "model.safetensors\0",
        "..",
        ".",
    ):
        yield f"file {name!r}", at(("files", 0, "name"), name)
    yield "two of a key", at(("tensors", "a/bias"), None)
    yield "the same key", lambda c: c["tensors"].update(x=dict(c["tensors"]["a/kernel"]))
    yield (
        "much out of little",
        lambda c: c["tensors"].update({f"x{i}": dict(c["tensors"]["a/kernel"]) for i in range(1000)}),
    )


def test_indexes_of_our_own_that_lie(tmp_path: Path, bounded: None) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, saved())
    want = content(prefix)
    path = Path(native.index_path(prefix))
    sound = path.read_bytes()
    for what, change in native_changes():
        changed = json.loads(sound)
        change(changed)
        for key in ("headrace_checkpoint", "crc32c", "bytes"):
            del changed[key]
        path.write_bytes(signed(json.dumps(changed)[1:].encode()))
        assert must_fail_or_give(prefix, want, what), what


@pytest.mark.parametrize(
    "rest",
    [
        b'"tensors": ' + b"[" * 100_000,
        b'"tensors": {"a": ' + b"1" * 5000 + b'}, "files": []}',
        b'"tensors": {}, "files": [',
        b'"tensors": [], "files": []}',
        b'"tensors": {}, "files": {}}',
        b'"a": \xff\xfe}',
        b"}",
        b"",
        b'"tensors": {}, "files": [{"name": "model.safetensors", "bytes": NaN}]}',
    ],
    ids=["deep", "a number", "cut", "a list", "an object", "no text", "nothing", "empty", "nan"],
)
def test_json_that_is_no_index(tmp_path: Path, rest: bytes) -> None:
    (tmp_path / "model.index.json").write_bytes(signed(rest))
    with pytest.raises(DataLossError, match=r"model.index.json: .*the file is damaged"):
        checkpoints.open(str(tmp_path / "model"))


def test_data_that_does_not_belong_to_the_index(tmp_path: Path) -> None:
    prefix, other = str(tmp_path / "model"), str(tmp_path / "other")
    for format in FORMATS:
        checkpoints.write(prefix, {"a": np.float32([1, 2]), "b": np.int32([3])}, format)
        checkpoints.write(other, {"a": np.float32([1, 3]), "b": np.int32([3])}, format)
        (mine,), (its,) = ([p for p in checkpoints.files_of(x) if ".index" not in p] for x in (prefix, other))
        os.replace(its, mine)
        with pytest.raises(DataLossError, match="Checksum does not match"):
            checkpoints.open(prefix).read("a")
        assert checkpoints.open(prefix).read("b").tolist() == [3]
        checkpoints.remove(prefix)


# *** paths that are no files ***


@pytest.mark.parametrize("ending", [".index", ".index.json"])
def test_a_pipe_is_not_waited_for(tmp_path: Path, ending: str) -> None:
    os.mkfifo(tmp_path / f"model{ending}")
    with pytest.raises(FailedPreconditionError, match="no regular file"):
        checkpoints.open(str(tmp_path / "model"))


@each_format
def test_data_that_is_a_pipe_or_a_folder_or_not_there(tmp_path: Path, format: str) -> None:
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.zeros(2)}, format)
    data = Path(checkpoints.files_of(prefix)[1])
    data.unlink()
    with pytest.raises(NotFoundError, match=data.name):
        checkpoints.open(prefix).read("a")
    os.mkfifo(data)
    with pytest.raises(FailedPreconditionError, match="no regular file"):
        checkpoints.open(prefix).read("a")
    data.unlink()
    data.mkdir()
    with pytest.raises(FailedPreconditionError, match="no regular file"):
        checkpoints.open(prefix).read("a")


@each_format
def test_a_huge_file_with_nothing_in_it(tmp_path: Path, format: str, bounded: None) -> None:
    """2**42 bytes that take no room on the disk."""
    prefix = str(tmp_path / "model")
    checkpoints.write(prefix, {"a": np.zeros(2)}, format)
    index, data = map(Path, checkpoints.files_of(prefix))
    with data.open("r+b") as file:
        file.truncate(2**42)
    if format == "tensorflow":
        assert checkpoints.open(prefix).read("a").tolist() == [0, 0]
    else:
        with pytest.raises(DataLossError, match="it has 4398046511104 bytes"):
            checkpoints.open(prefix).read("a")
    with index.open("r+b") as file:
        file.truncate(2**42)
    with pytest.raises(DataLossError):
        checkpoints.open(prefix)
