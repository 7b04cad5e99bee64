"""The writer of event files: no event is lost or out of order.

Failures are reported, and no thread waits for ever.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import pb
from headrace.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    GraphError,
    HeadraceWarning,
    InvalidArgumentError,
    UnimplementedError,
    UnknownError,
)
from headrace.files import events, summaries
from headrace.train import event_writer
from headrace.train.event_writer import FileWriter, FileWriterCache
from headrace.v1 import summary as v1

LONG = 60.0  # seconds that only a failing test waits


def steps(path: str, torn: str = "error") -> list[int]:
    return [e.step for e in events.read(path, torn) if not e.file_version]


def values(path: str) -> list[Any]:
    return [v for e in events.read(path) for v in e.summary.value]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the thread stop before it writes, until `free` is set.

    `reached` is set when the thread has stopped.
    """

    class Held:
        def __init__(self) -> None:
            self.free, self.reached = threading.Event(), threading.Event()
            self.error: Exception | None = None

    held, write = Held(), events.Writer.write

    def slow(self: events.Writer, *serialized: bytes) -> None:
        if threading.current_thread().name == "headrace-events":
            held.reached.set()
            assert held.free.wait(LONG)
            if held.error is not None:
                raise held.error
        write(self, *serialized)

    monkeypatch.setattr(events.Writer, "write", slow)
    yield held
    held.free.set()


# *** the thread ***


def test_what_is_added_is_there_in_order_once_it_is_closed(tmp_path: Path) -> None:
    with FileWriter(tmp_path, max_queue=3) as writer:
        for step in range(100):
            writer.scalar("loss", step / 2, step)
    assert steps(writer.path) == list(range(100))
    assert [v.simple_value for v in values(writer.path)] == [s / 2 for s in range(100)]


