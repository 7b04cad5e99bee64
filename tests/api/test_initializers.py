"""`hr.initializers`: the numbers that TensorFlow draws for the same seed, and what each promises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import initializers as I
from tests.api.running import run

# the first row of shape [2, 3], with the graph's seed 42 and the initializer's 7, as TensorFlow draws it
DRAWN = {
    "random_uniform": [0.8627668, 0.6567628, 0.9905474],
    "variance_scaling": [-0.363946, -0.241489, -0.0633681],
    "glorot_uniform": [0.794784, 0.34345, 1.07473],
    "glorot_normal": [-0.325524, -0.215995, -0.0566782],
    "uniform_unit_scaling": [0.888596, 0.383988, 1.20159],
}


@pytest.mark.parametrize("name", DRAWN)
def test_tensorflows_numbers(name: str) -> None:
    with hr.Graph():
        hr.random.set_seed(42)
        v = hr.Variable(lambda: getattr(I, name)(seed=7)((2, 3)))
        np.testing.assert_allclose(run(v.initial_value)[0], DRAWN[name], rtol=2e-5)


def test_variances() -> None:
    hr.random.set_seed(5)
    try:
        shape, fan_in, fan_out = (3, 4, 20, 30), 240, 360
        for name, fan, scale in (
            ("he_normal", fan_in, 2.0), ("he_uniform", fan_in, 2.0), ("lecun_normal", fan_in, 1.0),
            ("lecun_uniform", fan_in, 1.0), ("glorot_normal", (fan_in + fan_out) / 2, 1.0),
            ("glorot_uniform", (fan_in + fan_out) / 2, 1.0),
        ):  # fmt: skip
            drawn = getattr(I, name)()(shape).numpy()
            assert drawn.shape == shape
            assert abs(drawn.mean()) < 0.1 * drawn.std()
            assert abs(drawn.var() * fan / scale - 1) < 0.05, name
        normal = I.random_normal(2.0, 3.0)((10000,)).numpy()
        assert abs(normal.mean() - 2) < 0.15
        assert abs(normal.std() - 3) < 0.15
        assert np.abs(I.truncated_normal()((10000,)).numpy()).max() <= 2
        uniform = I.random_uniform(-1, 3)((10000,)).numpy()
        assert -1 <= uniform.min() < -0.99
        assert 2.99 < uniform.max() < 3
    finally:
        hr.random.set_seed(None)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6), (2, 3, 4)])
def test_orthogonal(shape: tuple[int, ...]) -> None:
    made = I.orthogonal(gain=2.0, seed=1)(shape).numpy().reshape(-1, shape[-1]) / 2
    rows, columns = made.shape
    product = made @ made.T if rows < columns else made.T @ made
    np.testing.assert_allclose(product, np.eye(min(rows, columns)), atol=1e-5)


def test_constant_initializers_give_their_values() -> None:
    assert I.zeros()((2,), hr.bool).numpy().tolist() == [False, False]
    assert I.ones(hr.int32)((2,)).numpy().tolist() == [1, 1]
    assert I.constant([1, 2])((2, 2)).numpy().tolist() == [[1, 2], [2, 2]]
    assert I.identity(2.0)((2, 3)).numpy().tolist() == [[2, 0, 0], [0, 2, 0]]
    assert I.zeros()(()).shape == ()


def test_what_can_be_given_for_one() -> None:
    layer = hr.layers.Dense(2, kernel_initializer=np.eye(2), bias_initializer="ones")
    assert layer([[1.0, 2.0]]).numpy().tolist() == [[2.0, 3.0]]
    assert isinstance(I.get(None), I.GlorotUniform)
    assert isinstance(I.get(None, hr.int32), I.Zeros)
    assert isinstance(I.get(I.ones), I.Ones)
    assert I.get(len) is len
    assert I.get(3.0)((), hr.float64).dtype == hr.float64
    for name in ("zeros", "he_normal", "lecun_uniform", "orthogonal", "truncated_normal"):
        assert I.get(name)((3, 3), hr.float32).shape == (3, 3)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda: I.get("nothing"), "there is no initializer 'nothing'"),
        (lambda: I.get(None, hr.string), "an initializer is required for a variable of string"),
        (lambda: I.get(object()), "is no initializer"),
        (lambda: I.glorot_uniform()((None, 2)), "needs a shape that is fully known"),
        (lambda: I.variance_scaling(-1.0), "scale must be positive"),
        (lambda: I.orthogonal()((3,)), "at least two-dimensional"),
        (lambda: I.identity()((3,)), "only be used for 2D matrices"),
        (lambda: I.random_normal(dtype=hr.int32), "this initializer makes floats"),
    ],
)
def test_invalid_initializer_arguments_are_refused(given: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        given()


def test_they_describe_themselves() -> None:
    for made in (I.variance_scaling(2.0, "fan_out", "uniform", 3), I.glorot_normal(4), I.constant(2.0), I.zeros()):
        assert vars(type(made).from_config(made.get_config())) == vars(made)
