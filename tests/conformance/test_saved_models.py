"""SavedModels that one system saves load, run and train on in the other."""

from __future__ import annotations

from collections.abc import Callable

COMMON = """
import os, tempfile
import numpy as np
import tensorflow
import headrace.v1 as ours

theirs = tensorflow.compat.v1
theirs.disable_eager_execution()
theirs.logging.set_verbosity(theirs.logging.ERROR)
F = np.float32


def flat(x):
    if hasattr(x, "indices"):
        return [np.array(x.indices), np.array(x.values), np.array(x.dense_shape)]
    if hasattr(x, "row_splits"):
        return [np.array(x.values), np.array(x.row_splits)]
    return [np.asarray(x)]


def same(a, b):
    for x, y in zip(flat(a), flat(b), strict=True):
        assert x.dtype == y.dtype, (x.dtype, y.dtype)
        if x.dtype.kind in "OS":
            assert x.tolist() == y.tolist()
        else:
            np.testing.assert_allclose(x.astype(float), y.astype(float), rtol=2e-6, atol=1e-6)


def elements(tf, call):
    find = tf.saved_model.get_tensor_from_tensor_info
    return [{k: find(v) for k, v in infos.items()} for infos in (call.inputs, call.outputs)]
"""

MODELS = """
def references(tf):
    x = tf.placeholder(tf.float32, [2], name="x")
    v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=False)
    return {"x": x}, {"y": x * v}, {x: F([1, 2])}

def training(tf):
    x, t = tf.placeholder(tf.float32, [None, 2], name="x"), tf.placeholder(tf.float32, [None], name="t")
    w, b = tf.get_variable("w", initializer=[[1.0], [2.0]]), tf.get_variable("b", initializer=0.0)
    loss = tf.reduce_mean(tf.square(tf.squeeze(tf.matmul(x, w), 1) + b - t))
    step = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=tf.train.get_or_create_global_step())
    tf.add_to_collection("train_op", step)
    return {"x": x, "t": t}, {"loss": loss}, {x: F([[1, 2], [3, 4]]), t: F([1, 2])}

def sparse(tf):
    s = tf.sparse_placeholder(tf.float32, [2, 3], name="s")
    again = tf.SparseTensor(s.indices, s.values * 2, s.dense_shape)
    value = tf.SparseTensorValue(np.array([[0, 1], [1, 2]]), F([1, 2]), [2, 3])
    return {"s": s}, {"d": tf.sparse_tensor_to_dense(s), "again": again}, {s: value}

def ragged(tf):
    r = tf.ragged.placeholder(tf.float32, 1, name="r")
    again = tf.RaggedTensor.from_row_splits(r.flat_values + 1, r.row_splits)
    feed = {r.flat_values: F([1, 2, 3]), r.row_splits: np.array([0, 1, 3])}
    return {"r": r}, {"v": r.flat_values * 2.0, "again": again}, feed

def words(tf):
    path = tf.saved_model.Asset(VOCABULARY).asset_path if tf is ours else VOCABULARY
    x = tf.placeholder(tf.string, [None], name="x")
    index = tf.lookup.TextFileIndex
    init = tf.lookup.TextFileInitializer(path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
    names = tf.lookup.KeyValueTensorInitializer(np.array([0, 1]), ["a", "b"])
    ids = tf.lookup.StaticHashTable(init, -1).lookup(x)
    outs = {"ids": ids, "names": tf.lookup.StaticHashTable(names, "?").lookup(ids), "y": tf.string_join([x, "!"])}
    return {"x": x}, outs, {x: np.array([b"dog", b"cow", b"cat"], object)}

def partitioned(tf):
    x = tf.placeholder(tf.int32, [None], name="x")
    with tf.variable_scope("part", partitioner=tf.fixed_size_partitioner(3)):
        p = tf.get_variable("p", [6, 2], initializer=tf.random_normal_initializer(seed=1))
    return {"x": x}, {"y": tf.nn.embedding_lookup(p, x)}, {x: np.int32([0, 5, 3])}

def recurrent(tf):
    x = tf.placeholder(tf.float32, [2, None, 3], name="x")
    w = tf.get_variable("w", initializer=np.linspace(-1, 1, 15).reshape(5, 3).astype(F).T)
    u = tf.get_variable("u", initializer=np.linspace(-1, 1, 25).reshape(5, 5).astype(F))
    h = tf.scan(lambda h, a: tf.tanh(tf.matmul(a, w) + tf.matmul(h, u)), tf.transpose(x, [1, 0, 2]), tf.zeros([2, 5]))
    return {"x": x}, {"h": h}, {x: np.linspace(0, 1, 24).reshape(2, 4, 3).astype(F)}

def nested(tf):
    x = tf.placeholder(tf.float32, [], name="x")
    y = tf.map_fn(lambda i: tf.cond(i > 1.0, lambda: i * 2, lambda: -i), tf.stack([x, x + 1, x + 2]))
    c = tf.case([(x < 0, lambda: tf.constant(-1.0)), (x < 2, lambda: x * x)], default=lambda: tf.constant(9.0))
    inner = lambda i, s: tf.while_loop(lambda j, s: j < i, lambda j, s: (j + 1, s + x), (0, s))[1]
    _, s = tf.while_loop(lambda i, s: i < 3, lambda i, s: (i + 1, inner(i, s)), (0, 0.0))
    return {"x": x}, {"y": y, "c": c, "s": s}, {x: F(1.5)}

def stateless(tf):
    x = tf.placeholder(tf.float32, [], name="x")
    return {"x": x}, {"y": x + 1}, {x: F(2)}

def convolution(tf):
    x = tf.placeholder(tf.float32, [2, 6, 6, 1], name="x")
    k = tf.get_variable("k", [3, 3, 1, 2], initializer=tf.random_uniform_initializer(seed=1))
    m, s = tf.get_variable("m", initializer=tf.zeros([2])), tf.get_variable("s", initializer=tf.ones([2]))
    h = tf.nn.max_pool(tf.nn.relu(tf.nn.conv2d(x, k, [1, 1, 1, 1], "SAME")), [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    return {"x": x}, {"y": tf.nn.fused_batch_norm(h, s, m)[0]}, {x: np.arange(72).reshape(2, 6, 6, 1).astype(F) / 10}

def dtypes(tf):
    x = tf.placeholder(tf.int32, [3], name="x")
    v = tf.get_variable("v", initializer=np.array([1, 2, 3], np.int64))
    return {"x": x}, {"y": tf.cast(x, tf.int64) * v, "b": x > 1, "h": tf.cast(x, tf.bfloat16)}, {x: np.int32([1, 2, 3])}

ALL = references, training, sparse, ragged, words, partitioned, recurrent, nested, stateless, convolution, dtypes
"""

