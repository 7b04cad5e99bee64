"""HEADRACE_DUMP: each stage of a step as a file.

The graphs are text that can be read back.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace import flags
from headrace.compiled_step import Request
from headrace.errors import GraphError, InvalidArgumentError
from headrace.ir.graph import Graph, Tensor
from headrace.ir.text import from_text, to_text
from headrace.ir.text.dumps import Dumps
from headrace.programs import Programs
from headrace.target import LocalTarget

INT = hr.TensorSpec((), hr.int32)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The folder of the dumps; it does not exist yet."""
    out = tmp_path / "the dumps" / "of a test"
    with flags.override(DUMP=str(out)):
        yield out


def stages(folder: Path, step: int = 1) -> list[str]:
    """The names of a step's files, whose numbers must be those of their order."""
    files = sorted(p.name for p in (folder / f"step-{step}").iterdir())
    assert [f[:3] for f in files] == [f"{i:02d}-" for i in range(1, len(files) + 1)]
    return [f[3:] for f in files]


def text(folder: Path, stage: str, step: int = 1) -> str:
    """The content of the one file of `stage`."""
    (path,) = (folder / f"step-{step}").glob(f"??-{stage}")
    return path.read_text()


def check_texts(folder: Path) -> int:
    """Every graph can be read, and gives the same text then; how many there are."""
    paths = [p for p in folder.glob("step-*/*.txt") if not p.name.endswith("not-compiled.txt")]
    for path in paths:
        written = path.read_text()
        assert to_text(from_text(written)) == written, path
    return len(paths)


def a_loop(x: Tensor) -> Tensor:
    return hr.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, hr.tanh(v) * (x * 1.0)), [0, x])[1]


def test_a_compiled_step(folder: Path) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], name="x")
        y = hr.cond(hr.constant(True), lambda: a_loop(x), lambda: x)
        y = y + 0.0 * hr.constant(3.0)
    with hr.Session(graph=g, engine="compiled") as s:
        told = s.explain(y, [x])
    first, *passes, last = stages(folder)
    assert (first, last) == ("pruned.txt", "source.py")
    assert tuple(dict.fromkeys(p.removesuffix(".txt") for p in passes)) == told.passes
    assert {"fold.txt", "branches.txt"} <= set(passes)
    assert text(folder, "source.py") == told.source
    assert check_texts(folder) == len(passes) + 1
    # the files before and after a pass differ by its effect
    assert "cond = StatelessIf[" in text(folder, "pruned.txt")
    branches, *_ = sorted((folder / "step-1").glob("*-branches.txt"))
    assert "StatelessIf[" not in branches.read_text()


def test_a_recovered_graph(folder: Path) -> None:
    g = from_text("""
        p = Placeholder[dtype=bool, shape=[]]
        x = Placeholder[dtype=float32, shape=[]]
        s = Switch(x, p)
        a = Neg(s:1)
        m = Merge(a, s:0)
    """)
    with hr.Session(graph=g, engine="compiled") as s:
        assert s.run("m:0", {"p:0": True, "x:0": 1.0}) == -1.0
    assert stages(folder)[:2] == ["pruned.txt", "recovered.txt"]
    assert " = Switch" in text(folder, "pruned.txt")
    assert "If[" in text(folder, "recovered.txt")
    assert check_texts(folder) >= 2


def test_a_step_that_waits(folder: Path) -> None:
    with hr.Graph() as g:
        q = hr.FIFOQueue(3, [hr.float32], shapes=[[]])
        x = q.dequeue(name="taken")
        y = hr.cond(x > 0.0, lambda: hr.sin(hr.square(hr.negative(x))), lambda: q.dequeue())
    with hr.Session(graph=g) as s:
        s.run(q.enqueue(2.0))
        s.run(y)
    assert stages(folder, 1) == ["pruned.txt", "not-compiled.txt", "effects.txt"]
    assert stages(folder, 2) == ["pruned.txt", "not-compiled.txt", "effects.txt", "lowered.txt", "fused_regions.py"]
    assert text(folder, "not-compiled.txt", 2).startswith("# 'taken' (QueueDequeueV2)")
    assert " = Merge" in text(folder, "lowered.txt", 2)
    compile(text(folder, "fused_regions.py", 2), "fused_regions.py", "exec")
    assert check_texts(folder) == 5


