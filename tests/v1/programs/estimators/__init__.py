"""Programs in the style of TensorFlow 1's Estimator tutorials, and their output.

TensorFlow 2.21 has no `tf.estimator`, so the output is not recorded from it: the programs print facts, such as whether
a model has learned its data, that hold for every right implementation.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = sorted(p.stem for p in HERE.glob("*.py") if p.stem != "__init__")
IMPORT = "import tensorflow as tf"


def source(name: str) -> str:
    """A program's text, with an import of headrace in the place of TensorFlow's."""
    text = (HERE / f"{name}.py").read_text(encoding="utf-8")
    assert text.count(f"{IMPORT}\n") == 1, f"{name}.py must have the line {IMPORT!r} once"
    return text.replace(IMPORT, "import headrace.v1 as tf")


def expected(name: str) -> str:
    """Output of a program."""
    return (HERE / f"{name}.txt").read_text(encoding="utf-8")
