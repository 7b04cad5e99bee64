"""Layers beyond convolutions of images: other ranks, dilations, pooling, moments, sampled losses, CTC; errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf

RNG = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def same(a: Any, b: Any) -> bool:
    a, b = (x.numpy() if hasattr(x, "numpy") else np.asarray(x) for x in (a, b))
    return a.shape == b.shape and bool(np.allclose(a, b, atol=1e-4))


SEQUENCES, IMAGES, VOLUMES = floats(2, 7, 3), floats(2, 6, 5, 3), floats(2, 4, 3, 5, 2)


def correlation(x: np.ndarray, w: np.ndarray, rates: tuple[int, ...]) -> np.ndarray:
    """A convolution without padding over any number of axes, by the definition."""
    sizes = [n - (k - 1) * r for n, k, r in zip(x.shape[1:-1], w.shape, rates, strict=False)]
    out = np.zeros((len(x), *sizes, w.shape[-1]))
    for at in itertools.product(*(range(k) for k in w.shape[: len(rates)])):
        part = x[(slice(None), *(slice(i * r, i * r + n) for i, r, n in zip(at, rates, sizes, strict=True)))]
        out += part @ w[at]
    return out


@pytest.mark.parametrize(
    ("x", "w", "rates"),
    [
        (SEQUENCES, floats(3, 3, 2), (2,)),
        (IMAGES, floats(2, 3, 3, 4), (1, 1)),
        (IMAGES, floats(2, 3, 3, 4), (3, 2)),
        (VOLUMES, floats(2, 2, 2, 2, 3), (2, 1, 3)),
    ],
)
def test_convolution_over_any_number_of_axes(x: np.ndarray, w: np.ndarray, rates: tuple[int, ...]) -> None:
    want = correlation(x, w, rates)
    assert same(hr.nn.convolution(x, w, dilations=list(rates)), want)
    beyond = [(k - 1) * r for k, r in zip(w.shape, rates, strict=False)]
    padded = np.pad(x, [(0, 0), *((b // 2, b - b // 2) for b in beyond), (0, 0)])
    layout = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[len(rates)]
    assert same(hr.nn.convolution(x, w, padding="SAME", dilations=list(rates)), correlation(padded, w, rates))
    turned = hr.nn.convolution(np.moveaxis(x, -1, 1), w, data_format=layout, dilations=list(rates))
    assert same(np.moveaxis(turned.numpy(), 1, -1), want)
    with hr.Graph() as g:  # of unknown sizes
        p = hr.placeholder(hr.float32, (None,) * (x.ndim - 1) + x.shape[-1:])
        y = hr.nn.convolution(p, w, padding="SAME", dilations=list(rates))
        assert same(hr.Session(graph=g).run(y, {p: x}), correlation(padded, w, rates))


def test_more_axes_of_batches() -> None:
    w = floats(2, 2, 3, 4)
    want = hr.nn.conv2d(IMAGES, w, 1, "SAME").numpy()
    assert same(hr.nn.conv2d(np.stack([IMAGES] * 3), w, 1, "SAME"), np.stack([want] * 3))
    of_rows = hr.nn.conv1d(IMAGES, w[0], 1, "VALID")
    assert same(of_rows, np.stack([hr.nn.conv1d(x, w[0], 1, "VALID").numpy() for x in IMAGES]))


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_transposes_are_gradients(axes: int) -> None:
    x = {1: SEQUENCES, 2: IMAGES, 3: VOLUMES}[axes]
    w = floats(*[2] * axes, x.shape[-1], 4)
    y = hr.nn.convolution(x, w, strides=2, padding="SAME")
    dy = floats(*y.shape)
    spread = hr.nn.conv_transpose(dy, w, x.shape, 2)
    assert spread.shape == x.shape
    assert np.vdot(spread.numpy(), x) == pytest.approx(np.vdot(dy, y.numpy()), rel=1e-4)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("rate", [1, 2, 3])
def test_the_transpose_of_an_atrous_convolution(padding: str, rate: int) -> None:
    x, w = floats(2, 9, 8, 3), floats(3, 2, 3, 4)
    y = hr.nn.atrous_conv2d(x, w, rate, padding)
    dy = floats(*y.shape)
    spread = hr.nn.atrous_conv2d_transpose(dy, w, x.shape, rate, padding)
    assert spread.shape == x.shape
    assert np.vdot(spread.numpy(), x) == pytest.approx(np.vdot(dy, y.numpy()), rel=1e-4)


def test_channel_by_channel() -> None:
    w, point = floats(2, 3, 3, 2), floats(1, 1, 6, 4)
    each = [hr.nn.conv2d(IMAGES[..., c : c + 1], w[:, :, c : c + 1], 1, "SAME").numpy() for c in range(3)]
    deep = hr.nn.depthwise_conv2d(IMAGES, w, 1, "SAME")
    assert same(deep, np.concatenate(each, -1))
    assert same(hr.nn.separable_conv2d(IMAGES, w, point, 1, "SAME"), deep.numpy() @ point[0, 0])
    apart = np.zeros((3, 5, 3, 2), np.float32)
    apart[::2, ::2] = w
    for padding in ("SAME", "VALID", [[0, 0], [1, 2], [2, 2], [0, 0]]):
        wide = hr.nn.depthwise_conv2d(IMAGES, w, 1, padding, dilations=[2, 2])
        assert same(wide, hr.nn.depthwise_conv2d(IMAGES, apart, 1, padding))


def test_pooling_of_any_rank() -> None:
    assert same(hr.nn.max_pool(SEQUENCES, 2, 2, "VALID"), SEQUENCES[:, :6].reshape(2, 3, 2, 3).max(2))
    assert same(hr.nn.avg_pool(SEQUENCES, 2, 2, "VALID"), SEQUENCES[:, :6].reshape(2, 3, 2, 3).mean(2))
    cubes = VOLUMES[:, :, :2, :4].reshape(2, 2, 2, 1, 2, 2, 2, 2)
    assert same(hr.nn.max_pool3d(VOLUMES, 2, 2, "VALID"), cubes.max((2, 4, 6)))
    assert same(hr.nn.avg_pool(VOLUMES, 2, 2, "VALID"), cubes.mean((2, 4, 6)))
    assert same(hr.nn.pool(IMAGES, [2, 2], "AVG"), hr.nn.avg_pool2d(IMAGES, 2, 1, "VALID"))
    apart = np.maximum(IMAGES[:, :-2], IMAGES[:, 2:])
    assert same(hr.nn.pool(IMAGES, [2, 1], "MAX", dilations=[2, 1]), apart)
    assert same(hr.nn.pool(np.moveaxis(SEQUENCES, 2, 1), [2], "MAX", data_format="NCW").numpy().shape, (2, 3, 6))


def test_fractional_pooling_follows_from_its_seed() -> None:
    a, b = (hr.nn.fractional_max_pool(IMAGES, [1.4, 1.2], seed=3) for _ in range(2))
    assert all(same(x, y) for x, y in zip(a, b, strict=True))
    assert a[0].shape == (2, 4, 4, 3)


def test_moments() -> None:
    weights = np.abs(floats(2, 6, 5, 1))
    mean, variance = hr.nn.weighted_moments(IMAGES, [0, 1, 2], weights)
    want = np.average(IMAGES, (0, 1, 2), np.broadcast_to(weights, IMAGES.shape))
    assert same(mean, want)
    far = np.average((IMAGES - want) ** 2, (0, 1, 2), np.broadcast_to(weights, IMAGES.shape))
    assert same(variance, far)
    for shift in (None, np.float32(0.3)):
        mean, variance = hr.nn.normalize_moments(*hr.nn.sufficient_statistics(IMAGES, [0, 1, 2], shift))
        assert same(mean, IMAGES.mean((0, 1, 2)))
        assert same(variance, IMAGES.var((0, 1, 2)))
    one = np.ones(3, np.float32)
    y, mean, _ = hr.nn.fused_batch_norm(IMAGES, one, 0 * one)
    assert same(mean, IMAGES.mean((0, 1, 2)))
    assert same(y, hr.nn.batch_normalization(IMAGES, IMAGES.mean((0, 1, 2)), IMAGES.var((0, 1, 2)), None, None, 1e-3))


def test_sampled_losses() -> None:
    weights, biases, inputs = floats(6, 4), floats(6), floats(2, 4)
    true, drawn = np.array([[1], [5]]), np.array([0, 5, 2])
    expected = (np.array([[0.5], [0.2]], np.float32), np.array([0.3, 0.2, 0.4], np.float32))
    ours = (inputs * weights[true[:, 0]]).sum(1, keepdims=True) + biases[true] - np.log(expected[0])
    others = inputs @ weights[drawn].T + biases[drawn] - np.log(expected[1])
    logits = np.concatenate([ours, others], 1)
    args = (weights, biases, true, inputs, 3, 6, 1, (drawn, *expected))
    labels = np.eye(1, 4)
    nce = np.maximum(logits, 0) - logits * labels + np.log1p(np.exp(-abs(logits)))
    assert same(hr.nn.nce_loss(*args), nce.sum(1))
    logits[1, 2] = -np.inf  # class 5 is true there
    assert same(hr.nn.sampled_softmax_loss(*args), np.log(np.exp(logits).sum(1)) - logits[:, 0])
    classes, of_true, of_drawn = hr.nn.uniform_candidate_sampler(true, 1, 4, True, 6, seed=1)
    assert len(set(classes.numpy().tolist())) == 4
    assert same(of_true, np.full((2, 1), of_drawn.numpy()[0]))


def test_ctc_by_adding_up_all_ways() -> None:
    logits, label = floats(4, 1, 3), [1, 2]
    p = np.exp(logits[:, 0]) / np.exp(logits[:, 0]).sum(1, keepdims=True)
    for blank in (0, 2):
        total = 0.0
        wanted = label if blank == 0 else [0, 1]
        for path in itertools.product(range(3), repeat=4):
            short = [k for k, _ in itertools.groupby(path) if k != blank]
            if short == wanted:
                total += float(np.prod([p[t, k] for t, k in enumerate(path)]))
        want = [-np.log(total)]
        assert same(hr.nn.ctc_loss([wanted], logits, [2], [4], blank_index=blank), want)
        sparse = hr.SparseTensor([[0, 0], [0, 1]], np.array(wanted, np.int32), [1, 2])
        assert same(hr.nn.ctc_loss(sparse, logits, None, [4], blank_index=blank), want)
    (found,), score = hr.nn.ctc_greedy_decoder(logits, [4])
    best = [k for k, _ in itertools.groupby(logits[:, 0].argmax(1)) if k != 2]
    assert found.values.numpy().tolist() == best
    assert same(score, [[-logits.max(2).sum()]])
    paths, scores = hr.nn.ctc_beam_search_decoder(logits, [4], top_paths=2)
    assert len(paths) == 2
    assert scores.shape == (1, 2)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda: hr.nn.convolution(IMAGES, floats(2, 2, 3, 4), strides=2, dilations=2), "not supported together"),
        (lambda: hr.nn.convolution(IMAGES, floats(2, 2, 3, 4), strides=0), "must be positive"),
        (lambda: hr.nn.convolution(floats(2, 3), floats(2, 2, 3, 4)), "tensors of rank 3, 4 or 5"),
        (lambda: hr.nn.conv3d(VOLUMES, floats(2, 2, 2, 2, 2), 1, [[1, 1]] * 5), "'padding' must be 'SAME' or 'VALID'"),
        (lambda: hr.nn.conv1d(SEQUENCES, floats(2, 3, 2), [1, 2], "SAME"), "'strides' must have 1 or 3 numbers"),
        (lambda: hr.nn.atrous_conv2d_transpose(IMAGES, floats(2, 2, 3, 3), [2, 6, 5, 3], 0, "SAME"), "at least 1"),
        (
            lambda: hr.nn.separable_conv2d(IMAGES, floats(2, 2, 3, 1), floats(2, 1, 3, 3), 1, "SAME"),
            r"\[1, 1, channels",
        ),
        (lambda: hr.nn.pool(IMAGES, [2, 2], "MEAN"), "'pooling_type' must be 'MAX' or 'AVG'"),
        (lambda: hr.nn.pool(IMAGES, [2, 2], "MAX", padding="SAME", dilations=2), "'SAME' padding is not implemented"),
        (lambda: hr.nn.pool(IMAGES, [2, 2], "MAX", strides=2, dilations=2), "not supported together"),
        (lambda: hr.nn.max_pool_with_argmax(IMAGES, 2, 2, "SAME", "NCHW"), "'data_format' must be 'NHWC'"),
        (lambda: hr.nn.fused_batch_norm(IMAGES, [1.0] * 3, [0.0] * 3, is_training=False), "must be given"),
        (lambda: hr.nn.ctc_loss(hr.SparseTensor([[0, 0]], [1], [1, 1]), floats(1, 1, 2), None, [1]), "'blank_index'"),
    ],
)
def test_what_cannot_be_meant(wrong: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        wrong()


def test_tensorflow_1() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        x, w = tf.constant(IMAGES), tf.constant(floats(2, 2, 3, 4))
        deep = tf.constant(floats(2, 2, 3, 2))
        one = {"strides": [1, 1, 1, 1], "padding": "SAME"}
        pairs = (
            (tf.nn.convolution(x, w, "SAME", dilation_rate=[2, 2]), hr.nn.atrous_conv2d(x, w, 2, "SAME")),
            (tf.nn.depthwise_conv2d_native(x, deep, **one), tf.nn.depthwise_conv2d(x, deep, rate=[1, 1], **one)),
            (tf.nn.pool(x, [2, 2], "MAX", "VALID"), tf.nn.max_pool(x, 2, 1, "VALID")),
            (tf.space_to_batch(x, [[0, 0], [0, 1]], 2), tf.nn.space_to_batch(x, [[0, 0], [0, 1]], block_shape=[2, 2])),
            (tf.nn.moments(x, [0], keep_dims=True)[0], hr.nn.moments(x, [0], keepdims=True)[0]),
            (tf.nn.in_top_k(tf.ones([2, 3]), [0, 1], 1), tf.constant([True, True])),
            (tf.extract_image_patches(x, [1, 1, 1, 1], [1] * 4, [1] * 4, "VALID"), x),
        )
        assert tf.nn.max_pool(x, 2, 1, "VALID").op.name == "MaxPool_1"
        for a, b in sess.run(pairs):
            assert same(a, b)
        parts = ([w[0, 0], w[1, 0]], [tf.zeros(3), tf.zeros(3)])
        drawn = ([0], [[1.0]], [1.0])
        dealt = tf.nn.nce_loss(*parts, [[3]], tf.ones([1, 4]), 1, 6, 1, drawn)
        whole = hr.nn.nce_loss(tf.reshape(tf.stack(parts[0], 1), [6, 4]), tf.zeros(6), [[3]], tf.ones([1, 4]), 1, 6, 1,
                               drawn)  # fmt: skip
        assert same(*sess.run((dealt, whole)))
        with pytest.raises(TypeError, match="to be a SparseTensor"):
            tf.nn.ctc_loss([[1]], tf.zeros([1, 1, 2]), [1])
