"""Objects that `test_written_saved_models` saves, each with its calls.

A model is a function without arguments that returns the object, the calls (name of the method, positional arguments,
keyword arguments) and the names of those whose results are random.
"""

MODELS = '''
import collections
import os
import tempfile

import numpy as np
import tensorflow as tf

import headrace as hr

tf.get_logger().setLevel("ERROR")
F = np.float32
X = F([[0.1, 0.2], [0.3, -0.4]])
spec = hr.TensorSpec


class Module:
    """Object with the given attributes."""

    def __init__(self, **attributes):
        vars(self).update(attributes)


def var(value, **more):
    return hr.Variable(F(value), **more)


def table():
    words = hr.lookup.KeyValueTensorInitializer(["a", "b"], hr.constant([1, 2], hr.int64))
    return hr.lookup.StaticHashTable(words, -1)


# *** models ***

def root_function():
    w = var([[1.0], [2.0]], name="w")
    return hr.jit(lambda x: hr.matmul(x, w)), [("__call__", (X,), {}), ("__call__", (), {"x": X})]

def loop():
    m = Module(w=var([0.5, 1.5]))
    @hr.jit
    def f(x, n):
        while n > 0:
            x, n = hr.tanh(x * m.w), n - 1
        return x
    m.f = f
    return m, [("f", (X, np.int32(3)), {}), ("f", (X, np.int32(0)), {}), ("f", (X,), {"n": np.int32(2)})]

def nested_loops():
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

def scanned():
    m = Module(w=var(0.9))
    m.f = hr.jit(lambda xs: hr.scan(lambda a, x: a * m.w + x, xs), input_signature=[spec((None, 2))])
    return m, [("f", (X,), {})]

def mapped():
    m = Module(w=var(1.5))
    m.f = hr.jit(lambda xs: hr.map_fn(lambda x: hr.exp(x) * m.w, xs))
    return m, [("f", (X,), {})]

def conditional():
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

def switched():
    m = Module(a=var(2.0), f=None)
    @hr.jit
    def f(k, x):
        return hr.switch_case(k, [lambda: x * m.a, lambda: x - m.a, lambda: hr.square(x * m.a)])
    m.f = f
    return m, [("f", (np.int32(k), X), {}) for k in range(3)]

def loop_with_conditional():
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

def static_table():
    m = Module(words=table(), e=var([[1.0], [2.0], [3.0], [4.0]]))
    m.f = hr.jit(lambda s: hr.gather(m.e, m.words.lookup(s) + 1), input_signature=[spec((None,), hr.string)])
    return m, [("f", (np.array(["b", "z", "a"]),), {})]

def mutable_table():
    t = hr.lookup.experimental.MutableHashTable(hr.int64, hr.float32, -1.0)
    t.insert(hr.constant([3, 5], hr.int64), hr.constant([0.5, 1.5]))
    m = Module(t=t)
    m.f = hr.jit(lambda k: m.t.lookup(k))
    return m, [("f", (np.int64([5, 4, 3]),), {})]

def vocabulary_table():
    init = hr.lookup.KeyValueTensorInitializer(["a", "b"], hr.constant([0, 1], hr.int64))
    m = Module(t=hr.lookup.StaticVocabularyTable(init, 2))
    m.f = hr.jit(lambda s: m.t.lookup(s))
    return m, [("f", (np.array(["b", "other", "a", "q"]),), {})]

def dense_table():
    t = hr.lookup.DenseHashTable(hr.string, hr.int64, -1, "", "deleted")
    t.insert(hr.constant(["x", "y"]), hr.constant([7, 8], hr.int64))
    m = Module(t=t)
    m.f = hr.jit(lambda s: m.t.lookup(s))
    return m, [("f", (np.array(["y", "w"]),), {})]

def strings():
    m = Module(f=hr.jit(lambda s: hr.strings.join([s, "!"]), input_signature=[spec((None,), hr.string)]))
    m.g = hr.jit(lambda s: {"n": hr.strings.length(s)}, input_signature=[spec((None,), hr.string)])
    return m, [("f", (np.array(["one", ""]),), {}), ("g", (np.array(["one", ""]),), {})]

def several_functions():
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
    return Several(), [("step", (), {}), ("step", (), {}), ("f", (X,), {}), ("f", (X,), {"scale": 3.0}), ("inner", (X,), {})]

def polymorphic():
    m = Module(w=var(2.0))
    @hr.jit
    def f(x, mode="double", flag=False):
        if flag:
            x = x + 1
        return hr.cast(x, hr.float32) * m.w if mode == "double" else hr.cast(x, hr.float32) - m.w
    m.f = f
    return m, [
        ("f", (X,), {}), ("f", (X[0],), {}), ("f", (np.int32([1, 2]),), {}), ("f", (X, "less"), {}),
        ("f", (X,), {"flag": True}), ("f", (), {"x": X, "flag": True, "mode": "less"}),
    ]

def structures():
    Pair = collections.namedtuple("Pair", ["first", "second"])
    m = Module(vs=[var(1.0), 7, var(2.0)], by={"k": var(3.0), "deep": {"l": [var(4.0)]}}, n=5)
    @hr.jit
    def f(x, d):
        p = Pair(x * m.vs[0] + d["b"], d["a"][0] * m.by["k"])
        return {"z": p.first * m.vs[2], "a": [p.second, p.first * m.by["deep"]["l"][0]]}
    m.f = f
    return m, [("f", (X, {"b": X, "a": [X[0], X]}), {})]

def nested_modules():
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

def layers():
    model = Module(first=hr.layers.Dense(4, activation=hr.tanh), second=hr.layers.Dense(1))
    model.f = hr.jit(lambda x: model.second(model.first(x)), input_signature=[spec((None, 2))])
    return model, [("f", (X,), {})]

def convolution():
    model = Module(conv=hr.layers.Conv2D(3, 2), norm=hr.layers.BatchNormalization())
    model.f = hr.jit(lambda x: hr.reduce_mean(model.norm(model.conv(x)), [1, 2]))
    return model, [("f", (np.linspace(-1, 1, 32).reshape(1, 4, 4, 2).astype(F),), {})]

def lstm():
    model = Module(cell=hr.layers.LSTMCell(3), out=hr.layers.Dense(1))
    @hr.jit
    def f(x):
        y, state = hr.nn.dynamic_rnn(model.cell, x, dtype=hr.float32)
        return model.out(y)
    model.f = f
    return model, [("f", (np.linspace(-1, 1, 24).reshape(2, 4, 3).astype(F),), {})]

def recurrent():
    model = Module(cell=hr.layers.GRUCell(2))
    @hr.jit
    def f(x, lengths):
        y, state = hr.nn.dynamic_rnn(model.cell, x, sequence_length=lengths, dtype=hr.float32)
        return {"y": y, "state": state}
    model.f = f
    return model, [("f", (np.linspace(-1, 1, 12).reshape(2, 3, 2).astype(F), np.int32([1, 3])), {})]

def constants():
    k = hr.constant([1.5, -2.5])
    m = Module(w=var(2.0))
    m.f = hr.jit(lambda x: x * k * m.w + hr.constant(3.0))
    return m, [("f", (X,), {})]

def captured_state():
    count, w = hr.Variable(F(10.0), trainable=False), var(3.0)
    f = hr.jit(lambda x: x * w + count.assign_add(1.0))
    return {"f": f}, [("f", (X,), {}), ("f", (X,), {})]

def random_numbers():
    m = Module(f=hr.jit(lambda n: hr.random.uniform([n], 2.0, 3.0)))
    return m, [("f", (np.int32(5),), {})]
'''

NAMES = [line[4:-3] for line in MODELS.split("# *** models ***")[1].splitlines() if line.startswith("def ")]