BOTH_WAYS = """
VOCABULARY = ""
SYSTEMS = (ours, theirs, False), (theirs, ours, False), (theirs, ours, True)

for number, model in enumerate(ALL):
    for writer, reader, is_v2 in SYSTEMS:
        (theirs.enable_control_flow_v2 if is_v2 else theirs.disable_control_flow_v2)()
        with tempfile.TemporaryDirectory() as folder:
            VOCABULARY = os.path.join(folder, "words.txt")
            with open(VOCABULARY, "w") as f:
                f.write("cat\\ndog\\n")
            path = os.path.join(folder, "model")
            with writer.Graph().as_default(), writer.Session() as sess:
                ins, outs, feed = model(writer)
                sess.run([writer.global_variables_initializer(), writer.tables_initializer()])
                want = [sess.run(outs, feed)]
                signature = writer.saved_model.predict_signature_def(ins, outs)
                builder = writer.saved_model.Builder(path)
                builder.add_meta_graph_and_variables(
                    sess, ["serve", "train"], {"serving_default": signature}, main_op=writer.tables_initializer(),
                    assets_collection=writer.get_collection("asset_filepaths"), strip_default_attrs=bool(number % 2),
                )
                builder.save(as_text=bool(number % 3))
                for _ in range(3):
                    sess.run(writer.get_collection("train_op"), feed)
                want.append(sess.run(outs, feed))
            os.unlink(VOCABULARY)
            os.rename(path, path + " moved")
            path += " moved"
            assert reader.saved_model.contains_saved_model(path)
            for scope in (None, "in/side"):
                with reader.Graph().as_default(), reader.Session() as sess:
                    found = reader.saved_model.load(sess, {"train", "serve"}, path, import_scope=scope)
                    find = lambda info: reader.saved_model.get_tensor_from_tensor_info(info, import_scope=scope)
                    call = found.signature_def["serving_default"]
                    assert reader.saved_model.is_valid_signature(call)
                    outs = {k: find(v) for k, v in call.outputs.items()}
                    add = f"{scope}/" if scope else ""
                    feed_there = {}
                    for key, value in feed.items():
                        if model is sparse:
                            feed_there[find(call.inputs["s"])] = reader.SparseTensorValue(*value)
                        else:
                            feed_there[add + key.name] = value
                    for i, expected in enumerate(want):
                        got = sess.run(outs, feed_there)
                        for k in expected:
                            same(expected[k], got[k])
                        if i == 0:
                            for _ in range(3):
                                sess.run(reader.get_collection("train_op"), feed_there)
                    if reader is ours and model in (references, recurrent, nested) and not scope:
                        # a loaded model can be differentiated, saved and loaded again
                        x = find(call.inputs["x"])
                        assert np.all(np.isfinite(sess.run(reader.gradients(list(outs.values()), [x])[0], feed_there)))
                        again = os.path.join(folder, "again")
                        builder = reader.saved_model.Builder(again)
                        builder.add_meta_graph_and_variables(sess, ["serve"], {"serving_default": call})
                        builder.save()
                        with writer.Graph().as_default(), writer.Session() as third:
                            found = writer.saved_model.load(third, ["serve"], again).signature_def["serving_default"]
                            got = third.run({k: v.name for k, v in found.outputs.items()}, feed_there)
                            for k in want[0]:
                                same(want[0][k], got[k])
print("fine")
"""

