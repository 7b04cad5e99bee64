"""The benchmarks run and give figures that make sense. How fast anything is is not tested."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import building, graphs, interpreter, startup
from benchmarks.measure import Result, table


@pytest.mark.parametrize(
    "run",
    [
        lambda: interpreter.overhead(trips=20, chain=10, repeats=2),
        lambda: interpreter.small_runs(batch=2, repeats=2),
        lambda: interpreter.long_chain(n=10, repeats=2),
        lambda: interpreter.long_loop(trips=50, watched_trips=20),
        lambda: interpreter.many_runs(runs=20, points=2),
        lambda: startup.imports(repeats=1),
        lambda: building.building(ops=40, repeats=2),
    ],
)
def test_each_benchmark_runs(run: Callable[[], list[Result]]) -> None:
    results = run()
    assert results
    for r in results:
        assert len(r.values) > 0
        assert all(math.isfinite(v) for v in r.values)
    assert len(table(results).splitlines()) == len(results) + 2


def test_every_benchmark_is_listed() -> None:
    assert set(program.BENCHMARKS) == {
        "overhead", "small_runs", "long_chain", "long_loop", "many_runs", "imports", "building",
    }  # fmt: skip


def test_a_loop_opens_no_more_iterations_than_allowed() -> None:
    assert 1 <= interpreter._most_open(30) <= 10


def test_plain_kernels_are_those_of_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline of the overhead calls just what the interpreter calls, with the values it has there."""
    calls: list = []
    compile_step = interpreter.compile_step

    def watched(*args: object) -> object:
        step = compile_step(*args)
        for node in step.plan.nodes:
            if node.kernel is not None:
                node.kernel = _noting(node.op.type, node.kernel, calls)
        return step

    monkeypatch.setattr(interpreter, "compile_step", watched)
    graph, out = graphs.counting_loop(8)
    interpreter.plain_kernels(graph, out)(1)
    assert sorted(t for t, *_ in calls) == ["AddV2", "Const", "Identity", "Less", "LoopCond"]
    (i,) = [args[0] for t, *args in calls if t == "Identity"]
    assert [args for t, *args in calls if t == "AddV2"] == [[i, 1]]
    assert [args for t, *args in calls if t == "Less"] == [[i, 8]]


def _noting(name: str, kernel: Callable[..., object], calls: list) -> Callable[..., object]:
    def noting(*args: object) -> object:
        calls.append((name, *args))
        return kernel(*args)

    return noting


def test_the_table_and_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    results = [Result("one", "µs", [3.0, 1.0, 2.0], "beside two"), Result("count", "records", [12345])]
    monkeypatch.setattr(program, "BENCHMARKS", {"it": lambda: results})
    file = tmp_path / "results.json"
    assert program.main(["--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "| one | 2 | 1 to 3 | µs | beside two |" in out
    assert "| count | 12345 |  | records |  |" in out
    assert f"numpy {np.__version__}" in out
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["results"][0]["median"] == 2.0
    assert data["results"][0]["values"] == [3.0, 1.0, 2.0]
