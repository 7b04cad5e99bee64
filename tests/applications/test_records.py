"""Records of applications, and the page that is made of them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from examples.applications import page, records


def example() -> records.Record:
    record = records.Record(seconds=3.0)
    record.figure("accuracy", 99.5, "%", at_least=98)
    record.figure("error", 0.25, at_most=0.1)
    record.figure("speed", 12.0, "steps/s", timed=True)
    record.curve("loss", [0, 1], [2.0, 1.0])
    record.table("Times:", ["n", "ms"], [[1, 0.123456]], timed=True)
    record.sample("abc")
    return record


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    example().write(tmp_path / "folder" / "r.json")
    assert records.read(tmp_path / "folder" / "r.json") == example()


def test_figures_state_their_bounds() -> None:
    shown = [str(f) for f in example().figures]
    assert shown == ["accuracy: 99.5 % (at least 98)", "error: 0.25 (at most 0.1: NOT MET)", "speed: 12 steps/s"]
    assert [f.is_met for f in example().figures] == [True, False, True]


def test_figures_and_tables_of_times_are_left_out_of_the_comparison() -> None:
    found = example().untimed()
    assert [f["name"] for f in found["figures"]] == ["accuracy", "error"]
    assert not found["tables"]
    assert found["samples"] == ["abc"]


@pytest.mark.parametrize(("steps", "status"), [(5, 0), (10, 1)])
def test_a_full_run_fails_if_a_figure_is_out_of_its_bounds(
    steps: int, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "r.json"
    monkeypatch.setattr(sys, "argv", ["program", "--steps", str(steps), "--seed", "3", "--record", str(path)])

    def run(options: argparse.Namespace) -> records.Record:
        assert (options.steps, options.seed) == (steps, 3)
        return example()

    assert records.main("A program.\n\nMore.", run, steps=10) == status
    assert records.read(path).figures == example().figures


def test_the_page_is_that_of_the_recorded_runs() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.text()
