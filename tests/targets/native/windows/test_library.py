"""Kernels of convolutions and poolings use native windows where these pay."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.targets.native.windows import kernels

pytestmark = pytest.mark.one_engine


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(2, 6, 5, 8)).astype(np.float32), rng.normal(size=(3, 3, 8, 8)).astype(np.float32)


def network(x: Any, w: Any) -> Any:
    y = hr.nn.conv2d(x, w, [1, 1, 1, 1], "SAME")
    y = hr.nn.max_pool(y, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    return hr.nn.avg_pool(y, [1, 2, 2, 1], [1, 1, 1, 1], "VALID")


def results(engine: str) -> list[np.ndarray]:
    x0, w0 = arrays()
    with hr.Graph(), hr.Session(engine=engine) as session:
        x, w = hr.placeholder(hr.float32, x0.shape), hr.placeholder(hr.float32, w0.shape)
        y = network(x, w)
        found: list[np.ndarray] = session.run([y, *hr.gradients([hr.reduce_sum(y * y)], [x, w])], {x: x0, w: w0})
        return found


@pytest.mark.matrix
@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_native_windows_give_the_results_of_numpy(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_CONVOLUTION", 1)
    monkeypatch.setattr(thresholds, "NATIVE_POOLING", 1)
    called = []
    with mock.patch.object(kernels, "_called", side_effect=lambda *args: called.append(1) or _called(*args)):
        native = results(engine)
    assert len(called) == 7  # three layers with their gradients, that of the convolution twice
    with flags.override(NATIVE="off"):
        numpys = results(engine)
    for mine, expected in zip(native, numpys, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-4)


_called = kernels._called


def test_small_windows_are_left_to_numpy() -> None:
    with mock.patch.object(kernels, "_called", side_effect=AssertionError("native")):
        results("auto")


def test_groups_of_few_channels_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_CONVOLUTION", 1)
    x0, _ = arrays()
    w0 = np.ones((3, 3, 2, 8), np.float32)
    with (
        hr.Graph(),
        hr.Session() as session,
        mock.patch.object(kernels, "_called", side_effect=AssertionError("native")),
    ):
        session.run(hr.nn.conv2d(hr.constant(x0) * 2.0, w0, [1, 1, 1, 1], "SAME"))