def test_threads_lose_nothing(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, max_queue=2)
    threads = [
        threading.Thread(target=lambda k=k: [writer.scalar("x", k, step) for step in range(50)])  # type: ignore[misc]
        for k in range(4)
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    writer.close()
    found = [(v.simple_value, e.step) for e in events.read(writer.path) for v in e.summary.value]
    assert sorted(found) == [(k, step) for k in range(4) for step in range(50)]
    for k in range(4):
        assert [step for of, step in found if of == k] == list(range(50))


def test_flushed_events_can_be_read_and_others_wait(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:
        writer.scalar("loss", 1.0, 1)
        writer.flush()
        assert steps(writer.path) == [1]
        writer.flush()
        writer.scalar("loss", 1.0, 2)
    assert steps(writer.path) == [1, 2]


def test_without_delay_events_are_written_as_they_come(tmp_path: Path) -> None:
    with FileWriter(tmp_path, flush_secs=0) as writer:
        writer.scalar("loss", 1.0, 1)
        while steps(writer.path, "end") != [1]:  # a failing test runs into its time limit
            threading.Event().wait(0.01)


def test_who_adds_waits_while_the_queue_is_full(tmp_path: Path, held: Any) -> None:
    writer = FileWriter(tmp_path, max_queue=2, flush_secs=0)
    writer.scalar("loss", 0, 0)
    assert held.reached.wait(LONG)  # one is being written, two may wait
    writer.scalar("loss", 0, 1)
    writer.scalar("loss", 0, 2)
    added = threading.Event()
    adder = threading.Thread(target=lambda: (writer.scalar("loss", 0, 3), added.set()))
    adder.start()
    assert not added.wait(0.05)
    held.free.set()
    adder.join(LONG)
    writer.close()
    assert steps(writer.path) == [0, 1, 2, 3]


def test_a_wait_has_an_end(tmp_path: Path, held: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = FileWriter(tmp_path, max_queue=1, flush_secs=0)
    writer.scalar("loss", 0, 0)
    assert held.reached.wait(LONG)
    writer.scalar("loss", 0, 1)
    monkeypatch.setattr(event_writer, "WAIT_SECONDS", 0.01)
    for call in (lambda: writer.scalar("loss", 0, 2), writer.flush, writer.close):
        with pytest.raises(DeadlineExceededError, match=r"0\.01 seconds"):
            call()


@pytest.mark.parametrize(
    ("error", "seen"), [(DeadlineExceededError("slow"), DeadlineExceededError), (OSError(28, "full"), UnknownError)]
)
def test_what_the_thread_fails_with_reaches_every_later_call(
    tmp_path: Path, held: Any, error: Exception, seen: type[Exception]
) -> None:
    writer = FileWriter(tmp_path, flush_secs=0)
    held.error = error
    held.free.set()
    writer.scalar("loss", 0, 0)
    with pytest.raises(seen, match=r"events could not be written, and are lost: .*reopen") as caught:
        writer.flush()
    assert caught.value.__cause__ is error
    with pytest.raises(seen):
        writer.scalar("loss", 0, 1)
    held.error = None
    before = writer.path
    writer.reopen()
    writer.scalar("loss", 0, 2)
    writer.close()
    assert writer.path != before
    assert (steps(before), steps(writer.path)) == ([], [2])


def test_a_closed_writer_refuses_until_it_is_reopened(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path, filename_suffix=".x")
    writer.reopen()  # does nothing
    first = writer.path
    writer.scalar("loss", 0, 0)
    writer.close()
    writer.close()
    writer.flush()
    with pytest.raises(FailedPreconditionError, match=r"is closed; call reopen\(\)"):
        writer.scalar("loss", 0, 1)
    writer.reopen()
    writer.scalar("loss", 0, 2)
    writer.close()
    assert steps(first) == [0]
    assert steps(writer.path) == [2]
    assert events.files_in(tmp_path) == [first, writer.path]
    assert first.endswith(".0000.x")


@pytest.mark.system
def test_a_writer_that_is_forgotten_is_closed(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    writer.scalar("loss", 0, 7)
    path = writer.path
    del writer
    gc.collect()
    assert steps(path) == [7]


def test_garbage_may_be_collected_by_the_thread_that_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, write = FileWriter(tmp_path, flush_secs=0), events.Writer.write

    def collect(self: events.Writer, *serialized: bytes) -> None:
        writer._worker.close()  # as for a writer that is garbage-collected
        write(self, *serialized)

    monkeypatch.setattr(events.Writer, "write", collect)
    writer.scalar("loss", 0, 7)
    writer.close()
    assert steps(writer.path) == [7]


@pytest.mark.system
def test_a_program_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom headrace.train.event_writer import FileWriter\n"
        "writer = FileWriter(sys.argv[1])\nfor i in range(5): writer.scalar('x', i, i)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert steps(events.files_in(tmp_path)[0]) == [0, 1, 2, 3, 4]


@pytest.mark.system
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_needs_a_file_of_its_own(tmp_path: Path) -> None:
    writer = FileWriterCache.get(tmp_path)
    writer.scalar("loss", 0, 0)
    child = os.fork()
    if not child:
        code = 1
        signal.alarm(30)  # the end of a process that hangs
        try:
            try:
                writer.scalar("loss", 0, 1)
            except FailedPreconditionError as e:
                if "reopen" in str(e) and FileWriterCache.get(tmp_path) is not writer:
                    writer.reopen()
                    writer.scalar("loss", 0, 2)
                    writer.close()
                    code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.scalar("loss", 0, 3)
    FileWriterCache.clear()
    assert steps(writer.path) == [0, 3]
    assert sorted(s for p in events.files_in(tmp_path) for s in steps(p)) == [0, 2, 3]


def test_the_folder_of_a_writer_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(hr.errors.OpError):
        FileWriter(tmp_path / "file")
    with pytest.raises(ValueError, match="max_queue must be positive"):
        FileWriter(tmp_path, max_queue=0)


# *** additions ***


def test_summaries_of_operations_and_of_others(tmp_path: Path) -> None:
    data = summaries.scalars([b"loss"], [0.5])
    with FileWriter(tmp_path) as writer:
        for i, given in enumerate(
            (data, np.array(data, object), np.array([data], object), pb.Summary.FromString(data))
        ):
            writer.add_summary(given, np.int64(i))
        writer.add_summary(data)
        with pytest.raises(InvalidArgumentError, match="no Summary message"):
            writer.add_summary(b"\xff", 1)
        with pytest.raises(TypeError, match="run the tensor first"):
            writer.add_summary("text", 1)
    assert steps(writer.path) == [0, 1, 2, 3, 0]
    assert all(v.simple_value == 0.5 for v in values(writer.path))


def test_a_note_on_a_tag_is_told_once_a_file(tmp_path: Path) -> None:
    writer = FileWriter(tmp_path)
    for step, tag in enumerate(("a", "b", "a")):
        writer.text(tag, "x", step)
    writer.close()
    first = writer.path
    writer.reopen()
    given = summaries.read(summaries.tensor(b"", b"a", metadata=summaries.metadata("text")))
    writer.add_summary(given, 4)
    writer.add_summary(given, 5)
    writer.close()
    assert [v.HasField("metadata") for v in values(first)] == [True, True, False]
    assert [v.HasField("metadata") for v in values(writer.path)] == [True, False]
    assert given.value[0].HasField("metadata")  # the caller's message is as it was


def test_values_at_hand(tmp_path: Path) -> None:
    with hr.Graph(), FileWriter(tmp_path) as writer:  # independent of the current graph
        writer.scalar("any text: it's free", np.float64(1.5), 0)
        writer.histogram("h", np.arange(10), 0)
        writer.image("one", np.zeros((2, 3)), 0)
        writer.image("two", np.zeros((2, 3, 4, 1), np.uint8), 0)
        writer.audio("tone", np.zeros(4), 8000, 0)
        writer.text("words", ["a", "b"], 0)
        for wrong, call in (
            ("Nan in summary histogram", lambda: writer.histogram("h", [np.nan], 0)),
            ("Tensor must be 4-D", lambda: writer.image("i", np.zeros(3), 0)),
            ("Tensor must be 4-D", lambda: writer.image("i", np.float64(3), 0)),
            ("Tensor must be 3-D or 2-D", lambda: writer.audio("a", np.zeros((1, 2, 3)), 1, 0)),
        ):
            with pytest.raises(InvalidArgumentError, match=wrong):
                call()
    found = {v.tag: v for v in values(writer.path)}
    assert list(found) == ["any text: it's free", "h", "one", "two/0", "two/1", "tone", "words"]
    assert found["h"].histo.sum == 45
    assert (found["one"].image.height, found["two/1"].image.width) == (2, 4)
    assert found["tone"].audio.length_frames == 4
    assert list(found["words"].tensor.string_val) == [b"a", b"b"]


def test_an_eager_value_is_a_value(tmp_path: Path) -> None:
    with FileWriter(tmp_path) as writer:
        writer.scalar("loss", hr.constant(2.0) * 3, 0)
        writer.histogram("h", hr.constant([1.0, 2.0]), 0)
    loss, histo = values(writer.path)
    assert (loss.simple_value, histo.histo.num) == (6.0, 2.0)


def test_a_graph_is_there_as_it_can_be_drawn(tmp_path: Path) -> None:
    with hr.Graph() as g:
        hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0], name="count")
    with FileWriter(tmp_path, g) as writer:
        writer.add_graph(g, 3, form="structured")
        writer.add_graph(g.as_graph_def(), 4)
        writer.add_graph(g.as_graph_def().SerializeToString(), 5)
        with pytest.raises(TypeError, match="must be bytes, text or a GraphDef"):
            writer.add_graph(3)
        with pytest.raises(GraphError, match="not a GraphDef"):
            writer.add_graph(b"\xff")
    found = [(e.step, pb.GraphDef.FromString(e.graph_def)) for e in events.read(writer.path) if e.graph_def]
    assert [step for step, _ in found] == [0, 3, 4, 5]
    kinds: list[set[str]] = [{n.op for n in message.node} for _, message in found]
    assert {"Merge", "NextIteration"} <= kinds[0]
    assert all(k & {"While", "StatelessWhile"} and "Merge" not in k for k in kinds[1:])
    assert all("_output_shapes" in n.attr for n in found[0][1].node if n.op == "Merge")


def test_sessions_and_other_messages(tmp_path: Path) -> None:
    log = events.SessionLog(status=events.SessionLog.CHECKPOINT, checkpoint_path="model-3")
    with FileWriter(tmp_path) as writer:
        writer.add_session_log(log, 3)
        writer.add_meta_graph(pb.MetaGraphDef(), 4)
        writer.add_event(events.Event(wall_time=1.0, step=5))
        writer.add_event(events.event(1.0, 6))
        with pytest.raises(TypeError, match="expected a message or its bytes, got int"):
            writer.add_session_log(3)
        with pytest.raises(InvalidArgumentError, match="1 bytes that are no SessionLog message"):
            writer.add_session_log(b"\xff")
        with pytest.raises(InvalidArgumentError, match="1 bytes that are no Event message"):
            writer.add_event(b"\xff")
    found = list(events.read(writer.path))[1:]
    assert [e.step for e in found] == [3, 4, 5, 6]
    assert found[0].session_log == log
    assert found[1].WhichOneof("what") == "meta_graph_def"


def test_what_a_run_took(tmp_path: Path) -> None:
    with hr.Graph() as g:
        y = hr.constant(1.0, name="a") + hr.placeholder(hr.float32, (), name="b")
    metadata = hr.RunMetadata()
    options = hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE)
    hr.Session(graph=g).run(y, {"b:0": 1.0}, options=options, run_metadata=metadata)
    with FileWriter(tmp_path) as writer:
        writer.add_run_metadata(metadata, "first", 3)
        with pytest.raises(ValueError, match="already used for this event type: 'first'"):
            writer.add_run_metadata(metadata, "first", 4)
        writer.add_run_metadata(b"", "second")
    first, second = (e.tagged_run_metadata for e in list(events.read(writer.path))[1:])
    assert (first.tag, second.tag) == ("first", "second")
    assert y.op.name.encode() in first.run_metadata


def test_the_cache_has_one_writer_for_a_folder(tmp_path: Path) -> None:
    one = FileWriterCache.get(tmp_path / "a")
    assert FileWriterCache.get(str(tmp_path / "a")) is one
    assert FileWriterCache.get(tmp_path / "b") is not one
    one.scalar("loss", 0, 0)
    FileWriterCache.clear()
    assert steps(one.path) == [0]
    assert FileWriterCache.get(tmp_path / "a") is not one
    FileWriterCache.clear()


# *** TensorFlow 1's ***


@pytest.mark.filterwarnings("error")
def test_a_program_of_tensorflow_1(tmp_path: Path) -> None:
    with tf.Graph().as_default() as g, tf.Session() as sess:
        x = tf.placeholder(tf.float32, (2,), name="x")
        v1.scalar("loss", tf.reduce_sum(x))
        v1.histogram("x_values", x, collections=["mine"])
        merged = v1.merge_all()
        assert g.get_collection(tf.GraphKeys.SUMMARIES) == [g.get_tensor_by_name("loss:0")]
        assert len(g.get_collection("mine")) == 1
        assert v1.merge_all("none") is None
        assert v1.merge_all("mine", scope="other") is None
        v1.merge([merged], collections=["mine"])
        assert len(g.get_collection("mine")) == 2
        writer = v1.FileWriter(tmp_path, sess.graph)
        writer.add_summary(sess.run(merged, {x: [1, 2]}), 1)
        writer.close()
    found = list(v1.summary_iterator(writer.path))
    assert [e.WhichOneof("what") for e in found] == ["file_version", "graph_def", "meta_graph_def", "summary"]
    assert pb.MetaGraphDef.FromString(found[2].meta_graph_def).graph_def == pb.GraphDef.FromString(found[1].graph_def)
    assert (found[3].step, found[3].summary.value[0].simple_value) == (1, 3.0)


def test_a_closed_writer_of_tensorflow_1_warns(tmp_path: Path) -> None:
    writer = v1.FileWriter(tmp_path)
    writer.close()
    with pytest.warns(HeadraceWarning, match="closed FileWriter"):
        writer.add_summary(summaries.scalars([b"a"], [1]), 1)
    assert steps(writer.path) == []


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (
            lambda w, folder: v1.FileWriter(folder, session=SimpleNamespace(sess_str="headrace://a:1")),
            UnimplementedError,
        ),
        (lambda w, folder: w.add_graph(), ValueError),
        (lambda w, folder: w.add_graph(b"", graph_def=b""), ValueError),
    ],
)
def test_what_tensorflow_1_has_and_we_have_not(
    tmp_path: Path, make: Callable[[Any, Path], Any], error: type[Exception]
) -> None:
    with v1.FileWriter(tmp_path) as writer, pytest.raises(error):
        make(writer, tmp_path)


def test_descriptions_are_read_from_the_node() -> None:
    with hr.Graph() as g:
        hr.raw_ops.TensorSummary(tensor=hr.constant(1), description='{"typeHint": "plot"}', name="s")
        hr.raw_ops.TensorSummary(tensor=hr.constant(1), description="{", name="wrong")
    nodes = {n.name: n for n in g.as_graph_def().node}
    assert v1.get_summary_description(nodes["s"]).type_hint == "plot"
    with pytest.raises(ValueError, match="Can't get_summary_description on Const"):
        v1.get_summary_description(nodes["s/tensor"] if "s/tensor" in nodes else nodes["Const"])
    with pytest.raises(ValueError, match="no SummaryDescription as JSON"):
        v1.get_summary_description(nodes["wrong"])
