"""Writes the files in `golden/` again: `python -m tests.compile.golden`.

Read the difference before committing it.
"""

from tests.compile.test_source import GOLDEN, PROGRAMS, text

if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for make in PROGRAMS:
        (GOLDEN / f"{make.__name__}.txt").write_text(text(make), encoding="utf-8")
