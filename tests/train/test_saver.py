"""Savers: values written and their names, values restored, and errors."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace.api import scopes
from headrace.errors import (
    DataLossError,
    FailedPreconditionError,
    GraphError,
    InvalidArgumentError,
    NotFoundError,
)
from headrace.files import checkpoints
from headrace.train import saving
from headrace.v1 import checkpoints as v1_checkpoints
from headrace.v1.exporting import export_meta_graph
from headrace.v1.importing import import_meta_graph
from headrace.v1.saver import Saver as V1Saver

FORMATS = ["native", "tensorflow"]


def model() -> hr.Graph:
    with hr.Graph() as g:
        hr.Variable([[1.0, 2.0]], name="layer/w")
        hr.Variable(np.int64(3), name="step")
        hr.Variable(["a", "b\0c"], name="words")
    return g


def values(session: hr.Session) -> list[Any]:
    return [np.asarray(session.run(v)).tolist() for v in session.graph.variables]  # type: ignore[attr-defined]


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_what_is_saved_comes_back_in_another_session(tmp_path: Path, format: str, sharded: bool) -> None:
    g = hr.Graph()
    with g:
        for i in range(3):
            with hr.device(f"/device:CPU:{i % 2}"):
                hr.Variable(np.arange(i + 1, dtype=np.float32) + i, name=f"v{i}")
        saver = saving.Saver(format=format, sharded=sharded)
    with hr.Session(graph=g, devices={"CPU": 2}) as session:
        session.run([v.initializer for v in g.variables])
        before = values(session)
        path = saver.save(session, tmp_path / "new" / "m", 12)
    assert path == str(tmp_path / "new" / "m-12")
    assert checkpoints.open(path).format == format
    names = {p.name for p in (tmp_path / "new").iterdir()}
    assert not any("temp" in n for n in names)  # nothing is left of the shards' folder
    if format == "tensorflow":
        n = 2 if sharded else 1
        data = {f"m-12.data-{i:05d}-of-{n:05d}" for i in range(n)}
        assert names == {"checkpoint", "m-12.index", "m-12.meta", *data}
    with hr.Session(graph=g, devices={"CPU": 2}) as session:  # nothing initialized
        saver.restore(session, path)
        assert values(session) == before


def test_the_operations_have_tensorflows_names() -> None:
    g = model()
    with g:
        saver = saving.Saver(format="tensorflow", max_to_keep=7)
        other = saving.Saver(sharded=True, format="tensorflow")
    d = saver.saver_def
    assert (d.filename_tensor_name, d.save_tensor_name, d.restore_op_name, d.max_to_keep, d.version) == (
        "save/Const:0", "save/control_dependency:0", "save/restore_all", 7, 2,
    )  # fmt: skip
    assert (other.saver_def.filename_tensor_name, other.saver_def.save_tensor_name) == (
        "save_1/Const:0",
        "save_1/Identity:0",
    )
    assert other.saver_def.sharded
    assert (saver.save_op.name, saver.restore_op.name) == ("save/control_dependency:0", "save/restore_all")
    ops = {op.name: op.type for op in g.get_operations()}
    for name, kind in {"save/SaveV2": "SaveV2", "save/RestoreV2": "RestoreV2", "save/filename/input": "Const",
                       "save/AssignVariableOp_2": "AssignVariableOp", "save_1/ShardedFilename": "ShardedFilename",
                       "save_1/MergeV2Checkpoints": "MergeV2Checkpoints"}.items():  # fmt: skip
        assert ops[name] == kind


def test_saving_does_not_train(tmp_path: Path) -> None:
    with hr.Graph() as g:
        v = hr.Variable(1.0, name="v")
        step = v.assign_add(1.0)
        saver = saving.Saver()
        again = v.assign_add(100.0)
    with hr.Session(graph=g) as session:
        session.run(v.initializer)
        path = saver.save(session, tmp_path / "m")
        assert session.run(v) == 1.0
        session.run([step, again])
        saver.restore(session, path)
        assert session.run(v) == 1.0
        # the nodes can be run without the saver, too
        session.run(saver.save_op, {saver.filename_tensor: str(tmp_path / "by_hand")})
        session.run(step)
        session.run(saver.restore_op, {saver.filename_tensor: str(tmp_path / "by_hand")})
        assert session.run(v) == 1.0


def test_names_and_parts_are_chosen_by_the_user(tmp_path: Path) -> None:
    g = model()
    w, step, _ = g.variables
    saver = saving.Saver({"weights": w, "n": step})
    assert saver.graph is g  # that of the variables, without being entered
    with hr.Session(graph=g) as session:
        session.run([v.initializer for v in g.variables])
        path = saver.save(session, tmp_path / "m")
    assert saving.list_variables(path) == [("n", []), ("weights", [1, 2])]
    assert len(saving.list_variables(path)) == 2
    with hr.Session(graph=g) as session:
        saver.restore(session, path)
        with pytest.raises(FailedPreconditionError, match="words"):
            session.run(g.variables[2])


@pytest.mark.parametrize("sequentially", [False, True])
def test_reshape_and_one_after_the_other(tmp_path: Path, sequentially: bool) -> None:
    path = saving.save(tmp_path / "m", {"a": np.arange(6, dtype=np.float32), "b": np.float32([[1]])})
    with hr.Graph() as g:
        a, b = hr.Variable(np.zeros((2, 3), np.float32), name="a"), hr.Variable([0.0], name="b")
        saver = saving.Saver(reshape=True, restore_sequentially=sequentially)
        strict = saving.Saver(restore_sequentially=sequentially)
    with hr.Session(graph=g) as session:
        saver.restore(session, path)
        assert session.run(a).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert session.run(b).tolist() == [1]
        with pytest.raises(InvalidArgumentError, match="shape") as e:
            strict.restore(session, path)
        assert "a mismatch between the current graph" in "".join(e.value.__notes__)
    assigns = [op for op in g.get_operations() if op.name.startswith("save/") and op.type == "AssignVariableOp"]
    waits = [{o.name for o in op.control_inputs} for op in assigns]
    before = [{o.name for i in op.inputs for o in i.op.control_inputs} for op in assigns]
    assert (any("Assign" in n for s in [*waits, *before] for n in s)) is sequentially


def test_tables_are_saved_with_keys_and_values(tmp_path: Path) -> None:
    with hr.Graph() as g:
        table = hr.lookup.experimental.MutableHashTable(hr.string, hr.int64, -1, name="tab")
        dense = hr.lookup.experimental.DenseHashTable(hr.int64, hr.float32, 0.0, -1, -2, name="dense")
        found, other = table.lookup(["a", "b", "c"]), dense.lookup([5, 6])
        put = [table.insert(["a", "b"], [1, 2]), dense.insert([5], [0.5])]
        saver = saving.Saver([table, dense])
    with hr.Session(graph=g) as session:
        session.run(put)
        path = saver.save(session, tmp_path / "m")
        assert set(dict(saving.list_variables(path))) == {"tab-keys", "tab-values", "dense-keys", "dense-values"}
    with hr.Session(graph=g) as session:
        saver.restore(session, path)
        assert session.run(found).tolist() == [1, 2, -1]
        assert session.run(other).tolist() == [0.5, 0]


def test_slices_are_saved_under_the_name_of_the_whole(tmp_path: Path) -> None:
    from headrace import pb

    with hr.Graph() as g:
        parts = [hr.Variable(np.full((2, 2), i + 1.0, np.float32), name=f"w/part_{i}") for i in range(2)]
        for i, v in enumerate(parts):
            vars(v)["save_slice_info"] = pb.SaveSliceInfoDef(
                full_name="w", full_shape=[4, 2], var_offset=[2 * i, 0], var_shape=[2, 2]
            )
        saver = saving.Saver(parts, format="tensorflow")
    with hr.Session(graph=g) as session:
        session.run([v.initializer for v in parts])
        path = saver.save(session, tmp_path / "m")
    assert saving.load(path)["w"].tolist() == [[1, 1], [1, 1], [2, 2], [2, 2]]
    with hr.Session(graph=g) as session:
        saver.restore(session, path)
        assert session.run(parts[1]).tolist() == [[2, 2], [2, 2]]


# *** random ops ***


@pytest.mark.parametrize("engine", ["interpret", "auto"])
@pytest.mark.parametrize("format", FORMATS)
def test_random_ops_go_on_where_they_were(tmp_path: Path, format: str, engine: str) -> None:
    with hr.Graph() as g:
        v = hr.Variable(0.0, name="v")
        seeded = hr.random.uniform((3,), seed=7)
        unseeded = hr.random.normal((2,))
        _, in_loop = hr.while_loop(
            lambda i, s: i < 3, lambda i, s: (i + 1, s + hr.random.uniform((), seed=3)), (0, hr.constant(0.0))
        )
        late = hr.random.uniform((), seed=11)
        saver = saving.Saver(random_state=True, format=format)
    drawn = [seeded, unseeded, in_loop]
    with hr.Session(graph=g, engine=engine) as session:
        session.run(v.initializer)
        session.run(drawn)
        path = saver.save(session, tmp_path / "m")
        want = session.run([*drawn, late])
        after = session.run([*drawn, late])
        saver.restore(session, path)  # in the session itself: ops that had not drawn then start again
        again = session.run([*drawn, late])
    with hr.Session(graph=g, engine=engine) as session:
        saver.restore(session, path)
        there = session.run([*drawn, late])
    for x, y, z, other in zip(want, again, there, after, strict=True):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(x, z)
        assert not np.array_equal(x, other)


def test_a_checkpoint_without_random_states_is_refused_by_a_saver_that_wants_them(tmp_path: Path) -> None:
    g = model()
    with g, hr.Session(graph=g) as session:
        plain, full = saving.Saver(), saving.Saver(random_state=True)
        session.run([v.initializer for v in g.variables])
        path = plain.save(session, tmp_path / "m")
        with pytest.raises(NotFoundError, match="_random_states"):
            full.restore(session, path)


def test_states_of_random_ops_are_checked() -> None:
    with hr.Graph() as g:
        names, states = hr.placeholder(hr.string), hr.placeholder(hr.uint64)
        put = scopes.builder().make("_SetRandomStates", (names, states), {})
    right = np.zeros((1, 3))
    with hr.Session(graph=g) as session:
        for n, s in (
            ([b"_random/a"], np.zeros((2, 3))),
            ([b"_random/a"], np.zeros((1, 2))),
            (b"a", right),
            ([b"\xff"], right),
            ([b"_r"], right),
        ):
            with pytest.raises(InvalidArgumentError):
                session.run(put, {names: n, states: s.astype(np.uint64)})


# *** errors ***


def test_what_cannot_be_saved_is_refused_by_name() -> None:
    with hr.Graph():
        v = hr.Variable(1.0, name="v")
        q = hr.FIFOQueue(3, [hr.float32], name="q")
        static = hr.lookup.StaticHashTable(hr.lookup.KeyValueTensorInitializer([1], [2]), -1, name="fixed")
        changed = v.assign(2.0)
        for given, error, says in (
            ([v, q], TypeError, "queue 'q'"),
            ([static], TypeError, "fixed.*initializer"),
            ([changed], TypeError, "assignment"),
            ({"a": v, "b": v}, ValueError, "two names: 'a' and 'b'"),
            ([v, v], ValueError, "same name: 'v'"),
            ([3], TypeError, "got 3"),
            ({3: v}, TypeError, "must be text"),
            ([], ValueError, "No variables to save"),
        ):
            with pytest.raises(error, match=says):
                saving.Saver(given)
        with pytest.raises(ValueError, match="'native', 'tensorflow'"):
            saving.Saver(format="pickle")
        with pytest.raises(ValueError, match="max_to_keep"):
            saving.Saver(max_to_keep=-1)
        with pytest.raises(GraphError, match="outside of branches"):
            hr.cond(hr.constant(True), lambda: saving.Saver() and 1, lambda: 2)
    with pytest.raises(GraphError, match=r"hr\.train\.save"):
        saving.Saver([hr.Variable(1.0)])
    with pytest.raises(GraphError, match=r"with hr\.Graph"):
        saving.Saver()


def test_misuse_is_explained(tmp_path: Path) -> None:
    g, other = model(), model()
    with g:
        saver = saving.Saver()
        late = saving.Saver(defer_build=True)
        nothing = saving.Saver([], allow_empty=True)
    with hr.Session(graph=g) as session, hr.Session(graph=other) as wrong:
        with pytest.raises(FailedPreconditionError, match="uninitialized"):
            saver.save(session, tmp_path / "m")
        assert not list(tmp_path.iterdir())
        session.run([v.initializer for v in g.variables])
        with pytest.raises(TypeError, match="must be a Session"):
            saver.save(g, tmp_path / "m")
        with pytest.raises(ValueError, match="another graph"):
            saver.save(wrong, tmp_path / "m")
        with pytest.raises(RuntimeError, match="build"):
            late.save(session, tmp_path / "m")
        with pytest.raises(ValueError, match="collides"):
            saver.save(session, tmp_path / "checkpoint")
        with pytest.raises(ValueError, match="path components"):
            saver.save(session, tmp_path / "m", latest_filename="../x")
        with pytest.raises(TypeError, match="global_step"):
            saver.save(session, tmp_path / "m", [1])
        (tmp_path / "file").write_text("")
        with pytest.raises(ValueError, match="Parent directory"):
            saver.save(session, tmp_path / "file" / "m")
        with pytest.raises(ValueError, match=r"not a valid checkpoint: .*none; .* has no checkpoint$"):
            saver.restore(session, tmp_path / "none")
        with pytest.raises(ValueError, match="None"):
            saver.restore(session, None)
        assert nothing.save(session, tmp_path / "m") is None
        nothing.restore(session, tmp_path / "m")
        with g:
            g.variables[1].assign_add(1)
            late.build()
        assert late.save(session, tmp_path / "m", g.variables[1]) == str(tmp_path / "m-3")


@pytest.mark.parametrize("initialized", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_a_tensor_of_another_shape_is_not_restored(tmp_path: Path, format: str, initialized: bool) -> None:
    values = {"old": np.zeros((2, 3), np.float32), "b": np.float32(7)}
    path = saving.save(tmp_path / "m", values, format=format)
    with hr.Graph() as g:
        w = hr.Variable(np.ones((3, 2), np.float32), name="w")
        rows = hr.Variable(np.ones((3, 2), np.float32), name="rows", shape=(None, 2))
        free = hr.Variable(np.ones((3, 2), np.float32), name="free", validate_shape=False)
        b = hr.Variable(1.0, name="b")
        init = hr.variables_initializer()
        savers = {v.name: saving.Saver({"old": v, "b": b}) for v in (w, rows, free)}
    with hr.Session(graph=g) as session:
        if initialized:
            session.run(init)
        for v, shape in ((w, "[3,2]"), (rows, "[?,2]")):
            says = rf"'{v.op.name}' has the shape {re.escape(shape)}, and the tensor 'old' in the checkpoint \[2,3\]"
            with pytest.raises(InvalidArgumentError, match=says):
                savers[v.name].restore(session, path)
        assert session.run([w.is_initialized(), b.is_initialized()]) == [initialized, initialized]
        with pytest.raises(InvalidArgumentError, match=r"lhs shape= \[3,2\] rhs shape= \[2,3\]: variable w"):
            session.run(savers["w:0"].restore_op, {savers["w:0"].filename_tensor: path})
        savers["free:0"].restore(session, path)  # as TensorFlow does
        assert session.run(free).shape == (2, 3)
        assert session.run(b) == 7


@pytest.mark.parametrize("initialized", [False, True])
def test_an_assignment_of_unknown_shape_keeps_the_declared_one(initialized: bool) -> None:
    with hr.Graph() as g:
        v, x = hr.Variable([1.0, 2.0], name="v"), hr.placeholder(hr.float32)
        assigned = v.assign(x)
    with hr.Session(graph=g) as session:
        if initialized:
            session.run(v.initializer)
        with pytest.raises(InvalidArgumentError, match=r"lhs shape= \[2\] rhs shape= \[3\]"):
            session.run(assigned, {x: [1.0, 2.0, 3.0]})
        assert session.run(assigned, {x: [3.0, 4.0]}).tolist() == [3.0, 4.0]


def test_a_missing_or_different_tensor_says_which(tmp_path: Path) -> None:
    path = saving.save(tmp_path / "m", {"layer/w": np.float32([[1, 2]]), "step": np.int32(3)})
    g = model()
    with g:
        for given, error, says in (
            (g.variables[2:], NotFoundError, "words"),
            ([g.variables[1]], InvalidArgumentError, "step"),
        ):
            saver = saving.Saver(given)
            with hr.Session(graph=g) as session, pytest.raises(error, match=says) as e:
                saver.restore(session, path)
            assert "Restoring from checkpoint failed" in "".join(e.value.__notes__)


def test_a_damaged_checkpoint_is_an_error(tmp_path: Path) -> None:
    g = model()
    with g, hr.Session(graph=g) as session:
        saver = saving.Saver()
        session.run([v.initializer for v in g.variables])
        path = saver.save(session, tmp_path / "m")
        assert path is not None
        data = path + ".safetensors"
        raw = bytearray(Path(data).read_bytes())
        raw[-1] ^= 1
        Path(data).write_bytes(raw)
        with pytest.raises(DataLossError):
            saver.restore(session, path)


# *** the graph of a checkpoint ***


@pytest.mark.parametrize("format", FORMATS)
def test_the_graph_is_written_and_comes_with_its_saver(tmp_path: Path, format: str) -> None:
    g = model()
    with g:
        saver = saving.Saver(format=format, random_state=format == "native")
        hr.identity(g.variables[0] * 2.0, name="y")
    with hr.Session(graph=g) as session:
        session.run([v.initializer for v in g.variables])
        path = saver.save(session, tmp_path / "m", 1)
        second = saver.save(session, tmp_path / "m", 2, meta_graph_suffix="graph")
    assert Path(f"{path}.meta").read_bytes() == Path(f"{second}.graph").read_bytes()
    m = hr.import_meta_graph(f"{path}.meta", scope="s", graph=hr.Graph())
    again = saving.Saver.from_proto(m.graph.saver_def, graph=m.graph)
    assert again.saver_def.save_tensor_name == "s/save/control_dependency:0"
    with hr.Session(graph=m.graph) as session:
        again.restore(session, path)
        assert session.run("s/y:0").tolist() == [[2, 4]]
        assert again.save(session, tmp_path / "n", write_state=False) == str(tmp_path / "n")
    assert again.last_checkpoints == []
    assert saving.load(tmp_path / "n").keys() == saving.load(path).keys()
    assert again.to_proto("s").save_tensor_name == "save/control_dependency:0"
    assert again.to_proto("t") is None
    with pytest.raises(GraphError, match="not in the graph"):
        saving.Saver.from_proto(saver.to_proto(), graph=hr.Graph())
    with pytest.raises(GraphError, match="without"):
        saving.Saver.from_proto(b"", graph=g)


def test_a_graph_with_a_saver_of_ours_is_written_for_tensorflow_too(tmp_path: Path) -> None:
    g = model()
    with g:
        hr.identity(hr.random.uniform((2,)), name="drawn")
        saver = saving.Saver(random_state=True, format="tensorflow")
    types = {n.name: n.op for n in g.as_graph_def().node}
    assert not any(t.startswith("_") for t in types.values())
    assert types["save/RandomStates"] == "IdentityN"
    assert types["save/SetRandomStates"] == "NoOp"
    again = hr.import_meta_graph(hr.export_meta_graph(g)).graph
    same = saving.Saver(saver_def=saver.saver_def, graph=again)
    with hr.Session(graph=g) as session, hr.Session(graph=again) as other:
        session.run([v.initializer for v in g.variables])
        session.run("drawn:0")
        path = saver.save(session, tmp_path / "m")
        same.restore(other, path)
        assert values(other) == values(session)
        second = same.save(other, tmp_path / "n")
    assert saving.load_variable(second, "_random_states/states").shape == (0, 3)
    assert saving.load_variable(path, "_random_states/states").shape == (1, 3)


def test_without_a_graph_file(tmp_path: Path) -> None:
    g = model()
    with g, hr.Session(graph=g) as session:
        saver = saving.Saver(pad_step_number=True)
        session.run([v.initializer for v in g.variables])
        assert saver.save(session, tmp_path / "m", 5, write_meta_graph=False) == str(tmp_path / "m-00000005")
    assert not list(tmp_path.glob("*.meta"))


# *** TensorFlow 1's ***


@pytest.mark.parametrize("sharded", [False, True])
def test_the_first_version_of_files(tmp_path: Path, sharded: bool) -> None:
    config = tf.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default(), tf.Session(config=config) as sess:
        with tf.device("/cpu:0"):
            v = tf.get_variable("v", initializer=[1.0, 2.0])
        with tf.device("/cpu:1"):
            w = tf.get_variable("w", [5, 2], partitioner=tf.fixed_size_partitioner(2))
        double = tf.group(v.assign(v * 2), *w.assign(w.as_tensor() * 2))
        saver = V1Saver(write_version=1, sharded=sharded, max_to_keep=2)
        assert saver.saver_def is not None
        assert saver.saver_def.version == 1
        sess.run(tf.global_variables_initializer())
        paths, kept = [], []
        for step in range(3):
            paths.append(saver.save(sess, str(tmp_path / "m"), global_step=step))
            kept.append(sess.run([v, w.as_tensor()]))
            sess.run(double)
        ending = "-?????-of-00002" if sharded else ""
        assert paths == [str(tmp_path / f"m-{i}{ending}") for i in range(3)]
        files = [f"m-{i}{s}" for i in (1, 2) for s in (("-00000-of-00002", "-00001-of-00002") if sharded else ("",))]
        assert sorted(os.listdir(tmp_path)) == sorted(["checkpoint", *files, "m-1.meta", "m-2.meta"])
        assert saver.last_checkpoints == paths[1:]
        assert saving.latest_checkpoint(tmp_path) == saving.latest_checkpoint(tmp_path, verify=True) == paths[2]
        assert saving.checkpoint_exists(paths[2])
        assert not saving.checkpoint_exists(paths[0])
        assert len(saving.get_checkpoint_mtimes(paths)) == 2
        assert saving.list_variables(paths[2]) == [("v", [2]), ("w", [5, 2])]
        for path, want in zip(paths[1:], kept[1:], strict=True):
            saver.restore(sess, path)
            got = sess.run([v, w.as_tensor()])
            assert [x.tolist() for x in got] == [x.tolist() for x in want]
        for lost in (paths[0], str(tmp_path)):
            with pytest.raises(ValueError, match="not a valid checkpoint") as failure:
                saver.restore(sess, lost)
            assert f"{lost}; the newest one in {tmp_path} is {paths[2]} " in str(failure.value)
        again = V1Saver()  # of the second version, in the same place
        assert again.save(sess, str(tmp_path / "m"), global_step=2) == str(tmp_path / "m-2")
        assert checkpoints.open(str(tmp_path / "m-2")).format == "tensorflow"
    with tf.Graph().as_default(), tf.Session(config=config) as sess:
        saver = import_meta_graph(str(tmp_path / "m-1.meta"))
        assert isinstance(saver, V1Saver)
        saver.restore(sess, paths[1])
        assert sess.run(tf.global_variables()[0]).tolist() == [2, 4]
        saver.save(sess, str(tmp_path / "other"), write_meta_graph=False)
        assert checkpoints.open(saver.last_checkpoints[-1]).format == "tensorflow-v1"


def test_v1_saver_takes_the_default_graph_and_its_collections(tmp_path: Path) -> None:
    with tf.Graph().as_default() as g, tf.Session() as sess:
        v = tf.get_variable("scope/v", initializer=[1.0, 2.0])
        local = tf.get_variable("local", initializer=1.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
        tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1, name="tab")
        tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1, name="not_this", checkpoint=False)
        saver = V1Saver()
        tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
        sess.run([tf.global_variables_initializer(), local.initializer])
        path = saver.save(sess, os.path.join(tmp_path, "m"), global_step=1)
        assert path == str(tmp_path / "m-1")
        assert dict(saving.list_variables(path)).keys() == {"scope/v", "tab-keys", "tab-values"}
        assert checkpoints.open(path).format == "tensorflow"
        assert str(path) in (tmp_path / "checkpoint").read_text()  # TensorFlow's default: absolute paths
        sess.run(v.assign([0.0, 0.0]).op)
        saver.restore(sess, path)
        assert v.eval().tolist() == [1, 2]
        with pytest.raises(hr.errors.UnimplementedError, match="builder"):
            V1Saver(builder=3)
        with pytest.raises(ValueError, match="write_version"):
            V1Saver(write_version=3)
    with tf.Graph().as_default(), tf.Session() as sess:
        again = import_meta_graph(path + ".meta")
        assert isinstance(again, V1Saver)
        again.restore(sess, path)
        assert tf.global_variables()[0].eval().tolist() == [1, 2]
        (kept,) = tf.get_collection(tf.GraphKeys.SAVERS)
        assert kept.saver_def == again.saver_def
    with tf.Graph().as_default():
        message = export_meta_graph(graph=g)
        message.ClearField("saver_def")
        made = import_meta_graph(message)  # says nothing of a saver, so there is a new one
        assert made is not None
        assert made.saver_def is None  # until it is used
        with tf.Session() as sess:
            made.restore(sess, path)
            assert tf.global_variables()[0].eval().tolist() == [1, 2]
    with tf.Graph().as_default():
        assert import_meta_graph(export_meta_graph(graph=tf.Graph())) is None


def test_variables_of_v1_begin_with_values_of_a_checkpoint(tmp_path: Path) -> None:
    path = saving.save(
        tmp_path / "m", {"old/a/w": np.float32([1, 2]), "old/b": np.float32(3), "c": np.int32(4)}, format="tensorflow"
    )
    with tf.Graph().as_default(), tf.Session() as sess:
        with tf.variable_scope("new"):
            w, b = tf.get_variable("a/w", initializer=[0.0, 0.0]), tf.get_variable("b", initializer=0.0)
        c, d = tf.get_variable("c", initializer=0), tf.get_variable("d", initializer=5.0)
        v1_checkpoints.init_from_checkpoint(path, {"old/": "new/", "c": c})
        sess.run(tf.global_variables_initializer())
        assert [x.tolist() for x in sess.run([w, b, c, d])] == [[1, 2], 3, 4, 5]
        c.load(9, sess)
        assert c.eval() == 9
        v1_checkpoints.init_from_checkpoint(path, {"old/b": "d"})
        sess.run(d.initializer)
        assert d.eval() == 3
        for given, says in (
            ({"old/": "d"}, "is not found"),
            ({"old": "new/"}, "scope only"),
            ({"none": d}, "none .d:0. is not found"),
            ({"old/b": w}, "doesn't match"),
            ({"old/b": "nobody"}, "no variable 'nobody'"),
        ):
            with pytest.raises(ValueError, match=says):
                v1_checkpoints.init_from_checkpoint(path, given)
    with tf.Graph().as_default():
        tf.get_variable("b", initializer=0.0)
        with pytest.raises(ValueError, match=r"b .b:0. is not found"):
            v1_checkpoints.init_from_checkpoint(path, {"/": "/"})
        v1_checkpoints.init_from_checkpoint(path, {"old/": "/"})
    assert v1_checkpoints.NewCheckpointReader(path).has_tensor("c")
