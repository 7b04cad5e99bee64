"""Native sums of rows are those of numpy's kernels."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import headrace as hr
from headrace import flags, thresholds
from headrace.errors import InvalidArgumentError
from headrace.opkit import scatter
from headrace.targets.native import rows as module
from headrace.targets.native.rows import NativeRows


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "NATIVE_ROWS", 1)


def _exact(how: str, out: np.ndarray, rows: np.ndarray, updates: np.ndarray) -> np.ndarray:
    wide = out.astype(np.float64 if out.dtype.kind == "f" else out.dtype)
    getattr(np, how).at(wide, rows, updates)
    return wide


@pytest.mark.matrix
@pytest.mark.parametrize("how", ["add", "subtract"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint16", "int32", "int64"])
@pytest.mark.parametrize(("n", "count", "width"), [(1, 1, 1), (5, 300, 3), (70, 20, 16), (3, 2000, 2), (1000, 600, 1)])
def test_sums_of_rows_are_those_of_numpy(how, dtype, n, count, width):
    rng = np.random.default_rng(0)
    for index in (np.int32, np.int64):
        for rows in (rng.integers(0, n, count), np.sort(rng.integers(0, n, count)), np.full(count, n - 1)):
            out, updates = (rng.integers(-9, 9, (k, width)).astype(dtype) for k in (n, count))
            if np.dtype(dtype).kind == "f":
                updates = updates / np.array(7, dtype)
            expected, bound = _exact(how, out, rows, updates), _exact("add", np.abs(out), rows, np.abs(updates))
            assert NativeRows().accumulated(how, out, rows.astype(index), updates) is out
            if out.dtype.kind == "f":
                assert (np.abs(out - expected) <= 8 * np.finfo(dtype).eps * bound).all()
            else:
                np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("is_sorted", [False, True])
def test_sums_of_many_updates_are_exact(is_sorted):
    rows = np.arange(1 << 17, dtype=np.int32) % 2
    out = np.zeros((2, 1), np.float32)
    NativeRows().accumulated("add", out, np.sort(rows) if is_sorted else rows, np.full((len(rows), 1), 0.1, np.float32))
    np.testing.assert_allclose(out, 0.1 * (1 << 16), 1e-5)


def test_updates_of_a_row_are_added_in_their_order():
    out, rows = np.zeros((2, 1), np.float32), np.array([0, 1, 0, 1, 0], np.int64)
    NativeRows().accumulated("add", out, rows, np.array([[1e8], [1], [-1e8], [2], [1]], np.float32))
    assert out.tolist() == [[1], [3]]


def test_nan_and_infinity_stay_in_their_row():
    out, rows = np.zeros((3, 2), np.float32), np.array([0, 2, 0], np.int32)
    NativeRows().accumulated("add", out, rows, np.array([[np.nan, 1], [np.inf, 1], [1, 1]], np.float32))
    np.testing.assert_array_equal(out, [[np.nan, 2], [0, 0], [np.inf, 1]])


def test_other_arrays_are_left_to_numpy():
    out, rows, updates = np.zeros((3, 2), np.float32), np.zeros(3, np.int32), np.ones((3, 2), np.float32)
    native = NativeRows()
    assert native.accumulated("add", out.astype(np.float16), rows, updates.astype(np.float16)) is None
    assert native.accumulated("add", out, rows, updates.astype(np.float64)) is None
    assert native.accumulated("add", out, rows.astype(np.int16), updates) is None
    assert native.accumulated("add", out.astype(complex), rows, updates.astype(complex)) is None
    assert native.accumulated("add", np.zeros((3, 4), np.float32)[:, ::2], rows, updates) is None
    with flags.override(NATIVE="off"):
        assert native.accumulated("add", out, rows, updates) is None
    assert not out.any()
    assert not scatter.accumulated("add", out, (rows[:0],), updates[:0])
    assert not scatter.accumulated("add", out[:, :0], (rows,), updates[:, :0])


def _results() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    ids, pairs = rng.integers(0, 9, 40), rng.integers(0, 5, (40, 2))
    with hr.Graph(), hr.Session() as session:
        rows, wide = (hr.constant(rng.normal(size=(40, k)).astype(np.float32)) for k in (6, 5))
        table = hr.constant(rng.normal(size=(9, 6)).astype(np.float32))
        some = hr.constant(np.where(ids == 3, -1, ids))
        gathered = hr.gather(table, ids)
        fetches = [
            hr.unsorted_segment_sum(rows, some, 9),
            hr.segment_sum(rows, np.sort(ids)),
            hr.segment_mean(hr.cast(rows, hr.float16), np.sort(ids)),
            hr.scatter_nd(ids[:, None], rows, [9, 6]),
            hr.scatter_nd(pairs, wide, [5, 5, 5]),
            hr.tensor_scatter_nd_add(table, ids[:, None], rows),
            hr.tensor_scatter_nd_sub(table, ids[:, None], rows),
            hr.convert_to_tensor(hr.gradients([hr.reduce_sum(gathered * gathered)], [table])[0]),
        ]
        found: list[np.ndarray] = session.run(fetches)
        return found


@pytest.mark.one_engine
@pytest.mark.matrix
def test_scatters_and_segments_are_those_of_numpy():
    with mock.patch.object(module, "compiled", side_effect=module.compiled) as called:
        native = _results()
    assert called.call_count == 8
    with flags.override(NATIVE="off"):
        expected = _results()
    for mine, numpys in zip(native, expected, strict=True):
        np.testing.assert_allclose(mine, numpys, 1e-5, 1e-5, strict=True)


@pytest.mark.parametrize("flag", ["on", "off"])
def test_an_index_out_of_range_has_the_same_error(flag):
    with flags.override(NATIVE=flag), hr.Graph(), hr.Session() as session:
        ids = hr.placeholder(hr.int32, [2])
        y = hr.unsorted_segment_sum(hr.constant([[1.0], [2.0]]), ids, 2)
        with pytest.raises(InvalidArgumentError, match=r"segment_ids\[1\] = 2 is out of range \[0, 2\)"):
            session.run(y, {ids: [0, 2]})