MESSAGES = """
def tensors(tf):
    x = tf.placeholder(tf.float32, [None, 2], name="x")
    with tf.variable_scope("s"):
        v = tf.get_variable("v", initializer=[1.0, 2.0], use_resource=True)
    return dict(
        x=x, v=v, words=tf.placeholder(tf.string, name="words"), c=tf.constant([b"a"], name="c"),
        sparse=tf.sparse_placeholder(tf.int64, [None, 3], name="sparse"),
        ragged=tf.ragged.placeholder(tf.float32, 2, (3,), name="ragged"),
        h=tf.cast(x, tf.bfloat16, name="h"),
    )

CLASSES = ValueError, TypeError, KeyError, AssertionError, OSError, RuntimeError, AttributeError

def tried(out, steps):
    for name, step in steps.items():
        try:
            got = step()
        except Exception as e:
            out[name] = next(c.__name__ for c in type(e).__mro__ if c in CLASSES)
        else:
            out[name] = os.path.basename(got) if isinstance(got, bytes) else got

def outcomes(tf):
    m, t = tf.saved_model, tensors(tf)
    x, words = t["x"], t["words"]
    out = {k: m.build_tensor_info(v).SerializeToString(deterministic=True) for k, v in t.items()}
    info = m.build_tensor_info(x)
    made = {}
    tried(made, dict(
        predict=lambda: m.predict_signature_def({"a": x}, {"b": t["sparse"], "c": t["ragged"]}),
        regress=lambda: m.regression_signature_def(words, x),
        regress_floats=lambda: m.regression_signature_def(x, x),
        regress_none=lambda: m.regression_signature_def(None, x),
        regress_number=lambda: m.regression_signature_def(3, x),
        regress_nothing=lambda: m.regression_signature_def(words, None),
        regress_texts=lambda: m.regression_signature_def(words, words),
        classify=lambda: m.classification_signature_def(words, words, x),
        classify_classes=lambda: m.classification_signature_def(words, words, None),
        classify_scores=lambda: m.classification_signature_def(words, None, x),
        classify_nothing=lambda: m.classification_signature_def(words, None, None),
        classify_wrong=lambda: m.classification_signature_def(words, x, None),
        classify_halves=lambda: m.classification_signature_def(words, None, t["h"]),
        predict_nothing=lambda: m.predict_signature_def({}, {"b": x}),
        predict_none=lambda: m.predict_signature_def({"b": x}, None),
        empty=lambda: m.build_signature_def(),
        named=lambda: m.build_signature_def({"a": info}, {"b": info}, "kind", {"a": t["c"]}),
        default=lambda: m.build_signature_def({"a": info}, {"b": info}, "kind", {"a": x}),
        wrong=lambda: m.build_signature_def({"a": 3}),
    ))
    for name, call in made.items():
        if isinstance(call, str):
            out[name] = call
        else:
            out[name] = call.SerializeToString(deterministic=True), m.is_valid_signature(call)
            for kind in (m.PREDICT_METHOD_NAME, m.CLASSIFY_METHOD_NAME, m.REGRESS_METHOD_NAME):
                call.method_name = kind
                out[name, kind] = m.is_valid_signature(call)
    with tempfile.TemporaryDirectory() as folder, tf.Session() as sess:
        path = os.path.join(folder, "deep", "model")
        open(os.path.join(folder, "words.txt"), "w").close()
        asset = tf.constant(os.path.join(folder, "words.txt"))
        sess.run(t["v"].initializer)
        builder = m.Builder(path)
        bad = m.build_signature_def({"x": tf.TensorInfo(name="foo")})
        good = m.build_signature_def({"x": tf.TensorInfo(name="foo", dtype=1)})
        reserved = {"__saved_model_init_op": m.build_signature_def()}
        init = tf.no_op()
        add = builder.add_meta_graph_and_variables
        tried(out, dict(
            missing=lambda: m.load(sess, ["serve"], path),
            full=lambda: m.Builder(folder),
            early=lambda: builder.add_meta_graph(["a"]),
            no_dtype=lambda: add(sess, ["a"], {"s": bad}),
            reserved=lambda: add(sess, ["a"], reserved),
            no_op=lambda: add(sess, ["a"], main_op=x),
            no_constant=lambda: add(sess, ["a"], assets_collection=[words]),
            no_tensor=lambda: add(sess, ["a"], assets_collection=["words"]),
            no_text=lambda: add(sess, ["a"], assets_collection=[tf.constant(1)]),
            vector=lambda: add(sess, ["a"], assets_collection=[tf.constant(["a", "b"])]),
            first=lambda: add(sess, ["b", "a"], {"s": good}, [asset], main_op=init),
            again=lambda: add(sess, ["a"]),
            second_main=lambda: builder.add_meta_graph(["c"], main_op=init),
            second=lambda: builder.add_meta_graph(["c"]),
            empty_tags=lambda: builder.add_meta_graph([]),
            saved=lambda: builder.save(),
            not_there=lambda: m.load(sess, ["a"], path),
            loaded=lambda: sorted(m.load(sess, ["a", "b"], path).meta_info_def.tags),
            no_tags=lambda: list(m.load(sess, [], path).meta_info_def.tags),
        ))
        updater = m.signature_def_utils.MethodNameUpdater(path)
        tried(out, dict(
            update_key=lambda: updater.replace_method_name("s", "k", ["a", "b"]),
            update_every=lambda: updater.replace_method_name("s", "k"),
            update_none=lambda: updater.replace_method_name("", "k"),
            update_tag=lambda: updater.replace_method_name("s", "k", "a"),
            update_other=lambda: updater.replace_method_name("q", "k", ["a", "b"]),
        ))
        updater.save()
        with tf.Graph().as_default(), tf.Session() as other:
            out["kind"] = m.load(other, ["a", "b"], path).signature_def["s"].method_name
        files = [os.path.relpath(os.path.join(a, c), path) for a, _, b in os.walk(path) for c in b]
        out["files"] = sorted(set(files) - {"fingerprint.pb"})
    options = dict(
        plain={}, policy={"experimental_variable_policy": "SAVE_variable_devices"},
        bad={"experimental_variable_policy": "x"}, names={"namespace_whitelist": ["a"]},
        number={"namespace_whitelist": 3}, bytes={"namespace_whitelist": [b"a"]},
        image={"experimental_image_format": True},
    )
    made = {}
    tried(made, {name: lambda given=given: m.SaveOptions(**given) for name, given in options.items()})
    for name, o in made.items():
        values = () if isinstance(o, str) else (o.namespace_whitelist, o.experimental_variable_policy.value)
        out["options", name] = values or o
    out["constants"] = {n: getattr(m, n) for n in dir(theirs.saved_model) if n.isupper()}
    for module in ("constants", "tag_constants", "signature_constants"):
        names = [n for n in dir(getattr(theirs.saved_model, module)) if n.isupper()]
        out[module] = {n: getattr(getattr(m, module), n) for n in names}
    return out

with ours.Graph().as_default():
    mine = outcomes(ours)
with theirs.Graph().as_default():
    yours = outcomes(theirs)
assert mine["wrong"] == yours["wrong"] == "TypeError"
for key, value in yours.items():
    assert mine[key] == value, (key, mine[key], value)
print("fine", len(yours))
"""

