"""Summaries and event files against TensorFlow.

The messages are the same bytes, and each reads the other's files.
"""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OPERATIONS = '''
import inspect, io
import numpy as np
import tensorflow as tf
import headrace as hr
from headrace import pb
from PIL import Image

rng = np.random.default_rng(7)
tried = 0


def both(type, *args, **attrs):
    """The summary that headrace makes and the one that TensorFlow makes."""
    function = getattr(tf.raw_ops, type)
    given = dict(zip(inspect.signature(function).parameters, args))
    theirs = {k: tf.make_tensor_proto(v) if k == "bad_color" else v for k, v in attrs.items()}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        wanted = session.run(function(**given, **theirs, name="node"))
    with hr.Graph() as g:
        made = getattr(hr.raw_ops, type)(**given, **attrs, name="node")
    with hr.Session(graph=g) as session:
        return session.run(made), wanted


def same(type, *args, **attrs):
    global tried
    tried += 1
    got, wanted = both(type, *args, **attrs)
    assert got == wanted, (type, args, attrs, pb.Summary.FromString(got), pb.Summary.FromString(wanted))


def same_pixels(*args, **attrs):
    global tried
    tried += 1
    got, wanted = (pb.Summary.FromString(data) for data in both("ImageSummary", *args, **attrs))
    for value, other in zip(got.value, wanted.value, strict=True):
        ours, theirs = (np.array(Image.open(io.BytesIO(v.image.encoded_image_string))) for v in (value, other))
        np.testing.assert_array_equal(ours, theirs, err_msg=str((args[1].dtype, args[1].shape, attrs)))
        value.image.encoded_image_string = other.image.encoded_image_string = b""
    assert got == wanted


tags = np.array([["a", "b"], ["c", "d"], ["e", "f"]])
for d in (np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8):
    x = (rng.normal(size=(3, 2)) * 100).astype(d)
    same("ScalarSummary", tags, x)
    same("HistogramSummary", "h", x)
    same("HistogramSummary", "h", (rng.normal(size=1000) * 1e3).astype(d))
    same("HistogramSummary", "h", np.zeros(0, d))
    same("TensorSummaryV2", "t", x, b"\\x0a\\x06\\x0a\\x04text")
    same("TensorSummaryV2", "t", x, b"")
    same("TensorSummary", x)
    same("TensorSummary", np.zeros(4, d))
same("ScalarSummary", "a", np.float64(1e300))
same("ScalarSummary", "a", np.int64(2**62 + 12345678901))
edges = [1e-12, -1e-12, 0.0, -0.0, 1e20, -1e20, 1e300, -1e300, 1.1e-12, 5e-13]
same("HistogramSummary", "h", np.array(edges))
same("HistogramSummary", "h", rng.normal(size=300000) * 10.0 ** rng.integers(-14, 22, 300000))
same("TensorSummaryV2", "t", np.array(["a", "bb"]), b"")
same("MergeSummary", [b"\\x0a\\x03\\x0a\\x01a", b"\\x0a\\x03\\x0a\\x01b"])
for shape in ((2, 5), (2, 7, 2), (4, 3, 1), (1, 100)):
    x = rng.uniform(-1.3, 1.3, shape).astype(np.float32)
    x.flat[:2] = 0.5 / 2**15, -0.5 / 2**15
    for most in (1, 3):
        for rate in (8000.0, 44100.5, 0.3, 2.5):
            same("AudioSummaryV2", "s", x, np.float32(rate), max_outputs=most)
for d in (np.uint8, np.float16, np.float32, np.float64):
    for depth in (1, 3, 4):
        for low in (0,) if d is np.uint8 else (0, -1):
            scale = rng.choice([1e-8, 1e-3, 0.3, 1, 255.0])
            x = (rng.uniform(low, 1, (4, 20, 30, depth)) * (256 if d is np.uint8 else scale)).astype(d)
            if d is not np.uint8:
                x[0, 3, 4, 0], x[1, 5, 6, 0], x[2] = np.nan, np.inf, 0
            same_pixels("i", x, max_images=int(rng.choice([1, 3, 9])))
same_pixels("i", np.full((1, 2, 2, 1), np.nan, np.float32))
same_pixels("i", np.full((1, 2, 2, 3), 1e300), bad_color=np.array([1, 2, 3], np.uint8))
same_pixels("i", np.zeros((0, 2, 2, 3)))
print(tried)
'''

