"""Native sums of neighboring channels, and local response normalization, are those of numpy."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.ops.nn import lrn
from headrace.targets.native import neighbors as module
from headrace.targets.native.neighbors import NativeNeighbors


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_CHANNELS", 1)


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("channels", [1, 2, 7, 16, 33, 100])
@pytest.mark.parametrize("radius", [0, 1, 5, 32, 2**31 - 1])
def test_sums_are_those_of_numpy(radius: int, channels: int, dtype: type) -> None:
    x = np.random.default_rng(0).normal(size=(2, 3, 5, channels)).astype(dtype)
    mine = NativeNeighbors().neighbors(x, radius)
    with flags.override(NATIVE="off"):
        numpys = lrn._near(x, radius)
    if radius < channels - 1:
        np.testing.assert_array_equal(mine, numpys, strict=True)
    else:  # numpy adds all channels in another order
        np.testing.assert_allclose(mine, numpys, 1e-5, 1e-5, strict=True)


def test_nan_and_infinity_stay_among_their_neighbors() -> None:
    x = np.zeros((2, 9), np.float32)
    x[0, 1], x[1, 7] = np.nan, np.inf
    mine = NativeNeighbors().neighbors(x, 2)
    assert mine is not None
    np.testing.assert_array_equal(np.isnan(mine), [[True] * 4 + [False] * 5, [False] * 9])
    np.testing.assert_array_equal(np.isinf(mine), [[False] * 9, [False] * 5 + [True] * 4])


def test_small_arrays_other_dtypes_and_a_switched_off_target_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    x, native = np.zeros((4, 3), np.float32), NativeNeighbors()
    assert native.neighbors(x, 1) is not None
    assert native.neighbors(x.astype(np.float16), 1) is None
    with flags.override(NATIVE="off"):
        assert native.neighbors(x, 1) is None
    monkeypatch.setattr(thresholds, "NATIVE_CHANNELS", 13)
    assert native.neighbors(x, 1) is None


@pytest.mark.one_engine
@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["auto", "interpret"])
@pytest.mark.parametrize("dtype", [hr.float32, hr.float16])
def test_normalization_and_its_gradient_are_those_of_numpy(dtype, engine, monkeypatch):
    values = np.random.default_rng(0).normal(size=(2, 3, 5, 12))

    def results() -> list[np.ndarray]:
        with hr.Graph(), hr.Session(engine=engine) as session:
            x = hr.placeholder(dtype, values.shape)
            y = hr.nn.local_response_normalization(x, depth_radius=3, bias=2.0, alpha=0.5, beta=0.75)
            (dx,) = hr.gradients([hr.reduce_sum(hr.cast(y, hr.float32) ** 3)], [x])
            found: list[np.ndarray] = session.run([y, dx], {x: values.astype(dtype.numpy)})
            return found

    with flags.override(NATIVE="off"):
        expected = results()
    calls = []
    monkeypatch.setattr(module, "compiled", lambda *args, made=module.compiled: calls.append(1) or made(*args))
    native = results()
    assert len(calls) == 3  # the normalization, and two sums of the gradient
    tolerance = 1e-6 if dtype is hr.float32 else 1e-2
    for mine, numpys in zip(native, expected, strict=True):
        np.testing.assert_allclose(mine, numpys, tolerance, tolerance, strict=True)
