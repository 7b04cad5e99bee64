"""`import_graph_def` and `import_meta_graph`: devices, names and inputs, as in TensorFlow 1."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf


@pytest.fixture(autouse=True)
def _fresh() -> None:
    tf.reset_default_graph()


def straight() -> Any:
    """Graph of y = x + 1 and z = 2 * y.

    z is on a device, q waits for z, and n is colocated with it.
    """
    with tf.Graph().as_default() as g:
        x = tf.placeholder(tf.float32, [], name="x")
        y = tf.add(x, 1.0, name="y")
        with tf.device("/job:w/cpu:1"):
            z = tf.multiply(y, 2.0, name="z")
        with tf.control_dependencies([z]):
            tf.identity(x, name="q")
        with tf.colocate_with(z.op):
            tf.negative(x, name="n")
        tf.no_op(name="nop")
    return g.as_graph_def()


def structured() -> Any:
    with tf.Graph().as_default() as g:
        p, x = tf.placeholder(tf.bool, [], name="p"), tf.placeholder(tf.float32, [], name="x")
        r = tf.cond(p, lambda: x * 2.0, lambda: x * 3.0)
        w = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), [0, x])
        tf.identity(r, name="r")
        tf.identity(w[1], name="w")
    return g.as_graph_def()


def devices() -> dict[str, str]:
    names = {"x", "y", "z", "q", "n", "nop"}
    ops = tf.get_default_graph().get_operations()
    return {op.name[2:]: op.device for op in ops if op.name[2:] in names}


def test_imported_operations_ask_for_the_device_around_unless_for_their_own() -> None:
    with tf.device("/job:a/task:3"), tf.device("/cpu:0"):
        tf.import_graph_def(straight(), name="a")
    around, own = "/job:a/task:3/device:CPU:0", "/job:w/task:3/device:CPU:1"
    assert devices() == {"x": around, "y": around, "z": own, "q": around, "n": own, "nop": around}


def test_a_device_function_is_called_with_imported_operations() -> None:
    with tf.device(lambda op: "/cpu:3" if op.type == "Placeholder" else "/job:k"):
        tf.import_graph_def(straight(), name="a")
    assert {k: v for k, v in devices().items() if k in "xyq"} == {"x": "/device:CPU:3", "y": "/job:k", "q": "/job:k"}


def test_without_a_device_around_imported_operations_keep_theirs() -> None:
    with tf.device("/gpu:0"), tf.device(None):
        tf.import_graph_def(straight(), name="a")
    own = "/job:w/device:CPU:1"
    assert devices() == {"x": "", "y": "", "z": own, "q": "", "n": own, "nop": ""}


def test_imported_operations_wait_for_the_control_dependencies_around() -> None:
    with tf.control_dependencies([tf.no_op(name="before")]):
        tf.import_graph_def(straight(), name="a")
    graph = tf.get_default_graph()
    waits = {n: sorted(c.name for c in graph.get_operation_by_name(f"a/{n}").control_inputs) for n in ("x", "q")}
    assert waits == {"x": ["before"], "q": ["a/z", "before"]}


def test_imported_operations_are_colocated_with_what_is_around() -> None:
    with tf.device("/cpu:2"):
        beside = tf.constant(1.0, name="beside")
    with tf.colocate_with(beside.op):
        tf.import_graph_def(straight(), name="a")
    assert set(devices().values()) == {"/device:CPU:2"}


def test_names_of_imports_are_made_unique() -> None:
    def first(name: str | None) -> str:
        before = len(tf.get_default_graph().get_operations())
        tf.import_graph_def(straight(), name=name)
        return tf.get_default_graph().get_operations()[before].name

    assert [first(n) for n in (None, None, "k", "k", "", "", "s/")] == [
        "import/x", "import_1/x", "k/x", "k_1/x", "x", "x_1", "s/x",
    ]  # fmt: skip
    with tf.name_scope("out"):
        assert [first(n) for n in (None, "k", "")] == ["out/import/x", "out/k/x", "x_2"]


def test_results_of_conditionals_and_loops_are_returned_by_their_names_in_the_primitive_form() -> None:
    wanted = ["r:0", "w:0", "cond/Merge:0", "while/Exit:0", "while/Exit_1:0"]
    found = tf.import_graph_def(structured(), name="i", return_elements=wanted)
    assert [t.name for t in found] == [f"i/{name}" for name in wanted]
    with tf.Session() as sess:
        got = sess.run([*found, "i/cond/Merge:0", "i/while/Exit_1:0"], {"i/p:0": True, "i/x:0": 4.0})
        assert got == [8.0, 32.0, 8.0, 3, 32.0, 8.0, 32.0]
    (op,) = tf.import_graph_def(structured(), name="j", return_elements=["while/Exit_1"])
    assert op is tf.get_default_graph().get_operation_by_name("j/while/Exit")


@pytest.mark.parametrize("name", ["cond/Merge_1:0", "cond/Merge:1", "cond/Exit:0", "while/Exit_2:0", "while/Exit_01:0",
                                  "x/Merge:0", "nope/Merge:0", "nope", "nope:0", "x:1", "nop:0"])  # fmt: skip
def test_return_elements_that_are_not_there_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"not found in graph def|Invalid return output"):
        tf.import_graph_def(structured() if "/" in name else straight(), return_elements=[name])


def test_results_of_conditionals_and_loops_are_mapped_by_their_names_in_the_primitive_form() -> None:
    instead = tf.constant(9.0)
    found = tf.import_graph_def(
        structured(), name="i", return_elements=["r:0", "w:0", "cond/Merge:0"],
        input_map={"cond/Merge:0": instead, "while/Exit_1": instead * 2.0},
    )  # fmt: skip
    assert found[2] is instead
    with tf.Session() as sess:
        assert sess.run(found) == [9.0, 18.0, 9.0]


def test_gradients_pass_through_imported_conditionals() -> None:
    with tf.name_scope("a"):
        (r,) = tf.import_graph_def(structured(), name="b", return_elements=["cond/Merge:0"])
    (slope,) = tf.gradients(r, tf.get_default_graph().get_tensor_by_name("a/b/x:0"))
    with tf.Session() as sess:
        assert sess.run(slope, {"a/b/p:0": True, "a/b/x:0": 1.0}) == 2.0


def test_variables_and_values_take_the_place_of_inputs() -> None:
    v, w = tf.Variable(3.0), tf.get_variable("w", [], initializer=tf.ones_initializer())
    given = [v, w, 7.0, np.float32(7.0), tf.constant(7.0)]
    found = [tf.import_graph_def(straight(), {"x": g}, ["y:0"])[0] for g in given]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run(found) == [4.0, 2.0, 8.0, 8.0, 8.0]
    names = [op.name for op in tf.get_default_graph().get_operations() if op.type == "Const" and "_inputs" in op.name]
    assert names == ["import_2/_inputs/Const", "import_3/_inputs/Const"]


@pytest.mark.parametrize(
    ("input_map", "name", "error", "text"),
    [
        ({"nope": 1.0}, None, ValueError, r"Attempted to map inputs that were not found in graph_def: \[nope:0\]"),
        ({"nope:0": 1.0, "other": 1.0}, None, ValueError, r"\[nope:0, other:0\]"),
        ({"x:1": 1.0}, None, ValueError, r"\[x:1\]"),
        ({"x": "text"}, None, ValueError, "string"),
        ({"x": 1}, None, ValueError, "int32"),
        ({"x": None}, None, ValueError, "None values not supported"),
        ({"x": 1.0}, "", ValueError, "requires a non-empty `name`"),
        ([("x", 1.0)], None, TypeError, "must be a dictionary"),
        ({3: 1.0}, None, TypeError, "must be names"),
    ],
)
def test_wrong_input_maps_are_refused(input_map: Any, name: str | None, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        tf.import_graph_def(straight(), input_map, name=name)


# *** MetaGraphs ***


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Checkpoint with its MetaGraph: z = c + lp.

    c is a conditional and lp a loop of x * (v + w).
    """
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [], name="x")
        v = tf.get_variable("v", [], initializer=tf.constant_initializer(5.0))
        w = tf.Variable(2.0, name="w", trainable=False)
        y = tf.multiply(x, v + w, name="y")
        c = tf.cond(x > 0, lambda: y * 2.0, lambda: y, name="c")
        lp = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * v), [0, y], name="lp")
        z = tf.identity(c + lp[1], name="z")
        for value in (z, c, lp[1], z.op, v):
            tf.add_to_collection("kept", value)
        tf.add_to_collection("number", 3)
        tf.add_to_collection("text", "y")
        tf.add_to_collection("train_op", tf.train.GradientDescentOptimizer(0.1).minimize(z, name="train"))
        saver = tf.train.Saver(max_to_keep=7)
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            return saver.save(sess, str(tmp_path / "m"))


