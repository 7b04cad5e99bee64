"""`tf.Module`, `tf.train.Checkpoint` and its manager. `tests/conformance` exchanges the files with TensorFlow."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf
from headrace.errors import DataLossError
from headrace.interchange.object_graphs import OBJECT_GRAPH, read_graph

pytestmark = pytest.mark.one_engine

# Names that TensorFlow 2.21 gives the values of the objects below.
NAMES = """
_CHECKPOINTABLE_OBJECT_GRAPH
model/d/a..b/.ATTRIBUTES/VARIABLE_VALUE
model/items/0/.ATTRIBUTES/VARIABLE_VALUE
model/items/1/.ATTRIBUTES/VARIABLE_VALUE
model/t/0/.ATTRIBUTES/VARIABLE_VALUE
model/w/.ATTRIBUTES/VARIABLE_VALUE
model/w/.OPTIMIZER_SLOT/opt/m/.ATTRIBUTES/VARIABLE_VALUE
model/w/.OPTIMIZER_SLOT/opt/v/.ATTRIBUTES/VARIABLE_VALUE
opt/beta1_power/.ATTRIBUTES/VARIABLE_VALUE
opt/beta2_power/.ATTRIBUTES/VARIABLE_VALUE
py/.ATTRIBUTES/py_state
save_counter/.ATTRIBUTES/VARIABLE_VALUE
step/.ATTRIBUTES/VARIABLE_VALUE
""".split()


class Model(tf.Module):
    """A module with variables in all kinds of containers."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.w = tf.Variable([1.0 * factor, 2.0 * factor], name="w")
        self.items = [tf.Variable(3.0 * factor, name="i0"), tf.Variable(4.0 * factor, name="i1")]
        self.d = {"a.b": tf.Variable(5.0 * factor, name="da")}
        self.n = 3
        self.t = (tf.Variable(6.0 * factor, name="t0", trainable=False),)


class State(tf.train.experimental.PythonState):
    text: Any = "first"

    def serialize(self) -> Any:
        return self.text

    def deserialize(self, string_value: Any) -> None:
        self.text = string_value


def made(factor: float) -> tuple[Any, Any]:
    """A checkpoint object, and the operation of a training step."""
    model, optimizer = Model(factor), tf.train.AdamOptimizer(0.1)
    step = optimizer.minimize(tf.reduce_sum(model.w))
    count = tf.Variable(int(7 * factor), name="step")
    return tf.train.Checkpoint(model=model, opt=optimizer, step=count, py=State()), step


def written(folder: Path) -> str:
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint, step = made(1.0)
        checkpoint.py.text = "saved"
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert checkpoint.save(str(folder / "m"), session=session) == str(folder / "m-1")
        return str(checkpoint.save(str(folder / "m")))


def test_objects_are_saved_under_tensorflows_names_and_restored(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert path == tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "m-2")
    assert sorted(name for name, _ in tf.train.list_variables(path)) == NAMES
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint, _ = made(0.0)
        checkpoint.restore(path).assert_consumed().run_restore_ops(session)
        found = session.run([*checkpoint.model.variables, checkpoint.step, checkpoint.save_counter])
        np.testing.assert_allclose(found[4], [0.9, 1.9], rtol=1e-6)
        assert [float(x) for x in [*found[:4], *found[5:]]] == [5.0, 3.0, 4.0, 6.0, 7.0, 2.0]
        slots = session.run([checkpoint.opt.get_slot(checkpoint.model.w, name) for name in ("m", "v")])
        np.testing.assert_allclose(slots, [[0.1] * 2, [0.001] * 2], rtol=1e-4)
        assert checkpoint.py.text == b"saved"


def test_objects_without_values_are_reported_and_initialized(tmp_path: Path) -> None:
    path = written(tmp_path)
    with tf.Graph().as_default(), tf.Session() as session:
        checkpoint = tf.train.Checkpoint(model=Model(0.0), extra=tf.Variable(1.5))
        status = checkpoint.restore(path).assert_nontrivial_match()
        with pytest.raises(AssertionError, match="No checkpointed value for 1 objects: 'extra'"):
            status.assert_existing_objects_matched()
        status.expect_partial().initialize_or_restore(session)
        assert session.run([checkpoint.extra, checkpoint.model.items[0]]) == [1.5, 3.0]
        part = tf.train.Checkpoint(step=tf.Variable(0))
        with pytest.raises(AssertionError, match="Unresolved object in checkpoint"):
            part.restore(path).assert_consumed()
        part.late = {"none": []}
        part.py = State()
        part.restore(path).assert_existing_objects_matched()
        with pytest.raises(AssertionError, match="Nothing except the root object matched"):
            tf.train.Checkpoint(other=tf.Variable(0)).restore(path).assert_nontrivial_match()
        nothing = tf.train.Checkpoint(v=tf.Variable(2.0)).restore(None)
        with pytest.raises(AssertionError, match=r"No checkpoint specified \(save_path=None\)"):
            nothing.assert_consumed()
        nothing.initialize_or_restore()
        with pytest.raises(tf.errors.InvalidArgumentError, match="the variable 'Variable_"):
            tf.train.Checkpoint(step=tf.Variable([0, 0])).restore(path).run_restore_ops()
    with pytest.raises(ValueError, match="`Checkpoint` was expecting a trackable object"):
        tf.train.Checkpoint(a=3)


