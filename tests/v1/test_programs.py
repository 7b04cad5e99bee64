"""Programs for TensorFlow 1, unchanged but for the import, against what they print with TensorFlow.

`tests/conformance/test_v1_programs.py` checks that the recorded output is TensorFlow's.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

import headrace.v1 as tf
from tests.v1.programs import PROGRAMS, expected, printed, source


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_what_tensorflow_does(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / f"{name}.py"
    program.write_text(source(name, "import headrace.v1 as tf"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", [str(program)])
    tf.reset_default_graph()
    try:
        runpy.run_path(str(program), run_name="__main__")
    finally:
        tf.enable_resource_variables()
        tf.enable_control_flow_v2()
    out, err = capfd.readouterr()
    assert printed(out, err) == expected(name)
    tf.reset_default_graph()


def test_there_are_eighteen() -> None:
    assert len(PROGRAMS) == 18
