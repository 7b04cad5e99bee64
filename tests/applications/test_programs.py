"""Short runs of the applications; two runs with one seed are equal bit by bit.

The figures of full runs are in docs/applications.md.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.applications import page, records

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]

#: Program -> options of a short run.
SHORT = {
    "dqn": ["--steps", "600"],
    "experts": ["--steps", "20"],
    "translation": ["--steps", "2"],
    "language_model": ["--steps", "1"],
    "lstm_devices": ["--steps", "2"],
    "swapping": ["--steps", "2"],
    "tree_lstm": ["--steps", "10"],
    "neural_ode": ["--steps", "10"],
    "memory": ["--steps", "10"],
    "learned_optimizer": ["--steps", "10"],
    "meta_learning": ["--steps", "10"],
    "hidden_markov": ["--steps", "10"],
    "autoencoder": ["--steps", "10"],
    "adversarial": ["--steps", "10"],
    "digits_cluster": ["--steps", "40", "--without-ray"],
}


def recorded(name: str, path: Path) -> records.Record:
    """The record of a short run."""
    command = [sys.executable, "-m", f"examples.applications.{name}", *SHORT[name], "--record", str(path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=path.parent, env=env, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return records.read(path)


def test_each_program_has_a_short_run() -> None:
    assert SHORT.keys() == page.PROGRAMS.keys()


@pytest.mark.rotated(2)
@pytest.mark.timeout(600)  # steps over several devices and workers take 15 s to compile on two free cores
@pytest.mark.parametrize("name", SHORT)
def test_two_runs_are_equal(name: str, tmp_path: Path) -> None:
    first, second = (recorded(name, tmp_path / f"{k}.json") for k in range(2))
    assert first.figures
    assert first.untimed() == second.untimed()


def test_programs_have_under_200_lines() -> None:
    for name in page.PROGRAMS:
        assert len((page.HERE / f"{name}.py").read_text(encoding="utf-8").splitlines()) < 200, name
