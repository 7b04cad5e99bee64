"""Kernels of native windows take numpy arrays and compile each geometry once."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from headrace.opkit.windows import Axis
from headrace.ops.nn import convolving
from headrace.targets.native import engine
from headrace.targets.native.functions import is_native
from headrace.targets.native.windows import kernels
from headrace.targets.native.windows.pooling import Kind

_AXES = (Axis(5, 3, 3, 2, 1, 1), Axis(6, 6, 3, 1, 1, 1))


def _integers(*shape):
    return np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.matrix
def test_the_kernels_give_the_results_of_numpy():
    x, w, dy = _integers(2, 5, 6, 4), _integers(3, 3, 2, 6), _integers(2, 3, 6, 6)
    for mine, numpys, a, b in (
        (kernels.convolved, convolving.convolved, x, w),
        (kernels.by_input, convolving.by_input, w, dy),
        (kernels.by_filter, convolving.by_filter, x, dy),
    ):
        np.testing.assert_array_equal(mine(a, b, _AXES, 2), convolving.in_groups(numpys, a, b, 2, _AXES))


@pytest.mark.matrix
def test_arrays_need_not_be_contiguous():
    x, w = _integers(2, 4, 6, 5).transpose(0, 3, 2, 1), _integers(3, 3, 4, 7)[..., ::-1]
    np.testing.assert_array_equal(kernels.convolved(x, w, _AXES), convolving.convolved(x, w, _AXES))


def test_a_batch_of_another_size_compiles_nothing():
    axes = (Axis(4, 2, 2, 2, 1, 0),)
    kernels.pooled(Kind.MEAN, _integers(2, 4, 3), None, axes)
    with mock.patch.object(engine, "compile_module", side_effect=AssertionError("compiled")):
        assert kernels.pooled(Kind.MEAN, _integers(7, 4, 3), None, axes).shape == (7, 2, 3)


def test_other_dtypes_and_a_switched_off_target_are_left_to_numpy():
    x = np.zeros(3, np.float32)
    assert is_native(x, x) == (not engine.available())
    assert not is_native(x, x.astype(np.float64))
    assert not is_native(x.astype(np.float16))
    with mock.patch.object(engine, "available", return_value="the flag NATIVE is off"):
        assert not is_native(x)