OBJECTS = """
import os, tempfile
import numpy as np
import tensorflow as tf
import headrace.v1 as ours

folder = tempfile.mkdtemp()
vocabulary = os.path.join(folder, "words.txt")
with open(vocabulary, "w") as f:
    f.write("cat\\ndog\\n")

class Model(tf.Module):
    def __init__(self):
        self.w = tf.Variable([1.0, 2.0, 3.0])
        index = tf.lookup.TextFileIndex
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(vocabulary, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER), -1
        )

    @tf.function(input_signature=[tf.TensorSpec([None]), tf.TensorSpec([None], tf.string), tf.TensorSpec([], tf.int32)])
    def __call__(self, x, words, n):
        step = lambda i, a: (i + 1, tf.cond(a > 10.0, lambda: a / 2.0, lambda: a * 3.0))
        _, a = tf.while_loop(lambda i, a: i < n, step, (0, tf.reduce_sum(x * self.w)))
        return {"a": a, "ids": self.table.lookup(words)}

model = Model()
path = os.path.join(folder, "model")
tf.saved_model.save(model, path)
values = {"x": np.float32([1, 2, 3]), "words": np.array(["dog", "cow"]), "n": np.int32(5)}
want = {k: v.numpy().tolist() for k, v in model(**{k: tf.constant(v) for k, v in values.items()}).items()}
os.unlink(vocabulary)
with ours.Graph().as_default(), ours.Session() as sess:
    call = ours.saved_model.load(sess, ["serve"], path).signature_def["serving_default"]
    feed = {call.inputs[k].name: v for k, v in values.items()}
    got = sess.run({k: v.name for k, v in call.outputs.items()}, feed)
assert {k: v.tolist() for k, v in got.items()} == want == {"a": 15.75, "ids": [1, -1]}, (got, want)
print("fine")
"""


def test_models_load_in_the_other_system(run_python: Callable[[str], bytes]) -> None:
    assert run_python(COMMON + MODELS + BOTH_WAYS) == b"fine\n"


def test_messages_and_errors_are_those_of_tensorflow(run_python: Callable[[str], bytes]) -> None:
    assert run_python(COMMON + MESSAGES).startswith(b"fine")


def test_a_model_of_tensorflow_2_loads_as_a_graph(run_anew: Callable[[str], bytes]) -> None:
    assert run_anew(OBJECTS) == b"fine\n"
