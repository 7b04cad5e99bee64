"""Documents of graphs without a run."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace as hr
from headrace import inspect
from headrace.ir.text import from_text
from tests.inspect.graphs import HOSTILE, chain, hostile
from tests.inspect.test_tree import PRIMITIVES, nested
from tests.ir import functional


def named(document: dict[str, Any], end: str) -> dict[str, Any]:
    (found,) = [n for n in document["nodes"] if n["name"].endswith(end)]
    return dict(found)


@pytest.mark.parametrize("graph", [nested, functional.program, lambda: from_text(PRIMITIVES), hr.Graph])
def test_documents_refer_to_earlier_frames_and_to_nodes_that_they_have(graph: Any) -> None:
    d = json.loads(json.dumps(inspect.document_of_graph(graph())))
    for i, frame in enumerate(d["frames"]):
        assert frame["parent"] < i
        assert -1 <= frame["op"] < len(d["nodes"])
    for node in d["nodes"]:
        assert node["frame"] < len(d["frames"])
        assert node["device"] < len(d["devices"])
        assert all(source < len(d["nodes"]) for source, _ in node["inputs"])
        assert all(c < len(d["nodes"]) for c in node["controls"])


def test_loops_and_branches_are_frames() -> None:
    d = inspect.document_of_graph(nested())
    kinds = [(f["kind"], d["frames"][f["parent"]]["name"]) for f in d["frames"][1:]]
    assert kinds == [("loop", ""), ("loop", "outer"), ("branch", "outer/inner"), ("branch", "outer/inner")]
    assert {n["type"] for n in d["nodes"]} >= {"Enter", "Merge", "Switch", "NextIteration", "Exit", "MatMul"}


def test_a_recursive_function_is_a_frame_with_its_body() -> None:
    d = inspect.document_of_graph(functional.program())
    (function,) = [i for i, f in enumerate(d["frames"]) if f["kind"] == "function"]
    inside = {i for i, f in enumerate(d["frames"]) if function in (i, f["parent"])}
    assert sum(n["frame"] in inside for n in d["nodes"]) == 14
    assert d["nodes"][d["frames"][function]["op"]]["name"] == "fact"


def test_the_facts_have_types_dtypes_sizes_and_devices() -> None:
    with hr.Graph() as g, hr.device("/device:CPU:1"):
        hr.constant([[1.0, 2.0]], name="w")
    d = inspect.document_of_graph(g)
    assert d["facts"] == [
        ["operations by type", "1 of 1 type: 1 Const"],
        ["tensors", "1 float32"],
        ["constants", "1, 8 B"],
        ["requested devices", "1 /device:CPU:1"],
    ]
    node = named(d, "w")
    assert node["outputs"] == [["float32", [1, 2]]]
    assert node["constant"] == "1, 2"
    assert d["devices"][node["device"]] == "/device:CPU:1"
    assert d["files"][node["source"][0]]["name"] == __file__


def test_a_document_counts_the_operations_that_it_leaves_out() -> None:
    d = inspect.document_of_graph(nested(), limit=20)
    whole = inspect.document_of_graph(nested(), limit=None)
    assert len(d["nodes"]) == 20
    assert d["left_out"] == len(whole["nodes"]) - 20 > 0
    assert whole["left_out"] == 0
    # The operations of loops are kept, and the edges to the others are gone.
    assert all(n["frame"] for n in d["nodes"])
    assert all(source < 20 for n in d["nodes"] for source, _ in n["inputs"])
    assert {f["op"] for f in d["frames"]} <= set(range(-1, 20))


def test_a_step_has_the_ends_of_its_feeds_and_fetches() -> None:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, (), name="x")
        y = hr.tanh(x, name="y")
        hr.exp(y, name="z")
    d = inspect.document_of_fetches(g, [x], [y], title="the step")
    assert [n["type"] for n in d["nodes"]] == ["_Arg", "Tanh", "_Retval"]
    assert d["title"] == "the step"


def test_a_graph_whose_frames_do_not_fit_is_drawn_without_them() -> None:
    lines = [
        "x = Placeholder[dtype=float32, shape=[]]",
        'enter = Enter[frame_name="a"](x)',
        "wrong = AddV2(enter, x)",
        "out = Neg(wrong)",
    ]
    d = inspect.document_of_graph(from_text("\n".join(lines)))
    assert [f["kind"] for f in d["frames"]] == ["root"]
    assert [n["name"] for n in d["nodes"]] == ["x", "enter", "wrong", "out"]
    (problem,) = d["problems"]
    assert problem.startswith("drawn without loops, conditionals and functions: ")
    assert "wrong" in problem


def test_texts_are_printable() -> None:
    d = inspect.document_of_graph(hostile(), HOSTILE)
    text = json.dumps(d, ensure_ascii=False)
    assert "<script>alert('x')" in text
    assert "\u202e" not in text
    assert "\\u0000" not in text


def test_other_files_than_python_are_named_without_their_text() -> None:
    assert [f["text"] for f in inspect.document_of_graph(hostile())["files"]] == [None]


def test_a_long_graph_is_described_in_order() -> None:
    d = inspect.document_of_graph(chain(50))
    assert [n["inputs"] for n in d["nodes"]] == [[]] + [[[i, 0]] for i in range(50)]
