"""The chart of the README has the figures of the table of native code."""

from __future__ import annotations

import pytest

from benchmarks import chart


def test_the_chart_finds_its_rows_in_the_table() -> None:
    found = chart.times(chart.TABLE.read_text(encoding="utf-8"))
    assert found.keys() == chart.ROWS.keys()
    for row, systems in found.items():
        assert {"headrace", "TensorFlow"} < systems.keys() <= chart.COLORS.keys(), row


def test_a_table_without_a_row_is_refused() -> None:
    with pytest.raises(LookupError, match="no row 'cond in a loop, gradient'"):
        chart.times("| nested scalar loop | µs an iteration | 0.5 | JAX | 2 | 0.25 | ≤ 1 | met |\n")
