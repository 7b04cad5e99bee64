"""Graphs after the stages of a step, as a recording keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import headrace as hr
from headrace import thresholds
from headrace.inspect.program_document import Piece, ProgramDocument
from headrace.ir.text import from_text
from headrace.observe.recorded import check
from headrace.observe.stage_graphs import NO_GRAPH, StageGraphs


def recorded(devices: int = 1) -> dict[str, Any]:
    with hr.Graph() as g:
        x = hr.placeholder(hr.float32, [2], name="x")

        def body(i: Any, h: Any) -> Any:
            with hr.device(f"/cpu:{devices - 1}"):
                return i + 1, hr.tanh(h, name="squash") * 1.0

        with hr.device("/cpu:0"):
            y = hr.exp(hr.while_loop(lambda i, h: i < 2, body, [0, x], name="loop")[1])
        session = hr.Session(graph=g, devices={"CPU": devices})
        recording = hr.record()
        session.run(y, {x: [0.5, 0.5]}, options=hr.RunOptions(listener=recording))
    document = recording.document()
    check(json.loads(json.dumps(document)))
    return document


def names(document: dict[str, Any], stage: str) -> list[str]:
    graphs = document["stage_graphs"]
    at = next(s["graph"] for s in document["stages"] if s["name"].startswith(stage))
    return [graphs["nodes"][i]["name"] for i in graphs["graphs"][at]]


def test_a_stage_has_its_graph_in_primitive_form() -> None:
    document = recorded()
    graphs = document["stage_graphs"]
    before, after = names(document, "prune"), names(document, "optimize")
    assert set(before) - set(after) >= {"loop/mul"}
    squash = next(n for n in graphs["nodes"] if n["name"] == "loop/squash")
    assert graphs["frames"][squash["frame"]] | {"limit": 0} == {
        "name": "loop", "kind": "loop", "parent": 0, "op": -1, "limit": 0,
    }  # fmt: skip
    assert document["files"][squash["source"][0]]["name"] == __file__


def test_an_operation_that_stages_share_is_kept_once() -> None:
    document = recorded()
    graphs = document["stage_graphs"]
    assert len(graphs["graphs"]) >= 2
    assert sum(map(len, graphs["graphs"])) > 1.5 * len(graphs["nodes"])
    texts = [json.dumps(n) for n in graphs["nodes"]]
    assert len(set(texts)) == len(texts)


def test_the_parts_of_all_devices_have_one_graph() -> None:
    document = recorded(devices=2)
    parts = [s["graph"] for s in document["stages"] if s["name"].startswith("partition")]
    assert len(parts) == 2
    assert len(set(parts)) == 1
    graphs = document["stage_graphs"]
    devices = {graphs["nodes"][i]["device"] for i in graphs["graphs"][parts[0]]}
    assert {graphs["devices"][d].rpartition("/")[2] for d in devices} == {"device:CPU:0", "device:CPU:1"}


def test_graphs_beyond_the_budget_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thresholds, "RECORDED_STAGE_GRAPHS", 700)
    graphs = StageGraphs(ProgramDocument([]))

    def pieces(n: int) -> list[Piece]:
        return [Piece(from_text("\n".join(f"x{i} = NoOp" for i in range(n))).operations, None)]

    assert [graphs.add(pieces(n)) for n in (2, 2, 9, 3)] == [0, 0, NO_GRAPH, 1]
    document = graphs.document()
    assert document["graphs"] == [[0, 1], [0, 1, 2]]
    assert document["note"].startswith("The drawings of 1 stages are left out")


def test_an_unchanged_input_keeps_the_entry_of_its_consumer() -> None:
    graphs = StageGraphs(ProgramDocument([]))
    first = from_text("x = Placeholder[dtype=float32]\n\ny = Neg(x)\nz = Exp(y)")
    second = from_text("x = Placeholder[dtype=float32]\nw = Abs(x)\ny = Neg(w)\nz = Exp(y)")
    for graph in (first, second):
        graphs.add([Piece(graph.operations, None)])
    document = graphs.document()
    entries = [[document["nodes"][i]["name"] for i in graph] for graph in document["graphs"]]
    assert entries == [["x", "y", "z"], ["x", "w", "y", "z"]]
    first_z, second_z = (graph[-1] for graph in document["graphs"])
    assert first_z == second_z
