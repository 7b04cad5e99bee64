"""Layers and optimizers come back from `hr.load` and train on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace.errors import GraphError, HeadraceWarning, SignatureError

X = np.float32([[1, 2], [3, -4], [0.5, 0]])


@pytest.fixture
def again(tmp_path: Path) -> Callable[[Any], Any]:
    """Saves and loads a model."""
    return lambda model: hr.load(hr.save(tmp_path / "m", model))


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a.numpy(), b.numpy()))


def test_a_layer_is_a_layer_with_variables_and_layers_inside(again: Any) -> None:
    net = hr.layers.Sequential([hr.layers.Dense(3), hr.tanh, hr.layers.Dense(1, use_bias=False)])
    net(X)
    found = again(net)
    assert isinstance(found, hr.layers.Layer)
    assert _same(found(X[:1]), net(X[:1]))
    assert [v.name for v in found.variables] == [v.name for v in net.variables]
    assert found.trainable_variables == found.variables
    assert (found.name, found.layers[0].units, found.layers[2].use_bias) == (net.name, 3, False)
    assert found.layers[0].kernel is found.variables[0]
    assert _same(found.layers[0](X), net.layers[0](X))
    found.layers[0].trainable = False
    assert [v.name for v in found.trainable_variables] == [net.variables[2].name]
    found.layers[0].kernel.assign(hr.zeros((2, 3)))
    assert not found(X).numpy().any()


def test_a_frozen_layer_stays_frozen(again: Any) -> None:
    net = hr.layers.Sequential([hr.layers.Dense(3), hr.layers.Dense(1)])
    net(X)
    net.layers[0].trainable = False
    found = again(net)
    assert len(found.trainable_variables) == 2
    found.layers[0].trainable = True
    assert len(found.trainable_variables) == 4


def test_training_is_an_argument(again: Any) -> None:
    net = hr.layers.Sequential([hr.layers.BatchNormalization(momentum=0.5), hr.layers.Dropout(0.5, seed=1)])
    net(X)
    found = again(net)
    assert _same(found(X), net(X))
    assert _same(found.layers[0](X, training=True), net.layers[0](X, training=True))
    assert found.layers[0].moving_mean.numpy().tolist() == net.layers[0].moving_mean.numpy().tolist() != [0, 0]
    assert not found.layers[0].moving_mean.trainable
    dropped = found.layers[1](hr.ones((3, 2)), training=True).numpy()
    assert set(dropped.ravel().tolist()) == {0.0, 2.0}


def test_a_loaded_layer_is_a_part_of_others(again: Any) -> None:
    norm = hr.layers.BatchNormalization()
    norm(X)
    found = again(norm)
    net = hr.layers.Sequential([found, hr.layers.Dense(1)])
    net(X, training=True)
    assert found.moving_mean.numpy().any(), "the flag comes through"
    assert len(net.trainable_variables) == 4
    (g,) = _gradients(net, [found.gamma])
    assert g.numpy().shape == (2,)
    with pytest.raises(GraphError, match="with_values has no effect on a saved trace"):
        net.with_values([v.value() for v in net.trainable_variables])
    third = again(net)
    assert _same(third(X), net(X))


def _gradients(net: Any, variables: Any) -> Any:
    with hr.GradientTape() as tape:
        loss = hr.reduce_sum(hr.square(net(X)))
    return tape.gradient(loss, variables)


def test_losses_and_constraints_of_variables_stay(again: Any) -> None:
    dense = hr.layers.Dense(
        1, kernel_regularizer=hr.layers.l2(0.5), kernel_constraint=lambda w: hr.clip_by_value(w, -1.0, 1.0)
    )
    dense(X)
    dense.add_loss(lambda: hr.reduce_sum(dense.bias) + 2.0)
    found = again(again(dense))
    found.kernel.assign([[2.0], [0.0]])
    assert [loss.numpy() for loss in found.losses] == [2, 2]
    (g,) = (hr.grad(lambda k: 0.5 * hr.reduce_sum(k * k))(found.kernel.value()),)
    hr.train.SGD(0.0).apply_gradients([(g, found.kernel)])
    assert found.kernel.numpy().tolist() == [[1], [0]]


class Gated(hr.layers.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self._gate, self.power = hr.layers.Dense(2), hr.layers.Dense(2), 3

    def build(self, input_shape: Any) -> None:
        self.scale = self.add_variable("scale", input_shape[-1:], initializer="ones")

    def call(self, inputs: Any, mask: Any = None, training: Any = None) -> Any:
        y = self.inner(inputs * self.scale) * hr.sigmoid(self._gate(inputs))
        y = y if mask is None else y * mask
        return y * 2.0 if training else y


def test_a_layer_of_the_program(again: Any) -> None:
    gated = Gated()
    gated(X, hr.ones((3, 1)))
    found = again(gated)
    mask = hr.constant([[1.0], [0.0]])
    for training in (None, False, True):
        assert _same(found(X[:2], mask, training=training), gated(X[:2], mask, training=training))
    assert [v.name for v in found.variables] == [v.name for v in gated.variables]
    assert (found.power, found.inner.units) == (3, 2)
    with pytest.raises(SignatureError, match="with these signatures"):
        found(X)  # the first call had a mask


class Jitted(hr.layers.Layer):
    @hr.jit
    def call(self, inputs: Any, training: bool = False) -> Any:
        return inputs * 2.0 if training else inputs

    @hr.jit
    def half(self, inputs: Any) -> Any:
        return inputs / 2.0


def test_methods_under_jit_come_back(again: Any) -> None:
    layer = Jitted()
    layer(X), layer.half(X)
    found = again(layer)
    assert _same(found(X, training=True), hr.constant(2.0 * X))
    assert _same(found(X[:1]), hr.constant(X[:1]))
    assert _same(found.half(X), hr.constant(X / 2))


def test_cells_and_attention(again: Any) -> None:
    attention, q = hr.layers.MultiHeadAttention(2, 4), hr.ones((2, 3, 4))
    attention(q, q)
    found = again(attention)
    assert _same(found(q, q), attention(q, q))
    assert len(found.variables) == len(attention.variables)
    cell = hr.layers.GRUCell(2)
    cell(X, hr.zeros((3, 2)))
    ours, theirs = again(cell)(X, hr.ones((3, 2))), cell(X, hr.ones((3, 2)))
    assert _same(ours[1], theirs[1])


def test_a_loaded_layer_becomes_a_saved_model(again: Any, tmp_path: Path) -> None:
    net = hr.layers.Sequential([hr.layers.Dense(2), hr.layers.BatchNormalization()])
    net(X)
    hr.saved_model.save(again(net), tmp_path / "saved")
    found = hr.saved_model.load(tmp_path / "saved")
    assert _same(found(X), net(X))
    assert _same(found.layers[0](X[:1]), net.layers[0](X[:1]))
    assert [v.name for v in found.trainable_variables] == [v.name for v in net.trainable_variables]


def test_a_layer_that_needs_the_size_of_the_batch(again: Any) -> None:
    class Flat(hr.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return hr.reshape(inputs, [inputs.shape[0] * 2])

    flat = Flat()
    flat(X)
    with pytest.warns(HeadraceWarning, match="saved for batches of the size of its first call"):
        found = again(flat)
    assert found(X).shape == (6,)


def test_layers_that_cannot_be_called(again: Any) -> None:
    class Code(hr.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return hr.py_func(lambda x: x, [inputs], hr.float32)

    code = Code()
    code(X)
    with pytest.raises(GraphError, match="calls a Python function of this process"):
        again(code)

    class Choosing(hr.layers.Layer):
        def call(self, inputs: Any) -> Any:
            return inputs if hr.reduce_sum(inputs) > 0.0 else -inputs

    choosing = Choosing()
    choosing(X)
    with pytest.raises(TypeError, match=r"use hr\.cond") as e:
        again([choosing])
    assert "while the call of the model[0]" in e.value.__notes__[0]
    with pytest.raises(GraphError, match="the layer 'dense' was saved before its first call"):
        again([hr.Variable(1.0), hr.layers.Dense(1)])[1](X)


def test_an_activity_regularizer_is_left_out_with_a_warning(again: Any) -> None:
    dense = hr.layers.Dense(1, activity_regularizer=hr.layers.l2(0.5))
    dense(X)
    before = dense.losses
    with pytest.warns(HeadraceWarning, match="activity_regularizer, which is not saved"):
        found = again(dense)
    assert dense.losses == before
    found(X)
    assert not found.losses


# *** optimizers ***


def _step(net: Any, optimizer: Any) -> Callable[[], None]:
    @hr.jit
    def step() -> None:
        with hr.GradientTape() as tape:
            loss = hr.reduce_mean(hr.square(net(X, training=True) - 1.0)) + hr.add_n(net.losses)
        variables = net.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))

    return step


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda: hr.train.Adam(hr.train.ExponentialDecay(0.1, 2, 0.5), beta1=0.8),
        lambda: hr.train.Momentum(hr.Variable(0.1, trainable=False), use_nesterov=True),
        lambda: hr.train.RMSProp(hr.constant(0.01)),
    ],
)
def test_training_goes_on_as_if_uninterrupted(again: Any, optimizer: Callable[[], Any]) -> None:
    net = hr.layers.Sequential([
        hr.layers.Dense(3, kernel_regularizer=hr.layers.l2(0.1)), hr.layers.BatchNormalization(), hr.layers.Dense(1)
    ])  # fmt: skip
    net(X)
    model = {"net": net, "optimizer": optimizer()}
    step = _step(**model)
    for _ in range(2):
        step()
    loaded = again(model)
    assert type(loaded["optimizer"]) is type(model["optimizer"])
    other = _step(**loaded)
    for _ in range(3):
        step(), other()
    for a, b in zip(net.variables, loaded["net"].variables, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    for a, b in zip(model["optimizer"].variables(), loaded["optimizer"].variables(), strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())


def test_an_optimizer_with_python_code_comes_back_as_variables(again: Any, tmp_path: Path) -> None:
    v = hr.Variable([1.0])
    one, other = hr.train.Adam(lambda: 0.1), hr.train.Adam(lambda: 0.1)
    for optimizer in (one, other):
        optimizer.apply_gradients([([1.0], v)])
    one.apply_gradients([([1.0], v)])
    with pytest.warns(HeadraceWarning, match="since learning_rate cannot be saved"):
        path = hr.save(tmp_path / "m", one)
    assert len(hr.load(path).variables) == 4
    hr.load(path, other)
    assert [a.numpy() for a in other.variables()] == [a.numpy() for a in one.variables()]

    class Own(hr.train.SGD):
        pass

    with pytest.warns(HeadraceWarning, match=r"the model\[1\] is an Own, no optimizer of headrace"):
        assert again([v, Own(0.1)])[1].variables == []
