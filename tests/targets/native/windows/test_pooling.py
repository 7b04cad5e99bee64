"""Native poolings equal the kernels and stay inside of their buffers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from headrace import dtypes
from headrace.opkit.pooling import counts, reduced, spread
from headrace.opkit.windows import Axis
from headrace.ops.nn.greatest import greatest, to_greatest
from headrace.targets.native.llvm_text import Module
from headrace.targets.native.registers import Registers
from headrace.targets.native.windows import pooling as native
from headrace.targets.native.windows.pooling import Kind, Pooling
from tests.targets.native.windows.running import drawn_axis, run


def _native(spec: Pooling, x: np.ndarray, g: np.ndarray, registers: Registers | None = None) -> np.ndarray:
    module, images = Module(), len(x)
    native.pooling(module, spec, "f", registers)
    shape = x.shape if spec.kind in (Kind.MAXIMUM_GRADIENT, Kind.MEAN_GRADIENT) else g.shape
    source = g if spec.kind is Kind.MEAN_GRADIENT else x
    return run(module, "f", shape, spec.dtype, [source, g], images if spec.batch is None else None)


def _kernel(spec: Pooling, x: np.ndarray, g: np.ndarray) -> np.ndarray:
    plain = [Axis(n, n, 1, 1, 1, 0) for n in (len(x), spec.channels)]
    axes = (plain[0], *spec.axes, plain[1])
    if spec.kind is Kind.MAXIMUM:
        return greatest(x, axes, dtypes.from_numpy(spec.dtype))
    if spec.kind is Kind.MAXIMUM_GRADIENT:
        return to_greatest(x, g, axes)
    if spec.kind is Kind.MEAN:
        return reduced(np.add, x, axes, 0) / counts(axes, x.dtype)
    return spread(g / counts(axes, g.dtype), axes)


def _check(spec: Pooling, images: int, rng: np.random.Generator, registers: Registers | None = None) -> None:
    """Compares on small integers, which are often equal, some NaN and some -inf."""
    x = rng.integers(-3, 4, (images, *(a.length for a in spec.axes), spec.channels)).astype(spec.dtype)
    g = rng.integers(-3, 4, (images, *(a.count for a in spec.axes), spec.channels)).astype(spec.dtype)
    for kind in Kind:
        mine = dataclasses.replace(spec, kind=kind)
        if kind is Kind.MAXIMUM:
            x[rng.random(x.shape) < 0.3] = np.nan
            x[rng.random(x.shape) < 0.1] = -np.inf
        found, wanted = _native(mine, x, g, registers), _kernel(mine, x, g)
        if kind in (Kind.MAXIMUM, Kind.MAXIMUM_GRADIENT):
            np.testing.assert_array_equal(found, wanted, str(mine))
        else:
            exact = 1e-6 if spec.dtype == np.float32 else 1e-14
            np.testing.assert_allclose(found, wanted, exact, 10 * exact, err_msg=str(mine))
        x[~np.isfinite(x)] = 0 if kind is Kind.MAXIMUM_GRADIENT else x[~np.isfinite(x)]


def _window(rng: np.random.Generator, most: int) -> Axis:
    """An axis whose windows all have elements, without those that are padding in all windows."""
    while True:
        axis = drawn_axis(rng, most).trimmed()
        if all(axis.tap(k)[0] != slice(0) for k in range(axis.size)) and _all_met(axis):
            return axis


def _all_met(axis: Axis) -> bool:
    met = np.zeros(axis.count, bool)
    for k in range(axis.size):
        met[axis.tap(k)[0]] = True
    return bool(met.all())


@pytest.mark.matrix
@pytest.mark.rotated(2)
@pytest.mark.parametrize("seed", range(50))
def test_random_geometries_give_the_results_of_the_kernels(seed):
    rng = np.random.default_rng(seed)
    dimensions = int(rng.integers(1, 4))
    axes = tuple(_window(rng, 9 if dimensions < 3 else 4) for _ in range(dimensions))
    channels, images = int(rng.choice([1, 2, 5, 16, 37, 70])), int(rng.integers(1, 4))
    dtype = np.dtype(rng.choice([np.float32, np.float64]))
    spec = Pooling(Kind.MEAN, axes, channels, dtype, None if rng.integers(2) else images)
    _check(spec, images, rng, Registers(32, 16) if seed % 3 == 0 else None)


@pytest.mark.matrix
@pytest.mark.parametrize(
    "axes",
    [
        (Axis(8, 4, 2, 2, 1, 0), Axis(8, 4, 2, 2, 1, 0)),  # each element in one window
        (Axis(9, 4, 2, 2, 1, 0), Axis(8, 4, 2, 2, 1, 0)),  # the last element in none
        (Axis(8, 4, 2, 2, 1, -1).part(slice(0, 3)), Axis(8, 4, 2, 2, 1, 0)),  # the first element in none
        (Axis(8, 4, 3, 2, 1, 0), Axis(33, 33, 3, 1, 1, 1)),  # overlapping windows
        (Axis(20, 20, 12, 1, 1, 5), Axis(4, 4, 1, 1, 1, 0)),  # more taps than are written out
        (Axis(4, 4, 1, 1, 1, 0), Axis(20, 20, 12, 1, 1, 5)),
    ],
)
def test_a_geometry_gives_the_results_of_the_kernels(axes):
    _check(Pooling(Kind.MEAN, axes, 19), 2, np.random.default_rng(0))


def test_no_images_give_an_empty_result():
    axis = Axis(4, 2, 2, 2, 1, 0)
    x, g = np.zeros((0, 4, 3), np.float32), np.zeros((0, 2, 3), np.float32)
    for kind in (Kind.MAXIMUM, Kind.MEAN_GRADIENT):
        assert _native(Pooling(kind, (axis,), 3), x, g).size == 0


def test_the_gradient_flows_to_the_first_of_equal_maxima():
    spec = Pooling(Kind.MAXIMUM_GRADIENT, (Axis(4, 2, 2, 2, 1, 0),), 1)
    x = np.array([1, 1, 2, 3], np.float32).reshape(1, 4, 1)
    g = np.array([5, 7], np.float32).reshape(1, 2, 1)
    assert _native(spec, x, g).ravel().tolist() == [5, 0, 0, 7]


def test_a_window_of_nan_has_the_lowest_number_and_its_gradient_flows_to_the_first():
    x, g = np.full((1, 2, 1), np.nan, np.float32), np.full((1, 1, 1), 5, np.float32)
    axes = (Axis(2, 1, 2, 2, 1, 0),)
    assert _native(Pooling(Kind.MAXIMUM, axes, 1), x, g).item() == np.finfo(np.float32).min
    assert _native(Pooling(Kind.MAXIMUM_GRADIENT, axes, 1), x, g).ravel().tolist() == [5, 0]
