"""The examples run without TensorFlow, from any folder.

An example reports success only if it has succeeded. Examples that train run for a few steps here; the results of a full
run are recorded in docs/learn/examples.md.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).parent.parent
RECORDED = ROOT / "examples" / "recorded.py"
WRITTEN = ROOT / "examples" / "control_flow.py"
GRADIENTS = ROOT / "examples" / "gradients.py"
DEVICES = ROOT / "examples" / "devices.py"
SOLVERS = ROOT / "examples" / "solvers.py"
VGG = ROOT / "examples" / "digits_vgg.py"
PONDER = ROOT / "examples" / "adaptive_computation_time.py"
CHARACTERS = ROOT / "examples" / "char_rnn.py"
TRAINING = ROOT / "examples" / "demo.py"


def load_recorded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recorded", RECORDED)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["recorded"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def output_of(example: Path, folder: Path, *options: str) -> str:
    """Output of an example that runs in `folder`; its exit status must be 0."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, str(example), *options],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
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


def test_the_solvers_are_right(tmp_path: Path) -> None:
    shown = output_of(SOLVERS, tmp_path, "--fit", "10")
    assert shown.count(" right\n") == 7
    assert "steps were kept and" in shown


def test_a_cell_that_ponders_is_right_and_learns(tmp_path: Path) -> None:
    shown = output_of(PONDER, tmp_path, "--steps", "60")
    assert shown.count(" right\n") == 2
    losses = [float(x) for x in re.findall(r"^   step .*: loss ([\d.]+),", shown, flags=re.M)]
    assert len(losses) == 6
    assert losses[-1] < losses[0]


def test_a_convolutional_network_is_trained_saved_and_loaded(tmp_path: Path) -> None:
    shown = output_of(VGG, tmp_path, "--epochs", "2")
    before, after = re.findall(r"(?:held-out|again:) ([\d.]+)%", shown)[-2:]
    assert before == after
    assert float(after) > 60
    assert list(tmp_path.iterdir()) == []


def test_characters_are_learned_and_written(tmp_path: Path) -> None:
    shown = output_of(CHARACTERS, tmp_path, "--steps", "6", "--length", "30")
    bits = float(re.findall(r"([\d.]+) bits a held-out character", shown)[-1])
    assert 3 < bits < 6.5  # 94 characters: 6.55 if nothing is known
    assert len(shown.split("a second\n\n", 1)[1]) == 31


@pytest.mark.one_engine
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills as POSIX does")
def test_training_is_killed_and_goes_on(tmp_path: Path) -> None:
    shown = output_of(TRAINING, tmp_path, "--steps", "60")
    killed_at, saved = map(int, re.findall(r"Killed at step (\d+)\. The last checkpoint is of step (\d+)", shown)[0])
    begun = [int(n) for n in re.findall(r"^from step (\d+)", shown, flags=re.M)]
    assert begun[0] == 0
    assert 30 <= begun[1] == saved < 60
    assert 32 <= killed_at <= 60
    assert float(re.findall(r"([\d.]+)% of 360 held-out", shown)[-1]) > 15
    folder = tmp_path / "demo_run"
    assert (folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "model.ckpt-60.index.json").exists()
    assert len(list(folder.glob("events.*"))) == 2
    assert "rnn/while#5" in (folder / "reading.html").read_text(encoding="utf-8")
    for trace in folder.glob("timeline-*.json"):
        assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    counts = re.findall(r"  (\d+) of (\d+) operations are in (\d+) compiled functions; not\n", shown)[0]
    inside, all_, regions = map(int, counts)
    assert all_ > inside > 90
    assert regions >= 1
    assert "dequeue_top: may block\n" in shown
    whole, behind = re.findall(r"a step takes ([\d.]+) ms with.*\n  ([\d.]+) ms of it .* behind the dequeue", shown)[0]
    assert 0 < float(behind) < float(whole)
    assert "ms in the loop rnn_1/while" in shown
    timed = re.findall(r"^  (\w+) [\d.]+\w*: [\d.]+ ms the shortest step, loss ([\d.]+)$", shown, flags=re.M)
    has_tensorflow = importlib.util.find_spec("tensorflow") is not None
    assert [name for name, _ in timed] == ["headrace", "tensorflow"][: 1 + has_tensorflow]
    assert ("TensorFlow is not installed here" in shown) is not has_tensorflow
    assert all(abs(float(loss) - float(timed[0][1])) < 0.01 for _, loss in timed)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="kills as POSIX does")
def test_the_demo_touches_no_folder_of_others(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    command = [sys.executable, str(TRAINING), "--folder", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode != 0
    assert "name another one" in done.stderr
    assert (tmp_path / "precious").read_text() == "mine"


def test_recorded_programs_agree_with_tensorflow(tmp_path: Path) -> None:
    shown = output_of(RECORDED, tmp_path)
    assert shown.count("the same as TensorFlow's") == 4
    assert "All results are TensorFlow's." in shown
    assert "[ 4.,  8., 12., 16., 20., 24.]" in shown
    assert len(shown.splitlines()) <= 40  # one screen
    assert max(map(len, shown.replace(str(tmp_path), "here").splitlines())) <= 120
    events = json.loads((tmp_path / "recorded_trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X"}
    assert sum(e["ph"] == "X" for e in events) > 500


def test_it_fails_where_a_result_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    recorded = load_recorded()
    load_replay = recorded.load_replay

    def falsified() -> ModuleType:
        replay = load_replay()
        load = replay.Corpus.load

        def changed(self: object, program: str) -> dict:
            recorded = load(self, program)
            recorded["data"] = {key: value + 1 for key, value in recorded["data"].items()}
            return recorded

        replay.Corpus.load = changed
        return replay

    monkeypatch.setattr(recorded, "load_replay", falsified)
    monkeypatch.setattr(recorded, "PROGRAMS", recorded.PROGRAMS[1:2])
    assert recorded.main() == 1
    out = capsys.readouterr().out
    assert "DIFFERS from" in out
    assert "2 results differ" in out
