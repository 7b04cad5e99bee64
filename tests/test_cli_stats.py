"""`headrace run --stats`: a table on standard error, for runs that fail too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace import cli
from tests.test_cli import LOOP, VALUES, run_in_process


@pytest.fixture
def loop(tmp_path: Path) -> str:
    path = tmp_path / "loop.txt"
    path.write_text(LOOP, encoding="utf-8")
    return str(path)


def test_stats_are_a_table_beside_the_values(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run_in_process(capsys, "run", loop, "--feed", "n=5", "--fetch", "i_out", "--stats")
    assert status == cli.OK
    assert "i_out:0  int32 []  5" in out
    assert "i_add" not in out
    lines = [line.split() for line in err.splitlines()]
    (adds,) = [line for line in lines if line[-2:] == ["i_add", "(AddV2)"]]
    assert adds[-5:-2] == ["1", "20", "B"]  # dead once, and five times four bytes
    assert ["5", "1", "5"] in [line[:3] for line in lines if line[-1] == "loop"]
    assert "2 of 7  loop" in err  # in flight


def test_stats_together_with_a_trace(loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    args = ("run", loop, "--feed", "n=3", "--fetch", "i_out", "--stats", "--quiet", "--trace", str(file))
    status, _, err = run_in_process(capsys, *args)
    assert status == cli.OK
    assert "(LoopCond)" in err
    assert "perfetto" in err
    assert any(e["name"] == "i_add" for e in json.loads(file.read_text(encoding="utf-8"))["traceEvents"])


def test_a_failed_run_leaves_its_stats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "values.txt"
    path.write_text(VALUES, encoding="utf-8")
    args = ("run", str(path), "--feed", "f=1", "--feed", "b=false", "--fetch", "dead", "--stats")
    status, out, err = run_in_process(capsys, *args)
    assert (status, out) == (cli.FAILED, "")
    assert "interpreted, failed: " in err
    assert "dead (Identity)" in err


def test_no_stats_if_nothing_ran(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run_in_process(capsys, "run", loop, "--fetch", "nothing_there", "--stats")
    assert status == cli.BAD_USAGE
    assert err.count("\n") == 1


def test_stats_are_of_the_run_alone(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run_in_process(capsys, "run", loop, "--init", "zero", "--stats")
    assert (status, err) == (cli.OK, "")
