"""Error texts of the command `headrace` for unusable arguments: one whole line, and status 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace import cli
from headrace.dtypes import float32
from tests.errors.table import check

GRAPH = """
x = Placeholder[dtype=float32, shape=[]]
s = Placeholder[dtype=string, shape=[]]
y = Neg(x)
t = Identity(s)
v = VarHandleOp[dtype=float32, shape=[]]
shape = Const[value=int32[]{-1}, dtype=int32]
n = Const[value=int32[]{2}, dtype=int32]
list = TensorListReserve[element_dtype=float32, shape_type=int32](shape, n)
nothing = NoOp
"""
LONG = "a" * 300 + ".npy"

ROWS = [
    (["run"], "nothing to do: give --fetch NAME (`headrace inspect` lists the outputs)"),
    (["run", "--fetch", "z"], "The name 'z' refers to an Operation not in the graph"),
    (["run", "--fetch", "y", "--feed", "x"], "--feed x: write NAME=VALUE, for example --feed x=3 or --feed x=@x.npy"),
    (["run", "--fetch", "y", "--feed", "x=1", "--feed", "x:0=2"], "a tensor is fed twice: x:0, x:0"),
    (["run", "--fetch", "y", "--feed", "nothing=1"], "--feed nothing: the operation 'nothing' (NoOp) has no outputs"),
    (["run", "--fetch", "y", "--feed", "v=1"], "--feed v: 'v:0' carries a resource, which cannot be fed"),
    (["run", "--fetch", "y", "--feed", "list=1"], "--feed list: 'list:0' carries a variant, which cannot be fed"),
    (
        ["run", "--fetch", "y", "--feed", "x={}"],
        "--feed x: '{}' is no float32; write a number, true, false or a list of them",
    ),
    (
        ["run", "--fetch", "y", "--feed", "x=one"],
        "--feed x: 'one' is no number, true, false or JSON; an array in a file is @FILE.npy",
    ),
    (["run", "--fetch", "y", "--feed", "x=@none.npy"], "cannot read 'none.npy': No such file or directory"),
    (["run", "--fetch", "y", "--feed", "x=@g.txt"], "'g.txt' is no array saved by numpy.save: "),
    (["run", "--fetch", "y", "--feed", "x=@two.npz"], "'two.npz' holds several arrays; save one with numpy.save"),
    (["run", "--save", "y"], "--save y: write NAME=@FILE.npy, for example --save y=@y.npy"),
    (["run", "--save", "v=@v.npy"], "--save v: 'v:0' carries a resource, which cannot be saved"),
    (
        ["run", "--save", "y=@none/y.npy"],
        "--save y: cannot write 'none/y.npy': its folder does not exist, or it is one itself",
    ),
    (["run", "--feed", "x=1", "--save", f"y=@{LONG}"], f"cannot write {LONG!r}: File name too long"),
    (
        ["run", "--feed", r's="a\u0000"', "--save", "t=@t.npy"],
        "--save t:0: numpy files cannot hold text that ends in NUL characters",
    ),
    (
        ["run", "--feed", "x=1", "--fetch", "y", "--trace", "none/t.json"],
        "cannot write the trace 'none/t.json': No such file or directory",
    ),
    (["inspect", "--feed", "x"], "--feed says what a step is fed; give --fetch too"),
]


@pytest.mark.parametrize(("args", "says"), ROWS)
def test_what_is_said(
    args: list[str],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("g.txt").write_text(GRAPH, encoding="utf-8")
    np.savez("two.npz", a=1, b=2)
    assert cli.main([args[0], "g.txt", *args[1:]]) == cli.BAD_USAGE
    assert f"headrace: {says}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("none.pb", "cannot read 'none.pb': No such file or directory"),
        ("empty.pb", "'empty.pb' holds no operations"),
        ("prose", "cannot import 'prose': "),
    ],
)
def test_what_is_said_of_a_file(file: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.pb").touch()
    Path("prose").write_text("Dear Sir,", encoding="utf-8")
    check(lambda: cli.read_graph(file), cli.UsageError, f"^{says}")


@pytest.mark.parametrize("seconds", ["0", "-1", "inf", "nan", "soon"])
def test_what_is_said_of_a_time(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "g.pb", "--timeout", seconds]) == cli.BAD_USAGE
    assert f"argument --timeout: expected a number of seconds above 0, got {seconds!r}" in capsys.readouterr().err


def test_what_is_said_of_a_value() -> None:
    check(lambda: cli.parse_value("null", float32), ValueError, "'null' is no float32; write a number, true")
    check(lambda: cli.parse_value("0x10", float32), ValueError, "'0x10' is no number, true, false or JSON; an array")
