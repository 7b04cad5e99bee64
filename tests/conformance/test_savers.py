"""One program with a saver, with headrace's import and with TensorFlow's.

Each side restores the files that the other writes.
"""

from __future__ import annotations

from collections.abc import Callable

# Each system can `make` the model, `save` it and `restore` it, given its module and its class of savers.
COMMON = """
import os, sys, tempfile
import numpy as np
import ml_dtypes
import tensorflow
import headrace.v1 as ours
from headrace.v1.importing import import_meta_graph
from headrace.v1.saver import Saver as OurSaver
from headrace.v1 import checkpoints

theirs = tensorflow.compat.v1
theirs.disable_eager_execution()
theirs.logging.set_verbosity(theirs.logging.ERROR)
SYSTEMS = {"ours": (ours, OurSaver), "theirs": (theirs, theirs.train.Saver)}

VALUES = {
    "dense/kernel": np.arange(12, dtype=np.float32).reshape(3, 4) / 7,
    "dense/bias": np.float64([0.5, -1.5]),
    "dense/kernel/Adam": np.full((3, 4), 0.25, np.float32),
    "dense/kernel/Adam_1": np.full((3, 4), 2.0, np.float32),
    "beta1_power": np.float32(0.9),
    "global_step": np.int64(12345678901),
    "flags": np.array([True, False]),
    "small": np.array([1.5, -2.0], ml_dtypes.bfloat16),
    "wave": np.complex64([1 + 2j]),
    "words": np.array([b"a", b"", b"long" * 100, b"\\\\0z"], object),
    "empty": np.zeros((0, 3), np.int8),
}


def make(tf, values, resource=True):
    out = {}
    for i, (name, value) in enumerate(values.items()):
        with tf.device(f"/cpu:{i % 2}"):
            dtype = tf.string if value.dtype == object else tf.as_dtype(value.dtype)
            initial = tf.zeros(value.shape, dtype) if dtype != tf.string else tf.constant([b""] * 4)
            if value.dtype == np.bool_:
                initial = tf.constant([False, False])
            out[name] = tf.get_variable(name, initializer=initial, use_resource=resource)
    return out


def session(tf):
    config = tf.ConfigProto(allow_soft_placement=True)
    config.device_count["CPU"] = 2
    return tf.Session(config=config)


def equal(got, values):
    for name, want in values.items():
        have = np.asarray(got[name])
        assert have.shape == want.shape, (name, have.shape)
        assert have.tolist() == want.tolist(), (name, have, want)
"""

VALUES_PROGRAM = (
    COMMON
    + """
for writer, reader in (("ours", "theirs"), ("theirs", "ours")):
    for sharded in (False, True):
        for resource in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                tf, Saver = SYSTEMS[writer]
                with tf.Graph().as_default(), session(tf) as sess:
                    variables = make(tf, VALUES, resource)
                    saver = Saver(sharded=sharded, max_to_keep=2)
                    sess.run(tf.global_variables_initializer())
                    for name, v in variables.items():
                        v.load(VALUES[name], sess)
                    paths = [saver.save(sess, os.path.join(folder, "model"), global_step=i) for i in range(3)]
                    assert saver.last_checkpoints == paths[1:]
                tf, Saver = SYSTEMS[reader]
                look = checkpoints if reader == "ours" else tf.train
                assert look.latest_checkpoint(folder) == paths[-1]
                assert list(look.get_checkpoint_state(folder).all_model_checkpoint_paths) == paths[1:]
                listed = {name: tuple(shape) for name, shape in look.list_variables(paths[-1])}
                assert listed == {name: v.shape for name, v in VALUES.items()}, listed
                equal({name: look.load_variable(folder, name) for name in VALUES}, VALUES)
                with tf.Graph().as_default(), session(tf) as sess:
                    variables = make(tf, VALUES, resource)
                    saver = Saver(sharded=sharded)
                    saver.restore(sess, paths[-1])
                    equal(sess.run(variables), VALUES)
                left = sorted(os.listdir(folder))
                n = 2 if sharded else 1
                want = ["checkpoint"]
                for i in (1, 2):
                    want += [f"model-{i}.data-{k:05d}-of-{n:05d}" for k in range(n)]
                    want += [f"model-{i}.index", f"model-{i}.meta"]
                assert left == sorted(want), left
print("fine")
"""
)

