"""Messages of headrace: records for `logging`, and warnings at the user's line.

Standard output stays empty.
"""

from __future__ import annotations

import ast
import logging
import re
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
import headrace.v1 as tf
from headrace import notices
from headrace.errors import HeadraceWarning
from tests.manners.running import GRAPH, ROOT, SESSIONS, passes, run

PACKAGE = ROOT / "headrace"
# The commands: standard output is theirs. `tf.profiler.profile` prints its table as TensorFlow's does.
SPEAK = {"cli.py", "progress.py", "__main__.py", "v1/profiler.py", "v1/test_benchmark.py", "v1/autograph.py"}

EVERYTHING = [
    f"""
g = build()
with {session} as s:
    s.run("init")
    for _ in range(3):
        s.run([HEAVY, TWO, KEPT, MORE], {{"x:0": X}}, options=hr.RunOptions(listener=lambda e: None))
        s.run([HEAVY, TWO, KEPT, MORE], {{"x:0": X}})
    s.run("enqueue"); s.run(GOT)
    repr((g, s, s.explain([HEAVY, TWO], ["x:0"]), s.list_devices()))
    str(s.explain([HEAVY, TWO], ["x:0"]))
    try:
        s.run(HEAVY)
    except hr.errors.InvalidArgumentError:
        pass
    try:
        s.run(GOT, timeout_ms=20)
    except hr.errors.DeadlineExceededError:
        pass
    h = s.partial_run_setup([HEAVY, LOOP], ["x:0", "n:0"])
    s.partial_run(h, HEAVY, {{"x:0": X}})
"""
    for session in SESSIONS
]


@pytest.mark.system
@pytest.mark.one_engine
def test_programs_are_silent() -> None:
    """No record of these programs has a level above INFO.

    `logging` is set up from the second session on.
    """
    setup = "\nimport logging\nlogging.basicConfig(stream=sys.stdout, level=logging.WARNING)\n"
    first, *others = EVERYTHING
    eager = "hr.reduce_sum(hr.constant([1.0, 2.0]) * 3.0)\n"
    passes(GRAPH + first + setup + "".join(others) + eager, "-W", "error", timeout=100)


def _prints(tree: ast.AST) -> list[int]:
    """Lines that call the built-in `print`, or write to standard output."""
    own = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    out = []
    for n in ast.walk(tree):
        if not isinstance(n, ast.Call):
            continue
        name = ast.unparse(n.func)
        if (name == "print" and "print" not in own) or name.startswith("sys.stdout."):
            out.append(n.lineno)
    return out


@pytest.mark.system
@pytest.mark.one_engine
def test_the_library_never_prints() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        source = path.read_text(encoding="utf-8")
        if name not in SPEAK and name.split("/")[0] not in SPEAK and re.search(r"\bprint\b|\bstdout\b", source):
            found += [f"{name}:{line}" for line in _prints(ast.parse(source))]
    assert not found, f"only the commands may print: {found}"


@pytest.mark.one_engine
def test_the_check_finds_prints() -> None:
    assert _prints(ast.parse("import sys\nprint(1)\nsys.stdout.write('x')")) == [2, 3]


@pytest.mark.system
@pytest.mark.one_engine
def test_logging_is_not_imported() -> None:
    passes("import sys, headrace\nassert not {'logging', 'concurrent.futures', 'difflib'} & set(sys.modules)")


# *** records ***


def two_devices() -> tuple[hr.Graph, Any, Any]:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2, 2))
        with hr.device("/cpu:1"):
            y = hr.matmul(x, x)
        with hr.device("/cpu:0"):
            y = y + 1.0
    return g, x, y


def test_records(caplog: pytest.LogCaptureFixture) -> None:
    g, x, y = two_devices()
    with caplog.at_level(logging.DEBUG, "headrace"):
        with hr.Session(graph=g, devices={"CPU": 2}) as s:
            s.run(y, {x: np.ones((2, 2))})
            n = len(caplog.records)
            s.run(y, {x: np.ones((2, 2))})
            assert len(caplog.records) == n, "nothing is said of runs"
        with hr.Session(graph=g) as s:
            s.run(y, {x: np.ones((2, 2))})
    by = {(r.name, r.levelname) for r in caplog.records}
    assert by == {
        ("headrace.session", "INFO"),
        ("headrace.placement", "INFO"),
        ("headrace.compile", "DEBUG"),
    }
    texts = [r.getMessage() for r in caplog.records]
    assert any(t.startswith("session of <Graph of") and "devices CPU:0, CPU:1; engine" in t for t in texts)
    assert any(t.startswith("a step of ") and "operations on /job:localhost" in t for t in texts)
    stages = {t.partition(":")[0] for t in texts if t.endswith(" ms")}
    assert {"prune", "place", "lower", "partition", "plan"} <= stages


@pytest.mark.one_engine
def test_no_records_below_the_level(caplog: pytest.LogCaptureFixture) -> None:
    g, x, y = two_devices()
    with caplog.at_level(logging.WARNING, "headrace"), hr.Session(graph=g, devices={"CPU": 2}) as s:
        s.run(y, {x: np.ones((2, 2))})
    assert not caplog.records