PROGRAM = '''
import sys
import numpy as np
import tensorflow
import headrace.v1 as hr
import headrace.v1.summary as hr_summary


def program(tf, summary):
    """The graph of a program, as (names of the operations, the bytes of its summary)."""
    with tf.Graph().as_default() as g, tf.Session() as session:
        x = tf.placeholder(tf.float32, (2, 2), name="x")
        with tf.name_scope("net"):
            summary.scalar("loss", tf.reduce_sum(x))
            summary.scalar("loss", 2.5, family="all of it")
            summary.histogram("/x y:z", x)
        summary.image("picture", tf.reshape(x, [1, 2, 2, 1]), max_outputs=1)
        summary.audio("tone", x, 8000.0, max_outputs=2)
        summary.text("note", tf.constant("so *it* is"))
        summary.tensor_summary("t", x, summary_description="rows", display_name="T", family="f")
        some = summary.merge([summary.scalar("late", 1.0, collections=["mine"])], name="some thing")
        merged = summary.merge_all()
        data = session.run(merged, {x: np.arange(4).reshape(2, 2)})
        return [op.name for op in g.get_operations()], data, [t.name for t in g.get_collection("mine")]


ours, theirs = program(hr, hr_summary), program(tensorflow.compat.v1, tensorflow.compat.v1.summary)
assert ours[0] == theirs[0], (ours[0], theirs[0])
assert ours[2] == theirs[2]
from headrace import pb
got, wanted = (pb.Summary.FromString(data) for _, data, _ in (ours, theirs))
for summary in (got, wanted):
    for value in summary.value:
        value.image.encoded_image_string = b""
assert got == wanted, (got, wanted)
'''

