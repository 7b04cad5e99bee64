"""Convolutions with a filter for each channel are those of numpy's kernels, for all geometries."""

from __future__ import annotations

import functools
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import dtypes, flags, thresholds
from headrace.opkit.kernel_library import KernelLibrary
from headrace.opkit.windows import Axis
from headrace.ops.nn import convolving
from headrace.ops.nn import depthwise as op
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.windows import kernels
from headrace.targets.native.windows.convolution import Kind
from headrace.targets.native.windows.depthwise import Depthwise, depthwise
from headrace.targets.native.windows.library import NativeWindows
from tests.targets.native.windows.running import drawn_axis, run


def _check(axes: tuple[Axis, ...], batch: int, channels: int, dtype: type, seed: int) -> None:
    """Compares all three functions with numpy, on integers, whose sums are exact."""
    rng = np.random.default_rng(seed)
    lengths, counts, sizes = (tuple(getattr(a, name) for a in axes) for name in ("length", "count", "size"))
    x, dy = (rng.integers(-4, 5, (batch, *side, channels)).astype(dtype) for side in (lengths, counts))
    w = rng.integers(-4, 5, (*sizes, 1, channels)).astype(dtype)
    numpys = {
        Kind.FORWARD: (convolving.convolved, x, w),
        Kind.BY_INPUT: (convolving.by_input, w, dy),
        Kind.BY_FILTER: (convolving.by_filter, x, dy),
    }
    for kind, (numpy, a, b) in numpys.items():
        expected = convolving.in_groups(numpy, a, b, channels, axes)
        module, (source, other) = Module(), (b, a) if kind is Kind.BY_INPUT else (a, b)
        depthwise(module, Depthwise(kind, axes, channels, np.dtype(dtype)), "f")
        mine = run(module, "f", expected.shape, np.dtype(dtype), [source, other], batch)
        np.testing.assert_array_equal(mine, expected, f"{kind} {axes}")


def test_a_strided_convolution_with_padding_is_that_of_numpy() -> None:
    _check((Axis(5, 3, 3, 2, 1, 1), Axis(6, 6, 3, 1, 1, 1)), 2, 5, np.float32, 0)


@pytest.mark.matrix
@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("channels", [1, 3, 8, 17, 64, 70])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_geometries_are_those_of_numpy(spatial: int, channels: int, dtype: type) -> None:
    rng = np.random.default_rng(1000 * spatial + channels)
    axes = tuple(drawn_axis(rng, 5 if spatial == 3 else 9) for _ in range(spatial))
    _check(axes, int(rng.integers(1, 4)), channels, dtype, channels)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(200))
def test_many_random_geometries_are_those_of_numpy(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = tuple(drawn_axis(rng) for _ in range(2))
    _check(axes, int(rng.integers(1, 4)), int(rng.integers(1, 150)), np.float32, seed)


def test_long_lines_are_added_up_line_by_line() -> None:
    x = np.full((64, 16, 128, 2), 0.1, np.float32)
    found = kernels.by_filter(x, np.ones_like(x), (Axis(16, 16, 1, 1, 1, 0), Axis(128, 128, 1, 1, 1, 0)), 2)
    np.testing.assert_allclose(found, 0.1 * x[..., 0].size, 1e-5)


@pytest.mark.matrix
@pytest.mark.parametrize("multiplier", [1, 2, 3])
def test_each_channel_may_have_several_filters(multiplier: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_POOLING", 1)
    rng, axes = np.random.default_rng(0), (Axis(5, 3, 3, 2, 1, 1), Axis(6, 6, 3, 1, 1, 1))
    x, w, dy = (
        rng.integers(-4, 5, shape).astype(np.float32)
        for shape in ((2, 5, 6, 4), (3, 3, 4, multiplier), (2, 3, 6, 4, multiplier))
    )
    forward = functools.partial(op._convolved, t=dtypes.float32)
    for f, *args in ((forward, x, w), (op._by_input, w, dy), (op._by_filter, x, dy)):
        with mock.patch.object(kernels, "_called", side_effect=kernels._called) as called:
            mine = f(*args, axes, NativeWindows())
        assert called.call_count == 1
        np.testing.assert_array_equal(mine, f(*args, axes, KernelLibrary()), strict=True)


@pytest.mark.one_engine
@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["auto", "interpret"])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", [hr.float32, hr.float64, hr.float16])
def test_layers_and_gradients_are_those_of_numpy(layout, dtype, engine, monkeypatch):
    monkeypatch.setattr(thresholds, "NATIVE_POOLING", 1)
    rng = np.random.default_rng(0)
    shape, strides = ((2, 6, 7, 5), [1, 2, 2, 1]) if layout == "NHWC" else ((2, 5, 6, 7), [1, 1, 2, 2])
    x0, w0 = rng.normal(size=shape), rng.normal(size=(3, 3, 5, 2))

    def results() -> list[np.ndarray]:
        with hr.Graph(), hr.Session(engine=engine) as session:
            x, w = (hr.placeholder(dtype, a.shape) for a in (x0, w0))
            y = hr.raw_ops.DepthwiseConv2dNative(input=x, filter=w, strides=strides, padding="SAME", data_format=layout)
            grads = hr.gradients([hr.reduce_sum(y * y)], [x, w])
            found: list[np.ndarray] = session.run([y, *grads], {x: x0.astype(dtype.numpy), w: w0.astype(dtype.numpy)})
            return found

    with flags.override(NATIVE="off"):
        expected = results()
    with mock.patch.object(kernels, "_called", side_effect=kernels._called) as called:
        native = results()
    assert called.call_count == (2 if dtype is hr.float16 else 3)  # the kernel rounds each term of half precision
    tolerance = {hr.float32: 1e-5, hr.float64: 1e-13, hr.float16: 2e-2}[dtype]
    for mine, numpys in zip(native, expected, strict=True):
        np.testing.assert_allclose(mine, numpys, tolerance, tolerance, strict=True)


@pytest.mark.one_engine
@pytest.mark.matrix
def test_groups_of_one_channel_are_native_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_POOLING", 1)
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(2, 6, 7, 4)).astype(np.float32), rng.normal(size=(3, 3, 1, 8)).astype(np.float32)
    with hr.Graph(), hr.Session() as session:
        y = hr.nn.conv2d(hr.constant(x) * 2.0, w, [1, 1, 1, 1], "SAME")
        with mock.patch.object(kernels, "_called", side_effect=kernels._called) as called:
            mine = session.run(y)
        assert called.call_count == 1
    with flags.override(NATIVE="off"), hr.Graph(), hr.Session() as session:
        expected = session.run(hr.nn.conv2d(hr.constant(x) * 2.0, w, [1, 1, 1, 1], "SAME"))
    np.testing.assert_allclose(mine, expected, 1e-5, 1e-5)


def test_small_convolutions_and_other_dtypes_are_left_to_numpy() -> None:
    x, w, axes = np.zeros((1, 4, 4, 3)), np.zeros((3, 3, 1, 3)), (Axis(4, 4, 3, 1, 1, 1),) * 2
    native = NativeWindows()
    assert native.convolved(x, w, axes, 3) is None
    large = np.zeros((64, 4, 4, 3), np.float32)
    assert native.convolved(large, w.astype(np.float32), axes, 3) is not None
    assert native.convolved(large, w, axes, 3) is None
    with flags.override(NATIVE="off"):
        assert native.convolved(large, w.astype(np.float32), axes, 3) is None