META_PROGRAM = (
    COMMON
    + """
names = ("dense/kernel", "global_step", "words")
values = {name: VALUES[name] for name in names}
for writer, reader in (("ours", "theirs"), ("theirs", "ours")):
    for sharded in (False, True):
        for resource in (True, False):
            with tempfile.TemporaryDirectory() as folder:
                tf, Saver = SYSTEMS[writer]
                with tf.Graph().as_default(), session(tf) as sess:
                    variables = make(tf, values, resource)
                    y = tf.identity(variables["dense/kernel"] * 2.0, name="y")
                    saver = Saver(sharded=sharded, max_to_keep=3)
                    tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
                    sess.run(tf.global_variables_initializer())
                    for name, v in variables.items():
                        v.load(values[name], sess)
                    path = saver.save(sess, os.path.join(folder, "model"))
                    mine = saver.saver_def if writer == "theirs" else saver.as_saver_def()
                tf, Saver = SYSTEMS[reader]
                read = import_meta_graph if reader == "ours" else tf.train.import_meta_graph
                for scope in (None, "inner"):
                    with tf.Graph().as_default(), session(tf) as sess:
                        saver = read(path + ".meta", import_scope=scope)
                        saver.restore(sess, path)
                        prefix = scope + "/" if scope else ""
                        equal({"y": sess.run(prefix + "y:0")}, {"y": values["dense/kernel"] * 2})
                        assert [v.name for v in tf.global_variables()] == [f"{prefix}{name}:0" for name in names]
                        second = saver.save(sess, os.path.join(folder, "again"))
                        if scope is None:
                            (kept,) = tf.get_collection(tf.GraphKeys.SAVERS)
                            kept.restore(sess, second)
                            assert saver.saver_def.SerializeToString() == mine.SerializeToString()
                    tf, Saver = SYSTEMS[writer]
                    with tf.Graph().as_default(), session(tf) as sess:
                        variables = make(tf, values, resource)
                        Saver().restore(sess, second)
                        equal(sess.run(variables), values)
                    tf, Saver = SYSTEMS[reader]
print("fine")
"""
)

TABLES_PROGRAM = (
    COMMON
    + """
from tensorflow.python.ops import lookup_ops
TABLES = {"ours": ours.lookup.experimental, "theirs": lookup_ops}


def tables(tf, module):
    return (module.MutableHashTable(tf.string, tf.int64, -1, name="tab"),
            module.DenseHashTable(tf.int64, tf.float32, 0.5, -1, -2, name="dense"))


for writer, reader in (("ours", "theirs"), ("theirs", "ours")):
    with tempfile.TemporaryDirectory() as folder:
        tf, Saver = SYSTEMS[writer]
        with tf.Graph().as_default(), session(tf) as sess:
            a, b = tables(tf, TABLES[writer])
            saver = Saver()
            sess.run([a.insert(tf.constant(["x", "y"]), tf.constant([1, 2], tf.int64)),
                      b.insert(tf.constant([7], tf.int64), tf.constant([3.0]))])
            path = saver.save(sess, os.path.join(folder, "m"))
        tf, Saver = SYSTEMS[reader]
        with tf.Graph().as_default(), session(tf) as sess:
            a, b = tables(tf, TABLES[reader])
            saver = Saver()
            saver.restore(sess, path)
            assert sess.run(a.lookup(tf.constant(["x", "y", "z"]))).tolist() == [1, 2, -1]
            assert sess.run(b.lookup(tf.constant([7, 8], tf.int64))).tolist() == [3.0, 0.5]
            assert sess.run([a.size(), b.size()]) == [2, 1]
print("fine")
"""
)


def test_variables_go_both_ways(run_python: Callable[[str], bytes]) -> None:
    assert b"fine" in run_python(VALUES_PROGRAM)


def test_graphs_with_their_savers_go_both_ways(run_python: Callable[[str], bytes]) -> None:
    assert b"fine" in run_python(META_PROGRAM)


def test_tables_go_both_ways(run_python: Callable[[str], bytes]) -> None:
    assert b"fine" in run_python(TABLES_PROGRAM)


RANDOM_PROGRAM = (
    COMMON
    + """
with tempfile.TemporaryDirectory() as folder:
    with ours.Graph().as_default() as g, session(ours) as sess:
        v = ours.get_variable("v", initializer=[1.0, 2.0])
        x = ours.random_uniform([3], seed=4)
        saver = OurSaver(random_state=True)
        sess.run(ours.global_variables_initializer())
        sess.run(x)
        path = saver.save(sess, os.path.join(folder, "m"))
        message = ours.train.export_meta_graph(saver_def=saver.saver_def)
    with theirs.Graph().as_default(), session(theirs) as sess:
        meta = theirs.MetaGraphDef.FromString(message.SerializeToString())
        saver = theirs.train.import_meta_graph(meta)
        saver.restore(sess, path)
        assert sess.run("v/read:0").tolist() == [1, 2]
        second = saver.save(sess, os.path.join(folder, "n"))
    assert checkpoints.load_variable(second, "_random_states/states").shape == (0, 3)
print("fine")
"""
)


def test_a_graph_with_states_of_random_ops_runs_there_without_them(run_python: Callable[[str], bytes]) -> None:
    assert b"fine" in run_python(RANDOM_PROGRAM)