@pytest.mark.usefixtures("python_target")
def test_a_step_that_waits_with_a_loop_in_a_fused_region(folder: Path) -> None:
    with hr.Graph() as g:
        q = hr.FIFOQueue(3, [hr.float32], shapes=[[]])
        y = hr.while_loop(lambda x: x < 100.0, lambda x: x * x, [q.dequeue()])[0]
    with hr.Session(graph=g) as s:
        s.run(q.enqueue(2.0))
        s.run(y)
    assert len(list(folder.iterdir())) == 2
    assert stages(folder, 2) == ["pruned.txt", "not-compiled.txt", "effects.txt", "lowered.txt", "fused_regions.py"]
    assert "While[" in text(folder, "lowered.txt", 2)
    assert "for " in text(folder, "fused_regions.py", 2)
    assert check_texts(folder) == 5


def test_an_interpreted_step_with_a_recursive_function(folder: Path) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.int32, [], name="x")
        f = hr.Function(lambda n: hr.cond(n < 1, lambda: n, lambda: f(n - 1) + n), [INT], INT, name="sum/../up")
        y = f(x)
    with hr.Session(graph=g, engine="interpret") as s:
        assert s.run(y, {x: 4}) == 10
    assert stages(folder) == ["pruned.txt", "lowered.txt", "lowered-sum-..-up.txt"]


@pytest.mark.matrix
def test_a_gradient_and_what_has_effects(folder: Path) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [2], name="x")
        v = hr.Variable([1.0, 2.0], name="v")
        y = a_loop(x * v)
        (dx,) = hr.gradients(y, x)
        (ddx,) = hr.gradients(dx, x)
        done = v.assign(dx)
    with hr.Session(graph=g, engine="compiled") as s:
        s.run(v.initializer)
        s.run([ddx, done], {x: [1.0, 2.0]})
    assert check_texts(folder) > 10


def test_steps_of_threads_and_sessions_keep_apart(folder: Path) -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [], name="x")
        ys = [x * float(i) for i in range(8)]

    def work(y: Tensor) -> None:
        with hr.Session(graph=g) as s:
            s.run(y, {x: 1.0})

    threads = [threading.Thread(target=work, args=(y,)) for y in ys]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert {p.name for p in folder.iterdir()} == {f"step-{k}" for k in range(1, 9)}
    pruned = [text(folder, "pruned.txt", k) for k in range(1, 9)]
    assert len(set(pruned)) == 8
    assert all(stages(folder, k)[0] == "pruned.txt" and stages(folder, k)[-1] == "source.py" for k in range(1, 9))


def test_a_folder_of_another_run_is_left_alone(folder: Path) -> None:
    for k in (1, 3):
        (folder / f"step-{k}").mkdir(parents=True)
    for _ in range(2):
        dumps = Dumps()
        assert dumps.is_empty
        dumps.text("a.txt", "x")
        assert not dumps.is_empty
    assert [sorted(p.name for p in (folder / f"step-{k}").iterdir()) for k in (1, 3, 4, 5)] == [
        [],
        [],
        ["01-a.txt"],
        ["01-a.txt"],
    ]


def test_nothing_is_written_when_the_flag_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with hr.Graph() as g:
        y = hr.constant(1.0) + 1.0
    with hr.Session(graph=g) as s:
        s.run(y)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_a_folder_that_cannot_be_written_is_an_error_that_names_the_flag(tmp_path: Path, engine: str) -> None:
    (tmp_path / "file").write_text("")
    with hr.Graph() as g:
        y = hr.constant(1.0) + 1.0
    with (
        flags.override(DUMP=str(tmp_path / "file" / "x")),
        hr.Session(graph=g, engine=engine) as s,
        pytest.raises(
            InvalidArgumentError, match=r"HEADRACE_DUMP='.*file/x': cannot write '.*file.*': Not a directory"
        ),
    ):
        s.run(y)


def test_a_graph_without_a_text_is_an_error_that_names_the_flag(folder: Path) -> None:
    graph: Any = Graph()
    op = graph.add_op("Const", "c", (), {"value": from_text("x = NoOp"), "dtype": hr.float32})
    with pytest.raises(GraphError) as e:
        Dumps().graph("pruned", op.graph)
    assert any("HEADRACE_DUMP" in note for note in e.value.__notes__)


def test_the_flag_is_read_when_a_step_is_made(folder: Path) -> None:
    with hr.Graph():
        y = hr.constant(1.0) + 1.0
    step = Programs(Request([], [y], [], "auto"), LocalTarget()).general
    with flags.override(DUMP=""):
        assert step.compiled is not None
    assert stages(folder)[0] == "pruned.txt"
