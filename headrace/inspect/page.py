"""Graphs as HTML: the page that shows recordings too (`view`), without a run.

A page refers to no other file, and its content security policy names its scripts by their hashes. Text of a graph is
data in it. In a notebook the page is in a frame of its own, in which its scripts run without access to the notebook.
Where frames or scripts are not allowed (GitHub, a notebook that is not trusted), the program of the graph is there as
text.
"""

from __future__ import annotations

import collections
import html
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headrace import thresholds
from headrace.errors import GraphError, OpError
from headrace.inspect.graph_document import document_of_graph, most
from headrace.inspect.parts import plural, visible
from headrace.inspect.program import graph_text
from headrace.ir.function import nested_operations
from headrace.view.page import assemble

if TYPE_CHECKING:
    from headrace.ir.graph import Graph

_HEIGHT: Final = 520  # pixels

# `allow-scripts` alone: the frame has an origin of its own, and cannot reach the notebook.
_FRAME: Final = (
    '<iframe sandbox="allow-scripts" title="{title}" loading="lazy" srcdoc=\'{page}\' '
    'style="width:100%;height:{height}px;border:1px solid rgba(128,128,128,.4);border-radius:8px"></iframe>'
)


def render_page(document: Mapping[str, Any]) -> str:
    """Returns the page of a graph as one file.

    Args:
      document: a document of `document_of_graph` or `document_of_fetches`.

    Example:
      >>> from headrace.inspect import document_of_graph
      >>> from headrace.ir.text import from_text
      >>> page = render_page(document_of_graph(from_text("x = NoOp"), "<x>"))
      >>> page[:15], "<x>" in page
      ('<!DOCTYPE html>', False)
    """
    return assemble(json.dumps(document, allow_nan=False))


def graph_html(graph: Graph) -> str:
    """Returns ASCII HTML of a graph: the page in a frame, and the program.

    A graph of more than `thresholds.DRAWN_OPERATIONS` operations is not drawn, since a display must not take long.

    Example:
      >>> import headrace as hr
      >>> with hr.Graph() as g:
      ...     x = hr.placeholder(hr.float32, (), name="x")
      >>> from headrace.inspect import graph_html
      >>> graph_html(g)[:28]
      '<div class="headrace-graph">'
    """
    ops = list(nested_operations(graph.operations))
    title = f"graph of {plural(len(ops), 'operation')}"
    counts = most(collections.Counter(op.type for op in ops).most_common())
    drawn = note = ""
    if len(ops) > thresholds.DRAWN_OPERATIONS:
        note = "It is too large to be drawn here; headrace inspect --html draws it from a file."
    elif ops:
        drawn, note = _frame(graph, title, counts)
    text = "".join(
        (
            f'<div class="headrace-graph">{drawn}',
            f"<p><i>{_text(note)}</i></p>" if note else "",
            f"<details{'' if drawn else ' open'}><summary>{_text(title)}: {_text(counts)}</summary>",
            f'<pre style="overflow:auto;max-height:{_HEIGHT}px">{html.escape(graph_text(graph))}</pre></details></div>',
        )
    )
    return text.encode("ascii", "xmlcharrefreplace").decode()


def _frame(graph: Graph, title: str, counts: str) -> tuple[str, str]:
    """Returns the frame with the page, or the reason why there is none."""
    try:
        document = document_of_graph(graph, title, thresholds.NOTEBOOK_OPERATIONS, [("operations by type", counts)])
    except (GraphError, OpError) as e:  # a display must not raise
        return "", f"It cannot be drawn: {type(e).__name__}: {e}"
    # A notebook is given to other people, and the text of the user's files is not a part of it.
    document["files"] = [{**file, "text": None} for file in document["files"]]
    page = render_page(document)
    if len(page) > thresholds.NOTEBOOK_PAGE:
        limit = thresholds.NOTEBOOK_PAGE
        return "", f"Its page has {len(page):,} characters, more than {limit:,}; headrace inspect --html draws it."
    escaped = html.escape(page, quote=False).replace("'", "&#39;")  # JSON has many double quotes, and few single ones
    frame = _FRAME.format(title=html.escape(title), page=escaped, height=_HEIGHT)
    left_out = document["left_out"]
    note = f"{left_out:,} of {plural(left_out + len(document['nodes']), 'operation')} are not drawn here."
    return frame, note if left_out else ""


def _text(text: str) -> str:
    """Escapes text of a graph, so that it contains no tags."""
    return html.escape(visible(text, None))
