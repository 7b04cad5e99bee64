"""MetaGraphs that TensorFlow writes are read, run and written again here.

Those written here run there.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
import headrace.v1 as ht
from headrace import pb
from headrace.errors import HeadraceWarning

X = np.float32([[1, 2], [3, 4]])
T = np.float32([[1], [2]])
SCOPES = (None, "inner")

# Files of TensorFlow 1 programs with variables of both kinds, with and without a Saver, and the results of each.
WRITE = """
import pickle, sys
import numpy as np
import tensorflow.compat.v1 as tf
folder = {folder!r}
x_value, t_value = pickle.loads({values!r})
tf.disable_v2_behavior()
results = {{}}
for name in {names!r}:
    resource, with_saver, v2 = name.split("-")
    tf.reset_default_graph()
    (tf.enable_control_flow_v2 if v2 == "v2" else tf.disable_control_flow_v2)()
    x, t = tf.placeholder(tf.float32, [None, 2], name="x"), tf.placeholder(tf.float32, [None, 1], name="t")
    use = resource == "resource"
    w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer(), use_resource=use)
    b = tf.Variable(0.5, name="b", use_resource=use)
    n = tf.Variable(0, trainable=False, name="n", use_resource=use, collections=["variables", "global_step"])
    y = tf.matmul(x, w) + b
    z = tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0 + b), (0, y))[1]
    c = tf.cond(b > 0, lambda: y + 1, lambda: y - 1)
    loss = tf.reduce_mean(tf.square(z + c - t))
    train = tf.train.GradientDescentOptimizer(0.001).minimize(loss, global_step=n)
    init = tf.global_variables_initializer()
    for key, thing in dict(train_op=train, loss=loss, x=x, t=t, z=z, c=c, init=init, mine=w).items():
        tf.add_to_collection(key, thing)
    tf.add_to_collection("rate", 0.5)
    tf.add_to_collection("text", "abc")
    queue = tf.FIFOQueue(4, tf.float32, name="q")
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue(1.0)]))
    queue.dequeue(name="out")
    (tf.train.Saver() if with_saver == "saver" else tf.train).export_meta_graph(f"{{folder}}/{{name}}.meta")
    with tf.Session() as sess:
        sess.run(init)
        for _ in range(3):
            sess.run(train, {{x: x_value, t: t_value}})
        results[name] = sess.run([w, b, n, loss, z, c], {{x: x_value, t: t_value}})
with open(folder + "/results", "wb") as f:
    pickle.dump(results, f)
"""

# Runs files in the same way; saves and restores where there is a saver.
READ = """
import pickle, sys
import tensorflow.compat.v1 as tf
folder = {folder!r}
x_value, t_value = pickle.loads({values!r})
tf.disable_v2_behavior()
results = {{}}
for name in {names!r}:
    tf.reset_default_graph()
    saver = tf.train.import_meta_graph(f"{{folder}}/{{name}}.meta")
    get = lambda key: tf.get_collection(key)[0]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        feeds = {{get("x"): x_value, get("t"): t_value}}
        for _ in range(3):
            sess.run(get("train_op"), feeds)
        fetches = [*tf.global_variables(), get("loss"), get("z"), get("c")]
        values = sess.run(fetches, feeds)
        path = saver.save(sess, folder + "/saved")
        sess.run(tf.global_variables_initializer())
        saver.restore(sess, path)
        assert all((a == b).all() for a, b in zip(sess.run(fetches, feeds), values))
        trainable = [v.op.name for v in tf.trainable_variables()]
        rate = tf.get_collection("rate")
        results[name] = (values, trainable, rate, tf.get_default_graph().get_all_collection_keys())
with open(folder + "/results", "wb") as f:
    pickle.dump(results, f)