FILES = """
import sys
import numpy as np
import tensorflow
import headrace as hr
from headrace.files import events
from headrace.train.event_writer import FileWriter

tf = tensorflow.compat.v1
folder = sys.argv[1]

with hr.Graph() as g:
    x = hr.placeholder(hr.float32, (4,), name="x")
    _, y = hr.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, x))
    merged = hr.summary.merge(
        [
            hr.summary.scalar("sum", hr.reduce_sum(y)),
            hr.summary.histogram("y", y),
            hr.summary.image("picture", hr.reshape(y, [1, 2, 2, 1])),
            hr.summary.text("note", "hello"),
        ]
    )
metadata = hr.RunMetadata()
options = hr.RunOptions(trace_level=hr.RunOptions.FULL_TRACE)
with FileWriter(folder, g) as writer, hr.Session(graph=g) as session:
    for step in range(3):
        data = session.run(merged, {x: [0, 1, 2, step]}, options=options, run_metadata=metadata)
        writer.add_summary(data, step)
    writer.add_run_metadata(metadata, "a run", 2)
    writer.add_session_log(events.SessionLog(status=events.SessionLog.STOP, msg="done"), 3)

found = list(tf.train.summary_iterator(writer.path))
assert [e.WhichOneof("what") for e in found] == [
    *("file_version", "graph_def", "summary", "summary", "summary", "tagged_run_metadata", "session_log")
]
assert [e.summary.value[0].simple_value for e in found[2:5]] == [24.0, 32.0, 40.0]
assert found[4].summary.value[1].histo.max == 16.0
assert tensorflow.image.decode_png(found[4].summary.value[2].image.encoded_image_string).shape == (2, 2, 1)
assert found[2].summary.value[3].metadata.plugin_data.plugin_name == "text"
assert not found[3].summary.value[3].HasField("metadata")
assert found[6].session_log.msg == "done"
with tf.Graph().as_default() as graph, tf.Session() as session:  # the graph is one that runs
    tf.import_graph_def(tf.GraphDef.FromString(found[1].graph_def), name="")
    name = next(n.name for n in tf.GraphDef.FromString(found[1].graph_def).node if n.op == "MergeSummary")
    again = tf.Summary.FromString(session.run(name + ":0", {"x:0": [0, 1, 2, 1]}))
    assert again.value[:2] == found[3].summary.value[:2]
took = tf.RunMetadata.FromString(found[5].tagged_run_metadata.run_metadata)
stats = metadata.step_stats
assert len(took.step_stats.dev_stats) == len(stats.dev_stats) == 1
assert took.step_stats.dev_stats[0].device == stats.dev_stats[0].device
for theirs, ours in zip(took.step_stats.dev_stats[0].node_stats, stats.dev_stats[0].node_stats, strict=True):
    for field in ("node_name", "all_start_micros", "all_end_rel_micros", "timeline_label", "all_end_rel_nanos"):
        assert getattr(theirs, field) == getattr(ours, field), field
    assert [m.total_bytes for m in theirs.memory] == [m.total_bytes for m in ours.memory]
    assert [o.tensor_description.allocation_description.requested_bytes for o in theirs.output] == [
        o.tensor_description.allocation_description.requested_bytes for o in ours.output
    ]

other = folder + "/theirs"
with tf.Graph().as_default() as graph:
    writer = tf.summary.FileWriter(other, graph)
    summary = tf.Summary(value=[tf.Summary.Value(tag="loss", simple_value=1.5)])
    writer.add_summary(summary, 7)
    writer.add_summary(tf.Summary(), 8)
    writer.close()
(path,) = events.files_in(other)
ours, theirs = list(events.read(path)), list(tf.train.summary_iterator(path))
assert [e.SerializeToString() for e in ours] == [e.SerializeToString() for e in theirs]
assert ours[-2].summary.value[0].simple_value == 1.5 and ours[-2].step == 7

again = FileWriter(folder + "/again")  # messages of TensorFlow's are taken as they are
again.add_summary(summary, 9)
again.add_event(theirs[-2])
again.close()
assert [e.step for e in tf.train.summary_iterator(again.path)] == [0, 9, 7]
"""

TENSORBOARD = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from headrace.train.event_writer import FileWriter
import headrace as hr

with hr.Graph() as g:
    hr.while_loop(lambda i: i < 3, lambda i: i + 1, [0], name="count")
with FileWriter(sys.argv[1], g) as writer:
    for step in range(3):
        writer.scalar("loss", 1 / (step + 1), step)
        writer.histogram("h", [1.0, 2.0], step)
        writer.image("i", [[0.0, 1.0]], step)
        writer.text("t", "text", step)
read = EventAccumulator(sys.argv[1])
read.Reload()
assert [e.step for e in read.Scalars("loss")] == [0, 1, 2]
assert read.Histograms("h")[0].histogram_value.num == 2
assert read.Images("i")[0].width == 2
assert read.Tensors("t")[0].tensor_proto.string_val == [b"text"]
assert any(n.name == "count/NextIteration" for n in read.Graph().node)
"""


def program(source: str, *arguments: str) -> str:
    return f"import sys; sys.argv[1:] = {list(arguments)!r}\n{source}"


def test_operations_give_the_same_bytes(run_python: Callable[[str], bytes]) -> None:
    assert json.loads(run_python(OPERATIONS)) > 100


def test_a_program_makes_the_same_operations_and_summaries(run_python: Callable[[str], bytes]) -> None:
    run_python(PROGRAM)


def test_each_reads_the_files_of_the_other(run_python: Callable[[str], bytes], tmp_path: Path) -> None:
    run_python(program(FILES, str(tmp_path)))


def test_tensorboard_reads_the_files(run_python: Callable[[str], bytes], tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        pytest.skip("tensorboard is not installed")
    run_python(program(TENSORBOARD, str(tmp_path)))
