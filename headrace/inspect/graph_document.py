"""Documents of graphs without a run, for the page that shows recordings too.

Such a document has the nodes and frames of the primitive form, as in a recording, and nothing of a run. Its texts are
printable: no name contains a mark that changes the direction of writing.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from headrace import thresholds
from headrace.errors import GraphError, OpError
from headrace.gc_pause import paused
from headrace.grad.differentiate import differentiate
from headrace.inspect.describing import Description, describe, describe_step
from headrace.inspect.parts import plural, size_text, visible
from headrace.inspect.program_document import Piece, ProgramDocument, sources
from headrace.lower import lower
from headrace.prune import prune
from headrace.recursion import MOST, recursion_room_for_levels

if TYPE_CHECKING:
    from headrace.ir.graph import Graph, Operation, Tensor

FORMAT: Final = "headrace-graph"
VERSION: Final = 1

Facts = Sequence[tuple[str, str]]


@paused()
def document_of_graph(
    graph: Graph, title: str = "", limit: int | None = thresholds.DRAWN_OPERATIONS, facts: Facts | None = None
) -> dict[str, Any]:
    """Returns the document of a graph in its primitive form.

    Args:
      graph: any graph.
      title: a line above the drawing.
      limit: the largest number of operations to draw; the document counts the others. None: all.
      facts: (name, text) of each line about the graph; by default, those of its description.

    A graph that cannot be lowered (its frames do not fit together, a function is missing) is drawn without frames, and
    the document has the error.

    Example:
      >>> from headrace.inspect import document_of_graph
      >>> from headrace.ir.text import from_text
      >>> document = document_of_graph(from_text("x = Placeholder[dtype=int32, shape=[2]]\\ny = Neg(x)"))
      >>> [node["name"] for node in document["nodes"]], document["nodes"][1]["inputs"]
      (['x', 'y'], [[0, 0]])
    """
    with recursion_room_for_levels(MOST):
        facts = _facts(describe(graph)) if facts is None else facts
        return _document(graph, graph.operations, title, limit, facts)


@paused()
def document_of_fetches(
    graph: Graph,
    feeds: Sequence[Tensor],
    fetches: Sequence[Tensor],
    targets: Sequence[Operation] = (),
    title: str = "",
    limit: int | None = thresholds.DRAWN_OPERATIONS,
) -> dict[str, Any]:
    """Returns the document of the part of a graph that a step needs; see `document_of_graph`.

    Args:
      graph: any graph.
      feeds: the fed tensors.
      fetches: the fetched tensors.
      targets: the operations that the step runs.
      title: a line above the drawing.
      limit: the largest number of operations to draw. None: all.

    Example:
      >>> import headrace as hr
      >>> from headrace.inspect import document_of_fetches
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      ...     y, z = hr.tanh(x, name="y"), hr.exp(x, name="z")
      >>> [node["type"] for node in document_of_fetches(g, [x], [y])["nodes"]]
      ['_Arg', 'Tanh', '_Retval']
    """
    with recursion_room_for_levels(MOST):
        facts = _facts(describe_step(graph, feeds, fetches, targets).graph)
        step = prune(feeds, fetches, targets)
        return _document(step.graph, step.targets, title, limit, facts)


def program_of(graph: Graph, targets: Sequence[Operation]) -> ProgramDocument:
    """Returns the nodes and frames of a graph in its primitive form.

    Raises:
      GraphError: the graph cannot be lowered.
      InvalidArgumentError: its frames do not fit together.
      NotFoundError: a function is missing.
    """
    lowered = lower(graph, targets, differentiate)
    return ProgramDocument([Piece(lowered.ops, None), *(Piece(ops, None, f) for f, ops in lowered.functions.items())])


def _document(
    graph: Graph, targets: Sequence[Operation], title: str, limit: int | None, facts: Facts
) -> dict[str, Any]:
    try:
        program = program_of(graph, targets)
        problems = program.problems
    except (GraphError, OpError) as e:  # a graph in a file may be damaged, and its drawing shows where
        program = ProgramDocument([Piece(graph.operations, None)], is_flat=True)
        problems = [f"drawn without loops, conditionals and functions: {e}"]
    total = len(program.nodes)
    nodes, shown_frames = _cut(program.nodes, program.frames, limit)
    for node in nodes:
        for field in ("name", "type", "scope", "attrs", "constant"):
            node[field] = None if node[field] is None else visible(node[field], None)
    for frame in shown_frames:
        frame["name"] = visible(frame["name"], None)
    return {
        "format": FORMAT,
        "version": VERSION,
        "headrace": sys.modules["headrace"].__version__,
        "title": visible(title),
        "facts": [[name, visible(text, None)] for name, text in facts],
        "problems": [visible(text, None) for text in problems],
        "left_out": total - len(nodes),
        "devices": [visible(name, None) for name in program.devices],
        "files": [{**file, "name": visible(file["name"], None)} for file in sources(program.files)],
        "frames": shown_frames,
        "nodes": nodes,
    }


def _cut(
    nodes: list[dict[str, Any]], shown_frames: list[dict[str, Any]], limit: int | None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Reduces `nodes` to `limit`; operations outside of loops, conditionals and functions are left out first."""
    if limit is None or len(nodes) <= limit:
        return nodes, shown_frames
    order = sorted(range(len(nodes)), key=lambda i: (nodes[i]["frame"] == 0, i))
    kept = {i: at for at, i in enumerate(sorted(order[:limit]))}
    out = []
    for i in kept:
        node = dict(nodes[i])
        node["inputs"] = [[kept[source], k] for source, k in node["inputs"] if source in kept]
        node["controls"] = [kept[c] for c in node["controls"] if c in kept]
        out.append(node)
    return out, [{**frame, "op": kept.get(frame["op"], -1)} for frame in shown_frames]


def _facts(d: Description) -> Facts:
    """Lines about the whole graph."""
    known = sum(c.bytes or 0 for c in d.constants)
    state = sum(r.bytes or 0 for r in d.resources)
    lines = (
        ("operations by type", f"{sum(d.ops.values()):,} of {plural(len(d.ops), 'type')}: {most([*d.ops.items()])}"),
        ("tensors", most([*d.dtypes.items()])),
        ("constants", f"{len(d.constants):,}, {size_text(known)}" if d.constants else ""),
        ("state", f"{len(d.resources):,}, {size_text(state)} where the shape is known" if d.resources else ""),
        ("requested devices", most([*d.devices.items()])),
    )
    return [(name, text) for name, text in lines if text]


def most(counts: Sequence[tuple[str, int]], shown: int = 8) -> str:
    """Returns the first `counts` as a text, with the number of the others."""
    more = f", {len(counts) - shown} more" if len(counts) > shown else ""
    return ", ".join(f"{n:,} {visible(name, 40)}" for name, n in counts[:shown]) + more
