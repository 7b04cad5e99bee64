"""SavedModels that TensorFlow writes, and the comparison of what each system makes of them.

A process with TensorFlow imports this module and calls `check`. Every model is a `Case`: the object to save, the calls
to compare, and the calls to differentiate and train.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf  # type: ignore[import-untyped]

import headrace as hr

F = np.float32
X = np.linspace(-1, 1, 12).reshape(4, 3).astype(F)


class Case:
    """Model to save, with its calls.

    Args:
      model: the object; or None, for a folder that `write` fills.
      calls: pairs of a path of attributes ("layers.0.f", "signatures/name") and the arguments (args, kwargs).
      trained: the calls to differentiate and train; they return float tensors.
      signatures: as `tf.saved_model.save` takes them.
      write: a function that writes the folder.
      options: options of `tf.saved_model.save`.
    """

    def __init__(
        self,
        model: Any,
        calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]],
        trained: list[tuple[str, tuple[Any, ...], dict[str, Any]]] | None = None,
        signatures: Any = None,
        write: Callable[[str], None] | None = None,
        options: Any = None,
    ) -> None:
        self.model = model
        self.calls = calls
        self.trained = trained or []
        self.signatures = signatures
        self.write = write
        self.options = options

    def save(self, folder: str) -> None:
        """Writes the SavedModel."""
        if self.write is not None:
            self.write(folder)
        else:
            tf.saved_model.save(self.model, folder, self.signatures, self.options)


def spec(*shape: int | None, dtype: Any = tf.float32, name: str | None = None) -> Any:
    """Returns a TensorSpec of TensorFlow."""
    return tf.TensorSpec(list(shape), dtype, name)


def linear() -> Case:
    """Two variables and a function with an input signature."""

    class Linear(tf.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.w = tf.Variable(np.linspace(0, 1, 6).reshape(3, 2).astype(F), name="w")
            self.b = tf.Variable([0.5, -0.5], name="b")
            self.steps = tf.Variable(7, trainable=False, dtype=tf.int64, name="steps")

        @tf.function(input_signature=[spec(None, 3, name="x")])
        def __call__(self, x: Any) -> Any:
            return tf.matmul(x, self.w) + self.b

        @tf.function(input_signature=[])
        def count(self) -> Any:
            self.steps.assign_add(1)
            return self.steps.read_value()

    calls = [("__call__", (X,), {}), ("signatures/serving_default", (), {"x": X}), ("count", (), {}), ("count", (), {})]
    model = Linear()
    return Case(model, calls, [("__call__", (X,), {})], signatures=model.__call__)


def several_signatures() -> Case:
    """Three signatures, one with two outputs and one with two inputs."""
    model = tf.Module()
    model.scale = tf.Variable(3.0, name="scale")

    @tf.function(input_signature=[spec(None, name="x")])
    def serve(x: Any) -> Any:
        return {"y": x * model.scale, "square": x * x}

    @tf.function(input_signature=[spec(None, name="a"), spec(None, name="b")])
    def add(a: Any, b: Any) -> Any:
        return {"sum": a + b * model.scale}

    @tf.function(input_signature=[spec(None, dtype=tf.int32, name="n")])
    def count(n: Any) -> Any:
        return tf.reduce_sum(n)

    a = F([1, 2, 3])
    calls = [
        ("signatures/serving_default", (), {"x": a}),
        ("signatures/add", (), {"a": a, "b": 2 * a}),
        ("signatures/count", (), {"n": np.int32([1, 5])}),
    ]
    signatures = {"serving_default": serve, "add": add, "count": count}
    return Case(model, calls, calls[:2], signatures)


def conditional() -> Case:
    """Conditionals on tensors, nested."""
    model = tf.Module()
    model.v = tf.Variable([1.0, 2.0, 3.0], name="v")

    @tf.function(input_signature=[spec(3), spec(dtype=tf.int32)])
    def f(x: Any, n: Any) -> Any:
        if n > 2:
            y = x * model.v
            if tf.reduce_sum(x) > 1.0:
                y = tf.sin(y)
        elif n > 0:
            y = x + model.v
        else:
            y = tf.exp(x) * tf.square(model.v)
        return y

    model.f = f
    calls = [("f", (k * F([1, -1, 0.5]), n), {}) for n in (np.int32(5), np.int32(1), np.int32(0)) for k in (F(1), F(4))]
    return Case(model, calls, calls)


def loop() -> Case:
    """A while loop whose number of iterations depends on data, and one with a TensorArray."""
    model = tf.Module()
    model.w = tf.Variable(np.eye(3, dtype=F) * 0.5 + 0.1, name="w")

    @tf.function(input_signature=[spec(None, 3), spec(dtype=tf.int32)])
    def power(x: Any, n: Any) -> Any:
        i = tf.constant(0)
        while i < n:
            x = tf.tanh(tf.matmul(x, model.w))
            i += 1
        return x

    @tf.function(input_signature=[spec(None, 3)])
    def scanned(x: Any) -> Any:
        out = tf.TensorArray(tf.float32, tf.shape(x)[0])
        h = tf.zeros([3])
        for i in tf.range(tf.shape(x)[0]):
            h = tf.tanh(x[i] + tf.linalg.matvec(model.w, h))
            out = out.write(i, h)
        return out.stack()

    model.power, model.scanned = power, scanned
    calls = [("power", (X, np.int32(3)), {}), ("power", (X, np.int32(0)), {}), ("scanned", (X,), {})]
    return Case(model, calls, [calls[0], calls[2]])


def tables() -> Case:
    """Tables of constants and of a file, with strings, in one function."""
    model = tf.Module()
    path = os.path.join(tempfile.mkdtemp(), "words.txt")
    with open(path, "w") as f:
        f.write("cat\ndog\nbird\n")
    index = tf.lookup.TextFileIndex
    init = tf.lookup.TextFileInitializer(path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
    model.ids = tf.lookup.StaticHashTable(init, -1)
    numbers = tf.lookup.KeyValueTensorInitializer(np.int64([0, 1, 2]), ["zero", "one", "two"])
    model.names = tf.lookup.StaticHashTable(numbers, "?")
    model.embedding = tf.Variable(np.arange(12, dtype=F).reshape(4, 3), name="embedding")

    @tf.function(input_signature=[spec(None, dtype=tf.string, name="words")])
    def f(words: Any) -> Any:
        ids = model.ids.lookup(tf.strings.lower(words))
        return {"ids": ids, "names": model.names.lookup(ids), "text": tf.strings.join([words, "!"])}

    @tf.function(input_signature=[spec(None, dtype=tf.string)])
    def embedded(words: Any) -> Any:
        return tf.gather(model.embedding, model.ids.lookup(words) + 1)

    model.f, model.embedded = f, embedded
    words = np.array([b"DOG", b"cow", b"bird"], object)
    calls = [("f", (words,), {}), ("signatures/serving_default", (), {"words": words}), ("embedded", (words,), {})]
    return Case(model, calls, [calls[2]], signatures=f)


def mutable_table() -> Case:
    """A table whose contents are in the checkpoint."""
    model = tf.Module()
    model.table = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, -1)
    model.table.insert(tf.constant(["a", "b"]), tf.constant([10, 20], tf.int64))

    @tf.function(input_signature=[spec(None, dtype=tf.string)])
    def find(keys: Any) -> Any:
        return model.table.lookup(keys)

    @tf.function(input_signature=[spec(None, dtype=tf.string), spec(None, dtype=tf.int64)])
    def put(keys: Any, values: Any) -> Any:
        model.table.insert(keys, values)
        return model.table.size()

    model.find, model.put = find, put
    keys = np.array([b"a", b"c"], object)
    return Case(model, [("find", (keys,), {}), ("put", (keys, np.int64([1, 2])), {}), ("find", (keys,), {})])


def nested_modules() -> Case:
    """Modules in lists, dicts and tuples, with a shared variable."""

    class Layer(tf.Module):  # type: ignore[misc]
        def __init__(self, k: float, shared: Any) -> None:
            super().__init__()
            self.w = tf.Variable(np.full((3, 3), k, F), name="w")
            self.shared = shared

        @tf.function(input_signature=[spec(None, 3)])
        def __call__(self, x: Any) -> Any:
            return tf.nn.relu(tf.matmul(x, self.w) + self.shared)

    model = tf.Module()
    model.shared = tf.Variable([0.1, 0.2, 0.3], name="shared")
    model.layers = [Layer(0.1, model.shared), Layer(0.2, model.shared)]
    model.named = {"first": model.layers[0], "extra": Layer(0.3, model.shared)}
    model.pair = (Layer(0.4, model.shared), [tf.Variable(1.5, name="one"), tf.Variable(2.5, name="two")])
    model.itself = model

    @tf.function(input_signature=[spec(None, 3)])
    def run(x: Any) -> Any:
        for layer in [*model.layers, model.named["extra"], model.pair[0]]:
            x = layer(x)
        return x * model.pair[1][0] + model.pair[1][1]

    model.run = run
    calls = [
        ("run", (X,), {}),
        ("layers.1.__call__", (X,), {}),
        ("named.extra.__call__", (X,), {}),
        ("pair.0.__call__", (X,), {}),
        ("itself.itself.run", (X,), {}),
    ]
    return Case(model, calls, calls[:3])


def polymorphic() -> Case:
    """A function with several traces: dtypes, ranks, Python arguments, keywords."""
    model = tf.Module()
    model.v = tf.Variable(2.0, name="v")

    @tf.function
    def f(x: Any, training: bool = False, scale: float = 1.0) -> Any:
        if x.dtype != tf.float32:
            return x + 1
        return x * model.v * scale if training else x - model.v

    for given in (spec(None), spec(None, 3), spec(2, dtype=tf.int32)):
        f.get_concrete_function(given)
    f.get_concrete_function(spec(None), True)
    f.get_concrete_function(spec(None), training=True, scale=3.0)
    model.f = f
    a = F([1, 2])
    calls = [
        ("f", (a,), {}),
        ("f", (X,), {}),
        ("f", (np.int32([1, 2]),), {}),
        ("f", (a, True), {}),
        ("f", (a,), {"training": True}),
        ("f", (a,), {"training": True, "scale": 3.0}),
    ]
    return Case(model, calls, [calls[0], calls[3], calls[5]])


def structures() -> Case:
    """Nested arguments and results."""
    model = tf.Module()
    model.v = tf.Variable(2.0, name="v")

    @tf.function(input_signature=[{"a": spec(None), "b": (spec(), [spec(2)])}])
    def f(x: Any) -> Any:
        a, (b, (c,)) = x["a"], x["b"]
        return {"sum": a * b * model.v, "parts": [c, (b, tf.constant(3))], "none": None}

    model.f = f
    calls = [("f", ({"a": F([1, 2, 3]), "b": (F(2), [F([4, 5])])},), {})]
    return Case(model, calls)


def functions() -> Case:
    """Functions that call functions, and a captured constant."""
    model = tf.Module()
    model.v = tf.Variable([1.0, 2.0, 3.0], name="v")
    table = tf.constant(np.linspace(0, 5, 300).reshape(100, 3).astype(F))

    @tf.function
    def inner(x: Any) -> Any:
        return tf.sin(x) * model.v

    @tf.function
    def middle(x: Any) -> Any:
        return inner(x) + inner(2.0 * x)

    @tf.function(input_signature=[spec(None, 3)])
    def outer(x: Any) -> Any:
        return middle(x) + tf.reduce_sum(table, 0)

    model.outer, model.table = outer, table
    return Case(model, [("outer", (X,), {})], [("outer", (X,), {})])


def convolution() -> Case:
    """Convolutions and batch statistics with assignments."""
    model = tf.Module()
    kernel = np.linspace(-1, 1, 3 * 3 * 2 * 4).reshape(3, 3, 2, 4).astype(F)
    model.k = tf.Variable(kernel, name="k")
    model.mean = tf.Variable(np.zeros(4, F), trainable=False, name="mean")

    @tf.function(input_signature=[spec(None, 6, 6, 2), spec(dtype=tf.bool)])
    def f(x: Any, training: Any) -> Any:
        y = tf.nn.conv2d(x, model.k, 1, "SAME")
        if training:
            mean = tf.reduce_mean(y, [0, 1, 2])
            model.mean.assign(0.9 * model.mean + 0.1 * mean)
        else:
            mean = model.mean.read_value()
        return tf.nn.max_pool2d(tf.nn.relu(y - mean), 2, 2, "VALID")

    model.f = f
    x = np.sin(np.arange(144)).reshape(2, 6, 6, 2).astype(F)
    return Case(model, [("f", (x, np.bool_(t)), {}) for t in (False, True, False)], [("f", (x, np.bool_(False)), {})])


def dtypes_of_all_kinds() -> Case:
    """Variables and results of many dtypes."""
    model = tf.Module()
    model.values = [
        tf.Variable(tf.cast([1, 2, 3], d), name=d.name, trainable=False)
        for d in (tf.float64, tf.float16, tf.bfloat16, tf.int8, tf.uint8, tf.int64, tf.complex64)
    ]
    model.text = tf.Variable(["a", "b"], trainable=False, name="text")
    model.flag = tf.Variable(True, trainable=False, name="flag")

    @tf.function(input_signature=[])
    def f() -> Any:
        doubled = [v + v for v in model.values]
        return [*doubled, tf.strings.join([model.text, model.text]), tf.logical_not(model.flag)]

    model.f = f
    return Case(model, [("f", (), {})])


def custom_gradient() -> Case:
    """A function with a gradient of its own, saved with its registered gradients."""
    model = tf.Module()
    model.v = tf.Variable(2.0, name="v")

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def clipped(x: Any) -> Any:
        return x * 3.0, lambda dy: tf.clip_by_value(dy, -0.5, 0.5)

    @tf.function(input_signature=[spec(None)])
    def f(x: Any) -> Any:
        return clipped(x * model.v)

    model.f = f
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    calls = [("f", (F([1, -2, 0.01]),), {})]
    return Case(model, calls, calls, options=options)


def keras_dense() -> Case:
    """A sequential model of Keras with dropout and batch normalization."""
    import tf_keras as keras  # type: ignore[import-not-found,import-untyped,unused-ignore]

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.layers.Dense(5, "relu", input_shape=(3,), name="hidden"),
            keras.layers.BatchNormalization(),
            keras.layers.Dropout(0.5),
            keras.layers.Dense(2, "softmax", name="out"),
        ]
    )
    model.compile("adam", "mse")
    model.fit(X, np.eye(2, dtype=F)[[0, 1, 0, 1]], verbose=0)
    calls = [("__call__", (X,), {"training": False}), ("signatures/serving_default", (), {"hidden_input": X})]
    return Case(model, calls, [calls[0]], write=lambda folder: model.save(folder, save_format="tf"))


def keras_lstm() -> Case:
    """A functional model of Keras with an embedding, masks and an LSTM."""
    import tf_keras as keras

    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    h = keras.layers.Embedding(10, 4, mask_zero=True, name="embedding")(ids)
    h = keras.layers.LSTM(6, return_sequences=True, name="lstm")(h)
    h = keras.layers.GRU(5, name="gru")(h)
    model = keras.Model(ids, keras.layers.Dense(2, name="out")(h))
    x = np.int32([[1, 2, 3, 0], [4, 5, 0, 0], [6, 7, 8, 9]])
    calls = [("__call__", (x,), {"training": False}), ("signatures/serving_default", (), {"ids": x})]
    return Case(model, calls, [calls[0]], write=lambda folder: model.save(folder, save_format="tf"))


def keras_subclassed() -> Case:
    """A subclassed model of Keras, with a loop in its call."""
    import tf_keras as keras

    keras.utils.set_random_seed(0)

    class Repeated(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.cells = [keras.layers.Dense(3, "tanh", name=f"cell{i}") for i in range(2)]

        @tf.function
        def call(self, x: Any) -> Any:
            for _ in tf.range(3):
                for cell in self.cells:
                    x = cell(x)
            return x

    model = Repeated()
    model(X)
    calls = [("__call__", (X,), {}), ("signatures/serving_default", (), {"input_1": X})]
    return Case(model, calls, [calls[0]], write=lambda folder: model.save(folder, save_format="tf"))


def _first(build: Callable[[Any], tuple[Any, Any]], resources: bool = True, init: Any = None) -> Callable[[str], None]:
    v1 = tf.compat.v1

    def write(folder: str) -> None:
        with tf.Graph().as_default(), v1.Session() as sess:
            with v1.variable_scope("", use_resource=resources):
                inputs, outputs = build(v1)
            sess.run([v1.global_variables_initializer(), v1.tables_initializer()])
            v1.saved_model.simple_save(sess, folder, inputs, outputs, legacy_init_op=v1.tables_initializer())

    return write


def first_resources() -> Case:
    """A graph of TensorFlow 1 with resource variables."""

    def build(v1: Any) -> Any:
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=np.linspace(-1, 1, 6).reshape(3, 2).astype(F))
        b = v1.get_variable("b", initializer=F([1, 2]))
        return {"x": x}, {"y": tf.nn.softmax(tf.matmul(x, w) + b), "h": tf.matmul(x, w)}

    calls = [("signatures/serving_default", (), {"x": X})]
    return Case(None, calls, calls, write=_first(build))


def first_references() -> Case:
    """A graph of TensorFlow 1 with reference variables, a conditional and a loop in primitives."""

    def build(v1: Any) -> Any:
        v1.disable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=np.eye(3, dtype=F) * 0.7)
        total = tf.reduce_sum(x)
        y = v1.cond(total > 0, lambda: tf.matmul(x, w), lambda: x - w[0])
        _, y = v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), [0, y])
        return {"x": x}, {"y": y}

    calls = [("signatures/serving_default", (), {"x": X + k}) for k in (F(0.5), F(-0.5))]
    return Case(None, calls, write=_first(build, resources=False))


def first_tables() -> Case:
    """A graph of TensorFlow 1 with strings and a table of an asset."""
    path = os.path.join(tempfile.mkdtemp(), "names.txt")
    with open(path, "w") as f:
        f.write("x\ny\n")

    def build(v1: Any) -> Any:
        x = v1.placeholder(tf.string, [None], name="x")
        index = tf.lookup.TextFileIndex
        init = tf.lookup.TextFileInitializer(path, tf.string, index.WHOLE_LINE, tf.int64, index.LINE_NUMBER)
        ids = tf.lookup.StaticHashTable(init, -1).lookup(x)
        w = v1.get_variable("w", initializer=F([1, 2, 3]))
        return {"x": x}, {"ids": ids, "y": tf.gather(w, ids + 1), "text": tf.strings.upper(x)}

    calls = [("signatures/serving_default", (), {"x": np.array([b"y", b"z", b"x"], object)})]
    return Case(None, calls, write=_first(build))


def first_functions() -> Case:
    """A graph of TensorFlow 1 with structured control flow that calls functions.

    TensorFlow cannot differentiate it.
    """

    def build(v1: Any) -> Any:
        v1.enable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=np.eye(3, dtype=F) * 0.7)

        @tf.function
        def step(y: Any) -> Any:
            return tf.tanh(tf.matmul(y, w))

        y = v1.cond(tf.reduce_sum(x) > 0, lambda: step(x), lambda: x * 2.0)
        _, y = v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, step(y)), [0, y])
        return {"x": x}, {"y": y}

    calls = [("signatures/serving_default", (), {"x": X + k}) for k in (F(0.5), F(-0.5))]
    return Case(None, calls, write=_first(build))


def first_structured() -> Case:
    """A graph of TensorFlow 1 with structured control flow."""

    def build(v1: Any) -> Any:
        v1.enable_control_flow_v2()
        x = v1.placeholder(tf.float32, [None, 3], name="x")
        w = v1.get_variable("w", initializer=np.eye(3, dtype=F) * 0.7)
        y = v1.cond(tf.reduce_sum(x) > 0, lambda: tf.matmul(x, w), lambda: x * 2.0)
        _, y = v1.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, tf.tanh(tf.matmul(y, w))), [0, y])
        return {"x": x}, {"y": y}

    calls = [("signatures/serving_default", (), {"x": X + k}) for k in (F(0.5), F(-0.5))]
    return Case(None, calls, calls, write=_first(build))


CASES = {
    f.__name__: f
    for f in (
        *(linear, several_signatures, conditional, loop, tables, mutable_table, nested_modules, polymorphic),
        *(structures, functions, convolution, dtypes_of_all_kinds, custom_gradient),
        *(keras_dense, keras_lstm, keras_subclassed),
        *(first_resources, first_references, first_tables, first_functions),
        first_structured,
    )
}


# *** comparison ***


def find(model: Any, path: str) -> Any:
    """Returns the part of a loaded model with a path."""
    if path.startswith("signatures/"):
        return model.signatures[path.removeprefix("signatures/")]
    for name in path.split("."):
        if name.isdigit():
            model = model[int(name)]
        elif isinstance(model, dict) or (not hasattr(model, name) and hasattr(model, "keys")):
            model = model[name]
        elif name != "__call__":
            model = getattr(model, name)
    return model


def arguments(module: Any, x: Any) -> Any:
    """Returns the arguments as tensors of a system; Python values stay."""
    if isinstance(x, (np.ndarray, np.generic)):
        return module.constant(x.tolist() if x.dtype == object else x)
    if isinstance(x, dict):
        return {k: arguments(module, v) for k, v in x.items()}
    return type(x)(arguments(module, v) for v in x) if isinstance(x, (list, tuple)) else x


def leaves(x: Any) -> list[Any]:
    """Returns the tensors of a structure as arrays."""
    if isinstance(x, dict):
        return [a for k in sorted(x) for a in [k, *leaves(x[k])]]
    if isinstance(x, (list, tuple)):
        return [len(x), *(a for y in x for a in leaves(y))]
    return [x if x is None else np.asarray(x.numpy())]


def compare(ours: Any, theirs: Any, what: str, rtol: float = 2e-5) -> None:
    """Raises an error unless two structures of results are equal."""
    a, b = leaves(ours), leaves(theirs)
    assert len(a) == len(b), (what, ours, theirs)
    for x, y in zip(a, b, strict=True):
        if not isinstance(y, np.ndarray):
            assert x == y, (what, x, y)
        elif y.dtype == object:
            assert x.tolist() == y.tolist(), (what, x, y)
        else:
            assert (x.shape, x.dtype.name) == (y.shape, y.dtype.name), what
            kind = complex if y.dtype.kind == "c" else float
            np.testing.assert_allclose(x.astype(kind), y.astype(kind), rtol=rtol, atol=1e-6, err_msg=what)


def loss_of(module: Any, result: Any) -> Any:
    """Returns the sum of the squares of the float tensors of a result."""
    parts = list(result.values()) if isinstance(result, dict) else [result]
    total = None
    for x in parts:
        if x.dtype == module.float32:
            s = module.reduce_sum(module.square(x + 0.1))
            total = s if total is None else total + s
    return total


def variables_of(model: Any, kind: type, found: dict[int, Any] | None = None) -> dict[str, Any]:
    """Returns the trainable variables below a model by name; equal names get numbers."""
    todo, seen, out = [model], set(), {}
    while todo:
        x = todo.pop(0)
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, kind):
            if x.trainable:
                out.setdefault(x.name.partition(":")[0], []).append(x)
        elif isinstance(x, dict) or hasattr(x, "keys"):
            todo += [x[k] for k in sorted(x.keys())]
        elif isinstance(x, (list, tuple)):
            todo += list(x)
        elif type(x).__module__.startswith(("tensorflow.python.saved_model", "headrace.saved_model")):
            names = [k for k in vars(x) if not k.startswith("_") and k not in ("graph", "signatures", "variables")]
            todo += [vars(x)[k] for k in sorted(names) if k != "trainable_variables" or not out]
    return {f"{name}/{i}": v for name, vs in out.items() for i, v in enumerate(vs)}


def check_copies(name: str, path: str) -> None:
    """Compares copies that headrace saves of a model with the original in TensorFlow."""
    case = CASES[name]()

    def results(model: Any, module: Any) -> list[Any]:
        return [find(model, where)(*arguments(module, a), **arguments(module, k)) for where, a, k in case.calls]

    want, ours = results(tf.saved_model.load(path), tf), hr.saved_model.load(path)
    hr.saved_model.save(ours, f"{path}_again")
    copies = {
        "hr.load": results(hr.load(hr.save(f"{path}_copy", ours)), hr),
        "hr.saved_model.load": results(hr.saved_model.load(f"{path}_again"), hr),
        "tf.saved_model.load": results(tf.saved_model.load(f"{path}_again"), tf),
    }
    for how, got in copies.items():
        for (where, _, _), x, y in zip(case.calls, got, want, strict=True):
            compare(x, y, f"{name}: {where} of the copy of {how}")


def check_served(case: Case, path: str, name: str) -> None:
    """Compares the signatures of a model as `hr.serve` calls them.

    Args:
      case, path, name: the model, its folder and its name.
    """
    calls = [(where, kwargs) for where, _, kwargs in case.calls if where.startswith("signatures/")]
    if not calls:
        return
    runner, other = hr.serve.SavedModelRunner(path), tf.saved_model.load(path)
    for where, kwargs in calls:
        signature = where.removeprefix("signatures/")
        inputs, outputs = runner.signatures[signature].inputs, runner.signatures[signature].outputs
        got = runner.run(signature, [np.asarray(kwargs[k]) for k in inputs], 60_000)
        want = find(other, where)(**arguments(tf, kwargs))
        compare({k: hr.constant(x) for k, x in zip(outputs, got, strict=True)}, want, f"{name}: {where}, served")
    runner.close()


def check(name: str) -> None:
    """Writes a model with TensorFlow and compares its calls, gradients and training.

    Args:
      name: the name of the case.
    """
    case = CASES[name]()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, name)
        case.save(path)
        if name != "first_tables":  # the tables of a graph of TensorFlow 1 cannot be saved again
            check_copies(name, path)
        ours, theirs = hr.saved_model.load(path), tf.saved_model.load(path)
        for where, args, kwargs in case.calls:
            got = find(ours, where)(*arguments(hr, args), **arguments(hr, kwargs))
            want = find(theirs, where)(*arguments(tf, args), **arguments(tf, kwargs))
            compare(got, want, f"{name}: {where}")
        check_served(case, path, name)
        mine, other = variables_of(ours, hr.Variable), variables_of(theirs, tf.Variable)
        if case.model is None:  # a graph of TensorFlow 1
            mine = {f"{v.name.partition(':')[0]}/0": v for v in ours.variables if v.trainable}
            other = {f"{v.name.partition(':')[0]}/0": v for v in theirs.variables if v.trainable}
            if not other:  # TensorFlow does not show reference variables
                assert not case.trained
                assert mine
                mine = {}
        assert mine.keys() == other.keys(), (sorted(mine), sorted(other))
        names = sorted(mine)
        assert names or not case.trained
        for where, args, kwargs in case.trained:
            found = []
            for module, model, variables in ((hr, ours, mine), (tf, theirs, other)):
                with module.GradientTape() as tape:
                    a, k = arguments(module, args), arguments(module, kwargs)
                    for x in [*a, *k.values()]:
                        if getattr(x, "dtype", None) == module.float32:
                            tape.watch(x)
                    loss = loss_of(module, find(model, where)(*a, **k))
                floats = [x for x in [*a, *k.values()] if getattr(x, "dtype", None) == module.float32]
                found.append(tape.gradient(loss, [*floats, *(variables[n] for n in names)]))
            for i, (x, y) in enumerate(zip(*found, strict=True)):
                assert (x is None) == (y is None), (name, where, i, x, y)
                if x is not None:
                    dense = [module.convert_to_tensor(g) for module, g in ((hr, x), (tf, y))]
                    compare(*dense, f"{name}: gradient {i} of {where}", 2e-4)
        for where, args, kwargs in case.trained:
            step = hr.train.SGD(0.01)
            for _ in range(3):
                with hr.GradientTape() as tape:
                    loss = loss_of(hr, find(ours, where)(*arguments(hr, args), **arguments(hr, kwargs)))
                grads = tape.gradient(loss, [mine[n] for n in names])
                step.apply_gradients([(g, mine[n]) for g, n in zip(grads, names, strict=True) if g is not None])
                with tf.GradientTape() as tape:
                    loss = loss_of(tf, find(theirs, where)(*arguments(tf, args), **arguments(tf, kwargs)))
                grads = tape.gradient(loss, [other[n] for n in names])
                for g, n in zip(grads, names, strict=True):
                    if g is not None:
                        other[n].assign_sub(0.01 * tf.convert_to_tensor(g))
            for n in names:
                compare(mine[n], other[n], f"{name}: {n} after training by {where}", 2e-4)
    print(name, "is equal")
