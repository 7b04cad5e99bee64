"""The benchmarks run and give plausible figures.

Speed is not tested.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from benchmarks import __main__ as program
from benchmarks import (
    accelerators,
    building,
    cluster,
    datasets,
    devices,
    eager_ops,
    gradient_memory,
    gradient_size,
    gradients,
    graphs,
    growth,
    interpreter,
    jitted,
    loading,
    native_coverage,
    per_example,
    placement,
    programs,
    recording,
    recording_page,
    routes,
    serving,
    startup,
    swap,
    watching,
)
from benchmarks import differentiation_compared as compared
from benchmarks.measure import Result, table
from benchmarks.programs import training
from tests.view import browser as browsers

pytestmark = pytest.mark.system


ON_ACCELERATORS = accelerators.Sizes((2,), 3, 4, training.digits_vgg(4, (2, 3), 6), swap.Lstm(32, 64, 40))


@pytest.mark.parametrize(
    "run",
    [
        lambda: interpreter.overhead(trips=20, chain=10, repeats=2),
        lambda: interpreter.small_runs(batch=2, repeats=2),
        lambda: interpreter.long_chain(n=10, repeats=2),
        lambda: interpreter.long_loop(trips=50, watched_trips=20),
        lambda: interpreter.many_runs(runs=20, points=2),
        lambda: startup.imports(repeats=1),
        lambda: eager_ops.eager_ops(repeats=1, others=()),
        lambda: jitted.jitted(repeats=1, others=(), calls=2),
        lambda: building.building(ops=40, repeats=2),
        lambda: growth.writes(n=20, repeats=1),
        lambda: growth.first_results(n=40, repeats=1),
        lambda: growth.nested_gradients(n=12, repeats=1),
        lambda: growth.cached_steps(runs=3),
        lambda: gradient_size.gradient_size(orders=2, trips=2),
        lambda: gradient_size.third_derivative(repeats=1),
        lambda: gradient_memory.gradient_memory(trips=5, calls=1),
        lambda: gradient_memory.recomputation(lengths=(20,), repeats=1),
        lambda: per_example.per_example(repeats=1),
        lambda: swap.swap(repeats=1, size=swap.Lstm(32, 64, 40)),
        lambda: loading.loading(megabytes=2, repeats=1),
        lambda: datasets.datasets(repeats=2),
        lambda: devices.devices(repeats=1, sizes=devices.Sizes(64, 3, 20, 2)),
        pytest.param(
            lambda: accelerators.accelerators(2, 3, 1, 4, ON_ACCELERATORS, ("TORCH",)),
            marks=pytest.mark.skipif(bool(accelerators.MISSING), reason=accelerators.MISSING or "-"),
        ),
        lambda: placement.placement(graphs=2),
        pytest.param(
            lambda: recording_page.recording_page(rounds=1, frames=3, name="nested"),
            marks=pytest.mark.skipif(bool(browsers.missing()), reason=browsers.missing() or "-"),
        ),
        lambda: recording.recording(trips=5, repeats=2),
        lambda: routes.routes(repeats=1, trips=3, size=4),
        lambda: native_coverage.native_coverage(sample=2),
        lambda: watching.watching(trips=20, repeats=1),
        # 19 processes, which take turns on a busy machine
        pytest.param(
            lambda: cluster.cluster(rounds=1, sizes=cluster.SMALL, contenders=["headrace"]),
            marks=pytest.mark.timeout(400),
        ),
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
        "accelerators",
        "overhead", "small_runs", "long_chain", "long_loop", "many_runs", "imports", "building", "writes",
        "first_results", "cached_steps", "gradients", "answers", "gradient_size", "per_example", "loading",
        "third_derivative", "gradient_memory", "nested_gradients", "recomputation", "swap", "datasets", "devices",
        "placement",
        "routes", "cluster", "eager_ops", "jitted", "native", "native_coverage", "recording",
        "recording_page", "watching",
    }  # fmt: skip


@pytest.fixture
def only_headrace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other systems, which take long to load, are as if they were not installed."""
    for system in (gradients.TensorFlow, gradients.Jax, gradients.PyTorch):
        monkeypatch.setattr(system, "package", "a_package_that_nobody_has")


SMALL = (
    programs.power(3), programs.rnn(2, 3, 4), programs.lstm(2, 3, 4), programs.branches(5), programs.nested(2, 3),
)  # fmt: skip


