"""Programs in the style of TensorFlow 1's tutorials with `tf.contrib`, unchanged but for their imports."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import headrace.v1 as tf
from tests.v1.programs.contrib import PROGRAMS, expected, source

pytestmark = pytest.mark.system  # they train models


@pytest.mark.rotated(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_its_facts(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / f"{name}.py"
    program.write_text(source(name), encoding="utf-8")
    tf.reset_default_graph()
    runpy.run_path(str(program), run_name="__main__")
    assert capfd.readouterr().out == expected(name)
    tf.reset_default_graph()


def test_there_are_ten() -> None:
    assert len(PROGRAMS) == 10
