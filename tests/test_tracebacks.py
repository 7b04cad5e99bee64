"""Tracebacks of errors: the user's frames, and one line for each call of headrace (`tracebacks`)."""

from __future__ import annotations

import copy
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import flags, pipeline, tracebacks
from headrace.errors import CompileWarning, GraphError, HeadraceInternalError, InternalError
from headrace.report import stage

PACKAGE = str(Path(hr.__file__).parent)


def frames(error: BaseException) -> list[str]:
    """Functions in a traceback from the test on, those of headrace with their package."""
    found = traceback.extract_tb(error.__traceback__)
    return [f"headrace {f.name}" if f.filename.startswith(PACKAGE) else f.name for f in found]


def raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as caught:
        call()
    return caught.value


def shown(call: Callable[[], Any]) -> list[str]:
    """Functions in the traceback of the error of a call, without those of the test."""
    return frames(raised(call))[1:]


@pytest.fixture
def graph() -> hr.Graph:
    """x: float32[2,3]; k; rows = x[k]."""
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (2, 3), name="x")
        hr.gather(x, hr.placeholder(hr.int32, (), name="k"), name="row")
    return g


FED = {"x:0": np.ones((2, 3)), "k:0": 9}


@pytest.mark.parametrize("engine", ["auto", "interpret"])
def test_an_error_of_a_step_shows_the_user_and_run(graph: hr.Graph, engine: str) -> None:
    session = hr.Session(graph=graph, engine=engine)
    assert shown(lambda: session.run("row:0", FED)) == ["<lambda>", "headrace run"]
    assert shown(lambda: session.run("row:0", {"x:0": 1.0})) == ["<lambda>", "headrace run"]
    assert shown(lambda: session.run("none:0")) == ["<lambda>", "headrace run"]
    call = session.make_callable("row:0", list(FED))
    assert shown(lambda: call(*FED.values())) == ["<lambda>", "headrace call"]


def test_an_error_of_an_operation_shows_the_function_that_makes_it(graph: hr.Graph) -> None:
    x = graph.get_tensor_by_name("x:0")
    assert shown(lambda: hr.matmul(x, x)) == ["<lambda>", "headrace matmul"]
    assert shown(lambda: x + "text") == ["<lambda>", "headrace forward"]
    assert shown(lambda: hr.matmul(np.ones((2, 3)), np.ones((2, 3)))) == ["<lambda>", "headrace matmul"]


def test_functions_of_the_user_that_headrace_calls_are_shown(graph: hr.Graph) -> None:
    x = graph.get_tensor_by_name("x:0")

    def body(h: Any) -> Any:
        return hr.matmul(h, h)

    loop = shown(lambda: hr.while_loop(lambda h: True, body, [x]))
    assert loop == ["<lambda>", "headrace while_loop", "body", "headrace matmul"]
    nested = shown(lambda: hr.cond(True, lambda: hr.map_fn(lambda row: body(row), x), lambda: x))
    expected = ["<lambda>", "headrace cond", "<lambda>", "headrace map_fn", "<lambda>", "body", "headrace matmul"]
    assert nested == expected
    jitted = hr.jit(body)
    assert shown(lambda: jitted(np.ones((2, 3)))) == ["<lambda>", "headrace __call__", "body", "headrace matmul"]
    gradient = hr.grad(body)
    assert shown(lambda: gradient(np.ones((2, 3)))) == ["<lambda>", "headrace run", "body", "headrace matmul"]


def test_an_error_of_a_python_function_keeps_its_frames_and_its_cause() -> None:
    def divide(a: Any) -> Any:
        return a / {}["missing"]

    with hr.Graph() as g:
        y = hr.py_func(divide, [hr.constant(1.0)], hr.float32)
    error = raised(lambda: hr.Session(graph=g).run(y))
    assert isinstance(error, hr.errors.UnknownError)
    assert frames(error)[1:] == ["<lambda>", "headrace run"]
    assert isinstance(error.__cause__, KeyError)
    assert frames(error.__cause__) == ["divide"]
    assert any("py_func" in note or "PyFunc" in note for note in error.__notes__)


def test_the_flag_full_keeps_all_frames(graph: hr.Graph) -> None:
    session = hr.Session(graph=graph)
    with flags.override(TRACEBACK="full"):
        found = shown(lambda: session.run("row:0", FED))
    assert found[:2] == ["<lambda>", "headrace run"]
    assert len(found) > 5


@pytest.mark.parametrize("kind", [AssertionError, HeadraceInternalError, InternalError, AttributeError])
def test_a_defect_shows_all_frames(graph: hr.Graph, kind: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    session = hr.Session(graph=graph)

    def fail(*args: Any) -> None:
        if kind is AttributeError:
            None.missing  # type: ignore[attr-defined]
        raise kind("a defect")

    fail.__code__ = fail.__code__.replace(co_filename=f"{PACKAGE}/session.py")
    monkeypatch.setattr(session, "_compile", fail)
    error = raised(lambda: session.run("row:0", FED))
    assert type(error) is kind
    assert frames(error)[1:] == ["<lambda>", "headrace run", "headrace _call", "headrace fail"]


def test_a_failure_of_a_pass_shows_all_frames(graph: hr.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    def stage(*args: Any) -> None:
        x = graph.get_tensor_by_name("x:0")
        hr.matmul(x, x)

    monkeypatch.setattr(pipeline, "compile_graph", stage)
    with pytest.warns(CompileWarning):
        found = hr.Session(graph=graph).explain("row:0", list(FED))
    assert ", in infer_shapes\n" in found.failures[0]


def test_a_failed_assertion_of_the_user_is_no_defect(graph: hr.Graph) -> None:
    def branch() -> Any:
        assert hr is None
        return 1.0

    with graph:
        found = shown(lambda: hr.cond(hr.constant(True), branch, lambda: 2.0))
    assert found == ["<lambda>", "headrace cond", "branch"]


def test_an_error_that_the_user_raises_again_gets_no_frames_of_headrace(graph: hr.Graph) -> None:
    first = GraphError("mine")

    def branch() -> Any:
        raise first

    with graph:
        for _ in range(2):
            error = raised(lambda: hr.cond(hr.constant(True), branch, lambda: 2.0))
            assert error is first
            assert frames(error)[-2:] == ["headrace cond", "branch"]


def test_reports_and_debuggers_see_all_frames(graph: hr.Graph) -> None:
    error = raised(lambda: hr.Session(graph=graph).run("row:0", FED))
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(tracebacks.full(error))]
    assert names[1:3] == ["<lambda>", "run"]
    assert "_run" in names
    assert stage(error) == "run"
    x = graph.get_tensor_by_name("x:0")
    outer = raised(lambda: hr.while_loop(lambda h: True, lambda h: hr.matmul(h, h), [x]))
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(tracebacks.full(outer))]
    assert names.index("while_loop") < names.index("matmul") < names.index("infer_shapes")


def test_an_error_without_frames_can_be_copied_and_pickled(graph: hr.Graph) -> None:
    error = raised(lambda: hr.Session(graph=graph).run("none:0"))
    assert type(error) is ValueError
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (type(again), again.args) == (ValueError, error.args)


def test_other_exceptions_than_errors_keep_their_frames() -> None:
    def interrupted() -> Any:
        raise KeyboardInterrupt

    with hr.Graph():
        found = shown(lambda: hr.cond(hr.constant(True), interrupted, lambda: 2.0))
    assert "headrace trace" in found
