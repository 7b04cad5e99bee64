"""Functions for images: sizes, directions, colours, boxes, measures; in graphs of unknown shapes; errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf

RNG = np.random.default_rng(6)
BATCH = RNG.uniform(0, 1, (2, 5, 6, 3)).astype(np.float32)
BYTES = RNG.integers(0, 256, (2, 5, 6, 3), np.uint8)
ONE = BATCH[0]


def same(a: Any, b: Any) -> bool:
    a, b = (x.numpy() if hasattr(x, "numpy") else np.asarray(x) for x in (a, b))
    return a.shape == b.shape and a.dtype == b.dtype and bool(np.allclose(a, b, atol=1e-5))


def later(f: Any, x: np.ndarray, shape: Any) -> Any:
    """`f(x)` in a graph that knows of the shape of `x` only `shape`."""
    with hr.Graph() as g:
        p = hr.placeholder(hr.as_dtype(x.dtype), shape)
        return hr.Session(graph=g).run(f(p), {p: x})


SIZES = {
    "crop": (lambda x: hr.image.crop_to_bounding_box(x, 1, 2, 3, 4), lambda a: a[..., 1:4, 2:6, :]),
    "middle": (lambda x: hr.image.central_crop(x, 0.5), lambda a: a[..., 1:4, 1:5, :]),
    "smaller, wider": (
        lambda x: hr.image.resize_with_crop_or_pad(x, 2, 9),
        lambda a: np.pad(a[..., 1:3, :, :], [(0, 0)] * (a.ndim - 2) + [(1, 2), (0, 0)]),
    ),
    "pad": (
        lambda x: hr.image.pad_to_bounding_box(x, 1, 0, 7, 8),
        lambda a: np.pad(a, [(0, 0)] * (a.ndim - 3) + [(1, 1), (0, 2), (0, 0)]),
    ),
    "left right": (hr.image.flip_left_right, lambda a: a[..., ::-1, :]),
    "up down": (hr.image.flip_up_down, lambda a: a[..., ::-1, :, :]),
    "transpose": (hr.image.transpose, lambda a: np.swapaxes(a, -3, -2)),
    **{
        f"turn {k}": (lambda x, k=k: hr.image.rot90(x, k), lambda a, k=k: np.rot90(a, k, (-3, -2)))
        for k in range(-1, 5)
    },
    "turn": (lambda x: hr.image.rot90(x, hr.identity(3)), lambda a: np.rot90(a, 3, (-3, -2))),
}


@pytest.mark.parametrize("which", SIZES)
def test_sizes_and_directions(which: str) -> None:
    f, want = SIZES[which]
    for x in (BATCH, ONE, BYTES):
        assert same(f(x), want(x))
        assert same(later(f, x, (*[None] * (x.ndim - 1), 3)), want(x))
    if which != "middle":
        assert same(later(f, ONE, None), want(ONE))


def test_resizing() -> None:
    nearest = BATCH[:, [0, 1, 2, 3, 4]][:, :, [0, 1, 2, 3, 4, 5]].repeat(2, 1).repeat(2, 2)
    assert same(hr.image.resize(BATCH, (10, 12), "nearest"), nearest)
    assert same(hr.image.resize(BYTES[0], (5, 6), "nearest"), BYTES[0])
    halves = BATCH[:, :4].reshape(2, 2, 2, 3, 2, 3).mean((2, 4))
    for method in ("area", "bilinear"):
        assert same(hr.image.resize(BATCH[:, :4], (2, 3), method), halves)
    for method in vars(hr.image.ResizeMethod).values():
        if isinstance(method, str) and method in ("lanczos3", "lanczos5", "gaussian", "bicubic", "mitchellcubic"):
            flat = hr.image.resize(np.full((1, 5, 5, 1), 2.0, np.float32), (8, 3), method, antialias=True)
            assert same(flat, np.full((1, 8, 3, 1), 2.0, np.float32))
    assert hr.image.resize(BATCH, (10, 6), preserve_aspect_ratio=True).shape == (2, 5, 6, 3)
    padded = hr.image.resize_with_pad(BATCH, 5, 10).numpy()
    assert same(padded[:, :, 2:8], BATCH)
    assert not padded[:, :, :2].any()
    assert same(later(lambda x: hr.image.resize_with_pad(x, 5, 10), BATCH, (None, None, None, 3)), padded)


def test_dtypes() -> None:
    convert = hr.image.convert_image_dtype
    assert same(convert(BYTES, hr.float32), BYTES.astype(np.float32) / 255)
    assert same(convert(convert(BYTES, hr.float32), hr.uint8), BYTES)
    assert same(convert(convert(BYTES, hr.int32), hr.uint8), BYTES)
    assert convert([2.0, -1.0], hr.uint8, saturate=True).numpy().tolist() == [255, 0]
    with pytest.raises(TypeError, match="floating point or integer"):
        convert(BYTES, hr.bool)


def test_colours() -> None:
    gray = BATCH @ np.array([0.2989, 0.587, 0.114], np.float32)
    assert same(hr.image.rgb_to_grayscale(BATCH), gray[..., None])
    assert same(hr.image.grayscale_to_rgb(gray[..., None]), gray[..., None].repeat(3, -1))
    for there, back in (("rgb_to_hsv", "hsv_to_rgb"), ("rgb_to_yiq", "yiq_to_rgb"), ("rgb_to_yuv", "yuv_to_rgb")):
        again = getattr(hr.image, back)(getattr(hr.image, there)(BATCH))
        assert np.allclose(again.numpy(), BATCH, atol=1e-3)
    assert same(hr.image.adjust_brightness(BATCH, 0.5), BATCH + np.float32(0.5))
    mean = BATCH.mean((1, 2), keepdims=True)
    assert same(hr.image.adjust_contrast(BATCH, 2.0), (BATCH - mean) * 2 + mean)
    assert same(hr.image.adjust_gamma(BATCH, 2, 3), 3 * BATCH**2)
    assert same(hr.image.adjust_hue(BATCH, 1.0), BATCH)
    assert same(hr.image.adjust_saturation(BATCH, 0.0), BATCH.max(-1, keepdims=True).repeat(3, -1))
    assert hr.image.adjust_brightness(BYTES, 1.0).numpy().tolist() == np.full(BYTES.shape, 255).tolist()
    flat = (BATCH - BATCH.mean((1, 2, 3), keepdims=True)) / BATCH.std((1, 2, 3), keepdims=True)
    assert same(hr.image.per_image_standardization(BATCH), flat)
    same_everywhere = hr.image.per_image_standardization(np.full((4, 4, 1), 7, np.uint8))
    assert same(same_everywhere, np.zeros((4, 4, 1), np.float32))


def test_what_is_random_follows_from_its_seed() -> None:
    def drawn(x: Any) -> list[Any]:
        image = hr.image
        return [
            image.random_flip_left_right(x, seed=1),
            image.random_flip_up_down(x[0], seed=2),
            image.random_brightness(x, 0.5, seed=3),
            image.random_contrast(x, 0.5, 1.5, seed=4),
            image.random_hue(x, 0.5, seed=5),
            image.random_saturation(x, 0.5, 1.5, seed=6),
            image.random_crop(x, (2, 3, 3, 3), seed=7),
        ]

    with hr.Graph() as g:
        results = drawn(hr.constant(BATCH))
    first, again = (hr.Session(graph=g).run(results) for _ in range(2))
    assert all(same(a, b) for a, b in zip(first, again, strict=True))
    for before, after in zip(BATCH, first[0], strict=True):
        assert same(after, before) or same(after, before[:, ::-1])
    assert same(first[1], ONE) or same(first[1], ONE[::-1])
    assert np.ptp(first[2] - BATCH) == pytest.approx(0, abs=1e-6)
    assert first[6].shape == (2, 3, 3, 3)


def test_boxes() -> None:
    whole = [[0.0, 0.0, 1.0, 1.0]]
    assert same(hr.image.crop_and_resize(BATCH, whole, [1], (5, 6)), BATCH[1:])
    overlaps = np.array([[1, 0.9, 0], [0.9, 1, 0], [0, 0, 1]], np.float32)
    assert hr.image.non_max_suppression_overlaps(overlaps, [0.1, 0.2, 0.3], 3).numpy().tolist() == [2, 1]
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [0.5, 0.5, 1, 1]], np.float32)
    at, scores = hr.image.non_max_suppression_with_scores(boxes, [0.5, 0.9, 0.2], 3, score_threshold=0.3)
    assert at.numpy().tolist() == [1]
    assert same(scores, np.array([0.9], np.float32))
    found = hr.image.combined_non_max_suppression(
        boxes[None, :, None], np.array([[[0.5], [0.9], [0.2]]], np.float32), 2, 2
    )
    assert found.valid_detections.numpy().tolist() == [2]
    assert same(found.nmsed_scores, np.array([[0.9, 0.2]], np.float32))
    begin, size, box = hr.image.stateless_sample_distorted_bounding_box((50, 60, 3), [boxes], [1, 2])
    top, left = begin.numpy()[:2] / (50, 60)
    assert same(box.numpy()[0, 0, :2], np.array([top, left], np.float32))
    assert size.numpy()[2] == -1


def test_measures() -> None:
    down, right = hr.image.image_gradients(BATCH)
    assert same(down[:, :-1], np.diff(BATCH, axis=1))
    assert same(right[:, :, :-1], np.diff(BATCH, axis=2))
    sums = abs(np.diff(BATCH, axis=1)).sum((1, 2, 3)) + abs(np.diff(BATCH, axis=2)).sum((1, 2, 3))
    assert np.allclose(hr.image.total_variation(BATCH).numpy(), sums)
    assert np.allclose(hr.image.total_variation(ONE).numpy(), sums[0])
    edges = hr.image.sobel_edges(BATCH).numpy()
    padded = np.pad(BATCH, [(0, 0), (1, 1), (1, 1), (0, 0)], "reflect")
    smooth = padded[:, :, :-2] + 2 * padded[:, :, 1:-1] + padded[:, :, 2:]
    assert same(edges[..., 0], smooth[:, 2:] - smooth[:, :-2])
    other = np.clip(BATCH + 0.1, 0, 1)
    ratio = 10 * np.log10(1 / ((BATCH - other) ** 2).mean((1, 2, 3)))
    assert np.allclose(hr.image.psnr(BATCH, other, 1.0).numpy(), ratio, rtol=1e-4)
    alike = hr.image.ssim(BATCH, BATCH, 1.0, filter_size=5).numpy()
    assert np.allclose(alike, 1)
    assert (hr.image.ssim(BATCH, other, 1.0, filter_size=5).numpy() < 1).all()
    assert hr.image.ssim(BATCH, other, 1.0, filter_size=3, return_index_map=True).shape == (2, 3, 4)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        (lambda: hr.image.flip_left_right(ONE[0]), "either 3 or 4 dimensions"),
        (lambda: hr.image.resize(BATCH, (1, 2), "cubic"), "resize method is not implemented: 'cubic'"),
        (lambda: hr.image.resize(BATCH, (1, 2, 3)), "must be a 1-D Tensor of 2 elements"),
        (lambda: hr.image.crop_to_bounding_box(BATCH, 3, 0, 3, 3), "height must be >= target"),
        (lambda: hr.image.crop_to_bounding_box(BATCH, -1, 0, 3, 3), "offset_height must be >= 0"),
        (lambda: hr.image.crop_to_bounding_box(BATCH, 0, 0, 0, 3), "target_height must be > 0"),
        (lambda: hr.image.pad_to_bounding_box(BATCH, 0, 3, 5, 8), "width must be <= target - offset"),
        (lambda: hr.image.resize_with_crop_or_pad(BATCH, 0, 3), "target_height must be > 0"),
        (lambda: hr.image.resize_with_pad(BATCH, 3, 0), "target_width must be > 0"),
        (lambda: hr.image.central_crop(BATCH, 0.0), r"within \(0, 1\]"),
        (lambda: hr.image.random_crop(ONE, (9, 9, 3)), "Need value.shape >= size"),
        (lambda: hr.image.grayscale_to_rgb(BATCH), "must have 1 channel"),
        (lambda: hr.image.adjust_hue(BATCH, 2.0), r"interval \[-1, 1\]"),
        (lambda: hr.image.adjust_gamma(BATCH, -1.0), "non-negative real number"),
        (lambda: hr.image.random_brightness(BATCH, -0.1), "max_delta must be non-negative"),
        (lambda: hr.image.random_hue(BATCH, 0.7), "max_delta must be <= 0.5"),
        (lambda: hr.image.random_contrast(BATCH, 0.7, 0.7), "upper must be > lower"),
        (lambda: hr.image.random_saturation(BATCH, -0.7, 0.7), "lower must be non-negative"),
        (lambda: hr.image.image_gradients(ONE), "expects a 4D tensor"),
        (lambda: hr.image.total_variation(ONE[0]), "either 3 or 4-dimensional"),
        (lambda: hr.image.psnr(ONE[0, 0], ONE[0, 0], 1.0), "at least 3 axes"),
        (lambda: hr.image.psnr(ONE, ONE[1:], 1.0), "same height, width and channels"),
        (lambda: hr.image.ssim(ONE, ONE, 1.0), "at least as large as the filter"),
    ],
)
def test_what_cannot_be_meant(wrong: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        wrong()


def test_what_turns_out_wrong_when_it_runs() -> None:
    unknown = (None, None, None, 3)
    for f in (
        lambda x: hr.image.crop_to_bounding_box(x, 3, 0, 3, 3),
        lambda x: hr.image.pad_to_bounding_box(x, 0, 3, 5, 8),
        lambda x: hr.image.random_crop(x, (2, 9, 9, 3)),
    ):
        with pytest.raises(hr.errors.InvalidArgumentError):
            later(f, BATCH, unknown)


def test_tensorflow_1() -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        x = tf.constant(BATCH)
        assert tf.image.resize_images(x, [5, 6]) is x
        corners = tf.image.resize_images(x, (9, 11), tf.image.ResizeMethod.BILINEAR, align_corners=True)
        pairs = (
            (corners[:, ::2, ::2], x),
            (tf.image.resize_images(x, (10, 12), 1), tf.image.resize_nearest_neighbor(x, (10, 12))),
            (tf.image.resize_image_with_pad(x, 5, 10)[:, :, 2:8], x),
            (tf.image.crop_and_resize(x, [[0.0, 0.0, 1.0, 1.0]], box_ind=[0], crop_size=[5, 6]), x[:1]),
            (tf.image.extract_image_patches(x, ksizes=[1] * 4, strides=[1] * 4, rates=[1] * 4, padding="SAME"), x),
        )
        for a, b in sess.run(pairs):
            assert same(a, b)
        with pytest.raises(ValueError, match="resize method is not implemented: 4"):
            tf.image.resize_images(x, [5, 6], 4)
