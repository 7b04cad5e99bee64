"""Flags: their page, their values, overlapping overrides and mistyped names.

The page is generated, values are checked, overlapping overrides end well, and mistyped names are noticed.
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import pytest

import headrace as hr
from headrace import flags
from tests.manners.pages import FLAGS
from tests.manners.running import run

pytestmark = pytest.mark.one_engine

BAD: list[tuple[str, str, Any, str]] = [
    ("VERIFY", "7", 7, "expected 0, 1, 2 or 3"),
    ("VERIFY", "-1", True, "expected 0, 1, 2 or 3"),
    ("VERIFY", "much", "much", "expected 0, 1, 2 or 3"),
    ("VERIFY", "1.5", 1.5, "expected 0, 1, 2 or 3"),
    ("WAIT_LIMIT", "0", 0, "expected a number above 0"),
    ("WAIT_LIMIT", "nan", float("nan"), "expected a number above 0"),
    ("WAIT_LIMIT", "inf", float("inf"), "at most 1e9"),
    ("WAIT_LIMIT", "-3", -3.0, "expected a number above 0"),
    ("ENGINE", "fast", "fast", "expected auto, interpret or compiled"),
    ("CALL_DEPTH", "0", 0, "expected a whole number from 1 to 100000000"),
    ("CALL_DEPTH", "1e3", 1e3, "expected a whole number from 1"),
    ("ACCUMULATOR_LIMIT", "-1", -1, "expected a whole number of bytes, 0 or more"),
    ("ACCUMULATOR_LIMIT", "1GB", "1GB", "expected a whole number of bytes"),
    ("OPTIMIZE", "-folt", "-folt", "there is no pass 'folt'; the passes are"),
    ("OPTIMIZE", "fold", "fold", "'fold' is neither 'on', 'off' nor '-pass'"),
    ("DUMP", "", 3, "expected the path of a folder"),
]


def test_the_page_is_generated() -> None:
    assert FLAGS.read_text(encoding="utf-8") == flags.page(), "run python -m tests.manners.pages"


@pytest.mark.parametrize(("name", "text", "value", "want"), BAD)
def test_values_are_checked(name: str, text: str, value: Any, want: str) -> None:
    before = getattr(flags, name).value
    with pytest.raises(ValueError, match=re.escape(want)) as caught, flags.override(**{name: value}):
        pass
    assert str(caught.value).startswith(f"{name}={value!r} is not valid")
    assert getattr(flags, name).value == before


@pytest.mark.system
def test_bad_values_in_the_environment_are_errors_at_import() -> None:
    program = """
import importlib, os, sys
for line in os.environ.pop("CASES").splitlines():
    name, text, want = line.split("|")
    os.environ["HEADRACE_" + name] = text
    try:
        import headrace
    except ValueError as e:
        assert f"HEADRACE_{name}" in str(e) and repr(text) in str(e) and want in str(e), e
    else:
        raise AssertionError(line)
    del os.environ["HEADRACE_" + name]
    for m in [m for m in sys.modules if m.startswith("headrace") and not m.startswith("headrace.pb")]:
        del sys.modules[m]
import headrace
"""
    cases = "\n".join(f"{name}|{text}|{want}" for name, text, _, want in BAD[::3] if text)
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    assert run(program, env={**env, "CASES": cases}) == (0, "", "")


@pytest.mark.system
def test_an_empty_variable_is_not_set() -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    env |= {f"HEADRACE_{name}": "" for name in flags._FLAGS}
    assert run("import headrace; assert headrace.flags.VERIFY.value == 0", "-W", "error", env=env) == (0, "", "")


@pytest.mark.system
def test_an_unknown_variable_gets_a_warning_at_the_import() -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    status, out, err = run("import os\nimport headrace", env={**env, "HEADRACE_VERIFI": "2", "HEADRACE_TURBO": "1"})
    assert (status, out) == (0, "")
    assert re.search(r"<string>:2: HeadraceWarning: .*HEADRACE_VERIFI is no flag .* mean HEADRACE_VERIFY\?", err)
    assert re.search(r"<string>:2: .*HEADRACE_TURBO is no flag of headrace; there are VERIFY, ", err)


def test_overrides_that_overlap() -> None:
    """In any order of ending, what was before is there again in the end."""
    before = flags.WAIT_LIMIT.value
    a, b = flags.override(WAIT_LIMIT=1.0), flags.override(WAIT_LIMIT=2.0)
    a.__enter__()
    b.__enter__()
    assert flags.WAIT_LIMIT.value == 2.0
    a.__exit__(None, None, None)
    assert flags.WAIT_LIMIT.value == 2.0
    b.__exit__(None, None, None)
    assert flags.WAIT_LIMIT.value == before
    assert flags.WAIT_LIMIT.overrides == []
    a, b = flags.override(WAIT_LIMIT=1.0), flags.override(WAIT_LIMIT=2.0)
    a.__enter__()
    b.__enter__()
    b.__exit__(None, None, None)
    assert flags.WAIT_LIMIT.value == 1.0
    a.__exit__(None, None, None)
    assert flags.WAIT_LIMIT.value == before


def test_overrides_in_many_threads_leave_nothing() -> None:
    before = flags.CALL_DEPTH.value

    def work(i: int) -> None:
        for _ in range(200):
            with flags.override(CALL_DEPTH=i):
                pass

    threads = [threading.Thread(target=work, args=(i,)) for i in range(1, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert flags.CALL_DEPTH.value == before
    assert flags.CALL_DEPTH.overrides == []


def test_other_threads_see_an_override() -> None:
    with flags.override(ENGINE="interpret"):
        seen: list[str] = []
        t = threading.Thread(target=lambda: seen.append(hr.flags.ENGINE.value))
        t.start()
        t.join()
    assert seen == ["interpret"]
