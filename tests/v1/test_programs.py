"""Programs for TensorFlow 1, unchanged but for the import, against what they print with TensorFlow.

`tests/conformance/test_v1_programs.py` checks that the recorded output is TensorFlow's.
"""

from __future__ import annotations

import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

import headrace.v1 as tf
from tests.v1.programs import MODELS, PROGRAMS, difference, expected, printed, source
from tests.v1.programs_page import PAGE, page


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Runs a program with headrace and returns its output."""

    def output(name: str) -> str:
        program = tmp_path / f"{Path(name).name}.py"
        program.write_text(source(name, "import headrace.v1 as tf"), encoding="utf-8")
        monkeypatch.setattr(sys, "argv", [str(program)])
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        tf.reset_default_graph()
        logger = tf.get_logger()
        level, handlers = logger.level, list(logger.handlers)
        try:
            runpy.run_path(str(program), run_name="__main__")
        finally:  # the program may have called `disable_v2_behavior`
            tf.disable_resource_variables()
            tf.enable_control_flow_v2()
            tf.reset_default_graph()
            logger.setLevel(level)
            logger.handlers[:] = handlers
        return printed(*capfd.readouterr())

    return output


@pytest.mark.parametrize("name", PROGRAMS)
def test_prints_what_tensorflow_does(name: str, run: Callable[[str], str]) -> None:
    assert run(name) == expected(name)


@pytest.mark.system  # they train models
@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_tensorflows_losses(name: str, run: Callable[[str], str]) -> None:
    assert difference(run(name), expected(name)) is None


def test_outputs_differ_in_text_numbers_and_lines() -> None:
    assert difference("loss 0.5000 [ 1. -2.]\n", "loss 0.5004 [1.0001 -2.0]\n") is None
    assert difference("loss 0.5 step 3", "loss 0.502 step 3") == "'loss 0.5 step 3' instead of 'loss 0.502 step 3'"
    assert difference("loss 0.5 step 3", "loss 0.5 step 4") is not None
    assert difference("loss nan", "loss 0.5") is not None
    assert difference("a\n", "a\nb\n") == "1 lines instead of 2"


def test_the_page_of_programs_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.v1.programs_page"


def test_there_are_eighteen_and_seventy_two_models() -> None:
    assert (len(PROGRAMS), len(MODELS)) == (18, 72)
