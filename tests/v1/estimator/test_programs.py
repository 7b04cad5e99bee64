"""Programs in the style of TensorFlow 1's Estimator tutorials, unchanged but for their import."""

from __future__ import annotations

import contextlib
import runpy
import sys
from pathlib import Path

import pytest

import headrace.v1 as tf
from tests.v1.programs.estimators import PROGRAMS, expected, source

pytestmark = [pytest.mark.system, pytest.mark.one_engine]  # they train models


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_its_facts(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / f"{name}.py"
    program.write_text(source(name), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [str(program)])
    verbosity = tf.logging.get_verbosity()
    tf.reset_default_graph()
    try:
        with contextlib.suppress(SystemExit):  # of tf.app.run
            runpy.run_path(str(program), run_name="__main__")
    finally:
        tf.logging.set_verbosity(verbosity)
        tf.reset_default_graph()
    assert capfd.readouterr().out == expected(name)


def test_there_are_four() -> None:
    assert len(PROGRAMS) == 4
