"""The command `headrace`: its output and its exit codes.

Bad input is answered by one clear line and no traceback.
"""

from __future__ import annotations

import ast
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import headrace as hr
from headrace import cli, dtypes, thresholds
from headrace.ir.serial.graphdef import export_graph_def
from headrace.ir.text import from_text
from headrace.metadata import RunOptions
from headrace.progress import Progress, describe
from headrace.session import Session
from tests.ir import functional

ROOT = Path(__file__).parent.parent

LOOP = """
# while i < n: i = i + 1; y = y * 2
n = Placeholder[dtype=int32, shape=[]]
x = Placeholder[dtype=float32, shape=[?]]
zero = Const[value=int32[]{0}, dtype=int32] @"/device:CPU:0"
n_in = Enter[frame_name="loop", is_constant=true, parallel_iterations=7](n)
i_in = Enter[frame_name="loop", parallel_iterations=7](zero)
y_in = Enter[frame_name="loop", parallel_iterations=7](x)
i = Merge(i_in, i_next)
y = Merge(y_in, y_next)
less = Less(i:0, n_in)
cond = LoopCond(less)
i_switch = Switch(i:0, cond)
y_switch = Switch(y:0, cond)
go = Identity(i_switch:1)
one = Const[value=int32[]{1}, dtype=int32] ^go
two = Const[value=float32[]{2.0}, dtype=float32] ^go
i_add = AddV2(go, one)
y_mul = Mul(y_switch:1, two)
i_next = NextIteration(i_add)
y_next = NextIteration(y_mul)
i_out = Exit(i_switch:0)
y_out = Exit(y_switch:0)
"""

# one placeholder of each kind that the command line has to fill, and a dead end
VALUES = """
f = Placeholder[dtype=float32, shape=[]]
m = Placeholder[dtype=float32, shape=[2,2]]
k = Placeholder[dtype=int64]
b = Placeholder[dtype=bool, shape=[]]
s = Placeholder[dtype=string]
c = Placeholder[dtype=complex64, shape=[]]
h = Placeholder[dtype=bfloat16, shape=[?]]
f_out = Identity(f)
m_out = Identity(m)
k_out = Identity(k)
b_out = Identity(b)
s_out = Identity(s)
c_out = Identity(c)
h_out = Identity(h)
nothing = NoOp
switch = Switch(f, b)
dead = Identity(switch:1)
"""


@pytest.fixture
def loop(tmp_path: Path) -> str:
    """A binary GraphDef of LOOP."""
    path = tmp_path / "loop.pb"
    path.write_bytes(export_graph_def(from_text(LOOP)).SerializeToString())
    return str(path)


@pytest.fixture
def values(tmp_path: Path) -> str:
    path = tmp_path / "values.txt"
    path.write_text(VALUES, encoding="utf-8")
    return str(path)


