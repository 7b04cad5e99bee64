"""Objects that headrace saves, and the comparison of what TensorFlow makes of them.

A process with TensorFlow imports this module and calls `check_models` and `check_signatures`. Every model is a function
without arguments that returns an object and the calls to compare: the name of the function, and the arguments.
"""

from __future__ import annotations

import collections
import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]

import headrace as hr

tf.get_logger().setLevel("ERROR")
F = np.float32
X = F([[0.1, 0.2], [0.3, -0.4]])
spec = hr.TensorSpec


class Module:
    """Object with the given attributes."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def var(value: Any, **more: Any) -> Any:
    return hr.Variable(F(value), **more)


def table() -> Any:
    words = hr.lookup.KeyValueTensorInitializer(["a", "b"], hr.constant([1, 2], hr.int64))
    return hr.lookup.StaticHashTable(words, -1)


Case = tuple[Any, list[tuple[str, tuple[Any, ...], dict[str, Any]]]]


# *** models ***


def root_function() -> Case:
    w = var([[1.0], [2.0]], name="w")
    return hr.jit(lambda x: hr.matmul(x, w)), [("__call__", (X,), {}), ("__call__", (), {"x": X})]


def loop() -> Case:
    m = Module(w=var([0.5, 1.5]))

    @hr.jit
    def f(x, n):
        while n > 0:
            x, n = hr.tanh(x * m.w), n - 1
        return x

    m.f = f
    return m, [("f", (X, np.int32(3)), {}), ("f", (X, np.int32(0)), {}), ("f", (X,), {"n": np.int32(2)})]


def nested_loops() -> Case:
    m = Module(w=var(0.7))

    @hr.jit
    def f(x):
        w = hr.identity(m.w)  # TensorFlow loses the gradient of a variable that nested loops of a loaded model read
        i = 0
        while i < hr.shape(x)[0]:
            j = 0
            while j < i + 2:
                x = hr.sin(x) * w
                j += 1
            i += 1
        return x

    m.f = f
    return m, [("f", (X,), {})]


def scanned() -> Case:
    m = Module(w=var(0.9))
    m.f = hr.jit(lambda xs: hr.scan(lambda a, x: a * m.w + x, xs), input_signature=[spec((None, 2))])
    return m, [("f", (X,), {})]


def mapped() -> Case:
    m = Module(w=var(1.5))
    m.f = hr.jit(lambda xs: hr.map_fn(lambda x: hr.exp(x) * m.w, xs))
    return m, [("f", (X,), {})]


def conditional() -> Case:
    m = Module(a=var(2.0), b=var(3.0))

    @hr.jit
    def f(x):
        if hr.reduce_sum(x) > 0.0:
            y = x * m.a
        else:
            y = x + hr.exp(m.b)
        return y

    m.f = f
    return m, [("f", (X,), {}), ("f", (-X,), {})]


def switched() -> Case:
    m = Module(a=var(2.0), f=None)

    @hr.jit
    def f(k, x):
        return hr.switch_case(k, [lambda: x * m.a, lambda: x - m.a, lambda: hr.square(x * m.a)])

    m.f = f
    return m, [("f", (np.int32(k), X), {}) for k in range(3)]


def loop_with_conditional() -> Case:
    m = Module(w=var(0.6))

    @hr.jit
    def f(x):
        i = 0
        while i < 4:
            if i % 2 == 0:
                x = x * m.w
            else:
                x = hr.cos(x)
            i += 1
        return x

    m.f = f
    return m, [("f", (X,), {})]


def static_table() -> Case:
    m = Module(words=table(), e=var([[1.0], [2.0], [3.0], [4.0]]))
    m.f = hr.jit(lambda s: hr.gather(m.e, m.words.lookup(s) + 1), input_signature=[spec((None,), hr.string)])
    return m, [("f", (np.array(["b", "z", "a"]),), {})]


def mutable_table() -> Case:
    t = hr.lookup.experimental.MutableHashTable(hr.int64, hr.float32, -1.0)
    t.insert(hr.constant([3, 5], hr.int64), hr.constant([0.5, 1.5]))
    m = Module(t=t)
    m.f = hr.jit(lambda k: m.t.lookup(k))
    return m, [("f", (np.int64([5, 4, 3]),), {})]


def vocabulary_table() -> Case:
    init = hr.lookup.KeyValueTensorInitializer(["a", "b"], hr.constant([0, 1], hr.int64))
    m = Module(t=hr.lookup.StaticVocabularyTable(init, 2))
    m.f = hr.jit(lambda s: m.t.lookup(s))
    return m, [("f", (np.array(["b", "other", "a", "q"]),), {})]


def dense_table() -> Case:
    t = hr.lookup.DenseHashTable(hr.string, hr.int64, -1, "", "deleted")
    t.insert(hr.constant(["x", "y"]), hr.constant([7, 8], hr.int64))
    m = Module(t=t)
    m.f = hr.jit(lambda s: m.t.lookup(s))
    return m, [("f", (np.array(["y", "w"]),), {})]


def strings() -> Case:
    m = Module(f=hr.jit(lambda s: hr.strings.join([s, "!"]), input_signature=[spec((None,), hr.string)]))
    m.g = hr.jit(lambda s: {"n": hr.strings.length(s)}, input_signature=[spec((None,), hr.string)])
    return m, [("f", (np.array(["one", ""]),), {}), ("g", (np.array(["one", ""]),), {})]


def several_functions() -> Case:
    class Several:
        def __init__(self):
            self.count, self.w = hr.Variable(0), var([1.0, 2.0])

        @hr.jit
        def step(self):
            return self.count.assign_add(1)

        @hr.jit
        def f(self, x, *, scale=2.0):
            return self.inner(x) * scale, {"w": self.w * 1.0}

        @hr.jit
        def inner(self, x):
            return x * self.w

    return Several(), [
        ("step", (), {}),
        ("step", (), {}),
        ("f", (X,), {}),
        ("f", (X,), {"scale": 3.0}),
        ("inner", (X,), {}),
    ]


def polymorphic() -> Case:
    m = Module(w=var(2.0))

    @hr.jit
    def f(x, mode="double", flag=False):
        if flag:
            x = x + 1
        return hr.cast(x, hr.float32) * m.w if mode == "double" else hr.cast(x, hr.float32) - m.w

    m.f = f
    return m, [
        ("f", (X,), {}),
        ("f", (X[0],), {}),
        ("f", (np.int32([1, 2]),), {}),
        ("f", (X, "less"), {}),
        ("f", (X,), {"flag": True}),
        ("f", (), {"x": X, "flag": True, "mode": "less"}),
    ]


def structures() -> Case:
    Pair = collections.namedtuple("Pair", ["first", "second"])
    m = Module(vs=[var(1.0), 7, var(2.0)], by={"k": var(3.0), "deep": {"l": [var(4.0)]}}, n=5)

    @hr.jit
    def f(x, d):
        p = Pair(x * m.vs[0] + d["b"], d["a"][0] * m.by["k"])
        return {"z": p.first * m.vs[2], "a": [p.second, p.first * m.by["deep"]["l"][0]]}

    m.f = f
    return m, [("f", (X, {"b": X, "a": [X[0], X]}), {})]


def nested_modules() -> Case:
    class Inner:
        def __init__(self, v):
            self.v = var(v)

        @hr.jit
        def __call__(self, x):
            return x * self.v

    class Outer:
        def __init__(self):
            self.parts = [Inner(2.0), Inner(3.0)]
            self.same = self.parts[0]
            self.parent = self

        @hr.jit
        def __call__(self, x):
            for part in self.parts:
                x = part(x)
            return x

    return Outer(), [("__call__", (X,), {})]


def layers() -> Case:
    model = Module(first=hr.layers.Dense(4, activation=hr.tanh), second=hr.layers.Dense(1))
    model.f = hr.jit(lambda x: model.second(model.first(x)), input_signature=[spec((None, 2))])
    return model, [("f", (X,), {})]


def convolution() -> Case:
    model = Module(conv=hr.layers.Conv2D(3, 2), norm=hr.layers.BatchNormalization())
    model.f = hr.jit(lambda x: hr.reduce_mean(model.norm(model.conv(x)), [1, 2]))
    return model, [("f", (np.linspace(-1, 1, 32).reshape(1, 4, 4, 2).astype(F),), {})]


def lstm() -> Case:
    model = Module(cell=hr.layers.LSTMCell(3), out=hr.layers.Dense(1))

    @hr.jit
    def f(x):
        y, _ = hr.nn.dynamic_rnn(model.cell, x, dtype=hr.float32)
        return model.out(y)

    model.f = f
    return model, [("f", (np.linspace(-1, 1, 24).reshape(2, 4, 3).astype(F),), {})]


def recurrent() -> Case:
    model = Module(cell=hr.layers.GRUCell(2))

    @hr.jit
    def f(x, lengths):
        y, state = hr.nn.dynamic_rnn(model.cell, x, sequence_length=lengths, dtype=hr.float32)
        return {"y": y, "state": state}

    model.f = f
    return model, [("f", (np.linspace(-1, 1, 12).reshape(2, 3, 2).astype(F), np.int32([1, 3])), {})]


def constants() -> Case:
    k = hr.constant([1.5, -2.5])
    m = Module(w=var(2.0))
    m.f = hr.jit(lambda x: x * k * m.w + hr.constant(3.0))
    return m, [("f", (X,), {})]


def captured_state() -> Case:
    count, w = hr.Variable(F(10.0), trainable=False), var(3.0)
    f = hr.jit(lambda x: x * w + count.assign_add(1.0))
    return {"f": f}, [("f", (X,), {}), ("f", (X,), {})]


def random_numbers() -> Case:
    m = Module(f=hr.jit(lambda n: hr.random.uniform([n], 2.0, 3.0)))
    return m, [("f", (np.int32(5),), {})]


MODELS: list[Callable[[], Case]] = [
    root_function,
    loop,
    nested_loops,
    scanned,
    mapped,
    conditional,
    switched,
    loop_with_conditional,
    static_table,
    mutable_table,
    vocabulary_table,
    dense_table,
    strings,
    several_functions,
    polymorphic,
    structures,
    nested_modules,
    layers,
    convolution,
    lstm,
    recurrent,
    constants,
    captured_state,
    random_numbers,
]


# *** comparison ***


def called(obj: Any, name: str) -> Any:
    return obj if name == "__call__" else obj[name] if isinstance(obj, dict) else getattr(obj, name)


def same(a: Any, b: Any, name: str) -> None:
    a, b = tf.nest.flatten(plain(a)), tf.nest.flatten(plain(b))
    assert len(a) == len(b), (name, a, b)
    for x, y in zip(a, b):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape) == (y.dtype, y.shape), (name, x, y)
        if name == "random_numbers":
            assert len(set(y.tolist())) > 1
            assert ((y >= 2) & (y < 3)).all()
        elif x.dtype.kind in "OS":
            assert x.tolist() == y.tolist(), (name, x, y)
        else:
            np.testing.assert_allclose(y.astype(float), x.astype(float), rtol=2e-5, atol=2e-6, err_msg=name)


def plain(x: Any) -> Any:
    if hasattr(x, "numpy"):
        return x.numpy()
    if isinstance(x, dict):
        return {k: plain(v) for k, v in x.items()}
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def convert(x: Any) -> Any:
    if isinstance(x, (np.ndarray, np.generic)):
        return hr.constant(x)
    if isinstance(x, dict):
        return {k: convert(v) for k, v in x.items()}
    return [convert(v) for v in x] if isinstance(x, list) else x


def loss_of(lib: Any, value: Any) -> Any:
    parts = [v for v in tf.nest.flatten(value) if v.dtype.is_floating]
    return sum(lib.reduce_sum(lib.square(v)) for v in parts) if parts else None


def check(name: str, make: Callable[[], Case]) -> None:
    obj, calls = make()
    at = [(called(obj, n), tuple(map(convert, a)), convert(k)) for n, a, k in calls]
    for f, a, k in at:  # traces
        f(*a, **k)
    folder = os.path.join(tempfile.mkdtemp(), name)
    hr.saved_model.save(obj, folder)
    loaded = tf.saved_model.load(folder)
    theirs = [called(loaded, n) for n, _, _ in calls]
    pairs = pair(obj, loaded)
    for (_, a, k), (f, ours_a, ours_k), g in zip(calls, at, theirs):
        same(f(*ours_a, **ours_k), g(*map(tensor, a), **{key: tensor(v) for key, v in k.items()}), name)
    learned = [(v, w) for v, w in pairs if w.trainable and w.dtype.is_floating]
    for _ in range(3):
        if name == "random_numbers" or not learned:
            break
        for (_, a, k), (f, ours_a, ours_k), g in zip(calls, at, theirs):
            with hr.GradientTape() as ours:
                ours_loss = loss_of(hr, f(*ours_a, **ours_k))
            with tf.GradientTape() as tape:
                loss = loss_of(tf, g(*map(tensor, a), **{key: tensor(v) for key, v in k.items()}))
            if loss is None:
                continue
            same(ours_loss, loss, name)
            found = ours.gradient(ours_loss, [v for v, _ in learned])
            expected = tape.gradient(loss, [w for _, w in learned])
            for (v, w), x, y in zip(learned, found, expected):
                assert (x is None) == (y is None), (name, v.name, x, y)
                if x is not None:
                    x, y = hr.convert_to_tensor(x).numpy(), tf.convert_to_tensor(y).numpy()
                    same(x, y, name)
                    v.assign_sub(0.01 * x)
                    w.assign_sub(0.01 * y)
    for v, w in pairs:
        same(v.numpy(), w.numpy(), name)


def tensor(x: Any) -> Any:
    if isinstance(x, dict):
        return {k: tensor(v) for k, v in x.items()}
    if isinstance(x, list):
        return [tensor(v) for v in x]
    return tf.constant(x) if isinstance(x, (np.ndarray, np.generic)) else x


def pair(obj: Any, loaded: Any) -> list[tuple[Any, Any]]:
    """Pairs of the variables of both systems, by the paths of the checkpoint."""
    from headrace.api.variable import Variable
    from headrace.saved_model.model import Model

    model = Model(obj, {}, ["serve"])
    out = []
    for i, v in model._tree.leaves(Variable):
        x = loaded
        for part in model._tree.paths[i].split("/"):
            x = x[int(part)] if isinstance(x, list) else x[part] if isinstance(x, dict) else getattr(x, part)
        out.append((v, x))
    return out


def check_models() -> None:
    """Compares the results, the gradients and three steps of training of all models."""
    for make in MODELS:
        check(make.__name__, make)


def check_signatures() -> None:
    """Compares signatures in TensorFlow 2, in a session and in a copy that TensorFlow saves."""

    class Served:
        def __init__(self):
            self.w, self.words = var([[1.0], [2.0]], name="w"), table()

        @hr.jit
        def __call__(self, x):
            return hr.matmul(x, self.w)

        @hr.jit
        def look(self, s, b):
            return {"ids": self.words.lookup(s), "z": b * 2.0, "a": b + 1.0}

        @hr.jit
        def train(self, x):
            with hr.GradientTape() as tape:
                loss = hr.reduce_mean(hr.square(self(x) - 1.0))
            self.w.assign_sub(0.1 * tape.gradient(loss, self.w))
            return [loss, hr.reduce_sum(self.w)]

    m = Served()
    look = m.look.lower(spec((None,), hr.string), spec((2,)))
    signatures = {
        "serving_default": m.__call__.lower(spec((None, 2))),
        "look": look,
        "train": m.train.lower(spec((None, 2))),
    }
    folder = os.path.join(tempfile.mkdtemp(), "served")
    hr.saved_model.save(m, folder, signatures)
    words, pair_of = np.array(["b", "q"]), F([3, 4])
    want_look = {"ids": np.int64([2, -1]), "z": F([6, 8]), "a": F([4, 5])}

    loaded = tf.saved_model.load(folder)
    same({"output_0": m(hr.constant(X))}, loaded.signatures["serving_default"](x=tf.constant(X)), "served")
    same(want_look, loaded.signatures["look"](s=tf.constant(words), b=tf.constant(pair_of)), "look")
    same(loaded(X), m(hr.constant(X)), "call")
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as sess:
        calls = v1.saved_model.load(sess, ["serve"], folder).signature_def

        def run(name: str, **feeds: Any) -> Any:
            call = calls[name]
            return sess.run(
                {k: v.name for k, v in call.outputs.items()}, {call.inputs[k].name: v for k, v in feeds.items()}
            )

        same({"output_0": m(hr.constant(X))}, run("serving_default", x=X), "v1")
        same(want_look, run("look", s=words, b=pair_of), "v1")
        for _ in range(3):  # the training step of the model changes the variable of the session
            loss, total = m.train(hr.constant(X))
            same({"output_0": loss, "output_1": total}, run("train", x=X), "v1")
        y = v1.get_default_graph().get_tensor_by_name(calls["serving_default"].outputs["output_0"].name)
        w = v1.get_default_graph().get_tensor_by_name("w:0")
        assert tf.gradients(y, w)[0] is not None
    again = os.path.join(tempfile.mkdtemp(), "again")  # TensorFlow saves the loaded object
    tf.saved_model.save(loaded, again, loaded.signatures)
    same(loaded(X), tf.saved_model.load(again)(X), "again")
