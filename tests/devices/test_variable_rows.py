"""Rows of variables in the memory of a device are read and changed there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr

pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
pytestmark = pytest.mark.system

ROWS, AGAIN = np.arange(6, dtype=np.float32).reshape(3, 2), np.array([2, 0, 2], np.int32)
UPDATES = np.array([[9, -9], [np.nan, 1], [-8, 8]], np.float32)


def values(device: str, change: Any) -> list[Any]:
    """The value of a variable and results of reads after a change, on a device."""
    with hr.Graph() as g, hr.device(device):
        v = hr.Variable(ROWS, name="v")
        changed = change(v)
        reads = [v, v.sparse_read(AGAIN), v.gather_nd(AGAIN[:, None]), v.gather_nd(np.array([[1, 1]], np.int32))]
        init = hr.variables_initializer()
    with hr.Session(graph=g, devices={"TORCH": 1}) as session:
        session.run(init)
        session.run(changed)
        if device != "/cpu:0":
            on = dict(session.explain([changed, *reads], []).devices)[f"/job:localhost/replica:0/task:0{device}"]
            assert {t.op.name for t in reads[1:]} <= set(on)
        found: list[Any] = session.run(reads)
        return found


@pytest.mark.parametrize("how", ["update", "add", "sub", "mul", "div", "min", "max"])
def test_rows_are_changed_as_on_the_cpu(how: str) -> None:
    def change(v: Any) -> Any:
        return getattr(v, f"scatter_{how}")(hr.IndexedSlices(hr.constant(UPDATES), hr.constant(AGAIN)))

    want, got = values("/cpu:0", change), values("/device:TORCH:0", change)
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w)


@pytest.mark.parametrize("how", ["update", "add", "sub"])
def test_slices_are_changed_as_on_the_cpu(how: str) -> None:
    def change(v: Any) -> Any:
        return getattr(v, f"scatter_nd_{how}")(AGAIN[:, None], UPDATES)

    want, got = values("/cpu:0", change), values("/device:TORCH:0", change)
    for w, g in zip(want, got, strict=True):
        np.testing.assert_allclose(g, w)


def test_a_row_that_is_not_there_is_an_error() -> None:
    for change, text in (
        (lambda v: v.scatter_nd_add([[3]], UPDATES[:1]), r"indices\[0\] = \[3\] does not index into shape \[3,2\]"),
        (lambda v: v.scatter_add(hr.IndexedSlices(UPDATES[:1], [3])), r"indices\[0\] = 3 is not in \[0, 3\)"),
        (lambda v: v.sparse_read([-1]), r"indices\[0\] = -1 is not in \[0, 3\)"),
    ):
        with pytest.raises(hr.errors.InvalidArgumentError, match=text):
            values("/device:TORCH:0", change)
