"""Functions of a file's library that do not fit their callers.

A caller is an operation that names the function. Every engine reports the misfit, in the same words.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import headrace as hr
from headrace import pb
from headrace.errors import InvalidArgumentError


def loop() -> pb.GraphDef:
    with hr.Graph() as g:
        n = hr.placeholder(hr.int32, (), name="n")
        hr.while_loop(lambda i, j: i < 5, lambda i, j: (i + 1, j * 2), [n, n], name="w")
        hr.cond(n > 0, lambda: n, lambda: -n, name="c")
    return g.as_graph_def()


def function(graph: pb.GraphDef, name: str) -> pb.FunctionDef:
    return next(f for f in graph.library.function if name in f.signature.name)


def with_a_result_more(f: pb.FunctionDef) -> None:
    f.signature.output_arg.add().CopyFrom(f.signature.output_arg[0])
    f.signature.output_arg[-1].name = "more"
    f.ret["more"] = f.ret[f.signature.output_arg[0].name]


def without_its_last_parameter(f: pb.FunctionDef) -> None:
    del f.signature.input_arg[-1]


@pytest.mark.one_engine
@pytest.mark.parametrize("engine", ["interpret", "compiled"])
@pytest.mark.parametrize(
    ("name", "change", "fetch", "says"),
    [
        ("w_cond", with_a_result_more, "w:0", "Expected a single scalar return value from WhileOp cond, got 2 tensors"),
        ("w_cond", without_its_last_parameter, "w:0", r"'w' .* gives 2 values to 'w_cond' .* but it takes 1 and ret"),
        ("w_body", with_a_result_more, "w:0", r"'w' .* expects 2 back, but it takes 2 and returns 3"),
        ("c_", with_a_result_more, "c:0", r"'c' .* expects 1 back, but it takes 1 and returns 2"),
    ],
)
def test_a_function_that_does_not_fit(
    name: str, change: Callable[[pb.FunctionDef], None], fetch: str, says: str, engine: str
) -> None:
    graph = loop()
    change(function(graph, name))
    with hr.Graph() as g:
        hr.import_graph_def(graph, name="")
    with (
        hr.flags.override(VERIFY=0),
        hr.Session(graph=g, engine=engine) as session,
        pytest.raises(InvalidArgumentError, match=says) as caught,
    ):
        session.run(fetch, {"n:0": 1})
    assert caught.value.op is g.get_operation_by_name(fetch[0])
