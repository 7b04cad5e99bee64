"""Native copies of transposed arrays are those of numpy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.targets.native import engine
from headrace.targets.native.contiguous import NativeCopies
from tests.targets.native import region_running as running


def _numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    bits = np.random.default_rng(0).integers(0, 256, (*shape, np.dtype(dtype).itemsize), np.uint8)
    return bits.view(dtype)[..., 0]


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def _assert_copied(x: np.ndarray) -> None:
    made = NativeCopies().contiguous(x)
    assert made is not None
    assert made.flags.c_contiguous
    assert (made.dtype, made.shape) == (x.dtype, x.shape)
    assert made.tobytes() == x.tobytes()


@pytest.mark.parametrize(
    "dtype", ["int8", "bool", "int16", "float16", ml_dtypes.bfloat16, "float32", "uint64", "float64"]
)
def test_bits_of_all_dtypes_are_copied(dtype: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thresholds, "NATIVE_TRANSPOSE", 1)
    for shape in ((16, 16), (17, 16), (16, 50), (33, 71), (64, 31)):
        _assert_copied(_numbers(shape, dtype).T)


@pytest.mark.parametrize("axes", [(0, 2, 1), (1, 2, 0), (2, 0, 1), (2, 1, 0)], ids=str)
def test_matrices_of_larger_arrays_are_transposed(axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thresholds, "NATIVE_TRANSPOSE", 1)
    x = _numbers((18, 35, 20), "float32")
    _assert_copied(x.transpose(axes))
    _assert_copied(x[::2, ::-1].transpose(2, 1, 0)[:, :, :].transpose(0, 2, 1))
    _assert_copied(x[:, 3].T)


def test_other_copies_are_left_to_numpy(monkeypatch: pytest.MonkeyPatch):
    copies = NativeCopies()
    x = _numbers((128, 128), "float32")
    assert copies.contiguous(x.T) is not None
    assert copies.contiguous(x[:127].T) is None
    monkeypatch.setattr(thresholds, "NATIVE_TRANSPOSE", 1)
    assert copies.contiguous(x) is None
    assert copies.contiguous(x[:, ::2].T) is None
    assert copies.contiguous(x[:15].T) is None
    assert copies.contiguous(x.astype(np.complex64).T) is None
    assert copies.contiguous(x.astype(object).T) is None
    assert copies.contiguous(_numbers((4, 16, 4, 16), "int8").T) is None
    with flags.override(NATIVE="off"):
        assert copies.contiguous(x.T) is None


@pytest.mark.parametrize("shape", [(130, 127), (3, 90, 61)], ids=str)
def test_results_of_regions_are_transposed_by_tiles(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thresholds, "NATIVE_TRANSPOSE", 1)
    texts: list[str] = []
    compile_module = engine.compile_module
    monkeypatch.setattr(engine, "compile_module", lambda text, *rest: texts.append(text) or compile_module(text, *rest))
    with hr.Graph():
        x = hr.placeholder(hr.float32, shape)
        running.run([hr.linalg.matrix_transpose(hr.tanh(x)), hr.tanh(x)[1:]], {x: _floats(*shape)})
    assert any("@transpose_4(" in text for text in texts)


def _loop(values: tuple[Any, ...], engine_name: str, native: str) -> np.ndarray:
    with hr.Graph(), flags.override(NATIVE=native), hr.Session(engine=engine_name) as session:
        n, x, w = (hr.placeholder(str(v.dtype), v.shape) for v in values)
        _, y = hr.while_loop(
            lambda i, y: i < n, lambda i, y: (i + 1, hr.tanh(hr.matmul(y, w, transpose_b=True))), [0, x]
        )
        return session.run(y, dict(zip((n, x, w), values, strict=True)))


@pytest.mark.parametrize("rows", [3, 40])
def test_factors_that_are_transposed_before_a_loop(rows: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(thresholds, "NATIVE_TRANSPOSE", 1)
    made: list[bool] = []
    contiguous = NativeCopies.contiguous

    def spied(self: NativeCopies, x: np.ndarray) -> np.ndarray | None:
        found = contiguous(self, x)
        made.append(found is not None)
        return found

    monkeypatch.setattr(NativeCopies, "contiguous", spied)
    values = np.array(40, np.int32), _floats(rows, 60), _floats(60, 60) / 8
    expected = _loop(values, "interpret", "off")
    np.testing.assert_allclose(_loop(values, "compiled", "off"), expected, 1e-4, 1e-5)
    np.testing.assert_allclose(_loop(values, "compiled", "on"), expected, 1e-4, 1e-5)
    assert not any(made)  # by native code, which transposes as part of its region
    monkeypatch.setattr(thresholds, "NATIVE_LEAST_SAVING", 1 << 60)
    np.testing.assert_allclose(_loop(values, "compiled", "on"), expected, 1e-4, 1e-5)
    assert any(made)