@pytest.mark.system
@pytest.mark.one_engine
def test_log_device_placement_without_logging_is_on_standard_error() -> None:
    """As in TensorFlow."""
    program = """
import headrace as hr
with hr.Graph() as g:
    x = hr.placeholder(hr.float32, (2, 2), name="x")
    with hr.device("/cpu:1"):
        y = hr.matmul(x, x, name="y")
with hr.Session(graph=g, devices={"CPU": 2}, config={"log_device_placement": True}) as s:
    s.run(y, {x: [[1.0, 2.0], [3.0, 4.0]]})
"""
    status, out, err = run(program)
    assert (status, out) == (0, "")
    assert "y: (MatMul): /job:localhost/replica:0/task:0/device:CPU:1\n" in err
    setup = "import logging, sys\nlogging.basicConfig(stream=sys.stdout, level=20, format='%(name)s %(message)s')"
    status, out, err = run(setup + program)
    assert (status, err) == (0, "")
    assert "headrace.placement y: (MatMul): /job:localhost/replica:0/task:0/device:CPU:1\n" in out


@pytest.mark.system
@pytest.mark.one_engine
def test_tensorflow_1_logging_shows_what_the_user_logs() -> None:
    program = """
import headrace.v1 as tf
tf.logging.info("not shown")
tf.logging.warn("careful %d", 1)
tf.logging.set_verbosity(tf.logging.INFO)
tf.logging.info("shown")
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(message)s")
tf.logging.info("theirs")
"""
    assert run(program) == (0, "theirs\n", "WARNING:headrace:careful 1\nINFO:headrace:shown\n")


@pytest.mark.system
@pytest.mark.one_engine
def test_print_to_a_log_is_seen_without_logging_set_up() -> None:
    program = """
import headrace as hr
hr.raw_ops.PrintV2(input="careful", output_stream="log(warning)")
"""
    assert run(program) == (0, "", "careful\n")


# *** warnings ***


def _one(caught: list[warnings.WarningMessage]) -> warnings.WarningMessage:
    (found,) = caught
    assert found.category is HeadraceWarning
    assert issubclass(HeadraceWarning, UserWarning)
    return found


def line_of(mark: str) -> int:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (n,) = [i for i, text in enumerate(lines, 1) if text.endswith(f"# {mark}")]
    return n


def grows_by_fetches(s: Any, x: Any) -> None:
    for _ in range(15):
        s.run(-x, {x: 1.0})  # grows


def grows_by_run(s: Any, x: Any) -> None:
    for _ in range(5):
        hr.negative(x)
        s.run({"x": [x]}, {x: 1.0})  # run of the same


def grows_by_call(s: Any, x: Any) -> None:
    call = s.make_callable(x, [x])
    for _ in range(5):
        hr.negative(x)
        call(1.0)  # call


def grows_by_eval(s: Any, x: Any) -> None:
    for _ in range(15):
        with s.as_default():
            tf.negative(x).eval({x: 1.0})  # eval


GROWING = {"grows": grows_by_fetches, "run of the same": grows_by_run, "call": grows_by_call, "eval": grows_by_eval}


@pytest.mark.parametrize("mark", GROWING)
def test_growth_is_told_at_the_users_line_once(mark: str) -> None:
    with tf.Graph().as_default() as g, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = tf.placeholder(tf.float32, ())
        with tf.Session(graph=g) as s:
            GROWING[mark](s, x)
    found = _one(caught)
    assert str(found.message).startswith("the graph grows between runs of ")
    assert "Build the graph first, then run it." in str(found.message)
    assert (found.filename, found.lineno) == (__file__, line_of(mark))


def test_a_graph_that_is_built_in_stages_is_no_growth() -> None:
    with hr.Graph() as g, hr.Session(graph=g) as s:
        x = hr.placeholder(hr.float32, ())
        s.run(x, {x: 1.0})
        y = x + 1.0
        s.run(y, {x: 1.0})
        z = y * 2.0
        s.run(z, {x: 1.0})
        w = z - 2.0
        assert s.run([w, w], {x: 1.0}) == [2.0, 2.0]
        for _ in range(4):
            y = y + 1.0  # in one go
        s.run(y, {x: 1.0})


@pytest.mark.system
@pytest.mark.one_engine
def test_by_default_a_warning_is_shown_once_for_a_line() -> None:
    program = """
import headrace as hr
def work():
    with hr.Graph() as g, hr.Session(graph=g) as s:
        for _ in range(15):
            s.run(hr.zeros([2]))
work(); work()
"""
    status, out, err = run(program)
    assert (status, out) == (0, "")
    assert err.count("HeadraceWarning") == 1
    assert err.startswith("<string>:6: HeadraceWarning: the graph grows between runs")


@pytest.mark.one_engine
def test_a_warning_from_a_with_statement_names_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the two stands `contextlib`."""
    before = hr.flags.ENGINE
    monkeypatch.setattr(before, "_more", notices.warn)  # given the value, as if it were a text
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with hr.flags.override(ENGINE="auto"):  # with
            pass
    assert (_one(caught).filename, caught[0].lineno) == (__file__, line_of("with"))


@pytest.mark.one_engine
def test_a_warning_where_there_is_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "users_frame", lambda: None)
    with pytest.warns(HeadraceWarning, match="so"):
        notices.warn("so")


@pytest.mark.system
@pytest.mark.one_engine
def test_every_warning_goes_through_one_place() -> None:
    """So that each names the user's line, which the tests above show of the place."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        found += [
            path.name
            for n in (ast.walk(ast.parse(source)) if "warn" in source else ())
            if isinstance(n, ast.Call) and ast.unparse(n.func) in ("warnings.warn", "warnings.warn_explicit")
        ]
    assert set(found) == {"notices.py"}, found


@pytest.mark.one_engine
def test_other_threads_warn_at_their_own_line() -> None:
    def work() -> None:
        notices.warn("so")  # thread

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        t = threading.Thread(target=work)
        t.start()
        t.join()
    assert (_one(caught).filename, caught[0].lineno) == (__file__, line_of("thread"))
