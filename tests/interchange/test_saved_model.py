"""The format of SavedModels: reading, writing, and folders that are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from google.protobuf import text_format

from headrace import pb
from headrace.errors import FailedPreconditionError, GraphError, NotFoundError, UnimplementedError
from headrace.interchange import saved_model


def model(*tags: str) -> pb.SavedModel:
    """A SavedModel with one graph of an operation "a" and a constant "path"."""
    out = saved_model.new()
    meta = out.meta_graphs.add()
    meta.graph_def.node.add(name="a", op="NoOp")
    meta.graph_def.node.add(name="path", op="Const")
    meta.meta_info_def.tags.extend(tags)
    return out


def test_a_model_is_written_and_read(tmp_path: Path) -> None:
    given = model("serve")
    given.meta_graphs[0].collection_def["saved_model_assets"].any_list.value.append(
        saved_model.asset_item("words.txt", "path:0")
    )
    for as_text in (True, False):
        folder = tmp_path / str(as_text)
        assert not saved_model.is_there(folder)
        path = saved_model.write(given, folder, as_text)
        assert os.path.basename(path) == ("saved_model.pbtxt" if as_text else "saved_model.pb")
        assert saved_model.is_there(folder)
        assert saved_model.read(folder) == given
        assert os.listdir(folder) == [os.path.basename(path)]


def test_messages_in_the_text_of_tensorflow_are_read(tmp_path: Path) -> None:
    """In the text TensorFlow writes an asset as fields, under the name of its message."""
    (tmp_path / "saved_model.pbtxt").write_text(
        "saved_model_schema_version: 1 meta_graphs { graph_def { node { name: 'path' op: 'Const' } } "
        "collection_def { key: 'saved_model_assets' value { any_list { value { "
        "[type.googleapis.com/tensorflow.AssetFileDef] { tensor_info { name: 'path:0' } filename: 'w' } } } } } }"
    )
    meta = saved_model.with_tags(saved_model.read(tmp_path), [])
    assert saved_model.asset_files(meta, tmp_path) == {"path:0": str(tmp_path / "assets" / "w")}


@pytest.mark.parametrize(
    ("name", "data", "error", "text"),
    [
        ("other.pb", b"", FileNotFoundError, "SavedModel file does not exist at"),
        ("saved_model.pb", b"\xff\xff", GraphError, "Cannot parse file .*saved_model.pb: not a SavedModel"),
        ("saved_model.pb", b"", GraphError, "schema version 0"),
        ("saved_model.pb", b"\x08\x02", GraphError, "schema version 2"),
        ("saved_model.pbtxt", b"meta_graphs {", GraphError, "Cannot parse file .*saved_model.pbtxt"),
        ("saved_model.pbtxt", b"\xff", GraphError, "Cannot parse file .*saved_model.pbtxt"),
        ("saved_model.pbtxt", b"meta_graphs { object_graph_def { " * 5000, GraphError, "Cannot parse file"),
        ("saved_model.cpb", b"", UnimplementedError, "split messages are not read"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, data: bytes, error: type[Exception], text: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(error, match=text):
        saved_model.read(tmp_path)


def test_a_pipe_is_no_model(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "saved_model.pb")
    with pytest.raises(FailedPreconditionError, match="no regular file"):
        saved_model.read(tmp_path)


def test_a_graph_is_found_by_its_tags() -> None:
    given = model("serve", "gpu")
    given.meta_graphs.extend(model("train").meta_graphs)
    assert saved_model.with_tags(given, ["gpu", "serve"]) == given.meta_graphs[0]
    assert saved_model.with_tags(given, "train") == given.meta_graphs[1]
    with pytest.raises(RuntimeError, match=r"tags \['gpu'\] could not be found.*\['gpu', 'serve'\], \['train'\]"):
        saved_model.with_tags(given, {"gpu"})


def test_the_initializer_is_found() -> None:
    meta = model().meta_graphs[0]
    assert saved_model.initializer(meta) is None
    meta.collection_def["legacy_init_op"].node_list.value.append("path")
    assert saved_model.initializer(meta) == "path"
    meta.collection_def["saved_model_main_op"].node_list.value.append("a")
    assert saved_model.initializer(meta) == "a"
    meta.signature_def["__saved_model_init_op"].outputs["__saved_model_init_op"].name = "path"
    assert saved_model.initializer(meta) == "path"


def test_wrong_initializers_are_refused() -> None:
    meta = model().meta_graphs[0]
    meta.collection_def["saved_model_main_op"].node_list.value.extend(["a", "a"])
    with pytest.raises(GraphError, match=r"exactly one SavedModel init op\. Found 2"):
        saved_model.initializer(meta)
    del meta.collection_def["saved_model_main_op"].node_list.value[:]
    with pytest.raises(GraphError, match=r"exactly one SavedModel init op\. Found 0"):
        saved_model.initializer(meta)
    meta.collection_def["saved_model_main_op"].node_list.value.append("b")
    with pytest.raises(GraphError, match="the initializer: 'b' is not in the graph"):
        saved_model.initializer(meta)
    meta.signature_def["__saved_model_init_op"].outputs["x"].name = "a"
    with pytest.raises(GraphError, match="names no operation"):
        saved_model.initializer(meta)


def test_assets_of_both_fields_are_found(tmp_path: Path) -> None:
    meta = model().meta_graphs[0]
    meta.collection_def["saved_model_assets"].any_list.value.append(saved_model.asset_item("old", "path:0"))
    assert saved_model.asset_files(meta, tmp_path) == {"path:0": f"{tmp_path}/assets/old"}
    meta.asset_file_def.add(filename="new").tensor_info.name = "path:0"
    assert saved_model.asset_files(meta, tmp_path) == {"path:0": f"{tmp_path}/assets/new"}


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a/../b", "..", "link/x", "file", ""])
def test_assets_stay_inside_the_folder(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    (folder / "assets").mkdir(parents=True)
    (folder / "assets" / "link").symlink_to(tmp_path)
    (folder / "assets" / "file").symlink_to("/etc/passwd")
    meta = model().meta_graphs[0]
    meta.asset_file_def.add(filename=name).tensor_info.name = "path:0"
    with pytest.raises(GraphError, match="outside of the folder" if name else "needs the name of a file"):
        saved_model.asset_files(meta, folder)


def test_an_asset_has_a_tensor_and_the_right_message(tmp_path: Path) -> None:
    meta = model().meta_graphs[0]
    meta.asset_file_def.add(filename="f").tensor_info.name = "x:0"
    with pytest.raises(GraphError, match="asset 'f' of the tensor 'x:0': 'x:0' is not in the graph"):
        saved_model.asset_files(meta, tmp_path)
    del meta.asset_file_def[:]
    item = saved_model.asset_item("f", "path:0")
    item.type_url = "type.googleapis.com/tensorflow.GraphDef"
    meta.collection_def["saved_model_assets"].any_list.value.append(item)
    with pytest.raises(GraphError, match=r"has a message of type 'type\.googleapis\.com/tensorflow\.GraphDef'"):
        saved_model.asset_files(meta, tmp_path)
    meta.collection_def["saved_model_assets"].any_list.value[0].CopyFrom(saved_model.asset_item("f", "path:0"))
    meta.collection_def["saved_model_assets"].any_list.value[0].value = b"\xff"
    with pytest.raises(GraphError, match="not a AssetFileDef"):
        saved_model.asset_files(meta, tmp_path)


def test_assets_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for folder, content in (("a", "1"), ("b", "2"), ("c", "1"), ("d", "3")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.txt").write_text(content)
    assets = saved_model.Assets(tmp_path / "model")
    names = [assets.add(str(tmp_path / folder / "w.txt")) for folder in "abcda"]
    assert names == ["w.txt", "w.txt_1", "w.txt", "w.txt_2", "w.txt"]
    (tmp_path / "a" / "w.txt").write_text("changed")
    assert assets.add(os.fsencode(tmp_path / "a" / "w.txt")) == "w.txt"  # the first version stays, as in TensorFlow
    copies = {p.name: p.read_text() for p in (tmp_path / "model" / "assets").iterdir()}
    assert copies == {"w.txt": "1", "w.txt_1": "2", "w.txt_2": "3"}
    with pytest.raises(NotFoundError, match=r"missing\.txt"):
        assets.add(str(tmp_path / "missing.txt"))


def test_names_in_signatures_are_replaced() -> None:
    text = """
        inputs { key: "a" value { name: "x:0" } }
        outputs { key: "b" value { coo_sparse {
            values_tensor_name: "v:0" indices_tensor_name: "i:0" dense_shape_tensor_name: "s:0" } } }
        outputs { key: "c" value { composite_tensor { components { name: "p:0" } components { name: "q:0" } } } }
    """
    signature = text_format.Parse(text, pb.SignatureDef())
    saved_model.rename_tensors(signature, str.upper)
    assert signature == text_format.Parse(
        "".join(c.upper() if text[i + 1 : i + 3] == ":0" else c for i, c in enumerate(text)), pb.SignatureDef()
    )
