"""Assert, Print, PrintV2 in sessions, and how values look as text.

The texts are those that TensorFlow 2.21 writes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import headrace as hr
from headrace import dtypes
from headrace.errors import InvalidArgumentError, ShapeError
from headrace.ir.opdef import op_registry
from headrace.ops.debug import pretty, summary
from tests.ops.running import Program

CUBE = np.arange(24).reshape(2, 3, 4)


@pytest.fixture
def p() -> Iterator[Program]:
    program = Program()
    with program.session:
        yield program


# *** values as text ***


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.float32(1.5), "1.5"),
        (np.float32(1 / 3), "0.333333343"),
        (np.float64(1 / 3), "0.33333333333333331"),
        (np.float64(0.1), "0.1"),
        (np.float16(0.1), "0.0999755859"),
        (ml_dtypes.bfloat16(0.1), "0.100097656"),
        (np.float32(1e10), "1e+10"),
        (np.float32(100000), "100000"),
        (np.float32(-0.0), "-0"),
        (np.float32(np.nan), "nan"),
        (np.float32(-np.inf), "-inf"),
        (np.bool_(True), "1"),
        (np.uint8(200), "200"),
        (np.complex64(1j), "?"),
        (object(), "<object>"),
    ],
)
def test_one_number(value: Any, text: str) -> None:
    assert summary(value, 3) == pretty(value, 3) == text


def test_strings_are_escaped_and_quoted_in_the_long_style() -> None:
    x = np.array([b"a\"b'\\\n\t\r\x00\x7f", "\u00e9".encode(), b"\xff"], object)
    assert summary(x, -1) == "a\\\"b\\'\\\\\\n\\t\\r\\000\\177 \u00e9 \udcff"
    assert pretty(x[1:2], -1) == '["\u00e9"]'
    assert pretty(np.array(b"x", object), 3) == '"x"'


@pytest.mark.parametrize(
    ("x", "limit", "text"),
    [
        (CUBE, 3, "[[0 1 2...]]..."),
        (CUBE, 5, "[[0 1 2 3][4...]]..."),
        (CUBE[0, :2, :3], 3, "[0 1 2]..."),
        (CUBE[0, :2, :3], -1, "[0 1 2][4 5 6]"),
        (np.arange(5), 2, "0 1..."),
        (np.arange(5), 0, "..."),
        (np.arange(5), 9, "0 1 2 3 4"),
        (np.zeros((0,)), 3, ""),
        (np.zeros((2, 0)), 3, ""),
    ],
)
def test_the_short_style(x: np.ndarray, limit: int, text: str) -> None:
    assert summary(x, limit) == text


@pytest.mark.parametrize(
    ("x", "ends", "text"),
    [
        (
            CUBE,
            1,
            "[[[0 ... 3]\n  ...\n  [8 ... 11]]\n\n [[12 ... 15]\n  ...\n  [20 ... 23]]]",
        ),
        (CUBE[0], 2, "[[0 1 2 3]\n [4 5 6 7]\n [8 9 10 11]]"),
        (np.arange(5), 2, "[0 1 ... 3 4]"),
        (np.arange(5), -1, "[0 1 2 3 4]"),
        (np.arange(5), 0, "[ ...]"),
        (np.zeros((0,)), 3, "[]"),
    ],
)
def test_the_long_style(x: np.ndarray, ends: int, text: str) -> None:
    assert pretty(x, ends) == text


def test_string_format(p: Program) -> None:
    text = p.run(p.b.StringFormat([np.arange(3), 1.5], template="x = {}, y = {}!", placeholder="{}"))
    assert text == b"x = [0 1 2], y = 1.5!"
    with p.fails(ShapeError, "num placeholders in template and num inputs must match: 1 vs. 2"):
        p.b.StringFormat([1, 2], template="%s")


# *** Assert ***


def test_assert(p: Program) -> None:
    ok = p.b.Placeholder(dtype=dtypes.bool_, shape=None)
    check = p.b.Assert(ok, ["x is bad", np.arange(5), 2.5])
    p.run(check, {ok: True})
    with p.fails(InvalidArgumentError, r"assertion failed: \[x is bad\] \[0 1 2\.\.\.\] \[2\.5\]"):
        p.run(check, {ok: False})
    with p.fails(InvalidArgumentError, "should be a scalar"):
        p.run(check, {ok: [True]})
    whole = p.b.Assert(ok, [np.arange(5)], summarize=-1)
    with p.fails(InvalidArgumentError, r"assertion failed: \[0 1 2 3 4\]"):
        p.run(whole, {ok: False})


def test_an_assertion_holds_back_what_waits_for_it(p: Program) -> None:
    x = p.b.Placeholder(dtype=dtypes.float32, shape=())
    check = p.b.Assert(p.b.Greater(x, 0.0), [x])
    y = p.b.after(check).Sqrt(x)
    assert p.run(y, {x: 4.0}) == 2
    with p.fails(InvalidArgumentError, r"assertion failed: \[-4\]"):
        p.run(y, {x: -4.0})


# *** Print, PrintV2 ***


def test_print_shows_its_data_on_standard_error(p: Program, capsys: pytest.CaptureFixture[str]) -> None:
    y = p.b.Print(7, [np.arange(5), "s"], message="now: ", summarize=2)
    assert p.run(y) == 7
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "now: [0 1...][s]\n")


def test_print_stops_after_the_first_n_of_a_session(p: Program, capsys: pytest.CaptureFixture[str]) -> None:
    y = p.b.Print(7, [1], first_n=2)
    for _ in range(3):
        p.run(y)
    assert capsys.readouterr().err == "[1]\n[1]\n"
    with hr.Session(graph=p.graph) as other:
        other.run(y)
    assert capsys.readouterr().err == "[1]\n"
    p.run(p.b.Print(7, [1], first_n=0))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_print_v2_streams(p: Program, capsys: pytest.CaptureFixture[str], stream: str) -> None:
    p.run(p.b.PrintV2("h\u00e9", output_stream=stream, end="|"))
    shown = capsys.readouterr()
    assert (shown.out if stream == "stdout" else shown.err) == "h\u00e9|"


def test_print_v2_to_the_log(p: Program, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace"):
        for level in ("info", "warning", "error"):
            p.run(p.b.PrintV2("100%s", output_stream=f"log({level})"))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "100%s"),
        ("WARNING", "100%s"),
        ("ERROR", "100%s"),
    ]


def test_print_v2_appends_to_a_file(p: Program, tmp_path: Path) -> None:
    file = tmp_path / "log"
    line = p.b.PrintV2(p.b.Placeholder(dtype=dtypes.string, shape=(), name="x"), output_stream=f"file://{file}")
    for text in ("one", "two"):
        p.run(line, {"x:0": text})
    assert file.read_bytes() == b"one\ntwo\n"


def test_print_v2_errors(p: Program) -> None:
    with p.fails(InvalidArgumentError, "Unknown output stream: nowhere, needs to be one of"):
        p.run(p.b.PrintV2("x", output_stream="nowhere"))
    with p.fails(InvalidArgumentError, "Input is expected to be scalar"):
        p.run(p.b.PrintV2(p.feed(["x"])))


def test_what_shows_something_says_so() -> None:
    for type in ("Assert", "Print", "PrintV2"):
        facts = op_registry.get(type).facts
        assert (facts.effect, facts.writes) == ("stdout", True)