@pytest.mark.parametrize(
    ("import_scope", "name_scope", "prefix"),
    [(None, None, ""), ("imp", None, "imp/"), (None, "outer", "outer/"), ("imp", "outer", "outer/imp/"),
     ("a/b", None, "a/b/"), ("", "outer", "outer/"), ("imp/", None, "imp/")],
)  # fmt: skip
def test_a_meta_graph_below_a_scope_keeps_its_variables_collections_and_saver(
    checkpoint: str, import_scope: str | None, name_scope: str | None, prefix: str, tmp_path: Path
) -> None:
    with tf.name_scope(name_scope) if name_scope else contextlib.nullcontext():
        saver = tf.train.import_meta_graph(checkpoint + ".meta", import_scope=import_scope)
    assert [v.name for v in tf.global_variables()] == [f"{prefix}v:0", f"{prefix}w:0"]
    assert [v.name for v in tf.trainable_variables()] == [f"{prefix}v:0"]
    wanted = ["z:0", "c/Merge:0", "lp/Exit_1:0", "z", "v:0"]
    assert [t.name for t in tf.get_collection("kept")] == [prefix + name for name in wanted]
    assert tf.get_collection("number") == [3]
    assert tf.get_collection("text") == [f"{prefix}y" if prefix else b"y"]
    assert (saver.saver_def.max_to_keep, saver.saver_def.filename_tensor_name) == (7, f"{prefix}save/Const:0")
    with tf.Session() as sess:
        saver.restore(sess, checkpoint)
        names = [prefix + name for name in ("z:0", "c/Merge:0", "lp/Exit_1:0")]
        assert sess.run(names, {f"{prefix}x:0": 2.0}) == [1778.0, 28.0, 1750.0]
        sess.run(tf.get_collection("train_op")[0], {f"{prefix}x:0": 1.0})
        np.testing.assert_allclose(sess.run(tf.global_variables()), [-60.2, 2.0], rtol=1e-6)
        assert Path(saver.save(sess, str(tmp_path / "again")) + ".index").exists()


