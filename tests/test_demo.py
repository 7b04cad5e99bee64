"""`examples/demo.py` runs where no TensorFlow is, from any folder, and says that all is well only if it is."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "demo.py"
WRITTEN = ROOT / "examples" / "control_flow.py"
GRADIENTS = ROOT / "examples" / "gradients.py"
DEVICES = ROOT / "examples" / "devices.py"


def load_demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def output_of(example: Path, folder: Path) -> str:
    """What an example prints, run in `folder`; it must end well."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, str(example)], cwd=folder, env=env, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_programs_written_with_headrace_agree_with_python(tmp_path: Path) -> None:
    shown = output_of(WRITTEN, tmp_path)
    assert shown.count("as in Python") == 10
    assert "NOT" not in shown
    assert "All results are Python's." in shown
    assert max(map(len, shown.splitlines())) <= 120


def test_the_gradients_of_the_example_are_right(tmp_path: Path) -> None:
    shown = output_of(GRADIENTS, tmp_path)
    assert shown.count(" right\n") == 6
    assert "WRONG" not in shown
    assert "256           1024          3584          10752" in shown  # x**8 at 2, and three derivatives
    assert max(map(len, shown.splitlines())) <= 120


def test_the_example_on_several_devices_is_right(tmp_path: Path) -> None:
    shown = output_of(DEVICES, tmp_path)
    assert shown.count("the same as on one device") == 2
    assert "[ 1.  -2.   0.5], as they were" in shown
    assert "1 tokens from /job:worker/replica:0/task:0" in shown
    assert "All results are right." in shown


def test_demo_runs_and_agrees_with_tensorflow(tmp_path: Path) -> None:
    shown = output_of(DEMO, tmp_path)
    assert shown.count("the same as TensorFlow's") == 4
    assert "All results are TensorFlow's." in shown
    assert "[ 4.,  8., 12., 16., 20., 24.]" in shown
    assert len(shown.splitlines()) <= 40  # one screen
    assert max(map(len, shown.replace(str(tmp_path), "here").splitlines())) <= 120
    events = json.loads((tmp_path / "demo_trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X"}
    assert sum(e["ph"] == "X" for e in events) > 500


def test_demo_fails_where_a_result_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    demo = load_demo()
    load_replay = demo.load_replay

    def falsified() -> ModuleType:
        replay = load_replay()
        load = replay.Corpus.load

        def changed(self: object, program: str) -> dict:
            recorded = load(self, program)
            recorded["data"] = {key: value + 1 for key, value in recorded["data"].items()}
            return recorded

        replay.Corpus.load = changed
        return replay

    monkeypatch.setattr(demo, "load_replay", falsified)
    monkeypatch.setattr(demo, "PROGRAMS", demo.PROGRAMS[1:2])
    assert demo.main() == 1
    out = capsys.readouterr().out
    assert "DIFFERS from" in out
    assert "2 results differ" in out
