"""Workloads of native code agree in all spellings, and their tables are right."""

from __future__ import annotations

import dataclasses
import shutil
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import headrace as hr
from benchmarks import native, native_coverage, programs, report, since, threads, workloads
from benchmarks.contenders import prepare
from benchmarks.gradients import compare
from benchmarks.measure import table
from benchmarks.native_coverage import Share, Walk, share_of, total
from benchmarks.programs import Program, by_hand, in_c, kernels, scalars, spellings, training
from benchmarks.report import Row, Run
from headrace.compiled_step import CompiledStep, Request
from headrace.schedule.program import Coverage

SCALARS = {p.function: p for p in scalars.all_of(7, 3)}
SMALL: dict[str, Program] = {
    **SCALARS,
    "counting": programs.counting(5),
    "nested_scalars": programs.nested_scalars(3, 4),
    "branches": programs.branches(30, -0.999),
    "rnn": programs.rnn(2, 4, 3),
    "lstm": programs.lstm(2, 3, 4),
    "elementwise": programs.elementwise(12, 3),
    "convnet": programs.convnet(3, 8, (2, 4, 3), 5),
    "conv2d": kernels.conv2d(2, 5, 3, 2, 4),
    "conv2d_by_input": kernels.conv2d_by_input(2, 5, 3, 2, 4),
    "conv2d_by_filter": kernels.conv2d_by_filter(2, 5, 3, 2, 4),
    "max_pool": kernels.max_pool(2, 5, 3, 2, gradient=True),
    "batch_norm": kernels.batch_norm(2, 4, 3, gradient=False),
    "batch_norm_cubed": kernels.batch_norm(2, 4, 3, gradient=True),
    "cross_entropy": kernels.cross_entropy(4, 5),
    "reductions": kernels.reductions(6),
    "gather": kernels.gather(9, 2, 5),
    "scatter": kernels.scatter(9, 2, 5),
    "digits_lstm": training.digits_lstm(4, 5),
    "digits_vgg": training.digits_vgg(4, (2, 3), 6),
}

needs_cc = pytest.mark.skipif(in_c.missing() is not None, reason="there is no C compiler")


# *** workloads ***


@pytest.mark.system
@pytest.mark.parametrize("w", native.WORKLOADS, ids=lambda w: w.title)
def test_a_workload_at_small_size(w: workloads.Workload) -> None:
    program = SMALL[w.program.function]
    program = dataclasses.replace(program, by=program.by if w.program.by else ())
    small = dataclasses.replace(w, program=program, least=1e-6)
    row = workloads.timed(small, rounds=2, n_threads=1, systems=("headrace", "C"))
    assert len(row.values) == 2
    assert min(row.values) > 0
    assert row.aims == w.aims
    assert set(w.aims) <= set(w.systems)


def test_aims_are_those_of_the_plan() -> None:
    """They are not to be moved."""
    own = [tuple(w.aims.values()) for w in native.WORKLOADS if w.key != "scalars"]
    assert own == [
        (0.001,), (0.002, 0.7), (0.001, 0.7), (0.03, 0.25, 1.0), (0.01, 0.15, 1.0),
        (0.6, 1.0), (0.45, 1.0), (0.8, 1.3), (0.4, 0.8), (0.9, 0.8), (1.0, 0.8), *[(1.2,)] * 6, *[(1.0,)] * 6,
        (0.25,), (0.3,), (0.6,), (0.5,), (0.6,), (0.8,),
    ]  # fmt: skip
    assert [tuple(w.aims.items()) for w in native.WORKLOADS if w.key == "scalars"] == [(("JAX", 0.7),)] * 18
    assert (native.SPREAD, native.TWO_THREADS, native.SAME) == (1.2, 0.625, 1.05)


@pytest.mark.system
@pytest.mark.parametrize("name", SCALARS)
def test_the_derivatives_of_loops_of_scalars_are_those_of_differences(name: str) -> None:
    """By a and b; by x they vanish where the loop forgets its start."""
    program = SCALARS[name]

    def results(**moved: Any) -> list[Any]:
        there = dataclasses.replace(program, arguments={**program.arguments, **moved})
        prepared = prepare("headrace", there, "callable", 1)
        assert prepared is not None
        return prepared.results()

    found = dict(zip(program.by, results()[1:], strict=True))
    step = np.float32(1e-3)
    for by in ("a", "b"):
        values = [float(results(**{by: program.arguments[by] + sign * step})[0]) for sign in (1, -1)]
        assert float(found[by]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=2e-2, abs=2e-2)
    assert found["b"] != 0


