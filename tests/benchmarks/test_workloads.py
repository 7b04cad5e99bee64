"""The workloads give the same numbers by headrace and by hand.

The figures are evaluated correctly. Nothing is timed.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import itertools
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import headrace.v1
from benchmarks import compare, contenders, lifetime, native, peak, programs, report, threads, whole_programs, workloads
from benchmarks.contenders import CONTENDERS, prepare
from benchmarks.gradients import compare as greatest_difference
from benchmarks.programs import Program, by_hand, in_v1, kernels, training
from benchmarks.report import Row, Run
from benchmarks.workloads import WORKLOADS, Workload

SMALL: dict[str, Program] = {
    "add": programs.add(),
    "counting": programs.counting(5),
    "nested_scalars": programs.nested_scalars(3, 4),
    "branches": programs.branches(30, -0.999),
    "rnn": programs.rnn(2, 3, 4),
    "lstm": programs.lstm(2, 3, 4),
    "chain": programs.chain(10),
    "wide": programs.wide(12),
    "elementwise": programs.elementwise(12, 3),
    "convnet": programs.convnet(3, 8, (2, 4, 3), 5),
    "conv2d": kernels.conv2d(2, 5, 3, 2, 4),
    "conv2d_by_input": kernels.conv2d_by_input(2, 5, 3, 2, 4),
    "conv2d_by_filter": kernels.conv2d_by_filter(2, 5, 3, 2, 4),
    "max_pool": kernels.max_pool(2, 5, 3, 2, gradient=True),
    "batch_norm": kernels.batch_norm(2, 4, 3, gradient=False),
    "batch_norm_cubed": kernels.batch_norm(2, 4, 3, gradient=True),
    "cross_entropy": kernels.cross_entropy(4, 5),
    "matmul": kernels.matmul(6),
    "reductions": kernels.reductions(6),
    "gather": kernels.gather(9, 2, 5),
    "scatter": kernels.scatter(9, 2, 5),
    "digits_lstm": training.digits_lstm(4, 5),
    "digits_vgg": training.digits_vgg(4, (2, 3), 6),
}
ALONE = ("headrace", "interpreter", "by hand")


def _small(w: Workload) -> Workload:
    program = SMALL[w.program.function]
    return dataclasses.replace(
        w, program=dataclasses.replace(program, by=program.by and w.program.by), least=1e-6,
        systems=w.systems if w.key == "torch" else tuple(name for name in w.systems if name in ALONE),
    )  # fmt: skip


def test_a_workload_without_a_selected_contender_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    w = dataclasses.replace(WORKLOADS[0], systems=("TensorFlow",))
    monkeypatch.setattr(workloads, "WORKLOADS", (w,))
    assert list(workloads.measured((w.key,), 1, 1, 1, ("headrace",))) == []


@pytest.mark.system
@pytest.mark.parametrize("w", WORKLOADS, ids=lambda w: w.title)
def test_a_workload_at_small_size(w: Workload) -> None:
    """All that are always there agree, or `timed` raises."""
    if w.key == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e '.[torch]')")
    small = _small(w)
    row = workloads.timed(small, rounds=2, n_threads=1)
    assert set(row.others) == set(small.systems[1:])
    assert all(len(v) == 2 and min(v) > 0 for v in (row.values, *row.others.values()))
    assert row.aims == w.aims
    assert len(row.values) == 2


@pytest.mark.parametrize("name", [name for name in SMALL if hasattr(by_hand, name)])
def test_headrace_and_by_hand_agree(name: str) -> None:
    program = SMALL[name]
    found = {who: prepare(who, program, "callable", 1) for who in ("headrace", "by hand")}
    results = [p.results() for p in found.values() if p is not None]
    assert len(results) == 2
    assert len(results[0]) == 1 + len(program.by)
    assert greatest_difference(program, list(found), results) < 1e-5
    assert np.any(np.asarray(results[0][-1]) != 0)


def test_branches_go_both_ways() -> None:
    program = SMALL["branches"]
    _, dx, da, db = by_hand.branches_gradient(**program.sizes, **program.arguments)
    assert 0.9 < abs(dx) < 0.9985  # multiplied more than once
    assert da != 0 != db


def test_the_script_differs_in_the_import_line_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = types.ModuleType("made_up")
    called: list[str] = []
    monkeypatch.setattr(made_up, "disable_control_flow_v2", lambda: called.append("yes"), raising=False)
    monkeypatch.setitem(sys.modules, "made_up", made_up)
    other = in_v1.of("made_up")
    assert other.tf is made_up
    assert called == ["yes"]
    assert {name for name in vars(in_v1) if not name.startswith("__")} <= set(vars(other))
    assert in_v1.tf is headrace.v1  # that one is as it was
    with pytest.raises(ModuleNotFoundError):
        in_v1.of("no_such_module")


def test_aims_are_those_of_the_issue() -> None:
    """The aims are those of the plan's steps.

    The tables of these steps are not to be changed.
    """
    aims = [tuple(w.aims.values()) for w in WORKLOADS if w.aims and w.key != "torch"]
    assert {tuple(w.aims.items()) for w in WORKLOADS if w.key == "torch"} == {(("PyTorch", 1.2),)}
    assert aims == [
        (0.04, 1.3), (0.05, 1.3), (0.04, 1.3), (0.4, 1.1), (0.2, 1.3), (0.6, 1.2, 1.5), (0.15, 1.2, 0.9),
        (0.75, 1.2, 1.0), (6.0,), (3.0,), (15.0,), (1.0, 1.5), (0.3, 1.5), (0.45,), (0.5,), (0.5,), (0.2,), (3.0,),
        (1.0,), *[(2.5,)] * 6, *[(4.0,)] * 4, (1.2,), (1.0,), (2.5,),
    ]  # fmt: skip
    assert all(name in w.systems or name == w.unit for w in WORKLOADS for name in w.aims)
    assert workloads.MEMORY_AIMS == {"TensorFlow": 1.0}
    assert workloads.WHOLE_PROGRAM_AIMS == {"TensorFlow": 2.0}
    assert workloads.V1_IMPORT_AIMS == {"TensorFlow": 0.12}


def test_others_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contenders, "_has", lambda package: False)
    lstm = next(w for w in WORKLOADS if w.key == "lstm")
    row = workloads.timed(dataclasses.replace(lstm, program=SMALL["lstm"], least=1e-6), rounds=1, n_threads=1)
    assert row.values
    assert [name for name, values in row.others.items() if not values] == ["TensorFlow", "JAX", "PyTorch"]
    times, ratios, summary, _ = Run([row], {}).text().split("\n\n")
    assert times.splitlines()[-1].count("not installed") == 3
    assert ratios.splitlines()[-1].count("not installed") == 3
    assert "Of 3 aims" in summary
    assert "2 could not be measured" in summary


WAITING = Row("waiting", "ms", [], "not run: no such thing", key="waiting", aims={"TensorFlow": 3.0})


def test_what_waits_is_said() -> None:
    assert WAITING.met("TensorFlow") is None
    assert "not run: no such thing" in Run([WAITING], {}).text()


def test_every_contender_can_be_asked_for() -> None:
    assert {name for w in (*WORKLOADS, *native.WORKLOADS) for name in w.systems} == set(CONTENDERS)
    for choice in ("--only", "--who"):
        with pytest.raises(SystemExit):
            workloads.main([choice, "nobody"])


def test_a_part_is_not_written_into_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "fix", lambda *args: None)  # it would start this process again
    monkeypatch.setattr(workloads, "measured", lambda *args: iter([_row("loop", [1.0])]))
    page, file = tmp_path / "page.md", tmp_path / "run.json"
    page.write_text(f"{report.BEGIN}{report.END}")
    to = ["--docs", str(page), "--json", str(file)]
    for part in (["--only", "rnn"], ["--who", "headrace"], ["--rounds", "4"]):
        assert workloads.main([*to, *part]) == 0
        assert "stays as it was" in capsys.readouterr().out
        assert page.read_text() == f"{report.BEGIN}{report.END}"
        assert report.read(file).rows[0].values == [1.0]
    assert workloads.main(to) == 0
    assert "| loop | µs | 1 |" in page.read_text()
    assert "| loop | µs | 1 |" in capsys.readouterr().out


def test_threads_are_in_the_environment() -> None:
    assert threads.settings(3)["OPENBLAS_NUM_THREADS"] == "3"
    assert threads.environment(3)["PYTHONPATH"].startswith(str(threads.ROOT))


@pytest.mark.system
def test_memory_grows_with_the_program() -> None:
    few, many = (peak.measured("by hand", (64, trips, 64), 1) for trips in (2, 200))
    assert few is not None
    assert many is not None
    kept = 200 * 64 * 64 * 4  # an array of all states
    assert many["peak"] > few["peak"] + 7 * kept


@pytest.mark.system
def test_what_shows_in_a_process_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workloads, "RUNS", 40)
    row = workloads.left_behind(1, 1, ("headrace",))
    assert len(row.values) == 1
    row = workloads.imported(1, ("headrace", "by hand"))
    assert row.values[0] > row.others["by hand"][0] > 0
    assert lifetime.left_by_runs("interpreter", 40, 1) is not None
    row = workloads.imported_v1(1, ("headrace",))
    assert row.values[0] > 0
    assert row.aims == workloads.V1_IMPORT_AIMS


@pytest.mark.system
def test_whole_programs_run_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(whole_programs.PROGRAMS) == 10
    monkeypatch.setattr(whole_programs, "PROGRAMS", whole_programs.PROGRAMS[:1])
    (row,) = workloads.whole(1, 1, ("headrace",))
    assert (row.name, row.key, row.aims) == ("program mlp_raw", "whole", workloads.WHOLE_PROGRAM_AIMS)
    assert 1 < row.values[0] < 60_000
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    (row,) = workloads.whole(1, 1, ("headrace", "TensorFlow"))
    assert row.others == {"TensorFlow": []}


# *** reports ***


def _row(name: str, mine: list[float], hand: list[float] | None = None, **more: object) -> Row:
    others = {} if hand is None else {"by hand": hand}
    return Row(name, "µs", mine, "", others, **more)  # type: ignore[arg-type]


def test_ratios_are_taken_within_a_round() -> None:
    row = _row("loop", [1.0, 20.0, 3.0], [2.0, 40.0, 2.0], aims={"by hand": 0.5, "µs": 2.0})
    assert row.ratios("by hand") == [0.5, 0.5, 1.5]
    assert row.met("by hand") is True  # the median, 0.5
    assert row.met("µs") is False  # 3
    times, ratios, summary, _ = Run([row], {}).text().split("\n\n")
    assert times.splitlines()[-1] == "| loop | µs | 3 (1 to 20) | 2 (2 to 40) |  |"
    assert ratios.splitlines()[-1] == "| loop | 0.5 (0.5 to 1.5); ≤ 0.5 met | 3 (1 to 20); **≤ 2 missed** |"
    assert summary == "Of 2 aims 1 are met."


def test_what_should_be_nothing_is_not_divided() -> None:
    text = Run([_row("left", [1e-3], [1e-4], is_compared=False), _row("loop", [1.0], [2.0])], {}).text()
    times, ratios, *_ = text.split("\n\n")
    assert "| left |" in times
    assert "| left |" not in ratios
    assert "| loop | 0.5 |" in ratios


def test_json_goes_there_and_back(tmp_path: Path) -> None:
    run = Run([_row("loop", [1.0, 2.0], [3.0, 4.0], key="k", aims={"µs": 6.0}), WAITING], {"python": "3"})
    run.write(tmp_path / "new" / "a.json")
    again = report.read(tmp_path / "new" / "a.json")
    assert again.conditions == run.conditions
    assert list(again.rows) == list(run.rows)
    (tmp_path / "b.json").write_text('{"results": []}')
    with pytest.raises(ValueError, match="is not what"):
        report.read(tmp_path / "b.json")


def test_only_what_is_between_the_marks_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# Before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    for text in ("new", "newer"):
        report.insert(page, text)
    assert page.read_text() == f"# Before\n{report.BEGIN}\n\nnewer\n\n{report.END}\nafter\n"
    for broken in ("", report.BEGIN, report.END + report.BEGIN, 2 * (report.BEGIN + report.END)):
        page.write_text(broken)
        with pytest.raises(ValueError, match="must have the line"):
            report.insert(page, "new")
        assert page.read_text() == broken


def test_the_documentation_has_the_marks() -> None:
    page = (threads.ROOT / "docs" / "reference" / "benchmarks.md").read_text(encoding="utf-8")
    assert page.count(report.BEGIN) == page.count(report.END) == 1


# *** two runs ***


def test_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The machine was half as fast in the second run.

    Its speed does not count for a workload that has figures by hand.
    """
    hand = [10.0, 10.0, 10.0, 10.0, 10.0]
    slow = [20.0, 20.0, 20.0, 20.0, 20.0]
    before = [
        _row("same", [11.0, 12.0, 13.0, 14.0, 15.0], hand),
        _row("slower", [11.0, 12.0, 13.0, 14.0, 15.0], hand),
        _row("faster", [11.0, 12.0, 13.0, 14.0, 15.0], hand),
        _row("nothing beside", [10.0, 11.0]),
        _row("gone", [1.0]),
        WAITING,
    ]
    after = [
        _row("same", [23.0, 25.0, 26.0, 27.0, 60.0], slow),
        _row("slower", [31.0, 32.0, 33.0, 34.0, 35.0], slow),
        _row("faster", [11.0, 12.0, 13.0, 14.0, 15.0], slow),
        _row("nothing beside", [20.0, 21.0]),
        _row("new", [1.0]),
        WAITING,
    ]
    files = tmp_path / "before.json", tmp_path / "after.json"
    for rows, python, file in zip((before, after), ("3.11", "3.12"), files, strict=True):
        Run(rows, {"python": python, "seconds": python}).write(file)
    assert compare.main([str(f) for f in files]) == 1
    out = capsys.readouterr().out
    lines = {line.split(" | ")[0].strip("| "): line for line in out.splitlines() if line.startswith("| ")}
    assert lines["same"].endswith("| 2 | headrace / by hand | 1 |  |")
    assert lines["slower"].endswith("| 2.54 | headrace / by hand | 1.27 | **worse** |")
    assert lines["faster"].endswith("| 1 | headrace / by hand | 0.5 | better |")
    assert lines["nothing beside"].endswith("| 1.95 | µs | 1.95 | **worse** |")
    assert "Not compared: gone (only before), new (only after)." in out
    assert "Worse beyond the spread: slower, nothing beside" in out
    assert "python: 3.11 before, 3.12 after" in out
    assert "seconds" not in out
    assert compare.main([str(files[0]), str(files[0])]) == 0
    assert "Worse beyond the spread: nothing" in capsys.readouterr().out


def test_quartiles() -> None:
    assert compare.quartiles([3.0]) == (3.0, 3.0)
    for values in itertools.permutations([1.0, 2.0, 3.0, 4.0, 5.0], 5):
        assert compare.quartiles(values) == (2.0, 4.0)


def test_runs_in_different_units_are_not_compared() -> None:
    a, b = (Run([Row("loop", unit, [1.0])], {}) for unit in ("µs", "ms"))
    with pytest.raises(ValueError, match="loop is in µs in one file and in ms in the other"):
        compare.comparison(a, b)
