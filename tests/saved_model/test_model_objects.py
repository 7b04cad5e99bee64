"""Models of `hr.save` come back from `hr.load`: functions, objects, structures, and loaded models saved again."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import headrace as hr
from headrace.errors import GraphError, HeadraceWarning, SignatureError
from headrace.saved_model.objects import LoadedObject, Unsaved
from tests.saved_model import models

ROOT = Path(__file__).parents[2]
X = np.float32([1, 2])


@pytest.fixture
def again(tmp_path: Path) -> Callable[[Any], Any]:
    """Saves and loads a model."""
    return lambda model: hr.load(hr.save(tmp_path / "m", model))


def _gradients(f: Callable[..., Any], x: Any, variables: Any) -> list[Any]:
    x = hr.constant(x)
    with hr.GradientTape() as tape:
        tape.watch(x)
        y = hr.reduce_sum(f(x))
    return [g.numpy().tolist() for g in tape.gradient(y, [x, *variables])]


def _looping() -> tuple[Any, Any]:
    w = hr.Variable([1.0, 2.0], name="w")

    @hr.jit
    def f(x: Any, *, twice: bool = False, **more: Any) -> Any:
        for _ in hr.range(3):
            x = x * w
        if hr.reduce_sum(x) > 10.0:
            x = x * x
        return 2.0 * x if twice else x

    return f, w


# *** functions ***


def test_a_function_has_its_traces_and_its_gradient(again: Any) -> None:
    f, w = _looping()
    f(X), f(X, twice=True), f(np.float32([X, X]))
    g = again(f)
    for args, kwargs in (((X,), {}), ((X,), {"twice": True}), ((np.float32([X, X]),), {}), ((0.1 * X,), {})):
        np.testing.assert_array_equal(f(*args, **kwargs).numpy(), g(*args, **kwargs).numpy())
    (v,) = g.concrete_functions[0].variables
    assert _gradients(f, X, [w]) == _gradients(g, X, [v])
    assert _gradients(hr.jit(lambda x: g(x)), X, [v]) == _gradients(f, X, [w])
    hr.train.SGD(0.5).minimize(lambda: hr.reduce_sum(g(X)), var_list=[v])
    assert v.numpy().tolist() != w.numpy().tolist()
    with pytest.raises(SignatureError, match=r"of 'f' for the arguments .* was saved with these signatures"):
        g(np.float32([1, 2, 3]))


def test_a_signature_needs_no_call_and_defaults_stay(again: Any) -> None:
    def f(x: Any, k: int = 3, *, name: str = "a") -> Any:
        return {"y": x * k, name: (x, None)}

    signature = again(hr.jit(f, input_signature=[hr.TensorSpec((None,), hr.int32)]))
    assert signature([1, 2])["y"].numpy().tolist() == [3, 6]
    traced = hr.jit(f)
    traced(hr.constant(2)), traced(hr.constant(2), 5, name="b")
    g = again(traced)
    assert g(hr.constant(7))["y"].numpy() == 21
    assert g(k=5, name="b", x=hr.constant(7))["b"][1] is None


def test_recursive_functions_and_those_that_were_only_called_by_others(again: Any) -> None:
    @hr.jit(results=hr.int32)
    def factorial(n: Any) -> Any:
        return n * factorial(n - 1) if n > 1 else n

    outer = hr.jit(lambda n: factorial(n) + 1, input_signature=[hr.TensorSpec((), hr.int32)])
    outer(3)
    with pytest.warns(HeadraceWarning, match="factorial.* cannot be called when it is loaded"):
        found = again({"outer": outer, "factorial": factorial})
    assert found["outer"](4).numpy() == 25
    with hr.flags.override(ENGINE="interpret"):
        assert found["outer"](4).numpy() == 25
    with pytest.raises(SignatureError, match="call it once before the model is saved"):
        found["factorial"](hr.constant(4))


def test_a_custom_gradient_is_left_out_with_a_warning(again: Any) -> None:
    doubled = hr.custom_gradient(lambda x: (x * 2.0, lambda dy: dy * 5.0))
    f = hr.jit(lambda x: doubled(x) + 1.0, input_signature=[hr.TensorSpec(())])
    with pytest.warns(HeadraceWarning, match=r"has a gradient of hr\.custom_gradient, which is not saved"):
        found = again(f)
    assert found(1.0).numpy() == 3


def test_two_functions_share_a_variable_with_the_structure(again: Any) -> None:
    count = hr.Variable(0, name="count", trainable=False)
    up = hr.jit(lambda: count.assign_add(1), input_signature=[])
    down = hr.jit(lambda: count.assign_sub(10), input_signature=[])
    found = again([up, (down, {"count": count})])
    assert found[0]().numpy() == 1
    assert found[1][0]().numpy() == -9
    assert found[1][1]["count"].numpy() == -9
    assert not found[1][1]["count"].trainable


def test_tables_and_traces(again: Any) -> None:
    words = hr.lookup.KeyValueTensorInitializer(["a"], hr.constant([1], hr.int64))
    static = hr.lookup.StaticHashTable(words, -1)
    dense = hr.lookup.DenseHashTable(hr.int64, hr.float32, [0.0, 0.0], -1, -2)
    dense.insert(hr.constant([3, 4], hr.int64), [[1.0, 2.0], [3.0, 4.0]])
    dense.remove(hr.constant([4], hr.int64))
    look = hr.jit(lambda s: static.lookup(s)).lower(hr.TensorSpec((None,), hr.string))
    near = hr.jit(lambda k: dense.lookup(k), input_signature=[hr.TensorSpec((None,), hr.int64)])
    put = hr.jit(lambda k: dense.insert(k, [[5.0, 6.0]]), input_signature=[hr.TensorSpec((None,), hr.int64)])
    found = again({"tables": [static, dense], "look": look, "near": near, "put": put})
    found["put"](np.array([7]))
    found = again(found)
    assert found["look"](s=["a", "b"]).numpy().tolist() == [1, -1]
    assert found["near"](np.array([3, 4, 7])).numpy().tolist() == [[1, 2], [0, 0], [5, 6]]
    with pytest.raises(GraphError, match="uses a table or another resource that is not below the saved object"):
        again(found["look"])


# *** structures ***


class Pair(NamedTuple):
    first: Any
    second: Any


def test_structures_keep_their_kinds_and_values(again: Any) -> None:
    v = hr.Variable(1.0, name="v")
    model = {
        "z": (1, [None, 2.5, (), []], "text", b"\xff", True, 1 + 2j, 10**30, float("inf")),
        "pair": Pair(v, {}),
        "keys": {1: v, None: 2, "a": 3, 2.5: 4},
        "dtype": hr.bfloat16,
        "v": v,
    }
    found = again(model)
    assert list(found) == list(model)
    assert found["z"] == model["z"]
    assert found["pair"]._fields == ("first", "second")
    assert type(found["pair"]).__name__ == "Pair"
    assert found["pair"].first is found["v"] is found["keys"][1]
    assert list(found["keys"]) == [1, None, "a", 2.5]
    assert found["dtype"] is hr.bfloat16


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "bool", "float16", "uint8", "complex128"])
def test_values_of_every_dtype(again: Any, dtype: str) -> None:
    x = hr.cast([0, 1, 2], dtype)
    v, t, a, n = again((hr.Variable(x), x, x.numpy(), x.numpy()[1]))
    assert v.dtype.name == t.dtype.name == dtype
    assert v.numpy().tolist() == t.numpy().tolist() == a.tolist() == x.numpy().tolist()
    assert isinstance(t, hr.EagerTensor)
    assert isinstance(a, np.ndarray)
    assert type(n) is type(x.numpy()[1])
    assert n == x.numpy()[1]


def test_texts(again: Any) -> None:
    v, scalar, t = again((hr.Variable(["a", "b"]), hr.Variable("c"), hr.constant(b"\xff")))
    assert v.numpy().tolist() == [b"a", b"b"]
    assert scalar.numpy() == b"c"
    assert t.numpy() == b"\xff"


def test_shared_containers_and_cycles_stay(again: Any) -> None:
    inner = [hr.Variable(1.0)]
    inner.append(inner)
    found = again({"a": inner, "b": (inner,)})
    assert found["a"] is found["b"][0] is found["a"][1]


# *** objects ***


class Model:
    def __init__(self) -> None:
        self.w = hr.Variable([[1.0], [2.0]], name="w")
        self.scales = [hr.Variable(2.0), 3]
        self.log, self.callbacks, self.settings = logging.getLogger(), [print, 1], {"rate": (0.1, None)}
        self.note, self.itself, self.mean = "text", self, np.ones(2)

    @hr.jit
    def __call__(self, x: Any, scaled: bool = False) -> Any:
        y = hr.matmul(x, self.w)
        return y * self.scales[0] if scaled else y

    @hr.jit(input_signature=[hr.TensorSpec((None, 2))])
    def twice(self, x: Any) -> Any:
        return 2.0 * self(x)


def test_an_object_has_its_attributes_and_methods(again: Any) -> None:
    m, x = Model(), hr.constant([[3.0, 4.0]])
    m(x), m(x, scaled=True)
    found = again(m)
    assert (found(x).numpy(), found(x, scaled=True).numpy(), found.twice(x).numpy()) == (11, 22, 22)
    assert (found.note, found.settings, found.mean.tolist()) == ("text", {"rate": (0.1, None)}, [1, 1])
    assert found.itself is found
    assert found.scales[1] == 3
    assert [v.name for v in found.variables] == ["w:0", "Variable:0"]
    assert isinstance(found.callbacks[0], Unsaved)
    with pytest.raises(GraphError, match="the Python function print is not in the file"):
        found.callbacks[0]()
    with pytest.raises(AttributeError, match="the loaded object has no 'log'; it has __call__, callbacks"):
        _ = found.log
    found.w.assign([[0.0], [1.0]])
    assert found.twice(x).numpy() == 8


def test_a_method_without_traces_is_an_error_of_its_call(again: Any) -> None:
    m, x = Model(), hr.constant([[3.0, 4.0]])
    with pytest.warns(HeadraceWarning, match="'__call__' .* was never called .* cannot be called when it is loaded"):
        found = again(m)
    assert found.twice(x).numpy() == 22
    with pytest.raises(SignatureError, match="'__call__' was saved without a trace; call it once"):
        found(x)


def test_objects_without_state_are_left_out(again: Any) -> None:
    @dataclasses.dataclass
    class Part:
        value: Any
        owner: Any = None

    m = Model()
    m.head, m.plain = Part(hr.Variable(5.0), m), Part(3)  # type: ignore[attr-defined]
    m(hr.constant([[3.0, 4.0]]))
    found = again(m)
    assert found.head.value.numpy() == 5
    assert found.head.owner is found
    assert "plain" not in vars(found)


def test_an_object_with_variables_keeps_their_order(again: Any) -> None:
    class Ordered:
        def __init__(self) -> None:
            self.a, self.b = hr.Variable(1.0), hr.Variable(2.0)

        @property
        def variables(self) -> list[Any]:
            return [self.b, self.a]

    found = again(Ordered())
    assert [v.numpy() for v in found.variables] == [2, 1]
    assert found.variables[0] is found.b


# *** again ***


def test_a_loaded_model_is_saved_again(again: Any) -> None:
    m, x = Model(), hr.constant([[3.0, 4.0]])
    m(x), m(x, scaled=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        third = again(again(again({"m": m, "t": (1, None)})))
    assert third["t"] == (1, None)
    assert third["m"](x, scaled=True).numpy() == 22
    assert third["m"].itself is third["m"]
    loss, f = lambda x: hr.square(m.twice(x)), third["m"].twice
    assert _gradients(loss, [[3.0, 4.0]], [m.w]) == _gradients(lambda x: hr.square(f(x)), [[3.0, 4.0]], [third["m"].w])


def test_saved_models_and_models_go_into_one_another(again: Any, tmp_path: Path) -> None:
    m, x = Model(), hr.constant([[3.0, 4.0]])
    m(x), m(x, scaled=True)
    hr.saved_model.save(again(m), tmp_path / "first")
    first = hr.saved_model.load(tmp_path / "first")
    assert (first(x).numpy(), first(x, scaled=True).numpy(), first.twice(x).numpy()) == (11, 22, 22)
    second = again(first)
    assert isinstance(second, LoadedObject)
    assert second.twice(x).numpy() == 22
    assert second.itself is second
    second.w.assign([[0.0], [1.0]])
    assert second(x, True).numpy() == 8


def test_a_saved_model_of_tensorflow_is_saved_again(again: Any, tmp_path: Path) -> None:
    m = hr.saved_model.load(models.write(tmp_path))
    hr.saved_model.save(m, tmp_path / "second")
    for found in (again(m), hr.saved_model.load(tmp_path / "second")):
        assert found.itself is found
        assert found.parts[0][0] is found.v
        results = found.f(X), found.f(X, double=False), found.signatures["serving_default"](x=X)
        assert [r["y"].numpy().tolist() for r in results] == [[11, 14]] * 3
        with pytest.raises(SignatureError, match="of 'f' for the arguments"):
            found.f(X, True)
        found.v.assign([0, 1])
        assert found.f(X)["y"].numpy().tolist() == [10, 12]


def test_a_saved_model_of_tensorflow_1_is_saved_again(again: Any, tmp_path: Path) -> None:
    import headrace.v1 as tf

    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.placeholder(tf.float32, [None], name="x")
        w = tf.get_variable("w", initializer=3.0)
        y = tf.multiply(x, w, name="y")
        sess.run(w.initializer)
        tf.saved_model.simple_save(sess, str(tmp_path / "first"), {"x": x}, {"y": y})
    first = hr.saved_model.load(tmp_path / "first")
    hr.saved_model.save(first, tmp_path / "second")
    for found in (again(first), hr.saved_model.load(tmp_path / "second")):
        call = found.signatures["serving_default"]
        assert call(x=X)["y"].numpy().tolist() == [3, 6]
        found.variables[0].assign(5.0)
        assert call(x=X)["y"].numpy().tolist() == [5, 10]


@pytest.mark.system
def test_another_process_needs_no_classes(tmp_path: Path) -> None:
    m, x = Model(), hr.constant([[3.0, 4.0]])
    m(x)
    path = hr.save(tmp_path / "m", {"m": m, "optimizer": hr.train.Adam(0.1)})
    program = (
        "import sys, headrace as hr\n"
        "model = hr.load(sys.argv[1])\n"
        "m = model['m']\n"
        "model['optimizer'].minimize(lambda: hr.reduce_sum(m([[1.0, 0.0]])), var_list=[m.w])\n"
        "print(type(m).__name__, round(float(m.twice([[3.0, 4.0]])), 4))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, path], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "CallableObject 21.4\n"), done.stderr
