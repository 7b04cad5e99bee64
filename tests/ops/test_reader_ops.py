"""Readers: pieces of files whose names come from a queue."""

from __future__ import annotations

import gzip
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import (
    CancelledError,
    DataLossError,
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
    UnimplementedError,
)
from headrace.files import records
from headrace.resources.reader import Reader, _message, _parsed
from tests.inside import resources_of
from tests.ops.running import Program


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


def names(p: Program, *files: Any, shared: str = "names", closes: bool = True) -> Any:
    """A queue of names, closed behind the last."""
    q = p.b.FIFOQueueV2(component_types=(dtypes.string,), shapes=((),), shared_name=shared)
    for f in files:
        p.run(p.b.QueueEnqueueV2(q, [str(f)]))
    if closes:
        p.run(p.b.QueueCloseV2(q))
    return q


def everything(p: Program, reader: Any, q: Any) -> list[tuple[str, bytes]]:
    """All pieces, and that there are no more."""
    fetch = list(p.b.ReaderReadV2(reader, q))
    out: list[tuple[str, bytes]] = []
    while True:
        try:
            key, value = p.run(fetch)
        except OutOfRangeError as e:
            if "closed and has insufficient elements" in e.message:
                return out
            raise
        out.append((key.decode().rpartition("/")[2], value))


def counts(p: Program, reader: Any) -> tuple[int, int]:
    produced, completed = p.b.ReaderNumRecordsProducedV2(reader), p.b.ReaderNumWorkUnitsCompletedV2(reader)
    a, b = p.run([produced, completed])
    return int(a), int(b)


def test_lines_of_several_files(p: Program, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"head\none\r\n\ntwo\n")
    (tmp_path / "b").write_bytes(b"head\nthr\ree\r")
    (tmp_path / "empty").write_bytes(b"")
    reader = p.b.TextLineReaderV2(skip_header_lines=1)
    q = names(p, tmp_path / "a", tmp_path / "empty", tmp_path / "b")
    want = [("a:2", b"one"), ("a:3", b""), ("a:4", b"two"), ("b:2", b"thr\ree")]
    assert everything(p, reader, q) == want
    assert counts(p, reader) == (4, 3)


