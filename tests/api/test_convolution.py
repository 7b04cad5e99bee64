"""Convolutions and pooling as users write them.

Values, the forms that arguments can have, eager execution and graphs.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf

RNG = np.random.default_rng(2)
IMAGES = RNG.standard_normal((2, 5, 4, 3)).astype(np.float32)
FILTERS = RNG.standard_normal((3, 2, 3, 4)).astype(np.float32)


def same(a: Any, b: Any) -> bool:
    return bool(np.allclose(a, b, atol=1e-5)) and np.shape(a) == np.shape(b)


def plain(x: np.ndarray, w: np.ndarray, step: int = 1) -> np.ndarray:
    """A convolution without padding, by the definition."""
    height, width = (x.shape[1] - w.shape[0]) // step + 1, (x.shape[2] - w.shape[1]) // step + 1
    out = np.empty((len(x), height, width, w.shape[3]))
    for i, j in itertools.product(range(height), range(width)):
        window = x[:, i * step : i * step + w.shape[0], j * step : j * step + w.shape[1]]
        out[:, i, j] = np.tensordot(window, w, 3)
    return out


def test_a_convolution_is_what_it_is() -> None:
    for step in (1, 2):
        assert same(hr.nn.conv2d(IMAGES, FILTERS, step, "VALID").numpy(), plain(IMAGES, FILTERS, step))
    padded = np.pad(IMAGES, ((0, 0), (1, 1), (0, 1), (0, 0)))
    assert same(hr.nn.conv2d(IMAGES, FILTERS, 1, "SAME").numpy(), plain(padded, FILTERS))
    apart = np.zeros((5, 2, 3, 4), np.float32)
    apart[::2] = FILTERS
    assert same(hr.nn.conv2d(IMAGES, FILTERS, 1, "VALID", dilations=[2, 1]).numpy(), plain(IMAGES, apart))


def test_the_forms_of_arguments() -> None:
    want = hr.nn.conv2d(IMAGES, FILTERS, [1, 2, 1, 1], "SAME").numpy()
    turned = np.moveaxis(IMAGES, -1, 1)
    pairs = [[0, 0], [1, 1], [0, 1], [0, 0]]
    for strides, padding in (([2, 1], "SAME"), ((2, 1), pairs), (np.array([1, 2, 1, 1]), "SAME")):
        assert same(hr.nn.conv2d(IMAGES, FILTERS, strides, padding).numpy(), want)
    for strides, padding in (([2, 1], "SAME"), ([1, 1, 2, 1], [pairs[i] for i in (0, 3, 1, 2)])):
        got = hr.nn.conv2d(turned, FILTERS, strides, padding, "NCHW").numpy()
        assert same(np.moveaxis(got, 1, -1), want)
    for pool in (hr.nn.max_pool, hr.nn.avg_pool, hr.nn.max_pool2d, hr.nn.avg_pool2d):
        want = pool(IMAGES, [1, 2, 3, 1], [1, 2, 1, 1], "SAME").numpy()
        assert same(pool(IMAGES, (2, 3), [2, 1], "SAME").numpy(), want)
        assert same(np.moveaxis(pool(turned, (2, 3), [2, 1], "SAME", "NCHW").numpy(), 1, -1), want)


def test_pooling_is_what_it_is() -> None:
    parts = IMAGES[:, :4].reshape(2, 2, 2, 2, 2, 3)
    assert same(hr.nn.max_pool(IMAGES, 2, 2, "VALID").numpy(), parts.max((2, 4)))
    assert same(hr.nn.avg_pool(IMAGES, 2, 2, "VALID").numpy(), parts.mean((2, 4)))


def test_a_transposed_convolution_is_the_gradient() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, IMAGES.shape)
        w = hr.placeholder(hr.float32, FILTERS.shape)
        y = hr.nn.conv2d(x, w, 2, "SAME")
        dy = hr.placeholder(hr.float32, y.shape)
        (dx,) = hr.gradients([y], [x], [dy])
        spread = hr.nn.conv2d_transpose(dy, w, IMAGES.shape, 2)
        assert spread.shape == IMAGES.shape
        assert spread.op.name == "conv2d_transpose"
        values = {x: IMAGES, w: FILTERS, dy: RNG.standard_normal((2, 3, 2, 4)).astype(np.float32)}
        a, b = hr.Session(graph=g).run([dx, spread], values)
    assert same(a, b)


def test_a_network_learns() -> None:
    """A gradient step lowers the loss by the amount that the gradient predicts."""

    def loss(w: Any, b: Any) -> Any:
        x = hr.nn.relu(hr.nn.bias_add(hr.nn.conv2d(IMAGES, w, 1, "SAME"), b))
        x = hr.reshape(hr.nn.max_pool(x, 2, 2, "SAME"), (2, -1))
        return hr.reduce_sum(hr.nn.sparse_softmax_cross_entropy_with_logits([3, 1], x))

    b = np.zeros(4, np.float32)
    before, (dw, db) = hr.value_and_grad(loss, argnums=(0, 1))(FILTERS, b)
    size = float(np.sum(dw.numpy() ** 2) + np.sum(db.numpy() ** 2))
    step = 1e-3 / size**0.5
    after = loss(FILTERS - step * dw.numpy(), b - step * db.numpy())
    assert float(before.numpy() - after.numpy()) == pytest.approx(step * size, rel=0.05)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"padding": "FULL"}, "'padding' must be 'SAME', 'VALID' or a pair for each axis, got 'FULL'"),
        ({"padding": [[0, 0], [1, 1]]}, "a pair for each of the axes NHWC"),
        ({"data_format": "CHWN"}, "'data_format' must be 'NHWC' or 'NCHW', got 'CHWN'"),
        ({"strides": [1, 2, 1]}, r"'strides' must have 1, 2 or 4 numbers, got \[1, 2, 1\]"),
        ({"dilations": []}, "'dilations' must have 1, 2 or 4 numbers"),
        ({"strides": 0}, "Stride must be > 0"),
        ({"filters": FILTERS[:, :, :2]}, r"Depth of input \(3\) is not a multiple .* filter \(2\)"),
        ({"input": IMAGES[0]}, "must be rank 4 but is rank 3"),
    ],
)
def test_what_cannot_be_meant(wrong: dict[str, Any], match: str) -> None:
    arguments = {"input": IMAGES, "filters": FILTERS, "strides": 1, "padding": "SAME"}
    with hr.Graph(), pytest.raises(ValueError, match=match):
        hr.nn.conv2d(**{**arguments, **wrong})


def test_losses_of_any_rank() -> None:
    logits = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    labels = np.array([[0, 3, 1], [2, 2, 0]])
    powers = np.exp(logits)
    want = -np.log(powers / powers.sum(-1, keepdims=True))
    chosen = np.take_along_axis(want, labels[..., None], -1)[..., 0]
    dense = np.eye(4, dtype=np.float32)[labels]
    sparse = hr.nn.sparse_softmax_cross_entropy_with_logits
    assert same(sparse(labels, logits).numpy(), chosen)
    assert same(sparse(labels[0, 0], logits[0, 0]).numpy(), chosen[0, 0])
    assert same(hr.nn.softmax_cross_entropy_with_logits(dense, logits).numpy(), chosen)
    for axis in (0, 1, -3, -1):
        turned = [np.moveaxis(a, -1, axis) for a in (dense, logits)]
        assert same(hr.nn.softmax_cross_entropy_with_logits(*turned, axis=axis).numpy(), chosen)
    with hr.Graph() as g:
        x, z = (hr.placeholder(hr.float32, None) for _ in range(2))
        k = hr.placeholder(hr.int64, None)
        both = [hr.nn.softmax_cross_entropy_with_logits(z, x), sparse(k, x)]
        for loss in hr.Session(graph=g).run(both, {x: logits, z: dense, k: labels}):
            assert same(loss, chosen)


# *** TensorFlow 1's names ***


def test_tensorflow_1() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        x, w = tf.constant(IMAGES), tf.constant(FILTERS)
        y = tf.nn.conv2d(x, filter=w, strides=[1, 1, 1, 1], padding="SAME", use_cudnn_on_gpu=False)
        assert y.op.name == "Conv2D"
        assert tf.nn.max_pool(value=x, ksize=2, strides=2, padding="SAME", name="p").op.name == "p"
        one = {"strides": [1, 1, 1, 1], "padding": "SAME"}
        dy = tf.ones_like(y)
        pairs = (
            (tf.gradients(y, x)[0], tf.nn.conv2d_backprop_input(IMAGES.shape, w, dy, **one)),
            (tf.gradients(y, w)[0], tf.nn.conv2d_backprop_filter(x, FILTERS.shape, dy, **one)),
            (tf.nn.avg_pool(x, 2, 2, "SAME"), tf.nn.avg_pool_v2(x, 2, 2, "SAME")),
            (tf.nn.max_pool(x, 2, 2, "SAME"), tf.nn.max_pool_v2(x, 2, 2, "SAME")),
            (tf.nn.conv2d_transpose(dy, w, IMAGES.shape, 1), tf.gradients(y, x)[0]),
        )
        for a, b in sess.run(pairs):
            assert same(a, b)


def test_only_the_second_version_of_a_loss_goes_to_its_labels() -> None:
    with tf.Graph().as_default():
        x, z = tf.placeholder(tf.float32, [2, 3]), tf.placeholder(tf.float32, [2, 3])
        first = tf.nn.softmax_cross_entropy_with_logits(labels=z, logits=x)
        second = tf.nn.softmax_cross_entropy_with_logits_v2(labels=z, logits=x)
        assert [g is None for g in tf.gradients(first, [x, z])] == [False, True]
        assert [g is None for g in tf.gradients(second, [x, z])] == [False, False]
