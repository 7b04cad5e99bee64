"""Common parts of all layers: variables and their names, sharing, losses, updates, errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import headrace as hr
from headrace import layers as L
from headrace.api.layers.base import snake_case
from tests.api.running import run


class Pair(L.Layer):
    """Two layers inside, one of them in a list, and a variable."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.first = L.Dense(3, kernel_regularizer=L.l2(1.0))
        self.others = [L.Dense(3), {"last": L.Dense(2, trainable=False)}]

    def build(self, input_shape: Any) -> None:
        self.shift = self.add_variable("shift", (2,), initializer="zeros", regularizer=L.l1(2.0))

    def call(self, inputs: Any) -> Any:
        return self.others[1]["last"](self.others[0](self.first(inputs))) + self.shift


NAMES = [
    "pair/shift:0", "pair/dense/kernel:0", "pair/dense/bias:0", "pair/dense_1/kernel:0", "pair/dense_1/bias:0",
    "pair/dense_2/kernel:0", "pair/dense_2/bias:0",
]  # fmt: skip
X = np.ones((4, 5), np.float32)


def test_variables_are_called_the_same_in_graphs_and_outside() -> None:
    outside = Pair()
    outside(X)
    with hr.Graph() as g:
        inside = Pair()
        inside(hr.placeholder(hr.float32, (None, 5)))
    for layer in (outside, inside):
        assert [v.name for v in layer.variables] == NAMES
        assert [v.name for v in layer.trainable_variables] == NAMES[:5]
        assert [v.name for v in layer.non_trainable_variables] == NAMES[5:]
        layer.trainable = False
        assert layer.trainable_variables == []
        assert len(layer.non_trainable_variables) == 7
    assert [v.name for v in g.variables] == [NAMES[0], *NAMES[1:]]


def test_sharing_is_calling_twice() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (None, 3))
        layer, other = L.Dense(3), L.Dense(3)
        y = layer(layer(x))
        z = other(x)
        init = hr.variables_initializer()
    assert [v.name for v in g.variables] == ["dense/kernel:0", "dense/bias:0", "dense_1/kernel:0", "dense_1/bias:0"]
    assert z.op.name.startswith("dense_1/")
    with hr.Session(graph=g) as session:
        session.run(init)
        value = np.eye(3, dtype=np.float32)
        once, twice = session.run([layer(x), y], {x: value})
        kernel = session.run(layer.kernel)
    np.testing.assert_allclose(once, kernel, rtol=1e-6)
    np.testing.assert_allclose(twice, kernel @ kernel, rtol=1e-4, atol=1e-6)


def test_a_first_call_in_a_branch_or_a_body() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2, 3))
        layer = L.Dense(3, kernel_initializer="ones", kernel_regularizer=L.l1(1.0), name="d")
        y = hr.cond(hr.reduce_sum(x) > 0.0, lambda: layer(x), lambda: x)
        _, z = hr.while_loop(lambda i, _: i < 2, lambda i, v: (i + 1, layer(v)), (0, x))
        init = hr.variables_initializer()
    assert [v.name for v in g.variables] == ["cond/d/kernel:0", "cond/d/bias:0"]
    with hr.Session(graph=g) as session:
        session.run(init)
        got = session.run([y, z, layer.losses], {x: np.ones((2, 3), np.float32)})
    assert [np.unique(v).tolist() for v in got[:2]] == [[3.0], [9.0]]
    assert got[2] == [9.0]


def test_losses_and_activity() -> None:
    for make in (lambda: X, lambda: hr.constant(X)):
        layer = Pair(activity_regularizer=hr.reduce_sum)
        y = layer(make())
        layer.shift.assign([1.0, -2.0])  # behind the call: losses are those of what is there now
        kernel = layer.first.kernel.numpy()
        got = [float(x) for x in layer.losses]
        np.testing.assert_allclose(got, [6.0, y.numpy().sum() / 4, (kernel**2).sum()], rtol=1e-5)
        layer(make())
        assert len(layer.losses) == 3, "of the last call alone"
    with hr.Graph():
        layer = Pair(activity_regularizer=hr.reduce_sum)
        y = layer(X)
        layer(X)
        assert [x.name.rpartition("/")[0] for x in layer.losses] == [
            "pair/shift/Regularizer/regularizer", "pair/ActivityRegularizer", "pair/ActivityRegularizer_1",
            "pair/dense/kernel/Regularizer/regularizer",
        ]  # fmt: skip
        before = len(y.graph)
        assert layer.losses is not layer.losses
        assert len(y.graph) == before, "asking adds nothing"


