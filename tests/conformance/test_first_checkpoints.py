"""Checkpoints of TensorFlow's first version: each side reads the other's files."""

from __future__ import annotations

from collections.abc import Callable

COMMON = """
import os, sys, tempfile
import numpy as np
import tensorflow
import headrace
import headrace.v1 as ours
from headrace.files import checkpoints

theirs = tensorflow.compat.v1
theirs.disable_eager_execution()
theirs.enable_resource_variables()
theirs.logging.set_verbosity(theirs.logging.ERROR)
SYSTEMS = {"ours": ours, "theirs": theirs}
RAW = {"ours": headrace.raw_ops, "theirs": theirs.raw_ops}
"""

OPS = (
    COMMON
    + """
rng = np.random.default_rng(1)
KINDS = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "bool", "complex64",
         "complex128", "string"]

UNREAD = ("float16", "uint16", "complex")  # TensorFlow's reader of single tensors does not take them

def value(kind, shape):
    if kind == "string":
        x = np.array([rng.bytes(int(n)) for n in rng.integers(0, 300, int(np.prod(shape)))] + [None], object)[:-1]
        return x.reshape(shape)
    x = rng.normal(size=shape) * 50
    if kind.startswith("complex"):
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x > 0 if kind == "bool" else np.abs(x) if kind.startswith("u") else x).astype(kind)

values = {f"{kind}/{'x'.join(map(str, shape))}": value(kind, shape)
          for kind in KINDS for shape in ((), (0,), (3,), (2, 3), (40, 50))}
values |= {f"scope/deep/layer_{i}/kernel": np.float32([i]) for i in range(600)}
parts = {"p": ((5, 4), ["0,2:-", "2,3:-"]), "q": ((4, 5), ["0,2:0,3", "2,2:0,3", "-:3,2"])}
index = {"0,2:-": np.s_[:2], "2,3:-": np.s_[2:], "0,2:0,3": np.s_[:2, :3], "2,2:0,3": np.s_[2:, :3],
         "-:3,2": np.s_[:, 3:]}
wholes = {name: np.arange(20.0).reshape(shape) / 7 for name, (shape, _) in parts.items()}

def constant(tf, x):
    return tf.constant(x.tolist(), tf.string, shape=x.shape) if x.dtype == object else tf.constant(x)

def same(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.tolist() == b.tolist()

folder = tempfile.mkdtemp()
for which, tf in SYSTEMS.items():
    with tf.Graph().as_default(), tf.Session() as sess:
        names = list(values)
        sess.run(RAW[which].Save(filename=f"{folder}/{which}-whole", tensor_names=names,
                                 data=[constant(tf, x) for x in values.values()]))
        given = [(n, " ".join([*map(str, shape), s]), wholes[n][index[s]]) for n, (shape, cut) in parts.items()
                 for s in cut]
        sess.run(RAW[which].SaveSlices(filename=f"{folder}/{which}-parts", tensor_names=[g[0] for g in given],
                                       shapes_and_slices=[g[1] for g in given],
                                       data=[tf.constant(g[2]) for g in given]))
for what in ("whole", "parts"):
    a, b = (open(f"{folder}/{which}-{what}", "rb").read() for which in SYSTEMS)
    assert a == b, what
for which, tf in SYSTEMS.items():
    for other in SYSTEMS:
        whole, cut = f"{folder}/{other}-whole", f"{folder}/{other}-parts"
        reader = tf.train.NewCheckpointReader(whole)
        assert {n: tuple(s) for n, s in reader.get_variable_to_shape_map().items()} == {
            n: x.shape for n, x in values.items()}
        for name, x in values.items():
            if which == "ours" or not name.startswith(UNREAD):
                assert same(reader.get_tensor(name), x), name
        assert sorted(tf.train.list_variables(cut)) == [("p", [5, 4]), ("q", [4, 5])]
        if which == "ours":  # TensorFlow's does not put parts together
            reader = tf.train.NewCheckpointReader(cut)
            assert all(same(reader.get_tensor(name), x) for name, x in wholes.items())
        with tf.Graph().as_default(), tf.Session() as sess:
            names = [n for n in values if "/" in n and "scope" not in n]
            got = RAW[which].RestoreV2(prefix=whole, tensor_names=names, shape_and_slices=[""] * len(names),
                                       dtypes=[tf.as_dtype(n.split("/")[0]) for n in names])
            for name, x in zip(names, sess.run(got)):
                assert same(x, values[name]), name
            some = ["float32/2x3", "string/3", "int64/40x50", "bool/"]
            got = [RAW[which].Restore(file_pattern=whole, tensor_name=n, dt=tf.as_dtype(n.split("/")[0]))
                   for n in some]
            assert all(same(x, values[n]) for x, n in zip(sess.run(got), some))
            for spec, at in (("4 5 1,2:2,3", np.s_[1:3, 2:5]), ("4 5 -:-", np.s_[:]), ("4 5 3,1:0,1", np.s_[3:, :1])):
                got = RAW[which].RestoreSlice(file_pattern=cut, tensor_name="q", shape_and_slice=spec, dt=tf.float64)
                v2 = RAW[which].RestoreV2(prefix=cut, tensor_names=["q"], shape_and_slices=[spec], dtypes=[tf.float64])
                for x in sess.run([got, v2[0] if isinstance(v2, (list, tuple)) else v2]):
                    assert same(x, wholes["q"][at]), spec
print("fine")
"""
)

