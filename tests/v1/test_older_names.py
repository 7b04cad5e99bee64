"""Functions under the names that TensorFlow 1 had for them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import headrace.v1 as tf

S = np.array([[4.0, 2.0], [2.0, 3.0]])


def value(t: Any) -> Any:
    with tf.Session() as session:
        return session.run(t)


@pytest.fixture(autouse=True)
def fresh() -> None:
    tf.reset_default_graph()


def test_matrices() -> None:
    assert np.allclose(value(tf.matrix_inverse(S)), np.linalg.inv(S))
    assert np.allclose(value(tf.matrix_determinant(S)), 8)
    assert np.allclose(value(tf.matrix_solve_ls(S, S)), np.eye(2))
    assert np.allclose(value(tf.matrix_triangular_solve(S, S, lower=True)), np.linalg.solve(np.tril(S), S))
    assert np.allclose(value(tf.self_adjoint_eig(S))[0], value(tf.self_adjoint_eigvals(S)))
    assert np.allclose(value(tf.svd(S, compute_uv=False)), value(tf.linalg.svd(S)[0]))
    assert tf.qr is tf.linalg.qr
    assert value(tf.clip_by_average_norm([[6.0, 8.0]], 1.0)).tolist() == [[pytest.approx(1.2), pytest.approx(1.6)]]


def test_signals() -> None:
    x = np.arange(8.0)
    assert np.allclose(value(tf.spectral.rfft(x)), np.fft.rfft(x))
    assert np.allclose(value(tf.fft(x + 0j)), np.fft.fft(x))
    window = tf.signal.inverse_stft_window_fn(2)(4, tf.float32)
    assert window.graph is tf.get_default_graph()
    assert np.allclose(value(window), [0, 1, 1, 1])


def test_plain_ops() -> None:
    values, indices = value(tf.approx_top_k([[1.0, 3.0, 2.0]], 2))
    assert (values.tolist(), indices.tolist()) == ([[3, 2]], [[1, 2]])
    assert value(tf.guarantee_const(3)) == 3
    assert list(inspect.signature(tf.rfftnd).parameters) == ["input", "fft_length", "axes", "Tcomplex", "name"]
    with pytest.raises(TypeError, match="foo"):
        tf.guarantee_const(3, foo=1)


@pytest.mark.system
def test_counting_and_order() -> None:
    found = value(tf.confusion_matrix([1, 0], [1, 1], 2, tf.float32, None, [0.5, 2.0]))
    assert found.tolist() == [[0, 2], [0, 0.5]]
    assert value(tf.confusion_matrix([[1], [0]], [1, 1])).tolist() == [[0, 1], [0, 1]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="out of bound"):
        value(tf.confusion_matrix([1, 5], [1, 1], 2))
    assert value(tf.batch_gather([[1, 2], [3, 4]], [[1], [0]])).tolist() == [[2], [3]]
    assert value(tf.math.approx_min_k([[3.0, 1.0, 2.0]], 1))[0].tolist() == [[1]]
    assert value(tf.math.sobol_sample(2, 2)).tolist() == [[0.5, 0.5], [0.75, 0.25]]
    assert value(tf.argsort([3, 1, 2], direction="DESCENDING")).tolist() == [0, 2, 1]
