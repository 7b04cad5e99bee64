"""Event files: events are read as written; damage and missing ends are reported."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from headrace.errors import DataLossError, FailedPreconditionError, HeadraceError, InvalidArgumentError, NotFoundError
from headrace.files import events, records, run_metadata, summaries
from headrace.metadata.step_stats import DeviceStepStats, NodeExecStats, StepStats


def written(folder: Path, n: int = 3) -> str:
    with events.Writer(folder, clock=lambda: 1234.5) as out:
        for i in range(n):
            out.write(events.event(i + 0.5, i, summary=summaries.scalars([b"loss"], [i * 2])))
    return out.path


def numbers(path: str, torn: str = "error") -> list[tuple[int, float]]:
    return [(e.step, e.summary.value[0].simple_value) for e in events.read(path, torn) if e.HasField("summary")]


def test_a_file_begins_with_its_version_and_holds_what_was_written(tmp_path: Path) -> None:
    path = written(tmp_path)
    first, *others = events.read(path)
    assert (first.file_version, first.wall_time) == ("brain.Event:2", 1234.5)
    assert [e.wall_time for e in others] == [0.5, 1.5, 2.5]
    assert numbers(path) == [(0, 0.0), (1, 2.0), (2, 4.0)]


def test_names_are_of_the_time_and_never_of_this_machine(tmp_path: Path) -> None:
    paths = [written(tmp_path), written(tmp_path)]
    with events.Writer(tmp_path, suffix=".more", host="there", clock=lambda: 7) as out:
        paths.append(out.path)
    assert [os.path.basename(p) for p in paths] == [
        "events.out.tfevents.0000001234.localhost.0000",
        "events.out.tfevents.0000001234.localhost.0001",
        "events.out.tfevents.0000000007.there.0000.more",
    ]
    (tmp_path / "tfevents.folder").mkdir()
    (tmp_path / "other").write_bytes(b"")
    assert events.files_in(tmp_path) == [paths[2], paths[0], paths[1]]
    with pytest.raises(NotFoundError):
        events.files_in(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["/../x", "a/b", "\0"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    for arguments in ({"suffix": name}, {"host": name}):
        with pytest.raises(InvalidArgumentError, match="must be part of a file's name"):
            events.Writer(tmp_path, **arguments)
    assert not list(tmp_path.iterdir())


def test_what_is_written_can_be_read_at_once_and_nothing_after_the_end(tmp_path: Path) -> None:
    out = events.Writer(tmp_path / "new" / "folder")
    out.write(events.event(1.0, 5, summary=summaries.scalars([b"loss"], [3.0])))
    assert numbers(out.path) == [(5, 3.0)]
    out.close()
    out.close()
    with pytest.raises(FailedPreconditionError, match="closed"):
        out.write(b"")


def test_a_file_cut_anywhere_gives_the_events_before_the_cut(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = Path(path).read_bytes()
    ends = [0]
    for data in records.read(path):
        ends.append(ends[-1] + len(data) + 16)
    for n in range(len(whole)):
        Path(path).write_bytes(whole[:n])
        there = sum(1 for e in ends[1:] if e <= n)
        assert len(list(events.read(path, "end"))) == there
        if n in ends:
            assert len(list(events.read(path))) == there
        else:
            with pytest.raises(DataLossError, match="truncated record"):
                list(events.read(path))


def test_a_changed_byte_anywhere_is_found(tmp_path: Path) -> None:
    path = written(tmp_path, 1)
    whole = Path(path).read_bytes()
    for i in range(len(whole)):
        Path(path).write_bytes(whole[:i] + bytes([whole[i] ^ 0x10]) + whole[i + 1 :])
        with pytest.raises(DataLossError):
            list(events.read(path, "end"))


@pytest.mark.parametrize("record", [b"\xff\xff\xff", b"\x1a\xff\xff\xff\xff\x0f", b"\x2a\x03\x0a\x01"])
def test_records_that_are_no_events_are_refused(tmp_path: Path, record: bytes) -> None:
    with records.Writer(tmp_path / "tfevents") as out:
        out.write(record)
    with pytest.raises(DataLossError, match="no Event message"):
        list(events.read(tmp_path / "tfevents"))


def test_reading_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="torn must be"):
        next(events.read(written(tmp_path), "never"))
    with pytest.raises(NotFoundError):
        next(events.read(tmp_path / "nowhere"))


def test_too_many_files_in_one_second_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_MOST_NAMES", 2)
    written(tmp_path), written(tmp_path)
    with pytest.raises(HeadraceError, match="2 event files begun in one second"):
        written(tmp_path)


def test_a_record_of_a_run_is_the_message_of_its_fields() -> None:
    node = NodeExecStats(node_name="y", all_start_micros=300, timeline_label="y = Add()")
    stats = StepStats(dev_stats=[DeviceStepStats(device="/cpu", node_stats=[node])])

    class Metadata:
        ops = ("y",)
        step_stats = stats
        partition_graphs = ()

    encoded = b"\x0a\x01y" + b"\x10\xac\x02" + b"\x42\x09y = Add()"
    device = b"\x0a\x04/cpu" + b"\x12" + bytes([len(encoded)]) + encoded
    inner = b"\x0a" + bytes([len(device)]) + device
    assert run_metadata.encode(Metadata()) == b"\x0a" + bytes([len(inner)]) + inner  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        (b"\xff", InvalidArgumentError, "1 bytes that are no Summary message"),
        ("text", TypeError, "run the tensor first"),
        (None, TypeError, "NoneType"),
    ],
)
def test_what_is_no_summary_is_refused(given: object, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        summaries.read(given)