# *** spellings ***


@pytest.mark.system
@pytest.mark.parametrize(
    "ways", [spellings.of_rnn(2, 4, 3), spellings.of_lstm(2, 3, 4)], ids=["RNN", "LSTM"]
)  # fmt: skip
def test_spellings_agree(ways: dict[str, Program]) -> None:
    assert len(ways) == 6
    assert {how for p in ways.values() for how in p.given.values()} == {"variable", "constant"}
    found = {name: prepare("headrace", p, "callable", 1) for name, p in ways.items()}
    results = [p.results() for p in found.values() if p is not None]
    assert compare(next(iter(ways.values())), list(found), results) < 1e-5
    assert all(np.any(np.asarray(v) != 0) for v in results[0])


def test_a_spelling_has_the_program_s_own_values() -> None:
    """Of weights that are variables, too: not those of an initializer."""
    ways = spellings.of_lstm(2, 3, 4)
    program = ways["BasicLSTMCell, dynamic_rnn, variables"]
    prepared = prepare("headrace", program, "callable", 1)
    assert prepared is not None
    by_numpy = by_hand.lstm_gradient(**program.sizes, **program.arguments)
    assert compare(program, ["headrace", "by hand"], [prepared.results(), by_numpy]) < 1e-5


def test_the_slowest_spelling_is_compared_with_the_fastest() -> None:
    ways = dict(list(spellings.of_rnn(2, 4, 3).items())[:2])
    row = native.spelled("RNN", ways, rounds=3, least=1e-6)
    assert row.aims == {native.FASTEST: 1.2}
    assert sorted(row.values)[1] >= sorted(row.others[native.FASTEST])[1]
    assert all(name in row.facts for name in ways)


# *** C ***


@needs_cc
@pytest.mark.system
def test_c_agrees_with_numpy() -> None:
    program = programs.rnn(4, 16, 50)
    want = by_hand.rnn_gradient(**program.sizes, **program.arguments)
    assert compare(program, ["C", "by hand"], [in_c.prepare(program)(), want]) < 1e-4
    (loss,) = in_c.prepare(dataclasses.replace(program, by=()))()
    assert loss == pytest.approx(want[0], rel=1e-5)


@needs_cc
@pytest.mark.system
def test_tanh_in_c_at_large_numbers() -> None:
    """One step from a state of zeros: b goes into tanh unchanged."""
    b = np.float32([-1e30, -9.5, -1.0, -1e-6, 0.0, 0.5, 8.9, 100.0])
    arguments = {"h": np.zeros((1, 8), np.float32), "w": np.zeros((8, 8), np.float32), "b": b}
    program = dataclasses.replace(programs.rnn(1, 8, 1), arguments=arguments)
    loss, _, by_w, by_b = (np.array(v) for v in in_c.prepare(program)())
    want = np.tanh(b.astype(np.float64))
    assert loss == pytest.approx(np.sum(want**2), rel=1e-6)
    np.testing.assert_allclose(by_b, 2 * want * (1 - want**2), atol=2e-6)
    assert not by_w.any()


def test_without_a_compiler_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert prepare("C", SMALL["rnn"], "callable", 1) is None
    assert "there is no C compiler" in capsys.readouterr().err


# *** this tree and an earlier one ***


@pytest.mark.system
def test_a_task_is_measured_in_both_trees() -> None:
    with since.package(str(threads.ROOT)) as folder:
        assert folder is not None
        assert [p.name for p in folder.iterdir()] == ["headrace"]
        (row,) = native.unchanged("trivial run, interpreted", "interpreted", 1, folder)
        assert min(*row.values, *row.others["before"]) > 0
    first, warm = native.unchanged("first result: RNN 4x16, gradient", "first", 1, None)
    assert first.values
    assert warm.values
    assert warm.met("before") is None  # there is no earlier tree


