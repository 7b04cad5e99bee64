"""Native resampling of images gives the results of numpy's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.dtypes import bfloat16
from headrace.errors import OutOfRangeError
from headrace.ops.image import cropping, taps
from headrace.targets.native import resampling as module
from headrace.targets.native.resampling import NativeResampling

F32 = np.float32


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_RESAMPLED", 1)


def _both(compute: Callable[..., np.ndarray], *args: Any) -> tuple[np.ndarray, np.ndarray]:
    """The results of native code, of which it must make use, and of numpy."""
    with mock.patch.object(module, "compiled", side_effect=module.compiled) as called:
        mine = compute(*args)
    assert called.call_count
    with flags.override(NATIVE="off"):
        return mine, compute(*args)


def _axes(rng: np.random.Generator) -> Iterator[tuple[str, Callable[[int, int], taps.Taps]]]:
    """Ways to resample an axis, by name."""
    for corners, centers in ((False, False), (True, False), (False, True)):
        for axis in (taps.bilinear, taps.bicubic):
            yield f"{axis.__name__} {corners} {centers}", lambda n, m, a=axis, c=(corners, centers): a(n, m, *c)
        yield f"area {corners}", lambda n, m, c=corners: taps.area(n, m, c)
    for kind in taps.KERNELS:
        scale, shift, is_smooth = float(rng.uniform(0.3, 2)), float(rng.uniform(-3, 3)), bool(rng.integers(2))
        yield (
            f"{kind} {scale} {shift} {is_smooth}",
            lambda n, m, k=kind, a=(scale, shift, is_smooth): taps.kernel_taps(k, n, m, *a),
        )


def _resampled(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for name, axis in _axes(rng):
        n, h, w, channels, height, width = (int(k) for k in rng.integers(1, [4, 9, 9, 20, 14, 14]))
        rows, columns = axis(h, height), axis(w, width)
        dtype = [np.dtype(F32), np.dtype(np.uint8), np.dtype(np.int16), np.dtype(np.float16), bfloat16.numpy][
            int(rng.integers(5))
        ]
        images = (rng.normal(size=(n, h, w, channels)) * 50).astype(np.int16).astype(dtype)
        mine, numpys = _both(taps.resampled, images, rows, columns, hr.float32)
        np.testing.assert_array_equal(mine, numpys, name, strict=True)
        grads = rng.normal(size=(n, height, width, channels)).astype(F32)
        mine, numpys = _both(taps.back, grads, rows, columns, hr.float32)
        np.testing.assert_array_equal(mine, numpys, name, strict=True)
        near = [taps.nearest(a, b, False, False) for a, b in ((h, height), (w, width))]
        wide = grads.astype(np.float64)
        mine, numpys = _both(taps.back, wide, *near, hr.float64)
        np.testing.assert_array_equal(mine, numpys, name, strict=True)


@pytest.mark.matrix
@pytest.mark.parametrize("seed", range(4))
def test_all_ways_to_resample_have_the_bits_of_numpy(seed: int) -> None:
    _resampled(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 50))
def test_many_ways_to_resample_have_the_bits_of_numpy(seed: int) -> None:
    _resampled(seed)


def _boxes(rng: np.random.Generator, count: int) -> np.ndarray:
    """Boxes inside and outside of the image, some with their corners on pixels."""
    boxes = rng.uniform(-0.3, 1.3, (count, 4))
    return np.where(rng.integers(2, size=(count, 1)), boxes, np.round(boxes * 4) / 4).astype(F32)


@pytest.mark.matrix
@pytest.mark.parametrize("method", ["bilinear", "nearest"])
@pytest.mark.parametrize("seed", range(8))
def test_crops_and_their_gradients_are_those_of_numpy(seed: int, method: str) -> None:
    rng = np.random.default_rng(seed)
    n, h, w, channels, height, width, count = (int(k) for k in rng.integers(1, [4, 9, 9, 20, 9, 9, 7]))
    boxes, which = _boxes(rng, count), rng.integers(0, n, count).astype(np.int32)
    for dtype in (F32, np.uint8, np.float16, np.float64):
        images = (rng.normal(size=(n, h, w, channels)) * 50).astype(np.int16).astype(dtype)
        crop = cropping._crop_and_resize(np, {"method": method, "extrapolation_value": 0.5})
        size = np.array([height, width], np.int32)
        mine, numpys = _both(crop, images, boxes, which, size)
        np.testing.assert_array_equal(mine, numpys, strict=True)
        grads = rng.normal(size=crop(images, boxes, which, size).shape).astype(F32)
        by_boxes = cropping._by_boxes(np, {})
        mine, numpys = _both(by_boxes, grads, images, boxes, which)
        np.testing.assert_allclose(mine, numpys, 1e-4, 1e-5 * np.abs(numpys).max(), strict=True)
    for t in (hr.float32, hr.float16):
        by_image = cropping._by_image(np, {"method": method, "T": t})
        mine, numpys = _both(by_image, grads, boxes, which, np.array(images.shape, np.int32))
        tolerance = 1e-5 if t is hr.float32 else 1e-3
        np.testing.assert_allclose(mine.astype(F32), numpys.astype(F32), tolerance, tolerance)


def test_infinity_and_nan_reach_the_elements_that_have_a_tap_there() -> None:
    axis = taps.bilinear(4, 7, True, False)  # every second element of the result is one of the images
    images = np.ones((1, 4, 4, 2), F32)
    images[0, 1, 2], images[0, 3, 0, 1] = np.inf, np.nan
    mine, numpys = _both(taps.resampled, images, axis, axis, hr.float32)
    np.testing.assert_array_equal(mine, numpys)
    assert np.isfinite(mine[0, 0]).all()
    crop = cropping._crop_and_resize(np, {"method": "bilinear", "extrapolation_value": 0.0})
    boxes, size = np.array([[0, 0, 1, 1], [1, 1, 0, 0], [-0.5, 0, 0.5, 1]], F32), np.array([4, 7], np.int32)
    mine, numpys = _both(crop, images, boxes, np.zeros(3, np.int32), size)
    np.testing.assert_array_equal(mine, numpys)


def test_images_need_not_be_contiguous() -> None:
    images = np.random.default_rng(0).normal(size=(3, 5, 4, 6)).astype(F32).transpose(3, 2, 1, 0)
    axes = taps.bilinear(4, 6, False, False), taps.bilinear(5, 3, False, False)
    np.testing.assert_array_equal(*_both(taps.resampled, images, *axes, hr.float32))


def test_images_of_another_size_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(length: int, out: int) -> np.ndarray:
        axis = taps.bilinear(length, out, False, False)
        found = NativeResampling().resampled(
            np.ones((2, length, length, 3), F32), np.arange(2), axis.table, axis.table, F32
        )
        assert found is not None
        return found

    run(4, 7)
    monkeypatch.setattr("headrace.targets.native.engine.compile_module", None)
    assert (run(9, 5) == 1).all()


def test_small_images_and_a_switched_off_target_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    axis, images = taps.bilinear(4, 8, False, False), np.ones((1, 4, 4, 1), F32)

    def result() -> Any:
        return NativeResampling().resampled(images, np.arange(1), axis.table, axis.table, F32)

    assert result() is not None
    with flags.override(NATIVE="off"):
        assert result() is None
    monkeypatch.setattr(thresholds, "NATIVE_RESAMPLED", 65)
    assert result() is None
    monkeypatch.setattr(module, "compiled", None)
    assert (taps.resampled(images, axis, axis, hr.float32) == 1).all()


@pytest.mark.parametrize("flag", ["on", "off"])
def test_an_image_that_a_box_names_and_that_is_not_there_has_the_same_error(flag: str) -> None:
    with flags.override(NATIVE=flag), hr.Graph(), hr.Session() as session:
        which = hr.placeholder(hr.int32, [2])
        crops = hr.image.crop_and_resize(hr.constant(np.ones((2, 3, 3, 1), F32)), np.ones((2, 4), F32), which, [4, 4])
        with pytest.raises(OutOfRangeError, match=r"box_index has values outside \[0, batch_size\): 2"):
            session.run(crops, {which: [1, 2]})
