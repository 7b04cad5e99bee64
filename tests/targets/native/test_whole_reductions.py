"""Native reductions of whole arrays are those of numpy's kernels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.dtypes import DType
from headrace.execute import blas
from headrace.targets.native.whole_reductions import NativeReductions

_UFUNCS = (np.add, np.maximum, np.minimum)


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_REDUCTION", 1)


def _assert_reduced(x: np.ndarray, axes: tuple[int, ...], ufunc: np.ufunc) -> None:
    """Compares a reduction with the exact one."""
    found = NativeReductions().reduced(ufunc, x, axes)
    assert found is not None
    assert found.dtype == (np.float32 if x.itemsize == 2 else x.dtype)
    wide = x.astype(np.float64)
    expected = ufunc.reduce(wide, axes)
    assert found.shape == expected.shape
    if ufunc is not np.add:
        np.testing.assert_array_equal(found, expected)
        return
    assert (np.abs(found - expected) <= 20 * np.finfo(found.dtype).eps * np.abs(wide).sum(axes)).all()


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [hr.float32, hr.float64, hr.float16, hr.bfloat16], ids=str)
@pytest.mark.parametrize("shape", [(40,), (7, 33), (5, 1, 20), (4, 9, 2, 6), (3, 2, 50), (1, 5)], ids=str)
def test_reductions_are_those_of_numpy(shape: tuple[int, ...], dtype: DType):
    x = np.random.default_rng(0).normal(size=shape).astype(dtype.numpy)
    axes = [a for n in range(1, len(shape) + 1) for a in itertools.combinations(range(len(shape)), n)]
    for each, ufunc in itertools.product(axes, _UFUNCS):
        _assert_reduced(x, each, ufunc)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((600_001,), (0,)), ((100_003, 5), (0,)), ((100_003, 5), (1,)), ((3, 70_001, 3), (0, 2)), ((3, 70_001, 3), (1,))],
    ids=str,
)
def test_parts_of_large_arrays_are_combined(shape: tuple[int, ...], axes: tuple[int, ...]):
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32) + 1
    for ufunc in _UFUNCS:
        if shape != (600_001,) or ufunc is np.add:
            _assert_reduced(x, axes, ufunc)
    with blas.threads(1):
        one = NativeReductions().reduced(np.add, x, axes)
    with blas.threads(2):
        np.testing.assert_array_equal(NativeReductions().reduced(np.add, x, axes), one)


def test_nan_is_the_result_where_it_is_a_term():
    x = np.zeros((300, 4), np.float32)
    x[7, 2] = np.nan
    for ufunc in _UFUNCS:
        np.testing.assert_array_equal(NativeReductions().reduced(ufunc, x, (0,)), [0, 0, np.nan, 0])


def test_other_arrays_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch):
    x, native = np.zeros((4, 1000), np.float32), NativeReductions()
    assert native.reduced(np.add, x.astype(np.int32), (0,)) is None
    assert native.reduced(np.add, x, (0,)) is None
    assert native.reduced(np.maximum, x, (1,)) is None
    assert native.reduced(np.add, x[:, :9], ()) is None
    with flags.override(NATIVE="off"):
        assert native.reduced(np.add, x, (1,)) is None
    monkeypatch.setattr(thresholds, "NATIVE_REDUCTION", x.size + 1)
    assert native.reduced(np.add, x, (1,)) is None


def _results(x: np.ndarray) -> list[np.ndarray]:
    v = hr.constant(x)
    found = [
        f(v, axis, keepdims=k)
        for f in (hr.reduce_sum, hr.reduce_max, hr.reduce_mean)
        for axis, k in ((0, True), (1, False))
    ]
    found += [hr.nn.l2_loss(v), hr.norm(v, axis=1), hr.reduce_min(v, [1], keepdims=True)]
    found.append(hr.raw_ops.BiasAddGrad(out_backprop=v))
    return [f.numpy() for f in found]


@pytest.mark.matrix
@pytest.mark.parametrize("dtype", [hr.float32, hr.float16], ids=str)
def test_ops_have_the_results_of_numpy(dtype: DType):
    x = np.random.default_rng(0).uniform(0, 1, (60, 20)).astype(dtype.numpy)
    mine = _results(x)
    with flags.override(NATIVE="off"):
        expected = _results(x)
    for a, b in zip(mine, expected, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.astype(float), b.astype(float), 2e-3 if dtype is hr.float16 else 2e-6)
