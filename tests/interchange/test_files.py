"""Graphs in files: `write_graph`, `read_graph`, and that a file appears whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from google.protobuf import text_format

import headrace as hr
import headrace.v1 as tf
from headrace import pb
from headrace.errors import GraphError, NotFoundError
from headrace.interchange import files
from headrace.ir.text import to_text


def graph() -> hr.Graph:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (0, x), name="loop")
    return g


def result(g: hr.Graph) -> float:
    with hr.Session(graph=g) as sess:
        return float(sess.run("loop:1", {"x:0": 1.5}))


@pytest.mark.parametrize("as_text", [True, False])
def test_what_is_written_is_read(tmp_path: Path, as_text: bool) -> None:
    path = hr.write_graph(graph(), tmp_path / "new" / "folder", "g.pb", as_text)
    assert path == str(tmp_path / "new" / "folder" / "g.pb")
    assert files.is_binary(Path(path).read_bytes()) is not as_text
    again = hr.read_graph(path)
    assert result(again) == 12.0
    assert str(again.get_operation_by_name("x").source).startswith(path)
    assert os.listdir(os.path.dirname(path)) == ["g.pb"]


def test_text_is_what_is_written_unless_told(tmp_path: Path) -> None:
    data = Path(hr.write_graph(graph(), str(tmp_path), "g.pbtxt")).read_text(encoding="utf-8")
    assert text_format.Parse(data, pb.GraphDef()) == graph().as_graph_def()


@pytest.mark.parametrize("make", [lambda m: m, lambda m: m.SerializeToString(), text_format.MessageToString])
def test_messages_are_written_too(tmp_path: Path, make: object) -> None:
    message = graph().as_graph_def()
    path = hr.write_graph(make(message), tmp_path, "g.pb", as_text=False)  # type: ignore[operator]
    assert pb.GraphDef.FromString(Path(path).read_bytes()) == message


def test_a_graph_of_v1_is_written(tmp_path: Path) -> None:
    with tf.Graph().as_default() as g:
        tf.constant(1.0, name="c")
    assert tf.train.write_graph is tf.io.write_graph
    assert len(hr.read_graph(tf.io.write_graph(g, str(tmp_path), "g.pb")).operations) == 1


def test_what_is_no_graph_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="graph_def must be bytes, text or a GraphDef message, got int"):
        hr.write_graph(3, tmp_path, "g")
    with pytest.raises(GraphError, match="not a GraphDef"):
        hr.write_graph("Dear Sir", tmp_path, "g")
    assert os.listdir(tmp_path) == []


def test_a_file_is_replaced_whole_or_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(hr.write_graph(graph(), tmp_path, "g.pb"))
    before = path.read_bytes()

    def fail(*args: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as m:
        m.setattr(os, "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            hr.write_graph(hr.Graph(), tmp_path, "g.pb")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["g.pb"]
    hr.write_graph(hr.Graph(), tmp_path, "g.pb")
    assert path.read_bytes() != before


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_files_have_the_permissions_that_new_files_have(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    path = hr.write_graph(graph(), tmp_path, "g.pb")
    assert stat.S_IMODE(os.stat(path).st_mode) == stat.S_IMODE(os.stat(tmp_path / "plain").st_mode)


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="file"):
        hr.write_graph(graph(), tmp_path / "file", "g.pb")


def test_our_own_text_is_read(tmp_path: Path) -> None:
    path = tmp_path / "g.txt"
    path.write_text(to_text(graph()), encoding="utf-8")
    assert result(hr.read_graph(path)) == 12.0  # type: ignore[arg-type]


@pytest.mark.parametrize("as_text", [True, False])
def test_the_graph_of_a_meta_graph_is_read(tmp_path: Path, as_text: bool) -> None:
    path = tmp_path / "m.meta"
    hr.export_meta_graph(graph(), path, as_text=as_text, tags=["serve"])
    assert result(hr.read_graph(path)) == 12.0  # type: ignore[arg-type]


def test_a_meta_graph_that_could_be_an_empty_graph(tmp_path: Path) -> None:
    message = pb.MetaGraphDef()
    message.graph_def.node.add(name="a12345678", op="NoOp")  # a name that is a field of any message, by its bytes
    data = message.SerializeToString()
    assert not pb.GraphDef.FromString(data).node
    (tmp_path / "m").write_bytes(data)
    assert [op.name for op in hr.read_graph(tmp_path / "m").operations] == ["a12345678"]


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        (b"\xff\xfe prose", GraphError, "neither a binary GraphDef nor UTF-8 text"),
        (b"\x00\x01\x02", GraphError, "not a GraphDef"),
        (b"Dear Sir,\nthis is no graph.", GraphError, "Dear Sir"),
        (b'node { name: "x" op: "Nope" }', NotFoundError, "Op type not registered 'Nope'"),
        (b"node { nme: 3 }", GraphError, "not a GraphDef.*nme"),
        (b"graph_def { nde {} }", GraphError, "not a MetaGraphDef.*nde"),
        (b"graph_def {" * 5000, GraphError, "not a MetaGraphDef"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, data: bytes, error: type[Exception], says: str) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(error, match=says):
        hr.read_graph(tmp_path / "f")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hr.read_graph(tmp_path / "g.pb")
