"""Error texts about graphs that are written, read and compared."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import GraphError
from headrace.inspect import diff
from tests.errors.table import check

ops = hr.raw_ops
FOR_US = r"To write a file for headrace alone, call as_graph_def\(portable=False\)\.$"


def elements_of_no_shape() -> Any:
    with hr.Graph() as g:
        rows = ops.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=hr.float32)
        hr.scopes.builder().make("_TensorListUnset", [rows, 0], {"element_dtype": hr.float32}, "unset")
    return g.as_graph_def()


def deep(n: int) -> hr.Graph:
    """Conditionals inside conditionals."""
    with hr.Graph() as g:
        p, x = hr.placeholder(hr.bool, (), name="p"), hr.placeholder(hr.float32, (), name="x")

        def inside(k: int) -> Any:
            return hr.cond(p, lambda: inside(k - 1), lambda: x, name="c") if k else hr.sin(x)

        inside(n)
    return g


ROWS = [
    (
        lambda: hr.Graph().as_graph_def("flat"),
        ValueError,
        r"as_graph_def\(form='flat'\): the forms are 'structured' and 'primitive'",
    ),
    (
        elements_of_no_shape,
        GraphError,
        rf"'unset' \(_TensorListUnset\), made at .*test_files\.py:\d+.*, takes elements out of a list whose .*{FOR_US}",
    ),
    (
        lambda: hr.import_meta_graph(3),
        TypeError,
        r"a MetaGraphDef must be a message or its bytes, got 3 \(int\)",
    ),
    (
        lambda: hr.export_meta_graph(hr.Graph(), collections={"mine": [object]}),
        GraphError,
        r"the collection 'mine' cannot be written: .* \(type\) is no tensor or operation of the graph.*of one kind",
    ),
]


@pytest.mark.parametrize(("how", "error", "says"), ROWS)
def test_what_is_said(how: Any, error: type[Exception], says: str) -> None:
    check(how, error, says)


def test_text_that_is_nested_too_deeply(tmp_path: Any) -> None:
    file = tmp_path / "m.meta"
    file.write_text("graph_def { library { function { attr { value { func { " + "attr { value { func { " * 2000)
    says = "m.meta' is no MetaGraph: not a MetaGraphDef: its messages are nested too deeply$"
    check(lambda: hr.import_meta_graph(file), GraphError, says)


@pytest.mark.matrix
def test_graphs_that_are_nested_too_deeply() -> None:
    """Each level is a structure and its branch, and there may be a hundred."""
    a, b = deep(101), deep(101)
    says = r"^c > then_branch > .* > \.\.\.: graphs are nested too deeply to be compared$"
    check(lambda: diff(a, b), GraphError, says)
