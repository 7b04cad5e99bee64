"""The spill file.

The same array comes back, places are used again, and nothing stays on the disk.
"""

from __future__ import annotations

import os
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from headrace import flags
from headrace.resources.spill import PAGE, Layout, SpillFile

_ROWS = np.arange(60_000, dtype=np.float64).reshape(100, 600)
_VIEWS = {
    "plain": _ROWS,
    "turned": _ROWS.T,
    "three dimensions, turned": _ROWS.reshape(10, 10, 600).transpose(1, 2, 0),
    "backwards": _ROWS[::-1, ::-1],
    "with gaps": _ROWS[:, 100:400],
    "every second row, backwards": _ROWS[::-2],
    "bfloat16": _ROWS.astype(ml_dtypes.bfloat16),
    "bool": _ROWS > 7,
    "complex": _ROWS * 1j,
    "one dimension": _ROWS.ravel()[5:3000],
}


@pytest.mark.parametrize("value", _VIEWS.values(), ids=_VIEWS)
def test_the_same_array_comes_back(value: np.ndarray) -> None:
    file, layout = SpillFile(), Layout.of(value)
    assert layout is not None
    slot = file.reserve(layout.span)
    file.write([(slot, layout, value)])
    (got,) = file.read([(slot, layout, file.buffer(layout))])
    assert (got.dtype, got.shape, got.strides) == (value.dtype, value.shape, value.strides)
    assert got.tobytes() == value.tobytes()
    assert not np.shares_memory(got, value)


@pytest.mark.parametrize(
    "value",
    [
        np.float32(1),
        np.zeros(PAGE - 1, np.uint8),
        np.array(["text"] * PAGE, object),
        np.broadcast_to(np.zeros(100), (1000, 100)),  # repeats itself
        np.zeros((1000, 1000))[:, 0],  # lies in a stretch a thousand times its size
        "no array",
    ],
    ids=["scalar", "small", "objects", "repeated", "scattered", "text"],
)
def test_what_is_not_worth_writing(value: object) -> None:
    assert Layout.of(value) is None


def test_places_are_used_again() -> None:
    file = SpillFile()
    a, b, c = file.reserve(PAGE), file.reserve(PAGE), file.reserve(PAGE + 1)
    assert (a.offset, b.offset, c.offset) == (0, PAGE, 2 * PAGE)
    assert file.used == file.size == 4 * PAGE
    file.free(b)
    assert file.reserve(17) == b
    assert file.reserve(PAGE + 1).offset == 4 * PAGE  # another size
    for slot in (a, b, c):
        file.free(slot)
    assert file.used == 2 * PAGE
    assert file.reserve(2 * PAGE) == c


def test_a_file_that_is_not_used_begins_anew() -> None:
    file = SpillFile()
    slots = [file.reserve(n) for n in (PAGE, 5 * PAGE, 100)]
    for slot in slots:
        file.free(slot)
    assert file.used == file.size == 0


def test_the_file_has_no_name(tmp_path: os.PathLike[str]) -> None:
    file = SpillFile()
    layout = Layout.of(_ROWS)
    assert layout is not None
    with flags.override(SPILL_FOLDER=os.fspath(tmp_path)):
        file.write([(file.reserve(layout.span), layout, _ROWS)])
    assert os.listdir(tmp_path) == []


def test_a_closed_or_shortened_file_says_so() -> None:
    file, layout = SpillFile(), Layout.of(_ROWS)
    assert layout is not None
    slot, buffer = file.reserve(layout.span), file.buffer(layout)
    with pytest.raises(OSError, match="cut short"):
        file.read([(slot, layout, buffer)])
    file.close()
    file.close()
    with pytest.raises(OSError, match="closed"):
        file.write([(slot, layout, _ROWS)])


def test_neighbours_are_written_and_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adjacent arrays take one system call, and others one each.

    A short read or write is continued.
    """
    calls: list[tuple[str, int, int]] = []
    pwritev, preadv = os.pwritev, os.preadv

    def short(name: str, call: Any) -> Any:
        def copy(fd: int, data: list[memoryview], offset: int) -> int:
            some = [d[:10_000] for d in data[:2]]  # no more than that at once
            some = some[:1] if len(some[0]) < len(data[0]) else some
            calls.append((name, len(data), offset))
            n: int = call(fd, some, offset)
            return n

        return copy

    rng = np.random.default_rng(0)
    values = [rng.integers(0, 255, n, np.uint8) for n in (PAGE, 3 * PAGE, PAGE + 5, 5 * PAGE)]
    file = SpillFile()
    layouts = [layout for v in values if (layout := Layout.of(v)) is not None]
    slots = [file.reserve(layout.span) for layout in layouts]
    order = [2, 0, 3, 1]
    monkeypatch.setattr(os, "pwritev", short("write", pwritev))
    monkeypatch.setattr(os, "preadv", short("read", preadv))
    file.write([(slots[i], layouts[i], values[i]) for i in order])
    found = file.read([(slots[i], layouts[i], file.buffer(layouts[i])) for i in order])
    for i, value in zip(order, found, strict=True):
        np.testing.assert_array_equal(value, values[i])
    for what in ("write", "read"):
        starts = [offset for name, _, offset in calls if name == what]
        assert starts == sorted(starts)
        assert next(n for name, n, offset in calls if name == what and offset == 0) == 3  # up to the one with a gap
        assert slots[3].offset in starts