@pytest.mark.system
def test_an_earlier_tree_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with since.package("no-such-commit") as folder:
        assert folder is None
    assert "'no-such-commit' is no folder with headrace, and no commit" in capsys.readouterr().err


# *** the table ***


def test_a_line_for_each_aim() -> None:
    aims = {"JAX": 0.7, "C": 1.0, "ms": 3.0}
    row = Row("loop", "ms", [2.0, 2.0], "a fact", {"JAX": [4.0, 4.0], "TensorFlow": [8.0, 8.0], "C": []}, aims=aims)
    lines = Run([row], {}).judgements().splitlines()
    assert lines[2:6] == [
        "| loop | ms | 2 (2 to 2) | JAX | 4 (4 to 4) | 0.5 | ≤ 0.7 | met | a fact |",
        "| loop | ms | 2 (2 to 2) | C | not installed |  | ≤ 1 | not measured |  |",
        "| loop | ms | 2 (2 to 2) | ms |  | 2 | ≤ 3 | met |  |",
        "| loop | ms | 2 (2 to 2) | TensorFlow | 8 (8 to 8) | 0.25 |  |  |  |",
    ]
    assert lines[-1] == "Of 3 aims 2 are met; 1 could not be measured."
    assert "JAX 4 (ratio 0.5, ≤ 0.7 met); TensorFlow 8 (ratio 0.25); C: not measured" in table([row])
    assert "**missed**" in Run([dataclasses.replace(row, aims={"JAX": 0.4})], {}).judgements()


def test_a_part_and_a_file(tmp_path: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "fix", lambda *args: None)  # it would replace this process
    w = dataclasses.replace(native.WORKLOADS[0], program=SMALL["counting"], least=1e-6)
    monkeypatch.setattr(native, "WORKLOADS", (w,))
    file = tmp_path / "native.json"
    assert native.main(["--only", w.key, "--who", "headrace", "--rounds", "2", "--json", str(file)]) == 0
    assert "counting loop" in capsys.readouterr().out
    assert [row.name for row in report.read(file).rows] == [w.title]


# *** coverage ***


class _Half:
    """Compiled function of which a half is native."""

    coverage = Coverage(2, 4, {"a list": 1, "a string": 1})


def _step(compiled: Any) -> CompiledStep:
    with hr.Graph() as graph:
        x = hr.placeholder(hr.float32, ())
        y = hr.tanh(x) + 1.0
    step = SimpleNamespace(graph=graph)
    return CompiledStep(Request([x], [y], []), {"prune": step}, compiled)


def test_what_is_told_counts() -> None:
    assert share_of(_step(_Half())) == Share(2, 4, Counter({"a list": 1, "a string": 1}))


def test_what_is_not_told_is_not_native() -> None:
    share = share_of(_step(object()))
    reasons = {f"{native_coverage.NO_TARGET}: {t}" for t in ("Tanh", "AddV2")}
    assert {r for r in share.reasons if not r.endswith("Placeholder")} == reasons
    assert share.native == 0
    assert share.operations == share.reasons.total()
    silent = SimpleNamespace(coverage=None)
    assert share_of(_step(silent)) == share


def test_the_table_of_coverage() -> None:
    shares = [Share(3, 3, Counter()), Share(1, 4, Counter({"a": 2, "b": 1})), Share(0, 3, Counter({"b": 3}))]
    whole, some, operations, *reasons = Walk(shares, 2).results()
    assert (round(whole.median), round(some.median), operations.median) == (33, 67, 40.0)
    assert [(r.name, r.median) for r in reasons] == [("not native: b", 4), ("not native: a", 2)]
    assert total(shares).operations == 10


def test_reasons_lose_the_names_of_a_graph() -> None:
    assert native_coverage._general("'while/x' (Recv), made at a/b.py:7 in f may block") == "'...' (Recv) may block"


@pytest.mark.system
def test_recorded_programs_are_walked_over() -> None:
    replay = native_coverage._replay()
    corpus = replay.Corpus(str(native_coverage.CORPUS))
    compile_ = native_coverage.LocalTarget.compile
    walk = native_coverage.walked(replay, corpus, ["aggregate_ops/0000"])
    assert walk.programs == 1
    assert total(walk.steps).operations > 0
    assert native_coverage.LocalTarget.compile is compile_
