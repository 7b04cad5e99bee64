"""TensorFlow 1's input pipelines, readers, `tf.gfile` and `tf.python_io`."""

from __future__ import annotations

from pathlib import Path

import pytest

import headrace.v1 as tf
from headrace.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    OutOfRangeError,
)
from headrace.v1 import gfile, input, python_io, readers

GRACE = 30.0


def test_a_pipeline_keeps_to_the_collections(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one\ntwo\n")
    with tf.Graph().as_default() as g:
        names = input.string_input_producer([str(tmp_path / "a")], num_epochs=1, shuffle=False)
        key, value = readers.TextLineReader().read(names)
        batch = input.batch([key, value], 2)
        assert [v.name for v in tf.local_variables()] == ["input_producer/limit_epochs/epochs:0"]
        assert not tf.global_variables()
        assert len(g.get_collection(tf.GraphKeys.QUEUE_RUNNERS)) == 2
        shown = [t.name for t in g.get_collection(tf.GraphKeys.SUMMARIES)]
        assert shown == ["input_producer/fraction_of_32_full:0", "batch/fraction_of_32_full:0"]
        assert {"input_producer", "TextLineReaderV2", "ReaderReadV2", "batch/fifo_queue", "batch"} <= {
            op.name for op in g.get_operations()
        }
        with tf.Session() as sess:
            sess.run(tf.local_variables_initializer())
            coord = tf.train.Coordinator()
            threads = tf.train.start_queue_runners(sess, coord)
            assert sess.run(batch)[1].tolist() == [b"one", b"two"]
            with pytest.raises(OutOfRangeError):
                sess.run(batch)
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=GRACE)


def test_a_pipeline_goes_through_a_meta_graph(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        batch = input.batch([input.range_input_producer(4, num_epochs=1, shuffle=False).dequeue()], 2)
        made = tf.train.export_meta_graph()
    with tf.Graph().as_default(), tf.Session() as sess:
        tf.train.import_meta_graph(made)
        sess.run(tf.local_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        assert [sess.run(batch.name).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=GRACE)


@pytest.mark.parametrize("kind", ["", "ZLIB", "GZIP", python_io.TFRecordCompressionType.GZIP])
def test_record_files(tmp_path: Path, kind: object) -> None:
    path = str(tmp_path / "some")
    options = python_io.TFRecordOptions(kind, compression_level=9)
    with python_io.TFRecordWriter(path, options) as out:
        out.write(b"one")
        out.write(b"two")
    assert list(python_io.tf_record_iterator(path, options)) == [b"one", b"two"]
    with tf.Graph().as_default(), tf.Session() as sess:
        q = tf.FIFOQueue(1, tf.string, [()])
        value = readers.TFRecordReader(options=options).read(q)[1]
        sess.run(q.enqueue(path))
        assert sess.run(value) == b"one"
    with pytest.raises(ValueError, match="Not a valid compression_type"):
        python_io.TFRecordOptions("LZ4")


def test_files_and_folders(tmp_path: Path) -> None:
    top = str(tmp_path / "top")
    gfile.MakeDirs(f"{top}/in/side")
    gfile.MakeDirs(f"{top}/in/side")
    with pytest.raises(AlreadyExistsError):
        gfile.MkDir(top)
    with gfile.Open(f"{top}/a.txt", "w") as f:
        f.write("größe\nzwei\n")
    assert gfile.GFile(f"{top}/a.txt", "rb").read() == "größe\nzwei\n".encode()
    with gfile.GFile(f"{top}/a.txt") as f:
        assert f.readline() == "größe\n"
        assert f.readlines() == ["zwei\n"]
        assert f.size() == 13
    with gfile.GFile(f"{top}/a.txt", "ab") as f:
        f.write(b"3")
    assert gfile.Stat(f"{top}/a.txt").length == 14
    gfile.Copy(f"{top}/a.txt", f"{top}/b.txt")
    for act in (gfile.Copy, gfile.Rename):
        with pytest.raises(AlreadyExistsError, match="overwrite=True"):
            act(f"{top}/a.txt", f"{top}/b.txt")
    gfile.Rename(f"{top}/a.txt", f"{top}/b.txt", overwrite=True)
    assert not gfile.Exists(f"{top}/a.txt")
    assert gfile.ListDirectory(top) == ["b.txt", "in"]
    assert gfile.Glob([f"{top}/*.txt", f"{top}/i*"]) == [f"{top}/b.txt", f"{top}/in"]
    assert [names for _, *names in gfile.Walk(top)] == [[["in"], ["b.txt"]], [["side"], []], [[], []]]
    with pytest.raises(FailedPreconditionError, match="DeleteRecursively"):
        gfile.Remove(top)
    gfile.Remove(f"{top}/b.txt")
    gfile.DeleteRecursively(top)
    assert not gfile.IsDirectory(top)
    for gone in (gfile.Remove, gfile.DeleteRecursively, gfile.Stat, gfile.ListDirectory):
        with pytest.raises(NotFoundError):
            gone(top)
    with pytest.raises(NotFoundError):
        gfile.GFile(f"{top}/a").read()
    with pytest.raises(InvalidArgumentError, match="mode"):
        gfile.GFile(top, "x")


def test_is_jpeg() -> None:
    with tf.Session() as sess:
        assert sess.run(tf.image.is_jpeg(b"\xff\xd8\xff and more"))
        assert not sess.run(tf.image.is_jpeg(b"\x89PNG"))
