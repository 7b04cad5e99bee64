"""Files in folders that are missing or are files: TensorFlow 1's classes of errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf


@pytest.fixture
def session() -> Any:
    tf.reset_default_graph()
    v = tf.get_variable("v", [2], initializer=tf.ones_initializer())
    with tf.Session() as sess:
        sess.run(v.initializer)
        yield sess


def test_the_folder_of_a_checkpoint_is_made_if_it_alone_is_missing(session: Any, tmp_path: Path) -> None:
    path = tf.train.Saver().save(session, str(tmp_path / "new" / "model"))
    assert Path(path + ".index").exists()


@pytest.mark.parametrize("place", ["a/b/model", "file/model", "/proc/none/model"])
@pytest.mark.parametrize("options", [{}, {"global_step": 3}, {"write_meta_graph": False, "write_state": False}])
def test_a_checkpoint_below_no_folder_is_refused(
    session: Any, tmp_path: Path, place: str, options: dict[str, Any]
) -> None:
    (tmp_path / "file").write_text("")
    path = place if place.startswith("/") else str(tmp_path / place)
    with pytest.raises(ValueError, match=r"Parent directory of .*model.* doesn't exist, can't save"):
        tf.train.Saver().save(session, path, **options)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_the_first_format_of_checkpoints_makes_no_folder(session: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Parent directory of"):
        tf.train.Saver(write_version=tf.train.SaverDef.V1).save(session, str(tmp_path / "new" / "m"))


def test_an_empty_path_of_a_checkpoint_is_refused(session: Any) -> None:
    with pytest.raises(ValueError, match="no path specified"):
        tf.train.Saver().save(session, "")


def test_an_operation_that_saves_below_no_folder_fails_as_the_file_does(tmp_path: Path) -> None:
    with hr.Graph() as g:
        here, nowhere = (hr.train.save(str(tmp_path / p), {"x": hr.constant(1.0)}) for p in ("new/m", "a/b/m"))
    with hr.Session(graph=g) as s:
        s.run(here)
        assert hr.train.load(str(tmp_path / "new" / "m")) == {"x": 1.0}
        with pytest.raises(tf.errors.NotFoundError):
            s.run(nowhere)


def test_values_saved_below_no_folder_are_refused(tmp_path: Path) -> None:
    assert hr.train.load(hr.train.save(str(tmp_path / "new" / "m"), {"x": np.float32(1.0)})) == {"x": 1.0}
    with pytest.raises(ValueError, match=r"Parent directory of .* doesn't exist, can't save"):
        hr.train.save(str(tmp_path / "a" / "b" / "m"), {"x": np.float32(1.0)})
    assert [p.name for p in tmp_path.iterdir()] == ["new"]


WRITERS: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "summaries in a file": (lambda p: tf.summary.FileWriter(str(p / "file")), tf.errors.FailedPreconditionError),
    "summaries below a file": (
        lambda p: tf.summary.FileWriter(str(p / "file" / "x")), tf.errors.FailedPreconditionError
    ),
    "a graph in a file": (
        lambda p: tf.train.write_graph(tf.Graph(), str(p / "file"), "g"), tf.errors.FailedPreconditionError
    ),
    "a graph by a path": (lambda p: tf.train.write_graph(tf.Graph(), str(p), "no/g"), tf.errors.NotFoundError),
    "a MetaGraph below a file": (
        lambda p: tf.train.export_meta_graph(str(p / "file" / "m")), tf.errors.FailedPreconditionError
    ),
    "a folder in a file": (lambda p: tf.gfile.MakeDirs(str(p / "file")), tf.errors.FailedPreconditionError),
    "variables of an empty folder": (lambda p: tf.train.list_variables(str(p)), ValueError),
    "a variable of an empty folder": (lambda p: tf.train.load_variable(str(p), "v"), ValueError),
    "a checkpoint that is not there": (lambda p: tf.train.load_checkpoint(str(p / "m")), tf.errors.NotFoundError),
}  # fmt: skip


@pytest.mark.parametrize("name", WRITERS)
def test_files_that_cannot_be_are_refused_with_tensorflows_class(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    write, error = WRITERS[name]
    with pytest.raises(error):
        write(tmp_path)


def test_folders_of_summaries_graphs_and_meta_graphs_are_made(tmp_path: Path) -> None:
    tf.reset_default_graph()
    tf.summary.FileWriter(str(tmp_path / "a" / "b")).close()
    assert Path(tf.train.write_graph(tf.get_default_graph(), str(tmp_path / "c" / "d"), "g.pbtxt")).exists()
    tf.train.export_meta_graph(str(tmp_path / "e" / "f" / "m.meta"))
    assert (tmp_path / "e" / "f" / "m.meta").exists()


def test_printing_to_a_file_in_no_folder_fails_as_the_file_does(tmp_path: Path) -> None:
    tf.reset_default_graph()
    show = tf.print("x", output_stream=f"file://{tmp_path}/no/f")
    with tf.Session() as sess, pytest.raises(tf.errors.NotFoundError, match="no/f"):
        sess.run(show)