def test_the_dtype_is_that_of_the_first_input() -> None:
    for value, given, want in (
        (np.ones((1, 2)), None, hr.float64),
        (np.ones((1, 2), np.float16), None, hr.float16),
        ([[1.0, 2.0]], None, hr.float32),
        ([[1.0, 2.0]], hr.float64, hr.float64),
    ):
        layer = L.Dense(1, dtype=given)
        assert layer(value).dtype == want
        assert layer.dtype == layer.kernel.dtype == want
    assert L.Layer().dtype is None


def test_structures_of_inputs() -> None:
    class Sum(L.Layer):
        def build(self, input_shape: Any) -> None:
            self.shapes = input_shape

        def call(self, inputs: Any, scale: Any = 1.0) -> Any:
            return (inputs["a"] + inputs["b"][0]) * scale

    layer = Sum()
    assert float(layer({"a": 1.0, "b": (np.float32(2), None)}, scale=2.0)) == 6.0
    assert layer.shapes == {"a": (), "b": ((), None)}
    assert float(layer({"a": hr.constant(1.0), "b": [2.0]})) == 3.0


def test_a_build_that_fails_can_be_tried_again() -> None:
    class Picky(L.Layer):
        def build(self, input_shape: Any) -> None:
            self.add_variable("a", (1,))
            if input_shape[-1] is None:
                raise ValueError("no")

        def call(self, inputs: Any) -> Any:
            return inputs

    with hr.Graph():
        layer = Picky()
        with pytest.raises(ValueError, match="no"):
            layer(hr.placeholder(hr.float32, (None,)))
        assert not layer.built
        layer(hr.placeholder(hr.float32, (3,)))
        assert layer.built
        assert len(layer.variables) == 1


@pytest.mark.matrix
def test_values_in_place_of_variables() -> None:
    model = L.Sequential([L.Dense(3, "tanh", kernel_regularizer=L.l2(0.5)), L.Dense(1)])
    target = hr.constant(np.arange(4.0, dtype=np.float32)[:, None])
    x = hr.constant(np.eye(4, dtype=np.float32))
    model(x)

    def loss(values: list[Any]) -> Any:
        now = model.with_values(values)
        assert len(now.losses) == 1
        return hr.reduce_sum(hr.square(now(x) - target)) + 1e-3 * now.losses[0]

    values: list[Any] = [v.value() for v in model.trainable_variables]
    first = float(loss(values))
    for _ in range(60):
        values = [v - 0.1 * d for v, d in zip(values, hr.grad(loss)(values), strict=True)]
    assert float(loss(values)) < 0.2 * first
    unchanged = model(x).numpy()
    assert not np.allclose(unchanged, model.with_values(values)(x).numpy())
    for v, value in zip(model.trainable_variables, values, strict=True):
        v.assign(value)
    np.testing.assert_allclose(model(x).numpy(), model.with_values(values)(x).numpy())
    assert next(v.name for v in model.variables) == "sequential/dense/kernel:0"


class Sides(NamedTuple):
    left: Any
    right: Any


class TwoSides(L.Layer):
    """Layers in nested containers, and an object of another class that must stay the same."""

    def __init__(self) -> None:
        super().__init__()
        self.sides = Sides(L.Dense(1, use_bias=False), {"z": L.Dense(1, use_bias=False), "a": [L.Dense(1)]})
        self.other = {1, 2}

    def call(self, inputs: Any) -> Any:
        right = self.sides.right
        return self.sides.left(inputs) + right["z"](inputs) + right["a"][0](inputs)


