"""`hr.report()`: versions, machine, changed flags, failing stage and memos, and nothing private."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags
from headrace.memo import Memo
from headrace.report import LINES, report, stage, without_folders

ROOT = Path(__file__).parent.parent


def failure(do: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:
        do()
    return caught.value


def field(text: str, name: str) -> str:
    found = [line for line in text.splitlines() if line.startswith(name + ": ")]
    assert len(found) == 1, text
    return found[0].removeprefix(name + ": ")


def loop_past_the_end(engine: str, devices: int = 1) -> Exception:
    with hr.Graph() as g:
        values, n = hr.placeholder(hr.float32, (None,)), hr.placeholder(hr.int32, ())
        _, total = hr.while_loop(lambda i, s: i < n, lambda i, s: (i + 1, s + hr.gather(values, i)), [0, 0.0])
        with hr.device(f"/device:CPU:{devices - 1}"):
            total = total + 1.0
    with hr.Session(graph=g, engine=engine, devices={"CPU": devices}) as s:
        return failure(lambda: s.run(total, {values: [1.0, 2.0], n: 5}))


def test_the_machine() -> None:
    text = report()
    lines = text.splitlines()
    assert len(lines) <= LINES
    assert lines[0] == f"headrace {hr.__version__}"
    assert lines[1].startswith(f"Python {sys.version_info.major}.{sys.version_info.minor}.")
    for package in ("numpy", "ml_dtypes", "protobuf", "scipy", "threadpoolctl"):
        assert package in lines[2]
    assert np.__version__ in lines[2]
    assert f"of {os.cpu_count()} cores" in field(text, "platform")
    assert "threads)" in field(text, "BLAS") or "not known" in field(text, "BLAS")
    assert field(text, "flags") == "none changed" or "HEADRACE_" in field(text, "flags")
    assert "CPU" in field(text, "types of devices")


def test_memos_that_were_used() -> None:
    used: Memo[int, int] = Memo("used once", 4)
    several = [Memo[int, int]("two of one name", 8) for _ in range(2)]
    unused: Memo[int, int] = Memo("not used", 4)
    used.get(1)
    for m in several:
        m.put(1, 1)
        m.get(1)
    text = report(ValueError("no"))
    assert field(text, "memo used once") == "0 of 4 entries, 0 hits, 1 misses"
    assert field(text, "memo two of one name") == "2 entries in 2 memos of at most 8, 2 hits, 0 misses"
    assert unused.name not in text
    assert text.index("stage: ") < text.index("memo ")  # the error comes first, if there are many


def test_a_report_that_is_cut_says_so() -> None:
    memos = [Memo[int, int](f"one of many {i:02}", 4) for i in range(LINES)]
    for m in memos:
        m.get(1)
    lines = report().splitlines()
    assert len(lines) == LINES
    left = len(memos) - sum(line.startswith("memo one of many") for line in lines)
    assert int(lines[-1].removeprefix("and ").removesuffix(" more lines")) >= left


@pytest.mark.system
def test_each_memo_of_the_package_has_its_line() -> None:
    pattern = re.compile(r"(?<!def )\b(?:Memo(?:\[.*\])?|cached)\(")
    sources = (ROOT / "headrace").rglob("*.py")
    memos = sum(len(pattern.findall(path.read_text(encoding="utf-8"))) for path in sources)
    assert 20 < memos <= LINES - 14  # 9 lines about the machine, 5 about an error


def test_it_shows_itself() -> None:
    text = hr.report()
    assert isinstance(text, str)
    assert repr(text) == str(text)


def test_only_changed_flags_and_no_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_PASSWORD", "hunter2")
    with flags.override(ENGINE="interpret", DUMP="/home/somebody/secret"):
        text = report()
    assert "HEADRACE_ENGINE=interpret" in field(text, "flags")
    assert "HEADRACE_DUMP=<a folder>" in field(text, "flags")
    assert "HEADRACE_CALL_DEPTH" not in text
    for private in ("secret", "somebody", "hunter2", os.path.expanduser("~")):
        assert private not in text


def test_other_frameworks_are_told_if_they_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    class Guest:
        __version__ = "9.9.9"

    monkeypatch.setitem(sys.modules, "tensorflow", Guest())  # type: ignore[arg-type]
    assert "tensorflow 9.9.9" in field(report(), "in this process")


@pytest.mark.parametrize(("engine", "devices"), [("interpret", 1), ("compiled", 1), ("auto", 1), ("auto", 2)])
def test_a_step_that_fails(engine: str, devices: int) -> None:
    text = report(loop_past_the_end(engine, devices))
    assert len(text.splitlines()) <= LINES
    assert field(text, "error") == "headrace.errors.InvalidArgumentError"
    assert field(text, "says") == "indices = 2 is not in [0, 2)"
    assert field(text, "operation") == "while/GatherV2 (GatherV2)"
    assert field(text, "line").startswith("test_report.py:")
    assert field(text, "stage") == "run"


def build() -> Any:
    with hr.Graph():
        return hr.matmul(hr.ones((2, 3)), hr.ones((2, 3)))


def gradient() -> Any:
    with hr.Graph():
        x = hr.placeholder(hr.float32, ())
        return hr.gradients(hr.prevent_gradient(x, "no"), x)


def session(do: Callable[[hr.Session], Any], **options: Any) -> Any:
    with hr.Graph() as g:
        hr.placeholder(hr.float32, (2,), name="x")
        with hr.device("/device:CPU:7"):
            hr.identity(hr.FIFOQueue(2, [hr.float32], [()], name="q").dequeue(), name="waits")
    with hr.Session(graph=g, **options) as s:
        return do(s)


@pytest.mark.parametrize(
    ("do", "where"),
    [
        (build, "build"),
        (gradient, "build"),
        (lambda: np.reshape([1.0], (2, 2)), "outside headrace"),
        (lambda: hr.gather([1.0], 5), "run"),
        (lambda: session(lambda s: s.run("nope:0")), "feed and fetch"),
        (lambda: session(lambda s: s.run("x:0", {"x:0": [1.0]})), "feed and fetch"),
        (lambda: session(lambda s: s.run("waits:0"), engine="compiled"), "compile"),
        (lambda: session(lambda s: s.run("waits:0"), config={"allow_soft_placement": False}), "place"),
        (lambda: session(lambda s: s.run("x:0")), "run"),
    ],
)
def test_the_stage(do: Callable[[], Any], where: str) -> None:
    error = failure(do)
    assert stage(error) == where
    assert field(report(error), "line").startswith("test_report.py:")


def test_a_pass_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.optimize import pipeline

    def fails(*args: Any) -> Any:
        raise ZeroDivisionError("in a pass")

    monkeypatch.setattr(pipeline, "run", fails)
    with hr.Graph() as g, hr.Session(graph=g, engine="compiled") as s:
        assert stage(failure(lambda: s.run(hr.placeholder_with_default(1.0, ()) + 1.0))) == "optimize"


def test_the_error_that_is_handled_is_told() -> None:
    assert "error: " not in report() or getattr(sys, "last_value", None) is not None
    try:
        build()
    except hr.errors.ShapeError:
        assert field(hr.report(), "error") == "headrace.errors.ShapeError"


def test_the_last_error_of_the_prompt_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", failure(build), raising=False)
    assert field(hr.report(), "stage") == "build"


def test_no_paths(tmp_path: Path) -> None:
    folder = Path(__file__).parent
    assert str(folder) not in report(failure(build))
    text = f"made at {tmp_path}/model.py:12 in f, on /job:localhost/replica:0/task:0/device:CPU:1; 'while/add' is a/b"
    shown = without_folders(text)
    assert shown == "made at model.py:12 in f, on /job:localhost/replica:0/task:0/device:CPU:1; 'while/add' is a/b"


@pytest.mark.system
def test_long_texts_are_cut() -> None:
    text = report(ValueError("x" * 10_000 + "\nsecond line"))
    assert max(map(len, text.splitlines())) <= 300
    assert "second line" not in text