def test_a_meta_graph_imported_twice_has_variables_of_its_own_each_time(checkpoint: str) -> None:
    tf.get_variable("v", [], initializer=tf.zeros_initializer())
    savers = [tf.train.import_meta_graph(checkpoint + ".meta", import_scope="imp") for _ in range(2)]
    assert [v.name for v in tf.global_variables()] == ["v:0", "imp/v:0", "imp/w:0", "imp_1/v:0", "imp_1/w:0"]
    v = tf.global_variables()
    with tf.Session() as sess:
        sess.run(v[0].initializer)
        savers[1].restore(sess, checkpoint)
        assert sess.run(tf.report_uninitialized_variables()).tolist() == [b"imp/v", b"imp/w"]
        savers[0].restore(sess, checkpoint)
        sess.run(v[1].assign(-1.0))
        assert sess.run(v) == [0.0, -1.0, 2.0, 5.0, 2.0]


def test_a_meta_graph_is_imported_under_a_device(checkpoint: str) -> None:
    with tf.device("/cpu:0"):
        tf.train.import_meta_graph(checkpoint + ".meta")
    assert {op.device for op in tf.get_default_graph().get_operations()} == {"/device:CPU:0"}


def test_an_imported_meta_graph_is_exported_and_imported_again(checkpoint: str) -> None:
    tf.train.import_meta_graph(checkpoint + ".meta", import_scope="k")
    message = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        saver = tf.train.import_meta_graph(message, import_scope="q")
        assert [t.name for t in tf.get_collection("kept")] == [
            "q/k/z:0", "q/k/c/Merge:0", "q/k/lp/Exit_1:0", "q/k/z", "q/k/v:0",
        ]  # fmt: skip
        slope = tf.gradients(tf.get_collection("kept")[0], tf.trainable_variables())
        with tf.Session() as sess:
            saver.restore(sess, checkpoint)
            np.testing.assert_allclose(sess.run(slope, {"q/k/x:0": 1.0}), [652.0])


def test_a_mapped_name_that_no_node_has_is_refused_in_a_meta_graph(checkpoint: str) -> None:
    with pytest.raises(ValueError, match="Attempted to map inputs"):
        tf.train.import_meta_graph(checkpoint + ".meta", input_map={"nope": tf.constant(2.0)})
    assert [op.type for op in tf.get_default_graph().get_operations()] == ["Const"]


def test_a_meta_graph_of_primitives_keeps_its_collections(tmp_path: Path) -> None:
    """The nodes and names of conditionals and loops are TensorFlow 1's."""
    tf.disable_v2_behavior()
    with tf.Graph().as_default() as graph:
        x = tf.placeholder(tf.float32, [], name="x")
        v = tf.get_variable("v", [], initializer=tf.ones_initializer())
        chosen = tf.cond(x > 0.0, lambda: x + v, lambda: x - v)
        ended = tf.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 2.0), (0, chosen))[1]
        for result in (chosen, ended, ended.op):
            tf.add_to_collection("kept", result)
        message = tf.train.export_meta_graph()
        nodes = {node.name: node.op for node in message.graph_def.node}
        assert nodes["cond/Merge"] == "Merge"
        assert "cond" not in nodes
    with tf.Graph().as_default(), tf.Session() as session:
        tf.train.import_meta_graph(message)
        session.run(tf.global_variables_initializer())
        kept = tf.get_collection("kept")
        assert session.run(kept[:2], {"x:0": 2.0}) == [3.0, 24.0]
        assert (kept[2].name, kept[2].type) == ("while/Exit", "Exit")
    with graph.as_default(), tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.saved_model.simple_save(session, str(tmp_path / "m"), {"x": x}, {"y": ended})
    with tf.Graph().as_default(), tf.Session() as session:
        loaded = tf.saved_model.load(session, ["serve"], str(tmp_path / "m"))
        name = loaded.signature_def["serving_default"].outputs["y"].name
        assert session.run(name, {"x:0": 2.0}) == 24.0
