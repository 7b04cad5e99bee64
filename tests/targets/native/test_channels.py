"""Native sums and maps of channels are those of numpy's kernels."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.opkit.kernel_library import KernelLibrary
from headrace.ops.nn import batch_norm
from headrace.targets.native.channels import NativeChannels

_SHAPES = [
    (7, 5, 1),
    (1, 1, 1),
    (4096, 1, 1),
    (700, 3, 1),
    (513, 512, 1),
    (3, 700, 1),
    (2, 3, 7),
    (3, 2, 5000),
    (1, 4, 2),
]
_TOLERANCE = {np.float32: 2e-6, np.float64: 1e-13}


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_CHANNELS", 1)


def _arrays(shape: tuple[int, ...], dtype: type) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    g, x = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    return g, x + 3, [rng.normal(size=shape[1]).astype(dtype) for _ in range(4)]


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", _SHAPES)
def test_maps_have_the_bits_of_numpy_and_sums_its_accuracy(shape, dtype):
    g, x, vectors = _arrays(shape, dtype)
    native, numpys, tolerance = NativeChannels(), KernelLibrary(), _TOLERANCE[dtype]
    mine, expected = np.empty((2, *shape), dtype)
    assert native.scaled(x, *vectors[:3], mine) is mine
    batch_norm._scaled(x, *vectors[:3], expected, numpys)
    np.testing.assert_array_equal(mine, expected)
    native.centred(g, x, *vectors, mine)
    batch_norm._centred(g, x, *vectors, expected, numpys)
    np.testing.assert_array_equal(mine, expected)
    wide = x.astype(np.float64)
    for mine, exact in zip(native.moments(x), (wide.mean((0, 2)), wide.var((0, 2))), strict=True):
        np.testing.assert_allclose(mine, exact, tolerance, tolerance)
        assert mine.dtype == dtype
    products = g.astype(np.float64), g * (wide - vectors[0][:, None])
    for mine, terms in zip(native.products(g, x, vectors[0]), products, strict=True):
        scale = np.abs(terms).sum((0, 2))
        assert (np.abs(mine - terms.sum((0, 2))) <= tolerance * scale).all()


def test_sums_of_many_numbers_are_as_exact_as_those_of_few():
    x = np.full((1 << 20, 2, 1), 0.1, np.float32)
    x[:, 1] += 1000
    mean, variance = NativeChannels().moments(x)
    np.testing.assert_allclose(mean, [0.1, 1000.1], 1e-6)
    np.testing.assert_allclose(variance, 0, atol=1e-6)


@pytest.mark.parametrize("inner", [1, 3])
def test_nan_and_infinity_stay_in_their_channel(inner):
    x = np.zeros((300, 3, inner), np.float32)
    x[5, 0, 0], x[299, 2, 0] = np.nan, np.inf
    mean, variance = NativeChannels().moments(x)
    np.testing.assert_array_equal(mean, [np.nan, 0, np.inf])
    np.testing.assert_array_equal(variance, [np.nan, 0, np.nan])


def test_arrays_need_not_be_contiguous():
    _, x, vectors = _arrays((6, 5, 40), np.float32)
    y = x.transpose(2, 1, 0)
    mine, expected = np.empty((2, *y.shape), np.float32)
    NativeChannels().scaled(y, *vectors[:3], mine)
    batch_norm._scaled(y, *vectors[:3], expected, KernelLibrary())
    np.testing.assert_array_equal(mine, expected)


def test_small_arrays_other_dtypes_and_a_switched_off_target_are_left_to_numpy(monkeypatch):
    x = np.zeros((4, 3, 1), np.float32)
    assert NativeChannels().moments(x.astype(np.float16)) is None
    with flags.override(NATIVE="off"):
        assert NativeChannels().moments(x) is None
    monkeypatch.setattr(thresholds, "NATIVE_CHANNELS", 13)
    assert NativeChannels().moments(x) is None


def test_arrays_of_another_size_compile_nothing(monkeypatch):
    NativeChannels().moments(np.zeros((4, 3, 1), np.float32))
    monkeypatch.setattr("headrace.targets.native.engine.compile_module", None)
    assert NativeChannels().moments(np.zeros((40, 7, 1), np.float32))[0].shape == (7,)


@pytest.mark.one_engine
@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["auto", "interpret"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", [hr.float32, hr.float16])
def test_batch_normalization_is_that_of_numpy(layout, engine, dtype):
    shape = (2, 5, 7, 3) if layout == "NHWC" else (2, 3, 5, 7)
    values = np.random.default_rng(0).normal(size=shape)

    def results() -> list[np.ndarray]:
        with hr.Graph(), hr.Session(engine=engine) as session:
            x = hr.placeholder(dtype, shape)
            scale, offset = hr.constant([1.0, 2.0, 3.0]), hr.constant([0.5, 0.0, -1.0])
            y, *statistics = hr.nn.fused_batch_norm(x, scale, offset, data_format=layout)
            grads = hr.gradients([hr.reduce_sum(hr.cast(y, hr.float32) ** 3)], [x, scale, offset])
            found: list[np.ndarray] = session.run([y, *statistics, *grads], {x: values.astype(dtype.numpy)})
            return found

    native = results()
    with flags.override(NATIVE="off"):
        expected = results()
    tolerance = 1e-5 if dtype is hr.float32 else 1e-2
    for mine, numpys in zip(native, expected, strict=True):
        np.testing.assert_allclose(mine, numpys, tolerance, tolerance)