@pytest.mark.usefixtures("only_headrace")
def test_gradients_run_with_headrace_alone(capsys: pytest.CaptureFixture[str]) -> None:
    results = gradients.gradients(SMALL, repeats=1)
    assert len(results) == 3 * len(SMALL)
    assert all(r.values[0] > 0 for r in results)
    said = capsys.readouterr().err
    assert [line.split()[0] for line in said.splitlines() if "not installed" in line] == [
        "TensorFlow:",
        "JAX:",
        "PyTorch:",
    ]


@pytest.mark.parametrize("program", SMALL, ids=lambda p: p.function)
def test_the_programs_gradients_are_those_of_differences(program: programs.Program) -> None:
    (loss,) = gradients.Headrace().prepare(program)[0]()
    value, *grads = gradients.Headrace().prepare(program)[1]()
    assert value == loss
    for name, grad in zip(program.by, grads, strict=True):
        step = np.float32(1e-2)
        random = np.random.default_rng(3)
        direction = random.standard_normal(np.shape(grad)).astype(np.float32)
        values = []
        for sign in (1, -1):
            moved = program.arguments[name] + sign * step * direction
            there = dataclasses.replace(program, arguments={**program.arguments, name: np.float32(moved)})
            values.append(float(gradients.Headrace().prepare(there)[0]()[0]))
        assert float(np.sum(grad * direction)) == pytest.approx(
            (values[0] - values[1]) / (2 * step), rel=2e-2, abs=2e-3
        )


def test_systems_that_differ_give_no_figures() -> None:
    program = programs.power(3)
    assert gradients.compare(program, ["a", "b"], [[8.0, 12.0], [8.0, 12.0]]) == 0
    with pytest.raises(ArithmeticError, match=r"gradient by x differs by 0\.67 between a and b"):
        gradients.compare(program, ["a", "b"], [[8.0, 12.0], [8.0, 4.0]])
    with pytest.raises(ArithmeticError, match="value has shape"):
        gradients.compare(program, ["a", "b"], [[np.ones(2), 12.0], [8.0, 12.0]])
    with pytest.raises(ArithmeticError, match="differs by nan"):
        gradients.compare(program, ["a", "b"], [[8.0, 12.0], [8.0, np.nan]])


@pytest.mark.usefixtures("only_headrace")
def test_headrace_answers_right() -> None:
    (result,) = gradients.answers()
    assert result.values == [12.0]
    assert result.facts == "f' = 12, f'' = 12: right"


def test_others_are_shown_with_ratios() -> None:
    r = Result("it", "µs", [2.0, 4.0, 6.0], "a fact", {"other": [1.0, 1.0, 2.0]})
    assert "| it | 4 | 2 to 6 | µs | a fact; other 1 (ratio 3) |" in table([r])
    assert "| none |" in table([Result("refused", "", [math.nan])])


def test_what_is_counted_of_a_loop() -> None:
    kept = gradient_memory.kept_bytes(programs.rnn(2, 3, 4))
    assert kept == 4 * 2 * 3 * 4  # h of each of the iterations
    assert gradient_memory.kept_bytes(programs.lstm(2, 5, 3)) == 5 * 7 * 2 * 3 * 4


def test_four_ways_to_one_derivative() -> None:
    cost = compared.cost(sizes=[(1, 2), (2, 1)], state=3, trips=4, repeats=1)
    rows = [[c.strip() for c in line.strip("|").split("|")] for line in cost.splitlines()[2:]]
    assert len(rows) == 10
    for row in rows:
        assert float(row[-1]) < (1e-5 if row[2].startswith("numeric") else 1e-12), row
    swell = compared.swell(most=4).splitlines()[2:]
    sizes = [[float(c) for c in line.strip("|").split("|")] for line in swell]
    formula, loop, error = ([row[k] for row in sizes] for k in (2, -2, -1))
    assert formula[-1] > 2.4 * formula[-2]  # formulas swell,
    assert len(set(loop)) == 1  # loops do not,
    assert max(error) < 1e-12  # and both are the derivative


def test_a_loop_opens_no_more_iterations_than_allowed() -> None:
    assert 1 <= interpreter._most_open(30) <= 10


def test_plain_kernels_are_those_of_an_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    """The baseline of the overhead calls the kernels that the interpreter calls.

    The values are those that the interpreter passes to them.
    """
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


def test_served_models_answer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--seconds", "0.2", "--connections", "2", "--batches", "8", "--systems", "headrace", "server alone"]
    assert serving.main([*arguments, "--models", "rnn"]) == 0
    rows = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()[4:]]
    assert [row[:3] for row in rows] == [["rnn", "8", "headrace"], ["rnn", "8", "server alone"]]
    for row in rows:
        requests, p50, p99, lost = row[3:7]
        assert float(requests.replace(",", "")) > 0
        assert 0 < float(p50) <= float(p99)
        assert lost == "0"
