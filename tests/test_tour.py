"""The programs of docs/tour.md: their length, their output, jitted and eager."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

import headrace as hr

PAGE = Path(__file__).parent.parent / "docs" / "tour.md"
PROGRAMS = re.findall(r"^## (.*?)$.*?^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)


def printed(program: str, folder: Path) -> list[str]:
    """Lines that a program prints when it is run as a file."""
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(str(path), run_name="__main__")
    return out.getvalue().splitlines()


def shown(program: str) -> list[str]:
    """Lines that the comments of a program show; a loop shows each line once."""
    return re.findall(r"^ *print\(.*\)  +# (.*)$", program, flags=re.M)


def test_there_are_five_and_each_has_less_than_40_lines() -> None:
    assert len(PROGRAMS) == 5
    for title, program in PROGRAMS:
        assert len(program.splitlines()) < 40, title
        assert "@hr.jit" in program, title
        assert shown(program), title


@pytest.mark.system
@pytest.mark.parametrize("program", [p for _, p in PROGRAMS], ids=[t for t, _ in PROGRAMS])
@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_a_program(program: str, engine: str, tmp_path: Path) -> None:
    with hr.flags.override(ENGINE=engine):
        assert list(dict.fromkeys(printed(program, tmp_path))) == shown(program)


@pytest.mark.system
@pytest.mark.parametrize("program", [p for _, p in PROGRAMS], ids=[t for t, _ in PROGRAMS])
def test_a_program_run_eagerly(program: str, tmp_path: Path) -> None:
    hr.run_eagerly(True)
    try:
        assert list(dict.fromkeys(printed(program, tmp_path))) == shown(program)
    finally:
        hr.run_eagerly(False)
