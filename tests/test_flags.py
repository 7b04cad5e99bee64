"""Flags: the documented table, overrides and bad values.

The table is the real one, overrides end, and bad values are refused by name.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from headrace import flags

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs" / "reference" / "flags.md"


def test_the_documented_table_is_generated():
    assert flags.describe() in DOCS.read_text()


def test_an_override_ends_with_its_block():
    before = flags.WAIT_LIMIT.value
    with flags.override(WAIT_LIMIT=1.5):
        assert flags.WAIT_LIMIT.value == 1.5
    assert flags.WAIT_LIMIT.value == before


def test_an_override_ends_when_the_block_fails():
    before = flags.VERIFY.value
    with pytest.raises(RuntimeError), flags.override(VERIFY=0):
        raise RuntimeError
    assert flags.VERIFY.value == before


def test_an_unknown_flag_is_refused_with_the_known_ones():
    with pytest.raises(KeyError, match="VERIFY"), flags.override(VERIFI=1):
        pass


@pytest.mark.system
def test_a_bad_value_in_the_environment_is_refused_by_name():
    code = "import os; os.environ['HEADRACE_VERIFY'] = 'much'; import headrace.flags"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert got.returncode != 0
    assert "HEADRACE_VERIFY='much'" in got.stderr


@pytest.mark.system
def test_no_other_module_reads_the_environment():
    package = ROOT / "headrace"
    readers = [p.name for p in package.rglob("*.py") if re.search(r"os\.environ|\bgetenv", p.read_text())]
    assert readers == ["flags.py"]


def _fresh(code: str) -> str:
    """Standard error of a new process that runs `code`."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False).stderr


@pytest.mark.system
def test_passes_that_do_not_exist_are_refused_before_anything_runs():
    """The value of the flag is checked before the first session imports the passes."""
    assert "no pass 'nosuch'" in _fresh("import os; os.environ['HEADRACE_OPTIMIZE'] = '-nosuch'; import headrace")
    override = "import headrace as hr\nwith hr.flags.override(OPTIMIZE='-nosuch'): print('accepted')"
    assert "no pass 'nosuch'" in _fresh(override)
