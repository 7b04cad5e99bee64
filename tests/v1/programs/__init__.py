"""Programs for TensorFlow 1, and what they print: `NAME.py`, `NAME.txt`.

Those of the folder `models` are in the style of tutorials and of the model zoo: they train, so their numbers are
compared up to rounding (`difference`). The output of the others is TensorFlow's to the last character.
"""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = sorted(p.stem for p in HERE.glob("*.py") if p.stem != "__init__")
MODELS = sorted(f"models/{p.stem}" for p in HERE.glob("models/*.py") if p.stem != "__init__")
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


#: Greatest difference of two numbers of trained models, relative to numbers greater than one. Products and sums have
#: another order of rounding in each library and on each processor.
TOLERANCE = 1e-3
_NUMBER = re.compile(r"-?\d+\.\d*(?:e[+-]?\d+)?|\bnan\b|-?\binf\b")


def difference(found: str, wanted: str) -> str | None:
    """Returns the first difference of two outputs, or None.

    Numbers with a decimal point may differ by `TOLERANCE`.
    """
    ours, theirs = found.splitlines(), wanted.splitlines()
    for line, other in zip(ours, theirs):
        if _words(line) != _words(other) or not all(map(_close, _NUMBER.findall(line), _NUMBER.findall(other))):
            return f"{line!r} instead of {other!r}"
    return None if len(ours) == len(theirs) else f"{len(ours)} lines instead of {len(theirs)}"


def _words(line: str) -> str:
    """The text of a line without numbers and without spaces, by which numpy aligns numbers."""
    return re.sub(r"\s+", "", _NUMBER.sub("#", line))


def _close(a: str, b: str) -> bool:
    return a == b or abs(float(a) - float(b)) <= TOLERANCE * max(1.0, abs(float(b)))