def run_in_process(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = cli.main(args)
    out, err = capsys.readouterr()
    return status, out, err


def in_subprocess(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-m", "headrace", *args],
        cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


# *** run ***


@pytest.mark.system
def test_run_prints_what_is_fetched(loop: str) -> None:
    done = in_subprocess("run", loop, "--feed", "n=3", "--feed", "x=1,2.5", "--fetch", "y_out", "--fetch", "i_out:0")
    assert done.returncode == 0, done.stderr
    assert "y_out:0  float32 [2]  [ 8. 20.]" in done.stdout
    assert "i_out:0  int32 []  3" in done.stdout
    assert "ran in " in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("form", ["binary", "pbtxt", "text"])
def test_every_form_of_a_graph_is_read(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = from_text(LOOP)
    path = tmp_path / "graph"
    match form:
        case "binary":
            path.write_bytes(export_graph_def(graph).SerializeToString())
        case "pbtxt":
            path.write_text(f"# a comment\n{export_graph_def(graph)}", encoding="utf-8")
        case "text":
            path.write_text(LOOP, encoding="utf-8")
    status, out, err = run_in_process(capsys, "run", str(path), "--feed", "n=2", "--feed", "x=[1]", "--fetch", "y_out")
    assert (status, err) == (0, "")
    assert "[4.]" in out


@pytest.mark.parametrize(
    ("feed", "fetch", "shown"),
    [
        ("f=3", "f_out", "float32 []  3.0"),
        ("f:0=-1.5e3", "f_out", "-1500.0"),
        ("f=inf", "f_out", "inf"),
        ("f=NaN", "f_out", "nan"),
        ("m=[[1,2],[3,4.5]]", "m_out", "[[1.  2. ]\n   [3.  4.5]]"),
        ("k=7", "k_out", "int64 []  7"),
        ("k=1,2,3", "k_out", "[3]  [1 2 3]"),
        ("k=1,", "k_out", "[1]  [1]"),
        ("k=[]", "k_out", "[0]  []"),
        ("b=true", "b_out", "bool []  True"),
        ("b=False", "b_out", "False"),
        ('s="text"', "s_out", "string []  b'text'"),
        ("s=plain text", "s_out", "b'plain text'"),
        ("s=a=b", "s_out", "b'a=b'"),
        ("s=12", "s_out", "b'12'"),
        ('s=["a", "b"]', "s_out", "[2]  [b'a', b'b']"),
        ("c=1+2j", "c_out", "(1+2j)"),
        ("h=1,2.5", "h_out", "bfloat16 [2]  [1 2.5]"),
    ],
)
def test_feeds_are_read_as_their_tensors_want_them(
    feed: str, fetch: str, shown: str, values: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run_in_process(capsys, "run", values, "--feed", feed, "--fetch", fetch)
    assert (status, err) == (0, "")
    assert shown in out


def test_arrays_go_in_and_out_by_files(loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.arange(4, dtype=np.float64))
    args = ("run", loop, "--feed", "n=1", "--feed", f"x=@{tmp_path}/x.npy", "--save", f"y_out=@{tmp_path}/y")
    status, out, _ = run_in_process(capsys, *args)
    assert status == 0
    assert "y_out:0" in out
    saved = np.load(tmp_path / "y")
    assert saved.dtype == np.float32
    assert saved.tolist() == [0, 2, 4, 6]


def test_text_and_bfloat16_survive_files(values: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("h", "0.5,3"), ("s", '["a", "long one"]')):
        file = f"{tmp_path}/{name}.npy"
        assert cli.main(["run", values, "--feed", f"{name}={value}", "--save", f"{name}_out={file}"]) == 0
        assert cli.main(["run", values, "--feed", f"{name}=@{file}", "--fetch", f"{name}_out"]) == 0
    out = capsys.readouterr().out
    assert out.count("[0.5 3]") == 2
    assert out.count("[b'a', b'long one']") == 2
    assert np.load(tmp_path / "h.npy").view(ml_dtypes.bfloat16).tolist() == [0.5, 3.0]


def test_long_values_are_cut_unless_full(loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.arange(1000, dtype=np.float32))
    args = ("run", loop, "--feed", "n=0", "--feed", f"x=@{tmp_path}/x.npy", "--fetch", "y_out")
    assert "..." in run_in_process(capsys, *args)[1]
    out = run_in_process(capsys, *args, "--full")[1]
    assert "..." not in out
    assert "777." in out


def test_an_operation_is_run_and_not_fetched(values: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run_in_process(capsys, "run", values, "--fetch", "nothing", "--fetch", "^f_out", "--feed", "f=1")
    assert status == 0
    assert "nothing  done" in out
    assert "f_out  done" in out


def test_variables_are_initialized_beforehand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "variable.txt"
    path.write_text(
        "v = VariableV2[dtype=float32, shape=[]]\n"
        "value = Const[value=float32[]{4.0}, dtype=float32]\n"
        "init = Assign(v, value)\n"
        "read = Identity(v)\n",
        encoding="utf-8",
    )
    assert run_in_process(capsys, "run", str(path), "--fetch", "read")[0] == cli.FAILED
    status, out, _ = run_in_process(capsys, "run", str(path), "--init", "init", "--fetch", "read")
    assert status == 0
    assert "read:0  float32 []  4.0" in out


def test_trace_is_chrome_json(loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    args = ("run", loop, "--feed", "n=2", "--fetch", "i_out", "--trace", str(file))
    status, _, err = run_in_process(capsys, *args)
    assert status == 0
    assert "perfetto" in err
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    adds = [e for e in events if e["name"] == "i_add" and not e["args"]["dead"]]
    assert len(adds) == 2
    assert all(e["ph"] == "X" and e["dur"] >= 0 for e in adds)


def test_a_failed_run_leaves_its_trace(values: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "trace.json"
    args = ("run", values, "--feed", "f=1", "--feed", "b=false", "--fetch", "dead", "--trace", str(file))
    assert run_in_process(capsys, *args)[0] == cli.FAILED
    assert any(e["name"] == "switch" for e in json.loads(file.read_text(encoding="utf-8"))["traceEvents"])


def test_traces_are_bounded(
    loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thresholds, "TRACE_EVENTS", 50)
    file = tmp_path / "trace.json"
    args = ("run", loop, "--feed", "n=100", "--fetch", "i_out", "--trace", str(file))
    status, out, err = run_in_process(capsys, *args)
    assert status == 0
    assert "i_out:0  int32 []  100" in out
    assert "left out" in err
    assert len(json.loads(file.read_text(encoding="utf-8"))["traceEvents"]) < 100


# *** failures ***


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("run", "missing.pb", "--fetch", "y"), "cannot read 'missing.pb': No such file"),
        (("run", "empty.pb", "--fetch", "y"), "holds no operations"),
        (("run", "truncated.pb", "--fetch", "y"), "truncated.pb"),
        (("run", "noise.pb", "--fetch", "y"), "noise.pb"),
        (("run", "prose.txt", "--fetch", "y"), "prose.txt"),
        (("run", "latin.txt", "--fetch", "y"), "neither a binary GraphDef nor UTF-8 text"),
        (("run", "unknown.pbtxt", "--fetch", "y"), "NoSuchOp"),
        (("run", ".", "--fetch", "y"), "cannot read '.'"),
        (("inspect", "truncated.pb"), "truncated.pb"),
        (("text", "truncated.pb"), "truncated.pb"),
        (("run", "values.txt"), "nothing to do"),
        (("run", "values.txt", "--fetch", "f_ouch"), "f_out"),
        (("run", "values.txt", "--fetch", "f_out:4"), "1 outputs"),
        (("run", "values.txt", "--fetch", "f_out:x"), "f_out:x"),
        (("run", "values.txt", "--fetch", ""), "''"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f"), "NAME=VALUE"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "=3"), "NAME=VALUE"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "q=3"), "'q'"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "nothing=3"), "no outputs"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f="), "''"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=[1,2]"), "shape"),
        (("run", "values.txt", "--fetch", "m_out", "--feed", "m=[[1,2],[3]]"), "m"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=__import__('os')"), "no number"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", 'f={"a": 1}'), "no float32"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=null"), "no float32"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", 'f="3"'), "no float32"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=" + "[" * 100_000), "f"),
        (("run", "values.txt", "--fetch", "k_out", "--feed", "k=1.5"), "int64"),
        (("run", "values.txt", "--fetch", "k_out", "--feed", "k=99999999999999999999"), "int64"),
        (("run", "values.txt", "--fetch", "b_out", "--feed", "b=3"), "bool"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=@missing.npy"), "missing.npy"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=@noise.pb"), "numpy.save"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=@objects.npy"), "numpy.save"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=@several.npz"), "several arrays"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=@"), "''"),
        (("run", "values.txt", "--fetch", "f_out", "--feed", "f=1", "--feed", "f:0=2"), "twice"),
        (("run", "values.txt", "--fetch", "f_out", "--save", "f_out"), "NAME=@FILE"),
        (("run", "values.txt", "--save", "f_out=@missing/f.npy"), "missing/f.npy"),
        (("run", "values.txt", "--save", "nothing=@f.npy"), "no outputs"),
        (("run", "values.txt", "--fetch", "f_out", "--trace", "missing/t.json"), "missing/t.json"),
        (("run", "values.txt", "--fetch", "f_out", "--timeout", "0"), "--timeout"),
        (("run", "values.txt", "--fetch", "f_out", "--timeout", "soon"), "--timeout"),
        (("run", "values.txt", "--init", "q"), "'q'"),
        (("inspect", "values.txt", "--fetch", "q"), "'q'"),
        (("inspect", "values.txt", "--feed", "f"), "--fetch"),
        (("walk", "values.txt"), "walk"),
        ((), "COMMAND"),
    ],
)
def test_bad_usage_is_two_and_one_clear_line(
    args: tuple[str, ...],
    says: str,
    values: str,
    loop: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty.pb").write_bytes(b"")
    Path("truncated.pb").write_bytes(Path(loop).read_bytes()[:-20])
    Path("noise.pb").write_bytes(np.random.default_rng(0).bytes(1000))
    Path("prose.txt").write_text("Dear Sir,\nthis is no graph.\n", encoding="utf-8")
    Path("latin.txt").write_bytes("schöne Grüße".encode("latin-1"))
    Path("unknown.pbtxt").write_text('node { name: "y" op: "NoSuchOp" }', encoding="utf-8")
    np.save("objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez("several.npz", a=np.zeros(1), b=np.zeros(1))
    status, out, err = run_in_process(capsys, *args)
    assert status == cli.BAD_USAGE
    assert out == ""
    assert says in err
    assert "Traceback" not in err
    assert len(err) < 2000


@pytest.mark.system
def test_bad_usage_of_the_process(tmp_path: Path) -> None:
    done = in_subprocess("inspect", "missing.pb", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "headrace: cannot read 'missing.pb': No such file or directory\n"


def test_a_failed_run_is_one_with_its_notes(values: str, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("run", values, "--feed", "f=1", "--feed", "b=false", "--fetch", "dead")
    status, out, err = run_in_process(capsys, *args)
    assert (status, out) == (cli.FAILED, "")
    assert err.startswith("headrace: InvalidArgumentError: ")
    assert "switch" in err
    assert "Traceback" not in err
    assert "Traceback" in run_in_process(capsys, *args, "--traceback")[2]


def test_a_placeholder_that_is_not_fed_fails_the_run(values: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run_in_process(capsys, "run", values, "--fetch", "f_out")
    assert status == cli.FAILED
    assert "You must feed a value for placeholder tensor 'f'" in err


@pytest.mark.system
def test_timeout_ends_a_run(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    began = time.monotonic()
    args = ("run", loop, "--feed", "n=1000000000", "--fetch", "i_out", "--timeout", "0.2", "--quiet")
    status, _, err = run_in_process(capsys, *args)
    assert status == cli.FAILED
    assert err.startswith("headrace: DeadlineExceededError: ")
    assert time.monotonic() - began < 10


def test_a_fault_of_ours_says_so(
    loop: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(cli, "describe", broken)
    status, _, err = run_in_process(capsys, "inspect", loop)
    assert status == cli.FAILED
    assert "KeyError: 'oops'" in err
    assert "report it" in err


@pytest.mark.system
def test_a_reader_that_leaves_is_no_fault(loop: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-m", "headrace", "text", loop], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_help_shows_how_to_feed(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run_in_process(capsys, "run", "--help")
    assert status == 0
    assert "x=@x.npy" in out


def test_no_module_evaluates_what_users_write() -> None:
    package = ROOT / "headrace"
    for path in (package / "cli.py", *(package / "inspect").glob("*.py")):
        calls = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
        assert not {n.func.id for n in calls if isinstance(n.func, ast.Name)} & {"eval", "exec", "compile"}


# *** progress ***


class Screen(io.StringIO):
    """Stream for progress; calls `then` when it has received the position of a loop."""

    then: Callable[[], object]

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        n = super().write(text)
        if "of loop" in text:
            self.then()
        return n


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_of_a_long_loop(is_terminal: bool) -> None:
    out = Screen(is_terminal)
    with Session(graph=from_text(LOOP)) as session, Progress(out, first=0.05, every=0.05) as progress:
        out.then = session.close  # so that the test takes as long as it takes to see a line, and no longer
        with pytest.raises(hr.errors.CancelledError):
            session.run("i_out:0", {"n:0": 2**30}, RunOptions(timeout_in_ms=60_000, ready=progress.ready))
    text = out.getvalue()
    assert "of loop 'loop'" in text
    assert "nodes fired" in text
    if is_terminal:
        assert text.endswith("\r")  # the line is wiped
        assert "\n" not in text


def test_progress_is_silent_in_a_short_run() -> None:
    out = io.StringIO()
    with Session(graph=from_text(LOOP)) as session, Progress(out) as progress:
        session.run("i_out:0", {"n:0": 10}, RunOptions(ready=progress.ready))
    assert out.getvalue() == ""


@pytest.mark.system
def test_progress_says_when_nothing_is_ready() -> None:
    out = io.StringIO()
    with Progress(out, first=0.01, every=0.01):
        time.sleep(0.3)
    assert "no operation is ready" in out.getvalue()


def test_progress_counts_no_more_than_fires() -> None:
    said = []

    class Queue(list):
        """A queue that looks at the run from outside whenever a node is taken."""

        def popleft(self) -> object:
            said.append(int(describe(self[0][1]).split("at least ")[1].split()[0]))
            return self.pop(0)

    with Session(graph=from_text(LOOP)) as session:
        session.run("i_out:0", {"n:0": 5}, RunOptions(ready=Queue()))
    in_root, in_loop, iterations = 4, 9, 6  # arg, two Enters, retval; the last iteration only ends the loop
    assert max(said) <= in_root + in_loop * iterations
    assert max(said) > in_loop * (iterations - 1)


# *** inspect, diff and text ***


@pytest.mark.system
def test_inspect_tells_what_is_in_a_graph(loop: str) -> None:
    done = in_subprocess("inspect", loop)
    assert done.returncode == 0, done.stderr
    for line in (
        "21 operations of 12 types",
        "  n:0  int32 []",
        "  x:0  float32 [?]",
        "  y_out:0  float32 [?]",
        "constants:\n  3, 12 B",
        "  while 'loop'  on less, parallel_iterations 7  -> int32 [], float32 [?]",
        "      variable  y:0  float32 [?]  (from y_in, next y_next, out by y_out)",
        "      constant  n_in:0  int32 []  (from n)",
        "      condition: 11 operations",
        "      body: 7 operations",
        "1 on /device:CPU:0",
    ):
        assert line in done.stdout


def test_inspect_shows_the_ends_of_a_step(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run_in_process(capsys, "inspect", loop, "--fetch", "i_out", "--feed", "n")
    assert status == 0
    assert "the step holds 12 of the graph's 21 operations" in out
    assert "Arg (fed):\n  n:0  int32 []  -> n_in" in out
    assert "Retval (fetched):\n  i_out:0  int32 []" in out
    assert "Source -> (operations without inputs):\n  1 constant" in out
    assert "-> Sink (operations without consumers):\n  nothing" in out
    assert "y_mul" not in out


def test_text_can_be_read_again(loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = run_in_process(capsys, "text", "--exact", loop)[1]
    again = tmp_path / "again.txt"
    again.write_text(text, encoding="utf-8")
    assert run_in_process(capsys, "text", "--exact", str(again))[1] == text


def test_values_are_parsed_without_a_graph() -> None:
    assert cli.parse_value("0x10", dtypes.string) == "0x10"
    assert cli.parse_value("-0.5", dtypes.float32).item() == -0.5
    with pytest.raises(ValueError, match="no number"):
        cli.parse_value("0x10", dtypes.int32)


def test_graphs_inside_graphs_are_shown_and_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.pb"
    path.write_bytes(export_graph_def(functional.program()).SerializeToString())
    status, out, _ = run_in_process(capsys, "inspect", str(path))
    assert status == 0
    shown = out[out.index("loops, conditionals and calls:") :]
    for line in (
        "  while 'rows'  While, parallel_iterations 10  -> int32 [], float32 [?,2]",
        "      body 'while_body': 8 operations",
        "          case 'case'  of Mod, Case  -> float32 [2]",
        "              branches.2 'case_2': 1 operation",
        "                      f 'fact': 3 operations, shown above",
    ):
        assert line + "\n" in shown
    text = run_in_process(capsys, "text", "--exact", str(path))[1]
    again = tmp_path / "again.txt"
    again.write_text(text, encoding="utf-8")
    assert run_in_process(capsys, "text", "--exact", str(again))[1] == text


def test_inspect_shows_the_primitive_form(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "program.pb"
    path.write_bytes(export_graph_def(functional.program()).SerializeToString())
    status, out, _ = run_in_process(capsys, "inspect", str(path), "--lowered")
    assert status == 0
    assert "  while 'while/while_context'  on while/cond/Less, parallel_iterations 10" in out
    assert "While," not in out
    status, step, _ = run_in_process(capsys, "inspect", str(path), "--lowered", "--fetch", "rows:1", "--fetch", "fact")
    assert status == 0
    assert "the step holds" in step
    assert "while 'rows'" in step
    assert "while 'while'" not in step
    assert "      f 'fact': shown below" in step
    assert "      function 'fact': " in step


def test_inspect_draws(loop: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, dot, _ = run_in_process(capsys, "inspect", loop, "--dot")
    assert status == 0
    assert dot.startswith("digraph ")
    status, page, _ = run_in_process(capsys, "inspect", loop, "--html")
    assert status == 0
    assert page.startswith("<!DOCTYPE html>")
    status, page, _ = run_in_process(capsys, "inspect", loop, "--html", "--fetch", "i_out")
    assert "loop.pb: the step of i_out" in page
    assert "y_mul" not in page
    assert run_in_process(capsys, "inspect", loop, "--html", "--dot")[0] == cli.BAD_USAGE


def test_diff_tells_by_its_status(loop: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.txt"
    other.write_text(LOOP.replace("float32[]{2.0}", "float32[]{3.0}"), encoding="utf-8")
    assert run_in_process(capsys, "diff", loop, loop)[:2] == (0, "the same: 21 operations\n")
    status, out, _ = run_in_process(capsys, "diff", loop, str(other))
    assert status == 1
    assert out == "different: 1 changed\n~ two  (Const)\n    attribute value: 2.0 -> 3.0\n"
    status, out, err = run_in_process(capsys, "diff", loop, "missing.pb")
    assert (status, out) == (2, "")
    assert "missing.pb" in err


def test_diff_that_fails_does_not_say_different(
    loop: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*given: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(cli, "diff", broken)
    assert run_in_process(capsys, "diff", loop, loop)[0] == cli.BAD_USAGE


def test_a_long_difference_is_cut(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = tmp_path / "a.txt", tmp_path / "b.txt"
    a.write_text("x = NoOp\n")
    b.write_text("x = NoOp\n" + "".join(f"y{i} = NoOp ^x\n" for i in range(60)))
    out = run_in_process(capsys, "diff", str(a), str(b))[1]
    assert "60 added" in out
    assert "... and 20 more; --full shows all of them" in out
    assert "y59" in run_in_process(capsys, "diff", str(a), str(b), "--full")[1]


def test_a_saved_model_is_described_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.saved_model import models

    folder = models.write(tmp_path)
    assert cli.main(["inspect", folder]) == cli.OK
    assert "v: float32 [2]" in capsys.readouterr().out
    assert cli.main(["run", folder, "--feed", "x=3,4"]) == cli.OK
    assert "y  float32 [2]  [13. 18.]" in capsys.readouterr().out
    for argv, text in (
        (["run", folder, "--signature", "other"], "has no signature 'other'; it has serving_default"),
        (["run", folder], "also takes x; give --feed x=..."),
        (["run", folder, "--feed", "z=1"], "the signature takes x"),
        (["run", folder, "--init", "a"], "--init is for files with a graph"),
        (["inspect", str(tmp_path)], "SavedModel file does not exist"),
    ):
        assert cli.main(argv) == cli.BAD_USAGE
        assert text in capsys.readouterr().err
