"""Small functions and arguments of `tf.train`. The values are those of TensorFlow 2.21."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import headrace.v1 as tf

pytestmark = pytest.mark.one_engine


def test_the_message_of_a_state_file() -> None:
    make = tf.train.generate_checkpoint_state_proto
    found = make("/x", "/x/m-3")
    assert (found.model_checkpoint_path, list(found.all_model_checkpoint_paths)) == ("/x/m-3", ["/x/m-3"])
    found = make("/x", "m-3", ["/x/m-1"], [1.0, 2.0], 7.0)
    assert list(found.all_model_checkpoint_paths) == ["/x/m-1", "m-3"]
    assert (list(found.all_model_checkpoint_timestamps), found.last_preserved_timestamp) == ([1.0, 2.0], 7.0)
    with pytest.raises(ValueError, match="timestamps"):
        make("/x", "m-3", ["m-1"], [1.0, 2.0, 3.0])


def test_new_checkpoints_are_yielded_until_the_timeout(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable(0.0)
        session.run(v.initializer)
        saver = tf.train.Saver()
        paths = [saver.save(session, str(tmp_path / "m"), global_step=n) for n in (1, 2)]
    assert list(tf.train.checkpoints_iterator(str(tmp_path), timeout=0)) == paths[1:]
    answers = iter([False, True])
    assert list(tf.train.checkpoints_iterator(tmp_path / "no", timeout=0, timeout_fn=lambda: next(answers))) == []
    assert list(answers) == []  # asked twice
    tf.train.remove_checkpoint(paths[0], checkpoint_format_version=tf.train.SaverDef.V2, meta_graph_suffix="meta")
    assert not tf.train.checkpoint_exists(paths[0])


def test_adam_can_have_a_name_scope_for_its_own_variables() -> None:
    names = []
    for own in (False, True):
        with tf.Graph().as_default():
            w = tf.Variable(1.0, name="w")
            with tf.name_scope("foo"):
                tf.train.AdamOptimizer(use_own_namescope_for_non_slot_vars=own).minimize(w)
            tf.train.AdamOptimizer(use_own_namescope_for_non_slot_vars=own).minimize(w)
            names.append([v.op.name for v in tf.global_variables()])
    assert names == [
        ["w", "foo/beta1_power", "foo/beta2_power", "w/Adam", "w/Adam_1", "beta1_power", "beta2_power", "w/Adam_2",
         "w/Adam_3"],
        ["w", "Adam/beta1_power", "Adam/beta2_power", "w/Adam", "w/Adam_1", "Adam_1/beta1_power", "Adam_1/beta2_power",
         "w/Adam_2", "w/Adam_3"],
    ]  # fmt: skip


def test_an_optimizer_of_ones_own_takes_tensorflows_arguments() -> None:
    class Own(tf.train.Optimizer):
        def __init__(self) -> None:
            super().__init__(use_locking=False, name="Own")

    assert Own().get_name() == "Own"
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        tf.train.Optimizer(False, "")


def test_a_queue_runner_is_made_of_its_message() -> None:
    with tf.Graph().as_default():
        with tf.name_scope("a"):
            queue = tf.FIFOQueue(2, [tf.int32], name="q")
            runner = tf.train.QueueRunner(queue, [queue.enqueue(1)])
        again = tf.train.QueueRunner(queue_runner_def=runner.to_proto())
        assert again.to_proto() == runner.to_proto()
        inner = runner.to_proto()
        for field in ("queue_name", "close_op_name", "cancel_op_name"):
            setattr(inner, field, getattr(inner, field).removeprefix("a/"))
        inner.enqueue_op_name[:] = [name.removeprefix("a/") for name in inner.enqueue_op_name]
        assert tf.train.QueueRunner(queue_runner_def=inner, import_scope="a").to_proto() == runner.to_proto()
        with pytest.raises(ValueError, match="mutually exclusive"):
            tf.train.QueueRunner(queue, queue_runner_def=inner)


def test_a_scope_is_exported_with_its_own_names() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.float32, [2], name="x")
        with tf.variable_scope("b"):
            v = tf.get_variable("v", [2], initializer=tf.zeros_initializer())
            y = tf.add(x, v, name="y")
        for t in (y, x):
            tf.add_to_collection("mine", t)
        tf.add_to_collection("other", x)
        saver = tf.train.Saver()
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
        message = tf.train.export_meta_graph(export_scope="b", clear_extraneous_savers=True, save_debug_info=True)
        assert tf.GraphKeys.SAVERS not in saver.export_meta_graph(export_scope="b").collection_def
    nodes = {n.name: list(n.input) for n in message.graph_def.node}
    assert nodes["y"][0] == "$unbound_inputs_x"
    assert {"v", "v/Assign", "y"} < set(nodes)
    assert sorted(message.collection_def) == ["mine", "trainable_variables", "unbound_inputs", "variables"]
    assert list(message.collection_def["mine"].node_list.value) == ["y:0"]
    assert list(message.collection_def["unbound_inputs"].bytes_list.value) == [b"$unbound_inputs_x"]
    with tf.Graph().as_default() as graph, tf.Session() as session:
        fed = tf.placeholder(tf.float32, [2], name="fed")
        tf.train.import_meta_graph(message, import_scope="c", input_map={"$unbound_inputs_x": fed})
        assert [v.op.name for v in tf.global_variables()] == ["c/v"]
        session.run(tf.global_variables_initializer())
        np.testing.assert_array_equal(session.run(graph.get_tensor_by_name("c/y:0"), {fed: [1.0, 2.0]}), [1.0, 2.0])
