"""Programs of a new user with one mistake each.

The error alone is enough to mend the mistake.

A story is a folder: `mistake.py`, the program; `error.txt`, what Python says when it is run, from the last line of the
traceback on; and `mended.py`, the program changed as that text says. In `error.txt`, `<n>` is any number.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import traceback
from itertools import zip_longest
from pathlib import Path

import pytest

import headrace as hr
from headrace import flags

STORIES = Path(__file__).parent
NAMES = sorted(p.parent.name for p in STORIES.glob("*/mistake.py"))


def said(program: str) -> str:
    """The last error of a run of `program` in the current folder: class, text, notes."""
    with pytest.raises(Exception) as caught:
        runpy.run_path(program, run_name="__main__")
    return "".join(traceback.format_exception_only(caught.value))


def with_numbers_of(got: str, wanted: str) -> str:
    """`wanted` with the numbers of `got` in place of each `<n>`.

    A number is taken from the same word of the same line.
    """
    out = []
    for want, line in zip_longest(wanted.splitlines(True), got.splitlines(True), fillvalue=""):
        words = dict(enumerate(line.split(" ")))
        pairs = ((w, re.search(r"\d+", words.get(i, ""))) for i, w in enumerate(want.split(" ")))
        out.append(" ".join(w.replace("<n>", n[0]) if n else w for w, n in pairs))
    return "".join(out)


def printed(program: str) -> list[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path(program, run_name="__main__")
    return out.getvalue().splitlines()


def test_there_are_enough() -> None:
    assert len(NAMES) >= 10
    assert {p.name for p in STORIES.glob("[a-z]*/") if not p.name.startswith("__")} >= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_mistake_says(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(STORIES / name)
    wanted, got = (STORIES / name / "error.txt").read_text(), said("mistake.py")
    if flags.NATIVE.value == "on" and name == "an_index_past_the_end":  # see docs/reference/native.md "Properties"
        assert "while/strided_slice/stack:0: int32[1] = [4]" in got  # of other inputs dtype and shape alone are known
        wanted, got = (
            "".join(line for line in text.splitlines(keepends=True) if not line.startswith("inputs: "))
            for text in (wanted, got)
        )
    assert with_numbers_of(got, wanted) == got
    assert "mistake.py:" in got
    assert str(Path(hr.__file__).parent) not in got  # the user's lines, never ours


@pytest.mark.parametrize("name", NAMES)
def test_the_mended_program_works(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(STORIES / name)
    text = Path("mended.py").read_text()
    assert printed("mended.py") == re.findall(r"^ *print\(.*\)  +# (.*)$", text, flags=re.M)


def test_only_numbers_may_differ_from_a_story() -> None:
    wanted = "Error: step <n> is late\nin iteration <n>.\n"
    assert (
        with_numbers_of("Error: step 17 is late\nin iteration 3.\n", wanted)
        == "Error: step 17 is late\nin iteration 3.\n"
    )
    for other in (
        "Error: step 17 is late\n",
        "Error: step x is late\nin iteration 3.\n",
        "Error: step 17, 18 is late\n",
    ):
        assert with_numbers_of(other, wanted) != other