def test_a_file_is_done_with_when_more_is_asked_for(p: Program, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    reader, q = p.b.TextLineReaderV2(), names(p, tmp_path / "a")
    assert p.run(p.b.ReaderReadV2(reader, q)[1]) == b"one"
    assert counts(p, reader) == (1, 0)
    assert everything(p, reader, q) == []
    assert counts(p, reader) == (1, 1)


@pytest.mark.parametrize("encoding", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize(
    ("attrs", "want"),
    [
        ({"record_bytes": 3}, [b"012", b"345", b"678"]),
        ({"record_bytes": 3, "header_bytes": 2, "footer_bytes": 2}, [b"234", b"567"]),
        ({"record_bytes": 3, "hop_bytes": 2}, [b"012", b"234", b"456", b"678"]),
        ({"record_bytes": 2, "hop_bytes": 4, "header_bytes": 1}, [b"12", b"56"]),
        ({"record_bytes": 20}, []),
    ],
)
def test_pieces_of_one_length(p: Program, tmp_path: Path, encoding: str, attrs: Any, want: list[bytes]) -> None:
    import zlib

    pack = {"": bytes, "GZIP": gzip.compress, "ZLIB": zlib.compress}[encoding]
    (tmp_path / "a").write_bytes(pack(b"0123456789"))
    reader = p.b.FixedLengthRecordReaderV2(encoding=encoding, **attrs)
    got = everything(p, reader, names(p, tmp_path / "a"))
    assert got == [(f"a:{i}", x) for i, x in enumerate(want)]


@pytest.mark.parametrize("bad", [{"record_bytes": 0}, {"record_bytes": 3, "hop_bytes": -1}, {"record_bytes": 1 << 40}])
def test_lengths_that_nobody_can_mean(p: Program, tmp_path: Path, bad: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError, match="_bytes must be"):
        p.run(p.b.FixedLengthRecordReaderV2(**bad))


def test_records_and_damage(p: Program, tmp_path: Path) -> None:
    with records.Writer(tmp_path / "a", compression="GZIP") as out:
        for r in (b"one", b"", b"three"):
            out.write(r)
    reader = p.b.TFRecordReaderV2(compression_type="GZIP")
    assert everything(p, reader, names(p, tmp_path / "a")) == [("a:0", b"one"), ("a:19", b""), ("a:35", b"three")]
    (tmp_path / "b").write_bytes(records.framed(b"one") + b"junk that is long enough for a head")
    plain, q = p.b.TFRecordReaderV2(), names(p, tmp_path / "b", shared="more")
    read = p.b.ReaderReadV2(plain, q)[1]
    assert p.run(read) == b"one"
    with pytest.raises(DataLossError, match="corrupted record at 19"):
        p.run(read)
    p.run(p.b.ReaderResetV2(plain))
    assert counts(p, plain) == (0, 0)
    with pytest.raises(OutOfRangeError):
        p.run(read)


def test_whole_files_and_names(p: Program, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\0\1\r\n")
    whole = p.b.WholeFileReaderV2()
    assert everything(p, whole, names(p, tmp_path / "a", tmp_path / "a")) == [("a", b"\0\1\r\n")] * 2
    assert counts(p, whole) == (2, 2)
    same = p.b.IdentityReaderV2()
    assert everything(p, same, names(p, "x", "y", shared="more")) == [("x", b"x"), ("y", b"y")]


def test_a_missing_file_is_an_error_once(p: Program, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"there\n")
    reader, q = p.b.TextLineReaderV2(), names(p, tmp_path / "missing", tmp_path / "a")
    read = p.b.ReaderReadV2(reader, q)[1]
    with pytest.raises(NotFoundError, match="missing"):
        p.run(read)
    assert p.run(read) == b"there"


def test_many_at_a_time_stop_at_the_end_of_a_file(p: Program, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n3\n")
    (tmp_path / "b").write_bytes(b"4\n")
    reader, q = p.b.TextLineReaderV2(), names(p, tmp_path / "a", tmp_path / "b")
    take = p.b.ReaderReadUpToV2(reader, q, np.int64(2))[1]
    assert [p.run(take).tolist() for _ in range(3)] == [[b"1", b"2"], [b"3"], [b"4"]]
    with pytest.raises(OutOfRangeError):
        p.run(take)
    with pytest.raises(InvalidArgumentError, match="num_records must be positive"):
        p.run(p.b.ReaderReadUpToV2(reader, q, np.int64(0)))


def test_state_goes_from_reader_to_reader(p: Program) -> None:
    first, second = p.b.IdentityReaderV2(shared_name="first"), p.b.IdentityReaderV2(shared_name="second")
    q = names(p, "x", "y")
    p.run(p.b.ReaderReadV2(first, q)[0])
    state = p.run(p.b.ReaderSerializeStateV2(first))
    assert state == b"\x08\x01\x10\x01\x18\x01\x22\x01x"
    p.run(p.b.ReaderRestoreStateV2(second, np.array(state, object)))
    assert counts(p, second) == (1, 1)
    for bad in (b"junk", b"\x08", b"\x22\xff\x01x", b"\x10\x01"):
        with pytest.raises(InvalidArgumentError, match="second"):
            p.run(p.b.ReaderRestoreStateV2(second, np.array(bad, object)))
    assert counts(p, second) == (1, 1)
    with pytest.raises(UnimplementedError, match="SerializeState"):
        p.run(p.b.ReaderSerializeStateV2(p.b.TextLineReaderV2()))


@pytest.mark.parametrize("numbers", [(0, 0, 0), (300, 2, 1 << 40)])
def test_states_are_messages(numbers: tuple[int, int, int]) -> None:
    assert _parsed(_message(numbers, b"work" * 50)) == (numbers, b"work" * 50)


def test_queues_that_give_no_names(p: Program) -> None:
    numbers = p.b.FIFOQueueV2(component_types=(dtypes.int32,), shapes=((),))
    p.run(p.b.QueueEnqueueV2(numbers, [1]))
    with pytest.raises(InvalidArgumentError, match="single string component"):
        p.run(p.b.ReaderReadV2(p.b.IdentityReaderV2(), numbers)[0])


def test_readers_of_references(p: Program, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one\n")
    names(p, tmp_path / "a")
    q = p.b.FIFOQueue(component_types=(dtypes.string,), shapes=((),), shared_name="names")
    reader = p.b.TextLineReader()
    assert p.run(p.b.ReaderRead(reader, q)[1]) == b"one"
    assert p.run(p.b.ReaderNumRecordsProduced(reader)) == 1
    p.run(p.b.ReaderReset(reader))
    assert p.run(p.b.ReaderNumRecordsProduced(reader)) == 0


def test_readers_shared_by_a_name_must_be_alike(p: Program) -> None:
    p.run(p.b.TextLineReaderV2(shared_name="r"))
    with pytest.raises(InvalidArgumentError, match=r"Shared reader 'r' has skip_header_lines 0 but .* was 1"):
        p.run(p.b.TextLineReaderV2(shared_name="r", skip_header_lines=1))


def test_who_waits_can_give_up_and_loses_nothing(p: Program) -> None:
    reader, q = p.b.IdentityReaderV2(), names(p, closes=False)
    read = p.b.ReaderReadV2(reader, q)[1]
    with pytest.raises(DeadlineExceededError):
        p.run(read, options=hr.RunOptions(timeout_in_ms=50))
    p.run(p.b.QueueEnqueueV2(q, ["x"]))
    assert p.run(read) == b"x"


def test_closing_the_session_ends_the_wait() -> None:
    program = Program()
    reader, q = program.b.IdentityReaderV2(), names(program, closes=False)
    fetch = program.b.ReaderReadV2(reader, q)[1]
    program.run(reader)
    found: list[BaseException] = []

    def wait() -> None:
        try:
            program.run(fetch)
        except BaseException as e:
            found.append(e)

    t = threading.Thread(target=wait, daemon=True)
    t.start()
    readers = [r for r in resources_of(program.session) if isinstance(r, Reader)]
    for _ in range(10000):
        if readers[0]._line:
            break
        threading.Event().wait(0.001)
    program.session.close()
    t.join(30)
    assert isinstance(found[0], (CancelledError, RuntimeError))


def test_requests_are_served_in_order(p: Program, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"".join(b"%d\n" % i for i in range(200)))
    reader, q = p.b.TextLineReaderV2(), names(p, tmp_path / "a")
    many = [p.b.ReaderReadV2(reader, q)[1] for _ in range(20)]
    got = [int(x) for _ in range(10) for x in p.run(many)]
    assert sorted(got) == list(range(200))
    assert all(sorted(got[i : i + 20]) == list(range(i, i + 20)) for i in range(0, 200, 20))


# *** rows of arrays ***


def rows(path: Path, member: str = "", shape: tuple[int, ...] = (2,), dtype: Any = hr.float32) -> list[Any]:
    with hr.Graph() as g:
        q = hr.FIFOQueue(2, hr.string, [()])
        put, close = q.enqueue(str(path)), q.close()
        row = hr.io.NpyReader(dtype, shape, member).read(q)[1]
    out = []
    with hr.Session(graph=g) as s:
        s.run(put)
        s.run(close)
        while True:
            try:
                out.append(s.run(row).tolist())
            except OutOfRangeError:
                return out


def test_rows_of_arrays(tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "c.npy", x)
    np.save(tmp_path / "f.npy", np.asfortranarray(x))
    np.save(tmp_path / "big.npy", x.astype(">f4"))
    np.savez(tmp_path / "both.npz", x=x, y=-x, big=x.astype(">f4"))
    np.savez_compressed(tmp_path / "packed.npz", x=x)
    for name, member in (("c.npy", ""), ("f.npy", ""), ("big.npy", ""), ("both.npz", "x"), ("both.npz", "big.npy")):
        assert rows(tmp_path / name, member) == x.tolist()
    assert rows(tmp_path / "packed.npz", "x") == x.tolist()
    assert rows(tmp_path / "both.npz", "y") == (-x).tolist()


def test_rows_at_a_time(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5, dtype=np.int16))
    with hr.Graph() as g:
        q = hr.FIFOQueue(2, hr.string, [()])
        put = q.enqueue(str(tmp_path / "a.npy"))
        keys, some = hr.io.NpyReader(hr.int16, ()).read_up_to(q, 3)
    with hr.Session(graph=g) as s:
        s.run(put)
        assert s.run(some).tolist() == [0, 1, 2]
        last_keys, last = s.run([keys, some])
    assert last.tolist() == [3, 4]
    assert last_keys[1].endswith(b"a.npy:4")


class Bomb:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("unpickled"),))


def test_arrays_that_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("objects.npy", np.array([Bomb()], object), allow_pickle=True)
    np.savez("objects.npz", x=np.array([Bomb()], object))
    np.savez("f.npz", x=np.asfortranarray(np.zeros((2, 2), np.float32)))
    np.save("ints.npy", np.zeros((2, 2), np.int64))
    np.save("wide.npy", np.zeros((2, 3), np.float32))
    np.save("scalar.npy", np.float32(1))
    with zipfile.ZipFile("climbs.npz", "w") as z:
        z.writestr("../../up.npy", b"x")
    np.save("whole.npy", np.zeros((2, 2), np.float32))
    whole = Path("whole.npy").read_bytes()
    Path("torn.npy").write_bytes(whole[:-3])
    Path("lies.npy").write_bytes(whole.replace(b"(2, 2), }  ", b"(99999, 2), }")[:200])
    Path("junk.npy").write_bytes(b"no array at all")
    for name, member, error, match in (
        ("objects.npy", "", InvalidArgumentError, "never unpickled"),
        ("objects.npz", "x", InvalidArgumentError, "never unpickled"),
        ("f.npz", "x", InvalidArgumentError, "Fortran"),
        ("f.npz", "", InvalidArgumentError, "say which member"),
        ("f.npz", "y", NotFoundError, "has no member 'y'; it has x"),
        ("ints.npy", "", InvalidArgumentError, "int64, wanted is float32"),
        ("wide.npy", "", InvalidArgumentError, r"\[2,3\], wanted are rows of \[2\]"),
        ("scalar.npy", "", InvalidArgumentError, "wanted are rows"),
        ("climbs.npz", "../../up", DataLossError, "climbs"),
        ("climbs.npz", "up", NotFoundError, "no member"),
        ("torn.npy", "", DataLossError, "torn"),
        ("lies.npy", "", DataLossError, "lies"),
        ("junk.npy", "", DataLossError, "junk"),
        ("missing.npy", "", NotFoundError, "missing"),
    ):
        with pytest.raises(error, match=match):
            rows(tmp_path / name, member)
    assert not Path("unpickled").exists()
    assert not (tmp_path.parent / "up.npy").exists()