SAVERS = (
    COMMON
    + """
def make(tf):
    with tf.device("/cpu:0"):
        v = tf.get_variable("v", initializer=np.arange(6, dtype=np.float32).reshape(2, 3))
        w = tf.get_variable("w", initializer=np.int64([1, 2, 3]))
    with tf.device("/cpu:1"):
        p = tf.get_variable("p", [5, 2], initializer=tf.random_normal_initializer(),
                            partitioner=tf.fixed_size_partitioner(2))
        s = tf.get_variable("s", initializer=tf.constant([b"a", b"bc"]))
    return [v, w, tf.convert_to_tensor(p), s]

def session(tf):
    config = tf.ConfigProto(allow_soft_placement=True)
    config.device_count["CPU"] = 2
    return tf.Session(config=config)

for writer, reader in (("ours", "theirs"), ("theirs", "ours")):
    for sharded in (False, True):
        for version in (1, 2):
            folder = tempfile.mkdtemp()
            tf = SYSTEMS[writer]
            with tf.Graph().as_default(), session(tf) as sess:
                made = make(tf)
                saver = tf.train.Saver(write_version=version, sharded=sharded, max_to_keep=2)
                assert saver.saver_def.version == version
                sess.run(tf.global_variables_initializer())
                paths = [saver.save(sess, os.path.join(folder, "m"), global_step=i) for i in range(3)]
                want = [x.tolist() for x in sess.run(made)]
            ending = "-?????-of-00002" if sharded and version == 1 else ""
            assert paths == [os.path.join(folder, f"m-{i}{ending}") for i in range(3)], paths
            n = 2 if sharded else 1
            if version == 1:
                files = [f"m-{i}" + (f"-{k:05d}-of-00002" if sharded else "") for i in (1, 2) for k in range(n)]
                assert sorted(os.listdir(folder)) == sorted(["checkpoint", "m-1.meta", "m-2.meta", *files])
            tf = SYSTEMS[reader]
            assert tf.train.latest_checkpoint(folder) == paths[-1]
            assert tf.train.checkpoint_exists(paths[-1]) and not tf.train.checkpoint_exists(paths[0])
            assert sorted(tf.train.list_variables(paths[-1])) == [("p", [5, 2]), ("s", [2]), ("v", [2, 3]), ("w", [3])]
            assert checkpoints.open(paths[-1]).format == ("tensorflow-v1" if version == 1 else "tensorflow")
            with tf.Graph().as_default(), session(tf) as sess:
                made = make(tf)
                tf.train.Saver().restore(sess, paths[-1])
                assert [x.tolist() for x in sess.run(made)] == want
            with tf.Graph().as_default(), session(tf) as sess:
                saver = tf.train.import_meta_graph(os.path.join(folder, "m-2.meta"))
                assert saver.saver_def.version == version
                saver.restore(sess, paths[-1])
                got = {x.name: sess.run(x).tolist() for x in tf.global_variables()}
                assert [got["v:0"], got["w:0"], got["s:0"]] == [want[0], want[1], want[3]]
                assert got["p/part_0:0"] + got["p/part_1:0"] == want[2]
                saver.save(sess, os.path.join(folder, "again"))
                again = saver.last_checkpoints[-1]
            tf = SYSTEMS[writer]
            with tf.Graph().as_default(), session(tf) as sess:
                made = make(tf)
                tf.train.Saver().restore(sess, again)
                assert [x.tolist() for x in sess.run(made)] == want
            with tf.Graph().as_default(), session(tf) as sess:
                x = tf.get_variable("x", [5, 2], partitioner=tf.fixed_size_partitioner(3))
                tf.train.init_from_checkpoint(paths[-1], {"p": "x"})
                sess.run(tf.global_variables_initializer())
                assert sess.run(tf.convert_to_tensor(x)).tolist() == want[2]
print("fine")
"""
)


def test_the_operations(run_python: Callable[[str], bytes]) -> None:
    assert b"fine" in run_python(OPS)


def test_savers(run_python: Callable[[str], bytes]) -> None:
    assert b"fine" in run_python(SAVERS)
