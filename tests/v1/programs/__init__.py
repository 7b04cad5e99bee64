"""Programs for TensorFlow 1, and what they print: `NAME.py`, `NAME.txt`."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = sorted(p.stem for p in HERE.glob("*.py") if p.stem != "__init__")
IMPORT = "import tensorflow.compat.v1 as tf"


def source(name: str, instead: str = IMPORT) -> str:
    """A program's text, with another line in the place of the one that imports TensorFlow."""
    text = (HERE / f"{name}.py").read_text(encoding="utf-8")
    assert text.count(IMPORT) == 1, f"{name}.py must have the line {IMPORT!r} once"
    return text.replace(IMPORT, instead)


def printed(out: str, err: str) -> str:
    """Output of a program: its standard output, then the lines of Print ops.

    Print ops write to the standard error ("print: ...").
    """
    return out + "".join(line + "\n" for line in err.splitlines() if line.startswith("print: "))


def expected(name: str) -> str:
    """Output of a program run with TensorFlow."""
    return (HERE / f"{name}.txt").read_text(encoding="utf-8")
