"""TensorFlow 1's `tf.saved_model`; `tests/conformance/test_saved_models.py` compares it with TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import headrace.v1 as tf
from headrace.errors import GraphError


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def saved(folder: Path, tags: Any = ("serve",), **more: Any) -> str:
    """Saves y = x * 3 into a new folder; returns its path."""
    path = str(folder / "model")
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None], name="x")
        y = tf.multiply(x, tf.get_variable("w", initializer=3.0), name="y")
        sess.run(tf.global_variables_initializer())
        builder = tf.saved_model.Builder(path)
        call = tf.saved_model.predict_signature_def({"x": x}, {"y": y})
        builder.add_meta_graph_and_variables(sess, tags, {"serving_default": call}, **more)
        builder.save()
    return path


def test_two_models_live_in_one_graph(tmp_path: Path) -> None:
    path = saved(tmp_path)
    with tf.Session() as sess:
        for scope in ("a", "a", "b"):  # the second "a" becomes "a_1"
            tf.saved_model.load(sess, "serve", path, import_scope=scope)
        assert [v.name for v in tf.global_variables()] == ["a/w:0", "a_1/w:0", "b/w:0"]
        assert sess.run(["a/y:0", "a_1/y:0"], {"a/x:0": [1], "a_1/x:0": [2]})[1].tolist() == [6]


def test_a_model_without_variables_beside_others(tmp_path: Path) -> None:
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, name="x")
        tf.saved_model.simple_save(sess, path, {"x": x}, {"y": x + 1.0})
    assert os.listdir(os.path.join(path, "variables")) == []
    tf.get_variable("other", initializer=1.0)
    with tf.Session() as sess:
        call = tf.saved_model.load(sess, ["serve"], path, import_scope="in").signature_def["serving_default"]
        assert call.inputs["x"].name == "x:0"
        y = tf.saved_model.get_tensor_from_tensor_info(call.outputs["y"], import_scope="in")
        assert sess.run(y, {"in/x:0": 1}) == 2


def test_arguments_of_an_import_are_passed_on(tmp_path: Path) -> None:
    path = saved(tmp_path)
    fixed = tf.constant([5.0])
    with tf.Session() as sess:
        tf.saved_model.load(
            sess,
            ["serve"],
            path,
            input_map={"x:0": fixed},
            restore_collections_predicate=lambda key: key != "variables",
        )
        assert sess.run("y:0").tolist() == [15]
        assert tf.global_variables() == []


def test_graphs_share_variables(tmp_path: Path) -> None:
    path = str(tmp_path / "model")
    builder = tf.saved_model.builder.SavedModelBuilder(path)
    with tf.Graph().as_default(), tf.Session() as sess:
        w = tf.get_variable("w", initializer=3.0)
        sess.run(w.initializer)
        builder.add_meta_graph_and_variables(sess, {"train"})
    with tf.Graph().as_default():
        tf.identity(tf.get_variable("w", initializer=0.0) * 2.0, name="y")
        builder.add_meta_graph("serve", clear_devices=True, strip_default_attrs=True)
    builder.save()
    with tf.Session() as sess:
        meta = tf.saved_model.loader.load(sess, ["serve"], path)
        assert sess.run("y:0") == 6
    assert meta.meta_info_def.stripped_default_attrs
    with pytest.raises(RuntimeError, match=r"available tags: \['train'\], \['serve'\]"), tf.Session() as sess:
        tf.saved_model.load(sess, ["train", "serve"], path)


def test_results_of_control_flow_have_their_names_in_the_file(tmp_path: Path) -> None:
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [], name="x")
        y = tf.cond(x > 0, lambda: x, lambda: -x)
        assert y.name == "cond/Merge:0"
        tf.saved_model.simple_save(sess, path, {"x": x}, {"y": y})
    with tf.Session() as sess:
        meta = tf.saved_model.load(sess, ["serve"], path)
        name = meta.signature_def["serving_default"].outputs["y"].name
        assert name.split(":")[0] in {node.name for node in meta.graph_def.node}
        assert sess.run([name, "cond/Merge:0"], {"x:0": -2}) == [2, 2]


def test_the_main_op_runs_with_the_assets_of_the_folder(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("cat\ndog\n")
    path = str(tmp_path / "model")
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.string, [None], name="x")
        asset = tf.saved_model.Asset(words)
        index = tf.lookup.TextFileIndex
        init = tf.lookup.TextFileInitializer(asset, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
        y = tf.identity(tf.lookup.StaticHashTable(init, -1).lookup(x), name="y")
        main = tf.saved_model.main_op.main_op()
        tf.saved_model.simple_save(sess, path, {"x": x}, {"y": y}, legacy_init_op=main)
    words.unlink()
    moved = str(tmp_path / "elsewhere")
    os.rename(path, moved)
    for scope, prefix in ((None, ""), ("in", "in/")):
        with tf.Graph().as_default(), tf.Session() as sess:
            tf.saved_model.load(sess, ["serve"], moved, import_scope=scope)
            assert sess.run(f"{prefix}y:0", {f"{prefix}x:0": ["dog", "cow"]}).tolist() == [1, -1]
    os.unlink(os.path.join(moved, "assets", "words.txt"))
    with pytest.raises(tf.errors.NotFoundError, match=r"words\.txt"), tf.Session() as sess:
        tf.saved_model.load(sess, ["serve"], moved)


def test_a_main_op_may_restore(tmp_path: Path) -> None:
    with tf.Session() as sess:
        v = tf.get_variable("v", initializer=1.0)
        saver = tf.train.Saver()
        sess.run(v.assign(7.0).op)
        path = saver.save(sess, str(tmp_path / "model"), write_meta_graph=False)
        restore = tf.get_default_graph().get_operation_by_name(saver.saver_def.restore_op_name)
        after = tf.saved_model.main_op_with_restore(restore)
        sess.run(v.assign(0.0).op)
        sess.run(after, {saver.saver_def.filename_tensor_name: path})
        assert sess.run(v) == 7


def test_hostile_folders_leave_the_graph_as_it_was(tmp_path: Path) -> None:
    path = saved(tmp_path)
    meta = tf.saved_model.loader.parse_saved_model(path)
    meta.meta_graphs[0].asset_file_def.add(filename="../../../etc/passwd").tensor_info.name = "x:0"
    file = os.path.join(path, "saved_model.pb")
    with open(file, "wb") as f:
        f.write(meta.SerializeToString())
    with tf.Session() as sess:
        with pytest.raises(GraphError, match="outside of the folder"):
            tf.saved_model.load(sess, ["serve"], path)
        with open(file, "wb") as f:
            f.write(b"\xff")
        with pytest.raises(OSError, match="Cannot parse file"):
            tf.saved_model.load(sess, ["serve"], path)
        assert tf.get_default_graph().get_operations() == []


def test_missing_values_are_an_error(tmp_path: Path) -> None:
    path = saved(tmp_path)
    os.unlink(os.path.join(path, "variables", "variables.index"))
    with tf.Session() as sess, pytest.raises((tf.errors.NotFoundError, ValueError), match="variables/variables"):
        tf.saved_model.load(sess, ["serve"], path)


def test_method_names_are_replaced(tmp_path: Path) -> None:
    path = saved(tmp_path, ["serve", "gpu"])
    updater = tf.saved_model.signature_def_utils.MethodNameUpdater(path)
    with pytest.raises(ValueError, match=r"no.*signature_def with key: 'other'; it has \['serving_default'\]"):
        updater.replace_method_name("other", "kind")
    with pytest.raises(ValueError, match="could not be found"):
        updater.replace_method_name("serving_default", "kind", "serve")
    updater.replace_method_name("serving_default", "kind", ["gpu", "serve"])
    updater.save(str(tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == ["saved_model.pb"]
    for folder, kind in ((path, tf.saved_model.PREDICT_METHOD_NAME), (str(tmp_path / "new"), "kind")):
        found = tf.saved_model.loader.parse_saved_model(folder).meta_graphs[0]
        assert found.signature_def["serving_default"].method_name == kind


def test_tensors_are_found_by_their_infos() -> None:
    s = tf.sparse_placeholder(tf.float32, [2, 3], name="s")
    r = tf.ragged.constant([[1, 2], [3]])
    v = tf.get_variable("v", initializer=[1.0])
    found = [tf.saved_model.get_tensor_from_tensor_info(tf.saved_model.build_tensor_info(x)) for x in (s, r, v)]
    assert (found[0].indices, found[0].values, found[0].dense_shape) == (s.indices, s.values, s.dense_shape)
    assert (found[1].flat_values, found[1].nested_row_splits) == (r.flat_values, r.nested_row_splits)
    assert found[2] is tf.get_default_graph().get_tensor_by_name("v:0")
    with pytest.raises(KeyError, match="nothing"):
        tf.saved_model.get_tensor_from_tensor_info(tf.TensorInfo(name="nothing:0"))
    with pytest.raises(ValueError, match="Invalid TensorInfo"):
        tf.saved_model.get_tensor_from_tensor_info(tf.TensorInfo())
    info = tf.saved_model.build_tensor_info(r)
    info.composite_tensor.type_spec.type_spec_class_name = "RowPartitionSpec"
    with pytest.raises(tf.errors.UnimplementedError, match="RowPartitionSpec"):
        tf.saved_model.get_tensor_from_tensor_info(info)
    with pytest.raises(TypeError, match="takes a tensor"):
        tf.saved_model.build_tensor_info(3)


def test_values_of_eager_execution_have_no_info() -> None:
    import headrace as hr

    with pytest.raises(RuntimeError, match="eager"):
        tf.saved_model.build_tensor_info(hr.constant(1.0))


def test_absent_names_say_why() -> None:
    with pytest.raises(AttributeError, match=r"tf\.saved_model\.Builder"):
        _ = tf.saved_model.save  # type: ignore[attr-defined]
