"""`hr.quantization`: there and back. The roundings are tested with the ops."""

from __future__ import annotations

import numpy as np
import pytest

import headrace as hr
from tests.api.running import run

q = hr.quantization
_X = np.array([[-1.0, 0.1, 0.7], [0.25, -0.4, 1.0]], np.float32)


@pytest.mark.parametrize("dtype", [hr.qint8, hr.quint8, hr.qint16, hr.quint16, hr.qint32])
def test_there_and_back(dtype: hr.DType) -> None:
    quantized = q.quantize(_X, -1.0, 1.0, dtype, mode="MIN_FIRST")
    assert quantized.output.dtype is dtype
    np.testing.assert_allclose(q.dequantize(*quantized, mode="MIN_FIRST").numpy(), _X, atol=0.01)


def test_an_axis_has_ranges_of_its_own() -> None:
    made = q.quantize(_X, [-1.0, -2.0], [1.0, 2.0], hr.qint8, "SCALED", axis=0)
    assert made.output.numpy().tolist() == [[-127, 13, 89], [16, -25, 64]]
    assert made.output_max.shape == (2,)
    np.testing.assert_allclose(q.dequantize(*made, "SCALED", axis=0).numpy(), _X, atol=0.01)


def test_the_gradients_of_both_versions_differ_out_of_the_range(g: hr.Graph) -> None:
    x = hr.constant([0.5, 3.0])
    one = q.quantize_and_dequantize(x, -1.0, 1.0, range_given=True)
    two = q.quantize_and_dequantize_v2(x, -1.0, 1.0, range_given=True)
    a, b = run((hr.gradients(one, x), hr.gradients(two, x)))
    assert a[0].tolist() == [1.0, 1.0]
    assert b[0].tolist() == [1.0, 0.0]


def test_fake_levels_are_those_of_the_bits() -> None:
    x = np.linspace(-1, 1, 101, dtype=np.float32)
    by_number = q.fake_quant_with_min_max_args(x, 0.0, 0.75, num_bits=2).numpy()
    assert np.unique(by_number).tolist() == [0.0, 0.25, 0.5, 0.75]
    np.testing.assert_array_equal(q.fake_quant_with_min_max_vars(x, 0.0, 0.75, num_bits=2).numpy(), by_number)
    two = np.stack([x, x], 1)
    per_channel = q.fake_quant_with_min_max_vars_per_channel(two, [0.0, 0.0], [0.75, 1.5], num_bits=2).numpy()
    np.testing.assert_array_equal(per_channel[:, 0], by_number)
    assert np.unique(per_channel[:, 1]).tolist() == [0.0, 0.5, 1.0]


def test_gradients_of_fake_levels_are_those_of_the_graph(g: hr.Graph) -> None:
    x, up = hr.constant(_X), hr.ones((2, 3))
    low, high = hr.constant(-0.5), hr.constant(0.5)
    got = q.fake_quant_with_min_max_vars_gradient(up, x, low, high)
    want = hr.gradients(q.fake_quant_with_min_max_vars(x, low, high), [x, low, high])
    by_args = q.fake_quant_with_min_max_args_gradient(up, x, -0.5, 0.5)
    a, b, c = run((list(got), want, by_args))
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(c, a[0])
    lows, highs = hr.constant([-0.5] * 3), hr.constant([0.5] * 3)
    by_column = q.fake_quant_with_min_max_vars_per_channel_gradient(up, x, lows, highs)
    np.testing.assert_array_equal(run(by_column[0]), a[0])