def test_layers_in_nested_containers_have_their_variables_replaced() -> None:
    layer, x = TwoSides(), np.ones((1, 2), np.float32)
    layer(x)
    assert [v.shape for v in layer.trainable_variables] == [(2, 1), (2, 1), (2, 1), (1,)]
    changed = layer.with_values(
        [np.full(v.shape, 10.0**i, np.float32) for i, v in enumerate(layer.trainable_variables)]
    )
    assert changed(x).numpy().tolist() == [[2 + 20 + 200 + 1000]]
    assert list(changed.sides.right) == ["z", "a"]
    assert changed.other is layer.other


def test_sequential() -> None:
    inner = L.Sequential([L.Dropout(0.999999), L.Dense(2)], name="inner")
    model = L.Sequential([hr.nn.relu, inner])
    model.add(L.Activation(None))
    assert (len(model), len(inner), model[1], next(iter(model))) == (3, 2, inner, hr.nn.relu)
    assert model(X).shape == (4, 2)
    assert [v.name for v in model.variables] == ["sequential/inner/dense/kernel:0", "sequential/inner/dense/bias:0"]
    assert not model(X, training=True).numpy().any(), "the dropout inside is told"
    assert repr(model) == "<Sequential 'sequential'>"
    assert repr(L.Dense(1)) == "<Dense 'dense', not built>"


def test_snake_case() -> None:
    for name, want in {
        "Dense": "dense", "Conv2D": "conv2d", "MaxPooling2D": "max_pooling2d", "Conv2DTranspose": "conv2d_transpose",
        "BasicLSTMCell": "basic_lstm_cell", "GRUCell": "gru_cell", "LayerNormalization": "layer_normalization",
        "_Own": "own",
    }.items():  # fmt: skip
        assert snake_case(name) == want


def test_a_constraint_stays_with_its_variable() -> None:
    layer = L.Dense(2, kernel_constraint=hr.abs, bias_constraint=hr.sign)
    layer(X)
    assert (layer.kernel.constraint, layer.bias.constraint) == (hr.abs, hr.sign)


def unknown(*shape: int | None) -> Any:
    return hr.placeholder(hr.float32, shape)


MISTAKES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: L.Dense(0), ValueError, "'units' must be a positive whole number, got 0"),
    (lambda: L.Dense(2, "rely"), ValueError, "there is no activation 'rely': give a function or one of elu, "),
    (lambda: L.Dense(2, name=3), TypeError, "the name of a layer is a string, got 3"),  # type: ignore[arg-type]
    (lambda: L.Dense(2)(unknown(3, None)), ValueError, r"needs to know the size of axis 1 .* got the shape \[3,\?\]"),
    (lambda: L.Dense(2)(1.0), ValueError, r"needs inputs with an axis -1, got the shape \[\]"),
    (lambda: L.Dense(2)(hr.placeholder(hr.float32)), ValueError, "layer 'dense' needs inputs of known rank"),
    (lambda: L.Dense(2, kernel_initializer="glorot")(X), ValueError, "there is no initializer 'glorot'; there are "),
    (lambda: L.Dense(2, kernel_initializer=object())(X), ValueError, "is no initializer: give a function of shape"),
    (lambda: L.Dense(2, kernel_initializer=[1.0])(X), ValueError, "not compatible with the explicitly supplied"),
    (lambda: L.Conv2D(2, 3)(unknown(1, 2, 3)), ValueError, r"'conv2d' takes inputs with 4 axes, got .* \[1,2,3\]"),
    (lambda: L.Conv2D(2, 3)(unknown(1, 2, 3, None)), ValueError, "needs to know the size of axis 3 of its inputs"),
    (lambda: L.Conv2D(2, 3, data_format="channels_first")(unknown(1, None, 3, 3)), ValueError, "the size of axis 1"),
    (lambda: L.Conv2D(2, 3, padding="full"), ValueError, "'padding' must be one of valid, same, got 'full'"),
    (lambda: L.Conv2D(2, 3, padding="causal"), ValueError, "'padding' must be one of valid, same, got 'causal'"),
    (lambda: L.Conv2D(2, 3, data_format="NHWC"), ValueError, "'data_format' must be 'channels_last' or 'channels_fi"),
    (lambda: L.Conv2D(2, (3, 3, 3)), ValueError, r"'kernel_size' must have 1 or 2 numbers, got \(3, 3, 3\)"),
    (lambda: L.Conv2D(2, 3, 2, dilation_rate=2), ValueError, "strides and dilation_rate cannot both be greater"),
    (lambda: L.MaxPooling2D(0), ValueError, "'pool_size' must be a positive whole number, got 0"),
    (lambda: L.MaxPooling1D()(unknown(2, 2)), ValueError, "takes inputs with 3 axes"),
    (lambda: L.GlobalMaxPooling2D()(unknown(2, 2)), ValueError, "takes inputs with 4 axes"),
    (lambda: L.Flatten()(1.0), ValueError, "takes inputs with a batch axis, got a scalar"),
    (lambda: L.Dropout(1.0), ValueError, "'rate' must be a number from 0 to below 1"),
    (lambda: L.BatchNormalization(renorm=True), hr.errors.UnimplementedError, r"BatchNormalization\(renorm=True\)"),
    (lambda: L.BatchNormalization(virtual_batch_size=2), hr.errors.UnimplementedError, "virtual_batch_size=2"),
    (lambda: L.BatchNormalization([1, 2]), hr.errors.UnimplementedError, r"axis=\[1, 2\].*keeps one axis"),
    (lambda: L.BatchNormalization(fused=True)(X), ValueError, "cannot be fused: that takes inputs with four axes"),
    (lambda: L.BatchNormalization(5)(X), ValueError, r"needs inputs with an axis 5, got the shape \[4,5\]"),
    (lambda: L.LayerNormalization([1, -1])(X), ValueError, "was given the same axis twice"),
    (lambda: L.Sequential([3]), TypeError, "Sequential takes layers and functions, got 3"),  # type: ignore[list-item]
    (lambda: L.l2(-1.0), ValueError, "must not be negative, got l2=-1.0"),
    (lambda: L.Layer()(X), NotImplementedError, "Layer does not say what it computes: define call"),
    (lambda: L.Layer().add_variable("v", (None,)), ValueError, r"needs a shape that is fully known, got \[\?\]"),
    (lambda: L.Dense(1).with_values([]), ValueError, "has no variables before its first call"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "error", "text"), MISTAKES)