def test_a_checkpoint_of_a_saver_is_restored_by_names(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v = tf.Variable(4.0, name="v")
        session.run(v.initializer)
        path = tf.train.Saver([v]).save(session, str(tmp_path / "m"))
        session.run(v.assign(0.0).op)
        tf.train.Checkpoint(anything=v).restore(path).assert_consumed().run_restore_ops()
        assert session.run(v) == 4.0


def test_eager_variables_are_restored_at_once(tmp_path: Path) -> None:
    tf.reset_default_graph()
    tf.enable_eager_execution()
    try:
        checkpoint = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0]), more=[tf.Variable(3)])
        path = checkpoint.save(tmp_path / "m")
        checkpoint.v.assign([0.0, 0.0])
        checkpoint.restore(path).assert_consumed()
        assert checkpoint.v.numpy().tolist() == [1.0, 2.0]
        manager = tf.train.CheckpointManager(checkpoint, tmp_path / "c", 1)
        assert [os.path.basename(manager.save()) for _ in range(2)] == ["ckpt-2", "ckpt-3"]
        assert manager.restore_or_initialize() == manager.latest_checkpoint
    finally:
        tf.disable_eager_execution()


def test_a_damaged_object_graph_is_refused() -> None:
    for data in (b"\xff", b"", b"\n\x04\n\x02\x08\x05"):  # no message, no node, a child with the number 5
        with pytest.raises(DataLossError, match="object graph of a checkpoint"):
            read_graph(data)
    assert NAMES[0] == OBJECT_GRAPH


def test_a_manager_keeps_the_newest_checkpoints(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        v, step = tf.Variable(0.0), tf.Variable(0)
        session.run(tf.global_variables_initializer())
        checkpoint = tf.train.Checkpoint(v=v)
        called: list[int] = []
        options: dict[str, Any] = {"step_counter": step, "checkpoint_interval": 2, "init_fn": lambda: called.append(1)}
        manager = tf.train.CheckpointManager(checkpoint, tmp_path / "c", 2, **options)
        assert (manager.restore_or_initialize(), called, manager.latest_checkpoint) == (None, [1], None)
        paths = []
        for i in range(6):
            v.load(float(i), session)
            step.load(i, session)
            paths.append(manager.save())
        names = [None if p is None else os.path.basename(p) for p in paths]
        assert names == ["ckpt-1", None, "ckpt-2", None, "ckpt-3", None]
        assert manager.checkpoints == [paths[2], paths[4]]
        assert not tf.train.checkpoint_exists(paths[0])
        again = tf.train.CheckpointManager(checkpoint, tmp_path / "c", max_to_keep=2)
        assert (again.checkpoints, again.restore_or_initialize()) == (manager.checkpoints, paths[4])
        assert session.run(v) == 4.0
        assert os.path.basename(again.save(checkpoint_number=40)) == "ckpt-40"
        with pytest.raises(ValueError, match="`step_counter` should be passed"):
            tf.train.CheckpointManager(checkpoint, tmp_path, 1, checkpoint_interval=3)
        with pytest.raises(ValueError, match="Expected a positive integer or `None` for `max_to_keep`"):
            tf.train.CheckpointManager(checkpoint, tmp_path, 0)


def test_modules_list_their_variables_and_modules() -> None:
    with tf.Graph().as_default():
        model = Model(1.0)
        assert (model.name, [v.op.name for v in model.variables]) == ("model", ["da", "i0", "i1", "t0", "w"])
        assert [v.op.name for v in model.non_trainable_variables] == ["t0"]
        assert len(model.trainable_variables) == 4

        class BigNet(tf.Module):
            def __init__(self) -> None:
                super().__init__()
                self.parts = [model, model]
                with self.name_scope:
                    self.a = tf.Variable(0.0, name="a")

            @tf.Module.with_name_scope
            def double(self) -> Any:
                return tf.add(self.a, self.a, name="twice")

        net = BigNet()
        assert (net.name, net.submodules, net.a.op.name) == ("big_net", (model,), "big_net/a")
        assert net.double().op.name == "big_net/twice"
        assert [v.op.name for v in net.variables] == ["big_net/a", "da", "i0", "i1", "t0", "w"]
        with pytest.raises(ValueError, match="'a/b' is not a valid module name"):
            tf.Module("a/b")