"""

NAMES = [f"{a}-{b}-{c}" for a in ("resource", "reference") for b in ("saver", "plain") for c in ("v1", "v2")]


def run_there(run_python: Callable[[str], bytes], program: str, folder: Path, names: list[str]) -> Any:
    run_python(program.format(folder=str(folder), names=names, values=pickle.dumps((X, T))))
    return pickle.loads((folder / "results").read_bytes())


def trained() -> list[Any]:
    """The results of the program of the default graph."""
    graph = ht.get_default_graph()

    def get(key: str) -> Any:
        return graph.get_collection(key)[0]

    with ht.Session() as sess:
        sess.run(ht.global_variables_initializer())
        feeds = {get("x"): X, get("t"): T}
        for _ in range(3):
            sess.run(get("train_op"), feeds)
        return sess.run([*ht.global_variables(), get("loss"), get("z"), get("c")], feeds)


def check(got: list[Any], want: list[Any]) -> None:
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_files_of_tensorflow_go_in_and_out(run_python: Callable[[str], bytes], tmp_path: Path) -> None:
    want = run_there(run_python, WRITE, tmp_path, NAMES)
    again = []
    for name in NAMES:
        for scope in SCOPES:
            with ht.Graph().as_default() as g:
                saver = ht.train.import_meta_graph(f"{tmp_path}/{name}.meta", import_scope=scope)
                prefix = f"{scope}/" if scope else ""
                assert saver is not None  # where the file says nothing of one, one of its own
                assert (saver.saver_def is not None) == ("saver" in name)
                assert [v.op.name for v in ht.global_variables()] == [f"{prefix}{v}" for v in ("w", "b", "n")]
                assert [v.op.name for v in ht.trainable_variables()] == [f"{prefix}{v}" for v in ("w", "b")]
                assert g.get_collection("mine") == [ht.global_variables()[0]]
                assert g.get_collection("rate") == [0.5]
                check(trained(), want[name])
                with ht.Session() as sess:
                    coord = ht.train.Coordinator()
                    threads = ht.train.start_queue_runners(sess, coord)
                    assert sess.run(f"{prefix}out:0") == 1.0
                    coord.request_stop()
                    coord.join(threads)
                again.append(f"{name}-{scope}")
                ht.train.export_meta_graph(f"{tmp_path}/{name}-{scope}.meta")
    there = run_there(run_python, READ, tmp_path, again)
    for name in again:
        values, trainable, rate, keys = there[name]
        check(values, want[name.rpartition("-")[0]])
        assert [v.rpartition("/")[2] for v in trainable] == ["w", "b"]
        assert rate == [0.5]
        assert {"queue_runners", "text", "global_step"} <= set(keys)


def v1_program() -> None:
    x = ht.placeholder(ht.float32, [None, 2], name="x")
    t = ht.placeholder(ht.float32, [None, 1], name="t")
    w = ht.get_variable("w", [2, 1], initializer=ht.zeros_initializer())
    b = ht.Variable(0.5, name="b")
    n = ht.Variable(0, trainable=False, name="n", collections=["variables", "global_step"])
    y = ht.matmul(x, w) + b
    z = ht.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0 + b), (0, y))[1]
    c = ht.cond(b > 0, lambda: y + 1, lambda: y - 1)
    loss = ht.reduce_mean(ht.square(z + c - t))
    down = [v.assign_sub(0.001 * g) for v, g in zip((w, b), ht.gradients(loss, [w, b]), strict=True)]
    step = ht.group(*down, n.assign_add(1))
    for key, thing in {"train_op": step, "loss": loss, "x": x, "t": t, "z": z, "c": c, "rate": 0.5}.items():
        ht.add_to_collection(key, thing)


def hr_program(path: Path, form: str) -> None:
    with hr.Graph() as g:
        x, t = hr.placeholder(hr.float32, [None, 2], name="x"), hr.placeholder(hr.float32, [None, 1], name="t")
        w, b = hr.Variable(np.zeros((2, 1), np.float32), name="w"), hr.Variable(0.5, name="b")
        n = hr.Variable(0, trainable=False, name="n")
        y = hr.matmul(x, w) + b
        z = hr.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0 + b), (0, y))[1]
        c = hr.cond(b > 0, lambda: y + 1, lambda: y - 1)
        loss = hr.reduce_mean(hr.square(z + c - t))
        gradients = hr.gradients(loss, [w, b])
        step = hr.group(
            *(v.assign_sub(0.001 * d).op for v, d in zip((w, b), gradients, strict=True)), n.assign_add(1).op
        )
    lists = {"train_op": [step], "loss": [loss], "x": [x], "t": [t], "z": [z], "c": [c], "rate": [0.5]}
    hr.export_meta_graph(g, path, collections=lists, form=form, strip_default_attrs=True)


def test_files_of_headrace_run_in_tensorflow(run_python: Callable[[str], bytes], tmp_path: Path) -> None:
    with ht.Graph().as_default():
        v1_program()
        want = trained()
        ht.train.export_meta_graph(f"{tmp_path}/v1.meta")
        ht.train.export_meta_graph(f"{tmp_path}/text.meta", as_text=True, clear_devices=True)
    for form in ("structured", "primitive"):
        hr_program(tmp_path / f"{form}.meta", form)
    there = run_there(run_python, READ, tmp_path, ["v1", "text", "structured", "primitive"])
    for values, trainable, rate, _ in there.values():
        check(values, want)
        assert trainable == ["w", "b"]
        assert rate == [0.5]


SAVED_MODEL = """
import sys, tempfile
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
class Model(tf.Module):
    def __init__(self):
        self.v = tf.Variable(2.0, name="v")
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def f(self, x):
        return {"y": tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * self.v), (0, x))[1]}
