"""Fallback after a failure of the compiler.

There is a warning with the stage and the exception, and the token machine gives the results.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import headrace as hr
from headrace import compile as compiling
from headrace import pipeline
from headrace.compile import fused_kernels
from headrace.errors import CompileWarning, GraphError, HeadraceInternalError, InvalidArgumentError
from headrace.ir.attr_values import Func
from headrace.ir.text import from_text
from headrace.optimize.constant_folding import FoldConstants

F32 = hr.float32


def broken(*args: Any, **kwargs: Any) -> Any:
    raise TypeError("a bug of ours")


def program() -> tuple[hr.Tensor, dict[hr.Tensor, Any]]:
    x = hr.placeholder(F32, [2])
    return hr.tanh(x) * 2.0 + 1.0, {x: np.zeros(2, np.float32)}


STAGES = {
    "optimize": (FoldConstants, "call"),
    "compile": (pipeline, "compile_graph"),
    "recover": (pipeline, "recovered"),
}


@pytest.mark.parametrize("stage", STAGES)
def test_a_step_that_fails_to_compile_is_interpreted_with_a_warning(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*STAGES[stage], broken)
    with hr.Graph() as graph:
        y, feeds = program()
    with hr.Session(graph=graph, engine="auto") as session:
        with pytest.warns(CompileWarning, match=f"stage '{stage}': TypeError: a bug of ours"):
            assert session.run(y, feeds).tolist() == [1.0, 1.0]
        told = session.explain(y, list(feeds))
    assert told.engine == "interpret"
    assert told.reasons == (f"compilation failed at stage '{stage}': TypeError: a bug of ours",)
    assert 'raise TypeError("a bug of ours")' in str(told)


@pytest.mark.parametrize("stage", STAGES)
def test_the_engine_that_is_to_compile_raises_instead(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*STAGES[stage], broken)
    with hr.Graph() as graph:
        y, feeds = program()
    message = f"stage '{stage}': TypeError: a bug of ours"
    with (
        hr.Session(graph=graph, engine="compiled") as session,
        pytest.raises(HeadraceInternalError, match=message) as e,
    ):
        session.run(y, feeds)
    assert isinstance(e.value.__cause__, TypeError)


def test_a_warning_that_is_an_error_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FoldConstants, "call", broken)
    with hr.Graph() as graph:
        y, feeds = program()
    with hr.Session(graph=graph, engine="auto") as session, pytest.raises(CompileWarning):
        session.run(y, feeds)


def test_source_that_python_refuses_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def nested(*args: Any) -> Any:
        return compile("(" * 300 + ")" * 300, "<test>", "exec")

    monkeypatch.setattr(compiling, "Compiled", nested)
    with hr.Graph() as graph:
        y, feeds = program()
    message = "SyntaxError: too many nested parentheses"
    with hr.Session(graph=graph, engine="auto") as session, pytest.warns(CompileWarning, match=message):
        session.run(y, feeds)


def waiting() -> tuple[hr.Tensor, dict[hr.Tensor, Any]]:
    """A step that waits for a queue, and so runs in fused regions."""
    queue = hr.FIFOQueue(4, [F32], [[]])
    x = hr.placeholder(F32, [])
    with hr.control_dependencies([queue.enqueue(x)]):
        y = queue.dequeue()
    return hr.tanh(y) * 2.0 + 1.0 - hr.square(y), {x: np.float32(0.0)}


def test_clusters_that_fail_to_compile_are_single_nodes_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_kernels, "_compiled", broken)
    with hr.Graph() as graph:
        y, feeds = waiting()
    with hr.Session(graph=graph, engine="auto") as session:
        with pytest.warns(CompileWarning, match="stage 'fused_regions': TypeError: a bug of ours"):
            assert session.run(y, feeds) == 1.0
        told = session.explain(y, list(feeds))
    assert told.fused_regions == ()
    assert 'raise TypeError("a bug of ours")' in "".join(told.failures)


@pytest.mark.parametrize("engine", ["auto", "compiled", "interpret"])
def test_what_is_wrong_with_a_program_is_no_warning(engine: str) -> None:
    with hr.Graph() as graph:
        x = hr.placeholder(F32, None)
        z = hr.reshape(x, [7])
    with hr.Session(graph=graph, engine=engine) as session, pytest.raises(InvalidArgumentError):
        session.run(z, {x: np.zeros(3, np.float32)})


def test_a_call_of_a_function_that_is_not_there_is_its_own_error() -> None:
    graph = from_text("x = Placeholder[dtype=float32, shape=[]]\n")
    x = graph.get_tensor_by_name("x:0")
    attrs = {"Tin": (F32,), "Tout": (F32,), "f": Func("nowhere", {})}
    y = graph.add_op("PartitionedCall", "y", [x], attrs).outputs[0]
    for engine in ("auto", "compiled"):
        with hr.Session(graph=graph, engine=engine) as session, pytest.raises((GraphError, hr.errors.NotFoundError)):
            session.run(y, {x: np.float32(0)})
