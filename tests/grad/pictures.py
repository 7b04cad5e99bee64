"""The pictures of docs/learn/gradients.md, drawn from the graphs themselves.

`python -m tests.grad.pictures` writes them into the page; a test sees that they are what the code makes today.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import headrace as hr
from headrace.ir import walk
from headrace.ir.function import bodies
from headrace.ir.graph import FuncGraph, Graph, Operation, Tensor
from headrace.lower import lower
from headrace.prune import prune

PAGE = Path(__file__).parents[2] / "docs" / "learn" / "gradients.md"


def loop() -> tuple[Tensor, Tensor]:
    """The loop that the page explains, and the x by which it is differentiated."""
    with hr.Graph():
        x = hr.placeholder(hr.float32, (), name="x")
        w = hr.placeholder(hr.float32, (), name="w")
        (y,) = hr.while_loop(lambda h: h < 100.0, lambda h: hr.exp(h) * w, [x], name="loop")
    return y, x


def pictures() -> dict[str, str]:
    """Name → Mermaid text."""
    y, x = loop()
    before = draw(_needed(y))
    lowered_before = draw(_lowered(y))
    (dx,) = hr.gradients(y, x)
    return {
        "before": before,
        "after": draw(_needed(y, dx)),
        "lowered": lowered_before,
        "lowered gradient": draw(_lowered(y, dx)),
    }


def _needed(*fetches: Tensor) -> Graph:
    return prune([], list(fetches), []).graph


def _lowered(*fetches: Tensor) -> list[Operation]:
    return list(lower(_needed(*fetches), []).ops)


def draw(graph: Graph | list[Operation]) -> str:
    """Draws a graph as a Mermaid flowchart.

    Operations are boxes; a graph that an operation owns is a box around boxes.
    """
    ops = graph.operations if isinstance(graph, Graph) else graph
    return "\n".join(["flowchart TB", *_lines(ops, "n", "    ")])


def _lines(ops: list[Operation] | tuple[Operation, ...], prefix: str, indent: str) -> Iterator[str]:
    ids = {op: f"{prefix}{i}" for i, op in enumerate(ops)}
    for op, me in ids.items():
        if op.opdef.structured:
            yield f'{indent}subgraph {me}["{op.opdef.structured}: {op.name}"]'
            for name, body in bodies(op):
                yield f'{indent}    subgraph {me}{name}["{name}"]'
                yield from _lines(_used(body), f"{me}{name}", indent + "        ")
                yield from _results(body, _used(body), f"{me}{name}", indent + "        ")
                yield f"{indent}    end"
            yield f"{indent}end"
        else:
            yield f"{indent}{me}{_box(op)}"
    for op, me in ids.items():
        for t in op.inputs:
            if t.op in ids:
                label = f"|{t.index}|" if len(t.op.outputs) > 1 else ""
                yield f"{indent}{ids[t.op]} -->{label} {me}"
        for c in op.control_inputs:
            if c in ids:
                yield f"{indent}{ids[c]} -.-> {me}"


def _results(graph: FuncGraph, ops: list[Operation], prefix: str, indent: str) -> Iterator[str]:
    """Results of a sub-graph: of a loop's body, the variables' next values."""
    for k, r in enumerate(graph.results):
        if r not in graph.params:
            what = f"{_short(graph.params[k].op)}'" if len(graph.results) == len(graph.params) else "result"
            yield f'{indent}{prefix}r{k}(["{what}"])'
            yield f"{indent}{prefix}{ops.index(r.op)} -->{f'|{r.index}|' if len(r.op.outputs) > 1 else ''} {prefix}r{k}"


def _short(op: Operation) -> str:
    return op.name.rpartition("/")[2].removeprefix("arg.")


def _used(graph: FuncGraph) -> list[Operation]:
    """Operations of a sub-graph that its results need, without parameters that are only returned."""
    needed = walk.reachable([r.op for k, r in enumerate(graph.results) if r not in graph.params[k : k + 1]])
    return [op for op in graph.operations if op in needed]


def _box(op: Operation) -> str:
    name = _short(op)
    if op.type in ("_Arg", "_Retval", "Placeholder"):
        return f'(["{name}"])'
    if op.type == "Const":
        return f'(["{op.attrs["value"]}"])'
    return f'["{op.type}"]'


def written(page: str) -> str:
    """The page with the pictures of today."""
    made = pictures()

    def picture(m: re.Match[str]) -> str:
        return f"<!-- picture: {m[1]} -->\n```mermaid\n{made[m[1]]}\n```\n"

    return re.sub(r"<!-- picture: ([a-z ]+) -->\n```mermaid\n.*?```\n", picture, page, flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