model = Model()
with tempfile.TemporaryDirectory() as folder:
    tf.saved_model.save(model, folder, signatures=model.f)
    with open(folder + "/saved_model.pb", "rb") as f:
        saved = saved_model_pb2.SavedModel.FromString(f.read())
sys.stdout.buffer.write(saved.meta_graphs[0].SerializeToString())
"""


def test_the_graph_of_a_saved_model_is_read(run_python: Callable[[str], bytes]) -> None:
    m = hr.import_meta_graph(run_python(SAVED_MODEL))
    assert m.tags == ("serve",)
    call = m.signatures["serving_default"]
    assert call.method_name == "tensorflow/serving/predict"
    with m.graph:
        init = hr.raw_ops.AssignVariableOp(resource=m.graph.get_tensor_by_name("v:0"), value=hr.constant(2.0))
    with hr.Session(graph=m.graph) as sess:
        sess.run(init)
        assert sess.run(call.outputs["y"], {call.inputs["x"]: [1.0, 2.0]}).tolist() == [8.0, 16.0]


UNKNOWN = """
import sys
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
ops = op_def_pb2.OpList.FromString({ops!r})
for given in (ops, None):
    with tf.Graph().as_default() as g:
        tf.import_graph_def(tf.compat.v1.GraphDef.FromString({graph_def!r}), name="", producer_op_list=given)
        print("depth" in g.get_operation_by_name("n").node_def.attr)
"""


def test_attributes_that_are_not_known(run_python: Callable[[str], bytes]) -> None:
    """The producer's default is left out.

    The meaning of a newer producer's other attributes is not known, and they are kept.
    """
    graph_def, ops = pb.GraphDef(), pb.OpList()
    node = graph_def.node.add(name="n", op="NoOp")
    node.attr["depth"].i = 1
    graph_def.versions.producer = 9999
    ops.op.add(name="NoOp").attr.add(name="depth", type="int").default_value.i = 1
    theirs = run_python(UNKNOWN.format(graph_def=graph_def.SerializeToString(), ops=ops.SerializeToString()))
    assert theirs.split() == [b"False", b"True"]
    ours = []
    for given in (ops, None):
        g = hr.Graph()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", HeadraceWarning)
            hr.import_graph_def(graph_def, graph=g, producer_op_list=given)
        ours.append("depth" in g.get_operation_by_name("n").attrs)
    assert ours == [False, True]