def test_malformed_layers_are_refused(make: Callable[[], Any], error: type[Exception], text: str) -> None:
    with hr.Graph(), pytest.raises(error, match=text):
        make()


def test_more_mistakes() -> None:
    layer = L.Dense(2)
    layer(X)
    with pytest.raises(ValueError, match="has 2 trainable variables, got 1 values"):
        layer.with_values([X])
    model = L.Sequential([layer])
    model(X)
    with pytest.raises(ValueError, match="has been called already"):
        model.add(layer)
    with hr.Graph(), pytest.raises(hr.errors.GraphError, match="was made outside of graphs"):
        layer(X)


def test_regularizers() -> None:
    v = np.array([1.0, -2.0, 3.0])
    assert float(L.l1(0.5)(v)) == 3.0
    assert float(L.l2(0.5)(v)) == 7.0
    assert float(L.l1_l2(0.5, 0.25)(v)) == 6.5
    assert float(L.l1_l2(0.0, 0.0)(hr.constant(v))) == 0.0
    with hr.Graph():
        assert run(L.l2(2.0)(hr.constant(v))) == 28.0


def test_a_tape_through_layers_leaves_their_state_as_the_call_left_it() -> None:
    norm = L.BatchNormalization(momentum=0.5)
    model = L.Sequential([L.Dense(3, kernel_regularizer=L.l2(0.5), activity_regularizer=hr.reduce_sum), norm])
    x = np.arange(12.0, dtype=np.float32).reshape(4, 3)
    model(x)
    kernel = model[0].kernel.numpy()

    with hr.GradientTape() as tape:
        loss = hr.reduce_sum(model(x, training=True)) * 0.0 + hr.add_n(model.losses)
    grads = tape.gradient(loss, model.variables)
    np.testing.assert_allclose(grads[0].numpy(), kernel + x.mean(0)[:, None], rtol=1e-5)
    np.testing.assert_allclose(norm.moving_mean.numpy(), (x @ kernel).mean(0) / 2, rtol=1e-5)
    assert model.updates == []
    assert len(model.losses) == 2
